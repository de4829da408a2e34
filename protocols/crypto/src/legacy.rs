//! The primitives of Microsoft's challenge handshakes (RFC 2433, RFC 2759, RFC 3079): MD4, DES and SHA-1.
//!
//! All of them are broken: an eavesdropper on one MS-CHAPv2 exchange finds the NT hash with the work of one DES key.
//! Use them only inside a TLS tunnel, and build nothing new on them.

pub mod mschap;

use md4::{Digest, Md4};

/// The length of an NT hash in octets.
pub const NT_HASH_LEN: usize = 16;

/// Returns the NT hash of a password (RFC 2759 §8.3, NtPasswordHash): MD4 of its little-endian UTF-16. Invalid UTF-8
/// octets count as the character of the same number, so every password has a hash.
#[must_use]
pub fn nt_hash(password: &[u8]) -> [u8; NT_HASH_LEN] {
    let mut md4 = Md4::new();
    let mut unit = |u: u16| md4.update(u.to_le_bytes());
    match core::str::from_utf8(password) {
        Ok(text) => text.encode_utf16().for_each(&mut unit),
        Err(_) => password.iter().for_each(|&octet| unit(u16::from(octet))),
    }
    md4.finalize().into()
}

/// Returns the MD4 of an NT hash (RFC 2759 §8.4, HashNtPasswordHash).
#[must_use]
pub fn nt_hash_hash(hash: &[u8; NT_HASH_LEN]) -> [u8; NT_HASH_LEN] {
    Md4::digest(hash).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_2759_section_9_2() {
        let hash = nt_hash(b"clientPass");
        assert_eq!(hash, *b"\x44\xeb\xba\x8d\x53\x12\xb8\xd6\x11\x47\x44\x11\xf5\x69\x89\xae");
        assert_eq!(nt_hash_hash(&hash), *b"\x41\xc0\x0c\x58\x4b\xd2\xd9\x1c\x40\x17\xa2\xa1\x2f\xa5\x9f\x3f");
    }

    #[test]
    fn every_password_has_a_hash() {
        assert_eq!(nt_hash(b""), *b"\x31\xd6\xcf\xe0\xd1\x6a\xe9\x31\xb7\x3c\x59\xd7\xe0\xc0\x89\xc0");
        assert_eq!(nt_hash("\u{e9}".as_bytes()), nt_hash(b"\xe9"));
        assert_ne!(nt_hash("\u{1f511}".as_bytes()), nt_hash(b""));
    }
}
