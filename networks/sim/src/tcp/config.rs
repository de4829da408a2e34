//! Settings of a connection. Each default names its standard.

use usher_core::Duration;

/// The algorithm of loss detection and recovery.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossRecoveryAlgorithm {
    /// Fast retransmit and fast recovery; any new acknowledgement ends recovery (RFC 5681 §3.2).
    Reno,
    /// Partial acknowledgements retransmit the next hole (RFC 6582).
    #[default]
    NewReno,
    /// A scoreboard of SACK blocks and the `pipe` algorithm (RFC 2018, RFC 6675). Falls back to NewReno if the peer
    /// does not permit SACK.
    Sack,
}

/// The growth of the congestion window and its reduction at a loss.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CongestionControl {
    /// Grows by a segment per round trip; halved at a loss (RFC 5681 §3.1).
    #[default]
    Reno,
    /// Grows by a cubic function of the time since the last loss; a loss reduces it to 0.7 (RFC 9438).
    Cubic,
    /// Window and pacing rate follow the measured bandwidth and round trip, regardless of losses
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
    /// Returns the window in octets for segments of at most `mss` octets.
    pub fn window_bytes(self, mss: u32) -> u32 {
        match self {
            Self::Rfc3390 => (4 * mss).min((2 * mss).max(4380)),
            Self::Rfc6928 => (10 * mss).min((2 * mss).max(14_600)),
            Self::Segments(n) => n.max(1).saturating_mul(mss),
        }
    }
}

/// Data that leads to an immediate acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AckThreshold {
    /// This many segments of any size.
    Segments(u8),
    /// This multiple of the maximum segment size in octets (RFC 5681 §4.2: "every second full-sized segment").
    FullSized(u8),
    /// More octets than this number of segments less one, of the largest size received. The size is at least 536
    /// octets or half the window (Linux's `rcv_mss`, which can also decrease; here it does not).
    LargestSeen(u8),
}

/// The timer of a delayed acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AckTimer {
    /// The timeout after the first unacknowledged segment (RFC 5681 §4.2).
    #[default]
    FromArrival,
    /// The next tick of a clock that ticks at every multiple of the timeout: BSD's fast timer, and ns-2's
    /// `interval_`.
    Tick,
}

/// The event that resets the back-off of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BackoffReset {
    /// A new round-trip measurement, which retransmitted segments never give (RFC 6298 §5, Karn).
    #[default]
    Measurement,
    /// An acknowledgement of new data, after it has restarted the timer (ns-2's FullTcp).
    Acknowledgement,
    /// An acknowledgement of new data, before it restarts the timer, and each sent segment that only acknowledges
    /// (ns-3's `NewAck()` and `SendEmptyPacket()`).
    EitherAcknowledgement,
}

/// The echoed timestamp of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TimestampEcho {
    /// That of the segment that spans the end of the last acknowledgement sent (RFC 7323 §4.3).
    #[default]
    Rfc7323,
    /// That of the next segment in order that begins no later than the last pure acknowledgement ended (ns-3's
    /// `m_highTxAck`).
    PureAcknowledgements,
}

/// The unit of congestion window growth.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowGrowth {
    /// Acknowledged octets: the same number in slow start, later a segment per acknowledged window (RFC 5681 §3.1).
    #[default]
    Bytes,
    /// Acknowledgements of any size: a segment each in slow start, later a segment's share of the window. The one
    /// that ends fast recovery counts, too. The sender uses whole segments of the window (ns-2).
    Acknowledgements,
}

/// The sender that recovers losses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossRecovery {
    /// RFC 5681, 6582 or 6675, as [`LossRecoveryAlgorithm`] says.
    #[default]
    Rfc5681,
    /// ns-2's FullTcp, plain, Newreno or Sack, with [`CongestionControl::Reno`]. It replaces [`WindowGrowth`],
    /// [`LossHalves`], limited transmit and the definition of a duplicate.
    Ns2,
    /// ns-3's TcpSocketBase, with [`CongestionControl::Cubic`] and [`LossRecoveryAlgorithm::Sack`]. It works on segments
    /// as sent, with its own CUBIC, hybrid slow start and proportional rate reduction. It replaces [`WindowGrowth`],
    /// [`LossHalves`], limited transmit, restart after idle time and the definition of a duplicate.
    Ns3,
}

/// The unit of the congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WindowUnit {
    /// Octets: a window of one full segment permits many small ones (RFC 5681 §2).
    #[default]
    Bytes,
    /// Segments of any size (Linux). Segments neither SACKed nor lost are in flight. A loss reduces the window, not
    /// the data in flight; the window grows only while it is full. CUBIC's α is that of RFC 8312 §4.2. Requires SACK;
    /// has no effect on BBR.
    Segments,
}

/// The quantity that a loss halves for the slow-start threshold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LossHalves {
    /// Data in flight; the loss of a retransmission does not halve again (RFC 5681 §3.1).
    #[default]
    Flight,
    /// The window, limited by the peer's, in whole segments, at every timeout (ns-2).
    Window,
}

/// The timeout for which an acknowledgement of new data restarts the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum RtoRestart {
    /// The timeout after its measurement, if it gives one (RFC 6298 §5.3).
    #[default]
    NewTimeout,
    /// The timeout before it (ns-2's FullTcp).
    OldTimeout,
}

/// The idle time after which the congestion window falls to the initial one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdleRestart {
    /// A retransmission timeout; the window never grows thereby (RFC 5681 §4.1).
    #[default]
    Rto,
    /// The measured timeout, even below the minimum. The window becomes the initial one, even if that is larger
    /// (ns-2).
    MeasuredRto,
}

/// The segments that Nagle's algorithm permits while data is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum NagleVariant {
    /// Full segments only (RFC 896, RFC 9293 §3.7.4).
    #[default]
    Rfc896,
    /// Also data that fits into a segment sent anyway: with a due acknowledgement, or a retransmission, which is then
    /// timed as new (4.4BSD's `tcp_output`, and ns-2's FullTcp).
    Bsd,
    /// A small segment if no earlier small one is unacknowledged (Minshall's variant, as in Linux).
    Minshall,
}

/// Delayed acknowledgement (RFC 1122 §4.2.3.2, RFC 5681 §4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DelayedAck {
    /// Maximum wait for data to ride on (the standard's bound is 500 ms).
    pub timeout: Duration,
    /// Amount of data that ends the wait.
    pub every: AckThreshold,
}

impl Default for DelayedAck {
    /// Returns 200 ms and every second segment, as BSD.
    fn default() -> Self {
        // RFC 9293, 3.8.6.3 and RFC 5681, 4.2: below 500 ms.
        Self { timeout: Duration::from_millis(200), every: AckThreshold::Segments(2) }
    }
}

/// The rule for growth of the announced window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ReceiveWindowUpdateRule {
    /// By a segment or half the buffer at least (RFC 9293 §3.8.6.2.2).
    #[default]
    Rfc9293,
    /// At every segment, while a segment or a quarter of the buffer is free, as BSD. Data that fits the buffer is
    /// accepted beyond the reach of the window field.
    Bsd,
    /// As [`Self::Rfc9293`], but data up to twice the announced window is accepted. ns-2's receivers have no window,
    /// and its senders exceed theirs in a recovery with SACK.
    Ns2,
}

/// Differences between stacks. The defaults follow the RFCs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpStackVariants {
    /// Growth of the announced window.
    pub window_update: ReceiveWindowUpdateRule,
    /// Report duplicate data by a first SACK block (RFC 2883); off.
    pub duplicate_sack: bool,
    /// Accept a reset only with the exact expected number (RFC 5961 §3.2); on. Off: any number in the window (RFC
    /// 793).
    pub strict_rst: bool,
    /// A SYN on an open connection never resets it (RFC 5961 §4.2); on. Off: a SYN in the window resets it, and is
    /// answered by a reset (RFC 793).
    pub strict_syn: bool,
    /// A reset does not end TIME-WAIT (RFC 1337 §3, F1); off.
    pub time_wait_ignores_rst: bool,
    /// The acknowledgement of a FIN that crossed ours repeats our FIN, as in BSD; off.
    pub fin_again: bool,
    /// Send and accept options; on.
    pub options: bool,
    /// Added to every retransmission timeout but the initial one (BSD's `rexmit_slop`); zero.
    pub rto_slop: Duration,
}

impl Default for TcpStackVariants {
    fn default() -> Self {
        Self {
            window_update: ReceiveWindowUpdateRule::default(),
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

/// Settings of a connection; connections share them by [`Arc`](std::sync::Arc).
#[derive(Clone, PartialEq, Debug)]
pub struct TcpConfig {
    /// Maximum segment size: announced to the peer, and the limit of sent segments. 1460: Ethernet's 1500 less 40
    /// octets of IPv4 and TCP headers (RFC 9293 §3.7.1).
    pub mss: u16,
    /// Segment size of a peer that announces none: 536 (RFC 9293 §3.7.1); 1220 for IPv6.
    pub default_peer_mss: u16,
    /// Loss recovery; NewReno.
    pub recovery: LossRecoveryAlgorithm,
    /// The sender that recovers losses; the RFCs'.
    pub loss_recovery: LossRecovery,
    /// Congestion control; Reno.
    pub congestion: CongestionControl,
    /// Unit of the congestion window; octets.
    pub window_unit: WindowUnit,
    /// Unit of Reno's growth; octets.
    pub window_growth: WindowGrowth,
    /// The quantity that a loss halves; data in flight.
    pub loss_halves: LossHalves,
    /// Initial congestion window; RFC 3390.
    pub initial_window: InitialWindow,
    /// Initial slow-start threshold in octets; unlimited (RFC 5681 §3.1: "arbitrarily high").
    pub initial_ssthresh: u32,
    /// Duplicate acknowledgements that indicate a loss; 3 (RFC 5681 §3.2).
    pub dup_threshold: u8,
    /// Send new data on the first two duplicate acknowledgements; on (RFC 3042).
    pub limited_transmit: bool,
    /// Reset the congestion window to the initial one after an idle retransmission timeout; on (RFC 5681 §4.1).
    pub restart_after_idle: bool,
    /// The length of that idle time; a retransmission timeout.
    pub idle_restart: IdleRestart,
    /// After a lost SYN or SYN-ACK the window is one segment; on (RFC 5681 §3.1). With [`InitialWindow::Rfc6928`]
    /// only after more than one loss (RFC 6928 §2).
    pub syn_loss_shrinks: bool,
    /// Delay a small segment while data is unacknowledged; on (RFC 896, RFC 1122 §4.2.3.4).
    pub nagle: bool,
    /// Exceptions to that; none.
    pub nagle_variant: NagleVariant,
    /// Silly window avoidance; on (RFC 9293 §3.8.6.2, MUST-38 and MUST-39). Off: send all that a window permits, and
    /// announce each read by an acknowledgement, at once or delayed.
    pub silly_window_avoidance: bool,
    /// Deliver data to the application before segments that it permits are sent, so that delayed data leaves with the
    /// reply (ns-2). Off: send first, as a kernel.
    pub deliver_first: bool,
    /// Delayed acknowledgement; `None` for immediate ones.
    pub delayed_ack: Option<DelayedAck>,
    /// Timer of delayed acknowledgements; the timeout after the first segment.
    pub ack_timer: AckTimer,
    /// The delay follows the sender's rate, from the timeout up to this or to the round trip if that is less (Linux).
    /// `None`: always the timeout.
    pub delayed_ack_max: Option<Duration>,
    /// Acknowledge at once at the start of a connection and after duplicate data, until data flows in both directions
    /// (Linux's quick-ack mode); off.
    pub quick_ack: bool,
    /// Acknowledge when the application has read all data: after the second segment that ended a write, or after the
    /// first unless data flows in both directions (Linux's `tcp_cleanup_rbuf()`); off.
    pub ack_on_read: bool,
    /// Retransmission timeout before the first measurement; 1 s (RFC 6298 §2.1).
    pub initial_rto: Duration,
    /// Minimum retransmission timeout; 1 s (RFC 6298 §2.4). Linux uses 200 ms.
    pub min_rto: Duration,
    /// Maximum retransmission timeout, also of the interval between zero-window probes; 60 s (RFC 6298 §2.5).
    pub max_rto: Duration,
    /// The event that resets the back-off; a measurement.
    pub backoff_reset: BackoffReset,
    /// The timeout for which an acknowledgement restarts the timer; the new one.
    pub rto_restart: RtoRestart,
    /// With SACK, an acknowledgement with new SACK blocks counts as a duplicate even if it acknowledges new data or
    /// carries data; on (RFC 6675 §2). Off: only without either.
    pub advancing_duplicates: bool,
    /// With SACK, RACK: a segment is lost if a later one is acknowledged and a reordering window has passed (RFC 8985
    /// §6); off. It replaces the duplicate threshold.
    pub rack: bool,
    /// With SACK, send a probe before the retransmission timer expires: the next segment, or the last one again (RFC
    /// 8985 §7); off. With a single segment in flight it waits [`min_rto`](Self::min_rto) longer, for a delayed
    /// acknowledgement.
    pub tail_loss_probe: bool,
    /// With RACK, fill a retransmission up to a full segment with the following data that is not SACKed, lost or not
    /// (Linux's `tcp_retrans_try_collapse()`); off.
    pub retransmit_collapse: bool,
    /// With [`WindowUnit::Segments`], reduce the window in proportion to deliveries during recovery (RFC 6937), not
    /// at once; off.
    pub rate_reduction: bool,
    /// A fast retransmission of the first unacknowledged segment restarts the timer; with RACK, also when it is lost
    /// again. Off (RFC 6298 §5 does not).
    pub fast_retransmit_restarts: bool,
    /// Measure round trips in ticks of a free-running clock, at least one; zero for exact times. BSD's and ns-2's
    /// `tcpTick_`. A multiple of 8 ns.
    pub rtt_tick: Duration,
    /// Tick of a timer wheel: no timer expires early, each up to an eighth of its wait late (Linux's
    /// kernel/time/timer.c; 4 ms with CONFIG_HZ=250). Zero for exact timers.
    pub timer_tick: Duration,
    /// With [`LossRecoveryAlgorithm::Reno`], duplicate acknowledgements of data that a timeout retransmitted start no
    /// fast retransmission; off. NewReno (RFC 6582 §3.2 step 2) and SACK (RFC 6675 §5.1) never start one.
    pub reno_recover: bool,
    /// Clock granularity G in RTO = SRTT + max(G, 4·RTTVAR); 1 ms (RFC 6298 §2).
    pub granularity: Duration,
    /// Timeout after a handshake that lost its SYN and measured nothing, if the initial one is less; 3 s (RFC 6298
    /// §5.7).
    pub rto_after_syn_loss: Duration,
    /// Maximum retransmissions of a segment before the connection fails; `None` for no limit. 15, as Linux; RFC 9293
    /// §3.8.3 requires at least 100 s.
    pub max_retransmissions: Option<u32>,
    /// The same for SYN and SYN-ACK; 7, which last 183 s with timeouts of 1 s to 60 s (RFC 9293 §3.8.3 requires at
    /// least 3 minutes).
    pub max_syn_retransmissions: Option<u32>,
    /// Receive buffer in octets, which the window announces; 65535. Larger ones need `window_scale`.
    pub receive_buffer: u32,
    /// Maximum of a buffer that grows with the data read per round trip (Linux's `tcp_rcv_space_adjust()`); `None`
    /// for a fixed buffer.
    pub receive_buffer_max: Option<u32>,
    /// Offer window scaling with this shift, at most 14; off (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// Offer timestamps; off (RFC 7323 §3). Their clock ticks once a millisecond.
    pub timestamps: bool,
    /// The echoed timestamp; RFC 7323's.
    pub timestamp_echo: TimestampEcho,
    /// Time in TIME-WAIT, twice the maximum segment lifetime. 1 s, far below RFC 9293's 4 minutes, since simulated
    /// addresses are not reused.
    pub time_wait: Duration,
    /// Minimum interval between challenge acknowledgements; 500 ms (RFC 5961 §7 suggests ten in five seconds).
    pub challenge_ack_interval: Duration,
    /// Differences between stacks; as in the RFCs.
    pub variants: TcpStackVariants,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            mss: 1460,
            default_peer_mss: 536,
            recovery: LossRecoveryAlgorithm::default(),
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
            variants: TcpStackVariants::default(),
        }
    }
}

impl TcpConfig {
    /// True if the initial sequence number affects behaviour: the start of the ticks of [`Self::rtt_tick`], or the
    /// first phase of BBR's bandwidth probing.
    pub fn depends_on_initial_sequence(&self) -> bool {
        !self.rtt_tick.is_zero() || self.congestion == CongestionControl::Bbr
    }
}
