//! The metrics of one run.

use usher_scenario::metrics::{Metric, MetricScope};

/// What a run measured, by the metrics' names.
#[derive(Debug, Default)]
pub(super) struct RunMetrics {
    pub(super) all: Vec<(String, f64)>,
    /// Which of several workloads is measured.
    workload: String,
}

impl RunMetrics {
    /// The workload of this name is measured next.
    pub(super) fn select_workload(&mut self, workload: &str) {
        workload.clone_into(&mut self.workload);
    }
    /// A metric of the run, or of the workload that is measured.
    pub(super) fn add_metric(&mut self, metric: Metric, value: f64) {
        let name = match metric.of {
            MetricScope::Workload => metric.of_workload(&self.workload),
            MetricScope::Run | MetricScope::Link | MetricScope::Cell | MetricScope::Host => {
                metric.name.to_owned()
            }
        };
        self.all.push((name, value));
    }
    /// The share of the workload's dialogues that ended well within a time, as that is written.
    pub(super) fn add_share_within(&mut self, time: &str, share: f64) {
        let name = Metric::share_within_name(time);
        let name = if self.workload.is_empty() { name } else { format!("{name}.{}", self.workload) };
        self.all.push((name, share));
    }
    /// A metric of a link, cell or host of this name.
    pub(super) fn put_of(&mut self, name: &str, metric: Metric, value: f64) {
        self.all.push((metric.member_name(name), value));
    }
}
