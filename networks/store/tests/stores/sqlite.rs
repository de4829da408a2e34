//! The specifics of SQLite: files, versions, concurrent programs.

use crate::folder::StoreTempDir;
use crate::session::test_session;
use crate::suite;
use rusqlite::Connection;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use usher_aaa::store::{Store, StoreError};
use usher_core::WallTime;
use usher_store::{SCHEMA_VERSION, SqliteStore};

/// The tables of FreeRADIUS 3.0: without the later columns, and with dates as text.
const OLD: &str = "
    CREATE TABLE radacct (radacctid INTEGER PRIMARY KEY AUTOINCREMENT, acctsessionid varchar(64) NOT NULL default '',
        acctuniqueid varchar(32) NOT NULL default '', username varchar(64) NOT NULL default '', realm varchar(64),
        nasipaddress varchar(15) NOT NULL default '', nasportid varchar(15), nasporttype varchar(32),
        acctstarttime datetime, acctstoptime datetime, acctsessiontime int(12), acctauthentic varchar(32),
        connectinfo_start varchar(50), connectinfo_stop varchar(50), acctinputoctets bigint(20),
        acctoutputoctets bigint(20), calledstationid varchar(50) NOT NULL default '',
        callingstationid varchar(50) NOT NULL default '', acctterminatecause varchar(32) NOT NULL default '',
        servicetype varchar(32), framedprotocol varchar(32), framedipaddress varchar(15) NOT NULL default '');
    CREATE TABLE radcheck (id INTEGER PRIMARY KEY AUTOINCREMENT, username varchar(64) NOT NULL default '',
        attribute varchar(64) NOT NULL default '', op char(2) NOT NULL DEFAULT '==', value varchar(253) NOT NULL default '');
    CREATE TABLE nas (id INTEGER PRIMARY KEY AUTOINCREMENT, nasname varchar(128) NOT NULL, shortname varchar(32),
        type varchar(30) DEFAULT 'other', ports int(5), secret varchar(60) DEFAULT 'secret' NOT NULL,
        server varchar(64), community varchar(50), description varchar(200) DEFAULT 'RADIUS Client');
    INSERT INTO radcheck (username, attribute, op, value) VALUES ('kaya', 'Cleartext-Password', ':=', 'x');
    INSERT INTO nas (nasname, shortname, ports, secret) VALUES ('192.0.2.7', NULL, 48, 's');
    INSERT INTO radacct (acctuniqueid, nasipaddress, acctstarttime, username)
        VALUES ('aa', '', '2023-11-14 22:13:20', 'kaya');";

fn new_file() -> (StoreTempDir, PathBuf) {
    let folder = StoreTempDir::new();
    let path = folder.path().join("usher.db");
    (folder, path)
}

fn expect_refusal(path: &std::path::Path) -> String {
    match SqliteStore::open(path) {
        Err(StoreError::Refused(text)) => {
            assert!(text.contains(&path.display().to_string()), "the file is named: {text}");
            text
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sqlite_does_what_every_store_does() {
    let mut folders = Vec::new();
    suite::run_database(&mut || {
        let (folder, path) = new_file();
        folders.push(folder);
        Box::new(SqliteStore::open(path).unwrap())
    });
}

#[test]
fn a_new_file_is_its_owners_and_rows_outlast_the_connection() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = new_file();
    let mut store = SqliteStore::open(&path).unwrap();
    store.put_user("kaya", &suite::password_user("x")).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
    }
    drop(store);
    assert_eq!(SqliteStore::open(&path).unwrap().find_user("kaya").unwrap(), Some(suite::password_user("x")));
}

#[test]
fn a_newer_version_is_refused() {
    let (_folder, path) = new_file();
    drop(SqliteStore::open(&path).unwrap());
    let raw = Connection::open(&path).unwrap();
    raw.execute("INSERT INTO usher_schema VALUES (?1)", [SCHEMA_VERSION + 5]).unwrap();
    let text = expect_refusal(&path);
    assert!(
        text.contains(&format!("version {}", SCHEMA_VERSION + 5)) && text.contains("newer program"),
        "{text}"
    );
}

#[test]
fn an_older_version_is_brought_forward_with_its_rows() {
    let (_folder, path) = new_file();
    drop(SqliteStore::open(&path).unwrap());
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "DELETE FROM usher_schema WHERE version > 1; DROP INDEX usher_radacct_open;
         ALTER TABLE radacct DROP COLUMN usher_interims;
         ALTER TABLE radacct DROP COLUMN usher_diameter_origin; ALTER TABLE nas DROP COLUMN require_ma;
         INSERT INTO radacct (acctuniqueid, nasipaddress, username) VALUES ('aa', '192.0.2.1', 'kaya');",
    )
    .unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.find_session("aa").unwrap().unwrap().username, "kaya");
    store.write_changes(&[usher_aaa::store::StoreChange::Session(Box::new(test_session(1)))]).unwrap();
    let versions: Vec<i64> = raw
        .prepare("SELECT version FROM usher_schema ORDER BY 1")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(versions, (1..=SCHEMA_VERSION).collect::<Vec<_>>());
}

/// FreeRADIUS passes the packets of such a client to another virtual server with its own rules.
#[test]
fn a_clients_virtual_server_is_read_if_the_column_exists() {
    let (_folder, path) = new_file();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(OLD).unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    let mut servers = || -> Vec<Option<String>> {
        let clients = store.list_clients().unwrap();
        clients.iter().map(|client| client.virtual_server().map(str::to_owned)).collect()
    };
    raw.execute_batch(
        "INSERT INTO nas (nasname, secret, server) VALUES ('192.0.2.8', 's', 'strict'), ('192.0.2.9', 's', 'default'), \
         ('192.0.2.10', 's', ' ')",
    )
    .unwrap();
    assert_eq!(servers(), [None, Some("strict".to_owned()), None, None]);
    raw.execute_batch("ALTER TABLE nas DROP COLUMN server").unwrap();
    assert_eq!(servers(), [None, None, None, None]);
    assert_eq!(SqliteStore::examine_schema(&path).unwrap().unwrap().missing, [""; 0]);
}

#[test]
fn freeradius_tables_get_what_they_lack_and_keep_what_they_have() {
    let (_folder, path) = new_file();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(OLD).unwrap();
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.find_user("kaya").unwrap(), Some(suite::password_user("x")));
    let mut client = store.list_clients().unwrap().remove(0);
    assert_eq!(
        (client.nasname.as_str(), client.shortname.as_str(), client.kind.as_str()),
        ("192.0.2.7", "", "other")
    );
    client.secret = "t".to_owned();
    assert_eq!(client.virtual_server(), None);
    store.put_client(&client).unwrap();
    assert_eq!(raw.query_row("SELECT ports FROM nas", [], |row| row.get::<_, i64>(0)).unwrap(), 48);
    let old = store.find_session("aa").unwrap().unwrap();
    assert_eq!(old.acctstarttime, Some(WallTime::from_unix_secs(1_700_000_000)), "a date as text is read");
    assert_eq!(old.nasipaddress.to_string(), "0.0.0.0");
    // The key becomes unique. Without that no session could replace its row.
    for _ in 0..2 {
        store.write_changes(&[usher_aaa::store::StoreChange::Session(Box::new(test_session(1)))]).unwrap();
    }
    assert_eq!(raw.query_row("SELECT count(*) FROM radacct", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    // FreeRADIUS's own INSERT still works.
    raw.execute(
        "INSERT INTO radacct (acctuniqueid, nasipaddress, acctstarttime) VALUES ('bb', '192.0.2.9', 5)",
        [],
    )
    .unwrap();
    assert_eq!(store.find_session("bb").unwrap().unwrap().interims, 0);
}

#[test]
fn duplicate_sessions_are_named_and_the_file_stays_unchanged() {
    let (_folder, path) = new_file();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(OLD).unwrap();
    raw.execute("INSERT INTO radacct (acctuniqueid) VALUES ('aa')", []).unwrap();
    let text = expect_refusal(&path);
    assert!(text.contains("acctuniqueid") && text.contains("HAVING count(*) > 1"), "{text}");
    let tables =
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('usher_schema', 'radreply')";
    assert_eq!(raw.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "all of it was taken back");
}

#[test]
fn the_installed_freeradius_schema_is_taken_as_it_is() {
    let path = "/etc/freeradius/3.0/mods-config/sql/main/sqlite/schema.sql";
    let schema = std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{path}: {e}: install Debian's package freeradius-config"));
    let mut folders = Vec::new();
    suite::run_database(&mut || {
        let (folder, path) = new_file();
        folders.push(folder);
        Connection::open(&path).unwrap().execute_batch(&schema).unwrap();
        Box::new(SqliteStore::open(path).unwrap())
    });
}

#[test]
fn examining_a_file_lists_its_gaps_and_changes_nothing() {
    let (folder, path) = new_file();
    assert_eq!(SqliteStore::examine_schema(&path).unwrap(), None);
    assert!(!path.exists(), "looking makes none");
    Connection::open(&path).unwrap().execute_batch(OLD).unwrap();
    let before = std::fs::read(&path).unwrap();
    let report = |version, missing: &[&str]| {
        let missing = missing.iter().map(|text| (*text).to_owned()).collect();
        Some(usher_store::SchemaReport { version, missing })
    };
    assert_eq!(SqliteStore::examine_schema(&path).unwrap(), report(0, &[]));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(SqliteStore::examine_schema(&path).unwrap(), report(SCHEMA_VERSION, &[]));
    let sql = "ALTER TABLE radacct DROP COLUMN class; DROP TABLE radgroupreply;";
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    let missing = SqliteStore::examine_schema(&path).unwrap().unwrap().missing;
    assert!(missing.iter().any(|text| text.contains("radgroupreply")), "{missing:?}");
    assert!(missing.iter().any(|text| text.contains("class")), "{missing:?}");
    let sql = format!("INSERT INTO usher_schema VALUES ({})", SCHEMA_VERSION + 1);
    Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
    let newer = SqliteStore::examine_schema(&path).unwrap_err().to_string();
    assert!(newer.ends_with(&expect_refusal(&path)), "the server says the same: {newer}");
    drop(folder);
}

#[test]
fn what_is_no_database_is_refused() {
    let (folder, path) = new_file();
    std::fs::write(&path, "# a configuration file, not a database, and longer than a header").unwrap();
    assert!(expect_refusal(&path).contains("not a database"));
    assert!(expect_refusal(&folder.path().join("nowhere/usher.db")).contains("cannot be opened"));
    assert!(expect_refusal(folder.path()).contains("cannot be opened"));
}

#[test]
fn readers_do_not_wait_and_a_writer_says_when_it_cannot() {
    let (_folder, path) = new_file();
    let mut one = SqliteStore::open(&path).unwrap();
    let mut two = SqliteStore::open(&path).unwrap();
    one.put_user("kaya", &suite::password_user("x")).unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("BEGIN IMMEDIATE; DELETE FROM radcheck").unwrap();
    // The fastest of three, since a busy machine can delay any of them.
    let read = (0..3).map(|_| {
        let begun = Instant::now();
        let found = two.find_user("kaya").unwrap();
        assert_eq!(found, Some(suite::password_user("x")), "as it was before the change under way");
        begun.elapsed()
    });
    let read = read.min().unwrap();
    let begun = Instant::now();
    assert!(matches!(one.put_user("lim", &suite::password_user("x")), Err(StoreError::Unavailable(_))));
    let waited = begun.elapsed();
    assert!(read < waited / 2, "a reader takes {read:?} where a writer waits for {waited:?}");
    raw.execute_batch("ROLLBACK").unwrap();
    one.put_user("lim", &suite::password_user("x")).unwrap();
    assert!(two.find_user("lim").unwrap().is_some());
}

/// Retries an operation until no other program has the file. Each attempt waits for the others for some seconds.
fn retry_while_busy<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> T {
    let first = Instant::now();
    loop {
        let begun = Instant::now();
        match attempt() {
            Err(StoreError::Unavailable(why)) => {
                assert!(begun.elapsed() > Duration::from_secs(4), "the others are not waited for: {why}");
                assert!(first.elapsed() < Duration::from_secs(120), "{why}");
            }
            done => return done.unwrap(),
        }
    }
}

#[test]
fn many_open_a_new_file_at_once() {
    let (_folder, path) = new_file();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let mut store = retry_while_busy(|| SqliteStore::open(path));
                retry_while_busy(|| store.put_user(&format!("u{n}"), &suite::password_user("x")));
            });
        }
    });
    assert_eq!(SqliteStore::open(&path).unwrap().user_names(None, 100).unwrap().len(), 8);
}

#[test]
fn an_operator_that_is_none_is_refused_by_name() {
    let (_folder, path) = new_file();
    let mut store = SqliteStore::open(&path).unwrap();
    let sql = "INSERT INTO radcheck (username, attribute, op, value) VALUES ('odd', 'Class', '=>', '1')";
    Connection::open(&path).unwrap().execute(sql, []).unwrap();
    suite::refused_operator(&mut store);
}

/// The owner of the service's folder could have root write tables into any file that is empty or a database.
#[cfg(unix)]
#[test]
fn root_follows_no_link_in_a_folder_of_another_user() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    let folder = StoreTempDir::new();
    if std::fs::metadata(folder.path()).unwrap().uid() != 0 {
        return;
    }
    let (path, other) = (folder.path().join("usher.db"), folder.path().join("other"));
    std::fs::write(&other, "").unwrap();
    symlink(&other, &path).unwrap();
    assert!(SqliteStore::open(&path).is_ok(), "in its own folder root may have put it there");
    std::fs::write(&other, "").unwrap();
    chown(folder.path(), Some(1), Some(1)).unwrap();
    let error = SqliteStore::open(&path).map(drop).unwrap_err().to_string();
    assert!(error.contains("root does not follow"), "{error}");
    assert_eq!(std::fs::metadata(&other).unwrap().len(), 0);
    std::fs::remove_file(&path).unwrap();
    drop(SqliteStore::open(&path).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().uid(), 1, "what root makes there is the owner's");
    drop(SqliteStore::open(&path).unwrap());
}
