//! Each arrow of RFC 4137's figure 5.

use super::*;
use crate::method::md5::EapMd5Password;
use usher_core::Seed;
use usher_crypto::digest::md5;

/// A method whose verdict is the first octet of a response.
#[derive(Debug)]
struct PeerDrivenMethod(EapType);
impl ServerMethodFactory for PeerDrivenMethod {
    fn kind(&self) -> EapType {
        self.0
    }
    fn start_server_method(&self, _: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        Box::new(PeerDrivenMethod(self.0))
    }
}
impl ServerMethod for PeerDrivenMethod {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.push(b'?');
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        match data.first() {
            Some(b'c') => ServerMethodResult::Continue,
            Some(b's') => ServerMethodResult::Success,
            Some(b'f') => ServerMethodResult::Failure,
            Some(b'a') => ServerMethodResult::QueryPending,
            _ => ServerMethodResult::Ignore,
        }
    }
    fn take_query(&mut self) -> Option<UserQuery> {
        Some(UserQuery::User { name: b"alice".to_vec() })
    }
    fn apply_answer(&mut self, answer: UserQueryAnswer) -> ServerMethodResult {
        match answer {
            UserQueryAnswer::User(Some(_)) => ServerMethodResult::QueryPending,
            UserQueryAnswer::Password(true) => ServerMethodResult::Success,
            UserQueryAnswer::Password(false) => ServerMethodResult::Continue,
            UserQueryAnswer::User(None)
            | UserQueryAnswer::Restricted(..)
            | UserQueryAnswer::Refused(..)
            | UserQueryAnswer::Resume(_)
            | UserQueryAnswer::Unavailable => ServerMethodResult::Failure,
        }
    }
    fn keys(&self) -> Option<EapKeys> {
        Some(EapKeys { msk: [7; 64].into(), emsk: [8; 64].into(), session_id: None })
    }
}

fn test_server(kinds: &[u8]) -> EapServer {
    let offers = kinds
        .iter()
        .map(|k| Box::new(PeerDrivenMethod(EapType(*k))) as Box<dyn ServerMethodFactory>)
        .collect();
    new(offers, 10)
}
fn new(offers: Vec<Box<dyn ServerMethodFactory>>, identifier: u8) -> EapServer {
    let mut rng = Seed::new(1).derive_secure_rng("server", 0);
    EapServer::new(
        offers,
        identifier,
        EapMethodContext {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        },
    )
}
fn response_packet(id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit_packet(&mut out, EapCode::Response, id, EapType(kind), data);
    out
}
/// The sent packet: code, identifier, type.
fn take_sent(server: &mut EapServer) -> Option<(EapCode, u8, Option<EapType>)> {
    let mut out = Vec::new();
    server.poll_transmit(&mut out).then(|| {
        let p = EapPacket::parse(&out).unwrap();
        (p.code(), p.identifier(), p.kind())
    })
}

#[test]
fn a_method_runs_through_its_rounds() {
    let mut s = test_server(&[50]);
    assert_eq!(take_sent(&mut s), Some((EapCode::Request, 11, Some(EapType(50)))));
    assert!(s.handle_packet(&response_packet(11, 50, b"c")));
    assert_eq!(take_sent(&mut s), Some((EapCode::Request, 12, Some(EapType(50)))));
    assert_eq!(s.poll_event(), None);
    assert!(s.handle_packet(&response_packet(12, 50, b"s")));
    assert_eq!(take_sent(&mut s), Some((EapCode::Success, 12, None)));
    let keys = Some(EapKeys { msk: [7; 64].into(), emsk: [8; 64].into(), session_id: None });
    assert_eq!(s.poll_event(), Some(EapServerEvent::Success { method: EapType(50), keys }));
    assert_eq!((s.poll_event(), take_sent(&mut s)), (None, None));
    assert!(!s.handle_packet(&response_packet(12, 50, b"c")));
}

#[test]
fn nothing_goes_on_until_the_hosts_answer() {
    let asked = |s: &mut EapServer| {
        let _ = take_sent(s);
        assert!(s.handle_packet(&response_packet(11, 50, b"a")));
        assert_eq!(take_sent(s), None);
        assert_eq!(s.poll_event(), Some(EapServerEvent::Query(UserQuery::User { name: b"alice".to_vec() })));
        assert_eq!(s.poll_event(), None);
        // The peer retransmits, or sends something else.
        assert!(
            !s.handle_packet(&response_packet(11, 50, b"a"))
                && !s.handle_packet(&response_packet(11, 50, b"s"))
        );
    };
    let user = || UserQueryAnswer::User(Some(crate::method::UserSecret::Hashed));
    for (password, then) in
        [(true, (EapCode::Success, 11, None)), (false, (EapCode::Request, 12, Some(EapType(50))))]
    {
        let mut s = test_server(&[50]);
        assert!(!s.apply_answer(user()), "nothing was asked");
        asked(&mut s);
        assert!(s.apply_answer(user()));
        assert!(matches!(s.poll_event(), Some(EapServerEvent::Query(_))));
        assert_eq!(take_sent(&mut s), None);
        assert!(s.apply_answer(UserQueryAnswer::Password(password)));
        assert_eq!(take_sent(&mut s), Some(then));
        assert!(!s.apply_answer(UserQueryAnswer::Password(true)));
    }
    for answer in [UserQueryAnswer::User(None), UserQueryAnswer::Unavailable] {
        let mut s = test_server(&[50]);
        asked(&mut s);
        assert!(s.apply_answer(answer));
        assert_eq!(take_sent(&mut s), Some((EapCode::Failure, 11, None)));
        assert_eq!(s.poll_event(), Some(EapServerEvent::Failure { method: Some(EapType(50)) }));
    }
}

#[test]
fn secrets_are_not_shown() {
    let password = UserQuery::Password { password: b"pencil"[..].into() };
    let secret = UserQueryAnswer::User(Some(crate::method::UserSecret::Clear(b"pencil"[..].into())));
    assert_eq!(format!("{password:?} {secret:?}"), "Password(..) User(Some(Clear(..)))");
}

#[test]
fn a_failed_method_ends_in_failure() {
    let mut s = test_server(&[50, 51]);
    assert!(s.handle_packet(&response_packet(11, 50, b"f")));
    assert_eq!(take_sent(&mut s), Some((EapCode::Failure, 11, None)));
    assert_eq!(s.poll_event(), Some(EapServerEvent::Failure { method: Some(EapType(50)) }));
}

#[test]
fn what_does_not_fit_is_discarded() {
    let mut s = test_server(&[50]);
    let _ = take_sent(&mut s);
    for packet in [
        vec![],
        vec![3, 11, 0, 4],
        response_packet(10, 50, b"s"),
        response_packet(11, 51, b"s"),
        response_packet(11, 50, b"x"),
    ] {
        assert!(!s.handle_packet(&packet), "{packet:?}");
        assert_eq!((take_sent(&mut s), s.poll_event()), (None, None));
    }
    assert!(s.handle_packet(&response_packet(11, 50, b"s")));
}

#[test]
fn a_nak_chooses_by_the_peers_order_among_what_is_left() {
    let mut s = test_server(&[50, 51, 52, 53]);
    assert!(s.handle_packet(&response_packet(11, 3, &[53, 51, 99])));
    assert_eq!(take_sent(&mut s), Some((EapCode::Request, 12, Some(EapType(53)))));
    assert!(s.handle_packet(&response_packet(12, 3, &[51])));
    assert_eq!(take_sent(&mut s), Some((EapCode::Request, 13, Some(EapType(51)))));
    // After the method has begun, a Nak is out of place.
    assert!(s.handle_packet(&response_packet(13, 51, b"c")));
    assert!(!s.handle_packet(&response_packet(14, 3, &[50])));
}

#[test]
fn without_a_method_in_common_the_peer_is_turned_away() {
    for wishes in [&[0][..], &[99], &[50]] {
        let mut s = test_server(&[50, 51]);
        assert!(s.handle_packet(&response_packet(11, 3, wishes)));
        assert_eq!(take_sent(&mut s), Some((EapCode::Failure, 11, None)));
        assert_eq!(s.poll_event(), Some(EapServerEvent::Failure { method: None }));
    }
    let mut nothing = test_server(&[]);
    assert_eq!(take_sent(&mut nothing), Some((EapCode::Failure, 10, None)));
    assert_eq!(nothing.poll_event(), Some(EapServerEvent::Failure { method: None }));
}

#[test]
fn md5_is_spoken_as_the_rfc_writes_it() {
    let offers = vec![Box::new(EapMd5Password::new(b"pencil")) as Box<dyn ServerMethodFactory>];
    let mut s = new(offers, 0);
    let mut out = Vec::new();
    assert!(s.poll_transmit(&mut out));
    let request = EapPacket::parse(&out).unwrap();
    assert_eq!((request.kind(), request.data()[0]), (Some(EapType::MD5), 16));
    let digest = md5(&[&[request.identifier()], b"pencil", &request.data()[1..]]);
    assert!(s.handle_packet(&response_packet(request.identifier(), 4, &[&[16][..], &digest].concat())));
    assert_eq!(s.poll_event(), Some(EapServerEvent::Success { method: EapType::MD5, keys: None }));
}

#[test]
fn every_arrow_is_taken() {
    Backend::cover(|| {
        a_method_runs_through_its_rounds();
        nothing_goes_on_until_the_hosts_answer();
        a_failed_method_ends_in_failure();
        what_does_not_fit_is_discarded();
        a_nak_chooses_by_the_peers_order_among_what_is_left();
        without_a_method_in_common_the_peer_is_turned_away();
    });
}
