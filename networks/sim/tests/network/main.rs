//! The network seen by its applications.

mod associations;
mod cell;
mod halves;
mod interfaces;
mod mobility;
mod network;
mod protection;

use usher_core::{Duration, Instant};
use usher_sim::ReportObserver;

/// Reports of applications: time, application, report.
#[derive(Debug)]
struct ReportLog<R>(Vec<(Instant, u32, R)>);

impl<R> Default for ReportLog<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R> ReportObserver<R> for ReportLog<R> {
    fn handle_report(&mut self, now: Instant, app: u32, report: R) {
        self.0.push((now, app, report));
    }
}

fn at_secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}
