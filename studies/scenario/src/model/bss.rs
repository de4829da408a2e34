//! 802.11 cells: `[bss.NAME]`.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{ByteSize, Length, Percentage, PositiveCount, QueueCapacity, Switch, TimeSpan};
use usher_core::Duration;
use usher_sim::radio::wifi::{self, WifiConfig};

/// An 802.11 cell (an infrastructure BSS, DCF): stations and their access point share one medium. The defaults are the
/// simulator's 802.11b at 11 Mb/s, which names the sources of its values. With a group of access points there is one
/// cell for each, and station i is in cell i modulo their number.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bss {
    /// The host or group of the access points.
    pub access_point: String,
    /// The host or group of its stations, or their interface.
    pub stations: String,
    /// Whether the cell exists. Without it, stations use their link to the access point if they have one, so that a
    /// choice or an axis can compare the two.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// The rate of data frames, both ways.
    #[serde(default = "rate")]
    pub rate: WifiRate,
    /// The rate of acknowledgements, beacons and all other frames for every station.
    #[serde(default = "basic_rate")]
    pub basic_rate: WifiRate,
    /// The preamble and header of the physical layer.
    #[serde(default)]
    pub preamble: WifiPreamble,
    /// The slot. An 802.11g cell without stations of 802.11b has `"short"`, with `cw_min = 15` and acknowledgements by OFDM.
    #[serde(default)]
    pub slot: WifiSlotTime,
    /// The number of retransmissions of a frame before the MAC drops it.
    #[serde(default = "retransmissions")]
    pub retransmissions: u32,
    /// The first contention window: a back-off is drawn from 0 to this many slots.
    #[serde(default = "cw_min")]
    pub cw_min: u32,
    /// The largest contention window.
    #[serde(default = "cw_max")]
    pub cw_max: u32,
    /// Share of lost frames, at each try of the MAC, which retransmits them.
    #[serde(default)]
    pub frame_loss: Percentage,
    /// The start of the frame loss.
    #[serde(default)]
    pub frame_loss_from: LossFrom,
    /// The frames with this loss.
    #[serde(default)]
    pub frame_loss_of: FrameLoss,
    /// Share of packets lost for good in each direction, despite the MAC's retransmissions.
    #[serde(default)]
    pub packet_loss: Percentage,
    /// The start of the packet loss.
    #[serde(default)]
    pub packet_loss_from: LossFrom,
    /// The range of the access point.
    #[serde(default = "radius")]
    pub radius: Length,
    /// The distance from the access point at which a station that moves away learns that its link is going down.
    #[serde(default = "going_down")]
    pub going_down: Length,
    /// The interval of beacons; `"off"`: none, and stations know by themselves when they come and leave.
    #[serde(default = "beacons")]
    pub beacons: Switch<TimeSpan>,
    /// The number of missed beacons after which a station's link is down.
    #[serde(default = "beacons_missed")]
    pub beacons_missed: PositiveCount,
    /// The scan of a station for its access point.
    #[serde(default)]
    pub scan: WifiScan,
    /// Stations in range are associated from the start.
    #[serde(default = "super::yes")]
    pub associated: bool,
    /// How long a station tries to associate.
    #[serde(default = "entry_timeout")]
    pub entry_timeout: TimeSpan,
    /// The queue of each station and of the access point, in packets.
    #[serde(default = "queue")]
    pub queue: QueueCapacity,
    /// The largest IP packet.
    #[serde(default = "mtu")]
    pub mtu: ByteSize,
}

const fn rate() -> WifiRate {
    WifiRate::Eleven
}
const fn basic_rate() -> WifiRate {
    WifiRate::Two
}
const fn radius() -> Length {
    Length::from_metres(50)
}
const fn going_down() -> Length {
    Length::from_metres(41)
}
const fn entry_timeout() -> TimeSpan {
    TimeSpan::from_millis(500)
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
const fn beacons() -> Switch<TimeSpan> {
    Switch::On(TimeSpan(Duration::from_micros(102_400)))
}
const fn beacons_missed() -> PositiveCount {
    PositiveCount::from_u32(3)
}
const fn queue() -> QueueCapacity {
    QueueCapacity::Packets(100)
}
const fn mtu() -> ByteSize {
    ByteSize::from_bytes(1500)
}

/// The rate of frames: 802.11b, or 802.11g with OFDM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
pub enum WifiRate {
    /// DBPSK.
    #[serde(rename = "1 Mb/s")]
    One,
    /// DQPSK.
    #[serde(rename = "2 Mb/s")]
    Two,
    /// CCK.
    #[serde(rename = "5.5 Mb/s")]
    FiveAndHalf,
    /// CCK.
    #[serde(rename = "11 Mb/s")]
    Eleven,
    /// OFDM.
    #[serde(rename = "6 Mb/s")]
    Six,
    /// OFDM.
    #[serde(rename = "9 Mb/s")]
    Nine,
    /// OFDM.
    #[serde(rename = "12 Mb/s")]
    Twelve,
    /// OFDM.
    #[serde(rename = "18 Mb/s")]
    Eighteen,
    /// OFDM.
    #[serde(rename = "24 Mb/s")]
    TwentyFour,
    /// OFDM.
    #[serde(rename = "36 Mb/s")]
    ThirtySix,
    /// OFDM.
    #[serde(rename = "48 Mb/s")]
    FortyEight,
    /// OFDM.
    #[serde(rename = "54 Mb/s")]
    FiftyFour,
}

impl From<WifiRate> for wifi::WifiDataRate {
    fn from(rate: WifiRate) -> Self {
        match rate {
            WifiRate::One => Self::One,
            WifiRate::Two => Self::Two,
            WifiRate::FiveAndHalf => Self::FiveAndHalf,
            WifiRate::Eleven => Self::Eleven,
            WifiRate::Six => Self::Six,
            WifiRate::Nine => Self::Nine,
            WifiRate::Twelve => Self::Twelve,
            WifiRate::Eighteen => Self::Eighteen,
            WifiRate::TwentyFour => Self::TwentyFour,
            WifiRate::ThirtySix => Self::ThirtySix,
            WifiRate::FortyEight => Self::FortyEight,
            WifiRate::FiftyFour => Self::FiftyFour,
        }
    }
}

/// The slot of the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WifiSlotTime {
    /// 20 us: 802.11b, and 802.11g among stations of 802.11b.
    #[default]
    Long,
    /// 9 us: 802.11g without stations of 802.11b.
    Short,
}

impl From<WifiSlotTime> for wifi::SlotTime {
    fn from(slot: WifiSlotTime) -> Self {
        match slot {
            WifiSlotTime::Long => Self::Long,
            WifiSlotTime::Short => Self::Short,
        }
    }
}

/// The preamble of the physical layer (802.11b).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WifiPreamble {
    /// 192 us with the header.
    #[default]
    Long,
    /// 96 us with the header.
    Short,
}

impl From<WifiPreamble> for wifi::PreambleLength {
    fn from(preamble: WifiPreamble) -> Self {
        match preamble {
            WifiPreamble::Long => Self::Long,
            WifiPreamble::Short => Self::Short,
        }
    }
}

/// The start of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossFrom {
    /// From the start.
    #[default]
    Always,
    /// While the station is farther away than `going_down`.
    GoingDown,
}

impl From<LossFrom> for wifi::LossFrom {
    fn from(from: LossFrom) -> Self {
        match from {
            LossFrom::Always => Self::Always,
            LossFrom::GoingDown => Self::GoingDown,
        }
    }
}

/// The frames with loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FrameLoss {
    /// All frames, beacons and management included.
    #[default]
    All,
    /// Frames with packets, and their acknowledgements.
    Data,
}

/// An 802.11 scan: one channel after another.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WifiScan {
    /// The number of channels.
    pub channels: PositiveCount,
    /// The access point's channel, from 1.
    pub channel: PositiveCount,
    /// The shortest time on a channel.
    pub min: TimeSpan,
    /// The time on a channel if the station received something within `min`.
    pub max: TimeSpan,
}

impl Default for WifiScan {
    fn default() -> Self {
        Self {
            channels: PositiveCount::from_u32(11),
            channel: PositiveCount::from_u32(6),
            min: TimeSpan::from_millis(20),
            max: TimeSpan::from_millis(60),
        }
    }
}

impl Bss {
    /// As the simulator takes it.
    pub fn wifi_config(&self) -> WifiConfig {
        WifiConfig {
            rate: self.rate.into(),
            basic_rate: self.basic_rate.into(),
            preamble: self.preamble.into(),
            slot: self.slot.into(),
            cw_min: self.cw_min,
            cw_max: self.cw_max,
            retransmissions: u8::try_from(self.retransmissions).unwrap_or(u8::MAX),
            queue: match self.queue {
                QueueCapacity::Packets(n) => usize::try_from(n).unwrap_or(usize::MAX),
                QueueCapacity::Unlimited | QueueCapacity::Bytes(_) => usize::MAX,
            },
            frame_loss: self.frame_loss.get(),
            frame_loss_from: self.frame_loss_from.into(),
            frame_loss_of: match self.frame_loss_of {
                FrameLoss::All => wifi::FrameLoss::All,
                FrameLoss::Data => wifi::FrameLoss::Data,
            },
            packet_loss: self.packet_loss.get(),
            packet_loss_from: self.packet_loss_from.into(),
            radius: self.radius.metres(),
            going_down: self.going_down.metres(),
            beacons: self.beacons.get().map(TimeSpan::get),
            beacons_missed: self.beacons_missed.get(),
            associated: self.associated,
            entry_timeout: self.entry_timeout.get(),
            channels: self.scan.channels.get(),
            channel: self.scan.channel.get(),
            min_channel_time: self.scan.min.get(),
            max_channel_time: self.scan.max.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_simulators() {
        let bss: Bss = toml::from_str("access_point = \"a\"\nstations = \"s\"").unwrap();
        assert_eq!(bss.wifi_config(), WifiConfig::default());
    }
}
