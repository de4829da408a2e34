//! The search for the knee: the highest rate that a server keeps up with.
//!
//! First the rate doubles until a step fails, and the distance to the last rate kept up with is halved until it is
//! small. One failure may be an accident, so that a rate fails in the search when two steps in a row do. Then steps near the
//! knee are repeated, by a rung up after each that was kept up with and a rung down after each that was not: each turn from
//! one to the other is an estimate of the knee, the mean of both rates. That ends when the 95 % interval of the
//! estimates' mean is no wider than a rung to either side, of at least [`TURNS`] of them, or after so many steps as allowed.
//! Where [`RUN`] repetitions in a row say the same the search was wrong, and begins again from there.

use crate::limit::GeneratorLimit;
use crate::tally::{LoginStats, quantile};
use usher_observe::MeanEstimate;

/// Estimates of the knee that an interval rests on at least.
pub const TURNS: usize = 4;
/// So many repetitions in a row that are kept up with, or fail, say that the knee is elsewhere.
pub const RUN: u32 = 4;
/// The level of the interval.
const LEVEL: f64 = 0.95;

/// What a step of a ramp must show to be kept up with, and where the search begins and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RampConfig {
    /// The first rate, logins a second; it is doubled until a step fails.
    pub start: f64,
    /// Rates are not tried beyond this.
    pub most: f64,
    /// The share of logins that must end as they have to within the limit.
    pub success: f64,
    /// The limit of the 99th percentile of latency, seconds.
    pub p99: f64,
    /// The search ends when the failing rate is at most this share above the one kept up with; a rung of the
    /// repetition is as wide.
    pub precision: f64,
    /// Most steps that are repeated near the knee.
    pub repeats: u32,
}

impl Default for RampConfig {
    /// From 100/s, 99.9 %, 100 ms, to 5 %, with 16 repetitions.
    fn default() -> Self {
        Self { start: 100.0, most: 10e6, success: 0.999, p99: 0.1, precision: 0.05, repeats: 16 }
    }
}

impl RampConfig {
    /// Whether a tally shows that the server kept up.
    #[must_use]
    pub fn is_met(&self, tally: &LoginStats) -> bool {
        let in_time = quantile(&tally.latency, 0.99).is_some_and(|p| p <= self.p99);
        tally.success_ratio() >= self.success && in_time
    }
}

/// What one step showed.
#[derive(Clone, Debug)]
pub struct RampStep {
    /// The rate asked for, logins a second.
    pub rate: f64,
    /// How long was measured, seconds.
    pub measured_s: f64,
    /// What came of its logins: all that were meant to begin in it.
    pub tally: LoginStats,
    /// The generator was the limit: if the step was not kept up with, that says nothing about the server.
    pub limit: Option<GeneratorLimit>,
    /// A repetition near the knee.
    pub repeat: bool,
    /// Whether the server kept up.
    pub is_sustained: bool,
    /// Ended before its time: it counts for nothing.
    pub interrupted: bool,
}

impl RampStep {
    /// A step at this rate; the ramp judges it.
    #[must_use]
    pub const fn new(rate: f64, measured_s: f64, tally: LoginStats, limit: Option<GeneratorLimit>) -> Self {
        Self { rate, measured_s, tally, limit, repeat: false, is_sustained: false, interrupted: false }
    }
    /// Whether it was at this very rate.
    fn is_at(&self, rate: f64) -> bool {
        self.rate.to_bits() == rate.to_bits()
    }
    /// Successes a second.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.tally.completed as f64 / self.measured_s.max(1e-9)
    }
}

/// What the ramp found.
#[derive(Clone, Debug)]
pub struct RampKnee {
    /// The capacity, logins a second: of the rates of which most steps were kept up with, and at which all steps together
    /// met the limits, the one that divides the steps best, so that least fail up to it or are kept up with above it.
    pub capacity: f64,
    /// What came of the logins of all steps at that rate.
    pub tally: LoginStats,
    /// How long they were measured, seconds.
    pub measured_s: f64,
    /// How many steps that were.
    pub steps: usize,
    /// The 95 % interval of where steps turn from kept up with to failing, with the rungs' distance; none where the
    /// search ended without such a turn.
    pub interval: Option<(f64, f64)>,
    /// How many turns it rests on.
    pub turns: usize,
    /// The interval is as narrow as asked for.
    pub stable: bool,
    /// A bound only, since the next rate failed by the generator's fault: the server takes at least this.
    pub bound: Option<GeneratorLimit>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum SearchPhase {
    Search,
    /// At this rung above the search's result.
    Repeat(i32),
    Finished,
}

/// The search.
#[derive(Clone, Debug)]
pub struct RampSearch {
    config: RampConfig,
    phase: SearchPhase,
    sustained_rate: f64,
    failed: Option<f64>,
    /// The rate has failed once.
    doubt: bool,
    rate: f64,
    /// The logarithm of each estimate of the knee.
    turns: Vec<f64>,
    /// Whether the last step was kept up with.
    last: bool,
    /// How many repetitions in a row said the same as the last.
    run: u32,
    repeats: u32,
    steps: Vec<RampStep>,
}

impl RampSearch {
    /// At its first step.
    #[must_use]
    pub const fn new(config: RampConfig) -> Self {
        let rate = config.start.min(config.most);
        Self {
            config,
            phase: SearchPhase::Search,
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
    /// The rate to try next; none when the search is over.
    #[must_use]
    pub fn next_rate(&self) -> Option<f64> {
        (self.phase != SearchPhase::Finished).then_some(self.rate)
    }
    /// What was found out.
    #[must_use]
    pub fn steps(&self) -> &[RampStep] {
        &self.steps
    }
    /// True where the search ended at the highest rate allowed, with the server still keeping up.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == SearchPhase::Finished && self.failed.is_none() && self.sustained_rate > 0.0
    }
    /// True when it came to its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == SearchPhase::Finished
    }

    /// What the step at the current rate showed; it is judged here.
    pub fn add_step(&mut self, mut step: RampStep) {
        if step.interrupted {
            self.steps.push(step);
            return;
        }
        step.is_sustained = self.config.is_met(&step.tally);
        step.repeat = matches!(self.phase, SearchPhase::Repeat(_));
        let (rate, kept_up) = (step.rate, step.is_sustained);
        self.steps.push(step);
        match self.phase {
            SearchPhase::Search => self.continue_search(rate, kept_up),
            SearchPhase::Repeat(rung) => self.continue_repeats(rung, rate, kept_up),
            SearchPhase::Finished => {}
        }
        self.last = kept_up;
    }

    fn continue_search(&mut self, rate: f64, kept_up: bool) {
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
            None if self.sustained_rate >= self.config.most => self.phase = SearchPhase::Finished,
            None => self.rate = (self.sustained_rate * 2.0).min(self.config.most),
            // Below the first rate there is no rate that was kept up with: halve until one is, or it is absurd.
            Some(failed) if self.sustained_rate == 0.0 => {
                self.rate = failed / 2.0;
                if failed < 1.0 {
                    self.phase = SearchPhase::Finished;
                }
            }
            Some(failed) if failed <= self.sustained_rate * (1.0 + self.config.precision) => {
                self.turns.push((self.sustained_rate * failed).sqrt().ln());
                self.go_to(i32::from(kept_up));
            }
            Some(failed) => self.rate = f64::midpoint(failed, self.sustained_rate),
        }
    }

    fn rung_width(&self) -> f64 {
        (1.0 + self.config.precision).ln()
    }

    fn go_to(&mut self, rung: i32) {
        let rate = self.sustained_rate * (f64::from(rung) * self.rung_width()).exp();
        self.rate = if rung == 0 { self.sustained_rate } else { rate };
        self.phase = SearchPhase::Repeat(rung);
        if self.repeats >= self.config.repeats || self.rate > self.config.most || self.rate < 0.5 {
            self.phase = SearchPhase::Finished;
        }
    }

    fn continue_repeats(&mut self, rung: i32, rate: f64, kept_up: bool) {
        self.repeats += 1;
        self.run = if kept_up == self.last { self.run + 1 } else { 1 };
        if self.run >= RUN && self.repeats < self.config.repeats {
            // What the search rested on was an accident.
            (self.run, self.phase) = (0, SearchPhase::Search);
            self.turns.clear();
            (self.sustained_rate, self.failed) = if kept_up { (rate, None) } else { (0.0, Some(rate)) };
            self.rate = if kept_up { (rate * 2.0).min(self.config.most) } else { rate / 2.0 };
            return;
        }
        if kept_up != self.last {
            // The step before was one rung towards this one: below where it was kept up with, above where it failed.
            let before = if self.last { rung - 1 } else { rung + 1 };
            let between = f64::from(rung + before) / 2.0;
            self.turns.push(self.sustained_rate.ln() + between * self.rung_width());
        }
        if self.is_stable() {
            self.phase = SearchPhase::Finished;
        } else {
            self.go_to(if kept_up { rung + 1 } else { rung - 1 });
        }
    }

    fn is_stable(&self) -> bool {
        self.turns.len() >= TURNS
            && MeanEstimate::from_values(&self.turns, LEVEL).half_width <= self.rung_width()
    }

    /// All steps at a rate: how many were kept up with and how many not, and what they showed together.
    fn sum_at_rate(&self, rate: f64) -> (usize, usize, LoginStats, f64) {
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

    /// The knee; none where no rate was kept up with.
    #[must_use]
    pub fn find_knee(&self) -> Option<RampKnee> {
        let whole = || self.steps.iter().filter(|s| !s.interrupted);
        let mut rates: Vec<f64> = whole().map(|s| s.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        // The rate that divides the steps best: least of them fail up to it, or are kept up with above it.
        let wrong = |rate: f64| whole().filter(|s| s.is_sustained != (s.rate <= rate)).count();
        let fits = |&rate: &f64| {
            let (kept, failed, tally, _) = self.sum_at_rate(rate);
            kept > failed && self.config.is_met(&tally)
        };
        let capacity = rates.iter().copied().filter(fits).min_by_key(|rate| wrong(*rate))?;
        let (kept, failed, tally, measured_s) = self.sum_at_rate(capacity);
        let steps = kept + failed;
        // Where each failure at the next rate that failed was the generator's, nobody knows what the server would have
        // done.
        let above = || whole().filter(|s| s.rate > capacity && !s.is_sustained);
        let next = above().map(|s| s.rate).min_by(f64::total_cmp);
        let there = || above().filter(|s| next.is_some_and(|rate| s.is_at(rate)));
        let bound = if there().all(|s| s.limit.is_some()) { there().find_map(|s| s.limit) } else { None };
        let half_rung = self.rung_width() / 2.0;
        let interval = match self.turns.len() {
            0 => None,
            // Of one turn nothing is known but the two rates that it is between.
            1 => Some(((self.turns[0] - half_rung).exp(), (self.turns[0] + half_rung).exp())),
            _ => {
                let e = MeanEstimate::from_values(&self.turns, LEVEL);
                Some(((e.low() - half_rung).exp(), (e.high() + half_rung).exp()))
            }
        };
        let (turns, stable) = (self.turns.len(), self.is_stable());
        Some(RampKnee { capacity, tally, measured_s, steps, interval, turns, stable, bound })
    }

    /// What all steps at the lowest rate with a login showed, for a ramp without a knee: their tally, how long they were measured in
    /// seconds, and whether the generator was the limit in all of them.
    #[must_use]
    pub fn sum_at_lowest(&self) -> (LoginStats, f64, Option<GeneratorLimit>) {
        let whole = || self.steps.iter().filter(|s| !s.interrupted && s.tally.started > 0);
        let Some(rate) = whole().map(|s| s.rate).min_by(f64::total_cmp) else {
            return (LoginStats::default(), 0.0, None);
        };
        let (_, _, tally, measured_s) = self.sum_at_rate(rate);
        let here = || whole().filter(|s| s.is_at(rate));
        let limit =
            if here().all(|s| s.limit.is_some()) { here().next().and_then(|s| s.limit) } else { None };
        (tally, measured_s, limit)
    }
}

/// Who can take a ramp's steps.
pub(crate) trait RampStage {
    type Error;
    /// Takes a step at this rate.
    fn run_step(&mut self, rate: f64) -> Result<RampStep, Self::Error>;
    /// Hears how it was judged.
    fn on_step_judged(&mut self, step: &RampStep) -> Result<(), Self::Error>;
}

/// Takes steps until the search is over or one was interrupted.
pub(crate) fn climb_ramp<S: RampStage>(ramp: &mut RampSearch, stage: &mut S) -> Result<(), S::Error> {
    while let Some(rate) = ramp.next_rate() {
        ramp.add_step(stage.run_step(rate)?);
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
