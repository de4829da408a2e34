//! What becomes of hosts while no AAA server answers.

use crate::login::UserAuthorization;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, PortId};
use usher_crypto::digest::constant_time_eq;
use usher_crypto::hmac;
use usher_ppp::pppoe::MacAddress;

/// Hosts that are remembered at most.
const MOST: usize = 65_536;

/// What becomes of hosts while no AAA server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenAway {
    /// They are refused, and sessions end at their time.
    Refuse,
    /// For so long after an AAA server has let a user in by a password (PAP), the same station is let in again by the same name
    /// and password; and sessions whose time is over go on for so long. What a challenge asks for (CHAP, MS-CHAPv2, EAP) the
    /// server alone can judge.
    Grace(Duration),
}

/// A user that an AAA server has let in.
#[derive(Debug)]
pub(crate) struct CachedAuthorization {
    pub(crate) digest: [u8; 32],
    pub(crate) granted: UserAuthorization,
    pub(crate) granted_at: Instant,
}

/// Who a host says it is, and where it is.
type GraceKey = (Vec<u8>, PortId, MacAddress);

/// Where a host is.
pub(crate) type StationKey = (PortId, MacAddress);

/// What is remembered of what AAA servers have said.
#[derive(Debug)]
pub(crate) struct GraceCache {
    /// So that what is remembered of passwords is worth nothing elsewhere.
    secret: [u8; 32],
    users: BTreeMap<GraceKey, CachedAuthorization>,
    /// Since when no server answers.
    away: Option<Instant>,
}

impl GraceCache {
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self { secret, users: BTreeMap::new(), away: None }
    }
    pub(crate) fn password_digest(&self, password: &[u8]) -> [u8; 32] {
        hmac::hmac_sha256(&self.secret, &[password])
    }
    /// No server answers a question.
    pub(crate) fn mark_unavailable(&mut self, now: Instant) {
        self.away.get_or_insert(now);
    }
    /// A server answers.
    pub(crate) fn mark_available(&mut self) {
        self.away = None;
    }
    /// Since when none does.
    pub(crate) const fn unavailable_since(&self) -> Option<Instant> {
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
    /// What a user was granted lately that shows the same password from the same place.
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

    /// A server does not let a user in: what it granted is void at the place that asked, and elsewhere for the same password.
    pub(crate) fn revoke_rejected(&mut self, place: StationKey, name: &[u8], digest: Option<&[u8; 32]>) {
        self.revoke_where(name, |at, known| {
            at == place || digest.is_some_and(|shown| constant_time_eq(&known.digest, shown))
        });
    }
    /// A server has ended a session of a user.
    pub(crate) fn revoke_user(&mut self, name: &[u8]) {
        self.revoke_where(name, |_, _| true);
    }
    fn revoke_where(&mut self, name: &[u8], void: impl Fn(StationKey, &CachedAuthorization) -> bool) {
        let first = (name.to_owned(), PortId(0), MacAddress([0; 6]));
        let all = self.users.range(first..).take_while(|((known, ..), _)| known == name);
        let gone: Vec<GraceKey> = all
            .filter(|((_, port, address), known)| void((*port, *address), known))
            .map(|(known, _)| known.clone())
            .collect();
        for known in gone {
            self.users.remove(&known);
        }
    }
}
