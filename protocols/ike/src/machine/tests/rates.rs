//! What one peer that is let in may ask for (RFC 8019 section 5).

use super::*;
use crate::machine::sa::Task;

/// An initiator whose CHILD_SAs have keys of their own.
fn world_of(config: Config) -> (World, SaId, SaId) {
    let fresh = |initiator| {
        let mut connection = connection(initiator);
        connection.children[0].proposals.truncate(1);
        connection
    };
    let mut world = World::with(config, fresh(true), fresh(false), Method::MsChapV2);
    let (ours, theirs) = world.connect();
    (world, ours, theirs)
}

/// The initiator's next request is one of these.
fn asks(world: &mut World, ours: SaId, task: &Task) {
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].step(now, ours.token(), |sa, cx| {
        sa.rest_until = None;
        sa.tasks.clear();
        sa.plan(task.clone());
        sa.go_on(cx);
    });
    world.net.run(millis(25));
}

#[test]
fn key_exchanges_for_more_and_more_sas_are_put_off() {
    let (mut world, ours, _) = world_of(Config { creates_per_minute: 6, ..config() });
    let responder = world.responder;
    world.net.take_work();
    for _ in 0..20 {
        asks(&mut world, ours, &Task::CreateChild(0));
    }
    let counters = world.counters(responder);
    // 20 times 25 ms are no ten seconds.
    assert_eq!((counters.creates_held_back, counters.temporary_failures), (14, 14));
    assert_eq!(world.children(responder).len(), 7, "the first came with the IKE_SA");
    // The IKE_SA itself is under the same limit, and its successor has no more.
    asks(&mut world, ours, &Task::Rekey);
    assert_eq!((world.counters(responder).rekeyed, world.counters(responder).creates_held_back), (0, 15));
    // What was put off is done in its time.
    world.net.run(secs(20));
    assert_eq!((world.counters(responder).rekeyed, world.net[responder].living()), (1, 1));
    world.fit(7);
}

#[test]
fn an_ike_sa_that_takes_the_place_of_another_may_ask_for_no_more_than_that() {
    let (mut world, mut ours, _) = world_of(Config { creates_per_minute: 6, ..config() });
    for n in 0..8 {
        asks(&mut world, ours, &Task::Rekey);
        let newest = world.events(world.initiator).iter().rev().find_map(|event| match event {
            Event::Rekeyed { new, .. } => Some(*new),
            _ => None,
        });
        ours = newest.unwrap_or(ours);
        assert_eq!(world.counters(world.responder).rekeyed, (n + 1).min(6), "after {n}");
        world.net.run(millis(100));
    }
}

/// The request itself stays, and is taken when it comes again.
#[test]
fn requests_without_end_are_taken_one_after_another() {
    let (mut world, ours, theirs) = world_of(Config { requests_per_minute: 60, ..config() });
    let (initiator, responder) = (world.initiator, world.responder);
    let alive = |world: &World| {
        world.events(initiator).iter().filter(|event| matches!(event, Event::Alive { .. })).count()
    };
    for _ in 0..100 {
        asks(&mut world, ours, &Task::Probe);
    }
    // 60 at once, and one each second after that, of which 2.5 have passed.
    let answered = alive(&world);
    assert!((60..=62).contains(&answered), "{answered}");
    assert!(world.counters(responder).requests_held_back > 0);
    // Nothing of it is opened, so that it costs next to nothing.
    world.net.take_work();
    // The initiator is the first host.
    let bytes = world.net.sent().iter().rev().find(|sent| sent.from == 0).unwrap().bytes.clone();
    let (from, to) = (at(INITIATOR, 500), at(RESPONDER, 500));
    let now = world.net.now();
    world.net[responder].step(now, theirs.token(), |sa, _| {
        while !sa.request_debt.is_of_a_minute(now, 60) {
            sa.request_debt.add_of_a_minute(now, 60);
        }
    });
    let before = world.counters(responder).requests_held_back;
    for _ in 0..100 {
        world.forge(responder, from, to, &bytes);
    }
    assert_eq!(world.counters(responder).requests_held_back, before + 100);
    assert_eq!(world.net.take_work().get("ike.open"), None);
    // What was asked last is answered by its retransmission, and the peer is as alive as before.
    world.net.run(secs(30));
    assert!(alive(&world) > answered);
    asks(&mut world, ours, &Task::Probe);
    world.fit(1);
    assert_eq!((world.sas(), world.ended(initiator).len()), ((1, 1), 0));
}

/// What a gateway does by itself in an hour is far from any limit.
#[test]
fn limits_of_requests_are_none_to_who_behaves() {
    let (mut world, ours, _) = world_of(config());
    for _ in 0..60 {
        asks(&mut world, ours, &Task::CreateChild(0));
    }
    for _ in 0..1000 {
        asks(&mut world, ours, &Task::Probe);
    }
    let counters = world.counters(world.responder);
    assert_eq!((counters.creates_held_back, counters.requests_held_back), (0, 0));
    assert_eq!(world.children(world.responder).len(), 61);
}
