//! A ramp on live drivers: its steps, and the rest that a server is given after one that it did not keep up with.

use super::{Conductor, Outcome, Plan, RampPlan, RunError, ServerUse, UNTIL_TOLD, Watch, cpu, seconds};
use crate::cpu::peak_memory;
use crate::generator::Command;
use crate::limit::Limit;
use crate::pace::{Arrivals, Pace};
use crate::ramp::{Ramp, Stage, Step, climb};
use crate::tally::{Tally, quantile};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use usher_core::Duration;

/// Logins a second while there are to be none.
const PAUSE: f64 = 1e-6;
/// How long a server may take to do what a step that failed has left it.
const RECOVERY: StdDuration = StdDuration::from_secs(60);
/// How long it is looked at a time whether it has.
const LOOK: StdDuration = StdDuration::from_millis(250);

/// The live stage of a ramp.
struct Steps<'a, 'b> {
    conductor: &'b mut Conductor<'a>,
    ramp: RampPlan,
    /// Successes of all steps.
    completed: u64,
    /// How long half of the logins took at most when there was one at a time, seconds.
    alone: Option<f64>,
}

impl Stage for Steps<'_, '_> {
    type Error = RunError;

    fn step(&mut self, rate: f64) -> Result<Step, RunError> {
        let (c, ramp) = (&mut *self.conductor, self.ramp);
        c.rate = Some(rate);
        let pace = Pace::Open { rate, arrivals: ramp.arrivals };
        let threads = c.plan.threads;
        c.tell(|i| Command::Pace(pace.share(i, threads)));
        let settled = c.pass(Some(seconds(ramp.settle)))?;
        c.interval()?;
        c.total = Tally::default();
        c.mark();
        let mut whole = false;
        if settled {
            c.tell(|_| Command::Measure);
            c.last = StdInstant::now();
            whole = c.pass(Some(seconds(ramp.hold)))?;
        }
        c.tell(|_| Command::Close(Duration::from_secs_f64(ramp.search.p99)));
        let all = c.gather()?;
        c.part.0.add(&all.tally);
        c.keep(all.outstanding, !settled);
        let tally = std::mem::take(&mut c.total);
        self.completed += tally.completed;
        let limit = Limit::judge(&tally, c.busy(&c.readings));
        let mut step = Step::new(rate, all.measured.as_secs_f64(), tally, limit);
        step.interrupted = !whole;
        Ok(step)
    }

    fn judged(&mut self, step: &Step) -> Result<(), RunError> {
        let c = &mut *self.conductor;
        c.watch.step(step);
        if !step.kept_up && !step.interrupted {
            // What was too much for the server is not to burden the next step: nobody logs in for a while.
            c.tell(|_| Command::Abandon);
            c.tell(|_| Command::Pace(Pace::Open { rate: PAUSE, arrivals: Arrivals::Regular }));
            if c.pass(Some(seconds(self.ramp.settle)))? {
                self.recover()?;
            }
        }
        Ok(())
    }
}

impl Steps<'_, '_> {
    /// Waits until a login by itself takes about as long again as before the first step, or for [`RECOVERY`]. A step far beyond what a
    /// server can do leaves it more work than a pause is long, such as look-ups in a store: the next one would be judged by that.
    fn recover(&mut self) -> Result<(), RunError> {
        let Some(before) = self.alone else { return Ok(()) };
        let end = StdInstant::now() + RECOVERY;
        while !self.conductor.interrupted && StdInstant::now() < end {
            if self.look()?.is_some_and(|now| now <= self.ramp.search.p99.max(2.0 * before)) {
                break;
            }
        }
        Ok(())
    }

    /// Has one user after the other log in for a while, outside of any step: how long half of them took at most; none where nobody
    /// was let in.
    fn look(&mut self) -> Result<Option<f64>, RunError> {
        let c = &mut *self.conductor;
        c.total = Tally::default();
        c.tell(|_| Command::Pace(Pace::Closed { concurrency: 1 }));
        c.tell(|_| Command::Measure);
        c.pass(Some(LOOK))?;
        c.tell(|_| Command::Close(Duration::from_nanos(LOOK.as_nanos() as u64)));
        let all = c.gather()?;
        c.part.0.add(&all.tally);
        c.keep(all.outstanding, true);
        c.tell(|_| Command::Pace(Pace::Open { rate: PAUSE, arrivals: Arrivals::Regular }));
        c.tell(|_| Command::Abandon);
        Ok(quantile(&std::mem::take(&mut c.total).latency, 0.5))
    }
}

pub(super) fn run_ramp(plan: &Plan, ramp: RampPlan, watch: &mut dyn Watch) -> Result<Outcome, RunError> {
    let mut search = Ramp::new(ramp.search);
    let mut plan = plan.clone();
    // What logs in before the first step would be in the way of how long a login takes by itself.
    plan.load.pace = Pace::Open { rate: PAUSE, arrivals: Arrivals::Regular };
    plan.load.count = None;
    let before = cpu(&plan)?;
    let mut conductor = Conductor::start(&plan, watch, UNTIL_TOLD)?;
    let mut completed = 0;
    if conductor.reached(StdDuration::from_secs(10))? {
        let mut steps = Steps { conductor: &mut conductor, ramp, completed: 0, alone: None };
        steps.alone = steps.look()?;
        climb(&mut search, &mut steps)?;
        completed = steps.completed;
    }
    let after = cpu(&plan)?;
    conductor.tell(|_| Command::Abandon);
    let mut outcome = conductor.end()?;
    outcome.server = after.0.zip(before.0).map(|(after, before)| ServerUse {
        cpu: after.since(&before),
        completed,
        peak_memory: plan.server_pid.and_then(peak_memory),
    });
    outcome.own_cpu_s = after.1.since(&before.1).total();
    outcome.busy = None;
    let headline = match search.knee() {
        Some(knee) => (knee.tally, knee.measured_s, knee.bound),
        None => search.lowest(),
    };
    (outcome.tally, outcome.measured_s, outcome.limit) = headline;
    outcome.ramp = Some(search);
    Ok(outcome)
}
