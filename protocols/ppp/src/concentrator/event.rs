//! The commands and events of a concentrator.

use super::ConcentratorConfig;
use crate::auth::AuthenticationProof;
use crate::link::{AddressAssignment, AddressFamily, EndReason, NegotiatedAddresses};
use crate::pppoe::MacAddress;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::LinkLayerPortId;

/// The name of a session of a concentrator, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PppoeSessionId(pub u64);

/// The host of a session, as discovery found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberInfo {
    /// The port of the host.
    pub port: LinkLayerPortId,
    /// The address of the host.
    pub address: MacAddress,
    /// SESSION_ID. With the addresses, it identifies the session's frames to the data plane.
    pub number: u16,
    /// The service that the host asked for.
    pub service: Vec<u8>,
    /// Agent-Circuit-Id, if the intermediate agent is trusted (RFC 4679).
    pub circuit_id: Option<Vec<u8>>,
    /// Agent-Remote-Id, if the intermediate agent is trusted (RFC 4679).
    pub remote_id: Option<Vec<u8>>,
}

/// The reply to a proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthenticationReply {
    /// A further EAP request for the host.
    Continue(Vec<u8>),
    /// The proof is valid.
    Accept {
        /// EAP-Success, or a text for the user; empty: a default. For MS-CHAPv2 it must begin with the authenticator
        /// response (`S=` and 40 digits, RFC 2759 §5). Hosts reject the concentrator without it.
        message: Vec<u8>,
        /// The host's addresses.
        assignment: Box<AddressAssignment>,
    },
    /// The proof is invalid.
    Reject {
        /// EAP-Failure, or a text for the user; empty: a default.
        message: Vec<u8>,
    },
    /// No reply came.
    Unanswered,
}

/// A command to a concentrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcentratorCommand {
    /// The reply to [`ConcentratorEvent::Authenticate`].
    Answer {
        /// The session of the event.
        session: PppoeSessionId,
        /// The reply.
        answer: AuthenticationReply,
    },
    /// Ends a session, by LCP and then by PADT.
    Close(PppoeSessionId),
    /// Ends all sessions, by LCP and then by PADT.
    CloseAll,
    /// Replaces the configuration. Existing sessions keep theirs.
    Configure(Box<ConcentratorConfig>),
}

/// An event of a concentrator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcentratorEvent {
    /// A session has begun. Its host is not authenticated yet.
    SessionStarted {
        /// The session.
        session: PppoeSessionId,
        /// The session's host.
        subscriber: SubscriberInfo,
    },
    /// A host presents a proof. The owner must reply with [`ConcentratorCommand::Answer`]. It can recur when the host
    /// renegotiates its link. The concentrator has then removed the session's networks.
    Authenticate {
        /// The session.
        session: PppoeSessionId,
        /// The claimed user name.
        user: Vec<u8>,
        /// The proof.
        proof: AuthenticationProof,
        /// Octets of the longest packet that the host takes. A longer EAP packet ends the session.
        mtu: u16,
    },
    /// Forward packets of this network, before any output that follows this event.
    Install {
        /// The session.
        session: PppoeSessionId,
        /// The session's host.
        subscriber: SubscriberInfo,
        /// Octets of the longest packet.
        mtu: u16,
        /// The addresses of both ends.
        network: NegotiatedAddresses,
    },
    /// Stop forwarding packets of this network.
    Remove {
        /// The session.
        session: PppoeSessionId,
        /// The network.
        family: AddressFamily,
    },
    /// The maximum packet length has grown: a long test packet has passed (RFC 4638 §5.2).
    Mtu {
        /// The session.
        session: PppoeSessionId,
        /// Octets of the longest packet.
        mtu: u16,
    },
    /// A session has ended. Its networks have been removed before.
    Ended {
        /// The session.
        session: PppoeSessionId,
        /// The reason.
        reason: EndReason,
    },
}
