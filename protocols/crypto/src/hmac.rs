//! HMAC-SHA256 (RFC 2104, FIPS 198-1), for codes that no protocol prescribes.

use sha2::{Digest, Sha256};

/// The length of a code in octets.
pub const LEN: usize = 32;
const BLOCK: usize = 64;

/// Returns the code of the concatenation of `parts`, under a key of any length.
#[must_use]
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; LEN] {
    let mut block = [0; BLOCK];
    match block.get_mut(..key.len()) {
        Some(head) => head.copy_from_slice(key),
        None => block[..LEN].copy_from_slice(&Sha256::digest(key)),
    }
    let digest = |pad: u8, parts: &[&[u8]]| -> [u8; LEN] {
        let mut hash = Sha256::new_with_prefix(block.map(|octet| octet ^ pad));
        parts.iter().for_each(|part| hash.update(part));
        hash.finalize().into()
    };
    let inner = digest(0x36, parts);
    digest(0x5c, &[&inner])
}

#[cfg(test)]
mod tests {
    use hmac::{KeyInit, Mac};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_that_of_another_library(
            key in proptest::collection::vec(any::<u8>(), 0..200),
            data in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..300,
        ) {
            let mut other = hmac::Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
            other.update(&data);
            let (a, b) = data.split_at(cut.min(data.len()));
            prop_assert_eq!(&super::hmac_sha256(&key, &[a, b])[..], &other.finalize().into_bytes()[..]);
        }
    }

    #[test]
    fn the_second_vector_of_rfc_4231() {
        let code = super::hmac_sha256(b"Jefe", &[b"what do ya want for nothing?"]);
        assert_eq!(code[..4], [0x5b, 0xdc, 0xc1, 0x46]);
        assert_eq!(code[28..], [0x64, 0xec, 0x38, 0x43]);
    }
}
