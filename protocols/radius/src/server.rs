//! The RADIUS server, a machine that verifies requests and sends replies. It answers duplicates from a cache.
//!
//! ```text
//! datagram, stream ─▶ RadiusServer ─▶ event Request{token} ─▶ (caller) ─▶ command Respond{token} | Discard{token}
//! ```
//!
//! The caller should end each request event with one of the two commands.
//!
//! Its methods are of four kinds:
//!
//! - Getters: [`RadiusServer::counters`], [`RadiusServer::drop_sources`], [`RadiusServer::client_config`] and others.
//! - Input: `handle_input` takes datagrams, stream events and the timeout.
//! - Commands: `handle_command` takes a [`RadiusServerCommand`]. [`RadiusServer::reload_config`] replaces the
//!   configuration.
//! - Polls: `poll_output` and `poll_timeout` ([`usher_core::machine`]).

mod cache;
mod clients;
mod machine;
mod stream;

pub use clients::ConfigError;
pub use machine::{RadiusServer, build_unsupported_request_nak};

use crate::attribute::{AttributeList, HiddenValueError, kind, reveal_password};
use crate::auth::SharedSecret;
use crate::freshness::EventTimestampPolicy;
use crate::packet::PacketCode;
use crate::radsec::{self, PeerCertificateCondition};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{ConnId, DatagramPath, Duration, Instant};
use usher_crypto::SecretValue;

/// The packets that must carry a Message-Authenticator (BlastRADIUS, CVE-2024-3596).
///
/// Some always must: packets with EAP-Message (RFC 3579 §3.2), UDP packets without proof of a user (§3.3), and
/// Status-Server (RFC 5997 §3). A Message-Authenticator that is present must always be valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MessageAuthenticatorPolicy {
    /// Every Access-Request. Only this setting is safe on networks where others can send.
    #[default]
    Required,
    /// An Access-Request with a Proxy-State, for old access servers. The attack needs a Proxy-State in the request, and
    /// access servers other than proxies send none.
    ProxyState,
    /// No other packet.
    Off,
}

/// The transport of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientTransport {
    /// UDP.
    Udp,
    /// RadSec: TLS connections with a certificate that matches one of these. Empty: every certificate that the host's
    /// TLS accepts.
    ///
    /// RadSec clients may share a network. Among the clients of the longest prefix, the first match in the list wins.
    Tls(Vec<PeerCertificateCondition>),
}

/// A client: addresses that share a secret and a policy.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The network. Bits beyond `prefix` are ignored.
    pub network: IpAddr,
    /// The prefix length: 0 to 32 or 0 to 128. The longest matching prefix wins.
    pub prefix: u8,
    /// The shared secret.
    pub secret: SharedSecret,
    /// The packets that must carry a Message-Authenticator.
    pub message_authenticator: MessageAuthenticatorPolicy,
    /// The transport. An access server that uses both transports is two clients.
    pub transport: ClientTransport,
    /// Further access servers that it may name, as networks with prefix lengths. They are behind a proxy, or are its
    /// own addresses that it does not send from. See [`RadiusServer::speaks_for`].
    pub speaks_for: Vec<(IpAddr, u8)>,
}

impl ClientConfig {
    /// A UDP client network with the safe policy.
    #[must_use]
    pub const fn new(network: IpAddr, prefix: u8, secret: SharedSecret) -> Self {
        let message_authenticator = MessageAuthenticatorPolicy::Required;
        let transport = ClientTransport::Udp;
        Self { network, prefix, secret, message_authenticator, transport, speaks_for: Vec::new() }
    }
    /// A RadSec client network. It has the fixed secret. Only EAP needs a Message-Authenticator, since TLS protects
    /// every octet.
    #[must_use]
    pub fn for_radsec(network: IpAddr, prefix: u8, certificates: Vec<PeerCertificateCondition>) -> Self {
        let message_authenticator = MessageAuthenticatorPolicy::Off;
        let transport = ClientTransport::Tls(certificates);
        let (secret, speaks_for) = (radsec::radsec_secret(), Vec::new());
        Self { network, prefix, secret, message_authenticator, transport, speaks_for }
    }
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct RadiusServerConfig {
    /// The clients. Packets from other addresses are dropped.
    pub clients: Vec<ClientConfig>,
    /// The role of sockets that `roles` omits. Requests of other codes are dropped.
    pub role: PortRole,
    /// The role of each socket, from [`usher_core::SocketId`] 0 on. Port 1812 is for authentication, 1813 for
    /// accounting, 3799 for dynamic authorization.
    pub roles: Vec<PortRole>,
    /// The role of RadSec connections (RFC 6614 §2.1: one port for all).
    pub streams: PortRole,
    /// The time for which a reply is kept to answer duplicates (RFC 5080 §2.2.2 proposes 5 s).
    pub retain: Duration,
    /// The time after which a request without a command of the caller expires.
    pub pending_timeout: Duration,
    /// The maximum number of requests and kept replies. Beyond it the oldest kept reply is evicted. If all entries are
    /// pending requests, a new request is dropped.
    pub max_entries: usize,
    /// The approximate memory in octets of requests and kept replies, with the same rule as `max_entries`. A reply of
    /// 100 octets takes about 400.
    pub max_bytes: usize,
    /// The maximum number of pending requests of one client. Further ones are dropped, so that a flood from one client
    /// leaves space for the others.
    pub max_waiting: usize,
    /// The maximum number of attributes in a request.
    pub max_attributes: usize,
    /// The maximum number of RadSec connections.
    pub max_connections: usize,
    /// Checks the Event-Timestamp of requests for dynamic authorization; `None`: no check.
    pub freshness: Option<EventTimestampPolicy>,
}

/// The requests that a port accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortRole {
    /// Access-Request. The reply to Status-Server is Access-Accept.
    Authentication,
    /// Accounting-Request. The reply to Status-Server is Accounting-Response.
    Accounting,
    /// Both. The reply to Status-Server is Access-Accept.
    Both,
    /// CoA-Request and Disconnect-Request (RFC 5176), on an access server. Status-Server is dropped (RFC 5997 §4.5).
    DynamicAuthorization,
    /// All of these. The reply to Status-Server is Access-Accept.
    All,
}

impl PortRole {
    /// True if a port of this role accepts requests of a code.
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
    /// A server of these clients, for authentication and accounting.
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

/// A command to a server.
#[derive(Clone, Debug)]
pub enum RadiusServerCommand {
    /// Replies to a request.
    ///
    /// [`usher_core::CommandError::UnknownToken`] means that the client replaced the request by a newer one, or that
    /// the caller exceeded [`RadiusServerConfig::pending_timeout`]. The caller may ignore it.
    ///
    /// The server puts a Message-Authenticator first in every reply to an Access-Request, and in other replies if the
    /// request had one. So the list must not contain one. The server also copies the Proxy-State attributes of the
    /// request to the end (RFC 2865 §5.33), unless the list has some.
    Respond {
        /// The request's token.
        token: u64,
        /// A code that answers the request.
        code: PacketCode,
        /// The attributes.
        attributes: AttributeList,
    },
    /// Ends a request without a reply. Duplicates are dropped too, for as long as a reply would be kept.
    Discard {
        /// The request's token.
        token: u64,
    },
}

/// A verified request.
#[derive(Clone, Debug)]
pub struct RadiusRequest {
    /// The token of the command that ends the request.
    pub token: u64,
    /// Index of the client in [`RadiusServerConfig::clients`].
    pub client: u32,
    /// The socket and the addresses. For RadSec the socket has no meaning.
    pub path: DatagramPath,
    /// The RadSec connection that carried it.
    pub conn: Option<ConnId>,
    /// Access-Request, Accounting-Request, …
    pub code: PacketCode,
    /// The packet's identifier.
    pub identifier: u8,
    /// The attributes as received.
    pub attributes: AttributeList,
    /// The packet's authenticator.
    pub request_authenticator: [u8; 16],
    /// The shared secret of the client, which reveals hidden values.
    pub secret: SharedSecret,
}

impl RadiusRequest {
    /// Returns the User-Password in clear; `None` if there is none.
    ///
    /// # Errors
    /// If its length cannot be that of a hidden password.
    pub fn user_password(&self) -> Result<Option<SecretValue>, HiddenValueError> {
        self.attributes
            .get(kind::USER_PASSWORD)
            .map(|v| {
                reveal_password(self.secret.as_bytes(), &self.request_authenticator, v).map(SecretValue::new)
            })
            .transpose()
    }
    /// The address of the sender.
    #[must_use]
    pub const fn source_address(&self) -> SocketAddr {
        self.path.remote
    }
}

/// An event of a server.
#[derive(Clone, Debug)]
pub enum RadiusServerEvent {
    /// A client sent a request.
    Request(RadiusRequest),
}

/// The time and source of a dropped packet. A UDP source may be forged.
pub type DroppedPacketSource = (Instant, IpAddr);

/// The latest dropped packet for each of these reasons.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LatestDropSources {
    /// Not a RADIUS packet.
    pub malformed: Option<DroppedPacketSource>,
    /// From an unknown client.
    pub unknown_client: Option<DroppedPacketSource>,
    /// A code that this port does not serve.
    pub wrong_code: Option<DroppedPacketSource>,
    /// The Request Authenticator is wrong.
    pub bad_authenticator: Option<DroppedPacketSource>,
    /// The Message-Authenticator is wrong.
    pub bad_message_authenticator: Option<DroppedPacketSource>,
    /// No Message-Authenticator although one is required.
    pub missing_message_authenticator: Option<DroppedPacketSource>,
}

impl LatestDropSources {
    /// Takes over the later packets of another server.
    pub fn merge_counters_by_maximum(&mut self, other: &Self) {
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
    /// Counters of a server.
    pub struct RadiusServerCounters {
        /// Verified requests, without duplicates and Status-Server.
        requests,
        /// First replies, without those to Status-Server.
        responses,
        /// Verified requests that the AAA server dropped.
        discarded,
        /// Status-Server packets answered.
        status,
        /// Duplicates answered with the same reply again.
        duplicates_answered,
        /// Dropped: duplicates of requests in progress or discarded, and replays of dynamic authorization
        /// from another port.
        duplicates_dropped,
        /// Requests abandoned because a new one came with the same source and identifier.
        superseded,
        /// Requests that the AAA server did not answer in time.
        expired,
        /// Cached replies evicted early, to make room.
        evicted,
        /// Dropped: too many requests in progress.
        overload,
        /// Dropped: not a RADIUS packet.
        malformed,
        /// Dropped: unknown client.
        unknown_client,
        /// Dropped: unassigned code.
        unknown_code,
        /// Dropped: a code that this port does not serve.
        wrong_code,
        /// Dropped: too many attributes.
        too_many_attributes,
        /// Dropped: too many requests of the client in progress.
        client_overload,
        /// Dropped: Event-Timestamp too old, too new, or missing.
        stale,
        /// Dropped: wrong Request Authenticator.
        bad_authenticator,
        /// Dropped: wrong Message-Authenticator.
        bad_message_authenticator,
        /// Dropped: the required Message-Authenticator is missing.
        missing_message_authenticator,
        /// RadSec connections accepted.
        connections,
        /// RadSec connections refused: unknown client, or too many.
        connections_refused,
        /// RadSec connections closed: invalid length, attribute or authenticator (RFC 6613 §2.6.4).
        connections_malformed,
        /// Dropped: input of a wrong kind or an unknown connection.
        not_a_datagram,
    }
}
