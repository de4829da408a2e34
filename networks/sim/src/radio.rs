//! Shared media: cells whose stations take turns, and stations that come and go.
//!
//! Every medium is driven alike: told of packets and of the time, asked for what has arrived, what is lost and what its
//! links have to say. Link events and commands are those of IEEE 802.21 (the MIH_LINK_SAP), as far as they are used here.

pub mod motion;
pub mod wifi;
pub mod wimax;

use usher_core::Duration;

/// Which way a packet goes, and the station at the far end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StationDirection {
    /// From the base station or access point to this station.
    Down(u32),
    /// From this station to the base station or access point.
    Up(u32),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DropReason {
    /// Its queue was full.
    QueueFull,
    /// Lost on the air.
    Lost,
    /// It was not heard, or not acknowledged, however often it was tried.
    RetriesExhausted,
    /// Its station has no link: out of reach, or not connected.
    OutOfReach,
}

/// What a station's link has to say (IEEE 802.21 Link_Detected, Link_Up, Link_Going_Down, Link_Down and the answer to
/// Link_Action with a scan).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkEvent {
    /// A network was found that the station is not connected to.
    Detected,
    /// The link carries packets.
    Up,
    /// The link will be lost.
    GoingDown {
        /// Forecast of the time until then.
        time_left: Duration,
    },
    /// The link carries nothing any longer, or did not come up.
    Down(LinkDownReason),
    /// A scan that was asked for is over.
    Scanned {
        /// It found the network.
        found: bool,
    },
}

/// Why a link is down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkDownReason {
    /// The station left the coverage.
    OutOfReach,
    /// The station was told to disconnect.
    Disconnected,
    /// Association or network entry failed.
    EntryFailed,
}

/// What a station's link can be told to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkCommand {
    /// Look for the network; answered by [`LinkEvent::Scanned`].
    Scan,
    /// Come in; answered by [`LinkEvent::Up`] or [`LinkEvent::Down`].
    Connect,
    /// Leave; answered by [`LinkEvent::Down`].
    Disconnect,
}
