//! The simulator as a WebAssembly module, for reports that run their own study.
//!
//! A report sends its study once ([`BrowserRequest`]), then requests replications of points one at a time. It receives
//! the same rows that the study and seed give anywhere. The module has no TLS cryptography: recorded handshakes of the
//! study's stations come with the study, and a full handshake is an error.

#[cfg(target_arch = "wasm32")]
mod abi;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use usher_observe::{GridPoint, MeanEstimate, ResultRow, csv};
use usher_runner::SimRunner;
use usher_runner::sweep::{ReplicationRunner, ReplicationTask};
use usher_runner::world::add_recorded_handshake;
use usher_scenario::{PlanOverrides, Study, StudyMode, StudyPlan};

/// A study in a report, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedStudy {
    /// Its name in rows.
    pub study: String,
    /// The study file, without includes and without file names.
    pub text: String,
    /// The mode of the run: `quick`, `default` or `full`.
    pub mode: String,
    /// Replaces the file's seed.
    pub seed: Option<u64>,
    /// Settings that replace the file's, as for `--set`.
    pub set: Vec<String>,
    /// Recorded handshakes by name, in hexadecimal ([`usher_runner::world::export_handshakes`]).
    pub handshakes: BTreeMap<String, String>,
}

/// A request of a report, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum BrowserRequest {
    /// Loads a study in place of the previous one.
    Study(EmbeddedStudy),
    /// Runs one replication of one point.
    Run {
        /// A value for each axis, as for `--set`.
        point: Vec<String>,
        /// From 0.
        replication: u32,
    },
}

/// The reply to a request, as JSON.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BrowserReply {
    /// The study was loaded by this version of usher.
    Ready {
        /// The version, as in a run's manifest.
        version: String,
    },
    /// The rows of a replication.
    Rows {
        /// The rows as in a results file, with its header.
        csv: String,
        /// Mean and confidence interval of each metric over this point's replications so far.
        estimates: Vec<MetricEstimate>,
    },
    /// The request failed, for this reason.
    Error(String),
}

/// The estimate of a metric at a point, in the units of results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MetricEstimate {
    /// Its name.
    pub metric: String,
    /// Mean of the replications.
    pub mean: f64,
    /// Half the width of the confidence interval; null if unknown, as with a single replication.
    pub half_width: f64,
    /// Number of replications in which the metric is defined.
    pub n: u32,
}

/// The replications of one point.
#[derive(Debug)]
struct PointReplications {
    point: Vec<String>,
    plan: StudyPlan,
    /// By metric, in the order of metrics and replications.
    values: Vec<(String, Vec<f64>)>,
}

/// A report's study, and the plan of the last requested point.
#[derive(Debug, Default)]
pub struct BrowserModule {
    loaded_study: Option<(Study, StudyMode, EmbeddedStudy)>,
    point: Option<PointReplications>,
}

impl BrowserModule {
    /// Handles a request; both request and reply are JSON.
    pub fn answer_json(&mut self, request: &str) -> String {
        let answer = serde_json::from_str(request)
            .map_err(|e| format!("not a request: {e}"))
            .and_then(|request| self.handle_request(request))
            .unwrap_or_else(BrowserReply::Error);
        serde_json::to_string(&answer).unwrap_or_default()
    }

    /// Handles a request.
    ///
    /// # Errors
    /// A message: there is no study yet, it has a fault, or the run did not end.
    pub fn handle_request(&mut self, request: BrowserRequest) -> Result<BrowserReply, String> {
        match request {
            BrowserRequest::Study(carried) => self.load_study(carried),
            BrowserRequest::Run { point, replication } => self.run_replication(point, replication),
        }
    }

    fn load_study(&mut self, carried: EmbeddedStudy) -> Result<BrowserReply, String> {
        (self.loaded_study, self.point) = (None, None);
        let mode = StudyMode::ALL.into_iter().find(|mode| mode.name() == carried.mode);
        let mode = mode.ok_or_else(|| format!("there is no mode \"{}\"", carried.mode))?;
        let origin = format!("{}.toml", carried.study);
        let study = Study::parse(&carried.study, &origin, &carried.text).map_err(|e| e.to_string())?;
        for (name, text) in &carried.handshakes {
            let given = parse_hex(text).is_some_and(|bytes| add_recorded_handshake(name, &bytes));
            if !given {
                return Err(format!("\"{name}\" is not a recorded handshake"));
            }
        }
        self.loaded_study = Some((study, mode, carried));
        Ok(BrowserReply::Ready { version: env!("CARGO_PKG_VERSION").to_owned() })
    }

    fn run_replication(&mut self, point: Vec<String>, replication: u32) -> Result<BrowserReply, String> {
        let (study, mode, carried) = self.loaded_study.as_ref().ok_or("there is no study yet")?;
        if replication == 0 || self.point.as_ref().is_none_or(|of| of.point != point) {
            let mut overrides = PlanOverrides { seed: carried.seed, ..PlanOverrides::default() };
            // Where a point sets an axis, its value replaces the values that the run has for that axis.
            let axis = |set: &str| set.split_once('=').map_or(set, |(axis, _)| axis).trim().to_owned();
            let axes: Vec<String> = point.iter().map(|set| axis(set)).collect();
            let others = carried.set.iter().filter(|set| !axes.contains(&axis(set)));
            for set in others.chain(&point) {
                overrides.add_setting(set)?;
            }
            let plan = study.build_plan(*mode, &overrides).map_err(|e| e.to_string())?;
            self.point = Some(PointReplications { point, plan, values: Vec::new() });
        }
        let Some(PointReplications { plan, values, .. }) = &mut self.point else {
            return Err("there is no plan".to_owned());
        };
        let [only] = &plan.points[..] else {
            return Err(format!("{} points were requested: give each axis one value", plan.points.len()));
        };
        let key = GridPoint::new(only.settings.iter().map(|s| (s.axis.as_str(), s.text.as_str())));
        let task = ReplicationTask { index: 0, point: &key, replication, capture: None };
        let outcome = SimRunner::new(plan, Vec::new()).run_task(task).map_err(|e| e.to_string())?;
        let name: Arc<str> = plan.study.as_str().into();
        let defined = outcome.metrics.iter().filter(|(_, value)| !value.is_nan());
        let rows: Vec<ResultRow> = defined
            .map(|(metric, value)| ResultRow {
                study: name.clone(),
                point: key.clone(),
                replication,
                metric: metric.as_str().into(),
                value: *value,
            })
            .collect();
        let csv = csv::csv_text(&rows).map_err(|e| e.to_string())?;
        for ResultRow { metric, value, .. } in &rows {
            match values.iter_mut().find(|(name, _)| **name == **metric) {
                Some((_, all)) => all.push(*value),
                None => values.push((metric.to_string(), vec![*value])),
            }
        }
        let level = only.scenario.run.replications.confidence.get();
        let estimates = values.iter().map(|(metric, all)| {
            let MeanEstimate { mean, half_width, n } = MeanEstimate::from_values(all, level);
            MetricEstimate { metric: metric.clone(), mean, half_width, n }
        });
        Ok(BrowserReply::Rows { csv, estimates: estimates.collect() })
    }
}

/// Parses octets in hexadecimal.
fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
