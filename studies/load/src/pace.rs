//! The pace of logins: an open loop, whose logins begin independently, or a closed loop, whose logins wait for each
//! other.

use usher_core::{Duration, Instant, SimulationRng};

/// The arrivals of an open loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LoginArrivals {
    /// Exponential gaps, as of many independent users.
    #[default]
    Exponential,
    /// Equal gaps.
    Regular,
    /// Bursts of this size with exponential gaps between them. They model the recovery of power or of a link, and show
    /// a busy server at a small average load.
    Bursts(u32),
}

impl LoginArrivals {
    /// Describes the arrivals in a few words.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Exponential => "exponential gaps".to_owned(),
            Self::Regular => "equal gaps".to_owned(),
            Self::Bursts(size) => format!("bursts of {size}"),
        }
    }
}

/// The pace of logins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LoginPace {
    /// A closed loop with a fixed concurrency; the next login begins when one ends.
    Closed {
        /// Number of concurrent logins.
        concurrency: usize,
    },
    /// An open loop with a fixed rate, independent of the server.
    Open {
        /// Logins per second.
        rate: f64,
        /// Their arrivals.
        arrivals: LoginArrivals,
    },
}

impl LoginPace {
    /// Returns one of `parts` equal shares. A rate is divided; concurrencies of the shares add up to the whole.
    #[must_use]
    pub fn pace_per_thread(self, part: usize, parts: usize) -> Self {
        match self {
            Self::Closed { concurrency } => {
                Self::Closed { concurrency: concurrency / parts + usize::from(part < concurrency % parts) }
            }
            Self::Open { rate, arrivals } => Self::Open { rate: rate / parts as f64, arrivals },
        }
    }
}

/// The due times of the logins of an open loop.
#[derive(Debug)]
pub(crate) struct LoginSchedule {
    mean: Duration,
    arrivals: LoginArrivals,
    next: Instant,
    /// Number of logins left in the current burst.
    of_burst: u32,
}

impl LoginSchedule {
    /// Creates a schedule from `now` on.
    pub(crate) fn new(rate: f64, arrivals: LoginArrivals, now: Instant, rng: &mut SimulationRng) -> Self {
        let mean = Duration::from_secs_f64(1.0 / rate.max(1e-6));
        let mut schedule = Self { mean, arrivals, next: now, of_burst: 0 };
        schedule.advance(rng);
        schedule
    }
    /// Returns the next login's due time.
    pub(crate) const fn next_time(&self) -> Instant {
        self.next
    }
    /// Returns the next due time and advances.
    pub(crate) fn advance(&mut self, rng: &mut SimulationRng) -> Instant {
        let at = self.next;
        let gap = match self.arrivals {
            LoginArrivals::Regular => self.mean,
            LoginArrivals::Exponential => rng.sample_exponential(self.mean),
            LoginArrivals::Bursts(_) if self.of_burst > 0 => {
                self.of_burst -= 1;
                Duration::ZERO
            }
            LoginArrivals::Bursts(size) => {
                let size = size.max(1);
                self.of_burst = size - 1;
                rng.sample_exponential(self.mean * u64::from(size))
            }
        };
        self.next = at + gap;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn shares_add_up() {
        let closed = |concurrency| LoginPace::Closed { concurrency };
        assert_eq!(
            (0..3).map(|i| closed(8).pace_per_thread(i, 3)).collect::<Vec<_>>(),
            [closed(3), closed(3), closed(2)]
        );
        let open = LoginPace::Open { rate: 90.0, arrivals: LoginArrivals::Regular };
        assert_eq!(
            open.pace_per_thread(2, 3),
            LoginPace::Open { rate: 30.0, arrivals: LoginArrivals::Regular }
        );
    }

    #[test]
    fn a_burst_begins_at_once() {
        let mut rng = Seed::new(7).derive_rng("arrivals", 0);
        let mut schedule = LoginSchedule::new(1000.0, LoginArrivals::Bursts(4), Instant::ZERO, &mut rng);
        let times: Vec<Instant> = (0..4000).map(|_| schedule.advance(&mut rng)).collect();
        let bursts: Vec<&[Instant]> = times.chunk_by(|a, b| a == b).collect();
        assert!(bursts.iter().all(|burst| burst.len() == 4), "{:?}", &times[..12]);
        assert!(bursts.windows(2).all(|pair| pair[0][0] < pair[1][0]));
    }

    #[test]
    fn arrivals_keep_the_rate() {
        for arrivals in [LoginArrivals::Regular, LoginArrivals::Exponential, LoginArrivals::Bursts(1)] {
            let mut rng = Seed::new(7).derive_rng("arrivals", 0);
            let mut schedule = LoginSchedule::new(1000.0, arrivals, Instant::ZERO, &mut rng);
            let mut last = Instant::ZERO;
            for _ in 0..20_000 {
                last = schedule.advance(&mut rng);
            }
            // Twenty seconds; of exponential gaps the sum's deviation is 20 s / sqrt(20,000) = 0.14 s.
            assert!((last.as_secs_f64() - 20.0).abs() < 0.6, "{arrivals:?}: {last:?}");
        }
    }
}
