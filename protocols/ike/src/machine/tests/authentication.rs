//! Authentication of both sides by shared keys and EAP. Certificates are in `certificates`, since they need a
//! library.

use super::super::authentication::is_safe_for_eap_only;
use super::*;
use usher_core::CommandError;

fn eap_connections(initiator: LocalAuth, ask_identity: bool) -> (IkeConnectionConfig, IkeConnectionConfig) {
    let ours = IkeConnectionConfig { local_auth: initiator, ..psk_connection(true) };
    let theirs = IkeConnectionConfig {
        remote_auth: RemoteAuth::Eap { request_identity: ask_identity },
        ..psk_connection(false)
    };
    (ours, theirs)
}

#[test]
fn a_wrong_key_of_either_side_is_found_out() {
    let wrong = SecretValue::from(&b"another"[..]);
    let mut ours = psk_connection(true);
    ours.local_auth = LocalAuth::Psk(wrong.clone());
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed]);
    assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
    assert_eq!(world.counters(world.responder).authentication_failed, 1);
    world.assert_all_removed();
    let mut theirs = psk_connection(false);
    theirs.local_auth = LocalAuth::Psk(wrong);
    let mut world = IkeTestNetwork::new(psk_connection(true), theirs);
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.initiator), [EndReason::AuthenticationFailed]);
    // The responder has accepted the initiator, which then rejects the responder.
    assert_eq!(world.end_reasons(world.responder), [EndReason::Refused]);
    world.assert_all_removed();
}

#[test]
fn an_initiator_reports_a_failed_responder_proof_during_eap() {
    let (ours, mut theirs) = eap_connections(peer_auth(TestEapMethod::MsChapV2, PASSWORD), false);
    theirs.local_auth = LocalAuth::Psk(SecretValue::from(&b"another"[..]));
    let mut world = IkeTestNetwork::new(ours, theirs);
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.initiator), [EndReason::AuthenticationFailed]);
    assert_eq!(
        world.end_reasons(world.responder),
        [EndReason::Refused],
        "and does not wait for what never comes"
    );
    assert_eq!(world.counters(world.responder).syntax, 0);
    world.assert_all_removed();
}

#[test]
fn an_identity_that_nobody_serves_is_refused() {
    for (local, remote) in [("other.test", "gw.test"), ("ini.test", "other.test")] {
        let mut ours = psk_connection(true);
        ours.local = Identification::from_fqdn(local);
        ours.remote = Some(Identification::from_fqdn(remote));
        let mut world = IkeTestNetwork::new(ours, psk_connection(false));
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed], "{local} {remote}");
        assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
    }
}

#[test]
fn capitals_in_domains_make_no_other_identity() {
    let mut ours = psk_connection(true);
    ours.local = Identification::from_fqdn("INI.test");
    ours.remote = Some(Identification::from_fqdn("Gw.TEST"));
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.connect();
    assert!(world.end_reasons(world.responder).is_empty());
}

/// Windows sends its address as its identity. An AAA server knows no user by those octets.
#[test]
fn an_initiator_that_says_no_name_is_asked_for_one_by_eap() {
    let subject = Identification { kind: crate::code::IdType::ID_DER_ASN1_DN, data: vec![0x30, 0] };
    for local in [Identification::from_address("192.0.2.7".parse().unwrap()), subject] {
        let (mut ours, mut theirs) = eap_connections(peer_auth(TestEapMethod::MsChapV2, PASSWORD), false);
        ours.local = local;
        theirs.remote = None;
        let mut world = IkeTestNetwork::new(ours, theirs);
        world.connect();
        let asked = world.events(world.responder).into_iter().find_map(|event| match event {
            IkeEvent::Eap { packet, .. } => Some(packet),
            _ => None,
        });
        let name = asked.as_deref().and_then(|packet| packet.get(5..)).unwrap_or_default();
        assert_eq!(name, b"ann");
    }
}

#[test]
fn a_responder_that_is_another_than_was_wanted_is_not_believed() {
    let mut ours = psk_connection(true);
    ours.remote = None;
    let mut world = IkeTestNetwork::new(ours, psk_connection(false));
    world.connect();
    let remote = world.events(world.initiator).into_iter().find_map(|event| match event {
        IkeEvent::Established { remote, .. } => Some(remote),
        _ => None,
    });
    assert_eq!(remote, Some(Identification::from_fqdn("gw.test")), "anybody was");
}

#[test]
fn eap_methods_with_and_without_keys_prove_who_the_initiator_is() {
    for (method, messages) in [(TestEapMethod::Md5, 10), (TestEapMethod::MsChapV2, 12)] {
        for ask in [false, true] {
            let (ours, theirs) = eap_connections(peer_auth(method, PASSWORD), ask);
            // The EAP identity differs from the IKE identity if the responder requests one.
            let theirs = IkeConnectionConfig { remote: None, ..theirs };
            let mut world = IkeTestNetwork::with_config(default_config(), ours, theirs, method);
            world.connect();
            world.assert_children_match(1);
            // IKE_SA_INIT, the EAP identity if requested, the method's rounds, and the proofs of its key.
            assert_eq!(
                world.net.sent_transmits().len(),
                messages - if ask { 0 } else { 2 },
                "{method:?} {ask}"
            );
            let identities: Vec<_> = world
                .events(world.responder)
                .into_iter()
                .filter_map(|event| match event {
                    IkeEvent::Eap { packet, identity, connection, .. } => {
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
            // The identity is the one that EAP has authenticated, not the claimed IKE identity.
            let remote = world.events(world.responder).into_iter().find_map(|event| match event {
                IkeEvent::Established { remote, .. } => Some(remote.to_string()),
                _ => None,
            });
            assert_eq!(remote.as_deref(), Some(name));
        }
    }
}

#[test]
fn a_wrong_password_is_a_failure_of_eap() {
    for method in [TestEapMethod::Md5, TestEapMethod::MsChapV2] {
        let (ours, theirs) = eap_connections(peer_auth(method, b"wrong"), false);
        let mut world = IkeTestNetwork::with_config(default_config(), ours, theirs, method);
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed], "{method:?}");
        assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
        world.assert_all_removed();
    }
}

#[test]
fn eap_alone_proves_both_where_its_method_is_safe_for_that() {
    let only = |method| {
        let (mut ours, mut theirs) = eap_connections(peer_auth(method, PASSWORD), false);
        ours.remote_auth = RemoteAuth::EapOnly;
        theirs.local_auth = LocalAuth::EapOnly;
        IkeTestNetwork::with_config(default_config(), ours, theirs, method)
    };
    let mut world = only(TestEapMethod::Tls);
    world.connect();
    world.assert_children_match(1);
    // EAP-MD5 has no key, and an EAP-MSCHAPv2 password can be guessed: neither side accepts them (RFC 5998 §4).
    for method in [TestEapMethod::Md5, TestEapMethod::MsChapV2] {
        let mut world = only(method);
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed], "{method:?}");
        assert_eq!(world.end_reasons(world.initiator), [EndReason::Refused]);
    }
    // The initiator rejects them too, whatever its responder allows.
    let request = |kind| [1, 7, 0, 5, kind];
    assert!(
        !is_safe_for_eap_only(&request(4))
            && !is_safe_for_eap_only(&request(26))
            && is_safe_for_eap_only(&request(13))
    );
    assert!(is_safe_for_eap_only(&request(1)) && !is_safe_for_eap_only(&[]), "it may be asked who it is");
    // An initiator that does not offer it finds no connection.
    let (mut ours, mut theirs) = eap_connections(peer_auth(TestEapMethod::Tls, PASSWORD), false);
    theirs.local_auth = LocalAuth::EapOnly;
    ours.remote_auth = RemoteAuth::Psk(SecretValue::from(&b"secret"[..]));
    let mut world = IkeTestNetwork::with_config(default_config(), ours, theirs, TestEapMethod::Tls);
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(world.responder), [EndReason::AuthenticationFailed]);
}

#[test]
fn eap_tls_beside_a_shared_key_of_the_responder_is_a_login() {
    let (ours, theirs) = eap_connections(peer_auth(TestEapMethod::Tls, PASSWORD), false);
    let mut world = IkeTestNetwork::with_config(default_config(), ours, theirs, TestEapMethod::Tls);
    world.connect();
    world.assert_children_match(1);
}

#[test]
fn a_server_of_another_key_does_not_convince_after_eap() {
    let (ours, theirs) = eap_connections(peer_auth(TestEapMethod::MsChapV2, PASSWORD), false);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let responder = world.responder;
    let mut eap = EapHost::default();
    world.net.on_event(responder, move |event| {
        let IkeEvent::Eap { sa, packet, .. } = event else { return None };
        let answer = match eap.answer_packet(*sa, packet, TestEapMethod::MsChapV2) {
            EapAnswer::Accept { packet, identity, .. } => {
                EapAnswer::Accept { packet, msk: Some(SecretValue::from(&[9; 64][..])), identity }
            }
            other => other,
        };
        Some((millis(1), IkeCommand::Eap { sa: *sa, answer }))
    });
    world.initiate();
    world.net.run_for(secs(1));
    assert_eq!(world.end_reasons(responder), [EndReason::AuthenticationFailed]);
}

/// RFC 7296 §2.16: only the identity that EAP has authenticated counts. A connection for one user rejects others that
/// claim its name.
#[test]
fn a_connection_for_one_user_admits_no_other_eap_user() {
    for (name, let_in) in [("ini.test", true), ("bob.test", false)] {
        let (ours, theirs) = eap_connections(peer_auth(TestEapMethod::MsChapV2, PASSWORD), false);
        assert!(theirs.remote.is_some());
        let mut world = IkeTestNetwork::new(ours, theirs);
        let responder = world.responder;
        let mut eap = EapHost::default();
        world.net.on_event(responder, move |event| {
            let IkeEvent::Eap { sa, packet, .. } = event else { return None };
            let answer = match eap.answer_packet(*sa, packet, TestEapMethod::MsChapV2) {
                EapAnswer::Accept { packet, msk, .. } => {
                    EapAnswer::Accept { packet, msk, identity: Identification::from_fqdn(name) }
                }
                other => other,
            };
            Some((millis(1), IkeCommand::Eap { sa: *sa, answer }))
        });
        world.initiate();
        world.net.run_for(secs(1));
        let ended = world.end_reasons(responder);
        assert_eq!(ended.is_empty(), let_in, "{name}: {ended:?}");
        assert!(let_in || ended == [EndReason::AuthenticationFailed]);
    }
}

/// A connection applies to initiators in its networks. Others get the next connection.
#[test]
fn a_connection_takes_those_alone_who_come_from_its_networks() {
    for (network_of, taken) in [("192.0.2.0", true), ("203.0.113.0", false)] {
        let theirs =
            IkeConnectionConfig { from: Some(network_selectors(network_of, 24)), ..psk_connection(false) };
        let mut world = IkeTestNetwork::new(psk_connection(true), theirs);
        world.initiate();
        world.net.run_for(secs(1));
        let ended = world.end_reasons(world.responder);
        let none: &[EndReason] = &[];
        assert_eq!(ended, if taken { none } else { &[EndReason::AuthenticationFailed] }, "{network_of}");
    }
}

#[test]
fn an_aaa_server_that_is_silent_ends_the_login() {
    let (ours, theirs) = eap_connections(peer_auth(TestEapMethod::MsChapV2, PASSWORD), false);
    let mut world = IkeTestNetwork::new(ours, theirs);
    let responder = world.responder;
    world.net.on_event(responder, |event| {
        let IkeEvent::Eap { sa, .. } = event else { return None };
        Some((secs(9), IkeCommand::Eap { sa: *sa, answer: EapAnswer::Unanswered }))
    });
    world.initiate();
    world.net.run_for(secs(8));
    // Meanwhile the request was retransmitted and waits.
    assert!(world.counters(responder).duplicate_pending > 0);
    world.net.run_for(secs(5));
    assert_eq!(
        (world.end_reasons(responder), world.end_reasons(world.initiator)),
        (vec![EndReason::Helper], vec![EndReason::Refused])
    );
}

#[test]
fn commands_that_fit_nothing_are_refused() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let initiator = world.initiator;
    let mut refused = |command| world.net.send_command(initiator, command).unwrap_err();
    assert_eq!(refused(IkeCommand::Probe(IkeSaId(99))), CommandError::UnknownToken);
    let unanswered = EapAnswer::Unanswered;
    assert!(matches!(refused(IkeCommand::Eap { sa: ours, answer: unanswered }), CommandError::WrongState(_)));
    assert!(matches!(
        refused(IkeCommand::Address { sa: ours, attributes: vec![] }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(IkeCommand::Signed { token: ours.0, signature: None, ocsp: None }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(IkeCommand::Verified {
            token: ours.0,
            until: Some(usher_core::bench::EPOCH),
            certificates: Vec::new()
        }),
        CommandError::WrongState(_)
    ));
    assert!(matches!(
        refused(IkeCommand::CreateChild { sa: ours, name: "no".into() }),
        CommandError::Invalid(_)
    ));
    assert!(matches!(refused(IkeCommand::RekeyChild { sa: ours, spi: 1 }), CommandError::Invalid(_)));
    assert!(matches!(refused(IkeCommand::DeleteChild { sa: ours, spi: 1 }), CommandError::Invalid(_)));
    let eap = IkeConnectionConfig {
        remote_auth: RemoteAuth::Eap { request_identity: false },
        ..psk_connection(true)
    };
    let (local, remote) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
    let begin = IkeCommand::Initiate { token: 0, connection: Arc::new(eap), local, remote };
    assert!(matches!(refused(begin), CommandError::Invalid(_)));
}
