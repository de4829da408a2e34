//! Handovers from 802.11 to 802.16, from TOML to metrics.

use super::run_study;

/// Nodes that walk out of an 802.11 cell each, within an 802.16 cell that covers the whole way.
fn handover_study(nodes: u32, by: &str, transport: &str, loss: &str, more: &str) -> String {
    format!(
        r#"
title = "t"
question = "q"
[run]
duration = "30 s"
drain = "30 s"
ip = "v6"
[hosts.mn]
count = {nodes}
position = ["35 m", "0 m"]
velocity = ["1 m/s", "0 m/s"]
departs = "1 s"
spread = "1 m"
[hosts.wlan]
interface_of = "mn"
[hosts.wimax]
interface_of = "mn"
[hosts.ap]
count = {nodes}
[hosts.bs]
count = {nodes}
[hosts.serving]
count = {nodes}
[hosts.target]
count = {nodes}
[hosts.router]
[hosts.correspondent]
count = {nodes}
[bss.wifi]
access_point = "ap"
stations = "wlan"
packet_loss = "{loss}"
packet_loss_from = "going-down"
[cells.wimax]
base_station = "bs"
stations = "wimax"
modulation = "64qam-3/4"
radius = "500 m"
entry = {{ on_command = true }}
scan = {{ descriptors = "100 ms" }}
[links.ap]
between = ["ap", "serving"]
rate = "100 Mb/s"
delay = "10 ms"
[links.bs]
between = ["bs", "target"]
rate = "100 Mb/s"
delay = "10 ms"
[links.serving]
between = ["serving", "router"]
rate = "100 Mb/s"
delay = "10 ms"
[links.target]
between = ["target", "router"]
rate = "100 Mb/s"
delay = "10 ms"
[links.correspondent]
between = ["correspondent", "router"]
rate = "100 Mb/s"
delay = "10 ms"
[transport.tcp]
delayed_ack = "off"
rto_min = "200 ms"
rto_max = "500 ms"
rto_initial = "200 ms"
retransmissions = "unlimited"
[transport.sctp]
sack_delay = "off"
rto_min = "200 ms"
rto_max = "500 ms"
rto_initial = "200 ms"
retransmissions = "unlimited"
path_retransmissions = 1000
[workload]
kind = "handover"
mn = "mn"
wlan = "wlan"
wimax = "wimax"
pos = "serving"
target = "target"
correspondent = "correspondent"
initiated_by = "{by}"
transport = "{transport}"
ack = {ack}
processing = "200 ms"
{more}
"#,
        ack = transport == "udp"
    )
}

#[test]
fn without_loss_every_handover_succeeds() {
    for by in ["station", "network"] {
        for transport in ["udp", "tcp", "sctp"] {
            let m = run_study(&handover_study(10, by, transport, "0 %", ""));
            assert_eq!((m["started"], m["success"]), (10.0, 1.0), "{by} {transport} {m:?}");
            assert!(m["delay.mean"] > 0.5 && m["delay.mean"] < 3.0, "{by} {transport} {m:?}");
            let names: &[&str] = match by {
                "station" => &["scan", "resources", "commit", "entry", "redirection"],
                _ => &["preparation", "scan", "decision", "entry", "redirection"],
            };
            let sum: f64 = names.iter().map(|name| m[&format!("step.{name}")]).sum();
            assert!((sum - m["delay.mean"]).abs() < 1e-6, "{by} {transport} {sum} {m:?}");
            assert!(m["step.completion"] > 0.2 && m["app.lost"] < 1.0, "{by} {transport} {m:?}");
        }
    }
}

#[test]
fn a_permanent_loss_makes_a_node_wait_until_its_link_fails() {
    let m = run_study(&handover_study(
        40,
        "station",
        "udp",
        "50 %",
        "[workload.timing]\nretransmission = \"100 ms\"\n",
    ));
    assert_eq!((m["started"], m["failures"]), (40.0, 1.0 - m["success"]));
    assert!(m["success"] > 0.05 && m["success"] < 0.95, "{m:?}");
    // From 41 to 50 m at 1 m/s, three beacons, and the redirection.
    assert!(m["delay.failed"] > 9.2 && m["delay.failed"] < 10.5, "{m:?}");
    assert!(m["delay.success"] < m["delay.mean"] && m["delay.mean"] < m["delay.failed"], "{m:?}");
    assert!(m["app.loss"] > 0.3 && m["app.loss"] < 0.7, "{m:?}");
    let other = handover_study(
        40,
        "station",
        "udp",
        "50 %",
        "on_failure = \"other-interface\"\n[workload.timing]\nretransmission = \"100 ms\"\n",
    );
    let other = run_study(&other);
    assert!(other["delay.failed"] < 6.0, "{other:?}");
    assert!(other["app.lost"] < m["app.lost"], "{other:?}");
}

#[test]
fn over_tcp_more_handovers_succeed_and_take_longer() {
    let udp = run_study(&handover_study(
        40,
        "station",
        "udp",
        "30 %",
        "[workload.timing]\nretransmission = \"100 ms\"\n",
    ));
    let tcp = run_study(&handover_study(40, "station", "tcp", "30 %", ""));
    assert!(tcp["success"] > udp["success"], "{tcp:?} {udp:?}");
    assert!(tcp["delay.success"] > udp["delay.success"], "{tcp:?} {udp:?}");
}

#[test]
fn a_point_of_service_can_watch_the_link_at_its_access_point() {
    let remote = run_study(&handover_study(20, "network", "udp", "0 %", ""));
    let local = run_study(&handover_study(20, "network", "udp", "0 %", "going_down = \"local\""));
    assert_eq!((remote["success"], local["success"]), (1.0, 1.0));
    // The indication skips the air and a wired link. The scan then waits for the base station's descriptors, whose
    // phases vary, so the total may still be longer.
    let sooner = remote["step.preparation"] - local["step.preparation"];
    assert!(sooner > 0.01 && sooner < 0.02, "{local:?} {remote:?}");
}

#[test]
fn a_network_without_room_takes_nobody() {
    let shared = |text: String| {
        // One cell, one base station and one pair of points of service for all.
        ["ap", "bs", "serving", "target"].iter().fold(text, |text, host| {
            text.replace(&format!("[hosts.{host}]\ncount = 10"), &format!("[hosts.{host}]"))
        })
    };
    let m = run_study(&shared(handover_study(10, "station", "udp", "0 %", "")));
    assert_eq!((m["started"], m["success"]), (10.0, 1.0), "{m:?}");
    let m = run_study(&shared(handover_study(10, "station", "udp", "0 %", "capacity = 4")));
    assert_eq!((m["started"], m["completed"]), (10.0, 4.0), "{m:?}");
}

#[test]
fn a_run_is_the_same_each_time() {
    let text = handover_study(10, "network", "tcp", "20 %", "");
    assert_eq!(run_study(&text), run_study(&text));
}

/// If frames are lost with probability 0.5, the MAC's six retransmissions leave one loss in 128 packets; without them
/// one in two.
#[test]
fn frames_that_the_mac_repeats_cost_no_handover() {
    let packets = handover_study(40, "station", "udp", "50 %", "");
    let frames = packets.replace(
        "packet_loss = \"50 %\"\npacket_loss_from = \"going-down\"",
        "frame_loss = \"50 %\"\nframe_loss_from = \"going-down\"\nframe_loss_of = \"data\"",
    );
    assert_ne!(frames, packets);
    let (packets, frames) = (run_study(&packets), run_study(&frames));
    assert!(packets["success"] < 0.8, "{packets:?}");
    assert!(frames["success"] == 1.0 && frames["app.loss"] < 0.1, "{frames:?}");
    assert!(frames["delay.success"] < packets["delay.success"] + 0.5, "{frames:?} {packets:?}");
}
