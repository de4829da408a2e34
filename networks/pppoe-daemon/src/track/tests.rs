use super::super::daily::SECONDS_OF_A_DAY;
use super::*;
use usher_concentrator::track::{AccountingStop, SessionEnd};

const DAY: u64 = 1_790_000_000 / SECONDS_OF_A_DAY * SECONDS_OF_A_DAY;

fn begin_record(secs: u64, session: &str, user: &str, last: u8) -> SessionLogRecord {
    SessionLogRecord::session_started(SessionStart {
        started_at: WallTime::from_unix_secs(DAY + secs),
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
fn end_record(secs: u64, session: &str) -> SessionLogRecord {
    let (at, session) = (WallTime::from_unix_secs(DAY + secs), session.to_owned());
    SessionLogRecord::session_ended(SessionEnd {
        ended_at: at,
        session,
        reason: "padt".to_owned(),
        octets_in: 1,
        octets_out: 2,
        stop: None,
    })
}
fn test_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("usher-track-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}
fn holder_names(tracked: &SessionLogSettings, last: u8, secs: u64) -> Vec<String> {
    let at = Some(WallTime::from_unix_secs(DAY + secs).to_string());
    let asking =
        AddressQuery { address: IpAddr::from([10, 0, 0, last]), port: None, at, by: "test".to_owned() };
    query_log_files(tracked, &asking).unwrap().found.into_iter().map(|one| one.user).collect()
}
/// Returns a log whose writer is on an old day.
fn on_its_day(log: &SharedSessionLog) {
    let mut writer = log.lock_writer();
    let first = utc_day(WallTime::from_unix_secs(DAY));
    let file = writer.files.open_day(&first).unwrap();
    fs::remove_file(writer.files.day_path(&writer.day)).unwrap();
    (writer.file, writer.day) = (Arc::new(file), first);
}

#[test]
fn each_day_has_its_file_and_the_old_ones_go() {
    let folder = test_folder("days");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 2, ..SessionLogTable::default() };
    let (log, left) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    assert_eq!(left, SessionsWithoutStop::default());
    on_its_day(&log);
    let tracked = (PathBuf::new(), table.clone());
    log.write_durably(&begin_record(10, "1", "ann", 2)).unwrap();
    log.write_durably(&begin_record(20, "2", "bob", 3)).unwrap();
    log.write_record(&end_record(30, "2")).unwrap();
    for n in 1..=3 {
        log.write_record(&begin_record(n * SECONDS_OF_A_DAY + 5, &format!("x{n}"), "eve", 9)).unwrap();
    }
    assert_eq!(
        DailyLogFiles::new(&folder, KIND).existing_days().unwrap().len(),
        3,
        "that of the first day is deleted"
    );
    // Ann's session is open since the first day, and every day's file says so.
    assert_eq!(holder_names(&tracked, 2, 2 * SECONDS_OF_A_DAY), ["ann"]);
    assert!(holder_names(&tracked, 3, 2 * SECONDS_OF_A_DAY).is_empty());
    let at = Some(WallTime::from_unix_secs(DAY + 20).to_string());
    let asking = AddressQuery { address: IpAddr::from([10, 0, 0, 3]), port: None, at, by: "test".to_owned() };
    let gone = query_log_files(&tracked, &asking).unwrap_err().to_string();
    assert!(gone.contains("it has no earlier sessions"), "{gone}");
    let audit = DailyLogFiles::new(&folder, "audit").day_path(&utc_day(wall_time()));
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
    let folder = test_folder("left");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 0, ..SessionLogTable::default() };
    let (log, _) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    on_its_day(&log);
    log.write_durably(&begin_record(10, "1", "ann", 2)).unwrap();
    log.write_durably(&begin_record(20, "2", "bob", 3)).unwrap();
    log.write_record(&end_record(30, "2")).unwrap();
    // A power loss has torn the last line.
    let first = utc_day(WallTime::from_unix_secs(DAY));
    DailyLogFiles::new(&folder, KIND).open_day(&first).unwrap().write_all(b"{\"event\":\"beg").unwrap();
    let (log, left) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    assert_eq!(left.lost.iter().map(|lost| lost.begin.user.as_str()).collect::<Vec<_>>(), ["ann"]);
    log.write_record(&SessionLogRecord::service_started(wall_time())).unwrap();
    let tracked = (PathBuf::new(), table);
    assert_eq!(holder_names(&tracked, 2, 100), ["ann"], "until the next one started");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_stop_that_nobody_has_acknowledged_is_owed_for_a_while() {
    let folder = test_folder("stops");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 0, ..SessionLogTable::default() };
    let now = wall_time().unix_secs();
    let at = |ago: u64| WallTime::from_unix_secs(now - ago);
    let begins = |ago, session| match begin_record(0, session, "ann", 2) {
        SessionLogRecord::Begin(begin) => {
            SessionLogRecord::session_started(SessionStart { started_at: at(ago), ..begin })
        }
        other => other,
    };
    let ends = |ago, session: &str| {
        let stop = Some(AccountingStop { cause: 1, record: 1, packets: None });
        match end_record(0, session) {
            SessionLogRecord::End(end) => {
                SessionLogRecord::session_ended(SessionEnd { ended_at: at(ago), stop, ..end })
            }
            other => other,
        }
    };
    fs::create_dir_all(&folder).unwrap();
    let files = DailyLogFiles::new(&folder, KIND);
    let write = |ago, records: &[SessionLogRecord]| {
        let lines: String = records.iter().map(SessionLogRecord::to_line).collect();
        files.open_day(&utc_day(at(ago))).unwrap().write_all(lines.as_bytes()).unwrap();
    };
    // One session ended days ago, one within the limit, and one is open since days ago.
    write(300_000, &[begins(300_000, "1"), ends(299_990, "1"), begins(300_000, "4")]);
    write(40_000, &[begins(40_000, "2"), begins(40_000, "3"), begins(300_000, "4")]);
    write(30_000, &[begins(300_000, "4"), ends(30_000, "2"), ends(30_000, "3")]);
    let acknowledged =
        SessionLogRecord::StopAcknowledged { acknowledged_at: at(20_000), session: "3".to_owned() };
    write(20_000, &[begins(300_000, "4"), acknowledged]);
    let since = Some(at(86_400));
    let owed = |left: &SessionsWithoutStop| {
        left.unacknowledged_stops.iter().map(|owed| owed.end.session.clone()).collect::<Vec<_>>()
    };
    let (log, left) = SharedSessionLog::open(Path::new(""), &table, since).unwrap();
    assert_eq!((owed(&left), left.lost.len()), (vec!["2".to_owned()], 1));
    // The end of the open session is in today's file, with its subscriber.
    log.write_record(&ends(0, "4")).unwrap();
    log.write_record(&SessionLogRecord::StopAcknowledged {
        acknowledged_at: wall_time(),
        session: "2".to_owned(),
    })
    .unwrap();
    for day in files.existing_days().unwrap().iter().filter(|one| **one != utc_day(wall_time())) {
        fs::remove_file(files.day_path(day)).unwrap();
    }
    let (_, left) = SharedSessionLog::open(Path::new(""), &table, since).unwrap();
    assert_eq!((owed(&left), left.lost.len()), (vec!["4".to_owned()], 0));
    assert_eq!(left.unacknowledged_stops[0].begin.user, "ann");
    assert!(
        SharedSessionLog::open(Path::new(""), &table, None).unwrap().1.unacknowledged_stops.is_empty(),
        "nobody is told"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn who_was_behind_a_port_is_found_in_a_log_of_days() {
    let folder = test_folder("behind");
    fs::create_dir_all(&folder).unwrap();
    let files = DailyLogFiles::new(&folder, KIND);
    let first = utc_day(WallTime::from_unix_secs(DAY));
    // Ann's session is open since the day before. Each of the others lasts a minute, and five had her address before.
    let mut log: String = (0..5)
        .map(|n| {
            begin_record(n, &format!("a{n}"), "eve", 2).to_line() + &end_record(n, &format!("a{n}")).to_line()
        })
        .collect();
    log += &begin_record(60, "ann's", "ann", 2).to_line();
    fs::write(files.day_path(&first), log).unwrap();
    let mut log = begin_record(60, "ann's", "ann", 2).to_line();
    for n in 0..5000 {
        let (at, session, user) = (SECONDS_OF_A_DAY + n * 10, format!("b{n}"), format!("user{n}"));
        log += &begin_record(at, &session, &user, 3 + (n % 100) as u8).to_line();
        log += &end_record(at + 60, &session).to_line();
    }
    fs::write(files.day_path(&utc_day(WallTime::from_unix_secs(DAY + SECONDS_OF_A_DAY))), log).unwrap();
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
    let tracked = (PathBuf::new(), SessionLogTable { folder: folder.clone(), ..SessionLogTable::default() });
    let ask = |address: [u8; 4], port| {
        let at = Some(WallTime::from_unix_secs(DAY + at).to_string());
        query_log_files(&tracked, &AddressQuery { address: address.into(), port, at, by: "test".to_owned() })
            .unwrap()
    };
    let users = |who: &AddressQueryReply| who.found.iter().map(|one| one.user.clone()).collect::<Vec<_>>();
    let answer = ask([192, 0, 2, 1], Some(40_022));
    assert_eq!(users(&answer), ["ann", "user2000"]);
    assert_eq!((answer.unreadable, users(&ask([10, 0, 0, 2], None))), (0, vec!["ann".to_owned()]));
    // The log's size counts the session files once.
    assert_eq!(answer.log_octets, ask([10, 0, 0, 2], None).log_octets);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_line_behind_a_torn_one_is_whole() {
    let folder = test_folder("torn");
    let table = SessionLogTable { folder: folder.clone(), ..SessionLogTable::default() };
    fs::create_dir_all(&folder).unwrap();
    fs::write(DailyLogFiles::new(&folder, KIND).day_path(&utc_day(wall_time())), b"{\"event\":\"beg")
        .unwrap();
    let (log, _) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    log.write_record(&SessionLogRecord::service_started(wall_time())).unwrap();
    let mut index = SessionLogIndex::default();
    let files = DailyLogFiles::new(&folder, KIND);
    index_log_day(&files, &utc_day(wall_time()), &mut index).unwrap();
    assert_eq!(index.unreadable_count(), 1);
    let text = fs::read_to_string(files.day_path(&utc_day(wall_time()))).unwrap();
    assert!(text.lines().last().unwrap().contains("started"), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn open_sessions_are_found_after_a_start_that_failed() {
    let folder = test_folder("nothing");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 0, ..SessionLogTable::default() };
    fs::create_dir_all(&folder).unwrap();
    let files = DailyLogFiles::new(&folder, KIND);
    fs::write(files.day_path("2026-09-21"), begin_record(10, "1", "ann", 2).to_line()).unwrap();
    for _ in 0..2 {
        // Nothing is written: the data plane does not start.
        let (_, left) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
        assert_eq!(left.lost.iter().map(|lost| lost.begin.user.as_str()).collect::<Vec<_>>(), ["ann"]);
    }
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_clock_that_was_ahead_hides_nothing_and_deletes_nothing() {
    let folder = test_folder("ahead");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 2, ..SessionLogTable::default() };
    fs::create_dir_all(&folder).unwrap();
    let files = DailyLogFiles::new(&folder, KIND);
    // All content would have expired if the clock were right.
    fs::write(files.day_path("2026-09-20"), begin_record(10, "0", "eve", 3).to_line()).unwrap();
    let (log, _) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    assert_eq!(files.existing_days().unwrap()[0], "2026-09-20");
    // The clock was years ahead, and is corrected.
    let future = "2038-01-19";
    {
        let mut writer = log.lock_writer();
        let file = writer.files.open_day(future).unwrap();
        fs::remove_file(writer.files.day_path(&writer.day)).unwrap();
        (writer.file, writer.day) = (Arc::new(file), future.to_owned());
    }
    let now = wall_time();
    let far = WallTime::from_unix_secs(parse_time("2038-01-19T00:00:05Z").unwrap().unix_secs());
    let at = |at, record| match record {
        SessionLogRecord::Begin(begin) => {
            SessionLogRecord::session_started(SessionStart { started_at: at, ..begin })
        }
        other => other,
    };
    log.write_durably(&at(far, begin_record(0, "1", "ann", 2))).unwrap();
    log.write_durably(&at(now, begin_record(0, "2", "bob", 4))).unwrap();
    assert_eq!(files.existing_days().unwrap(), [&utc_day(now), future], "it goes on in the day that it is");
    let today = fs::read_to_string(files.day_path(&utc_day(now))).unwrap();
    assert!(today.contains("ann") && today.contains("bob"), "{today}");
    // The next start has everything in today's file.
    let (_, left) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    assert_eq!(files.existing_days().unwrap().last().unwrap(), &utc_day(now));
    let mut users: Vec<&str> = left.lost.iter().map(|lost| lost.begin.user.as_str()).collect();
    users.sort_unstable();
    assert_eq!(users, ["ann", "bob"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_failed_end_is_written_later_and_lost_lines_are_rewritten() {
    let folder = test_folder("owed");
    let table = SessionLogTable { folder: folder.clone(), keep_days: 0, ..SessionLogTable::default() };
    let (log, _) = SharedSessionLog::open(Path::new(""), &table, None).unwrap();
    let path = log.lock_writer().files.day_path(&utc_day(wall_time()));
    let in_it = |text: &str| fs::read_to_string(&path).unwrap().contains(text);
    let now = wall_time();
    let soon = |record| match record {
        SessionLogRecord::Begin(begin) => {
            SessionLogRecord::session_started(SessionStart { started_at: now, ..begin })
        }
        SessionLogRecord::End(end) => SessionLogRecord::session_ended(SessionEnd { ended_at: now, ..end }),
        other => other,
    };
    log.write_durably(&soon(begin_record(0, "1", "ann", 2))).unwrap();
    // A full disk: a file opened for reading takes no line.
    let whole = log.lock_writer().file.clone();
    log.lock_writer().file = Arc::new(File::open(&path).unwrap());
    log.write_record(&soon(end_record(0, "1"))).unwrap_err();
    log.write_durably(&soon(begin_record(0, "2", "bob", 3))).unwrap_err();
    log.lock_writer().file = whole;
    log.write_durably(&soon(begin_record(0, "3", "eve", 4))).unwrap();
    assert!(in_it("padt") && in_it("eve") && !in_it("bob"));
    // After a disk has reported a loss once, the file is rewritten before a record counts as durable.
    log.lock_writer().unsure = true;
    let before = fs::metadata(&path).unwrap();
    log.write_durably(&soon(begin_record(0, "4", "joe", 5))).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_ne!(fs::metadata(&path).unwrap().ino(), before.ino());
    assert!(in_it("padt") && in_it("eve") && in_it("joe") && !log.lock_writer().unsure);
    // A line is written, but the sync and the rewrite fail. Its host is rejected, and does not count as a holder of
    // the address once the log works again.
    let (null, nowhere) = (File::options().write(true).open("/dev/null"), Path::new("/nonexistent"));
    let files = std::mem::replace(&mut log.lock_writer().files, DailyLogFiles::new(nowhere, KIND));
    log.lock_writer().file = Arc::new(null.unwrap());
    log.write_record(&SessionLogRecord::service_started(now)).unwrap();
    log.write_durably(&soon(begin_record(0, "5", "zoe", 6))).unwrap_err();
    log.write_record(&soon(end_record(0, "5"))).unwrap_err();
    log.write_durably(&soon(begin_record(0, "6", "max", 7))).unwrap_err();
    log.write_record(&soon(end_record(0, "6"))).unwrap_err();
    assert_eq!(log.lock_writer().unwritten_records.len(), 1, "nothing is owed for whom nothing was written");
    log.lock_writer().files = files;
    log.write_durably(&soon(begin_record(0, "7", "kim", 6))).unwrap();
    let (mut index, writer) = (SessionLogIndex::default(), log.lock_writer());
    index_log_day(&writer.files, &writer.day, &mut index).unwrap();
    drop(writer);
    let open: Vec<String> = index.open_sessions().map(|lost| lost.begin.user).collect();
    assert_eq!((open, in_it("zoe")), (["eve", "joe", "kim"].map(str::to_owned).to_vec(), true));
    fs::remove_dir_all(&folder).unwrap();
}
