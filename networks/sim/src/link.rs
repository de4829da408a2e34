//! Links: two directions, each a [`Channel`] (rate, queue, delay, impairments) and the packets that are
//! under way on it, in order of arrival.

use crate::addr::HostId;
use crate::packet::{Body, PacketRef, Pool};
use std::collections::VecDeque;
use std::sync::Arc;
use usher_core::impair::{Channel, ChannelConfig, Fate};
use usher_core::{Instant, Rng};

/// A link: index in the order of creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// What every packet on a link carries below IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// Nothing: IP packets as they are.
    #[default]
    None,
    /// 14 bytes of Ethernet II header (no preamble, no FCS).
    Ethernet,
}

impl Framing {
    /// Bytes that the framing adds to an IP packet.
    pub const fn overhead(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Ethernet => 14,
        }
    }
}

/// A link's properties.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkConfig {
    /// From the first named host to the second.
    pub up: ChannelConfig,
    /// From the second to the first.
    pub down: ChannelConfig,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// What carries IP.
    pub framing: Framing,
}

impl Default for LinkConfig {
    /// A perfect Ethernet-sized link without framing.
    fn default() -> Self {
        Self {
            up: ChannelConfig::default(),
            down: ChannelConfig::default(),
            mtu: 1500,
            framing: Framing::None,
        }
    }
}

usher_core::counters! {
    /// What one direction of a link did with the packets that were offered to it.
    pub struct LinkStats {
        /// Packets that were offered.
        offered,
        /// Their bytes, framing included.
        offered_bytes,
        /// Dropped because the queue was full.
        queue_full,
        /// Lost on the medium.
        lost,
        /// Delivered twice.
        duplicated,
        /// Delivered damaged.
        corrupted,
        /// Datagrams to the discard port (RFC 863), offered: traffic of the background.
        background,
        /// Their bytes, framing included.
        background_bytes,
    }
}

/// A packet that will arrive.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    arrives: Instant,
    packet: PacketRef,
    corrupted: bool,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Direction {
    pub(crate) from: HostId,
    pub(crate) to: HostId,
    pub(crate) to_port: u32,
    pub(crate) mtu: u32,
    pub(crate) framing: Framing,
    pub(crate) channel: Channel,
    pub(crate) stats: LinkStats,
    /// Captured where it leaves (the capture point is its sender's port).
    pub(crate) tap_out: Option<u16>,
    /// Captured where it arrives.
    pub(crate) tap_in: Option<u16>,
    /// The time of the one valid arrival event in the event queue; far future for none.
    armed: Instant,
    /// What arrives first, and in order what arrives after it.
    first: Option<UnderWay>,
    more: VecDeque<UnderWay>,
}

impl Direction {
    pub(crate) fn new(
        from: HostId,
        to: HostId,
        to_port: u32,
        config: Arc<ChannelConfig>,
        mtu: u32,
        framing: Framing,
        rng: Rng,
    ) -> Self {
        Self {
            from,
            to,
            to_port,
            mtu,
            framing,
            channel: Channel::new(config, rng),
            stats: LinkStats::default(),
            tap_out: None,
            tap_in: None,
            armed: Instant::FAR_FUTURE,
            first: None,
            more: VecDeque::new(),
        }
    }

    /// Sends a packet, which is gone from the pool if it will not arrive; answers the time for which an
    /// arrival event is to be put in the queue, if one is needed beyond those already there.
    #[inline]
    pub(crate) fn send(&mut self, now: Instant, packet: PacketRef, pool: &mut Pool) -> Option<Instant> {
        let p = &pool[packet];
        let frame = matches!(p.body, Body::Frame(_));
        let bytes = p.len + if frame { 0 } else { self.framing.overhead() };
        self.stats.offered += 1;
        self.stats.offered_bytes += u64::from(bytes);
        if p.is_background() {
            self.stats.background += 1;
            self.stats.background_bytes += u64::from(bytes);
        }
        let (arrives, corrupted, again) = match self.channel.offer(now, bytes) {
            Fate::Delivered { arrives, corrupted, again, .. } => (arrives, corrupted, again),
            Fate::QueueFull => {
                self.stats.queue_full += 1;
                pool.take(packet);
                return None;
            }
            Fate::Lost { .. } => {
                self.stats.lost += 1;
                pool.take(packet);
                return None;
            }
        };
        self.insert(UnderWay { arrives, packet, corrupted });
        if corrupted {
            self.stats.corrupted += 1;
        }
        if let Some(arrives) = again {
            self.stats.duplicated += 1;
            let packet = pool.put(pool[packet].clone());
            self.insert(UnderWay { arrives, packet, corrupted: false });
        }
        self.arm()
    }

    #[inline]
    fn insert(&mut self, new: UnderWay) {
        match &mut self.first {
            None => self.first = Some(new),
            Some(first) if new.arrives < first.arrives => {
                self.more.push_front(std::mem::replace(first, new));
            }
            Some(_) if self.more.back().is_none_or(|last| last.arrives <= new.arrives) => {
                self.more.push_back(new);
            }
            Some(_) => {
                let at = self.more.partition_point(|u| u.arrives <= new.arrives);
                self.more.insert(at, new);
            }
        }
    }

    #[inline]
    fn arm(&mut self) -> Option<Instant> {
        let first = self.first?.arrives;
        if self.armed <= first {
            return None;
        }
        self.armed = first;
        Some(first)
    }

    /// Takes the packet that arrives at `now` (with whether it is damaged), and the time of the next
    /// arrival event to put in the queue. An event that a reordered packet has made stale gives nothing.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Instant) -> Option<(bool, PacketRef, Option<Instant>)> {
        if self.armed != now {
            return None;
        }
        let UnderWay { packet, corrupted, .. } = self.first.take()?;
        self.first = self.more.pop_front();
        self.armed = Instant::FAR_FUTURE;
        Some((corrupted, packet, self.arm()))
    }
}
