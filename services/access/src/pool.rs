//! Address pools: the holders of addresses and prefixes, and the choice of the next one.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use usher_core::collections::{HashMap, SeededHashState};

/// A range of addresses or prefixes in a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolRange {
    /// Each address from the first to the last, both of one family.
    Addresses {
        /// The first.
        first: IpAddr,
        /// The last; not less than the first.
        last: IpAddr,
    },
    /// Each IPv6 prefix of a length within a network, such as every /64 of a /48.
    Prefixes {
        /// The network.
        network: Ipv6Addr,
        /// The network's length, at most `each`.
        length: u8,
        /// The length of each lease's prefix.
        each: u8,
    },
}

/// A named pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Its name: a user's `Pool-Name`.
    pub name: String,
    /// The ranges. A pool leases an address if it has ranges of addresses, and a prefix if it has ranges of prefixes.
    pub ranges: Vec<PoolRange>,
}

/// A malformed range, or an inconsistent pool.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolError {
    /// The text is not a range.
    #[error(
        "{0:?} is not a range: write 192.0.2.10-192.0.2.99, 192.0.2.0/24, or 2001:db8::/40/56 for each /56 of a /40"
    )]
    NotARange(String),
    /// Two pools have the same name.
    #[error("two pools have the name {0:?}")]
    DuplicateName(String),
    /// A pool has no ranges.
    #[error("the pool {0:?} has no ranges")]
    Empty(String),
    /// Two ranges overlap.
    #[error("the pool {pool:?}: the range {range} overlaps another range")]
    Overlap {
        /// The pool.
        pool: String,
        /// One of the two ranges.
        range: PoolRange,
    },
}

impl FromStr for PoolRange {
    type Err = PoolError;
    /// Parses `first-last`, `network/length` or `network/length/each`. `network/length` excludes the first and last
    /// address in IPv4 up to /30, and the first in IPv6. `each` is the length of the IPv6 prefixes.
    fn from_str(text: &str) -> Result<Self, PoolError> {
        parse_range(text.trim()).ok_or_else(|| PoolError::NotARange(text.into()))
    }
}

fn parse_range(text: &str) -> Option<PoolRange> {
    if let Some((first, last)) = text.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let range = PoolRange::Addresses { first, last };
        return range.is_consistent().then_some(range);
    }
    let mut parts = text.split('/');
    let network: IpAddr = parts.next()?.parse().ok()?;
    let length: u8 = parts.next()?.parse().ok()?;
    let range = match (network, parts.next(), parts.next()) {
        (IpAddr::V6(network), Some(each), None) => {
            PoolRange::Prefixes { network, length, each: each.parse().ok()? }
        }
        (IpAddr::V4(network), None, None) if length <= 32 => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let (first, last) = (network.to_bits() & !host, network.to_bits() | host);
            let edge = u32::from(length <= 30);
            let (first, last) = (Ipv4Addr::from_bits(first + edge), Ipv4Addr::from_bits(last - edge));
            PoolRange::Addresses { first: first.into(), last: last.into() }
        }
        (IpAddr::V6(network), None, None) if length <= 128 => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let (first, last) = (network.to_bits() & !host, network.to_bits() | host);
            let first = if length < 127 { first + 1 } else { first };
            let (first, last) = (Ipv6Addr::from_bits(first), Ipv6Addr::from_bits(last));
            PoolRange::Addresses { first: first.into(), last: last.into() }
        }
        _ => return None,
    };
    range.is_consistent().then_some(range)
}

impl fmt::Display for PoolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addresses { first, last } => write!(f, "{first}-{last}"),
            Self::Prefixes { network, length, each } => write!(f, "{network}/{length}/{each}"),
        }
    }
}

/// The maximum size of a range.
const MOST: u64 = 1 << 32;
/// The number of last holders that a pool remembers before it reuses addresses for others.
const MAX_LAST_HOLDERS: usize = 1 << 20;

impl PoolRange {
    fn is_consistent(&self) -> bool {
        match *self {
            Self::Addresses { first, last } => first.is_ipv4() == last.is_ipv4() && first <= last,
            Self::Prefixes { length, each, .. } => length <= each && each <= 128,
        }
    }
    /// The number of leases, at most 2^32. A larger range leases only its first addresses or prefixes.
    #[must_use]
    pub fn size(&self) -> u64 {
        if !self.is_consistent() {
            return 0;
        }
        match *self {
            Self::Addresses { .. } => {
                let (first, last) = self.address_bounds();
                u64::try_from((last - first).saturating_add(1)).unwrap_or(MOST).min(MOST)
            }
            Self::Prefixes { length, each, .. } => 1 << (each - length).min(32),
        }
    }
    /// The first and the last address, as numbers of the family.
    fn address_bounds(&self) -> (u128, u128) {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(a) => a.to_bits().into(),
            IpAddr::V6(a) => a.to_bits(),
        };
        match *self {
            Self::Addresses { first, last } => (bits(first), bits(last)),
            Self::Prefixes { network, length, .. } => {
                let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                (network.to_bits() & !host, network.to_bits() | host)
            }
        }
    }
    const fn is_ipv4(&self) -> bool {
        matches!(self, Self::Addresses { first: IpAddr::V4(_), .. })
    }
    fn overlaps(&self, other: &Self) -> bool {
        let ((a, b), (c, d)) = (self.address_bounds(), other.address_bounds());
        self.is_ipv4() == other.is_ipv4() && a <= d && c <= b
    }
    fn lease_at(&self, offset: u64) -> Lease {
        let (first, _) = self.address_bounds();
        match *self {
            Self::Addresses { first: IpAddr::V4(_), .. } => {
                Lease::Address(Ipv4Addr::from_bits((first + u128::from(offset)) as u32).into())
            }
            Self::Addresses { .. } => Lease::Address(Ipv6Addr::from_bits(first + u128::from(offset)).into()),
            Self::Prefixes { each, .. } => {
                let step = 128 - u32::from(each);
                let bits = u128::from(offset).checked_shl(step).unwrap_or(0);
                Lease::Prefix(Ipv6Addr::from_bits(first | bits), each)
            }
        }
    }
    fn lease_offset(&self, lease: Lease) -> Option<u64> {
        let (first, last) = self.address_bounds();
        let offset = match (*self, lease) {
            (Self::Addresses { first: IpAddr::V4(_), .. }, Lease::Address(IpAddr::V4(a))) => {
                let a = u128::from(a.to_bits());
                (a <= last).then_some(a)?.checked_sub(first)?
            }
            (Self::Addresses { first: IpAddr::V6(_), .. }, Lease::Address(IpAddr::V6(a))) => {
                (a.to_bits() <= last).then_some(a.to_bits())?.checked_sub(first)?
            }
            (Self::Prefixes { each, .. }, Lease::Prefix(prefix, length)) if each == length => {
                let bits = (prefix.to_bits() <= last).then_some(prefix.to_bits())?.checked_sub(first)?;
                bits.checked_shr(128 - u32::from(each)).unwrap_or(0)
            }
            _ => return None,
        };
        u64::try_from(offset).ok().filter(|o| *o < self.size())
    }
}

/// A lease of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lease {
    /// An address.
    Address(IpAddr),
    /// An IPv6 prefix and its length.
    Prefix(Ipv6Addr, u8),
}

/// The utilisation of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolUse<'a> {
    /// The pool.
    pub name: &'a str,
    /// The addresses in use and in total.
    pub addresses: (u64, u64),
    /// The prefixes in use and in total.
    pub prefixes: (u64, u64),
}

/// The state of an address that has been used.
#[derive(Clone, Copy, Debug)]
struct LeaseState {
    /// The last holder.
    holder: u64,
    /// The number of sessions that use it. More than one if several claim it.
    used: u32,
    /// The number of releases, which detects stale entries of the free list.
    freed: u32,
}

/// All addresses or all prefixes of a pool, numbered from zero.
#[derive(Debug)]
struct AddressSpace {
    ranges: Vec<PoolRange>,
    size: u64,
    states: HashMap<u64, LeaseState>,
    /// The last number of each holder.
    last: HashMap<u64, u64>,
    /// The free list, longest free first.
    free: VecDeque<(u64, u32)>,
    /// The number of never used numbers that were examined.
    looked_at: u64,
    /// The start of that search. It differs between restarts, so that recent leases are not reused at once.
    begin: Option<u64>,
    used: u64,
}

impl AddressSpace {
    fn new(ranges: Vec<PoolRange>, hash: &SeededHashState) -> Self {
        Self {
            size: ranges.iter().map(PoolRange::size).sum(),
            ranges,
            states: HashMap::with_hasher(hash.clone()),
            last: HashMap::with_hasher(hash.clone()),
            free: VecDeque::new(),
            looked_at: 0,
            begin: None,
            used: 0,
        }
    }
    fn lease_index_in_space(&self, lease: Lease) -> Option<u64> {
        let mut before = 0;
        for range in &self.ranges {
            if let Some(offset) = range.lease_offset(lease) {
                return Some(before + offset);
            }
            before += range.size();
        }
        None
    }
    fn lease_at(&self, number: u64) -> Option<Lease> {
        let mut offset = number;
        for range in &self.ranges {
            match offset.checked_sub(range.size()) {
                None => return Some(range.lease_at(offset)),
                Some(rest) => offset = rest,
            }
        }
        None
    }
    fn claim(&mut self, number: u64, holder: u64) {
        let state = self.states.entry(number).or_insert(LeaseState { holder, used: 0, freed: 0 });
        if state.used == 0 {
            self.used += 1;
            if state.holder != holder {
                if self.last.get(&state.holder) == Some(&number) {
                    self.last.remove(&state.holder);
                }
                state.holder = holder;
            }
            self.last.insert(holder, number);
        }
        state.used += 1;
    }
    fn release(&mut self, number: u64) {
        let Some(state) = self.states.get_mut(&number).filter(|s| s.used > 0) else { return };
        state.used -= 1;
        if state.used > 0 {
            return;
        }
        state.freed = state.freed.wrapping_add(1);
        self.free.push_back((number, state.freed));
        self.used -= 1;
        if self.free.len() > 2 * self.states.len() + 16 {
            let states = &self.states;
            self.free.retain(|(n, freed)| states.get(n).is_some_and(|s| s.used == 0 && s.freed == *freed));
        }
    }
    /// Chooses the holder's own number if it is free, or in use and `again` is true. Otherwise a number never used, or
    /// else the one free for longest.
    fn choose_lease_number(&mut self, holder: u64, again: bool, begin: u64) -> Option<u64> {
        if let Some(&number) = self.last.get(&holder)
            && self.states.get(&number).is_some_and(|s| s.used == 0 || again)
        {
            return Some(number);
        }
        if self.used >= self.size {
            return None;
        }
        let few = self.states.len() < MAX_LAST_HOLDERS;
        let mut never = || {
            let begin = *self.begin.get_or_insert(begin % self.size);
            while self.looked_at < self.size {
                let number = (begin + self.looked_at) % self.size;
                self.looked_at += 1;
                if !self.states.contains_key(&number) {
                    return Some(number);
                }
            }
            None
        };
        if few && let Some(number) = never() {
            return Some(number);
        }
        while let Some((number, freed)) = self.free.pop_front() {
            if self.states.get(&number).is_some_and(|s| s.used == 0 && s.freed == freed) {
                return Some(number);
            }
        }
        never()
    }
}

/// Address pools by name. A holder gets its last address again unless another holder needs it.
#[derive(Debug)]
pub struct AddressPools {
    /// Name, addresses, prefixes.
    pools: Vec<(String, AddressSpace, AddressSpace)>,
}

impl AddressPools {
    /// Returns pools without leases. Inconsistent ranges lease nothing; see [`check_pools`].
    #[must_use]
    pub fn new(config: &[PoolConfig], hash: &SeededHashState) -> Self {
        let pools = config.iter().map(|pool| {
            let (prefixes, addresses) =
                pool.ranges.iter().partition(|r| matches!(r, PoolRange::Prefixes { .. }));
            (pool.name.clone(), AddressSpace::new(addresses, hash), AddressSpace::new(prefixes, hash))
        });
        Self { pools: pools.collect() }
    }
    /// The number of the pool with this name.
    #[must_use]
    pub fn find_pool(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|(n, ..)| n == name)
    }
    /// Whether a pool leases addresses, and whether it leases prefixes.
    #[must_use]
    pub fn leases_addresses_and_prefixes(&self, pool: usize) -> (bool, bool) {
        self.pools.get(pool).map_or((false, false), |(_, a, p)| (a.size > 0, p.size > 0))
    }
    /// Leases an address (or a prefix) to a holder. With `again` it may be the one in use by that holder. `begin` sets
    /// the start of the search in an unused pool. `None` if the pool is exhausted.
    #[must_use]
    pub fn take_lease(
        &mut self,
        pool: usize,
        prefix: bool,
        holder: u64,
        again: bool,
        begin: u64,
    ) -> Option<Lease> {
        let (_, addresses, prefixes) = self.pools.get_mut(pool)?;
        let space = if prefix { prefixes } else { addresses };
        let number = space.choose_lease_number(holder, again, begin)?;
        space.claim(number, holder);
        space.lease_at(number)
    }
    /// Leases this address or prefix to a holder. Returns false if it is not in the pool or in use by another.
    pub fn claim_specific_lease(&mut self, pool: usize, lease: Lease, holder: u64) -> bool {
        let Some((_, addresses, prefixes)) = self.pools.get_mut(pool) else { return false };
        let space = if matches!(lease, Lease::Address(_)) { addresses } else { prefixes };
        let Some(number) = space.lease_index_in_space(lease) else { return false };
        let others = space.states.get(&number).is_some_and(|state| state.used > 0 && state.holder != holder);
        if !others {
            space.claim(number, holder);
        }
        !others
    }
    fn space_containing_lease(&mut self, lease: Lease) -> Option<(&mut AddressSpace, u64)> {
        self.pools.iter_mut().find_map(|(_, addresses, prefixes)| {
            let space = if matches!(lease, Lease::Address(_)) { addresses } else { prefixes };
            space.lease_index_in_space(lease).map(|n| (space, n))
        })
    }
    /// Marks a lease as used by a holder. Ignores leases of no pool.
    pub fn claim(&mut self, lease: Lease, holder: u64) {
        if let Some((space, number)) = self.space_containing_lease(lease) {
            space.claim(number, holder);
        }
    }
    /// Releases a lease.
    pub fn release(&mut self, lease: Lease) {
        if let Some((space, number)) = self.space_containing_lease(lease) {
            space.release(number);
        }
    }
    /// The utilisation of each pool, in order.
    pub fn pool_usage(&self) -> impl Iterator<Item = PoolUse<'_>> {
        self.pools.iter().map(|(name, a, p)| PoolUse {
            name,
            addresses: (a.used, a.size),
            prefixes: (p.used, p.size),
        })
    }
}

/// Checks that pools have different names, and ranges that do not overlap.
///
/// # Errors
/// The first inconsistency.
pub fn check_pools(pools: &[PoolConfig]) -> Result<(), PoolError> {
    for (i, pool) in pools.iter().enumerate() {
        if pools[..i].iter().any(|p| p.name == pool.name) {
            return Err(PoolError::DuplicateName(pool.name.clone()));
        }
        if pool.ranges.is_empty() {
            return Err(PoolError::Empty(pool.name.clone()));
        }
        for (j, range) in pool.ranges.iter().enumerate() {
            let mut others = pools[..i].iter().flat_map(|p| &p.ranges).chain(&pool.ranges[..j]);
            if !range.is_consistent() {
                return Err(PoolError::NotARange(alloc::format!("{range}")));
            }
            if others.any(|o| o.overlaps(range)) {
                return Err(PoolError::Overlap { pool: pool.name.clone(), range: *range });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
