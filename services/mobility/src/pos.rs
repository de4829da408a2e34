//! The point of service (PoS): its MIH function, its handover controller, and its resources. One machine is the serving
//! side for the stations that leave its network and the target side for those that come.
//!
//! Its only socket is that of its MIH function, 0.

mod admission;
mod machine;
mod table;

pub use admission::AdmissionControl;
pub use machine::PointOfService;
pub use table::{Action, On, PointOfServiceTable, PosRow, State};

use crate::link::LinkEvent;
use crate::step::Step;
use alloc::vec::Vec;
use core::net::SocketAddr;
use usher_core::Duration;
use usher_mih::{LinkAddr, LinkTupleId, LinkType, MihfId, MihfPeer};

/// What makes a point of service begin a handover.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandoverTrigger {
    /// Nothing: stations lead.
    Never,
    /// Link_Going_Down of its own point of attachment's link to the station ([`PosCommand::Link`]).
    Local,
    /// MIH_Link_Going_Down indication of the station, which it subscribes to when the station registers.
    Remote,
}

/// A station that it serves, or will.
#[derive(Clone, Debug)]
pub struct ServedStation {
    /// The station's MIH function and the way to it.
    pub peer: MihfPeer,
    /// The station's link to this network.
    pub link: LinkTupleId,
}

/// The other network's point of service.
#[derive(Clone, Debug)]
pub struct NeighbourPos {
    /// Its MIH function and the way to it.
    pub peer: MihfPeer,
    /// The technology of its network.
    pub technology: LinkType,
    /// Its network's point of attachment.
    pub poa: LinkAddr,
}

/// What a point of service is made of.
#[derive(Clone, Debug)]
pub struct PosConfig {
    /// Its MIH function.
    pub mih: usher_mih::MihfConfig,
    /// Its network's point of attachment, by which it knows whether a station came or went.
    pub poa: LinkAddr,
    /// The stations that it has to do with; requests of others are refused.
    pub clients: Vec<ServedStation>,
    /// Where its stations can go.
    pub neighbour: Option<NeighbourPos>,
    /// What makes it begin a handover.
    pub trigger: HandoverTrigger,
    /// How long a request is processed before it is acted upon.
    pub processing: Duration,
    /// How many stations its network has resources for: attached ones and reservations together.
    pub capacity: u32,
    /// How long a reservation waits for its station.
    pub reserve: Duration,
    /// How long after its last message a handover that does not end is forgotten.
    pub handover_expiry: Duration,
    /// Requests that may be in processing at a time; further ones are refused.
    pub max_requests: usize,
}

/// What a point of service is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosCommand {
    /// Begin: the ways to its peers are known from now on. Once, first of all.
    Start,
    /// Its own point of attachment has something to say of its link to a station.
    Link {
        /// Which station.
        station: MihfId,
        /// What.
        event: LinkEvent,
    },
    /// A station that is attached has left without a handover.
    Leave {
        /// Which.
        station: MihfId,
    },
}

/// What a point of service has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PosEvent {
    /// A station registered.
    Registered {
        /// Which.
        station: MihfId,
    },
    /// It begins a handover.
    HandoverStarted {
        /// Of this station.
        station: MihfId,
    },
    /// A step of a handover that it leads is over.
    Step {
        /// Whose handover.
        station: MihfId,
        /// Which step.
        step: Step,
        /// How long it took.
        duration: Duration,
    },
    /// A handover that it leads has failed.
    BrokenOff {
        /// Of this station.
        station: MihfId,
    },
    /// A station came from the other network.
    Arrived {
        /// Which.
        station: MihfId,
    },
    /// A station has gone to the other network.
    Departed {
        /// Which.
        station: MihfId,
    },
    /// Somebody spoke under the identifier of a function that is at another address, and was refused.
    ClaimRefused {
        /// The identifier.
        peer: MihfId,
        /// From where.
        address: SocketAddr,
    },
}

usher_core::counters! {
    /// What a point of service did and what it dropped.
    pub struct PosCounters {
        /// Handovers that it began.
        began,
        /// Handovers of its own that were broken off.
        broken_off,
        /// Stations that came from the other network.
        arrived,
        /// Stations that went to it.
        gone,
        /// Reservations made.
        reserved,
        /// Reservations that nobody came for in time.
        expired,
        /// Queries and reservations refused for want of resources.
        no_resources,
        /// Handovers forgotten because nothing more was heard of them.
        forgotten,
        /// Requests that were answered with success.
        answered,
        /// Requests that were answered otherwise: they do not fit the state, there are no resources, or they had no success
        /// with the other network.
        refused,
        /// Requests of stations that it does not know, or about them.
        unknown_stations,
        /// Requests between networks that were not the neighbour's: refused.
        unknown_networks,
        /// Requests that were refused because too many were in processing.
        overloaded,
        /// Requests that are no affair of a point of service.
        unknown_requests,
        /// Indications that it does not act upon.
        ignored_indications,
        /// Link events that it does not act upon.
        ignored_link_events,
        /// Subscriptions that were lost or refused.
        subscriptions_failed,
        /// Results of messages that were given up.
        late_results,
    }
}
