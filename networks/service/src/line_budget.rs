//! A rate limit for log lines that others can cause.

use std::time::{Duration, Instant};

/// The burst after a quiet period, in lines.
const BURST: u32 = 60;
/// The interval between lines after the burst.
const INTERVAL: Duration = Duration::from_secs(1);

/// A rate limit for log lines that others can cause without end.
#[derive(Clone, Copy, Debug)]
pub struct LogRateLimiter {
    left: u32,
    /// The time up to which intervals were credited.
    counted: Option<Instant>,
    left_out: u64,
}

impl Default for LogRateLimiter {
    fn default() -> Self {
        Self { left: BURST, counted: None, left_out: 0 }
    }
}

impl LogRateLimiter {
    /// Takes a line. Returns the number of lines suppressed before it, or `None` to suppress this line.
    pub fn take_line(&mut self, now: Instant) -> Option<u64> {
        let counted = *self.counted.get_or_insert(now);
        let more = now.saturating_duration_since(counted).as_secs() / INTERVAL.as_secs();
        self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(u32::MAX)).min(BURST);
        self.counted = Some(counted + INTERVAL * u32::try_from(more).unwrap_or(u32::MAX));
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out += 1;
                None
            }
        }
    }
    /// Takes a line, and logs the number of lines suppressed before it. False: suppress this line.
    pub fn allows_line(&mut self, now: Instant, about: &str) -> bool {
        let taken = self.take_line(now);
        if let Some(lines) = taken.filter(|lines| *lines > 0) {
            tracing::warn!(lines, about, "log lines suppressed");
        }
        taken.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_so_many_and_those_left_out_are_counted() {
        let (mut budget, begun) = (LogRateLimiter::default(), Instant::now());
        let at = |ms| begun + Duration::from_millis(ms);
        let first = (0..100_000).filter(|_| budget.take_line(at(0)) == Some(0)).count();
        assert_eq!((first, budget.left_out), (60, 99_940));
        assert_eq!(budget.take_line(at(999)), None);
        assert_eq!((budget.take_line(at(1000)), budget.take_line(at(1001))), (Some(99_941), None));
        assert_eq!((budget.take_line(at(3500)), budget.take_line(at(3500))), (Some(1), Some(0)));
        assert_eq!(
            (budget.take_line(at(3999)), budget.take_line(at(4000))),
            (None, Some(1)),
            "parts of an interval count"
        );
        let later = (0..100).filter(|_| budget.take_line(at(10_000_000)).is_some()).count();
        assert_eq!(later, 60);
    }
}
