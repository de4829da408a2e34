//! Links: two directions, each a [`Channel`] (rate, queue, delay, impairments) and its packets in flight, in
//! order of arrival.

use crate::addr::HostId;
use crate::packet::{PacketBody, PacketPool, PacketRef};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use usher_core::impair::{Channel, ChannelConfig, ChannelProperties, PacketOutcome};
use usher_core::{Instant, SimulationRng};

/// A link: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// The headers of a packet on a link below IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkFraming {
    /// No header: bare IP packets.
    #[default]
    None,
    /// Ethernet II: 14 octets of header and 4 of frame check sequence, which captures leave out. Preamble and gap do
    /// not count.
    Ethernet,
    /// Ethernet with PPPoE and PPP (RFC 2516 §4): 6 and 2 further octets per IP packet.
    Pppoe,
}

impl LinkFraming {
    /// Returns the octets that the framing adds to an IP packet.
    pub const fn overhead(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Ethernet => 18,
            Self::Pppoe => 26,
        }
    }

    /// Returns the octets of the overhead that are within the link's own frame.
    pub(crate) const fn overhead_within_frame(self) -> u32 {
        match self {
            Self::None | Self::Ethernet => 0,
            Self::Pppoe => 8,
        }
    }

    /// Returns the octets that it adds to a frame, which has its header already.
    const fn trailer_length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Ethernet | Self::Pppoe => 4,
        }
    }
}

/// A link's properties.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// From the first host to the second. Impairments except delay may start later than the run: see
    /// [`ChannelConfig::impaired_from`].
    pub up: ChannelConfig,
    /// From the second to the first.
    pub down: ChannelConfig,
    /// MTU: octets of the largest IP packet.
    pub mtu: u32,
    /// The framing of IP packets.
    pub framing: LinkFraming,
}

impl Default for LinkConfig {
    /// A perfect Ethernet-sized link without framing.
    fn default() -> Self {
        Self {
            up: ChannelConfig::default(),
            down: ChannelConfig::default(),
            mtu: 1500,
            framing: LinkFraming::None,
        }
    }
}

usher_core::counters! {
    /// Counters of one direction of a link.
    pub struct LinkStats {
        /// Packets that were offered.
        offered,
        /// Their bytes, framing included.
        offered_bytes,
        /// Dropped because the queue was full.
        queue_full,
        /// Lost on the medium.
        lost,
        /// Bytes of dropped and lost packets, framing included.
        dropped_bytes,
        /// Delivered twice.
        duplicated,
        /// Delivered damaged.
        corrupted,
        /// Background traffic: offered datagrams to the discard port (RFC 863).
        background,
        /// Their bytes, framing included.
        background_bytes,
    }
}

/// One direction of a link. A large simulation has millions, so rare state is in a box of its own.
#[derive(Debug)]
pub(crate) struct LinkDirection {
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) to_port: u32,
    pub(crate) mtu: u32,
    pub(crate) framing: LinkFraming,
    pub(crate) channel: Channel,
    /// Offered packets and their octets.
    offered: u64,
    offered_bytes: u64,
    /// The first and last arrival among packets in flight that overtake none: a list in the pool, by time of arrival.
    /// The event queue has one arrival event, for the first arrival. Others are stale: a packet has overtaken theirs.
    first: PacketRef,
    last: PacketRef,
    /// True if packets in flight overtake others. The last to arrive is not among them.
    mixed: bool,
    extras: Option<Box<OptionalDirectionState>>,
}

/// State that few directions have.
#[derive(Debug, Default)]
pub(crate) struct OptionalDirectionState {
    /// The cell that replaces the channel.
    pub(crate) cell: Option<u32>,
    /// SESSION_ID of its PPPoE session.
    pub(crate) session: u16,
    /// Capture point of departures (at the sender's port).
    pub(crate) tap_out: Option<u16>,
    /// Capture point of arrivals.
    pub(crate) tap_in: Option<u16>,
    /// Counters, except those of offered packets.
    pub(crate) stats: LinkStats,
    /// Packets that overtake others, if any did.
    passing: Option<Box<ReorderedPacketQueue>>,
}

/// Maximum capacity (packets) that an emptied heap keeps: more packets will overtake.
const MAX_RETAINED_CAPACITY: usize = 64;

/// Packets in flight that overtake others. A heap, since a list would be walked for each of them.
#[derive(Debug, Default)]
struct ReorderedPacketQueue {
    packets: BinaryHeap<ReorderedPacket>,
    /// Number of such packets so far.
    count: u64,
}

/// A packet that overtakes others. The largest arrives first; among equal times, the one sent first.
#[derive(PartialEq, Eq, Debug)]
struct ReorderedPacket {
    arrives: Instant,
    order: u64,
    packet: u32,
}

impl Ord for ReorderedPacket {
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        (other.arrives, other.order).cmp(&(self.arrives, self.order))
    }
}

impl PartialOrd for ReorderedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ReorderedPacketQueue {
    /// Returns the first arrival among them.
    fn next_arrival(&self) -> Instant {
        self.packets.peek().map_or(Instant::FAR_FUTURE, |early| early.arrives)
    }
    fn push(&mut self, arrives: Instant, packet: PacketRef) {
        self.packets.push(ReorderedPacket { arrives, order: self.count, packet: packet.to_index() });
        self.count += 1;
    }
}

/// The arrival of a packet that is not lost.
pub(crate) struct PacketArrival {
    pub(crate) arrives: Instant,
    pub(crate) damaged: bool,
    /// Arrival of the duplicate.
    pub(crate) duplicate_arrives: Option<Instant>,
}

impl LinkDirection {
    pub(crate) fn new(
        from: HostId,
        to: HostId,
        to_port: u32,
        channel: Arc<ChannelProperties>,
        mtu: u32,
        framing: LinkFraming,
        rng: SimulationRng,
    ) -> Self {
        Self {
            from,
            to,
            to_port,
            mtu,
            framing,
            channel: Channel::new(channel, rng),
            offered: 0,
            offered_bytes: 0,
            extras: None,
            first: PacketRef::NONE,
            last: PacketRef::NONE,
            mixed: false,
        }
    }

    #[inline]
    pub(crate) fn cell_index(&self) -> Option<u32> {
        self.extras.as_ref()?.cell
    }
    #[inline]
    pub(crate) fn tap_out(&self) -> Option<u16> {
        self.extras.as_ref()?.tap_out
    }
    #[inline]
    pub(crate) fn tap_in(&self) -> Option<u16> {
        self.extras.as_ref()?.tap_in
    }
    pub(crate) fn session_id(&self) -> u16 {
        self.extras.as_ref().map_or(0, |aside| aside.session)
    }
    /// Returns the rare state, and creates it if absent.
    pub(crate) fn extras_mut(&mut self) -> &mut OptionalDirectionState {
        self.extras.get_or_insert_default()
    }
    /// Returns the counters.
    pub(crate) fn stats(&self) -> LinkStats {
        let rest = self.extras.as_ref().map(|aside| aside.stats).unwrap_or_default();
        LinkStats { offered: self.offered, offered_bytes: self.offered_bytes, ..rest }
    }

    /// Sends a packet, and releases it from the pool if it is lost. Returns the time of a new arrival event, if one
    /// is needed.
    #[inline(always)]
    pub(crate) fn send_packet(
        &mut self,
        now: Instant,
        packet: PacketRef,
        pool: &mut PacketPool,
    ) -> Option<Instant> {
        let PacketArrival { arrives, damaged, duplicate_arrives: again } =
            self.offer_packet(now, packet, pool)?;
        // Insert the original before its copy, because a copy never arrives first.
        let first = self.insert(arrives, damaged, packet, pool);
        if let Some(arrives) = again {
            let copy = pool[packet].packet.clone();
            let copy = pool.insert(copy);
            self.insert(arrives, false, copy, pool);
        }
        first.then_some(arrives)
    }

    /// Decides a packet's arrival, and releases it from the pool if it is lost.
    #[inline(always)]
    pub(crate) fn offer_packet(
        &mut self,
        now: Instant,
        packet: PacketRef,
        pool: &mut PacketPool,
    ) -> Option<PacketArrival> {
        let p = &pool[packet].packet;
        let frame = matches!(p.body, PacketBody::Frame(_));
        let bytes = p.len + if frame { self.framing.trailer_length() } else { self.framing.overhead() };
        self.count_offered(bytes, p.is_background());
        match self.channel.offer_packet(now, bytes) {
            PacketOutcome::Delivered { arrives, corrupted: damaged, duplicate_arrives: again, .. } => {
                if damaged {
                    self.extras_mut().stats.corrupted += 1;
                }
                if again.is_some() {
                    self.extras_mut().stats.duplicated += 1;
                }
                Some(PacketArrival { arrives, damaged, duplicate_arrives: again })
            }
            PacketOutcome::QueueFull => {
                let stats = &mut self.extras_mut().stats;
                stats.queue_full += 1;
                stats.dropped_bytes += u64::from(bytes);
                pool.release(packet);
                None
            }
            PacketOutcome::Lost { .. } => {
                let stats = &mut self.extras_mut().stats;
                stats.lost += 1;
                stats.dropped_bytes += u64::from(bytes);
                pool.release(packet);
                None
            }
        }
    }

    /// Counts an offered packet.
    #[inline(always)]
    pub(crate) fn count_offered(&mut self, bytes: u32, background: bool) {
        self.offered += 1;
        self.offered_bytes += u64::from(bytes);
        if background {
            let stats = &mut self.extras_mut().stats;
            stats.background += 1;
            stats.background_bytes += u64::from(bytes);
        }
    }

    /// Inserts a packet in flight; true if it arrives before all others.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        arrives: Instant,
        damaged: bool,
        packet: PacketRef,
        pool: &mut PacketPool,
    ) -> bool {
        let new = &mut pool[packet];
        (new.arrives, new.damaged, new.next) = (arrives, damaged, PacketRef::NONE);
        let alone = self.first == PacketRef::NONE;
        if alone {
            self.first = packet;
        } else if pool[self.last].arrives <= arrives {
            pool[self.last].next = packet;
        } else {
            return self.insert_overtaking_packet(arrives, packet, pool);
        }
        self.last = packet;
        alone
    }

    /// Inserts a packet that overtakes others; true if it overtakes all.
    #[cold]
    fn insert_overtaking_packet(&mut self, arrives: Instant, packet: PacketRef, pool: &PacketPool) -> bool {
        let first = pool[self.first].arrives;
        let passing = self.extras_mut().passing.get_or_insert_default();
        let passes_all = arrives < first.min(passing.next_arrival());
        passing.push(arrives, packet);
        self.mixed = true;
        passes_all
    }

    /// Takes the packet that arrives at `now`, and returns the time of the next arrival event. A stale event returns
    /// `None`.
    #[inline]
    pub(crate) fn take_arrived(
        &mut self,
        now: Instant,
        pool: &PacketPool,
    ) -> Option<(PacketRef, Option<Instant>)> {
        if self.mixed {
            return self.take_overtaking_arrival(now, pool);
        }
        let packet = self.first;
        if packet == PacketRef::NONE || pool[packet].arrives != now {
            return None;
        }
        self.first = pool[packet].next;
        let next = self.first != PacketRef::NONE;
        Some((packet, next.then(|| pool[self.first].arrives)))
    }

    /// As [`Self::take_arrived`], while packets overtake others.
    #[cold]
    fn take_overtaking_arrival(
        &mut self,
        now: Instant,
        pool: &PacketPool,
    ) -> Option<(PacketRef, Option<Instant>)> {
        let passing = self.extras.as_mut()?.passing.as_mut()?;
        let first = pool[self.first].arrives;
        if first.min(passing.next_arrival()) != now {
            return None;
        }
        // At equal times, packets of the list go first, because they were sent first. An overtaking packet was sent
        // after those that it passes. A later one arrives no sooner than the last.
        let packet = if first == now {
            let after = pool[self.first].next;
            std::mem::replace(&mut self.first, after)
        } else {
            PacketRef::from_index(passing.packets.pop()?.packet)
        };
        // An overtaken packet arrives after those that overtake it, so the list still has a packet here.
        let next = passing.next_arrival().min(pool[self.first].arrives);
        if passing.packets.is_empty() {
            let keeps = passing.packets.capacity() <= MAX_RETAINED_CAPACITY;
            self.mixed = false;
            if !keeps {
                self.extras_mut().passing = None;
            }
        }
        Some((packet, Some(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::IpVersion;
    use crate::packet::{Datagram, Packet, Payload};
    use std::cell::Cell;
    use usher_core::{Duration, Seed};

    thread_local! {
        /// Number of comparisons between packets that overtake.
        pub(super) static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    fn test_direction() -> LinkDirection {
        let channel = ChannelProperties::from(ChannelConfig::default());
        let rng = Seed::new(1).derive_rng("link", 0);
        LinkDirection::new(HostId(0), HostId(1), 0, channel.into(), 1500, LinkFraming::None, rng)
    }

    fn pooled_packet(pool: &mut PacketPool, number: u16) -> PacketRef {
        let datagram = Datagram { src_port: 1, dst_port: 2, payload: Payload::with_length(10) };
        pool.insert(Packet::from_datagram(IpVersion::V4, HostId(0), HostId(1), number, datagram))
    }

    fn at_nanos(nanoseconds: u64) -> Instant {
        Instant::from_nanos(nanoseconds)
    }

    /// The reference: all packets in one list, each inserted behind those that arrive no later.
    #[derive(Default)]
    struct ReferenceList(Vec<(Instant, u16)>);

    impl ReferenceList {
        fn insert(&mut self, arrives: Instant, number: u16) -> bool {
            let place = self.0.partition_point(|(other, _)| *other <= arrives);
            self.0.insert(place, (arrives, number));
            place == 0
        }
        fn take_arrived(&mut self, now: Instant) -> Option<(u16, Option<Instant>)> {
            let (_, number) = (self.0.first()?.0 == now).then(|| self.0.remove(0))?;
            Some((number, self.0.first().map(|(at, _)| *at)))
        }
    }

    #[test]
    fn packets_arrive_in_order_of_time_and_then_of_sending() {
        let mut rng = Seed::new(1).derive_rng("times", 0);
        for spread in [1, 3, 20, 500] {
            let (mut link, mut pool, mut list) =
                (test_direction(), PacketPool::default(), ReferenceList::default());
            let mut now = 0;
            for number in 0..3000 {
                // Few distinct times, so that many packets arrive at once.
                let arrives = at_nanos(now + rng.next_u64() % spread);
                let sent = pooled_packet(&mut pool, number);
                assert_eq!(link.insert(arrives, false, sent, &mut pool), list.insert(arrives, number));
                for _ in 0..rng.next_u64() % 3 {
                    // Stale events too.
                    let first = list.0.first().map_or(now, |(at, _)| at.as_nanos());
                    let due = if rng.sample_bool(0.8) { first } else { now };
                    now = now.max(due);
                    let came = link.take_arrived(at_nanos(due), &pool);
                    let came = came.map(|(arrived, next)| (pool.take(arrived).ident, next));
                    assert_eq!(came, list.take_arrived(at_nanos(due)));
                }
            }
            while let Some((first, _)) = list.0.first().copied() {
                let came =
                    link.take_arrived(first, &pool).map(|(arrived, next)| (pool.take(arrived).ident, next));
                assert_eq!(came, list.take_arrived(first));
            }
            assert!(!link.mixed && link.extras_mut().passing.as_ref().is_none_or(|p| p.packets.is_empty()));
        }
    }

    #[test]
    fn small_memory_for_overtaking_packets_is_kept_for_reuse() {
        let (mut link, mut pool) = (test_direction(), PacketPool::default());
        let mut passed_by = |packets: u64| {
            for arrives in [9].into_iter().chain((0..packets).map(|_| 8)) {
                let sent = pooled_packet(&mut pool, 0);
                link.insert(at_nanos(arrives), false, sent, &mut pool);
            }
            for due in (0..packets).map(|_| 8).chain([9]) {
                let (arrived, _) = link.take_arrived(at_nanos(due), &pool).expect("it is due");
                pool.release(arrived);
            }
            link.extras.as_ref().and_then(|aside| aside.passing.as_ref()).map(|p| p.packets.capacity())
        };
        assert_eq!(passed_by(0), None);
        let few = passed_by(3);
        assert!(few.is_some_and(|room| room >= 3));
        assert_eq!(passed_by(3), few);
        assert_eq!(passed_by(1000), None);
    }

    #[test]
    fn overtaking_packets_are_sorted_without_a_linear_walk() {
        const PACKETS: u64 = 50_000;
        let (mut link, mut pool) = (test_direction(), PacketPool::default());
        let mut rng = Seed::new(1).derive_rng("times", 0);
        // The last to arrive is sent first; all others overtake it.
        let last = pooled_packet(&mut pool, 0);
        link.insert(at_nanos(2 * PACKETS), false, last, &mut pool);
        COMPARED.set(0);
        for _ in 0..PACKETS {
            let sent = pooled_packet(&mut pool, 1);
            link.insert(at_nanos(1 + rng.next_u64() % PACKETS), false, sent, &mut pool);
        }
        let (mut came, mut now) = (0, Instant::ZERO);
        let mut due = link.extras_mut().passing.as_ref().map(|passing| passing.next_arrival());
        while let Some(time) = due {
            let (arrived, next) = link.take_arrived(time, &pool).expect("it is due");
            assert!(time >= now);
            (now, due, came) = (time, next, came + 1);
            pool.release(arrived);
        }
        assert_eq!((came, now), (PACKETS + 1, at_nanos(2 * PACKETS)));
        // A list would have needed half of them for each.
        let each = COMPARED.get() as f64 / PACKETS as f64;
        assert!(each < 40.0, "{each} comparisons a packet");
        assert_eq!(now.duration_since(at_nanos(PACKETS)), Duration::from_nanos(PACKETS));
    }
}
