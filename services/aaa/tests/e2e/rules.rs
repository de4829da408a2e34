//! Rules of the RADIUS RFCs for an authentication server's replies.

use crate::build::aaa_config;
use crate::pair::ClientServerPair;
use std::sync::Arc;
use usher_aaa::{AaaServerConfig, AuthMethod, User, UserDirectory};
use usher_core::Seed;
use usher_crypto::digest::md5;
use usher_radius::attribute::{kind, vendor};
use usher_radius::client::RadiusReply;
use usher_radius::{AttributeList, PacketCode};

const PASSWORD: &[u8] = b"open sesame";

/// A server with this user and all methods.
fn server_config(name: &[u8], user: User) -> AaaServerConfig {
    let mut all = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    all.insert(name, user);
    let mut config = aaa_config(Arc::new(all));
    config.methods = AuthMethod::ALL.into();
    config
}

/// A user with many reply items.
fn verbose_user() -> User {
    let mut user = User::with_password(PASSWORD);
    user.reply.push_text(kind::REPLY_MESSAGE, "hello").unwrap().push_u32(kind::SESSION_TIMEOUT, 600);
    user
}

fn send_request(p: &mut ClientServerPair, fill: impl FnOnce(&mut AttributeList)) -> RadiusReply {
    p.send_request(1, PacketCode::ACCESS_REQUEST, fill);
    p.next_reply().expect("every request of a client has an answer")
}

fn attribute_kinds(reply: &RadiusReply) -> Vec<u8> {
    reply.attributes.iter().map(|a| a.kind).collect()
}

fn eap_packet(reply: &RadiusReply) -> Vec<u8> {
    let mut packet = Vec::new();
    reply.attributes.read_eap_packet(&mut packet);
    packet
}

fn identity_response(name: &[u8]) -> Vec<u8> {
    [&[2, 1, 0, 5 + name.len() as u8, 1][..], name].concat()
}

/// Logs in by EAP-MD5 with this password. Returns the last reply.
fn by_md5(p: &mut ClientServerPair, name: &[u8], password: &[u8]) -> RadiusReply {
    let first = send_request(p, |a| {
        a.push_bytes(kind::USER_NAME, name).unwrap().push_eap(&identity_response(name));
    });
    assert_eq!(first.code, PacketCode::ACCESS_CHALLENGE);
    // RFC 2865 §4.4, RFC 3579 §2.6.3, RFC 5080 §2.1.1: a request of EAP, the State, and nothing else.
    assert_eq!(attribute_kinds(&first), [kind::MESSAGE_AUTHENTICATOR, kind::EAP_MESSAGE, kind::STATE]);
    let challenge = eap_packet(&first);
    assert_eq!((challenge[0], challenge[4]), (1, 4));
    let digest = md5(&[&[challenge[1]], password, &challenge[6..22]]);
    let response = [&[2, challenge[1], 0, 22, 4, 16][..], &digest].concat();
    let state = first.attributes.get(kind::STATE).unwrap().to_vec();
    send_request(p, |a| {
        a.push_bytes(kind::USER_NAME, name).unwrap().push_eap(&response);
        a.push_bytes(kind::STATE, &state).unwrap();
    })
}

/// RFC 2869 §2.3.1, RFC 3579 §2.6.3, §2.6.5 and §3.
#[test]
fn an_accept_of_eap_names_its_user_and_displays_nothing() {
    let mut config = server_config(b"ann", verbose_user());
    config.methods = vec![AuthMethod::EapMd5, AuthMethod::Pap];
    let mut p = ClientServerPair::new(config);
    let accept = by_md5(&mut p, b"ann", PASSWORD);
    assert_eq!(accept.code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(accept.attributes.get_all(kind::USER_NAME).collect::<Vec<_>>(), [b"ann"]);
    assert_eq!(accept.attributes.get_u32(kind::SESSION_TIMEOUT), Some(600));
    assert_eq!(accept.attributes.get(kind::REPLY_MESSAGE), None);
    assert_eq!(accept.attributes.get_all(kind::EAP_MESSAGE).count(), 1);
    assert_eq!(eap_packet(&accept)[..1], [3], "a Success");
    // Without EAP, Reply-Message is allowed.
    p.send_pap_request(1, b"ann", PASSWORD);
    let accept = p.next_reply().unwrap();
    assert_eq!(accept.attributes.get_text(kind::REPLY_MESSAGE), Some("hello"));
    assert_eq!(accept.attributes.get(kind::USER_NAME), None);
}

/// RFC 2865 §2 and §4.3, RFC 3579 §2.6.3, RFC 5080 §2.6.1: a reject has no attributes of a service.
#[test]
fn a_reject_says_no_and_nothing_else() {
    let mut config = server_config(b"ann", verbose_user());
    config.methods = vec![AuthMethod::EapMd5, AuthMethod::Pap];
    let mut p = ClientServerPair::new(config);
    let reject = by_md5(&mut p, b"ann", b"wrong");
    assert_eq!(
        (reject.code, attribute_kinds(&reject)),
        (PacketCode::ACCESS_REJECT, vec![80, kind::EAP_MESSAGE])
    );
    assert_eq!(eap_packet(&reject)[..1], [4], "a Failure");
    p.send_pap_request(1, b"ann", b"wrong");
    let reject = p.next_reply().unwrap();
    assert_eq!((reject.code, attribute_kinds(&reject)), (PacketCode::ACCESS_REJECT, vec![80]));
}

/// RFC 3579 §2.1, §2.2 and §2.6.2, RFC 2869 §5.13.
#[test]
fn eap_that_does_not_begin_with_an_identity_is_answered() {
    let config = || server_config(b"ann", verbose_user());
    let begin = |packet: &[u8]| {
        let mut p = ClientServerPair::new(config());
        let reply = send_request(&mut p, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap().push_eap(packet);
        });
        let counted = p.server.counters().bad_eap;
        (reply, counted, p.server.half_open())
    };
    for (what, packet, answer) in [
        (
            "a request: roles are not reversed",
            &[1, 7, 0, 8, 1, b'a', b'n', b'n'][..],
            &[2, 7, 0, 6, 3, 0][..],
        ),
        ("a success", &[3, 7, 0, 4], &[4, 7, 0, 4]),
        ("a failure", &[4, 7, 0, 4], &[4, 7, 0, 4]),
        ("a code of nobody", &[9, 7, 0, 8, 1, b'a', b'n', b'n'], &[4, 7, 0, 4]),
        ("a response without a type", &[2, 7, 0, 4], &[4, 7, 0, 4]),
        ("a length beyond what came", &[2, 7, 0, 9, 1, b'a', b'n', b'n'], &[4, 7, 0, 4]),
        ("less than a header", &[2, 7, 0], &[4, 7, 0, 4]),
        ("one octet", &[2], &[]),
    ] {
        let (reply, bad, open) = begin(packet);
        assert_eq!((reply.code, &eap_packet(&reply)[..]), (PacketCode::ACCESS_REJECT, answer), "{what}");
        assert_eq!((bad, open), (1, 0), "{what}");
    }
    // The NAS has sent a request itself: the peer's response leads to an identity request with another identifier.
    for response in [&[2, 7, 0, 6, 3, 13][..], &[2, 7, 0, 6, 4, 0], &[2, 7, 0, 6, 200, 0]] {
        let (reply, bad, open) = begin(response);
        assert_eq!(
            (reply.code, &eap_packet(&reply)[..]),
            (PacketCode::ACCESS_CHALLENGE, &[1, 8, 0, 5, 1][..])
        );
        assert!(reply.attributes.get(kind::STATE).is_some());
        assert_eq!((bad, open), (0, 1));
    }
}

/// RFC 5080 §2.9: the inner identity names a peer without an outer one, whatever User-Name its NAS makes up.
#[test]
fn a_peer_without_a_name_has_none_to_contradict() {
    for name in [&b""[..], b"00-11-22-33-44-55"] {
        let mut p = ClientServerPair::new(server_config(b"ann", verbose_user()));
        let reply = send_request(&mut p, |a| {
            if !name.is_empty() {
                a.push_bytes(kind::USER_NAME, name).unwrap();
            }
            a.push_eap(&identity_response(b""));
        });
        let c = p.server.counters();
        assert_eq!((c.rejected_name_mismatch, c.challenges), (0, 1), "served as any name that nobody has");
        assert_eq!(reply.code, PacketCode::ACCESS_CHALLENGE);
    }
}

/// RFC 2865 §4.1 and §5, RFC 2869 §5.19, RFC 3579 §3.3: a request has one proof, of a valid length.
#[test]
fn a_proof_of_a_wrong_length_and_two_proofs_are_rejected() {
    type FillAttributes = fn(&mut AttributeList);
    let cases: [(&str, FillAttributes); 8] = [
        ("a User-Password of 15 octets", |a| {
            a.push_bytes(kind::USER_PASSWORD, &[1; 15]).unwrap();
        }),
        ("a User-Password of 144 octets", |a| {
            a.push_bytes(kind::USER_PASSWORD, &[1; 144]).unwrap();
        }),
        ("a CHAP-Password of 16 octets", |a| {
            a.push_bytes(kind::CHAP_PASSWORD, &[1; 16]).unwrap();
        }),
        ("an empty CHAP-Password", |a| {
            a.push_bytes(kind::CHAP_PASSWORD, &[]).unwrap();
        }),
        ("an MS-CHAP2-Response of 49 octets", |a| {
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, &[1; 16]).unwrap();
            a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP2_RESPONSE, &[1; 49]).unwrap();
        }),
        ("User-Password and CHAP-Password", |a| {
            a.push_user_password(PASSWORD).unwrap().push_bytes(kind::CHAP_PASSWORD, &[1; 17]).unwrap();
        }),
        ("User-Password and EAP-Message", |a| {
            a.push_user_password(PASSWORD).unwrap().push_eap(&identity_response(b"ann"));
        }),
        ("CHAP-Password and EAP-Message", |a| {
            a.push_bytes(kind::CHAP_PASSWORD, &[1; 17]).unwrap().push_eap(&identity_response(b"ann"));
        }),
    ];
    for (what, fill) in cases {
        let mut p = ClientServerPair::new(server_config(b"ann", verbose_user()));
        let reply = send_request(&mut p, |a| {
            a.push_text(kind::USER_NAME, "ann").unwrap();
            fill(a);
        });
        assert_eq!(reply.code, PacketCode::ACCESS_REJECT, "{what}");
        let c = p.server.counters();
        assert_eq!(c.bad_password + c.bad_eap, 1, "{what}");
    }
}

/// RFC 5080 §2.1.1, RFC 2869 §2.2: an authorization without a login is rejected, and ARAP too.
#[test]
fn what_is_not_served_is_rejected() {
    const AUTHORIZE_ONLY: u32 = 17;
    const ARAP_PASSWORD: u8 = 70;
    let mut config = server_config(b"ann", verbose_user());
    config.mab = true;
    let mut p = ClientServerPair::new(config);
    let reply = send_request(&mut p, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_u32(kind::SERVICE_TYPE, AUTHORIZE_ONLY);
    });
    assert_eq!((reply.code, attribute_kinds(&reply)), (PacketCode::ACCESS_REJECT, vec![80]));
    let reply = send_request(&mut p, |a| {
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(ARAP_PASSWORD, &[1; 16]).unwrap();
    });
    assert_eq!((reply.code, attribute_kinds(&reply)), (PacketCode::ACCESS_REJECT, vec![80]));
    assert_eq!(p.server.counters().no_proof, 2);
}

/// RFC 5080 §2.1.1: the reply to an authorization check has no secret.
#[test]
fn a_device_that_proved_nothing_is_told_no_secret() {
    const CALL_CHECK: u32 = 10;
    let mut user = User::default();
    user.reply.push_tunnel_password(1, b"for the tunnel").unwrap();
    user.reply.push_tagged_bytes(kind::TUNNEL_PRIVATE_GROUP_ID, 1, b"42").unwrap();
    let mut config = server_config(b"001122aabbcc", user);
    config.mab = true;
    let mut p = ClientServerPair::new(config);
    let reply = send_request(&mut p, |a| {
        a.push_text(kind::USER_NAME, "001122aabbcc").unwrap();
        a.push_text(kind::CALLING_STATION_ID, "00-11-22-AA-BB-CC").unwrap();
        a.push_u32(kind::SERVICE_TYPE, CALL_CHECK);
    });
    assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
    assert_eq!(attribute_kinds(&reply), [80, kind::TUNNEL_PRIVATE_GROUP_ID]);
}

/// RFC 2865 §5 and §5.26: unknown attributes are ignored, and the order of kinds does not matter.
#[test]
fn unknown_attributes_and_any_order_are_taken() {
    let mut p = ClientServerPair::new(server_config(b"ann", verbose_user()));
    let reply = send_request(&mut p, |a| {
        a.push_bytes(200, b"?").unwrap().push_vendor(99_999, 7, b"?").unwrap();
        a.push_bytes(kind::VENDOR_SPECIFIC, b"??").unwrap();
        a.push_user_password(PASSWORD).unwrap().push_bytes(241, &[]).unwrap();
        a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::NAS_PORT, &[]).unwrap();
    });
    assert_eq!(reply.code, PacketCode::ACCESS_ACCEPT);
}

/// RFC 2865 §5: names and passwords may have octets of zero within them.
#[test]
fn octets_of_zero_are_octets() {
    let mut p = ClientServerPair::new(server_config(b"a\0n", User::with_password(b"open\0sesame")));
    p.send_pap_request(1, b"a\0n", b"open\0sesame");
    assert_eq!(p.next_reply().unwrap().code, PacketCode::ACCESS_ACCEPT);
    p.send_pap_request(2, b"a", b"open\0sesame");
    assert_eq!(p.next_reply().unwrap().code, PacketCode::ACCESS_REJECT);
    p.send_pap_request(3, b"a\0n", b"open");
    assert_eq!(p.next_reply().unwrap().code, PacketCode::ACCESS_REJECT);
}

/// RFC 2865 §5.2, §5.3: a password has up to 128 octets of any value.
#[test]
fn a_password_of_any_octets_is_proved_by_pap_and_chap() {
    let long = "x".repeat(128);
    for password in [
        "pa\"ss99",
        "back\\slash\\",
        "it's",
        " lead",
        "trail ",
        "Se\u{f1}al07\u{20ac}",
        "100%",
        "%{User-Name}",
        "$(id)",
        "0x616263",
        "tab\tin",
        "#hash",
        "{clear}x",
        &long[..127],
        &long,
    ] {
        let mut p = ClientServerPair::new(server_config(b"ann", User::with_password(password.as_bytes())));
        for (said, code) in [
            (password, PacketCode::ACCESS_ACCEPT),
            (&password[1..], PacketCode::ACCESS_REJECT),
            (password.trim_matches([' ', '\\', '"']), PacketCode::ACCESS_REJECT),
        ] {
            let is_same = said == password;
            let code = if is_same { PacketCode::ACCESS_ACCEPT } else { code };
            p.send_pap_request(1, b"ann", said.as_bytes());
            assert_eq!(p.next_reply().unwrap().code, code, "{said:?} by PAP");
            let challenge = [5; 16];
            let proof = [&[9][..], &md5(&[&[9], said.as_bytes(), &challenge])].concat();
            let reply = send_request(&mut p, |a| {
                a.push_text(kind::USER_NAME, "ann").unwrap().push_bytes(kind::CHAP_PASSWORD, &proof).unwrap();
                a.push_bytes(kind::CHAP_CHALLENGE, &challenge).unwrap();
            });
            assert_eq!(reply.code, code, "{said:?} by CHAP");
        }
    }
}
