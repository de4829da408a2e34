//! A substitute without AWS-LC: handshakes can only be replayed ([`RecordedTls`](super::RecordedTls)).

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::crypto::{CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, SupportedKxGroup};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use rustls::{Error, SupportedCipherSuite};
use std::sync::Arc;

/// Cipher suites and groups: none.
pub(super) struct SuiteOffer {
    pub(super) suites: &'static [SupportedCipherSuite],
    pub(super) groups: &'static [&'static dyn SupportedKxGroup],
}

/// An empty offer.
const NONE: SuiteOffer = SuiteOffer { suites: &[], groups: &[] };
pub(super) static TLS12: SuiteOffer = NONE;
pub(super) static TLS13: SuiteOffer = NONE;
pub(super) static ALL: SuiteOffer = NONE;

#[derive(Debug)]
struct MissingTlsBackend;

impl SecureRandom for MissingTlsBackend {
    fn fill(&self, _: &mut [u8]) -> Result<(), GetRandomFailed> {
        Err(GetRandomFailed)
    }
}

impl KeyProvider for MissingTlsBackend {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        signing_key(&key)
    }
}

pub(super) fn signing_key(_: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, Error> {
    Err(Error::General("this build lacks TLS cryptography; it can only replay recorded handshakes".into()))
}

/// Accepts any key, since this build signs nothing.
pub(super) fn check_key(_: &[CertificateDer<'static>], _: &PrivateKeyDer<'_>) -> Result<(), Error> {
    Ok(())
}

pub(super) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: Vec::new(),
        kx_groups: Vec::new(),
        signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &[], mapping: &[] },
        secure_random: &MissingTlsBackend,
        key_provider: &MissingTlsBackend,
    }
}
