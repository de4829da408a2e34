//! Recently seen keys: a bounded memory that distinguishes known users from others.

use crate::collections::{HashMap, SeededHashState};
use crate::table::SessionTable;
use crate::{Duration, Instant};

/// A table of keys with the time when each was last seen. When it is full, the least recently seen key is evicted. Keys
/// are hashes that an outsider cannot predict.
#[derive(Debug)]
pub struct RecentKeyTable {
    capacity: usize,
    by_key: HashMap<u64, u64>,
    table: SessionTable<(u64, Instant)>,
}

impl RecentKeyTable {
    /// An empty table for this number of keys.
    #[must_use]
    pub fn new(room: usize, hash: &SeededHashState) -> Self {
        Self { capacity: room, by_key: HashMap::with_hasher(hash.clone()), table: SessionTable::new() }
    }
    /// Records that a key is seen now.
    pub fn record_recent_key(&mut self, now: Instant, key: u64) {
        self.remove_key(key);
        while self.table.len() >= self.capacity.max(1) {
            let Some((oldest, _)) = self.table.oldest_entry() else { break };
            if let Some((key, _)) = self.table.remove(oldest) {
                self.by_key.remove(&key);
            }
        }
        let token = self.table.insert(now, (key, now));
        self.by_key.insert(key, token);
    }
    /// True if the key was seen within this time.
    #[must_use]
    pub fn is_recent(&self, now: Instant, key: u64, within: Duration) -> bool {
        let seen = self.by_key.get(&key).and_then(|token| self.table.get(*token));
        seen.is_some_and(|(_, at)| now.duration_since(*at) < within)
    }
    /// Forgets a key.
    pub fn remove_key(&mut self, key: u64) {
        if let Some(token) = self.by_key.remove(&key) {
            self.table.remove(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SecureRng;
    use crate::collections::hash_state;

    #[test]
    fn who_was_seen_last_is_remembered_and_for_so_long() {
        let mut recent = RecentKeyTable::new(3, &hash_state(&mut SecureRng::from_seed([1; 32])));
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let minute = Duration::from_secs(60);
        for (secs, key) in [(0, 1), (1, 2), (2, 1), (3, 3), (4, 4)] {
            recent.record_recent_key(at(secs), key);
        }
        let known =
            |recent: &RecentKeyTable, secs| [1, 2, 3, 4].map(|key| recent.is_recent(at(secs), key, minute));
        assert_eq!(known(&recent, 4), [true, false, true, true], "2 was not seen for longest");
        assert_eq!(known(&recent, 62), [false, false, true, true]);
        recent.remove_key(3);
        assert_eq!(known(&recent, 4), [true, false, false, true]);
        assert_eq!((recent.by_key.len(), recent.table.len()), (2, 2));
    }
}
