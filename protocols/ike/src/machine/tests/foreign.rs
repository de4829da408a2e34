//! Messages that other implementations may send and this one never would: odd, malformed, too early. Each has its
//! expected response.

use super::*;
use crate::code::*;
use crate::message::PayloadListDisplay;
use crate::payload::parse_chain;
use crate::protect::{MessageProtection, SealedMessage};
use crate::{IkeHeader, IkeMessage, Spi};

/// Returns the responder's response to a request under the initiator's keys. The initiator does not get it.
fn answer_to(
    world: &mut IkeTestNetwork,
    sa: IkeSaId,
    exchange: ExchangeType,
    payloads: &[Payload],
) -> String {
    let (initiator, now, before) = (world.initiator, world.net.now(), world.net.sent_transmits().len());
    let of_responder = |sa: &mut super::super::sa::IkeSa,
                        cx: &mut super::super::context::IkeEndpointContext| {
        send_request(sa, cx, exchange, payloads);
        let session = sa.base.session.as_ref()?;
        MessageProtection::new(&session.algorithms.packets, &session.keys.sk_er, &session.keys.sk_ar)
    };
    let keys = world.net[initiator].run_sa_step_at(now, sa.0, of_responder).flatten().unwrap();
    world.net.run_for(millis(15));
    let sent = world.net.sent_transmits()[before..].iter().find(|sent| sent.from == 1);
    let sent = sent.map(|sent| sent.bytes.clone()).expect("each request has an answer");
    let sealed = SealedMessage::from_octets(&sent).unwrap().unwrap();
    let content = keys.open(&sealed).unwrap();
    PayloadListDisplay(&parse_chain(sealed.first, &content).unwrap()).to_string()
}

fn selector_payload(initiator: bool, network: Vec<TrafficSelector>) -> Payload {
    let network = network.into();
    match initiator {
        true => Payload::TrafficSelectorsInitiator(network),
        false => Payload::TrafficSelectorsResponder(network),
    }
}

/// The payloads that rekey a CHILD_SA, in the order of RFC 7296 §1.3.3: N(REKEY_SA) SA Ni TSi TSr.
fn rekey_payloads(world: &IkeTestNetwork, words: &str) -> Vec<Payload> {
    let old = *world.installed_children(world.initiator).keys().next().unwrap();
    let proposal =
        Proposal { number: 1, spi: vec![0, 0, 9, 9], ..Proposal::parse_esp_proposal(words).unwrap() };
    vec![
        Payload::Notify(NotifyPayload::for_child_sa(NotifyType::REKEY_SA, ProtocolId::ESP, old)),
        Payload::SecurityAssociation(vec![proposal]),
        Payload::Nonce(vec![3; 32]),
        selector_payload(true, network_selectors("10.1.0.0", 16)),
        selector_payload(false, network_selectors("10.2.0.0", 16)),
    ]
}

const PLAIN: &str = "aes128-sha256";
const GRANTED: &str = "[ SA No TSi(10.1.0.0/16) TSr(10.2.0.0/16) ]";

/// A case of rekeying: its name, its change of the payloads, and the response.
type RekeyCase = (&'static str, fn(&IkeTestNetwork, &mut Vec<Payload>), &'static str);

/// A request for a CHILD_SA is answered for any order of payloads and with unknown ones. The IKE_SA continues.
#[test]
fn a_child_is_replaced_in_any_order_and_whatever_is_beside() {
    let cases: [RekeyCase; 12] = [
        ("as the RFC has it", |_, _| {}, GRANTED),
        ("with a Configuration payload", |_, all| all.push(configuration_payload()), GRANTED),
        (
            "in RouterOS's order, with a key exchange",
            |world, all| {
                *all = rekey_payloads(world, "aes128gcm16-x25519");
                let [rekey, sa, nonce, tsi, tsr] = &all[..] else { panic!("five") };
                *all = [sa, &key_exchange_payload(), nonce, rekey, tsi, tsr, &configuration_payload()]
                    .map(Clone::clone)
                    .into();
            },
            "[ SA No KE(CURVE25519) TSi(10.1.0.0/16) TSr(10.2.0.0/16) ]",
        ),
        ("a key exchange that is not proposed", |_, all| all.insert(3, key_exchange_payload()), GRANTED),
        (
            "no key exchange though one is proposed",
            |world, all| *all = rekey_payloads(world, "aes128gcm16-x25519"),
            "[ N(INVALID_KE_PAYLOAD) ]",
        ),
        ("REKEY_SA at the end", |_, all| all.rotate_left(1), GRANTED),
        ("no REKEY_SA: one more of the same", |_, all| drop(all.remove(0)), GRANTED),
        (
            "REKEY_SA of nobody's",
            |_, all| {
                all[0] = Payload::Notify(NotifyPayload::for_child_sa(
                    NotifyType::REKEY_SA,
                    ProtocolId::ESP,
                    0xabcd_1234,
                ))
            },
            "[ N(CHILD_SA_NOT_FOUND abcd1234) ]",
        ),
        (
            "REKEY_SA of AH",
            |world, all| {
                let old = *world.installed_children(world.initiator).keys().next().unwrap();
                all[0] =
                    Payload::Notify(NotifyPayload::for_child_sa(NotifyType::REKEY_SA, ProtocolId::AH, old));
            },
            "[ N(CHILD_SA_NOT_FOUND old) ]",
        ),
        (
            "everything for traffic, as Windows does",
            |_, all| {
                all[3] = selector_payload(true, network_selectors("0.0.0.0", 0));
                all[4] = selector_payload(false, network_selectors("0.0.0.0", 0));
            },
            GRANTED,
        ),
        (
            "less traffic than before",
            |_, all| all[4] = selector_payload(false, network_selectors("10.2.7.0", 24)),
            "[ SA No TSi(10.1.0.0/16) TSr(10.2.7.0/24) ]",
        ),
        (
            "a public value that betrays the secret",
            |world, all| {
                *all = rekey_payloads(world, "aes128gcm16-x25519");
                let data = vec![0; 32];
                all.push(Payload::KeyExchange { method: KeyExchangeMethod::CURVE25519, data });
            },
            "[ N(INVALID_SYNTAX) ]",
        ),
    ];
    for (what, change, answer) in cases {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let mut payloads = rekey_payloads(&world, PLAIN);
        change(&world, &mut payloads);
        let old = *world.installed_children(world.initiator).keys().next().unwrap();
        let said = answer_to(&mut world, ours, ExchangeType::CREATE_CHILD_SA, &payloads);
        let said = said.replace(&format!("{old:08x}"), "old");
        assert_eq!(said, answer, "{what}");
        assert_eq!((world.end_reasons(world.responder), world.sa_counts().1), (vec![], 1), "{what}");
        let granted = usize::from(said.starts_with("[ SA"));
        assert_eq!(world.installed_children(world.responder).len(), 1 + granted, "{what}");
    }
}

fn configuration_payload() -> Payload {
    let attributes =
        vec![ConfigurationAttribute::requested_attribute(ConfigurationType::INTERNAL_IP4_ADDRESS)];
    Payload::Configuration(ConfigurationPayload { kind: CfgType::CFG_REQUEST, attributes })
}

fn key_exchange_payload() -> Payload {
    Payload::KeyExchange { method: KeyExchangeMethod::CURVE25519, data: vec![9; 32] }
}

/// A payload of a known type with arbitrary octets.
fn raw_payload(kind: PayloadType, data: &[u8]) -> Payload {
    Payload::Unknown { kind, critical: false, data: data.to_vec() }
}

/// RFC 7296 §3.13.1: a selector of 10.1.0.1 alone, of all ports.
const SELECTOR: [u8; 16] = [7, 0, 0, 16, 0, 0, 0xff, 0xff, 10, 1, 0, 1, 10, 1, 0, 1];

/// Selectors with wrong lengths or counts violate the protocol and end the IKE_SA. Those that select nothing are
/// valid, but nothing is granted.
#[test]
fn traffic_selectors_that_lie_or_select_nothing_make_no_child() {
    const SYNTAX: &str = "[ N(INVALID_SYNTAX) ]";
    const NOTHING: &str = "[ N(TS_UNACCEPTABLE) ]";
    let with = |count: u8, changes: &[(usize, u8)]| {
        let mut selector = SELECTOR;
        changes.iter().for_each(|(at, octet)| selector[*at] = *octet);
        [&[count, 0, 0, 0][..], &selector].concat()
    };
    for (what, data, answer) in [
        ("a length of 0", with(1, &[(3, 0)]), SYNTAX),
        ("a length of 8", with(1, &[(3, 8)]), SYNTAX),
        ("a length of 15", with(1, &[(3, 15)]), SYNTAX),
        ("a length of 17", with(1, &[(3, 17)]), SYNTAX),
        ("a length beyond the message", with(1, &[(2, 0xff)]), SYNTAX),
        ("nine where there is one", with(9, &[]), SYNTAX),
        ("none where there is one", with(0, &[]), SYNTAX),
        ("IPv6 with addresses of IPv4", with(1, &[(0, 8)]), SYNTAX),
        ("none", vec![0; 4], NOTHING),
        ("of a type of nobody's", with(1, &[(0, 99)]), NOTHING),
        ("an end before the start", with(1, &[(11, 9)]), NOTHING),
        ("ports whose end is before their start", with(1, &[(1, 6), (4, 9), (6, 0), (7, 80)]), NOTHING),
        ("all", with(1, &[]), "[ SA No TSi(10.1.0.1) TSr(10.2.0.0/16) ]"),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let mut payloads = rekey_payloads(&world, PLAIN);
        payloads[3] = raw_payload(PayloadType::TSI, &data);
        let said = answer_to(&mut world, ours, ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(said, answer, "{what}");
        let ended = if answer == SYNTAX { vec![EndReason::Protocol] } else { vec![] };
        assert_eq!(world.end_reasons(world.responder), ended, "{what}");
    }
}

/// RFC 7296 §3.9: a nonce has 16 to 256 octets; §1.3.1: none of the four is left out.
#[test]
fn what_is_missing_or_of_no_length_breaks_the_protocol() {
    let nonces = [0, 4, 15, 257, 1200].map(|length| (Some(length), PayloadType::NONCE));
    let missing =
        [PayloadType::SA, PayloadType::NONCE, PayloadType::TSI, PayloadType::TSR].map(|kind| (None, kind));
    for (nonce, kind) in nonces.into_iter().chain(missing) {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let mut payloads = rekey_payloads(&world, PLAIN);
        let at = payloads.iter().position(|payload| payload.payload_type() == kind).unwrap();
        match nonce {
            Some(length) => payloads[at] = Payload::Nonce(vec![7; length]),
            None => drop(payloads.remove(at)),
        }
        let said = answer_to(&mut world, ours, ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(said, "[ N(INVALID_SYNTAX) ]", "{kind} {nonce:?}");
        assert_eq!(world.end_reasons(world.responder), [EndReason::Protocol], "{kind} {nonce:?}");
    }
    for length in [16, 256] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let mut payloads = rekey_payloads(&world, PLAIN);
        payloads[2] = Payload::Nonce(vec![7; length]);
        let said = answer_to(&mut world, ours, ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(said, GRANTED, "{length}");
    }
    // An unauthenticated first request leaves no state.
    for (length, is_answered) in
        [(0, false), (15, false), (16, true), (256, true), (257, false), (2000, false)]
    {
        let (said, kept) = first_answer(vec![
            sa_payload("aes128-sha256-x25519"),
            key_exchange_payload(),
            Payload::Nonce(vec![1; length]),
        ]);
        assert_eq!((said.is_some(), kept), (is_answered, usize::from(is_answered)), "{length}");
    }
}

/// RFC 7296 §1.4.1: an IKE_SA is deleted with all that it carries, wherever in the message that stands.
#[test]
fn several_delete_payloads_are_each_done() {
    let ike = || Payload::Delete(DeletePayload::Ike);
    let esp = |spis: &[u32]| {
        Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis: spis.to_vec() })
    };
    let own = |world: &IkeTestNetwork| *world.installed_children(world.initiator).keys().next().unwrap();
    type DeleteBuilder<'a> = &'a dyn Fn(u32) -> Vec<Payload>;
    let whole: [DeleteBuilder<'_>; 3] =
        [&|spi| vec![esp(&[spi]), ike()], &|spi| vec![ike(), esp(&[spi])], &|_| vec![ike(), ike()]];
    for deletes in whole {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let payloads = deletes(own(&world));
        let said = answer_to(&mut world, ours, ExchangeType::INFORMATIONAL, &payloads);
        assert_eq!(said, "[ ]", "{}", PayloadListDisplay(&payloads));
        assert_eq!(world.end_reasons(world.responder), [EndReason::DeletedByPeer]);
        assert!(world.installed_children(world.responder).is_empty());
    }
    // For CHILD_SAs: unknown SPIs are ignored, and wrong lengths violate the protocol.
    let lies = |octets: &[u8]| vec![raw_payload(PayloadType::D, octets)];
    let ah = Payload::Delete(DeletePayload::Child { protocol: ProtocolId::AH, spis: vec![7] });
    for (what, payloads, left) in [
        ("of AH", vec![ah], Some(1)),
        ("of nobody's SPI", vec![esp(&[7])], Some(1)),
        ("of a protocol of nobody's", lies(&[9, 4, 0, 1, 0, 0, 0, 7]), None),
        ("a hundred where there is one", lies(&[3, 4, 0, 100, 0, 0, 0, 7]), None),
        ("an SPI of three octets", lies(&[3, 3, 0, 1, 0, 0, 7]), None),
        ("five SPIs of no octets", lies(&[3, 0, 0, 5]), None),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (ours, _) = world.connect();
        let said = answer_to(&mut world, ours, ExchangeType::INFORMATIONAL, &payloads);
        let expected = if left.is_some() { "[ ]" } else { "[ N(INVALID_SYNTAX) ]" };
        assert_eq!(
            (&said[..], world.installed_children(world.responder).len()),
            (expected, left.unwrap_or(0)),
            "{what}"
        );
    }
    let mut world = IkeTestNetwork::with_shared_key();
    let (ours, _) = world.connect();
    let spi = own(&world);
    let said = answer_to(&mut world, ours, ExchangeType::INFORMATIONAL, &[esp(&[spi, spi]), esp(&[spi])]);
    assert!(said.starts_with("[ D(ESP ") && said.matches(' ').count() == 3, "once: {said}");
    assert_eq!(
        (world.installed_children(world.responder).len(), world.end_reasons(world.responder)),
        (0, vec![])
    );
}

fn sa_payload(words: &str) -> Payload {
    Payload::SecurityAssociation(vec![Proposal::parse_ike_proposal(words).unwrap()])
}

/// Returns the responder's response to a first request, and its number of half-open IKE_SAs.
fn first_answer(payloads: Vec<Payload>) -> (Option<IkeMessage>, usize) {
    let mut world = IkeTestNetwork::with_shared_key();
    let header = IkeHeader {
        initiator_spi: Spi([7; 8]),
        responder_spi: Spi::ZERO,
        exchange: ExchangeType::IKE_SA_INIT,
        initiator: true,
        response: false,
        higher_version: false,
        message_id: 0,
    };
    let mut octets = Vec::new();
    IkeMessage { header, payloads }.emit(&mut octets);
    let responder = world.responder;
    world.forge_datagram(responder, socket_address(INITIATOR, 500), socket_address(RESPONDER, 500), &octets);
    let said = world.net.sent_transmits().first().map(|sent| IkeMessage::parse(&sent.bytes).unwrap());
    (said, world.sa_counts().1)
}

/// RFC 7296 §3.3.6: a proposal with unknown parts is rejected, and the next one is chosen.
#[test]
fn a_proposal_with_what_nobody_knows_gives_way_to_the_next() {
    let good = || Proposal::parse_ike_proposal("aes128-sha256-x25519").unwrap();
    let with = |change: fn(&mut Proposal)| {
        let mut proposal = good();
        change(&mut proposal);
        proposal
    };
    let unknown_type = || with(|one| one.transforms.push(Transform::new(TransformType(240), 7)));
    let unknown_attribute =
        || with(|one| one.transforms[0].attributes.push(TransformAttribute::Short { kind: 99, value: 1 }));
    let long_attribute = || {
        with(|one| {
            one.transforms[0].attributes.push(TransformAttribute::Long { kind: 99, value: b"abcd".to_vec() })
        })
    };
    let no_key_length = || with(|one| one.transforms[0].attributes.clear());
    let of_esp = || with(|one| (one.protocol, one.spi) = (ProtocolId::ESP, vec![1, 2, 3, 4]));
    let weak = || Proposal::parse_ike_proposal("3des-sha1-modp1024").unwrap();
    for (what, proposals, numbers, chosen) in [
        ("a type of nobody's", vec![unknown_type()], vec![1], None),
        ("a type of nobody's, then a good one", vec![unknown_type(), good()], vec![1, 2], Some(2)),
        ("an attribute of nobody's", vec![unknown_attribute()], vec![1], None),
        ("an attribute of nobody's, then a good one", vec![unknown_attribute(), good()], vec![1, 2], Some(2)),
        ("a long attribute of nobody's", vec![long_attribute(), good()], vec![1, 2], Some(2)),
        ("AES without a length of its key", vec![no_key_length(), good()], vec![1, 2], Some(2)),
        ("one of ESP, then a good one", vec![of_esp(), good()], vec![1, 2], Some(2)),
        ("a number other than 1", vec![good()], vec![7], Some(7)),
        ("numbers that go down", vec![good(), good()], vec![2, 1], Some(2)),
        (
            "60, the last of them good",
            [vec![weak(); 59], vec![good()]].concat(),
            (1..=60).collect(),
            Some(60),
        ),
    ] {
        let mut proposals = proposals;
        proposals.iter_mut().zip(numbers).for_each(|(proposal, number)| proposal.number = number);
        let sa = Payload::SecurityAssociation(proposals);
        let (said, kept) = first_answer(vec![sa, key_exchange_payload(), Payload::Nonce(vec![1; 32])]);
        let said = said.expect(what);
        let taken = said.payloads.iter().find_map(|payload| match payload {
            Payload::SecurityAssociation(chosen) => Some(chosen[0].number),
            _ => None,
        });
        assert_eq!((taken, kept), (chosen, usize::from(chosen.is_some())), "{what}");
        assert!(
            chosen.is_some() || said.to_string().ends_with("[ N(NO_PROPOSAL_CHOSEN) ]"),
            "{what}: {said}"
        );
    }
}

/// An initiator with a long identity, or with unknown payloads, is served.
#[test]
fn odd_payloads_beside_those_that_count_are_passed_over() {
    let vendor = |octets: usize| Payload::VendorId(vec![b'v'; octets]);
    let said = |kind: u16, data: &[u8]| Payload::Notify(NotifyPayload::with_data(NotifyType(kind), data));
    let about = NotifyPayload {
        protocol: ProtocolId::IKE,
        spi: b"12345678".to_vec(),
        ..NotifyPayload::new(NotifyType(16_500))
    };
    let request = Payload::CertificateRequest {
        encoding: CertificateEncoding::X509_SIGNATURE,
        authorities: b"abc".to_vec(),
    };
    for (what, more) in [
        ("vendor identities", [vec![vendor(0), vendor(2000)], vec![vendor(16); 100]].concat()),
        ("status and errors of nobody's", vec![said(45_000, &[7; 30]), said(8000, &[]), said(16_500, &[])]),
        ("a notification with an SPI", vec![Payload::Notify(about)]),
        ("authorities of three octets", vec![request]),
        ("hashes of one octet and a half", vec![said(16_431, &[0, 2, 0])]),
        ("a NAT of one octet", vec![said(16_388, b"x")]),
    ] {
        let first =
            vec![sa_payload("aes128-sha256-x25519"), key_exchange_payload(), Payload::Nonce(vec![1; 32])];
        let (answer, kept) = first_answer([first, more].concat());
        let answer = answer.expect(what).to_string();
        assert!(answer.starts_with("IKE_SA_INIT response 0 [ SA KE("), "{what}: {answer}");
        assert_eq!(kept, 1, "{what}");
    }
}

/// A peer that has keys and has not authenticated can do nothing. One without keys cannot end a login.
#[test]
fn requests_before_the_proof_do_nothing() {
    use ExchangeType as E;
    let child = || {
        let proposal =
            Proposal { number: 1, spi: vec![0, 0, 9, 9], ..Proposal::parse_esp_proposal(PLAIN).unwrap() };
        let traffic = [
            selector_payload(true, network_selectors("10.1.0.0", 16)),
            selector_payload(false, network_selectors("10.2.0.0", 16)),
        ];
        [vec![Payload::SecurityAssociation(vec![proposal]), Payload::Nonce(vec![3; 32])], traffic.into()]
            .concat()
    };
    for (exchange, payloads) in [
        (E::INFORMATIONAL, vec![Payload::Delete(DeletePayload::Ike)]),
        (E::INFORMATIONAL, vec![]),
        (E::CREATE_CHILD_SA, child()),
        (E::IKE_INTERMEDIATE, vec![]),
        (E::IKE_INTERMEDIATE, vec![key_exchange_payload()]),
        (E::IKE_SESSION_RESUME, vec![]),
        (E::IKE_AUTH, vec![]),
    ] {
        let mut world = IkeTestNetwork::with_shared_key();
        let (initiator, responder) = (world.initiator, world.responder);
        world.net.drop_transmits(&[2]);
        world.initiate();
        world.net.run_for(millis(25));
        let (now, token) = (world.net.now(), *world.net[initiator].by_spi.values().next().unwrap());
        let sealed = world.net[initiator].run_sa_step_at(now, token, |sa, cx| {
            let header = IkeHeader {
                initiator_spi: sa.base.spis.0,
                responder_spi: sa.base.spis.1,
                exchange,
                initiator: true,
                response: false,
                higher_version: false,
                message_id: 1,
            };
            sa.base.session.as_mut().unwrap().outbound.seal(&header, &payloads, None, &mut cx.rng)
        });
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &sealed.unwrap()[0],
        );
        world.net.run_for(secs(20));
        let what = format!("{exchange} {}", PayloadListDisplay(&payloads));
        if exchange == E::IKE_SESSION_RESUME {
            // The form of a first request, which belongs to no IKE_SA. The login continues.
            world.assert_children_match(1);
            continue;
        }
        assert_eq!(world.end_reasons(responder), [EndReason::Protocol], "{what}");
        assert_eq!(
            (world.established_sa(initiator), world.established_sa(responder)),
            (None, None),
            "{what}"
        );
        assert_eq!(
            (world.installed_children(responder).len(), world.net[responder].half_open()),
            (0, 0),
            "{what}"
        );
    }
    // A message in the clear is ignored, and the login continues.
    let mut world = IkeTestNetwork::with_shared_key();
    world.net.drop_transmits(&[2]);
    world.initiate();
    world.net.run_for(millis(25));
    let answer = IkeMessage::parse(&world.net.sent_transmits()[1].bytes).unwrap();
    for (exchange, payloads) in
        [(E::INFORMATIONAL, vec![Payload::Delete(DeletePayload::Ike)]), (E::IKE_AUTH, vec![])]
    {
        let header = IkeHeader { exchange, initiator: true, response: false, message_id: 1, ..answer.header };
        let mut plain = Vec::new();
        IkeMessage { header, payloads }.emit(&mut plain);
        let responder = world.responder;
        world.forge_datagram(
            responder,
            socket_address(INITIATOR, 500),
            socket_address(RESPONDER, 500),
            &plain,
        );
    }
    world.net.run_for(secs(10));
    world.assert_children_match(1);
}

/// Sends this response from the responder's half-open IKE_SA.
fn respond_from_half_open(world: &mut IkeTestNetwork, payloads: &[Payload]) {
    let (responder, now) = (world.responder, world.net.now());
    let token = *world.net[responder].by_spi.values().next().unwrap();
    world.net[responder].run_sa_step_at(now, token, |sa, cx| {
        sa.base.expected += 1;
        sa.base.respond_protected(cx, ExchangeType::IKE_AUTH, payloads);
    });
    world.net.set_silent(responder, false);
    world.net.run_for(millis(12));
    world.net.set_silent(responder, true);
    // Retransmissions meanwhile are lost.
    world.net.run_for(millis(12));
}

/// The initiator rejects a gateway that ends EAP too early, or whose method does not authenticate it (RFC 5998 §3).
#[test]
fn eap_that_is_over_too_soon_or_proves_nothing_convinces_nobody() {
    let gateway = || Payload::IdentificationResponder(Identification::from_fqdn("gw.test"));
    let asks = || Payload::Eap(vec![1, 1, 0, 5, 1]);
    let success = |identifier| Payload::Eap(vec![3, identifier, 0, 4]);
    let md5 = || Payload::Eap([&[1, 9, 0, 22, 4, 16][..], &[7; 16]].concat());
    for (what, answers) in [
        ("a success at once", vec![vec![gateway(), success(1)]]),
        ("a success after the name", vec![vec![gateway(), asks()], vec![success(1)]]),
        ("EAP-MD5", vec![vec![gateway(), asks()], vec![md5()]]),
        ("EAP-MD5 and a success", vec![vec![gateway(), asks()], vec![md5()], vec![success(9)]]),
        ("nothing of EAP", vec![vec![gateway()]]),
    ] {
        let ours = IkeConnectionConfig {
            local_auth: peer_auth(TestEapMethod::Tls, PASSWORD),
            remote_auth: RemoteAuth::EapOnly,
            ..psk_connection(true)
        };
        let mut world =
            IkeTestNetwork::with_config(default_config(), ours, psk_connection(false), TestEapMethod::Tls);
        let (initiator, responder) = (world.initiator, world.responder);
        world.initiate();
        world.net.run_for(millis(25));
        world.net.set_silent(responder, true);
        world.net.run_for(millis(10));
        let answers_to_come = answers.len();
        for (n, payloads) in answers.into_iter().enumerate() {
            if world.end_reasons(initiator).is_empty() {
                respond_from_half_open(&mut world, &payloads);
            }
            assert!(n + 1 < answers_to_come || !world.end_reasons(initiator).is_empty(), "{what}");
        }
        assert_eq!(world.established_sa(initiator), None, "{what}");
        assert!(world.installed_children(initiator).is_empty(), "{what}");
    }
}

/// An unauthenticated responder cannot make an initiator begin again without end: by cookies of invalid length, by
/// changing methods, by its own words.
#[test]
fn first_requests_that_are_asked_for_without_end_are_not_made() {
    let both = |initiator| IkeConnectionConfig {
        proposals: vec![Proposal::parse_ike_proposal("aes128-sha256-x25519-modp1024").unwrap()],
        ..psk_connection(initiator)
    };
    let with = |kind, data: Vec<u8>| Payload::Notify(NotifyPayload::with_data(kind, data));
    let methods =
        |n: u16| with(NotifyType::INVALID_KE_PAYLOAD, [2u16, 31][usize::from(n % 2)].to_be_bytes().to_vec());
    type AnswerBuilder<'a> = &'a dyn Fn(u16) -> Payload;
    let all: [(&str, AnswerBuilder<'_>, u64); 6] = [
        ("two methods in turn", &methods, 1 + 5),
        ("a method that was not offered", &|_| with(NotifyType::INVALID_KE_PAYLOAD, vec![0, 14]), 1),
        ("a method of one octet", &|_| with(NotifyType::INVALID_KE_PAYLOAD, vec![2]), 1),
        ("the method that was tried", &|_| with(NotifyType::INVALID_KE_PAYLOAD, vec![0, 31]), 1),
        ("a cookie of no octets", &|_| with(NotifyType::COOKIE, vec![]), 1),
        ("a cookie of 65 octets", &|_| with(NotifyType::COOKIE, vec![7; 65]), 1),
    ];
    for (what, answer, requests) in all {
        let mut world = IkeTestNetwork::new(both(true), both(false));
        let (initiator, responder) = (world.initiator, world.responder);
        world.net.set_silent(responder, true);
        world.initiate();
        world.net.run_for(millis(1));
        let first = IkeMessage::parse(&world.net.sent_transmits()[0].bytes).unwrap();
        for n in 0..20 {
            let header = IkeHeader { initiator: false, response: true, ..first.header };
            let mut octets = Vec::new();
            IkeMessage { header, payloads: vec![answer(n)] }.emit(&mut octets);
            world.forge_datagram(
                initiator,
                socket_address(RESPONDER, 500),
                socket_address(INITIATOR, 500),
                &octets,
            );
        }
        assert_eq!(world.counters(initiator).requests, requests, "{what}");
        assert_eq!(world.end_reasons(initiator), [], "{what}");
        // The true responder is still heard. If it wants another method too, the attempt ends.
        world.net.set_silent(responder, false);
        world.net.run_for(secs(600));
        match requests {
            1 => world.assert_children_match(1),
            _ => assert_eq!(world.end_reasons(initiator).len(), 1, "{what}"),
        }
    }
}

/// An initiator accepts at most its requested traffic, whatever the responder grants.
#[test]
fn more_traffic_than_was_asked_for_is_not_taken() {
    for (local, remote) in [("10.1.0.0", "10.2.7.0"), ("10.1.7.0", "10.2.0.0")] {
        let mut world = IkeTestNetwork::with_shared_key();
        world.initiate();
        // IKE_AUTH is on its way. Pretends that less was requested.
        world.net.run_for(millis(25));
        let prefix = |text: &str| if text.contains(".7.") { 24 } else { 16 };
        let mut other = psk_connection(true);
        other.children[0].local = Some(network_selectors(local, prefix(local)));
        other.children[0].remote = Some(network_selectors(remote, prefix(remote)));
        let endpoint = &mut world.net[world.initiator];
        let token = *endpoint.by_spi.values().next().unwrap();
        endpoint.sas.get_mut(token).unwrap().base.connection = Arc::new(other);
        world.net.run_for(secs(1));
        assert!(world.installed_children(world.initiator).is_empty(), "{local} {remote}");
        assert!(world.installed_children(world.responder).is_empty(), "and the other side is told");
    }
}
