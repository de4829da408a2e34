//! What TLS is computed by: AWS-LC.

use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{cipher_suite, kx_group};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SupportedCipherSuite};

pub(super) use rustls::crypto::aws_lc_rs::default_provider as provider;
pub(super) use rustls::crypto::aws_lc_rs::sign::any_supported_type as signing_key;

/// Cipher suites and groups, the preferred first.
pub(super) struct SuiteOffer {
    pub(super) suites: &'static [SupportedCipherSuite],
    pub(super) groups: &'static [&'static dyn SupportedKxGroup],
}

/// What a client of TLS 1.2 alone offers.
pub(super) static TLS12: SuiteOffer = SuiteOffer {
    suites: &[cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256],
    groups: &[kx_group::X25519],
};
/// What a client of TLS 1.3 alone offers.
pub(super) static TLS13: SuiteOffer =
    SuiteOffer { suites: &[cipher_suite::TLS13_AES_128_GCM_SHA256], groups: &[kx_group::X25519] };
/// All.
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

/// Whether a key is that of the first certificate of a chain.
pub(super) fn check_key(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'_>) -> Result<(), Error> {
    match CertifiedKey::new(chain.to_vec(), signing_key(key)?).keys_match() {
        // A key that does not say its public part is tried out by its first signature.
        Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        matched => matched,
    }
}
