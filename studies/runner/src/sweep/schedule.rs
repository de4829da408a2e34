//! Which replication runs next, and which are kept. A pure state machine: it knows no threads.

use super::{Facts, Goal, Outcome};
use usher_observe::stats::Stop;

/// What is known of one replication.
#[derive(Clone, Debug)]
enum Slot {
    Open,
    Running,
    Done(Outcome),
    Failed,
}

/// One point's replications.
#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    /// Replications from index 0 without a gap that are done.
    done: u32,
    /// For each watched metric its value in every done replication.
    series: Vec<Vec<Option<f64>>>,
    stop: Option<Stop>,
}

impl State {
    /// Nothing more is to be run: it has stopped, or the next replication to be judged failed.
    fn finished(&self) -> bool {
        self.stop.is_some() || matches!(self.slots.get(self.done as usize), Some(Slot::Failed))
    }
}

/// The state of a whole sweep.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    goals: &'a [Goal],
    states: Vec<State>,
    /// No point before this one has anything left to start.
    first: usize,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(goals: &'a [Goal]) -> Self {
        let state = |g: &Goal| State {
            slots: Vec::new(),
            done: 0,
            series: vec![Vec::new(); g.watched.len()],
            stop: None,
        };
        Self { goals, states: goals.iter().map(state).collect(), first: 0 }
    }

    /// The next replication to run, as (point, replication), marked as running. Replications that are
    /// certainly needed come first; then, at most `ahead` beyond what is judged, such as may be needed.
    pub(super) fn next(&mut self, ahead: u32) -> Option<(usize, u32)> {
        while self.states.get(self.first).is_some_and(State::finished) {
            self.first += 1;
        }
        let mut maybe = None;
        for index in self.first..self.states.len() {
            let Some((replication, certain)) = self.candidate(index, ahead) else { continue };
            if certain {
                maybe = Some((index, replication));
                break;
            }
            maybe.get_or_insert((index, replication));
        }
        let (index, replication) = maybe?;
        *self.slot(index, replication) = Slot::Running;
        Some((index, replication))
    }

    /// The first replication of a point that is not begun, and whether it is certainly needed.
    fn candidate(&self, index: usize, ahead: u32) -> Option<(u32, bool)> {
        let (goal, state) = (&self.goals[index], &self.states[index]);
        if state.finished() {
            return None;
        }
        let begun = |s: &Slot| matches!(s, Slot::Running | Slot::Done(_));
        let replication = state.slots.iter().position(|s| !begun(s)).unwrap_or(state.slots.len());
        if matches!(state.slots.get(replication), Some(Slot::Failed)) {
            return None;
        }
        let replication = replication as u32;
        let max = goal.stopping.max.max(1);
        let certain = replication < goal.stopping.min.clamp(1, max) || replication == state.done;
        let allowed = replication < max && (certain || replication < state.done.saturating_add(ahead));
        allowed.then_some((replication, certain))
    }

    fn slot(&mut self, index: usize, replication: u32) -> &mut Slot {
        let slots = &mut self.states[index].slots;
        let at = replication as usize;
        if slots.len() <= at {
            slots.resize(at + 1, Slot::Open);
        }
        &mut slots[at]
    }

    /// Takes a finished replication in and judges its point. True where that finished the point.
    pub(super) fn finish(&mut self, index: usize, replication: u32, outcome: Outcome) -> bool {
        *self.slot(index, replication) = Slot::Done(outcome);
        let (goal, state) = (&self.goals[index], &mut self.states[index]);
        let before = state.done;
        while let Some(Slot::Done(outcome)) = state.slots.get(state.done as usize) {
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
        state.stop = goal.stopping.stop(state.done, &series);
        state.stop.is_some()
    }

    /// A replication could not be run: nothing of its point is begun beyond it. If the point stops before
    /// it, the failure does not count either.
    pub(super) fn fail(&mut self, index: usize, replication: u32) {
        *self.slot(index, replication) = Slot::Failed;
    }

    /// The replications of a point that count: up to its stop, or, where it has none yet, those that are
    /// done without a gap.
    pub(super) fn kept(&self, index: usize) -> impl Iterator<Item = (u32, &Outcome)> {
        let state = &self.states[index];
        let n = state.stop.map_or(state.done, |s| s.replications);
        state.slots.iter().zip(0..n).filter_map(|(slot, replication)| match slot {
            Slot::Done(outcome) => Some((replication, outcome)),
            Slot::Open | Slot::Running | Slot::Failed => None,
        })
    }

    /// Where a point stopped, if it did.
    pub(super) fn stop(&self, index: usize) -> Option<Stop> {
        self.states[index].stop
    }

    /// What the kept replications of all points cost.
    pub(super) fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for index in 0..self.states.len() {
            self.kept(index).for_each(|(_, outcome)| facts.add(&outcome.facts));
        }
        facts
    }

    /// True where every point has reached its stop.
    pub(super) fn complete(&self) -> bool {
        self.states.iter().all(|s| s.stop.is_some())
    }
}
