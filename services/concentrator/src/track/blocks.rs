//! Blocks of ports that stand for hosts which share addresses, computed and not logged (RFC 7422).
//!
//! The sequential algorithm of §2 without a dynamic pool: the first host inside gets the first block of the first address outside,
//! the second the second block, until that address has no further one.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// A block of ports of an address outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortBlock {
    /// The address.
    pub address: Ipv4Addr,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

impl PortBlock {
    /// Whether a port of an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr, port: u16) -> bool {
        address == IpAddr::V4(self.address) && (self.first..=self.last).contains(&port)
    }
}

impl core::fmt::Display for PortBlock {
    /// `198.51.100.1:1024-2047`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{}-{}", self.address, self.first, self.last)
    }
}

/// Which block stands for which host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortBlocks {
    /// The addresses inside, from the first to the last.
    inner: (u32, u32),
    /// The addresses outside.
    outer: Vec<Ipv4Addr>,
    /// The first port that is anybody's: those before are reserved.
    first: u16,
    /// How many hosts share an address: the compression ratio.
    ratio: u32,
    /// Ports of a block.
    size: u32,
}

/// Why blocks cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlocksError(
    /// What is wrong, and what to do.
    pub String,
);

impl PortBlocks {
    /// Blocks for the addresses inside from the first to the last, of ports from `first` on of these addresses outside.
    ///
    /// # Errors
    /// There is nothing to share, or a host would get fewer than 64 ports.
    pub fn new(inner: (Ipv4Addr, Ipv4Addr), outer: &[Ipv4Addr], first: u16) -> Result<Self, BlocksError> {
        let (a, b) = (inner.0.to_bits(), inner.1.to_bits());
        let hosts = b.checked_sub(a).and_then(|n| n.checked_add(1));
        let Some(hosts) = hosts.filter(|_| !outer.is_empty()) else {
            return Err(BlocksError("there has to be an address inside and one outside at least".into()));
        };
        let addresses = u32::try_from(outer.len()).unwrap_or(u32::MAX);
        let ratio = hosts.div_ceil(addresses);
        let size = (65_536 - u32::from(first)) / ratio;
        if size < 64 {
            return Err(BlocksError(alloc::format!(
                "{hosts} hosts behind {addresses} addresses get {size} ports each; 64 are needed at least: add addresses outside"
            )));
        }
        Ok(Self { inner: (a, b), outer: outer.to_vec(), first, ratio, size })
    }
    /// How many hosts share an address (C of RFC 7422 §2).
    #[must_use]
    pub const fn compression_ratio(&self) -> u32 {
        self.ratio
    }
    /// How many ports a host has.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.size
    }
    /// The block that stands for a host.
    #[must_use]
    pub fn block_of_host(&self, inner: Ipv4Addr) -> Option<PortBlock> {
        let n = inner.to_bits().checked_sub(self.inner.0).filter(|_| inner.to_bits() <= self.inner.1)?;
        let address = *self.outer.get(usize::try_from(n / self.ratio).ok()?)?;
        let first = u32::from(self.first) + n % self.ratio * self.size;
        let port = |n: u32| u16::try_from(n).ok();
        Some(PortBlock { address, first: port(first)?, last: port(first + self.size - 1)? })
    }
    /// The host that a port of an address outside stands for.
    #[must_use]
    pub fn host_of_port(&self, address: IpAddr, port: u16) -> Option<Ipv4Addr> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let at = u32::try_from(self.outer.iter().position(|one| *one == address)?).ok()?;
        let block = u32::from(port.checked_sub(self.first)?) / self.size;
        if block >= self.ratio {
            return None;
        }
        let bits = self.inner.0.checked_add(at.checked_mul(self.ratio)?.checked_add(block)?)?;
        (bits <= self.inner.1).then(|| Ipv4Addr::from_bits(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_ipv4(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_get_blocks_one_behind_the_other() {
        // As RFC 7422 §2.3 has it, but without its dynamic pool: 14 hosts for an address, of which 0-1023 are reserved.
        let blocks = PortBlocks::new(
            (parse_ipv4("198.51.100.1"), parse_ipv4("198.51.100.14")),
            &[parse_ipv4("192.0.2.1")],
            1024,
        )
        .unwrap();
        assert_eq!((blocks.compression_ratio(), blocks.block_size()), (14, 4608));
        assert_eq!(
            blocks.block_of_host(parse_ipv4("198.51.100.1")).unwrap().to_string(),
            "192.0.2.1:1024-5631"
        );
        assert_eq!(
            blocks.block_of_host(parse_ipv4("198.51.100.14")).unwrap().to_string(),
            "192.0.2.1:60928-65535"
        );
        assert_eq!(
            blocks.host_of_port(parse_ipv4("192.0.2.1").into(), 5632),
            Some(parse_ipv4("198.51.100.2"))
        );
        for (address, port) in [("192.0.2.1", 1023), ("192.0.2.2", 5000)] {
            assert_eq!(blocks.host_of_port(parse_ipv4(address).into(), port), None);
        }
        assert_eq!(
            (
                blocks.block_of_host(parse_ipv4("198.51.100.0")),
                blocks.block_of_host(parse_ipv4("198.51.100.15"))
            ),
            (None, None)
        );
        let few = PortBlocks::new(
            (parse_ipv4("10.0.0.1"), parse_ipv4("10.0.7.255")),
            &[parse_ipv4("192.0.2.1")],
            1024,
        )
        .unwrap_err();
        assert!(few.0.contains("add addresses outside"), "{}", few.0);
    }

    proptest! {
        #[test]
        fn every_port_of_a_block_leads_back_to_its_host(
            hosts in 1_u32..4000, addresses in 4_usize..40, first in 0_u16..4096, host: prop::sample::Index, port: u16,
        ) {
            let outer: Vec<Ipv4Addr> = (0..addresses).map(|n| Ipv4Addr::new(192, 0, 2, n as u8)).collect();
            let begin = u32::from(parse_ipv4("100.64.0.1"));
            let last = Ipv4Addr::from_bits(begin + hosts - 1);
            let blocks = PortBlocks::new((parse_ipv4("100.64.0.1"), last), &outer, first);
            prop_assume!(blocks.is_ok());
            let blocks = blocks.unwrap();
            let inner = Ipv4Addr::from_bits(begin + host.index(hosts as usize) as u32);
            let block = blocks.block_of_host(inner).unwrap();
            prop_assert!(block.first >= first && block.first <= block.last);
            for port in [block.first, block.last, block.first + port % (block.last - block.first + 1)] {
                prop_assert_eq!(blocks.host_of_port(block.address.into(), port), Some(inner));
            }
        }
    }
}
