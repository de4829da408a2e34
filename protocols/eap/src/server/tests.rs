//! Each arrow of RFC 4137's figure 5.

use super::*;
use crate::method::md5::Password;
use usher_core::Seed;
use usher_crypto::digest::md5;

/// A method that says what its peer tells it to: the first octet of a response.
#[derive(Debug)]
struct Told(Type);
impl ServerOffer for Told {
    fn kind(&self) -> Type {
        self.0
    }
    fn begin(&self, _: Context<'_>) -> Box<dyn ServerMethod> {
        Box::new(Told(self.0))
    }
}
impl ServerMethod for Told {
    fn build(&mut self, _: u8, out: &mut Vec<u8>) {
        out.push(b'?');
    }
    fn response(&mut self, _: u8, data: &[u8]) -> ServerVerdict {
        match data.first() {
            Some(b'c') => ServerVerdict::Continue,
            Some(b's') => ServerVerdict::Success,
            Some(b'f') => ServerVerdict::Failure,
            Some(b'a') => ServerVerdict::Ask,
            _ => ServerVerdict::Ignore,
        }
    }
    fn question(&mut self) -> Option<Question> {
        Some(Question::User { name: b"alice".to_vec() })
    }
    fn answer(&mut self, answer: Answer) -> ServerVerdict {
        match answer {
            Answer::User(Some(_)) => ServerVerdict::Ask,
            Answer::Password(true) => ServerVerdict::Success,
            Answer::Password(false) => ServerVerdict::Continue,
            Answer::User(None)
            | Answer::Restricted(..)
            | Answer::Refused(..)
            | Answer::Resume(_)
            | Answer::Unavailable => ServerVerdict::Failure,
        }
    }
    fn keys(&self) -> Option<Keys> {
        Some(Keys { msk: [7; 64].into(), emsk: [8; 64].into(), session_id: None })
    }
}

fn server(kinds: &[u8]) -> Server {
    let offers = kinds.iter().map(|k| Box::new(Told(Type(*k))) as Box<dyn ServerOffer>).collect();
    new(offers, 10)
}
fn new(offers: Vec<Box<dyn ServerOffer>>, identifier: u8) -> Server {
    let mut rng = Seed::new(1).secure("server", 0);
    Server::new(
        offers,
        identifier,
        Context {
            rng: &mut rng,
            wall: WallTime::from_unix_secs(0),
            mtu: None,
            without_extended_master_secret: false,
        },
    )
}
fn response(id: u8, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    packet::emit(&mut out, Code::Response, id, Type(kind), data);
    out
}
/// What is sent: code, identifier, type.
fn sent(server: &mut Server) -> Option<(Code, u8, Option<Type>)> {
    let mut out = Vec::new();
    server.poll_transmit(&mut out).then(|| {
        let p = Packet::parse(&out).unwrap();
        (p.code(), p.identifier(), p.kind())
    })
}

#[test]
fn a_method_runs_through_its_rounds() {
    let mut s = server(&[50]);
    assert_eq!(sent(&mut s), Some((Code::Request, 11, Some(Type(50)))));
    assert!(s.handle(&response(11, 50, b"c")));
    assert_eq!(sent(&mut s), Some((Code::Request, 12, Some(Type(50)))));
    assert_eq!(s.poll_event(), None);
    assert!(s.handle(&response(12, 50, b"s")));
    assert_eq!(sent(&mut s), Some((Code::Success, 12, None)));
    let keys = Some(Keys { msk: [7; 64].into(), emsk: [8; 64].into(), session_id: None });
    assert_eq!(s.poll_event(), Some(Event::Success { method: Type(50), keys }));
    assert_eq!((s.poll_event(), sent(&mut s)), (None, None));
    assert!(!s.handle(&response(12, 50, b"c")));
}

#[test]
fn nothing_goes_on_until_the_hosts_answer() {
    let asked = |s: &mut Server| {
        let _ = sent(s);
        assert!(s.handle(&response(11, 50, b"a")));
        assert_eq!(sent(s), None);
        assert_eq!(s.poll_event(), Some(Event::Ask(Question::User { name: b"alice".to_vec() })));
        assert_eq!(s.poll_event(), None);
        // The peer repeats what it said, or says something else.
        assert!(!s.handle(&response(11, 50, b"a")) && !s.handle(&response(11, 50, b"s")));
    };
    let user = || Answer::User(Some(crate::method::UserSecret::Hashed));
    for (password, then) in [(true, (Code::Success, 11, None)), (false, (Code::Request, 12, Some(Type(50))))]
    {
        let mut s = server(&[50]);
        assert!(!s.answer(user()), "nothing was asked");
        asked(&mut s);
        assert!(s.answer(user()));
        assert!(matches!(s.poll_event(), Some(Event::Ask(_))));
        assert_eq!(sent(&mut s), None);
        assert!(s.answer(Answer::Password(password)));
        assert_eq!(sent(&mut s), Some(then));
        assert!(!s.answer(Answer::Password(true)));
    }
    for answer in [Answer::User(None), Answer::Unavailable] {
        let mut s = server(&[50]);
        asked(&mut s);
        assert!(s.answer(answer));
        assert_eq!(sent(&mut s), Some((Code::Failure, 11, None)));
        assert_eq!(s.poll_event(), Some(Event::Failure { method: Some(Type(50)) }));
    }
}

#[test]
fn secrets_are_not_shown() {
    let password = Question::Password { password: b"pencil"[..].into() };
    let secret = Answer::User(Some(crate::method::UserSecret::Clear(b"pencil"[..].into())));
    assert_eq!(format!("{password:?} {secret:?}"), "Password(..) User(Some(Clear(..)))");
}

#[test]
fn a_failed_method_ends_in_failure() {
    let mut s = server(&[50, 51]);
    assert!(s.handle(&response(11, 50, b"f")));
    assert_eq!(sent(&mut s), Some((Code::Failure, 11, None)));
    assert_eq!(s.poll_event(), Some(Event::Failure { method: Some(Type(50)) }));
}

#[test]
fn what_does_not_fit_is_discarded() {
    let mut s = server(&[50]);
    let _ = sent(&mut s);
    for packet in
        [vec![], vec![3, 11, 0, 4], response(10, 50, b"s"), response(11, 51, b"s"), response(11, 50, b"x")]
    {
        assert!(!s.handle(&packet), "{packet:?}");
        assert_eq!((sent(&mut s), s.poll_event()), (None, None));
    }
    assert!(s.handle(&response(11, 50, b"s")));
}

#[test]
fn a_nak_chooses_by_the_peers_order_among_what_is_left() {
    let mut s = server(&[50, 51, 52, 53]);
    assert!(s.handle(&response(11, 3, &[53, 51, 99])));
    assert_eq!(sent(&mut s), Some((Code::Request, 12, Some(Type(53)))));
    assert!(s.handle(&response(12, 3, &[51])));
    assert_eq!(sent(&mut s), Some((Code::Request, 13, Some(Type(51)))));
    // After the method has begun, a Nak is out of place.
    assert!(s.handle(&response(13, 51, b"c")));
    assert!(!s.handle(&response(14, 3, &[50])));
}

#[test]
fn without_a_method_in_common_the_peer_is_turned_away() {
    for wishes in [&[0][..], &[99], &[50]] {
        let mut s = server(&[50, 51]);
        assert!(s.handle(&response(11, 3, wishes)));
        assert_eq!(sent(&mut s), Some((Code::Failure, 11, None)));
        assert_eq!(s.poll_event(), Some(Event::Failure { method: None }));
    }
    let mut nothing = server(&[]);
    assert_eq!(sent(&mut nothing), Some((Code::Failure, 10, None)));
    assert_eq!(nothing.poll_event(), Some(Event::Failure { method: None }));
}

#[test]
fn md5_is_spoken_as_the_rfc_writes_it() {
    let offers = vec![Box::new(Password::new(b"pencil")) as Box<dyn ServerOffer>];
    let mut s = new(offers, 0);
    let mut out = Vec::new();
    assert!(s.poll_transmit(&mut out));
    let request = Packet::parse(&out).unwrap();
    assert_eq!((request.kind(), request.data()[0]), (Some(Type::MD5), 16));
    let digest = md5(&[&[request.identifier()], b"pencil", &request.data()[1..]]);
    assert!(s.handle(&response(request.identifier(), 4, &[&[16][..], &digest].concat())));
    assert_eq!(s.poll_event(), Some(Event::Success { method: Type::MD5, keys: None }));
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
