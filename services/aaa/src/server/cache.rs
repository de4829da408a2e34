//! A bounded cache of lookup results: users and unknown names.

use super::config::UserCacheConfig;
use crate::users::{User, canonical_name};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use usher_core::collections::{HashMap, SeededHashState, hash_state};
use usher_core::{Duration, Instant, SecureRng};

/// Values by name with a common lifetime, so that the oldest expires first.
#[derive(Debug)]
struct BoundedCache<T> {
    entries: usize,
    ttl: Duration,
    by_name: HashMap<Arc<[u8]>, CacheEntry<T>>,
    /// Names in the order of insertion. A name inserted again has two entries; the earlier one is ignored.
    order: VecDeque<(Instant, Arc<[u8]>)>,
}

#[derive(Debug)]
struct CacheEntry<T> {
    value: T,
    since: Instant,
}

impl<T> BoundedCache<T> {
    fn new(entries: usize, ttl: Duration, hash: SeededHashState) -> Self {
        Self { entries, ttl, by_name: HashMap::with_hasher(hash), order: VecDeque::new() }
    }
    /// Returns a value that has not expired.
    fn find(&self, now: Instant, name: &[u8]) -> Option<&T> {
        let kept = self.by_name.get(&*canonical_name(name))?;
        (kept.since + self.ttl > now).then_some(&kept.value)
    }
    /// Inserts or replaces a value, and evicts expired and excess ones.
    fn insert(&mut self, now: Instant, name: &[u8], value: T) {
        if self.entries == 0 || self.ttl.is_zero() {
            return;
        }
        let name: Arc<[u8]> = (&*canonical_name(name)).into();
        self.by_name.insert(name.clone(), CacheEntry { value, since: now });
        self.order.push_back((now, name));
        if self.order.len() > 2 * self.entries.saturating_add(8) {
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
            let due = *since + self.ttl <= now || self.by_name.len() > self.entries;
            if current && !due {
                break;
            }
            if current {
                self.by_name.remove(name);
            }
            self.order.pop_front();
        }
    }
    fn remove(&mut self, name: Option<&[u8]>) {
        match name {
            Some(name) => {
                self.by_name.remove(&*canonical_name(name));
            }
            None => {
                self.by_name.clear();
                self.order.clear();
            }
        }
    }
}

/// The generation at the start of a lookup. If a user was evicted since then, the lookup's result is not cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheGeneration(u64);

/// A cache of users and unknown names, bounded in time and number.
#[derive(Debug)]
pub struct UserCache {
    users: BoundedCache<Arc<User>>,
    nobodies: BoundedCache<()>,
    generation: CacheGeneration,
}

impl UserCache {
    /// Creates a cache without capacity.
    pub(super) fn with_zero_capacity(rng: &mut SecureRng) -> Self {
        Self::new(UserCacheConfig { entries: 0, ..UserCacheConfig::default() }, rng)
    }
    /// Creates an empty cache. `rng` keys its table against chosen collisions.
    pub fn new(config: UserCacheConfig, rng: &mut SecureRng) -> Self {
        let hash = hash_state(rng);
        Self {
            users: BoundedCache::new(config.entries, config.ttl, hash.clone()),
            nobodies: BoundedCache::new(config.max_cached_unknown_names(), config.unknown_ttl, hash),
            generation: CacheGeneration::default(),
        }
    }
    /// Number of users.
    #[must_use]
    pub fn len(&self) -> usize {
        self.users.by_name.len()
    }
    /// True if there are no users.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the cached result of a name: a user or `None`. Outer `None`: the name is not cached.
    pub fn find(&mut self, now: Instant, name: &[u8]) -> Option<Option<Arc<User>>> {
        let user = self.users.find(now, name).cloned();
        if user.is_some() { Some(user) } else { self.nobodies.find(now, name).map(|()| None) }
    }
    /// Returns the generation for a lookup that starts now.
    #[must_use]
    pub const fn generation(&self) -> CacheGeneration {
        self.generation
    }
    /// Caches a lookup's result, unless an eviction took place since it began.
    pub fn insert(&mut self, now: Instant, begun: CacheGeneration, name: &[u8], user: Option<&Arc<User>>) {
        if begun != self.generation {
            return;
        }
        match user {
            Some(user) => {
                self.nobodies.remove(Some(name));
                self.users.insert(now, name, user.clone());
            }
            None => {
                self.users.remove(Some(name));
                self.nobodies.insert(now, name, ());
            }
        }
    }
    /// Evicts a name, or all.
    pub fn evict_user(&mut self, name: Option<&[u8]>) {
        self.generation.0 += 1;
        self.users.remove(name);
        self.nobodies.remove(name);
    }
    /// Applies new bounds and empties the cache.
    pub fn reconfigure(&mut self, config: UserCacheConfig) {
        (self.users.entries, self.users.ttl) = (config.entries, config.ttl);
        (self.nobodies.entries, self.nobodies.ttl) = (config.max_cached_unknown_names(), config.unknown_ttl);
        self.evict_user(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use usher_core::Seed;

    fn instant_at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn test_cache(entries: usize) -> UserCache {
        let (ttl, unknown_ttl) = (Duration::from_secs(10), Duration::from_secs(2));
        UserCache::new(
            UserCacheConfig { entries, ttl, unknown_ttl },
            &mut Seed::new(1).derive_secure_rng("cache", 0),
        )
    }

    fn insert_user(cache: &mut UserCache, second: u64, name: &[u8]) {
        let begun = cache.generation();
        cache.insert(instant_at(second), begun, name, Some(&Arc::new(User::default())));
    }

    fn is_cached_user(cache: &mut UserCache, second: u64, name: &[u8]) -> bool {
        cache.find(instant_at(second), name).is_some_and(|user| user.is_some())
    }

    #[test]
    fn nobody_is_served_longer_than_said() {
        let mut cache = test_cache(10);
        insert_user(&mut cache, 0, b"ann");
        assert!(is_cached_user(&mut cache, 9, b"ann"));
        assert!(cache.find(instant_at(10), b"ann").is_none());
        insert_user(&mut cache, 5, b"ann");
        assert!(is_cached_user(&mut cache, 14, b"ann") && cache.find(instant_at(15), b"ann").is_none());
        cache.evict_user(Some(b"ann"));
        assert!(cache.find(instant_at(6), b"ann").is_none());
    }

    #[test]
    fn a_name_that_nobody_has_is_remembered_for_a_short_time() {
        let mut cache = test_cache(10);
        let begun = cache.generation();
        cache.insert(instant_at(0), begun, b"eve", None);
        assert!(cache.find(instant_at(1), b"eve").is_some_and(|user| user.is_none()));
        assert!(cache.find(instant_at(2), b"eve").is_none());
        insert_user(&mut cache, 2, b"eve");
        assert!(is_cached_user(&mut cache, 3, b"eve"));
        cache.insert(instant_at(4), begun, b"eve", None);
        assert!(
            cache.find(instant_at(5), b"eve").is_some_and(|user| user.is_none()),
            "the last answer counts"
        );
        cache.evict_user(Some(b"eve"));
        assert!(cache.find(instant_at(5), b"eve").is_none());
        for n in 0..1000_u32 {
            let begun = cache.generation();
            cache.insert(instant_at(6), begun, &n.to_be_bytes(), None);
        }
        assert!(cache.nobodies.by_name.len() <= 10, "{}", cache.nobodies.by_name.len());
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn an_answer_of_before_the_forgetting_is_not_kept() {
        let mut cache = test_cache(10);
        let begun = cache.generation();
        cache.evict_user(Some(b"ann"));
        cache.insert(instant_at(0), begun, b"ann", Some(&Arc::new(User::default())));
        cache.insert(instant_at(0), begun, b"bob", None);
        assert!(cache.find(instant_at(0), b"ann").is_none() && cache.find(instant_at(0), b"bob").is_none());
        insert_user(&mut cache, 0, b"ann");
        assert!(is_cached_user(&mut cache, 0, b"ann"));
    }

    #[test]
    fn the_one_kept_longest_goes_first() {
        let mut cache = test_cache(3);
        for (second, name) in [b"a", b"b", b"a", b"c", b"d"].into_iter().enumerate() {
            insert_user(&mut cache, second as u64, name);
        }
        let there: Vec<bool> = [b"a", b"b", b"c", b"d"].map(|n| is_cached_user(&mut cache, 5, n)).into();
        assert_eq!(there, [true, false, true, true]);
        for second in 5..1000 {
            insert_user(&mut cache, 5, &[second as u8, 1]);
            insert_user(&mut cache, 5, b"a");
            assert!(cache.len() <= 3 && cache.users.order.len() <= 3 * 3, "{}", cache.users.order.len());
        }
    }
}
