//! Studies and their plans.

use crate::faults;
use crate::run::{Stop, run_attended};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use usher_runner::SimRunner;
use usher_runner::sweep::{self, ReplicationTask, RunRequest, SweepPlan, key};
use usher_scenario::{self as scenario, StudyPlan};

/// The names of the founding studies.
#[pyfunction]
pub(crate) fn founding() -> Vec<&'static str> {
    let all = scenario::founding::founding_studies();
    all.iter().map(|study| study.name).collect()
}

/// Identifies this build of the native module, by its file.
#[pyfunction]
pub(crate) fn build(file: PathBuf) -> String {
    sweep::build_of(&file)
}

/// A study that was read and found right.
#[pyclass(frozen, module = "usher._native")]
#[derive(Debug)]
pub(crate) struct Study {
    study: Arc<scenario::Study>,
}

#[pymethods]
impl Study {
    /// Finds a study by a founding study's name, or else as a file.
    #[staticmethod]
    fn open(py: Python<'_>, name: &str) -> PyResult<Self> {
        let opened = py.detach(|| scenario::Study::open(name));
        opened.map(|study| Self { study: Arc::new(study) }).map_err(|e| faults::of_loading(py, &e))
    }

    /// Reads a study's text; files that it names are of the disk.
    #[staticmethod]
    fn of_text(py: Python<'_>, name: &str, origin: &str, text: &str) -> PyResult<Self> {
        let read = py.detach(|| scenario::Study::parse_with_origin(name, origin, text));
        read.map(|study| Self { study: Arc::new(study) }).map_err(|e| faults::of_study(py, &e.faults))
    }

    #[getter]
    fn name(&self) -> &str {
        self.study.name()
    }
    #[getter]
    fn title(&self) -> &str {
        &self.study.file().title
    }
    #[getter]
    fn question(&self) -> &str {
        &self.study.file().question
    }
    #[getter]
    fn description(&self) -> &str {
        &self.study.file().description
    }
    #[getter]
    fn text(&self) -> &str {
        self.study.file_text()
    }
    /// Warnings: valid settings that should be written otherwise.
    fn warnings(&self) -> Vec<faults::ConfigErrorTuple> {
        faults::fault_tuples(self.study.warnings())
    }

    /// The plan of a mode with these settings, as `--set` has them.
    fn plan(
        &self,
        py: Python<'_>,
        mode: String,
        set: Vec<String>,
        seed: Option<u64>,
        replications: Option<u32>,
    ) -> PyResult<Plan> {
        Plan::from_study(py, self.study.clone(), RunRequest { mode, set, seed, replications })
    }
}

/// Every run of a study.
#[pyclass(frozen, module = "usher._native")]
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) study: Arc<scenario::Study>,
    pub(crate) plan: Arc<StudyPlan>,
    pub(crate) asked: RunRequest,
    pub(crate) sweep: Arc<SweepPlan>,
}

/// A plan for another process: name and text of the study in one file, mode, settings, seed, replications, the plan's hash,
/// and the hash of the plan of that text.
type PickledPlan = (String, String, String, Vec<String>, Option<u64>, Option<u32>, String, String);

/// An axis's name, its value as text, and as a number where it is one.
type AxisValueTuple = (String, String, Option<f64>);

impl Plan {
    fn from_study(py: Python<'_>, study: Arc<scenario::Study>, asked: RunRequest) -> PyResult<Self> {
        let (mode, overrides) = asked.mode_and_overrides().map_err(|e| faults::of_argument(py, e))?;
        let planned = py.detach(|| study.build_plan(mode, &overrides));
        let plan = Arc::new(planned.map_err(|e| faults::of_study(py, &e.faults))?);
        let sweep = Arc::new(SweepPlan::from_plan(&plan));
        Ok(Self { study, plan, asked, sweep })
    }

    fn resolved_plan(&self, py: Python<'_>) -> PyResult<(Self, String)> {
        let (text, _) = self.study.resolved_text();
        let name = self.study.name();
        let study = py.detach(|| scenario::Study::parse_with_origin(name, &format!("{name}.toml"), &text));
        let study = study.map_err(|e| faults::of_study(py, &e.faults))?;
        Ok((Self::from_study(py, Arc::new(study), self.asked.clone())?, text))
    }
}

#[pymethods]
impl Plan {
    #[getter]
    fn study(&self) -> &str {
        &self.plan.study
    }
    #[getter]
    fn mode(&self) -> &str {
        self.plan.mode.name()
    }
    #[getter]
    fn hash(&self) -> &str {
        &self.plan.hash
    }
    /// The fewest and the most replications.
    #[getter]
    fn replications(&self) -> (u64, u64) {
        self.sweep.replication_range()
    }
    /// Each point's key and settings.
    fn points(&self) -> Vec<(String, Vec<AxisValueTuple>)> {
        let setting = |s: &scenario::AxisSetting| (s.axis.clone(), s.text.clone(), s.number);
        let points = self.plan.points.iter().zip(&self.sweep.goals);
        points
            .map(|(p, goal)| (key::format_point(&goal.point), p.settings.iter().map(setting).collect()))
            .collect()
    }
    /// The place of the one point that a text names.
    fn find(&self, py: Python<'_>, text: &str) -> PyResult<usize> {
        key::find_point(self.sweep.goals.iter().map(|goal| &goal.point), text)
            .map_err(|e| faults::of_argument(py, e))
    }
    /// The seed of a replication of the point in this place.
    fn seed(&self, py: Python<'_>, point: usize, replication: u32) -> PyResult<u64> {
        Ok(self.point_at(py, point)?.replication_seed(replication).value())
    }
    /// Runs a replication of the point in this place: its metrics, and behind them what the run cost, as journals keep it.
    fn replicate(&self, py: Python<'_>, point: usize, replication: u32) -> PyResult<Vec<(String, f64)>> {
        self.point_at(py, point)?;
        let task = ReplicationTask {
            index: point,
            point: &self.sweep.goals[point].point,
            replication,
            capture: None,
        };
        let stop = Stop::default();
        let runner = SimRunner::new(&self.plan, Vec::new()).with_stop_flag(stop.flag.clone());
        match run_attended(py, &stop, &|_| Ok(()), || sweep::run_catching_panic(&runner, task)) {
            (_, Some(raised)) => Err(raised),
            (outcome, None) => {
                outcome.map(|outcome| outcome.to_record()).map_err(|e| faults::usher_error(py, e))
            }
        }
    }
    /// The plan for another process.
    fn state(&self, py: Python<'_>) -> PyResult<PickledPlan> {
        let RunRequest { mode, set, seed, replications } = self.asked.clone();
        let (whole, text) = self.resolved_plan(py)?;
        let name = self.study.name().to_owned();
        Ok((name, text, mode, set, seed, replications, self.plan.hash.clone(), whole.plan.hash.clone()))
    }
    /// The plan that another process had.
    #[staticmethod]
    fn of_state(py: Python<'_>, state: PickledPlan) -> PyResult<Self> {
        let (name, text, mode, set, seed, replications, hash, of_text) = state;
        let study = Study::of_text(py, &name, &format!("{name}.toml"), &text)?;
        let mut made = Self::from_study(py, study.study, RunRequest { mode, set, seed, replications })?;
        if made.plan.hash != of_text {
            return Err(faults::usher_error(
                py,
                format!(
                    "the plan of {name} differs between this process and the one that made it: install the same \
                     build of usher for both"
                ),
            ));
        }
        // Journals are of the plan as it was first made.
        Arc::make_mut(&mut made.plan).hash.clone_from(&hash);
        Arc::make_mut(&mut made.sweep).plan = hash;
        Ok(made)
    }
}

impl Plan {
    fn point_at(&self, py: Python<'_>, index: usize) -> PyResult<&scenario::PlanPoint> {
        let of = self.plan.points.len();
        let missing = || {
            faults::of_argument(
                py,
                format!("there is no point {index}: the plan has {of} points, numbered from 0"),
            )
        };
        self.plan.points.get(index).ok_or_else(missing)
    }
}
