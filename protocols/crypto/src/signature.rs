//! Signatures by the keys of certificates, outside TLS: their names and, with the feature `tls`, signing and
//! verification.

#[cfg(all(feature = "tls", target_arch = "wasm32"))]
mod absent;
#[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
mod aws;
#[cfg(feature = "tls")]
mod certified;

#[cfg(all(feature = "tls", target_arch = "wasm32"))]
pub use absent::SigningKey;
#[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
pub use aws::SigningKey;
#[cfg(feature = "tls")]
pub use certified::key_kind;

usher_core::named! {
    "a kind of key";
    /// The kind of a key.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum KeyKind {
        /// RSA.
        Rsa = "rsa",
        /// The curve P-256.
        EcdsaP256 = "ecdsa-p256",
        /// The curve P-384.
        EcdsaP384 = "ecdsa-p384",
        /// Ed25519.
        Ed25519 = "ed25519",
    }
}

usher_core::named! {
    "a signature scheme";
    /// A signature scheme.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub enum SignatureScheme {
        /// RSASSA-PKCS1-v1_5 with SHA-1. It is verified only, for what still sends it.
        RsaPkcs1Sha1 = "rsa-pkcs1-sha1",
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        RsaPkcs1Sha256 = "rsa-pkcs1-sha256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        RsaPkcs1Sha384 = "rsa-pkcs1-sha384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        RsaPkcs1Sha512 = "rsa-pkcs1-sha512",
        /// RSASSA-PSS with SHA-256 and a salt as long as the digest.
        RsaPssSha256 = "rsa-pss-sha256",
        /// RSASSA-PSS with SHA-384 and a salt as long as the digest.
        RsaPssSha384 = "rsa-pss-sha384",
        /// RSASSA-PSS with SHA-512 and a salt as long as the digest.
        RsaPssSha512 = "rsa-pss-sha512",
        /// ECDSA on P-256 with SHA-256, in DER.
        EcdsaP256Sha256 = "ecdsa-p256-sha256",
        /// ECDSA on P-384 with SHA-384, in DER.
        EcdsaP384Sha384 = "ecdsa-p384-sha384",
        /// ECDSA on P-256 with SHA-256, r and s of 32 octets each.
        EcdsaP256Sha256Fixed = "ecdsa-p256-sha256-fixed",
        /// ECDSA on P-384 with SHA-384, r and s of 48 octets each.
        EcdsaP384Sha384Fixed = "ecdsa-p384-sha384-fixed",
        /// Ed25519.
        Ed25519 = "ed25519",
    }
}

/// An error of signing or verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignatureError {
    /// The key is of another kind than the scheme needs.
    #[error("the signature scheme needs another kind of key")]
    Kind,
    /// The certificate is unreadable, or the kind of its key is unknown.
    #[error("the certificate's key is unreadable or of an unknown kind")]
    Key,
    /// The signature is not valid for this key and text.
    #[error("the signature is not valid")]
    Signature,
    /// The library refuses.
    #[error("the cryptographic library failed")]
    Library,
}

impl SignatureScheme {
    /// True for RSASSA-PSS (RFC 8017 §8.1).
    #[must_use]
    pub const fn is_pss(self) -> bool {
        matches!(self, Self::RsaPssSha256 | Self::RsaPssSha384 | Self::RsaPssSha512)
    }
    /// Returns the kind of key that the scheme needs.
    #[must_use]
    pub const fn required_key_kind(self) -> KeyKind {
        match self {
            Self::RsaPkcs1Sha1
            | Self::RsaPkcs1Sha256
            | Self::RsaPkcs1Sha384
            | Self::RsaPkcs1Sha512
            | Self::RsaPssSha256
            | Self::RsaPssSha384
            | Self::RsaPssSha512 => KeyKind::Rsa,
            Self::EcdsaP256Sha256 | Self::EcdsaP256Sha256Fixed => KeyKind::EcdsaP256,
            Self::EcdsaP384Sha384 | Self::EcdsaP384Sha384Fixed => KeyKind::EcdsaP384,
            Self::Ed25519 => KeyKind::Ed25519,
        }
    }
}
