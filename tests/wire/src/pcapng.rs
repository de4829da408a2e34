//! A reader of Usher's captures, with the parts of IPv4 and UDP that the tests need.

use usher_core::Instant;

const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const ETHERNET: u16 = 1;

/// A packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedPacket {
    /// The time of capture.
    pub timestamp: Instant,
    /// The index of its interface.
    pub interface: u32,
    /// True if it begins with an Ethernet header.
    pub ethernet: bool,
    /// The packet.
    pub bytes: Vec<u8>,
}

/// A UDP datagram within an IPv4 packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpDatagram<'a> {
    /// The source address and port.
    pub from: ([u8; 4], u16),
    /// The destination address and port.
    pub to: ([u8; 4], u16),
    /// The payload.
    pub data: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads the packets of a little-endian pcapng file with timestamps in nanoseconds.
pub(crate) fn read_packets(mut file: &[u8]) -> Vec<CapturedPacket> {
    let mut ethernet = Vec::new();
    let mut packets = Vec::new();
    while !file.is_empty() {
        let length = u32_at(file, 4) as usize;
        let (block, rest) = file.split_at(length);
        match u32_at(block, 0) {
            INTERFACE => ethernet.push(u16_at(block, 8) == ETHERNET),
            PACKET => {
                let interface = u32_at(block, 8);
                let at = u64::from(u32_at(block, 12)) << 32 | u64::from(u32_at(block, 16));
                let bytes = block[28..28 + u32_at(block, 20) as usize].to_vec();
                let ethernet = ethernet[interface as usize];
                packets.push(CapturedPacket {
                    timestamp: Instant::from_nanos(at),
                    interface,
                    ethernet,
                    bytes,
                });
            }
            _ => {}
        }
        file = rest;
    }
    packets
}

/// Returns the UDP datagram of a packet, if it has one.
pub fn udp_datagram(packet: &CapturedPacket) -> Option<UdpDatagram<'_>> {
    let ip = if packet.ethernet { packet.bytes.get(14..)? } else { &packet.bytes };
    if ip.len() < 28 || ip[0] != 0x45 || ip[9] != 17 {
        return None;
    }
    let address = |at: usize| [ip[at], ip[at + 1], ip[at + 2], ip[at + 3]];
    let port = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    Some(UdpDatagram { from: (address(12), port(20)), to: (address(16), port(22)), data: &ip[28..] })
}
