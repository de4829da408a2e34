//! The event queue: a monotone radix queue over integer nanoseconds.
//!
//! Events are ordered by time, and events of equal times by insertion. The highest 6-bit digit in which an
//! entry's time differs from the base selects its bucket. A small earliest bucket is searched as it is. The time
//! of a large one becomes the base, and its entries move to buckets of lower digits. So an entry moves once or
//! twice for the milliseconds of networks, whatever the number of pending events. All entries of one time are in
//! one bucket, in order, so no sequence number is needed.
//!
//! With ranks, events of equal times are ordered by rank first.

use std::cmp::Ordering;
use usher_core::Instant;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 64usize.div_ceil(DIGIT_BITS as usize);
/// Maximum entries of a bucket that is searched; a larger one is split.
const SMALL: usize = 8;
/// Maximum capacity (entries) that an emptied bucket keeps.
const MAX_RETAINED_CAPACITY: usize = 256;

/// A monotone priority queue of `T` by time, then by rank (if any), then by insertion.
#[derive(Debug)]
pub struct EventQueue<T, R = ()> {
    /// The time of the last removed event; later insertions are not earlier.
    now: u64,
    /// The base of the comparison of digits; not after `now`.
    base: u64,
    /// Events of time `base`, from index `next` on.
    current: Vec<(T, R)>,
    next: usize,
    /// Bit set of the levels with entries.
    levels: u16,
    /// Bit set of the slots with entries, per level.
    occupied: [u64; LEVELS],
    slots: Vec<[Vec<(u64, T, R)>; SLOTS]>,
    len: usize,
}

impl<T: Copy, R: Copy + PartialOrd> Default for EventQueue<T, R> {
    fn default() -> Self {
        Self {
            now: 0,
            base: 0,
            current: Vec::new(),
            next: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: (0..LEVELS).map(|_| std::array::from_fn(|_| Vec::new())).collect(),
            len: 0,
        }
    }
}

impl<T: Copy> EventQueue<T> {
    /// Inserts an event. A time before the last removed event counts as that time.
    #[inline]
    pub fn push(&mut self, at: Instant, event: T) {
        self.push_ranked(at, event, ());
    }

    /// Removes the earliest event if it is not after `until`.
    #[inline]
    pub fn pop_until(&mut self, until: Instant) -> Option<(Instant, T)> {
        self.pop_ranked_until(until).map(|(at, event, ())| (at, event))
    }
}

impl<T: Copy, R: Copy + PartialOrd> EventQueue<T, R> {
    /// Creates an empty queue at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of pending events.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no event is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts an event: among those of its time, before greater ranks and behind all others. A time before the last
    /// removed event counts as that time. At that time, the rank must not be smaller than that of the last removed
    /// event.
    #[inline]
    pub fn push_ranked(&mut self, at: Instant, event: T, rank: R) {
        self.len += 1;
        self.insert_event(at.as_nanos().max(self.now), event, rank);
    }

    /// Returns the time of the earliest event.
    pub fn next_time(&self) -> Option<Instant> {
        if self.next < self.current.len() {
            return Some(Instant::from_nanos(self.base));
        }
        let bucket = self.slots.get(self.levels.trailing_zeros() as usize).map(|level| {
            let occupied = self.occupied[self.levels.trailing_zeros() as usize];
            &level[occupied.trailing_zeros() as usize % SLOTS]
        });
        bucket.into_iter().flatten().map(|(at, ..)| Instant::from_nanos(*at)).min()
    }

    /// Returns the pending events at the time of the last removed one, with their ranks, in no particular order.
    pub fn pending_now(&self) -> impl Iterator<Item = (T, R)> {
        let current = if self.base == self.now { &self.current[self.next..] } else { &[] };
        let level = self.levels.trailing_zeros() as usize;
        let occupied = self.occupied.get(level).map_or(0, |slots| slots.trailing_zeros() as usize % SLOTS);
        let bucket = self.slots.get(level).map(|level| &level[occupied][..]).unwrap_or_default();
        let of_bucket =
            bucket.iter().filter(|(at, ..)| *at == self.now).map(|&(_, event, rank)| (event, rank));
        current.iter().copied().chain(of_bucket)
    }

    #[inline]
    fn insert_event(&mut self, at: u64, event: T, rank: R) {
        let differs = at ^ self.base;
        if differs == 0 {
            self.current.push((event, rank));
            return;
        }
        let level = (differs.ilog2() / DIGIT_BITS) as usize;
        let digit = (at >> (level as u32 * DIGIT_BITS)) as usize % SLOTS;
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << digit;
        self.slots[level][digit].push((at, event, rank));
    }

    /// Removes the earliest event, with its rank, if it is not after `until`.
    #[inline]
    pub fn pop_ranked_until(&mut self, until: Instant) -> Option<(Instant, T, R)> {
        let until = until.as_nanos();
        loop {
            if let Some(&(event, rank)) = self.current.get(self.next) {
                return self.pop_current(until, event, rank);
            }
            if self.levels == 0 {
                return None;
            }
            let level = self.levels.trailing_zeros() as usize;
            let digit = self.occupied[level].trailing_zeros() as usize % SLOTS;
            let bucket = &mut self.slots[level][digit];
            let mut first = 0;
            for i in 1..bucket.len() {
                let ((at, _, rank), (least, _, least_rank)) = (bucket[i], bucket[first]);
                if at < least || (at == least && rank < least_rank) {
                    first = i;
                }
            }
            let (at, event, rank) = bucket[first];
            if at > until {
                return None;
            }
            self.now = at;
            if bucket.len() > SMALL {
                self.split_bucket(level, digit);
                continue;
            }
            if first + 1 < bucket.len() {
                bucket.remove(first);
            } else {
                bucket.pop();
                if bucket.is_empty() {
                    self.mark_bucket_empty(level, digit);
                }
            }
            self.len -= 1;
            return Some((Instant::from_nanos(at), event, rank));
        }
    }

    fn pop_current(&mut self, until: u64, event: T, rank: R) -> Option<(Instant, T, R)> {
        if self.base > until {
            return None;
        }
        self.next += 1;
        if self.next == self.current.len() {
            self.current.clear();
            self.next = 0;
        }
        self.len -= 1;
        Some((Instant::from_nanos(self.base), event, rank))
    }

    /// Marks a bucket as empty.
    #[inline]
    fn mark_bucket_empty(&mut self, level: usize, digit: usize) {
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    /// Makes the earliest time of the earliest bucket the base. All entries of the bucket then belong to lower
    /// levels.
    #[inline(never)]
    fn split_bucket(&mut self, level: usize, digit: usize) {
        self.base = self.now;
        self.mark_bucket_empty(level, digit);
        let mut bucket = std::mem::take(&mut self.slots[level][digit]);
        for &(at, event, rank) in &bucket {
            self.insert_event(at, event, rank);
        }
        if size_of::<R>() > 0 {
            self.current.sort_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        }
        if bucket.capacity() <= MAX_RETAINED_CAPACITY {
            bucket.clear();
            self.slots[level][digit] = bucket;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_nanos(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn ties_come_out_in_the_order_they_went_in() {
        let mut q = EventQueue::new();
        q.push(at_nanos(1 << 40), 0);
        q.push(at_nanos(7), 1);
        assert_eq!(q.pop_until(at_nanos(u64::MAX)), Some((at_nanos(7), 1)));
        q.push(at_nanos(1 << 40), 2);
        q.push(at_nanos(7), 3);
        q.push(at_nanos(8), 4);
        let rest: Vec<_> = std::iter::from_fn(|| q.pop_until(at_nanos(u64::MAX))).map(|(_, e)| e).collect();
        assert_eq!(rest, [3, 4, 0, 2]);
        assert!(q.is_empty());
    }

    #[test]
    fn pop_stops_at_the_limit_and_earlier_pushes_still_fit() {
        let mut q = EventQueue::new();
        q.push(at_nanos(1_000_000), 1);
        assert_eq!(q.pop_until(at_nanos(999_999)), None);
        q.push(at_nanos(999_999), 2);
        assert_eq!(q.pop_until(at_nanos(999_999)), Some((at_nanos(999_999), 2)));
        assert_eq!(q.pop_until(at_nanos(u64::MAX)), Some((at_nanos(1_000_000), 1)));
    }

    #[test]
    fn a_rank_is_before_the_order_of_putting_in() {
        let mut q = EventQueue::new();
        for (event, rank) in [(0, 5), (1, 3), (2, 5), (3, 3)] {
            q.push_ranked(at_nanos(9), event, rank);
        }
        assert_eq!(q.next_time(), Some(at_nanos(9)));
        let order: Vec<i32> =
            std::iter::from_fn(|| q.pop_ranked_until(at_nanos(9))).map(|(_, event, _)| event).collect();
        assert_eq!((order, q.next_time()), (vec![1, 3, 0, 2], None));
    }

    proptest! {
        /// Compares with a stable sort as the model; bursts make buckets large enough to be split.
        #[test]
        fn it_is_a_stable_priority_queue(
            steps in proptest::collection::vec((0u64..1 << 34, 0u32..64, 1usize..24, 0usize..30, 0u64..1 << 20), 1..100),
            ranks in 1u64..4,
        ) {
            let mut q = EventQueue::new();
            let mut model: Vec<(u64, u64, u32)> = Vec::new();
            let mut now = 0;
            let mut id = 0;
            for (ahead, shift, burst, pops, limit) in steps {
                for i in 0..burst as u64 {
                    let at = now + ((ahead.wrapping_mul(2 * i + 1) % (1 << 34)) >> (shift % 34));
                    // No event is inserted before the current one.
                    let rank = if at == now { u64::MAX } else { ahead.wrapping_mul(i + 7) / 3 % ranks };
                    q.push_ranked(at_nanos(at), id, rank);
                    model.push((at, rank, id));
                    id += 1;
                }
                let limit = if limit % 4 == 0 { now + limit } else { u64::MAX };
                for _ in 0..pops {
                    let earliest = (0..model.len()).min_by_key(|&i| (model[i].0, model[i].1, i));
                    prop_assert_eq!(q.next_time(), earliest.map(|i| at_nanos(model[i].0)));
                    let expected = earliest.filter(|&i| model[i].0 <= limit).map(|i| model.remove(i));
                    let got = q.pop_ranked_until(at_nanos(limit));
                    prop_assert_eq!(got, expected.map(|(at, rank, e)| (at_nanos(at), e, rank)));
                    now = got.map_or(now, |(at, ..)| at.as_nanos());
                    if got.is_some() {
                        let mut present: Vec<_> = q.pending_now().collect();
                        let mut pending: Vec<_> = model.iter().filter(|m| m.0 == now).map(|m| (m.2, m.1)).collect();
                        present.sort_unstable();
                        pending.sort_unstable();
                        prop_assert_eq!(present, pending);
                    }
                }
                prop_assert_eq!(q.len(), model.len());
            }
        }
    }
}
