//! The network as its applications see it.

mod associations;
mod cell;
mod halves;
mod interfaces;
mod mobility;
mod network;
mod protection;

use usher_core::{Duration, Instant};
use usher_sim::Observer;

/// What applications report: when, by their number, what.
#[derive(Debug)]
struct Log<R>(Vec<(Instant, u32, R)>);

impl<R> Default for Log<R> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<R> Observer<R> for Log<R> {
    fn report(&mut self, now: Instant, app: u32, report: R) {
        self.0.push((now, app, report));
    }
}

fn secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}
