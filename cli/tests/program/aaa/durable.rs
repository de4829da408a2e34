//! Acknowledged records are never lost, even if the server is killed or its database fails.

use super::daemon::{
    DaemonProcess, ServerPorts, get_page, http_answer, metric_value, pap_login, pap_unanswered,
    run_radclient_once, wait_for_metric, wait_until_metric,
};
use super::records::{AccountingNas, StatusType, accounting_request, session_id};
use crate::cluster::PostgresCluster;
use crate::place::{TempDir, own_address, wait_or_fail};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::packet::PacketCode;

/// The timeout for thousands of durable records on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// The store's data of a session.
#[derive(PartialEq, Eq, Debug)]
struct StoredSession {
    id: String,
    stopped: bool,
    octets: u64,
}

const ROWS: &str =
    "SELECT acctsessionid, acctstoptime IS NOT NULL, coalesce(acctinputoctets, 0) FROM radacct";

fn sqlite_sessions(path: &Path) -> Vec<StoredSession> {
    let file = rusqlite::Connection::open(path).unwrap();
    let mut statement = file.prepare(ROWS).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        Ok(StoredSession {
            id: row.get(0)?,
            stopped: row.get(1)?,
            octets: row.get::<_, i64>(2)?.unsigned_abs(),
        })
    };
    statement.query_map([], row).unwrap().map(Result::unwrap).collect()
}

fn postgres_sessions(cluster: &PostgresCluster, database: &str) -> Vec<StoredSession> {
    let row = |line: &str| {
        let mut cells = line.split('|');
        let mut cell = || cells.next().unwrap().to_owned();
        StoredSession { id: cell(), stopped: cell() == "t", octets: cell().parse().unwrap() }
    };
    cluster.run_sql(database, ROWS).lines().map(row).collect()
}

/// Checks that each acknowledged record is in exactly one row of its session.
#[track_caller]
fn each_once(nas: &AccountingNas, rows: Vec<StoredSession>) {
    let count = rows.len();
    let rows: BTreeMap<String, StoredSession> = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
    assert_eq!(rows.len(), count, "a session is there twice");
    for (session, told) in nas.acknowledged_records() {
        let row = rows.get(&session_id(session)).unwrap_or_else(|| panic!("{told:?} of {session} is lost"));
        if told == StatusType::Stop {
            let ended = StoredSession { id: session_id(session), stopped: true, octets: session as u64 };
            assert_eq!(*row, ended, "what the Stop said");
        }
    }
}

#[test]
fn a_killed_server_loses_no_record_that_it_acknowledged() {
    const SESSIONS: usize = 25_000;
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(2, "");
    let database = place.path("state/usher.db");
    let mut nas = AccountingNas::new(ports.acct, SESSIONS);
    for until in [9_000, 30_000] {
        let server = DaemonProcess::start(&place, &config);
        assert!(nas.report_records(until, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
        server.kill();
        nas.lost_the_server();
        assert!((until..2 * SESSIONS).contains(&nas.acknowledged_count()));
        each_once(&nas, sqlite_sessions(&database));
    }
    let server = DaemonProcess::start(&place, &config);
    assert!(nas.report_records(2 * SESSIONS, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
    assert!(nas.repeated > 0, "the server was killed with records under way");
    // All have ended.
    wait_for_metric(ports.metrics, "usher_aaa_sessions", 0.0);
    assert_eq!(server.terminate(), Some(0));
    let rows = sqlite_sessions(&database);
    assert_eq!(rows.len(), SESSIONS);
    each_once(&nas, rows);
}

/// A server with users and accounting in a database.
struct DatabaseFixture {
    temp_dir: TempDir,
    ports: ServerPorts,
    cluster: PostgresCluster,
    database: String,
    config: String,
}

impl DatabaseFixture {
    fn new() -> Self {
        let (place, ports, cluster) = (TempDir::new(), ServerPorts::reserve_free(), PostgresCluster::new());
        let database = cluster.create_database();
        let url = cluster.database_url("usher", &database);
        let users = format!("[users]\nstore = \"postgresql\"\nurl = \"{url}\"\ncache_ttl = \"10 min\"\n");
        let config = ports.server_config(2, &users);
        Self { temp_dir: place, ports, cluster, database, config }
    }

    /// Adds users to the database, without dropping any from the server's cache.
    fn add_users(&self) {
        for name in ["ann", "bob", "eve"] {
            let line = format!("echo right | usher aaa user add {name} --password-file - --config aaa.toml");
            self.temp_dir.run_shell(&line).with_code(0);
        }
    }

    #[track_caller]
    fn gets_in(&self, name: &str) {
        pap_login(self.ports.auth, name, "right").with_code(0);
    }

    /// Logs in from enough ports to reach each shard.
    #[track_caller]
    fn gets_in_everywhere(&self, name: &str) {
        for _ in 0..16 {
            self.gets_in(name);
        }
    }

    #[track_caller]
    fn gets_no_answer(&self, name: &str) {
        pap_unanswered(self.ports.auth, name, "right");
    }
}

#[test]
fn a_database_that_was_away_costs_no_record_and_no_restart() {
    const SESSIONS: usize = 10_000;
    let s = DatabaseFixture::new();
    let server = DaemonProcess::start(&s.temp_dir, &s.config);
    s.add_users();
    s.gets_in("ann");
    let mut nas = AccountingNas::new(s.ports.acct, SESSIONS);
    for (mode, name, until) in [("fast", "bob", 5_000), ("immediate", "eve", 10_000)] {
        assert!(nas.report_records(until, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
        s.cluster.stop_server(mode);
        let before = nas.acknowledged_count();
        assert!(!nas.report_records(2 * SESSIONS, Duration::from_secs(3)), "the database is away");
        // Records that were durable before the failure may have been answered.
        assert!(
            nas.acknowledged_count() < before + 2048,
            "{} acknowledged without a database",
            nas.acknowledged_count() - before
        );
        s.gets_in_everywhere("ann");
        s.gets_no_answer(name);
        s.cluster.start();
        each_once(&nas, postgres_sessions(&s.cluster, &s.database));
        let more = nas.acknowledged_count() + 1000;
        assert!(nas.report_records(more, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
        s.gets_in(name);
    }
    assert!(nas.report_records(2 * SESSIONS, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
    server.wait_for_log("the store answers again");
    wait_until_metric(s.ports.metrics, "usher_aaa_aaa_events_total{kind=\"unavailable\"}", |n| n >= 2.0);
    wait_for_metric(s.ports.metrics, "usher_aaa_store_refused_total", 0.0);
    assert_eq!(server.terminate(), Some(0));
    let rows = postgres_sessions(&s.cluster, &s.database);
    assert_eq!(rows.len(), SESSIONS);
    each_once(&nas, rows);
}

#[test]
fn unstorable_names_are_rejected_and_delay_no_other_login() {
    let s = DatabaseFixture::new();
    s.cluster.run_sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let config = s
        .config
        .replace(&s.cluster.database_url("usher", &s.database), &s.cluster.database_url("usher", "latin"));
    let server = DaemonProcess::start(&s.temp_dir, &format!("{config}[accounting]\nlogins = true\n"));
    s.add_users();
    let foreign = "\u{5c71}\u{7530}";
    for _ in 0..3 {
        let said = pap_login(s.ports.auth, foreign, "right").with_code(1);
        assert!(said.out.contains("Received Access-Reject"), "{said:?}");
        s.gets_in("ann");
    }
    server.wait_for_log("cause=\"unstorable-name\"");
    // The logins among them are recorded.
    let count = || s.cluster.run_sql("latin", "SELECT count(*) FROM radpostauth WHERE username = 'ann'");
    wait_or_fail(|| server.log(), || count() == "3");
    let record = |user: &str, id: u32| {
        let of = format!("User-Name={user},Acct-Session-Id={id},NAS-IP-Address=127.0.0.1,NAS-Port={id}");
        run_radclient_once(
            Duration::from_secs(5),
            s.ports.acct,
            "acct",
            &format!("{of},Acct-Status-Type=Start"),
        )
    };
    for id in 1..4 {
        assert_eq!(record(foreign, 1).code, Some(1), "it is not acknowledged");
        assert_eq!(record("ann", 10 + id).code, Some(0), "{}", server.log());
    }
    assert_eq!(s.cluster.run_sql("latin", "SELECT count(*) FROM radacct"), "3");
    wait_until_metric(s.ports.metrics, "usher_aaa_store_refused_total", |n| n >= 4.0);
    // Logged once: the next one calls for no other action.
    let log = server.log();
    assert_eq!(log.matches("has no equivalent").count(), 1, "{log}");
    assert!(!log.contains("the store does not answer"), "{log}");
    assert_eq!(server.terminate(), Some(0));
}

/// No requests reach the server meanwhile, as behind a load balancer that has taken it out.
#[test]
fn a_server_is_ready_while_its_database_answers() {
    let s = DatabaseFixture::new();
    let server = DaemonProcess::start(&s.temp_dir, &s.config);
    let ready = || http_answer(s.ports.metrics, "/ready");
    let is_ready = || ready().starts_with("HTTP/1.0 200") && ready().ends_with("ready\n");
    let is_away = || {
        let said = ready();
        said.starts_with("HTTP/1.0 503") && said.contains("the store is not available: PostgreSQL at ")
    };
    wait_or_fail(ready, is_ready);
    for mode in ["fast", "immediate"] {
        s.cluster.stop_server(mode);
        wait_or_fail(ready, is_away);
        assert!(get_page(s.ports.metrics, "/health").contains("serving"), "it runs");
        s.cluster.start();
        wait_or_fail(ready, is_ready);
    }
    // The database answers, but its table of sessions is gone.
    s.cluster.run_sql(&s.database, "ALTER TABLE radacct RENAME TO elsewhere");
    wait_or_fail(ready, || ready().contains("radacct"));
    s.cluster.run_sql(&s.database, "ALTER TABLE elsewhere RENAME TO radacct");
    wait_or_fail(ready, is_ready);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn who_got_in_gets_in_on_each_shard_while_the_database_is_away() {
    let s = DatabaseFixture::new();
    let tls = super::others::tls_section(&s.temp_dir.path("pki"), "radius.example");
    let lists = "crl = [\"pki/ca.crl\"]\ncrl_interval = \"1 s\"\n";
    s.temp_dir.run_shell("usher aaa cert --dir pki init --server radius.example").with_code(0);
    let server = DaemonProcess::start(&s.temp_dir, &format!("{}{tls}{lists}", s.config));
    s.add_users();
    for name in ["ann", "bob", "eve"] {
        s.gets_in(name);
    }
    // Users changed or removed before are not served from the cache.
    s.temp_dir
        .run_shell("echo other | usher aaa user set bob --password-file - --config aaa.toml")
        .with_code(0);
    s.temp_dir.run_shell("usher aaa user del eve --config aaa.toml").with_code(0);
    s.cluster.stop_server("fast");
    s.gets_in_everywhere("ann");
    for name in ["bob", "eve", "ivy"] {
        s.gets_no_answer(name);
    }
    // A new list clears the shards' caches, but changes no user.
    let end = || {
        let page = get_page(s.ports.metrics, "/metrics");
        page.lines().find(|line| line.starts_with("usher_aaa_crl_next_update_seconds{")).map(str::to_owned)
    };
    let before = end();
    s.temp_dir.run_shell("usher aaa cert --dir pki crl").with_code(0);
    wait_or_fail(|| server.log(), || end() != before);
    s.gets_in_everywhere("ann");
    s.gets_no_answer("eve");
    let page = get_page(s.ports.metrics, "/metrics");
    assert!(metric_value(&page, "usher_aaa_cache_total{result=\"away\"}") >= 2.0, "{page}");
    s.cluster.start();
    let bob = "User-Name=bob,User-Password=other,Message-Authenticator=0x00";
    let is_answered =
        || run_radclient_once(Duration::from_secs(5), s.ports.auth, "auth", bob).code == Some(0);
    wait_or_fail(|| server.log(), is_answered);
    pap_login(s.ports.auth, "eve", "right").with_code(1);
    assert_eq!(server.terminate(), Some(0));
}

const STORE_CLIENT_SECRET: &str = "a secret of the store's client";

/// True if 127.0.0.9 gets a reply within a second.
fn stored_client_is_served(port: u16) -> bool {
    let socket = UdpSocket::bind("127.0.0.9:0").unwrap();
    socket.connect((own_address(), port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut restart = AttributeList::new();
    restart.push_u32(kind::ACCT_STATUS_TYPE, 7);
    let packet = accounting_request(
        PacketCode::ACCOUNTING_REQUEST,
        1,
        &restart,
        &SharedSecret::new(STORE_CLIENT_SECRET.as_bytes()),
    );
    socket.send(&packet).unwrap();
    socket.recv(&mut [0; 4096]).is_ok()
}

#[test]
fn a_server_starts_while_its_database_is_away() {
    let s = DatabaseFixture::new();
    let first = DaemonProcess::start(&s.temp_dir, &s.config);
    s.add_users();
    super::daemon::write_private(&s.temp_dir, "secret", STORE_CLIENT_SECRET);
    s.temp_dir
        .run_shell("usher aaa client add 127.0.0.9 --secret-file secret --config aaa.toml")
        .with_code(0);
    let mut nas = AccountingNas::new(s.ports.acct, 3_000);
    assert!(nas.report_records(2_000, LONG), "{} records: {}", nas.acknowledged_count(), first.log());
    first.kill();
    nas.lost_the_server();
    // Stops of the first sessions may precede Starts of the last ones.
    let stopped = postgres_sessions(&s.cluster, &s.database).iter().filter(|row| row.stopped).count();
    s.cluster.stop_server("fast");

    let inline = "[[user]]\nname = \"ivy\"\npassword = \"right\"\n";
    let server = DaemonProcess::start(&s.temp_dir, &format!("{}{inline}", s.config));
    server.wait_for_log("the store does not answer");
    let before = nas.acknowledged_count();
    assert!(!nas.report_records(6_000, Duration::from_secs(2)), "the database is away");
    assert_eq!(nas.acknowledged_count(), before, "nothing can be durable");
    s.gets_in("ivy");
    s.gets_no_answer("ann");

    assert!(!stored_client_is_served(s.ports.acct));

    s.cluster.start();
    server.wait_for_log("the store's clients are loaded");
    wait_or_fail(|| server.log(), || stored_client_is_served(s.ports.acct));
    assert!(nas.report_records(6_000, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
    s.gets_in("ann");
    // Sessions that were open before the server's start are in its ledger: their Stops ended them.
    wait_for_metric(s.ports.metrics, "usher_aaa_sessions", 0.0);
    let by_it = "usher_aaa_ledger_events_total{kind=\"stopped\"}";
    wait_for_metric(s.ports.metrics, by_it, 3_000.0 - stopped as f64);
    assert_eq!(server.terminate(), Some(0));
    let rows = postgres_sessions(&s.cluster, &s.database);
    assert_eq!(rows.len(), 3_000);
    each_once(&nas, rows);
}

#[test]
fn a_database_that_refuses_keeps_a_server_from_starting() {
    let s = DatabaseFixture::new();
    let config = s.config.replace(&format!("dbname={}", s.database), "dbname=nowhere");
    super::daemon::write_private(&s.temp_dir, "aaa.toml", &config);
    let said = s.temp_dir.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(1);
    assert!(said.err.contains("database \"nowhere\" does not exist"), "{said:?}");
}

#[test]
fn a_database_that_refuses_later_costs_no_record_and_no_restart() {
    const SESSIONS: usize = 4_000;
    let s = DatabaseFixture::new();
    s.cluster.run_sql("postgres", "CREATE ROLE service LOGIN SUPERUSER");
    let server = DaemonProcess::start(&s.temp_dir, &s.config.replace("user=usher ", "user=service "));
    let mut nas = AccountingNas::new(s.ports.acct, SESSIONS);
    assert!(nas.report_records(2_000, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
    let close = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'service'";
    // Two calls: both in one call would be one transaction. The server, whose connections end within it, would be
    // back before the first half takes effect.
    s.cluster.run_sql("postgres", "ALTER ROLE service NOLOGIN");
    s.cluster.run_sql("postgres", close);
    let before = nas.acknowledged_count();
    assert!(!nas.report_records(2 * SESSIONS, Duration::from_secs(3)), "the database refuses");
    assert!(
        nas.acknowledged_count() < before + 2048,
        "{} acknowledged without a database",
        nas.acknowledged_count() - before
    );
    server.wait_for_log("is not permitted to log in");
    s.cluster.run_sql("postgres", "ALTER ROLE service LOGIN");
    assert!(nas.report_records(2 * SESSIONS, LONG), "{} records: {}", nas.acknowledged_count(), server.log());
    assert_eq!(metric_value(&get_page(s.ports.metrics, "/metrics"), "usher_aaa_store_refused_total"), 0.0);
    assert_eq!(server.terminate(), Some(0));
    let rows = postgres_sessions(&s.cluster, &s.database);
    assert_eq!(rows.len(), SESSIONS);
    each_once(&nas, rows);
}
