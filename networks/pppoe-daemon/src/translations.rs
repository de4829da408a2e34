//! The log of translated connections on disk: one file per day, beside the session log. Its source is the kernel's
//! connection tracking.

use super::daily::{DailyLogFiles, days_after, days_before, read_lines, utc_day};
use super::gate::{
    ConnectionCountsByHost, LOOKS, LowDiskSpaceDetector, NewConnectionGate, ThreadEndReporter,
    TranslationCounters, TranslationLogHealth, disk_hold_reason,
};
use super::ipfix::IpfixSender;
use super::track::SharedSessionLog;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_access::pool::{PoolConfig, PoolRange};
use usher_concentrator::track::{TranslatedConnection, TranslationRecord, TranslationSearch};
use usher_core::WallTime;
use usher_pppoe::netfilter::conntrack::ConntrackEntry;
use usher_pppoe::netfilter::{ConntrackEvent, ConntrackMonitor};
use usher_service::setup::wall_time;

/// The prefix of the files' names.
pub(super) const KIND: &str = "translations";

/// The limit of records that wait for the disk.
const WAITING: usize = 1 << 16;
/// The shortest interval between two complete reads of the kernel's table, which may be long.
const RENEWAL: Duration = Duration::from_secs(60);

/// The queue of records toward the disk.
#[derive(Debug, Default)]
struct RecordQueue {
    waiting: Mutex<QueuedTranslationRecords>,
    /// Signals a record, or room for one.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedTranslationRecords {
    records: VecDeque<TranslationRecord>,
    /// True if the log is incomplete: the kernel's table must be read again.
    lost: bool,
}

impl RecordQueue {
    fn lock_records(&self) -> MutexGuard<'_, QueuedTranslationRecords> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Appends a record. Waits while the queue is full; the kernel's notifications wait in their socket meanwhile.
    fn push(&self, record: TranslationRecord) {
        let full = |waiting: &mut QueuedTranslationRecords| waiting.records.len() >= WAITING;
        let waiting = self.changed.wait_while(self.lock_records(), full);
        waiting.unwrap_or_else(PoisonError::into_inner).records.push_back(record);
        self.changed.notify_all();
    }
    fn first_queued_translation(&self) -> Option<TranslationRecord> {
        self.lock_records().records.front().copied()
    }
    fn pop(&self) {
        self.lock_records().records.pop_front();
        self.changed.notify_all();
    }
    fn mark_records_lost(&self) {
        self.lock_records().lost = true;
    }
    /// Returns and clears the flag that records were lost.
    fn take_records_lost_flag(&self) -> bool {
        std::mem::take(&mut self.lock_records().lost)
    }
    /// Waits for a record until the next check of the disk.
    fn wait_for_record(&self) {
        let waiting = self.lock_records();
        if waiting.records.is_empty() {
            let _ = self.changed.wait_timeout(waiting, LOOKS);
        }
    }
}

struct TranslationLog {
    files: DailyLogFiles,
    day: String,
    file: File,
    /// True if the last line is incomplete.
    torn: bool,
    /// True if the file's content, or the new file itself, is not synced yet.
    unsynced: bool,
    new: bool,
    /// True if the file is incomplete: the disk lost data, or the clock was days ahead.
    lost: bool,
    connection_counts: ConnectionCountsByHost,
    /// The number of begins and ends of connections in the log.
    logged: Arc<AtomicU64>,
}

impl TranslationLog {
    fn open(files: DailyLogFiles, today: String, logged: Arc<AtomicU64>) -> io::Result<Self> {
        let file = files.open_day(&today)?;
        let (begun, torn, unsynced, lost) = (ConnectionCountsByHost::default(), false, false, false);
        Ok(Self {
            files,
            day: today,
            file,
            torn,
            unsynced,
            new: true,
            lost,
            connection_counts: begun,
            logged,
        })
    }
    fn write_record(&mut self, record: &TranslationRecord) -> io::Result<()> {
        let today = utc_day(record.time());
        // A clock that steps back slightly does not reopen the previous day. A clock that was days ahead does.
        let ahead = days_before(&self.day, 1).is_some_and(|before| today < before);
        if today > self.day || ahead {
            self.sync_to_disk()?;
            (self.file, self.day, self.torn, self.new) = (self.files.open_day(&today)?, today, false, true);
            self.connection_counts = ConnectionCountsByHost::default();
            // If the clock was days ahead, the records of the open connections are in the file of a future day.
            self.lost |= ahead;
        }
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        self.torn = true;
        // A line is written with one call. No other thread writes this file.
        self.file.write_all(record.to_line().as_bytes())?;
        (self.torn, self.unsynced) = (false, true);
        if let TranslationRecord::Begin(_, one) = record {
            self.connection_counts.count_connection(*one.inside.ip());
        }
        self.logged.fetch_add(u64::from(!matches!(record, TranslationRecord::Started(_))), Ordering::Relaxed);
        Ok(())
    }
    /// Makes the log durable.
    fn sync_to_disk(&mut self) -> io::Result<()> {
        if self.unsynced {
            // Mark the log as lost on an error: after reporting it once, the kernel forgets the unwritten data.
            self.file.sync_data().inspect_err(|_| self.lost = true)?;
            self.unsynced = false;
        }
        if self.new {
            self.files.sync_folder()?;
            self.new = false;
        }
        Ok(())
    }
}

/// The thread that writes the log, and that may wait for the disk.
struct TranslationLogWriter {
    log: TranslationLog,
    queue: Arc<RecordQueue>,
    health: Arc<TranslationLogHealth>,
    counts: TranslationCounters,
    folder: PathBuf,
    /// The octets that must stay free there.
    least: u64,
    /// The time of the last check.
    looked: Option<Instant>,
    low: LowDiskSpaceDetector,
}

impl TranslationLogWriter {
    /// Writes the pending records. Once a second, syncs the file and checks the free space.
    fn run_once(&mut self) -> io::Result<()> {
        let mut done = self.write_queued_translations();
        let now = Instant::now();
        if done.is_ok() && self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOKS) {
            return done;
        }
        self.looked = Some(now);
        if done.is_ok() {
            self.health.set_disk_busy(Some(Instant::now()));
            done = self.log.sync_to_disk();
        }
        self.health.set_disk_busy(Some(Instant::now()));
        let free = self.free_octets();
        self.health.set_disk_busy(None);
        let why = disk_hold_reason(&free, self.least, self.counts.hold_flag().load(Ordering::Relaxed), &done);
        if let Ok(free) = free
            && self.low.has_space_become_low(free, self.least)
        {
            let (folder, most) = (self.folder.display(), self.log.connection_counts.busiest_hosts());
            tracing::warn!(%folder, free, keep_free = self.least, most,
                "the disk of the translation log is nearly full");
        }
        self.health.set_disk_error(why);
        if std::mem::take(&mut self.log.lost) {
            self.queue.mark_records_lost();
        }
        done
    }
    fn write_queued_translations(&mut self) -> io::Result<()> {
        while let Some(record) = self.queue.first_queued_translation() {
            self.health.set_disk_busy(Some(Instant::now()));
            let done = self.log.write_record(&record);
            self.health.set_disk_busy(None);
            done?;
            self.queue.pop();
            if self.looked.is_some_and(|looked| looked.elapsed() >= LOOKS) {
                break;
            }
        }
        Ok(())
    }
    /// Returns the free octets of the log's file system.
    fn free_octets(&self) -> io::Result<u64> {
        let of = rustix::fs::statvfs(&self.folder)?;
        Ok(of.f_bavail.saturating_mul(of.f_frsize))
    }
    fn run_translation_writer(mut self, alone: ThreadEndReporter) {
        // When this thread ends, for whatever cause, dropping this value reports it.
        let _alone = alone;
        loop {
            match self.run_once() {
                Ok(()) => self.queue.wait_for_record(),
                Err(_) => std::thread::sleep(LOOKS),
            }
        }
    }
}

/// The schedule of complete reads of the kernel's table.
#[derive(Debug, Default)]
struct ConntrackRefreshSchedule {
    last: Option<Instant>,
    is_requested: bool,
}

impl ConntrackRefreshSchedule {
    /// True if a wanted read may happen now.
    fn is_due(&self, now: Instant) -> bool {
        self.is_requested && self.last.is_none_or(|last| now.saturating_duration_since(last) >= RENEWAL)
    }
    fn mark_monitor_refresh_done(&mut self, now: Instant) {
        (self.last, self.is_requested) = (Some(now), false);
    }
    /// Returns why connections must be dropped until the read: unknown connections would increase.
    fn hold_reason(&self, now: Instant) -> Option<String> {
        let late = self.is_requested && !self.is_due(now);
        late.then(|| "connections come faster than they can be logged".to_owned())
    }
}

/// Starts to log and export the translated connections of hosts, selected by their pools or sessions.
pub(super) fn start_translation_log(
    track: &SharedSessionLog,
    gate: NewConnectionGate,
    pools: &[PoolConfig],
    ipfix: Option<IpfixSender>,
) -> io::Result<TranslationCounters> {
    let follower = ConntrackMonitor::new()?;
    let (counts, health, queue) = (
        TranslationCounters::default(),
        Arc::<TranslationLogHealth>::default(),
        Arc::<RecordQueue>::default(),
    );
    let log = TranslationLog::open(
        DailyLogFiles::new(&track.folder(), KIND),
        utc_day(wall_time()),
        counts.logged.clone(),
    )?;
    queue.push(TranslationRecord::Started(wall_time()));
    let mut disk = TranslationLogWriter {
        log,
        queue: queue.clone(),
        health: health.clone(),
        counts: counts.clone(),
        folder: gate.folder.clone(),
        least: gate.least,
        looked: None,
        low: LowDiskSpaceDetector::default(),
    };
    // Write once before the first connection. If the log cannot be written yet, the gate then holds new connections.
    let _ = disk.run_once();
    gate.set_connection_hold(health.hold_reason(Instant::now()).as_deref(), &counts);
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let alone = ThreadEndReporter(health.clone());
    thread("usher-log").spawn(move || disk.run_translation_writer(alone))?;
    gate.start_connection_gate_thread(health.clone(), counts.clone())?;
    let ranges: Vec<PoolRange> = pools.iter().flat_map(|pool| pool.ranges.clone()).collect();
    let (track, all) = (track.clone(), counts.clone());
    let alone = ThreadEndReporter(health.clone());
    let run = move || {
        // When this thread ends, for whatever cause, dropping this value reports it.
        let _alone = alone;
        let (mut follower, mut renewal) = (Some(follower), ConntrackRefreshSchedule::default());
        let tell = |change| {
            let (connection, protocol, begins) = match change {
                ConntrackEvent::Started(connection, protocol) => (connection, protocol, true),
                ConntrackEvent::Ended(connection, protocol) => (connection, protocol, false),
                ConntrackEvent::Missed => return,
            };
            let Some(one) = find_translation(&connection, protocol) else { return };
            let inside = *one.inside.ip();
            if !is_in_pool_ranges(&ranges, inside) && !track.has_held_address(inside) {
                return;
            }
            let at = wall_time();
            queue.push(if begins {
                TranslationRecord::Begin(at, one)
            } else {
                TranslationRecord::End(at, one)
            });
            if let Some(ipfix) = &ipfix {
                ipfix.report_connection(at, begins, one);
            }
        };
        loop {
            if refresh_conntrack_monitor(
                &mut follower,
                &mut renewal,
                &queue,
                &health,
                &all,
                ConntrackMonitor::new,
            ) && let Some(one) = &mut follower
            {
                match one.next_event(LOOKS) {
                    Ok(Some(ConntrackEvent::Missed)) => queue.mark_records_lost(),
                    Ok(Some(change)) => tell(change),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(%error, "the kernel no longer reports connections; reconnecting");
                        health.set_kernel_error(Some(format!(
                            "the kernel does not report connections: {error}"
                        )));
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

/// Requests the kernel's connections again if some are unknown. True if the kernel answers.
fn refresh_conntrack_monitor<F>(
    follower: &mut Option<F>,
    renewal: &mut ConntrackRefreshSchedule,
    queue: &RecordQueue,
    health: &TranslationLogHealth,
    counts: &TranslationCounters,
    new: impl FnOnce() -> io::Result<F>,
) -> bool {
    let now = Instant::now();
    if queue.take_records_lost_flag() && !renewal.is_requested {
        counts.missed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "the translation log lacks some connections: they came too fast, or the disk lost them"
        );
        renewal.is_requested = true;
    }
    if follower.is_none() || renewal.is_due(now) {
        match new() {
            Ok(new) => {
                if follower.is_none() {
                    counts.missed.fetch_add(1, Ordering::Relaxed);
                }
                // Connections before this record have no known end, so tell readers that logging starts anew.
                queue.push(TranslationRecord::Started(wall_time()));
                *follower = Some(new);
                renewal.mark_monitor_refresh_done(now);
            }
            Err(error) => {
                *follower = None;
                health.set_kernel_error(Some(format!("the kernel does not report connections: {error}")));
                return false;
            }
        }
    }
    health.set_kernel_error(renewal.hold_reason(now));
    true
}

/// Returns the translation of a connection. `None`: its packets pass unchanged.
fn find_translation(
    ConntrackEntry { original, reply }: &ConntrackEntry,
    protocol: u8,
) -> Option<TranslatedConnection> {
    let (SocketAddr::V4(inside), SocketAddr::V4(outside)) = (original.source, reply.destination) else {
        return None;
    };
    (inside != outside).then_some(TranslatedConnection { protocol, inside, outside })
}

/// True if one of these ranges contains the address.
pub(super) fn is_in_pool_ranges(ranges: &[PoolRange], address: Ipv4Addr) -> bool {
    let address = IpAddr::V4(address);
    ranges.iter().any(|range| match range {
        PoolRange::Addresses { first, last } => (*first..=*last).contains(&address),
        PoolRange::Prefixes { .. } => false,
    })
}

/// Finds the hosts behind an outside end in the second that starts at `at`, and counts unreadable lines.
pub(super) fn find_translated_hosts(
    folder: &Path,
    outside: SocketAddrV4,
    at: WallTime,
) -> io::Result<(Vec<Ipv4Addr>, u64)> {
    // After a small step back of the clock, lines of one day can be in the next day's file, so read that too.
    let last = days_after(&utc_day(at), 1).unwrap_or_default();
    let mut behind = TranslationSearch::new(outside, at);
    let files = DailyLogFiles::new(folder, KIND);
    for day in files.existing_days()?.iter().rev().filter(|day| **day <= last) {
        // A day's lines may not fit into memory, so they are streamed.
        behind.read_file(read_lines(&files.day_path(day))?)?;
        if behind.is_decided() {
            break;
        }
    }
    Ok((behind.inside_hosts(), behind.unreadable_count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use usher_pppoe::netfilter::conntrack::ConntrackTuple;

    #[test]
    fn the_end_that_is_translated_is_the_begun_one() {
        let direction = |source: &str, destination: &str| ConntrackTuple {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let original = direction("10.0.0.7:40000", "203.0.113.2:80");
        let connection = |reply| ConntrackEntry { original, reply };
        let one = find_translation(&connection(direction("203.0.113.2:80", "192.0.2.1:1025")), 6).unwrap();
        let expected = ("10.0.0.7:40000".to_owned(), "192.0.2.1:1025".to_owned());
        assert_eq!((one.inside.to_string(), one.outside.to_string()), expected);
        assert_eq!(find_translation(&connection(direction("203.0.113.2:80", "10.0.0.7:40000")), 6), None);
        // If the destination is translated, the source is not, as with a redirected IDENT query.
        assert_eq!(find_translation(&connection(direction("10.0.0.1:1113", "10.0.0.7:40000")), 6), None);
    }

    /// Creates a folder with a log on the day of [`at`] 0.
    fn test_log(name: &str) -> (PathBuf, TranslationLog) {
        let folder = std::env::temp_dir().join(format!("usher-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let log =
            TranslationLog::open(DailyLogFiles::new(&folder, KIND), utc_day(test_time(0)), Arc::default())
                .unwrap();
        (folder, log)
    }
    fn test_time(secs: u64) -> WallTime {
        WallTime::from_unix_secs(1_790_000_000 + secs)
    }
    fn test_translation(host: u8) -> TranslatedConnection {
        let inside = SocketAddrV4::new([10, 0, 0, host].into(), 40_000);
        TranslatedConnection { protocol: 6, inside, outside: "192.0.2.1:1025".parse().unwrap() }
    }
    fn test_writer(name: &str, least: u64) -> TranslationLogWriter {
        let (folder, mut log) = test_log(name);
        let counts = TranslationCounters::default();
        log.logged = counts.logged.clone();
        let (queue, health, low) = (Arc::default(), Arc::default(), LowDiskSpaceDetector::default());
        TranslationLogWriter { log, queue, health, counts, folder, least, looked: None, low }
    }

    #[test]
    fn a_days_file_is_followed_by_the_next_days() {
        let (folder, mut log) = test_log("translations");
        for record in [
            TranslationRecord::Started(test_time(0)),
            TranslationRecord::Begin(test_time(5), test_translation(7)),
            TranslationRecord::End(test_time(2 * 86_400), test_translation(7)),
        ] {
            log.write_record(&record).unwrap();
        }
        assert_eq!(DailyLogFiles::new(&folder, KIND).existing_days().unwrap().len(), 2);
        let hosts =
            |secs| find_translated_hosts(&folder, test_translation(7).outside, test_time(secs)).unwrap().0;
        assert_eq!(hosts(86_400), [*test_translation(7).inside.ip()], "in a day without a file of its own");
        assert!(hosts(3 * 86_400).is_empty() && hosts(1).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_clock_that_is_set_back_hides_nobody() {
        let (folder, mut log) = test_log("set-back");
        let hosts =
            |secs| find_translated_hosts(&folder, test_translation(7).outside, test_time(secs)).unwrap().0;
        let mut write = |record| {
            log.write_record(&record).unwrap();
            std::mem::take(&mut log.lost)
        };
        use TranslationRecord::{Begin, End, Started};
        // By an hour, over midnight: the file stays.
        for record in [
            Started(test_time(0)),
            End(test_time(86_400), test_translation(9)),
            Begin(test_time(10_000), test_translation(7)),
        ] {
            assert!(!write(record));
        }
        assert_eq!(hosts(10_001), [*test_translation(7).inside.ip()]);
        // By days: it continues in the file of the current day, and the kernel's table must be read again.
        assert!(
            !write(End(test_time(86_401), test_translation(7)))
                && !write(Begin(test_time(9 * 86_400), test_translation(8)))
        );
        assert!(write(Started(test_time(3 * 86_400))));
        assert!(
            !write(Begin(test_time(3 * 86_400), test_translation(8)))
                && !write(End(test_time(4 * 86_400), test_translation(8)))
        );
        for secs in [3 * 86_400 + 5, 9 * 86_400 + 5] {
            assert_eq!(hosts(secs), [*test_translation(8).inside.ip()], "{secs}");
        }
        assert!(hosts(5 * 86_400).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_disk_does_not_take_waits_in_its_order() {
        let mut disk = test_writer("waiting", 0);
        let push = |disk: &TranslationLogWriter, record| disk.queue.push(record);
        push(&disk, TranslationRecord::Started(test_time(0)));
        disk.run_once().unwrap();
        // A full disk, which has taken half a line.
        disk.log.file.write_all(b"{\"event\":\"be").unwrap();
        disk.log.torn = true;
        let path = disk.log.files.day_path(&disk.log.day);
        let whole = std::mem::replace(&mut disk.log.file, File::open(&path).unwrap());
        push(&disk, TranslationRecord::Begin(test_time(5), test_translation(7)));
        push(&disk, TranslationRecord::End(test_time(6), test_translation(7)));
        disk.run_once().unwrap_err();
        assert!(disk.health.hold_reason(Instant::now()).unwrap().starts_with("it cannot be written"));
        let waiting = |disk: &TranslationLogWriter| disk.queue.lock_records().records.len();
        let logged = |disk: &TranslationLogWriter| disk.counts.logged.load(Ordering::Relaxed);
        assert_eq!((logged(&disk), waiting(&disk), disk.queue.take_records_lost_flag()), (0, 2, false));
        disk.log.file = whole;
        push(&disk, TranslationRecord::Begin(test_time(9), test_translation(8)));
        disk.looked = None;
        disk.run_once().unwrap();
        assert_eq!(
            (logged(&disk), disk.queue.first_queued_translation(), disk.health.hold_reason(Instant::now())),
            (3, None, None)
        );
        let hosts =
            |secs| find_translated_hosts(&disk.folder, test_translation(7).outside, test_time(secs)).unwrap();
        assert_eq!(
            (hosts(5).0, hosts(9)),
            (vec![*test_translation(7).inside.ip()], (vec![*test_translation(8).inside.ip()], 0))
        );
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 5, "one of them is torn");
        // One record beyond the limit waits for room.
        (0..WAITING).for_each(|_| push(&disk, TranslationRecord::Begin(test_time(9), test_translation(9))));
        let queue = disk.queue.clone();
        let last =
            std::thread::spawn(move || queue.push(TranslationRecord::End(test_time(9), test_translation(9))));
        disk.queue.pop();
        last.join().unwrap();
        assert_eq!(waiting(&disk), WAITING);
        // Data that a failed sync dropped is lost.
        disk.log.unsynced = true;
        disk.log.file = File::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().1));
        disk.queue.lock_records().records.clear();
        disk.looked = None;
        disk.run_once().unwrap_err();
        assert!(disk.queue.take_records_lost_flag() && disk.health.hold_reason(Instant::now()).is_some());
        fs::remove_dir_all(&disk.folder).unwrap();
    }

    #[test]
    fn a_stalled_disk_delays_neither_the_gate_nor_the_kernel() {
        let mut disk = test_writer("stalled", 0);
        let (mut reads, writes) = std::io::pipe().unwrap();
        disk.log.file = File::from(std::os::fd::OwnedFd::from(writes));
        let (queue, health, folder) = (disk.queue.clone(), disk.health.clone(), disk.folder.clone());
        (0..10_000).for_each(|_| queue.push(TranslationRecord::Begin(test_time(5), test_translation(7))));
        let writer = std::thread::spawn(move || disk.run_once());
        // A pipe takes less than all of that.
        let later = || Instant::now() + Duration::from_secs(3600);
        while queue.lock_records().records.len() == 10_000 || health.hold_reason(later()).is_none() {
            std::thread::yield_now();
        }
        assert!(health.hold_reason(later()).unwrap().contains("has not responded"));
        queue.push(TranslationRecord::End(test_time(6), test_translation(7)));
        io::copy(&mut reads, &mut io::sink()).unwrap();
        let _ = writer.join().unwrap();
        assert!(!health.hold_reason(later()).is_some_and(|why| why.contains("has not responded")));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failing_kernel_is_retried_and_connections_wait_meanwhile() {
        let (queue, health, counts) =
            (RecordQueue::default(), TranslationLogHealth::default(), TranslationCounters::default());
        let (mut follower, mut renewal) = (None, ConntrackRefreshSchedule::default());
        let mut go = |follower: &mut Option<u8>, fails: bool| {
            let new = || if fails { Err(io::Error::from(io::ErrorKind::OutOfMemory)) } else { Ok(2) };
            refresh_conntrack_monitor(follower, &mut renewal, &queue, &health, &counts, new)
        };
        for _ in 0..2 {
            assert!(!go(&mut follower, true));
            assert!(health.hold_reason(Instant::now()).unwrap().starts_with("the kernel does not report"));
        }
        assert!(go(&mut follower, false) && follower == Some(2));
        assert_eq!(health.hold_reason(Instant::now()), None);
        assert!(
            matches!(queue.first_queued_translation(), Some(TranslationRecord::Started(_))),
            "nobody knows what ended meanwhile"
        );
        queue.pop();
        assert!(
            go(&mut follower, true) && queue.first_queued_translation().is_none(),
            "nobody asks without need"
        );
        // The table was read just now: until the next read, new connections are dropped.
        queue.mark_records_lost();
        follower = Some(1);
        assert!(go(&mut follower, true) && follower == Some(1));
        assert!(health.hold_reason(Instant::now()).unwrap().contains("faster than they can be logged"));
        renewal.last = None;
        let fails = || Err(io::Error::from(io::ErrorKind::OutOfMemory));
        assert!(
            !refresh_conntrack_monitor(&mut follower, &mut renewal, &queue, &health, &counts, fails),
            "a failed one is no reason to go on"
        );
        assert!(health.hold_reason(Instant::now()).is_some());
        assert!(
            refresh_conntrack_monitor(&mut follower, &mut renewal, &queue, &health, &counts, || Ok(3))
                && follower == Some(3)
        );
        assert_eq!((health.hold_reason(Instant::now()), counts.missed.load(Ordering::Relaxed)), (None, 3));
    }

    #[test]
    fn the_kernels_table_is_read_anew_once_a_minute_at_most() {
        let (mut renewal, now) = (ConntrackRefreshSchedule::default(), Instant::now());
        assert!(!renewal.is_due(now));
        renewal.is_requested = true;
        assert!(renewal.is_due(now) && renewal.hold_reason(now).is_none());
        renewal.mark_monitor_refresh_done(now);
        renewal.is_requested = true;
        let before = now + RENEWAL - LOOKS;
        assert!(!renewal.is_due(before) && renewal.hold_reason(before).is_some());
        assert!(renewal.is_due(now + RENEWAL) && renewal.hold_reason(now + RENEWAL).is_none());
    }
}
