//! `usher study run`

use crate::place::{ProgramOutput, STUDY, TempDir, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Stdio;

#[test]
fn the_same_bytes_with_one_job_and_with_two() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let one = place.run_usher(&["study", "run", "mine.toml", "--jobs", "1", "--out", "one"]).with_code(0);
    place.run_usher(&["study", "run", "mine.toml", "--jobs", "2"]).with_code(0);
    assert!(place.result_files("one") == place.result_files("out/mine-default"));
    assert_eq!(one.out.lines().last(), Some("report: one/report.html"));
    for file in ["report.html", "manifest.json", "claims.json", "figures/delay.svg"] {
        assert!(place.path("one").join(file).exists(), "{file}");
    }
    let report = std::fs::read_to_string(place.path("one/report.html")).unwrap();
    assert!(report.contains("What does loss cost a dialogue?") && !report.contains("partial:"));
    let manifest = std::fs::read_to_string(place.path("one/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!((&manifest["complete"], &manifest["points"]), (&true.into(), &4.into()));
    assert!(manifest["packet_hops"].as_u64().unwrap() > 1000);
    place.run_usher(&["study", "run", "mine.toml", "--seed", "2", "--out", "two"]).with_code(0);
    assert!(place.result_files("one") != place.result_files("two"), "another seed is other chance");
}

#[test]
fn the_same_bytes_where_threads_share_a_replication() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.run_usher(&["study", "run", "mine.toml", "--quick", "--out", "one"]).with_code(0);
    for threads in ["2", "4"] {
        let said = place.run_usher(&[
            "study",
            "run",
            "mine.toml",
            "--quick",
            "--threads",
            threads,
            "--out",
            threads,
        ]);
        let said = said.with_code(0);
        assert!(place.result_files("one") == place.result_files(threads), "{threads}");
        let manifest = std::fs::read_to_string(place.path(threads).join("manifest.json")).unwrap();
        let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        let all = &manifest["replications"];
        assert_eq!((&manifest["halved"], &manifest["undecided"]), (all, &serde_json::Value::Null));
        assert!(
            said.out.contains(&format!("\nreplications divided between two threads: {all}\n")),
            "{}",
            said.out
        );
    }
    let said = place.run_usher(&["study", "run", "mine.toml", "--on", "lab", "--threads", "2"]).with_code(2);
    assert!(said.err.contains("--threads"), "{}", said.err);
}

#[test]
fn a_study_whose_dialogues_fail_says_so_first() {
    let place = TempDir::new();
    // A reply takes 14.6 ms, and longer if it waits for others on the link.
    let hasty = STUDY.replace("transport = \"tcp\"\n", "transport = \"tcp\"\ngive_up = \"16 ms\"\n");
    place.write("hasty.toml", &hasty);
    let run = &["study", "run", "hasty.toml", "--set", "loss=0 %", "--out", "h"];
    let said = place.run_usher(run).with_code(0);
    let lines: Vec<&str> = said.out.lines().collect();
    let line = lines[1];
    assert!(line.starts_with("Dialogues failed at ") && line.contains(" of 2 points: "), "{}", said.out);
    assert!(line.ends_with("Delays cover only those that ended well."), "{}", said.out);
    let report = std::fs::read_to_string(place.path("h/report.html")).unwrap();
    let at = |text: &str| report.find(text).unwrap_or_else(|| panic!("{text}: {report}"));
    assert!(at("role=\"alert\">Dialogues failed at ") < at("class=\"findings\""));
    let json = place.run_usher(&[run, &["--json", "--force"][..]].concat()).with_code(0).stdout_json();
    assert!(json[0]["failing"]["share"].as_f64().unwrap() > 0.01, "{json}");
    // A study without failures has no such line.
    place.write("mine.toml", STUDY);
    let said =
        place.run_usher(&["study", "run", "mine.toml", "--set", "loss=0 %", "--out", "m"]).with_code(0);
    assert!(!said.out.contains("failed"), "{}", said.out);
}

#[test]
fn a_row_is_run_again_alone_by_the_line_that_the_report_prints() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place
        .run_usher(&["study", "run", "mine.toml", "--seed", "7", "--set", "loss=3 %", "--out", "r"])
        .with_code(0);
    let report = std::fs::read_to_string(place.path("r/report.html")).unwrap();
    let line = "usher study run mine.toml --seed 7 --set 'loss=3 %' --point 'loss=3 %; protocol=TCP, plain' --replication ";
    let escaped = line.replace('\'', "&#39;");
    assert!(report.contains(line) || report.contains(&escaped), "the report prints {line}");
    let alone = place.run_shell(&format!("{line}2")).with_code(0);
    let csv = std::fs::read_to_string(place.path("r/results.csv")).unwrap();
    let row = csv.lines().find(|l| l.starts_with("mine,3 %,\"TCP, plain\",2,delay.mean,")).unwrap();
    let value = row.rsplit(',').next().unwrap();
    assert!(
        alone.out.lines().any(|l| l.split_whitespace().eq(["delay.mean", value])),
        "{row}: {}",
        alone.out
    );
    let json = place.run_shell(&format!("{line}2 --json")).with_code(0).stdout_json();
    assert_eq!(json["metrics"]["delay.mean"].as_f64().unwrap().to_string(), value);
}

#[test]
fn the_rehearsal_gives_the_numbers_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let place = TempDir::new();
    let study = root.join("docs/rehearsal/rehearsal.toml");
    place.run_usher(&["study", "run", study.to_str().unwrap(), "--out", "r"]).with_code(0);
    let summary = std::fs::read_to_string(place.path("r/summary.csv")).unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    for threads in [1, 2, 4] {
        let row =
            summary.lines().find(|l| l.starts_with(&format!("rehearsal,{threads},delay.p99,s,10,"))).unwrap();
        let value = |name| {
            let column =
                summary.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
            row.split(',').nth(column).unwrap().parse::<f64>().unwrap() * 1e3
        };
        let [mean, low, high] = ["mean", "mean_low", "mean_high"].map(value);
        let line = format!("| {threads} | {mean:.0} ms ({low:.0} to {high:.0} ms) |");
        assert!(readme.lines().any(|l| l == line), "README does not say: {line}");
    }
}

/// Starts a run and interrupts it when its journal has this many lines. If it ended first, it is started again with
/// twice the work. Returns its output and its amount of work.
#[track_caller]
fn interrupt_run(
    place: &TempDir,
    (folder, journal, lines): (&str, &str, usize),
    arguments: impl Fn(u32) -> Vec<String>,
) -> (ProgramOutput, u32) {
    for much in [1, 2, 4, 8, 16] {
        let arguments = arguments(much);
        let mut command = place.usher_command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let written = || std::fs::read_to_string(place.path(journal)).map_or(0, |text| text.lines().count());
        wait_until("the run comes on", || written() >= lines || child.try_wait().unwrap().is_some());
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        let said = ProgramOutput::from_output(child.wait_with_output().unwrap());
        if said.code != Some(0) {
            return (said, much);
        }
        std::fs::remove_dir_all(place.path(folder)).unwrap();
    }
    panic!("a run is not interrupted, however long it is");
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn an_interrupted_run_leaves_a_partial_report_and_goes_on() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let run = |jobs: &str, out: &str, much: u32| {
        let replications = (80 * much).to_string();
        to_strings(&[
            "study",
            "run",
            "mine.toml",
            "--jobs",
            jobs,
            "--out",
            out,
            "--replications",
            &replications,
        ])
    };
    let (part, much) = interrupt_run(&place, ("parts", "parts/journal", 5), |much| run("2", "parts", much));
    let part = part.with_code(130);
    assert!(part.out.contains("report: parts/report.html"), "{part:?}");
    let report = std::fs::read_to_string(place.path("parts/report.html")).unwrap();
    assert!(report.contains("These results are partial"));
    let manifest = std::fs::read_to_string(place.path("parts/manifest.json")).unwrap();
    assert!(manifest.contains("\"complete\": false"));
    let resume = part.err.lines().last().unwrap().split_once("resume with: ").unwrap().1;
    let rest = place.run_shell(resume).with_code(0);
    assert!(rest.out.contains("from an earlier run"), "{}", rest.out);
    let whole = run("1", "whole", much);
    place.run_usher(&whole.iter().map(String::as_str).collect::<Vec<_>>()).with_code(0);
    assert!(place.result_files("parts") == place.result_files("whole"));
}

/// A study with one replication and long post-processing: its dialogues run again for a figure or as message flows.
fn long_study(much: u32, more: &str) -> String {
    let duration = format!("duration = \"{} s\"", 20_000 * much);
    let long = STUDY.replace("duration = \"20 s\"", &duration).replace("\nmax = 12", "\nmax = 1");
    let long = long.replace("\nmin = 3", "\nmin = 1");
    format!("{long}\n{more}")
}

#[test]
fn an_interrupt_while_drawing_is_reported_and_ends_the_group() {
    let place = TempDir::new();
    let figure = "[[figures]]\nname = \"each\"\ntitle = \"E\"\nkind = \"cdf\"\ny = \"delay.mean\"\nseries = [\"loss\", \"protocol\"]\n";
    place.write("other.toml", STUDY);
    let run = ["study", "run", "mine.toml", "other.toml", "--quick", "--set", "protocol=UDP", "--out", "r"];
    let (part, _) = interrupt_run(&place, ("r", "r/mine-quick/journal", 2), |much| {
        place.write("mine.toml", &long_study(much, figure));
        to_strings(&run)
    });
    let part = part.with_code(130);
    assert!(
        part.err.contains("single dialogues are incomplete\nmine: 1 of 1 points are complete"),
        "{part:?}"
    );
    let report = std::fs::read_to_string(place.path("r/mine-quick/report.html")).unwrap();
    assert!(report.contains("These results are partial: the rows are complete"));
    assert!(!place.path("r/other-quick").exists());
    let run = ["study", "run", "mine.toml", "--quick", "--set", "protocol=UDP", "--ladder", "--out", "l"];
    let (part, _) = interrupt_run(&place, ("l", "l/journal", 2), |much| {
        place.write("mine.toml", &long_study(much, ""));
        to_strings(&run)
    });
    let part = part.with_code(130);
    assert!(part.err.contains("single dialogues are incomplete\n"), "{part:?}");
}

#[test]
fn a_run_goes_on_after_a_comment_was_added_to_its_study() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let run = ["study", "run", "mine.toml", "--quick", "--out", "r"];
    place.run_usher(&run).with_code(0);
    place.write("mine.toml", &format!("# A thought.\n{STUDY}"));
    let said = place.run_usher(&run).with_code(0);
    assert!(said.out.contains("from an earlier run"), "{}", said.out);
}

#[test]
fn points_that_came_to_their_limit_are_named() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    // Three replications seldom agree to a thousandth if packets are lost.
    let run =
        ["study", "run", "mine.toml", "--set", "loss=5 %", "--set", "run.replications.precision=0.001 %"];
    let run =
        [&run[..], &["--set", "run.replications.max=3", "--set", "run.replications.min=2", "--out", "r"]]
            .concat();
    let said = place.run_usher(&run).with_code(0);
    assert!(
        said.out.contains("2 points reached the limit of replications before the requested precision:\n  loss=5 %; protocol="),
        "{}",
        said.out
    );
    let manifest = std::fs::read_to_string(place.path("r/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["at_limit_of_replications"].as_str().unwrap().lines().count(), 2);
    let json = place.run_usher(&[&run[..], &["--json", "--force"]].concat()).with_code(0).stdout_json();
    assert_eq!(json[0]["at_limit"].as_array().unwrap().len(), 2);
}

#[test]
fn folders_are_not_overwritten_unasked() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.run_usher(&["study", "run", "mine.toml", "--quick", "--out", "r"]).with_code(0);
    let rows = place.result_files("r");
    let other = ["study", "run", "mine.toml", "--quick", "--seed", "9", "--out", "r"];
    let refused = place.run_usher(&other).with_code(2);
    assert!(refused.err.contains("another plan") && refused.err.contains("--force"), "{}", refused.err);
    assert!(place.result_files("r") == rows);
    place.run_usher(&[&other[..], &["--force"]].concat()).with_code(0);
    assert!(place.result_files("r") != rows);
    std::fs::create_dir(place.path("thesis")).unwrap();
    place.write("thesis/chapter.tex", "mine");
    let foreign = place.run_usher(&["study", "run", "mine.toml", "--out", "thesis", "--force"]).with_code(2);
    assert!(foreign.err.contains("chapter.tex"), "{}", foreign.err);
    let file = place.run_usher(&["study", "run", "mine.toml", "--out", "mine.toml"]).with_code(1);
    assert!(file.err.contains("mine.toml"), "{}", file.err);
}

/// A limit on file sizes stands for a full disk.
#[test]
fn a_full_disk_is_said_and_what_was_done_is_kept() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let run = "usher study run mine.toml --replications 20 --jobs 2 --out r";
    let full = place.run_shell(&format!("trap '' XFSZ; ulimit -f 4; {run}")).with_code(1);
    assert!(full.err.contains("cannot write r/journal"), "{}", full.err);
    assert!(full.err.contains("resume with: usher study run mine.toml"), "{}", full.err);
    assert!(!full.err.contains("panicked"), "{}", full.err);
    let journal = std::fs::read_to_string(place.path("r/journal")).unwrap();
    assert!(journal.lines().count() > 3 && journal.ends_with('\n'));
    let rest = place.run_shell(run).with_code(0);
    assert!(rest.out.contains("from an earlier run"), "{}", rest.out);
}

#[test]
fn a_dry_run_counts_and_runs_nothing_for_good() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let text = place.run_usher(&["study", "run", "mine.toml", "--dry-run", "--jobs", "2"]).with_code(0).out;
    assert!(text.starts_with("mine: 4 points, 12 to 48 replications, about "), "{text}");
    let json =
        place.run_usher(&["study", "run", "mine.toml", "--dry-run", "--json"]).with_code(0).stdout_json();
    assert_eq!((&json[0]["points"], &json[0]["replications"][1]), (&4.into(), &48.into()));
    assert!(json[0]["seconds"][0].as_f64().unwrap() > 0.0);
    assert!(!place.path("out").exists());
}

#[test]
fn captures_are_written_where_they_are_asked_for() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.run_usher(&["study", "run", "mine.toml", "--quick", "--pcap=line"]).with_code(0);
    let captures = std::fs::read_dir(place.path("out/mine-quick/captures")).unwrap().flatten();
    let captures = captures.filter(|c| c.file_name() != "links.txt");
    let sizes: Vec<u64> = captures.map(|c| c.metadata().unwrap().len()).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|s| *s > 10_000), "{sizes:?}");
    let alone = place
        .run_usher(&["study", "run", "mine.toml", "--point", "loss=5 %, protocol=UDP", "--pcap"])
        .with_code(0);
    assert!(alone.out.ends_with("capture: mine-0003-0.pcapng\n"), "{}", alone.out);
    assert!(place.path("mine-0003-0.pcapng").exists());
}

#[test]
fn captures_of_several_studies_are_of_those_that_have_the_link() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.write("other.toml", &STUDY.replace("links.line", "links.wire"));
    let run = |pcap: &str| {
        place.run_usher(&[
            "study",
            "run",
            "mine.toml",
            "other.toml",
            "--quick",
            "--out",
            "both",
            "--force",
            pcap,
        ])
    };
    let said = run("--pcap=line").with_code(0);
    assert!(said.err.contains("other has none of the links of --pcap, and gets no captures"), "{}", said.err);
    let captures = |study: &str| {
        let files =
            std::fs::read_dir(place.path(&format!("both/{study}-quick/captures"))).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&format!("{study}-")) && name.ends_with(".pcapng")).count()
    };
    assert_eq!((captures("mine"), captures("other")), (2, 0));
    run("--pcap").with_code(0);
    assert_eq!((captures("mine"), captures("other")), (2, 2));
    let none = run("--pcap=cable").with_code(2);
    assert!(
        none.err.contains("--pcap=cable: mine has no such link; its links are line, and no other study"),
        "{}",
        none.err
    );
}

#[test]
fn captures_of_recorded_handshakes_say_so() {
    let place = TempDir::new();
    place.run_usher(&["study", "new", "--kind", "eap", "login.toml"]).with_code(0);
    let point = "loss=0 %, protocol=RADIUS, nagle=off";
    let capture = |handshake: &str| {
        let handshake = format!("workload.eap_tls.handshake={handshake}");
        let words = ["study", "run", "login.toml", "--point", point, "--pcap=wan", "--set", &handshake];
        let short =
            ["--set", "run.duration=1 s", "--set", "run.warmup=0 s", "--set", "hosts.station.count=2"];
        let said = place.run_usher(&[&words[..], &short[..]].concat()).with_code(0);
        let file = said.out.lines().find_map(|line| line.strip_prefix("capture: ")).unwrap();
        (said.err, std::fs::read(place.path(file)).unwrap())
    };
    let remark = "repeat one recorded handshake";
    let holds = |bytes: &[u8]| bytes.windows(remark.len()).any(|window| window == remark.as_bytes());
    let (said, recorded) = capture("recorded");
    assert!(said.contains(remark) && holds(&recorded), "{said}");
    let (said, real) = capture("real");
    assert!(!said.contains(remark) && !holds(&real), "{said}");
}

#[test]
fn captures_of_other_links_take_the_place_of_those_before() {
    let place = TempDir::new();
    let second = "[hosts.router]\n[links.line]\nbetween = [\"client\", \"router\"]\n";
    let two = STUDY.replace("[links.line]\nbetween = [\"client\", \"server\"]\n", second);
    let far = "[links.far]\nbetween = [\"router\", \"server\"]\nrate = \"2 Mb/s\"\n[workload]\n";
    let two = two.replace("[workload]\n", far);
    let study = |links: &str| place.write("mine.toml", &format!("{two}\n[capture]\nlinks = [{links}]\n"));
    let captured = |pcap: &str| {
        place.run_usher(&["study", "run", "mine.toml", "--quick", "--out", "r", pcap]).with_code(0);
        let text = std::fs::read_to_string(place.path("r/captures/links.txt")).unwrap();
        let file = text.lines().next().unwrap().split('\t').next().unwrap();
        std::fs::read(place.path("r/captures").join(file)).unwrap()
    };
    study("\"line\"");
    let line = captured("--pcap");
    let rows = place.result_files("r");
    study("\"far\"");
    let far = captured("--pcap");
    assert!(far != line && far.len() > 10_000);
    assert!(captured("--pcap=line") == line);
    assert!(captured("--pcap=far") == far);
    assert!(place.result_files("r") == rows);
}

#[test]
fn a_group_runs_each_study_into_its_own_folder() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.write("other.toml", STUDY);
    let run = ["study", "run", "mine.toml", "other.toml", "--quick", "--out", "both", "--json"];
    let json = place.run_usher(&run).with_code(0).stdout_json();
    assert_eq!(json[1]["report"], "both/other-quick/report.html");
    assert!(place.path("both/mine-quick/results.csv").exists());
    let twice = place.run_usher(&["study", "run", "mine.toml", "./mine.toml"]).with_code(2);
    assert!(twice.err.contains("also has the name \"mine\""), "{}", twice.err);
    let dry = place.run_usher(&["study", "run", "dialogue", "--quick", "--dry-run"]).with_code(0).out;
    assert!(dry.lines().count() >= 2, "a group's name stands for its studies: {dry}");
    // A study of two groups runs once.
    let both = place.run_usher(&["study", "run", "mih", "mih-open", "--quick", "--dry-run"]).with_code(0).out;
    assert_eq!(both.lines().filter(|line| line.starts_with("mih-timers")).count(), 1, "{both}");
}

#[test]
fn a_folder_alone_runs_its_study_again() {
    let place = TempDir::new();
    // When a folder is run again, the study no longer includes other files, and its settings are known.
    place.write("mine.toml", &format!("include = [\"more.toml\"]\n{STUDY}"));
    place.write("more.toml", "[run]\nwarmup = \"1 s\" # from another file\n");
    let run = [
        "study",
        "run",
        "mine.toml",
        "--quick",
        "--set",
        "loss=3 %,1 %",
        "--seed",
        "5",
        "--replications",
        "4",
    ];
    place.run_usher(&[&run[..], &["--out", "r"]].concat()).with_code(0);
    for file in ["mine.toml", "more.toml"] {
        std::fs::remove_file(place.path(file)).unwrap();
    }
    let written = std::fs::read_to_string(place.path("r/study/as-written.txt")).unwrap();
    assert!(written.starts_with("include = ") && written.ends_with(STUDY));
    place.run_usher(&["study", "run", "r"]).with_code(0);
    assert!(place.result_files("r") == place.result_files("r-again"));
    // The study's file with the same arguments is equivalent. New settings override the earlier ones.
    let file = [&["study", "run", "r/study/mine.toml"][..], &run[3..], &["--out", "by-file"]].concat();
    place.run_usher(&file).with_code(0);
    assert!(place.result_files("r") == place.result_files("by-file"));
    place.run_usher(&["study", "run", "r", "--seed", "6", "--out", "other"]).with_code(0);
    assert!(place.result_files("r") != place.result_files("other"));
    std::fs::create_dir(place.path("empty")).unwrap();
    let refused = place.run_usher(&["study", "run", "empty"]).with_code(2);
    assert!(refused.err.contains("empty is a folder without a copy of a study"), "{}", refused.err);
}

#[test]
fn results_have_the_columns_of_the_published_schema() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.run_usher(&["study", "run", "mine.toml", "--out", "r"]).with_code(0);
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    for (file, table, axes) in [
        ("results.csv", "results.csv", &["loss", "protocol"][..]),
        ("summary.csv", "summary", &["loss", "loss [%]", "protocol"]),
    ] {
        let text = std::fs::read_to_string(place.path("r").join(file)).unwrap();
        let columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let required = schema["$defs"][table]["required"].as_array().unwrap();
        let required: Vec<&str> = required.iter().map(|name| name.as_str().unwrap()).collect();
        let [study, rest @ ..] = &required[..] else { panic!("{table} has no columns") };
        assert_eq!(columns, [&[*study][..], axes, rest].concat(), "{file}");
    }
    let summary = std::fs::read_to_string(place.path("r/summary.csv")).unwrap();
    assert!(summary.contains("\nmine,5 %,5,UDP,delay.mean,s,"), "{summary}");
    assert!(std::fs::read(place.path("r/summary.parquet")).unwrap().ends_with(b"PAR1"));
}

#[test]
fn a_ladder_names_the_messages_of_one_dialogue() {
    let place = TempDir::new();
    let run = |study: &str, point: &str| {
        let line = format!("usher study run {study} --quick --point '{point}' --ladder");
        place.run_shell(&line).with_code(0).out
    };
    let in_order = |text: &str, words: &[&str]| {
        let mut rest = text;
        for word in words {
            let at = rest.find(word).unwrap_or_else(|| panic!("{word} is missing or out of order: {text}"));
            rest = &rest[at + word.len()..];
        }
    };
    let radius = run("aaa-hol", "loss=0 %; protocol=RADIUS/UDP, every 1 s; method=eap-md5");
    in_order(
        &radius,
        &[
            "EAP-Response/Identity",
            "Access-Request (EAP-Response/Identity)",
            "Access-Challenge",
            "Access-Accept",
            "EAP-Success",
        ],
    );
    let diameter = run("aaa-hol", "loss=0 %; protocol=Diameter/SCTP, one stream; method=eap-md5");
    in_order(
        &diameter,
        &["Diameter-EAP-Request (EAP-Response/Identity)", "Diameter-EAP-Answer", "EAP-Success"],
    );
    assert!(diameter.contains("ladder: aaa-hol-"), "{diameter}");
}

#[test]
fn two_runs_are_drawn_over_each_other() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    for (seed, out) in [("1", "a"), ("2", "b")] {
        place.run_usher(&["study", "run", "mine.toml", "--seed", seed, "--out", out]).with_code(0);
    }
    let said = place.run_usher(&["study", "compare", "a", "b", "--out", "both"]).with_code(0);
    assert!(said.out.ends_with("report: both/report.html\n"), "{}", said.out);
    let svg = std::fs::read_to_string(place.path("both/figures/delay.svg")).unwrap();
    assert!(
        svg.contains("UDP (b)") && svg.contains("series other c0") && svg.contains("series measured c0"),
        "{svg}"
    );
    let json = place
        .run_usher(&["study", "compare", "a", "b", "--out", "both", "--json"])
        .with_code(0)
        .stdout_json();
    assert_eq!(json["report"], "both/report.html");
    std::fs::remove_dir_all(place.path("b/study")).unwrap();
    let refused = place.run_usher(&["study", "compare", "a", "b", "--out", "both"]).with_code(1);
    assert!(refused.err.contains("b has no copy of its study"), "{}", refused.err);
}

/// Writes a fake python3 with the package in this version. Its other behaviour is a shell script.
fn write_fake_python(place: &TempDir, version: &str, does: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let script = format!("#!/bin/sh\ncase \"$1\" in -c) echo {version} ;; *) {does} ;; esac\n");
    std::fs::create_dir_all(place.path("bin")).unwrap();
    place.write("bin/python3", &script);
    let program = place.path("bin/python3");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap())
}

const OURS: &str = env!("CARGO_PKG_VERSION");
/// Records its arguments, and exits with the code in the file.
const NOTES: &str = "echo \"$@\" >>asked; echo '[{\"study\": \"s\"}]'; exit $(cat ends)";

/// Runs a study by this program.
fn by_cluster(place: &TempDir, path: &str, more: &[&str]) -> ProgramOutput {
    let mut command = place.usher_command(&[&["study", "run"], more].concat());
    ProgramOutput::from_output(command.env("PATH", path).output().unwrap())
}

#[test]
fn a_cluster_is_asked_by_the_python_package() {
    let place = TempDir::new();
    place.write("ends", "0");
    place.write("mine.toml", STUDY);
    place.write("other.toml", STUDY);
    let path = write_fake_python(&place, OURS, NOTES);
    let words = ["mine.toml", "other.toml", "--backend", "dask", "--address", "tcp://head:8786", "--quick"];
    let more =
        [&words[..], &["--set", "loss=1 %", "--seed", "7", "--jobs", "3", "--out", "o", "--json"]].concat();
    let told = by_cluster(&place, &path, &more).with_code(0).stdout_json();
    assert_eq!(told, serde_json::json!([{ "study": "s" }, { "study": "s" }]));
    let asked = || {
        let asked = std::fs::read_to_string(place.path("asked")).unwrap();
        std::fs::remove_file(place.path("asked")).unwrap();
        asked
    };
    let both = asked();
    let expected = "-m usher sweep mine.toml --backend dask --address tcp://head:8786 --set loss=1 % --seed 7 --jobs 3 \
                    --out o/mine-quick --quick --json --plain";
    assert_eq!(both.lines().next(), Some(expected));
    assert_eq!(both.lines().count(), 2);
    // A run's folder is run again with its settings.
    place.run_usher(&["study", "run", "mine.toml", "--quick", "--seed", "3", "--out", "ran"]).with_code(0);
    by_cluster(&place, &path, &["ran", "--backend", "ray"]).with_code(0);
    let again = "-m usher sweep ran/study/mine.toml --backend ray --seed 3 --out ran-again --quick --plain\n";
    assert_eq!(asked(), again);
    place.write("ends", "130");
    let ended = by_cluster(&place, &path, &["mine.toml", "--backend", "ray"]).with_code(130);
    assert!(ended.err.contains("mine.toml: the sweep failed"), "{}", ended.err);
    let other = write_fake_python(&place, "0.0.1", NOTES);
    let refused = by_cluster(&place, &other, &["mine.toml", "--backend", "ray"]).with_code(1);
    let remedy = "needs the Python package usher";
    assert!(
        refused.err.contains("python3 has usher 0.0.1. ") && refused.err.contains(remedy),
        "{}",
        refused.err
    );
    let none = by_cluster(&place, "/nowhere", &["mine.toml", "--backend", "ray"]).with_code(1);
    assert!(none.err.contains(remedy) && none.err.contains("pip install '.[ray]'"), "{}", none.err);
}

#[test]
fn what_a_cluster_cannot_do_is_refused_before_anything_is_asked() {
    let place = TempDir::new();
    place.write("ends", "0");
    place.write("mine.toml", STUDY);
    std::fs::create_dir(place.path("folder")).unwrap();
    let path = write_fake_python(&place, OURS, NOTES);
    for (more, says) in [
        (&["mine.toml", "--perf"][..], "cannot be used with"),
        (&["mine.toml", "--kernel", "net.ipv4.tcp_recovery=0"], "cannot be used with"),
        (&["mine.toml", "--replication", "3"], "cannot be used with"),
        (&["folder"], "folder is a folder without a copy of a study"),
        (&["mine.toml", "--set", "los=1 %"], "there is no axis \"los\""),
    ] {
        let said = by_cluster(&place, &path, &[more, &["--backend", "ray"]].concat()).with_code(2);
        assert!(said.err.contains(says), "{more:?}: {}", said.err);
    }
    place.run_usher(&["study", "run", "mine.toml", "--lab", "--out", "lab"]).with_code(0);
    let lab = by_cluster(&place, &path, &["lab", "--backend", "ray"]).with_code(2);
    assert!(
        lab.err.contains("lab: this run has the points of [lab], which --backend does not run"),
        "{}",
        lab.err
    );
    assert!(!place.path("asked").exists());
}

#[test]
fn why_a_cluster_failed_is_told_to_programs_too() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let fails = "echo 'a word of Ray' >&2; echo '{\"error\": {\"exit_code\": 1, \"message\": \"no scheduler there\"}}' >&2; exit 1";
    let path = write_fake_python(&place, OURS, fails);
    let said = by_cluster(&place, &path, &["mine.toml", "--backend", "dask", "--json"]).with_code(1);
    let (word, error) = said.err.split_once('\n').unwrap();
    assert_eq!(word, "a word of Ray");
    let error: serde_json::Value = serde_json::from_str(error).unwrap();
    let expected = serde_json::json!({
        "exit_code": 1, "message": "mine.toml: the sweep failed: no scheduler there",
    });
    assert_eq!(error["error"], expected);
    assert!(said.out.is_empty(), "{}", said.out);
}

#[test]
fn what_the_package_has_started_is_not_waited_for() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    // It holds the package's output open for minutes and writes on, until the output is closed.
    let does = "(n=0; while [ $n -lt 3000 ]; do echo still here >&2; sleep 0.1; n=$((n + 1)); done; echo >gone) & echo '[1]'; exit 0";
    let path = write_fake_python(&place, OURS, does);
    let told =
        by_cluster(&place, &path, &["mine.toml", "--backend", "ray", "--json"]).with_code(0).stdout_json();
    assert_eq!(told, serde_json::json!([1]));
    assert!(!place.path("gone").exists());
}

#[test]
fn an_interrupt_ends_what_asks_the_cluster() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let until = |told: &str| wait_until(told, || place.path(told).exists());
    let begin = |does: &str| {
        let path = write_fake_python(&place, OURS, does);
        let mut command = place.usher_command(&["study", "run", "mine.toml", "--backend", "ray"]);
        command.env("PATH", path).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let signal = |usher: &std::process::Child, signal| kill_process(Pid::from_child(usher), signal).unwrap();
    // Like the package: it releases its cluster and reports the interrupt.
    let usher = begin("trap 'echo $$ >cleaned; exit 130' TERM; echo >begun; while :; do sleep 0.01; done");
    until("begun");
    signal(&usher, Signal::TERM);
    let ended = ProgramOutput::from_output(usher.wait_with_output().unwrap()).with_code(130);
    assert!(
        place.path("cleaned").exists() && ended.err.contains("press Ctrl-C again to stop at once"),
        "{}",
        ended.err
    );
    // If its sweep is complete by then, it is kept. The next one does not start.
    place.write("other.toml", STUDY);
    let path = write_fake_python(
        &place,
        OURS,
        "trap 'exit 0' TERM; echo >\"at-${4%.toml}\"; while :; do sleep 0.01; done",
    );
    let mut command = place.usher_command(&["study", "run", "mine.toml", "other.toml", "--backend", "ray"]);
    let usher = command.env("PATH", path).stderr(std::process::Stdio::piped()).spawn().unwrap();
    until("at-mine");
    signal(&usher, Signal::TERM);
    let ended = ProgramOutput::from_output(usher.wait_with_output().unwrap()).with_code(130);
    assert!(
        ended.err.contains("other.toml: not started") && !ended.err.contains("mine.toml"),
        "{}",
        ended.err
    );
    assert!(!place.path("at-other").exists());
    let usher = begin("trap 'exit 0' TERM; echo >alone; while :; do sleep 0.01; done");
    until("alone");
    signal(&usher, Signal::TERM);
    ProgramOutput::from_output(usher.wait_with_output().unwrap()).with_code(0);
    // The second interrupt ends a package that hangs.
    let usher = begin("trap 'echo >heard' TERM; echo $$ >hung; while :; do sleep 0.01; done");
    until("hung");
    signal(&usher, Signal::INT);
    until("heard");
    signal(&usher, Signal::INT);
    ProgramOutput::from_output(usher.wait_with_output().unwrap()).with_code(130);
    let hung = std::fs::read_to_string(place.path("hung")).unwrap();
    assert!(!std::path::Path::new("/proc").join(hung.trim()).exists());
}
