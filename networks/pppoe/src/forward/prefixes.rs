//! The sessions of prefixes, by longest prefix match.

use std::net::IpAddr;
use usher_core::collections::{HashMap, SeededHashState};

/// A table of prefixes of one address family, in the upper bits of 128.
#[derive(Debug)]
pub(crate) struct PrefixTable {
    seed: u64,
    /// The prefixes of each length in use, the longest first.
    lengths: Vec<(u8, HashMap<u128, u16>)>,
}

/// Returns the bits of an address of either family, in the upper bits of 128.
pub(super) fn address_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) << 96,
        IpAddr::V6(ip) => ip.into(),
    }
}

const fn mask_address(address: u128, bits: u8) -> u128 {
    match bits {
        0 => 0,
        bits => address & (u128::MAX << (128 - bits as u32)),
    }
}

impl PrefixTable {
    /// Creates a table. Others choose the addresses, so the hash has a secret seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, lengths: Vec::new() }
    }
    /// Returns the session of exactly this prefix.
    pub(crate) fn session_of_exact_prefix(&self, network: IpAddr, bits: u8) -> Option<u16> {
        self.exact_owner(address_bits(network), bits)
    }
    fn exact_owner(&self, address: u128, bits: u8) -> Option<u16> {
        let (_, of) = self.lengths.iter().find(|(length, _)| *length == bits)?;
        of.get(&mask_address(address, bits)).copied()
    }
    pub(crate) fn insert_prefix_owner(&mut self, network: IpAddr, bits: u8, owner: u16) {
        self.insert(address_bits(network), bits, owner);
    }
    fn insert(&mut self, address: u128, bits: u8, owner: u16) {
        let at = match self.lengths.binary_search_by(|(length, _)| bits.cmp(length)) {
            Ok(at) => at,
            Err(at) => {
                self.lengths.insert(at, (bits, HashMap::with_hasher(SeededHashState::with_seed(self.seed))));
                at
            }
        };
        self.lengths[at].1.insert(mask_address(address, bits), owner);
    }
    pub(crate) fn remove_prefix_owner(&mut self, network: IpAddr, bits: u8) {
        self.remove(address_bits(network), bits);
    }
    fn remove(&mut self, address: u128, bits: u8) {
        if let Some((_, of)) = self.lengths.iter_mut().find(|(length, _)| *length == bits) {
            of.remove(&mask_address(address, bits));
        }
        self.lengths.retain(|(_, of)| !of.is_empty());
    }
    /// Returns the session of an address.
    pub(crate) fn session_of_address(&self, address: IpAddr) -> Option<u16> {
        self.find_longest(address_bits(address))
    }
    fn find_longest(&self, address: u128) -> Option<u16> {
        self.lengths.iter().find_map(|(bits, of)| of.get(&mask_address(address, *bits)).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides() {
        let mut all = PrefixTable::new(7);
        let address = |text: &str| u128::from(text.parse::<std::net::Ipv6Addr>().unwrap());
        all.insert(address("2001:db8::"), 32, 1);
        all.insert(address("2001:db8:1::"), 48, 2);
        all.insert(address("2001:db8:1:2::"), 64, 3);
        all.insert(0, 0, 4);
        let find = |all: &PrefixTable, text| all.find_longest(address(text));
        assert_eq!(find(&all, "2001:db8:1:2::9"), Some(3));
        assert_eq!(find(&all, "2001:db8:1:3::9"), Some(2));
        assert_eq!(find(&all, "2001:db8:7::"), Some(1));
        assert_eq!(find(&all, "2001:db9::"), Some(4));
        assert_eq!(all.exact_owner(address("2001:db8:1:ffff::"), 48), Some(2));
        assert_eq!(all.exact_owner(address("2001:db8:1::"), 56), None);
        all.remove(address("2001:db8:1::"), 48);
        all.remove(0, 0);
        assert_eq!(find(&all, "2001:db8:1:3::9"), Some(1));
        assert_eq!(find(&all, "2001:db9::"), None);
    }
}
