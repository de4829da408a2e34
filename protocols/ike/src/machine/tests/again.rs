//! Messages that come again, and how they are counted.

use super::*;

/// The datagrams of a login, in the order in which they were sent: two of IKE_SA_INIT, two of IKE_AUTH.
fn login() -> (World, Vec<Vec<u8>>) {
    let mut world = World::psk();
    world.connect();
    let sent = world.net.sent().iter().map(|sent| sent.bytes.clone()).collect();
    (world, sent)
}

/// IPv6 Ready: EN.R.1.1.2.2, EN.R.1.2.2.1, EN.R.1.3.2.1.
#[test]
fn a_request_that_comes_again_and_again_is_answered_ten_times_a_second() {
    let (mut world, sent) = login();
    let responder = world.responder;
    let (from, to) = (at(INITIATOR, 500), at(RESPONDER, 500));
    let before = world.counters(responder);
    // Milliseconds since the one before, and how often it was answered and passed over by then.
    for (after, answered, passed) in
        [(0, 1, 0), (0, 1, 1), (50, 1, 2), (49, 1, 3), (1, 2, 3), (99, 2, 4), (1, 3, 4)]
    {
        world.net.run(millis(after));
        world.forge(responder, from, to, &sent[2]);
        let now = world.counters(responder);
        let since = (now.duplicates - before.duplicates, now.duplicates_passed - before.duplicates_passed);
        assert_eq!(since, (answered, passed), "{after} ms later");
    }
    world.fit(1);
}

#[test]
fn a_response_that_comes_again_is_expected_no_more() {
    let (mut world, sent) = login();
    let initiator = world.initiator;
    let before = world.counters(initiator).not_expected;
    for (n, response) in (1..).zip([&sent[1], &sent[3], &sent[1]]) {
        world.forge(initiator, at(RESPONDER, 500), at(INITIATOR, 500), response);
        assert_eq!(world.counters(initiator).not_expected - before, n);
    }
    world.fit(1);
    // So is the first one while the second is waited for.
    let mut world = World::psk();
    world.initiate();
    world.net.run(millis(25));
    let first = world.net.sent()[1].bytes.clone();
    let before = world.counters(initiator).not_expected;
    world.forge(initiator, at(RESPONDER, 500), at(INITIATOR, 500), &first);
    assert_eq!(world.counters(initiator).not_expected, before + 1);
    world.net.run(secs(1));
    world.fit(1);
}

/// RFC 7296 section 2.21.3: a response cannot be refused, so that an IKE_SA whose response cannot be understood is over.
/// IPv6 Ready: EN.I.1.1.4.2.
#[test]
fn a_response_with_what_is_critical_and_unknown_ends_the_ike_sa_and_is_counted() {
    let mut world = World::psk();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.silence(responder, true);
    world.net.command(initiator, Command::Probe(ours)).unwrap();
    world.net.run(millis(1));
    let (now, before) = (world.net.now(), world.counters(initiator).syntax);
    world.net[responder].step(now, theirs.0, |sa, cx| {
        sa.expected += 1;
        let unknown = Payload::Unknown { kind: crate::code::PayloadType(99), critical: true, data: vec![] };
        sa.respond(cx, crate::code::ExchangeType::INFORMATIONAL, &[unknown]);
    });
    world.net.silence(responder, false);
    world.net.run(millis(20));
    assert_eq!(
        (world.ended(initiator), world.counters(initiator).syntax),
        (vec![EndReason::Protocol], before + 1)
    );
}
