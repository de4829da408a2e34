//! Port blocks of hosts that share addresses (RFC 7422): computed, not logged.
//!
//! The sequential algorithm of RFC 7422 §2 without a dynamic pool. The first internal host gets the first block of the
//! first external address, the second host the second block, until the address is used up.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// A port block of an external address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortBlock {
    /// The external address.
    pub address: Ipv4Addr,
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
}

impl PortBlock {
    /// True if the block contains this port of this address.
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

/// The mapping between hosts and port blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortBlockMapping {
    /// The first and the last internal address.
    inner: (u32, u32),
    /// The external addresses.
    outer: Vec<Ipv4Addr>,
    /// The first port that can be assigned. The ports below are reserved.
    first: u16,
    /// Hosts per external address: the compression ratio.
    ratio: u32,
    /// Ports per block.
    size: u32,
}

/// The reason why no blocks can be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortBlockMappingError(
    /// The problem and its remedy.
    pub String,
);

impl PortBlockMapping {
    /// Maps the internal addresses from the first to the last to blocks of these external addresses, from port `first`
    /// on.
    ///
    /// # Errors
    /// A range is empty, or a host would get fewer than 64 ports.
    pub fn new(
        inner: (Ipv4Addr, Ipv4Addr),
        outer: &[Ipv4Addr],
        first: u16,
    ) -> Result<Self, PortBlockMappingError> {
        let (a, b) = (inner.0.to_bits(), inner.1.to_bits());
        let hosts = b.checked_sub(a).and_then(|n| n.checked_add(1));
        let Some(hosts) = hosts.filter(|_| !outer.is_empty()) else {
            return Err(PortBlockMappingError(
                "the range inside and the list of addresses outside must not be empty".into(),
            ));
        };
        let addresses = u32::try_from(outer.len()).unwrap_or(u32::MAX);
        let ratio = hosts.div_ceil(addresses);
        let size = (65_536 - u32::from(first)) / ratio;
        if size < 64 {
            return Err(PortBlockMappingError(alloc::format!(
                "{hosts} hosts behind {addresses} addresses get {size} ports each, but need at least 64: add \
                 addresses outside"
            )));
        }
        Ok(Self { inner: (a, b), outer: outer.to_vec(), first, ratio, size })
    }
    /// Returns the hosts per external address (C of RFC 7422 §2).
    #[must_use]
    pub const fn compression_ratio(&self) -> u32 {
        self.ratio
    }
    /// Returns the ports per host.
    #[must_use]
    pub const fn block_size(&self) -> u32 {
        self.size
    }
    /// Returns the block of a host.
    #[must_use]
    pub fn port_block_of_host(&self, inner: Ipv4Addr) -> Option<PortBlock> {
        let n = inner.to_bits().checked_sub(self.inner.0).filter(|_| inner.to_bits() <= self.inner.1)?;
        let address = *self.outer.get(usize::try_from(n / self.ratio).ok()?)?;
        // RFC 7422, 2: the host's ports are those of its block.
        let first = u32::from(self.first) + n % self.ratio * self.size;
        let port = |n: u32| u16::try_from(n).ok();
        Some(PortBlock { address, first: port(first)?, last: port(first + self.size - 1)? })
    }
    /// Returns the host of an external address and port.
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
        // The example of RFC 7422 §2.3 without a dynamic pool: 14 hosts per address, ports 0-1023 reserved.
        let blocks = PortBlockMapping::new(
            (parse_ipv4("198.51.100.1"), parse_ipv4("198.51.100.14")),
            &[parse_ipv4("192.0.2.1")],
            1024,
        )
        .unwrap();
        assert_eq!((blocks.compression_ratio(), blocks.block_size()), (14, 4608));
        assert_eq!(
            blocks.port_block_of_host(parse_ipv4("198.51.100.1")).unwrap().to_string(),
            "192.0.2.1:1024-5631"
        );
        assert_eq!(
            blocks.port_block_of_host(parse_ipv4("198.51.100.14")).unwrap().to_string(),
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
                blocks.port_block_of_host(parse_ipv4("198.51.100.0")),
                blocks.port_block_of_host(parse_ipv4("198.51.100.15"))
            ),
            (None, None)
        );
        let few = PortBlockMapping::new(
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
            let blocks = PortBlockMapping::new((parse_ipv4("100.64.0.1"), last), &outer, first);
            prop_assume!(blocks.is_ok());
            let blocks = blocks.unwrap();
            let inner = Ipv4Addr::from_bits(begin + host.index(hosts as usize) as u32);
            let block = blocks.port_block_of_host(inner).unwrap();
            prop_assert!(block.first >= first && block.first <= block.last);
            for port in [block.first, block.last, block.first + port % (block.last - block.first + 1)] {
                prop_assert_eq!(blocks.host_of_port(block.address.into(), port), Some(inner));
            }
        }
    }
}
