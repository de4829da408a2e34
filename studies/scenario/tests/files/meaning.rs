//! Settings with another meaning than they seem to have are reported, together with all other faults.

use crate::faults::{RIGHT, faults_with_line};
use usher_scenario::Study;

#[test]
fn faults_of_file_axis_value_and_point_are_reported_together() {
    let text = RIGHT
        .replace("delay = \"10 ms\"", "dealy = \"10 ms\"")
        .replace("values = [\"0 %\", \"5 %\"]", "values = [\"0 %\", \"500 %\"]")
        .replace("transport = \"tcp\"", "transport = \"tcp\"\nstreams = 4")
        .replace("y = \"delay.mean\"", "y = \"delay.maen\"");
    let said = Study::parse("t", "t.toml", &text).unwrap_err().to_string();
    for expected in [
        "unknown key \"dealy\" in links.core",
        "links.core.loss: \"500 %\" is more than 100 %",
        "workload.streams: TCP and UDP have no streams",
        "there is no metric \"delay.maen\"",
    ] {
        assert!(said.contains(expected), "{expected} is not in\n{said}");
    }
    assert_eq!(said.lines().count(), 4, "{said}");
}

#[test]
fn what_means_something_else_than_it_says_is_a_fault() {
    let table = [
        // Metrics with a time in their name.
        ("y = \"delay.mean\"", "y = \"within(5s)\"", "\"within(5s)\" must be written \"within(5 s)\""),
        ("y = \"delay.mean\"", "y = \"within\"", "\"within\" lacks its time: write \"within(5 s)\""),
        (
            "duration = \"10 s\"",
            "duration = \"10 s\"\nmetrics = [\"within(5 s)\", \"delay.p98\"]",
            "t.toml:5:27: run.metrics[1]: there is no metric \"delay.p98\"; did you mean \"delay.p95\"?",
        ),
        // Limits.
        (
            "[[figures]]",
            "[[recommendations]]\ntitle = \"R\"\nchoose = \"loss\"\nmetric = \"delay.mean\"\n\
             limit = { metric = \"delay.p95\", most = \"5 %\" }\n[[figures]]",
            "t.toml:28:40: recommendations[0].limit.most: \"5 %\" is not a value in \"s\", the metric's unit",
        ),
        (
            "[[figures]]",
            "[[recommendations]]\ntitle = \"R\"\nchoose = \"loss\"\nmetric = \"delay.mean\"\n\
             limit = { metric = \"within(5 s)\", least = \"99 %\", most = \"90 %\" }\n[[figures]]",
            "recommendations[0].limit: no value is within the limit: least is above most",
        ),
        (
            "[[figures]]",
            "[[recommendations]]\ntitle = \"R\"\nchoose = \"loss\"\nmetric = \"delay.mean\"\n\
             limit = { metric = \"delay.p95\" }\n[[figures]]",
            "recommendations[0].limit: the limit has no bound: give most, least or both",
        ),
        // Sizes that vary.
        (
            "request = \"200 B\"",
            "request = { kind = \"uniform\", low = \"9 B\", high = \"3 B\" }",
            "workload.rounds[0].request.low: 9 B is above high, 3 B",
        ),
        (
            "request = \"200 B\"",
            "request = { kind = \"one-of\", sizes = [] }",
            "workload.rounds[0].request: expected at least one size of 1 B or more",
        ),
        (
            "request = \"200 B\"",
            "request = { kind = \"one-of\", sizes = [\"0 B\", \"3 B\"] }",
            "workload.rounds[0].request: 0 B to 3 B are not between 1 B and",
        ),
        // Settings that would have no effect.
        (
            "transport = \"tcp\"",
            "transport = \"tcp\"\nretransmission = \"rfc5080\"",
            "workload.retransmission: TCP and SCTP retransmit by themselves",
        ),
        (
            "transport = \"tcp\"",
            "transport = \"tcp\"\nstreams = 4",
            "workload.streams: TCP and UDP have no streams",
        ),
        (
            "transport = \"tcp\"",
            "transport = \"udp\"\nconnection = \"per-dialogue\"",
            "workload.connection: only TCP has a choice of connections",
        ),
        (
            "transport = \"tcp\"",
            "transport = \"udp\"\nretransmission = { kind = \"rfc5080\", jitter = \"100 %\" }",
            "workload.retransmission.jitter: must be below 100 %, so that no interval can be zero",
        ),
    ];
    for (line, other, expected) in table {
        let found = faults_with_line(line, other);
        assert!(found.contains(expected), "{other}\n  found    {found}\n  expected {expected}");
    }
}
