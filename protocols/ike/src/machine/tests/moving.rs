//! SAs that move to other addresses (RFC 4555).

use super::*;
use crate::code::NotifyType;

const NEW_ADDRESS: &str = "203.0.113.5";

/// Both support MOBIKE; the initiator has a second address.
fn mobike_network() -> IkeTestNetwork {
    let mobike = |connection| IkeConnectionConfig { mobike: true, ..connection };
    let mut world = IkeTestNetwork::new(mobike(psk_connection(true)), mobike(psk_connection(false)));
    let initiator = world.initiator;
    for (socket, port) in [(SOCKET, 500), (NAT_SOCKET, 4500)] {
        world.net.bind_socket(initiator, socket, socket_address(NEW_ADDRESS, port));
    }
    world
}

fn reported_moves(
    world: &IkeTestNetwork,
    host: NetworkHostHandle<IkeEndpoint>,
) -> Vec<(SocketAddr, SocketAddr, bool)> {
    let path = |event| match event {
        IkeEvent::Moved { path, encapsulated, .. } => Some((path.local, path.remote, encapsulated)),
        _ => None,
    };
    world.events(host).into_iter().filter_map(path).collect()
}

fn move_initiator(world: &mut IkeTestNetwork, sa: IkeSaId, address: &str) {
    let (local, remote) = (socket_address(address, 4500), socket_address(RESPONDER, 4500));
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::Move { sa, local, remote }).unwrap();
}

#[test]
fn packets_follow_a_moved_initiator_after_its_routability_check() {
    let mut world = mobike_network();
    let (ours, theirs) = world.connect();
    assert!(
        world.installed_children(world.initiator).values().all(|child| child.path.remote.port() == 4500),
        "without a NAT too"
    );
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(millis(15));
    assert_eq!(reported_moves(&world, world.responder), [], "it has to be shown first that it is there");
    world.net.run_for(secs(1));
    let (here, there) = (socket_address(NEW_ADDRESS, 4500), socket_address(RESPONDER, 4500));
    assert_eq!(reported_moves(&world, world.initiator), [(here, there, false)]);
    assert_eq!(reported_moves(&world, world.responder), [(there, here, false)]);
    // The old address is gone, and the IKE_SA continues.
    world.net.set_address_down(ip_address(INITIATOR), true);
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.send_command(responder, IkeCommand::Probe(theirs)).unwrap();
    world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    assert!(world.events(responder).iter().any(|event| matches!(event, IkeEvent::Alive { .. })));
    assert_eq!(
        (world.counters(initiator).retransmissions, world.counters(responder).retransmissions),
        (0, 0)
    );
}

#[test]
fn a_request_that_is_out_goes_on_from_the_new_address() {
    let mut world = mobike_network();
    let (ours, _) = world.connect();
    world.net.set_address_down(ip_address(INITIATOR), true);
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
    world.net.run_for(secs(2));
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(secs(10));
    world.assert_children_match(2);
    assert_eq!(reported_moves(&world, initiator).len(), 1);
}

#[test]
fn who_moves_twice_at_once_is_where_it_moved_last() {
    let mut world = mobike_network();
    let (ours, _) = world.connect();
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(millis(5));
    move_initiator(&mut world, ours, INITIATOR);
    world.net.run_for(secs(1));
    for host in [world.initiator, world.responder] {
        let last = reported_moves(&world, host).pop().unwrap();
        assert!([last.0, last.1].contains(&socket_address(INITIATOR, 4500)), "{last:?}");
    }
}

#[test]
fn behind_a_nat_packets_are_within_udp_from_then_on() {
    let mut world = mobike_network();
    let (ours, _) = world.connect();
    // It does not know its new address, which a NAT assigns.
    let (local, remote) = (socket_address("0.0.0.0", 4500), socket_address(RESPONDER, 4500));
    let initiator = world.initiator;
    world.net.send_command(initiator, IkeCommand::Move { sa: ours, local, remote }).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(reported_moves(&world, initiator).pop().map(|(.., encapsulated)| encapsulated), Some(true));
    assert_eq!(
        reported_moves(&world, world.responder).pop().map(|(.., encapsulated)| encapsulated),
        Some(true)
    );
}

#[test]
fn who_is_not_where_it_says_is_not_followed() {
    let mut world = mobike_network();
    let (ours, _) = world.connect();
    // Messages to that address are lost.
    world.net.intercept_transmits(|_, sent| match sent.transmit {
        usher_core::Transmit::Datagram { path } if path.remote.ip() == ip_address(NEW_ADDRESS) => vec![],
        _ => vec![Duration::ZERO],
    });
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(secs(60));
    assert_eq!(reported_moves(&world, world.responder), []);
    // A response with another COOKIE2 ends the IKE_SA.
    let mut world = self::mobike_network();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_silent(responder, true);
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(millis(1));
    let now = world.net.now();
    world.net[responder].run_sa_step_at(now, theirs.0, |sa, cx| {
        sa.base.expected += 1;
        let cookie = NotifyPayload::with_data(NotifyType::COOKIE2, [0; 16]);
        sa.base.respond_protected(cx, crate::code::ExchangeType::INFORMATIONAL, &[Payload::Notify(cookie)]);
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(20));
    assert_eq!(world.end_reasons(initiator), [EndReason::Protocol]);
}

#[test]
fn without_mobike_of_both_nobody_moves() {
    for (ours, theirs) in [(true, false), (false, true)] {
        let with = |mobike, connection| IkeConnectionConfig { mobike, ..connection };
        let mut world =
            IkeTestNetwork::new(with(ours, psk_connection(true)), with(theirs, psk_connection(false)));
        let (sa, other) = world.connect();
        let (local, remote) = (socket_address(NEW_ADDRESS, 4500), socket_address(RESPONDER, 4500));
        let initiator = world.initiator;
        let refused = world.net.send_command(initiator, IkeCommand::Move { sa, local, remote });
        assert!(matches!(refused, Err(usher_core::CommandError::WrongState(_))));
        let _ = other;
    }
    // The same at a responder.
    let mut world = mobike_network();
    let (_, theirs) = world.connect();
    let (local, remote) = (socket_address(RESPONDER, 4500), socket_address(NEW_ADDRESS, 4500));
    let responder = world.responder;
    let refused = world.net.send_command(responder, IkeCommand::Move { sa: theirs, local, remote });
    assert!(matches!(refused, Err(usher_core::CommandError::WrongState(_))));
}

#[test]
fn addresses_that_the_responder_does_not_take_are_told() {
    let mut world = mobike_network();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_silent(responder, true);
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(millis(1));
    let now = world.net.now();
    world.net[responder].run_sa_step_at(now, theirs.0, |sa, cx| {
        sa.base.expected += 1;
        let notify = NotifyPayload::new(NotifyType::UNACCEPTABLE_ADDRESSES);
        sa.base.respond_notify(cx, crate::code::ExchangeType::INFORMATIONAL, notify);
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(20));
    assert!(world.events(initiator).contains(&IkeEvent::MoveRefused { sa: ours }));
}

#[test]
fn who_asks_whether_the_other_is_alive_does_not_move() {
    let mobike = |liveness, connection| IkeConnectionConfig { mobike: true, liveness, ..connection };
    let mut world = IkeTestNetwork::new(
        mobike(Some(secs(30)), psk_connection(true)),
        mobike(None, psk_connection(false)),
    );
    world.connect();
    let requests = world.counters(world.initiator).requests;
    world.net.run_for(secs(100));
    assert!(world.counters(world.initiator).requests > requests);
    // The responder therefore has no other path to check (RFC 4555 §3.5).
    let responder = world.counters(world.responder);
    assert_eq!((responder.requests, responder.moved), (0, 0));
}

/// An initiator goes to an address where it receives nothing, comes back, receives the check of that address here,
/// and responds after it has gone there again.
#[test]
fn a_question_that_followed_a_mover_proves_no_other_place() {
    let mut world = mobike_network();
    let (ours, theirs) = world.connect();
    world.net.intercept_transmits(|_, sent| {
        let usher_core::Transmit::Datagram { path } = sent.transmit else { return vec![Duration::ZERO] };
        // After the marker of port 4500, the flags are the header's twentieth octet.
        let is_response = sent.bytes.get(4 + 19).is_some_and(|flags| flags & 0x20 != 0);
        match (
            path.remote.ip() == ip_address(NEW_ADDRESS),
            path.remote.ip() == ip_address(RESPONDER) && is_response,
        ) {
            (true, _) => vec![],
            (false, true) => vec![millis(400)],
            _ => vec![Duration::ZERO],
        }
    });
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(millis(20));
    move_initiator(&mut world, ours, INITIATOR);
    let responder = world.responder;
    let until = |world: &mut IkeTestNetwork, done: &mut dyn FnMut(&mut IkeTestNetwork) -> bool| {
        while !done(world) {
            world.net.run_next_arrival_or_timer().expect("it comes");
            assert!(world.net.now() < instant_after(secs(60)), "it comes");
        }
    };
    until(&mut world, &mut |world| {
        world.net[responder].sas.get_mut(theirs.0).unwrap().base.path.remote.ip() == ip_address(INITIATOR)
    });
    let before = world.counters(responder).retransmissions;
    until(&mut world, &mut |world| world.counters(responder).retransmissions > before);
    // The check of the other address is here, and its response is on the way.
    world.net.run_for(millis(15));
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.run_for(secs(5));
    let elsewhere = |(_, remote, _): &(SocketAddr, SocketAddr, bool)| remote.ip() == ip_address(NEW_ADDRESS);
    let moved = reported_moves(&world, responder);
    assert!(!moved.iter().any(elsewhere), "{moved:?}");
}

/// A peer that requests SAs before it has proved its new address gets them only afterwards.
#[test]
fn nothing_new_is_made_for_a_place_that_is_not_proved() {
    let mut world = mobike_network();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    move_initiator(&mut world, ours, NEW_ADDRESS);
    world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(30));
    assert!(world.counters(responder).temporary_failures > 0);
    let (here, there) = (socket_address(NEW_ADDRESS, 4500), socket_address(RESPONDER, 4500));
    assert_eq!(
        reported_moves(&world, responder),
        [(there, here, false)],
        "the SAs that there were have moved"
    );
    world.assert_children_match(1);
}

/// A deleted peer ends, even if it keeps moving: each move requires another check.
#[test]
fn who_keeps_moving_is_deleted_all_the_same() {
    let mut world = mobike_network();
    let (ours, theirs) = world.connect();
    let responder = world.responder;
    for (n, address) in [NEW_ADDRESS, INITIATOR].into_iter().cycle().take(40).enumerate() {
        if !world.end_reasons(world.initiator).is_empty() {
            break;
        }
        move_initiator(&mut world, ours, address);
        // The request of the move has arrived, and the check is outstanding.
        world.net.run_for(millis(15));
        if n == 2 {
            world.net.send_command(responder, IkeCommand::Delete(theirs)).unwrap();
        }
    }
    assert!(world.net.now() < instant_after(millis(1300)), "{:?}", world.net.now());
    world.net.run_for(millis(100));
    assert_eq!(world.end_reasons(responder), [EndReason::Deleted]);
    assert_eq!(world.installed_children(responder).len(), 0);
}
