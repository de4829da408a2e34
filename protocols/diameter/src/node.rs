//! A Diameter node: client, server or both, over byte streams (TCP, TLS) and associations (SCTP).
//!
//! [`DiameterNode`] is a [`Machine`]:
//!
//! - Getters ([`DiameterNode::peer_state`], [`DiameterNode::pending_count`], [`DiameterNode::counters`]) show its
//!   state.
//! - [`Machine::handle_input`] takes stream data, messages, connection events and timeouts.
//! - [`Machine::handle_command`] takes a [`DiameterNodeCommand`].
//! - [`Machine::poll_output`] and [`Machine::poll_timeout`] return transmissions, a [`DiameterNodeEvent`], work and the
//!   next timeout.
//!
//! A client sends [`DiameterNodeCommand::Request`] and gets one [`DiameterNodeEvent::Answer`] or
//! [`DiameterNodeEvent::Failed`] with the same token. A server gets [`DiameterNodeEvent::Request`] and sends one
//! [`DiameterNodeCommand::Answer`] or [`DiameterNodeCommand::Reject`] with the same token.
//!
//! The node writes the AVPs Session-Id, application, Origin-* and Destination-*, and copies Proxy-Info. It handles
//! capabilities, watchdogs, disconnections, failover and duplicates itself.
//!
//! It connects to its configured peers at the first [`MachineInput::Timeout`], which is due at once. It reconnects Tc
//! after each loss. A peer outside the configuration is removed when its connection ends. Each message is a
//! transmission of its own.
//!
//! Over SCTP each message is a user message of payload protocol 46. Capabilities, watchdogs and disconnections go in
//! order on stream 0. The association's [`StreamPolicy`](crate::stream::StreamPolicy) chooses the stream of a request
//! and, by [`StreamPolicy::answer_stream`], that of an answer. Before the peer is known to be open, all messages go in
//! order. The initiator knows it by the CEA, the responder by the first message after it (RFC 6733 §2.1.1).
//!
//! [`StreamPolicy::answer_stream`]: crate::stream::StreamPolicy::answer_stream
//!
//! [`crate::work`] declares the labels of the node's work.

mod config;
mod connections;
mod links;
mod peers;
mod requests;
mod server;
#[cfg(test)]
mod tests;

pub use config::{DiameterNodeConfig, PeerAuthentication, PeerConfig, PeerTransportConfig, RealmRoute};

use crate::avp::AvpBuf;
use crate::error::{DiameterError, ResultCode};
use crate::message::DiameterMessage;
use crate::peer::{automaton, capabilities::NodeCapabilities, watchdog};
use crate::stream::MessageFramer;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use links::{AcceptedConnectionSource, ConnectionCloseMode, PeerConnection, PeerTransport};
use peers::{PeerEntry, PeerTable};
use usher_core::collections::{HashMap, hash_state};
use usher_core::timer::TimerQueue;
use usher_core::{
    CommandError, ConnId, Instant, Machine, MachineInput, MachineOutputOf, MessageAssociationEvent, NoJob,
    OutputQueue, SecureRng, StreamEvent, WorkLabel, WorkRecord,
};

/// A peer's number: its index in [`DiameterNodeConfig::peers`], or a later number for a peer outside the configuration.
/// Such a peer gets a new number for each connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A request to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiameterRequest {
    /// Returns with the answer.
    pub token: u64,
    /// Application-Id, also for Auth-Application-Id (Acct-Application-Id for accounting, command 271).
    pub application: u32,
    /// Command code.
    pub command: u32,
    /// Destination-Realm, by which the node routes.
    pub destination_realm: String,
    /// Destination-Host, if only that server may answer.
    pub destination_host: Option<String>,
    /// Session-Id.
    pub session_id: String,
    /// All other AVPs.
    pub avps: AvpBuf,
}

/// Disconnect-Cause (RFC 6733 §5.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DisconnectCause {
    /// The node restarts and will reconnect.
    Rebooting,
    /// The node is short of resources. The peer must not reconnect.
    Busy,
    /// The node has no use for the connection. The peer must not reconnect.
    DoNotWantToTalkToYou,
}

/// A command to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiameterNodeCommand {
    /// Sends a request. Fails with `Full` if [`DiameterNodeConfig::max_pending`] are pending.
    Request(DiameterRequest),
    /// Answers the request of [`DiameterNodeEvent::Request`] with this token.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code.
        result: ResultCode,
        /// All AVPs except Session-Id, Result-Code, Origin-*, Auth-Application-Id and Proxy-Info.
        avps: AvpBuf,
    },
    /// Answers a request with an error: result code and Failed-AVP.
    Reject {
        /// The request's token.
        token: u64,
        /// The error.
        fault: DiameterError,
    },
    /// Cancels a request. It is not retransmitted, and its answer counts as unmatched. If several requests have this
    /// token, the last is cancelled.
    CancelRequest {
        /// The request's token.
        token: u64,
    },
    /// Disconnects a peer by DPR and does not reconnect until [`Connect`](Self::Connect). A connection that is not open
    /// yet is dropped at once.
    Disconnect {
        /// The peer.
        peer: PeerId,
        /// The Disconnect-Cause.
        cause: DisconnectCause,
    },
    /// Connects to a configured peer now, and again whenever the connection is lost.
    Connect {
        /// The peer.
        peer: PeerId,
    },
}

/// The reason for which a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailReason {
    /// [`DiameterNodeConfig::request_timeout`] passed.
    TimedOut,
    /// No route matches, or none of its peers supports the application.
    NoRoute,
    /// The connection was lost. No other peer is available, and the request may not return to the same peer.
    ConnectionLost,
    /// The answer has no valid Result-Code.
    BadAnswer,
}

/// An event of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DiameterNodeEvent {
    /// The answer to our request.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code, or the code in Experimental-Result.
        result: ResultCode,
        /// All AVPs of the answer.
        avps: AvpBuf,
    },
    /// Our request failed.
    Failed {
        /// The request's token.
        token: u64,
        /// The reason.
        reason: FailReason,
    },
    /// A peer's request. The service must answer it.
    Request {
        /// The token for [`DiameterNodeCommand::Answer`].
        token: u64,
        /// The peer that sent or relayed the request.
        peer: PeerId,
        /// The authenticated origin in lower case. It is the Origin-Host if that is the peer or among its
        /// [`PeerConfig::origins`]. Otherwise it is the peer.
        origin: Arc<str>,
        /// The request.
        message: DiameterMessage,
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
    /// Counters of a node: drops by kind, and rare events.
    pub struct DiameterNodeCounters {
        /// Malformed messages, and SCTP user messages that are not exactly one message.
        malformed,
        /// SCTP user messages whose payload protocol is not Diameter.
        foreign_payload,
        /// Streams closed: their octets are not Diameter messages.
        unframable,
        /// New connections that did not begin with a CER.
        not_a_cer,
        /// CER or CEA with missing or wrong AVPs.
        bad_capabilities,
        /// CER or CEA of an unexpected peer.
        unknown_peer,
        /// Connections whose address or certificate is not the peer's.
        unauthenticated_peer,
        /// CER or CEA without a common application.
        no_common_application,
        /// Connections refused: the peer already has one.
        connection_rejected,
        /// Answers that match no request.
        unmatched_answer,
        /// Messages that do not fit the connection's state.
        out_of_state,
        /// Requests for an unsupported application.
        application_unsupported,
        /// Requests for another realm or host.
        not_for_us,
        /// Requests that passed an untrusted agent.
        untrusted_route,
        /// Requests that passed this node before.
        loop_detected,
        /// Requests with another node's Origin-Host, but without Route-Record.
        foreign_origin,
        /// Requests refused: too many are unanswered.
        too_busy,
        /// Retransmitted requests, answered from the cache or together with the pending request.
        duplicate_request,
        /// Answers for a closed connection.
        answer_undeliverable,
        /// Requests sent again with the T flag.
        retransmitted,
        /// Requests that timed out.
        request_timeout,
        /// Watchdogs without an answer.
        watchdog_timeout,
        /// Connections that failed or timed out.
        connect_failed,
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum DiameterNodeTimer {
    /// The peer's watchdog, or Tc while the peer is down.
    Watchdog(u32),
    /// The peer's transient state lasts too long.
    State(u32),
    /// A new connection sent no CER.
    Accepted(ConnId),
    /// A request, by its slot.
    Request(u32),
}

/// A Diameter node; see the [module](self).
#[derive(Debug)]
pub struct DiameterNode {
    config: DiameterNodeConfig,
    rng: SecureRng,
    peers: PeerTable,
    /// Peers outside the configuration that may have no connection any more.
    leaving: Vec<u32>,
    conns: HashMap<ConnId, PeerConnection>,
    next_conn: u32,
    hop_by_hop: u32,
    end_to_end: u32,
    client: requests::PendingRequestTable,
    server: server::InboundRequestTable,
    timers: TimerQueue<DiameterNodeTimer>,
    outputs: OutputQueue<DiameterNodeEvent>,
    counters: DiameterNodeCounters,
}

impl DiameterNode {
    /// Returns a node that starts to connect at `start`.
    pub fn new(config: DiameterNodeConfig, start: Instant, mut rng: SecureRng) -> Self {
        let state = hash_state(&mut rng);
        let mut node = Self {
            peers: PeerTable::new(state.clone()),
            leaving: Vec::new(),
            conns: HashMap::with_hasher(state.clone()),
            next_conn: 0,
            hop_by_hop: rng.next_u32(),
            end_to_end: rng.next_u32(),
            client: requests::PendingRequestTable::new(state.clone()),
            server: server::InboundRequestTable::new(state),
            timers: TimerQueue::new(),
            outputs: OutputQueue::default(),
            counters: DiameterNodeCounters::default(),
            config,
            rng,
        };
        for i in 0..node.config.peers.len() {
            let peer = node.config.peers[i].clone();
            let connects = peer.address.is_some();
            let p = node.peers.add_configured(PeerEntry::new(peer));
            if connects {
                node.set_watchdog_deadline(p, Some(start));
            }
        }
        node
    }
    /// Our DiameterIdentity, the Origin-Host of our messages.
    pub fn identity(&self) -> &str {
        &self.config.local.host
    }
    /// The counters.
    pub fn counters(&self) -> &DiameterNodeCounters {
        &self.counters
    }
    /// True if some peer may connect from this address. The host may close other connections at once.
    #[must_use]
    pub fn may_connect(&self, address: core::net::IpAddr) -> bool {
        self.config.accept_unknown
            || self.peers.configured_peers().iter().any(|peer| peer.authentication.may_connect(address))
    }
    /// The state of a peer's automaton, if the peer is known.
    pub fn peer_state(&self, peer: PeerId) -> Option<automaton::State> {
        self.peers.get(peer.0).map(|p| p.state)
    }
    /// The state of a peer's watchdog, if the peer is known.
    pub fn watchdog_state(&self, peer: PeerId) -> Option<watchdog::State> {
        self.peers.get(peer.0).map(|p| p.watchdog.state())
    }
    /// The DiameterIdentity of a peer: the configured one, or that of its CER.
    pub fn peer_host(&self, peer: PeerId) -> Option<&str> {
        self.peers.get(peer.0).map(|p| p.host.as_str())
    }
    /// The configured peers.
    pub fn configured_peers(&self) -> impl Iterator<Item = (PeerId, &PeerConfig)> {
        self.config.peers.iter().zip(0..).map(|(peer, p)| (PeerId(p), peer))
    }
    /// The capabilities of a peer when it was last open.
    pub fn peer_capabilities(&self, peer: PeerId) -> Option<&NodeCapabilities> {
        self.peers.get(peer.0)?.remote.as_ref()
    }
    /// The number of requests that wait for a connection or an answer.
    pub fn pending_count(&self) -> usize {
        self.client.len()
    }
    /// The number of known peers, configured ones included.
    pub fn known_peer_count(&self) -> usize {
        self.peers.len()
    }
    /// The number of connections and associations that are up, opening or closing.
    pub fn connection_count(&self) -> usize {
        self.conns.len()
    }

    fn record_work(&mut self, label: WorkLabel) {
        self.outputs.push_work(WorkRecord { label, units: 1 });
    }

    fn on_timer(&mut self, now: Instant, timer: DiameterNodeTimer) {
        match timer {
            DiameterNodeTimer::Watchdog(p) => {
                let peer = &mut self.peers[p];
                peer.watchdog_armed = None;
                match peer.watchdog_due {
                    Some(due) if due <= now => {
                        peer.watchdog_due = None;
                        self.step_watchdog(now, p, watchdog::Event::TimerExpires);
                    }
                    due => self.set_watchdog_deadline(p, due),
                }
            }
            DiameterNodeTimer::State(p) => {
                self.peers[p].state_deadline = None;
                self.counters.connect_failed += 1;
                self.step_peer_automaton(now, p, automaton::Event::Timeout, None);
            }
            DiameterNodeTimer::Accepted(conn) => {
                self.counters.not_a_cer += 1;
                self.drop_conn(Some(conn), ConnectionCloseMode::Abort);
            }
            DiameterNodeTimer::Request(slot) => self.handle_request_timeout(slot),
        }
    }

    fn apply_command(&mut self, now: Instant, command: DiameterNodeCommand) -> Result<(), CommandError> {
        match command {
            DiameterNodeCommand::Request(request) => self.start_request(now, request),
            DiameterNodeCommand::Answer { token, result, avps } => self.answer_request(token, result, &avps),
            DiameterNodeCommand::Reject { token, fault } => {
                let mut avps = AvpBuf::new();
                server::append_error_avps(&mut avps, &fault);
                self.answer_request(token, fault.code, &avps)
            }
            DiameterNodeCommand::CancelRequest { token } => self.cancel_request(token),
            DiameterNodeCommand::Disconnect { peer, cause } => self.disconnect_peer(now, peer, cause),
            DiameterNodeCommand::Connect { peer } => {
                let p = self.peers.get_mut(peer.0).ok_or(CommandError::UnknownToken)?;
                if p.address.is_none() {
                    return Err(CommandError::Invalid("the peer has no address to connect to"));
                }
                p.reconnect = true;
                if p.state == automaton::State::Closed {
                    self.restart_watchdog(now, peer.0);
                    self.step_peer_automaton(now, peer.0, automaton::Event::Start, None);
                }
                Ok(())
            }
        }
    }
}

impl Machine for DiameterNode {
    type Command = DiameterNodeCommand;
    type Event = DiameterNodeEvent;
    type Job = NoJob;

    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        match input {
            MachineInput::Timeout => {
                while let Some((_, timer)) = self.timers.pop_due(now) {
                    self.on_timer(now, timer);
                }
            }
            MachineInput::Stream { conn, event } => match event {
                StreamEvent::Accepted { remote, local, certificate, .. } => {
                    let framer = MessageFramer::new(self.config.max_message);
                    let origin =
                        AcceptedConnectionSource { remote, certificate: certificate.map(Into::into) };
                    self.on_accepted(now, conn, PeerTransport::Stream(framer), local, origin);
                }
                StreamEvent::Connected { local, certificate, .. } => {
                    self.on_connected(now, conn, local, certificate);
                }
                StreamEvent::Data(data) => self.on_data(now, conn, data),
                StreamEvent::Writable | StreamEvent::Finished => {}
                StreamEvent::Closed(_) => self.on_closed(now, conn),
            },
            MachineInput::Message { assoc, event } => match event {
                MessageAssociationEvent::Accepted { remote, streams, .. } => {
                    let policy = self.config.accept_policy;
                    let link = PeerTransport::Association { streams, policy, settled: false };
                    self.on_accepted(
                        now,
                        assoc,
                        link,
                        None,
                        AcceptedConnectionSource { remote, certificate: None },
                    );
                }
                MessageAssociationEvent::Up { streams, .. } => self.on_association_up(now, assoc, streams),
                MessageAssociationEvent::Data { stream, ppid, data } => {
                    self.on_user_message(now, assoc, stream, ppid, data);
                }
                MessageAssociationEvent::Down(_) => self.on_closed(now, assoc),
            },
            MachineInput::Datagram { .. } | MachineInput::Frame { .. } => self.counters.out_of_state += 1,
        }
        self.remove_idle_peers();
    }

    fn handle_command(&mut self, now: Instant, command: DiameterNodeCommand) -> Result<(), CommandError> {
        let done = self.apply_command(now, command);
        self.remove_idle_peers();
        done
    }

    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>> {
        self.outputs.poll(buf)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.timers.next_deadline()
    }
}
