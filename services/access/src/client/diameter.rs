//! Over Diameter: authentication (RFC 4072, RFC 7155), accounting (RFC 6733 §9), and what servers ask of sessions that they
//! keep (RFC 6733 §8).

use super::nodes::{NodeId, Nodes};
use super::{ACCOUNTING, Event, Failure};
use crate::dynamic::{DynamicKind, DynamicRequest, ErrorCause};
use crate::reply::{Content, Reply};
use crate::{Continuation, NasIdentity, Proof, Record, RecordKind, Request, TerminateCause};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU16;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{CommandError, Input, Instant, Machine, Output, Outputs, SecureRng, Transmit};
use usher_diameter::accounting::Acr;
use usher_diameter::avp::{AvpBuf, AvpId, Avps};
use usher_diameter::codes::{self, application, command};
use usher_diameter::eap::Der;
use usher_diameter::nasreq::{Aar, AuthRequestType, NasInfo};
use usher_diameter::node::{self, Command, FailReason, Node, PeerId};
use usher_diameter::stream::StreamPolicy;
use usher_diameter::{Fault, Message, ResultCode};
use usher_radius::attribute::{Attributes, Framing, kind, read_vendor};

/// Auth-Session-State (RFC 6733 §8.11): whether a session is left to be terminated.
const STATE_MAINTAINED: u32 = 0;
const NO_STATE_MAINTAINED: u32 = 1;

/// The tokens of Session-Termination-Requests have this bit.
const TERMINATION: u64 = 1 << 62;

/// Over how many connections a NAS asks. RFC 6733 §2.1 and §5.6 allow one between two DiameterIdentities,
/// so that each connection beyond the first needs an identity of its own: the configured one with a number
/// behind its first label, `nas-1-2.example` for the second of `nas-1.example`. The server must know or
/// accept them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Connections {
    /// So many persistent connections to each server, over which the sessions are spread. One has the
    /// configured identity itself.
    ///
    /// Their peers are numbered one connection after the other: peer `p` of connection `c` is number
    /// `c * n + p`, where `n` peers are configured. With more than one connection, peers that are not
    /// configured may not connect.
    Shared(NonZeroU16),
    /// Each authentication opens a connection of its own to each server, numbered from 1, and closes it
    /// in good order after its verdict: without head-of-line blocking between sessions, but with several
    /// more round trips and messages for each. Its peers' coming and going is not told.
    PerSession,
}

/// How a NAS asks over Diameter.
#[derive(Clone, Debug)]
pub struct DiameterConfig {
    /// Identity, peers, watchdog, failover. Its applications must include EAP, for other proofs NASREQ, and for accounting
    /// the base's.
    pub node: node::Config,
    /// Destination-Realm of every request.
    pub realm: String,
    /// Later rounds of a session go to the server that answered its first, and to no other (RFC 4072
    /// §2.2). Without it they may go to another server, which will not know the session.
    pub stay: bool,
    /// When connecting to the configured peers begins; per session, no earlier than that.
    pub connect_at: Instant,
    /// Over how many connections.
    pub connections: Connections,
    /// Whether the server keeps the sessions that it lets in (Auth-Session-State, RFC 6733 §8.11): it may end them and have
    /// their users authenticated again, and is told when they have ended ([`Command::Terminate`](crate::Command::Terminate)).
    /// Of no meaning where sessions have connections of their own.
    pub stateful: bool,
    /// How many sessions may have connections of their own, those included that are being closed; a
    /// further session cannot be asked for. Of no meaning where connections are shared.
    pub max_connections: usize,
}

impl DiameterConfig {
    /// Connects from the start by one connection to each server, which keeps no session, and stays with a session's first server;
    /// where each session has its own connection, up to 4096.
    #[must_use]
    pub const fn new(node: node::Config, realm: String) -> Self {
        Self {
            node,
            realm,
            stay: true,
            connect_at: Instant::ZERO,
            connections: Connections::Shared(NonZeroU16::MIN),
            stateful: false,
            max_connections: 4096,
        }
    }
    /// Reaches every configured peer by this transport.
    #[must_use]
    pub fn over(mut self, transport: node::Transport) -> Self {
        self.node.peers.iter_mut().for_each(|p| p.transport = transport);
        self
    }
    /// Asks over so many connections.
    #[must_use]
    pub const fn by(mut self, connections: Connections) -> Self {
        self.connections = connections;
        self
    }
    /// The identities of the shared connections, in their order: what a server must know. Empty where each
    /// session has its own, for which there is no end of them.
    #[must_use]
    pub fn identities(&self) -> Vec<String> {
        let host = &self.node.local.host;
        match self.connections {
            Connections::Shared(k) if k == NonZeroU16::MIN => [host.clone()].into(),
            Connections::Shared(k) => (1..=k.get()).map(|n| numbered(host, n.into())).collect(),
            Connections::PerSession => Vec::new(),
        }
    }
}

/// The identity of the `n`-th connection.
fn numbered(host: &str, n: u64) -> String {
    match host.split_once('.') {
        Some((label, rest)) => format!("{label}-{n}.{rest}"),
        None => format!("{host}-{n}"),
    }
}

/// Which node a session asks.
#[derive(Debug)]
enum Spread {
    /// One of these.
    Shared(Vec<NodeId>),
    /// Its own.
    PerSession {
        most: usize,
        /// How many there have been.
        opened: u64,
        by_session: HashMap<u64, NodeId>,
    },
}

/// The one of these nodes that this session asks.
fn shared(nodes: &[NodeId], session: &[u8]) -> Result<NodeId, CommandError> {
    if let [only] = nodes {
        return Ok(*only);
    }
    let (i, _) = StreamPolicy::BySession.choose(Some(session), nodes.len() as u16);
    nodes.get(usize::from(i)).copied().ok_or(CommandError::Full("connections"))
}

/// A session that was let in and that the server keeps.
#[derive(Debug)]
struct Kept {
    application: u32,
    /// The server.
    host: Option<String>,
}

/// A request of a server without an answer.
#[derive(Debug)]
struct Asked {
    node: NodeId,
    token: u64,
    kind: DynamicKind,
    session: u64,
}

#[derive(Debug)]
pub(super) struct DiameterAccess {
    nodes: Nodes,
    spread: Spread,
    /// What nodes are made of.
    config: node::Config,
    rng: SecureRng,
    connect_at: Instant,
    realm: String,
    stay: bool,
    boot: u32,
    /// By the login's token; `None`: the server keeps no sessions.
    kept: Option<BTreeMap<u64, Kept>>,
    asked: HashMap<u64, Asked>,
    next_asked: u64,
}

impl DiameterAccess {
    pub(super) fn new(config: DiameterConfig, mut rng: SecureRng) -> Self {
        let boot = rng.next_u32();
        let identities = config.identities();
        let shared = !identities.is_empty();
        let asked = HashMap::with_hasher(hash_state(&mut rng));
        let mut nodes = Nodes::new(shared);
        let accept_unknown = config.node.accept_unknown && identities.len() == 1;
        let spread = match config.connections {
            Connections::Shared(_) => {
                let mut node = |host| {
                    let mut node = node::Config { accept_unknown, ..config.node.clone() };
                    node.local.host = host;
                    let rng = SecureRng::from_seed(rng.array());
                    nodes.insert(Node::new(node, config.connect_at, rng))
                };
                // Their number is of 16 bits, as that of the slots.
                Spread::Shared(identities.into_iter().map_while(|host| node(host).ok()).collect())
            }
            Connections::PerSession => {
                let by_session = HashMap::with_hasher(hash_state(&mut rng));
                Spread::PerSession { most: config.max_connections, opened: 0, by_session }
            }
        };
        Self {
            kept: (config.stateful && shared).then(BTreeMap::new),
            asked,
            next_asked: 0,
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

    /// The sum over all nodes, those included that are gone.
    pub(super) fn counters(&self) -> node::Counters {
        self.nodes.counters()
    }

    /// The node of this session; its own is made where it has none yet.
    fn node(&mut self, now: Instant, session: u64) -> Result<NodeId, CommandError> {
        let (opened, most) = match &mut self.spread {
            Spread::Shared(nodes) => return shared(nodes, &session.to_be_bytes()),
            Spread::PerSession { opened, most, by_session } => {
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
        config.local.host = numbered(&config.local.host, number);
        config.accept_unknown = false;
        let rng = SecureRng::from_seed(self.rng.array());
        let id = self.nodes.insert(Node::new(config, now.max(self.connect_at), rng))?;
        if let Spread::PerSession { opened, by_session, .. } = &mut self.spread {
            *opened = number;
            by_session.insert(session, id);
        }
        self.nodes.wake(now, id);
        Ok(id)
    }

    /// A session is over: its own connection, if it has one, is closed.
    fn finish(&mut self, now: Instant, session: u64) {
        if let Spread::PerSession { by_session, .. } = &mut self.spread
            && let Some(id) = by_session.remove(&session)
        {
            self.nodes.close(now, id, self.config.peers.len());
        }
    }

    /// The answer to a question is wanted no more.
    pub(super) fn cancel(&mut self, now: Instant, session: u64) {
        let known = match &self.spread {
            Spread::Shared(_) => true,
            Spread::PerSession { by_session, .. } => by_session.contains_key(&session),
        };
        if known && let Ok(id) = self.node(now, session) {
            // There need not be a question: its answer may have come.
            let _ = self.nodes.command(now, (id, Command::Forget { token: session }));
        }
        self.finish(now, session);
    }

    /// The answer to a record is wanted no more. By which node it went its session knows, not its token.
    pub(super) fn cancel_record(&mut self, now: Instant, token: u64) {
        let Spread::Shared(nodes) = &self.spread else { return };
        for &id in nodes {
            let _ = self.nodes.command(now, (id, Command::Forget { token }));
        }
    }

    /// Opens or closes the connection to a peer.
    pub(super) fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        let Spread::Shared(nodes) = &self.spread else {
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
            Command::Connect { peer } => {
                let (id, peer) = place(peer)?;
                (id, Command::Connect { peer })
            }
            Command::Disconnect { peer, cause } => {
                let (id, peer) = place(peer)?;
                (id, Command::Disconnect { peer, cause })
            }
            _ => return Err(CommandError::Invalid("a NAS's node is told to connect or disconnect only")),
        };
        self.nodes.command(now, (id, command))
    }

    /// Session-Id of a login (RFC 6733 §8.8). The last number is its place, which no other has meanwhile: by it goes its
    /// SCTP stream.
    fn session_id(&self, id: NodeId, token: u64) -> String {
        let identity = self.nodes.get(id).map(Node::identity).unwrap_or_default();
        let (generation, slot) = (token >> 32, token as u32);
        format!("{identity};{};{generation};{slot}", self.boot)
    }
    /// Which login that is.
    fn session_of(&mut self, now: Instant, session_id: &str) -> Option<u64> {
        let mut parts = session_id.rsplitn(3, ';');
        let (slot, generation): (u32, u32) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let token = u64::from(generation) << 32 | u64::from(slot);
        let is_kept = self.kept.as_ref().is_some_and(|kept| kept.contains_key(&token));
        let id = if is_kept { self.node(now, token).ok()? } else { return None };
        (self.session_id(id, token) == session_id).then_some(token)
    }
    pub(super) const fn keeps_sessions(&self) -> bool {
        self.kept.is_some()
    }
    const fn session_state(&self) -> u32 {
        if self.kept.is_some() { STATE_MAINTAINED } else { NO_STATE_MAINTAINED }
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        ask: &Request<'_>,
    ) -> Result<(), CommandError> {
        let name = core::str::from_utf8(ask.name).map_err(|_| CommandError::Invalid("a name in UTF-8"))?;
        let (server, state) = ask.continues.map_or_else(Default::default, Continuation::split);
        let (user_name, state) = (Some(name), (!state.is_empty()).then_some(state));
        let request_type = AuthRequestType::AuthorizeAuthenticate;
        let info = NasInfo { framed_mtu: ask.port.framed_mtu(nas), ..nas.info(&ask.port) };
        let is_new = match &self.spread {
            Spread::Shared(_) => false,
            Spread::PerSession { by_session, .. } => !by_session.contains_key(&token),
        };
        let id = self.node(now, token)?;
        let session = self.session_id(id, token);
        let host = core::str::from_utf8(server).ok().filter(|h| self.stay && !h.is_empty());
        let (realm, host) = (self.realm.clone(), host.map(ToString::to_string));
        let mut request = match &ask.proof {
            Proof::Eap(eap) => {
                Der { request_type, eap, user_name, state, nas: info }.request(token, session, realm, host)
            }
            proof => {
                let (password, chap) = (proof.password(), proof.chap());
                let aar = Aar { request_type, user_name, password, chap, state, nas: info };
                let mut request = aar.request(token, session, realm, host);
                proof.avps(&mut request.avps);
                request
            }
        };
        request.avps.push_u32(codes::AUTH_SESSION_STATE, self.session_state());
        also(&mut request.avps, nas, ask.attributes);
        let done = self.nodes.command(now, (id, Command::Request(request)));
        if done.is_err() && is_new {
            self.finish(now, token);
        }
        done
    }

    /// The request that a record is, and the node that sends it. It goes by a connection of the NAS's, of which it needs one that
    /// stays.
    pub(super) fn record(
        &self,
        nas: &NasIdentity,
        token: u64,
        record: &Record<'_>,
    ) -> Result<(NodeId, node::Request), CommandError> {
        let Some(record_type) = record.record_type() else {
            return Err(CommandError::Invalid(
                "Diameter has no word for the start or end of an access server",
            ));
        };
        let Spread::Shared(nodes) = &self.spread else {
            return Err(CommandError::Invalid(
                "each session has a connection of its own, and accounting none",
            ));
        };
        // All records of a session have one Origin-Host and Session-Id.
        let id = shared(nodes, record.session.as_bytes())?;
        let name = core::str::from_utf8(record.name).map_err(|_| CommandError::Invalid("a name in UTF-8"))?;
        let (traffic, prefix) = (record.counted(), record.prefix());
        let stops = record.kind == RecordKind::Stop;
        let acr = Acr {
            user_name: (!name.is_empty()).then_some(name),
            acct_session_id: Some(record.session.as_bytes()),
            session_time: record.seconds(),
            termination_cause: stops.then_some(record.cause.diameter()),
            input_octets: traffic.map(|t| t.input_octets),
            output_octets: traffic.map(|t| t.output_octets),
            input_packets: traffic.map(|t| t.input_packets),
            output_packets: traffic.map(|t| t.output_packets),
            framed_ip: record.framed_ip,
            framed_ipv6_prefix: prefix.as_deref(),
            nas: nas.info(&record.port),
            ..Acr::new(record_type, record.number)
        };
        let identity = self.nodes.get(id).map(Node::identity).unwrap_or_default();
        let session = format!("{identity};{};{}", record.start.unwrap_or(self.boot), record.session);
        let mut request = acr.request(token, session, self.realm.clone(), None);
        for class in record.classes {
            request.avps.push(codes::CLASS, class);
        }
        also(&mut request.avps, nas, record.attributes);
        Ok((id, request))
    }

    pub(super) fn account(
        &mut self,
        now: Instant,
        id: NodeId,
        request: node::Request,
    ) -> Result<(), CommandError> {
        self.nodes.command(now, (id, Command::Request(request)))
    }

    /// Session-Termination-Request (RFC 6733 §8.4.1): the session goes whatever is answered.
    pub(super) fn terminate(&mut self, now: Instant, token: u64, cause: TerminateCause) {
        let Some(Kept { application, host }) = self.kept.as_mut().and_then(|kept| kept.remove(&token)) else {
            return;
        };
        let Ok(id) = self.node(now, token) else { return };
        let mut avps = AvpBuf::new();
        avps.push_u32(codes::TERMINATION_CAUSE, cause.diameter());
        let request = node::Request {
            token: token | TERMINATION,
            application,
            command: command::SESSION_TERMINATION,
            destination_realm: self.realm.clone(),
            destination_host: host,
            session_id: self.session_id(id, token),
            avps,
        };
        // A server that cannot be reached finds out for itself.
        let _ = self.nodes.command(now, (id, Command::Request(request)));
    }

    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.nodes.handle(now, input);
    }
    pub(super) fn poll_timeout(&mut self) -> Option<Instant> {
        self.nodes.poll_timeout()
    }
    pub(super) fn poll_output(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Output<Event>> {
        loop {
            return Some(match self.nodes.poll_output(buf)? {
                Output::Transmit(transmit) => Output::Transmit(transmit),
                Output::Work(work) => Output::Work(work),
                Output::Job(job) => match job.what {},
                Output::Event((id, event)) => match self.hear(now, id, event) {
                    Some(event) => Output::Event(event),
                    None => continue,
                },
            });
        }
    }

    pub(super) fn next_event<E, J>(
        &mut self,
        now: Instant,
        outputs: &mut Outputs<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Event> {
        loop {
            let (id, event) = self.nodes.next_event(outputs, &outside)?;
            if let Some(event) = self.hear(now, id, event) {
                return Some(event);
            }
        }
    }

    /// What a node says, in the words of both protocols.
    fn hear(&mut self, now: Instant, id: NodeId, event: node::Event) -> Option<Event> {
        let event = match event {
            node::Event::Answer { token, .. } | node::Event::Failed { token, .. }
                if token & TERMINATION != 0 =>
            {
                return None;
            }
            node::Event::Answer { token, result, .. } if token & ACCOUNTING != 0 => {
                let kept = if result.is_success() { Ok(()) } else { Err(Failure::Fault(result.0)) };
                return Some(Event::Accounted { token: token & !ACCOUNTING, kept });
            }
            node::Event::Answer { token, result, avps } => {
                if result.is_success() {
                    self.keep(token, avps.view());
                }
                let event = read(token, result, avps);
                if matches!(event, Event::Failed { .. }) {
                    // A session that the server keeps and nobody has (RFC 6733 §8.1).
                    self.terminate(now, token, TerminateCause::NasError);
                }
                event
            }
            node::Event::Failed { token, reason } => {
                let failure = match reason {
                    FailReason::TimedOut => Failure::Timeout,
                    FailReason::NoRoute => Failure::Unavailable,
                    FailReason::ConnectionLost => Failure::ConnectionLost,
                    FailReason::BadAnswer => Failure::BadAnswer,
                };
                if token & ACCOUNTING != 0 {
                    return Some(Event::Accounted { token: token & !ACCOUNTING, kept: Err(failure) });
                }
                Event::Failed { token, failure }
            }
            node::Event::PeerUp { peer } => {
                return self.peer(id, peer).map(|peer| Event::Peer { peer, up: true });
            }
            node::Event::PeerDown { peer } => {
                return self.peer(id, peer).map(|peer| Event::Peer { peer, up: false });
            }
            node::Event::Request { token, message, .. } => {
                return match self.asked(now, id, token, message) {
                    Ok(request) => Some(Event::Dynamic(Box::new(request))),
                    Err(fault) => {
                        // The connection it came by may be gone: then nobody waits for the answer.
                        let _ = self.nodes.command(now, (id, Command::Reject { token, fault }));
                        None
                    }
                };
            }
        };
        match &event {
            Event::Accept { token, .. } | Event::Reject { token, .. } | Event::Failed { token, .. } => {
                self.finish(now, *token);
            }
            _ => {}
        }
        Some(event)
    }

    /// Notes a session that was let in, where the server keeps it: that is what its answer says, whatever was asked for, and
    /// says by silence (Auth-Session-State, RFC 6733 §8.11).
    fn keep(&mut self, token: u64, avps: Avps<'_>) {
        let Some(kept) = &mut self.kept else { return };
        if avps.get(codes::AUTH_SESSION_STATE).is_some_and(|a| a.u32() != Ok(STATE_MAINTAINED)) {
            return;
        }
        let host = avps.get(codes::ORIGIN_HOST).and_then(|a| a.identity().ok());
        let of = avps.get(codes::AUTH_APPLICATION_ID).and_then(|a| a.u32().ok());
        let application = of.unwrap_or(application::NASREQ);
        kept.insert(token, Kept { application, host: host.map(ToString::to_string) });
    }

    /// A server asks something (RFC 6733 §8.3, §8.5).
    fn asked(
        &mut self,
        now: Instant,
        node: NodeId,
        token: u64,
        message: Message,
    ) -> Result<DynamicRequest, Fault> {
        let kind = match message.header.command {
            command::ABORT_SESSION if self.kept.is_some() => DynamicKind::Disconnect,
            command::RE_AUTH if self.kept.is_some() => DynamicKind::Reauthenticate,
            _ => return Err(Fault::new(ResultCode::COMMAND_UNSUPPORTED, "nothing is asked of a NAS")),
        };
        let named = message.avps.view().get(codes::SESSION_ID).and_then(|a| a.utf8().ok());
        let Some(session) = named.and_then(|named| self.session_of(now, named)) else {
            return Err(Fault::new(ResultCode::UNKNOWN_SESSION_ID, "there is no such session"));
        };
        let asked = self.next_asked;
        self.asked.insert(asked, Asked { node, token, kind, session });
        self.next_asked += 1;
        let content = Reply(Content::Diameter(ResultCode::SUCCESS, message.avps));
        Ok(DynamicRequest { token: asked, kind, session: Some(session), content })
    }

    pub(super) fn answer(
        &mut self,
        now: Instant,
        token: u64,
        answer: Result<(), ErrorCause>,
    ) -> Result<(), CommandError> {
        let Asked { node, token, kind, session } =
            self.asked.remove(&token).ok_or(CommandError::UnknownToken)?;
        let result = match (kind, answer) {
            (_, Ok(())) => ResultCode::SUCCESS,
            // RFC 6733 §8.5.2.
            (DynamicKind::Disconnect, Err(cause)) if cause != ErrorCause::SessionContextNotFound => {
                ResultCode::UNABLE_TO_COMPLY
            }
            (_, Err(cause)) => cause.result(),
        };
        self.nodes.command(now, (node, Command::Answer { token, result, avps: AvpBuf::new() }))?;
        // By that the server knows that the session is over (RFC 6733 §8.1).
        if kind == DynamicKind::Reauthenticate
            && answer.is_err()
            && let Some(kept) = &mut self.kept
        {
            kept.remove(&session);
        }
        Ok(())
    }

    /// A peer's number among those of all connections, where it has one.
    fn peer(&self, id: NodeId, peer: PeerId) -> Option<PeerId> {
        let Spread::Shared(nodes) = &self.spread else { return None };
        let c = nodes.iter().position(|n| *n == id)?;
        Some(PeerId((c * self.config.peers.len()) as u32 + peer.0))
    }
}

/// Appends attributes as AVPs of their numbers (RFC 6733 §4.1).
fn also(avps: &mut AvpBuf, nas: &NasIdentity, more: Option<&Attributes>) {
    for a in nas.attributes.iter().chain(more.into_iter().flat_map(Attributes::iter)) {
        match read_vendor(a.value).filter(|_| a.kind == kind::VENDOR_SPECIFIC) {
            Some((vendor @ 1.., data)) => {
                for (number, range) in Framing::SUGGESTED.split(data).into_iter().flatten() {
                    let value = data.get(range).unwrap_or_default();
                    avps.push(AvpId::of_vendor(vendor, number, false), value);
                }
            }
            _ => drop(avps.push(codes::attribute(a.kind), a.value)),
        }
    }
}

fn read(token: u64, result: ResultCode, avps: AvpBuf) -> Event {
    if result.is_protocol_error() {
        return Event::Failed { token, failure: Failure::Fault(result.0) };
    }
    let reply = Reply(Content::Diameter(result, avps));
    // A refusal is one whatever else it says; an agreement must be readable.
    match (result.is_informational(), result.is_success()) {
        (false, false) => Event::Reject { token, reply },
        _ if !reply.is_sound() => Event::Failed { token, failure: Failure::BadAnswer },
        (true, _) => Event::Challenge { token, reply },
        (false, true) => Event::Accept { token, reply },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(result: ResultCode, fill: impl FnOnce(&mut AvpBuf)) -> Event {
        let mut avps = AvpBuf::new();
        fill(&mut avps);
        read(1, result, avps)
    }

    #[test]
    fn a_note_keeps_server_and_state() {
        let event = answer(ResultCode::MULTI_ROUND_AUTH, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_str(codes::ORIGIN_HOST, "aaa.example");
            a.push(codes::EAP_PAYLOAD, &[1, 7, 0, 5, 1]).push(codes::STATE, b"state");
        });
        let Event::Challenge { token: 1, reply } = event else { panic!("{event:?}") };
        let (mut eap, mut next) = (vec![9], Continuation::new());
        assert!(reply.eap(&mut eap));
        assert_eq!(eap, [1, 7, 0, 5, 1]);
        reply.continuation(&mut next);
        assert_eq!(next.split(), (&b"aaa.example"[..], &b"state"[..]));
    }

    #[test]
    fn each_connection_has_an_identity() {
        let node = node::Config::new("nas-1.example.org", "example.org", &[]);
        let config = DiameterConfig::new(node, "example.org".into());
        assert_eq!(config.identities(), ["nas-1.example.org"]);
        let two = config.clone().by(Connections::Shared(NonZeroU16::new(2).unwrap()));
        assert_eq!(two.identities(), ["nas-1-1.example.org", "nas-1-2.example.org"]);
        assert!(config.by(Connections::PerSession).identities().is_empty());
        assert_eq!(numbered("nas", 7), "nas-7");
    }

    #[test]
    fn each_class_of_result_has_its_meaning() {
        let kind = |code| match answer(code, |_| {}) {
            Event::Reject { .. } => "reject",
            Event::Failed { failure: Failure::Fault(_), .. } => "fault",
            Event::Failed { failure: Failure::BadAnswer, .. } => "bad answer",
            _ => "other",
        };
        assert_eq!(kind(ResultCode::TOO_BUSY), "fault");
        assert_eq!(kind(ResultCode::AUTHENTICATION_REJECTED), "reject");
        assert_eq!(kind(ResultCode::UNKNOWN_SESSION_ID), "reject");
        assert_eq!(kind(ResultCode::SUCCESS), "bad answer");
        let event = answer(ResultCode::SUCCESS, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push(codes::EAP_MASTER_SESSION_KEY, &[5; 64]);
        });
        let Event::Accept { reply, .. } = event else { panic!("{event:?}") };
        assert_eq!(reply.msk(), Ok(Some([5; 64].into())));
    }
}
