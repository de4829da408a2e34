//! Locked-out names and stations. Their proofs are not checked: an attacker must not learn that a guess was right,
//! nor cause work.
//!
//! A server counts the failed attempts that it sees. The host adds lockouts that the ledger decided for all servers
//! ([`super::AaaServerCommand::LockOut`]). So no server checks more simultaneous attempts than the limit, even if
//! the host's command is late.

use crate::ledger::{LoginFailureLimit, LoginFailureTable, failure_keys};
use usher_core::collections::{SeededHashState, hash_state};
use usher_core::{Instant, SecureRng};

/// The scope of a lockout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockoutScope {
    /// The name. A different name inside a tunnel is not locked out.
    Name,
    /// The station, with all its users.
    Station,
}

/// Lockouts of a server. `None`: there is no limit.
#[derive(Debug)]
pub(super) struct ServerLockout(Option<(LoginFailureTable, SeededHashState)>);

impl ServerLockout {
    /// Uses `rng` only if there is a limit.
    pub(super) fn new(limit: Option<LoginFailureLimit>, rng: &mut SecureRng) -> Self {
        Self(limit.map(|limit| {
            let hash = hash_state(rng);
            (LoginFailureTable::new(limit, &hash), hash)
        }))
    }
    /// True if there is a limit.
    pub(super) const fn has_limit(&self) -> bool {
        self.0.is_some()
    }
    /// True if there are no lockouts.
    pub(super) fn has_no_lockouts(&mut self, now: Instant) -> bool {
        self.0.as_mut().is_none_or(|(failures, _)| failures.has_no_lockouts(now))
    }
    /// Returns the lockout of a name (empty: not yet known) or a Calling-Station-Id (empty: unknown).
    pub(super) fn find_lockout(&self, now: Instant, name: &[u8], station: &[u8]) -> Option<LockoutScope> {
        let (failures, hash) = self.0.as_ref()?;
        let [name, station] = failure_keys(hash, name, station)
            .map(|key| key.is_some_and(|key| failures.is_locked_out(now, key)));
        if station { Some(LockoutScope::Station) } else { name.then_some(LockoutScope::Name) }
    }
    /// Counts a failed login.
    pub(super) fn record_failure(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.for_each_lockout_key(name, station, |failures, key| {
            failures.record_failure(now, key);
        });
    }
    /// Counts a successful login.
    pub(super) fn record_success(&mut self, name: &[u8], station: &[u8]) {
        if self.0.as_ref().is_some_and(|(failures, _)| failures.has_login_failures()) {
            self.for_each_lockout_key(name, station, LoginFailureTable::clear_failures);
        }
    }
    /// Applies a lockout of the host.
    pub(super) fn lock_out(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.for_each_lockout_key(name, station, |failures, key| failures.lock_out(now, key));
    }
    fn for_each_lockout_key(
        &mut self,
        name: &[u8],
        station: &[u8],
        mut act: impl FnMut(&mut LoginFailureTable, u64),
    ) {
        if let Some((failures, hash)) = &mut self.0 {
            failure_keys(hash, name, station).into_iter().flatten().for_each(|key| act(failures, key));
        }
    }
}
