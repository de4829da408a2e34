//! AES with 128-bit keys as in PKMv2 of 802.16: CMAC (NIST SP 800-38B, RFC 4493) and key wrap (NIST SP 800-38F,
//! RFC 3394).

use crate::SecretValue;
use aes::Aes128;
use aes_kw::KwAes128;
use cmac::{Cmac, KeyInit, Mac};

/// The length in octets of a key and of a CMAC.
pub const LEN: usize = 16;
/// The length in octets of a wrapped 128-bit key (RFC 3394, 2.2.1).
pub const WRAPPED: usize = LEN + 8;

/// Returns the whole CMAC of the concatenation of `parts`. Protocols send its most significant octets.
#[must_use]
pub fn cmac(key: &[u8; LEN], parts: &[&[u8]]) -> [u8; LEN] {
    let mut mac = Cmac::<Aes128>::new(key.into());
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Wraps a 128-bit key under another, with the initial value of RFC 3394, 2.2.3.1.
#[must_use]
pub fn wrap_key(kek: &[u8; LEN], key: &[u8; LEN]) -> [u8; WRAPPED] {
    let mut out = [0; WRAPPED];
    // The key has two blocks of 64 bits and the buffer three, so the call cannot fail.
    let _ = KwAes128::new(kek.into()).wrap_key(key, &mut out);
    out
}

/// Returns the key that [`wrap_key`] wrapped under `kek`; `None` if another key wrapped it or it was altered.
#[must_use]
pub fn unwrap_key(kek: &[u8; LEN], wrapped: &[u8; WRAPPED]) -> Option<SecretValue<[u8; LEN]>> {
    let mut key = SecretValue::new([0; LEN]);
    KwAes128::new(kek.into()).unwrap_key(wrapped, &mut *key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex_octets(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }
    fn hex_key(hex: &str) -> [u8; LEN] {
        hex_octets(hex).try_into().unwrap()
    }

    #[test]
    fn the_vectors_of_rfc_4493() {
        let k = hex_key("2b7e151628aed2a6abf7158809cf4f3c");
        let message = hex_octets(
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445\
             df4f9b17ad2b417be66c3710",
        );
        for (length, code) in [
            (0, "bb1d6929e95937287fa37d129b756746"),
            (16, "070a16b46b4d4144f79bdd9dd04a287c"),
            (40, "dfa66747de9ae63030ca32611497c827"),
            (64, "51f0bebf7e3b9d92fc49741779363cfe"),
        ] {
            let (a, b) = message[..length].split_at(length / 3);
            assert_eq!(cmac(&k, &[a, b]), hex_key(code), "{length} octets");
        }
    }

    #[test]
    fn the_vector_of_rfc_3394() {
        let kek = hex_key("000102030405060708090a0b0c0d0e0f");
        let inner = hex_key("00112233445566778899aabbccddeeff");
        let wrapped = wrap_key(&kek, &inner);
        assert_eq!(wrapped[..], hex_octets("1fa68b0a8112b447aef34bd8fb5a7b829d3e862371d2cfe5"));
        assert_eq!(*unwrap_key(&kek, &wrapped).unwrap(), inner);
    }

    proptest! {
        #[test]
        fn a_key_comes_out_only_as_it_went_in(kek: [u8; LEN], inner: [u8; LEN], at in 0..WRAPPED, flip in 1u8..) {
            let mut wrapped = wrap_key(&kek, &inner);
            prop_assert_eq!(*unwrap_key(&kek, &wrapped).unwrap(), inner);
            wrapped[at] ^= flip;
            prop_assert!(unwrap_key(&kek, &wrapped).is_none());
        }
    }
}
