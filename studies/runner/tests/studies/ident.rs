//! IDENT on simulated hosts: the service of a configuration, asked whose connections are.

use crate::services::{Folder, at};
use crate::{Metrics, run};
use usher_runner::world::World;
use usher_scenario::{Mode, Overrides, Study};

/// Two users on each of two hosts connect five times each, to a server that asks.
fn study(client: &str, link: &str) -> String {
    format!(
        r#"
title = "Ident"
question = "Whose is it?"
[run]
duration = "20 s"
[hosts.client]
count = 2
address = "192.0.2.10"
{client}
[hosts.server]
address = "192.0.2.1"
[links.core]
between = ["client", "server"]
rate = "100 Mb/s"
delay = "10 ms"
{link}
[workload]
kind = "ident"
clients = "client"
server = "server"
users = ["ann", "eve"]
arrivals = {{ kind = "constant", interval = "2 s", stagger = "100 ms", count = 5 }}
"#
    )
}

const CONFIG: &str = r#"listen = ["0.0.0.0:113"]
hide = ["eve"]
[[asker]]
prefix = "192.0.2.1"
disclose = "user-name"
"#;

/// The same keys in the study, for a host that runs nothing else.
fn inline(disclose: &str) -> String {
    let config = CONFIG.replace("[[asker]]", "[[hosts.client.config.asker]]").replace("user-name", disclose);
    format!("runs = \"ident\"\n[hosts.client.config]\n{config}")
}

fn counts(metrics: &Metrics) -> [f64; 3] {
    ["started", "completed", "failures"].map(|name| at(metrics, name))
}

#[test]
fn the_service_answers_by_its_very_file() {
    let folder = Folder::new("ident");
    folder.write("ident.toml", CONFIG);
    folder.write("study.toml", &study("runs = \"ident\"\nconfig = \"ident.toml\"", ""));
    let plan = folder.open().unwrap().plan(Mode::Default, &Overrides::default()).unwrap();
    let world = World::new(&plan.points[0].scenario, plan.points[0].seed(0), &[], None).unwrap();
    let metrics: Metrics = world.run().unwrap().metrics.into_iter().collect();
    assert_eq!(counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    assert_eq!(at(&metrics, "ident.named"), 0.5, "eve does not want to be named");
    // A connection, and a query with its reply: two round trips of 20 ms.
    assert!((at(&metrics, "delay.p50") - 0.04).abs() < 0.000_1, "{metrics:?}");
    assert_eq!(run(&study(&inline("user-name"), "")), metrics, "a file says what the same keys say inline");

    let said = |config: &str| {
        folder.write("ident.toml", config);
        folder.open().map(drop).unwrap_err()
    };
    let wrong = said(&CONFIG.replace("hide", "hied"));
    assert!(wrong.contains("ident.toml:2:1: ") && wrong.contains("did you mean \"hide\""), "{wrong}");
    let deaf = said(&CONFIG.replace("0.0.0.0:113", "127.0.0.1:113"));
    assert!(deaf.contains("study.toml:6:8: ") && deaf.contains("listen = [\"0.0.0.0:113\"]"), "{deaf}");
    let stranger = said(&CONFIG.replace("192.0.2.1", "198.51.100.1"));
    assert!(stranger.contains("no [[asker]]") && stranger.contains("192.0.2.1"), "{stranger}");
}

#[test]
fn what_is_disclosed_is_as_the_configuration_says() {
    let named = |disclose| {
        let metrics = run(&study(&inline(disclose), ""));
        assert_eq!(counts(&metrics), [20.0, 20.0, 0.0], "{disclose}: {metrics:?}");
        at(&metrics, "ident.named")
    };
    assert_eq!(["uid", "hidden", "nothing"].map(named), [0.5, 0.0, 0.0]);
}

#[test]
fn a_host_without_the_service_refuses() {
    let metrics = run(&study("", ""));
    assert_eq!(counts(&metrics), [20.0, 0.0, 1.0], "{metrics:?}");
    assert!(!metrics.contains_key("ident.named"));
}

#[test]
fn a_connection_that_its_host_does_not_know_is_nobodys() {
    // The host loses its first connection between the handshake's end and the question.
    let outage = "[[outages]]\nhost = \"client\"\nfrom = \"25 ms\"\nuntil = \"35 ms\"\n";
    let config = inline("user-name").replace("hide = [\"eve\"]\n", "");
    let metrics = run(&(study(&config, "") + outage));
    assert_eq!(counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    assert_eq!(at(&metrics, "ident.named"), 19.0 / 20.0);
}

#[test]
fn users_give_up_what_their_server_has_forgotten() {
    // Whatever a connection was at when the server's host went off, its user is at the next one 6 s later.
    for from in (1000..1040).step_by(5) {
        let outage = format!("[[outages]]\nhost = \"server\"\nfrom = \"{from} ms\"\nuntil = \"1200 ms\"\n");
        let closed = study(&inline("user-name"), "").replace(
            "arrivals = { kind = \"constant\", interval = \"2 s\", stagger = \"100 ms\", count = 5 }",
            "patience = \"1 s\"\narrivals = { kind = \"closed\", pause = \"50 ms\" }",
        );
        let metrics = run(&(closed + &outage));
        let [started, completed, failures] = counts(&metrics);
        // A connection takes 80 ms and its pause 50 ms: 154 of each of four users, but for those of seven seconds.
        assert!(started > 390.0 && completed >= started - 4.0, "{from} ms: {metrics:?}");
        assert!((failures - (started - completed) / started).abs() < 1e-9);
    }
    // Of a server that does not come back nothing is heard, and what is asked of it fails.
    let outage = "[[outages]]\nhost = \"server\"\nfrom = \"3 s\"\nuntil = \"1000 s\"\n";
    let metrics = run(&(study(&inline("user-name"), "") + outage));
    assert_eq!(counts(&metrics), [20.0, 8.0, 0.6], "{metrics:?}");
}

#[test]
fn users_of_a_host_that_is_off_do_not_connect() {
    let outage = "[[outages]]\nhost = \"client\"\nfrom = \"3 s\"\nuntil = \"6.5 s\"\n";
    // Of each user the connections of 4 s and of 6 s, with their staggers.
    let metrics = run(&(study(&inline("user-name"), "") + outage));
    assert_eq!(counts(&metrics), [12.0, 12.0, 0.0], "{metrics:?}");
}

#[test]
fn what_is_lost_is_sent_again_and_told_rightly() {
    let config = inline("user-name").replace("hide = [\"eve\"]\n", "");
    let metrics = run(&study(&config, "loss = \"10 %\""));
    assert_eq!(at(&metrics, "completed"), 20.0, "{metrics:?}");
    assert_eq!(at(&metrics, "ident.named"), 1.0);
    assert!(at(&metrics, "delay.max") > 1.0 && at(&metrics, "tcp.retransmissions") > 0.1, "{metrics:?}");
}

#[test]
fn a_processor_is_charged_for_queries_and_replies() {
    let cpu = "[hosts.client.cpu.service]\n\"ident.message\" = \"1 ms\"\n";
    let metrics = run(&study(&format!("{}{cpu}", inline("user-name")), ""));
    assert!((at(&metrics, "delay.p50") - 0.042).abs() < 0.000_1, "{metrics:?}");
}

#[test]
fn a_host_runs_two_services_of_one_file_each() {
    let both = r#"
runs = ["aaa", "ident"]
[hosts.client.config.aaa]
reject_delay = "0 s"
methods = { order = ["eap-md5"] }
[[hosts.client.config.aaa.client]]
name = "switches"
prefix = "192.0.2.0/24"
secret = "a secret of 23 octets.."
[hosts.client.config.ident]
"#;
    let config = CONFIG.replace("[[asker]]", "[[hosts.client.config.ident.asker]]");
    let metrics = run(&study(&format!("{both}{config}"), ""));
    assert_eq!(counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    let text = study(&both.replace("[hosts.client.config.ident]\n", ""), "");
    let missing = Study::parse("t", "t.toml", &text).unwrap_err().to_string();
    assert!(missing.contains("config.ident = \"ident.toml\""), "{missing}");
}
