//! The connection: its state, its opening, and the interface of the application.

mod ack_pace;
mod fast_open;
mod full_tcp;
mod ns3_sender;
mod rack;
mod receive_tuning;

use super::ack_pace::DelayedAckState;
use super::config::{LossRecoveryAlgorithm, TcpConfig};
use super::congestion::CongestionWindow;
use super::fast_open::FastOpenState;
use super::rack::Rack;
use super::receive_buffer::{ReassemblyBuffer, UnreadData, cut_bytes};
use super::receive_tuning::ReceiveBufferTuning;
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;
use super::segment::{Segment, SegmentFlags, TcpOptions};
use super::send_buffer::SendBuffer;
use super::seq;
use std::sync::Arc;
use usher_core::{CloseReason, CommandError, Duration, Instant};

/// The connection states of RFC 9293 §3.3.2. LISTEN belongs to the host, which calls
/// [`TcpConnection::accept`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TcpState {
    /// Waits for a SYN after it sent its own.
    SynSent,
    /// Has received a SYN and waits for the acknowledgement of its own.
    SynReceived,
    /// Open in both directions.
    Established,
    /// Has sent a FIN.
    FinWait1,
    /// Its FIN is acknowledged.
    FinWait2,
    /// Has received a FIN.
    CloseWait,
    /// Both ends sent a FIN; its own is not acknowledged.
    Closing,
    /// Both ends sent a FIN, the peer first; its own is not acknowledged.
    LastAck,
    /// Both ends are closed; waits until stray segments have expired.
    TimeWait,
    /// The connection has ended.
    Closed,
}

/// Data of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamData<'a> {
    /// A number of octets without content; they are neither stored nor carried.
    Count(u32),
    /// Octets.
    Bytes(&'a [u8]),
}

/// An event of a connection for its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpEvent {
    /// The connection is established.
    Connected,
    /// The next `len` octets, in order; event boundaries have no meaning.
    Data {
        /// Number of octets.
        len: u32,
        /// The octets, unless the peer wrote [`StreamData::Count`].
        payload: Option<Arc<[u8]>>,
    },
    /// The peer sends no more data; this end may still write.
    PeerClosed,
    /// The connection is over; no further event follows. [`CloseReason::Closed`] after both ends closed gracefully
    /// (the connection may still answer from TIME-WAIT: see [`TcpConnection::is_closed`]).
    Closed(CloseReason),
}

/// The counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpStats {
    /// Segments sent, of every kind.
    pub segments_sent: u32,
    /// Segments received, of every kind, dropped ones included.
    pub segments_received: u32,
    /// Segments sent without data, SYN, FIN or RST.
    pub pure_acks_sent: u32,
    /// Segments sent with a sequence number sent before (SYN and FIN included, probes not).
    pub retransmitted: u32,
    /// Expirations of the retransmission timer.
    pub timeouts: u32,
    /// Entries into fast retransmit.
    pub fast_retransmits: u32,
    /// Segments sent by limited transmit.
    pub limited_transmits: u32,
    /// Zero-window probes sent.
    pub window_probes: u32,
    /// Duplicate acknowledgements received.
    pub duplicate_acks: u32,
    /// Data segments received without new data.
    pub duplicate_data: u32,
    /// Data segments received beyond a gap.
    pub out_of_order: u32,
    /// Segments dropped because they lie outside the window or acknowledge data never sent.
    pub unacceptable: u32,
    /// Segments dropped because they are inconsistent or lack a negotiated option.
    pub malformed: u32,
    /// Segments dropped because their timestamp is old (RFC 7323 §5).
    pub old_timestamps: u32,
    /// Challenge acknowledgements sent (RFC 5961).
    pub challenge_acks: u32,
}

/// The purpose of a connection's long timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TcpTimer {
    Off,
    Retransmit,
    Persist,
    TimeWait,
}

/// State of RFC 7323 timestamps.
#[derive(Debug)]
pub(super) struct TimestampState {
    /// TS.Recent.
    pub(super) recent: u32,
    pub(super) recent_at: Instant,
    /// Last.ACK.sent.
    pub(super) last_ack_sent: u32,
}

/// State that few connections have, boxed so that the others stay small.
#[derive(Debug, Default)]
pub(super) struct RareTcpState {
    /// State of an opening by Fast Open.
    pub(super) opening: Option<FastOpenState>,
    /// State of acknowledgements paced by the sender's rate.
    pub(super) acks: Option<DelayedAckState>,
    /// State of loss detection by time.
    pub(super) rack: Option<Rack>,
    /// State of receive buffer tuning.
    pub(super) tuning: Option<Box<ReceiveBufferTuning>>,
    /// State of rare events.
    pub(super) extras: Option<Box<RareTcpEventState>>,
}

impl RareTcpState {
    #[inline]
    pub(super) fn delayed_ack_state_mut(of: &mut Option<Box<Self>>) -> Option<&mut DelayedAckState> {
        of.as_mut()?.acks.as_mut()
    }
    #[inline]
    pub(super) fn rack_mut(of: &mut Option<Box<Self>>) -> Option<&mut Rack> {
        of.as_mut()?.rack.as_mut()
    }
}

/// State of events that few connections see.
#[derive(Debug)]
pub(super) struct RareTcpEventState {
    /// A reset or acknowledgement in answer to a stray segment.
    pub(super) answer: Option<Segment>,
    /// When the last challenge acknowledgement was sent; `FAR_FUTURE` before the first.
    pub(super) challenged_at: Instant,
    /// Counters, except those that all connections have.
    pub(super) stats: TcpStats,
}

impl Default for RareTcpEventState {
    fn default() -> Self {
        Self { answer: None, challenged_at: Instant::FAR_FUTURE, stats: TcpStats::default() }
    }
}

/// Pending events, except data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingEvents {
    pub(super) connected: bool,
    pub(super) peer_closed: bool,
    pub(super) closed: Option<CloseReason>,
}

/// An endpoint of a TCP connection. The [module](super) describes its use.
#[derive(Debug)]
pub struct TcpConnection {
    pub(super) config: Arc<TcpConfig>,
    pub(super) state: TcpState,
    pub(super) timer: TcpTimer,
    /// True after a change that may permit a segment.
    pub(super) wake: bool,
    pub(super) ack_now: bool,
    /// True if a SYN or SYN-ACK is to be sent or retransmitted.
    pub(super) syn_now: bool,
    /// True if the segment at `una` is to be retransmitted regardless of the window.
    pub(super) resend_now: bool,
    /// True if a tail-loss probe is to be sent regardless of the window. In ns-2's sender: output is attempted once
    /// more.
    pub(super) tail_now: bool,
    /// True if the current data segment ended a write (PSH).
    pub(super) pushed: bool,
    /// True if the persist timer requests a segment against the window or Nagle.
    pub(super) probe_now: bool,
    pub(super) active_open: bool,
    /// Expirations of the timer for the acknowledgement of our SYN.
    pub(super) syn_timeouts: u8,
    pub(super) fin_queued: bool,
    pub(super) fin_sent: bool,
    pub(super) peer_fin: bool,
    pub(super) sack_ok: bool,
    pub(super) scale_ok: bool,
    pub(super) in_recovery: bool,
    /// True after the first partial acknowledgement of this recovery.
    pub(super) partial_seen: bool,
    pub(super) auto_read: bool,
    pub(super) pending: PendingEvents,
    pub(super) snd_scale: u8,
    pub(super) rcv_scale: u8,
    pub(super) unacked_segments: u8,
    /// Octets of the largest data segment received.
    pub(super) largest: u16,
    /// Zero-window probes since the window closed: the exponent of their interval.
    pub(super) probes: u8,

    pub(super) timer_at: Instant,
    pub(super) ack_at: Instant,
    pub(super) timed_at: Instant,
    pub(super) last_data_at: Instant,
    pub(super) rtt: RttEstimator,
    pub(super) congestion: CongestionWindow,

    /// ISS, SND.UNA, SND.NXT (which a timeout pulls back) and the end of all data ever sent.
    pub(super) iss: u32,
    pub(super) una: u32,
    pub(super) nxt: u32,
    pub(super) max: u32,
    /// End of the last segment sent below full size.
    pub(super) small_end: u32,
    /// End of the written data; the FIN's number once it is queued.
    pub(super) end: u32,
    pub(super) wnd: u32,
    pub(super) wl1: u32,
    pub(super) wl2: u32,
    pub(super) max_wnd: u32,
    /// Largest payload of a segment without SACK blocks.
    pub(super) mss: u32,
    /// RFC 6582 `recover`, RFC 6675 RecoveryPoint.
    pub(super) recover: u32,
    pub(super) dup_acks: u32,
    /// Octets sent by limited transmit since the first duplicate acknowledgement.
    pub(super) limited: u32,
    /// Sequence number of the current round-trip measurement.
    pub(super) timed_seq: u32,
    /// Consecutive timeouts or unanswered probes.
    pub(super) retries: u32,

    pub(super) irs: u32,
    pub(super) rcv_nxt: u32,
    /// Right edge of the announced window.
    pub(super) rcv_edge: u32,
    pub(super) unread: u32,
    pub(super) credit: u32,
    pub(super) unacked_bytes: u32,

    pub(super) send_buffer: Option<Box<SendBuffer>>,
    pub(super) chunks: Option<Box<UnreadData>>,
    pub(super) reassembly: Option<Box<ReassemblyBuffer>>,
    pub(super) scoreboard: Option<Box<Scoreboard>>,
    pub(super) timestamps: Option<Box<TimestampState>>,
    /// State that few connections have.
    pub(super) rare_state: Option<Box<RareTcpState>>,
    /// Counters that all connections have.
    pub(super) segments_sent: u32,
    pub(super) segments_received: u32,
    pub(super) pure_acks_sent: u32,
}

/// Maximum data that may be written and unacknowledged: half of the comparable sequence space.
const MAX_QUEUED: u32 = 1 << 30;

impl TcpConnection {
    /// Octets that the memory model counts for a connection without data. It lies between the size of a connection in
    /// this simulator, on a 64-bit machine, and that with its rare state. The constant keeps results independent of
    /// both.
    pub const CONTROL_BLOCK: u32 = 328;

    fn new(config: Arc<TcpConfig>, state: TcpState, iss: u32) -> Self {
        let rtt = RttEstimator::new(&config);
        let congestion = CongestionWindow::new(&config, iss);
        let paced = config.quick_ack || config.ack_on_read || config.delayed_ack_max.is_some();
        Self {
            state,
            timer: TcpTimer::Off,
            wake: true,
            ack_now: false,
            syn_now: true,
            resend_now: false,
            tail_now: false,
            pushed: false,
            probe_now: false,
            // RFC 9293, 3.5: SYN-RECEIVED remembers a passive open.
            active_open: state == TcpState::SynSent,
            syn_timeouts: 0,
            fin_queued: false,
            fin_sent: false,
            peer_fin: false,
            sack_ok: false,
            scale_ok: false,
            in_recovery: false,
            partial_seen: false,
            auto_read: true,
            pending: PendingEvents::default(),
            snd_scale: 0,
            rcv_scale: 0,
            unacked_segments: 0,
            largest: 0,
            probes: 0,
            timer_at: Instant::FAR_FUTURE,
            ack_at: Instant::FAR_FUTURE,
            timed_at: Instant::FAR_FUTURE,
            last_data_at: Instant::ZERO,
            rtt,
            congestion,
            iss,
            una: iss,
            nxt: iss,
            max: iss,
            small_end: iss,
            end: iss.wrapping_add(1),
            wnd: 0,
            wl1: 0,
            wl2: 0,
            max_wnd: 0,
            mss: u32::from(config.default_peer_mss),
            recover: iss,
            dup_acks: 0,
            limited: 0,
            timed_seq: iss,
            retries: 0,
            irs: 0,
            rcv_nxt: 0,
            rcv_edge: 0,
            unread: 0,
            credit: 0,
            unacked_bytes: 0,
            send_buffer: None,
            chunks: None,
            reassembly: None,
            scoreboard: None,
            timestamps: None,
            rare_state: paced.then(|| {
                Box::new(RareTcpState { acks: Some(DelayedAckState::default()), ..RareTcpState::default() })
            }),
            segments_sent: 0,
            segments_received: 0,
            pure_acks_sent: 0,
            config,
        }
    }

    /// Opens a connection actively; the next poll returns the SYN. The host draws `iss`, the initial sequence number
    /// (RFC 9293 §3.4.1).
    #[must_use]
    pub fn connect(config: Arc<TcpConfig>, iss: u32, now: Instant) -> Self {
        let mut c = Self::new(config, TcpState::SynSent, iss);
        c.last_data_at = now;
        c
    }

    /// Accepts a SYN of a listener; the next poll returns the SYN-ACK.
    ///
    /// Returns `None` if the segment is not a SYN: the host then answers with [`Segment::reset_reply`] or not at all.
    /// Data on the SYN waits until the connection is established. A FIN on it is ignored until retransmitted (RFC
    /// 9293 §3.10.7.2 and §3.10.7.4, eighth check).
    #[must_use]
    pub fn accept(config: Arc<TcpConfig>, iss: u32, syn: &Segment, now: Instant) -> Option<Self> {
        if !syn.flags.contains(SegmentFlags::SYN)
            || syn.flags.intersects(SegmentFlags::ACK | SegmentFlags::RST)
        {
            return None;
        }
        let mut c = Self::new(config, TcpState::SynReceived, iss);
        c.last_data_at = now;
        c.segments_received = 1;
        c.apply_peer_syn(now, syn);
        c.buffer_syn_data(syn);
        Some(c)
    }

    /// Reads the numbers and options of the peer's SYN.
    pub(super) fn apply_peer_syn(&mut self, now: Instant, syn: &Segment) {
        self.irs = syn.seq;
        self.rcv_nxt = syn.seq.wrapping_add(1);
        self.rcv_edge = self.rcv_nxt.wrapping_add(self.config.receive_buffer.min(0xffff));
        let none = TcpOptions::default();
        let theirs = syn.options.as_deref().filter(|_| self.config.variants.options).unwrap_or(&none);
        // RFC 9293, 3.7.1: the peer's maximum segment size, or the default.
        let peer_mss = theirs.mss.unwrap_or(self.config.default_peer_mss).max(64);
        // RFC 9293, 3.7.1: no segment exceeds the limit of either end.
        self.mss = u32::from(peer_mss.min(self.config.mss.max(64)));
        // RFC 7323, 2.2 and 2.3: only SYNs count, and both must have the option.
        if let (Some(ours), Some(theirs)) = (self.config.window_scale, theirs.window_scale) {
            self.scale_ok = true;
            // RFC 7323, 2.3: at most 14.
            self.rcv_scale = ours.min(14);
            self.snd_scale = theirs.min(14);
        }
        self.sack_ok = self.config.recovery == LossRecoveryAlgorithm::Sack && theirs.sack_permitted;
        // RFC 7323, 3.2: ignored unless both ends offer them.
        if let (true, Some((val, _))) = (self.config.timestamps, theirs.timestamps) {
            self.timestamps =
                Some(Box::new(TimestampState { recent: val, recent_at: now, last_ack_sent: self.rcv_nxt }));
            self.mss -= 12;
        }
        self.start_receive_buffer_tuning(now);
        self.wnd = u32::from(syn.window);
        self.max_wnd = self.wnd;
        self.wl1 = syn.seq;
        self.wl2 = syn.ack;
    }

    /// Keeps the data of a SYN until ESTABLISHED (RFC 9293 §3.10.7.2 and §3.10.7.3).
    pub(super) fn buffer_syn_data(&mut self, syn: &Segment) {
        if syn.is_malformed() {
            self.stats_mut().malformed += 1;
            return;
        }
        let len = syn.len.min(self.rcv_edge.wrapping_sub(self.rcv_nxt));
        if len > 0 {
            let data = syn.payload.as_ref().map(|p| cut_bytes(p, 0, len));
            self.reassembly.get_or_insert_default().insert(
                self.rcv_nxt,
                self.rcv_nxt.wrapping_add(len),
                data,
                true,
            );
        }
    }

    /// Queues data and attempts output (the next polls return the segments). Data waits until the handshake is over.
    ///
    /// # Errors
    /// [`CommandError::WrongState`] after [`shutdown`](Self::shutdown), [`abort`](Self::abort) or the end of the
    /// connection; [`CommandError::Full`] beyond 1 GiB of queued data. No data is queued then.
    #[inline]
    pub fn write(&mut self, data: StreamData<'_>) -> Result<(), CommandError> {
        if self.fin_queued || !self.can_send() {
            return Err(CommandError::WrongState("the connection accepts no more data"));
        }
        let len = match data {
            StreamData::Count(n) => n as usize,
            StreamData::Bytes(b) => b.len(),
        };
        if len > (MAX_QUEUED - self.end.wrapping_sub(self.una).min(MAX_QUEUED)) as usize {
            return Err(CommandError::Full("1 GiB of unacknowledged data"));
        }
        if let (StreamData::Bytes(bytes), 1..) = (data, len) {
            self.send_buffer.get_or_insert_default().push(self.end, bytes);
        }
        self.end = self.end.wrapping_add(len as u32);
        self.wake = true;
        Ok(())
    }

    fn can_send(&self) -> bool {
        matches!(
            self.state,
            TcpState::SynSent | TcpState::SynReceived | TcpState::Established | TcpState::CloseWait
        )
    }

    /// Closes this end after all written data is sent. Data from the peer is still delivered. Repeated calls have no
    /// effect.
    pub fn shutdown(&mut self) {
        match self.state {
            TcpState::SynSent => self.state = TcpState::Closed,
            _ if self.can_send() => self.fin_queued = true,
            _ => return,
        }
        self.wake = true;
    }

    /// Resets the connection without an event. The next poll returns a RST, unless the peer knows of no connection or
    /// both ends have closed (RFC 9293 §3.10.5).
    pub fn abort(&mut self) {
        let open = !matches!(self.state, TcpState::SynSent | TcpState::TimeWait | TcpState::Closed);
        let reset = open && !matches!(self.state, TcpState::Closing | TcpState::LastAck);
        self.set_stray_reply(reset.then(|| self.reset_segment()));
        self.enter_closed();
        self.pending = PendingEvents::default();
    }

    /// Returns the reset that ends the peer's connection.
    pub(super) fn reset_segment(&self) -> Segment {
        let flags = SegmentFlags::RST | SegmentFlags::ACK;
        Segment { seq: self.snd_nxt(), ack: self.rcv_nxt, flags, ..Default::default() }
    }

    /// Returns SND.NXT: the end of the data sent, even while a timeout retransmits. The octet of a probe does not
    /// count: the peer may have refused it, and with it all beyond.
    pub(super) fn snd_nxt(&self) -> u32 {
        if self.timer == TcpTimer::Persist { self.nxt } else { self.max }
    }

    /// Returns the state of rare events, and creates it if absent.
    #[cold]
    pub(super) fn extras_mut(&mut self) -> &mut RareTcpEventState {
        self.rare_state.get_or_insert_default().extras.get_or_insert_default()
    }
    #[inline]
    fn extras(&self) -> Option<&RareTcpEventState> {
        self.rare_state.as_ref()?.extras.as_deref()
    }

    /// Returns the rare counters, and creates them if absent.
    #[cold]
    pub(super) fn stats_mut(&mut self) -> &mut TcpStats {
        &mut self.extras_mut().stats
    }

    /// Sets the answer to a stray segment.
    #[cold]
    pub(super) fn set_stray_reply(&mut self, answer: Option<Segment>) {
        if answer.is_some() || self.extras().is_some() {
            self.extras_mut().answer = answer;
        }
    }

    #[inline]
    pub(super) fn has_stray_reply(&self) -> bool {
        self.extras().is_some_and(|aside| aside.answer.is_some())
    }

    /// Ends the connection with an event.
    pub(super) fn fail(&mut self, reason: CloseReason) {
        self.enter_closed();
        self.pending = PendingEvents { closed: Some(reason), ..PendingEvents::default() };
    }

    pub(super) fn enter_closed(&mut self) {
        self.state = TcpState::Closed;
        self.stop_timer();
        if let Some(bbr) = self.congestion.bbr() {
            bbr.is_waiting = false;
        }
        self.ack_at = Instant::FAR_FUTURE;
        self.ack_now = false;
        self.wake = true;
        self.unread = 0;
        self.chunks = None;
        self.reassembly = None;
        self.scoreboard = None;
        self.send_buffer = None;
    }

    /// Sets whether arriving data is delivered at once (the default). Otherwise it fills the receive window until
    /// [`grant_credit`](Self::grant_credit).
    pub fn set_auto_read(&mut self, auto: bool) {
        self.auto_read = auto;
        self.announce_window_after_read();
    }

    /// Replaces the settings of an open connection, such as the receive buffer or Nagle. Negotiated and announced
    /// values stay. New settings apply to further segments and measurements.
    pub fn reconfigure(&mut self, config: Arc<TcpConfig>) {
        self.config = config;
    }

    /// Allows `n` more octets to be delivered as [`TcpEvent::Data`], now or later, if automatic reading is off.
    pub fn grant_credit(&mut self, n: u32) {
        self.credit = self.credit.saturating_add(n);
    }

    /// Returns the next event; poll until `None`. Data precedes the close that follows it.
    #[must_use]
    #[inline]
    pub fn poll_event(&mut self) -> Option<TcpEvent> {
        if self.unread > 0
            && !self.pending.connected
            && let Some(event) = self.take_data()
        {
            return Some(event);
        }
        let idle = !(self.pending.connected | self.pending.peer_closed) && self.pending.closed.is_none();
        if idle {
            return None;
        }
        if std::mem::take(&mut self.pending.connected) {
            return Some(TcpEvent::Connected);
        }
        if self.unread > 0 {
            return None;
        }
        if std::mem::take(&mut self.pending.peer_closed) {
            return Some(TcpEvent::PeerClosed);
        }
        // RFC 9293, 3.6: the application learns whether the connection was closed or aborted.
        self.pending.closed.take().map(TcpEvent::Closed)
    }

    #[inline]
    fn take_data(&mut self) -> Option<TcpEvent> {
        let limit = if self.auto_read { self.unread } else { self.unread.min(self.credit) };
        if limit == 0 {
            return None;
        }
        let (len, payload) = match &mut self.chunks {
            Some(chunks) => {
                let chunk = chunks.pop(limit)?;
                if chunks.is_empty() {
                    self.chunks = None;
                }
                chunk
            }
            None => (limit, None),
        };
        self.unread -= len;
        if !self.auto_read {
            self.consume_read_credit(len);
        }
        Some(TcpEvent::Data { len, payload })
    }

    /// Reduces the credit of a connection without automatic reading.
    #[cold]
    fn consume_read_credit(&mut self, len: u32) {
        self.credit -= len;
        self.announce_window_after_read();
        self.acknowledge_after_read();
    }

    /// Returns the due time of [`handle_timeout`](Self::handle_timeout); it may change either way after each call.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut at = self.timer_at.min(self.ack_at);
        if !self.congestion.is_reno() {
            at = at.min(self.congestion.earliest_paced_send());
        }
        if let Some(rack) = self.rack() {
            at = at.min(rack.next_timeout());
        }
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    #[inline]
    pub(super) fn ack_pace(&self) -> Option<&DelayedAckState> {
        self.rare_state.as_ref()?.acks.as_ref()
    }
    #[inline]
    pub(super) fn rack(&self) -> Option<&Rack> {
        self.rare_state.as_ref()?.rack.as_ref()
    }

    /// Returns the state.
    pub fn state(&self) -> TcpState {
        self.state
    }
    /// True if nothing more will be sent or received, so that the host may drop the connection (after the last
    /// [`poll_transmit`](Self::poll_transmit)).
    pub fn is_closed(&self) -> bool {
        self.state == TcpState::Closed
    }
    /// Returns the counters.
    pub fn stats(&self) -> TcpStats {
        let rest = self.extras().map(|aside| aside.stats).unwrap_or_default();
        TcpStats {
            segments_sent: self.segments_sent,
            segments_received: self.segments_received,
            pure_acks_sent: self.pure_acks_sent,
            ..rest
        }
    }
    /// True if the host must drain [`poll_event`](Self::poll_event) before the first
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn delivers_first(&self) -> bool {
        self.config.deliver_first
    }
    /// Reports that the application has handled all events and written its replies, if
    /// [`delivers_first`](Self::delivers_first).
    pub fn report_all_delivered(&mut self) {
        if !self.congestion.is_reno() {
            self.full_tcp_release_pending_ack();
        }
    }
    /// Returns the smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }
    /// Returns the current retransmission timeout.
    pub fn rto(&self) -> Duration {
        self.rtt.rto(&self.config)
    }
    /// Returns the congestion window in octets; 0 before the handshake.
    pub fn cwnd(&self) -> u32 {
        self.congestion.cwnd
    }
    /// Returns the slow-start threshold in octets.
    pub fn ssthresh(&self) -> u32 {
        self.congestion.ssthresh
    }
    /// Returns the sequence space sent and not acknowledged (RFC 5681 FlightSize).
    pub fn bytes_in_flight(&self) -> u32 {
        self.max.wrapping_sub(self.una)
    }
    /// Returns the octets written and never sent.
    pub fn bytes_unsent(&self) -> u32 {
        seq::octets_ahead(seq::max(self.max, self.iss.wrapping_add(1)), self.end)
    }
    /// Returns the peer's window in octets.
    pub fn peer_window(&self) -> u32 {
        self.wnd
    }
    /// Returns the largest payload of a segment, in octets.
    pub fn mss(&self) -> u32 {
        self.mss
    }
    /// True for each option in use: timestamps, SACK and window scaling, in this order.
    pub fn negotiated_options(&self) -> (bool, bool, bool) {
        (self.timestamps.is_some(), self.sack_ok, self.scale_ok)
    }
    /// Returns the octets received in order and not read.
    pub fn bytes_unread(&self) -> u32 {
        self.unread
    }
    /// Returns its memory in octets: [`CONTROL_BLOCK`](Self::CONTROL_BLOCK), unacknowledged written data, unread data
    /// and data behind a gap. Data without content counts in full.
    pub fn memory_octets(&self) -> u32 {
        let unacknowledged = seq::octets_ahead(seq::max(self.una, self.iss.wrapping_add(1)), self.end);
        let held = self.reassembly.as_ref().map_or(0, |r| r.buffered_octets());
        [unacknowledged, self.unread, held].into_iter().fold(Self::CONTROL_BLOCK, u32::saturating_add)
    }
}
