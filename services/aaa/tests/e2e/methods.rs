//! Proofs in a single request: CHAP, MS-CHAP, MS-CHAPv2, hashed passwords, MAC addresses.

use crate::build::{aaa_config, test_users};
use crate::pair::{ClientServerPair, NEVER};
use std::sync::Arc;
use usher_aaa::store::{AttributeRow, GroupRows, RowOperator, UserRows};
use usher_aaa::{
    AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, AuthMethod, LoginOwner,
    LoginTraceFilter, RejectCause, StoredPassword, User, UserCacheConfig, UserDirectory, UserLookupResult,
    UserSource,
};
use usher_core::bench::EPOCH;
use usher_core::{CommandError, Machine, Seed};
use usher_crypto::digest::{md5, sha1};
use usher_crypto::legacy::mschap::{self, MsChapKeys};
use usher_crypto::legacy::nt_hash;
use usher_crypto::password::{argon2_hash, argon2_verify};
use usher_radius::attribute::{kind, vendor};
use usher_radius::dictionary::RadiusDictionary;
use usher_radius::{AttributeList, PacketCode};

const CLEAR: &[u8] = b"clientPass";

fn server_config(name: &[u8], user: User) -> AaaServerConfig {
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    all.insert(name, user);
    let mut config = aaa_config(Arc::new(all));
    config.methods = AuthMethod::ALL.into();
    config
}

fn user_with_password(password: StoredPassword) -> User {
    User { password: Some(password), ..User::default() }
}

fn push_chap(a: &mut AttributeList, password: &[u8]) {
    let challenge = [7; 20];
    let mut value = vec![9];
    value.extend_from_slice(&md5(&[&[9], password, &challenge]));
    a.push_text(kind::USER_NAME, "ann").unwrap();
    a.push_bytes(kind::CHAP_PASSWORD, &value).unwrap().push_bytes(kind::CHAP_CHALLENGE, &challenge).unwrap();
}

#[test]
fn chap_is_held_against_the_password() {
    let mut p = ClientServerPair::new(server_config(b"ann", User::with_password(CLEAR)));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| push_chap(a, CLEAR));
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| push_chap(a, b"wrong"));
    p.send_request(3, PacketCode::ACCESS_REQUEST, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::CHAP_PASSWORD, &[1; 16]).unwrap();
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT);
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    let c = p.server.counters();
    assert_eq!((c.accepted_chap, c.rejected_wrong_password, c.bad_password), (1, 1, 1));
    // CHAP needs the password in clear text.
    let mut p = ClientServerPair::new(server_config(
        b"ann",
        user_with_password(StoredPassword::NtHash(nt_hash(CLEAR).into())),
    ));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| push_chap(a, CLEAR));
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().rejected_password_form),
        (PacketCode::ACCESS_REJECT, 1)
    );
}

/// The challenges and the name of RFC 2759 §9.2.
const NAME: &str = "User";
const AUTHENTICATOR: [u8; 16] =
    [0x5b, 0x5d, 0x7c, 0x7d, 0x7b, 0x3f, 0x2f, 0x3e, 0x3c, 0x2c, 0x60, 0x21, 0x32, 0x26, 0x26, 0x28];
const PEER: [u8; 16] =
    [0x21, 0x40, 0x23, 0x24, 0x25, 0x5e, 0x26, 0x2a, 0x28, 0x29, 0x5f, 0x2b, 0x3a, 0x33, 0x7c, 0x7e];

fn ms_chap_v2(a: &mut AttributeList, response: &[u8]) {
    let mut value = vec![5, 0];
    value.extend_from_slice(&PEER);
    value.extend_from_slice(&[0; 8]);
    value.extend_from_slice(response);
    a.push_text(kind::USER_NAME, NAME).unwrap();
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &AUTHENTICATOR).unwrap();
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE, &value).unwrap();
}

#[test]
fn ms_chap_v2_gives_the_rfcs_answer_and_keys() {
    let response = [
        0x82, 0x30, 0x9e, 0xcd, 0x8d, 0x70, 0x8b, 0x5e, 0xa0, 0x8f, 0xaa, 0x39, 0x81, 0xcd, 0x83, 0x54, 0x42,
        0x33, 0x11, 0x4a, 0x3d, 0x85, 0xd6, 0xdf,
    ];
    for password in [StoredPassword::from_clear(CLEAR), StoredPassword::NtHash(nt_hash(CLEAR).into())] {
        let mut p = ClientServerPair::new(server_config(NAME.as_bytes(), user_with_password(password)));
        p.send_request(1, PacketCode::ACCESS_REQUEST, |a| ms_chap_v2(a, &response));
        let reply = p.next_reply().unwrap();
        assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
        let success = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_SUCCESS).unwrap();
        assert_eq!(success, b"\x05S=407A5589115FD0D6209F510FE9C04566932CDA56");
        let keys = mschap::mppe_keys(&nt_hash(CLEAR), &response);
        assert_eq!(
            reply.mppe_keys().unwrap().map(|k| (k.recv, k.send)),
            Some((keys.recv.to_vec().into(), keys.send.to_vec().into()))
        );
        p.send_request(2, PacketCode::ACCESS_REQUEST, |a| ms_chap_v2(a, &[1; 24]));
        let reply = p.next_reply().unwrap();
        assert_eq!(reply.code, PacketCode::ACCESS_REJECT);
        let error = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR).unwrap();
        assert!(error.starts_with(b"\x05E=691 R=0 C="), "{}", error.escape_ascii());
        let c = p.server.counters();
        assert_eq!((c.accepted_ms_chap_v2, c.rejected_wrong_password), (1, 1));
    }
}

/// RFC 2759 §4 and §8.2: a device hashes only the user of `DOMAIN\\user`, and any other name unchanged.
#[test]
fn the_domain_before_a_name_is_no_part_of_an_ms_chap_proof() {
    for (name, hashed, is_right) in [
        ("ann", "ann", true),
        ("CORP\\ann", "ann", true),
        ("CORP\\ann", "CORP\\ann", false),
        ("ann@example.org", "ann@example.org", true),
        ("ann@example.org", "ann", false),
        ("host/pc1.example.org", "host/pc1.example.org", true),
        ("host/pc1.example.org", "PC1$", false),
        ("Ann", "ann", false),
    ] {
        let digest = sha1(&[&PEER, &AUTHENTICATOR, hashed.as_bytes()]);
        let response = mschap::mschap_v1_response(digest[..8].try_into().unwrap(), &nt_hash(CLEAR));
        let mut p = ClientServerPair::new(server_config(name.as_bytes(), User::with_password(CLEAR)));
        p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
            let value = [&[5, 0][..], &PEER, &[0; 8], &response].concat();
            a.push_text(kind::USER_NAME, name).unwrap();
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &AUTHENTICATOR).unwrap();
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE, &value).unwrap();
        });
        let reply = p.next_reply().unwrap();
        assert_eq!(reply.code == PacketCode::ACCESS_ACCEPT, is_right, "{name} hashed as {hashed}");
        let success = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_SUCCESS);
        let proof = mschap::authenticator_response(
            &nt_hash(CLEAR),
            &response,
            &PEER,
            &AUTHENTICATOR,
            hashed.as_bytes(),
        );
        let expected = [&[5][..], &proof].concat();
        assert_eq!(success, is_right.then_some(&expected[..]), "{name} hashed as {hashed}");
    }
}

#[test]
fn ms_chap_is_held_against_the_hash() {
    let challenge = [1, 2, 3, 4, 5, 6, 7, 8];
    let ask = |a: &mut AttributeList, flags: u8, password: &[u8]| {
        let mut value = vec![5, flags];
        value.extend_from_slice(&[0; 24]);
        value.extend_from_slice(&mschap::mschap_v1_response(&challenge, &nt_hash(password)));
        a.push_text(kind::USER_NAME, NAME).unwrap();
        a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &challenge).unwrap();
        a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_RESPONSE, &value).unwrap();
    };
    let mut p = ClientServerPair::new(server_config(
        NAME.as_bytes(),
        user_with_password(StoredPassword::NtHash(nt_hash(CLEAR).into())),
    ));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| ask(a, 1, CLEAR));
    let keys = p.next_reply().unwrap().ms_chap_keys().unwrap();
    assert_eq!(keys, Some(MsChapKeys::from_nt_hash(&nt_hash(CLEAR), None)));
    let mut p = ClientServerPair::new(server_config(NAME.as_bytes(), User::with_password(CLEAR)));
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| ask(a, 1, CLEAR));
    let reply = p.next_reply().unwrap();
    assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
    // RFC 3079 §2.5.1 and §2.5.3, of this password.
    let keys = reply.ms_chap_keys().unwrap().unwrap();
    assert_eq!(*keys.lm, *b"\x76\xa1\x52\x93\x60\x96\xd7\x83");
    assert_eq!(*keys.nt, *b"\x41\xc0\x0c\x58\x4b\xd2\xd9\x1c\x40\x17\xa2\xa1\x2f\xa5\x9f\x3f");
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| ask(a, 1, b"other"));
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    p.send_request(3, PacketCode::ACCESS_REQUEST, |a| ask(a, 0, CLEAR));
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    let c = p.server.counters();
    assert_eq!((c.accepted_ms_chap, c.rejected_wrong_password, c.bad_password), (1, 1, 1));
}

#[test]
fn the_host_compares_argon2_hashes() {
    let hash = argon2_hash(CLEAR, &[3; 16]);
    let mut p =
        ClientServerPair::new(server_config(b"ann", user_with_password(StoredPassword::Argon2(hash.into()))));
    for (token, password, code) in
        [(1, CLEAR, PacketCode::ACCESS_ACCEPT), (2, b"wrong", PacketCode::ACCESS_REJECT)]
    {
        p.send_pap_request(token, b"ann", password);
        assert_eq!(p.next_answer(), None);
        let job = std::iter::from_fn(|| p.server.poll_job()).find_map(|job| match job.job {
            AaaServerJob::Verify { owner, name, hash, password } => {
                assert_eq!((owner, &name[..]), (LoginOwner::Radius(0), &b"ann"[..]));
                Some((job.token, hash, password))
            }
            _ => None,
        });
        let (asked, hash, password) = job.unwrap();
        let right = argon2_verify(&hash, &password);
        p.server.handle_command(NEVER, AaaServerCommand::Verified { token: asked, right }).unwrap();
        p.deliver_all(NEVER);
        assert_eq!(p.next_answer().unwrap().1, code);
        let again = p.server.handle_command(NEVER, AaaServerCommand::Verified { token: asked, right });
        assert_eq!(again, Err(CommandError::UnknownToken));
    }
}

#[test]
fn an_nt_hash_is_enough_for_the_password_itself() {
    let mut p = ClientServerPair::new(server_config(
        b"ann",
        user_with_password(StoredPassword::NtHash(nt_hash(CLEAR).into())),
    ));
    p.send_pap_request(1, b"ann", CLEAR);
    p.send_pap_request(2, b"ann", b"wrong");
    assert_eq!(
        (p.next_answer().unwrap().1, p.next_answer().unwrap().1),
        (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_REJECT)
    );
}

fn push_mac_bypass(a: &mut AttributeList, name: &str, station: &str) {
    const CALL_CHECK: u32 = 10;
    a.push_text(kind::USER_NAME, name).unwrap().push_text(kind::CALLING_STATION_ID, station).unwrap();
    a.push_u32(kind::SERVICE_TYPE, CALL_CHECK);
}

#[test]
fn an_address_is_let_in_where_the_server_and_the_user_say_so() {
    let mut config = server_config(b"001122aabbcc", User::default());
    config.mab = true;
    let mut p = ClientServerPair::new(config.clone());
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "00-11-22-AA-BB-CC", "00:11:22:aa:bb:cc")
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT);
    // Some switches send the address as password too.
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "001122aabbcc", "00-11-22-AA-BB-CC");
        a.push_user_password(b"001122aabbcc").unwrap();
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_ACCEPT);
    // Another address than in Calling-Station-Id.
    p.send_request(3, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "001122aabbcc", "00-11-22-AA-BB-CD")
    });
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    assert_eq!((p.server.counters().accepted_mab, p.server.counters().no_proof), (2, 1));
    config.mab = false;
    let mut p = ClientServerPair::new(config.clone());
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| push_mac_bypass(a, "001122aabbcc", "001122aabbcc"));
    assert_eq!(p.next_answer().unwrap().1, PacketCode::ACCESS_REJECT);
    // A user with a password needs it.
    let mut config = server_config(b"001122aabbcc", User::with_password(b"x"));
    config.mab = true;
    let mut p = ClientServerPair::new(config);
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| push_mac_bypass(a, "001122aabbcc", "001122aabbcc"));
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().rejected_method_forbidden),
        (PacketCode::ACCESS_REJECT, 1)
    );
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "001122aabbcc", "001122aabbcc");
        a.push_user_password(b"x").unwrap();
    });
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().accepted_pap),
        (PacketCode::ACCESS_ACCEPT, 1)
    );
}

/// An attack: a device whose user has a password got in by its address, into its group's VLAN, although its own
/// check failed.
#[test]
fn failing_checks_let_nobody_in_by_any_method() {
    let group = GroupRows {
        name: "printers".into(),
        check: Vec::new(),
        reply: vec![attribute_row("Tunnel-Private-Group-Id", RowOperator::Set, "30")],
    };
    let rows = |password: Option<&str>| UserRows {
        check: password
            .map(|p| attribute_row("Cleartext-Password", RowOperator::Replace, p))
            .into_iter()
            .chain([attribute_row("NAS-Port-Type", RowOperator::Equal, "Ethernet")])
            .collect(),
        reply: Vec::new(),
        groups: vec![group.clone()],
    };
    for password in [Some("x"), None] {
        let user = User::compile(&rows(password), &RadiusDictionary::standard()).unwrap();
        let mut config = server_config(b"001122aabbcc", user);
        config.mab = true;
        let mut p = ClientServerPair::new(config);
        for port_type in [19, 15] {
            p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
                push_mac_bypass(a, "001122aabbcc", "001122aabbcc");
                a.push_u32(kind::NAS_PORT_TYPE, port_type);
            });
            p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
                a.push_text(kind::USER_NAME, "001122aabbcc").unwrap().push_user_password(b"x").unwrap();
                a.push_u32(kind::NAS_PORT_TYPE, port_type);
            });
            let answers = [p.next_answer().unwrap().1, p.next_answer().unwrap().1];
            let (bypass, pap) = match (port_type, password) {
                (15, Some(_)) => (PacketCode::ACCESS_REJECT, PacketCode::ACCESS_ACCEPT),
                (15, None) => (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_REJECT),
                _ => (PacketCode::ACCESS_REJECT, PacketCode::ACCESS_REJECT),
            };
            assert_eq!(answers, [bypass, pap], "{password:?} at a port of type {port_type}");
        }
        assert_eq!(p.server.counters().rejected_checks, 2);
    }
}

fn attribute_row(attribute: &str, op: RowOperator, value: &str) -> AttributeRow {
    AttributeRow { attribute: attribute.into(), op, value: value.into() }
}

#[test]
fn rows_decide_who_comes_in_and_into_which_vlan() {
    let rows = UserRows {
        check: vec![
            attribute_row("Cleartext-Password", RowOperator::Replace, "x"),
            attribute_row("NAS-Port-Type", RowOperator::Equal, "Ethernet"),
        ],
        reply: vec![
            attribute_row("Tunnel-Type", RowOperator::Set, "VLAN"),
            attribute_row("Tunnel-Medium-Type", RowOperator::Set, "IEEE-802"),
            attribute_row("Tunnel-Private-Group-Id", RowOperator::Set, "42"),
        ],
        groups: Vec::new(),
    };
    let mut p = ClientServerPair::new(server_config(
        b"ann",
        User::compile(&rows, &RadiusDictionary::standard()).unwrap(),
    ));
    for (token, port_type, code) in [(1, 15, PacketCode::ACCESS_ACCEPT), (2, 19, PacketCode::ACCESS_REJECT)] {
        p.send_request(token, PacketCode::ACCESS_REQUEST, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_user_password(b"x").unwrap();
            a.push_u32(kind::NAS_PORT_TYPE, port_type);
        });
        let reply = p.next_reply().unwrap();
        assert_eq!(reply.code, code);
        let vlan = reply.attributes.get_tagged(kind::TUNNEL_PRIVATE_GROUP_ID).map(|t| t.value);
        assert_eq!(vlan, (code == PacketCode::ACCESS_ACCEPT).then_some(&b"42"[..]));
    }
    assert_eq!(p.server.counters().rejected_checks, 1);
}

#[test]
fn a_locked_or_expired_user_stays_out() {
    let mut user = User::with_password(b"x");
    user.rejected = true;
    let mut p = ClientServerPair::new(server_config(b"ann", user));
    p.send_pap_request(1, b"ann", b"x");
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().rejected_locked),
        (PacketCode::ACCESS_REJECT, 1)
    );
    let mut user = User::with_password(b"x");
    user.expires = Some(EPOCH);
    let mut p = ClientServerPair::new(server_config(b"ann", user));
    p.send_pap_request(1, b"ann", b"x");
    assert_eq!(
        (p.next_answer().unwrap().1, p.server.counters().rejected_expired),
        (PacketCode::ACCESS_REJECT, 1)
    );
}

#[test]
fn a_user_that_was_found_is_known_for_a_while() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", b"x");
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { owner, name }, .. }) =
        p.server.poll_job()
    else {
        panic!("no look-up")
    };
    assert_eq!(
        (owner, &name[..]),
        (LoginOwner::Radius(0), &b"ann"[..]),
        "a host can give each client its share"
    );
    let user = UserLookupResult::User(Arc::new(User::with_password(b"x")));
    p.server.handle_command(NEVER, AaaServerCommand::Found { token, user }).unwrap();
    p.deliver_all(NEVER);
    p.send_pap_request(2, b"ann", b"x");
    assert_eq!(
        (p.next_answer().unwrap().1, p.next_answer().unwrap().1),
        (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_ACCEPT)
    );
    let c = p.server.counters();
    assert_eq!((c.lookups, c.lookups_saved, p.server.cached_users()), (1, 1, 1));
    p.server.handle_command(NEVER, AaaServerCommand::EvictUsers { name: None }).unwrap();
    p.send_pap_request(3, b"ann", b"x");
    assert_eq!((p.next_answer(), p.server.counters().lookups), (None, 2));
}

#[test]
fn a_cached_device_is_known_under_any_spelling_of_its_address() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    (config.users, config.mab) = (UserSource::Host(UserCacheConfig::default()), true);
    config.methods = AuthMethod::ALL.into();
    let mut p = ClientServerPair::new(config);
    p.send_request(1, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "00-11-22-AA-BB-CC", "00:11:22:aa:bb:cc")
    });
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { name, .. }, .. }) =
        p.server.poll_job()
    else {
        panic!("no look-up")
    };
    assert_eq!(&name[..], b"001122aabbcc");
    p.server
        .handle_command(
            NEVER,
            AaaServerCommand::Found { token, user: UserLookupResult::User(Arc::default()) },
        )
        .unwrap();
    p.deliver_all(NEVER);
    p.send_request(2, PacketCode::ACCESS_REQUEST, |a| {
        push_mac_bypass(a, "0011.22aa.bbcc", "00:11:22:aa:bb:cc")
    });
    assert_eq!(
        (p.next_answer().unwrap().1, p.next_answer().unwrap().1),
        (PacketCode::ACCESS_ACCEPT, PacketCode::ACCESS_ACCEPT)
    );
    assert_eq!((p.server.counters().lookups, p.server.counters().lookups_saved), (1, 1));
}

#[test]
fn a_request_whose_login_is_pushed_out_stays_without_an_answer() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    (config.users, config.max_half_open) = (UserSource::Host(UserCacheConfig::default()), 1);
    let mut p = ClientServerPair::new(config);
    let look_up = |p: &mut ClientServerPair, token, name| {
        p.send_pap_request(token, name, b"x");
        let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { .. }, .. }) =
            p.server.poll_job()
        else {
            panic!("no look-up")
        };
        token
    };
    let jobs = [look_up(&mut p, 1, b"ann"), look_up(&mut p, 2, b"bob")];
    // RADIUS has no other way to say that there is no verdict.
    assert_eq!((p.server.counters().evicted, p.server.radius_counters().unwrap().discarded), (1, 1));
    let found = jobs.map(|token| {
        let user = UserLookupResult::User(Arc::new(User::with_password(b"x")));
        p.server.handle_command(NEVER, AaaServerCommand::Found { token, user }).is_ok()
    });
    p.deliver_all(NEVER);
    assert_eq!(found, [false, true]);
    assert_eq!(
        (p.next_answer().map(|(token, code, _)| (token, code)), p.next_answer()),
        (Some((2, PacketCode::ACCESS_ACCEPT)), None)
    );
}

#[test]
fn a_store_that_is_away_means_silence() {
    let mut config = aaa_config(test_users(Seed::new(1), 0));
    config.users = UserSource::Host(UserCacheConfig::default());
    let mut p = ClientServerPair::new(config);
    p.send_pap_request(1, b"ann", b"x");
    let Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { .. }, .. }) = p.server.poll_job()
    else {
        panic!("no look-up")
    };
    p.server
        .handle_command(NEVER, AaaServerCommand::Found { token, user: UserLookupResult::Unavailable })
        .unwrap();
    p.deliver_all(NEVER);
    assert_eq!((p.next_answer(), p.server.counters().unavailable, p.server.half_open()), (None, 1, 0));
}

#[test]
fn a_trace_tells_each_decision_and_no_password() {
    let mut p = ClientServerPair::new(server_config(b"ann", User::with_password(b"open sesame")));
    p.server
        .handle_command(
            NEVER,
            AaaServerCommand::Trace { slot: 0, filter: Some(LoginTraceFilter::User(b"ann".to_vec())) },
        )
        .unwrap();
    p.send_pap_request(1, b"bob", b"secret words");
    p.send_pap_request(2, b"ann", b"secret words");
    p.send_pap_request(3, b"ann", b"open sesame");
    let mut lines = Vec::new();
    let mut reasons = Vec::new();
    while let Some(event) = p.server.poll_event() {
        match event {
            AaaServerEvent::Trace(line) => lines.push(line.text),
            AaaServerEvent::Rejected(login) => reasons.push(login.reason),
            _ => {}
        }
    }
    let text = lines.join("\n");
    for wanted in [
        "User-Name = \"ann\"",
        "User-Password = (not shown)",
        "rejected, wrong-password: wrong password",
        "accepted by pap",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(!text.contains("secret") && !text.contains("sesame") && !text.contains("bob"), "{text}");
    assert_eq!(reasons, [Some(RejectCause::UnknownUser), Some(RejectCause::WrongPassword)]);
    p.server.handle_command(NEVER, AaaServerCommand::Trace { slot: 0, filter: None }).unwrap();
    p.send_pap_request(4, b"ann", b"open sesame");
    assert!(!matches!(p.server.poll_event(), Some(AaaServerEvent::Trace(_))));
}
