//! A peer's connection, a byte stream or an association, and the choice of a message's stream.

use super::{DiameterNode, DiameterNodeTimer};
use crate::avp::AvpSequence;
use crate::codes;
use crate::message::HEADER_LEN;
use crate::stream::{MessageFramer, SCTP_PPID, StreamPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use usher_core::{ConnId, Instant, MessageAssociationOp, StreamOp, Transmit};

#[derive(Debug)]
pub(super) struct PeerConnection {
    pub(super) peer: Option<u32>,
    pub(super) link: PeerTransport,
    /// Our address, if known.
    pub(super) local: Option<IpAddr>,
    /// The source of an accepted connection, until its CER identifies the peer.
    pub(super) origin: Option<AcceptedConnectionSource>,
    /// Deadline for its CER.
    pub(super) deadline: Option<Instant>,
}

/// The source of an accepted connection.
#[derive(Debug)]
pub(super) struct AcceptedConnectionSource {
    pub(super) remote: SocketAddr,
    /// The peer's TLS certificate (DER).
    pub(super) certificate: Option<Box<[u8]>>,
}

#[derive(Debug)]
pub(super) enum PeerTransport {
    Stream(MessageFramer),
    Association {
        /// The negotiated number of outbound streams.
        streams: u16,
        policy: StreamPolicy,
        /// True if the peer is known to be open. Before that all messages go in order, because the peer does not expect
        /// a message before the CEA (RFC 6733 §2.1.1).
        settled: bool,
    },
}

/// The class of a message, for the choice of its stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageStreamClass<'a> {
    /// A message of the base protocol.
    Base,
    /// A request of this session.
    Session(&'a [u8]),
    /// The answer to a request on this stream.
    Answer(u16),
}

/// The connection and stream of a received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedMessageStream {
    pub(super) conn: ConnId,
    /// 0 for a byte stream.
    pub(super) stream: u16,
}

/// The way in which a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionCloseMode {
    Shutdown,
    Abort,
}

impl PeerTransport {
    /// Returns stream and unordered flag. Watchdogs and disconnections go in order on stream 0, so that a DPR does not
    /// overtake earlier base messages.
    fn select_stream(&self, lane: MessageStreamClass<'_>) -> (u16, bool) {
        match (self, lane) {
            (
                Self::Association { settled: true, streams, policy, .. },
                MessageStreamClass::Session(session),
            ) => policy.request_stream(Some(session), *streams),
            (
                Self::Association { settled: true, streams, policy, .. },
                MessageStreamClass::Answer(came_by),
            ) => policy.answer_stream(came_by, *streams),
            _ => (0, false),
        }
    }

    fn close_operation(&self, conn: ConnId, how: ConnectionCloseMode) -> Transmit {
        match (self, how) {
            (Self::Stream(_), ConnectionCloseMode::Shutdown) => {
                Transmit::Stream { conn, op: StreamOp::Shutdown }
            }
            (Self::Stream(_), ConnectionCloseMode::Abort) => Transmit::Stream { conn, op: StreamOp::Abort },
            (Self::Association { .. }, ConnectionCloseMode::Shutdown) => {
                Transmit::Message { assoc: conn, op: MessageAssociationOp::Shutdown }
            }
            (Self::Association { .. }, ConnectionCloseMode::Abort) => {
                Transmit::Message { assoc: conn, op: MessageAssociationOp::Abort }
            }
        }
    }
}

/// The Session-Id of our encoded message, if it is the first AVP (RFC 6733 §8.8).
pub(super) fn session_of(wire: &[u8]) -> &[u8] {
    let avps = wire.get(HEADER_LEN..).unwrap_or_default();
    AvpSequence::from_checked(avps).next().filter(|a| a.has_id(codes::SESSION_ID)).map_or(&[], |a| a.data)
}

impl DiameterNode {
    /// Queues a whole message for a connection, if it still exists.
    pub(super) fn queue_message_on_connection(
        &mut self,
        conn: ConnId,
        lane: Option<MessageStreamClass<'_>>,
        message: Vec<u8>,
    ) {
        let Some(c) = self.conns.get(&conn) else { return self.outputs.recycle_buffer(message) };
        let transmit = match &c.link {
            PeerTransport::Stream(_) => Transmit::Stream { conn, op: StreamOp::Data },
            link => {
                let (stream, unordered) = link
                    .select_stream(lane.unwrap_or_else(|| MessageStreamClass::Session(session_of(&message))));
                let op = MessageAssociationOp::Data { stream, ppid: SCTP_PPID, unordered };
                Transmit::Message { assoc: conn, op }
            }
        };
        self.outputs.push_transmit(transmit, message);
    }

    /// Removes a connection without closing it.
    pub(super) fn remove_connection(&mut self, conn: ConnId) -> Option<PeerConnection> {
        let c = self.conns.remove(&conn)?;
        if let Some(at) = c.deadline {
            self.timers.remove(at, DiameterNodeTimer::Accepted(conn));
        }
        Some(c)
    }

    /// Closes a connection, if it still exists.
    pub(super) fn drop_conn(&mut self, conn: Option<ConnId>, how: ConnectionCloseMode) {
        if let Some(conn) = conn
            && let Some(c) = self.remove_connection(conn)
        {
            self.outputs.push_operation(c.link.close_operation(conn, how));
        }
    }

    /// Resets a connection after a protocol violation, as if the peer had closed it.
    pub(super) fn abort_connection(&mut self, now: Instant, conn: ConnId) {
        if let Some(c) = self.conns.get(&conn) {
            self.outputs.push_operation(c.link.close_operation(conn, ConnectionCloseMode::Abort));
            self.on_closed(now, conn);
        }
    }

    /// Marks the peer of an association as open. Messages may then overtake each other.
    pub(super) fn allow_unordered_messages(&mut self, conn: ConnId) {
        if let Some(PeerConnection { link: PeerTransport::Association { settled, .. }, .. }) =
            self.conns.get_mut(&conn)
        {
            *settled = true;
        }
    }
}
