//! Signatures where AWS-LC is not built in: none is made or verified.

use super::{KeyKind, SignatureError, SignatureScheme};
use crate::tls::TlsError;
use alloc::vec::Vec;
use core::convert::Infallible;

impl SignatureScheme {
    /// Whether this public key has signed the text so: nobody can tell.
    ///
    /// # Errors
    /// [`SignatureError::Library`].
    pub fn verify_by_key(self, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), SignatureError> {
        Err(SignatureError::Library)
    }
}

/// A private key that signs, of which there is none.
#[derive(Debug)]
pub struct SigningKey(Infallible);

impl SigningKey {
    /// Takes a key in DER.
    ///
    /// # Errors
    /// There is no library that signs.
    pub fn from_der(_: &[u8]) -> Result<Self, TlsError> {
        Err(TlsError::Config("this build signs nothing: it has no AWS-LC".into()))
    }
    /// What it is of.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        match self.0 {}
    }
    /// Signs a text.
    ///
    /// # Errors
    /// Never.
    pub const fn sign(&self, _: SignatureScheme, _: &[u8]) -> Result<Vec<u8>, SignatureError> {
        match self.0 {}
    }
}
