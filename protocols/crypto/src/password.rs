//! Passwords stored as Argon2 hashes (RFC 9106) in the PHC string format (`$argon2id$v=19$m=…`).
//!
//! They verify passwords that arrive in clear (PAP, EAP-GTC); a challenge handshake cannot use them. Creating or
//! verifying one takes tens of milliseconds by design, so a worker should do it.

use alloc::string::{String, ToString};
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Argon2, Params};

/// The length in octets of the salt of a new hash.
pub const SALT_LEN: usize = 16;

/// The maximum memory of a verification in KiB (256 MiB).
const MAX_MEMORY_KIB: u32 = 256 * 1024;
/// The maximum number of lanes.
const MAX_LANES: u32 = 16;
/// The maximum of memory times passes in KiB (1 GiB), which bounds a verification to about half a second on one core.
const MAX_WORK_KIB: u64 = 1024 * 1024;

/// The reason why [`argon2_verify`] rejects a hash. Without limits, a hash written to the store could make the server
/// spend any amount of memory and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Argon2Fault {
    /// It is not a whole Argon2 hash.
    #[error("not an Argon2 hash such as $argon2id$v=19$m=19456,t=2,p=1$SALT$HASH")]
    Malformed,
    /// `m` is above 256 MiB.
    #[error(
        "the Argon2 hash needs m={kib} KiB of memory, but at most 262144 are allowed; hash the password again"
    )]
    Memory {
        /// The memory in KiB.
        kib: u32,
    },
    /// `p` is above 16.
    #[error("the Argon2 hash needs p={lanes} lanes, but at most 16 are allowed; hash the password again")]
    Lanes {
        /// The number of lanes.
        lanes: u32,
    },
    /// `t` times `m` is above 1 GiB.
    #[error(
        "the Argon2 hash needs t={passes} passes over m={kib} KiB, but at most 1048576 KiB in all are allowed; hash \
         the password again"
    )]
    Time {
        /// The number of passes.
        passes: u32,
        /// The memory in KiB.
        kib: u32,
    },
}

/// Returns the Argon2id hash of a password: 19 MiB, two passes, one lane. They are the second choice of RFC 9106 §4 for
/// constrained servers and the first of OWASP. `salt` must come from a secure generator.
#[must_use]
pub fn argon2_hash(password: &[u8], salt: &[u8; SALT_LEN]) -> String {
    SaltString::encode_b64(salt)
        .and_then(|salt| Argon2::default().hash_password(password, &salt).map(|hash| hash.to_string()))
        // A salt of 16 octets and the default parameters are always valid; only a password above 4 GiB fails.
        .unwrap_or_default()
}

/// Checks that `hash` is a PHC string of Argon2 that [`argon2_verify`] accepts.
///
/// # Errors
/// The reason if it is not.
pub fn check_argon2(hash: &str) -> Result<(), Argon2Fault> {
    parse_hash(hash).map(drop)
}

fn parse_hash(hash: &str) -> Result<PasswordHash<'_>, Argon2Fault> {
    let parsed = PasswordHash::new(hash).map_err(|_| Argon2Fault::Malformed)?;
    if !parsed.algorithm.as_str().starts_with("argon2") || parsed.salt.is_none() || parsed.hash.is_none() {
        return Err(Argon2Fault::Malformed);
    }
    let params = Params::try_from(&parsed).map_err(|_| Argon2Fault::Malformed)?;
    let (kib, passes, lanes) = (params.m_cost(), params.t_cost(), params.p_cost());
    if kib > MAX_MEMORY_KIB {
        return Err(Argon2Fault::Memory { kib });
    }
    if lanes > MAX_LANES {
        return Err(Argon2Fault::Lanes { lanes });
    }
    if u64::from(kib) * u64::from(passes) > MAX_WORK_KIB {
        return Err(Argon2Fault::Time { passes, kib });
    }
    Ok(parsed)
}

/// True if a password matches the hash. False for a hash that [`check_argon2`] rejects, and for the empty password.
#[must_use]
pub fn argon2_verify(hash: &str, password: &[u8]) -> bool {
    !password.is_empty()
        && parse_hash(hash).is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok())
}

/// Returns an Argon2 hash that takes equally long to verify and matches no password: salt and digest of the same
/// lengths, all zeros. `None` if [`check_argon2`] rejects the hash.
#[must_use]
pub fn unmatchable_argon2_hash(hash: &str) -> Option<String> {
    let parsed = parse_hash(hash).ok()?;
    let digest = hash.rfind('$').filter(|_| parsed.hash.is_some())?;
    let salt = hash.get(..digest)?.rfind('$')?;
    let zeros = |text: &str| text.chars().map(|c| if c == '$' { c } else { 'A' }).collect::<String>();
    Some([hash.get(..=salt)?, &zeros(hash.get(salt + 1..)?)].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_its_password_from_others() {
        let hash = argon2_hash(b"open sesame", &[7; SALT_LEN]);
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(
            check_argon2(&hash).is_ok()
                && argon2_verify(&hash, b"open sesame")
                && !argon2_verify(&hash, b"open")
        );
        assert_ne!(hash, argon2_hash(b"open sesame", &[8; SALT_LEN]));
    }

    /// From the reference implementation: `echo -n password | argon2 somesalt -t 2 -m 16 -p 1 -l 32 -i`.
    #[test]
    fn the_reference_implementation_s_hash_is_understood() {
        let hash = "$argon2i$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
        assert!(argon2_verify(hash, b"password") && !argon2_verify(hash, b"Password"));
    }

    #[test]
    fn what_is_no_hash_or_asks_for_too_much_proves_nothing() {
        let of = |params: &str| {
            std::format!("$argon2id$v=19${params}$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA")
        };
        for (hash, fault) in [
            (String::new(), Argon2Fault::Malformed),
            ("x".into(), Argon2Fault::Malformed),
            ("$1$salt$hash".into(), Argon2Fault::Malformed),
            ("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ".into(), Argon2Fault::Malformed),
            (of("m=4194304,t=1,p=1"), Argon2Fault::Memory { kib: 4_194_304 }),
            (of("m=1024,t=1,p=17"), Argon2Fault::Lanes { lanes: 17 }),
            (of("m=8,t=4294967295,p=1"), Argon2Fault::Time { passes: 4_294_967_295, kib: 8 }),
            (of("m=262144,t=5,p=1"), Argon2Fault::Time { passes: 5, kib: 262_144 }),
        ] {
            assert_eq!(check_argon2(&hash), Err(fault), "{hash}");
            assert!(!argon2_verify(&hash, b"x"), "{hash}");
        }
        // The parameters that RFC 9106 §4 and OWASP recommend are accepted, except 2 GiB of the former.
        for params in ["m=65536,t=3,p=4", "m=47104,t=1,p=1", "m=7168,t=5,p=1", "m=262144,t=4,p=8"] {
            assert_eq!(check_argon2(&of(params)), Ok(()), "{params}");
        }
    }

    #[test]
    fn the_empty_password_proves_nothing() {
        assert!(!argon2_verify(&argon2_hash(b"", &[7; SALT_LEN]), b""));
    }

    #[test]
    fn a_hash_that_is_no_passwords_asks_for_the_same_work() {
        let hash = "$argon2id$v=19$m=64,t=3,p=2$c29tZXNhbHQ$wWKIMhR9lyDFvRz9YTZweHKfbftvj+qf+YFY4NeBbtA";
        let like = unmatchable_argon2_hash(hash).unwrap();
        let want = "$argon2id$v=19$m=64,t=3,p=2$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        assert_eq!(like, want);
        assert_eq!(check_argon2(&like), Ok(()));
        assert!(!argon2_verify(&like, b"open sesame"));
        assert_eq!(unmatchable_argon2_hash("$argon2id$"), None);
    }
}
