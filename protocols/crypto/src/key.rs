//! Octets that nobody else may learn.

use crate::digest::equal;
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
pub struct Key<B: Zeroize = Vec<u8>>(Zeroizing<B>);

impl<B: Zeroize> Key<B> {
    /// Takes these octets.
    #[must_use]
    pub fn new(octets: B) -> Self {
        Self(Zeroizing::new(octets))
    }
}

impl<B: Zeroize> From<B> for Key<B> {
    fn from(octets: B) -> Self {
        Self::new(octets)
    }
}

impl From<&[u8]> for Key {
    fn from(octets: &[u8]) -> Self {
        Self::new(octets.to_vec())
    }
}

impl From<&str> for Key<String> {
    fn from(text: &str) -> Self {
        Self::new(text.into())
    }
}

impl<B: Zeroize> Deref for Key<B> {
    type Target = B;
    fn deref(&self) -> &B {
        &self.0
    }
}

impl<B: Zeroize> DerefMut for Key<B> {
    fn deref_mut(&mut self) -> &mut B {
        &mut self.0
    }
}

impl<B: Zeroize + AsRef<[u8]>> PartialEq for Key<B> {
    /// In a time that does not depend on where they differ.
    fn eq(&self, other: &Self) -> bool {
        equal((**self).as_ref(), (**other).as_ref())
    }
}

impl<B: Zeroize + AsRef<[u8]>> Eq for Key<B> {}

impl<B: Zeroize> fmt::Debug for Key<B> {
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
    struct Watched(Rc<Cell<bool>>);
    impl Zeroize for Watched {
        fn zeroize(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_key_is_overwritten_when_it_is_dropped() {
        let overwritten = Rc::new(Cell::new(false));
        let key = Key::new(Watched(overwritten.clone()));
        assert!(!overwritten.get());
        drop(key);
        assert!(overwritten.get());
    }

    #[test]
    fn a_key_is_not_printed_and_is_compared_by_its_octets() {
        let (key, same) = (Key::new([1u8, 2, 3]), Key::new([1u8, 2, 3]));
        assert_eq!(format!("{key:?} {:?}", Key::from("secret")), "Key(..) Key(..)");
        assert!(key == same && key != Key::new([1, 2, 4]) && Key::from(&b"ab"[..]) != Key::from(&b"abc"[..]));
    }
}
