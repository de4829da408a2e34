//! The part of a network that a simulation runs.

use super::SimEvent;
use crate::addr::HostId;
use crate::link::PacketArrival;
use crate::packet::Packet;
use std::fmt::Debug;
use usher_core::Instant;

/// The part of a network that a simulation runs: a [`WholeNetwork`] or a [`HalfNetwork`](super::HalfNetwork).
pub trait SimulationScope: Debug {
    /// The order mark of an event in the queue, beside its time.
    type Mark: Copy + PartialOrd + Debug;
    /// Returns the mark of an event inserted now.
    fn mark_at(now: Instant) -> Self::Mark;
    /// True if another simulation runs this host.
    fn is_elsewhere(&self, host: HostId) -> bool;
    /// Passes a packet to the simulation that runs its receiver.
    fn hand_over(&mut self, crossing: CrossHalfPacket);
}

/// A whole network.
#[derive(Clone, Copy, Debug)]
pub struct WholeNetwork;

impl SimulationScope for WholeNetwork {
    type Mark = ();
    #[inline(always)]
    fn mark_at(_: Instant) {}
    #[inline(always)]
    fn is_elsewhere(&self, _: HostId) -> bool {
        false
    }
    #[inline(always)]
    fn hand_over(&mut self, _: CrossHalfPacket) {}
}

/// When and by which origin an event was inserted: orders events of the same time.
#[derive(Clone, Copy, Debug)]
pub struct EventOrderKey(u64);

impl EventOrderKey {
    /// Inserted by this half.
    pub(super) const OWN: u64 = 0;
    /// Sent by the other half. These are in the order of their sending.
    pub(super) const SENT: u64 = 1;
    /// Sent by the other half, behind a packet on the same link, and inserted at that packet's arrival.
    pub(super) const FOLLOWS: u64 = 2;

    /// Creates a mark. Nanoseconds of more than a century leave two bits free.
    pub(super) fn new(queued: Instant, by: u64) -> Self {
        Self(queued.as_nanos() << 2 | by)
    }
    pub(super) fn queue_position(self) -> u64 {
        self.0 >> 2
    }
    pub(super) fn origin(self) -> u64 {
        self.0 & 3
    }
    /// True if the order of two events with equal times and marks is known. Events that follow others on their link
    /// are in order if they have the same link.
    pub(super) fn is_decided(self, event: SimEvent, other: (Self, SimEvent)) -> bool {
        self.origin() == other.0.origin() && (self.origin() != Self::FOLLOWS || event == other.1)
    }
}

impl PartialEq for EventOrderKey {
    fn eq(&self, other: &Self) -> bool {
        self.queue_position() == other.queue_position()
    }
}

impl PartialOrd for EventOrderKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.queue_position().partial_cmp(&other.queue_position())
    }
}

/// A packet on its way from one half to the other.
#[derive(Debug)]
pub struct CrossHalfPacket {
    pub(super) direction: u32,
    pub(super) arrives: Instant,
    pub(super) mark: EventOrderKey,
    pub(super) damaged: bool,
    pub(super) packet: Packet,
}

impl CrossHalfPacket {
    #[inline]
    pub(super) fn new(direction: u32, now: Instant, carried: PacketArrival, packet: Packet) -> Self {
        let PacketArrival { arrives, damaged, .. } = carried;
        Self { direction, arrives, mark: EventOrderKey::new(now, EventOrderKey::SENT), damaged, packet }
    }
}
