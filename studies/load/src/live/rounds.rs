//! Rounds: all stations set up their sessions and then end them, repeatedly. The set-up rate uses the terms of
//! access-network testers: calls per second, with the minimum, mean and maximum over all rounds.

use super::{LoadIntervalStats, LoadObserver, LoadOutcome, LoadRunPlan, RunError, run_window};
use crate::generator::LoadProtocolConfig;
use crate::limit::GeneratorLimitCause;

/// One round.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SessionSetupRound {
    /// Sessions that were set up.
    pub sessions: u64,
    /// Seconds from the first PADI to the last session.
    pub setup_s: f64,
}

impl SessionSetupRound {
    /// Returns the sessions set up per second.
    #[must_use]
    pub fn session_setup_rate(&self) -> f64 {
        if self.setup_s > 0.0 { self.sessions as f64 / self.setup_s } else { 0.0 }
    }
}

/// The set-up rate of sessions: calls per second (CPS).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SessionSetupRates {
    /// The rate of the last round, or over the whole window.
    pub cps: f64,
    /// The minimum of a round or, without rounds, of an interval of the timeline.
    pub min: f64,
    /// The mean.
    pub avg: f64,
    /// The maximum.
    pub max: f64,
    /// Seconds until the last session of the longest round; `None` without rounds.
    pub time_s: Option<f64>,
}

impl LoadOutcome {
    /// Returns the set-up rates of sessions; `None` without sessions.
    #[must_use]
    pub fn session_setup_rates(&self) -> Option<SessionSetupRates> {
        // Ignore the first and the last interval of a timeline, because they are incomplete.
        let inner = self.timeline.iter().filter(|i| !i.warming && i.length_s > 0.0).collect::<Vec<_>>();
        let inner = if inner.len() > 3 { &inner[1..inner.len() - 1] } else { &inner[..] };
        let rates: Vec<f64> = match self.rounds.is_empty() {
            true => inner.iter().map(|i| i.completed as f64 / i.length_s).collect(),
            false => self.rounds.iter().map(SessionSetupRound::session_setup_rate).collect(),
        };
        let avg = match self.rounds.is_empty() {
            true => self.throughput(),
            false => rates.iter().sum::<f64>() / rates.len() as f64,
        };
        let min = rates.iter().copied().reduce(f64::min)?;
        let max = rates.iter().copied().reduce(f64::max)?;
        let cps = self.rounds.last().map_or(avg, SessionSetupRound::session_setup_rate);
        Some(SessionSetupRates {
            cps,
            min,
            avg,
            max,
            time_s: self.rounds.iter().map(|r| r.setup_s).reduce(f64::max),
        })
    }
}

pub(super) fn run_load_rounds(
    plan: &LoadRunPlan,
    watch: &mut dyn LoadObserver,
) -> Result<LoadOutcome, RunError> {
    let mut whole: Option<LoadOutcome> = None;
    for round in 0..plan.rounds {
        let mut this = plan.clone();
        if let LoadProtocolConfig::Pppoe(of) = &mut this.load.front
            && round + 1 == plan.rounds
        {
            // The last round ends without a power cut: its sessions end normally, or stay if configured so.
            of.power_cut = false;
        }
        let mut next = run_window(&this, watch)?;
        next.rounds = vec![SessionSetupRound { sessions: next.tally.completed, setup_s: next.measured_s }];
        let interrupted = next.interrupted;
        whole = Some(match whole.take() {
            None => next,
            Some(before) => merge_round_outcomes(before, next),
        });
        if interrupted {
            break;
        }
    }
    whole.ok_or(crate::generator::ConfigError::Invalid("the number of rounds is 0; give at least 1").into())
}

/// Merges two rounds into one outcome.
fn merge_round_outcomes(mut all: LoadOutcome, next: LoadOutcome) -> LoadOutcome {
    let begun = all.timeline.last().map_or(0.0, |i| i.at_s);
    all.tally.add(&next.tally);
    all.measured_s += next.measured_s;
    all.timeline.extend(next.timeline.into_iter().map(|i| LoadIntervalStats { at_s: begun + i.at_s, ..i }));
    all.rounds.extend(next.rounds);
    all.driver.add(&next.driver);
    all.own_cpu_s += next.own_cpu_s;
    all.busy = [all.busy, next.busy].into_iter().flatten().reduce(f64::max);
    all.limit = GeneratorLimitCause::judge_window(&all.tally, all.busy);
    all.server = match (all.server, next.server) {
        (Some(mut sum), Some(more)) => {
            sum.cpu.user += more.cpu.user;
            sum.cpu.system += more.cpu.system;
            sum.completed += more.completed;
            sum.peak_memory = sum.peak_memory.max(more.peak_memory);
            Some(sum)
        }
        (before, after) => before.or(after),
    };
    for ((_, sum), (_, n)) in all.counters.iter_mut().zip(next.counters) {
        *sum += n;
    }
    all.interrupted |= next.interrupted;
    all
}
