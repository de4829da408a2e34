//! The authenticator (IEEE 802.1X or 802.16, RFC 3748, RFC 4137 §7): EAP between stations and an AAA server.
//!
//! ```text
//! station ◀─EAPOL or PKM frames─▶ Authenticator ◀─RADIUS or Diameter─▶ AAA server
//! station ◀─events, commands─▶
//! ```
//! A session begins with an EAPOL-Start or PKMv2's EAP-Start, or with [`AuthenticatorCommand::StartSession`], and ends with exactly one of
//! [`AuthenticatorEvent::Authenticated`], [`AuthenticatorEvent::Rejected`] and [`AuthenticatorEvent::Failed`].

mod admitted_stations;
mod keyings;
mod lifetime;
mod machine;
mod ports;
mod session;

pub use machine::NasAuthenticator;
pub use usher_eap::authenticator::EapRetransmissionConfig;

use crate::frame::AccessMedium;
use crate::record::StationAccountingRecord;
use crate::station_id::{MacAddress, StationId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_access::{AaaConfig, AccessReply, NasIdentity};
use usher_core::Duration;
use usher_crypto::SecretValue;
use usher_diameter::node::PeerId;
use usher_pkm::keying;

/// Why an authenticator's configuration is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The AAA client's configuration is invalid.
    #[error(transparent)]
    Aaa(#[from] usher_access::ConfigError),
    /// The limit of sessions is zero.
    #[error("the limit on sessions is 0; give at least 1")]
    NoSessions,
}

/// The configuration of an authenticator.
#[derive(Clone, Debug)]
pub struct AuthenticatorConfig {
    /// Its identity in requests to the AAA server.
    pub nas: NasIdentity,
    /// Its AAA servers and the protocol.
    pub aaa: AaaConfig,
    /// The transport of EAP on its ports.
    pub access: AccessMedium,
    /// With [`AccessMedium::Wimax`], the key exchange with each admitted station; `None`: no key exchange.
    pub keying: Option<keying::KeyingConfig>,
    /// Its address on every port.
    pub mac: MacAddress,
    /// Time without an answer after which a station's session fails.
    pub station_timeout: Duration,
    /// Retransmission of requests to a station; `None`: never, for lossless links (RFC 3748 §4.3).
    pub retransmission: Option<EapRetransmissionConfig>,
    /// True if the authenticator itself sends EAP-Failure to a station when the AAA server does not answer, as in
    /// IEEE 802.1X-2001. RFC 3579 §2.1 forbids it: "The NAS MUST NOT 'manufacture' a Success or Failure packet as the
    /// result of a timeout". If false, the station receives nothing.
    pub canned_failure: bool,
    /// Time for which a rejected station is ignored (quietPeriod); zero: none. It does not apply to
    /// [`StationId::Host`].
    pub quiet_period: Duration,
    /// Maximum sessions in progress; further ones are refused.
    pub max_sessions: usize,
    /// Maximum stations remembered after their session. They are the admitted or rejected stations reached by frames,
    /// and the host's admitted stations that an AAA server may address later. Beyond the limit an AAA server cannot
    /// address a station, and a Diameter server learns that it keeps no session.
    pub max_stations: usize,
}

impl AuthenticatorConfig {
    /// The defaults of a switch on reliable wires: 30 s for a station's answer (suppTimeout), no retransmission, 60 s
    /// of quiet period, 4096 sessions in progress, 65,536 remembered stations.
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

/// A command of the authenticator's owner.
#[derive(Clone, Debug)]
pub enum AuthenticatorCommand {
    /// Starts a session: a station's link came up, or another protocol authenticates it. It replaces the station's
    /// session in progress without an event.
    StartSession {
        /// The station.
        station: StationId,
        /// The station's identity, if the other protocol knows it already (RFC 7296 §3.16). The AAA server then gets
        /// the first request at once. `None`: EAP requests it.
        identity: Option<Vec<u8>>,
    },
    /// An EAP packet of a [`StationId::Host`] station.
    EapFromStation {
        /// The station.
        station: StationId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// Removes a station and its state: its link went down, or the owner ends its access. For an admitted
    /// [`StationId::Host`] station, the host sends this when the session ends if AAA servers may address sessions.
    RemoveStation {
        /// The station.
        station: StationId,
    },
    /// Sends an accounting record to the AAA server. An accepted record ends with [`AuthenticatorEvent::Accounted`].
    /// The host decides on accounting sessions and on the times of their records.
    Account {
        /// Returned with the result.
        token: u64,
        /// The record.
        record: StationAccountingRecord,
    },
    /// Opens or closes the connection to a Diameter peer, numbered as in [`AuthenticatorEvent::DiameterPeer`].
    Diameter(usher_diameter::node::DiameterNodeCommand),
}

/// Why a session ended without a decision of the AAA server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailReason {
    /// The station did not answer.
    StationTimeout,
    /// The AAA server did not answer.
    AaaTimeout,
    /// No request to the AAA server was possible: no connection, no free identifier, or an invalid name.
    AaaUnavailable,
    /// The AAA server's reply was invalid.
    AaaProtocol,
}

/// Why the access of an admitted station ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SessionEndCause {
    /// It sent EAPOL-Logoff.
    LoggedOff,
    /// Its Session-Timeout expired.
    SessionTimeout,
    /// The AAA server ended it (RFC 5176, RFC 6733 §8.5), or requested a reauthentication that is not possible (RFC
    /// 6733 §8.1).
    Disconnected,
    /// The key exchange failed: the AAA server sent no usable key, or the station did not answer or did not prove
    /// that key.
    Unkeyed,
}

/// A successful authentication.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthenticationResult {
    /// The station.
    pub station: StationId,
    /// The station's identity.
    pub name: Vec<u8>,
    /// The master session key (RFC 3748 §7.10), if the method derives one.
    pub msk: Option<SecretValue<[u8; 64]>>,
    /// The AAA server's reply.
    pub reply: AccessReply,
    /// Number of exchanges with the AAA server.
    pub rounds: u16,
}

impl core::fmt::Debug for AuthenticationResult {
    /// Omits the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Authentication")
            .field("station", &self.station)
            .field("key", &self.msk.is_some())
            .field("reply", &self.reply)
            .field("rounds", &self.rounds)
            .finish_non_exhaustive()
    }
}

/// An event of an authenticator.
#[derive(Clone, PartialEq, Eq)]
pub enum AuthenticatorEvent {
    /// An EAP packet for a [`StationId::Host`] station.
    EapToStation {
        /// The station.
        station: StationId,
        /// The packet.
        packet: Vec<u8>,
    },
    /// A station was admitted, or authenticated again. The EAP-Success follows.
    Authenticated(Box<AuthenticationResult>),
    /// The traffic keys were sent to an admitted station.
    Keyed {
        /// The station.
        station: StationId,
    },
    /// The result of an accounting record.
    Accounted {
        /// The token of [`AuthenticatorCommand::Account`].
        token: u64,
        /// True if the AAA server acknowledged it. False after a timeout or a negative reply.
        is_acknowledged: bool,
    },
    /// The AAA server has rejected a station. The EAP-Failure follows. An admitted station loses its access.
    Rejected {
        /// The station.
        station: StationId,
        /// The station's identity.
        name: Vec<u8>,
    },
    /// The authorization of an admitted station has changed (RFC 5176): the end of its session, or the time of its
    /// reauthentication. For a [`StationId::Host`] station such a request is refused.
    Changed {
        /// The station.
        station: StationId,
    },
    /// A session failed without a decision. The final packet to the station, if any, follows. An admitted station
    /// loses its access.
    Failed {
        /// The station.
        station: StationId,
        /// The reason.
        reason: FailReason,
    },
    /// The access of an admitted station has ended.
    Ended {
        /// The station.
        station: StationId,
        /// The cause.
        cause: SessionEndCause,
    },
    /// A Diameter peer connection has opened or closed.
    DiameterPeer {
        /// The index of the configured peer. With several connections, the number restarts
        /// for each.
        peer: PeerId,
        /// True if it is open.
        up: bool,
    },
}

impl core::fmt::Debug for AuthenticatorEvent {
    /// Omits the key.
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
    /// Counters of an authenticator, beside those of its AAA client.
    pub struct AuthenticatorCounters {
        /// Sessions begun.
        sessions,
        /// Stations admitted.
        authenticated,
        /// Stations that received traffic keys.
        keyed,
        /// Stations admitted without traffic keys.
        unkeyed,
        /// Reauthentications of admitted stations, after their time or on the AAA server's request.
        reauthentications,
        /// Stations rejected by the AAA server.
        rejected,
        /// Stations disconnected on the AAA server's request.
        disconnected,
        /// Sessions changed on the AAA server's request.
        changed,
        /// Accounting records sent.
        records,
        /// Accounting records that the AAA server acknowledged.
        kept,
        /// Sessions failed: the station did not answer.
        station_timeouts,
        /// Sessions failed: the AAA server did not answer.
        aaa_timeouts,
        /// Sessions failed: the request to the AAA server could not be sent.
        aaa_unavailable,
        /// Sessions failed: the AAA server's answer was invalid.
        aaa_protocol,
        /// Sessions restarted before their end.
        restarted,
        /// EAP requests sent to a station again.
        retransmissions,
        /// Refused: too many sessions in progress.
        full,
        /// Refused: stations rejected a moment ago.
        quiet,
        /// Dropped: truncated Ethernet or EAPOL frames, and malformed PKM messages.
        malformed,
        /// Dropped: frames of another EtherType, not for us, or from a base station's side.
        not_for_us,
        /// Dropped: EAPOL frames of a type that an authenticator does not process.
        unknown_eapol,
        /// Dropped: PKM messages without EAP that belong to no key exchange in progress.
        unknown_pkm,
        /// Dropped: EAP packets of a station without a session.
        no_session,
        /// Dropped: EAP packets that are malformed or answer no request.
        bad_eap,
        /// Stations forgotten after their session: too many are remembered.
        not_remembered,
    }
}
