//! Cookies (RFC 7296 §2.6): a returned cookie proves that the initiator receives at its address. No state is kept
//! until then.

use super::config::IkeEndpointConfig;
use crate::header::Spi;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{Instant, SecureRng};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac::hmac_sha256;

/// Octets of a cookie's code. The number of its secret stands before it.
const CODE: usize = 16;

/// The two secrets of cookies, the newer first, each with its number.
#[derive(Debug, Default)]
pub(super) struct CookieSecrets {
    secrets: Vec<(u8, SecretValue<[u8; 32]>)>,
    renew_at: Option<Instant>,
}

/// The inputs of a cookie: the initiator's address, SPI and nonce.
pub(super) type CookieInputs<'a> = (IpAddr, Spi, &'a [u8]);

impl CookieSecrets {
    fn compute_code(secret: &SecretValue<[u8; 32]>, (address, spi, nonce): CookieInputs<'_>) -> [u8; CODE] {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        let whole = hmac_sha256(&**secret, &[nonce, &address.octets(), &spi.0]);
        core::array::from_fn(|n| whole[n])
    }

    /// Renews the secret when it is as old as a cookie's lifetime. The previous one stays valid.
    fn renew_cookie_secret_if_due(&mut self, now: Instant, config: &IkeEndpointConfig, rng: &mut SecureRng) {
        if self.renew_at.is_some_and(|at| at > now) {
            return;
        }
        // The secrets were last renewed two lifetimes ago or more, so every cookie of theirs has expired.
        if self.renew_at.is_some_and(|at| at + config.cookie_lifetime <= now) {
            self.secrets.clear();
        }
        let number = rng.random_array::<1>()[0];
        let number =
            if self.secrets.iter().any(|(n, _)| *n == number) { number.wrapping_add(1) } else { number };
        self.secrets.insert(0, (number, SecretValue::new(rng.random_array())));
        self.secrets.truncate(2);
        self.renew_at = Some(now + config.cookie_lifetime);
    }

    pub(super) fn make_cookie(
        &mut self,
        now: Instant,
        config: &IkeEndpointConfig,
        rng: &mut SecureRng,
        of: CookieInputs<'_>,
    ) -> Vec<u8> {
        self.renew_cookie_secret_if_due(now, config, rng);
        let newest = self.secrets.first();
        newest
            .map(|(number, secret)| [&[*number][..], &Self::compute_code(secret, of)].concat())
            .unwrap_or_default()
    }

    pub(super) fn verify_cookie(
        &mut self,
        now: Instant,
        config: &IkeEndpointConfig,
        rng: &mut SecureRng,
        of: CookieInputs<'_>,
        cookie: &[u8],
    ) -> bool {
        self.renew_cookie_secret_if_due(now, config, rng);
        let Some((number, code)) = cookie.split_first() else { return false };
        let secret = self.secrets.iter().find(|(n, _)| n == number);
        secret.is_some_and(|(_, secret)| constant_time_eq(&Self::compute_code(secret, of), code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::Duration;

    #[test]
    fn a_cookie_holds_for_its_lifetime_and_whom_it_was_made_for() {
        let (config, mut rng) = (IkeEndpointConfig::default(), SecureRng::from_seed([1; 32]));
        let mut cookies = CookieSecrets::default();
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let of: CookieInputs<'_> = (address, Spi([1; 8]), b"nonce");
        let cookie = cookies.make_cookie(at(59), &config, &mut rng, of);
        assert!((1..=64).contains(&cookie.len()), "as §2.6 wants");
        assert!(cookies.verify_cookie(at(59 + 60), &config, &mut rng, of, &cookie));
        let others: [CookieInputs<'_>; 3] =
            [("192.0.2.8".parse().unwrap(), of.1, of.2), (of.0, Spi([2; 8]), of.2), (of.0, of.1, b"Nonce")];
        for other in others {
            assert!(!cookies.verify_cookie(at(100), &config, &mut rng, other, &cookie));
        }
        assert!(!cookies.verify_cookie(at(100), &config, &mut rng, of, &[]));
        assert!(
            !cookies.verify_cookie(at(59 + 120), &config, &mut rng, of, &cookie),
            "two secrets later it does not"
        );
        let fresh = cookies.make_cookie(at(200), &config, &mut rng, of);
        assert!(!cookies.verify_cookie(at(1000), &config, &mut rng, of, &fresh), "nor after a long silence");
    }
}
