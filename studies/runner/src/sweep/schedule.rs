//! Decides which replication runs next and which are kept. A pure state machine without threads.

use super::{PointStoppingPlan, ReplicationOutcome, RunCostStats};
use usher_observe::stats::StopDecision;

/// The state of one replication.
#[derive(Clone, Debug)]
enum ReplicationState {
    Open,
    Running,
    Done(ReplicationOutcome),
    Failed,
}

/// One point's replications.
#[derive(Debug)]
struct PointState {
    slots: Vec<ReplicationState>,
    /// Number of finished replications from index 0 without a gap.
    done: u32,
    /// For each watched metric, its value in every finished replication.
    series: Vec<Vec<Option<f64>>>,
    stop: Option<StopDecision>,
}

impl PointState {
    /// True if the point needs no further run: it has stopped, or its next replication failed.
    fn is_finished(&self) -> bool {
        self.stop.is_some() || matches!(self.slots.get(self.done as usize), Some(ReplicationState::Failed))
    }
}

/// The state of a whole sweep.
#[derive(Debug)]
pub(super) struct SweepSchedule<'a> {
    goals: &'a [PointStoppingPlan],
    states: Vec<PointState>,
    /// The first point with replications left to start.
    first: usize,
}

impl<'a> SweepSchedule<'a> {
    pub(super) fn new(goals: &'a [PointStoppingPlan]) -> Self {
        let state = |g: &PointStoppingPlan| PointState {
            slots: Vec::new(),
            done: 0,
            series: vec![Vec::new(); g.watched.len()],
            stop: None,
        };
        Self { goals, states: goals.iter().map(state).collect(), first: 0 }
    }

    /// Returns the next replication to run, as (point, replication), and marks it as running. Certainly needed
    /// replications come first. Then come possibly needed ones, at most `ahead` beyond the evaluated ones.
    pub(super) fn start_next_replication(&mut self, ahead: u32) -> Option<(usize, u32)> {
        while self.states.get(self.first).is_some_and(PointState::is_finished) {
            self.first += 1;
        }
        let mut maybe = None;
        for index in self.first..self.states.len() {
            let Some((replication, certain)) = self.find_next_replication(index, ahead) else { continue };
            if certain {
                maybe = Some((index, replication));
                break;
            }
            maybe.get_or_insert((index, replication));
        }
        let (index, replication) = maybe?;
        *self.slot_mut(index, replication) = ReplicationState::Running;
        Some((index, replication))
    }

    /// Returns a point's first replication that has not begun, and whether it is certainly needed.
    fn find_next_replication(&self, index: usize, ahead: u32) -> Option<(u32, bool)> {
        let (goal, state) = (&self.goals[index], &self.states[index]);
        if state.is_finished() {
            return None;
        }
        let begun = |s: &ReplicationState| matches!(s, ReplicationState::Running | ReplicationState::Done(_));
        let replication = state.slots.iter().position(|s| !begun(s)).unwrap_or(state.slots.len());
        if matches!(state.slots.get(replication), Some(ReplicationState::Failed)) {
            return None;
        }
        let replication = replication as u32;
        let max = goal.stopping.max.max(1);
        let certain = replication < goal.stopping.min.clamp(1, max) || replication == state.done;
        let allowed = replication < max && (certain || replication < state.done.saturating_add(ahead));
        allowed.then_some((replication, certain))
    }

    fn slot_mut(&mut self, index: usize, replication: u32) -> &mut ReplicationState {
        let slots = &mut self.states[index].slots;
        let at = replication as usize;
        if slots.len() <= at {
            slots.resize(at + 1, ReplicationState::Open);
        }
        &mut slots[at]
    }

    /// Adds a finished replication and evaluates its point. True if that finished the point.
    pub(super) fn finish_replication(
        &mut self,
        index: usize,
        replication: u32,
        outcome: ReplicationOutcome,
    ) -> bool {
        *self.slot_mut(index, replication) = ReplicationState::Done(outcome);
        let (goal, state) = (&self.goals[index], &mut self.states[index]);
        let before = state.done;
        while let Some(ReplicationState::Done(outcome)) = state.slots.get(state.done as usize) {
            for (name, values) in goal.watched.iter().zip(&mut state.series) {
                let value = outcome.metrics.iter().find(|(metric, _)| metric == name);
                values.push(value.map(|(_, v)| *v).filter(|v| !v.is_nan()));
            }
            state.done += 1;
        }
        if state.stop.is_some() || state.done == before {
            return false;
        }
        let series: Vec<&[Option<f64>]> = state.series.iter().map(Vec::as_slice).collect();
        state.stop = goal.stopping.decide_replication_stop(state.done, &series);
        state.stop.is_some()
    }

    /// Marks a replication as failed: later replications of its point do not start. The failure does not count if the
    /// point stops before it.
    pub(super) fn fail_replication(&mut self, index: usize, replication: u32) {
        *self.slot_mut(index, replication) = ReplicationState::Failed;
    }

    /// Returns the replications of a point that count: up to its stop, or else the finished ones without a gap.
    pub(super) fn counted_outcomes(&self, index: usize) -> impl Iterator<Item = (u32, &ReplicationOutcome)> {
        let state = &self.states[index];
        let n = state.stop.map_or(state.done, |s| s.replications);
        state.slots.iter().zip(0..n).filter_map(|(slot, replication)| match slot {
            ReplicationState::Done(outcome) => Some((replication, outcome)),
            ReplicationState::Open | ReplicationState::Running | ReplicationState::Failed => None,
        })
    }

    /// Returns a point's stop, if it has stopped.
    pub(super) fn point_stop_decision(&self, index: usize) -> Option<StopDecision> {
        self.states[index].stop
    }

    /// Returns the cost of the kept replications of all points.
    pub(super) fn total_run_cost(&self) -> RunCostStats {
        let mut facts = RunCostStats::default();
        for index in 0..self.states.len() {
            self.counted_outcomes(index).for_each(|(_, outcome)| facts.add(&outcome.facts));
        }
        facts
    }

    /// True if every point has stopped.
    pub(super) fn is_complete(&self) -> bool {
        self.states.iter().all(|s| s.stop.is_some())
    }
}
