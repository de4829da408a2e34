//! New revocation lists reach a server despite other faults.

use super::daemon::{DaemonProcess, SECRET, ServerPorts, write_private};
use super::lists::{USERS, create_authority, logs_in, now, revocation_config, wait_for_daemon};
use super::others::tls_section;
use crate::place::{TempDir, own_socket};
use std::os::unix::fs::OpenOptionsExt;
use usher_pki::{CertificateAuthority, RevokeReason};

/// Its value on nearly all Linux architectures (open(2)).
const O_NONBLOCK: i32 = 0o4000;

/// Revokes a certificate without notifying a server.
fn revoke_quietly(pki: &TempDir, name: &str) {
    CertificateAuthority::open(&pki.path("pki"))
        .unwrap()
        .revoke(name, RevokeReason::KeyCompromise, now())
        .unwrap();
}

fn crl_setting(pki: &TempDir) -> String {
    format!("crl = [\"{}\"]\n", pki.path("pki/ca.crl").display())
}

#[test]
fn a_list_reaches_a_server_whose_secrets_are_its_own() {
    let pki = create_authority();
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let hidden = |text: &str| {
        text.replace(&format!("secret = \"{SECRET}\""), "secret_env = \"USHER_TESTS_OWN_SECRET\"")
    };
    write_private(&place, "aaa.toml", &hidden(&revocation_config(&ports, &pki, &crl_setting(&pki))));
    let mut serve = place.usher_command(&["aaa", "serve", "--config", "aaa.toml"]);
    let daemon = DaemonProcess::run_command(serve.env("USHER_TESTS_OWN_SECRET", SECRET));
    daemon.wait_for_log("started");
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    let folder = pki.path("pki").display().to_string();
    let cert = |arguments: &[&str]| {
        let all = [&["aaa", "cert", "--dir", &folder], arguments, &["--config", "aaa.toml"]].concat();
        place.run_usher(&all).with_code(0).err
    };
    // The list was made, but the notification failed. The timer's next run repeats it once.
    revoke_quietly(&pki, "ann");
    let said = cert(&["crl", "--expiring", "10"]);
    assert!(said.contains("has not read it yet") && said.contains("has read it"), "{said}");
    assert!(!logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    let said = cert(&["crl", "--expiring", "10"]);
    assert!(said.contains("is valid for more than 10 days") && !said.contains("read it"), "{said}");
    assert!(logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    assert!(cert(&["revoke", "bob"]).contains("has read it"));
    assert!(!logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    assert_eq!(daemon.terminate(), Some(0));
}

/// The store is down from the start: no server listens at its address.
#[test]
fn a_new_list_is_read_unprompted_while_the_store_is_away() {
    let pki = create_authority();
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let url = format!("url = \"postgresql://usher@{}/usher\"", own_socket());
    let users = USERS.replace("store = \"memory\"", &format!("store = \"postgresql\"\n{url}"));
    let tls = tls_section(&pki.path("pki"), "radius.example.net");
    let lists = format!("{}crl_interval = \"1 s\"\n", crl_setting(&pki));
    let daemon = DaemonProcess::start(&place, &ports.server_config(2, &format!("{tls}{lists}{users}")));
    assert!(logs_in(&place, &pki, &ports, "ann"), "{}", daemon.log());
    revoke_quietly(&pki, "ann");
    wait_for_daemon(&daemon, || !logs_in(&place, &pki, &ports, "ann"));
    daemon.wait_for_log("certificate-revoked");
    assert!(logs_in(&place, &pki, &ports, "bob"), "{}", daemon.log());
    assert_eq!(daemon.terminate(), Some(0));
}

#[test]
fn a_server_ends_while_a_reload_waits() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let text = ports.server_config(1, USERS);
    let daemon = DaemonProcess::start(&place, &text);
    place.run_shell("mkfifo -m 600 pipe").with_code(0);
    write_private(
        &place,
        "aaa.toml",
        &text.replace(&format!("secret = \"{SECRET}\""), "secret_file = \"pipe\""),
    );
    daemon.send_signal("HUP");
    // It can be opened so once it has a reader (fifo(7)). It never gets data.
    let mut writes = std::fs::OpenOptions::new();
    writes.write(true).custom_flags(O_NONBLOCK);
    let mut writer = None;
    wait_for_daemon(&daemon, || {
        writer = writes.open(place.path("pipe")).ok();
        writer.is_some()
    });
    assert!(!daemon.log().contains("reloaded"), "{}", daemon.log());
    assert_eq!(daemon.terminate(), Some(0));
    drop(writer);
}
