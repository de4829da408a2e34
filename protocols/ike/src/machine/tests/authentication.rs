//! Who both sides are: by shared keys and EAP; certificates are in `certificates`, since they need a library.

use super::super::authenticate::is_safe_alone;
use super::*;
use usher_core::CommandError;

fn eap(initiator: LocalAuth, ask_identity: bool) -> (Connection, Connection) {
    let ours = Connection { local_auth: initiator, ..connection(true) };
    let theirs = Connection { remote_auth: RemoteAuth::Eap { ask_identity }, ..connection(false) };
    (ours, theirs)
}

#[test]
fn a_wrong_key_of_either_side_is_found_out() {
    let wrong = Key::from(&b"another"[..]);
    let mut ours = connection(true);
    ours.local_auth = LocalAuth::Psk(wrong.clone());
    let mut world = World::new(ours, connection(false));
    world.initiate();
    world.net.run(secs(1));
    assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed]);
    assert_eq!(world.ended(world.initiator), [EndReason::Refused]);
    assert_eq!(world.counters(world.responder).authentication_failed, 1);
    world.forgotten();
    let mut theirs = connection(false);
    theirs.local_auth = LocalAuth::Psk(wrong);
    let mut world = World::new(connection(true), theirs);
    world.initiate();
    world.net.run(secs(1));
    assert_eq!(world.ended(world.initiator), [EndReason::AuthenticationFailed]);
    // The responder has let the initiator in, and is told that it did not convince.
    assert_eq!(world.ended(world.responder), [EndReason::Refused]);
    world.forgotten();
}

#[test]
fn an_initiator_that_does_not_believe_the_responder_says_so_amid_eap() {
    let (ours, mut theirs) = eap(peer_auth(Method::MsChapV2, PASSWORD), false);
    theirs.local_auth = LocalAuth::Psk(Key::from(&b"another"[..]));
    let mut world = World::new(ours, theirs);
    world.initiate();
    world.net.run(secs(1));
    assert_eq!(world.ended(world.initiator), [EndReason::AuthenticationFailed]);
    assert_eq!(world.ended(world.responder), [EndReason::Refused], "and does not wait for what never comes");
    assert_eq!(world.counters(world.responder).syntax, 0);
    world.forgotten();
}

#[test]
fn an_identity_that_nobody_serves_is_refused() {
    for (local, remote) in [("other.test", "gw.test"), ("ini.test", "other.test")] {
        let mut ours = connection(true);
        ours.local = Identification::fqdn(local);
        ours.remote = Some(Identification::fqdn(remote));
        let mut world = World::new(ours, connection(false));
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed], "{local} {remote}");
        assert_eq!(world.ended(world.initiator), [EndReason::Refused]);
    }
}

#[test]
fn capitals_in_domains_make_no_other_identity() {
    let mut ours = connection(true);
    ours.local = Identification::fqdn("INI.test");
    ours.remote = Some(Identification::fqdn("Gw.TEST"));
    let mut world = World::new(ours, connection(false));
    world.connect();
    assert!(world.ended(world.responder).is_empty());
}

/// Windows says its address for who it is: no AAA server knows anybody by its octets.
#[test]
fn an_initiator_that_says_no_name_is_asked_for_one_by_eap() {
    let subject = Identification { kind: crate::code::IdType::ID_DER_ASN1_DN, data: vec![0x30, 0] };
    for local in [Identification::address("192.0.2.7".parse().unwrap()), subject] {
        let (mut ours, mut theirs) = eap(peer_auth(Method::MsChapV2, PASSWORD), false);
        ours.local = local;
        theirs.remote = None;
        let mut world = World::new(ours, theirs);
        world.connect();
        let asked = world.events(world.responder).into_iter().find_map(|event| match event {
            Event::Eap { packet, .. } => Some(packet),
            _ => None,
        });
        let name = asked.as_deref().and_then(|packet| packet.get(5..)).unwrap_or_default();
        assert_eq!(name, b"ann");
    }
}

#[test]
fn a_responder_that_is_another_than_was_wanted_is_not_believed() {
    let mut ours = connection(true);
    ours.remote = None;
    let mut world = World::new(ours, connection(false));
    world.connect();
    let remote = world.events(world.initiator).into_iter().find_map(|event| match event {
        Event::Established { remote, .. } => Some(remote),
        _ => None,
    });
    assert_eq!(remote, Some(Identification::fqdn("gw.test")), "anybody was");
}

#[test]
fn eap_methods_with_and_without_keys_prove_who_the_initiator_is() {
    for (method, messages) in [(Method::Md5, 10), (Method::MsChapV2, 12)] {
        for ask in [false, true] {
            let (ours, theirs) = eap(peer_auth(method, PASSWORD), ask);
            // Whom EAP authenticates goes by another name than by IKE where it is asked.
            let theirs = Connection { remote: None, ..theirs };
            let mut world = World::with(config(), ours, theirs, method);
            world.connect();
            world.fit(1);
            // IKE_SA_INIT, the identity where it is asked for, the method's rounds, and the proofs of its key.
            assert_eq!(world.net.sent().len(), messages - if ask { 0 } else { 2 }, "{method:?} {ask}");
            let identities: Vec<_> = world
                .events(world.responder)
                .into_iter()
                .filter_map(|event| match event {
                    Event::Eap { packet, identity, connection, .. } => {
                        assert_eq!(
                            (identity.to_string().as_str(), connection.as_str()),
                            ("ini.test", "site")
                        );
                        Some(packet)
                    }
                    _ => None,
                })
                .collect();
            let name = if ask { "ann" } else { "ini.test" };
            assert_eq!(identities[0][5..], *name.as_bytes(), "the first packet says who it is");
            // It is whom EAP has authenticated, whatever it said of itself by IKE.
            let remote = world.events(world.responder).into_iter().find_map(|event| match event {
                Event::Established { remote, .. } => Some(remote.to_string()),
                _ => None,
            });
            assert_eq!(remote.as_deref(), Some(name));
        }
    }
}

#[test]
fn a_wrong_password_is_a_failure_of_eap() {
    for method in [Method::Md5, Method::MsChapV2] {
        let (ours, theirs) = eap(peer_auth(method, b"wrong"), false);
        let mut world = World::with(config(), ours, theirs, method);
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed], "{method:?}");
        assert_eq!(world.ended(world.initiator), [EndReason::Refused]);
        world.forgotten();
    }
}

#[test]
fn eap_alone_proves_both_where_its_method_is_safe_for_that() {
    let only = |method| {
        let (mut ours, mut theirs) = eap(peer_auth(method, PASSWORD), false);
        ours.remote_auth = RemoteAuth::EapOnly;
        theirs.local_auth = LocalAuth::EapOnly;
        World::with(config(), ours, theirs, method)
    };
    let mut world = only(Method::Tls);
    world.connect();
    world.fit(1);
    // EAP-MD5 has no key, and of EAP-MSCHAPv2 a password can be guessed: neither side goes on (RFC 5998 §4).
    for method in [Method::Md5, Method::MsChapV2] {
        let mut world = only(method);
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed], "{method:?}");
        assert_eq!(world.ended(world.initiator), [EndReason::Refused]);
    }
    // Nor does an initiator, whatever its responder allows.
    let request = |kind| [1, 7, 0, 5, kind];
    assert!(!is_safe_alone(&request(4)) && !is_safe_alone(&request(26)) && is_safe_alone(&request(13)));
    assert!(is_safe_alone(&request(1)) && !is_safe_alone(&[]), "it may be asked who it is");
    // One that does not offer it finds nobody.
    let (mut ours, mut theirs) = eap(peer_auth(Method::Tls, PASSWORD), false);
    theirs.local_auth = LocalAuth::EapOnly;
    ours.remote_auth = RemoteAuth::Psk(Key::from(&b"secret"[..]));
    let mut world = World::with(config(), ours, theirs, Method::Tls);
    world.initiate();
    world.net.run(secs(1));
    assert_eq!(world.ended(world.responder), [EndReason::AuthenticationFailed]);
}

#[test]
fn eap_tls_beside_a_shared_key_of_the_responder_is_a_login() {
    let (ours, theirs) = eap(peer_auth(Method::Tls, PASSWORD), false);
    let mut world = World::with(config(), ours, theirs, Method::Tls);
    world.connect();
    world.fit(1);
}

#[test]
fn a_server_of_another_key_does_not_convince_after_eap() {
    let (ours, theirs) = eap(peer_auth(Method::MsChapV2, PASSWORD), false);
    let mut world = World::new(ours, theirs);
    let responder = world.responder;
    let mut eap = EapHost::default();
    world.net.on_event(responder, move |event| {
        let Event::Eap { sa, packet, .. } = event else { return None };
        let answer = match eap.answer(*sa, packet, Method::MsChapV2) {
            EapAnswer::Accept { packet, identity, .. } => {
                EapAnswer::Accept { packet, msk: Some(Key::from(&[9; 64][..])), identity }
            }
            other => other,
        };
        Some((millis(1), Command::Eap { sa: *sa, answer }))
    });
    world.initiate();
    world.net.run(secs(1));
    assert_eq!(world.ended(responder), [EndReason::AuthenticationFailed]);
}

/// RFC 7296 §2.16: what counts is whom EAP has authenticated. A connection for one user lets in nobody who only claims to be it.
#[test]
fn a_connection_for_one_user_takes_nobody_else_whom_eap_authenticates() {
    for (name, let_in) in [("ini.test", true), ("bob.test", false)] {
        let (ours, theirs) = eap(peer_auth(Method::MsChapV2, PASSWORD), false);
        assert!(theirs.remote.is_some());
        let mut world = World::new(ours, theirs);
        let responder = world.responder;
        let mut eap = EapHost::default();
        world.net.on_event(responder, move |event| {
            let Event::Eap { sa, packet, .. } = event else { return None };
            let answer = match eap.answer(*sa, packet, Method::MsChapV2) {
                EapAnswer::Accept { packet, msk, .. } => {
                    EapAnswer::Accept { packet, msk, identity: Identification::fqdn(name) }
                }
                other => other,
            };
            Some((millis(1), Command::Eap { sa: *sa, answer }))
        });
        world.initiate();
        world.net.run(secs(1));
        let ended = world.ended(responder);
        assert_eq!(ended.is_empty(), let_in, "{name}: {ended:?}");
        assert!(let_in || ended == [EndReason::AuthenticationFailed]);
    }
}

/// What a connection gives is for those who come from where it says; elsewhere the next one holds.
#[test]
fn a_connection_takes_those_alone_who_come_from_its_networks() {
    for (network_of, taken) in [("192.0.2.0", true), ("203.0.113.0", false)] {
        let theirs = Connection { from: Some(network(network_of, 24)), ..connection(false) };
        let mut world = World::new(connection(true), theirs);
        world.initiate();
        world.net.run(secs(1));
        let ended = world.ended(world.responder);
        let none: &[EndReason] = &[];
        assert_eq!(ended, if taken { none } else { &[EndReason::AuthenticationFailed] }, "{network_of}");
    }
}

#[test]
fn an_aaa_server_that_is_silent_ends_the_login() {
    let (ours, theirs) = eap(peer_auth(Method::MsChapV2, PASSWORD), false);
    let mut world = World::new(ours, theirs);
    let responder = world.responder;
    world.net.on_event(responder, |event| {
        let Event::Eap { sa, .. } = event else { return None };
        Some((secs(9), Command::Eap { sa: *sa, answer: EapAnswer::Unanswered }))
    });
    world.initiate();
    world.net.run(secs(8));
    // Meanwhile the request came again and waits.
    assert!(world.counters(responder).duplicate_pending > 0);
    world.net.run(secs(5));
    assert_eq!(
        (world.ended(responder), world.ended(world.initiator)),
        (vec![EndReason::Helper], vec![EndReason::Refused])
    );
}

#[test]
fn commands_that_fit_nothing_are_refused() {
    let mut world = World::psk();
    let (ours, _) = world.connect();
    let initiator = world.initiator;
    let mut refused = |command| world.net.command(initiator, command).unwrap_err();
    assert_eq!(refused(Command::Probe(SaId(99))), CommandError::UnknownToken);
    let unanswered = EapAnswer::Unanswered;
    assert!(matches!(refused(Command::Eap { sa: ours, answer: unanswered }), CommandError::WrongState(_)));
    assert!(matches!(
        refused(Command::Address { sa: ours, attributes: vec![] }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(Command::Signed { token: ours.0, signature: None, ocsp: None }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(Command::Verified {
            token: ours.0,
            until: Some(usher_core::bench::EPOCH),
            certificates: Vec::new()
        }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(Command::CreateChild { sa: ours, name: "no".into() }),
        CommandError::Invalid(_)
    ));
    assert!(matches!(refused(Command::RekeyChild { sa: ours, spi: 1 }), CommandError::Invalid(_)));
    assert!(matches!(refused(Command::DeleteChild { sa: ours, spi: 1 }), CommandError::Invalid(_)));
    let eap = Connection { remote_auth: RemoteAuth::Eap { ask_identity: false }, ..connection(true) };
    let (local, remote) = (at(INITIATOR, 500), at(RESPONDER, 500));
    let begin = Command::Initiate { token: 0, connection: Arc::new(eap), local, remote };
    assert!(matches!(refused(begin), CommandError::Invalid(_)));
}
