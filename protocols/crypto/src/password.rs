//! Passwords kept as Argon2 hashes (RFC 9106), written in the PHC string format (`$argon2id$v=19$m=…`).
//!
//! Such a hash proves a password that comes in clear (PAP, EAP-GTC); a challenge handshake cannot use it. Making or
//! checking one costs tens of milliseconds on purpose, so it is work for another thread than a server's.

use alloc::string::{String, ToString};
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};

/// Octets of salt that a new hash wants.
pub const SALT_LEN: usize = 16;

/// Most memory, KiB, that a hash may ask for when it is checked: who can write hashes into a store could otherwise
/// have the server allocate without bounds.
const MAX_MEMORY_KIB: u32 = 256 * 1024;

/// The Argon2id hash of a password with the parameters that RFC 9106 §4 recommends second for constrained servers and
/// OWASP first: 19 MiB, two passes, one lane. `salt` must come from a secure generator.
#[must_use]
pub fn argon2_hash(password: &[u8], salt: &[u8; SALT_LEN]) -> String {
    SaltString::encode_b64(salt)
        .and_then(|salt| Argon2::default().hash_password(password, &salt).map(|hash| hash.to_string()))
        // Sixteen octets of salt and the default parameters are always possible; a password above 4 GiB is not.
        .unwrap_or_default()
}

/// Whether `hash` is a PHC string of Argon2 that [`argon2_verify`] can check.
#[must_use]
pub fn is_argon2(hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|parsed| {
        parsed.algorithm.as_str().starts_with("argon2")
            && Params::try_from(&parsed).is_ok_and(|p| p.m_cost() <= MAX_MEMORY_KIB)
    })
}

/// Whether a password is the one of this hash; false too where the hash cannot be read.
#[must_use]
pub fn argon2_verify(hash: &str, password: &[u8]) -> bool {
    is_argon2(hash)
        && PasswordHash::new(hash)
            .is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_its_password_from_others() {
        let hash = argon2_hash(b"open sesame", &[7; SALT_LEN]);
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(is_argon2(&hash) && argon2_verify(&hash, b"open sesame") && !argon2_verify(&hash, b"open"));
        assert_ne!(hash, argon2_hash(b"open sesame", &[8; SALT_LEN]));
    }

    /// Made by the reference implementation: `echo -n password | argon2 somesalt -t 2 -m 16 -p 1 -l 32 -i`.
    #[test]
    fn the_reference_implementation_s_hash_is_understood() {
        let hash = "$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
        assert!(argon2_verify(hash, b"password") && !argon2_verify(hash, b"Password"));
    }

    #[test]
    fn what_is_no_hash_or_asks_for_too_much_proves_nothing() {
        let greedy =
            "$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
        for hash in ["", "x", "$1$salt$hash", "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ", greedy] {
            assert!(!argon2_verify(hash, b""), "{hash}");
        }
        assert!(!is_argon2(greedy));
    }
}
