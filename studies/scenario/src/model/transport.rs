//! Settings of the transport protocols: `[transport]`.

use crate::units::{BitRate, Bound, Count, InitialWindow, Size, Switch, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// Settings of the transport protocols, the same on all hosts.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Transport {
    /// TCP (RFC 9293).
    pub tcp: Tcp,
    /// SCTP (RFC 9260).
    pub sctp: Sctp,
}

/// TCP (RFC 9293). The defaults are today's RFCs'.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tcp {
    /// Nagle's algorithm: small segments wait while data is unacknowledged (RFC 9293, 3.7.4).
    pub nagle: bool,
    /// How long an acknowledgement may wait for data to ride on; `"off"` acknowledges at once.
    pub delayed_ack: Switch<Time>,
    /// With delayed acknowledgements, every so many full segments are acknowledged at once.
    pub delayed_ack_segments: Count,
    /// Loss recovery: how losses are found and repaired.
    pub congestion: Congestion,
    /// Congestion control: how the window grows, and how far a loss reduces it.
    pub control: Control,
    /// Retransmission timeout before the first measurement (RFC 6298).
    pub rto_initial: Time,
    /// Smallest retransmission timeout.
    pub rto_min: Time,
    /// Largest retransmission timeout.
    pub rto_max: Time,
    /// Retransmissions of one segment before the connection is given up.
    pub retransmissions: Bound<u32>,
    /// Retransmissions of a SYN before the attempt is given up.
    pub syn_retransmissions: Bound<u32>,
    /// Maximum segment size; without it, what the first link's MTU leaves after the headers.
    pub mss: Option<Size>,
    /// The congestion window at the start.
    pub initial_window: InitialWindow,
    /// A new segment for each of the first two duplicate acknowledgements (RFC 3042).
    pub limited_transmit: bool,
    /// The timestamps option (RFC 7323).
    pub timestamps: bool,
    /// The window scale option (RFC 7323).
    pub window_scale: bool,
    /// Receive buffer; without the window scale option at most 65535 B are offered.
    pub receive_buffer: Size,
    /// How fast applications read what has arrived.
    pub read_rate: Bound<BitRate>,
    /// How long after the loss of a persistent connection another is opened.
    pub reconnect: Time,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            nagle: true,
            delayed_ack: Switch::On(Time::millis(200)),
            delayed_ack_segments: Count::of(2),
            congestion: Congestion::default(),
            control: Control::default(),
            rto_initial: Time::secs(1),
            rto_min: Time::secs(1),
            rto_max: Time::secs(60),
            retransmissions: Bound::At(15),
            syn_retransmissions: Bound::At(6),
            mss: None,
            initial_window: InitialWindow::Rfc6928,
            limited_transmit: true,
            timestamps: false,
            window_scale: false,
            receive_buffer: Size::of(65_535),
            read_rate: Bound::Unlimited,
            reconnect: Time::secs(1),
        }
    }
}

/// TCP's loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
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
pub enum Control {
    /// A segment more each round trip, half the window after a loss (RFC 5681).
    #[default]
    Reno,
    /// A cubic function of the time since the last loss, after which 0.7 is kept (RFC 9438).
    Cubic,
    /// Window and pace follow the measured bandwidth and round trip, whatever is lost (BBR, version 1).
    Bbr,
}

/// SCTP (RFC 9260). The defaults are its section 16's.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sctp {
    /// A sender's delay as Nagle's algorithm has it: a packet that is not full waits while data is
    /// unacknowledged. RFC 3539 wants none; many stacks have one unless told otherwise.
    pub nagle: bool,
    /// How long an acknowledgement may wait; `"off"` acknowledges at once.
    pub sack_delay: Switch<Time>,
    /// With delayed acknowledgements, every so many packets are acknowledged at once.
    pub sack_frequency: Count,
    /// Retransmission timeout before the first measurement.
    pub rto_initial: Time,
    /// Smallest retransmission timeout.
    pub rto_min: Time,
    /// Largest retransmission timeout.
    pub rto_max: Time,
    /// Retransmissions in a row before the association is given up (Association.Max.Retrans).
    pub retransmissions: Bound<u32>,
    /// Retransmissions in a row to one path before it counts as failed (Path.Max.Retrans).
    pub path_retransmissions: u32,
    /// Retransmissions of an INIT or COOKIE ECHO before the attempt is given up.
    pub init_retransmissions: Bound<u32>,
    /// The congestion window at the start, in packets; without it, RFC 9260's 7.2.1.
    pub initial_window: Option<Count>,
    /// At most so many packets leave at one event (Max.Burst).
    pub max_burst: Bound<u32>,
    /// How often an idle path is probed.
    pub heartbeat: Switch<Time>,
    /// The largest SCTP packet, its header included; without it, what the links' smallest MTU leaves.
    pub packet: Option<Size>,
    /// Receive buffer.
    pub receive_buffer: Size,
    /// How long after the loss of a persistent association another is opened.
    pub reconnect: Time,
}

impl Default for Sctp {
    fn default() -> Self {
        Self {
            nagle: false,
            sack_delay: Switch::On(Time::millis(200)),
            sack_frequency: Count::of(2),
            rto_initial: Time::secs(1),
            rto_min: Time::secs(1),
            rto_max: Time::secs(60),
            retransmissions: Bound::At(10),
            path_retransmissions: 5,
            init_retransmissions: Bound::At(8),
            initial_window: None,
            max_burst: Bound::At(4),
            heartbeat: Switch::On(Time::secs(30)),
            packet: None,
            receive_buffer: Size::of(65_536),
            reconnect: Time::secs(1),
        }
    }
}
