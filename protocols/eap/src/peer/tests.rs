//! Each arrow of RFC 4137's figure 3.

use super::*;
use crate::method::md5::Password;
use usher_core::Seed;

const PATIENCE: Duration = Duration::from_secs(60);

fn peer() -> Peer {
    let config = Config {
        identity: b"bob".to_vec(),
        methods: [Box::new(Password::new(b"secret")) as Box<dyn PeerOffer>].into(),
        timeout: PATIENCE,
        wall: WallTime::from_unix_secs(0),
    };
    Peer::new(config, Seed::new(1).secure("peer", 0), Instant::ZERO)
}

fn request(id: u8, kind: Type, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit(&mut out, Code::Request, id, kind, data);
    out
}
fn end(success: bool, id: u8) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit_end(&mut out, success, id);
    out
}
const CHALLENGE: &[u8] = &[4, 1, 2, 3, 4];

/// Feeds a packet; the response, or `None` where it was discarded or nothing is sent.
fn say(peer: &mut Peer, packet: &[u8]) -> Option<Vec<u8>> {
    let taken = peer.handle(Instant::ZERO, packet);
    let mut out = Vec::new();
    let sent = peer.poll_transmit(&mut out);
    assert!(taken || !sent);
    sent.then_some(out)
}

fn kind(response: &[u8]) -> Type {
    Packet::parse(response).unwrap().kind().unwrap()
}

#[test]
fn identity_method_success() {
    let mut p = peer();
    let identity = say(&mut p, &request(1, Type::IDENTITY, b"who?")).unwrap();
    assert_eq!(Packet::parse(&identity).unwrap().data(), b"bob");
    let answer = say(&mut p, &request(2, Type::MD5, CHALLENGE)).unwrap();
    assert_eq!(kind(&answer), Type::MD5);
    assert_eq!(p.poll_event(), None);
    assert_eq!(say(&mut p, &end(true, 2)), None);
    assert_eq!(p.poll_event(), Some(Event::Success { keys: None }));
    assert_eq!((p.poll_event(), p.poll_timeout()), (None, None));
}

#[test]
fn a_repeated_request_gets_the_same_response() {
    let mut p = peer();
    let first = say(&mut p, &request(1, Type::IDENTITY, b"")).unwrap();
    assert_eq!(say(&mut p, &request(1, Type::IDENTITY, b"")), Some(first));
    let answer = say(&mut p, &request(2, Type::MD5, CHALLENGE));
    assert_eq!(say(&mut p, &request(2, Type::MD5, &[1, 9])), answer);
}

#[test]
fn a_notification_is_acknowledged() {
    let mut p = peer();
    let response = say(&mut p, &request(1, Type::NOTIFICATION, b"beware")).unwrap();
    assert_eq!((kind(&response), Packet::parse(&response).unwrap().data()), (Type::NOTIFICATION, &b""[..]));
}

#[test]
fn an_unknown_method_is_declined_by_nak() {
    let mut p = peer();
    for unknown in [Type(25), Type::EXPANDED] {
        let nak = say(&mut p, &request(unknown.0, unknown, b"")).unwrap();
        assert_eq!((kind(&nak), Packet::parse(&nak).unwrap().data()), (Type::NAK, &[4][..]));
    }
    assert_eq!(kind(&say(&mut p, &request(3, Type::MD5, CHALLENGE)).unwrap()), Type::MD5);
}

#[test]
fn what_does_not_fit_is_discarded() {
    let mut p = peer();
    // A Success before anything was proved is no success: with no request answered there is no lastId.
    for packet in [end(true, 0), end(false, 0), vec![], vec![2, 1, 0, 5, 1]] {
        assert_eq!(say(&mut p, &packet), None);
        assert_eq!(p.poll_event(), None);
    }
    let _ = say(&mut p, &request(2, Type::MD5, CHALLENGE));
    // Once a method is selected: no other, no identity, no malformed challenge, no end for another request.
    for packet in [
        request(3, Type::TLS, b""),
        request(3, Type::IDENTITY, b""),
        request(3, Type::MD5, b""),
        end(true, 3),
        end(false, 1),
    ] {
        assert!(!p.handle(Instant::ZERO, &packet), "{packet:?}");
        assert_eq!(p.poll_event(), None);
    }
    // And the conversation goes on.
    assert!(say(&mut p, &request(4, Type::MD5, CHALLENGE)).is_some());
}

#[test]
fn success_without_proof_and_failure_end_in_failure() {
    let mut p = peer();
    let _ = say(&mut p, &request(1, Type::IDENTITY, b""));
    assert_eq!(say(&mut p, &end(true, 1)), None);
    assert_eq!(p.poll_event(), Some(Event::Failure));

    let mut p = peer();
    let _ = say(&mut p, &request(1, Type::MD5, CHALLENGE));
    assert_eq!(say(&mut p, &end(false, 1)), None);
    assert_eq!(p.poll_event(), Some(Event::Failure));
    assert_eq!(say(&mut p, &request(2, Type::MD5, CHALLENGE)), None);
}

#[test]
fn silence_ends_in_a_timeout() {
    let mut p = peer();
    let later = Instant::ZERO + Duration::from_secs(20);
    assert!(p.handle(later, &request(1, Type::IDENTITY, b"")));
    let due = p.poll_timeout().unwrap();
    assert_eq!(due, later + PATIENCE);
    p.handle_timeout(due - Duration::from_nanos(1));
    assert_eq!(p.poll_event(), None);
    p.handle_timeout(due);
    assert_eq!(p.poll_event(), Some(Event::Timeout));
}

/// A method that says what it is told to.
#[derive(Debug)]
struct Scripted(PeerVerdict);
impl PeerOffer for Scripted {
    fn kind(&self) -> Type {
        Type(200)
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn PeerMethod> {
        Box::new(Scripted(self.0))
    }
}
impl PeerMethod for Scripted {
    fn request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerVerdict {
        out.extend_from_slice(data);
        self.0
    }
    fn keys(&self) -> Option<Keys> {
        Some(Keys { msk: [1; 64].into(), emsk: [2; 64].into(), session_id: None })
    }
}

fn scripted(verdict: PeerVerdict) -> Peer {
    let mut p = peer();
    p.config.methods = [Box::new(Scripted(verdict)) as Box<dyn PeerOffer>].into();
    p
}

#[test]
fn a_methods_verdict_decides_what_ends_the_conversation() {
    // (verdict, data of the request) -> response sent?, event after Success, event after Failure
    let success = Some(Event::Success {
        keys: Some(Keys { msk: [1; 64].into(), emsk: [2; 64].into(), session_id: None }),
    });
    for (verdict, data, sends, on_success, on_failure) in [
        // Success while the method continues is a failure; Failure amid it is discarded.
        (PeerVerdict::Continue, &b"x"[..], true, None, None),
        (PeerVerdict::MayEnd, b"x", true, success.clone(), Some(Event::Failure)),
        // A method that is sure does not believe a Failure.
        (PeerVerdict::Done, b"x", true, success, None),
        (PeerVerdict::Failed, b"alert", true, Some(Event::Failure), Some(Event::Failure)),
        (PeerVerdict::Failed, b"", false, Some(Event::Failure), Some(Event::Failure)),
    ] {
        for (end_is_success, expected) in [(true, on_success), (false, on_failure)] {
            let mut p = scripted(verdict);
            let response = say(&mut p, &request(5, Type(200), data));
            assert_eq!(response.is_some(), sends, "{verdict:?}");
            let _ = p.handle(Instant::ZERO, &end(end_is_success, 5));
            assert_eq!(p.poll_event(), expected, "{verdict:?}, success {end_is_success}");
        }
    }
}

#[test]
fn a_sure_peer_that_hears_nothing_more_is_in() {
    let mut p = scripted(PeerVerdict::Done);
    let _ = say(&mut p, &request(5, Type(200), b"x"));
    p.handle_timeout(Instant::ZERO + PATIENCE);
    assert!(matches!(p.poll_event(), Some(Event::Success { .. })));
}

#[test]
fn noise_never_panics() {
    let mut rng = Seed::new(2).stream("noise", 0);
    for round in 0..200 {
        let mut p = peer();
        for _ in 0..50 {
            let len = rng.below(24) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            if len >= 5 && round % 2 == 0 {
                bytes[0] = 1 + rng.below(4) as u8;
                (bytes[2], bytes[3]) = (0, len as u8);
                bytes[4] = rng.below(5) as u8;
            }
            let _ = say(&mut p, &bytes);
        }
    }
}

#[test]
fn every_arrow_is_taken() {
    PeerAutomaton::cover(|| {
        identity_method_success();
        a_repeated_request_gets_the_same_response();
        a_notification_is_acknowledged();
        an_unknown_method_is_declined_by_nak();
        what_does_not_fit_is_discarded();
        success_without_proof_and_failure_end_in_failure();
        silence_ends_in_a_timeout();
        a_methods_verdict_decides_what_ends_the_conversation();
        a_sure_peer_that_hears_nothing_more_is_in();
    });
}
