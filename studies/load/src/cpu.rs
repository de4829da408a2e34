//! What a process uses of the processors, as `/proc` tells it.

use std::fs;
use std::io;

/// Clock ticks a second in `/proc/PID/stat`: what every Linux on every processor of today has (`USER_HZ`).
const TICKS: f64 = 100.0;
/// By how much two readings of a process's ticks may be less than what it used: a tick of each kind.
const TICK_ERROR: f64 = 2.0 / TICKS + 0.001;

/// CPU time of a process since it began.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CpuTime {
    /// In user mode, seconds.
    pub user: f64,
    /// In the kernel, seconds.
    pub system: f64,
    /// Times that a thread of it went to sleep.
    pub sleeps: u64,
    /// What threads that still run had of the processors, seconds, to the nanosecond.
    exact: Option<f64>,
}

impl CpuTime {
    /// Of this process now: all its threads, the ended ones too, to 10 ms.
    ///
    /// # Errors
    /// There is no such process, or `/proc` cannot be read.
    pub fn for_process(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let unknown = || io::Error::other(format!("/proc/{pid}/stat has an unknown form"));
        let mut time = Self::parse_stat(&text).ok_or_else(unknown)?;
        let mut exact = Some(0.0);
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            // The first figure is nanoseconds on a processor (Linux, Documentation/scheduler/sched-stats).
            let ran = read("schedstat").split_ascii_whitespace().next().and_then(|n| n.parse::<u64>().ok());
            exact = exact.zip(ran).map(|(sum, ran)| sum + ran as f64 / 1e9);
            let status = read("status");
            let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            time.sleeps += sleeps.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0);
        }
        time.exact = exact;
        Ok(time)
    }

    /// The program's name, the second field, stands in parentheses and may hold anything.
    fn parse_stat(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace().skip(11).map(|f| f.parse::<u64>().ok());
        let ticks = |n: Option<Option<u64>>| n.flatten().map(|n| n as f64 / TICKS);
        Some(Self { user: ticks(fields.next())?, system: ticks(fields.next())?, ..Self::default() })
    }

    /// Both kinds.
    #[must_use]
    pub fn total_seconds(&self) -> f64 {
        self.user + self.system
    }

    /// What came since `earlier`: to the nanosecond where the kernel counts so and no thread has ended meanwhile, else to 10 ms. The
    /// ticks say how it is divided.
    #[must_use]
    pub fn delta_since(&self, earlier: &Self) -> Self {
        let (user, system) = (self.user - earlier.user, self.system - earlier.system);
        let exact = self.exact.zip(earlier.exact).map(|(now, then)| now - then);
        let exact = exact.filter(|exact| (exact - (user + system)).abs() <= TICK_ERROR);
        let (user, system) = match exact {
            Some(exact) if user + system > 0.0 => {
                (exact * user / (user + system), exact * system / (user + system))
            }
            // Less than a tick, of which nobody knows how it is divided.
            Some(exact) => (exact, 0.0),
            None => (user, system),
        };
        Self { user, system, sleeps: self.sleeps.saturating_sub(earlier.sleeps), exact }
    }

    /// Whether it is known to the nanosecond.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.exact.is_some()
    }
}

/// The largest resident memory of a process so far, octets; none where the system does not say.
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
        // Less than a tick of either kind is still known.
        let little = at(0.3, 0.1, Some(0.109)).delta_since(&at(0.3, 0.1, Some(0.1)));
        assert!((little.total_seconds() - 0.009).abs() < 1e-12, "{little:?}");
        // A thread has ended with what it had: the ticks alone know of it.
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
        // Of the process are at least this thread's 60 ms, and at most all processors for all the time.
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let most = begun.elapsed().as_secs_f64() * cores + TICK_ERROR;
        assert!((0.06 - TICK_ERROR..most).contains(&used.total_seconds()), "{used:?} of {most} s");
        assert!(peak_memory(std::process::id()).unwrap() > 100_000);
        assert!(CpuTime::for_process(u32::MAX).is_err());
    }
}
