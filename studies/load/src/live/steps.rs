//! A ramp on live drivers: its steps, and the server's recovery after a step that it did not sustain.

use super::{
    LoadObserver, LoadOutcome, LoadRampPlan, LoadRunController, LoadRunPlan, RunError, ServerResourceUsage,
    UNLIMITED_WARM_UP, read_cpu_times, to_std_duration,
};
use crate::cpu::peak_memory;
use crate::generator::GeneratorCommand;
use crate::limit::GeneratorLimitCause;
use crate::pace::{LoginArrivals, LoginPace};
use crate::ramp::{RampSearch, RampStep, RampStepRunner, climb_ramp};
use crate::tally::{LoginStats, quantile};
use std::time::{Duration as StdDuration, Instant as StdInstant};
use usher_core::Duration;

/// Logins per second during a pause.
const PAUSE: f64 = 1e-6;
/// Time limit for a server's recovery after a failed step.
const RECOVERY: StdDuration = StdDuration::from_secs(60);
/// Interval of recovery checks.
const LOOK: StdDuration = StdDuration::from_millis(250);

/// The live stage of a ramp.
struct LiveRampRunner<'a, 'b> {
    conductor: &'b mut LoadRunController<'a>,
    ramp: LoadRampPlan,
    /// Successes of all steps.
    completed: u64,
    /// Median latency in seconds with one login at a time.
    unloaded_median: Option<f64>,
}

impl RampStepRunner for LiveRampRunner<'_, '_> {
    type Error = RunError;

    fn run_step(&mut self, rate: f64) -> Result<RampStep, RunError> {
        let (c, ramp) = (&mut *self.conductor, self.ramp);
        c.rate = Some(rate);
        let pace = LoginPace::Open { rate, arrivals: ramp.arrivals };
        let threads = c.plan.threads;
        c.send_commands(|i| GeneratorCommand::Pace(pace.pace_per_thread(i, threads)));
        let settled = c.wait_for(Some(to_std_duration(ramp.settle)))?;
        c.report_interval()?;
        c.total = LoginStats::default();
        c.save_window_start_readings();
        let mut whole = false;
        if settled {
            c.send_commands(|_| GeneratorCommand::Measure);
            c.last = StdInstant::now();
            whole = c.wait_for(Some(to_std_duration(ramp.measurement_time)))?;
        }
        c.send_commands(|_| GeneratorCommand::Close(Duration::from_secs_f64(ramp.search.p99)));
        let all = c.combine_thread_stats()?;
        c.part.0.add(&all.tally);
        c.record_timeline_interval(all.outstanding, !settled);
        let tally = std::mem::take(&mut c.total);
        self.completed += tally.completed;
        let limit = GeneratorLimitCause::judge_window(&tally, c.busy_fraction(&c.readings));
        let mut step = RampStep::new(rate, all.measured.as_secs_f64(), tally, limit);
        step.interrupted = !whole;
        Ok(step)
    }

    fn on_step_judged(&mut self, step: &RampStep) -> Result<(), RunError> {
        let c = &mut *self.conductor;
        c.watch.on_step(step);
        if !step.is_sustained && !step.interrupted {
            // The backlog of a failed step must not affect the next one, so logins pause.
            c.send_commands(|_| GeneratorCommand::Abandon);
            c.send_commands(|_| {
                GeneratorCommand::Pace(LoginPace::Open { rate: PAUSE, arrivals: LoginArrivals::Regular })
            });
            if c.wait_for(Some(to_std_duration(self.ramp.settle)))? {
                self.wait_for_server_recovery()?;
            }
        }
        Ok(())
    }
}

impl LiveRampRunner<'_, '_> {
    /// Waits until a single login takes about as long as before the first step, at most [`RECOVERY`]. A step far beyond
    /// capacity leaves more work than a pause can absorb, such as lookups in a store. It would distort the next step.
    fn wait_for_server_recovery(&mut self) -> Result<(), RunError> {
        let Some(before) = self.unloaded_median else { return Ok(()) };
        let end = StdInstant::now() + RECOVERY;
        while !self.conductor.interrupted && StdInstant::now() < end {
            if self
                .measure_unloaded_latency()?
                .is_some_and(|now| now <= self.ramp.search.p99.max(2.0 * before))
            {
                break;
            }
        }
        Ok(())
    }

    /// Logs users in one after the other outside of any step, and returns the median latency; `None` without successes.
    fn measure_unloaded_latency(&mut self) -> Result<Option<f64>, RunError> {
        let c = &mut *self.conductor;
        c.total = LoginStats::default();
        c.send_commands(|_| GeneratorCommand::Pace(LoginPace::Closed { concurrency: 1 }));
        c.send_commands(|_| GeneratorCommand::Measure);
        c.wait_for(Some(LOOK))?;
        c.send_commands(|_| GeneratorCommand::Close(Duration::from_nanos(LOOK.as_nanos() as u64)));
        let all = c.combine_thread_stats()?;
        c.part.0.add(&all.tally);
        c.record_timeline_interval(all.outstanding, true);
        c.send_commands(|_| {
            GeneratorCommand::Pace(LoginPace::Open { rate: PAUSE, arrivals: LoginArrivals::Regular })
        });
        c.send_commands(|_| GeneratorCommand::Abandon);
        Ok(quantile(&std::mem::take(&mut c.total).latency, 0.5))
    }
}

pub(super) fn run_ramp(
    plan: &LoadRunPlan,
    ramp: LoadRampPlan,
    watch: &mut dyn LoadObserver,
) -> Result<LoadOutcome, RunError> {
    let mut search = RampSearch::new(ramp.search);
    let mut plan = plan.clone();
    // Pause until the first step, because earlier logins would disturb the latency of a single login.
    plan.load.pace = LoginPace::Open { rate: PAUSE, arrivals: LoginArrivals::Regular };
    plan.load.count = None;
    let before = read_cpu_times(&plan)?;
    let mut conductor = LoadRunController::start_threads(&plan, watch, UNLIMITED_WARM_UP)?;
    let mut completed = 0;
    if conductor.wait_until_server_reachable(StdDuration::from_secs(10))? {
        let mut steps =
            LiveRampRunner { conductor: &mut conductor, ramp, completed: 0, unloaded_median: None };
        steps.unloaded_median = steps.measure_unloaded_latency()?;
        climb_ramp(&mut search, &mut steps)?;
        completed = steps.completed;
    }
    let after = read_cpu_times(&plan)?;
    conductor.send_commands(|_| GeneratorCommand::Abandon);
    let mut outcome = conductor.finish_run()?;
    outcome.server = after.0.zip(before.0).map(|(after, before)| ServerResourceUsage {
        cpu: after.delta_since(&before),
        completed,
        peak_memory: plan.server_pid.and_then(peak_memory),
    });
    outcome.own_cpu_s = after.1.delta_since(&before.1).total_seconds();
    outcome.busy = None;
    let headline = match search.find_ramp_knee() {
        Some(knee) => (knee.tally, knee.measured_s, knee.bound),
        None => search.sum_steps_at_lowest_rate(),
    };
    (outcome.tally, outcome.measured_s, outcome.limit) = headline;
    outcome.ramp = Some(search);
    Ok(outcome)
}
