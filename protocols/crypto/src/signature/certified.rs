//! Signatures by the key of a certificate.

use super::{KeyKind, SignatureError, SignatureScheme};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{
    OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, OID_SIG_ED25519,
};
use x509_parser::prelude::FromDer;

impl SignatureScheme {
    /// Verifies a signature on a text by the key of a DER certificate.
    ///
    /// # Errors
    /// If the signature is wrong, or the key does not fit the scheme.
    pub fn verify(self, certificate: &[u8], text: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        if key_kind(certificate)? != self.required_key_kind() {
            return Err(SignatureError::Kind);
        }
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| SignatureError::Key)?;
        self.verify_by_key(&certificate.public_key().subject_public_key.data, text, signature)
    }
}

/// Returns the kind of key in a DER certificate.
///
/// # Errors
/// If it is not a certificate, or its key is of another kind.
pub fn key_kind(certificate: &[u8]) -> Result<KeyKind, SignatureError> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| SignatureError::Key)?;
    let algorithm = &certificate.public_key().algorithm;
    let curve = algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
    match (&algorithm.algorithm, curve) {
        (oid, _) if *oid == OID_PKCS1_RSAENCRYPTION => Ok(KeyKind::Rsa),
        (oid, _) if *oid == OID_SIG_ED25519 => Ok(KeyKind::Ed25519),
        (oid, Some(curve)) if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_EC_P256 => {
            Ok(KeyKind::EcdsaP256)
        }
        (oid, Some(curve)) if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY && curve == OID_NIST_EC_P384 => {
            Ok(KeyKind::EcdsaP384)
        }
        _ => Err(SignatureError::Key),
    }
}
