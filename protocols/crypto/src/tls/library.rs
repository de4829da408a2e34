//! The cryptography library of TLS: AWS-LC.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SupportedCipherSuite};

pub(super) use rustls::crypto::aws_lc_rs::default_provider as provider;
pub(super) use rustls::crypto::aws_lc_rs::sign::any_supported_type as signing_key;

/// Cipher suites and groups, in order of preference.
pub(super) struct SuiteOffer {
    pub(super) suites: &'static [SupportedCipherSuite],
    pub(super) groups: &'static [&'static dyn SupportedKxGroup],
}

/// The offer of a client with TLS 1.2 only.
pub(super) static TLS12: SuiteOffer = SuiteOffer {
    suites: &[cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256],
    groups: &[kx_group::X25519],
};
/// The offer of a client with TLS 1.3 only.
pub(super) static TLS13: SuiteOffer =
    SuiteOffer { suites: &[cipher_suite::TLS13_AES_128_GCM_SHA256], groups: &[kx_group::X25519] };
/// All suites and groups.
pub(super) static ALL: SuiteOffer = SuiteOffer {
    suites: &[
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ],
    groups: &[kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
};

/// Checks that a key belongs to the first certificate of a chain.
pub(super) fn check_key(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'_>) -> Result<(), Error> {
    match CertifiedKey::new(chain.to_vec(), signing_key(key)?).keys_match() {
        // A key without its public part cannot be compared here, so a mismatch shows only at its first signature.
        Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        matched => matched,
    }
}
