//! The policy while no AAA server answers.

use crate::subscribers::{SubscriberGrant, SubscriberPlace};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, SecureRng};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac;

/// Maximum cached users.
const MAX_CACHED_USERS: usize = 65_536;

/// The policy while no AAA server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AaaOutagePolicy {
    /// Logins are rejected, and sessions end at their time.
    #[default]
    Refuse,
    /// For this time after a login by PAP, the same station may log in again by the same name and password. Overdue
    /// sessions continue for this time. Only the server can verify CHAP, MS-CHAPv2 and EAP.
    Grace(Duration),
}

/// The cached authorization of a user.
#[derive(Debug)]
pub(crate) struct CachedAuthorization {
    pub(crate) digest: [u8; 32],
    pub(crate) granted: SubscriberGrant,
    pub(crate) granted_at: Instant,
}

/// The user name, port and station of a login.
type AuthorizationCacheKey = (Vec<u8>, String, String);

fn cache_key(place: &SubscriberPlace, name: &[u8]) -> AuthorizationCacheKey {
    (name.to_owned(), place.port.clone(), place.station.clone())
}

/// The cache of authorizations.
#[derive(Debug, Default)]
pub(crate) struct AuthorizationCache {
    /// The key of the password digests, so that they are useless elsewhere.
    secret: Option<[u8; 32]>,
    users: BTreeMap<AuthorizationCacheKey, CachedAuthorization>,
    /// The time since which no server answers.
    away: Option<Instant>,
}

impl AuthorizationCache {
    pub(crate) fn password_digest(&mut self, password: &[u8], rng: &mut SecureRng) -> [u8; 32] {
        let secret = self.secret.get_or_insert_with(|| rng.random_array());
        hmac::hmac_sha256(secret, &[password])
    }
    /// Records that no server answers a request.
    pub(crate) fn mark_aaa_unavailable(&mut self, now: Instant) {
        self.away.get_or_insert(now);
    }
    /// Records that a server answers.
    pub(crate) fn mark_aaa_available(&mut self) {
        self.away = None;
    }
    /// Returns the time since which no server answers.
    pub(crate) const fn aaa_unavailable_since(&self) -> Option<Instant> {
        self.away
    }
    pub(crate) fn cache_authorization(
        &mut self,
        now: Instant,
        lasts: Duration,
        place: &SubscriberPlace,
        name: &[u8],
        one: CachedAuthorization,
    ) {
        if self.users.len() >= MAX_CACHED_USERS {
            self.users.retain(|_, known| known.granted_at + lasts > now);
        }
        let known = cache_key(place, name);
        if self.users.len() < MAX_CACHED_USERS || self.users.contains_key(&known) {
            self.users.insert(known, one);
        }
    }
    /// Returns the cached authorization of this name, station and password, if it is recent.
    pub(crate) fn cached_authorization(
        &self,
        now: Instant,
        lasts: Duration,
        place: &SubscriberPlace,
        name: &[u8],
        digest: &[u8; 32],
    ) -> Option<SubscriberGrant> {
        let known = self.users.get(&cache_key(place, name))?;
        let same = constant_time_eq(&known.digest, digest) && known.granted_at + lasts > now;
        same.then(|| known.granted.clone())
    }

    /// Revokes a rejected user's entries: those of the same station, and elsewhere those of the same password.
    pub(crate) fn revoke_rejected_authorizations(
        &mut self,
        place: &SubscriberPlace,
        name: &[u8],
        digest: Option<&[u8; 32]>,
    ) {
        self.revoke_authorizations_where(name, |(_, port, station), known| {
            (port, station) == (&place.port, &place.station)
                || digest.is_some_and(|shown| constant_time_eq(&known.digest, shown))
        });
    }
    /// Revokes all entries of a user whose session a server has ended.
    pub(crate) fn revoke_user(&mut self, name: &[u8]) {
        self.revoke_authorizations_where(name, |_, _| true);
    }
    fn revoke_authorizations_where(
        &mut self,
        name: &[u8],
        void: impl Fn(&AuthorizationCacheKey, &CachedAuthorization) -> bool,
    ) {
        let first = (name.to_owned(), String::new(), String::new());
        let all = self.users.range(first..).take_while(|((known, ..), _)| known == name);
        let gone: Vec<AuthorizationCacheKey> =
            all.filter(|(key, known)| void(key, known)).map(|(known, _)| known.clone()).collect();
        for known in gone {
            self.users.remove(&known);
        }
    }
}
