//! Workers that take replications from the schedule, and the journal that keeps the finished ones.

use super::schedule::SweepSchedule;
use super::{ReplicationOutcome, ReplicationRunner, ReplicationTask, RunCostStats, RunError, SweepPlan};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use usher_observe::journal::{self, RunJournal};
use usher_observe::stats::StopDecision;
use usher_observe::{GridPoint, ResultRow, RunFileError};

/// Options of a run of the sweep. None of them changes a row.
#[derive(Clone, Copy)]
pub struct SweepOptions<'a> {
    /// Replications that run at once.
    pub jobs: usize,
    /// Set to end the sweep. Running replications finish unless their runner gives up; no further replication starts.
    pub interrupt: &'a AtomicBool,
    /// Receives the progress.
    pub watch: &'a dyn SweepObserver,
    /// The folder that gets a capture of every point's first replication.
    pub captures: Option<&'a Path>,
}

/// Receives the progress of a sweep. Workers call it one at a time.
pub trait SweepObserver: Sync {
    /// A replication has finished, or the journal already had it.
    fn on_replication_done(&self) {}
    /// A point has stopped.
    fn on_point_stopped(&self, _point: &GridPoint, _stop: StopDecision) {}
}

/// Ignores all progress.
impl SweepObserver for () {}

/// A replication that could not be run.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicationFailure {
    /// The point.
    pub point: GridPoint,
    /// The replication.
    pub replication: u32,
    /// Why.
    pub error: RunError,
}

/// The result of one point.
#[derive(Clone, PartialEq, Debug)]
pub struct PointResult {
    /// The point.
    pub point: GridPoint,
    /// Number of kept replications, from the first.
    pub replications: u32,
    /// True if the point ran as often as its rule asks.
    pub complete: bool,
    /// True if the point reached the precision, not only the limit.
    pub converged: bool,
}

/// The results of a sweep.
#[derive(Debug)]
pub struct SweepResults {
    /// The rows, by point in the grid's order, replication and metric.
    pub rows: Vec<ResultRow>,
    /// The points in the grid's order.
    pub points: Vec<PointResult>,
    /// The cost of the kept replications.
    pub facts: RunCostStats,
    /// Needed replications that could not be run, in the order of points.
    pub failures: Vec<ReplicationFailure>,
    /// Number of replications that the journal already had.
    pub resumed: usize,
    /// The journal's write error that ended the sweep.
    pub broken: Option<RunFileError>,
    /// True if every point ran as often as its rule asks.
    pub complete: bool,
}

struct SweepState<'a, 'j> {
    schedule: SweepSchedule<'a>,
    journal: &'j mut RunJournal,
    running: usize,
    failures: Vec<(usize, ReplicationFailure)>,
    broken: Option<RunFileError>,
}

/// Runs the replications of the sweep that the journal lacks. Returns when all are finished, or when the interrupt or a
/// journal write error ends the sweep. The results contain all finished replications.
pub fn execute_sweep(
    sweep: &SweepPlan,
    runner: &dyn ReplicationRunner,
    journal: &mut RunJournal,
    options: SweepOptions<'_>,
) -> SweepResults {
    let mut schedule = SweepSchedule::new(&sweep.goals);
    let resumed = resume_from_journal(sweep, &mut schedule, journal, options);
    let shared = Mutex::new(SweepState { schedule, journal, running: 0, failures: Vec::new(), broken: None });
    let wake = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| run_sweep_worker(sweep, runner, &shared, &wake, options));
        }
    });
    let SweepState { schedule, journal, mut failures, mut broken, .. } =
        shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = journal.sync() {
        broken.get_or_insert(error);
    }
    failures.retain(|(index, _)| schedule.point_stop_decision(*index).is_none());
    failures.sort_by_key(|(index, f)| (*index, f.replication));
    SweepResults {
        rows: collect_rows(sweep, &schedule),
        points: (0..sweep.goals.len()).map(|i| point_result(sweep, &schedule, i)).collect(),
        facts: schedule.total_run_cost(),
        complete: schedule.is_complete() && broken.is_none(),
        failures: failures.into_iter().map(|(_, f)| f).collect(),
        resumed,
        broken,
    }
}

/// Passes the replications of the journal to the schedule, except those that must run again for their capture.
fn resume_from_journal(
    sweep: &SweepPlan,
    schedule: &mut SweepSchedule<'_>,
    journal: &RunJournal,
    options: SweepOptions<'_>,
) -> usize {
    let mut resumed = 0;
    for (index, goal) in sweep.goals.iter().enumerate() {
        for replication in 0..goal.stopping.max.max(1) {
            let Some(results) = journal.get(&goal.point, replication) else { continue };
            let file = capture_file(sweep, index, replication, options);
            if file.is_some_and(|f| !f.exists()) {
                continue;
            }
            resumed += 1;
            options.watch.on_replication_done();
            if schedule.finish_replication(
                index,
                replication,
                ReplicationOutcome::from_journal_record(results),
            ) {
                schedule
                    .point_stop_decision(index)
                    .into_iter()
                    .for_each(|stop| options.watch.on_point_stopped(&goal.point, stop));
            }
        }
    }
    resumed
}

fn capture_file(
    sweep: &SweepPlan,
    index: usize,
    replication: u32,
    options: SweepOptions<'_>,
) -> Option<std::path::PathBuf> {
    options.captures.filter(|_| replication == 0).map(|folder| folder.join(sweep.capture_path(index)))
}

fn run_sweep_worker(
    sweep: &SweepPlan,
    runner: &dyn ReplicationRunner,
    shared: &Mutex<SweepState<'_, '_>>,
    wake: &Condvar,
    options: SweepOptions<'_>,
) {
    let ahead = options.jobs.max(1) as u32;
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if state.broken.is_some() || options.interrupt.load(Ordering::Relaxed) {
            return;
        }
        let Some((index, replication)) = state.schedule.start_next_replication(ahead) else {
            if state.running == 0 {
                return;
            }
            // Finished replications of other workers may create work. The wait has a time limit, so that the interrupt
            // is checked regularly.
            let nap = std::time::Duration::from_millis(100);
            state = wake.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        };
        state.running += 1;
        drop(state);
        let file = capture_file(sweep, index, replication, options);
        let point = &sweep.goals[index].point;
        let task = ReplicationTask { index, point, replication, capture: file.as_deref() };
        let outcome = run_catching_panic(runner, task);
        state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        // A replication that the runner gives up because the sweep ends is not a failure.
        if outcome.is_ok() || !options.interrupt.load(Ordering::Relaxed) {
            record_outcome(&mut state, sweep, index, replication, outcome, options.watch);
        }
        wake.notify_all();
    }
}

/// Runs one replication; a panic becomes an error.
///
/// # Errors
/// The runner's.
pub fn run_catching_panic(
    runner: &dyn ReplicationRunner,
    task: ReplicationTask<'_>,
) -> Result<ReplicationOutcome, RunError> {
    catch_unwind(AssertUnwindSafe(|| runner.run_task(task)))
        .unwrap_or_else(|panic| Err(RunError(format!("a defect in usher: {}", panic_message(&*panic)))))
}

/// Adds a worker's outcome to the journal and the schedule.
fn record_outcome(
    state: &mut SweepState<'_, '_>,
    sweep: &SweepPlan,
    index: usize,
    replication: u32,
    outcome: Result<ReplicationOutcome, RunError>,
    watch: &dyn SweepObserver,
) {
    let point = &sweep.goals[index].point;
    match outcome {
        Ok(outcome) => {
            if let Err(error) = state.journal.append(point, replication, outcome.to_record()) {
                state.broken.get_or_insert(error);
            }
            watch.on_replication_done();
            if state.schedule.finish_replication(index, replication, outcome) {
                state
                    .schedule
                    .point_stop_decision(index)
                    .into_iter()
                    .for_each(|stop| watch.on_point_stopped(point, stop));
            }
        }
        Err(error) => {
            state.failures.push((index, ReplicationFailure { point: point.clone(), replication, error }));
            state.schedule.fail_replication(index, replication);
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

const HOPS: &str = "#packet_hops";
const WALL: &str = "#wall_s";
const PEAK: &str = "#peak_rss_bytes";
const HALVED: &str = "#halved";
const UNDECIDED: &str = "#undecided";
const SUM: &str = "#sum.";
const MOST: &str = "#most.";

impl ReplicationOutcome {
    /// Returns the outcome as a journal record, also used between processes. The facts follow the metrics, with names
    /// that begin with `#`, unlike all metrics.
    pub fn to_record(&self) -> journal::ReplicationResults {
        let RunCostStats { packet_hops, wall_s, peak_rss_bytes, halved, undecided, lab } = &self.facts;
        let facts = [(HOPS, *packet_hops as f64), (WALL, *wall_s), (PEAK, *peak_rss_bytes as f64)];
        let divided = [(HALVED, *halved), (UNDECIDED, *undecided)].into_iter().filter(|(_, n)| *n > 0);
        let facts = facts.into_iter().chain(divided.map(|(name, n)| (name, n as f64)));
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        let sums = lab.sums.iter().map(|(name, value)| (format!("{SUM}{name}"), *value));
        let most = lab.most.iter().map(|(name, value)| (format!("{MOST}{name}"), *value));
        self.metrics.iter().cloned().chain(facts).chain(sums).chain(most).collect()
    }

    /// Returns the outcome of a journal record.
    pub fn from_journal_record(results: &journal::ReplicationResults) -> Self {
        let mut outcome = Self::default();
        for (name, value) in results {
            match name.as_str() {
                HOPS => outcome.facts.packet_hops = *value as u64,
                WALL => outcome.facts.wall_s = *value,
                PEAK => outcome.facts.peak_rss_bytes = *value as u64,
                HALVED => outcome.facts.halved = *value as u64,
                UNDECIDED => outcome.facts.undecided = *value as u64,
                _ => {
                    let lab = &mut outcome.facts.lab;
                    if let Some(name) = name.strip_prefix(SUM) {
                        lab.sums.insert(name.to_owned(), *value);
                    } else if let Some(name) = name.strip_prefix(MOST) {
                        lab.most.insert(name.to_owned(), *value);
                    } else {
                        outcome.metrics.push((name.clone(), *value));
                    }
                }
            }
        }
        outcome
    }
}

fn collect_rows(sweep: &SweepPlan, schedule: &SweepSchedule<'_>) -> Vec<ResultRow> {
    let mut names: Vec<std::sync::Arc<str>> = Vec::new();
    let mut rows = Vec::new();
    for (index, goal) in sweep.goals.iter().enumerate() {
        for (replication, outcome) in schedule.counted_outcomes(index) {
            for (metric, value) in outcome.metrics.iter().filter(|(_, v)| !v.is_nan()) {
                let known = names.iter().find(|n| ***n == **metric).cloned();
                let metric = known.unwrap_or_else(|| {
                    names.push(metric.as_str().into());
                    names[names.len() - 1].clone()
                });
                let point = goal.point.clone();
                rows.push(ResultRow {
                    study: sweep.study.clone(),
                    point,
                    replication,
                    metric,
                    value: *value,
                });
            }
        }
    }
    rows
}

fn point_result(sweep: &SweepPlan, schedule: &SweepSchedule<'_>, index: usize) -> PointResult {
    let stop = schedule.point_stop_decision(index);
    PointResult {
        point: sweep.goals[index].point.clone(),
        replications: schedule.counted_outcomes(index).count() as u32,
        complete: stop.is_some(),
        converged: stop.is_some_and(|s| s.converged),
    }
}
