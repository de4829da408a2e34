//! Counts of failed logins, and lockouts after too many.

use alloc::collections::VecDeque;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant};

/// The number of failed logins that locks out a user or a station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoginFailureLimit {
    /// The number of failures …
    pub count: u32,
    /// … within this time …
    pub window: Duration,
    /// … that causes a lockout of this duration.
    pub lockout_time: Duration,
    /// The maximum number of users and stations with failures, and that of lockouts. Beyond it the entry with the
    /// oldest failure is evicted, or the lockout that ends first.
    pub capacity: usize,
}

impl LoginFailureLimit {
    /// Locks out for `hold` after `count` failures within `within`. The capacity is 65,536.
    #[must_use]
    pub const fn new(count: u32, within: Duration, hold: Duration) -> Self {
        Self { count, window: within, lockout_time: hold, capacity: 1 << 16 }
    }
}

#[derive(Clone, Copy, Debug)]
struct LoginFailureCount {
    key: u64,
    count: u32,
    since: Instant,
}

/// A table of failed logins and lockouts. Its keys are hashes of names and stations. The caller computes them with a
/// secret hash function.
#[derive(Debug)]
pub struct LoginFailureTable {
    limit: LoginFailureLimit,
    /// The failures below the limit, with the oldest first.
    table: SessionTable<LoginFailureCount>,
    by_key: HashMap<u64, u64>,
    /// The lockouts and their ends. They have their own capacity, so that only another lockout evicts one.
    lockouts: HashMap<u64, Instant>,
    /// The lockouts by their ends. A renewed lockout has two entries.
    order: VecDeque<(Instant, u64)>,
}

impl LoginFailureTable {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limit: LoginFailureLimit, hash: &SeededHashState) -> Self {
        let (by_key, held) = (HashMap::with_hasher(hash.clone()), HashMap::with_hasher(hash.clone()));
        Self { limit, table: SessionTable::new(), by_key, lockouts: held, order: VecDeque::new() }
    }
    /// Counts a failure. Returns true if it causes a lockout.
    pub fn record_failure(&mut self, now: Instant, key: u64) -> bool {
        if self.is_locked_out(now, key) {
            return false;
        }
        let new = LoginFailureCount { key, count: 0, since: now };
        let token = match self.by_key.get(&key) {
            Some(token) => *token,
            None => {
                while self.table.len() >= self.limit.capacity.max(1) {
                    let Some(failure) = self.table.oldest_entry().and_then(|(t, _)| self.table.remove(t))
                    else {
                        break;
                    };
                    self.by_key.remove(&failure.key);
                }
                let token = self.table.insert(now, new);
                self.by_key.insert(key, token);
                token
            }
        };
        self.table.touch(now, token);
        let Some(failure) = self.table.get_mut(token) else { return false };
        if now.duration_since(failure.since) > self.limit.window {
            (failure.count, failure.since) = (0, now);
        }
        failure.count += 1;
        let reached = failure.count >= self.limit.count.max(1);
        if reached {
            self.lock_out(now, key);
        }
        reached
    }
    /// Locks a key out for the limit's duration.
    pub fn lock_out(&mut self, now: Instant, key: u64) {
        self.clear_failures(key);
        let until = now + self.limit.lockout_time;
        self.lockouts.insert(key, until);
        self.order.push_back((until, key));
        self.expire_lockouts(now);
    }
    /// Removes expired lockouts and those beyond the capacity.
    fn expire_lockouts(&mut self, now: Instant) {
        while let Some(&(until, key)) = self.order.front() {
            let current = self.lockouts.get(&key) == Some(&until);
            if current && until > now && self.lockouts.len() <= self.limit.capacity.max(1) {
                break;
            }
            if current {
                self.lockouts.remove(&key);
            }
            self.order.pop_front();
        }
    }
    /// True if there is no lockout, so that lookups can be skipped.
    pub fn has_no_lockouts(&mut self, now: Instant) -> bool {
        self.expire_lockouts(now);
        self.lockouts.is_empty()
    }
    /// True if there are failures that a success would clear.
    #[must_use]
    pub fn has_login_failures(&self) -> bool {
        !self.by_key.is_empty()
    }
    /// True if the key is locked out.
    #[must_use]
    pub fn is_locked_out(&self, now: Instant, key: u64) -> bool {
        self.lockouts.get(&key).is_some_and(|until| *until > now)
    }
    /// Clears the failures of a key after a success.
    pub fn clear_failures(&mut self, key: u64) {
        if let Some(token) = self.by_key.remove(&key) {
            self.table.remove(token);
        }
    }
}
