//! When a client's dialogues begin.

use std::cell::Cell;
use std::rc::Rc;
use usher_core::{Duration, Instant, Rng};
use usher_scenario::model::{Arrivals, Load};

/// How many dialogues may still begin, counted over all clients of a run.
pub(super) type Budget = Rc<Cell<u64>>;

/// One client's arrivals.
#[derive(Debug)]
pub(super) struct ArrivalProcess {
    law: Law,
    rng: Rng,
    next: Option<Instant>,
    budget: Option<Budget>,
    /// Nothing begins from this time on.
    end: Instant,
}

#[derive(Debug)]
enum Law {
    Poisson {
        mean: Duration,
    },
    Constant {
        interval: Duration,
        left: Option<u64>,
        /// How much later than its turn one may begin.
        jitter: Duration,
        /// The turn of the next one.
        turn: Instant,
    },
    Closed {
        pause: usher_scenario::model::TimeLaw,
    },
}

/// How much later than its turn one begins, up to `jitter`.
fn late(jitter: Duration, rng: &mut Rng) -> Duration {
    if jitter.is_zero() { Duration::ZERO } else { rng.between(Duration::ZERO, jitter) }
}

/// The budget that a study's limit sets, shared by the run's clients.
pub(super) fn budget(arrivals: &Arrivals) -> Option<Budget> {
    match arrivals {
        Arrivals::Poisson { limit, .. } | Arrivals::Closed { limit, .. } => {
            limit.map(|n| Rc::new(Cell::new(n)))
        }
        Arrivals::Constant { .. } => None,
    }
}

impl ArrivalProcess {
    /// The arrivals of client `index` of `clients`. A Poisson stream whose arrivals go to clients drawn
    /// uniformly is, by its splitting property, an independent stream of each client at its share of the
    /// rate.
    pub(super) fn new(
        arrivals: &Arrivals,
        index: u64,
        clients: u64,
        end: Instant,
        budget: Option<Budget>,
        mut rng: Rng,
    ) -> Self {
        let (law, next) = match arrivals {
            Arrivals::Poisson { rate, per, start, .. } => {
                let mean = match per {
                    Load::All => rate.mean_interval().mul_f64(clients as f64),
                    Load::Client => rate.mean_interval(),
                };
                let first = Instant::ZERO + start.get() + rng.exponential(mean);
                (Law::Poisson { mean }, first)
            }
            Arrivals::Constant { interval, start, stagger, jitter, count } => {
                let (interval, turn) = (interval.get(), Instant::ZERO + start.get() + stagger.get() * index);
                let jitter = interval.mul_f64(jitter.get());
                let first = turn + late(jitter, &mut rng);
                (Law::Constant { interval, left: *count, jitter, turn }, first)
            }
            Arrivals::Closed { pause, start, .. } => {
                let first = Instant::ZERO + start.get() + pause.draw(&mut rng);
                (Law::Closed { pause: pause.clone() }, first)
            }
        };
        let mut process = Self { law, rng, next: Some(next), budget, end };
        if matches!(process.law, Law::Constant { left: Some(0), .. }) {
            process.next = None;
        }
        process
    }

    /// When the next dialogue begins; `None` when none will, or (closed loop) before the last has ended.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|at| *at < self.end)
    }

    /// Takes the arrival that is due at `now`; false when there is none, or the budget is spent.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let Some(at) = self.next().filter(|at| *at <= now) else { return false };
        if let Some(budget) = &self.budget {
            let left = budget.get();
            if left == 0 {
                self.next = None;
                return false;
            }
            budget.set(left - 1);
        }
        self.next = self.after(at);
        true
    }

    /// Drops what fell due before `now`, as on a host that was off; a closed loop goes on then.
    pub(super) fn skip(&mut self, now: Instant) {
        while let Some(at) = self.next().filter(|at| *at < now) {
            if let Law::Closed { .. } = self.law {
                return;
            }
            self.next = self.after(at);
        }
    }

    /// When the next one falls due after that of `at`.
    fn after(&mut self, at: Instant) -> Option<Instant> {
        match &mut self.law {
            Law::Poisson { mean } => Some(at + self.rng.exponential(*mean)),
            Law::Constant { interval, left, jitter, turn } => {
                if let Some(left) = left {
                    *left -= 1;
                }
                *turn += *interval;
                (*left != Some(0)).then(|| *turn + late(*jitter, &mut self.rng))
            }
            Law::Closed { .. } => None,
        }
    }

    /// Tells a closed loop that its dialogue has ended.
    pub(super) fn ended(&mut self, now: Instant) {
        if let Law::Closed { pause } = &self.law {
            self.next = Some(now + pause.draw(&mut self.rng));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Seed;
    use usher_scenario::units::{Share, Time};

    #[test]
    fn jitter_moves_what_begins_and_not_its_turn() {
        let constant = |jitter| Arrivals::Constant {
            interval: Time::secs(10),
            start: Time::secs(3),
            stagger: Time::secs(1),
            jitter: Share::percent(jitter),
            count: Some(50),
        };
        let begin = |jitter| {
            let rng = Seed::new(1).stream("arrivals", 2);
            let end = Instant::ZERO + Duration::from_secs(10_000);
            let mut process = ArrivalProcess::new(&constant(jitter), 2, 4, end, None, rng);
            let mut times = Vec::new();
            while let Some(at) = process.next() {
                assert!(process.take(at));
                times.push(at.since(Instant::ZERO).as_secs_f64());
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
