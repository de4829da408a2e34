//! Addresses of simulated hosts: an IPv4 and an IPv6 address, and a MAC address per port. A host's number
//! determines them without a lookup, unless the host was assigned an address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host of the simulation: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

/// The IP version of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IpVersion {
    /// IPv4, 20 bytes of header.
    #[default]
    V4,
    /// IPv6, 40 bytes of header.
    V6,
}

impl IpVersion {
    /// Returns the octets of the header without options or extension headers.
    pub const fn header_len(self) -> u32 {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// Maximum number of hosts with addresses (10.0.0.0/8 without its ends).
pub const MAX_HOSTS: u32 = (1 << 24) - 2;

impl HostId {
    /// Returns the host's address: 10.0.0.0/8 plus its number plus one, or fd00::/64 likewise.
    pub fn ip_address(self, version: IpVersion) -> IpAddr {
        let n = self.0 + 1;
        match version {
            IpVersion::V4 => IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | n)),
            IpVersion::V6 => IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(n))),
        }
    }

    /// Returns address number `path` of a multihomed host: in 100.0.0.0/8 and the /8s above it, or fd00:path::/64.
    /// Number 0 is [`HostId::ip_address`].
    pub fn multihomed_path_address(self, version: IpVersion, path: u8) -> IpAddr {
        let (n, path) = (self.0 + 1, u32::from(path));
        match version {
            _ if path == 0 => self.ip_address(version),
            IpVersion::V4 => IpAddr::V4(Ipv4Addr::from_bits((100 + path % 100) << 24 | n)),
            IpVersion::V6 => {
                IpAddr::V6(Ipv6Addr::from_bits(0xfd00 << 112 | u128::from(path) << 96 | u128::from(n)))
            }
        }
    }

    /// Returns the host that this address belongs to, if any could have it.
    pub fn host_of_ip_address(ip: IpAddr) -> Option<Self> {
        let n = match ip {
            IpAddr::V4(a) if a.octets()[0] == 10 => a.to_bits() & 0x00ff_ffff,
            IpAddr::V6(a) if a.to_bits() >> 32 == 0xfd00 << 80 => a.to_bits() as u32,
            _ => return None,
        };
        n.checked_sub(1).map(Self)
    }

    /// Returns the locally administered MAC address of the host's port.
    pub fn mac_address(self, port: u32) -> [u8; 6] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [0x02, 0, port as u8, a, b, c]
    }
}

/// The addresses of hosts, including assigned ones: those of the network that a study rehearses, which
/// configurations name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostAddresses {
    version: IpVersion,
    assigned: BTreeMap<HostId, IpAddr>,
    hosts: BTreeMap<IpAddr, HostId>,
}

impl HostAddresses {
    /// Creates a table where each host has the address of its number.
    #[must_use]
    pub fn new(version: IpVersion) -> Self {
        Self { version, ..Self::default() }
    }
    /// Assigns an address to a host. False if another host was assigned it, or if it is of the other IP version. The
    /// caller checks that no host keeps it as the address of its number.
    pub fn assign_address(&mut self, host: HostId, address: IpAddr) -> bool {
        let fits = address.is_ipv4() == (self.version == IpVersion::V4);
        let free = !self.hosts.contains_key(&address) && !self.assigned.contains_key(&host);
        if fits && free {
            self.assigned.insert(host, address);
            self.hosts.insert(address, host);
        }
        fits && free
    }
    /// Returns the host's address.
    #[must_use]
    #[inline]
    pub fn address_of(&self, host: HostId) -> IpAddr {
        if self.assigned.is_empty() {
            return host.ip_address(self.version);
        }
        self.assigned.get(&host).copied().unwrap_or_else(|| host.ip_address(self.version))
    }
    /// Returns the host's address number `path`; number 0 is [`address_of`](Self::address_of).
    #[must_use]
    pub fn of_path(&self, host: HostId, path: u8) -> IpAddr {
        if path == 0 { self.address_of(host) } else { host.multihomed_path_address(self.version, path) }
    }
    /// Returns the host that this address belongs to, if any could have it.
    #[must_use]
    #[inline]
    pub fn host_at(&self, address: IpAddr) -> Option<HostId> {
        if self.assigned.is_empty() {
            return HostId::host_of_ip_address(address);
        }
        let named = self.hosts.get(&address).copied();
        named.or_else(|| HostId::host_of_ip_address(address).filter(|host| !self.assigned.contains_key(host)))
    }
    /// True if a listener at `address` on a host is reachable from others: the address is the host's own or
    /// unspecified.
    #[must_use]
    pub fn is_reachable_at(&self, host: HostId, address: IpAddr) -> bool {
        address == self.address_of(host)
            || (address.is_unspecified() && address.is_ipv4() == (self.version == IpVersion::V4))
    }
    /// Returns the IP version of the addresses.
    #[must_use]
    pub const fn ip_version(&self) -> IpVersion {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_back_to_their_host() {
        for n in [0, 1, 254, 65_535, MAX_HOSTS - 1] {
            for v in [IpVersion::V4, IpVersion::V6] {
                assert_eq!(HostId::host_of_ip_address(HostId(n).ip_address(v)), Some(HostId(n)));
            }
        }
        assert_eq!(HostId(0).ip_address(IpVersion::V4).to_string(), "10.0.0.1");
        assert_eq!(HostId(0).ip_address(IpVersion::V6).to_string(), "fd00::1");
        assert_eq!(HostId::host_of_ip_address("192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn further_addresses_and_ports_are_told_apart() {
        let of_path = |version, host, path| HostId(host).multihomed_path_address(version, path).to_string();
        assert_eq!(of_path(IpVersion::V4, 0, 0), "10.0.0.1");
        assert_eq!(of_path(IpVersion::V4, 0x01_02_02, 3), "103.1.2.3");
        assert_eq!(of_path(IpVersion::V6, 0, 0), "fd00::1");
        assert_eq!(of_path(IpVersion::V6, 0x01_02_02, 3), "fd00:3::1:203");
        // Locally administered and of one station.
        assert_eq!(HostId(0x01_02_03).mac_address(4), [0x02, 0, 4, 1, 2, 3]);
    }

    #[test]
    fn a_host_serves_at_its_own_and_at_the_unspecified_address() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (version, own, any, other) in
            [(IpVersion::V4, "10.0.0.1", "0.0.0.0", "::"), (IpVersion::V6, "fd00::1", "::", "0.0.0.0")]
        {
            let addresses = HostAddresses::new(version);
            assert!(
                addresses.is_reachable_at(HostId(0), ip(own))
                    && addresses.is_reachable_at(HostId(0), ip(any))
            );
            assert!(
                !addresses.is_reachable_at(HostId(1), ip(own))
                    && !addresses.is_reachable_at(HostId(0), ip(other))
            );
            assert!(!addresses.is_reachable_at(HostId(0), ip("127.0.0.1")));
        }
    }

    #[test]
    fn a_given_address_stands_in_the_place_of_the_hosts_number() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut addresses = HostAddresses::new(IpVersion::V4);
        assert!(addresses.assign_address(HostId(3), ip("192.0.2.7")));
        assert!(!addresses.assign_address(HostId(4), ip("192.0.2.7")), "it is taken");
        assert!(!addresses.assign_address(HostId(3), ip("192.0.2.8")), "a host has one");
        assert!(!addresses.assign_address(HostId(4), ip("2001:db8::1")), "this network speaks IPv4");
        assert_eq!(
            (addresses.address_of(HostId(3)), addresses.address_of(HostId(4))),
            (ip("192.0.2.7"), ip("10.0.0.5"))
        );
        assert_eq!(addresses.host_at(ip("192.0.2.7")), Some(HostId(3)));
        assert_eq!(
            (addresses.host_at(ip("10.0.0.4")), addresses.host_at(ip("10.0.0.5"))),
            (None, Some(HostId(4)))
        );
        assert_eq!(addresses.of_path(HostId(3), 1), HostId(3).multihomed_path_address(IpVersion::V4, 1));
    }
}
