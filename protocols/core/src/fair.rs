//! A queue that serves those who use it in turn: who puts much into it waits for itself, and not others for it.

use crate::address::host_of;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::cmp::Reverse;
use core::net::IpAddr;

/// Entries by key: each key's in their order, the keys in turn (round robin).
///
/// ```
/// # use usher_core::fair::FairQueue;
/// let mut queue = FairQueue::new();
/// for (who, what) in [("a", 1), ("a", 2), ("a", 3), ("b", 4)] {
///     assert_eq!(queue.push(who, what, 10), None);
/// }
/// let order: Vec<i32> = core::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
/// assert_eq!(order, [1, 4, 2, 3]);
/// ```
#[derive(Clone, Debug)]
pub struct FairQueue<K, T> {
    by_key: BTreeMap<K, VecDeque<T>>,
    /// Keys that have entries, the next to be served first.
    turns: VecDeque<K>,
    /// The same keys by how many entries they have.
    by_count: BTreeSet<(usize, K)>,
    len: usize,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), turns: VecDeque::new(), by_count: BTreeSet::new(), len: 0 }
    }
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// An empty queue; it allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// How many entries wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }
    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Puts an entry in. Where there would be more than `most`, one is given back: the newest of the key that has the
    /// most, which is this one unless another key has more than this one has now.
    #[must_use]
    pub fn push(&mut self, key: K, entry: T, most: usize) -> Option<(K, T)> {
        let entries = self.by_key.entry(key.clone()).or_default();
        entries.push_back(entry);
        let count = entries.len();
        self.len += 1;
        if count == 1 {
            self.turns.push_back(key.clone());
        }
        self.update_count(&key, count - 1, count);
        if self.len <= most {
            return None;
        }
        let longest = match self.by_count.last() {
            Some((longest, other)) if *longest > count => other.clone(),
            _ => key,
        };
        self.take_entry(&longest, VecDeque::pop_back).map(|entry| (longest, entry))
    }
    /// The oldest entry of the key whose turn it is.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let key = self.turns.front()?.clone();
        let entry = self.take_entry(&key, VecDeque::pop_front)?;
        if self.by_key.contains_key(&key) {
            self.turns.rotate_left(1);
        }
        Some((key, entry))
    }

    /// Takes an entry of a key out; a key without entries leaves.
    fn take_entry(&mut self, key: &K, which: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let entries = self.by_key.get_mut(key)?;
        let before = entries.len();
        let entry = which(entries)?;
        self.len -= 1;
        self.update_count(key, before, before - 1);
        if before == 1 {
            self.by_key.remove(key);
            // Served or just come: mostly it is one of the ends.
            if self.turns.front() == Some(key) {
                self.turns.pop_front();
            } else if self.turns.back() == Some(key) {
                self.turns.pop_back();
            } else {
                self.turns.retain(|k| k != key);
            }
        }
        Some(entry)
    }
    fn update_count(&mut self, key: &K, before: usize, after: usize) {
        if before > 0 {
            self.by_count.remove(&(before, key.clone()));
        }
        if after > 0 {
            self.by_count.insert((after, key.clone()));
        }
    }
}

/// A bounded number of places for peers that have proved nothing yet, shared by their networks ([`host_of`]).
///
/// ```
/// # use usher_core::fair::PlaceTable;
/// let mut places = PlaceTable::default();
/// let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
/// assert_eq!([places.add(1, a, 2), places.add(2, a, 2)], [None; 2]);
/// assert_eq!(places.add(3, b, 2), Some(1), "the network with the most gives up its oldest");
/// ```
#[derive(Clone, Debug)]
pub struct FairSlotTable<K> {
    /// Each network's peers, the oldest first: each has the number of its coming.
    networks: BTreeMap<IpAddr, BTreeMap<u64, K>>,
    /// The networks by how many places they have, and among equals by the age of their oldest peer.
    shares: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    peers: BTreeMap<K, (IpAddr, u64)>,
    arrival_count: u64,
}

impl<K> Default for FairSlotTable<K> {
    fn default() -> Self {
        Self { networks: BTreeMap::new(), shares: BTreeSet::new(), peers: BTreeMap::new(), arrival_count: 0 }
    }
}

impl<K: Ord + Copy> FairSlotTable<K> {
    /// Adds a peer from an address. Where that makes more than `most`, gives the peer that loses its place: the oldest of the
    /// network with the most. An honest peer needs its place for a short time only.
    pub fn add_peer(&mut self, peer: K, from: IpAddr, most: usize) -> Option<K> {
        self.remove_peer(peer);
        self.arrival_count += 1;
        let (network, came) = (host_of(from), self.arrival_count);
        self.update_network(network, |own| {
            own.insert(came, peer);
        });
        self.peers.insert(peer, (network, came));
        if self.peers.len() <= most {
            return None;
        }
        let (_, Reverse(oldest), network) = *self.shares.last()?;
        let displaced = *self.networks.get(&network)?.get(&oldest)?;
        self.remove_peer(displaced);
        Some(displaced)
    }
    /// Frees a peer's place: it has proved itself, or it is gone.
    pub fn remove_peer(&mut self, peer: K) {
        if let Some((network, came)) = self.peers.remove(&peer) {
            self.update_network(network, |own| {
                own.remove(&came);
            });
        }
    }
    /// Whether all places are free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.networks.is_empty() && self.shares.is_empty()
    }
    fn update_network(&mut self, network: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, K>)) {
        let share = |own: &BTreeMap<u64, K>| {
            own.first_key_value().map(|(oldest, _)| (own.len(), Reverse(*oldest), network))
        };
        let own = self.networks.entry(network).or_default();
        let before = share(own);
        change(own);
        let after = share(own);
        if after.is_none() {
            self.networks.remove(&network);
        }
        if let Some(before) = before {
            self.shares.remove(&before);
        }
        self.shares.extend(after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn where_there_is_no_room_the_longest_loses_its_newest() {
        let mut queue = FairQueue::new();
        for n in 0..3 {
            assert_eq!(queue.push('a', n, 4), None);
        }
        assert_eq!(queue.push('b', 10, 4), None);
        assert_eq!(queue.push('b', 11, 4), Some(('a', 2)));
        // Nobody has more than who comes: the newcomer goes.
        assert_eq!(queue.push('b', 12, 4), Some(('b', 12)));
        assert_eq!(queue.push('c', 20, 4), Some(('b', 11)));
        assert_eq!(queue.push('d', 30, 4), Some(('a', 1)));
        assert_eq!(queue.push('e', 40, 4), Some(('e', 40)));
        let rest: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!((rest, queue.is_empty()), (vec![('a', 0), ('b', 10), ('c', 20), ('d', 30)], true));
    }

    proptest! {
        #[test]
        fn nobody_waits_for_more_than_one_entry_of_each_other(
            steps in proptest::collection::vec((0u8..4, any::<bool>()), 0..200),
        ) {
            let mut queue = FairQueue::new();
            let mut list: Vec<(u8, usize)> = Vec::new();
            let mut served: Vec<u8> = Vec::new();
            for (n, (key, push)) in steps.into_iter().enumerate() {
                if push {
                    let newcomer = !list.iter().any(|(k, _)| *k == key);
                    prop_assert_eq!(queue.push(key, n, usize::MAX), None);
                    list.push((key, n));
                    if newcomer {
                        served.clear();
                    }
                } else if let Some((key, entry)) = queue.pop() {
                    let first = list.iter().position(|(k, _)| *k == key).unwrap();
                    prop_assert_eq!(list.remove(first), (key, entry));
                    // Since the last newcomer nobody was served again before all who wait were.
                    let since = served.iter().rposition(|k| *k == key).map(|at| &served[at + 1..]);
                    if let Some(since) = since {
                        prop_assert!(list.iter().all(|(k, _)| *k == key || since.contains(k)));
                    }
                    served.push(key);
                } else {
                    prop_assert!(list.is_empty());
                }
                prop_assert_eq!(queue.len(), list.len());
            }
        }

        #[test]
        fn who_has_the_most_loses_its_newest(
            steps in proptest::collection::vec((0u8..4, 0u8..3), 0..200),
            most in 1usize..8,
        ) {
            let mut queue = FairQueue::new();
            let mut list: Vec<(u8, usize)> = Vec::new();
            for (n, (key, step)) in steps.into_iter().enumerate() {
                let gone = if step > 0 {
                    list.push((key, n));
                    let gone = queue.push(key, n, most);
                    prop_assert_eq!(gone.is_some(), list.len() > most);
                    let count = |key: u8| list.iter().filter(|(k, _)| *k == key).count();
                    if let Some((of, entry)) = gone {
                        let longest = (0..4).map(count).max().unwrap();
                        prop_assert_eq!(count(of), longest);
                        prop_assert!(of == key || longest > count(key));
                        prop_assert_eq!(list.iter().rfind(|(k, _)| *k == of), Some(&(of, entry)));
                    }
                    gone
                } else {
                    queue.pop()
                };
                list.retain(|entry| Some(*entry) != gone);
                prop_assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
            }
        }
    }

    #[test]
    fn the_network_with_the_most_places_gives_up_its_oldest() {
        let mut all = FairSlotTable::default();
        let mut add = |n: u32, from: &str| all.add_peer(n, from.parse().unwrap(), 4);
        assert_eq!([0, 1, 2].map(|n| add(n, "192.0.2.1")), [None; 3]);
        assert_eq!((add(3, "192.0.2.2"), add(4, "192.0.2.2")), (None, Some(0)));
        // As many of one as of the other: the oldest of both.
        assert_eq!((add(5, "192.0.2.3"), add(6, "192.0.2.4")), (Some(1), Some(3)));
        // One each: the oldest of all, so that a flood from everywhere leaves each peer a while.
        assert_eq!([7, 8, 9].map(|n| add(n, &alloc::format!("192.0.2.{n}"))), [Some(2), Some(4), Some(5)]);
        // A /64 of IPv6 is one network.
        let from = |n: u32| alloc::format!("2001:db8:1:2::{n}");
        assert_eq!([10, 11, 12, 13].map(|n| add(n, &from(n))), [Some(6), Some(10), Some(11), Some(12)]);
        for n in [7, 8, 9, 13] {
            all.remove_peer(n);
        }
        assert!(all.is_empty());
    }
}
