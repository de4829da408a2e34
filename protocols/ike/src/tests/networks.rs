//! Networks as traffic selectors, and initialization vectors of ciphers.

use crate::header::IkeHeader;
use crate::payload::{Proposal, TrafficSelector};
use crate::protect::MessageProtection;
use crate::suite::IkeAlgorithms;
use proptest::strategy::{Strategy, ValueTree};
use usher_core::SecureRng;

#[test]
fn a_network_begins_and_ends_where_its_prefix_says() {
    let of = |address: &str, prefix| {
        let selector = TrafficSelector::from_network(address.parse().unwrap(), prefix)?;
        assert_eq!((selector.protocol, selector.start_port, selector.end_port), (0, 0, u16::MAX));
        Some((selector.start.to_string(), selector.end.to_string()))
    };
    let is = |start: &str, end: &str| Some((start.to_owned(), end.to_owned()));
    assert_eq!(of("10.1.2.3", 16), is("10.1.0.0", "10.1.255.255"));
    assert_eq!(of("10.1.2.3", 32), is("10.1.2.3", "10.1.2.3"));
    assert_eq!(of("10.1.2.3", 0), is("0.0.0.0", "255.255.255.255"));
    assert_eq!(of("2001:db8:1:2::5", 48), is("2001:db8:1::", "2001:db8:1:ffff:ffff:ffff:ffff:ffff"));
    assert_eq!(of("2001:db8::5", 128), is("2001:db8::5", "2001:db8::5"));
    assert_eq!(of("::", 0), is("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    assert_eq!((of("10.1.2.3", 33), of("2001:db8::", 129)), (None, None));
}

/// RFC 5282 section 3.1, RFC 7634 section 2: a vector of eight octets that is never used twice, which a counter is; RFC 7296
/// section 3.14: one that cannot be guessed with CBC.
#[test]
fn vectors_count_for_aead_ciphers_and_are_random_for_cbc() {
    for (words, counts, octets) in [
        ("aes256gcm16-prfsha384-x25519", true, 8),
        ("chacha20poly1305-prfsha256-x25519", true, 8),
        ("aes128-sha256-modp2048", false, 16),
    ] {
        let packets =
            IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal(words).unwrap()).unwrap().packets;
        let mut ours =
            MessageProtection::new(&packets, &vec![7; packets.cipher_key], &vec![7; packets.integrity_key()])
                .unwrap();
        let mut rng = SecureRng::from_seed([5; 32]);
        let header =
            super::arbitrary::any_header().new_tree(&mut proptest::test_runner::TestRunner::deterministic());
        let header: IkeHeader = header.unwrap().current();
        let vectors: Vec<Vec<u8>> = (0..3)
            .map(|_| {
                let datagram = ours.seal(&header, &[], None, &mut rng).remove(0);
                // After the headers of the message and of its one payload.
                datagram[32..32 + octets].to_vec()
            })
            .collect();
        let counted: Vec<Vec<u8>> = (1..4u64).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(vectors == counted, counts, "{words}: {vectors:?}");
        assert!(vectors[0] != vectors[1] && vectors[1] != vectors[2]);
    }
}
