//! The bounds of a server by each of its resources, and the closed form of its delay.

use crate::deployment::ServerDeployment;
use usher_profile::{LOOKUP, MethodProfile, ServerProfile};
use usher_theory::queues::ServerQueue;

/// The resource that limits the load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ServerResource {
    /// The cores.
    Processor,
    /// The threads for store lookups.
    StoreThreads,
    /// The limit of concurrent logins (`limits.half_open`).
    HalfOpen,
}

impl ServerResource {
    /// Returns its name in words.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Processor => "the processor",
            Self::StoreThreads => "the threads for store lookups (users.threads)",
            Self::HalfOpen => "the limit of concurrent logins (limits.half_open)",
        }
    }
    /// Returns its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::StoreThreads => "store_threads",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The rate at which a resource is exhausted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResourceBound {
    /// The resource.
    pub resource: ServerResource,
    /// Logins per second of one server.
    pub rate: f64,
}

/// A mix of methods as a server sees it: the averages of a login.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoginMix {
    /// Messages to the server for a login.
    pub messages: f64,
    /// CPU time of a login without wake-ups and batches, in seconds.
    pub work: f64,
    /// Mean square of a message's CPU time, in seconds squared.
    square: f64,
    /// CPU time of one wake-up with its batch, and of a batch alone.
    pub wakeup: f64,
    batch: f64,
    /// Lookups in the store.
    pub lookups: f64,
    /// Time of each lookup in seconds.
    pub lookup: f64,
}

impl LoginMix {
    /// Returns the mix of a deployment by its profile.
    #[must_use]
    pub fn from_profile(deployment: &ServerDeployment, profile: &ServerProfile) -> Self {
        let cpu = |label: &str| {
            let law = deployment.cpu.aside.get(label).or_else(|| deployment.cpu.service.get(label));
            law.map_or(0.0, |law| law.mean().as_secs_f64())
        };
        let all: f64 = deployment.methods.iter().map(|m| m.weight).sum();
        let mut mix = Self {
            messages: 0.0,
            work: 0.0,
            square: 0.0,
            wakeup: deployment.cpu.wakeup.get().as_secs_f64(),
            batch: deployment.cpu.batch.get().as_secs_f64(),
            lookups: 0.0,
            lookup: deployment.cpu.service.get(LOOKUP).map_or(0.0, |law| law.mean().as_secs_f64()),
        };
        for method in &deployment.methods {
            let Some(measured) = profile.methods.get(&method.name) else { continue };
            let share = method.weight / all;
            let (messages, heavy, light) = divide_cost(measured, &cpu);
            mix.messages += share * messages;
            mix.work += share * (heavy + light);
            // One message of a login carries the public-key operations. All its messages share the other work equally.
            let each = light / messages;
            mix.square += share * ((messages - 1.0) * each * each + (each + heavy) * (each + heavy));
            mix.lookups += share * measured.units.get(LOOKUP).copied().unwrap_or(0.0);
        }
        mix.square /= mix.messages.max(1e-9);
        if deployment.cpu.service.get(LOOKUP).is_none() {
            mix.lookups = 0.0;
        }
        mix
    }

    /// Returns the CPU time of a login at a rate, in seconds: a message that finds an idle core wakes it up.
    #[must_use]
    pub fn login_cost(&self, rate: f64, cores: f64) -> f64 {
        let idle = self.messages * (self.wakeup + self.batch);
        // The share of messages that find one of `cores` idle depends on the busy share, which follows from the cost.
        let busy = (rate * (self.work + idle) / (cores + rate * idle)).min(1.0);
        self.work + (1.0 - busy) * idle + busy * self.messages * self.batch / usher_profile::FULL_BATCH
    }

    /// Returns the rate at which the cores are fully busy, in logins per second.
    #[must_use]
    pub fn saturation_rate(&self, cores: f64) -> f64 {
        cores / (self.work + self.messages * self.batch / usher_profile::FULL_BATCH).max(1e-12)
    }

    /// Returns the mean delay of a login at a rate, in seconds. It sums up the messages' travel, work and waits in an
    /// M/G/c queue by Allen and Cunneen, and the lookups with their waits.
    #[must_use]
    pub fn mean_delay(&self, rate: f64, cores: u32, threads: u32, round_trip: f64) -> f64 {
        let service = self.login_cost(rate, f64::from(cores)) / self.messages;
        let plain = self.work / self.messages;
        let variation = if plain > 0.0 { (self.square / (plain * plain) - 1.0).max(0.0) } else { 0.0 };
        let queue = ServerQueue {
            service_variation: variation,
            ..ServerQueue::mmc(rate * self.messages, service, cores)
        };
        let store = ServerQueue {
            service_variation: 0.0,
            ..ServerQueue::mmc(rate * self.lookups, self.lookup, threads)
        };
        let looked_up =
            if self.lookups > 0.0 { self.lookups * (self.lookup + store.mean_wait()) } else { 0.0 };
        self.messages * (round_trip + service + queue.mean_wait()) + looked_up
    }
}

/// Returns the messages of a login, its public-key operations and the rest of its CPU time.
fn divide_cost(measured: &MethodProfile, cpu: &dyn Fn(&str) -> f64) -> (f64, f64, f64) {
    let (mut heavy, mut light) = (0.0, 0.0);
    for (label, units) in measured.units.iter() {
        let cost = cpu(label) * units;
        let heavy_one =
            label.starts_with("tls.") || ["ike.key_exchange", "ike.sign", "ike.verify"].contains(&label);
        if heavy_one { heavy += cost } else { light += cost }
    }
    (measured.received.messages.max(1.0), heavy, light)
}

/// Returns the resources with their limiting rates, the scarcest first. `delay` is the duration of a login without
/// waiting, in seconds.
#[must_use]
pub fn resource_bounds(deployment: &ServerDeployment, mix: &LoginMix, delay: f64) -> Vec<ResourceBound> {
    let cores = f64::from(deployment.cpu.cores.get());
    let mut all =
        vec![ResourceBound { resource: ServerResource::Processor, rate: mix.saturation_rate(cores) }];
    if mix.lookups > 0.0 && mix.lookup > 0.0 {
        let rate = f64::from(deployment.store_threads()) / (mix.lookups * mix.lookup);
        all.push(ResourceBound { resource: ServerResource::StoreThreads, rate });
    }
    // Only logins of several messages are half open. A login of one message is outstanding only during its lookup.
    if delay > 0.0 && mix.messages > 1.0 {
        let rate = deployment.half_open() as f64 / delay;
        all.push(ResourceBound { resource: ServerResource::HalfOpen, rate });
    }
    all.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    all
}
