//! Runs studies that are written in place.

use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Study, StudyMode, StudyPlan};

/// Returns the plan of a study; adds title and question to its text.
pub(crate) fn parse_study_plan(text: &str) -> Result<StudyPlan, String> {
    let text = format!("title = \"T\"\nquestion = \"Q?\"\n{text}");
    let study = Study::parse("verify", "verify.toml", &text).map_err(|e| e.to_string())?;
    study.build_plan(StudyMode::Default, &PlanOverrides::default()).map_err(|e| e.to_string())
}

/// Returns a metric of a plan's first point, by replication.
pub(crate) fn simulate_metric(plan: &StudyPlan, name: &str, replications: u32) -> Result<Vec<f64>, String> {
    let point = plan.points.first().ok_or("the study has no point")?;
    let one = |replication| {
        let world = ScenarioRun::new(&point.scenario, point.replication_seed(replication), &[], None);
        let result = world.and_then(ScenarioRun::run_to_end).map_err(|e| e.to_string())?;
        let found = result.metrics.iter().find(|(metric, _)| *metric == name);
        found.map(|(_, value)| *value).ok_or(format!("the run has no {name}"))
    };
    (0..replications).map(one).collect()
}
