//! The station (MN): its MIH function, its handover controller, and the receiving end of a flow.
//!
//! Sockets: [`MIH_SERVING`] and [`MIH_TARGET`] of the MIH function, one for the address of each interface; [`FLOW_SERVING`],
//! [`FLOW_TARGET`] and [`BINDING_SOCKET`] of the station itself. Connections are the MIH function's.

mod machine;
mod table;

pub use machine::MobileStation;
pub use table::{Action, On, State, StationTable, StationTransitionRow};

use crate::link::{LinkCommand, LinkEvent, StationInterface};
use crate::step::Step;
use core::net::{IpAddr, SocketAddr};
use usher_core::{Duration, Instant, ListenerId, MachineOwnerPath, SocketId};
use usher_mih::{LinkTupleId, MihfId, MihfPeer, PeerRoute};

/// The slot of the MIH function within the station.
pub(crate) const MIHF: u16 = 0;
/// The listener of the MIH function's connections and associations.
pub const MIH_LISTENER: ListenerId = ListenerId { owner: MachineOwnerPath::from_slot(MIHF), n: 0 };
/// The MIH function's socket at the address of [`StationConfig::serving_link`].
pub const MIH_SERVING: SocketId = SocketId::from_number(0).with_outer_slot(MIHF);
/// The MIH function's socket at the address of [`StationConfig::target_link`].
pub const MIH_TARGET: SocketId = SocketId::from_number(1).with_outer_slot(MIHF);
/// The socket that receives the flow over the serving interface: the application's port at its address.
pub const FLOW_SERVING: SocketId = SocketId::from_number(0);
/// The socket that receives the flow over the target interface: the application's port at its address.
pub const FLOW_TARGET: SocketId = SocketId::from_number(1);
/// The socket for registrations: port [`usher_mip::PORT`] at the target interface's address.
pub const BINDING_SOCKET: SocketId = SocketId::from_number(2);

/// The side that leads the handover.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HandoverInitiatingSide {
    /// The station (draft 6, G.5): on Link_Going_Down it scans and sends a candidate query.
    Station,
    /// The network (G.2): on Link_Going_Down the station sends an indication to a subscribed point of service and
    /// follows its requests. A point of service that gets the event from its own link needs no indication.
    Network,
}

/// The station's reaction to a failed exchange.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OnFailure {
    /// It stays until the old link is down, and then moves to the new one, as in the study.
    WaitForLinkDown,
    /// It moves to the other interface at once and does not resume the exchange there. If the network leads and gives
    /// up, the station notices only the loss of the old link.
    OtherInterface,
    /// The same, but only if its own request had no response in time ([`usher_mih::TransactionError::NoResponse`]).
    /// Such a request was acknowledged, or requested no acknowledgement. After any other failure it waits for the
    /// loss of the old link: an unacknowledged message, a rejection, or a scan without a result.
    OtherInterfaceIfUnanswered,
}

/// When the station answers a MIH_Net_HO_Commit request. In the 2008 standard the response can report the results of
/// the link actions. It does not say how the old link carries that response after the station has left it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommitAnswer {
    /// After the processing time, while the new link comes up.
    AfterProcessing,
    /// After the redirection, over the new link.
    AfterRedirection,
}

/// The configuration of a station.
#[derive(Clone, Debug)]
pub struct StationConfig {
    /// Its MIH function.
    pub mih: usher_mih::MihfConfig,
    /// The serving point of service over the serving interface, whose address is [`PeerRoute::local`].
    pub serving: MihfPeer,
    /// The route to the same point of service after the redirection, over the target interface.
    pub serving_after: PeerRoute,
    /// The receiver of MIH_MN_HO_Complete: the target network's point of service over the target interface, as in the
    /// 2008 standard. `None`: the serving one, over `serving_after`.
    pub target: Option<MihfPeer>,
    /// The address of the serving interface, and the home address.
    pub serving_address: IpAddr,
    /// The address of the target interface: the care-of address.
    pub target_address: IpAddr,
    /// The serving link in MIH messages, with its point of attachment.
    pub serving_link: LinkTupleId,
    /// The target link in MIH messages, with its point of attachment.
    pub target_link: LinkTupleId,
    /// The receiver of the Binding Update: the correspondent (or home agent) at port [`usher_mip::PORT`].
    pub correspondent: SocketAddr,
    /// The side that leads.
    pub initiation: HandoverInitiatingSide,
    /// The reaction to a failed exchange.
    pub on_failure: OnFailure,
    /// When MIH_Net_HO_Commit is answered.
    pub commit_answer: CommitAnswer,
    /// Processing time of a request.
    pub processing: Duration,
    /// Interval of retries after a scan without a result, a failed connection, or a lost or rejected registration.
    pub retry: Duration,
    /// Timing of the redirection.
    pub binding: usher_mip::RegistrationTimerConfig,
    /// Maximum requests in processing; further ones are rejected.
    pub max_requests: usize,
}

/// A command of the station's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StationCommand {
    /// Registers with the serving point of service. Given once, when the serving link carries packets. Earlier link
    /// events have no effect.
    Start,
    /// An event of an own link.
    Link {
        /// The interface.
        interface: StationInterface,
        /// The event.
        event: LinkEvent,
    },
}

/// Why a handover has failed; the first of several reasons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HandoverFailure {
    /// A message was lost despite retransmissions, or not answered.
    MessageLost,
    /// A request was rejected: the target network has no resources, or its point of service was unreachable.
    Refused,
    /// The scan found no network.
    NoNetwork,
    /// The old link was lost before the exchange ended.
    LinkDown,
}

impl HandoverFailure {
    /// Returns its name in lower-case letters and hyphens.
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

/// An event of a station.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StationEvent {
    /// The station has registered with the serving point of service.
    Registered,
    /// A command to a link. The result is a [`StationCommand::Link`].
    LinkCommand {
        /// The interface.
        interface: StationInterface,
        /// The command.
        command: LinkCommand,
    },
    /// A handover has begun: by Link_Going_Down, the network's first request, or the loss of a link without warning.
    HandoverStarted,
    /// A step of the handover has ended.
    Step {
        /// The step.
        step: Step,
        /// Its duration.
        duration: Duration,
    },
    /// The flow is redirected. Only the completion with the network remains.
    HandoverDone {
        /// True if the exchange led to it.
        success: bool,
        /// Why the exchange failed.
        failure: Option<HandoverFailure>,
        /// When the handover began.
        started_at: Instant,
        /// When the old link was lost, if that was before the end.
        left: Option<Instant>,
        /// When the redirection was complete.
        completed_at: Instant,
    },
    /// The old link recovered while the station waited for its loss, so the handover ends.
    HandoverCancelled,
    /// A packet of the flow has arrived.
    Received {
        /// Its sequence number.
        sequence: u32,
        /// Its interface.
        interface: StationInterface,
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
    /// Counters of a station.
    pub struct StationCounters {
        /// Handovers that began.
        began,
        /// Handovers that succeeded.
        succeeded,
        /// Handovers that failed and ended in the redirection nevertheless.
        failed,
        /// Handovers cancelled: the old link came back.
        cancelled,
        /// Failed exchanges.
        broken_off,
        /// MIH_MN_HO_Complete lost, refused, or abandoned with the new link.
        incomplete,
        /// Registrations with the point of service lost or refused, and repeated.
        registrations_repeated,
        /// Link_Going_Down without a subscriber.
        unsubscribed,
        /// Binding Updates sent, retransmissions included.
        binding_updates,
        /// Binding Updates refused, and repeated.
        bindings_refused,
        /// Packets of the flow that arrived.
        received,
        /// Requests answered with success.
        answered,
        /// Requests refused: wrong state.
        refused,
        /// Requests refused: too many in processing.
        overloaded,
        /// Requests of kinds that a station does not serve.
        unknown_requests,
        /// Indications ignored.
        indications,
        /// Link events ignored in the current state.
        ignored_link_events,
        /// Late results of abandoned messages.
        late_results,
        /// Dropped: malformed datagrams to the registration's port.
        malformed_bindings,
        /// Dropped: registration packets without a request, or from another host than the correspondent.
        stale_bindings,
        /// Dropped: packets of the flow without a number.
        malformed_data,
        /// Inputs for no part of the station.
        unexpected,
    }
}
