use super::*;
use crate::{MAX_ATTRIBUTES, MAX_VALUE};
use proptest::prelude::*;

fn parse_error(bytes: &[u8]) -> MessageError {
    PkmMessage::parse(bytes).unwrap_err()
}

#[test]
fn an_eap_transfer_is_its_header_and_the_packet() {
    let mut out = Vec::new();
    OwnedPkmMessage::new(Direction::Response, Code::EapTransfer, 7)
        .with_attribute(AttributeType::EAP_PAYLOAD, &[1, 2, 0, 5, 1])
        .emit(&mut out);
    assert_eq!(out, [10, 18, 7, 28, 5, 1, 2, 0, 5, 1]);
    let m = PkmMessage::parse(&out).unwrap();
    assert_eq!((m.direction(), m.code(), m.identifier()), (Direction::Response, Code::EapTransfer, 7));
    assert_eq!(m.eap_packet(), Some(&[1, 2, 0, 5, 1][..]));
    assert_eq!(m.to_string(), "PKM-RSP 7 EAP-Transfer: EAP-Payload 5");
}

#[test]
fn a_length_takes_the_octets_that_it_needs() {
    for (length, header) in [
        (127, &[28, 127][..]),
        (128, &[28, 0x81, 128]),
        (255, &[28, 0x81, 255]),
        (256, &[28, 0x82, 1, 0]),
        (1400, &[28, 0x82, 5, 120]),
        (MAX_VALUE, &[28, 0x82, 0xfa, 0]),
    ] {
        let mut out = Vec::new();
        let message = OwnedPkmMessage::new(Direction::Request, Code::EapTransfer, 0);
        message.with_attribute(AttributeType::EAP_PAYLOAD, &vec![9; length]).emit(&mut out);
        assert_eq!(&out[3..3 + header.len()], header);
        assert_eq!(PkmMessage::parse(&out).unwrap().eap_packet().map(<[u8]>::len), Some(length));
    }
}

#[test]
fn a_longer_form_of_a_length_is_read_too() {
    let m = [9, 18, 1, 28, 0x84, 0, 0, 0, 2, 3, 4];
    assert_eq!(PkmMessage::parse(&m).unwrap().eap_packet(), Some(&[3, 4][..]));
}

#[test]
fn what_is_no_message_says_why() {
    assert_eq!(parse_error(&[]), MessageError::Truncated(TruncatedInputError { needed: 1, left: 0 }));
    assert_eq!(parse_error(&[9, 18]), MessageError::Truncated(TruncatedInputError { needed: 1, left: 0 }));
    assert_eq!(parse_error(&[4, 18, 1]), MessageError::NotPkm(4));
    assert_eq!(parse_error(&[9, 31, 1]), MessageError::ReservedCode(31));
    assert_eq!(parse_error(&[10, 17, 1]), MessageError::WrongDirection(Direction::Response, Code::EapStart));
    assert_eq!(
        parse_error(&[9, 20, 1]),
        MessageError::WrongDirection(Direction::Request, Code::SaTekChallenge)
    );
    assert_eq!(
        parse_error(&[9, 18, 1]),
        MessageError::Missing(Code::EapTransfer, AttributeType::EAP_PAYLOAD)
    );
    assert_eq!(parse_error(&[9, 18, 1, 28, 0]), MessageError::Empty(AttributeType::EAP_PAYLOAD));
    assert_eq!(
        parse_error(&[9, 18, 1, 28, 3, 1, 2]),
        MessageError::Truncated(TruncatedInputError { needed: 3, left: 2 })
    );
    assert_eq!(parse_error(&[9, 18, 1, 28, 0x80]), MessageError::LengthFieldSize(0));
    assert_eq!(parse_error(&[9, 18, 1, 28, 0x85, 0, 0, 0, 0, 1, 1]), MessageError::LengthFieldSize(5));
    assert_eq!(
        parse_error(&[9, 18, 1, 28, 0x84, 255, 255, 255, 255]),
        MessageError::TooLong(AttributeType::EAP_PAYLOAD, 0xffff_ffff)
    );
    assert_eq!(parse_error(&[9, 17, 1, 12, 3, 1, 2, 3]), MessageError::WrongLength(AttributeType::SAID, 3));
    // A traffic key within TEK-Parameters that ends beyond them.
    assert_eq!(
        parse_error(&[9, 17, 1, 13, 3, 8, 2, 1]),
        MessageError::Truncated(TruncatedInputError { needed: 2, left: 1 })
    );
    let many = [&[9, 17, 1][..], &[200, 1, 0].repeat(MAX_ATTRIBUTES + 1)].concat();
    assert_eq!(parse_error(&many), MessageError::TooMany);
    assert!(PkmMessage::parse(&many[..many.len() - 3]).is_ok());
}

/// The three messages of the SA-TEK handshake and the traffic key exchange, with their mandatory attributes.
fn keying_messages() -> [OwnedPkmMessage; 5] {
    use Direction::{Request, Response};
    let handshake = |m: OwnedPkmMessage| {
        m.with_attribute(AttributeType::BS_RANDOM, &[1; 8])
            .with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[4])
            .with_attribute(AttributeType::AKID, &[3; 8])
            .with_attribute(AttributeType::CMAC_DIGEST, &[5; 12])
    };
    let key = |m: OwnedPkmMessage| {
        m.with_attribute(AttributeType::KEY_SEQUENCE_NUMBER, &[4])
            .with_attribute(AttributeType::SAID, &[0, 9])
            .with_attribute(AttributeType::NONCE, &[6; 8])
    };
    [
        handshake(OwnedPkmMessage::new(Response, Code::SaTekChallenge, 1)),
        handshake(
            OwnedPkmMessage::new(Request, Code::SaTekRequest, 2)
                .with_attribute(AttributeType::SS_RANDOM, &[2; 8]),
        ),
        handshake(
            OwnedPkmMessage::new(Response, Code::SaTekResponse, 2)
                .with_attribute(AttributeType::SS_RANDOM, &[2; 8]),
        ),
        key(OwnedPkmMessage::new(Request, Code::Pkm2KeyRequest, 3)),
        key(OwnedPkmMessage::new(Response, Code::Pkm2KeyReply, 3))
            .with_attribute(AttributeType::TEK_PARAMETERS, &[8, 2, 7, 7, 9, 4, 0, 0, 14, 16, 10, 1, 1]),
    ]
}

#[test]
fn keying_messages_say_what_they_carry() {
    for message in keying_messages() {
        let mut out = Vec::new();
        message.emit(&mut out);
        let view = PkmMessage::parse(&out).unwrap();
        assert_eq!(OwnedPkmMessage::from(view), message);
        for must in message.code.required() {
            let mut less = message.clone();
            less.attributes.retain(|(kind, _)| kind != must);
            let mut out = Vec::new();
            less.emit(&mut out);
            assert_eq!(parse_error(&out), MessageError::Missing(message.code, *must));
        }
    }
    let mut out = Vec::new();
    keying_messages()[4].emit(&mut out);
    let reply = PkmMessage::parse(&out).unwrap();
    assert_eq!(reply.get_fixed_length_attribute(AttributeType::SAID), Some([0, 9]));
    assert_eq!(reply.get_fixed_length_attribute::<3>(AttributeType::SAID), None);
    let tek = reply.attributes().find(|a| a.kind == AttributeType::TEK_PARAMETERS).unwrap();
    let within: Vec<_> = tek.nested_attributes().map(|a| (a.kind, a.value.len())).collect();
    assert_eq!(
        within,
        [(AttributeType::TEK, 2), (AttributeType::KEY_LIFETIME, 4), (AttributeType::KEY_SEQUENCE_NUMBER, 1)]
    );
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(
        identifier: u8,
        request: bool,
        eap in prop::collection::vec(any::<u8>(), 1..1500),
        others in prop::collection::vec((100u8.., prop::collection::vec(any::<u8>(), 1..300)), 0..8),
    ) {
        let direction = if request { Direction::Request } else { Direction::Response };
        let mut message =
            OwnedPkmMessage::new(direction, Code::EapTransfer, identifier).with_attribute(AttributeType::EAP_PAYLOAD, &eap);
        message.attributes.extend(others.into_iter().map(|(kind, value)| (AttributeType(kind), value)));
        let mut out = Vec::new();
        message.emit(&mut out);
        prop_assert_eq!(OwnedPkmMessage::from(PkmMessage::parse(&out).unwrap()), message);
        prop_assert!(crate::fuzz::check_message(&out));
    }
    #[test]
    fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
        prop_assert!(crate::fuzz::check_message(&bytes));
    }
    #[test]
    fn arbitrary_attributes_never_panic(request: bool, code in 0u8..32, bytes: Vec<u8>) {
        let message = [&[if request { 9 } else { 10 }, code, 0][..], &bytes].concat();
        prop_assert!(crate::fuzz::check_message(&message));
    }
    #[test]
    fn a_spoiled_message_never_panics(which in 0usize..5, at: prop::sample::Index, octet: u8) {
        let mut out = Vec::new();
        keying_messages()[which].emit(&mut out);
        let at = at.index(out.len());
        out[at] = octet;
        prop_assert!(crate::fuzz::check_message(&out));
    }
}
