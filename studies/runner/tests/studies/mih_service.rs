//! MIH functions on simulated hosts: the service of a configuration, and its peer.

use crate::services::{TempStudyDir, metric_value};
use crate::{MetricMap, run_study};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, StudyMode};

/// Two nodes and their point of service, whose messages alone use their link, and a separate dialogue.
fn mih_service_study(node: &str, point: &str, more: &str) -> String {
    format!(
        r#"
title = "Functions"
question = "Do they know each other?"
[run]
duration = "30 s"
[hosts.mn]
count = 2
address = "192.0.2.10"
{node}
[hosts.pos]
address = "192.0.2.1"
{point}
[hosts.a]
[hosts.b]
[links.access]
between = ["mn", "pos"]
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

const POINT: &str = r#"id = "pos.example.org"
[listen]
udp = ["0.0.0.0:4551"]
tcp = ["0.0.0.0:4551"]
[[allow]]
prefix = "192.0.2.0/24"
rights = ["events"]
"#;

const NODE: &str = r#"id = "mn@example.org"
[listen]
udp = ["0.0.0.0:4551"]
tcp = ["0.0.0.0:4551"]
[[allow]]
prefix = "192.0.2.1"
[[peer]]
id = "pos.example.org"
address = "192.0.2.1"
register = true
subscribe = ["link-up", "link-down"]
"#;

/// Packets on the functions' link.
fn function_packets(metrics: &MetricMap) -> f64 {
    metric_value(metrics, "packets.access") * metric_value(metrics, "completed")
}

#[test]
fn functions_register_discover_and_subscribe_by_service_files() {
    let folder = TempStudyDir::new("mih");
    let runs = |file: &str| format!("runs = \"mih\"\nconfig = \"{file}\"");
    let told = |folder: &TempStudyDir, node: &str, point: &str, more: &str| {
        folder.write_file("node.toml", node);
        folder.write_file("point.toml", point);
        folder.write_file("study.toml", &mih_service_study(&runs("node.toml"), &runs("point.toml"), more));
        let plan = folder.open_study()?.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
        let world = ScenarioRun::new(&plan.points[0].scenario, plan.points[0].replication_seed(0), &[], None)
            .unwrap();
        let metrics: MetricMap = world.run_to_end().unwrap().metrics.into_iter().collect();
        Ok::<_, String>(metrics)
    };
    let metrics = told(&folder, NODE, POINT, "").unwrap();
    // For each node three transactions of three packets: request, response with acknowledgement, acknowledgement. The
    // first request leaves at the start of the run, before counting. The point verifies a node's address by two more
    // transactions.
    assert_eq!(function_packets(&metrics), 28.0, "{metrics:?}");
    assert_eq!(told(&folder, NODE, POINT, "").unwrap(), metrics, "the same rows again");
    // A node that the point ignores falls silent after its attempts.
    let deaf = told(&folder, NODE, &POINT.replace("192.0.2.0/24", "198.51.100.0/24"), "").unwrap();
    assert!(function_packets(&deaf) >= 4.0 && function_packets(&deaf) < 16.0, "{deaf:?}");
    // A point that fails forgets its peers; they register again.
    let outage = "[[outages]]\nhost = \"pos\"\nfrom = \"5 s\"\nuntil = \"6 s\"\n";
    let again = NODE.to_owned() + "[timers]\nrefresh = \"4 s\"\nretransmission = \"0.5 s\"\n";
    assert!(function_packets(&told(&folder, &again, POINT, outage).unwrap()) > 100.0);

    let wrong = told(&folder, &NODE.replace("subscribe", "subscribes"), POINT, "").unwrap_err();
    assert!(wrong.contains("node.toml:11:1: ") && wrong.contains("did you mean \"subscribe\""), "{wrong}");
}

#[test]
fn a_host_that_runs_none_has_no_port() {
    let metrics = run_study(&mih_service_study("", "", ""));
    assert_eq!(function_packets(&metrics), 0.0, "{metrics:?}");
}
