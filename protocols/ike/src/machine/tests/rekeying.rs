//! Rekeying by one side, by the other, and by both at the same time: every row of the tables.

use super::super::collision::{ChildRekeying, ChildState, SaRekeying, SaState};
use super::*;

fn rekeyed_pairs(world: &IkeTestNetwork, host: NetworkHostHandle<IkeEndpoint>) -> Vec<(IkeSaId, IkeSaId)> {
    let pair = |event| match event {
        IkeEvent::Rekeyed { old, new, .. } => Some((old, new)),
        _ => None,
    };
    world.events(host).into_iter().filter_map(pair).collect()
}

/// Changes the nonces that follow.
fn advance_rng(endpoint: &mut IkeEndpoint) {
    endpoint.cx.rng.next_u32();
}

fn child_spi(world: &IkeTestNetwork, host: NetworkHostHandle<IkeEndpoint>) -> u32 {
    *world.installed_children(host).keys().next().unwrap()
}

/// One side rekeys its CHILD_SA.
fn a_child_is_replaced() {
    for by_initiator in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let (host, sa) = if by_initiator { (world.initiator, ours) } else { (world.responder, theirs) };
        let old = child_spi(&world, host);
        world.net.send_command(host, IkeCommand::RekeyChild { sa, spi: old }).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(1);
        let children = world.installed_children(host);
        assert_eq!(
            (children.contains_key(&old), children.values().next().unwrap().replaces),
            (false, Some(old))
        );
    }
}

/// Both rekey the same CHILD_SA. One new one remains, whichever side has the lowest nonce.
fn a_child_is_replaced_by_both() {
    for seed in 0..8 {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        // With other nonces each time.
        let initiator = world.initiator;
        (0..seed).for_each(|_| advance_rng(&mut world.net[initiator]));
        let (a, b) = (child_spi(&world, world.initiator), child_spi(&world, world.responder));
        world.net.run_for(secs(1));
        world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
        world.net.send_command(world.responder, IkeCommand::RekeyChild { sa: theirs, spi: b }).unwrap();
        world.net.run_for(secs(2));
        world.assert_children_match(1);
        let collisions =
            world.counters(world.initiator).collisions + world.counters(world.responder).collisions;
        assert_eq!(collisions, 1, "one of them deletes its own");
    }
}

/// The response to one side's request is late: the peer has deleted the old CHILD_SA by then.
fn an_answer_is_late() {
    for lost in 0..4usize {
        for by_initiator in [true, false] {
            let mut world = IkeTestNetwork::with_shared_key();
            let (ours, theirs) = world.connect();
            let (a, b) = (child_spi(&world, world.initiator), child_spi(&world, world.responder));
            let base = world.net.sent_transmits().len();
            world.net.intercept_transmits(move |n, _| {
                if n == base + lost { vec![secs(7)] } else { vec![Duration::ZERO] }
            });
            let order = if by_initiator { [0, 1] } else { [1, 0] };
            for which in order {
                let (host, sa, spi) = [(world.initiator, ours, a), (world.responder, theirs, b)][which];
                world.net.send_command(host, IkeCommand::RekeyChild { sa, spi }).unwrap();
            }
            world.net.run_for(secs(60));
            world.assert_children_match(1);
        }
    }
}

/// One side deletes a CHILD_SA while the other rekeys it.
fn a_child_is_deleted_while_it_is_replaced() {
    for first in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let (a, b) = (child_spi(&world, world.initiator), child_spi(&world, world.responder));
        if first {
            world.net.send_command(world.responder, IkeCommand::DeleteChild { sa: theirs, spi: b }).unwrap();
            world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
        } else {
            world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
            world.net.run_for(millis(5));
            world.net.send_command(world.responder, IkeCommand::DeleteChild { sa: theirs, spi: b }).unwrap();
        }
        world.net.run_for(secs(30));
        let (ours, theirs) = (
            world.installed_children(world.initiator).len(),
            world.installed_children(world.responder).len(),
        );
        assert_eq!(ours, theirs, "{first}");
    }
}

/// One side rekeys an IKE_SA with its CHILD_SAs.
fn an_ike_sa_is_replaced() {
    for by_initiator in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let (host, sa) = if by_initiator { (world.initiator, ours) } else { (world.responder, theirs) };
        world.net.send_command(host, IkeCommand::Rekey(sa)).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(1);
        let pairs = [rekeyed_pairs(&world, world.initiator), rekeyed_pairs(&world, world.responder)];
        assert_eq!((pairs[0].len(), pairs[1].len()), (1, 1));
        assert_eq!((pairs[0][0].0, pairs[1][0].0), (ours, theirs));
        assert_eq!(world.end_reasons(world.initiator), [EndReason::Rekeyed]);
        assert_eq!(world.end_reasons(world.responder), [EndReason::Rekeyed]);
        world.net.run_for(secs(40));
        assert_eq!(world.sa_counts(), (1, 1));
        // The new one works: either side can rekey it and its CHILD_SAs.
        let new = pairs[0][0].1;
        let old = child_spi(&world, world.initiator);
        world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: new, spi: old }).unwrap();
        world.net.run_for(secs(1));
        world.net.send_command(world.responder, IkeCommand::Rekey(pairs[1][0].1)).unwrap();
        world.net.run_for(secs(1));
        world.assert_children_match(1);
        assert_eq!(rekeyed_pairs(&world, world.initiator).len(), 2);
        let last = rekeyed_pairs(&world, world.initiator)[1].1;
        world.net.send_command(world.initiator, IkeCommand::Delete(last)).unwrap();
        world.assert_all_removed();
    }
}

/// Both rekey the IKE_SA at the same time, and messages are reordered.
fn an_ike_sa_is_replaced_by_both() {
    for late in 0..6usize {
        for draws in 0..4 {
            let mut world = IkeTestNetwork::with_shared_key();
            let (ours, theirs) = world.connect();
            let initiator = world.initiator;
            (0..draws).for_each(|_| advance_rng(&mut world.net[initiator]));
            let base = world.net.sent_transmits().len();
            world.net.intercept_transmits(move |n, _| {
                if late < 5 && n == base + late { vec![secs(7)] } else { vec![Duration::ZERO] }
            });
            world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
            world.net.send_command(world.responder, IkeCommand::Rekey(theirs)).unwrap();
            // An IKE_SA whose maker did not get the response is deleted after a while, and given up.
            world.net.run_for(secs(400));
            world.assert_children_match(1);
            assert_eq!(world.sa_counts(), (1, 1), "late {late}");
            let pairs = [rekeyed_pairs(&world, world.initiator), rekeyed_pairs(&world, world.responder)];
            assert_eq!((pairs[0].len(), pairs[1].len()), (1, 1), "late {late}");
            // The same IKE_SA remains on both sides, and works in both directions.
            for (host, sa) in [(world.initiator, pairs[0][0].1), (world.responder, pairs[1][0].1)] {
                world.net.send_command(host, IkeCommand::CreateChild { sa, name: "net".into() }).unwrap();
                world.net.run_for(secs(1));
            }
            world.assert_children_match(3);
        }
    }
}

/// One side deletes the IKE_SA while the other rekeys it, and the reverse.
fn an_ike_sa_is_deleted_while_it_is_replaced() {
    for (first, after) in [(true, 0), (true, 12), (false, 0), (false, 12)] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let (a, b) = (world.initiator, world.responder);
        if first {
            world.net.send_command(a, IkeCommand::Rekey(ours)).unwrap();
            world.net.run_for(millis(after));
            let _ = world.net.send_command(b, IkeCommand::Delete(theirs));
        } else {
            world.net.send_command(b, IkeCommand::Delete(theirs)).unwrap();
            world.net.run_for(millis(after));
            let _ = world.net.send_command(a, IkeCommand::Rekey(ours));
        }
        world.net.run_for(secs(200));
        assert_eq!(world.sa_counts().0, world.sa_counts().1, "{first} {after}");
        assert_eq!(world.installed_children(a).len(), world.installed_children(b).len());
    }
}

/// A responder that refuses for a moment, or for good.
fn a_rekeying_is_refused() {
    // The responder rekeys a CHILD_SA while the initiator rekeys the IKE_SA: one of them has to wait (RFC 7296
    // §2.25.2).
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let b = child_spi(&world, world.responder);
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.send_command(world.responder, IkeCommand::RekeyChild { sa: theirs, spi: b }).unwrap();
    world.net.run_for(secs(60));
    world.assert_children_match(1);
    let failures = world.counters(world.initiator).temporary_failures
        + world.counters(world.responder).temporary_failures;
    assert_eq!(failures, 2, "each refuses the other's");
    assert_eq!(rekeyed_pairs(&world, world.initiator).len(), 1, "and tries again");
    // Proposals that are no longer acceptable.
    let mut theirs = psk_connection(false);
    theirs.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-modp1024").unwrap()];
    let mut ours = psk_connection(true);
    ours.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-x25519").unwrap()];
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (ours, _) = world.connect();
    let a = child_spi(&world, world.initiator);
    world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    assert_eq!(child_spi(&world, world.initiator), a, "the old one stays");
}

/// Delays messages from now on, by their number.
fn delay_messages(world: &mut IkeTestNetwork, late: &[(usize, Duration)]) {
    let late = late.to_vec();
    let base = world.net.sent_transmits().len();
    world.net.intercept_transmits(move |n, _| {
        let found = late.iter().find(|(number, _)| base + number == n);
        vec![found.map_or(Duration::ZERO, |(_, time)| *time)]
    });
}

/// Both sides request to rekey a CHILD_SA.
fn rekey_from_both(world: &mut IkeTestNetwork, (ours, theirs): (IkeSaId, IkeSaId)) {
    let (a, b) = (child_spi(world, world.initiator), child_spi(world, world.responder));
    world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
    world.net.send_command(world.responder, IkeCommand::RekeyChild { sa: theirs, spi: b }).unwrap();
}

/// A request arrives when the peer has already rekeyed the CHILD_SA: while it deletes the old one, after that, and
/// with a late deletion.
fn a_request_comes_too_late() {
    const DELAY_CASES: [&[(usize, Duration)]; 3] = [
        &[(0, Duration::from_millis(25))],
        &[(0, Duration::from_millis(15)), (3, Duration::from_secs(1))],
        &[(0, Duration::from_secs(7))],
    ];
    for late in DELAY_CASES {
        let mut world = IkeTestNetwork::with_shared_key();
        let ids = world.connect();
        delay_messages(&mut world, late);
        rekey_from_both(&mut world, ids);
        world.net.run_for(secs(60));
        world.assert_children_match(1);
        // The same for the IKE_SA.
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        delay_messages(&mut world, late);
        world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
        world.net.send_command(world.responder, IkeCommand::Rekey(theirs)).unwrap();
        world.net.run_for(secs(400));
        world.assert_children_match(1);
        assert_eq!(world.sa_counts(), (1, 1));
    }
}

/// Alters an endpoint's state of its CHILD_SAs, as if it had lost its state or violated the protocol.
fn alter_sa(
    world: &mut IkeTestNetwork,
    host: NetworkHostHandle<IkeEndpoint>,
    sa: IkeSaId,
    how: impl FnOnce(&mut established::EstablishedSa<'_>),
) {
    let now = world.net.now();
    world.net[host].run_sa_step_at(now, sa.0, |sa, _| how(&mut sa.as_established().unwrap()));
}

/// The peer does not know the CHILD_SA any more.
fn a_child_is_not_found() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let a = child_spi(&world, world.initiator);
    let responder = world.responder;
    alter_sa(&mut world, responder, theirs, |sa| sa.state.children.clear());
    world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(world.installed_children(world.initiator).len(), 0);
    // The same after it has rekeyed it, and before it reports that.
    let mut world = IkeTestNetwork::with_shared_key();
    let ids = world.connect();
    delay_messages(&mut world, &[(0, Duration::from_secs(1)), (3, Duration::from_secs(9))]);
    rekey_from_both(&mut world, ids);
    world.net.run_for(millis(200));
    alter_sa(&mut world, responder, ids.1, |sa| sa.state.children.clear());
    world.net.run_for(secs(100));
    assert_eq!(world.counters(world.initiator).syntax, 0);
}

/// A side requests to rekey what it has already rekeyed: it has to wait.
fn a_peer_asks_twice() {
    let again = |world: &mut IkeTestNetwork, theirs: IkeSaId| {
        let responder = world.responder;
        let mut old = 0;
        alter_sa(world, responder, theirs, |sa| {
            sa.state.tasks.clear();
            sa.state.children[0].state = ChildState::Installed;
            old = sa.state.children[0].sa.inbound;
        });
        world.net.send_command(responder, IkeCommand::RekeyChild { sa: theirs, spi: old }).unwrap();
    };
    // It has rekeyed it and deletes it late.
    let mut world = IkeTestNetwork::with_shared_key();
    let (_, theirs) = world.connect();
    let b = child_spi(&world, world.responder);
    world.net.send_command(world.responder, IkeCommand::RekeyChild { sa: theirs, spi: b }).unwrap();
    world.net.send_command(world.responder, IkeCommand::Probe(theirs)).unwrap();
    world.net.run_for(millis(25));
    again(&mut world, theirs);
    world.net.run_for(secs(60));
    assert!(world.counters(world.initiator).temporary_failures > 0);
    // Both have rekeyed it, and our response is late.
    let mut world = IkeTestNetwork::with_shared_key();
    let ids = world.connect();
    delay_messages(&mut world, &[(0, Duration::from_secs(7))]);
    rekey_from_both(&mut world, ids);
    world.net.send_command(world.responder, IkeCommand::Probe(ids.1)).unwrap();
    world.net.run_for(millis(25));
    again(&mut world, ids.1);
    world.net.run_for(secs(60));
    assert!(world.counters(world.initiator).temporary_failures > 0);
    // Ours has replaced it, and is to be deleted.
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let a = child_spi(&world, world.initiator);
    world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
    world.net.send_command(world.initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(millis(15));
    again(&mut world, theirs);
    world.net.run_for(secs(60));
    assert!(world.counters(world.initiator).temporary_failures > 0);
    // For IKE_SAs: one that the peer has rekeyed, or both.
    for collide in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, theirs) = world.connect();
        let responder = world.responder;
        let late = if collide { vec![(0, secs(7)), (3, secs(9))] } else { vec![(2, secs(9))] };
        delay_messages(&mut world, &late);
        if collide {
            world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
        }
        world.net.send_command(responder, IkeCommand::Rekey(theirs)).unwrap();
        world.net.run_for(millis(25));
        alter_sa(&mut world, responder, theirs, |sa| {
            sa.state.rekeying = SaState::Established;
            sa.base.outstanding = None;
            sa.base.next_request -= 1;
        });
        world.net.send_command(responder, IkeCommand::Rekey(theirs)).unwrap();
        world.net.run_for(secs(1));
        assert!(world.counters(world.initiator).temporary_failures > 0, "{collide}");
    }
}

/// A host deletes an SA that either side is rekeying.
fn what_is_replaced_is_deleted_by_its_host() {
    // The peer's new one has replaced it.
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (a, b) = (child_spi(&world, world.initiator), child_spi(&world, world.responder));
    world.net.send_command(world.initiator, IkeCommand::RekeyChild { sa: ours, spi: a }).unwrap();
    world.net.send_command(world.initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(millis(15));
    world.net.send_command(world.responder, IkeCommand::DeleteChild { sa: theirs, spi: b }).unwrap();
    world.net.run_for(secs(60));
    world.assert_children_match(1);
    // Both have rekeyed it, and one response is late. One remains, whichever is deleted meanwhile.
    for seed in 0..8 {
        let mut world = IkeTestNetwork::with_shared_key();
        let ids = world.connect();
        let initiator = world.initiator;
        (0..seed).for_each(|_| advance_rng(&mut world.net[initiator]));
        let b = child_spi(&world, world.responder);
        // The responder's response to the initiator.
        let base = world.net.sent_transmits().len();
        world.net.intercept_transmits(move |n, sent| {
            vec![if n >= base && n < base + 4 && sent.from == 1 && n > base + 1 {
                secs(7)
            } else {
                Duration::ZERO
            }]
        });
        rekey_from_both(&mut world, ids);
        world.net.run_for(millis(25));
        let _ = world.net.send_command(world.responder, IkeCommand::DeleteChild { sa: ids.1, spi: b });
        world.net.run_for(secs(100));
        let (ours, theirs) = (
            world.installed_children(world.initiator).len(),
            world.installed_children(world.responder).len(),
        );
        assert_eq!(ours, theirs, "{seed}");
    }
    // Both delete the same one.
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (a, b) = (child_spi(&world, world.initiator), child_spi(&world, world.responder));
    world.net.send_command(world.initiator, IkeCommand::DeleteChild { sa: ours, spi: a }).unwrap();
    world.net.send_command(world.responder, IkeCommand::DeleteChild { sa: theirs, spi: b }).unwrap();
    world.net.run_for(secs(1));
    world.assert_children_match(0);
    world.net.send_command(world.initiator, IkeCommand::Delete(ours)).unwrap();
    world.net.send_command(world.responder, IkeCommand::Delete(theirs)).unwrap();
    world.net.run_for(secs(1));
    world.assert_all_removed();
}

/// A side falls silent after a rekeying, before it deletes the old SA: the peer deletes it.
fn what_is_left_over_is_deleted() {
    for ike in [true, false] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let a = child_spi(&world, world.initiator);
        let what = if ike { IkeCommand::Rekey(ours) } else { IkeCommand::RekeyChild { sa: ours, spi: a } };
        world.net.send_command(world.initiator, what).unwrap();
        world.net.run_for(millis(15));
        let initiator = world.initiator;
        world.net.set_silent(initiator, true);
        world.net.run_for(secs(300));
        assert!(world.end_reasons(world.responder).contains(&EndReason::Unreachable), "{ike}");
        assert_eq!(world.counters(world.responder).given_up, 1);
    }
}

/// During the wait after TEMPORARY_FAILURE, a shorter dead peer detection interval still applies.
#[test]
fn a_probe_does_not_wait_for_what_rests() {
    let lively = |connection| IkeConnectionConfig { liveness: Some(secs(2)), ..connection };
    let mut world = IkeTestNetwork::new(lively(psk_connection(true)), lively(psk_connection(false)));
    let (ours, theirs) = world.connect();
    let b = child_spi(&world, world.responder);
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.send_command(world.responder, IkeCommand::RekeyChild { sa: theirs, spi: b }).unwrap();
    world.net.run_for(secs(60));
    world.assert_children_match(1);
    assert!(world.events(world.initiator).iter().any(|event| matches!(event, IkeEvent::Alive { .. })));
}

#[test]
fn a_peer_that_replaces_an_ike_sa_again_and_again_has_to_wait() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (mut sa, _) = world.connect();
    for _ in 0..12 {
        let _ = world.net.send_command(world.initiator, IkeCommand::Rekey(sa));
        world.net.run_for(millis(100));
        sa = rekeyed_pairs(&world, world.initiator).last().map_or(sa, |(_, new)| *new);
    }
    assert!(world.counters(world.responder).temporary_failures >= 1 && world.sa_counts().1 <= 10);
    assert_eq!(rekeyed_pairs(&world, world.responder).len(), 8);
}

#[test]
fn an_answer_to_rekeying_without_a_secret_ends_the_ike_sa() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_silent(responder, true);
    world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(millis(1));
    let now = world.net.now();
    world.net[responder].run_sa_step_at(now, theirs.0, |sa, cx| {
        sa.base.expected += 1;
        sa.base.respond_protected(
            cx,
            crate::code::ExchangeType::CREATE_CHILD_SA,
            &[Payload::Nonce(vec![1; 32])],
        );
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(20));
    assert_eq!(world.end_reasons(initiator), [EndReason::Protocol]);
}

/// IPv6 Ready: EN.I.1.2.3.3, EN.I.1.2.4.3.
#[test]
fn sas_are_replaced_when_their_time_has_come() {
    let timed = |mut connection: IkeConnectionConfig| {
        connection.rekey_after = Some(secs(300));
        connection.children[0].rekey_after = Some(secs(100));
        connection
    };
    let mut world = IkeTestNetwork::new(timed(psk_connection(true)), timed(psk_connection(false)));
    world.connect();
    world.net.run_for(secs(2000));
    world.assert_children_match(1);
    assert_eq!(world.sa_counts(), (1, 1));
    let counters = world.counters(world.initiator);
    assert!(counters.rekeyed >= 6 && counters.children >= 18, "{counters:?}");
    assert_eq!((counters.given_up, counters.syntax, counters.integrity), (0, 0, 0));
    // A refused rekeying is tried again, and the old SA stays.
    let mut theirs = psk_connection(false);
    theirs.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-modp1024").unwrap()];
    let mut ours = timed(psk_connection(true));
    ours.rekey_after = None;
    ours.children[0].proposals = vec![Proposal::parse_esp_proposal("aes128gcm16-x25519").unwrap()];
    let mut world = IkeTestNetwork::new(ours, theirs);
    world.connect();
    let a = child_spi(&world, world.initiator);
    world.net.run_for(secs(400));
    assert_eq!(child_spi(&world, world.initiator), a);
    assert!(
        world.counters(world.responder).children_refused + world.counters(world.responder).invalid_ke >= 4
    );
}

/// IPv6 Ready: EN.I.1.2.1.1, EN.I.1.2.3.1, EN.I.1.2.3.6, EN.I.1.2.4.1, EN.I.1.2.4.2, EN.I.1.2.4.6,
/// EN.I.1.2.6.3, EN.I.1.2.6.4, EN.I.1.2.6.5, EN.I.1.2.6.6, EN.R.1.2.1.1, EN.R.1.2.4.1, EN.R.1.2.5.1,
/// EN.R.1.2.6.1, EN.R.1.2.6.2, EN.R.1.2.6.3, EN.R.1.2.6.4, EN.R.1.2.6.9.
#[test]
fn sas_are_replaced_and_deleted_by_one_side_and_by_both() {
    let all = || {
        a_child_is_replaced();
        a_child_is_replaced_by_both();
        an_answer_is_late();
        a_child_is_deleted_while_it_is_replaced();
        an_ike_sa_is_replaced();
        an_ike_sa_is_replaced_by_both();
        an_ike_sa_is_deleted_while_it_is_replaced();
        a_rekeying_is_refused();
        a_request_comes_too_late();
        a_child_is_not_found();
        a_peer_asks_twice();
        what_is_replaced_is_deleted_by_its_host();
        what_is_left_over_is_deleted();
    };
    ChildRekeying::cover(|| SaRekeying::cover(all));
}
