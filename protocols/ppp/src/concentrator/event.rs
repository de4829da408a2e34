//! What a concentrator is told and says.

use super::ConcentratorConfig;
use crate::auth::AuthenticationProof;
use crate::link::{AddressAssignment, AddressFamily, EndReason, LinkNetwork};
use crate::pppoe::MacAddress;
use alloc::boxed::Box;
use alloc::vec::Vec;
use usher_core::PortId;

/// Names a session of a concentrator; a name is never given twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// Where a session's host is, as discovery has told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriberInfo {
    /// At which port.
    pub port: PortId,
    /// Its address.
    pub address: MacAddress,
    /// SESSION_ID: by it and the addresses the data plane knows the session's frames.
    pub number: u16,
    /// The service that it asked for.
    pub service: Vec<u8>,
    /// Agent-Circuit-Id, where an intermediate agent is believed (RFC 4679).
    pub circuit_id: Option<Vec<u8>>,
    /// Agent-Remote-Id, likewise.
    pub remote_id: Option<Vec<u8>>,
}

/// What somebody who judges says to a proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthenticationReply {
    /// A further EAP request for the host.
    Continue(Vec<u8>),
    /// The proof holds.
    Accept {
        /// EAP-Success, or a message for people; empty: one is made. MS-CHAPv2's has to begin with the authenticator response
        /// (`S=` and 40 digits, RFC 2759 §5), without which hosts do not believe the concentrator.
        message: Vec<u8>,
        /// What the host may have.
        assignment: Box<AddressAssignment>,
    },
    /// It does not.
    Reject {
        /// EAP-Failure, or a message for people; empty: one is made.
        message: Vec<u8>,
    },
    /// Nobody answers.
    Unanswered,
}

/// What a concentrator is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcentratorCommand {
    /// The answer to [`ConcentratorEvent::Authenticate`].
    Answer {
        /// Of the event.
        session: SessionId,
        /// The answer.
        answer: AuthenticationReply,
    },
    /// End a session, by LCP and then by PADT.
    Close(SessionId),
    /// End all sessions so.
    CloseAll,
    /// Allow this from now on; sessions that are there stay as they are.
    Configure(Box<ConcentratorConfig>),
}

/// What a concentrator says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConcentratorEvent {
    /// A session has begun; nobody knows whose it is.
    SessionStarted {
        /// The session.
        session: SessionId,
        /// Where its host is.
        subscriber: SubscriberInfo,
    },
    /// A host shows who it is; [`ConcentratorCommand::Answer`] is owed. It may do so again later, when it negotiates its link
    /// anew: its networks have been removed by then.
    Authenticate {
        /// Of which session.
        session: SessionId,
        /// Who it says it is.
        user: Vec<u8>,
        /// How it proves it.
        proof: AuthenticationProof,
        /// Octets of the longest packet that it takes: a longer one by EAP ends the session.
        mtu: u16,
    },
    /// Packets of this network are to be let through, before what is sent after this.
    Install {
        /// Of which session.
        session: SessionId,
        /// Where its host is.
        subscriber: SubscriberInfo,
        /// Octets of the longest packet.
        mtu: u16,
        /// The addresses of both ends.
        network: LinkNetwork,
    },
    /// Packets of this network are not to be let through any more.
    Remove {
        /// Of which session.
        session: SessionId,
        /// Which network.
        family: AddressFamily,
    },
    /// Packets may be so long from now on: longer ones than ordinary have passed (RFC 4638 §5.2).
    Mtu {
        /// Of which session.
        session: SessionId,
        /// Octets.
        mtu: u16,
    },
    /// A session has ended. Its networks have been removed.
    Ended {
        /// The session.
        session: SessionId,
        /// Why.
        reason: EndReason,
    },
}
