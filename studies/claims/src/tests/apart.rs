//! Statements that the first document describes without measurements: surges, connections, silly windows.

use super::*;
use crate::aaa::sws::READ_RATE;

fn metric_rows(study: &str, axes: &[(&str, &str)], metrics: &[(&str, f64)]) -> Vec<ResultRow> {
    metrics.iter().flat_map(|(metric, mean)| point_rows(study, axes, metric, *mean, 0.0)).collect()
}

/// A surge study: packets and delay with no avoidance and with each, at this load of the link.
fn surge_rows(
    study: &str,
    axis: &str,
    tcp: &str,
    load: f64,
    packets: [f64; 2],
    delay: [f64; 2],
) -> Vec<ResultRow> {
    let each = ["none", "Nagle", "delayed ACK", "both"].into_iter().flat_map(|avoidance| {
        let i = usize::from(avoidance != "none");
        let name = format!("{tcp}{avoidance}");
        let metrics = [("packets.core", packets[i]), ("delay.mean", delay[i]), ("load.core", load)];
        metric_rows(study, &[("nases", "24"), (axis, &name)], &metrics)
    });
    let other =
        metric_rows(study, &[("nases", "24"), (axis, "RADIUS/UDP, every 1 s")], &[("delay.mean", 9.0)]);
    each.chain(other).collect()
}

#[test]
fn avoidance_is_held_against_none_under_both_causes_of_a_surge() {
    let many =
        |load, packets, delay| surge_rows("aaa-many-nas", "protocol", "Diameter/TCP, ", load, packets, delay);
    let back = |packets, delay| {
        surge_rows("aaa-recovery", "policy", "Diameter/TCP, reconnect after 1 s, ", 0.3, packets, delay)
    };
    let (fewer, shorter) = ([8.0, 4.0], [2.0, 1.0]);
    let (more, longer) = ([4.0, 8.0], [1.0, 2.0]);
    let both = [many(1.2, fewer, shorter), back(fewer, shorter)].concat();
    let said = ["fewer packets at all 3 pairs of avoidance and point, and the opposite is significant at 0"];
    let judged = assert_verdict(&both, "aaa.surge", Reproduced, &said);
    assert_eq!(judged.ours, Some(ClaimValue::Text("helps in 4 of 4 parts".into())));
    // The contrary differs, and so does an absent effect.
    let contrary = [many(1.2, more, longer), back(more, longer)].concat();
    let said = ["fewer packets at 0 of 3 pairs of avoidance and point, and the opposite is significant at 3"];
    assert_verdict(&contrary, "aaa.surge", Differs, &said);
    let equal = [many(1.2, [4.0; 2], [1.0; 2]), back([4.0; 2], [1.0; 2])].concat();
    assert_verdict(&equal, "aaa.surge", Differs, &["at 0 of 3", "the opposite is significant at 0"]);
    let half = [many(1.2, fewer, longer), back(fewer, longer)].concat();
    assert_verdict(&half, "aaa.surge", Partly, &["shorter delay in aaa-recovery: differs"]);
    // Without overload of the link there is no surge to evaluate.
    let calm = [many(0.9, more, longer), back(fewer, shorter)].concat();
    assert_verdict(
        &calm,
        "aaa.surge",
        Partly,
        &["(1 points left out because the link is not overloaded", "in aaa-many-nas: not comparable"],
    );
    assert_verdict(&many(1.2, fewer, shorter), "aaa.surge", Partly, &["usher study run aaa-recovery"]);
    let mut three = back(fewer, shorter);
    three.retain(|r| !r.point.get("policy").unwrap().ends_with(", delayed ACK"));
    let three = [many(1.2, fewer, shorter), three].concat();
    assert_verdict(&three, "aaa.surge", Partly, &["aaa-recovery has no axis of avoidances"]);
    let bare = metric_rows("aaa-many-nas", &[("nases", "24")], &[("delay.mean", 1.0)]);
    assert_verdict(&bare, "aaa.surge", NotComparable, &["aaa-many-nas has no axis of avoidances"]);
    let mut single = both;
    single.retain(|r| r.replication == 0);
    assert_verdict(&single, "aaa.surge", NotComparable, &[]);
}

#[test]
fn the_korean_setting_is_held_part_by_part() {
    let judged = |set: &[(&str, AuthenticationStudySetup)]| {
        let rows: Vec<ResultRow> =
            set.iter().flat_map(|(study, _)| metric_rows(study, &[], &[("delay.mean", 1.0)])).collect();
        let mut results = RunResults::new(&rows);
        set.iter().for_each(|(study, access)| results.set_up(study, ClaimStudySetup::Access(access.clone())));
        let judged = evaluate_claims(&results, DEFAULT_VARIANT);
        let judged = judged.into_iter().find(|j| j.id == "aaa.setup-ko").unwrap();
        (judged.verdict, judged.reason)
    };
    let calm = AuthenticationStudySetup::documented_study_setup;
    let busy = || AuthenticationStudySetup {
        background: 0.85,
        background_least: 0.85,
        ..AuthenticationStudySetup::documented_study_setup()
    };
    let (verdict, reason) = judged(&[("aaa-hol", calm()), ("aaa-congestion", busy())]);
    assert!(verdict == Partly && reason.contains("not over PPP. Not checked: aaa-nagle"), "{reason}");
    assert!(reason.contains("Diameter: reproduced; 85 % other traffic: reproduced"), "{reason}");
    // A study that was not run is not reported as stated.
    let (_, reason) = judged(&[("aaa-hol", calm())]);
    assert!(reason.contains("aaa-congestion (not run: usher study run aaa-congestion)"), "{reason}");
    assert!(reason.contains("85 % other traffic: not comparable"), "{reason}");
    // Half a per cent is a deviation, because both rates are integers; and so is one point without other traffic.
    for off in [0.846, 0.0] {
        let (_, reason) =
            judged(&[("aaa-congestion", AuthenticationStudySetup { background_least: off, ..busy() })]);
        assert!(reason.contains("85 % other traffic: differs"), "{reason}");
    }
    let (_, reason) = judged(&[("aaa-hol", busy())]);
    assert!(reason.contains("aaa-hol: other traffic takes 85 % of the link, not 0 %"), "{reason}");
    let radius = AuthenticationStudySetup { aaa: vec!["RADIUS/UDP".to_owned()], ..calm() };
    let (verdict, reason) = judged(&[("aaa-hol", radius.clone())]);
    assert!(verdict == Differs && reason.contains("aaa-hol: RADIUS/UDP between NAS"), "{reason}");
    let beside =
        AuthenticationStudySetup { aaa: vec!["Diameter/TCP".to_owned(), "RADIUS/UDP".to_owned()], ..calm() };
    let (verdict, reason) = judged(&[("aaa-hol", beside), ("aaa-congestion", busy())]);
    assert!(verdict == Partly && reason.contains("aaa-hol also has RADIUS"), "{reason}");
    // Runs of earlier versions do not record it.
    let (_, reason) = judged(&[("aaa-hol", AuthenticationStudySetup { aaa: Vec::new(), ..calm() })]);
    assert!(
        reason.contains("the AAA protocol of aaa-hol") && reason.contains("Diameter: not comparable"),
        "{reason}"
    );
    // With deviations in more than half, the verdict is not "partly".
    let (verdict, _) = judged(&[
        ("aaa-hol", AuthenticationStudySetup { radio: false, ..radius }),
        ("aaa-congestion", busy()),
    ]);
    assert_eq!(verdict, Differs);
}

#[test]
fn one_connection_is_held_against_one_for_each_port() {
    let of = |connections: &str, loss: &str, open, [packets, memory, delay, blocked]: [f64; 4]| {
        let axes = [("loss", loss), ("connections", connections)];
        let metrics = [
            ("packets.core", packets),
            ("memory.server", memory),
            ("delay.mean", delay),
            ("tcp.blocked", blocked),
        ];
        let exact = point_rows("aaa-connections", &axes, "connections.server", open, 0.0);
        let exact = exact.into_iter().map(|r| ResultRow { value: open, ..r }).collect();
        [metric_rows("aaa-connections", &axes, &metrics), exact].concat()
    };
    let rows = |ports: f64, one: [f64; 4], each: [f64; 4]| {
        [
            of("one connection", "0 %", 1.0, [4.0, 900.0, 0.1, 0.0]),
            of("48 connections", "0 %", ports, [5.0, 16_000.0, 0.1, 0.0]),
            of("one connection", "10 %", 1.0, one),
            of("48 connections", "10 %", ports, each),
        ]
        .concat()
    };
    let (less, more) = ([6.0, 2000.0, 0.5, 0.75], [7.0, 17_000.0, 0.4, 0.125]);
    let said = [
        "connections at the server, 1 and 48 at 0 % loss",
        "packets per authentication, 4 and 5 at 0 % loss, 6 and 7 at 10 % loss",
        "900 and 16000 at 0 % loss",
        "0.1 and 0.1 at 0 % loss, 0.5 and 0.4 at 10 % loss",
        "0 and 0 at 0 % loss, 0.75 and 0.125 at 10 % loss",
    ];
    let stated = rows(48.0, less, more);
    let judged = assert_verdict(&stated, "aaa.connections", Reproduced, &said);
    assert_eq!(judged.ours, Some(ClaimValue::Text("5 of 5 parts".into())));
    // One connection that costs more and blocks less is the contrary of the statement.
    let contrary = |row: &ResultRow| {
        let other = if row.point.get("connections") == Some("one connection") {
            "48 connections"
        } else {
            "one connection"
        };
        ResultRow {
            point: GridPoint::new([("loss", row.point.get("loss").unwrap()), ("connections", other)]),
            ..row.clone()
        }
    };
    let swapped: Vec<ResultRow> = stated.iter().map(contrary).collect();
    assert_verdict(
        &swapped,
        "aaa.connections",
        Differs,
        &["less memory for one connection: differs", "one connection blocks more: differs"],
    );
    let equal = rows(48.0, more, more);
    assert_verdict(
        &equal,
        "aaa.connections",
        Differs,
        &["one connection blocks more: differs; one connection is slower under loss: differs"],
    );
    assert_verdict(
        &rows(47.0, less, more),
        "aaa.connections",
        Partly,
        &["as many connections as ports: differs"],
    );
    let without: Vec<ResultRow> = stated.into_iter().filter(|r| &*r.metric != "memory.server").collect();
    assert!(
        judge_claim_by_id(&without, "aaa.connections").verdict >= NotComparable,
        "nothing to say of memory"
    );
}

#[test]
fn one_byte_travels_in_forty_one_until_something_helps() {
    let of = |slow: &str, avoidance: &str, metric: &str, value: f64| {
        let axes = [("slow", slow), ("octets", "1 B"), ("avoidance", avoidance)];
        let row = |replication| ResultRow {
            study: "aaa-sws".into(),
            point: GridPoint::new(axes),
            replication,
            metric: metric.into(),
            value,
        };
        [row(0), row(1)]
    };
    // The shares of a slow side alone, with its remedy, and the wait of the reader's acknowledgements.
    let waiting = |[sender, reader]: [f64; 2], nagle: f64, delayed: f64, waits: f64| {
        let each = |slow, alone| {
            [("none", alone), ("Nagle", nagle), ("delayed ACK", delayed), ("silly-window avoidance", 0.9)]
                .map(|(a, share)| of(slow, a, "tcp.data-share", share))
                .concat()
        };
        let size = of("reader", "delayed ACK", "tcp.segment-size", waits * READ_RATE);
        [each("sender", sender), each("reader", reader), size.to_vec()].concat()
    };
    let rows = |alone: f64, nagle: f64, delayed: f64| waiting([alone; 2], nagle, delayed, 0.2);
    let one_in_41 = 1.0 / 41.0;
    let said = [
        "With a slow sender of one byte",
        "With Nagle it is 32.5 %",
        "With delayed ACK it is 83 %",
        "avoidance alone 90 %",
        "0.2 s (0.2 to 0.2 s)",
        "at most 500 ms: reproduced",
    ];
    let judged = assert_verdict(&rows(one_in_41, 0.325, 0.83), "aaa.sws", Reproduced, &said);
    assert_eq!(judged.ours, Some(ClaimValue::Text("1 byte in 41 (sender), 1 byte in 41 (reader)".into())));
    assert_verdict(&rows(one_in_41, one_in_41, 0.83), "aaa.sws", Partly, &["Nagle, sender: differs"]);
    assert_verdict(&rows(0.05, 0.04, 0.04), "aaa.sws", Differs, &["1 in 41, sender: differs"]);
    // If only one side has the figure, the statement is not reproduced, with any remedy.
    let half = ["1 in 41, sender: reproduced", "1 in 41, reader: differs", "delayed ACK, reader: reproduced"];
    assert_verdict(&waiting([one_in_41, 0.05], 0.325, 0.83, 0.2), "aaa.sws", Differs, &half);
    let late = ["0.501 s (0.501 to 0.501 s)", "at most 500 ms: differs"];
    assert_verdict(&waiting([one_in_41; 2], 0.325, 0.83, 0.501), "aaa.sws", Partly, &late);
}

/// The wait of an acknowledgement follows from the octets read meanwhile.
#[test]
fn the_slow_reader_is_as_slow_as_its_judge_takes_it_for() {
    use usher_scenario::{PlanOverrides, Study, StudyMode};
    let plan =
        Study::open("aaa-sws").unwrap().build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    let slow = plan.points.iter().filter(|p| p.axis_setting("slow").is_some_and(|s| s.text == "reader"));
    let rates: BTreeSet<u64> =
        slow.map(|p| p.scenario.transport.tcp.read_rate.get().unwrap().bits_per_second()).collect();
    assert_eq!(rates, BTreeSet::from([(8.0 * READ_RATE) as u64]));
}
