//! PAP and lookups by the host, with a bare RADIUS client.

use crate::build::{PASSWORD, aaa_config, test_users, user_name};
use crate::pair::{ClientServerPair, NEVER};
use crate::world::nas_address;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerEvent, AaaServerJob, AuthMethod, IdentityKey, LoginOwner,
    RejectCause, StoredPassword, User, UserCacheConfig, UserLookupResult, UserSource,
};
use usher_core::bench::{EPOCH, TestMachine};
use usher_core::{CommandError, DatagramPath, Duration, Instant, Machine, MachineInput, Seed};
use usher_crypto::SecretValue;
use usher_eap::method::ttls::TtlsInnerCredential;
use usher_eap::method::{UserQuery, UserSecret, md5};
use usher_radius::PacketCode;
use usher_radius::attribute::kind;
use usher_radius::client;

#[test]
fn a_password_is_compared_as_it_is() {
    let mut p = ClientServerPair::new(aaa_config(test_users(Seed::new(1), 1)));
    p.send_pap_request(1, &user_name(0), PASSWORD);
    assert_eq!(p.next_answer(), Some((1, PacketCode::ACCESS_ACCEPT, Some(3600))));
    p.send_pap_request(2, &user_name(0), b"open sesame!");
    assert_eq!(p.next_answer(), Some((2, PacketCode::ACCESS_REJECT, None)));
    p.send_pap_request(3, b"nobody", PASSWORD);
    assert_eq!(p.next_answer(), Some((3, PacketCode::ACCESS_REJECT, None)));
    let c = p.server.counters();
    assert_eq!((c.accepted_pap, c.rejected_wrong_password, c.rejected_unknown_user), (1, 1, 1));
    let first = p.server.poll_event().unwrap();
    assert!(
        matches!(&first, AaaServerEvent::Accepted(login) if login.method == Some(AuthMethod::Pap)),
        "{first:?}"
    );
    let second = p.server.poll_event().unwrap();
    assert!(
        matches!(&second, AaaServerEvent::Rejected(login) if login.reason == Some(RejectCause::WrongPassword)),
        "{second:?}"
    );
}

#[test]
fn a_method_that_is_not_offered_admits_nobody() {
    let mut config = aaa_config(test_users(Seed::new(1), 1));
    config.methods = vec![AuthMethod::EapMd5];
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, &user_name(0), PASSWORD);
    assert_eq!(p.next_answer(), Some((1, PacketCode::ACCESS_REJECT, None)));
    assert_eq!(p.server.counters().rejected_no_method, 1);
}

/// A reply that does not fit a packet becomes a reject with its cause. Otherwise the access server would wait in
/// vain.
#[test]
fn a_reply_that_fits_no_packet_is_a_reject() {
    // The rest of 4096 octets after header, Message-Authenticator and User-Name: attributes of 200 octets.
    for (rows, fits) in [(20, true), (21, false)] {
        let mut all = usher_aaa::UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        let mut user = User::with_password(PASSWORD);
        for _ in 0..rows {
            user.reply.push_bytes(kind::REPLY_MESSAGE, &[b'x'; 198]).unwrap();
        }
        all.insert(b"ann", user);
        let mut p = ClientServerPair::new(aaa_config(Arc::new(all)));
        p.send_pap_request(1, b"ann", PASSWORD);
        let reply = p.next_reply().unwrap();
        assert_eq!(reply.code == PacketCode::ACCESS_ACCEPT, fits, "{rows}");
        let c = p.server.counters();
        assert_eq!((c.accepted_pap, c.rejected_reply_too_long), (u64::from(fits), u64::from(!fits)));
        let told = std::iter::from_fn(|| p.server.poll_event()).find_map(|event| match event {
            AaaServerEvent::Accepted(login) | AaaServerEvent::Rejected(login) => {
                Some((login.reason, login.detail))
            }
            _ => None,
        });
        let (reason, detail) = told.unwrap();
        assert_eq!(reason.is_none(), fits);
        assert_eq!(detail.is_some_and(|detail| detail.starts_with("it has 4200 octets")), !fits);
    }
}

/// RFC 2865 §3: a packet has at most 4096 octets.
#[test]
fn a_reply_may_fill_its_packet_to_the_last_octet() {
    for (more, fits) in [(0, true), (1, false)] {
        let mut all = usher_aaa::UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        let mut user = User::with_password(PASSWORD);
        // A header of 20 octets and a Message-Authenticator of 18 leave 4058: 20 of 202, and one of 18.
        for length in [200; 20].into_iter().chain([16 + more]) {
            user.reply.push_bytes(kind::FILTER_ID, &vec![b'x'; length]).unwrap();
        }
        all.insert(b"ann", user);
        let mut p = ClientServerPair::new(aaa_config(Arc::new(all)));
        p.send_pap_request(1, b"ann", PASSWORD);
        let reply = p.next_reply().unwrap();
        let expected = if fits { PacketCode::ACCESS_ACCEPT } else { PacketCode::ACCESS_REJECT };
        assert_eq!(
            (reply.code, reply.attributes.get_all(kind::FILTER_ID).count()),
            (expected, if fits { 21 } else { 0 })
        );
        assert_eq!(p.server.counters().rejected_reply_too_long, u64::from(!fits));
    }
}

#[test]
fn requests_without_proof_or_of_another_kind_are_counted() {
    let mut p = ClientServerPair::new(aaa_config(test_users(Seed::new(1), 1)));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, b"x").unwrap();
    });
    assert_eq!(p.next_answer(), Some((1, PacketCode::ACCESS_REJECT, None)));
    p.send_request(2, PacketCode::ACCOUNTING_REQUEST, |a| {
        a.push_text(kind::ACCT_SESSION_ID, "1").unwrap();
    });
    assert_eq!(p.next_answer(), None);
    // An invalid EAP packet, and an unknown State.
    p.send_request(3, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, b"x").unwrap().push_eap(&[9, 9]);
    });
    assert_eq!(p.next_answer(), Some((3, PacketCode::ACCESS_REJECT, None)));
    p.send_request(5, PacketCode::ACCESS_REQUEST, |a| {
        a.push_eap(&[2, 1, 0, 6, 4, 0]).push_bytes(kind::STATE, &[0; 16]).unwrap();
    });
    assert_eq!(p.next_answer(), Some((5, PacketCode::ACCESS_REJECT, None)));
    p.send_request(6, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, b"x").unwrap().push_eap(&[2, 1, 0, 6, 1, b'y']);
    });
    assert_eq!(p.next_answer(), Some((6, PacketCode::ACCESS_REJECT, None)));
    let c = p.server.counters();
    assert_eq!((c.no_proof, c.bad_accounting, c.bad_eap, c.unknown_session), (1, 1, 1, 1));
    assert_eq!((c.rejected_name_mismatch, p.server.half_open()), (1, 0));
}

#[test]
fn an_eap_start_asks_for_the_identity() {
    let name = user_name(0);
    let mut p = pair_after_identity(&name, &name);
    assert_eq!(p.next_answer(), Some((2, PacketCode::ACCESS_CHALLENGE, None)));
    assert_eq!((p.server.half_open(), p.server.counters().challenges), (1, 2));
}

/// RFC 3579 §2.1: User-Name decides realm and limits, so it must equal the EAP identity.
#[test]
fn the_identity_that_was_asked_for_is_the_requests_user_name() {
    let mut p = pair_after_identity(&user_name(0), b"other@elsewhere.example");
    assert_eq!(p.next_answer(), Some((2, PacketCode::ACCESS_REJECT, None)));
    assert_eq!((p.server.half_open(), p.server.counters().rejected_name_mismatch), (0, 1));
    // A request without a name contradicts no identity.
    assert_eq!(
        pair_after_identity(b"", b"00-11-22-33-44-55").next_answer(),
        Some((2, PacketCode::ACCESS_CHALLENGE, None))
    );
}

/// A login keeps its User-Name: otherwise its NAS would account it to another user.
#[test]
fn a_login_that_goes_on_under_another_user_name_is_turned_away() {
    for (later, code) in [
        (&user_name(0)[..], PacketCode::ACCESS_ACCEPT),
        (b"other", PacketCode::ACCESS_REJECT),
        (b"", PacketCode::ACCESS_ACCEPT),
    ] {
        let mut config = aaa_config(test_users(Seed::new(1), 1));
        config.methods = vec![AuthMethod::EapMd5];
        let mut p = ClientServerPair::new(config);
        let name = String::from_utf8(user_name(0)).unwrap();
        let (reply, sent) = p.eap_under(&name, later, Box::new(md5::EapMd5Password::new(PASSWORD)), 2);
        let reply = reply.unwrap();
        assert_eq!((reply.code, sent), (code, 2), "{later:?}");
        let said = reply.attributes.get(kind::USER_NAME).unwrap_or_default();
        assert_eq!(said == name.as_bytes(), code == PacketCode::ACCESS_ACCEPT);
        assert_eq!(p.server.counters().rejected_name_mismatch, u64::from(code == PacketCode::ACCESS_REJECT));
    }
}

/// After an EAP-Start the peer sends identity `name` in a request with this User-Name.
fn pair_after_identity(name: &[u8], user_name: &[u8]) -> ClientServerPair {
    let mut p = ClientServerPair::new(aaa_config(test_users(Seed::new(1), 1)));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, user_name).unwrap().push_eap(&[]);
    });
    let Some(client::RadiusClientEvent::Response(r)) = p.client.poll_event() else { panic!("no answer") };
    let mut eap = Vec::new();
    assert!(r.code == PacketCode::ACCESS_CHALLENGE && r.attributes.read_eap_packet(&mut eap));
    let [1, identifier, 0, 5, 1] = eap[..] else { panic!("{eap:?}") };
    let state = r.attributes.get(kind::STATE).unwrap().to_vec();
    let mut identity = vec![2, identifier, 0, 5 + name.len() as u8, 1];
    identity.extend_from_slice(name);
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
        a.push_bytes(kind::USER_NAME, user_name).unwrap().push_eap(&identity);
        a.push_bytes(kind::STATE, &state).unwrap();
    });
    p
}

#[test]
fn the_host_answers_look_ups_when_it_can() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", PASSWORD);
    p.send_pap_request(2, b"bob", PASSWORD);
    let lookup = |p: &mut ClientServerPair| match p.server.poll_job() {
        Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { name, .. }, .. }) => (token, name),
        other => panic!("{other:?}"),
    };
    let (ann, bob) = (lookup(&mut p), lookup(&mut p));
    assert_eq!((&ann.1[..], &bob.1[..], p.server.half_open()), (&b"ann"[..], &b"bob"[..], 2));
    // In another order than the jobs.
    p.server
        .handle_command(NEVER, AaaServerCommand::Found { token: bob.0, user: UserLookupResult::NotFound })
        .unwrap();
    let user = UserLookupResult::User(Arc::new(User::with_password(PASSWORD)));
    p.server.handle_command(NEVER, AaaServerCommand::Found { token: ann.0, user: user.clone() }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!(p.next_answer(), Some((2, PacketCode::ACCESS_REJECT, None)));
    assert_eq!(p.next_answer(), Some((1, PacketCode::ACCESS_ACCEPT, None)));
    let again = p.server.handle_command(NEVER, AaaServerCommand::Found { token: ann.0, user });
    assert_eq!(again, Err(CommandError::UnknownToken));
}

#[test]
fn a_look_up_that_takes_too_long_is_given_up() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", PASSWORD);
    let end = Instant::ZERO + Duration::from_secs(30);
    assert!(p.server.poll_timeout().is_some_and(|at| at <= end));
    p.server.handle_input(end, MachineInput::Timeout);
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { .. }, .. }) = p.server.poll_job()
    else {
        panic!("no look-up")
    };
    assert_eq!((p.server.half_open(), p.server.counters().unavailable), (0, 1));
    let Some(AaaServerEvent::Undecided(login)) = p.server.poll_event() else { panic!("not told") };
    assert_eq!((&*login.name, login.reason), (&b"ann"[..], Some(RejectCause::StoreAway)));
    let late =
        p.server.handle_command(NEVER, AaaServerCommand::Found { token, user: UserLookupResult::NotFound });
    assert_eq!(late, Err(CommandError::UnknownToken));
    p.deliver_all(NEVER);
    assert_eq!(p.next_answer(), None);
}

#[test]
fn a_front_that_is_not_there_takes_nothing() {
    let config = usher_aaa::AaaServerConfig::new(UserSource::Memory(test_users(Seed::new(1), 0)));
    let mut server =
        TestMachine::new(AaaServer::new(config, Seed::new(1).derive_secure_rng("aaa", 0)).unwrap());
    let address = SocketAddr::new(nas_address(0), 1);
    let path = DatagramPath { socket: usher_aaa::radius_socket(0), local: address, remote: address };
    server.handle_input(NEVER, MachineInput::Datagram { path, data: &[1, 2, 3] });
    server
        .handle_input(NEVER, MachineInput::Frame { port: usher_core::LinkLayerPortId(0), data: &[1, 2, 3] });
    assert_eq!(server.counters().no_front, 2);
    assert!(server.poll_transmit(&mut Vec::new()).is_none() && server.poll_timeout().is_none());
}

fn lookup_token(p: &mut ClientServerPair) -> u64 {
    match p.server.poll_job() {
        Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { .. }, .. }) => token,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_found_before_the_forgetting_is_asked_again() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    let user = || UserLookupResult::User(Arc::new(User::with_password(PASSWORD)));
    p.send_pap_request(1, b"ann", PASSWORD);
    let token = lookup_token(&mut p);
    p.server.handle_command(NEVER, AaaServerCommand::EvictUsers { name: Some(b"ann".to_vec()) }).unwrap();
    p.server.handle_command(NEVER, AaaServerCommand::Found { token, user: user() }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!(p.next_answer(), Some((1, PacketCode::ACCESS_ACCEPT, None)), "a login under way goes on");
    assert!(matches!(p.server.poll_event(), Some(AaaServerEvent::Accepted(_))));
    p.send_pap_request(2, b"ann", PASSWORD);
    let token = lookup_token(&mut p);
    p.server.handle_command(NEVER, AaaServerCommand::Found { token, user: user() }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!((p.next_answer().map(|a| a.1), p.server.cached_users()), (Some(PacketCode::ACCESS_ACCEPT), 1));
}

#[test]
fn who_is_served_while_the_store_is_away_is_asked_about_again() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    for n in 1..3 {
        p.send_pap_request(n, b"ann", PASSWORD);
        let token = lookup_token(&mut p);
        let user = UserLookupResult::Cached(Arc::new(User::with_password(PASSWORD)));
        p.server.handle_command(NEVER, AaaServerCommand::Found { token, user }).unwrap();
        p.deliver_all(NEVER);
        assert_eq!(p.next_answer(), Some((n, PacketCode::ACCESS_ACCEPT, None)));
        assert!(matches!(p.server.poll_event(), Some(AaaServerEvent::Accepted(_))));
    }
    assert_eq!((p.server.cached_users(), p.server.counters().remembered), (0, 2));
}

#[test]
fn a_name_that_nobody_has_is_not_asked_about_at_each_login() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"eve", PASSWORD);
    let token = lookup_token(&mut p);
    p.server
        .handle_command(NEVER, AaaServerCommand::Found { token, user: UserLookupResult::NotFound })
        .unwrap();
    p.deliver_all(NEVER);
    p.send_pap_request(2, b"eve", PASSWORD);
    assert_eq!(
        [p.next_answer(), p.next_answer()].map(|a| a.map(|a| a.1)),
        [Some(PacketCode::ACCESS_REJECT); 2]
    );
    let c = p.server.counters();
    assert_eq!((c.lookups, c.lookups_saved, c.rejected_unknown_user), (1, 1, 2));
    while p.server.poll_event().is_some() {}
    // A new user is found at once.
    p.server.handle_command(NEVER, AaaServerCommand::EvictUsers { name: Some(b"eve".to_vec()) }).unwrap();
    p.send_pap_request(3, b"eve", PASSWORD);
    lookup_token(&mut p);
}

#[test]
fn who_cannot_be_judged_now_gets_no_answer() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", PASSWORD);
    let token = lookup_token(&mut p);
    // Only the lookup is pending.
    let mut user = User::with_password(PASSWORD);
    user.password = Some(StoredPassword::Argon2("$argon2id$".into()));
    let user = UserLookupResult::User(Arc::new(user));
    p.server.handle_command(NEVER, AaaServerCommand::Found { token, user }).unwrap();
    let job = p.server.poll_job();
    assert!(
        matches!(&job, Some(usher_core::JobRequest { token: t, job: AaaServerJob::Verify { .. }, .. }) if *t == token),
        "{job:?}"
    );
    p.server.handle_command(NEVER, AaaServerCommand::Unable { token }).unwrap();
    p.deliver_all(NEVER);
    assert_eq!((p.next_answer(), p.server.half_open(), p.server.counters().unavailable), (None, 0, 1));
    let again = p.server.handle_command(NEVER, AaaServerCommand::Unable { token });
    assert_eq!(again, Err(CommandError::UnknownToken));
}

#[test]
fn a_clock_that_is_set_ends_a_users_time() {
    let mut all = usher_aaa::UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    let mut user = User::with_password(PASSWORD);
    user.expires = Some(EPOCH + Duration::from_secs(3600));
    all.insert(b"ann", user);
    let mut p = ClientServerPair::new(aaa_config(Arc::new(all)));
    p.send_pap_request(1, b"ann", PASSWORD);
    p.server.set_epoch(NEVER, EPOCH + Duration::from_secs(3601));
    p.send_pap_request(2, b"ann", PASSWORD);
    p.server.set_epoch(NEVER, EPOCH);
    p.send_pap_request(3, b"ann", PASSWORD);
    let codes = [p.next_answer(), p.next_answer(), p.next_answer()].map(|a| a.map(|a| a.1));
    assert_eq!(
        codes,
        [PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_REJECT, PacketCode::ACCESS_ACCEPT].map(Some)
    );
    assert_eq!(p.server.counters().rejected_expired, 1);
}

#[test]
fn what_holds_a_password_overwrites_it_and_never_prints_it() {
    // The types guarantee that it is erased: only a secret fits here.
    let key = || SecretValue::from(&b"hunter2"[..]);
    let (owner, name, hash) =
        (LoginOwner::Radius(0), b"ann".to_vec(), SecretValue::from("$argon2id$hunter2"));
    let said = [
        format!("{:?}", StoredPassword::Argon2(hash.clone())),
        format!("{:?}", AaaServerJob::Verify { owner, name, hash, password: key() }),
        format!(
            "{:?} {:?}",
            StoredPassword::from_clear(&key()[..]),
            StoredPassword::NtHash(SecretValue::new([104; 16]))
        ),
        format!("{:?} {:?}", UserSecret::Clear(key()), UserSecret::NtHash(SecretValue::new([104; 16]))),
        format!("{:?}", UserQuery::Password { password: key() }),
        format!("{:?} {:?}", TtlsInnerCredential::Pap(key()), TtlsInnerCredential::Chap(key())),
        format!("{:?}", IdentityKey::new(b"hunter2hunter2hunter2")),
    ];
    for said in said {
        assert!(!said.contains("hunter2") && !said.contains("104"), "{said}");
    }
}
