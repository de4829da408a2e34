//! Diameter: authentication (RFC 4072, RFC 7155), accounting (RFC 6733 §9) and stateful servers' requests about
//! sessions (RFC 6733 §8).

use super::event::{ACCOUNTING, AaaRequestFailure, AccessClientEvent};
use super::nodes::{DiameterNodeSlot, DiameterNodes};
use crate::dynamic::{DynamicRequest, DynamicRequestKind, ErrorCause};
use crate::reply::{AccessReply, ReplyContent};
use crate::{
    AccessRequest, AccountingRecord, AccountingRecordKind, LoginRoundState, NasIdentity, TerminateCause,
    UserCredentials,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU16;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{
    CommandError, Instant, Machine, MachineInput, MachineOutput, OutputQueue, SecureRng, Transmit,
};
use usher_diameter::accounting::AccountingRequest;
use usher_diameter::avp::{AvpBuf, AvpId, AvpSequence};
use usher_diameter::codes::{self, application, command};
use usher_diameter::eap::DiameterEapRequest;
use usher_diameter::nasreq::{AaRequest, AuthRequestType, NasInfo};
use usher_diameter::node::{self, DiameterNode, DiameterNodeCommand, FailReason, PeerId};
use usher_diameter::stream::StreamPolicy;
use usher_diameter::{DiameterError, DiameterMessage, ResultCode};
use usher_radius::attribute::{AttributeList, VendorAttributeFormat, kind, read_vendor};

/// Auth-Session-State (RFC 6733 §8.11): whether the server expects a session termination.
const STATE_MAINTAINED: u32 = 0;
const NO_STATE_MAINTAINED: u32 = 1;

/// Tokens of Session-Termination-Requests have this bit.
const TERMINATION: u64 = 1 << 62;

/// The connections of a NAS. RFC 6733 §2.1 and §5.6 allow one between two DiameterIdentities, so each further
/// connection has its own identity. It is the configured one with a number after the first label: `nas-1-2.example` for
/// the second of `nas-1.example`. The server must know or accept these identities.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiameterConnections {
    /// This number of persistent connections to each server, which share the sessions. A single connection has the
    /// configured identity itself.
    ///
    /// Peers are numbered over all connections: with `n` configured peers, peer `p` of connection `c` is number
    /// `c * n + p`. With more than one connection, unconfigured peers may not connect.
    Shared(NonZeroU16),
    /// Each login opens its own connection to each server, numbered from 1, and disconnects after the verdict. Sessions
    /// then have no head-of-line blocking, at the cost of more round trips and messages. There are no events for these
    /// peers.
    PerSession,
}

/// The Diameter configuration of a NAS.
#[derive(Clone, Debug)]
pub struct DiameterConfig {
    /// Identity, peers, watchdog, failover. Its applications must include EAP, NASREQ for other proofs, and base
    /// accounting for records.
    pub node: node::DiameterNodeConfig,
    /// Destination-Realm of every request.
    pub realm: String,
    /// True if later rounds of a login go only to the server that answered the first (RFC 4072 §2.2). Otherwise they
    /// may reach a server that does not know the session.
    pub stay: bool,
    /// The start of connections to the configured peers, and the earliest time for connections of a session.
    pub connect_at: Instant,
    /// The connections.
    pub connections: DiameterConnections,
    /// True if the server keeps the state of accepted sessions (Auth-Session-State, RFC 6733 §8.11). It may end them or
    /// request reauthentication, and gets their ends
    /// ([`AccessClientCommand::Terminate`](crate::AccessClientCommand::Terminate)). Ignored for connections per
    /// session.
    pub stateful: bool,
    /// The maximum number of sessions with their own connections, closing ones included. Further requests fail. Ignored
    /// for shared connections.
    pub max_connections: usize,
}

impl DiameterConfig {
    /// Connects from the start by one connection to each server. Servers are stateless, and a login stays with its
    /// first server. With connections per session, there are at most 4096.
    #[must_use]
    pub const fn new(node: node::DiameterNodeConfig, realm: String) -> Self {
        Self {
            node,
            realm,
            stay: true,
            connect_at: Instant::ZERO,
            connections: DiameterConnections::Shared(NonZeroU16::MIN),
            stateful: false,
            max_connections: 4096,
        }
    }
    /// Sets the transport to every configured peer.
    #[must_use]
    pub fn with_transport(mut self, transport: node::PeerTransportConfig) -> Self {
        self.node.peers.iter_mut().for_each(|p| p.transport = transport);
        self
    }
    /// Sets the connections.
    #[must_use]
    pub const fn with_connections(mut self, connections: DiameterConnections) -> Self {
        self.connections = connections;
        self
    }
    /// The identities of the shared connections, in order, for the server's configuration. Empty for connections per
    /// session, whose number is unlimited.
    #[must_use]
    pub fn connection_identities(&self) -> Vec<String> {
        let host = &self.node.local.host;
        match self.connections {
            DiameterConnections::Shared(k) if k == NonZeroU16::MIN => [host.clone()].into(),
            DiameterConnections::Shared(k) => {
                (1..=k.get()).map(|n| numbered_identity(host, n.into())).collect()
            }
            DiameterConnections::PerSession => Vec::new(),
        }
    }
}

/// The identity of the `n`-th connection.
fn numbered_identity(host: &str, n: u64) -> String {
    match host.split_once('.') {
        Some((label, rest)) => format!("{label}-{n}.{rest}"),
        None => format!("{host}-{n}"),
    }
}

/// The assignment of sessions to nodes.
#[derive(Debug)]
enum NodeAssignment {
    /// Shared nodes.
    Shared(Vec<DiameterNodeSlot>),
    /// A node for each session.
    PerSession {
        most: usize,
        /// The number of nodes so far.
        opened: u64,
        by_session: HashMap<u64, DiameterNodeSlot>,
    },
}

/// Returns the shared node of a session.
fn choose_shared_node(nodes: &[DiameterNodeSlot], session: &[u8]) -> Result<DiameterNodeSlot, CommandError> {
    if let [only] = nodes {
        return Ok(*only);
    }
    let (i, _) = StreamPolicy::BySession.request_stream(Some(session), nodes.len() as u16);
    nodes.get(usize::from(i)).copied().ok_or(CommandError::Full("connections"))
}

/// An accepted session with state at the server.
#[derive(Debug)]
struct DiameterSessionState {
    application: u32,
    /// The server's Origin-Host.
    host: Option<String>,
}

/// An unanswered request of a server.
#[derive(Debug)]
struct PendingServerRequest {
    node: DiameterNodeSlot,
    token: u64,
    kind: DynamicRequestKind,
    session: u64,
}

#[derive(Debug)]
pub(super) struct DiameterAccessClient {
    nodes: DiameterNodes,
    spread: NodeAssignment,
    /// The template of the nodes' configuration.
    config: node::DiameterNodeConfig,
    rng: SecureRng,
    connect_at: Instant,
    realm: String,
    stay: bool,
    boot: u32,
    /// The stateful sessions by login token. `None` if servers are stateless.
    stateful_sessions: Option<BTreeMap<u64, DiameterSessionState>>,
    server_requests: HashMap<u64, PendingServerRequest>,
    next_server_request: u64,
}

impl DiameterAccessClient {
    pub(super) fn new(config: DiameterConfig, mut rng: SecureRng) -> Self {
        let boot = rng.next_u32();
        let identities = config.connection_identities();
        let shared = !identities.is_empty();
        let asked = HashMap::with_hasher(hash_state(&mut rng));
        let mut nodes = DiameterNodes::new(shared);
        let accept_unknown = config.node.accept_unknown && identities.len() == 1;
        let spread = match config.connections {
            DiameterConnections::Shared(_) => {
                let mut node = |host| {
                    let mut node = node::DiameterNodeConfig { accept_unknown, ..config.node.clone() };
                    node.local.host = host;
                    let rng = SecureRng::from_seed(rng.random_array());
                    nodes.insert(DiameterNode::new(node, config.connect_at, rng))
                };
                // The identities are numbered by 16 bits, like the slots, so there is a slot for each.
                NodeAssignment::Shared(identities.into_iter().map_while(|host| node(host).ok()).collect())
            }
            DiameterConnections::PerSession => {
                let by_session = HashMap::with_hasher(hash_state(&mut rng));
                NodeAssignment::PerSession { most: config.max_connections, opened: 0, by_session }
            }
        };
        Self {
            stateful_sessions: (config.stateful && shared).then(BTreeMap::new),
            server_requests: asked,
            next_server_request: 0,
            nodes,
            spread,
            rng,
            connect_at: config.connect_at,
            realm: config.realm,
            stay: config.stay,
            boot,
            config: config.node,
        }
    }

    /// The sum over all nodes, closed ones included.
    pub(super) fn counters(&self) -> node::DiameterNodeCounters {
        self.nodes.counters()
    }

    /// Returns the node of this session, and creates it if necessary.
    fn node_for_session(&mut self, now: Instant, session: u64) -> Result<DiameterNodeSlot, CommandError> {
        let (opened, most) = match &mut self.spread {
            NodeAssignment::Shared(nodes) => return choose_shared_node(nodes, &session.to_be_bytes()),
            NodeAssignment::PerSession { opened, most, by_session } => {
                if let Some(&id) = by_session.get(&session) {
                    return Ok(id);
                }
                (opened, *most)
            }
        };
        if self.nodes.len() >= most {
            return Err(CommandError::Full("connections"));
        }
        let number = *opened + 1;
        let mut config = self.config.clone();
        config.local.host = numbered_identity(&config.local.host, number);
        config.accept_unknown = false;
        let rng = SecureRng::from_seed(self.rng.random_array());
        let id = self.nodes.insert(DiameterNode::new(config, now.max(self.connect_at), rng))?;
        if let NodeAssignment::PerSession { opened, by_session, .. } = &mut self.spread {
            *opened = number;
            by_session.insert(session, id);
        }
        self.nodes.wake_node(now, id);
        Ok(id)
    }

    /// Closes the session's own connection, if any.
    fn close_session(&mut self, now: Instant, session: u64) {
        if let NodeAssignment::PerSession { by_session, .. } = &mut self.spread
            && let Some(id) = by_session.remove(&session)
        {
            self.nodes.close_node(now, id, self.config.peers.len());
        }
    }

    /// Cancels a request.
    pub(super) fn cancel_request(&mut self, now: Instant, session: u64) {
        let known = match &self.spread {
            NodeAssignment::Shared(_) => true,
            NodeAssignment::PerSession { by_session, .. } => by_session.contains_key(&session),
        };
        if known && let Ok(id) = self.node_for_session(now, session) {
            // If the request has been answered already, there is nothing to cancel.
            let _ =
                self.nodes.handle_command(now, (id, DiameterNodeCommand::CancelRequest { token: session }));
        }
        self.close_session(now, session);
    }

    /// Cancels a record at all nodes, since the token does not determine the node.
    pub(super) fn cancel_record(&mut self, now: Instant, token: u64) {
        let NodeAssignment::Shared(nodes) = &self.spread else { return };
        for &id in nodes {
            let _ = self.nodes.handle_command(now, (id, DiameterNodeCommand::CancelRequest { token }));
        }
    }

    /// Connects to or disconnects a peer.
    pub(super) fn apply_command(
        &mut self,
        now: Instant,
        command: DiameterNodeCommand,
    ) -> Result<(), CommandError> {
        let NodeAssignment::Shared(nodes) = &self.spread else {
            return Err(CommandError::Invalid("each session has a connection of its own"));
        };
        let place = |peer: PeerId| {
            let n = self.config.peers.len().max(1);
            let (c, p) = match nodes.len() {
                1 => (0, peer.0),
                _ => (peer.0 as usize / n, (peer.0 as usize % n) as u32),
            };
            nodes.get(c).map(|id| (*id, PeerId(p))).ok_or(CommandError::UnknownToken)
        };
        let (id, command) = match command {
            DiameterNodeCommand::Connect { peer } => {
                let (id, peer) = place(peer)?;
                (id, DiameterNodeCommand::Connect { peer })
            }
            DiameterNodeCommand::Disconnect { peer, cause } => {
                let (id, peer) = place(peer)?;
                (id, DiameterNodeCommand::Disconnect { peer, cause })
            }
            _ => {
                return Err(CommandError::Invalid(
                    "an access server's node accepts only connect and disconnect",
                ));
            }
        };
        self.nodes.handle_command(now, (id, command))
    }

    /// The Session-Id of a login (RFC 6733 §8.8). The last number is the token's slot, unique at any time, and selects
    /// the SCTP stream.
    fn session_id(&self, id: DiameterNodeSlot, token: u64) -> String {
        let identity = self.nodes.get(id).map(DiameterNode::identity).unwrap_or_default();
        let (generation, slot) = (token >> 32, token as u32);
        format!("{identity};{};{generation};{slot}", self.boot)
    }
    /// The login token of a Session-Id.
    fn session_of(&mut self, now: Instant, session_id: &str) -> Option<u64> {
        let mut parts = session_id.rsplitn(3, ';');
        let (slot, generation): (u32, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let token = u64::from(generation) << 32 | u64::from(slot);
        let is_kept = self.stateful_sessions.as_ref().is_some_and(|kept| kept.contains_key(&token));
        let id = if is_kept { self.node_for_session(now, token).ok()? } else { return None };
        (self.session_id(id, token) == session_id).then_some(token)
    }
    pub(super) const fn keeps_session_state(&self) -> bool {
        self.stateful_sessions.is_some()
    }
    const fn auth_session_state_value(&self) -> u32 {
        if self.stateful_sessions.is_some() { STATE_MAINTAINED } else { NO_STATE_MAINTAINED }
    }

    pub(super) fn send_request(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        ask: &AccessRequest<'_>,
    ) -> Result<(), CommandError> {
        let name =
            core::str::from_utf8(ask.name).map_err(|_| CommandError::Invalid("a user name must be UTF-8"))?;
        let (server, state) = ask.continues.map_or_else(Default::default, LoginRoundState::host_and_state);
        let (user_name, state) = (Some(name), (!state.is_empty()).then_some(state));
        let request_type = AuthRequestType::AuthorizeAuthenticate;
        let info = NasInfo { framed_mtu: ask.port.framed_mtu(nas), ..nas.nas_info(&ask.port) };
        let is_new = match &self.spread {
            NodeAssignment::Shared(_) => false,
            NodeAssignment::PerSession { by_session, .. } => !by_session.contains_key(&token),
        };
        let id = self.node_for_session(now, token)?;
        let session = self.session_id(id, token);
        let host = core::str::from_utf8(server).ok().filter(|h| self.stay && !h.is_empty());
        let (realm, host) = (self.realm.clone(), host.map(ToString::to_string));
        let mut request = match &ask.proof {
            UserCredentials::Eap(eap) => {
                DiameterEapRequest { request_type, eap, user_name, state, nas: info }
                    .to_request(token, session, realm, host)
            }
            proof => {
                let (password, chap) = (proof.password(), proof.chap_response());
                let aar = AaRequest { request_type, user_name, password, chap, state, nas: info };
                let mut request = aar.to_request(token, session, realm, host);
                proof.append_avps(&mut request.avps);
                request
            }
        };
        request.avps.push_u32(codes::AUTH_SESSION_STATE, self.auth_session_state_value());
        append_attributes(&mut request.avps, nas, ask.attributes);
        let done = self.nodes.handle_command(now, (id, DiameterNodeCommand::Request(request)));
        if done.is_err() && is_new {
            self.close_session(now, token);
        }
        done
    }

    /// Encodes a record and chooses its node. Records need a shared connection, which persists.
    pub(super) fn encode_record(
        &self,
        nas: &NasIdentity,
        token: u64,
        record: &AccountingRecord<'_>,
    ) -> Result<(DiameterNodeSlot, node::DiameterRequest), CommandError> {
        let Some(record_type) = record.record_type() else {
            return Err(CommandError::Invalid(
                "Diameter has no record for the start or end of an access server",
            ));
        };
        let NodeAssignment::Shared(nodes) = &self.spread else {
            return Err(CommandError::Invalid(
                "accounting needs a shared connection, and each session has its own",
            ));
        };
        // All records of a session have the same Origin-Host and Session-Id.
        let id = choose_shared_node(nodes, record.session.as_bytes())?;
        let name = core::str::from_utf8(record.name)
            .map_err(|_| CommandError::Invalid("a user name must be UTF-8"))?;
        let (traffic, prefix) = (record.reported_traffic(), record.framed_prefix());
        let stops = record.kind == AccountingRecordKind::Stop;
        let acr = AccountingRequest {
            user_name: (!name.is_empty()).then_some(name),
            acct_session_id: Some(record.session.as_bytes()),
            session_time: record.session_seconds(),
            termination_cause: stops.then_some(record.cause.diameter_code()),
            input_octets: traffic.map(|t| t.input_octets),
            output_octets: traffic.map(|t| t.output_octets),
            input_packets: traffic.map(|t| t.input_packets),
            output_packets: traffic.map(|t| t.output_packets),
            framed_ip: record.framed_ip,
            framed_ipv6_prefix: prefix.as_deref(),
            nas: nas.nas_info(&record.port),
            ..AccountingRequest::new(record_type, record.number)
        };
        let identity = self.nodes.get(id).map(DiameterNode::identity).unwrap_or_default();
        let session = format!("{identity};{};{}", record.start.unwrap_or(self.boot), record.session);
        let mut request = acr.to_request(token, session, self.realm.clone(), None);
        for class in record.classes {
            request.avps.push(codes::CLASS, class);
        }
        append_attributes(&mut request.avps, nas, record.attributes);
        Ok((id, request))
    }

    pub(super) fn send_record(
        &mut self,
        now: Instant,
        id: DiameterNodeSlot,
        request: node::DiameterRequest,
    ) -> Result<(), CommandError> {
        self.nodes.handle_command(now, (id, DiameterNodeCommand::Request(request)))
    }

    /// Sends Session-Termination-Request (RFC 6733 §8.4.1). The session is removed whatever the answer.
    pub(super) fn terminate_session(&mut self, now: Instant, token: u64, cause: TerminateCause) {
        let Some(DiameterSessionState { application, host }) =
            self.stateful_sessions.as_mut().and_then(|kept| kept.remove(&token))
        else {
            return;
        };
        let Ok(id) = self.node_for_session(now, token) else { return };
        let mut avps = AvpBuf::new();
        avps.push_u32(codes::TERMINATION_CAUSE, cause.diameter_code());
        let request = node::DiameterRequest {
            token: token | TERMINATION,
            application,
            command: command::SESSION_TERMINATION,
            destination_realm: self.realm.clone(),
            destination_host: host,
            session_id: self.session_id(id, token),
            avps,
        };
        // If the server is unreachable, the command fails. Then the server has to detect the end of the session by
        // itself.
        let _ = self.nodes.handle_command(now, (id, DiameterNodeCommand::Request(request)));
    }

    pub(super) fn handle_input(&mut self, now: Instant, input: MachineInput<'_>) {
        self.nodes.handle_input(now, input);
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        self.nodes.poll_timeout()
    }
    pub(super) fn poll_output(
        &mut self,
        now: Instant,
        buf: &mut Vec<u8>,
    ) -> Option<MachineOutput<AccessClientEvent>> {
        loop {
            return Some(match self.nodes.poll_output(buf)? {
                MachineOutput::Transmit(transmit) => MachineOutput::Transmit(transmit),
                MachineOutput::Work(work) => MachineOutput::Work(work),
                MachineOutput::Job(job) => match job.job {},
                MachineOutput::Event((id, event)) => match self.translate_event(now, id, event) {
                    Some(event) => MachineOutput::Event(event),
                    None => continue,
                },
            });
        }
    }

    pub(super) fn next_event<E, J>(
        &mut self,
        now: Instant,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<AccessClientEvent> {
        loop {
            let (id, event) = self.nodes.next_event(outputs, &outside)?;
            if let Some(event) = self.translate_event(now, id, event) {
                return Some(event);
            }
        }
    }

    /// Translates a node's event.
    fn translate_event(
        &mut self,
        now: Instant,
        id: DiameterNodeSlot,
        event: node::DiameterNodeEvent,
    ) -> Option<AccessClientEvent> {
        let event = match event {
            node::DiameterNodeEvent::Answer { token, .. } | node::DiameterNodeEvent::Failed { token, .. }
                if token & TERMINATION != 0 =>
            {
                return None;
            }
            node::DiameterNodeEvent::Answer { token, result, .. } if token & ACCOUNTING != 0 => {
                let kept = if result.is_success() { Ok(()) } else { Err(AaaRequestFailure::Fault(result.0)) };
                return Some(AccessClientEvent::Accounted { token: token & !ACCOUNTING, result: kept });
            }
            node::DiameterNodeEvent::Answer { token, result, avps } => {
                if result.is_success() {
                    self.retain_stateful_session(token, avps.as_sequence());
                }
                let event = parse_answer(token, result, avps);
                if matches!(event, AccessClientEvent::Failed { .. }) {
                    // RFC 6733, 8.1: the server may have opened a session that the NAS cannot use, so the NAS
                    // terminates it.
                    self.terminate_session(now, token, TerminateCause::NasError);
                }
                event
            }
            node::DiameterNodeEvent::Failed { token, reason } => {
                let failure = match reason {
                    FailReason::TimedOut => AaaRequestFailure::Timeout,
                    FailReason::NoRoute => AaaRequestFailure::Unavailable,
                    FailReason::ConnectionLost => AaaRequestFailure::ConnectionLost,
                    FailReason::BadAnswer => AaaRequestFailure::BadAnswer,
                };
                if token & ACCOUNTING != 0 {
                    return Some(AccessClientEvent::Accounted {
                        token: token & !ACCOUNTING,
                        result: Err(failure),
                    });
                }
                AccessClientEvent::Failed { token, failure }
            }
            node::DiameterNodeEvent::PeerUp { peer } => {
                return self
                    .peer_number_over_nodes(id, peer)
                    .map(|peer| AccessClientEvent::Peer { peer, up: true });
            }
            node::DiameterNodeEvent::PeerDown { peer } => {
                return self
                    .peer_number_over_nodes(id, peer)
                    .map(|peer| AccessClientEvent::Peer { peer, up: false });
            }
            node::DiameterNodeEvent::Request { token, message, .. } => {
                return match self.handle_server_request(now, id, token, message) {
                    Ok(request) => Some(AccessClientEvent::Dynamic(Box::new(request))),
                    Err(fault) => {
                        // If the request's connection is lost, the command fails. Then no answer is needed.
                        let _ = self
                            .nodes
                            .handle_command(now, (id, DiameterNodeCommand::Reject { token, fault }));
                        None
                    }
                };
            }
        };
        match &event {
            AccessClientEvent::Accept { token, .. }
            | AccessClientEvent::Reject { token, .. }
            | AccessClientEvent::Failed { token, .. } => {
                self.close_session(now, *token);
            }
            _ => {}
        }
        Some(event)
    }

    /// Stores an accepted session if the server keeps its state. The answer decides it, whatever the request says.
    /// Without Auth-Session-State it is stateful (RFC 6733 §8.11).
    fn retain_stateful_session(&mut self, token: u64, avps: AvpSequence<'_>) {
        let Some(kept) = &mut self.stateful_sessions else { return };
        if avps.get(codes::AUTH_SESSION_STATE).is_some_and(|a| a.as_u32() != Ok(STATE_MAINTAINED)) {
            return;
        }
        let host = avps.get(codes::ORIGIN_HOST).and_then(|a| a.as_identity().ok());
        let of = avps.get(codes::AUTH_APPLICATION_ID).and_then(|a| a.as_u32().ok());
        let application = of.unwrap_or(application::NASREQ);
        kept.insert(token, DiameterSessionState { application, host: host.map(ToString::to_string) });
    }

    /// Handles a server's request (RFC 6733 §8.3, §8.5).
    fn handle_server_request(
        &mut self,
        now: Instant,
        node: DiameterNodeSlot,
        token: u64,
        message: DiameterMessage,
    ) -> Result<DynamicRequest, DiameterError> {
        let kind = match message.header.command {
            command::ABORT_SESSION if self.stateful_sessions.is_some() => DynamicRequestKind::Disconnect,
            command::RE_AUTH if self.stateful_sessions.is_some() => DynamicRequestKind::Reauthenticate,
            _ => {
                return Err(DiameterError::new(
                    ResultCode::COMMAND_UNSUPPORTED,
                    "an access server accepts no such request",
                ));
            }
        };
        let named = message.avps.as_sequence().get(codes::SESSION_ID).and_then(|a| a.as_utf8().ok());
        let Some(session) = named.and_then(|named| self.session_of(now, named)) else {
            return Err(DiameterError::new(ResultCode::UNKNOWN_SESSION_ID, "there is no such session"));
        };
        let asked = self.next_server_request;
        self.server_requests.insert(asked, PendingServerRequest { node, token, kind, session });
        self.next_server_request += 1;
        let content = AccessReply(ReplyContent::Diameter(ResultCode::SUCCESS, message.avps));
        Ok(DynamicRequest { token: asked, kind, session: Some(session), content })
    }

    pub(super) fn answer_server_request(
        &mut self,
        now: Instant,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let PendingServerRequest { node, token, kind, session } =
            self.server_requests.remove(&token).ok_or(CommandError::UnknownToken)?;
        let result = match (kind, answer) {
            (_, Ok(())) => ResultCode::SUCCESS,
            // RFC 6733, 8.5.2: the session exists but does not end.
            (DynamicRequestKind::Disconnect, Err(cause)) if cause != ErrorCause::SessionContextNotFound => {
                ResultCode::UNABLE_TO_COMPLY
            }
            (_, Err(cause)) => cause.result_code(),
        };
        self.nodes.handle_command(
            now,
            (node, DiameterNodeCommand::Answer { token, result, avps: AvpBuf::new() }),
        )?;
        // RFC 6733, 8.1: by this answer the server ends the session.
        if kind == DynamicRequestKind::Reauthenticate
            && answer.is_err()
            && let Some(kept) = &mut self.stateful_sessions
        {
            kept.remove(&session);
        }
        Ok(())
    }

    /// The peer's number over all connections, for shared connections.
    fn peer_number_over_nodes(&self, id: DiameterNodeSlot, peer: PeerId) -> Option<PeerId> {
        let NodeAssignment::Shared(nodes) = &self.spread else { return None };
        let c = nodes.iter().position(|n| *n == id)?;
        Some(PeerId((c * self.config.peers.len()) as u32 + peer.0))
    }
}

/// Appends attributes as AVPs of their numbers (RFC 6733 §4.1).
fn append_attributes(avps: &mut AvpBuf, nas: &NasIdentity, more: Option<&AttributeList>) {
    for a in nas.attributes.iter().chain(more.into_iter().flat_map(AttributeList::iter)) {
        match read_vendor(a.value).filter(|_| a.kind == kind::VENDOR_SPECIFIC) {
            Some((vendor @ 1.., data)) => {
                for (number, range) in
                    VendorAttributeFormat::SUGGESTED.split_attributes(data).into_iter().flatten()
                {
                    let value = data.get(range).unwrap_or_default();
                    avps.push(AvpId::new_vendor_avp_id(vendor, number, false), value);
                }
            }
            _ => drop(avps.push(codes::radius_avp_id(a.kind), a.value)),
        }
    }
}

fn parse_answer(token: u64, result: ResultCode, avps: AvpBuf) -> AccessClientEvent {
    if result.is_protocol_error() {
        return AccessClientEvent::Failed { token, failure: AaaRequestFailure::Fault(result.0) };
    }
    let reply = AccessReply(ReplyContent::Diameter(result, avps));
    // A reject counts whatever else it contains. An accept or challenge must be valid.
    match (result.is_informational(), result.is_success()) {
        (false, false) => AccessClientEvent::Reject { token, reply },
        _ if !reply.has_valid_attributes() => {
            AccessClientEvent::Failed { token, failure: AaaRequestFailure::BadAnswer }
        }
        (true, _) => AccessClientEvent::Challenge { token, reply },
        (false, true) => AccessClientEvent::Accept { token, reply },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_test_answer(result: ResultCode, fill: impl FnOnce(&mut AvpBuf)) -> AccessClientEvent {
        let mut avps = AvpBuf::new();
        fill(&mut avps);
        parse_answer(1, result, avps)
    }

    #[test]
    fn a_note_keeps_server_and_state() {
        let event = parse_test_answer(ResultCode::MULTI_ROUND_AUTH, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_str(codes::ORIGIN_HOST, "aaa.example");
            a.push(codes::EAP_PAYLOAD, &[1, 7, 0, 5, 1]).push(codes::STATE, b"state");
        });
        let AccessClientEvent::Challenge { token: 1, reply } = event else { panic!("{event:?}") };
        let (mut eap, mut next) = (vec![9], LoginRoundState::new());
        assert!(reply.read_eap(&mut eap));
        assert_eq!(eap, [1, 7, 0, 5, 1]);
        reply.fill_continuation(&mut next);
        assert_eq!(next.host_and_state(), (&b"aaa.example"[..], &b"state"[..]));
    }

    #[test]
    fn each_connection_has_an_identity() {
        let node = node::DiameterNodeConfig::new("nas-1.example.org", "example.org", &[]);
        let config = DiameterConfig::new(node, "example.org".into());
        assert_eq!(config.connection_identities(), ["nas-1.example.org"]);
        let two = config.clone().with_connections(DiameterConnections::Shared(NonZeroU16::new(2).unwrap()));
        assert_eq!(two.connection_identities(), ["nas-1-1.example.org", "nas-1-2.example.org"]);
        assert!(config.with_connections(DiameterConnections::PerSession).connection_identities().is_empty());
        assert_eq!(numbered_identity("nas", 7), "nas-7");
    }

    #[test]
    fn each_class_of_result_has_its_meaning() {
        let kind = |code| match parse_test_answer(code, |_| {}) {
            AccessClientEvent::Reject { .. } => "reject",
            AccessClientEvent::Failed { failure: AaaRequestFailure::Fault(_), .. } => "fault",
            AccessClientEvent::Failed { failure: AaaRequestFailure::BadAnswer, .. } => "bad answer",
            _ => "other",
        };
        assert_eq!(kind(ResultCode::TOO_BUSY), "fault");
        assert_eq!(kind(ResultCode::AUTHENTICATION_REJECTED), "reject");
        assert_eq!(kind(ResultCode::UNKNOWN_SESSION_ID), "reject");
        assert_eq!(kind(ResultCode::SUCCESS), "bad answer");
        let event = parse_test_answer(ResultCode::SUCCESS, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push(codes::EAP_MASTER_SESSION_KEY, &[5; 64]);
        });
        let AccessClientEvent::Accept { reply, .. } = event else { panic!("{event:?}") };
        assert_eq!(reply.msk(), Ok(Some([5; 64].into())));
    }
}
