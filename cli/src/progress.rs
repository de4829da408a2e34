//! The progress bar of a sweep.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;
use usher_observe::GridPoint;
use usher_observe::stats::StopDecision;
use usher_runner::sweep::{ReplicationForecast, SweepObserver, SweepPlan};

/// A progress bar of replications. The total is an estimate, extrapolated from completed points.
pub(crate) struct SweepProgressBar {
    bar: ProgressBar,
    points: u64,
    expected: ReplicationForecast,
    stopped: Mutex<StoppedPointTotals>,
}

#[derive(Clone, Copy, Default)]
struct StoppedPointTotals {
    points: u64,
    replications: u64,
}

impl SweepProgressBar {
    /// Creates a bar for this sweep. It is never drawn if `shown` is false.
    pub(crate) fn new(sweep: &SweepPlan, shown: bool) -> Self {
        let (fewest, _) = sweep.replication_range();
        let bar = if shown { ProgressBar::new(fewest) } else { ProgressBar::hidden() };
        let template = "{prefix} [{bar:30}] {pos}/{len} replications, {msg}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(sweep.study.to_string());
        let points = sweep.goals.len() as u64;
        bar.set_message(format!("0/{points} points"));
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
        Self { bar, points, expected: sweep.expected_replications(), stopped: Mutex::default() }
    }

    /// Runs `what`, such as printing a line, while the bar is hidden.
    pub(crate) fn run_with_hidden_bar(&self, what: impl FnOnce()) {
        self.bar.suspend(what);
    }

    /// Removes the bar from the screen.
    pub(crate) fn remove_progress_bar(&self) {
        self.bar.finish_and_clear();
    }
}

impl SweepObserver for SweepProgressBar {
    fn on_replication_done(&self) {
        self.bar.inc(1);
        if self.bar.length().is_some_and(|n| n < self.bar.position()) {
            self.bar.set_length(self.bar.position());
        }
    }

    fn on_point_stopped(&self, _: &GridPoint, stop: StopDecision) {
        let mut stopped = self.stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stopped.points += 1;
        stopped.replications += u64::from(stop.replications);
        self.bar.set_message(format!("{}/{} points", stopped.points, self.points));
        let expected = self.expected.forecast_total_replications(stopped.points, stopped.replications);
        self.bar.set_length(expected.max(self.bar.position()));
    }
}
