//! Expectations of a run, as users write them: `p99 < 100 ms`, `failed < 0.1 %`.

use crate::live::SessionSetupRates;
use crate::tally::{LoginFailure, LoginStats, quantile};
use std::fmt;
use std::str::FromStr;
use usher_core::Duration;

/// Help for messages.
const ACCEPTED: &str = "write METRIC < VALUE, with < <= > or >=. Login latency: p50, p90, p95, p99, p99.9, max, mean \
                        (100 ms). Share of all logins: failed, succeeded, cut-off, or the name of a failure such as \
                        timeout (0.1 %). Others: throughput (5000/s), knee of a ramp (5000/s), server-cpu of a login \
                        with --server-pid (0.1 ms). PPPoE sessions: cps, cps-min, cps-avg, cps-max (5000/s), \
                        setup-time, echo-p50, echo-p99 (100 ms), echo-lost (0.1 %)";

/// The metric of an expectation.
#[derive(Clone, Copy, PartialEq, Debug)]
enum ExpectedMetric {
    /// A quantile of latency.
    Quantile(f64),
    /// The mean latency.
    Mean,
    /// The server's CPU time for each login.
    ServerCpu,
    /// The share of logins that failed.
    Failed,
    /// The share of logins with the right result.
    Succeeded,
    /// The share that was cut off.
    CutOff,
    /// The share of one kind of failure.
    Failure(LoginFailure),
    /// Successes per second.
    Throughput,
    /// A ramp's capacity.
    Knee,
    /// Sessions set up per second.
    Cps(SetupRateStatistic),
    /// Time until all sessions were set up.
    SetupTime,
    /// A quantile of the echoes' round-trip time.
    EchoQuantile(f64),
    /// The share of echoes without a reply.
    EchoLost,
}

/// The statistic of a set-up rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetupRateStatistic {
    Last,
    Least,
    Mean,
    Most,
}

/// The unit of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricUnit {
    /// Seconds.
    Time,
    /// A fraction of 1.
    Share,
    /// 1/s.
    Rate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricRelation {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// An expectation.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadExpectation {
    text: String,
    metric: ExpectedMetric,
    relation: MetricRelation,
    /// Seconds, a fraction of 1, or 1/s.
    value: f64,
}

/// A text that is not an expectation: its fault, and the accepted syntax.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?}: {what}; {ACCEPTED}")]
pub struct ExpectError {
    text: String,
    what: String,
}

/// The results of a run that expectations refer to.
#[derive(Clone, Copy, Debug)]
pub struct ExpectationInputs<'a> {
    /// The statistics of logins.
    pub tally: &'a LoginStats,
    /// Measured time in seconds.
    pub measured_s: f64,
    /// CPU time of the server for each login, in milliseconds.
    pub server_ms: Option<f64>,
    /// The capacity found by a ramp, in 1/s.
    pub knee: Option<f64>,
    /// The set-up rates of sessions.
    pub setup: Option<SessionSetupRates>,
}

/// The verdict on an expectation.
#[derive(Clone, PartialEq, Debug)]
pub struct ExpectationVerdict {
    /// The expectation as written.
    pub expected: String,
    /// The result in seconds, as a fraction of 1, or in 1/s; `None` without a measurement.
    pub found: Option<f64>,
    /// The result as text.
    pub found_text: String,
    /// True if it was met; false without a measurement.
    pub met: bool,
}

impl ExpectedMetric {
    fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase().replace('_', "-");
        Some(match name.as_str() {
            "p50" | "median" => Self::Quantile(0.5),
            "p90" => Self::Quantile(0.9),
            "p95" => Self::Quantile(0.95),
            "p99" => Self::Quantile(0.99),
            "p99.9" | "p999" => Self::Quantile(0.999),
            "max" => Self::Quantile(1.0),
            "mean" => Self::Mean,
            "server-cpu" => Self::ServerCpu,
            "failed" => Self::Failed,
            "succeeded" => Self::Succeeded,
            "cut-off" => Self::CutOff,
            "throughput" => Self::Throughput,
            "knee" => Self::Knee,
            "cps" => Self::Cps(SetupRateStatistic::Last),
            "cps-min" => Self::Cps(SetupRateStatistic::Least),
            "cps-avg" => Self::Cps(SetupRateStatistic::Mean),
            "cps-max" => Self::Cps(SetupRateStatistic::Most),
            "setup-time" => Self::SetupTime,
            "echo-p50" => Self::EchoQuantile(0.5),
            "echo-p99" => Self::EchoQuantile(0.99),
            "echo-lost" => Self::EchoLost,
            other => {
                Self::Failure(LoginFailure::ALL.into_iter().find(|f| f.name().replace('_', "-") == other)?)
            }
        })
    }

    const fn unit(self) -> MetricUnit {
        match self {
            Self::Quantile(_) | Self::Mean | Self::ServerCpu | Self::SetupTime | Self::EchoQuantile(_) => {
                MetricUnit::Time
            }
            Self::Failed | Self::Succeeded | Self::CutOff | Self::Failure(_) | Self::EchoLost => {
                MetricUnit::Share
            }
            Self::Throughput | Self::Knee | Self::Cps(_) => MetricUnit::Rate,
        }
    }

    fn measured_value_of(self, shown: &ExpectationInputs<'_>) -> Option<f64> {
        let t = shown.tally;
        let share = |n: u64, all: u64| (all > 0).then(|| n as f64 / all as f64);
        match self {
            Self::Quantile(q) => quantile(&t.latency, q),
            Self::Mean => (!t.latency.is_empty()).then(|| t.latency.mean() * 1e-9),
            Self::ServerCpu => shown.server_ms.map(|ms| ms * 1e-3),
            Self::Failed => share(t.failed_total(), t.ended_total()),
            Self::Succeeded => share(t.succeeded, t.ended_total()),
            Self::Failure(f) => share(t.failure_count(f), t.ended_total()),
            Self::CutOff => share(t.cut_off, t.ended_total() + t.cut_off),
            Self::Throughput => (shown.measured_s > 0.0).then(|| t.completed as f64 / shown.measured_s),
            Self::Knee => shown.knee,
            Self::Cps(part) => shown.setup.map(|setup| match part {
                SetupRateStatistic::Last => setup.cps,
                SetupRateStatistic::Least => setup.min,
                SetupRateStatistic::Mean => setup.avg,
                SetupRateStatistic::Most => setup.max,
            }),
            Self::SetupTime => shown.setup.and_then(|setup| setup.time_s),
            Self::EchoQuantile(q) => quantile(&t.echo_latency, q),
            Self::EchoLost => t.lost_echo_fraction(),
        }
    }
}

impl MetricUnit {
    fn parse_value(self, text: &str) -> Result<f64, String> {
        let (units, hint): (&[(&str, f64)], &str) = match self {
            Self::Time => (
                &[("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("min", 60.0), ("s", 1.0)],
                "a time such as 100 ms",
            ),
            Self::Share => (&[("%", 0.01), ("", 1.0)], "a share such as 0.1 % or 0.001"),
            Self::Rate => (&[("/s", 1.0), ("1/s", 1.0), ("", 1.0)], "a rate such as 5000/s"),
        };
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim();
        let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        match (number.parse::<f64>(), scale) {
            (Ok(n), Some(scale)) if self != Self::Share || n * scale <= 1.0 => Ok(n * scale),
            _ => Err(format!("{text:?} is not {hint}")),
        }
    }

    fn format_value(self, value: f64) -> String {
        match self {
            Self::Time => Duration::from_secs_f64(value).to_string(),
            Self::Share => format!("{} %", (value * 1e6).round() / 1e4),
            Self::Rate => format!("{:.1}/s", value),
        }
    }
}

impl FromStr for LoadExpectation {
    type Err = ExpectError;

    fn from_str(text: &str) -> Result<Self, ExpectError> {
        let bad = |what: String| ExpectError { text: text.to_owned(), what };
        let relations = [
            ("<=", MetricRelation::AtMost),
            (">=", MetricRelation::AtLeast),
            ("<", MetricRelation::Less),
            (">", MetricRelation::More),
        ];
        let found = relations.into_iter().find_map(|(sign, r)| text.split_once(sign).map(|parts| (parts, r)));
        let ((name, value), relation) = found.ok_or_else(|| bad("the comparison is missing".to_owned()))?;
        let metric = ExpectedMetric::from_name(name)
            .ok_or_else(|| bad(format!("there is no metric {:?}", name.trim())))?;
        let value = metric.unit().parse_value(value).map_err(bad)?;
        Ok(Self { text: text.trim().to_owned(), metric, relation, value })
    }
}

impl fmt::Display for LoadExpectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl LoadExpectation {
    /// True for metrics of a ramp only.
    #[must_use]
    pub fn needs_load_ramp(&self) -> bool {
        self.metric == ExpectedMetric::Knee
    }
    /// True for metrics that need the server's process.
    #[must_use]
    pub fn needs_server(&self) -> bool {
        self.metric == ExpectedMetric::ServerCpu
    }

    /// Compares the results with the expectation.
    #[must_use]
    pub fn judge_load_results(&self, shown: &ExpectationInputs<'_>) -> ExpectationVerdict {
        let found = self.metric.measured_value_of(shown);
        let met = found.is_some_and(|found| match self.relation {
            MetricRelation::Less => found < self.value,
            MetricRelation::AtMost => found <= self.value,
            MetricRelation::More => found > self.value,
            MetricRelation::AtLeast => found >= self.value,
        });
        let told = found.map_or_else(|| "not measured".to_owned(), |f| self.metric.unit().format_value(f));
        ExpectationVerdict { expected: self.text.clone(), found, found_text: told, met }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::record_latency;

    fn test_stats() -> LoginStats {
        let mut tally = LoginStats::default();
        for ms in 1..=1000 {
            record_latency(&mut tally.latency, Duration::from_millis(ms));
        }
        (tally.succeeded, tally.completed, tally.cut_off) = (1000, 900, 250);
        tally.count_failures(LoginFailure::Timeout, 6);
        tally.count_failures(LoginFailure::WrongKeys, 2);
        tally
    }

    fn judge_expectation_text(text: &str) -> ExpectationVerdict {
        let tally = test_stats();
        let setup =
            Some(SessionSetupRates { cps: 90.0, min: 80.0, avg: 95.0, max: 120.0, time_s: Some(2.5) });
        let shown = ExpectationInputs {
            tally: &tally,
            measured_s: 2.0,
            server_ms: Some(0.5),
            knee: Some(400.0),
            setup,
        };
        text.parse::<LoadExpectation>().unwrap().judge_load_results(&shown)
    }

    #[test]
    fn each_metric_is_held_against_its_value() {
        for (text, met) in [
            ("p99 < 1 s", true),
            ("p99<980ms", false),
            ("p50 <= 500.6 ms", true),
            ("max >= 1 s", true),
            ("p99.9 < 0.02 min", true),
            ("mean < 400 ms", false),
            ("failed < 0.8 %", true),
            ("failed < 0.7 %", false),
            ("succeeded > 0.99", true),
            ("timeout < 0.6 %", true),
            ("wrong-keys < 0.1%", false),
            ("cut_off < 20 %", true),
            ("cut-off < 19 %", false),
            ("throughput >= 450/s", true),
            ("throughput > 450", false),
            ("knee > 399 1/s", true),
            ("server-cpu < 500 us", false),
            ("server-cpu <= 500 us", true),
            ("cps >= 90/s", true),
            ("cps-min > 80/s", false),
            ("cps_avg > 94/s", true),
            ("cps-max < 120/s", false),
            ("setup-time < 2.6 s", true),
        ] {
            assert_eq!(judge_expectation_text(text).met, met, "{text}: {:?}", judge_expectation_text(text));
        }
        assert_eq!(judge_expectation_text("failed < 1 %").found_text, "0.7937 %");
        assert_eq!(judge_expectation_text("throughput > 1").found_text, "450.0/s");
    }

    #[test]
    fn what_was_not_measured_is_not_as_expected() {
        let empty = LoginStats::default();
        let shown =
            ExpectationInputs { tally: &empty, measured_s: 0.0, server_ms: None, knee: None, setup: None };
        for text in [
            "p99 < 1 s",
            "failed < 1 %",
            "throughput >= 0",
            "knee >= 0",
            "server-cpu < 1 s",
            "mean > 0 ms",
            "cps >= 0",
            "echo-lost <= 1",
            "echo-p50 < 1 s",
        ] {
            let verdict = text.parse::<LoadExpectation>().unwrap().judge_load_results(&shown);
            assert!(
                !verdict.met && verdict.found.is_none() && verdict.found_text == "not measured",
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_says_nothing_is_refused_with_what_is_accepted() {
        for (text, part) in [
            ("p99", "comparison is missing"),
            ("p98 < 1 s", "there is no metric \"p98\""),
            ("p99 < 100", "is not a time such as 100 ms"),
            ("p99 < 100 %", "is not a time"),
            ("p99 < -1 ms", "is not a time"),
            ("failed < 5", "is not a share such as 0.1 %"),
            ("failed < 101 %", "is not a share"),
            ("failed < 5 ms", "is not a share"),
            ("knee > many", "is not a rate such as 5000/s"),
            ("knee > 1e9999", "is not a rate"),
            ("p99 < 1.2.3 ms", "is not a time"),
            ("", "comparison is missing"),
        ] {
            let error = text.parse::<LoadExpectation>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("p99.9, max, mean"), "{text}: {error}");
        }
    }
}
