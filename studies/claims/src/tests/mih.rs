//! The claims on MIH messages, from synthetic rows.

use super::*;
use crate::mih::open_questions::QUESTIONS;

const LOSSES: [&str; 5] = ["0 %", "10 %", "20 %", "30 %", "50 %"];
const MESSAGES: [&str; 2] = ["indication", "request"];
const RTOS: [&str; 5] = ["0.2 s", "0.3 s", "0.5 s", "0.75 s", "1 s"];

fn parse_number(text: &str) -> f64 {
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Rows of `mih-udp`: a metric by message, acknowledgement, timeout in seconds and loss as a share.
fn udp_rows(metric: &str, value: impl Fn(&str, bool, f64, f64) -> f64) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (message, ack) in MESSAGES.into_iter().flat_map(|m| ["without", "with"].map(|a| (m, a))) {
        for (timeout, loss) in ["0.1 s", "0.5 s"].into_iter().flat_map(|t| LOSSES.map(|l| (t, l))) {
            let axes = [("message", message), ("ack", ack), ("timeout", timeout), ("loss", loss)];
            let mean = value(message, ack == "with", parse_number(timeout), parse_number(loss) / 100.0);
            rows.extend(
                point_rows("mih-udp", &axes, metric, mean, mean.abs() * 1e-4)
                    .into_iter()
                    .map(|r| without_shared(r, mean)),
            );
        }
    }
    rows
}

/// A row without the common part of replications, which is too large for shares and small delays.
fn without_shared(row: ResultRow, mean: f64) -> ResultRow {
    let shared = [-0.02, 0.0, 0.02][row.replication as usize];
    ResultRow { value: mean + (row.value - mean - shared), ..row }
}

/// Rows of `mih-tcp`, by maximum RTO.
fn tcp_rows(metric: &str, value: impl Fn(&str, bool, f64, f64) -> f64) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (message, ack) in MESSAGES.into_iter().flat_map(|m| ["without", "with"].map(|a| (m, a))) {
        for (rto, loss) in RTOS.into_iter().flat_map(|t| LOSSES.map(|l| (t, l))) {
            let axes = [("message", message), ("ack", ack), ("max-rto", rto), ("loss", loss)];
            let mean = value(message, ack == "with", parse_number(rto), parse_number(loss) / 100.0);
            rows.extend(
                point_rows("mih-tcp", &axes, metric, mean, 0.0)
                    .into_iter()
                    .map(|r| without_shared(r, mean))
                    .map(|r| ResultRow {
                        // A small part of its own, so that a difference has an interval.
                        value: r.value + 1e-5 * f64::from(r.replication),
                        ..r
                    }),
            );
        }
    }
    rows
}

#[test]
fn udp_delays() {
    let rows = |i: f64, r: f64| udp_rows("delay.mean", |m, _, _, _| if m == "indication" { i } else { r });
    let said = ["Without loss an indication takes 20", "without loss a request takes 241", "Over all losses"];
    assert_verdict(&rows(0.0201, 0.2405), "mih.udp.delay", Reproduced, &said);
    assert_verdict(&rows(0.024, 0.24), "mih.udp.delay", Partly, &["20 % above the published 20 ms"]);
    assert_verdict(
        &rows(0.04, 0.24),
        "mih.udp.delay",
        Differs,
        &["indication: differs; request: reproduced"],
    );
    assert_verdict(&rows(0.02, 0.24)[..6], "mih.udp.delay", NotRun, &["usher study run mih-udp"]);
}

#[test]
fn added_delay_in_proportion() {
    let rows = |power: f64| udp_rows("delay.mean", |_, _, t, p| 0.02 + p * t.powf(power));
    assert_verdict(
        &rows(1.0),
        "mih.udp.delay-ack",
        Reproduced,
        &["at all 4 losses", "compared with the timeout (0.1 s, 0.5 s)"],
    );
    assert_verdict(&rows(0.0), "mih.udp.delay-ack", Differs, &["0 of 4 losses"]);
    let half = udp_rows("delay.mean", |m, _, t, p| 0.02 + p * if m == "request" { 1.0 } else { t });
    assert_verdict(&half, "mih.udp.delay-ack", Partly, &["indication: reproduced; request: differs"]);
    let mut single = rows(1.0);
    single.retain(|r| r.point.get("timeout") == Some("0.1 s"));
    assert_verdict(&single, "mih.udp.delay-ack", NotComparable, &["two timeouts"]);
}

fn success_rows(of: impl Fn(&str, bool, f64, f64) -> f64) -> Vec<ResultRow> {
    let mut rows = udp_rows("success", of);
    // Shares of exactly the mean: the error follows from the number of transactions.
    for three in rows.chunks_mut(3) {
        let mean = three.iter().map(|r| r.value).sum::<f64>() / 3.0;
        three.iter_mut().for_each(|r| r.value = mean);
    }
    [rows, udp_rows("started", |_, _, _, _| 8000.0)].concat()
}

#[test]
fn formulas_for_success() {
    let bound = |m: &str, ack: bool, p: f64| {
        let once: f64 = if ack { 1.0 - p * p * p } else { 1.0 - p };
        if m == "request" { once * once } else { once }
    };
    let as_stated = success_rows(|m, ack, _, p| bound(m, ack, p));
    assert_verdict(&as_stated, "mih.udp.success", Reproduced, &["(1 - p^3)^2: at all 5 losses"]);
    // The closed form for requests with acknowledgement at 0.1 s and 50 %.
    let ours = success_rows(|m, ack, _, p| match (m, ack) {
        ("request", true) => 1.0 - p * 0.836,
        _ => bound(m, ack, p),
    });
    let said =
        ["(1 - p^3)^2: at 1 of 5 losses", "The exact probability by that rule", "at 50 % loss with 0.1 s"];
    let judged = assert_verdict(&ours, "mih.udp.success", Partly, &said);
    assert_eq!(judged.ours, Some(ClaimValue::Text("3 of 4 formulas hold".into())));
    assert_verdict(
        &success_rows(|_, _, _, p| 1.0 - 0.9 * p),
        "mih.udp.success",
        Differs,
        &["1 - p: at 1 of 5 losses"],
    );
}

#[test]
fn overhead_over_udp() {
    let rows = |none: f64, more: f64| {
        udp_rows("mih.overhead", |m, _, _, p| none + p * if m == "request" { 2.0 } else { 2.0 + more })
    };
    assert_verdict(
        &rows(2.0, 0.5),
        "mih.udp.overhead",
        Reproduced,
        &["at all 4 losses", "the difference is 0.25 (0.25 to 0.25) packets"],
    );
    assert_verdict(&rows(2.0, -0.5), "mih.udp.overhead", Partly, &["requests cost less: differs"]);
    assert_verdict(&rows(3.0, -0.5), "mih.udp.overhead", Differs, &["50 % above the published 2"]);
}

#[test]
fn throughput_over_udp() {
    let rows = |received: fn(f64) -> f64, sent: fn(f64) -> f64| {
        let of = |metric: &str, f: fn(f64) -> f64| udp_rows(metric, |_, _, _, p| 1000.0 * f(p));
        [of("received.access", received), of("sent.access", sent)].concat()
    };
    let held = rows(|p| 1.0 + p * (0.3 - p), |p| 1.0 + p);
    let said = ["at all 1 losses up to 10 %", "The load at the end is 500 b/s (500 to 500 b/s) more"];
    assert_verdict(&held, "mih.udp.throughput", Reproduced, &said);
    assert_verdict(
        &rows(|p| 1.0 - p, |p| 1.0 + p),
        "mih.udp.throughput",
        Partly,
        &["held at low loss: differs"],
    );
    // The text makes no statement on the load.
    assert_verdict(&rows(|p| 1.0 - p * p, |_| 1.0), "mih.udp.throughput", Reproduced, &[]);
    assert_verdict(
        &rows(|p| if p > 0.0 { 0.5 + 0.8 * p } else { 1.0 }, |p| p),
        "mih.udp.throughput",
        Partly,
        &["held at low loss: differs"],
    );
    assert_verdict(
        &rows(|p| if p > 0.0 { 0.5 + 2.0 * p } else { 1.0 }, |p| p),
        "mih.udp.throughput",
        Differs,
        &[],
    );
    let mut high = held;
    high.retain(|r| !r.point.get("loss").unwrap().starts_with("10"));
    assert_verdict(&high, "mih.udp.throughput", Partly, &["indications, held at low loss: not comparable"]);
}

#[test]
fn tcp_delays_over_loss_and_max_rto() {
    let rows = |f: fn(f64, f64) -> f64| tcp_rows("delay.mean", |_, _, m, p| 0.02 + f(m, p));
    let convex = rows(|m, p| p * p * m * m);
    assert_verdict(&convex, "mih.tcp.delay-loss", Reproduced, &["requests, 1 s: reproduced"]);
    assert_verdict(
        &convex,
        "mih.tcp.delay-maxrto",
        Reproduced,
        &["requests at 50 %: reproduced", "indications at 30 %"],
    );
    let concave = rows(|m, p| (p * m).sqrt());
    assert_verdict(&concave, "mih.tcp.delay-loss", Differs, &[]);
    assert_verdict(&concave, "mih.tcp.delay-maxrto", Differs, &[]);
    let mut low = convex;
    low.retain(|r| parse_number(r.point.get("loss").unwrap()) < 30.0);
    assert_verdict(&low, "mih.tcp.delay-maxrto", NotRun, &["no point at 30 % loss or more"]);
}

/// The verdicts with 3 replications, 5 and 20, one in five of them with a tail.
#[test]
fn verdicts_do_not_move_with_the_number_of_replications() {
    let judged = |n: u32| {
        let rows = tcp_rows("delay.mean", |_, _, m, p| 0.02 + p * p * m * m);
        let of = |row: &ResultRow| {
            let own = |r: u32| [1.0, 1.1, 0.95, 1.02, 3.0][(r % 5) as usize];
            (0..n)
                .map(|r| ResultRow { replication: r, value: row.value * own(r), ..row.clone() })
                .collect::<Vec<_>>()
        };
        let rows: Vec<ResultRow> = rows.iter().filter(|r| r.replication == 0).flat_map(of).collect();
        judge_claim_by_id(&rows, "mih.tcp.delay-maxrto")
    };
    for n in [3, 5, 6, 20] {
        let judged = judged(n);
        assert_eq!(judged.verdict, Reproduced, "{n}: {judged:?}");
        assert_eq!(judged.reason.contains("replications must agree"), n < 6, "{n}: {judged:?}");
    }
    // Two agree by chance every second time.
    let two = judged(2);
    assert_eq!(two.verdict, NotComparable, "{two:?}");
    assert!(two.reason.contains("fewer than three common replications"), "{two:?}");
    assert!(
        judged(3)
            .reason
            .ends_with("All 3 replications must agree, which gives a median 75 % confidence; 95 % needs 6.")
    );
}

#[test]
fn acknowledgement_over_tcp() {
    // TCP takes longer than three maximum RTOs at 50 % loss, and at 30 % with the shortest.
    let rows = |more: f64| {
        tcp_rows("mih.delivery", |_, ack, m, p| {
            0.02 + 8.0 * p * p * m.max(0.5)
                + if ack && p > 0.4 { more } else { -0.01 * p * f64::from(u8::from(ack)) }
        })
    };
    let said = [
        "(36 other points left out)",
        "at all 4 points",
        "requests, 0.3 s: 0.5 s (0.5 to 0.5 s) more at 50 %",
    ];
    assert_verdict(&rows(0.5), "mih.tcp.ack-hurts", Reproduced, &said);
    assert_verdict(&rows(-0.5), "mih.tcp.ack-hurts", Differs, &["at 0 of 4 points", "less at 50 %"]);
    let short = tcp_rows("mih.delivery", |_, _, m, p| 0.02 + m * p);
    assert_verdict(&short, "mih.tcp.ack-hurts", NotComparable, &["At all 40 points, TCP alone"]);

    let success = |with: f64, without: f64| {
        let share = |m: &str, ack: bool, p: f64| match (m, ack) {
            ("request", true) if p > 0.2 => with,
            ("request", false) if p > 0.2 => without,
            _ => 1.0,
        };
        tcp_rows("success", |m, ack, _, p| share(m, ack, p))
    };
    let said = ["falls by 20 %", "99.5 % or more at all 25 points", "requests without ACK: reproduced"];
    assert_verdict(&success(0.8, 1.0), "mih.tcp.success", Reproduced, &said);
    assert_verdict(&success(0.8, 0.9), "mih.tcp.success", Partly, &["requests without ACK: differs"]);
    assert_verdict(&success(1.0, 1.0), "mih.tcp.success", Differs, &["requests with ACK, 1 s: differs"]);
}

#[test]
fn a_segment_for_both() {
    let rows = |of: [f64; 3]| {
        let at = ["0.1 s", "0.25 s", "0.4 s"].into_iter().zip(of);
        at.flat_map(|(delay, mean)| {
            let axes = [("delack", delay), ("message", "request")];
            point_rows("mih-shared-segment", &axes, "tcp.per-mih-packet", mean, 0.0)
                .into_iter()
                .map(move |r| without_shared(r, mean))
        })
        .collect::<Vec<_>>()
    };
    let said = ["2 with 0.1 s, 1.5 with 0.25 s, 1 with 0.4 s"];
    assert_verdict(&rows([2.0, 1.5, 1.0]), "mih.tcp.shared-segment", Reproduced, &said);
    assert_verdict(&rows([1.5, 1.5, 1.0]), "mih.tcp.shared-segment", Differs, &[]);
    assert_verdict(&rows([2.0, 2.0, 1.0]), "mih.tcp.shared-segment", Differs, &[]);
}

#[test]
fn a_late_dip() {
    let rows = |f: fn(f64) -> f64| tcp_rows("delay.mean", |_, _, m, p| 0.3 + m * f(p));
    let dip = rows(|p| if p < 0.4 { p } else { 0.2 });
    assert_verdict(&dip, "mih.tcp.late-dip", Reproduced, &["longest at 30 % loss", "points: 20 and 50 %"]);
    let early = rows(|p| if p < 0.15 { p } else { 0.05 });
    assert_verdict(
        &early,
        "mih.tcp.late-dip",
        Partly,
        &["falls again: reproduced; from about 45 %: differs"],
    );
    let never = assert_verdict(
        &rows(|p| p),
        "mih.tcp.late-dip",
        Differs,
        &["longest at 50 %", "from about 45 %: differs"],
    );
    assert_eq!(never.ours, Some(ClaimValue::Text("does not fall again".into())));
    assert_verdict(&rows(|p| -p), "mih.tcp.late-dip", Differs, &["longest at 0 % loss"]);
}

#[test]
fn overhead_over_tcp() {
    let rows = |i: f64, r: f64| {
        let rows = tcp_rows("mih.overhead", |m, _, _, p| {
            2.0 + p / 0.5 * if m == "request" { r - 2.0 } else { i - 2.0 }
        });
        // Without loss the value is exact.
        let none = |r: &ResultRow| r.point.get("loss") == Some("0 %");
        rows.into_iter().map(|r| if none(&r) { ResultRow { value: 2.0, ..r } } else { r }).collect::<Vec<_>>()
    };
    let said = ["without loss 2;", "indications at most 6", "within the limit of 4.5"];
    assert_verdict(&rows(5.999, 4.4), "mih.tcp.mih-overhead", Reproduced, &said);
    // A limit need not be reached.
    assert_verdict(&rows(3.0, 4.4), "mih.tcp.mih-overhead", Reproduced, &[]);
    assert_verdict(&rows(6.0, 4.4), "mih.tcp.mih-overhead", Partly, &["indication limit: partly"]);
    assert_verdict(&rows(5.0, 4.75), "mih.tcp.mih-overhead", Differs, &["request limit: differs"]);
    // The largest mean may be within the limit and another point beyond: all points count.
    let mut wide = rows(5.0, 4.4);
    let at = |r: &ResultRow, rto: &str| {
        r.point.get("max-rto") == Some(rto)
            && r.point.get("loss") == Some("50 %")
            && r.point.get("message") == Some("request")
    };
    for row in wide.iter_mut().filter(|r| at(r, "0.2 s")) {
        row.value = [4.2, 4.3, 4.6][row.replication as usize];
    }
    let said = ["requests at most 4.4 (", "(the interval at 50 % reaches 4.6)", "at 24 of 25 points"];
    assert_verdict(&wide, "mih.tcp.mih-overhead", Partly, &said);
    let mut off = rows(5.0, 4.4);
    off.iter_mut().filter(|r| r.point.get("loss") == Some("0 %")).for_each(|r| r.value = 2.01);
    assert_verdict(&off, "mih.tcp.mih-overhead", Differs, &["without loss: differs"]);
}

#[test]
fn segments_and_load_over_tcp() {
    let hill = |top: f64, p: f64| 2.0 + if p <= top { 5.0 * p } else { 5.0 * top - 2.0 * (p - top) };
    let rows = |i: f64, r: f64| {
        tcp_rows("tcp.per-mih-packet", |m, _, _, p| hill(if m == "request" { r } else { i }, p))
    };
    assert_verdict(
        &rows(0.2, 0.1),
        "mih.tcp.segments",
        Reproduced,
        &[
            "all 5 curves rise and fall",
            "highest at 20 % with 0.2 s",
            "Read as \"indications with MIH acknowledgement\": reproduced.",
        ],
    );
    let with = tcp_rows("tcp.per-mih-packet", |m, ack, _, p| {
        hill(
            if m == "request" {
                0.1
            } else if ack {
                0.5
            } else {
                0.2
            },
            p,
        )
    });
    assert_verdict(&with, "mih.tcp.segments", Reproduced, &["with MIH acknowledgement\": partly."]);
    assert_verdict(
        &rows(0.5, 0.1),
        "mih.tcp.segments",
        Partly,
        &["indications without ACK, turn at about 20 %: differs"],
    );
    // A curve that only falls or only rises has no peak.
    let falls = tcp_rows("tcp.per-mih-packet", |_, _, _, p| 2.0 - p);
    assert_verdict(&falls, "mih.tcp.segments", Differs, &["requests with ACK, turn at about 10 %: differs"]);
    let none = tcp_rows("tcp.per-mih-packet", |_, _, _, p| 4.0 - p);
    assert_verdict(&none, "mih.tcp.segments", Differs, &["published 2"]);
    let load = |indications: fn(f64) -> f64, requests: fn(f64) -> f64| {
        tcp_rows("sent.access", |m, _, _, p| 1e3 * if m == "request" { requests(p) } else { indications(p) })
    };
    let rises_and_falls = |p: f64| if p < 0.25 { p } else { 0.2 - (p - 0.2) / 2.0 };
    let said = ["indications slow with 1 s", "with all 5 largest RTOs, highest at 20 % with 0.2 s"];
    assert_verdict(&load(f64::sqrt, rises_and_falls), "mih.tcp.load", Reproduced, &said);
    assert_verdict(&load(f64::sqrt, |p| p), "mih.tcp.load", Partly, &["requests rise and fall: differs"]);
    assert_verdict(&load(|p| p * p, |p| p), "mih.tcp.load", Differs, &["indications grow: reproduced"]);
}

/// Rows of a study of an open question, at two losses: the choices with the metric to minimise and the limited metric.
fn choice_rows(
    study: &str,
    axes: &[&str],
    metric: &str,
    of: &[(&[&str], f64)],
    limit: Option<(&str, f64)>,
) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (loss, (names, value)) in ["5 %", "40 %"].into_iter().flat_map(|l| of.iter().map(move |c| (l, c))) {
        let mut at: Vec<(&str, &str)> = axes.iter().copied().zip(names.iter().copied()).collect();
        at.insert(0, ("loss", loss));
        rows.extend(point_rows(study, &at, metric, *value, 0.0));
        rows.extend(limit.into_iter().flat_map(|(metric, least)| {
            // The fastest choice fails most.
            point_rows(study, &at, metric, least / value, 0.0)
        }));
    }
    rows
}

#[test]
fn what_the_document_leaves_open() {
    let timers = |least| {
        let of: [(&[&str], f64); 2] = [(&["0.1 s", "2"], 1.0), (&["0.5 s", "8"], 2.0)];
        choice_rows("mih-timers", &["timer", "limit"], "delay.mean", &of, Some(("failures", least)))
    };
    let response = |of: &[(&[&str], f64)]| {
        choice_rows("mih-response", &["unanswered", "timer"], "delay.mean", of, Some(("failures", 0.3)))
    };
    let whole: [(&[&str], f64); 2] = [(&["wait", "1 s"], 3.0), (&["retransmit", "0.6 s"], 2.0)];
    let lifetime: [(&[&str], f64); 2] = [(&["5 s"], 100.0), (&["60 s"], 1200.0)];
    let lifetime =
        choice_rows("mih-lifetime", &["lifetime"], "mih.memory", &lifetime, Some(("mih.duplicates", 0.01)));
    let of: [(&[&str], f64); 2] = [(&["0.1 s", "2", "off"], 1.0), (&["0.5 s", "4", "1 s"], 2.0)];
    // Both questions have all of the choices: by the timer and the limit, and by the response timer.
    let services: Vec<ResultRow> = [("off", 1.0), ("1 s", 2.0)]
        .into_iter()
        .flat_map(|(response, value)| {
            let own = choice_rows(
                "mih-services",
                &["timer", "limit"],
                "delay.mean",
                &of.map(|(n, v)| (&n[..2], v)),
                Some(("failures", 0.02 * value)),
            );
            own.into_iter().map(move |row| {
                let axes: Vec<(String, String)> =
                    row.point.axes().map(|(a, v)| (a.into(), v.into())).collect();
                ResultRow {
                    point: GridPoint::new(axes.into_iter().chain([("response".into(), response.into())])),
                    ..row
                }
            })
        })
        .collect();
    let all = |least, of: &[(&[&str], f64)]| {
        [timers(least), response(of), lifetime.clone(), services.clone()].concat()
    };
    let said = [
        "mih-timers has a recommendation for the smallest delay.mean with failures up to 0.05 at all 2 \
         points, by timer and limit: 0.5 s, 8 (at 2)",
        "by unanswered and timer: retransmit, 0.6 s",
        "for the smallest failures at all 2 points, by unanswered and timer: wait, 1 s",
        "by lifetime: 5 s (at 2)",
        "mih-services has a recommendation for the smallest delay.mean with failures up to 0.05 at all 4 \
         points, by timer and limit: 0.1 s, 2 (at 4)",
        "mih-services has a recommendation for the smallest failures at all 4 points, by response: off (at \
         4)",
    ];
    assert_verdict(&all(0.08, &whole), "mih.open", Reproduced, &said);
    // If no choice is within the limit, or there are no choices, the question has no answer.
    let judged = assert_verdict(&all(0.5, &whole), "mih.open", Partly, &["mih-timers has no recommendation"]);
    assert_eq!(judged.ours, Some(ClaimValue::Text("5 of 6 answered".into())));
    assert_verdict(&all(0.08, &whole[..1]), "mih.open", Partly, &["mih-response has no recommendation"]);
    assert_verdict(&timers(0.5), "mih.open", Differs, &["usher study run mih-response"]);
    assert_verdict(&timers(0.08), "mih.open", Partly, &["mih-lifetime was not run"]);
    // A tie is no answer: indistinguishable response timers are not recommended, and two alike ones are listed
    // together.
    let tied: [(&[&str], f64); 2] = [(&["wait", "1 s"], 3.0), (&["wait", "2 s"], 3.0)];
    let said = ["mih-response has no recommendation for the smallest delay.mean, undecided at all 2 points"];
    let judged = assert_verdict(&all(0.08, &tied), "mih.open", Partly, &said);
    assert_eq!(judged.ours, Some(ClaimValue::Text("4 of 6 answered".into())));
    assert_verdict(&response(&tied), "mih.open", NotComparable, &["undecided at all 2 points"]);
    let pair: [(&[&str], f64); 3] =
        [(&["wait", "1 s"], 2.0), (&["wait", "2 s"], 2.0), (&["abort", "1 s"], 3.0)];
    let said = ["by unanswered and timer: wait, 1 s or wait, 2 s (at 2)"];
    assert_verdict(&all(0.08, &pair), "mih.open", Reproduced, &said);
    // A large group of alike choices is described by the others.
    let most: [(&[&str], f64); 5] = [
        (&["wait", "1 s"], 2.0),
        (&["wait", "2 s"], 2.0),
        (&["wait", "4 s"], 2.0),
        (&["retransmit", "1 s"], 2.0),
        (&["abort", "1 s"], 3.0),
    ];
    assert_verdict(
        &all(0.08, &most),
        "mih.open",
        Reproduced,
        &["by unanswered and timer: all but abort, 1 s (at 2)"],
    );
    // Nor do two replications, or one of three, suffice.
    let mut two = response(&whole);
    two.retain(|r| r.replication < 2);
    assert_verdict(&two, "mih.open", NotComparable, &["undecided at all 2 points"]);
    let mut crossed = response(&whole);
    crossed.iter_mut().filter(|r| r.replication == 1 && r.value > 2.5).for_each(|r| r.value = 1.5);
    assert_verdict(&crossed, "mih.open", Partly, &["for the smallest delay.mean, undecided at all 2 points"]);
    let mut unlimited = timers(0.08);
    unlimited.retain(|r| &*r.metric != "failures");
    assert_verdict(&unlimited, "mih.open", Differs, &["mih-timers has no recommendation"]);
}

#[test]
fn what_is_left_open_is_what_the_studies_recommend() {
    let mut asked: Vec<&str> = QUESTIONS.iter().map(|q| q.study).collect();
    asked.dedup();
    let studies = data::find_claim("mih.open").unwrap().studies.iter().map(String::as_str);
    let founded: Vec<&str> =
        studies.filter(|s| usher_scenario::founding::find_founding_study(s).is_some()).collect();
    assert_eq!(founded, asked);
    for study in asked {
        let file = usher_scenario::Study::open(study).unwrap();
        let said = file.file().recommendations.iter();
        let said: Vec<_> = said
            .map(|r| {
                let most = |limit| usher_scenario::reference::limit_range(limit, file.file()).1;
                let limit = r.limit.as_ref().and_then(|limit| Some((&*limit.metric, most(limit)?)));
                (r.choose.0.iter().map(String::as_str).collect::<Vec<_>>(), &*r.metric, limit)
            })
            .collect();
        let questions = QUESTIONS.iter().filter(|q| q.study == study);
        assert_eq!(
            said,
            questions.map(|q| (q.choose.to_vec(), q.metric, q.limit)).collect::<Vec<_>>(),
            "{study}"
        );
    }
}

#[test]
fn the_list_of_what_is_otherwise() {
    let judged = |list: &[&str]| {
        let mut rows = udp_rows("success", |_, _, _, _| 1.0);
        if !list.contains(&"alone") {
            rows.extend(tcp_rows("success", |_, _, _, _| 1.0));
        }
        let mut results = RunResults::new(&rows);
        let setup = ClaimStudySetup::Listed(list.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(ClaimStudySetup::from_facts(&setup.to_facts().into_iter().collect()), Some(setup.clone()));
        results.set_up("mih-udp", setup);
        results.set_up("mih-tcp", ClaimStudySetup::Listed(Vec::new()));
        let judged = evaluate_claims(&results, DEFAULT_VARIANT);
        let judged = judged.into_iter().find(|j| j.id == "mih.setup").unwrap();
        (judged.verdict, judged.reason)
    };
    assert_eq!(judged(&[]).0, Reproduced);
    let (verdict, reason) = judged(&["IPv4, not IPv6", "the MSS is not 1280 B"]);
    assert!(verdict == Partly && reason.contains("mih-udp: IPv4, not IPv6; mih-udp: the MSS"), "{reason}");
    // Agreement of one study does not excuse another.
    assert_eq!(judged(&["a", "b", "c"]).0, Differs);
    let alone = judged(&["alone"]);
    assert!(
        alone.0 == Partly && alone.1.contains("mih-tcp was not run: usher study run mih-tcp."),
        "{alone:?}"
    );
}
