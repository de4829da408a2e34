//! A table of sessions. Each has a token that is never reused, and all are in order of age.
//!
//! Every operation is O(1). A token holds its slot and the generation of the slot. A list through the slots keeps the
//! order of last use. If all entries have the same idle timeout, the oldest entry expires next, so no timer queue is
//! needed. If space is short, the oldest entry is evicted.

use crate::time::Instant;
use alloc::vec::Vec;

/// Generations have 30 bits. The holder may use the two highest bits of a token to mark its kind.
const GENERATIONS: u32 = (1 << 30) - 1;
const NONE: u32 = u32::MAX;

/// The slots of a [`SessionTable`]; see the [module](self).
#[derive(Clone, Debug)]
pub struct SessionTable<T> {
    slots: Vec<SessionTableSlot<T>>,
    free: u32,
    oldest: u32,
    newest: u32,
    len: u32,
}

#[derive(Clone, Debug)]
struct SessionTableSlot<T> {
    generation: u32,
    /// The next older entry.
    older: u32,
    /// The next newer entry; in an empty slot the next empty slot.
    newer: u32,
    touched: Instant,
    value: Option<T>,
}

impl<T> Default for SessionTable<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, oldest: NONE, newest: NONE, len: 0 }
    }
}

impl<T> SessionTable<T> {
    /// An empty table; it allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }
    /// True if the table has no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds an entry as the newest and returns its token. The upper half of the token counts the uses of the slot.
    pub fn insert(&mut self, now: Instant, value: T) -> u64 {
        let index = if self.free == NONE {
            let empty =
                SessionTableSlot { generation: 0, older: NONE, newer: NONE, touched: now, value: None };
            self.slots.push(empty);
            self.slots.len() as u32 - 1
        } else {
            self.free
        };
        let slot = &mut self.slots[index as usize];
        if index == self.free {
            self.free = slot.newer;
        }
        slot.value = Some(value);
        self.len += 1;
        self.link_as_newest(index, now);
        self.token_at(index)
    }
    /// Returns the entry of a token.
    #[must_use]
    pub fn get(&self, token: u64) -> Option<&T> {
        let slot = self.slots.get(token as u32 as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == (token >> 32) as u32)
    }
    /// Returns the entry of a token.
    #[must_use]
    pub fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        if slot.generation == (token >> 32) as u32 { slot.value.as_mut() } else { None }
    }
    /// Makes an entry the newest. Returns false if the token has no entry.
    pub fn touch(&mut self, now: Instant, token: u64) -> bool {
        if self.get(token).is_none() {
            return false;
        }
        let index = token as u32;
        self.unlink_slot(index);
        self.link_as_newest(index, now);
        true
    }
    /// Removes an entry, which makes its token invalid.
    pub fn remove(&mut self, token: u64) -> Option<T> {
        self.get(token)?;
        let index = token as u32;
        self.unlink_slot(index);
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1) & GENERATIONS;
        slot.newer = self.free;
        self.free = index;
        self.len -= 1;
        slot.value.take()
    }
    /// Returns the least recently used entry and the time of its last use.
    #[must_use]
    pub fn oldest_entry(&self) -> Option<(u64, Instant)> {
        let slot = self.slots.get(self.oldest as usize)?;
        Some((self.token_at(self.oldest), slot.touched))
    }

    fn token_at(&self, index: u32) -> u64 {
        u64::from(self.slots[index as usize].generation) << 32 | u64::from(index)
    }
    fn link_as_newest(&mut self, index: u32, now: Instant) {
        let newest = self.newest;
        let slot = &mut self.slots[index as usize];
        (slot.touched, slot.older, slot.newer) = (now, newest, NONE);
        match self.slots.get_mut(newest as usize) {
            Some(before) => before.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }
    fn unlink_slot(&mut self, index: u32) {
        let (older, newer) = (self.slots[index as usize].older, self.slots[index as usize].newer);
        match self.slots.get_mut(older as usize) {
            Some(slot) => slot.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(slot) => slot.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_highest_bits_of_a_token_stay_free() {
        let mut table = SessionTable::new();
        let first = table.insert(Instant::ZERO, 'a');
        table.slots[0].generation = GENERATIONS;
        let last = u64::from(GENERATIONS) << 32 | first;
        assert_eq!((table.remove(last), last >> 62), (Some('a'), 0));
        assert_eq!(table.insert(Instant::ZERO, 'b'), first, "it begins anew");
    }

    #[test]
    fn a_token_outlives_its_entry_in_vain() {
        let mut table = SessionTable::new();
        let a = table.insert(Instant::ZERO, 'a');
        assert_eq!(table.remove(a), Some('a'));
        let b = table.insert(Instant::ZERO, 'b');
        assert_eq!((a as u32, table.get(a), table.get(b)), (b as u32, None, Some(&'b')));
        assert_eq!(table.get_mut(a), None);
        assert_eq!(table.remove(a), None);
        assert!(!table.touch(Instant::ZERO, a));
        assert_eq!(table.len(), 1);
    }

    proptest! {
        #[test]
        fn it_does_what_a_list_would(steps in proptest::collection::vec((0u8..4, 0usize..8), 0..200)) {
            let mut table = SessionTable::new();
            let mut list: Vec<(u64, Instant, usize)> = Vec::new();
            for (n, (what, which)) in steps.into_iter().enumerate() {
                let now = Instant::from_nanos(n as u64);
                let which = which.min(list.len().saturating_sub(1));
                match what {
                    0 | 1 => list.push((table.insert(now, n), now, n)),
                    2 if !list.is_empty() => {
                        let (token, _, value) = list.remove(which);
                        prop_assert!(table.touch(now, token));
                        list.push((token, now, value));
                    }
                    3 if !list.is_empty() => {
                        let (token, _, value) = list.remove(which);
                        prop_assert_eq!(table.remove(token), Some(value));
                    }
                    _ => {}
                }
                prop_assert_eq!(table.oldest_entry(), list.first().map(|&(token, at, _)| (token, at)));
                prop_assert_eq!(table.len(), list.len());
                prop_assert_eq!(table.is_empty(), list.is_empty());
                for &(token, _, value) in &list {
                    prop_assert_eq!(table.get(token), Some(&value));
                }
            }
        }
    }
}
