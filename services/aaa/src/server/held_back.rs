//! Names and stations that are held back for failed logins, so that nothing of theirs is weighed: whoever is held back
//! must not learn that a guess was right, nor cost work.
//!
//! A server counts the failures that it sees itself, and hears of the host who is held back for what all servers saw
//! ([`super::Command::HoldBack`]). So of many guesses made at once no server weighs more than the limit, however late the
//! host's word comes.

use crate::ledger::{FailureLimit, Failures, failure_keys};
use usher_core::collections::{HashState, hash_state};
use usher_core::{Instant, SecureRng};

/// Who of a login is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// The name: who uses another one inside a tunnel is not.
    Name,
    /// The station, whoever logs in from it.
    Station,
}

/// Without a limit nobody is held back, and nothing is counted.
#[derive(Debug)]
pub(super) struct HeldBack(Option<(Failures, HashState)>);

impl HeldBack {
    /// Draws from `rng` only where there is a limit.
    pub(super) fn new(limit: Option<FailureLimit>, rng: &mut SecureRng) -> Self {
        Self(limit.map(|limit| {
            let hash = hash_state(rng);
            (Failures::new(limit, &hash), hash)
        }))
    }
    /// Whether there is a limit.
    pub(super) const fn counts(&self) -> bool {
        self.0.is_some()
    }
    /// True where nobody has to be looked for.
    pub(super) fn nobody(&mut self, now: Instant) -> bool {
        self.0.as_mut().is_none_or(|(failures, _)| failures.none_held(now))
    }
    /// Who is held back, of a name (empty: not known yet) and a Calling-Station-Id (empty: not known).
    pub(super) fn find(&self, now: Instant, name: &[u8], station: &[u8]) -> Option<Hold> {
        let (failures, hash) = self.0.as_ref()?;
        let [name, station] =
            failure_keys(hash, name, station).map(|key| key.is_some_and(|key| failures.held(now, key)));
        if station { Some(Hold::Station) } else { name.then_some(Hold::Name) }
    }
    /// A login failed.
    pub(super) fn failed(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.each(name, station, |failures, key| {
            failures.failed(now, key);
        });
    }
    /// A login succeeded.
    pub(super) fn succeeded(&mut self, name: &[u8], station: &[u8]) {
        if self.0.as_ref().is_some_and(|(failures, _)| failures.any_counted()) {
            self.each(name, station, Failures::forget);
        }
    }
    /// The host says who is held back.
    pub(super) fn hold(&mut self, now: Instant, name: &[u8], station: &[u8]) {
        self.each(name, station, |failures, key| failures.hold(now, key));
    }
    fn each(&mut self, name: &[u8], station: &[u8], mut act: impl FnMut(&mut Failures, u64)) {
        if let Some((failures, hash)) = &mut self.0 {
            failure_keys(hash, name, station).into_iter().flatten().for_each(|key| act(failures, key));
        }
    }
}
