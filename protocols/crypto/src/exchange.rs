//! Key exchange by name: Diffie-Hellman modulo primes and on curves, and key encapsulation. One side starts an
//! exchange, the other answers it.

#[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
mod aws;
mod modp;

use crate::SecretValue;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::SecureRng;

usher_core::named! {
    "a key exchange method";
    /// Which method. Those but `modp-…` need the feature `tls`, and cannot be begun without it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum KeyExchangeAlgorithm {
        /// Diffie-Hellman modulo a prime of 1024 bits, which is too short to be safe.
        Modp1024 = "modp-1024",
        /// Diffie-Hellman modulo a prime of 2048 bits.
        Modp2048 = "modp-2048",
        /// Diffie-Hellman modulo a prime of 3072 bits.
        Modp3072 = "modp-3072",
        /// The curve P-256.
        Ecp256 = "ecp-256",
        /// The curve P-384.
        Ecp384 = "ecp-384",
        /// X25519.
        X25519 = "x25519",
        /// ML-KEM-768 (FIPS 203). Its keys come from the system, whatever chance is given.
        MlKem768 = "ml-kem-768",
    }
}

/// An error of a key exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyExchangeError {
    /// The peer's public value is invalid, or yields a secret that others know.
    #[error("the peer's public value is invalid")]
    Public,
    /// The method is not built in, since the feature `tls` is off.
    #[error("this build does not support the method")]
    Absent,
    /// The library refuses.
    #[error("the cryptographic library failed")]
    Library,
}

/// An exchange that this side has started.
pub trait KeyExchange: Send {
    /// The public value for the peer. On curves: x and y without a prefix (RFC 5903 §7).
    fn public_value(&self) -> &[u8];
    /// Derives the shared secret from the peer's public value.
    ///
    /// # Errors
    /// If the peer's value is unusable.
    fn derive_secret(self: Box<Self>, peer: &[u8]) -> Result<SecretValue, KeyExchangeError>;
}

impl core::fmt::Debug for dyn KeyExchange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyExchange(..)")
    }
}

impl KeyExchangeAlgorithm {
    /// True if the method is built in.
    #[must_use]
    pub const fn is_available(self) -> bool {
        cfg!(all(feature = "tls", not(target_arch = "wasm32")))
            || matches!(self, Self::Modp1024 | Self::Modp2048 | Self::Modp3072)
    }

    /// Starts an exchange.
    ///
    /// # Errors
    /// If the method is not built in, or the library refuses.
    pub fn start_exchange(self, rng: &mut SecureRng) -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
        match self {
            Self::Modp1024 => modp::MODP_1024.start_exchange(rng),
            Self::Modp2048 => modp::MODP_2048.start_exchange(rng),
            Self::Modp3072 => modp::MODP_3072.start_exchange(rng),
            #[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
            _ => aws::start_exchange(self, rng),
            #[cfg(not(all(feature = "tls", not(target_arch = "wasm32"))))]
            _ => Err(KeyExchangeError::Absent),
        }
    }

    /// Starts an exchange with a given private key, for published test vectors.
    ///
    /// # Errors
    /// If the key does not fit the method, the method is not built in or not on a curve, or the library refuses.
    #[cfg(feature = "wycheproof")]
    pub(crate) fn with_private_key(self, key: &[u8]) -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
        aws::with_private_key(self, key)
    }

    /// Returns the number of public-key operations of [`answer_exchange`](Self::answer_exchange). Diffie-Hellman takes
    /// two, a key pair and a shared secret, which an initiator does in two steps. Key encapsulation takes one.
    #[must_use]
    pub const fn responder_operation_count(self) -> u32 {
        if matches!(self, Self::MlKem768) { 1 } else { 2 }
    }

    /// Answers an exchange: returns the public value for the peer and the shared secret.
    ///
    /// # Errors
    /// If the peer's value is unusable, the method is not built in, or the library refuses.
    pub fn answer_exchange(
        self,
        rng: &mut SecureRng,
        peer: &[u8],
    ) -> Result<(Vec<u8>, SecretValue), KeyExchangeError> {
        #[cfg(all(feature = "tls", not(target_arch = "wasm32")))]
        if self == Self::MlKem768 {
            return aws::encapsulate(peer);
        }
        let ours = self.start_exchange(rng)?;
        let public = ours.public_value().to_vec();
        Ok((public, ours.derive_secret(peer)?))
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_secret_and_an_eavesdropper_another() {
        let mut rng = SecureRng::from_seed([3; 32]);
        for method in KeyExchangeAlgorithm::ALL {
            let begun = method.start_exchange(&mut rng).unwrap();
            let other = method.start_exchange(&mut rng).unwrap();
            assert_ne!(begun.public_value(), other.public_value());
            let (answer, secret) = method.answer_exchange(&mut rng, begun.public_value()).unwrap();
            assert_eq!(begun.derive_secret(&answer).unwrap(), secret, "{method}");
            assert_ne!(other.derive_secret(&answer).unwrap(), secret, "{method}");
            let short = method.start_exchange(&mut rng).unwrap();
            assert_eq!(short.derive_secret(&answer[1..]), Err(KeyExchangeError::Public), "{method}");
            assert_eq!(
                method.answer_exchange(&mut rng, &answer[1..]),
                Err(KeyExchangeError::Public),
                "{method}"
            );
            assert!(method.is_available());
        }
    }

    #[test]
    fn the_same_chance_gives_the_same_keys() {
        for method in KeyExchangeAlgorithm::ALL.into_iter().filter(|m| *m != KeyExchangeAlgorithm::MlKem768) {
            let [a, b] =
                [9, 9].map(|seed| method.start_exchange(&mut SecureRng::from_seed([seed; 32])).unwrap());
            assert_eq!(a.public_value(), b.public_value(), "{method}");
        }
    }
}
