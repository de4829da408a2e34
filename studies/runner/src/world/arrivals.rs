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
    Poisson { mean: Duration },
    Constant { interval: Duration, left: Option<u64> },
    Closed { pause: usher_scenario::model::TimeLaw },
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
            Arrivals::Constant { interval, start, stagger, count } => {
                let first = Instant::ZERO + start.get() + stagger.get() * index;
                (Law::Constant { interval: interval.get(), left: *count }, first)
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
            Law::Constant { interval, left } => {
                if let Some(left) = left {
                    *left -= 1;
                }
                (*left != Some(0)).then_some(at + *interval)
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
