//! When dialogues begin, and when a client gives one up.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{Bound, EventRate, Percentage, TimeSpan};

pub(super) const fn give_up() -> Bound<TimeSpan> {
    Bound::Limited(TimeSpan::from_secs(60))
}

/// A time, constant or drawn each time.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind", transform = usher_config::add_literal_alternative::<TimeSpan>)]
pub enum TimeDistribution {
    /// Constant, written as a plain time.
    #[serde(rename = "literal")]
    #[schemars(skip)]
    Constant(TimeSpan),
    /// Exponentially distributed.
    Exponential {
        /// The mean.
        mean: TimeSpan,
    },
    /// Uniformly distributed between two times.
    Uniform {
        /// The smallest.
        low: TimeSpan,
        /// The largest.
        high: TimeSpan,
    },
}

impl Default for TimeDistribution {
    fn default() -> Self {
        Self::Constant(TimeSpan::default())
    }
}

impl TimeDistribution {
    /// Its mean.
    pub fn mean(&self) -> usher_core::Duration {
        match self {
            Self::Constant(time) | Self::Exponential { mean: time } => time.get(),
            Self::Uniform { low, high } => low.get() + high.get().saturating_sub(low.get()) / 2,
        }
    }
    /// One draw.
    pub fn draw_time(&self, rng: &mut usher_core::SimulationRng) -> usher_core::Duration {
        match self {
            Self::Constant(time) => time.get(),
            Self::Exponential { mean } => rng.sample_exponential(mean.get()),
            Self::Uniform { low, high } => rng.sample_duration(low.get(), high.get()),
        }
    }
}

/// When dialogues begin.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(tag = "kind")]
pub enum ArrivalSettings {
    /// After exponentially distributed gaps.
    Poisson {
        /// The mean rate.
        rate: EventRate,
        /// Whether this is the rate of all clients together or of each.
        #[serde(default)]
        per: ArrivalRateScope,
        /// Simulated time from which dialogues begin.
        #[serde(default)]
        start: TimeSpan,
        /// The largest number of dialogues in a run, over all clients.
        limit: Option<u64>,
    },
    /// At a constant interval: client i has its turn at `start` + i × `stagger`, then every `interval`.
    Constant {
        /// The time between two dialogues of a client.
        interval: TimeSpan,
        /// Simulated time of the first client's first dialogue.
        #[serde(default)]
        start: TimeSpan,
        /// How much later each client starts than the one before it.
        #[serde(default)]
        stagger: TimeSpan,
        /// Each dialogue begins up to this share of the interval after its turn, drawn uniformly. The turns do not
        /// move.
        #[serde(default)]
        jitter: Percentage,
        /// The number of dialogues of each client; without it, until the run's duration ends.
        count: Option<u64>,
    },
    /// Each client pauses, runs one dialogue to its end, and pauses again.
    Closed {
        /// The pause, such as `{ kind = "exponential", mean = "1 s" }`. The first comes before the first dialogue.
        pause: TimeDistribution,
        /// Simulated time of the first pause.
        #[serde(default)]
        start: TimeSpan,
        /// The largest number of dialogues in a run, over all clients.
        limit: Option<u64>,
    },
}

/// The scope of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalRateScope {
    /// All clients together; each arrival is at a client drawn uniformly.
    #[default]
    All,
    /// Each client.
    Client,
}
