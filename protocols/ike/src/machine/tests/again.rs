//! Retransmitted messages and their counters.

use super::*;

/// The datagrams of a login in order: two of IKE_SA_INIT, two of IKE_AUTH.
fn capture_login() -> (IkeTestNetwork, Vec<Vec<u8>>) {
    let mut world = IkeTestNetwork::with_shared_key();
    world.connect();
    let sent = world.net.sent_transmits().iter().map(|sent| sent.bytes.clone()).collect();
    (world, sent)
}

/// IPv6 Ready: EN.R.1.1.2.2, EN.R.1.2.2.1, EN.R.1.3.2.1.
#[test]
fn retransmitted_requests_get_at_most_ten_answers_a_second() {
    let (mut world, sent) = capture_login();
    let responder = world.responder;
    let (from, to) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
    let before = world.counters(responder);
    // Milliseconds since the previous one; the numbers of responses and of drops by then.
    for (after, answered, passed) in
        [(0, 1, 0), (0, 1, 1), (50, 1, 2), (49, 1, 3), (1, 2, 3), (99, 2, 4), (1, 3, 4)]
    {
        world.net.run_for(millis(after));
        world.forge_datagram(responder, from, to, &sent[2]);
        let now = world.counters(responder);
        let since = (now.duplicates - before.duplicates, now.duplicates_ignored - before.duplicates_ignored);
        assert_eq!(since, (answered, passed), "{after} ms later");
    }
    world.assert_children_match(1);
}

#[test]
fn a_response_that_comes_again_is_expected_no_more() {
    let (mut world, sent) = capture_login();
    let initiator = world.initiator;
    let before = world.counters(initiator).not_expected;
    for (n, response) in (1..).zip([&sent[1], &sent[3], &sent[1]]) {
        world.forge_datagram(
            initiator,
            socket_address(RESPONDER, 500),
            socket_address(INITIATOR, 500),
            response,
        );
        assert_eq!(world.counters(initiator).not_expected - before, n);
    }
    world.assert_children_match(1);
    // So does the first request while the second is expected.
    let mut world = IkeTestNetwork::with_shared_key();
    world.initiate();
    world.net.run_for(millis(25));
    let first = world.net.sent_transmits()[1].bytes.clone();
    let before = world.counters(initiator).not_expected;
    world.forge_datagram(initiator, socket_address(RESPONDER, 500), socket_address(INITIATOR, 500), &first);
    assert_eq!(world.counters(initiator).not_expected, before + 1);
    world.net.run_for(secs(1));
    world.assert_children_match(1);
}

/// RFC 7296 section 2.21.3: a response cannot be refused, so that an IKE_SA whose response cannot be understood is over.
/// IPv6 Ready: EN.I.1.1.4.2.
#[test]
fn an_unknown_critical_payload_in_a_response_ends_the_ike_sa() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_silent(responder, true);
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(millis(1));
    let (now, before) = (world.net.now(), world.counters(initiator).syntax);
    world.net[responder].run_sa_step_at(now, theirs.0, |sa, cx| {
        sa.base.expected += 1;
        let unknown = Payload::Unknown { kind: crate::code::PayloadType(99), critical: true, data: vec![] };
        sa.base.respond_protected(cx, crate::code::ExchangeType::INFORMATIONAL, &[unknown]);
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(20));
    assert_eq!(
        (world.end_reasons(initiator), world.counters(initiator).syntax),
        (vec![EndReason::Protocol], before + 1)
    );
}
