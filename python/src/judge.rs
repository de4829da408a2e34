//! What is known beforehand: published statements, and formulas and vectors.

use crate::faults;
use pyo3::prelude::*;
use std::path::PathBuf;
use usher_experiment::statements;
use usher_verify::{Check, Oracle, check, oracles};

/// The statements that the runs in this folder, or the best runs below the usual one, are held against: as JSON, with the folders
/// that they are judged by.
#[pyfunction]
#[pyo3(signature = (folder=None))]
pub(crate) fn claims(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<(String, Vec<PathBuf>)> {
    let judged = py.detach(|| statements::judge(folder.as_deref())).map_err(|e| faults::failed(py, e))?;
    Ok((usher_claims::json(&judged.list), judged.runs))
}

/// A check: group, name, case, about, source, expected, obtained, tolerance, whether it holds.
type Checked = (String, String, String, String, String, String, String, String, bool);

/// Runs the oracles that a filter means, or all of them.
#[pyfunction]
#[pyo3(signature = (filter=None))]
pub(crate) fn verify(py: Python<'_>, filter: Option<&str>) -> PyResult<Vec<Checked>> {
    let all = oracles();
    let meant: Vec<&Oracle> = all.iter().filter(|o| filter.is_none_or(|text| o.is_meant_by(text))).collect();
    if let (Some(filter), true) = (filter, meant.is_empty()) {
        return Err(faults::of_argument(py, format!("nothing is named like \"{filter}\"")));
    }
    let mut checks: Vec<Check> = Vec::new();
    for oracle in meant {
        checks.extend(py.detach(|| check(oracle)));
        py.check_signals()?;
    }
    let text = |text: &str| text.to_owned();
    let shown = checks.into_iter().map(|Check { group, name, about, source, finding }| {
        let usher_verify::Finding { case, expected, obtained, tolerance, holds } = finding;
        (text(group), text(name), case, text(about), text(source), expected, obtained, tolerance, holds)
    });
    Ok(shown.collect())
}
