//! The claims on handovers, from made-up rows.

use super::*;

const TRANSPORTS: [&str; 5] = ["UDP, 0.1 s", "UDP, 0.3 s", "TCP, 0.2 s", "TCP, 0.5 s", "TCP, 1 s"];

/// Rows of a study: a metric by the transport's index and loss as a share; NaN for none.
fn rows(study: &str, metric: &str, value: impl Fn(usize, f64) -> f64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (i, transport) in TRANSPORTS.into_iter().enumerate() {
        for (text, loss) in [("0 %", 0.0), ("10 %", 0.1), ("30 %", 0.3), ("50 %", 0.5)] {
            let mean = value(i, loss);
            let all = point(
                study,
                &[("transport", transport), ("loss", text)],
                metric,
                mean,
                1e-4 * (1.0 + i as f64),
            );
            rows.extend(all.into_iter().filter(|_| mean.is_finite()));
        }
    }
    rows
}

fn station(metric: &str, value: impl Fn(usize, f64) -> f64) -> Vec<Row> {
    // What replications share is left out where it would be more than all.
    let mut rows = rows("handover-mn", metric, value);
    rows.iter_mut().for_each(|r| r.value -= [-0.02, 0.0, 0.02][r.replication as usize]);
    rows
}

/// Success that falls with loss by so much.
fn success(falls: [f64; 5]) -> Vec<Row> {
    station("success", |i, p| if p == 0.0 || falls[i] == 0.0 { 1.0 } else { 1.0 - falls[i] * p })
        .into_iter()
        .map(|r| Row { value: if r.value > 0.999 { 1.0 } else { r.value }, ..r })
        .collect()
}

#[test]
fn failed_handovers() {
    let with = |delay: f64| station("delay.failed", |i, p| if i < 2 && p > 0.0 { delay } else { f64::NAN });
    let all = |delay| [with(delay), station("delay.mean", |_, _| 1.0)].concat();
    verdict(&all(9.4), "handover.failed-delay", Reproduced, &["the mean over 6 points"]);
    verdict(&all(7.5), "handover.failed-delay", Partly, &["below the published 9.5 s"]);
    verdict(&all(4.0), "handover.failed-delay", Differs, &[]);
    verdict(&all(f64::NAN), "handover.failed-delay", NotComparable, &["No handover failed."]);
}

#[test]
fn who_fails_most() {
    verdict(&success([1.0, 0.5, 0.0, 0.1, 0.2]), "handover.success-order", Reproduced, &["at all 3 losses"]);
    let behind = verdict(
        &success([1.0, 0.5, 0.0, 0.8, 0.9]),
        "handover.success-order",
        Partly,
        &["(not TCP, 0.5 s from 10 % on, TCP, 1 s from 10 % on)", "TCP fails the fewest: differs"],
    );
    assert_eq!(behind.ours, Some(Value::Text("0.1 s fails more at all 3 losses".into())));
    verdict(&success([0.5, 1.0, 1.5, 1.5, 1.5]), "handover.success-order", Differs, &["at 0 of 3 losses"]);
    verdict(&success([0.0; 5]), "handover.success-order", NotComparable, &["where handovers fail"]);
}

#[test]
fn which_is_slower() {
    let with = |tcp: f64, all: f64| {
        let own = |i: usize, p: f64| 1.0 + p * if i < 2 { 1.0 } else { tcp };
        let all = station("delay.mean", |i, p| own(i, p) + if i < 2 { p * all } else { 0.0 });
        [station("delay.success", own), all, success([1.0, 0.5, 0.0, 0.0, 0.0])].concat()
    };
    verdict(&with(2.0, 3.0), "handover.delay-order", Reproduced, &["at all 3 losses", "by up to 1.5 s"]);
    verdict(&with(0.5, 3.0), "handover.delay-order", Partly, &["slower over TCP: differs"]);
    verdict(&with(0.5, -3.0), "handover.delay-order", Differs, &[]);
}

#[test]
fn step_by_step() {
    let with = |scan: f64, grows: f64, later: f64| {
        [
            station("step.scan", |_, p| 0.5 + p * scan),
            station("step.redirect", |_, _| 0.2),
            station("step.resources", |_, p| 0.3 + p * grows),
            station("step.commit", |_, p| 0.3 + p * grows * later),
        ]
        .concat()
    };
    verdict(
        &with(0.01, 1.0, 1.5),
        "handover.steps",
        Reproduced,
        &["without loss by 0 s", "Scan constant: at all 20"],
    );
    verdict(
        &with(1.0, 1.0, 0.5),
        "handover.steps",
        Partly,
        &["scan constant: differs", "TCP's later step longer: differs"],
    );
    verdict(&with(1.0, -0.1, 2.0), "handover.steps", Differs, &["message steps grow: differs"]);
}

#[test]
fn who_begins() {
    let with = |saves: f64| {
        let net = rows("handover-net", "delay.success", |_, p| 2.0 + p - saves);
        [rows("handover-mn", "delay.success", |_, p| 2.0 + p), net].concat()
    };
    verdict(&with(0.5), "handover.network-faster", Reproduced, &["at all 20", "(by 0.5 s on average)"]);
    verdict(&with(-0.5), "handover.network-faster", Differs, &["at 0 of 20"]);
    let alone = rows("handover-mn", "delay.success", |_, _| 2.0);
    verdict(&alone, "handover.network-faster", NotRun, &["usher study run handover-net"]);
}

#[test]
fn what_the_application_loses() {
    let with = |off: f64, more: f64| {
        let lost = station("app.lost", |i, p| 2.0 * p + if i == 0 { more * p } else { 0.0 });
        [success([1.0, 0.5, 0.0, 0.0, 0.0]), station("app.loss", |_, p| p + off), lost].concat()
    };
    verdict(&with(0.01, 8.0), "handover.app-loss", Reproduced, &["at all 14", "loses 4 packets more"]);
    verdict(&with(0.2, 8.0), "handover.app-loss", Partly, &["at the loss ratio: differs"]);
    verdict(&with(0.2, -1.0), "handover.app-loss", Differs, &["failures lose more: differs"]);
}
