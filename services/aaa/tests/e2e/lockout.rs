//! Lockout after failed logins: no proof is checked, and all attempts look the same.

use crate::build::{aaa_config, radius_nas, test_network, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::tunnels::{self, peap_credentials, ttls_credentials};
use std::sync::Arc;
use usher_aaa::ledger::LoginFailureLimit;
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, AdmissionRefusal, AuthMethod,
    FinishedLogin, RejectCause, StoredPassword, User, UserCacheConfig, UserDirectory, UserSource,
};
use usher_core::{Duration, Instant, Machine, MachineInput, Seed};
use usher_crypto::SecretValue;
use usher_crypto::fault::{Alert, TlsFault};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{TlsVersion, fixtures};
use usher_eap::method::PeerMethodFactory;
use usher_eap::method::mschapv2::MsChapV2Account;
use usher_eap::method::peap::PeapPeerFactory;
use usher_eap::method::tls::PeerTlsBackend;
use usher_eap::method::ttls::{TtlsInnerCredential, TtlsPeerFactory};
use usher_nas::station;
use usher_radius::attribute::{kind, vendor};
use usher_radius::client::RadiusReply;
use usher_radius::{AttributeList, PacketCode};

const PASSWORD: &[u8] = b"pencil";
const LOCKED_OUT: Option<RejectCause> = Some(RejectCause::Limit(AdmissionRefusal::TooManyFailures));

fn limited_config(users: &[(&str, User)]) -> AaaServerConfig {
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    for (name, user) in users {
        all.insert(name.as_bytes(), user.clone());
    }
    let mut config = aaa_config(Arc::new(all));
    config.methods = vec![AuthMethod::EapMsChapV2, AuthMethod::EapMd5, AuthMethod::Pap, AuthMethod::MsChapV2];
    config.failures = Some(LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(300)));
    config
}

fn clear_user() -> (&'static str, User) {
    ("ann", User::with_password(PASSWORD))
}

fn hashed_user() -> (&'static str, User) {
    let password = Some(StoredPassword::Argon2(argon2_hash(PASSWORD, &[3; 16]).into()));
    ("slow", User { password, ..User::default() })
}

fn instant_at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// Returns the passwords that the host has to compare, by token.
fn take_verifications(p: &mut ClientServerPair) -> Vec<(u64, SecretValue)> {
    let jobs = std::iter::from_fn(|| p.server.poll_job());
    jobs.filter_map(|job| match job.job {
        AaaServerJob::Verify { password, .. } => Some((job.token, password)),
        _ => None,
    })
    .collect()
}

fn login_causes(p: &mut ClientServerPair) -> Vec<Option<RejectCause>> {
    let events = std::iter::from_fn(|| p.server.poll_event());
    events
        .filter_map(|e| match e {
            AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => Some(login.reason),
            _ => None,
        })
        .collect()
}

fn pap_from(
    p: &mut ClientServerPair,
    token: u64,
    name: &[u8],
    password: &[u8],
    station: &[u8],
) -> PacketCode {
    p.send_request(token, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        a.push_bytes(kind::CALLING_STATION_ID, station).unwrap();
    });
    p.next_answer().unwrap().1
}

fn lock_out(p: &mut ClientServerPair, name: &[u8], station: &[u8]) {
    let command = AaaServerCommand::LockOut { name: name.to_vec(), station: station.to_vec() };
    p.server.handle_command(NEVER, command).unwrap();
}

fn ms_chap_v2(a: &mut AttributeList, name: &str, password: &[u8]) {
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

/// Returns a reply's attributes with their lengths, and MS-CHAP-Error without its challenge.
fn reply_shape(reply: &RadiusReply) -> (PacketCode, Vec<(u8, usize)>, Option<Vec<u8>>) {
    let error = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR).map(<[u8]>::to_vec);
    let error = error.map(|e| [&e[..13], &e[45..]].concat());
    (reply.code, reply.attributes.iter().map(|a| (a.kind, a.value.len())).collect(), error)
}

#[test]
fn a_right_guess_is_not_told_from_a_wrong_one_and_costs_nothing() {
    let mut p = ClientServerPair::new(limited_config(&[hashed_user()]));
    for token in 1..=3 {
        p.send_pap_request(token, b"slow", b"wrong");
        let [(asked, _)] = take_verifications(&mut p)[..] else { panic!("not asked") };
        p.server.handle_command(NEVER, AaaServerCommand::Verified { token: asked, right: false }).unwrap();
        p.deliver_all(NEVER);
        assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    }
    for (token, password) in [(4, &b"wrong"[..]), (5, PASSWORD)] {
        p.send_pap_request(token, b"slow", password);
        assert_eq!(reply_shape(&p.next_reply().unwrap()), (PacketCode::ACCESS_REJECT, vec![(80, 16)], None));
        assert_eq!(take_verifications(&mut p), [], "no hash is made");
    }
    assert_eq!((p.server.counters().rejected_wrong_password, p.server.counters().rejected_failures), (3, 2));
}

#[test]
fn concurrent_attempts_beyond_the_limit_are_rejected_unproved() {
    let mut p = ClientServerPair::new(limited_config(&[hashed_user()]));
    for token in 1..=8 {
        p.send_pap_request(token, b"slow", if token == 8 { PASSWORD } else { b"wrong" });
    }
    let asked = take_verifications(&mut p);
    assert_eq!(asked.len(), 8, "all are under way before the first is compared");
    for (token, password) in asked {
        let right = *password == PASSWORD;
        p.server.handle_command(NEVER, AaaServerCommand::Verified { token, right }).unwrap();
        p.deliver_all(NEVER);
        assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    }
    assert_eq!((p.server.counters().rejected_wrong_password, p.server.counters().rejected_failures), (3, 5));
}

#[test]
fn what_the_host_holds_back_is_not_even_looked_up() {
    let mut config = limited_config(&[]);
    config.users = UserSource::Host(UserCacheConfig::default());
    config.reject_delay = Duration::from_secs(1);
    let mut p = ClientServerPair::new(config);
    lock_out(&mut p, b"ann", b"");
    p.send_pap_request(1, b"ann", PASSWORD);
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| ms_chap_v2(a, "ann", PASSWORD));
    p.send_request(3, PacketCode::ACCESS_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_eap(&[2, 9, 0, 8, 1, b'a', b'n', b'n']);
    });
    assert_eq!((p.next_answer(), p.server.counters().lookups), (None, 0));
    assert_eq!(p.server.poll_timeout().map(|t| t.min(instant_at(1))), Some(instant_at(1)));
    p.server.handle_input(instant_at(1), MachineInput::Timeout);
    p.deliver_all(instant_at(1));
    let answers: Vec<_> = std::iter::from_fn(|| p.next_reply()).map(|r| r.code).collect();
    assert_eq!(answers, [PacketCode::ACCESS_REJECT; 3]);
    assert_eq!(login_causes(&mut p), [LOCKED_OUT; 3]);
    // Another user is not locked out.
    p.send_pap_request(4, b"anna", PASSWORD);
    assert_eq!(p.server.counters().lookups, 1);
}

#[test]
fn ms_chap_says_the_same_to_every_guess() {
    let mut locked = User::with_password(PASSWORD);
    locked.rejected = true;
    let mut p = ClientServerPair::new(limited_config(&[
        clear_user(),
        ("lock", locked),
        hashed_user(),
        ("held", User::with_password(PASSWORD)),
    ]));
    lock_out(&mut p, b"held", b"");
    let mut said = Vec::new();
    for (token, name, password) in [
        (1, "ann", &b"wrong"[..]),
        (2, "nobody", PASSWORD),
        (3, "lock", PASSWORD),
        (4, "slow", PASSWORD),
        (5, "held", PASSWORD),
        (6, "held", b"wrong"),
    ] {
        p.send_request(token, PacketCode::ACCESS_REQUEST, |a| ms_chap_v2(a, name, password));
        said.push(reply_shape(&p.next_reply().unwrap()));
    }
    assert!(said[0].2.as_ref().is_some_and(|e| e.starts_with(b"\x07E=691 R=0")), "{said:?}");
    assert!(said.iter().all(|s| *s == said[0]), "{said:?}");
}

#[test]
fn spelling_method_and_password_do_not_evade_the_lockout() {
    let device = User::with_password(PASSWORD);
    let mut p = ClientServerPair::new(limited_config(&[("001122aabbcc", device), clear_user()]));
    // Three failed attempts by three methods in three notations.
    assert_eq!(pap_from(&mut p, 1, b"00-11-22-AA-BB-CC", b"wrong", b"a"), PacketCode::ACCESS_REJECT);
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| ms_chap_v2(a, "0011.22aa.bbcc", b"wrong"));
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 3, b"001122aabbcc", b"wrong", b"b"), PacketCode::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 4, b"00:11:22:aa:bb:cc", PASSWORD, b"c"), PacketCode::ACCESS_REJECT);
    assert_eq!(login_causes(&mut p).last(), Some(&LOCKED_OUT));
    // By station, in any notation, for any user.
    for (token, name) in [(5, "u1"), (6, "u2"), (7, "u3")] {
        pap_from(&mut p, token, name.as_bytes(), b"x", b"02-00-00-00-00-0A");
    }
    assert_eq!(pap_from(&mut p, 8, b"ann", PASSWORD, b"02:00:00:00:00:0a"), PacketCode::ACCESS_REJECT);
    assert_eq!(pap_from(&mut p, 9, b"ann", PASSWORD, b"02:00:00:00:00:0b"), PacketCode::ACCESS_ACCEPT);
}

#[test]
fn a_success_begins_anew_and_the_time_ends() {
    let mut p = ClientServerPair::new(limited_config(&[clear_user()]));
    let mut tries = |now: Instant, passwords: &[&[u8]]| -> Vec<PacketCode> {
        let mut codes = Vec::new();
        for password in passwords {
            let token = now.duration_since(Instant::ZERO).as_nanos() + codes.len() as u64;
            let mut attributes = AttributeList::new();
            attributes.push_text(kind::USER_NAME, "ann").unwrap().push_user_password(password).unwrap();
            let target = usher_radius::client::RequestTarget::Server(0);
            let code = PacketCode::ACCESS_REQUEST;
            let request =
                usher_radius::client::RadiusClientCommand::Request { token, target, code, attributes };
            p.client.handle_command(now, request).unwrap();
            p.deliver_all(now);
            codes.push(p.next_answer().unwrap().1);
        }
        codes
    };
    let (yes, no) = (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_REJECT);
    assert_eq!(
        tries(instant_at(0), &[b"x", b"x", PASSWORD, b"x", b"x", PASSWORD]),
        [no, no, yes, no, no, yes]
    );
    assert_eq!(tries(instant_at(10), &[b"x", b"x", b"x", PASSWORD]), [no; 4]);
    assert_eq!(tries(instant_at(309), &[PASSWORD]), [no]);
    assert_eq!(tries(instant_at(310), &[PASSWORD]), [yes]);
}

#[test]
fn a_lockout_applies_to_the_inner_name_and_not_to_the_outer() {
    let (user, version) = (crate::build::user_name(0), TlsVersion::Tls13);
    let mut config = tunnels::tunnel_config(crate::tls::tls_server_config(version));
    config.failures = limited_config(&[]).failures;
    let login = |held: &[u8], outside: &[u8], credentials| {
        let mut w = test_network(1, radius_nas(1), &[config.clone()]);
        let hold = AaaServerCommand::LockOut { name: held.to_vec(), station: Vec::new() };
        w.net.send_command(w.servers[0], hold).unwrap();
        let (outcome, login) = tunnels::run_login(w, outside, credentials);
        (matches!(outcome, station::StationEvent::Success { .. }), login.reason)
    };
    for password in [crate::build::PASSWORD, b"wrong"] {
        for outside in [tunnels::ANONYMOUS, &user] {
            assert_eq!(
                login(&user, outside, peap_credentials(version, &user, password)),
                (false, LOCKED_OUT)
            );
            assert_eq!(
                login(&user, outside, ttls_credentials(version, &user, password)),
                (false, LOCKED_OUT)
            );
        }
    }
    // Failed attempts under the common outer name lock out no other user.
    let held = login(
        tunnels::ANONYMOUS,
        tunnels::ANONYMOUS,
        peap_credentials(version, &user, crate::build::PASSWORD),
    );
    assert_eq!(held, (true, None));
}

#[test]
fn a_tunnel_that_ends_without_an_inner_name_counts_against_none() {
    let config = tunnels::tunnel_config(crate::tls::tls_server_config(TlsVersion::Tls13));
    let w = test_network(1, radius_nas(1), &[config]);
    // A peer that expects another server ends the handshake.
    let (outcome, login) = tunnels::run_login(w, tunnels::ANONYMOUS, tunnels::distrusting_credentials());
    assert_eq!(outcome, station::StationEvent::Failure);
    // bad_certificate (RFC 8446 §6.2): it has another name.
    let alert = Some(RejectCause::Tls(TlsFault::Alert(Alert(42))));
    assert_eq!((login.method, login.reason), (Some(AuthMethod::Peap), alert));
    assert_eq!(login.failed_attempt_identity(), None, "an alert offers no proof");
    let broken = FinishedLogin { reason: Some(RejectCause::Rules), ..*login };
    let (name, station) = broken.failed_attempt_identity().unwrap();
    assert!(name.is_empty() && !station.is_empty());
}

/// A peer's offer with a password.
type PasswordOffer<'a> = &'a dyn Fn(&[u8]) -> Box<dyn PeerMethodFactory>;

#[test]
fn who_leaves_when_told_that_a_guess_is_wrong_has_failed() {
    let version = TlsVersion::Tls13;
    let user = String::from_utf8(crate::build::user_name(0)).unwrap();
    let name = user.as_bytes();
    let tls =
        || PeerTlsBackend::Real(crate::tls::tls_client_config(version, fixtures::client_credentials(2)), 0);
    let alone =
        |password: &[u8]| Box::new(MsChapV2Account::new(name, password)) as Box<dyn PeerMethodFactory>;
    let peap = |password: &[u8]| {
        let inner = Arc::new([alone(password)]);
        let (tls, identity) = (tls(), name.to_vec());
        Box::new(PeapPeerFactory { tls, fragment: 1024, identity, inner }) as Box<dyn PeerMethodFactory>
    };
    let ttls = |password: &[u8]| {
        let proof = TtlsInnerCredential::MsChapV2(password.into());
        let (tls, identity) = (tls(), name.to_vec());
        Box::new(TtlsPeerFactory { tls, fragment: 1024, identity, proof }) as Box<dyn PeerMethodFactory>
    };
    let ways: [(AuthMethod, PasswordOffer<'_>); 3] =
        [(AuthMethod::EapMsChapV2, &alone), (AuthMethod::Peap, &peap), (AuthMethod::Ttls, &ttls)];
    for (method, offer) in ways {
        let mut config = tunnels::tunnel_config(crate::tls::tls_server_config(version));
        config.methods = vec![method, AuthMethod::Pap];
        let mut unlimited = ClientServerPair::new(config.clone());
        config.failures = limited_config(&[]).failures;
        // A wrong password is rejected in this many rounds. The peer knows it before the last.
        let (code, all) = unlimited.log_in_eap(&user, offer(b"wrong"), usize::MAX);
        assert_eq!(code, Some(PacketCode::ACCESS_REJECT));
        let mut p = ClientServerPair::new(config.clone());
        for _ in 0..3 {
            assert_eq!(
                p.log_in_eap(&user, offer(b"wrong"), all - 1),
                (Some(PacketCode::ACCESS_CHALLENGE), all - 1)
            );
        }
        let told =
            |e: AaaServerEvent| matches!(e, AaaServerEvent::Failed { name, .. } if name == user.as_bytes());
        assert_eq!(std::iter::from_fn(|| p.server.poll_event()).filter(|e| told(e.clone())).count(), 3);
        p.send_pap_request(2, name, crate::build::PASSWORD);
        assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT, "{method:?}");
        assert_eq!(login_causes(&mut p), [LOCKED_OUT], "{method:?}");
        // A peer that stays is counted once, and reported as before.
        let mut p = ClientServerPair::new(config);
        for _ in 0..2 {
            assert_eq!(p.log_in_eap(&user, offer(b"wrong"), usize::MAX).0, Some(PacketCode::ACCESS_REJECT));
        }
        assert_eq!(login_causes(&mut p), [Some(RejectCause::WrongPassword); 2]);
        assert_eq!(
            p.log_in_eap(&user, offer(crate::build::PASSWORD), usize::MAX).0,
            Some(PacketCode::ACCESS_ACCEPT)
        );
    }
}

#[test]
fn who_asks_again_within_a_refused_login_is_not_told_sooner() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.reject_delay = Duration::from_secs(1);
    let mut p = ClientServerPair::new(config);
    let name = user_name(0);
    let ask = |p: &mut ClientServerPair, token: u64, eap: &[u8], state: Option<&[u8]>| {
        p.send_request(token, PacketCode::ACCESS_REQUEST, |a| {
            a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(eap);
            state.iter().for_each(|state| drop(a.push_bytes(kind::STATE, state)));
        });
    };
    ask(&mut p, 1, &[&[2, 0, 0, 5 + name.len() as u8, 1], &name[..]].concat(), None);
    let challenge = p.next_reply().unwrap();
    let (state, mut request) = (challenge.attributes.get(kind::STATE).unwrap(), Vec::new());
    challenge.attributes.read_eap_packet(&mut request);
    assert_eq!(request[4], 4, "EAP-MD5");
    let wrong = [&[2, request[1], 0, 22, 4, 16][..], &[0; 16]].concat();
    for token in [2, 3] {
        ask(&mut p, token, &wrong, Some(state));
        assert!(p.next_reply().is_none(), "request {token} waits");
    }
    let late = NEVER + Duration::from_secs(1);
    p.server.handle_input(late, MachineInput::Timeout);
    p.deliver_all(late);
    let answers =
        [p.next_answer(), p.next_answer()].map(|answer| answer.map(|(token, code, _)| (token, code)));
    assert_eq!(answers, [2, 3].map(|token| Some((token, PacketCode::ACCESS_REJECT))));
}
