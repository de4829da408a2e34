//! 802.11 cells: `[bss.NAME]`.

use crate::units::{BitRate, Bound, Count, Length, Queue, Share, Size, Switch, Time};
use schemars::JsonSchema;
use serde::Deserialize;

/// An 802.11 cell (an infrastructure BSS, DCF): stations and their access point share one medium. What is not given is
/// 802.11b at 11 Mb/s. With a group of access points there is one cell for each, and member i of the stations is in cell
/// i modulo m, of m.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bss {
    /// The host, or group, that is the access point.
    pub access_point: String,
    /// The host, or group, that are its stations; an interface may be one.
    pub stations: String,
    /// Whether it is there. Stations with a link to their access point as well use that if not, so that a choice or an
    /// axis can tell the one from the other.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// The rate of data frames, both ways.
    #[serde(default = "rate")]
    pub rate: BitRate,
    /// The rate of acknowledgements, beacons and all that every station must hear.
    #[serde(default = "basic_rate")]
    pub basic_rate: BitRate,
    /// The preamble and header of the physical layer.
    #[serde(default)]
    pub preamble: Preamble,
    /// How often the MAC sends a frame again before it drops it.
    #[serde(default = "retransmissions")]
    pub retransmissions: u32,
    /// The first contention window: a back-off is drawn from 0 to this many slots.
    #[serde(default = "cw_min")]
    pub cw_min: u32,
    /// The largest contention window.
    #[serde(default = "cw_max")]
    pub cw_max: u32,
    /// Share of frames that are not received, at each try of the MAC, which repeats them.
    #[serde(default)]
    pub frame_loss: Share,
    /// Share of packets that are lost for good, beyond what the MAC repeats, in each direction.
    #[serde(default)]
    pub packet_loss: Share,
    /// From when on both losses take place.
    #[serde(default)]
    pub packet_loss_from: LossFrom,
    /// How far from the access point a station can be.
    #[serde(default)]
    pub radius: Bound<Length>,
    /// The distance from the access point at which a station that moves away is told that its link is going down;
    /// without it, it is not told.
    pub going_down: Option<Length>,
    /// The interval of beacons; `"off"` sends none.
    #[serde(default = "beacons")]
    pub beacons: Switch<Time>,
    /// After so many missed beacons a station's link is down.
    #[serde(default = "beacons_missed")]
    pub beacons_missed: Count,
    /// How a station looks for its access point.
    #[serde(default)]
    pub scan: Scan,
    /// Stations in reach are associated from the start.
    #[serde(default = "super::yes")]
    pub associated: bool,
    /// How many packets may wait, at each station and at the access point.
    #[serde(default = "queue")]
    pub queue: Queue,
    /// The largest IP packet.
    #[serde(default = "mtu")]
    pub mtu: Size,
}

fn rate() -> BitRate {
    BitRate::of(11_000_000)
}
fn basic_rate() -> BitRate {
    BitRate::of(1_000_000)
}
const fn retransmissions() -> u32 {
    6
}
const fn cw_min() -> u32 {
    31
}
const fn cw_max() -> u32 {
    1023
}
const fn beacons() -> Switch<Time> {
    Switch::On(Time(usher_core::Duration::from_micros(102_400)))
}
const fn beacons_missed() -> Count {
    Count::of(4)
}
const fn queue() -> Queue {
    Queue::Packets(100)
}
const fn mtu() -> Size {
    Size::of(1500)
}

/// The preamble of the physical layer (802.11b).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preamble {
    /// 192 us with the header.
    #[default]
    Long,
    /// 96 us with the header.
    Short,
}

/// From when on something is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossFrom {
    /// From the start.
    #[default]
    Always,
    /// For each station from its Link_Going_Down on.
    GoingDown,
}

/// An 802.11 scan: one channel after another.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scan {
    /// How many channels are scanned.
    pub channels: Count,
    /// How long a channel is listened to at least.
    pub min: Time,
    /// How long a channel is listened to when something was heard in `min`.
    pub max: Time,
}

impl Default for Scan {
    fn default() -> Self {
        Self { channels: Count::of(11), min: Time::millis(20), max: Time::millis(60) }
    }
}
