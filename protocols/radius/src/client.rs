//! The RADIUS client: requests in, replies out, with identifiers, retransmission and failover between.
//!
//! ```text
//! Command::Request{token} ─▶ Client ─▶ Event::Response{token} | Event::TimedOut{token}
//! ```
//! Exactly one event answers each accepted request, unless it was cancelled.

mod identifier;
mod liveness;
mod machine;
mod reply;
mod retransmit;
mod stream;

pub use liveness::{HealthCause, ServerHealth};
pub use machine::RadiusClient;
pub use retransmit::RetransmissionPolicy;

use crate::attribute::{AttributeList, HideError, kind, reveal_password, reveal_salted, vendor};
use crate::auth::SharedSecret;
use crate::freshness::FreshnessPolicy;
use crate::packet::PacketCode;
use crate::radsec::{self, CertificateMatch};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::legacy::mschap::MsChapKeys;

/// By what a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ServerTransport {
    /// Datagrams.
    #[default]
    Udp,
    /// RadSec: streams that the host protects by TLS (RFC 6614). They are opened when something is to be sent, and
    /// kept; each has 256 identifiers of its own. Nothing is sent twice by one (RFC 6613 §2.6.1): what waited on one
    /// that broke is sent by the next.
    Tls,
}

/// How a client finds out whether a server is alive, with Status-Server (RFC 5997) in the place of RFC 3539's
/// watchdog messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LivenessConfig {
    /// How long a server that owes an answer may say nothing at all before it is suspect: what waits for it goes to the
    /// next of its group, which from there on is asked first, and it is asked for its status. So long a request waits
    /// for one server before another of the group gets it, though that server answers others.
    pub window: Duration,
    /// How long a suspect server may go on saying nothing before it is dead. It is asked for its status once a window,
    /// and alive again with its first word.
    pub zombie: Duration,
    /// Tw (RFC 3539 §3.4.1, which wants 6 s or more): how often a dead server is asked for its status, and a RadSec
    /// connection on which nothing happens is tried.
    pub interval: Duration,
    /// Whether it knows Status-Server. Where not, a suspect server is not asked for anything while there are others.
    pub status: bool,
    /// How many answers in a row to Status-Server bring a dead server back (RFC 3539 §3.4.1 wants 3).
    pub answers: u32,
    /// How long a dead server stays so that is not asked for its status, or never answered that.
    pub revive: Duration,
}

impl Default for LivenessConfig {
    /// A window of 4 s, in which a request is sent twice; three windows more until a server is dead; Status-Server, Tw
    /// of 30 s (RFC 3539's proposal), three answers.
    fn default() -> Self {
        Self {
            window: Duration::from_secs(4),
            zombie: Duration::from_secs(12),
            interval: Duration::from_secs(30),
            status: true,
            answers: 3,
            revive: Duration::from_secs(120),
        }
    }
}

/// One server of a client.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens.
    pub address: SocketAddr,
    /// The secret shared with it.
    pub secret: SharedSecret,
    /// Whether an answer to an Access-Request must carry a Message-Authenticator. True unless the server
    /// is too old to send one: without it, an attacker on the path can forge answers (BlastRADIUS).
    pub require_message_authenticator: bool,
    /// Our address to send from; unspecified leaves the choice to the host.
    pub local: IpAddr,
    /// By what it is reached.
    pub transport: ServerTransport,
    /// What its certificate may be, by RadSec (RFC 6614 §2.3); none: any that the host's TLS takes.
    pub certificates: Vec<CertificateMatch>,
    /// How it is found out whether it is alive; `None`: it is taken to be.
    pub liveness: Option<LivenessConfig>,
}

impl ServerConfig {
    /// A server by RadSec. TLS protects its answers, so that they need no Message-Authenticator.
    #[must_use]
    pub fn for_radsec(address: SocketAddr) -> Self {
        let (require_message_authenticator, transport) = (false, ServerTransport::Tls);
        Self { require_message_authenticator, transport, ..Self::new(address, radsec::radsec_secret()) }
    }
    /// A server with the safe policy, by datagrams.
    #[must_use]
    pub fn new(address: SocketAddr, secret: SharedSecret) -> Self {
        let local = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        Self {
            address,
            secret,
            require_message_authenticator: true,
            local,
            transport: ServerTransport::Udp,
            certificates: Vec::new(),
            liveness: None,
        }
    }
}

/// When a request to a group moves on to the group's next server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverPolicy {
    /// Transmissions to one server without an answer, 1 or more. The next server then gets the request
    /// under a fresh identifier, and its retransmission time starts again at the initial one; limits of
    /// count and time hold for the whole request. A server that is watched has its window besides
    /// ([`LivenessConfig::window`]).
    pub after: u32,
    /// How long new requests start at the next server before the group's first is tried again.
    pub revive: Duration,
}

impl Default for FailoverPolicy {
    /// After three transmissions; back to the first after five minutes.
    fn default() -> Self {
        Self { after: 3, revive: Duration::from_secs(300) }
    }
}

/// What a client is made of.
#[derive(Clone, Debug)]
pub struct RadiusClientConfig {
    /// The servers, addressed by index.
    pub servers: Vec<ServerConfig>,
    /// Groups of interchangeable servers, each in order of preference, as indexes into `servers`.
    pub groups: Vec<Vec<u16>>,
    /// When requests are sent again.
    pub retransmission: RetransmissionPolicy,
    /// How groups change servers; `None`: they never do.
    pub failover: Option<FailoverPolicy>,
    /// How many sockets may be used, from the first on, each adding 256 outstanding requests per server.
    pub max_sockets: u32,
    /// How long an identifier whose request ended without an answer, or was sent more than once, is
    /// kept from being used again, since a late reply may still come.
    pub identifier_rest: Duration,
    /// How many connections a RadSec server may get, each adding 256 outstanding requests.
    pub max_connections: u32,
    /// The number of the first RadSec connection that it opens ([`usher_core::ConnId::new_opened`]): of meaning to a
    /// client that takes the place of another whose connections may not be over yet.
    pub first_connection: u32,
    /// How long after a connection failed the next is tried; twice as long each time, up to a minute.
    pub reconnect: Duration,
    /// How old the answer to a CoA-Request or Disconnect-Request may say that it is (RFC 5176 §6.3); `None`: not looked
    /// at.
    pub freshness: Option<FreshnessPolicy>,
}

impl RadiusClientConfig {
    /// A client of one server, retransmitting as RFC 5080 proposes.
    #[must_use]
    pub fn for_server(server: ServerConfig) -> Self {
        Self {
            servers: alloc::vec![server],
            groups: Vec::new(),
            retransmission: RetransmissionPolicy::default(),
            failover: None,
            max_sockets: 256,
            identifier_rest: Duration::from_secs(5),
            max_connections: 8,
            first_connection: 0,
            reconnect: Duration::from_secs(1),
            freshness: None,
        }
    }
}

/// Why a client cannot be made of a [`RadiusClientConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// There is no server at all, or more than 65,535.
    #[error("{0} servers; 1 to 65535 are possible")]
    Servers(usize),
    /// A group is empty or names a server that does not exist.
    #[error("group {0} is empty or names a server that does not exist")]
    Group(usize),
    /// No socket may be used.
    #[error("max_sockets is 0, or more than 2^24")]
    Sockets,
    /// No connection may be opened.
    #[error("max_connections is 0")]
    Connections,
    /// A server is watched in no time, or back without an answer.
    #[error("liveness with a window or an interval of zero, or after 0 answers; at least 1")]
    Liveness,
    /// A failover count of 0.
    #[error("failover after 0 transmissions; at least 1")]
    Failover,
    /// The first retransmission time is zero.
    #[error("the first retransmission time is zero")]
    Retransmission,
}

/// Whom a request goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestTarget {
    /// The server of this index, and no other.
    Server(u16),
    /// The group of this index.
    Group(u16),
    /// A group, beginning with one of its servers: the next in its order are those behind, then those in front.
    From {
        /// The group.
        group: u16,
        /// One of its servers.
        server: u16,
    },
}

/// What a client is asked.
#[derive(Clone, Debug)]
pub enum RadiusClientCommand {
    /// Send a request. A Message-Authenticator is put in front of every Access-Request and
    /// Status-Server; the list must not hold one. An Acct-Delay-Time in an Accounting-Request is brought
    /// up to date on each retransmission, which then has a fresh identifier (RFC 2866 §5.2); every other
    /// retransmission is the same octets again. Status-Server is sent once (RFC 5997 §4.1).
    Request {
        /// Comes back with the answer; must not be one that is outstanding.
        token: u64,
        /// Whom to ask.
        target: RequestTarget,
        /// Access-Request, Accounting-Request, Status-Server, CoA-Request or Disconnect-Request.
        code: PacketCode,
        /// What to say.
        attributes: AttributeList,
    },
    /// Forget a request; a reply that comes yet is dropped.
    Cancel {
        /// The request's token.
        token: u64,
    },
}

/// A verified reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadiusReply {
    /// The request's token.
    pub token: u64,
    /// The server that answered.
    pub server: u16,
    /// Accept, reject, challenge, …
    pub code: PacketCode,
    /// The reply's attributes, as they came.
    pub attributes: AttributeList,
    /// The authenticator of the request that this answers.
    pub request_authenticator: [u8; 16],
    /// The secret shared with that server, to reveal hidden values.
    pub secret: SharedSecret,
}

/// The keys of an Access-Accept (RFC 2548 §2.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MppeKeys {
    /// MS-MPPE-Recv-Key: for EAP the first half of the MSK.
    pub recv: SecretValue,
    /// MS-MPPE-Send-Key: for EAP the second half of the MSK.
    pub send: SecretValue,
}

impl MppeKeys {
    /// The 64 octets of an EAP method's MSK, where both keys have 32.
    #[must_use]
    pub fn msk(&self) -> Option<SecretValue<[u8; 64]>> {
        let mut msk = SecretValue::new([0; 64]);
        msk[..32].copy_from_slice(self.recv.get(..).filter(|k| k.len() == 32)?);
        msk[32..].copy_from_slice(self.send.get(..).filter(|k| k.len() == 32)?);
        Some(msk)
    }
}

impl RadiusReply {
    /// The MS-MPPE keys; `None` where the reply has not both.
    ///
    /// # Errors
    /// They do not decrypt to a sensible length.
    pub fn mppe_keys(&self) -> Result<Option<MppeKeys>, HideError> {
        let reveal = |kind| {
            self.attributes
                .get_vendor(vendor::MICROSOFT, kind)
                .map(|v| reveal_salted(self.secret.as_bytes(), &self.request_authenticator, v))
                .transpose()
        };
        Ok(match (reveal(vendor::MS_MPPE_RECV_KEY)?, reveal(vendor::MS_MPPE_SEND_KEY)?) {
            (Some(recv), Some(send)) => Some(MppeKeys { recv: recv.into(), send: send.into() }),
            _ => None,
        })
    }
    /// What MS-CHAP-MPPE-Keys holds, in answer to an MS-CHAP response; `None`: the reply has none.
    ///
    /// # Errors
    /// It has not the length that RFC 2548 §2.4.1 gives it. That another secret hid it nothing tells.
    pub fn ms_chap_keys(&self) -> Result<Option<MsChapKeys>, HideError> {
        let hidden = self.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS);
        let Some(hidden) = hidden else { return Ok(None) };
        let hidden: &[u8; 32] = hidden.try_into().map_err(|_| HideError::Blocks(hidden.len()))?;
        let mut keys = reveal_password(self.secret.as_bytes(), &self.request_authenticator, hidden)?;
        // Zeros at the end are not padding here.
        keys.resize(hidden.len(), 0);
        let (mut lm, mut nt) = (SecretValue::new([0; 8]), SecretValue::new([0; 16]));
        lm.copy_from_slice(&keys[..8]);
        nt.copy_from_slice(&keys[8..24]);
        Ok(Some(MsChapKeys { lm, nt }))
    }
    /// The first Tunnel-Password, its tag removed.
    ///
    /// # Errors
    /// It does not decrypt to a sensible length.
    pub fn tunnel_password(&self) -> Result<Option<Vec<u8>>, HideError> {
        self.attributes
            .get(kind::TUNNEL_PASSWORD)
            .map(|v| {
                let salted = v.get(1..).unwrap_or_default();
                reveal_salted(self.secret.as_bytes(), &self.request_authenticator, salted)
            })
            .transpose()
    }
}

/// What a client has to say.
#[derive(Clone, Debug)]
pub enum RadiusClientEvent {
    /// A request was answered.
    Response(RadiusReply),
    /// A request was given up.
    TimedOut {
        /// The request's token.
        token: u64,
    },
    /// How a server is that is watched ([`ServerConfig::liveness`]): whenever that changes, and each time that a dead one
    /// is asked for its status again.
    Server {
        /// Its index.
        server: u16,
        /// How it is.
        health: ServerHealth,
        /// Why.
        cause: HealthCause,
    },
}

/// What came of asking one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerCounts {
    /// Requests that it was asked, those that moved to it from another included, without further transmissions.
    pub requests: u64,
    /// Requests that it answered.
    pub answers: u64,
    /// Requests that it did not: they went to another server, or were given up.
    pub timeouts: u64,
    /// Answers to requests that were sent once, whose time is told.
    pub timed: u64,
    /// How long these took, together.
    pub round_trips: Duration,
}

usher_core::counters! {
    /// What a client did and what it dropped.
    pub struct RadiusClientCounters {
        /// First transmissions.
        requests,
        /// Further transmissions.
        retransmissions,
        /// Of those, the ones under a fresh identifier.
        renewals,
        /// Changes to another server of a group.
        failovers,
        /// Verified replies.
        responses,
        /// Requests given up.
        timeouts,
        /// Requests cancelled by the caller.
        cancelled,
        /// Dropped: not a RADIUS packet.
        malformed,
        /// Dropped: from an address that is no server of ours.
        wrong_source,
        /// Dropped: no request with that identifier is outstanding (a late or repeated reply).
        unknown_identifier,
        /// Dropped: a code that does not answer the request.
        wrong_code,
        /// Dropped: the Response Authenticator is wrong.
        bad_authenticator,
        /// Dropped: the Message-Authenticator is wrong.
        bad_message_authenticator,
        /// Dropped: no Message-Authenticator where one is required.
        missing_message_authenticator,
        /// Dropped: an Event-Timestamp that is too old or too new.
        stale,
        /// RadSec connections that came up.
        connections,
        /// RadSec connections that did not come up, or broke before an answer came by them.
        connections_failed,
        /// RadSec connections given up because the certificate is not the server's.
        connections_refused,
        /// RadSec connections closed for what came by them: a length, an attribute or an authenticator that no
        /// server of ours sends.
        connections_spoilt,
        /// Status-Server packets sent to see whether a server is alive.
        probes,
        /// Servers found to owe an answer for too long.
        suspects,
        /// Servers taken for dead.
        deaths,
        /// Dropped: input of a kind that no RADIUS client has, or of a connection that is not known.
        not_a_datagram,
    }
}

/// What a counter of answers that were dropped tells an operator, in words; `None`: nothing, or it counts something else.
#[must_use]
pub fn why_dropped(counter: &str) -> Option<&'static str> {
    Some(match counter {
        "missing_message_authenticator" => {
            "they have no Message-Authenticator, as those of servers from before 2024"
        }
        "bad_authenticator" | "bad_message_authenticator" => "they were made with another secret",
        "wrong_source" => "they came from another address than the one that was asked",
        "wrong_code" => "their code does not answer the request: is this the right port?",
        _ => return None,
    })
}
