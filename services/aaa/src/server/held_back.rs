//! Names and stations that are held back for failed logins, so that nothing of theirs is weighed: whoever is held back
//! must not learn that a guess was right, nor cost work.
//!
//! A server counts the failures that it sees itself, and hears of the host who is held back for what all servers saw
//! ([`super::AaaServerCommand::LockOut`]). So of many guesses made at once no server weighs more than the limit, however late the
//! host's word comes.

use crate::ledger::{FailureLimit, FailureTable, failure_keys};
use usher_core::collections::{HashState, hash_state};
use usher_core::{Instant, SecureRng};

/// Who of a login is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LockoutScope {
    /// The name: who uses another one inside a tunnel is not.
    Name,
    /// The station, whoever logs in from it.
    Station,
}

/// Without a limit nobody is held back, and nothing is counted.
#[derive(Debug)]
pub(super) struct ServerLockout(Option<(FailureTable, HashState)>);

impl ServerLockout {
    /// Draws from `rng` only where there is a limit.
    pub(super) fn new(limit: Option<FailureLimit>, rng: &mut SecureRng) -> Self {
        Self(limit.map(|limit| {
            let hash = hash_state(rng);
            (FailureTable::new(limit, &hash), hash)
        }))
    }
    /// Whether there is a limit.
    pub(super) const fn has_limit(&self) -> bool {
        self.0.is_some()
    }
    /// True where nobody has to be looked for.
    pub(super) fn has_no_lockouts(&mut self, now: Instant) -> bool {
        self.0.as_mut().is_none_or(|(failures, _)| failures.has_no_lockouts(now))
    }
    /// Who is held back, of a name (empty: not known yet) and a Calling-Station-Id (empty: not known).
    pub(super) fn find_lockout(&self, now: Instant, name: &[u8], station: &[u8]) -> Option<LockoutScope> {
        let (failures, hash) = self.0.as_ref()?;
        let [name, station] = failure_keys(hash, name, station)
            .map(|key| key.is_some_and(|key| failures.is_locked_out(now, key)));
        if station { Some(LockoutScope::Station) } else { name.then_some(LockoutScope::Name) }
    }
    /// A login failed.
    pub(super) fn record_failure(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.for_each_key(name, station, |failures, key| {
            failures.record_failure(now, key);
        });
    }
    /// A login succeeded.
    pub(super) fn record_success(&mut self, name: &[u8], station: &[u8]) {
        if self.0.as_ref().is_some_and(|(failures, _)| failures.any_counted()) {
            self.for_each_key(name, station, FailureTable::clear_failures);
        }
    }
    /// The host says who is held back.
    pub(super) fn lock_out(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.for_each_key(name, station, |failures, key| failures.lock_out(now, key));
    }
    fn for_each_key(&mut self, name: &[u8], station: &[u8], mut act: impl FnMut(&mut FailureTable, u64)) {
        if let Some((failures, hash)) = &mut self.0 {
            failure_keys(hash, name, station).into_iter().flatten().for_each(|key| act(failures, key));
        }
    }
}
