//! AC-Cookies (RFC 2516 §9): a returned cookie proves that the host receives at its address. They need no state.

use super::MacAddress;
use usher_core::{Duration, Instant, LinkLayerPortId, SecureRng};
use usher_crypto::SecretValue;
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac::hmac_sha256;

/// Octets of a cookie: the number of its secret (1) and an authentication code (16).
const COOKIE: usize = 17;
/// Time for which a secret makes cookies. Its cookies stay valid for the same time again.
const LIFETIME: Duration = Duration::from_secs(60);

/// The two secrets of cookies, the newer first.
#[derive(Debug)]
pub(crate) struct CookieSecrets {
    secrets: [(u8, SecretValue<[u8; 32]>); 2],
    renew_at: Instant,
}

impl CookieSecrets {
    pub(crate) fn new(rng: &mut SecureRng, now: Instant) -> Self {
        let [number] = rng.random_array();
        let secrets =
            [number, number.wrapping_sub(1)].map(|number| (number, SecretValue::new(rng.random_array())));
        Self { secrets, renew_at: now + LIFETIME }
    }

    fn compute_cookie(
        (number, secret): &(u8, SecretValue<[u8; 32]>),
        port: LinkLayerPortId,
        host: MacAddress,
    ) -> [u8; COOKIE] {
        let code = hmac_sha256(&**secret, &[&port.0.to_be_bytes(), &host.0]);
        core::array::from_fn(|n| if n == 0 { *number } else { code[n - 1] })
    }

    /// Replaces the older secret once the newer has expired. After a long silence both are replaced.
    fn rotate_secrets(&mut self, now: Instant, rng: &mut SecureRng) {
        for _ in 0..2 {
            if self.renew_at <= now {
                self.secrets.swap(0, 1);
                self.secrets[0] = (self.secrets[1].0.wrapping_add(1), SecretValue::new(rng.random_array()));
                self.renew_at += LIFETIME;
            }
        }
        self.renew_at = self.renew_at.max(now);
    }

    pub(crate) fn make_cookie(
        &mut self,
        now: Instant,
        rng: &mut SecureRng,
        port: LinkLayerPortId,
        host: MacAddress,
    ) -> [u8; COOKIE] {
        self.rotate_secrets(now, rng);
        Self::compute_cookie(&self.secrets[0], port, host)
    }

    pub(crate) fn verify_cookie(
        &mut self,
        now: Instant,
        rng: &mut SecureRng,
        (port, host): (LinkLayerPortId, MacAddress),
        cookie: &[u8],
    ) -> bool {
        self.rotate_secrets(now, rng);
        let secret = self.secrets.iter().find(|(number, _)| cookie.first() == Some(number));
        secret.is_some_and(|secret| constant_time_eq(&Self::compute_cookie(secret, port, host), cookie))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_for_its_lifetime_and_whom_it_was_made_for() {
        let mut rng = SecureRng::from_seed([1; 32]);
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut cookies = CookieSecrets::new(&mut rng, at(0));
        let (port, host) = (LinkLayerPortId(3), MacAddress([2, 0, 0, 0, 0, 1]));
        let cookie = cookies.make_cookie(at(59), &mut rng, port, host);
        assert!(cookies.verify_cookie(at(59 + 60), &mut rng, (port, host), &cookie));
        for other in [(LinkLayerPortId(4), host), (port, MacAddress([2, 0, 0, 0, 0, 2]))] {
            assert!(!cookies.verify_cookie(at(100), &mut rng, other, &cookie));
        }
        let mut wrong = cookie;
        wrong[16] ^= 1;
        for forged in [&[][..], &cookie[..16], &wrong] {
            assert!(!cookies.verify_cookie(at(119), &mut rng, (port, host), forged));
        }
        assert!(
            !cookies.verify_cookie(at(120), &mut rng, (port, host), &cookie),
            "two secrets later it does not"
        );
        let fresh = cookies.make_cookie(at(130), &mut rng, port, host);
        assert!(!cookies.verify_cookie(at(1000), &mut rng, (port, host), &fresh), "nor after a long silence");
    }
}
