//! What an endpoint allows, and with whom it speaks how.

use crate::payload::{Identification, Proposal, TrafficSelector};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_crypto::signature::KeyKind;
use usher_eap::method::PeerOffer;
pub use usher_esp::plane::IpsecMode;

/// When a request is sent again (RFC 7296 §2.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetransmissionConfig {
    /// The first wait.
    pub first: Duration,
    /// Each further wait is so many tenths of the one before.
    pub tenths: u32,
    /// How often a request is sent again before the IKE_SA is given up.
    pub count: u32,
}

impl Default for RetransmissionConfig {
    /// After 4 s, and each time 1.8 times as long, five times: given up after 165 s.
    fn default() -> Self {
        Self { first: Duration::from_secs(4), tenths: 18, count: 5 }
    }
}

impl RetransmissionConfig {
    /// The wait after so many retransmissions.
    #[must_use]
    pub fn timeout_after(&self, retransmissions: u32) -> Duration {
        (0..retransmissions.min(32)).fold(self.first, |wait, _| wait * u64::from(self.tenths) / 10)
    }
}

/// One of the endpoints that serve the same addresses. Whatever comes to them goes to the one whose number an SPI of its own
/// tells: the remainder of its first octet by how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardIndex {
    /// Its number, from 0.
    pub number: u8,
    /// How many there are.
    pub shard_count: u8,
}

impl Default for ShardIndex {
    /// The only one.
    fn default() -> Self {
        Self { number: 0, shard_count: 1 }
    }
}

impl ShardIndex {
    /// An SPI's first octet as this shard has it, made of one that is chance.
    #[must_use]
    pub const fn first_spi_octet(self, chance: u8) -> u8 {
        let of = if self.shard_count == 0 { 1 } else { self.shard_count };
        let octet = (chance - chance % of) as u16 + self.number as u16;
        // Beyond the last whole lot there is none of each.
        if octet > u8::MAX as u16 { (octet - of as u16) as u8 } else { octet as u8 }
    }
    /// Whether an SPI that begins so is of this shard.
    #[must_use]
    pub const fn owns_spi(self, first: u8) -> bool {
        self.shard_count <= 1 || first % self.shard_count == self.number
    }
}

/// What an [`Endpoint`](super::IkeEndpoint) allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeEndpointConfig {
    /// When requests are sent again.
    pub retransmission: RetransmissionConfig,
    /// IKE_SAs at a time whose initiator has not proved who it is. One more is begun in the place of the oldest of the network that
    /// has most of them, where its own network has fewer: of one whose initiator has not gone on for two seconds, or else of one that
    /// is ten seconds old and does not wait for this side; otherwise it is not begun.
    pub half_open: usize,
    /// From so many of them on every initiator has to send back a cookie first (RFC 7296 §2.6).
    pub cookies_from: usize,
    /// From so many of them of one network on, 24 bits of an IPv4 address or 48 of an IPv6 address, initiators there have to.
    pub cookies_from_network: usize,
    /// From `cookies_from` on, so many of them from one host: an IPv4 address, or 64 bits of an IPv6 address. Of one site, 56 bits
    /// of an IPv6 address, eight times as many; of one network an eighth of `half_open`.
    pub half_open_per_network: usize,
    /// How long a responder waits for an initiator to prove who it is.
    pub proof_timeout: Duration,
    /// Proofs by the shared key of a connection that may fail a minute. Of more, none is looked at that comes from a network from which
    /// one has failed within ten minutes, unless the last one of that identity from that very host was right. 0: any number.
    pub failed_proofs_per_minute: u32,
    /// Requests of the other side of an established IKE_SA a minute, or at once. Those beyond are taken when they come again later.
    /// 0: any number.
    pub requests_per_minute: u32,
    /// Those of them that make or replace SAs: those beyond are answered with TEMPORARY_FAILURE (RFC 7296 §2.25, RFC 8019 §5). 0: any
    /// number.
    pub creates_per_minute: u32,
    /// How long a cookie holds at least.
    pub cookie_lifetime: Duration,
    /// IKE_SAs in all.
    pub sas: usize,
    /// IKE_SAs beside these that have ended and answer their last request again, for `patience`, at most.
    pub lingering: usize,
    /// Octets of an IP packet, above which a message is sent in fragments where the other side takes them (RFC 7383).
    pub packet: usize,
    /// Octets of a message that is put together from fragments, at most.
    pub message: usize,
    /// Octets that fragments of messages that are not whole take in all half-open IKE_SAs together, an eighth of that in those of one
    /// network; and as many in all others together. Of more, the oldest are dropped.
    pub fragments: usize,
    /// How long without a word a NAT keeps its mapping: then something is sent (RFC 3948 §4).
    pub keepalive: Duration,
    /// IKE_SAs that were lost are taken up again by tickets (RFC 5723), which a responder gives for so long; `None`: none are given
    /// and none asked for.
    pub tickets: Option<Duration>,
    /// Packets of ESP go within UDP whether there is a NAT or not: this side says that it is behind one.
    pub encapsulate: bool,
    /// Which of the endpoints of these addresses it is.
    pub shard: ShardIndex,
    /// Whoever is to prove itself by a certificate is asked to show a response of OCSP about it (RFC 4806).
    pub request_ocsp: bool,
    /// Keys of IKE_SAs are told ([`Event::Keys`](super::IkeEvent::Keys)), for who looks for faults.
    pub export_keys: bool,
}

impl Default for IkeEndpointConfig {
    /// 10 000 half-open IKE_SAs, cookies from 64 of a network on, from 1000 on for all and then 16 of a host, 30 s to prove
    /// oneself, 60 failed proofs a minute by a shared key, 6000 requests a minute of an IKE_SA and 240 of them for SAs, cookies for 60 s, 100 000 IKE_SAs and 8192 that have ended, packets of 1280 octets, messages of 32 KiB, 8 MiB of
    /// fragments, keepalives after 20 s, no tickets.
    fn default() -> Self {
        Self {
            retransmission: RetransmissionConfig::default(),
            half_open: 10_000,
            cookies_from: 1000,
            cookies_from_network: 64,
            half_open_per_network: 16,
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

/// How this side proves who it is.
#[derive(Clone, Debug)]
pub enum LocalAuth {
    /// By a key that the other side has too.
    Psk(SecretValue),
    /// By a certificate whose key somebody signs with ([`IkeJob::Sign`](super::IkeJob::Sign)).
    Certificate {
        /// The chain, DER, its own first.
        chain: Vec<Vec<u8>>,
        /// Of what kind the key is.
        kind: KeyKind,
        /// A key of RSA signs by RSASSA-PSS in place of RSASSA-PKCS1-v1_5 (RFC 8247 §3.2).
        pss: bool,
    },
    /// By EAP: an initiator does.
    Eap {
        /// Answered where the server asks who it is.
        identity: Vec<u8>,
        /// What it can do, the preferred method first.
        methods: Arc<[alloc::boxed::Box<dyn PeerOffer>]>,
    },
    /// A responder proves it by the EAP method alone, where the initiator agrees (RFC 5998).
    EapOnly,
}

/// How the other side has to prove who it is.
#[derive(Clone, Debug)]
pub enum RemoteAuth {
    /// By a key that this side has too.
    Psk(SecretValue),
    /// By a certificate that somebody verifies ([`IkeJob::Verify`](super::IkeJob::Verify)).
    Certificate {
        /// The SHA-1 hashes of the public keys of authorities that are trusted, for the request; may be none.
        authorities: Vec<[u8; 20]>,
    },
    /// By EAP: an initiator does, and an AAA server or somebody on this host judges
    /// ([`Event::Eap`](super::IkeEvent::Eap)).
    Eap {
        /// The initiator is asked who it is for EAP; otherwise its IKE identity stands for that (RFC 7296 §3.16), unless that is an address or a
        /// subject.
        request_identity: bool,
    },
    /// A responder proves it by the EAP method alone, which the initiator offers (RFC 5998): an initiator has nothing else to
    /// know it by.
    EapOnly,
}

/// Whether an IKE_SA needs a CHILD_SA from its beginning (RFC 6023).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ChildlessPolicy {
    /// It needs one.
    Never,
    /// The initiator decides: as an initiator, with a CHILD_SA.
    #[default]
    Allow,
    /// It is made without, and CHILD_SAs follow by CREATE_CHILD_SA.
    Force,
}

/// A kind of CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildConfig {
    /// Its name, for events.
    pub name: String,
    /// How packets may be protected, the preferred way first.
    pub proposals: Vec<Proposal>,
    /// Traffic of this side. `None`: of the address that this side was given.
    pub local: Option<Vec<TrafficSelector>>,
    /// Traffic of the other side. `None`: of the address that it was given.
    pub remote: Option<Vec<TrafficSelector>>,
    /// Its mode.
    pub mode: IpsecMode,
    /// When it is replaced by a new one; `None`: never by this side.
    pub rekey_after: Option<Duration>,
}

/// A peer, or a kind of peers.
#[derive(Clone, Debug)]
pub struct IkeConnection {
    /// Its name, for events.
    pub name: String,
    /// Who this side is.
    pub local: Identification,
    /// Who the other side must be; `None`: anybody who proves who it is.
    pub remote: Option<Identification>,
    /// Where it has to be when it begins; `None`: anywhere. An SA may be moved to elsewhere all the same.
    pub from: Option<Vec<TrafficSelector>>,
    /// How this side proves it.
    pub local_auth: LocalAuth,
    /// How the other side has to.
    pub remote_auth: RemoteAuth,
    /// How the IKE_SA may be protected, the preferred way first.
    pub proposals: Vec<Proposal>,
    /// Which CHILD_SAs there may be. An initiator begins with the first.
    pub children: Vec<ChildConfig>,
    /// Whether it goes without one.
    pub childless: ChildlessPolicy,
    /// SAs may move to other addresses of the initiator (RFC 4555). An initiator then uses port 4500, NAT or not.
    pub mobike: bool,
    /// Messages may be sent in fragments (RFC 7383).
    pub fragmentation: bool,
    /// As an initiator: asks for an address. As a responder: gives one ([`Event::AddressWanted`](super::IkeEvent::AddressRequested)).
    pub address: bool,
    /// When the IKE_SA is replaced by a new one; `None`: never by this side.
    pub rekey_after: Option<Duration>,
    /// Without a word for so long the other side is asked whether it lives; `None`: never.
    pub liveness: Option<Duration>,
    /// An IKE_SA that is new ends others of the same two identities.
    pub unique: bool,
}

impl IkeConnection {
    /// Whether it is for who begins from an address.
    pub(super) fn is_for(&self, place: IpAddr) -> bool {
        let place = place.to_canonical();
        self.from.as_ref().is_none_or(|from| from.iter().any(|network| network.matches(0, place, None)))
    }
    /// One whose sides prove by the same key who they are, for any CHILD_SA or none: nothing is replaced, asked, given or moved, and
    /// no message is cut into fragments. What else there is to be is said on top of it.
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
