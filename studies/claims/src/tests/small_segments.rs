//! Nagle's algorithm and delayed acknowledgement.

use super::*;

pub(super) fn nagle_rows(metric: &str, with: &[(&str, f64)], without: &[(&str, f64)]) -> Vec<ResultRow> {
    let with = curve_rows("aaa-nagle", "nodes", ("nagle", "with Nagle"), metric, with);
    [with, curve_rows("aaa-nagle", "nodes", ("nagle", "without Nagle"), metric, without)].concat()
}

#[test]
fn nagle_and_the_delay() {
    let at = ["1", "9", "37", "100"];
    let rows = |with: [f64; 4], without: f64| {
        let with: Vec<(&str, f64)> = at.into_iter().zip(with).collect();
        nagle_rows("delay.mean", &with, &at.map(|n| (n, without)))
    };
    let rising = rows([0.3, 0.4, 0.5, 0.6], 0.2);
    assert_verdict(
        &rising,
        "aaa.nagle.delay",
        Reproduced,
        &["3 rise significantly", "all 4 numbers of nodes"],
    );
    let falling = rows([0.6, 0.5, 0.4, 0.3], 0.2);
    let parts = "Part by part: rises with nodes: differs; lower without: reproduced.";
    assert_verdict(&falling, "aaa.nagle.delay", Partly, &["3 fall significantly", parts]);
    assert_verdict(
        &rows([0.6, 0.5, 0.4, 0.3], 0.7),
        "aaa.nagle.delay",
        Differs,
        &["but not at 1, 9, 37, 100"],
    );
}

#[test]
fn nagle_and_the_packets() {
    let rows = |nine, thirty_seven| {
        nagle_rows("packets.core", &[("9", nine), ("37", thirty_seven), ("50", 1.0)], &[("9", nine)])
    };
    let said = [
        "38.1 %",
        "published is 38 %: reproduced",
        "no avoidance are 0 % (",
        " more at 9. They are within 10 %",
    ];
    let judged = assert_verdict(&rows(21.0, 13.0), "aaa.nagle.segments", Reproduced, &said);
    let far = nagle_rows("packets.core", &[("9", 21.0), ("37", 13.0)], &[("9", 30.0)]);
    let read = "By the English text's \"not much greater\", all 1 numbers of nodes agree.";
    assert_verdict(
        &far,
        "aaa.nagle.segments",
        Differs,
        &["fewer at 9", "as without with few nodes: differs", read],
    );
    let more = nagle_rows("packets.core", &[("9", 21.0), ("37", 13.0)], &[("9", 15.0)]);
    assert_verdict(&more, "aaa.nagle.segments", Differs, &["not much greater\", 0 of 1"]);
    // A larger but uncertain difference counts neither way, and differing figures still decide the verdict.
    let wide = |nodes: &str, mean, own| {
        point_rows("aaa-nagle", &[("nodes", nodes), ("nagle", "without Nagle")], "packets.core", mean, own)
    };
    let of = |nine, thirty_seven| {
        curve_rows(
            "aaa-nagle",
            "nodes",
            ("nagle", "with Nagle"),
            "packets.core",
            &[("9", nine), ("37", thirty_seven)],
        )
    };
    let unsure = [of(21.0, 13.0), wide("9", 24.0, 2.0)].concat();
    assert_verdict(&unsure, "aaa.nagle.segments", Partly, &["as without with few nodes: not comparable"]);
    let unsure = [of(42.0, 13.0), wide("9", 48.0, 6.0)].concat();
    assert_verdict(&unsure, "aaa.nagle.segments", Differs, &["as without with few nodes: not comparable"]);
    assert_eq!(
        judged.published,
        ClaimValue::Named(vec![("nodes_9".into(), 21.0), ("nodes_37".into(), 13.0)])
    );
    let figure_5 = |value, nine, thirty_seven| {
        let points = [("9", nine), ("37", thirty_seven)];
        curve_rows("aaa-packets", "nodes", ("avoidance", value), "packets.core", &points)
    };
    let figure_5 = [figure_5("Nagle", 21.0, 13.0), figure_5("none", 21.5, 33.34)].concat();
    let said = [
        "In aaa-packets an authentication needs 21 packets",
        "Read as the saving compared with no avoidance, over all numbers of nodes, it is 38 %",
    ];
    assert_verdict(&figure_5, "aaa.nagle.segments", Reproduced, &said);
    assert_verdict(
        &rows(21.0, 16.0),
        "aaa.nagle.segments",
        Partly,
        &["23 % above the published 13", "at 37 nodes: partly"],
    );
    assert_verdict(&rows(21.0, 20.0), "aaa.nagle.segments", Differs, &["54 % above"]);
}

pub(super) fn ack_rows(
    study: &str,
    metric: &str,
    nodes: &[&str],
    immediate: &[f64],
    delayed: &[f64],
) -> Vec<ResultRow> {
    let points = |means: &[f64]| nodes.iter().copied().zip(means.iter().copied()).collect::<Vec<_>>();
    let (axis, at_once) =
        if study == "aaa-congestion" { ("avoidance", "none") } else { ("delack", "immediate ACK") };
    let immediate = curve_rows(study, "nodes", (axis, at_once), metric, &points(immediate));
    let delayed = points(delayed)
        .into_iter()
        .flat_map(|(n, mean)| point_rows(study, &[("nodes", n), (axis, "delayed ACK")], metric, mean, 0.002));
    [immediate, delayed.collect()].concat()
}

#[test]
fn delayed_acknowledgement_and_the_delay() {
    let rows = |delayed: [f64; 3]| {
        ack_rows("aaa-delack", "delay.mean", &["1", "50", "100"], &[1.0, 1.0, 1.0], &delayed)
    };
    assert_verdict(&rows([1.0, 1.01, 0.99]), "aaa.delack.delay", Reproduced, &["At all 3 numbers of nodes"]);
    assert_verdict(&rows([1.0, 1.01, 1.2]), "aaa.delack.delay", Partly, &["at 100 nodes: 20 %", "slower"]);
    assert_verdict(&rows([0.5, 0.6, 0.7]), "aaa.delack.delay", Differs, &["at 1 nodes: -50 %", "faster"]);
}

pub(super) fn packet_rows(delayed: f64) -> Vec<ResultRow> {
    let of = |value, mean| {
        curve_rows("aaa-packets", "nodes", ("avoidance", value), "packets.core", &[("1", mean), ("9", mean)])
    };
    [of("none", 20.0), of("Nagle", 12.4), of("delayed ACK", delayed)].concat()
}

/// Packets with data over each protocol without loss, and as many acknowledgements.
pub(super) fn with_data(messages: f64, over_tcp: f64) -> Vec<ResultRow> {
    let of = |protocol, metric, mean| {
        let axes = [("loss", "0 %"), ("protocol", protocol), ("method", "eap-md5")];
        point_rows("aaa-hol", &axes, metric, mean, 0.001)
    };
    [
        of(UDP, "packets.core", messages),
        of(TCP, "tcp.segments", 2.0 * over_tcp),
        of(TCP, "tcp.acks", over_tcp),
        of(SCTP, "sctp.packets", messages + 0.5),
        of(SCTP, "sctp.control", 0.5),
    ]
    .concat()
}

#[test]
fn as_many_messages_over_each_protocol() {
    let rows = |tcp| [figure_2(), with_data(4.0, tcp)].concat();
    assert_verdict(&rows(3.97), "aaa.messages", Reproduced, &["4 messages over each", "3.97 (3."]);
    // One message in ten with two segments is too large.
    assert_verdict(&rows(4.4), "aaa.messages", Differs, &["4.4 ("]);
    assert_verdict(&figure_2(), "aaa.messages", NotComparable, &["no packets.core"]);
}

/// Delays that avoidance shortens by these amounts with and without other traffic.
pub(super) fn saved_delay_rows(busy: f64, calm: f64) -> Vec<ResultRow> {
    let of = |study, saved: f64| {
        let each = ["none", "Nagle", "delayed ACK", "both"].into_iter().flat_map(move |value| {
            let delay = if value == "none" { 1.0 } else { 1.0 - saved };
            curve_rows(study, "nodes", ("avoidance", value), "delay.mean", &[("1", delay), ("9", delay)])
        });
        each.collect::<Vec<_>>()
    };
    [of("aaa-congestion", busy), of("aaa-packets", calm)].concat()
}

#[test]
fn avoidance_pays_more_under_congestion() {
    let said = [
        "at all 6 pairs of avoidance and number of nodes",
        "Nagle at 2 of 2 numbers of nodes (largest difference at 9 nodes: 0.1 s",
    ];
    assert_verdict(&saved_delay_rows(0.2, 0.1), "aaa.congestion.amplifies", Reproduced, &said);
    assert_verdict(&saved_delay_rows(0.1, 0.2), "aaa.congestion.amplifies", Differs, &["at 0 of 6"]);
    // Avoidance that slows less than without other traffic saves nothing.
    let harm = ["at 0 of 6", "At 6 others", "These do not count."];
    assert_verdict(&saved_delay_rows(-0.1, -0.3), "aaa.congestion.amplifies", Differs, &harm);
}

#[test]
fn delayed_acknowledgement_and_the_packets_in_each_reading() {
    let left =
        ["30 % (", "\"23 % fewer\": 70 % fewer", "200 % above the published 23 %: differs", "\"30 % fewer\""];
    assert_verdict(&packet_rows(6.0), "aaa.delack.packets", Reproduced, &left);
    let fewer =
        ["77 % (", "\"23 % fewer\": 23 % fewer", ": reproduced", "\"30 % fewer\": 23 % fewer", ": partly"];
    assert_verdict(&packet_rows(15.4), "aaa.delack.packets", Differs, &fewer);
    assert_verdict(&packet_rows(7.2), "aaa.delack.packets", Partly, &["20 % above the published 30 %"]);
}

#[test]
fn delayed_acknowledgement_under_congestion() {
    let nodes = ["1", "9", "17", "25", "37"];
    let rows = |delayed: [f64; 5]| ack_rows("aaa-congestion", "delay.mean", &nodes, &[1.0; 5], &delayed);
    let said =
        ["up to 17 nodes", "From 25 nodes on, delayed acknowledgement is significantly faster", "20 %"];
    let judged =
        assert_verdict(&rows([1.0, 1.0, 1.0, 0.8, 0.7]), "aaa.congestion.crossover", Reproduced, &said);
    assert_eq!((judged.low, judged.high), (Some(ClaimValue::Number(17.0)), Some(ClaimValue::Number(25.0))));
    assert_verdict(
        &rows([1.0, 1.0, 1.0, 1.0, 0.7]),
        "aaa.congestion.crossover",
        Differs,
        &["up to 25 nodes"],
    );
    let slower = ["stays faster", "At 1 of 5 numbers of nodes it is significantly slower"];
    assert_verdict(&rows([1.0, 1.0, 1.0, 0.8, 1.2]), "aaa.congestion.crossover", Differs, &slower);
    assert_verdict(
        &rows([0.9; 5]),
        "aaa.congestion.crossover",
        Differs,
        &["at every number of nodes (from 1 on)"],
    );
    let small = assert_verdict(
        &rows([0.99, 0.97, 0.96, 0.8, 0.7]),
        "aaa.congestion.crossover",
        Reproduced,
        &said[..1],
    );
    assert!(small.reason.contains("3.98 %") || small.reason.contains("4 % ("), "{}", small.reason);
    let wide = |n: &str, mean, own| {
        point_rows("aaa-congestion", &[("nodes", n), ("avoidance", "delayed ACK")], "delay.mean", mean, own)
    };
    let mut unsure = rows([1.0, 1.0, 1.0, 0.9, 0.7]);
    unsure.retain(|r| r.point.get("nodes") != Some("25") || r.point.get("avoidance") != Some("delayed ACK"));
    unsure.extend(wide("25", 0.9, 0.1));
    assert_verdict(
        &unsure,
        "aaa.congestion.crossover",
        NotComparable,
        &["at 25 nodes -10 %", "More replications"],
    );
    let near = ack_rows("aaa-congestion", "delay.mean", &["1", "14", "20"], &[1.0; 3], &[1.0, 1.0, 0.5]);
    assert_verdict(&near, "aaa.congestion.crossover", Partly, &["up to 14 nodes"]);
}

#[test]
fn packets_under_congestion() {
    let rows = |immediate: [f64; 3], delayed: [f64; 3]| {
        ack_rows("aaa-congestion", "packets.core", &["1", "17", "50"], &immediate, &delayed)
    };
    let flat = rows([20.0, 20.4, 19.8], [15.4, 15.6, 15.2]);
    assert_verdict(
        &flat,
        "aaa.congestion.segments",
        Reproduced,
        &["all 3 numbers of nodes within 5 %", "23.3 %"],
    );
    let half = rows([20.0, 20.4, 19.8], [30.0, 20.0, 10.0]);
    let parts = "constant with immediate ACK: reproduced; constant with delayed ACK: differs; fewer with delayed ACK: differs";
    let said = ["of it, the farthest 50 % off, at 1 nodes", parts];
    assert_verdict(&half, "aaa.congestion.segments", Differs, &said);
    let less = rows([20.0, 20.4, 19.8], [19.0, 19.0, 19.0]);
    assert_verdict(&less, "aaa.congestion.segments", Partly, &["below the published 23 %"]);
}

#[test]
fn the_average_is_of_the_three_savings() {
    let nagle = nagle_rows("packets.core", &[("9", 21.0), ("37", 16.8)], &[("9", 21.0)]);
    let rows = [figure_2(), nagle.clone(), packet_rows(15.4)].concat();
    let said = [
        "32.8 %",
        "37.5 % (delay, streams; published 37.5 %)",
        "38 % (packets, Nagle; 38 %)",
        "23 % (packets",
        "With the decrease of 20 % from 9 to 37 nodes in place of the 38 %, the mean is 26.8 %",
    ];
    assert_verdict(&rows, "aaa.average", Reproduced, &said);
    let less = [figure_2(), nagle.clone(), packet_rows(20.0)].concat();
    assert_verdict(&less, "aaa.average", Partly, &["25.2 %"]);
    let none =
        [hol_rows(TCP, &[("5 %", 1.0)]), hol_rows(SCTP, &[("5 %", 1.0)]), nagle, packet_rows(20.0)].concat();
    assert_verdict(&none, "aaa.average", Differs, &["0 % (delay"]);
    assert_verdict(
        &figure_2(),
        "aaa.average",
        NotRun,
        &["aaa-packets was not run: usher study run aaa-packets"],
    );
}
