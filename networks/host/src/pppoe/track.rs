//! The log of sessions on the disk: a file for each day, and what is asked of them.

use super::ipfix::Ipfix;
use super::translations;
use crate::setup::wall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_concentrator::config::Tracking;
use usher_concentrator::track::{Begin, Index, Lost, Query, Record, Volume, parse_time};
use usher_core::WallTime;
use usher_ident::Connection;

/// Where the log is, and what is set for it.
pub type Tracked = (PathBuf, Tracking);

const SECONDS_OF_A_DAY: u64 = 86_400;

/// The day of a time, in UTC: `2026-11-26`.
pub(super) fn day(at: WallTime) -> String {
    at.to_string().split('T').next().unwrap_or_default().to_owned()
}

fn file_of(folder: &Path, day: &str) -> PathBuf {
    folder.join(format!("{KIND}-{day}.jsonl"))
}

/// What files of sessions are called, before the day.
const KIND: &str = "sessions";

/// The days of which there are files of a kind, in their order.
pub(super) fn days(folder: &Path, kind: &str) -> io::Result<Vec<String>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let day =
            name.to_str().and_then(|name| name.strip_prefix(kind)?.strip_prefix('-')?.strip_suffix(".jsonl"));
        days.extend(day.filter(|day| parse_time(&format!("{day}T00:00:00Z")).is_some()).map(str::to_owned));
    }
    days.sort();
    Ok(days)
}

/// Opens a file that nobody else reads, to write behind what is there.
pub(super) fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    keep_days: u32,
    day: String,
    file: Arc<File>,
    /// Sessions that are open: the next day's file begins with them.
    open: BTreeMap<String, Begin>,
    /// Addresses that hosts have had since the start.
    hosts: BTreeSet<Ipv4Addr>,
    /// Who else is told.
    ipfix: Option<Ipfix>,
    /// The last line is not whole.
    torn: bool,
    /// Records written.
    written: u64,
}

/// The log of sessions, for several threads.
#[derive(Clone, Debug)]
pub(super) struct TrackLog {
    writer: Arc<Mutex<Writer>>,
    /// So many records are on the disk for certain.
    synced: Arc<Mutex<u64>>,
}

impl TrackLog {
    /// Opens a log, and says which sessions an earlier concentrator has left open in it.
    pub(super) fn open(base: &Path, table: &Tracking) -> Result<(Self, Vec<Lost>), String> {
        let folder = base.join(&table.folder);
        let shown = folder.display().to_string();
        let wrong = |error: io::Error| format!("the folder {shown}: {error}");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(wrong)?;
        let mut index = Index::default();
        let days = days(&folder, KIND).map_err(wrong)?;
        if let Some(last) = days.last() {
            read(&folder, last, &mut index).map_err(wrong)?;
        }
        let day = day(wall());
        let path = file_of(&folder, &day);
        let file = append(&path).map_err(wrong)?;
        let torn = fs::read(&path).map_err(wrong)?.last().is_some_and(|last| *last != b'\n');
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(wrong)?;
        let writer = Writer {
            folder,
            keep_days: table.keep_days,
            day,
            file: Arc::new(file),
            open: BTreeMap::new(),
            hosts: BTreeSet::new(),
            ipfix: None,
            torn,
            written: 0,
        };
        let log = Self { writer: Arc::new(Mutex::new(writer)), synced: Arc::default() };
        log.writer().forget();
        Ok((log, index.open().collect()))
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
        self.writer().hosts.contains(&address)
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
            let writer = self.writer();
            (writer.file.clone(), writer.written)
        };
        file.sync_data()?;
        *synced = written;
        Ok(())
    }
}

impl Writer {
    fn write(&mut self, record: &Record) -> io::Result<()> {
        let today = day(record.at());
        // The clock may have been set back: a day that is over stays so.
        if today > self.day {
            self.turn(today)?;
        }
        self.line(&record.to_line())?;
        match record {
            Record::Begin(begin) => {
                self.hosts.extend(begin.ipv4);
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
            Record::Started(_) | Record::Stopped(_) => {}
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
        let file = append(&file_of(&self.folder, &today))?;
        // Who waits for a line of the old file asks the disk for the new one.
        self.file.sync_data()?;
        (self.file, self.day, self.torn) = (Arc::new(file), today, false);
        for begin in self.open.values().cloned().collect::<Vec<_>>() {
            self.line(&Record::begin(begin).to_line())?;
        }
        self.file.sync_data()?;
        File::open(&self.folder)?.sync_all()?;
        self.forget();
        Ok(())
    }

    /// Deletes what has been kept long enough.
    fn forget(&self) {
        if self.keep_days == 0 {
            return;
        }
        let Some(today) = parse_time(&format!("{}T00:00:00Z", self.day)) else { return };
        let kept = today.unix_secs().saturating_sub(u64::from(self.keep_days) * SECONDS_OF_A_DAY);
        let oldest = day(WallTime::from_unix_secs(kept));
        for kind in [KIND, translations::KIND] {
            for old in days(&self.folder, kind).unwrap_or_default().iter().filter(|day| **day < oldest) {
                match fs::remove_file(self.folder.join(format!("{kind}-{old}.jsonl"))) {
                    Ok(()) => tracing::info!(day = old, kind, "the log of this day is deleted"),
                    Err(error) => {
                        tracing::error!(day = old, kind, %error, "the log of this day cannot be deleted");
                    }
                }
            }
        }
    }
}

fn read(folder: &Path, day: &str, index: &mut Index) -> io::Result<()> {
    index.read(&String::from_utf8_lossy(&fs::read(file_of(folder, day))?));
    Ok(())
}

/// Who asked for whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Audit(Option<Arc<PathBuf>>);

#[derive(Serialize)]
struct AuditLine<'a> {
    at: String,
    by: &'a str,
    question: String,
    answer: &'a str,
}

impl Audit {
    pub(super) fn of(base: &Path, table: &Tracking) -> Self {
        let named = !table.audit.as_os_str().is_empty();
        Self(named.then(|| Arc::new(base.join(&table.folder).join(&table.audit))))
    }
    fn write(&self, by: &str, question: String, answer: &str) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut line = serde_json::to_vec(&AuditLine { at: wall().to_string(), by, question, answer })?;
        line.push(b'\n');
        append(path)?.write_all(&line)
    }
    /// IDENT has answered somebody.
    pub(super) fn ident(&self, asker: SocketAddr, connection: &Connection, answer: &str) {
        let question = format!("IDENT {} {}", connection.local, connection.remote);
        if let Err(error) = self.write(&asker.ip().to_string(), question, answer) {
            tracing::error!(%error, "who asked is not in the audit");
        }
    }
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

/// Asks the files of a log.
pub(super) fn lookup((base, table): &Tracked, audit: &Audit, asking: &Asking) -> Result<Who, WhoError> {
    let at = match &asking.at {
        Some(text) => parse_time(text).ok_or_else(|| WhoError::Time(text.clone()))?,
        None => wall(),
    };
    let at = WallTime::from_unix_secs(at.unix_secs());
    let folder = base.join(&table.folder);
    let log = |error| WhoError::Log { folder: folder.display().to_string(), error };
    let all = days(&folder, KIND).map_err(log)?;
    let wanted = day(at);
    // The last file that begins before that time, with the sessions that were open then, and all behind it.
    let first = all.iter().rposition(|day| *day <= wanted);
    let Some(first) = first else {
        let first = all.into_iter().next().unwrap_or_else(|| "this day".to_owned());
        return Err(WhoError::Forgotten { first });
    };
    let mut index = Index::default();
    for day in &all[first..] {
        read(&folder, day, &mut index).map_err(log)?;
    }
    let query = Query { address: asking.address, port: asking.port, at };
    let mut whose = index.who(&query);
    let mut unreadable = index.unreadable();
    if let (true, IpAddr::V4(address), Some(port)) =
        (whose.is_empty(), asking.address.to_canonical(), asking.port)
    {
        let outside = SocketAddrV4::new(address, port);
        let (inside, more) = translations::behind(&folder, outside, at).map_err(log)?;
        let hosts = inside.into_iter().map(|host| Query { address: host.into(), port: None, at });
        whose = hosts.flat_map(|query| index.who(&query)).collect();
        unreadable += more;
    }
    let found: Vec<Found> = whose
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
    audit.write(&asking.by, question, &users.join(" ")).map_err(WhoError::Audit)?;
    let volume: Volume = index.volume();
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
    lookup(tracked, &Audit::of(&tracked.0, &tracked.1), asking)
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_concentrator::track::End;

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
        Record::end(End { at, session, reason: "padt".to_owned(), octets_in: 1, octets_out: 2 })
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
        let file = append(&file_of(&writer.folder, &first)).unwrap();
        fs::remove_file(file_of(&writer.folder, &writer.day)).unwrap();
        (writer.file, writer.day) = (Arc::new(file), first);
    }

    #[test]
    fn each_day_has_its_file_and_the_old_ones_go() {
        let folder = folder("days");
        let table = Tracking { folder: folder.clone(), keep_days: 2, ..Tracking::default() };
        let (log, lost) = TrackLog::open(Path::new(""), &table).unwrap();
        assert!(lost.is_empty());
        on_its_day(&log);
        let tracked = (PathBuf::new(), table.clone());
        log.write_durably(&begin(10, "1", "ann", 2)).unwrap();
        log.write_durably(&begin(20, "2", "bob", 3)).unwrap();
        log.write(&end(30, "2")).unwrap();
        for n in 1..=3 {
            log.write(&begin(n * SECONDS_OF_A_DAY + 5, &format!("x{n}"), "eve", 9)).unwrap();
        }
        assert_eq!(days(&folder, KIND).unwrap().len(), 3, "that of the first day is deleted");
        // Ann is there since the first day, and every day's file says so.
        assert_eq!(users(&tracked, 2, 2 * SECONDS_OF_A_DAY), ["ann"]);
        assert!(users(&tracked, 3, 2 * SECONDS_OF_A_DAY).is_empty());
        let at = Some(WallTime::from_unix_secs(DAY + 20).to_string());
        let asking = Asking { address: IpAddr::from([10, 0, 0, 3]), port: None, at, by: "test".to_owned() };
        let gone = who(&tracked, &asking).unwrap_err().to_string();
        assert!(gone.contains("what was before is not kept"), "{gone}");
        let audit = fs::read_to_string(folder.join("audit.jsonl")).unwrap();
        assert_eq!(audit.lines().count(), 2, "{audit}");
        assert!(audit.contains("\"by\":\"test\"") && audit.contains("\"answer\":\"ann\""), "{audit}");
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("audit.jsonl"))), (0o700, 0o600));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_a_concentrator_has_left_is_told_to_the_next() {
        let folder = folder("left");
        let table = Tracking { folder: folder.clone(), keep_days: 0, ..Tracking::default() };
        let (log, _) = TrackLog::open(Path::new(""), &table).unwrap();
        on_its_day(&log);
        log.write_durably(&begin(10, "1", "ann", 2)).unwrap();
        log.write_durably(&begin(20, "2", "bob", 3)).unwrap();
        log.write(&end(30, "2")).unwrap();
        // A loss of power has torn the last line.
        let path = file_of(&folder, &day(WallTime::from_unix_secs(DAY)));
        append(&path).unwrap().write_all(b"{\"event\":\"beg").unwrap();
        let (log, lost) = TrackLog::open(Path::new(""), &table).unwrap();
        assert_eq!(lost.iter().map(|lost| lost.begin.user.as_str()).collect::<Vec<_>>(), ["ann"]);
        log.write(&Record::started(wall())).unwrap();
        let tracked = (PathBuf::new(), table);
        assert_eq!(users(&tracked, 2, 100), ["ann"], "until the next one started");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_line_behind_a_torn_one_is_whole() {
        let folder = folder("torn");
        let table = Tracking { folder: folder.clone(), ..Tracking::default() };
        fs::create_dir_all(&folder).unwrap();
        fs::write(file_of(&folder, &day(wall())), b"{\"event\":\"beg").unwrap();
        let (log, _) = TrackLog::open(Path::new(""), &table).unwrap();
        log.write(&Record::started(wall())).unwrap();
        let mut index = Index::default();
        read(&folder, &day(wall()), &mut index).unwrap();
        assert_eq!(index.unreadable(), 1);
        let text = fs::read_to_string(file_of(&folder, &day(wall()))).unwrap();
        assert!(text.lines().last().unwrap().contains("started"), "{text}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
