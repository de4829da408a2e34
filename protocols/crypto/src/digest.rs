//! MD5, HMAC-MD5 and comparison in constant time: what RADIUS, CHAP and EAP-MD5 still ask for.
//!
//! MD5 is broken as a hash; these protocols name no other. Nothing new should be built on it.

use hmac::{KeyInit, Mac};
use md5::Digest;

/// Octets of an MD5 digest, and of an HMAC-MD5.
pub const MD5_LEN: usize = 16;

/// MD5 (RFC 1321) over pieces given one after another. A clone continues from the same point.
#[derive(Clone, Default)]
pub struct Md5(md5::Md5);

impl Md5 {
    /// With nothing read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Reads the next piece.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        Digest::update(&mut self.0, bytes);
        self
    }
    /// The digest of all that was read.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; MD5_LEN] {
        self.0.finalize().into()
    }
}

impl core::fmt::Debug for Md5 {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Md5(..)")
    }
}

/// The MD5 digest of the concatenation of `parts`.
#[inline]
#[must_use]
pub fn md5(parts: &[&[u8]]) -> [u8; MD5_LEN] {
    let mut state = Md5::new();
    for part in parts {
        state.update(part);
    }
    state.finish()
}

/// HMAC-MD5 (RFC 2104) under one key, whose two key blocks are hashed once: each message then costs its
/// own blocks and one more.
#[derive(Clone)]
pub struct HmacMd5Key(hmac::Hmac<md5::Md5>);

impl HmacMd5Key {
    /// Prepares a key of any length.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        let mut block = [0; 64];
        if let Some(head) = block.get_mut(..key.len()) {
            head.copy_from_slice(key);
        } else {
            block[..MD5_LEN].copy_from_slice(&md5(&[key]));
        }
        Self(hmac::Hmac::new(&block.into()))
    }
    /// The code of the concatenation of `parts`.
    #[inline]
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MD5_LEN] {
        let mut state = self.0.clone();
        for part in parts {
            state.update(part);
        }
        state.finalize().into_bytes().into()
    }
    /// Whether `tag` is the code of the concatenation of `parts`; in constant time.
    #[inline]
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        equal(&self.mac(parts), tag)
    }
}

impl core::fmt::Debug for HmacMd5Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HmacMd5Key(..)")
    }
}

/// Whether two byte strings are equal, in time that depends on their lengths alone.
#[inline]
#[must_use]
pub fn equal(a: &[u8], b: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; 16]) -> String {
        digest.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn rfc_1321_vectors() {
        for (text, want) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(md5(&[text.as_bytes()])), want);
            let (a, b) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(hex(md5(&[a, b])), want);
        }
    }

    #[test]
    fn rfc_2202_vectors() {
        for (key, data, want) in [
            (vec![0x0b; 16], b"Hi There".to_vec(), "9294727a3638bb1c13f48ef8158bfc9d"),
            (b"Jefe".to_vec(), b"what do ya want for nothing?".to_vec(), "750c783e6ab0b503eaa86e310a5db738"),
            (vec![0xaa; 16], vec![0xdd; 50], "56be34521d144c88dbb8c733f0e8b3f6"),
            (
                vec![0xaa; 80],
                b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
                "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd",
            ),
        ] {
            let key = HmacMd5Key::new(&key);
            assert_eq!(hex(key.mac(&[&data])), want);
            assert!(key.verify(&[&data[..3], &data[3..]], &key.mac(&[&data])));
            assert!(!key.verify(&[&data[1..]], &key.mac(&[&data])));
        }
    }

    #[test]
    fn unequal_lengths_differ() {
        assert!(equal(b"ab", b"ab") && !equal(b"ab", b"ac") && !equal(b"ab", b"abc"));
    }
}
