//! Measures the cost of a login for our AAA server or IKEv2 gateway on this machine: `usher load --calibrate`.
//!
//! Each method is loaded by itself, with at most 30 % of the capacity of one core: steadily, in small bursts, and in
//! bursts that keep the server busy for a while. At each load, calibration reads the server's CPU time, its wake-ups,
//! its batch sizes and its counted units of work. All loads together determine the cost of each kind of work
//! ([`usher_profile::solve_costs`]). The public-key operations are given, as this machine's library performs them.
//!
//! A login costs a busy server far less than an idle one: an eighth with passwords. More messages share a wake-up and a
//! batch, and the processor's caches are warm. The cost of a login on a busy server determines the server's capacity.
//! The long bursts measure it, although their average load is small. Wake-ups and batches have their own costs, from
//! the other loads, so that the profile holds for loads between.
//!
//! No method of IKE separates the cost of a message at the gateway from the one-time cost of an IKE_SA. With EAP, each
//! two messages also go with one request to the AAA server. The first method is therefore measured again with
//! initiators that send liveness checks, which are messages alone.

mod costs;
mod counts;
mod libraries;
mod reference;

pub use counts::{CalibratedServerKind, ServerCounts};
pub use reference::{CryptoOperationTimes, CryptoTimingError, key_exchange};

use crate::cpu::CpuTime;
use crate::live::{LoadObserver, LoadOutcome, LoadRunPlan, RunError, run_load_plan};
use crate::pace::{LoginArrivals, LoginPace};
use costs::{LoadMeasurement, build_profile};
use std::net::SocketAddr;
use std::time::Instant;
use usher_config::units::PositiveCount;
use usher_core::Duration;
use usher_profile::{ServerConfiguration, ServerProfile, UnsoundProfileError};

/// The share of a core that a load takes, from the cost of its logins.
const SHARE: f64 = 0.3;
/// The share of a core of the smallest load.
const SMALL_SHARE: f64 = 0.1;
/// Numbers of logins that begin at once in small bursts.
const SMALL_BURSTS: [u32; 2] = [4, 16];
/// Maximum busy time of the server in a burst, in seconds. A burst begins with cold caches, which costs a fraction of a
/// millisecond more.
const BUSY_S: f64 = 0.05;
/// Maximum number of logins that begin at once: the capacity of a server's sockets.
const MOST_AT_ONCE: f64 = 4096.0;
/// Maximum number of repetitions of all measurements if they are inconsistent. Other programs can only add to the cost
/// of a login, so the cheapest measurement of each load counts.
const PASSES: u32 = 3;
/// Number of liveness checks of an idle IKE_SA, so that messages dominate the cost of an IKE_SA by a shared key.
const PROBES: u32 = 8;
/// The suffix of that method's name.
const PROBED: &str = "-probed";
/// Idle time of the server before and after a load, so that its CPU time covers whole logins.
const REST: std::time::Duration = std::time::Duration::from_millis(50);
/// Minimum average number of bursts of a load. Gaps are exponential, and a load without any burst measures nothing.
const BURSTS: f64 = 10.0;

/// The server to measure, and the options.
#[derive(Clone, Debug)]
pub struct CalibrationConfig {
    /// The names of the methods in the profile.
    pub methods: Vec<String>,
    /// The server's process.
    pub pid: u32,
    /// The kind of server.
    pub server: CalibratedServerKind,
    /// The address of its metrics, which count its work.
    pub metrics: SocketAddr,
    /// The server's configuration.
    pub configuration: ServerConfiguration,
    /// Number of round trips to its store in a lookup.
    pub round_trips: Option<PositiveCount>,
    /// True if its certificate has an RSA key; `None` without a certificate.
    pub rsa: Option<bool>,
    /// Seconds of one public-key operation of IKE's key exchange ([`key_exchange`]), for a gateway.
    pub key_exchange: Option<f64>,
    /// Duration of each load.
    pub measurement_time: Duration,
    /// True to divide the CPU time among libraries, if the system can.
    pub libraries: bool,
    /// The version of the program and the server.
    pub program: String,
    /// The date.
    pub date: String,
}

/// The reason why calibration failed.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A load could not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The machine's own speed could not be measured.
    #[error(transparent)]
    Refused(#[from] CryptoTimingError),
    /// The server's metrics could not be read.
    #[error("{0}")]
    Counts(String),
    /// The measurements are inconsistent.
    #[error(
        "{fault}; other programs probably used the processor: calibrate again where nothing else runs, or with a \
         longer --calibrate-hold. The cheapest of {passes} measurements of each load:\n{loads}",
        passes = PASSES
    )]
    Unsound {
        /// The inconsistency.
        fault: UnsoundProfileError,
        /// The measurements, a line for each load.
        loads: String,
    },
    /// The server has another version.
    #[error("the server is usher {server}, this program is usher {program}: use the same version for both")]
    Version {
        /// The server's version.
        server: String,
        /// This program's version.
        program: String,
    },
    /// Too many logins failed for a measurement.
    #[error(
        "{method} at {rate:.0} a second: only {share:.1} % of the logins succeeded. Run a load without --calibrate \
         to see whether the server rejects them. If it does not, other programs used the processor: calibrate again \
         where nothing else runs"
    )]
    Failures {
        /// The method.
        method: String,
        /// The rate.
        rate: f64,
        /// The share of successes.
        share: f64,
    },
    /// The server did no measurable work.
    #[error("{method}: process {pid} counted no login or used no CPU time; check that it is the server")]
    Idle {
        /// The method.
        method: String,
        /// The server's process.
        pid: u32,
    },
    /// The user interrupted it.
    #[error("interrupted: no profile was written")]
    Interrupted,
}

/// Measures all methods and returns the profile. `progress` receives the name of each measurement.
///
/// # Errors
/// The first failure; there is no partial profile.
pub fn calibrate_server(
    plan: &LoadRunPlan,
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
    // Use the methods' names as the profile writes them.
    let named = CalibrationConfig {
        methods: ways.iter().map(|way| way.name.clone()).collect(),
        ..calibration.clone()
    };
    progress("the speed of this machine's processor");
    let mut operations = CryptoOperationTimes::measure_all()?;
    let mut all: Vec<Vec<LoadMeasurement>> = Vec::new();
    let mut shares = Vec::new();
    let mut pass = 1;
    loop {
        measure_all_methods(plan, (calibration, &ways), watch, progress, &mut all, &mut shares)?;
        let profile = build_profile(&named, &operations, &all, shares.clone());
        // Check the profile now, because an unsound one would be rejected when it is read.
        match profile.check_costs_explain_loads() {
            Ok(()) => return Ok(profile),
            Err(fault) if pass == PASSES => {
                return Err(CalibrateError::Unsound { fault, loads: describe_loads(&profile) });
            }
            Err(fault) => progress(&format!("everything again: {fault}")),
        }
        operations = operations.keep_faster_timings(&CryptoOperationTimes::measure_all()?);
        pass += 1;
    }
}

/// A method as a measurement runs it.
struct CalibrationLoginMethod {
    /// Its name in the profile.
    name: String,
    /// Its login method, an index into [`CalibrationConfig::methods`].
    method: usize,
    /// Number of liveness checks of an established IKE_SA.
    probes: u32,
}

fn measured_methods(calibration: &CalibrationConfig) -> Vec<CalibrationLoginMethod> {
    let plain = calibration.methods.iter().enumerate();
    let mut ways: Vec<CalibrationLoginMethod> = plain
        .map(|(method, name)| CalibrationLoginMethod { name: name.clone(), method, probes: 0 })
        .collect();
    if let (CalibratedServerKind::Gateway, Some(first)) = (calibration.server, calibration.methods.first()) {
        ways.push(CalibrationLoginMethod { name: format!("{first}{PROBED}"), method: 0, probes: PROBES });
    }
    ways
}

/// Measures all methods once. Keeps the cheaper measurement of each load, this one or an earlier one.
fn measure_all_methods(
    plan: &LoadRunPlan,
    (calibration, ways): (&CalibrationConfig, &[CalibrationLoginMethod]),
    watch: &mut dyn LoadObserver,
    progress: &mut dyn FnMut(&str),
    all: &mut Vec<Vec<LoadMeasurement>>,
    shares: &mut Vec<Option<usher_profile::LibraryCpuShares>>,
) -> Result<(), CalibrateError> {
    for (at, CalibrationLoginMethod { name: method, method: number, probes }) in ways.iter().enumerate() {
        let mut one = plan.clone();
        one.load.front = one.load.front.with_method(*number).with_liveness_checks(*probes);
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
                keep_cheaper_measurements(kept, measured);
                *share = libraries;
            }
        }
    }
    Ok(())
}

/// Keeps for each load the measurement with the cheaper login.
fn keep_cheaper_measurements(kept: &mut [LoadMeasurement], again: Vec<LoadMeasurement>) {
    for (kept, again) in kept.iter_mut().zip(again) {
        if again.login_cost() < kept.login_cost() {
            *kept = again;
        }
    }
}

/// Describes measurements and their unexplained parts for people.
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
    plan: &LoadRunPlan,
    method: &str,
    calibration: &CalibrationConfig,
    watch: &mut dyn LoadObserver,
    progress: &mut dyn FnMut(&str),
) -> Result<(Vec<LoadMeasurement>, Option<usher_profile::LibraryCpuShares>), CalibrateError> {
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
    let mut measure = |plan: &LoadRunPlan, watch: &mut dyn LoadObserver| {
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
        progress(&format!("{method}: CPU time by library"));
        let hold = long_enough(&busy.load.pace, calibration.measurement_time);
        libraries::run_with_perf_sampling(calibration.pid, || {
            measure_load(&busy, method, calibration, hold, watch)
        })?
    } else {
        None
    };
    Ok((measured, libraries))
}

/// Returns the duration of a load: the requested one, or longer until some bursts have come.
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

/// Runs one load. Lateness of the generator does not matter: wake-ups and batch sizes are measured as they are. The CPU
/// time covers whole logins, including the warm-up, because a window would cut bursts in two.
fn measure_load(
    plan: &LoadRunPlan,
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
    // Wait, so that the processor time of the metrics request itself does not count.
    std::thread::sleep(REST);
    let (cpu, begun) = (read()?, Instant::now());
    let outcome = run_load_plan(&plan, watch)?;
    std::thread::sleep(REST);
    let (cpu, seconds) = (read()?.delta_since(&cpu), begun.elapsed().as_secs_f64());
    let counts = ask()?.delta_since(&counts);
    check_calibration_load(&outcome, method)?;
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

/// Checks that a load allows a measurement of its logins.
fn check_calibration_load(outcome: &LoadOutcome, method: &str) -> Result<(), CalibrateError> {
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
