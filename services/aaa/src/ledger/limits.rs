//! Who may come in: the question, the answer and why it is no.

use alloc::string::String;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::Duration;

/// Somebody has proved who they are; may they have a session?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmitRequest {
    /// The name under which accounting will tell of the session; see [`super::text`].
    pub user: String,
    /// Simultaneous-Use: how many sessions the user may have, over all NASs; `None`: any number.
    pub simultaneous: Option<u32>,
    /// The pool of the user's address; `None`: none is given.
    pub pool: Option<String>,
    /// The NAS; see [`super::SessionKey::nas`].
    pub nas: IpAddr,
    /// NAS-Port-Id, or NAS-Port in decimal; empty where unknown.
    pub port: String,
    /// Calling-Station-Id; empty where unknown.
    pub calling_station_id: String,
}

/// Whether somebody may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Yes. What was given is held until the session's Accounting-Start, for [`super::LedgerConfig::hold`].
    Yes {
        /// For Framed-IP-Address or Framed-IPv6-Address, where a pool was asked for that has addresses.
        address: Option<IpAddr>,
        /// For Framed-IPv6-Prefix, where a pool was asked for that has prefixes.
        prefix: Option<(Ipv6Addr, u8)>,
    },
    /// No.
    No(Refusal),
    /// Whoever knows cannot be asked just now.
    Unavailable,
}

/// Why somebody may not come in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Simultaneous-Use is reached.
    #[error("the user has as many sessions as are allowed: {allowed}")]
    TooManySessions {
        /// How many are allowed.
        allowed: u32,
    },
    /// Too many failures of this user, or from this station, not long ago.
    #[error("too many failed logins; held back for a while")]
    TooManyFailures,
    /// The pool has nothing left.
    #[error("the address pool has nothing left")]
    PoolExhausted,
    /// The user's pool is not configured.
    #[error("the user's address pool is not configured")]
    UnknownPool,
    /// The ledger holds as many sessions as it may.
    #[error("the server holds as many sessions as it may")]
    Full,
}

/// How many failed logins hold a user or a station back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureLimit {
    /// This many failures …
    pub count: u32,
    /// … within this time …
    pub within: Duration,
    /// … refuse every login for this long.
    pub hold: Duration,
    /// How many users and stations are remembered; beyond it the one that failed longest ago is forgotten.
    pub remembered: usize,
}

impl FailureLimit {
    /// So many failures within so long hold back for so long; 65,536 users and stations are remembered.
    #[must_use]
    pub const fn new(count: u32, within: Duration, hold: Duration) -> Self {
        Self { count, within, hold, remembered: 1 << 16 }
    }
}
