//! Duration and replications: `[run]`, `[quick]`, `[full]`, `[capture]`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::borrow::Cow;
use usher_config::ConfigValue;
use usher_config::OrderedMap;
use usher_config::units::{Percentage, PositiveCount, TimeSpan};
use usher_core::WallTime;

/// Duration and replications of each point. A run consists of the warm-up, the duration and the drain. Dialogues that
/// begin within the duration count. In the drain, none begin and open ones may end.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSettings {
    /// Simulated time whose dialogues count; it starts when the warm-up ends.
    pub duration: TimeSpan,
    /// Simulated time before the counting starts.
    #[serde(default)]
    pub warmup: TimeSpan,
    /// Simulated time after the duration, in which open dialogues may end. Later, open dialogues count as failed.
    #[serde(default = "drain")]
    pub drain: TimeSpan,
    /// The seed of all random streams. The same study and seed give the same rows.
    #[serde(default = "one")]
    pub seed: u64,
    /// The version of IP, which determines the headers' sizes.
    #[serde(default)]
    pub ip: IpVersion,
    /// The day on which simulated time begins, at midnight UTC, such as `"2026-07-01"`. Certificates must be valid
    /// then.
    #[serde(default)]
    pub date: CalendarDate,
    /// Measures the memory of hosts' connections and associations, for the metrics `connections.HOST` and
    /// `memory.HOST`.
    #[serde(default)]
    pub memory: bool,
    /// Additional metrics to measure, of those that are measured only on request: `["delay.p99.9", "within(5 s)"]`.
    /// Figures, recommendations and the stopping rule request their own.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// The number of replications of each point, each with other random numbers.
    #[serde(default)]
    pub replications: ReplicationRule,
}

const fn drain() -> TimeSpan {
    TimeSpan::from_secs(60)
}
const fn one() -> u64 {
    1
}

/// A day of the Gregorian calendar, from 1970 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CalendarDate(WallTime);

impl CalendarDate {
    /// Its midnight, UTC.
    pub const fn wall_time(self) -> WallTime {
        self.0
    }
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut number = |digits| -> Option<u64> {
            let part = parts.next().filter(|part| part.len() == digits)?;
            part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
        };
        let (year, month, day) = (number(4)?, number(2)?, number(2)?);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let before = usize::try_from(month.checked_sub(1)?).ok()?;
        let fits = parts.next().is_none() && (1..=*days.get(before)?).contains(&day);
        let years = year.checked_sub(1970)?;
        let past = year - 1;
        // Count the leap days from 1970 to this year: 477 leap days came before 1970.
        let leaps = past / 4 - past / 100 + past / 400 - 477;
        let since = 365 * years + leaps + days[..before].iter().sum::<u64>() + day - 1;
        fits.then(|| Self(WallTime::from_unix_secs(86_400 * since)))
    }
}

impl Default for CalendarDate {
    /// A day on which the certificates that come with the program are valid: 2026-07-01.
    fn default() -> Self {
        Self(WallTime::from_unix_secs(1_782_864_000))
    }
}

impl<'de> Deserialize<'de> for CalendarDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("\"{text}\" is not a day such as \"2026-07-01\"")))
    }
}

impl JsonSchema for CalendarDate {
    fn schema_name() -> Cow<'static, str> {
        "Date".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
            "description": "A day of the Gregorian calendar, from 1970 to 9999."
        })
    }
}

impl From<IpVersion> for usher_sim::IpVersion {
    fn from(version: IpVersion) -> Self {
        match version {
            IpVersion::V4 => Self::V4,
            IpVersion::V6 => Self::V6,
        }
    }
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

/// The number of replications of a point: at least `min`, then until the metric's confidence interval is narrow enough,
/// at most `max`. They are judged in the order of their index, so the number does not depend on which of them finish
/// first.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationRule {
    /// The smallest number of replications.
    pub min: PositiveCount,
    /// The largest number of replications.
    pub max: PositiveCount,
    /// Stop when half the confidence interval's width is below this share of the mean.
    pub precision: Percentage,
    /// The confidence of the interval.
    pub confidence: Percentage,
    /// The metric whose interval decides.
    pub metric: String,
}

impl Default for ReplicationRule {
    fn default() -> Self {
        Self {
            min: PositiveCount::from_u32(5),
            max: PositiveCount::from_u32(30),
            precision: Percentage::from_percent(5),
            confidence: Percentage::from_percent(95),
            metric: "delay.mean".to_owned(),
        }
    }
}

/// The changes of a mode (`--quick`, `--full`).
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StudyModeSettings {
    /// Replaces the run's duration.
    pub duration: Option<TimeSpan>,
    /// Replaces the run's warm-up.
    pub warmup: Option<TimeSpan>,
    /// Replaces the run's replications, setting by setting.
    pub replications: ReplicationSettings,
    /// Any other settings by their path, such as `"workload.arrivals.count" = 100`. Axes override them.
    pub set: OrderedMap<ConfigValue>,
}

/// The changes of a mode to the replications.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicationSettings {
    /// The smallest number of replications.
    pub min: Option<PositiveCount>,
    /// The largest number of replications.
    pub max: Option<PositiveCount>,
    /// Stop when half the confidence interval's width is below this share of the mean.
    pub precision: Option<Percentage>,
}

/// The links to record when a capture is requested.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureSettings {
    /// Names of links. For a group of links, it is the first member's.
    pub links: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (text, seconds) in [("1970-01-01", 0), ("2000-02-29", 951_782_400), ("2026-07-01", 1_782_864_000)]
        {
            assert_eq!(
                CalendarDate::parse(text),
                Some(CalendarDate(WallTime::from_unix_secs(seconds))),
                "{text}"
            );
        }
        assert_eq!(CalendarDate::parse("2026-07-01"), Some(CalendarDate::default()));
        for wrong in [
            "",
            "0000-01-01",
            "1969-12-31",
            "2026-+7-01",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-7-1",
            "2026-07-00",
            "2026-07-01-",
        ] {
            assert_eq!(CalendarDate::parse(wrong), None, "{wrong}");
        }
    }
}
