//! The client's commands, its events and their failures.

use crate::{AccessReply, DynamicRequest, ErrorCause, TerminateCause};
use alloc::boxed::Box;
use usher_diameter::node::{self, PeerId};
use usher_radius::client::{ServerHealth, ServerHealthCause};

/// An inconsistent configuration of a NAS.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// An error of the RADIUS client's part.
    #[error("RADIUS client: {0}")]
    Radius(#[from] usher_radius::client::ConfigError),
    /// An error of the dynamic authorization's part.
    #[error("dynamic authorization: {0}")]
    Dynamic(#[from] usher_radius::server::ConfigError),
    /// The identifier is longer than an attribute.
    #[error("the NAS-Identifier has {0} octets; the limit is 253")]
    Identifier(usize),
    /// Neither identifier nor address.
    #[error("a NAS needs an identifier or an address (RFC 2865 section 4.1)")]
    Nameless,
}

/// The reason for which the AAA servers gave no reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AaaRequestFailure {
    /// No server answered.
    Timeout,
    /// The request cannot be sent now, since no connection is up.
    Unavailable,
    /// The request's connection was lost, and it could not be sent again.
    ConnectionLost,
    /// A Diameter Result-Code: the request did not reach a deciding server, or the server did not store the record.
    Fault(u32),
    /// The reply is malformed or of an unexpected kind.
    BadAnswer,
}

/// A command to a client, beside [`send_request`](super::AccessClient::send_request) and
/// [`send_record`](super::AccessClient::send_record).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessClientCommand {
    /// Cancels a request, and closes its own connection, if it has one. A reply that is already known may still follow.
    Cancel {
        /// The request's token.
        token: u64,
    },
    /// Cancels a record. It is not retransmitted.
    CancelRecord {
        /// The record's token.
        token: u64,
    },
    /// Reports the end of a session to a stateful Diameter server ([`stateful`](super::DiameterConfig::stateful)).
    Terminate {
        /// The token of the session's login.
        token: u64,
        /// The cause of the end.
        cause: TerminateCause,
    },
    /// Answers [`AccessClientEvent::Dynamic`]. A refused reauthentication ends the session for the server too (RFC 6733
    /// §8.1), so no [`Terminate`](Self::Terminate) follows. A refused disconnection is answered with
    /// DIAMETER_UNABLE_TO_COMPLY if the session exists (§8.5.2).
    AnswerDynamic {
        /// The request's token.
        token: u64,
        /// Success, or the reason for the refusal.
        answer: Result<(), ErrorCause>,
    },
    /// Connects to or disconnects a Diameter peer, numbered as in [`AccessClientEvent::Peer`].
    Diameter(node::DiameterNodeCommand),
}

/// An event of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AccessClientEvent {
    /// The server requests a further round.
    Challenge {
        /// The request's token.
        token: u64,
        /// The reply, with the EAP packet or the message for the peer.
        reply: AccessReply,
    },
    /// The server accepts the user.
    Accept {
        /// The request's token.
        token: u64,
        /// The reply, with the user's authorisation.
        reply: AccessReply,
    },
    /// The server rejects the user.
    Reject {
        /// The request's token.
        token: u64,
        /// The reply, with a message for the user.
        reply: AccessReply,
    },
    /// The request failed without a reply.
    Failed {
        /// The request's token.
        token: u64,
        /// The reason.
        failure: AaaRequestFailure,
    },
    /// A record is complete.
    Accounted {
        /// The record's token.
        token: u64,
        /// Success if the server has the record, or if a later record of the session replaces it. Otherwise the reason.
        result: Result<(), AaaRequestFailure>,
    },
    /// The AAA server's request about a session.
    Dynamic(Box<DynamicRequest>),
    /// A Diameter peer has become available or unavailable.
    Peer {
        /// The index among the configured peers, counted over all connections
        /// ([`DiameterConnections`](super::DiameterConnections)).
        peer: PeerId,
        /// True if available.
        up: bool,
    },
    /// The health of a RADIUS server with liveness checks ([`usher_radius::client::ServerConfig::liveness`]).
    Server {
        /// The server's index.
        server: u16,
        /// Its health.
        health: ServerHealth,
        /// The cause of the change.
        cause: ServerHealthCause,
    },
}

/// Tokens of records have this bit inside the protocols, which separates them from requests.
pub(super) const ACCOUNTING: u64 = 1 << 63;
