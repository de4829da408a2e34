//! MIH functions on simulated hosts: the service of a configuration, and its peer.

use crate::services::{Folder, at};
use crate::{Metrics, run};
use usher_runner::world::World;
use usher_scenario::{Mode, Overrides};

/// Two nodes and their point of service, whose messages are all that their link has; beside them a dialogue.
fn study(node: &str, point: &str, more: &str) -> String {
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
may = ["events"]
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

/// Packets of the functions' link.
fn packets(metrics: &Metrics) -> f64 {
    at(metrics, "packets.access") * at(metrics, "completed")
}

#[test]
fn functions_register_discover_and_subscribe_by_their_very_files() {
    let folder = Folder::new("mih");
    let runs = |file: &str| format!("runs = \"mih\"\nconfig = \"{file}\"");
    let told = |folder: &Folder, node: &str, point: &str, more: &str| {
        folder.write("node.toml", node);
        folder.write("point.toml", point);
        folder.write("study.toml", &study(&runs("node.toml"), &runs("point.toml"), more));
        let plan = folder.open()?.plan(Mode::Default, &Overrides::default()).unwrap();
        let world = World::new(&plan.points[0].scenario, plan.points[0].seed(0), &[], None).unwrap();
        let metrics: Metrics = world.run().unwrap().metrics.into_iter().collect();
        Ok::<_, String>(metrics)
    };
    let metrics = told(&folder, NODE, POINT, "").unwrap();
    // Of each node three transactions of three packets: request, response that acknowledges it, acknowledgement. The first
    // request leaves as the run begins, before anything is counted. Before the point believes a node's address it asks there twice, which
    // are two transactions more.
    assert_eq!(packets(&metrics), 28.0, "{metrics:?}");
    assert_eq!(told(&folder, NODE, POINT, "").unwrap(), metrics, "the same rows again");
    // A node that the point does not hear is silent after its tries.
    let deaf = told(&folder, NODE, &POINT.replace("192.0.2.0/24", "198.51.100.0/24"), "").unwrap();
    assert!(packets(&deaf) >= 4.0 && packets(&deaf) < 16.0, "{deaf:?}");
    // A point that fails knows nobody when it is back; its peers come again.
    let outage = "[[outages]]\nhost = \"pos\"\nfrom = \"5 s\"\nuntil = \"6 s\"\n";
    let again = NODE.to_owned() + "[timers]\nrefresh = \"4 s\"\nretransmission = \"0.5 s\"\n";
    assert!(packets(&told(&folder, &again, POINT, outage).unwrap()) > 100.0);

    let wrong = told(&folder, &NODE.replace("subscribe", "subscribes"), POINT, "").unwrap_err();
    assert!(wrong.contains("node.toml:11:1: ") && wrong.contains("did you mean \"subscribe\""), "{wrong}");
}

#[test]
fn a_host_that_runs_none_has_no_port() {
    let metrics = run(&study("", "", ""));
    assert_eq!(packets(&metrics), 0.0, "{metrics:?}");
}
