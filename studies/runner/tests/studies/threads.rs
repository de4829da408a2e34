//! A run by two threads gives the same results as by one.

use usher_core::{Duration, Instant};
use usher_runner::world::{RunDivisionOutcome, ScenarioRun};
use usher_scenario::{PlanOverrides, Study, StudyMode};

/// Clients behind a router, with loss, background traffic and a server with a processor; their workload follows.
const NETWORK: &str = r#"
title = "test"
question = "?"
[run]
duration = "20 s"
warmup = "2 s"
drain = "10 s"
seed = 5
ip = "v4"
[hosts.client]
count = 12
[hosts.router]
[hosts.server]
cpu = { cores = 2, service = { SERVICE } }
[hosts.other]
[links.access]
between = ["client", "router"]
rate = "10 Mb/s"
delay = "1 ms"
jitter = "300 us"
loss = "2 %"
[links.shared]
between = ["router", "server"]
rate = "2 Mb/s"
delay = "7 ms"
queue = "20 packets"
[links.beside]
between = ["other", "router"]
rate = "10 Mb/s"
delay = "100 us"
[[background]]
from = "other"
to = "server"
kind = "poisson"
rate = "400 kb/s"
packet = "600 B"
"#;

const TCP: &str = r#"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
connection = "persistent"
rounds = [{ request = "200 B", answer = "3000 B" }]
arrivals = { kind = "poisson", rate = "20/s" }
"#;

const UDP: &str = r#"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "udp"
rounds = [{ request = "200 B", answer = { kind = "uniform", low = "100 B", high = "900 B" } }]
arrivals = { kind = "poisson", rate = "20/s", limit = 200 }
retransmission = { kind = "fixed", interval = "1 s", count = 4 }
"#;

const RADIUS: &str = r#"
[workload]
kind = "eap"
stations = "client"
nas = "client"
server = "server"
method = "eap-md5"
aaa = "radius"
wrong_credentials = "10 %"
arrivals = { kind = "poisson", rate = "20/s" }
"#;

const ANSWERS: &str = r#""dialogue.answer" = { kind = "exponential", mean = "2 ms" }"#;
const REQUESTS: &str = r#""radius.request" = "1 ms", "eap.md5" = { kind = "exponential", mean = "1 ms" }"#;

/// Asserts that one thread and more give the same results for a study's one point, and returns the division.
fn run_divided(text: &str) -> RunDivisionOutcome {
    let study = Study::parse("test", "test.toml", text).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = study
        .build_plan(StudyMode::Default, &PlanOverrides::default())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let [point] = &plan.points[..] else { panic!("{} points", plan.points.len()) };
    let by = |threads| {
        let (result, division) =
            ScenarioRun::run_with_up_to_threads(&point.scenario, point.replication_seed(0), threads, None)
                .unwrap();
        let metrics: Vec<(String, u64)> =
            result.metrics.into_iter().map(|(name, value)| (name, value.to_bits())).collect();
        assert!(result.packet_hops > 100 && metrics.len() > 10, "{metrics:?}");
        ((metrics, result.packet_hops), division)
    };
    let (one, alone) = by(1);
    assert_eq!(alone, RunDivisionOutcome::Undivided);
    let (two, division) = by(2);
    assert_eq!(one, two);
    assert_eq!(by(4), (one, division), "more than two are not used");
    division
}

fn network_with_service(service: &str) -> String {
    NETWORK.replace("SERVICE", service)
}

#[test]
fn dialogues_over_tcp_and_udp_are_divided() {
    for workload in [TCP, UDP] {
        assert_eq!(
            run_divided(&[&network_with_service(ANSWERS), workload].concat()),
            RunDivisionOutcome::Halves,
            "{workload}"
        );
    }
}

#[test]
fn authentications_by_radius_are_divided() {
    assert_eq!(run_divided(&[&network_with_service(REQUESTS), RADIUS].concat()), RunDivisionOutcome::Halves);
    // Stations on separate hosts are in their NAS's half.
    let behind = network_with_service(REQUESTS)
        + r#"
[hosts.station]
count = 12
[links.lan]
between = ["station", "client"]
rate = "100 Mb/s"
delay = "50 us"
"#;
    let workload = RADIUS.replace("stations = \"client\"", "stations = \"station\"");
    assert_eq!(run_divided(&[&behind[..], &workload].concat()), RunDivisionOutcome::Halves);
}

#[test]
fn what_shares_something_is_not_divided() {
    let scripted = TCP
        .replace("answer = \"3000 B\"", "answer = { kind = \"uniform\", low = \"100 B\", high = \"900 B\" }");
    let sctp = TCP.replace("transport = \"tcp\"\nconnection = \"persistent\"", "transport = \"sctp\"");
    for workload in [scripted, sctp] {
        assert_eq!(
            run_divided(&[network_with_service(ANSWERS), workload.clone()].concat()),
            RunDivisionOutcome::Undivided,
            "{workload}"
        );
    }
    let ticks = network_with_service(ANSWERS) + "[transport.tcp]\nrtt_tick = \"10 ms\"\n";
    assert_eq!(
        run_divided(&[&ticks, TCP].concat()),
        RunDivisionOutcome::Undivided,
        "its round trips have to do with initial sequence numbers"
    );
    let tls = RADIUS.replace("eap-md5", "eap-tls");
    assert_eq!(run_divided(&[network_with_service(REQUESTS), tls].concat()), RunDivisionOutcome::Undivided);
    let outage = "[[outages]]\nhost = \"router\"\nfrom = \"5 s\"\nuntil = \"6 s\"\n";
    assert_eq!(
        run_divided(&[&network_with_service(ANSWERS), outage, TCP].concat()),
        RunDivisionOutcome::Undivided
    );
    let near = ["1 ms", "7 ms", "100 us"].iter().fold(network_with_service(ANSWERS), |text, delay| {
        text.replace(&format!("\ndelay = \"{delay}\""), "\ndelay = \"0 s\"")
    });
    assert_eq!(run_divided(&[&near, TCP].concat()), RunDivisionOutcome::Undivided, "no link has a delay");
}

#[test]
fn an_order_that_two_threads_do_not_know_is_left_to_one() {
    // A request takes 2 ms to the server, which answers just when the next client sends its request. Answer and request
    // reach the router together 1 ms later.
    let even = NETWORK
        .replace(
            "rate = \"10 Mb/s\"\ndelay = \"1 ms\"\njitter = \"300 us\"\nloss = \"2 %\"",
            "delay = \"1 ms\"",
        )
        .replace("rate = \"2 Mb/s\"\ndelay = \"7 ms\"\nqueue = \"20 packets\"", "delay = \"1 ms\"")
        .replace("cpu = { cores = 2, service = { SERVICE } }\n", "");
    let steady = UDP.replace(
        "{ kind = \"poisson\", rate = \"20/s\", limit = 200 }",
        "{ kind = \"constant\", interval = \"100 ms\", stagger = \"2 ms\", start = \"1 s\" }",
    );
    let at = Instant::ZERO + Duration::from_millis(1003);
    assert_eq!(run_divided(&[even, steady].concat()), RunDivisionOutcome::Undecided(at));
}
