//! The results of a run.

use crate::arrow;
use crate::faults;
use crate::study::Plan;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::path::PathBuf;
use usher_experiment::ExperimentResult;
use usher_observe::summary::{MetricSummary, summarise_rows};
use usher_observe::table::{self, ColumnValues, ResultTable};
use usher_observe::{RunFileError, file};
use usher_report::{ReportFigure, ReportSection};
use usher_runner::sweep::{self, DialogueFailureSummary, UnstableMeanSummary, key};

/// A point of the results: its key, replications kept, whether it ran as often as its rule asks, and whether the precision was reached.
type PointStatusTuple = (String, u32, bool, bool);

/// A column: its name and values.
type ResultColumnTuple<'py> = (String, Vec<Bound<'py, PyAny>>);

/// The results of a run.
#[pyclass(frozen, module = "usher._native")]
#[derive(Debug)]
pub(crate) struct Results {
    whole: ExperimentResult,
    summaries: Vec<MetricSummary>,
    /// Sentences that a reader must know before any finding is believed.
    warnings: Vec<String>,
    /// The answers to the study's questions.
    answers: Vec<String>,
}

impl Results {
    pub(crate) fn new(plan: &Plan, whole: ExperimentResult) -> Self {
        let results = &whole.results;
        let failing = DialogueFailureSummary::from_results(&plan.plan, results);
        let warnings = plan.plan.warnings.iter().map(|warning| warning.message.clone());
        let warnings = warnings.chain(failing.iter().map(ToString::to_string));
        let warnings = warnings
            .chain(UnstableMeanSummary::from_results(&plan.plan, results).into_iter().map(|u| u.to_string()));
        Self {
            warnings: warnings.collect(),
            answers: sweep::describe_recommendations(plan.study.file(), &plan.plan, results),
            summaries: summarise_rows(&results.rows, whole.level),
            whole,
        }
    }

    /// The table of rows, or of their summary.
    fn results_table(&self, summary: bool) -> Result<ResultTable<'_>, RunFileError> {
        let ExperimentResult { results, level, units, .. } = &self.whole;
        match summary {
            false => table::results_table(&results.rows, units),
            true => table::summary_table(&self.summaries, &results.rows, *level, units),
        }
    }

    fn figure_sections(&self) -> impl Iterator<Item = (&ReportSection, &ReportFigure)> {
        self.whole.report.sections.iter().flat_map(|s| s.figures.iter().map(move |f| (s, f)))
    }

    fn find_figure(&self, py: Python<'_>, name: &str) -> PyResult<&ReportFigure> {
        let found = self.figure_sections().map(|(_, figure)| figure).find(|figure| figure.name == name);
        let missing = || {
            let known: Vec<&str> = self.figure_sections().map(|(_, figure)| figure.name.as_str()).collect();
            faults::of_argument(
                py,
                format!("there is no figure \"{name}\"; the figures are {}", known.join(", ")),
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
        failures.map(|f| (key::format_point(&f.point), f.replication, f.error.to_string())).collect()
    }
    #[getter]
    fn points(&self) -> Vec<PointStatusTuple> {
        let points = self.whole.results.points.iter();
        points.map(|p| (key::format_point(&p.point), p.replications, p.complete, p.converged)).collect()
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
        usher_claims::judgements_json(&self.whole.judged)
    }
    /// How many rows there are, or lines of their summary.
    fn rows(&self, summary: bool) -> usize {
        if summary { self.summaries.len() } else { self.whole.results.rows.len() }
    }
    /// The rows or their summary as Arrow's C stream.
    fn stream<'py>(&self, py: Python<'py>, summary: bool) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::table_stream(py, &self.results_table(summary).map_err(|e| faults::usher_error(py, e))?)
    }
    /// The columns with their values, of at most so many rows.
    fn columns<'py>(
        &self,
        py: Python<'py>,
        summary: bool,
        most: usize,
    ) -> PyResult<Vec<ResultColumnTuple<'py>>> {
        let table = self.results_table(summary).map_err(|e| faults::usher_error(py, e))?;
        let rows = || 0..table.rows.min(most);
        let columns = table.columns.iter().map(|column| {
            let values: PyResult<Vec<Bound<'py, PyAny>>> = match &column.values {
                ColumnValues::Text(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
                ColumnValues::Count(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
                ColumnValues::Number(of) => rows().map(|i| of(i).into_bound_py_any(py)).collect(),
            };
            Ok((column.name.clone(), values?))
        });
        columns.collect()
    }
    /// Name, title and caption of each figure.
    fn figures(&self) -> Vec<(String, String, String)> {
        self.figure_sections().map(|(s, f)| (f.name.clone(), f.title.clone(), s.text.clone())).collect()
    }
    /// A figure as SVG.
    fn svg(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        Ok(self.find_figure(py, name)?.to_svg())
    }
    /// A figure's points as CSV.
    fn csv(&self, py: Python<'_>, name: &str) -> PyResult<String> {
        Ok(self.find_figure(py, name)?.to_csv())
    }
    /// The report as one HTML file.
    fn html(&self) -> String {
        self.whole.report.to_html()
    }
    /// Writes the report to this file, whole or not at all.
    fn write_report(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let html = self.whole.report.to_html();
        file::write_file(&path, |out| out.write_all(html.as_bytes())).map_err(|e| faults::usher_error(py, e))
    }
}
