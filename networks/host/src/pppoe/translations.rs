//! The log of translated connections on the disk, a file for each day beside that of sessions, as the kernel's table of connections
//! tells of them.

use super::daily::{Daily, day, days_after, days_before, lines};
use super::gate::{ConnectionCounts, EndNotice, Gate, Health, LOOKS, LowSpace, TranslationCounters, reason};
use super::ipfix::Ipfix;
use super::track::TrackLog;
use crate::setup::wall;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_access::pool::{PoolConfig, Range};
use usher_concentrator::track::{Behind, Translated, TranslationRecord};
use usher_core::WallTime;
use usher_pppoe::netfilter::conntrack::Connection;
use usher_pppoe::netfilter::{Change, Follower};

/// What files are called, before the day.
pub(super) const KIND: &str = "translations";

/// Records that wait for the disk, at most.
const WAITING: usize = 1 << 16;
/// The kernel's whole table is read anew no more often than that: it may be long.
const RENEWAL: Duration = Duration::from_secs(60);

/// Records on their way to the disk.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// There is a record, or room for one.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    records: VecDeque<TranslationRecord>,
    /// What is in the log is not all: the kernel's table has to be read anew.
    lost: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Waits where there is no room; what the kernel tells meanwhile waits at its end.
    fn push(&self, record: TranslationRecord) {
        let full = |waiting: &mut Waiting| waiting.records.len() >= WAITING;
        let waiting = self.changed.wait_while(self.waiting(), full);
        waiting.unwrap_or_else(PoisonError::into_inner).records.push_back(record);
        self.changed.notify_all();
    }
    fn first(&self) -> Option<TranslationRecord> {
        self.waiting().records.front().copied()
    }
    fn pop(&self) {
        self.waiting().records.pop_front();
        self.changed.notify_all();
    }
    fn lose(&self) {
        self.waiting().lost = true;
    }
    /// Whether something was lost since this was asked.
    fn lost(&self) -> bool {
        std::mem::take(&mut self.waiting().lost)
    }
    /// Waits until there is a record, but no longer than the next look at the disk.
    fn wait(&self) {
        let waiting = self.waiting();
        if waiting.records.is_empty() {
            let _ = self.changed.wait_timeout(waiting, LOOKS);
        }
    }
}

struct Log {
    files: Daily,
    day: String,
    file: File,
    /// The last line is not whole.
    torn: bool,
    /// The disk has not been asked yet for what the file has, and for the file itself.
    unsynced: bool,
    new: bool,
    /// The file does not say all: the disk has not kept it, or the clock was days ahead.
    lost: bool,
    begun: ConnectionCounts,
    /// Connections that began, or ended, and are in the log.
    logged: Arc<AtomicU64>,
}

impl Log {
    fn open(files: Daily, today: String, logged: Arc<AtomicU64>) -> io::Result<Self> {
        let file = files.append(&today)?;
        let (begun, torn, unsynced, lost) = (ConnectionCounts::default(), false, false, false);
        Ok(Self { files, day: today, file, torn, unsynced, new: true, lost, begun, logged })
    }
    fn line(&mut self, record: &TranslationRecord) -> io::Result<()> {
        let today = day(record.at());
        // A clock that is set back by a little does not open a day again that is over; one that was days ahead does.
        let ahead = days_before(&self.day, 1).is_some_and(|before| today < before);
        if today > self.day || ahead {
            self.sync()?;
            (self.file, self.day, self.torn, self.new) = (self.files.append(&today)?, today, false, true);
            self.begun = ConnectionCounts::default();
            // What had begun stands in the file of a day to come.
            self.lost |= ahead;
        }
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        // A whole line at once: nobody else writes here.
        self.file.write_all(record.to_line().as_bytes())?;
        (self.torn, self.unsynced) = (false, true);
        if let TranslationRecord::Begin(_, one) = record {
            self.begun.count(*one.inside.ip());
        }
        self.logged.fetch_add(u64::from(!matches!(record, TranslationRecord::Started(_))), Ordering::Relaxed);
        Ok(())
    }
    /// Has all of it be there after a loss of power.
    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            // The system forgets what the disk has not taken once it has said so.
            self.file.sync_data().inspect_err(|_| self.lost = true)?;
            self.unsynced = false;
        }
        if self.new {
            self.files.sync()?;
            self.new = false;
        }
        Ok(())
    }
}

/// Whoever writes the log, and may have to wait for the disk.
struct Disk {
    log: Log,
    queue: Arc<Queue>,
    health: Arc<Health>,
    counts: TranslationCounters,
    folder: PathBuf,
    /// Octets that are to be free there.
    least: u64,
    /// When it was looked last how things are.
    looked: Option<Instant>,
    low: LowSpace,
}

impl Disk {
    /// Writes what waits, and once a second has it be there and looks how much is free.
    fn turn(&mut self) -> io::Result<()> {
        let mut done = self.write();
        let now = Instant::now();
        if done.is_ok() && self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOKS) {
            return done;
        }
        self.looked = Some(now);
        if done.is_ok() {
            self.health.busy(Some(Instant::now()));
            done = self.log.sync();
        }
        self.health.busy(Some(Instant::now()));
        let free = self.free();
        self.health.busy(None);
        let why = reason(&free, self.least, self.counts.held().load(Ordering::Relaxed), &done);
        if let Ok(free) = free
            && self.low.told(free, self.least)
        {
            let (folder, most) = (self.folder.display(), self.log.begun.most());
            tracing::warn!(%folder, free, keep_free = self.least, most, "the disk of the log of translations is nearly full");
        }
        self.health.disk(why);
        if std::mem::take(&mut self.log.lost) {
            self.queue.lose();
        }
        done
    }
    fn write(&mut self) -> io::Result<()> {
        while let Some(record) = self.queue.first() {
            self.health.busy(Some(Instant::now()));
            let done = self.log.line(&record);
            self.health.busy(None);
            done?;
            self.queue.pop();
            if self.looked.is_some_and(|looked| looked.elapsed() >= LOOKS) {
                break;
            }
        }
        Ok(())
    }
    /// Octets that are free where the log is.
    fn free(&self) -> io::Result<u64> {
        let of = rustix::fs::statvfs(&self.folder)?;
        Ok(of.f_bavail.saturating_mul(of.f_frsize))
    }
    fn run(mut self, alone: EndNotice) {
        // Says when this ends, however it does.
        let _alone = alone;
        loop {
            match self.turn() {
                Ok(()) => self.queue.wait(),
                Err(_) => std::thread::sleep(LOOKS),
            }
        }
    }
}

/// When the kernel's table is read anew.
#[derive(Debug, Default)]
struct Renewal {
    last: Option<Instant>,
    wanted: bool,
}

impl Renewal {
    /// Whether it is time for what is wanted.
    fn due(&self, now: Instant) -> bool {
        self.wanted && self.last.is_none_or(|last| now.saturating_duration_since(last) >= RENEWAL)
    }
    fn done(&mut self, now: Instant) {
        (self.last, self.wanted) = (Some(now), false);
    }
    /// Until it is time, what nobody knows of would become more.
    fn why(&self, now: Instant) -> Option<String> {
        let late = self.wanted && !self.due(now);
        late.then(|| "connections come faster than they can be logged".to_owned())
    }
}

/// Begins to log, and to tell collectors, whose connections are translated: those of hosts, by their pools or their sessions.
pub(super) fn follow(
    track: &TrackLog,
    gate: Gate,
    pools: &[PoolConfig],
    ipfix: Option<Ipfix>,
) -> io::Result<TranslationCounters> {
    let follower = Follower::new()?;
    let (counts, health, queue) =
        (TranslationCounters::default(), Arc::<Health>::default(), Arc::<Queue>::default());
    let log = Log::open(Daily::new(&track.folder(), KIND), day(wall()), counts.logged.clone())?;
    queue.push(TranslationRecord::Started(wall()));
    let mut disk = Disk {
        log,
        queue: queue.clone(),
        health: health.clone(),
        counts: counts.clone(),
        folder: gate.folder.clone(),
        least: gate.least,
        looked: None,
        low: LowSpace::default(),
    };
    // Before there is a connection. Where the log cannot be written yet, the gate finds it so.
    let _ = disk.turn();
    gate.set(health.why(Instant::now()).as_deref(), &counts);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let alone = EndNotice(health.clone());
    thread("usher-log").spawn(move || disk.run(alone))?;
    gate.guard(health.clone(), counts.clone())?;
    let ranges: Vec<Range> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
    let (track, all) = (track.clone(), counts.clone());
    let alone = EndNotice(health.clone());
    let run = move || {
        // Says when this ends, however it does.
        let _alone = alone;
        let (mut follower, mut renewal) = (Some(follower), Renewal::default());
        let tell = |change| {
            let (connection, protocol, begins) = match change {
                Change::Begun(connection, protocol) => (connection, protocol, true),
                Change::Ended(connection, protocol) => (connection, protocol, false),
                Change::Missed => return,
            };
            let Some(one) = translated(&connection, protocol) else { return };
            let inside = *one.inside.ip();
            if !of_pools(&ranges, inside) && !track.has_had(inside) {
                return;
            }
            let at = wall();
            queue.push(if begins {
                TranslationRecord::Begin(at, one)
            } else {
                TranslationRecord::End(at, one)
            });
            if let Some(ipfix) = &ipfix {
                ipfix.connection(at, begins, one);
            }
        };
        loop {
            if follow_on(&mut follower, &mut renewal, &queue, &health, &all, Follower::new)
                && let Some(one) = &mut follower
            {
                match one.wait(LOOKS) {
                    Ok(Some(Change::Missed)) => queue.lose(),
                    Ok(Some(change)) => tell(change),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(%error, "the kernel tells of connections no longer: it is asked again");
                        health.kernel(Some(format!("the kernel does not tell of connections: {error}")));
                        follower = None;
                        std::thread::sleep(LOOKS);
                    }
                }
            } else {
                std::thread::sleep(LOOKS);
            }
        }
    };
    thread("usher-translate").spawn(run)?;
    Ok(counts)
}

/// Has the kernel tell anew which connections there are, where some are not known. Whether it tells.
fn follow_on<F>(
    follower: &mut Option<F>,
    renewal: &mut Renewal,
    queue: &Queue,
    health: &Health,
    counts: &TranslationCounters,
    new: impl FnOnce() -> io::Result<F>,
) -> bool {
    let now = Instant::now();
    if queue.lost() && !renewal.wanted {
        counts.missed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "some connections are not in the log: they came too fast, or the disk has not kept them"
        );
        renewal.wanted = true;
    }
    if follower.is_none() || renewal.due(now) {
        match new() {
            Ok(new) => {
                if follower.is_none() {
                    counts.missed.fetch_add(1, Ordering::Relaxed);
                }
                // Which of the connections of before have ended is not known.
                queue.push(TranslationRecord::Started(wall()));
                *follower = Some(new);
                renewal.done(now);
            }
            Err(error) => {
                *follower = None;
                health.kernel(Some(format!("the kernel does not tell of connections: {error}")));
                return false;
            }
        }
    }
    health.kernel(renewal.why(now));
    true
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
    // Where the clock was set back by a little, lines of a day stand in the next one's file.
    let last = days_after(&day(at), 1).unwrap_or_default();
    let mut behind = Behind::new(outside, at);
    let files = Daily::new(folder, KIND);
    for day in files.days()?.iter().rev().filter(|day| **day <= last) {
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

    /// A folder of its own, and a log there on the day of [`at`] 0.
    fn log(name: &str) -> (PathBuf, Log) {
        let folder = std::env::temp_dir().join(format!("usher-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let log = Log::open(Daily::new(&folder, KIND), day(at(0)), Arc::default()).unwrap();
        (folder, log)
    }
    fn at(secs: u64) -> WallTime {
        WallTime::from_unix_secs(1_790_000_000 + secs)
    }
    fn one(host: u8) -> Translated {
        let inside = SocketAddrV4::new([10, 0, 0, host].into(), 40_000);
        Translated { protocol: 6, inside, outside: "192.0.2.1:1025".parse().unwrap() }
    }
    fn disk(name: &str, least: u64) -> Disk {
        let (folder, mut log) = log(name);
        let counts = TranslationCounters::default();
        log.logged = counts.logged.clone();
        let (queue, health, low) = (Arc::default(), Arc::default(), LowSpace::default());
        Disk { log, queue, health, counts, folder, least, looked: None, low }
    }

    #[test]
    fn a_days_file_is_followed_by_the_next_days() {
        let (folder, mut log) = log("translations");
        for record in [
            TranslationRecord::Started(at(0)),
            TranslationRecord::Begin(at(5), one(7)),
            TranslationRecord::End(at(2 * 86_400), one(7)),
        ] {
            log.line(&record).unwrap();
        }
        assert_eq!(Daily::new(&folder, KIND).days().unwrap().len(), 2);
        let hosts = |secs| behind(&folder, one(7).outside, at(secs)).unwrap().0;
        assert_eq!(hosts(86_400), [*one(7).inside.ip()], "in a day without a file of its own");
        assert!(hosts(3 * 86_400).is_empty() && hosts(1).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_clock_that_is_set_back_hides_nobody() {
        let (folder, mut log) = log("set-back");
        let hosts = |secs| behind(&folder, one(7).outside, at(secs)).unwrap().0;
        let mut write = |record| {
            log.line(&record).unwrap();
            std::mem::take(&mut log.lost)
        };
        use TranslationRecord::{Begin, End, Started};
        // By an hour, over midnight: the file stays.
        for record in [Started(at(0)), End(at(86_400), one(9)), Begin(at(10_000), one(7))] {
            assert!(!write(record));
        }
        assert_eq!(hosts(10_001), [*one(7).inside.ip()]);
        // By days: it goes on in the file of the day that is, and the kernel's table is to be read anew.
        assert!(!write(End(at(86_401), one(7))) && !write(Begin(at(9 * 86_400), one(8))));
        assert!(write(Started(at(3 * 86_400))));
        assert!(!write(Begin(at(3 * 86_400), one(8))) && !write(End(at(4 * 86_400), one(8))));
        for secs in [3 * 86_400 + 5, 9 * 86_400 + 5] {
            assert_eq!(hosts(secs), [*one(8).inside.ip()], "{secs}");
        }
        assert!(hosts(5 * 86_400).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_disk_does_not_take_waits_in_its_order() {
        let mut disk = disk("waiting", 0);
        let push = |disk: &Disk, record| disk.queue.push(record);
        push(&disk, TranslationRecord::Started(at(0)));
        disk.turn().unwrap();
        // A full disk, which has taken half a line.
        disk.log.file.write_all(b"{\"event\":\"be").unwrap();
        disk.log.torn = true;
        let path = disk.log.files.path(&disk.log.day);
        let whole = std::mem::replace(&mut disk.log.file, File::open(&path).unwrap());
        push(&disk, TranslationRecord::Begin(at(5), one(7)));
        push(&disk, TranslationRecord::End(at(6), one(7)));
        disk.turn().unwrap_err();
        assert!(disk.health.why(Instant::now()).unwrap().starts_with("it cannot be written"));
        let waiting = |disk: &Disk| disk.queue.waiting().records.len();
        let logged = |disk: &Disk| disk.counts.logged.load(Ordering::Relaxed);
        assert_eq!((logged(&disk), waiting(&disk), disk.queue.lost()), (0, 2, false));
        disk.log.file = whole;
        push(&disk, TranslationRecord::Begin(at(9), one(8)));
        disk.looked = None;
        disk.turn().unwrap();
        assert_eq!((logged(&disk), disk.queue.first(), disk.health.why(Instant::now())), (3, None, None));
        let hosts = |secs| behind(&disk.folder, one(7).outside, at(secs)).unwrap();
        assert_eq!((hosts(5).0, hosts(9)), (vec![*one(7).inside.ip()], (vec![*one(8).inside.ip()], 0)));
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 5, "one of them is torn");
        // Of more than may wait the last waits for room.
        (0..WAITING).for_each(|_| push(&disk, TranslationRecord::Begin(at(9), one(9))));
        let queue = disk.queue.clone();
        let last = std::thread::spawn(move || queue.push(TranslationRecord::End(at(9), one(9))));
        disk.queue.pop();
        last.join().unwrap();
        assert_eq!(waiting(&disk), WAITING);
        // What a disk has not kept is lost.
        disk.log.unsynced = true;
        disk.log.file = File::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().1));
        disk.queue.waiting().records.clear();
        disk.looked = None;
        disk.turn().unwrap_err();
        assert!(disk.queue.lost() && disk.health.why(Instant::now()).is_some());
        fs::remove_dir_all(&disk.folder).unwrap();
    }

    #[test]
    fn a_disk_that_does_nothing_keeps_neither_the_gate_nor_the_kernel_waiting() {
        let mut disk = disk("stalled", 0);
        let (mut reads, writes) = std::io::pipe().unwrap();
        disk.log.file = File::from(std::os::fd::OwnedFd::from(writes));
        let (queue, health, folder) = (disk.queue.clone(), disk.health.clone(), disk.folder.clone());
        (0..10_000).for_each(|_| queue.push(TranslationRecord::Begin(at(5), one(7))));
        let writer = std::thread::spawn(move || disk.turn());
        // A pipe takes less than all of that.
        let later = || Instant::now() + Duration::from_secs(3600);
        while queue.waiting().records.len() == 10_000 || health.why(later()).is_none() {
            std::thread::yield_now();
        }
        assert!(health.why(later()).unwrap().contains("has done nothing"));
        queue.push(TranslationRecord::End(at(6), one(7)));
        io::copy(&mut reads, &mut io::sink()).unwrap();
        let _ = writer.join().unwrap();
        assert!(!health.why(later()).is_some_and(|why| why.contains("has done nothing")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_kernel_that_fails_is_asked_again_and_connections_wait_for_that() {
        let (queue, health, counts) = (Queue::default(), Health::default(), TranslationCounters::default());
        let (mut follower, mut renewal) = (None, Renewal::default());
        let mut go = |follower: &mut Option<u8>, fails: bool| {
            let new = || if fails { Err(io::Error::from(io::ErrorKind::OutOfMemory)) } else { Ok(2) };
            follow_on(follower, &mut renewal, &queue, &health, &counts, new)
        };
        for _ in 0..2 {
            assert!(!go(&mut follower, true));
            assert!(health.why(Instant::now()).unwrap().starts_with("the kernel does not tell"));
        }
        assert!(go(&mut follower, false) && follower == Some(2));
        assert_eq!(health.why(Instant::now()), None);
        assert!(
            matches!(queue.first(), Some(TranslationRecord::Started(_))),
            "nobody knows what ended meanwhile"
        );
        queue.pop();
        assert!(go(&mut follower, true) && queue.first().is_none(), "nobody asks without need");
        // The table was read just now: until it may be again, nobody begins what would not be known.
        queue.lose();
        follower = Some(1);
        assert!(go(&mut follower, true) && follower == Some(1));
        assert!(health.why(Instant::now()).unwrap().contains("faster than they can be logged"));
        renewal.last = None;
        let fails = || Err(io::Error::from(io::ErrorKind::OutOfMemory));
        assert!(
            !follow_on(&mut follower, &mut renewal, &queue, &health, &counts, fails),
            "a failed one is no reason to go on"
        );
        assert!(health.why(Instant::now()).is_some());
        assert!(
            follow_on(&mut follower, &mut renewal, &queue, &health, &counts, || Ok(3)) && follower == Some(3)
        );
        assert_eq!((health.why(Instant::now()), counts.missed.load(Ordering::Relaxed)), (None, 3));
    }

    #[test]
    fn the_kernels_table_is_read_anew_once_a_minute_at_most() {
        let (mut renewal, now) = (Renewal::default(), Instant::now());
        assert!(!renewal.due(now));
        renewal.wanted = true;
        assert!(renewal.due(now) && renewal.why(now).is_none());
        renewal.done(now);
        renewal.wanted = true;
        let before = now + RENEWAL - LOOKS;
        assert!(!renewal.due(before) && renewal.why(before).is_some());
        assert!(renewal.due(now + RENEWAL) && renewal.why(now + RENEWAL).is_none());
    }
}
