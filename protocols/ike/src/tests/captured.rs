//! strongSwan's messages in `vectors/ike`: decrypted, parsed, and written again octet for octet.

use crate::code::*;
use crate::payload::*;
use crate::protect::{MessageProtection, SealedMessage};
use crate::suite::{IkeAlgorithms, PacketAlgorithms};
use crate::*;
use usher_core::SecureRng;

/// Parses hexadecimal digits.
pub(crate) fn octets_from_hex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

const ALL: [(&str, &str); 5] = [
    ("psk", include_str!("../../../../vectors/ike/psk.txt")),
    ("pubkey", include_str!("../../../../vectors/ike/pubkey.txt")),
    ("eapmd5", include_str!("../../../../vectors/ike/eapmd5.txt")),
    ("eapmschapv2", include_str!("../../../../vectors/ike/eapmschapv2.txt")),
    ("tls22", include_str!("../../../../vectors/ike/tls22.txt")),
];

fn packet_algorithms() -> PacketAlgorithms {
    IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal("aes128-sha256-modp2048").unwrap())
        .unwrap()
        .packets
}

/// The messages of a file, decrypted and reassembled, each with its sender and its octets.
fn read_messages(text: &str) -> Vec<(bool, IkeMessage)> {
    let mut lines = text.lines();
    let keys: Vec<_> = lines.next().unwrap().split(' ').skip(1).map(octets_from_hex).collect();
    let of = |cipher: usize, mac: usize| {
        MessageProtection::new(&packet_algorithms(), &keys[cipher], &keys[mac]).unwrap()
    };
    let sides = [of(0, 2), of(1, 3)];
    let (mut all, mut parts, mut first) = (Vec::new(), Vec::new(), PayloadType::NONE);
    for line in lines {
        let (who, hex) = line.split_once(' ').unwrap();
        let (initiator, whole) = (who == "i", octets_from_hex(hex));
        let Some(sealed) = SealedMessage::from_octets(&whole).unwrap() else {
            let message = IkeMessage::parse(&whole).unwrap();
            let mut again = Vec::new();
            message.emit(&mut again);
            assert_eq!(again, whole, "{message}");
            all.push((initiator, message));
            continue;
        };
        // The outer message is parsed and written too.
        let outer = IkeMessage::parse(&whole).unwrap();
        let mut again = Vec::new();
        outer.emit(&mut again);
        assert_eq!(again, whole, "{outer}");
        let content = sides[usize::from(!initiator)].open(&sealed).expect("its checksum is right");
        assert_eq!(sides[usize::from(initiator)].open(&sealed), None, "under the other side's key it is not");
        parts.extend_from_slice(&content);
        if sealed.fragment.is_none_or(|(number, _)| number == 1) {
            first = sealed.first;
        }
        if sealed.fragment.is_none_or(|(number, total)| number == total) {
            let payloads = parse_chain(first, &parts).unwrap();
            let mut again = Vec::new();
            emit_chain(&payloads, &mut usher_core::OctetWriter::new(&mut again));
            assert_eq!(again, parts);
            parts.clear();
            all.push((initiator, IkeMessage { header: sealed.header, payloads }));
        }
    }
    assert!(parts.is_empty(), "no fragment is left over");
    all
}

#[test]
fn messages_of_strongswan_are_deciphered_and_written_again() {
    for ((name, text), count) in ALL.into_iter().zip([6, 6, 12, 14, 24]) {
        let messages = read_messages(text);
        assert_eq!(messages.len(), count, "{name}");
        for (n, (initiator, message)) in messages.iter().enumerate() {
            assert_eq!(
                (*initiator, message.header.message_id),
                (n % 2 == 0, n as u32 / 2),
                "{name}: {message}"
            );
            assert_eq!((message.header.initiator, message.header.response), (*initiator, !*initiator));
        }
    }
}

#[test]
fn a_login_by_a_shared_key_reads_as_it_should() {
    let shown: Vec<_> = read_messages(ALL[0].1).iter().map(|(_, message)| message.to_string()).collect();
    assert_eq!(
        shown,
        [
            "IKE_SA_INIT request 0 [ SA KE(MODP_2048) No N(NAT_DETECTION_SOURCE_IP) N(NAT_DETECTION_DESTINATION_IP) \
             N(IKEV2_FRAGMENTATION_SUPPORTED) N(SIGNATURE_HASH_ALGORITHMS) N(REDIRECT_SUPPORTED) ]",
            "IKE_SA_INIT response 0 [ SA KE(MODP_2048) No N(NAT_DETECTION_SOURCE_IP) N(NAT_DETECTION_DESTINATION_IP) \
             N(IKEV2_FRAGMENTATION_SUPPORTED) N(SIGNATURE_HASH_ALGORITHMS) N(CHILDLESS_IKEV2_SUPPORTED) \
             N(notification 16404) ]",
            "IKE_AUTH request 1 [ IDi(ini@h2.test) IDr(gw.h2.test) AUTH(SHARED_KEY_MESSAGE_INTEGRITY_CODE) \
             N(ESP_TFC_PADDING_NOT_SUPPORTED) SA TSi(10.93.1.1) TSr(10.93.2.1) N(notification 16404) \
             N(EAP_ONLY_AUTHENTICATION) N(notification 16420) ]",
            "IKE_AUTH response 1 [ IDr(gw.h2.test) AUTH(SHARED_KEY_MESSAGE_INTEGRITY_CODE) \
             N(ESP_TFC_PADDING_NOT_SUPPORTED) SA TSi(10.93.1.1) TSr(10.93.2.1) ]",
            "INFORMATIONAL request 2 [ D(IKE) ]",
            "INFORMATIONAL response 2 [ ]",
        ]
    );
}

#[test]
fn a_message_is_not_opened_once_an_octet_has_changed() {
    let text = ALL[0].1;
    let keys: Vec<_> = text.lines().next().unwrap().split(' ').skip(1).map(octets_from_hex).collect();
    let side = MessageProtection::new(&packet_algorithms(), &keys[0], &keys[2]).unwrap();
    let right = octets_from_hex(text.lines().nth(3).unwrap().split_once(' ').unwrap().1);
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        if let Ok(Some(sealed)) = SealedMessage::from_octets(&wrong) {
            assert_eq!(side.open(&sealed), None, "octet {at}");
        }
    }
    let mut side = side;
    let sealed = SealedMessage::from_octets(&right).unwrap().unwrap();
    let payloads = parse_chain(sealed.first, &side.open(&sealed).unwrap()).unwrap();
    let again = side.seal(&sealed.header, &payloads, None, &mut SecureRng::from_seed([1; 32]));
    assert_eq!(again[0].len(), right.len(), "the same payloads make a message of the same length");
}
