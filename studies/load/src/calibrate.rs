//! What one login costs an AAA server or an IKEv2 gateway of ours on this machine: `usher load --calibrate`.
//!
//! Each method is loaded by itself, with at most 30 % of what one core can do: steadily, in small bursts, and in bursts that keep the
//! server busy for a while. At each load the server's CPU time, its wake-ups, what it took in at a time and the units of work that it
//! counted are read. What a kind of work costs is solved from all of these together ([`usher_profile::solve_costs`]), with the public-key
//! operations given as this machine's library does them.
//!
//! A login costs a busy server far less than an idle one: by passwords an eighth. More messages share a wake-up and a batch, and the
//! processor's caches have what is needed. What a server can do at most is what a login costs it while it is busy, and that is
//! measured in the long bursts: its load is small on average all the same. Wake-ups and batches have costs of their own, from the
//! other loads, so that the profile holds at loads between.
//!
//! Of IKE's methods none tells what a message costs a gateway from what an IKE_SA costs it once, and by EAP each two messages go with one
//! request to the AAA server. So the first method is measured once more, by initiators who ask whether the gateway lives, which is nothing
//! but messages.

mod costs;
mod counts;
mod libraries;
mod reference;

pub use counts::{CalibratedServer, ServerCounts};
pub use reference::{KeyRefusedError, OperationTimes, key_exchange};

use crate::cpu::CpuTime;
use crate::live::{LoadObserver, LoadOutcome, LoadPlan, RunError, run_load_plan};
use crate::pace::{LoginArrivals, LoginPace};
use costs::{LoadMeasurement, build_profile};
use std::net::SocketAddr;
use std::time::Instant;
use usher_config::units::PositiveCount;
use usher_core::Duration;
use usher_profile::{ServerConfiguration, ServerProfile, UnsoundProfile};

/// The share of a core that a load takes, by what each login of it costs.
const SHARE: f64 = 0.3;
/// That of the smallest.
const SMALL_SHARE: f64 = 0.1;
/// How many logins begin at once in small bursts.
const SMALL_BURSTS: [u32; 2] = [4, 16];
/// How long a burst keeps the server busy at most, seconds. When it begins the processor has other things in its caches, which costs
/// a fraction of a millisecond more.
const BUSY_S: f64 = 0.05;
/// The most logins that begin at once: what a server's sockets hold.
const MOST_AT_ONCE: f64 = 4096.0;
/// How often everything is measured at most, where what was measured does not fit together: other programs can only add to what a
/// login costs, so that of each load the cheapest counts.
const PASSES: u32 = 3;
/// How often those ask who have nothing else to say: so that messages are most of what an IKE_SA costs by a shared key.
const PROBES: u32 = 8;
/// What is added to the name of the method that they log in by.
const PROBED: &str = "-probed";
/// How long the server is left alone before and after a load, so that what its CPU time is read for has begun and ended.
const REST: std::time::Duration = std::time::Duration::from_millis(50);
/// How many bursts a load has on average at least, however long they lie apart: their gaps are exponential, and in a load without any
/// nothing can be measured.
const BURSTS: f64 = 10.0;

/// The server that is measured, and how.
#[derive(Clone, Debug)]
pub struct CalibrationConfig {
    /// The names of the methods, as a profile has them.
    pub methods: Vec<String>,
    /// The server's process.
    pub pid: u32,
    /// What it is.
    pub server: CalibratedServer,
    /// Where its metrics are, by which what it does is counted.
    pub metrics: SocketAddr,
    /// What it was set to.
    pub configuration: ServerConfiguration,
    /// How often a look-up goes to its store and back.
    pub round_trips: Option<PositiveCount>,
    /// Whether its certificate's key is of RSA; `None` without one.
    pub rsa: Option<bool>,
    /// Seconds of one public-key operation of IKE's key exchange ([`key_exchange`]), where that is a server's to do.
    pub key_exchange: Option<f64>,
    /// How long each load is measured.
    pub measurement_time: Duration,
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
    Refused(#[from] KeyRefusedError),
    /// The server's metrics.
    #[error("{0}")]
    Counts(String),
    /// What was measured does not fit together.
    #[error(
        "{fault}; most likely other programs had the processor: calibrate again where nothing else runs, or with a longer \
         --calibrate-hold. The cheapest of {passes} measurements of each load:\n{loads}",
        passes = PASSES
    )]
    Unsound {
        /// What does not.
        fault: UnsoundProfile,
        /// What was measured, a line for each load.
        loads: String,
    },
    /// The server is another version.
    #[error("the server is usher {server} and this is usher {program}: a profile is of one version")]
    Version {
        /// The server's.
        server: String,
        /// This program's.
        program: String,
    },
    /// Too much went wrong to measure the rest.
    #[error(
        "{method} at {rate:.0} a second: only {share:.1} % of the logins ended as they had to. Either the server refuses them, which a load \
         without --calibrate shows, or other programs had the processor: calibrate again where nothing else runs"
    )]
    Failures {
        /// Which.
        method: String,
        /// At this rate.
        rate: f64,
        /// Successes.
        share: f64,
    },
    /// The server did nothing that could be measured.
    #[error(
        "{method}: the server's process {pid} counted no login, or used no CPU time; is it the one that serves?"
    )]
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

/// Measures all methods and makes the profile. `progress` is told what is measured now.
///
/// # Errors
/// What went wrong; nothing of a profile is worth keeping then.
pub fn calibrate_server(
    plan: &LoadPlan,
    calibration: &CalibrationConfig,
    watch: &mut dyn LoadObserver,
    progress: &mut dyn FnMut(&str),
) -> Result<ServerProfile, CalibrateError> {
    let server = ServerCounts::query_metrics(calibration.server, calibration.metrics)
        .map_err(CalibrateError::Counts)?
        .version;
    if server != calibration.program {
        return Err(CalibrateError::Version { server, program: calibration.program.clone() });
    }
    let ways = measured_methods(calibration);
    // As the profile has them.
    let named = CalibrationConfig {
        methods: ways.iter().map(|way| way.name.clone()).collect(),
        ..calibration.clone()
    };
    progress("what this machine's processor does a second");
    let mut operations = OperationTimes::measure_all()?;
    let mut all: Vec<Vec<LoadMeasurement>> = Vec::new();
    let mut shares = Vec::new();
    let mut pass = 1;
    loop {
        pass_through(plan, (calibration, &ways), watch, progress, &mut all, &mut shares)?;
        let profile = build_profile(&named, &operations, &all, shares.clone());
        // Nobody could read it again.
        match profile.check_soundness() {
            Ok(()) => return Ok(profile),
            Err(fault) if pass == PASSES => {
                return Err(CalibrateError::Unsound { fault, loads: describe_loads(&profile) });
            }
            Err(fault) => progress(&format!("everything again: {fault}")),
        }
        operations = operations.keep_faster(&OperationTimes::measure_all()?);
        pass += 1;
    }
}

/// How logins are measured.
struct MeasuredMethod {
    /// What the profile calls it.
    name: String,
    /// By which method, a number in [`CalibrationConfig::methods`].
    method: usize,
    /// How often who is in asks whether the gateway lives.
    probes: u32,
}

fn measured_methods(calibration: &CalibrationConfig) -> Vec<MeasuredMethod> {
    let plain = calibration.methods.iter().enumerate();
    let mut ways: Vec<MeasuredMethod> =
        plain.map(|(method, name)| MeasuredMethod { name: name.clone(), method, probes: 0 }).collect();
    if let (CalibratedServer::Gateway, Some(first)) = (calibration.server, calibration.methods.first()) {
        ways.push(MeasuredMethod { name: format!("{first}{PROBED}"), method: 0, probes: PROBES });
    }
    ways
}

/// Measures all methods once. Of each load the cheaper measurement is kept, this one or an earlier one.
fn pass_through(
    plan: &LoadPlan,
    (calibration, ways): (&CalibrationConfig, &[MeasuredMethod]),
    watch: &mut dyn LoadObserver,
    progress: &mut dyn FnMut(&str),
    all: &mut Vec<Vec<LoadMeasurement>>,
    shares: &mut Vec<Option<usher_profile::LibraryShares>>,
) -> Result<(), CalibrateError> {
    for (at, MeasuredMethod { name: method, method: number, probes }) in ways.iter().enumerate() {
        let mut one = plan.clone();
        one.load.front = one.load.front.with_method(*number).with_probes(*probes);
        one.load.mix.clear();
        one.load.wrong_share = 0.0;
        one.ramp = None;
        one.server_pid = Some(calibration.pid);
        let (measured, libraries) = measure_method(&one, method, calibration, watch, progress)?;
        match all.get_mut(at).zip(shares.get_mut(at)) {
            None => {
                all.push(measured);
                shares.push(libraries);
            }
            Some((kept, share)) => {
                keep_cheaper(kept, measured);
                *share = libraries;
            }
        }
    }
    Ok(())
}

/// Keeps of each load the measurement in which a login cost less.
fn keep_cheaper(kept: &mut [LoadMeasurement], again: Vec<LoadMeasurement>) {
    for (kept, again) in kept.iter_mut().zip(again) {
        if again.login_cost() < kept.login_cost() {
            *kept = again;
        }
    }
}

/// What was measured and is not accounted for, for people.
fn describe_loads(profile: &ServerProfile) -> String {
    let mut text = String::new();
    for (name, method) in profile.methods.iter() {
        for load in &method.loads {
            text += &format!(
                "  {name} at {:.0} a second, {} at once: {:.2} us a login, {:.2} wake-ups, accounted for {:.0} %\n",
                load.rate.per_second(),
                load.burst.get(),
                load.server.total_seconds() * 1e6,
                load.wakeups,
                load.accounted * 100.0
            );
        }
    }
    text
}

fn measure_method(
    plan: &LoadPlan,
    method: &str,
    calibration: &CalibrationConfig,
    watch: &mut dyn LoadObserver,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<LoadMeasurement>, Option<usher_profile::LibraryShares>), CalibrateError> {
    progress(&format!("{method}: one login at a time"));
    let mut alone = plan.clone();
    alone.load.pace = LoginPace::Closed { concurrency: 1 };
    let probe = measure_load(&alone, method, calibration, Duration::from_secs(1), watch)?;
    let cost = probe.login_cost();
    if cost <= 0.0 {
        return Err(CalibrateError::Idle { method: method.to_owned(), pid: calibration.pid });
    }
    let mut open = plan.clone();
    let mut load = |share: f64, cost: f64, burst: u32| {
        let arrivals = if burst > 1 { LoginArrivals::Bursts(burst) } else { LoginArrivals::Exponential };
        open.load.pace = LoginPace::Open { rate: share / cost, arrivals };
        open.clone()
    };
    let mut measured: Vec<LoadMeasurement> = Vec::new();
    let mut measure = |plan: &LoadPlan, watch: &mut dyn LoadObserver| {
        progress(&format!("{method}: {}", describe_pace(&plan.load.pace)));
        let measured_now = measure_load(
            plan,
            method,
            calibration,
            long_enough(&plan.load.pace, calibration.measurement_time),
            watch,
        )?;
        let cost = measured_now.login_cost();
        measured.push(measured_now);
        Ok::<f64, CalibrateError>(cost)
    };
    let at_once = |cost: f64| (BUSY_S / cost).clamp(1.0, MOST_AT_ONCE) as u32;
    measure(&load(SMALL_SHARE, cost, 1), watch)?;
    let mut last = measure(&load(SHARE, cost, 1), watch)?;
    for burst in SMALL_BURSTS {
        last = measure(&load(SHARE, last, burst.min(at_once(last))), watch)?;
    }
    let busy = load(SHARE, last, at_once(last));
    measure(&busy, watch)?;
    let libraries = if calibration.libraries {
        progress(&format!("{method}: where the time goes"));
        let hold = long_enough(&busy.load.pace, calibration.measurement_time);
        libraries::run_sampled(calibration.pid, || measure_load(&busy, method, calibration, hold, watch))?
    } else {
        None
    };
    Ok((measured, libraries))
}

/// How long a load is measured: as long as was asked for, and until some bursts have come.
fn long_enough(pace: &LoginPace, hold: Duration) -> Duration {
    match *pace {
        LoginPace::Open { rate, arrivals: LoginArrivals::Bursts(size) } => {
            hold.max(Duration::from_secs_f64(BURSTS * f64::from(size) / rate))
        }
        _ => hold,
    }
}

fn describe_pace(pace: &LoginPace) -> String {
    match pace {
        LoginPace::Open { rate, arrivals } => format!("{rate:.0} logins a second, {}", arrivals.describe()),
        LoginPace::Closed { concurrency } => format!("{concurrency} at once"),
    }
}

/// One load. That the generator may have been late does not matter: what comes of that, how often the server woke up and how much it
/// took in at a time, is measured with the rest. Whole logins are measured with all their CPU time, those of the warm-up too: where
/// they come in bursts, a window would cut some in two.
fn measure_load(
    plan: &LoadPlan,
    method: &str,
    calibration: &CalibrationConfig,
    hold: Duration,
    watch: &mut dyn LoadObserver,
) -> Result<LoadMeasurement, CalibrateError> {
    let mut plan = plan.clone();
    let warmup = Duration::from_millis(500);
    (plan.load.warmup, plan.load.duration, plan.load.count) = (warmup, Some(hold), None);
    let read = || {
        let pid = calibration.pid;
        CpuTime::for_process(pid).map_err(|error| RunError::Process { pid, error })
    };
    let ask = || {
        ServerCounts::query_metrics(calibration.server, calibration.metrics).map_err(CalibrateError::Counts)
    };
    let counts = ask()?;
    // What the server does for having been asked is no login's.
    std::thread::sleep(REST);
    let (cpu, begun) = (read()?, Instant::now());
    let outcome = run_load_plan(&plan, watch)?;
    std::thread::sleep(REST);
    let (cpu, seconds) = (read()?.delta_since(&cpu), begun.elapsed().as_secs_f64());
    let counts = ask()?.delta_since(&counts);
    check_outcome(&outcome, method)?;
    let logins = counts.counter_value(calibration.server.login_counter());
    if logins < 1.0 {
        return Err(CalibrateError::Idle { method: method.to_owned(), pid: calibration.pid });
    }
    let burst = match plan.load.pace {
        LoginPace::Open { arrivals: LoginArrivals::Bursts(size), .. } => size,
        _ => 1,
    };
    let own = outcome.own_cpu_s / outcome.tally.completed.max(1) as f64;
    Ok(LoadMeasurement { rate: outcome.throughput(), burst, logins, cpu, own, seconds, counts })
}

/// Whether a load says what a login costs.
fn check_outcome(outcome: &LoadOutcome, method: &str) -> Result<(), CalibrateError> {
    if outcome.interrupted {
        return Err(CalibrateError::Interrupted);
    }
    let success = outcome.tally.success_ratio();
    if success < 0.999 {
        let (method, rate) = (method.to_owned(), outcome.throughput());
        return Err(CalibrateError::Failures { method, rate, share: success * 100.0 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_as_long_as_its_bursts_take_to_come() {
        let asked = Duration::from_millis(400);
        let bursts = |rate| LoginPace::Open { rate, arrivals: LoginArrivals::Bursts(60) };
        assert_eq!(long_enough(&bursts(300.0), asked), Duration::from_secs(2));
        assert_eq!(long_enough(&bursts(6000.0), asked), asked);
        assert_eq!(
            long_enough(&LoginPace::Open { rate: 1.0, arrivals: LoginArrivals::Exponential }, asked),
            asked
        );
    }
}
