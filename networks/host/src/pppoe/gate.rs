//! What holds connections of hosts back while the log of translations cannot take them. Whoever looks after that waits for no disk.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use usher_pppoe::netfilter::Netfilter;

/// How often it is looked how things are.
pub(super) const LOOKS: Duration = Duration::from_secs(1);
/// A disk that has not done for so long what it was asked is taken for one that does nothing. Under load one may need a second or two.
const STALL: Duration = Duration::from_secs(5);

/// What was counted, and how things are.
#[derive(Clone, Debug, Default)]
pub(super) struct TranslationCounters {
    pub(super) logged: Arc<AtomicU64>,
    pub(super) missed: Arc<AtomicU64>,
    /// How often connections were held back.
    holds: Arc<AtomicU64>,
    held: Arc<AtomicBool>,
}

impl TranslationCounters {
    pub(super) fn read(&self) -> [(String, u64); 3] {
        [
            ("translations_logged", &self.logged),
            ("translations_missed", &self.missed),
            ("translations_holds", &self.holds),
        ]
        .map(|(name, n)| (name.to_owned(), n.load(Ordering::Relaxed)))
    }
    /// Whether connections are held back.
    pub(super) fn held(&self) -> Arc<AtomicBool> {
        self.held.clone()
    }
}

/// How it is with the log, as those say who write it and who follow the kernel's table.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Locked for no longer than it takes to read or write it.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Since when the disk has been busy with what it was asked last.
    busy: Option<Instant>,
    /// Why the disk does not take connections.
    disk: Option<String>,
    /// Why not all connections come to it.
    kernel: Option<String>,
    /// Somebody does so no more.
    ended: bool,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// The disk is asked for something, `None`: it has done so.
    pub(super) fn busy(&self, since: Option<Instant>) {
        self.state().busy = since;
    }
    /// Why it does not take connections; `None`: it does.
    pub(super) fn disk(&self, why: Option<String>) {
        self.state().disk = why;
        self.changed.notify_all();
    }
    /// Why not all connections come to it; `None`: they do.
    pub(super) fn kernel(&self, why: Option<String>) {
        let mut state = self.state();
        if state.kernel != why {
            state.kernel = why;
            self.changed.notify_all();
        }
    }
    /// Why connections are to be held back.
    pub(super) fn why(&self, now: Instant) -> Option<String> {
        let state = self.state();
        let stalls = |since: &Instant| now.saturating_duration_since(*since) >= STALL;
        let stalled = state.busy.filter(stalls);
        let stalled = stalled.map(|_| format!("its disk has done nothing for {} s", STALL.as_secs()));
        let ended = state.ended.then(|| "a part of this program has ended that it needs".to_owned());
        ended.or(state.kernel.clone()).or(stalled).or(state.disk.clone())
    }
    fn wait(&self) {
        let _ = self.changed.wait_timeout(self.state(), LOOKS);
    }
}

/// Says, when the thread that has it ends, that nobody does its work.
pub(super) struct EndNotice(pub(super) Arc<Health>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_all();
    }
}

/// What holds connections back: one that cannot be logged is of somebody whom nobody could name later.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) table: Weak<Netfilter>,
    /// Where the log is.
    pub(super) folder: PathBuf,
    /// Octets that are to be free there.
    pub(super) least: u64,
}

impl Gate {
    /// Holds connections back, or lets them pass, as things are.
    pub(super) fn set(&self, why: Option<&str>, counts: &TranslationCounters) {
        let held = counts.held.load(Ordering::Relaxed);
        if held == why.is_some() {
            return;
        }
        // The table goes with the concentrator and its sessions.
        let Some(table) = self.table.upgrade() else { return };
        if let Err(error) = table.hold(why.is_some()) {
            tracing::error!(%error, "connections of hosts cannot be held back, or let pass again");
            return;
        }
        counts.held.store(!held, Ordering::Relaxed);
        match why {
            Some(why) => {
                counts.holds.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    folder = %self.folder.display(),
                    why,
                    "connections that hosts begin from IPv4 addresses are dropped: the log of translations cannot take them"
                );
            }
            None => tracing::info!("connections that hosts begin pass again: the log takes them"),
        }
    }
    /// Looks after it from now on.
    pub(super) fn guard(self, health: Arc<Health>, counts: TranslationCounters) -> io::Result<()> {
        let run = move || {
            loop {
                health.wait();
                self.set(health.why(Instant::now()).as_deref(), &counts);
            }
        };
        std::thread::Builder::new().name("usher-gate".to_owned()).spawn(run).map(drop)
    }
}

/// Why connections are to be held back: what the disk has free, how much that is to be, whether they are held back already, and whether
/// what there was to write is written. `None`: they may pass.
pub(super) fn reason(
    free: &io::Result<u64>,
    least: u64,
    held: bool,
    written: &io::Result<()>,
) -> Option<String> {
    if let Err(error) = written {
        return Some(format!("it cannot be written: {error}"));
    }
    // An eighth more lets them pass again, so that the two do not take turns.
    let least = if held { least.saturating_add(least / 8) } else { least };
    match free {
        Ok(free) if *free >= least => None,
        Ok(free) => Some(format!("{free} octets are free on its disk, and keep_free asks for {least}")),
        Err(error) => Some(format!("nobody knows what is free on its disk: {error}")),
    }
}

/// How many connections hosts have begun, for who wants to know where the room went.
#[derive(Debug, Default)]
pub(super) struct ConnectionCounts(BTreeMap<Ipv4Addr, u64>);

impl ConnectionCounts {
    pub(super) fn count(&mut self, host: Ipv4Addr) {
        *self.0.entry(host).or_default() += 1;
    }
    /// Those with the most, in words.
    pub(super) fn most(&self) -> String {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by(|a, b| b.1.cmp(a.1));
        all.iter().take(3).map(|(host, n)| format!("{host} {n}")).collect::<Vec<_>>().join(", ")
    }
}

/// Whether room is low for the first time: there is less than twice what is to be kept.
#[derive(Debug, Default)]
pub(super) struct LowSpace(bool);

impl LowSpace {
    pub(super) fn told(&mut self, free: u64, least: u64) -> bool {
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
        let free = |octets, held| reason(&Ok(octets), 800, held, &Ok(()));
        assert!(free(800, false).is_none() && free(900, true).is_none());
        assert!(free(799, false).unwrap().contains("799 octets are free"));
        assert!(free(899, true).is_some(), "it is not at once as before");
        assert!(reason(&Ok(1 << 40), 800, false, &failed()).unwrap().starts_with("it cannot be written"));
        assert!(reason(&failed().map(|()| 0), 0, false, &Ok(())).is_some(), "nor where nobody knows");
    }

    #[test]
    fn a_disk_that_does_nothing_and_a_kernel_that_says_nothing_are_reasons() {
        let (health, now) = (Health::default(), Instant::now());
        let why = |after| health.why(now + after);
        assert_eq!(why(STALL), None);
        health.busy(Some(now));
        assert_eq!(why(STALL - LOOKS), None);
        assert_eq!(why(STALL).unwrap(), "its disk has done nothing for 5 s");
        health.busy(Some(now + LOOKS));
        assert_eq!(why(STALL), None, "it has done something meanwhile");
        health.busy(None);
        health.kernel(Some("deaf".to_owned()));
        assert_eq!(why(LOOKS).unwrap(), "deaf");
        health.kernel(None);
        health.disk(Some("full".to_owned()));
        assert_eq!(why(LOOKS).unwrap(), "full");
        health.disk(None);
        assert_eq!(why(STALL), None);
        let health = Arc::new(health);
        let panics = std::thread::spawn({
            let alone = EndNotice(health.clone());
            move || drop(alone)
        });
        panics.join().unwrap();
        assert!(health.why(now).is_some(), "whoever does the work has ended");
    }

    #[test]
    fn low_room_is_told_once_with_who_took_it() {
        let mut low = LowSpace::default();
        let told = [2000, 1999, 1000, 2001, 2249, 2250, 1999].map(|free| low.told(free, 1000));
        assert_eq!(told, [false, true, false, false, false, false, true]);
        let mut begun = ConnectionCounts::default();
        for host in [7, 8, 8, 9, 9, 9, 10] {
            begun.count([10, 0, 0, host].into());
        }
        assert_eq!(begun.most(), "10.0.0.9 3, 10.0.0.8 2, 10.0.0.7 1");
    }
}
