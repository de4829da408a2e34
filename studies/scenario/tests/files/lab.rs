//! `[lab]`: studies in real time on a network of cables.

use usher_scenario::{PlanOverrides, Study, StudyMode, founding, lab};

/// The studies with a `[lab]` table.
const STUDIES: [&str; 8] =
    ["aaa-hol", "aaa-nagle", "aaa-delack", "mih-udp", "mih-tcp", "ike-auth", "ike-remote", "ike-parallel"];

#[test]
fn founding_studies_that_say_how_they_fit_on_a_lab_do() {
    let mut with = Vec::new();
    for found in founding::founding_studies() {
        let study = Study::open(found.name).unwrap_or_else(|e| panic!("{e}"));
        if study.file().lab.is_none() {
            continue;
        }
        with.push(found.name);
        let plan =
            study.build_plan(StudyMode::Lab, &PlanOverrides::default()).unwrap_or_else(|e| panic!("{e}"));
        for point in &plan.points {
            assert_eq!(
                lab::lab_obstacles(&point.scenario),
                Vec::<String>::new(),
                "{} {}",
                found.name,
                point.key
            );
            assert!(!lab::needs_sctp(&point.scenario), "{} {}", found.name, point.key);
            // Real time is limited: a replication has to end soon.
            assert!(lab::real_time(&point.scenario) <= 130.0, "{} {}", found.name, point.key);
        }
        let preset = plan.points.iter().all(|p| p.scenario.transport.tcp.timestamps);
        assert!(preset || found.name == "mih-udp", "{} has Linux's preset", found.name);
    }
    with.sort_by_key(|name| STUDIES.iter().position(|s| s == name));
    assert_eq!(with, STUDIES);
}

#[test]
fn a_lab_has_the_wire_that_waits_for_it() {
    let study = Study::open("mih-udp").unwrap_or_else(|e| panic!("{e}"));
    let names = |mode| {
        let plan = study.build_plan(mode, &PlanOverrides::default()).unwrap_or_else(|e| panic!("{e}"));
        plan.points[0].scenario.link_names().map(str::to_owned).collect::<Vec<_>>()
    };
    let of_lab = names(StudyMode::Lab);
    assert!(of_lab.contains(&"wire".to_owned()));
    assert!(names(StudyMode::Default).iter().all(|name| name != "wire"));
}

#[test]
fn what_is_in_the_way_of_a_lab_is_named_with_what_to_set() {
    let text = Study::open("aaa-hol")
        .unwrap()
        .file_text()
        .replace("\"cells.access.used\" = false\n\"links", "\"links");
    let study = Study::parse("own", "own.toml", &text).unwrap_or_else(|e| panic!("{e}"));
    let faults = study.check_plans().unwrap_err().to_string();
    assert!(faults.contains("cells.access is an 802.16 cell"), "{faults}");
    assert!(faults.contains("\"cells.access.used\" = false"), "{faults}");
    // Without `[lab]` there are no requirements.
    let handover = Study::open("handover-mn").unwrap();
    handover.check_plans().unwrap_or_else(|e| panic!("{e}"));
    let plan = handover.build_plan(StudyMode::Lab, &PlanOverrides::default()).unwrap();
    assert!(lab::lab_obstacles(&plan.points[0].scenario).iter().any(|reason| reason.contains("handovers")));
}
