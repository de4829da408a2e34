//! Commands and events of an MIH function.

use super::config::{MihfConfig, MihfPeer};
use crate::{EventConfig, EventList, LinkTupleId, MihfId, MihfMessage};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Identifies a peer's request until it is answered with [`MihfCommand::Respond`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IncomingRequestId(pub(super) u64);

/// A command of an MIH function's user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihfCommand {
    /// Configures a peer or changes its route. Pending transactions continue by the new route.
    Peer(MihfPeer),
    /// Removes a peer's configuration.
    Unname(MihfId),
    /// Replaces timers, capabilities and the limit of registrations. The memory limits keep their initial values.
    Configure(Box<MihfConfig>),
    /// Sends a request or an indication. [`MihfEvent::Done`] reports its result, exactly once.
    Send {
        /// The user's token, free again after [`MihfEvent::Done`].
        token: u64,
        /// The destination. An indication or Capability_Discover can go to [`MihfId::multicast`], if that is
        /// configured as a peer. The first response ends a multicast request.
        to: MihfId,
        /// The request or indication.
        message: MihfMessage,
    },
    /// Answers [`MihfEvent::Request`].
    Respond {
        /// The request.
        transaction: IncomingRequestId,
        /// The response: the request's service and action, with at least one parameter.
        message: MihfMessage,
    },
    /// Ends a transaction without further messages and without [`MihfEvent::Done`].
    Abandon {
        /// The token of [`MihfCommand::Send`].
        token: u64,
    },
}

/// An event of an MIH function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MihfEvent {
    /// An indication has arrived.
    Indication {
        /// The sender.
        from: MihfId,
        /// The indication.
        message: MihfMessage,
    },
    /// A request has arrived and needs [`MihfCommand::Respond`].
    Request {
        /// The sender.
        from: MihfId,
        /// Identifies the request in the response.
        transaction: IncomingRequestId,
        /// The request.
        message: MihfMessage,
    },
    /// A sent message's transaction has ended.
    Done {
        /// The token of [`MihfCommand::Send`].
        token: u64,
        /// The response to a request, with any status. `None` for an indication, which ends with its acknowledgement,
        /// or at once if it requests none.
        result: Result<Option<MihfMessage>, TransactionError>,
    },
    /// A function has answered a multicast Capability_Discover. [`MihfEvent::Done`] follows with the response.
    Discovered {
        /// The token of [`MihfCommand::Send`].
        token: u64,
        /// The function.
        peer: MihfId,
    },
    /// A peer has registered.
    Registered {
        /// The peer.
        peer: MihfId,
    },
    /// A peer's registration has ended: by request, by expiry, or because another address replaced its address. It
    /// also ends when the user configures the peer at another address. The user drops its own state of the peer.
    Deregistered {
        /// The peer.
        peer: MihfId,
    },
    /// A peer's new address has proved itself and replaces the old one, which does not answer.
    AddressReplaced {
        /// The peer.
        peer: MihfId,
        /// The old address.
        before: IpAddr,
        /// The new address.
        address: SocketAddr,
    },
    /// A message used an identifier that belongs to another address. Reported at most once in 10 s.
    ClaimRefused {
        /// The identifier.
        peer: MihfId,
        /// The sender's address.
        address: SocketAddr,
    },
    /// A peer subscribes to events.
    Subscribed {
        /// The peer.
        peer: MihfId,
        /// The link.
        link: LinkTupleId,
        /// The granted events: the requested ones that [`MihfCapabilities`](super::MihfCapabilities) has, or all requested if it has none.
        events: EventList,
        /// The conditions of the events, if the peer set any.
        configs: Vec<EventConfig>,
    },
    /// A peer ends its subscription to events.
    Unsubscribed {
        /// The peer.
        peer: MihfId,
        /// The link.
        link: LinkTupleId,
        /// The events.
        events: EventList,
    },
}

/// Why a transaction failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
pub enum TransactionError {
    /// No acknowledgement after all retransmissions.
    #[error("no acknowledgement")]
    NoAcknowledgement,
    /// No response in time.
    #[error("no response")]
    NoResponse,
    /// The peer is unknown, or its path is no longer remembered.
    #[error("no route")]
    NoRoute,
    /// The connection failed, or closed before the response. The message requests no MIH acknowledgement and has no
    /// retransmission left.
    #[error("no connection")]
    Transport,
}
