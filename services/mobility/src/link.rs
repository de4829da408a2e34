//! A station's two links and their events and commands in IEEE 802.21 (MIH_LINK_SAP).

use usher_core::Duration;

/// An interface of a station.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StationInterface {
    /// The initial interface (802.11).
    Serving,
    /// The interface that the station moves to (802.16).
    Target,
}

/// An event of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkEvent {
    /// Link_Detected: the link found a network to which the station is not connected.
    Detected,
    /// Link_Up: the link carries packets.
    Up,
    /// Link_Going_Down: the link will be lost.
    GoingDown {
        /// The predicted time until then.
        time_to_loss: Duration,
    },
    /// Link_Down: the link is lost, or did not come up.
    Down,
    /// The result of [`LinkCommand::Scan`].
    Scanned {
        /// True if the network was found.
        found: bool,
    },
}

/// A command to a link (Link_Action).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkCommand {
    /// Scan for the network. The result is [`LinkEvent::Scanned`].
    Scan,
    /// Connect. The result is [`LinkEvent::Up`] or [`LinkEvent::Down`].
    Connect,
    /// Disconnect.
    Disconnect,
}
