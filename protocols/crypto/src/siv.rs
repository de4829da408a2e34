//! AES-SIV (RFC 5297) with the keys of AEAD_AES_SIV_CMAC_256: authenticated encryption without a nonce. Equal texts
//! under one key give equal ciphertexts, which reveals their equality and nothing else.

use crate::SecretValue;
use crate::aes::{LEN, cmac};
use crate::digest::constant_time_eq;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use alloc::vec::Vec;

/// The octets that a ciphertext adds to its text.
pub const OVERHEAD: usize = LEN;

/// A key: the first half authenticates, the second half encrypts (§2.2).
pub type SivKey = SecretValue<[u8; 2 * LEN]>;

/// Doubles in GF(2^128) (§2.3).
fn double_block(block: [u8; LEN]) -> [u8; LEN] {
    let number = u128::from_be_bytes(block);
    let reduced = if number >> 127 == 1 { 0x87 } else { 0 };
    (number << 1 ^ reduced).to_be_bytes()
}

fn xor_blocks(a: [u8; LEN], b: [u8; LEN]) -> [u8; LEN] {
    (u128::from_be_bytes(a) ^ u128::from_be_bytes(b)).to_be_bytes()
}

/// Computes S2V (§2.4) of associated data and text.
fn s2v(key: &[u8; LEN], associated: &[&[u8]], text: &[u8]) -> [u8; LEN] {
    let mut d = cmac(key, &[&[0; LEN]]);
    for part in associated {
        d = xor_blocks(double_block(d), cmac(key, &[part]));
    }
    match text.split_last_chunk::<LEN>() {
        Some((before, last)) => cmac(key, &[before, &xor_blocks(*last, d)]),
        None => {
            let mut padded = [0; LEN];
            padded[..text.len()].copy_from_slice(text);
            padded[text.len()] = 0x80;
            cmac(key, &[&xor_blocks(double_block(d), padded)])
        }
    }
}

/// Encrypts or decrypts in counter mode (§2.5).
fn apply_ctr(key: &[u8; LEN], iv: &[u8; LEN], data: &mut [u8]) {
    let cipher = Aes128::new(key.into());
    // RFC 5297, 2.5: bits 31 and 63 are zero, so that an implementation may count in words.
    let begin = u128::from_be_bytes(*iv) & !(1 << 63 | 1 << 31);
    for (i, chunk) in (0..).zip(data.chunks_mut(LEN)) {
        let mut block = begin.wrapping_add(i).to_be_bytes().into();
        cipher.encrypt_block(&mut block);
        chunk.iter_mut().zip(block).for_each(|(octet, key)| *octet ^= key);
    }
}

fn split_siv_key(key: &SivKey) -> (SecretValue<[u8; LEN]>, SecretValue<[u8; LEN]>) {
    let (mut mac, mut cipher) = (SecretValue::new([0; LEN]), SecretValue::new([0; LEN]));
    mac.copy_from_slice(&key[..LEN]);
    cipher.copy_from_slice(&key[LEN..]);
    (mac, cipher)
}

/// Encrypts a text. Decryption needs the same key and associated data.
#[must_use]
pub fn seal(key: &SivKey, associated: &[&[u8]], text: &[u8]) -> Vec<u8> {
    let (mac, cipher) = split_siv_key(key);
    let iv = s2v(&mac, associated, text);
    let mut sealed = Vec::with_capacity(OVERHEAD + text.len());
    sealed.extend_from_slice(&iv);
    sealed.extend_from_slice(text);
    apply_ctr(&cipher, &iv, &mut sealed[OVERHEAD..]);
    sealed
}

/// Returns the text that [`seal`] encrypted; `None` if key or associated data differ or the ciphertext was altered.
#[must_use]
pub fn open(key: &SivKey, associated: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
    let (mac, cipher) = split_siv_key(key);
    let (iv, text) = sealed.split_first_chunk::<LEN>()?;
    let mut text = text.to_vec();
    apply_ctr(&cipher, iv, &mut text);
    constant_time_eq(&s2v(&mac, associated, &text), iv).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex_octets(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }
    fn hex_key(hex: &str) -> SivKey {
        SecretValue::new(hex_octets(hex).try_into().unwrap())
    }

    /// A.1, without a nonce.
    #[test]
    fn the_deterministic_vector_of_rfc_5297() {
        let key = hex_key("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        let associated = hex_octets("101112131415161718191a1b1c1d1e1f2021222324252627");
        let text = hex_octets("112233445566778899aabbccddee");
        let sealed = hex_octets("85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c");
        assert_eq!(seal(&key, &[&associated], &text), sealed);
        assert_eq!(open(&key, &[&associated], &sealed), Some(text));
    }

    /// A.2, with two parts of associated data, then a nonce.
    #[test]
    fn the_nonce_based_vector_of_rfc_5297() {
        let key = hex_key("7f7e7d7c7b7a79787776757473727170404142434445464748494a4b4c4d4e4f");
        let associated = [
            "00112233445566778899aabbccddeeffdeaddadadeaddadaffeeddccbbaa99887766554433221100",
            "102030405060708090a0",
            "09f911029d74e35bd84156c5635688c0",
        ]
        .map(hex_octets);
        let associated: Vec<&[u8]> = associated.iter().map(Vec::as_slice).collect();
        let text = b"this is some plaintext to encrypt using SIV-AES";
        let sealed = hex_octets(
            "7bdb6e3b432667eb06f4d14bff2fbd0fcb900f2fddbe404326601965c889bf17dba77ceb094fa663b7a3f748ba8af829\
             ea64ad544a272e9c485b62a3fd5c0d",
        );
        assert_eq!(seal(&key, &associated, text), sealed);
        assert_eq!(open(&key, &associated, &sealed), Some(text.to_vec()));
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_and_nothing_else(
            text in proptest::collection::vec(any::<u8>(), 0..100), secret: [u8; 32], at in 0usize..200, bit in 0u8..8,
        ) {
            let key = SecretValue::new(secret);
            let mut sealed = seal(&key, &[b"a"], &text);
            prop_assert_eq!(sealed.len(), text.len() + OVERHEAD);
            prop_assert_eq!(open(&key, &[b"a"], &sealed), Some(text));
            prop_assert_eq!(open(&key, &[b"b"], &sealed), None);
            prop_assert_eq!(open(&key, &[], &sealed), None);
            let at = at % sealed.len();
            sealed[at] ^= 1 << bit;
            prop_assert_eq!(open(&key, &[b"a"], &sealed), None);
            prop_assert_eq!(open(&key, &[b"a"], &sealed[..at.min(OVERHEAD)]), None);
        }
    }
}
