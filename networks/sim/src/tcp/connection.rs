//! The connection: its state, how it is opened, and the application's side of it.

use super::ack_pace::AckPace;
use super::config::{RecoveryAlgorithm, TcpConfig};
use super::congestion::CongestionWindow;
use super::fast_open::FastOpenState;
use super::rack::Rack;
use super::receive_buffer::{ReassemblyBuffer, UnreadData, cut_bytes};
use super::receive_tuning::ReceiveTuning;
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
    /// Waiting for a SYN after having sent one.
    SynSent,
    /// Waiting for the acknowledgement of our SYN after having seen theirs.
    SynReceived,
    /// Open both ways.
    Established,
    /// We sent a FIN.
    FinWait1,
    /// Our FIN is acknowledged.
    FinWait2,
    /// They sent a FIN.
    CloseWait,
    /// Both sent a FIN, ours is not acknowledged.
    Closing,
    /// Both sent a FIN, theirs first; ours is not acknowledged.
    LastAck,
    /// Both are closed; waiting for stray segments to die.
    TimeWait,
    /// There is no connection any more.
    Closed,
}

/// What an application writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamData<'a> {
    /// This many bytes of no particular value; nothing is stored or carried.
    Count(u32),
    /// These bytes.
    Bytes(&'a [u8]),
}

/// What a connection has to say to its application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TcpEvent {
    /// It is established.
    Connected,
    /// The next `len` bytes, in order; boundaries mean nothing.
    Data {
        /// How many bytes.
        len: u32,
        /// The bytes, where the other side wrote bytes and not a count.
        payload: Option<Arc<[u8]>>,
    },
    /// The other side sends no more; ours may still be written.
    PeerClosed,
    /// It is over; no further event will come. [`CloseReason::Closed`] when both sides have closed in good
    /// order (the connection may still answer from TIME-WAIT: see [`TcpConnection::is_closed`]).
    Closed(CloseReason),
}

/// What a connection counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpStats {
    /// Segments sent, of every kind.
    pub segments_sent: u32,
    /// Segments received, of every kind, dropped ones included.
    pub segments_received: u32,
    /// Segments sent without data, SYN, FIN or RST.
    pub pure_acks_sent: u32,
    /// Segments sent that held a sequence number sent before (SYN and FIN too; probes not).
    pub retransmitted: u32,
    /// Expiries of the retransmission timer.
    pub timeouts: u32,
    /// Entries into fast retransmit.
    pub fast_retransmits: u32,
    /// Segments sent by limited transmit.
    pub limited_transmits: u32,
    /// Zero-window probes sent.
    pub window_probes: u32,
    /// Duplicate acknowledgements received.
    pub duplicate_acks: u32,
    /// Data segments received that held nothing new.
    pub duplicate_data: u32,
    /// Data segments received beyond a gap.
    pub out_of_order: u32,
    /// Segments dropped because they lie outside the window or acknowledge what was never sent.
    pub unacceptable: u32,
    /// Segments dropped because they contradict themselves or lack what the handshake agreed on.
    pub malformed: u32,
    /// Segments dropped because their timestamp is old (RFC 7323 §5).
    pub old_timestamps: u32,
    /// Challenge acknowledgements sent (RFC 5961).
    pub challenge_acks: u32,
}

/// What the one long timer of a connection waits for.
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

/// What few connections have, in one place so that the others stay small.
#[derive(Debug, Default)]
pub(super) struct RareState {
    /// Of one that opens by Fast Open.
    pub(super) opening: Option<FastOpenState>,
    /// Where acknowledgements go by the sender's pace.
    pub(super) acks: Option<AckPace>,
    /// Where losses are found by time.
    pub(super) rack: Option<Rack>,
    /// Where the receive buffer follows what is read.
    pub(super) tuning: Option<Box<ReceiveTuning>>,
    /// What few of the others see.
    pub(super) extras: Option<Box<ConnectionExtras>>,
}

impl RareState {
    #[inline]
    pub(super) fn acks_mut(of: &mut Option<Box<Self>>) -> Option<&mut AckPace> {
        of.as_mut()?.acks.as_mut()
    }
    #[inline]
    pub(super) fn rack_mut(of: &mut Option<Box<Self>>) -> Option<&mut Rack> {
        of.as_mut()?.rack.as_mut()
    }
}

/// What happens to few connections.
#[derive(Debug)]
pub(super) struct ConnectionExtras {
    /// A reset or acknowledgement that answers a stray segment.
    pub(super) answer: Option<Segment>,
    /// When the last challenge acknowledgement was sent; `FAR_FUTURE` before the first.
    pub(super) challenged_at: Instant,
    /// But for what all of them count.
    pub(super) stats: TcpStats,
}

impl Default for ConnectionExtras {
    fn default() -> Self {
        Self { answer: None, challenged_at: Instant::FAR_FUTURE, stats: TcpStats::default() }
    }
}

/// Events that wait to be polled, beside data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingEvents {
    pub(super) connected: bool,
    pub(super) peer_closed: bool,
    pub(super) closed: Option<CloseReason>,
}

/// One endpoint of a TCP connection; see the [module](super) for how to drive it.
#[derive(Debug)]
pub struct TcpConnection {
    pub(super) config: Arc<TcpConfig>,
    pub(super) state: TcpState,
    pub(super) timer: TcpTimer,
    /// Something changed that may let a segment leave.
    pub(super) wake: bool,
    pub(super) ack_now: bool,
    /// A SYN or SYN-ACK is to be sent (again).
    pub(super) syn_now: bool,
    /// The segment at `una` is to be retransmitted, whatever the window.
    pub(super) resend_now: bool,
    /// A tail-loss probe is to be sent, whatever the window; in ns-2's sender, another look at what may leave.
    pub(super) tail_now: bool,
    /// The data segment that is being taken ended a write (PSH).
    pub(super) pushed: bool,
    /// The persist timer asks for a segment that the window or Nagle would not let go.
    pub(super) probe_now: bool,
    pub(super) active_open: bool,
    /// Expiries of the timer that awaited the acknowledgement of our SYN.
    pub(super) syn_timeouts: u8,
    pub(super) fin_queued: bool,
    pub(super) fin_sent: bool,
    pub(super) peer_fin: bool,
    pub(super) sack_ok: bool,
    pub(super) scale_ok: bool,
    pub(super) in_recovery: bool,
    /// The first partial acknowledgement of this recovery has come.
    pub(super) partial_seen: bool,
    pub(super) auto_read: bool,
    pub(super) pending: PendingEvents,
    pub(super) snd_scale: u8,
    pub(super) rcv_scale: u8,
    pub(super) unacked_segments: u8,
    /// Bytes of the largest data segment that came.
    pub(super) largest: u16,
    /// Zero-window probes since the window closed: the exponent of their interval.
    pub(super) probes: u8,

    pub(super) timer_at: Instant,
    pub(super) ack_at: Instant,
    pub(super) timed_at: Instant,
    pub(super) last_data_at: Instant,
    pub(super) rtt: RttEstimator,
    pub(super) congestion: CongestionWindow,

    /// ISS, SND.UNA, SND.NXT (which a timeout pulls back) and the end of what was ever sent.
    pub(super) iss: u32,
    pub(super) una: u32,
    pub(super) nxt: u32,
    pub(super) max: u32,
    /// Where the last segment ended that was sent with less than it could hold.
    pub(super) small_end: u32,
    /// Where the written data ends; the FIN's number once it is queued.
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
    /// Bytes that limited transmit sent since the first duplicate acknowledgement.
    pub(super) limited: u32,
    /// Sequence number whose acknowledgement is being timed.
    pub(super) timed_seq: u32,
    /// Timeouts or unanswered probes in a row.
    pub(super) retries: u32,

    pub(super) irs: u32,
    pub(super) rcv_nxt: u32,
    /// Right edge of the window we announced.
    pub(super) rcv_edge: u32,
    pub(super) unread: u32,
    pub(super) credit: u32,
    pub(super) unacked_bytes: u32,

    pub(super) send_buffer: Option<Box<SendBuffer>>,
    pub(super) chunks: Option<Box<UnreadData>>,
    pub(super) reassembly: Option<Box<ReassemblyBuffer>>,
    pub(super) scoreboard: Option<Box<Scoreboard>>,
    pub(super) timestamps: Option<Box<TimestampState>>,
    /// What few connections have.
    pub(super) rare_state: Option<Box<RareState>>,
    /// What all of them count.
    pub(super) segments_sent: u32,
    pub(super) segments_received: u32,
    pub(super) pure_acks_sent: u32,
}

/// The most that may be written and not yet acknowledged: half of what sequence numbers can compare.
const MAX_QUEUED: u32 = 1 << 30;

impl TcpConnection {
    /// Octets that count for the state of a connection without data: between what one takes in this simulator, on a machine
    /// with addresses of 64 bits, and that with what few have beside it. It is a number of its own so that results are the
    /// same everywhere, whatever becomes of that.
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
            rare_state: paced
                .then(|| Box::new(RareState { acks: Some(AckPace::default()), ..RareState::default() })),
            segments_sent: 0,
            segments_received: 0,
            pure_acks_sent: 0,
            config,
        }
    }

    /// Opens a connection actively: the SYN is then polled. `iss` is the initial sequence number, which
    /// the host draws (RFC 9293 §3.4.1).
    #[must_use]
    pub fn connect(config: Arc<TcpConfig>, iss: u32, now: Instant) -> Self {
        let mut c = Self::new(config, TcpState::SynSent, iss);
        c.last_data_at = now;
        c
    }

    /// Answers a SYN that came to a listener: the SYN-ACK is then polled.
    ///
    /// `None` where the segment is not a SYN: the host answers that with [`Segment::reset_for`] (or not at
    /// all). Data on the SYN waits until the connection is established; a FIN on it is not taken, and comes again
    /// (RFC 9293 §3.10.7.2 and §3.10.7.4, eighth check).
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
        c.take_syn(now, syn);
        c.hold_text(syn);
        Some(c)
    }

    /// Learns from the other side's SYN: its numbers and options.
    pub(super) fn take_syn(&mut self, now: Instant, syn: &Segment) {
        self.irs = syn.seq;
        self.rcv_nxt = syn.seq.wrapping_add(1);
        self.rcv_edge = self.rcv_nxt.wrapping_add(self.config.receive_buffer.min(0xffff));
        let none = TcpOptions::default();
        let theirs = syn.options.as_deref().filter(|_| self.config.variants.options).unwrap_or(&none);
        let peer_mss = theirs.mss.unwrap_or(self.config.default_peer_mss).max(64);
        self.mss = u32::from(peer_mss.min(self.config.mss.max(64)));
        if let (Some(ours), Some(theirs)) = (self.config.window_scale, theirs.window_scale) {
            self.scale_ok = true;
            self.rcv_scale = ours.min(14);
            self.snd_scale = theirs.min(14);
        }
        self.sack_ok = self.config.recovery == RecoveryAlgorithm::Sack && theirs.sack_permitted;
        if let (true, Some((val, _))) = (self.config.timestamps, theirs.timestamps) {
            self.timestamps =
                Some(Box::new(TimestampState { recent: val, recent_at: now, last_ack_sent: self.rcv_nxt }));
            self.mss -= 12;
        }
        self.begin_tuning(now);
        self.wnd = u32::from(syn.window);
        self.max_wnd = self.wnd;
        self.wl1 = syn.seq;
        self.wl2 = syn.ack;
    }

    /// Keeps what a SYN that does not establish carries until we are ESTABLISHED (RFC 9293 §3.10.7.2 and §3.10.7.3).
    pub(super) fn hold_text(&mut self, syn: &Segment) {
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

    /// Queues data for sending and attempts output (the segments are then polled). Before the handshake is
    /// over it waits.
    ///
    /// # Errors
    /// [`CommandError::WrongState`] after [`shutdown`](Self::shutdown), [`abort`](Self::abort) or the end
    /// of the connection; [`CommandError::Full`] where more than 1 GiB would wait. Nothing was taken then.
    #[inline]
    pub fn write(&mut self, data: StreamData<'_>) -> Result<(), CommandError> {
        if self.fin_queued || !self.can_send() {
            return Err(CommandError::WrongState("the connection takes no more data"));
        }
        let len = match data {
            StreamData::Count(n) => n as usize,
            StreamData::Bytes(b) => b.len(),
        };
        if len > (MAX_QUEUED - self.end.wrapping_sub(self.una).min(MAX_QUEUED)) as usize {
            return Err(CommandError::Full("more than 1 GiB is not acknowledged"));
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

    /// Closes our side once all that was written is sent. What the other side still sends is delivered.
    /// Does nothing where that was done already.
    pub fn shutdown(&mut self) {
        match self.state {
            TcpState::SynSent => self.state = TcpState::Closed,
            _ if self.can_send() => self.fin_queued = true,
            _ => return,
        }
        self.wake = true;
    }

    /// Resets the connection: no event follows, a RST is then polled unless the other side knows of nothing, or has
    /// closed as we have (RFC 9293 §3.10.5).
    pub fn abort(&mut self) {
        let open = !matches!(self.state, TcpState::SynSent | TcpState::TimeWait | TcpState::Closed);
        let reset = open && !matches!(self.state, TcpState::Closing | TcpState::LastAck);
        self.set_answer(reset.then(|| self.reset_segment()));
        self.enter_closed();
        self.pending = PendingEvents::default();
    }

    /// The reset that ends this connection for the other side.
    pub(super) fn reset_segment(&self) -> Segment {
        let flags = SegmentFlags::RST | SegmentFlags::ACK;
        Segment { seq: self.snd_nxt(), ack: self.rcv_nxt, flags, ..Default::default() }
    }

    /// SND.NXT: beyond what was sent, also while a timeout sends it again. The byte of a probe does not count: a closed
    /// window may have refused it, and then takes nothing beyond it.
    pub(super) fn snd_nxt(&self) -> u32 {
        if self.timer == TcpTimer::Persist { self.nxt } else { self.max }
    }

    /// What few connections see, of one that sees it.
    #[cold]
    pub(super) fn extras_mut(&mut self) -> &mut ConnectionExtras {
        self.rare_state.get_or_insert_default().extras.get_or_insert_default()
    }
    #[inline]
    fn extras(&self) -> Option<&ConnectionExtras> {
        self.rare_state.as_ref()?.extras.as_deref()
    }

    /// What few connections count.
    #[cold]
    pub(super) fn stats_mut(&mut self) -> &mut TcpStats {
        &mut self.extras_mut().stats
    }

    /// Answers a stray segment, or not.
    #[cold]
    pub(super) fn set_answer(&mut self, answer: Option<Segment>) {
        if answer.is_some() || self.extras().is_some() {
            self.extras_mut().answer = answer;
        }
    }

    #[inline]
    pub(super) fn has_answer(&self) -> bool {
        self.extras().is_some_and(|aside| aside.answer.is_some())
    }

    /// Ends the connection and tells why.
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

    /// Whether arriving data is taken at once (the default) or waits in the receive buffer, filling the
    /// window, until [`read`](Self::grant_credit) grants credit.
    pub fn set_auto_read(&mut self, auto: bool) {
        self.auto_read = auto;
        self.offer_window();
    }

    /// Takes other settings while it runs, as an application may ask for (the receive buffer, Nagle). What is
    /// negotiated or announced stays; what is sent and measured from now on goes by them.
    pub fn reconfigure(&mut self, config: Arc<TcpConfig>) {
        self.config = config;
    }

    /// Grants credit for `n` more bytes to a connection that does not read by itself; as much is then
    /// delivered as [`TcpEvent::Data`], now or when it comes.
    pub fn grant_credit(&mut self, n: u32) {
        self.credit = self.credit.saturating_add(n);
    }

    /// The next event; poll until `None`. Data is delivered before the close that follows it.
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
            self.use_credit(len);
        }
        Some(TcpEvent::Data { len, payload })
    }

    /// An application that reads by itself has read so much.
    #[cold]
    fn use_credit(&mut self, len: u32) {
        self.credit -= len;
        self.offer_window();
        self.acknowledge_read();
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; it may move either way after every call.
    #[must_use]
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let mut at = self.timer_at.min(self.ack_at);
        if !self.congestion.is_reno() {
            at = at.min(self.congestion.paced_until());
        }
        if let Some(rack) = self.rack() {
            at = at.min(rack.next_timeout());
        }
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    #[inline]
    pub(super) fn ack_pace(&self) -> Option<&AckPace> {
        self.rare_state.as_ref()?.acks.as_ref()
    }
    #[inline]
    pub(super) fn rack(&self) -> Option<&Rack> {
        self.rare_state.as_ref()?.rack.as_ref()
    }

    /// The state.
    pub fn state(&self) -> TcpState {
        self.state
    }
    /// True when nothing more will be sent or received, so that the host may forget the connection (after
    /// the last [`poll_transmit`](Self::poll_transmit)).
    pub fn is_closed(&self) -> bool {
        self.state == TcpState::Closed
    }
    /// What was counted.
    pub fn stats(&self) -> TcpStats {
        let rest = self.extras().map(|aside| aside.stats).unwrap_or_default();
        TcpStats {
            segments_sent: self.segments_sent,
            segments_received: self.segments_received,
            pure_acks_sent: self.pure_acks_sent,
            ..rest
        }
    }
    /// Whether the host drains [`poll_event`](Self::poll_event) before the first
    /// [`poll_transmit`](Self::poll_transmit).
    pub fn delivers_first(&self) -> bool {
        self.config.deliver_first
    }
    /// Such a host says so when the application has had all events, and written what it answers them.
    pub fn all_delivered(&mut self) {
        if !self.congestion.is_reno() {
            self.full_tcp_delivered();
        }
    }
    /// The smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }
    /// The retransmission timeout as it would be armed now.
    pub fn rto(&self) -> Duration {
        self.rtt.rto(&self.config)
    }
    /// The congestion window in bytes; 0 before the handshake.
    pub fn cwnd(&self) -> u32 {
        self.congestion.cwnd
    }
    /// The slow-start threshold in bytes.
    pub fn ssthresh(&self) -> u32 {
        self.congestion.ssthresh
    }
    /// Sequence space sent and not yet acknowledged (RFC 5681 FlightSize).
    pub fn bytes_in_flight(&self) -> u32 {
        self.max.wrapping_sub(self.una)
    }
    /// Bytes written and never sent yet.
    pub fn bytes_unsent(&self) -> u32 {
        seq::octets_ahead(seq::max(self.max, self.iss.wrapping_add(1)), self.end)
    }
    /// The window the other side offers, in bytes.
    pub fn peer_window(&self) -> u32 {
        self.wnd
    }
    /// The largest payload of a segment, in bytes.
    pub fn mss(&self) -> u32 {
        self.mss
    }
    /// Whether timestamps, SACK and window scaling are in use, in this order.
    pub fn negotiated_options(&self) -> (bool, bool, bool) {
        (self.timestamps.is_some(), self.sack_ok, self.scale_ok)
    }
    /// Bytes that arrived in order and wait to be read.
    pub fn bytes_unread(&self) -> u32 {
        self.unread
    }
    /// Octets that it takes: a control block of [`CONTROL_BLOCK`](Self::CONTROL_BLOCK), what was written and is not
    /// acknowledged, what came and is not read, and what came behind a gap. Data that is a mere count counts as if it were
    /// there.
    pub fn memory_octets(&self) -> u32 {
        let unacknowledged = seq::octets_ahead(seq::max(self.una, self.iss.wrapping_add(1)), self.end);
        let held = self.reassembly.as_ref().map_or(0, |r| r.buffered_octets());
        [unacknowledged, self.unread, held].into_iter().fold(Self::CONTROL_BLOCK, u32::saturating_add)
    }
}
