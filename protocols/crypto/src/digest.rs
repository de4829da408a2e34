//! MD5, HMAC-MD5, HMAC-SHA1 and constant-time comparison, for RADIUS, CHAP, EAP-MD5 and PEAP. MD5 and SHA-1 are broken
//! as hashes. These protocols offer no alternative; do not build anything new on them.
//!
//! SipHash is for tags that only their creator verifies.

mod block;

use crate::SecretValue;
use block::{BLOCK, INITIAL, Md5Computation, Md5State};

/// The length in octets of an MD5 digest and of an HMAC-MD5.
pub const MD5_LEN: usize = 16;

/// Returns the MD5 digest (RFC 1321) of the concatenation of `parts`.
#[inline]
#[must_use]
pub fn md5(parts: &[&[u8]]) -> [u8; MD5_LEN] {
    Md5Computation::for_parts(parts, &[]).compute_digest()
}

/// Replacement octets of a message: their offset in the concatenation of its parts, and 16 octets. Octets beyond the
/// end of the parts are ignored.
pub type DigestInputPatch<'a> = (usize, &'a [u8; 16]);

/// Returns the MD5 digest of the concatenation of `parts` with replaced octets. It is faster than splitting the parts.
#[inline]
#[must_use]
pub fn md5_with_overlays(parts: &[&[u8]], over: &[DigestInputPatch<'_>]) -> [u8; MD5_LEN] {
    Md5Computation::for_parts(parts, over).compute_digest()
}

/// An HMAC-MD5 key (RFC 2104). Its two key blocks are hashed once, so each message costs its own blocks and one more.
#[derive(Clone)]
pub struct HmacMd5Key {
    inner: SecretValue<Md5State>,
    outer: SecretValue<Md5State>,
}

impl HmacMd5Key {
    /// Prepares a key of any length.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK];
        if let Some(head) = block.get_mut(..key.len()) {
            head.copy_from_slice(key);
        } else {
            block[..MD5_LEN].copy_from_slice(&md5(&[key]));
        }
        let (mut inner, mut outer) = (INITIAL, INITIAL);
        let pads = [block.map(|octet| octet ^ 0x36), block.map(|octet| octet ^ 0x5c)];
        block::compress_blocks([&mut inner, &mut outer], &pads);
        Self { inner: inner.into(), outer: outer.into() }
    }
    /// Returns the code of the concatenation of `parts`.
    #[inline]
    #[must_use]
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MD5_LEN] {
        self.hmac_md5_with_overlays(parts, &[])
    }
    /// Returns the code of the concatenation of `parts` with replaced octets, as in [`md5_with_overlays`].
    #[inline]
    #[must_use]
    pub fn hmac_md5_with_overlays(&self, parts: &[&[u8]], over: &[DigestInputPatch<'_>]) -> [u8; MD5_LEN] {
        Md5Computation::with_key_states(*self.inner, *self.outer, parts, over).compute_digest()
    }
    /// Returns [`hmac_md5_with_overlays`](Self::hmac_md5_with_overlays) of one message and [`md5_with_overlays`] of another. Both together take little more
    /// time than the longer one.
    #[must_use]
    pub fn mac_with_md5(
        &self,
        (parts, over): (&[&[u8]], &[DigestInputPatch<'_>]),
        (other_parts, other_over): (&[&[u8]], &[DigestInputPatch<'_>]),
    ) -> ([u8; MD5_LEN], [u8; MD5_LEN]) {
        block::digest_pair(
            Md5Computation::with_key_states(*self.inner, *self.outer, parts, over),
            Md5Computation::for_parts(other_parts, other_over),
        )
    }
    /// True if `tag` is the code of the concatenation of `parts`. Runs in constant time.
    #[inline]
    #[must_use]
    pub fn verify(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        constant_time_eq(&self.mac(parts), tag)
    }
}

impl core::fmt::Debug for HmacMd5Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("HmacMd5Key(..)")
    }
}

/// A SipHash-2-4 key (Aumasson and Bernstein, 2012). A code of a short message takes a fraction of the time of
/// HMAC-MD5. It is for a server's own tags, which no protocol prescribes.
#[derive(Clone)]
pub struct SipHashKey(SecretValue<[u8; 16]>);

impl SipHashKey {
    /// A key of 16 unpredictable octets.
    #[must_use]
    pub fn new(key: [u8; 16]) -> Self {
        Self(key.into())
    }
    /// Returns the code of a message.
    #[inline]
    #[must_use]
    pub fn mac(&self, message: &[u8]) -> [u8; 8] {
        siphasher::sip::SipHasher24::new_with_key(&self.0).hash(message).to_le_bytes()
    }
}

impl core::fmt::Debug for SipHashKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("SipHashKey(..)")
    }
}

/// Returns the SHA-1 digest (FIPS 180-4) of the concatenation of `parts`.
#[must_use]
pub fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    use sha1::Digest;
    let mut hash = sha1::Sha1::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

/// Returns the HMAC-SHA1 (RFC 2104) of the concatenation of `parts`, under a key of any length.
#[must_use]
pub fn hmac_sha1(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    use hmac::{KeyInit, Mac};
    // HMAC takes keys of any length, so the other branch is unreachable.
    let Ok(mut mac) = hmac::Hmac::<sha1::Sha1>::new_from_slice(key) else { return [0; 20] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// True if two byte strings are equal. The time depends only on their lengths.
#[inline]
#[must_use]
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    // Whole words are compared: octet by octet, the comparison would take a tenth of the digest's time.
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    let rest = a_rest.ct_eq(b_rest);
    let words = a.iter().zip(b).map(|(a, b)| u64::from_ne_bytes(*a).ct_eq(&u64::from_ne_bytes(*b)));
    a.len() == b.len() && words.fold(rest, |all, same| all & same).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmac::{KeyInit, Mac};
    use md5::Digest;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn sha1_of_fips_180() {
        let digest = sha1(&[b"a", b"bc"]);
        assert_eq!((digest[..4].to_vec(), digest[19]), (vec![0xa9, 0x99, 0x3e, 0x36], 0x9d));
    }

    #[test]
    fn hmac_sha1_of_rfc_2202() {
        let digest = hmac_sha1(&[0x0b; 20], &[b"Hi ", b"There"]);
        assert_eq!(digest[..4], [0xb6, 0x17, 0x31, 0x86]);
        let digest = hmac_sha1(b"Jefe", &[b"what do ya want for nothing?"]);
        assert_eq!((digest[0], digest[19]), (0xef, 0x79));
        let digest = hmac_sha1(&[0xaa; 80], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!((digest[0], digest[19]), (0xaa, 0x12));
    }

    /// The test vectors that SipHash's authors publish with it: the key 00 to 0f, messages 00, 01, …
    #[test]
    fn siphash_vectors() {
        let key = SipHashKey::new(core::array::from_fn(|i| i as u8));
        let message: Vec<u8> = (0..63).collect();
        assert_eq!(key.mac(&[]), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        assert_eq!(key.mac(&message[..8]), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
        assert_eq!(key.mac(&message[..15]), [0xe5, 0x45, 0xbe, 0x49, 0x61, 0xca, 0x29, 0xa1]);
        assert_eq!(format!("{key:?}"), "SipHashKey(..)");
    }

    fn to_hex(digest: [u8; 16]) -> String {
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
            assert_eq!(to_hex(md5(&[text.as_bytes()])), want);
            let (a, b) = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(to_hex(md5(&[a, b])), want);
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
            assert_eq!(to_hex(key.mac(&[&data])), want);
            assert!(key.verify(&[&data[..3], &data[3..]], &key.mac(&[&data])));
            assert!(!key.verify(&[&data[1..]], &key.mac(&[&data])));
        }
    }

    proptest! {
        /// Compares with another implementation: all lengths around block ends, all splits of the message, replaced
        /// octets anywhere.
        #[test]
        fn digests_are_those_of_another_implementation(key in vec(any::<u8>(), 0..140),
                parts in vec(vec(any::<u8>(), 0..150), 0..6), others in vec(vec(any::<u8>(), 0..150), 0..6),
                laid in vec((0..300_usize, any::<[u8; 16]>()), 0..3)) {
            let parts: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
            let others: Vec<&[u8]> = others.iter().map(|part| &part[..]).collect();
            let over: Vec<(usize, &[u8; 16])> = laid.iter().map(|(at, octets)| (*at, octets)).collect();
            let whole = |parts: &[&[u8]], over: &[(usize, &[u8; 16])]| {
                let mut message = parts.concat();
                for (at, octets) in over {
                    message.iter_mut().skip(*at).zip(*octets).for_each(|(to, from)| *to = *from);
                }
                message
            };
            let other_md5 = |message: Vec<u8>| -> [u8; 16] { md5::Md5::digest(message).into() };
            let other_mac = |message: Vec<u8>| -> [u8; 16] {
                let mut mac = hmac::Hmac::<md5::Md5>::new_from_slice(&key).unwrap();
                mac.update(&message);
                mac.finalize().into_bytes().into()
            };
            prop_assert_eq!(super::md5(&others), other_md5(others.concat()));
            prop_assert_eq!(super::md5_with_overlays(&others, &over), other_md5(whole(&others, &over)));
            let ours = HmacMd5Key::new(&key);
            prop_assert_eq!(ours.mac(&parts), other_mac(parts.concat()));
            prop_assert_eq!(ours.hmac_md5_with_overlays(&parts, &over), other_mac(whole(&parts, &over)));
            let both = (other_mac(whole(&parts, &over)), other_md5(others.concat()));
            prop_assert_eq!(ours.mac_with_md5((&parts, &over), (&others, &[])), both);
            let both = (other_mac(parts.concat()), other_md5(whole(&others, &over)));
            prop_assert_eq!(ours.mac_with_md5((&parts, &[]), (&others, &over)), both);
        }
    }

    #[test]
    fn unequal_lengths_differ() {
        assert!(
            constant_time_eq(b"ab", b"ab")
                && !constant_time_eq(b"ab", b"ac")
                && !constant_time_eq(b"ab", b"abc")
        );
        let octets: Vec<u8> = (0..40).collect();
        for length in 0..=octets.len() {
            let (head, tail) = octets.split_at(length);
            assert!(constant_time_eq(head, &octets.clone()[..length]));
            assert!(tail.is_empty() || !constant_time_eq(head, &octets) && !constant_time_eq(&octets, head));
            for i in 0..length {
                let mut other = head.to_vec();
                other[i] ^= 0x80;
                assert!(!constant_time_eq(head, &other), "octet {i} of {length}");
            }
        }
    }
}
