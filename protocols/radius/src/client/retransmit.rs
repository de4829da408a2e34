//! Retransmission times (RFC 5080 §2.2.1).

use usher_core::{Duration, SecureRng};

/// A retransmission policy: the times of retransmissions and of the timeout.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RetransmissionPolicy {
    /// The algorithm of RFC 5080 §2.2.1: each wait is twice the last.
    Backoff {
        /// IRT, the first wait.
        initial: Duration,
        /// MRT, the longest wait; zero: no limit.
        max: Duration,
        /// MRC, the number of transmissions; zero: no limit.
        max_count: u32,
        /// MRD, the time from the first transmission to the timeout; zero: no limit.
        max_duration: Duration,
        /// RAND: each wait changes by a random share, at most this much in either direction. RFC 5080 uses 0.1; zero:
        /// none.
        jitter: f64,
    },
    /// The scheme of older access servers: equal waits, with the timeout one wait after the last transmission.
    Fixed {
        /// The wait.
        interval: Duration,
        /// The number of transmissions, at least one.
        count: u32,
    },
}

impl Default for RetransmissionPolicy {
    /// The proposal of RFC 5080: IRT 2 s, MRT 16 s, MRC 5, MRD 30 s, jitter 0.1.
    fn default() -> Self {
        Self::Backoff {
            initial: Duration::from_secs(2),
            max: Duration::from_secs(16),
            max_count: 5,
            max_duration: Duration::from_secs(30),
            jitter: 0.1,
        }
    }
}

/// RAND × `base`, added to `wait`.
fn add_jitter(wait: Duration, base: Duration, jitter: f64, rng: &mut SecureRng) -> Duration {
    if jitter == 0.0 {
        return wait;
    }
    let share = jitter * (2.0 * rng.sample_unit() - 1.0);
    if share < 0.0 { wait - base.mul_f64(-share) } else { wait + base.mul_f64(share) }
}

impl RetransmissionPolicy {
    /// The wait after the first transmission.
    pub fn first_retransmission_wait(&self, rng: &mut SecureRng) -> Duration {
        match *self {
            Self::Backoff { initial, jitter, .. } => add_jitter(initial, initial, jitter, rng),
            Self::Fixed { interval, .. } => interval,
        }
    }
    /// The wait that follows a wait of `last`.
    pub fn next_retransmission_wait(&self, last: Duration, rng: &mut SecureRng) -> Duration {
        match *self {
            Self::Backoff { max, jitter, .. } => {
                let wait = add_jitter(last * 2, last, jitter, rng);
                if !max.is_zero() && wait > max { add_jitter(max, max, jitter, rng) } else { wait }
            }
            Self::Fixed { interval, .. } => interval,
        }
    }
    /// The number of transmissions.
    pub fn max_count(&self) -> u32 {
        match *self {
            Self::Backoff { max_count: 0, .. } => u32::MAX,
            Self::Backoff { max_count, .. } => max_count,
            Self::Fixed { count, .. } => count,
        }
    }
    /// The time from the first transmission to the timeout.
    pub fn max_duration(&self) -> Duration {
        match *self {
            Self::Backoff { max_duration, .. } if !max_duration.is_zero() => max_duration,
            _ => Duration::MAX,
        }
    }
    /// Returns the wait of a request that is sent once: as long as with retransmissions.
    pub(crate) fn single_transmission_wait(&self) -> Duration {
        match *self {
            Self::Backoff { initial, max, max_count, .. } => {
                if max_count == 0 {
                    return self.max_duration();
                }
                let (mut all, mut wait) = (Duration::ZERO, initial);
                for _ in 0..max_count.min(64) {
                    all += wait;
                    wait = if max.is_zero() { wait * 2 } else { (wait * 2).min(max) };
                }
                all
            }
            Self::Fixed { interval, count } => interval * u64::from(count),
        }
    }
    /// True if every wait is positive.
    pub(crate) fn is_valid(&self) -> bool {
        match *self {
            Self::Backoff { initial, jitter, .. } => !initial.is_zero() && (0.0..1.0).contains(&jitter),
            Self::Fixed { interval, .. } => !interval.is_zero(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;

    #[test]
    fn waits_stay_within_the_jitter_and_below_the_limit() {
        let mut rng = Seed::new(1).derive_secure_rng("test", 0);
        let policy = RetransmissionPolicy::default();
        let mut differ = false;
        for _ in 0..200 {
            let first = policy.first_retransmission_wait(&mut rng);
            assert!((1.8..=2.2).contains(&first.as_secs_f64()), "{first}");
            differ |= first != Duration::from_secs(2);
            let second = policy.next_retransmission_wait(first, &mut rng).as_secs_f64() / first.as_secs_f64();
            assert!((1.9..=2.1).contains(&second), "{second}");
            let capped = policy.next_retransmission_wait(Duration::from_secs(15), &mut rng);
            assert!((14.4..=17.6).contains(&capped.as_secs_f64()), "{capped}");
        }
        assert!(differ);
    }
}
