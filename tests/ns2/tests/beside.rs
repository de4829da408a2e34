//! Every scenario in both simulators. Where ns-2 or ns-3 is not installed they fail.

use usher_ns2_tests::messages::{self, Plan};
use usher_ns2_tests::ns3::{self, ScenarioProgram};
use usher_ns2_tests::transfer::{self, Lost};
use usher_ns2_tests::{
    Line, NS3_SCENARIO, ReferenceMeans, ReferenceRuns, SCENARIOS, WRITE, compare, compare_ns3, folder,
    printed, root,
};

/// Both simulators on every case of a scenario.
fn lines_of(scenario: &str) -> Vec<Line> {
    let lines = compare(scenario, ReferenceRuns::from_environment()).unwrap_or_else(|e| panic!("{e}"));
    assert!(lines.len() > 1, "{scenario} has cases");
    println!("{}", rows(&lines).join("\n"));
    lines
}

fn rows(lines: &[Line]) -> Vec<String> {
    lines.iter().map(Line::row).collect()
}

/// All cases agree, and the page shows each.
fn beside(scenario: &str) {
    let lines = lines_of(scenario);
    assert!(lines.iter().all(Line::agrees), "{scenario} differs from ns-2:\n{}", rows(&lines).join("\n"));
    for (line, shown) in lines.iter().zip(shown_rows("docs/ns-2.md", scenario, &lines)) {
        assert!(shown.is_some(), "docs/ns-2.md lacks {}; {WRITE}=1 writes it", line.row());
    }
}

/// The rows that a page has of these cases. With [`WRITE`] the page has all of them.
fn shown_rows(page: &str, scenario: &str, lines: &[Line]) -> Vec<Option<String>> {
    let rows = rows(lines);
    let path = root().join(page);
    let page = std::fs::read_to_string(&path).unwrap();
    if ReferenceRuns::from_environment() == ReferenceRuns::Record {
        // One test at a time writes: run it with --test-threads 1.
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
    let shown = |line: &Line| {
        let cells = format!("| `{}` | `{}` | ", line.scenario, line.case);
        page.lines().find(|l| l.starts_with(&cells)).map(str::to_owned)
    };
    lines.iter().map(shown).collect()
}

#[test]
fn dialogues_over_reno_take_as_long_as_in_ns2() {
    beside("tcp-reno");
}

#[test]
fn dialogues_with_selective_acknowledgements_take_as_long_as_in_ns2() {
    beside("tcp-sack");
}

#[test]
fn dialogues_with_nagles_algorithm_take_as_long_as_in_ns2() {
    beside("tcp-nagle");
}

#[test]
fn dialogues_with_delayed_acknowledgements_take_as_long_as_in_ns2() {
    beside("tcp-delack");
}

#[test]
fn dialogues_beside_background_traffic_take_as_long_as_in_ns2() {
    beside("tcp-background");
}

#[test]
fn dialogues_with_a_timeout_of_a_second_take_as_long_as_in_ns2() {
    beside("tcp-second");
}

#[test]
fn transfers_with_a_timeout_of_a_second_take_as_long_as_in_ns2() {
    beside("tcp-transfer");
}

#[test]
fn datagrams_that_are_sent_again_take_as_long_as_in_ns2() {
    beside("udp");
}

#[test]
fn a_transfer_over_sctp_takes_as_long_as_in_ns2() {
    beside("sctp-ftp");
}

/// What differs from ns-3 stands on the page as that, and what agrees as that. Where both lose the same packets, nothing differs.
#[test]
fn dialogues_and_transfers_beside_ns3_come_out_as_the_page_says() {
    let program = ScenarioProgram::compile(NS3_SCENARIO).unwrap();
    the_same_packets_are_lost_in_ns3(&program);
    let lines = compare_ns3(&program, ReferenceRuns::from_environment()).unwrap_or_else(|e| panic!("{e}"));
    println!("{}", rows(&lines).join("\n"));
    for (line, shown) in lines.iter().zip(shown_rows("docs/ns-3.md", NS3_SCENARIO, &lines)) {
        let row = line.row();
        let verdict = row.rsplit("| ").next().unwrap();
        let said = shown.unwrap_or_default();
        assert!(said.ends_with(verdict), "docs/ns-3.md has '{said}' for {row}; {WRITE}=1 writes it");
    }
}

fn the_same_packets_are_lost_in_ns3(program: &ScenarioProgram) {
    let settings = "preset = \"ns-3\"\nretransmissions = \"unlimited\"\ntimestamps = false\nmss = \"536 B\"";
    let mut recording = ReferenceMeans::open("ns3-lost", ReferenceRuns::from_environment()).unwrap();
    for (loss, lists) in [(0.0, 1..=1), (0.05, 1..=6), (0.1, 1..=6), (0.2, 2..=6)] {
        for list in lists {
            let plan = ns3::plan(400, 100_000, 200);
            let lost = Lost::draw(loss, list);
            let run = || Ok(ns3::theirs(program, &plan, &lost, &["timestamps", "0"])?.0);
            let theirs = recording.mean(&format!("loss {loss}"), list, list == 2, run).unwrap();
            let ours = ns3::ours(&plan, &lost, settings).unwrap();
            let ours = ours.iter().sum::<f64>() / ours.len() as f64;
            println!("loss {loss}, list {list}: ns-3 {theirs} s, usher {ours} s");
            assert!(
                (ours / theirs - 1.0).abs() < SAME_AS_NS3,
                "loss {loss}, list {list}: {theirs} s, {ours} s"
            );
        }
    }
    recording.close().unwrap();
}

#[test]
fn a_transfer_over_sctp_goes_as_in_ns2_where_the_same_packets_are_lost() {
    let preset = "preset = \"ns-2\"";
    // At 1 and 2 % the windows grow until the queue overflows.
    let mut recording = ReferenceMeans::open("sctp-lost", ReferenceRuns::from_environment()).unwrap();
    for (loss, lists) in [(0.01, 2..=2), (0.02, 4..=5), (0.05, 1..=3), (0.1, 1..=4), (0.2, 4..=4)] {
        for list in lists {
            let lost = Lost::draw(loss, list);
            let run = || transfer::theirs(&lost);
            let theirs = recording.mean(&format!("loss {loss}"), list, list == 1, run).unwrap();
            let ours = transfer::ours(&lost, preset).unwrap();
            println!("loss {loss}, list {list}: ns-2 {theirs} s, usher {ours} s");
            // A SACK that comes later, or a chunk that is sent again once more, moves the mean by more.
            assert!((ours / theirs - 1.0).abs() < 0.001, "loss {loss}, list {list}: {theirs} s, {ours} s");
        }
    }
    // The list tells the two apart: so far off is what the RFC has.
    let lost = Lost::draw(0.1, 1);
    let theirs = recording.mean("loss 0.1", 1, false, || transfer::theirs(&lost)).unwrap();
    let rfc = transfer::ours(&lost, "preset = \"rfc\"").unwrap();
    recording.close().unwrap();
    assert!((rfc / theirs - 1.0).abs() > 0.05, "{theirs} s, {rfc} s");
}

/// How far apart both may be where they lose the same packets, as a share of ns-2's mean: a segment that leaves later, or once
/// more, moves it by more.
const SAME: f64 = 0.001;
/// The same of ns-3, whose link has a frame of 2 bytes more.
const SAME_AS_NS3: f64 = 0.002;

#[test]
fn messages_over_tcp_go_as_in_ns2_where_the_same_packets_are_lost() {
    let mut apart = Vec::new();
    let mut recording = ReferenceMeans::open("tcp-lost", ReferenceRuns::from_environment()).unwrap();
    for congestion in ["reno", "newreno", "sack"] {
        for plan in [Plan::transfer, Plan::dialogues] {
            for rto_min in [200, 1000] {
                let mut plan = plan(congestion, rto_min);
                if rto_min == 200 {
                    // Where round trips decide on the timeout, ticks are so short that it matters little where they begin.
                    plan.tick = 100;
                }
                // Other lists at 50 % have events of both sides at the same instant, whose order is chance.
                let lists = [(0.0, 1), (0.01, 1), (0.02, 2), (0.05, 3), (0.1, 4), (0.2, 5), (0.5, 2)];
                for (loss, list) in lists {
                    let lost = Lost::draw(loss, list);
                    let run = || messages::theirs(&plan, &lost);
                    let theirs =
                        recording.mean(&format!("{plan:?}, loss {loss}"), list, loss == 0.1, run).unwrap();
                    let ours = messages::ours(&plan, &lost, "preset = \"ns-2\"").unwrap();
                    let line = format!("{plan:?}, loss {loss}: ns-2 {theirs} s, usher {ours} s");
                    println!("{line}");
                    if (ours / theirs - 1.0).abs() > SAME {
                        apart.push(line);
                    }
                }
            }
        }
    }
    recording.close().unwrap();
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

#[test]
fn the_simulators_traces_of_sctp_are_what_ns2_prints() {
    let script = root().join("tests/ns2/traces/sctp-losses.tcl");
    let kept = root().join("networks/sim/src/sctp/tests");
    for (file, lost, until) in [
        ("ns2-once-and-twice", "5 6 14", "2.1"),
        ("ns2-behind-a-timeout", "5 8 9 13 17 22 23 28", "1.7"),
        ("ns2-timeouts", "8 12 18 19 21 22 24 26 27 30 33 35 40 41 44 46 49 52 53 57", "20"),
    ] {
        let arguments = ["lost", lost, "until", until].map(str::to_owned);
        let kept = std::fs::read_to_string(kept.join(format!("{file}.txt"))).unwrap();
        assert_eq!(printed(&script, &arguments).unwrap(), kept, "{file}");
    }
}

#[test]
fn each_scenario_is_there_twice_and_no_other() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
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
        assert!(folder().join(format!("{name}.{other}")).exists(), "{name}.{other}");
    }
}
