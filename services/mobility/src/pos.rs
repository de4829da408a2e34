//! The point of service (PoS): its MIH function, its handover controller, and its resources. One machine is the
//! serving side for stations that leave its network, and the target side for stations that arrive.
//!
//! Its only socket is socket 0, of its MIH function.

mod admission;
mod machine;
mod table;

pub use admission::StationAdmissionTable;
pub use machine::PointOfService;
pub use table::{Action, On, PointOfServiceTable, PosTransitionRow, State};

use crate::link::LinkEvent;
use crate::step::Step;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::Duration;
use usher_mih::{LinkAddr, LinkTupleId, LinkType, MihfId, MihfPeer};

/// The trigger of a handover that the point of service leads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandoverTrigger {
    /// None: stations lead.
    Never,
    /// Link_Going_Down of its own point of attachment's link to the station ([`PosCommand::Link`]).
    Local,
    /// The station's MIH_Link_Going_Down indication. The point of service subscribes to it when the station
    /// registers.
    Remote,
}

/// A station of the point of service.
#[derive(Clone, Debug)]
pub struct ServedStation {
    /// The station's MIH function and its route.
    pub peer: MihfPeer,
    /// The station's link to this network.
    pub link: LinkTupleId,
}

/// The point of service of the other network.
#[derive(Clone, Debug)]
pub struct NeighbourPos {
    /// Its MIH function and its route.
    pub peer: MihfPeer,
    /// The technology of its network.
    pub technology: LinkType,
    /// The point of attachment of its network.
    pub poa: LinkAddr,
}

/// The configuration of a point of service.
#[derive(Clone, Debug)]
pub struct PosConfig {
    /// Its MIH function.
    pub mih: usher_mih::MihfConfig,
    /// The point of attachment of its network. It tells arrivals from departures.
    pub poa: LinkAddr,
    /// The stations that it serves; requests of others are rejected.
    pub clients: Vec<ServedStation>,
    /// The network that its stations can move to.
    pub neighbour: Option<NeighbourPos>,
    /// The trigger of its handovers.
    pub trigger: HandoverTrigger,
    /// Processing time of a request.
    pub processing: Duration,
    /// Maximum stations of its network, attached ones plus reservations.
    pub capacity: u32,
    /// Lifetime of a reservation.
    pub reserve: Duration,
    /// Time after its latest message until an unfinished handover is dropped.
    pub handover_expiry: Duration,
    /// Maximum requests in processing; further ones are rejected.
    pub max_requests: usize,
}

/// A command of the point of service's owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosCommand {
    /// Starts and configures the routes to its peers. It is the first command, given once.
    Start,
    /// An event of the point of attachment's link to a station.
    Link {
        /// The station.
        station: MihfId,
        /// The event.
        event: LinkEvent,
    },
    /// An attached station has left without a handover.
    Leave {
        /// The station.
        station: MihfId,
    },
}

/// An event of a point of service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosEvent {
    /// A station has registered.
    Registered {
        /// The station.
        station: MihfId,
    },
    /// The point of service begins a handover.
    HandoverStarted {
        /// The station.
        station: MihfId,
    },
    /// A step of a handover that it leads has ended.
    Step {
        /// The station.
        station: MihfId,
        /// The step.
        step: Step,
        /// Its duration.
        duration: Duration,
    },
    /// A handover that it leads has failed.
    BrokenOff {
        /// The station.
        station: MihfId,
    },
    /// A station has arrived from the other network.
    Arrived {
        /// The station.
        station: MihfId,
    },
    /// A station has moved to the other network.
    Departed {
        /// The station.
        station: MihfId,
    },
    /// A message was refused because its identifier belongs to another address.
    ClaimRefused {
        /// The identifier.
        peer: MihfId,
        /// The sender's address.
        address: SocketAddr,
    },
}

usher_core::counters! {
    /// Counters of a point of service.
    pub struct PosCounters {
        /// Handovers that it began.
        began,
        /// Failed handovers among those that it began.
        broken_off,
        /// Stations that came from the other network.
        arrived,
        /// Stations that went to the other network.
        gone,
        /// Reservations made.
        reserved,
        /// Reservations that expired before their station came.
        expired,
        /// Queries and reservations refused: no resources.
        no_resources,
        /// Handovers that expired without further messages.
        forgotten,
        /// Requests answered with success.
        answered,
        /// Requests refused: wrong state, no resources, or a refusal of the other network.
        refused,
        /// Requests of unknown stations, or about them.
        unknown_stations,
        /// Refused: requests between networks from another network than the neighbour.
        unknown_networks,
        /// Requests refused: too many in processing.
        overloaded,
        /// Requests of kinds that a point of service does not serve.
        unknown_requests,
        /// Indications ignored.
        ignored_indications,
        /// Link events ignored.
        ignored_link_events,
        /// Subscriptions lost or refused.
        subscriptions_failed,
        /// Late results of abandoned messages.
        late_results,
    }
}
