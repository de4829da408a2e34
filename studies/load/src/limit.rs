//! Detects that the generator itself was the limit. The measurement is then only a bound of the server's performance.

use crate::tally::{LoginStats, quantile};
use serde::Serialize;

/// Lateness of logins below this value is not significant, in seconds: timers are no finer (`--relaxed`).
pub const LATENESS_FLOOR_S: f64 = 0.002;
/// Acceptable lateness as a share of the 99th percentile of latency.
pub const LATENESS_FRACTION: f64 = 0.1;
/// Acceptable share of time in which a generating thread runs or waits for a processor.
pub const BUSY_SHARE: f64 = 0.95;

/// The reason why the generator was the limit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "by")]
pub enum GeneratorLimitCause {
    /// It began logins late although there was capacity for them.
    Late {
        /// The 99th percentile of its lateness in seconds.
        p99_s: f64,
    },
    /// One of its threads used its whole processor.
    Busy {
        /// The largest share of time in which a thread ran or waited for a processor.
        share: f64,
    },
}

impl GeneratorLimitCause {
    /// Evaluates a window by its statistics and the largest busy share of a thread, if known. The busy share excludes
    /// polling between logins.
    ///
    /// Late: the generator's own lateness exceeds [`LATENESS_FLOOR_S`] and [`LATENESS_FRACTION`] of the 99th percentile
    /// of latency, for 1 % of the logins. Busy: [`BUSY_SHARE`] of the time.
    #[must_use]
    pub fn judge_window(tally: &LoginStats, busy: Option<f64>) -> Option<Self> {
        if let Some(p99_s) = quantile(&tally.own_lag, 0.99) {
            let latency = quantile(&tally.latency, 0.99).unwrap_or(0.0);
            if p99_s > LATENESS_FLOOR_S.max(latency * LATENESS_FRACTION) {
                return Some(Self::Late { p99_s });
            }
        }
        busy.filter(|share| *share >= BUSY_SHARE).map(|share| Self::Busy { share: share.min(1.0) })
    }

    /// Describes the limit in a few words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Late { p99_s } => {
                format!("1 % of the logins began more than {:.1} ms late", p99_s * 1e3)
            }
            Self::Busy { share } => {
                format!("a generator thread was busy for {:.0} % of the time", share * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::record_latency;
    use usher_core::Duration;

    fn lag_stats(lag_us: u64, latency_us: u64) -> LoginStats {
        let mut tally = LoginStats::default();
        for _ in 0..100 {
            record_latency(&mut tally.own_lag, Duration::from_micros(lag_us));
            record_latency(&mut tally.latency, Duration::from_micros(latency_us));
        }
        tally
    }

    #[test]
    fn lateness_is_held_against_latency() {
        assert_eq!(
            GeneratorLimitCause::judge_window(&lag_stats(1_900, 2_000), None),
            None,
            "no finer than timers are"
        );
        assert!(matches!(
            GeneratorLimitCause::judge_window(&lag_stats(3_000, 10_000), None),
            Some(GeneratorLimitCause::Late { .. })
        ));
        assert_eq!(
            GeneratorLimitCause::judge_window(&lag_stats(3_000, 40_000), None),
            None,
            "a small part of what logins took"
        );
        let mut nobody = lag_stats(50_000, 1);
        nobody.latency.reset();
        assert!(GeneratorLimitCause::judge_window(&nobody, None).is_some(), "late, and nobody got in");
    }

    #[test]
    fn a_thread_without_idle_time_is_the_limit() {
        let idle = lag_stats(10, 10_000);
        assert_eq!(GeneratorLimitCause::judge_window(&idle, Some(0.94)), None);
        assert_eq!(
            GeneratorLimitCause::judge_window(&idle, Some(1.02)),
            Some(GeneratorLimitCause::Busy { share: 1.0 })
        );
        assert_eq!(GeneratorLimitCause::judge_window(&idle, None), None);
        assert!(GeneratorLimitCause::Busy { share: 0.97 }.describe().contains("97 %"));
        assert!(
            GeneratorLimitCause::judge_window(&lag_stats(7_000, 8_000), Some(1.0))
                .unwrap()
                .describe()
                .contains("7.0 ms")
        );
    }
}
