//! Hundreds of hosts at a time: the load generator's, whose accounting an AAA server keeps.

use super::Cable;
use crate::place::{PATIENCE, USHER};
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

/// Sessions at the AAA server: rows, sessions that these are of, and those without a start and without an end.
fn rows(cable: &Cable) -> (i64, i64, i64, i64) {
    let store =
        Connection::open_with_flags(cable.place.path("state/usher.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let sql = "SELECT count(*), count(DISTINCT acctsessionid), count(*) - count(acctstarttime), \
               count(*) - count(acctstoptime) FROM radacct";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    store.unwrap().query_row(sql, [], read).unwrap()
}

#[test]
fn after_a_power_cut_all_hosts_are_back_and_each_session_is_accounted_for_once() {
    let cable = Cable::with(SITE);
    let mut users = AAA.to_owned();
    for n in 0..SESSIONS {
        write!(users, "[[user]]\nname = \"user{n}\"\npassword = \"pw{n}\"\n").unwrap();
    }
    cable.place.write("aaa.toml", &users);
    let mut command = cable.ac.command(USHER);
    command.args(["aaa", "serve", "--config", "aaa.toml"]);
    let mut server = cable.place.start("aaa", &mut command, "started");
    let mut concentrator = cable.serve("ac");
    let n = SESSIONS.to_string();
    let words =
        ["load", "pppoe", "lan", "--user", "user{}", "--password", "pw{}", "--users", &n, "--sessions", &n];
    let cut = ["--keep", "--rounds", "2", "--power-cut", "--concurrency", &n, "--json", "--yes"];
    let mut load = cable.host.command(USHER);
    let output = load.args(words).args(cut).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", concentrator.log());
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["succeeded"], &value["failed"]), (&(2 * SESSIONS).into(), &0.into()), "{value:#}");
    let rounds = value["setup"]["rounds"].as_array().unwrap();
    let came: Vec<i64> = rounds.iter().map(|round| round["sessions"].as_i64().unwrap()).collect();
    assert_eq!(came, [SESSIONS, SESSIONS], "all are back: {value:#}");
    assert_eq!(value["client"]["sessions_flapped"].as_u64().unwrap_or(0), 0, "{value:#}");
    // Those of before the cut, those of after it, and the one by which the generator tries a login first.
    let all = 2 * SESSIONS + 1;
    let begun = Instant::now();
    while rows(&cable) != (all, all, 0, 0) {
        assert!(begun.elapsed() < PATIENCE, "{:?}\n{}", rows(&cable), concentrator.log());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let status = cable.ask(&["pppoe", "sessions"]);
    assert_eq!(
        (&status["sessions"], &status["half_open"]),
        (&Value::Array(Vec::new()), &0.into()),
        "none is stuck"
    );
    assert_eq!(status["counters"]["logins_accepted"].as_i64(), Some(all), "{status}");
    assert_eq!(status["counters"]["records_lost"].as_u64().unwrap_or(0), 0, "{status}");
    assert_eq!((concentrator.terminate(), server.terminate()), (Some(0), Some(0)));
}
