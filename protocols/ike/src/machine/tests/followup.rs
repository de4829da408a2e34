//! Additional key exchanges after CREATE_CHILD_SA (RFC 9370 §2.2.4), and CHILD_SAs that are granted and rejected.

use super::*;
use crate::IkeMessage;
use crate::code::{ExchangeType, NotifyType};

const HYBRID: &str = "aes128-sha256-x25519-ke1_mlkem768";
const HYBRID_ESP: &str = "aes128gcm16-x25519-ke1_mlkem768";

fn hybrid_connection(initiator: bool) -> IkeConnectionConfig {
    let mut connection = psk_connection(initiator);
    connection.proposals = vec![Proposal::parse_ike_proposal(HYBRID).unwrap()];
    connection.children[0].proposals = vec![Proposal::parse_esp_proposal(HYBRID_ESP).unwrap()];
    connection
}

fn hybrid_network() -> IkeTestNetwork {
    IkeTestNetwork::new(hybrid_connection(true), hybrid_connection(false))
}

/// The headers of the messages after this number of datagrams.
fn sent_headers(world: &IkeTestNetwork, from: usize) -> Vec<String> {
    let header = |octets: &[u8]| IkeMessage::parse(octets).unwrap().header.to_string();
    world.net.sent_transmits()[from..].iter().map(|sent| header(&sent.bytes)).collect()
}

fn child_spi(world: &IkeTestNetwork, host: NetworkHostHandle<IkeEndpoint>) -> u32 {
    *world.installed_children(host).keys().next().unwrap()
}

fn host_sas(
    world: &IkeTestNetwork,
    (ours, theirs): (IkeSaId, IkeSaId),
) -> [(NetworkHostHandle<IkeEndpoint>, IkeSaId); 2] {
    [(world.initiator, ours), (world.responder, theirs)]
}

/// The peer has moved since the rekeying began: no SA is created for an unproved address.
#[test]
fn a_rekeying_begun_before_a_move_waits_for_the_new_address() {
    let [ours, theirs] =
        [true, false].map(|initiator| IkeConnectionConfig { mobike: true, ..hybrid_connection(initiator) });
    let mut world = IkeTestNetwork::new(ours, theirs);
    let (ours, theirs) = world.connect();
    let responder = world.responder;
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    let waits = |world: &mut IkeTestNetwork| {
        world.net[responder]
            .sas
            .get_mut(theirs.0)
            .is_some_and(|sa| established_state(sa).expected_keys.is_some())
    };
    while !waits(&mut world) {
        world.net.run_next_arrival_or_timer().expect("the rekeying is begun");
    }
    established_state(world.net[responder].sas.get_mut(theirs.0).unwrap())
        .plan_task(established::IkeSaTask::Check);
    let before = world.counters(responder).temporary_failures;
    while waits(&mut world) {
        world.net.run_next_arrival_or_timer().expect("the keys come");
    }
    assert_eq!(world.counters(responder).temporary_failures, before + 1);
    // It is created afterwards.
    world.net.run_for(secs(60));
    world.assert_children_match(1);
}

#[test]
fn an_ike_sa_is_replaced_with_all_its_key_exchanges() {
    for side in 0..2 {
        let mut world = hybrid_network();
        let ids = world.connect();
        let (host, sa) = host_sas(&world, ids)[side];
        let from = world.net.sent_transmits().len();
        world.net.take_work();
        world.net.send_command(host, IkeCommand::Rekey(sa)).unwrap();
        world.net.run_for(secs(2));
        world.assert_children_match(1);
        let (request, said) = (if side == 0 { 3 } else { 0 }, sent_headers(&world, from));
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
        assert_eq!(world.end_reasons(world.responder), [EndReason::Rekeyed]);
        world.net.run_for(secs(60));
        assert_eq!(world.sa_counts(), (1, 1));
    }
}

#[test]
fn a_child_is_made_and_replaced_with_all_its_key_exchanges() {
    for side in 0..2 {
        let mut world = hybrid_network();
        let ids = world.connect();
        let (host, sa) = host_sas(&world, ids)[side];
        world.net.send_command(host, IkeCommand::CreateChild { sa, name: "net".into() }).unwrap();
        world.net.run_for(secs(2));
        world.assert_children_match(2);
        let old = child_spi(&world, host);
        world.net.send_command(host, IkeCommand::RekeyChild { sa, spi: old }).unwrap();
        world.net.run_for(secs(2));
        world.assert_children_match(2);
        assert!(!world.installed_children(host).contains_key(&old));
        let exchanges =
            sent_headers(&world, 0).iter().filter(|said| said.starts_with("IKE_FOLLOWUP_KE resp")).count();
        assert_eq!(exchanges, 2);
    }
}

/// IPv6 Ready: EN.I.1.2.2.1, EN.R.1.1.2.2, EN.R.1.2.2.1, EN.R.1.3.2.1.
#[test]
fn each_of_its_messages_may_be_lost() {
    for lost in 0..7usize {
        let mut world = hybrid_network();
        let (ours, _) = world.connect();
        let base = world.net.sent_transmits().len();
        world.net.intercept_transmits(
            move |n, _| if n == base + lost { Vec::new() } else { vec![Duration::ZERO] },
        );
        world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
        world.net.run_for(secs(10));
        world.assert_children_match(1);
        assert!(world.counters(world.initiator).retransmissions <= 1, "message {lost}");
    }
}

#[test]
fn two_that_begin_at_the_same_time_try_again_after_a_while() {
    for ike in [true, false] {
        let mut world = hybrid_network();
        let ids = world.connect();
        for (host, sa) in host_sas(&world, ids) {
            let spi = child_spi(&world, host);
            let command = if ike { IkeCommand::Rekey(sa) } else { IkeCommand::RekeyChild { sa, spi } };
            world.net.send_command(host, command).unwrap();
        }
        let before = [child_spi(&world, world.initiator), child_spi(&world, world.responder)];
        world.net.run_for(secs(30));
        world.assert_children_match(1);
        let refused = [world.initiator, world.responder].map(|host| world.counters(host).temporary_failures);
        assert_eq!(refused, [1, 1], "{ike}");
        let replaced = [world.initiator, world.responder].map(|host| world.counters(host).rekeyed);
        if ike {
            assert!(replaced[0] > 0 && replaced[0] == replaced[1], "{replaced:?}");
        } else {
            assert_ne!(before, [child_spi(&world, world.initiator), child_spi(&world, world.responder)]);
        }
    }
}

#[test]
fn what_does_not_go_on_is_forgotten_after_twenty_seconds() {
    let mut world = hybrid_network();
    let (ours, _) = world.connect();
    let base = world.net.sent_transmits().len();
    // The response to the first request comes after the responder has given up.
    world
        .net
        .intercept_transmits(move |n, _| if n == base + 1 { vec![secs(21)] } else { vec![Duration::ZERO] });
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(millis(100));
    let (initiator, responder) = (world.initiator, world.responder);
    let now = world.net.now();
    let expects = |world: &mut IkeTestNetwork| {
        world.net[responder]
            .run_sa_step_at(now, 0, |sa, _| established_state(sa).expected_keys.is_some())
            .unwrap()
    };
    assert!(expects(&mut world));
    world.net.set_severed(initiator, responder, true);
    world.net.run_for(secs(20));
    assert!(!expects(&mut world));
    world.net.set_severed(initiator, responder, false);
    world.net.run_for(secs(20));
    // The next request has an unknown link, and the old IKE_SA stays.
    assert_eq!(world.counters(initiator).rekeyed + world.counters(responder).rekeyed, 0);
    assert!(sent_headers(&world, base).iter().any(|said| said.starts_with("IKE_FOLLOWUP_KE response")));
    world.assert_children_match(1);
    // It can be tried again.
    world.net.send_command(initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(2));
    assert_eq!(world.counters(responder).rekeyed, 1);
    world.assert_children_match(1);
}

#[test]
fn an_unknown_followup_exchange_is_answered_and_ends_no_sa() {
    let mut world = hybrid_network();
    let (ours, _) = world.connect();
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].run_sa_step_at(now, ours.0, |sa, cx| {
        let link = NotifyPayload::with_data(NotifyType::ADDITIONAL_KEY_EXCHANGE, [9; 16]);
        let payloads = [Payload::Notify(link)];
        send_request(sa, cx, ExchangeType::IKE_FOLLOWUP_KE, &payloads);
        sa.base.outstanding = None;
    });
    world.net.run_for(secs(1));
    assert_eq!(sent_headers(&world, 0).last().unwrap(), "IKE_FOLLOWUP_KE response 3");
    assert_eq!(world.sa_counts(), (1, 1));
    world.assert_children_match(1);
}

#[test]
fn a_side_that_makes_none_then_is_replaced_without() {
    let mut world = hybrid_network();
    let (ours, _) = world.connect();
    let (responder, now) = (world.responder, world.net.now());
    world.net[responder].run_sa_step_at(now, 0, |sa, _| {
        let proposals = vec![Proposal::parse_ike_proposal("aes128-sha256-x25519").unwrap()];
        sa.base.connection = Arc::new(IkeConnectionConfig { proposals, ..(*sa.base.connection).clone() });
    });
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(2));
    world.assert_children_match(1);
    assert_eq!(world.end_reasons(world.initiator), [EndReason::Rekeyed]);
    assert!(!sent_headers(&world, 0).iter().any(|said| said.starts_with("IKE_FOLLOWUP_KE")));
}

#[test]
fn a_child_that_is_granted_and_not_taken_is_deleted() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    world
        .net
        .send_command(world.initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() })
        .unwrap();
    let (initiator, now) = (world.initiator, world.net.now());
    // When the response comes, it wants less than it had requested.
    world.net[initiator].run_sa_step_at(now, ours.0, |sa, _| {
        let mut connection = (*sa.base.connection).clone();
        connection.children[0].remote = Some(network_selectors("10.2.7.0", 24));
        sa.base.connection = Arc::new(connection);
    });
    world.net.run_for(secs(1));
    let why = world.events(initiator).into_iter().find_map(|event| match event {
        IkeEvent::ChildRefused { why, .. } => Some(why),
        _ => None,
    });
    assert_eq!(why, Some(NotifyType::TS_UNACCEPTABLE));
    assert_eq!(sent_headers(&world, 0).last().unwrap(), "INFORMATIONAL response 3");
    world.assert_children_match(1);
}
