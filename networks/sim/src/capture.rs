//! Captures: packets of chosen links, serialised with headers and checksums, for a [`PacketTap`].

use usher_core::Instant;

/// A receiver of captured packets.
pub trait PacketTap: std::fmt::Debug + Send {
    /// Takes a packet that crossed capture point `interface` at `now`, outward or inward.
    /// [`SimulationBuilder::capture_link`](crate::SimulationBuilder::capture_link) assigns the numbers.
    fn capture_packet(&mut self, now: Instant, interface: u16, outward: bool, bytes: &[u8]);
    /// Returns the tap as its own type, for the code that made it.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}
