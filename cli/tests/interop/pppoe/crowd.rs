//! Hundreds of hosts of the load generator at a time. An AAA server keeps their accounting.

use super::PppoeTestNetwork;
use crate::place::{RunningProgram, TEST_TIMEOUT, USHER};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use std::fmt::Write;
use std::time::Instant;

const SESSIONS: i64 = 500;

const SITE: &str = r#"
[listen]
interfaces = ["lan"]
control = "pppoe.sock"
[service]
address = "10.0.0.1"
pools = ["hosts"]
[authentication]
protocols = ["chap"]
[[pool]]
name = "hosts"
ranges = ["10.0.0.0/21"]
[aaa]
nas_identifier = "campus.test"
accounting = true
[[aaa.radius]]
address = "127.0.0.1:1812"
secret = "testing123"
[limits]
sessions_per_station = 1
[tracking]
folder = "log"
"#;

const AAA: &str = r#"
shards = 1
state_dir = "state"
[listen]
auth = ["127.0.0.1:1812"]
acct = ["127.0.0.1:1813"]
[[client]]
name = "ac"
prefix = "127.0.0.1"
secret = "testing123"
"#;

/// Returns the AAA server's rows: their number, the number of distinct sessions, and the rows without a start
/// and without an end.
fn count_sessions(cable: &PppoeTestNetwork) -> (i64, i64, i64, i64) {
    let store =
        Connection::open_with_flags(cable.temp_dir.path("state/usher.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let sql = "SELECT count(*), count(DISTINCT acctsessionid), count(*) - count(acctstarttime), \
               count(*) - count(acctstoptime) FROM radacct";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    store.unwrap().query_row(sql, [], read).unwrap()
}

/// Starts the AAA server with this number of users.
fn start_aaa_server(cable: &PppoeTestNetwork, name: &str, users: i64) -> RunningProgram {
    let mut file = AAA.to_owned();
    for n in 0..users {
        write!(file, "[[user]]\nname = \"user{n}\"\npassword = \"pw{n}\"\n").unwrap();
    }
    cable.temp_dir.write_private("aaa.toml", &file);
    let mut command = cable.ac.command(USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    cable.temp_dir.start_program(name, &mut command, "started")
}

#[test]
fn after_a_power_cut_hosts_return_and_each_session_counts_once() {
    let cable = PppoeTestNetwork::with_config(SITE);
    let mut server = start_aaa_server(&cable, "aaa", SESSIONS);
    let mut concentrator = cable.start_concentrator("ac");
    let n = SESSIONS.to_string();
    let words =
        ["load", "pppoe", "lan", "--user", "user{}", "--password", "pw{}", "--users", &n, "--sessions", &n];
    let cut = ["--keep", "--rounds", "2", "--power-cut", "--concurrency", &n, "--json", "--yes"];
    let mut load = cable.host.command(USHER);
    let output = load.args(words).args(cut).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", concentrator.log());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let counters = || cable.run_json_command(&["pppoe", "sessions"])["counters"].clone();
    assert_eq!(
        (&value["succeeded"], &value["failed"]),
        (&(2 * SESSIONS).into(), &0.into()),
        "{value:#}\n{:#}",
        counters()
    );
    let rounds = value["setup"]["rounds"].as_array().unwrap();
    let came: Vec<i64> = rounds.iter().map(|round| round["sessions"].as_i64().unwrap()).collect();
    assert_eq!(came, [SESSIONS, SESSIONS], "all are back: {value:#}");
    assert_eq!(value["client"]["sessions_flapped"].as_u64().unwrap_or(0), 0, "{value:#}");
    // Sessions before the cut, sessions after it, and the generator's first test login.
    let all = 2 * SESSIONS + 1;
    let begun = Instant::now();
    while count_sessions(&cable) != (all, all, 0, 0) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}\n{}", count_sessions(&cable), concentrator.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let status = cable.run_json_command(&["pppoe", "sessions"]);
    assert_eq!(
        (&status["sessions"], &status["half_open"]),
        (&Value::Array(Vec::new()), &0.into()),
        "none is stuck"
    );
    assert_eq!(status["counters"]["logins_accepted"].as_i64(), Some(all), "{status}");
    assert_eq!(status["counters"]["records_lost"].as_u64().unwrap_or(0), 0, "{status}");
    assert_eq!((concentrator.terminate(), server.terminate()), (Some(0), Some(0)));
}

/// Returns the terminate causes in the AAA server's store, each with its count.
fn terminate_causes(cable: &PppoeTestNetwork) -> Vec<(String, i64)> {
    let store =
        Connection::open_with_flags(cable.temp_dir.path("state/usher.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let store = store.unwrap();
    let mut all = store
        .prepare("SELECT acctterminatecause, count(*) FROM radacct GROUP BY acctterminatecause ORDER BY 1")
        .unwrap();
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_later_start_sends_once_the_unacknowledged_stop_of_a_kill() {
    let cable = PppoeTestNetwork::with_config(SITE);
    let server = start_aaa_server(&cable, "aaa", 4);
    let concentrator = cable.start_concentrator("ac");
    let mut load = cable.host.command(USHER);
    load.args(["load", "pppoe", "lan", "--user", "user{}", "--password", "pw{}", "--users", "4"]);
    load.args(["--sessions", "4", "--stay", "600s", "--keep", "--json", "--yes"]);
    let crowd = cable.temp_dir.start_program("crowd", &mut load, "");
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            assert!(
                begun.elapsed() < TEST_TIMEOUT,
                "{what}: {:?}\n{}\n{}",
                count_sessions(&cable),
                crowd.log(),
                cable.read_log("sessions-")
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    // The four sessions, and the generator's first test login, which has ended.
    until("the AAA server knows all", &|| count_sessions(&cable) == (5, 5, 0, 4));
    server.signal("KILL");
    drop(server);
    for user in ["user0", "user1"] {
        assert_eq!(cable.run_json_command(&["pppoe", "disconnect", user])["sessions"], 1);
    }
    until("their ends are in the log", &|| {
        cable.read_log("sessions-").matches("\"event\":\"end\"").count() == 3
    });
    crowd.signal("KILL");
    concentrator.signal("KILL");
    drop(concentrator);
    // The next start ends the two other sessions. No server acknowledges that either, and the program is killed
    // again.
    for (name, lost, owed) in [("second", 2, 2), ("third", 0, 4)] {
        let concentrator = cable.start_concentrator(name);
        let status = cable.run_json_command(&["pppoe", "sessions"]);
        let counted = |what: &str| status["counters"][what].as_u64().unwrap();
        assert_eq!((counted("sessions_lost"), counted("stops_resent")), (lost, owed), "{status}");
        concentrator.signal("KILL");
    }
    assert_eq!(count_sessions(&cable), (5, 5, 0, 4));
    let mut server = start_aaa_server(&cable, "aaa again", 4);
    let mut concentrator = cable.start_concentrator("fourth");
    until("each Stop is there", &|| count_sessions(&cable) == (5, 5, 0, 0));
    // Each Stop has its original cause; no Accounting-On has ended a session in its place.
    let expected = [("Admin-Reset", 2), ("NAS-Error", 2), ("User-Request", 1)];
    until("as they ended", &|| terminate_causes(&cable) == expected.map(|(cause, n)| (cause.to_owned(), n)));
    let acknowledged = || cable.read_log("sessions-").matches("stop-acknowledged").count();
    until("the log has that all were acknowledged", &|| acknowledged() == 5);
    assert_eq!(concentrator.terminate(), Some(0), "{}", concentrator.log());
    let mut concentrator = cable.start_concentrator("fifth");
    let status = cable.run_json_command(&["pppoe", "sessions"]);
    assert_eq!(status["counters"]["stops_resent"], 0, "none is told again: {status}");
    assert_eq!((concentrator.terminate(), server.terminate()), (Some(0), Some(0)));
    assert_eq!(count_sessions(&cable), (5, 5, 0, 0));
}
