//! What a node is told when it is made.

use crate::peer::capabilities::{DiameterApplication, NodeCapabilities};
use crate::stream::StreamPolicy;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::Duration;
use usher_crypto::certificate::CertificateMatch;

/// What carries the messages to a peer that we connect to (RFC 6733 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PeerTransportConfig {
    /// A byte stream: TCP, TLS.
    #[default]
    Stream,
    /// A message-oriented association: SCTP.
    Message {
        /// Outbound streams to ask for, at least one; what is negotiated bounds the choice.
        streams: u16,
        /// By which of them a message goes.
        policy: StreamPolicy,
    },
}

/// How a peer shows that it is who it says (RFC 6733 §13.1). The default: from anywhere, and where TLS carries the
/// connection, by a certificate that bears its DiameterIdentity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PeerAuthentication {
    /// Networks that it may connect from, each an address and how many leading bits of it count; none: any.
    pub networks: Vec<(IpAddr, u8)>,
    /// What its certificate may be: one of these must be shown, and so TLS carry the connection; none: where TLS
    /// carries it, one that bears its DiameterIdentity.
    pub certificates: Vec<CertificateMatch>,
    /// Whether TLS must carry the connection.
    pub tls: bool,
}

impl PeerAuthentication {
    /// Whether the peer may connect from an address.
    pub(super) fn may_connect(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|n| is_within(*n, address))
    }
    /// Whether a connection may be that of the peer of this DiameterIdentity; `remote` is where it came from, for one
    /// that the peer opened, `certificate` (DER) what its TLS was authenticated with.
    pub(super) fn admits_connection(
        &self,
        identity: &str,
        remote: Option<SocketAddr>,
        certificate: Option<&[u8]>,
    ) -> bool {
        remote.is_none_or(|remote| self.may_connect(remote.ip()))
            && match certificate {
                None => !self.tls && self.certificates.is_empty(),
                Some(certificate) if self.certificates.is_empty() => {
                    CertificateMatch::Name(identity.to_string()).matches_certificate(certificate)
                }
                Some(certificate) => self.certificates.iter().any(|c| c.matches_certificate(certificate)),
            }
    }
}

/// Whether an address is of a network; an IPv4 address within IPv6 is the IPv4 address.
fn is_within((network, bits): (IpAddr, u8), address: IpAddr) -> bool {
    let octets = |a: IpAddr| match a.to_canonical() {
        IpAddr::V4(a) => (true, u128::from(u32::from(a)) << 96),
        IpAddr::V6(a) => (false, u128::from(a)),
    };
    let (a, b) = (octets(network), octets(address));
    let apart = (a.1 ^ b.1).leading_zeros();
    a.0 == b.0 && apart >= u32::from(bits)
}

/// Whether a pattern names a DiameterIdentity (letter case ignored); one that begins with `*` names all that end in the
/// rest of it.
pub(super) fn matches_identity(pattern: &str, identity: &[u8]) -> bool {
    match pattern.strip_prefix('*') {
        Some(end) => {
            let rest = identity.len().checked_sub(end.len()).and_then(|at| identity.get(at..));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(end.as_bytes()))
        }
        None => identity.eq_ignore_ascii_case(pattern.as_bytes()),
    }
}

/// A peer that the node knows from the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Its DiameterIdentity: what it must call itself in CER and CEA (letter case ignored).
    pub host: String,
    /// Where to connect to; `None` if only it connects to us.
    pub address: Option<SocketAddr>,
    /// By what; of no meaning if only it connects to us, which may be either way.
    pub transport: PeerTransportConfig,
    /// How it shows that it is the one.
    pub authentication: PeerAuthentication,
    /// Nodes whose requests it passes on, and which it is believed about: DiameterIdentities (letter case ignored),
    /// `*.example.org` for all of a realm, `*` for any. What it passes on of others is taken too, but as its own
    /// ([`Event::Request`](super::DiameterNodeEvent::Request)).
    pub origins: Vec<String>,
}

/// A line of the realm routing table (RFC 6733 §2.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RealmRoute {
    /// The realm (letter case ignored); `*` for any.
    pub realm: String,
    /// The application; `None` for any.
    pub application: Option<u32>,
    /// Indexes into [`DiameterNodeConfig::peers`]: the first usable one is taken.
    pub peers: Vec<usize>,
}

/// A node's settings; times of zero are not special.
#[derive(Clone, PartialEq, Debug)]
pub struct DiameterNodeConfig {
    /// Who we are and what we speak.
    pub local: NodeCapabilities,
    /// Realms served besides our own; `*` serves any. Requests for others are answered with 3003.
    pub realms: Vec<String>,
    /// Agents that a request may have passed on its way here, by its Route-Record AVPs (RFC 6733 §2.9): DiameterIdentities
    /// (letter case ignored), `*.example.org` for all of a realm, `*` for any. Others are answered with 5003.
    pub agents: Vec<String>,
    /// Known peers.
    pub peers: Vec<PeerConfig>,
    /// Whether peers that are not in the list may connect (else 3010). Where TLS carries the connection, a certificate
    /// bears the DiameterIdentity of theirs too.
    pub accept_unknown: bool,
    /// By which streams of an accepted association messages go. [`StreamPolicy::BySession`] answers by the
    /// stream that a request came by, and so mirrors a peer that uses one stream or many; a peer that sends
    /// without order should be answered so by [`StreamPolicy::Unordered`].
    pub accept_policy: StreamPolicy,
    /// How many peers may be known at once, configured ones included.
    pub max_peers: usize,
    /// The first line that fits is taken; when empty, all configured peers in their order serve any realm.
    pub routes: Vec<RealmRoute>,
    /// Tw of RFC 3539, which wants 6 s or more; `None` turns the watchdog off.
    pub watchdog: Option<Duration>,
    /// Jitter of Tw, either way.
    pub watchdog_jitter: Duration,
    /// Tc: how long between attempts to connect.
    pub reconnect: Duration,
    /// How long a connection, a capabilities exchange or a disconnection may take.
    pub establish_timeout: Duration,
    /// How long a request may stay unanswered, waiting for a connection included; `None` for ever.
    pub request_timeout: Option<Duration>,
    /// Requests that wait for a connection or an answer.
    pub max_pending: usize,
    /// Requests given to the service and not yet answered; more are answered with 3004.
    pub max_inbound: usize,
    /// The longest message taken.
    pub max_message: usize,
    /// Unanswered requests of a lost connection are sent again to the same peer when it is back, if there
    /// is no other; else they fail.
    pub resend_to_same_peer: bool,
    /// Requests that are kept with their answers, for those that come again with the T flag; 0 keeps none. Each may
    /// take 1 KiB on the average.
    pub duplicates: usize,
}

impl DiameterNodeConfig {
    /// The defaults of the RFCs for a node of this identity, realm and applications: Tw 30 s ± 2 s, Tc 30 s,
    /// request timeout 30 s, known peers only, no peers yet.
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
        self.connect_over(host, address, PeerTransportConfig::Stream)
    }
    /// Adds a peer to connect to.
    #[must_use]
    pub fn connect_over(mut self, host: &str, address: SocketAddr, transport: PeerTransportConfig) -> Self {
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
    /// Adds a peer that will connect to us.
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
