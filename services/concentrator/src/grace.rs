//! The policy while no AAA server answers.

use crate::login::UserAuthorization;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, LinkLayerPortId};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac;
use usher_ppp::pppoe::MacAddress;

/// Maximum cached users.
const MOST: usize = 65_536;

/// The policy while no AAA server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AaaOutagePolicy {
    /// Logins are rejected, and sessions end at their time.
    Refuse,
    /// For this time after a login by PAP, the same station may log in again by the same name and password. Overdue
    /// sessions continue for this time. Only the server can verify CHAP, MS-CHAPv2 and EAP.
    Grace(Duration),
}

/// The cached authorization of a user.
#[derive(Debug)]
pub(crate) struct CachedAuthorization {
    pub(crate) digest: [u8; 32],
    pub(crate) granted: UserAuthorization,
    pub(crate) granted_at: Instant,
}

/// The name, port and address of a host.
type AuthorizationCacheKey = (Vec<u8>, LinkLayerPortId, MacAddress);

/// The port and address of a host.
pub(crate) type StationKey = (LinkLayerPortId, MacAddress);

/// The cache of authorizations.
#[derive(Debug)]
pub(crate) struct AuthorizationCache {
    /// The key of the password digests, so that they are useless elsewhere.
    secret: [u8; 32],
    users: BTreeMap<AuthorizationCacheKey, CachedAuthorization>,
    /// The time since which no server answers.
    away: Option<Instant>,
}

impl AuthorizationCache {
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self { secret, users: BTreeMap::new(), away: None }
    }
    pub(crate) fn password_digest(&self, password: &[u8]) -> [u8; 32] {
        hmac::hmac_sha256(&self.secret, &[password])
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
        (port, address): StationKey,
        name: &[u8],
        one: CachedAuthorization,
    ) {
        if self.users.len() >= MOST {
            self.users.retain(|_, known| known.granted_at + lasts > now);
        }
        let known = (name.to_owned(), port, address);
        if self.users.len() < MOST || self.users.contains_key(&known) {
            self.users.insert(known, one);
        }
    }
    /// Returns the cached authorization of this name, station and password, if it is recent.
    pub(crate) fn cached_authorization(
        &self,
        now: Instant,
        lasts: Duration,
        (port, address): StationKey,
        name: &[u8],
        digest: &[u8; 32],
    ) -> Option<UserAuthorization> {
        let known = self.users.get(&(name.to_owned(), port, address))?;
        let same = constant_time_eq(&known.digest, digest) && known.granted_at + lasts > now;
        same.then(|| known.granted.clone())
    }

    /// Revokes a rejected user's entries: those of the same station, and elsewhere those of the same password.
    pub(crate) fn revoke_rejected_authorizations(
        &mut self,
        place: StationKey,
        name: &[u8],
        digest: Option<&[u8; 32]>,
    ) {
        self.revoke_authorizations_where(name, |at, known| {
            at == place || digest.is_some_and(|shown| constant_time_eq(&known.digest, shown))
        });
    }
    /// Revokes all entries of a user whose session a server has ended.
    pub(crate) fn revoke_user(&mut self, name: &[u8]) {
        self.revoke_authorizations_where(name, |_, _| true);
    }
    fn revoke_authorizations_where(
        &mut self,
        name: &[u8],
        void: impl Fn(StationKey, &CachedAuthorization) -> bool,
    ) {
        let first = (name.to_owned(), LinkLayerPortId(0), MacAddress([0; 6]));
        let all = self.users.range(first..).take_while(|((known, ..), _)| known == name);
        let gone: Vec<AuthorizationCacheKey> = all
            .filter(|((_, port, address), known)| void((*port, *address), known))
            .map(|(known, _)| known.clone())
            .collect();
        for known in gone {
            self.users.remove(&known);
        }
    }
}
