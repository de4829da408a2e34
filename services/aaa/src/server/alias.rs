//! Aliases that replace inner identities towards an access network.
//!
//! A visited network does not learn the inner identity of a user who is anonymous outside of a tunnel. Accounting
//! still has to assign the session. So the Access-Accept has a Class, which the access server returns in every
//! record (RFC 2865 §5.25) and which only servers with the key can read. A network that must tell users apart, for
//! billing or blocking, requests a Chargeable-User-Identity (RFC 4372). It is the same for all logins of a user at
//! one operator (Operator-Name, RFC 5580), and different at another.
//!
//! ```text
//! Class  | mark: 4 | nonce: 12 | length of the name: 1, the name, zeros up to a multiple of 32; encrypted | tag: 16 |
//! ```
//! A name of more than 220 octets takes two Classes. Instead of a length, a marker identifies the first and the
//! second part. The second nonce is the first with its last bit changed.
//!
//! Encryption is a stream of HMAC-SHA256 over nonce and block number. The tag is an HMAC-SHA256 over all octets
//! before it. Each has its own key. The nonce makes two logins of a user differ; the zeros hide the length of the
//! name.

use alloc::vec::Vec;
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac;

/// The first octets of such a Class.
const MARK: [u8; 4] = *b"Ush1";
pub(super) const NONCE: usize = 12;
const TAG: usize = 16;
/// The encrypted part has a multiple of this many octets.
const BLOCK: usize = hmac::LEN;
/// Maximum octets of the encrypted part: the rest of an attribute.
const MOST: usize = 253 - MARK.len() - NONCE - TAG;
/// Octets of a name in one Class.
const NAME_CAPACITY: usize = MOST - 1;
/// Marker instead of a length: the first [`NAME_CAPACITY`] octets of a name.
const BEGINNING: u8 = 0xff;
/// Marker instead of a length: the rest of a name follows, with its own length.
const REST: u8 = 0xfe;

/// The key of aliases, shared by all servers that may receive the accounting records. Debug output omits it.
#[derive(Clone, PartialEq, Eq)]
pub struct IdentityKey {
    cipher: SecretValue<[u8; hmac::LEN]>,
    tag: SecretValue<[u8; hmac::LEN]>,
    chargeable: SecretValue<[u8; hmac::LEN]>,
}

impl core::fmt::Debug for IdentityKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IdentityKey(..)")
    }
}

/// True if a Class, in hexadecimal, is an alias of a name that the access server does not know.
#[must_use]
pub fn is_user_alias_class(class: &str) -> bool {
    let digits = MARK.iter().flat_map(|octet| [octet >> 4, octet & 15]);
    let mut letters = class.chars().map(|c| c.to_digit(16));
    digits.map(|digit| Some(u32::from(digit))).all(|digit| letters.next() == Some(digit))
}

impl IdentityKey {
    /// Creates a key from at least 16 random octets, or a text of as many random digits.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let key = |label: &[u8]| SecretValue::new(hmac::hmac_sha256(secret, &[b"usher ", label]));
        Self { cipher: key(b"class cipher"), tag: key(b"class tag"), chargeable: key(b"chargeable") }
    }

    fn apply_alias_cipher(&self, nonce: &[u8], data: &mut [u8]) {
        for (i, block) in data.chunks_mut(BLOCK).enumerate() {
            let stream = hmac::hmac_sha256(&*self.cipher, &[nonce, &[i as u8]]);
            block.iter_mut().zip(stream).for_each(|(octet, key)| *octet ^= key);
        }
    }
    fn compute_class_tag(&self, before: &[u8]) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hmac::hmac_sha256(&*self.tag, &[before])[..TAG]);
        tag
    }

    /// Returns the one or two Classes of a name; none if the name is too long for a User-Name.
    pub(super) fn classes_for_name(&self, nonce: [u8; NONCE], name: &[u8]) -> Vec<Vec<u8>> {
        let Some((beginning, rest)) =
            name.split_at_checked(NAME_CAPACITY).filter(|(_, rest)| !rest.is_empty())
        else {
            return [self.encrypt_alias_class(nonce, &[name.len() as u8], name)].into();
        };
        if rest.len() >= NAME_CAPACITY {
            return Vec::new();
        }
        let first = self.encrypt_alias_class(nonce, &[BEGINNING], beginning);
        [first, self.encrypt_alias_class(second_class_nonce(nonce), &[REST, rest.len() as u8], rest)].into()
    }

    fn encrypt_alias_class(&self, nonce: [u8; NONCE], head: &[u8], name: &[u8]) -> Vec<u8> {
        let octets = (head.len() + name.len()).next_multiple_of(BLOCK).min(MOST);
        let mut class = Vec::with_capacity(MARK.len() + NONCE + octets + TAG);
        class.extend_from_slice(&MARK);
        class.extend_from_slice(&nonce);
        let begin = class.len();
        class.extend_from_slice(head);
        class.extend_from_slice(name);
        class.resize(begin + octets, 0);
        self.apply_alias_cipher(&nonce, &mut class[begin..]);
        let tag = self.compute_class_tag(&class);
        class.extend_from_slice(&tag);
        class
    }

    /// Decrypts a Class of this key. Returns its contents and nonce.
    fn decrypt_alias_class(&self, class: &[u8]) -> Option<([u8; NONCE], Vec<u8>)> {
        let (before, tag) = class.split_last_chunk::<TAG>()?;
        let sealed = before.strip_prefix(&MARK)?;
        if !constant_time_eq(&self.compute_class_tag(before), tag) {
            return None;
        }
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        let mut octets = Vec::from(sealed);
        self.apply_alias_cipher(nonce, &mut octets);
        Some((*nonce, octets))
    }

    /// Returns the name in these Classes. `None`: none of them is of this key.
    pub(super) fn name_from_classes<'a>(&self, classes: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
        let (mut beginnings, mut rests) = (Vec::new(), Vec::new());
        for (nonce, octets) in classes.filter_map(|class| self.decrypt_alias_class(class)) {
            match octets.split_first()? {
                (&BEGINNING, name) => beginnings.push((nonce, name.to_vec())),
                (&REST, [length, rest @ ..]) => {
                    rests.push((nonce, rest.get(..usize::from(*length))?.to_vec()));
                }
                (length, name) => return name.get(..usize::from(*length)).map(Vec::from),
            }
        }
        let (nonce, mut name) = beginnings.pop()?;
        let (_, rest) = rests.iter().find(|(other, _)| *other == second_class_nonce(nonce))?;
        name.extend_from_slice(rest);
        Some(name)
    }

    /// Returns the Chargeable-User-Identity of a user at an operator: 32 hexadecimal digits.
    pub(super) fn chargeable_identity(&self, operator: &[u8], name: &[u8]) -> [u8; 32] {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        let length = (operator.len() as u32).to_be_bytes();
        let code = hmac::hmac_sha256(&*self.chargeable, &[&length, operator, name]);
        let mut digits = [0; 32];
        for (pair, octet) in digits.chunks_exact_mut(2).zip(code) {
            pair.copy_from_slice(&[octet >> 4, octet & 15].map(|digit| DIGITS[usize::from(digit)]));
        }
        digits
    }
}

/// Returns the nonce of a name's second Class.
const fn second_class_nonce(mut nonce: [u8; NONCE]) -> [u8; NONCE] {
    nonce[NONCE - 1] ^= 1;
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn test_key() -> IdentityKey {
        IdentityKey::new(b"0123456789abcdef")
    }

    proptest! {
        #[test]
        fn a_class_stands_for_its_name(name in proptest::collection::vec(any::<u8>(), 0..=253), nonce: [u8; 12]) {
            let classes = test_key().classes_for_name(nonce, &name);
            prop_assert_eq!(classes.len(), if name.len() > 220 { 2 } else { 1 });
            let of = |key: IdentityKey, classes: &[Vec<u8>]| key.name_from_classes(classes.iter().map(|class| &class[..]));
            prop_assert_eq!(of(test_key(), &classes), Some(name.clone()));
            let turned: Vec<_> = classes.iter().rev().cloned().collect();
            prop_assert_eq!(of(test_key(), &turned), Some(name.clone()), "in any order");
            prop_assert_eq!(of(IdentityKey::new(b"another"), &classes), None);
            for class in &classes {
                prop_assert!(class.len() <= 253);
                prop_assert!(name.len() < 4 || !class.windows(name.len()).any(|part| part == &name[..]));
                let hex: std::string::String = class.iter().map(|b| std::format!("{b:02x}")).collect();
                prop_assert!(is_user_alias_class(&hex));
                let alone = of(test_key(), core::slice::from_ref(class));
                prop_assert_eq!(alone, (classes.len() == 1).then(|| name.clone()));
            }
            // Parts of two names do not combine.
            if let [first, _] = &classes[..] {
                let mut other = nonce;
                other[0] ^= 1;
                let other = test_key().classes_for_name(other, &name).remove(1);
                prop_assert_eq!(of(test_key(), &[first.clone(), other]), None);
            }
        }

        #[test]
        fn nobody_else_makes_one(class in proptest::collection::vec(any::<u8>(), 0..253), at in 0usize..80, bit in 0u8..8) {
            prop_assert_eq!(test_key().name_from_classes([&class[..]].into_iter()), None);
            let mut class = test_key().classes_for_name([1; 12], b"ann@example.org").remove(0);
            let at = at % class.len();
            class[at] ^= 1 << bit;
            prop_assert_eq!(test_key().name_from_classes([&class[..]].into_iter()), None);
        }
    }

    #[test]
    fn nothing_of_a_name_is_seen() {
        let class = |nonce: u8, name: &[u8]| test_key().classes_for_name([nonce; 12], name).remove(0);
        assert_eq!(class(1, b"ann").len(), class(1, b"a much longer name").len());
        assert_ne!(class(1, b"ann")[16..], class(2, b"ann")[16..]);
        assert!(test_key().classes_for_name([0; 12], &[b'a'; 440]).is_empty());
        assert!(
            !is_user_alias_class("")
                && !is_user_alias_class("557368")
                && !is_user_alias_class("0a")
                && is_user_alias_class("5573683100")
        );
        assert!(!std::format!("{:?}", test_key()).contains('['));
    }

    #[test]
    fn a_user_is_one_at_each_operator_and_another_at_the_next() {
        let of = |operator: &[u8], name: &[u8]| test_key().chargeable_identity(operator, name);
        assert_eq!(of(b"1a.example", b"ann"), of(b"1a.example", b"ann"));
        assert_ne!(of(b"1a.example", b"ann"), of(b"1b.example", b"ann"));
        assert_ne!(of(b"1a.example", b"ann"), of(b"1a.example", b"bob"));
        assert_ne!(of(b"ab", b"c"), of(b"a", b"bc"));
        assert!(of(b"", b"ann").iter().all(u8::is_ascii_hexdigit));
    }
}
