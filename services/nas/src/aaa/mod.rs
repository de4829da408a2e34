//! The AAA client inside a NAS: one way to ask, whether RADIUS or Diameter carries the question.

mod diameter;
mod nodes;
mod radius;

pub use diameter::{Connections, DiameterConfig};
pub use nodes::LISTENER as DIAMETER_LISTENER;
pub use radius::RadiusConfig;

use crate::station_id::{MacAddress, StationId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use diameter::DiameterAaa;
use radius::RadiusAaa;
use usher_core::{CommandError, Duration, Input, Instant, Machine, Outputs, SecureRng};
use usher_crypto::Key;
use usher_diameter::node::PeerId;

/// NAS-Port-Type Ethernet (RFC 2865 §5.41).
pub const PORT_TYPE_ETHERNET: u32 = 15;
/// NAS-Port-Type Wireless - IEEE 802.11 (RFC 2865 §5.41).
pub const PORT_TYPE_WIRELESS_80211: u32 = 19;
/// NAS-Port-Type Wireless - IEEE 802.16 (RFC 5580 registry value).
pub const PORT_TYPE_WIRELESS_80216: u32 = 27;
/// NAS-Port-Type Virtual (RFC 2865 §5.41): an IKEv2 gateway's, for one.
pub const PORT_TYPE_VIRTUAL: u32 = 5;

/// Service-Type of a station that gets a link (RFC 2865 §5.6, RFC 3580 §3.6).
const FRAMED: u32 = 2;
/// Acct-Terminate-Cause User Request (RFC 2866 §5.10).
const USER_REQUEST: u32 = 1;

fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// How a NAS introduces itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NasIdentity {
    /// NAS-Identifier; left out where empty. RFC 2865 §4.1 wants this or the address.
    pub identifier: String,
    /// NAS-IP-Address or NAS-IPv6-Address; left out where `None`.
    pub address: Option<IpAddr>,
    /// NAS-Port-Type.
    pub port_type: u32,
    /// Framed-MTU: the longest EAP packet that the link to the station carries, octets. The server
    /// fragments by it (RFC 3579 §2.4).
    pub framed_mtu: u32,
}

impl NasIdentity {
    /// An Ethernet switch of this name: EAP packets up to 1400 octets.
    #[must_use]
    pub fn ethernet(identifier: &str) -> Self {
        Self { identifier: identifier.into(), address: None, port_type: PORT_TYPE_ETHERNET, framed_mtu: 1400 }
    }
    /// An 802.16 base station of this name: EAP packets up to 1400 octets.
    #[must_use]
    pub fn wimax(identifier: &str) -> Self {
        Self { port_type: PORT_TYPE_WIRELESS_80216, ..Self::ethernet(identifier) }
    }
}

/// Which protocol a NAS asks by, and whom.
#[derive(Clone, Debug)]
pub enum AaaConfig {
    /// RADIUS.
    Radius(RadiusConfig),
    /// Diameter with its EAP application.
    Diameter(Box<DiameterConfig>),
}

/// A NAS was configured in contradiction to itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The RADIUS client's part.
    #[error("RADIUS client: {0}")]
    Radius(#[from] usher_radius::client::ConfigError),
    /// The identifier is longer than an attribute.
    #[error("a NAS-Identifier of {0} octets; at most 253 fit")]
    Identifier(usize),
    /// Neither identifier nor address.
    #[error("a NAS needs an identifier or an address (RFC 2865 section 4.1)")]
    Nameless,
    /// Limits that admit nobody.
    #[error("the limit on sessions is zero")]
    NoSessions,
}

/// What the AAA side says of an accepted station, beside the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// How long the session may last (Session-Timeout); `None`: without end.
    pub session_timeout: Option<Duration>,
    /// Exchanges with the AAA server that it took.
    pub rounds: u16,
}

impl Facts {
    fn new(session_timeout: Option<u32>) -> Self {
        Self { session_timeout: session_timeout.map(|s| Duration::from_secs(u64::from(s))), rounds: 0 }
    }
}

/// Why the AAA side gave no verdict.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Failure {
    /// Nobody answered.
    Timeout,
    /// The question cannot be asked now: no identifier is free, no connection is up.
    Unavailable,
    /// The answer is of a kind that answers nothing.
    Protocol,
    /// The answer's key cannot be read.
    BadKey,
}

/// Tokens of accounting records have this bit, which those of sessions get after two thousand million sessions of one place.
pub(crate) const ACCOUNTING: u64 = 1 << 63;

/// What a record of accounting says has happened (RFC 2866 §5.1, RFC 6733 §9.8.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// A session has begun.
    Start,
    /// It goes on.
    Interim,
    /// It has ended.
    Stop,
}

/// A record of accounting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// What has happened.
    pub kind: RecordKind,
    /// To whom.
    pub station: StationId,
    /// The identity that the station gave.
    pub name: Vec<u8>,
    /// The session's name, unique among all of this NAS (Acct-Session-Id); over Diameter, the last part of its Session-Id.
    pub session: String,
    /// Its number within the session, from zero (Accounting-Record-Number).
    pub number: u32,
    /// How long the session has lasted (Acct-Session-Time); a start has none.
    pub lasted: Duration,
}

/// One question.
pub(crate) struct Ask<'a> {
    pub(crate) token: u64,
    pub(crate) name: &'a [u8],
    pub(crate) port: u32,
    pub(crate) calling: Option<MacAddress>,
    /// What the last challenge asked to be told again; the client's own affair.
    pub(crate) note: &'a [u8],
    pub(crate) eap: &'a [u8],
}

/// One answer; its EAP packet and its note are in the caller's buffers.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Challenge {
        token: u64,
    },
    Accept {
        token: u64,
        msk: Option<Key<[u8; 64]>>,
        facts: Facts,
    },
    Reject {
        token: u64,
    },
    /// A record of accounting is kept.
    Kept {
        token: u64,
    },
    Failed {
        token: u64,
        failure: Failure,
    },
    /// Not an answer: a Diameter peer came or went.
    Peer {
        peer: PeerId,
        up: bool,
    },
}

/// The machine that asks.
#[derive(Debug)]
pub(crate) enum AaaClient {
    Radius(Box<RadiusAaa>),
    Diameter(Box<DiameterAaa>),
}

impl AaaClient {
    pub(crate) fn new(config: AaaConfig, rng: SecureRng) -> Result<Self, ConfigError> {
        Ok(match config {
            AaaConfig::Radius(c) => Self::Radius(Box::new(RadiusAaa::new(c, rng)?)),
            AaaConfig::Diameter(c) => Self::Diameter(Box::new(DiameterAaa::new(*c, rng))),
        })
    }
    /// Sends a question; [`AaaClient::poll`] gives exactly one answer for each that was taken.
    pub(crate) fn ask(&mut self, now: Instant, nas: &NasIdentity, ask: &Ask<'_>) -> Result<(), CommandError> {
        match self {
            Self::Radius(r) => r.ask(now, nas, ask),
            Self::Diameter(d) => d.ask(now, nas, ask),
        }
    }
    /// Sends a record of accounting under a token with [`ACCOUNTING`]; [`AaaClient::poll`] gives exactly one answer for each
    /// that was taken.
    pub(crate) fn account(
        &mut self,
        now: Instant,
        nas: &NasIdentity,
        token: u64,
        record: &Record,
    ) -> Result<(), CommandError> {
        match self {
            Self::Radius(r) => r.account(now, nas, token, record),
            Self::Diameter(d) => d.account(now, nas, token, record),
        }
    }
    /// A session ended otherwise than by an answer; `asking`: it waits for one, and wants none any more.
    pub(crate) fn end(&mut self, now: Instant, token: u64, asking: bool) {
        match self {
            Self::Radius(r) if asking => r.cancel(now, token),
            Self::Radius(_) => {}
            Self::Diameter(d) => d.end(now, token, asking),
        }
    }
    /// The next answer; what was decided before it is in `outputs`.
    pub(crate) fn poll<E>(
        &mut self,
        now: Instant,
        outputs: &mut Outputs<E>,
        eap: &mut Vec<u8>,
        note: &mut Vec<u8>,
    ) -> Option<Answer> {
        match self {
            Self::Radius(r) => r.poll(outputs, eap, note),
            Self::Diameter(d) => d.poll(now, outputs, eap, note),
        }
    }
    pub(crate) fn handle(&mut self, now: Instant, input: Input<'_>) {
        match self {
            Self::Radius(r) => r.client.handle(now, input),
            Self::Diameter(d) => d.handle(now, input),
        }
    }
    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        match self {
            Self::Radius(r) => r.client.poll_timeout(),
            Self::Diameter(d) => d.poll_timeout(),
        }
    }
}
