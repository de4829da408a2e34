//! The association: its state, and the application's side of it.

use super::chunk::{Chunk, ErrorCause, SctpPacket};
use super::config::{LossRecovery, SctpConfig};
use super::inbound::SctpReceiver;
use super::listen::InitialValues;
use super::outbound::SctpSender;
use super::path::SctpPath;
use crate::packet::Payload;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use usher_core::{CloseReason, CommandError, Duration, Instant, counters};

/// The association states of RFC 9260 §4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SctpState {
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
pub struct UserMessage {
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
pub enum SctpEvent {
    /// It is up, with this many streams each way. A second time: the other side has begun anew (RFC 9260
    /// §5.2.4 A), and what was under way either way is lost.
    Up {
        /// Streams that we may send on.
        outbound: u16,
        /// Streams that we may receive on.
        inbound: u16,
    },
    /// A whole message.
    Message(UserMessage),
    /// This path failed.
    PathDown(u8),
    /// This path works again.
    PathUp(u8),
    /// It is over; no further event will come.
    Down(CloseReason),
}

/// A packet to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutgoingPacket {
    /// On this path.
    pub path: u8,
    /// The packet.
    pub packet: SctpPacket,
}

counters! {
    /// What an association counted.
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
        /// DATA chunks received that had come before.
        duplicates,
        /// DATA chunks received on a stream that was not negotiated.
        invalid_stream,
        /// DATA chunks queued before the set-up and dropped at its end, their stream being none of those negotiated.
        unsendable,
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

/// What the timer of the association as a whole waits for.
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

/// Replies and control chunks that wait to be polled; more are not kept, as if they were lost.
const MAX_WAITING: usize = 64;

/// One endpoint of an SCTP association; see the [module](super) for how to drive it.
#[derive(Debug)]
pub struct SctpAssociation {
    pub(super) config: Arc<SctpConfig>,
    pub(super) state: SctpState,
    /// Something changed that may let a packet leave.
    pub(super) wake: bool,
    /// INIT or COOKIE ECHO is to be sent (again).
    pub(super) setup_due: bool,
    /// The application closed before the association was up.
    pub(super) is_shutdown_requested: bool,
    /// Something received is not yet acknowledged; and it must be now.
    pub(super) owe_sack: bool,
    pub(super) sack_now: bool,
    /// Data of the other side was acknowledged before.
    pub(super) sacked: bool,
    pub(super) in_fast_recovery: bool,
    /// One packet with lost chunks may leave whatever the congestion window.
    pub(super) grant: bool,
    /// Nothing more of what is lost leaves before the next SACK or message.
    pub(super) is_repair_blocked: bool,
    /// What was fast retransmitted is acknowledged: the next burst is bounded ([`LossRecovery::Ns2`]).
    pub(super) bound_burst: bool,
    /// A chunk was sent although the other side had no room for it.
    pub(super) probing: bool,
    /// A closed window was waited for long enough: a chunk may probe it.
    pub(super) probe_due: bool,
    /// A SACK has come since the last expiry of T3-rtx.
    pub(super) sack_since_timeout: bool,
    pub(super) timer: SctpTimer,
    /// The path of what `timer` waits for an answer to.
    pub(super) timer_path: u8,
    /// The path of the last DATA that came.
    pub(super) sack_path: u8,
    /// Packets with data since the last SACK.
    pub(super) unsacked: u32,
    /// New data packets that this occasion may still let out.
    pub(super) burst: u32,
    /// Expiries of `timer` in a row.
    pub(super) retries: u32,
    /// Cookies that the other side found stale.
    pub(super) stale_cookies: u32,
    /// Errors in a row over all paths.
    pub(super) errors: u32,
    pub(super) timer_at: Instant,
    /// When a window that is closed is to be probed.
    pub(super) probe_at: Instant,
    /// When INIT or COOKIE ECHO left, if it left once.
    pub(super) setup_sent_at: Option<Instant>,
    /// T5-shutdown-guard.
    pub(super) guard_at: Instant,
    pub(super) sack_at: Instant,

    pub(super) initial: InitialValues,
    /// Ours, which the other side sends; and theirs, 0 before it is known.
    pub(super) local_tag: u32,
    pub(super) peer_tag: u32,
    pub(super) outbound_streams: u16,
    pub(super) inbound_streams: u16,
    /// Room at the other side beyond what is in flight.
    pub(super) peer_window: u32,
    /// The other side's addresses beside that which its set-up came from.
    pub(super) peer_addresses: Vec<IpAddr>,
    /// The window that we announced last.
    pub(super) announced: u32,
    /// Where fast recovery ends.
    pub(super) recover: u32,
    /// The highest TSN newly acknowledged since the cumulative one last advanced ([`LossRecovery::Ns2`]).
    pub(super) highest_acked: u32,
    /// The highest TSN that did not wait to be sent again when a recovery last began; it never falls ([`LossRecovery::Ns2`]).
    pub(super) outstanding_until: u32,
    pub(super) out: SctpSender,
    pub(super) inb: SctpReceiver,
    pub(super) paths: Vec<SctpPath>,
    pub(super) cookie: Vec<u8>,
    pub(super) events: VecDeque<SctpEvent>,
    /// Packets that go as they are.
    pub(super) replies: VecDeque<OutgoingPacket>,
    /// Control chunks, each with the path that it goes on; bundled with others.
    pub(super) control: VecDeque<(u8, Chunk)>,
    pub(super) stats: SctpStats,
}

impl SctpAssociation {
    /// Octets that count for the state of an association of one path without streams and data: what one takes in this
    /// simulator on a machine with addresses of 64 bits. It is a number of its own so that results are the same everywhere.
    pub const CONTROL_BLOCK: u32 = 880;

    pub(super) fn new(config: Arc<SctpConfig>, initial: InitialValues, paths: u8, state: SctpState) -> Self {
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

    /// Opens an association over `paths` paths (at least one): INIT is then polled.
    #[must_use]
    pub fn connect(config: Arc<SctpConfig>, now: Instant, initial: InitialValues, paths: u8) -> Self {
        let mut a = Self::new(config, initial, paths, SctpState::CookieWait);
        a.setup_due = true;
        a.arm_setup(now);
        a
    }

    /// Queues a message. Before the association is up it waits; if the stream then turns out not to be
    /// negotiated, it is dropped and counted.
    ///
    /// # Errors
    /// [`CommandError::Invalid`] for a stream that was not negotiated (before that: not asked for) and an
    /// empty message; [`CommandError::WrongState`] where it is closing or closed; [`CommandError::Full`]
    /// where more than 1 GiB would not be acknowledged. Nothing was taken then.
    pub fn send_message(&mut self, _now: Instant, message: UserMessage) -> Result<(), CommandError> {
        let open =
            matches!(self.state, SctpState::CookieWait | SctpState::CookieEchoed | SctpState::Established);
        if !open || self.is_shutdown_requested {
            return Err(CommandError::WrongState("the association takes no more messages"));
        }
        if message.stream >= self.outbound_streams {
            return Err(CommandError::Invalid("no such stream"));
        }
        if message.payload.len == 0 {
            return Err(CommandError::Invalid("a message has at least one byte"));
        }
        if !self.out.push_message(message, self.config.max_data()) {
            return Err(CommandError::Full("more than 1 GiB is not acknowledged"));
        }
        self.is_repair_blocked &= self.config.loss_recovery == LossRecovery::Ns2;
        self.wake_output();
        Ok(())
    }

    /// Takes other settings while it runs, as an application may ask for. What is negotiated stays, and timers that
    /// run go on; what is sent and measured from now on goes by them.
    pub fn reconfigure(&mut self, config: Arc<SctpConfig>) {
        self.config = config;
        if self.config.heartbeat_interval.is_none() {
            self.paths.iter_mut().for_each(|path| path.heartbeat_at = Instant::FAR_FUTURE);
        }
    }

    /// Closes in good order once all that was sent is acknowledged. Does nothing where that was done
    /// already. Where no answer to INIT has come it closes at once: no event follows, nothing is sent.
    pub fn shutdown(&mut self, now: Instant) {
        match self.state {
            SctpState::CookieWait => self.close(),
            SctpState::CookieEchoed => self.is_shutdown_requested = true,
            SctpState::Established => {
                self.state = SctpState::ShutdownPending;
                self.wake_output();
                self.progress_shutdown(now);
            }
            _ => {}
        }
    }

    /// Ends the association: no event follows, ABORT is then polled where the other side knows of us.
    pub fn abort(&mut self, _now: Instant) {
        if !matches!(self.state, SctpState::Closed | SctpState::CookieWait) {
            self.send_abort(vec![ErrorCause::UserAbort(Vec::new())]);
        }
        self.close();
        self.events.clear();
    }

    /// The next event; poll until `None`.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<SctpEvent> {
        let event = self.events.pop_front()?;
        if let SctpEvent::Message(message) = &event {
            self.inb.unread = self.inb.unread.saturating_sub(message.payload.len);
            let packet = self.config.packet_size();
            if self.announced < packet
                && self.inb.receive_window(self.config.bounded_receive_buffer())
                    >= packet.min(self.config.bounded_receive_buffer() / 2)
                && self.state != SctpState::Closed
            {
                // The other side believes the window closed.
                self.announced = packet;
                self.owe_sack = true;
                self.sack_now = true;
                self.wake = true;
            }
        }
        Some(event)
    }

    /// Whether events are to be drained before packets are polled ([`SctpConfig::deliver_first`]).
    #[must_use]
    pub fn delivers_first(&self) -> bool {
        self.config.deliver_first
    }

    /// Something happened that may let packets leave.
    pub(super) fn wake_output(&mut self) {
        self.wake = true;
        self.burst = self.config.max_burst.map_or(u32::MAX, |n| n.max(1));
    }
    /// Adds a packet that goes as it is.
    pub(super) fn queue_reply(&mut self, path: u8, packet: SctpPacket) {
        if self.replies.len() < MAX_WAITING {
            self.replies.push_back(OutgoingPacket { path, packet });
            self.wake = true;
        }
    }
    /// Adds a control chunk.
    pub(super) fn queue_control(&mut self, path: u8, chunk: Chunk) {
        if self.control.len() < MAX_WAITING {
            self.control.push_back((path, chunk));
            self.wake = true;
        }
    }
    pub(super) fn send_abort(&mut self, causes: Vec<ErrorCause>) {
        let path = self.data_path();
        self.replies.clear();
        self.queue_reply(
            path,
            SctpPacket::with_chunk(self.peer_tag, Chunk::Abort { reflected: false, causes }),
        );
    }
    /// Ends the association because the other side does what it must not: with ABORT, and the event.
    pub(super) fn abort_because(&mut self, cause: ErrorCause) {
        self.send_abort(vec![cause]);
        self.fail(CloseReason::Reset);
    }
    /// Ends the association and tells why.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        self.close();
        self.events.push_back(SctpEvent::Down(reason));
    }
    /// Forgets all but what waits to be polled.
    fn close(&mut self) {
        self.state = SctpState::Closed;
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

    /// The path that new data takes: the primary, or the first active one.
    pub(super) fn data_path(&self) -> u8 {
        self.paths.iter().position(|p| p.active).unwrap_or(0) as u8
    }
    /// Where what was lost on `path` is sent again (§6.4.1): on the next active path, or the next one at
    /// all where none is active.
    pub(super) fn alternate_path(&self, path: u8) -> u8 {
        let n = self.paths.len();
        let at = |i: usize| (usize::from(path) + i) % n;
        let active = (1..=n).map(at).find(|&i| self.paths[i].active);
        active.unwrap_or(at(1)) as u8
    }

    /// True once it is over (a last packet may still be polled).
    pub fn is_closed(&self) -> bool {
        self.state == SctpState::Closed
    }
    /// Its state.
    pub fn state(&self) -> SctpState {
        self.state
    }
    /// Streams that we may send on: as negotiated, before that as asked for.
    pub fn outbound_streams(&self) -> u16 {
        self.outbound_streams
    }
    /// Streams that the other side may send on, as negotiated; 0 before.
    pub fn inbound_streams(&self) -> u16 {
        self.inbound_streams
    }
    /// What was counted.
    pub fn stats(&self) -> SctpStats {
        self.stats
    }
    /// The smoothed round-trip time of a path; `None` before its first measurement, or for no such path.
    pub fn srtt(&self, path: u8) -> Option<Duration> {
        self.paths.get(usize::from(path))?.rtt.srtt()
    }
    /// The retransmission timeout of a path; zero for no such path.
    pub fn rto(&self, path: u8) -> Duration {
        self.paths.get(usize::from(path)).map_or(Duration::ZERO, |p| p.rtt.rto)
    }
    /// The congestion window of a path in bytes; 0 for no such path.
    pub fn cwnd(&self, path: u8) -> u32 {
        self.paths.get(usize::from(path)).map_or(0, |p| p.cwnd)
    }
    /// Whether a path is held for working.
    pub fn is_active(&self, path: u8) -> bool {
        self.paths.get(usize::from(path)).is_some_and(|p| p.active)
    }
    /// Octets that it takes: [`CONTROL_BLOCK`](Self::CONTROL_BLOCK), 2 for each stream's sequence number, what was given to
    /// [`send`](Self::send_message) and is not acknowledged cumulatively (as the wire has it, with the headers of its chunks), what
    /// came and waits for pieces, for its turn or for the reader. Data that is a mere count counts as if it were there.
    pub fn memory_octets(&self) -> u32 {
        let streams = 2 * (u32::from(self.outbound_streams) + u32::from(self.inbound_streams));
        let parts = [streams, self.out.wire_octets(), self.inb.buffered, self.inb.unread];
        parts.into_iter().fold(Self::CONTROL_BLOCK, u32::saturating_add)
    }
    /// User data that was given to [`send`](Self::send_message) and is not yet acknowledged cumulatively, in bytes.
    pub fn bytes_outstanding(&self) -> u64 {
        let queued = self.out.queue.iter().map(|data| u64::from(data.payload.len));
        queued.chain(self.out.sent.iter().map(|sent| u64::from(sent.data.payload.len))).sum()
    }
}
