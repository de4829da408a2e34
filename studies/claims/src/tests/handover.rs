//! The claims on handovers, from synthetic rows.

use super::*;

const TRANSPORTS: [&str; 5] = ["UDP, 0.1 s", "UDP, 0.3 s", "TCP, 0.2 s", "TCP, 0.5 s", "TCP, 1 s"];

/// Rows of a study: a metric by the transport's index and loss as a share; NaN for none.
fn handover_rows(study: &str, metric: &str, value: impl Fn(usize, f64) -> f64) -> Vec<ResultRow> {
    let mut rows = Vec::new();
    for (i, transport) in TRANSPORTS.into_iter().enumerate() {
        for (text, loss) in [("0 %", 0.0), ("10 %", 0.1), ("30 %", 0.3), ("50 %", 0.5)] {
            let mean = value(i, loss);
            let all = point_rows(
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

fn station_rows(metric: &str, value: impl Fn(usize, f64) -> f64) -> Vec<ResultRow> {
    // The common part of replications is omitted where it would exceed the value.
    let mut rows = handover_rows("handover-mn", metric, value);
    rows.iter_mut().for_each(|r| r.value -= [-0.02, 0.0, 0.02][r.replication as usize]);
    rows
}

/// Success that falls with loss by these amounts.
fn success_rows(falls: [f64; 5]) -> Vec<ResultRow> {
    station_rows("success", |i, p| if p == 0.0 || falls[i] == 0.0 { 1.0 } else { 1.0 - falls[i] * p })
        .into_iter()
        .map(|r| ResultRow { value: if r.value > 0.998 { 1.0 } else { r.value }, ..r })
        .collect()
}

#[test]
fn failed_handovers() {
    let with =
        |delay: f64| station_rows("delay.failed", |i, p| if i < 2 && p > 0.0 { delay } else { f64::NAN });
    let all = |delay| [with(delay), station_rows("delay.mean", |_, _| 1.0)].concat();
    assert_verdict(&all(9.4), "handover.failed-delay", Reproduced, &["the mean over 6 points"]);
    assert_verdict(&all(7.5), "handover.failed-delay", Partly, &["below the published 9.5 s"]);
    assert_verdict(&all(4.0), "handover.failed-delay", Differs, &[]);
    assert_verdict(&all(f64::NAN), "handover.failed-delay", NotComparable, &["No handover failed."]);
    // One rule for all statements on failed handovers.
    assert_verdict(
        &success_rows([0.0; 5]),
        "handover.success-order",
        NotComparable,
        &["No handover failed."],
    );
    let order = [
        success_rows([0.0; 5]),
        station_rows("delay.success", |i, _| i as f64),
        station_rows("delay.mean", |i, _| i as f64),
    ];
    let said = [
        "No handover failed.",
        "slower over TCP when it succeeds: reproduced; slower over UDP overall: not comparable",
    ];
    assert_verdict(&order.concat(), "handover.delay-order", Partly, &said);
}

#[test]
fn who_fails_most() {
    assert_verdict(
        &success_rows([1.0, 0.5, 0.0, 0.1, 0.2]),
        "handover.success-order",
        Reproduced,
        &["at all 3 losses"],
    );
    let behind = assert_verdict(
        &success_rows([1.0, 0.5, 0.0, 0.8, 0.9]),
        "handover.success-order",
        Partly,
        &["(behind: TCP, 0.5 s from 10 % on, TCP, 1 s from 10 % on)", "TCP fails the fewest: differs"],
    );
    assert_eq!(behind.ours, Some(ClaimValue::Text("0.1 s fails more at all 3 losses".into())));
    // A tie is not fewer, and at the end the retransmissions may outlast the stay.
    assert_verdict(
        &success_rows([1.0, 0.5, 0.5, 0.5, 0.5]),
        "handover.success-order",
        Partly,
        &["either at 0 of 18"],
    );
    let mut late = success_rows([1.0, 0.5, 0.0, 0.1, 0.2]);
    late.iter_mut()
        .filter(|r| r.point.get("loss") == Some("50 %") && r.point.get("transport") == Some(TRANSPORTS[4]))
        .for_each(|r| r.value = 0.3);
    let said = ["at all 16 combinations of tr", "(behind: TCP, 1 s from 50 % on)"];
    assert_verdict(&late, "handover.success-order", Reproduced, &said);
    // If the replications leave failures uncertain, there is no order.
    let mut few = success_rows([1.0, 0.5, 0.0, 0.1, 0.2]);
    few.iter_mut().filter(|r| r.value < 1.0 && r.replication > 0).for_each(|r| r.value = 1.0);
    assert_verdict(&few, "handover.success-order", NotComparable, &["where failures are significant"]);
    assert_verdict(
        &success_rows([0.5, 1.0, 1.5, 1.5, 1.5]),
        "handover.success-order",
        Differs,
        &["at 0 of 3 losses"],
    );
    assert_verdict(
        &success_rows([0.0; 5]),
        "handover.success-order",
        NotComparable,
        &["loses 50 % of packets at 50 %"],
    );
    // If UDP has no failures and TCP has some, TCP does not fail the fewest.
    let tcp = ["Over UDP no handover fails and over TCP some do"];
    assert_verdict(&success_rows([0.0, 0.0, 0.5, 0.5, 0.5]), "handover.success-order", Differs, &tcp);
    let mut perhaps = success_rows([0.0, 0.0, 0.5, 0.5, 0.5]);
    perhaps.iter_mut().filter(|r| r.value < 1.0 && r.replication > 0).for_each(|r| r.value = 1.0);
    assert_verdict(&perhaps, "handover.success-order", NotComparable, &["too few to be significant"]);
}

#[test]
fn which_is_slower() {
    let with = |tcp: f64, all: f64| {
        let own = |i: usize, p: f64| 1.0 + p * if i < 2 { 1.0 } else { tcp };
        let all = station_rows("delay.mean", |i, p| own(i, p) + if i < 2 { p * all } else { 0.0 });
        [station_rows("delay.success", own), all, success_rows([1.0, 0.5, 0.0, 0.0, 0.0])].concat()
    };
    let said = ["at all 3 losses; at the last it takes 0.5 s", "at the last TCP takes 1 s"];
    let judged = assert_verdict(&with(2.0, 3.0), "handover.delay-order", Reproduced, &said);
    let ours = "slower over TCP at all 3 losses when it succeeds, over UDP at all 3 losses overall";
    assert_eq!(judged.ours, Some(ClaimValue::Text(ours.into())));
    assert_verdict(
        &with(0.5, 3.0),
        "handover.delay-order",
        Partly,
        &["slower over TCP when it succeeds: differs"],
    );
    assert_verdict(&with(2.0, 0.5), "handover.delay-order", Partly, &["slower over UDP overall: differs"]);
    let contrary = assert_verdict(&with(0.5, -3.0), "handover.delay-order", Differs, &[]);
    let ours = "slower over TCP at 0 of 3 losses when it succeeds, over UDP at 0 of 3 losses overall";
    assert_eq!(contrary.ours, Some(ClaimValue::Text(ours.into())));
}

/// The same rows for both kinds of loss: of frames, where the statements fail, and of packets.
#[test]
fn frames_give_the_verdict_and_packets_a_reading() {
    let of = |lost: &str, rows: Vec<ResultRow>| {
        let at = |row: ResultRow| {
            let axes: Vec<(String, String)> = row.point.axes().map(|(a, v)| (a.into(), v.into())).collect();
            ResultRow { point: GridPoint::new(axes.into_iter().chain([("lost".into(), lost.into())])), ..row }
        };
        rows.into_iter().map(at).collect::<Vec<_>>()
    };
    let both =
        |frames, packets| [of("frames", success_rows(frames)), of("packets", success_rows(packets))].concat();
    let (none, stated) = ([0.0; 5], [1.0, 0.5, 0.0, 0.1, 0.2]);
    let said = [
        "loses 0.781 % of packets at 50 %",
        "Read as the loss of packets, after the MAC's retransmissions: reproduced (",
        "The reading by packets fits the results better (the input parameters name \"packet loss in the IEEE",
    ];
    assert_verdict(&both(none, stated), "handover.success-order", NotComparable, &said);
    let said = [
        "undecided. No handover failed.",
        "loses 50 % of packets at 50 %",
        "The reading by frames fits the results better",
    ];
    assert_verdict(&both(stated, none), "handover.success-order", Reproduced, &said);
    assert_verdict(&both(stated, stated), "handover.success-order", Reproduced, &["Neither reading fits"]);
    // An undecided result fits no worse than the contrary.
    let contrary = [0.5, 1.0, 1.5, 1.5, 1.5];
    assert_verdict(&both(contrary, none), "handover.success-order", Differs, &["Neither reading fits"]);
    assert_verdict(&both(none, contrary), "handover.success-order", NotComparable, &["Neither reading fits"]);
    assert_verdict(&of("packets", success_rows(stated)), "handover.success-order", Reproduced, &[]);
    // The MAC leaves p^7 of frame loss p: with some thousand packets at each loss, only the last is distinguishable
    // from zero.
    let left = lost_packet_rows(|_, p| p.powi(7), 0.99);
    let said = [
        "at the loss ratio: differs",
        "of p^7: over all transports, the lost share agrees within chance at all 1 losses; 2 others are \
         undecided",
    ];
    assert_verdict(&of("frames", left), "handover.app-loss", Differs, &said);
    let none = lost_packet_rows(|_, p| if p > 0.4 { 1e-6 } else { p.powi(7) }, 0.99);
    assert_verdict(&of("frames", none), "handover.app-loss", Differs, &["within chance at 0 of 1 losses"]);
}

#[test]
fn the_network_leads_as_well() {
    let network = |rows: Vec<ResultRow>| {
        rows.into_iter().map(|r| ResultRow { study: "handover-net".into(), ..r }).collect::<Vec<_>>()
    };
    let rows = |later: f64| {
        let own = |i: usize, p: f64| 1.0 + p * if i < 2 { 1.0 } else { 2.0 };
        let rows = [
            success_rows([1.0, 0.5, 0.0, 0.1, 0.2]),
            station_rows("delay.success", own),
            station_rows("delay.failed", |i, p| if i < 2 && p > 0.0 { 9.5 } else { f64::NAN }),
            station_rows("delay.mean", |i, p| own(i, p) + if i < 2 { 3.0 * p } else { 0.0 }),
            station_rows("step.scan", |_, _| 0.5),
            station_rows("step.redirection", |_, _| 0.2),
            station_rows("step.preparation", |_, p| 0.5 + p),
            station_rows("step.decision", |_, p| 0.3 + p * later),
            lost_packet_rows(|_, p| p, 0.99)
                .into_iter()
                .filter(|r| &*r.study == "handover-net" && &*r.metric != "success")
                .collect(),
        ];
        network(rows.concat())
    };
    let judged = assert_verdict(
        &rows(1.5),
        "handover.network-trends",
        Reproduced,
        &["loss adds significantly more to the network's decision", "Success: Where", "delays: reproduced"],
    );
    assert_eq!(judged.ours, Some(ClaimValue::Text("5 of 5 trends".into())));
    // A failed handover is compared with the same 9.5 s.
    let mut soon = rows(1.5);
    soon.iter_mut().filter(|r| &*r.metric == "delay.failed").for_each(|r| r.value -= 6.0);
    let said = ["failed delay: differs; success: reproduced", "Failed delay: Failed handovers take 3.5 s"];
    assert_verdict(&soon, "handover.network-trends", Partly, &said);
    assert_verdict(
        &rows(0.5),
        "handover.network-trends",
        Partly,
        &["TCP's later step longer: differs", "steps: partly"],
    );
    // Without failures, statements on them count neither way.
    let mut none = rows(1.5);
    none.iter_mut().filter(|r| &*r.metric == "success").for_each(|r| r.value = 1.0);
    none.retain(|r| &*r.metric != "delay.failed");
    let said = ["failed delay: not comparable; success: not comparable; delays: partly; steps: reproduced"];
    let judged = assert_verdict(&none, "handover.network-trends", Partly, &said);
    let Some(ClaimValue::Text(ours)) = &judged.ours else { panic!("{judged:?}") };
    assert!(ours.ends_with("of 3 trends, 2 undecided"), "{ours}");
    assert_verdict(
        &success_rows([1.0, 0.5, 0.0, 0.1, 0.2]),
        "handover.network-trends",
        NotRun,
        &["run handover-net"],
    );
}

#[test]
fn step_by_step() {
    let with = |scan: f64, grows: f64, later: f64| {
        [
            station_rows("step.scan", |_, p| 0.5 + p * scan),
            station_rows("step.redirection", |_, _| 0.2),
            station_rows("step.resources", |_, p| 0.3 + p * grows),
            station_rows("step.commit", |_, p| 0.3 + p * grows * later),
        ]
        .concat()
    };
    assert_verdict(
        &with(0.01, 1.0, 1.5),
        "handover.steps",
        Reproduced,
        &["by 0 s without loss", "Scan constant: all 20"],
    );
    assert_verdict(
        &with(1.0, 1.0, 0.5),
        "handover.steps",
        Partly,
        &["scan constant: differs", "TCP's later step longer: differs"],
    );
    assert_verdict(&with(1.0, -0.1, 2.0), "handover.steps", Differs, &["message steps grow: differs"]);
}

#[test]
fn who_begins() {
    let with = |saves: f64| {
        let net = handover_rows("handover-net", "delay.success", |_, p| 2.0 + p - saves);
        [handover_rows("handover-mn", "delay.success", |_, p| 2.0 + p), net].concat()
    };
    assert_verdict(
        &with(0.5),
        "handover.network-faster",
        Reproduced,
        &["at all 20", "(by 0.5 s on average)"],
    );
    assert_verdict(&with(-0.5), "handover.network-faster", Differs, &["at 0 of 20"]);
    let alone = handover_rows("handover-mn", "delay.success", |_, _| 2.0);
    assert_verdict(&alone, "handover.network-faster", NotRun, &["usher study run handover-net"]);
}

/// Rows of both studies with exact shares, and fifty handovers in each replication.
fn both_study_rows(metric: &str, value: impl Fn(usize, f64) -> f64) -> Vec<ResultRow> {
    let of = |study| {
        let mut rows = handover_rows(study, metric, &value);
        for three in rows.chunks_mut(3) {
            let mean = three.iter().map(|r| r.value).sum::<f64>() / 3.0;
            three.iter_mut().for_each(|r| r.value = mean);
        }
        rows
    };
    [of("handover-mn"), of("handover-net")].concat()
}

/// The application's losses where UDP has failures: four packets for each handover otherwise.
fn lost_packet_rows(share: impl Fn(usize, f64) -> f64 + Copy, after: f64) -> Vec<ResultRow> {
    let failed = |i: usize, p: f64| i < 2 && p > 0.0;
    [
        both_study_rows("success", |i, p| if failed(i, p) { 0.8 } else { 1.0 }),
        both_study_rows("started", |_, _| 50.0),
        both_study_rows("app.loss", share),
        both_study_rows("app.lost", |i, p| 4.0 * share(i, p)),
        both_study_rows("app.loss-after-leaving", |i, p| if failed(i, p) { after } else { f64::NAN }),
    ]
    .concat()
}

#[test]
fn what_the_application_loses() {
    let ratio = |_: usize, p: f64| p;
    assert_verdict(
        &lost_packet_rows(ratio, 0.99),
        "handover.app-loss",
        Reproduced,
        &["at all 18 pairs of tr", "predicts 3240", "a minimum of 99 %"],
    );
    assert_verdict(
        &lost_packet_rows(ratio, 0.9),
        "handover.app-loss",
        Partly,
        &["all lost after leaving: differs", "at 0 of 12"],
    );
    let none = assert_verdict(
        &lost_packet_rows(ratio, f64::NAN),
        "handover.app-loss",
        Partly,
        &["leaving: not comparable"],
    );
    assert_eq!(none.ours, Some(ClaimValue::Text("at the ratio at all 18 points".into())));
    assert_verdict(&lost_packet_rows(|_, p| p + 0.2, 0.5), "handover.app-loss", Differs, &["at 0 of 18"]);
    assert_verdict(
        &lost_packet_rows(|_, _| 0.0, 0.99),
        "handover.app-loss",
        Differs,
        &["at the ratio overall: differs"],
    );
    // Each point is within its statistical error, but not all of them together: 600 packets a point.
    let low = |_: usize, p: f64| p * 0.9;
    assert_verdict(
        &lost_packet_rows(low, 0.99),
        "handover.app-loss",
        Partly,
        &["at the ratio overall: differs"],
    );
    // Twice the ratio at the lowest loss is within five percentage points of it.
    let doubled = lost_packet_rows(|_, p| if p < 0.2 { p * 1.5 } else { p }, 0.99);
    assert_verdict(&doubled, "handover.app-loss", Partly, &["at the loss ratio: partly", "at 12 of 18"]);
    let mut alone = lost_packet_rows(ratio, 0.99);
    alone.retain(|r| &*r.study == "handover-mn");
    assert_verdict(&alone, "handover.app-loss", NotRun, &["usher study run handover-net"]);
}
