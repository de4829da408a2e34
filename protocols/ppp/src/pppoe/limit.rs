//! Rate limits by token buckets, one per key of a bounded number of keys.

use alloc::collections::BTreeMap;
use usher_core::timer::TimerQueue;
use usher_core::{Duration, Instant};

/// A rate limit: a burst, and a sustained rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucketRate {
    /// Tokens per second; zero: unlimited.
    pub per_second: u32,
    /// Tokens of a full bucket.
    pub burst: u32,
}

impl TokenBucketRate {
    /// Returns the time in which the bucket gains one token.
    fn interval(self) -> Duration {
        Duration::from_secs(1) / u64::from(self.per_second.max(1))
    }
}

/// A token bucket: the time at which it will be full again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TokenBucket(Instant);

impl TokenBucket {
    /// Takes a token; false if the bucket is empty.
    pub(crate) fn take_token(&mut self, now: Instant, rate: TokenBucketRate) -> bool {
        rate.per_second == 0 || self.take_each(now, rate.interval(), rate.burst)
    }
    /// Takes a token of a bucket that holds `burst` and gains one per `each`; false if the bucket is empty.
    pub(crate) fn take_each(&mut self, now: Instant, each: Duration, burst: u32) -> bool {
        let full = self.0.max(now) + each;
        let may = full.duration_since(now) <= each * u64::from(burst);
        if may {
            self.0 = full;
        }
        may
    }
}

/// Token buckets by key, of a bounded number.
#[derive(Debug)]
pub(crate) struct TokenBucketTable<K: Ord + Copy> {
    buckets: BTreeMap<K, TokenBucket>,
    /// The time at which each bucket is full again. Its entry is then removed.
    full: TimerQueue<K>,
    most: usize,
}

impl<K: Ord + Copy> TokenBucketTable<K> {
    /// Creates an empty table of at most `most` buckets. Beyond that, the bucket that will be full first is evicted.
    pub(crate) fn new(most: usize) -> Self {
        Self { buckets: BTreeMap::new(), full: TimerQueue::new(), most }
    }
    pub(crate) fn take_token(&mut self, now: Instant, key: K, rate: TokenBucketRate) -> bool {
        self.take_from_bucket(now, key, |bucket| bucket.take_token(now, rate))
    }
    /// Takes a token of the key's bucket, which holds `burst` and gains one per `each`; false if the bucket is empty.
    pub(crate) fn take_each(&mut self, now: Instant, key: K, each: Duration, burst: u32) -> bool {
        self.take_from_bucket(now, key, |bucket| bucket.take_each(now, each, burst))
    }
    /// True if [`take_each`](Self::take_each) would succeed.
    pub(crate) fn has_bucket_token(&self, now: Instant, key: K, each: Duration, burst: u32) -> bool {
        self.buckets.get(&key).copied().unwrap_or_default().take_each(now, each, burst)
    }
    fn take_from_bucket(
        &mut self,
        now: Instant,
        key: K,
        take: impl FnOnce(&mut TokenBucket) -> bool,
    ) -> bool {
        while let Some((_, key)) = self.full.pop_due(now) {
            self.buckets.remove(&key);
        }
        let mut bucket = self.buckets.get(&key).copied().unwrap_or_default();
        let before = bucket;
        if !take(&mut bucket) {
            return false;
        }
        if self.buckets.insert(key, bucket).is_some() {
            self.full.remove(before.0, key);
        } else if self.buckets.len() > self.most
            && let Some((_, key)) = self.full.pop_due(Instant::FAR_FUTURE)
        {
            self.buckets.remove(&key);
        }
        self.full.insert(bucket.0, key);
        true
    }
    /// Returns the number of buckets in the table.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TokenBucketRate = TokenBucketRate { per_second: 2, burst: 3 };

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        let taken = |bucket: &mut TokenBucket, ms| (0..5).filter(|_| bucket.take_token(at(ms), RATE)).count();
        assert_eq!((taken(&mut bucket, 1000), taken(&mut bucket, 1499)), (3, 0));
        assert_eq!((taken(&mut bucket, 1500), taken(&mut bucket, 9000)), (1, 3));
        let free = TokenBucketRate { per_second: 0, burst: 0 };
        assert!((0..1000).all(|_| bucket.take_token(at(9000), free)));
    }

    #[test]
    fn buckets_are_bounded_and_forgotten_when_full() {
        let mut buckets = TokenBucketTable::new(10);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        for key in 0..1000 {
            assert!(buckets.take_token(at(0), key, RATE));
            assert!(buckets.len() <= 10);
        }
        assert!(buckets.take_token(at(0), 999, RATE) && buckets.take_token(at(0), 999, RATE));
        assert!(!buckets.take_token(at(0), 999, RATE));
        assert!(buckets.take_token(at(5000), 7, RATE));
        assert_eq!(buckets.len(), 1);
    }
}
