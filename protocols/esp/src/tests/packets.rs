//! Sealing and opening of packets: all transforms, altered and replayed packets, the end of sequence numbers and
//! lifetimes.

use super::{all_transforms, gcm_transform, test_keys};
use crate::packet::{EncapsulatedDatagram, EspHeader, HEADER_LEN, KEEPALIVE};
use crate::sa::{DecryptedPacket, EspInboundError, EspOutboundError, SaExpiry, TrafficVolume};
use crate::transform::EspTransformError;
use crate::{EspKeys, EspTransform, InboundSa, IntegrityAlgorithm, OutboundSa, SaLifetime};
use proptest::prelude::*;
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;

fn matching_sas(transform: EspTransform, cipher: usize, lifetime: SaLifetime) -> (OutboundSa, InboundSa) {
    let keys = test_keys(&transform, cipher, 3);
    let outbound = OutboundSa::new(0x1234, transform, &keys, lifetime, [9; 32]).unwrap();
    (outbound, InboundSa::new(0x1234, transform, &keys, lifetime, 64).unwrap())
}

fn seal_data(sa: &mut OutboundSa, data: &[u8], next_header: u8) -> Vec<u8> {
    let mut buf = vec![0; sa.transform().packet_len(data.len())];
    let at = sa.transform().headroom();
    buf[at..at + data.len()].copy_from_slice(data);
    assert_eq!(sa.seal(&mut buf, data.len(), next_header), Ok(buf.len()));
    buf
}

proptest! {
    #[test]
    fn what_is_sealed_is_opened_unless_it_was_altered(
        which in 0..all_transforms().len(), data in proptest::collection::vec(any::<u8>(), 0..200), next in 0u8..59,
        skipped in 0u64..3, at: prop::sample::Index, flip in 1u8.., cut: prop::sample::Index,
    ) {
        let (transform, cipher) = all_transforms()[which];
        let (mut out, mut inward) = matching_sas(transform, cipher, SaLifetime::default());
        out.set_sequence_number(skipped);
        let packet = seal_data(&mut out, &data, next);
        prop_assert_eq!(packet.len(), transform.packet_len(data.len()));
        prop_assert!(transform.payload_len(packet.len()).unwrap() >= data.len());
        prop_assert!((packet.len() - transform.icv_len()).is_multiple_of(4));
        let header = EspHeader::parse(&packet).unwrap();
        prop_assert_eq!(header, EspHeader { spi: 0x1234, sequence: skipped as u32 + 1 });
        // Any octet but those of the SPI, by which the SA was found.
        let mut altered = packet.clone();
        let at = 4 + at.index(packet.len() - 4);
        altered[at] ^= flip;
        let refused = inward.open(&mut altered);
        let number = at < HEADER_LEN;
        prop_assert!(refused == Err(EspInboundError::Integrity) || number && refused == Err(EspInboundError::BelowWindow), "{:?}", refused);
        let mut short = packet[..cut.index(packet.len())].to_vec();
        prop_assert!(matches!(inward.open(&mut short), Err(EspInboundError::Length | EspInboundError::Integrity)));
        let mut buf = packet.clone();
        let opened = inward.open(&mut buf);
        let payload = transform.headroom()..transform.headroom() + data.len();
        let want = DecryptedPacket { payload: payload.clone(), next_header: next, sequence: skipped + 1, newest: true };
        prop_assert_eq!(opened, Ok(want));
        prop_assert_eq!(&buf[payload], &data[..]);
        prop_assert_eq!(inward.volume(), TrafficVolume { packets: 1, octets: data.len() as u64 });
        prop_assert_eq!(inward.open(&mut packet.clone()), Err(EspInboundError::Replayed));
    }
}

#[test]
fn initialization_vectors_are_not_used_twice() {
    for (transform, cipher) in all_transforms().into_iter().filter(|(transform, _)| transform.iv_len() > 0) {
        let (mut out, _) = matching_sas(transform, cipher, SaLifetime::default());
        let iv = |packet: Vec<u8>| packet[8..8 + transform.iv_len()].to_vec();
        let mut seen = std::collections::BTreeSet::new();
        let ivs: Vec<_> = (0..100).map(|_| iv(seal_data(&mut out, b"same", 4))).collect();
        assert!(ivs.iter().all(|iv| seen.insert(iv.clone())), "{transform:?}");
        // For CBC, the next IV must be unpredictable, unlike a counter.
        let counts = |iv: &[u8]| iv.iter().rev().skip(2).all(|octet| *octet == 0);
        assert_eq!(ivs.iter().any(|iv| counts(iv)), transform.integrity.is_none(), "{transform:?}");
    }
}

#[test]
fn without_extended_numbers_sealing_stops_at_the_last_number() {
    let (mut out, mut inward) = matching_sas(gcm_transform(), 20, SaLifetime::default());
    out.set_sequence_number(u64::from(u32::MAX) - 1);
    let mut last = seal_data(&mut out, b"last", 4);
    assert_eq!(out.poll_expiry(), Some(SaExpiry::Soft), "the numbers are nearly used up");
    let mut buf = [0; 64];
    assert_eq!(out.seal(&mut buf, 4, 4), Err(EspOutboundError::Expired));
    assert_eq!((buf, out.poll_expiry(), out.poll_expiry()), ([0; 64], Some(SaExpiry::Hard), None));
    assert_eq!(inward.open(&mut last).map(|opened| opened.sequence), Ok(u32::MAX.into()));
}

#[test]
fn with_extended_numbers_both_count_on_over_the_low_half() {
    for (transform, cipher) in all_transforms().into_iter().filter(|(t, _)| t.extended_sequence_numbers) {
        let (mut out, mut inward) = matching_sas(transform, cipher, SaLifetime::default());
        // Before its first packet, a receiver takes numbers near the end as older than the first.
        out.set_sequence_number(1 << 31);
        assert!(inward.open(&mut seal_data(&mut out, b"data", 4)).is_ok());
        out.set_sequence_number(u64::from(u32::MAX) - 2);
        for n in 0..5 {
            let mut packet = seal_data(&mut out, b"data", 4);
            let want = u64::from(u32::MAX) - 1 + n;
            assert_eq!(EspHeader::parse(&packet).unwrap().sequence, want as u32);
            assert_eq!(inward.open(&mut packet).map(|opened| opened.sequence), Ok(want), "{transform:?}");
        }
    }
}

#[test]
fn a_sender_that_is_ahead_by_a_whole_half_is_found_again() {
    for (transform, cipher) in all_transforms().into_iter().filter(|(t, _)| t.extended_sequence_numbers) {
        let (mut out, mut inward) = matching_sas(transform, cipher, SaLifetime::default());
        assert!(inward.open(&mut seal_data(&mut out, b"data", 4)).is_ok());
        out.set_sequence_number(3 << 32);
        let found = (0..200).find_map(|_| inward.open(&mut seal_data(&mut out, b"data", 4)).ok());
        assert_eq!(found.map(|opened| opened.sequence >> 32), Some(3), "{transform:?}");
        assert!(inward.open(&mut seal_data(&mut out, b"data", 4)).is_ok());
        // A forged packet alone has no effect.
        let mut forged = seal_data(&mut out, b"data", 4);
        forged[20] ^= 1;
        assert!((0..200).all(|_| inward.open(&mut forged.clone()) == Err(EspInboundError::Integrity)));
        assert!(inward.open(&mut seal_data(&mut out, b"data", 4)).is_ok());
    }
}

#[test]
fn lifetimes_end_softly_and_hard() {
    let lifetime = SaLifetime { soft_octets: Some(20), hard_octets: Some(40), ..SaLifetime::default() };
    let (mut out, _) = matching_sas(gcm_transform(), 20, lifetime);
    let mut said = Vec::new();
    for _ in 0..6 {
        let mut buf = [0; 64];
        said.push((out.seal(&mut buf, 10, 4).is_ok(), out.poll_expiry()));
    }
    let (soft, hard) = (Some(SaExpiry::Soft), Some(SaExpiry::Hard));
    assert_eq!(said, [(true, None), (true, soft), (true, None), (true, None), (false, hard), (false, None)]);
    assert_eq!(out.volume(), TrafficVolume { packets: 4, octets: 40 });
    let lifetime = SaLifetime { soft_packets: Some(1), hard_packets: Some(2), ..SaLifetime::default() };
    let (mut out, mut inward) = matching_sas(gcm_transform(), 20, SaLifetime::default());
    let (_, mut limited) = matching_sas(gcm_transform(), 20, lifetime);
    let packets: Vec<_> = (0..3).map(|_| seal_data(&mut out, b"data", 4)).collect();
    let taken: Vec<_> = packets.iter().map(|packet| limited.open(&mut packet.clone()).err()).collect();
    assert_eq!(taken, [None, None, Some(EspInboundError::Expired)]);
    assert_eq!((limited.poll_expiry(), limited.poll_expiry()), (hard, None));
    assert!(packets.iter().all(|packet| inward.open(&mut packet.clone()).is_ok()));
}

/// Valid and invalid padding from a peer with the keys.
#[test]
fn padding_is_read_as_it_must_be() {
    let integrity = Some(IntegrityAlgorithm { mac: MacAlgorithm::HmacSha1, len: 12 });
    let transform = EspTransform { cipher: None, integrity, extended_sequence_numbers: false };
    let keys = test_keys(&transform, 0, 3);
    let mac = MacAlgorithm::HmacSha1.with_key(&keys.integrity);
    let mut sequence = 0;
    let mut inward = InboundSa::new(0x1234, transform, &keys, SaLifetime::default(), 64).unwrap();
    let mut take = |body: &[u8]| {
        sequence += 1;
        let mut packet = [&EspHeader { spi: 0x1234, sequence }.to_octets(), body].concat();
        let mut code = [0; 12];
        mac.write_truncated(&[&packet], &mut code);
        packet.extend(code);
        inward.open(&mut packet).map(|opened| opened.payload.len())
    };
    assert_eq!(take(&[7, 7, 0, 4]), Ok(2));
    assert_eq!(take(&[7, 1, 1, 4]), Ok(1));
    assert_eq!(take(&[7, 7, 7, 1, 2, 3, 3, 4]), Ok(3));
    // Padding other than 1, 2, 3; more padding than octets; a partial block; no room for a trailer.
    assert_eq!(take(&[7, 0, 1, 4]), Err(EspInboundError::Padding));
    assert_eq!(take(&[1, 2, 3, 4]), Err(EspInboundError::Padding));
    assert_eq!(take(&[7, 7, 7, 0, 4]), Err(EspInboundError::Length));
    assert_eq!(take(&[]), Err(EspInboundError::Length));
    // Only padding, and a dummy packet.
    assert_eq!(take(&[1, 2, 2, 4]), Ok(0));
    assert_eq!(take(&[9, 9, 0, 59]), Err(EspInboundError::Dummy));
}

#[test]
fn a_dummy_is_dropped_when_it_was_found_authentic() {
    let (mut out, mut inward) = matching_sas(gcm_transform(), 20, SaLifetime::default());
    let mut buf = [0; 128];
    let length = out.seal_dummy(&mut buf, 50).unwrap();
    assert_eq!(inward.open(&mut buf[..length]), Err(EspInboundError::Dummy));
    assert_eq!(inward.open(&mut seal_data(&mut out, b"data", 4)).map(|opened| opened.sequence), Ok(2));
}

#[test]
fn an_sa_without_a_transform_that_authenticates_is_not_made() {
    let made = |transform: EspTransform, cipher: usize, integrity: usize| {
        let keys = EspKeys { cipher: vec![0; cipher].into(), integrity: vec![0; integrity].into() };
        InboundSa::new(256, transform, &keys, SaLifetime::default(), 64).err()
    };
    let cbc = EspTransform { cipher: Some(CipherAlgorithm::AesCbc), ..gcm_transform() };
    let code = |mac, len| EspTransform { integrity: Some(IntegrityAlgorithm { mac, len }), ..cbc };
    let sha1 = code(MacAlgorithm::HmacSha1, 12);
    assert_eq!(made(sha1, 16, 20), None);
    assert_eq!(made(cbc, 16, 0), Some(EspTransformError::Authentication));
    assert_eq!(
        made(EspTransform { integrity: sha1.integrity, ..gcm_transform() }, 20, 20),
        Some(EspTransformError::Authentication)
    );
    assert_eq!(
        made(EspTransform { cipher: None, integrity: None, ..gcm_transform() }, 0, 0),
        Some(EspTransformError::Authentication)
    );
    assert_eq!(made(sha1, 17, 20), Some(EspTransformError::CipherKey(CipherAlgorithm::AesCbc, 17)));
    assert_eq!(made(gcm_transform(), 16, 0), Some(EspTransformError::CipherKey(CipherAlgorithm::AesGcm, 16)));
    assert_eq!(made(sha1, 16, 19), Some(EspTransformError::IntegrityKey(MacAlgorithm::HmacSha1)));
    for length in [0, 11, 33] {
        let wrong = code(MacAlgorithm::HmacSha512, length);
        assert_eq!(made(wrong, 16, 64), Some(EspTransformError::IntegrityKey(MacAlgorithm::HmacSha512)));
    }
}

#[test]
fn a_buffer_that_is_too_short_is_the_callers_mistake() {
    let (mut out, _) = matching_sas(gcm_transform(), 20, SaLifetime::default());
    assert_eq!(out.seal(&mut [0; 39], 4, 4), Err(EspOutboundError::BufferTooShort { needed: 40, is: 39 }));
    assert_eq!(out.volume(), TrafficVolume::default());
    assert_eq!(
        (gcm_transform().payload_len(39), gcm_transform().payload_len(36), gcm_transform().payload_len(31)),
        (Some(2), Some(2), None)
    );
}

#[test]
fn datagrams_of_port_4500_are_told_apart() {
    let esp = [0, 0, 1, 0, 0, 0, 0, 1];
    assert_eq!(EncapsulatedDatagram::from_datagram(&esp), EncapsulatedDatagram::Esp(&esp));
    assert_eq!(EncapsulatedDatagram::from_datagram(&[0, 0, 0, 0, 1, 2]), EncapsulatedDatagram::Ike(&[1, 2]));
    assert_eq!(EncapsulatedDatagram::from_datagram(&KEEPALIVE), EncapsulatedDatagram::Keepalive);
    for other in [&[][..], &[0], &[0xff, 0xff], &[1, 2, 3, 4, 5, 6, 7]] {
        assert_eq!(EncapsulatedDatagram::from_datagram(other), EncapsulatedDatagram::Other);
    }
    assert_eq!(EspHeader { spi: 0xab, sequence: 9 }.to_string(), "ESP 000000ab #9");
}
