//! A network that loses, duplicates and reorders, and attackers that forge.

use super::*;
use crate::code::*;
use crate::{IkeMessage, ParseError};
use proptest::prelude::*;

/// IPv6 Ready: EN.I.1.1.2.1, EN.I.1.1.2.2, EN.I.1.1.2.3, EN.I.1.1.2.4, EN.I.1.2.2.2.
#[test]
fn each_message_may_be_lost_once() {
    for lost in 0..8usize {
        let ours = IkeConnectionConfig {
            local_auth: peer_auth(TestEapMethod::MsChapV2, PASSWORD),
            ..psk_connection(true)
        };
        let theirs = IkeConnectionConfig {
            remote_auth: RemoteAuth::Eap { request_identity: false },
            ..psk_connection(false)
        };
        let mut world = IkeTestNetwork::new(ours, theirs);
        world.net.intercept_transmits(move |n, _| if n == lost { Vec::new() } else { vec![Duration::ZERO] });
        world.initiate();
        world.net.run_for(secs(10));
        world.assert_children_match(1);
        assert_eq!(world.counters(world.initiator).retransmissions, 1, "message {lost}");
    }
}

/// IPv6 Ready: EN.I.1.1.3.3.
#[test]
fn an_initiator_gives_up_after_its_retransmissions() {
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    world.net.set_silent(responder, true);
    world.initiate();
    world.net.run_for(secs(164));
    assert_eq!(world.end_reasons(world.initiator), []);
    world.net.run_for(secs(2));
    assert_eq!(world.end_reasons(world.initiator), [EndReason::Unreachable]);
    let sent = world.net.sent_transmits();
    assert_eq!(sent.len(), 6);
    assert!(sent.iter().all(|one| one.bytes == sent[0].bytes), "the same octets each time");
    let waits = RetransmissionConfig::default();
    assert_eq!(
        (0..3).map(|n| waits.retransmission_timeout_after(n)).collect::<Vec<_>>(),
        [millis(4000), millis(7200), millis(12_960)]
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever the network loses, duplicates and delays, both sides agree on the result.
    #[test]
    fn whatever_the_network_does_both_sides_agree(fates in proptest::collection::vec(0u8..8, 60), eap: bool, packet in prop_oneof![Just(200usize), Just(1280)]) {
        let (mut ours, mut theirs) = (psk_connection(true), psk_connection(false));
        if eap {
            ours.local_auth = peer_auth(TestEapMethod::MsChapV2, PASSWORD);
            theirs.remote_auth = RemoteAuth::Eap { request_identity: true };
        }
        let mut world = IkeTestNetwork::with_config(IkeEndpointConfig { packet, ..default_config() }, ours, theirs, TestEapMethod::MsChapV2);
        world.net.intercept_transmits(move |n, _| match fates.get(n) {
            Some(0) => vec![],
            Some(1) => vec![Duration::ZERO, millis(3)],
            Some(2) => vec![millis(90)],
            Some(3) => vec![millis(1), secs(5)],
            _ => vec![Duration::ZERO],
        });
        world.initiate();
        world.net.run_for(secs(30));
        if let Some(sa) = world.established_sa(world.initiator) {
            let initiator = world.initiator;
            let _ = world.net.send_command(initiator, IkeCommand::Rekey(sa));
            let _ = world.net.send_command(initiator, IkeCommand::CreateChild { sa, name: "net".into() });
        }
        world.net.run_for(secs(900));
        let (ours, theirs) = (world.installed_children(world.initiator), world.installed_children(world.responder));
        if world.end_reasons(world.initiator).iter().all(|reason| *reason == EndReason::Rekeyed) {
            for (spi, child) in &ours {
                prop_assert_eq!(theirs.get(&child.outbound).map(|other| other.outbound), Some(*spi));
            }
        }
        prop_assert!(world.sa_counts().0 <= 1 && world.sa_counts().1 <= 1);
    }
}

/// A message with one octet of its header altered.
fn with_altered_octet(octets: &[u8], at: usize, to: u8) -> Vec<u8> {
    let mut octets = octets.to_vec();
    octets[at] = to;
    octets
}

/// IPv6 Ready: EN.I.1.1.2.2, EN.I.1.1.2.4, EN.I.1.1.3.2, EN.I.1.2.2.2, EN.R.1.1.2.2, EN.R.1.1.3.2,
/// EN.R.1.1.11.4, EN.R.1.2.2.1, EN.R.1.3.2.1.
#[test]
fn messages_that_are_replayed_or_forged_change_nothing() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    let sent: Vec<Vec<u8>> = world.net.sent_transmits().iter().map(|sent| sent.bytes.clone()).collect();
    let (a, b) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
    let before = world.counters(responder);
    // The IKE_AUTH request again, which is before the last one: no response.
    world.forge_datagram(responder, a, b, &sent[2]);
    assert_eq!(world.counters(responder).not_expected, before.not_expected + 1);
    // The last request again: the same response.
    world.forge_datagram(responder, a, b, &sent[4]);
    assert_eq!(world.counters(responder).duplicates, before.duplicates + 1);
    // The next message ID with arbitrary octets: not authentic.
    let forged = with_altered_octet(&sent[4], 23, 3);
    world.forge_datagram(responder, a, b, &forged);
    assert_eq!(world.counters(responder).integrity, before.integrity + 1);
    // The responder's own message, sent back to it.
    world.forge_datagram(responder, a, b, &sent[5]);
    assert_eq!(world.counters(responder).unknown_spi, before.unknown_spi + 1);
    // The same with its direction altered.
    world.forge_datagram(responder, a, b, &with_altered_octet(&sent[4], 19, 0x28));
    assert_eq!(world.counters(responder).not_expected, before.not_expected + 2);
    // Another SPI, a wrong length, a newer version, no message at all, and ESP.
    world.forge_datagram(responder, a, b, &with_altered_octet(&sent[4], 0, !sent[4][0]));
    assert_eq!(world.counters(responder).unknown_spi, before.unknown_spi + 2);
    world.forge_datagram(responder, a, b, &with_altered_octet(&sent[4], 27, sent[4][27] + 1));
    assert_eq!(world.counters(responder).malformed, before.malformed + 1);
    world.forge_datagram(responder, a, b, b"hello");
    assert_eq!(world.counters(responder).malformed, before.malformed + 2);
    world.forge_datagram(responder, a, socket_address(RESPONDER, 4500), &[1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(world.counters(responder).not_ike, before.not_ike + 1);
    world.assert_children_match(1);
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(secs(1));
    assert_eq!(world.counters(initiator).retransmissions, 0);
}

/// IPv6 Ready: EN.R.1.1.4.2.
#[test]
fn a_version_that_is_to_come_is_answered_with_ours() {
    let mut world = IkeTestNetwork::with_shared_key();
    world.initiate();
    world.net.run_for(millis(1));
    let request = world.net.sent_transmits()[0].bytes.clone();
    let responder = world.responder;
    let before = world.net.sent_transmits().len();
    world.forge_datagram(
        responder,
        socket_address(INITIATOR, 500),
        socket_address(RESPONDER, 500),
        &with_altered_octet(&request, 17, 0x30),
    );
    let answer = IkeMessage::parse(&world.net.sent_transmits()[before].bytes).unwrap();
    assert_eq!(answer.to_string(), "IKE_SA_INIT response 0 [ N(INVALID_MAJOR_VERSION) ]");
    // IKEv1 gets no response: it would not understand one.
    world.forge_datagram(
        responder,
        socket_address(INITIATOR, 500),
        socket_address(RESPONDER, 500),
        &with_altered_octet(&request, 17, 0x10),
    );
    assert_eq!((world.counters(responder).version, world.net.sent_transmits().len()), (2, before + 1));
    assert_eq!(IkeMessage::parse(&with_altered_octet(&request, 17, 0x10)), Err(ParseError::MajorVersion(1)));
}

fn first_with(payloads: Vec<Payload>) -> Vec<u8> {
    let header = crate::IkeHeader {
        initiator_spi: crate::Spi([7; 8]),
        responder_spi: crate::Spi::ZERO,
        exchange: ExchangeType::IKE_SA_INIT,
        initiator: true,
        response: false,
        higher_version: false,
        message_id: 0,
    };
    let mut octets = Vec::new();
    IkeMessage { header, payloads }.emit(&mut octets);
    octets
}

/// IPv6 Ready: EN.R.1.1.4.4.
#[test]
fn a_bad_first_request_is_answered_with_its_error() {
    let sa =
        || Payload::SecurityAssociation(vec![Proposal::parse_ike_proposal("aes128-sha256-x25519").unwrap()]);
    let ke = |data: Vec<u8>| Payload::KeyExchange { method: KeyExchangeMethod::CURVE25519, data };
    let nonce = || Payload::Nonce(vec![1; 32]);
    let unknown = Payload::Unknown { kind: PayloadType(200), critical: true, data: vec![] };
    for (payloads, answer) in [
        (vec![sa(), nonce()], "[ N(INVALID_SYNTAX) ]"),
        (vec![sa(), sa(), ke(vec![9; 32]), nonce()], "[ N(INVALID_SYNTAX) ]"),
        (vec![sa(), ke(vec![9; 31]), nonce()], "[ N(INVALID_SYNTAX) ]"),
        (vec![sa(), ke(vec![0; 32]), nonce()], "[ N(INVALID_SYNTAX) ]"),
        (vec![sa(), ke(vec![9; 32]), nonce(), unknown], "[ N(UNSUPPORTED_CRITICAL_PAYLOAD) ]"),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let responder = world.responder;
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &first_with(payloads),
        );
        let message = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
        assert!(message.to_string().ends_with(answer), "{message}");
        assert_eq!((world.sa_counts().1, world.net.sent_transmits().len()), (0, 1), "nothing is kept");
    }
}

/// RFC 7296 3.10.1: of a request they are passed over, whether they are errors or not.
/// IPv6 Ready: EN.I.1.1.11.5, EN.R.1.1.11.5.
#[test]
fn notifications_of_unknown_types_in_requests_are_passed_over() {
    let unknown = || [16_383, 40_959].map(|kind| Payload::Notify(NotifyPayload::new(NotifyType(kind))));
    let first = vec![
        Payload::SecurityAssociation(vec![Proposal::parse_ike_proposal("aes128-sha256-x25519").unwrap()]),
        Payload::KeyExchange { method: KeyExchangeMethod::CURVE25519, data: vec![9; 32] },
        Payload::Nonce(vec![1; 32]),
    ];
    let mut world = IkeTestNetwork::with_shared_key();
    let responder = world.responder;
    let first = first_with([first, unknown().into()].concat());
    world.forge_datagram(responder, socket_address(INITIATOR, 500), socket_address(RESPONDER, 500), &first);
    assert_eq!(world.sa_counts().1, 1, "it is half open");
    let answer = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap().to_string();
    assert!(answer.starts_with("IKE_SA_INIT response 0 [ SA KE("), "{answer}");
    // The same within an IKE_SA.
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let (initiator, now) = (world.initiator, world.net.now());
    world.net[initiator].run_sa_step_at(now, ours.0, |sa, cx| {
        send_request(sa, cx, ExchangeType::INFORMATIONAL, &unknown());
    });
    world.net.run_for(secs(1));
    world.assert_children_match(1);
    assert_eq!((world.end_reasons(world.responder), world.counters(initiator).retransmissions), (vec![], 0));
}

/// RFC 7296 3.11.
/// IPv6 Ready: EN.R.1.2.3.1.
#[test]
fn a_delete_payload_may_name_several_children() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    for _ in 0..2 {
        world.net.send_command(initiator, IkeCommand::CreateChild { sa: ours, name: "net".into() }).unwrap();
        world.net.run_for(secs(1));
    }
    world.assert_children_match(3);
    let spis: Vec<u32> = world.installed_children(initiator).into_keys().take(2).collect();
    let now = world.net.now();
    let delete = Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis });
    world.net[initiator].run_sa_step_at(now, ours.0, |sa, cx| {
        send_request(sa, cx, ExchangeType::INFORMATIONAL, &[delete]);
    });
    world.net.run_for(secs(1));
    assert_eq!((world.installed_children(responder).len(), world.end_reasons(responder)), (1, vec![]));
}

/// IPv6 Ready: EN.R.1.1.4.4.
#[test]
fn an_authenticated_protocol_violation_ends_the_ike_sa() {
    // Messages under the initiator's keys that its endpoint would never send.
    for (exchange, payloads, answer) in [
        (ExchangeType::IKE_AUTH, vec![], Some(EndReason::Protocol)),
        (ExchangeType(77), vec![], Some(EndReason::Protocol)),
        (ExchangeType::CREATE_CHILD_SA, vec![Payload::Nonce(vec![1; 32])], Some(EndReason::Protocol)),
        (ExchangeType::INFORMATIONAL, vec![Payload::VendorId(vec![])], None),
        (
            ExchangeType::INFORMATIONAL,
            vec![Payload::Unknown { kind: PayloadType(99), critical: true, data: vec![] }],
            None,
        ),
        (
            ExchangeType::INFORMATIONAL,
            vec![Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis: vec![1, 2] })],
            None,
        ),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let (initiator, responder) = (world.initiator, world.responder);
        let now = world.net.now();
        let what = payloads.clone();
        world.net[initiator].run_sa_step_at(now, ours.0, |sa, cx| {
            send_request(sa, cx, exchange, &what);
        });
        world.net.run_for(secs(1));
        assert_eq!(world.end_reasons(responder), Vec::from_iter(answer), "{exchange} {payloads:?}");
        if answer.is_none() {
            world.assert_children_match(1);
        }
    }
}

#[test]
fn a_response_that_breaks_the_protocol_ends_the_ike_sa() {
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, theirs) = world.connect();
    let (initiator, responder) = (world.initiator, world.responder);
    world.net.set_silent(responder, true);
    world.net.send_command(initiator, IkeCommand::Probe(ours)).unwrap();
    world.net.run_for(millis(1));
    let now = world.net.now();
    // The responder expects message 2, and responds with another exchange type.
    world.net[responder].run_sa_step_at(now, theirs.0, |sa, cx| {
        sa.base.expected += 1;
        sa.base.respond_protected(cx, ExchangeType::CREATE_CHILD_SA, &[]);
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(20));
    assert_eq!(world.end_reasons(initiator), [EndReason::Protocol]);
}
