//! Additional key exchanges: ML-KEM-768 beside X25519.

use super::super::intermediate::continue_as_initiator;
use super::*;
use crate::IkeMessage;

const HYBRID: &str = "aes128-sha256-x25519-ke1_mlkem768";

fn with_proposal(words: &str, connection: IkeConnectionConfig) -> IkeConnectionConfig {
    IkeConnectionConfig { proposals: vec![Proposal::parse_ike_proposal(words).unwrap()], ..connection }
}

fn hybrid_network() -> IkeTestNetwork {
    IkeTestNetwork::new(
        with_proposal(HYBRID, psk_connection(true)),
        with_proposal(HYBRID, psk_connection(false)),
    )
}

#[test]
fn a_further_key_exchange_comes_before_anybody_says_who_it_is() {
    let mut world = hybrid_network();
    let (ours, theirs) = world.connect();
    world.assert_children_match(1);
    let shown: Vec<_> = world
        .net
        .sent_transmits()
        .iter()
        .map(|sent| IkeMessage::parse(&sent.bytes).unwrap().header.to_string())
        .collect();
    // ML-KEM-768's public value has 1184 octets, so its message is fragmented.
    assert_eq!(
        shown,
        [
            "IKE_SA_INIT request 0",
            "IKE_SA_INIT response 0",
            "IKE_INTERMEDIATE request 1",
            "IKE_INTERMEDIATE request 1",
            "IKE_INTERMEDIATE response 1",
            "IKE_AUTH request 2",
            "IKE_AUTH response 2"
        ]
    );
    // Diffie-Hellman takes two operations on each side. ML-KEM takes two at the initiator and one at the responder.
    assert_eq!(world.net.take_work()["ike.key_exchange"], 7);
    // The IKE_SA is rekeyed by a key exchange of the first method alone, on top of these keys.
    world.net.send_command(world.initiator, IkeCommand::Rekey(ours)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::Rekeyed]);
    let _ = theirs;
    world.assert_children_match(1);
}

#[test]
fn each_of_its_messages_may_be_lost() {
    for lost in 0..9usize {
        let mut world = hybrid_network();
        world.net.intercept_transmits(move |n, _| if n == lost { Vec::new() } else { vec![Duration::ZERO] });
        world.initiate();
        world.net.run_for(secs(10));
        world.assert_children_match(1);
        assert!(world.counters(world.initiator).retransmissions <= 1, "message {lost}");
    }
}

#[test]
fn it_is_left_out_only_where_both_allow_that() {
    const EITHER: &str = "aes128-sha256-x25519-ke1_mlkem768-ke1_none";
    const WITHOUT: &str = "aes128-sha256-x25519";
    for (ours, theirs, messages) in [
        (EITHER, WITHOUT, 4),
        (WITHOUT, EITHER, 4),
        (EITHER, EITHER, 7),
        (HYBRID, EITHER, 7),
        (EITHER, HYBRID, 7),
    ] {
        let mut world = IkeTestNetwork::new(
            with_proposal(ours, psk_connection(true)),
            with_proposal(theirs, psk_connection(false)),
        );
        world.connect();
        world.assert_children_match(1);
        assert_eq!(world.net.sent_transmits().len(), messages, "{ours} {theirs}");
    }
    for (ours, theirs) in [(HYBRID, WITHOUT), (WITHOUT, HYBRID)] {
        let mut world = IkeTestNetwork::new(
            with_proposal(ours, psk_connection(true)),
            with_proposal(theirs, psk_connection(false)),
        );
        world.initiate();
        world.net.run_for(secs(4));
        assert_eq!(world.end_reasons(world.initiator), [EndReason::NoProposal], "{ours} {theirs}");
    }
}

#[test]
fn an_initiator_that_leaves_it_out_all_the_same_is_refused() {
    let mut world = hybrid_network();
    world.initiate();
    world.net.run_for(millis(25));
    // Its IKE_INTERMEDIATE message is lost, and it continues without.
    world.net.drop_in_flight();
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].run_sa_step_at(now, 0, |sa, cx| {
        sa.base.outstanding = None;
        sa.base.next_request = 1;
        let SaPhase::Initiating(state) = &mut sa.phase else { panic!("{sa:?}") };
        state.common.additional.clear();
        state.common.between = None;
        let result = continue_as_initiator(&sa.base, state, cx);
        sa.apply_initiator_result(cx, result);
    });
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::Protocol]);
}

#[test]
fn what_was_said_in_it_is_authenticated() {
    for of_initiator in [true, false] {
        let mut world = hybrid_network();
        world.initiate();
        world.net.run_for(millis(45));
        let (responder, now) = (world.responder, world.net.now());
        world.net[responder].run_sa_step_at(now, 0, |sa, _| {
            let SaPhase::Responding(state) = &mut sa.phase else { panic!("{sa:?}") };
            let between = state.common.between.as_mut().unwrap();
            if of_initiator { between.0[0] ^= 1 } else { between.1[0] ^= 1 }
        });
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(responder), [EndReason::AuthenticationFailed]);
    }
}
