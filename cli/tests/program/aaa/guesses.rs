//! Guessed passwords, and rows that reject users.

use super::daemon::{DaemonProcess, ServerPorts, pap_login, wait_for_metric};
use crate::place::TempDir;

/// Regression: a correct password of a locked-out user showed, and every attempt cost a hash.
#[test]
fn who_is_held_back_is_so_on_every_shard_whatever_the_guess() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let limits = "[users]\nstore = \"sqlite\"\n[limits]\nfailures = 3\nlockout_time = \"1 h\"\n";
    let server = DaemonProcess::start(&place, &ports.server_config(4, limits));
    for name in ["slow", "other"] {
        let add = "usher aaa user add NAME --hash argon2 --password-file - --config aaa.toml";
        place.run_shell(&format!("echo right | {}", add.replace("NAME", name))).with_code(0);
    }
    pap_login(ports.auth, "slow", "right").with_code(0);
    for _ in 0..3 {
        pap_login(ports.auth, "slow", "wrong").with_code(1);
    }
    server.wait_for_log("too many failed logins under this name: locked out user=slow");
    // Each from another port, to reach all shards.
    for n in 0..12 {
        let said = pap_login(ports.auth, "slow", if n % 2 == 0 { "right" } else { "wrong" }).with_code(1);
        assert!(said.out.contains("Received Access-Reject"), "{}", said.out);
    }
    pap_login(ports.auth, "other", "right").with_code(0);
    for (result, reason, number) in
        [("accept", "", 2.0), ("reject", "wrong-password", 3.0), ("reject", "failures", 12.0)]
    {
        let name = "usher_aaa_logins_total{method=\"pap\",inner=\"\"";
        let name = format!("{name},result=\"{result}\",reason=\"{reason}\"}}");
        wait_for_metric(ports.metrics, &name, number);
    }
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn empty_and_too_costly_passwords_are_rejected_with_their_cause() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, "[users]\nstore = \"sqlite\"\n"));
    for command in ["add ann --password-file -", "add ann --hash argon2 --password-file -"] {
        let said =
            place.run_shell(&format!("echo | usher aaa user {command} --config aaa.toml")).with_code(2);
        assert!(said.err.contains("the password is empty"), "{}", said.err);
    }
    let said = place.run_shell("usher aaa user add ann --no-password --check 'Crypt-Password := $argon2id$v=19$m=8,t=4000000,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA' --config aaa.toml");
    assert!(said.with_code(2).err.contains("t=4000000 passes"));
    // Writes to the database directly.
    let store = rusqlite::Connection::open(place.path("state/usher.db")).unwrap();
    let greedy =
        "$argon2id$v=19$m=262144,t=4000000,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
    for (name, attribute, value) in
        [("empty", "Cleartext-Password", ""), ("greedy", "Crypt-Password", greedy)]
    {
        let row = "INSERT INTO radcheck (username, attribute, op, value) VALUES (?1, ?2, ':=', ?3)";
        store.execute(row, [name, attribute, value]).unwrap();
    }
    pap_login(ports.auth, "greedy", "x").with_code(1);
    pap_login(ports.auth, "empty", "x").with_code(1);
    server.wait_for_log("the Argon2 hash needs t=4000000 passes over m=262144 KiB");
    server.wait_for_log("the password is empty, so everybody knows it");
    server.wait_for_log("reject user=\"greedy\" method=\"pap\"");
    wait_for_metric(ports.metrics, "usher_aaa_aaa_events_total{kind=\"rejected_bad_rows\"}", 2.0);
    assert_eq!(server.terminate(), Some(0));
}
