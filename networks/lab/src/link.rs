//! The relay's handling of packets, without I/O. Each packet is offered to the channel of its direction, and kept
//! until it arrives.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::IpAddr;
use usher_core::Instant;
use usher_core::impair::{Channel, PacketOutcome};
use usher_sim::{DISCARD_PORT, LinkFraming, LinkStats};

use crate::sys::ETHERNET;
use crate::topology::LabTopology;

/// The EtherType of EAPOL (IEEE 802.1X).
pub(crate) const EAPOL: u16 = 0x888e;
/// The octets of the parsed headers.
const IPV4: usize = 20;
const IPV6: usize = 40;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const PROTOCOL_UDP: u8 = 17;

/// One direction of a link.
#[derive(Debug)]
struct RelayDirection {
    channel: Channel,
    framing: LinkFraming,
    stats: LinkStats,
    /// The relay's interface toward the receiver, and the receiver's MAC address.
    interface: u32,
    mac: [u8; 6],
    /// The receiving host's addresses.
    receiver: Vec<IpAddr>,
    /// The earliest time for the next offer, since a channel's time does not go back.
    offered: Instant,
    leaves: Option<u16>,
    arrives: Option<u16>,
}

/// A packet in flight.
#[derive(Debug)]
struct FrameInFlight {
    direction: usize,
    damaged: bool,
    frame: Vec<u8>,
}

/// A packet that has arrived.
#[derive(Debug)]
pub(crate) struct ArrivedPacket {
    /// Its arrival time.
    pub(crate) due: Instant,
    /// The relay's interface to send it by.
    pub(crate) interface: u32,
    /// Its octets from the Ethernet header on.
    pub(crate) frame: Vec<u8>,
    /// Its capture point.
    pub(crate) capture: Option<(u16, LinkFraming)>,
    /// True if the receiver does not get it: it is damaged, and its destination is not one of the receiver's
    /// addresses, where checksums would detect the damage.
    pub(crate) withheld: bool,
}

/// All directions of all links, with the packets in flight.
#[derive(Debug)]
pub(crate) struct LinkTable {
    directions: Vec<RelayDirection>,
    queue: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    in_flight: Vec<FrameInFlight>,
    free: Vec<usize>,
    spare: Vec<Vec<u8>>,
    sequence: u64,
    /// The frames without an IP packet for one receiver.
    pub(crate) ignored: u64,
}

impl LinkTable {
    pub(crate) fn new(topology: &LabTopology) -> Self {
        let mut directions = Vec::new();
        for (n, link) in topology.links.iter().enumerate() {
            for (channel, from) in [(&link.config.up, 0), (&link.config.down, 1)] {
                let to = 1 - from;
                let rng = topology.seed.derive_rng("link", directions.len() as u64);
                directions.push(RelayDirection {
                    channel: Channel::new(channel.clone(), rng),
                    framing: link.config.framing,
                    stats: LinkStats::default(),
                    interface: relay_interface_index(n, to),
                    mac: host_mac(topology, n, to),
                    receiver: topology.hosts[link.ends[to].host].addresses.clone(),
                    offered: Instant::ZERO,
                    leaves: link.capture[from],
                    arrives: link.capture[to],
                });
            }
        }
        Self {
            directions,
            queue: BinaryHeap::new(),
            in_flight: Vec::new(),
            free: Vec::new(),
            spare: Vec::new(),
            sequence: 0,
            ignored: 0,
        }
    }

    /// Returns the statistics of each link by direction: from its first end, and from its second.
    pub(crate) fn stats(&self) -> Vec<[LinkStats; 2]> {
        self.directions.chunks_exact(2).map(|d| [d[0].stats, d[1].stats]).collect()
    }

    /// Offers a frame that a host sent to this interface of the relay. `leaves` receives it as it is on the link, if
    /// the link has a capture point there.
    pub(crate) fn offer_frame(
        &mut self,
        interface: u32,
        at: Instant,
        octets: &[u8],
        leaves: impl FnOnce(u16, Instant, &[u8]),
    ) {
        let index = (interface as usize).wrapping_sub(FIRST as usize);
        let (Some(direction), Some(packet)) =
            (self.directions.get_mut(index), RelayedPacketInfo::parse_frame(octets))
        else {
            self.ignored += 1;
            return;
        };
        let at = at.max(direction.offered);
        direction.offered = at;
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(octets);
        if let Some(mac) = frame.get_mut(..6).filter(|_| packet.to.is_some()) {
            mac.copy_from_slice(&direction.mac);
        }
        if let Some(point) = direction.leaves {
            leaves(point, at, on_link(&frame, direction.framing));
        }
        // A frame without an IP packet counts with its Ethernet header, even on links without framing.
        let own = if packet.to.is_some() { 0 } else { ETHERNET as u32 };
        let bytes = (octets.len() - ETHERNET) as u32 + direction.framing.overhead().max(own);
        let stats = &mut direction.stats;
        stats.offered += 1;
        stats.offered_bytes += u64::from(bytes);
        if packet.background {
            stats.background += 1;
            stats.background_bytes += u64::from(bytes);
        }
        match direction.channel.offer_packet(at, bytes) {
            PacketOutcome::Delivered { arrives, corrupted, duplicate_arrives: again, .. } => {
                stats.corrupted += u64::from(corrupted);
                if let Some(again) = again {
                    stats.duplicated += 1;
                    let copy = frame.clone();
                    self.schedule_arrival(index, arrives, corrupted, frame);
                    self.schedule_arrival(index, again, false, copy);
                } else {
                    self.schedule_arrival(index, arrives, corrupted, frame);
                }
            }
            lost => {
                match lost {
                    PacketOutcome::QueueFull => stats.queue_full += 1,
                    _ => stats.lost += 1,
                }
                stats.dropped_bytes += u64::from(bytes);
                self.spare.push(frame);
            }
        }
    }

    fn schedule_arrival(&mut self, direction: usize, arrives: Instant, damaged: bool, frame: Vec<u8>) {
        let packet = FrameInFlight { direction, damaged, frame };
        let place = match self.free.pop() {
            Some(place) => {
                self.in_flight[place] = packet;
                place
            }
            None => {
                self.in_flight.push(packet);
                self.in_flight.len() - 1
            }
        };
        self.sequence += 1;
        self.queue.push(Reverse((arrives, self.sequence, place)));
    }

    /// Returns the time of the next arrival.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Returns the number of packets in flight.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.queue.len()
    }

    /// Removes and returns the next packet that has arrived by `now`.
    pub(crate) fn pop_arrival(&mut self, now: Instant) -> Option<ArrivedPacket> {
        if self.next_arrival()? > now {
            return None;
        }
        let Reverse((due, _, place)) = self.queue.pop()?;
        self.free.push(place);
        let packet = &mut self.in_flight[place];
        let mut frame = std::mem::take(&mut packet.frame);
        let direction = &self.directions[packet.direction];
        let mut withheld = false;
        if packet.damaged {
            if let Some(last) = frame.last_mut() {
                *last ^= 1;
            }
            let to = RelayedPacketInfo::parse_frame(&frame).and_then(|p| p.to);
            withheld = !to.is_some_and(|to| direction.receiver.contains(&to));
        }
        let capture = direction.arrives.map(|point| (point, direction.framing));
        Some(ArrivedPacket { due, interface: direction.interface, frame, capture, withheld })
    }

    /// Recycles the buffer of a frame.
    pub(crate) fn recycle_frame(&mut self, frame: Vec<u8>) {
        self.spare.push(frame);
    }
}

/// The index of the first interface in the relay's namespace. 1 is the loopback interface.
const FIRST: u32 = 2;

/// Returns the index of the relay's interface at a link's end.
pub(crate) fn relay_interface_index(link: usize, end: usize) -> u32 {
    FIRST + (2 * link + end) as u32
}

/// Returns the locally administered MAC address of the host's interface at a link's end. It has the address number
/// and the port, as in the simulator.
pub(crate) fn host_mac(topology: &LabTopology, link: usize, end: usize) -> [u8; 6] {
    let end = topology.links[link].ends[end];
    let [_, a, b, c] = topology.address_number(end).to_be_bytes();
    let port = topology.port_index(end.host, link).unwrap_or(0);
    [0x02, 0, port as u8, a, b, c]
}

/// Returns the octets on a link with this framing.
pub(crate) fn on_link(frame: &[u8], framing: LinkFraming) -> &[u8] {
    match framing {
        LinkFraming::Ethernet | LinkFraming::Pppoe => frame,
        LinkFraming::None => frame.get(ETHERNET..).unwrap_or_default(),
    }
}

/// The relay's view of a packet.
#[derive(Clone, Copy, Debug)]
struct RelayedPacketInfo {
    /// The IP destination. `None`: an EAPOL frame, which stays on the link and keeps its addresses.
    to: Option<IpAddr>,
    background: bool,
}

impl RelayedPacketInfo {
    /// Parses a frame for one receiver with an IP packet, or an EAPOL frame. `None` for all others, which the
    /// simulator does not have: neighbor discovery, multicast and other traffic of the kernel.
    fn parse_frame(frame: &[u8]) -> Option<Self> {
        const GROUP: u8 = 1;
        if frame.get(12..ETHERNET)? == EAPOL.to_be_bytes() {
            return Some(Self { to: None, background: false });
        }
        if frame.first()? & GROUP != 0 {
            return None;
        }
        let ip = frame.get(ETHERNET..)?;
        let (to, transport) = match *frame.get(12..ETHERNET)? {
            [a, b] if [a, b] == ETHERTYPE_IPV4 => {
                let to: [u8; 4] = ip.get(16..IPV4)?.try_into().ok()?;
                let header = usize::from(ip[0] & 0x0f) * 4;
                let first = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff == 0;
                let udp = ip[9] == PROTOCOL_UDP && first;
                (IpAddr::from(to), udp.then(|| ip.get(header..)).flatten())
            }
            [a, b] if [a, b] == ETHERTYPE_IPV6 => {
                let to: [u8; 16] = ip.get(24..IPV6)?.try_into().ok()?;
                (IpAddr::from(to), (ip[6] == PROTOCOL_UDP).then(|| ip.get(IPV6..)).flatten())
            }
            _ => return None,
        };
        if to.is_multicast() {
            return None;
        }
        let port = transport.and_then(|udp| Some(u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?])));
        Some(Self { to: Some(to), background: port == Some(DISCARD_PORT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{HostSpec, LinkEnd, LinkSpec};
    use usher_core::Seed;
    use usher_core::impair::ChannelConfig;
    use usher_sim::LinkConfig;

    const HEADER: [u8; 12] = [2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0];

    fn test_links(framing: LinkFraming, corrupt: f64) -> LinkTable {
        let host = |n: u8| HostSpec {
            name: n.to_string(),
            addresses: vec![[10, 0, 0, n].into()],
            settings: Vec::new(),
            initial_window: None,
            quick_ack: false,
        };
        let channel = ChannelConfig { corrupt, ..Default::default() };
        let config = LinkConfig { up: channel.clone(), down: channel, mtu: 1500, framing };
        let ends = [LinkEnd::for_host(0), LinkEnd::for_host(1)];
        let link = LinkSpec { name: "l".to_owned(), ends, config, capture: [None; 2] };
        let hosts = (1..=2).map(host).collect();
        LinkTable::new(&LabTopology { name: "t".to_owned(), seed: Seed::new(1), hosts, links: vec![link] })
    }

    /// Makes a frame with an IPv4 packet of 40 octets to this host.
    fn test_packet(to: u8, protocol: u8) -> Vec<u8> {
        let mut frame = HEADER.to_vec();
        frame.extend(ETHERTYPE_IPV4);
        let mut ip = [0; 40];
        (ip[0], ip[9], ip[23]) = (0x45, protocol, 9);
        ip[16..20].copy_from_slice(&[10, 0, 0, to]);
        frame.extend(ip);
        frame
    }

    fn stats_after_offer(links: &mut LinkTable, frame: &[u8]) -> LinkStats {
        links.offer_frame(FIRST, Instant::ZERO, frame, |_, _, _| {});
        links.stats()[0][0]
    }

    #[test]
    fn packets_cost_their_ip_length_and_the_framing() {
        for (framing, cost) in [(LinkFraming::None, 40), (LinkFraming::Ethernet, 58)] {
            assert_eq!(
                stats_after_offer(&mut test_links(framing, 0.0), &test_packet(2, 6)).offered_bytes,
                cost
            );
        }
        // An EAPOL frame has its own header; Ethernet adds the check sequence.
        let mut frame = HEADER.to_vec();
        frame.extend(EAPOL.to_be_bytes());
        frame.extend([0; 10]);
        for (framing, cost) in [(LinkFraming::None, 24), (LinkFraming::Ethernet, 28)] {
            assert_eq!(stats_after_offer(&mut test_links(framing, 0.0), &frame).offered_bytes, cost);
        }
    }

    #[test]
    fn what_is_no_packet_for_one_receiver_is_ignored() {
        let mut links = test_links(LinkFraming::Ethernet, 0.0);
        let mut multicast = test_packet(2, 17);
        multicast[0] |= 1;
        let mut arp = test_packet(2, 17);
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        let group = {
            let mut frame = test_packet(2, 17);
            frame[30..34].copy_from_slice(&[224, 0, 0, 22]);
            frame
        };
        for frame in [&multicast[..], &arp, &group, &[], &test_packet(2, 17)[..20]] {
            stats_after_offer(&mut links, frame);
        }
        links.offer_frame(99, Instant::ZERO, &test_packet(2, 17), |_, _, _| {});
        assert_eq!((links.ignored, links.stats()[0][0].offered, links.next_arrival()), (6, 0, None));
        let stats = stats_after_offer(&mut links, &test_packet(2, PROTOCOL_UDP));
        assert_eq!((stats.offered, stats.background), (1, 1));
    }

    #[test]
    fn a_damaged_packet_goes_no_further_than_its_link() {
        for (to, withheld) in [(2, false), (7, true)] {
            let mut links = test_links(LinkFraming::Ethernet, 1.0);
            stats_after_offer(&mut links, &test_packet(to, 6));
            let arrival = links.pop_arrival(Instant::ZERO).unwrap();
            assert_eq!(arrival.withheld, withheld, "for {to}");
            assert_eq!(arrival.frame.last(), Some(&1));
            assert_eq!(arrival.frame[..6], [2, 0, 0, 0, 0, 1], "the receiver's address");
        }
    }
}
