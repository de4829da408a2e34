//! Reports that run their study in a browser.

use super::{ExperimentResult, StudyExperiment};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use usher_browser::EmbeddedStudy;
use usher_observe::summary::summarise_rows;
use usher_report::BrowserStudy;
use usher_runner::world::{ScenarioRun, export_handshakes};
use usher_scenario::{Study, metrics};

/// The module's file, in the program's folder or in `share/usher` beside that folder.
pub const MODULE: &str = "usher-browser.wasm.gz";

/// An error that prevents a report from running its study.
#[derive(Debug, thiserror::Error)]
pub enum LiveReportError {
    /// The module was not found.
    #[error(
        "--live-report needs the browser module {MODULE}, which is not in {}: build it with ./x module, or set \
         USHER_BROWSER_MODULE to its path", .looked.join(", ")
    )]
    Missing {
        /// The folders searched.
        looked: Vec<String>,
    },
    /// The module cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// Its file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The study needs files, which a browser cannot read.
    #[error("--live-report: {study} names {}, which a browser cannot read", path.display())]
    Files {
        /// The study.
        study: String,
        /// A file that the study names.
        path: PathBuf,
    },
    /// A point cannot be set up.
    #[error("--live-report: {0}")]
    World(String),
}

/// Reads the module for a report of this study.
///
/// # Errors
/// The study names files, or the module is missing or unreadable.
pub fn read_module(study: &Study) -> Result<Vec<u8>, LiveReportError> {
    if let Some(path) = study.resolved_text().1.into_iter().next() {
        return Err(LiveReportError::Files { study: study.name().to_owned(), path });
    }
    let read =
        |path: PathBuf| std::fs::read(&path).map_err(|error| LiveReportError::Unreadable { path, error });
    if let Some(path) = std::env::var_os("USHER_BROWSER_MODULE") {
        return read(path.into());
    }
    let program = std::env::current_exe().unwrap_or_default();
    let beside = program.parent().unwrap_or(Path::new("."));
    let shared = beside.parent().unwrap_or(beside).join("share/usher");
    let folders = [beside.to_owned(), shared];
    match folders.iter().map(|folder| folder.join(MODULE)).find(|path| path.exists()) {
        Some(path) => read(path),
        None => {
            let looked = folders.iter().map(|folder| folder.display().to_string()).collect();
            Err(LiveReportError::Missing { looked })
        }
    }
}

/// Adds to a report everything that it needs to run its study. `module` comes from [`read_module`].
///
/// # Errors
/// A point cannot be set up.
pub fn make_live_report(
    experiment: &StudyExperiment<'_>,
    whole: &ExperimentResult,
    module: Vec<u8>,
) -> Result<BrowserStudy, LiveReportError> {
    let StudyExperiment { study, plan, request: asked, .. } = *experiment;
    let (text, _) = study.resolved_text();
    // Points restored from the journal have recorded no handshakes, so build the first replication of each, which
    // records them.
    for point in &plan.points {
        ScenarioRun::new(&point.scenario, point.replication_seed(0), &[], None)
            .map_err(|e| LiveReportError::World(e.to_string()))?;
    }
    let hexadecimal = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let carried = EmbeddedStudy {
        study: plan.study.clone(),
        text,
        mode: plan.mode.name().to_owned(),
        seed: asked.seed,
        set: asked.set.clone(),
        handshakes: export_handshakes().into_iter().map(|(name, bytes)| (name, hexadecimal(bytes))).collect(),
    };
    let axes: Vec<Value> = plan
        .axes
        .iter()
        .map(|axis| {
            let values: Vec<&str> = axis.values.iter().map(|value| value.text.as_str()).collect();
            let numbers = axis.values.iter().all(|value| value.number.is_some());
            json!({ "name": axis.name, "title": axis.label, "values": values, "numbers": numbers })
        })
        .collect();
    let summaries = summarise_rows(&whole.results.rows, whole.level);
    let mut names: Vec<&str> = plan.figures.iter().flat_map(|f| &f.y.0).map(String::as_str).collect();
    names.extend(summaries.iter().map(|summary| &*summary.metric));
    let mut metrics: Vec<Value> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if seen.insert(name) && summaries.iter().any(|summary| &*summary.metric == name) {
            let known = metrics::find_metric(name, study.file());
            let (title, unit) = known.map_or((name, ""), |metric| (metric.about, metric.unit));
            metrics.push(json!({ "name": name, "title": format!("{title} ({name})"), "unit": unit }));
        }
    }
    let points: Vec<Value> = plan
        .points
        .iter()
        .map(|point| {
            let at: Vec<Option<usize>> = plan
                .axes
                .iter()
                .zip(&point.settings)
                .map(|(axis, setting)| axis.values.iter().position(|value| value.text == setting.text))
                .collect();
            let own = |summary: &&usher_observe::summary::MetricSummary| {
                point.settings.iter().all(|s| summary.point.get(&s.axis).unwrap_or_default() == s.text)
            };
            let estimates: serde_json::Map<String, Value> = summaries
                .iter()
                .filter(own)
                .map(|summary| {
                    let e = summary.estimate;
                    (summary.metric.to_string(), json!([e.mean, e.half_width, e.n]))
                })
                .collect();
            json!({ "at": at, "estimates": estimates })
        })
        .collect();
    let data = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "study": carried,
        "axes": axes,
        "metrics": metrics,
        "points": points,
        "level": whole.level,
    });
    Ok(BrowserStudy { data: data.to_string(), module })
}
