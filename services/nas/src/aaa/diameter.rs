//! EAP over Diameter (RFC 4072), the access server's side.

use super::nodes::{NodeId, Nodes};
use super::{ACCOUNTING, Answer, Ask, FRAMED, Facts, Failure, NasIdentity, Record, RecordKind, seconds};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU16;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{Child, CommandError, Input, Instant, Machine, Outputs, SecureRng};
use usher_crypto::Key;
use usher_diameter::accounting::{Acr, RecordType};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes;
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, Command, Event, FailReason, Node, PeerId};
use usher_diameter::stream::StreamPolicy;
use usher_diameter::{Fault, ResultCode};

/// Auth-Session-State NO_STATE_MAINTAINED (RFC 6733 §8.11): no session is left to be terminated.
const NO_STATE_MAINTAINED: u32 = 1;

/// Termination-Cause DIAMETER_LOGOUT (RFC 6733 §8.15).
const LOGOUT: u32 = 1;

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
    /// Identity, peers, watchdog, failover. Its applications must include EAP, and for accounting the base's.
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
    /// How many sessions may have connections of their own, those included that are being closed; a
    /// further session cannot be asked for. Of no meaning where connections are shared.
    pub max_connections: usize,
}

impl DiameterConfig {
    /// Connects from the start by one connection to each server, and stays with a session's first server;
    /// where each session has its own connection, up to 4096.
    #[must_use]
    pub const fn new(node: node::Config, realm: String) -> Self {
        Self {
            node,
            realm,
            stay: true,
            connect_at: Instant::ZERO,
            connections: Connections::Shared(NonZeroU16::MIN),
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

#[derive(Debug)]
pub(crate) struct DiameterAaa {
    nodes: Child<Nodes>,
    spread: Spread,
    /// What nodes are made of.
    config: node::Config,
    rng: SecureRng,
    connect_at: Instant,
    realm: String,
    stay: bool,
    boot: u32,
}

impl DiameterAaa {
    pub(crate) fn new(config: DiameterConfig, mut rng: SecureRng) -> Self {
        let boot = rng.next_u32();
        let identities = config.identities();
        let mut nodes = Nodes::new(!identities.is_empty(), &mut rng);
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
            nodes: Child::only(nodes),
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
    pub(crate) fn counters(&self) -> node::Counters {
        self.nodes.counters()
    }

    /// The node of this session; its own is made where it has none yet.
    fn node(&mut self, now: Instant, session: u64) -> Result<NodeId, CommandError> {
        let (opened, most) = match &mut self.spread {
            Spread::Shared(nodes) => {
                let (i, _) = StreamPolicy::BySession.choose(Some(&session.to_be_bytes()), nodes.len() as u16);
                return nodes.get(usize::from(i)).copied().ok_or(CommandError::Full("connections"));
            }
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

    /// A session ended without a verdict, or amid a question if it is `asking`.
    pub(crate) fn end(&mut self, now: Instant, session: u64, asking: bool) {
        let known = match &self.spread {
            Spread::Shared(_) => true,
            Spread::PerSession { by_session, .. } => by_session.contains_key(&session),
        };
        if asking
            && known
            && let Ok(id) = self.node(now, session)
        {
            // The answer may have come already and wait as an event: nothing is outstanding then.
            let _ = self.nodes.command(now, (id, Command::Forget { token: session }));
        }
        self.finish(now, session);
    }

    /// Opens or closes the connection to a peer.
    pub(crate) fn command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
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

    pub(crate) fn ask(&mut self, now: Instant, nas: &NasIdentity, ask: &Ask<'_>) -> Result<(), CommandError> {
        let name = core::str::from_utf8(ask.name).map_err(|_| CommandError::Invalid("a name in UTF-8"))?;
        let (server, state) = split(ask.note);
        let calling = ask.calling.map(|mac| mac.dashed());
        let der = Der {
            request_type: AuthRequestType::AuthorizeAuthenticate,
            eap: ask.eap,
            user_name: Some(name),
            state: (!state.is_empty()).then_some(state),
            nas: NasInfo {
                identifier: (!nas.identifier.is_empty()).then_some(&nas.identifier),
                address: nas.address,
                port: Some(ask.port),
                port_type: Some(nas.port_type),
                calling_station: calling.as_ref().and_then(|c| core::str::from_utf8(c).ok()),
                framed_mtu: Some(nas.framed_mtu),
                service_type: Some(FRAMED),
                ..NasInfo::default()
            },
        };
        let id = self.node(now, ask.token)?;
        let identity = self.nodes.get(id).map(Node::identity).unwrap_or_default();
        // The last number is the session's place, which no other has meanwhile: by it goes its SCTP stream.
        let (generation, slot) = (ask.token >> 32, ask.token as u32);
        let session = format!("{identity};{};{generation};{slot}", self.boot);
        let host = core::str::from_utf8(server).ok().filter(|h| self.stay && !h.is_empty());
        let mut request = der.request(ask.token, session, self.realm.clone(), host.map(ToString::to_string));
        request.avps.push_u32(codes::AUTH_SESSION_STATE, NO_STATE_MAINTAINED);
        self.nodes.command(now, (id, Command::Request(request)))
    }

    /// A record goes by a connection of the NAS's, of which it needs one that stays.
    pub(crate) fn account(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        record: &Record,
    ) -> Result<(), CommandError> {
        if matches!(self.spread, Spread::PerSession { .. }) {
            return Err(CommandError::Invalid(
                "each session has a connection of its own, and accounting none",
            ));
        }
        let name =
            core::str::from_utf8(&record.name).map_err(|_| CommandError::Invalid("a name in UTF-8"))?;
        let calling = record.station.mac().map(|mac| mac.dashed());
        let kind = match record.kind {
            RecordKind::Start => RecordType::Start,
            RecordKind::Interim => RecordType::Interim,
            RecordKind::Stop => RecordType::Stop,
        };
        let stops = record.kind == RecordKind::Stop;
        let acr = Acr {
            user_name: (!name.is_empty()).then_some(name),
            acct_session_id: Some(record.session.as_bytes()),
            session_time: (record.kind != RecordKind::Start).then(|| seconds(record.lasted)),
            termination_cause: stops.then_some(LOGOUT),
            nas: NasInfo {
                identifier: (!nas.identifier.is_empty()).then_some(&nas.identifier),
                address: nas.address,
                port: Some(record.station.nas_port()),
                port_type: Some(nas.port_type),
                calling_station: calling.as_ref().and_then(|c| core::str::from_utf8(c).ok()),
                service_type: Some(FRAMED),
                ..NasInfo::default()
            },
            ..Acr::new(kind, record.number)
        };
        let id = self.node(now, token)?;
        let identity = self.nodes.get(id).map(Node::identity).unwrap_or_default();
        let session = format!("{identity};{};{}", self.boot, record.session);
        let request = acr.request(token, session, self.realm.clone(), None);
        self.nodes.command(now, (id, Command::Request(request)))
    }

    /// The next answer; its EAP packet and note replace what the buffers hold.
    pub(crate) fn poll<E>(
        &mut self,
        now: Instant,
        outputs: &mut Outputs<E>,
        eap: &mut Vec<u8>,
        note: &mut Vec<u8>,
    ) -> Option<Answer> {
        loop {
            let (id, event) = outputs.next_event(&mut self.nodes)?;
            let answer = match event {
                Event::Answer { token, result, .. } if token & ACCOUNTING != 0 => {
                    if result.is_success() {
                        Answer::Kept { token }
                    } else {
                        Answer::Failed { token, failure: Failure::Protocol }
                    }
                }
                Event::Answer { token, result, avps } => read(token, result, &avps, eap, note),
                Event::Failed { token, reason } => {
                    let failure = match reason {
                        FailReason::TimedOut => Failure::Timeout,
                        FailReason::NoRoute | FailReason::ConnectionLost => Failure::Unavailable,
                        FailReason::BadAnswer => Failure::Protocol,
                    };
                    Answer::Failed { token, failure }
                }
                Event::PeerUp { peer } => match self.peer(id, peer) {
                    Some(peer) => return Some(Answer::Peer { peer, up: true }),
                    None => continue,
                },
                Event::PeerDown { peer } => match self.peer(id, peer) {
                    Some(peer) => return Some(Answer::Peer { peer, up: false }),
                    None => continue,
                },
                Event::Request { token, .. } => {
                    let fault = Fault::new(ResultCode::COMMAND_UNSUPPORTED, "nothing is asked of a NAS");
                    // The connection it came by may be gone: then nobody waits for the answer.
                    let _ = self.nodes.command(now, (id, Command::Reject { token, fault }));
                    continue;
                }
            };
            match &answer {
                Answer::Challenge { .. } | Answer::Peer { .. } | Answer::Kept { .. } => {}
                Answer::Accept { token, .. } | Answer::Reject { token } | Answer::Failed { token, .. } => {
                    self.finish(now, *token);
                }
            }
            return Some(answer);
        }
    }

    /// A peer's number among those of all connections, where it has one.
    fn peer(&self, id: NodeId, peer: PeerId) -> Option<PeerId> {
        let Spread::Shared(nodes) = &self.spread else { return None };
        let c = nodes.iter().position(|n| *n == id)?;
        Some(PeerId((c * self.config.peers.len()) as u32 + peer.0))
    }

    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.nodes.handle(now, input);
    }
    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        self.nodes.poll_timeout()
    }
}

/// A note is the server's name behind its length, and the State it gave.
fn split(note: &[u8]) -> (&[u8], &[u8]) {
    note.split_first().and_then(|(&n, rest)| rest.split_at_checked(n.into())).unwrap_or_default()
}

fn read(token: u64, result: ResultCode, avps: &AvpBuf, eap: &mut Vec<u8>, note: &mut Vec<u8>) -> Answer {
    eap.clear();
    note.clear();
    if result.is_protocol_error() {
        return Answer::Failed { token, failure: Failure::Unavailable };
    }
    // A refusal is one whatever else it says; an agreement must be readable.
    let dea = match Dea::parse(avps.view()) {
        Ok(dea) => dea,
        Err(_) if !result.is_success() && !result.is_informational() => return Answer::Reject { token },
        Err(_) => return Answer::Failed { token, failure: Failure::Protocol },
    };
    eap.extend_from_slice(dea.eap.unwrap_or_default());
    if result.is_informational() {
        let host = dea.origin_host.unwrap_or_default().as_bytes();
        if let Ok(length) = u8::try_from(host.len()) {
            note.push(length);
            note.extend_from_slice(host);
        } else {
            note.push(0);
        }
        note.extend_from_slice(dea.state.unwrap_or_default());
        Answer::Challenge { token }
    } else if result.is_success() {
        let msk = dea.msk.and_then(|k| <[u8; 64]>::try_from(k).ok()).map(Key::new);
        Answer::Accept { token, msk, facts: Facts::new(dea.session_timeout) }
    } else {
        Answer::Reject { token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(result: ResultCode, fill: impl FnOnce(&mut AvpBuf)) -> (Answer, Vec<u8>, Vec<u8>) {
        let (mut avps, mut eap, mut note) = (AvpBuf::new(), vec![9], vec![9]);
        fill(&mut avps);
        let answer = read(1, result, &avps, &mut eap, &mut note);
        (answer, eap, note)
    }

    #[test]
    fn a_note_keeps_server_and_state() {
        let (said, eap, note) = answer(ResultCode::MULTI_ROUND_AUTH, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push_str(codes::ORIGIN_HOST, "aaa.example");
            a.push(codes::EAP_PAYLOAD, &[1, 7, 0, 5, 1]).push(codes::STATE, b"state");
        });
        assert!(matches!(said, Answer::Challenge { token: 1 }));
        assert_eq!(eap, [1, 7, 0, 5, 1]);
        assert_eq!(split(&note), (&b"aaa.example"[..], &b"state"[..]));
        assert_eq!((split(&[]), split(&[200, 1])), (Default::default(), Default::default()));
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
        let kind = |code| match answer(code, |_| {}).0 {
            Answer::Reject { .. } => "reject",
            Answer::Failed { failure: Failure::Unavailable, .. } => "unavailable",
            Answer::Failed { failure: Failure::Protocol, .. } => "protocol",
            _ => "other",
        };
        assert_eq!(kind(ResultCode::TOO_BUSY), "unavailable");
        assert_eq!(kind(ResultCode::AUTHENTICATION_REJECTED), "reject");
        assert_eq!(kind(ResultCode::UNKNOWN_SESSION_ID), "reject");
        assert_eq!(kind(ResultCode::SUCCESS), "protocol");
        let (said, ..) = answer(ResultCode::SUCCESS, |a| {
            a.push_u32(codes::AUTH_REQUEST_TYPE, 3).push(codes::EAP_MASTER_SESSION_KEY, &[5; 64]);
        });
        assert!(matches!(said, Answer::Accept { msk: Some(msk), .. } if msk[0] == 5));
    }
}
