//! What a run gave.

use crate::arrow;
use crate::faults;
use crate::study::Plan;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::path::PathBuf;
use usher_experiment::Whole;
use usher_observe::summary::{Summary, summarise};
use usher_observe::table::{self, Table, Values};
use usher_observe::{Error, file};
use usher_report::{Figure, Section};
use usher_runner::sweep::{self, Failing, Untrusted, key};

/// A point of the results: its key, replications kept, whether it ran as often as its rule asks, and whether the precision was reached.
type Ran = (String, u32, bool, bool);

/// A column: its name and values.
type Listed<'py> = (String, Vec<Bound<'py, PyAny>>);

/// The results of a run.
#[pyclass(frozen, module = "usher._native")]
#[derive(Debug)]
pub(crate) struct Results {
    whole: Whole,
    summaries: Vec<Summary>,
    /// Sentences that a reader must know before any finding is believed.
    warnings: Vec<String>,
    /// What the study's questions are answered with.
    answers: Vec<String>,
}

impl Results {
    pub(crate) fn new(plan: &Plan, whole: Whole) -> Self {
        let results = &whole.results;
        let failing = Failing::of(&plan.plan, results);
        let warnings = plan.plan.warnings.iter().map(|warning| warning.message.clone());
        let warnings = warnings.chain(failing.iter().map(ToString::to_string));
        let warnings = warnings.chain(Untrusted::of(&plan.plan, results).into_iter().map(|u| u.to_string()));
        Self {
            warnings: warnings.collect(),
            answers: sweep::answers(plan.study.file(), &plan.plan, results),
            summaries: summarise(&results.rows, whole.level),
            whole,
        }
    }

    /// The table of rows, or of their summary.
    fn table(&self, summary: bool) -> Result<Table<'_>, Error> {
        let Whole { results, level, units, .. } = &self.whole;
        match summary {
            false => table::results(&results.rows, units),
            true => table::summary(&self.summaries, &results.rows, *level, units),
        }
    }

    fn sections(&self) -> impl Iterator<Item = (&Section, &Figure)> {
        self.whole.report.sections.iter().flat_map(|s| s.figures.iter().map(move |f| (s, f)))
    }

    fn drawn(&self, py: Python<'_>, name: &str) -> PyResult<&Figure> {
        let found = self.sections().map(|(_, figure)| figure).find(|figure| figure.name == name);
        let missing = || {
            let known: Vec<&str> = self.sections().map(|(_, figure)| figure.name.as_str()).collect();
            faults::of_argument(
                py,
                format!("there is no figure \"{name}\"; figures here are {}", known.join(", ")),
            )
        };
        found.ok_or_else(missing)
    }
}

#[pymethods]
impl Results {
    #[getter]
    fn complete(&self) -> bool {
        self.whole.results.complete
    }
    /// Whether an interrupt has left points out of figures of single dialogues.
    #[getter]
    fn cut_short(&self) -> bool {
        self.whole.cut_short
    }
    /// Replications that were found in the journal.
    #[getter]
    fn resumed(&self) -> usize {
        self.whole.results.resumed
    }
    #[getter]
    fn findings(&self) -> Vec<String> {
        self.whole.report.findings.clone()
    }
    #[getter]
    fn answers(&self) -> Vec<String> {
        self.answers.clone()
    }
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.warnings.clone()
    }
    /// Replications that could not be run: the point's key, the replication, why.
    #[getter]
    fn failures(&self) -> Vec<(String, u32, String)> {
        let failures = self.whole.results.failures.iter();
        failures.map(|f| (key::of(&f.point), f.replication, f.error.to_string())).collect()
    }
    #[getter]
    fn points(&self) -> Vec<Ran> {
        let points = self.whole.results.points.iter();
        points.map(|p| (key::of(&p.point), p.replications, p.complete, p.converged)).collect()
    }
    /// Why the journal could not be written, where that ended the run.
    #[getter]
    fn broken(&self) -> Option<String> {
        self.whole.results.broken.as_ref().map(ToString::to_string)
    }
    /// The manifest, as JSON.
    #[getter]
    fn manifest(&self) -> String {
        self.whole.manifest.to_json()
    }
    /// The judged statements, as JSON.
    #[getter]
    fn claims(&self) -> String {
        usher_claims::json(&self.whole.judged)
    }
    /// How many rows there are, or lines of their summary.
    fn rows(&self, summary: bool) -> usize {
        if summary { self.summaries.len() } else { self.whole.results.rows.len() }
    }
    /// The rows or their summary as Arrow's C stream.
    fn stream<'py>(&self, py: Python<'py>, summary: bool) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::stream(py, &self.table(summary).map_err(|e| faults::failed(py, e))?)
    }
    /// The columns with their values, of at most so many rows.
    fn columns<'py>(&self, py: Python<'py>, summary: bool, most: usize) -> PyResult<Vec<Listed<'py>>> {
        let table = self.table(summary).map_err(|e| faults::failed(py, e))?;
        let rows = || 0..table.rows.min(most);
        let columns = table.columns.iter().map(|column| {
            let values: PyResult<Vec<Bound<'py, PyAny>>> = match &column.values {
                Values::Text(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
                Values::Count(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
                Values::Number(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
            };
            Ok((column.name.clone(), values?))
        });
        columns.collect()
    }
    /// Name, title and caption of each figure.
    fn figures(&self) -> Vec<(String, String, String)> {
        self.sections().map(|(s, f)| (f.name.clone(), f.title.clone(), s.text.clone())).collect()
    }
    /// A figure as SVG.
    fn svg(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        Ok(self.drawn(py, name)?.svg())
    }
    /// A figure's points as CSV.
    fn csv(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        Ok(self.drawn(py, name)?.csv())
    }
    /// The report as one HTML file.
    fn html(&self) -> String {
        self.whole.report.html()
    }
    /// Writes the report to this file, whole or not at all.
    fn write_report(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let html = self.whole.report.html();
        file::write(&path, |out| out.write_all(html.as_bytes())).map_err(|e| faults::failed(py, e))
    }
}
