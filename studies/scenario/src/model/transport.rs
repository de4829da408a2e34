//! Settings of the transport protocols: `[transport]`.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{BitRate, Bound, ByteSize, InitialWindow, PositiveCount, Switch, TimeSpan};

/// Settings of the transport protocols, the same on all hosts.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransportSettings {
    /// Nagle's algorithm of TCP and SCTP alike; without it, each has its own.
    pub nagle: Option<bool>,
    /// TCP (RFC 9293).
    pub tcp: TcpSettings,
    /// SCTP (RFC 9260).
    pub sctp: SctpSettings,
}

/// TCP (RFC 9293). The defaults are today's RFCs'.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSettings {
    /// What the settings are that are not given: those of the RFCs, of ns-2's FullTcp, of ns-3, or of Linux.
    pub preset: TcpPreset,
    /// Nagle's algorithm: small segments wait while data is unacknowledged (RFC 9293, 3.7.4).
    pub nagle: bool,
    /// What Nagle's algorithm lets go all the same.
    pub nagle_variant: NagleVariant,
    /// Silly-window avoidance on both sides (RFC 9293, 3.8.6.2). Off, any window is used, and whatever is read is told, at
    /// once or with the delayed acknowledgement.
    pub silly_window_avoidance: bool,
    /// The application hears of data before what it lets go leaves, as in ns-2; else after, as from a kernel.
    pub deliver_first: bool,
    /// How long an acknowledgement may wait for data to ride on; `"off"` acknowledges at once.
    pub delayed_ack: Switch<TimeSpan>,
    /// With delayed acknowledgements, every so many segments are acknowledged at once.
    pub delayed_ack_segments: PositiveCount,
    /// Which segments these are.
    pub delayed_ack_counts: AckCounts,
    /// From when on a delayed acknowledgement waits.
    pub delayed_ack_timer: AckTimer,
    /// The delay follows the sender's pace, from `delayed_ack` up to this, or to the round trip where that is less, as Linux has
    /// it; `"off"` is always `delayed_ack`.
    pub delayed_ack_max: Switch<TimeSpan>,
    /// With delayed acknowledgements, the first sixteen leave at once, and as many after data that came twice, until data
    /// goes both ways (Linux's quick-ack mode).
    pub quick_ack: bool,
    /// With delayed acknowledgements, an application that has read all that came has it acknowledged: after a second segment
    /// that ended a write, or after the first unless data goes both ways, as Linux has it.
    pub ack_on_read: bool,
    /// Loss recovery: how losses are found and repaired.
    pub congestion: CongestionRecovery,
    /// Whose sender repairs losses, with `control = "reno"`.
    pub loss_recovery: TcpLossRecovery,
    /// Congestion control: how the window grows, and how far a loss reduces it.
    pub control: TcpControl,
    /// What the congestion window counts.
    pub window_unit: WindowUnit,
    /// What makes Reno's congestion window grow.
    pub window_growth: WindowGrowth,
    /// What a loss leaves half of.
    pub loss_halves: LossHalves,
    /// Retransmission timeout before the first measurement (RFC 6298).
    pub rto_initial: TimeSpan,
    /// Smallest retransmission timeout.
    pub rto_min: TimeSpan,
    /// What it is a bound of.
    pub rto_min_bounds: RtoMinBounds,
    /// Largest retransmission timeout.
    pub rto_max: TimeSpan,
    /// What ends the doubling of the retransmission timeout.
    pub backoff_reset: BackoffReset,
    /// What timeout an acknowledgement of new data restarts the retransmission timer for.
    pub rto_restart: RtoRestart,
    /// With `congestion = "sack"`, an acknowledgement that reports more counts as a duplicate although it acknowledges new data
    /// or carries some, too; else only one that does neither.
    pub advancing_duplicates: bool,
    /// With `congestion = "sack"`, data that came twice is reported (RFC 2883).
    pub duplicate_sack: bool,
    /// With `congestion = "sack"`, losses are found by time and not by the number of duplicates (RACK: RFC 8985, 6).
    pub rack: bool,
    /// With `congestion = "sack"`, a probe leaves before the retransmission timer expires (RFC 8985, 7).
    pub tail_loss_probe: bool,
    /// With `rack`, what is sent again is filled up to a segment with what follows it and was not reported, as Linux has it.
    pub retransmit_collapse: bool,
    /// With `window_unit = "segments"`, the window falls in proportion to what arrives while a loss is repaired (RFC 6937).
    pub rate_reduction: bool,
    /// A fast retransmission restarts the timer, too, as Linux has it.
    pub fast_retransmit_restarts: bool,
    /// Round trips are counted in ticks of so long a clock, and at least one; 0 s measures them exactly.
    pub rtt_tick: TimeSpan,
    /// Timers expire late as those of a wheel with so long ticks, as Linux has them; with 0 s in time.
    pub timer_tick: TimeSpan,
    /// With `congestion = "reno"`, too, duplicate acknowledgements of what a timeout sent again begin no fast
    /// retransmission; the others never let them (RFC 6582, 6675).
    pub reno_recover: bool,
    /// Retransmissions of one segment before the connection is given up.
    pub retransmissions: Bound<u32>,
    /// Retransmissions of a SYN before the attempt is given up.
    pub syn_retransmissions: Bound<u32>,
    /// Maximum segment size; without it, what the first link's MTU leaves after the headers.
    pub mss: Option<ByteSize>,
    /// The congestion window at the start.
    pub initial_window: InitialWindow,
    /// After how much silence it is taken again.
    pub idle_restart: IdleRestart,
    /// After a lost SYN or SYN-ACK the window at the start is one segment (RFC 5681, 3.1).
    pub syn_loss_shrinks: bool,
    /// A new segment for each of the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// The timestamps option (RFC 7323).
    pub timestamps: bool,
    /// Which of the other side's timestamps is echoed.
    pub timestamp_echo: TimestampEcho,
    /// The window scale option (RFC 7323).
    pub window_scale: bool,
    /// Receive buffer; without the window scale option at most 65535 B are offered.
    pub receive_buffer: ByteSize,
    /// How large it becomes, where it grows with what applications read in a round trip, as Linux has it; `"off"` leaves it as it is.
    pub receive_buffer_max: Switch<ByteSize>,
    /// How fast applications read what has arrived.
    pub read_rate: Bound<BitRate>,
    /// How much of it they then read at a time, at most; without it, a segment.
    pub read_size: Option<ByteSize>,
    /// How long after the loss of a persistent connection another is opened.
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
            delayed_ack_counts: AckCounts::default(),
            delayed_ack_timer: AckTimer::default(),
            delayed_ack_max: Switch::Off,
            quick_ack: false,
            ack_on_read: false,
            congestion: CongestionRecovery::default(),
            loss_recovery: TcpLossRecovery::default(),
            control: TcpControl::default(),
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

/// Whose settings of TCP those are that a study does not give. A setting that it gives is its own, whatever the preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum TcpPreset {
    /// The RFCs'.
    #[default]
    #[serde(rename = "rfc")]
    Rfc,
    /// Of ns-2.35: Agent/TCP/FullTcp.
    #[serde(rename = "ns-2")]
    Ns2,
    /// Of ns-3.37: TcpSocketBase with TcpCubic and TcpPrrRecovery.
    #[serde(rename = "ns-3")]
    Ns3,
    /// Of Linux, as far as settings have it.
    #[serde(rename = "linux")]
    Linux,
}

/// Whose settings of SCTP those are that a study does not give. A setting that it gives is its own, whatever the preset. ns-3 has
/// no SCTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum SctpPreset {
    /// The RFCs'.
    #[default]
    #[serde(rename = "rfc")]
    Rfc,
    /// Of ns-2.35: Agent/SCTP.
    #[serde(rename = "ns-2")]
    Ns2,
    /// Of Linux, as far as settings have it.
    #[serde(rename = "linux")]
    Linux,
}

/// What Nagle's algorithm lets go although data is unacknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NagleVariant {
    /// Full segments only (RFC 896).
    #[default]
    Rfc896,
    /// What fits into a segment that leaves anyway: with a due acknowledgement, or one that is sent again.
    Bsd,
    /// A small segment where no earlier small one is unacknowledged, as Linux has it.
    Minshall,
}

/// Which segments count for an acknowledgement that does not wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AckCounts {
    /// Full ones, by bytes: so many times the maximum segment size (RFC 5681, 4.2).
    #[default]
    FullSegments,
    /// Segments of any size.
    Segments,
    /// More bytes than so many segments less one have, of the largest that came so far and at least 536 B, as Linux has it.
    LargestSegment,
}

/// What the smallest retransmission timeout bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RtoMinBounds {
    /// The whole timeout (RFC 6298, 2.4).
    #[default]
    Timeout,
    /// The part of the round trips' variation, to which the smoothed round trip is added, as Linux has it.
    Variance,
}

/// From when on a delayed acknowledgement waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AckTimer {
    /// From the first segment that it acknowledges (RFC 5681, 4.2).
    #[default]
    FromArrival,
    /// For the next tick of a clock that ticks at every multiple of the delay, as BSD's and ns-2's.
    Tick,
}

/// Which of the other side's timestamps is echoed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TimestampEcho {
    /// That of the segment which begins where the last acknowledgement ended (RFC 7323, 4.3).
    #[default]
    Rfc7323,
    /// The same, where only acknowledgements without data count as the last one, as in ns-3: while all of them ride on data the echo
    /// stays as it was, and round trips are measured too long.
    PureAcknowledgements,
}

/// What ends the doubling of the retransmission timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackoffReset {
    /// A new measurement of the round trip (RFC 6298, 5).
    #[default]
    Measurement,
    /// Any acknowledgement of new data, as in ns-2's FullTcp.
    Acknowledgement,
    /// Any acknowledgement of new data, and any that leaves without data, as in ns-3.
    EitherAcknowledgement,
}

/// What the congestion window counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowUnit {
    /// Bytes (RFC 5681, 2).
    #[default]
    Bytes,
    /// Segments, however small each is, and the window grows only while it is full, as Linux has it: with `congestion = "sack"`,
    /// and not for BBR.
    Segments,
}

/// What makes Reno's congestion window grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowGrowth {
    /// The bytes that are acknowledged (RFC 5681, 3.1).
    #[default]
    Bytes,
    /// Acknowledgements, whatever they acknowledge; what is sent are whole segments of the window, as in ns-2.
    Acknowledgements,
}

/// What a loss leaves half of as the slow-start threshold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossHalves {
    /// What is in flight, once for a segment that is lost again and again (RFC 5681, 3.1).
    #[default]
    Flight,
    /// The window, in whole segments, at every timeout, as in ns-2.
    Window,
}

/// What timeout an acknowledgement of new data restarts the retransmission timer for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RtoRestart {
    /// That which follows from it (RFC 6298, 5.3).
    #[default]
    NewTimeout,
    /// That which held before it came, as in ns-2's FullTcp.
    OldTimeout,
}

/// After how much silence the congestion window is the initial one again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IdleRestart {
    /// A retransmission timeout (RFC 5681, 4.1).
    #[default]
    Rto,
    /// What the round trips give as a timeout without its bounds, as in ns-2.
    MeasuredRto,
    /// After none, as in ns-3.
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
pub enum TcpControl {
    /// A segment more each round trip, half the window after a loss (RFC 5681).
    #[default]
    Reno,
    /// A cubic function of the time since the last loss, after which 0.7 is kept (RFC 9438).
    Cubic,
    /// Window and pace follow the measured bandwidth and round trip, whatever is lost (BBR, version 1).
    Bbr,
}

/// Whose sender repairs TCP's losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum TcpLossRecovery {
    /// By RFC 5681, 6582 or 6675.
    #[default]
    #[serde(rename = "rfc5681")]
    Rfc5681,
    /// As ns-2's FullTcp does it, plain, Newreno or Sack. It has rules of its own for the window's growth, for what a loss leaves of it,
    /// for duplicate acknowledgements and for limited transmit.
    #[serde(rename = "ns-2")]
    Ns2,
    /// As ns-3's TcpSocketBase does it, with `congestion = "sack"` and `control = "cubic"`: by segments as they left, with its own CUBIC,
    /// hybrid slow start and proportional rate reduction.
    #[serde(rename = "ns-3")]
    Ns3,
}

/// How SCTP finds and repairs losses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum LossRecovery {
    /// By RFC 9260, 6.3.3, 7.2.3 and 7.2.4.
    #[default]
    #[serde(rename = "rfc9260")]
    Rfc9260,
    /// As ns-2's Agent/SCTP does it.
    #[serde(rename = "ns-2")]
    Ns2,
}

/// SCTP (RFC 9260). The defaults are its section 16's.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SctpSettings {
    /// What the settings are that are not given: those of RFC 9260, of ns-2's Agent/SCTP, or of Linux. ns-3 has no SCTP.
    pub preset: SctpPreset,
    /// A sender's delay as Nagle's algorithm has it: a packet that is not full waits while data is
    /// unacknowledged. RFC 3539 wants none; many stacks have one unless told otherwise.
    pub nagle: bool,
    /// How long an acknowledgement may wait; `"off"` acknowledges at once.
    pub sack_delay: Switch<TimeSpan>,
    /// With delayed acknowledgements, every so many packets are acknowledged at once.
    pub sack_frequency: PositiveCount,
    /// The first data of an association is acknowledged at once (RFC 9260, 5.1).
    pub first_sack_at_once: bool,
    /// What was sent before a retransmission and comes behind it measures round trips, too.
    pub measure_behind_retransmission: bool,
    /// After a timeout one packet is in flight until data is acknowledged; else one packet of what is lost leaves, and
    /// at the next SACK or message what the window takes.
    pub one_packet_after_timeout: bool,
    /// The window grows only where the cumulative TSN advances, and what is held for lost then counts as in flight.
    pub cumulative_growth: bool,
    /// What fills the last gap is acknowledged at once; else it waits like any other.
    pub filled_gap_at_once: bool,
    /// An acknowledgement that goes at once for a duplicate begins the delay anew; else it leaves the count of packets and
    /// the timer alone.
    pub duplicate_resets_delay: bool,
    /// Headers and padding of DATA chunks count in flight and against the congestion window; else user data alone.
    pub headers_in_window: bool,
    /// The application hears of what has come before anything leaves, so that a SACK announces the room that it made.
    pub deliver_first: bool,
    /// How losses are found and repaired.
    pub loss_recovery: LossRecovery,
    /// An acknowledgement rides on data that leaves; else it goes alone, when it is due.
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
    /// The congestion window at the start, but two packets at least and four at most (RFC 9260, 7.2.1).
    pub initial_window_bytes: ByteSize,
    /// Outbound streams of the side that accepts an association; without it, as many as the other side asks for.
    pub accepted_streams: Option<PositiveCount>,
    /// At most so many packets leave at one event (Max.Burst).
    pub max_burst: Bound<u32>,
    /// How often an idle path is probed.
    pub heartbeat: Switch<TimeSpan>,
    /// The largest SCTP packet, its header included; without it, what the links' smallest MTU leaves.
    pub packet: Option<ByteSize>,
    /// Receive buffer.
    pub receive_buffer: ByteSize,
    /// How long after the loss of a persistent association another is opened.
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
