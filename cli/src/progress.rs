//! The progress bar of a sweep.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::Mutex;
use usher_observe::Point;
use usher_observe::stats::Stop;
use usher_runner::sweep::{Sweep, Watch};

/// A bar of replications. How many there will be is not known beforehand: points that are done say what
/// the others may need.
pub(crate) struct Bar {
    bar: ProgressBar,
    points: u64,
    fewest: u64,
    stopped: Mutex<Stopped>,
}

#[derive(Clone, Copy, Default)]
struct Stopped {
    points: u64,
    replications: u64,
}

impl Bar {
    /// A bar for this sweep; one that is never drawn where `shown` is false.
    pub(crate) fn new(sweep: &Sweep, shown: bool) -> Self {
        let (fewest, _) = sweep.replications();
        let bar = if shown { ProgressBar::new(fewest) } else { ProgressBar::hidden() };
        let template = "{prefix} [{bar:30}] {pos}/{len} replications, {msg}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(sweep.study.to_string());
        let points = sweep.goals.len() as u64;
        bar.set_message(format!("0/{points} points"));
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
        Self { bar, points, fewest, stopped: Mutex::default() }
    }

    /// Takes the bar off the screen.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// How many replications a sweep will need: what stopped points took, and as much again for each other one.
fn expected(points: u64, fewest: u64, stopped: Stopped) -> u64 {
    if stopped.points == 0 {
        return fewest;
    }
    let rest = points.saturating_sub(stopped.points);
    (stopped.replications + stopped.replications * rest / stopped.points).max(fewest)
}

impl Watch for Bar {
    fn replication(&self) {
        self.bar.inc(1);
        if self.bar.length().is_some_and(|n| n < self.bar.position()) {
            self.bar.set_length(self.bar.position());
        }
    }

    fn point(&self, _: &Point, stop: Stop) {
        let mut stopped = self.stopped.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        stopped.points += 1;
        stopped.replications += u64::from(stop.replications);
        self.bar.set_message(format!("{}/{} points", stopped.points, self.points));
        self.bar.set_length(expected(self.points, self.fewest, *stopped).max(self.bar.position()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_follows_what_stopped() {
        assert_eq!(expected(10, 50, Stopped::default()), 50);
        assert_eq!(expected(10, 50, Stopped { points: 2, replications: 20 }), 100);
        assert_eq!(expected(10, 50, Stopped { points: 10, replications: 70 }), 70);
    }
}
