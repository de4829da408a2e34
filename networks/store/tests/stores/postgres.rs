//! PostgreSQL's own ways: versions, roles, a server that goes away.

use crate::cluster::Cluster;
use crate::session::session;
use crate::suite;
use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};
use usher_aaa::store::{Change, Store, StoreError};
use usher_store::{Postgres, SCHEMA_VERSION, postgres_script};

/// Longer than anything here takes on a busy machine. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The tables as an older FreeRADIUS had them.
const OLD: &str = "
    CREATE TABLE radacct (RadAcctId bigserial PRIMARY KEY, AcctSessionId text NOT NULL, AcctUniqueId text NOT NULL,
        UserName text, Realm text, NASIPAddress inet NOT NULL, NASPortId text, NASPortType text,
        AcctStartTime timestamp with time zone, AcctStopTime timestamp with time zone, AcctSessionTime bigint,
        AcctAuthentic text, ConnectInfo_start text, ConnectInfo_stop text, AcctInputOctets bigint,
        AcctOutputOctets bigint, CalledStationId text, CallingStationId text, AcctTerminateCause text,
        ServiceType text, FramedProtocol text, FramedIPAddress inet);
    CREATE TABLE radcheck (id serial PRIMARY KEY, UserName text NOT NULL DEFAULT '', Attribute text NOT NULL DEFAULT '',
        op varchar(2) NOT NULL DEFAULT '==', Value text NOT NULL DEFAULT '');
    INSERT INTO radcheck (UserName, Attribute, op, Value) VALUES ('kaya', 'Cleartext-Password', ':=', 'x');
    INSERT INTO radacct (AcctSessionId, AcctUniqueId, NASIPAddress, AcctStartTime)
        VALUES ('1', 'aa', '192.0.2.9', to_timestamp(1700000000));";

/// Tries to connect, again where a busy server does not answer in time.
fn try_connect(url: &str) -> Result<Postgres, StoreError> {
    let begun = Instant::now();
    loop {
        match Postgres::connect(url) {
            Err(StoreError::Unavailable(why)) => assert!(begun.elapsed() < PATIENCE, "{why}"),
            other => return other,
        }
    }
}

#[track_caller]
fn connect(url: &str) -> Postgres {
    try_connect(url).unwrap()
}

fn refused(url: &str) -> String {
    match try_connect(url) {
        Err(StoreError::Refused(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// How long something takes.
fn time(what: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    what();
    begun.elapsed()
}

fn unavailable<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Unavailable(text)) => text,
        other => panic!("{other:?}"),
    }
}

fn put(number: u32) -> Change {
    Change::Session(Box::new(session(number)))
}

#[test]
fn postgres_does_what_every_store_does() {
    let cluster = Cluster::new();
    suite::run_database(&mut || Box::new(connect(&cluster.url("usher", &cluster.database()))));
}

#[test]
fn the_installed_freeradius_schema_is_taken_as_it_is() {
    let path = "/etc/freeradius/3.0/mods-config/sql/main/postgresql/schema.sql";
    let schema = std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{path}: {e}: install Debian's package freeradius-config"));
    let cluster = Cluster::new();
    suite::run_database(&mut || {
        let database = cluster.database();
        cluster.sql(&database, &schema);
        Box::new(connect(&cluster.url("usher", &database)))
    });
}

#[test]
fn versions_are_brought_forward_and_newer_ones_refused() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let url = cluster.url("usher", &database);
    drop(connect(&url));
    let older = "DELETE FROM usher_schema WHERE version > 1; DROP INDEX usher_radacct_open;
         ALTER TABLE radacct DROP COLUMN usher_interims;
         ALTER TABLE radacct DROP COLUMN usher_diameter_origin; ALTER TABLE nas DROP COLUMN require_ma;
         INSERT INTO radacct (acctsessionid, acctuniqueid, nasipaddress, username) VALUES ('1', 'aa', '192.0.2.1', 'kaya')";
    cluster.sql(&database, older);
    let mut store = connect(&url);
    assert_eq!(store.session("aa").unwrap().unwrap().username, "kaya");
    store.write(&[put(1)]).unwrap();
    assert_eq!(
        cluster.sql(&database, "SELECT string_agg(version::text, ' ' ORDER BY 1) FROM usher_schema"),
        "1 2 3"
    );
    cluster.sql(&database, &format!("INSERT INTO usher_schema VALUES ({})", SCHEMA_VERSION + 5));
    let text = refused(&url);
    assert!(
        text.contains(&format!("version {}", SCHEMA_VERSION + 5)) && text.contains("newer program"),
        "{text}"
    );
    assert!(text.contains(&database), "the place is named: {text}");
}

#[test]
fn freeradius_tables_get_what_they_lack_and_keep_what_they_have() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let url = cluster.url("usher", &database);
    cluster.sql(&database, OLD);
    let mut store = connect(&url);
    assert_eq!(store.user("kaya").unwrap(), Some(suite::password("x")));
    cluster.sql(
        &database,
        "INSERT INTO nas (nasname, shortname, secret, server) VALUES ('192.0.2.99', 'x', 's', 'strict')",
    );
    let server = |store: &mut Postgres| {
        let clients = store.clients().unwrap();
        clients.last().unwrap().virtual_server().map(str::to_owned)
    };
    assert_eq!(server(&mut store).as_deref(), Some("strict"));
    cluster.sql(&database, "ALTER TABLE nas DROP COLUMN server");
    assert_eq!(server(&mut connect(&url)), None, "a table without the column");
    cluster.sql(
        &database,
        "DELETE FROM nas WHERE nasname = '192.0.2.99'; ALTER TABLE nas ADD COLUMN server text",
    );
    let old = store.session("aa").unwrap().unwrap();
    assert_eq!(old.acctstarttime, session(1).acctstarttime);
    assert_eq!(old.nasipaddress.to_string(), "192.0.2.9");
    for _ in 0..2 {
        store.write(&[put(1)]).unwrap();
    }
    assert_eq!(cluster.sql(&database, "SELECT count(*) FROM radacct"), "2");

    let twice = cluster.database();
    cluster.sql(&twice, OLD);
    cluster.sql(
        &twice,
        "INSERT INTO radacct (AcctSessionId, AcctUniqueId, NASIPAddress) VALUES ('2', 'aa', '192.0.2.9')",
    );
    let text = refused(&cluster.url("usher", &twice));
    assert!(text.contains("acctuniqueid") && text.contains("HAVING count(*) > 1"), "{text}");
    assert_eq!(
        cluster.sql(&twice, "SELECT to_regclass('usher_schema') IS NULL AND to_regclass('nas') IS NULL"),
        "t"
    );
}

#[test]
fn a_role_without_the_right_to_make_tables_uses_those_its_owner_made() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let role = format!("radius_{database}");
    cluster.sql(&database, &format!("CREATE ROLE {role} LOGIN"));
    let text = refused(&cluster.url(&role, &database));
    assert!(text.contains("may not make them") && text.contains("script"), "{text}");
    for _ in 0..2 {
        cluster.sql(&database, &postgres_script());
    }
    let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON radcheck, radreply, radgroupcheck, radgroupreply, radusergroup, \
                 radacct, radpostauth, nas TO";
    let sequences = "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO";
    cluster.sql(&database, &format!("{grant} {role}; {sequences} {role}"));
    let mut store = connect(&cluster.url(&role, &database));
    store.put_user("kaya", &suite::password("x")).unwrap();
    store.write(&[put(1)]).unwrap();
    assert!(store.session(&session(1).acctuniqueid).unwrap().is_some());
}

#[test]
fn what_a_database_cannot_hold_is_told_from_a_database_that_is_away() {
    let cluster = Cluster::new();
    cluster.sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let mut store = connect(&cluster.url("usher", "latin"));
    store.put_user("kaya\u{e9}", &suite::password("x")).unwrap();
    assert!(store.user("kaya\u{e9}").unwrap().is_some());
    for name in ["\u{5c71}\u{7530}", "kaya\0"] {
        let said = store.user(name);
        assert!(matches!(said, Err(StoreError::Unstorable(_))), "{name:?}: {said:?}");
    }
    let named = |number, name: &str| {
        let mut row = session(number);
        row.username = name.to_owned();
        Change::Session(Box::new(row))
    };
    let batch = [put(1), named(2, "\u{5c71}\u{7530}")];
    let said = store.write(&batch);
    assert!(matches!(&said, Err(StoreError::Unstorable(text)) if text.contains("22P05")), "{said:?}");
    store.write(&batch[..1]).unwrap();
    // As other people's tables are.
    cluster.sql("latin", "ALTER TABLE radacct ALTER username TYPE varchar(8)");
    let said = store.write(&[named(3, "somebody's")]);
    assert!(matches!(&said, Err(StoreError::Unstorable(text)) if text.contains("22001")), "{said:?}");
    assert!(store.user("kaya\u{e9}").unwrap().is_some(), "the connection is as it was");
}

#[test]
fn who_looks_at_a_database_is_told_what_it_lacks_and_changes_nothing() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let url = cluster.url("usher", &database);
    let look = |url: &str| {
        let begun = Instant::now();
        loop {
            match Postgres::examine(url) {
                Err(StoreError::Unavailable(why)) => assert!(begun.elapsed() < PATIENCE, "{why}"),
                other => return other.unwrap(),
            }
        }
    };
    let found = look(&url);
    assert_eq!((found.version, found.missing.len()), (0, 0));
    assert_eq!(cluster.sql(&database, "SELECT to_regclass('usher_schema') IS NULL"), "t");
    drop(connect(&url));
    let found = look(&url);
    assert_eq!((found.version, found.missing), (SCHEMA_VERSION, Vec::new()));
    // Another role may look at the version, and nothing else.
    let role = format!("radius_{database}");
    cluster.sql(
        &database,
        &format!("CREATE ROLE {role} LOGIN; GRANT SELECT ON usher_schema, radcheck TO {role}"),
    );
    let missing = look(&cluster.url(&role, &database)).missing;
    assert!(missing.contains(&"this role may not INSERT in table radacct".to_owned()), "{missing:?}");
    assert!(!missing.iter().any(|text| text.contains("radcheck")), "{missing:?}");
    cluster.sql(&database, "ALTER TABLE radacct DROP COLUMN class; DROP TABLE radpostauth");
    let missing = look(&url).missing;
    assert!(missing.iter().any(|text| text.contains("class")), "{missing:?}");
    assert!(missing.iter().any(|text| text.contains("radpostauth")), "{missing:?}");
}

/// Found in operation: the ledger gave up what it had to write when the database's password was changed.
#[test]
fn who_was_let_in_once_is_refused_for_now_alone() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let role = format!("radius_{database}");
    let sql = |text: &str| drop(cluster.sql(&database, text));
    sql(&format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}"));
    let url = cluster.url(&role, &database);
    let mut store = connect(&url);
    store.write(&[put(1)]).unwrap();
    // Two calls: one of both is one transaction, and a connection made within it is let in.
    sql(&format!("ALTER ROLE {role} NOLOGIN"));
    sql(&format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{role}'"));
    let deadline = Instant::now() + PATIENCE;
    while !unavailable(store.write(&[put(2)])).contains("not permitted to log in") {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
    // Who never was let in is told so for good, unless another was.
    assert!(refused(&url).contains("not permitted to log in"));
    unavailable(Postgres::new(&url).unwrap().proven().user("kaya"));
    sql(&format!("ALTER ROLE {role} LOGIN"));
    while let Err(error) = store.write(&[put(2)]) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(store.session(&session(2).acctuniqueid).unwrap().is_some());
    // What a statement is refused for is refused for good.
    sql(&format!("ALTER TABLE radacct OWNER TO usher; REVOKE ALL ON radacct FROM {role}"));
    assert!(matches!(store.write(&[put(3)]), Err(StoreError::Refused(_))));
}

#[test]
fn many_connect_to_an_empty_database_at_once() {
    let cluster = Cluster::new();
    let url = cluster.url("usher", &cluster.database());
    std::thread::scope(|scope| {
        for n in 0..6 {
            let url = &url;
            scope.spawn(move || {
                connect(url).put_user(&format!("u{n}"), &suite::password("x")).unwrap();
            });
        }
    });
    assert_eq!(connect(&url).user_names(None, 100).unwrap().len(), 6);
}

#[test]
fn an_operator_that_is_none_is_refused_by_name() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let mut store = connect(&cluster.url("usher", &database));
    cluster.sql(
        &database,
        "INSERT INTO radcheck (username, attribute, op, value) VALUES ('odd', 'Class', '=>', '1')",
    );
    suite::refused_operator(&mut store);
    store.put_user("odd", &suite::password("x")).unwrap();
    assert!(store.user("odd").unwrap().is_some(), "the store goes on");
}

#[test]
fn writing_is_durable_though_the_server_is_set_otherwise() {
    let cluster = Cluster::new();
    let database = cluster.database();
    cluster.sql(&database, &format!("ALTER DATABASE {database} SET synchronous_commit = off"));
    let mut store = connect(&cluster.url("usher", &database));
    // A trigger that says how it is set while we write.
    cluster.sql(
        &database,
        "CREATE TABLE seen (setting text);
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
         CREATE TRIGGER look AFTER INSERT ON radacct EXECUTE FUNCTION look();",
    );
    store.write(&[put(1)]).unwrap();
    assert_eq!(cluster.sql(&database, "SELECT setting FROM seen"), "on");
}

#[test]
fn a_stopped_server_is_said_quickly_and_found_again() {
    let cluster = Cluster::new();
    let url = cluster.url("usher", &cluster.database());
    let mut store = connect(&url);
    let mut reader = connect(&url);
    store.write(&[put(1)]).unwrap();
    reader.put_user("kaya", &suite::password("x")).unwrap();
    for mode in ["fast", "immediate"] {
        // The fastest of five, as a busy machine may hold up any of them.
        let answered = (0..5).map(|_| {
            time(|| {
                for _ in 0..20 {
                    store.write(&[put(1), put(1)]).unwrap();
                    reader.user("kaya").unwrap();
                    reader.open_sessions(&mut |_| {}).unwrap();
                }
            })
        });
        let answered = answered.min().unwrap();
        cluster.stop(mode);
        let told = (0..5).map(|_| {
            time(|| {
                for n in 0..20 {
                    let text = unavailable(store.write(&[put(2), put(n)]));
                    assert!(text.contains("PostgreSQL at"), "{text}");
                    unavailable(reader.user("kaya"));
                    unavailable(reader.open_sessions(&mut |_| {}));
                }
            })
        });
        let told = told.min().unwrap();
        assert!(
            told < 2 * answered,
            "it takes {told:?} to say that nobody answers, and {answered:?} to answer"
        );
        unavailable(Postgres::connect(&url));
        cluster.start();
        let begun = Instant::now();
        while store.write(&[put(1)]).is_err() || reader.user("kaya").is_err() {
            assert!(begun.elapsed() < PATIENCE, "it is found again");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut count = 0;
        store.open_sessions(&mut |_| count += 1).unwrap();
        assert_eq!(count, 1, "what was refused was not made");
    }
    // A restart between two questions is not noticed, but where a busy server takes seconds for a connection.
    let is_unnoticed = |_| {
        cluster.stop("fast");
        cluster.start();
        // A connection is looked at before its use when it has been idle for 100 ms.
        std::thread::sleep(Duration::from_millis(150));
        matches!(reader.user("kaya"), Ok(Some(_))) && store.write(&[put(3)]).is_ok()
    };
    assert!((0..5).any(is_unnoticed));
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("host=127.0.0.1 port={} user=usher dbname=usher", silent.local_addr().unwrap().port());
    // The store waits for a few seconds at first, and then makes no new attempt for a while. A busy machine may let that pass.
    let mut all = Vec::new();
    let is_told = (0..5).any(|_| {
        let mut store = Postgres::new(&url).unwrap();
        let [first, second] = [(); 2].map(|()| time(|| drop(unavailable(store.user("kaya")))));
        all.push((first, second));
        first < Duration::from_secs(5) && 20 * second < first
    });
    assert!(is_told, "{all:?}");
}

#[test]
fn a_statement_behind_a_lock_is_given_up() {
    let cluster = Cluster::new();
    let database = cluster.database();
    let url = cluster.url("usher", &database);
    let mut store = connect(&url);
    store.put_user("kaya", &suite::password("x")).unwrap();
    // It stays until its standard input is closed.
    let mut locks = cluster.psql(&database).stdin(Stdio::piped()).spawn().unwrap();
    locks.stdin.as_mut().unwrap().write_all(b"BEGIN; LOCK TABLE radcheck;\n").unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE relation = 'radcheck'::regclass AND mode = 'AccessExclusiveLock' \
                AND granted";
    let begun = Instant::now();
    while cluster.sql(&database, held) == "0" {
        assert!(begun.elapsed() < PATIENCE, "the table is locked");
    }
    // A statement has five seconds. A busy machine may add some, and does not each time.
    let mut waits = (0..5).map(|_| time(|| drop(unavailable(store.user("kaya")))));
    assert!(waits.any(|wait| wait < Duration::from_secs(7)), "a statement is not given up in time");
    drop(waits);
    drop(locks.stdin.take());
    locks.wait().unwrap();
    let begun = Instant::now();
    while !matches!(store.user("kaya"), Ok(Some(_))) {
        assert!(begun.elapsed() < PATIENCE, "the lock is gone");
    }
}

#[test]
fn what_cannot_be_read_or_spoken_is_refused_without_the_password() {
    let text = refused("postgresql://u:kiwi@host:notaport/db");
    assert!(text.contains("postgresql://user:password@host/database") && !text.contains("kiwi"), "{text}");
    let text = refused("postgresql://u:kiwi@127.0.0.1/db?sslmode=verify-full");
    assert!(text.contains("sslrootcert=FILE") && !text.contains("kiwi"), "{text}");
    let store = Postgres::new("postgresql://u:kiwi@127.0.0.1/db").unwrap();
    assert!(!format!("{store:?}").contains("kiwi"));
    let cluster = Cluster::new();
    let text = refused(&cluster.url("usher", "nowhere"));
    assert!(text.contains("\"nowhere\" does not exist"), "{text}");
}
