//! What a server is asked, and what it has to say.

use super::config::AaaServerConfig;
use super::reason::{RejectCause, StatusFault};
use crate::ledger::{AdmissionVerdict, AdmitRequest, LedgerRecord};
use crate::proxy::HomeServerType;
use crate::users::{AuthMethod, User};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use usher_core::Instant;
use usher_crypto::SecretValue;
use usher_crypto::fault::TlsFault;
use usher_diameter::avp::AvpBuf;
use usher_diameter::node::PeerId;
use usher_diameter::{DiameterError, DiameterMessage, ResultCode};
use usher_eap::method::InnerMethod;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{HealthCause, ServerHealth};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// What a look-up ended in.
#[derive(Clone, Debug)]
pub enum LookupResult {
    /// The user.
    User(Arc<User>),
    /// The user as the host found that name a while ago, since nobody can say how it is now: for this login alone, so that
    /// what is known of a user grows no older by being asked for.
    Cached(Arc<User>),
    /// There is none of that name.
    NotFound,
    /// Nobody can have that name: it is no text, or the store cannot hold it.
    Unstorable,
    /// Nobody can say: the store is not there. The request gets no verdict: silence over RADIUS, so that the client
    /// asks another server; DIAMETER_UNABLE_TO_DELIVER (3002) over Diameter,
    /// or DIAMETER_TOO_BUSY (3004) where the request names this server.
    Unavailable,
}

/// Whose decisions are told line by line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceFilter {
    /// Those about requests with this User-Name, and about logins whose device gives this name inside a tunnel, from
    /// their beginning as far as it is kept until then.
    User(Vec<u8>),
    /// Those about requests of this Calling-Station-Id, however its address is written.
    Station(Vec<u8>),
    /// All.
    All,
}

/// One line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceLine {
    /// When.
    pub occurred_at: Instant,
    /// Of which login: lines of one have one number.
    pub session: u64,
    /// What happened, for people. Never a password or a key.
    pub text: String,
    /// With the first line about a request: the index of the RADIUS client among those of the configuration, whose name
    /// the host knows.
    pub client: Option<u32>,
    /// With the line that tells that somebody is turned away or gets no verdict: why.
    pub reason: Option<RejectCause>,
    /// Whose trace it is of: a bit for each number of [`AaaServerCommand::Trace`].
    pub to: u8,
}

impl TraceLine {
    /// A line of no further distinction.
    pub(super) const fn new(at: Instant, session: u64, text: String) -> Self {
        Self { occurred_at: at, session, text, client: None, reason: None, to: 0 }
    }
}

/// How a Change-of-Authorization or Disconnect request of ours ended (RFC 5176).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DynamicResult {
    /// The NAS did it.
    Ack,
    /// It did not; with its Error-Cause (RFC 5176 §3.6).
    Nak(Option<u32>),
    /// It did not answer.
    TimedOut,
}

/// What a server is asked.
///
/// Where a command answers an event, [`usher_core::CommandError::UnknownToken`] says that the session ended meanwhile:
/// nothing is left to do.
#[derive(Debug)]
pub enum AaaServerCommand {
    /// The answer to [`AaaServerJob::Lookup`].
    Found {
        /// The look-up's token.
        token: u64,
        /// What was found.
        user: LookupResult,
    },
    /// The answer to [`AaaServerJob::Verify`].
    Verified {
        /// Its token.
        token: u64,
        /// Whether the password is the one that was hashed.
        right: bool,
    },
    /// The answer to [`AaaServerJob::Admit`].
    Admitted {
        /// Its token.
        token: u64,
        /// Whether this login is let in.
        admission: AdmissionVerdict,
    },
    /// The answer to [`AaaServerJob::Account`].
    Accounted {
        /// Its token.
        token: u64,
        /// The record outlasts a power failure; false: it is not kept and not acknowledged.
        durable: bool,
    },
    /// The answer to [`AaaServerJob::CheckCertificate`].
    Certificate {
        /// Its token.
        token: u64,
        /// What is said of it.
        verdict: CertificateVerdict,
    },
    /// The answer to [`AaaServerJob::NameUser`].
    Named {
        /// Its token.
        token: u64,
        /// The user; `None`: the certificate names nobody.
        name: Option<Vec<u8>>,
    },
    /// Nobody can say, to [`AaaServerJob::Verify`] or [`AaaServerJob::CheckCertificate`]: too much else waits. As with
    /// [`LookupResult::Unavailable`] the request gets no verdict.
    Unable {
        /// The job's.
        token: u64,
    },
    /// Go on with another configuration; sessions under way go on. An `Err` says that it contradicts itself, and
    /// leaves the one before.
    Reload(Box<AaaServerConfig>),
    /// Forget users that are kept from look-ups, and end the TLS sessions by which they could be let in again.
    EvictUsers {
        /// This one; `None`: all.
        name: Option<Vec<u8>>,
    },
    /// Weigh nothing that comes under a name or from a station for as long as [`AaaServerConfig::failures`] says: the ledger, which
    /// counts what all servers saw, holds them back ([`crate::ledger::Ledger::record_failure`]).
    LockOut {
        /// The name; empty: none.
        name: Vec<u8>,
        /// Calling-Station-Id; empty: none.
        station: Vec<u8>,
    },
    /// Tell what happens to one user or station, line by line.
    Trace {
        /// Which trace: one of [`TRACES`](super::TRACES) numbers, of the host's choice.
        slot: u8,
        /// Whom it is of; `None`: it ends.
        filter: Option<TraceFilter>,
    },
    /// Ask a NAS for something (RFC 5176); answered by [`AaaServerEvent::Dynamic`].
    Dynamic {
        /// Comes back with the answer.
        token: u64,
        /// The NAS; a client of this server by UDP, whose secret signs the request.
        to: SocketAddr,
        /// CoA-Request or Disconnect-Request.
        code: PacketCode,
        /// What names the session, and what is to change.
        attributes: AttributeList,
    },
    /// Another server of the same key hands a request over ([`AaaServerEvent::ShardRequest`]).
    ShardRequest {
        /// Which server.
        from: u16,
        /// The request.
        request: ShardRequest,
    },
    /// A request that was handed over is decided ([`AaaServerEvent::ShardDecision`]).
    ShardDecision(ShardDecision),
    /// Another server of the same key found out how a home server is ([`AaaServerEvent::HomeServer`]): it need not be found out
    /// here.
    HomeServer(HomeServerState),
    /// Something for the Diameter node, such as to disconnect a peer.
    Diameter(usher_diameter::node::DiameterNodeCommand),
}

/// How a home server is found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServerState {
    /// What logs call it.
    pub name: String,
    /// What it is asked for where it is so.
    pub service: HomeServerType,
    /// How it is.
    pub health: ServerHealth,
    /// Why.
    pub cause: HealthCause,
}

/// A request on its way to another server.
#[derive(Clone)]
pub enum ShardRequest {
    /// By RADIUS.
    Radius(Box<RadiusRequest>),
    /// By Diameter.
    Diameter {
        /// The node's token.
        token: u64,
        /// Who sent it.
        peer: PeerId,
        /// Whose it is ([`usher_diameter::node::DiameterNodeEvent::Request`]).
        origin: Arc<str>,
        /// The request.
        message: Box<DiameterMessage>,
    },
}

impl fmt::Debug for ShardRequest {
    /// Without what the request says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Radius(_) => "Radius(..)",
            Self::Diameter { .. } => "Diameter(..)",
        })
    }
}

/// What was decided on a request that was handed over; its token is that of the server which it came to.
#[derive(Clone)]
pub enum ShardDecision {
    /// To a RADIUS request.
    Response {
        /// The request's token.
        token: u64,
        /// Access-Accept, Access-Reject, Access-Challenge.
        code: PacketCode,
        /// What it says, nothing of it hidden yet.
        attributes: AttributeList,
    },
    /// A RADIUS request gets no answer.
    Silence {
        /// The request's token.
        token: u64,
    },
    /// To a Diameter request.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code.
        result: ResultCode,
        /// What it says besides.
        avps: AvpBuf,
    },
    /// To a Diameter request that is at fault, or that nobody can decide.
    Refusal {
        /// The request's token.
        token: u64,
        /// Why.
        fault: DiameterError,
    },
}

impl fmt::Debug for ShardDecision {
    /// Without keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response { token, code, .. } => write!(f, "Response({token}, {code})"),
            Self::Silence { token } => write!(f, "Silence({token})"),
            Self::Answer { token, result, .. } => write!(f, "Answer({token}, {result:?})"),
            Self::Refusal { token, .. } => write!(f, "Refusal({token})"),
        }
    }
}

/// What a host says of a certificate ([`AaaServerJob::CheckCertificate`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CertificateVerdict {
    /// It may be taken.
    Good,
    /// Its issuer says that it is revoked, or nobody says that it is not where that is wanted.
    Status(StatusFault),
    /// It is not trusted any more, as it was in the handshake.
    Distrusted(TlsFault),
    /// It does not bear the name that the peer gave.
    NameMismatch,
}

/// A login that came to its end.
#[derive(Clone)]
pub struct FinishedLogin {
    /// The identity as the peer gave it outside of any tunnel: User-Name.
    pub name: Vec<u8>,
    /// The identity within a tunnel, where there was one.
    pub inner: Option<Vec<u8>>,
    /// How the proof was made, or was to be made; `None` where none was agreed on.
    pub method: Option<AuthMethod>,
    /// How it was made within the tunnel.
    pub inner_method: Option<InnerMethod>,
    /// Index of the RADIUS client among those of the configuration; `None` over Diameter.
    pub client: Option<u32>,
    /// When its first request came.
    pub started_at: Instant,
    /// Why not; `None`: let in.
    pub reason: Option<RejectCause>,
    /// What is known of that besides, for people.
    pub detail: Option<Box<str>>,
    /// A TLS session was resumed.
    pub resumed: bool,
    /// [`AaaServerEvent::Failed`] has told of it already.
    pub is_failure_reported: bool,
    /// What the request said besides, as it came; a Diameter request's AVPs as attributes of their numbers.
    pub request: AttributeList,
}

impl FinishedLogin {
    /// One by no method that is known.
    pub(crate) fn without_method(
        name: Vec<u8>,
        client: Option<u32>,
        reason: Option<RejectCause>,
        request: AttributeList,
    ) -> Self {
        Self {
            name,
            inner: None,
            method: None,
            inner_method: None,
            client,
            started_at: Instant::ZERO,
            reason,
            detail: None,
            resumed: false,
            is_failure_reported: false,
            request,
        }
    }
    /// The name and the Calling-Station-Id that this login counts against as a failure, each empty where there is none;
    /// `None`: it counts against nobody. Whoever offered no proof, or proved who they are and were turned away for
    /// something else, has not failed. A tunnel that ended before it was said who is inside counts against the station
    /// alone: the name outside may be anybody's. What [`AaaServerEvent::Failed`] has told of is not counted again.
    #[must_use]
    pub fn failed_as(&self) -> Option<(&[u8], &[u8])> {
        let (method, reason) = (self.method?, self.reason?);
        if self.is_failure_reported || !reason.counts() {
            return None;
        }
        let outside =
            if matches!(method, AuthMethod::Peap | AuthMethod::Ttls) { &[][..] } else { &self.name };
        let name = self.inner.as_deref().unwrap_or(outside);
        Some((name, self.calling_station_id().unwrap_or_default()))
    }
    /// The name to write the login down under: the one within a tunnel, since that outside is whatever the peer likes.
    #[must_use]
    pub fn record_name(&self) -> &[u8] {
        self.inner.as_ref().unwrap_or(&self.name)
    }
    /// NAS-Identifier.
    #[must_use]
    pub fn nas_identifier(&self) -> Option<&[u8]> {
        self.request.get(kind::NAS_IDENTIFIER)
    }
    /// NAS-IP-Address or NAS-IPv6-Address.
    #[must_use]
    pub fn nas_address(&self) -> Option<IpAddr> {
        nas_address(&self.request)
    }
    /// NAS-Port.
    #[must_use]
    pub fn nas_port(&self) -> Option<u32> {
        self.request.get_u32(kind::NAS_PORT)
    }
    /// Calling-Station-Id.
    #[must_use]
    pub fn calling_station_id(&self) -> Option<&[u8]> {
        self.request.get(kind::CALLING_STATION_ID)
    }
}

/// NAS-IPv6-Address or NAS-IP-Address.
pub(super) fn nas_address(request: &AttributeList) -> Option<IpAddr> {
    let v6 = request.get(kind::NAS_IPV6_ADDRESS).and_then(|a| <[u8; 16]>::try_from(a).ok()).map(IpAddr::from);
    v6.or_else(|| request.get_ipv4(kind::NAS_IP_ADDRESS).map(IpAddr::V4))
}

impl fmt::Debug for FinishedLogin {
    /// Without the request, which may hold a response to a challenge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("name", &alloc::string::String::from_utf8_lossy(&self.name))
            .field("inner", &self.inner.as_deref().map(alloc::string::String::from_utf8_lossy))
            .field("method", &self.method)
            .field("inner_method", &self.inner_method)
            .field("client", &self.client)
            .field("begun", &self.started_at)
            .field("reason", &self.reason)
            .field("detail", &self.detail)
            .field("resumed", &self.resumed)
            .finish_non_exhaustive()
    }
}

/// The access server or proxy that a login came through: no other one may go on with it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LoginOwner {
    /// The RADIUS client of this index.
    Radius(u32),
    /// The Diameter node of this identity, as far as that is authenticated.
    Diameter(Arc<str>),
}

impl LoginOwner {
    /// The RADIUS client.
    pub(super) const fn client_index(&self) -> Option<u32> {
        match self {
            Self::Radius(client) => Some(*client),
            Self::Diameter(_) => None,
        }
    }
}

/// What a server asks of its host; the answer is a command with the same token.
#[derive(Clone)]
pub enum AaaServerJob {
    /// Find a user; answered by [`AaaServerCommand::Found`]. Only with [`super::UserSource::Host`].
    Lookup {
        /// The login's, for a host that gives each its share of the time.
        owner: LoginOwner,
        /// As the peer gave it.
        name: Vec<u8>,
    },
    /// Compare a password with its hash; answered by [`AaaServerCommand::Verified`].
    Verify {
        /// The login's, with `name` for a host that gives each its share of the time.
        owner: LoginOwner,
        /// Whose password it is said to be, as the peer gave it.
        name: Vec<u8>,
        /// An argon2 hash in its text form.
        hash: SecretValue<String>,
        /// What the peer gave.
        password: SecretValue,
    },
    /// Say whether a login is let in that everything else speaks for; answered by [`AaaServerCommand::Admitted`].
    Admit {
        /// Index of the RADIUS client that asks; `None` over Diameter.
        client: Option<u32>,
        /// Who.
        request: AdmitRequest,
    },
    /// Keep a record; answered by [`AaaServerCommand::Accounted`].
    Account {
        /// What the NAS said.
        record: Box<LedgerRecord>,
    },
    /// Say which user a peer's certificate names, of a peer that has said no name (RFC 9190 §2.1.8); answered by [`AaaServerCommand::Named`].
    NameUser {
        /// What it has said: nothing, or a realm.
        outer: Vec<u8>,
        /// DER, the peer's own first.
        chain: Vec<Vec<u8>>,
    },
    /// Say whether a peer's certificate may be taken; answered by [`AaaServerCommand::Certificate`].
    CheckCertificate {
        /// The login's, for a host that gives each its share of the time.
        owner: LoginOwner,
        /// With EAP-TLS, where nothing but the certificate proves who the peer is: whom it says it is. The
        /// certificate must bear this name (RFC 5216 §5.2).
        name: Option<Vec<u8>>,
        /// DER, the peer's own first.
        chain: Vec<Vec<u8>>,
        /// The peer has taken up a TLS session: it showed them then, and nobody has verified them since.
        resumed: bool,
    },
}

impl fmt::Debug for AaaServerJob {
    /// Without passwords and their hashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lookup { name, .. } => write!(f, "Lookup({:?})", String::from_utf8_lossy(name)),
            Self::Verify { .. } => write!(f, "Verify"),
            Self::Admit { .. } => write!(f, "Admit"),
            Self::Account { .. } => write!(f, "Account"),
            Self::NameUser { outer, .. } => write!(f, "NameUser({:?})", String::from_utf8_lossy(outer)),
            Self::CheckCertificate { .. } => write!(f, "CheckCertificate"),
        }
    }
}

/// What a server has to say.
#[derive(Clone)]
pub enum AaaServerEvent {
    /// Somebody was let in.
    Accepted(Box<FinishedLogin>),
    /// Somebody was turned away, or is being told so by the method and may not stay to be turned away.
    Rejected(Box<FinishedLogin>),
    /// A login came to its end without a verdict: nobody could say, or the peer did not go on.
    Undecided(Box<FinishedLogin>),
    /// A login has failed whose peer is told so before it is turned away, and may not stay for that. With
    /// [`AaaServerConfig::failures`] only.
    Failed {
        /// Index of the RADIUS client that asks; `None` over Diameter.
        client: Option<u32>,
        /// The name that it counts against; empty: none.
        name: Vec<u8>,
        /// Calling-Station-Id; empty: none.
        station: Vec<u8>,
    },
    /// An unfinished session was pushed out by a new one: there are as many as there may be, and of its client the most.
    Evicted {
        /// Index of the RADIUS client among those of the configuration; `None` over Diameter.
        client: Option<u32>,
    },
    /// A line of the trace that [`AaaServerCommand::Trace`] asked for.
    Trace(TraceLine),
    /// A Diameter peer came or went.
    DiameterPeer {
        /// Which.
        peer: PeerId,
        /// It came.
        up: bool,
    },
    /// How a home server is: whenever that changes, and each time that a dead one is asked for its status again. Other
    /// servers of the same key get it as [`AaaServerCommand::HomeServer`].
    HomeServer(HomeServerState),
    /// Another server of the same key ([`super::ShardConfig`]) decides this request: it gets [`AaaServerCommand::ShardRequest`].
    ShardRequest {
        /// Which server.
        shard: u16,
        /// The request.
        request: ShardRequest,
    },
    /// What was decided on a request that another server handed over: it gets [`AaaServerCommand::ShardDecision`].
    ShardDecision {
        /// Which server.
        shard: u16,
        /// What was decided.
        back: ShardDecision,
    },
    /// How a [`AaaServerCommand::Dynamic`] ended.
    Dynamic {
        /// The command's.
        token: u64,
        /// How.
        result: DynamicResult,
    },
}

impl AaaServerEvent {
    /// Against whom a failed proof counts that this tells of: the index of the RADIUS client that asks (`None` over
    /// Diameter), the name and the Calling-Station-Id, each of these two empty where there is none.
    #[must_use]
    pub fn counted_failure(&self) -> Option<(Option<u32>, &[u8], &[u8])> {
        match self {
            Self::Accepted(login) | Self::Rejected(login) => {
                let (name, station) = login.failed_as()?;
                Some((login.client, name, station))
            }
            Self::Failed { client, name, station } => Some((*client, name, station)),
            _ => None,
        }
    }
}

impl fmt::Debug for AaaServerEvent {
    /// Without passwords and their hashes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match self {
            Self::Accepted(login) => write!(f, "Accepted({login:?})"),
            Self::Rejected(login) => write!(f, "Rejected({login:?})"),
            Self::Undecided(login) => write!(f, "Undecided({login:?})"),
            Self::Failed { name: n, .. } => write!(f, "Failed({:?})", name(n)),
            Self::Evicted { client } => write!(f, "Evicted({client:?})"),
            Self::Trace(line) => write!(f, "Trace({:?})", line.text),
            Self::DiameterPeer { peer, up } => write!(f, "DiameterPeer({peer:?}, up: {up})"),
            Self::HomeServer(state) => write!(f, "HomeServer({state:?})"),
            Self::ShardRequest { shard, request: handed } => write!(f, "HandOver({shard}, {handed:?})"),
            Self::ShardDecision { shard, back } => write!(f, "HandBack({shard}, {back:?})"),
            Self::Dynamic { token, result } => write!(f, "Dynamic({token}, {result:?})"),
        }
    }
}
