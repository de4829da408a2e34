//! Derives a profile from measurements.

use super::{CalibrationConfig, CryptoOperationTimes, ServerCounts};
use crate::cpu::CpuTime;
use usher_config::OrderedMap;
use usher_config::units::{EventRate, PositiveCount, TimeSpan};
use usher_core::Duration;
use usher_observe::stats::student;
use usher_profile::{
    CostEquation, CpuCost, LoginTraffic, MachineProfile, MeasuredLoadPoint, MethodProfile,
    ReferenceCryptoRates, ServerProfile, StoreProfile, find_redundant_unknowns, solve_costs,
};

/// Labels counted twice: each response follows from a request, which has its cost.
const COUNTED_TWICE: [&str; 2] = ["radius.response", "diameter.answer"];

/// Weight of each method's last load, which kept the server busy: its cost per login determines the server's capacity.
const BUSY_WEIGHT: f64 = 100.0;

/// Confidence level of the uncertainty of costs in a profile.
const CONFIDENCE: f64 = 0.95;

/// The measurement of a method at one load.
pub(super) struct LoadMeasurement {
    /// Logins per second.
    pub(super) rate: f64,
    /// Number of logins that began at once.
    pub(super) burst: u32,
    /// Accepted logins.
    pub(super) logins: f64,
    /// CPU time of the server.
    pub(super) cpu: CpuTime,
    /// CPU time of the generator for each login, in seconds.
    pub(super) own: f64,
    /// Time between both readings, in seconds.
    pub(super) seconds: f64,
    /// The counters of the server.
    pub(super) counts: ServerCounts,
}

impl LoadMeasurement {
    /// Returns the server's CPU time for each login, in seconds.
    pub(super) fn login_cost(&self) -> f64 {
        self.cpu.total_seconds() / self.logins
    }
    /// Returns the value of a counter for each login.
    fn count_per_login(&self, name: &str) -> f64 {
        self.counts.counter_value(name) / self.logins
    }
    fn server_cost(&self) -> CpuCost {
        CpuCost {
            user: seconds_to_time(self.cpu.user / self.logins),
            system: seconds_to_time(self.cpu.system / self.logins),
        }
    }
    fn wakeups_per_login(&self) -> f64 {
        self.cpu.sleeps as f64 / self.logins
    }
    fn batches_per_login(&self) -> f64 {
        self.count_per_login("driver_events/batches_in")
    }
    fn units_per_login(&self, label: &str) -> f64 {
        match label {
            // Lookups run outside the shard, which therefore does not count them as work, so count cache misses.
            usher_profile::LOOKUP => self.count_per_login("cache/miss"),
            _ => self.count_per_login(&format!("work/{label}")),
        }
    }
}

/// Builds the profile from all measurements.
pub(super) fn build_profile(
    calibration: &CalibrationConfig,
    operations: &CryptoOperationTimes,
    all: &[Vec<LoadMeasurement>],
    libraries: Vec<Option<usher_profile::LibraryCpuShares>>,
) -> ServerProfile {
    let labels = list_login_work_kinds(all);
    let given: Vec<Option<f64>> =
        labels.iter().map(|label| operation_seconds(label, calibration, operations)).collect();
    // The units are the kinds of work, then wake-ups, then batches.
    let equation = |m: &LoadMeasurement, weight: f64| CostEquation {
        units: labels
            .iter()
            .map(|label| m.units_per_login(label))
            .chain([m.wakeups_per_login(), m.batches_per_login()])
            .collect(),
        // The fit minimizes relative errors, which need a cost above zero.
        cost: m.login_cost().max(1e-9),
        weight,
    };
    let of_method = |measured: &[LoadMeasurement]| -> Vec<CostEquation> {
        let weight = |at: usize| if at + 1 == measured.len() { BUSY_WEIGHT } else { 1.0 };
        measured.iter().enumerate().map(|(at, m)| equation(m, weight(at))).collect()
    };
    let equations: Vec<CostEquation> = all.iter().flat_map(|measured| of_method(measured)).collect();
    // Each wake-up takes in a batch, so measurements hardly tell the two apart. Wake-ups cost far more, so they get the
    // common part, and batches get the rest.
    let mut more: Vec<Option<f64>> = given.iter().copied().chain([None, Some(0.0)]).collect();
    // If no load separates a kind of work from others, its cost is zero. A random share for it would make predictions
    // of unmeasured methods random.
    let spare = find_redundant_unknowns(&equations, &more, labels.len());
    more.iter_mut().zip(&spare).filter(|(_, spare)| **spare).for_each(|(given, _)| *given = Some(0.0));
    let mut solved = solve_costs(&equations, &more);
    solved.fit_omitted_cost(&equations, labels.len() + 1);
    let system = kernel_cpu_share(all, &labels, &given, &solved.costs);
    let cost = |at: usize| {
        // Public-key operations run in user mode only, so a given cost has no system time.
        let system = if more[at].is_some() { 0.0 } else { solved.costs[at] * system };
        CpuCost { user: seconds_to_time(solved.costs[at] - system), system: seconds_to_time(system) }
    };
    let mut work = OrderedMap::default();
    let priced = || labels.iter().enumerate().filter(|(at, _)| !spare[*at]);
    priced().for_each(|(at, label)| work.insert(label.clone(), cost(at)));
    let mut within = OrderedMap::default();
    let errors = priced().filter_map(|(at, label)| Some((at, label, solved.errors[at]?)));
    // If there are as many unknowns as loads, the error is unknown. As a bound, a unit costs at most as much as the
    // cheapest login per unit.
    let most = |at: usize| {
        let bounds = equations.iter().filter(|e| e.units[at] > 0.0).map(|e| e.cost / e.units[at]);
        bounds.fold(f64::INFINITY, f64::min)
    };
    errors.filter(|_| solved.freedom > 0).for_each(|(at, label, error)| {
        let half = student::t_quantile(CONFIDENCE, solved.freedom as f64) * error;
        within.insert(label.clone(), seconds_to_time(half.min(most(at))));
    });
    let mut methods = OrderedMap::default();
    let mut row = 0;
    for ((name, measured), libraries) in calibration.methods.iter().zip(all).zip(libraries) {
        let accounted = &solved.accounted[row..row + measured.len()];
        row += measured.len();
        let Some(last) = measured.last() else { continue };
        let mut of_work = OrderedMap::default();
        labels.iter().map(|l| (l, last.units_per_login(l))).filter(|(_, n)| *n > 0.0).for_each(|(l, n)| {
            of_work.insert(l.clone(), n);
        });
        let traffic = |way: &str, messages: &str| {
            let datagrams = last.count_per_login(&format!("driver_events/datagrams_{way}"));
            let octets = ["datagram", "stream"]
                .map(|kind| last.count_per_login(&format!("driver_events/{kind}_octets_{way}")))
                .into_iter()
                .sum();
            // A gateway receives as many messages as it sends, both of IKE and to AAA servers, so half of them count.
            let of_ike = last.count_per_login("work/ike.message") / 2.0;
            let asked = if of_ike > 0.0 { last.count_per_login("work/radius.request") } else { 0.0 };
            let streams = of_ike + asked + last.count_per_login(&format!("work/{messages}"));
            LoginTraffic { messages: if datagrams > 0.0 { datagrams } else { streams }, octets }
        };
        let profile = MethodProfile {
            received: traffic("in", "diameter.request"),
            sent: traffic("out", "diameter.request"),
            server: last.server_cost(),
            generator: generator_cpu_cost(last.own),
            units: of_work,
            loads: measured.iter().zip(accounted).map(|(m, share)| load_point(m, *share)).collect(),
            libraries,
        };
        methods.insert(name.clone(), profile);
    }
    let reference = ReferenceCryptoRates {
        rsa_2048_sign: EventRate::from_per_second(1.0 / operations.rsa_2048.0),
        ecdsa_p256_sign: EventRate::from_per_second(1.0 / operations.ecdsa_p256.0),
        md5: EventRate::from_per_second(1.0 / operations.md5),
    };
    let host = usher_observe::manifest::RunHostInfo::detect();
    // Count the machine's cores, because the generator may have access to some of them only.
    let listed = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let listed = listed.lines().filter(|line| line.starts_with("processor\t")).count();
    let cores = u32::try_from(listed.max(host.cores)).unwrap_or(1);
    let store = build_store_profile(calibration, all);
    ServerProfile {
        program: calibration.program.clone(),
        date: calibration.date.clone(),
        machine: MachineProfile {
            processor: host.cpu,
            cores: PositiveCount::from_u32(cores.max(1)),
            kernel: host.kernel,
            reference,
        },
        configuration: calibration.configuration.clone(),
        work,
        within,
        wakeup: cost(labels.len()),
        batch: cost(labels.len() + 1),
        methods,
        store,
    }
}

/// Returns the seconds of one public-key operation for a kind of work, as this machine performs it.
fn operation_seconds(
    label: &str,
    calibration: &CalibrationConfig,
    operations: &CryptoOperationTimes,
) -> Option<f64> {
    let (sign, verify) =
        if calibration.rsa == Some(false) { operations.ecdsa_p256 } else { operations.rsa_2048 };
    match label {
        "tls.sign" | "ike.sign" => Some(sign),
        "tls.verify" => Some(verify),
        "tls.key_exchange" => Some(operations.x25519),
        "ike.key_exchange" => calibration.key_exchange,
        _ => None,
    }
}

/// Returns the kernel's share of all work except public-key operations, from the ticks of all loads. The ticks of one
/// load are too few to divide among kinds of work.
fn kernel_cpu_share(
    all: &[Vec<LoadMeasurement>],
    labels: &[String],
    given: &[Option<f64>],
    costs: &[f64],
) -> f64 {
    let (mut total, mut system) = (0.0, 0.0);
    for m in all.iter().flatten() {
        let operations: f64 = labels
            .iter()
            .zip(given)
            .zip(costs)
            .filter(|((_, given), _)| given.is_some())
            .map(|((label, _), cost)| m.units_per_login(label) * cost)
            .sum();
        total += m.cpu.total_seconds() - operations * m.logins;
        system += m.cpu.system;
    }
    if total > 0.0 { (system / total).clamp(0.0, 1.0) } else { 0.0 }
}

/// Returns the kinds of work that any login did, messages first, because the first get the cost that loads cannot
/// separate. IKE's messages and the one-time work of an IKE_SA come before requests to AAA servers, because each login
/// has them.
fn list_login_work_kinds(all: &[Vec<LoadMeasurement>]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    let looked_up = all.iter().flatten().any(|m| m.counts.counter_value("cache/miss") > 0.0);
    let first = ["ike.message", "ike.sa", "radius.request", "diameter.request"].map(str::to_owned);
    let counted = all.iter().flatten().flat_map(|m| m.counts.counts_by_kind("work"));
    let counted = counted.filter(|(_, n)| *n > 0.0).map(|(label, _)| label.to_owned()).collect::<Vec<_>>();
    let lookup = looked_up.then(|| usher_profile::LOOKUP.to_owned());
    for label in first.into_iter().filter(|l| counted.contains(l)).chain(counted.clone()).chain(lookup) {
        if !labels.contains(&label) && !COUNTED_TWICE.contains(&&*label) {
            labels.push(label);
        }
    }
    labels
}

/// Returns the store's time, from all lookups.
fn build_store_profile(
    calibration: &CalibrationConfig,
    all: &[Vec<LoadMeasurement>],
) -> Option<StoreProfile> {
    let sum = |name: &str| all.iter().flatten().map(|m| m.counts.counter_value(name)).sum::<f64>();
    let lookups = sum("store_latency_seconds_count");
    let lookup = seconds_to_time(sum("store_latency_seconds_sum") / lookups.max(1.0));
    let round_trips = calibration.round_trips?;
    (lookups > 0.0).then_some(StoreProfile { lookup, round_trips })
}

fn load_point(m: &LoadMeasurement, accounted: f64) -> MeasuredLoadPoint {
    MeasuredLoadPoint {
        rate: EventRate::from_per_second(m.rate),
        burst: PositiveCount::from_u32(m.burst.max(1)),
        logins: m.logins as u64,
        server: m.server_cost(),
        wakeups: m.wakeups_per_login(),
        batches: m.batches_per_login(),
        utilisation: m.cpu.total_seconds() / m.seconds.max(1e-9),
        accounted,
    }
}

/// Returns the generator's cost as a total: it keeps its processor between logins, so user and system time cannot be
/// separated.
fn generator_cpu_cost(seconds: f64) -> CpuCost {
    CpuCost { user: seconds_to_time(seconds), system: TimeSpan::default() }
}

fn seconds_to_time(seconds: f64) -> TimeSpan {
    TimeSpan(Duration::from_secs_f64(seconds.max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::super::CalibratedServerKind;
    use super::*;
    use usher_profile::{ServerConfiguration, StoreKind, UnsoundProfileError};

    /// Seconds of a server's work: a request, a digest, a wake-up and a batch.
    const REQUEST: f64 = 5e-6;
    const DIGEST: f64 = 2e-6;
    const WAKEUP: f64 = 4e-6;
    const BATCH: f64 = 1.5e-6;

    fn test_operations() -> CryptoOperationTimes {
        CryptoOperationTimes {
            rsa_2048: (600e-6, 20e-6),
            ecdsa_p256: (20e-6, 60e-6),
            x25519: 40e-6,
            md5: 1e-7,
        }
    }

    fn test_calibration(methods: &[&str], rsa: Option<bool>) -> CalibrationConfig {
        CalibrationConfig {
            methods: methods.iter().map(|name| (*name).to_owned()).collect(),
            pid: 1,
            server: CalibratedServerKind::Aaa,
            metrics: ([127, 0, 0, 1], 1).into(),
            configuration: ServerConfiguration {
                fingerprint: "00".to_owned(),
                shards: PositiveCount::ONE,
                store: StoreKind::Memory,
                cached: false,
            },
            round_trips: None,
            rsa,
            key_exchange: None,
            measurement_time: Duration::from_secs(1),
            libraries: false,
            program: "0".to_owned(),
            date: "2026-11-25".to_owned(),
        }
    }

    /// Simulates the measurement of 1000 logins. Each has these numbers of requests, other units, wake-ups and batches.
    /// The CPU time is wrong by a factor.
    fn simulated_measurement(
        work: &[(&str, f64, f64)],
        wakeups: f64,
        batches: f64,
        wrong: f64,
    ) -> LoadMeasurement {
        const LOGINS: f64 = 1000.0;
        let worked: f64 = work.iter().map(|(_, units, cost)| units * cost).sum();
        let of_gateway = work[0].0 == "ike.message";
        let (server, prefix) = if of_gateway {
            (CalibratedServerKind::Gateway, "usher_ike")
        } else {
            (CalibratedServerKind::Aaa, "usher_aaa")
        };
        // A gateway does not count its batches.
        let batches = if of_gateway { 0.0 } else { batches };
        let mut text = match server {
            CalibratedServerKind::Gateway => format!("usher_ike_sessions_total {LOGINS}\n"),
            CalibratedServerKind::Aaa => format!(
                "usher_aaa_logins_total{{result=\"accept\"}} {LOGINS}\nusher_aaa_driver_events_total{{kind=\"datagrams_in\"}} {}\n\
                 usher_aaa_driver_events_total{{kind=\"batches_in\"}} {}\n",
                work[0].1 * LOGINS,
                batches * LOGINS
            ),
        };
        for (label, units, _) in work {
            text += &format!("{prefix}_work_total{{kind=\"{label}\"}} {}\n", units * LOGINS);
        }
        let mut cpu = CpuTime::default();
        cpu.user = LOGINS * wrong * (worked + wakeups * WAKEUP + batches * BATCH);
        cpu.sleeps = (LOGINS * wakeups) as u64;
        LoadMeasurement {
            rate: 1000.0,
            burst: 1,
            logins: LOGINS,
            cpu,
            own: 1e-5,
            seconds: 1.0,
            counts: ServerCounts::parse(server, &text),
        }
    }

    /// Simulates a method's loads: steady ones, and bursts in which requests share wake-ups and batches.
    fn simulated_measurements(work: &[(&str, f64, f64)], wrong: [f64; 4]) -> Vec<LoadMeasurement> {
        let messages = work[0].1;
        let shared = [(1.0, 1.0), (0.97, 0.99), (0.3, 0.5), (0.001, 0.05)];
        shared
            .iter()
            .zip(wrong)
            .map(|((wakeups, batches), wrong)| {
                simulated_measurement(work, messages * wakeups, messages * batches, wrong)
            })
            .collect()
    }

    const PAP: [(&str, f64, f64); 1] = [("radius.request", 1.0, REQUEST)];
    const MD5: [(&str, f64, f64); 2] = [("radius.request", 2.0, REQUEST), ("eap.md5", 1.0, DIGEST)];

    #[test]
    fn costs_are_found_again() {
        let all = [simulated_measurements(&PAP, [1.0; 4]), simulated_measurements(&MD5, [1.0; 4])];
        let file = build_profile(
            &test_calibration(&["pap", "eap-md5"], None),
            &test_operations(),
            &all,
            vec![None, None],
        );
        file.check_costs_explain_loads().unwrap();
        let near = |a: f64, b: f64, share: f64| assert!((a / b - 1.0).abs() < share, "{a} {b}");
        near(file.work.get("radius.request").unwrap().total_seconds(), REQUEST, 0.03);
        near(file.work.get("eap.md5").unwrap().total_seconds(), DIGEST, 0.03);
        // Wake-ups get most of the cost of the batches that come with them.
        near(file.wakeup.total_seconds() + file.batch.total_seconds(), WAKEUP + BATCH, 0.15);
        assert!(file.batch.total_seconds() < BATCH);
        near(file.busy_login_seconds(file.methods.get("pap").unwrap()), REQUEST, 0.03);
    }

    #[test]
    fn what_a_busy_server_can_do_bears_errors_of_the_measurement() {
        // Errors of several per cent, as other programs cause them; smaller ones where the server is busy.
        let all = [
            simulated_measurements(&PAP, [1.08, 0.93, 1.04, 0.98]),
            simulated_measurements(&MD5, [0.94, 1.06, 0.96, 1.02]),
        ];
        let file = build_profile(
            &test_calibration(&["pap", "eap-md5"], None),
            &test_operations(),
            &all,
            vec![None, None],
        );
        file.check_costs_explain_loads().unwrap();
        for (method, right) in [("pap", REQUEST), ("eap-md5", 2.0 * REQUEST + DIGEST)] {
            let busy = file.busy_login_seconds(file.methods.get(method).unwrap());
            assert!((busy / right - 1.0).abs() < 0.04, "{method}: {busy}");
        }
        // Each cost has its uncertainty; that of a digest, the rest of a login by EAP-MD5, is as large as the cost.
        for (label, right, doubtful) in [("radius.request", REQUEST, false), ("eap.md5", DIGEST, true)] {
            let (cost, within) =
                (file.work.get(label).unwrap().total_seconds(), file.within.get(label).unwrap().get());
            let within = within.as_secs_f64();
            assert!((cost - right).abs() < within, "{label}: {cost} within {within}");
            assert_eq!(file.is_work_cost_doubtful(label), doubtful, "{label}: {cost} within {within}");
        }
    }

    #[test]
    fn public_key_operations_cost_what_the_library_takes() {
        for (rsa, (sign, verify)) in
            [(true, test_operations().rsa_2048), (false, test_operations().ecdsa_p256)]
        {
            let work = [
                ("radius.request", 5.0, 20e-6),
                ("tls.sign", 1.0, sign),
                ("tls.verify", 1.0, verify),
                ("tls.key_exchange", 1.0, test_operations().x25519),
            ];
            let all = [simulated_measurements(&work, [1.0; 4])];
            let file = build_profile(
                &test_calibration(&["eap-tls"], Some(rsa)),
                &test_operations(),
                &all,
                vec![None],
            );
            file.check_costs_explain_loads().unwrap();
            let cost = |label: &str| file.work.get(label).unwrap().total_seconds();
            assert!((cost("tls.sign") - sign).abs() < 1e-8, "{}", cost("tls.sign"));
            assert!((cost("radius.request") - 20e-6).abs() < 1e-7, "{}", cost("radius.request"));
        }
    }

    #[test]
    fn what_a_gateway_asks_by_is_told_from_its_messages() {
        const MESSAGE: f64 = 9e-6;
        const ONCE: f64 = 40e-6;
        const OPERATION: f64 = 15e-6;
        const REQUEST_COST: f64 = 35e-6;
        // As gateways count them, with the deletion; and with eight empty exchanges.
        let psk_with = |exchanges: f64| {
            [
                ("ike.message", 6.0 + 2.0 * exchanges, MESSAGE),
                ("ike.sa", 1.0, ONCE),
                ("ike.key_exchange", 2.0, OPERATION),
                ("ike.open", 2.0 + exchanges, 0.0),
                ("ike.protect", 2.0 + exchanges, 0.0),
                ("ike.derive", 3.0, 2e-7),
            ]
        };
        let md5 = [
            ("ike.message", 10.0, MESSAGE),
            ("ike.sa", 1.0, ONCE),
            ("ike.key_exchange", 2.0, OPERATION),
            ("ike.open", 4.0, 0.0),
            ("ike.protect", 4.0, 0.0),
            ("ike.derive", 2.0, 2e-7),
            ("radius.request", 2.0, REQUEST_COST),
            ("radius.response", 2.0, 0.0),
        ];
        let ways = ["ike-psk", "ike-eap-md5", "ike-psk-probed"];
        let of = |ways: &[&str], all: &[Vec<LoadMeasurement>]| {
            let calibration =
                CalibrationConfig { key_exchange: Some(OPERATION), ..test_calibration(ways, None) };
            let file = build_profile(&calibration, &test_operations(), all, vec![None; all.len()]);
            file.check_costs_explain_loads().unwrap();
            file
        };
        let all = [
            simulated_measurements(&psk_with(0.0), [1.0; 4]),
            simulated_measurements(&md5, [1.0; 4]),
            simulated_measurements(&psk_with(8.0), [1.0; 4]),
        ];
        let file = of(&ways, &all);
        let cost = |label: &str| file.work.get(label).unwrap().total_seconds();
        let near = |label: &str, right: f64| {
            assert!((cost(label) / right - 1.0).abs() < 0.05, "{label}: {} {right}", cost(label));
        };
        near("ike.key_exchange", OPERATION);
        near("ike.message", MESSAGE);
        near("ike.sa", ONCE);
        near("radius.request", REQUEST_COST);
        // Work that never occurs alone has no cost of its own.
        let unpriced = ["ike.derive", "ike.open", "ike.protect"];
        assert_eq!(file.uncosted_work_labels().into_iter().collect::<Vec<_>>(), unpriced);
        // Runs without liveness checks cannot tell the cost of a request from that of a message or of one-time work.
        // These three costs are then wrong, but the total cost of a login is right.
        let less = of(&ways[..2], &all[..2]);
        assert!(less.uncosted_work_labels().contains("ike.sa"), "{:?}", less.work);
        assert!(
            less.work.get("radius.request").unwrap().total_seconds() < 0.7 * REQUEST_COST,
            "{:?}",
            less.work
        );
        for method in &ways[..2] {
            let [few, all] =
                [&less, &file].map(|file| file.busy_login_seconds(file.methods.get(method).unwrap()));
            assert!((few / all - 1.0).abs() < 0.02, "{method}: {few} {all}");
        }
        let received = |method: &str| file.methods.get(method).unwrap().received.messages;
        assert!((received("ike-eap-md5") - 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_gateways_signatures_cost_what_its_key_takes() {
        for (rsa, (sign, _)) in [(true, test_operations().rsa_2048), (false, test_operations().ecdsa_p256)] {
            let work = [("ike.message", 8.0, 20e-6), ("ike.sign", 1.0, sign), ("ike.verify", 1.0, 0.0)];
            let all = [simulated_measurements(&work, [1.0; 4])];
            let file = build_profile(
                &test_calibration(&["ike-certificate"], Some(rsa)),
                &test_operations(),
                &all,
                vec![None],
            );
            let cost = |label: &str| file.work.get(label).unwrap().total_seconds();
            assert!((cost("ike.sign") - sign).abs() < 1e-8, "{}", cost("ike.sign"));
            assert!((cost("ike.message") - 20e-6).abs() < 1e-7, "{}", cost("ike.message"));
        }
    }

    #[test]
    fn what_does_not_fit_together_is_unsound() {
        // Two requests and a digest took less time than two requests.
        let all = [simulated_measurements(&PAP, [1.0; 4]), simulated_measurements(&MD5, [0.6; 4])];
        let file = build_profile(
            &test_calibration(&["pap", "eap-md5"], None),
            &test_operations(),
            &all,
            vec![None, None],
        );
        assert!(
            matches!(file.check_costs_explain_loads(), Err(UnsoundProfileError::Accounted { .. })),
            "{:?}",
            file.check_costs_explain_loads()
        );
        // All cost would be wake-ups.
        let nothing = [("radius.request", 1.0, 1e-9)];
        let all =
            [1.0, 0.97, 0.3, 0.05].map(|wakeups| simulated_measurement(&nothing, wakeups, wakeups, 1.0));
        let file =
            build_profile(&test_calibration(&["pap"], None), &test_operations(), &[all.into()], vec![None]);
        assert!(
            matches!(file.check_costs_explain_loads(), Err(UnsoundProfileError::Free { .. })),
            "{:?}",
            file.check_costs_explain_loads()
        );
    }
}
