//! The processor use of a process, from `/proc`.

use std::fs;
use std::io;

/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`), the same on all current Linux architectures.
const TICKS: f64 = 100.0;
/// Maximum underestimate of the difference of two readings by ticks: a tick of each kind.
const TICK_ERROR: f64 = 2.0 / TICKS + 0.001;

/// CPU time of a process since its start.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CpuTime {
    /// In user mode, seconds.
    pub user: f64,
    /// In the kernel, seconds.
    pub system: f64,
    /// Number of times that a thread went to sleep.
    pub sleeps: u64,
    /// Seconds of processor time of the running threads, to the nanosecond.
    exact: Option<f64>,
}

impl CpuTime {
    /// Returns the time of a process until now: all its threads, including ended ones, to 10 ms.
    ///
    /// # Errors
    /// The process does not exist, or `/proc` cannot be read.
    pub fn for_process(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let unknown = || io::Error::other(format!("/proc/{pid}/stat has an unknown form"));
        let mut time = Self::parse_stat(&text).ok_or_else(unknown)?;
        let mut exact = Some(0.0);
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            // The first field is the time on a processor in nanoseconds (Linux, Documentation/scheduler/sched-stats).
            let ran = read("schedstat").split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok());
            exact = exact.zip(ran).map(|(sum, ran)| sum + ran as f64 / 1e9);
            let status = read("status");
            let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            time.sleeps += sleeps.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        time.exact = exact;
        Ok(time)
    }

    /// The program's name, the second field, is in parentheses and may contain any characters.
    fn parse_stat(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace().skip(11).map(|f| f.parse::<u64>().ok());
        let ticks = |n: Option<Option<u64>>| n.flatten().map(|n| n as f64 / TICKS);
        Some(Self { user: ticks(fields.next())?, system: ticks(fields.next())?, ..Self::default() })
    }

    /// Returns the sum of user and system time.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.user + self.system
    }

    /// Returns the time since `earlier`. It is exact to the nanosecond if the kernel provides that and no thread has
    /// ended meanwhile; otherwise to 10 ms. The ticks divide it into user and system time.
    #[must_use]
    pub fn delta_since(&self, earlier: &Self) -> Self {
        let (user, system) = (self.user - earlier.user, self.system - earlier.system);
        let exact = self.exact.zip(earlier.exact).map(|(now, then)| now - then);
        let exact = exact.filter(|exact| (exact - (user + system)).abs() <= TICK_ERROR);
        let (user, system) = match exact {
            Some(exact) if user + system > 0.0 => {
                (exact * user / (user + system), exact * system / (user + system))
            }
            // Both counters are below one tick, so the division into user and system time is unknown.
            Some(exact) => (exact, 0.0),
            None => (user, system),
        };
        Self { user, system, sleeps: self.sleeps.saturating_sub(earlier.sleeps), exact }
    }

    /// True if the time is exact to the nanosecond.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.exact.is_some()
    }
}

/// Returns the peak resident memory of a process in octets; `None` if the system does not provide it.
#[must_use]
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_disturb() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 3 4 20 0 1 0 100 0 0";
        let time = CpuTime { user: 2.5, system: 0.5, ..CpuTime::default() };
        assert_eq!(CpuTime::parse_stat(stat), Some(time));
        assert_eq!(CpuTime::parse_stat("7 (x"), None);
    }

    #[test]
    fn nanoseconds_are_divided_as_ticks_are() {
        let at = |user, system, exact| CpuTime { user, system, sleeps: 7, exact };
        let since = at(0.3, 0.1, Some(0.412)).delta_since(&at(0.0, 0.0, Some(0.0)));
        assert!(
            (since.total_seconds() - 0.412).abs() < 1e-12 && (since.user - 0.309).abs() < 1e-12,
            "{since:?}"
        );
        // Less than a tick of either kind is still measured.
        let little = at(0.3, 0.1, Some(0.109)).delta_since(&at(0.3, 0.1, Some(0.1)));
        assert!((little.total_seconds() - 0.009).abs() < 1e-12, "{little:?}");
        // An ended thread takes its exact time along: only the ticks include it.
        let ended = at(0.3, 0.1, Some(0.1)).delta_since(&at(0.0, 0.0, Some(0.0)));
        assert!(!ended.is_exact() && (ended.total_seconds() - 0.4).abs() < 1e-12);
        assert!(
            (at(0.3, 0.1, None).delta_since(&at(0.0, 0.0, Some(0.0))).total_seconds() - 0.4).abs() < 1e-12
        );
    }

    #[test]
    fn this_process_has_its_time_and_memory() {
        let before = CpuTime::for_process(std::process::id()).unwrap();
        let (begun, own) = (std::time::Instant::now(), usher_live::thread_cpu_time());
        while usher_live::thread_cpu_time() < own + std::time::Duration::from_millis(60) {}
        let used = CpuTime::for_process(std::process::id()).unwrap().delta_since(&before);
        // The process used at least this thread's 60 ms, and at most all processors for the whole time.
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let most = begun.elapsed().as_secs_f64() * cores + TICK_ERROR;
        assert!((0.06 - TICK_ERROR..most).contains(&used.total_seconds()), "{used:?} of {most} s");
        assert!(peak_memory(std::process::id()).unwrap() > 100_000);
        assert!(CpuTime::for_process(u32::MAX).is_err());
    }
}
