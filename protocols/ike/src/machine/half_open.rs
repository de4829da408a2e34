//! Table of half-open IKE_SAs, and the choice of one to evict when it is full (RFC 7296 §2.6, RFC 8019 §4.2).
//!
//! A full table that rejected newcomers would stay with the flooder that filled it. So networks share the table: a
//! network with fewer entries may evict one of the network with most. The cost of a request grows with the logarithm
//! of the table's size.

use super::pressure::{host_prefix, network_prefix, site_prefix};
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::{Duration, Instant};

/// The protection of an initiator from eviction after its first request. It bounds the answered key exchanges in this
/// time to the size of the table, whatever the number of sources.
const UNDISTURBED: Duration = Duration::from_secs(2);
/// The protection of an initiator that has continued: a person may have to type a password.
const UNDISTURBED_ON: Duration = Duration::from_secs(10);

/// The stage of a half-open IKE_SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HalfOpenStage {
    /// Nothing has come since the first request.
    Initial,
    /// The initiator has continued, and it is its turn.
    Continued,
    /// The initiator waits for this side: a job, an AAA server or an address.
    AwaitingResponder,
}

/// Limits of half-open IKE_SAs while there are many.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfOpenLimits {
    /// The limit of all hosts.
    pub(super) all: usize,
    /// The limit of one host.
    pub(super) host: usize,
}

/// A site may have as many as this number of hosts; a network an eighth of all.
const HOSTS_OF_SITE: usize = 8;
const NETWORKS: usize = 8;

/// The number of entries of an address, and the number of its newest entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct HalfOpenAddressCount {
    count: usize,
    last: Reverse<u64>,
}

/// Numbers of half-open IKE_SAs by address.
#[derive(Debug)]
struct HalfOpenCountTable(HashMap<IpAddr, HalfOpenAddressCount>);

impl HalfOpenCountTable {
    fn new(hash: &SeededHashState) -> Self {
        Self(HashMap::with_hasher(hash.clone()))
    }
    fn half_open_count_for(&self, whose: IpAddr) -> usize {
        self.0.get(&whose).map_or(0, |has| has.count)
    }
    /// Adds one with this number, or removes one. Returns the count before and after.
    fn add_or_remove_half_open(
        &mut self,
        whose: IpAddr,
        more: Option<u64>,
    ) -> (HalfOpenAddressCount, HalfOpenAddressCount) {
        let before = self.0.get(&whose).copied().unwrap_or_default();
        let after = match more {
            Some(number) => {
                HalfOpenAddressCount { count: before.count + 1, last: Reverse(number.max(before.last.0)) }
            }
            None => HalfOpenAddressCount { count: before.count.saturating_sub(1), ..before },
        };
        if after.count == 0 {
            self.0.remove(&whose);
        } else {
            self.0.insert(whose, after);
        }
        (before, after)
    }
}

/// The entries of one stage, ranked by their addresses.
#[derive(Debug)]
struct HalfOpenRanking {
    networks: HalfOpenCountTable,
    hosts: HalfOpenCountTable,
    /// Networks by number of entries. The last has most; among equals, the one whose newest entry is oldest.
    by_count: BTreeSet<(HalfOpenAddressCount, IpAddr)>,
    /// The same of the hosts of each network.
    hosts_by_count: BTreeSet<(IpAddr, HalfOpenAddressCount, IpAddr)>,
    /// Entry numbers by network, and by host, in the order of their begin.
    of_network: BTreeSet<(IpAddr, u64)>,
    of_host: BTreeSet<(IpAddr, u64)>,
}

impl HalfOpenRanking {
    fn new(hash: &SeededHashState) -> Self {
        Self {
            networks: HalfOpenCountTable::new(hash),
            hosts: HalfOpenCountTable::new(hash),
            by_count: BTreeSet::new(),
            hosts_by_count: BTreeSet::new(),
            of_network: BTreeSet::new(),
            of_host: BTreeSet::new(),
        }
    }

    fn adjust_counts(&mut self, from: IpAddr, more: Option<u64>) {
        let (network, host) = (network_prefix(from), host_prefix(from));
        let (before, after) = self.networks.add_or_remove_half_open(network, more);
        self.by_count.remove(&(before, network));
        let (host_before, host_after) = self.hosts.add_or_remove_half_open(host, more);
        self.hosts_by_count.remove(&(network, host_before, host));
        if after.count > 0 {
            self.by_count.insert((after, network));
        }
        if host_after.count > 0 {
            self.hosts_by_count.insert((network, host_after, host));
        }
    }
    fn insert(&mut self, from: IpAddr, number: u64) {
        self.of_network.insert((network_prefix(from), number));
        self.of_host.insert((host_prefix(from), number));
        self.adjust_counts(from, Some(number));
    }
    fn remove(&mut self, from: IpAddr, number: u64) {
        if self.of_host.remove(&(host_prefix(from), number)) {
            self.of_network.remove(&(network_prefix(from), number));
            self.adjust_counts(from, None);
        }
    }

    /// Returns two entries of the network that has most: the oldest of its host with most, and its oldest. `None` if
    /// the network has fewer than `least`.
    fn oldest_half_open_candidates(&self, least: usize) -> Option<[u64; 2]> {
        let &(most, of) = self.by_count.last()?;
        if most.count < least {
            return None;
        }
        let highest = HalfOpenAddressCount { count: usize::MAX, last: Reverse(0) };
        let up_to = (of, highest, IpAddr::V6(Ipv6Addr::from(u128::MAX)));
        let &(_, _, host) = self.hosts_by_count.range(..=up_to).next_back()?;
        let first =
            |all: &BTreeSet<(IpAddr, u64)>, of| all.range((of, 0)..).next().map(|(_, number)| *number);
        Some([first(&self.of_host, host)?, first(&self.of_network, of)?])
    }

    /// Returns the numbers of networks and hosts, and of IKE_SAs, and whether the indexes agree.
    #[cfg(test)]
    fn index_sizes(&self) -> (usize, usize, usize) {
        assert_eq!(self.by_count.len(), self.networks.0.len());
        assert_eq!(self.hosts_by_count.len(), self.hosts.0.len());
        assert_eq!(self.of_network.len(), self.networks.0.values().map(|has| has.count).sum::<usize>());
        assert_eq!(self.of_network.len(), self.of_host.len());
        (self.networks.0.len(), self.hosts.0.len(), self.of_host.len())
    }
}

/// A half-open IKE_SA.
#[derive(Clone, Copy, Debug)]
struct HalfOpenEntry {
    token: u64,
    since: Instant,
    stage: HalfOpenStage,
}

/// The half-open IKE_SAs, by network and host.
#[derive(Debug)]
pub(super) struct HalfOpen {
    networks: HalfOpenCountTable,
    sites: HalfOpenCountTable,
    hosts: HalfOpenCountTable,
    initial_ranking: HalfOpenRanking,
    go_on: HalfOpenRanking,
    /// Entries by number.
    each: BTreeMap<u64, HalfOpenEntry>,
    last: u64,
}

impl HalfOpen {
    pub(super) fn new(hash: &SeededHashState) -> Self {
        Self {
            networks: HalfOpenCountTable::new(hash),
            sites: HalfOpenCountTable::new(hash),
            hosts: HalfOpenCountTable::new(hash),
            initial_ranking: HalfOpenRanking::new(hash),
            go_on: HalfOpenRanking::new(hash),
            each: BTreeMap::new(),
            last: 0,
        }
    }

    /// Number of entries.
    pub(super) fn entry_count(&self) -> usize {
        self.each.len()
    }

    fn adjust_counts(&mut self, from: IpAddr, more: Option<u64>) {
        self.networks.add_or_remove_half_open(network_prefix(from), more);
        self.hosts.add_or_remove_half_open(host_prefix(from), more);
        if let Some(site) = site_prefix(from) {
            self.sites.add_or_remove_half_open(site, more);
        }
    }
    fn ranking_mut(&mut self, stage: HalfOpenStage) -> Option<&mut HalfOpenRanking> {
        match stage {
            HalfOpenStage::Initial => Some(&mut self.initial_ranking),
            HalfOpenStage::Continued => Some(&mut self.go_on),
            HalfOpenStage::AwaitingResponder => None,
        }
    }
    /// Adds an IKE_SA from this address and returns its number.
    pub(super) fn add_half_open(&mut self, now: Instant, from: IpAddr, token: u64) -> u64 {
        self.last += 1;
        self.adjust_counts(from, Some(self.last));
        self.initial_ranking.insert(from, self.last);
        self.each.insert(self.last, HalfOpenEntry { token, since: now, stage: HalfOpenStage::Initial });
        self.last
    }
    /// Sets the stage of an entry.
    pub(super) fn is_at(&mut self, from: IpAddr, number: u64, stage: HalfOpenStage) {
        let Some(entry) = self.each.get_mut(&number) else { return };
        let before = core::mem::replace(&mut entry.stage, stage);
        if before == stage {
            return;
        }
        if let Some(ranked) = self.ranking_mut(before) {
            ranked.remove(from, number);
        }
        if let Some(ranked) = self.ranking_mut(stage) {
            ranked.insert(from, number);
        }
    }
    /// Removes an entry.
    pub(super) fn remove_half_open(&mut self, from: IpAddr, number: u64) {
        let Some(entry) = self.each.remove(&number) else { return };
        if let Some(ranked) = self.ranking_mut(entry.stage) {
            ranked.remove(from, number);
        }
        self.adjust_counts(from, None);
    }

    /// Number of entries of the network.
    pub(super) fn of_network(&self, from: IpAddr) -> usize {
        self.networks.half_open_count_for(network_prefix(from))
    }
    /// True if the host, its site or its network is at its limit.
    pub(super) fn has_its_share(&self, from: IpAddr, shares: HalfOpenLimits) -> bool {
        let of_site = site_prefix(from).map_or(0, |site| self.sites.half_open_count_for(site));
        self.hosts.half_open_count_for(host_prefix(from)) >= shares.host
            || of_site >= shares.host.saturating_mul(HOSTS_OF_SITE)
            || self.of_network(from) >= shares.all.div_ceil(NETWORKS)
    }

    /// Selects the entry that a new one from this address evicts; `None` if there is none.
    ///
    /// 1. Entries whose initiators have not continued, in the network that has most: the oldest of its host with
    ///    most. If that is too young, the oldest of the network, so that young entries do not protect older ones.
    /// 2. Otherwise the same among the entries that have continued. An entry that waits for this side is never
    ///    evicted.
    ///
    /// A network without entries always gets a place if one may be evicted. Another network evicts only from one that
    /// still has more afterwards, so that equals do not evict each other forever.
    pub(super) fn select_eviction(&self, now: Instant, from: IpAddr) -> Option<u64> {
        let own = self.of_network(from);
        let least = if own > 0 { own + 2 } else { 1 };
        let stages = [(&self.initial_ranking, UNDISTURBED), (&self.go_on, UNDISTURBED_ON)];
        stages.into_iter().find_map(|(ranked, undisturbed)| {
            let oldest = ranked
                .oldest_half_open_candidates(least)?
                .into_iter()
                .filter_map(|number| self.each.get(&number));
            oldest
                .into_iter()
                .find(|entry| now.duration_since(entry.since) >= undisturbed)
                .map(|entry| entry.token)
        })
    }

    /// Returns the numbers of networks, sites and hosts, and whether the indexes agree.
    #[cfg(test)]
    pub(super) fn index_sizes(&self) -> (usize, usize, usize) {
        for (ranked, stage) in
            [(&self.initial_ranking, HalfOpenStage::Initial), (&self.go_on, HalfOpenStage::Continued)]
        {
            let of_stage = self.each.values().filter(|entry| entry.stage == stage).count();
            assert_eq!(ranked.index_sizes().2, of_stage, "{stage:?}");
        }
        assert_eq!(self.each.len(), self.networks.0.values().map(|has| has.count).sum::<usize>());
        (self.networks.0.len(), self.sites.0.len(), self.hosts.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use usher_core::SecureRng;
    use usher_core::collections::hash_state;

    fn half_open() -> HalfOpen {
        HalfOpen::new(&hash_state(&mut SecureRng::from_seed([3; 32])))
    }
    fn instant_at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }
    /// Returns the address of a host of a network, by numbers.
    fn host_address(network: u32, host: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + (network << 8) + host).into()
    }

    /// Tests each of the three levels alone: the addresses differ in the bits below it.
    #[test]
    fn a_host_a_site_and_a_network_have_their_shares() {
        let shares = HalfOpenLimits { all: 1000, host: 4 };
        for (shift, most) in [(0, 4), (64, 32), (72, 125)] {
            let mut half_open = half_open();
            let address = |n: u128| IpAddr::from(Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | n << shift));
            let begun = (0..200).take_while(|n| {
                let has = half_open.has_its_share(address(*n), shares);
                half_open.add_half_open(instant_at(0), address(*n), 0);
                !has
            });
            assert_eq!(begun.count(), most, "addresses that differ from bit {shift} on");
            assert!(!half_open.has_its_share("2001:db8:2::1".parse().unwrap(), shares), "its neighbour");
        }
        let mut half_open = half_open();
        for n in 0..125 {
            assert!(!half_open.has_its_share(host_address(0, n), shares), "{n}");
            half_open.add_half_open(instant_at(0), host_address(0, n), 0);
        }
        assert!(half_open.has_its_share(host_address(0, 126), shares), "an eighth of all are its network's");
    }

    #[test]
    fn who_has_none_is_not_counted() {
        let mut half_open = half_open();
        let [one, other] = [host_address(1, 7), host_address(1, 8)];
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let numbers = [one, other, six].map(|from| half_open.add_half_open(instant_at(0), from, 0));
        assert_eq!(
            (half_open.of_network(one), half_open.of_network(six), half_open.index_sizes()),
            (2, 1, (2, 1, 3))
        );
        for (from, number) in [one, other, six].into_iter().zip(numbers) {
            half_open.remove_half_open(from, number);
            half_open.remove_half_open(from, number);
        }
        assert_eq!(
            (half_open.of_network(one), half_open.index_sizes(), half_open.entry_count()),
            (0, (0, 0, 0), 0)
        );
    }

    /// Tokens are in the order of their begin.
    #[test]
    fn eviction_takes_the_oldest_sa_of_the_busiest_network_and_host() {
        let mut half_open = half_open();
        let begun = [(1, 1), (2, 1), (2, 2), (2, 2), (1, 2), (2, 2), (2, 1), (1, 1)];
        let numbers: Vec<u64> = begun
            .iter()
            .zip(0..)
            .map(|(&(network, host), token)| {
                half_open.add_half_open(instant_at(0), host_address(network, host), token)
            })
            .collect();
        let stranger = host_address(3, 1);
        assert_eq!(half_open.select_eviction(instant_at(1), stranger), None, "none is old enough");
        assert_eq!(
            half_open.select_eviction(instant_at(2), stranger),
            Some(2),
            "network 2 has five, its host 2 three"
        );
        half_open.remove_half_open(host_address(2, 2), numbers[2]);
        // Both hosts have two; the newest entry of this one is older.
        assert_eq!(half_open.select_eviction(instant_at(2), stranger), Some(3));
        half_open.remove_half_open(host_address(2, 2), numbers[3]);
        // Both networks have three.
        assert_eq!(
            half_open.select_eviction(instant_at(2), stranger),
            Some(1),
            "network 1 has begun one since"
        );
        half_open.index_sizes();
    }

    /// Networks with equal counts do not evict each other; a network without entries evicts the oldest.
    #[test]
    fn who_has_as_many_puts_out_nobody_and_who_has_none_somebody() {
        let mut half_open = half_open();
        for n in 0..8 {
            for host in 0..2 {
                half_open.add_half_open(instant_at(0), host_address(n, host), u64::from(2 * n + host));
            }
        }
        assert!(
            (0..8).all(|n| half_open.select_eviction(instant_at(9), host_address(n, 3)).is_none()),
            "each has two"
        );
        half_open.add_half_open(instant_at(1), host_address(9, 1), 16);
        assert_eq!(
            half_open.select_eviction(instant_at(9), host_address(9, 2)),
            None,
            "it would have as many as they"
        );
        assert_eq!(half_open.select_eviction(instant_at(9), host_address(10, 1)), Some(0));
        let mut half_open = self::half_open();
        for n in 0..100 {
            half_open.add_half_open(instant_at(n.into()), host_address(n, 1), n.into());
        }
        assert_eq!(
            half_open.select_eviction(instant_at(100), host_address(200, 1)),
            Some(0),
            "each network has one"
        );
    }

    /// An entry that waits for this side is never evicted. One that has continued is evicted only after ten seconds,
    /// and if no other is left.
    #[test]
    fn who_has_gone_on_stays_longer_and_who_waits_stays() {
        let mut half_open = half_open();
        let numbers: Vec<u64> = (0..4)
            .map(|n| half_open.add_half_open(instant_at(0), host_address(1, n), u64::from(n)))
            .collect();
        let other = half_open.add_half_open(instant_at(1), host_address(2, 1), 4);
        for (n, stage) in [
            (0, HalfOpenStage::AwaitingResponder),
            (1, HalfOpenStage::Continued),
            (2, HalfOpenStage::Continued),
            (3, HalfOpenStage::AwaitingResponder),
        ] {
            half_open.is_at(host_address(1, n as u32), numbers[n], stage);
        }
        let stranger = host_address(3, 1);
        assert_eq!(
            half_open.select_eviction(instant_at(20), stranger),
            Some(4),
            "the only one that has not gone on"
        );
        assert_eq!(
            half_open.select_eviction(instant_at(20), host_address(2, 2)),
            None,
            "its network has one, and the other two"
        );
        half_open.remove_half_open(host_address(2, 1), other);
        assert_eq!(half_open.select_eviction(instant_at(9), stranger), None);
        assert_eq!(half_open.select_eviction(instant_at(10), stranger), Some(1));
        half_open.is_at(host_address(1, 1), numbers[1], HalfOpenStage::AwaitingResponder);
        assert_eq!(half_open.select_eviction(instant_at(10), stranger), Some(2));
        half_open.is_at(host_address(1, 2), numbers[2], HalfOpenStage::AwaitingResponder);
        assert_eq!(half_open.select_eviction(instant_at(100), stranger), None, "all wait for this side");
        assert_eq!((half_open.index_sizes(), half_open.of_network(host_address(1, 1))), ((1, 0, 4), 4));
        // After this side's response it is the initiator's turn again.
        half_open.is_at(host_address(1, 3), numbers[3], HalfOpenStage::Continued);
        assert_eq!(half_open.select_eviction(instant_at(10), stranger), Some(3));
        for (n, number) in (0..).zip(numbers) {
            half_open.remove_half_open(host_address(1, n), number);
        }
        assert_eq!((half_open.index_sizes(), half_open.entry_count()), ((0, 0, 0), 0));
    }

    /// Young entries of the busiest host do not protect others of its network.
    #[test]
    fn who_keeps_his_young_keeps_nobody_elses() {
        let mut half_open = half_open();
        let other = half_open.add_half_open(instant_at(0), host_address(1, 1), 0);
        let mut own: Vec<u64> =
            (1..4).map(|token| half_open.add_half_open(instant_at(0), host_address(1, 2), token)).collect();
        for secs in 1..10 {
            for number in own.drain(..) {
                half_open.remove_half_open(host_address(1, 2), number);
            }
            own.extend(
                (1..4).map(|token| half_open.add_half_open(instant_at(secs), host_address(1, 2), token)),
            );
        }
        assert_eq!(half_open.select_eviction(instant_at(10), host_address(3, 1)), Some(0));
        half_open.remove_half_open(host_address(1, 1), other);
        assert_eq!(half_open.select_eviction(instant_at(10), host_address(3, 1)), None, "all are young");
        assert_eq!(half_open.select_eviction(instant_at(11), host_address(3, 1)), Some(1));
    }
}
