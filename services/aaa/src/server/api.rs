//! Commands, jobs and events of the AAA server.

use super::config::AaaServerConfig;
use super::reason::{OcspStatusFault, RejectCause};
use crate::ledger::{AdmissionVerdict, AdmitRequest, LedgerRecord};
use crate::proxy::HomeServerType;
use crate::store::StoreChange;
use crate::text::storable_text;
use crate::users::{AuthMethod, User};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Instant, WallTime};
use usher_crypto::SecretValue;
use usher_crypto::fault::TlsFault;
use usher_diameter::avp::AvpBuf;
use usher_diameter::node::PeerId;
use usher_diameter::{DiameterError, DiameterMessage, ResultCode};
use usher_eap::method::InnerMethod;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{ServerHealth, ServerHealthCause};
use usher_radius::packet::PacketCode;
use usher_radius::server::RadiusRequest;

/// The result of a user lookup.
#[derive(Clone, Debug)]
pub enum UserLookupResult {
    /// The user.
    User(Arc<User>),
    /// A cached user, because the store is unavailable. It holds for this login alone, so that its use does not
    /// extend its lifetime in the cache.
    Cached(Arc<User>),
    /// The name is unknown.
    NotFound,
    /// The name cannot exist: it is not text, or the store cannot hold it.
    Unstorable,
    /// The store is unavailable. The request gets no verdict. Over RADIUS there is no reply, so that the client
    /// fails over. Over Diameter the answer is DIAMETER_UNABLE_TO_DELIVER (3002), or DIAMETER_TOO_BUSY (3004) if
    /// the request names this server.
    Unavailable,
}

/// Selects the logins of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoginTraceFilter {
    /// Requests with this User-Name, and logins with this name inside a tunnel. Lines from before the inner name
    /// are included as far as they are kept.
    User(Vec<u8>),
    /// Requests of this Calling-Station-Id, in any notation of its address.
    Station(Vec<u8>),
    /// All logins.
    All,
}

/// One line of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceLine {
    /// Time of the line.
    pub occurred_at: Instant,
    /// Number of the login.
    pub session: u64,
    /// Text for people, without passwords and keys.
    pub text: String,
    /// Index of the RADIUS client in the configuration. Only in the first line about a request.
    pub client: Option<u32>,
    /// Reject cause. Only in the line of a reject or of a login without a verdict.
    pub reason: Option<RejectCause>,
    /// Traces of this line: a bit for each slot of [`AaaServerCommand::Trace`].
    pub to: u8,
}

impl TraceLine {
    /// Creates a line without client, cause and traces.
    pub(super) const fn new(at: Instant, session: u64, text: String) -> Self {
        Self { occurred_at: at, session, text, client: None, reason: None, to: 0 }
    }
}

/// The result of a CoA-Request or Disconnect-Request (RFC 5176).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DynamicAuthResult {
    /// The access server acknowledged it.
    Ack,
    /// The access server refused it, with this Error-Cause (RFC 5176 §3.6).
    Nak(Option<u32>),
    /// The access server did not answer.
    TimedOut,
}

/// Commands to the AAA server.
///
/// For a job result, [`usher_core::CommandError::UnknownToken`] says that the session has already ended. The caller
/// can ignore it.
#[derive(Debug)]
pub enum AaaServerCommand {
    /// Result of [`AaaServerJob::Lookup`].
    Found {
        /// The job's token.
        token: u64,
        /// Result of the lookup.
        user: UserLookupResult,
    },
    /// Result of [`AaaServerJob::Verify`].
    Verified {
        /// The job's token.
        token: u64,
        /// True if the password matches the hash.
        right: bool,
    },
    /// Result of [`AaaServerJob::Admit`].
    Admitted {
        /// The job's token.
        token: u64,
        /// Whether the limits allow this login.
        admission: AdmissionVerdict,
    },
    /// Result of [`AaaServerJob::Account`].
    Accounted {
        /// The job's token.
        token: u64,
        /// True if the record is durable. A record that is not durable is not acknowledged.
        durable: bool,
    },
    /// Result of [`AaaServerJob::CheckCertificate`].
    Certificate {
        /// The job's token.
        token: u64,
        /// Result of the check.
        verdict: CertificateVerdict,
    },
    /// Result of [`AaaServerJob::NameUser`].
    Named {
        /// The job's token.
        token: u64,
        /// The user. `None`: the certificate names no user.
        name: Option<Vec<u8>>,
    },
    /// The host cannot do [`AaaServerJob::Verify`] or [`AaaServerJob::CheckCertificate`]: its queue is full. As
    /// with [`UserLookupResult::Unavailable`] the request gets no verdict.
    Unable {
        /// The job's token.
        token: u64,
    },
    /// Replaces the configuration. Sessions under way continue. With an error the former configuration stays.
    Reload(Box<AaaServerConfig>),
    /// Evicts cached users, and the TLS sessions that could resume their logins.
    EvictUsers {
        /// The user. `None`: all.
        name: Option<Vec<u8>>,
    },
    /// Locks out a name or a station for the duration in [`AaaServerConfig::failures`]. The ledger, which counts
    /// the failed attempts at all servers, decides it ([`crate::ledger::Ledger::record_failure`]).
    LockOut {
        /// User name. Empty: none.
        name: Vec<u8>,
        /// Calling-Station-Id; empty: none.
        station: Vec<u8>,
    },
    /// Starts or ends a trace of a user or a station.
    Trace {
        /// Slot of the trace, below [`TRACES`](super::TRACES), chosen by the host.
        slot: u8,
        /// Selects the logins. `None`: ends the trace.
        filter: Option<LoginTraceFilter>,
    },
    /// Sends a CoA-Request or Disconnect-Request (RFC 5176). Its result is [`AaaServerEvent::Dynamic`].
    Dynamic {
        /// Token of the result.
        token: u64,
        /// Address of the access server. It must be a UDP client of this server, whose secret signs the request.
        to: SocketAddr,
        /// CoA-Request or Disconnect-Request.
        code: PacketCode,
        /// Attributes that identify the session, and the changes.
        attributes: AttributeList,
    },
    /// A request that another shard passes to this server ([`AaaServerEvent::ShardRequest`]).
    ShardRequest {
        /// Number of that shard.
        from: u16,
        /// The request.
        request: ShardRequest,
    },
    /// The decision on a request that this server passed to another shard ([`AaaServerEvent::ShardDecision`]).
    ShardDecision(ShardDecision),
    /// Health of a home server, found by another shard ([`AaaServerEvent::HomeServer`]). It saves a probe by this
    /// server.
    HomeServer(HomeServerState),
    /// A command to the Diameter node, such as to disconnect a peer.
    Diameter(usher_diameter::node::DiameterNodeCommand),
}

/// Health of a home server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomeServerState {
    /// Name for logs.
    pub name: String,
    /// Service that has this health.
    pub service: HomeServerType,
    /// Health.
    pub health: ServerHealth,
    /// Cause of the health.
    pub cause: ServerHealthCause,
}

/// A request that goes to another shard.
#[derive(Clone)]
pub enum ShardRequest {
    /// A RADIUS request.
    Radius(Box<RadiusRequest>),
    /// A Diameter request.
    Diameter {
        /// The node's token.
        token: u64,
        /// Peer that sent it.
        peer: PeerId,
        /// Its origin ([`usher_diameter::node::DiameterNodeEvent::Request`]).
        origin: Arc<str>,
        /// The request.
        message: Box<DiameterMessage>,
    },
}

impl fmt::Debug for ShardRequest {
    /// Omits the contents of the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Radius(_) => "Radius(..)",
            Self::Diameter { .. } => "Diameter(..)",
        })
    }
}

/// The decision on a request from another shard. Tokens are those of the shard that received the request.
#[derive(Clone)]
pub enum ShardDecision {
    /// Reply to a RADIUS request.
    Response {
        /// The request's token.
        token: u64,
        /// Access-Accept, Access-Reject, Access-Challenge.
        code: PacketCode,
        /// Its attributes, not yet encrypted.
        attributes: AttributeList,
    },
    /// Drop of a RADIUS request: it gets no reply.
    Silence {
        /// The request's token.
        token: u64,
    },
    /// Answer to a Diameter request.
    Answer {
        /// The request's token.
        token: u64,
        /// Result-Code.
        result: ResultCode,
        /// Its other AVPs.
        avps: AvpBuf,
    },
    /// Error answer to a Diameter request that is malformed or cannot be decided.
    Refusal {
        /// The request's token.
        token: u64,
        /// The error.
        fault: DiameterError,
    },
}

impl fmt::Debug for ShardDecision {
    /// Omits keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response { token, code, .. } => write!(f, "Response({token}, {code})"),
            Self::Silence { token } => write!(f, "Silence({token})"),
            Self::Answer { token, result, .. } => write!(f, "Answer({token}, {result:?})"),
            Self::Refusal { token, .. } => write!(f, "Refusal({token})"),
        }
    }
}

/// The result of a certificate check ([`AaaServerJob::CheckCertificate`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CertificateVerdict {
    /// The certificate is accepted.
    Good,
    /// The certificate is revoked, or its status is required and unknown.
    Status(OcspStatusFault),
    /// The certificate is not trusted any more.
    Distrusted(TlsFault),
    /// It does not bear the name that the peer gave.
    NameMismatch,
}

/// A login that came to its end.
#[derive(Clone)]
pub struct FinishedLogin {
    /// User-Name: the identity outside of any tunnel.
    pub name: Vec<u8>,
    /// The identity inside a tunnel.
    pub inner: Option<Vec<u8>>,
    /// The method. `None`: no method was agreed on.
    pub method: Option<AuthMethod>,
    /// The method inside the tunnel.
    pub inner_method: Option<InnerMethod>,
    /// Index of the RADIUS client among those of the configuration; `None` over Diameter.
    pub client: Option<u32>,
    /// Time of its first request.
    pub started_at: Instant,
    /// Reject cause. `None`: accepted.
    pub reason: Option<RejectCause>,
    /// Further detail for people.
    pub detail: Option<Box<str>>,
    /// True if a TLS session was resumed.
    pub resumed: bool,
    /// True if [`AaaServerEvent::Failed`] has already reported the failure.
    pub is_failure_reported: bool,
    /// The request as received. AVPs of a Diameter request are attributes of the same numbers.
    pub request: AttributeList,
}

impl FinishedLogin {
    /// Returns the change of a store that records it.
    #[must_use]
    pub fn store_change(&self, at: WallTime) -> StoreChange {
        StoreChange::Login {
            username: storable_text(self.user_name_for_record()),
            reply: if self.reason.is_none() { "Access-Accept" } else { "Access-Reject" },
            decided_at: at,
            callingstationid: storable_text(self.calling_station_id().unwrap_or_default()),
        }
    }
    /// Creates a login without a known method.
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
    /// Returns the name and the Calling-Station-Id to which the failed attempt counts, each empty where there is
    /// none.
    ///
    /// `None`: the login counts as no failed attempt. It had no proof, or its proof was right and another cause
    /// rejected it, or [`AaaServerEvent::Failed`] has already reported it. If a tunnel ended before the inner
    /// identity, only the station counts: the outer name may be anybody's.
    #[must_use]
    pub fn failed_attempt_identity(&self) -> Option<(&[u8], &[u8])> {
        let (method, reason) = (self.method?, self.reason?);
        if self.is_failure_reported || !reason.counts() {
            return None;
        }
        let outside =
            if matches!(method, AuthMethod::Peap | AuthMethod::Ttls) { &[][..] } else { &self.name };
        let name = self.inner.as_deref().unwrap_or(outside);
        Some((name, self.calling_station_id().unwrap_or_default()))
    }
    /// Returns the name for the login's record: the inner identity if there is one, since the outer one is not
    /// authenticated.
    #[must_use]
    pub fn user_name_for_record(&self) -> &[u8] {
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
    /// Omits the request, which may hold a response to a challenge.
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

/// The access server or proxy of a login. Requests from another one do not continue the login.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LoginOwner {
    /// The RADIUS client of this index.
    Radius(u32),
    /// The Diameter node of this identity, as far as it is authenticated.
    Diameter(Arc<str>),
}

impl LoginOwner {
    /// Index of the RADIUS client.
    pub(super) const fn client_index(&self) -> Option<u32> {
        match self {
            Self::Radius(client) => Some(*client),
            Self::Diameter(_) => None,
        }
    }
}

/// Jobs of the host. The result is a command with the same token.
#[derive(Clone)]
pub enum AaaServerJob {
    /// Looks up a user. Result: [`AaaServerCommand::Found`]. Only with [`super::UserSource::Host`].
    Lookup {
        /// Owner of the login, for fair queueing by the host.
        owner: LoginOwner,
        /// Name as the peer sent it.
        name: Vec<u8>,
    },
    /// Compares a password with its hash. Result: [`AaaServerCommand::Verified`].
    Verify {
        /// Owner of the login. With `name`, for fair queueing by the host.
        owner: LoginOwner,
        /// User name as the peer sent it.
        name: Vec<u8>,
        /// Argon2 hash in PHC text form.
        hash: SecretValue<String>,
        /// Password that the peer sent.
        password: SecretValue,
    },
    /// Checks the limits of a login whose proof is right. Result: [`AaaServerCommand::Admitted`].
    Admit {
        /// Index of the RADIUS client. `None`: Diameter.
        client: Option<u32>,
        /// User and request.
        request: AdmitRequest,
    },
    /// Makes an accounting record durable. Result: [`AaaServerCommand::Accounted`].
    Account {
        /// The record of the access server.
        record: Box<LedgerRecord>,
    },
    /// Finds the user that a certificate names, for a peer whose identity has no user part (RFC 9190 §2.1.8).
    /// Result: [`AaaServerCommand::Named`].
    NameUser {
        /// Identity of the peer: empty, or a realm.
        outer: Vec<u8>,
        /// Chain in DER, the peer's certificate first.
        chain: Vec<Vec<u8>>,
    },
    /// Checks a peer's certificate. Result: [`AaaServerCommand::Certificate`].
    CheckCertificate {
        /// Owner of the login, for fair queueing by the host.
        owner: LoginOwner,
        /// Identity of the peer, with EAP-TLS, where the certificate alone proves it. The certificate must contain
        /// this name (RFC 5216 §5.2).
        name: Option<Vec<u8>>,
        /// Chain in DER, the peer's certificate first.
        chain: Vec<Vec<u8>>,
        /// True if the peer resumed a TLS session. The chain was last verified in the earlier handshake.
        resumed: bool,
    },
}

impl fmt::Debug for AaaServerJob {
    /// Omits passwords and hashes.
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

/// Events of the AAA server.
#[derive(Clone)]
pub enum AaaServerEvent {
    /// A login was accepted.
    Accepted(Box<FinishedLogin>),
    /// A login was rejected, or its method is sending the failure to the peer, which may leave before the reject.
    Rejected(Box<FinishedLogin>),
    /// A login ended without a verdict: a store or check was unavailable, or the peer went silent.
    Undecided(Box<FinishedLogin>),
    /// A login failed, and its peer gets to know before the reject and may leave. Only with
    /// [`AaaServerConfig::failures`].
    Failed {
        /// Index of the RADIUS client. `None`: Diameter.
        client: Option<u32>,
        /// Name to which the failed attempt counts. Empty: none.
        name: Vec<u8>,
        /// Calling-Station-Id to which it counts. Empty: none.
        station: Vec<u8>,
    },
    /// A half-open session was evicted for a new one. The client with the most half-open sessions loses one.
    Evicted {
        /// Index of the RADIUS client in the configuration. `None`: Diameter.
        client: Option<u32>,
    },
    /// A line of a trace ([`AaaServerCommand::Trace`]).
    Trace(TraceLine),
    /// A Diameter peer connected or disconnected.
    DiameterPeer {
        /// The peer.
        peer: PeerId,
        /// True if it connected.
        up: bool,
    },
    /// Health of a home server, at each change and each probe of a dead one. The owner passes it to other shards as
    /// [`AaaServerCommand::HomeServer`].
    HomeServer(HomeServerState),
    /// A request for another shard ([`super::ShardConfig`]). The owner passes it on as
    /// [`AaaServerCommand::ShardRequest`].
    ShardRequest {
        /// Number of that shard.
        shard: u16,
        /// The request.
        request: ShardRequest,
    },
    /// The decision on another shard's request. The owner passes it on as [`AaaServerCommand::ShardDecision`].
    ShardDecision {
        /// Number of that shard.
        shard: u16,
        /// The decision.
        back: ShardDecision,
    },
    /// Result of [`AaaServerCommand::Dynamic`].
    Dynamic {
        /// The command's.
        token: u64,
        /// The result.
        result: DynamicAuthResult,
    },
}

impl AaaServerEvent {
    /// Returns the index of the RADIUS client (`None`: Diameter), the name and the Calling-Station-Id to which a
    /// failed attempt counts. Name and station are empty where there is none.
    #[must_use]
    pub fn counted_failure_identity(&self) -> Option<(Option<u32>, &[u8], &[u8])> {
        match self {
            Self::Accepted(login) | Self::Rejected(login) => {
                let (name, station) = login.failed_attempt_identity()?;
                Some((login.client, name, station))
            }
            Self::Failed { client, name, station } => Some((*client, name, station)),
            _ => None,
        }
    }
}

impl fmt::Debug for AaaServerEvent {
    /// Omits passwords and hashes.
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
