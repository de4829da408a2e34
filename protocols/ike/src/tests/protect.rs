//! Messages under keys.

use super::arbitrary;
use crate::code::PayloadType;
use crate::payload::{Payload, Proposal, parse_chain};
use crate::protect::{MessageProtection, SealedMessage};
use crate::suite::IkeAlgorithms;
use proptest::prelude::*;
use usher_core::SecureRng;

const SUITES: [&str; 5] = [
    "aes128-sha256-modp2048",
    "aes256gcm16-prfsha384-x25519",
    "chacha20poly1305-prfsha256-x25519",
    "3des-sha1-modp1024",
    "aes192-aesxcbc-modp2048",
];

fn test_protection(words: &str, fill: u8) -> MessageProtection {
    let packets =
        IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal(words).unwrap()).unwrap().packets;
    // 3DES needs distinct keys, or it is DES.
    let cipher: Vec<u8> = (0..packets.cipher_key as u8).map(|n| n ^ fill).collect();
    MessageProtection::new(&packets, &cipher, &vec![fill; packets.integrity_key()]).unwrap()
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened_in_fragments_too(
        suite in 0..SUITES.len(), header in arbitrary::any_header(),
        payloads in proptest::collection::vec(arbitrary::any_payload(), 0..8), limit in 0usize..400,
    ) {
        let (mut ours, other) = (test_protection(SUITES[suite], 1), test_protection(SUITES[suite], 2));
        let mut rng = SecureRng::from_seed([5; 32]);
        let limit = Some(limit).filter(|limit| *limit > 150);
        let datagrams = ours.seal(&header, &payloads, limit, &mut rng);
        let (mut content, mut first) = (Vec::new(), PayloadType::NONE);
        for (n, datagram) in datagrams.iter().enumerate() {
            prop_assert!(limit.is_none_or(|limit| datagram.len() <= limit));
            let sealed = SealedMessage::from_octets(datagram).unwrap().unwrap();
            prop_assert_eq!(sealed.header, header);
            prop_assert_eq!(sealed.fragment.is_some(), datagrams.len() > 1);
            if let Some((number, total)) = sealed.fragment {
                prop_assert_eq!((usize::from(number), usize::from(total)), (n + 1, datagrams.len()));
            }
            if n == 0 {
                first = sealed.first;
            }
            prop_assert_eq!(other.open(&sealed), None);
            content.extend(ours.open(&sealed).unwrap());
        }
        prop_assert_eq!(parse_chain(first, &content).unwrap(), payloads);
    }

    #[test]
    fn octets_that_are_no_message_of_ours_are_not_opened(suite in 0..SUITES.len(), mut octets: Vec<u8>, skf: bool) {
        let mut message = vec![0; 28];
        (message[16], message[17]) = (if skf { 53 } else { 46 }, 0x20);
        let length = octets.len() as u16 + 4;
        message.extend([0, 0]);
        message.extend(length.to_be_bytes());
        message.append(&mut octets);
        let whole = message.len() as u32;
        message[24..28].copy_from_slice(&whole.to_be_bytes());
        if let Ok(Some(sealed)) = SealedMessage::from_octets(&message) {
            prop_assert_eq!(test_protection(SUITES[suite], 1).open(&sealed), None);
        }
    }
}

/// As the figure of RFC 9242 §3.3.2: header and Encrypted payload with the lengths of the plaintext.
#[test]
fn a_message_has_a_plain_form() {
    let header = crate::IkeHeader {
        initiator_spi: crate::Spi([1; 8]),
        responder_spi: crate::Spi([2; 8]),
        exchange: crate::code::ExchangeType::IKE_INTERMEDIATE,
        initiator: true,
        response: false,
        higher_version: false,
        message_id: 1,
    };
    let plain = crate::protect::unencrypted_message_octets(&header, PayloadType::KE, b"content");
    let (before, after) = plain.split_at(28);
    assert_eq!((before[16], before[18], &before[20..]), (46, 43, &[0, 0, 0, 1, 0, 0, 0, 39][..]));
    assert_eq!(after, [&[34, 0, 0, 11][..], b"content"].concat());
}

#[test]
fn no_initialization_vector_comes_twice() {
    for words in SUITES {
        let mut ours = test_protection(words, 1);
        let mut rng = SecureRng::from_seed([5; 32]);
        let header = crate::IkeHeader {
            initiator_spi: crate::Spi([1; 8]),
            responder_spi: crate::Spi([2; 8]),
            exchange: crate::code::ExchangeType::INFORMATIONAL,
            initiator: true,
            response: false,
            higher_version: false,
            message_id: 2,
        };
        let payloads = [Payload::VendorId(vec![7; 40])];
        let [a, b] = [(); 2].map(|()| ours.seal(&header, &payloads, None, &mut rng).remove(0));
        assert_ne!(a[32..40], b[32..40], "{words}");
        assert_ne!(a[40..], b[40..], "{words}");
    }
}
