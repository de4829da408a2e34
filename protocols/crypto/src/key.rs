//! Secret octets.

use crate::digest::constant_time_eq;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
pub use zeroize::Zeroize;
use zeroize::Zeroizing;

/// A secret: a key, a password, or a digest used as a key.
///
/// It is overwritten on drop, compared in constant time, and never printed. `B` is the container: an array if the
/// length is fixed, otherwise `Vec<u8>` or `String`.
///
/// A caller that copies the octets (`*key`, `to_vec`) must overwrite the copy.
#[derive(Clone)]
pub struct SecretValue<B: Zeroize = Vec<u8>>(Zeroizing<B>);

impl<B: Zeroize> SecretValue<B> {
    /// A secret of these octets.
    #[must_use]
    pub fn new(octets: B) -> Self {
        Self(Zeroizing::new(octets))
    }
}

impl<B: Zeroize> From<B> for SecretValue<B> {
    fn from(octets: B) -> Self {
        Self::new(octets)
    }
}

impl From<&[u8]> for SecretValue {
    fn from(octets: &[u8]) -> Self {
        Self::new(octets.to_vec())
    }
}

impl From<&str> for SecretValue<String> {
    fn from(text: &str) -> Self {
        Self::new(text.into())
    }
}

impl<B: Zeroize> Deref for SecretValue<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B: Zeroize> DerefMut for SecretValue<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.0
    }
}

impl<B: Zeroize + AsRef<[u8]>> PartialEq for SecretValue<B> {
    /// Compares in a time that is independent of the position of a difference.
    fn eq(&self, other: &Self) -> bool {
        constant_time_eq((**self).as_ref(), (**other).as_ref())
    }
}

impl<B: Zeroize + AsRef<[u8]>> Eq for SecretValue<B> {}

impl<B: Zeroize> fmt::Debug for SecretValue<B> {
    /// Prints neither the octets nor their number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::rc::Rc;
    use core::cell::Cell;

    /// Octets that record their overwriting.
    struct ZeroizeProbe(Rc<Cell<bool>>);
    impl Zeroize for ZeroizeProbe {
        fn zeroize(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_key_is_overwritten_when_it_is_dropped() {
        let overwritten = Rc::new(Cell::new(false));
        let key = SecretValue::new(ZeroizeProbe(overwritten.clone()));
        assert!(!overwritten.get());
        drop(key);
        assert!(overwritten.get());
    }

    #[test]
    fn a_key_is_not_printed_and_is_compared_by_its_octets() {
        let (key, same) = (SecretValue::new([1u8, 2, 3]), SecretValue::new([1u8, 2, 3]));
        assert_eq!(format!("{key:?} {:?}", SecretValue::from("secret")), "Key(..) Key(..)");
        assert!(
            key == same
                && key != SecretValue::new([1, 2, 4])
                && SecretValue::from(&b"ab"[..]) != SecretValue::from(&b"abc"[..])
        );
    }
}
