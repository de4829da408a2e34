//! What one login costs a server of ours on this machine: `usher load --calibrate`.
//!
//! Each method is loaded by itself, at a few rates well below what the server can do. At each the server's CPU time, its wake-ups,
//! what it took in at a time and the units of work that it counted are read. What a kind of work costs is solved from all of these
//! together ([`usher_profile::solve`]), with the public-key operations given as this machine's library does them. That cost falls
//! as load rises, because more messages share a wake-up and a batch: those two have costs of their own, so that the profile holds
//! at other loads than those measured.

mod counts;
mod libraries;
mod reference;

pub use counts::Counts;
pub use reference::{Operations, Refused};

use crate::cpu::CpuTime;
use crate::live::{Outcome, Plan, RunError, Watch, run};
use crate::pace::{Arrivals, Pace};
use std::net::SocketAddr;
use usher_config::Ordered;
use usher_config::units::{Count, Rate, Time};
use usher_core::Duration;
use usher_profile::{
    Configuration, Cost, Equation, File, LoadPoint, Machine, MethodProfile, Reference, Store, Traffic, solve,
};

/// Shares of what one core could do at most at which each method is measured, by what a login costs a server that does nothing
/// else.
pub const SHARES: [f64; 3] = [0.1, 0.3, 0.6];
/// Kinds of work whose cost is this machine's for the same operation.
const OPERATIONS: [&str; 3] = ["tls.sign", "tls.verify", "tls.key_exchange"];
/// What is counted twice: an answer comes of each request, and has its cost there.
const COUNTED_ELSEWHERE: [&str; 2] = ["radius.response", "diameter.answer"];

/// The server that is measured, and how.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The names of the methods, as a profile has them.
    pub methods: Vec<String>,
    /// The server's process.
    pub pid: u32,
    /// Where its metrics are.
    pub metrics: SocketAddr,
    /// What it was set to.
    pub configuration: Configuration,
    /// How often a look-up goes to its store and back.
    pub round_trips: Option<Count>,
    /// Whether its certificate's key is of RSA; `None` without TLS.
    pub rsa: Option<bool>,
    /// How long each load is measured.
    pub hold: Duration,
    /// Whether the CPU time is divided among libraries, where the system can.
    pub libraries: bool,
    /// The program's version, which is the server's too.
    pub program: String,
    /// The day.
    pub date: String,
}

/// Why nothing was calibrated.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A load did not take place.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The machine's own speed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The server's metrics.
    #[error("{0}")]
    Counts(String),
    /// Nothing is known of any kind of work.
    #[error(
        "what was measured does not tell kinds of work from wake-ups, most likely since other programs had the processor: \
         calibrate again where nothing else runs, or with a longer --calibrate-hold"
    )]
    Apart,
    /// The server is another version.
    #[error("the server is usher {server} and this is usher {program}: a profile is of one version")]
    Version {
        /// The server's.
        server: String,
        /// This program's.
        program: String,
    },
    /// Too much went wrong to measure the rest.
    #[error("{method} at {rate:.0} a second: only {share:.1} % of the logins ended as they had to")]
    Failures {
        /// Which.
        method: String,
        /// At this rate.
        rate: f64,
        /// Successes.
        share: f64,
    },
    /// The server did nothing that could be measured.
    #[error("{method}: the server's process {pid} used no CPU time; is it the one that serves?")]
    Idle {
        /// Which.
        method: String,
        /// The process.
        pid: u32,
    },
    /// The user ended it.
    #[error("interrupted: no profile was written")]
    Interrupted,
}

/// What was measured of a method at one load.
struct Measured {
    logins: u64,
    cpu: CpuTime,
    own_cpu_s: f64,
    measured_s: f64,
    counts: Counts,
}

impl Measured {
    fn each(&self, n: f64) -> f64 {
        n / self.logins as f64
    }
    /// How often something was counted for each login that the server counted.
    fn counted(&self, name: &str) -> f64 {
        self.counts.of(name) / self.counts.of("logins/accept").max(1.0)
    }
    fn server(&self) -> (f64, f64) {
        (self.each(self.cpu.user), self.each(self.cpu.system))
    }
    fn batches(&self) -> f64 {
        self.counted("driver_events/batches_in")
    }
}

/// Measures all methods and makes the profile. `progress` is told what is measured now.
///
/// # Errors
/// What went wrong; nothing of a profile is worth keeping then.
pub fn calibrate(
    plan: &Plan,
    calibration: &Calibration,
    watch: &mut dyn Watch,
    progress: &mut dyn FnMut(&str),
) -> Result<File, CalibrateError> {
    let server = Counts::ask(calibration.metrics).map_err(CalibrateError::Counts)?.version;
    if server != calibration.program {
        return Err(CalibrateError::Version { server, program: calibration.program.clone() });
    }
    progress("what this machine's processor does a second");
    let operations = Operations::time()?;
    let mut all = Vec::new();
    let mut shares = Vec::new();
    for (at, method) in calibration.methods.iter().enumerate() {
        let mut one = plan.clone();
        one.load.front = one.load.front.only(at);
        one.load.mix.clear();
        one.load.wrong_share = 0.0;
        one.ramp = None;
        one.server_pid = Some(calibration.pid);
        let (measured, libraries) = measure(&one, method, calibration, watch, progress)?;
        all.push(measured);
        shares.push(libraries);
    }
    let profile = profile(calibration, &operations, &all, shares);
    // Nobody could read it again.
    if profile.work.iter().all(|(_, cost)| cost.seconds() <= 0.0) {
        return Err(CalibrateError::Apart);
    }
    Ok(profile)
}

fn measure(
    plan: &Plan,
    method: &str,
    calibration: &Calibration,
    watch: &mut dyn Watch,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<Measured>, Option<usher_profile::Library>), CalibrateError> {
    progress(&format!("{method}: one login at a time"));
    let mut alone = plan.clone();
    alone.load.pace = Pace::Closed { concurrency: 1 };
    let probe = once(&alone, method, calibration, Duration::from_secs(1), watch)?;
    // At least as much as a tick of the kernel's clock, or nothing is known of it.
    let cost = probe.each(probe.cpu.total());
    if probe.logins == 0 || cost <= 0.0 {
        return Err(CalibrateError::Idle { method: method.to_owned(), pid: calibration.pid });
    }
    let mut measured: Vec<Measured> = Vec::new();
    let mut open = plan.clone();
    for share in SHARES {
        let rate = share / cost;
        progress(&format!("{method}: {rate:.0} logins a second"));
        open.load.pace = Pace::Open { rate, arrivals: Arrivals::Exponential };
        measured.push(once(&open, method, calibration, calibration.hold, watch)?);
    }
    let libraries = if calibration.libraries {
        progress(&format!("{method}: where the time goes"));
        libraries::sampled(calibration.pid, || once(&open, method, calibration, calibration.hold, watch))?
    } else {
        None
    };
    Ok((measured, libraries))
}

/// One load. That the generator may have been late does not matter: what comes of that, how often the server woke up and how much it
/// took in at a time, is measured with the rest.
fn once(
    plan: &Plan,
    method: &str,
    calibration: &Calibration,
    hold: Duration,
    watch: &mut dyn Watch,
) -> Result<Measured, CalibrateError> {
    let mut plan = plan.clone();
    (plan.load.warmup, plan.load.duration, plan.load.count) = (Duration::from_millis(500), Some(hold), None);
    let before = Counts::ask(calibration.metrics).map_err(CalibrateError::Counts)?;
    let outcome = run(&plan, watch)?;
    let after = Counts::ask(calibration.metrics).map_err(CalibrateError::Counts)?;
    sound(&outcome, method)?;
    let server = outcome.server.as_ref();
    let (cpu, logins) = server.map_or((CpuTime::default(), 0), |used| (used.cpu, used.completed));
    let counts = after.since(&before);
    Ok(Measured { logins, cpu, own_cpu_s: outcome.own_cpu_s, measured_s: outcome.measured_s, counts })
}

/// Whether a load says what a login costs.
fn sound(outcome: &Outcome, method: &str) -> Result<(), CalibrateError> {
    if outcome.interrupted {
        return Err(CalibrateError::Interrupted);
    }
    let success = outcome.tally.success();
    if success < 0.999 {
        let (method, rate) = (method.to_owned(), outcome.throughput());
        return Err(CalibrateError::Failures { method, rate, share: success * 100.0 });
    }
    Ok(())
}

/// The profile of what was measured.
fn profile(
    calibration: &Calibration,
    operations: &Operations,
    all: &[Vec<Measured>],
    libraries: Vec<Option<usher_profile::Library>>,
) -> File {
    let labels = labels(all);
    let given: Vec<Option<f64>> = labels
        .iter()
        .map(|label| {
            let (sign, verify) =
                if calibration.rsa == Some(false) { operations.ecdsa_p256 } else { operations.rsa_2048 };
            OPERATIONS.iter().position(|o| o == label).map(|at| [sign, verify, operations.x25519][at])
        })
        .collect();
    let units = |m: &Measured, label: &str| match label {
        // Look-ups leave the shard, which does not count them as work.
        usher_profile::LOOKUP => m.counted("cache/miss"),
        _ => m.counted(&format!("work/{label}")),
    };
    // The kinds of work, then waking up, then taking in a batch.
    let equations: Vec<Equation> = all
        .iter()
        .flatten()
        .map(|m| Equation {
            units: labels
                .iter()
                .map(|label| units(m, label))
                .chain([m.each(m.cpu.sleeps as f64), m.batches()])
                .collect(),
            // Zero would be no share of anything.
            cost: m.each(m.cpu.total()).max(1e-9),
        })
        .collect();
    let more: Vec<Option<f64>> = given.iter().copied().chain([None, None]).collect();
    let solved = solve(&equations, &more);
    let system = system_share(all, &labels, &given, &solved.costs, &units);
    let cost = |at: usize| {
        // Public-key operations are the program's alone.
        let system = if more[at].is_some() { 0.0 } else { solved.costs[at] * system };
        Cost { user: time(solved.costs[at] - system), system: time(system) }
    };
    let mut work = Ordered::default();
    labels.iter().enumerate().for_each(|(at, label)| work.insert(label.clone(), cost(at)));
    let mut methods = Ordered::default();
    let mut row = 0;
    for ((name, measured), libraries) in calibration.methods.iter().zip(all).zip(libraries) {
        row += measured.len();
        let Some(last) = measured.last() else { continue };
        let (u, s) = last.server();
        let accounted = solved.accounted[row - 1];
        let mut of_work = Ordered::default();
        labels.iter().map(|l| (l, units(last, l))).filter(|(_, n)| *n > 0.0).for_each(|(l, n)| {
            of_work.insert(l.clone(), n);
        });
        let traffic = |way: &str, messages: &str| {
            let datagrams = last.counted(&format!("driver_events/datagrams_{way}"));
            let octets = ["datagram", "stream"]
                .map(|kind| last.counted(&format!("driver_events/{kind}_octets_{way}")))
                .into_iter()
                .sum();
            let streams = last.counted(&format!("work/{messages}"));
            Traffic { messages: if datagrams > 0.0 { datagrams } else { streams }, octets }
        };
        let own = last.each(last.own_cpu_s);
        let profile = MethodProfile {
            received: traffic("in", "diameter.request"),
            sent: traffic("out", "diameter.request"),
            server: Cost { user: time(u), system: time(s) },
            generator: own_cost(own),
            units: of_work,
            accounted,
            loads: measured.iter().map(point).collect(),
            libraries,
        };
        methods.insert(name.clone(), profile);
    }
    let reference = Reference {
        rsa_2048_sign: Rate::of(1.0 / operations.rsa_2048.0),
        ecdsa_p256_sign: Rate::of(1.0 / operations.ecdsa_p256.0),
        md5: Rate::of(1.0 / operations.md5),
    };
    let host = usher_observe::manifest::Host::detect();
    // The machine's, of which the generator may have been given some only.
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let listed = listed.lines().filter(|line| line.starts_with("processor\t")).count();
    let cores = u32::try_from(listed.max(host.cores)).unwrap_or(1);
    let store = store(calibration, all);
    File {
        program: calibration.program.clone(),
        date: calibration.date.clone(),
        machine: Machine {
            processor: host.cpu,
            cores: Count::of(cores.max(1)),
            kernel: host.kernel,
            reference,
        },
        configuration: calibration.configuration.clone(),
        work,
        wakeup: cost(labels.len()),
        batch: cost(labels.len() + 1),
        methods,
        store,
    }
}

/// The share of the kernel in all that is not public-key operations, by the ticks of all loads together: those of one load are too few
/// to be divided among kinds of work.
fn system_share(
    all: &[Vec<Measured>],
    labels: &[String],
    given: &[Option<f64>],
    costs: &[f64],
    units: &dyn Fn(&Measured, &str) -> f64,
) -> f64 {
    let (mut total, mut system) = (0.0, 0.0);
    for m in all.iter().flatten() {
        let operations: f64 = labels
            .iter()
            .zip(given)
            .zip(costs)
            .filter(|((_, given), _)| given.is_some())
            .map(|((label, _), cost)| units(m, label) * cost)
            .sum();
        total += m.cpu.total() - operations * m.logins as f64;
        system += m.cpu.system;
    }
    if total > 0.0 { (system / total).clamp(0.0, 1.0) } else { 0.0 }
}

/// The kinds of work that any login did, requests first: of what nothing tells apart, they get all.
fn labels(all: &[Vec<Measured>]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let looked_up = all.iter().flatten().any(|m| m.counts.of("cache/miss") > 0.0);
    let first = ["radius.request", "diameter.request"].map(str::to_owned);
    let counted = all.iter().flatten().flat_map(|m| m.counts.kinds("work"));
    let counted = counted.filter(|(_, n)| *n > 0.0).map(|(label, _)| label.to_owned()).collect::<Vec<_>>();
    let lookup = looked_up.then(|| usher_profile::LOOKUP.to_owned());
    for label in first.into_iter().filter(|l| counted.contains(l)).chain(counted.clone()).chain(lookup) {
        if !labels.contains(&label) && !COUNTED_ELSEWHERE.contains(&&*label) {
            labels.push(label);
        }
    }
    labels
}

/// The store's own time, from all look-ups.
fn store(calibration: &Calibration, all: &[Vec<Measured>]) -> Option<Store> {
    let sum = |name: &str| all.iter().flatten().map(|m| m.counts.of(name)).sum::<f64>();
    let lookups = sum("store_latency_seconds_count");
    let lookup = time(sum("store_latency_seconds_sum") / lookups.max(1.0));
    let round_trips = calibration.round_trips?;
    (lookups > 0.0).then_some(Store { lookup, round_trips })
}

fn point(m: &Measured) -> LoadPoint {
    let (user, system) = m.server();
    LoadPoint {
        rate: Rate::of(m.logins as f64 / m.measured_s.max(1e-9)),
        logins: m.logins,
        server: Cost { user: time(user), system: time(system) },
        wakeups: m.each(m.cpu.sleeps as f64),
        batches: m.batches(),
        utilisation: m.cpu.total() / m.measured_s.max(1e-9),
    }
}

/// The generator keeps its processor between logins: what it needs is told without telling its kinds apart.
fn own_cost(seconds: f64) -> Cost {
    Cost { user: time(seconds), system: Time::default() }
}

fn time(seconds: f64) -> Time {
    Time(Duration::from_secs_f64(seconds.max(0.0)))
}
