//! The log of translated connections on the disk, a file for each day beside that of sessions, as the kernel's table of connections
//! tells of them.

use super::daily::{Daily, day, lines};
use super::ipfix::Ipfix;
use super::track::TrackLog;
use crate::setup::wall;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use usher_access::pool::{PoolConfig, Range};
use usher_concentrator::track::{Behind, Translated, TranslationRecord};
use usher_core::WallTime;
use usher_pppoe::netfilter::conntrack::Connection;
use usher_pppoe::netfilter::{Change, Follower, Netfilter};

/// What files are called, before the day.
pub(super) const KIND: &str = "translations";

/// Records that wait for a disk that takes none, at most.
const WAITING: usize = 1 << 16;
/// How often it is looked whether the disk has room.
const LOOKS: Duration = Duration::from_secs(1);

/// What was counted, and how things are.
#[derive(Clone, Debug, Default)]
pub(super) struct TranslationCounters {
    logged: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
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

struct Log {
    files: Daily,
    day: String,
    file: File,
    /// The last line is not whole.
    torn: bool,
    /// Records that could not be written yet.
    waiting: VecDeque<TranslationRecord>,
    /// More of them came than may wait.
    lost: bool,
    /// Connections that began, or ended, and are in the log.
    logged: Arc<AtomicU64>,
}

impl Log {
    fn open(files: Daily, today: String, logged: Arc<AtomicU64>) -> io::Result<Self> {
        let file = files.append(&today)?;
        Ok(Self { files, day: today, file, torn: false, waiting: VecDeque::new(), lost: false, logged })
    }
    /// Writes a record behind those that wait, or has it wait, too.
    fn write(&mut self, record: TranslationRecord) -> io::Result<()> {
        if self.waiting.len() < WAITING {
            self.waiting.push_back(record);
        } else {
            self.lost = true;
        }
        self.settle()
    }
    /// Writes those that wait.
    fn settle(&mut self) -> io::Result<()> {
        while let Some(record) = self.waiting.front().copied() {
            self.line(&record)?;
            self.waiting.pop_front();
            self.logged
                .fetch_add(u64::from(!matches!(record, TranslationRecord::Started(_))), Ordering::Relaxed);
        }
        Ok(())
    }
    fn line(&mut self, record: &TranslationRecord) -> io::Result<()> {
        let today = day(record.at());
        if today > self.day {
            (self.file, self.day, self.torn) = (self.files.append(&today)?, today, false);
        }
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        // A whole line at once: nobody else writes here.
        self.file.write_all(record.to_line().as_bytes())?;
        self.torn = false;
        Ok(())
    }
}

/// What holds connections back while the log cannot take them: a line that cannot be written is of somebody whom nobody could name later.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) table: Weak<Netfilter>,
    /// Where the log is.
    pub(super) folder: PathBuf,
    /// Octets that are to be free there.
    pub(super) least: u64,
}

impl Gate {
    /// Octets that are free where the log is.
    fn free(&self) -> io::Result<u64> {
        let of = rustix::fs::statvfs(&self.folder)?;
        Ok(of.f_bavail.saturating_mul(of.f_frsize))
    }
    /// Holds connections back, or lets them pass, as things are. Whether that is so now.
    fn set(&self, why: Option<&str>, counts: &TranslationCounters) -> bool {
        let held = counts.held.load(Ordering::Relaxed);
        if held == why.is_some() {
            return true;
        }
        // The table goes with the concentrator and its sessions.
        let Some(table) = self.table.upgrade() else { return true };
        if let Err(error) = table.hold(why.is_some()) {
            tracing::error!(%error, "connections of hosts cannot be held back, or let pass again");
            return false;
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
        true
    }
}

/// Why connections are to be held back: what the disk has free, how much that is to be, whether they are held back already, and whether
/// what there was to write is written. `None`: they may pass.
fn reason(free: io::Result<u64>, least: u64, held: bool, written: io::Result<()>) -> Option<String> {
    if let Err(error) = written {
        return Some(format!("it cannot be written: {error}"));
    }
    // An eighth more lets them pass again, so that the two do not take turns.
    let least = if held { least.saturating_add(least / 8) } else { least };
    match free {
        Ok(free) if free >= least => None,
        Ok(free) => Some(format!("{free} octets are free on its disk, and keep_free asks for {least}")),
        Err(error) => Some(format!("nobody knows what is free on its disk: {error}")),
    }
}

/// Begins to log, and to tell collectors, whose connections are translated: those of hosts, by their pools or their sessions.
pub(super) fn follow(
    track: &TrackLog,
    gate: Gate,
    pools: &[PoolConfig],
    ipfix: Option<Ipfix>,
) -> io::Result<TranslationCounters> {
    let mut follower = Follower::new()?;
    let counters = TranslationCounters::default();
    let mut log = Log::open(Daily::new(&track.folder(), KIND), day(wall()), counters.logged.clone())?;
    // Where that cannot be written yet, the gate finds it so.
    let _ = log.write(TranslationRecord::Started(wall()));
    let log = Arc::new(Mutex::new(log));
    let ranges: Vec<Range> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
    let fails = guard(gate, &log, &counters)?;
    let (track, counts) = (track.clone(), counters.clone());
    let run = move || {
        let write = |record| {
            let written = locked(&log).write(record);
            // What cannot be written waits; nothing is to come to it.
            if written.is_err() {
                let _ = fails.send(());
            }
            written.is_ok()
        };
        loop {
            let (connection, protocol, begins) = match follower.wait() {
                Ok(Change::Begun(connection, protocol)) => (connection, protocol, true),
                Ok(Change::Ended(connection, protocol)) => (connection, protocol, false),
                Ok(Change::Missed) => {
                    counts.missed.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(
                        "connections come faster than they can be logged: some are not in the log"
                    );
                    anew(&mut follower, &write);
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "the kernel tells of connections no longer: none is let through from here on");
                    // Whoever guards the gate takes this end of it for that.
                    return;
                }
            };
            let Some(one) = translated(&connection, protocol) else { continue };
            let inside = *one.inside.ip();
            if !of_pools(&ranges, inside) && !track.has_had(inside) {
                continue;
            }
            let at = wall();
            let record =
                if begins { TranslationRecord::Begin(at, one) } else { TranslationRecord::End(at, one) };
            let whole = write(record);
            if let Some(ipfix) = &ipfix {
                ipfix.connection(at, begins, one);
            }
            if whole && std::mem::take(&mut locked(&log).lost) {
                counts.missed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("more connections came than could wait for the disk: some are not in the log");
                anew(&mut follower, &write);
            }
        }
    };
    std::thread::Builder::new().name("usher-translate".to_owned()).spawn(run)?;
    Ok(counters)
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of the connections of before have ended is not known: the table tells anew which there are.
fn anew(follower: &mut Follower, write: &impl Fn(TranslationRecord) -> bool) {
    match Follower::new() {
        Ok(anew) => {
            write(TranslationRecord::Started(wall()));
            *follower = anew;
        }
        Err(error) => tracing::error!(%error, "the table of connections cannot be read anew"),
    }
}

/// Writes what waits, and has the gate be as things are.
fn look(gate: &Gate, log: &Mutex<Log>, counts: &TranslationCounters) {
    let written = locked(log).settle();
    let held = counts.held.load(Ordering::Relaxed);
    gate.set(reason(gate.free(), gate.least, held, written).as_deref(), counts);
}

/// Begins to look after the gate. It is looked at at once when it is told that something could not be written, and shut for good when nobody
/// is left who could tell.
fn guard(gate: Gate, log: &Arc<Mutex<Log>>, counters: &TranslationCounters) -> io::Result<Sender<()>> {
    let (fails, failed) = channel();
    let (log, counts) = (log.clone(), counters.clone());
    // Before there is a connection.
    look(&gate, &log, &counts);
    let run = move || {
        loop {
            match failed.recv_timeout(LOOKS) {
                Ok(()) => while failed.try_recv().is_ok() {},
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            look(&gate, &log, &counts);
        }
        while !gate.set(Some("the kernel tells of connections no longer"), &counts) {
            std::thread::sleep(LOOKS);
        }
    };
    std::thread::Builder::new().name("usher-gate".to_owned()).spawn(run)?;
    Ok(fails)
}

/// What of a connection is translated: its begun end. `None`: it goes as it is.
fn translated(Connection { original, reply }: &Connection, protocol: u8) -> Option<Translated> {
    let (SocketAddr::V4(inside), SocketAddr::V4(outside)) = (original.source, reply.destination) else {
        return None;
    };
    (inside != outside).then_some(Translated { protocol, inside, outside })
}

/// Whether an address is of these ranges.
pub(super) fn of_pools(ranges: &[Range], address: Ipv4Addr) -> bool {
    let address = IpAddr::V4(address);
    ranges.iter().any(|range| match range {
        Range::Addresses { first, last } => (*first..=*last).contains(&address),
        Range::Prefixes { .. } => false,
    })
}

/// The hosts that stood behind an end outside in the second that begins then, and how many lines cannot be read.
pub(super) fn behind(folder: &Path, outside: SocketAddrV4, at: WallTime) -> io::Result<(Vec<Ipv4Addr>, u64)> {
    let wanted = day(at);
    let mut behind = Behind::new(outside, at);
    let files = Daily::new(folder, KIND);
    for day in files.days()?.iter().rev().filter(|day| **day <= wanted) {
        // A day may have more lines than there is memory.
        behind.read(lines(&files.path(day))?)?;
        if behind.decided() {
            break;
        }
    }
    Ok((behind.inside(), behind.unreadable()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use usher_pppoe::netfilter::conntrack::Direction;

    #[test]
    fn the_end_that_is_translated_is_the_begun_one() {
        let direction = |source: &str, destination: &str| Direction {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let original = direction("10.0.0.7:40000", "203.0.113.2:80");
        let connection = |reply| Connection { original, reply };
        let one = translated(&connection(direction("203.0.113.2:80", "192.0.2.1:1025")), 6).unwrap();
        let expected = ("10.0.0.7:40000".to_owned(), "192.0.2.1:1025".to_owned());
        assert_eq!((one.inside.to_string(), one.outside.to_string()), expected);
        assert_eq!(translated(&connection(direction("203.0.113.2:80", "10.0.0.7:40000")), 6), None);
        // Where the destination is translated, the source is not: as of an IDENT query that is led to us.
        assert_eq!(translated(&connection(direction("10.0.0.1:1113", "10.0.0.7:40000")), 6), None);
    }

    #[test]
    fn a_days_file_is_followed_by_the_next_days() {
        let folder = std::env::temp_dir().join(format!("usher-translations-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let at = |secs: u64| WallTime::from_unix_secs(1_790_000_000 + secs);
        let one = Translated {
            protocol: 6,
            inside: "10.0.0.7:40000".parse().unwrap(),
            outside: "192.0.2.1:1025".parse().unwrap(),
        };
        let mut log = Log::open(Daily::new(&folder, KIND), day(at(0)), Arc::default()).unwrap();
        log.write(TranslationRecord::Started(at(0))).unwrap();
        log.write(TranslationRecord::Begin(at(5), one)).unwrap();
        log.write(TranslationRecord::End(at(2 * 86_400), one)).unwrap();
        assert_eq!(Daily::new(&folder, KIND).days().unwrap().len(), 2);
        let hosts = |secs| behind(&folder, one.outside, at(secs)).unwrap().0;
        assert_eq!(hosts(86_400), [*one.inside.ip()], "in a day without a file of its own");
        assert!(hosts(3 * 86_400).is_empty() && hosts(1).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_disk_does_not_take_waits_in_its_order() {
        let folder = std::env::temp_dir().join(format!("usher-waiting-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let at = |secs: u64| WallTime::from_unix_secs(1_790_000_000 + secs);
        let one = |host: u8| Translated {
            protocol: 6,
            inside: SocketAddrV4::new([10, 0, 0, host].into(), 40_000),
            outside: "192.0.2.1:1025".parse().unwrap(),
        };
        let logged = Arc::new(AtomicU64::new(0));
        let mut log = Log::open(Daily::new(&folder, KIND), day(at(0)), logged.clone()).unwrap();
        log.write(TranslationRecord::Started(at(0))).unwrap();
        // A full disk, which has taken half a line.
        log.file.write_all(b"{\"event\":\"be").unwrap();
        log.torn = true;
        let path = log.files.path(&log.day);
        let whole = std::mem::replace(&mut log.file, File::open(&path).unwrap());
        log.write(TranslationRecord::Begin(at(5), one(7))).unwrap_err();
        log.write(TranslationRecord::End(at(6), one(7))).unwrap_err();
        assert_eq!((logged.load(Ordering::Relaxed), log.waiting.len(), log.lost), (0, 2, false));
        log.file = whole;
        log.write(TranslationRecord::Begin(at(9), one(8))).unwrap();
        assert_eq!((logged.load(Ordering::Relaxed), log.waiting.len()), (3, 0));
        let hosts = |secs| behind(&folder, one(7).outside, at(secs)).unwrap();
        assert_eq!((hosts(5).0, hosts(9)), (vec![*one(7).inside.ip()], (vec![*one(8).inside.ip()], 0)));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 5, "one of them is torn");
        // Of more than may wait it is known that some are lost.
        log.file = File::open(&path).unwrap();
        for _ in 0..=WAITING {
            log.write(TranslationRecord::Begin(at(9), one(9))).unwrap_err();
        }
        assert_eq!((log.waiting.len(), log.lost), (WAITING, true));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn connections_are_held_back_while_the_log_cannot_take_them() {
        let failed = || Err(io::Error::from(io::ErrorKind::StorageFull));
        let free = |octets, held| reason(Ok(octets), 800, held, Ok(()));
        assert!(free(800, false).is_none() && free(900, true).is_none());
        assert!(free(799, false).unwrap().contains("799 octets are free"));
        assert!(free(899, true).is_some(), "it is not at once as before");
        assert!(reason(Ok(1 << 40), 800, false, failed()).unwrap().starts_with("it cannot be written"));
        assert!(reason(failed().map(|()| 0), 0, false, Ok(())).is_some(), "nor where nobody knows");
    }
}
