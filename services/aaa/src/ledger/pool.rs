//! Address pools.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

/// Addresses or prefixes that a pool gives out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Range {
    /// Each address from the first to the last, both of one family.
    Addresses {
        /// The first.
        first: IpAddr,
        /// The last; not less than the first.
        last: IpAddr,
    },
    /// Each IPv6 prefix of a length within a network: every /64 of a /48.
    Prefixes {
        /// The network.
        network: Ipv6Addr,
        /// The network's length, at most `each`.
        length: u8,
        /// The length of what is given out.
        each: u8,
    },
}

/// A named pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// Its name: a user's `Pool-Name`.
    pub name: String,
    /// What it gives out: an address, where there are ranges of addresses, and a prefix, where there are ranges of
    /// prefixes.
    pub ranges: Vec<Range>,
}
