//! What a process uses of the processors, as `/proc` tells it.

use std::fs;
use std::io;

/// Clock ticks a second in `/proc/PID/stat`: what every Linux on every processor of today has (`USER_HZ`).
const TICKS: f64 = 100.0;

/// CPU time of a process since it began, all its threads, the ended ones too.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuTime {
    /// In user mode, seconds, to 10 ms.
    pub user: f64,
    /// In the kernel, seconds, to 10 ms.
    pub system: f64,
}

impl CpuTime {
    /// Of this process now.
    ///
    /// # Errors
    /// There is no such process, or `/proc` cannot be read.
    pub fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown form")))
    }

    /// The program's name, the second field, stands in parentheses and may hold anything.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace().skip(11).map(|f| f.parse::<u64>().ok());
        let ticks = |n: Option<Option<u64>>| n.flatten().map(|n| n as f64 / TICKS);
        Some(Self { user: ticks(fields.next())?, system: ticks(fields.next())? })
    }

    /// Both.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.user + self.system
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self { user: self.user - earlier.user, system: self.system - earlier.system }
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
        assert_eq!(CpuTime::parse(stat), Some(CpuTime { user: 2.5, system: 0.5 }));
        assert_eq!(CpuTime::parse("7 (x"), None);
    }

    #[test]
    fn this_process_has_its_time_and_memory() {
        let before = CpuTime::of(std::process::id()).unwrap();
        let end = std::time::Instant::now() + std::time::Duration::from_millis(60);
        while std::time::Instant::now() < end {}
        let used = CpuTime::of(std::process::id()).unwrap().since(&before);
        assert!(used.total() >= 0.0 && used.total() < 60.0, "{used:?}");
        assert!(peak_memory(std::process::id()).unwrap() > 100_000);
        assert!(CpuTime::of(u32::MAX).is_err());
    }
}
