//! How long and how often: `[run]`, `[quick]`, `[full]`, `[capture]`.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::Ordered;
use usher_config::Value;
use usher_config::units::{Count, Share, Time};

/// How long and how often each point runs. A run passes the warm-up, then the duration in which what begins
/// is counted, then at most the drain in which nothing begins and what was begun may end.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Simulated time in which what begins is counted; it starts when the warm-up ends.
    pub duration: Time,
    /// Simulated time before the counting starts.
    #[serde(default)]
    pub warmup: Time,
    /// Simulated time after the duration, in which what was begun may end. What has not ended then counts as
    /// failed.
    #[serde(default = "drain")]
    pub drain: Time,
    /// The seed of all chance. The same study and seed give the same rows.
    #[serde(default = "one")]
    pub seed: u64,
    /// The version of IP, which decides the headers' sizes.
    #[serde(default)]
    pub ip: IpVersion,
    /// Follow what hosts hold for their connections and associations, for the metrics `connections.HOST` and `memory.HOST`.
    #[serde(default)]
    pub memory: bool,
    /// How often each point is repeated with other chance.
    #[serde(default)]
    pub replications: Replications,
}

const fn drain() -> Time {
    Time::secs(60)
}
const fn one() -> u64 {
    1
}

/// Version of the Internet Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum IpVersion {
    /// IPv4, a header of 20 B.
    #[default]
    #[serde(rename = "v4")]
    V4,
    /// IPv6, a header of 40 B.
    #[serde(rename = "v6")]
    V6,
}

/// How often a point is repeated: from `min` on until the metric's confidence interval is narrow enough, at
/// most `max` times. Replications are judged in the order of their index, so the count does not depend on
/// which of them finished first.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Replications {
    /// At least so many.
    pub min: Count,
    /// At most so many.
    pub max: Count,
    /// Stop when half the confidence interval's width is below this share of the mean.
    pub precision: Share,
    /// The confidence of the interval.
    pub confidence: Share,
    /// The metric whose interval decides.
    pub metric: String,
}

impl Default for Replications {
    fn default() -> Self {
        Self {
            min: Count::of(5),
            max: Count::of(30),
            precision: Share::percent(5),
            confidence: Share::percent(95),
            metric: "delay.mean".to_owned(),
        }
    }
}

/// What a mode (`--quick`, `--full`) changes.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModeSettings {
    /// In place of the run's duration.
    pub duration: Option<Time>,
    /// In place of the run's warm-up.
    pub warmup: Option<Time>,
    /// In place of the run's replications, setting by setting.
    pub replications: ReplicationSettings,
    /// Any other settings by their path, such as `"workload.arrivals.count" = 100`. Axes come after them.
    pub set: Ordered<Value>,
}

/// What a mode changes about replications.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationSettings {
    /// At least so many.
    pub min: Option<Count>,
    /// At most so many.
    pub max: Option<Count>,
    /// Stop when half the confidence interval's width is below this share of the mean.
    pub precision: Option<Share>,
}

/// What to record when a capture is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Capture {
    /// Names of links. For a group of links, the first member's is recorded.
    pub links: Vec<String>,
}
