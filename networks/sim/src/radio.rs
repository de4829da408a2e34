//! Shared media: cells whose stations take turns, and stations that move into and out of coverage.
//!
//! All media have the same interface. The simulation hands them packets and the time, then takes arrivals, losses
//! and link events. Link events and commands are those of IEEE 802.21 (MIH_LINK_SAP), as far as this project uses
//! them.

pub mod motion;
pub mod wifi;
pub mod wimax;

use usher_core::Duration;

/// The direction of a packet, and the station at the far end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RadioDirection {
    /// From the base station or access point to this station.
    Down(u32),
    /// From this station to the base station or access point.
    Up(u32),
}

/// Why a packet is lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// The queue was full.
    QueueFull,
    /// Lost on the air.
    Lost,
    /// All transmissions failed: the receiver did not receive it, or its acknowledgement was lost.
    RetriesExhausted,
    /// The station has no link: it is out of reach or not connected.
    OutOfReach,
}

/// An event of a station's link (IEEE 802.21 Link_Detected, Link_Up, Link_Going_Down, Link_Down and the
/// confirmation of a Link_Action with a scan).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkEvent {
    /// The station found a network that it is not connected to.
    Detected,
    /// The link carries packets.
    Up,
    /// The link will be lost.
    GoingDown {
        /// Predicted time until the loss.
        time_left: Duration,
    },
    /// The link carries no packets any longer, or did not come up.
    Down(LinkDownReason),
    /// A requested scan is over.
    Scanned {
        /// True if the scan found the network.
        found: bool,
    },
}

/// Why a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkDownReason {
    /// The station left the coverage.
    OutOfReach,
    /// The station obeyed a command to disconnect.
    Disconnected,
    /// Association or network entry failed.
    EntryFailed,
}

/// A command to a station's link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkCommand {
    /// Scan for the network; leads to [`LinkEvent::Scanned`].
    Scan,
    /// Connect; leads to [`LinkEvent::Up`] or [`LinkEvent::Down`].
    Connect,
    /// Disconnect; leads to [`LinkEvent::Down`].
    Disconnect,
}
