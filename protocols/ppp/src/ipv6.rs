//! Packets that both ends of a link exchange by IPv6: router advertisements (RFC 4861) and prefix delegation by DHCPv6
//! (RFC 8415). The data plane carries all other packets.

pub mod dhcp;
pub(crate) mod host;
pub mod neighbor;
pub(crate) mod router;

use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use usher_core::{OctetReader, OctetWriter};

/// All nodes of the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of the link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// All DHCPv6 servers and relay agents of the link (RFC 8415 §7.1).
pub const ALL_DHCP_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// Next header of UDP; of ICMPv6.
const UDP: u8 = 17;
const ICMP: u8 = 58;
/// The ports of DHCPv6 (RFC 8415 §7.2).
const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;

/// An IPv6 prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ipv6Prefix {
    address: Ipv6Addr,
    length: u8,
}

impl Ipv6Prefix {
    /// Creates a prefix of `length` bits, and zeroes the host bits. `None`: more than 128 bits.
    #[must_use]
    pub fn new(address: Ipv6Addr, length: u8) -> Option<Self> {
        let mask = u128::MAX.checked_shl(128u32.checked_sub(length.into())?).unwrap_or(0);
        // RFC 4861, 4.6.2: bits after the prefix length are ignored.
        Some(Self { address: Ipv6Addr::from_bits(address.to_bits() & mask), length })
    }
    /// Returns the first address.
    #[must_use]
    pub const fn address(&self) -> Ipv6Addr {
        self.address
    }
    /// Returns the length in bits.
    #[must_use]
    pub const fn prefix_length(&self) -> u8 {
        self.length
    }
}

impl fmt::Display for Ipv6Prefix {
    /// `2001:db8::/48`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl fmt::Debug for Ipv6Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The payload of an IPv6 packet that may be for an end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkLocalPayload<'a> {
    /// ICMPv6: type, code, and the message after a correct checksum.
    Icmp { kind: u8, code: u8, body: &'a [u8] },
    /// A DHCPv6 message to a server or to a client.
    Dhcp { for_server: bool, message: &'a [u8] },
}

/// An IPv6 packet of the link itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LinkLocalPacket<'a> {
    pub(crate) source: Ipv6Addr,
    pub(crate) hop_limit: u8,
    pub(crate) payload: LinkLocalPayload<'a>,
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.to_bits() >> 118 == 0xfe80 >> 6
}

/// True if the destination is link-local: an end of the link, or a link-local multicast group.
fn is_link_local_destination(destination: Ipv6Addr) -> bool {
    is_link_local(destination) || [ALL_NODES, ALL_ROUTERS, ALL_DHCP_SERVERS].contains(&destination)
}

impl<'a> LinkLocalPacket<'a> {
    /// Parses a packet. `None`: it is not for an end of the link, or a length or the checksum is wrong.
    pub(crate) fn parse(octets: &'a [u8]) -> Option<Self> {
        let mut r = OctetReader::new(octets);
        if r.read_u32().ok()? >> 28 != 6 {
            return None;
        }
        let length = r.read_u16().ok()?;
        let (next, hop_limit) = (r.read_u8().ok()?, r.read_u8().ok()?);
        let (source, destination) =
            (Ipv6Addr::from(r.read_array().ok()?), Ipv6Addr::from(r.read_array().ok()?));
        let payload = r.read_bytes(length.into()).ok()?;
        // RFC 4443, 2.3; RFC 4861, 6.1.1, 6.1.2: a wrong checksum drops the packet.
        if !is_link_local_destination(destination)
            || compute_checksum(source, destination, next, payload) != 0
        {
            return None;
        }
        let mut p = OctetReader::new(payload);
        let carried = match next {
            ICMP => {
                let (kind, code, _) = (p.read_u8().ok()?, p.read_u8().ok()?, p.read_u16().ok()?);
                LinkLocalPayload::Icmp { kind, code, body: p.take_rest() }
            }
            UDP => {
                let (from, to, length, _) =
                    (p.read_u16().ok()?, p.read_u16().ok()?, p.read_u16().ok()?, p.read_u16().ok()?);
                let message = p.read_bytes(usize::from(length).checked_sub(8)?).ok()?;
                match (from, to) {
                    (_, SERVER_PORT) => LinkLocalPayload::Dhcp { for_server: true, message },
                    (SERVER_PORT, CLIENT_PORT) => LinkLocalPayload::Dhcp { for_server: false, message },
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Self { source, hop_limit, payload: carried })
    }
}

/// Computes the checksum of ICMPv6 and UDP with the pseudo-header (RFC 4443 §2.3). Over a payload with a correct
/// checksum the result is 0.
fn compute_checksum(source: Ipv6Addr, destination: Ipv6Addr, next: u8, payload: &[u8]) -> u16 {
    let mut sum = payload.len() as u64 + u64::from(next);
    for part in [&source.octets()[..], &destination.octets(), payload] {
        for pair in part.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    }
    while sum > u64::from(u16::MAX) {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Builds a packet around a payload, and sets the payload's checksum at offset `at`, which must be zero.
fn build_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next: u8,
    mut payload: Vec<u8>,
    at: usize,
) -> Vec<u8> {
    let sum = match compute_checksum(source, destination, next, &payload) {
        0 => u16::MAX,
        sum => sum,
    };
    if let Some(field) = payload.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    let mut out = Vec::with_capacity(40 + payload.len());
    let mut w = OctetWriter::new(&mut out);
    w.write_u32(6 << 28).write_u16(payload.len() as u16).write_u8(next).write_u8(255);
    w.write_bytes(&source.octets()).write_bytes(&destination.octets()).write_bytes(&payload);
    out
}

/// Builds an ICMPv6 packet. Its hop limit of 255 proves that it comes from the link (RFC 4861 §3.1).
pub(crate) fn icmp_packet(source: Ipv6Addr, destination: Ipv6Addr, message: Vec<u8>) -> Vec<u8> {
    build_packet(source, destination, ICMP, message, 2)
}

/// Builds a DHCPv6 packet to a server or to a client.
pub(crate) fn dhcp_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    to_server: bool,
    message: &[u8],
) -> Vec<u8> {
    let (from, to) = if to_server { (CLIENT_PORT, SERVER_PORT) } else { (SERVER_PORT, CLIENT_PORT) };
    let mut payload = Vec::new();
    OctetWriter::new(&mut payload)
        .write_u16(from)
        .write_u16(to)
        .write_u16(8 + message.len() as u16)
        .write_u16(0)
        .write_bytes(message);
    build_packet(source, destination, UDP, payload, 6)
}
