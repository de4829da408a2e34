//! The times at which a client's dialogues begin.

use std::cell::Cell;
use std::rc::Rc;
use usher_core::{Duration, Instant, SimulationRng};
use usher_scenario::model::{ArrivalRateScope, ArrivalSettings, TimeDistribution};

/// The arrivals that all clients of a workload share.
#[derive(Debug)]
pub(super) struct ArrivalPattern {
    law: ArrivalDistribution,
    /// The first arrival, before random offsets and the stagger of clients.
    start: Instant,
    /// Number of dialogues that may still begin, over all clients of a run.
    budget: Option<Cell<u64>>,
    /// No dialogue begins from this time on.
    end: Instant,
}

#[derive(Debug)]
enum ArrivalDistribution {
    Poisson {
        mean: Duration,
    },
    Constant {
        interval: Duration,
        /// Delay of each client's first turn after the previous client's.
        stagger: Duration,
        /// Maximum delay after the turn.
        jitter: Duration,
        count: Option<u64>,
    },
    Closed {
        pause: TimeDistribution,
    },
}

impl ArrivalPattern {
    /// Creates the arrivals of this number of clients. A Poisson stream whose arrivals go to uniformly drawn clients
    /// is, by its splitting property, an independent stream of each client at its share of the rate.
    pub(super) fn new(arrivals: &ArrivalSettings, clients: u64, end: Instant) -> Rc<Self> {
        let (law, start, limit) = match arrivals {
            ArrivalSettings::Poisson { rate, per, start, limit } => {
                let mean = match per {
                    ArrivalRateScope::All => rate.mean_interval().mul_f64(clients as f64),
                    ArrivalRateScope::Client => rate.mean_interval(),
                };
                (ArrivalDistribution::Poisson { mean }, start, *limit)
            }
            ArrivalSettings::Constant { interval, start, stagger, jitter, count } => {
                let (interval, stagger) = (interval.get(), stagger.get());
                let jitter = interval.mul_f64(jitter.get());
                (ArrivalDistribution::Constant { interval, stagger, jitter, count: *count }, start, None)
            }
            ArrivalSettings::Closed { pause, start, limit } => {
                (ArrivalDistribution::Closed { pause: pause.clone() }, start, *limit)
            }
        };
        Rc::new(Self { law, start: Instant::ZERO + start.get(), budget: limit.map(Cell::new), end })
    }
}

/// One client's arrivals.
#[derive(Debug)]
pub(super) struct ArrivalProcess {
    pattern: Rc<ArrivalPattern>,
    /// The next arrival; far future if there is none.
    next: Instant,
    /// At a constant rate: the next turn, and the number of turns left (`u64::MAX` for no end).
    turn: Instant,
    left: u64,
    /// Present if anything is random.
    rng: Option<Box<SimulationRng>>,
}

/// Draws the delay after a turn, up to `jitter`.
fn draw_arrival_jitter(jitter: Duration, rng: Option<&mut SimulationRng>) -> Duration {
    match rng {
        Some(rng) if !jitter.is_zero() => rng.sample_duration(Duration::ZERO, jitter),
        _ => Duration::ZERO,
    }
}

impl ArrivalProcess {
    /// Creates the arrivals of client `index`.
    pub(super) fn new(pattern: &Rc<ArrivalPattern>, index: u64, mut rng: SimulationRng) -> Self {
        let (mut turn, mut left, mut certain) = (pattern.start, u64::MAX, false);
        let mut next = match &pattern.law {
            ArrivalDistribution::Poisson { mean } => turn + rng.sample_exponential(*mean),
            ArrivalDistribution::Constant { stagger, jitter, count, .. } => {
                turn += *stagger * index;
                left = count.unwrap_or(u64::MAX);
                certain = jitter.is_zero();
                turn + draw_arrival_jitter(*jitter, Some(&mut rng))
            }
            ArrivalDistribution::Closed { pause } => turn + pause.draw_time(&mut rng),
        };
        if left == 0 {
            next = Instant::FAR_FUTURE;
        }
        Self { pattern: pattern.clone(), next, turn, left, rng: (!certain).then(|| Box::new(rng)) }
    }

    /// Returns when the next dialogue begins; `None` if none will, or in a closed loop while one runs.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        (self.next < self.pattern.end).then_some(self.next)
    }

    /// Takes the arrival due at `now`; false if none is due or the budget is spent.
    pub(super) fn take_due_arrival(&mut self, now: Instant) -> bool {
        let Some(at) = self.next_arrival().filter(|at| *at <= now) else { return false };
        if let Some(budget) = &self.pattern.budget {
            let left = budget.get();
            if left == 0 {
                self.next = Instant::FAR_FUTURE;
                return false;
            }
            budget.set(left - 1);
        }
        self.next = self.next_arrival_after(at).unwrap_or(Instant::FAR_FUTURE);
        true
    }

    /// Drops arrivals before `now`, as on a host that was off; a closed loop continues.
    pub(super) fn skip_missed_arrivals(&mut self, now: Instant) {
        while let Some(at) = self.next_arrival().filter(|at| *at < now) {
            if let ArrivalDistribution::Closed { .. } = self.pattern.law {
                return;
            }
            self.next = self.next_arrival_after(at).unwrap_or(Instant::FAR_FUTURE);
        }
    }

    /// Returns the arrival after that of `at`.
    fn next_arrival_after(&mut self, at: Instant) -> Option<Instant> {
        match &self.pattern.law {
            ArrivalDistribution::Poisson { mean } => Some(at + self.rng.as_mut()?.sample_exponential(*mean)),
            ArrivalDistribution::Constant { interval, jitter, .. } => {
                if self.left != u64::MAX {
                    self.left -= 1;
                }
                self.turn += *interval;
                (self.left != 0).then(|| self.turn + draw_arrival_jitter(*jitter, self.rng.as_deref_mut()))
            }
            ArrivalDistribution::Closed { .. } => None,
        }
    }

    /// Ends the dialogue of a closed loop.
    pub(super) fn finish_dialogue(&mut self, now: Instant) {
        if let (ArrivalDistribution::Closed { pause }, Some(rng)) = (&self.pattern.law, &mut self.rng) {
            self.next = now + pause.draw_time(rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;
    use usher_scenario::units::{Percentage, TimeSpan};

    #[test]
    fn jitter_moves_what_begins_and_not_its_turn() {
        let constant = |jitter| ArrivalSettings::Constant {
            interval: TimeSpan::from_secs(10),
            start: TimeSpan::from_secs(3),
            stagger: TimeSpan::from_secs(1),
            jitter: Percentage::from_percent(jitter),
            count: Some(50),
        };
        let begin = |jitter| {
            let rng = Seed::new(1).derive_rng("arrivals", 2);
            let end = Instant::ZERO + Duration::from_secs(10_000);
            let pattern = ArrivalPattern::new(&constant(jitter), 4, end);
            let mut process = ArrivalProcess::new(&pattern, 2, rng);
            let mut times = Vec::new();
            while let Some(at) = process.next_arrival() {
                assert!(process.take_due_arrival(at));
                times.push(at.duration_since(Instant::ZERO).as_secs_f64());
            }
            times
        };
        let turns: Vec<f64> = (0..50).map(|i| f64::from(5 + 10 * i)).collect();
        assert_eq!(begin(0), turns);
        let late: Vec<f64> = begin(40).iter().zip(&turns).map(|(at, turn)| at - turn).collect();
        assert!(late.iter().all(|late| (0.0..=4.0).contains(late)), "{late:?}");
        let mean = late.iter().sum::<f64>() / 50.0;
        // Uniform up to 4 s: 2 s on average, with a standard error of 0.16 s.
        assert!((mean - 2.0).abs() < 0.65, "{mean}");
    }
}
