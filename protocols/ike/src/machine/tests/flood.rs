//! Many who begin and do not go on.

use super::*;
use crate::Message;

/// First requests from any number of addresses, each with an SPI of its own.
fn flood(world: &mut World, count: u32) {
    let responder = world.responder;
    let template = world.net.sent()[0].bytes.clone();
    for n in 0..count {
        let mut request = template.clone();
        request[..4].copy_from_slice(&(n + 1).to_be_bytes());
        let from = SocketAddr::new(IpAddr::from((0xcb00_7100 + n % 250).to_be_bytes()), 500);
        world.forge(responder, from, at(RESPONDER, 500), &request);
    }
}

#[test]
fn a_flood_of_first_requests_keeps_nothing_beyond_its_bound_and_keeps_nobody_out() {
    let config = Config { cookies_from: 20, half_open: 50, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    let (initiator, responder) = (world.initiator, world.responder);
    // A request as a template, which never arrives.
    world.net.sever(initiator, responder, true);
    world.initiate();
    world.net.run(millis(1));
    flood(&mut world, 2000);
    // Without their cookies they come no further.
    let counters = world.counters(responder);
    assert_eq!((world.sas().1, world.net[responder].half_open(), counters.cookies), (20, 20, 1980));
    // An honest initiator does.
    world.net.sever(initiator, responder, false);
    world.net.run(secs(6));
    assert_eq!(world.children(initiator).len(), 1);
    assert_eq!((world.sas().1, world.net[responder].half_open()), (21, 20));
    world.net.run(secs(40));
    assert_eq!(
        (world.sas().1, world.net[responder].half_open()),
        (1, 0),
        "those who never went on are forgotten"
    );
    assert_eq!(world.counters(responder).half_open_expired, 20);
}

#[test]
fn there_are_as_many_half_open_ike_sas_as_may_be() {
    let config = Config { cookies_from: usize::MAX, half_open: 50, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    world.initiate();
    world.net.run(millis(1));
    let responder = world.responder;
    flood(&mut world, 80);
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full), (50, 30));
    let config = Config { sas: 1, ..config };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    world.connect();
    flood(&mut world, 3);
    assert_eq!((world.sas().1, world.counters(world.responder).full), (1, 3));
    let connection = world.connection.clone();
    let (local, remote) = (at(INITIATOR, 500), at(RESPONDER, 500));
    let begin = Command::Initiate { token: 1, connection, local, remote };
    let refused = world.net.command(world.initiator, begin);
    assert_eq!(refused, Err(usher_core::CommandError::Full("IKE_SAs")));
}

/// First requests from one address, each with the cookie that it was asked for.
#[test]
fn one_network_has_so_many_half_open_ike_sas_under_pressure_and_no_more() {
    let config = Config { cookies_from: 3, half_open_per_network: 5, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    world.initiate();
    world.net.run(millis(1));
    let template = Message::parse(&world.net.sent()[0].bytes).unwrap();
    let responder = world.responder;
    let from = at("203.0.113.66", 500);
    for n in 0..12u8 {
        let mut message = template.clone();
        message.header.initiator_spi = crate::Spi([n + 1; 8]);
        let mut send = |message: &Message| {
            let mut octets = Vec::new();
            message.emit(&mut octets);
            let before = world.net.sent().len();
            world.forge(responder, from, at(RESPONDER, 500), &octets);
            world.net.sent().get(before).and_then(|sent| Message::parse(&sent.bytes).ok())
        };
        let cookie =
            send(&message).and_then(|answer| answer.notify(crate::code::NotifyType::COOKIE).cloned());
        if let Some(cookie) = cookie {
            message.payloads.insert(0, Payload::Notify(cookie));
            send(&message);
        }
    }
    assert_eq!((world.net[responder].half_open(), world.counters(responder).full_network), (5, 7));
    // Another network is served.
    world.net.run(secs(6));
    assert_eq!(world.children(world.initiator).len(), 1);
    world.net.run(secs(40));
    assert_eq!((world.net[responder].half_open(), world.net[responder].networks.len()), (0, 0));
}

/// RFC 7296 §2.6: the first payload, if it is a COOKIE notification.
#[test]
fn a_cookie_is_none_in_another_notification() {
    use crate::code::NotifyType;
    let config = Config { cookies_from: 0, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    world.initiate();
    world.net.run(millis(1));
    let template = Message::parse(&world.net.sent()[0].bytes).unwrap();
    let responder = world.responder;
    let from = at("203.0.113.66", 500);
    // What is answered to a request that begins with a notification; how many were asked for a cookie, of them for another
    // than they had, and how many went on.
    let mut asked = |first: Option<Notify>| {
        let mut message = template.clone();
        message.payloads.splice(0..0, first.map(Payload::Notify));
        let mut octets = Vec::new();
        message.emit(&mut octets);
        let before = world.net.sent().len();
        world.forge(responder, from, at(RESPONDER, 500), &octets);
        let answer = world.net.sent().get(before).and_then(|sent| Message::parse(&sent.bytes).ok());
        let cookie = answer.and_then(|answer| answer.notify(NotifyType::COOKIE).cloned());
        let counters = world.counters(responder);
        (cookie, [counters.cookies, counters.cookies_wrong, world.net[responder].half_open() as u64])
    };
    let (cookie, counted) = asked(None);
    assert_eq!(counted, [1, 0, 0]);
    let cookie = cookie.unwrap();
    let other = Notify::with(NotifyType::REDIRECT_SUPPORTED, cookie.data.clone());
    assert_eq!(asked(Some(other)), (Some(cookie.clone()), [2, 0, 0]));
    let wrong = Notify::with(NotifyType::COOKIE, vec![1; cookie.data.len()]);
    assert_eq!(asked(Some(wrong)), (Some(cookie.clone()), [3, 1, 0]));
    assert_eq!(asked(Some(cookie)), (None, [3, 1, 1]));
}

#[test]
fn a_first_request_that_is_too_long_is_dropped() {
    let mut world = World::psk();
    world.initiate();
    world.net.run(millis(1));
    let mut message = Message::parse(&world.net.sent()[0].bytes).unwrap();
    message.header.initiator_spi = crate::Spi([9; 8]);
    message.payloads.push(Payload::VendorId(vec![0; 9000]));
    let mut octets = Vec::new();
    message.emit(&mut octets);
    let responder = world.responder;
    world.forge(responder, at(INITIATOR, 500), at(RESPONDER, 500), &octets);
    assert_eq!((world.counters(responder).malformed, world.sas().1), (1, 0));
}

#[test]
fn a_cookie_is_no_larger_than_what_asked_for_it() {
    let config = Config { cookies_from: 0, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    world.initiate();
    world.net.run(millis(25));
    let [asked, answered] = [0, 1].map(|n| world.net.sent()[n].bytes.len());
    assert!(answered * 3 < asked, "{answered} for {asked}: nobody is flooded by way of it");
    assert!(Message::parse(&world.net.sent()[1].bytes).is_ok());
}

/// Those that have ended are kept for their last response, and so many of them only.
#[test]
fn what_has_ended_is_bounded_and_takes_nobodys_place() {
    let config = Config { sas: 1, lingering: 2, ..config() };
    let mut world = World::with(config, connection(true), connection(false), Method::MsChapV2);
    for _ in 0..3 {
        let (ours, _) = {
            world.net.take(world.initiator);
            world.net.take(world.responder);
            world.connect()
        };
        world.net.command(world.initiator, Command::Delete(ours)).unwrap();
        world.net.run(millis(50));
    }
    let responder = world.responder;
    assert_eq!((world.net[responder].sas(), world.net[responder].living()), (2, 0), "the first is forgotten");
    assert_eq!(world.counters(responder).full, 0);
    world.net.run(secs(40));
    assert_eq!((world.net[responder].sas(), world.net[responder].lingering.len()), (0, 0));
}

#[test]
fn memory_stays_flat_over_many_set_ups_and_ends() {
    let mut world = World::psk();
    for n in 0..200u64 {
        world.initiate();
        world.net.run(millis(200));
        let sa = world.events(world.initiator).iter().rev().find_map(|event| match event {
            Event::Established { sa, .. } => Some(*sa),
            _ => None,
        });
        world.net.command(world.initiator, Command::Delete(sa.unwrap())).unwrap();
        world.net.run(millis(200));
        for host in [world.initiator, world.responder] {
            world.net.take(host);
        }
        assert!(world.sas().0 == 0 && world.sas().1 <= 80, "after {n}: those that linger");
    }
    world.net.run(secs(60));
    assert_eq!(world.sas(), (0, 0));
    let responder = &world.net[world.responder];
    let indexes =
        [responder.by_spi.len(), responder.by_origin.len(), responder.by_pair.len(), responder.armed.len()];
    assert_eq!((indexes, responder.timers.len()), ([0; 4], 0), "no index has what is gone");
}
