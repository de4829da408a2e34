//! The authenticator (IEEE 802.1X or 802.16, RFC 3748, RFC 4137 §7): EAP between stations and an AAA server.
//!
//! ```text
//! station ◀─EAPOL or PKM frames─▶ Authenticator ◀─RADIUS or Diameter─▶ AAA server
//! station ◀─events, commands─▶
//! ```
//! A session begins with an EAPOL-Start or PKMv2's EAP-Start, or with [`AuthenticatorCommand::StartSession`], and ends with exactly one of
//! [`AuthenticatorEvent::Authenticated`], [`AuthenticatorEvent::Rejected`] and [`AuthenticatorEvent::Failed`].

mod admitted;
mod keyings;
mod machine;
mod ports;
mod session;

pub use machine::NasAuthenticator;
pub use usher_eap::authenticator::EapRetransmission;

use crate::frame::AccessMedium;
use crate::record::StationRecord;
use crate::station_id::{MacAddress, StationId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_access::{AaaConfig, AccessReply, NasIdentity};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_diameter::node::PeerId;
use usher_pkm::keying;

/// An authenticator was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// How it asks an AAA server.
    #[error(transparent)]
    Aaa(#[from] usher_access::ConfigError),
    /// Limits that admit nobody.
    #[error("the limit on sessions is zero")]
    NoSessions,
}

/// What an authenticator is made of.
#[derive(Clone, Debug)]
pub struct AuthenticatorConfig {
    /// How it introduces itself to the AAA server.
    pub nas: NasIdentity,
    /// Whom it asks, and how.
    pub aaa: AaaConfig,
    /// What carries EAP on its ports.
    pub access: AccessMedium,
    /// With [`AccessMedium::Wimax`], the exchange of traffic keys with each station that is let in; `None`: there is none.
    pub keying: Option<keying::KeyingConfig>,
    /// Its address on every port.
    pub mac: MacAddress,
    /// How long a station may be silent amid a session.
    pub station_timeout: Duration,
    /// When requests to a station are sent again; `None`: never, as on links that lose nothing
    /// (RFC 3748 §4.3).
    pub retransmission: Option<EapRetransmission>,
    /// Whether a station is sent an EAP-Failure of the authenticator's own making when the AAA server is silent. "The NAS MUST
    /// NOT 'manufacture' a Success or Failure packet as the result of a timeout" (RFC 3579 §2.1): the station hears nothing
    /// more then. IEEE 802.1X-2001 had it sent.
    pub canned_failure: bool,
    /// How long a station that was turned away stays unheard (quietPeriod); zero: not at all. Does not
    /// hold for [`StationId::Host`].
    pub quiet_period: Duration,
    /// Sessions in progress; further ones are refused.
    pub max_sessions: usize,
    /// Stations reached by frames that are remembered after their session, let in or turned away; of the host's, those that
    /// were let in and of whom AAA servers may ask something. Of others they can ask nothing, and Diameter servers are told
    /// that they keep no session.
    pub max_stations: usize,
}

impl AuthenticatorConfig {
    /// A switch on reliable wires: 30 s for a station to answer (suppTimeout), no retransmission, 60 s of
    /// quiet, 4096 sessions in progress, 65,536 stations remembered.
    #[must_use]
    pub const fn new(nas: NasIdentity, aaa: AaaConfig) -> Self {
        Self {
            nas,
            aaa,
            access: AccessMedium::Ethernet,
            keying: None,
            mac: MacAddress([0x02, 0, 0, 0, 0, 1]),
            station_timeout: Duration::from_secs(30),
            retransmission: None,
            canned_failure: false,
            quiet_period: Duration::from_secs(60),
            max_sessions: 4096,
            max_stations: 65_536,
        }
    }
}

/// What an authenticator is asked.
#[derive(Clone, Debug)]
pub enum AuthenticatorCommand {
    /// A station's link came up, or another protocol wants it authenticated: begin. A session of that
    /// station that is in progress is forgotten, without an event.
    StartSession {
        /// Who.
        station: StationId,
        /// Its identity, where the other protocol knows it already (RFC 7296 §3.16): the AAA server is
        /// asked at once. `None`: the station is asked by EAP.
        identity: Option<Vec<u8>>,
    },
    /// An EAP packet of a [`StationId::Host`] station.
    EapFromStation {
        /// Whose.
        station: StationId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// A station's link went down, or it shall be sent away: forget everything about it. Of a [`StationId::Host`] station
    /// that was let in the host says so when its session has ended, where AAA servers may ask something of sessions.
    RemoveStation {
        /// Who.
        station: StationId,
    },
    /// To send a record of accounting to the AAA server; answered by [`AuthenticatorEvent::Accounted`] where it was taken. Sessions and
    /// when they are told of are the host's affair.
    Account {
        /// Comes back with the answer.
        token: u64,
        /// The record.
        record: StationRecord,
    },
    /// To open or close the connection to a Diameter peer, which is numbered as in [`AuthenticatorEvent::DiameterPeer`].
    Diameter(usher_diameter::node::DiameterNodeCommand),
}

/// Why a session ended without a verdict of the AAA server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailReason {
    /// The station fell silent.
    StationTimeout,
    /// The AAA server did not answer.
    AaaTimeout,
    /// The AAA server could not be asked: no connection, no free identifier, an impossible name.
    AaaUnavailable,
    /// The AAA server's answer made no sense.
    AaaProtocol,
}

/// Why a station that was let in is in no longer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndCause {
    /// It said EAPOL-Logoff.
    LoggedOff,
    /// Its Session-Timeout passed.
    SessionTimeout,
    /// The AAA server wanted it out (RFC 5176, RFC 6733 §8.5), or authenticated again, which cannot be done (RFC 6733 §8.1).
    Disconnected,
    /// No traffic keys came about: the AAA server gave no key from which they could follow, or the station fell silent or
    /// proved no such key.
    Unkeyed,
}

/// An authentication that ended well.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthenticationResult {
    /// Who.
    pub station: StationId,
    /// The identity it gave.
    pub name: Vec<u8>,
    /// The master session key (RFC 3748 §7.10), where the method gives one.
    pub msk: Option<SecretValue<[u8; 64]>>,
    /// All that the server said.
    pub reply: AccessReply,
    /// Exchanges with the AAA server that it took.
    pub rounds: u16,
}

impl core::fmt::Debug for AuthenticationResult {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Authentication")
            .field("station", &self.station)
            .field("key", &self.msk.is_some())
            .field("reply", &self.reply)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

/// What an authenticator has to say.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthenticatorEvent {
    /// An EAP packet for a [`StationId::Host`] station.
    EapToStation {
        /// Whose.
        station: StationId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Let in, or authenticated again. The EAP-Success follows.
    Authenticated(Box<AuthenticationResult>),
    /// A station that was let in has been sent its traffic keys.
    Keyed {
        /// Who.
        station: StationId,
    },
    /// A record of accounting has its end.
    Accounted {
        /// That of [`AuthenticatorCommand::Account`].
        token: u64,
        /// The AAA server has it. Otherwise nobody answered in time, or the answer was a refusal.
        is_acknowledged: bool,
    },
    /// Turned away by the AAA server; the EAP-Failure follows. A station that was in is in no longer.
    Rejected {
        /// Who.
        station: StationId,
        /// The identity it gave.
        name: Vec<u8>,
    },
    /// What a station that is in may do has changed (RFC 5176): when its session ends, or when it is authenticated again.
    /// Not of [`StationId::Host`] stations: such a request is refused.
    Changed {
        /// Who.
        station: StationId,
    },
    /// No verdict; the last word to the station, if there is one, follows. A station that was in is in no longer.
    Failed {
        /// Who.
        station: StationId,
        /// Why.
        reason: FailReason,
    },
    /// A station that was let in is in no longer.
    Ended {
        /// Who.
        station: StationId,
        /// Why.
        cause: EndCause,
    },
    /// A Diameter peer can be asked, or no longer.
    DiameterPeer {
        /// Which: index among the configured peers, for each connection anew where there are several
        /// ([`crate::Connections`]).
        peer: PeerId,
        /// It can be asked.
        up: bool,
    },
}

impl core::fmt::Debug for AuthenticatorEvent {
    /// Without the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::EapToStation { station, packet } => f
                .debug_struct("EapToStation")
                .field("station", station)
                .field("octets", &packet.len())
                .finish(),
            Self::Authenticated(authentication) => {
                f.debug_tuple("Authenticated").field(authentication).finish()
            }
            Self::Accounted { token, is_acknowledged: kept } => {
                f.debug_struct("Accounted").field("token", token).field("kept", kept).finish()
            }
            Self::Keyed { station } => f.debug_struct("Keyed").field("station", station).finish(),
            Self::Changed { station } => f.debug_struct("Changed").field("station", station).finish(),
            Self::Rejected { station, .. } => {
                f.debug_struct("Rejected").field("station", station).finish_non_exhaustive()
            }
            Self::Failed { station, reason } => {
                f.debug_struct("Failed").field("station", station).field("reason", reason).finish()
            }
            Self::Ended { station, cause } => {
                f.debug_struct("Ended").field("station", station).field("cause", cause).finish()
            }
            Self::DiameterPeer { peer, up } => {
                f.debug_struct("DiameterPeer").field("peer", peer).field("up", up).finish()
            }
        }
    }
}

usher_core::counters! {
    /// What an authenticator did and what it dropped, beside the counters of its AAA client.
    pub struct AuthenticatorCounters {
        /// Sessions begun.
        sessions,
        /// Stations let in.
        authenticated,
        /// Stations that were sent traffic keys.
        keyed,
        /// Stations let in, but without traffic keys.
        unkeyed,
        /// Stations that were in and were authenticated again, because their time had come or the AAA server wanted it.
        reauthentications,
        /// Stations turned away by the AAA server.
        rejected,
        /// Stations sent away because the AAA server wanted it.
        disconnected,
        /// Sessions changed because the AAA server wanted it.
        changed,
        /// Records of accounting sent.
        records,
        /// Of them, those that the AAA server has.
        kept,
        /// Sessions given up: the station fell silent.
        station_timeouts,
        /// Sessions given up: the AAA server did not answer.
        aaa_timeouts,
        /// Sessions given up: the AAA server could not be asked.
        aaa_unavailable,
        /// Sessions given up: the AAA server's answer made no sense.
        aaa_protocol,
        /// Sessions begun anew before they ended.
        restarted,
        /// EAP requests sent to a station again.
        retransmissions,
        /// Refused: as many sessions in progress as there may be.
        full,
        /// Refused: stations that were turned away a moment ago.
        quiet,
        /// Dropped: frames too short for Ethernet or EAPOL, or for what they say; malformed PKM messages.
        malformed,
        /// Dropped: frames of another EtherType, not for us, or from a base station's side.
        not_for_us,
        /// Dropped: EAPOL frames of a type that an authenticator does not hear.
        unknown_eapol,
        /// Dropped: PKM messages that carry no EAP and are of no exchange of keys that is under way.
        unknown_pkm,
        /// Dropped: EAP packets of a station without a session.
        no_session,
        /// Dropped: EAP packets that are malformed or answer nothing that was asked.
        bad_eap,
        /// Stations forgotten after their session because too many would be remembered.
        not_remembered,
    }
}
