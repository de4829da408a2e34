//! The metrics of one run.

use usher_scenario::metrics::{Metric, MetricScope};

/// The measurements of a run by metric name.
#[derive(Debug, Default)]
pub(super) struct RunMetrics {
    pub(super) all: Vec<(String, f64)>,
    /// The workload that is measured, if there are several.
    workload: String,
}

impl RunMetrics {
    /// Selects the workload of the next metrics.
    pub(super) fn select_workload(&mut self, workload: &str) {
        workload.clone_into(&mut self.workload);
    }
    /// Adds a metric of the run or of the selected workload.
    pub(super) fn add_metric(&mut self, metric: Metric, value: f64) {
        let name = match metric.of {
            MetricScope::Workload => metric.of_workload(&self.workload),
            MetricScope::Run | MetricScope::Link | MetricScope::Cell | MetricScope::Host => {
                metric.name.to_owned()
            }
        };
        self.all.push((name, value));
    }
    /// Adds the share of the workload's dialogues that succeeded within a time, as written.
    pub(super) fn add_share_within_time(&mut self, time: &str, share: f64) {
        let name = Metric::share_within_name(time);
        let name = if self.workload.is_empty() { name } else { format!("{name}.{}", self.workload) };
        self.all.push((name, share));
    }
    /// Adds a metric of a link, cell or host of this name.
    pub(super) fn add_member_metric(&mut self, name: &str, metric: Metric, value: f64) {
        self.all.push((metric.member_name(name), value));
    }
}
