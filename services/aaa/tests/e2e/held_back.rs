//! Who is held back for failed logins: nothing of theirs is weighed, and no guess is told from another.

use crate::build::{aaa_config, radius_nas, user_name, users, world};
use crate::pair::{NEVER, Pair};
use crate::tunnels::{self, peap, ttls};
use std::sync::Arc;
use usher_aaa::ledger::FailureLimit;
use usher_aaa::{
    CacheConfig, Command, Config, Event, Job, Login, Method, Password, Reason, Refusal, User, UserSource,
    Users,
};
use usher_core::{Duration, Input, Instant, Machine, Seed};
use usher_crypto::Key;
use usher_crypto::fault::{Alert, TlsFault};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{Version, fixtures};
use usher_eap::method::PeerOffer;
use usher_eap::method::mschapv2::Account;
use usher_eap::method::peap::PeerMethodPeap;
use usher_eap::method::tls::PeerTls;
use usher_eap::method::ttls::{PeerMethodTtls, Proof};
use usher_nas::station;
use usher_radius::attribute::{kind, vendor};
use usher_radius::client::Response;
use usher_radius::{Attributes, Code};

const PASSWORD: &[u8] = b"pencil";
const HELD: Option<Reason> = Some(Reason::Limit(Refusal::TooManyFailures));

fn limited(users: &[(&str, User)]) -> Config {
    let mut all = Users::new(&mut Seed::new(1).secure("users", 0));
    for (name, user) in users {
        all.insert(name.as_bytes(), user.clone());
    }
    let mut config = aaa_config(Arc::new(all));
    config.methods = vec![Method::EapMsChapV2, Method::EapMd5, Method::Pap, Method::MsChapV2];
    config.failures = Some(FailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(300)));
    config
}

fn ann() -> (&'static str, User) {
    ("ann", User::with_password(PASSWORD))
}

fn hashed() -> (&'static str, User) {
    let password = Some(Password::Argon2(argon2_hash(PASSWORD, &[3; 16]).into()));
    ("slow", User { password, ..User::default() })
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// The passwords that the host is asked to compare, by token.
fn verifications(p: &mut Pair) -> Vec<(u64, Key)> {
    let jobs = std::iter::from_fn(|| p.server.poll_job());
    jobs.filter_map(|job| match job.what {
        Job::Verify { password, .. } => Some((job.token, password)),
        _ => None,
    })
    .collect()
}

fn reasons(p: &mut Pair) -> Vec<Option<Reason>> {
    let events = std::iter::from_fn(|| p.server.poll_event());
    events
        .filter_map(|e| match e {
            Event::Accepted(login) | Event::Rejected(login) => Some(login.reason),
            _ => None,
        })
        .collect()
}

fn pap_from(p: &mut Pair, token: u64, name: &[u8], password: &[u8], station: &[u8]) -> Code {
    p.ask(token, Code::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        a.push_bytes(kind::CALLING_STATION_ID, station).unwrap();
    });
    p.answer().unwrap().1
}

fn hold(p: &mut Pair, name: &[u8], station: &[u8]) {
    let command = Command::HoldBack { name: name.to_vec(), station: station.to_vec() };
    p.server.command(NEVER, command).unwrap();
}

fn ms_chap_v2(a: &mut Attributes, name: &str, password: &[u8]) {
    let (challenge, peer) = ([1; 16], [2; 16]);
    let mut value = vec![7, 0];
    value.extend_from_slice(&peer);
    value.extend_from_slice(&[0; 8]);
    let response = mschap::nt_response(&challenge, &peer, name.as_bytes(), &nt_hash(password));
    value.extend_from_slice(&response);
    a.push_text(kind::USER_NAME, name).unwrap();
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &challenge).unwrap();
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE, &value).unwrap();
}

/// Which attributes a reply has, and how long they are; MS-CHAP-Error without its challenge.
fn looks(reply: &Response) -> (Code, Vec<(u8, usize)>, Option<Vec<u8>>) {
    let error = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR).map(<[u8]>::to_vec);
    let error = error.map(|e| [&e[..13], &e[45..]].concat());
    (reply.code, reply.attributes.iter().map(|a| (a.kind, a.value.len())).collect(), error)
}

#[test]
fn a_right_guess_is_not_told_from_a_wrong_one_and_costs_nothing() {
    let mut p = Pair::new(limited(&[hashed()]));
    for token in 1..=3 {
        p.ask_pap(token, b"slow", b"wrong");
        let [(asked, _)] = verifications(&mut p)[..] else { panic!("not asked") };
        p.server.command(NEVER, Command::Verified { token: asked, right: false }).unwrap();
        p.settle(NEVER);
        assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
    }
    for (token, password) in [(4, &b"wrong"[..]), (5, PASSWORD)] {
        p.ask_pap(token, b"slow", password);
        assert_eq!(looks(&p.reply().unwrap()), (Code::ACCESS_REJECT, vec![(80, 16)], None));
        assert_eq!(verifications(&mut p), [], "no hash is made");
    }
    assert_eq!((p.server.counters().rejected_wrong_password, p.server.counters().rejected_failures), (3, 2));
}

#[test]
fn of_guesses_made_at_once_those_after_the_limit_are_worth_nothing() {
    let mut p = Pair::new(limited(&[hashed()]));
    for token in 1..=8 {
        p.ask_pap(token, b"slow", if token == 8 { PASSWORD } else { b"wrong" });
    }
    let asked = verifications(&mut p);
    assert_eq!(asked.len(), 8, "all are under way before the first is compared");
    for (token, password) in asked {
        let right = *password == PASSWORD;
        p.server.command(NEVER, Command::Verified { token, right }).unwrap();
        p.settle(NEVER);
        assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
    }
    assert_eq!((p.server.counters().rejected_wrong_password, p.server.counters().rejected_failures), (3, 5));
}

#[test]
fn what_the_host_holds_back_is_not_even_looked_up() {
    let mut config = limited(&[]);
    config.users = UserSource::Host(CacheConfig::default());
    config.reject_delay = Duration::from_secs(1);
    let mut p = Pair::new(config);
    hold(&mut p, b"ann", b"");
    p.ask_pap(1, b"ann", PASSWORD);
    p.ask(2, Code::ACCESS_REQUEST, |a| ms_chap_v2(a, "ann", PASSWORD));
    p.ask(3, Code::ACCESS_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_eap(&[2, 9, 0, 8, 1, b'a', b'n', b'n']);
    });
    assert_eq!((p.answer(), p.server.counters().lookups), (None, 0));
    assert_eq!(p.server.poll_timeout().map(|t| t.min(at(1))), Some(at(1)));
    p.server.handle(at(1), Input::Timeout);
    p.settle(at(1));
    let answers: Vec<_> = std::iter::from_fn(|| p.reply()).map(|r| r.code).collect();
    assert_eq!(answers, [Code::ACCESS_REJECT; 3]);
    assert_eq!(reasons(&mut p), [HELD; 3]);
    // Somebody else is.
    p.ask_pap(4, b"anna", PASSWORD);
    assert_eq!(p.server.counters().lookups, 1);
}

#[test]
fn ms_chap_says_the_same_to_every_guess() {
    let mut locked = User::with_password(PASSWORD);
    locked.rejected = true;
    let mut p =
        Pair::new(limited(&[ann(), ("lock", locked), hashed(), ("held", User::with_password(PASSWORD))]));
    hold(&mut p, b"held", b"");
    let mut said = Vec::new();
    for (token, name, password) in [
        (1, "ann", &b"wrong"[..]),
        (2, "nobody", PASSWORD),
        (3, "lock", PASSWORD),
        (4, "slow", PASSWORD),
        (5, "held", PASSWORD),
        (6, "held", b"wrong"),
    ] {
        p.ask(token, Code::ACCESS_REQUEST, |a| ms_chap_v2(a, name, password));
        said.push(looks(&p.reply().unwrap()));
    }
    assert!(said[0].2.as_ref().is_some_and(|e| e.starts_with(b"\x07E=691 R=0")), "{said:?}");
    assert!(said.iter().all(|s| *s == said[0]), "{said:?}");
}

#[test]
fn neither_spelling_nor_method_nor_another_password_gets_around_it() {
    let device = User::with_password(PASSWORD);
    let mut p = Pair::new(limited(&[("001122aabbcc", device), ann()]));
    // Three failures by three methods under three spellings.
    assert_eq!(pap_from(&mut p, 1, b"00-11-22-AA-BB-CC", b"wrong", b"a"), Code::ACCESS_REJECT);
    p.ask(2, Code::ACCESS_REQUEST, |a| ms_chap_v2(a, "0011.22aa.bbcc", b"wrong"));
    assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 3, b"001122aabbcc", b"wrong", b"b"), Code::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 4, b"00:11:22:aa:bb:cc", PASSWORD, b"c"), Code::ACCESS_REJECT);
    assert_eq!(reasons(&mut p).last(), Some(&HELD));
    // By station, however it is written and whoever tries.
    for (token, name) in [(5, "u1"), (6, "u2"), (7, "u3")] {
        pap_from(&mut p, token, name.as_bytes(), b"x", b"02-00-00-00-00-0A");
    }
    assert_eq!(pap_from(&mut p, 8, b"ann", PASSWORD, b"02:00:00:00:00:0a"), Code::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 9, b"ann", PASSWORD, b"02:00:00:00:00:0b"), Code::ACCESS_ACCEPT);
}

#[test]
fn a_success_begins_anew_and_the_time_ends() {
    let mut p = Pair::new(limited(&[ann()]));
    let mut tries = |now: Instant, passwords: &[&[u8]]| -> Vec<Code> {
        let mut codes = Vec::new();
        for password in passwords {
            let token = now.since(Instant::ZERO).as_nanos() + codes.len() as u64;
            let mut attributes = Attributes::new();
            attributes.push_text(kind::USER_NAME, "ann").unwrap().push_user_password(password).unwrap();
            let target = usher_radius::client::Target::Server(0);
            let code = Code::ACCESS_REQUEST;
            let request = usher_radius::client::Command::Request { token, target, code, attributes };
            p.client.command(now, request).unwrap();
            p.settle(now);
            codes.push(p.answer().unwrap().1);
        }
        codes
    };
    let (yes, no) = (Code::ACCESS_ACCEPT, Code::ACCESS_REJECT);
    assert_eq!(tries(at(0), &[b"x", b"x", PASSWORD, b"x", b"x", PASSWORD]), [no, no, yes, no, no, yes]);
    assert_eq!(tries(at(10), &[b"x", b"x", b"x", PASSWORD]), [no; 4]);
    assert_eq!(tries(at(309), &[PASSWORD]), [no]);
    assert_eq!(tries(at(310), &[PASSWORD]), [yes]);
}

#[test]
fn inside_a_tunnel_the_name_inside_is_held_back_and_the_one_outside_is_not() {
    let (user, version) = (crate::build::user_name(0), Version::Tls13);
    let mut config = tunnels::config(crate::tls::server(version));
    config.failures = limited(&[]).failures;
    let login = |held: &[u8], outside: &[u8], credentials| {
        let mut w = world(1, radius_nas(1), &[config.clone()]);
        let hold = Command::HoldBack { name: held.to_vec(), station: Vec::new() };
        w.net.command(w.servers[0], hold).unwrap();
        let (outcome, login) = tunnels::login(w, outside, credentials);
        (matches!(outcome, station::Event::Success { .. }), login.reason)
    };
    for password in [crate::build::PASSWORD, b"wrong"] {
        for outside in [tunnels::ANONYMOUS, &user] {
            assert_eq!(login(&user, outside, peap(version, &user, password)), (false, HELD));
            assert_eq!(login(&user, outside, ttls(version, &user, password)), (false, HELD));
        }
    }
    // Whoever fails under the name that everybody gives outside keeps nobody else out.
    let held = login(tunnels::ANONYMOUS, tunnels::ANONYMOUS, peap(version, &user, crate::build::PASSWORD));
    assert_eq!(held, (true, None));
}

#[test]
fn a_tunnel_that_ends_before_it_is_said_who_is_inside_counts_against_no_name() {
    let config = tunnels::config(crate::tls::server(Version::Tls13));
    let w = world(1, radius_nas(1), &[config]);
    // A peer that wants another server ends the handshake.
    let (outcome, login) = tunnels::login(w, tunnels::ANONYMOUS, tunnels::distrustful());
    assert_eq!(outcome, station::Event::Failure);
    // bad_certificate (RFC 8446 §6.2): it bears another name.
    let alert = Some(Reason::Tls(TlsFault::Alert(Alert(42))));
    assert_eq!((login.method, login.reason), (Some(Method::Peap), alert));
    assert_eq!(login.failed_as(), None, "an alert offers no proof");
    let broken = Login { reason: Some(Reason::Rules), ..*login };
    let (name, station) = broken.failed_as().unwrap();
    assert!(name.is_empty() && !station.is_empty());
}

/// How a peer offers a password.
type Offer<'a> = &'a dyn Fn(&[u8]) -> Box<dyn PeerOffer>;

#[test]
fn who_leaves_when_told_that_a_guess_is_wrong_has_failed() {
    let version = Version::Tls13;
    let user = String::from_utf8(crate::build::user_name(0)).unwrap();
    let name = user.as_bytes();
    let tls = || PeerTls::Real(crate::tls::client(version, fixtures::client(2)), 0);
    let alone = |password: &[u8]| Box::new(Account::new(name, password)) as Box<dyn PeerOffer>;
    let peap = |password: &[u8]| {
        let inner = Arc::new([alone(password)]);
        let (tls, identity) = (tls(), name.to_vec());
        Box::new(PeerMethodPeap { tls, fragment: 1024, identity, inner }) as Box<dyn PeerOffer>
    };
    let ttls = |password: &[u8]| {
        let proof = Proof::MsChapV2(password.into());
        let (tls, identity) = (tls(), name.to_vec());
        Box::new(PeerMethodTtls { tls, fragment: 1024, identity, proof }) as Box<dyn PeerOffer>
    };
    let ways: [(Method, Offer<'_>); 3] =
        [(Method::EapMsChapV2, &alone), (Method::Peap, &peap), (Method::Ttls, &ttls)];
    for (method, offer) in ways {
        let mut config = tunnels::config(crate::tls::server(version));
        config.methods = vec![method, Method::Pap];
        let mut unlimited = Pair::new(config.clone());
        config.failures = limited(&[]).failures;
        // A wrong password is refused in so many rounds, of which the last is not needed to learn that it is wrong.
        let (code, all) = unlimited.eap(&user, offer(b"wrong"), usize::MAX);
        assert_eq!(code, Some(Code::ACCESS_REJECT));
        let mut p = Pair::new(config.clone());
        for _ in 0..3 {
            assert_eq!(p.eap(&user, offer(b"wrong"), all - 1), (Some(Code::ACCESS_CHALLENGE), all - 1));
        }
        let told = |e: Event| matches!(e, Event::Failed { name, .. } if name == user.as_bytes());
        assert_eq!(std::iter::from_fn(|| p.server.poll_event()).filter(|e| told(e.clone())).count(), 3);
        p.ask_pap(2, name, crate::build::PASSWORD);
        assert_eq!(p.answer().unwrap().1, Code::ACCESS_REJECT, "{method:?}");
        assert_eq!(reasons(&mut p), [HELD], "{method:?}");
        // Who stays is counted once, and told of as before.
        let mut p = Pair::new(config);
        for _ in 0..2 {
            assert_eq!(p.eap(&user, offer(b"wrong"), usize::MAX).0, Some(Code::ACCESS_REJECT));
        }
        assert_eq!(reasons(&mut p), [Some(Reason::WrongPassword); 2]);
        assert_eq!(p.eap(&user, offer(crate::build::PASSWORD), usize::MAX).0, Some(Code::ACCESS_ACCEPT));
    }
}

#[test]
fn who_asks_again_within_a_refused_login_is_not_told_sooner() {
    let mut config = aaa_config(users(Seed::new(1), 1));
    config.reject_delay = Duration::from_secs(1);
    let mut p = Pair::new(config);
    let name = user_name(0);
    let ask = |p: &mut Pair, token: u64, eap: &[u8], state: Option<&[u8]>| {
        p.ask(token, Code::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(eap);
            state.iter().for_each(|state| drop(a.push_bytes(kind::STATE, state)));
        });
    };
    ask(&mut p, 1, &[&[2, 0, 0, 5 + name.len() as u8, 1], &name[..]].concat(), None);
    let challenge = p.reply().unwrap();
    let (state, mut request) = (challenge.attributes.get(kind::STATE).unwrap(), Vec::new());
    challenge.attributes.eap(&mut request);
    assert_eq!(request[4], 4, "EAP-MD5");
    let wrong = [&[2, request[1], 0, 22, 4, 16][..], &[0; 16]].concat();
    for token in [2, 3] {
        ask(&mut p, token, &wrong, Some(state));
        assert!(p.reply().is_none(), "request {token} waits");
    }
    let late = NEVER + Duration::from_secs(1);
    p.server.handle(late, Input::Timeout);
    p.settle(late);
    let answers = [p.answer(), p.answer()].map(|answer| answer.map(|(token, code, _)| (token, code)));
    assert_eq!(answers, [2, 3].map(|token| Some((token, Code::ACCESS_REJECT))));
}
