//! Discovery: services, cookies, echoed tags, limits.

use super::*;
use crate::auth::AuthenticationProtocol;
use crate::concentrator::{ConfigError, ExcessSessionPolicy};
use crate::pppoe::{PppoeErrorTag, PppoeStage, TokenBucketRate};

fn padi_frame(from: MacAddress, tags: &DiscoveryTags<'_>) -> Vec<u8> {
    discovery_frame(from, MacAddress::BROADCAST, PppoeCode::PADI, 0, tags)
}

fn any_service<'a>() -> DiscoveryTags<'a> {
    DiscoveryTags { services: vec![b""], ..DiscoveryTags::default() }
}

#[test]
fn what_a_host_and_a_relay_say_comes_back_as_it_was() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let said =
        DiscoveryTags { host_uniq: Some(&[0, 255, 7]), relay_session_id: Some(b"relay"), ..any_service() };
    world.deliver_frame(&padi_frame(host_mac(1), &said));
    let offer = world.sent_to(host_mac(1), 0).remove(0);
    let offer = PppoeFrame::parse(&offer).unwrap();
    assert_eq!((offer.code, offer.session, offer.source), (PppoeCode::PADO, 0, AC));
    let tags = DiscoveryTags::parse(offer.payload).unwrap();
    assert_eq!((tags.ac_name, &tags.services[..]), (Some(&b"ac"[..]), &[&b""[..]][..]));
    assert_eq!((tags.host_uniq, tags.relay_session_id), (said.host_uniq, said.relay_session_id));
    let request = DiscoveryTags { cookie: tags.cookie, ..said.clone() };
    let since = world.net.sent_transmits().len();
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADR, 0, &request));
    let confirmed = world.sent_to(host_mac(1), since).remove(0);
    let confirmed = PppoeFrame::parse(&confirmed).unwrap();
    assert_eq!(confirmed.code, PppoeCode::PADS);
    assert!(!matches!(confirmed.session, 0 | 0xffff));
    let tags = DiscoveryTags::parse(confirmed.payload).unwrap();
    assert_eq!((tags.host_uniq, tags.relay_session_id), (said.host_uniq, said.relay_session_id));
    assert_eq!(tags.services, [b""]);
}

#[test]
fn a_host_that_has_not_heard_its_pads_gets_the_same_again() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    let first = run_discovery(&mut world, host_mac(1));
    let second = run_discovery(&mut world, host_mac(1));
    assert_eq!((first, world.net[world.ac].session_count()), (second, 1));
    assert_eq!(world.net[world.ac].counters().confirmed_again, 1);
}

#[test]
fn a_late_repeated_request_does_not_replace_its_session() {
    let limited = ConcentratorConfig { sessions_per_station: 1, ..concentrator_config() };
    let mut world = PppoeTestNetwork::new(limited, vec![]);
    let session = try_for(&mut world, 1, 7);
    // LCP: Configure-Request without options.
    let mut packet = Vec::new();
    PppoeFrame {
        destination: AC,
        source: host_mac(1),
        stage: PppoeStage::Session,
        code: PppoeCode::SESSION,
        session,
        payload: &[0xc0, 0x21, 1, 1, 0, 4],
    }
    .emit(&mut packet);
    world.deliver_frame(&packet);
    assert_eq!(try_for(&mut world, 1, 7), session);
    assert_eq!((world.net[world.ac].session_count(), world.end_reasons()), (1, vec![]));
    // A host that has restarted has another Host-Uniq, or comes later.
    let restarted = try_for(&mut world, 1, 8);
    assert_ne!(restarted, session);
    assert_eq!(world.end_reasons(), [EndReason::Replaced]);
    world.deliver_frame(&{
        let mut late = packet.clone();
        late[16..18].copy_from_slice(&restarted.to_be_bytes());
        late
    });
    world.net.run_for(secs(10));
    assert_ne!(try_for(&mut world, 1, 8), restarted);
    assert_eq!(world.end_reasons(), [EndReason::Replaced; 2]);
}

#[test]
fn services_are_offered_by_name() {
    let services = vec!["student".into(), "staff".into()];
    let mut world = PppoeTestNetwork::new(ConcentratorConfig { services, ..concentrator_config() }, vec![]);
    let asked = DiscoveryTags { services: vec![b"staff"], ..DiscoveryTags::default() };
    world.deliver_frame(&padi_frame(host_mac(1), &asked));
    let offer = world.sent_to(host_mac(1), 0).remove(0);
    let offer = PppoeFrame::parse(&offer).unwrap();
    let tags = DiscoveryTags::parse(offer.payload).unwrap();
    assert_eq!(tags.services, [&b"staff"[..], b"student"]);
    // A PADI for an unknown service gets no PADO, and a PADR for it gets an error.
    let since = world.net.sent_transmits().len();
    let other = DiscoveryTags { services: vec![b"guest"], ..DiscoveryTags::default() };
    world.deliver_frame(&padi_frame(host_mac(1), &other));
    assert_eq!(world.net.sent_transmits().len(), since);
    world.deliver_frame(&discovery_frame(
        host_mac(1),
        AC,
        PppoeCode::PADR,
        0,
        &DiscoveryTags { cookie: tags.cookie, ..other },
    ));
    let refused = world.sent_to(host_mac(1), since).remove(0);
    let refused = PppoeFrame::parse(&refused).unwrap();
    assert_eq!((refused.code, refused.session), (PppoeCode::PADS, 0));
    let said = DiscoveryTags::parse(refused.payload).unwrap();
    assert_eq!((said.errors[0].0, said.services), (PppoeErrorTag::ServiceName, vec![&b"guest"[..]]));
    let counters = world.net[world.ac].counters();
    assert_eq!((counters.not_offered, counters.no_service, counters.sessions), (1, 1, 0));
    // A PADI for another concentrator's name.
    world
        .deliver_frame(&padi_frame(host_mac(1), &DiscoveryTags { ac_name: Some(b"other"), ..any_service() }));
    assert_eq!(world.net[world.ac].counters().not_offered, 2);
}

#[test]
fn a_client_asks_for_the_service_and_concentrator_that_it_wants() {
    let services = vec!["student".into()];
    let config = ConcentratorConfig { services, ..concentrator_config() };
    let of = |service: &str, concentrator: &str| ClientConfig {
        service: service.into(),
        concentrator: concentrator.into(),
        ..client_config(1, &[AuthenticationProtocol::Chap])
    };
    for (client, comes) in [(of("student", "ac"), true), (of("", "other"), false), (of("guest", ""), false)] {
        let mut world = PppoeTestNetwork::new(config.clone(), vec![client]);
        world.connect_client(0);
        world.net.run_for(secs(60));
        assert_eq!(world.net[world.clients[0]].has_pppoe_session(), comes);
        assert_eq!(world.client_end_reasons(0).is_empty(), comes);
    }
}

#[test]
fn a_request_needs_a_cookie_of_its_own_station() {
    let mut world = PppoeTestNetwork::new(concentrator_config(), vec![]);
    world.deliver_frame(&padi_frame(host_mac(1), &any_service()));
    let offer = world.sent_to(host_mac(1), 0).remove(0);
    let cookie =
        DiscoveryTags::parse(PppoeFrame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    for (from, cookie) in
        [(host_mac(1), None), (host_mac(2), Some(&cookie[..])), (host_mac(1), Some(&cookie[1..]))]
    {
        world.deliver_frame(&discovery_frame(
            from,
            AC,
            PppoeCode::PADR,
            0,
            &DiscoveryTags { cookie, ..any_service() },
        ));
    }
    assert_eq!((world.net[world.ac].counters().bad_cookie, world.net[world.ac].session_count()), (3, 0));
    world.net.run_for(secs(200));
    let late = DiscoveryTags { cookie: Some(&cookie), ..any_service() };
    world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADR, 0, &late));
    assert_eq!((world.net[world.ac].counters().bad_cookie, world.net[world.ac].session_count()), (4, 0));
}

/// Requests a session by hand for a host with this Host-Uniq. Returns its SESSION_ID; 0: refused.
fn try_for(world: &mut PppoeTestNetwork, n: u8, uniq: u8) -> u16 {
    world.deliver_frame(&padi_frame(host_mac(n), &any_service()));
    let offers = world.sent_to(host_mac(n), 0);
    let offer =
        offers.iter().rev().find(|bytes| PppoeFrame::parse(bytes).unwrap().code == PppoeCode::PADO).unwrap();
    let cookie = DiscoveryTags::parse(PppoeFrame::parse(offer).unwrap().payload).unwrap().cookie;
    let since = world.net.sent_transmits().len();
    let request = DiscoveryTags { cookie, host_uniq: Some(&[uniq]), ..any_service() };
    world.deliver_frame(&discovery_frame(host_mac(n), AC, PppoeCode::PADR, 0, &request));
    let sent = world.sent_to(host_mac(n), since);
    let frames: Vec<_> = sent.iter().map(|bytes| PppoeFrame::parse(bytes).unwrap()).collect();
    frames.iter().find(|frame| frame.code == PppoeCode::PADS).unwrap().session
}

#[test]
fn sessions_are_limited_by_station_in_all_and_outside() {
    let limited = |sessions, outside, of_one, excess| ConcentratorConfig {
        sessions,
        outside,
        sessions_per_station: of_one,
        excess,
        ..concentrator_config()
    };
    let mut world = PppoeTestNetwork::new(limited(3, 9, 9, ExcessSessionPolicy::Refuse), vec![]);
    assert!((1..=3).all(|n| try_for(&mut world, n, 0) != 0) && try_for(&mut world, 4, 0) == 0);
    assert_eq!(world.net[world.ac].counters().full, 1);
    // At the global limit a station replaces its own session, and no other station can.
    assert!(try_for(&mut world, 2, 7) != 0 && try_for(&mut world, 5, 0) == 0);
    assert_eq!((world.net[world.ac].session_count(), world.end_reasons()), (3, vec![EndReason::Replaced]));
    let mut world = PppoeTestNetwork::new(limited(9, 3, 9, ExcessSessionPolicy::Refuse), vec![]);
    assert!((1..=4).all(|n| try_for(&mut world, n, 0) != 0), "the oldest that was never heard makes room");
    assert_eq!((world.net[world.ac].session_count(), world.end_reasons()), (3, vec![EndReason::CrowdedOut]));
    let mut world = PppoeTestNetwork::new(limited(9, 9, 2, ExcessSessionPolicy::Refuse), vec![]);
    assert!((1..=2).all(|uniq| try_for(&mut world, 1, uniq) != 0) && try_for(&mut world, 1, 3) == 0);
    assert_eq!(world.net[world.ac].counters().full_station, 1);
    assert_ne!(try_for(&mut world, 2, 0), 0);
    let mut world = PppoeTestNetwork::new(limited(9, 9, 2, ExcessSessionPolicy::Replace), vec![]);
    assert!((1..=5).all(|uniq| try_for(&mut world, 1, uniq) != 0));
    assert_eq!((world.net[world.ac].session_count(), world.end_reasons()), (2, vec![EndReason::Replaced; 3]));
}

#[test]
fn a_power_cycled_host_returns_before_its_session_times_out() {
    for interval in [3600, 0] {
        let mut config = ConcentratorConfig {
            sessions_per_station: 1,
            excess: ExcessSessionPolicy::Refuse,
            ..concentrator_config()
        };
        config.link.echo_interval = secs(interval);
        let mut world =
            PppoeTestNetwork::new(config, vec![client_config(1, &[AuthenticationProtocol::Chap])]);
        world.connect_first();
        // An attacker with the address of a live host is refused, and the host keeps its session.
        assert_eq!(try_for(&mut world, 1, 7), 0);
        world.net.run_for(secs(20));
        assert!(world.end_reasons().is_empty(), "{interval}: {:?}", world.end_reasons());
        // The host loses its power.
        world.net.set_silent(world.clients[0], true);
        world.net.run_for(secs(20));
        assert!(world.end_reasons().is_empty(), "nobody has missed it yet");
        assert_eq!(try_for(&mut world, 1, 8), 0);
        world.net.run_for(secs(5));
        assert_eq!(world.end_reasons(), [EndReason::Unreachable], "{interval}");
        assert_ne!(try_for(&mut world, 1, 8), 0);
    }
}

#[test]
fn floods_of_initiations_are_limited_and_remembered_in_bounds() {
    let rate = TokenBucketRate { per_second: 100, burst: 200 };
    let mut world =
        PppoeTestNetwork::new(ConcentratorConfig { initiations: rate, ..concentrator_config() }, vec![]);
    for _ in 0..1000 {
        world.deliver_frame(&padi_frame(host_mac(1), &any_service()));
    }
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.offers, counters.limited_station), (10, 990));
    for n in 0..60_000u32 {
        let [_, _, a, b] = n.to_be_bytes();
        world.deliver_frame(&padi_frame(MacAddress([2, 9, 9, 9, a, b]), &any_service()));
    }
    let counters = *world.net[world.ac].counters();
    assert_eq!((counters.offers, counters.limited_all), (200, 59_810));
    assert!(world.net[world.ac].bucket_count() <= 16_384 + 1);
    assert_eq!(world.net[world.ac].session_count(), 0, "none of it is a session");
    // A host with a valid cookie is not affected by the limit.
    let mut world =
        PppoeTestNetwork::new(ConcentratorConfig { initiations: rate, ..concentrator_config() }, vec![]);
    world.deliver_frame(&padi_frame(host_mac(7), &any_service()));
    let offer = world.sent_to(host_mac(7), 0).remove(0);
    let cookie =
        DiscoveryTags::parse(PppoeFrame::parse(&offer).unwrap().payload).unwrap().cookie.unwrap().to_vec();
    for _ in 0..1000 {
        world.deliver_frame(&padi_frame(host_mac(7), &any_service()));
    }
    let request = DiscoveryTags { cookie: Some(&cookie), ..any_service() };
    world.deliver_frame(&discovery_frame(host_mac(7), AC, PppoeCode::PADR, 0, &request));
    assert_eq!(world.net[world.ac].session_count(), 1);
}

/// Requests a session by hand for a host at a port. Returns its SESSION_ID; zero: refused; `None`: no PADO.
fn request_session_at(
    world: &mut PppoeTestNetwork,
    port: LinkLayerPortId,
    n: u8,
    circuit: Option<&[u8]>,
) -> Option<u16> {
    let (from, since) = (host_mac(n), world.net.sent_transmits().len());
    let give = |world: &mut PppoeTestNetwork, frame: &[u8]| {
        world.net.inject_input(world.ac, MachineInput::Frame { port, data: frame });
    };
    let said = DiscoveryTags { circuit_id: circuit, ..any_service() };
    give(world, &padi_frame(from, &said));
    let offers = world.sent_to(from, since);
    let cookie = DiscoveryTags::parse(PppoeFrame::parse(offers.first()?).unwrap().payload).unwrap().cookie;
    give(world, &discovery_frame(from, AC, PppoeCode::PADR, 0, &DiscoveryTags { cookie, ..said }));
    let sent = world.sent_to(from, since);
    let frames: Vec<_> = sent.iter().map(|bytes| PppoeFrame::parse(bytes).unwrap()).collect();
    let number = frames.iter().find(|frame| frame.code == PppoeCode::PADS).unwrap().session;
    if number != 0 {
        // The host sends a packet: LCP's Code-Reject of an unknown code.
        give(world, &session_frame(from, number, &[0xc0, 0x21, 7, 1, 0, 8, 99, 1, 0, 4]));
    }
    Some(number)
}

#[test]
fn no_port_or_circuit_takes_the_places_of_another() {
    let ports =
        [0, 1].map(|n| ConcentratorPort { port: LinkLayerPortId(n), address: AC, mtu: 1500 }).to_vec();
    let rate = TokenBucketRate { per_second: 1, burst: 12 };
    let few =
        ConcentratorConfig { ports, outside: 8, initiations: rate, agent: true, ..concentrator_config() };
    for circuits in [false, true] {
        // A flood on one circuit of a port, or on one port.
        let other = if circuits { LinkLayerPortId(0) } else { LinkLayerPortId(1) };
        let circuit = |name: &'static [u8]| circuits.then_some(name);
        let mut config = few.clone();
        if circuits {
            (config.initiations, config.initiations_per_circuit) = (config.initiations_per_circuit, rate);
        }
        let mut world = PppoeTestNetwork::new(config, vec![]);
        let floods: Vec<_> = (1..=14)
            .map(|n| request_session_at(&mut world, LinkLayerPortId(0), n, circuit(b"one")))
            .collect();
        assert!(floods[..8].iter().all(|number| number.is_some_and(|number| number != 0)), "{floods:?}");
        assert_eq!(floods[8..12], [Some(0); 4], "nobody of its own line is thrown out half-way");
        assert_eq!(floods[12..], [None; 2], "nor is it offered more than its rate");
        for n in 21..=23 {
            let number = request_session_at(&mut world, other, n, circuit(b"two"));
            assert!(number.is_some_and(|number| number != 0), "{n}: {number:?}");
        }
        let counters = *world.net[world.ac].counters();
        assert_eq!((counters.crowded_out, counters.full, counters.limited_all), (3, 4, 2));
        assert_eq!(world.net[world.ac].unauthenticated_count(), 8);
    }
}

#[test]
fn an_access_line_is_believed_where_an_agent_is() {
    for agent in [true, false] {
        let mut world = PppoeTestNetwork::new(ConcentratorConfig { agent, ..concentrator_config() }, vec![]);
        world.deliver_frame(&padi_frame(host_mac(1), &any_service()));
        let offer = world.sent_to(host_mac(1), 0).remove(0);
        let cookie = DiscoveryTags::parse(PppoeFrame::parse(&offer).unwrap().payload).unwrap().cookie;
        let line = DiscoveryTags {
            cookie,
            circuit_id: Some(b"sw1 eth 0/7"),
            remote_id: Some(b"room 12"),
            ..any_service()
        };
        world.deliver_frame(&discovery_frame(host_mac(1), AC, PppoeCode::PADR, 0, &line));
        let subscriber = world.net[world.ac].subscriber(PppoeSessionId(0)).unwrap();
        let believed = |text: &[u8]| agent.then(|| text.to_vec());
        assert_eq!(subscriber.circuit_id, believed(b"sw1 eth 0/7"));
        assert_eq!(subscriber.remote_id, believed(b"room 12"));
    }
}

#[test]
fn a_configuration_that_serves_no_host_or_any_host_is_refused() {
    let with = |change: fn(&mut ConcentratorConfig)| {
        let mut config = concentrator_config();
        change(&mut config);
        PppoeConcentrator::new(config, SecureRng::from_seed([0; 32])).map(drop)
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
fn a_flooded_port_does_not_use_up_terminations_of_another_port() {
    let ports =
        [0, 1].map(|n| ConcentratorPort { port: LinkLayerPortId(n), address: AC, mtu: 1500 }).to_vec();
    let terminations = TokenBucketRate { per_second: 1, burst: 5 };
    let mut world =
        PppoeTestNetwork::new(ConcentratorConfig { ports, terminations, ..concentrator_config() }, vec![]);
    let echo = [0xc0, 0x21, 9, 1, 0, 8, 0, 0, 0, 0];
    let mut told = |port: u32, n: u8| {
        let since = world.net.sent_transmits().len();
        let frame = session_frame(host_mac(n), 77, &echo);
        world.net.inject_input(world.ac, MachineInput::Frame { port: LinkLayerPortId(port), data: &frame });
        world
            .sent_to(host_mac(n), since)
            .iter()
            .any(|bytes| PppoeFrame::parse(bytes).unwrap().code == PppoeCode::PADT)
    };
    let flood = (0..20).filter(|_| told(0, 1)).count();
    assert_eq!(flood, 5, "a port's are bounded");
    assert!(told(1, 2), "and leave another's theirs");
}
