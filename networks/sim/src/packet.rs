//! Packets in the form that the simulator's inner loop moves: a few words each, by value.

use crate::addr::{HostId, IpVersion};
use crate::sctp;
use crate::tcp::Segment;
use std::sync::Arc;
use usher_core::Instant;

/// Application data: a length, and the octets if a receiver reads them. The plain dialogue workload and
/// background traffic send lengths only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// Length in bytes.
    pub len: u32,
    /// The octets. Octets missing from `len`, often all of them, have no content (zeros in a capture).
    pub bytes: Option<Arc<[u8]>>,
}

impl Payload {
    /// Creates `len` octets without content.
    pub const fn with_length(len: u32) -> Self {
        Self { len, bytes: None }
    }
    /// Copies these octets.
    pub fn copy_from_slice(bytes: &[u8]) -> Self {
        Self { len: bytes.len() as u32, bytes: Some(bytes.into()) }
    }
    /// Returns the octets, empty without content.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
    /// Appends the octets, or zeros, to a capture buffer.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) {
        let end = out.len() + self.len as usize;
        out.extend_from_slice(self.as_slice());
        out.resize(end, 0);
    }
}

/// A UDP datagram.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// The payload.
    pub payload: Payload,
}

/// One IP fragment of a UDP datagram.
#[derive(Clone, Debug)]
pub(crate) struct IpFragment {
    /// The IP identification that all fragments of a datagram share.
    pub id: u32,
    /// Offset in the datagram, in bytes (a multiple of 8).
    pub offset: u32,
    /// Bytes of the datagram in this fragment.
    pub len: u32,
    /// More fragments follow.
    pub more: bool,
    /// The whole datagram, shared by its fragments.
    pub datagram: Arc<Datagram>,
}

/// The content of an IP packet, or a frame.
#[derive(Clone, Debug)]
pub(crate) enum PacketBody {
    /// UDP.
    Udp(Datagram),
    /// A fragment of a UDP datagram that exceeded a link's MTU.
    Fragment(Box<IpFragment>),
    /// TCP.
    Tcp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// A hint at the receiving connection's slot; not on the wire.
        conn: u32,
        /// The sending connection's slot.
        from_conn: u32,
        /// The segment.
        segment: Segment,
    },
    /// SCTP.
    Sctp {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
        /// Address pair of a multihomed association; 0 is the first.
        path: u8,
        /// The packet.
        packet: sctp::SctpPacket,
    },
    /// A packet of ESP.
    Esp(Box<EspPacket>),
    /// A link-layer frame (Ethernet II without FCS) that is not forwarded.
    Frame(Payload),
}

/// A packet protected by an SA (RFC 4303), in transport mode.
#[derive(Clone, Debug)]
pub(crate) struct EspPacket {
    /// The protected packet.
    pub inner: Packet,
    /// The sealed ports. They carry the packet's SPI and sequence number; the other octets are not enciphered.
    pub sealed: Vec<u8>,
    /// True if it is within UDP (RFC 3948).
    pub encapsulated: bool,
}

/// A packet on a link or in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Sender.
    pub src: HostId,
    /// Receiver.
    pub dst: HostId,
    /// Length from the IP header on, in octets (a frame: the whole frame).
    pub len: u32,
    /// IP identification, from the sender's counter.
    pub ident: u16,
    /// The content.
    pub body: PacketBody,
}

/// A packet in transit through a host, whose application decides on it
/// ([`SimulationBuilder::deliver_transit_to`](crate::SimulationBuilder::deliver_transit_to)).
#[derive(Clone, Debug)]
pub struct TransitPacket(pub(crate) Box<Packet>);

impl TransitPacket {
    /// Returns the sender.
    pub fn source(&self) -> HostId {
        self.0.src
    }
    /// Returns the receiver.
    pub fn destination(&self) -> HostId {
        self.0.dst
    }
    /// Returns its octets, from the IP header on.
    pub fn length(&self) -> u32 {
        self.0.len
    }
}

/// A packet in the [`PacketPool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketRef(u32);

impl PacketRef {
    /// No packet: the end of a list.
    pub(crate) const NONE: Self = Self(u32::MAX);
    /// Returns its number in the pool, a name for the packet while it is there.
    pub(crate) const fn to_index(self) -> u32 {
        self.0
    }
    /// Returns the packet with this number.
    pub(crate) const fn from_index(number: u32) -> Self {
        Self(number)
    }
}

/// A packet with the state of its link.
#[derive(Debug)]
pub(crate) struct PacketInFlight {
    /// Time of arrival at the link's end.
    pub arrives: Instant,
    /// The next packet to arrive on the same link.
    pub next: PacketRef,
    /// True if it arrives damaged.
    pub damaged: bool,
    pub packet: Packet,
}

/// All packets in flight, so that a hop moves a number and not the packet. The packets of a link form a list, and
/// so do the free slots.
#[derive(Debug)]
pub(crate) struct PacketPool {
    slots: Vec<PacketInFlight>,
    free: PacketRef,
}

impl Default for PacketPool {
    fn default() -> Self {
        Self { slots: Vec::new(), free: PacketRef::NONE }
    }
}

impl PacketPool {
    /// Inserts a packet.
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet) -> PacketRef {
        let at = self.free;
        match self.slots.get_mut(at.0 as usize) {
            Some(place) => {
                self.free = place.next;
                place.packet = packet;
                at
            }
            None => {
                self.slots.push(PacketInFlight {
                    arrives: Instant::ZERO,
                    next: PacketRef::NONE,
                    damaged: false,
                    packet,
                });
                PacketRef(self.slots.len() as u32 - 1)
            }
        }
    }
    /// Frees a packet's slot. Its content is dropped when the slot is reused.
    #[inline]
    pub(crate) fn release(&mut self, at: PacketRef) {
        self.slots[at.0 as usize].next = self.free;
        self.free = at;
    }
    /// Takes a packet out of the pool.
    #[inline]
    pub(crate) fn take(&mut self, at: PacketRef) -> Packet {
        self.release(at);
        let p = &mut self.slots[at.0 as usize].packet;
        let body = std::mem::replace(&mut p.body, PacketBody::Frame(Payload::default()));
        Packet { body, ..*p }
    }
}

impl std::ops::Index<PacketRef> for PacketPool {
    type Output = PacketInFlight;
    #[inline]
    fn index(&self, at: PacketRef) -> &PacketInFlight {
        &self.slots[at.0 as usize]
    }
}

impl std::ops::IndexMut<PacketRef> for PacketPool {
    #[inline]
    fn index_mut(&mut self, at: PacketRef) -> &mut PacketInFlight {
        &mut self.slots[at.0 as usize]
    }
}

/// Bytes of a UDP header.
pub const UDP_HEADER: u32 = 8;

/// Destination of background datagrams: the discard port (RFC 863).
pub const DISCARD_PORT: u16 = 9;

impl Packet {
    /// True for traffic that only loads links.
    #[inline]
    pub(crate) fn is_background(&self) -> bool {
        match &self.body {
            PacketBody::Udp(d) => d.dst_port == DISCARD_PORT,
            PacketBody::Fragment(f) => f.datagram.dst_port == DISCARD_PORT,
            PacketBody::Esp(esp) => esp.inner.is_background(),
            _ => false,
        }
    }

    /// Creates a UDP packet.
    pub(crate) fn from_datagram(
        version: IpVersion,
        src: HostId,
        dst: HostId,
        ident: u16,
        datagram: Datagram,
    ) -> Self {
        let len = version.header_len() + UDP_HEADER + datagram.payload.len;
        Self { src, dst, len, ident, body: PacketBody::Udp(datagram) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp_packet(ident: u16, bytes: &[u8], dst_port: u16) -> Packet {
        let datagram = Datagram { src_port: 1, dst_port, payload: Payload::copy_from_slice(bytes) };
        Packet::from_datagram(IpVersion::V4, HostId(0), HostId(1), ident, datagram)
    }

    #[test]
    fn a_free_place_is_used_again_before_there_is_another() {
        let mut pool = PacketPool::default();
        let [a, b, c] = [1, 2, 3].map(|ident| pool.insert(udp_packet(ident, b"abc", 7)));
        assert_ne!(a, b);
        let taken = pool.take(b);
        assert_eq!((taken.ident, taken.len, taken.dst), (2, 20 + 8 + 3, HostId(1)));
        assert!(
            matches!(taken.body, PacketBody::Udp(Datagram { payload, .. }) if payload.as_slice() == b"abc")
        );
        pool.release(a);
        // The slot freed last is reused first.
        assert_eq!([4, 5].map(|ident| pool.insert(udp_packet(ident, b"", 7))), [a, b]);
        let d = pool.insert(udp_packet(6, b"", 7));
        assert_eq!([a, b, c, d].map(|at| pool[at].packet.ident), [4, 5, 3, 6]);
    }

    #[test]
    fn the_background_goes_to_the_discard_port() {
        assert!(udp_packet(1, b"", DISCARD_PORT).is_background() && !udp_packet(1, b"", 7).is_background());
        let fragment = |dst_port| {
            let whole = Arc::new(Datagram { src_port: 1, dst_port, payload: Payload::with_length(3000) });
            let body = PacketBody::Fragment(Box::new(IpFragment {
                id: 1,
                offset: 0,
                len: 1480,
                more: true,
                datagram: whole,
            }));
            Packet { body, ..udp_packet(1, b"", 7) }
        };
        assert!(fragment(DISCARD_PORT).is_background() && !fragment(7).is_background());
    }

    #[test]
    fn bytes_that_nobody_reads_are_zeros_in_a_capture() {
        let mut out = vec![9];
        Payload { len: 4, bytes: Some(b"ab"[..].into()) }.write_to(&mut out);
        Payload::with_length(2).write_to(&mut out);
        assert_eq!(out, [9, b'a', b'b', 0, 0, 0, 0]);
    }
}
