//! IPv6 prefixes as attributes have them: Framed-IPv6-Prefix (RFC 3162 §2.3), Delegated-IPv6-Prefix (RFC 4818 §3).

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use usher_radius::attribute::{AttributeDataType, AttributeValue};

/// Encodes an IPv6 prefix for an attribute or AVP (RFC 3162 §2.3). At most 128 bits; the others are cleared. The value
/// has the fewest octets.
#[must_use]
pub fn ipv6_prefix(prefix: Ipv6Addr, bits: u8) -> Vec<u8> {
    let bits = bits.min(128);
    let beyond = u128::MAX.checked_shr(bits.into()).unwrap_or(0);
    let mut value = Vec::with_capacity(18);
    AttributeValue::Ipv6Prefix(Ipv6Addr::from(u128::from(prefix) & !beyond), bits).encode(&mut value);
    value
}

/// Parses such a value of any length: a prefix and its bits.
pub(crate) fn decode_ipv6_prefix(value: &[u8]) -> Option<(Ipv6Addr, u8)> {
    match AttributeValue::decode(AttributeDataType::Ipv6Prefix, value) {
        Ok(AttributeValue::Ipv6Prefix(prefix, bits)) => Some((prefix, bits)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_only_the_octets_and_bits_it_needs() {
        let prefix = "2001:db8:1:2fff::9".parse().unwrap();
        assert_eq!(ipv6_prefix(prefix, 52), [0, 52, 0x20, 1, 0x0d, 0xb8, 0, 1, 0x20]);
        assert_eq!(ipv6_prefix(prefix, 0), [0, 0]);
        assert_eq!(ipv6_prefix(prefix, 200).len(), 18);
        assert_eq!(decode_ipv6_prefix(&ipv6_prefix(prefix, 128)), Some((prefix, 128)));
        let same = ("2000::".parse().unwrap(), 8);
        assert_eq!(decode_ipv6_prefix(&[0, 8, 0x20]), Some(same));
        assert_eq!(decode_ipv6_prefix(&[&[0, 8, 0x20][..], &[0; 15]].concat()), Some(same), "all octets");
        assert_eq!(decode_ipv6_prefix(&[0, 8]), None);
    }
}
