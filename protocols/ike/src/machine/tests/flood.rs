//! Floods of initiators that do not continue.

use super::*;
use crate::IkeMessage;

/// First requests from any number of addresses, each with its own SPI.
fn send_flood(world: &mut IkeTestNetwork, count: u32) {
    let responder = world.responder;
    let template = world.net.sent_transmits()[0].bytes.clone();
    for n in 0..count {
        let mut request = template.clone();
        request[..4].copy_from_slice(&(n + 1).to_be_bytes());
        let from = SocketAddr::new(IpAddr::from((0xcb00_7100 + n % 250).to_be_bytes()), 500);
        world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &request);
    }
}

#[test]
fn a_flood_of_first_requests_stays_bounded_and_blocks_no_peer() {
    let config = IkeEndpointConfig { cookies_from: 20, half_open: 50, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    let (initiator, responder) = (world.initiator, world.responder);
    // A request as a template; it never arrives.
    world.net.set_severed(initiator, responder, true);
    world.initiate();
    world.net.run_for(millis(1));
    send_flood(&mut world, 2000);
    // Without their cookies they get no further.
    let counters = world.counters(responder);
    assert_eq!((world.sa_counts().1, world.net[responder].half_open(), counters.cookies), (20, 20, 1980));
    // An honest initiator does.
    world.net.set_severed(initiator, responder, false);
    world.net.run_for(secs(6));
    assert_eq!(world.installed_children(initiator).len(), 1);
    assert_eq!((world.sa_counts().1, world.net[responder].half_open()), (21, 20));
    world.net.run_for(secs(40));
    assert_eq!(
        (world.sa_counts().1, world.net[responder].half_open()),
        (1, 0),
        "those who never went on are forgotten"
    );
    assert_eq!(world.counters(responder).half_open_expired, 20);
}

#[test]
fn there_are_as_many_half_open_ike_sas_as_may_be() {
    let config = IkeEndpointConfig { cookies_from: usize::MAX, half_open: 50, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.initiate();
    world.net.run_for(millis(1));
    let responder = world.responder;
    send_flood(&mut world, 80);
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full), (50, 30));
    let config = IkeEndpointConfig { sas: 1, ..config };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.connect();
    send_flood(&mut world, 3);
    assert_eq!((world.sa_counts().1, world.counters(world.responder).full), (1, 3));
    let connection = world.connection.clone();
    let (local, remote) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
    let begin = IkeCommand::Initiate { token: 1, connection, local, remote };
    let refused = world.net.send_command(world.initiator, begin);
    assert_eq!(refused, Err(usher_core::CommandError::Full("IKE_SAs")));
}

/// First requests from one address, each with its cookie.
#[test]
fn under_pressure_a_network_has_a_limit_of_half_open_sas() {
    let config = IkeEndpointConfig { cookies_from: 3, half_open_per_host: 5, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.initiate();
    world.net.run_for(millis(1));
    let template = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
    let responder = world.responder;
    let from = socket_address("203.0.113.66", 500);
    for n in 0..12u8 {
        let mut message = template.clone();
        message.header.initiator_spi = crate::Spi([n + 1; 8]);
        let mut send = |message: &IkeMessage| {
            let mut octets = Vec::new();
            message.emit(&mut octets);
            let before = world.net.sent_transmits().len();
            world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &octets);
            world.net.sent_transmits().get(before).and_then(|sent| IkeMessage::parse(&sent.bytes).ok())
        };
        let cookie =
            send(&message).and_then(|answer| answer.find_notify(crate::code::NotifyType::COOKIE).cloned());
        if let Some(cookie) = cookie {
            message.payloads.insert(0, Payload::Notify(cookie));
            send(&message);
        }
    }
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full_network), (5, 7));
    // Another network is served.
    world.net.run_for(secs(6));
    assert_eq!(world.installed_children(world.initiator).len(), 1);
    world.net.run_for(secs(40));
    assert_eq!(
        (world.net[responder].half_open(), world.net[responder].half_open.index_sizes()),
        (0, (0, 0, 0))
    );
}

/// RFC 7296 §2.6: the first payload, if it is a COOKIE notification.
#[test]
fn a_cookie_is_none_in_another_notification() {
    use crate::code::NotifyType;
    let config = IkeEndpointConfig { cookies_from: 0, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.initiate();
    world.net.run_for(millis(1));
    let template = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
    let responder = world.responder;
    let from = socket_address("203.0.113.66", 500);
    // Sends a request that begins with a notification. Returns the numbers of cookie requests, of those for another
    // cookie than sent, and of accepted requests.
    let mut asked = |first: Option<NotifyPayload>| {
        let mut message = template.clone();
        message.payloads.splice(0..0, first.map(Payload::Notify));
        let mut octets = Vec::new();
        message.emit(&mut octets);
        let before = world.net.sent_transmits().len();
        world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &octets);
        let answer =
            world.net.sent_transmits().get(before).and_then(|sent| IkeMessage::parse(&sent.bytes).ok());
        let cookie = answer.and_then(|answer| answer.find_notify(NotifyType::COOKIE).cloned());
        let counters = world.counters(responder);
        (cookie, [counters.cookies, counters.cookies_wrong, world.net[responder].half_open() as u64])
    };
    let (cookie, counted) = asked(None);
    assert_eq!(counted, [1, 0, 0]);
    let cookie = cookie.unwrap();
    let other = NotifyPayload::with_data(NotifyType::REDIRECT_SUPPORTED, cookie.data.clone());
    assert_eq!(asked(Some(other)), (Some(cookie.clone()), [2, 0, 0]));
    let wrong = NotifyPayload::with_data(NotifyType::COOKIE, vec![1; cookie.data.len()]);
    assert_eq!(asked(Some(wrong)), (Some(cookie.clone()), [3, 1, 0]));
    assert_eq!(asked(Some(cookie)), (None, [3, 1, 1]));
}

#[test]
fn a_first_request_that_is_too_long_is_dropped() {
    let mut world = IkeTestNetwork::with_shared_key();
    world.initiate();
    world.net.run_for(millis(1));
    let mut message = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
    message.header.initiator_spi = crate::Spi([9; 8]);
    message.payloads.push(Payload::VendorId(vec![0; 9000]));
    let mut octets = Vec::new();
    message.emit(&mut octets);
    let responder = world.responder;
    world.forge_datagram(responder, socket_address(INITIATOR, 500), socket_address(RESPONDER, 500), &octets);
    assert_eq!((world.counters(responder).malformed, world.sa_counts().1), (1, 0));
}

#[test]
fn a_cookie_is_no_larger_than_what_asked_for_it() {
    let config = IkeEndpointConfig { cookies_from: 0, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    world.initiate();
    world.net.run_for(millis(25));
    let [asked, answered] = [0, 1].map(|n| world.net.sent_transmits()[n].bytes.len());
    assert!(answered * 3 < asked, "{answered} for {asked}: nobody is flooded by way of it");
    assert!(IkeMessage::parse(&world.net.sent_transmits()[1].bytes).is_ok());
}

/// Ended IKE_SAs are kept for their last response, up to a limit.
#[test]
fn what_has_ended_is_bounded_and_takes_nobodys_place() {
    let config = IkeEndpointConfig { sas: 1, lingering: 2, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    for _ in 0..3 {
        let (ours, _) = {
            world.net.take_events(world.initiator);
            world.net.take_events(world.responder);
            world.connect()
        };
        world.net.send_command(world.initiator, IkeCommand::Delete(ours)).unwrap();
        world.net.run_for(millis(50));
    }
    let responder = world.responder;
    assert_eq!(
        (world.net[responder].sa_count(), world.net[responder].active_sa_count()),
        (2, 0),
        "the first is forgotten"
    );
    assert_eq!(world.counters(responder).full, 0);
    world.net.run_for(secs(40));
    assert_eq!((world.net[responder].sa_count(), world.net[responder].lingering.len()), (0, 0));
}

#[test]
fn memory_stays_flat_over_many_set_ups_and_ends() {
    let mut world = IkeTestNetwork::with_shared_key();
    for n in 0..200u64 {
        world.initiate();
        world.net.run_for(millis(200));
        let sa = world.events(world.initiator).iter().rev().find_map(|event| match event {
            IkeEvent::Established { sa, .. } => Some(*sa),
            _ => None,
        });
        world.net.send_command(world.initiator, IkeCommand::Delete(sa.unwrap())).unwrap();
        world.net.run_for(millis(200));
        for host in [world.initiator, world.responder] {
            world.net.take_events(host);
        }
        assert!(world.sa_counts().0 == 0 && world.sa_counts().1 <= 80, "after {n}: those that linger");
    }
    world.net.run_for(secs(60));
    assert_eq!(world.sa_counts(), (0, 0));
    let responder = &world.net[world.responder];
    let indexes =
        [responder.by_spi.len(), responder.by_origin.len(), responder.by_pair.len(), responder.armed.len()];
    assert_eq!((indexes, responder.timers.len()), ([0; 4], 0), "no index has what is gone");
}

/// The initiator's first request as a template: it was sent and lost.
pub(super) fn first_request_template(world: &mut IkeTestNetwork) -> IkeMessage {
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_severed(initiator, responder, true);
    world.initiate();
    world.net.run_for(millis(1));
    world.net.set_severed(initiator, responder, false);
    IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap()
}

pub(super) fn message_octets(message: &IkeMessage) -> Vec<u8> {
    let mut octets = Vec::new();
    message.emit(&mut octets);
    octets
}

/// Forty seconds of a flood from all addresses of a /24, beside honest initiators of other networks. Those need not
/// even return a cookie.
#[test]
fn a_flood_from_one_network_costs_nobody_elsewhere_anything() {
    let mut world = IkeTestNetwork::with_shared_key();
    let mut forged = first_request_template(&mut world);
    let responder = world.responder;
    let mut spi = 0u64;
    for second in 0..40 {
        for n in 0..500u32 {
            spi += 1;
            forged.header.initiator_spi = crate::Spi(spi.to_be_bytes());
            let from = SocketAddr::new(IpAddr::from((0xcb00_7100 + n % 256).to_be_bytes()), 500);
            world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &message_octets(&forged));
        }
        if second % 4 == 0 {
            world.initiate();
        }
        world.net.run_for(secs(1));
    }
    let established = |world: &IkeTestNetwork, host| {
        world.events(host).iter().filter(|event| matches!(event, IkeEvent::Established { .. })).count()
    };
    // The template's initiator too.
    assert_eq!((established(&world, world.initiator), established(&world, responder)), (11, 11));
    let counters = world.counters(responder);
    let honest = 11;
    // Half-open IKE_SAs of the network last 30 s; after that a second batch begins.
    let begun = counters.begun - honest;
    assert_eq!((begun, counters.cookies), (128, 20_000 - 128));
    // Each honest login took four messages.
    let own = world.counters(world.initiator);
    assert_eq!((own.requests, own.retransmissions), (2 * honest, 1));
    assert!(world.net[responder].half_open() <= 64);
}

/// Refused requests leave no half-open IKE_SA but cost as much: a key exchange with a value outside of its group.
#[test]
fn a_flood_of_failing_requests_needs_cookies_too() {
    let mut world = IkeTestNetwork::with_shared_key();
    let honest = first_request_template(&mut world);
    let responder = world.responder;
    let mut forged = honest.clone();
    for payload in &mut forged.payloads {
        if let Payload::KeyExchange { data, .. } = payload {
            // A point of small order (RFC 7748 §6.1).
            data.fill(0);
        }
    }
    let send = |world: &mut IkeTestNetwork, message: &IkeMessage, from: &str| {
        let before = world.net.sent_transmits().len();
        world.forge_datagram(
            responder,
            socket_address(from, 500),
            socket_address(RESPONDER, 500),
            &message_octets(message),
        );
        world.net.sent_transmits().get(before).and_then(|sent| IkeMessage::parse(&sent.bytes).ok())
    };
    let notified = |answer: Option<IkeMessage>| {
        let answer = answer?;
        let notify = answer.notifications().next()?.clone();
        Some(notify)
    };
    let mut kinds = Vec::new();
    for n in 0..150u64 {
        forged.header.initiator_spi = crate::Spi((n + 1).to_be_bytes());
        let from = format!("203.0.113.{}", n % 50);
        kinds.push(notified(send(&mut world, &forged, &from)).unwrap().kind);
    }
    use crate::code::NotifyType;
    assert!(kinds[..100].iter().all(|kind| *kind == NotifyType::INVALID_SYNTAX), "{kinds:?}");
    assert!(kinds[100..].iter().all(|kind| *kind == NotifyType::COOKIE), "{kinds:?}");
    // A sender with a real address that continues is no longer answered in the end. The number of key exchanges is
    // bounded.
    let mut answered = 0;
    for n in 0..1200u64 {
        forged.header.initiator_spi = crate::Spi((n + 1000).to_be_bytes());
        let Some(cookie) = notified(send(&mut world, &forged, "203.0.113.66")) else { continue };
        let mut again = forged.clone();
        again.payloads.insert(0, Payload::Notify(cookie));
        answered += usize::from(send(&mut world, &again, "203.0.113.66").is_some());
    }
    assert_eq!((answered, world.counters(responder).flood_dropped), (900, 300));
    // Other networks do not notice.
    let mut other = honest.clone();
    other.header.initiator_spi = crate::Spi([77; 8]);
    let answer = send(&mut world, &other, "203.0.114.1").unwrap();
    assert!(answer.find_notify(NotifyType::COOKIE).is_none() && !answer.header.responder_spi.is_zero());
    // The refusals are forgotten after ten seconds.
    world.net.run_for(secs(11));
    other.header.initiator_spi = crate::Spi([78; 8]);
    let answer = send(&mut world, &other, "203.0.113.66").unwrap();
    assert!(!answer.header.responder_spi.is_zero());
}

/// If a flood exceeds the rate of cookie requests, its requests are dropped unread, except those with a cookie.
#[test]
fn a_flooding_network_gets_limited_cookies_and_then_no_answer() {
    let config = IkeEndpointConfig { cookies_from_network: 0, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    let mut forged = first_request_template(&mut world);
    let responder = world.responder;
    let spi = |message: &mut IkeMessage, n: u64| message.header.initiator_spi = crate::Spi(n.to_be_bytes());
    let from = socket_address("203.0.113.66", 500);
    let before = world.net.sent_transmits().len();
    for n in 0..6000 {
        spi(&mut forged, n + 1);
        world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &message_octets(&forged));
    }
    let counters = world.counters(responder);
    assert_eq!((counters.cookies, counters.flood_dropped, world.sa_counts().1), (5000, 1000, 0));
    let asked = IkeMessage::parse(&world.net.sent_transmits()[before].bytes).unwrap();
    let cookie = asked.find_notify(crate::code::NotifyType::COOKIE).unwrap().clone();
    spi(&mut forged, 1);
    let wrong = NotifyPayload { data: vec![1; 17], ..cookie.clone() };
    forged.payloads.insert(0, Payload::Notify(wrong));
    world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &message_octets(&forged));
    let counters = world.counters(responder);
    assert_eq!((counters.cookies, counters.cookies_wrong, counters.flood_dropped), (5000, 1, 1001));
    forged.payloads[0] = Payload::Notify(cookie);
    world.forge_datagram(responder, from, socket_address(RESPONDER, 500), &message_octets(&forged));
    assert_eq!(world.sa_counts().1, 1);
}

/// An attacker with a /48 of IPv6 has 65,536 networks of 64 bits and returns a cookie from each. It gets at most an
/// eighth of the half-open IKE_SAs, and honest logins of other networks succeed.
#[test]
fn a_flood_from_an_ipv6_48_takes_an_eighth_and_blocks_no_peer() {
    let config = IkeEndpointConfig { half_open: 400, cookies_from: 40, ..default_config() };
    let mut world = IkeTestNetwork::with_config(
        config,
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    );
    let mut forged = first_request_template(&mut world);
    let responder = world.responder;
    let asks = |world: &mut IkeTestNetwork, n: u64, from: SocketAddr, message: &mut IkeMessage| {
        message.header.initiator_spi = crate::Spi(n.to_be_bytes());
        let path = usher_core::DatagramPath {
            socket: SOCKET_V6,
            local: "[2001:db8:ffff::1]:500".parse().unwrap(),
            remote: from,
        };
        let before = world.net.sent_transmits().len();
        let data = &message_octets(message);
        world.net.inject_input(responder, usher_core::MachineInput::Datagram { path, data });
        let answer =
            world.net.sent_transmits().get(before).and_then(|sent| IkeMessage::parse(&sent.bytes).ok())?;
        answer.find_notify(crate::code::NotifyType::COOKIE).cloned()
    };
    for second in 0..30u64 {
        for n in 0..100 {
            let n = second * 100 + n + 1;
            // From all sites and hosts of the /48.
            let bits = 0x2001_0db8_0001_u128 << 80 | u128::from(n.wrapping_mul(40_503) & 0xffff) << 64 | 1;
            let from = SocketAddr::new(IpAddr::from(std::net::Ipv6Addr::from(bits)), 500);
            if let Some(cookie) = asks(&mut world, n, from, &mut forged) {
                forged.payloads.insert(0, Payload::Notify(cookie));
                assert_eq!(asks(&mut world, n, from, &mut forged), None, "the cookie is right");
                forged.payloads.remove(0);
            }
        }
        if second % 3 == 0 {
            world.initiate();
        }
        world.net.run_for(secs(1));
        assert!(world.net[responder].half_open() <= 51, "{}", world.net[responder].half_open());
    }
    let established =
        world.events(responder).iter().filter(|e| matches!(e, IkeEvent::Established { .. })).count();
    assert_eq!(established, 11, "each honest one, the template's among them");
    assert!(world.counters(responder).full_network > 2000 && world.counters(responder).full == 0);
}

/// A key exchange with a failed proof costs more than a request that is refused at once, and counts as much.
#[test]
fn failed_proofs_lead_to_cookies_and_then_to_silence() {
    let wrong = IkeConnectionConfig {
        local_auth: LocalAuth::Psk(SecretValue::from(&b"a guess"[..])),
        ..psk_connection(true)
    };
    let mut world = IkeTestNetwork::new(wrong, psk_connection(false));
    let responder = world.responder;
    for _ in 0..3000 {
        world.initiate();
        world.net.run_for(millis(5));
    }
    let counters = world.counters(responder);
    assert!(counters.cookies > 0 && counters.flood_dropped > 0, "{counters:?}");
    assert!(counters.authentication_failed < 2700, "{counters:?}");
    let whom = world.events(responder).into_iter().find_map(|event| match event {
        IkeEvent::Unproved { path, identity, .. } => Some((path.remote.ip(), identity)),
        _ => None,
    });
    assert_eq!(whom, Some((ip_address(INITIATOR), Some(Identification::from_fqdn("ini.test")))));
}

/// A protocol violation after the key exchange counts as a failed authentication.
#[test]
fn a_violation_after_the_key_exchange_counts_as_a_failure() {
    use crate::code::{ExchangeType as E, NotifyType};
    let failed = || vec![Payload::Notify(NotifyPayload::new(NotifyType::AUTHENTICATION_FAILED))];
    for (exchange, payloads) in [
        (E::IKE_AUTH, vec![]),
        (E::IKE_INTERMEDIATE, vec![]),
        (E::CREATE_CHILD_SA, vec![]),
        (E::INFORMATIONAL, vec![]),
        (E::INFORMATIONAL, failed()),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (initiator, responder) = (world.initiator, world.responder);
        world.initiate();
        world.net.run_for(millis(15));
        // Its own proof is lost.
        world.net.set_severed(initiator, responder, true);
        world.net.run_for(millis(10));
        let now = world.net.now();
        let token = *world.net[initiator].by_spi.values().next().unwrap();
        world.net[initiator].run_sa_step_at(now, token, |sa, cx| {
            (sa.base.outstanding, sa.base.next_request) = (None, 1);
            send_request(sa, cx, exchange, &payloads);
        });
        world.net.run_for(millis(1));
        let bytes = world.net.sent_transmits().last().unwrap().bytes.clone();
        assert_eq!(world.net[responder].half_open(), 1);
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &bytes,
        );
        let (now, endpoint) = (world.net.now(), &mut world.net[responder]);
        assert_eq!(endpoint.half_open(), 0, "{exchange}");
        // The hundredth.
        (0..99).for_each(|_| endpoint.pressure.record_refusal(now, ip_address(INITIATOR)));
        assert!(
            endpoint.pressure.network_requires_cookies(now, ip_address(INITIATOR)),
            "{exchange} {payloads:?}"
        );
    }
}
