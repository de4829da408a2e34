//! The RADIUS client, a machine that sends requests and returns verified replies. It assigns identifiers, retransmits
//! and fails over to other servers.
//!
//! ```text
//! command Request{token} ─▶ RadiusClient ─▶ event Response{token} | TimedOut{token}
//! ```
//!
//! Each accepted request yields exactly one event, unless it is cancelled.
//!
//! Its methods are of four kinds:
//!
//! - Getters: [`RadiusClient::counters`], [`RadiusClient::server_health`], [`RadiusClient::outstanding_tokens`] and
//!   others.
//! - Input: `handle_input` takes datagrams, stream events and the timeout.
//! - Commands: `handle_command` takes a [`RadiusClientCommand`]. [`RadiusClient::add_server`],
//!   [`RadiusClient::apply_shared_health`] and [`RadiusClient::reset_malformed_connection`] are direct calls.
//! - Polls: `poll_output` and `poll_timeout` ([`usher_core::machine`]).

mod connection;
mod identifier;
mod liveness;
mod machine;
mod reply;
mod retransmit;
mod stream;

pub use liveness::{ServerHealth, ServerHealthCause};
pub use machine::RadiusClient;
pub use retransmit::RetransmissionPolicy;

use crate::attribute::{AttributeList, HiddenValueError, kind, reveal_password, reveal_salted, vendor};
use crate::auth::SharedSecret;
use crate::freshness::EventTimestampPolicy;
use crate::packet::PacketCode;
use crate::radsec::{self, PeerCertificateCondition};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::legacy::mschap::MsChapKeys;

/// The transport to a server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ServerTransport {
    /// UDP.
    #[default]
    Udp,
    /// RadSec: streams that the host protects by TLS (RFC 6614).
    ///
    /// The client opens them on demand and keeps them. Each has 256 identifiers of its own. A stream carries a request
    /// once (RFC 6613 §2.6.1). If it breaks, the next stream carries the pending requests.
    Tls,
}

/// Liveness detection of a server, with Status-Server (RFC 5997) in place of the watchdog messages of RFC 3539.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLivenessConfig {
    /// The response window. A server that owes a reply and sends nothing for this time is suspect. Its pending requests
    /// then move to the next server of the group, which new requests prefer. The client probes it with Status-Server.
    ///
    /// A single request also moves on after this time, even if the server answers others.
    pub window: Duration,
    /// The zombie period: the time from suspect to dead, if the server stays silent. The client probes it once per
    /// window. Any reply makes it alive again.
    pub zombie: Duration,
    /// Tw (RFC 3539 §3.4.1, which wants 6 s or more): the interval of Status-Server to a dead server, and to an idle
    /// RadSec connection.
    pub interval: Duration,
    /// True if the server supports Status-Server. Otherwise a suspect server gets no requests while the group has
    /// others.
    pub status: bool,
    /// The number of consecutive Status-Server replies that revive a dead server (RFC 3539 §3.4.1 wants 3).
    pub answers: u32,
    /// The time after which a dead server is tried again, if it gets no Status-Server or never answered one.
    pub revive: Duration,
}

impl Default for ServerLivenessConfig {
    /// A window of 4 s, in which a request is sent twice; dead after three more windows; Status-Server with Tw of 30 s
    /// (the proposal of RFC 3539) and three replies.
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

/// A server of a client.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address of the server.
    pub address: SocketAddr,
    /// The shared secret.
    pub secret: SharedSecret,
    /// True if a reply to an Access-Request must carry a Message-Authenticator. Set it to false only for old servers
    /// that send none: an attacker on the path can then forge replies (BlastRADIUS).
    pub require_message_authenticator: bool,
    /// The local address. With an unspecified address the host chooses.
    pub local: IpAddr,
    /// The transport.
    pub transport: ServerTransport,
    /// The certificates accepted from the server by RadSec (RFC 6614 §2.3). Empty: every certificate that the host's
    /// TLS accepts.
    pub certificates: Vec<PeerCertificateCondition>,
    /// Liveness detection; `None`: the server always counts as alive.
    pub liveness: Option<ServerLivenessConfig>,
}

impl ServerConfig {
    /// A RadSec server. TLS protects its replies, so they need no Message-Authenticator.
    #[must_use]
    pub fn for_radsec(address: SocketAddr) -> Self {
        let (require_message_authenticator, transport) = (false, ServerTransport::Tls);
        Self { require_message_authenticator, transport, ..Self::new(address, radsec::radsec_secret()) }
    }
    /// A UDP server with the safe policy.
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

/// When a request to a group moves to the next server of the group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailoverPolicy {
    /// The number of unanswered transmissions to one server, 1 or more. The request then goes to the next server with a
    /// new identifier, and its retransmission time restarts. The limits of count and time apply to the whole request. A
    /// server with liveness detection also has its response window ([`ServerLivenessConfig::window`]).
    pub after: u32,
    /// The time during which new requests start at the next server, before the client tries the first again.
    pub revive: Duration,
}

impl Default for FailoverPolicy {
    /// After three transmissions; back to the first server after five minutes.
    fn default() -> Self {
        Self { after: 3, revive: Duration::from_secs(300) }
    }
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct RadiusClientConfig {
    /// The servers. Commands and events name them by index.
    pub servers: Vec<ServerConfig>,
    /// Groups of interchangeable servers, each in order of preference, as indexes into `servers`.
    pub groups: Vec<Vec<u16>>,
    /// The retransmission policy.
    pub retransmission: RetransmissionPolicy,
    /// The failover policy of groups; `None`: no failover.
    pub failover: Option<FailoverPolicy>,
    /// The maximum number of sockets. Each adds 256 outstanding requests per server.
    pub max_sockets: u32,
    /// The time before an identifier is reused if its request had no reply or was retransmitted, since a late reply may
    /// still arrive.
    pub identifier_rest: Duration,
    /// The maximum number of connections to a RadSec server. Each adds 256 outstanding requests.
    pub max_connections: u32,
    /// The number of the first RadSec connection ([`usher_core::ConnId::nth_opened_connection`]). A client that replaces another
    /// needs it, since connections of the old client may still be open.
    pub first_connection: u32,
    /// The delay before the next attempt after a failed connection. It doubles with each failure, up to a minute.
    pub reconnect: Duration,
    /// Checks the Event-Timestamp in replies to CoA-Request and Disconnect-Request (RFC 5176 §6.3); `None`: no check.
    pub freshness: Option<EventTimestampPolicy>,
}

impl RadiusClientConfig {
    /// A client of one server, with the retransmissions that RFC 5080 proposes.
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

/// An error in a [`RadiusClientConfig`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The number of servers is 0 or above 65,535.
    #[error("the number of servers is {0}; it must be 1 to 65535")]
    Servers(usize),
    /// A group is empty or names an unknown server.
    #[error("group {0} is empty or names a server that does not exist")]
    Group(usize),
    /// The number of sockets is 0.
    #[error("max_sockets must be 1 to 2^24")]
    Sockets,
    /// The number of connections is 0.
    #[error("max_connections is 0; give at least 1")]
    Connections,
    /// A window or interval of liveness detection is zero, or the number of replies that revive a server is 0.
    #[error("the liveness window, its interval and its number of answers must be above 0")]
    Liveness,
    /// The failover count is 0.
    #[error("the number of transmissions before failover is 0; give at least 1")]
    Failover,
    /// The first retransmission time is zero.
    #[error("the first retransmission time must be above 0")]
    Retransmission,
}

/// The destination of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestTarget {
    /// The server of this index only.
    Server(u16),
    /// The group of this index.
    Group(u16),
    /// A group, from one of its servers on: first the later ones in its order, then the earlier ones.
    From {
        /// The group.
        group: u16,
        /// The first server.
        server: u16,
    },
}

/// A command to a client.
#[derive(Clone, Debug)]
pub enum RadiusClientCommand {
    /// Sends a request.
    ///
    /// The client puts a Message-Authenticator first in every Access-Request and Status-Server, so the list must not
    /// contain one. It updates Acct-Delay-Time in each retransmission of an Accounting-Request, which then has a new
    /// identifier (RFC 2866 §5.2). Other retransmissions repeat the same octets. Status-Server is sent once (RFC 5997
    /// §4.1).
    Request {
        /// Returns with the reply. It must differ from the tokens of outstanding requests.
        token: u64,
        /// The destination.
        target: RequestTarget,
        /// Access-Request, Accounting-Request, Status-Server, CoA-Request or Disconnect-Request.
        code: PacketCode,
        /// The attributes.
        attributes: AttributeList,
    },
    /// Cancels a request. A later reply is dropped.
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
    /// The code of the reply.
    pub code: PacketCode,
    /// The attributes as received.
    pub attributes: AttributeList,
    /// The authenticator of the request.
    pub request_authenticator: [u8; 16],
    /// The shared secret of that server, which reveals hidden values.
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
    /// Returns the 64 octets of the MSK of an EAP method, if both keys have 32 octets.
    #[must_use]
    pub fn msk(&self) -> Option<SecretValue<[u8; 64]>> {
        let mut msk = SecretValue::new([0; 64]);
        msk[..32].copy_from_slice(self.recv.get(..).filter(|k| k.len() == 32)?);
        msk[32..].copy_from_slice(self.send.get(..).filter(|k| k.len() == 32)?);
        Some(msk)
    }
}

impl RadiusReply {
    /// Returns the MS-MPPE keys; `None` unless the reply has both.
    ///
    /// # Errors
    /// If they decrypt to an impossible length.
    pub fn mppe_keys(&self) -> Result<Option<MppeKeys>, HiddenValueError> {
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
    /// Returns the content of MS-CHAP-MPPE-Keys, from a reply to an MS-CHAP response; `None` if the reply has none.
    ///
    /// # Errors
    /// If its length differs from RFC 2548 §2.4.1. A wrong secret cannot be detected.
    pub fn ms_chap_keys(&self) -> Result<Option<MsChapKeys>, HiddenValueError> {
        let hidden = self.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_MPPE_KEYS);
        let Some(hidden) = hidden else { return Ok(None) };
        let hidden: &[u8; 32] = hidden.try_into().map_err(|_| HiddenValueError::Blocks(hidden.len()))?;
        let mut keys = reveal_password(self.secret.as_bytes(), &self.request_authenticator, hidden)?;
        // Zeros at the end belong to the keys; they are not padding.
        keys.resize(hidden.len(), 0);
        let (mut lm, mut nt) = (SecretValue::new([0; 8]), SecretValue::new([0; 16]));
        lm.copy_from_slice(&keys[..8]);
        nt.copy_from_slice(&keys[8..24]);
        Ok(Some(MsChapKeys { lm, nt }))
    }
    /// Returns the first Tunnel-Password without its tag.
    ///
    /// # Errors
    /// If it decrypts to an impossible length.
    pub fn tunnel_password(&self) -> Result<Option<Vec<u8>>, HiddenValueError> {
        self.attributes
            .get(kind::TUNNEL_PASSWORD)
            .map(|v| {
                let salted = v.get(1..).unwrap_or_default();
                reveal_salted(self.secret.as_bytes(), &self.request_authenticator, salted)
            })
            .transpose()
    }
}

/// An event of a client.
#[derive(Clone, Debug)]
pub enum RadiusClientEvent {
    /// A request has a verified reply.
    Response(RadiusReply),
    /// A request timed out.
    TimedOut {
        /// The request's token.
        token: u64,
    },
    /// The health of a server with liveness detection ([`ServerConfig::liveness`]). The client reports every change,
    /// and every new Status-Server to a dead server.
    Server {
        /// Its index.
        server: u16,
        /// The health.
        health: ServerHealth,
        /// The cause.
        cause: ServerHealthCause,
    },
}

/// Statistics of one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerCounts {
    /// Requests to it, including requests that moved to it from another server. Retransmissions do not count.
    pub requests: u64,
    /// Requests that it answered.
    pub answers: u64,
    /// Requests that it did not answer: they moved to another server or timed out.
    pub timeouts: u64,
    /// Replies to requests that were sent once, whose round-trip time is known.
    pub timed: u64,
    /// The sum of these round-trip times.
    pub round_trips: Duration,
}

usher_core::counters! {
    /// Counters of a client.
    pub struct RadiusClientCounters {
        /// First transmissions.
        requests,
        /// Further transmissions.
        retransmissions,
        /// Retransmissions under a fresh identifier.
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
        /// Dropped: from an unknown address.
        wrong_source,
        /// Dropped: no outstanding request has this identifier (a late or repeated reply).
        unknown_identifier,
        /// Dropped: a code that does not answer the request.
        wrong_code,
        /// Dropped: the Response Authenticator is wrong.
        bad_authenticator,
        /// Dropped: the Message-Authenticator is wrong.
        bad_message_authenticator,
        /// Dropped: the required Message-Authenticator is missing.
        missing_message_authenticator,
        /// Dropped: Event-Timestamp too old or too new.
        stale,
        /// RadSec connections established.
        connections,
        /// RadSec connections that failed before their first answer.
        connections_failed,
        /// RadSec connections closed: the certificate is not the server's.
        connections_refused,
        /// RadSec connections closed: invalid length, attribute or authenticator (RFC 6613 §2.6.4).
        connections_malformed,
        /// Status-Server packets sent to test a server's liveness.
        probes,
        /// Servers suspected: they owe an answer for too long.
        suspects,
        /// Servers declared dead.
        deaths,
        /// Dropped: input of a wrong kind or an unknown connection.
        not_a_datagram,
    }
}

/// Returns the meaning of a drop counter for an operator; `None` if it has no advice or counts something else.
#[must_use]
pub fn drop_counter_advice(counter: &str) -> Option<&'static str> {
    Some(match counter {
        "missing_message_authenticator" => {
            "they have no Message-Authenticator; servers from before 2024 send none"
        }
        "bad_authenticator" | "bad_message_authenticator" => "the server has another shared secret",
        "wrong_source" => "they came from another address than that of the server",
        "wrong_code" => "their code does not answer the request; check the port",
        _ => return None,
    })
}
