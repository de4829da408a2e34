//! Users that a service knows itself: whoever guesses at their passwords is held back.

use crate::{FailureLimit, Failures};
use core::hash::{BuildHasher, Hash};
use usher_core::collections::HashState;
use usher_core::recent::RecentKeys;
use usher_core::{Duration, Instant};

/// So long a user is known at the place of its last login.
const KNOWN_TIME: Duration = Duration::from_secs(7 * 86_400);
/// So many pairs of user and place are remembered.
const KNOWN_ROOM: usize = 1 << 16;
/// So many times the limit of a name a place may fail under all names together that are known there.
const PLACE_SHARE: u32 = 8;

/// The lockout of a service's own users. Failed logins count under the name that was said, and under the place they came from: an
/// address, a port and a station. Where a user was let in within a week, neither guesses from elsewhere nor guesses there at other users
/// lock it out: what counts is failures of that user there. Who can take on its place and says its name can still do so. Behind one
/// place, such as an address translator, many users may be known: failures under all their names together have a limit of their
/// own, and beyond it nobody is weighed who comes from there. A user at another place is not touched by that.
#[derive(Debug)]
pub struct LoginLockout {
    hash: HashState,
    limit: Option<FailureLimit>,
    failures: Option<Failures>,
    /// Failures under known users' names, by their places.
    places: Option<Failures>,
    /// Users at places.
    known: RecentKeys,
}

/// The keys of a login, by a hash that nobody outside knows.
struct LoginKeys {
    name: u64,
    place: u64,
    both: u64,
}

impl LoginLockout {
    /// Nobody has failed. `None`: nobody is ever held back.
    #[must_use]
    pub fn new(limit: Option<FailureLimit>, hash: &HashState) -> Self {
        let known = RecentKeys::new(KNOWN_ROOM, hash);
        let mut lockout = Self { hash: hash.clone(), limit: None, failures: None, places: None, known };
        lockout.set_limit(limit);
        lockout
    }
    /// Sets the limit. Another one than before counts anew.
    pub fn set_limit(&mut self, limit: Option<FailureLimit>) {
        if limit != self.limit {
            self.limit = limit;
            self.failures = limit.map(|limit| Failures::new(limit, &self.hash));
            let of_place = |limit: FailureLimit| {
                let count = limit.count.saturating_mul(PLACE_SHARE);
                Failures::new(FailureLimit { count, ..limit }, &self.hash)
            };
            self.places = limit.map(of_place);
        }
    }
    fn keys(&self, name: &[u8], place: &impl Hash) -> LoginKeys {
        LoginKeys {
            name: self.hash.hash_one((0_u8, name)),
            place: self.hash.hash_one((1_u8, place)),
            both: self.hash.hash_one((2_u8, name, place)),
        }
    }
    /// Whether a login is turned away without a look at its proof.
    pub fn holds(&self, now: Instant, name: &[u8], place: &impl Hash) -> bool {
        let Some(failures) = &self.failures else { return false };
        let keys = self.keys(name, place);
        if self.known.has(now, keys.both, KNOWN_TIME) {
            let place_held = self.places.as_ref().is_some_and(|places| places.held(now, keys.place));
            return place_held || failures.held(now, keys.both);
        }
        failures.held(now, keys.place) || failures.held(now, keys.name)
    }
    /// Counts a wrong proof.
    pub fn failed(&mut self, now: Instant, name: &[u8], place: &impl Hash) {
        let keys = self.keys(name, place);
        let known = self.known.has(now, keys.both, KNOWN_TIME);
        if let Some(failures) = &mut self.failures {
            failures.failed(now, keys.name);
            failures.failed(now, keys.place);
            if known {
                failures.failed(now, keys.both);
            }
        }
        if let Some(places) = self.places.as_mut().filter(|_| known) {
            places.failed(now, keys.place);
        }
    }
    /// Counts a right proof: failures under the name are forgotten. Those of the place are not, or whoever has a password would guess
    /// at others' without end.
    pub fn succeeded(&mut self, now: Instant, name: &[u8], place: &impl Hash) {
        let keys = self.keys(name, place);
        self.known.see(now, keys.both);
        if let Some(failures) = &mut self.failures {
            failures.forget(keys.name);
            failures.forget(keys.both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::SecureRng;
    use usher_core::collections::hash_state;

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }
    fn lockout() -> LoginLockout {
        let limit = FailureLimit::new(3, Duration::from_secs(60), Duration::from_secs(100));
        LoginLockout::new(Some(limit), &hash_state(&mut SecureRng::from_seed([1; 32])))
    }

    #[test]
    fn a_name_is_held_wherever_it_is_said_but_where_it_was_right() {
        let mut lockout = lockout();
        lockout.succeeded(at(0), b"ann", &"home");
        for place in ["a", "b", "c"] {
            assert!(!lockout.holds(at(1), b"ann", &place));
            lockout.failed(at(1), b"ann", &place);
        }
        assert!(lockout.holds(at(2), b"ann", &"d") && !lockout.holds(at(2), b"bob", &"d"));
        assert!(!lockout.holds(at(2), b"ann", &"home"));
        for n in 2..5 {
            assert!(!lockout.holds(at(n), b"ann", &"home"), "she may mistype");
            lockout.failed(at(n), b"ann", &"home");
        }
        assert!(lockout.holds(at(5), b"ann", &"home"), "so many guesses are no slips");
        assert!(!lockout.holds(at(102), b"ann", &"d"), "the time is over");
    }

    #[test]
    fn a_place_is_held_whatever_it_says_and_a_right_proof_clears_the_name_alone() {
        let mut lockout = lockout();
        for name in [&b"ann"[..], b"bob"] {
            lockout.failed(at(1), name, &1);
        }
        lockout.succeeded(at(1), b"own", &1);
        lockout.failed(at(1), b"eve", &1);
        assert!(
            lockout.holds(at(2), b"eve", &1) && lockout.holds(at(2), b"new", &1),
            "other users are guessed at"
        );
        assert!(!lockout.holds(at(2), b"own", &1) && !lockout.holds(at(2), b"own", &2));
    }

    /// Behind an address translator many users are known, at each of whom somebody there could make guesses up to its limit.
    #[test]
    fn a_place_guesses_at_all_its_known_users_so_often_and_harms_no_other_place() {
        let mut lockout = lockout();
        let names: alloc::vec::Vec<_> = (0..200).map(|n| alloc::format!("user{n}")).collect();
        for name in &names {
            lockout.succeeded(at(0), name.as_bytes(), &"nat");
            lockout.succeeded(at(0), name.as_bytes(), &"home");
        }
        let mut weighed = 0;
        for _ in 0..3 {
            for name in &names {
                if !lockout.holds(at(1), name.as_bytes(), &"nat") {
                    weighed += 1;
                    lockout.failed(at(1), name.as_bytes(), &"nat");
                }
            }
        }
        assert_eq!(weighed, 3 * PLACE_SHARE);
        assert!(lockout.holds(at(2), b"user199", &"nat"), "the place has had its guesses");
        for name in &names {
            assert!(!lockout.holds(at(2), name.as_bytes(), &"home"), "{name}");
        }
        lockout.succeeded(at(2), b"user7", &"nat");
        assert!(lockout.holds(at(3), b"user8", &"nat"), "one right proof does not clear a place");
        assert!(!lockout.holds(at(102), b"user199", &"nat"), "the time is over");
    }

    /// Who mistypes at home is not counted at anybody else's, and a household's slips hold nobody back.
    #[test]
    fn slips_below_the_share_of_a_place_hold_no_known_user_there() {
        let mut lockout = lockout();
        for n in 0..20_u8 {
            lockout.succeeded(at(0), &[n], &"nat");
        }
        for n in 0..20_u8 {
            lockout.failed(at(1), &[n], &"nat");
            assert!(!lockout.holds(at(2), &[n], &"nat"), "{n}");
        }
    }
}
