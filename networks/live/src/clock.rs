//! The time of a live host.

use std::time::SystemTime;
use usher_core::{Duration, Instant, WallTime};

/// Maps the system's monotonic clock onto [`Instant`], and its wall clock onto [`WallTime`]. Copies show the same time,
/// so one clock serves all the threads of a program.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// A clock at whose [`Instant::ZERO`] it is now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// The time; it never goes back.
    #[must_use]
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The wall time at [`Instant::ZERO`] by what the system's wall clock shows now: what a machine's configuration
    /// takes. It changes when that clock is set, and slowly as it is slewed.
    #[must_use]
    pub fn wall_epoch(&self) -> WallTime {
        epoch(SystemTime::now(), self.start.elapsed())
    }

    /// The wall time at `now`, counted from [`wall_epoch`](Self::wall_epoch).
    #[must_use]
    pub fn wall(&self, now: Instant) -> WallTime {
        self.wall_epoch() + now.since(Instant::ZERO)
    }

    /// The point of the system's clock that is `at`; `None` where it cannot be written.
    pub(crate) fn system(&self, at: Instant) -> Option<std::time::Instant> {
        self.start.checked_add(std::time::Duration::from_nanos(at.as_nanos()))
    }
}

/// What a wall clock showed `elapsed` before it showed `system`.
fn epoch(system: SystemTime, elapsed: std::time::Duration) -> WallTime {
    let unix = system.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(elapsed);
    WallTime::from_unix_secs(unix.as_secs()) + Duration::from_nanos(u64::from(unix.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration as Elapsed;

    #[test]
    fn the_wall_follows_the_system_when_its_clock_is_set() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Elapsed::from_secs(seconds);
        assert_eq!(epoch(at(1000), Elapsed::ZERO), WallTime::from_unix_secs(1000));
        assert_eq!(epoch(at(1010), Elapsed::from_secs(10)), WallTime::from_unix_secs(1000));
        assert_eq!(epoch(at(4610), Elapsed::from_secs(10)), WallTime::from_unix_secs(4600), "an hour ahead");
        assert_eq!(epoch(at(5), Elapsed::from_secs(10)), WallTime::from_unix_secs(0), "before 1970");
    }

    #[test]
    fn a_clock_starts_at_zero_and_its_wall_follows() {
        let clock = Clock::start();
        let copy = clock;
        let first = clock.now();
        assert!(copy.now() >= first);
        let later = Instant::ZERO + Duration::from_secs(90);
        let (wall, epoch) = (clock.wall(later).unix_secs(), clock.wall_epoch().unix_secs());
        assert!((epoch + 89..=epoch + 91).contains(&wall), "{wall} {epoch}");
        assert_eq!(
            clock.system(Instant::from_nanos(5)).map(|s| s - clock.start).map(|d| d.as_nanos()),
            Some(5)
        );
    }
}
