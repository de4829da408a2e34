//! The gate: it drops new connections of hosts while the translation log cannot record them. Its thread never waits
//! for a disk.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use usher_pppoe::netfilter::NetfilterTable;

/// The interval of checks.
pub(super) const LOOKS: Duration = Duration::from_secs(1);
/// A disk operation that lasts longer counts as a stall. Under load a disk may need a second or two.
const STALL: Duration = Duration::from_secs(5);

/// The counters of the translation log, and the state of the gate.
#[derive(Clone, Debug, Default)]
pub(super) struct TranslationCounters {
    pub(super) logged: Arc<AtomicU64>,
    pub(super) missed: Arc<AtomicU64>,
    /// The number of times that the gate closed.
    hold_count: Arc<AtomicU64>,
    is_holding: Arc<AtomicBool>,
}

impl TranslationCounters {
    pub(super) fn counter_values(&self) -> [(String, u64); 3] {
        [
            ("translations_logged", &self.logged),
            ("translations_missed", &self.missed),
            ("translations_holds", &self.hold_count),
        ]
        .map(|(name, n)| (name.to_owned(), n.load(Ordering::Relaxed)))
    }
    /// Returns the flag that is true while new connections are dropped.
    pub(super) fn hold_flag(&self) -> Arc<AtomicBool> {
        self.is_holding.clone()
    }
}

/// The health of the log, as reported by its writer and by the reader of the kernel's table.
#[derive(Debug, Default)]
pub(super) struct TranslationLogHealth {
    /// Locked only to read or write it.
    state: Mutex<TranslationLogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TranslationLogState {
    /// The start of the disk operation in progress.
    busy: Option<Instant>,
    /// Why the disk cannot record connections.
    disk: Option<String>,
    /// Why the kernel's notifications are incomplete.
    kernel: Option<String>,
    /// True once a reporting thread has ended.
    has_ended: bool,
}

impl TranslationLogHealth {
    fn lock_state(&self) -> MutexGuard<'_, TranslationLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Reports the start of a disk operation. `None`: it has ended.
    pub(super) fn set_disk_busy(&self, since: Option<Instant>) {
        self.lock_state().busy = since;
    }
    /// Reports why the disk cannot record connections. `None`: it can.
    pub(super) fn set_disk_error(&self, why: Option<String>) {
        self.lock_state().disk = why;
        self.changed.notify_all();
    }
    /// Reports why the kernel's notifications are incomplete. `None`: they are complete.
    pub(super) fn set_kernel_error(&self, why: Option<String>) {
        let mut state = self.lock_state();
        if state.kernel != why {
            state.kernel = why;
            self.changed.notify_all();
        }
    }
    /// Returns why new connections must be dropped, if so.
    pub(super) fn hold_reason(&self, now: Instant) -> Option<String> {
        let state = self.lock_state();
        let stalls = |since: &Instant| now.saturating_duration_since(*since) >= STALL;
        let stalled = state.busy.filter(stalls);
        let stalled = stalled.map(|_| format!("its disk has not responded for {} s", STALL.as_secs()));
        let ended = state.has_ended.then(|| "one of its threads has ended".to_owned());
        ended.or(state.kernel.clone()).or(stalled).or(state.disk.clone())
    }
    fn wait_for_change(&self) {
        let _ = self.changed.wait_timeout(self.lock_state(), LOOKS);
    }
}

/// Reports the end of the thread that owns this value.
pub(super) struct ThreadEndReporter(pub(super) Arc<TranslationLogHealth>);

impl Drop for ThreadEndReporter {
    fn drop(&mut self) {
        self.0.lock_state().has_ended = true;
        self.0.changed.notify_all();
    }
}

/// The gate of new connections. A connection that is not logged could never be attributed to a subscriber.
#[derive(Debug)]
pub(super) struct NewConnectionGate {
    pub(super) table: Weak<NetfilterTable>,
    /// The folder of the log.
    pub(super) folder: PathBuf,
    /// The octets that must stay free there.
    pub(super) least: u64,
}

impl NewConnectionGate {
    /// Closes or opens the gate.
    pub(super) fn set_connection_hold(&self, why: Option<&str>, counts: &TranslationCounters) {
        let held = counts.is_holding.load(Ordering::Relaxed);
        if held == why.is_some() {
            return;
        }
        // If the table is gone, the concentrator has ended with its sessions, and there is nothing to block.
        let Some(table) = self.table.upgrade() else { return };
        if let Err(error) = table.drop_new_connections(why.is_some()) {
            tracing::error!(%error, "cannot block or unblock new connections of hosts");
            return;
        }
        counts.is_holding.store(!held, Ordering::Relaxed);
        match why {
            Some(why) => {
                counts.hold_count.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    folder = %self.folder.display(),
                    why,
                    "new IPv4 connections of hosts are dropped: the translation log cannot record them"
                );
            }
            None => tracing::info!("new connections of hosts pass again: the translation log records them"),
        }
    }
    /// Starts the thread that controls the gate.
    pub(super) fn start_connection_gate_thread(
        self,
        health: Arc<TranslationLogHealth>,
        counts: TranslationCounters,
    ) -> io::Result<()> {
        let run = move || {
            loop {
                health.wait_for_change();
                self.set_connection_hold(health.hold_reason(Instant::now()).as_deref(), &counts);
            }
        };
        std::thread::Builder::new().name("usher-gate".to_owned()).spawn(run).map(drop)
    }
}

/// Returns why the gate must be closed: from the free octets, the octets that must stay free, the gate's state, and
/// whether all pending records are written. `None`: it may open.
pub(super) fn disk_hold_reason(
    free: &io::Result<u64>,
    least: u64,
    held: bool,
    written: &io::Result<()>,
) -> Option<String> {
    if let Err(error) = written {
        return Some(format!("it cannot be written: {error}"));
    }
    // A closed gate opens again only with one eighth more free space, so that it does not flap.
    let least = if held { least.saturating_add(least / 8) } else { least };
    match free {
        Ok(free) if *free >= least => None,
        Ok(free) => Some(format!("{free} octets are free on its disk, but keep_free requires {least}")),
        Err(error) => Some(format!("cannot read the free space of its disk: {error}")),
    }
}

/// Counts the connections per host, so that the log can name the hosts that fill the disk.
#[derive(Debug, Default)]
pub(super) struct ConnectionCountsByHost(BTreeMap<Ipv4Addr, u64>);

impl ConnectionCountsByHost {
    pub(super) fn count_connection(&mut self, host: Ipv4Addr) {
        *self.0.entry(host).or_default() += 1;
    }
    /// Formats the hosts with the most connections.
    pub(super) fn busiest_hosts(&self) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by(|a, b| b.1.cmp(a.1));
        all.iter().take(3).map(|(host, n)| format!("{host} {n}")).collect::<Vec<_>>().join(", ")
    }
}

/// Detects the first time that free space falls below twice the minimum.
#[derive(Debug, Default)]
pub(super) struct LowDiskSpaceDetector(bool);

impl LowDiskSpaceDetector {
    pub(super) fn has_space_become_low(&mut self, free: u64, least: u64) -> bool {
        let before = self.0;
        let edge = least.saturating_mul(2);
        self.0 = free < if before { edge.saturating_add(least / 4) } else { edge };
        self.0 && !before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_held_back_while_the_log_cannot_take_them() {
        let failed = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let free = |octets, held| disk_hold_reason(&Ok(octets), 800, held, &Ok(()));
        assert!(free(800, false).is_none() && free(900, true).is_none());
        assert!(free(799, false).unwrap().contains("799 octets are free"));
        assert!(free(899, true).is_some(), "it is not at once as before");
        assert!(
            disk_hold_reason(&Ok(1 << 40), 800, false, &failed())
                .unwrap()
                .starts_with("it cannot be written")
        );
        assert!(
            disk_hold_reason(&failed().map(|()| 0), 0, false, &Ok(())).is_some(),
            "nor where nobody knows"
        );
    }

    #[test]
    fn a_stalled_disk_and_a_kernel_error_are_hold_reasons() {
        let (health, now) = (TranslationLogHealth::default(), Instant::now());
        let why = |after| health.hold_reason(now + after);
        assert_eq!(why(STALL), None);
        health.set_disk_busy(Some(now));
        assert_eq!(why(STALL - LOOKS), None);
        assert_eq!(why(STALL).unwrap(), "its disk has not responded for 5 s");
        health.set_disk_busy(Some(now + LOOKS));
        assert_eq!(why(STALL), None, "it has done something meanwhile");
        health.set_disk_busy(None);
        health.set_kernel_error(Some("deaf".to_owned()));
        assert_eq!(why(LOOKS).unwrap(), "deaf");
        health.set_kernel_error(None);
        health.set_disk_error(Some("full".to_owned()));
        assert_eq!(why(LOOKS).unwrap(), "full");
        health.set_disk_error(None);
        assert_eq!(why(STALL), None);
        let health = Arc::new(health);
        let panics = std::thread::spawn({
            let alone = ThreadEndReporter(health.clone());
            move || drop(alone)
        });
        panics.join().unwrap();
        assert!(health.hold_reason(now).is_some(), "whoever does the work has ended");
    }

    #[test]
    fn low_room_is_told_once_with_who_took_it() {
        let mut low = LowDiskSpaceDetector::default();
        let told =
            [2000, 1999, 1000, 2001, 2249, 2250, 1999].map(|free| low.has_space_become_low(free, 1000));
        assert_eq!(told, [false, true, false, false, false, false, true]);
        let mut begun = ConnectionCountsByHost::default();
        for host in [7, 8, 8, 9, 9, 9, 10] {
            begun.count_connection([10, 0, 0, host].into());
        }
        assert_eq!(begun.busiest_hosts(), "10.0.0.9 3, 10.0.0.8 2, 10.0.0.7 1");
    }
}
