//! Signatures without AWS-LC: none can be created or verified.

use super::{KeyKind, SignatureError, SignatureScheme};
use crate::tls::TlsError;
use alloc::vec::Vec;
use core::convert::Infallible;

impl SignatureScheme {
    /// Fails, since no library can verify.
    ///
    /// # Errors
    /// [`SignatureError::Library`], always.
    pub fn verify_by_key(self, _: &[u8], _: &[u8], _: &[u8]) -> Result<(), SignatureError> {
        Err(SignatureError::Library)
    }
}

/// A private key for signing; it has no values.
#[derive(Debug)]
pub struct SigningKey(Infallible);

impl SigningKey {
    /// Fails, since no library can sign.
    ///
    /// # Errors
    /// [`TlsError::Config`], always.
    pub fn from_der(_: &[u8]) -> Result<Self, TlsError> {
        Err(TlsError::Config("this build cannot sign: it lacks AWS-LC".into()))
    }
    /// The kind of key.
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
