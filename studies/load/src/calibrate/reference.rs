//! The speed of one core of this machine at the operations of logins.

use aws_lc_rs::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey as VerifyingKey,
};
use std::hint::black_box;
use std::time::Duration;
use usher_core::SecureRng;
use usher_crypto::exchange::KeyExchangeAlgorithm;
use usher_ike::code::{KeyExchangeMethod, TransformType};
use usher_ike::payload::Proposal;
use usher_live::thread_cpu_time;

/// Duration of each repetition.
const TIME: Duration = Duration::from_millis(150);
const MESSAGE: &[u8] = &[0x5a; 64];

/// Seconds of CPU time for each operation, on one core.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CryptoOperationTimes {
    /// Making and checking an RSA signature with 2048 bits.
    pub rsa_2048: (f64, f64),
    /// Making and checking an ECDSA signature on P-256.
    pub ecdsa_p256: (f64, f64),
    /// An X25519 key exchange: a new key pair and a shared secret.
    pub x25519: f64,
    /// An MD5 digest of 64 octets.
    pub md5: f64,
}

/// Why operations could not be timed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the signature library rejects its own keys: this is a bug in usher")]
pub struct CryptoTimingError;

impl CryptoOperationTimes {
    /// Times each operation on this thread, for about a second in all.
    ///
    /// # Errors
    /// The library rejects keys that it made itself.
    pub fn measure_all() -> Result<Self, CryptoTimingError> {
        let random = SystemRandom::new();
        let rsa = RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| CryptoTimingError)?;
        let mut signature = vec![0; rsa.public_modulus_len()];
        let mut sign =
            || rsa.sign(&RSA_PKCS1_SHA256, &random, MESSAGE, &mut signature).map_err(|_| CryptoTimingError);
        sign()?;
        let rsa_sign = time_operation(&mut sign);
        let public = VerifyingKey::new(&RSA_PKCS1_2048_8192_SHA256, rsa.public_key().as_ref().to_vec());
        public.verify(MESSAGE, &signature).map_err(|_| CryptoTimingError)?;
        let rsa_verify = time_operation(|| public.verify(MESSAGE, &signature));
        let ecdsa = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| CryptoTimingError)?;
        let signature = ecdsa.sign(&random, MESSAGE).map_err(|_| CryptoTimingError)?;
        let ecdsa_sign = time_operation(|| ecdsa.sign(&random, MESSAGE));
        let public = VerifyingKey::new(&ECDSA_P256_SHA256_ASN1, ecdsa.public_key().as_ref().to_vec());
        public.verify(MESSAGE, signature.as_ref()).map_err(|_| CryptoTimingError)?;
        let ecdsa_verify = time_operation(|| public.verify(MESSAGE, signature.as_ref()));
        let other = EphemeralPrivateKey::generate(&X25519, &random).map_err(|_| CryptoTimingError)?;
        let other = other.compute_public_key().map_err(|_| CryptoTimingError)?;
        let exchange = || {
            let own = EphemeralPrivateKey::generate(&X25519, &random).map_err(|_| CryptoTimingError)?;
            let public = own.compute_public_key().map_err(|_| CryptoTimingError)?;
            let peer = UnparsedPublicKey::new(&X25519, other.as_ref());
            agree_ephemeral(own, peer, CryptoTimingError, |secret| Ok(secret.len() + public.as_ref().len()))
        };
        exchange()?;
        let x25519 = time_operation(exchange);
        let md5 = time_operation(|| usher_crypto::digest::md5(&[black_box(MESSAGE)]));
        Ok(Self { rsa_2048: (rsa_sign, rsa_verify), ecdsa_p256: (ecdsa_sign, ecdsa_verify), x25519, md5 })
    }

    /// Returns the faster of two timings of each: other programs can only add time.
    #[must_use]
    pub const fn keep_faster_timings(self, other: &Self) -> Self {
        const fn pairwise_minimum(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
            (a.0.min(b.0), a.1.min(b.1))
        }
        Self {
            rsa_2048: pairwise_minimum(self.rsa_2048, other.rsa_2048),
            ecdsa_p256: pairwise_minimum(self.ecdsa_p256, other.ecdsa_p256),
            x25519: self.x25519.min(other.x25519),
            md5: self.md5.min(other.md5),
        }
    }
}

/// Returns the seconds of one public-key operation of the responder in the first proposal's key exchange; `None` if it
/// is unknown.
#[must_use]
pub fn key_exchange(proposals: &[Proposal]) -> Option<f64> {
    let method =
        proposals.iter().find_map(|proposal| proposal.transforms_of_kind(TransformType::KE).next())?;
    let algorithm = usher_ike::suite::exchange_algorithm(KeyExchangeMethod(method.id))?;
    let mut rng = SecureRng::from_seed([3; 32]);
    let begun = algorithm.start_exchange(&mut rng).ok()?;
    let mut answer = || algorithm.answer_exchange(&mut rng, begun.public_value());
    answer().ok()?;
    Some(time_operation(answer) / f64::from(KeyExchangeAlgorithm::responder_operation_count(algorithm)))
}

/// Returns the least CPU time of an operation in three turns: other programs and interrupts only make a turn longer.
fn time_operation<T>(mut once: impl FnMut() -> T) -> f64 {
    let mut turn = |time: Duration| {
        let begun = thread_cpu_time();
        let mut times = 0_u32;
        loop {
            // Run several operations between two clock readings, so that the reading's own time hardly counts.
            for _ in 0..16 {
                black_box(once());
            }
            times += 16;
            let taken = thread_cpu_time().saturating_sub(begun);
            if taken >= time {
                return taken.as_secs_f64() / f64::from(times);
            }
        }
    };
    (0..3).map(|_| turn(TIME / 3)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_take_their_time() {
        let all = CryptoOperationTimes::measure_all().unwrap();
        // Orders of magnitude that hold for every build on every machine: a private RSA operation takes far longer than
        // a public one, and a digest of a block far less than both.
        assert!(all.rsa_2048.0 > 4.0 * all.rsa_2048.1, "{all:?}");
        assert!(all.md5 < all.x25519 && all.md5 < all.ecdsa_p256.1 && all.md5 > 1e-9, "{all:?}");
        assert!(all.rsa_2048.0 < 1.0, "{all:?}");
    }

    #[test]
    fn a_larger_group_takes_longer() {
        let of = |words: &str| key_exchange(&[Proposal::parse_ike_proposal(words).unwrap()]).unwrap();
        let (curve, modp) = (of("aes128-sha256-x25519"), of("aes128-sha256-modp3072"));
        assert!(modp > 3.0 * curve && curve > 1e-7, "{modp} {curve}");
        assert_eq!(key_exchange(&[]), None);
    }
}
