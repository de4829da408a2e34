//! The association: its state, and the application's side of it.

use super::chunk::Packet;
use super::config::Config;
use super::listen::Initial;
use crate::packet::Payload;
use std::sync::Arc;
use usher_core::{CloseReason, CommandError, Duration, Instant, counters};

/// The association states of RFC 9260 §4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// There is no association any more.
    Closed,
    /// INIT is sent.
    CookieWait,
    /// COOKIE ECHO is sent.
    CookieEchoed,
    /// Open both ways.
    Established,
    /// To be closed once all is acknowledged.
    ShutdownPending,
    /// SHUTDOWN is sent.
    ShutdownSent,
    /// SHUTDOWN has come; what is left is being sent.
    ShutdownReceived,
    /// SHUTDOWN ACK is sent.
    ShutdownAckSent,
}

/// A user message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// The stream that it is sent or came on.
    pub stream: u16,
    /// Payload protocol identifier; SCTP does not look at it.
    pub ppid: u32,
    /// Delivered without regard to the stream's order.
    pub unordered: bool,
    /// The message; not empty.
    pub payload: Payload,
}

/// What an association has to say to its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is up, with this many streams each way. A second time: the other side has begun anew (RFC 9260
    /// §5.2.4 A), and what was under way either way is lost.
    Up {
        /// Streams that we may send on.
        outbound: u16,
        /// Streams that we may receive on.
        inbound: u16,
    },
    /// A whole message.
    Message(Message),
    /// This path failed.
    PathDown(u8),
    /// This path works again.
    PathUp(u8),
    /// It is over; no further event will come.
    Down(CloseReason),
}

/// A packet to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// On this path.
    pub path: u8,
    /// The packet.
    pub packet: Packet,
}

counters! {
    /// What an association counted.
    pub struct Stats {
        /// Packets sent, of every kind.
        packets_sent,
        /// Packets received, of every kind, dropped ones included.
        packets_received,
        /// Packets sent that carry no user data.
        control_packets,
        /// DATA chunks sent, retransmissions included.
        data_chunks,
        /// DATA chunks sent again.
        retransmitted_chunks,
        /// Expiries of T3-rtx.
        timeouts,
        /// Entries into fast recovery.
        fast_retransmits,
        /// DATA chunks received that had come before.
        duplicates,
        /// DATA chunks received, or queued before the set-up, on a stream that was not negotiated.
        invalid_stream,
        /// DATA chunks received that found no room in the receive buffer.
        no_room,
        /// Packets dropped for their verification tag.
        bad_tag,
        /// Cookies dropped for their signature.
        bad_cookie,
        /// Cookies answered with Stale Cookie.
        stale_cookie,
        /// Chunks dropped because they contradict the standard or what was sent.
        malformed,
        /// Chunks dropped because the state does not want them.
        unexpected,
        /// Chunks of unknown type.
        unknown_chunks,
        /// Times that a path was held for failed.
        path_failures,
    }
}

/// One endpoint of an SCTP association; see the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Association {
    config: Arc<Config>,
    state: State,
    stats: Stats,
}

impl Association {
    /// Opens an association over `paths` paths (at least one): INIT is then polled.
    #[must_use]
    pub fn connect(config: Arc<Config>, now: Instant, initial: Initial, paths: u8) -> Self {
        let _ = (now, initial, paths);
        Self { config, state: State::CookieWait, stats: Stats::default() }
    }
    /// Takes a packet of this association that came in on `path`. Then drain
    /// [`poll_event`](Self::poll_event) and [`poll_transmit`](Self::poll_transmit), in this order.
    pub fn handle_packet(&mut self, now: Instant, path: u8, packet: Packet) {
        let _ = (now, path, packet);
    }
    /// The time that [`poll_timeout`](Self::poll_timeout) asked for has come; early calls are harmless.
    /// Then drain.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }
    /// Queues a message. Before the association is up it waits; if the stream then turns out not to be
    /// negotiated, it is dropped and counted.
    ///
    /// # Errors
    /// [`CommandError::Invalid`] for a stream that was not negotiated (before that: not asked for) and an
    /// empty message; [`CommandError::WrongState`] where it is closing or closed; [`CommandError::Full`]
    /// where more than 1 GiB would wait. Nothing was taken then.
    pub fn send(&mut self, now: Instant, message: Message) -> Result<(), CommandError> {
        let _ = (now, message);
        Ok(())
    }
    /// Closes in good order once all that was sent is acknowledged. Does nothing where that was done
    /// already; before the association is up nothing is sent and no event follows.
    pub fn shutdown(&mut self, now: Instant) {
        let _ = now;
    }
    /// Ends the association: no event follows, ABORT is then polled where the other side knows of us.
    pub fn abort(&mut self, now: Instant) {
        let _ = now;
    }
    /// The next event; poll until `None`.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    /// The next packet to send; poll until `None`.
    #[must_use]
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        let _ = now;
        None
    }
    /// When to call [`handle_timeout`](Self::handle_timeout); it may move at any call.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// True once it is over (a last packet may still be polled).
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }
    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }
    /// What was counted.
    pub fn stats(&self) -> Stats {
        self.stats
    }
    /// The smoothed round-trip time of a path; `None` before its first measurement.
    pub fn srtt(&self, path: u8) -> Option<Duration> {
        let _ = path;
        None
    }
    /// The retransmission timeout of a path.
    pub fn rto(&self, path: u8) -> Duration {
        let _ = path;
        self.config.rto_initial
    }
    /// The congestion window of a path in bytes.
    pub fn cwnd(&self, path: u8) -> u32 {
        let _ = path;
        self.config.initial_window.bytes(self.config.pmdcs())
    }
}
