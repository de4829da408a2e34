//! Faults of a cell, and of accounting in a cell, are reported with line and column.

use crate::faults::faults_with_line;
use usher_scenario::Study;

/// A study with a cell. Tests replace its lines.
const CELL: &str = r#"title = "T"
question = "Q?"
[run]
duration = "10 s"
[hosts.station]
count = 4
[hosts.nas]
[hosts.server]
[links.core]
between = ["nas", "server"]
[cells.air]
base_station = "nas"
stations = "station"
mtu = "1500 B"
queue = "50 packets"
modulation = "16qam-3/4"
[cells.air.frame]
duration = "5 ms"
downlink_symbols = 29
uplink_symbols = 18
[cells.air.requests]
backoff_start = 2
backoff_end = 8
[workload]
kind = "eap"
stations = "station"
nas = "nas"
server = "server"
method = "eap-md5"
aaa = "radius"
arrivals = { kind = "poisson", rate = "5 /s" }
[[axes]]
name = "stations"
set = "hosts.station.count"
values = [1, 4]
[[figures]]
name = "delay"
title = "Collisions"
x = "stations"
y = "collisions.air"
"#;

#[test]
fn faults_of_a_cell_name_their_place() {
    let study = Study::parse("t", "t.toml", CELL).unwrap();
    study.check_plans().unwrap();
    for (line, other, expected) in [
        (
            "base_station = \"nas\"",
            "base_station = \"bas\"",
            "t.toml:12:16: cells.air.base_station: there is no host \"bas\"; did you mean \"nas\"?\n\
             t.toml:27:7: workload.nas: no links lead from \"station\" 0 to \"nas\"",
        ),
        (
            "[hosts.nas]",
            "[hosts.nas]\ncount = 5",
            "t.toml:13:16: cells.air.base_station: 5 base stations for 4 stations: some would have no station",
        ),
        (
            "mtu = \"1500 B\"",
            "mtu = \"20 B\"",
            "t.toml:14:7: cells.air.mtu: 20 B is not between 68 B and 65535 B, as IP needs",
        ),
        (
            "queue = \"50 packets\"",
            "queue = \"64 kB\"",
            "t.toml:15:9: cells.air.queue: a cell's queues have limits in packets, not in bytes",
        ),
        (
            "modulation = \"16qam-3/4\"",
            "modulation = \"16qam-3/5\"",
            "t.toml:16:14: cells.air.modulation: \"16qam-3/5\" is not known here; did you mean \"16qam-3/4\"?",
        ),
        (
            "duration = \"5 ms\"",
            "duration = \"4 ms\"",
            "t.toml:18:12: cells.air.frame.duration: symbols and gaps take 4.999993 ms, longer than the frame",
        ),
        (
            "downlink_symbols = 29",
            "downlink_symbols = 3",
            "t.toml:19:20: cells.air.frame.downlink_symbols: the downlink has no room for a burst",
        ),
        (
            "uplink_symbols = 18",
            "uplink_symbols = 5",
            "t.toml:20:18: cells.air.frame.uplink_symbols: the uplink has no room for a burst",
        ),
        (
            "backoff_start = 2",
            "backoff_start = 9",
            "t.toml:22:17: cells.air.requests.backoff_start: 9 is above backoff_end, 8",
        ),
        (
            "backoff_end = 8",
            "backoff_end = 16",
            "t.toml:23:15: cells.air.requests.backoff_end: 16 is above 15",
        ),
        (
            "backoff_start = 2",
            "backoff_start = 2\n[cells.air.entry]\ndone = true\non_command = true",
            "t.toml:25:14: cells.air.entry.on_command: done puts stations into the cell from the start: set only one \
             of done and on_command",
        ),
        (
            "[cells.air.frame]",
            "radius = \"500 m\"\ngoing_down = \"600 m\"\n[cells.air.frame]",
            "t.toml:18:14: cells.air.going_down: the radius must be above 0, and the threshold of going down must \
             not exceed it",
        ),
        (
            "[cells.air.frame]",
            "keys = { request_timeout = \"0 s\" }\n[cells.air.frame]",
            "t.toml:17:28: cells.air.keys.request_timeout: must be above zero",
        ),
        (
            "[cells.air.frame]",
            "keys = { used = true }\n[cells.air.frame]",
            "t.toml:17:17: cells.air.keys.used: EAP-MD5 derives no key for traffic keys: set workload.method = \
             \"eap-tls\"",
        ),
        (
            "[links.core]",
            "[links.air]",
            "t.toml:11:8: cells.air: a link has the name \"air\" too: rename one of them",
        ),
        (
            "y = \"collisions.air\"",
            "y = \"collisions.core\"",
            "t.toml:40:5: figures[0].y: there is no metric \"collisions.core\"",
        ),
    ] {
        assert!(CELL.contains(line), "{line}");
        let text = CELL.replacen(line, other, 1);
        let faults = Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans()).unwrap_err();
        let found = faults.to_string();
        assert!(found.starts_with(expected), "{found}\nfor {expected}");
    }
}

#[test]
fn accounting_that_cannot_be_is_refused() {
    let check = |settings: &str| {
        let text = CELL.replacen("aaa = \"radius\"\n", &format!("{settings}\n"), 1);
        assert_ne!(text, CELL);
        match Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans()) {
            Ok(()) => String::new(),
            Err(faults) => faults.to_string(),
        }
    };
    assert_eq!(check("aaa = \"radius\"\naccounting = { used = true, interim = \"10 s\" }"), "");
    assert_eq!(
        check(
            "aaa = \"diameter\"\ndiameter = { connections = \"per-session\" }\naccounting = { used = true }"
        ),
        "t.toml:32:23: workload.accounting.used: accounting needs persistent connections, and each authentication has \
         its own: workload.diameter.connections must be a number"
    );
    assert_eq!(
        check("aaa = \"radius\"\naccounting = { session = \"0 s\", interim = \"0 s\" }"),
        "t.toml:31:26: workload.accounting.session: must be above zero\nt.toml:31:43: workload.accounting.interim: \
         must be above zero"
    );
}

#[test]
fn traffic_keys_without_an_authentication_are_refused() {
    let cell =
        "[cells.air]\nbase_station = \"server\"\nstations = \"client\"\nkeys = { used = true }\n[links.core]";
    assert_eq!(
        faults_with_line("[links.core]", cell),
        "t.toml:11:17: cells.air.keys.used: traffic keys need an authentication: the workload must have kind = \
         \"eap\", stations = \"client\" and nas = \"server\""
    );
}
