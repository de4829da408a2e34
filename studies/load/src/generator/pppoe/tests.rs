use super::echo::SessionEchoState;
use super::*;
use crate::generator::{self as generator, LoadGenerator, LoadProtocolConfig, MethodShare};
use crate::pace::LoginPace;
use crate::tally::quantile;
use usher_concentrator::{AccessConcentrator, AccessConcentratorCommand, AccessConcentratorEvent};
use usher_config::EmptyConfigEnvironment;
use usher_core::Seed;
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_crypto::tls::SharedWallClock;
use usher_esp::ip::{fold_checksum, sum_octets};
use usher_ppp::concentrator::ExcessSessionPolicy;

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

fn test_pppoe_config(stations: usize, hold: SessionHoldTime) -> PppoeConfig {
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
        session_hold: hold,
        power_cut: false,
        echo: None,
    }
}

fn generator_config(count: u64, front: PppoeConfig) -> generator::GeneratorConfig {
    let share = |name: &str| MethodShare { name: name.to_owned(), weight: 1.0, deniable: true };
    let names = ["pap", "chap", "mschapv2", "eap-md5", "eap-mschapv2"];
    generator::GeneratorConfig {
        pace: LoginPace::Closed { concurrency: 4 },
        warmup: Duration::ZERO,
        duration: None,
        count: Some(count),
        outstanding: 4,
        drain_timeout: Duration::from_secs(20),
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: Arc::new(UserCredentialTable::from_template("user{}", "pw{}", 2).unwrap()),
        first: 0,
        step: 1,
        mix: if front.logins.len() > 1 { names.map(share).into() } else { Vec::new() },
        front: LoadProtocolConfig::Pppoe(front),
    }
}

struct PppoeTestNetwork {
    net: MachineNetwork,
    generator: NetworkHostHandle<LoadGenerator>,
    ac: NetworkHostHandle<AccessConcentrator>,
}

impl PppoeTestNetwork {
    /// A concentrator with two users, and subscribers on the same Ethernet.
    fn new(load: generator::GeneratorConfig) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig {
            delay: Duration::from_millis(1),
            ..ChannelConfig::default()
        });
        let clock = SharedWallClock::from_time(WallTime::UNIX_EPOCH);
        let loaded = usher_concentrator::config::parse("pppoe.toml", SITE, &EmptyConfigEnvironment, &clock);
        let mut config = loaded.unwrap_or_else(|faults| panic!("{faults}")).config;
        config.ppp.ports[0].address = MacAddress([2, 0, 0, 0, 0, 0xac]);
        config.limits.excess = ExcessSessionPolicy::Refuse;
        let ac = AccessConcentrator::new(config, Seed::new(4).derive_secure_rng("concentrator", 0)).unwrap();
        let ac = net.add_host(ac, &["192.0.2.1".parse().unwrap()]);
        let generator =
            LoadGenerator::new(load, Instant::ZERO, Seed::new(3).derive_secure_rng("load", 0)).unwrap();
        let generator = net.add_host(generator, &[]);
        net.join_ports_in_segment(&[(0, PORT), (1, PORT)]);
        Self { net, generator, ac }
    }
    /// Number of the concentrator's sessions.
    fn session_count(&mut self) -> usize {
        self.net.send_command(self.ac, AccessConcentratorCommand::Status { token: 9 }).unwrap();
        self.net.drain_hosts();
        let mut said = self.net.recorded_events(self.ac).iter().filter_map(|(_, event)| match event {
            AccessConcentratorEvent::Status { status, .. } => Some(status.sessions.len()),
            _ => None,
        });
        said.next_back().unwrap()
    }
    fn counter_value(&self, name: &str) -> u64 {
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
    let front = PppoeConfig { logins, ..test_pppoe_config(8, SessionHoldTime::For(Duration::ZERO)) };
    let mut world = PppoeTestNetwork::new(generator_config(100, front));
    world.net.run_for(Duration::from_secs(120));
    let tally = world.net[world.generator].login_stats();
    assert_eq!(
        (tally.succeeded, tally.failed_total()),
        (100, 0),
        "{:?}",
        tally.failures().collect::<Vec<_>>()
    );
    assert!(tally.parts.iter().all(|part| part.succeeded > 5), "{:?}", tally.parts);
    // From PADI to the end of IPCP, PAP takes seven round trips of two milliseconds; other methods take more.
    let fastest = tally.parts[0].latency.min() as f64 * 1e-6;
    assert!((12.0..40.0).contains(&fastest), "{fastest} ms");
    assert!(world.net[world.generator].is_finished());
    assert_eq!((world.session_count(), world.counter_value("sessions")), (0, 100));
    assert_eq!(world.counter_value("sessions_flapped"), 0);
}

#[test]
fn a_wrong_password_is_expected_and_an_unknown_user_a_failure() {
    let mut half = generator_config(60, test_pppoe_config(8, SessionHoldTime::For(Duration::ZERO)));
    half.wrong_share = 0.5;
    let mut world = PppoeTestNetwork::new(half);
    world.net.run_for(Duration::from_secs(120));
    let tally = world.net[world.generator].login_stats();
    assert_eq!((tally.succeeded, tally.failed_total()), (60, 0));
    assert!((10..50).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
    let mut unknown = generator_config(4, test_pppoe_config(8, SessionHoldTime::For(Duration::ZERO)));
    unknown.users = Arc::new(UserCredentialTable::from_template("nobody", "pw", 1).unwrap());
    let mut world = PppoeTestNetwork::new(unknown);
    world.net.run_for(Duration::from_secs(120));
    let failures = world.net[world.generator].login_stats().failures().collect::<Vec<_>>();
    assert_eq!(failures, [(LoginFailure::Rejected, 4)]);
}

#[test]
fn sessions_stay_until_all_are_there_and_end_then() {
    let mut world = PppoeTestNetwork::new(generator_config(
        20,
        test_pppoe_config(20, SessionHoldTime::UntilRunEnd(Duration::from_secs(5))),
    ));
    world.net.run_for(Duration::from_secs(3));
    assert_eq!((world.session_count(), world.net[world.generator].login_stats().completed), (20, 20));
    assert!(!world.net[world.generator].is_finished(), "they stay for five seconds");
    world.net.run_for(Duration::from_secs(4));
    assert!(world.net[world.generator].is_finished());
    assert_eq!(world.session_count(), 0, "each was ended with a word");
    // The window is as long as the setup.
    let measured = world.net[world.generator].measured_time(Instant::FAR_FUTURE);
    assert!((0.04..0.5).contains(&measured.as_secs_f64()), "{measured}");
}

#[test]
fn after_a_power_cut_the_concentrator_still_has_what_is_no_more() {
    let front = PppoeConfig {
        power_cut: true,
        ..test_pppoe_config(20, SessionHoldTime::UntilRunEnd(Duration::ZERO))
    };
    let mut world = PppoeTestNetwork::new(generator_config(20, front.clone()));
    world.net.run_for(Duration::from_secs(3));
    assert!(world.net[world.generator].is_finished());
    assert_eq!(world.session_count(), 20);
    // All reconnect at once from the same stations.
    let again = LoadGenerator::new(
        generator::GeneratorConfig {
            pace: LoginPace::Closed { concurrency: 20 },
            ..generator_config(20, PppoeConfig { power_cut: false, ..front })
        },
        world.net.now(),
        Seed::new(8).derive_secure_rng("load", 0),
    );
    world.net[world.generator] = again.unwrap();
    world
        .net
        .send_command(
            world.generator,
            generator::GeneratorCommand::Pace(LoginPace::Closed { concurrency: 20 }),
        )
        .unwrap();
    world.net.run_for(Duration::from_secs(20));
    let tally = world.net[world.generator].login_stats();
    assert_eq!(
        (tally.succeeded, tally.failed_total()),
        (20, 0),
        "{:?}",
        tally.failures().collect::<Vec<_>>()
    );
}

#[test]
fn sessions_that_are_held_end_by_themselves_and_others_follow() {
    let mut churn =
        generator_config(200, test_pppoe_config(10, SessionHoldTime::For(Duration::from_secs(2))));
    (churn.count, churn.duration) = (None, Some(Duration::from_secs(20)));
    churn.pace = LoginPace::Closed { concurrency: 10 };
    let mut world = PppoeTestNetwork::new(churn);
    world.net.run_for(Duration::from_secs(10));
    assert_eq!(world.session_count(), 10);
    world.net.run_for(Duration::from_secs(40));
    let tally = world.net[world.generator].login_stats();
    // Ten at a time, each of a little more than two seconds, for twenty seconds.
    assert!((80..=100).contains(&tally.succeeded), "{}", tally.succeeded);
    assert_eq!((tally.failed_total(), world.session_count()), (0, 0));
}

#[test]
fn silence_is_a_timeout_and_a_session_closed_by_the_peer_a_flap() {
    let mut world = PppoeTestNetwork::new(generator_config(
        2,
        test_pppoe_config(2, SessionHoldTime::UntilRunEnd(Duration::from_secs(60))),
    ));
    world.net.run_for(Duration::from_secs(3));
    world
        .net
        .send_command(
            world.ac,
            AccessConcentratorCommand::Close {
                token: 1,
                selection: usher_concentrator::PppoeSessionSelector::All,
            },
        )
        .unwrap();
    world.net.run_for(Duration::from_secs(3));
    assert_eq!(world.counter_value("sessions_flapped"), 2);
    let mut world = PppoeTestNetwork::new(generator_config(
        3,
        test_pppoe_config(2, SessionHoldTime::UntilRunEnd(Duration::ZERO)),
    ));
    world.net.set_silent(world.ac, true);
    world.net.run_for(Duration::from_secs(60));
    let failures = world.net[world.generator].login_stats().failures().collect::<Vec<_>>();
    assert_eq!(failures, [(LoginFailure::Timeout, 3)]);
}

#[test]
fn contradictions_are_refused() {
    let made = |front| {
        LoadGenerator::new(
            generator_config(1, front),
            Instant::ZERO,
            Seed::new(3).derive_secure_rng("load", 0),
        )
        .is_ok()
    };
    assert!(made(test_pppoe_config(1, SessionHoldTime::For(Duration::ZERO))));
    assert!(!made(test_pppoe_config(0, SessionHoldTime::For(Duration::ZERO))));
    for address in [[3, 0, 0, 0, 0, 0], [2, 255, 255, 255, 255, 255]] {
        assert!(!made(PppoeConfig {
            address: MacAddress(address),
            ..test_pppoe_config(2, SessionHoldTime::For(Duration::ZERO))
        }));
    }
    assert!(!made(PppoeConfig { mtu: 500, ..test_pppoe_config(1, SessionHoldTime::For(Duration::ZERO)) }));
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

/// The reply to an echo.
fn echo_reply(mut packet: Vec<u8>) -> Vec<u8> {
    for i in 12..16 {
        packet.swap(i, i + 4);
    }
    (packet[20], packet[22], packet[23]) = (0, 0, 0);
    let code = fold_checksum(sum_octets(&packet[20..], 0));
    packet[22..24].copy_from_slice(&code);
    packet
}

#[test]
fn an_echo_is_sent_at_its_time_and_known_again() {
    let addresses = (Ipv4Addr::new(10, 0, 1, 7), Ipv4Addr::new(10, 0, 0, 1));
    let config = SessionEchoConfig { rate: 10.0, size: 100, to: None };
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let mut echo = SessionEchoState::new(&config, addresses, at(50));
    let mut sink = LoginResultRecorder { window: 1, ..LoginResultRecorder::default() };
    echo.prepare_echo(at(49), &mut sink);
    assert!(echo.take_packet().is_none());
    echo.prepare_echo(at(50), &mut sink);
    let packet = echo.take_packet().unwrap();
    assert_eq!((packet.len(), sink.tally.echoes, echo.next_echo_due_time()), (100, 1, at(150)));
    assert_eq!(
        (fold_checksum(sum_octets(&packet[..20], 0)), fold_checksum(sum_octets(&packet[20..], 0))),
        ([0, 0], [0, 0])
    );
    let answer = echo_reply(packet.clone());
    let answered = echo.parse_reply(at(53), &answer).unwrap();
    assert_eq!((answered.window, answered.time), (1, Duration::from_millis(3)));
    sink.record_echo_reply(answered.window, answered.time);
    assert_eq!((sink.tally.echoes_answered, sink.tally.lost_echo_fraction()), (1, Some(0.0)));
    assert_eq!(quantile(&sink.tally.echo_latency, 0.5).map(|s| (s * 1e3).round()), Some(3.0));
    // The request itself, another echo's reply, and random octets are no replies.
    assert!(echo.parse_reply(at(53), &packet).is_none());
    let other = SessionEchoState::new(&config, (Ipv4Addr::new(10, 0, 1, 8), addresses.1), at(50));
    assert!(other.parse_reply(at(53), &answer).is_none());
    for n in 0..answer.len() {
        assert!(echo.parse_reply(at(53), &answer[..n]).is_none());
        let mut damaged = answer.clone();
        damaged[n] ^= 0x40;
        // Header fields that the parser ignores may have any value.
        let looked_at = n == 0 || n == 9 || (12..20).contains(&n) || n >= 20;
        assert!(!looked_at || echo.parse_reply(at(53), &damaged).is_none(), "octet {n}");
    }
    // After a delay it does not send several at once.
    echo.prepare_echo(at(950), &mut sink);
    assert!(echo.take_packet().is_some() && echo.take_packet().is_none());
    assert_eq!(echo.next_echo_due_time(), at(950));
}
