//! The addresses and prefixes of subscribers: leases of pools, and addresses of AAA servers.

use crate::pool::{AddressPools, Lease, PoolConfig, PoolUse};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use core::net::{IpAddr, Ipv6Addr};
use usher_core::SecureRng;
use usher_core::collections::{SeededHashState, hash_state};

/// Maximum leases of a pool that one request tries because they overlap with others.
const MAX_TRIES: usize = 256;

/// The subscriber that a lease is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseHolder {
    /// The hash of its name ([`AddressLeases::hash_holder`]). It gets its last address of a pool again while that is
    /// free.
    pub identity: u64,
    /// The number of the session, or of all sessions that share an address.
    pub owner: u64,
    /// True if it shares an address with no other session, not even with one of the same owner.
    pub is_exclusive: bool,
}

/// The kind of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseKind {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An IPv6 prefix.
    Prefix,
}

impl LeaseKind {
    const fn includes(self, lease: Lease) -> bool {
        matches!(
            (self, lease),
            (Self::Ipv4, Lease::Address(IpAddr::V4(_)))
                | (Self::Ipv6, Lease::Address(IpAddr::V6(_)))
                | (Self::Prefix, Lease::Prefix(..))
        )
    }
}

/// A leased address or prefix, by its first address in the table.
#[derive(Clone, Copy, Debug)]
struct LeasedRange {
    last: u128,
    owner: u64,
    /// Number of sessions of the owner that have it.
    use_count: u32,
}

/// The address pools, and all leases: of the pools, and of AAA servers in a pool or outside. Leases never overlap.
#[derive(Debug)]
pub struct AddressLeases {
    pools: AddressPools,
    leased: BTreeMap<u128, LeasedRange>,
    /// Leases of a pool that overlap a lease of another length, by its first address. They stay in use as long as that
    /// one. This happens if an AAA server assigns a prefix of another length than the pool's.
    overlapping: BTreeMap<u128, Vec<Lease>>,
    /// Addresses that no subscriber may have, such as the access server's own.
    reserved: BTreeSet<u128>,
    /// Leases of a pool that contain a reserved address.
    unusable: Vec<Lease>,
    hash: SeededHashState,
    begin: u64,
}

/// Returns the first and the last address of a lease. IPv4 addresses are mapped to IPv6 (RFC 4291 §2.5.5.2).
fn lease_bounds(lease: Lease) -> (u128, u128) {
    match lease {
        Lease::Address(address) => {
            let bits = address_bits(address);
            (bits, bits)
        }
        Lease::Prefix(address, length) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            (address.to_bits() & !host, address.to_bits() | host)
        }
    }
}

const fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl AddressLeases {
    /// Creates pools without leases.
    #[must_use]
    pub fn new(pools: &[PoolConfig], mut rng: SecureRng) -> Self {
        let hash = hash_state(&mut rng);
        Self::with_hash(pools, hash, rng.next_u32())
    }
    /// Creates pools without leases, with a secret hash function. `begin` sets the start of the search in an unused
    /// pool.
    #[must_use]
    pub fn with_hash(pools: &[PoolConfig], hash: SeededHashState, begin: u32) -> Self {
        Self {
            pools: AddressPools::new(pools, &hash),
            leased: BTreeMap::new(),
            overlapping: BTreeMap::new(),
            reserved: BTreeSet::new(),
            unusable: Vec::new(),
            hash,
            begin: begin.into(),
        }
    }
    /// Returns the secret hash of a holder's name.
    #[must_use]
    pub fn hash_holder(&self, name: &impl Hash) -> u64 {
        self.hash.hash_one(name)
    }
    /// Replaces the addresses that no subscriber may have. Existing leases of these addresses stay.
    pub fn set_reserved(&mut self, addresses: &[IpAddr]) {
        let reserved = core::mem::take(&mut self.reserved).into_iter().map(reserved_lease);
        for lease in reserved.chain(core::mem::take(&mut self.unusable)) {
            self.pools.release(lease);
        }
        for address in addresses {
            let bits = address_bits(address.to_canonical());
            if self.reserved.insert(bits) {
                self.pools.claim(reserved_lease(bits), self.hash.hash_one(bits));
            }
        }
    }

    /// Returns the owner of an address.
    #[must_use]
    pub fn owner_of_address(&self, address: IpAddr) -> Option<u64> {
        self.owner_of_lease(Lease::Address(address.to_canonical()))
    }
    /// Returns an owner of a part of this lease.
    #[must_use]
    pub fn owner_of_lease(&self, lease: Lease) -> Option<u64> {
        self.overlapping_range(lease).map(|(_, range)| range.owner)
    }
    /// Returns the leased range that overlaps a lease, and its first address. Ranges do not overlap, so the last one
    /// that begins before the lease's end also ends last.
    fn overlapping_range(&self, lease: Lease) -> Option<(u128, LeasedRange)> {
        let (first, last) = lease_bounds(lease);
        let (begin, range) = self.leased.range(..=last).next_back()?;
        (range.last >= first).then_some((*begin, *range))
    }
    fn is_reserved(&self, lease: Lease) -> bool {
        let (first, last) = lease_bounds(lease);
        self.reserved.range(first..=last).next().is_some()
    }
    /// True if the holder may have this lease: it is free, or its owner shares it.
    fn may_have(&self, lease: Lease, holder: &LeaseHolder) -> bool {
        if self.is_reserved(lease) {
            return false;
        }
        let Some((begin, range)) = self.overlapping_range(lease) else { return true };
        !holder.is_exclusive && range.owner == holder.owner && (begin, range.last) == lease_bounds(lease)
    }
    fn record_lease(&mut self, lease: Lease, holder: &LeaseHolder) {
        let (first, last) = lease_bounds(lease);
        let new = LeasedRange { last, owner: holder.owner, use_count: 0 };
        self.leased.entry(first).or_insert(new).use_count += 1;
    }

    /// Leases an address or prefix of an AAA server, in a pool or not. Returns false if another holder has a part of it
    /// or if it is reserved: packets would reach the wrong host.
    pub fn claim_lease(&mut self, lease: Lease, holder: &LeaseHolder) -> bool {
        let may_have = self.may_have(lease, holder);
        if may_have {
            self.pools.claim(lease, holder.identity);
            self.record_lease(lease, holder);
        }
        may_have
    }
    /// Leases this address if it is in one of these pools. Returns false if it is not, or another holder has it.
    pub fn take_specific_lease(&mut self, pools: &[&str], address: IpAddr, holder: &LeaseHolder) -> bool {
        let lease = Lease::Address(address);
        let mut pools =
            pools.iter().filter_map(|name| self.pools.find_pool(name)).collect::<Vec<_>>().into_iter();
        let taken = self.may_have(lease, holder)
            && pools.any(|pool| self.pools.claim_specific_lease(pool, lease, holder.identity));
        if taken {
            self.record_lease(lease, holder);
        }
        taken
    }
    /// Leases from the first of these pools that has a free lease of this kind.
    pub fn take_lease(&mut self, pools: &[&str], kind: LeaseKind, holder: &LeaseHolder) -> Option<Lease> {
        // A holder may return before its old session has ended. It keeps its address if it may share it.
        let mut shares = !holder.is_exclusive;
        for _ in 0..MAX_TRIES {
            let lease = self.next_pool_lease(pools, kind, holder.identity, shares)?;
            if self.may_have(lease, holder) {
                self.record_lease(lease, holder);
                return Some(lease);
            }
            // The holder cannot have its last address again: it is another's or reserved.
            if core::mem::replace(&mut shares, false) {
                self.pools.release(lease);
                continue;
            }
            match self.overlapping_range(lease) {
                Some((begin, _)) => self.overlapping.entry(begin).or_default().push(lease),
                None => self.unusable.push(lease),
            }
        }
        None
    }
    fn next_pool_lease(
        &mut self,
        pools: &[&str],
        kind: LeaseKind,
        identity: u64,
        shares: bool,
    ) -> Option<Lease> {
        pools.iter().find_map(|name| {
            let pool = self.pools.find_pool(name)?;
            let is_prefix = kind == LeaseKind::Prefix;
            let lease = self.pools.take_lease(pool, is_prefix, identity, shares, self.begin)?;
            if !kind.includes(lease) {
                self.pools.release(lease);
                return None;
            }
            Some(lease)
        })
    }
    /// Releases a lease of one session.
    pub fn release_lease(&mut self, lease: Lease) {
        let (first, _) = lease_bounds(lease);
        let Some(range) = self.leased.get_mut(&first) else { return };
        range.use_count -= 1;
        let is_free = range.use_count == 0;
        self.pools.release(lease);
        if is_free {
            self.leased.remove(&first);
            for lease in self.overlapping.remove(&first).unwrap_or_default() {
                self.pools.release(lease);
            }
        }
    }
    /// The usage of each pool.
    pub fn pool_usage(&self) -> impl Iterator<Item = PoolUse<'_>> {
        self.pools.pool_usage()
    }
}

/// Returns the lease of a reserved address.
fn reserved_lease(bits: u128) -> Lease {
    Lease::Address(IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical())
}
