//! Knowledge to check against: published statements, formulas and vectors.

use crate::faults;
use pyo3::prelude::*;
use std::path::PathBuf;
use usher_experiment::statements;
use usher_verify::{OracleCheck, VerificationOracle, oracles, run_oracle};

/// Judges the published statements by the runs in this folder, or by the best runs below the usual folder. Returns them
/// as JSON, with the folders of the runs.
#[pyfunction]
#[pyo3(signature = (folder=None))]
pub(crate) fn claims(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<(String, Vec<PathBuf>)> {
    let judged = py
        .detach(|| statements::judge_statements(folder.as_deref()))
        .map_err(|e| faults::usher_error(py, e))?;
    Ok((usher_claims::judgements_json(&judged.list), judged.runs))
}

/// A check: group, name, case, about, source, expected, obtained, tolerance, whether it holds.
type VerificationCheckTuple = (String, String, String, String, String, String, String, String, bool);

/// Runs the oracles that a filter means, or all of them.
#[pyfunction]
#[pyo3(signature = (filter=None))]
pub(crate) fn verify(py: Python<'_>, filter: Option<&str>) -> PyResult<Vec<VerificationCheckTuple>> {
    let all = oracles();
    let meant: Vec<&VerificationOracle> =
        all.iter().filter(|o| filter.is_none_or(|text| o.matches_filter(text))).collect();
    if let (Some(filter), true) = (filter, meant.is_empty()) {
        return Err(faults::of_argument(py, format!("no check has \"{filter}\" in its group or name")));
    }
    let mut checks: Vec<OracleCheck> = Vec::new();
    for oracle in meant {
        checks.extend(py.detach(|| run_oracle(oracle)));
        py.check_signals()?;
    }
    let text = |text: &str| text.to_owned();
    let shown = checks.into_iter().map(|OracleCheck { group, name, description: about, source, finding }| {
        let usher_verify::OracleFinding { case, expected, obtained, tolerance, agrees: holds } = finding;
        (text(group), text(name), case, text(about), text(source), expected, obtained, tolerance, holds)
    });
    Ok(shown.collect())
}
