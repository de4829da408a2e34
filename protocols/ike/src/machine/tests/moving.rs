//! SAs that move to other addresses (RFC 4555).

use super::*;
use crate::code::NotifyType;

const ELSEWHERE: &str = "203.0.113.5";

/// Both know how to move; the initiator has another address besides.
fn world() -> World {
    let mobike = |connection| Connection { mobike: true, ..connection };
    let mut world = World::new(mobike(connection(true)), mobike(connection(false)));
    let initiator = world.initiator;
    for (socket, port) in [(SOCKET, 500), (NAT_SOCKET, 4500)] {
        world.net.bind(initiator, socket, at(ELSEWHERE, port));
    }
    world
}

fn moved(world: &World, host: At<Endpoint>) -> Vec<(SocketAddr, SocketAddr, bool)> {
    let path = |event| match event {
        Event::Moved { path, encapsulated, .. } => Some((path.local, path.remote, encapsulated)),
        _ => None,
    };
    world.events(host).into_iter().filter_map(path).collect()
}

fn to(world: &mut World, sa: SaId, address: &str) {
    let (local, remote) = (at(address, 4500), at(RESPONDER, 4500));
    let initiator = world.initiator;
    world.net.command(initiator, Command::Move { sa, local, remote }).unwrap();
}

#[test]
fn an_initiator_moves_and_its_packets_follow_when_it_has_answered_from_there() {
    let mut world = world();
    let (ours, theirs) = world.connect();
    assert!(
        world.children(world.initiator).values().all(|child| child.path.remote.port() == 4500),
        "without a NAT too"
    );
    to(&mut world, ours, ELSEWHERE);
    world.net.run(millis(15));
    assert_eq!(moved(&world, world.responder), [], "it has to be shown first that it is there");
    world.net.run(secs(1));
    let (here, there) = (at(ELSEWHERE, 4500), at(RESPONDER, 4500));
    assert_eq!(moved(&world, world.initiator), [(here, there, false)]);
    assert_eq!(moved(&world, world.responder), [(there, here, false)]);
    // The old address is gone, and all goes on.
    world.net.down(address(INITIATOR), true);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.command(responder, Command::Probe(theirs)).unwrap();
    world.net.command(initiator, Command::Rekey(ours)).unwrap();
    world.net.run(secs(1));
    world.fit(1);
    assert!(world.events(responder).iter().any(|event| matches!(event, Event::Alive { .. })));
    assert_eq!(
        (world.counters(initiator).retransmissions, world.counters(responder).retransmissions),
        (0, 0)
    );
}

#[test]
fn a_request_that_is_out_goes_on_from_the_new_address() {
    let mut world = world();
    let (ours, _) = world.connect();
    world.net.down(address(INITIATOR), true);
    let initiator = world.initiator;
    world.net.command(initiator, Command::CreateChild { sa: ours, name: "net".into() }).unwrap();
    world.net.run(secs(2));
    to(&mut world, ours, ELSEWHERE);
    world.net.run(secs(10));
    world.fit(2);
    assert_eq!(moved(&world, initiator).len(), 1);
}

#[test]
fn who_moves_twice_at_once_is_where_it_moved_last() {
    let mut world = world();
    let (ours, _) = world.connect();
    to(&mut world, ours, ELSEWHERE);
    world.net.run(millis(5));
    to(&mut world, ours, INITIATOR);
    world.net.run(secs(1));
    for host in [world.initiator, world.responder] {
        let last = moved(&world, host).pop().unwrap();
        assert!([last.0, last.1].contains(&at(INITIATOR, 4500)), "{last:?}");
    }
}

#[test]
fn behind_a_nat_packets_are_within_udp_from_then_on() {
    let mut world = world();
    let (ours, _) = world.connect();
    // It does not know its new address, which a NAT gives it.
    let (local, remote) = (at("0.0.0.0", 4500), at(RESPONDER, 4500));
    let initiator = world.initiator;
    world.net.command(initiator, Command::Move { sa: ours, local, remote }).unwrap();
    world.net.run(secs(1));
    assert_eq!(moved(&world, initiator).pop().map(|(.., encapsulated)| encapsulated), Some(true));
    assert_eq!(moved(&world, world.responder).pop().map(|(.., encapsulated)| encapsulated), Some(true));
}

#[test]
fn who_is_not_where_it_says_is_not_followed() {
    let mut world = world();
    let (ours, _) = world.connect();
    // What is sent there does not arrive.
    world.net.meddle(|_, sent| match sent.transmit {
        usher_core::Transmit::Datagram { path } if path.remote.ip() == address(ELSEWHERE) => vec![],
        _ => vec![Duration::ZERO],
    });
    to(&mut world, ours, ELSEWHERE);
    world.net.run(secs(60));
    assert_eq!(moved(&world, world.responder), []);
    // A response that brings back another cookie ends the IKE_SA.
    let mut world = self::world();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.silence(responder, true);
    to(&mut world, ours, ELSEWHERE);
    world.net.run(millis(1));
    let now = world.net.now();
    world.net[responder].step(now, theirs.0, |sa, cx| {
        sa.expected += 1;
        let cookie = Notify::with(NotifyType::COOKIE2, [0; 16]);
        sa.respond(cx, crate::code::ExchangeType::INFORMATIONAL, &[Payload::Notify(cookie)]);
    });
    world.net.silence(responder, false);
    world.net.run(millis(20));
    assert_eq!(world.ended(initiator), [EndReason::Protocol]);
}

#[test]
fn without_mobike_of_both_nobody_moves() {
    for (ours, theirs) in [(true, false), (false, true)] {
        let with = |mobike, connection| Connection { mobike, ..connection };
        let mut world = World::new(with(ours, connection(true)), with(theirs, connection(false)));
        let (sa, other) = world.connect();
        let (local, remote) = (at(ELSEWHERE, 4500), at(RESPONDER, 4500));
        let initiator = world.initiator;
        let refused = world.net.command(initiator, Command::Move { sa, local, remote });
        assert!(matches!(refused, Err(usher_core::CommandError::WrongState(_))));
        let _ = other;
    }
    // Nor does a responder.
    let mut world = world();
    let (_, theirs) = world.connect();
    let (local, remote) = (at(RESPONDER, 4500), at(ELSEWHERE, 4500));
    let responder = world.responder;
    let refused = world.net.command(responder, Command::Move { sa: theirs, local, remote });
    assert!(matches!(refused, Err(usher_core::CommandError::WrongState(_))));
}

#[test]
fn addresses_that_the_responder_does_not_take_are_told() {
    let mut world = world();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.silence(responder, true);
    to(&mut world, ours, ELSEWHERE);
    world.net.run(millis(1));
    let now = world.net.now();
    world.net[responder].step(now, theirs.0, |sa, cx| {
        sa.expected += 1;
        let notify = Notify::new(NotifyType::UNACCEPTABLE_ADDRESSES);
        sa.respond_notify(cx, crate::code::ExchangeType::INFORMATIONAL, notify);
    });
    world.net.silence(responder, false);
    world.net.run(millis(20));
    assert!(world.events(initiator).contains(&Event::MoveRefused { sa: ours }));
}

#[test]
fn who_asks_whether_the_other_is_alive_does_not_move() {
    let mobike = |liveness, connection| Connection { mobike: true, liveness, ..connection };
    let mut world = World::new(mobike(Some(secs(30)), connection(true)), mobike(None, connection(false)));
    world.connect();
    let requests = world.counters(world.initiator).requests;
    world.net.run(secs(100));
    assert!(world.counters(world.initiator).requests > requests);
    // And so the responder has nothing to find out about another path (RFC 4555 §3.5).
    let responder = world.counters(world.responder);
    assert_eq!((responder.requests, responder.moved), (0, 0));
}

/// Whoever goes to a place where nothing reaches it, comes back, hears there what was asked of that place, and answers when it has gone
/// there once more.
#[test]
fn a_question_that_followed_a_mover_proves_no_other_place() {
    let mut world = world();
    let (ours, theirs) = world.connect();
    world.net.meddle(|_, sent| {
        let usher_core::Transmit::Datagram { path } = sent.transmit else { return vec![Duration::ZERO] };
        // Behind the marker of port 4500 the flags are the header's twentieth octet.
        let is_response = sent.bytes.get(4 + 19).is_some_and(|flags| flags & 0x20 != 0);
        match (path.remote.ip() == address(ELSEWHERE), path.remote.ip() == address(RESPONDER) && is_response)
        {
            (true, _) => vec![],
            (false, true) => vec![millis(400)],
            _ => vec![Duration::ZERO],
        }
    });
    to(&mut world, ours, ELSEWHERE);
    world.net.run(millis(20));
    to(&mut world, ours, INITIATOR);
    let responder = world.responder;
    let until = |world: &mut World, done: &mut dyn FnMut(&mut World) -> bool| {
        while !done(world) {
            world.net.step().expect("it comes");
            assert!(world.net.now() < instant(secs(60)), "it comes");
        }
    };
    until(&mut world, &mut |world| {
        world.net[responder].sas.get_mut(theirs.0).unwrap().path.remote.ip() == address(INITIATOR)
    });
    let before = world.counters(responder).retransmissions;
    until(&mut world, &mut |world| world.counters(responder).retransmissions > before);
    // What was asked of the place elsewhere is here, and its answer is under way.
    world.net.run(millis(15));
    to(&mut world, ours, ELSEWHERE);
    world.net.run(secs(5));
    let elsewhere = |(_, remote, _): &(SocketAddr, SocketAddr, bool)| remote.ip() == address(ELSEWHERE);
    let moved = moved(&world, responder);
    assert!(!moved.iter().any(elsewhere), "{moved:?}");
}

/// Whoever asks for new SAs before it is shown to be where it says gets them only afterwards.
#[test]
fn nothing_new_is_made_for_a_place_that_is_not_proved() {
    let mut world = world();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    to(&mut world, ours, ELSEWHERE);
    world.net.command(initiator, Command::Rekey(ours)).unwrap();
    world.net.run(secs(30));
    assert!(world.counters(responder).temporary_failures > 0);
    let (here, there) = (at(ELSEWHERE, 4500), at(RESPONDER, 4500));
    assert_eq!(moved(&world, responder), [(there, here, false)], "the SAs that there were have moved");
    world.fit(1);
}

/// Whoever is put out goes, however often it moves meanwhile: each move asks for another proof of where it is.
#[test]
fn who_keeps_moving_is_deleted_all_the_same() {
    let mut world = world();
    let (ours, theirs) = world.connect();
    let responder = world.responder;
    for (n, address) in [ELSEWHERE, INITIATOR].into_iter().cycle().take(40).enumerate() {
        if !world.ended(world.initiator).is_empty() {
            break;
        }
        to(&mut world, ours, address);
        // The request of the move is there, and the question for the proof is out.
        world.net.run(millis(15));
        if n == 2 {
            world.net.command(responder, Command::Delete(theirs)).unwrap();
        }
    }
    assert!(world.net.now() < instant(millis(1300)), "{:?}", world.net.now());
    world.net.run(millis(100));
    assert_eq!(world.ended(responder), [EndReason::Deleted]);
    assert_eq!(world.children(responder).len(), 0);
}
