//! Settings of the transport protocols: `[transport]`.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{BitRate, Bound, ByteSize, InitialWindow, PositiveCount, Switch, TimeSpan};

/// Settings of the transport protocols, the same on all hosts.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSettings {
    /// Nagle's algorithm of both TCP and SCTP; without it, each uses its own setting.
    pub nagle: Option<bool>,
    /// TCP (RFC 9293).
    pub tcp: TcpSettings,
    /// SCTP (RFC 9260).
    pub sctp: SctpSettings,
}

/// TCP (RFC 9293). The defaults are those of the current RFCs.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSettings {
    /// The source of settings that the study omits: the RFCs, ns-2's FullTcp, ns-3 or Linux.
    pub preset: TcpPreset,
    /// Nagle's algorithm: small segments wait while data is unacknowledged (RFC 9293, 3.7.4).
    pub nagle: bool,
    /// The segments that Nagle's algorithm does not hold back.
    pub nagle_variant: NagleVariant,
    /// Silly-window avoidance on both sides (RFC 9293, 3.8.6.2). Without it, the sender uses any window, and the
    /// receiver announces any freed buffer, at once or with the delayed acknowledgement.
    pub silly_window_avoidance: bool,
    /// TCP delivers data to the application before it sends the segments that the same arrival permits, as in ns-2;
    /// otherwise after, as from a kernel.
    pub deliver_first: bool,
    /// How long an acknowledgement may wait for data that carries it; `"off"`: it leaves at once.
    pub delayed_ack: Switch<TimeSpan>,
    /// With delayed acknowledgements, the number of segments after which TCP acknowledges at once.
    pub delayed_ack_segments: PositiveCount,
    /// The segments that count for it.
    pub delayed_ack_counts: DelayedAckCounting,
    /// The timer of a delayed acknowledgement.
    pub delayed_ack_timer: AckTimer,
    /// The delay follows the sender's pace: from `delayed_ack` up to this, or up to the round-trip time if that is
    /// less, as in Linux. `"off"`: always `delayed_ack`.
    pub delayed_ack_max: Switch<TimeSpan>,
    /// With delayed acknowledgements, the first leave at once, and some after silence or duplicate data, until data
    /// flows in both directions (Linux's quick-ack mode). Each time they are half as many as the window has segments,
    /// 2 to 16.
    pub quick_ack: bool,
    /// With delayed acknowledgements, a read of all received data triggers an acknowledgement, as in Linux: after a
    /// second segment that ended a write, or after the first unless data flows in both directions.
    pub ack_on_read: bool,
    /// Loss recovery: detection and repair of losses.
    pub congestion: CongestionRecovery,
    /// The implementation of loss recovery, with `control = "reno"`.
    pub loss_recovery: TcpLossRecovery,
    /// Congestion control: growth of the window, and its reduction after a loss.
    pub control: TcpCongestionControl,
    /// The unit of the congestion window.
    pub window_unit: WindowUnit,
    /// The basis of the growth of Reno's congestion window.
    pub window_growth: WindowGrowth,
    /// The quantity that a loss halves.
    pub loss_halves: LossHalves,
    /// Retransmission timeout before the first measurement (RFC 6298).
    pub rto_initial: TimeSpan,
    /// Smallest retransmission timeout.
    pub rto_min: TimeSpan,
    /// The quantity that `rto_min` bounds.
    pub rto_min_bounds: RtoMinBounds,
    /// Largest retransmission timeout.
    pub rto_max: TimeSpan,
    /// The event that ends the doubling of the retransmission timeout.
    pub backoff_reset: BackoffReset,
    /// The timeout with which an acknowledgement of new data restarts the retransmission timer.
    pub rto_restart: RtoRestart,
    /// With `congestion = "sack"`, an acknowledgement with new SACK information counts as a duplicate even if it
    /// acknowledges new data or carries data. Otherwise it must do neither.
    pub advancing_duplicates: bool,
    /// With `congestion = "sack"`, the receiver reports duplicate data (RFC 2883).
    pub duplicate_sack: bool,
    /// With `congestion = "sack"`, the sender detects losses by time instead of the number of duplicates (RACK: RFC
    /// 8985, 6).
    pub rack: bool,
    /// With `congestion = "sack"`, the sender sends a probe before the retransmission timer expires (RFC 8985, 7).
    pub tail_loss_probe: bool,
    /// With `rack`, a retransmission is filled up to a full segment with the unreported data that follows, as in Linux.
    pub retransmit_collapse: bool,
    /// With `window_unit = "segments"`, the window falls in proportion to delivered data during loss recovery (RFC
    /// 6937).
    pub rate_reduction: bool,
    /// A fast retransmission also restarts the timer, as in Linux.
    pub fast_retransmit_restarts: bool,
    /// The clock tick of round-trip measurements, which are at least one tick; 0 s measures exactly.
    pub rtt_tick: TimeSpan,
    /// The tick of the timer wheel, by which timers expire late, as in Linux; with 0 s they expire in time.
    pub timer_tick: TimeSpan,
    /// With `congestion = "reno"`, duplicate acknowledgements of data that a timeout retransmitted start no fast
    /// retransmission. The other algorithms always behave so (RFC 6582, 6675).
    pub reno_recover: bool,
    /// Retransmissions of one segment before the connection is given up.
    pub retransmissions: Bound<u32>,
    /// Retransmissions of a SYN before the attempt is given up.
    pub syn_retransmissions: Bound<u32>,
    /// Maximum segment size; without it, the first link's MTU less the headers.
    pub mss: Option<ByteSize>,
    /// The congestion window at the start.
    pub initial_window: InitialWindow,
    /// The idle time after which the window is the initial one again.
    pub idle_restart: IdleRestart,
    /// After a lost SYN or SYN-ACK, the initial window is one segment (RFC 5681, 3.1).
    pub syn_loss_shrinks: bool,
    /// A new segment for each of the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// The timestamps option (RFC 7323).
    pub timestamps: bool,
    /// The timestamp of the peer that TCP echoes.
    pub timestamp_echo: TimestampEcho,
    /// The window scale option (RFC 7323).
    pub window_scale: bool,
    /// Receive buffer; without the window scale option, TCP offers at most 65535 B.
    pub receive_buffer: ByteSize,
    /// The limit of the receive buffer, which grows with the data that applications read in a round trip, as in Linux;
    /// `"off"`: it does not grow.
    pub receive_buffer_max: Switch<ByteSize>,
    /// The rate at which applications read received data.
    pub read_rate: Bound<BitRate>,
    /// The largest size of one such read; without it, a segment.
    pub read_size: Option<ByteSize>,
    /// The time from the loss of a persistent connection to the opening of the next.
    pub reconnect: TimeSpan,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            preset: TcpPreset::default(),
            nagle: true,
            nagle_variant: NagleVariant::default(),
            silly_window_avoidance: true,
            deliver_first: false,
            delayed_ack: Switch::On(TimeSpan::from_millis(200)),
            delayed_ack_segments: PositiveCount::from_u32(2),
            delayed_ack_counts: DelayedAckCounting::default(),
            delayed_ack_timer: AckTimer::default(),
            delayed_ack_max: Switch::Off,
            quick_ack: false,
            ack_on_read: false,
            congestion: CongestionRecovery::default(),
            loss_recovery: TcpLossRecovery::default(),
            control: TcpCongestionControl::default(),
            window_unit: WindowUnit::default(),
            window_growth: WindowGrowth::default(),
            loss_halves: LossHalves::default(),
            rto_initial: TimeSpan::from_secs(1),
            rto_min: TimeSpan::from_secs(1),
            rto_min_bounds: RtoMinBounds::default(),
            rto_max: TimeSpan::from_secs(60),
            backoff_reset: BackoffReset::default(),
            rto_restart: RtoRestart::default(),
            advancing_duplicates: true,
            duplicate_sack: false,
            rack: false,
            tail_loss_probe: false,
            retransmit_collapse: false,
            rate_reduction: false,
            fast_retransmit_restarts: false,
            rtt_tick: TimeSpan::from_secs(0),
            timer_tick: TimeSpan::from_secs(0),
            reno_recover: false,
            retransmissions: Bound::Limited(15),
            syn_retransmissions: Bound::Limited(7),
            mss: None,
            initial_window: InitialWindow::Rfc6928,
            idle_restart: IdleRestart::default(),
            syn_loss_shrinks: true,
            limited_transmit: true,
            timestamps: false,
            timestamp_echo: TimestampEcho::default(),
            window_scale: false,
            receive_buffer: ByteSize::from_bytes(65_535),
            receive_buffer_max: Switch::Off,
            read_rate: Bound::Unlimited,
            read_size: None,
            reconnect: TimeSpan::from_secs(1),
        }
    }
}

/// The source of TCP settings that a study omits. A setting in the study overrides the preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum TcpPreset {
    /// The RFCs.
    #[default]
    #[serde(rename = "rfc")]
    Rfc,
    /// ns-2.35: Agent/TCP/FullTcp.
    #[serde(rename = "ns-2")]
    Ns2,
    /// ns-3.37: TcpSocketBase with TcpCubic and TcpPrrRecovery.
    #[serde(rename = "ns-3")]
    Ns3,
    /// Linux, as far as these settings can express it.
    #[serde(rename = "linux")]
    Linux,
}

/// The source of SCTP settings that a study omits. A setting in the study overrides the preset. ns-3 has no SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum SctpPreset {
    /// The RFCs.
    #[default]
    #[serde(rename = "rfc")]
    Rfc,
    /// ns-2.35: Agent/SCTP.
    #[serde(rename = "ns-2")]
    Ns2,
    /// Linux, as far as these settings can express it.
    #[serde(rename = "linux")]
    Linux,
}

/// The segments that Nagle's algorithm sends although data is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NagleVariant {
    /// Full segments only (RFC 896).
    #[default]
    Rfc896,
    /// Data that fits into a segment that leaves anyway: a due acknowledgement or a retransmission.
    Bsd,
    /// A small segment if no earlier small segment is unacknowledged, as in Linux.
    Minshall,
}

/// The segments that count towards an immediate acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DelayedAckCounting {
    /// Full segments, by bytes: that number times the maximum segment size (RFC 5681, 4.2).
    #[default]
    FullSegments,
    /// Segments of any size.
    Segments,
    /// Bytes: more than that number less one of the largest segments so far, each at least 536 B, as in Linux.
    LargestSegment,
}

/// The quantity that the smallest retransmission timeout bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RtoMinBounds {
    /// The whole timeout (RFC 6298, 2.4).
    #[default]
    Timeout,
    /// The variation of the round trips, before the smoothed round trip is added, as in Linux.
    Variance,
}

/// The timer of a delayed acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AckTimer {
    /// It runs from the first segment that the acknowledgement covers (RFC 5681, 4.2).
    #[default]
    FromArrival,
    /// It expires at the next tick of a clock that ticks at every multiple of the delay, as in BSD and ns-2.
    Tick,
}

/// The timestamp of the peer that TCP echoes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimestampEcho {
    /// The timestamp of the segment that begins where the last acknowledgement ended (RFC 7323, 4.3).
    #[default]
    Rfc7323,
    /// The same, but only acknowledgements without data count as the last one, as in ns-3. While data carries all of
    /// them, the echo stays, and measured round trips are too long.
    PureAcknowledgements,
}

/// The event that ends the doubling of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackoffReset {
    /// A new measurement of the round trip (RFC 6298, 5).
    #[default]
    Measurement,
    /// Any acknowledgement of new data, as in ns-2's FullTcp.
    Acknowledgement,
    /// Any acknowledgement of new data, and any sent acknowledgement without data, as in ns-3.
    EitherAcknowledgement,
}

/// The unit of the congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowUnit {
    /// Bytes (RFC 5681, 2).
    #[default]
    Bytes,
    /// Segments of any size. The window grows only while it is full, as in Linux. Needs `congestion = "sack"`; not for
    /// BBR.
    Segments,
}

/// The basis of the growth of Reno's congestion window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowGrowth {
    /// Acknowledged bytes (RFC 5681, 3.1).
    #[default]
    Bytes,
    /// Acknowledgements, whatever they cover; the sender uses whole segments of the window, as in ns-2.
    Acknowledgements,
}

/// The quantity that a loss halves to set the slow-start threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossHalves {
    /// The data in flight, once for a segment that is lost repeatedly (RFC 5681, 3.1).
    #[default]
    Flight,
    /// The window, in whole segments, at every timeout, as in ns-2.
    Window,
}

/// The timeout with which an acknowledgement of new data restarts the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RtoRestart {
    /// The timeout computed from that acknowledgement (RFC 6298, 5.3).
    #[default]
    NewTimeout,
    /// The timeout from before that acknowledgement, as in ns-2's FullTcp.
    OldTimeout,
}

/// The idle time after which the congestion window is the initial one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleRestart {
    /// A retransmission timeout (RFC 5681, 4.1).
    #[default]
    Rto,
    /// The timeout computed from round trips without its bounds, as in ns-2.
    MeasuredRto,
    /// None: the window stays, as in ns-3.
    Never,
}

/// TCP's loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CongestionRecovery {
    /// Fast retransmit and fast recovery (RFC 5681).
    Reno,
    /// With partial acknowledgements (RFC 6582).
    #[default]
    NewReno,
    /// With selective acknowledgements (RFC 2018, 6675).
    Sack,
}

/// TCP's congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TcpCongestionControl {
    /// One more segment each round trip, half the window after a loss (RFC 5681).
    #[default]
    Reno,
    /// A cubic function of the time since the last loss, which leaves 0.7 of the window (RFC 9438).
    Cubic,
    /// Window and pace follow the measured bandwidth and round trip, regardless of loss (BBR, version 1).
    Bbr,
}

/// The implementation of TCP's loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum TcpLossRecovery {
    /// By RFC 5681, 6582 or 6675.
    #[default]
    #[serde(rename = "rfc5681")]
    Rfc5681,
    /// ns-2's FullTcp: plain, Newreno or Sack. It has its own rules for window growth, reduction after a loss,
    /// duplicate acknowledgements and limited transmit.
    #[serde(rename = "ns-2")]
    Ns2,
    /// ns-3's TcpSocketBase, with `congestion = "sack"` and `control = "cubic"`. It works by segments as sent, with its
    /// own CUBIC, hybrid slow start and proportional rate reduction.
    #[serde(rename = "ns-3")]
    Ns3,
}

/// SCTP's detection and repair of losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum LossRecovery {
    /// By RFC 9260, 6.3.3, 7.2.3 and 7.2.4.
    #[default]
    #[serde(rename = "rfc9260")]
    Rfc9260,
    /// ns-2's Agent/SCTP.
    #[serde(rename = "ns-2")]
    Ns2,
}

/// SCTP (RFC 9260). The defaults are those of its section 16.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SctpSettings {
    /// The source of settings that the study omits: RFC 9260, ns-2's Agent/SCTP or Linux. ns-3 has no SCTP.
    pub preset: SctpPreset,
    /// Nagle's algorithm: a packet that is not full waits while data is unacknowledged. RFC 3539 wants it off; many
    /// stacks have it on by default.
    pub nagle: bool,
    /// How long an acknowledgement may wait; `"off"`: it leaves at once.
    pub sack_delay: Switch<TimeSpan>,
    /// With delayed acknowledgements, the number of packets after which SCTP acknowledges at once.
    pub sack_frequency: PositiveCount,
    /// SCTP acknowledges the first data of an association at once (RFC 9260, 5.1).
    pub first_sack_at_once: bool,
    /// A chunk sent before a retransmission, and behind it in order, also measures the round trip.
    pub measure_behind_retransmission: bool,
    /// After a timeout, one packet is in flight until data is acknowledged. Otherwise one packet of lost data leaves at
    /// once, and the next SACK or message sends what the window permits.
    pub one_packet_after_timeout: bool,
    /// The window grows only if the cumulative TSN advances, and data presumed lost then counts as in flight.
    pub cumulative_growth: bool,
    /// SCTP acknowledges a chunk that fills the last gap at once; otherwise its acknowledgement waits like any other.
    pub filled_gap_at_once: bool,
    /// An immediate acknowledgement of a duplicate restarts the delay; otherwise the packet count and the timer stay.
    pub duplicate_resets_delay: bool,
    /// Headers and padding of DATA chunks count in flight and against the congestion window; otherwise only user data
    /// counts.
    pub headers_in_window: bool,
    /// SCTP delivers data to the application before it sends anything, so that a SACK announces the freed buffer.
    pub deliver_first: bool,
    /// Detection and repair of losses.
    pub loss_recovery: LossRecovery,
    /// Outgoing data carries the acknowledgement; otherwise it leaves alone, when it is due.
    pub bundle_sacks: bool,
    /// Retransmission timeout before the first measurement.
    pub rto_initial: TimeSpan,
    /// Smallest retransmission timeout.
    pub rto_min: TimeSpan,
    /// Largest retransmission timeout.
    pub rto_max: TimeSpan,
    /// Retransmissions in a row before the association is given up (Association.Max.Retrans).
    pub retransmissions: Bound<u32>,
    /// Retransmissions in a row to one path before it counts as failed (Path.Max.Retrans).
    pub path_retransmissions: u32,
    /// Retransmissions of an INIT or COOKIE ECHO before the attempt is given up.
    pub init_retransmissions: Bound<u32>,
    /// The congestion window at the start, in packets; without it, `initial_window_bytes`.
    pub initial_window: Option<PositiveCount>,
    /// The congestion window at the start, but at least two packets and at most four (RFC 9260, 7.2.1).
    pub initial_window_bytes: ByteSize,
    /// Outbound streams of the side that accepts an association; without it, as many as the peer requests.
    pub accepted_streams: Option<PositiveCount>,
    /// The largest number of packets sent at one event (Max.Burst).
    pub max_burst: Bound<u32>,
    /// The interval of probes on an idle path (HEARTBEAT).
    pub heartbeat: Switch<TimeSpan>,
    /// The largest SCTP packet, its header included; without it, the largest that the links' smallest MTU permits.
    pub packet: Option<ByteSize>,
    /// Receive buffer.
    pub receive_buffer: ByteSize,
    /// The time from the loss of a persistent association to the opening of the next.
    pub reconnect: TimeSpan,
}

impl Default for SctpSettings {
    fn default() -> Self {
        Self {
            preset: SctpPreset::default(),
            nagle: false,
            sack_delay: Switch::On(TimeSpan::from_millis(200)),
            sack_frequency: PositiveCount::from_u32(2),
            first_sack_at_once: true,
            measure_behind_retransmission: false,
            one_packet_after_timeout: true,
            cumulative_growth: false,
            filled_gap_at_once: true,
            duplicate_resets_delay: true,
            headers_in_window: true,
            deliver_first: false,
            loss_recovery: LossRecovery::default(),
            bundle_sacks: true,
            rto_initial: TimeSpan::from_secs(1),
            rto_min: TimeSpan::from_secs(1),
            rto_max: TimeSpan::from_secs(60),
            retransmissions: Bound::Limited(10),
            path_retransmissions: 5,
            init_retransmissions: Bound::Limited(8),
            initial_window: None,
            initial_window_bytes: ByteSize::from_bytes(4404),
            accepted_streams: None,
            max_burst: Bound::Limited(4),
            heartbeat: Switch::On(TimeSpan::from_secs(30)),
            packet: None,
            receive_buffer: ByteSize::from_bytes(65_536),
            reconnect: TimeSpan::from_secs(1),
        }
    }
}
