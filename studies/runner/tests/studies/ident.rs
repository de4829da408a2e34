//! IDENT on simulated hosts: the service of a configuration, queried for the owners of connections.

use crate::services::{TempStudyDir, metric_value};
use crate::{MetricMap, run_study};
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Study, StudyMode};

/// Two users on each of two hosts connect five times each, to a server that queries them.
fn ident_study(client: &str, link: &str) -> String {
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

/// The same keys in the study, for a host without other services.
fn inline_config(disclose: &str) -> String {
    let config = CONFIG.replace("[[asker]]", "[[hosts.client.config.asker]]").replace("user-name", disclose);
    format!("runs = \"ident\"\n[hosts.client.config]\n{config}")
}

fn dialogue_counts(metrics: &MetricMap) -> [f64; 3] {
    ["started", "completed", "failures"].map(|name| metric_value(metrics, name))
}

#[test]
fn the_service_answers_by_its_very_file() {
    let folder = TempStudyDir::new("ident");
    folder.write_file("ident.toml", CONFIG);
    folder.write_file("study.toml", &ident_study("runs = \"ident\"\nconfig = \"ident.toml\"", ""));
    let plan =
        folder.open_study().unwrap().build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    let world =
        ScenarioRun::new(&plan.points[0].scenario, plan.points[0].replication_seed(0), &[], None).unwrap();
    let metrics: MetricMap = world.run_to_end().unwrap().metrics.into_iter().collect();
    assert_eq!(dialogue_counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    assert_eq!(metric_value(&metrics, "ident.named"), 0.5, "eve does not want to be named");
    // A connection, and a query with its reply: two round trips of 20 ms.
    assert!((metric_value(&metrics, "delay.p50") - 0.04).abs() < 0.000_1, "{metrics:?}");
    assert_eq!(
        run_study(&ident_study(&inline_config("user-name"), "")),
        metrics,
        "a file says what the same keys say inline"
    );

    let said = |config: &str| {
        folder.write_file("ident.toml", config);
        folder.open_study().map(drop).unwrap_err()
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
        let metrics = run_study(&ident_study(&inline_config(disclose), ""));
        assert_eq!(dialogue_counts(&metrics), [20.0, 20.0, 0.0], "{disclose}: {metrics:?}");
        metric_value(&metrics, "ident.named")
    };
    assert_eq!(["uid", "hidden", "nothing"].map(named), [0.5, 0.0, 0.0]);
}

#[test]
fn a_host_without_the_service_refuses() {
    let metrics = run_study(&ident_study("", ""));
    assert_eq!(dialogue_counts(&metrics), [20.0, 0.0, 1.0], "{metrics:?}");
    assert!(!metrics.contains_key("ident.named"));
}

#[test]
fn a_connection_that_its_host_does_not_know_is_nobodys() {
    // The host loses its first connection between the handshake's end and the query.
    let outage = "[[outages]]\nhost = \"client\"\nfrom = \"25 ms\"\nuntil = \"35 ms\"\n";
    let config = inline_config("user-name").replace("hide = [\"eve\"]\n", "");
    let metrics = run_study(&(ident_study(&config, "") + outage));
    assert_eq!(dialogue_counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    assert_eq!(metric_value(&metrics, "ident.named"), 19.0 / 20.0);
}

#[test]
fn users_give_up_what_their_server_has_forgotten() {
    // In any state of a connection when the server's host fails, its user makes the next one 6 s later.
    for from in (1000..1040).step_by(5) {
        let outage = format!("[[outages]]\nhost = \"server\"\nfrom = \"{from} ms\"\nuntil = \"1200 ms\"\n");
        let closed = ident_study(&inline_config("user-name"), "").replace(
            "arrivals = { kind = \"constant\", interval = \"2 s\", stagger = \"100 ms\", count = 5 }",
            "patience = \"1 s\"\narrivals = { kind = \"closed\", pause = \"50 ms\" }",
        );
        let metrics = run_study(&(closed + &outage));
        let [started, completed, failures] = dialogue_counts(&metrics);
        // A connection takes 80 ms and its pause 50 ms: 154 for each of four users, except for seven seconds.
        assert!(started > 390.0 && completed >= started - 4.0, "{from} ms: {metrics:?}");
        assert!((failures - (started - completed) / started).abs() < 1e-9);
    }
    // A server that does not come back sends nothing, and its users' connections fail.
    let outage = "[[outages]]\nhost = \"server\"\nfrom = \"3 s\"\nuntil = \"1000 s\"\n";
    let metrics = run_study(&(ident_study(&inline_config("user-name"), "") + outage));
    assert_eq!(dialogue_counts(&metrics), [20.0, 8.0, 0.6], "{metrics:?}");
}

#[test]
fn users_of_a_host_that_is_off_do_not_connect() {
    let outage = "[[outages]]\nhost = \"client\"\nfrom = \"3 s\"\nuntil = \"6.5 s\"\n";
    // For each user the connections at 4 s and 6 s, with their staggers.
    let metrics = run_study(&(ident_study(&inline_config("user-name"), "") + outage));
    assert_eq!(dialogue_counts(&metrics), [12.0, 12.0, 0.0], "{metrics:?}");
}

#[test]
fn what_is_lost_is_sent_again_and_told_rightly() {
    let config = inline_config("user-name").replace("hide = [\"eve\"]\n", "");
    let metrics = run_study(&ident_study(&config, "loss = \"10 %\""));
    assert_eq!(metric_value(&metrics, "completed"), 20.0, "{metrics:?}");
    assert_eq!(metric_value(&metrics, "ident.named"), 1.0);
    assert!(
        metric_value(&metrics, "delay.max") > 1.0 && metric_value(&metrics, "tcp.retransmissions") > 0.1,
        "{metrics:?}"
    );
}

#[test]
fn a_processor_is_charged_for_queries_and_replies() {
    let cpu = "[hosts.client.cpu.service]\n\"ident.message\" = \"1 ms\"\n";
    let metrics = run_study(&ident_study(&format!("{}{cpu}", inline_config("user-name")), ""));
    assert!((metric_value(&metrics, "delay.p50") - 0.042).abs() < 0.000_1, "{metrics:?}");
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
    let metrics = run_study(&ident_study(&format!("{both}{config}"), ""));
    assert_eq!(dialogue_counts(&metrics), [20.0, 20.0, 0.0], "{metrics:?}");
    let text = ident_study(&both.replace("[hosts.client.config.ident]\n", ""), "");
    let missing = Study::parse("t", "t.toml", &text).unwrap_err().to_string();
    assert!(missing.contains("config.ident = \"ident.toml\""), "{missing}");
}
