//! When logins begin: an open loop, whose clients do not wait for each other, or a closed one, whose do.

use usher_core::{Duration, Instant, ModelRng};

/// How the logins of an open loop follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LoginArrivals {
    /// With exponential gaps, as many independent users give.
    #[default]
    Exponential,
    /// Evenly.
    Regular,
    /// So many at once, with exponential gaps from one such burst to the next: what comes after a failure of power or of a link,
    /// and how a server is seen busy while it is idle most of the time.
    Bursts(u32),
}

impl LoginArrivals {
    /// In a few words.
    #[must_use]
    pub fn describe(self) -> String {
        match self {
            Self::Exponential => "exponential gaps".to_owned(),
            Self::Regular => "equal gaps".to_owned(),
            Self::Bursts(size) => format!("bursts of {size}"),
        }
    }
}

/// When logins begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LoginPace {
    /// A closed loop: so many at once; the next begins when one ends.
    Closed {
        /// How many at once.
        concurrency: usize,
    },
    /// An open loop: so many a second, whatever the server does.
    Open {
        /// Logins a second.
        rate: f64,
        /// How they follow each other.
        arrivals: LoginArrivals,
    },
}

impl LoginPace {
    /// One of `parts` equal shares: the rate is divided, a concurrency so that the shares' sum is the whole.
    #[must_use]
    pub fn thread_share(self, part: usize, parts: usize) -> Self {
        match self {
            Self::Closed { concurrency } => {
                Self::Closed { concurrency: concurrency / parts + usize::from(part < concurrency % parts) }
            }
            Self::Open { rate, arrivals } => Self::Open { rate: rate / parts as f64, arrivals },
        }
    }
}

/// The times at which the logins of an open loop are meant to begin.
#[derive(Debug)]
pub(crate) struct LoginSchedule {
    mean: Duration,
    arrivals: LoginArrivals,
    next: Instant,
    /// Of the burst that is under way, those that are still to begin.
    of_burst: u32,
}

impl LoginSchedule {
    /// From `now` on.
    pub(crate) fn new(rate: f64, arrivals: LoginArrivals, now: Instant, rng: &mut ModelRng) -> Self {
        let mean = Duration::from_secs_f64(1.0 / rate.max(1e-6));
        let mut schedule = Self { mean, arrivals, next: now, of_burst: 0 };
        schedule.advance(rng);
        schedule
    }
    /// The next login's time.
    pub(crate) const fn next_time(&self) -> Instant {
        self.next
    }
    /// Takes it.
    pub(crate) fn advance(&mut self, rng: &mut ModelRng) -> Instant {
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
            (0..3).map(|i| closed(8).thread_share(i, 3)).collect::<Vec<_>>(),
            [closed(3), closed(3), closed(2)]
        );
        let open = LoginPace::Open { rate: 90.0, arrivals: LoginArrivals::Regular };
        assert_eq!(open.thread_share(2, 3), LoginPace::Open { rate: 30.0, arrivals: LoginArrivals::Regular });
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
