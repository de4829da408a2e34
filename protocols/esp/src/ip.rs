//! IP packets as far as IPsec needs them: addresses, ports, and the offsets of headers and payload.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{OctetReader, TruncatedInputError};

/// Octets of an IPv4 header without options.
pub const IPV4_HEADER: usize = 20;
/// Octets of an IPv6 header.
pub const IPV6_HEADER: usize = 40;

/// IP protocol numbers.
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP, the contents of a tunnel.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header: a dummy packet (RFC 4303 §2.6).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// IPv6 mobility header.
    pub const MOBILITY: u8 = 135;
    /// UDP-Lite.
    pub const UDP_LITE: u8 = 136;
}

/// Most extension headers of a packet.
const EXTENSIONS: usize = 8;

/// The fields that selectors match (RFC 4301 §4.4.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketFlow {
    /// The IP protocol, in IPv6 after the extension headers.
    pub protocol: u8,
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// Source and destination port. For ICMP, both are type and code; for a mobility header, its type (RFC 7296
    /// §3.13.1). `None` if the protocol has no ports, or for a fragment without them.
    pub ports: Option<(u16, u16)>,
}

impl PacketFlow {
    /// Returns the flow of the opposite direction.
    #[must_use]
    pub const fn reverse_flow(&self) -> Self {
        let ports = match self.ports {
            Some((source, destination)) => Some((destination, source)),
            None => None,
        };
        Self { protocol: self.protocol, source: self.destination, destination: self.source, ports }
    }
}

/// A parsed IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpPacket {
    /// The fields that selectors match.
    pub flow: PacketFlow,
    /// Octets of the packet, without anything after it.
    pub length: usize,
    /// Octets of the header, without IPv6 extension headers.
    pub header: usize,
    /// The protocol after the header.
    pub next_header: u8,
    /// The offset of the header of `flow.protocol`. For a later fragment, the offset of its data.
    pub upper: usize,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// True for a fragment.
    pub fragment: bool,
}

/// An invalid IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidIpPacket {
    /// Shorter than its length, or than a header.
    #[error("the packet is shorter than its header says")]
    Short,
    /// An unknown version.
    #[error("the packet has an unknown IP version")]
    Version,
    /// An impossible header length, or too many extension headers.
    #[error("a header of the packet has an invalid length")]
    Header,
}

impl From<TruncatedInputError> for InvalidIpPacket {
    fn from(_: TruncatedInputError) -> Self {
        Self::Short
    }
}

impl IpPacket {
    /// Parses a packet and ignores octets after it.
    ///
    /// # Errors
    /// It is no IP packet.
    pub fn parse(octets: &[u8]) -> Result<Self, InvalidIpPacket> {
        match octets.first().ok_or(InvalidIpPacket::Short)? >> 4 {
            4 => Self::parse_ipv4_packet(octets),
            6 => Self::parse_ipv6_packet(octets),
            _ => Err(InvalidIpPacket::Version),
        }
    }

    fn parse_ipv4_packet(octets: &[u8]) -> Result<Self, InvalidIpPacket> {
        let mut reader = OctetReader::new(octets);
        let header = usize::from(reader.read_u8()? & 15) * 4;
        let traffic_class = reader.read_u8()?;
        let length = usize::from(reader.read_u16()?);
        let (_, offset, _) = (reader.read_u16()?, reader.read_u16()?, reader.read_u8()?);
        let (protocol, _) = (reader.read_u8()?, reader.read_u16()?);
        let source = Ipv4Addr::from(reader.read_array::<4>()?).into();
        let destination = Ipv4Addr::from(reader.read_array::<4>()?).into();
        if header < IPV4_HEADER || length < header {
            return Err(InvalidIpPacket::Header);
        }
        let packet = octets.get(..length).ok_or(InvalidIpPacket::Short)?;
        let (later, fragment) = (offset & 0x1fff != 0, offset & 0x3fff != 0);
        let ports = if later { None } else { parse_ports(protocol, &packet[header..]) };
        let flow = PacketFlow { protocol, source, destination, ports };
        Ok(Self { flow, length, header, next_header: protocol, upper: header, traffic_class, fragment })
    }

    fn parse_ipv6_packet(octets: &[u8]) -> Result<Self, InvalidIpPacket> {
        let mut reader = OctetReader::new(octets);
        let traffic_class = (reader.read_u32()? >> 20) as u8;
        let (payload, next_header, _) =
            (usize::from(reader.read_u16()?), reader.read_u8()?, reader.read_u8()?);
        let source = Ipv6Addr::from(reader.read_array::<16>()?).into();
        let destination = Ipv6Addr::from(reader.read_array::<16>()?).into();
        let mut rest = reader.sub_reader(payload)?;
        let length = IPV6_HEADER + payload;
        let (mut protocol, mut fragment, mut later) = (next_header, false, false);
        let mut passed = 0;
        loop {
            let octets = match protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                    let ahead = rest.peek_rest().get(1).ok_or(InvalidIpPacket::Short)?;
                    usize::from(*ahead) * 8 + 8
                }
                protocol::FRAGMENT => {
                    let offset = rest.peek_rest().get(2..4).ok_or(InvalidIpPacket::Short)?;
                    fragment = true;
                    later = u16::from_be_bytes([offset[0], offset[1]]) & !7 != 0;
                    8
                }
                _ => break,
            };
            passed += 1;
            if passed > EXTENSIONS {
                return Err(InvalidIpPacket::Header);
            }
            protocol = rest.read_bytes(octets)?[0];
            // In a later fragment, the first header is followed by data and not by another header.
            if later {
                break;
            }
        }
        let ports = if later { None } else { parse_ports(protocol, rest.peek_rest()) };
        let flow = PacketFlow { protocol, source, destination, ports };
        let upper = length - rest.remaining();
        Ok(Self { flow, length, header: IPV6_HEADER, next_header, upper, traffic_class, fragment })
    }
}

/// Returns the ports from the first octets of a protocol's header.
pub(crate) fn parse_ports(protocol: u8, octets: &[u8]) -> Option<(u16, u16)> {
    let &[a, b, ..] = octets else { return None };
    let first = u16::from_be_bytes([a, b]);
    match protocol {
        protocol::ICMP | protocol::ICMPV6 => Some((first, first)),
        protocol::MOBILITY => octets.get(2).map(|kind| (u16::from(*kind) << 8, u16::from(*kind) << 8)),
        protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE => {
            let second = octets.get(2..4)?;
            Some((first, u16::from_be_bytes([second[0], second[1]])))
        }
        _ => None,
    }
}

/// Adds octets to a sum for the Internet checksum (RFC 1071). An odd last octet is padded with zero.
#[must_use]
pub fn sum_octets(octets: &[u8], initial: u64) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    let mut tail = [0; 4];
    tail[..rest.len()].copy_from_slice(rest);
    // The sum is in native byte order, which `fold_checksum` corrects.
    let all: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    initial + all + u64::from(u32::from_ne_bytes(tail))
}

/// Returns the Internet checksum of a sum, as the two octets of a header.
#[must_use]
pub fn fold_checksum(sum: u64) -> [u8; 2] {
    let mut sum = sum;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_ne_bytes()
}

/// Returns the sum of the pseudo-header of TCP, UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).
#[must_use]
pub fn pseudo_header_sum(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> u64 {
    let ends = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => sum_octets(&b.octets(), sum_octets(&a.octets(), 0)),
        (IpAddr::V6(a), IpAddr::V6(b)) => sum_octets(&b.octets(), sum_octets(&a.octets(), 0)),
        _ => 0,
    };
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    sum_octets(&[0, 0, 0, protocol], sum_octets(&length, ends))
}

/// Writes an IP header for this many octets of a protocol. IPv4 packets have DF set, so they need no identification
/// (RFC 6864 §4.1).
pub fn write_header(
    buf: &mut Vec<u8>,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    class: u8,
    length: usize,
) {
    const HOPS: u8 = 64;
    const DONT_FRAGMENT: u8 = 0x40;
    let start = buf.len();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let total = u16::try_from(length + IPV4_HEADER).unwrap_or(u16::MAX).to_be_bytes();
            buf.extend_from_slice(&[
                0x45,
                class,
                total[0],
                total[1],
                0,
                0,
                DONT_FRAGMENT,
                0,
                HOPS,
                protocol,
                0,
                0,
            ]);
            buf.extend_from_slice(&source.octets());
            buf.extend_from_slice(&destination.octets());
            let code = fold_checksum(sum_octets(&buf[start..], 0));
            buf[start + 10..start + 12].copy_from_slice(&code);
        }
        (source, destination) => {
            let v6 = |address: IpAddr| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
            buf.extend_from_slice(&[
                0x60 | class >> 4,
                class << 4,
                0,
                0,
                length[0],
                length[1],
                protocol,
                HOPS,
            ]);
            buf.extend_from_slice(&v6(source).octets());
            buf.extend_from_slice(&v6(destination).octets());
        }
    }
}

/// Explicit congestion notification: the low two bits of the traffic class (RFC 3168 §5).
const ECN: u8 = 3;

/// RFC 4301 §5.1.2.1: copies the congestion mark of the outer header to an inner packet whose ends support ECN.
pub(crate) fn copy_ecn_congestion_mark(packet: &mut [u8], outer: u8) {
    let v4 = packet.first().is_some_and(|octet| octet >> 4 == 4);
    let Some(head) = packet.first_chunk_mut::<IPV4_HEADER>().filter(|_| outer & ECN == ECN) else { return };
    let inner = if v4 { head[1] & ECN } else { head[1] >> 4 & ECN };
    if inner == 0 || inner == ECN {
        return;
    }
    if !v4 {
        head[1] |= ECN << 4;
        return;
    }
    let before = u16::from_ne_bytes([head[0], head[1]]);
    head[1] |= ECN;
    let after = u16::from_ne_bytes([head[0], head[1]]);
    // RFC 1624: the checksum is the complement of a sum; subtract the old word and add the new one.
    let code = u16::from_ne_bytes([head[10], head[11]]);
    let code = fold_checksum(u64::from(!code) + u64::from(!before) + u64::from(after));
    head[10..12].copy_from_slice(&code);
}

/// Recomputes the checksum of TCP or UDP after a NAT has changed addresses (RFC 3948 §3.1.2).
pub(crate) fn recompute_transport_checksum(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    octets: &mut [u8],
) {
    let at = match protocol {
        protocol::TCP => 16,
        // A checksum of zero means that the sender computed none, so there is none to renew.
        protocol::UDP if octets.get(6..8).is_some_and(|code| code == [0, 0]) => return,
        protocol::UDP => 6,
        _ => return,
    };
    let Some(code) = octets.get_mut(at..at + 2) else { return };
    code.fill(0);
    let made =
        fold_checksum(sum_octets(octets, pseudo_header_sum(source, destination, protocol, octets.len())));
    let made = if protocol == protocol::UDP && made == [0, 0] { [0xff; 2] } else { made };
    if let Some(code) = octets.get_mut(at..at + 2) {
        code.copy_from_slice(&made);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ipv4_address(a: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, a).into()
    }
    fn ipv6_address(a: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, a).into()
    }

    fn test_packet(source: IpAddr, destination: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut buf = Vec::new();
        write_header(&mut buf, source, destination, protocol, 0xb8, payload.len());
        buf.extend_from_slice(payload);
        buf
    }

    #[test]
    fn a_header_that_is_written_is_read_again() {
        for (source, destination, header) in
            [(ipv4_address(1), ipv4_address(2), 20), (ipv6_address(1), ipv6_address(2), 40)]
        {
            let octets = test_packet(source, destination, protocol::UDP, &[0, 53, 2, 0, 9, 9]);
            let read = IpPacket::parse(&octets).unwrap();
            let flow = PacketFlow { protocol: 17, source, destination, ports: Some((53, 512)) };
            let want = IpPacket {
                flow,
                length: header + 6,
                header,
                next_header: 17,
                upper: header,
                traffic_class: 0xb8,
                fragment: false,
            };
            assert_eq!(read, want);
            if header == 20 {
                assert_eq!(fold_checksum(sum_octets(&octets[..20], 0)), [0, 0]);
            }
            assert_eq!(IpPacket::parse(&octets[..octets.len() - 1]), Err(InvalidIpPacket::Short));
            assert_eq!(flow.reverse_flow().ports, Some((512, 53)));
        }
        assert_eq!(IpPacket::parse(&[0x50]), Err(InvalidIpPacket::Version));
        assert_eq!(IpPacket::parse(&[]), Err(InvalidIpPacket::Short));
    }

    #[test]
    fn ports_are_where_the_protocol_has_them_and_the_packet_too() {
        let of = |protocol, payload: &[u8]| {
            IpPacket::parse(&test_packet(ipv4_address(1), ipv4_address(2), protocol, payload))
                .unwrap()
                .flow
                .ports
        };
        assert_eq!(of(protocol::TCP, &[0, 1, 0, 2]), Some((1, 2)));
        assert_eq!(of(protocol::TCP, &[0, 1, 0]), None);
        assert_eq!(of(protocol::ICMP, &[8, 0, 9, 9]), Some((0x800, 0x800)));
        assert_eq!(of(protocol::MOBILITY, &[59, 0, 5, 0]), Some((0x500, 0x500)));
        assert_eq!(of(50, &[0; 8]), None);
        // A later fragment has data at the place of the ports.
        let mut later = test_packet(ipv4_address(1), ipv4_address(2), protocol::TCP, &[0, 1, 0, 2]);
        later[7] = 1;
        let read = IpPacket::parse(&later).unwrap();
        assert_eq!((read.flow.ports, read.fragment), (None, true));
        // The first fragment has them.
        (later[6], later[7]) = (0x20, 0);
        let read = IpPacket::parse(&later).unwrap();
        assert_eq!((read.flow.ports, read.fragment), (Some((1, 2)), true));
    }

    #[test]
    fn extension_headers_are_passed_over() {
        let mut payload =
            [[protocol::ROUTING, 0, 0, 0, 0, 0, 0, 0], [protocol::FRAGMENT, 0, 0, 0, 0, 0, 0, 0]].concat();
        payload.extend([protocol::UDP, 0, 0, 1, 0, 0, 0, 7]);
        payload.extend([0, 1, 0, 2]);
        let octets = test_packet(ipv6_address(1), ipv6_address(2), protocol::HOP_BY_HOP, &payload);
        let read = IpPacket::parse(&octets).unwrap();
        assert_eq!((read.flow.protocol, read.flow.ports, read.upper), (17, Some((1, 2)), 64));
        assert_eq!((read.next_header, read.fragment), (protocol::HOP_BY_HOP, true));
        // A later fragment.
        let mut later = octets.clone();
        later[40 + 16 + 3] = 8;
        let read = IpPacket::parse(&later).unwrap();
        assert_eq!((read.flow.protocol, read.flow.ports), (17, None));
        // A header that exceeds the packet, and too many headers.
        let mut long = octets;
        long[41] = 9;
        assert_eq!(IpPacket::parse(&long), Err(InvalidIpPacket::Short));
        let many = test_packet(ipv6_address(1), ipv6_address(2), protocol::HOP_BY_HOP, &[0; 80]);
        assert_eq!(IpPacket::parse(&many), Err(InvalidIpPacket::Header));
    }

    #[test]
    fn congestion_is_taken_over_where_the_ends_know_of_it() {
        for (inner, outer, want) in [(0, 3, 0), (1, 3, 3), (2, 3, 3), (3, 3, 3), (2, 0, 2), (2, 1, 2)] {
            for (source, destination) in
                [(ipv4_address(1), ipv4_address(2)), (ipv6_address(1), ipv6_address(2))]
            {
                let mut buf = Vec::new();
                write_header(&mut buf, source, destination, 6, 0xb8 | inner, 0);
                copy_ecn_congestion_mark(&mut buf, outer);
                assert_eq!(IpPacket::parse(&buf).unwrap().traffic_class, 0xb8 | want);
                if source.is_ipv4() {
                    assert_eq!(fold_checksum(sum_octets(&buf, 0)), [0, 0]);
                }
            }
        }
    }

    #[test]
    fn checksums_are_renewed_for_other_addresses() {
        for (protocol, at) in [(protocol::TCP, 16), (protocol::UDP, 6)] {
            let mut payload = [7u8; 25];
            recompute_transport_checksum(protocol, ipv4_address(1), ipv4_address(2), &mut payload);
            let first = payload;
            recompute_transport_checksum(protocol, ipv4_address(9), ipv4_address(2), &mut payload);
            assert_ne!(first[at..at + 2], payload[at..at + 2]);
            let all = sum_octets(
                &payload,
                pseudo_header_sum(ipv4_address(9), ipv4_address(2), protocol, payload.len()),
            );
            assert_eq!(fold_checksum(all), [0, 0]);
        }
        let mut none = [0; 8];
        recompute_transport_checksum(protocol::UDP, ipv4_address(1), ipv4_address(2), &mut none);
        assert_eq!(none, [0; 8], "UDP without a checksum has none");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_leaving_them(mut octets: Vec<u8>, version in prop_oneof![Just(0x45u8), Just(0x60)]) {
            if let Some(first) = octets.first_mut() {
                *first = version;
            }
            if let Ok(read) = IpPacket::parse(&octets) {
                prop_assert!(read.header <= read.upper && read.upper <= read.length && read.length <= octets.len());
            }
        }

        /// The definition of RFC 1071, octet by octet.
        #[test]
        fn the_sum_is_that_of_words_of_16_bits(octets in proptest::collection::vec(any::<u8>(), 0..90)) {
            let mut slow = 0u32;
            for pair in octets.chunks(2) {
                slow += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
                slow = (slow & 0xffff) + (slow >> 16);
            }
            prop_assert_eq!(fold_checksum(sum_octets(&octets, 0)), (!(slow as u16)).to_be_bytes());
        }
    }
}
