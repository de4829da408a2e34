//! How many servers a deployment needs.

use crate::faults;
use crate::run::{Stop, attended};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use usher_config::disk::Disk;
use usher_plan::{Effort, File, PlanError, Prepared, Watch};
use usher_report::Report;

/// How thoroughly, as the package asks for it.
#[derive(FromPyObject)]
pub(crate) struct Asked {
    quick: bool,
    replications: Option<u32>,
    logins: Option<u32>,
    seed: u64,
    jobs: usize,
}

/// Steps that are done, of so many, and the user's interrupt.
struct Told<'a> {
    done: AtomicUsize,
    of: AtomicUsize,
    stop: &'a Stop,
}

impl Watch for Told<'_> {
    fn done(&self, steps: usize, of: usize) {
        self.done.store(steps, Ordering::Relaxed);
        self.of.store(of, Ordering::Relaxed);
    }
    fn interrupted(&self) -> bool {
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
    asked: Asked,
    stop: &Bound<'_, Stop>,
    tick: Py<PyAny>,
) -> PyResult<(String, String)> {
    let wanted = match &file {
        Some(path) => File::read(path).map_err(|e| faults::of_argument(py, e))?,
        None => usher_plan::parse("the plan", text, &Disk).map_err(|e| faults::of_study(py, &e.faults))?,
    };
    let Asked { quick, replications, logins, seed, jobs } = asked;
    let effort = Effort { quick, replications, logins, seed, jobs };
    let prepared = py.detach(|| wanted.prepare(&effort, env!("CARGO_PKG_VERSION")));
    let Prepared { settings, deployment, profile, about, assumptions } =
        prepared.map_err(|e| faults::of_argument(py, e))?;
    let told = Told { done: AtomicUsize::new(0), of: AtomicUsize::new(1), stop: stop.get() };
    let look = |py: Python<'_>| {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        tick.call1(py, (load(&told.done), load(&told.of), 0)).map(drop)
    };
    let work = || {
        let answer = usher_plan::answer(&deployment, &profile, &settings, &told)?;
        let report: Report = usher_plan::report(&answer, &settings, &about, assumptions);
        Ok::<_, PlanError>((usher_plan::json(&answer, &settings).to_string(), report.html()))
    };
    let (answered, raised) = attended(py, stop.get(), &look, work);
    match (answered, raised) {
        (_, Some(error)) => Err(error),
        (Ok(answer), None) => Ok(answer),
        (Err(error @ PlanError::World(_)), None) => Err(faults::of_argument(py, error)),
        (Err(error), None) => Err(faults::failed(py, error)),
    }
}
