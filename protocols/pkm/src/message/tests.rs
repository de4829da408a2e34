use super::*;
use crate::{MAX_ATTRIBUTES, MAX_VALUE};
use AttributeType as A;
use proptest::prelude::*;

fn error(bytes: &[u8]) -> MessageError {
    Message::parse(bytes).unwrap_err()
}

#[test]
fn an_eap_transfer_is_its_header_and_the_packet() {
    let mut out = Vec::new();
    Owned::new(Direction::Response, Code::EapTransfer, 7)
        .with(A::EAP_PAYLOAD, &[1, 2, 0, 5, 1])
        .emit(&mut out);
    assert_eq!(out, [10, 18, 7, 28, 5, 1, 2, 0, 5, 1]);
    let m = Message::parse(&out).unwrap();
    assert_eq!((m.direction(), m.code(), m.identifier()), (Direction::Response, Code::EapTransfer, 7));
    assert_eq!(m.eap(), Some(&[1, 2, 0, 5, 1][..]));
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
        let message = Owned::new(Direction::Request, Code::EapTransfer, 0);
        message.with(A::EAP_PAYLOAD, &vec![9; length]).emit(&mut out);
        assert_eq!(&out[3..3 + header.len()], header);
        assert_eq!(Message::parse(&out).unwrap().eap().map(<[u8]>::len), Some(length));
    }
}

#[test]
fn a_longer_form_of_a_length_is_read_too() {
    let m = [9, 18, 1, 28, 0x84, 0, 0, 0, 2, 3, 4];
    assert_eq!(Message::parse(&m).unwrap().eap(), Some(&[3, 4][..]));
}

#[test]
fn what_is_no_message_says_why() {
    assert_eq!(error(&[]), MessageError::Truncated(Truncated { needed: 1, left: 0 }));
    assert_eq!(error(&[9, 18]), MessageError::Truncated(Truncated { needed: 1, left: 0 }));
    assert_eq!(error(&[4, 18, 1]), MessageError::NotPkm(4));
    assert_eq!(error(&[9, 31, 1]), MessageError::ReservedCode(31));
    assert_eq!(error(&[10, 17, 1]), MessageError::WrongWay(Direction::Response, Code::EapStart));
    assert_eq!(error(&[9, 20, 1]), MessageError::WrongWay(Direction::Request, Code::SaTekChallenge));
    assert_eq!(error(&[9, 18, 1]), MessageError::Missing(Code::EapTransfer, A::EAP_PAYLOAD));
    assert_eq!(error(&[9, 18, 1, 28, 0]), MessageError::Empty(A::EAP_PAYLOAD));
    assert_eq!(error(&[9, 18, 1, 28, 3, 1, 2]), MessageError::Truncated(Truncated { needed: 3, left: 2 }));
    assert_eq!(error(&[9, 18, 1, 28, 0x80]), MessageError::LengthOfLength(0));
    assert_eq!(error(&[9, 18, 1, 28, 0x85, 0, 0, 0, 0, 1, 1]), MessageError::LengthOfLength(5));
    assert_eq!(
        error(&[9, 18, 1, 28, 0x84, 255, 255, 255, 255]),
        MessageError::TooLong(A::EAP_PAYLOAD, 0xffff_ffff)
    );
    assert_eq!(error(&[9, 17, 1, 12, 3, 1, 2, 3]), MessageError::WrongLength(A::SAID, 3));
    // A traffic key within TEK-Parameters that ends beyond them.
    assert_eq!(error(&[9, 17, 1, 13, 3, 8, 2, 1]), MessageError::Truncated(Truncated { needed: 2, left: 1 }));
    let many = [&[9, 17, 1][..], &[200, 1, 0].repeat(MAX_ATTRIBUTES + 1)].concat();
    assert_eq!(error(&many), MessageError::TooMany);
    assert!(Message::parse(&many[..many.len() - 3]).is_ok());
}

/// The three messages of the SA-TEK handshake and the exchange of a traffic key, with what they must carry.
fn keying() -> [Owned; 5] {
    use Direction::{Request, Response};
    let handshake = |m: Owned| {
        m.with(A::BS_RANDOM, &[1; 8])
            .with(A::KEY_SEQUENCE_NUMBER, &[4])
            .with(A::AKID, &[3; 8])
            .with(A::CMAC_DIGEST, &[5; 12])
    };
    let key = |m: Owned| m.with(A::KEY_SEQUENCE_NUMBER, &[4]).with(A::SAID, &[0, 9]).with(A::NONCE, &[6; 8]);
    [
        handshake(Owned::new(Response, Code::SaTekChallenge, 1)),
        handshake(Owned::new(Request, Code::SaTekRequest, 2).with(A::SS_RANDOM, &[2; 8])),
        handshake(Owned::new(Response, Code::SaTekResponse, 2).with(A::SS_RANDOM, &[2; 8])),
        key(Owned::new(Request, Code::Pkm2KeyRequest, 3)),
        key(Owned::new(Response, Code::Pkm2KeyReply, 3))
            .with(A::TEK_PARAMETERS, &[8, 2, 7, 7, 9, 4, 0, 0, 14, 16, 10, 1, 1]),
    ]
}

#[test]
fn keying_messages_say_what_they_carry() {
    for message in keying() {
        let mut out = Vec::new();
        message.emit(&mut out);
        let view = Message::parse(&out).unwrap();
        assert_eq!(Owned::from(view), message);
        for must in message.code.required() {
            let mut less = message.clone();
            less.attributes.retain(|(kind, _)| kind != must);
            let mut out = Vec::new();
            less.emit(&mut out);
            assert_eq!(error(&out), MessageError::Missing(message.code, *must));
        }
    }
    let mut out = Vec::new();
    keying()[4].emit(&mut out);
    let reply = Message::parse(&out).unwrap();
    assert_eq!(reply.array(A::SAID), Some([0, 9]));
    assert_eq!(reply.array::<3>(A::SAID), None);
    let tek = reply.attributes().find(|a| a.kind == A::TEK_PARAMETERS).unwrap();
    let within: Vec<_> = tek.nested().map(|a| (a.kind, a.value.len())).collect();
    assert_eq!(within, [(A::TEK, 2), (A::KEY_LIFETIME, 4), (A::KEY_SEQUENCE_NUMBER, 1)]);
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
            Owned::new(direction, Code::EapTransfer, identifier).with(A::EAP_PAYLOAD, &eap);
        message.attributes.extend(others.into_iter().map(|(kind, value)| (AttributeType(kind), value)));
        let mut out = Vec::new();
        message.emit(&mut out);
        prop_assert_eq!(Owned::from(Message::parse(&out).unwrap()), message);
        prop_assert!(crate::fuzz::message(&out));
    }
    #[test]
    fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
        prop_assert!(crate::fuzz::message(&bytes));
    }
    #[test]
    fn arbitrary_attributes_never_panic(request: bool, code in 0u8..32, bytes: Vec<u8>) {
        let message = [&[if request { 9 } else { 10 }, code, 0][..], &bytes].concat();
        prop_assert!(crate::fuzz::message(&message));
    }
    #[test]
    fn a_spoiled_message_never_panics(which in 0usize..5, at: prop::sample::Index, octet: u8) {
        let mut out = Vec::new();
        keying()[which].emit(&mut out);
        let at = at.index(out.len());
        out[at] = octet;
        prop_assert!(crate::fuzz::message(&out));
    }
}
