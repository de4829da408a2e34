//! A cache of verified signatures on certificates and revocation lists.

use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{PoisonError, RwLock};

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
struct SignatureCacheLimits {
    signatures: usize,
    /// The octets of signed data, keys and signatures.
    octets: usize,
}

/// The limits for authorities' certificates and lists, more than any installation has. A list may be long; a list above
/// the limit is verified each time.
const AUTHORITIES: SignatureCacheLimits = SignatureCacheLimits { signatures: 256, octets: 64 << 20 };
/// The limits for peers' certificates, of about 1.5 KB each, for peers that return soon.
const PEERS: SignatureCacheLimits = SignatureCacheLimits { signatures: 4096, octets: 16 << 20 };

/// A cache of valid signatures: this key created this signature on these octets. That never changes, so entries do not
/// expire. Validity and revocation of a certificate are separate checks.
///
/// Peers' certificates have a separate part, so that they never evict an authority's.
#[derive(Debug)]
pub(super) struct VerificationCache {
    authorities: RwLock<SignatureCache>,
    peers: RwLock<SignatureCache>,
    /// Certificates of authorities below trusted ones. Each needs a cached signature, which bounds their number.
    issuers: RwLock<BTreeSet<Vec<u8>>>,
}

impl Default for VerificationCache {
    fn default() -> Self {
        Self {
            authorities: RwLock::new(SignatureCache::new(AUTHORITIES)),
            peers: RwLock::new(SignatureCache::new(PEERS)),
            issuers: RwLock::default(),
        }
    }
}

impl VerificationCache {
    /// Returns an algorithm that consults the cache first, while a path from the DER certificate `leaf` is verified.
    pub(super) fn caching_algorithm<'a>(
        &'a self,
        inner: &'static dyn SignatureVerificationAlgorithm,
        leaf: &'a [u8],
    ) -> CachingSignatureVerifier<'a> {
        CachingSignatureVerifier { inner, verification_cache: self, leaf }
    }
    /// True if all of these are known certificates of authorities.
    pub(super) fn contains_issuers(&self, shown: &[CertificateDer<'_>]) -> bool {
        let issuers = self.issuers.read().unwrap_or_else(PoisonError::into_inner);
        shown.iter().all(|der| issuers.contains(der.as_ref()))
    }
    /// Records certificates of authorities.
    pub(super) fn cache_authority_certificates(&self, found: &[CertificateDer<'_>]) {
        let mut issuers = self.issuers.write().unwrap_or_else(PoisonError::into_inner);
        for der in found {
            if issuers.len() < AUTHORITIES.signatures {
                issuers.insert(der.to_vec());
            }
        }
    }
}

/// All inputs of a verification except the signature. The octets themselves are compared, since a digest could have a
/// collision.
#[derive(Debug)]
struct SignatureCacheKey {
    algorithms: [AlgorithmIdentifier; 2],
    key: Vec<u8>,
    message: Vec<u8>,
}

impl SignatureCacheKey {
    fn octet_count(&self, signature: &[u8]) -> usize {
        self.key.len() + self.message.len() + 2 * signature.len()
    }
}

/// Valid signatures.
#[derive(Debug)]
struct SignatureCache {
    most: SignatureCacheLimits,
    octets: usize,
    verified_messages: BTreeMap<Vec<u8>, SignatureCacheKey>,
    /// The oldest first.
    order: VecDeque<Vec<u8>>,
}

impl SignatureCache {
    fn new(most: SignatureCacheLimits) -> Self {
        Self { most, octets: 0, verified_messages: BTreeMap::new(), order: VecDeque::new() }
    }

    fn contains_signature(
        &self,
        algorithms: [AlgorithmIdentifier; 2],
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let signed = self.verified_messages.get(signature);
        signed.is_some_and(|s| s.algorithms == algorithms && s.key == key && s.message == message)
    }

    fn insert_signature(&mut self, signature: &[u8], signed: SignatureCacheKey) {
        let octets = signed.octet_count(signature);
        if octets > self.most.octets {
            return;
        }
        self.octets += octets;
        match self.verified_messages.insert(signature.to_vec(), signed) {
            Some(before) => self.octets -= before.octet_count(signature),
            None => self.order.push_back(signature.to_vec()),
        }
        while self.verified_messages.len() > self.most.signatures || self.octets > self.most.octets {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(gone) = self.verified_messages.remove(&oldest) {
                self.octets -= gone.octet_count(&oldest);
            }
        }
    }
}

/// An algorithm with a cache.
#[derive(Debug)]
pub(super) struct CachingSignatureVerifier<'a> {
    inner: &'static dyn SignatureVerificationAlgorithm,
    verification_cache: &'a VerificationCache,
    leaf: &'a [u8],
}

/// True if these octets are the signed part of the certificate: they follow the header of the whole.
fn is_tbs_certificate_of(certificate: &[u8], octets: &[u8]) -> bool {
    (2..=6).any(|header| certificate.get(header..).is_some_and(|rest| rest.starts_with(octets)))
}

impl SignatureVerificationAlgorithm for CachingSignatureVerifier<'_> {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let of_peer = is_tbs_certificate_of(self.leaf, message);
        let memory =
            if of_peer { &self.verification_cache.peers } else { &self.verification_cache.authorities };
        let algorithms = [self.inner.public_key_alg_id(), self.inner.signature_alg_id()];
        let held = memory.read().unwrap_or_else(PoisonError::into_inner);
        if held.contains_signature(algorithms, key, message, signature) {
            return Ok(());
        }
        drop(held);
        self.inner.verify_signature(key, message, signature)?;
        let signed = SignatureCacheKey { algorithms, key: key.to_vec(), message: message.to_vec() };
        memory.write().unwrap_or_else(PoisonError::into_inner).insert_signature(signature, signed);
        Ok(())
    }
    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.public_key_alg_id()
    }
    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.signature_alg_id()
    }
    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::alg_id;

    const RSA: [AlgorithmIdentifier; 2] = [alg_id::RSA_ENCRYPTION, alg_id::RSA_PKCS1_SHA256];

    const FEW: SignatureCacheLimits = SignatureCacheLimits { signatures: 3, octets: 1000 };

    fn signed_message(message: &[u8]) -> SignatureCacheKey {
        SignatureCacheKey { algorithms: RSA, key: b"key".to_vec(), message: message.to_vec() }
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut signatures = SignatureCache::new(FEW);
        for n in 0..4 {
            signatures.insert_signature(&[n], signed_message(&[n]));
            signatures.insert_signature(&[n], signed_message(&[n]));
        }
        let holds = |n| signatures.contains_signature(RSA, b"key", &[n], &[n]);
        assert_eq!([0, 1, 2, 3].map(holds), [false, true, true, true]);
        assert_eq!((signatures.verified_messages.len(), signatures.order.len()), (3, 3));
    }

    #[test]
    fn so_many_octets_are_remembered_and_no_more() {
        let mut signatures = SignatureCache::new(FEW);
        let holds =
            |s: &SignatureCache, n: u8, length| s.contains_signature(RSA, b"key", &vec![n; length], &[n]);
        for n in 0..3 {
            // With the key, and the signature twice.
            signatures.insert_signature(&[n], signed_message(&vec![n; 400]));
            assert!(holds(&signatures, n, 400));
        }
        assert_eq!(
            (signatures.octets, signatures.verified_messages.len(), signatures.order.len()),
            (810, 2, 2)
        );
        assert!(!holds(&signatures, 0, 400));
        signatures.insert_signature(&[9], signed_message(&[9; 1000]));
        assert!(!holds(&signatures, 9, 1000), "it would have no room");
        assert!(holds(&signatures, 1, 400) && holds(&signatures, 2, 400), "and nobody goes for it");
        // The same signature under another key counts once.
        signatures.insert_signature(&[2], signed_message(&[2; 500]));
        assert_eq!((signatures.octets, signatures.verified_messages.len()), (910, 2));
        signatures.insert_signature(&[3], signed_message(&[3; 990]));
        assert_eq!(
            (signatures.octets, signatures.verified_messages.len(), signatures.order.len()),
            (995, 1, 1)
        );
    }

    #[test]
    fn a_signature_is_of_one_key_algorithm_and_message() {
        let mut signatures = SignatureCache::new(FEW);
        signatures.insert_signature(b"signature", signed_message(b"message"));
        let other = [alg_id::RSA_ENCRYPTION, alg_id::RSA_PKCS1_SHA384];
        assert!(signatures.contains_signature(RSA, b"key", b"message", b"signature"));
        assert!(!signatures.contains_signature(other, b"key", b"message", b"signature"));
        assert!(!signatures.contains_signature(RSA, b"kez", b"message", b"signature"));
        assert!(!signatures.contains_signature(RSA, b"key", b"messagf", b"signature"));
        assert!(!signatures.contains_signature(RSA, b"key", b"message", b"signaturf"));
    }

    #[test]
    fn what_is_signed_of_a_certificate_is_known() {
        let leaf = super::super::fixtures::root_certificate();
        // A SEQUENCE with two length octets, and in it the signed part with two more.
        let length = 4 + usize::from(u16::from_be_bytes([leaf[6], leaf[7]]));
        let signed = &leaf[4..4 + length];
        assert!(is_tbs_certificate_of(leaf, signed));
        assert!(!is_tbs_certificate_of(leaf, &leaf[9..40]) && !is_tbs_certificate_of(&leaf[..100], signed));
    }
}
