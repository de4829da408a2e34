//! Tests that acknowledged records exist exactly once after `kill -9` of the writing program, or a crash of the
//! database.
//!
//! `durable write STORE PLACE FIRST` is the program to be killed. From FIRST on it writes a session and a login for
//! each number, in group commits. After each acknowledged commit it prints `FIRST LAST`.

#[path = "stores/cluster.rs"]
mod cluster;
#[path = "stores/folder.rs"]
mod folder;
#[path = "../../lab/tests/ends/harness.rs"]
mod harness;
#[path = "stores/session.rs"]
mod session;

use cluster::PostgresCluster;
use folder::StoreTempDir;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use usher_aaa::store::{Store, StoreChange, StoreError};
use usher_core::WallTime;
use usher_store::{PostgresStore, SqliteStore};

const RECORDS: u32 = 50_000;
const AT_ONCE: u32 = 64;

/// Longer than any step on a busy machine. Only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, verb, store, place, first] = arguments.as_slice()
        && verb == "write"
    {
        return write_records(open_store(store, place).as_mut(), first.parse().expect("a number"));
    }
    harness::run_named_tests(&[
        ("a_killed_writer_loses_nothing", killed_writer),
        ("a_stopped_database_loses_nothing", stopped_database),
    ]);
}

fn open_store(store: &str, place: &str) -> Box<dyn Store> {
    match store {
        "sqlite" => Box::new(SqliteStore::open(place).expect("the file can be opened")),
        _ => Box::new(connect_patiently(place)),
    }
}

/// Connects, with retries if a busy server does not reply in time.
fn connect_patiently(url: &str) -> PostgresStore {
    let begun = Instant::now();
    loop {
        match PostgresStore::connect(url) {
            Err(StoreError::Unavailable(why)) => assert!(begun.elapsed() < TEST_TIMEOUT, "{why}"),
            other => return other.expect("the server can be reached"),
        }
    }
}

/// Writes until all records exist.
fn write_records(store: &mut dyn Store, first: u32) {
    let mut out = std::io::stdout().lock();
    let mut next = first;
    while next < RECORDS {
        let last = (next + AT_ONCE - 1).min(RECORDS - 1);
        let login = |n| StoreChange::Login {
            username: n,
            reply: "Access-Accept",
            decided_at: WallTime::from_unix_secs(1_700_000_000),
            callingstationid: String::new(),
        };
        let both = |n| [StoreChange::Session(Box::new(session::test_session(n))), login(n.to_string())];
        let batch: Vec<StoreChange> = (next..=last).flat_map(both).collect();
        match store.write_changes(&batch) {
            Ok(()) => {
                writeln!(out, "{next} {last}").and_then(|()| out.flush()).expect("the reader listens");
                next = last + 1;
            }
            Err(StoreError::Unavailable(_)) => {
                writeln!(out, "away").and_then(|()| out.flush()).expect("the reader listens");
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A running writer.
struct WriterProcess {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// All numbers below it are acknowledged.
    acknowledged: u32,
    /// How many times the store was unavailable.
    away: u32,
}

impl WriterProcess {
    fn start(store: &str, place: &str, first: u32) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(program);
        command.args(["write", store, place, &first.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program starts again");
        let lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
        Self { child, lines, acknowledged: first, away: 0 }
    }

    /// Reads the next line. False at the end.
    fn take_line(&mut self) -> bool {
        let Some(Ok(line)) = self.lines.next() else { return false };
        match line.split_once(' ').map(|(first, last)| (first.parse::<u32>(), last.parse::<u32>())) {
            Some((Ok(first), Ok(last))) => {
                assert_eq!(first, self.acknowledged, "records are acknowledged in their order");
                self.acknowledged = last + 1;
            }
            _ if line == "away" => self.away += 1,
            // The last line of a killed program may be cut off, and then does not count.
            _ => return false,
        }
        true
    }

    /// Waits until `count` numbers are acknowledged.
    fn wait_until_acknowledged(&mut self, count: u32) {
        while self.acknowledged < count {
            assert!(self.take_line(), "the writer ended at {}", self.acknowledged);
        }
    }

    /// Sends `kill -9`. Reads the earlier output to its end.
    fn kill(mut self) -> u32 {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
        while self.take_line() {}
        self.acknowledged
    }

    fn wait_for_end(mut self) -> u32 {
        while self.take_line() {}
        assert!(self.child.wait().expect("it ends").success());
        self.away
    }
}

/// Returns a random number below `limit`.
fn random_below(limit: u32) -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").subsec_nanos();
    (now / 64).wrapping_mul(2_654_435_761) % limit
}

/// Counts the rows of each session, by number.
fn count_sessions(store: &mut dyn Store) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    let mut count = |row: usher_aaa::store::SessionRow| {
        let number = u32::from_str_radix(&row.acctuniqueid, 16).expect("a number");
        assert_eq!(row, session::test_session(number), "it is as it was written");
        *found.entry(number).or_default() += 1;
    };
    store.open_sessions(&mut count).expect("the store answers");
    found
}

#[track_caller]
fn each_once(found: &BTreeMap<u32, u32>, acknowledged: u32) {
    let expected = |n: &u32| found.get(n) != Some(&1);
    assert_eq!(
        (0..acknowledged).find(expected),
        None,
        "of {acknowledged} acknowledged; {} are there",
        found.len()
    );
    assert!(found.values().all(|&n| n == 1), "none is there twice");
}

fn killed_writer() {
    let folder = StoreTempDir::new();
    let path = folder.path().join("usher.db");
    let place = path.to_str().expect("a path in UTF-8");
    let mut acknowledged = 0;
    for round in 1..=3 {
        let mut writer = WriterProcess::start("sqlite", place, acknowledged);
        writer.wait_until_acknowledged(acknowledged + random_below(RECORDS / 4) / AT_ONCE * AT_ONCE);
        std::thread::sleep(Duration::from_micros(random_below(20_000).into()));
        acknowledged = writer.kill();
        let found = count_sessions(&mut SqliteStore::open(&path).expect("the file can be opened"));
        eprintln!("round {round}: killed after {acknowledged} records, {} are there", found.len());
        each_once(&found, acknowledged);
        each_once(&count_logins(&path), acknowledged);
        // The next writer starts after records that were written but not acknowledged.
        acknowledged = u32::try_from(found.len()).expect("few enough");
    }
    WriterProcess::start("sqlite", place, acknowledged).wait_for_end();
    let found = count_sessions(&mut SqliteStore::open(&path).expect("the file can be opened"));
    each_once(&found, RECORDS);
    each_once(&count_logins(&path), RECORDS);
}

/// Counts the rows of each login, by number.
fn count_logins(path: &std::path::Path) -> BTreeMap<u32, u32> {
    let file = rusqlite::Connection::open(path).expect("the file can be opened");
    let mut statement = file.prepare("SELECT username FROM radpostauth").expect("the table is there");
    let names = statement.query_map([], |row| row.get::<_, String>(0)).expect("it can be read");
    let mut found = BTreeMap::new();
    for name in names {
        let number = name.expect("a row").parse().expect("a number");
        *found.entry(number).or_default() += 1;
    }
    found
}

fn stopped_database() {
    let cluster = PostgresCluster::new();
    let url = cluster.database_url("usher", &cluster.create_database());
    let mut writer = WriterProcess::start("postgres", &url, 0);
    for (round, mode) in ["fast", "immediate"].into_iter().enumerate() {
        let quarter = RECORDS / 4 * u32::try_from(round).expect("small");
        writer.wait_until_acknowledged(quarter + random_below(RECORDS / 4));
        cluster.stop_server(mode);
        let away = writer.away;
        while writer.away == away {
            assert!(writer.take_line(), "the writer goes on");
        }
        cluster.start();
        let acknowledged = writer.acknowledged;
        writer.wait_until_acknowledged(acknowledged + 1);
        eprintln!("stopped ({mode}) and found again at {acknowledged}, told {} times", writer.away);
    }
    writer.wait_until_acknowledged(RECORDS / 2 + random_below(RECORDS / 4));
    let acknowledged = writer.kill();
    let mut store = connect_patiently(&url);
    each_once(&count_sessions(&mut store), acknowledged);
    // A restarted writer writes unacknowledged records again, in place.
    let told = WriterProcess::start("postgres", &url, acknowledged).wait_for_end();
    assert_eq!(told, 0, "the server was there");
    each_once(&count_sessions(&mut store), RECORDS);
}
