//! The association: its state and the interface of the application.

use super::chunk::{Chunk, ErrorCause, SctpPacket};
use super::config::{InitialAssociationValues, LossRecovery, SctpConfig};
use super::inbound::SctpReceiver;
use super::message::UserMessage;
use super::outbound::SctpSender;
use super::path::SctpPath;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use usher_core::{CloseReason, CommandError, Duration, Instant, counters};

/// The association states of RFC 9260 §4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SctpAssociationState {
    /// The association has ended.
    Closed,
    /// INIT is sent.
    CookieWait,
    /// COOKIE ECHO is sent.
    CookieEchoed,
    /// Open in both directions.
    Established,
    /// Closes after all data is acknowledged.
    ShutdownPending,
    /// SHUTDOWN is sent.
    ShutdownSent,
    /// SHUTDOWN was received; the remaining data is being sent.
    ShutdownReceived,
    /// SHUTDOWN ACK is sent.
    ShutdownAckSent,
}

/// An event of an association for its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SctpEvent {
    /// The association is established. A second `Up` means that the peer has restarted (RFC 9260 §5.2.4 A); data in
    /// flight in both directions is lost.
    Up {
        /// Streams for sending.
        outbound: u16,
        /// Streams for receiving.
        inbound: u16,
    },
    /// A whole message.
    Message(UserMessage),
    /// This path failed.
    PathDown(u8),
    /// This path has recovered.
    PathUp(u8),
    /// The association is over; no further event follows.
    Down(CloseReason),
}

/// A packet to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingSctpPacket {
    /// Its path.
    pub path: u8,
    /// The packet.
    pub packet: SctpPacket,
}

counters! {
    /// Counters of an association.
    pub struct SctpStats {
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
        /// DATA chunks received again.
        duplicates,
        /// DATA chunks received on a stream that was not negotiated.
        invalid_stream,
        /// DATA chunks queued during set-up and dropped at its end: the peer did not agree to their stream.
        unsendable,
        /// DATA chunks received and dropped: the receive buffer was full.
        no_room,
        /// Packets dropped: wrong verification tag.
        bad_tag,
        /// Cookies dropped: wrong signature.
        bad_cookie,
        /// Cookies answered with Stale Cookie.
        stale_cookie,
        /// Chunks dropped: they contradict the standard or sent data.
        malformed,
        /// Chunks dropped: unexpected in this state.
        unexpected,
        /// Chunks of unknown type.
        unknown_chunks,
        /// Path failures.
        path_failures,
    }
}

/// The purpose of the association's own timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SctpTimer {
    Off,
    /// T1-init.
    Init,
    /// T1-cookie.
    Cookie,
    /// T2-shutdown.
    Shutdown,
}

/// Maximum pending replies and control chunks; more are dropped, as if they were lost.
const MAX_WAITING: usize = 64;

/// An endpoint of an SCTP association. The [module](super) describes its use.
#[derive(Debug)]
pub struct SctpAssociation {
    pub(super) config: Arc<SctpConfig>,
    pub(super) state: SctpAssociationState,
    /// True after a change that may permit a packet.
    pub(super) wake: bool,
    /// True if INIT or COOKIE ECHO is to be sent or retransmitted.
    pub(super) setup_due: bool,
    /// True if the application closed before the association was established.
    pub(super) is_shutdown_requested: bool,
    /// True if received data is not acknowledged; and true if it must be at once.
    pub(super) owe_sack: bool,
    pub(super) sack_now: bool,
    /// True if data of the peer was acknowledged before.
    pub(super) sacked: bool,
    pub(super) in_fast_recovery: bool,
    /// True if one packet with lost chunks may exceed the congestion window.
    pub(super) grant: bool,
    /// True if no more lost chunks are sent before the next SACK or message.
    pub(super) is_repair_blocked: bool,
    /// True if a fast retransmission is acknowledged: the next burst is limited ([`LossRecovery::Ns2`]).
    pub(super) bound_burst: bool,
    /// True if a chunk was sent against a closed window.
    pub(super) probing: bool,
    /// True if a chunk may probe the closed window.
    pub(super) probe_due: bool,
    /// True if a SACK was received after the last expiration of T3-rtx.
    pub(super) sack_since_timeout: bool,
    pub(super) timer: SctpTimer,
    /// The path of the packet that `timer` awaits an answer to.
    pub(super) timer_path: u8,
    /// The path of the last DATA received.
    pub(super) sack_path: u8,
    /// Packets with data since the last SACK.
    pub(super) unsacked: u32,
    /// New data packets that the current burst may still send.
    pub(super) burst: u32,
    /// Consecutive expirations of `timer`.
    pub(super) retries: u32,
    /// Number of Stale Cookie errors from the peer.
    pub(super) stale_cookies: u32,
    /// Consecutive errors over all paths.
    pub(super) errors: u32,
    pub(super) timer_at: Instant,
    /// Time of the next probe of a closed window.
    pub(super) probe_at: Instant,
    /// When INIT or COOKIE ECHO was sent, if only once.
    pub(super) setup_sent_at: Option<Instant>,
    /// T5-shutdown-guard.
    pub(super) guard_at: Instant,
    pub(super) sack_at: Instant,

    pub(super) initial: InitialAssociationValues,
    /// The local tag, which the peer sends; and the peer's tag, 0 before it is known.
    pub(super) local_tag: u32,
    pub(super) peer_tag: u32,
    pub(super) outbound_streams: u16,
    pub(super) inbound_streams: u16,
    /// Window of the peer beyond the data in flight.
    pub(super) peer_window: u32,
    /// The peer's addresses beside the source of its INIT or INIT ACK.
    pub(super) peer_addresses: Vec<IpAddr>,
    /// The last announced window.
    pub(super) announced: u32,
    /// TSN at which fast recovery ends.
    pub(super) recover: u32,
    /// The highest TSN newly acknowledged since the cumulative TSN last advanced ([`LossRecovery::Ns2`]).
    pub(super) highest_acked: u32,
    /// The highest TSN not waiting for retransmission when the last recovery began; it never decreases
    /// ([`LossRecovery::Ns2`]).
    pub(super) outstanding_until: u32,
    pub(super) out: SctpSender,
    pub(super) inb: SctpReceiver,
    pub(super) paths: Vec<SctpPath>,
    pub(super) cookie: Vec<u8>,
    pub(super) events: VecDeque<SctpEvent>,
    /// Packets to send unchanged.
    pub(super) replies: VecDeque<OutgoingSctpPacket>,
    /// Control chunks to bundle, each with its path.
    pub(super) control: VecDeque<(u8, Chunk)>,
    pub(super) stats: SctpStats,
}

impl SctpAssociation {
    /// Octets that the memory model counts for an association of one path without streams and data: its size in this
    /// simulator on a 64-bit machine. The constant keeps results independent of that size.
    pub const CONTROL_BLOCK: u32 = 880;

    pub(super) fn new(
        config: Arc<SctpConfig>,
        initial: InitialAssociationValues,
        paths: u8,
        state: SctpAssociationState,
    ) -> Self {
        let paths: Vec<SctpPath> = (0..paths.max(1)).map(|_| SctpPath::new(&config)).collect();
        Self {
            state,
            wake: true,
            setup_due: false,
            is_shutdown_requested: false,
            owe_sack: false,
            sack_now: false,
            sacked: false,
            in_fast_recovery: false,
            grant: false,
            is_repair_blocked: false,
            bound_burst: false,
            probing: false,
            probe_due: false,
            sack_since_timeout: false,
            timer: SctpTimer::Off,
            timer_path: 0,
            sack_path: 0,
            unsacked: 0,
            burst: config.max_burst.unwrap_or(u32::MAX),
            retries: 0,
            stale_cookies: 0,
            errors: 0,
            timer_at: Instant::FAR_FUTURE,
            probe_at: Instant::FAR_FUTURE,
            setup_sent_at: None,
            guard_at: Instant::FAR_FUTURE,
            sack_at: Instant::FAR_FUTURE,
            local_tag: initial.tag.max(1),
            peer_tag: 0,
            outbound_streams: config.outbound_streams.max(1),
            inbound_streams: 0,
            peer_window: 0,
            peer_addresses: Vec::new(),
            announced: config.bounded_receive_buffer(),
            recover: initial.tsn.wrapping_sub(1),
            highest_acked: initial.tsn.wrapping_sub(1),
            outstanding_until: initial.tsn.wrapping_sub(1),
            out: SctpSender::new(initial.tsn),
            inb: SctpReceiver::new(0),
            paths,
            cookie: Vec::new(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            control: VecDeque::new(),
            stats: SctpStats::default(),
            initial,
            config,
        }
    }

    /// Opens an association over `paths` paths (at least one); the next poll returns INIT.
    #[must_use]
    pub fn connect(
        config: Arc<SctpConfig>,
        now: Instant,
        initial: InitialAssociationValues,
        paths: u8,
    ) -> Self {
        let mut a = Self::new(config, initial, paths, SctpAssociationState::CookieWait);
        a.setup_due = true;
        a.arm_setup_timer(now);
        a
    }

    /// Queues a message. It waits until the association is established. If its stream is not negotiated then, it is
    /// dropped and counted.
    ///
    /// # Errors
    /// [`CommandError::Invalid`] for an empty message, or a stream that was not negotiated (before that: not
    /// requested); [`CommandError::WrongState`] if the association is closing or closed; [`CommandError::Full`]
    /// beyond 1 GiB of unacknowledged data. No data is queued then.
    pub fn send_message(&mut self, _now: Instant, message: UserMessage) -> Result<(), CommandError> {
        let open = matches!(
            self.state,
            SctpAssociationState::CookieWait
                | SctpAssociationState::CookieEchoed
                | SctpAssociationState::Established
        );
        // RFC 9260, 9.2: no new message while the association closes.
        if !open || self.is_shutdown_requested {
            return Err(CommandError::WrongState("the association accepts no more messages"));
        }
        if message.stream >= self.outbound_streams {
            return Err(CommandError::Invalid("the association has no such stream"));
        }
        // RFC 9260, 3.3.1: DATA has user data.
        if message.payload.len == 0 {
            return Err(CommandError::Invalid("the message is empty"));
        }
        if !self.out.push_message(message, self.config.max_data_chunk_payload()) {
            return Err(CommandError::Full("1 GiB of unacknowledged data"));
        }
        self.is_repair_blocked &= self.config.loss_recovery == LossRecovery::Ns2;
        self.request_output();
        Ok(())
    }

    /// Replaces the settings of an open association. Negotiated values stay, and running timers continue. New
    /// settings apply to further packets and measurements.
    pub fn reconfigure(&mut self, config: Arc<SctpConfig>) {
        self.config = config;
        if self.config.heartbeat_interval.is_none() {
            self.paths.iter_mut().for_each(|path| path.heartbeat_at = Instant::FAR_FUTURE);
        }
    }

    /// Closes gracefully after all data is acknowledged. Repeated calls have no effect. Before the answer to INIT it
    /// closes at once, without an event or a packet.
    pub fn shutdown(&mut self, now: Instant) {
        match self.state {
            SctpAssociationState::CookieWait => self.close(),
            SctpAssociationState::CookieEchoed => self.is_shutdown_requested = true,
            SctpAssociationState::Established => {
                self.state = SctpAssociationState::ShutdownPending;
                self.request_output();
                self.progress_shutdown(now);
            }
            _ => {}
        }
    }

    /// Aborts the association without an event. The next poll returns ABORT if the peer knows of the association.
    pub fn abort(&mut self, _now: Instant) {
        if !matches!(self.state, SctpAssociationState::Closed | SctpAssociationState::CookieWait) {
            self.send_abort(vec![ErrorCause::UserAbort(Vec::new())]);
        }
        self.close();
        self.events.clear();
    }

    /// Returns the next event; poll until `None`.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<SctpEvent> {
        let event = self.events.pop_front()?;
        if let SctpEvent::Message(message) = &event {
            self.inb.unread = self.inb.unread.saturating_sub(message.payload.len);
            let packet = self.config.packet_size();
            if self.announced < packet
                && self.inb.receive_window(self.config.bounded_receive_buffer())
                    >= packet.min(self.config.bounded_receive_buffer() / 2)
                && self.state != SctpAssociationState::Closed
            {
                // RFC 9260, 6.2: one SACK tells the peer that the window has opened.
                self.announced = packet;
                self.owe_sack = true;
                self.sack_now = true;
                self.wake = true;
            }
        }
        Some(event)
    }

    /// True if the host must drain events before it polls packets ([`SctpConfig::deliver_first`]).
    #[must_use]
    pub fn delivers_first(&self) -> bool {
        self.config.deliver_first
    }

    /// Requests output after a change that may permit packets.
    pub(super) fn request_output(&mut self) {
        self.wake = true;
        self.burst = self.config.max_burst.map_or(u32::MAX, |n| n.max(1));
    }
    /// Queues a packet that is sent unchanged.
    pub(super) fn queue_reply(&mut self, path: u8, packet: SctpPacket) {
        if self.replies.len() < MAX_WAITING {
            self.replies.push_back(OutgoingSctpPacket { path, packet });
            self.wake = true;
        }
    }
    /// Queues a control chunk.
    pub(super) fn queue_control(&mut self, path: u8, chunk: Chunk) {
        if self.control.len() < MAX_WAITING {
            self.control.push_back((path, chunk));
            self.wake = true;
        }
    }
    pub(super) fn send_abort(&mut self, causes: Vec<ErrorCause>) {
        let path = self.path_of_new_data();
        self.replies.clear();
        self.queue_reply(
            path,
            // RFC 9260, 9.1 and 3.3.7: with the peer's tag, and without DATA.
            SctpPacket::with_chunk(self.peer_tag, Chunk::Abort { reflected: false, causes }),
        );
    }
    /// Aborts the association with an event because the peer violated the protocol.
    pub(super) fn abort_with_cause(&mut self, cause: ErrorCause) {
        self.send_abort(vec![cause]);
        self.fail(CloseReason::Reset);
    }
    /// Ends the association with an event.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        self.close();
        self.events.push_back(SctpEvent::Down(reason));
    }
    /// Drops all state except pending polls.
    fn close(&mut self) {
        self.state = SctpAssociationState::Closed;
        self.wake = true;
        self.stop_timer();
        self.guard_at = Instant::FAR_FUTURE;
        self.sack_at = Instant::FAR_FUTURE;
        self.probe_at = Instant::FAR_FUTURE;
        self.owe_sack = false;
        self.sack_now = false;
        self.control.clear();
        self.out = SctpSender::new(0);
        let unread = self.inb.unread;
        self.inb = SctpReceiver::new(0);
        self.inb.unread = unread;
        self.cookie = Vec::new();
        self.paths.iter_mut().for_each(SctpPath::stop);
    }

    /// Returns the path of new data: the primary, or the first active one.
    pub(super) fn path_of_new_data(&self) -> u8 {
        self.paths.iter().position(|p| p.active).unwrap_or(0) as u8
    }
    /// Returns the path for retransmission of data lost on `path` (§6.4.1): the next active path, or the next one if
    /// none is active.
    pub(super) fn alternate_path(&self, path: u8) -> u8 {
        let n = self.paths.len();
        let at = |i: usize| (usize::from(path) + i) % n;
        let active = (1..=n).map(at).find(|&i| self.paths[i].active);
        active.unwrap_or(at(1)) as u8
    }

    /// True after the end (a last packet may still be pending).
    pub fn is_closed(&self) -> bool {
        self.state == SctpAssociationState::Closed
    }
    /// Returns the state.
    pub fn state(&self) -> SctpAssociationState {
        self.state
    }
    /// Returns the number of outbound streams: negotiated, or requested before that.
    pub fn outbound_streams(&self) -> u16 {
        self.outbound_streams
    }
    /// Returns the negotiated number of inbound streams; 0 before.
    pub fn inbound_streams(&self) -> u16 {
        self.inbound_streams
    }
    /// Returns the counters.
    pub fn stats(&self) -> SctpStats {
        self.stats
    }
    /// Returns the smoothed round-trip time of a path; `None` before its first measurement or for an unknown path.
    pub fn srtt(&self, path: u8) -> Option<Duration> {
        self.paths.get(usize::from(path))?.rtt.srtt()
    }
    /// Returns the retransmission timeout of a path; zero for an unknown path.
    pub fn rto(&self, path: u8) -> Duration {
        self.paths.get(usize::from(path)).map_or(Duration::ZERO, |p| p.rtt.rto)
    }
    /// Returns the congestion window of a path in octets; 0 for an unknown path.
    pub fn cwnd(&self, path: u8) -> u32 {
        self.paths.get(usize::from(path)).map_or(0, |p| p.cwnd)
    }
    /// True if a path is active.
    pub fn is_active(&self, path: u8) -> bool {
        self.paths.get(usize::from(path)).is_some_and(|p| p.active)
    }
    /// Returns its memory in octets. That is [`CONTROL_BLOCK`](Self::CONTROL_BLOCK), 2 per stream, and data of
    /// [`send_message`](Self::send_message) until cumulatively acknowledged (with chunk headers). Received data
    /// counts until the application has read it. Data without content counts in full.
    pub fn memory_octets(&self) -> u32 {
        let streams = 2 * (u32::from(self.outbound_streams) + u32::from(self.inbound_streams));
        let parts = [streams, self.out.wire_octets(), self.inb.buffered, self.inb.unread];
        parts.into_iter().fold(Self::CONTROL_BLOCK, u32::saturating_add)
    }
    /// Returns the octets given to [`send_message`](Self::send_message) and not yet cumulatively acknowledged.
    pub fn bytes_outstanding(&self) -> u64 {
        let queued = self.out.queue.iter().map(|data| u64::from(data.payload.len));
        queued.chain(self.out.sent.iter().map(|sent| u64::from(sent.data.payload.len))).sum()
    }
}
