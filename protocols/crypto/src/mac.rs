//! Message authentication codes by name: HMAC with SHA-1 and SHA-2 (RFC 2104, RFC 4868) and AES-XCBC-MAC (RFC 3566,
//! RFC 4434). SHA-1 is broken as a hash; current protocols still need it.

use crate::SecretValue;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use alloc::boxed::Box;
use alloc::vec::Vec;
use hmac::Hmac;

usher_core::named! {
    "a message authentication code";
    /// Which code.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum MacAlgorithm {
        /// HMAC-SHA1, 20 octets.
        HmacSha1 = "hmac-sha1",
        /// HMAC-SHA256, 32 octets.
        HmacSha256 = "hmac-sha256",
        /// HMAC-SHA384, 48 octets.
        HmacSha384 = "hmac-sha384",
        /// HMAC-SHA512, 64 octets.
        HmacSha512 = "hmac-sha512",
        /// AES-XCBC-MAC with a key of 128 bits, 16 octets.
        AesXcbc = "aes-xcbc",
    }
}

/// A MAC under one key.
pub trait KeyedMac: Send + Sync {
    /// Appends the whole code of the concatenation of `parts`.
    fn append_code(&self, parts: &[&[u8]], out: &mut Vec<u8>);
    /// Writes the first octets of the code, to the length of `out`. Octets of `out` beyond the code stay unchanged.
    fn write_truncated(&self, parts: &[&[u8]], out: &mut [u8]);
}

fn write_prefix(code: &[u8], out: &mut [u8]) {
    out.iter_mut().zip(code).for_each(|(octet, of_code)| *octet = *of_code);
}

impl core::fmt::Debug for dyn KeyedMac {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Mac(..)")
    }
}

impl MacAlgorithm {
    /// Returns the octets of a whole code, which is also the best length of a key.
    #[must_use]
    pub const fn output_len(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesXcbc => 16,
        }
    }
    /// Returns the MAC under a key of any length. A key of AES-XCBC of another length than 16 octets is converted
    /// (RFC 4434 §2).
    #[must_use]
    pub fn with_key(self, key: &[u8]) -> Box<dyn KeyedMac> {
        match self {
            Self::HmacSha1 => keyed_hmac::<Hmac<sha1::Sha1>>(key),
            Self::HmacSha256 => keyed_hmac::<Hmac<sha2::Sha256>>(key),
            Self::HmacSha384 => keyed_hmac::<Hmac<sha2::Sha384>>(key),
            Self::HmacSha512 => keyed_hmac::<Hmac<sha2::Sha512>>(key),
            Self::AesXcbc => Box::new(AesXcbcMac::new(key)),
        }
    }
}

struct KeyedHmac<M>(M);

fn keyed_hmac<M>(key: &[u8]) -> Box<dyn KeyedMac>
where
    M: hmac::Mac + hmac::KeyInit + Clone + Send + Sync + 'static,
{
    // HMAC takes keys of any length, so the other branch is unreachable.
    match <M as hmac::KeyInit>::new_from_slice(key) {
        Ok(mac) => Box::new(KeyedHmac(mac)),
        Err(_) => Box::new(KeyedHmac(<M as hmac::KeyInit>::new(&Default::default()))),
    }
}

impl<M: hmac::Mac + Clone + Send + Sync> KeyedMac for KeyedHmac<M> {
    fn append_code(&self, parts: &[&[u8]], out: &mut Vec<u8>) {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        out.extend_from_slice(&mac.finalize().into_bytes());
    }
    fn write_truncated(&self, parts: &[&[u8]], out: &mut [u8]) {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        write_prefix(&mac.finalize().into_bytes(), out);
    }
}

const BLOCK: usize = 16;

/// AES-XCBC-MAC (RFC 3566 §4): the cipher with K1, and K2 and K3.
struct AesXcbcMac {
    cipher: Aes128,
    full: SecretValue<[u8; BLOCK]>,
    padded: SecretValue<[u8; BLOCK]>,
}

impl AesXcbcMac {
    fn new(key: &[u8]) -> Self {
        let mut whole = SecretValue::new([0; BLOCK]);
        if let Some(head) = whole.get_mut(..key.len()) {
            head.copy_from_slice(key);
        } else {
            *whole = Self::new(&[0; BLOCK]).compute_code(&[key]);
        }
        let derive = Aes128::new((&*whole).into());
        let subkey = |octet: u8| {
            let mut block = [octet; BLOCK].into();
            derive.encrypt_block(&mut block);
            SecretValue::new(block.into())
        };
        let first: SecretValue<[u8; BLOCK]> = subkey(1);
        Self { cipher: Aes128::new((&*first).into()), full: subkey(2), padded: subkey(3) }
    }

    fn compute_code(&self, parts: &[&[u8]]) -> [u8; BLOCK] {
        let (mut state, mut at) = ([0; BLOCK], 0);
        for octet in parts.iter().copied().flatten() {
            if at == BLOCK {
                state = self.encrypt_block(state);
                at = 0;
            }
            state[at] ^= octet;
            at += 1;
        }
        let last = if at == BLOCK {
            &self.full
        } else {
            state[at] ^= 0x80;
            &self.padded
        };
        state.iter_mut().zip(last.iter()).for_each(|(a, b)| *a ^= b);
        self.encrypt_block(state)
    }

    fn encrypt_block(&self, state: [u8; BLOCK]) -> [u8; BLOCK] {
        let mut block = state.into();
        self.cipher.encrypt_block(&mut block);
        block.into()
    }
}

impl KeyedMac for AesXcbcMac {
    fn append_code(&self, parts: &[&[u8]], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.compute_code(parts));
    }
    fn write_truncated(&self, parts: &[&[u8]], out: &mut [u8]) {
        write_prefix(&self.compute_code(parts), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::hex_octets;

    fn compute_untruncated_mac(algorithm: MacAlgorithm, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        algorithm.with_key(key).append_code(parts, &mut out);
        assert_eq!(out.len(), algorithm.output_len());
        let mut first = [0; 12];
        algorithm.with_key(key).write_truncated(parts, &mut first);
        assert_eq!(first, out[..12]);
        out
    }

    #[test]
    fn xcbc_of_rfc_3566() {
        let (key, message) = (hex_octets("000102030405060708090a0b0c0d0e0f"), Vec::from_iter(0..34));
        for (length, want) in [
            (0, "75f0251d528ac01c4573dfd584d79f29"),
            (3, "5b376580ae2f19afe7219ceef172756f"),
            (16, "d2a246fa349b68a79998a4394ff7a263"),
            (20, "47f51b4564966215b8985c63055ed308"),
            (32, "f54f0ec8d2b9f3d36807734bd5283fd4"),
            (34, "becbb3bccdb518a30677d5481fb6b4d8"),
        ] {
            let (a, b) = message[..length].split_at(length / 3);
            assert_eq!(
                compute_untruncated_mac(MacAlgorithm::AesXcbc, &key, &[a, b]),
                hex_octets(want),
                "{length} octets"
            );
        }
        let zeros = compute_untruncated_mac(MacAlgorithm::AesXcbc, &key, &[&[0; 1000]]);
        assert_eq!(zeros, hex_octets("f0dafee895db30253761103b5d84528f"));
    }

    #[test]
    fn xcbc_as_a_pseudorandom_function_of_rfc_4434() {
        let message = Vec::from_iter(0..20);
        for (key, want) in [
            ("000102030405060708090a0b0c0d0e0f", "47f51b4564966215b8985c63055ed308"),
            ("00010203040506070809", "0fa087af7d866e7653434e602fdde835"),
            ("000102030405060708090a0b0c0d0e0fedcb", "8cd3c93ae598a9803006ffb67c40e9e4"),
        ] {
            assert_eq!(
                compute_untruncated_mac(MacAlgorithm::AesXcbc, &hex_octets(key), &[&message]),
                hex_octets(want),
                "{key}"
            );
        }
    }

    #[test]
    fn a_key_is_not_printed() {
        assert_eq!(format!("{:?}", &*MacAlgorithm::AesXcbc.with_key(&[7])), "Mac(..)");
    }
}
