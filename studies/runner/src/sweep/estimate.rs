//! Estimates the duration of a sweep from a few trial replications.

use super::{ReplicationRunner, ReplicationTask, RunError, SweepPlan, key, run_catching_panic};
use std::time::{Duration, Instant};

/// The result of trying some points.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SweepEstimate {
    /// How many points were tried.
    pub tried: usize,
    /// Mean seconds of wall time per replication.
    pub per_replication_s: f64,
    /// Seconds for the whole sweep with its minimum of replications.
    pub low_s: f64,
    /// Seconds for the whole sweep with its maximum of replications.
    pub high_s: f64,
}

/// Runs the first replication of points spread evenly over the grid, the last and the first among them, until the time
/// is up. It runs at least one.
///
/// # Errors
/// The first point that cannot be run.
pub fn estimate_sweep(
    sweep: &SweepPlan,
    runner: &dyn ReplicationRunner,
    jobs: usize,
    budget: Duration,
) -> Result<SweepEstimate, RunError> {
    let begun = Instant::now();
    let mut tried = 0;
    for index in spread_indices(sweep.goals.len()) {
        let point = &sweep.goals[index].point;
        let task = ReplicationTask { index, point, replication: 0, capture: None };
        run_catching_panic(runner, task)
            .map_err(|e| RunError(format!("{}: {e}", key::format_point(point))))?;
        tried += 1;
        if begun.elapsed() >= budget {
            break;
        }
    }
    let per_replication_s = begun.elapsed().as_secs_f64() / (tried.max(1) as f64);
    let (fewest, most) = sweep.replication_range();
    let total = |n: u64| n as f64 * per_replication_s / jobs.max(1) as f64;
    Ok(SweepEstimate { tried, per_replication_s, low_s: total(fewest), high_s: total(most) })
}

/// Returns all indices below `n` so that each prefix covers the range: the ends first, then the middles of the gaps.
fn spread_indices(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::with_capacity(n);
    let mut step = n.saturating_sub(1).max(1);
    let mut seen = vec![false; n];
    while order.len() < n {
        for place in (0..n).rev().step_by(step) {
            if !std::mem::replace(&mut seen[place], true) {
                order.push(place);
            }
        }
        step = (step / 2).max(1);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_begins_at_the_ends_and_reaches_all() {
        assert!(spread_indices(0).is_empty());
        assert_eq!(spread_indices(1), [0]);
        assert_eq!(spread_indices(5), [4, 0, 2, 3, 1]);
        for n in 0..40 {
            let mut order = spread_indices(n);
            order.sort_unstable();
            assert_eq!(order, (0..n).collect::<Vec<_>>());
        }
    }
}
