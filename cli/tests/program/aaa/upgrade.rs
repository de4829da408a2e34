//! Files of an earlier version work unchanged. Files of a later version are rejected with a message.

use super::daemon::{ANN, DaemonProcess, ServerPorts, eapol_test, run_radclient, write_private};
use crate::cluster::PostgresCluster;
use crate::place::{TempDir, own_address};
use rusqlite::OptionalExtension;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns a file of version 0.1.0. Its README tells how it was made.
fn upgrade_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors/upgrade/0.1.0").join(name)
}

fn read_upgrade_file(name: &str) -> String {
    std::fs::read_to_string(upgrade_path(name)).unwrap()
}

/// Restores a folder of that version's operator: configuration and authority, without a store.
fn restore_old_folder(ports: &ServerPorts) -> (TempDir, String) {
    let place = TempDir::new();
    std::fs::create_dir_all(place.path("state/pki/issued")).unwrap();
    for folder in ["pki", "pki/issued"] {
        for entry in std::fs::read_dir(upgrade_path(folder)).unwrap().map(Result::unwrap) {
            let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_file() {
                write_private(&place, &format!("state/{name}"), &read_upgrade_file(&name));
            }
        }
    }
    let others = ServerPorts::reserve_free();
    let config =
        [("31812", ports.auth), ("31813", ports.acct), ("33868", others.auth), ("32083", others.acct)]
            .iter()
            .fold(read_upgrade_file("aaa.toml"), |config, (was, is)| {
                config.replace(&format!("127.0.0.1:{was}"), &format!("{}:{is}", own_address()))
            });
    write_private(&place, "aaa.toml", &config);
    (place, config)
}

/// Logs in by a password, with further attributes.
#[track_caller]
fn log_in_by_pap(ports: &ServerPorts, name: &str, password: &str, more: &str) -> String {
    let attributes = format!("User-Name={name},User-Password={password},Message-Authenticator=0x00{more}");
    run_radclient(ports.auth, "auth", &attributes).out
}

#[track_caller]
fn expect_accept(said: &str, holds: &[&str]) {
    assert!(said.contains("Received Access-Accept"), "{said}");
    for each in holds {
        assert!(said.contains(each), "{each}: {said}");
    }
}

/// Checks accepts, rejects and replies, and that sessions continue. `stop` queries the store for the session that
/// version 0.1.0 opened: whether it is closed, and its octets.
fn check_upgraded_server(
    place: &TempDir,
    ports: &ServerPorts,
    config: &str,
    rows: impl Fn() -> Vec<(bool, i64, i64)>,
) {
    place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0);
    // In practice, its last list is at most 30 days old at an upgrade.
    place.run_usher(&["aaa", "cert", "crl", "--dir", "state/pki"]).with_code(0);
    let list =
        place.run_usher(&["aaa", "cert", "list", "--dir", "state/pki", "--json"]).with_code(0).stdout_json();
    let entries = list.as_array().unwrap();
    assert_eq!(entries.len(), 4, "{list}");
    let users = place.run_usher(&["aaa", "user", "list", "--config", "aaa.toml"]).with_code(0).out;
    for name in ["clara", "nina", "arthur", "001122334455", "ann@example.org"] {
        assert!(users.contains(name), "{name}: {users}");
    }
    let clients = place.run_usher(&["aaa", "client", "list", "--config", "aaa.toml"]).with_code(0).out;
    assert!(clients.contains("203.0.113.0/24"), "{clients}");

    let server = DaemonProcess::start(place, config);
    expect_accept(
        &log_in_by_pap(ports, "clara", "clear-pass", ",NAS-Port-Type=Ethernet"),
        &["Tunnel-Private-Group-Id:0 = \"20\""],
    );
    expect_accept(&log_in_by_pap(ports, "nina", "nt-pass", ",NAS-Port=7"), &[]);
    assert!(log_in_by_pap(ports, "nina", "nt-pass", ",NAS-Port=8").contains("Received Access-Reject"));
    expect_accept(&log_in_by_pap(ports, "arthur", "argon-pass", ""), &["Session-Timeout = 3600"]);
    assert!(log_in_by_pap(ports, "arthur", "wrong", "").contains("Received Access-Reject"));
    expect_accept(
        &log_in_by_pap(ports, "dora", "\"of the file\"", ",NAS-Port-Type=Ethernet"),
        &["Session-Timeout = 1800"],
    );
    let device = "User-Name=00-11-22-33-44-55,Calling-Station-Id=00-11-22-33-44-55,Service-Type=Call-Check,\
                  Message-Authenticator=0x00";
    expect_accept(&run_radclient(ports.auth, "auth", device).out, &["Tunnel-Private-Group-Id:0 = \"20\""]);
    let by_certificate = |name: &str| {
        let file = |name: &str| place.path(&format!("state/pki/{name}")).display().to_string();
        let network = format!(
            "eap=TLS\nidentity=\"{name}\"\nca_cert=\"{}\"\nclient_cert=\"{}\"\nprivate_key=\"{}\"",
            file("ca.crt"),
            file(&format!("issued/{name}.crt")),
            file(&format!("issued/{name}.key"))
        );
        eapol_test(place, ports.auth, &network, &[])
    };
    assert!(by_certificate("ann@example.org"), "{}", server.log());
    assert!(!by_certificate("bob@example.org"), "that certificate was taken back");

    let open = place.run_usher(&["aaa", "session", "list", "--config", "aaa.toml"]).with_code(0).out;
    assert!(open.contains("clara") && !open.contains("nina"), "{open}");
    assert_eq!(rows(), [(false, (1 << 32) + 1000, 2000)]);
    let stop = "Acct-Status-Type=Stop,Acct-Session-Id=open-1,User-Name=clara,NAS-IP-Address=192.0.2.1,NAS-Port=3,\
                Framed-IP-Address=192.0.2.10,Acct-Session-Time=90,Acct-Input-Octets=2000,Acct-Input-Gigawords=1,\
                Acct-Output-Octets=3000,Acct-Terminate-Cause=User-Request";
    assert_eq!(run_radclient(ports.acct, "acct", stop).code, Some(0));
    assert_eq!(rows(), [(true, (1 << 32) + 2000, 3000)], "the row that version 0.1.0 had opened is closed");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_store_copied_from_a_running_server_can_be_restored() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(1, "");
    write_private(&place, "aaa.toml", &config);
    let add = |name: &str| {
        write_private(&place, "password", "secret\n");
        place
            .run_usher(&["aaa", "user", "add", name, "--password-file", "password", "--config", "aaa.toml"])
            .with_code(0);
    };
    let (file, copy) = (place.path("state/usher.db"), place.path("copy.db"));
    let server = DaemonProcess::start(&place, &config);
    add("before");
    let store = rusqlite::Connection::open(&file).unwrap();
    store.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(store);
    add("after");
    assert_eq!(server.terminate(), Some(0));

    // As documented: only the copy, without the database's side files.
    for more in ["-wal", "-shm"] {
        let _may_not_be_there = std::fs::remove_file(place.path(&format!("state/usher.db{more}")));
    }
    std::fs::copy(&copy, &file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = DaemonProcess::start(&place, &config);
    expect_accept(&log_in_by_pap(&ports, "before", "secret", ""), &[]);
    assert!(log_in_by_pap(&ports, "after", "secret", "").contains("Received Access-Reject"));
    assert_eq!(server.terminate(), Some(0));
}

const OPEN_ROWS: &str = "SELECT acctstoptime IS NOT NULL, acctinputoctets, acctoutputoctets FROM radacct WHERE \
                         acctsessionid = 'open-1'";

#[test]
fn what_version_0_1_0_kept_in_sqlite_serves_as_it_is() {
    let ports = ServerPorts::reserve_free();
    let (place, config) = restore_old_folder(&ports);
    let file = place.path("state/usher.db");
    let store = rusqlite::Connection::open(&file).unwrap();
    store.execute_batch(&read_upgrade_file("store.sqlite.sql")).unwrap();
    store
        .execute_batch("UPDATE radacct SET acctstarttime = unixepoch() - 60, acctupdatetime = unixepoch()")
        .unwrap();
    drop(store);
    check_upgraded_server(&place, &ports, &config, || {
        let store = rusqlite::Connection::open(&file).unwrap();
        let mut rows = store.prepare(OPEN_ROWS).unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        rows.query_map([], row).unwrap().map(Result::unwrap).collect()
    });
}

#[test]
fn what_version_0_1_0_kept_in_postgresql_serves_as_it_is() {
    let cluster = PostgresCluster::new();
    let database = cluster.create_database();
    cluster.run_sql(&database, &read_upgrade_file("store.postgres.sql"));
    cluster.run_sql(
        &database,
        "UPDATE radacct SET acctstarttime = now() - interval '60 s', acctupdatetime = now()",
    );
    let ports = ServerPorts::reserve_free();
    let (place, config) = restore_old_folder(&ports);
    let url = cluster.database_url("usher", &database);
    let config = config.replace("store = \"sqlite\"", &format!("store = \"postgresql\"\nurl = \"{url}\""));
    write_private(&place, "aaa.toml", &config);
    check_upgraded_server(&place, &ports, &config, || {
        let rows = cluster.run_sql(&database, OPEN_ROWS);
        let row = |line: &str| {
            let mut cells = line.split('|');
            let mut cell = || cells.next().unwrap();
            (cell() == "t", cell().parse().unwrap(), cell().parse().unwrap())
        };
        rows.lines().map(row).collect()
    });
}

/// A session that version 0.2.0 opened is closed by this one. `sql` queries the store.
fn check_old_session_closes(
    place: &TempDir,
    ports: &ServerPorts,
    config: &str,
    sql: impl Fn(&str) -> String,
) {
    let record = |status: &str| {
        let record = format!(
            "Acct-Status-Type={status},Acct-Session-Id=open-2,User-Name=ann,NAS-IP-Address=127.0.0.1,NAS-Port=3,\
             Acct-Session-Time=90"
        );
        assert_eq!(run_radclient(ports.acct, "acct", &record).code, Some(0));
    };
    let server = DaemonProcess::start(place, config);
    record("Start");
    assert_eq!(server.terminate(), Some(0));
    // Its tables were the same, but for one column.
    sql("ALTER TABLE radacct DROP COLUMN usher_diameter_origin");
    sql("DELETE FROM usher_schema WHERE version > 2");

    let server = DaemonProcess::start(place, config);
    let open = place.run_usher(&["aaa", "session", "list", "--config", "aaa.toml"]).with_code(0).out;
    assert!(open.contains("ann"), "{open}");
    record("Stop");
    let stopped = "SELECT count(*) FROM radacct WHERE acctstoptime IS NOT NULL AND acctsessiontime = 90";
    assert_eq!((sql(stopped), sql("SELECT count(*) FROM radacct")), ("1".to_owned(), "1".to_owned()));
    assert_eq!(sql("SELECT max(version) FROM usher_schema"), "3");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn what_version_0_2_0_kept_in_sqlite_goes_on() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(1, "");
    write_private(&place, "aaa.toml", &config);
    let file = place.path("state/usher.db");
    check_old_session_closes(&place, &ports, &config, |sql| {
        let store = rusqlite::Connection::open(&file).unwrap();
        let number = store.query_row(sql, [], |row| row.get::<_, i64>(0)).optional().unwrap();
        number.map_or_else(String::new, |n| n.to_string())
    });
}

#[test]
fn what_version_0_2_0_kept_in_postgresql_goes_on() {
    let cluster = PostgresCluster::new();
    let database = cluster.create_database();
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let url = cluster.database_url("usher", &database);
    let config = ports.server_config(1, &format!("[users]\nstore = \"postgresql\"\nurl = \"{url}\"\n"));
    write_private(&place, "aaa.toml", &config);
    check_old_session_closes(&place, &ports, &config, |sql| {
        cluster.run_sql(&database, sql).trim().to_owned()
    });
}

#[test]
fn a_store_of_a_later_version_is_refused_and_left_unchanged() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, ""));
    write_private(&place, "password", "secret\n");
    let add = ["aaa", "user", "add", "ann", "--password-file", "password", "--config", "aaa.toml"];
    place.run_usher(&add).with_code(0);
    let file = place.path("state/usher.db");
    let later = rusqlite::Connection::open(&file).unwrap();
    later.execute_batch("INSERT INTO usher_schema VALUES (99); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(later);
    let before = std::fs::read(&file).unwrap();
    for arguments in [
        &["aaa", "serve", "--config", "aaa.toml"][..],
        &["aaa", "user", "list", "--config", "aaa.toml"],
        &add,
    ] {
        let said = place.run_usher(arguments).with_code(1);
        for part in ["version 99", "use the newer program"] {
            assert!(said.err.contains(part), "{arguments:?}: {}", said.err);
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), before, "nothing was written");
}

#[test]
fn a_configuration_of_a_later_version_is_refused_by_line() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, &format!("{ANN}[later]\nsetting = 1\n")));
    let said = place.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(2);
    assert!(said.err.contains("aaa.toml:") && said.err.contains("later"), "{}", said.err);
}
