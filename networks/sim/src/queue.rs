//! The event queue: a monotone radix queue over integer nanoseconds.
//!
//! Events come out by time, and among equal times in the order they were put in. An entry sits in the
//! bucket named by the highest 6-bit digit in which its time differs from the present, and moves to a
//! lower bucket each time the present reaches its digit: at most eleven moves, four or five for the
//! milliseconds that networks are made of, whatever the number of pending events. All entries of one
//! time are always in one bucket, in order, so no sequence number is needed.

use usher_core::Instant;

const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
const LEVELS: usize = 64usize.div_ceil(DIGIT_BITS as usize);

/// A monotone priority queue of `T` by time.
#[derive(Debug)]
pub struct EventQueue<T> {
    /// The time of the last event taken out; nothing earlier may be put in.
    now: u64,
    /// Events of exactly `now`, from `next` on.
    current: Vec<T>,
    next: usize,
    /// Which levels hold something.
    levels: u16,
    /// Per level, which slots do.
    occupied: [u64; LEVELS],
    slots: Vec<Vec<(u64, T)>>,
    spare: Vec<(u64, T)>,
    len: usize,
}

impl<T: Copy> Default for EventQueue<T> {
    fn default() -> Self {
        Self {
            now: 0,
            current: Vec::new(),
            next: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: (0..LEVELS * SLOTS).map(|_| Vec::new()).collect(),
            spare: Vec::new(),
            len: 0,
        }
    }
}

impl<T: Copy> EventQueue<T> {
    /// An empty queue at time zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many events are pending.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing is pending.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an event in. A time before the last one taken out counts as that time.
    #[inline]
    pub fn push(&mut self, at: Instant, event: T) {
        self.len += 1;
        self.place(at.as_nanos().max(self.now), event);
    }

    #[inline]
    fn place(&mut self, at: u64, event: T) {
        let differs = at ^ self.now;
        if differs == 0 {
            self.current.push(event);
            return;
        }
        let level = ((63 - differs.leading_zeros()) / DIGIT_BITS) as usize;
        let digit = (at >> (level as u32 * DIGIT_BITS)) as usize & (SLOTS - 1);
        self.levels |= 1 << level;
        self.occupied[level] |= 1 << digit;
        self.slots[level * SLOTS + digit].push((at, event));
    }

    /// Takes out the earliest event if it is not after `until`.
    #[inline]
    pub fn pop_until(&mut self, until: Instant) -> Option<(Instant, T)> {
        while self.next == self.current.len() {
            if !self.advance(until.as_nanos()) {
                return None;
            }
        }
        if self.now > until.as_nanos() {
            return None;
        }
        let event = self.current[self.next];
        self.next += 1;
        self.len -= 1;
        Some((Instant::from_nanos(self.now), event))
    }

    /// Moves the present to the earliest pending time, or towards it by one digit; false if nothing is
    /// pending up to `until`.
    fn advance(&mut self, until: u64) -> bool {
        self.current.clear();
        self.next = 0;
        if self.levels == 0 {
            return false;
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros() as usize;
        let shift = level as u32 * DIGIT_BITS;
        // The bucket's earliest possible time: the present's higher digits, this digit, zeros below.
        let above = shift + DIGIT_BITS;
        let high = if above >= 64 { 0 } else { self.now >> above << above };
        let start = high | (digit as u64) << shift;
        if start > until {
            return false;
        }
        self.occupied[level] &= !(1 << digit);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        let mut bucket =
            std::mem::replace(&mut self.slots[level * SLOTS + digit], std::mem::take(&mut self.spare));
        // Without a smaller digit to sort by, all entries share one time; otherwise the earliest of them
        // becomes the present, which saves the levels between.
        let earliest = bucket.iter().map(|(at, _)| *at).min().unwrap_or(start);
        self.now = if earliest <= until { earliest } else { start };
        for (at, event) in bucket.drain(..) {
            self.place(at, event);
        }
        self.spare = bucket;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn t(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn ties_come_out_in_the_order_they_went_in() {
        let mut q = EventQueue::new();
        q.push(t(1 << 40), 0);
        q.push(t(7), 1);
        assert_eq!(q.pop_until(t(u64::MAX)), Some((t(7), 1)));
        q.push(t(1 << 40), 2);
        q.push(t(7), 3);
        q.push(t(8), 4);
        let rest: Vec<_> = std::iter::from_fn(|| q.pop_until(t(u64::MAX))).map(|(_, e)| e).collect();
        assert_eq!(rest, [3, 4, 0, 2]);
        assert!(q.is_empty());
    }

    #[test]
    fn nothing_beyond_the_limit_comes_out_and_earlier_pushes_still_fit() {
        let mut q = EventQueue::new();
        q.push(t(1_000_000), 1);
        assert_eq!(q.pop_until(t(999_999)), None);
        q.push(t(999_999), 2);
        assert_eq!(q.pop_until(t(999_999)), Some((t(999_999), 2)));
        assert_eq!(q.pop_until(t(u64::MAX)), Some((t(1_000_000), 1)));
    }

    proptest! {
        /// Against the obvious model: a stable sort.
        #[test]
        fn it_is_a_stable_priority_queue(steps in proptest::collection::vec((0u64..1 << 34, 0usize..4, 0u32..64), 1..400)) {
            let mut q = EventQueue::new();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let mut now = 0;
            let mut id = 0;
            for (ahead, pops, shift) in steps {
                let at = now + (ahead >> (shift % 34));
                q.push(t(at), id);
                model.push((at, id));
                id += 1;
                for _ in 0..pops {
                    let i = (0..model.len()).min_by_key(|&i| (model[i].0, i));
                    let expected = i.map(|i| model.remove(i));
                    let got = q.pop_until(t(u64::MAX));
                    prop_assert_eq!(got, expected.map(|(at, e)| (t(at), e)));
                    now = got.map_or(now, |(at, _)| at.as_nanos());
                }
                prop_assert_eq!(q.len(), model.len());
            }
        }
    }
}
