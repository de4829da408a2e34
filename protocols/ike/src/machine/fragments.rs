//! Reassembly of fragmented messages (RFC 7383 §2.6), and limits on its memory. Fragments are decrypted before they
//! come here. In a half-open IKE_SA that proves an address, not an identity.

use crate::code::PayloadType;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::collections::{HashMap, SeededHashState};

/// Most fragments of a message. 32 KiB would take 60 of the smallest packets that every IPv4 link carries.
const MOST: u16 = 256;
/// Octets that a fragment takes besides its content: the list entry and the allocation.
const FRAGMENT_OVERHEAD: usize = 96;

/// The fragments of the next expected message.
#[derive(Debug, Default)]
pub(super) struct FragmentReassembly {
    /// True for a response, and the message ID.
    message_key: (bool, u32),
    total: u16,
    octets: usize,
    first: Option<PayloadType>,
    parts: BTreeMap<u16, Vec<u8>>,
}

/// A rejected fragment: a duplicate, over the limit, or of another division of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FragmentRejected;

impl FragmentReassembly {
    /// Adds a fragment. Returns the whole message after the last missing one.
    pub(super) fn add_fragment(
        &mut self,
        of: (bool, u32),
        (number, total): (u16, u16),
        first: PayloadType,
        part: Vec<u8>,
        most: usize,
    ) -> Result<Option<(PayloadType, Vec<u8>)>, FragmentRejected> {
        if total > MOST {
            return Err(FragmentRejected);
        }
        // A higher total means that the sender began again with smaller fragments; a lower one is outdated (§2.6.1).
        if self.message_key != of || total > self.total {
            *self = Self { message_key: of, total, ..Self::default() };
        }
        // The capacity is counted: a fragment that was mostly padding still occupies the memory of all its octets.
        let held = part.capacity();
        // RFC 7383, 2.6: duplicates and fragments of a smaller total are dropped.
        if total < self.total
            || self.parts.contains_key(&number)
            || part.is_empty()
            || self.octets + held > most
        {
            return Err(FragmentRejected);
        }
        if number == 1 {
            self.first = Some(first);
        }
        self.octets += held;
        self.parts.insert(number, part);
        if self.parts.len() < usize::from(self.total) {
            return Ok(None);
        }
        let whole = core::mem::take(self);
        let mut content = Vec::with_capacity(whole.octets);
        whole.parts.into_values().for_each(|part| content.extend_from_slice(&part));
        Ok(Some((whole.first.unwrap_or(PayloadType::NONE), content)))
    }
    /// Octets of memory that the fragments take.
    pub(super) fn memory_octets(&self) -> usize {
        self.octets + self.parts.len() * FRAGMENT_OVERHEAD
    }
    /// Number of fragments received.
    pub(super) fn fragment_count(&self) -> u64 {
        self.parts.len() as u64
    }
}

/// The fragment memory of one IKE_SA.
#[derive(Clone, Copy, Debug)]
struct FragmentMemoryUsage {
    /// Sequence number of its begin.
    since: u64,
    network: IpAddr,
    octets: usize,
}

/// The fragment memory of all IKE_SAs, by age. A message whose fragments all arrive is complete within moments, so
/// old fragments are of stalled peers.
#[derive(Debug)]
pub(super) struct FragmentMemoryTable {
    /// Most octets of all, and of one network.
    most: (usize, usize),
    octets: usize,
    next: u64,
    holdings: HashMap<u64, FragmentMemoryUsage>,
    by_age: BTreeMap<u64, u64>,
    networks: HashMap<IpAddr, (usize, BTreeSet<u64>)>,
}

impl FragmentMemoryTable {
    pub(super) fn new(most: usize, of_network: usize, hash: &SeededHashState) -> Self {
        Self {
            most: (most, of_network),
            octets: 0,
            next: 0,
            holdings: HashMap::with_hasher(hash.clone()),
            by_age: BTreeMap::new(),
            networks: HashMap::with_hasher(hash.clone()),
        }
    }

    /// Sets the octets of an IKE_SA. Returns the IKE_SA whose fragments to drop if the total or the network is over
    /// its limit.
    pub(super) fn record_usage(&mut self, token: u64, network: IpAddr, octets: usize) -> Option<u64> {
        let before = self.holdings.get(&token).copied();
        self.remove_usage(token);
        if octets == 0 {
            return None;
        }
        let since = before.map_or(self.next, |before| before.since);
        self.next += u64::from(before.is_none());
        self.octets += octets;
        self.holdings.insert(token, FragmentMemoryUsage { since, network, octets });
        self.by_age.insert(since, token);
        let (of_network, ages) = self.networks.entry(network).or_default();
        *of_network += octets;
        ages.insert(since);
        let oldest = if *of_network > self.most.1 {
            ages.first().copied()
        } else if self.octets > self.most.0 {
            self.by_age.keys().next().copied()
        } else {
            None
        };
        oldest.and_then(|since| self.by_age.get(&since).copied())
    }

    /// Removes the usage of an IKE_SA.
    pub(super) fn remove_usage(&mut self, token: u64) {
        let Some(FragmentMemoryUsage { since, network, octets }) = self.holdings.remove(&token) else {
            return;
        };
        self.octets -= octets;
        self.by_age.remove(&since);
        if let Some((of_network, ages)) = self.networks.get_mut(&network) {
            *of_network -= octets;
            ages.remove(&since);
            if ages.is_empty() {
                self.networks.remove(&network);
            }
        }
    }

    /// Sets the limit of all.
    #[cfg(test)]
    pub(super) const fn set_limit(&mut self, most: usize) {
        self.most.0 = most;
    }
    /// Octets of all, and the numbers of IKE_SAs and networks.
    #[cfg(test)]
    pub(super) fn fragment_usage_totals(&self) -> (usize, usize, usize) {
        assert_eq!(self.holdings.len(), self.by_age.len());
        (self.octets, self.holdings.len(), self.networks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: (bool, u32) = (false, 1);

    fn add_test_fragment(
        all: &mut FragmentReassembly,
        of: (u16, u16),
        part: &[u8],
    ) -> Result<Option<Vec<u8>>, FragmentRejected> {
        let whole = all.add_fragment(OF, of, PayloadType(of.0 as u8), part.to_vec(), 8)?;
        Ok(whole.map(|(first, content)| {
            assert_eq!(first, PayloadType(1), "the first fragment says what comes first");
            content
        }))
    }

    #[test]
    fn fragments_may_come_in_any_order_and_again() {
        let mut all = FragmentReassembly::default();
        assert_eq!(add_test_fragment(&mut all, (3, 3), b"ef"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (1, 3), b"ab"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (1, 3), b"xx"), Err(FragmentRejected));
        assert_eq!(add_test_fragment(&mut all, (2, 3), b"cd"), Ok(Some(b"abcdef".to_vec())));
    }

    #[test]
    fn a_message_that_is_sent_in_more_fragments_begins_anew() {
        let mut all = FragmentReassembly::default();
        assert_eq!(add_test_fragment(&mut all, (1, 2), b"abc"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (1, 3), b"ab"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (2, 2), b"def"), Err(FragmentRejected), "of before");
        assert_eq!(add_test_fragment(&mut all, (2, 3), b"cd"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (3, 3), b"ef"), Ok(Some(b"abcdef".to_vec())));
    }

    #[test]
    fn fragments_take_bounded_memory_and_foreign_ones_none() {
        let mut all = FragmentReassembly::default();
        assert_eq!(add_test_fragment(&mut all, (1, 3), b"12345"), Ok(None));
        assert_eq!(add_test_fragment(&mut all, (2, 3), b"6789"), Err(FragmentRejected));
        assert_eq!(all.add_fragment((true, 1), (2, 2), PayloadType(0), vec![1], 8), Ok(None));
        assert_eq!((all.octets, all.parts.len()), (1, 1));
        assert_eq!(all.memory_octets(), 1 + FRAGMENT_OVERHEAD, "an octet takes more than an octet");
        assert_eq!(
            all.add_fragment((true, 1), (3, MOST + 1), PayloadType(0), vec![1], 8),
            Err(FragmentRejected)
        );
        assert_eq!((all.octets, all.parts.len()), (1, 1), "too many fragments take nothing away");
        assert_eq!(all.add_fragment((true, 1), (3, MOST), PayloadType(0), vec![1], 8), Ok(None));
    }

    fn usage_table(most: usize, of_network: usize) -> FragmentMemoryTable {
        let hash = usher_core::collections::hash_state(&mut usher_core::SecureRng::from_seed([3; 32]));
        FragmentMemoryTable::new(most, of_network, &hash)
    }
    fn network_address(n: u8) -> IpAddr {
        [203, 0, n, 0].into()
    }

    #[test]
    fn the_oldest_is_dropped_when_all_take_too_much() {
        let mut all = usage_table(100, 100);
        assert_eq!(all.record_usage(1, network_address(1), 40), None);
        assert_eq!(all.record_usage(2, network_address(2), 40), None);
        // The age counts from the first fragment, not from the last growth.
        assert_eq!(all.record_usage(1, network_address(1), 60), None);
        assert_eq!(all.record_usage(3, network_address(3), 1), Some(1));
        all.remove_usage(1);
        assert_eq!(all.fragment_usage_totals(), (41, 2, 2));
        assert_eq!(all.record_usage(3, network_address(3), 60), None);
        assert_eq!(all.record_usage(1, network_address(1), 1), Some(2), "who comes again is the newest");
        all.remove_usage(2);
        assert_eq!(
            (all.record_usage(1, network_address(1), 0), all.record_usage(3, network_address(3), 0)),
            (None, None)
        );
        assert_eq!(all.fragment_usage_totals(), (0, 0, 0));
    }

    #[test]
    fn a_network_that_takes_too_much_loses_its_own() {
        let mut all = usage_table(100, 50);
        assert_eq!(all.record_usage(9, network_address(2), 20), None);
        assert_eq!(all.record_usage(1, network_address(1), 30), None);
        assert_eq!(all.record_usage(2, network_address(1), 20), None);
        assert_eq!(
            all.record_usage(3, network_address(1), 1),
            Some(1),
            "not the other network's, which is older"
        );
        all.remove_usage(1);
        assert_eq!(all.record_usage(3, network_address(1), 31), Some(2));
        all.remove_usage(2);
        assert_eq!(all.record_usage(3, network_address(1), 51), Some(3), "there is no other of its network");
        all.remove_usage(3);
        assert_eq!(all.fragment_usage_totals(), (20, 1, 1));
    }
}
