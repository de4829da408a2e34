//! The station (MN): its MIH function, its handover controller, and the receiving end of a flow.
//!
//! Sockets: [`MIH_SERVING`] and [`MIH_TARGET`] of the MIH function, one for the address of each interface; [`FLOW_SERVING`],
//! [`FLOW_TARGET`] and [`BINDING_SOCKET`] of the station itself. Connections are the MIH function's.

mod machine;
mod table;

pub use machine::MobileStation;
pub use table::{Action, On, State, StationRow, StationTable};

use crate::link::{LinkCommand, LinkEvent, StationInterface};
use crate::step::Step;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Instant, ListenerId, OwnerPath, SocketId};
use usher_mih::{LinkTupleId, MihfId, MihfPeer, PeerRoute};

/// The slot of the MIH function within the station.
pub(crate) const MIHF: u16 = 0;
/// Where the MIH function's connections and associations are accepted.
pub const MIH_LISTENER: ListenerId = ListenerId { owner: OwnerPath::from_slot(MIHF), n: 0 };
/// The MIH function's socket at the address of [`StationConfig::serving_link`].
pub const MIH_SERVING: SocketId = SocketId::from_number(0).with_outer_slot(MIHF);
/// The MIH function's socket at the address of [`StationConfig::target_link`].
pub const MIH_TARGET: SocketId = SocketId::from_number(1).with_outer_slot(MIHF);
/// The socket on which the flow arrives by the serving interface: the application's port at its address.
pub const FLOW_SERVING: SocketId = SocketId::from_number(0);
/// The socket on which the flow arrives by the target interface: the application's port at its address.
pub const FLOW_TARGET: SocketId = SocketId::from_number(1);
/// The socket for registrations: port [`usher_mip::PORT`] at the target interface's address.
pub const BINDING_SOCKET: SocketId = SocketId::from_number(2);

/// Who leads the handover.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandoverInitiation {
    /// The station does (draft 6, G.5): on Link_Going_Down it scans and asks.
    Station,
    /// The network does (G.2): on Link_Going_Down the station tells a point of service that has subscribed to that
    /// event, and does what it is asked. A point of service that hears of it from its own link needs no telling.
    Network,
}

/// What the station does when the exchange has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnFailure {
    /// It stays until the old link is down, and then goes to the new one: what the study does.
    WaitForLinkDown,
    /// It goes to the other interface at once. The exchange is not taken up again there. Of a network that leads and has
    /// given up it learns only by the old link's loss.
    OtherInterface,
    /// The same where a request of its own was not answered in time ([`usher_mih::TransactionError::NoResponse`]: acknowledged and
    /// not answered, or never acknowledged because that was not asked for). After a message that was not
    /// acknowledged, a refusal or a scan that found nothing it waits for the old link's loss.
    OtherInterfaceIfUnanswered,
}

/// When MIH_Net_HO_Commit request is answered. The standard of 2008 lets the response tell what became of the link
/// actions, but not how the old link should carry that once it is left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommitAnswer {
    /// After the processing time, while the new link is being entered.
    AfterProcessing,
    /// When the flow is redirected, over the new link.
    AfterRedirection,
}

/// What a station is made of.
#[derive(Clone, Debug)]
pub struct StationConfig {
    /// Its MIH function.
    pub mih: usher_mih::MihfConfig,
    /// The serving point of service, by the serving interface ([`PeerRoute::local`] is its address).
    pub serving: MihfPeer,
    /// The way to the same point of service once the flow is redirected: by the target interface.
    pub serving_after: PeerRoute,
    /// Who hears MIH_MN_HO_Complete: the target network's point of service, by the target interface, as in the standard
    /// of 2008. `None`: the serving one, by `serving_after`.
    pub target: Option<MihfPeer>,
    /// The address of the serving interface, which is the station's home address too.
    pub serving_address: IpAddr,
    /// The address of the target interface: the care-of address.
    pub target_address: IpAddr,
    /// The serving link as MIH messages name it, with its point of attachment.
    pub serving_link: LinkTupleId,
    /// The target link as MIH messages name it, with its point of attachment.
    pub target_link: LinkTupleId,
    /// Who is told of the redirection: the correspondent (or home agent) at port [`usher_mip::PORT`].
    pub correspondent: SocketAddr,
    /// Who leads.
    pub initiation: HandoverInitiation,
    /// What follows a failed exchange.
    pub on_failure: OnFailure,
    /// When MIH_Net_HO_Commit is answered.
    pub commit_answer: CommitAnswer,
    /// How long a request is processed before it is acted upon.
    pub processing: Duration,
    /// How long after a scan that found nothing, an entry that failed, a registration that was refused or lost, it is
    /// tried again.
    pub retry: Duration,
    /// Timing of the redirection.
    pub binding: usher_mip::RegistrationTiming,
    /// Requests that may be in processing at a time; further ones are refused.
    pub max_requests: usize,
}

/// What a station is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StationCommand {
    /// Register with the serving point of service: once, when the serving link carries packets. Link events before that
    /// mean nothing.
    Start,
    /// A link of its own has something to say.
    Link {
        /// Which.
        interface: StationInterface,
        /// What.
        event: LinkEvent,
    },
}

/// Why a handover has failed: the first reason of one that had several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HandoverFailure {
    /// A message was lost for good, or not answered.
    MessageLost,
    /// A request was refused: no resources in the target network, or its point of service could not be asked.
    Refused,
    /// The scan found no network.
    NoNetwork,
    /// The old link was down before the exchange was over.
    LinkDown,
}

impl HandoverFailure {
    /// Its name: small letters and hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MessageLost => "message-lost",
            Self::Refused => "refused",
            Self::NoNetwork => "no-network",
            Self::LinkDown => "link-down",
        }
    }
}

/// What a station has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StationEvent {
    /// The serving point of service knows the station now.
    Registered,
    /// A link shall do something; the answer is a [`StationCommand::Link`].
    LinkCommand {
        /// Which.
        interface: StationInterface,
        /// What.
        command: LinkCommand,
    },
    /// A handover has begun: Link_Going_Down, the network's first request, or a link that was lost without warning.
    HandoverStarted,
    /// A step of the handover is over.
    Step {
        /// Which.
        step: Step,
        /// How long it took.
        duration: Duration,
    },
    /// The flow is redirected: the handover is over, but for its completion with the network.
    HandoverDone {
        /// The exchange led to it.
        success: bool,
        /// Why it did not.
        failure: Option<HandoverFailure>,
        /// When it began.
        started_at: Instant,
        /// When the old link was lost, if it was before the end.
        left: Option<Instant>,
        /// When the redirection was complete.
        completed_at: Instant,
    },
    /// The old link came back while the station waited for its loss: there is no handover.
    HandoverCancelled,
    /// A packet of the flow arrived.
    Received {
        /// Its number.
        sequence: u32,
        /// By which interface.
        interface: StationInterface,
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
    /// What a station did and what it dropped.
    pub struct StationCounters {
        /// Handovers that began.
        began,
        /// Handovers that succeeded.
        succeeded,
        /// Handovers that ended otherwise: in the redirection nevertheless.
        failed,
        /// Handovers that were given up, since the old link came back.
        cancelled,
        /// Exchanges that were broken off, for whatever reason.
        broken_off,
        /// MIH_MN_HO_Complete that was lost for good, refused, or given up with the new link.
        incomplete,
        /// Registrations with the point of service that were lost or refused, and tried again.
        registrations_repeated,
        /// Link_Going_Down that nobody had subscribed to.
        unsubscribed,
        /// Binding Updates that were sent, repetitions included.
        binding_updates,
        /// Binding Updates that were refused, and tried again.
        bindings_refused,
        /// Packets of the flow that arrived.
        received,
        /// Requests that were answered with success.
        answered,
        /// Requests that do not fit the state, and were refused.
        refused,
        /// Requests that were refused because too many were in processing.
        overloaded,
        /// Requests that are no affair of a station.
        unknown_requests,
        /// Indications, which a station does not act upon.
        indications,
        /// Link events that mean nothing in the state that they came in.
        ignored_link_events,
        /// Results of messages that were given up.
        late_results,
        /// Dropped: datagrams to the registration's port that are no packet of it.
        malformed_bindings,
        /// Dropped: registration packets that answer nothing, or are none of the correspondent's.
        stale_bindings,
        /// Dropped: packets of the flow without a number.
        malformed_data,
        /// Inputs that are for no part of the station.
        unexpected,
    }
}
