//! Rate limits of an authenticated peer (RFC 8019 section 5).

use super::*;
use crate::machine::established::IkeSaTask;

/// An initiator whose CHILD_SAs have their own key exchange.
fn world_of(config: IkeEndpointConfig) -> (IkeTestNetwork, IkeSaId, IkeSaId) {
    let fresh = |initiator| {
        let mut connection = psk_connection(initiator);
        connection.children[0].proposals.truncate(1);
        connection
    };
    let mut world = IkeTestNetwork::with_config(config, fresh(true), fresh(false), TestEapMethod::MsChapV2);
    let (ours, theirs) = world.connect();
    (world, ours, theirs)
}

/// The initiator's next request is for this task.
fn run_task(world: &mut IkeTestNetwork, ours: IkeSaId, task: &IkeSaTask) {
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].run_sa_step_at(now, ours.token(), |sa, cx| {
        let state = established_state(sa);
        state.rest_until = None;
        state.tasks.clear();
        state.plan_task(task.clone());
        sa.go_on(cx);
    });
    world.net.run_for(millis(25));
}

#[test]
fn key_exchanges_for_more_and_more_sas_are_put_off() {
    let (mut world, ours, _) = world_of(IkeEndpointConfig { creates_per_minute: 6, ..default_config() });
    let responder = world.responder;
    world.net.take_work();
    for _ in 0..20 {
        run_task(&mut world, ours, &IkeSaTask::CreateChild(0));
    }
    let counters = world.counters(responder);
    // 20 times 25 ms is less than ten seconds.
    assert_eq!((counters.creates_rate_limited, counters.temporary_failures), (14, 14));
    assert_eq!(world.installed_children(responder).len(), 7, "the first came with the IKE_SA");
    // Rekeying the IKE_SA counts for the same limit, and its successor gets no new budget.
    run_task(&mut world, ours, &IkeSaTask::Rekey);
    assert_eq!((world.counters(responder).rekeyed, world.counters(responder).creates_rate_limited), (0, 15));
    // Deferred requests succeed later.
    world.net.run_for(secs(20));
    assert_eq!((world.counters(responder).rekeyed, world.net[responder].active_sa_count()), (1, 1));
    world.assert_children_match(7);
}

#[test]
fn a_replacing_ike_sa_inherits_the_request_limit_of_the_old_one() {
    let (mut world, mut ours, _) = world_of(IkeEndpointConfig { creates_per_minute: 6, ..default_config() });
    for n in 0..8 {
        run_task(&mut world, ours, &IkeSaTask::Rekey);
        let newest = world.events(world.initiator).iter().rev().find_map(|event| match event {
            IkeEvent::Rekeyed { new, .. } => Some(*new),
            _ => None,
        });
        ours = newest.unwrap_or(ours);
        assert_eq!(world.counters(world.responder).rekeyed, (n + 1).min(6), "after {n}");
        world.net.run_for(millis(100));
    }
}

/// The request is retransmitted, and handled then.
#[test]
fn requests_without_end_are_taken_one_after_another() {
    let (mut world, ours, theirs) =
        world_of(IkeEndpointConfig { requests_per_minute: 60, ..default_config() });
    let (initiator, responder) = (world.initiator, world.responder);
    let alive = |world: &IkeTestNetwork| {
        world.events(initiator).iter().filter(|event| matches!(event, IkeEvent::Alive { .. })).count()
    };
    for _ in 0..100 {
        run_task(&mut world, ours, &IkeSaTask::Probe);
    }
    // 60 at once, and one each second after that; 2.5 s have passed.
    let answered = alive(&world);
    assert!((60..=62).contains(&answered), "{answered}");
    assert!(world.counters(responder).requests_rate_limited > 0);
    // Dropped requests are not decrypted, so they cost almost nothing.
    world.net.take_work();
    // The initiator is the first host.
    let bytes = world.net.sent_transmits().iter().rev().find(|sent| sent.from == 0).unwrap().bytes.clone();
    let (from, to) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
    let now = world.net.now();
    world.net[responder].run_sa_step_at(now, theirs.token(), |sa, _| {
        let debt = &mut established_state(sa).request_debt;
        while !debt.is_minute_limit_reached(now, 60) {
            debt.charge_minute_share(now, 60);
        }
    });
    let before = world.counters(responder).requests_rate_limited;
    for _ in 0..100 {
        world.forge_datagram(responder, from, to, &bytes);
    }
    assert_eq!(world.counters(responder).requests_rate_limited, before + 100);
    assert_eq!(world.net.take_work().get("ike.open"), None);
    // The last request is answered by its retransmission, and the peer is still alive.
    world.net.run_for(secs(30));
    assert!(alive(&world) > answered);
    run_task(&mut world, ours, &IkeSaTask::Probe);
    world.assert_children_match(1);
    assert_eq!((world.sa_counts(), world.end_reasons(initiator).len()), ((1, 1), 0));
}

/// A gateway's own requests in an hour stay far below every limit.
#[test]
fn limits_of_requests_are_none_to_who_behaves() {
    let (mut world, ours, _) = world_of(default_config());
    for _ in 0..60 {
        run_task(&mut world, ours, &IkeSaTask::CreateChild(0));
    }
    for _ in 0..1000 {
        run_task(&mut world, ours, &IkeSaTask::Probe);
    }
    let counters = world.counters(world.responder);
    assert_eq!((counters.creates_rate_limited, counters.requests_rate_limited), (0, 0));
    assert_eq!(world.installed_children(world.responder).len(), 61);
}
