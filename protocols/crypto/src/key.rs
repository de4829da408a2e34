//! Octets that nobody else may learn.

use crate::digest::constant_time_eq;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
pub use zeroize::Zeroize;
use zeroize::Zeroizing;

/// Octets that nobody else may learn: a key, a password, a digest that serves as one. They are overwritten when they are
/// dropped, compared in constant time, and never printed. `B` is what holds them: an array where their number is known,
/// `Vec<u8>` or `String` otherwise.
///
/// A copy that is made of what it holds (`*key`, `to_vec`) is the maker's to overwrite.
#[derive(Clone)]
pub struct SecretValue<B: Zeroize = Vec<u8>>(Zeroizing<B>);

impl<B: Zeroize> SecretValue<B> {
    /// Takes these octets.
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
    /// In a time that does not depend on where they differ.
    fn eq(&self, other: &Self) -> bool {
        constant_time_eq((**self).as_ref(), (**other).as_ref())
    }
}

impl<B: Zeroize + AsRef<[u8]>> Eq for SecretValue<B> {}

impl<B: Zeroize> fmt::Debug for SecretValue<B> {
    /// Without the octets, nor how many there are.
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

    /// Octets that say when they are overwritten.
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
