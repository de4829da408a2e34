//! Runners of a sweep: the points of a plan on the simulator or on a lab.

use crate::capture::{self, CapturedPackets};
use crate::sweep::{ReplicationOutcome, ReplicationRunner, ReplicationTask, RunCostStats, RunError};
#[cfg(not(target_arch = "wasm32"))]
use crate::world::LabRunSettings;
#[cfg(not(target_arch = "wasm32"))]
use crate::world::RunDivisionOutcome;
use crate::world::{RunResult, ScenarioRun, ScenarioRunError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::Seed;
use usher_scenario::StudyPlan;
use usher_scenario::model::Scenario;
use usher_sim::PacketTap;

/// Runs the points of a plan on the simulator.
#[derive(Debug)]
pub struct SimRunner<'a> {
    plan: &'a StudyPlan,
    links: Vec<String>,
    #[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "a browser has one thread"))]
    threads: usize,
    stop: Option<Arc<AtomicBool>>,
}

impl<'a> SimRunner<'a> {
    /// Creates a runner for the points of this plan. A capture holds [these links](captured_links).
    pub fn new(plan: &'a StudyPlan, links: Vec<String>) -> Self {
        Self { plan, links, threads: 1, stop: None }
    }

    /// Runs a replication without a capture by up to this number of threads. Metrics do not change.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Ends running replications with an error when `stop` is set, such as a sweep's
    /// [`interrupt`](crate::sweep::SweepOptions::interrupt).
    #[must_use]
    pub fn with_stop_flag(self, stop: Arc<AtomicBool>) -> Self {
        Self { stop: Some(stop), ..self }
    }
}

/// Returns the links to capture: `asked`, or else the links of the scenario's `[capture]`, or else all.
pub fn captured_links(asked: &[String], scenario: &Scenario) -> Vec<String> {
    match (asked, &scenario.capture.links[..]) {
        ([], []) => scenario.link_names().map(str::to_owned).collect(),
        ([], named) => named.to_vec(),
        (asked, _) => asked.to_vec(),
    }
}

impl ReplicationRunner for SimRunner<'_> {
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError> {
        #[cfg(not(target_arch = "wasm32"))]
        if self.threads > 1 && task.capture.is_none() {
            let point = self.plan.points.get(task.index).ok_or_else(unknown_point_error)?;
            let seed = point.replication_seed(task.replication);
            let ran =
                ScenarioRun::run_with_up_to_threads(&point.scenario, seed, self.threads, self.stop.as_ref());
            let (result, division) = ran.map_err(RunError::new)?;
            let mut outcome = outcome_from_result(result);
            outcome.facts.halved = u64::from(division == RunDivisionOutcome::Halves);
            outcome.facts.undecided = u64::from(matches!(division, RunDivisionOutcome::Undecided(_)));
            return Ok(outcome);
        }
        run_and_capture(self.plan, &self.links, task, |scenario, seed, links, tap| {
            Ok(ScenarioRun::new(scenario, seed, links, tap)?.with_stop_flag(self.stop.as_ref()))
        })
    }
}

/// Runs the points of a plan on labs, one lab for each replication. Measurements differ from run to run.
#[cfg(not(target_arch = "wasm32"))]
#[derive(Debug)]
pub struct LabRunner<'a> {
    plan: &'a StudyPlan,
    links: Vec<String>,
    settings: LabRunSettings,
}

#[cfg(not(target_arch = "wasm32"))]
impl<'a> LabRunner<'a> {
    /// Creates a runner for the points of this plan; captures as for [`SimRunner::new`].
    pub fn new(plan: &'a StudyPlan, links: Vec<String>, settings: LabRunSettings) -> Self {
        Self { plan, links, settings }
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl ReplicationRunner for LabRunner<'_> {
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError> {
        let name = format!("{}, {}, replication {}", self.plan.study, task.point, task.replication);
        run_and_capture(self.plan, &self.links, task, |scenario, seed, links, tap| {
            ScenarioRun::on_lab(scenario, seed, links, tap, &name, &self.settings)
        })
    }
}

fn run_and_capture(
    plan: &StudyPlan,
    asked: &[String],
    task: ReplicationTask<'_>,
    world: impl FnOnce(
        &Scenario,
        Seed,
        &[String],
        Option<Box<dyn PacketTap>>,
    ) -> Result<ScenarioRun, ScenarioRunError>,
) -> Result<ReplicationOutcome, RunError> {
    let point = plan.points.get(task.index).ok_or_else(unknown_point_error)?;
    let scenario = &point.scenario;
    let links = captured_links(asked, scenario);
    let tap = task.capture.map(|_| Box::<CapturedPackets>::default() as Box<dyn PacketTap>);
    let world =
        world(scenario, point.replication_seed(task.replication), &links, tap).map_err(RunError::new)?;
    let mut result = world.run_to_end().map_err(RunError::new)?;
    if let (Some(path), Some(captured)) = (task.capture, result.capture.take()) {
        let remarks = scenario.replays_handshakes().then_some(capture::REPLAYED);
        capture::write_capture(captured, path, remarks.as_slice())
            .map_err(|e| RunError(format!("cannot write the capture {}: {e}", path.display())))?;
    }
    Ok(outcome_from_result(result))
}

fn unknown_point_error() -> RunError {
    RunError::new("no such point in the plan")
}

fn outcome_from_result(result: RunResult) -> ReplicationOutcome {
    let facts = RunCostStats {
        packet_hops: result.packet_hops,
        wall_s: result.wall_s,
        peak_rss_bytes: result.peak_rss_bytes,
        lab: result.lab,
        ..RunCostStats::default()
    };
    ReplicationOutcome { metrics: result.metrics, facts }
}
