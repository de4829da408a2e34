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
use usher_runner::world::World;
use usher_scenario::{Mode, Overrides, Study};

/// A run's metrics by name.
type Metrics = BTreeMap<String, f64>;

/// Runs the one point of a study.
fn run(text: &str) -> Metrics {
    let study = Study::parse("test", "test.toml", text).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = study.plan(Mode::Default, &Overrides::default()).unwrap_or_else(|faults| panic!("{faults}"));
    let [point] = &plan.points[..] else { panic!("{} points", plan.points.len()) };
    let world = World::new(&point.scenario, point.seed(0), &[], None).unwrap();
    world.run().unwrap().metrics.into_iter().collect()
}
