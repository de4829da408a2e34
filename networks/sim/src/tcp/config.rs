//! What can be set about a connection, with the standard that gives each default.

use usher_core::Duration;

/// How losses are found and repaired.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RecoveryAlgorithm {
    /// Fast retransmit and fast recovery; any new acknowledgement ends recovery (RFC 5681 §3.2).
    Reno,
    /// Partial acknowledgements retransmit the next hole (RFC 6582).
    #[default]
    NewReno,
    /// A scoreboard of SACK blocks and the `pipe` algorithm (RFC 2018, RFC 6675); falls back to NewReno
    /// where the other side does not permit SACK.
    Sack,
}

/// How the congestion window grows and how far a loss reduces it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CongestionControl {
    /// A segment a round trip, and half of it at a loss (RFC 5681 §3.1).
    #[default]
    Reno,
    /// A cubic function of the time since the last loss, at which 0.7 is kept (RFC 9438).
    Cubic,
    /// Window and pace follow the measured bandwidth and round trip, whatever is lost
    /// (draft-cardwell-iccrg-bbr-congestion-control-00).
    Bbr,
}

/// The congestion window after the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InitialWindow {
    /// min(4·SMSS, max(2·SMSS, 4380 bytes)): RFC 3390, which RFC 5681 §3.1 keeps.
    #[default]
    Rfc3390,
    /// min(10·SMSS, max(2·SMSS, 14600 bytes)): RFC 6928.
    Rfc6928,
    /// This many full-sized segments (ns-2's `windowInit_`; 1 was RFC 2001).
    Segments(u32),
}

impl InitialWindow {
    /// The window in bytes for segments of at most `mss` bytes.
    pub fn window_bytes(self, mss: u32) -> u32 {
        match self {
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
            Self::Rfc6928 => (10 * mss).min((2 * mss).max(14_600)),
            Self::Segments(n) => n.max(1).saturating_mul(mss),
        }
    }
}

/// What the receiver counts before it acknowledges at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AckEvery {
    /// This many segments of any size.
    Segments(u8),
    /// This many times the maximum segment size in bytes (RFC 5681 §4.2: "every second full-sized segment").
    FullSized(u8),
    /// More bytes than so many segments less one, of the largest that has come; before, and at least, of 536 bytes or half
    /// the window (Linux's `rcv_mss`, which also falls again, and here does not).
    LargestSeen(u8),
}

/// When a delayed acknowledgement leaves that nothing rode on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AckTimer {
    /// The timeout after the first segment that it acknowledges (RFC 5681 §4.2).
    #[default]
    FromArrival,
    /// At the next tick of a clock that ticks at every multiple of the timeout, whenever the segment came: BSD's
    /// fast timer, and ns-2's `interval_`.
    Tick,
}

/// What forgets the doubling of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BackoffReset {
    /// A new measurement of the round trip, which no segment gives that was sent twice (RFC 6298 §5, Karn).
    #[default]
    Measurement,
    /// Any acknowledgement of new data, once it has restarted the timer (ns-2's FullTcp).
    Acknowledgement,
    /// Any acknowledgement of new data, before it restarts the timer, and any of ours that leaves without data (ns-3's `NewAck()` and
    /// `SendEmptyPacket()`).
    EitherAcknowledgement,
}

/// Which of the other side's timestamps is echoed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TimestampEcho {
    /// That of the segment which begins where our last acknowledgement ended, or before (RFC 7323 §4.3).
    #[default]
    Rfc7323,
    /// That of the next segment in order, where it begins no later than our last acknowledgement without data ended (ns-3's
    /// `m_highTxAck`).
    PureAcknowledgements,
}

/// What makes the congestion window grow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowGrowth {
    /// The bytes that are acknowledged: as many in slow start, a segment for each window of them after it
    /// (RFC 5681 §3.1).
    #[default]
    Bytes,
    /// Acknowledgements, whatever they acknowledge: a segment each in slow start, and a segment's share of the window
    /// after it; that which ends fast recovery counts, too. What is sent are whole segments of the window (ns-2).
    Acknowledgements,
}

/// Whose sender repairs losses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossRecovery {
    /// That of RFC 5681, 6582 or 6675, as [`RecoveryAlgorithm`] says.
    #[default]
    Rfc5681,
    /// ns-2's FullTcp, plain, Newreno or Sack, with [`CongestionControl::Reno`]. It takes the place of [`WindowGrowth`],
    /// [`LossHalves`], limited transmit and what counts as a duplicate.
    Ns2,
    /// ns-3's TcpSocketBase, with [`CongestionControl::Cubic`] and [`RecoveryAlgorithm::Sack`]: by segments as they left, with its own CUBIC, hybrid
    /// slow start and proportional rate reduction. It takes the place of [`WindowGrowth`], [`LossHalves`], limited transmit, restarts after
    /// silence and what counts as a duplicate.
    Ns3,
}

/// What the congestion window counts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowUnit {
    /// Bytes, so that a window of one full segment takes many small ones (RFC 5681 §2).
    #[default]
    Bytes,
    /// Segments, however small each is: those that are neither reported nor lost are in flight, a loss reduces the window
    /// and not what is in flight, and it grows only while it is full (Linux). CUBIC's α stays as RFC 8312 §4.2 has it. It takes
    /// SACK, and leaves BBR alone.
    Segments,
}

/// What a loss leaves half of as the slow-start threshold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossHalves {
    /// What is in flight, and not again where a segment that was sent again is lost (RFC 5681 §3.1).
    #[default]
    Flight,
    /// The window, as far as the other side's goes, in whole segments, at every timeout (ns-2).
    Window,
}

/// For what timeout an acknowledgement of new data restarts the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RtoRestart {
    /// The one that follows from it, where it is a measurement (RFC 6298 §5.3).
    #[default]
    NewTimeout,
    /// The one that held before it came (ns-2's FullTcp).
    OldTimeout,
}

/// After how much silence the congestion window shrinks to the initial one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdleRestart {
    /// A retransmission timeout's worth; the window never grows thereby (RFC 5681 §4.1).
    #[default]
    Rto,
    /// What the round trips give as a timeout, be it below the smallest one; the window is the initial one afterwards,
    /// be that larger (ns-2).
    MeasuredRto,
}

/// What Nagle's algorithm lets go although data is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NagleVariant {
    /// Full segments only (RFC 896, RFC 9293 §3.7.4).
    #[default]
    Rfc896,
    /// What fits into a segment that leaves anyway: with an acknowledgement that is due, or one that is sent again,
    /// which is then timed like one that was never sent (4.4BSD's `tcp_output`, and ns-2's FullTcp).
    Bsd,
    /// A small segment where no earlier small one is unacknowledged (Minshall's, as Linux has it).
    Minshall,
}

/// Delayed acknowledgement (RFC 1122 §4.2.3.2, RFC 5681 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DelayedAck {
    /// The longest an acknowledgement waits for data to ride on (the standard's bound is 500 ms).
    pub timeout: Duration,
    /// How much may arrive before it no longer waits.
    pub every: AckEvery,
}

impl Default for DelayedAck {
    /// 200 ms and every second segment, as BSD does.
    fn default() -> Self {
        Self { timeout: Duration::from_millis(200), every: AckEvery::Segments(2) }
    }
}

/// When the window that is announced may grow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowUpdate {
    /// Once it would grow by a segment or half the buffer (RFC 9293 §3.8.6.2.2).
    #[default]
    Rfc9293,
    /// At every segment, while a segment or a quarter of the buffer is free, as BSD does. What the buffer holds
    /// beyond the window field's reach is taken too.
    Bsd,
    /// As the RFC has it; but as much again is taken as was announced, since ns-2's receivers have no window and its senders overstep
    /// theirs in a recovery with SACK.
    Ns2,
}

/// Where stacks differ from each other, and what each setting is by the RFC's text; the defaults are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackVariants {
    /// When the announced window grows.
    pub window_update: WindowUpdate,
    /// Report data that came twice by a first SACK block (RFC 2883); off.
    pub duplicate_sack: bool,
    /// A reset must have exactly the expected number (RFC 5961 §3.2); on. Without it any in the window resets
    /// (RFC 793).
    pub strict_rst: bool,
    /// A SYN on an open connection never resets it (RFC 5961 §4.2); on. Without it one in the window does, and
    /// is answered by a reset (RFC 793).
    pub strict_syn: bool,
    /// A reset does not end TIME-WAIT (RFC 1337 §3, F1); off.
    pub time_wait_ignores_rst: bool,
    /// The acknowledgement of a FIN that crossed ours carries ours again; off. BSD does it.
    pub fin_again: bool,
    /// Send and take options; on.
    pub options: bool,
    /// Added to every retransmission timeout but the initial one; zero. BSD's `rexmit_slop`.
    pub rto_slop: Duration,
}

impl Default for StackVariants {
    fn default() -> Self {
        Self {
            window_update: WindowUpdate::default(),
            duplicate_sack: false,
            strict_rst: true,
            strict_syn: true,
            time_wait_ignores_rst: false,
            fin_again: false,
            options: true,
            rto_slop: Duration::ZERO,
        }
    }
}

/// The settings of a connection; many connections share one by [`Arc`](std::sync::Arc).
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// Maximum segment size: announced to the other side, and the bound of what is sent where the other
    /// side announces more. 1460, that is Ethernet's 1500 less 40 bytes of IPv4 and TCP headers (RFC 9293
    /// §3.7.1).
    pub mss: u16,
    /// What is assumed of a peer that announces no size: 536 (RFC 9293 §3.7.1); 1220 for IPv6.
    pub default_peer_mss: u16,
    /// Loss recovery; NewReno.
    pub recovery: RecoveryAlgorithm,
    /// Whose sender repairs them; the RFCs'.
    pub loss_recovery: LossRecovery,
    /// Congestion control; Reno.
    pub congestion: CongestionControl,
    /// What the congestion window counts; bytes.
    pub window_unit: WindowUnit,
    /// What Reno's window grows by; bytes.
    pub window_growth: WindowGrowth,
    /// What a loss halves; what is in flight.
    pub loss_halves: LossHalves,
    /// Initial congestion window; RFC 3390.
    pub initial_window: InitialWindow,
    /// Initial slow-start threshold in bytes; without bound (RFC 5681 §3.1: "arbitrarily high").
    pub initial_ssthresh: u32,
    /// Duplicate acknowledgements that mean a loss; 3 (RFC 5681 §3.2).
    pub dup_threshold: u8,
    /// Send new data on the first two duplicate acknowledgements; on (RFC 3042).
    pub limited_transmit: bool,
    /// Shrink the congestion window to the initial one after a retransmission timeout's worth of silence;
    /// on (RFC 5681 §4.1).
    pub restart_after_idle: bool,
    /// How long that silence is; a retransmission timeout.
    pub idle_restart: IdleRestart,
    /// After a handshake that lost its SYN or SYN-ACK the window is one segment; on (RFC 5681 §3.1). With
    /// [`InitialWindow::Rfc6928`] it must have lost more than one (RFC 6928 §2).
    pub syn_loss_shrinks: bool,
    /// Hold a small segment back while data is unacknowledged; on (RFC 896, RFC 1122 §4.2.3.4).
    pub nagle: bool,
    /// What it lets go all the same; nothing.
    pub nagle_variant: NagleVariant,
    /// Avoid silly windows; on (RFC 9293 §3.8.6.2, MUST-38 and MUST-39). Off, as before there was such a rule, whatever a
    /// window takes is sent, and whatever an application reads is announced, as an acknowledgement would be: at once, or
    /// delayed.
    pub silly_window_avoidance: bool,
    /// The application hears of data before anything leaves that it lets go: what was held back leaves together with the
    /// answer (ns-2); off, as a kernel, which sends first.
    pub deliver_first: bool,
    /// Delayed acknowledgement; `None` acknowledges at once.
    pub delayed_ack: Option<DelayedAck>,
    /// When a delayed acknowledgement leaves at last; its timeout after the first segment.
    pub ack_timer: AckTimer,
    /// The delay follows the sender's pace, from its timeout up to this, or to the round trip where that is less (Linux);
    /// `None` delays by the timeout.
    pub delayed_ack_max: Option<Duration>,
    /// Acknowledge at once at a connection's beginning and after data that came twice, until data goes both ways (Linux's
    /// quick-ack mode); off.
    pub quick_ack: bool,
    /// An application that has read all has it acknowledged: after a second segment that ended a write, or after the first
    /// unless data goes both ways (Linux's `tcp_cleanup_rbuf()`); off.
    pub ack_on_read: bool,
    /// Retransmission timeout before the first measurement; 1 s (RFC 6298 §2.1).
    pub initial_rto: Duration,
    /// Its lower bound; 1 s (RFC 6298 §2.4). Linux uses 200 ms.
    pub min_rto: Duration,
    /// Its upper bound, also of the interval between zero-window probes; 60 s (RFC 6298 §2.5).
    pub max_rto: Duration,
    /// What ends the back-off of the timeout; a measurement.
    pub backoff_reset: BackoffReset,
    /// What timeout an acknowledgement restarts the timer for; that which follows from it.
    pub rto_restart: RtoRestart,
    /// With SACK, an acknowledgement that reports more counts as a duplicate although it acknowledges new data or carries
    /// some, too; on (RFC 6675 §2). Off, only one that does neither counts.
    pub advancing_duplicates: bool,
    /// With SACK, a segment counts as lost once one that was sent later has been acknowledged and a reordering window has
    /// passed (RFC 8985 §6); off. It takes the place of the number of duplicates.
    pub rack: bool,
    /// With SACK, a probe before the retransmission timer expires: the next segment, or the last one again (RFC 8985 §7);
    /// off. Where one segment is under way it waits for [`min_rto`](Self::min_rto) longer, for a delayed acknowledgement.
    pub tail_loss_probe: bool,
    /// With RACK, what is sent again is filled up to a segment with what follows it and was not reported, be that lost or
    /// not (Linux's `tcp_retrans_try_collapse()`); off.
    pub retransmit_collapse: bool,
    /// With [`WindowUnit::Segments`], the window falls in proportion to what arrives while a loss is repaired (RFC 6937), and not at
    /// once; off.
    pub rate_reduction: bool,
    /// A fast retransmission of the first segment under way restarts the timer, and with RACK one of it that was lost again; off (RFC
    /// 6298 §5 does not).
    pub fast_retransmit_restarts: bool,
    /// Round trips are counted in ticks of this length of a clock that runs free, and at least one; zero measures
    /// them exactly. BSD's and ns-2's `tcpTick_`. In whole multiples of 8 ns.
    pub rtt_tick: Duration,
    /// Timers are those of a wheel with ticks of this length: none expires early, and each later by up to an eighth of how long
    /// it was to wait (Linux's kernel/time/timer.c; 4 ms with CONFIG_HZ=250). Zero: all expire in time.
    pub timer_tick: Duration,
    /// With [`RecoveryAlgorithm::Reno`], too, duplicate acknowledgements of what a timeout sent again begin no fast
    /// retransmission; off. NewReno (RFC 6582 §3.2 step 2) and SACK (RFC 6675 §5.1) never do.
    pub reno_recover: bool,
    /// Clock granularity G in RTO = SRTT + max(G, 4·RTTVAR); 1 ms (RFC 6298 §2).
    pub granularity: Duration,
    /// The timeout after a handshake that lost its SYN and measured nothing, where the initial one is less; 3 s (RFC
    /// 6298 §5.7).
    pub rto_after_syn_loss: Duration,
    /// Retransmissions of one segment before the connection is given up; `None` never gives up. 15, as
    /// Linux; RFC 9293 §3.8.3 asks for at least 100 s.
    pub max_retransmissions: Option<u32>,
    /// The same for SYN and SYN-ACK; 7, which last 183 s from an initial timeout of 1 s with 60 s at most (RFC 9293
    /// §3.8.3 asks for at least 3 minutes).
    pub max_syn_retransmissions: Option<u32>,
    /// Receive buffer in bytes, which the window announces; 65535. Larger ones need `window_scale`.
    pub receive_buffer: u32,
    /// The buffer grows up to this with what the application reads in a round trip (Linux's `tcp_rcv_space_adjust()`); `None` leaves it
    /// as it is.
    pub receive_buffer_max: Option<u32>,
    /// Offer window scaling with this shift, at most 14; off (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// Offer timestamps; off (RFC 7323 §3). Their clock ticks once a millisecond.
    pub timestamps: bool,
    /// Which of them is echoed; RFC 7323's.
    pub timestamp_echo: TimestampEcho,
    /// How long the side that closed first stays in TIME-WAIT: twice the maximum segment lifetime. 1 s,
    /// which is far below RFC 9293's 4 minutes, since simulated addresses are not used again.
    pub time_wait: Duration,
    /// At least this much time between two challenge acknowledgements; 500 ms (RFC 5961 §7 suggests ten in
    /// five seconds).
    pub challenge_ack_interval: Duration,
    /// Where stacks differ; as the RFCs have it.
    pub variants: StackVariants,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mss: 1460,
            default_peer_mss: 536,
            recovery: RecoveryAlgorithm::default(),
            loss_recovery: LossRecovery::default(),
            congestion: CongestionControl::default(),
            window_unit: WindowUnit::default(),
            window_growth: WindowGrowth::default(),
            loss_halves: LossHalves::default(),
            initial_window: InitialWindow::default(),
            initial_ssthresh: u32::MAX,
            dup_threshold: 3,
            limited_transmit: true,
            restart_after_idle: true,
            idle_restart: IdleRestart::default(),
            syn_loss_shrinks: true,
            nagle: true,
            nagle_variant: NagleVariant::default(),
            silly_window_avoidance: true,
            deliver_first: false,
            delayed_ack: Some(DelayedAck::default()),
            ack_timer: AckTimer::default(),
            delayed_ack_max: None,
            quick_ack: false,
            ack_on_read: false,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(60),
            backoff_reset: BackoffReset::default(),
            rto_restart: RtoRestart::default(),
            advancing_duplicates: true,
            rack: false,
            tail_loss_probe: false,
            retransmit_collapse: false,
            rate_reduction: false,
            fast_retransmit_restarts: false,
            rtt_tick: Duration::ZERO,
            timer_tick: Duration::ZERO,
            reno_recover: false,
            granularity: Duration::from_millis(1),
            rto_after_syn_loss: Duration::from_secs(3),
            max_retransmissions: Some(15),
            max_syn_retransmissions: Some(7),
            receive_buffer: 65_535,
            receive_buffer_max: None,
            window_scale: None,
            timestamps: false,
            timestamp_echo: TimestampEcho::default(),
            time_wait: Duration::from_secs(1),
            challenge_ack_interval: Duration::from_millis(500),
            variants: StackVariants::default(),
        }
    }
}

impl TcpConfig {
    /// Whether a connection's initial sequence number decides more than its numbers: when its ticks of [`Self::rtt_tick`] begin, or
    /// by what phase BBR looks for bandwidth first.
    pub fn depends_on_iss(&self) -> bool {
        !self.rtt_tick.is_zero() || self.congestion == CongestionControl::Bbr
    }
}
