//! Signatures with AWS-LC.

use super::{KeyKind, SignatureError, SignatureScheme};
use crate::tls::TlsError;
use alloc::format;
use alloc::vec::Vec;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature as aws;
use rustls::pki_types::PrivateKeyDer;

impl SignatureScheme {
    fn verification_algorithm(self) -> &'static dyn aws::VerificationAlgorithm {
        match self {
            Self::RsaPkcs1Sha1 => &aws::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            Self::RsaPkcs1Sha256 => &aws::RSA_PKCS1_2048_8192_SHA256,
            Self::RsaPkcs1Sha384 => &aws::RSA_PKCS1_2048_8192_SHA384,
            Self::RsaPkcs1Sha512 => &aws::RSA_PKCS1_2048_8192_SHA512,
            Self::RsaPssSha256 => &aws::RSA_PSS_2048_8192_SHA256,
            Self::RsaPssSha384 => &aws::RSA_PSS_2048_8192_SHA384,
            Self::RsaPssSha512 => &aws::RSA_PSS_2048_8192_SHA512,
            Self::EcdsaP256Sha256 => &aws::ECDSA_P256_SHA256_ASN1,
            Self::EcdsaP384Sha384 => &aws::ECDSA_P384_SHA384_ASN1,
            Self::EcdsaP256Sha256Fixed => &aws::ECDSA_P256_SHA256_FIXED,
            Self::EcdsaP384Sha384Fixed => &aws::ECDSA_P384_SHA384_FIXED,
            Self::Ed25519 => &aws::ED25519,
        }
    }

    /// Verifies a signature on a text by a public key, given as the bits of a SubjectPublicKeyInfo (RFC 5280, 4.1). For
    /// RSA they are the DER of modulus and exponent.
    ///
    /// # Errors
    /// If the signature is wrong, or the key does not fit the scheme.
    pub fn verify_by_key(self, key: &[u8], text: &[u8], signature: &[u8]) -> Result<(), SignatureError> {
        let key = aws::UnparsedPublicKey::new(self.verification_algorithm(), key);
        key.verify(text, signature).map_err(|_| SignatureError::Signature)
    }
}

/// A private key for signing.
#[derive(Debug)]
pub struct SigningKey(PrivateKeyPair);

#[derive(Debug)]
enum PrivateKeyPair {
    Rsa(aws::RsaKeyPair),
    /// One for DER signatures, one for r and s of fixed length.
    Ecdsa(KeyKind, aws::EcdsaKeyPair, aws::EcdsaKeyPair),
    Ed25519(aws::Ed25519KeyPair),
}

impl SigningKey {
    /// Reads a DER key: PKCS #8, PKCS #1 for RSA, SEC 1 for ECDSA.
    ///
    /// # Errors
    /// If its kind is unknown.
    pub fn from_der(der: &[u8]) -> Result<Self, TlsError> {
        let refused = |e: &dyn core::fmt::Display| TlsError::Config(format!("private key: {e}"));
        let curves = [
            (KeyKind::EcdsaP256, &aws::ECDSA_P256_SHA256_ASN1_SIGNING, &aws::ECDSA_P256_SHA256_FIXED_SIGNING),
            (KeyKind::EcdsaP384, &aws::ECDSA_P384_SHA384_ASN1_SIGNING, &aws::ECDSA_P384_SHA384_FIXED_SIGNING),
        ];
        let key = PrivateKeyDer::try_from(der).map_err(|e| refused(&e))?;
        let pair = match key {
            PrivateKeyDer::Pkcs1(der) => {
                aws::RsaKeyPair::from_der(der.secret_pkcs1_der()).ok().map(PrivateKeyPair::Rsa)
            }
            PrivateKeyDer::Sec1(der) => curves.into_iter().find_map(|(kind, asn1, fixed)| {
                let pair = |algorithm| {
                    aws::EcdsaKeyPair::from_private_key_der(algorithm, der.secret_sec1_der()).ok()
                };
                Some(PrivateKeyPair::Ecdsa(kind, pair(asn1)?, pair(fixed)?))
            }),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                let curve = || {
                    curves.into_iter().find_map(|(kind, asn1, fixed)| {
                        let pair = |algorithm| aws::EcdsaKeyPair::from_pkcs8(algorithm, der).ok();
                        Some(PrivateKeyPair::Ecdsa(kind, pair(asn1)?, pair(fixed)?))
                    })
                };
                let edwards =
                    || aws::Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(PrivateKeyPair::Ed25519);
                aws::RsaKeyPair::from_pkcs8(der).ok().map(PrivateKeyPair::Rsa).or_else(curve).or_else(edwards)
            }
            _ => None,
        };
        pair.map(Self).ok_or_else(|| refused(&"it must be RSA, P-256, P-384 or Ed25519"))
    }

    /// The kind of key.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        match &self.0 {
            PrivateKeyPair::Rsa(_) => KeyKind::Rsa,
            PrivateKeyPair::Ecdsa(kind, ..) => *kind,
            PrivateKeyPair::Ed25519(_) => KeyKind::Ed25519,
        }
    }

    /// Signs a text.
    ///
    /// # Errors
    /// If the key is of another kind, the scheme is for verification only, or the library refuses.
    pub fn sign(&self, scheme: SignatureScheme, text: &[u8]) -> Result<Vec<u8>, SignatureError> {
        use SignatureScheme;
        if scheme.required_key_kind() != self.kind() {
            return Err(SignatureError::Kind);
        }
        let random = SystemRandom::new();
        match &self.0 {
            PrivateKeyPair::Rsa(pair) => {
                let encoding: &'static dyn aws::RsaEncoding = match scheme {
                    SignatureScheme::RsaPkcs1Sha256 => &aws::RSA_PKCS1_SHA256,
                    SignatureScheme::RsaPkcs1Sha384 => &aws::RSA_PKCS1_SHA384,
                    SignatureScheme::RsaPkcs1Sha512 => &aws::RSA_PKCS1_SHA512,
                    SignatureScheme::RsaPssSha256 => &aws::RSA_PSS_SHA256,
                    SignatureScheme::RsaPssSha384 => &aws::RSA_PSS_SHA384,
                    SignatureScheme::RsaPssSha512 => &aws::RSA_PSS_SHA512,
                    _ => return Err(SignatureError::Kind),
                };
                let mut signature = alloc::vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, text, &mut signature).map_err(|_| SignatureError::Library)?;
                Ok(signature)
            }
            PrivateKeyPair::Ecdsa(_, asn1, fixed) => {
                let der =
                    matches!(scheme, SignatureScheme::EcdsaP256Sha256 | SignatureScheme::EcdsaP384Sha384);
                let signature = if der { asn1 } else { fixed }.sign(&random, text);
                Ok(signature.map_err(|_| SignatureError::Library)?.as_ref().to_vec())
            }
            PrivateKeyPair::Ed25519(pair) => Ok(pair.sign(text).as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::key_kind;
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn what_a_key_signs_its_certificate_verifies() {
        for (algorithm, kind) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, KeyKind::EcdsaP256),
            (&rcgen::PKCS_ECDSA_P384_SHA384, KeyKind::EcdsaP384),
            (&rcgen::PKCS_ED25519, KeyKind::Ed25519),
            (&rcgen::PKCS_RSA_SHA256, KeyKind::Rsa),
        ] {
            let pair = KeyPair::generate_for(algorithm).unwrap();
            let certificate =
                CertificateParams::new(vec!["a.test".into()]).unwrap().self_signed(&pair).unwrap();
            let key = SigningKey::from_der(&pair.serialize_der()).unwrap();
            assert_eq!((key.kind(), key_kind(certificate.der()).unwrap()), (kind, kind));
            let mut signs = 0;
            for scheme in SignatureScheme::ALL {
                let verify =
                    |text: &[u8], signature: &[u8]| scheme.verify(certificate.der(), text, signature);
                let Ok(signature) = key.sign(scheme, b"text") else {
                    assert!(
                        scheme.required_key_kind() != kind || scheme == SignatureScheme::RsaPkcs1Sha1,
                        "{scheme}"
                    );
                    assert!(verify(b"text", &[0; 64]).is_err());
                    continue;
                };
                signs += 1;
                assert_eq!(verify(b"text", &signature), Ok(()), "{scheme}");
                assert_eq!(verify(b"texT", &signature), Err(SignatureError::Signature), "{scheme}");
            }
            assert_eq!(signs, [6, 2, 2, 1][KeyKind::ALL.iter().position(|k| *k == kind).unwrap()]);
        }
    }

    #[test]
    fn keys_of_other_forms_are_read_and_others_refused() {
        let rsa = include_bytes!("../../../../vectors/certs/server1.key.der");
        let certificate = include_bytes!("../../../../vectors/certs/server1.der");
        let key = SigningKey::from_der(rsa).unwrap();
        let signature = key.sign(SignatureScheme::RsaPssSha256, b"text").unwrap();
        assert_eq!(SignatureScheme::RsaPssSha256.verify(certificate, b"text", &signature), Ok(()));
        assert_eq!(SignatureScheme::Ed25519.verify(certificate, b"", b""), Err(SignatureError::Kind));
        assert_eq!(SignatureScheme::Ed25519.verify(&certificate[1..], b"", b""), Err(SignatureError::Key));
        assert!(SigningKey::from_der(&rsa[1..]).is_err() && SigningKey::from_der(&[]).is_err());
    }
}
