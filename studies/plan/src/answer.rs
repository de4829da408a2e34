//! The answer of a plan: the capacity of one server, the number of servers, and the limiting resource.

use crate::bounds::{LoginMix, ResourceBound, ServerResource, resource_bounds};
use crate::deployment::ServerDeployment;
use crate::world::{LoadStepDuration, LoadStepResult, run_load_step};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use usher_core::{Duration, Seed};
use usher_load::quantile;
use usher_observe::MeanEstimate;
use usher_profile::ServerProfile;

/// The confidence level of all intervals.
const LEVEL: f64 = 0.95;
/// Settling and measuring times of a step, as in `usher load --ramp`.
const SETTLE_S: f64 = 1.0;
const HOLD_S: f64 = 3.0;
/// The share of logins that must succeed, as in `usher load --ramp`.
const SUCCESS: f64 = 0.999;
/// A step of a search has this many times the logins of a point, so that chance bursts of a few logins do not decide
/// it.
const SEARCH: f64 = 4.0;
/// A search ends when the failing rate is at most this share above the one that met the target.
const PRECISION: f64 = 0.03;
/// The simulated loads, as shares of the scarcest resource's capacity.
const SHARES: [f64; 9] = [0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05];
/// The engineering levels: loads as shares of the scarcest resource.
const LEVELS: [f64; 2] = [0.4, 0.8];

/// The target of a plan, and the effort of its simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanSettings {
    /// Logins per second at the peak.
    pub demand: f64,
    /// The share of logins ...
    pub share: f64,
    /// ... that must end within this time, in seconds.
    pub time_limit: f64,
    /// Number of replications, each with its own random streams.
    pub replications: u32,
    /// Approximate number of logins in one step.
    pub logins: u32,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Number of steps simulated at once.
    pub jobs: usize,
}

/// Mean and interval over the replications.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IntervalEstimate {
    /// The mean.
    pub mean: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl IntervalEstimate {
    fn from_values(values: &[f64]) -> Self {
        let estimate = MeanEstimate::from_values(values, LEVEL);
        Self { mean: estimate.mean, low: estimate.low(), high: estimate.high() }
    }
}

/// The simulation at one load.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulatedPoint {
    /// Logins per second of one server.
    pub rate: f64,
    /// The share of time in which its cores were busy.
    pub busy: IntervalEstimate,
    /// The delay of logins in seconds: mean, median, 90th and 99th percentile. `None` without accepted logins.
    pub delay: Option<[IntervalEstimate; 4]>,
    /// The share of logins that succeeded within the target's time.
    pub in_time: IntervalEstimate,
    /// Mean delay in closed form, in seconds; infinite beyond capacity.
    pub closed: f64,
}

/// A server at a share of its scarcest resource's capacity.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadLevel {
    /// The share.
    pub share: f64,
    /// Logins per second of one server.
    pub rate: f64,
    /// The number of servers at this load.
    pub servers: u64,
    /// The simulation at this load.
    pub point: SimulatedPoint,
}

/// The answer of a plan.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanAnswer {
    /// The capacity of one server that meets the target, in logins per second. It is simulated, and never above the
    /// bound of the scarcest resource. `None` if no load meets the target.
    pub capacity: Option<IntervalEstimate>,
    /// The resource that limits the capacity at any delay; `None` if the target limits it.
    pub limit: Option<ServerResource>,
    /// The number of servers for the demand.
    pub servers: Option<u64>,
    /// The simulation with this number of servers.
    pub planned: Option<SimulatedPoint>,
    /// The resources with their limiting rates, the scarcest first.
    pub bounds: Vec<ResourceBound>,
    /// The engineering levels.
    pub levels: Vec<LoadLevel>,
    /// The simulated points, by load.
    pub points: Vec<SimulatedPoint>,
    /// The averages of a login.
    pub mix: LoginMix,
}

/// The reason why there is no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The server cannot be simulated.
    #[error("{0}")]
    World(String),
    /// No login succeeds even at the smallest load.
    #[error("no login succeeds, even at the lowest load: {0}")]
    NoLoginAccepted(String),
    /// Too few logins succeed even at the smallest load.
    #[error(
        "only {share:.2} % of the logins succeed even at the lowest load, and {wanted} % must: {failures}.{hint}"
    )]
    Failing {
        /// The per cent that succeed.
        share: f64,
        /// The required per cent.
        wanted: f64,
        /// The failures, each with its count.
        failures: String,
        /// A hint.
        hint: &'static str,
    },
    /// The user interrupted it.
    #[error("interrupted before there was an answer")]
    Interrupted,
}

/// Receives the progress of a plan, from several threads.
pub trait PlanObserver: Sync {
    /// About `steps` of `of` steps are done.
    fn on_progress(&self, _steps: usize, _of: usize) {}
    /// True to end the plan now.
    fn is_interrupted(&self) -> bool {
        false
    }
}

impl PlanObserver for () {}

struct CapacityPlanner<'a> {
    deployment: &'a ServerDeployment,
    settings: &'a PlanSettings,
    mix: LoginMix,
    watch: &'a dyn PlanObserver,
    done: AtomicUsize,
    steps: usize,
}

/// Simulates a deployment and returns the answer.
///
/// # Errors
/// The reason why there is no answer.
pub fn plan_deployment(
    deployment: &ServerDeployment,
    profile: &ServerProfile,
    settings: &PlanSettings,
    watch: &dyn PlanObserver,
) -> Result<PlanAnswer, PlanError> {
    let mix = LoginMix::from_profile(deployment, profile);
    let searches = settings.replications as usize;
    // A search takes about eight steps. The load levels and the planned load are points too.
    let steps = searches * (8 + SHARES.len() + 1) + 1;
    let planner = CapacityPlanner { deployment, settings, mix, watch, done: AtomicUsize::new(0), steps };
    planner.build_plan_answer()
}

impl CapacityPlanner<'_> {
    fn build_plan_answer(&self) -> Result<PlanAnswer, PlanError> {
        // Measure the delay of a single login at a load so low that it waits for neither cores nor the store.
        let scarcest =
            resource_bounds(self.deployment, &self.mix, 0.0).first().map_or(1.0, |bound| bound.rate);
        let alone = self.run_step(scarcest * 0.05, 1.0, "alone", 0)?;
        let failures: Vec<String> =
            alone.tally.failures().map(|(failure, n)| format!("{} {n}", failure.name())).collect();
        let failures = failures.join(", ");
        let delay = quantile(&alone.tally.latency, 0.5);
        let delay = delay.ok_or_else(|| PlanError::NoLoginAccepted(failures.clone()))?;
        if alone.tally.success_ratio() < SUCCESS {
            let hint = match self.deployment.loss > 0.0 {
                true => {
                    " The network loses packets, and retransmissions do not suffice: plan with less loss, or with \
                     access servers that retransmit more often or use TCP."
                }
                false => "",
            };
            let share = alone.tally.success_ratio() * 100.0;
            return Err(PlanError::Failing { share, wanted: SUCCESS * 100.0, failures, hint });
        }
        let bounds = resource_bounds(self.deployment, &self.mix, delay);
        // The list is never empty, because the processor always gives a bound.
        let most = bounds.first().map_or(1.0, |bound| bound.rate);
        let base = quantile(&alone.tally.latency, self.settings.share).unwrap_or(delay);
        let capacity =
            if base > self.settings.time_limit { None } else { self.find_rate_meeting_target(most, base)? };
        let all_of_it = capacity.is_some_and(|capacity| capacity.mean > most / (1.0 + PRECISION));
        let limit = bounds.first().filter(|_| all_of_it).map(|bound| bound.resource);
        let points = SHARES
            .iter()
            .map(|share| self.simulate_login_rate(share * most))
            .collect::<Result<Vec<_>, _>>()?;
        let servers = capacity.map(|capacity| (self.settings.demand / capacity.mean).ceil().max(1.0) as u64);
        let planned = servers
            .map(|servers| self.simulate_login_rate(self.settings.demand / servers as f64))
            .transpose()?;
        let levels = LEVELS
            .iter()
            .filter_map(|level| {
                let rate = level * most;
                let point = points.iter().find(|point| (point.rate / rate - 1.0).abs() < 1e-9)?;
                let servers = (self.settings.demand / rate).ceil().max(1.0) as u64;
                Some(LoadLevel { share: *level, rate, servers, point: point.clone() })
            })
            .collect();
        Ok(PlanAnswer { capacity, limit, servers, planned, bounds, levels, points, mix: self.mix })
    }

    /// Finds the highest rate that meets the target; each replication searches by itself.
    fn find_rate_meeting_target(&self, most: f64, base: f64) -> Result<Option<IntervalEstimate>, PlanError> {
        let found = self.for_each_replication(self.settings.replications, |replication| {
            self.search_replication_rate(most, base, replication)
        })?;
        let found: Option<Vec<f64>> = found.into_iter().collect();
        Ok(found.filter(|found| !found.is_empty()).map(|found| IntervalEstimate::from_values(&found)))
    }

    fn search_replication_rate(
        &self,
        most: f64,
        base: f64,
        replication: u32,
    ) -> Result<Option<f64>, PlanError> {
        let meets = |rate: f64| self.meets_delay_target(rate, base, replication);
        // Above `most` a queue grows without end, which a short step with a lax target does not detect.
        let (mut low, mut high) = (most * 0.85, most);
        let mut doubled = 0;
        while !meets(low)? {
            (low, high) = (low / 2.0, low);
            doubled += 1;
            // If even a hundredth of the load that the resources allow fails, load is not the cause.
            if doubled > 7 {
                return Ok(None);
            }
        }
        if doubled == 0 && meets(most)? {
            return Ok(Some(most));
        }
        while high / low > 1.0 + PRECISION {
            let middle = (low * high).sqrt();
            if meets(middle)? { low = middle } else { high = middle }
        }
        Ok(Some((low * high).sqrt()))
    }

    /// True if a rate meets the target over a step as long as in `usher load --ramp`. If that has too many logins to
    /// simulate, the step and the target's time for waiting shrink by the same factor. The backlog of an overload grows
    /// with the length of a step. Random backlog shrinks less, so a step needs enough logins to make it small.
    fn meets_delay_target(&self, rate: f64, base: f64, replication: u32) -> Result<bool, PlanError> {
        let shorter = (rate * HOLD_S / (SEARCH * f64::from(self.settings.logins))).max(1.0);
        let step = self.run_step(rate, shorter, "search", replication)?;
        let limit = base + (self.settings.time_limit - base) / shorter;
        let in_time = quantile(&step.tally.latency, self.settings.share).is_some_and(|q| q <= limit);
        Ok(in_time && step.tally.success_ratio() >= SUCCESS)
    }

    /// Runs one step at a rate, `shorter` times as short as a ramp's.
    fn run_step(
        &self,
        rate: f64,
        shorter: f64,
        purpose: &str,
        replication: u32,
    ) -> Result<LoadStepResult, PlanError> {
        if self.watch.is_interrupted() {
            return Err(PlanError::Interrupted);
        }
        let hold = HOLD_S / shorter;
        // At a low rate, lengthen the window so that it has enough logins.
        let hold = hold.max(20.0 / rate);
        let length = LoadStepDuration {
            warmup: Duration::from_secs_f64(SETTLE_S * hold / HOLD_S),
            measurement_time: Duration::from_secs_f64(hold),
        };
        let seed = Seed::new(self.settings.seed).derive_seed(purpose, u64::from(replication));
        let seed = seed.derive_seed("rate", rate.to_bits());
        let result = run_load_step(self.deployment, rate, length, seed).map_err(PlanError::World);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.watch.on_progress(done.min(self.steps), self.steps);
        result
    }

    /// Simulates a rate.
    fn simulate_login_rate(&self, rate: f64) -> Result<SimulatedPoint, PlanError> {
        let shorter = (rate * HOLD_S / f64::from(self.settings.logins)).max(0.05);
        let steps = self
            .for_each_replication(self.settings.replications, |r| self.run_step(rate, shorter, "point", r))?;
        let of = |q: Option<f64>| -> Option<Vec<f64>> {
            let value = |step: &LoadStepResult| match q {
                Some(q) => quantile(&step.tally.latency, q),
                None => (!step.tally.latency.is_empty()).then(|| step.tally.latency.mean() * 1e-9),
            };
            steps.iter().map(value).collect()
        };
        let spreads = [None, Some(0.5), Some(0.9), Some(0.99)]
            .map(|q| of(q).map(|values| IntervalEstimate::from_values(&values)));
        let delay = match spreads {
            [Some(mean), Some(p50), Some(p90), Some(p99)] => Some([mean, p50, p90, p99]),
            _ => None,
        };
        let within = (self.settings.time_limit * 1e9) as u64;
        let in_time = |step: &LoadStepResult| {
            let begun = (step.tally.ended_total() + step.tally.cut_off).max(1);
            step.tally.latency.count_between(0, within) as f64 / begun as f64
        };
        let (cores, threads) = (self.deployment.cpu.cores.get(), u32::from(self.deployment.store_threads()));
        let round_trip = self.deployment.round_trip.get().as_secs_f64();
        Ok(SimulatedPoint {
            rate,
            busy: IntervalEstimate::from_values(&steps.iter().map(|s| s.busy).collect::<Vec<_>>()),
            delay,
            in_time: IntervalEstimate::from_values(&steps.iter().map(in_time).collect::<Vec<_>>()),
            closed: self.mix.mean_delay(rate, cores, threads, round_trip),
        })
    }

    /// Runs a function for each replication, several at once; results are in the order of replications.
    fn for_each_replication<T: Send>(
        &self,
        replications: u32,
        one: impl Fn(u32) -> Result<T, PlanError> + Sync,
    ) -> Result<Vec<T>, PlanError> {
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let results: Mutex<Vec<(u32, Result<T, PlanError>)>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.settings.jobs.clamp(1, replications.max(1) as usize) {
                scope.spawn(|| {
                    while !failed.load(Ordering::Relaxed) {
                        let Ok(replication) = u32::try_from(next.fetch_add(1, Ordering::Relaxed)) else {
                            return;
                        };
                        if replication >= replications {
                            return;
                        }
                        let result = one(replication);
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        results
                            .lock()
                            .unwrap_or_else(std::sync::PoisonError::into_inner)
                            .push((replication, result));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.sort_by_key(|(replication, _)| *replication);
        results.into_iter().map(|(_, result)| result).collect()
    }
}
