//! Further key exchanges after CREATE_CHILD_SA (RFC 9370 §2.2.4), and CHILD_SAs that are granted and not taken.

use super::*;
use crate::Message;
use crate::code::{ExchangeType, NotifyType};

const HYBRID: &str = "aes128-sha256-x25519-ke1_mlkem768";
const HYBRID_ESP: &str = "aes128gcm16-x25519-ke1_mlkem768";

fn hybrid(initiator: bool) -> Connection {
    let mut connection = connection(initiator);
    connection.proposals = vec![Proposal::ike(HYBRID).unwrap()];
    connection.children[0].proposals = vec![Proposal::esp(HYBRID_ESP).unwrap()];
    connection
}

fn world() -> World {
    World::new(hybrid(true), hybrid(false))
}

/// The exchanges that were sent after so many datagrams.
fn shown(world: &World, from: usize) -> Vec<String> {
    let header = |octets: &[u8]| Message::parse(octets).unwrap().header.to_string();
    world.net.sent()[from..].iter().map(|sent| header(&sent.bytes)).collect()
}

fn spi(world: &World, host: At<Endpoint>) -> u32 {
    *world.children(host).keys().next().unwrap()
}

fn sides(world: &World, (ours, theirs): (SaId, SaId)) -> [(At<Endpoint>, SaId); 2] {
    [(world.initiator, ours), (world.responder, theirs)]
}

/// The other side has moved since it began: nothing is made for a place that is not proved.
#[test]
fn what_was_begun_before_a_move_is_not_made_before_the_place_is_proved() {
    let [ours, theirs] = [true, false].map(|initiator| Connection { mobike: true, ..hybrid(initiator) });
    let mut world = World::new(ours, theirs);
    let (ours, theirs) = world.connect();
    let responder = world.responder;
    world.net.command(world.initiator, Command::Rekey(ours)).unwrap();
    let waits = |world: &mut World| {
        world.net[responder].sas.get_mut(theirs.0).is_some_and(|sa| sa.expected_keys.is_some())
    };
    while !waits(&mut world) {
        world.net.step().expect("the rekeying is begun");
    }
    world.net[responder].sas.get_mut(theirs.0).unwrap().plan(sa::Task::Check);
    let before = world.counters(responder).temporary_failures;
    while waits(&mut world) {
        world.net.step().expect("the keys come");
    }
    assert_eq!(world.counters(responder).temporary_failures, before + 1);
    // Afterwards it is made.
    world.net.run(secs(60));
    world.fit(1);
}

#[test]
fn an_ike_sa_is_replaced_with_all_its_key_exchanges() {
    for side in 0..2 {
        let mut world = world();
        let ids = world.connect();
        let (host, sa) = sides(&world, ids)[side];
        let from = world.net.sent().len();
        world.net.take_work();
        world.net.command(host, Command::Rekey(sa)).unwrap();
        world.net.run(secs(2));
        world.fit(1);
        let (request, said) = (if side == 0 { 3 } else { 0 }, shown(&world, from));
        assert_eq!(
            said,
            [
                format!("CREATE_CHILD_SA request {request}"),
                format!("CREATE_CHILD_SA response {request}"),
                // ML-KEM's public value needs two fragments.
                format!("IKE_FOLLOWUP_KE request {}", request + 1),
                format!("IKE_FOLLOWUP_KE request {}", request + 1),
                format!("IKE_FOLLOWUP_KE response {}", request + 1),
                format!("INFORMATIONAL request {}", request + 2),
                format!("INFORMATIONAL response {}", request + 2),
            ]
        );
        assert_eq!(world.net.take_work()["ike.key_exchange"], 7, "four operations, and three of ML-KEM");
        assert_eq!(world.ended(world.responder), [EndReason::Rekeyed]);
        world.net.run(secs(60));
        assert_eq!(world.sas(), (1, 1));
    }
}

#[test]
fn a_child_is_made_and_replaced_with_all_its_key_exchanges() {
    for side in 0..2 {
        let mut world = world();
        let ids = world.connect();
        let (host, sa) = sides(&world, ids)[side];
        world.net.command(host, Command::CreateChild { sa, name: "net".into() }).unwrap();
        world.net.run(secs(2));
        world.fit(2);
        let old = spi(&world, host);
        world.net.command(host, Command::RekeyChild { sa, spi: old }).unwrap();
        world.net.run(secs(2));
        world.fit(2);
        assert!(!world.children(host).contains_key(&old));
        let exchanges =
            shown(&world, 0).iter().filter(|said| said.starts_with("IKE_FOLLOWUP_KE resp")).count();
        assert_eq!(exchanges, 2);
    }
}

/// IPv6 Ready: EN.I.1.2.2.1, EN.R.1.1.2.2, EN.R.1.2.2.1, EN.R.1.3.2.1.
#[test]
fn each_of_its_messages_may_be_lost() {
    for lost in 0..7usize {
        let mut world = world();
        let (ours, _) = world.connect();
        let base = world.net.sent().len();
        world.net.meddle(move |n, _| if n == base + lost { Vec::new() } else { vec![Duration::ZERO] });
        world.net.command(world.initiator, Command::Rekey(ours)).unwrap();
        world.net.run(secs(10));
        world.fit(1);
        assert!(world.counters(world.initiator).retransmissions <= 1, "message {lost}");
    }
}

#[test]
fn two_that_begin_at_the_same_time_try_again_after_a_while() {
    for ike in [true, false] {
        let mut world = world();
        let ids = world.connect();
        for (host, sa) in sides(&world, ids) {
            let spi = spi(&world, host);
            let command = if ike { Command::Rekey(sa) } else { Command::RekeyChild { sa, spi } };
            world.net.command(host, command).unwrap();
        }
        let before = [spi(&world, world.initiator), spi(&world, world.responder)];
        world.net.run(secs(30));
        world.fit(1);
        let refused = [world.initiator, world.responder].map(|host| world.counters(host).temporary_failures);
        assert_eq!(refused, [1, 1], "{ike}");
        let replaced = [world.initiator, world.responder].map(|host| world.counters(host).rekeyed);
        if ike {
            assert!(replaced[0] > 0 && replaced[0] == replaced[1], "{replaced:?}");
        } else {
            assert_ne!(before, [spi(&world, world.initiator), spi(&world, world.responder)]);
        }
    }
}

#[test]
fn what_does_not_go_on_is_forgotten_after_twenty_seconds() {
    let mut world = world();
    let (ours, _) = world.connect();
    let base = world.net.sent().len();
    // The response to the first request comes after the responder has given up.
    world.net.meddle(move |n, _| if n == base + 1 { vec![secs(21)] } else { vec![Duration::ZERO] });
    world.net.command(world.initiator, Command::Rekey(ours)).unwrap();
    world.net.run(millis(100));
    let (initiator, responder) = (world.initiator, world.responder);
    let now = world.net.now();
    let expects =
        |world: &mut World| world.net[responder].step(now, 0, |sa, _| sa.expected_keys.is_some()).unwrap();
    assert!(expects(&mut world));
    world.net.sever(initiator, responder, true);
    world.net.run(secs(20));
    assert!(!expects(&mut world));
    world.net.sever(initiator, responder, false);
    world.net.run(secs(20));
    // What comes then is of nothing that is known, and the old IKE_SA stays as it was.
    assert_eq!(world.counters(initiator).rekeyed + world.counters(responder).rekeyed, 0);
    assert!(shown(&world, base).iter().any(|said| said.starts_with("IKE_FOLLOWUP_KE response")));
    world.fit(1);
    // It can be tried again.
    world.net.command(initiator, Command::Rekey(ours)).unwrap();
    world.net.run(secs(2));
    assert_eq!(world.counters(responder).rekeyed, 1);
    world.fit(1);
}

#[test]
fn a_further_key_exchange_of_nothing_is_answered_so_and_ends_nothing() {
    let mut world = world();
    let (ours, _) = world.connect();
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].step(now, ours.0, |sa, cx| {
        let link = Notify::with(NotifyType::ADDITIONAL_KEY_EXCHANGE, [9; 16]);
        let payloads = [Payload::Notify(link)];
        sa.request(cx, ExchangeType::IKE_FOLLOWUP_KE, &payloads, crate::machine::sa::Exchange::Probe);
        sa.outstanding = None;
    });
    world.net.run(secs(1));
    assert_eq!(shown(&world, 0).last().unwrap(), "IKE_FOLLOWUP_KE response 3");
    assert_eq!(world.sas(), (1, 1));
    world.fit(1);
}

#[test]
fn a_side_that_makes_none_then_is_replaced_without() {
    let mut world = world();
    let (ours, _) = world.connect();
    let (responder, now) = (world.responder, world.net.now());
    world.net[responder].step(now, 0, |sa, _| {
        let proposals = vec![Proposal::ike("aes128-sha256-x25519").unwrap()];
        sa.connection = Arc::new(Connection { proposals, ..(*sa.connection).clone() });
    });
    world.net.command(world.initiator, Command::Rekey(ours)).unwrap();
    world.net.run(secs(2));
    world.fit(1);
    assert_eq!(world.ended(world.initiator), [EndReason::Rekeyed]);
    assert!(!shown(&world, 0).iter().any(|said| said.starts_with("IKE_FOLLOWUP_KE")));
}

#[test]
fn a_child_that_is_granted_and_not_taken_is_deleted() {
    let mut world = World::psk();
    let (ours, _) = world.connect();
    world.net.command(world.initiator, Command::CreateChild { sa: ours, name: "net".into() }).unwrap();
    let (initiator, now) = (world.initiator, world.net.now());
    // It wants less when the answer comes than it has asked for.
    world.net[initiator].step(now, ours.0, |sa, _| {
        let mut connection = (*sa.connection).clone();
        connection.children[0].remote = Some(network("10.2.7.0", 24));
        sa.connection = Arc::new(connection);
    });
    world.net.run(secs(1));
    let why = world.events(initiator).into_iter().find_map(|event| match event {
        Event::ChildRefused { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(why, Some(NotifyType::TS_UNACCEPTABLE));
    assert_eq!(shown(&world, 0).last().unwrap(), "INFORMATIONAL response 3");
    world.fit(1);
}
