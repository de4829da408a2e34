//! Traffic selectors (RFC 4301 §4.4.1.1), as IKE negotiates them (RFC 7296 §3.13.1).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses, with a protocol and a range of ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TrafficSelector {
    /// The IP protocol; 0 for any.
    pub protocol: u8,
    /// The first port, or ICMP type and code. 65535 with a last port of 0 means OPAQUE: packets without visible
    /// ports.
    pub start_port: u16,
    /// The last port.
    pub end_port: u16,
    /// The first address.
    pub start: IpAddr,
    /// The last address, of the same family.
    pub end: IpAddr,
}

impl TrafficSelector {
    /// Creates one for all ports and protocols of a range of addresses. `None` if the families differ, or if the
    /// first is after the last.
    #[must_use]
    pub fn from_range(start: IpAddr, end: IpAddr) -> Option<Self> {
        let fits = start.is_ipv4() == end.is_ipv4() && start <= end;
        fits.then_some(Self { protocol: 0, start_port: 0, end_port: u16::MAX, start, end })
    }
    /// Creates one for all ports and protocols of a network. `None` if the prefix is too long.
    #[must_use]
    pub fn from_network(address: IpAddr, prefix: u8) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => {
                let host = u32::MAX.checked_shr(prefix.into()).unwrap_or(0);
                let first = u32::from(v4) & !host;
                (prefix <= 32).then(|| {
                    Self::from_range(Ipv4Addr::from(first).into(), Ipv4Addr::from(first | host).into())
                })?
            }
            IpAddr::V6(v6) => {
                let host = u128::MAX.checked_shr(prefix.into()).unwrap_or(0);
                let first = u128::from(v6) & !host;
                (prefix <= 128).then(|| {
                    Self::from_range(Ipv6Addr::from(first).into(), Ipv6Addr::from(first | host).into())
                })?
            }
        }
    }
    /// Creates one for all traffic of one address.
    #[must_use]
    pub const fn from_address(address: IpAddr) -> Self {
        Self { protocol: 0, start_port: 0, end_port: u16::MAX, start: address, end: address }
    }
    /// Returns the intersection; `None` if it is empty.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        if self.start.is_ipv4() != other.start.is_ipv4() {
            return None;
        }
        let protocol = match (self.protocol, other.protocol) {
            (a, 0) => a,
            (0, b) => b,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (start, end) = (self.start.max(other.start), self.end.min(other.end));
        let (start_port, end_port) = match (self.is_opaque(), other.is_opaque()) {
            // All ports include OPAQUE, which means packets without visible ports (RFC 7296 §3.13.1).
            (true, true) => (u16::MAX, 0),
            (true, false) if other.has_all_ports() => (u16::MAX, 0),
            (false, true) if self.has_all_ports() => (u16::MAX, 0),
            (true, false) | (false, true) => return None,
            (false, false) => {
                let ports = (self.start_port.max(other.start_port), self.end_port.min(other.end_port));
                if ports.0 > ports.1 {
                    return None;
                }
                ports
            }
        };
        (start <= end).then_some(Self { protocol, start_port, end_port, start, end })
    }
    /// True if it covers all of the other.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.intersection(other) == Some(*other)
    }
    /// True if it matches a packet by the address and port of one end. `port` is `None` if it is not visible.
    #[must_use]
    pub fn matches(&self, protocol: u8, address: IpAddr, port: Option<u16>) -> bool {
        let ports = match port {
            Some(port) => (self.start_port..=self.end_port).contains(&port),
            // RFC 4301, 4.4.1.1, 7.1: only all ports or OPAQUE match packets without visible ports.
            None => self.has_all_ports() || self.is_opaque(),
        };
        // All IPv4 addresses order before all IPv6 addresses, so a range matches no address of the other family.
        ports
            && (self.protocol == 0 || self.protocol == protocol)
            && (self.start..=self.end).contains(&address)
    }
    /// True for OPAQUE: packets without visible ports.
    #[must_use]
    pub const fn is_opaque(&self) -> bool {
        self.start_port == u16::MAX && self.end_port == 0
    }
    /// True if it covers all ports.
    #[must_use]
    pub const fn has_all_ports(&self) -> bool {
        self.start_port == 0 && self.end_port == u16::MAX
    }
}

impl fmt::Display for TrafficSelector {
    /// `10.1.0.0/16`, `10.1.0.7`, `10.1.0.1-10.1.0.9`, followed by protocol and ports: `[6/80]` or `[6/80-90]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        };
        let ((first, width), (last, _)) = (bits(self.start), bits(self.end));
        let host = first ^ last;
        if first == last {
            write!(f, "{}", self.start)?;
        } else if host & host.wrapping_add(1) == 0 && first & host == 0 {
            write!(f, "{}/{}", self.start, width - (u128::BITS - host.leading_zeros()))?;
        } else {
            write!(f, "{}-{}", self.start, self.end)?;
        }
        if self.protocol == 0 && self.has_all_ports() {
            return Ok(());
        }
        write!(f, "[{}", self.protocol)?;
        if self.is_opaque() {
            write!(f, "/opaque")?;
        } else if self.start_port == self.end_port {
            write!(f, "/{}", self.start_port)?;
        } else if !self.has_all_ports() {
            write!(f, "/{}-{}", self.start_port, self.end_port)?;
        }
        f.write_str("]")
    }
}
