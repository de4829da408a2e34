//! How many servers a deployment needs.

use crate::faults;
use crate::run::{Stop, run_attended};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use usher_config::disk::DiskEnvironment;
use usher_plan::{PlanError, PlanFile, PlanObserver, PlanSimulationSettings, PreparedPlan};
use usher_report::HtmlReport;

/// How thoroughly, as the package asks for it.
#[derive(FromPyObject)]
pub(crate) struct SizingRunSettings {
    quick: bool,
    replications: Option<u32>,
    logins: Option<u32>,
    seed: u64,
    jobs: usize,
}

/// Steps that are done, of so many, and the user's interrupt.
struct SizingProgress<'a> {
    done: AtomicUsize,
    total: AtomicUsize,
    stop: &'a Stop,
}

impl PlanObserver for SizingProgress<'_> {
    fn on_progress(&self, steps: usize, of: usize) {
        self.done.store(steps, Ordering::Relaxed);
        self.total.store(of, Ordering::Relaxed);
    }
    fn is_interrupted(&self) -> bool {
        self.stop.is_set()
    }
}

/// Answers the plan in a file, or in a text that has no file: as JSON, and the report as HTML. `tick` hears steps done, and of how many.
#[pyfunction]
#[pyo3(signature = (file, text, asked, stop, tick))]
pub(crate) fn size(
    py: Python<'_>,
    file: Option<PathBuf>,
    text: &str,
    asked: SizingRunSettings,
    stop: &Bound<'_, Stop>,
    tick: Py<PyAny>,
) -> PyResult<(String, String)> {
    let wanted = match &file {
        Some(path) => PlanFile::read_file(path).map_err(|e| faults::of_argument(py, e))?,
        None => usher_plan::parse_plan("the plan", text, &DiskEnvironment)
            .map_err(|e| faults::of_study(py, &e.faults))?,
    };
    let SizingRunSettings { quick, replications, logins, seed, jobs } = asked;
    let effort = PlanSimulationSettings { quick, replications, logins, seed, jobs };
    let prepared = py.detach(|| wanted.prepare_plan(&effort, env!("CARGO_PKG_VERSION")));
    let PreparedPlan { settings, deployment, profile, summary: about, assumptions, .. } =
        prepared.map_err(|e| faults::of_argument(py, e))?;
    let told = SizingProgress { done: AtomicUsize::new(0), total: AtomicUsize::new(1), stop: stop.get() };
    let look = |py: Python<'_>| {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        tick.call1(py, (load(&told.done), load(&told.total), 0)).map(drop)
    };
    let work = || {
        let answer = usher_plan::plan_deployment(&deployment, &profile, &settings, &told)?;
        let json = usher_plan::answer_json(&answer, &settings, &assumptions).to_string();
        let report: HtmlReport = usher_plan::build_report(&answer, &settings, &about, assumptions);
        Ok::<_, PlanError>((json, report.to_html()))
    };
    let (answered, raised) = run_attended(py, stop.get(), &look, work);
    match (answered, raised) {
        (_, Some(error)) => Err(error),
        (Ok(answer), None) => Ok(answer),
        (Err(error @ PlanError::World(_)), None) => Err(faults::of_argument(py, error)),
        (Err(error), None) => Err(faults::usher_error(py, error)),
    }
}
