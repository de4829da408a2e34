//! Each claim from synthetic rows, with each of its verdicts.

use crate::data::{self, ClaimKind, PublishedValue};
use crate::*;
use std::collections::BTreeSet;
use usher_observe::{GridPoint, ResultRow};

mod apart;
mod handover;
mod mih;
mod pppoe;
mod small_segments;

const TCP: &str = "Diameter/TCP";
const SCTP: &str = "Diameter/SCTP, many streams";
const UDP: &str = "RADIUS/UDP, RFC 5080";

/// Rows of one point: three replications around a mean. `own` is the part of this curve's replications that others of
/// the same index do not share.
fn point_rows(study: &str, axes: &[(&str, &str)], metric: &str, mean: f64, own: f64) -> Vec<ResultRow> {
    let shared = [-0.02, 0.0, 0.02];
    let alone = [own, -2.0 * own, own];
    let row = |i: usize| ResultRow {
        study: study.into(),
        point: GridPoint::new(axes.iter().copied()),
        replication: i as u32,
        metric: metric.into(),
        value: mean + shared[i] + alone[i],
    };
    (0..3).map(row).collect()
}

/// A curve over one axis at one value of another.
fn curve_rows(
    study: &str,
    x: &str,
    axis: (&str, &str),
    metric: &str,
    points: &[(&str, f64)],
) -> Vec<ResultRow> {
    points.iter().flat_map(|(at, mean)| point_rows(study, &[(x, at), axis], metric, *mean, 0.001)).collect()
}

fn hol_rows(protocol: &str, points: &[(&str, f64)]) -> Vec<ResultRow> {
    points
        .iter()
        .flat_map(|(loss, mean)| {
            let own = 0.001 * protocol.len() as f64 / 10.0;
            point_rows(
                "aaa-hol",
                &[("loss", loss), ("protocol", protocol), ("method", "eap-md5")],
                "delay.mean",
                *mean,
                own,
            )
        })
        .collect()
}

/// Figure 2 as published, at four losses.
fn figure_2() -> Vec<ResultRow> {
    [
        hol_rows(TCP, &[("0 %", 0.3), ("5 %", 1.5), ("10 %", 2.2), ("19 %", 3.3334)]),
        hol_rows(SCTP, &[("0 %", 0.28), ("5 %", 1.0), ("10 %", 1.5), ("19 %", 2.0834)]),
        hol_rows(UDP, &[("0 %", 0.1), ("5 %", 0.2), ("10 %", 1.2), ("19 %", 6.0)]),
    ]
    .concat()
}

fn judge_claim_by_id(rows: &[ResultRow], id: &str) -> ClaimJudgement {
    evaluate_all_claims(&RunResults::new(rows), DEFAULT_VARIANT).into_iter().find(|j| j.id == id).unwrap()
}

#[track_caller]
fn assert_verdict(rows: &[ResultRow], id: &str, expected: Verdict, reason: &[&str]) -> ClaimJudgement {
    let judged = judge_claim_by_id(rows, id);
    assert_eq!(judged.verdict, expected, "{judged:?}");
    for part in reason {
        assert!(judged.reason.contains(part), "{part:?} is not in {:?}", judged.reason);
    }
    judged
}

use Verdict::{Differs, NotComparable, NotRun, NotYet, Partly, Reproduced};
use small_segments::{ack_rows, nagle_rows, packet_rows, saved_delay_rows, with_data};

#[test]
fn a_difference_that_one_replication_moves_reports_its_median() {
    let mut rows = figure_2();
    // Three more replications of TCP and SCTP at 19 %, the last with a delay of its own.
    for (protocol, values) in [(TCP, [3.3, 3.4, 30.0]), (SCTP, [2.1, 2.0, 2.1])] {
        let sample = rows
            .iter()
            .find(|r| r.point.get("loss") == Some("19 %") && r.point.get("protocol") == Some(protocol))
            .unwrap()
            .clone();
        let more =
            (3..).zip(values).map(|(replication, value)| ResultRow { replication, value, ..sample.clone() });
        rows.extend(more.collect::<Vec<_>>());
    }
    let calm = judge_claim_by_id(&figure_2(), "aaa.hol.gap-19").reason;
    assert!(!calm.contains("moves this mean"), "{calm}");
    let said =
        ["One replication moves this mean", "without replication 5, and the median 1.25 s (1.2 to 27.9 s)."];
    assert_verdict(&rows, "aaa.hol.gap-19", Differs, &said);
}

#[test]
fn the_data_is_consistent() {
    let ids: Vec<&str> = data::claims().iter().map(|c| c.id.as_str()).collect();
    let distinct: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(distinct.len(), ids.len(), "an id is there twice");
    let judged: BTreeSet<&str> = judge_functions().map(|(id, _)| id).collect();
    assert!(judged.is_subset(&distinct), "each function has a claim: {:?}", judged.difference(&distinct));
    for claim in data::claims() {
        let id = &claim.id;
        assert!(data::documents().iter().any(|d| d.id == claim.document), "{id}: unknown document");
        assert!(
            id.starts_with(&format!("{}.", claim.document)),
            "{id}: does not begin with its document's id"
        );
        assert!(!claim.text.is_empty() && !claim.place.is_empty(), "{id}");
        let founded =
            claim.studies.iter().any(|s| usher_scenario::founding::find_founding_study(s).is_some());
        assert!(judged.contains(id.as_str()) || !founded, "{id} has a study, and no function");
        let number = !matches!(claim.published, PublishedValue::Text(_));
        assert_eq!(
            number,
            matches!(claim.kind, ClaimKind::Value | ClaimKind::Ratio | ClaimKind::Bound),
            "{id}: a figure has a number"
        );
        assert!(claim.kind != ClaimKind::Value || !claim.unit.is_empty(), "{id}: a value has a unit");
        if let (Some(first), PublishedValue::Number(number)) = (claim.readings.first(), &claim.published) {
            assert_eq!(first.published, Some(*number), "{id}: the first reading is the claim's");
        }
        let parts: BTreeSet<&str> = claim.parts.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(parts.len(), claim.parts.len(), "{id}: a part is there twice");
        assert!(!claim.causes.contains_key(&NotRun), "{id}: what was not run has no cause");
    }
    assert!(
        data::claims().iter().all(|c| c.published != PublishedValue::Text("as stated".to_owned())),
        "a statement says what it states"
    );
    for document in data::documents() {
        assert!(data::claims().iter().any(|c| c.document == document.id), "{}: without a claim", document.id);
    }
}

/// The formula reproduces figure 14 from table III, except for the one bar with another printed value.
#[test]
fn pending_claims_have_the_numbers_for_their_verdict() {
    let part = |id: &str, name: &str| {
        let number = data::find_claim(id).unwrap().claim_parameter(name);
        assert!(number.is_finite(), "{id} has no {name}");
        number
    };
    let formula = |name: &str| part("ike.cpu.formula", name);
    let of_a_sample = formula("initiator_hz") / (formula("authentications") * formula("timer_initiator_hz"));
    for (chain, printed) in [
        ("md5", true),
        ("tls_2_2", true),
        ("tls_2_4", false),
        ("tls_4_2", true),
        ("tls_3_3", true),
        ("tls_4_4", true),
    ] {
        let modules = ["crypto", "libc", "kernel", "network"];
        let samples: f64 = modules.iter().map(|m| part("ike.cpu.libraries", &format!("{chain}_{m}"))).sum();
        let bar = part("ike.cpu.order", &format!("initiator_{chain}"));
        assert_eq!((samples * of_a_sample / bar - 1.0).abs() < 0.003, printed, "{chain}");
        part("ike.cpu.order", &format!("server_{chain}"));
    }
    for (id, names) in [
        ("ike.messages", &["psk_ike"][..]),
        ("ike.delay.methods", &["ping_share_least", "ping_share_most"]),
        ("ike.cpu.initiator", &["ratio_least", "ratio_most"]),
        ("ike.cpu.server", &["ratio_least", "ratio_most"]),
        ("ike.cpu.formula", &["server_hz", "timer_server_hz"]),
        ("ike.ping.outlier", &["used", "taken"]),
        ("pppoe.rate.line", &["least", "line"]),
        ("pppoe.rate.metric", &["share_of_largest"]),
        ("ident.nat", &["port", "addresses_per_client"]),
    ] {
        names.iter().for_each(|name| assert!(part(id, name) > 0.0, "{id}: {name}"));
    }
}

/// The document's statements on loss during a handover conflict: each has two readings.
#[test]
fn handovers_have_the_documents_readings_of_loss() {
    for claim in data::claims().iter().filter(|c| c.document == "handover") {
        let names: Vec<&str> = claim.own_or_document_readings().iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["frames", "packets"], "{}", claim.id);
    }
    let quoted =
        ["MAC frame loss ratio", "packet loss in the IEEE 802.11 wireless network", "failed handover"];
    let readings = data::find_claim("handover.app-loss").unwrap().own_or_document_readings();
    for (reading, words) in readings.iter().zip(quoted) {
        assert!(reading.text.contains(words), "{words} is not in {}", reading.text);
    }
    assert_eq!(data::find_claim("aaa.hol.gap-19").unwrap().own_or_document_readings().len(), 2);
}

/// The report's groups of studies give every statement of the first three documents its results.
#[test]
fn the_groups_of_a_report_contain_every_study_of_its_claims() {
    let groups = ["aaa", "mih", "handover"];
    let run: Vec<&str> = groups.iter().flat_map(|g| usher_scenario::founding::group_members(g)).collect();
    for claim in data::claims().iter().filter(|c| groups.contains(&&*c.document)) {
        for study in &claim.studies {
            assert!(run.contains(&study.as_str()), "{}: {study} is in none of {groups:?}", claim.id);
        }
    }
}

/// Studies of documents with robust verdicts have enough replications for the interval of a median, in every mode.
#[test]
fn medians_have_the_replications_that_they_take() {
    use usher_scenario::{PlanOverrides, Study, StudyMode};
    let robust = data::claims().iter().filter(|c| c.is_summarised_by_median());
    let studies: BTreeSet<&str> = robust.flat_map(|c| &c.studies).map(String::as_str).collect();
    assert!(studies.len() >= 9, "{studies:?}");
    for study in studies {
        for mode in StudyMode::ALL {
            let Ok(plan) = Study::open(study).unwrap().build_plan(mode, &PlanOverrides::default()) else {
                assert!(
                    matches!(mode, StudyMode::Sensitivity | StudyMode::Lab),
                    "{study} has no plan of {mode:?} mode"
                );
                continue;
            };
            for point in &plan.points {
                let least = point.scenario.run.replications.min.get() as usize;
                assert!(least >= measure::FEWEST, "{study}, {mode:?}: {least}");
            }
        }
    }
}

#[test]
fn the_average_is_that_of_its_parts() {
    let claim = data::find_claim("aaa.average").unwrap();
    let parts = ["streams", "nagle", "delack"].map(|name| claim.claim_parameter(name));
    assert!((parts.iter().sum::<f64>() / 3.0 - claim.published_number()).abs() < 0.005, "{parts:?}");
    assert_eq!(parts[0], data::find_claim("aaa.hol.best").unwrap().published_number());
    assert_eq!(parts[1], data::find_claim("aaa.nagle.segments").unwrap().claim_parameter("fewer"));
    assert_eq!(parts[2], data::find_claim("aaa.congestion.segments").unwrap().claim_parameter("fewer"));
    assert!(claim.claim_parameter("none").is_nan());
}

#[test]
fn figures_name_claims_that_are_there() {
    for founding in usher_scenario::founding::founding_studies() {
        let study = usher_scenario::Study::open(founding.name).unwrap();
        for figure in &study.file().figures {
            for id in &figure.claims {
                let claim =
                    data::find_claim(id).unwrap_or_else(|| panic!("{}: no claim {id}", founding.name));
                assert!(
                    claim.studies.iter().any(|s| s == founding.name),
                    "{id} is not read from {}",
                    founding.name
                );
            }
        }
    }
}

#[test]
fn nothing_is_judged_from_nothing() {
    let judged = evaluate_all_claims(&RunResults::default(), DEFAULT_VARIANT);
    assert_eq!(judged.len(), data::claims().len());
    for judgement in &judged {
        // It uses the document's own numbers, with any results.
        if judgement.id == "ike.cpu.formula" {
            assert_eq!(judgement.verdict, Reproduced, "{judgement:?}");
            continue;
        }
        let claim = data::find_claim(&judgement.id).unwrap();
        let founded =
            claim.studies.iter().any(|s| usher_scenario::founding::find_founding_study(s).is_some());
        let expected = if founded { NotRun } else { NotYet };
        assert_eq!((judgement.verdict, &judgement.ours), (expected, &None), "{judgement:?}");
        assert_eq!(judgement.reason.contains("usher study run "), founded, "{judgement:?}");
    }
    // The claims of the first three documents have results or name the missing study.
    for claim in data::claims().iter().filter(|c| ["aaa", "mih", "handover"].contains(&&*c.document)) {
        assert!(!claim.studies.is_empty(), "{}", claim.id);
    }
    assert_eq!(evaluate_claims(&RunResults::default(), DEFAULT_VARIANT), []);
    let some = evaluate_claims(&RunResults::new(&figure_2()), DEFAULT_VARIANT);
    assert!(some.iter().any(|j| j.id == "aaa.hol.best") && some.iter().all(|j| j.id != "aaa.surge"));
}

#[test]
fn the_gap_at_five_per_cent() {
    let judged = assert_verdict(
        &figure_2(),
        "aaa.hol.gap-5",
        Reproduced,
        &["At 5 % loss TCP takes 0.5 s", "3 replications"],
    );
    let Some(ClaimValue::Number(ours)) = judged.ours else { panic!("{judged:?}") };
    assert!((ours - 0.5).abs() < 1e-9);
    let (Some(ClaimValue::Number(low)), Some(ClaimValue::Number(high))) = (&judged.low, &judged.high) else {
        panic!()
    };
    assert!(*low < ours && ours < *high && high - low < 0.05, "pairs cancel what they share");
    let with = |tcp| [hol_rows(TCP, &[("5 %", tcp)]), hol_rows(SCTP, &[("5 %", 1.0)])].concat();
    assert_verdict(&with(1.64), "aaa.hol.gap-5", Partly, &["28 % above the published 0.5 s"]);
    assert_verdict(&with(1.2), "aaa.hol.gap-5", Differs, &["60 % below the published 0.5 s"]);
    assert_verdict(
        &hol_rows(TCP, &[("5 %", 1.0)]),
        "aaa.hol.gap-5",
        NotRun,
        &["no delay.mean at protocol = Diameter/SCTP"],
    );
    let elsewhere = [hol_rows(TCP, &[("4 %", 1.0)]), hol_rows(SCTP, &[("4 %", 1.0)])].concat();
    assert_verdict(&elsewhere, "aaa.hol.gap-5", NotRun, &["no point at loss 5, only at 4"]);
    let mut apart = with(1.5);
    apart.iter_mut().take(3).for_each(|r| r.replication += 10);
    assert_verdict(&apart, "aaa.hol.gap-5", NotComparable, &["nothing in common"]);
}

#[test]
fn failures_beside_a_delay_are_said() {
    let mut rows = figure_2();
    let axes = [("loss", "5 %"), ("protocol", TCP), ("method", "eap-md5")];
    rows.extend(point_rows("aaa-hol", &axes, "failures", 0.12, 0.0));
    assert_verdict(
        &rows,
        "aaa.hol.gap-5",
        Reproduced,
        &["Failed authentications at 5 % loss: 12 % over Diameter/TCP"],
    );
}

#[test]
fn the_gap_at_nineteen_per_cent_in_both_readings() {
    let said =
        ["takes 1.25 s", "Read as an increase from that at 5 % loss, it is 0.75 s", "40 % below", "differs."];
    assert_verdict(&figure_2(), "aaa.hol.gap-19", Reproduced, &said);
    let with = |tcp| {
        [hol_rows(TCP, &[("5 %", 1.5), ("19 %", tcp)]), hol_rows(SCTP, &[("5 %", 1.0), ("19 %", 2.0)])]
            .concat()
    };
    assert_verdict(&with(3.75), "aaa.hol.gap-19", Differs, &["it is 1.25 s", ": reproduced."]);
    assert_verdict(&with(3.5), "aaa.hol.gap-19", Partly, &["20 % above"]);
}

#[test]
fn the_best_saving() {
    assert_verdict(&figure_2(), "aaa.hol.best", Reproduced, &["at 19 % loss: 37.5 %"]);
    let best = judge_claim_by_id(&figure_2(), "aaa.hol.best");
    assert_eq!((best.published_text().as_str(), best.our_result_text().as_str()), ("37.5 %", "37.5 %"));
    assert!(best.interval_text().ends_with(" %"), "{}", best.interval_text());
    let with = |sctp| [hol_rows(TCP, &[("5 %", 2.0)]), hol_rows(SCTP, &[("5 %", sctp)])].concat();
    assert_verdict(&with(1.4), "aaa.hol.best", Partly, &["20 % below the published 37.5 %"]);
    assert_verdict(&with(1.9), "aaa.hol.best", Differs, &["5 % (", "below the published 37.5 %"]);
}

fn failure_rows(protocol: &str, points: &[(&str, f64)]) -> Vec<ResultRow> {
    let of = |(loss, share): &(&str, f64)| {
        point_rows(
            "aaa-hol",
            &[("loss", loss), ("protocol", protocol), ("method", "eap-md5")],
            "failures",
            *share,
            0.0,
        )
    };
    points.iter().flat_map(of).collect()
}

#[test]
fn delays_of_different_populations_are_partly_at_most() {
    let with = |tcp| {
        let tcp = failure_rows(TCP, &[("5 %", tcp), ("19 %", tcp)]);
        [figure_2(), tcp, failure_rows(SCTP, &[("5 %", 0.1), ("19 %", 0.1)])].concat()
    };
    for id in ["aaa.hol.gap-5", "aaa.hol.gap-19"] {
        let judged = assert_verdict(&with(0.14), id, Reproduced, &["14 % over Diameter/TCP"]);
        assert!(!judged.reason.contains("populations"), "{}", judged.reason);
        assert_verdict(&with(0.15), id, Partly, &["differ by 5 percentage points", "partly at most"]);
    }
    let far = [hol_rows(TCP, &[("5 %", 9.0)]), hol_rows(SCTP, &[("5 %", 1.0)])].concat();
    let shares = [failure_rows(TCP, &[("5 %", 0.3)]), failure_rows(SCTP, &[("5 %", 0.1)])].concat();
    let far = [far, shares].concat();
    assert_verdict(&far, "aaa.hol.gap-5", Differs, &["differ by 20 percentage points"]);
    assert_verdict(
        &far,
        "aaa.hol.best",
        NotComparable,
        &["no comparable point in common", "Left out: 5 % loss"],
    );
    let best = ["saves the most at 5 % loss: 33.3 %", "Left out: 19 % loss"];
    let at_19 = [failure_rows(TCP, &[("19 %", 0.2)]), failure_rows(SCTP, &[("19 %", 0.1)])].concat();
    assert_verdict(&[figure_2(), at_19].concat(), "aaa.hol.best", Partly, &best);
}

#[test]
fn one_replication_says_nothing() {
    let nodes = ["1", "9", "37"];
    let mut rows = [
        figure_2(),
        nagle_rows("delay.mean", &nodes.map(|n| (n, 0.5)), &nodes.map(|n| (n, 0.4))),
        nagle_rows("packets.core", &[("9", 21.0), ("37", 13.0)], &[("9", 21.0)]),
        with_data(4.0, 4.0),
        saved_delay_rows(0.2, 0.1),
        ack_rows("aaa-delack", "delay.mean", &nodes, &[1.0; 3], &[1.0; 3]),
        ack_rows("aaa-congestion", "delay.mean", &nodes, &[1.0; 3], &[1.0, 1.0, 0.5]),
        ack_rows("aaa-congestion", "packets.core", &nodes, &[20.0; 3], &[15.4; 3]),
        packet_rows(6.0),
    ]
    .concat();
    let counted = |rows: &[ResultRow]| {
        let judged = evaluate_claims(&RunResults::new(rows), DEFAULT_VARIANT);
        let of_rows =
            |id: &str| !matches!(data::find_claim(id).unwrap().kind, ClaimKind::Setup | ClaimKind::Scope);
        judged.into_iter().filter(|j| of_rows(&j.id)).collect::<Vec<_>>()
    };
    assert!(counted(&rows).iter().all(|j| j.verdict <= Differs));
    rows.retain(|r| r.replication == 0);
    let single = counted(&rows);
    assert_eq!(single.len(), 15);
    for judgement in single {
        assert_eq!(judgement.verdict, NotComparable, "{judgement:?}");
        assert!(judgement.reason.contains("one replication"), "{judgement:?}");
    }
}

#[test]
fn the_gap_widens() {
    let said = ["From 0 % to 19 % loss, the difference goes from 0.02 s", "3 rise significantly"];
    assert_verdict(&figure_2(), "aaa.hol.widens", Reproduced, &said);
    let with = |tcp: [f64; 4]| {
        let at = ["0 %", "5 %", "10 %", "19 %"];
        let tcp: Vec<(&str, f64)> = at.into_iter().zip(tcp).collect();
        [hol_rows(TCP, &tcp), hol_rows(SCTP, &at.map(|l| (l, 0.1)))].concat()
    };
    assert_verdict(&with([0.1, 0.5, 0.9, 0.8]), "aaa.hol.widens", Partly, &["1 fall significantly"]);
    assert_verdict(&with([0.9, 0.5, 0.3, 0.2]), "aaa.hol.widens", Differs, &["3 fall significantly"]);
    let single = [hol_rows(TCP, &[("5 %", 1.0)]), hol_rows(SCTP, &[("5 %", 1.0)])].concat();
    assert_verdict(&single, "aaa.hol.widens", NotComparable, &["1 point(s)"]);
}

#[test]
fn udp_at_low_loss() {
    let said = [
        "Diameter/TCP is significantly slower at all 2 points",
        "Diameter/SCTP, many streams is significantly slower at all 2 points",
    ];
    assert_verdict(&figure_2(), "aaa.udp.low-loss", Reproduced, &said);
    let with = |udp: [f64; 3]| {
        let at = ["0 %", "3 %", "5 %"];
        let udp: Vec<(&str, f64)> = at.into_iter().zip(udp).collect();
        [hol_rows(UDP, &udp), hol_rows(TCP, &at.map(|l| (l, 0.5))), hol_rows(SCTP, &at.map(|l| (l, 0.4)))]
            .concat()
    };
    assert_verdict(&with([0.1, 0.2, 0.45]), "aaa.udp.low-loss", Partly, &["but not at 5 % loss"]);
    assert_verdict(&with([0.6, 0.7, 0.8]), "aaa.udp.low-loss", Differs, &["0 of 3 points"]);
    let mut single = with([0.1, 0.2, 0.45]);
    single.retain(|r| r.replication == 0);
    assert_verdict(&single, "aaa.udp.low-loss", NotComparable, &["one replication"]);
}

#[test]
fn udp_at_high_loss() {
    let judged = assert_verdict(
        &figure_2(),
        "aaa.udp.high-loss",
        Reproduced,
        &["UDP crosses TCP at about 1", "UDP crosses SCTP"],
    );
    assert_eq!(judged.ours, Some(ClaimValue::Text("grows faster than linearly, crosses 2 of 2".to_owned())));
    let others = [
        hol_rows(TCP, &[("0 %", 0.5), ("10 %", 9.0), ("20 %", 9.0)]),
        hol_rows(SCTP, &[("0 %", 0.5), ("10 %", 0.6), ("20 %", 0.7)]),
    ]
    .concat();
    let with = |udp: [f64; 3]| {
        let udp: Vec<(&str, f64)> = ["0 %", "10 %", "20 %"].into_iter().zip(udp).collect();
        [others.clone(), hol_rows(UDP, &udp)].concat()
    };
    assert_verdict(
        &with([0.1, 0.5, 4.0]),
        "aaa.udp.high-loss",
        Partly,
        &["UDP does not cross TCP", "crosses TCP: differs; crosses SCTP: reproduced"],
    );
    assert_verdict(&with([0.1, 0.3, 0.4]), "aaa.udp.high-loss", Differs, &["UDP does not cross SCTP"]);
    let open = assert_verdict(
        &with([0.1, 0.65, 0.7002]),
        "aaa.udp.high-loss",
        Differs,
        &["but not significantly at the end", "less than TCP"],
    );
    assert!(!open.reason.contains("UDP crosses"), "{}", open.reason);
    let above = assert_verdict(
        &with([0.9, 10.0, 11.0]),
        "aaa.udp.high-loss",
        Differs,
        &["nowhere significantly below"],
    );
    assert_eq!(
        above.ours,
        Some(ClaimValue::Text("grows not faster than linearly, crosses 0 of 2".to_owned()))
    );
}

#[test]
fn the_setting_is_held_against_the_statement() {
    let stated = AuthenticationStudySetup::documented_study_setup();
    let judged = |setup: Option<AuthenticationStudySetup>| {
        let mut results = RunResults::new(&figure_2());
        setup.into_iter().for_each(|s| results.set_up("aaa-hol", ClaimStudySetup::Access(s)));
        let judged = evaluate_claims(&results, DEFAULT_VARIANT);
        let ours = judged[0].ours.as_ref().map_or_else(String::new, ClaimValue::to_text);
        (judged[0].verdict, ours, judged[0].reason.clone())
    };
    assert_eq!(judged(Some(stated.clone())).0, Reproduced);
    assert_eq!(judged(Some(stated.clone())).1, "configured as stated");
    let wired = judged(Some(AuthenticationStudySetup { radio: false, ..stated.clone() }));
    assert_eq!((wired.0, wired.1.as_str()), (Partly, "as stated in 0 of 1 studies"));
    assert!(wired.2.contains("aaa-hol: the stations' access is wired"), "{}", wired.2);
    let other = AuthenticationStudySetup { stations: 200, radio: false, hops: 1, ..stated };
    assert_eq!(judged(Some(other)).0, Differs);
    assert_eq!(judged(None).0, NotComparable);
}

#[test]
fn what_to_beware_of_is_said() {
    let mut results = RunResults::new(&figure_2());
    results.add_caution("aaa-hol", "These results are partial.");
    let judged = evaluate_claims(&results, DEFAULT_VARIANT);
    let best = judged.iter().find(|j| j.id == "aaa.hol.best").unwrap();
    assert!(best.reason.ends_with(". These results are partial."), "{}", best.reason);
}

#[test]
fn other_settings_give_no_verdict() {
    let mut results = RunResults::new(&figure_2());
    results.set_up("aaa-hol", ClaimStudySetup::Access(AuthenticationStudySetup::documented_study_setup()));
    results.exclude_study("aaa-hol", "aaa-hol was run with run.time=9 s.");
    let of_others = ["aaa.average", "aaa.congestion.amplifies"];
    for judgement in
        evaluate_claims(&results, DEFAULT_VARIANT).iter().filter(|j| !of_others.contains(&&*j.id))
    {
        let expected = (NotComparable, "aaa-hol was run with run.time=9 s.");
        assert_eq!((judgement.verdict, judgement.reason.as_str()), expected, "{judgement:?}");
    }
    let mut both = RunResults::new(&point_rows("aaa-many-nas", &[], "delay.mean", 1.0, 0.0));
    both.exclude_study("aaa-many-nas", "Other settings.");
    let surge = evaluate_claims(&both, DEFAULT_VARIANT);
    assert_eq!(surge.iter().find(|j| j.id == "aaa.surge").unwrap().verdict, NotComparable);
}

#[test]
fn a_point_where_nothing_completed_was_run() {
    let mut rows = figure_2();
    let at_19 = |r: &ResultRow| r.point.get("loss") == Some("19 %") && r.point.get("protocol") == Some(TCP);
    rows.retain(|r| !at_19(r));
    assert_verdict(&rows, "aaa.hol.gap-19", NotRun, &["no point at loss 19"]);
    rows.extend(failure_rows(TCP, &[("19 %", 1.0)]));
    let said = ["no delay.mean at loss 19 with Diameter/TCP: nothing completed there"];
    assert_verdict(&rows, "aaa.hol.gap-19", NotComparable, &said);
    rows.retain(|r| &*r.metric != "delay.mean" || r.point.get("protocol") != Some(TCP));
    assert_verdict(
        &rows,
        "aaa.hol.widens",
        NotComparable,
        &["protocol = Diameter/TCP: nothing completed there"],
    );
}

#[test]
fn variants_are_judged_apart() {
    let mut rows = figure_2();
    assert_eq!(sensitivity_map(&RunResults::new(&rows)), None);
    for mut row in figure_2() {
        let axes: Vec<(String, String)> = row.point.axes().map(|(a, v)| (a.into(), v.into())).collect();
        let slow = row.point.get("protocol") == Some(TCP);
        row.point = GridPoint::new(axes.into_iter().chain([("variant".into(), "long RTO".into())]));
        row.value += if slow { 1.0 } else { 0.0 };
        rows.push(row);
    }
    let results = RunResults::new(&rows);
    assert_eq!(results.variants(), ["long RTO"]);
    assert_eq!(judge_claim_by_id(&rows, "aaa.hol.gap-5").verdict, Reproduced);
    let other = evaluate_claims(&results, "long RTO");
    assert_eq!(other.iter().find(|j| j.id == "aaa.hol.gap-5").unwrap().verdict, Differs);
    let map = sensitivity_map(&results).unwrap();
    let table = &map.tables[0];
    assert_eq!(table.rows.len(), 2);
    let heads: Vec<&str> = table.columns.iter().map(|c| c.title.as_str()).collect();
    assert_eq!(heads[..4], ["Choice", "reproduced", "partly", "hol.gap-5"]);
    assert!(!heads.contains(&"surge") && !heads.contains(&"average"), "{heads:?}");
    assert_eq!(table.rows[0][3], "0.5 s, ●\u{a0}reproduced".into());
    assert_eq!(table.rows[1][3], "1.5 s, ○\u{a0}differs".into());
    assert!(map.text.contains("the choice \"default\" reproduces all of them"), "{}", map.text);
}

#[test]
fn the_list_for_programs_has_seven_keys() {
    let judged = evaluate_all_claims(&RunResults::new(&figure_2()), DEFAULT_VARIANT);
    let text = judgements_json(&judged);
    assert!(text.starts_with("[\n  {\n    \"id\": \"aaa.setup\",\n    \"published\": "), "{text}");
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let keys = BTreeSet::from(["id", "published", "ours", "low", "high", "verdict", "reason"]);
    let list = read.as_array().unwrap();
    assert_eq!(list.len(), data::claims().len());
    for object in list {
        let object = object.as_object().unwrap();
        assert_eq!(object.keys().map(String::as_str).collect::<BTreeSet<_>>(), keys);
    }
    let gap = list.iter().find(|object| object["id"] == "aaa.hol.gap-5").unwrap();
    assert_eq!(
        (&gap["id"], &gap["published"], &gap["verdict"]),
        (&"aaa.hol.gap-5".into(), &0.5.into(), &"reproduced".into())
    );
    assert!(gap["low"].as_f64() < gap["ours"].as_f64() && gap["ours"].as_f64() < gap["high"].as_f64());
    let mut reordered = figure_2();
    reordered.reverse();
    assert_eq!(
        judgements_json(&evaluate_all_claims(&RunResults::new(&reordered), DEFAULT_VARIANT)),
        text,
        "the rows' order is nothing"
    );
}

#[test]
fn a_report_shows_claims_beside_their_figures() {
    let judged = evaluate_claims(&RunResults::new(&figure_2()), DEFAULT_VARIANT);
    let figure =
        usher_report::ReportFigure { name: "delay".to_owned(), ..usher_report::ReportFigure::default() };
    let mut sections =
        [usher_report::ReportSection { figures: vec![figure], ..usher_report::ReportSection::default() }];
    let claims = ["aaa.hol.gap-5".to_owned(), "aaa.hol.best".to_owned()];
    add_claim_tables(&mut sections, [("delay", &claims[..]), ("packets", &[][..])], &judged);
    assert_eq!(sections[0].tables[0].rows.len(), 2);
    let all = judgement_section(&judged);
    assert_eq!(all.tables[0].rows.len(), judged.len());
    assert!(all.text.contains(" reproduced, "), "{}", all.text);
}
