//! `usher study list | show | new | check | compare`, and wrong usage.

use crate::place::{STUDY, TempDir};

#[test]
fn studies_are_listed_and_shown() {
    let place = TempDir::new();
    let list = place.run_usher(&["study", "list"]).with_code(0).out;
    assert!(list.lines().next().unwrap().starts_with("NAME"), "{list}");
    assert!(list.lines().any(|l| l.starts_with("aaa-hol ") && l.contains("  aaa ")), "{list}");
    let names = place.run_usher(&["study", "list", "--json"]).with_code(0).stdout_json();
    assert!(names.as_array().unwrap().iter().any(|s| s["name"] == "aaa-hol"));

    place.write("mine.toml", STUDY);
    let shown = place.run_usher(&["study", "show", "mine.toml"]).with_code(0).out;
    for part in [
        "What does loss cost a dialogue?",
        "0 %; 5 %",
        "4 points, 12 to 48 replications",
        "delay.mean over loss, by protocol",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(place.run_usher(&["study", "show", "mine.toml", "--toml"]).with_code(0).out, STUDY);
    let json = place.run_usher(&["--json", "study", "show", "mine.toml"]).with_code(0).stdout_json();
    assert_eq!(json["axes"][1]["values"][0], "TCP, plain");
    assert_eq!(json["modes"][0]["points"], 2);
}

#[test]
fn a_new_study_is_right_and_keeps_what_is_there() {
    let place = TempDir::new();
    place.run_usher(&["study", "new", "mine.toml"]).with_code(0);
    place.run_usher(&["study", "check", "mine.toml"]).with_code(0);
    let text = std::fs::read_to_string(place.path("mine.toml")).unwrap();
    let again = place.run_usher(&["study", "new", "mine.toml"]).with_code(2);
    assert!(again.err.contains("mine.toml already exists"), "{}", again.err);
    assert_eq!(std::fs::read_to_string(place.path("mine.toml")).unwrap(), text);
    let nowhere = place.run_usher(&["study", "new", "nowhere/mine.toml"]).with_code(1);
    assert!(nowhere.err.contains("cannot write nowhere/mine.toml"), "{}", nowhere.err);
}

#[test]
fn every_fault_is_named_with_its_line_and_nothing_is_run() {
    let place = TempDir::new();
    let faulty = STUDY.replace("rate = \"1 Mb/s\"", "rat = \"1 Mb/s\"").replace("\"5 ms\"", "\"5\"");
    place.write("faulty.toml", &faulty);
    place.write("mine.toml", STUDY);
    let line = |text: &str| faulty.lines().position(|l| l.contains(text)).unwrap() + 1;
    let rate = format!("faulty.toml:{}:1: unknown key \"rat\"", line("rat ="));
    let delay = format!("faulty.toml:{}:9: ", line("delay ="));
    for command in
        [&["study", "check", "mine.toml", "faulty.toml"][..], &["study", "run", "mine.toml", "faulty.toml"]]
    {
        let said = place.run_usher(command).with_code(2);
        assert!(said.err.contains(&rate) && said.err.contains("did you mean \"rate\"?"), "{}", said.err);
        assert!(said.err.contains(&delay) && said.err.contains("lacks its unit"), "{}", said.err);
    }
    assert!(!place.path("out").exists(), "nothing was run");
    let json =
        place.run_usher(&["study", "check", "mine.toml", "faulty.toml", "--json"]).with_code(2).stdout_json();
    assert_eq!(json[0]["ok"], true);
    assert_eq!(json[1]["faults"][0]["line"], line("rat ="));
}

#[test]
fn wrong_usage_is_said_with_code_2() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    place.write("outside.toml", &STUDY.replace("A small study", "data.txt"));
    place.write("data.txt", "what a browser cannot read");
    for (arguments, say) in [
        (&["study", "run"][..], "required"),
        (&["study", "run", "mine.toml", "--quick", "--full"], "cannot be used with"),
        (&["study", "run", "mine.toml", "--jobs", "0"], "--jobs"),
        (&["study", "run", "mine.toml", "--replication", "1"], "--point"),
        (&["study", "run", "mine"], "\"mine\" is neither a study's name nor a file"),
        (&["study", "run", "aaa-hoi"], "did you mean \"aaa-hol\"?"),
        (
            &["study", "run", "mine.toml", "--set", "los=1 %"],
            "there is no axis \"los\"; did you mean \"loss\"?",
        ),
        (&["study", "run", "mine.toml", "--set", "loss"], "write axis=value"),
        (&["study", "run", "mine.toml", "--set", "loss=x"], "loss"),
        (&["study", "run", "mine.toml", "--pcap=lien"], "has no such link; its links are line"),
        (
            &["study", "run", "mine.toml", "--point", "loss=9 %"],
            "no point has loss=9 %; values there are 0 %, 5 %",
        ),
        (&["study", "runn", "mine.toml"], "run"),
        (&["study", "run", "mine.toml", "--live-report", "--backend", "ray"], "cannot be used with"),
        (&["study", "run", "outside.toml", "--live-report"], "data.txt, which a browser cannot read"),
    ] {
        let said = place.run_usher(arguments).with_code(2);
        assert!(said.err.contains(say), "{arguments:?}: {}", said.err);
        assert!(said.out.is_empty() && !place.path("out").exists());
    }
}

#[test]
fn help_has_examples_and_completion_is_a_script() {
    let place = TempDir::new();
    let help = place.run_usher(&["study", "run", "--help"]).with_code(0).out;
    assert!(help.contains("usher study run aaa-hol --quick"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run_usher(&["completion", shell]).with_code(0).out;
        assert!(script.contains("usher") && script.contains("study"), "{shell}");
    }
    place.run_shell("eval \"$(usher completion bash)\" && complete -p usher").with_code(0);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let place = TempDir::new();
    for line in ["usher study show aaa-hol --toml", "usher study list", "usher study --help"] {
        let said = place.run_shell(&format!("{line} | true; exit ${{PIPESTATUS[0]}}")).with_code(0);
        assert!(said.err.is_empty(), "{line}: {}", said.err);
    }
}

#[test]
fn two_runs_are_compared() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let run = |out: &str, set: &str| {
        place.run_usher(&["study", "run", "mine.toml", "--quick", "--set", set, "--out", out]).with_code(0)
    };
    run("a", "links.line.delay=5 ms");
    run("b", "links.line.delay=9 ms");
    let text = place.run_usher(&["study", "compare", "a", "b"]).with_code(0).out;
    let delay = text.lines().find(|l| l.contains("protocol=UDP") && l.contains("delay.mean")).unwrap();
    assert!(delay.ends_with('*') && delay.contains("0.008"), "{text}");
    let json = place.run_usher(&["study", "compare", "a", "b", "--json"]).with_code(0).stdout_json();
    let udp = json["both"].as_array().unwrap().iter();
    let udp = udp
        .into_iter()
        .find(|c| c["point"] == "loss=0 %; protocol=UDP" && c["metric"] == "delay.mean")
        .unwrap();
    assert!((udp["difference"]["mean"].as_f64().unwrap() - 0.008).abs() < 1e-9, "{udp}");
    assert_eq!(udp["paired"], true);
    let missing = place.run_usher(&["study", "compare", "a", "c"]).with_code(1);
    assert!(missing.err.contains("results.csv"), "{}", missing.err);
}

#[test]
fn a_new_study_of_each_kind_is_right_and_runs() {
    let place = TempDir::new();
    for kind in ["dialogue", "eap", "mih", "handover"] {
        let file = format!("{kind}.toml");
        place.run_usher(&["study", "new", "--kind", kind, &file]).with_code(0);
        place.run_usher(&["study", "check", &file]).with_code(0);
        // One value of the loss is enough. 5 s have few logins.
        let mut run = vec!["study", "run", &file, "--quick", "--set", "loss=0 %", "--replications", "1"];
        if kind == "eap" {
            run.extend(["--set", "run.duration=5 s", "--set", "workload.arrivals.rate=2 /s"]);
        }
        let said = place.run_usher(&run).with_code(0);
        assert!(!said.out.contains("failed"), "{kind}: {}", said.out);
        if kind == "eap" {
            assert!(said.out.contains("Which protocol:\n  At loss 0 %; nagle off: use "), "{}", said.out);
        }
    }
    let unknown = place.run_usher(&["study", "new", "--kind", "ident", "x.toml"]).with_code(2);
    assert!(unknown.err.contains("dialogue, eap, mih, handover"), "{}", unknown.err);
}

#[test]
fn errors_are_json_where_json_is_asked_for() {
    let place = TempDir::new();
    place.write("faulty.toml", &STUDY.replacen("rate =", "rat =", 1));
    for (arguments, say) in [
        (&["study", "run", "mine", "--json"][..], "neither a study's name nor a file"),
        (&["study", "check", "faulty.toml", "--json"], "1 of 1 studies are faulty"),
        (&["study", "run", "--json"], "required"),
        (&["--json", "study", "runn"], "unrecognized subcommand"),
    ] {
        let said = place.run_usher(arguments).with_code(2);
        let error: serde_json::Value = serde_json::from_str(said.err.trim()).expect(&said.err);
        assert_eq!(error["error"]["exit_code"], 2, "{arguments:?}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(say), "{arguments:?}: {message}");
    }
    // Help is not an error.
    let help = place.run_usher(&["study", "run", "--help", "--json"]).with_code(0);
    assert!(help.out.contains("Usage:") && help.err.is_empty());
}

#[test]
fn completion_knows_the_names_of_studies() {
    let place = TempDir::new();
    let words = |line: &str, last: &str| {
        let script = format!(
            "eval \"$(usher completion bash)\"; COMP_WORDS=({line} '{last}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _usher usher '{last}' study; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        place.run_shell(&script).with_code(0).out
    };
    for verb in ["run", "check", "show"] {
        let found = words(&format!("usher study {verb}"), "aaa-h");
        assert_eq!(found, "aaa-hol\n", "{verb}");
    }
    let zsh = place.run_usher(&["completion", "zsh"]).with_code(0).out;
    let fish = place.run_usher(&["completion", "fish"]).with_code(0).out;
    assert!(zsh.contains("aaa-hol"), "{zsh}");
    let names = fish.lines().find(|line| line.contains("aaa-hol")).unwrap_or_else(|| panic!("{fish}"));
    let verbs = "__fish_usher_using_subcommand study; and __fish_seen_subcommand_from run check show";
    assert!(names.contains(verbs) && fish.contains("function __fish_usher_using_subcommand"), "{names}");
}

#[test]
fn runs_that_may_not_be_comparable_are_said_to_be_so() {
    let place = TempDir::new();
    place.write("mine.toml", STUDY);
    let run = |out: &str, more: &[&str]| {
        let run = ["study", "run", "mine.toml", "--set", "loss=0 %", "--replications", "2", "--out", out];
        place.run_usher(&[&run[..], more].concat()).with_code(0)
    };
    run("a", &["--quick"]);
    run("b", &["--quick"]);
    run("c", &["--seed", "9"]);
    let same = place.run_usher(&["study", "compare", "a", "b"]).with_code(0);
    assert!(same.err.is_empty(), "{}", same.err);
    let other = place.run_usher(&["study", "compare", "a", "c"]).with_code(0);
    assert!(other.err.contains("the mode: \"quick\" in A, \"default\" in B"), "{}", other.err);
    assert!(other.err.contains("the seed: \"1\" in A, \"9\" in B"), "{}", other.err);
    let json = place.run_usher(&["study", "compare", "a", "c", "--json"]).with_code(0).stdout_json();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);
}
