//! Settings of a workload's AAA client.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{Percentage, PositiveCount, TimeSpan};

/// The source of the TLS messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsHandshakeMode {
    /// Each handshake is computed.
    Real,
    /// One handshake is computed, and its messages stand for all: the same sizes, with CPU time charged. Where
    /// credentials may be wrong or sessions are resumed, handshakes differ, and each is computed. So is each handshake
    /// of PEAP and EAP-TTLS, whose tunnels are not recorded.
    Recorded,
}

/// Settings of RADIUS.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RadiusSettings {
    /// The retransmission of unanswered requests.
    pub retransmission: RadiusRetransmission,
    /// How long the server keeps a reply for retransmissions of its request (RFC 5080, 2.2.2). It takes a later one for
    /// a new request.
    pub duplicate_cache: TimeSpan,
}

impl Default for RadiusSettings {
    fn default() -> Self {
        Self { retransmission: RadiusRetransmission::default(), duplicate_cache: TimeSpan::from_secs(30) }
    }
}

/// The retransmission of unanswered requests.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::with_names)]
pub enum RadiusRetransmission {
    /// At doubling, jittered intervals (RFC 5080, 2.2.1).
    Rfc5080 {
        /// IRT, the first interval.
        #[serde(default = "irt")]
        initial: TimeSpan,
        /// MRT, the largest interval; zero: no limit.
        #[serde(default = "mrt")]
        max: TimeSpan,
        /// MRC, the largest number of transmissions; zero: no limit.
        #[serde(default = "mrc")]
        count: u32,
        /// MRD, the largest total duration; zero: no limit.
        #[serde(default = "mrd")]
        duration: TimeSpan,
        /// RAND, the share by which each interval varies in either direction.
        #[serde(default = "rand")]
        jitter: Percentage,
    },
    /// At fixed intervals, as older NASes do.
    Fixed {
        /// The interval.
        interval: TimeSpan,
        /// The largest number of transmissions, the first included.
        count: PositiveCount,
    },
}

pub(super) const fn irt() -> TimeSpan {
    TimeSpan::from_secs(2)
}
pub(super) const fn mrt() -> TimeSpan {
    TimeSpan::from_secs(16)
}
pub(super) const fn mrc() -> u32 {
    5
}
pub(super) const fn mrd() -> TimeSpan {
    TimeSpan::from_secs(30)
}
pub(super) const fn rand() -> Percentage {
    Percentage::from_percent(10)
}

impl Default for RadiusRetransmission {
    fn default() -> Self {
        Self::Rfc5080 { initial: irt(), max: mrt(), count: mrc(), duration: mrd(), jitter: rand() }
    }
}
