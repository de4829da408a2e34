//! The simulated access concentrator and hosts with sessions: admission, carried packets, their cost, and accounting to
//! an AAA server.

use crate::services::metric_value;
use crate::{MetricMap, run_study};

/// Hosts behind a concentrator with its own users, and a server beyond it that sends files.
fn pppoe_study(concentrator: &str, session: &str, file: &str, more: &str) -> String {
    format!(
        r#"
title = "Sessions"
question = "Do they hold?"
[run]
duration = "30 s"
drain = "60 s"
[run.replications]
metric = "delay.mean.session"
[hosts.client]
count = 3
[hosts.ac]
runs = "concentrator"
{concentrator}
[hosts.ac.config.listen]
interfaces = ["lan"]
[hosts.ac.config.service]
address = "10.255.0.1"
pools = ["all"]
[hosts.ac.config.authentication]
protocols = ["eap", "mschapv2", "chap", "pap"]
[[hosts.ac.config.pool]]
name = "all"
ranges = ["10.200.0.0/24"]
[hosts.server]
[links.access]
between = ["client", "ac"]
rate = "100 Mb/s"
delay = "1 ms"
mtu = "1492 B"
[links.upstream]
between = ["ac", "server"]
rate = "100 Mb/s"
delay = "1 ms"
mtu = "1492 B"
[workloads.session]
kind = "pppoe"
stations = "client"
concentrator = "ac"
user = "ann"
password = "a long password"
arrivals = {{ kind = "constant", interval = "1000 s", start = "1 s", count = 1 }}
{session}
[workloads.file]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
connection = "per-dialogue"
rounds = [{{ request = "100 B", answer = "1 MB" }}]
arrivals = {{ kind = "constant", interval = "1000 s", start = "5 s", count = 1 }}
{file}
{more}
"#
    )
}

const ANN: &str = "[[hosts.ac.config.user]]\nname = \"ann\"\npassword = \"a long password\"\n";

fn run_pppoe_study(session: &str, more: &str) -> MetricMap {
    run_study(&pppoe_study("", session, "", &format!("{ANN}{more}")))
}

#[test]
fn each_protocol_lets_hosts_in_and_files_go_by_their_sessions() {
    for method in ["pap", "chap", "mschapv2", "eap-md5", "eap-mschapv2"] {
        let metrics = run_pppoe_study(&format!("method = \"{method}\""), "");
        assert_eq!(
            (metric_value(&metrics, "completed.session"), metric_value(&metrics, "failures.session")),
            (3.0, 0.0),
            "{method}"
        );
        assert_eq!(
            (metric_value(&metrics, "completed.file"), metric_value(&metrics, "failures.file")),
            (3.0, 0.0),
            "{method}"
        );
        // PADI and PADO, PADR and PADS, LCP, authentication, IPCP: at least six round trips of two milliseconds.
        let delay = metric_value(&metrics, "delay.mean.session");
        assert!((0.012..0.1).contains(&delay), "{method}: {delay} s");
    }
    assert_eq!(run_pppoe_study("", ""), run_pppoe_study("", ""), "the same rows again");
}

#[test]
fn nothing_passes_for_a_host_that_was_not_let_in() {
    let wrong = pppoe_study("", "", "give_up = \"20 s\"", ANN).replacen(
        "password = \"a long password\"",
        "password = \"another\"",
        1,
    );
    let metrics = run_study(&wrong);
    assert_eq!(
        (metric_value(&metrics, "completed.session"), metric_value(&metrics, "completed.file")),
        (0.0, 0.0),
        "{metrics:?}"
    );
    assert_eq!(metric_value(&metrics, "failures.file"), 1.0);
    // Not earlier either: files requested at once wait until their hosts have sessions.
    let early = pppoe_study("", "", "", ANN).replace("start = \"5 s\"", "start = \"0 s\"");
    let metrics = run_study(&early);
    assert_eq!(metric_value(&metrics, "completed.file"), 3.0);
    // Connections are retried after a second, when sessions begin.
    assert!(metric_value(&metrics, "delay.mean.file") > 1.0, "{metrics:?}");
}

#[test]
fn session_packets_are_eight_octets_longer_than_plain_ones() {
    // Total octets on the access links.
    let bytes = |text: &str| {
        let metrics = run_study(text);
        let sessions = metrics.get("completed.session").copied().unwrap_or_default();
        metric_value(&metrics, "bytes.access") * (sessions + metric_value(&metrics, "completed.file"))
    };
    let plain = pppoe_study("", "used = false", "", ANN);
    let framed = plain.replacen("mtu = \"1492 B\"", "mtu = \"1492 B\"\nframing = \"pppoe\"", 1);
    let (within, plain, framed) = (bytes(&pppoe_study("", "", "", ANN)), bytes(&plain), bytes(&framed));
    assert!(framed > plain, "26 octets a packet: {framed} and {plain}");
    let more = within - framed;
    assert!(
        (1000.0..40_000.0).contains(&more),
        "what sets sessions up, and keeps them, comes on top: {more}"
    );
}

#[test]
fn the_processor_is_charged_for_each_packet_and_bounds_the_rate() {
    let cpu = |to: &str| {
        format!("cpu = {{ service = {{ \"pppoe.to_host\" = \"{to}\", \"pppoe.from_host\" = \"10 us\" }} }}")
    };
    let slow = run_study(&pppoe_study(&cpu("1 ms"), "", "", ANN));
    let fast = run_study(&pppoe_study(&cpu("10 us"), "", "", ANN));
    // Three files of a megabyte are 2067 packets of 1452 octets, which take a processor of 1 ms each 2.07 s.
    let longest = metric_value(&slow, "delay.max.file");
    assert!((2.06..4.0).contains(&longest), "{longest} s");
    assert!(metric_value(&fast, "delay.max.file") < 0.5, "{fast:?}");
    assert!(metric_value(&slow, "busy.ac") > 10.0 * metric_value(&fast, "busy.ac"));
}

/// A host is admitted when its session-log record is durable.
#[test]
fn a_session_waits_for_its_line_of_the_log() {
    let log = |time: &str| {
        let cpu = format!("cpu = {{ service = {{ \"pppoe.log\" = \"{time}\" }} }}");
        let tracking = format!("{ANN}[hosts.ac.config.tracking]\nfolder = \"log\"\n");
        metric_value(&run_study(&pppoe_study(&cpu, "", "", &tracking)), "delay.mean.session")
    };
    let (slow, fast) = (log("200 ms"), log("1 us"));
    assert!((0.199..0.5).contains(&(slow - fast)), "{slow} s, {fast} s");
}

#[test]
fn a_router_is_charged_too() {
    let text = pppoe_study("", "used = false", "", ANN).replace(
        "[hosts.server]",
        "[hosts.router]\ncpu = { service = { \"forward.packet\" = \"1 ms\" } }\n[hosts.server]",
    );
    let text = text.replace(
        "[links.upstream]\nbetween = [\"ac\", \"server\"]",
        "[links.last]\nbetween = [\"router\", \"server\"]\nmtu = \"1492 B\"\n[links.upstream]\nbetween = [\"ac\", \"router\"]",
    );
    let metrics = run_study(&text);
    assert_eq!(metric_value(&metrics, "completed.file"), 3.0);
    assert!(
        metric_value(&metrics, "delay.max.file") > 2.1 && metric_value(&metrics, "busy.router") > 0.01,
        "{metrics:?}"
    );
}

#[test]
fn rates_of_users_hold() {
    let rate = "[[hosts.ac.config.rate]]\nname = \"default\"\ndown = \"4 Mb/s\"\n";
    let limited = run_pppoe_study("", rate);
    // A megabyte at 4 Mb/s takes two seconds. An eighth of it may come as a burst, and dropped packets are
    // retransmitted.
    let (mean, free) = (
        metric_value(&limited, "delay.mean.file"),
        metric_value(&run_pppoe_study("", ""), "delay.mean.file"),
    );
    assert!(mean > 1.6 && free < 0.6, "{mean} s and {free} s");
}

#[test]
fn an_aaa_server_judges_and_a_power_cut_brings_all_back() {
    let aaa = r#"
[hosts.ac.config.aaa]
nas_identifier = "ac"
accounting = true
[[hosts.ac.config.aaa.radius]]
address = "192.0.2.9:1812"
secret = "a shared secret of the study"
[hosts.aaa]
address = "192.0.2.9"
runs = "aaa"
[hosts.aaa.config]
listen = { auth = ["0.0.0.0:1812"], acct = ["0.0.0.0:1813"] }
[[hosts.aaa.config.client]]
name = "concentrator"
prefix = "192.0.2.5/32"
secret = "a shared secret of the study"
[links.core]
between = ["ac", "aaa"]
rate = "1 Gb/s"
delay = "5 ms"
mtu = "1492 B"
"#;
    let text = pppoe_study("address = \"192.0.2.5\"", "keepalive = \"2 s\"", "", aaa);
    let metrics = run_study(&text);
    assert_eq!(
        (metric_value(&metrics, "completed.session"), metric_value(&metrics, "completed.file")),
        (3.0, 3.0),
        "{metrics:?}"
    );
    assert!(metric_value(&metrics, "packets.core") > 0.0);
    // The server's answer takes ten milliseconds more than the concentrator's own check.
    assert!(
        metric_value(&metrics, "delay.mean.session")
            > metric_value(&run_pppoe_study("", ""), "delay.mean.session") + 0.009
    );
    let outage = "[[outages]]\nhost = \"client\"\nfrom = \"10 s\"\nuntil = \"12 s\"\n";
    let metrics = run_study(&format!("{text}{outage}"));
    assert_eq!(
        (metric_value(&metrics, "completed.session"), metric_value(&metrics, "failures.session")),
        (6.0, 0.0),
        "all are back: {metrics:?}"
    );
}

#[test]
fn stations_of_an_80211_cell_have_sessions_too() {
    let text = pppoe_study("", "method = \"eap-md5\"", "", ANN).replace(
        "[links.access]\nbetween = [\"client\", \"ac\"]\nrate = \"100 Mb/s\"\ndelay = \"1 ms\"\n",
        "[bss.access]\naccess_point = \"ac\"\nstations = \"client\"\n",
    );
    let metrics = run_study(&text);
    assert_eq!(
        (metric_value(&metrics, "completed.session"), metric_value(&metrics, "completed.file")),
        (3.0, 3.0),
        "{metrics:?}"
    );
}

#[test]
fn what_does_not_fit_is_said_with_its_line() {
    let wrong = |text: &str| {
        usher_scenario::Study::parse("test", "test.toml", text)
            .err()
            .map(|faults| faults.to_string())
            .unwrap_or_default()
    };
    let long = pppoe_study("", "", "", ANN).replacen("mtu = \"1492 B\"", "mtu = \"1500 B\"", 1);
    assert!(wrong(&long).contains("write mtu = \"1492 B\""), "{}", wrong(&long));
    let nobody = pppoe_study("", "", "", ANN).replace("runs = \"concentrator\"", "");
    assert!(wrong(&nobody).contains("concentrator"), "{}", wrong(&nobody));
    let elsewhere =
        pppoe_study("", "concentrator = \"server\"", "", ANN).replacen("concentrator = \"ac\"\n", "", 1);
    assert!(wrong(&elsewhere).contains("must lead to \"server\""), "{}", wrong(&elsewhere));
}
