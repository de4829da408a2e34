//! Host addresses and networks.

use core::net::IpAddr;

/// True if a host can have this address on a network with routes to others.
///
/// Sources: RFC 1122 §3.2.1.3, RFC 3927 §2.7, RFC 4291 §2.4.
///
/// It is false for the unspecified address, 0.0.0.0/8, loopback, link-local, multicast, broadcast, 240.0.0.0/4 and
/// IPv4-mapped addresses. It is true for private and documentation addresses.
#[must_use]
pub fn is_host_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            first != 0 && first < 224 && !v4.is_loopback() && !v4.is_link_local()
        }
        IpAddr::V6(v6) => {
            let none = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            !none && !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none()
        }
    }
}

/// Returns an address without the bits that one subscriber can choose freely. An IPv6 address keeps its first 64 bits;
/// an IPv4-mapped address becomes IPv4.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// True if the address is in the network with this prefix length. An IPv4-mapped address counts as IPv4.
#[must_use]
pub fn is_within(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    };
    let (address, network) = (address.to_canonical(), network.to_canonical());
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
    network.is_ipv4() == address.is_ipv4() && (number(network) ^ number(address)) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_has_all_of_a_64() {
        let host = |address: &str| host_of(address.parse().unwrap()).to_string();
        assert_eq!(host("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!((host("::ffff:192.0.2.1"), host("192.0.2.1")), ("192.0.2.1".into(), "192.0.2.1".into()));
    }

    #[test]
    fn addresses_of_hosts_are_told_from_others() {
        for right in ["10.9.0.1", "192.0.2.1", "100.64.0.1", "223.255.255.255", "2001:db8::1", "fd00::1"] {
            assert!(is_host_address(right.parse().unwrap()), "{right}");
        }
        for wrong in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.254",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_host_address(wrong.parse().unwrap()), "{wrong}");
        }
    }

    #[test]
    fn networks_have_their_leading_bits_in_common() {
        let within = |address: &str, network: &str, bits| {
            is_within(address.parse().unwrap(), (network.parse().unwrap(), bits))
        };
        assert!(within("192.0.2.200", "192.0.2.0", 24) && !within("192.0.3.1", "192.0.2.0", 24));
        assert!(within("::ffff:192.0.2.1", "192.0.2.1", 32) && !within("192.0.2.2", "192.0.2.1", 32));
        assert!(within("198.51.100.1", "0.0.0.0", 0) && !within("2001:db8::1", "0.0.0.0", 0));
        assert!(within("2001:db8::1", "2001:db8::", 64) && !within("2001:db8:0:1::1", "2001:db8::", 64));
    }
}
