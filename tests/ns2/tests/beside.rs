//! Runs every scenario in both simulators. Fails if ns-2 or ns-3 is not installed.

use usher_ns2_tests::messages::{self, MessagePlan};
use usher_ns2_tests::ns3::{self, ScenarioProgram};
use usher_ns2_tests::transfer::{self, LostPackets};
use usher_ns2_tests::{
    CaseComparison, NS3_SCENARIO, ReferenceMeans, ReferenceRuns, SCENARIOS, WRITE, compare_ns3,
    compare_scenario, ns2_output, repository_root, scenario_directory,
};

/// Runs every case of a scenario in both simulators.
fn lines_of(scenario: &str) -> Vec<CaseComparison> {
    let lines =
        compare_scenario(scenario, ReferenceRuns::from_environment()).unwrap_or_else(|e| panic!("{e}"));
    assert!(lines.len() > 1, "{scenario} has cases");
    println!("{}", table_rows(&lines).join("\n"));
    lines
}

fn table_rows(lines: &[CaseComparison]) -> Vec<String> {
    lines.iter().map(CaseComparison::table_row).collect()
}

/// Checks that all cases agree and that the page shows each.
fn check_against_ns2(scenario: &str) {
    let lines = lines_of(scenario);
    assert!(
        lines.iter().all(CaseComparison::agrees),
        "{scenario} differs from ns-2:\n{}",
        table_rows(&lines).join("\n")
    );
    for (line, shown) in lines.iter().zip(shown_rows("docs/measurements/ns-2.md", scenario, &lines)) {
        assert!(shown.is_some(), "docs/measurements/ns-2.md lacks {}; {WRITE}=1 writes it", line.table_row());
    }
}

/// Returns the page's rows of these cases. With [`WRITE`], the page gets all of them.
fn shown_rows(page: &str, scenario: &str, lines: &[CaseComparison]) -> Vec<Option<String>> {
    let rows = table_rows(lines);
    let path = repository_root().join(page);
    let page = std::fs::read_to_string(&path).unwrap();
    if ReferenceRuns::from_environment() == ReferenceRuns::Record {
        // Only one test may write at a time: run with --test-threads 1.
        let own = format!("| `{scenario}` |");
        let first =
            page.lines().position(|l| l.starts_with(&own)).expect("the page has a row of the scenario");
        let mut kept: Vec<&str> = page.lines().filter(|l| !l.starts_with(&own)).collect();
        for (i, row) in rows.iter().enumerate() {
            kept.insert(first + i, row);
        }
        std::fs::write(&path, kept.join("\n") + "\n").unwrap();
        return rows.into_iter().map(Some).collect();
    }
    let shown = |line: &CaseComparison| {
        let cells = format!("| `{}` | `{}` | ", line.scenario, line.case);
        page.lines().find(|l| l.starts_with(&cells)).map(str::to_owned)
    };
    lines.iter().map(shown).collect()
}

#[test]
fn dialogues_over_reno_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-reno");
}

#[test]
fn sack_dialogues_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-sack");
}

#[test]
fn dialogues_with_nagles_algorithm_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-nagle");
}

#[test]
fn delayed_ack_dialogues_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-delack");
}

#[test]
fn dialogues_beside_background_traffic_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-background");
}

#[test]
fn dialogues_with_a_timeout_of_a_second_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-second");
}

#[test]
fn transfers_with_a_timeout_of_a_second_take_as_long_as_in_ns2() {
    check_against_ns2("tcp-transfer");
}

#[test]
fn datagrams_that_are_sent_again_take_as_long_as_in_ns2() {
    check_against_ns2("udp");
}

#[test]
fn a_transfer_over_sctp_takes_as_long_as_in_ns2() {
    check_against_ns2("sctp-ftp");
}

/// The page lists the differences from ns-3 and the agreements. With the same losses, nothing differs.
#[test]
fn dialogues_and_transfers_beside_ns3_come_out_as_the_page_says() {
    let program = ScenarioProgram::compile(NS3_SCENARIO).unwrap();
    the_same_packets_are_lost_in_ns3(&program);
    let lines = compare_ns3(&program, ReferenceRuns::from_environment()).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", table_rows(&lines).join("\n"));
    for (line, shown) in lines.iter().zip(shown_rows("docs/measurements/ns-3.md", NS3_SCENARIO, &lines)) {
        let row = line.table_row();
        let verdict = row.rsplit("| ").next().unwrap();
        let said = shown.unwrap_or_default();
        assert!(
            said.ends_with(verdict),
            "docs/measurements/ns-3.md has '{said}' for {row}; {WRITE}=1 writes it"
        );
    }
}

fn the_same_packets_are_lost_in_ns3(program: &ScenarioProgram) {
    let settings = "preset = \"ns-3\"\nretransmissions = \"unlimited\"\ntimestamps = false\nmss = \"536 B\"";
    let mut recording = ReferenceMeans::open("ns3-lost", ReferenceRuns::from_environment()).unwrap();
    for (loss, lists) in [(0.0, 1..=1), (0.05, 1..=6), (0.1, 1..=6), (0.2, 2..=6)] {
        for list in lists {
            let plan = ns3::dialogue_plan(400, 100_000, 200);
            let lost = LostPackets::draw_with_seed(loss, list);
            let run = || Ok(ns3::ns3_mean(program, &plan, &lost, &["timestamps", "0"])?.0);
            let theirs = recording.run_mean(&format!("loss {loss}"), list, list == 2, run).unwrap();
            let ours = ns3::delays_in_seconds(&plan, &lost, settings).unwrap();
            let ours = ours.iter().sum::<f64>() / ours.len() as f64;
            println!("loss {loss}, list {list}: ns-3 {theirs} s, usher {ours} s");
            assert!(
                (ours / theirs - 1.0).abs() < SAME_AS_NS3,
                "loss {loss}, list {list}: {theirs} s, {ours} s"
            );
        }
    }
    recording.write_recording().unwrap();
}

#[test]
fn an_sctp_transfer_matches_ns2_with_the_same_lost_packets() {
    let preset = "preset = \"ns-2\"";
    // At 1 and 2 % the windows grow until the queue overflows.
    let mut recording = ReferenceMeans::open("sctp-lost", ReferenceRuns::from_environment()).unwrap();
    for (loss, lists) in [(0.01, 2..=2), (0.02, 4..=5), (0.05, 1..=3), (0.1, 1..=4), (0.2, 4..=4)] {
        for list in lists {
            let lost = LostPackets::draw_with_seed(loss, list);
            let run = || transfer::ns2_mean(&lost);
            let theirs = recording.run_mean(&format!("loss {loss}"), list, list == 1, run).unwrap();
            let ours = transfer::simulated_mean(&lost, preset).unwrap();
            println!("loss {loss}, list {list}: ns-2 {theirs} s, usher {ours} s");
            // A delayed SACK or an extra retransmission would move the mean by more.
            assert!((ours / theirs - 1.0).abs() < 0.001, "loss {loss}, list {list}: {theirs} s, {ours} s");
        }
    }
    // The list distinguishes the two: RFC behaviour differs by this much.
    let lost = LostPackets::draw_with_seed(0.1, 1);
    let theirs = recording.run_mean("loss 0.1", 1, false, || transfer::ns2_mean(&lost)).unwrap();
    let rfc = transfer::simulated_mean(&lost, "preset = \"rfc\"").unwrap();
    recording.write_recording().unwrap();
    assert!((rfc / theirs - 1.0).abs() > 0.05, "{theirs} s, {rfc} s");
}

/// The largest difference with the same losses, as a share of ns-2's mean. A delayed or extra segment would move the
/// mean by more.
const SAME: f64 = 0.001;
/// The same for ns-3, whose link frames have 2 bytes more.
const SAME_AS_NS3: f64 = 0.002;

#[test]
fn tcp_messages_match_ns2_with_the_same_lost_packets() {
    let mut apart = Vec::new();
    let mut recording = ReferenceMeans::open("tcp-lost", ReferenceRuns::from_environment()).unwrap();
    for congestion in ["reno", "newreno", "sack"] {
        for plan in [MessagePlan::bulk_transfer, MessagePlan::small_dialogues] {
            for rto_min in [200, 1000] {
                let mut plan = plan(congestion, rto_min);
                if rto_min == 200 {
                    // If round trips determine the timeout, ticks are so short that their phase hardly matters.
                    plan.tick = 100;
                }
                // Other lists at 50 % have simultaneous events of both sides, whose order is random.
                let lists = [(0.0, 1), (0.01, 1), (0.02, 2), (0.05, 3), (0.1, 4), (0.2, 5), (0.5, 2)];
                for (loss, list) in lists {
                    let lost = LostPackets::draw_with_seed(loss, list);
                    let run = || messages::ns2_mean(&plan, &lost);
                    let theirs = recording
                        .run_mean(&format!("{plan:?}, loss {loss}"), list, loss == 0.1, run)
                        .unwrap();
                    let ours = messages::simulated_mean(&plan, &lost, "preset = \"ns-2\"").unwrap();
                    let line = format!("{plan:?}, loss {loss}: ns-2 {theirs} s, usher {ours} s");
                    println!("{line}");
                    if (ours / theirs - 1.0).abs() > SAME {
                        apart.push(line);
                    }
                }
            }
        }
    }
    recording.write_recording().unwrap();
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

#[test]
fn the_simulators_traces_of_sctp_are_what_ns2_prints() {
    let script = repository_root().join("tests/ns2/traces/sctp-losses.tcl");
    let kept = repository_root().join("networks/sim/src/sctp/tests");
    for (file, lost, until) in [
        ("ns2-once-and-twice", "5 6 14", "2.1"),
        ("ns2-behind-a-timeout", "5 8 9 13 17 22 23 28", "1.7"),
        ("ns2-timeouts", "8 12 18 19 21 22 24 26 27 30 33 35 40 41 44 46 49 52 53 57", "20"),
    ] {
        let arguments = ["lost", lost, "until", until].map(str::to_owned);
        let kept = std::fs::read_to_string(kept.join(format!("{file}.txt"))).unwrap();
        assert_eq!(ns2_output(&script, &arguments).unwrap(), kept, "{file}");
    }
}

#[test]
fn each_scenario_is_there_twice_and_no_other() {
    let mut names: Vec<String> = std::fs::read_dir(scenario_directory())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".toml"))
        .map(|n| n.replace(".toml", ""))
        .collect();
    names.sort();
    let mut known = [&SCENARIOS[..], &[NS3_SCENARIO]].concat();
    known.sort_unstable();
    assert_eq!(names, known);
    for name in known {
        let other = if name == NS3_SCENARIO { "cc" } else { "tcl" };
        assert!(scenario_directory().join(format!("{name}.{other}")).exists(), "{name}.{other}");
    }
}
