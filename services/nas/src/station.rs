//! The station (supplicant, IEEE 802.1X; peer, RFC 3748, RFC 4137 §4): asks to be let in over
//! EAPOL, or over PKMv2 as a subscriber station of 802.16. What is said of EAPOL-Start holds for PKMv2's EAP-Start.

mod machine;

pub use machine::AccessStation;

use crate::frame::{AccessMedium, PAE_GROUP};
use crate::station_id::MacAddress;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, PortId};
use usher_crypto::SecretValue;
use usher_eap::method::PeerOffer;
use usher_eap::method::md5::Md5Password;
use usher_pkm::keying;

/// What a station is made of.
#[derive(Clone, Debug)]
pub struct StationConfig {
    /// What carries EAP.
    pub access: AccessMedium,
    /// The port it speaks through.
    pub port: PortId,
    /// Its own address.
    pub mac: MacAddress,
    /// Where its frames go: the PAE group address on wires, the access point's own on radio.
    /// A base station hears the group address too.
    pub authenticator: MacAddress,
    /// How long it waits for an answer to EAPOL-Start before it says it again (startPeriod).
    pub start_period: Duration,
    /// How often it says EAPOL-Start before it gives up (maxStart).
    pub max_start: u32,
    /// How long it waits for the next packet once a conversation has begun.
    pub auth_timeout: Duration,
    /// With [`AccessMedium::Wimax`], the exchange of traffic keys that follows EAP; `None`: there is none, and EAP's success is
    /// the end.
    pub keying: Option<keying::KeyingConfig>,
}

impl StationConfig {
    /// A station on a wire: EAPOL-Start every 30 s, three times; 60 s of patience with an authenticator
    /// that fell silent.
    #[must_use]
    pub const fn new(mac: MacAddress) -> Self {
        Self {
            access: AccessMedium::Ethernet,
            port: PortId(0),
            mac,
            authenticator: PAE_GROUP,
            start_period: Duration::from_secs(30),
            max_start: 3,
            auth_timeout: Duration::from_secs(60),
            keying: None,
        }
    }
}

/// What a station proves itself with: the methods it can do, the preferred one first. Clones share one
/// copy.
#[derive(Clone, Debug)]
pub struct EapCredentials(pub Arc<[Box<dyn PeerOffer>]>);

impl EapCredentials {
    /// A password, by EAP-MD5.
    #[must_use]
    pub fn from_password(password: &[u8]) -> Self {
        Self::from_method(Md5Password::new(password))
    }
    /// One method.
    #[must_use]
    pub fn from_method(offer: impl PeerOffer + 'static) -> Self {
        Self(Arc::new([Box::new(offer)]))
    }
}

/// What a station is asked.
#[derive(Clone, Debug)]
pub enum StationCommand {
    /// Ask to be let in; an attempt that is under way is forgotten.
    Authenticate {
        /// The name it gives.
        identity: Vec<u8>,
        /// Its proof.
        credentials: EapCredentials,
    },
    /// Say EAPOL-Logoff, for which PKM has no word, and forget an attempt that is under way.
    LogOff,
}

/// What a station has to say: one of all but [`StationEvent::Admitted`] ends each attempt.
#[derive(Clone, PartialEq, Eq)]
pub enum StationEvent {
    /// Let in by EAP; the exchange of traffic keys begins, and its end is the attempt's.
    Admitted,
    /// Let in, and with [`StationConfig::keying`] traffic keys are there.
    Success {
        /// The master session key (RFC 3748 §7.10), where the method gives one.
        msk: Option<SecretValue<[u8; 64]>>,
    },
    /// Turned away.
    Failure,
    /// Nobody answered, or the authenticator fell silent.
    Timeout,
    /// Let in by EAP, but no traffic keys came about: the EAP method gives no key from which they could follow, or the base
    /// station fell silent, proved no such key or refused.
    Unkeyed,
}

impl core::fmt::Debug for StationEvent {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Success { msk } => f.debug_struct("Success").field("key", &msk.is_some()).finish(),
            Self::Failure => f.write_str("Failure"),
            Self::Timeout => f.write_str("Timeout"),
            Self::Admitted => f.write_str("Admitted"),
            Self::Unkeyed => f.write_str("Unkeyed"),
        }
    }
}

usher_core::counters! {
    /// What a station did and what it dropped.
    pub struct StationCounters {
        /// Attempts begun.
        attempts,
        /// Let in.
        successes,
        /// Turned away.
        failures,
        /// Given up: silence.
        timeouts,
        /// Let in, but without traffic keys.
        unkeyed,
        /// EAPOL-Start sent again.
        starts_repeated,
        /// Dropped: frames too short for Ethernet or EAPOL, or for what they say; malformed PKM messages.
        malformed,
        /// Dropped: frames of another EtherType, not for this station, or from a station's side.
        not_for_us,
        /// Dropped: EAPOL frames of a type that a station does not hear.
        unknown_eapol,
        /// Dropped: PKM messages that carry no EAP and are of no exchange of keys that is under way.
        unknown_pkm,
        /// Dropped: PKM messages that answer another than the latest request.
        stale_pkm,
        /// Dropped: EAP packets that are malformed, or out of place.
        bad_eap,
        /// Dropped: input other than a frame or a timeout.
        not_a_frame,
    }
}
