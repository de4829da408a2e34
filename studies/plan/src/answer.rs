//! The answer: what one server takes, how many are needed, and what ends first.

use crate::bounds::{LoginMix, ResourceBound, ServerResource, resource_bounds};
use crate::deployment::ServerDeployment;
use crate::world::{StepLength, StepResult, run_load_step};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use usher_core::{Duration, Seed};
use usher_load::quantile;
use usher_observe::MeanEstimate;
use usher_profile::ServerProfile;

/// The level of all intervals.
const LEVEL: f64 = 0.95;
/// What `usher load --ramp` does: how long a rate runs before it is measured, and how long it is.
const SETTLE_S: f64 = 1.0;
const HOLD_S: f64 = 3.0;
/// The share of logins that must end as they have to, as `usher load --ramp` wants it.
const SUCCESS: f64 = 0.999;
/// A step of a search has so many times the logins of a point, since few logins that come together by chance are not to decide it.
const SEARCH: f64 = 4.0;
/// A search ends when the rate that failed is at most this share above the one that met the target.
const PRECISION: f64 = 0.03;
/// Loads that are simulated, as shares of what the scarcest resource takes.
const SHARES: [f64; 9] = [0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05];
/// The engineering levels: shares of the scarcest resource that a server is loaded to.
const LEVELS: [f64; 2] = [0.4, 0.8];

/// What is wanted, and how exactly it is looked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PlanSettings {
    /// Logins a second at the peak.
    pub demand: f64,
    /// This share of them ...
    pub share: f64,
    /// ... is to end within this time, seconds.
    pub time_limit: f64,
    /// How often everything is simulated, with other chance.
    pub replications: u32,
    /// Logins in one step, about.
    pub logins: u32,
    /// From which all chance comes.
    pub seed: u64,
    /// Steps that are simulated at once.
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

/// What was simulated at one load.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulatedPoint {
    /// Logins a second of one server.
    pub rate: f64,
    /// Share of the time that its cores were busy.
    pub busy: IntervalEstimate,
    /// The delay of logins, seconds: mean, median, 90th and 99th percentile. None where none was let in.
    pub delay: Option<[IntervalEstimate; 4]>,
    /// Share of the logins that ended as they had to within the target's time.
    pub in_time: IntervalEstimate,
    /// Mean delay in closed form, seconds; infinite beyond what the server takes.
    pub closed: f64,
}

/// A server loaded to a share of its scarcest resource.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadLevel {
    /// The share.
    pub share: f64,
    /// Logins a second of one server.
    pub rate: f64,
    /// How many servers that takes.
    pub servers: u64,
    /// What logins are like then.
    pub point: SimulatedPoint,
}

/// The answer.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanAnswer {
    /// What one server takes and meets the target, logins a second, simulated, and never more than its scarcest resource has; none where no
    /// load meets it.
    pub capacity: Option<IntervalEstimate>,
    /// The resource that sets it, whatever time logins may take; none: the target does.
    pub limit: Option<ServerResource>,
    /// How many servers the demand takes.
    pub servers: Option<u64>,
    /// What logins are like with so many.
    pub planned: Option<SimulatedPoint>,
    /// Each resource with the rate at which it is used up, the scarcest first.
    pub bounds: Vec<ResourceBound>,
    /// The engineering levels.
    pub levels: Vec<LoadLevel>,
    /// What was simulated, by load.
    pub points: Vec<SimulatedPoint>,
    /// A login's averages.
    pub mix: LoginMix,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanError {
    /// The server cannot be simulated.
    #[error("{0}")]
    World(String),
    /// Nobody is let in, however small the load.
    #[error("no login ends as it has to, however few there are: {0}")]
    NoLoginAccepted(String),
    /// Too many are not let in, however small the load.
    #[error(
        "{share:.2} % of the logins end as they have to, however few there are, where {wanted} % must: {failures}.{hint}"
    )]
    Failing {
        /// Per cent that end as they have to.
        share: f64,
        /// Per cent that must.
        wanted: f64,
        /// Why the others do not, each with its number.
        failures: String,
        /// What may help.
        hint: &'static str,
    },
    /// The user ended it.
    #[error("interrupted: there is no answer yet")]
    Interrupted,
}

/// Hears how far a plan has come, from several threads.
pub trait PlanObserver: Sync {
    /// So many steps of so many, about, are done.
    fn on_progress(&self, _steps: usize, _of: usize) {}
    /// Whether it is to end now.
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

/// Simulates a deployment and answers.
///
/// # Errors
/// What kept it from an answer.
pub fn plan_deployment(
    deployment: &ServerDeployment,
    profile: &ServerProfile,
    settings: &PlanSettings,
    watch: &dyn PlanObserver,
) -> Result<PlanAnswer, PlanError> {
    let mix = LoginMix::from_profile(deployment, profile);
    let searches = settings.replications as usize;
    // A search takes about eight steps; levels and the load that is planned are points, too.
    let steps = searches * (8 + SHARES.len() + 1) + 1;
    let planner = CapacityPlanner { deployment, settings, mix, watch, done: AtomicUsize::new(0), steps };
    planner.build_answer()
}

impl CapacityPlanner<'_> {
    fn build_answer(&self) -> Result<PlanAnswer, PlanError> {
        // A load at which nothing waits, for its cores or for its store: what a login takes by itself.
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
                    " Packets are lost on the way, and what is sent again is not enough: plan with less loss, or with access \
                     servers that send more often or by TCP."
                }
                false => "",
            };
            let share = alone.tally.success_ratio() * 100.0;
            return Err(PlanError::Failing { share, wanted: SUCCESS * 100.0, failures, hint });
        }
        let bounds = resource_bounds(self.deployment, &self.mix, delay);
        // There is a bound by the processor always.
        let most = bounds.first().map_or(1.0, |bound| bound.rate);
        let base = quantile(&alone.tally.latency, self.settings.share).unwrap_or(delay);
        let capacity = if base > self.settings.time_limit { None } else { self.find_capacity(most, base)? };
        let all_of_it = capacity.is_some_and(|capacity| capacity.mean > most / (1.0 + PRECISION));
        let limit = bounds.first().filter(|_| all_of_it).map(|bound| bound.resource);
        let points =
            SHARES.iter().map(|share| self.simulate_point(share * most)).collect::<Result<Vec<_>, _>>()?;
        let servers = capacity.map(|capacity| (self.settings.demand / capacity.mean).ceil().max(1.0) as u64);
        let planned =
            servers.map(|servers| self.simulate_point(self.settings.demand / servers as f64)).transpose()?;
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

    /// The highest rate that meets the target: each replication searches for it by itself.
    fn find_capacity(&self, most: f64, base: f64) -> Result<Option<IntervalEstimate>, PlanError> {
        let found = self.for_each_replication(self.settings.replications, |replication| {
            self.search_rate(most, base, replication)
        })?;
        let found: Option<Vec<f64>> = found.into_iter().collect();
        Ok(found.filter(|found| !found.is_empty()).map(|found| IntervalEstimate::from_values(&found)))
    }

    fn search_rate(&self, most: f64, base: f64, replication: u32) -> Result<Option<f64>, PlanError> {
        let meets = |rate: f64| self.meets_target(rate, base, replication);
        // Above `most` a queue grows without end, which a short step and a lax target do not see.
        let (mut low, mut high) = (most * 0.85, most);
        let mut doubled = 0;
        while !meets(low)? {
            (low, high) = (low / 2.0, low);
            doubled += 1;
            // Below a hundredth of what its resources allow, a server has another fault than too much load.
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

    /// Whether a rate meets the target over a step as long as one of `usher load --ramp`. Where that is more logins than are to be
    /// simulated, the step and what the target leaves for waiting are shorter by the same factor: what piles up in a step that is too
    /// much grows with its length. What piles up by chance does not, or less: a step must have enough logins that this is small.
    fn meets_target(&self, rate: f64, base: f64, replication: u32) -> Result<bool, PlanError> {
        let shorter = (rate * HOLD_S / (SEARCH * f64::from(self.settings.logins))).max(1.0);
        let step = self.run_step(rate, shorter, "search", replication)?;
        let limit = base + (self.settings.time_limit - base) / shorter;
        let in_time = quantile(&step.tally.latency, self.settings.share).is_some_and(|q| q <= limit);
        Ok(in_time && step.tally.success_ratio() >= SUCCESS)
    }

    /// One step at a rate, `shorter` times as short as a ramp's.
    fn run_step(
        &self,
        rate: f64,
        shorter: f64,
        purpose: &str,
        replication: u32,
    ) -> Result<StepResult, PlanError> {
        if self.watch.is_interrupted() {
            return Err(PlanError::Interrupted);
        }
        let hold = HOLD_S / shorter;
        // A login begun in the window is there at once where its rate is low.
        let hold = hold.max(20.0 / rate);
        let length = StepLength {
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

    /// What logins are like at a rate.
    fn simulate_point(&self, rate: f64) -> Result<SimulatedPoint, PlanError> {
        let shorter = (rate * HOLD_S / f64::from(self.settings.logins)).max(0.05);
        let steps = self
            .for_each_replication(self.settings.replications, |r| self.run_step(rate, shorter, "point", r))?;
        let of = |q: Option<f64>| -> Option<Vec<f64>> {
            let value = |step: &StepResult| match q {
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
        let in_time = |step: &StepResult| {
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

    /// Does something for each replication, several at once; the results are in the order of the replications.
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
