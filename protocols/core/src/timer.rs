//! Timers for machines: a queue of many deadlines of one kind, and a small table, indexed by an enum, for the timers of
//! one connection.

use crate::time::Instant;
use alloc::collections::BTreeSet;

/// Returns the earliest deadline, if any is set.
#[must_use]
pub fn earliest_deadline<const N: usize>(times: [Option<Instant>; N]) -> Option<Instant> {
    // This runs after each step of a machine. An iterator over the array by value would cost several times as much.
    let mut first = None;
    for at in &times {
        if at.is_some() && (first.is_none() || *at < first) {
            first = *at;
        }
    }
    first
}

/// A queue of deadlines of many sessions, each under a key. Reading, arming and cancelling take O(log n).
///
/// The owner of a deadline keeps its time, since cancelling needs time and key. Equal deadlines expire in key order.
#[derive(Clone, Debug)]
pub struct TimerQueue<K: Ord + Copy> {
    set: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Copy> Default for TimerQueue<K> {
    fn default() -> Self {
        Self { set: BTreeSet::new() }
    }
}

impl<K: Ord + Copy> TimerQueue<K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }
    /// Arms a deadline.
    pub fn insert(&mut self, at: Instant, key: K) {
        self.set.insert((at, key));
    }
    /// Cancels a deadline. Returns false if it was not armed.
    pub fn remove(&mut self, at: Instant, key: K) -> bool {
        self.set.remove(&(at, key))
    }
    /// Returns the earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }
    /// Removes and returns the earliest deadline if it is due.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, K)> {
        if self.next_deadline()? > now {
            return None;
        }
        self.set.pop_first()
    }
    /// Returns the number of armed deadlines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set.len()
    }
    /// True if no deadline is armed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

/// A table with one optional deadline per variant of a small enum (`T as usize` is the index).
#[derive(Clone, Copy, Debug)]
pub struct TimerTable<const N: usize> {
    deadlines: [Option<Instant>; N],
}

impl<const N: usize> Default for TimerTable<N> {
    fn default() -> Self {
        Self { deadlines: [None; N] }
    }
}

impl<const N: usize> TimerTable<N> {
    /// Arms timer `i`, replacing its deadline.
    pub fn set(&mut self, i: usize, at: Instant) {
        self.deadlines[i] = Some(at);
    }
    /// Stops timer `i`.
    pub fn stop(&mut self, i: usize) {
        self.deadlines[i] = None;
    }
    /// Returns the deadline of timer `i`.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<Instant> {
        self.deadlines[i]
    }
    /// Returns the earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        earliest_deadline(self.deadlines)
    }
    /// Stops the earliest timer that is due and returns its index. The lower index wins a tie.
    pub fn pop_due(&mut self, now: Instant) -> Option<usize> {
        let (i, at) =
            (0..N).filter_map(|i| self.deadlines[i].map(|at| (i, at))).min_by_key(|&(i, at)| (at, i))?;
        if at > now {
            return None;
        }
        self.deadlines[i] = None;
        Some(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_nanos(n: u64) -> Instant {
        Instant::from_nanos(n)
    }

    #[test]
    fn the_earliest_is_found_wherever_it_stands() {
        assert_eq!((earliest_deadline([]), earliest_deadline([None, None])), (None, None));
        for times in [
            [None, Some(at_nanos(3)), Some(at_nanos(5))],
            [Some(at_nanos(5)), None, Some(at_nanos(3))],
            [Some(at_nanos(3)), Some(at_nanos(3)), None],
        ] {
            assert_eq!(earliest_deadline(times), Some(at_nanos(3)));
        }
    }

    #[test]
    fn queue_gives_due_timers_in_order() {
        let mut q = TimerQueue::new();
        q.insert(at_nanos(5), 1u32);
        q.insert(at_nanos(3), 2);
        q.insert(at_nanos(5), 0);
        assert_eq!(q.next_deadline(), Some(at_nanos(3)));
        assert!(q.remove(at_nanos(3), 2) && !q.remove(at_nanos(3), 2));
        assert_eq!(q.pop_due(at_nanos(4)), None);
        assert_eq!(q.pop_due(at_nanos(9)), Some((at_nanos(5), 0)));
        assert_eq!(q.pop_due(at_nanos(9)), Some((at_nanos(5), 1)));
        assert!(q.is_empty());
    }

    #[test]
    fn table_gives_the_earliest_first() {
        let mut table = TimerTable::<3>::default();
        table.set(2, at_nanos(1));
        table.set(0, at_nanos(7));
        table.set(1, at_nanos(7));
        table.set(1, at_nanos(2));
        assert_eq!(table.next_deadline(), Some(at_nanos(1)));
        assert_eq!(table.pop_due(at_nanos(9)), Some(2));
        assert_eq!(table.pop_due(at_nanos(9)), Some(1));
        assert_eq!(table.pop_due(at_nanos(6)), None);
        assert_eq!(table.pop_due(at_nanos(7)), Some(0));
    }
}
