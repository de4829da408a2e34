//! Studies on the simulator, from TOML to metrics.

mod accounting;
mod cell;
mod handover;
mod ident;
mod ike;
mod ike_auth;
mod mih;
mod mih_service;
mod pppoe;
mod services;
mod threads;
mod tls;
mod trial;
mod workloads;
mod world;

use std::collections::BTreeMap;
use usher_runner::world::ScenarioRun;
use usher_scenario::{PlanOverrides, Study, StudyMode};

/// A run's metrics by name.
type MetricMap = BTreeMap<String, f64>;

/// Runs the one point of a study.
fn run_study(text: &str) -> MetricMap {
    let study = Study::parse("test", "test.toml", text).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = study
        .build_plan(StudyMode::Default, &PlanOverrides::default())
        .unwrap_or_else(|faults| panic!("{faults}"));
    let [point] = &plan.points[..] else { panic!("{} points", plan.points.len()) };
    let world = ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None).unwrap();
    world.run_to_end().unwrap().metrics.into_iter().collect()
}
