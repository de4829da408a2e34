//! Each arrow of the pass-through part of RFC 4137's figures 6 and 7.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn at_seconds(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}
fn started_authenticator() -> EapAuthenticator {
    let mut a = EapAuthenticator::new(7, None, TIMEOUT, at_seconds(0));
    assert_eq!(a.poll_transmit(), Some(&[1, 7, 0, 5, 1][..]));
    assert_eq!(a.poll_transmit(), None);
    a
}
/// Returns a conversation whose identity is with the AAA server.
fn waiting_authenticator() -> EapAuthenticator {
    let mut a = started_authenticator();
    assert!(a.handle_packet(at_seconds(1), &[2, 7, 0, 6, 1, b'x']));
    assert_eq!(a.poll_aaa(), Some(&[2, 7, 0, 6, 1, b'x'][..]));
    assert_eq!(a.poll_aaa(), None);
    a
}
const REQUEST: &[u8] = &[1, 20, 0, 6, 4, 9];
const RESPONSE: &[u8] = &[2, 20, 0, 6, 4, 8];

#[test]
fn packets_pass_both_ways_until_success() {
    let mut a = waiting_authenticator();
    assert!(a.handle_aaa_reply(at_seconds(2), AaaReply::Request(REQUEST)));
    assert_eq!(a.poll_transmit(), Some(REQUEST));
    assert!(a.handle_packet(at_seconds(3), RESPONSE));
    assert_eq!(a.poll_aaa(), Some(RESPONSE));
    assert_eq!(a.poll_end(), None);
    assert!(a.handle_aaa_reply(at_seconds(4), AaaReply::Success(&[3, 20, 0, 4])));
    assert_eq!(a.poll_transmit(), Some(&[3, 20, 0, 4][..]));
    assert_eq!((a.poll_end(), a.poll_end()), (Some(EapConversationOutcome::Success), None));
    assert_eq!(a.poll_timeout(), None);
}

#[test]
fn an_end_without_its_packet_gets_one() {
    for (answer, packet, end) in [
        (AaaReply::Success(&[]), [3, 7, 0, 4], EapConversationOutcome::Success),
        (AaaReply::Failure(&[]), [4, 7, 0, 4], EapConversationOutcome::Failure),
    ] {
        let mut a = waiting_authenticator();
        assert!(a.handle_aaa_reply(at_seconds(2), answer));
        assert_eq!(a.poll_transmit(), Some(&packet[..]));
        assert_eq!(a.poll_end(), Some(end));
    }
    // RFC 3579 §2.1: a timeout of the AAA server causes no packet to the peer.
    let mut a = waiting_authenticator();
    assert!(a.handle_aaa_reply(at_seconds(2), AaaReply::Timeout));
    assert_eq!(a.poll_transmit(), None);
    assert_eq!(a.poll_end(), Some(EapConversationOutcome::AaaTimeout));
}

/// RFC 3579 §2.6.3, RFC 4072 §2.8.2: a contradicting packet is not corrected, and the reply decides.
#[test]
fn a_contradiction_is_neither_passed_on_nor_put_right() {
    for (answer, end) in [
        (AaaReply::Failure(&[3, 7, 0, 4]), EapConversationOutcome::Failure),
        (AaaReply::Success(&[4, 7, 0, 4]), EapConversationOutcome::Success),
        (AaaReply::Success(REQUEST), EapConversationOutcome::Success),
        (AaaReply::Failure(&[0]), EapConversationOutcome::Failure),
    ] {
        let mut a = waiting_authenticator();
        assert!(a.handle_aaa_reply(at_seconds(2), answer));
        assert_eq!(a.poll_transmit(), None);
        assert_eq!(a.poll_end(), Some(end));
    }
}

#[test]
fn a_known_identity_goes_to_the_server_at_once() {
    let mut a = EapAuthenticator::with_identity(b"bob", 9, None, TIMEOUT, at_seconds(0));
    assert_eq!(a.poll_aaa(), Some(&[2, 9, 0, 8, 1, b'b', b'o', b'b'][..]));
    assert_eq!(a.poll_transmit(), None);
    assert!(a.handle_aaa_reply(at_seconds(1), AaaReply::Request(REQUEST)));
    assert_eq!(a.poll_transmit(), Some(REQUEST));
}

#[test]
fn what_answers_nothing_is_discarded_and_moves_no_timer() {
    let mut a = started_authenticator();
    for packet in
        [&[][..], &[2, 8, 0, 6, 1, b'x'], &[1, 7, 0, 6, 1, b'x'], &[2, 7, 0, 6, 4, 1], &[3, 7, 0, 4]]
    {
        assert!(!a.handle_packet(at_seconds(5), packet), "{packet:?}");
        assert_eq!(a.poll_aaa(), None);
        assert_eq!(a.poll_timeout(), Some(at_seconds(30)));
    }
    let mut a = waiting_authenticator();
    assert!(!a.handle_packet(at_seconds(2), &[2, 7, 0, 6, 1, b'x']));
    // The AAA server discards too, or its request is malformed: the peer's next response is still accepted.
    assert!(a.handle_aaa_reply(at_seconds(3), AaaReply::NoRequest));
    assert!(a.handle_packet(at_seconds(4), &[2, 7, 0, 6, 1, b'y']));
    assert!(!a.handle_aaa_reply(at_seconds(5), AaaReply::Request(&[2, 7, 0, 6, 1, b'x'])));
    assert!(a.handle_packet(at_seconds(6), &[2, 7, 0, 6, 1, b'z']));
    assert!(!started_authenticator().handle_aaa_reply(at_seconds(1), AaaReply::Timeout));
}

#[test]
fn requests_are_sent_again_and_then_given_up() {
    let policy = EapRetransmissionConfig { count: 3, ..Default::default() };
    let mut a = EapAuthenticator::new(7, Some(policy), TIMEOUT, at_seconds(0));
    let mut sent = Vec::new();
    let mut now = at_seconds(0);
    loop {
        if a.poll_transmit().is_some() {
            sent.push(now.duration_since(at_seconds(0)).as_secs());
        }
        if let Some(end) = a.poll_end() {
            assert_eq!((end, now), (EapConversationOutcome::PeerTimeout, at_seconds(3 + 6 + 12 + 20)));
            break;
        }
        now = a.poll_timeout().unwrap();
        a.handle_timeout(now);
    }
    assert_eq!(sent, [0, 3, 9, 21]);

    let mut a = EapAuthenticator::new(7, Some(policy), TIMEOUT, at_seconds(0));
    a.handle_timeout(at_seconds(3));
    assert_eq!(a.retransmission_count(), 1);
    assert!(a.handle_packet(at_seconds(4), &[2, 7, 0, 6, 1, b'x']));
    assert!(a.handle_aaa_reply(at_seconds(5), AaaReply::Request(REQUEST)));
    assert_eq!((a.retransmission_count(), a.poll_timeout()), (0, Some(at_seconds(8))));
}

#[test]
fn a_silent_peer_is_given_up_where_nothing_is_sent_again() {
    let mut a = started_authenticator();
    a.handle_timeout(at_seconds(29));
    assert_eq!(a.poll_end(), None);
    a.handle_timeout(at_seconds(30));
    assert_eq!(a.poll_end(), Some(EapConversationOutcome::PeerTimeout));
    assert_eq!(a.poll_transmit(), None);
}

#[test]
fn every_arrow_is_taken() {
    PassThrough::cover(|| {
        packets_pass_both_ways_until_success();
        an_end_without_its_packet_gets_one();
        a_contradiction_is_neither_passed_on_nor_put_right();
        a_known_identity_goes_to_the_server_at_once();
        what_answers_nothing_is_discarded_and_moves_no_timer();
        requests_are_sent_again_and_then_given_up();
    });
}
