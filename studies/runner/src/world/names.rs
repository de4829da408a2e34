//! Tests that runs report exactly the declared metrics and work labels.

use super::role::worked;
use super::run::ScenarioRun;
use std::collections::BTreeSet;
use usher_core::WorkLabel;
use usher_scenario::{PlanOverrides, PlanPoint, Study, StudyMode, founding, metrics, work};

/// A founding study's points, shortened to seconds; each has an axis value that no earlier one has. Handover studies
/// keep their duration: a station walks for a while until its handover, and handovers seldom fail.
fn distinct_points(study: &founding::FoundingStudy) -> Vec<PlanPoint> {
    let mut overrides = PlanOverrides::default();
    let whole = study.name.starts_with("handover");
    if !whole {
        overrides.add_setting("run.duration=5 s").unwrap();
    }
    let plan = Study::parse(study.name, study.name, study.text)
        .unwrap()
        .build_plan(StudyMode::Quick, &overrides)
        .unwrap_or_else(|e| panic!("{}: {e}", study.name));
    let mut shown = BTreeSet::new();
    let mut news = |point: &PlanPoint| {
        let values = point.settings.iter().enumerate();
        values.fold(false, |new, (axis, value)| shown.insert((axis, format!("{value:?}"))) || new)
    };
    plan.points.into_iter().filter(|point| whole || news(point)).collect()
}

#[test]
fn founding_studies_say_what_is_declared() {
    let (mut runs, mut said) = (0, BTreeSet::new());
    for study in founding::founding_studies() {
        for point in distinct_points(study) {
            let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
            let result = world.run_to_end().unwrap_or_else(|e| panic!("{}: {e}", study.name));
            for (name, _) in result.metrics {
                let metric = metrics::find_metric(&name, &point.scenario);
                said.insert(metric.unwrap_or_else(|| panic!("{}: {name} is not declared", study.name)).name);
            }
            runs += 1;
        }
    }
    let declared: BTreeSet<WorkLabel> = work::all_work_labels().collect();
    let seen = worked::take_recorded_labels();
    assert_eq!(seen.difference(&declared).collect::<Vec<_>>(), [] as [&WorkLabel; 0], "not in work::all");
    // No study hashes passwords, checks certificates by a service, queries IDENT or logs sessions. `usher-aaa`,
    // `usher-ident` and this crate's PPPoE studies test those work labels.
    let silent: Vec<&str> = declared.difference(&seen).map(|label| label.name()).collect();
    let expected = ["certificate.check", "ident.message", "password.argon2", "pppoe.log"];
    assert_eq!(silent, expected, "declared, and never emitted in {runs} runs");
    let silent: Vec<&str> = metrics::METRICS.iter().map(|m| m.name).filter(|m| !said.contains(m)).collect();
    // Two of these metrics are measured only if a study names them, and the last two only in a sampled lab.
    assert_eq!(
        silent,
        ["delay.p99.9", "within", "ident.named", "cpu.libc", "cpu.kernel"],
        "declared, and never measured in {runs} runs"
    );
}
