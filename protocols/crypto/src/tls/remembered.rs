//! Signatures of authorities that were found to hold.

use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm};
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{PoisonError, RwLock};

/// Signatures that are remembered: those of more authorities than anybody has.
const MOST: usize = 256;

/// What was found of signatures: that this key made this one on these octets. That never changes, so that nothing has to
/// be forgotten for being old; whether a certificate may still be used is not a question of its signature.
#[derive(Debug, Default)]
pub(super) struct Remembered(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    digests: BTreeSet<[u8; 32]>,
    /// The oldest first.
    order: VecDeque<[u8; 32]>,
}

impl Remembered {
    /// An algorithm that asks this memory first. The signature on `leaf`, a certificate in DER, is always verified: there
    /// are as many of them as peers.
    pub(super) fn algorithm<'a>(
        &'a self,
        inner: &'static dyn SignatureVerificationAlgorithm,
        leaf: &'a [u8],
    ) -> Remembering<'a> {
        Remembering { inner, remembered: self, leaf }
    }

    fn holds(&self, digest: &[u8; 32]) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).digests.contains(digest)
    }

    fn keep(&self, digest: [u8; 32]) {
        let mut held = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !held.digests.insert(digest) {
            return;
        }
        held.order.push_back(digest);
        if held.order.len() > MOST
            && let Some(oldest) = held.order.pop_front()
        {
            held.digests.remove(&oldest);
        }
    }
}

/// An algorithm with a memory.
#[derive(Debug)]
pub(super) struct Remembering<'a> {
    inner: &'static dyn SignatureVerificationAlgorithm,
    remembered: &'a Remembered,
    leaf: &'a [u8],
}

impl Remembering<'_> {
    /// All that the verification depends on, each part with its length.
    fn digest(&self, key: &[u8], message: &[u8], signature: &[u8]) -> [u8; 32] {
        let (of_key, of_signature) = (self.inner.public_key_alg_id(), self.inner.signature_alg_id());
        let mut digest = Sha256::new();
        for part in [of_key.as_ref(), of_signature.as_ref(), key, message, signature] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }
}

/// Whether these octets are what is signed of a certificate: they follow the header of the whole.
fn is_signed_part(certificate: &[u8], octets: &[u8]) -> bool {
    (2..=6).any(|header| certificate.get(header..).is_some_and(|rest| rest.starts_with(octets)))
}

impl SignatureVerificationAlgorithm for Remembering<'_> {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        if is_signed_part(self.leaf, message) {
            return self.inner.verify_signature(key, message, signature);
        }
        let digest = self.digest(key, message, signature);
        if self.remembered.holds(&digest) {
            return Ok(());
        }
        self.inner.verify_signature(key, message, signature)?;
        self.remembered.keep(digest);
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

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let remembered = Remembered::default();
        let digest = |n: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&n.to_be_bytes());
            digest
        };
        for n in 0..=MOST {
            remembered.keep(digest(n));
            remembered.keep(digest(n));
        }
        assert!(!remembered.holds(&digest(0)) && remembered.holds(&digest(1)));
        let held = remembered.0.read().unwrap();
        assert_eq!((held.digests.len(), held.order.len()), (MOST, MOST));
    }

    #[test]
    fn what_is_signed_of_a_certificate_is_known() {
        let leaf = super::super::fixtures::root();
        // SEQUENCE of two length octets, and in it what is signed, of two more.
        let length = 4 + usize::from(u16::from_be_bytes([leaf[6], leaf[7]]));
        let signed = &leaf[4..4 + length];
        assert!(is_signed_part(leaf, signed));
        assert!(!is_signed_part(leaf, &leaf[9..40]) && !is_signed_part(&leaf[..100], signed));
    }
}
