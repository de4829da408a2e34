//! Tests of the generator's honesty: closed steps, its own lateness, several methods, several access servers. And of
//! the ramp against a server of known capacity, in virtual time.

use super::*;
use crate::limit::GeneratorLimitCause;
use crate::ramp::{RampConfig, RampSearch, RampStep, RampStepRunner, climb_ramp};
use usher_crypto::tls::{
    ClientConfig, ServerConfig as TlsServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions,
    TrustRoots, fixtures,
};
use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};

fn accepting_server() -> impl FnOnce(&mut MachineNetwork) {
    scripted_server(|_| (PacketCode::ACCESS_ACCEPT, AttributeList::new()))
}

fn open_pace(rate: f64) -> LoginPace {
    LoginPace::Open { rate, arrivals: LoginArrivals::Regular }
}

#[test]
fn every_login_of_a_step_is_counted_once() {
    let mut c =
        test_config(pap_front(), LoginPace::Open { rate: 800.0, arrivals: LoginArrivals::Exponential });
    (c.warmup, c.outstanding) = (Duration::MAX, 100);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.set_service_time(Duration::from_millis(2));
    w.run_until(1.0);
    let mut meant = 0;
    let mut sum = LoginStats::default();
    for step in 0..4 {
        w.send_command(GeneratorCommand::Pace(open_pace(800.0)));
        w.send_command(GeneratorCommand::Measure);
        w.run_until(2.0 + f64::from(step));
        w.send_command(GeneratorCommand::Close(Duration::from_millis(100)));
        meant += 800;
        sum.add(&w.net[w.generator].take_login_stats());
    }
    // The server handles 500/s, a hundred are outstanding, the others wait for capacity.
    assert_eq!(
        sum.ended_total() + sum.cut_off,
        meant,
        "{:?} {}",
        sum.failures().collect::<Vec<_>>(),
        sum.cut_off
    );
    assert!(sum.cut_off > 0 && sum.failure_count(LoginFailure::Overdue) > 0 && sum.succeeded > 0);
    assert!(sum.started < meant);
}

#[test]
fn what_an_interrupt_cuts_off_is_counted() {
    let mut c = test_config(pap_front(), CLOSED);
    c.duration = Some(Duration::from_secs(60));
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.stall_server(Instant::from_nanos(500_000_000), Instant::FAR_FUTURE);
    w.run_until(1.0);
    w.send_command(GeneratorCommand::Stop);
    w.send_command(GeneratorCommand::Abandon);
    assert!(w.load_generator().is_finished());
    let tally = w.net[w.generator].take_login_stats();
    assert_eq!((tally.cut_off, tally.failed_total()), (8, 0));
    assert_eq!(tally.started, tally.succeeded + 8);
}

#[test]
fn a_slow_generator_says_that_it_is_the_limit() {
    let run = |toil: Duration, service: Duration| {
        let mut c = test_config(pap_front(), open_pace(1000.0));
        (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 100_000);
        let mut w = GeneratorTestNetwork::new(c, accepting_server());
        w.toil = toil;
        w.set_service_time(service);
        w.run_until(2.0);
        GeneratorLimitCause::judge_window(w.load_generator().login_stats(), Some(w.busy.as_secs_f64() / 2.0))
    };
    // The generator handles 400 inputs a second: replies wait for it, although logins begin in time.
    assert!(matches!(
        run(Duration::from_micros(2_500), Duration::ZERO),
        Some(GeneratorLimitCause::Busy { .. })
    ));
    assert_eq!(run(Duration::ZERO, Duration::ZERO), None);
    // With a server that handles 400 logins a second, the server is the limit, not the generator.
    assert_eq!(run(Duration::ZERO, Duration::from_micros(2_500)), None);
}

#[test]
fn a_host_that_stands_still_makes_logins_late() {
    let mut c = test_config(pap_front(), open_pace(1000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 100_000);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.run_until(1.0);
    // The host has no processor for a tenth of a second.
    w.net.skip_time(Duration::from_millis(100));
    w.run_until(60.0);
    assert!(matches!(
        GeneratorLimitCause::judge_window(w.load_generator().login_stats(), Some(0.2)),
        Some(GeneratorLimitCause::Late { .. })
    ));
}

#[test]
fn waiting_for_a_logins_time_is_no_work() {
    let mut c = test_config(pap_front(), open_pace(10.0));
    c.spin = Duration::from_millis(3);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    let at = |us: u64| Instant::from_nanos(us * 1000);
    w.net[w.generator].handle_input(at(0), MachineInput::Timeout);
    for us in (97_000..=99_000).step_by(10) {
        w.net[w.generator].handle_input(at(us), MachineInput::Timeout);
    }
    assert_eq!(w.load_generator().spin_time(), Duration::from_millis(2), "the sleep before is none of it");
    w.net[w.generator].handle_input(at(100_000), MachineInput::Timeout);
    w.net[w.generator].handle_input(at(100_010), MachineInput::Timeout);
    assert_eq!(
        (w.load_generator().spin_time(), w.load_generator().outstanding_logins()),
        (Duration::from_millis(2), 1),
        "a login began"
    );
}

#[test]
fn waiting_for_room_is_not_the_generators_fault() {
    let mut c = test_config(pap_front(), open_pace(1000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 50);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.set_service_time(Duration::from_micros(2_500));
    w.run_until(60.0);
    let tally = w.load_generator().login_stats();
    assert!(quantile(&tally.lag, 0.5).unwrap() > 0.1, "they began late");
    assert!(quantile(&tally.own_lag, 1.0).unwrap() < 1e-3, "since the server was slow");
    assert_eq!(GeneratorLimitCause::judge_window(tally, None), None);
}

/// A ramp's steps in virtual time.
struct VirtualStage(GeneratorTestNetwork, RampConfig);

impl RampStepRunner for VirtualStage {
    type Error = ();
    fn run_step(&mut self, rate: f64) -> Result<RampStep, ()> {
        let w = &mut self.0;
        let until =
            |w: &GeneratorTestNetwork, s: f64| w.now().duration_since(Instant::ZERO).as_secs_f64() + s;
        w.send_command(GeneratorCommand::Pace(open_pace(rate)));
        let settled = until(w, 1.0);
        w.run_until(settled);
        w.net[w.generator].take_login_stats();
        w.send_command(GeneratorCommand::Measure);
        let (held, before) = (until(w, 9.0), w.busy);
        w.run_until(held);
        w.send_command(GeneratorCommand::Close(Duration::from_secs_f64(self.1.p99)));
        let tally = w.net[w.generator].take_login_stats();
        let busy = w.busy.as_secs_f64() - before.as_secs_f64();
        let limit = GeneratorLimitCause::judge_window(&tally, Some(busy / 9.0));
        Ok(RampStep::new(rate, w.measured_time().as_secs_f64(), tally, limit))
    }
    fn on_step_judged(&mut self, step: &RampStep) -> Result<(), ()> {
        if !step.is_sustained {
            let w = &mut self.0;
            w.send_command(GeneratorCommand::Abandon);
            w.send_command(GeneratorCommand::Pace(open_pace(1e-3)));
            // The server finishes its remaining work of them.
            let rest =
                (w.slow.get().free.max(w.now()) + DELAY + DELAY).duration_since(Instant::ZERO).as_secs_f64();
            w.run_until(rest);
        }
        Ok(())
    }
}

fn run_test_ramp(service: Duration, toil: Duration) -> RampSearch {
    let mut c = test_config(pap_front(), open_pace(20.0));
    (c.warmup, c.outstanding) = (Duration::MAX, 100_000);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.toil = toil;
    w.set_service_time(service);
    w.run_until(0.5);
    let config = RampConfig { start: 20.0, ..RampConfig::default() };
    let mut ramp = RampSearch::new(config);
    climb_ramp(&mut ramp, &mut VirtualStage(w, config)).unwrap();
    ramp
}

#[test]
fn a_ramp_finds_the_capacity_and_counts_failures_by_step() {
    let ramp = run_test_ramp(Duration::from_micros(6_250), Duration::ZERO);
    let knee = ramp.find_ramp_knee().unwrap();
    let (low, high) = knee.interval.unwrap();
    // 160/s; an excess of 1 % stays within the limit of 100 ms for the ten seconds of a step.
    assert!((160.0 / 1.05..=162.0).contains(&knee.capacity), "{}", knee.capacity);
    assert!(low <= 161.6 && 160.0 <= high && high / low < 1.2, "{low} {high}");
    assert!(knee.stable && knee.bound.is_none());
    assert!(knee.tally.success_ratio() >= 0.999);
    let failed: Vec<&RampStep> = ramp.steps().iter().filter(|s| !s.is_sustained).collect();
    assert!(failed.len() > 2);
    for step in ramp.steps() {
        let t = &step.tally;
        let meant = (step.rate * 9.0).round() as u64;
        assert!(
            (t.ended_total() + t.cut_off).abs_diff(meant) <= 1,
            "{}: {} of {meant}",
            step.rate,
            t.ended_total() + t.cut_off
        );
    }
    let worst = failed.iter().max_by(|a, b| a.rate.total_cmp(&b.rate)).unwrap();
    assert!(
        worst.tally.success_ratio() < 0.9 && worst.tally.failure_count(LoginFailure::Overdue) > 0,
        "what failed is told"
    );
}

#[test]
fn a_ramp_of_a_slow_generator_is_a_bound() {
    // The generator handles 200 replies a second and also begins logins; the server handles five times as many.
    let ramp = run_test_ramp(Duration::from_millis(1), Duration::from_millis(5));
    let knee = ramp.find_ramp_knee().unwrap();
    assert!(knee.bound.is_some() && knee.capacity < 205.0, "{} {:?}", knee.capacity, knee.bound);
}

#[test]
fn methods_come_by_their_shares_and_are_told_apart() {
    let share = |name: &str, weight| MethodShare { name: name.to_owned(), weight, deniable: true };
    let mut front = radius_config(Some(RadiusLogin::Pap));
    front.logins.push(RadiusLogin::Eap(EapMethod::Md5));
    let mut c = test_config(LoadProtocolConfig::Radius(front.clone()), CLOSED);
    (c.count, c.wrong_share) = (Some(1000), 0.1);
    c.mix = vec![share("pap", 3.0), share("eap-md5", 1.0)];
    let mut w =
        GeneratorTestNetwork::new(c.clone(), aaa_server(&[AuthMethod::Pap, AuthMethod::EapMd5], |_| {}));
    let tally = w.run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (1000, 0));
    let [pap, md5] = &tally.parts[..] else { panic!("two parts: {}", tally.parts.len()) };
    assert!((700..800).contains(&pap.started) && pap.started + md5.started == 1000, "{}", pap.started);
    assert_eq!((pap.succeeded, md5.succeeded), (pap.started, md5.started));
    assert!(is_near(quantile(&pap.latency, 0.5), 0.002) && is_near(quantile(&md5.latency, 0.5), 0.004));
    assert!(tally.expected_rejects > 50);
    // Only the method that the server lacks fails.
    let tally =
        GeneratorTestNetwork::new(c.clone(), aaa_server(&[AuthMethod::Pap], |_| {})).run_until(60.0).clone();
    assert_eq!((tally.parts[0].failed, tally.parts[1].succeeded > tally.parts[1].failed), (0, false));
    c.mix.pop();
    let rng = Seed::new(1).derive_secure_rng("load", 0);
    assert!(LoadGenerator::new(c, Instant::ZERO, rng).is_err(), "each method has its share");
}

#[test]
fn a_mix_over_diameter_asks_for_both_applications() {
    let share = |name: &str| MethodShare { name: name.to_owned(), weight: 1.0, deniable: true };
    let mut front = diameter_front(DiameterLogin::Pap, 1);
    if let LoadProtocolConfig::Diameter(d) = &mut front {
        d.logins.push(DiameterLogin::Eap(EapMethod::Md5));
    }
    let mut c = test_config(front, CLOSED);
    (c.count, c.mix) = (Some(200), vec![share("pap"), share("eap-md5")]);
    let server = aaa_server(&[AuthMethod::Pap, AuthMethod::EapMd5], |config| {
        let applications = [
            DiameterApplication::for_authentication(application::EAP),
            DiameterApplication::for_authentication(application::NASREQ),
        ];
        let mut node = node::DiameterNodeConfig::new("aaa.example.org", "example.org", &applications);
        node.local.addresses.push(SERVER.ip());
        node.accept_unknown = true;
        config.diameter = Some(node);
    });
    let tally = GeneratorTestNetwork::new(c, server).run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (200, 0));
    assert!(tally.parts.iter().all(|p| p.succeeded > 60));
}

#[test]
fn each_access_server_has_its_socket_and_name() {
    let mut front = radius_config(Some(RadiusLogin::Eap(EapMethod::Md5)));
    front.common = AttributeList::new();
    let address = Some("10.1.0.250".parse().unwrap());
    front.fleet = Some(GeneratorNasFleet { count: 10, first: 2, identifier: "ap".into(), address });
    assert_eq!(front.fleet.as_ref().unwrap().nas_address(4), Some("10.1.1.0".parse().unwrap()));
    let mut c =
        test_config(LoadProtocolConfig::Radius(front.clone()), LoginPace::Closed { concurrency: 100 });
    c.count = Some(2000);
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::EapMd5], |_| {}));
    let tally = w.run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (2000, 0));
    assert_eq!(w.source_addresses().len(), 10);
    let addresses: Vec<IpAddr> = w.source_addresses().values().copied().collect();
    assert_eq!((addresses[0], addresses[9]), ("10.1.0.252".parse().unwrap(), "10.1.1.5".parse().unwrap()));

    front.logins = vec![RadiusLogin::Pap];
    let named = scripted_server(|request| {
        let name = request.attributes.get(kind::NAS_IDENTIFIER).unwrap_or_default();
        let known = name.strip_prefix(b"ap-").and_then(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok());
        let good = known.is_some_and(|n| (3..=12).contains(&n));
        (if good { PacketCode::ACCESS_ACCEPT } else { PacketCode::ACCESS_REJECT }, AttributeList::new())
    });
    let mut c = test_config(LoadProtocolConfig::Radius(front), LoginPace::Closed { concurrency: 100 });
    c.count = Some(200);
    assert_eq!(GeneratorTestNetwork::new(c, named).run_until(60.0).succeeded, 200);
}

#[test]
fn an_access_server_has_256_requests_under_way_at_most() {
    let mut front = radius_config(Some(RadiusLogin::Pap));
    front.fleet = Some(GeneratorNasFleet { count: 2, first: 0, identifier: "ap".into(), address: None });
    let mut c = test_config(LoadProtocolConfig::Radius(front), open_pace(100_000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_millis(50)), 10_000);
    let mut w = GeneratorTestNetwork::new(c, accepting_server());
    w.stall_server(Instant::ZERO, Instant::from_nanos(40_000_000));
    w.run_until(0.030);
    assert_eq!(w.load_generator().outstanding_logins(), 512);
    let tally = w.run_until(60.0).clone();
    assert_eq!(tally.succeeded + tally.failure_count(LoginFailure::NotBegun), 5000 - 1);
    assert!(w.source_addresses().len() == 2 && tally.succeeded > 512);
}

#[test]
fn each_user_has_its_certificate_and_anothers_is_to_be_refused() {
    let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
    let version = usher_crypto::tls::TlsVersion::Tls13;
    let client = |credentials| {
        ClientConfig::new(TlsClientOptions {
            versions: version.into(),
            credentials: Some(credentials),
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: None,
            resumption: None,
            clock: clock.clone(),
            key_log: None,
        })
        .unwrap()
    };
    let server = TlsServerConfig::new(TlsServerOptions {
        versions: version.into(),
        credentials: fixtures::server_credentials(2),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: clock.clone(),
        key_log: None,
    });
    let tls = Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(server.unwrap()), fragment: 1000 });
    // The server trusts the authority of the first user's certificate, but not of the second's.
    let each: Arc<[ClientConfig]> =
        [client(fixtures::client_credentials(2)), client(fixtures::untrusted_client_credentials())].into();
    let config_of = client(fixtures::client_credentials(2));
    let method = EapMethod::Tls(EapTlsConfig { config: config_of, each, fragment: 1000, resume: false });
    assert!(method.is_deniable());
    let run = |first: usize, wrong: f64| {
        let mut c = test_config(
            LoadProtocolConfig::Radius(radius_config(Some(RadiusLogin::Eap(method.clone())))),
            CLOSED,
        );
        (c.count, c.wrong_share, c.first) = (Some(4), wrong, first);
        c.users = Arc::new(UserCredentialTable::from_template("user{}@example.org", "", 2).unwrap());
        c.step = 2;
        let (users, tls) = (c.users.len(), tls.clone());
        assert_eq!(users, 2);
        GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::EapTls], |config| config.tls = Some(tls)))
            .run_until(60.0)
            .clone()
    };
    assert_eq!(run(0, 0.0).succeeded, 4);
    assert_eq!(run(1, 0.0).failed_total(), 4, "user 1 shows another certificate than user 0");
    let wrong = run(0, 1.0);
    assert_eq!(
        (wrong.expected_rejects, wrong.failed_total()),
        (4, 0),
        "{:?}",
        wrong.failures().collect::<Vec<_>>()
    );
}
