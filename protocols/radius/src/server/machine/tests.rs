use super::*;
use crate::client::Client;
use crate::testing::*;

fn packet(c: &mut Client, code: Code, attributes: Attributes) -> Vec<u8> {
    ask(c, at(0.0), c.counters().requests, code, attributes);
    sent(c, at(0.0)).remove(0).1
}
fn taken(s: &mut Server) -> Option<Request> {
    s.poll_event().map(|Event::Request(r)| r)
}
fn accept(s: &mut Server, now: Instant, token: u64) -> Result<(), CommandError> {
    s.command(now, Command::Respond { token, code: Code::ACCESS_ACCEPT, attributes: Attributes::new() })
}

#[test]
fn duplicates_are_dropped_in_progress_and_answered_alike_after() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let request = packet(&mut c, Code::ACCESS_REQUEST, user());
    arrive(&mut s, at(0.0), NEAR, &request);
    arrive(&mut s, at(0.1), NEAR, &request);
    let r = taken(&mut s).unwrap();
    assert!(taken(&mut s).is_none());
    accept(&mut s, at(1.0), r.token).unwrap();
    let first = sent(&mut s, at(1.0));
    arrive(&mut s, at(5.9), NEAR, &request);
    assert_eq!(sent(&mut s, at(5.9)), first);
    assert_eq!((s.counters().duplicates_dropped, s.counters().duplicates_answered), (1, 1));
    assert!(matches!(accept(&mut s, at(5.9), r.token), Err(CommandError::WrongState(_))));
    arrive(&mut s, at(6.0), NEAR, &request);
    assert!(taken(&mut s).is_some(), "kept for five seconds, no longer");
    let mut now = at(6.0);
    while let Some(next) = s.poll_timeout() {
        now = next;
        s.handle(now, Input::Timeout);
    }
    assert_eq!((s.entries(), s.counters().expired), (0, 1));
    assert!(now >= at(36.0));
}

#[test]
fn another_source_port_is_another_request() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let request = packet(&mut c, Code::ACCESS_REQUEST, user());
    arrive(&mut s, at(0.0), NEAR, &request);
    arrive(&mut s, at(0.0), "10.0.0.1:5001", &request);
    assert_eq!(s.counters().requests, 2);
}

#[test]
fn a_new_authenticator_supersedes_and_a_discard_stays_silent() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let first = packet(&mut c, Code::ACCESS_REQUEST, user());
    let mut second = first.clone();
    second[4] ^= 1;
    second[22..38].fill(0);
    auth::sign_request(&mut second, true, &secret());
    arrive(&mut s, at(0.0), NEAR, &first);
    arrive(&mut s, at(0.0), NEAR, &second);
    let (old, new) = (taken(&mut s).unwrap(), taken(&mut s).unwrap());
    assert_eq!(accept(&mut s, at(0.0), old.token), Err(CommandError::UnknownToken));
    s.command(at(0.0), Command::Discard { token: new.token }).unwrap();
    arrive(&mut s, at(0.1), NEAR, &second);
    assert!(sent(&mut s, at(0.1)).is_empty() && taken(&mut s).is_none());
    let n = s.counters();
    assert_eq!((n.superseded, n.discarded, n.duplicates_dropped), (1, 1, 1));
}

#[test]
fn the_cache_is_bounded() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|c| c.max_entries = 2));
    for _ in 0..2 {
        arrive(&mut s, at(0.0), NEAR, &packet(&mut c, Code::ACCESS_REQUEST, user()));
    }
    arrive(&mut s, at(0.0), NEAR, &packet(&mut c, Code::ACCESS_REQUEST, user()));
    assert_eq!((s.counters().overload, s.entries()), (1, 2));
    let token = taken(&mut s).unwrap().token;
    accept(&mut s, at(0.0), token).unwrap();
    arrive(&mut s, at(0.0), NEAR, &packet(&mut c, Code::ACCESS_REQUEST, user()));
    assert_eq!((s.counters().evicted, s.counters().requests, s.entries()), (1, 3, 2));
}

#[test]
fn each_bad_request_is_counted_by_its_kind_and_dropped() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let good = packet(&mut c, Code::ACCESS_REQUEST, user());
    arrive(&mut s, at(0.0), NEAR, &good[..19]);
    arrive(&mut s, at(0.0), "192.0.2.1:5000", &good);
    let mut other = good.clone();
    other[0] = 2;
    arrive(&mut s, at(0.0), NEAR, &other);
    other = good.clone();
    other[25] ^= 1;
    arrive(&mut s, at(0.0), NEAR, &other);
    other = good[..20].to_vec();
    other[3] = 20;
    arrive(&mut s, at(0.0), NEAR, &other);
    let mut accounting = Attributes::new();
    accounting.push_u32(kind::ACCT_STATUS_TYPE, 1);
    let mut other = packet(&mut c, Code::ACCOUNTING_REQUEST, accounting);
    other[7] ^= 1;
    arrive(&mut s, at(0.0), NEAR, &other);
    s.handle(at(0.0), Input::Frame { port: usher_core::PortId(0), data: &[] });
    let n = *s.counters();
    assert_eq!(
        [
            n.malformed,
            n.unknown_client,
            n.wrong_code,
            n.bad_message_authenticator,
            n.missing_message_authenticator,
            n.bad_authenticator,
            n.not_a_datagram
        ],
        [1; 7]
    );
    assert_eq!((n.total(), s.entries()), (7, 0));
}

#[test]
fn without_the_policy_eap_still_needs_its_message_authenticator() {
    let mut s = server_with(|c| c.clients[0].message_authenticator = MessageAuthenticatorPolicy::Off);
    for (id, body) in [(1, &[1, 3, b'a'][..]), (2, &[79, 6, 2, 1, 0, 4])] {
        let mut p = vec![1, id, 0, 20 + body.len() as u8];
        p.resize(20, 9);
        p.extend(body);
        arrive(&mut s, at(0.0), NEAR, &p);
    }
    assert_eq!((s.counters().requests, s.counters().missing_message_authenticator), (1, 1));
}

#[test]
fn status_server_is_answered_by_role_and_verifies_at_the_client() {
    for (role, code) in [
        (Role::Authentication, Code::ACCESS_ACCEPT),
        (Role::Both, Code::ACCESS_ACCEPT),
        (Role::Accounting, Code::ACCOUNTING_RESPONSE),
    ] {
        let (mut c, mut s) = (client_with(|_| {}), server_with(|c| c.role = role));
        let request = packet(&mut c, Code::STATUS_SERVER, Attributes::new());
        arrive(&mut s, at(0.0), NEAR, &request);
        assert!(taken(&mut s).is_none());
        arrive(&mut c, at(0.0), FAR, &sent(&mut s, at(0.0))[0].1);
        let Some(crate::client::Event::Response(r)) = c.poll_event() else { panic!("no response") };
        assert_eq!(r.code, code);
    }
}

#[test]
fn proxy_state_comes_back_in_order() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let mut a = user();
    a.push_bytes(kind::PROXY_STATE, b"one").unwrap().push_bytes(kind::PROXY_STATE, b"two").unwrap();
    arrive(&mut s, at(0.0), NEAR, &packet(&mut c, Code::ACCESS_REQUEST, a));
    let token = taken(&mut s).unwrap().token;
    accept(&mut s, at(0.0), token).unwrap();
    arrive(&mut c, at(0.0), FAR, &sent(&mut s, at(0.0))[0].1);
    let Some(crate::client::Event::Response(r)) = c.poll_event() else { panic!("no response") };
    assert_eq!(r.attributes.get_all(kind::PROXY_STATE).collect::<Vec<_>>(), [b"one", b"two"]);
}

#[test]
fn work_is_told_per_message() {
    let (mut c, mut s) = (client_with(|_| {}), server_with(|_| {}));
    let request = packet(&mut c, Code::ACCESS_REQUEST, user());
    assert_eq!(c.poll_work(), Some(Work { label: "radius.request", units: 1 }));
    assert_eq!(c.poll_work(), None);
    arrive(&mut s, at(0.0), NEAR, &request);
    arrive(&mut s, at(0.0), NEAR, &request);
    assert_eq!(s.poll_work(), Some(Work { label: "radius.request", units: 2 }));
    let token = taken(&mut s).unwrap().token;
    accept(&mut s, at(0.0), token).unwrap();
    arrive(&mut c, at(0.0), FAR, &sent(&mut s, at(0.0))[0].1);
    assert_eq!(s.poll_work(), Some(Work { label: "radius.response", units: 1 }));
    assert_eq!(c.poll_work(), Some(Work { label: "radius.response", units: 1 }));
}
