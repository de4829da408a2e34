//! The grid of a study, run on all cores: each point as often as its stopping rule asks.
//!
//! The kept replications depend on the plan alone. The schedule evaluates replications in the order of their index. The
//! rows therefore have the same bytes with one job and with many, and after an interrupted and resumed run. Workers may
//! run ahead of a point's stopping rule; replications beyond the stop are discarded.
//!
//! [`execute_sweep`] runs a [`SweepPlan`] with a [`ReplicationRunner`] and the journal of a [`RunFolder`].
//! [`RunFolder::write_results`] writes the rows and the manifest. [`estimate_sweep`] predicts the duration. [`key`] names
//! points in a line that a user can type.

mod estimate;
mod execute;
mod failed_dialogues;
mod finding;
mod folder;
pub mod key;
mod line;
mod moved_means;
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
pub use failed_dialogues::DialogueFailureSummary;
pub use folder::{CAPTURES, FolderError, LADDERS, RunFolder, RunRequest, build_id, build_of};
pub use moved_means::UnstableMeanSummary;
pub use overlay::{FigureSourceRun, overlay_run_figures};
pub use plan::collect_units;
pub use recommend::{RecommendationEntry, derive_advice, describe_recommendations};
pub use report::{CUT_SHORT, build_report};
pub use samples::{DialogueSamples, sample_dialogues};

use crate::world::LabRunStats;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_observe::{GridPoint, StoppingRule};

/// Runs one replication of one point. The simulator, the lab and tests implement it.
pub trait ReplicationRunner: Sync {
    /// Runs this replication of `sweep.tasks[task.index]`. On the simulator the same task gives the same metrics on any
    /// thread and in any order.
    ///
    /// # Errors
    /// The point cannot be run. [`execute_sweep`] catches a panic and reports it as an error.
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError>;
}

/// One replication to run.
#[derive(Clone, Copy, Debug)]
pub struct ReplicationTask<'a> {
    /// The point's index in [`SweepPlan::goals`].
    pub index: usize,
    /// The point.
    pub point: &'a GridPoint,
    /// The replication's index, from 0.
    pub replication: u32,
    /// The file for a capture of the packets, if any.
    pub capture: Option<&'a Path>,
}

/// The outcome of one replication.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReplicationOutcome {
    /// Metrics by name in the study's order, in SI base units. A metric that is NaN has no row.
    pub metrics: Vec<(String, f64)>,
    /// The cost of the run.
    pub facts: RunCostStats,
}

/// The cost of runs: for the manifest, never for a row.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunCostStats {
    /// Packets that links delivered to hosts.
    pub packet_hops: u64,
    /// Wall-clock seconds of the event loop alone.
    pub wall_s: f64,
    /// The process's peak resident set by the end of the loop, in bytes; 0 if unknown.
    pub peak_rss_bytes: u64,
    /// Runs that two threads divided into halves.
    pub halved: u64,
    /// Runs that two threads tried and one thread repeated
    /// ([`Division::Undecided`](crate::world::RunDivisionOutcome::Undecided)).
    pub undecided: u64,
    /// Facts of runs on a lab.
    pub lab: LabRunStats,
}

impl RunCostStats {
    /// Adds another run's facts: hops and seconds add up, peaks keep the maximum.
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
    /// Creates an error with the text of `cause`.
    pub fn new(cause: impl std::fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

/// A point of the grid and its stopping rule.
#[derive(Clone, PartialEq, Debug)]
pub struct PointStoppingPlan {
    /// The point; unique in its sweep.
    pub point: GridPoint,
    /// When to stop its replications.
    pub stopping: StoppingRule,
    /// The metrics that the stopping rule watches.
    pub watched: Vec<String>,
}

/// A study's plan as a sweep needs it.
#[derive(Clone, PartialEq, Debug)]
pub struct SweepPlan {
    /// The study's name in rows.
    pub study: Arc<str>,
    /// The hash of everything that determines the rows: study, mode, seed, changed settings.
    pub plan: String,
    /// The points in the order of the grid, which is the order of the rows.
    pub goals: Vec<PointStoppingPlan>,
}

impl SweepPlan {
    /// Returns the minimum and maximum number of replications.
    pub fn replication_range(&self) -> (u64, u64) {
        let most = |g: &PointStoppingPlan| u64::from(g.stopping.max.max(1));
        let fewest = |g: &PointStoppingPlan| u64::from(g.stopping.min.max(1)).min(most(g));
        (self.goals.iter().map(fewest).sum(), self.goals.iter().map(most).sum())
    }

    /// Returns a forecast of the replications, which improves as points stop.
    pub fn expected_replications(&self) -> ReplicationForecast {
        ReplicationForecast { points: self.goals.len() as u64, fewest: self.replication_range().0 }
    }

    /// Returns the file of a point's capture below a run's folder. Its name contains the study's, because users open
    /// captures of several studies together.
    pub fn capture_path(&self, index: usize) -> PathBuf {
        let point = self.goals.get(index).map(|g| g.point.to_string()).unwrap_or_default();
        let plain = |c: char| if c.is_ascii_alphanumeric() || "=.-".contains(c) { c } else { '_' };
        let name: String = point.chars().map(plain).take(120).collect();
        Path::new(CAPTURES).join(format!("{}-{index:04}-{name}.pcapng", self.study))
    }
}

/// Forecasts the replications of a sweep: the replications of stopped points, and their mean for each other point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicationForecast {
    /// All points.
    points: u64,
    /// The fewest replications.
    fewest: u64,
}

impl ReplicationForecast {
    /// Returns the forecast after `stopped` points have stopped with `of_stopped` replications.
    pub fn forecast_total_replications(&self, stopped: u64, of_stopped: u64) -> u64 {
        if stopped == 0 {
            return self.fewest;
        }
        let rest = self.points.saturating_sub(stopped);
        (of_stopped + of_stopped * rest / stopped).max(self.fewest)
    }
}
