//! Keys, computed a second time by their formulas.

use crate::Spi;
use crate::keys::*;
use crate::payload::Proposal;
use crate::suite::{IkeAlgorithms, PacketAlgorithms};
use usher_crypto::mac::MacAlgorithm;

fn reference_prf(algorithm: MacAlgorithm, key: &[u8], data: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    algorithm.with_key(key).append_code(data, &mut out);
    out
}

/// prf+ as RFC 7296 §2.13 writes it down.
fn reference_prf_plus(algorithm: MacAlgorithm, key: &[u8], seed: &[u8], octets: usize) -> Vec<u8> {
    let (mut all, mut last) = (Vec::new(), Vec::new());
    for n in 1u8.. {
        last = reference_prf(algorithm, key, &[&last, seed, &[n]]);
        all.extend_from_slice(&last);
        if all.len() >= octets {
            break;
        }
    }
    all.truncate(octets);
    all
}

const NI: [u8; 32] = [0xa1; 32];
const NR: [u8; 16] = [0xb2; 16];
const SEEDS: KeyDerivationInputs<'static> = KeyDerivationInputs {
    initiator_nonce: &NI,
    responder_nonce: &NR,
    initiator_spi: Spi([1; 8]),
    responder_spi: Spi([2; 8]),
};

#[test]
fn an_ike_sa_has_seven_keys_in_their_order() {
    for (words, lengths) in [
        ("aes128-sha256-modp2048", [32, 32, 32, 16, 16, 32, 32]),
        ("aes256gcm16-prfsha512-x25519", [64, 0, 0, 36, 36, 64, 64]),
        ("3des-sha1-modp1024", [20, 20, 20, 24, 24, 20, 20]),
        ("aes192-aesxcbc-ecp256", [16, 16, 16, 24, 24, 16, 16]),
    ] {
        let algorithms = IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal(words).unwrap()).unwrap();
        let keys = IkeKeys::from_key_exchange(&algorithms, b"secret", &SEEDS);
        let half = if algorithms.prf == MacAlgorithm::AesXcbc { 8 } else { 32 };
        let nonces = [&NI[..half.min(32)], &NR[..half.min(16)]].concat();
        let seed = reference_prf(algorithms.prf, &nonces, &[b"secret"]);
        let stream = [&NI[..], &NR, &[1; 8], &[2; 8]].concat();
        let all = reference_prf_plus(algorithms.prf, &seed, &stream, lengths.iter().sum());
        let mut rest = &all[..];
        let parts =
            [&keys.sk_d, &keys.sk_ai, &keys.sk_ar, &keys.sk_ei, &keys.sk_er, &keys.sk_pi, &keys.sk_pr];
        for (key, length) in parts.into_iter().zip(lengths) {
            let (want, after) = rest.split_at(length);
            assert_eq!(key[..], *want, "{words}");
            rest = after;
        }
    }
}

/// IPv6 Ready: EN.I.1.2.4.7, EN.R.1.2.6.7.
#[test]
fn a_rekeyed_ike_sa_uses_the_old_prf_and_the_new_algorithms() {
    let of = |words| IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal(words).unwrap()).unwrap();
    let (old, new) = (of("aes128-sha256-modp2048"), of("aes128-sha1-modp2048"));
    let keys = IkeKeys::from_key_exchange(&old, b"secret", &SEEDS);
    // With the secrets of additional key exchanges after the nonces (RFC 9370 §2.2.4).
    for further in [&b""[..], b"second and third"] {
        let next = keys.derive_rekeyed(old.prf, &new, (b"another", further), &SEEDS);
        let seed = reference_prf(MacAlgorithm::HmacSha256, &keys.sk_d, &[b"another", &NI, &NR, further]);
        let stream = [&NI[..], &NR, &[1; 8], &[2; 8]].concat();
        assert_eq!(next.sk_d[..], reference_prf_plus(MacAlgorithm::HmacSha1, &seed, &stream, 20));
    }
}

#[test]
fn child_sa_keys_go_initiator_first_and_cipher_before_integrity() {
    let ike = IkeAlgorithms::from_proposal(&Proposal::parse_ike_proposal("aes128-sha256-modp2048").unwrap())
        .unwrap();
    let keys = IkeKeys::from_key_exchange(&ike, b"secret", &SEEDS);
    let esp =
        PacketAlgorithms::from_proposal(&Proposal::parse_esp_proposal("aes256-sha512").unwrap()).unwrap();
    let pfs = Some(&b"pfs"[..]);
    for (secret, seed) in [
        ((None, &b""[..]), [&NI[..], &NR].concat()),
        ((pfs, b""), [b"pfs", &NI[..], &NR].concat()),
        ((pfs, b"second"), [b"pfs", &NI[..], &NR, b"second"].concat()),
    ] {
        let child = keys.derive_child_keys(ike.prf, &esp, secret, (&NI, &NR));
        let all = reference_prf_plus(ike.prf, &keys.sk_d, &seed, 2 * (32 + 64));
        assert_eq!(child.initiator.cipher[..], all[..32]);
        assert_eq!(child.initiator.integrity[..], all[32..96]);
        assert_eq!(child.responder.cipher[..], all[96..128]);
        assert_eq!(child.responder.integrity[..], all[128..]);
    }
}

#[test]
fn a_shared_key_is_padded_before_it_signs() {
    let octets = signed_octets(MacAlgorithm::HmacSha256, b"message", b"nonce", b"sk_p", b"id");
    let id = reference_prf(MacAlgorithm::HmacSha256, b"sk_p", &[b"id"]);
    assert_eq!(octets, [&b"messagenonce"[..], &id].concat());
    let inner = reference_prf(MacAlgorithm::HmacSha256, b"shared", &[b"Key Pad for IKEv2"]);
    let want = reference_prf(MacAlgorithm::HmacSha256, &inner, &[&octets]);
    assert_eq!(shared_key_auth_data(MacAlgorithm::HmacSha256, b"shared", &octets)[..], want);
}

#[test]
fn the_stream_of_keys_ends_after_255_outputs() {
    let mac = MacAlgorithm::AesXcbc.with_key(&[1; 16]);
    assert_eq!(prf_plus(&*mac, &[b"seed"], 5000).len(), 255 * 16);
    assert_eq!(prf_plus(&*mac, &[b"seed"], 0).len(), 0);
}
