//! Whose half-open IKE_SAs there are, and which of them goes where there is no room for another (RFC 7296 §2.6, RFC 8019 §4.2).
//!
//! A table that is full refuses whoever comes, and whoever has filled it comes again as soon as there is room. So it is shared: a
//! network that has fewer takes a place of the one that has most. What a request costs grows with the logarithm of what there is.

use super::pressure::{host, network, site};
use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};
use usher_core::collections::{HashMap, HashState};
use usher_core::{Duration, Instant};

/// An initiator has so long at least to prove who it is, whoever else comes. So no more key exchanges are answered than the table
/// has places for in that time, from however many networks requests come.
const UNDISTURBED: Duration = Duration::from_secs(2);

/// Half-open IKE_SAs that somebody may have while there are many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// In all.
    pub(super) all: usize,
    /// Of a host.
    pub(super) host: usize,
}

/// A site may have those of so many hosts, and a network an eighth of all.
const HOSTS_OF_SITE: usize = 8;
const NETWORKS: usize = 8;

/// How many somebody has, and the number of the one that was begun last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Has {
    count: usize,
    last: Reverse<u64>,
}

/// How many half-open IKE_SAs somebody has.
#[derive(Debug)]
struct Counted(HashMap<IpAddr, Has>);

impl Counted {
    fn of(&self, whose: IpAddr) -> Has {
        self.0.get(&whose).copied().unwrap_or_default()
    }
    /// Counts one more, of this number, or one fewer. Gives what there was, and is.
    fn change(&mut self, whose: IpAddr, more: Option<u64>) -> (Has, Has) {
        let before = self.of(whose);
        let after = match more {
            Some(number) => Has { count: before.count + 1, last: Reverse(number) },
            None => Has { count: before.count.saturating_sub(1), ..before },
        };
        if after.count == 0 {
            self.0.remove(&whose);
        } else {
            self.0.insert(whose, after);
        }
        (before, after)
    }
}

/// The half-open IKE_SAs, by whose they are.
#[derive(Debug)]
pub(super) struct HalfOpen {
    networks: Counted,
    sites: Counted,
    hosts: Counted,
    /// Networks by how many they have: the last has most, and of those with as many has begun none for longest.
    ranked: BTreeSet<(Has, IpAddr)>,
    /// The same of the hosts of each network.
    ranked_hosts: BTreeSet<(IpAddr, Has, IpAddr)>,
    /// By host and number, which is the order in which they were begun: which it is, and since when.
    each: BTreeMap<(IpAddr, u64), (u64, Instant)>,
    begun: u64,
}

impl HalfOpen {
    pub(super) fn new(hash: &HashState) -> Self {
        let counted = || Counted(HashMap::with_hasher(hash.clone()));
        Self {
            networks: counted(),
            sites: counted(),
            hosts: counted(),
            ranked: BTreeSet::new(),
            ranked_hosts: BTreeSet::new(),
            each: BTreeMap::new(),
            begun: 0,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.each.len()
    }

    fn change(&mut self, from: IpAddr, more: Option<u64>) {
        let (network, host) = (network(from), host(from));
        let (before, after) = self.networks.change(network, more);
        self.ranked.remove(&(before, network));
        let (host_before, host_after) = self.hosts.change(host, more);
        self.ranked_hosts.remove(&(network, host_before, host));
        if after.count > 0 {
            self.ranked.insert((after, network));
        }
        if host_after.count > 0 {
            self.ranked_hosts.insert((network, host_after, host));
        }
        if let Some(site) = site(from) {
            self.sites.change(site, more);
        }
    }
    /// One has been begun from there. Gives its number.
    pub(super) fn opened(&mut self, now: Instant, from: IpAddr, token: u64) -> u64 {
        self.begun += 1;
        self.change(from, Some(self.begun));
        self.each.insert((host(from), self.begun), (token, now));
        self.begun
    }
    /// The one of this number is half open no more.
    pub(super) fn closed(&mut self, from: IpAddr, number: u64) {
        if self.each.remove(&(host(from), number)).is_some() {
            self.change(from, None);
        }
    }

    /// How many the network has.
    pub(super) fn of_network(&self, from: IpAddr) -> usize {
        self.networks.of(network(from)).count
    }
    /// Whether a host, its site or its network has as many as its share is.
    pub(super) fn has_its_share(&self, from: IpAddr, shares: Shares) -> bool {
        let of_site = site(from).map_or(0, |site| self.sites.of(site).count);
        self.hosts.of(host(from)).count >= shares.host
            || of_site >= shares.host.saturating_mul(HOSTS_OF_SITE)
            || self.of_network(from) >= shares.all.div_ceil(NETWORKS)
    }

    /// Which one goes for another from there: of the network that has most, and there of the host that has most, the oldest. `None`:
    /// nobody's does.
    ///
    /// Whoever has none gets a place. Whoever has some takes one only where the others have more even after that, so that those
    /// who have as many do not put out each other's without end.
    pub(super) fn gives_way(&self, now: Instant, from: IpAddr) -> Option<u64> {
        let &(most, of) = self.ranked.last()?;
        let own = self.of_network(from);
        if own > 0 && most.count < own + 2 {
            return None;
        }
        let highest = Has { count: usize::MAX, last: Reverse(0) };
        let up_to = (of, highest, IpAddr::V6(Ipv6Addr::from(u128::MAX)));
        let &(_, _, host) = self.ranked_hosts.range(..=up_to).next_back()?;
        let (_, &(token, since)) = self.each.range((host, 0)..).next()?;
        (now.since(since) >= UNDISTURBED).then_some(token)
    }

    /// How many networks, sites and hosts are counted; and whether each index has what it should.
    #[cfg(test)]
    pub(super) fn counted(&self) -> (usize, usize, usize) {
        assert_eq!(self.ranked.len(), self.networks.0.len());
        assert_eq!(self.ranked_hosts.len(), self.hosts.0.len());
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
    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }
    /// A host of a network, each by its number.
    fn address(network: u32, host: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + (network << 8) + host).into()
    }

    /// Each of the three levels by itself: addresses differ in the bits below it.
    #[test]
    fn a_host_a_site_and_a_network_have_their_shares() {
        let shares = Shares { all: 1000, host: 4 };
        for (shift, most) in [(0, 4), (64, 32), (72, 125)] {
            let mut half_open = half_open();
            let address = |n: u128| IpAddr::from(Ipv6Addr::from(0x2001_0db8_0001_u128 << 80 | n << shift));
            let begun = (0..200).take_while(|n| {
                let has = half_open.has_its_share(address(*n), shares);
                half_open.opened(at(0), address(*n), 0);
                !has
            });
            assert_eq!(begun.count(), most, "addresses that differ from bit {shift} on");
            assert!(!half_open.has_its_share("2001:db8:2::1".parse().unwrap(), shares), "its neighbour");
        }
        let mut half_open = half_open();
        for n in 0..125 {
            assert!(!half_open.has_its_share(address(0, n), shares), "{n}");
            half_open.opened(at(0), address(0, n), 0);
        }
        assert!(half_open.has_its_share(address(0, 126), shares), "an eighth of all are its network's");
    }

    #[test]
    fn who_has_none_is_not_counted() {
        let mut half_open = half_open();
        let [one, other] = [address(1, 7), address(1, 8)];
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        let numbers = [one, other, six].map(|from| half_open.opened(at(0), from, 0));
        assert_eq!(
            (half_open.of_network(one), half_open.of_network(six), half_open.counted()),
            (2, 1, (2, 1, 3))
        );
        for (from, number) in [one, other, six].into_iter().zip(numbers) {
            half_open.closed(from, number);
            half_open.closed(from, number);
        }
        assert_eq!((half_open.of_network(one), half_open.counted(), half_open.count()), (0, (0, 0, 0), 0));
    }

    /// Tokens are the order in which they were begun.
    #[test]
    fn the_oldest_of_the_host_that_has_most_of_the_network_that_has_most_gives_way() {
        let mut half_open = half_open();
        let begun = [(1, 1), (2, 1), (2, 2), (2, 2), (1, 2), (2, 2), (2, 1), (1, 1)];
        let numbers: Vec<u64> = begun
            .iter()
            .zip(0..)
            .map(|(&(network, host), token)| half_open.opened(at(0), address(network, host), token))
            .collect();
        let stranger = address(3, 1);
        assert_eq!(half_open.gives_way(at(1), stranger), None, "none is old enough");
        assert_eq!(half_open.gives_way(at(2), stranger), Some(2), "network 2 has five, its host 2 three");
        half_open.closed(address(2, 2), numbers[2]);
        // Both of its hosts have two: of these the one that has begun none for longer.
        assert_eq!(half_open.gives_way(at(2), stranger), Some(3));
        half_open.closed(address(2, 2), numbers[3]);
        // Both networks have three.
        assert_eq!(half_open.gives_way(at(2), stranger), Some(1), "network 1 has begun one since");
        half_open.counted();
    }

    /// Those who have as many leave each other alone, and whoever has none gets a place of the oldest.
    #[test]
    fn who_has_as_many_puts_out_nobody_and_who_has_none_somebody() {
        let mut half_open = half_open();
        for n in 0..8 {
            for host in 0..2 {
                half_open.opened(at(0), address(n, host), u64::from(2 * n + host));
            }
        }
        assert!((0..8).all(|n| half_open.gives_way(at(9), address(n, 3)).is_none()), "each has two");
        half_open.opened(at(1), address(9, 1), 16);
        assert_eq!(half_open.gives_way(at(9), address(9, 2)), None, "it would have as many as they");
        assert_eq!(half_open.gives_way(at(9), address(10, 1)), Some(0));
        let mut half_open = self::half_open();
        for n in 0..100 {
            half_open.opened(at(n.into()), address(n, 1), n.into());
        }
        assert_eq!(half_open.gives_way(at(100), address(200, 1)), Some(0), "each network has one");
    }
}
