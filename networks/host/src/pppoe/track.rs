//! The log of sessions on the disk: a file for each day, and what is asked of them.

use super::audit::Audit;
use super::daily::{Daily, day, days_before, lines};
use super::ipfix::Ipfix;
use super::translations;
use crate::setup::wall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_concentrator::config::Tracking;
use usher_concentrator::track::{
    Begin, Index, Lost, Owed, Record, Search, TransportAddress, Volume, parse_time,
};
use usher_core::WallTime;

/// Where the log is, and what is set for it.
pub type Tracked = (PathBuf, Tracking);

/// What files of sessions are called, before the day.
const KIND: &str = "sessions";

/// Addresses that hosts have had since the start; locked while nobody waits for the disk.
type Hosts = Arc<Mutex<BTreeSet<Ipv4Addr>>>;

#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    files: Daily,
    /// Other files that are kept as long.
    beside: Vec<Daily>,
    keep_days: u32,
    day: String,
    file: Arc<File>,
    /// What the file has may not be on the disk though the disk was asked for it: it said so once, and forgets that.
    unsure: bool,
    /// Ends, and what was acknowledged of them, that could not be written yet.
    owed: VecDeque<Record>,
    /// Sessions that are open: the next day's file begins with them.
    open: BTreeMap<String, Begin>,
    hosts: Hosts,
    /// Who else is told.
    ipfix: Option<Ipfix>,
    /// The last line is not whole.
    torn: bool,
    /// Records written.
    written: u64,
    /// The concentrator has begun.
    started: bool,
}

/// What an earlier concentrator has left in a log.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Left {
    /// Sessions that are open there.
    pub(super) lost: Vec<Lost>,
    /// Sessions that have ended, and whose Stop is owed.
    pub(super) owed: Vec<Owed>,
}

/// The log of sessions, for several threads.
#[derive(Clone, Debug)]
pub(super) struct TrackLog {
    writer: Arc<Mutex<Writer>>,
    /// So many records are on the disk for certain.
    synced: Arc<Mutex<u64>>,
    hosts: Hosts,
}

impl TrackLog {
    /// Opens a log, and says what an earlier concentrator has left in it. Of ends before `since` no Stop is owed any more.
    pub(super) fn open(
        base: &Path,
        table: &Tracking,
        since: Option<WallTime>,
    ) -> Result<(Self, Left), String> {
        let folder = base.join(&table.folder);
        let wrong = wrong(&folder);
        crate::folder::make(&folder).map_err(&wrong)?;
        let files = Daily::new(&folder, KIND);
        let today = day(wall());
        let days = gathered(&files, &today).map_err(&wrong)?;
        let (left, last) = left(&files, &days, since).map_err(&wrong)?;
        if last.is_some_and(|last| last != today) && !left.lost.is_empty() {
            // Their ends come into today's file, which is to say whose they are.
            let begins = left.lost.iter().map(|lost| Record::begin(lost.begin.clone()).to_line());
            files.renew(&today, &begins.collect::<Vec<_>>()).map_err(&wrong)?;
        }
        let file = files.append(&today).map_err(&wrong)?;
        let torn = fs::read(files.path(&today)).map_err(&wrong)?.last().is_some_and(|last| *last != b'\n');
        files.sync().map_err(&wrong)?;
        let beside = [Some(Daily::new(&folder, translations::KIND)), Audit::of(base, table).files().cloned()];
        let hosts = Hosts::default();
        let writer = Writer {
            folder,
            files,
            beside: beside.into_iter().flatten().collect(),
            keep_days: table.keep_days,
            day: today,
            file: Arc::new(file),
            unsure: false,
            owed: VecDeque::new(),
            open: BTreeMap::new(),
            hosts: hosts.clone(),
            ipfix: None,
            torn,
            written: 0,
            started: false,
        };
        let log = Self { writer: Arc::new(Mutex::new(writer)), synced: Arc::default(), hosts };
        log.writer().forget(days.last());
        Ok((log, left))
    }

    /// Reads what [`TrackLog::open`] reads, and writes nothing.
    pub(super) fn check(base: &Path, table: &Tracking, since: Option<WallTime>) -> Result<(), String> {
        let folder = base.join(&table.folder);
        let wrong = wrong(&folder);
        crate::folder::check(&folder).map_err(&wrong)?;
        if folder.is_dir() {
            let files = Daily::new(&folder, KIND);
            let days = files.days().map_err(&wrong)?;
            left(&files, &days, since).map_err(&wrong)?;
        }
        Ok(())
    }

    /// Has collectors told of what is written, and that what was `lost` has ended.
    pub(super) fn export(&self, ipfix: Ipfix, lost: &[Lost]) {
        let at = wall();
        lost.iter().for_each(|lost| ipfix.session(at, false, &lost.begin));
        self.writer().ipfix = Some(ipfix);
    }
    /// Where it is.
    pub(super) fn folder(&self) -> PathBuf {
        self.writer().folder.clone()
    }
    /// Whether a host has had this address since the start.
    pub(super) fn has_had(&self, address: Ipv4Addr) -> bool {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Writes a record behind what is there.
    pub(super) fn write(&self, record: &Record) -> io::Result<()> {
        self.writer().write(record)
    }
    /// The same, so that it is there after a loss of power. Those who come while the disk is busy wait for it together.
    pub(super) fn write_durably(&self, record: &Record) -> io::Result<()> {
        let own = {
            let mut writer = self.writer();
            writer.write(record)?;
            writer.written
        };
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= own {
            return Ok(());
        }
        let (file, written) = {
            let mut writer = self.writer();
            writer.settle()?;
            (writer.file.clone(), writer.written)
        };
        if let Err(error) = file.sync_data() {
            tracing::error!(%error, "the log of sessions is not on the disk: it is written anew");
            let mut writer = self.writer();
            writer.unsure = true;
            writer.settle()?;
            *synced = writer.written;
            return Ok(());
        }
        *synced = written;
        Ok(())
    }
}

impl Writer {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        self.started |= matches!(record, Record::Started(_));
        let done = self.settle().and_then(|()| self.put(record));
        let owed = match record {
            // Those before the start are of sessions that others have begun. Behind it one without a begin is of nobody who was let in, of
            // whom there may be many while nothing can be written.
            Record::End(end) => !self.started || self.open.contains_key(&end.session),
            record => matches!(record, Record::StopAcknowledged { .. }),
        };
        if done.is_err() && owed {
            self.owed.push_back(record.clone());
        }
        done
    }

    /// Does what could not be done before.
    fn settle(&mut self) -> io::Result<()> {
        if self.unsure {
            self.renew(self.day.clone())?;
        }
        while let Some(owed) = self.owed.pop_front() {
            if let Err(error) = self.put(&owed) {
                self.owed.push_front(owed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn put(&mut self, record: &Record) -> io::Result<()> {
        let today = day(record.at());
        // A clock that is set back by a little does not open a day again that is over; one that was days ahead does.
        let ahead = days_before(&self.day, 1).is_some_and(|before| today < before);
        if today > self.day || ahead {
            self.turn(today)?;
        }
        self.line(&record.to_line())?;
        match record {
            Record::Begin(begin) => {
                self.hosts.lock().unwrap_or_else(PoisonError::into_inner).extend(begin.ipv4);
                if let Some(ipfix) = &self.ipfix {
                    ipfix.session(begin.at, true, begin);
                }
                self.open.insert(begin.session.clone(), begin.clone());
            }
            Record::End(end) => {
                if let Some((begin, ipfix)) = self.open.remove(&end.session).zip(self.ipfix.as_ref()) {
                    ipfix.session(end.at, false, &begin);
                }
            }
            Record::Started(_) | Record::Stopped(_) | Record::StopAcknowledged { .. } => {}
        }
        Ok(())
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        if self.torn {
            (&*self.file).write_all(b"\n")?;
        }
        self.torn = true;
        (&*self.file).write_all(line.as_bytes())?;
        self.torn = false;
        self.written += 1;
        Ok(())
    }

    /// Begins a day's file with the sessions that are open, so that those of before can be deleted.
    fn turn(&mut self, today: String) -> io::Result<()> {
        // Who waits for a line of the old file asks the disk for the new one.
        self.file.sync_data()?;
        let before = self.day.clone();
        self.renew(today)?;
        self.forget(Some(&before));
        Ok(())
    }

    /// Has a day's file begin anew, with what it has and the sessions that are open, and goes on there: all of that, or nothing.
    fn renew(&mut self, day: String) -> io::Result<()> {
        let open: Vec<String> =
            self.open.values().map(|begin| Record::begin(begin.clone()).to_line()).collect();
        let file = self.files.renew(&day, &open)?;
        (self.file, self.day, self.torn, self.unsure) = (Arc::new(file), day, false, false);
        Ok(())
    }

    /// Deletes what has been kept long enough. `last` is the last day of which there is something from before: where all of it would go
    /// at once it is more likely that the clock is wrong, and it stays until there is something newer.
    fn forget(&self, last: Option<&String>) {
        let oldest = days_before(&self.day, self.keep_days).filter(|_| self.keep_days > 0);
        let Some(oldest) = oldest else { return };
        if let Some(last) = last.filter(|last| **last < oldest) {
            let today = &self.day;
            tracing::warn!(
                last,
                today,
                "everything in the log is older than it is to be kept: it is deleted when the next day begins, if the clock is right"
            );
            return;
        }
        for files in self.beside.iter().chain([&self.files]) {
            files.delete_before(&oldest);
        }
    }
}

fn read(files: &Daily, day: &str, index: &mut Index) -> io::Result<()> {
    for line in lines(&files.path(day))? {
        index.read(&format!("{}\n", line?));
    }
    Ok(())
}

/// What is said of a folder.
fn wrong(folder: &Path) -> impl Fn(io::Error) -> String + use<> {
    let shown = folder.display().to_string();
    move |error| format!("the folder {shown}: {error}")
}

/// What an earlier concentrator has left in the files of these days, and the last of them in which something is.
fn left(files: &Daily, days: &[String], since: Option<WallTime>) -> io::Result<(Left, Option<String>)> {
    let (mut left, mut last) = (Left::default(), None);
    // Where a start came to nothing there is a file in which nothing is.
    for day in days.iter().rev() {
        let mut index = Index::default();
        read(files, day, &mut index)?;
        if !index.is_empty() {
            left.lost = index.open().collect();
            last = Some(day.clone());
            break;
        }
    }
    if let Some(since) = since {
        left.owed = owed(files, days, since)?;
    }
    Ok((left, last))
}

/// Sessions that ended from then on, and whose Stop no AAA server has acknowledged.
fn owed(files: &Daily, days: &[String], since: WallTime) -> io::Result<Vec<Owed>> {
    let (first, mut index) = (day(since), Index::default());
    // A day's file has the begins of all sessions that end on that day.
    for day in days.iter().filter(|day| **day >= first) {
        read(files, day, &mut index)?;
    }
    Ok(index.owed().filter(|owed| owed.end.at >= since).collect())
}

/// The days up to today of which there are files, in their order. What a clock that was ahead has put into files of days to come goes
/// behind today's.
fn gathered(files: &Daily, today: &str) -> io::Result<Vec<String>> {
    let (mut days, ahead): (Vec<_>, Vec<_>) =
        files.days()?.into_iter().partition(|day| day.as_str() <= today);
    for day in ahead {
        tracing::warn!(day, "the clock was ahead when this log was written: it goes on in today's");
        let all: io::Result<Vec<String>> =
            lines(&files.path(&day))?.map(|line| line.map(|line| line + "\n")).collect();
        files.renew(today, &all?)?;
        fs::remove_file(files.path(&day))?;
        if days.last().is_none_or(|last| last != today) {
            days.push(today.to_owned());
        }
    }
    Ok(days)
}

/// Who had an address?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Asking {
    /// The address.
    pub address: IpAddr,
    /// Its port; `None`: any.
    pub port: Option<u16>,
    /// When, as RFC 3339 has it; `None`: now.
    pub at: Option<String>,
    /// Who asks, for the audit.
    pub by: String,
}

/// Who had it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Who {
    /// At which second.
    pub at: String,
    /// In the order of time; none: nobody.
    pub found: Vec<Found>,
    /// Lines of the log that cannot be read.
    pub unreadable: u64,
    /// Octets of the log that were read.
    pub log_octets: u64,
    /// Octets of the log for each subscriber and day.
    pub log_octets_per_subscriber_and_day: f64,
}

/// One who had it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The user.
    pub user: String,
    /// Since when.
    pub since: String,
    /// Until when; `None`: it still has it.
    pub until: Option<String>,
    /// The host's address on the Ethernet.
    pub station: String,
    /// The interface of the concentrator.
    pub port: String,
    /// The line, where a switch has named it.
    pub circuit: Option<String>,
    /// Acct-Session-Id.
    pub session: String,
    /// Why it ended.
    pub reason: Option<String>,
}

/// Why nobody can say who had it.
#[derive(Debug, thiserror::Error)]
pub enum WhoError {
    /// The time.
    #[error("\"{0}\" is no time: write 2026-11-26T12:00:00Z, or with an offset 2026-11-26T21:00:00+09:00")]
    Time(String),
    /// There is no log.
    #[error("the configuration has no [tracking]: nothing is kept of who had an address")]
    Untracked,
    /// The log.
    #[error("the log of sessions in {folder}: {error}")]
    Log {
        /// Its folder.
        folder: String,
        /// Why.
        error: io::Error,
    },
    /// The time is before what is kept.
    #[error("the log of sessions begins on {first}: what was before is not kept")]
    Forgotten {
        /// The first day.
        first: String,
    },
    /// What is asked has to be in the audit.
    #[error("the audit cannot be written, and without it nothing is told: {0}")]
    Audit(io::Error),
}

/// Looks for who had these in a second, in the files of some days. A day may have more lines than there is memory.
fn searched(
    files: &Daily,
    days: &[String],
    at: WallTime,
    addresses: Vec<TransportAddress>,
) -> io::Result<Search> {
    let mut search = Search::new(at, addresses);
    for day in days {
        for line in lines(&files.path(day))? {
            search.read(&format!("{}\n", line?));
        }
    }
    Ok(search)
}

/// Asks the files of a log. For the audit the user of the system says who asks, by number, beside what the one who asks says.
pub(super) fn lookup(
    (base, table): &Tracked,
    audit: &Audit,
    asking: &Asking,
    user: Option<u32>,
) -> Result<Who, WhoError> {
    let at = match &asking.at {
        Some(text) => parse_time(text).ok_or_else(|| WhoError::Time(text.clone()))?,
        None => wall(),
    };
    let at = WallTime::from_unix_secs(at.unix_secs());
    let folder = base.join(&table.folder);
    let log = |error| WhoError::Log { folder: folder.display().to_string(), error };
    let files = Daily::new(&folder, KIND);
    let all = files.days().map_err(log)?;
    let wanted = day(at);
    // The last file that begins before that time, with the sessions that were open then, and all behind it.
    let first = all.iter().rposition(|day| *day <= wanted);
    let Some(first) = first else {
        let first = all.into_iter().next().unwrap_or_else(|| "this day".to_owned());
        return Err(WhoError::Forgotten { first });
    };
    let mut search = searched(&files, &all[first..], at, vec![(asking.address, asking.port)]).map_err(log)?;
    let mut unreadable = search.unreadable();
    if let (true, IpAddr::V4(address), Some(port)) =
        (search.found().is_empty(), asking.address.to_canonical(), asking.port)
    {
        let outside = SocketAddrV4::new(address, port);
        let (inside, more) = translations::behind(&folder, outside, at).map_err(log)?;
        unreadable += more;
        if !inside.is_empty() {
            // Who that was the files say when they are read once more.
            let hosts = inside.into_iter().map(|host| (host.into(), None)).collect();
            search = searched(&files, &all[first..], at, hosts).map_err(log)?;
        }
    }
    let found: Vec<Found> = search
        .found()
        .into_iter()
        .map(|whose| Found {
            user: whose.begin.user.clone(),
            since: whose.begin.at.to_string(),
            until: whose.until.map(|until| until.to_string()),
            station: whose.begin.station.clone(),
            port: whose.begin.port.clone(),
            circuit: whose.begin.circuit.clone(),
            session: whose.begin.session.clone(),
            reason: whose.end.map(|end| end.reason.clone()),
        })
        .collect();
    let port = asking.port.map(|port| format!(" port {port}")).unwrap_or_default();
    let users: Vec<&str> = found.iter().map(|one| one.user.as_str()).collect();
    let question = format!("who {}{port} at {at}", asking.address);
    let by = user.map_or_else(|| asking.by.clone(), |user| format!("{} (uid {user})", asking.by));
    audit.write(&by, question, &users.join(" ")).map_err(WhoError::Audit)?;
    let volume: Volume = search.volume();
    Ok(Who {
        at: at.to_string(),
        found,
        unreadable,
        log_octets: volume.octets,
        log_octets_per_subscriber_and_day: volume.per_subscriber_and_day(),
    })
}

/// Asks the files of the log that a configuration names, for when no concentrator runs.
///
/// # Errors
/// [`WhoError`].
pub fn who(tracked: &Tracked, asking: &Asking) -> Result<Who, WhoError> {
    let user = rustix::process::geteuid().as_raw();
    lookup(tracked, &Audit::of(&tracked.0, &tracked.1), asking, Some(user))
}

#[cfg(test)]
mod tests {
    use super::super::daily::SECONDS_OF_A_DAY;
    use super::*;
    use usher_concentrator::track::{End, Stop};

    const DAY: u64 = 1_790_000_000 / SECONDS_OF_A_DAY * SECONDS_OF_A_DAY;

    fn begin(secs: u64, session: &str, user: &str, last: u8) -> Record {
        Record::begin(Begin {
            at: WallTime::from_unix_secs(DAY + secs),
            session: session.to_owned(),
            user: user.to_owned(),
            station: "02:00:00:00:00:01".to_owned(),
            port: "eth1".to_owned(),
            number: 1,
            circuit: None,
            ipv4: Some([10, 0, 0, last].into()),
            block: None,
            ipv6: Vec::new(),
            classes: Vec::new(),
        })
    }
    fn end(secs: u64, session: &str) -> Record {
        let (at, session) = (WallTime::from_unix_secs(DAY + secs), session.to_owned());
        Record::end(End { at, session, reason: "padt".to_owned(), octets_in: 1, octets_out: 2, stop: None })
    }
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("usher-track-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }
    fn users(tracked: &Tracked, last: u8, secs: u64) -> Vec<String> {
        let at = Some(WallTime::from_unix_secs(DAY + secs).to_string());
        let asking =
            Asking { address: IpAddr::from([10, 0, 0, last]), port: None, at, by: "test".to_owned() };
        who(tracked, &asking).unwrap().found.into_iter().map(|one| one.user).collect()
    }
    /// A writer that stands on a day of old.
    fn on_its_day(log: &TrackLog) {
        let mut writer = log.writer();
        let first = day(WallTime::from_unix_secs(DAY));
        let file = writer.files.append(&first).unwrap();
        fs::remove_file(writer.files.path(&writer.day)).unwrap();
        (writer.file, writer.day) = (Arc::new(file), first);
    }

    #[test]
    fn each_day_has_its_file_and_the_old_ones_go() {
        let folder = folder("days");
        let table = Tracking { folder: folder.clone(), keep_days: 2, ..Tracking::default() };
        let (log, left) = TrackLog::open(Path::new(""), &table, None).unwrap();
        assert_eq!(left, Left::default());
        on_its_day(&log);
        let tracked = (PathBuf::new(), table.clone());
        log.write_durably(&begin(10, "1", "ann", 2)).unwrap();
        log.write_durably(&begin(20, "2", "bob", 3)).unwrap();
        log.write(&end(30, "2")).unwrap();
        for n in 1..=3 {
            log.write(&begin(n * SECONDS_OF_A_DAY + 5, &format!("x{n}"), "eve", 9)).unwrap();
        }
        assert_eq!(Daily::new(&folder, KIND).days().unwrap().len(), 3, "that of the first day is deleted");
        // Ann is there since the first day, and every day's file says so.
        assert_eq!(users(&tracked, 2, 2 * SECONDS_OF_A_DAY), ["ann"]);
        assert!(users(&tracked, 3, 2 * SECONDS_OF_A_DAY).is_empty());
        let at = Some(WallTime::from_unix_secs(DAY + 20).to_string());
        let asking = Asking { address: IpAddr::from([10, 0, 0, 3]), port: None, at, by: "test".to_owned() };
        let gone = who(&tracked, &asking).unwrap_err().to_string();
        assert!(gone.contains("what was before is not kept"), "{gone}");
        let audit = Daily::new(&folder, "audit").path(&day(wall()));
        let text = fs::read_to_string(&audit).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("\"by\":\"test") && text.contains("\"answer\":\"ann\""), "{text}");
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&audit)), (0o700, 0o600));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_concentrator_has_left_is_told_to_the_next() {
        let folder = folder("left");
        let table = Tracking { folder: folder.clone(), keep_days: 0, ..Tracking::default() };
        let (log, _) = TrackLog::open(Path::new(""), &table, None).unwrap();
        on_its_day(&log);
        log.write_durably(&begin(10, "1", "ann", 2)).unwrap();
        log.write_durably(&begin(20, "2", "bob", 3)).unwrap();
        log.write(&end(30, "2")).unwrap();
        // A loss of power has torn the last line.
        let first = day(WallTime::from_unix_secs(DAY));
        Daily::new(&folder, KIND).append(&first).unwrap().write_all(b"{\"event\":\"beg").unwrap();
        let (log, left) = TrackLog::open(Path::new(""), &table, None).unwrap();
        assert_eq!(left.lost.iter().map(|lost| lost.begin.user.as_str()).collect::<Vec<_>>(), ["ann"]);
        log.write(&Record::started(wall())).unwrap();
        let tracked = (PathBuf::new(), table);
        assert_eq!(users(&tracked, 2, 100), ["ann"], "until the next one started");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_stop_that_nobody_has_acknowledged_is_owed_for_a_while() {
        let folder = folder("stops");
        let table = Tracking { folder: folder.clone(), keep_days: 0, ..Tracking::default() };
        let now = wall().unix_secs();
        let at = |ago: u64| WallTime::from_unix_secs(now - ago);
        let begins = |ago, session| match begin(0, session, "ann", 2) {
            Record::Begin(begin) => Record::begin(Begin { at: at(ago), ..begin }),
            other => other,
        };
        let ends = |ago, session: &str| {
            let stop = Some(Stop { cause: 1, record: 1, packets: None });
            match end(0, session) {
                Record::End(end) => Record::end(End { at: at(ago), stop, ..end }),
                other => other,
            }
        };
        fs::create_dir_all(&folder).unwrap();
        let files = Daily::new(&folder, KIND);
        let write = |ago, records: &[Record]| {
            let lines: String = records.iter().map(Record::to_line).collect();
            files.append(&day(at(ago))).unwrap().write_all(lines.as_bytes()).unwrap();
        };
        // Days ago; within the time; and one that is open since days ago.
        write(300_000, &[begins(300_000, "1"), ends(299_990, "1"), begins(300_000, "4")]);
        write(40_000, &[begins(40_000, "2"), begins(40_000, "3"), begins(300_000, "4")]);
        write(30_000, &[begins(300_000, "4"), ends(30_000, "2"), ends(30_000, "3")]);
        let acknowledged = Record::StopAcknowledged { at: at(20_000), session: "3".to_owned() };
        write(20_000, &[begins(300_000, "4"), acknowledged]);
        let since = Some(at(86_400));
        let owed = |left: &Left| left.owed.iter().map(|owed| owed.end.session.clone()).collect::<Vec<_>>();
        let (log, left) = TrackLog::open(Path::new(""), &table, since).unwrap();
        assert_eq!((owed(&left), left.lost.len()), (vec!["2".to_owned()], 1));
        // The end of what was open is in today's file, and so is whose it was.
        log.write(&ends(0, "4")).unwrap();
        log.write(&Record::StopAcknowledged { at: wall(), session: "2".to_owned() }).unwrap();
        for day in files.days().unwrap().iter().filter(|one| **one != day(wall())) {
            fs::remove_file(files.path(day)).unwrap();
        }
        let (_, left) = TrackLog::open(Path::new(""), &table, since).unwrap();
        assert_eq!((owed(&left), left.lost.len()), (vec!["4".to_owned()], 0));
        assert_eq!(left.owed[0].begin.user, "ann");
        assert!(TrackLog::open(Path::new(""), &table, None).unwrap().1.owed.is_empty(), "nobody is told");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn who_was_behind_a_port_is_found_in_a_log_of_days() {
        let folder = folder("behind");
        fs::create_dir_all(&folder).unwrap();
        let files = Daily::new(&folder, KIND);
        let first = day(WallTime::from_unix_secs(DAY));
        // Ann is there since the day before; each of the others for a minute, and five have had her address before.
        let mut log: String = (0..5)
            .map(|n| begin(n, &format!("a{n}"), "eve", 2).to_line() + &end(n, &format!("a{n}")).to_line())
            .collect();
        log += &begin(60, "ann's", "ann", 2).to_line();
        fs::write(files.path(&first), log).unwrap();
        let mut log = begin(60, "ann's", "ann", 2).to_line();
        for n in 0..5000 {
            let (at, session, user) = (SECONDS_OF_A_DAY + n * 10, format!("b{n}"), format!("user{n}"));
            log += &begin(at, &session, &user, 3 + (n % 100) as u8).to_line();
            log += &end(at + 60, &session).to_line();
        }
        fs::write(files.path(&day(WallTime::from_unix_secs(DAY + SECONDS_OF_A_DAY))), log).unwrap();
        let connection = |secs, last, begins: bool| {
            let (begin, of) = (if begins { "begin" } else { "end" }, WallTime::from_unix_secs(DAY + secs));
            format!(
                "{{\"event\":\"{begin}\",\"at\":\"{of}\",\"protocol\":6,\"inside\":\"10.0.0.{last}:9\",\"outside\":\"192.0.2.1:40022\"}}\n"
            )
        };
        let at = SECONDS_OF_A_DAY + 20_005;
        let all = [
            connection(100, 2, true),
            connection(at - 9, 4, true),
            connection(at - 5, 4, false),
            connection(at - 1, 3, true),
        ];
        fs::write(folder.join(format!("translations-{first}.jsonl")), all.concat()).unwrap();
        let tracked = (PathBuf::new(), Tracking { folder: folder.clone(), ..Tracking::default() });
        let ask = |address: [u8; 4], port| {
            let at = Some(WallTime::from_unix_secs(DAY + at).to_string());
            who(&tracked, &Asking { address: address.into(), port, at, by: "test".to_owned() }).unwrap()
        };
        let users = |who: &Who| who.found.iter().map(|one| one.user.clone()).collect::<Vec<_>>();
        let answer = ask([192, 0, 2, 1], Some(40_022));
        assert_eq!(users(&answer), ["ann", "user2000"]);
        assert_eq!((answer.unreadable, users(&ask([10, 0, 0, 2], None))), (0, vec!["ann".to_owned()]));
        // What the log takes is that of the sessions' files, once.
        assert_eq!(answer.log_octets, ask([10, 0, 0, 2], None).log_octets);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_line_behind_a_torn_one_is_whole() {
        let folder = folder("torn");
        let table = Tracking { folder: folder.clone(), ..Tracking::default() };
        fs::create_dir_all(&folder).unwrap();
        fs::write(Daily::new(&folder, KIND).path(&day(wall())), b"{\"event\":\"beg").unwrap();
        let (log, _) = TrackLog::open(Path::new(""), &table, None).unwrap();
        log.write(&Record::started(wall())).unwrap();
        let mut index = Index::default();
        let files = Daily::new(&folder, KIND);
        read(&files, &day(wall()), &mut index).unwrap();
        assert_eq!(index.unreadable(), 1);
        let text = fs::read_to_string(files.path(&day(wall()))).unwrap();
        assert!(text.lines().last().unwrap().contains("started"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_was_left_open_is_found_behind_a_start_that_came_to_nothing() {
        let folder = folder("nothing");
        let table = Tracking { folder: folder.clone(), keep_days: 0, ..Tracking::default() };
        fs::create_dir_all(&folder).unwrap();
        let files = Daily::new(&folder, KIND);
        fs::write(files.path("2026-09-21"), begin(10, "1", "ann", 2).to_line()).unwrap();
        for _ in 0..2 {
            // Nothing is written: what carries packets does not begin.
            let (_, left) = TrackLog::open(Path::new(""), &table, None).unwrap();
            assert_eq!(left.lost.iter().map(|lost| lost.begin.user.as_str()).collect::<Vec<_>>(), ["ann"]);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_clock_that_was_ahead_hides_nothing_and_deletes_nothing() {
        let folder = folder("ahead");
        let table = Tracking { folder: folder.clone(), keep_days: 2, ..Tracking::default() };
        fs::create_dir_all(&folder).unwrap();
        let files = Daily::new(&folder, KIND);
        // All that there is would be too old, had the clock been right.
        fs::write(files.path("2026-09-20"), begin(10, "0", "eve", 3).to_line()).unwrap();
        let (log, _) = TrackLog::open(Path::new(""), &table, None).unwrap();
        assert_eq!(files.days().unwrap()[0], "2026-09-20");
        // It was years ahead, and is set right.
        let future = "2038-01-19";
        {
            let mut writer = log.writer();
            let file = writer.files.append(future).unwrap();
            fs::remove_file(writer.files.path(&writer.day)).unwrap();
            (writer.file, writer.day) = (Arc::new(file), future.to_owned());
        }
        let now = wall();
        let far = WallTime::from_unix_secs(parse_time("2038-01-19T00:00:05Z").unwrap().unix_secs());
        let at = |at, record| match record {
            Record::Begin(begin) => Record::begin(Begin { at, ..begin }),
            other => other,
        };
        log.write_durably(&at(far, begin(0, "1", "ann", 2))).unwrap();
        log.write_durably(&at(now, begin(0, "2", "bob", 4))).unwrap();
        assert_eq!(files.days().unwrap(), [&day(now), future], "it goes on in the day that it is");
        let today = fs::read_to_string(files.path(&day(now))).unwrap();
        assert!(today.contains("ann") && today.contains("bob"), "{today}");
        // The next one has all in today's file.
        let (_, left) = TrackLog::open(Path::new(""), &table, None).unwrap();
        assert_eq!(files.days().unwrap().last().unwrap(), &day(now));
        let mut users: Vec<&str> = left.lost.iter().map(|lost| lost.begin.user.as_str()).collect();
        users.sort_unstable();
        assert_eq!(users, ["ann", "bob"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_end_that_cannot_be_written_is_written_later_and_a_disk_that_forgets_is_asked_anew() {
        let folder = folder("owed");
        let table = Tracking { folder: folder.clone(), keep_days: 0, ..Tracking::default() };
        let (log, _) = TrackLog::open(Path::new(""), &table, None).unwrap();
        let path = log.writer().files.path(&day(wall()));
        let in_it = |text: &str| fs::read_to_string(&path).unwrap().contains(text);
        let now = wall();
        let soon = |record| match record {
            Record::Begin(begin) => Record::begin(Begin { at: now, ..begin }),
            Record::End(end) => Record::end(End { at: now, ..end }),
            other => other,
        };
        log.write_durably(&soon(begin(0, "1", "ann", 2))).unwrap();
        // A full disk: what is opened for reading takes no line.
        let whole = log.writer().file.clone();
        log.writer().file = Arc::new(File::open(&path).unwrap());
        log.write(&soon(end(0, "1"))).unwrap_err();
        log.write_durably(&soon(begin(0, "2", "bob", 3))).unwrap_err();
        log.writer().file = whole;
        log.write_durably(&soon(begin(0, "3", "eve", 4))).unwrap();
        assert!(in_it("padt") && in_it("eve") && !in_it("bob"));
        // A disk that has said once that it lost something: what is there is written anew, before anybody relies on it.
        log.writer().unsure = true;
        let before = fs::metadata(&path).unwrap();
        log.write_durably(&soon(begin(0, "4", "joe", 5))).unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_ne!(fs::metadata(&path).unwrap().ino(), before.ino());
        assert!(in_it("padt") && in_it("eve") && in_it("joe") && !log.writer().unsure);
        // A line that is written, though the disk does not say that it keeps it, nor takes it anew: its host is refused, and is no
        // holder of its address once there is a log again.
        let (null, nowhere) = (File::options().write(true).open("/dev/null"), Path::new("/nonexistent"));
        let files = std::mem::replace(&mut log.writer().files, Daily::new(nowhere, KIND));
        log.writer().file = Arc::new(null.unwrap());
        log.write(&Record::started(now)).unwrap();
        log.write_durably(&soon(begin(0, "5", "zoe", 6))).unwrap_err();
        log.write(&soon(end(0, "5"))).unwrap_err();
        log.write_durably(&soon(begin(0, "6", "max", 7))).unwrap_err();
        log.write(&soon(end(0, "6"))).unwrap_err();
        assert_eq!(log.writer().owed.len(), 1, "nothing is owed for whom nothing was written");
        log.writer().files = files;
        log.write_durably(&soon(begin(0, "7", "kim", 6))).unwrap();
        let (mut index, writer) = (Index::default(), log.writer());
        read(&writer.files, &writer.day, &mut index).unwrap();
        drop(writer);
        let open: Vec<String> = index.open().map(|lost| lost.begin.user).collect();
        assert_eq!((open, in_it("zoe")), (["eve", "joe", "kim"].map(str::to_owned).to_vec(), true));
        fs::remove_dir_all(&folder).unwrap();
    }
}
