//! What the first document describes and does not measure: surges, connections, silly windows.

use super::*;

fn at(study: &str, axes: &[(&str, &str)], metrics: &[(&str, f64)]) -> Vec<Row> {
    metrics.iter().flat_map(|(metric, mean)| point(study, axes, metric, *mean, 0.0)).collect()
}

#[test]
fn avoidance_counts_under_a_surge_where_tcp_has_all_four_beside_other_protocols() {
    let with = |study: &str, axis: &str, values: &[&str]| {
        values.iter().flat_map(|v| point(study, &[(axis, v)], "delay.mean", 1.0, 0.0)).collect::<Vec<_>>()
    };
    let four = |axis: &str, study: &str, tcp: &str| {
        let named = ["none", "Nagle", "delayed ACK", "both"].map(|a| format!("{tcp}, {a}"));
        let mut values: Vec<&str> = named.iter().map(String::as_str).collect();
        values.push("RADIUS/UDP, every 1 s");
        with(study, axis, &values)
    };
    let many = four("protocol", "aaa-many-nas", "Diameter/TCP");
    let recovery = four("policy", "aaa-recovery", "Diameter/TCP, reconnect after 1 s");
    verdict(&[many.clone(), recovery].concat(), "aaa.surge", Reproduced, &[]);
    let three = with("aaa-recovery", "policy", &["TCP, none", "TCP, Nagle", "TCP, both"]);
    verdict(&[many, three].concat(), "aaa.surge", Partly, &["without avoidance as an axis: aaa-recovery"]);
}

#[test]
fn one_connection_is_told_beside_one_for_each_port() {
    let of = |connections: &str, loss: &str, packets, memory, delay, blocked| {
        let axes = [("loss", loss), ("connections", connections)];
        let metrics = [
            ("packets.core", packets),
            ("memory.server", memory),
            ("delay.mean", delay),
            ("tcp.blocked", blocked),
        ];
        at("aaa-connections", &axes, &metrics)
    };
    let rows = [
        of("one connection", "0 %", 4.0, 900.0, 0.1, 0.0),
        of("48 connections", "0 %", 5.0, 16_000.0, 0.1, 0.0),
        of("one connection", "10 %", 6.0, 2000.0, 0.4, 0.75),
        of("48 connections", "10 %", 7.0, 17_000.0, 0.5, 0.125),
    ]
    .concat();
    let said = [
        "packets of an authentication, 4 and 5 at 0 % loss, 6 and 7 at 10 % loss",
        "900 and 16000 at 0 % loss",
        "0.1 and 0.1 at 0 % loss, 0.4 and 0.5 at 10 % loss",
        "0 and 0 at 0 % loss, 0.75 and 0.125 at 10 % loss",
    ];
    verdict(&rows, "aaa.connections", Reproduced, &said);
    let without: Vec<Row> = rows.into_iter().filter(|r| &*r.metric != "memory.server").collect();
    assert!(one(&without, "aaa.connections").verdict >= NotComparable, "nothing to say of memory");
}

#[test]
fn one_byte_travels_in_forty_one_until_something_helps() {
    let of = |slow: &str, avoidance: &str, share: f64| {
        let axes = [("slow", slow), ("octets", "1 B"), ("avoidance", avoidance)];
        let row = |replication| Row {
            study: "aaa-sws".into(),
            point: Point::new(axes),
            replication,
            metric: "tcp.data-share".into(),
            value: share,
        };
        [row(0), row(1)]
    };
    let rows = |alone: f64, nagle: f64, delayed: f64| {
        let each = |slow| {
            [("none", alone), ("Nagle", nagle), ("delayed ACK", delayed), ("silly-window avoidance", 0.9)]
                .map(|(a, share)| of(slow, a, share))
                .concat()
        };
        [each("sender"), each("reader")].concat()
    };
    let one_in_41 = 1.0 / 41.0;
    let said = [
        "With a slow sender of one byte",
        "with Nagle 32.5 %",
        "with delayed ACK 83 %",
        "avoidance alone 90 %",
    ];
    let judged = verdict(&rows(one_in_41, 0.325, 0.83), "aaa.sws", Reproduced, &said);
    assert_eq!(judged.ours, Some(Value::Text("1 byte in 41 (sender), 1 byte in 41 (reader)".into())));
    verdict(&rows(one_in_41, one_in_41, 0.83), "aaa.sws", Partly, &["Nagle, sender: differs"]);
    verdict(&rows(0.05, 0.04, 0.04), "aaa.sws", Differs, &["1 in 41, sender: differs"]);
}
