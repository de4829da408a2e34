//! Segmentation and checksum offload of packets, by the header `struct virtio_net_hdr` (VIRTIO specification,
//! §5.1.6).

use crate::VNET_HEADER;
use usher_esp::ip::{self, IpPacket, protocol};

const NEEDS_CHECKSUM: u8 = 1;
const NO_SEGMENTS: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
/// A flag beside the GSO type: only the first segment carries CWR.
const CONGESTION: u8 = 0x80;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// A header that contradicts its packet or itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VnetHeaderError;

/// The header in front of each packet of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VnetHeader {
    flags: u8,
    kind: u8,
    headers: u16,
    each: u16,
    start: u16,
    offset: u16,
}

impl VnetHeader {
    /// True if the receiver computes the checksum of TCP or UDP. Its field holds the sum of the pseudo-header.
    #[must_use]
    pub const fn has_partial_checksum(&self) -> bool {
        self.flags & NEEDS_CHECKSUM != 0
    }
    /// Completes a partial checksum in `octets`, of any protocol.
    ///
    /// # Errors
    /// The header's offsets lie outside the packet.
    pub fn complete_checksum(self, octets: &mut [u8]) -> Result<(), VnetHeaderError> {
        // A computed checksum of UDP is never zero. TCP's may be 0 or 0xffff.
        if self.has_partial_checksum() {
            complete_partial_checksum(self, octets, protocol::UDP).ok_or(VnetHeaderError)
        } else {
            Ok(())
        }
    }
    /// Returns the header for a packet with `octets` more in front.
    #[must_use]
    pub const fn shift_header_offsets(self, octets: u16) -> Self {
        Self { start: self.start + octets, ..self }
    }
    /// Parses the header. Every value is valid.
    #[must_use]
    pub fn parse(octets: &[u8; VNET_HEADER]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([octets[at], octets[at + 1]]);
        let [flags, kind, ..] = *octets;
        Self { flags, kind, headers: word(2), each: word(4), start: word(6), offset: word(8) }
    }
    /// Encodes the header.
    #[must_use]
    pub fn to_octets(self) -> [u8; VNET_HEADER] {
        let mut all = [0; VNET_HEADER];
        (all[0], all[1]) = (self.flags, self.kind);
        for (at, word) in [self.headers, self.each, self.start, self.offset].into_iter().enumerate() {
            all[2 + 2 * at..4 + 2 * at].copy_from_slice(&word.to_ne_bytes());
        }
        all
    }
}

/// The offset of the checksum in the header of TCP or UDP.
const fn checksum_field_offset(of: u8) -> usize {
    if of == protocol::TCP { 16 } else { 6 }
}

/// A packet of the device and the segments to cut it into.
#[derive(Debug)]
pub struct PacketSegments {
    packet: IpPacket,
    /// Octets of all headers.
    headers: usize,
    /// Octets of data in each segment but the last.
    each: usize,
    count: usize,
}

impl PacketSegments {
    /// Parses a packet. It is one segment if the kernel requests no segmentation, and its partial checksum is then
    /// completed.
    /// Returns `None` if the header contradicts the packet.
    pub fn from_packet(head: VnetHeader, octets: &mut [u8], packet: IpPacket) -> Option<Self> {
        if head.kind & !CONGESTION == NO_SEGMENTS && head.has_partial_checksum() {
            complete_partial_checksum(head, octets.get_mut(..packet.length)?, packet.flow.protocol)?;
        }
        Self::with_partial_checksum(head, octets, packet)
    }
    /// As [`from_packet`](Self::from_packet), but leaves the checksum of a packet of one segment as it is.
    #[must_use]
    pub fn with_partial_checksum(head: VnetHeader, octets: &[u8], packet: IpPacket) -> Option<Self> {
        let kind = head.kind & !CONGESTION;
        if kind == NO_SEGMENTS {
            // The receiver writes the checksum at these offsets, so they must lie within the packet.
            let end = usize::from(head.start).checked_add(usize::from(head.offset))?.checked_add(2)?;
            if head.has_partial_checksum() && end > packet.length {
                return None;
            }
            return Some(Self { packet, headers: packet.length, each: 1, count: 1 });
        }
        let upper = octets.get(packet.upper..packet.length)?;
        let own = match (kind, packet.flow.protocol) {
            (TCP_V4 | TCP_V6, protocol::TCP) => usize::from(upper.get(12)? >> 4) * 4,
            (UDP, protocol::UDP) => 8,
            _ => return None,
        };
        let (headers, each) = (packet.upper + own, usize::from(head.each));
        let data = packet.length.checked_sub(headers)?;
        let least = if packet.flow.protocol == protocol::TCP { 20 } else { 8 };
        (own >= least && each > 0 && !packet.fragment).then(|| Self {
            packet,
            headers,
            each,
            count: data.div_ceil(each).max(1),
        })
    }
    /// The number of segments.
    #[must_use]
    pub const fn segment_count(&self) -> usize {
        self.count
    }
    /// The addresses, protocol and ports that selectors match.
    #[must_use]
    pub const fn packet(&self) -> &IpPacket {
        &self.packet
    }
    fn segment_payload_range(&self, n: usize) -> std::ops::Range<usize> {
        let from = (self.headers + n * self.each).min(self.packet.length);
        from..(from + self.each).min(self.packet.length)
    }
    /// The length of a segment, in octets.
    #[must_use]
    pub fn len(&self, n: usize) -> usize {
        if self.count == 1 { self.packet.length } else { self.headers + self.segment_payload_range(n).len() }
    }
    /// Writes segment `n`. `out` has its length.
    pub fn write_segment(&self, n: usize, octets: &[u8], out: &mut [u8]) {
        if self.is_whole() {
            return out.copy_from_slice(&octets[..self.packet.length]);
        }
        self.write_without_checksum(n, octets, out);
        let flow = &self.packet.flow;
        let own = &mut out[self.packet.upper..];
        let pseudo = ip::pseudo_header_sum(flow.source, flow.destination, flow.protocol, own.len());
        let code = replace_zero_udp_checksum(ip::fold_checksum(ip::sum_octets(own, pseudo)), flow.protocol);
        own[checksum_field_offset(flow.protocol)..][..2].copy_from_slice(&code);
    }
    /// Writes a segment with a partial checksum and returns its header. `head` is the header of the whole packet.
    #[must_use]
    pub fn write_segment_unfinished(
        &self,
        n: usize,
        head: VnetHeader,
        octets: &[u8],
        out: &mut [u8],
    ) -> VnetHeader {
        if self.is_whole() {
            out.copy_from_slice(&octets[..self.packet.length]);
            return head;
        }
        self.write_without_checksum(n, octets, out);
        let flow = &self.packet.flow;
        let own = &mut out[self.packet.upper..];
        let at = checksum_field_offset(flow.protocol);
        let sum = ip::pseudo_header_sum(flow.source, flow.destination, flow.protocol, own.len());
        own[at..at + 2].copy_from_slice(&ip::fold_checksum(sum).map(|octet| !octet));
        let start = self.packet.upper as u16;
        VnetHeader { flags: NEEDS_CHECKSUM, start, offset: at as u16, ..VnetHeader::default() }
    }
    /// True if the packet is a single segment.
    const fn is_whole(&self) -> bool {
        self.count == 1 && self.headers == self.packet.length
    }
    /// Writes a segment whose checksum is zero.
    fn write_without_checksum(&self, n: usize, octets: &[u8], out: &mut [u8]) {
        let (header, upper) = (self.packet.header, self.packet.upper);
        let length = out.len();
        out[..self.headers].copy_from_slice(&octets[..self.headers]);
        out[self.headers..].copy_from_slice(&octets[self.segment_payload_range(n)]);
        let flow = &self.packet.flow;
        if flow.source.is_ipv4() {
            let id = u16::from_be_bytes([out[4], out[5]]).wrapping_add(n as u16);
            out[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            out[4..6].copy_from_slice(&id.to_be_bytes());
            out[10..12].fill(0);
            let code = ip::fold_checksum(ip::sum_octets(&out[..header], 0));
            out[10..12].copy_from_slice(&code);
        } else {
            out[4..6].copy_from_slice(&((length - header) as u16).to_be_bytes());
        }
        let own = &mut out[upper..];
        if flow.protocol == protocol::TCP {
            let sequence = own[4..8].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets));
            let sequence = sequence.wrapping_add((n * self.each) as u32);
            own[4..8].copy_from_slice(&sequence.to_be_bytes());
            if n + 1 < self.count {
                own[13] &= !(FIN | PSH);
            }
            if n > 0 {
                own[13] &= !CWR;
            }
        } else {
            let length = own.len() as u16;
            own[4..6].copy_from_slice(&length.to_be_bytes());
        }
        own[checksum_field_offset(flow.protocol)..][..2].fill(0);
    }
}

/// Replaces a zero checksum of UDP: zero means that there is none (RFC 768).
fn replace_zero_udp_checksum(code: [u8; 2], of: u8) -> [u8; 2] {
    if of == protocol::UDP && code == [0, 0] { [0xff; 2] } else { code }
}

/// Completes a checksum whose field holds the sum of the pseudo-header.
fn complete_partial_checksum(head: VnetHeader, octets: &mut [u8], of: u8) -> Option<()> {
    let (start, offset) = (usize::from(head.start), usize::from(head.offset));
    let code = replace_zero_udp_checksum(ip::fold_checksum(ip::sum_octets(octets.get(start..)?, 0)), of);
    octets.get_mut(start + offset..start + offset + 2)?.copy_from_slice(&code);
    Some(())
}

/// The longest joined packet, in octets.
const LONGEST: usize = 65_535;

/// The kinds of joined packets that a device accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentationOffloads {
    /// Segments of TCP.
    pub tcp: bool,
    /// Datagrams of UDP.
    pub udp: bool,
}

/// Joins consecutive packets of one flow, so that they pass the kernel as one.
#[derive(Debug)]
pub struct PacketCoalescer {
    offers: SegmentationOffloads,
    /// The joined packet behind its header. Empty if there is none.
    octets: Vec<u8>,
    /// True if no further packet may be joined.
    closed: bool,
    protocol: u8,
    upper: usize,
    headers: usize,
    each: usize,
    count: usize,
    /// TCP: the next sequence number.
    sequence: u32,
}

/// The fields of a packet that decide whether it is joined.
struct CoalescablePacket {
    protocol: u8,
    upper: usize,
    headers: usize,
    sequence: u32,
    pushed: bool,
}

impl PacketCoalescer {
    /// Creates a joiner for a device with this offload support.
    #[must_use]
    pub fn new(offers: SegmentationOffloads) -> Self {
        let octets = Vec::with_capacity(VNET_HEADER + LONGEST);
        let (protocol, upper, headers, each, count, sequence) = (0, 0, 0, 0, 0, 0);
        Self { offers, octets, closed: true, protocol, upper, headers, each, count, sequence }
    }

    /// Adds a packet. If it cannot be joined, the pending packet is written first.
    pub fn push(&mut self, packet: &[u8], write: &mut impl FnMut(&[u8])) {
        let joinable = self.parse_joinable(packet);
        if let Some(joinable) = &joinable
            && self.can_join(packet, joinable)
        {
            let data = &packet[joinable.headers..];
            self.octets.extend_from_slice(data);
            self.count += 1;
            self.sequence = self.sequence.wrapping_add(data.len() as u32);
            self.closed = data.len() < self.each || joinable.pushed;
            if joinable.pushed {
                self.octets[VNET_HEADER + self.upper + 13] |= PSH;
            }
            return;
        }
        self.flush(write);
        self.octets.extend_from_slice(&VnetHeader::default().to_octets());
        self.octets.extend_from_slice(packet);
        (self.closed, self.count) = (true, 1);
        if let Some(CoalescablePacket { protocol, upper, headers, sequence, pushed }) = joinable {
            (self.protocol, self.upper, self.headers, self.closed) = (protocol, upper, headers, pushed);
            self.each = packet.len() - headers;
            self.sequence = sequence.wrapping_add(self.each as u32);
        }
    }

    /// Writes the pending packet.
    pub fn flush(&mut self, write: &mut impl FnMut(&[u8])) {
        if self.octets.is_empty() {
            return;
        }
        if self.count > 1 {
            self.finish_joined_packet();
        }
        write(&self.octets);
        self.octets.clear();
        self.closed = true;
    }

    fn finish_joined_packet(&mut self) {
        let (head, packet) = self.octets.split_at_mut(VNET_HEADER);
        let (length, v4) = (packet.len(), packet[0] >> 4 == 4);
        let (own, at) = (length - self.upper, checksum_field_offset(self.protocol));
        if v4 {
            packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            packet[10..12].fill(0);
            let code = ip::fold_checksum(ip::sum_octets(&packet[..self.upper], 0));
            packet[10..12].copy_from_slice(&code);
        } else {
            packet[4..6].copy_from_slice(&(own as u16).to_be_bytes());
        }
        let Ok(read) = IpPacket::parse(packet) else { return };
        if self.protocol == protocol::UDP {
            packet[self.upper + 4..self.upper + 6].copy_from_slice(&(own as u16).to_be_bytes());
        }
        // The packet carries only the sum of the pseudo-header. The kernel computes the full checksum if it needs one.
        let sum = ip::pseudo_header_sum(read.flow.source, read.flow.destination, self.protocol, own);
        let code = ip::fold_checksum(sum).map(|octet| !octet);
        packet[self.upper + at..self.upper + at + 2].copy_from_slice(&code);
        let kind = match (self.protocol, v4) {
            (protocol::UDP, _) => UDP,
            (_, true) => TCP_V4,
            (_, false) => TCP_V6,
        };
        let made = VnetHeader {
            flags: NEEDS_CHECKSUM,
            kind,
            headers: self.headers as u16,
            each: self.each as u16,
            start: self.upper as u16,
            offset: at as u16,
        };
        head.copy_from_slice(&made.to_octets());
    }

    /// Parses a packet that others may follow. It is whole, has no options or flags of its own, and has a valid
    /// checksum, since the joined packet is not verified again.
    fn parse_joinable(&self, packet: &[u8]) -> Option<CoalescablePacket> {
        let read = IpPacket::parse(packet).ok()?;
        let (flow, upper) = (read.flow, read.upper);
        let least = if flow.source.is_ipv4() { ip::IPV4_HEADER } else { ip::IPV6_HEADER };
        if read.fragment || upper != least || read.length != packet.len() {
            return None;
        }
        let own = &packet[upper..];
        let (headers, sequence, pushed) = match flow.protocol {
            protocol::TCP if self.offers.tcp => {
                let fixed = own.first_chunk::<20>()?;
                if fixed[13] & !PSH != ACK {
                    return None;
                }
                let sequence = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
                (usize::from(fixed[12] >> 4) * 4, sequence, fixed[13] & PSH != 0)
            }
            protocol::UDP if self.offers.udp => {
                let fixed = own.first_chunk::<8>()?;
                let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
                if length != own.len() || fixed[6..] == [0, 0] {
                    return None;
                }
                (8, 0, false)
            }
            _ => return None,
        };
        let sum = ip::sum_octets(
            own,
            ip::pseudo_header_sum(flow.source, flow.destination, flow.protocol, own.len()),
        );
        let holds = headers < own.len() && headers >= 8 && ip::fold_checksum(sum) == [0, 0];
        holds.then_some(CoalescablePacket {
            protocol: flow.protocol,
            upper,
            headers: upper + headers,
            sequence,
            pushed,
        })
    }

    /// True if the packet continues the pending one: all headers agree except the counters.
    fn can_join(&self, packet: &[u8], next: &CoalescablePacket) -> bool {
        let Some(last) = self.octets.get(VNET_HEADER..) else { return false };
        let data = packet.len() - next.headers;
        if self.closed
            || (self.protocol, self.upper, self.headers) != (next.protocol, next.upper, next.headers)
            || data > self.each
            || last.len() + data > LONGEST
        {
            return false;
        }
        let same = |range: std::ops::Range<usize>| last[range.clone()] == packet[range];
        let upper = self.upper;
        let network = match upper {
            ip::IPV4_HEADER => same(0..2) && same(6..10) && same(12..20),
            _ => same(0..4) && same(6..40),
        };
        network
            && same(upper..upper + 4)
            && (next.protocol == protocol::UDP
                || next.sequence == self.sequence
                    && same(upper + 8..upper + 13)
                    && same(upper + 14..upper + 16)
                    && same(upper + 18..self.headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const BOTH: SegmentationOffloads = SegmentationOffloads { tcp: true, udp: true };

    /// A TCP or UDP packet with a valid checksum.
    fn test_packet(v4: bool, of: u8, sequence: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let (source, destination): (IpAddr, IpAddr) = if v4 {
            ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap())
        } else {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        };
        let mut own = vec![0x12, 0x34, 0x56, 0x78];
        if of == protocol::TCP {
            own.extend(sequence.to_be_bytes());
            own.extend([0, 0, 0, 9, 0x80, flags, 1, 0, 0, 0, 0, 0]);
            own.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        } else {
            own.extend([(8 + data.len()) as u16, 0].map(u16::to_be_bytes).concat());
        }
        own.extend(data);
        let at = checksum_field_offset(of);
        let sum = ip::sum_octets(&own, ip::pseudo_header_sum(source, destination, of, own.len()));
        own[at..at + 2].copy_from_slice(&replace_zero_udp_checksum(ip::fold_checksum(sum), of));
        let mut packet = Vec::new();
        ip::write_header(&mut packet, source, destination, of, 0, own.len());
        packet.extend(own);
        packet
    }

    fn join_packets(packets: &[Vec<u8>], offers: SegmentationOffloads) -> Vec<Vec<u8>> {
        let (mut joiner, mut written) = (PacketCoalescer::new(offers), Vec::new());
        let mut write = |octets: &[u8]| written.push(octets.to_vec());
        packets.iter().for_each(|packet| joiner.push(packet, &mut write));
        joiner.flush(&mut write);
        joiner.flush(&mut write);
        written
    }

    fn split_written_packet(written: &[u8]) -> Vec<Vec<u8>> {
        let (head, packet) = written.split_first_chunk().unwrap();
        let mut packet = packet.to_vec();
        let read = IpPacket::parse(&packet).unwrap();
        let segments = PacketSegments::from_packet(VnetHeader::parse(head), &mut packet, read).unwrap();
        let one = |n| {
            let mut out = vec![0; segments.len(n)];
            segments.write_segment(n, &packet, &mut out);
            // The kernel increments the identification of IPv4. Ours is 0.
            if out[0] >> 4 == 4 {
                out[4..6].fill(0);
                out[10..12].fill(0);
                let code = ip::fold_checksum(ip::sum_octets(&out[..20], 0));
                out[10..12].copy_from_slice(&code);
            }
            out
        };
        (0..segments.segment_count()).map(one).collect()
    }

    proptest! {
        #[test]
        fn what_is_put_together_is_cut_into_the_same(
            v4: bool, tcp: bool, each in 1usize..1500, full in 0usize..60, last in 1usize..1500, sequence: u32, push: bool,
        ) {
            let of = if tcp { protocol::TCP } else { protocol::UDP };
            let last = last.min(each);
            let lengths = std::iter::repeat_n(each, full).chain([last]);
            let mut at = sequence;
            let packets: Vec<_> = lengths.enumerate().map(|(n, length)| {
                let data: Vec<u8> = (0..length).map(|i| (i * 7 + n) as u8).collect();
                let flags = if push && n == full { ACK | PSH } else { ACK };
                let packet = test_packet(v4, of, at, flags, &data);
                at = at.wrapping_add(length as u32);
                packet
            }).collect();
            let written = join_packets(&packets, BOTH);
            // Everything that fits is joined into one packet.
            let fits = packets.iter().map(Vec::len).sum::<usize>() <= 60_000;
            prop_assert!(!fits || written.len() == 1, "{} of {}", written.len(), packets.len());
            prop_assert_eq!(written.iter().flat_map(|written| split_written_packet(written)).collect::<Vec<_>>(), packets);
        }

        #[test]
        fn whatever_comes_leaves_as_it_came(packets in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), 0u32..4, any::<u8>(), 0usize..4), 0..12)) {
            let packets: Vec<_> = packets.into_iter().map(|(v4, tcp, sequence, flags, length)| {
                test_packet(v4, if tcp { protocol::TCP } else { protocol::UDP }, sequence, flags, &vec![7; length])
            }).collect();
            let written = join_packets(&packets, BOTH);
            prop_assert_eq!(written.iter().flat_map(|written| split_written_packet(written)).collect::<Vec<_>>(), packets);
        }
    }

    #[test]
    fn what_does_not_follow_is_not_joined() {
        let first = test_packet(true, protocol::TCP, 100, ACK, &[1; 50]);
        let follows = |next: Vec<u8>| join_packets(&[first.clone(), next], BOTH).len() == 1;
        let of =
            |sequence, flags, length| test_packet(true, protocol::TCP, sequence, flags, &vec![2; length]);
        assert!(follows(of(150, ACK, 50)) && follows(of(150, ACK | PSH, 20)));
        assert!(!follows(of(151, ACK, 50)), "a gap");
        assert!(!follows(of(150, ACK, 51)), "longer than the first");
        assert!(!follows(of(150, ACK | FIN, 50)) && !follows(of(150, ACK, 0)));
        assert!(!follows(test_packet(false, protocol::TCP, 150, ACK, &[2; 50])));
        let mut wrong = of(150, ACK, 50);
        wrong[60] ^= 1;
        assert!(!follows(wrong), "its checksum does not hold");
        let mut other = of(150, ACK, 50);
        other[8] -= 1;
        other[10..12].fill(0);
        let code = ip::fold_checksum(ip::sum_octets(&other[..20], 0));
        other[10..12].copy_from_slice(&code);
        assert!(!follows(other), "it has gone further");
        // A shorter packet or one with PSH is the last.
        let three = |middle| join_packets(&[first.clone(), middle, of(170, ACK, 50)], BOTH).len();
        assert_eq!((three(of(150, ACK, 20)), three(of(150, ACK | PSH, 20))), (2, 2));
        // Packets are not joined if the device does not accept the kind.
        let udp = [
            test_packet(true, protocol::UDP, 0, 0, &[1; 9]),
            test_packet(true, protocol::UDP, 0, 0, &[1; 9]),
        ];
        assert_eq!(join_packets(&udp, BOTH).len(), 1);
        assert_eq!(join_packets(&udp, SegmentationOffloads { udp: false, ..BOTH }).len(), 2);
        assert_eq!(
            join_packets(&[first.clone(), of(150, ACK, 50)], SegmentationOffloads { tcp: false, ..BOTH })
                .len(),
            2
        );
    }

    #[test]
    fn a_checksum_that_was_left_to_us_is_completed() {
        for of in [protocol::TCP, protocol::UDP] {
            let whole = test_packet(true, of, 1, ACK, &[1, 2, 3]);
            let mut partial = whole.clone();
            let read = IpPacket::parse(&whole).unwrap();
            let at = 20 + checksum_field_offset(of);
            let sum = ip::pseudo_header_sum(read.flow.source, read.flow.destination, of, whole.len() - 20);
            partial[at..at + 2].copy_from_slice(&ip::fold_checksum(sum).map(|octet| !octet));
            let head = VnetHeader {
                flags: NEEDS_CHECKSUM,
                start: 20,
                offset: (at - 20) as u16,
                ..VnetHeader::default()
            };
            let written = [&head.to_octets()[..], &partial].concat();
            assert_eq!(split_written_packet(&written)[0][20..], whole[20..]);
        }
    }

    #[test]
    fn what_is_cut_undone_is_the_same_when_it_is_done() {
        for (v4, of) in
            [(true, protocol::TCP), (false, protocol::TCP), (true, protocol::UDP), (false, protocol::UDP)]
        {
            let packets: Vec<_> =
                (0..5).map(|n| test_packet(v4, of, 1 + 100 * n, ACK, &[n as u8; 100])).collect();
            let written = join_packets(&packets, BOTH);
            let (head, octets) = written[0].split_first_chunk().unwrap();
            let (head, mut octets) = (VnetHeader::parse(head), octets.to_vec());
            let read = IpPacket::parse(&octets).unwrap();
            let undone = PacketSegments::with_partial_checksum(head, &octets, read).unwrap();
            let done = PacketSegments::from_packet(head, &mut octets, read).unwrap();
            assert_eq!(undone.segment_count(), 5);
            for n in 0..5 {
                let mut one = vec![0; 22 + undone.len(n)];
                let mut other = vec![0; done.len(n)];
                let head = undone.write_segment_unfinished(n, head, &octets, &mut one[22..]);
                done.write_segment(n, &octets, &mut other);
                assert!(head.has_partial_checksum() && one[22..] != other);
                head.shift_header_offsets(22).complete_checksum(&mut one).unwrap();
                assert_eq!(one[22..], other);
            }
            // A packet of one segment is passed on unchanged.
            let whole = IpPacket::parse(&packets[0]).unwrap();
            let segments =
                PacketSegments::with_partial_checksum(VnetHeader::default(), &packets[0], whole).unwrap();
            let mut out = vec![0; segments.len(0)];
            assert_eq!(
                segments.write_segment_unfinished(0, VnetHeader::default(), &packets[0], &mut out),
                VnetHeader::default()
            );
            assert_eq!(out, packets[0]);
            let beyond =
                VnetHeader { flags: NEEDS_CHECKSUM, start: out.len() as u16, ..VnetHeader::default() };
            assert!(PacketSegments::with_partial_checksum(beyond, &out, whole).is_none());
        }
    }

    #[test]
    fn a_head_that_cannot_be_is_refused() {
        let octets = test_packet(true, protocol::TCP, 1, ACK, &[0; 100]);
        let read = IpPacket::parse(&octets).unwrap();
        let refused =
            |head: VnetHeader| PacketSegments::from_packet(head, &mut octets.clone(), read).is_none();
        assert!(refused(VnetHeader { kind: TCP_V4, each: 0, ..VnetHeader::default() }));
        assert!(refused(VnetHeader { kind: UDP, each: 10, ..VnetHeader::default() }));
        assert!(refused(VnetHeader { kind: 99, each: 10, ..VnetHeader::default() }));
        assert!(refused(VnetHeader { flags: NEEDS_CHECKSUM, start: 999, ..VnetHeader::default() }));
        assert!(refused(VnetHeader {
            flags: NEEDS_CHECKSUM,
            start: 20,
            offset: 999,
            ..VnetHeader::default()
        }));
        assert!(!refused(VnetHeader { kind: TCP_V4 | CONGESTION, each: 10, ..VnetHeader::default() }));
    }
}
