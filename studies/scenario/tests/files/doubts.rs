//! Warnings of plans about valid but misleading settings.

use usher_scenario::{PlanOverrides, Study, StudyMode};

/// The warnings of a study that compares TCP and SCTP with these settings.
fn plan_warnings(settings: &str, set: &[&str]) -> Vec<String> {
    let text = format!(
        r#"
title = "T"
question = "Q"
[run]
duration = "1 s"
[hosts.client]
[hosts.server]
[links.core]
between = ["client", "server"]
{settings}
[workload]
kind = "dialogue"
clients = "client"
server = "server"
transport = "tcp"
rounds = [{{ request = "200 B", answer = "200 B" }}]
arrivals = {{ kind = "poisson", rate = "20 /s" }}
[[axes]]
name = "transport"
set = "workload.transport"
values = ["tcp", "sctp"]
"#
    );
    let study = Study::parse("t", "t.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let mut overrides = PlanOverrides::default();
    set.iter().for_each(|argument| overrides.add_setting(argument).unwrap());
    let plan = study.build_plan(StudyMode::Default, &overrides).unwrap_or_else(|e| panic!("{e}"));
    plan.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn nagles_algorithm_of_one_of_two_compared_transports_is_told() {
    let one = "[transport.tcp]\nnagle = false\n[transport.sctp]\npreset = \"linux\"";
    let told = "t.toml:10:2: transport: Nagle's algorithm is off over TCP and on over SCTP, so these points differ in \
                more than the transport: set transport.nagle for both, or nagle of each";
    assert_eq!(plan_warnings(one, &[]), [told]);
    // The presets of the RFCs differ, too: one has it, the other does not.
    let unsaid = plan_warnings("", &[]);
    assert!(unsaid.len() == 1 && unsaid[0].contains("on over TCP and off over SCTP"));
    // Points of a single transport are not compared.
    assert!(plan_warnings(one, &["transport=sctp"]).is_empty());
}

#[test]
fn nagles_algorithm_of_both_is_in_order() {
    let presets = "[transport.tcp]\npreset = \"linux\"\n[transport.sctp]\npreset = \"linux\"";
    let axis = "\n[[axes]]\nname = \"nagle\"\nset = \"transport.nagle\"\nvalues = [true, false]";
    for in_order in [
        presets.to_owned(),
        format!("[transport]\nnagle = false\n{presets}"),
        format!("{presets}{axis}"),
        // Separate settings for each transport are deliberate.
        "[transport.tcp]\nnagle = false\n[transport.sctp]\nnagle = true".to_owned(),
    ] {
        assert!(plan_warnings(&in_order, &[]).is_empty(), "{in_order}");
    }
    assert!(plan_warnings("[transport.tcp]\nnagle = false", &["transport.nagle=true"]).is_empty());
}

#[test]
fn no_axis_and_no_setting_stands_behind_that_of_both() {
    let refused = |settings: &str, set: &str| {
        let template = usher_scenario::default_template();
        let text = template.replace("[transport]\nnagle = false\n", settings);
        let mut overrides = PlanOverrides::default();
        overrides.add_setting(set).unwrap();
        let study = Study::parse("t", "t.toml", &text);
        study.and_then(|study| study.build_plan(StudyMode::Default, &overrides)).unwrap_err().to_string()
    };
    let both = refused("[transport]\nnagle = false\n[transport.tcp]\nnagle = true\n", "run.seed=1");
    assert!(both.contains("transport.nagle applies to both TCP and SCTP"), "{both}");
    let axis = "[[axes]]\nname = \"nagle\"\nset = \"transport.tcp.nagle\"\nvalues = [true]\n";
    let axis = refused(axis, "transport.nagle=true");
    assert!(axis.contains("--set transport.nagle: the axis \"nagle\" varies it"), "{axis}");
}

#[test]
fn bursts_of_packets_are_told_with_their_link() {
    let of = |loss: &str| plan_warnings(&format!("loss = {loss}\n[transport]\nnagle = false"), &[]);
    let told = "t.toml:10:1: links.core.loss: bursts are counted in packets, so on a quiet link a burst outlasts every \
                retransmission: give mean as a time, such as \"20 ms\", or set kind = \"timed-gilbert-elliott\"";
    assert_eq!(of("{ kind = \"burst\", loss = \"5 %\", mean = 3 }"), [told]);
    assert_eq!(
        of("{ kind = \"gilbert-elliott\", to_bad = \"1 %\", to_good = \"30 %\", bad = \"50 %\" }"),
        [told]
    );
    for in_order in [
        "{ kind = \"burst\", loss = \"5 %\", mean = \"20 ms\" }",
        "{ kind = \"burst\", loss = \"0 %\", mean = 3 }",
        "{ kind = \"timed-gilbert-elliott\", good_time = \"1 s\", bad_time = \"20 ms\", bad = \"50 %\" }",
    ] {
        assert!(of(in_order).is_empty(), "{in_order}");
    }
}

/// A study that compares bursts measured in packets needs no warning.
#[test]
fn founding_studies_and_templates_have_no_others() {
    let study = |name: &str, text: &str| Study::parse(name, name, text).unwrap_or_else(|e| panic!("{e}"));
    let founding =
        usher_scenario::founding::founding_studies().iter().map(|known| study(known.name, known.text));
    let templates = usher_scenario::TEMPLATES.iter().map(|template| study(template.kind, template.text));
    for study in founding.chain(templates) {
        for mode in StudyMode::ALL {
            let plan = study.build_plan(mode, &PlanOverrides::default()).unwrap_or_else(|e| panic!("{e}"));
            let told: Vec<String> = plan.warnings.iter().map(|warning| warning.message.clone()).collect();
            let expected = usize::from(study.name() == "aaa-beyond");
            assert_eq!(told.len(), expected, "{} {}: {told:?}", study.name(), mode.name());
        }
    }
}
