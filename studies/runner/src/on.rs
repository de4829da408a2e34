//! The sweep's runners: a plan's points on the simulator, or on a lab.

use crate::capture::{self, Packets};
use crate::sweep::{Facts, Outcome, RunError, Runner, Task};
#[cfg(not(target_arch = "wasm32"))]
use crate::world::Division;
#[cfg(not(target_arch = "wasm32"))]
use crate::world::LabSettings;
use crate::world::{RunResult, World, WorldError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::Seed;
use usher_scenario::Plan;
use usher_scenario::model::Scenario;
use usher_sim::Tap;

/// Runs the points of a plan on the simulator.
#[derive(Debug)]
pub struct SimRunner<'a> {
    plan: &'a Plan,
    links: Vec<String>,
    #[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "a browser has one thread"))]
    threads: usize,
    stop: Option<Arc<AtomicBool>>,
}

impl<'a> SimRunner<'a> {
    /// A runner for this plan's points. A capture holds [these links](captured).
    pub fn new(plan: &'a Plan, links: Vec<String>) -> Self {
        Self { plan, links, threads: 1, stop: None }
    }

    /// Has a replication that is not captured run by up to so many threads. It changes no metric.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Has the replications under way given up when this is set, as a sweep's [`interrupt`](crate::sweep::Options::interrupt) may
    /// be: they are errors then.
    #[must_use]
    pub fn until(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), ..self }
    }
}

/// What a capture of this scenario holds: the links that are asked for; of none, those that its `[capture]` names, or else all.
pub fn captured(asked: &[String], scenario: &Scenario) -> Vec<String> {
    match (asked, &scenario.capture.links[..]) {
        ([], []) => scenario.link_names().map(str::to_owned).collect(),
        ([], named) => named.to_vec(),
        (asked, _) => asked.to_vec(),
    }
}

impl Runner for SimRunner<'_> {
    fn run(&self, task: Task<'_>) -> Result<Outcome, RunError> {
        #[cfg(not(target_arch = "wasm32"))]
        if self.threads > 1 && task.capture.is_none() {
            let point = self.plan.points.get(task.index).ok_or_else(no_point)?;
            let seed = point.seed(task.replication);
            let ran = World::run_by(&point.scenario, seed, self.threads, self.stop.as_ref());
            let (result, division) = ran.map_err(RunError::new)?;
            let mut outcome = outcome(result);
            outcome.facts.halved = u64::from(division == Division::Halves);
            outcome.facts.undecided = u64::from(matches!(division, Division::Undecided(_)));
            return Ok(outcome);
        }
        run(self.plan, &self.links, task, |scenario, seed, links, tap| {
            Ok(World::new(scenario, seed, links, tap)?.until(self.stop.as_ref()))
        })
    }
}

/// Runs the points of a plan on a lab, each replication on one of its own. What it measures is not the same twice.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
pub struct LabRunner<'a> {
    plan: &'a Plan,
    links: Vec<String>,
    settings: LabSettings,
}

#[cfg(not(target_arch = "wasm32"))]
impl<'a> LabRunner<'a> {
    /// A runner for this plan's points; captures as for [`SimRunner::new`].
    pub fn new(plan: &'a Plan, links: Vec<String>, settings: LabSettings) -> Self {
        Self { plan, links, settings }
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Runner for LabRunner<'_> {
    fn run(&self, task: Task<'_>) -> Result<Outcome, RunError> {
        let name = format!("{}, {}, replication {}", self.plan.study, task.point, task.replication);
        run(self.plan, &self.links, task, |scenario, seed, links, tap| {
            World::on_lab(scenario, seed, links, tap, &name, &self.settings)
        })
    }
}

fn run(
    plan: &Plan,
    asked: &[String],
    task: Task<'_>,
    world: impl FnOnce(&Scenario, Seed, &[String], Option<Box<dyn Tap>>) -> Result<World, WorldError>,
) -> Result<Outcome, RunError> {
    let point = plan.points.get(task.index).ok_or_else(no_point)?;
    let scenario = &point.scenario;
    let links = captured(asked, scenario);
    let tap = task.capture.map(|_| Box::<Packets>::default() as Box<dyn Tap>);
    let world = world(scenario, point.seed(task.replication), &links, tap).map_err(RunError::new)?;
    let mut result = world.run().map_err(RunError::new)?;
    if let (Some(path), Some(captured)) = (task.capture, result.capture.take()) {
        let remarks = scenario.replays_handshakes().then_some(capture::REPLAYED);
        capture::write(captured, path, remarks.as_slice())
            .map_err(|e| RunError(format!("cannot write the capture {}: {e}", path.display())))?;
    }
    Ok(outcome(result))
}

fn no_point() -> RunError {
    RunError::new("no such point in the plan")
}

fn outcome(result: RunResult) -> Outcome {
    let facts = Facts {
        packet_hops: result.packet_hops,
        wall_s: result.wall_s,
        peak_rss_bytes: result.peak_rss_bytes,
        lab: result.lab,
        ..Facts::default()
    };
    Outcome { metrics: result.metrics, facts }
}
