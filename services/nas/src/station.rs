//! The station (supplicant, IEEE 802.1X; peer, RFC 3748, RFC 4137 §4). It authenticates over EAPOL, or over PKMv2 as
//! an 802.16 subscriber station. Statements on EAPOL-Start also hold for PKMv2's EAP-Start.

mod machine;

pub use machine::AccessStation;

use crate::frame::{AccessMedium, PAE_GROUP};
use crate::station_id::MacAddress;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::{Duration, LinkLayerPortId};
use usher_crypto::SecretValue;
use usher_eap::method::PeerMethodFactory;
use usher_eap::method::md5::EapMd5Password;
use usher_pkm::keying;

/// The configuration of a station.
#[derive(Clone, Debug)]
pub struct StationConfig {
    /// The transport of EAP.
    pub access: AccessMedium,
    /// Its port.
    pub port: LinkLayerPortId,
    /// Its own address.
    pub mac: MacAddress,
    /// The destination of its frames: the PAE group address on wires, the access point's own address on radio. A base
    /// station also accepts the group address.
    pub authenticator: MacAddress,
    /// Interval of EAPOL-Start without an answer (startPeriod).
    pub start_period: Duration,
    /// Maximum EAPOL-Starts of an attempt (maxStart).
    pub max_start: u32,
    /// How long it waits for the next packet of a conversation.
    pub auth_timeout: Duration,
    /// With [`AccessMedium::Wimax`], the key exchange after EAP; `None`: no key exchange, and the attempt ends with
    /// EAP.
    pub keying: Option<keying::KeyingConfig>,
}

impl StationConfig {
    /// The defaults of a station on a wire: three EAPOL-Starts at 30 s, and 60 s for the authenticator's next packet.
    #[must_use]
    pub const fn new(mac: MacAddress) -> Self {
        Self {
            access: AccessMedium::Ethernet,
            port: LinkLayerPortId(0),
            mac,
            authenticator: PAE_GROUP,
            start_period: Duration::from_secs(30),
            max_start: 3,
            auth_timeout: Duration::from_secs(60),
            keying: None,
        }
    }
}

/// A station's credentials: its methods in order of preference. Clones share one copy.
#[derive(Clone, Debug)]
pub struct EapCredentials(pub Arc<[Box<dyn PeerMethodFactory>]>);

impl EapCredentials {
    /// A password, for EAP-MD5.
    #[must_use]
    pub fn from_password(password: &[u8]) -> Self {
        Self::from_method(EapMd5Password::new(password))
    }
    /// One method.
    #[must_use]
    pub fn from_method(offer: impl PeerMethodFactory + 'static) -> Self {
        Self(Arc::new([Box::new(offer)]))
    }
}

/// A command of the station's owner.
#[derive(Clone, Debug)]
pub enum StationCommand {
    /// Starts an attempt and drops the pending one.
    Authenticate {
        /// The identity to send.
        identity: Vec<u8>,
        /// The credentials.
        credentials: EapCredentials,
    },
    /// Sends EAPOL-Logoff and drops the pending attempt. PKM has no logoff message.
    LogOff,
}

/// An event of a station. Exactly one event other than [`StationEvent::Admitted`] ends each attempt.
#[derive(Clone, PartialEq, Eq)]
pub enum StationEvent {
    /// EAP has succeeded. The key exchange begins and will end the attempt.
    Admitted,
    /// The station is admitted and, with [`StationConfig::keying`], has traffic keys.
    Success {
        /// The master session key (RFC 3748 §7.10), if the method derives one.
        msk: Option<SecretValue<[u8; 64]>>,
    },
    /// The station was rejected.
    Failure,
    /// The authenticator did not answer, or stopped answering.
    Timeout,
    /// EAP succeeded, but the key exchange failed. The method derives no key, or the base station did not answer, did
    /// not prove the key, or refused.
    Unkeyed,
}

impl core::fmt::Debug for StationEvent {
    /// Omits the key.
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
    /// Counters of a station.
    pub struct StationCounters {
        /// Attempts begun.
        attempts,
        /// Attempts that succeeded.
        successes,
        /// Attempts that the network rejected.
        failures,
        /// Attempts without an answer.
        timeouts,
        /// Attempts that succeeded without traffic keys.
        unkeyed,
        /// EAPOL-Start sent again.
        starts_repeated,
        /// Dropped: truncated Ethernet or EAPOL frames, and malformed PKM messages.
        malformed,
        /// Dropped: frames of another EtherType, not for this station, or from a station's side.
        not_for_us,
        /// Dropped: EAPOL frames of a type that a station does not process.
        unknown_eapol,
        /// Dropped: PKM messages without EAP that belong to no key exchange in progress.
        unknown_pkm,
        /// Dropped: PKM messages that answer an earlier request.
        stale_pkm,
        /// Dropped: EAP packets that are malformed, or out of place.
        bad_eap,
        /// Dropped: input other than a frame or a timeout.
        not_a_frame,
    }
}
