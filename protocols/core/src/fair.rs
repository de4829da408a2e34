//! A queue that serves its users in turn: a heavy user delays itself and not the others.

use crate::address::host_of;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::cmp::Reverse;
use core::net::IpAddr;

/// A queue with one sub-queue per key, served round robin.
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
    /// The keys with entries; the front is served next.
    turns: VecDeque<K>,
    /// The same keys by their number of entries.
    by_count: BTreeSet<(usize, K)>,
    len: usize,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self { by_key: BTreeMap::new(), turns: VecDeque::new(), by_count: BTreeSet::new(), len: 0 }
    }
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// An empty queue. It allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns the number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }
    /// True if the queue has no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Adds an entry. If the queue then exceeds `most` entries, evicts and returns the newest entry of the key with the
    /// most. That is the new entry, unless another key has more entries.
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
    /// Removes and returns the oldest entry of the next key.
    pub fn pop(&mut self) -> Option<(K, T)> {
        let key = self.turns.front()?.clone();
        let entry = self.take_entry(&key, VecDeque::pop_front)?;
        if self.by_key.contains_key(&key) {
            self.turns.rotate_left(1);
        }
        Some((key, entry))
    }

    /// Removes an entry of a key, and the key itself once it has no entries.
    fn take_entry(&mut self, key: &K, which: impl FnOnce(&mut VecDeque<T>) -> Option<T>) -> Option<T> {
        let entries = self.by_key.get_mut(key)?;
        let before = entries.len();
        let entry = which(entries)?;
        self.len -= 1;
        self.update_count(key, before, before - 1);
        if before == 1 {
            self.by_key.remove(key);
            // A key that was just served or just added is usually at one of the ends, so these are checked before the
            // full scan.
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

/// A bounded number of slots for unauthenticated peers, shared among their networks ([`host_of`]).
///
/// ```
/// # use usher_core::fair::UnauthenticatedPeerTable;
/// let mut slots = UnauthenticatedPeerTable::default();
/// let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
/// assert_eq!([slots.add_peer(1, a, 2), slots.add_peer(2, a, 2)], [None; 2]);
/// assert_eq!(slots.add_peer(3, b, 2), Some(1), "the network with the most gives up its oldest");
/// ```
#[derive(Clone, Debug)]
pub struct UnauthenticatedPeerTable<K> {
    /// The peers of each network by order of arrival, the oldest first.
    networks: BTreeMap<IpAddr, BTreeMap<u64, K>>,
    /// The networks by number of slots, and among equals by the age of their oldest peer.
    shares: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    peers: BTreeMap<K, (IpAddr, u64)>,
    arrival_count: u64,
}

impl<K> Default for UnauthenticatedPeerTable<K> {
    fn default() -> Self {
        Self { networks: BTreeMap::new(), shares: BTreeSet::new(), peers: BTreeMap::new(), arrival_count: 0 }
    }
}

impl<K: Ord + Copy> UnauthenticatedPeerTable<K> {
    /// Adds a peer from an address. If the table then exceeds `most`, evicts and returns a peer: the oldest of the
    /// network with the most slots. An honest peer needs its slot only for a short time.
    pub fn add_peer(&mut self, peer: K, from: IpAddr, most: usize) -> Option<K> {
        self.remove_peer(peer);
        self.arrival_count += 1;
        let (network, came) = (host_of(from), self.arrival_count);
        self.update_network_rank(network, |own| {
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
    /// Frees the slot of a peer that has authenticated or left.
    pub fn remove_peer(&mut self, peer: K) {
        if let Some((network, came)) = self.peers.remove(&peer) {
            self.update_network_rank(network, |own| {
                own.remove(&came);
            });
        }
    }
    /// True if all slots are free.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty() && self.networks.is_empty() && self.shares.is_empty()
    }
    fn update_network_rank(&mut self, network: IpAddr, change: impl FnOnce(&mut BTreeMap<u64, K>)) {
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
        // No key has more entries than the newcomer's: the new entry is evicted.
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
                    // Since the last newcomer, each waiting key is served before any key is served again.
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
        let mut all = UnauthenticatedPeerTable::default();
        let mut add = |n: u32, from: &str| all.add_peer(n, from.parse().unwrap(), 4);
        assert_eq!([0, 1, 2].map(|n| add(n, "192.0.2.1")), [None; 3]);
        assert_eq!((add(3, "192.0.2.2"), add(4, "192.0.2.2")), (None, Some(0)));
        // Both networks have the same number: the oldest peer of both is evicted.
        assert_eq!((add(5, "192.0.2.3"), add(6, "192.0.2.4")), (Some(1), Some(3)));
        // One slot each: the oldest of all is evicted, so that each peer keeps its slot for a while during a flood.
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
