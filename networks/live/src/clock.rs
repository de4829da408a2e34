//! The clock of a live host.

use std::time::SystemTime;
use usher_core::{Duration, Instant, WallTime};

/// Maps the system's monotonic clock to [`Instant`], and its wall clock to [`WallTime`]. Copies show the same
/// time, so one clock serves all threads of a program.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Starts a clock: now is [`Instant::ZERO`].
    #[must_use]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// Returns the time; it never decreases.
    #[must_use]
    pub fn now(&self) -> Instant {
        let nanos = self.start.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the wall time at [`Instant::ZERO`], by the present wall clock: an input of machines. It changes when
    /// the clock is set, and slowly while it is slewed.
    #[must_use]
    pub fn wall_epoch(&self) -> WallTime {
        wall_epoch_from(SystemTime::now(), self.start.elapsed())
    }

    /// Returns the wall time at `now`, relative to [`wall_epoch`](Self::wall_epoch).
    #[must_use]
    pub fn wall_time(&self, now: Instant) -> WallTime {
        now.to_wall_time(self.wall_epoch())
    }

    /// Returns `at` as the system's instant; `None` if it is out of range.
    pub(crate) fn system_instant(&self, at: Instant) -> Option<std::time::Instant> {
        self.start.checked_add(std::time::Duration::from_nanos(at.as_nanos()))
    }
}

/// Detects that the wall clock was set or has drifted, for a machine.
#[derive(Debug)]
pub(crate) struct WallClockMonitor {
    clock: SystemClock,
    /// The last reported wall time; `None` before the first.
    reported_time: Option<WallTime>,
    next: Instant,
}

impl WallClockMonitor {
    /// Minimum interval between checks.
    const EVERY: Duration = Duration::from_secs(1);
    /// Drift that is not reported. A slewed clock is off by less, and no use of wall time needs more precision.
    const DRIFT: Duration = Duration::from_millis(100);

    pub(crate) const fn new(clock: SystemClock) -> Self {
        Self { clock, reported_time: None, next: Instant::ZERO }
    }
    /// Returns the wall time at [`Instant::ZERO`] if the machine must get it now.
    pub(crate) fn poll_change(&mut self, now: Instant) -> Option<WallTime> {
        if now < self.next {
            return None;
        }
        self.next = now + Self::EVERY;
        self.update_wall_epoch(self.clock.wall_epoch())
    }
    fn update_wall_epoch(&mut self, epoch: WallTime) -> Option<WallTime> {
        let near = |told: WallTime| epoch <= told + Self::DRIFT && told <= epoch + Self::DRIFT;
        if self.reported_time.is_some_and(near) {
            return None;
        }
        self.reported_time = Some(epoch);
        self.reported_time
    }
}

/// Returns the wall time `elapsed` before `system`.
fn wall_epoch_from(system: SystemTime, elapsed: std::time::Duration) -> WallTime {
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
        assert_eq!(wall_epoch_from(at(1000), Elapsed::ZERO), WallTime::from_unix_secs(1000));
        assert_eq!(wall_epoch_from(at(1010), Elapsed::from_secs(10)), WallTime::from_unix_secs(1000));
        assert_eq!(
            wall_epoch_from(at(4610), Elapsed::from_secs(10)),
            WallTime::from_unix_secs(4600),
            "an hour ahead"
        );
        assert_eq!(
            wall_epoch_from(at(5), Elapsed::from_secs(10)),
            WallTime::from_unix_secs(0),
            "before 1970"
        );
    }

    #[test]
    fn a_machine_gets_the_wall_time_first_and_after_a_step_or_drift() {
        let at = |millis| WallTime::from_unix_secs(1000) + Duration::from_millis(millis);
        let mut watch = WallClockMonitor::new(SystemClock::start());
        let shown =
            [0, 60, 100, 160, 60, 3_600_000, 0].map(|millis| watch.update_wall_epoch(at(millis)).is_some());
        assert_eq!(shown, [true, false, false, true, false, true, true]);
        let mut watch = WallClockMonitor::new(SystemClock::start());
        let early = [0, 999_999_999].map(|nanos| watch.poll_change(Instant::from_nanos(nanos)).is_some());
        assert_eq!((early, watch.next), ([true, false], Instant::ZERO + Duration::from_secs(1)));
        assert_eq!(watch.poll_change(watch.next), None, "it shows what it showed");
        assert_eq!(watch.next, Instant::ZERO + Duration::from_secs(2));
    }

    #[test]
    fn a_clock_starts_at_zero_and_its_wall_follows() {
        let clock = SystemClock::start();
        let copy = clock;
        let first = clock.now();
        assert!(copy.now() >= first);
        let later = Instant::ZERO + Duration::from_secs(90);
        let (wall, epoch) = (clock.wall_time(later).unix_secs(), clock.wall_epoch().unix_secs());
        assert!((epoch + 89..=epoch + 91).contains(&wall), "{wall} {epoch}");
        assert_eq!(
            clock.system_instant(Instant::from_nanos(5)).map(|s| s - clock.start).map(|d| d.as_nanos()),
            Some(5)
        );
    }
}
