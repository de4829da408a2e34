//! Workers that take replications from the schedule, and the journal that keeps what they finish.

use super::schedule::Schedule;
use super::{Facts, Outcome, RunError, Runner, Sweep, Task};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use usher_observe::journal::{self, Journal};
use usher_observe::stats::Stop;
use usher_observe::{Error, Point, Row};

/// How a sweep is run. None of it changes a row.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Replications that run at once.
    pub jobs: usize,
    /// Set to end the sweep: what runs is finished, unless its runner gives it up; nothing more is begun.
    pub interrupt: &'a AtomicBool,
    /// Hears how far it has come.
    pub watch: &'a dyn Watch,
    /// The folder that gets a capture of every point's first replication.
    pub captures: Option<&'a Path>,
}

/// Hears how far a sweep has come. Called by the workers, one at a time.
pub trait Watch: Sync {
    /// A replication is done (or was found in the journal).
    fn replication(&self) {}
    /// A point has reached its stop.
    fn point(&self, _point: &Point, _stop: Stop) {}
}

/// Hears nothing: for a sweep that nobody waits for.
impl Watch for () {}

/// A replication that could not be run.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure {
    /// The point.
    pub point: Point,
    /// The replication.
    pub replication: u32,
    /// Why.
    pub error: RunError,
}

/// What one point gave.
#[derive(Clone, PartialEq, Debug)]
pub struct PointResult {
    /// The point.
    pub point: Point,
    /// Replications kept, from the first.
    pub replications: u32,
    /// True where it ran as often as its rule asks.
    pub complete: bool,
    /// True where the precision was reached, not only the limit.
    pub converged: bool,
}

/// What a sweep gave.
#[derive(Debug)]
pub struct Results {
    /// The rows, by point in the grid's order, replication and metric.
    pub rows: Vec<Row>,
    /// The points in the grid's order.
    pub points: Vec<PointResult>,
    /// What the kept replications cost.
    pub facts: Facts,
    /// Replications that were needed and could not be run, in the order of points.
    pub failures: Vec<Failure>,
    /// Replications that were found in the journal.
    pub resumed: usize,
    /// Why the journal could not be written, which ended the sweep.
    pub broken: Option<Error>,
    /// True where every point ran as often as its rule asks.
    pub complete: bool,
}

struct Shared<'a, 'j> {
    schedule: Schedule<'a>,
    journal: &'j mut Journal,
    running: usize,
    failures: Vec<(usize, Failure)>,
    broken: Option<Error>,
}

/// Runs the sweep, or what the journal does not hold of it. Comes back when all is done, or is ended by
/// the interrupt or by a journal that cannot be written; what is finished by then is in the results.
pub fn execute(sweep: &Sweep, runner: &dyn Runner, journal: &mut Journal, options: Options<'_>) -> Results {
    let mut schedule = Schedule::new(&sweep.goals);
    let resumed = resume(sweep, &mut schedule, journal, options);
    let shared = Mutex::new(Shared { schedule, journal, running: 0, failures: Vec::new(), broken: None });
    let wake = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| work(sweep, runner, &shared, &wake, options));
        }
    });
    let Shared { schedule, journal, mut failures, mut broken, .. } =
        shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Err(error) = journal.sync() {
        broken.get_or_insert(error);
    }
    failures.retain(|(index, _)| schedule.stop(*index).is_none());
    failures.sort_by_key(|(index, f)| (*index, f.replication));
    Results {
        rows: rows(sweep, &schedule),
        points: (0..sweep.goals.len()).map(|i| point_result(sweep, &schedule, i)).collect(),
        facts: schedule.facts(),
        complete: schedule.complete() && broken.is_none(),
        failures: failures.into_iter().map(|(_, f)| f).collect(),
        resumed,
        broken,
    }
}

/// Hands what the journal holds to the schedule, except what has to run again for its capture.
fn resume(sweep: &Sweep, schedule: &mut Schedule<'_>, journal: &Journal, options: Options<'_>) -> usize {
    let mut resumed = 0;
    for (index, goal) in sweep.goals.iter().enumerate() {
        for replication in 0..goal.stopping.max.max(1) {
            let Some(results) = journal.get(&goal.point, replication) else { continue };
            let file = capture(sweep, index, replication, options);
            if file.is_some_and(|f| !f.exists()) {
                continue;
            }
            resumed += 1;
            options.watch.replication();
            if schedule.finish(index, replication, Outcome::of_record(results)) {
                schedule.stop(index).into_iter().for_each(|stop| options.watch.point(&goal.point, stop));
            }
        }
    }
    resumed
}

fn capture(
    sweep: &Sweep,
    index: usize,
    replication: u32,
    options: Options<'_>,
) -> Option<std::path::PathBuf> {
    options.captures.filter(|_| replication == 0).map(|folder| folder.join(sweep.capture(index)))
}

fn work(
    sweep: &Sweep,
    runner: &dyn Runner,
    shared: &Mutex<Shared<'_, '_>>,
    wake: &Condvar,
    options: Options<'_>,
) {
    let ahead = options.jobs.max(1) as u32;
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if state.broken.is_some() || options.interrupt.load(Ordering::Relaxed) {
            return;
        }
        let Some((index, replication)) = state.schedule.next(ahead) else {
            if state.running == 0 {
                return;
            }
            // What the others finish may open new work. An interrupt is looked for from time to time.
            let nap = std::time::Duration::from_millis(100);
            state = wake.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        };
        state.running += 1;
        drop(state);
        let file = capture(sweep, index, replication, options);
        let point = &sweep.goals[index].point;
        let task = Task { index, point, replication, capture: file.as_deref() };
        let outcome = attempt(runner, task);
        state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.running -= 1;
        // What a runner gives up when the sweep is to end is no failure.
        if outcome.is_ok() || !options.interrupt.load(Ordering::Relaxed) {
            settle(&mut state, sweep, index, replication, outcome, options.watch);
        }
        wake.notify_all();
    }
}

/// Runs one replication; a panic becomes an error.
///
/// # Errors
/// The runner's.
pub fn attempt(runner: &dyn Runner, task: Task<'_>) -> Result<Outcome, RunError> {
    catch_unwind(AssertUnwindSafe(|| runner.run(task)))
        .unwrap_or_else(|panic| Err(RunError(format!("a defect in usher: {}", message(&*panic)))))
}

/// Puts what a worker brought into journal and schedule.
fn settle(
    state: &mut Shared<'_, '_>,
    sweep: &Sweep,
    index: usize,
    replication: u32,
    outcome: Result<Outcome, RunError>,
    watch: &dyn Watch,
) {
    let point = &sweep.goals[index].point;
    match outcome {
        Ok(outcome) => {
            if let Err(error) = state.journal.append(point, replication, outcome.record()) {
                state.broken.get_or_insert(error);
            }
            watch.replication();
            if state.schedule.finish(index, replication, outcome) {
                state.schedule.stop(index).into_iter().for_each(|stop| watch.point(point, stop));
            }
        }
        Err(error) => {
            state.failures.push((index, Failure { point: point.clone(), replication, error }));
            state.schedule.fail(index, replication);
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
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

impl Outcome {
    /// The outcome as the journal keeps it, and as it comes from a process elsewhere: the facts stand behind the metrics, with
    /// names that begin with `#`, as no metric's does.
    pub fn record(&self) -> journal::Results {
        let Facts { packet_hops, wall_s, peak_rss_bytes, halved, undecided, lab } = &self.facts;
        let facts = [(HOPS, *packet_hops as f64), (WALL, *wall_s), (PEAK, *peak_rss_bytes as f64)];
        let divided = [(HALVED, *halved), (UNDECIDED, *undecided)].into_iter().filter(|(_, n)| *n > 0);
        let facts = facts.into_iter().chain(divided.map(|(name, n)| (name, n as f64)));
        let facts = facts.map(|(name, value)| (name.to_owned(), value));
        let sums = lab.sums.iter().map(|(name, value)| (format!("{SUM}{name}"), *value));
        let most = lab.most.iter().map(|(name, value)| (format!("{MOST}{name}"), *value));
        self.metrics.iter().cloned().chain(facts).chain(sums).chain(most).collect()
    }

    /// The outcome of such a record.
    pub fn of_record(results: &journal::Results) -> Self {
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

fn rows(sweep: &Sweep, schedule: &Schedule<'_>) -> Vec<Row> {
    let mut names: Vec<std::sync::Arc<str>> = Vec::new();
    let mut rows = Vec::new();
    for (index, goal) in sweep.goals.iter().enumerate() {
        for (replication, outcome) in schedule.kept(index) {
            for (metric, value) in outcome.metrics.iter().filter(|(_, v)| !v.is_nan()) {
                let known = names.iter().find(|n| ***n == **metric).cloned();
                let metric = known.unwrap_or_else(|| {
                    names.push(metric.as_str().into());
                    names[names.len() - 1].clone()
                });
                let point = goal.point.clone();
                rows.push(Row { study: sweep.study.clone(), point, replication, metric, value: *value });
            }
        }
    }
    rows
}

fn point_result(sweep: &Sweep, schedule: &Schedule<'_>, index: usize) -> PointResult {
    let stop = schedule.stop(index);
    PointResult {
        point: sweep.goals[index].point.clone(),
        replications: schedule.kept(index).count() as u32,
        complete: stop.is_some(),
        converged: stop.is_some_and(|s| s.converged),
    }
}
