//! The search for the knee: the highest rate that a server sustains.
//!
//! The rate doubles until a step fails. Then bisection narrows the distance to the last sustained rate. A single
//! failure may be an accident, so a rate fails in the search when two steps in a row fail.
//!
//! Then steps near the knee are repeated, one rung higher after each sustained step and one rung lower after each
//! failed one. Each turn between both is an estimate of the knee, the mean of both rates. Repetition ends when the 95 %
//! interval of their mean is no wider than a rung to either side, with at least [`TURNS`] estimates. It also ends at
//! the limit of steps. If [`RUN`] repetitions in a row agree, the search was wrong and starts again from there.

use crate::limit::GeneratorLimitCause;
use crate::tally::{LoginStats, quantile};
use usher_observe::MeanEstimate;

/// Minimum number of estimates of the knee for an interval.
pub const TURNS: usize = 4;
/// This number of equal repetitions in a row shows that the knee is elsewhere.
pub const RUN: u32 = 4;
/// The confidence level of the interval.
const LEVEL: f64 = 0.95;

/// The criteria of a sustained step, and the limits of the search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RampConfig {
    /// The first rate in logins per second; it doubles until a step fails.
    pub start: f64,
    /// The maximum rate.
    pub most: f64,
    /// The share of logins that must succeed within the limit.
    pub success: f64,
    /// The limit of the 99th percentile of latency, in seconds.
    pub p99: f64,
    /// The search ends when the failing rate is at most this share above the sustained one; a rung of the repetition
    /// has the same width.
    pub precision: f64,
    /// Maximum number of repeated steps near the knee.
    pub repeats: u32,
}

impl Default for RampConfig {
    /// From 100/s, 99.9 %, 100 ms, to 5 %, with 16 repetitions.
    fn default() -> Self {
        Self { start: 100.0, most: 10e6, success: 0.999, p99: 0.1, precision: 0.05, repeats: 16 }
    }
}

impl RampConfig {
    /// True if the statistics show that the server sustained the rate.
    #[must_use]
    pub fn is_met(&self, tally: &LoginStats) -> bool {
        let in_time = quantile(&tally.latency, 0.99).is_some_and(|p| p <= self.p99);
        tally.success_ratio() >= self.success && in_time
    }
}

/// The result of one step.
#[derive(Clone, Debug)]
pub struct RampStep {
    /// The requested rate in logins per second.
    pub rate: f64,
    /// Measured time in seconds.
    pub measured_s: f64,
    /// The statistics of all logins that were due in it.
    pub tally: LoginStats,
    /// Set if the generator was the limit: a failure of the step then says nothing about the server.
    pub limit: Option<GeneratorLimitCause>,
    /// True for a repetition near the knee.
    pub repeat: bool,
    /// True if the server sustained the rate.
    pub is_sustained: bool,
    /// True if the step was interrupted; it does not count.
    pub interrupted: bool,
}

impl RampStep {
    /// Creates a step at this rate; the ramp evaluates it.
    #[must_use]
    pub const fn new(
        rate: f64,
        measured_s: f64,
        tally: LoginStats,
        limit: Option<GeneratorLimitCause>,
    ) -> Self {
        Self { rate, measured_s, tally, limit, repeat: false, is_sustained: false, interrupted: false }
    }
    /// True if it has exactly this rate.
    fn is_at(&self, rate: f64) -> bool {
        self.rate.to_bits() == rate.to_bits()
    }
    /// Returns the successes per second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.tally.completed as f64 / self.measured_s.max(1e-9)
    }
}

/// The result of a ramp.
#[derive(Clone, Debug)]
pub struct RampKnee {
    /// The capacity in logins per second. It is the rate that best separates the steps: the fewest fail up to it or are
    /// sustained above it. Candidates are rates at which most steps were sustained and all steps together met the
    /// limits.
    pub capacity: f64,
    /// The statistics of all steps at that rate.
    pub tally: LoginStats,
    /// Their measured time in seconds.
    pub measured_s: f64,
    /// Their number.
    pub steps: usize,
    /// The 95 % interval of the turn from sustained to failed steps, including the rungs' distance; `None` if the
    /// search ended without a turn.
    pub interval: Option<(f64, f64)>,
    /// Number of turns in the interval.
    pub turns: usize,
    /// True if the interval is as narrow as requested.
    pub stable: bool,
    /// Set if the next rate failed because of the generator: the capacity is then a lower bound.
    pub bound: Option<GeneratorLimitCause>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum RampSearchPhase {
    Search,
    /// At this rung above the search's result.
    Repeat(i32),
    Finished,
}

/// The search.
#[derive(Clone, Debug)]
pub struct RampSearch {
    config: RampConfig,
    phase: RampSearchPhase,
    sustained_rate: f64,
    failed: Option<f64>,
    /// True if the rate has failed once.
    doubt: bool,
    rate: f64,
    /// The logarithm of each estimate of the knee.
    turns: Vec<f64>,
    /// True if the last step was sustained.
    last: bool,
    /// Number of repetitions in a row with the same result.
    run: u32,
    repeats: u32,
    steps: Vec<RampStep>,
}

impl RampSearch {
    /// Creates a search at its first step.
    #[must_use]
    pub const fn new(config: RampConfig) -> Self {
        let rate = config.start.min(config.most);
        Self {
            config,
            phase: RampSearchPhase::Search,
            sustained_rate: 0.0,
            failed: None,
            doubt: false,
            rate,
            turns: Vec::new(),
            last: true,
            run: 0,
            repeats: 0,
            steps: Vec::new(),
        }
    }
    /// Returns the next rate; `None` when the search has ended.
    #[must_use]
    pub fn next_rate(&self) -> Option<f64> {
        (self.phase != RampSearchPhase::Finished).then_some(self.rate)
    }
    /// Returns the steps so far.
    #[must_use]
    pub fn steps(&self) -> &[RampStep] {
        &self.steps
    }
    /// True if the server still sustained the maximum rate at the end of the search.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == RampSearchPhase::Finished && self.failed.is_none() && self.sustained_rate > 0.0
    }
    /// True if the search has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == RampSearchPhase::Finished
    }

    /// Evaluates and adds a step at the current rate.
    pub fn add_ramp_step(&mut self, mut step: RampStep) {
        if step.interrupted {
            self.steps.push(step);
            return;
        }
        step.is_sustained = self.config.is_met(&step.tally);
        step.repeat = matches!(self.phase, RampSearchPhase::Repeat(_));
        let (rate, kept_up) = (step.rate, step.is_sustained);
        self.steps.push(step);
        match self.phase {
            RampSearchPhase::Search => self.continue_ramp_search(rate, kept_up),
            RampSearchPhase::Repeat(rung) => self.continue_ramp_repeats(rung, rate, kept_up),
            RampSearchPhase::Finished => {}
        }
        self.last = kept_up;
    }

    fn continue_ramp_search(&mut self, rate: f64, kept_up: bool) {
        if !kept_up && !self.doubt {
            self.doubt = true;
            return;
        }
        self.doubt = false;
        if kept_up {
            self.sustained_rate = self.sustained_rate.max(rate);
        } else {
            self.failed = Some(self.failed.map_or(rate, |f| f.min(rate)));
        }
        match self.failed {
            None if self.sustained_rate >= self.config.most => self.phase = RampSearchPhase::Finished,
            None => self.rate = (self.sustained_rate * 2.0).min(self.config.most),
            // The first rate failed and no rate was sustained yet, so halve the rate until one is sustained or the rate
            // is absurdly low.
            Some(failed) if self.sustained_rate == 0.0 => {
                self.rate = failed / 2.0;
                if failed < 1.0 {
                    self.phase = RampSearchPhase::Finished;
                }
            }
            Some(failed) if failed <= self.sustained_rate * (1.0 + self.config.precision) => {
                self.turns.push((self.sustained_rate * failed).sqrt().ln());
                self.start_repeat_at_rung(i32::from(kept_up));
            }
            Some(failed) => self.rate = f64::midpoint(failed, self.sustained_rate),
        }
    }

    fn log_rung_width(&self) -> f64 {
        (1.0 + self.config.precision).ln()
    }

    fn start_repeat_at_rung(&mut self, rung: i32) {
        let rate = self.sustained_rate * (f64::from(rung) * self.log_rung_width()).exp();
        self.rate = if rung == 0 { self.sustained_rate } else { rate };
        self.phase = RampSearchPhase::Repeat(rung);
        if self.repeats >= self.config.repeats || self.rate > self.config.most || self.rate < 0.5 {
            self.phase = RampSearchPhase::Finished;
        }
    }

    fn continue_ramp_repeats(&mut self, rung: i32, rate: f64, kept_up: bool) {
        self.repeats += 1;
        self.run = if kept_up == self.last { self.run + 1 } else { 1 };
        if self.run >= RUN && self.repeats < self.config.repeats {
            // Several equal results in a row show that the search ended at a wrong rate by chance, so search again.
            (self.run, self.phase) = (0, RampSearchPhase::Search);
            self.turns.clear();
            (self.sustained_rate, self.failed) = if kept_up { (rate, None) } else { (0.0, Some(rate)) };
            self.rate = if kept_up { (rate * 2.0).min(self.config.most) } else { rate / 2.0 };
            return;
        }
        if kept_up != self.last {
            // The last turn's step was one rung lower if it was sustained, and one rung higher if it failed.
            let before = if self.last { rung - 1 } else { rung + 1 };
            let between = f64::from(rung + before) / 2.0;
            self.turns.push(self.sustained_rate.ln() + between * self.log_rung_width());
        }
        if self.is_capacity_stable() {
            self.phase = RampSearchPhase::Finished;
        } else {
            self.start_repeat_at_rung(if kept_up { rung + 1 } else { rung - 1 });
        }
    }

    fn is_capacity_stable(&self) -> bool {
        self.turns.len() >= TURNS
            && MeanEstimate::from_values(&self.turns, LEVEL).half_width <= self.log_rung_width()
    }

    /// Sums up all steps at a rate: sustained and failed steps, and their statistics and measured time.
    fn sum_steps_at_rate(&self, rate: f64) -> (usize, usize, LoginStats, f64) {
        let (mut kept, mut failed, mut tally, mut measured_s) = (0, 0, LoginStats::default(), 0.0);
        for step in self.steps.iter().filter(|s| !s.interrupted && s.is_at(rate)) {
            if step.is_sustained {
                kept += 1
            } else {
                failed += 1
            }
            tally.add(&step.tally);
            measured_s += step.measured_s;
        }
        (kept, failed, tally, measured_s)
    }

    /// Returns the knee; `None` if no rate was sustained.
    #[must_use]
    pub fn find_ramp_knee(&self) -> Option<RampKnee> {
        let whole = || self.steps.iter().filter(|s| !s.interrupted);
        let mut rates: Vec<f64> = whole().map(|s| s.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        // The capacity is the rate that best separates the steps: the fewest steps fail up to it or are sustained above
        // it.
        let wrong = |rate: f64| whole().filter(|s| s.is_sustained != (s.rate <= rate)).count();
        let fits = |&rate: &f64| {
            let (kept, failed, tally, _) = self.sum_steps_at_rate(rate);
            kept > failed && self.config.is_met(&tally)
        };
        let capacity = rates.iter().copied().filter(fits).min_by_key(|rate| wrong(*rate))?;
        let (kept, failed, tally, measured_s) = self.sum_steps_at_rate(capacity);
        let steps = kept + failed;
        // If the generator caused each failure at the next failed rate, the server's limit is unknown.
        let above = || whole().filter(|s| s.rate > capacity && !s.is_sustained);
        let next = above().map(|s| s.rate).min_by(f64::total_cmp);
        let there = || above().filter(|s| next.is_some_and(|rate| s.is_at(rate)));
        let bound = if there().all(|s| s.limit.is_some()) { there().find_map(|s| s.limit) } else { None };
        let half_rung = self.log_rung_width() / 2.0;
        let interval = match self.turns.len() {
            0 => None,
            // A single turn gives no variance, so the interval is the two rates around it.
            1 => Some(((self.turns[0] - half_rung).exp(), (self.turns[0] + half_rung).exp())),
            _ => {
                let e = MeanEstimate::from_values(&self.turns, LEVEL);
                Some(((e.low() - half_rung).exp(), (e.high() + half_rung).exp()))
            }
        };
        let (turns, stable) = (self.turns.len(), self.is_capacity_stable());
        Some(RampKnee { capacity, tally, measured_s, steps, interval, turns, stable, bound })
    }

    /// Returns the sum of all steps at the lowest rate with a login, for a ramp without a knee: their statistics, their
    /// measured time in seconds, and the generator's limit if it holds for all of them.
    #[must_use]
    pub fn sum_steps_at_lowest_rate(&self) -> (LoginStats, f64, Option<GeneratorLimitCause>) {
        let whole = || self.steps.iter().filter(|s| !s.interrupted && s.tally.started > 0);
        let Some(rate) = whole().map(|s| s.rate).min_by(f64::total_cmp) else {
            return (LoginStats::default(), 0.0, None);
        };
        let (_, _, tally, measured_s) = self.sum_steps_at_rate(rate);
        let here = || whole().filter(|s| s.is_at(rate));
        let limit =
            if here().all(|s| s.limit.is_some()) { here().next().and_then(|s| s.limit) } else { None };
        (tally, measured_s, limit)
    }
}

/// Runs the steps of a ramp.
pub(crate) trait RampStepRunner {
    type Error;
    /// Runs a step at this rate.
    fn run_step(&mut self, rate: f64) -> Result<RampStep, Self::Error>;
    /// Receives the verdict on a step.
    fn on_step_judged(&mut self, step: &RampStep) -> Result<(), Self::Error>;
}

/// Runs steps until the search ends or a step is interrupted.
pub(crate) fn climb_ramp<S: RampStepRunner>(ramp: &mut RampSearch, stage: &mut S) -> Result<(), S::Error> {
    while let Some(rate) = ramp.next_rate() {
        ramp.add_ramp_step(stage.run_step(rate)?);
        let Some(step) = ramp.steps().last() else { continue };
        stage.on_step_judged(step)?;
        if step.interrupted {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
