//! Test vectors of the RFCs, octet by octet.

use super::octets_from_hex;
use crate::sa::DecryptedPacket;
use crate::{EspKeys, EspTransform, InboundSa, IntegrityAlgorithm, OutboundSa, SaLifetime};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;

fn outbound_sa(spi: u32, transform: EspTransform, keys: &EspKeys) -> OutboundSa {
    OutboundSa::new(spi, transform, keys, SaLifetime::default(), [0; 32]).unwrap()
}

#[test]
fn chacha20_poly1305_is_that_of_rfc_7634_appendix_a() {
    let cipher = Some(CipherAlgorithm::ChaCha20Poly1305);
    let transform = EspTransform { cipher, integrity: None, extended_sequence_numbers: false };
    let key: Vec<u8> = (0x80..=0xa3).collect();
    let keys = EspKeys { cipher: key.into(), integrity: Vec::new().into() };
    let source = octets_from_hex(
        "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec100007362708090a0b0c0d0e0f10111213
         1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
    );
    let ciphertext = octets_from_hex(
        "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f7
         2aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0",
    );
    let iv = octets_from_hex("1011121314151617");
    let mut buf = vec![0; transform.packet_len(source.len())];
    buf[16..16 + source.len()].copy_from_slice(&source);
    let length = outbound_sa(0x01020304, transform, &keys).seal_with_sequence_and_iv(
        &mut buf,
        source.len(),
        4,
        5,
        &iv,
    );
    assert_eq!(buf[..16], [octets_from_hex("0102030400000005"), iv].concat());
    assert_eq!(buf[16..length - 16], ciphertext);
    assert_eq!(buf[length - 16..], octets_from_hex("76aaa8266b7fb0f7b11b369907e1ad43"));
    let mut sa = InboundSa::new(0x01020304, transform, &keys, SaLifetime::default(), 64).unwrap();
    let opened =
        DecryptedPacket { payload: 16..16 + source.len(), next_header: 4, sequence: 5, newest: true };
    assert_eq!(sa.open(&mut buf), Ok(opened));
    assert_eq!(buf[16..16 + source.len()], source);
}

/// The four packets of RFC 3602 §4 have no ICV, so the comparison ends before it.
#[test]
fn aes_cbc_is_that_of_rfc_3602() {
    let cases = [
        (
            "90d382b410eeba7ad938c46cec1a82bf", 0x4321, 1, "e96e8c08ab465763fd098d45dd3ff893", 1,
            "08000ebd a70a0000 8e9c083d b95b0700 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f 20212223
             24252627 28292a2b 2c2d2e2f 30313233 34353637",
            "f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856a4699e523a55db080b59ec3a8e4b7e52
             775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6",
        ),
        (
            "90d382b410eeba7ad938c46cec1a82bf", 0x4321, 8, "69d08df7d203329db093fc4924e5bd80", 1,
            "0800b5e8a80a0500a69c083d0b660e00777777777777777777777777",
            "f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75",
        ),
        (
            "0123456789abcdef0123456789abcdef", 0x8765, 2, "f4e765244f6407adf13dc1380f673f37", 4,
            "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b0c0d0e0f10111213
             1415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637",
            "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad7a0f022b859243c6
             47752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d",
        ),
        (
            "0123456789abcdef0123456789abcdef", 0x8765, 5, "85d47224b5f3dd5d2101d4ea8dffab22", 4,
            "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffffffffffffffffffff
             ffffffffffffffffffffffffffffffffffffffff",
            "15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb50f980a08c9843fd3a1b06d5c07ff9639
             b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc6d17a0de cbb13892",
        ),
    ];
    let integrity = Some(IntegrityAlgorithm { mac: MacAlgorithm::HmacSha1, len: 12 });
    let cipher = Some(CipherAlgorithm::AesCbc);
    let transform = EspTransform { cipher, integrity, extended_sequence_numbers: false };
    for (key, spi, sequence, iv, next_header, data, encrypted) in cases {
        let keys = EspKeys { cipher: octets_from_hex(key).into(), integrity: vec![0; 20].into() };
        let (data, iv, encrypted) = (octets_from_hex(data), octets_from_hex(iv), octets_from_hex(encrypted));
        let mut buf = vec![0; transform.packet_len(data.len())];
        buf[24..24 + data.len()].copy_from_slice(&data);
        let length = outbound_sa(spi, transform, &keys).seal_with_sequence_and_iv(
            &mut buf,
            data.len(),
            next_header,
            sequence,
            &iv,
        );
        assert_eq!(buf[..8], (u64::from(spi) << 32 | sequence).to_be_bytes());
        assert_eq!((&buf[8..24], &buf[24..length - 12]), (&iv[..], &encrypted[..]), "{sequence}");
    }
}
