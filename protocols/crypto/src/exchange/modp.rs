//! Diffie-Hellman modulo a prime (RFC 7296 appendix B, RFC 3526). The generator is 2.
//!
//! The exponentiation of crypto-bigint takes a time that is independent of the exponent.

use super::{KeyExchange, KeyExchangeError};
use crate::SecretValue;
use alloc::boxed::Box;
use alloc::vec::Vec;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use usher_core::SecureRng;

/// A prime and the length of its exponents.
#[derive(Clone, Copy)]
pub(super) struct ModpGroup {
    prime: &'static str,
    /// The bits of an exponent: at least the larger estimate of RFC 3526 §8, rounded up to a multiple of 64.
    exponent: u32,
}

pub(super) const MODP_1024: ModpGroup = ModpGroup {
    prime: "\
        FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
        020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
        4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
        EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF",
    exponent: 192,
};
pub(super) const MODP_2048: ModpGroup = ModpGroup {
    prime: "\
        FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
        020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
        4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
        EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
        98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
        9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
        E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
        3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    exponent: 320,
};
pub(super) const MODP_3072: ModpGroup = ModpGroup {
    prime: "\
        FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74\
        020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437\
        4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED\
        EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05\
        98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB\
        9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B\
        E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718\
        3995497CEA956AE515D2261898FA051015728E5A8AAAC42DAD33170D04507A33\
        A85521ABDF1CBA64ECFB850458DBEF0A8AEA71575D060C7DB3970F85A6E1E4C7\
        ABF5AE8CDB0933D71E8C94E04A25619DCEE3D2261AD2EE6BF12FFA06D98A0864\
        D87602733EC86A64521F2B18177B200CBBE117577A615D6C770988C0BAD946E2\
        08E24FA074E5AB3143DB5BFCE0FD108E4B82D120A93AD2CAFFFFFFFFFFFFFFFF",
    exponent: 448,
};

impl ModpGroup {
    fn prime_bits(self) -> u32 {
        self.prime.len() as u32 * 4
    }
    fn prime_octets(self) -> usize {
        self.prime.len() / 2
    }
    fn montgomery_params(self) -> Option<BoxedMontyParams> {
        let prime = Option::<BoxedUint>::from(BoxedUint::from_be_hex(self.prime, self.prime_bits()))?;
        Some(BoxedMontyParams::new_vartime(Option::<Odd<BoxedUint>>::from(Odd::new(prime))?))
    }

    /// Draws a private exponent and computes the public value.
    pub(super) fn start_exchange(
        self,
        rng: &mut SecureRng,
    ) -> Result<Box<dyn KeyExchange>, KeyExchangeError> {
        let params = self.montgomery_params().ok_or(KeyExchangeError::Library)?;
        let mut exponent = SecretValue::new([0; 64]);
        let used = &mut exponent[..self.exponent as usize / 8];
        rng.fill_bytes(used);
        // Sets the highest bit, so that the exponent is nonzero and long.
        used[0] |= 0x80;
        let exponent =
            BoxedUint::from_be_slice(used, self.exponent).map_err(|_| KeyExchangeError::Library)?;
        let two = BoxedMontyForm::new(BoxedUint::from(2u8).resize(self.prime_bits()), &params);
        let public = two.pow_bounded_exp(&exponent, self.exponent).retrieve().to_be_bytes().to_vec();
        Ok(Box::new(ModpExchange { group: self, params, exponent: SecretValue::new(exponent), public }))
    }
}

struct ModpExchange {
    group: ModpGroup,
    params: BoxedMontyParams,
    exponent: SecretValue<BoxedUint>,
    public: Vec<u8>,
}

impl KeyExchange for ModpExchange {
    fn public_value(&self) -> &[u8] {
        &self.public
    }
    fn derive_secret(self: Box<Self>, peer: &[u8]) -> Result<SecretValue, KeyExchangeError> {
        // RFC 7296, 3.4: the value is as long as the prime.
        if peer.len() != self.group.prime_octets() {
            return Err(KeyExchangeError::Public);
        }
        let peer =
            BoxedUint::from_be_slice(peer, self.group.prime_bits()).map_err(|_| KeyExchangeError::Public)?;
        let one = BoxedUint::one_with_precision(self.group.prime_bits());
        // 0, 1 and p - 1 yield a secret that everyone knows.
        if peer <= one || peer >= self.params.modulus().as_ref().wrapping_sub(&one) {
            return Err(KeyExchangeError::Public);
        }
        let shared = BoxedMontyForm::new(peer, &self.params);
        let shared = SecretValue::new(shared.pow_bounded_exp(&self.exponent, self.group.exponent).retrieve());
        Ok(SecretValue::new(shared.to_be_bytes().into_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Detects wrong digits: Fermat's test on the prime, and on (p - 1) / 2 by the order of 4, which is a square.
    #[test]
    fn the_primes_are_safe_primes() {
        for group in [MODP_1024, MODP_2048, MODP_3072] {
            let params = group.montgomery_params().unwrap();
            let one = BoxedUint::one_with_precision(group.prime_bits());
            let order = params.modulus().as_ref().wrapping_sub(&one).shr(1);
            let four = BoxedMontyForm::new(BoxedUint::from(4u8).resize(group.prime_bits()), &params);
            assert_eq!(four.pow(&order).retrieve(), one, "{} bits", group.prime_bits());
            let half = BoxedMontyParams::new(Odd::new(order.clone()).unwrap());
            let two = BoxedMontyForm::new(BoxedUint::from(2u8).resize(group.prime_bits()), &half);
            assert_eq!(two.pow(&order.wrapping_sub(&one)).retrieve(), one, "{} bits", group.prime_bits());
        }
    }

    #[test]
    fn a_public_value_that_betrays_the_secret_is_refused() {
        let mut rng = SecureRng::from_seed([1; 32]);
        let prime = MODP_1024.montgomery_params().unwrap().modulus().as_ref().clone();
        let one = BoxedUint::one_with_precision(1024);
        let zero = one.wrapping_sub(&one);
        for wrong in [zero, one.clone(), prime.wrapping_sub(&one), prime.clone(), prime.wrapping_add(&one)] {
            let ours = MODP_1024.start_exchange(&mut rng).unwrap();
            assert_eq!(ours.derive_secret(&wrong.to_be_bytes()), Err(KeyExchangeError::Public));
        }
        let short = MODP_1024.start_exchange(&mut rng).unwrap();
        assert_eq!(short.derive_secret(&[2; 127]), Err(KeyExchangeError::Public));
    }

    #[test]
    fn exponents_are_as_long_as_the_estimates_of_rfc_3526_ask() {
        for (group, estimate) in [(MODP_1024, 160), (MODP_2048, 320), (MODP_3072, 420)] {
            assert!(group.exponent >= estimate && group.exponent <= 512, "{} bits", group.prime_bits());
        }
    }
}
