//! Failed logins: whoever fails too often is held back for a while.

use alloc::collections::VecDeque;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant};

/// How many failed logins hold a user or a station back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureLimit {
    /// This many failures …
    pub count: u32,
    /// … within this time …
    pub window: Duration,
    /// … refuse every login for this long.
    pub lockout_time: Duration,
    /// How many users and stations that failed are remembered, beyond which the one that failed longest ago is
    /// forgotten, and how many that are held back, beyond which the one whose time ends first is.
    pub capacity: usize,
}

impl FailureLimit {
    /// So many failures within so long hold back for so long; 65,536 users and stations are remembered.
    #[must_use]
    pub const fn new(count: u32, within: Duration, hold: Duration) -> Self {
        Self { count, window: within, lockout_time: hold, capacity: 1 << 16 }
    }
}

#[derive(Clone, Copy, Debug)]
struct FailureCount {
    key: u64,
    count: u32,
    since: Instant,
}

/// Failed logins by whatever they are counted under, and what is held back for them: keys of names and of stations, which the caller
/// makes by a hash that nobody outside knows.
#[derive(Debug)]
pub struct FailureTable {
    limit: FailureLimit,
    /// Who failed less often than the limit; the one that failed longest ago goes first.
    table: SessionTable<FailureCount>,
    by_key: HashMap<u64, u64>,
    /// Who is held back, and until when. They have room of their own: whoever fails under many names makes the server
    /// forget nobody who is held back, but for as many who are.
    lockouts: HashMap<u64, Instant>,
    /// By when their time is over; one held anew stands here again.
    order: VecDeque<(Instant, u64)>,
}

impl FailureTable {
    /// Nobody has failed.
    #[must_use]
    pub fn new(limit: FailureLimit, hash: &HashState) -> Self {
        let (by_key, held) = (HashMap::with_hasher(hash.clone()), HashMap::with_hasher(hash.clone()));
        Self { limit, table: SessionTable::new(), by_key, lockouts: held, order: VecDeque::new() }
    }
    /// Counts a failure; true: whoever failed is held back from now on.
    pub fn record_failure(&mut self, now: Instant, key: u64) -> bool {
        if self.is_locked_out(now, key) {
            return false;
        }
        let new = FailureCount { key, count: 0, since: now };
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
    /// Holds somebody back, as the limit says.
    pub fn lock_out(&mut self, now: Instant, key: u64) {
        self.clear_failures(key);
        let until = now + self.limit.lockout_time;
        self.lockouts.insert(key, until);
        self.order.push_back((until, key));
        self.expire_lockouts(now);
    }
    /// Forgets those whose time is over, and those who have no room.
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
    /// Nobody is held back, so that nobody has to be looked for.
    pub fn has_no_lockouts(&mut self, now: Instant) -> bool {
        self.expire_lockouts(now);
        self.lockouts.is_empty()
    }
    /// There are failures that a success would make forgotten.
    #[must_use]
    pub fn any_counted(&self) -> bool {
        !self.by_key.is_empty()
    }
    /// Whether somebody is held back.
    #[must_use]
    pub fn is_locked_out(&self, now: Instant, key: u64) -> bool {
        self.lockouts.get(&key).is_some_and(|until| *until > now)
    }
    /// Counts anew after a success.
    pub fn clear_failures(&mut self, key: u64) {
        if let Some(token) = self.by_key.remove(&key) {
            self.table.remove(token);
        }
    }
}
