//! Discovery: services, cookies, what is sent back, limits.

use super::*;
use crate::auth::AuthenticationProtocol as P;
use crate::concentrator::{ConfigError, Excess};
use crate::pppoe::{ErrorTag, Rate};

fn initiation(from: MacAddress, tags: &Discovery<'_>) -> Vec<u8> {
    discovery(from, MacAddress::BROADCAST, Code::PADI, 0, tags)
}

fn any<'a>() -> Discovery<'a> {
    Discovery { services: vec![b""], ..Discovery::default() }
}

#[test]
fn what_a_host_and_a_relay_say_comes_back_as_it_was() {
    let mut world = World::new(config(), vec![]);
    let said = Discovery { host_uniq: Some(&[0, 255, 7]), relay_session_id: Some(b"relay"), ..any() };
    world.give(&initiation(host(1), &said));
    let offer = world.sent_to(host(1), 0).remove(0);
    let offer = Frame::parse(&offer).unwrap();
    assert_eq!((offer.code, offer.session, offer.source), (Code::PADO, 0, AC));
    let tags = Discovery::parse(offer.payload).unwrap();
    assert_eq!((tags.ac_name, &tags.services[..]), (Some(&b"ac"[..]), &[&b""[..]][..]));
    assert_eq!((tags.host_uniq, tags.relay_session_id), (said.host_uniq, said.relay_session_id));
    let request = Discovery { cookie: tags.cookie, ..said.clone() };
    let since = world.net.sent().len();
    world.give(&discovery(host(1), AC, Code::PADR, 0, &request));
    let confirmed = world.sent_to(host(1), since).remove(0);
    let confirmed = Frame::parse(&confirmed).unwrap();
    assert_eq!(confirmed.code, Code::PADS);
    assert!(!matches!(confirmed.session, 0 | 0xffff));
    let tags = Discovery::parse(confirmed.payload).unwrap();
    assert_eq!((tags.host_uniq, tags.relay_session_id), (said.host_uniq, said.relay_session_id));
    assert_eq!(tags.services, [b""]);
}

#[test]
fn a_host_that_has_not_heard_its_pads_gets_the_same_again() {
    let mut world = World::new(config(), vec![]);
    let first = discover(&mut world, host(1));
    let second = discover(&mut world, host(1));
    assert_eq!((first, world.net[world.ac].sessions()), (second, 1));
    assert_eq!(world.net[world.ac].counters().confirmed_again, 1);
}

#[test]
fn services_are_offered_by_name() {
    let services = vec!["student".into(), "staff".into()];
    let mut world = World::new(ConcentratorConfig { services, ..config() }, vec![]);
    let asked = Discovery { services: vec![b"staff"], ..Discovery::default() };
    world.give(&initiation(host(1), &asked));
    let offer = world.sent_to(host(1), 0).remove(0);
    let offer = Frame::parse(&offer).unwrap();
    let tags = Discovery::parse(offer.payload).unwrap();
    assert_eq!(tags.services, [&b"staff"[..], b"student"]);
    // One that it does not have is not answered, and refused where it is asked for nevertheless.
    let since = world.net.sent().len();
    let other = Discovery { services: vec![b"guest"], ..Discovery::default() };
    world.give(&initiation(host(1), &other));
    assert_eq!(world.net.sent().len(), since);
    world.give(&discovery(host(1), AC, Code::PADR, 0, &Discovery { cookie: tags.cookie, ..other }));
    let refused = world.sent_to(host(1), since).remove(0);
    let refused = Frame::parse(&refused).unwrap();
    assert_eq!((refused.code, refused.session), (Code::PADS, 0));
    let said = Discovery::parse(refused.payload).unwrap();
    assert_eq!((said.errors[0].0, said.services), (ErrorTag::ServiceName, vec![&b"guest"[..]]));
    let counters = world.net[world.ac].counters();
    assert_eq!((counters.not_offered, counters.no_service, counters.sessions), (1, 1, 0));
    // Another concentrator's name.
    world.give(&initiation(host(1), &Discovery { ac_name: Some(b"other"), ..any() }));
    assert_eq!(world.net[world.ac].counters().not_offered, 2);
}

#[test]
fn a_client_asks_for_the_service_and_concentrator_that_it_wants() {
    let services = vec!["student".into()];
    let config = ConcentratorConfig { services, ..config() };
    let of = |service: &str, concentrator: &str| ClientConfig {
        service: service.into(),
        concentrator: concentrator.into(),
        ..client(1, &[P::Chap])
    };
    for (client, comes) in [(of("student", "ac"), true), (of("", "other"), false), (of("guest", ""), false)] {
        let mut world = World::new(config.clone(), vec![client]);
        world.connect(0);
        world.net.run(secs(60));
        assert_eq!(world.net[world.clients[0]].has_session(), comes);
        assert_eq!(world.client_ended(0).is_empty(), comes);
    }
}

#[test]
fn a_request_needs_a_cookie_of_its_own_station() {
    let mut world = World::new(config(), vec![]);
    world.give(&initiation(host(1), &any()));
    let offer = world.sent_to(host(1), 0).remove(0);
    let cookie = Discovery::parse(Frame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    for (from, cookie) in [(host(1), None), (host(2), Some(&cookie[..])), (host(1), Some(&cookie[1..]))] {
        world.give(&discovery(from, AC, Code::PADR, 0, &Discovery { cookie, ..any() }));
    }
    assert_eq!((world.net[world.ac].counters().bad_cookie, world.net[world.ac].sessions()), (3, 0));
    world.net.run(secs(200));
    let late = Discovery { cookie: Some(&cookie), ..any() };
    world.give(&discovery(host(1), AC, Code::PADR, 0, &late));
    assert_eq!((world.net[world.ac].counters().bad_cookie, world.net[world.ac].sessions()), (4, 0));
}

/// A session of a host with this Host-Uniq, by hand: its number; 0 where it is refused.
fn try_for(world: &mut World, n: u8, uniq: u8) -> u16 {
    world.give(&initiation(host(n), &any()));
    let offers = world.sent_to(host(n), 0);
    let offer = offers.iter().rev().find(|bytes| Frame::parse(bytes).unwrap().code == Code::PADO).unwrap();
    let cookie = Discovery::parse(Frame::parse(offer).unwrap().payload).unwrap().cookie;
    let since = world.net.sent().len();
    let request = Discovery { cookie, host_uniq: Some(&[uniq]), ..any() };
    world.give(&discovery(host(n), AC, Code::PADR, 0, &request));
    let sent = world.sent_to(host(n), since);
    let frames: Vec<_> = sent.iter().map(|bytes| Frame::parse(bytes).unwrap()).collect();
    frames.iter().find(|frame| frame.code == Code::PADS).unwrap().session
}

#[test]
fn sessions_are_limited_by_station_in_all_and_outside() {
    let limited = |sessions, outside, of_one, excess| ConcentratorConfig {
        sessions,
        outside,
        sessions_per_station: of_one,
        excess,
        ..config()
    };
    let mut world = World::new(limited(3, 9, 9, Excess::Refuse), vec![]);
    assert!((1..=3).all(|n| try_for(&mut world, n, 0) != 0) && try_for(&mut world, 4, 0) == 0);
    assert_eq!(world.net[world.ac].counters().full, 1);
    // Who is full itself makes room for itself, and nobody else for it.
    assert!(try_for(&mut world, 2, 7) != 0 && try_for(&mut world, 5, 0) == 0);
    assert_eq!((world.net[world.ac].sessions(), world.ended()), (3, vec![EndReason::Replaced]));
    let mut world = World::new(limited(9, 3, 9, Excess::Refuse), vec![]);
    assert!((1..=4).all(|n| try_for(&mut world, n, 0) != 0), "the oldest that was never heard makes room");
    assert_eq!((world.net[world.ac].sessions(), world.ended()), (3, vec![EndReason::CrowdedOut]));
    let mut world = World::new(limited(9, 9, 2, Excess::Refuse), vec![]);
    assert!((1..=2).all(|uniq| try_for(&mut world, 1, uniq) != 0) && try_for(&mut world, 1, 3) == 0);
    assert_eq!(world.net[world.ac].counters().full_station, 1);
    assert_ne!(try_for(&mut world, 2, 0), 0);
    let mut world = World::new(limited(9, 9, 2, Excess::Replace), vec![]);
    assert!((1..=5).all(|uniq| try_for(&mut world, 1, uniq) != 0));
    assert_eq!((world.net[world.ac].sessions(), world.ended()), (2, vec![EndReason::Replaced; 3]));
}

#[test]
fn a_host_that_lost_its_power_is_in_again_before_its_session_is_missed() {
    for interval in [3600, 0] {
        let mut config = ConcentratorConfig { sessions_per_station: 1, excess: Excess::Refuse, ..config() };
        config.link.echo_interval = secs(interval);
        let mut world = World::new(config, vec![client(1, &[AuthenticationProtocol::Chap])]);
        world.up();
        // Whoever has the address of a host that is there stays outside, and that one has its session.
        assert_eq!(try_for(&mut world, 1, 7), 0);
        world.net.run(secs(20));
        assert!(world.ended().is_empty(), "{interval}: {:?}", world.ended());
        // It has lost its power.
        world.net.silence(world.clients[0], true);
        world.net.run(secs(20));
        assert!(world.ended().is_empty(), "nobody has missed it yet");
        assert_eq!(try_for(&mut world, 1, 8), 0);
        world.net.run(secs(5));
        assert_eq!(world.ended(), [EndReason::Unreachable], "{interval}");
        assert_ne!(try_for(&mut world, 1, 8), 0);
    }
}

#[test]
fn floods_of_initiations_are_limited_and_remembered_in_bounds() {
    let rate = Rate { per_second: 100, burst: 200 };
    let mut world = World::new(ConcentratorConfig { initiations: rate, ..config() }, vec![]);
    for _ in 0..1000 {
        world.give(&initiation(host(1), &any()));
    }
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.offers, counters.limited_station), (10, 990));
    for n in 0..60_000u32 {
        let [_, _, a, b] = n.to_be_bytes();
        world.give(&initiation(MacAddress([2, 9, 9, 9, a, b]), &any()));
    }
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.offers, counters.limited_all), (200, 59_810));
    assert!(world.net[world.ac].followed() <= 16_384 + 1);
    assert_eq!(world.net[world.ac].sessions(), 0, "none of it is a session");
    // A host that has its cookie already is not kept out by it.
    let mut world = World::new(ConcentratorConfig { initiations: rate, ..config() }, vec![]);
    world.give(&initiation(host(7), &any()));
    let offer = world.sent_to(host(7), 0).remove(0);
    let cookie = Discovery::parse(Frame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    for _ in 0..1000 {
        world.give(&initiation(host(7), &any()));
    }
    let request = Discovery { cookie: Some(&cookie), ..any() };
    world.give(&discovery(host(7), AC, Code::PADR, 0, &request));
    assert_eq!(world.net[world.ac].sessions(), 1);
}

/// A host at a port by hand: the number of its session, zero where it is refused; `None`: it is offered none.
fn ask_at(world: &mut World, port: PortId, n: u8, circuit: Option<&[u8]>) -> Option<u16> {
    let (from, since) = (host(n), world.net.sent().len());
    let give = |world: &mut World, frame: &[u8]| {
        world.net.give(world.ac, Input::Frame { port, data: frame });
    };
    let said = Discovery { circuit_id: circuit, ..any() };
    give(world, &initiation(from, &said));
    let offers = world.sent_to(from, since);
    let cookie = Discovery::parse(Frame::parse(offers.first()?).unwrap().payload).unwrap().cookie;
    give(world, &discovery(from, AC, Code::PADR, 0, &Discovery { cookie, ..said }));
    let sent = world.sent_to(from, since);
    let frames: Vec<_> = sent.iter().map(|bytes| Frame::parse(bytes).unwrap()).collect();
    let number = frames.iter().find(|frame| frame.code == Code::PADS).unwrap().session;
    if number != 0 {
        // It speaks: LCP's Code-Reject of a code that nobody has.
        give(world, &session_frame(from, number, &[0xc0, 0x21, 7, 1, 0, 8, 99, 1, 0, 4]));
    }
    Some(number)
}

#[test]
fn no_port_or_circuit_takes_the_places_of_another() {
    let ports = [0, 1].map(|n| Port { port: PortId(n), address: AC, mtu: 1500 }).to_vec();
    let rate = Rate { per_second: 1, burst: 12 };
    let few = ConcentratorConfig { ports, outside: 8, initiations: rate, agent: true, ..config() };
    for circuits in [false, true] {
        // Of one port's circuits one floods, or one port.
        let other = if circuits { PortId(0) } else { PortId(1) };
        let circuit = |name: &'static [u8]| circuits.then_some(name);
        let mut config = few.clone();
        if circuits {
            (config.initiations, config.initiations_per_circuit) = (config.initiations_per_circuit, rate);
        }
        let mut world = World::new(config, vec![]);
        let floods: Vec<_> = (1..=14).map(|n| ask_at(&mut world, PortId(0), n, circuit(b"one"))).collect();
        assert!(floods[..8].iter().all(|number| number.is_some_and(|number| number != 0)), "{floods:?}");
        assert_eq!(floods[8..12], [Some(0); 4], "nobody of its own line is thrown out half-way");
        assert_eq!(floods[12..], [None; 2], "nor is it offered more than its rate");
        for n in 21..=23 {
            let number = ask_at(&mut world, other, n, circuit(b"two"));
            assert!(number.is_some_and(|number| number != 0), "{n}: {number:?}");
        }
        let counters = *world.net[world.ac].counters();
        assert_eq!((counters.crowded_out, counters.full, counters.limited_all), (3, 4, 2));
        assert_eq!(world.net[world.ac].outside(), 8);
    }
}

#[test]
fn an_access_line_is_believed_where_an_agent_is() {
    for agent in [true, false] {
        let mut world = World::new(ConcentratorConfig { agent, ..config() }, vec![]);
        world.give(&initiation(host(1), &any()));
        let offer = world.sent_to(host(1), 0).remove(0);
        let cookie = Discovery::parse(Frame::parse(&offer).unwrap().payload).unwrap().cookie;
        let line =
            Discovery { cookie, circuit_id: Some(b"sw1 eth 0/7"), remote_id: Some(b"room 12"), ..any() };
        world.give(&discovery(host(1), AC, Code::PADR, 0, &line));
        let subscriber = world.net[world.ac].subscriber(SessionId(0)).unwrap();
        let believed = |text: &[u8]| agent.then(|| text.to_vec());
        assert_eq!(subscriber.circuit_id, believed(b"sw1 eth 0/7"));
        assert_eq!(subscriber.remote_id, believed(b"room 12"));
    }
}

#[test]
fn a_configuration_that_would_serve_nobody_or_everybody_is_refused() {
    let with = |change: fn(&mut ConcentratorConfig)| {
        let mut config = config();
        change(&mut config);
        Concentrator::new(config, SecureRng::from_seed([0; 32])).map(drop)
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|c| c.ports.clear()), Err(ConfigError::NoPort));
    assert_eq!(with(|c| c.authentication = Arc::new([])), Err(ConfigError::NoAuthentication));
    assert_eq!(with(|c| c.sessions = 70_000), Err(ConfigError::Sessions(70_000)));
    assert_eq!(with(|c| c.ports[0].mtu = 500), Err(ConfigError::Mtu(500)));
    let group = MacAddress::BROADCAST;
    assert_eq!(with(|c| c.ports[0].address = MacAddress::BROADCAST), Err(ConfigError::Address(group)));
    assert!(matches!(with(|c| c.name = "x".repeat(65)), Err(ConfigError::Name(_))));
}

#[test]
fn hosts_of_a_port_learn_that_their_sessions_are_forgotten_whatever_another_ports_do() {
    let ports = [0, 1].map(|n| Port { port: PortId(n), address: AC, mtu: 1500 }).to_vec();
    let terminations = Rate { per_second: 1, burst: 5 };
    let mut world = World::new(ConcentratorConfig { ports, terminations, ..config() }, vec![]);
    let echo = [0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0];
    let mut told = |port: u32, n: u8| {
        let since = world.net.sent().len();
        let frame = session_frame(host(n), 77, &echo);
        world.net.give(world.ac, Input::Frame { port: PortId(port), data: &frame });
        world.sent_to(host(n), since).iter().any(|bytes| Frame::parse(bytes).unwrap().code == Code::PADT)
    };
    let flood = (0..20).filter(|_| told(0, 1)).count();
    assert_eq!(flood, 5, "a port's are bounded");
    assert!(told(1, 2), "and leave another's theirs");
}
