//! Cryptography providers that count every public-key operation.
//!
//! All sessions share a configuration, so an operation does not know its session. It runs inside the call that feeds
//! the session. So a counter per thread, read before and after the call, gives the session's work.

use super::library::{self, SuiteOffer};
use super::{TlsOperationCounts, TlsVersion, TlsVersionRange};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, KeyProvider, SharedSecret, SupportedKxGroup, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer,
};
use rustls::sign::{Signer, SigningKey};
use rustls::{Error, NamedGroup, SignatureAlgorithm, SignatureScheme};
use std::cell::Cell;
use std::sync::{Arc, LazyLock};

std::thread_local! {
    static DONE: Cell<TlsOperationCounts> = const { Cell::new(TlsOperationCounts { sign: 0, verify: 0, key_exchange: 0 }) };
}

fn add_tls_operation_counts(sign: u32, verify: u32, key_exchange: u32) {
    DONE.with(|cell| {
        let mut sum = cell.get();
        sum += TlsOperationCounts { sign, verify, key_exchange };
        cell.set(sum);
    });
}

/// Returns the operations of this thread since the last call.
pub(super) fn take_tls_operation_counts() -> TlsOperationCounts {
    DONE.with(Cell::take)
}

/// Returns the provider of clients that offer these versions. A client offers all suites of its provider. For a single
/// version that is one suite and one group, so that all handshakes have equal lengths; for several versions it is all.
pub(super) fn client_provider(versions: TlsVersionRange) -> Arc<CryptoProvider> {
    static TLS12: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| counting_provider(&library::TLS12));
    static TLS13: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| counting_provider(&library::TLS13));
    match (versions.min, versions.max) {
        (_, TlsVersion::Tls12) => TLS12.clone(),
        (TlsVersion::Tls13, _) => TLS13.clone(),
        (TlsVersion::Tls12, TlsVersion::Tls13) => server_provider(),
    }
}

/// Returns the provider of all servers, which accepts whatever clients offer.
pub(super) fn server_provider() -> Arc<CryptoProvider> {
    static ALL: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| counting_provider(&library::ALL));
    ALL.clone()
}

/// Returns the provider, or a copy with signatures of one length.
pub(super) fn signing_provider(provider: Arc<CryptoProvider>, even: bool) -> Arc<CryptoProvider> {
    match even {
        true => Arc::new(CryptoProvider {
            key_provider: &FixedLengthKeyProvider,
            ..CryptoProvider::clone(&provider)
        }),
        false => provider,
    }
}

/// True if the key is RSA.
pub(super) fn is_rsa(key: &PrivateKeyDer<'_>) -> bool {
    library::signing_key(key).is_ok_and(|key| key.algorithm() == SignatureAlgorithm::RSA)
}

fn counting_provider(offer: &SuiteOffer) -> Arc<CryptoProvider> {
    static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
        LazyLock::new(|| counted_algorithms(library::provider().signature_verification_algorithms));
    Arc::new(CryptoProvider {
        cipher_suites: offer.suites.to_vec(),
        kx_groups: offer.groups.iter().map(|group| wrap_counting_kx_group(*group)).collect(),
        signature_verification_algorithms: *ALGORITHMS,
        key_provider: &CountingKeyProvider,
        ..library::provider()
    })
}

// rustls takes these lists with a `'static` lifetime, so they are leaked. They are created only once.
fn counted_algorithms(base: WebPkiSupportedAlgorithms) -> WebPkiSupportedAlgorithms {
    type AlgorithmList = &'static [&'static dyn SignatureVerificationAlgorithm];
    fn wrap_counting_verifiers(algorithms: AlgorithmList) -> AlgorithmList {
        let counted = |algorithm: &&'static dyn SignatureVerificationAlgorithm| {
            &*Box::leak(Box::new(CountingSignatureVerifier(*algorithm)))
                as &'static dyn SignatureVerificationAlgorithm
        };
        Box::leak(algorithms.iter().map(counted).collect())
    }
    let mapping = base
        .mapping
        .iter()
        .map(|(scheme, algorithms)| (*scheme, wrap_counting_verifiers(algorithms)))
        .collect();
    WebPkiSupportedAlgorithms { all: wrap_counting_verifiers(base.all), mapping: Box::leak(mapping) }
}

#[derive(Debug)]
struct CountingSignatureVerifier(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for CountingSignatureVerifier {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        add_tls_operation_counts(0, 1, 0);
        self.0.verify_signature(key, message, signature)
    }
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }
    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
    fn fips(&self) -> bool {
        self.0.fips()
    }
}

// rustls takes groups with a `'static` lifetime, so they are leaked. There are at most three providers with three
// groups each.
fn wrap_counting_kx_group(group: &'static dyn SupportedKxGroup) -> &'static dyn SupportedKxGroup {
    Box::leak(Box::new(CountingKxGroup(group)))
}

#[derive(Debug)]
struct CountingKxGroup(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for CountingKxGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(CountingKeyExchange(self.0.start()?)))
    }
    fn name(&self) -> NamedGroup {
        self.0.name()
    }
}

struct CountingKeyExchange(Box<dyn ActiveKeyExchange>);

impl ActiveKeyExchange for CountingKeyExchange {
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        add_tls_operation_counts(0, 0, 1);
        self.0.complete(peer)
    }
    fn pub_key(&self) -> &[u8] {
        self.0.pub_key()
    }
    fn group(&self) -> NamedGroup {
        self.0.group()
    }
}

#[derive(Debug)]
struct CountingKeyProvider;

impl KeyProvider for CountingKeyProvider {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Ok(Arc::new(CountingSigningKey(library::signing_key(&key)?)))
    }
}

#[derive(Debug)]
struct FixedLengthKeyProvider;

impl KeyProvider for FixedLengthKeyProvider {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Ok(Arc::new(CountingSigningKey(Arc::new(FixedLengthSigningKey(library::signing_key(&key)?)))))
    }
}

#[derive(Debug)]
struct FixedLengthSigningKey(Arc<dyn SigningKey>);

impl SigningKey for FixedLengthSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(FixedLengthSigner(self.0.choose_scheme(offered)?)))
    }
    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

/// A signer that repeats until the signature has the length that about half of all have.
#[derive(Debug)]
struct FixedLengthSigner(Box<dyn Signer>);

/// The maximum number of tries; about one in two succeeds.
const MOST_TRIES: usize = 64;

impl Signer for FixedLengthSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        // The usual length of a signature: two DER integers (RFC 3279 section 2.2.3), of which exactly one has its
        // highest bit set and takes an extra octet. With 521 bits neither has.
        let usual = match self.scheme() {
            SignatureScheme::ECDSA_NISTP256_SHA256 => 71,
            SignatureScheme::ECDSA_NISTP384_SHA384 => 103,
            SignatureScheme::ECDSA_NISTP521_SHA512 => 139,
            _ => return self.0.sign(message),
        };
        let mut signature = self.0.sign(message)?;
        for _ in 1..MOST_TRIES {
            if signature.len() == usual {
                break;
            }
            signature = self.0.sign(message)?;
        }
        Ok(signature)
    }
    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

#[derive(Debug)]
struct CountingSigningKey(Arc<dyn SigningKey>);

/// The preferred signature schemes of an RSA key, if the peer leaves the choice. SHA-256 has a strength of 128 bits,
/// like RSA with 3072 bits (NIST SP 800-57 part 1, tables 2 and 3). Processors have instructions for it, rarely for
/// SHA-512.
///
/// PKCS #1 v1.5 comes last: new applications should use PSS (RFC 8017 §8).
const FIRST: [SignatureScheme; 4] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
];

impl SigningKey for CountingSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let first = FIRST.iter().filter(|scheme| offered.contains(scheme));
        let first = first.map(std::slice::from_ref).find_map(|scheme| self.0.choose_scheme(scheme));
        Some(Box::new(CountingSigner(first.or_else(|| self.0.choose_scheme(offered))?)))
    }
    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        self.0.public_key()
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[derive(Debug)]
struct CountingSigner(Box<dyn Signer>);

impl Signer for CountingSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        add_tls_operation_counts(1, 0, 0);
        self.0.sign(message)
    }
    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use SignatureScheme;

    #[test]
    fn an_rsa_key_signs_by_sha_256_where_the_peer_leaves_the_choice() {
        let key = PrivateKeyDer::try_from(fixtures::server_credentials(1).key_der().to_vec()).unwrap();
        let key = CountingKeyProvider.load_private_key(key).unwrap();
        let chosen = |offered: &[SignatureScheme]| key.choose_scheme(offered).map(|signer| signer.scheme());
        let pss = [
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA256,
        ];
        assert_eq!(chosen(&pss), Some(SignatureScheme::RSA_PSS_SHA256));
        assert_eq!(chosen(&pss[..3]), Some(SignatureScheme::RSA_PSS_SHA384));
        assert_eq!(
            chosen(&pss[..2]),
            Some(SignatureScheme::RSA_PSS_SHA512),
            "before PKCS #1 v1.5, whatever the digest"
        );
        assert_eq!(
            chosen(&[SignatureScheme::RSA_PKCS1_SHA512, SignatureScheme::RSA_PKCS1_SHA256]),
            Some(SignatureScheme::RSA_PKCS1_SHA256)
        );
        assert_eq!(chosen(&[SignatureScheme::ED25519]), None);
    }

    #[test]
    fn ecdsa_signatures_are_of_one_length_where_that_is_asked_for() {
        let (p256, p384) = (&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384);
        let kinds = [
            (p256, SignatureScheme::ECDSA_NISTP256_SHA256, 71),
            (p384, SignatureScheme::ECDSA_NISTP384_SHA384, 103),
        ];
        for (kind, scheme, usual) in kinds {
            let made = rcgen::KeyPair::generate_for(kind).unwrap().serialize_der();
            let key = PrivateKeyDer::try_from(made).unwrap();
            let lengths = |keys: &dyn KeyProvider| -> std::collections::BTreeSet<usize> {
                let signer =
                    keys.load_private_key(key.clone_key()).unwrap().choose_scheme(&[scheme]).unwrap();
                (0..64).map(|_| signer.sign(b"said").unwrap().len()).collect()
            };
            assert_eq!(lengths(&FixedLengthKeyProvider), [usual].into(), "{scheme:?}");
            assert!(lengths(&CountingKeyProvider).len() > 1, "else there is no need of it");
        }
        take_tls_operation_counts();
        let rsa = PrivateKeyDer::try_from(fixtures::server_credentials(1).key_der().to_vec()).unwrap();
        assert!(is_rsa(&rsa));
        let signer = FixedLengthKeyProvider
            .load_private_key(rsa)
            .unwrap()
            .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
            .unwrap();
        assert_eq!((signer.sign(b"said").unwrap().len(), take_tls_operation_counts().sign), (256, 1));
    }
}
