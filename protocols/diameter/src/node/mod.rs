//! A Diameter node: client, server, or both, over byte streams (TCP, TLS) and associations (SCTP).
//!
//! Drive it as any [`Machine`]. It connects to its configured peers at the first [`Input::Timeout`]
//! (which [`Machine::poll_timeout`] asks for at once) and again Tc after each loss. Every message is a
//! transmit of its own.
//!
//! A client gives [`Command::Request`] and gets one [`Event::Answer`] or [`Event::Failed`] with its token.
//! A server gets [`Event::Request`] and gives one [`Command::Answer`] or [`Command::Reject`] with that
//! token. The node itself writes Session-Id, application, Origin-* and Destination-* AVPs, copies
//! Proxy-Info, and keeps capabilities, watchdogs, disconnections, failover and duplicates to itself.
//!
//! Over SCTP each message is one user message of payload protocol 46. Capabilities, watchdogs and
//! disconnections go in order by stream 0; a request goes the way of its association's
//! [`StreamPolicy`](crate::stream::StreamPolicy), an answer likewise, on [`StreamPolicy::answer`]'s stream.
//! Nothing overtakes anything before the other side is known to be open, which the initiator knows by the
//! CEA and the responder by the first message after it (RFC 6733 §2.1.1).
//!
//! [`StreamPolicy::answer`]: crate::stream::StreamPolicy::answer
//!
//! A peer that is not configured is forgotten when its connection has ended.
//!
//! The work that a node reports is labelled as [`crate::work`] declares.

mod config;
mod connections;
mod links;
mod peers;
mod requests;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Authentication, Config, PeerConfig, Route, Transport};

use crate::avp::AvpBuf;
use crate::error::{Fault, ResultCode};
use crate::message::Message;
use crate::peer::{automaton, capabilities::Capabilities, watchdog};
use crate::stream::Framer;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use links::{Conn, End, Origin, PeerTransport};
use peers::{Peer, Peers};
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, ConnId, Input, Instant, Machine, MessageEvent, NoJob, OutputOf, Outputs, SecureRng,
    StreamEvent, Work, WorkLabel,
};

/// A peer: index in [`Config::peers`]; those that connected unasked have the numbers behind, each its own
/// for as long as it is connected, and a new one when it comes again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A request to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Comes back with the answer.
    pub token: u64,
    /// Application-Id; also written as Auth-Application-Id (Acct-Application-Id for accounting, command 271).
    pub application: u32,
    /// Command code.
    pub command: u32,
    /// Destination-Realm, by which it is routed.
    pub destination_realm: String,
    /// Destination-Host: goes to that server only.
    pub destination_host: Option<String>,
    /// Session-Id.
    pub session_id: String,
    /// All other AVPs.
    pub avps: AvpBuf,
}

/// Disconnect-Cause (RFC 6733 §5.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DisconnectCause {
    /// It will be back.
    Rebooting,
    /// Short of resources: do not reconnect.
    Busy,
    /// No use for the connection: do not reconnect.
    DoNotWantToTalkToYou,
}

/// What a node can be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Send a request. `Full` when [`Config::max_pending`] are under way.
    Request(Request),
    /// Answer the request of [`Event::Request`] with this token.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code.
        result: ResultCode,
        /// All AVPs but Session-Id, Result-Code, Origin-*, Auth-Application-Id and Proxy-Info.
        avps: AvpBuf,
    },
    /// Answer it with a fault: result code and Failed-AVP.
    Reject {
        /// The request's token.
        token: u64,
        /// What was wrong.
        fault: Fault,
    },
    /// Whoever made this request wants no answer any more: it is not sent again, and an answer that comes
    /// is counted as one that matches no request. Of several requests with this token, the last is meant.
    Forget {
        /// The request's token.
        token: u64,
    },
    /// Disconnect a peer in good order (DPR) and do not reconnect until told. A connection that is not open
    /// yet is dropped at once.
    Disconnect {
        /// The peer.
        peer: PeerId,
        /// Why.
        cause: DisconnectCause,
    },
    /// Connect to a configured peer now, and again whenever the connection is lost.
    Connect {
        /// The peer.
        peer: PeerId,
    },
}

/// Why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailReason {
    /// [`Config::request_timeout`] passed.
    TimedOut,
    /// No route fits, or no peer of it speaks the application.
    NoRoute,
    /// The connection was lost, nobody else could take it, and it may not be sent to the same peer again.
    ConnectionLost,
    /// The answer has no Result-Code that can be read.
    BadAnswer,
}

/// What a node has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The answer to a request of ours.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code, or the code in Experimental-Result.
        result: ResultCode,
        /// All AVPs of the answer.
        avps: AvpBuf,
    },
    /// A request of ours came to nothing.
    Failed {
        /// The request's token.
        token: u64,
        /// Why.
        reason: FailReason,
    },
    /// A peer's request, to be answered.
    Request {
        /// For [`Command::Answer`].
        token: u64,
        /// Who sent or relayed it.
        peer: PeerId,
        /// Whose it is, as far as that is authenticated, in small letters: its Origin-Host, where that is the peer or one
        /// of the peer's [`PeerConfig::origins`]; else the peer that brought it.
        origin: Arc<str>,
        /// The request.
        message: Message,
    },
    /// A peer is open: capabilities are exchanged.
    PeerUp {
        /// The peer.
        peer: PeerId,
    },
    /// A peer is no longer open.
    PeerDown {
        /// The peer.
        peer: PeerId,
    },
}

usher_core::counters! {
    /// What a node counted: drops by kind, and what else is rare enough to be worth a number.
    pub struct Counters {
        /// Messages whose header, length or AVPs are wrong, and user messages that hold not exactly one.
        malformed,
        /// User messages of a payload protocol other than Diameter's.
        foreign_payload,
        /// Streams closed because no message could be cut out of them.
        unframable,
        /// Something other than a CER on a new connection.
        not_a_cer,
        /// CER or CEA with missing or wrong AVPs.
        bad_capabilities,
        /// CER from, or CEA of, somebody else than expected.
        unknown_peer,
        /// Connections whose address or certificate is not the peer's.
        unauthenticated_peer,
        /// CER or CEA without a common application.
        no_common_application,
        /// Connections refused because the peer has one.
        connection_rejected,
        /// Answers that match no request.
        unmatched_answer,
        /// Messages in a state that has no use for them.
        out_of_state,
        /// Requests for an application that we do not speak.
        application_unsupported,
        /// Requests for a realm or host that is not us.
        not_for_us,
        /// Requests that passed an agent which is not trusted.
        untrusted_route,
        /// Requests that passed here before.
        loop_detected,
        /// Requests with another node's Origin-Host and no Route-Record.
        foreign_origin,
        /// Requests refused because too many are unanswered.
        too_busy,
        /// Requests that came again: answered from memory, or joined with the one under way.
        duplicate_request,
        /// Answers of the service to a connection that is gone.
        answer_undeliverable,
        /// Requests sent again with the T flag.
        retransmitted,
        /// Requests that timed out.
        request_timeout,
        /// Watchdogs that went unanswered.
        watchdog_timeout,
        /// Connections that did not come up or not in time.
        connect_failed,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// The peer's watchdog, or Tc while it is down.
    Watchdog(u32),
    /// The peer stayed too long in a passing state.
    State(u32),
    /// A new connection sent no CER.
    Accepted(ConnId),
    /// A request, by its slot.
    Request(u32),
}

/// A Diameter endpoint; see the [module](self).
#[derive(Debug)]
pub struct Node {
    config: Config,
    rng: SecureRng,
    peers: Peers,
    /// Peers that were not configured and whose connection may have ended.
    leaving: Vec<u32>,
    conns: HashMap<ConnId, Conn>,
    next_conn: u32,
    hop_by_hop: u32,
    end_to_end: u32,
    client: requests::Requests,
    server: server::Server,
    timers: TimerQueue<Timer>,
    outputs: Outputs<Event>,
    counters: Counters,
}

impl Node {
    /// A node that begins to connect at `start`.
    pub fn new(config: Config, start: Instant, mut rng: SecureRng) -> Self {
        let state = hash_state(&mut rng);
        let mut node = Self {
            peers: Peers::new(state.clone()),
            leaving: Vec::new(),
            conns: HashMap::with_hasher(state.clone()),
            next_conn: 0,
            hop_by_hop: rng.next_u32(),
            end_to_end: rng.next_u32(),
            client: requests::Requests::new(state.clone()),
            server: server::Server::new(state),
            timers: TimerQueue::new(),
            outputs: Outputs::default(),
            counters: Counters::default(),
            config,
            rng,
        };
        for i in 0..node.config.peers.len() {
            let peer = node.config.peers[i].clone();
            let connects = peer.address.is_some();
            let p = node.peers.configure(Peer::new(peer));
            if connects {
                node.set_watchdog(p, Some(start));
            }
        }
        node
    }
    /// Our DiameterIdentity: the Origin-Host of what is sent.
    pub fn identity(&self) -> &str {
        &self.config.local.host
    }
    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Whether some peer may connect from an address: any other need not be heard out.
    #[must_use]
    pub fn may_connect(&self, address: core::net::IpAddr) -> bool {
        self.config.accept_unknown
            || self.peers.configured().iter().any(|peer| peer.authentication.may_connect(address))
    }
    /// The state of a peer's automaton, if there is such a peer.
    pub fn peer_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.peers.get(peer.0).map(|p| p.state)
    }
    /// The state of a peer's watchdog, if there is such a peer.
    pub fn watchdog_state(&self, peer: PeerId) -> Option<watchdog::State> {
        self.peers.get(peer.0).map(|p| p.watchdog.state())
    }
    /// What a peer must call itself, or what one that was not configured did call itself.
    pub fn host(&self, peer: PeerId) -> Option<&str> {
        self.peers.get(peer.0).map(|p| p.host.as_str())
    }
    /// The configured peers.
    pub fn configured(&self) -> impl Iterator<Item = (PeerId, &PeerConfig)> {
        self.config.peers.iter().zip(0..).map(|(peer, p)| (PeerId(p), peer))
    }
    /// What a peer said of itself when it was last open.
    pub fn remote(&self, peer: PeerId) -> Option<&Capabilities> {
        self.peers.get(peer.0)?.remote.as_ref()
    }
    /// Requests that wait for a connection or an answer.
    pub fn pending(&self) -> usize {
        self.client.len()
    }
    /// Peers known now, the configured ones included.
    pub fn known_peers(&self) -> usize {
        self.peers.len()
    }
    /// Connections and associations that are up, being opened, or waiting for the end of a disconnection.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    fn did(&mut self, label: WorkLabel) {
        self.outputs.work(Work { label, units: 1 });
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Watchdog(p) => {
                let peer = &mut self.peers[p];
                peer.watchdog_armed = None;
                match peer.watchdog_due {
                    Some(due) if due <= now => {
                        peer.watchdog_due = None;
                        self.watchdog(now, p, watchdog::Event::TimerExpires);
                    }
                    due => self.set_watchdog(p, due),
                }
            }
            Timer::State(p) => {
                self.peers[p].state_deadline = None;
                self.counters.connect_failed += 1;
                self.peer_event(now, p, automaton::Event::Timeout, None);
            }
            Timer::Accepted(conn) => {
                self.counters.not_a_cer += 1;
                self.drop_conn(Some(conn), End::Abort);
            }
            Timer::Request(slot) => self.request_timed_out(slot),
        }
    }

    fn obey(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Request(request) => self.request(now, request),
            Command::Answer { token, result, avps } => self.answer(token, result, &avps),
            Command::Reject { token, fault } => {
                let mut avps = AvpBuf::new();
                server::write_fault(&mut avps, &fault);
                self.answer(token, fault.code, &avps)
            }
            Command::Forget { token } => self.forget_request(token),
            Command::Disconnect { peer, cause } => self.disconnect(now, peer, cause),
            Command::Connect { peer } => {
                let p = self.peers.get_mut(peer.0).ok_or(CommandError::UnknownToken)?;
                if p.address.is_none() {
                    return Err(CommandError::Invalid("the peer has no address to connect to"));
                }
                p.reconnect = true;
                if p.state == automaton::State::Closed {
                    self.restart_watchdog(now, peer.0);
                    self.peer_event(now, peer.0, automaton::Event::Start, None);
                }
                Ok(())
            }
        }
    }
}

impl Machine for Node {
    type Command = Command;
    type Event = Event;
    type Job = NoJob;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                while let Some((_, timer)) = self.timers.pop_due(now) {
                    self.on_timer(now, timer);
                }
            }
            Input::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, local, certificate, .. } => {
                    let framer = Framer::new(self.config.max_message);
                    let origin = Origin { remote, certificate: certificate.map(Into::into) };
                    self.on_accepted(now, conn, PeerTransport::Stream(framer), local, origin);
                }
                StreamEvent::Connected { local, certificate, .. } => {
                    self.on_connected(now, conn, local, certificate);
                }
                StreamEvent::Data(data) => self.on_data(now, conn, data),
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Closed(_) => self.on_closed(now, conn),
            },
            Input::Message { assoc, event } => match event {
                MessageEvent::Accepted { remote, streams, .. } => {
                    let policy = self.config.accept_policy;
                    let link = PeerTransport::Association { streams, policy, settled: false };
                    self.on_accepted(now, assoc, link, None, Origin { remote, certificate: None });
                }
                MessageEvent::Up { streams, .. } => self.on_up(now, assoc, streams),
                MessageEvent::Data { stream, ppid, data } => {
                    self.on_user_message(now, assoc, stream, ppid, data);
                }
                MessageEvent::Down(_) => self.on_closed(now, assoc),
            },
            Input::Datagram { .. } | Input::Frame { .. } => self.counters.out_of_state += 1,
        }
        self.forget_peers();
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let done = self.obey(now, command);
        self.forget_peers();
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next()
    }
}
