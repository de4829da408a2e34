//! Addresses of simulated hosts: each host has an IPv4 and an IPv6 address and a MAC address per port,
//! all computed from its number, so that nothing has to be looked up.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host of the simulation: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

/// Which version of IP a simulation speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IpVersion {
    /// IPv4, 20 bytes of header.
    #[default]
    V4,
    /// IPv6, 40 bytes of header.
    V6,
}

impl IpVersion {
    /// Bytes of the header without options or extension headers.
    pub const fn header_len(self) -> u32 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// The most hosts that addresses can be computed for (10.0.0.0/8 without its ends).
pub const MAX_HOSTS: u32 = (1 << 24) - 2;

impl HostId {
    /// The host's address: 10.0.0.0/8 plus its number plus one, or fd00::/64 likewise.
    pub fn ip(self, version: IpVersion) -> IpAddr {
        let n = self.0 + 1;
        match version {
            IpVersion::V4 => IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | n)),
            IpVersion::V6 => IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n))),
        }
    }

    /// The host's further address number `path`, for a multihomed host: 100.0.0.0/8 and the /8s above it, or
    /// fd00:path::/64; number 0 is [`HostId::ip`].
    pub fn ip_of_path(self, version: IpVersion, path: u8) -> IpAddr {
        let (n, path) = (self.0 + 1, u32::from(path));
        match version {
            _ if path == 0 => self.ip(version),
            IpVersion::V4 => IpAddr::V4(Ipv4Addr::from_bits((100 + path % 100) << 24 | n)),
            IpVersion::V6 => {
                IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(path) << 96 | u128::from(n)))
            }
        }
    }

    /// The host that has this address, if any could.
    pub fn of_ip(ip: IpAddr) -> Option<Self> {
        let n = match ip {
            IpAddr::V4(a) if a.octets()[0] == 10 => a.to_bits() & 0x00ff_ffff,
            IpAddr::V6(a) if a.to_bits() >> 32 == 0xfd00 << 80 => a.to_bits() as u32,
            _ => return None,
        };
        n.checked_sub(1).map(Self)
    }

    /// The locally administered MAC address of the host's port.
    pub fn mac(self, port: u32) -> [u8; 6] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [0x02, 0, port as u8, a, b, c]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_their_host() {
        for n in [0, 1, 254, 65_535, MAX_HOSTS - 1] {
            for v in [IpVersion::V4, IpVersion::V6] {
                assert_eq!(HostId::of_ip(HostId(n).ip(v)), Some(HostId(n)));
            }
        }
        assert_eq!(HostId(0).ip(IpVersion::V4).to_string(), "10.0.0.1");
        assert_eq!(HostId(0).ip(IpVersion::V6).to_string(), "fd00::1");
        assert_eq!(HostId::of_ip("192.0.2.1".parse().unwrap()), None);
    }
}
