//! Writing and parsing of messages.

use super::arbitrary;
use crate::code::*;
use crate::payload::*;
use crate::*;
use proptest::prelude::*;

fn emit_message(message: &IkeMessage) -> Vec<u8> {
    let mut buf = vec![0xee];
    message.emit(&mut buf);
    assert_eq!(buf.remove(0), 0xee, "a message is appended");
    buf
}

fn test_header() -> IkeHeader {
    IkeHeader {
        initiator_spi: Spi([1; 8]),
        responder_spi: Spi::ZERO,
        exchange: ExchangeType::IKE_SA_INIT,
        initiator: true,
        response: false,
        higher_version: false,
        message_id: 0,
    }
}

/// Octets of a message with these payloads.
fn octets_with_payloads(first: u8, payloads: &[u8]) -> Vec<u8> {
    let mut octets = emit_message(&IkeMessage { header: test_header(), payloads: Vec::new() });
    octets[16] = first;
    octets.extend_from_slice(payloads);
    octets[27] = octets.len() as u8;
    octets
}

fn parse_error(first: u8, payloads: &[u8]) -> ParseError {
    IkeMessage::parse(&octets_with_payloads(first, payloads)).unwrap_err()
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in arbitrary::any_message()) {
        prop_assert_eq!(IkeMessage::parse(&emit_message(&message)), Ok(message));
    }

    #[test]
    fn arbitrary_octets_never_panic(octets: Vec<u8>, first: u8, payloads in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(fuzz::check_message(&octets));
        prop_assert!(fuzz::check_message(&octets_with_payloads(first, &payloads)));
    }

    #[test]
    fn a_message_that_is_cut_or_altered_never_panics(message in arbitrary::any_message(), at: prop::sample::Index, to: u8) {
        let mut octets = emit_message(&message);
        prop_assert!(IkeMessage::parse(&octets[..at.index(octets.len())]).is_err());
        let at = at.index(octets.len());
        octets[at] = to;
        prop_assert!(fuzz::check_message(&octets));
    }
}

/// A valid first request with its own SPI.
fn first_request(spi: u8) -> IkeMessage {
    let proposal = Proposal::parse_ike_proposal("aes128-sha256-modp1024").unwrap();
    let payloads = vec![
        Payload::SecurityAssociation(vec![proposal]),
        Payload::KeyExchange { method: KeyExchangeMethod::MODP_1024, data: vec![2; 128] },
        Payload::Nonce(vec![spi; 32]),
    ];
    IkeMessage { header: IkeHeader { initiator_spi: Spi([spi; 8]), ..test_header() }, payloads }
}

fn frame_datagrams(datagrams: &[Vec<u8>]) -> Vec<u8> {
    datagrams.iter().flat_map(|one| [&(one.len() as u16).to_be_bytes()[..], one].concat()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_input_leaves_an_endpoint_bounded_and_its_output_valid(
        firsts in proptest::collection::vec((1u8.., any::<Option<(prop::sample::Index, u8)>>()), 0..8),
        others in proptest::collection::vec(arbitrary::any_message(), 0..8), octets: Vec<u8>,
    ) {
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        for (spi, altered) in firsts {
            let mut first = emit_message(&first_request(spi));
            if let Some((at, to)) = altered {
                let at = at.index(first.len());
                first[at] = to;
            }
            datagrams.push(first);
        }
        for mut message in others {
            datagrams.push(emit_message(&message));
            // The same as a response to an initiating endpoint, with an SPI that it cannot know.
            (message.header.response, message.header.initiator) = (true, false);
            message.header.exchange = ExchangeType::IKE_SA_INIT;
            datagrams.push(emit_message(&message));
        }
        datagrams.push(octets);
        prop_assert!(fuzz::check_endpoint(&frame_datagrams(&datagrams)));
    }
}

/// IPv6 Ready: EN.I.1.1.11.3, EN.R.1.1.4.1, EN.R.1.1.11.3.
#[test]
fn a_header_of_another_major_version_or_length_is_refused() {
    let mut octets = octets_with_payloads(0, &[]);
    assert_eq!(IkeMessage::parse(&octets).unwrap().payloads, []);
    octets[17] = 0x2f;
    assert!(IkeMessage::parse(&octets).is_ok(), "a higher minor version is read");
    octets[17] = 0x30;
    assert_eq!(IkeMessage::parse(&octets), Err(ParseError::MajorVersion(3)));
    octets[17] = 0x20;
    octets[27] += 1;
    assert_eq!(IkeMessage::parse(&octets), Err(ParseError::MessageLength { announced: 29, is: 28 }));
    octets[27] = 27;
    assert_eq!(IkeMessage::parse(&octets), Err(ParseError::MessageLength { announced: 27, is: 28 }));
    assert!(matches!(IkeMessage::parse(&octets[..20]), Err(ParseError::Truncated(_))));
}

#[test]
fn lengths_that_lie_are_refused() {
    assert_eq!(parse_error(43, &[0, 0, 0, 3]), ParseError::Length, "shorter than its own header");
    assert!(matches!(parse_error(43, &[0, 0, 0, 5]), ParseError::Truncated(_)), "longer than the message");
    assert_eq!(parse_error(43, &[0, 0, 0, 4, 9]), ParseError::Trailing(1), "octets after the last");
    assert!(matches!(parse_error(43, &[43, 0, 0, 4]), ParseError::Truncated(_)), "another is said to follow");
    assert_eq!(parse_error(40, &[[0, 0, 0, 19].as_slice(), &[7; 15]].concat()), ParseError::Nonce(15));
    assert_eq!(
        parse_error(42, &[0, 0, 0, 12, 3, 4, 0, 2, 1, 2, 3, 4]),
        ParseError::Delete,
        "two said, one there"
    );
    assert_eq!(parse_error(42, &[0, 0, 0, 8, 1, 8, 0, 0]), ParseError::Delete, "an IKE_SA has no SPI there");
    assert_eq!(
        parse_error(53, &[0, 0, 0, 8, 0, 3, 0, 2]),
        ParseError::Fragment { number: 3, total: 2 },
        "the third of two"
    );
    // A traffic selector for IPv4 with the length of one for IPv6.
    let long = [[0, 0, 0, 48, 1, 0, 0, 0, 7, 0, 0, 40].as_slice(), &[0; 36]].concat();
    assert_eq!(parse_error(44, &long), ParseError::Length);
}

/// IPv6 Ready: EN.I.1.1.6.3, EN.I.1.1.6.4, EN.I.1.1.6.5, EN.I.1.1.6.6, EN.I.1.2.3.4, EN.I.1.2.3.5,
/// EN.I.1.2.4.4, EN.I.1.2.4.5, EN.R.1.1.6.3, EN.R.1.1.6.4, EN.R.1.1.6.5, EN.R.1.1.6.6, EN.R.1.2.5.3,
/// EN.R.1.2.5.4, EN.R.1.2.6.5, EN.R.1.2.6.6.
#[test]
fn proposals_say_rightly_whether_others_follow() {
    // One proposal with one transform: PRF_HMAC_SHA1.
    let right = [0, 0, 0, 20, 0, 0, 0, 16, 1, 1, 0, 1, 0, 0, 0, 8, 2, 0, 0, 2];
    let message = IkeMessage::parse(&octets_with_payloads(33, &right)).unwrap();
    assert_eq!(message.to_string(), "IKE_SA_INIT request 0 [ SA ]");
    let Payload::SecurityAssociation(proposals) = &message.payloads[0] else { panic!("{message}") };
    assert_eq!(proposals[0].to_string(), "IKE:PRF_HMAC_SHA1");
    for (at, wrong) in [(4, 2), (4, 7), (12, 3), (11, 2), (11, 0), (6, 1), (7, 15), (15, 7)] {
        let mut octets = right;
        octets[at] = wrong;
        assert!(IkeMessage::parse(&octets_with_payloads(33, &octets)).is_err(), "octet {at} is {wrong}");
    }
}

/// IPv6 Ready: EN.I.1.1.4.1, EN.R.1.1.4.3.
#[test]
fn a_payload_that_must_be_understood_is_found() {
    let plain = IkeMessage::parse(&octets_with_payloads(100, &[43, 0, 0, 4, 0, 0, 0, 4])).unwrap();
    assert_eq!(plain.unsupported_critical(), None);
    let critical = IkeMessage::parse(&octets_with_payloads(100, &[43, 0x80, 0, 4, 0, 0, 0, 4])).unwrap();
    assert_eq!(critical.unsupported_critical(), Some(PayloadType(100)));
    assert_eq!(critical.payloads[0].to_string(), "payload 100");
    // For a known type, the bit has no meaning (§3.2).
    let known = IkeMessage::parse(&octets_with_payloads(43, &[0, 0x80, 0, 4])).unwrap();
    assert_eq!(known.unsupported_critical(), None);
}

#[test]
fn a_message_has_a_bounded_number_of_payloads() {
    let chain = |n: usize| {
        let mut octets = octets_with_payloads(43, &[43, 0, 0, 4].repeat(n));
        let last = octets.len() - 4;
        octets[last] = 0;
        let length = octets.len() as u32;
        octets[24..28].copy_from_slice(&length.to_be_bytes());
        octets
    };
    assert!(IkeMessage::parse(&chain(MAX_PAYLOADS)).is_ok());
    assert_eq!(IkeMessage::parse(&chain(MAX_PAYLOADS + 1)), Err(ParseError::TooMany));
}

#[test]
fn messages_are_shown_to_people() {
    let ts = TrafficSelectors::from(vec![
        TrafficSelector::from_network("10.1.2.3".parse().unwrap(), 16).unwrap(),
        TrafficSelector::from_address("10.2.0.7".parse().unwrap()),
        TrafficSelector {
            protocol: 6,
            start_port: 80,
            end_port: 80,
            ..TrafficSelector::from_range("2001:db8::1".parse().unwrap(), "2001:db8::9".parse().unwrap())
                .unwrap()
        },
        TrafficSelector {
            protocol: 17,
            start_port: u16::MAX,
            end_port: 0,
            ..TrafficSelector::from_network("::".parse().unwrap(), 0).unwrap()
        },
    ]);
    let header =
        IkeHeader { exchange: ExchangeType::IKE_AUTH, message_id: 1, response: true, ..test_header() };
    let payloads = vec![
        Payload::IdentificationResponder(Identification::of_text("gw.example")),
        Payload::IdentificationInitiator(Identification::of_text("192.0.2.7")),
        Payload::IdentificationInitiator(Identification { kind: IdType::ID_KEY_ID, data: vec![1, 0xab] }),
        Payload::Authentication { method: AuthMethod::DIGITAL_SIGNATURE, data: vec![] },
        Payload::TrafficSelectorsResponder(ts),
        Payload::Notify(NotifyPayload::for_child_sa(NotifyType::REKEY_SA, ProtocolId::ESP, 0xc0ffee)),
        Payload::Notify(NotifyPayload::new(NotifyType(40_000))),
        Payload::Delete(DeletePayload::Child { protocol: ProtocolId::ESP, spis: vec![1, 2] }),
    ];
    assert_eq!(
        IkeMessage { header, payloads }.to_string(),
        "IKE_AUTH response 1 [ IDr(gw.example) IDi(192.0.2.7) IDi(ID_KEY_ID:01ab) AUTH(DIGITAL_SIGNATURE) \
         TSr(10.1.0.0/16 10.2.0.7 2001:db8::1-2001:db8::9[6/80] ::/0[17/opaque]) N(REKEY_SA 00c0ffee) \
         N(notification 40000) D(ESP 00000001 00000002) ]"
    );
}

/// IPv6 Ready: EN.I.1.1.7.1, EN.R.1.1.7.1, EN.R.1.1.7.3.
#[test]
fn what_two_selectors_have_in_common() {
    let net = |text: &str, prefix| TrafficSelector::from_network(text.parse().unwrap(), prefix).unwrap();
    let (wide, narrow) = (net("10.0.0.0", 8), net("10.1.0.0", 16));
    assert_eq!(wide.intersection(&narrow), Some(narrow));
    assert!(wide.contains(&narrow) && !narrow.contains(&wide));
    assert_eq!(narrow.intersection(&net("10.2.0.0", 16)), None);
    assert_eq!(wide.intersection(&net("::", 0)), None, "of another family");
    let ports = |protocol, start_port, end_port| TrafficSelector { protocol, start_port, end_port, ..wide };
    assert_eq!(ports(6, 1, 90).intersection(&ports(0, 80, 99)), Some(ports(6, 80, 90)));
    assert_eq!(ports(6, 1, 90).intersection(&ports(17, 1, 90)), None);
    assert_eq!(ports(6, 1, 9).intersection(&ports(6, 10, 20)), None);
    let opaque = ports(6, u16::MAX, 0);
    assert_eq!(opaque.intersection(&ports(0, 0, u16::MAX)), Some(opaque));
    assert_eq!(ports(6, 0, u16::MAX).intersection(&opaque), Some(opaque));
    assert_eq!(opaque.intersection(&ports(6, 1, 9)), None);
    assert_eq!(opaque.intersection(&opaque), Some(opaque));
    assert_eq!(TrafficSelector::from_network("10.0.0.0".parse().unwrap(), 33), None);
    assert_eq!(net("10.9.9.9", 0).to_string(), "0.0.0.0/0");
    assert_eq!(TrafficSelector::from_range("10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()), None);
}

#[test]
fn values_of_configuration_are_read_as_addresses() {
    let v6 = ConfigurationAttribute::from_address("2001:db8::7".parse().unwrap(), 64);
    assert_eq!((v6.value.len(), v6.as_address()), (17, Some("2001:db8::7".parse().unwrap())));
    let dns = ConfigurationAttribute::from_name_server("192.0.2.53".parse().unwrap());
    assert_eq!(
        (dns.kind, dns.as_address()),
        (ConfigurationType::INTERNAL_IP4_DNS, "192.0.2.53".parse().ok())
    );
    assert_eq!(
        ConfigurationAttribute::requested_attribute(ConfigurationType::INTERNAL_IP4_ADDRESS).as_address(),
        None
    );
    let v4 = ConfigurationAttribute::from_address("192.0.2.9".parse().unwrap(), 32);
    assert_eq!((v4.internal_address(), dns.internal_address()), ("192.0.2.9".parse().ok(), None));
    let asked = ConfigurationPayload { kind: CfgType::CFG_REQUEST, attributes: vec![v6, dns.clone(), v4] };
    assert_eq!(asked.attributes_of_kind(ConfigurationType::INTERNAL_IP4_DNS).collect::<Vec<_>>(), [&dns]);
}
