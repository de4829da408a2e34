//! What an access network is told in the place of a name that it is not to know.
//!
//! A user who is anonymous outside of a tunnel is not named to the network that is visited. Accounting must say all the
//! same whose session it is: the Access-Accept bears a Class, which the access server gives back in every record (RFC 2865
//! §5.25) and which only servers of one key can read. A network that has to tell users apart, to bill or to bar one, asks
//! for a Chargeable-User-Identity (RFC 4372): the same for all logins of a user at one operator (Operator-Name, RFC 5580),
//! and another elsewhere.
//!
//! ```text
//! Class  | mark: 4 | nonce: 12 | length of the name: 1, the name, zeros up to a multiple of 32; encrypted | tag: 16 |
//! ```
//! Encryption is a stream of HMAC-SHA256 over nonce and block number, the tag an HMAC-SHA256 over all before it, each with
//! a key of its own. The nonce makes two logins of one user unlike, the zeros names of different lengths alike.

use alloc::vec::Vec;
use usher_crypto::Key;
use usher_crypto::digest::equal;
use usher_crypto::hmac;

/// Octets by which a Class of this form is known.
const MARK: [u8; 4] = *b"Ush1";
pub(super) const NONCE: usize = 12;
const TAG: usize = 16;
/// What is encrypted has a multiple of so many octets.
const BLOCK: usize = hmac::LEN;
/// Blocks that fit an attribute beside the rest.
const MOST: usize = (253 - MARK.len() - NONCE - TAG) / BLOCK;

/// A key that servers share whose access servers' records may come to any of them; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKey {
    cipher: Key<[u8; hmac::LEN]>,
    tag: Key<[u8; hmac::LEN]>,
    chargeable: Key<[u8; hmac::LEN]>,
}

impl core::fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IdentityKey(..)")
    }
}

/// Whether a Class, in hexadecimal as sessions are kept with it, stands for a name that the access server does not know.
#[must_use]
pub fn is_alias(class: &str) -> bool {
    let digits = MARK.iter().flat_map(|octet| [octet >> 4, octet & 15]);
    let mut letters = class.chars().map(|c| c.to_digit(16));
    digits.map(|digit| Some(u32::from(digit))).all(|digit| letters.next() == Some(digit))
}

impl IdentityKey {
    /// From octets that nobody can guess, 16 of them at least; those of a text of as many random digits do.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let key = |label: &[u8]| Key::new(hmac::sha256(secret, &[b"usher ", label]));
        Self { cipher: key(b"class cipher"), tag: key(b"class tag"), chargeable: key(b"chargeable") }
    }

    fn cipher(&self, nonce: &[u8], data: &mut [u8]) {
        for (i, block) in data.chunks_mut(BLOCK).enumerate() {
            let stream = hmac::sha256(&*self.cipher, &[nonce, &[i as u8]]);
            block.iter_mut().zip(stream).for_each(|(octet, key)| *octet ^= key);
        }
    }
    fn code(&self, before: &[u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hmac::sha256(&*self.tag, &[before])[..TAG]);
        tag
    }

    /// A Class that stands for a name; `None` for a name that is too long for it (191 octets).
    pub(super) fn class(&self, nonce: [u8; NONCE], name: &[u8]) -> Option<Vec<u8>> {
        let blocks = (1 + name.len()).div_ceil(BLOCK);
        if blocks > MOST {
            return None;
        }
        let mut class = Vec::with_capacity(MARK.len() + NONCE + blocks * BLOCK + TAG);
        class.extend_from_slice(&MARK);
        class.extend_from_slice(&nonce);
        let begin = class.len();
        class.push(name.len() as u8);
        class.extend_from_slice(name);
        class.resize(begin + blocks * BLOCK, 0);
        self.cipher(&nonce, &mut class[begin..]);
        let tag = self.code(&class);
        class.extend_from_slice(&tag);
        Some(class)
    }

    /// The name that a Class stands for; `None`: it is none of this key.
    pub(super) fn name(&self, class: &[u8]) -> Option<Vec<u8>> {
        let (before, tag) = class.split_last_chunk::<TAG>()?;
        let sealed = before.strip_prefix(&MARK)?;
        if !equal(&self.code(before), tag) {
            return None;
        }
        let (nonce, sealed) = sealed.split_at_checked(NONCE)?;
        let mut name = Vec::from(sealed);
        self.cipher(nonce, &mut name);
        let length = usize::from(*name.first()?);
        name.get(1..=length).map(Vec::from)
    }

    /// The Chargeable-User-Identity of a user at an operator: 32 hexadecimal digits.
    pub(super) fn chargeable(&self, operator: &[u8], name: &[u8]) -> [u8; 32] {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let length = (operator.len() as u32).to_be_bytes();
        let code = hmac::sha256(&*self.chargeable, &[&length, operator, name]);
        let mut digits = [0; 32];
        for (pair, octet) in digits.chunks_exact_mut(2).zip(code) {
            pair.copy_from_slice(&[octet >> 4, octet & 15].map(|digit| DIGITS[usize::from(digit)]));
        }
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> IdentityKey {
        IdentityKey::new(b"0123456789abcdef")
    }

    proptest! {
        #[test]
        fn a_class_stands_for_its_name(name in proptest::collection::vec(any::<u8>(), 0..=191), nonce: [u8; 12]) {
            let class = key().class(nonce, &name).unwrap();
            prop_assert!(class.len() <= 253);
            prop_assert_eq!(key().name(&class), Some(name.clone()));
            prop_assert!(name.len() < 4 || !class.windows(name.len()).any(|part| part == &name[..]));
            prop_assert_eq!(IdentityKey::new(b"another").name(&class), None);
            let hex: std::string::String = class.iter().map(|b| std::format!("{b:02x}")).collect();
            prop_assert!(is_alias(&hex));
        }

        #[test]
        fn nobody_else_makes_one(class in proptest::collection::vec(any::<u8>(), 0..253), at in 0usize..80, bit in 0u8..8) {
            prop_assert_eq!(key().name(&class), None);
            let mut class = key().class([1; 12], b"ann@example.org").unwrap();
            let at = at % class.len();
            class[at] ^= 1 << bit;
            prop_assert_eq!(key().name(&class), None);
        }
    }

    #[test]
    fn nothing_of_a_name_is_seen() {
        let class = |nonce: u8, name: &[u8]| key().class([nonce; 12], name).unwrap();
        assert_eq!(class(1, b"ann").len(), class(1, b"a much longer name").len());
        assert_ne!(class(1, b"ann")[16..], class(2, b"ann")[16..]);
        assert_eq!(key().class([0; 12], &[b'a'; 192]), None);
        assert!(!is_alias("") && !is_alias("557368") && !is_alias("0a") && is_alias("5573683100"));
        assert!(!std::format!("{:?}", key()).contains('['));
    }

    #[test]
    fn a_user_is_one_at_each_operator_and_another_at_the_next() {
        let of = |operator: &[u8], name: &[u8]| key().chargeable(operator, name);
        assert_eq!(of(b"1a.example", b"ann"), of(b"1a.example", b"ann"));
        assert_ne!(of(b"1a.example", b"ann"), of(b"1b.example", b"ann"));
        assert_ne!(of(b"1a.example", b"ann"), of(b"1a.example", b"bob"));
        assert_ne!(of(b"ab", b"c"), of(b"a", b"bc"));
        assert!(of(b"", b"ann").iter().all(u8::is_ascii_hexdigit));
    }
}
