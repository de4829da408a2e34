//! The lockout of users whose passwords a service verifies itself.

use crate::{LoginFailureLimit, LoginFailureTable};
use core::hash::{BuildHasher, Hash};
use usher_core::collections::SeededHashState;
use usher_core::recent::RecentKeyTable;
use usher_core::{Duration, Instant};

/// The time for which a login makes a user known at an origin.
const KNOWN_LOGIN_LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// The maximum number of known pairs of user and origin.
const KNOWN_LOGIN_CAPACITY: usize = 1 << 16;
/// The limit of failures of all known users at an origin, as a multiple of the limit of a user.
const ORIGIN_LIMIT_FACTOR: u32 = 8;

/// The lockout of a service's own users. A failure counts for the user name and for the origin: an address, a port and
/// a station.
///
/// A user with a successful login within a week is known at that origin. There only its own failures lock it out, not
/// attempts from elsewhere or at other users. An attacker at that origin can thus lock out the user there.
///
/// Many known users may share an origin, such as an address translator. Their failures together have a higher limit.
/// Beyond it every login from that origin is rejected. Users at other origins are unaffected.
#[derive(Debug)]
pub struct LoginLockout {
    hash: SeededHashState,
    limit: Option<LoginFailureLimit>,
    failures: Option<LoginFailureTable>,
    /// Failures of known users by origin.
    origin_failures: Option<LoginFailureTable>,
    /// Known users at their origins.
    known_logins: RecentKeyTable,
}

/// The keys of a login, by a secret hash function.
struct LockoutKeys {
    name: u64,
    origin: u64,
    both: u64,
}

impl LoginLockout {
    /// Returns a table without failures. `None` disables the lockout.
    #[must_use]
    pub fn new(limit: Option<LoginFailureLimit>, hash: &SeededHashState) -> Self {
        let known = RecentKeyTable::new(KNOWN_LOGIN_CAPACITY, hash);
        let mut lockout = Self {
            hash: hash.clone(),
            limit: None,
            failures: None,
            origin_failures: None,
            known_logins: known,
        };
        lockout.set_limit(limit);
        lockout
    }
    /// Sets the limit. A different limit clears all failures and lockouts.
    pub fn set_limit(&mut self, limit: Option<LoginFailureLimit>) {
        if limit != self.limit {
            self.limit = limit;
            self.failures = limit.map(|limit| LoginFailureTable::new(limit, &self.hash));
            let of_place = |limit: LoginFailureLimit| {
                let count = limit.count.saturating_mul(ORIGIN_LIMIT_FACTOR);
                LoginFailureTable::new(LoginFailureLimit { count, ..limit }, &self.hash)
            };
            self.origin_failures = limit.map(of_place);
        }
    }
    fn login_lockout_keys(&self, name: &[u8], place: &impl Hash) -> LockoutKeys {
        LockoutKeys {
            name: self.hash.hash_one((0_u8, name)),
            origin: self.hash.hash_one((1_u8, place)),
            both: self.hash.hash_one((2_u8, name, place)),
        }
    }
    /// True if the login must be rejected before its proof is verified.
    pub fn is_locked_out(&self, now: Instant, name: &[u8], place: &impl Hash) -> bool {
        let Some(failures) = &self.failures else { return false };
        let keys = self.login_lockout_keys(name, place);
        if self.known_logins.is_recent(now, keys.both, KNOWN_LOGIN_LIFETIME) {
            let place_held =
                self.origin_failures.as_ref().is_some_and(|places| places.is_locked_out(now, keys.origin));
            return place_held || failures.is_locked_out(now, keys.both);
        }
        failures.is_locked_out(now, keys.origin) || failures.is_locked_out(now, keys.name)
    }
    /// Counts a wrong proof.
    pub fn record_failure(&mut self, now: Instant, name: &[u8], place: &impl Hash) {
        let keys = self.login_lockout_keys(name, place);
        let known = self.known_logins.is_recent(now, keys.both, KNOWN_LOGIN_LIFETIME);
        if let Some(failures) = &mut self.failures {
            failures.record_failure(now, keys.name);
            failures.record_failure(now, keys.origin);
            if known {
                failures.record_failure(now, keys.both);
            }
        }
        if let Some(places) = self.origin_failures.as_mut().filter(|_| known) {
            places.record_failure(now, keys.origin);
        }
    }
    /// Clears the failures of a name after a right proof. Failures of the origin remain: otherwise a user with a
    /// password could make unlimited attempts at others.
    pub fn record_success(&mut self, now: Instant, name: &[u8], place: &impl Hash) {
        let keys = self.login_lockout_keys(name, place);
        self.known_logins.record_recent_key(now, keys.both);
        if let Some(failures) = &mut self.failures {
            failures.clear_failures(keys.name);
            failures.clear_failures(keys.both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::SecureRng;
    use usher_core::collections::hash_state;

    fn time_at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }
    fn test_lockout() -> LoginLockout {
        let limit = LoginFailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(100));
        LoginLockout::new(Some(limit), &hash_state(&mut SecureRng::from_seed([1; 32])))
    }

    #[test]
    fn a_name_is_held_wherever_it_is_said_but_where_it_was_right() {
        let mut lockout = test_lockout();
        lockout.record_success(time_at(0), b"ann", &"home");
        for place in ["a", "b", "c"] {
            assert!(!lockout.is_locked_out(time_at(1), b"ann", &place));
            lockout.record_failure(time_at(1), b"ann", &place);
        }
        assert!(
            lockout.is_locked_out(time_at(2), b"ann", &"d")
                && !lockout.is_locked_out(time_at(2), b"bob", &"d")
        );
        assert!(!lockout.is_locked_out(time_at(2), b"ann", &"home"));
        for n in 2..5 {
            assert!(!lockout.is_locked_out(time_at(n), b"ann", &"home"), "she may mistype");
            lockout.record_failure(time_at(n), b"ann", &"home");
        }
        assert!(lockout.is_locked_out(time_at(5), b"ann", &"home"), "so many guesses are no slips");
        assert!(!lockout.is_locked_out(time_at(102), b"ann", &"d"), "the time is over");
    }

    #[test]
    fn a_success_clears_only_the_name_and_not_the_locked_network() {
        let mut lockout = test_lockout();
        for name in [&b"ann"[..], b"bob"] {
            lockout.record_failure(time_at(1), name, &1);
        }
        lockout.record_success(time_at(1), b"own", &1);
        lockout.record_failure(time_at(1), b"eve", &1);
        assert!(
            lockout.is_locked_out(time_at(2), b"eve", &1) && lockout.is_locked_out(time_at(2), b"new", &1),
            "other users are guessed at"
        );
        assert!(
            !lockout.is_locked_out(time_at(2), b"own", &1) && !lockout.is_locked_out(time_at(2), b"own", &2)
        );
    }

    /// Behind an address translator are many known users. An attacker there has the limit of attempts at each of them.
    #[test]
    fn a_network_has_limited_attempts_and_locks_out_no_other_one() {
        let mut lockout = test_lockout();
        let names: alloc::vec::Vec<_> = (0..200).map(|n| alloc::format!("user{n}")).collect();
        for name in &names {
            lockout.record_success(time_at(0), name.as_bytes(), &"nat");
            lockout.record_success(time_at(0), name.as_bytes(), &"home");
        }
        let mut weighed = 0;
        for _ in 0..3 {
            for name in &names {
                if !lockout.is_locked_out(time_at(1), name.as_bytes(), &"nat") {
                    weighed += 1;
                    lockout.record_failure(time_at(1), name.as_bytes(), &"nat");
                }
            }
        }
        assert_eq!(weighed, 3 * ORIGIN_LIMIT_FACTOR);
        assert!(lockout.is_locked_out(time_at(2), b"user199", &"nat"), "the place has had its guesses");
        for name in &names {
            assert!(!lockout.is_locked_out(time_at(2), name.as_bytes(), &"home"), "{name}");
        }
        lockout.record_success(time_at(2), b"user7", &"nat");
        assert!(
            lockout.is_locked_out(time_at(3), b"user8", &"nat"),
            "one right proof does not clear a place"
        );
        assert!(!lockout.is_locked_out(time_at(102), b"user199", &"nat"), "the time is over");
    }

    /// A user's mistyped passwords at home do not count elsewhere, and those of a household lock no user out.
    #[test]
    fn slips_below_the_share_of_a_place_hold_no_known_user_there() {
        let mut lockout = test_lockout();
        for n in 0..20_u8 {
            lockout.record_success(time_at(0), &[n], &"nat");
        }
        for n in 0..20_u8 {
            lockout.record_failure(time_at(1), &[n], &"nat");
            assert!(!lockout.is_locked_out(time_at(2), &[n], &"nat"), "{n}");
        }
    }
}
