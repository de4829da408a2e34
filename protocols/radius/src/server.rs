//! The RADIUS server: verified requests out, replies in, every duplicate handled between.
//!
//! ```text
//! datagram, stream ─▶ Server ─▶ Event::Request{token} ─▶ (caller) ─▶ Command::Respond{token} | Discard{token}
//! ```
//! Each request event should be answered by one of the two commands.

mod cache;
mod clients;
mod machine;
mod stream;

pub use clients::ConfigError;
pub use machine::{RadiusServer, build_nak};

use crate::attribute::{AttributeList, HideError, kind, reveal_password};
use crate::auth::SharedSecret;
use crate::freshness::FreshnessPolicy;
use crate::packet::PacketCode;
use crate::radsec::{self, CertificateMatch};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{ConnId, DatagramPath, Duration, Instant};
use usher_crypto::SecretValue;

/// When a packet must carry a Message-Authenticator (BlastRADIUS, CVE-2024-3596). Whatever this says, those with an
/// EAP-Message must (RFC 3579 §3.2), those by datagrams without any proof of a user (§3.3), and Status-Server (RFC 5997
/// §3); one that is there must be right.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageAuthenticatorPolicy {
    /// Every Access-Request: the only setting that is safe over networks that others can write to.
    #[default]
    Required,
    /// An Access-Request with a Proxy-State: the attack needs one in the request, and access servers that are no
    /// proxies send none. For old access servers.
    ProxyState,
    /// None has to.
    Off,
}

/// By what a client's packets come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientTransport {
    /// Datagrams.
    Udp,
    /// RadSec: TLS connections whose certificate fits one of these; none at all: any certificate that the host's
    /// TLS let in. Clients of this transport may share a network: the first one in the list that fits is taken
    /// among those of the longest prefix.
    Tls(Vec<CertificateMatch>),
}

/// Addresses that share a secret and a policy.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The network; bits beyond `prefix` are ignored.
    pub network: IpAddr,
    /// Leading bits that count: 0 to 32 or 0 to 128. The longest matching prefix wins.
    pub prefix: u8,
    /// The secret shared with it.
    pub secret: SharedSecret,
    /// Which packets must carry a Message-Authenticator.
    pub message_authenticator: MessageAuthenticatorPolicy,
    /// By what its packets come. An access server that uses both transports is two clients.
    pub transport: ClientTransport,
    /// Networks of the access servers that it speaks for beside itself, with the leading bits that count: those behind a
    /// proxy, or addresses of its own that it does not send from. See [`RadiusServer::speaks_for`].
    pub speaks_for: Vec<(IpAddr, u8)>,
}

impl ClientConfig {
    /// A network with the safe policy, by datagrams.
    #[must_use]
    pub const fn new(network: IpAddr, prefix: u8, secret: SharedSecret) -> Self {
        let message_authenticator = MessageAuthenticatorPolicy::Required;
        let transport = ClientTransport::Udp;
        Self { network, prefix, secret, message_authenticator, transport, speaks_for: Vec::new() }
    }
    /// A network by RadSec: the fixed secret, and no Message-Authenticator beyond what EAP asks for, since TLS
    /// protects every octet.
    #[must_use]
    pub fn for_radsec(network: IpAddr, prefix: u8, certificates: Vec<CertificateMatch>) -> Self {
        let message_authenticator = MessageAuthenticatorPolicy::Off;
        let transport = ClientTransport::Tls(certificates);
        let (secret, speaks_for) = (radsec::radsec_secret(), Vec::new());
        Self { network, prefix, secret, message_authenticator, transport, speaks_for }
    }
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct RadiusServerConfig {
    /// Whom it serves; requests from elsewhere are dropped.
    pub clients: Vec<ClientConfig>,
    /// What the sockets are for that `roles` does not name; requests of other codes are dropped.
    pub role: PortRole,
    /// What each socket is for, from [`usher_core::SocketId`] 0 on: 1812 is a port for authentication, 1813 one
    /// for accounting, 3799 one for dynamic authorisation.
    pub roles: Vec<PortRole>,
    /// What RadSec connections are for (RFC 6614 §2.1: one port for all).
    pub streams: PortRole,
    /// How long a reply is kept to answer duplicates (RFC 5080 §2.2.2 proposes 5 s).
    pub retain: Duration,
    /// How long a request may wait for the caller's command before it is forgotten.
    pub pending_timeout: Duration,
    /// How many requests and kept replies there may be. Beyond it the oldest kept reply goes; where all
    /// are still waiting for the caller, a new request is dropped.
    pub max_entries: usize,
    /// How many octets of memory requests and kept replies may take, about; beyond it as with `max_entries`. A reply
    /// of 100 octets takes about 400.
    pub max_bytes: usize,
    /// How many requests of one client may wait for the caller; further ones are dropped, so that one client's
    /// flood leaves room for the others.
    pub max_waiting: usize,
    /// How many attributes a request may have.
    pub max_attributes: usize,
    /// How many RadSec connections there may be.
    pub max_connections: usize,
    /// How old a request for dynamic authorisation may be; `None`: not looked at.
    pub freshness: Option<FreshnessPolicy>,
}

/// Which requests a server takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortRole {
    /// Access-Request; Status-Server is answered by Access-Accept.
    Authentication,
    /// Accounting-Request; Status-Server is answered by Accounting-Response.
    Accounting,
    /// Both on one port; Status-Server is answered by Access-Accept.
    Both,
    /// CoA-Request and Disconnect-Request (RFC 5176): an access server's side. Status-Server is dropped (RFC 5997
    /// §4.5).
    DynamicAuthorization,
    /// All of these; Status-Server is answered by Access-Accept.
    All,
}

impl PortRole {
    /// Whether a port of this role takes requests of a code.
    #[must_use]
    pub const fn accepts_code(self, code: PacketCode) -> bool {
        match code {
            PacketCode::STATUS_SERVER => !matches!(self, Self::DynamicAuthorization),
            PacketCode::ACCESS_REQUEST => matches!(self, Self::Authentication | Self::Both | Self::All),
            PacketCode::ACCOUNTING_REQUEST => matches!(self, Self::Accounting | Self::Both | Self::All),
            PacketCode::COA_REQUEST | PacketCode::DISCONNECT_REQUEST => {
                matches!(self, Self::DynamicAuthorization | Self::All)
            }
            _ => false,
        }
    }
}

impl RadiusServerConfig {
    /// A server of these clients for authentication and accounting.
    #[must_use]
    pub fn new(clients: Vec<ClientConfig>) -> Self {
        Self {
            clients,
            role: PortRole::Both,
            roles: Vec::new(),
            streams: PortRole::Both,
            retain: Duration::from_secs(5),
            pending_timeout: Duration::from_secs(30),
            max_entries: 1 << 20,
            max_bytes: 1 << 30,
            max_waiting: 1 << 16,
            max_attributes: 200,
            max_connections: 1 << 14,
            freshness: None,
        }
    }
}

/// What a server is asked.
#[derive(Clone, Debug)]
pub enum RadiusServerCommand {
    /// Answer a request. [`usher_core::CommandError::UnknownToken`] then says that the client gave the
    /// request up for a newer one, or that the answer took longer than [`RadiusServerConfig::pending_timeout`]: nothing is
    /// left to do.
    ///
    /// A Message-Authenticator is put in front of every reply to an Access-Request,
    /// and of others where the request had one; the list must not hold one. Proxy-State attributes of
    /// the request are copied to the end by the server (RFC 2865 §5.33) unless the list has some.
    Respond {
        /// The request's token.
        token: u64,
        /// A code that answers the request.
        code: PacketCode,
        /// What to say.
        attributes: AttributeList,
    },
    /// Do not answer; duplicates that come while a reply would be kept are dropped too.
    Discard {
        /// The request's token.
        token: u64,
    },
}

/// A verified request.
#[derive(Clone, Debug)]
pub struct RadiusRequest {
    /// Names the request in the command that ends it.
    pub token: u64,
    /// Index of the client in [`RadiusServerConfig::clients`].
    pub client: u32,
    /// Where it came from, and on which socket; for RadSec the socket means nothing.
    pub path: DatagramPath,
    /// The RadSec connection that it came by.
    pub conn: Option<ConnId>,
    /// Access-Request, Accounting-Request, …
    pub code: PacketCode,
    /// The packet's identifier.
    pub identifier: u8,
    /// The attributes as they came.
    pub attributes: AttributeList,
    /// The packet's authenticator.
    pub request_authenticator: [u8; 16],
    /// The secret shared with the client, to reveal hidden values.
    pub secret: SharedSecret,
}

impl RadiusRequest {
    /// The User-Password in clear; `None` where there is none.
    ///
    /// # Errors
    /// Its length is not that of a hidden password.
    pub fn user_password(&self) -> Result<Option<SecretValue>, HideError> {
        self.attributes
            .get(kind::USER_PASSWORD)
            .map(|v| {
                reveal_password(self.secret.as_bytes(), &self.request_authenticator, v).map(SecretValue::new)
            })
            .transpose()
    }
    /// Whom it came from.
    #[must_use]
    pub const fn source_address(&self) -> SocketAddr {
        self.path.remote
    }
}

/// What a server has to say.
#[derive(Clone, Debug)]
pub enum RadiusServerEvent {
    /// A client asks.
    Request(RadiusRequest),
}

/// A dropped packet: when it came, and where from. Who sends by UDP may have forged that.
pub type DroppedFrom = (Instant, IpAddr);

/// The newest packet that was dropped for each of these reasons.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DropSources {
    /// Not a RADIUS packet.
    pub malformed: Option<DroppedFrom>,
    /// From no client of ours.
    pub unknown_client: Option<DroppedFrom>,
    /// A code that this port does not serve.
    pub wrong_code: Option<DroppedFrom>,
    /// The Request Authenticator is wrong.
    pub bad_authenticator: Option<DroppedFrom>,
    /// The Message-Authenticator is wrong.
    pub bad_message_authenticator: Option<DroppedFrom>,
    /// No Message-Authenticator where one is required.
    pub missing_message_authenticator: Option<DroppedFrom>,
}

impl DropSources {
    /// Takes what another server has seen later.
    pub fn merge_newer(&mut self, other: &Self) {
        self.malformed = self.malformed.max(other.malformed);
        self.unknown_client = self.unknown_client.max(other.unknown_client);
        self.wrong_code = self.wrong_code.max(other.wrong_code);
        self.bad_authenticator = self.bad_authenticator.max(other.bad_authenticator);
        self.bad_message_authenticator = self.bad_message_authenticator.max(other.bad_message_authenticator);
        self.missing_message_authenticator =
            self.missing_message_authenticator.max(other.missing_message_authenticator);
    }
}

usher_core::counters! {
    /// What a server did and what it dropped.
    pub struct RadiusServerCounters {
        /// Verified requests, without duplicates and Status-Server.
        requests,
        /// Replies sent for the first time, without those to Status-Server.
        responses,
        /// Requests that the caller discarded.
        discarded,
        /// Status-Server packets answered.
        status,
        /// Duplicates answered with the same octets again.
        duplicates_answered,
        /// Dropped: duplicates of requests that are being worked on, or were discarded; replays of requests for dynamic
        /// authorisation from another port.
        duplicates_dropped,
        /// Requests abandoned for a new one with the same source and identifier.
        superseded,
        /// Requests forgotten because the caller took too long.
        expired,
        /// Kept replies given up early to make room.
        evicted,
        /// Dropped: no room, everything is waiting for the caller.
        overload,
        /// Dropped: not a RADIUS packet.
        malformed,
        /// Dropped: from no client of ours.
        unknown_client,
        /// Dropped: a code that nobody has defined.
        unknown_code,
        /// Dropped: a code that this port does not serve.
        wrong_code,
        /// Dropped: more attributes than a request may have.
        too_many_attributes,
        /// Dropped: as many requests of its client are waiting as may.
        client_overload,
        /// Dropped: an Event-Timestamp that is too old, too new, or missing.
        stale,
        /// Dropped: the Request Authenticator is wrong.
        bad_authenticator,
        /// Dropped: the Message-Authenticator is wrong.
        bad_message_authenticator,
        /// Dropped: no Message-Authenticator where one is required.
        missing_message_authenticator,
        /// RadSec connections taken.
        connections,
        /// RadSec connections refused: of no client of ours, or more than there may be.
        connections_refused,
        /// RadSec connections closed for what came by them: a length, an attribute or an authenticator that no
        /// client of ours sends (RFC 6613 §2.6.4).
        connections_spoilt,
        /// Dropped: input of a kind that no RADIUS server has, or of a connection that is not known.
        not_a_datagram,
    }
}
