//! All faults of a study file are reported at once, with line and column.

use proptest::prelude::*;
use usher_scenario::{PlanOverrides, Study, StudyMode, default_template};

/// A small valid study. Tests replace its lines.
pub(crate) const RIGHT: &str = r#"title = "T"
question = "Q?"
[run]
duration = "10 s"
[hosts.client]
count = 4
[hosts.server]
[links.core]
between = ["client", "server"]
rate = "1.5 Mb/s"
delay = "10 ms"
loss = "0 %"
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{ request = "200 B", answer = "200 B" }]
arrivals = { kind = "poisson", rate = "5 /s" }
[[axes]]
name = "loss"
set = "links.core.loss"
values = ["0 %", "5 %"]
[[figures]]
name = "delay"
title = "Delay"
x = "loss"
y = "delay.mean"
"#;

/// The faults of the study with one line replaced.
pub(crate) fn faults_with_line(line: &str, other: &str) -> String {
    assert!(RIGHT.contains(line), "{line}");
    let text = RIGHT.replacen(line, other, 1);
    match Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans()) {
        Ok(()) => panic!("nothing is found wrong with {other}"),
        Err(faults) => faults.to_string(),
    }
}

#[test]
fn a_study_may_include_what_it_shares_with_others() {
    let folder = std::env::temp_dir().join(format!("usher-scenario-include-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (study, net) = (folder.join("t.toml"), folder.join("net.toml"));
    let (head, links) = RIGHT.split_once("[links.core]").unwrap();
    let (links, tail) = links.split_once("[workload]").unwrap();
    let write = |more: &str| {
        std::fs::write(&study, format!("version = 1\ninclude = [\"net.toml\"]\n{head}[workload]{tail}"))
            .unwrap();
        std::fs::write(&net, format!("[links.core]{links}{more}")).unwrap();
    };
    write("");
    let points =
        |study: &Study| study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap().points;
    let first = Study::load(&study).unwrap();
    assert_eq!(points(&first), points(&Study::parse("t", "t.toml", RIGHT).unwrap()));
    write("# Other\n");
    let second = Study::load(&study).unwrap();
    assert!(
        first.file_text() == second.file_text() && first.digest() != second.digest(),
        "the digest is of all files"
    );
    write("dleay = \"1 ms\"\n");
    let said = Study::load(&study).unwrap_err().to_string();
    let place = format!("{}:6:1: unknown key \"dleay\" in links.core", net.display());
    assert!(said.starts_with(&place), "{said}");
    let alone = std::fs::read_to_string(&study).unwrap();
    let said = Study::parse("t", "t.toml", &alone).unwrap_err().to_string();
    assert!(
        said.starts_with("t.toml:2:12: cannot read net.toml: this configuration cannot use files"),
        "{said}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_example_is_right() {
    let study = Study::parse("t", "t.toml", RIGHT).unwrap();
    study.check_plans().unwrap();
    assert_eq!(study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap().points.len(), 2);
}

#[test]
fn each_kind_of_fault_names_its_place_and_what_would_be_right() {
    let table = [
        // Unknown keys.
        (
            r#"rate = "1.5 Mb/s""#,
            r#"rat = "1.5 Mb/s""#,
            "t.toml:10:1: unknown key \"rat\" in links.core; did you mean \"rate\"?",
        ),
        (
            r#"question = "Q?""#,
            "question = \"Q?\"\nauthor = \"me\"",
            "t.toml:3:1: unknown key \"author\" at the top; expected one of \"title\", \"question\", \"description\", \"groups\", \"run\", \"quick\", \"full\", \"sensitivity\", \"lab\", \"hosts\", \"links\", \"cells\", \"bss\", \"transport\", \"workload\", \"workloads\", \"background\", \"outages\", \"choices\", \"axes\", \"figures\", \"recommendations\", \"capture\"",
        ),
        (
            r#"transport = "tcp""#,
            "transport = \"tcp\"\nround = 3",
            "t.toml:18:1: unknown key \"round\" in workload; did you mean \"rounds\"?",
        ),
        (
            r#"rate = "5 /s" }"#,
            r#"rate = "5 /s", stagger = "1 s" }"#,
            "t.toml:19:47: unknown key \"stagger\" in workload.arrivals; expected one of \"rate\", \"per\", \"start\", \"limit\"",
        ),
        // Missing units, wrong units.
        (
            r#"delay = "10 ms""#,
            r#"delay = "10""#,
            "t.toml:11:9: links.core.delay: \"10\" lacks its unit: a time is written like \"10 ms\"",
        ),
        (
            r#"delay = "10 ms""#,
            "delay = 10",
            "t.toml:11:9: links.core.delay: found 10, expected a time with its unit, such as \"10 ms\"",
        ),
        (
            r#"delay = "10 ms""#,
            r#"delay = "10 msec""#,
            "t.toml:11:9: links.core.delay: \"msec\" is no unit of a time (ns, us, ms, s, min, h, d); did you mean \"10 ms\"?",
        ),
        (
            r#"rate = "1.5 Mb/s""#,
            r#"rate = "1.5 Mbps""#,
            "t.toml:10:8: links.core.rate: \"Mbps\" is no unit of a bit rate (b/s, kb/s, Mb/s, Gb/s); did you mean \"1.5 Mb/s\"?",
        ),
        (
            r#"request = "200 B""#,
            r#"request = "200 ms""#,
            "t.toml:18:23: workload.rounds[0].request: \"ms\" is no unit of a size (B, kB, MB, GB, KiB, MiB, GiB)",
        ),
        // Impossible values.
        (
            r#"loss = "0 %""#,
            r#"loss = "101 %""#,
            "t.toml:12:8: links.core.loss: \"101 %\" is more than 100 %",
        ),
        (
            r#"delay = "10 ms""#,
            r#"delay = "-1 ms""#,
            "t.toml:11:9: links.core.delay: \"-1 ms\" is negative; a time must be zero or more",
        ),
        (
            r#"rate = "1.5 Mb/s""#,
            r#"rate = "0 Mb/s""#,
            "t.toml:10:8: links.core.rate: \"0 Mb/s\" is below the lowest rate, 1 b/s; write \"unlimited\" for a link without a rate limit",
        ),
        (
            r#"rate = "5 /s""#,
            r#"rate = "0 /s""#,
            "t.toml:19:39: workload.arrivals.rate: \"0 /s\" is below the lowest rate, 1e-9 /s",
        ),
        ("count = 4", "count = 0", "t.toml:6:9: hosts.client.count: 0 is impossible here: one or more"),
        (
            "count = 4",
            "count = -4",
            "t.toml:6:9: hosts.client.count: found -4, expected a whole number from 0 to 4294967295",
        ),
        (
            "count = 4",
            "count = \"4\"",
            "t.toml:6:9: hosts.client.count: found \"4\", expected a whole number from 0 to 4294967295",
        ),
        (r#"duration = "10 s""#, r#"duration = "0 s""#, "t.toml:4:12: run.duration: must be above zero"),
        (
            r#"request = "200 B""#,
            r#"request = "0.5 B""#,
            "t.toml:18:23: workload.rounds[0].request: \"0.5 B\" is not a whole number of bytes",
        ),
        (
            r#"delay = "10 ms""#,
            "delay = \"10 ms\"\nmtu = \"20 B\"",
            "t.toml:12:7: links.core.mtu: 20 B is not between 68 B and 65535 B, as IP needs",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "burst", loss = "5 %", mean = 0.5 }"#,
            "t.toml:12:47: links.core.loss.mean: 0.5 is not between 1 and a million",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "burst", loss = "5 %", mean = "20 kB" }"#,
            "t.toml:12:47: links.core.loss.mean: \"kB\" is no unit of a time (ns, us, ms, s, min, h, d)",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "burst", loss = "5 %", mean = "0 s" }"#,
            "t.toml:12:47: links.core.loss.mean: must be above zero",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "timed-gilbert-elliott", good_time = "1 s", bad_time = "0 s", bad = "9 %" }"#,
            "t.toml:12:72: links.core.loss.bad_time: must be above zero",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "burst", loss = "80 %", mean = 3 }"#,
            "t.toml:12:33: links.core.loss.loss: bursts of 3 packets can lose at most 75.0 % of all packets",
        ),
        (
            r#"loss = "0 %""#,
            r#"loss = { kind = "burst", loss = "5 %" }"#,
            "t.toml:12:1: \"mean\" is missing in links.core.loss",
        ),
        // Choices.
        (
            r#"transport = "tcp""#,
            r#"transport = "tpc""#,
            "t.toml:17:13: workload.transport: \"tpc\" is not known here; did you mean \"tcp\"?",
        ),
        (
            r#"kind = "poisson""#,
            r#"kind = "random""#,
            "t.toml:19:21: workload.arrivals: \"random\" is not known here; expected one of \"poisson\", \"constant\", \"closed\"",
        ),
        (
            r#"kind = "poisson", "#,
            "",
            "t.toml:19:1: workload.arrivals: \"kind\" is missing: one of \"poisson\", \"constant\", \"closed\"",
        ),
        // Missing keys.
        (r#", rate = "5 /s""#, "", "t.toml:19:1: \"rate\" is missing in workload.arrivals"),
        (r#"title = "T""#, "", "t.toml:1:1: \"title\" is missing at the top"),
        (r#"between = ["client", "server"]"#, "", "t.toml:8:8: \"between\" is missing in links.core"),
        // Unknown names.
        (
            r#"between = ["client", "server"]"#,
            r#"between = ["client", "sever"]"#,
            "t.toml:9:22: links.core.between[1]: there is no host \"sever\"; did you mean \"server\"?\nt.toml:16:10: workload.server: no links lead from \"client\" 0 to \"server\"",
        ),
        (
            r#"between = ["client", "server"]"#,
            r#"between = ["client"]"#,
            "t.toml:9:11: links.core.between: expected 2 values, found 1",
        ),
        (
            r#"clients = "client""#,
            r#"clients = "clients""#,
            "t.toml:15:11: workload.clients: there is no host \"clients\"; did you mean \"client\"?",
        ),
        (
            r#"[hosts.server]"#,
            "[hosts.server]\n[hosts.island]\n[capture]\nlinks = [\"cor\"]",
            "t.toml:10:10: capture.links[0]: there is no link \"cor\"; did you mean \"core\"?",
        ),
        // Axes.
        (
            r#"set = "links.core.loss""#,
            r#"set = "links.core.los""#,
            "t.toml:22:7: unknown key \"los\" in links.core; did you mean \"loss\"?",
        ),
        (
            r#"set = "links.core.loss""#,
            r#"set = "links.cor.loss""#,
            "t.toml:22:7: \"links.cor.loss\" names no setting: there is no \"cor\" in links; did you mean \"core\"?",
        ),
        (
            r#"set = "links.core.loss""#,
            r#"set = "link.core.loss""#,
            "t.toml:22:7: \"link.core.loss\" names no setting: \"link\" cannot be varied; did you mean \"links\"?",
        ),
        (
            r#"set = "links.core.loss""#,
            r#"set = "links.core.rate.x""#,
            "t.toml:22:7: links.core.rate: found a table, expected a value or \"unlimited\"",
        ),
        (
            r#"values = ["0 %", "5 %"]"#,
            r#"values = ["0 %", "500 %"]"#,
            "t.toml:23:18: links.core.loss: \"500 %\" is more than 100 %",
        ),
        (
            r#"values = ["0 %", "5 %"]"#,
            r#"values = ["0 %", "0%"]"#,
            "t.toml:23:18: axes[0].values[1]: \"0 %\" is listed twice",
        ),
        (r#"values = ["0 %", "5 %"]"#, "", "t.toml:22:7: axes[0].set: axis \"loss\" lacks values"),
        (
            r#"values = ["0 %", "5 %"]"#,
            "values = [\"0 %\", \"5 %\"]\nunit = \"ms\"",
            "t.toml:23:11: axes[0].values[0]: \"0 %\" cannot be converted to \"ms\", the axis's unit; expected one of \
             \"%\"\nt.toml:23:18: axes[0].values[1]: \"5 %\" cannot be converted to \"ms\", the axis's unit; expected \
             one of \"%\"",
        ),
        // Figures.
        (
            r#"x = "loss""#,
            r#"x = "los""#,
            "t.toml:25:8: figures[0].name: axis \"loss\" has several values: make it x or along, add it to series, or \
             fix it with where\nt.toml:27:5: figures[0].x: there is no axis \"los\"; did you mean \"loss\"?",
        ),
        (
            r#"x = "loss""#,
            r#"x = "failures""#,
            "t.toml:25:8: figures[0].name: axis \"loss\" has several values: make it x or along, add it to series, or \
             fix it with where\nt.toml:27:5: figures[0].x: \"failures\" is a metric: set along to the axis whose \
             values are the points of a curve",
        ),
        (
            r#"x = "loss""#,
            "x = \"failure\"\nalong = \"loss\"",
            "t.toml:27:5: figures[0].x: there is no metric \"failure\"; did you mean \"failures\"?",
        ),
        (
            r#"x = "loss""#,
            "x = \"loss\"\nalong = \"loss\"",
            "t.toml:28:9: figures[0].along: x is the axis \"loss\" already: leave along out, which is for a metric as \
             x",
        ),
        (
            r#"y = "delay.mean""#,
            r#"y = ["delay.mean", "failures"]"#,
            "t.toml:28:5: figures[0].y: expected one metric, or several of the same unit",
        ),
        (
            r#"y = "delay.mean""#,
            r#"y = "delay.main""#,
            "t.toml:28:5: figures[0].y: there is no metric \"delay.main\"; did you mean \"delay.mean\"?",
        ),
        (
            r#"y = "delay.mean""#,
            r#"y = "packets.cor""#,
            "t.toml:28:5: figures[0].y: there is no metric \"packets.cor\"; did you mean \"packets.core\"?",
        ),
        // Recommendations.
        (
            r#"y = "delay.mean""#,
            "y = \"delay.mean\"\n[[recommendations]]\ntitle = \"R\"\nchoose = \"loss\"\nmetric = \"delay.mean\"\nwhere = { loss = \"7 %\", los = 3 }",
            "t.toml:33:18: recommendations[0].where.loss: axis \"loss\" has no value \"7 %\"; did you mean \"0 %\"?\nt.toml:33:31: recommendations[0].where.los: there is no axis \"los\"; did you mean \"loss\"?",
        ),
        // Measurements of others.
        (
            r#"x = "loss""#,
            "x = \"loss\"\nreference = [{ name = \"ns-2\", points = [{ x = \"5 ms\", y = \"0.3 s\" }] }]",
            "t.toml:28:47: figures[0].reference[0].points[0].x: axis \"loss\" has no value \"5 ms\"",
        ),
        (
            r#"x = "loss""#,
            "x = \"loss\"\nreference = [{ name = \"ns-2\", points = [{ x = \"5 %\", y = 0.3 }] }]",
            "t.toml:28:58: figures[0].reference[0].points[0].y: 0.3 lacks its unit: the metric's is \"s\"",
        ),
        (
            r#"x = "loss""#,
            "x = \"loss\"\nreference = [{ name = \"ns-2\", points = [{ x = \"5 %\", y = \"0.3 s\", low = \"0.4 s\", high = \"0.5 s\" }] }]",
            "t.toml:28:58: figures[0].reference[0].points[0].y: give both low and high or neither, with y between them",
        ),
        (
            r#"x = "loss""#,
            "x = \"loss\"\nreference = [{ name = \"ns-2\", points = [] }]",
            "t.toml:28:40: figures[0].reference[0].points: \"ns-2\" has no points",
        ),
        (
            r#"x = "loss""#,
            "x = \"loss\"\nstatistic = \"mode\"",
            "t.toml:28:13: figures[0].statistic: \"mode\" is not known here; expected one of \"mean\", \"median\"",
        ),
        // Slow applications, silly windows, memory.
        (
            "[workload]",
            "[transport.tcp]\nread_size = \"0 B\"\n[workload]",
            "t.toml:14:13: transport.tcp.read_size: 0 B is not between 1 B and 1 GiB",
        ),
        (
            "[workload]",
            "[transport.tcp]\nsilly_window_avoidance = \"off\"\n[workload]",
            "t.toml:14:26: transport.tcp.silly_window_avoidance: found \"off\", expected true or false",
        ),
        (
            r#"transport = "tcp""#,
            "transport = \"udp\"\nwrite_rate = \"8 kb/s\"",
            "t.toml:18:14: workload.write_rate: UDP and SCTP send whole messages: to write a request in pieces, set \
             transport = \"tcp\"",
        ),
        (
            r#"transport = "tcp""#,
            "transport = \"tcp\"\nwrite_size = \"0 B\"",
            "t.toml:18:14: workload.write_size: 0 B is not between 1 B and 1 GiB",
        ),
        // Settings that depend on others.
        (
            "[workload]",
            "[transport.tcp]\nread_size = \"10 B\"\n[workload]",
            "t.toml:14:13: transport.tcp.read_size: applications read all received data at once: set \
             transport.tcp.read_rate too, or leave this out",
        ),
        (
            r#"transport = "tcp""#,
            "transport = \"tcp\"\nwrite_size = \"10 B\"",
            "t.toml:18:14: workload.write_size: applications write whole requests: set workload.write_rate too, or \
             leave this out",
        ),
        (
            "[workload]",
            "[transport.sctp]\nduplicate_resets_delay = false\n[workload]",
            "t.toml:14:26: transport.sctp.duplicate_resets_delay: with bundled SACKs, an immediate acknowledgement \
             always restarts the delay: set transport.sctp.bundle_sacks = false too, or leave this out",
        ),
        (
            "[workload]",
            "[transport.sctp]\ninitial_window_bytes = \"3000 B\"\ninitial_window = 2\n[workload]",
            "t.toml:14:24: transport.sctp.initial_window_bytes: transport.sctp.initial_window, in packets, overrides \
             this: leave one of the two out",
        ),
        // An invalid date, and more hosts than addresses can be counted for.
        (
            r#"duration = "10 s""#,
            "duration = \"10 s\"\ndate = \"0000-01-01\"",
            "t.toml:5:8: run.date: \"0000-01-01\" is not a day such as \"2026-07-01\"",
        ),
        (
            "count = 4",
            "count = 4294967295\naddress = \"192.0.2.1\"",
            "t.toml:5:2: hosts: 4294967296 hosts are too many: at most 2000000 can be simulated",
        ),
        (
            r#"y = "delay.mean""#,
            r#"y = "memory.server""#,
            "t.toml:28:5: figures[0].y: \"memory.server\" is measured only with memory = true in [run]",
        ),
        // Not TOML at all.
        (
            r#"delay = "10 ms""#,
            "delay = 10 ms",
            "t.toml:11:9: not TOML: string values must be quoted, expected literal string",
        ),
    ];
    let mut wrong = Vec::new();
    for (line, other, expected) in table {
        let found = faults_with_line(line, other);
        if found != expected {
            wrong.push(format!("{other}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_dependent_setting_may_stand_where_its_condition_varies() {
    let check = |more: &str| {
        let text = format!("{RIGHT}{more}");
        match Study::parse("t", "t.toml", &text).and_then(|study| study.check_plans()) {
            Ok(()) => String::new(),
            Err(faults) => faults.to_string(),
        }
    };
    let alone = "[[axes]]\nname = \"piece\"\n[axes.cases.small]\n\"transport.tcp.read_size\" = \"10 B\"\n";
    assert_eq!(
        check(alone),
        "t.toml:32:29: transport.tcp.read_size: applications read all received data at once: set \
         transport.tcp.read_rate too, or leave this out"
    );
    let slow = "[[choices]]\nname = \"readers\"\ndefault = \"fast\"\n[choices.cases.slow]\n\"transport.tcp.read_rate\" = \"8 kb/s\"\n";
    assert_eq!(check(&format!("{alone}{slow}")), "");
    // A choice that disables one setting may disable the other with it.
    let both = "[[choices]]\nname = \"acknowledgements\"\ndefault = \"with data\"\n[choices.cases.alone]\n\"transport.sctp.bundle_sacks\" = false\n\"transport.sctp.duplicate_resets_delay\" = false\n";
    assert_eq!(check(both), "");
    let one = both.replace("\"transport.sctp.bundle_sacks\" = false\n", "");
    assert!(check(&one).contains("transport.sctp.bundle_sacks = false too"), "{}", check(&one));
    let mut overrides = PlanOverrides::default();
    overrides.add_setting("transport.tcp.read_size=10 B").unwrap();
    let faults =
        Study::parse("t", "t.toml", RIGHT).unwrap().build_plan(StudyMode::Quick, &overrides).unwrap_err();
    assert!(faults.to_string().contains("transport.tcp.read_rate"), "{faults}");
}

#[test]
fn all_faults_are_reported_at_once_in_the_order_of_lines() {
    let text = RIGHT
        .replace("count = 4", "cuont = 4")
        .replace("10 ms", "10")
        .replace("\"tcp\"", "\"tpc\"")
        .replace("5 /s", "5")
        .replace("y = \"delay.mean\"", "y = 3");
    let faults = Study::parse("t", "t.toml", &text).unwrap_err();
    let lines: Vec<usize> = faults.faults.iter().map(|f| f.line).collect();
    assert_eq!(lines, [6, 11, 17, 19, 28], "{faults}");
}

#[test]
fn a_wrong_unit_and_an_unknown_host_are_reported_together() {
    let text = RIGHT.replace("\"server\"]", "\"sever\"]").replace("10 ms", "10");
    let faults = Study::parse("t", "t.toml", &text).unwrap_err();
    let lines: Vec<usize> = faults.faults.iter().map(|f| f.line).collect();
    assert_eq!(lines, [9, 11, 16], "{faults}");
}

#[test]
fn a_value_that_is_wrong_only_in_combination_shows_in_the_plan() {
    let text = RIGHT
        .replace("[[figures]]", "[[axes]]\nname = \"min\"\nset = \"transport.tcp.rto_min\"\nvalues = [\"1 s\", \"90 s\"]\n[[figures]]")
        .replace("y = \"delay.mean\"", "y = \"delay.mean\"\nseries = [\"min\"]");
    let study = Study::parse("t", "t.toml", &text).unwrap();
    let faults = study.build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap_err();
    assert_eq!(faults.to_string(), "t.toml:27:18: transport.tcp.rto_min: 90 s is above rto_max, 60 s");
}

#[test]
fn an_axis_over_the_share_of_bursts_is_checked_at_each_value() {
    let study = |values: &str| {
        let text = RIGHT
            .replace("loss = \"0 %\"", "loss = { kind = \"burst\", loss = \"0 %\", mean = 1.5 }")
            .replace("links.core.loss\"", "links.core.loss.loss\"")
            .replace("[\"0 %\", \"5 %\"]", values);
        Study::parse("t", "t.toml", &text).unwrap()
    };
    let plan =
        study("[\"0 %\", \"60 %\"]").build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap();
    assert_eq!(plan.points.len(), 2);
    let faults =
        study("[\"0 %\", \"61 %\"]").build_plan(StudyMode::Default, &PlanOverrides::default()).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "t.toml:23:18: links.core.loss.loss: bursts of 1.5 packets can lose at most 60.0 % of all packets"
    );
}

#[test]
fn a_group_that_reaches_its_server_only_in_part_is_found() {
    // Seven clients on five switches on three servers. Client 5 is on switch 0 at server 0, and sends to server 2.
    let text = RIGHT
        .replace("count = 4\n[hosts.server]", "count = 7\n[hosts.switch]\ncount = 5\n[hosts.server]\ncount = 3")
        .replace(
            "[links.core]\nbetween = [\"client\", \"server\"]",
            "[links.edge]\nbetween = [\"client\", \"switch\"]\n[links.core]\nbetween = [\"switch\", \"server\"]",
        );
    let faults = Study::parse("t", "t.toml", &text).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "t.toml:21:10: workload.server: no links lead from \"client\" 5 to \"server\" 2"
    );
}

proptest! {
    #[test]
    fn no_text_panics_the_loader(text in "\\PC{0,200}") {
        let _ = Study::parse("t", "t.toml", &text).and_then(|s| s.check_plans());
    }

    #[test]
    fn no_toml_like_text_panics_the_loader(
        lines in prop::collection::vec(
            "(\\[{1,2}(run|hosts\\.a|links\\.a|workload|axes|figures|quick|transport\\.tcp)\\]{1,2}|(kind|set|values|name|loss|between|rate|count|x|y|title|duration|cases\\.a|arrivals) = (1|-1|9e99|nan|true|1979-05-27|\"[a-z0-9 .%/\"]{0,12}\"|\\[\"[a-z .%0-9]{0,8}\"\\]|\\{ kind = \"(poisson|script|literal)\" \\}))",
            0..20,
        )
    ) {
        let _ = Study::parse("t", "t.toml", &lines.join("\n")).and_then(|s| s.check_plans());
    }

    #[test]
    fn no_damaged_study_panics_the_loader(line in 0usize..90, start in 0usize..60, other in "\\PC{0,12}") {
        let mut lines: Vec<String> = default_template().lines().map(str::to_owned).collect();
        let at = line % lines.len();
        let kept: String = lines[at].chars().take(start).collect();
        lines[at] = kept + &other;
        let _ = Study::parse("t", "t.toml", &lines.join("\n")).and_then(|s| s.check_plans());
    }

    #[test]
    fn no_override_panics_the_plan(argument in "(loss|transport|links\\.core\\.[a-z\"]{0,6}|\\PC{0,6})=\\PC{0,20}") {
        let study = Study::parse("t", "t.toml", default_template()).unwrap();
        let mut overrides = PlanOverrides::default();
        if overrides.add_setting(&argument).is_ok() {
            let _ = study.build_plan(StudyMode::Quick, &overrides);
        }
    }
}
