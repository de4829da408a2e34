//! Exchanges on curves and by encapsulation, with AWS-LC.

use super::{KeyExchange, KeyExchangeAlgorithm, KeyExchangeError};
use crate::SecretValue;
use alloc::boxed::Box;
use alloc::vec::Vec;
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};
use usher_core::SecureRng;

/// The prefix of an uncompressed point (SEC 1 §2.3.3), which the wire omits (RFC 5903 §7).
const POINT: u8 = 4;
/// The maximum number of draws for a private key. At most one draw in 2^32 is invalid.
const DRAWS: usize = 8;

/// Returns the curve, the length of a private key in octets, and true if a public key has a prefix.
const fn curve_parameters(
    method: KeyExchangeAlgorithm,
) -> Option<(&'static agreement::Algorithm, usize, bool)> {
    match method {
        KeyExchangeAlgorithm::Ecp256 => Some((&agreement::ECDH_P256, 32, true)),
        KeyExchangeAlgorithm::Ecp384 => Some((&agreement::ECDH_P384, 48, true)),
        KeyExchangeAlgorithm::X25519 => Some((&agreement::X25519, 32, false)),
        _ => None,
    }
}

pub(super) fn start_exchange(
    method: KeyExchangeAlgorithm,
    rng: &mut SecureRng,
) -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
    if method == KeyExchangeAlgorithm::MlKem768 {
        return start_ml_kem_exchange();
    }
    let (_, octets, _) = curve_parameters(method).ok_or(KeyExchangeError::Absent)?;
    let mut drawn = || {
        let mut scalar = SecretValue::new([0; 48]);
        rng.fill_bytes(&mut scalar[..octets]);
        with_private_key(method, &scalar[..octets])
    };
    (0..DRAWS).find_map(|_| drawn().ok()).ok_or(KeyExchangeError::Library)
}

pub(super) fn with_private_key(
    method: KeyExchangeAlgorithm,
    key: &[u8],
) -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
    let (algorithm, _, point) = curve_parameters(method).ok_or(KeyExchangeError::Absent)?;
    let private = PrivateKey::from_private_key(algorithm, key).map_err(|_| KeyExchangeError::Library)?;
    let public = private.compute_public_key().map_err(|_| KeyExchangeError::Library)?;
    let public = public.as_ref()[usize::from(point)..].to_vec();
    Ok(Box::new(EcdhExchange { private, public, algorithm, point }))
}

struct EcdhExchange {
    private: PrivateKey,
    public: Vec<u8>,
    algorithm: &'static agreement::Algorithm,
    point: bool,
}

impl KeyExchange for EcdhExchange {
    fn public_value(&self) -> &[u8] {
        &self.public
    }
    fn derive_secret(self: Box<Self>, peer: &[u8]) -> Result<SecretValue, KeyExchangeError> {
        if peer.len() != self.public.len() {
            return Err(KeyExchangeError::Public);
        }
        let head: &[u8] = if self.point { &[POINT] } else { &[] };
        let peer = UnparsedPublicKey::new(self.algorithm, [head, peer].concat());
        // RFC 8031, 2: AWS-LC rejects points off the curve, and X25519 points that yield a zero secret.
        agreement::agree(&self.private, peer, KeyExchangeError::Public, |secret| {
            Ok(SecretValue::from(secret))
        })
    }
}

struct MlKemExchange {
    private: DecapsulationKey,
    public: Vec<u8>,
}

fn start_ml_kem_exchange() -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
    let private = DecapsulationKey::generate(&ML_KEM_768).map_err(|_| KeyExchangeError::Library)?;
    let public = private.encapsulation_key().and_then(|key| key.key_bytes());
    let public = public.map_err(|_| KeyExchangeError::Library)?.as_ref().to_vec();
    Ok(Box::new(MlKemExchange { private, public }))
}

impl KeyExchange for MlKemExchange {
    fn public_value(&self) -> &[u8] {
        &self.public
    }
    fn derive_secret(self: Box<Self>, peer: &[u8]) -> Result<SecretValue, KeyExchangeError> {
        let secret =
            self.private.decapsulate(Ciphertext::from(peer)).map_err(|_| KeyExchangeError::Public)?;
        Ok(SecretValue::from(secret.as_ref()))
    }
}

/// Encapsulates to the peer's key. Returns the ciphertext and the secret.
pub(super) fn encapsulate(peer: &[u8]) -> Result<(Vec<u8>, SecretValue), KeyExchangeError> {
    let key = EncapsulationKey::new(&ML_KEM_768, peer).map_err(|_| KeyExchangeError::Public)?;
    let (ciphertext, secret) = key.encapsulate().map_err(|_| KeyExchangeError::Public)?;
    Ok((ciphertext.as_ref().to_vec(), SecretValue::from(secret.as_ref())))
}
