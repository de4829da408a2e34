//! Captures: packets of chosen links, serialised with headers and checksums, handed to a [`PacketTap`].

use usher_core::Instant;

/// Where captured packets go.
pub trait PacketTap: std::fmt::Debug + Send {
    /// A packet crossed capture point `interface` (numbers given to
    /// [`Builder::capture`](crate::SimulationBuilder::capture_link)) at `now`, outward or inward.
    fn capture_packet(&mut self, now: Instant, interface: u16, outward: bool, bytes: &[u8]);
    /// The tap as itself again, for the code that made it.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}
