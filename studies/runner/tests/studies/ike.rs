//! IKEv2 gateways and clients on simulated hosts, each by its configuration file.

use crate::MetricMap;
use crate::services::{TempStudyDir, metric_value};
use std::sync::atomic::{AtomicU32, Ordering};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, StudyMode};

/// Clients and their gateway, whose messages alone use their link; the AAA server behind it; and a separate dialogue.
fn ike_study(more: &str) -> String {
    format!(
        r#"
title = "Gateway"
question = "Is there an IKE_SA?"
[run]
duration = "30 s"
[hosts.ini]
count = 2
address = "192.0.2.10"
runs = "ike"
config = "client.toml"
[hosts.gw]
address = "192.0.2.1"
runs = "ike"
config = "gateway.toml"
[hosts.a]
[hosts.b]
[links.access]
between = ["ini", "gw"]
rate = "10 Mb/s"
delay = "10 ms"
[links.line]
between = ["a", "b"]
rate = "10 Mb/s"
delay = "10 ms"
[workload]
kind = "dialogue"
clients = "a"
server = "b"
transport = "udp"
rounds = [{{ request = "100 B", answer = "100 B" }}]
arrivals = {{ kind = "constant", interval = "1 s", count = 10 }}
{more}
"#
    )
}

const GATEWAY: &str = r#"[[connection]]
name = "site"
local_id = "gw.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
liveness = "0 s"
unique = false
childless = "force"
pools = ["inner"]
[[pool]]
name = "inner"
ranges = ["10.9.0.0/24"]
"#;

const CLIENT: &str = r#"[[connection]]
name = "home"
local_id = "ini.test"
remote_id = "gw.test"
local_auth = "psk"
remote_auth = "psk"
secret = "a shared secret"
remote_address = "192.0.2.1"
mobike = false
liveness = "0 s"
unique = false
address = true
start = true
"#;

/// Packets of the access link.
fn access_packets(metrics: &MetricMap) -> f64 {
    metric_value(metrics, "packets.access") * metric_value(metrics, "completed")
}

fn run_ike_study(gateway: &str, client: &str, more: &str) -> Result<MetricMap, String> {
    // Tests run in parallel, and each run has its own folder.
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let folder = TempStudyDir::new(&format!("ike-{}", RUNS.fetch_add(1, Ordering::Relaxed)));
    folder.write_file("gateway.toml", gateway);
    folder.write_file("client.toml", client);
    folder.write_file("study.toml", &ike_study(more));
    let plan = folder.open_study()?.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    let world =
        ScenarioRun::new(&plan.points[0].scenario, plan.points[0].replication_seed(0), &[], None).unwrap();
    Ok(world.run_to_end().unwrap().metrics.into_iter().collect())
}

#[test]
fn a_gateway_and_its_clients_run_by_their_very_files() {
    let metrics = run_ike_study(GATEWAY, CLIENT, "").unwrap();
    // Two exchanges for each client. The first request leaves at the start of the run, before counting. Without NAT
    // there are no keepalives.
    assert_eq!(access_packets(&metrics), 2.0 * 3.0, "{metrics:?}");
    assert_eq!(run_ike_study(GATEWAY, CLIENT, "").unwrap(), metrics, "the same rows again");
    // A client with another client's key is rejected, and tries again after each end: at 10 s and at 20 s.
    let wrong = CLIENT.replace("a shared secret", "another secret");
    let refused = run_ike_study(GATEWAY, &wrong, "").unwrap();
    assert_eq!(access_packets(&refused), 2.0 * 3.0 + 2.0 * 2.0 * 4.0, "{refused:?}");
    let faulty = run_ike_study(GATEWAY, &CLIENT.replace("mobike", "mobik"), "").unwrap_err();
    assert!(faulty.contains("client.toml:9:1: ") && faulty.contains("did you mean \"mobike\""), "{faulty}");
}

#[test]
fn dead_peer_detection_finds_a_failed_gateway_and_logs_in_again() {
    let outage = "[[outages]]\nhost = \"gw\"\nfrom = \"5 s\"\nuntil = \"8 s\"\n";
    let client = CLIENT
        .replace("liveness = \"0 s\"", "liveness = \"2 s\"")
        .replace("start = true", "start = true\nretry = \"1 s\"")
        + "[limits]\nretransmission = \"0.5 s\"\nretransmissions = 2\n";
    let without = run_ike_study(GATEWAY, &client, "").unwrap();
    let with = run_ike_study(GATEWAY, &client, outage).unwrap();
    assert_ne!(access_packets(&without), access_packets(&with));
    // An idle client sends a liveness check every 2 s.
    assert!(access_packets(&without) > 6.0 + 2.0 * 2.0 * 10.0, "{without:?}");
}
