//! The configuration of a node.

use crate::peer::capabilities::{DiameterApplication, NodeCapabilities};
use crate::stream::StreamPolicy;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::Duration;
use usher_crypto::certificate::PeerCertificateCondition;

/// The transport to a peer to which the node connects (RFC 6733 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PeerTransportConfig {
    /// A byte stream: TCP, TLS.
    #[default]
    Stream,
    /// A message-oriented association: SCTP.
    Message {
        /// The number of outbound streams to request, at least one. The negotiated number may be lower.
        streams: u16,
        /// The choice of a message's stream.
        policy: StreamPolicy,
    },
}

/// The authentication of a peer (RFC 6733 §13.1). By default any address is allowed, and over TLS the certificate must
/// contain the DiameterIdentity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerAuthentication {
    /// The networks from which it may connect: address and prefix length. Empty allows any.
    pub networks: Vec<(IpAddr, u8)>,
    /// The permitted certificates, which require TLS. If empty, a certificate over TLS must contain the
    /// DiameterIdentity.
    pub certificates: Vec<PeerCertificateCondition>,
    /// True if TLS is required.
    pub tls: bool,
}

impl PeerAuthentication {
    /// True if the peer may connect from this address.
    pub(super) fn may_connect(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|n| is_within(*n, address))
    }
    /// True if the connection may be that of the peer with this DiameterIdentity. `remote` is the source address of an
    /// accepted connection, `certificate` (DER) that of its TLS.
    pub(super) fn may_be_peer_connection(
        &self,
        identity: &str,
        remote: Option<SocketAddr>,
        certificate: Option<&[u8]>,
    ) -> bool {
        remote.is_none_or(|remote| self.may_connect(remote.ip()))
            && match certificate {
                None => !self.tls && self.certificates.is_empty(),
                Some(certificate) if self.certificates.is_empty() => {
                    PeerCertificateCondition::Name(identity.to_string()).matches_certificate(certificate)
                }
                Some(certificate) => self.certificates.iter().any(|c| c.matches_certificate(certificate)),
            }
    }
}

/// True if the network contains the address. An IPv4-mapped IPv6 address counts as IPv4.
fn is_within((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let octets = |a: IpAddr| match a.to_canonical() {
        IpAddr::V4(a) => (true, u128::from(u32::from(a)) << 96),
        IpAddr::V6(a) => (false, u128::from(a)),
    };
    let (a, b) = (octets(network), octets(address));
    let apart = (a.1 ^ b.1).leading_zeros();
    a.0 == b.0 && apart >= u32::from(bits)
}

/// True if the pattern matches a DiameterIdentity, ignoring letter case. A pattern `*suffix` matches every name with
/// that suffix.
pub(super) fn matches_identity(pattern: &str, identity: &[u8]) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => {
            let rest = identity.len().checked_sub(end.len()).and_then(|at| identity.get(at..));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(end.as_bytes()))
        }
        None => identity.eq_ignore_ascii_case(pattern.as_bytes()),
    }
}

/// A configured peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// The peer's DiameterIdentity. Its CER and CEA must have it as Origin-Host (letter case ignored).
    pub host: String,
    /// The address to connect to. `None` if only the peer connects.
    pub address: Option<SocketAddr>,
    /// The transport to connect by. Ignored if only the peer connects, which may use either.
    pub transport: PeerTransportConfig,
    /// The peer's authentication.
    pub authentication: PeerAuthentication,
    /// The nodes for which the peer may relay requests: DiameterIdentities (letter case ignored), `*.example.org` for a
    /// realm, `*` for any. A request it relays for another node counts as its own
    /// ([`DiameterNodeEvent::Request`](super::DiameterNodeEvent::Request)).
    pub origins: Vec<String>,
}

/// A route of the realm routing table (RFC 6733 §2.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealmRoute {
    /// The realm (letter case ignored); `*` for any.
    pub realm: String,
    /// The application; `None` for any.
    pub application: Option<u32>,
    /// Indexes into [`DiameterNodeConfig::peers`]. The first usable peer gets the request.
    pub peers: Vec<usize>,
}

/// The configuration of a node. Zero durations have no special meaning.
#[derive(Clone, PartialEq, Debug)]
pub struct DiameterNodeConfig {
    /// The node's identity and applications.
    pub local: NodeCapabilities,
    /// The realms served besides our own; `*` serves any. Requests for other realms are answered with 3003.
    pub realms: Vec<String>,
    /// The agents that a request may have passed, by its Route-Record AVPs (RFC 6733 §2.9). DiameterIdentities (letter
    /// case ignored), `*.example.org` for a realm, `*` for any. A request by other agents is answered with 5003.
    pub agents: Vec<String>,
    /// The configured peers.
    pub peers: Vec<PeerConfig>,
    /// True if peers outside the configuration may connect; otherwise they get 3010. Over TLS their certificate must
    /// contain their DiameterIdentity.
    pub accept_unknown: bool,
    /// The choice of streams on accepted associations. [`StreamPolicy::BySession`] answers on the request's stream, and
    /// so mirrors a peer with one stream or many. A peer that sends unordered should get [`StreamPolicy::Unordered`].
    pub accept_policy: StreamPolicy,
    /// The maximum number of known peers, configured ones included.
    pub max_peers: usize,
    /// The routes; the first match applies. If empty, all configured peers in their order serve any realm.
    pub routes: Vec<RealmRoute>,
    /// Tw of RFC 3539, which requires 6 s or more. `None` disables the watchdog.
    pub watchdog: Option<Duration>,
    /// The jitter of Tw in either direction.
    pub watchdog_jitter: Duration,
    /// Tc: the time between attempts to connect.
    pub reconnect: Duration,
    /// The maximum duration of a connection setup, a capabilities exchange or a disconnection.
    pub establish_timeout: Duration,
    /// The maximum time to an answer, including the wait for a connection. `None` waits without limit.
    pub request_timeout: Option<Duration>,
    /// The maximum number of requests that wait for a connection or an answer.
    pub max_pending: usize,
    /// The maximum number of unanswered requests at the service. Further ones are answered with 3004.
    pub max_inbound: usize,
    /// The longest accepted message, bytes.
    pub max_message: usize,
    /// True if unanswered requests of a lost connection wait for the same peer when no other is available. Otherwise
    /// they fail.
    pub resend_to_same_peer: bool,
    /// The maximum number of requests kept with their answers for retransmissions with the T flag; 0 disables it. On
    /// average each may take 1 KiB.
    pub duplicates: usize,
}

impl DiameterNodeConfig {
    /// Returns the RFCs' defaults for this identity, realm and applications. Tw is 30 s ± 2 s, Tc 30 s, the request
    /// timeout 30 s. There are no peers, and unknown peers may not connect.
    pub fn new(host: &str, realm: &str, applications: &[DiameterApplication]) -> Self {
        Self {
            local: NodeCapabilities {
                host: host.to_string(),
                realm: realm.to_string(),
                addresses: Vec::new(),
                vendor: 0,
                product: "Usher".to_string(),
                firmware: None,
                origin_state: None,
                applications: applications.to_vec(),
            },
            realms: Vec::new(),
            agents: ["*".to_string()].into(),
            peers: Vec::new(),
            accept_unknown: false,
            accept_policy: StreamPolicy::BySession,
            max_peers: 100_000,
            routes: Vec::new(),
            watchdog: Some(Duration::from_secs(30)),
            watchdog_jitter: Duration::from_secs(2),
            reconnect: Duration::from_secs(30),
            establish_timeout: Duration::from_secs(10),
            request_timeout: Some(Duration::from_secs(30)),
            max_pending: 65_536,
            max_inbound: 65_536,
            max_message: 65_536,
            resend_to_same_peer: true,
            duplicates: 4_096,
        }
    }
    /// Adds a peer to connect to by a byte stream.
    #[must_use]
    pub fn connect_to(self, host: &str, address: SocketAddr) -> Self {
        self.with_outbound_peer(host, address, PeerTransportConfig::Stream)
    }
    /// Adds a peer to connect to.
    #[must_use]
    pub fn with_outbound_peer(
        mut self,
        host: &str,
        address: SocketAddr,
        transport: PeerTransportConfig,
    ) -> Self {
        let authentication = PeerAuthentication::default();
        self.peers.push(PeerConfig {
            host: host.to_string(),
            address: Some(address),
            transport,
            authentication,
            origins: Vec::new(),
        });
        self
    }
    /// Adds a peer that connects to the node.
    #[must_use]
    pub fn accept_from(mut self, host: &str) -> Self {
        let (transport, authentication) = (PeerTransportConfig::Stream, PeerAuthentication::default());
        let origins = Vec::new();
        self.peers.push(PeerConfig {
            host: host.to_string(),
            address: None,
            transport,
            authentication,
            origins,
        });
        self
    }
}
