//! The state of a RadSec connection to a server.

use crate::radsec::PacketFramer;
use usher_core::{ConnId, Instant};

/// The state of a connection to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum ServerConnectionState {
    /// Not connected, since nothing is pending.
    #[default]
    Idle,
    Connecting(ConnId),
    Up(ConnId),
    /// Failed, with the time of the next attempt.
    Failed(Instant),
}

/// A connection to a server, or the intent to open one.
#[derive(Debug, Default)]
pub(super) struct ServerConnection {
    pub(super) state: ServerConnectionState,
    pub(super) framer: PacketFramer,
    /// The number of consecutive connections without a reply.
    pub(super) failures: u32,
    /// True if this connection has carried a reply.
    pub(super) proved: bool,
}

impl ServerConnection {
    /// Returns the connection if it is up.
    pub(super) fn live_connection(&self) -> Option<ConnId> {
        match self.state {
            ServerConnectionState::Up(conn) => Some(conn),
            _ => None,
        }
    }
}
