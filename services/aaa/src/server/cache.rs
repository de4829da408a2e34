//! Users that the host found, kept for a bounded time.

use super::config::CacheConfig;
use crate::users::User;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use usher_core::collections::{HashMap, hash_state};
use usher_core::{Duration, Instant, SecureRng};

/// Users by name, each until its time is over; all live equally long, so that the next to go is the one kept longest.
#[derive(Debug)]
pub(super) struct UserCache {
    config: CacheConfig,
    by_name: HashMap<Arc<[u8]>, Kept>,
    /// Names in the order in which they were kept; a name kept anew stands here again, and the earlier place is
    /// passed over.
    order: VecDeque<(Instant, Arc<[u8]>)>,
}

#[derive(Debug)]
struct Kept {
    user: Arc<User>,
    since: Instant,
}

impl UserCache {
    /// A cache that keeps nobody.
    pub(super) fn none(rng: &mut SecureRng) -> Self {
        Self::new(CacheConfig { entries: 0, ttl: Duration::ZERO }, rng)
    }
    pub(super) fn new(config: CacheConfig, rng: &mut SecureRng) -> Self {
        Self { config, by_name: HashMap::with_hasher(hash_state(rng)), order: VecDeque::new() }
    }
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }
    /// A user whose time is not over.
    pub(super) fn find(&mut self, now: Instant, name: &[u8]) -> Option<Arc<User>> {
        let kept = self.by_name.get(name)?;
        (kept.since + self.config.ttl > now).then(|| kept.user.clone())
    }
    /// Keeps a user in place of the one of that name, and lets those go whose time is over or who have no room.
    pub(super) fn keep(&mut self, now: Instant, name: &[u8], user: &Arc<User>) {
        if self.config.entries == 0 {
            return;
        }
        let name: Arc<[u8]> = name.into();
        self.by_name.insert(name.clone(), Kept { user: user.clone(), since: now });
        self.order.push_back((now, name));
        if self.order.len() > 2 * self.config.entries.saturating_add(8) {
            let by_name = &self.by_name;
            let mut last = None;
            self.order.retain(|(since, name)| {
                let current = by_name.get(name).is_some_and(|k| k.since == *since);
                let again = last.replace(name.clone()).is_some_and(|l| l == *name);
                current && !again
            });
        }
        while let Some((since, name)) = self.order.front() {
            let current = self.by_name.get(name).is_some_and(|k| k.since == *since);
            let due = *since + self.config.ttl <= now || self.by_name.len() > self.config.entries;
            if current && !due {
                break;
            }
            if current {
                self.by_name.remove(name);
            }
            self.order.pop_front();
        }
    }
    /// Forgets one user or all.
    pub(super) fn forget(&mut self, name: Option<&[u8]>) {
        match name {
            Some(name) => {
                self.by_name.remove(name);
            }
            None => {
                self.by_name.clear();
                self.order.clear();
            }
        }
    }
    /// Goes on with other bounds.
    pub(super) fn reconfigure(&mut self, config: CacheConfig) {
        self.config = config;
        self.forget(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use usher_core::Seed;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn cache(entries: usize) -> UserCache {
        let config = CacheConfig { entries, ttl: Duration::from_secs(10) };
        UserCache::new(config, &mut Seed::new(1).secure("cache", 0))
    }

    #[test]
    fn nobody_is_served_longer_than_said() {
        let (mut cache, user) = (cache(10), Arc::new(User::default()));
        cache.keep(at(0), b"ann", &user);
        assert!(cache.find(at(9), b"ann").is_some());
        assert!(cache.find(at(10), b"ann").is_none());
        cache.keep(at(5), b"ann", &user);
        assert!(cache.find(at(14), b"ann").is_some() && cache.find(at(15), b"ann").is_none());
        cache.forget(Some(b"ann"));
        assert!(cache.find(at(6), b"ann").is_none());
    }

    #[test]
    fn the_one_kept_longest_goes_first() {
        let (mut cache, user) = (cache(3), Arc::new(User::default()));
        for (second, name) in [b"a", b"b", b"a", b"c", b"d"].into_iter().enumerate() {
            cache.keep(at(second as u64), name, &user);
        }
        let there: Vec<bool> = [b"a", b"b", b"c", b"d"].map(|n| cache.find(at(5), n).is_some()).into();
        assert_eq!(there, [true, false, true, true]);
        for second in 5..1000 {
            cache.keep(at(5), &[second as u8, 1], &user);
            cache.keep(at(5), b"a", &user);
            assert!(cache.len() <= 3 && cache.order.len() <= 3 * 3, "{}", cache.order.len());
        }
    }
}
