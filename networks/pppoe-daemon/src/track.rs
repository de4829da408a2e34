//! The session log on disk, one file per day, and queries of it.

use super::audit::AddressQueryAuditLog;
use super::daily::{DailyLogFiles, days_before, read_lines, utc_day};
use super::ipfix::IpfixSender;
use super::translations;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use usher_concentrator::config::SessionLogTable;
use usher_concentrator::track::{
    AddressAndOptionalPort, AddressSearch, LogVolume, SessionLogIndex, SessionLogRecord,
    SessionLostByRestart, SessionStart, UnacknowledgedStop, parse_time,
};
use usher_core::WallTime;
use usher_service::setup::wall_time;

/// The base folder of the log's path, and the settings of the log.
pub type SessionLogSettings = (PathBuf, SessionLogTable);

/// The prefix of the session files' names.
const KIND: &str = "sessions";

/// The addresses that hosts have had since the start. The lock is never held during disk operations.
type PastHostAddresses = Arc<Mutex<BTreeSet<Ipv4Addr>>>;

#[derive(Debug)]
struct SessionLogWriter {
    folder: PathBuf,
    files: DailyLogFiles,
    /// Other files with the same retention.
    other_files: Vec<DailyLogFiles>,
    retention_days: u32,
    day: String,
    file: Arc<File>,
    /// True after a failed sync: the data may be lost, although a later sync would report success.
    unsure: bool,
    /// Ends and acknowledgments that could not be written yet.
    unwritten_records: VecDeque<SessionLogRecord>,
    /// The open sessions. The next day's file starts with them.
    open: BTreeMap<String, SessionStart>,
    hosts: PastHostAddresses,
    /// The IPFIX export.
    ipfix: Option<IpfixSender>,
    /// True if the last line is incomplete.
    torn: bool,
    /// The number of records written.
    written: u64,
    /// True once the concentrator has started.
    started: bool,
}

/// The state that an earlier concentrator left in the log.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct SessionsWithoutStop {
    /// Sessions that were open.
    pub(super) lost: Vec<SessionLostByRestart>,
    /// Ended sessions whose accounting Stop is not acknowledged.
    pub(super) unacknowledged_stops: Vec<UnacknowledgedStop>,
}

/// The session log, shared by threads.
#[derive(Clone, Debug)]
pub(super) struct SharedSessionLog {
    writer: Arc<Mutex<SessionLogWriter>>,
    /// The number of records that are durable.
    synced: Arc<Mutex<u64>>,
    hosts: PastHostAddresses,
}

impl SharedSessionLog {
    /// Opens a log and returns the state that an earlier concentrator left in it. Sessions that ended before `since`
    /// owe no Stop.
    pub(super) fn open(
        base: &Path,
        table: &SessionLogTable,
        since: Option<WallTime>,
    ) -> Result<(Self, SessionsWithoutStop), String> {
        let folder = base.join(&table.folder);
        let wrong = folder_error_formatter(&folder);
        usher_service::folder::create_private(&folder).map_err(&wrong)?;
        let files = DailyLogFiles::new(&folder, KIND);
        let today = utc_day(wall_time());
        let days = collect_log_days(&files, &today).map_err(&wrong)?;
        let (left, last) = earlier_sessions(&files, &days, since).map_err(&wrong)?;
        if last.is_some_and(|last| last != today) && !left.lost.is_empty() {
            // The end records of the lost sessions go into today's file, which must therefore also have their begin
            // records, for the subscribers' names.
            let begins =
                left.lost.iter().map(|lost| SessionLogRecord::session_started(lost.begin.clone()).to_line());
            files.rewrite_day(&today, &begins.collect::<Vec<_>>()).map_err(&wrong)?;
        }
        let file = files.open_day(&today).map_err(&wrong)?;
        let torn =
            fs::read(files.day_path(&today)).map_err(&wrong)?.last().is_some_and(|last| *last != b'\n');
        files.sync_folder().map_err(&wrong)?;
        let beside = [
            Some(DailyLogFiles::new(&folder, translations::KIND)),
            AddressQueryAuditLog::from_tracking(base, table).daily_files().cloned(),
        ];
        let hosts = PastHostAddresses::default();
        let writer = SessionLogWriter {
            folder,
            files,
            other_files: beside.into_iter().flatten().collect(),
            retention_days: table.keep_days,
            day: today,
            file: Arc::new(file),
            unsure: false,
            unwritten_records: VecDeque::new(),
            open: BTreeMap::new(),
            hosts: hosts.clone(),
            ipfix: None,
            torn,
            written: 0,
            started: false,
        };
        let log = Self { writer: Arc::new(Mutex::new(writer)), synced: Arc::default(), hosts };
        log.lock_writer().delete_expired_logs(days.last());
        Ok((log, left))
    }

    /// Reads the same as [`SharedSessionLog::open`], and writes nothing.
    pub(super) fn check_session_log(
        base: &Path,
        table: &SessionLogTable,
        since: Option<WallTime>,
    ) -> Result<(), String> {
        let folder = base.join(&table.folder);
        let wrong = folder_error_formatter(&folder);
        usher_service::folder::check_private(&folder).map_err(&wrong)?;
        if folder.is_dir() {
            let files = DailyLogFiles::new(&folder, KIND);
            let days = files.existing_days().map_err(&wrong)?;
            earlier_sessions(&files, &days, since).map_err(&wrong)?;
        }
        Ok(())
    }

    /// Connects the IPFIX export, and reports the ends of `lost` sessions to it.
    pub(super) fn set_exporter(&self, ipfix: IpfixSender, lost: &[SessionLostByRestart]) {
        let at = wall_time();
        lost.iter().for_each(|lost| ipfix.report_session(at, false, &lost.begin));
        self.lock_writer().ipfix = Some(ipfix);
    }
    /// Returns the folder of the log.
    pub(super) fn folder(&self) -> PathBuf {
        self.lock_writer().folder.clone()
    }
    /// True if a host has had this address since the start.
    pub(super) fn has_held_address(&self, address: Ipv4Addr) -> bool {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).contains(&address)
    }
    fn lock_writer(&self) -> MutexGuard<'_, SessionLogWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Appends a record.
    pub(super) fn write_record(&self, record: &SessionLogRecord) -> io::Result<()> {
        self.lock_writer().write_record(record)
    }
    /// Appends a record durably. Writers that arrive while the disk is busy share the next sync.
    pub(super) fn write_durably(&self, record: &SessionLogRecord) -> io::Result<()> {
        let own = {
            let mut writer = self.lock_writer();
            writer.write_record(record)?;
            writer.written
        };
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= own {
            return Ok(());
        }
        let (file, written) = {
            let mut writer = self.lock_writer();
            writer.write_pending_records()?;
            (writer.file.clone(), writer.written)
        };
        if let Err(error) = file.sync_data() {
            tracing::error!(%error, "cannot sync the session log; writing it again");
            let mut writer = self.lock_writer();
            writer.unsure = true;
            writer.write_pending_records()?;
            *synced = writer.written;
            return Ok(());
        }
        *synced = written;
        Ok(())
    }
}

impl SessionLogWriter {
    fn write_record(&mut self, record: &SessionLogRecord) -> io::Result<()> {
        self.started |= matches!(record, SessionLogRecord::Started(_));
        let done = self.write_pending_records().and_then(|()| self.append_record(record));
        let owed = match record {
            // Before the start, ends belong to an earlier concentrator's sessions. After it, an end without a begin
            // belongs to a rejected host. There may be many while the log cannot be written.
            SessionLogRecord::End(end) => !self.started || self.open.contains_key(&end.session),
            record => matches!(record, SessionLogRecord::StopAcknowledged { .. }),
        };
        if done.is_err() && owed {
            self.unwritten_records.push_back(record.clone());
        }
        done
    }

    /// Writes the pending records.
    fn write_pending_records(&mut self) -> io::Result<()> {
        if self.unsure {
            self.rewrite_day(self.day.clone())?;
        }
        while let Some(owed) = self.unwritten_records.pop_front() {
            if let Err(error) = self.append_record(&owed) {
                self.unwritten_records.push_front(owed);
                return Err(error);
            }
        }
        Ok(())
    }

    fn append_record(&mut self, record: &SessionLogRecord) -> io::Result<()> {
        let today = utc_day(record.time());
        // A clock that steps back slightly does not reopen the previous day. A clock that was days ahead does.
        let ahead = days_before(&self.day, 1).is_some_and(|before| today < before);
        if today > self.day || ahead {
            self.start_log_day(today)?;
        }
        self.write_line(&record.to_line())?;
        match record {
            SessionLogRecord::Begin(begin) => {
                self.hosts.lock().unwrap_or_else(PoisonError::into_inner).extend(begin.ipv4);
                if let Some(ipfix) = &self.ipfix {
                    ipfix.report_session(begin.started_at, true, begin);
                }
                self.open.insert(begin.session.clone(), begin.clone());
            }
            SessionLogRecord::End(end) => {
                if let Some((begin, ipfix)) = self.open.remove(&end.session).zip(self.ipfix.as_ref()) {
                    ipfix.report_session(end.ended_at, false, &begin);
                }
            }
            SessionLogRecord::Started(_)
            | SessionLogRecord::Stopped(_)
            | SessionLogRecord::StopAcknowledged { .. } => {}
        }
        Ok(())
    }

    fn write_line(&mut self, line: &str) -> io::Result<()> {
        if self.torn {
            (&*self.file).write_all(b"\n")?;
        }
        self.torn = true;
        (&*self.file).write_all(line.as_bytes())?;
        self.torn = false;
        self.written += 1;
        Ok(())
    }

    /// Begins a day's file with the open sessions, so that older files can be deleted.
    fn start_log_day(&mut self, today: String) -> io::Result<()> {
        // Sync the old file before the switch: writers that wait for its sync will sync only the new file.
        self.file.sync_data()?;
        let before = self.day.clone();
        self.rewrite_day(today)?;
        self.delete_expired_logs(Some(&before));
        Ok(())
    }

    /// Rewrites a day's file with its content and the open sessions, and continues there. On an error nothing
    /// changes.
    fn rewrite_day(&mut self, day: String) -> io::Result<()> {
        let open: Vec<String> = self
            .open
            .values()
            .map(|begin| SessionLogRecord::session_started(begin.clone()).to_line())
            .collect();
        let file = self.files.rewrite_day(&day, &open)?;
        (self.file, self.day, self.torn, self.unsure) = (Arc::new(file), day, false, false);
        Ok(())
    }

    /// Deletes expired files. `last` is the last earlier day with content. If even that has expired, the clock is
    /// probably wrong, so all files stay until there is newer content.
    fn delete_expired_logs(&self, last: Option<&String>) {
        let oldest = days_before(&self.day, self.retention_days).filter(|_| self.retention_days > 0);
        let Some(oldest) = oldest else { return };
        if let Some(last) = last.filter(|last| **last < oldest) {
            let today = &self.day;
            tracing::warn!(
                last,
                today,
                "all records of the session log have expired; the next day deletes them if the clock is right"
            );
            return;
        }
        for files in self.other_files.iter().chain([&self.files]) {
            files.delete_before(&oldest);
        }
    }
}

fn index_log_day(files: &DailyLogFiles, day: &str, index: &mut SessionLogIndex) -> io::Result<()> {
    for line in read_lines(&files.day_path(day))? {
        index.read_lines(&format!("{}\n", line?));
    }
    Ok(())
}

/// Formats an error of a folder.
fn folder_error_formatter(folder: &Path) -> impl Fn(io::Error) -> String + use<> {
    let shown = folder.display().to_string();
    move |error| format!("the folder {shown}: {error}")
}

/// Reads the state that an earlier concentrator left in the files of these days. Also returns the last day with
/// content.
fn earlier_sessions(
    files: &DailyLogFiles,
    days: &[String],
    since: Option<WallTime>,
) -> io::Result<(SessionsWithoutStop, Option<String>)> {
    let (mut left, mut last) = (SessionsWithoutStop::default(), None);
    // The newest file may be empty, because a start failed, so go back to earlier days.
    for day in days.iter().rev() {
        let mut index = SessionLogIndex::default();
        index_log_day(files, day, &mut index)?;
        if !index.is_empty() {
            left.lost = index.open_sessions().collect();
            last = Some(day.clone());
            break;
        }
    }
    if let Some(since) = since {
        left.unacknowledged_stops = find_unacknowledged_stops(files, days, since)?;
    }
    Ok((left, last))
}

/// Finds the sessions that ended at or after this time without an acknowledged Stop.
fn find_unacknowledged_stops(
    files: &DailyLogFiles,
    days: &[String],
    since: WallTime,
) -> io::Result<Vec<UnacknowledgedStop>> {
    let (first, mut index) = (utc_day(since), SessionLogIndex::default());
    // A day's file has the begins of all sessions that end on that day.
    for day in days.iter().filter(|day| **day >= first) {
        index_log_day(files, day, &mut index)?;
    }
    Ok(index.unacknowledged_stops().filter(|owed| owed.end.ended_at >= since).collect())
}

/// Returns the days with files in order, today last. Records that a wrong clock wrote to files of future days move to
/// today's file.
fn collect_log_days(files: &DailyLogFiles, today: &str) -> io::Result<Vec<String>> {
    let (mut days, ahead): (Vec<_>, Vec<_>) =
        files.existing_days()?.into_iter().partition(|day| day.as_str() <= today);
    for day in ahead {
        tracing::warn!(day, "the clock was ahead when this log was written; its records move to today's log");
        let all: io::Result<Vec<String>> =
            read_lines(&files.day_path(&day))?.map(|line| line.map(|line| line + "\n")).collect();
        files.rewrite_day(today, &all?)?;
        fs::remove_file(files.day_path(&day))?;
        if days.last().is_none_or(|last| last != today) {
            days.push(today.to_owned());
        }
    }
    Ok(days)
}

/// A query for the holders of an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressQuery {
    /// The address.
    pub address: IpAddr,
    /// The port. `None`: any.
    pub port: Option<u16>,
    /// The time in RFC 3339 format. `None`: now.
    pub at: Option<String>,
    /// The name of the asker, for the audit.
    pub by: String,
}

/// The holders of an address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AddressQueryReply {
    /// The second of the query.
    pub at: String,
    /// The holders in order of time. Empty: none.
    pub found: Vec<AddressHolder>,
    /// The number of unreadable log lines.
    pub unreadable: u64,
    /// The octets of the log that were read.
    pub log_octets: u64,
    /// The octets of the log per subscriber and day.
    pub log_octets_per_subscriber_and_day: f64,
}

/// A holder of an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressHolder {
    /// The user.
    pub user: String,
    /// The start.
    pub since: String,
    /// The end. `None`: the holder still has the address.
    pub until: Option<String>,
    /// The host's Ethernet address.
    pub station: String,
    /// The interface of the concentrator.
    pub port: String,
    /// The circuit, if a switch has added it.
    pub circuit: Option<String>,
    /// Acct-Session-Id.
    pub session: String,
    /// Why the session ended.
    pub reason: Option<String>,
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum AddressQueryError {
    /// The time cannot be parsed.
    #[error("\"{0}\" is not a time: write 2026-11-26T12:00:00Z, or with an offset 2026-11-26T21:00:00+09:00")]
    Time(String),
    /// No log is configured.
    #[error("the configuration has no [tracking], so there is no session log")]
    Untracked,
    /// The log cannot be read.
    #[error("cannot read the session log in {folder}: {error}")]
    Log {
        /// The folder of the log.
        folder: String,
        /// The cause.
        error: io::Error,
    },
    /// The time is before the retention.
    #[error("the session log begins on {first}: it has no earlier sessions")]
    Forgotten {
        /// The first day of the log.
        first: String,
    },
    /// The query cannot be recorded in the audit.
    #[error("query refused: cannot write the audit: {0}")]
    Audit(io::Error),
}

/// Searches the files of some days for the holders in one second. A day's lines may exceed the memory, so they are
/// streamed.
fn search_days(
    files: &DailyLogFiles,
    days: &[String],
    at: WallTime,
    addresses: Vec<AddressAndOptionalPort>,
) -> io::Result<AddressSearch> {
    let mut search = AddressSearch::new(at, addresses);
    for day in days {
        for line in read_lines(&files.day_path(day))? {
            search.read_lines(&format!("{}\n", line?));
        }
    }
    Ok(search)
}

/// Queries the files of a log. The audit records the caller's uid beside the claimed name.
pub(super) fn look_up_holders(
    (base, table): &SessionLogSettings,
    audit: &AddressQueryAuditLog,
    asking: &AddressQuery,
    user: Option<u32>,
) -> Result<AddressQueryReply, AddressQueryError> {
    let at = match &asking.at {
        Some(text) => parse_time(text).ok_or_else(|| AddressQueryError::Time(text.clone()))?,
        None => wall_time(),
    };
    let at = WallTime::from_unix_secs(at.unix_secs());
    let folder = base.join(&table.folder);
    let log = |error| AddressQueryError::Log { folder: folder.display().to_string(), error };
    let files = DailyLogFiles::new(&folder, KIND);
    let all = files.existing_days().map_err(log)?;
    let wanted = utc_day(at);
    // Begin with the last file from before that time, because each file starts with the sessions then open.
    let first = all.iter().rposition(|day| *day <= wanted);
    let Some(first) = first else {
        let first = all.into_iter().next().unwrap_or_else(|| "this day".to_owned());
        return Err(AddressQueryError::Forgotten { first });
    };
    let mut search =
        search_days(&files, &all[first..], at, vec![(asking.address, asking.port)]).map_err(log)?;
    let mut unreadable = search.unreadable_count();
    if let (true, IpAddr::V4(address), Some(port)) =
        (search.holders().is_empty(), asking.address.to_canonical(), asking.port)
    {
        let outside = SocketAddrV4::new(address, port);
        let (inside, more) = translations::find_translated_hosts(&folder, outside, at).map_err(log)?;
        unreadable += more;
        if !inside.is_empty() {
            // The translation log gives only inside addresses. A second pass over the session log finds their
            // subscribers.
            let hosts = inside.into_iter().map(|host| (host.into(), None)).collect();
            search = search_days(&files, &all[first..], at, hosts).map_err(log)?;
        }
    }
    let found: Vec<AddressHolder> = search
        .holders()
        .into_iter()
        .map(|whose| AddressHolder {
            user: whose.begin.user.clone(),
            since: whose.begin.started_at.to_string(),
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
    audit.write_audit_entry(&by, question, &users.join(" ")).map_err(AddressQueryError::Audit)?;
    let volume: LogVolume = search.log_volume();
    Ok(AddressQueryReply {
        at: at.to_string(),
        found,
        unreadable,
        log_octets: volume.octets,
        log_octets_per_subscriber_and_day: volume.octets_per_subscriber_day(),
    })
}

/// Queries the log files of a configuration, for use without a running concentrator.
///
/// # Errors
/// [`AddressQueryError`].
pub fn query_log_files(
    tracked: &SessionLogSettings,
    asking: &AddressQuery,
) -> Result<AddressQueryReply, AddressQueryError> {
    let user = rustix::process::geteuid().as_raw();
    look_up_holders(tracked, &AddressQueryAuditLog::from_tracking(&tracked.0, &tracked.1), asking, Some(user))
}

#[cfg(test)]
mod tests;
