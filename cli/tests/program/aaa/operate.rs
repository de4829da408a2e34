//! Operation: reload, faulty configurations, secrets and shutdown.

use super::daemon::{
    ANN, DaemonProcess, ServerPorts, get_page, metric_value, pap_login, wait_until_metric, write_private,
};
use crate::place::{TempDir, own_address};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_reload_takes_a_new_configuration_and_keeps_the_counters() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    pap_login(ports.auth, "ann", "right").with_code(0);
    let both = format!("{ANN}[[user]]\nname = \"bob\"\npassword = \"right\"\n");
    write_private(&place, "aaa.toml", &ports.server_config(1, &both));
    pap_login(ports.auth, "bob", "right").with_code(1);
    server.send_signal("HUP");
    server.wait_for_log("reloaded");
    pap_login(ports.auth, "bob", "right").with_code(0);
    pap_login(ports.auth, "ann", "right").with_code(0);
    let page = get_page(ports.metrics, "/metrics");
    assert_eq!(metric_value(&page, "usher_aaa_reloads_total{result=\"done\"}"), 1.0);
    // Counts before and after.
    assert_eq!(
        metric_value(&page, "usher_aaa_requests_total{client=\"tests\",code=\"Access-Request\"}"),
        4.0
    );
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_reload_changes_level_and_format_of_the_log() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = |log: &str| ports.server_config(1, &format!("[log]\n{log}\n{ANN}"));
    let server = DaemonProcess::start(&place, &config("level = \"info\""));
    let said = |server: &DaemonProcess| server.log().lines().filter(|line| line.contains("ann")).count();
    pap_login(ports.auth, "ann", "right").with_code(0);
    server.wait_for_log("ann");
    let before = said(&server);
    write_private(&place, "aaa.toml", &config("level = \"warn\""));
    server.send_signal("HUP");
    place.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0);
    let until = |reloads: f64| {
        wait_until_metric(ports.metrics, "usher_aaa_reloads_total{result=\"done\"}", |n| n >= reloads);
    };
    until(1.0);
    pap_login(ports.auth, "ann", "right").with_code(0);
    write_private(&place, "aaa.toml", &config("format = \"json\""));
    server.send_signal("HUP");
    until(2.0);
    pap_login(ports.auth, "ann", "wrong").with_code(1);
    server.wait_for_log("\"cause\":\"wrong-password\"");
    assert!(!server.log().contains("take effect after a restart"), "{}", server.log());
    let plain = |line: &&str| line.contains("ann") && !line.starts_with('{');
    assert_eq!(server.log().lines().filter(plain).count(), before, "{}", server.log());
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn what_a_reload_leaves_for_the_next_start_is_named_each_time() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let config = ports.server_config(1, ANN);
    let server = DaemonProcess::start(&place, &config);
    let reload = |more: &[&str]| {
        place.run_usher(&[&["aaa", "reload", "--config", "aaa.toml"], more].concat()).with_code(0).out
    };
    assert_eq!(reload(&[]), "reloaded\n");
    let pool = "[[pool]]\nname = \"guests\"\nranges = [\"192.0.2.1-192.0.2.9\"]\n";
    let more = config.replace("shards = 1", "shards = 2") + pool;
    write_private(&place, "aaa.toml", &more);
    for _ in 0..2 {
        let said = "reloaded; changes of shards, pool take effect after a restart\n";
        assert_eq!(reload(&[]), said);
    }
    let json: serde_json::Value = serde_json::from_str(&reload(&["--json"])).unwrap();
    assert_eq!(json["restart"], serde_json::json!(["shards", "pool"]));
    // The server removes its socket, but not a file at the next server's path.
    place.write("other.sock", "of somebody else");
    write_private(&place, "aaa.toml", &format!("{more}[control]\nsocket = \"other.sock\"\n"));
    server.send_signal("HUP");
    server.wait_for_log("parts=\"shards, pool, control\"");
    assert!(place.path("state/control.sock").exists());
    assert_eq!(server.terminate(), Some(0));
    assert!(!place.path("state/control.sock").exists());
    assert_eq!(std::fs::read_to_string(place.path("other.sock")).unwrap(), "of somebody else");
}

#[test]
fn a_check_says_what_is_right_and_yet_not_what_was_meant() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let check = || place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(0).err;
    write_private(&place, "aaa.toml", &ports.server_config(1, ANN));
    assert_eq!(check(), "");
    write_private(
        &place,
        "aaa.toml",
        &ports.server_config(1, &format!("{ANN}[[realm]]\nname = \"DEFAULT\"\nrefuse = true\n")),
    );
    assert!(check().contains("every realm without an entry, write \"*\""), "{}", check());
    write_private(&place, "aaa.toml", &ports.server_config(1, ANN));
    // The service runs as the state directory's owner. Root can read files that this user cannot.
    place.run_shell("mkdir state; chown 1:1 state; chmod 755 .").with_code(0);
    let said = check();
    assert!(said.contains("cannot read") && said.contains("aaa.toml (mode 0600)"), "{said}");
    place.run_shell("chgrp 1 aaa.toml; chmod 0640 aaa.toml").with_code(0);
    assert_eq!(check(), "");
}

#[test]
fn a_reload_reports_the_faulty_line_and_keeps_the_old_config() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    let faulty = ports.server_config(1, "[methods]\nordre = [\"pap\"]\n");
    let line = 1 + faulty.lines().position(|l| l.starts_with("ordre")).unwrap();
    write_private(&place, "aaa.toml", &faulty);
    server.send_signal("HUP");
    server.wait_for_log("not reloaded");
    let said =
        format!("aaa.toml:{line}:1: unknown key \\\"ordre\\\" in methods; did you mean \\\"order\\\"?");
    assert!(server.log().contains(&said), "{said} in {}", server.log());
    pap_login(ports.auth, "ann", "right").with_code(0);
    let checked = place.run_usher(&["aaa", "check", "aaa.toml"]).with_code(2);
    assert!(checked.err.contains(&format!("aaa.toml:{line}:1: unknown key \"ordre\"")), "{checked:?}");
    let checked = place.run_usher(&["aaa", "check", "aaa.toml", "--json"]).with_code(2).stdout_json();
    assert_eq!(checked["faults"][0]["line"], line);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    write_private(&place, "aaa.toml", &ports.server_config(1, ANN));
    std::fs::set_permissions(place.path("aaa.toml"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = place.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(2);
    assert!(said.err.contains("chmod 0600") && said.err.contains("mode 0644"), "{said:?}");
}

#[test]
fn an_address_in_use_is_said() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    // Without SO_REUSEPORT, so that the port is taken.
    let _taken = std::net::UdpSocket::bind((own_address(), ports.auth)).unwrap();
    write_private(&place, "aaa.toml", &ports.server_config(1, ANN));
    let said = place.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(1);
    assert!(said.err.contains(&format!("cannot listen on {}:{}", own_address(), ports.auth)), "{said:?}");
}

#[test]
fn a_second_server_of_one_place_does_not_start() {
    let (place, ports) = (TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    let said = place.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(1);
    assert!(said.err.contains("another server listens on"), "{said:?}");
    pap_login(ports.auth, "ann", "right").with_code(0);
    place.run_usher(&["aaa", "status", "--config", "aaa.toml"]).with_code(0);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_server_of_another_place_does_not_share_addresses() {
    let (place, other, ports) = (TempDir::new(), TempDir::new(), ServerPorts::reserve_free());
    let server = DaemonProcess::start(&place, &ports.server_config(1, ANN));
    let elsewhere = ServerPorts::reserve_free();
    for taken in
        [ServerPorts { acct: elsewhere.acct, ..ports }, ServerPorts { auth: elsewhere.auth, ..ports }]
    {
        write_private(
            &other,
            "aaa.toml",
            &ServerPorts { metrics: elsewhere.metrics, ..taken }.server_config(1, ANN),
        );
        let said = other.run_usher(&["aaa", "serve", "--config", "aaa.toml"]).with_code(1);
        assert!(said.err.contains(&format!("cannot listen on {}:", own_address())), "{said:?}");
    }
    assert_eq!(server.terminate(), Some(0));
}
