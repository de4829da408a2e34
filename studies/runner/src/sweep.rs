//! The grid of a study, run on all cores: every point as often as its stopping rule asks.
//!
//! What is kept depends on the plan alone. Replications are judged in the order of their index, so the
//! rows are the same bytes with one job and with many, and after an interruption and its resumption.
//! Workers may run ahead of a point's stopping rule; what lies beyond its stop is discarded.
//!
//! [`execute`] runs a [`SweepPlan`] with a [`ReplicationRunner`] and a [`RunFolder`]'s journal; [`RunFolder::write_results`] puts the rows and the
//! manifest down; [`estimate`] says beforehand about how long it takes; [`key`] names points in a line
//! that a user can type.

mod estimate;
mod execute;
mod failing;
mod finding;
mod folder;
pub mod key;
mod line;
mod moved;
mod overlay;
mod plan;
mod recommend;
mod report;
mod samples;
mod schedule;
#[cfg(test)]
mod tests;

pub use estimate::{SweepEstimate, estimate_sweep};
pub use execute::{
    PointResult, ReplicationFailure, SweepObserver, SweepOptions, SweepResults, execute_sweep,
    run_catching_panic,
};
pub use failing::FailureSummary;
pub use folder::{CAPTURES, FolderError, LADDERS, RunFolder, RunRequest, build_id, build_of};
pub use moved::UnstableMeans;
pub use overlay::{OverlayRun, overlay_runs};
pub use plan::collect_units;
pub use recommend::{AdviceEntry, derive_advice, describe_recommendations};
pub use report::{CUT_SHORT, build_report};
pub use samples::{DialogueSamples, sample_dialogues};

use crate::world::LabFacts;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_observe::{GridPoint, StoppingRule};

/// Runs one replication of one point. Implemented by the simulator's host, and by tests.
pub trait ReplicationRunner: Sync {
    /// Runs this replication of `sweep.tasks[task.index]`. On the simulator the same task gives the same metrics, whatever
    /// ran before it and on which thread.
    ///
    /// # Errors
    /// The point cannot be run. A panic is caught by [`execute`] and reported as an error.
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError>;
}

/// One replication to run.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationTask<'a> {
    /// The point's place in [`SweepPlan::goals`].
    pub index: usize,
    /// The point.
    pub point: &'a GridPoint,
    /// The replication, from 0.
    pub replication: u32,
    /// Where to write a capture of the packets, when one is asked for.
    pub capture: Option<&'a Path>,
}

/// What one replication gave.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReplicationOutcome {
    /// Metrics by name in the study's order, in SI base units. A metric that is NaN has no row.
    pub metrics: Vec<(String, f64)>,
    /// What the run cost.
    pub facts: RunFacts,
}

/// What runs cost: for the manifest, never for a row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunFacts {
    /// Packets that links handed to hosts.
    pub packet_hops: u64,
    /// Wall-clock seconds of the event loop alone.
    pub wall_s: f64,
    /// The process's largest resident set up to the loop's end, in bytes; 0 where it is not known.
    pub peak_rss_bytes: u64,
    /// Runs that two threads did a half each of.
    pub halved: u64,
    /// Runs that two threads have tried, and one has done ([`Division::Undecided`](crate::world::RunDivision::Undecided)).
    pub undecided: u64,
    /// What runs on a lab have to say of themselves.
    pub lab: LabFacts,
}

impl RunFacts {
    /// Takes another run's facts in: hops and seconds add up, of the peaks the larger one stays.
    pub fn add(&mut self, other: &Self) {
        self.packet_hops += other.packet_hops;
        self.wall_s += other.wall_s;
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        self.halved += other.halved;
        self.undecided += other.undecided;
        self.lab.add(&other.lab);
    }
}

/// Why a replication could not be run.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub String);

impl RunError {
    /// The error that another one says.
    pub fn new(cause: impl std::fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

/// One point of the grid and how often it is to run.
#[derive(Clone, PartialEq, Debug)]
pub struct PointGoal {
    /// The point; unique in its sweep.
    pub point: GridPoint,
    /// When it has run often enough.
    pub stopping: StoppingRule,
    /// The metrics that the stopping rule looks at.
    pub watched: Vec<String>,
}

/// A study's plan as the sweep needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct SweepPlan {
    /// The study's name, as rows carry it.
    pub study: Arc<str>,
    /// The hash of everything that decides the rows: study, mode, seed, changed settings.
    pub plan: String,
    /// The points in the order of the grid, which is the order of the rows.
    pub goals: Vec<PointGoal>,
}

impl SweepPlan {
    /// The fewest and the most replications that it can take.
    pub fn replication_range(&self) -> (u64, u64) {
        let most = |g: &PointGoal| u64::from(g.stopping.max.max(1));
        let fewest = |g: &PointGoal| u64::from(g.stopping.min.max(1)).min(most(g));
        (self.goals.iter().map(fewest).sum(), self.goals.iter().map(most).sum())
    }

    /// How many replications it is expected to need, as its points stop.
    pub fn expected_replications(&self) -> ReplicationForecast {
        ReplicationForecast { points: self.goals.len() as u64, fewest: self.replication_range().0 }
    }

    /// The file of a point's capture below a run's folder: it has the study's name, since those of several are looked at together.
    pub fn capture_path(&self, index: usize) -> PathBuf {
        let point = self.goals.get(index).map(|g| g.point.to_string()).unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "=.-".contains(c) { c } else { '_' };
        let name: String = point.chars().map(plain).take(120).collect();
        Path::new(CAPTURES).join(format!("{}-{index:04}-{name}.pcapng", self.study))
    }
}

/// How many replications a sweep is expected to need: what stopped points took, and as much again for each other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicationForecast {
    /// All points.
    points: u64,
    /// The fewest replications.
    fewest: u64,
}

impl ReplicationForecast {
    /// The number when so many points have stopped, after so many replications.
    pub fn forecast_replications(&self, stopped: u64, of_stopped: u64) -> u64 {
        if stopped == 0 {
            return self.fewest;
        }
        let rest = self.points.saturating_sub(stopped);
        (of_stopped + of_stopped * rest / stopped).max(self.fewest)
    }
}
