//! What the generator says of itself and of what it could not see: steps that end, its own lateness, several methods,
//! several access servers. And the ramp against a server of known capacity, in virtual time.

use super::*;
use crate::limit::Limit;
use crate::ramp::{Ramp, RampConfig, Stage, Step, climb};
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Roots, ServerConfig as TlsServerConfig, ServerOptions, WallClock, fixtures,
};
use usher_eap::method::tls::{ServerMethodTls, ServerTls};

fn accepts() -> impl FnOnce(&mut Network) {
    scripted(|_| (Code::ACCESS_ACCEPT, Attributes::new()))
}

fn open(rate: f64) -> Pace {
    Pace::Open { rate, arrivals: Arrivals::Regular }
}

#[test]
fn every_login_of_a_step_is_counted_once() {
    let mut c = config(pap(), Pace::Open { rate: 800.0, arrivals: Arrivals::Exponential });
    (c.warmup, c.outstanding) = (Duration::MAX, 100);
    let mut w = World::new(c, accepts());
    w.serve(Duration::from_millis(2));
    w.run(1.0);
    let mut meant = 0;
    let mut sum = Tally::default();
    for step in 0..4 {
        w.command(Command::Pace(open(800.0)));
        w.command(Command::Measure);
        w.run(2.0 + f64::from(step));
        w.command(Command::Close(Duration::from_millis(100)));
        meant += 800;
        sum.add(&w.net[w.generator].take_tally());
    }
    // The server takes 500/s, a hundred are under way, the others wait for room.
    assert_eq!(sum.ended() + sum.cut_off, meant, "{:?} {}", sum.failures().collect::<Vec<_>>(), sum.cut_off);
    assert!(sum.cut_off > 0 && sum.failed(Failure::Overdue) > 0 && sum.succeeded > 0);
    assert!(sum.begun < meant);
}

#[test]
fn what_an_interrupt_cuts_off_is_counted() {
    let mut c = config(pap(), CLOSED);
    c.duration = Some(Duration::from_secs(60));
    let mut w = World::new(c, accepts());
    w.stall(Instant::from_nanos(500_000_000), Instant::FAR_FUTURE);
    w.run(1.0);
    w.command(Command::Stop);
    w.command(Command::Abandon);
    assert!(w.load().is_finished());
    let tally = w.net[w.generator].take_tally();
    assert_eq!((tally.cut_off, tally.failed_total()), (8, 0));
    assert_eq!(tally.begun, tally.succeeded + 8);
}

#[test]
fn a_slow_generator_says_that_it_is_the_limit() {
    let run = |toil: Duration, service: Duration| {
        let mut c = config(pap(), open(1000.0));
        (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 100_000);
        let mut w = World::new(c, accepts());
        w.toil = toil;
        w.serve(service);
        w.run(2.0);
        Limit::judge(w.load().tally(), Some(w.busy.as_secs_f64() / 2.0))
    };
    // It does 400 things a second: answers wait for it, whatever it begins in time.
    assert!(matches!(run(Duration::from_micros(2_500), Duration::ZERO), Some(Limit::Busy { .. })));
    assert_eq!(run(Duration::ZERO, Duration::ZERO), None);
    // A server that does 400 logins a second is slow, not the generator.
    assert_eq!(run(Duration::ZERO, Duration::from_micros(2_500)), None);
}

#[test]
fn a_host_that_stands_still_makes_logins_late() {
    let mut c = config(pap(), open(1000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 100_000);
    let mut w = World::new(c, accepts());
    w.run(1.0);
    // The host has no processor for a tenth of a second.
    w.net.pass(Duration::from_millis(100));
    w.run(60.0);
    assert!(matches!(Limit::judge(w.load().tally(), Some(0.2)), Some(Limit::Late { .. })));
}

#[test]
fn waiting_for_a_logins_time_is_no_work() {
    let mut c = config(pap(), open(10.0));
    c.spin = Duration::from_millis(3);
    let mut w = World::new(c, accepts());
    let at = |us: u64| Instant::from_nanos(us * 1000);
    w.net[w.generator].handle(at(0), Input::Timeout);
    for us in (97_000..=99_000).step_by(10) {
        w.net[w.generator].handle(at(us), Input::Timeout);
    }
    assert_eq!(w.load().spun(), Duration::from_millis(2), "the sleep before is none of it");
    w.net[w.generator].handle(at(100_000), Input::Timeout);
    w.net[w.generator].handle(at(100_010), Input::Timeout);
    assert_eq!((w.load().spun(), w.load().outstanding()), (Duration::from_millis(2), 1), "a login began");
}

#[test]
fn waiting_for_room_is_not_the_generators_fault() {
    let mut c = config(pap(), open(1000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_secs(2)), 50);
    let mut w = World::new(c, accepts());
    w.serve(Duration::from_micros(2_500));
    w.run(60.0);
    let tally = w.load().tally();
    assert!(quantile(&tally.lag, 0.5).unwrap() > 0.1, "they began late");
    assert!(quantile(&tally.own_lag, 1.0).unwrap() < 1e-3, "since the server was slow");
    assert_eq!(Limit::judge(tally, None), None);
}

/// A ramp's steps in virtual time.
struct Virtual(World, RampConfig);

impl Stage for Virtual {
    type Error = ();
    fn step(&mut self, rate: f64) -> Result<Step, ()> {
        let w = &mut self.0;
        let until = |w: &World, s: f64| w.now().since(Instant::ZERO).as_secs_f64() + s;
        w.command(Command::Pace(open(rate)));
        let settled = until(w, 1.0);
        w.run(settled);
        w.net[w.generator].take_tally();
        w.command(Command::Measure);
        let (held, before) = (until(w, 9.0), w.busy);
        w.run(held);
        w.command(Command::Close(Duration::from_secs_f64(self.1.p99)));
        let tally = w.net[w.generator].take_tally();
        let busy = w.busy.as_secs_f64() - before.as_secs_f64();
        let limit = Limit::judge(&tally, Some(busy / 9.0));
        Ok(Step::new(rate, w.measured().as_secs_f64(), tally, limit))
    }
    fn judged(&mut self, step: &Step) -> Result<(), ()> {
        if !step.kept_up {
            let w = &mut self.0;
            w.command(Command::Abandon);
            w.command(Command::Pace(open(1e-3)));
            // What the server has yet to do of them is done.
            let rest = (w.slow.get().free.max(w.now()) + DELAY + DELAY).since(Instant::ZERO).as_secs_f64();
            w.run(rest);
        }
        Ok(())
    }
}

fn ramp(service: Duration, toil: Duration) -> Ramp {
    let mut c = config(pap(), open(20.0));
    (c.warmup, c.outstanding) = (Duration::MAX, 100_000);
    let mut w = World::new(c, accepts());
    w.toil = toil;
    w.serve(service);
    w.run(0.5);
    let config = RampConfig { start: 20.0, ..RampConfig::default() };
    let mut ramp = Ramp::new(config);
    climb(&mut ramp, &mut Virtual(w, config)).unwrap();
    ramp
}

#[test]
fn a_ramp_finds_the_capacity_of_a_server_with_the_failures_of_its_steps() {
    let ramp = ramp(Duration::from_micros(6_250), Duration::ZERO);
    let knee = ramp.knee().unwrap();
    let (low, high) = knee.interval.unwrap();
    // 160/s; an excess of 1 % keeps within the limit of 100 ms for the ten seconds of a step.
    assert!((160.0 / 1.05..=162.0).contains(&knee.capacity), "{}", knee.capacity);
    assert!(low <= 161.6 && 160.0 <= high && high / low < 1.2, "{low} {high}");
    assert!(knee.stable && knee.bound.is_none());
    assert!(knee.tally.success() >= 0.999);
    let failed: Vec<&Step> = ramp.steps().iter().filter(|s| !s.kept_up).collect();
    assert!(failed.len() > 2);
    for step in ramp.steps() {
        let t = &step.tally;
        let meant = (step.rate * 9.0).round() as u64;
        assert!(
            (t.ended() + t.cut_off).abs_diff(meant) <= 1,
            "{}: {} of {meant}",
            step.rate,
            t.ended() + t.cut_off
        );
    }
    let worst = failed.iter().max_by(|a, b| a.rate.total_cmp(&b.rate)).unwrap();
    assert!(worst.tally.success() < 0.9 && worst.tally.failed(Failure::Overdue) > 0, "what failed is told");
}

#[test]
fn a_ramp_of_a_slow_generator_is_a_bound() {
    // The generator takes 200 answers a second, and begins logins along with them; the server gives five times as many.
    let ramp = ramp(Duration::from_millis(1), Duration::from_millis(5));
    let knee = ramp.knee().unwrap();
    assert!(knee.bound.is_some() && knee.capacity < 205.0, "{} {:?}", knee.capacity, knee.bound);
}

#[test]
fn methods_come_by_their_shares_and_are_told_apart() {
    let share = |name: &str, weight| Share { name: name.to_owned(), weight, deniable: true };
    let mut front = radius(Some(RadiusLogin::Pap));
    front.logins.push(RadiusLogin::Eap(EapMethod::Md5));
    let mut c = config(FrontConfig::Radius(front.clone()), CLOSED);
    (c.count, c.wrong_share) = (Some(1000), 0.1);
    c.mix = vec![share("pap", 3.0), share("eap-md5", 1.0)];
    let mut w = World::new(c.clone(), aaa(&[Method::Pap, Method::EapMd5], |_| {}));
    let tally = w.run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (1000, 0));
    let [pap, md5] = &tally.parts[..] else { panic!("two parts: {}", tally.parts.len()) };
    assert!((700..800).contains(&pap.begun) && pap.begun + md5.begun == 1000, "{}", pap.begun);
    assert_eq!((pap.succeeded, md5.succeeded), (pap.begun, md5.begun));
    assert!(near(quantile(&pap.latency, 0.5), 0.002) && near(quantile(&md5.latency, 0.5), 0.004));
    assert!(tally.expected_rejects > 50);
    // One that the server does not do fails alone.
    let tally = World::new(c.clone(), aaa(&[Method::Pap], |_| {})).run(60.0).clone();
    assert_eq!((tally.parts[0].failed, tally.parts[1].succeeded > tally.parts[1].failed), (0, false));
    c.mix.pop();
    let rng = Seed::new(1).secure("load", 0);
    assert!(Generator::new(c, Instant::ZERO, rng).is_err(), "each method has its share");
}

#[test]
fn a_mix_over_diameter_asks_for_both_applications() {
    let share = |name: &str| Share { name: name.to_owned(), weight: 1.0, deniable: true };
    let mut front = diameter(DiameterLogin::Pap, 1);
    if let FrontConfig::Diameter(d) = &mut front {
        d.logins.push(DiameterLogin::Eap(EapMethod::Md5));
    }
    let mut c = config(front, CLOSED);
    (c.count, c.mix) = (Some(200), vec![share("pap"), share("eap-md5")]);
    let server = aaa(&[Method::Pap, Method::EapMd5], |config| {
        let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
        let mut node = node::Config::new("aaa.example.org", "example.org", &applications);
        node.local.addresses.push(SERVER.ip());
        node.accept_unknown = true;
        config.diameter = Some(node);
    });
    let tally = World::new(c, server).run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (200, 0));
    assert!(tally.parts.iter().all(|p| p.succeeded > 60));
}

#[test]
fn each_access_server_has_its_socket_and_name() {
    let mut front = radius(Some(RadiusLogin::Eap(EapMethod::Md5)));
    front.common = Attributes::new();
    let address = Some("10.1.0.250".parse().unwrap());
    front.fleet = Some(Fleet { count: 10, first: 2, identifier: "ap".into(), address });
    assert_eq!(front.fleet.as_ref().unwrap().address(4), Some("10.1.1.0".parse().unwrap()));
    let mut c = config(FrontConfig::Radius(front.clone()), Pace::Closed { concurrency: 100 });
    c.count = Some(2000);
    let mut w = World::new(c, aaa(&[Method::EapMd5], |_| {}));
    let tally = w.run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (2000, 0));
    assert_eq!(w.sources().len(), 10);
    let addresses: Vec<IpAddr> = w.sources().values().copied().collect();
    assert_eq!((addresses[0], addresses[9]), ("10.1.0.252".parse().unwrap(), "10.1.1.5".parse().unwrap()));

    front.logins = vec![RadiusLogin::Pap];
    let named = scripted(|request| {
        let name = request.attributes.get(kind::NAS_IDENTIFIER).unwrap_or_default();
        let known = name.strip_prefix(b"ap-").and_then(|n| std::str::from_utf8(n).ok()?.parse::<u32>().ok());
        let good = known.is_some_and(|n| (3..=12).contains(&n));
        (if good { Code::ACCESS_ACCEPT } else { Code::ACCESS_REJECT }, Attributes::new())
    });
    let mut c = config(FrontConfig::Radius(front), Pace::Closed { concurrency: 100 });
    c.count = Some(200);
    assert_eq!(World::new(c, named).run(60.0).succeeded, 200);
}

#[test]
fn an_access_server_has_256_requests_under_way_at_most() {
    let mut front = radius(Some(RadiusLogin::Pap));
    front.fleet = Some(Fleet { count: 2, first: 0, identifier: "ap".into(), address: None });
    let mut c = config(FrontConfig::Radius(front), open(100_000.0));
    (c.duration, c.outstanding) = (Some(Duration::from_millis(50)), 10_000);
    let mut w = World::new(c, accepts());
    w.stall(Instant::ZERO, Instant::from_nanos(40_000_000));
    w.run(0.030);
    assert_eq!(w.load().outstanding(), 512);
    let tally = w.run(60.0).clone();
    assert_eq!(tally.succeeded + tally.failed(Failure::NotBegun), 5000 - 1);
    assert!(w.sources().len() == 2 && tally.succeeded > 512);
}

#[test]
fn each_user_has_its_certificate_and_anothers_is_to_be_refused() {
    let clock = WallClock::at(fixtures::WALL_TIME);
    let version = usher_crypto::tls::Version::Tls13;
    let client = |credentials| {
        ClientConfig::new(ClientOptions {
            versions: version.into(),
            credentials: Some(credentials),
            roots: Roots::from_der([fixtures::root()]),
            server_name: None,
            resumption: None,
            clock: clock.clone(),
            key_log: None,
        })
        .unwrap()
    };
    let server = TlsServerConfig::new(ServerOptions {
        versions: version.into(),
        credentials: fixtures::server(2),
        client_roots: Some(Roots::from_der([fixtures::root()])),
        resumption: None,
        clock: clock.clone(),
        key_log: None,
    });
    let tls = Arc::new(ServerMethodTls { tls: ServerTls::Real(server.unwrap()), fragment: 1000 });
    // The first user's is of an authority that the server knows, the second's is not.
    let each: Arc<[ClientConfig]> = [client(fixtures::client(2)), client(fixtures::foreign_client())].into();
    let config_of = client(fixtures::client(2));
    let method = EapMethod::Tls(Tls { config: config_of, each, fragment: 1000, resume: false });
    assert!(method.is_deniable());
    let run = |first: usize, wrong: f64| {
        let mut c = config(FrontConfig::Radius(radius(Some(RadiusLogin::Eap(method.clone())))), CLOSED);
        (c.count, c.wrong_share, c.first) = (Some(4), wrong, first);
        c.users = Arc::new(Users::template("user{}@example.org", "", 2).unwrap());
        c.step = 2;
        let (users, tls) = (c.users.len(), tls.clone());
        assert_eq!(users, 2);
        World::new(c, aaa(&[Method::EapTls], |config| config.tls = Some(tls))).run(60.0).clone()
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
