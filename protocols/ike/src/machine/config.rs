//! The configuration of an endpoint and of its connections.

use crate::payload::{Identification, Proposal, TrafficSelector};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::signature::KeyKind;
use usher_eap::method::PeerMethodFactory;
pub use usher_esp::plane::IpsecMode;

/// The retransmission of requests (RFC 7296 §2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionConfig {
    /// The first timeout.
    pub first: Duration,
    /// Each further timeout in tenths of the previous one.
    pub tenths: u32,
    /// Number of retransmissions before the IKE_SA ends.
    pub count: u32,
}

impl Default for RetransmissionConfig {
    /// 4 s, a factor of 1.8 and five retransmissions: gives up after 165 s.
    fn default() -> Self {
        Self { first: Duration::from_secs(4), tenths: 18, count: 5 }
    }
}

impl RetransmissionConfig {
    /// Returns the timeout after this number of retransmissions.
    #[must_use]
    pub fn retransmission_timeout_after(&self, retransmissions: u32) -> Duration {
        (0..retransmissions.min(32)).fold(self.first, |wait, _| wait * u64::from(self.tenths) / 10)
    }
}

/// One of several endpoints that serve the same addresses. Each message goes to one shard by an SPI of this side: the
/// remainder of the SPI's first octet by the number of shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardIndex {
    /// Its number, from 0.
    pub number: u8,
    /// Number of shards.
    pub shard_count: u8,
}

impl Default for ShardIndex {
    /// The only shard.
    fn default() -> Self {
        Self { number: 0, shard_count: 1 }
    }
}

impl ShardIndex {
    /// Returns the first octet of an SPI of this shard, from a random one.
    #[must_use]
    pub const fn first_spi_octet(self, chance: u8) -> u8 {
        let of = if self.shard_count == 0 { 1 } else { self.shard_count };
        let octet = (chance - chance % of) as u16 + self.number as u16;
        // If the result exceeds 255, one step is subtracted so that it fits an octet and keeps its remainder.
        if octet > u8::MAX as u16 { (octet - of as u16) as u8 } else { octet as u8 }
    }
    /// True if this shard owns SPIs with this first octet.
    #[must_use]
    pub const fn owns_spi_octet(self, first: u8) -> bool {
        self.shard_count <= 1 || first % self.shard_count == self.number
    }
}

/// The configuration and the limits of an [`IkeEndpoint`](super::IkeEndpoint).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeEndpointConfig {
    /// The retransmission of requests.
    pub retransmission: RetransmissionConfig,
    /// Most half-open IKE_SAs. At the limit, a new one may evict one of the network that has most of them, if its own
    /// network has fewer. The oldest whose initiator has not continued for two seconds goes first. Then follows one
    /// that is ten seconds old and does not wait for this side. Otherwise the new one is dropped.
    pub half_open: usize,
    /// Number of half-open IKE_SAs from which on every initiator has to return a cookie (RFC 7296 §2.6).
    pub cookies_from: usize,
    /// Number of half-open IKE_SAs of one network from which on its initiators have to return a cookie. A network is
    /// a /24 of IPv4 or a /48 of IPv6.
    pub cookies_from_network: usize,
    /// Most half-open IKE_SAs of one host (an IPv4 address or an IPv6 /64), once there are `cookies_from` in all. A
    /// site (an IPv6 /56) may have eight times as many, and a network an eighth of `half_open`.
    pub half_open_per_host: usize,
    /// The time in which an initiator has to authenticate.
    pub proof_timeout: Duration,
    /// Failed proofs a minute by the shared key of a connection. Beyond it, a network with a failure in the last ten
    /// minutes is locked out. An identity is exempt at a host where its last proof was right, within a week. 0: no
    /// limit.
    pub failed_proofs_per_minute: u32,
    /// Requests a minute from the peer of an established IKE_SA, also as a burst. Further requests are dropped; their
    /// retransmissions may succeed. 0: no limit.
    pub requests_per_minute: u32,
    /// Requests a minute that create or rekey SAs. Further ones get TEMPORARY_FAILURE (RFC 7296 §2.25, RFC 8019 §5).
    /// 0: no limit.
    pub creates_per_minute: u32,
    /// The shortest lifetime of a cookie.
    pub cookie_lifetime: Duration,
    /// Most IKE_SAs.
    pub sas: usize,
    /// Most ended IKE_SAs that still answer retransmissions of their last request, in addition to `sas`.
    pub lingering: usize,
    /// Octets of an IP packet above which a message is sent in fragments, if the peer supports them (RFC 7383).
    pub packet: usize,
    /// Most octets of a message that is reassembled from fragments.
    pub message: usize,
    /// Most octets of stored fragments in all half-open IKE_SAs, with an eighth for one network; and as many in all
    /// other IKE_SAs. Beyond it, the oldest are dropped.
    pub fragments: usize,
    /// The interval of NAT keepalives without other traffic (RFC 3948 §4).
    pub keepalive: Duration,
    /// The lifetime of resumption tickets (RFC 5723) that a responder issues. `None`: no tickets are issued or
    /// requested.
    pub tickets: Option<Duration>,
    /// Encapsulates ESP in UDP even without a NAT: this side claims to be behind one.
    pub encapsulate: bool,
    /// The shard that this endpoint is.
    pub shard: ShardIndex,
    /// Requests an OCSP response from peers that authenticate by certificate (RFC 4806).
    pub request_ocsp: bool,
    /// Gives the keys of IKE_SAs as [`IkeEvent::Keys`](super::IkeEvent::Keys), for debugging.
    pub export_keys: bool,
}

impl Default for IkeEndpointConfig {
    /// The defaults:
    ///
    /// - 10,000 half-open IKE_SAs, with 30 s to authenticate.
    /// - Cookies from 64 of a network on, and from 1000 on for all, then 16 of a host. A cookie lives 60 s.
    /// - 60 failed proofs a minute by a shared key.
    /// - 6000 requests a minute of an IKE_SA, and 240 for SAs.
    /// - 100,000 IKE_SAs, and 8192 that have ended.
    /// - Packets of 1280 octets, messages of 32 KiB, 8 MiB of fragments.
    /// - Keepalives after 20 s, no tickets.
    fn default() -> Self {
        Self {
            retransmission: RetransmissionConfig::default(),
            half_open: 10_000,
            cookies_from: 1000,
            cookies_from_network: 64,
            half_open_per_host: 16,
            proof_timeout: Duration::from_secs(30),
            failed_proofs_per_minute: 60,
            requests_per_minute: 6000,
            creates_per_minute: 240,
            cookie_lifetime: Duration::from_secs(60),
            sas: 100_000,
            lingering: 8192,
            packet: 1280,
            message: 1 << 15,
            fragments: 1 << 23,
            keepalive: Duration::from_secs(20),
            tickets: None,
            encapsulate: false,
            shard: ShardIndex::default(),
            request_ocsp: false,
            export_keys: false,
        }
    }
}

/// The authentication of this side.
#[derive(Clone, Debug)]
pub enum LocalAuth {
    /// A pre-shared key.
    Psk(SecretValue),
    /// A certificate. A worker signs with its key ([`IkeJob::Sign`](super::IkeJob::Sign)).
    Certificate {
        /// The chain, DER, the end-entity certificate first.
        chain: Vec<Vec<u8>>,
        /// The kind of its key.
        kind: KeyKind,
        /// An RSA key signs by RSASSA-PSS instead of RSASSA-PKCS1-v1_5 (RFC 8247 §3.2).
        pss: bool,
    },
    /// EAP: this side is the initiator.
    Eap {
        /// The response to an Identity request.
        identity: Vec<u8>,
        /// The methods, the preferred first.
        methods: Arc<[alloc::boxed::Box<dyn PeerMethodFactory>]>,
    },
    /// The EAP method alone, if the initiator supports it (RFC 5998): this side is the responder.
    EapOnly,
}

/// The authentication of the peer.
#[derive(Clone, Debug)]
pub enum RemoteAuth {
    /// A pre-shared key.
    Psk(SecretValue),
    /// A certificate. A worker verifies it ([`IkeJob::Verify`](super::IkeJob::Verify)).
    Certificate {
        /// SHA-1 hashes of the public keys of trusted authorities, for CERTREQ. May be empty.
        authorities: Vec<[u8; 20]>,
    },
    /// EAP: the peer is the initiator. An AAA server or this host answers ([`IkeEvent::Eap`](super::IkeEvent::Eap)).
    Eap {
        /// Sends an EAP Identity request. Otherwise the IKE identity is used (RFC 7296 §3.16), unless it is an
        /// address or a subject name.
        request_identity: bool,
    },
    /// The EAP method alone (RFC 5998): the peer is the responder. This side offers it and gets no other proof.
    EapOnly,
}

/// Whether an IKE_SA begins with a CHILD_SA (RFC 6023).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChildlessPolicy {
    /// It always begins with a CHILD_SA.
    Never,
    /// The initiator decides. As an initiator, it begins with a CHILD_SA.
    #[default]
    Allow,
    /// It begins without a CHILD_SA. CREATE_CHILD_SA makes them later.
    Force,
}

/// The configuration of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSaConfig {
    /// Its name, for events.
    pub name: String,
    /// The proposals, the preferred first.
    pub proposals: Vec<Proposal>,
    /// The local traffic selectors. `None`: the address assigned to this side.
    pub local: Option<Vec<TrafficSelector>>,
    /// The peer's traffic selectors. `None`: the address assigned to the peer.
    pub remote: Option<Vec<TrafficSelector>>,
    /// Tunnel or transport mode.
    pub mode: IpsecMode,
    /// The time until this side rekeys it; `None` for never.
    pub rekey_after: Option<Duration>,
}

/// The configuration of a peer, or of a group of peers.
#[derive(Clone, Debug)]
pub struct IkeConnectionConfig {
    /// Its name, for events.
    pub name: String,
    /// The local identity.
    pub local: Identification,
    /// The required identity of the peer; `None` accepts any authenticated identity.
    pub remote: Option<Identification>,
    /// The addresses from which the peer may initiate; `None` for any. A later move to another address is allowed.
    pub from: Option<Vec<TrafficSelector>>,
    /// The authentication of this side.
    pub local_auth: LocalAuth,
    /// The authentication of the peer.
    pub remote_auth: RemoteAuth,
    /// The proposals of the IKE_SA, the preferred first.
    pub proposals: Vec<Proposal>,
    /// The CHILD_SAs. An initiator begins with the first.
    pub children: Vec<ChildSaConfig>,
    /// Whether the IKE_SA begins with a CHILD_SA.
    pub childless: ChildlessPolicy,
    /// The initiator may move its SAs to other addresses (MOBIKE, RFC 4555). An initiator then always uses port 4500.
    pub mobike: bool,
    /// Messages may be sent in fragments (RFC 7383).
    pub fragmentation: bool,
    /// As an initiator, requests an address. As a responder, assigns one
    /// ([`IkeEvent::AddressRequested`](super::IkeEvent::AddressRequested)).
    pub address: bool,
    /// The time until this side rekeys the IKE_SA; `None` for never.
    pub rekey_after: Option<Duration>,
    /// The silence after which dead peer detection probes the peer; `None` for never.
    pub liveness: Option<Duration>,
    /// A new IKE_SA ends others of the same two identities.
    pub unique: bool,
}

impl IkeConnectionConfig {
    /// True if a peer at this address may initiate.
    pub(super) fn is_for(&self, place: IpAddr) -> bool {
        let place = place.to_canonical();
        self.from.as_ref().is_none_or(|from| from.iter().any(|network| network.matches(0, place, None)))
    }
    /// Creates a connection with a pre-shared key for both sides. CHILD_SAs are optional. Rekeying, address
    /// assignment, dead peer detection, MOBIKE and fragmentation are off. Change its fields for more.
    #[must_use]
    pub fn shared_key(
        name: &str,
        local: Identification,
        key: &SecretValue,
        proposals: Vec<Proposal>,
    ) -> Self {
        Self {
            name: name.into(),
            local,
            remote: None,
            from: None,
            local_auth: LocalAuth::Psk(key.clone()),
            remote_auth: RemoteAuth::Psk(key.clone()),
            proposals,
            children: Vec::new(),
            childless: ChildlessPolicy::Allow,
            mobike: false,
            fragmentation: false,
            address: false,
            rekey_after: None,
            liveness: None,
            unique: false,
        }
    }
}
