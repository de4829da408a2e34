//! A Diameter node: client, server, or both, over byte streams.
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
//! Work labels: `diameter.request` (a request sent or taken), `diameter.answer`, `diameter.base`
//! (capabilities, watchdogs, disconnections).

mod config;
mod connections;
mod requests;
mod server;
#[cfg(test)]
mod tests;

pub use config::{Config, PeerConfig, Route};

use crate::avp::AvpBuf;
use crate::error::{Fault, ResultCode};
use crate::message::Message;
use crate::peer::{automaton, capabilities::Capabilities, watchdog};
use crate::stream::Framer;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, ConnId, Input, Instant, Machine, SecureRng, StreamEvent, StreamOp, Transmit, Work,
};

/// A peer: index in [`Config::peers`], then those that connected unasked, in their order.
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
    /// Disconnect a peer in good order (DPR) and do not reconnect until told.
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
        /// Messages whose header, length or AVPs are wrong.
        malformed,
        /// Streams closed because no message could be cut out of them.
        unframable,
        /// Something other than a CER on a new connection.
        not_a_cer,
        /// CER or CEA with missing or wrong AVPs.
        bad_capabilities,
        /// CER from, or CEA of, somebody else than expected.
        unknown_peer,
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
        /// Requests that passed here before.
        loop_detected,
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

#[derive(Debug)]
struct Conn {
    peer: Option<u32>,
    framer: Framer,
    /// Deadline for its CER.
    deadline: Option<Instant>,
}

#[derive(Debug)]
struct Peer {
    host: String,
    address: Option<SocketAddr>,
    reconnect: bool,
    state: automaton::State,
    watchdog: watchdog::Watchdog,
    /// When the watchdog is due; its timer may be armed earlier and is then set again.
    watchdog_due: Option<Instant>,
    watchdog_armed: Option<Instant>,
    state_deadline: Option<Instant>,
    ours: Option<ConnId>,
    theirs: Option<ConnId>,
    remote: Option<Capabilities>,
    /// The CER that waits for its CEA.
    cer: Option<crate::message::Header>,
}

impl Peer {
    fn new(host: String, address: Option<SocketAddr>) -> Self {
        Self {
            host,
            address,
            reconnect: address.is_some(),
            state: automaton::State::Closed,
            watchdog: watchdog::Watchdog::default(),
            watchdog_due: None,
            watchdog_armed: None,
            state_deadline: None,
            ours: None,
            theirs: None,
            remote: None,
            cer: None,
        }
    }
    /// The connection that messages go by.
    fn conn(&self) -> Option<ConnId> {
        match self.state {
            automaton::State::IOpen => self.ours,
            automaton::State::ROpen => self.theirs,
            _ => None,
        }
    }
}

/// A Diameter endpoint; see the [module](self).
#[derive(Debug)]
pub struct Node {
    config: Config,
    rng: SecureRng,
    peers: Vec<Peer>,
    by_host: HashMap<String, u32>,
    conns: HashMap<ConnId, Conn>,
    next_conn: u32,
    hop_by_hop: u32,
    end_to_end: u32,
    client: requests::Requests,
    server: server::Server,
    timers: TimerQueue<Timer>,
    out: VecDeque<(ConnId, StreamOp, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    events: VecDeque<Event>,
    work: VecDeque<Work>,
    counters: Counters,
}

/// Buffers kept for reuse.
const SPARE: usize = 32;

impl Node {
    /// A node that begins to connect at `start`.
    pub fn new(config: Config, start: Instant, mut rng: SecureRng) -> Self {
        let state = hash_state(&mut rng);
        let mut node = Self {
            peers: Vec::new(),
            by_host: HashMap::with_hasher(state.clone()),
            conns: HashMap::with_hasher(state.clone()),
            next_conn: 0,
            hop_by_hop: rng.next_u32(),
            end_to_end: rng.next_u32(),
            client: requests::Requests::new(state.clone()),
            server: server::Server::new(state),
            timers: TimerQueue::new(),
            out: VecDeque::new(),
            spare: Vec::new(),
            events: VecDeque::new(),
            work: VecDeque::new(),
            counters: Counters::default(),
            config,
            rng,
        };
        for i in 0..node.config.peers.len() {
            let PeerConfig { host, address } = node.config.peers[i].clone();
            let p = node.add_peer(&host, address);
            if address.is_some() {
                node.set_watchdog(p, Some(start));
            }
        }
        node
    }
    /// The counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// The state of a peer's automaton, if there is such a peer.
    pub fn peer_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.peers.get(peer.0 as usize).map(|p| p.state)
    }
    /// The state of a peer's watchdog, if there is such a peer.
    pub fn watchdog_state(&self, peer: PeerId) -> Option<watchdog::State> {
        self.peers.get(peer.0 as usize).map(|p| p.watchdog.state())
    }
    /// What a peer said of itself when it was last open.
    pub fn remote(&self, peer: PeerId) -> Option<&Capabilities> {
        self.peers.get(peer.0 as usize)?.remote.as_ref()
    }
    /// Requests that wait for a connection or an answer.
    pub fn pending(&self) -> usize {
        self.client.len()
    }

    fn add_peer(&mut self, host: &str, address: Option<SocketAddr>) -> u32 {
        let p = self.peers.len() as u32;
        self.peers.push(Peer::new(host.to_string(), address));
        self.by_host.insert(host.to_ascii_lowercase(), p);
        p
    }
    fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    fn recycle(&mut self, mut buf: Vec<u8>) {
        if self.spare.len() < SPARE && buf.capacity() <= 4096 {
            buf.clear();
            self.spare.push(buf);
        }
    }
    fn did(&mut self, label: &'static str) {
        match self.work.back_mut() {
            Some(w) if w.label == label => w.units += 1,
            _ => self.work.push_back(Work { label, units: 1 }),
        }
    }

    fn on_timer(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Watchdog(p) => {
                let peer = &mut self.peers[p as usize];
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
                self.peers[p as usize].state_deadline = None;
                self.counters.connect_failed += 1;
                self.peer_event(now, p, automaton::Event::Timeout, None);
            }
            Timer::Accepted(conn) => {
                self.counters.not_a_cer += 1;
                self.conns.remove(&conn);
                self.out.push_back((conn, StreamOp::Abort, Vec::new()));
            }
            Timer::Request(slot) => self.request_timed_out(slot),
        }
    }
}

impl Machine for Node {
    type Command = Command;
    type Event = Event;

    fn handle(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Timeout => {
                while let Some((_, timer)) = self.timers.pop_due(now) {
                    self.on_timer(now, timer);
                }
            }
            Input::Stream { conn, event } => match event {
                StreamEvent::Connected { .. } => self.on_connected(now, conn),
                StreamEvent::Data(data) => self.on_data(now, conn, data),
                StreamEvent::Writable => {}
                StreamEvent::Closed(_) => self.on_closed(now, conn),
            },
            Input::Datagram { .. } | Input::Message { .. } | Input::Frame { .. } => {
                self.counters.out_of_state += 1;
            }
        }
    }

    fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Request(request) => self.request(now, request),
            Command::Answer { token, result, avps } => self.answer(token, result, &avps),
            Command::Reject { token, fault } => {
                let mut avps = AvpBuf::new();
                server::write_fault(&mut avps, &fault);
                self.answer(token, fault.code, &avps)
            }
            Command::Disconnect { peer, cause } => self.disconnect(now, peer, cause),
            Command::Connect { peer } => {
                let p = self.peers.get_mut(peer.0 as usize).ok_or(CommandError::UnknownToken)?;
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

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
        buf.clear();
        let (conn, op, mut bytes) = self.out.pop_front()?;
        if matches!(op, StreamOp::Data) {
            core::mem::swap(buf, &mut bytes);
            self.recycle(bytes);
        }
        Some(Transmit::Stream { conn, op })
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }
}
