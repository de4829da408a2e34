use super::echo::Echo;
use super::*;
use crate::generator::{self as generator, FrontConfig, Generator, Share};
use crate::pace::Pace;
use crate::tally::quantile;
use usher_concentrator::{AccessConcentrator, Command, Event};
use usher_config::Alone;
use usher_core::Seed;
use usher_core::bench::{At, Network as Bench};
use usher_core::impair::ChannelConfig;
use usher_crypto::tls::WallClock;
use usher_esp::ip::{checksum, sum};
use usher_ppp::concentrator::Excess;

const FIRST: MacAddress = MacAddress([2, 0, 0x5e, 0, 0, 0xfe]);

const SITE: &str = r#"
[listen]
interfaces = ["eth1"]
[service]
address = "10.0.0.1"
pools = ["all"]
[authentication]
protocols = ["eap", "mschapv2", "chap", "pap"]
[[user]]
name = "user0"
password = "pw0"
[[user]]
name = "user1"
password = "pw1"
[[pool]]
name = "all"
ranges = ["10.0.1.0/24"]
[limits]
discovery_per_station = 100
"#;

fn config(stations: usize, hold: Hold) -> PppoeConfig {
    PppoeConfig {
        stations,
        first: 0,
        address: FIRST,
        mtu: 1500,
        logins: vec![PppoeLogin::Chap],
        service: String::new(),
        concentrator: String::new(),
        discovery: Duration::from_secs(1),
        attempts: 3,
        keepalive: Duration::from_secs(20),
        setup: Duration::from_secs(30),
        hold,
        power_cut: false,
        echo: None,
    }
}

fn load(count: u64, front: PppoeConfig) -> generator::Config {
    let share = |name: &str| Share { name: name.to_owned(), weight: 1.0, deniable: true };
    let names = ["pap", "chap", "mschapv2", "eap-md5", "eap-mschapv2"];
    generator::Config {
        pace: Pace::Closed { concurrency: 4 },
        warmup: Duration::ZERO,
        duration: None,
        count: Some(count),
        outstanding: 4,
        patience: Duration::from_secs(20),
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: Arc::new(Users::template("user{}", "pw{}", 2).unwrap()),
        first: 0,
        step: 1,
        mix: if front.logins.len() > 1 { names.map(share).into() } else { Vec::new() },
        front: FrontConfig::Pppoe(front),
    }
}

struct World {
    net: Bench,
    generator: At<Generator>,
    ac: At<AccessConcentrator>,
}

impl World {
    /// A concentrator with two users, and subscribers on the same Ethernet.
    fn new(load: generator::Config) -> Self {
        let mut net =
            Bench::new(ChannelConfig { delay: Duration::from_millis(1), ..ChannelConfig::default() });
        let clock = WallClock::at(WallTime::UNIX_EPOCH);
        let loaded = usher_concentrator::config::parse("pppoe.toml", SITE, &Alone, &clock);
        let mut config = loaded.unwrap_or_else(|faults| panic!("{faults}")).config;
        config.ppp.ports[0].address = MacAddress([2, 0, 0, 0, 0, 0xac]);
        config.limits.excess = Excess::Refuse;
        let ac = AccessConcentrator::new(config, Seed::new(4).secure("concentrator", 0)).unwrap();
        let ac = net.add(ac, &["192.0.2.1".parse().unwrap()]);
        let generator = Generator::new(load, Instant::ZERO, Seed::new(3).secure("load", 0)).unwrap();
        let generator = net.add(generator, &[]);
        net.join(&[(0, PORT), (1, PORT)]);
        Self { net, generator, ac }
    }
    /// How many sessions the concentrator has.
    fn sessions(&mut self) -> usize {
        self.net.command(self.ac, Command::Status { token: 9 }).unwrap();
        self.net.settle();
        let mut said = self.net.events(self.ac).iter().filter_map(|(_, event)| match event {
            Event::Status { status, .. } => Some(status.sessions.len()),
            _ => None,
        });
        said.next_back().unwrap()
    }
    fn counted(&self, name: &str) -> u64 {
        let all = self.net[self.generator].counters();
        all.iter().filter(|(known, _)| *known == name).map(|(_, n)| n).sum()
    }
}

#[test]
fn subscribers_log_in_by_each_protocol_and_their_sessions_end() {
    let logins = vec![
        PppoeLogin::Pap,
        PppoeLogin::Chap,
        PppoeLogin::MsChapV2,
        PppoeLogin::EapMd5,
        PppoeLogin::EapMsChapV2,
    ];
    let front = PppoeConfig { logins, ..config(8, Hold::For(Duration::ZERO)) };
    let mut world = World::new(load(100, front));
    world.net.run(Duration::from_secs(120));
    let tally = world.net[world.generator].tally();
    assert_eq!(
        (tally.succeeded, tally.failed_total()),
        (100, 0),
        "{:?}",
        tally.failures().collect::<Vec<_>>()
    );
    assert!(tally.parts.iter().all(|part| part.succeeded > 5), "{:?}", tally.parts);
    // PADI to IPCP's end is seven round trips of two milliseconds by PAP, and more by the others.
    let fastest = tally.parts[0].latency.min() as f64 * 1e-6;
    assert!((12.0..40.0).contains(&fastest), "{fastest} ms");
    assert!(world.net[world.generator].is_finished());
    assert_eq!((world.sessions(), world.counted("sessions")), (0, 100));
    assert_eq!(world.counted("sessions_flapped"), 0);
}

#[test]
fn a_wrong_password_is_to_be_refused_and_an_unknown_user_is_a_failure() {
    let mut half = load(60, config(8, Hold::For(Duration::ZERO)));
    half.wrong_share = 0.5;
    let mut world = World::new(half);
    world.net.run(Duration::from_secs(120));
    let tally = world.net[world.generator].tally();
    assert_eq!((tally.succeeded, tally.failed_total()), (60, 0));
    assert!((10..50).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
    let mut unknown = load(4, config(8, Hold::For(Duration::ZERO)));
    unknown.users = Arc::new(Users::template("nobody", "pw", 1).unwrap());
    let mut world = World::new(unknown);
    world.net.run(Duration::from_secs(120));
    let failures = world.net[world.generator].tally().failures().collect::<Vec<_>>();
    assert_eq!(failures, [(Failure::Rejected, 4)]);
}

#[test]
fn sessions_stay_until_all_are_there_and_end_then() {
    let mut world = World::new(load(20, config(20, Hold::Stay(Duration::from_secs(5)))));
    world.net.run(Duration::from_secs(3));
    assert_eq!((world.sessions(), world.net[world.generator].tally().completed), (20, 20));
    assert!(!world.net[world.generator].is_finished(), "they stay for five seconds");
    world.net.run(Duration::from_secs(4));
    assert!(world.net[world.generator].is_finished());
    assert_eq!(world.sessions(), 0, "each was ended with a word");
    // The window is as long as setting up took.
    let measured = world.net[world.generator].measured(Instant::FAR_FUTURE);
    assert!((0.04..0.5).contains(&measured.as_secs_f64()), "{measured}");
}

#[test]
fn after_a_power_cut_the_concentrator_still_has_what_is_no_more() {
    let front = PppoeConfig { power_cut: true, ..config(20, Hold::Stay(Duration::ZERO)) };
    let mut world = World::new(load(20, front.clone()));
    world.net.run(Duration::from_secs(3));
    assert!(world.net[world.generator].is_finished());
    assert_eq!(world.sessions(), 20);
    // All come back at once, from the same stations.
    let again = Generator::new(
        generator::Config {
            pace: Pace::Closed { concurrency: 20 },
            ..load(20, PppoeConfig { power_cut: false, ..front })
        },
        world.net.now(),
        Seed::new(8).secure("load", 0),
    );
    world.net[world.generator] = again.unwrap();
    world.net.command(world.generator, generator::Command::Pace(Pace::Closed { concurrency: 20 })).unwrap();
    world.net.run(Duration::from_secs(20));
    let tally = world.net[world.generator].tally();
    assert_eq!(
        (tally.succeeded, tally.failed_total()),
        (20, 0),
        "{:?}",
        tally.failures().collect::<Vec<_>>()
    );
}

#[test]
fn sessions_that_are_held_end_by_themselves_and_others_follow() {
    let mut churn = load(200, config(10, Hold::For(Duration::from_secs(2))));
    (churn.count, churn.duration) = (None, Some(Duration::from_secs(20)));
    churn.pace = Pace::Closed { concurrency: 10 };
    let mut world = World::new(churn);
    world.net.run(Duration::from_secs(10));
    assert_eq!(world.sessions(), 10);
    world.net.run(Duration::from_secs(40));
    let tally = world.net[world.generator].tally();
    // Ten at a time, each of a little more than two seconds, for twenty seconds.
    assert!((80..=100).contains(&tally.succeeded), "{}", tally.succeeded);
    assert_eq!((tally.failed_total(), world.sessions()), (0, 0));
}

#[test]
fn nobody_there_is_a_timeout_and_a_session_that_is_ended_by_the_concentrator_has_flapped() {
    let mut world = World::new(load(2, config(2, Hold::Stay(Duration::from_secs(60)))));
    world.net.run(Duration::from_secs(3));
    world.net.command(world.ac, Command::Close { token: 1, which: usher_concentrator::Which::All }).unwrap();
    world.net.run(Duration::from_secs(3));
    assert_eq!(world.counted("sessions_flapped"), 2);
    let mut world = World::new(load(3, config(2, Hold::Stay(Duration::ZERO))));
    world.net.silence(world.ac, true);
    world.net.run(Duration::from_secs(60));
    let failures = world.net[world.generator].tally().failures().collect::<Vec<_>>();
    assert_eq!(failures, [(Failure::Timeout, 3)]);
}

#[test]
fn contradictions_are_refused() {
    let made = |front| Generator::new(load(1, front), Instant::ZERO, Seed::new(3).secure("load", 0)).is_ok();
    assert!(made(config(1, Hold::For(Duration::ZERO))));
    assert!(!made(config(0, Hold::For(Duration::ZERO))));
    for address in [[3, 0, 0, 0, 0, 0], [2, 255, 255, 255, 255, 255]] {
        assert!(!made(PppoeConfig { address: MacAddress(address), ..config(2, Hold::For(Duration::ZERO)) }));
    }
    assert!(!made(PppoeConfig { mtu: 500, ..config(1, Hold::For(Duration::ZERO)) }));
}

#[test]
fn stations_are_numbered_by_their_addresses() {
    assert_eq!(station_address(FIRST, 3), MacAddress([2, 0, 0x5e, 0, 1, 1]));
    let mut frame = station_address(FIRST, 700).0.to_vec();
    assert_eq!(station_of(FIRST, &frame), Some(700));
    frame[5] = 0;
    frame[4] = 0;
    assert_eq!(station_of(FIRST, &frame), None, "before the first");
    assert_eq!(station_of(FIRST, &frame[..5]), None);
}

/// The answer to an echo.
fn reply(mut packet: Vec<u8>) -> Vec<u8> {
    for i in 12..16 {
        packet.swap(i, i + 4);
    }
    (packet[20], packet[22], packet[23]) = (0, 0, 0);
    let code = checksum(sum(&packet[20..], 0));
    packet[22..24].copy_from_slice(&code);
    packet
}

#[test]
fn an_echo_is_sent_at_its_time_and_known_again() {
    let addresses = (Ipv4Addr::new(10, 0, 1, 7), Ipv4Addr::new(10, 0, 0, 1));
    let config = EchoConfig { rate: 10.0, size: 100, to: None };
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let mut echo = Echo::new(&config, addresses, at(50));
    let mut sink = Sink { window: 1, ..Sink::default() };
    echo.send(at(49), &mut sink);
    assert!(echo.packet().is_none());
    echo.send(at(50), &mut sink);
    let packet = echo.packet().unwrap();
    assert_eq!((packet.len(), sink.tally.echoes, echo.due()), (100, 1, at(150)));
    assert_eq!((checksum(sum(&packet[..20], 0)), checksum(sum(&packet[20..], 0))), ([0, 0], [0, 0]));
    let answer = reply(packet.clone());
    let answered = echo.answered(at(53), &answer).unwrap();
    assert_eq!((answered.window, answered.time), (1, Duration::from_millis(3)));
    sink.answered(answered.window, answered.time);
    assert_eq!((sink.tally.echoes_answered, sink.tally.echoes_lost()), (1, Some(0.0)));
    assert_eq!(quantile(&sink.tally.echo_latency, 0.5).map(|s| (s * 1e3).round()), Some(3.0));
    // The question itself, another's answer, and any octets are none.
    assert!(echo.answered(at(53), &packet).is_none());
    let other = Echo::new(&config, (Ipv4Addr::new(10, 0, 1, 8), addresses.1), at(50));
    assert!(other.answered(at(53), &answer).is_none());
    for n in 0..answer.len() {
        assert!(echo.answered(at(53), &answer[..n]).is_none());
        let mut damaged = answer.clone();
        damaged[n] ^= 0x40;
        // Of the header's fields those that nobody looks at here may be anything.
        let looked_at = n == 0 || n == 9 || (12..20).contains(&n) || n >= 20;
        assert!(!looked_at || echo.answered(at(53), &damaged).is_none(), "octet {n}");
    }
    // Who is late does not send several at once.
    echo.send(at(950), &mut sink);
    assert!(echo.packet().is_some() && echo.packet().is_none());
    assert_eq!(echo.due(), at(950));
}
