//! The time of a live host.

use std::time::SystemTime;
use usher_core::{Duration, Instant, WallTime};

/// Maps the system's monotonic clock onto [`Instant`]. Copies show the same time, so one clock serves all
/// the threads of a program.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
    epoch: WallTime,
}

impl Clock {
    /// A clock at whose [`Instant::ZERO`] it is now.
    #[must_use]
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let nanos = Duration::from_nanos(u64::from(unix.subsec_nanos()));
        Self { start: std::time::Instant::now(), epoch: WallTime::from_unix_secs(unix.as_secs()) + nanos }
    }

    /// The time; it never goes back.
    #[must_use]
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The wall time at [`Instant::ZERO`], as the system showed it when the clock was started: what a
    /// machine's configuration takes.
    #[must_use]
    pub fn wall_epoch(&self) -> WallTime {
        self.epoch
    }

    /// The wall time at `now`, counted from [`wall_epoch`](Self::wall_epoch): the system's wall clock being
    /// set since then does not show.
    #[must_use]
    pub fn wall(&self, now: Instant) -> WallTime {
        self.epoch + now.since(Instant::ZERO)
    }

    /// The point of the system's clock that is `at`; `None` where it cannot be written.
    pub(crate) fn system(&self, at: Instant) -> Option<std::time::Instant> {
        self.start.checked_add(std::time::Duration::from_nanos(at.as_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_at_zero_and_its_wall_follows() {
        let clock = Clock::start();
        let copy = clock;
        let first = clock.now();
        assert!(copy.now() >= first);
        assert_eq!(clock.wall(Instant::ZERO), clock.wall_epoch());
        let later = Instant::ZERO + Duration::from_secs(90);
        assert_eq!(clock.wall(later), clock.wall_epoch() + Duration::from_secs(90));
        assert_eq!(
            clock.system(Instant::from_nanos(5)).map(|s| s - clock.start).map(|d| d.as_nanos()),
            Some(5)
        );
    }
}
