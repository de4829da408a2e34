//! A station's two links, as IEEE 802.21 speaks of them (MIH_LINK_SAP).

use usher_core::Duration;

/// Which of a station's interfaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StationInterface {
    /// The one that it is attached by in the beginning (802.11).
    Serving,
    /// The one that it goes to (802.16).
    Target,
}

/// What a link has to say.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkEvent {
    /// Link_Detected: a network was found that the station is not connected to.
    Detected,
    /// Link_Up: the link carries packets.
    Up,
    /// Link_Going_Down: the link will be lost.
    GoingDown {
        /// Forecast of the time until then.
        time_to_loss: Duration,
    },
    /// Link_Down: the link carries nothing any longer, or did not come up.
    Down,
    /// The answer to [`LinkCommand::Scan`].
    Scanned {
        /// The network was found.
        found: bool,
    },
}

/// What a link is told to do (Link_Action).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkCommand {
    /// Look for the network; answered by [`LinkEvent::Scanned`].
    Scan,
    /// Come in; answered by [`LinkEvent::Up`] or [`LinkEvent::Down`].
    Connect,
    /// Leave.
    Disconnect,
}
