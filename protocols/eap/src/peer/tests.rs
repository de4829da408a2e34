//! Each arrow of RFC 4137's figure 3.

use super::*;
use crate::method::md5::EapMd5Password;
use usher_core::Seed;

const TIMEOUT: Duration = Duration::from_secs(60);

fn test_peer() -> EapPeer {
    let config = EapPeerConfig {
        identity: b"bob".to_vec(),
        methods: [Box::new(EapMd5Password::new(b"secret")) as Box<dyn PeerMethodFactory>].into(),
        timeout: TIMEOUT,
        wall: WallTime::from_unix_secs(0),
    };
    EapPeer::new(config, Seed::new(1).derive_secure_rng("peer", 0), Instant::ZERO)
}

fn request_packet(id: u8, kind: EapType, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit_packet(&mut out, EapCode::Request, id, kind, data);
    out
}
fn end_packet(success: bool, id: u8) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit_success_or_failure(&mut out, success, id);
    out
}
const CHALLENGE: &[u8] = &[4, 1, 2, 3, 4];

/// Handles a packet and returns the response. `None` if the packet was discarded or has no response.
fn feed_packet(peer: &mut EapPeer, packet: &[u8]) -> Option<Vec<u8>> {
    let taken = peer.handle_packet(Instant::ZERO, packet);
    let mut out = Vec::new();
    let sent = peer.poll_transmit(&mut out);
    assert!(taken || !sent);
    sent.then_some(out)
}

fn response_type(response: &[u8]) -> EapType {
    EapPacket::parse(response).unwrap().kind().unwrap()
}

#[test]
fn identity_method_success() {
    let mut p = test_peer();
    let identity = feed_packet(&mut p, &request_packet(1, EapType::IDENTITY, b"who?")).unwrap();
    assert_eq!(EapPacket::parse(&identity).unwrap().data(), b"bob");
    let answer = feed_packet(&mut p, &request_packet(2, EapType::MD5, CHALLENGE)).unwrap();
    assert_eq!(response_type(&answer), EapType::MD5);
    assert_eq!(p.poll_event(), None);
    assert_eq!(feed_packet(&mut p, &end_packet(true, 2)), None);
    assert_eq!(p.poll_event(), Some(EapPeerEvent::Success { keys: None }));
    assert_eq!((p.poll_event(), p.poll_timeout()), (None, None));
}

#[test]
fn a_repeated_request_gets_the_same_response() {
    let mut p = test_peer();
    let first = feed_packet(&mut p, &request_packet(1, EapType::IDENTITY, b"")).unwrap();
    assert_eq!(feed_packet(&mut p, &request_packet(1, EapType::IDENTITY, b"")), Some(first));
    let answer = feed_packet(&mut p, &request_packet(2, EapType::MD5, CHALLENGE));
    assert_eq!(feed_packet(&mut p, &request_packet(2, EapType::MD5, &[1, 9])), answer);
}

#[test]
fn a_notification_is_acknowledged() {
    let mut p = test_peer();
    let response = feed_packet(&mut p, &request_packet(1, EapType::NOTIFICATION, b"beware")).unwrap();
    assert_eq!(
        (response_type(&response), EapPacket::parse(&response).unwrap().data()),
        (EapType::NOTIFICATION, &b""[..])
    );
}

#[test]
fn an_unknown_method_is_declined_by_nak() {
    let mut p = test_peer();
    for unknown in [EapType(25), EapType::EXPANDED] {
        let nak = feed_packet(&mut p, &request_packet(unknown.0, unknown, b"")).unwrap();
        assert_eq!((response_type(&nak), EapPacket::parse(&nak).unwrap().data()), (EapType::NAK, &[4][..]));
    }
    assert_eq!(
        response_type(&feed_packet(&mut p, &request_packet(3, EapType::MD5, CHALLENGE)).unwrap()),
        EapType::MD5
    );
}

#[test]
fn what_does_not_fit_is_discarded() {
    let mut p = test_peer();
    // A Success before any response is discarded: there is no lastId.
    for packet in [end_packet(true, 0), end_packet(false, 0), vec![], vec![2, 1, 0, 5, 1]] {
        assert_eq!(feed_packet(&mut p, &packet), None);
        assert_eq!(p.poll_event(), None);
    }
    let _ = feed_packet(&mut p, &request_packet(2, EapType::MD5, CHALLENGE));
    // Once a method is selected, the peer discards other methods, Identity, a malformed challenge and ends of other
    // ids.
    for packet in [
        request_packet(3, EapType::TLS, b""),
        request_packet(3, EapType::IDENTITY, b""),
        request_packet(3, EapType::MD5, b""),
        end_packet(true, 3),
        end_packet(false, 1),
    ] {
        assert!(!p.handle_packet(Instant::ZERO, &packet), "{packet:?}");
        assert_eq!(p.poll_event(), None);
    }
    // The conversation continues.
    assert!(feed_packet(&mut p, &request_packet(4, EapType::MD5, CHALLENGE)).is_some());
}

#[test]
fn success_without_proof_and_failure_end_in_failure() {
    let mut p = test_peer();
    let _ = feed_packet(&mut p, &request_packet(1, EapType::IDENTITY, b""));
    assert_eq!(feed_packet(&mut p, &end_packet(true, 1)), None);
    assert_eq!(p.poll_event(), Some(EapPeerEvent::Failure));

    let mut p = test_peer();
    let _ = feed_packet(&mut p, &request_packet(1, EapType::MD5, CHALLENGE));
    assert_eq!(feed_packet(&mut p, &end_packet(false, 1)), None);
    assert_eq!(p.poll_event(), Some(EapPeerEvent::Failure));
    assert_eq!(feed_packet(&mut p, &request_packet(2, EapType::MD5, CHALLENGE)), None);
}

#[test]
fn silence_ends_in_a_timeout() {
    let mut p = test_peer();
    let later = Instant::ZERO + Duration::from_secs(20);
    assert!(p.handle_packet(later, &request_packet(1, EapType::IDENTITY, b"")));
    let due = p.poll_timeout().unwrap();
    assert_eq!(due, later + TIMEOUT);
    p.handle_timeout(due - Duration::from_nanos(1));
    assert_eq!(p.poll_event(), None);
    p.handle_timeout(due);
    assert_eq!(p.poll_event(), Some(EapPeerEvent::Timeout));
}

/// A method whose verdict the test chooses.
#[derive(Debug)]
struct ScriptedMethod(PeerMethodResult);
impl PeerMethodFactory for ScriptedMethod {
    fn kind(&self) -> EapType {
        EapType(200)
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(ScriptedMethod(self.0))
    }
}
impl PeerMethod for ScriptedMethod {
    fn handle_request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        out.extend_from_slice(data);
        self.0
    }
    fn keys(&self) -> Option<EapKeys> {
        Some(EapKeys { msk: [1; 64].into(), emsk: [2; 64].into(), session_id: None })
    }
}

fn scripted_peer(verdict: PeerMethodResult) -> EapPeer {
    let mut p = test_peer();
    p.config.methods = [Box::new(ScriptedMethod(verdict)) as Box<dyn PeerMethodFactory>].into();
    p
}

#[test]
fn a_methods_verdict_decides_what_ends_the_conversation() {
    // (verdict, data of the request) -> response sent?, event after Success, event after Failure
    let success = Some(EapPeerEvent::Success {
        keys: Some(EapKeys { msk: [1; 64].into(), emsk: [2; 64].into(), session_id: None }),
    });
    for (verdict, data, sends, on_success, on_failure) in [
        // Success while the method continues is a failure; Failure meanwhile is discarded.
        (PeerMethodResult::Continue, &b"x"[..], true, None, None),
        (PeerMethodResult::MayEnd, b"x", true, success.clone(), Some(EapPeerEvent::Failure)),
        // A method that is certain discards a Failure.
        (PeerMethodResult::Done, b"x", true, success, None),
        (PeerMethodResult::Failed, b"alert", true, Some(EapPeerEvent::Failure), Some(EapPeerEvent::Failure)),
        (PeerMethodResult::Failed, b"", false, Some(EapPeerEvent::Failure), Some(EapPeerEvent::Failure)),
    ] {
        for (end_is_success, expected) in [(true, on_success), (false, on_failure)] {
            let mut p = scripted_peer(verdict);
            let response = feed_packet(&mut p, &request_packet(5, EapType(200), data));
            assert_eq!(response.is_some(), sends, "{verdict:?}");
            let _ = p.handle_packet(Instant::ZERO, &end_packet(end_is_success, 5));
            assert_eq!(p.poll_event(), expected, "{verdict:?}, success {end_is_success}");
        }
    }
}

#[test]
fn a_sure_peer_that_hears_nothing_more_is_in() {
    let mut p = scripted_peer(PeerMethodResult::Done);
    let _ = feed_packet(&mut p, &request_packet(5, EapType(200), b"x"));
    p.handle_timeout(Instant::ZERO + TIMEOUT);
    assert!(matches!(p.poll_event(), Some(EapPeerEvent::Success { .. })));
}

#[test]
fn noise_never_panics() {
    let mut rng = Seed::new(2).derive_rng("noise", 0);
    for round in 0..200 {
        let mut p = test_peer();
        for _ in 0..50 {
            let len = rng.sample_below(24) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            if len >= 5 && round % 2 == 0 {
                bytes[0] = 1 + rng.sample_below(4) as u8;
                (bytes[2], bytes[3]) = (0, len as u8);
                bytes[4] = rng.sample_below(5) as u8;
            }
            let _ = feed_packet(&mut p, &bytes);
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
