//! Runs of a whole plan, on threads of this process or by whoever else computes replications.

use crate::faults;
use crate::results::Results;
use crate::study::Plan;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use usher_experiment::{ExperimentResult, StudyExperiment};
use usher_observe::stats::StopDecision;
use usher_observe::{GridPoint, RunFileError};
use usher_runner::SimRunner;
use usher_runner::sweep::{
    self, FolderError, ReplicationForecast, ReplicationOutcome, ReplicationRunner, ReplicationTask, RunError,
    RunFolder, SweepObserver, SweepOptions, key,
};

/// How often Python's signals are looked for and its progress is told.
const LOOK: Duration = Duration::from_millis(50);

/// Ends a run: nothing more is begun once it is set, and replications that are under way here are given up.
#[pyclass(frozen, module = "usher._native")]
#[derive(Debug, Default)]
pub(crate) struct Stop {
    pub(crate) flag: Arc<AtomicBool>,
}

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }
    pub(crate) fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }
}

/// How far a run has come.
#[derive(Default)]
struct RunProgress {
    replications: AtomicU64,
    points: AtomicU64,
    of_points: AtomicU64,
}

impl SweepObserver for RunProgress {
    fn on_replication_done(&self) {
        self.replications.fetch_add(1, Ordering::Relaxed);
    }
    fn on_point_stopped(&self, _: &GridPoint, stop: StopDecision) {
        self.points.fetch_add(1, Ordering::Relaxed);
        self.of_points.fetch_add(u64::from(stop.replications), Ordering::Relaxed);
    }
}

impl RunProgress {
    /// Replications that are done, and about how many there will be; points that are done.
    fn current_progress(&self, expected: &ReplicationForecast) -> (u64, u64, u64) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let done = load(&self.replications);
        let points = load(&self.points);
        (done, expected.forecast_total_replications(points, load(&self.of_points)).max(done), points)
    }
}

/// Does work on a thread of its own. Meanwhile this one lets Python's others run, hears its signals, and looks; what either raises
/// sets `stop`, and is given back with what the work came to.
pub(crate) fn run_attended<T: Send>(
    py: Python<'_>,
    stop: &Stop,
    look: &(dyn Fn(Python<'_>) -> PyResult<()> + Sync),
    work: impl FnOnce() -> T + Send,
) -> (T, Option<PyErr>) {
    py.detach(|| {
        std::thread::scope(|scope| {
            let (tell, told) = channel::<()>();
            let work = scope.spawn(move || {
                let _tell = tell;
                work()
            });
            let mut raised: Option<PyErr> = None;
            // The channel closes when the work is done, in whichever way.
            while told.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let looked = Python::attach(|py| py.check_signals().and_then(|()| look(py)));
                if let Err(error) = looked {
                    stop.set();
                    raised.get_or_insert(error);
                }
            }
            (work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), raised)
        })
    })
}

/// Replications by a function of Python, which gives what a plan's `replicate` gives.
struct PythonRunner<'a>(&'a Py<PyAny>);

impl ReplicationRunner for PythonRunner<'_> {
    fn run_task(&self, task: ReplicationTask<'_>) -> Result<ReplicationOutcome, RunError> {
        Python::attach(|py| {
            let given = self.0.call1(py, (task.index, task.replication));
            let record = given.and_then(|given| given.extract::<Vec<(String, f64)>>(py));
            record
                .map(|record| ReplicationOutcome::from_journal_record(&record))
                .map_err(|e| RunError::new(e.value(py)))
        })
    }
}

/// Why there are no results.
enum PythonRunFailure {
    Folder(FolderError),
    Samples(RunError),
    Files(RunFileError),
}

/// How a run is asked for by the package.
#[derive(FromPyObject)]
pub(crate) struct RunSettings {
    /// The folder of its journal, and of its results where they are kept.
    folder: PathBuf,
    /// Whether all files of a run's folder are written.
    keep: bool,
    /// Whether an earlier run there is removed.
    force: bool,
    /// The build that its journal is of.
    build: String,
    /// Replications at once.
    jobs: usize,
    /// The expression of Python that makes the plan, for lines that run a point again.
    called: String,
}

/// Runs the plan, or what its journal does not hold of it. `tick` hears how far it has come: replications done, expected, and
/// points done. Replications are computed here, or by `replicate`. Gives the results, and whether Ctrl-C ended it.
#[pyfunction]
#[pyo3(signature = (plan, settings, stop, tick, replicate=None))]
pub(crate) fn run(
    py: Python<'_>,
    plan: &Bound<'_, Plan>,
    settings: RunSettings,
    stop: &Bound<'_, Stop>,
    tick: Py<PyAny>,
    replicate: Option<Py<PyAny>>,
) -> PyResult<(Results, bool)> {
    let (plan, stop) = (plan.get(), stop.get());
    let count = RunProgress::default();
    let expected = plan.sweep.expected_replications();
    let look = |py: Python<'_>| tick.call1(py, count.current_progress(&expected)).map(drop);
    let work = || execute_plan(plan, &settings, &stop.flag, &count, replicate.as_ref());
    let (ended, raised) = run_attended(py, stop, &look, work);
    let interrupted = match raised {
        Some(error) if !error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) => {
            return Err(error);
        }
        raised => raised.is_some(),
    };
    let whole = match ended {
        Ok(whole) => whole,
        Err(PythonRunFailure::Folder(error)) => return Err(faults::of_folder(py, &error)),
        Err(PythonRunFailure::Samples(error)) => return Err(faults::usher_error(py, error)),
        Err(PythonRunFailure::Files(error)) => return Err(faults::usher_error(py, error)),
    };
    tick.call1(py, count.current_progress(&expected))?;
    Ok((Results::new(plan, whole), interrupted))
}

fn execute_plan(
    plan: &Plan,
    settings: &RunSettings,
    interrupt: &Arc<AtomicBool>,
    watch: &RunProgress,
    replicate: Option<&Py<PyAny>>,
) -> Result<ExperimentResult, PythonRunFailure> {
    let mut folder = RunFolder::open(&settings.folder, &plan.sweep.plan, &settings.build, settings.force)
        .map_err(PythonRunFailure::Folder)?;
    if settings.keep {
        folder.store_study(&plan.study, &plan.asked).map_err(PythonRunFailure::Files)?;
    }
    let (begun, started) = (Instant::now(), usher_experiment::utc_timestamp());
    let options = SweepOptions { jobs: settings.jobs, interrupt, watch, captures: None };
    let here;
    let elsewhere;
    let runner: &dyn ReplicationRunner = match replicate {
        None => {
            here = SimRunner::new(&plan.plan, Vec::new()).with_stop_flag(interrupt.clone());
            &here
        }
        Some(call) => {
            elsewhere = PythonRunner(call);
            &elsewhere
        }
    };
    let results = sweep::execute_sweep(&plan.sweep, runner, folder.journal(), options);
    let experiment = StudyExperiment {
        study: &plan.study,
        plan: &plan.plan,
        request: &plan.asked,
        jobs: settings.jobs,
        on_lab: false,
    };
    let manifest = experiment.build_manifest(&results, started, begun.elapsed().as_secs_f64(), []);
    let samples = sweep::sample_dialogues(&plan.plan, interrupt).map_err(PythonRunFailure::Samples)?;
    let whole = experiment.build_run_conclusion(results, &samples, manifest, |point| {
        format!("usher.run_point({}, {:?}, 0)", settings.called, key::format_point(point))
    });
    if settings.keep {
        whole.write_files(&folder).map_err(PythonRunFailure::Files)?;
    }
    Ok(whole)
}
