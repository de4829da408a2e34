//! 802.16 cells: `[cells.NAME]`.

use schemars::JsonSchema;
use serde::Deserialize;
use usher_config::units::{Bound, ByteSize, Length, Percentage, PositiveCount, QueueCapacity, TimeSpan};
use usher_core::Duration;
use usher_sim::radio::wimax::{self, WimaxConfig};

/// An 802.16 cell (Mobile WiMAX, OFDMA, TDD): stations share the medium to their base station. The defaults are a
/// channel of 10 MHz by public descriptions; other values are assumptions of Usher. With a group of base stations there
/// is one cell for each, and station i is in cell i modulo their number.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WimaxCellSettings {
    /// The host or group of the base stations.
    pub base_station: String,
    /// The host or group of its stations.
    pub stations: String,
    /// Whether the cell exists. Without it, stations use their link to the base station if they have one, so that a
    /// choice or an axis can compare the two.
    #[serde(default = "super::yes")]
    pub used: bool,
    /// Modulation and code rate, both ways.
    #[serde(default)]
    pub modulation: Modulation,
    /// Modulation and code rate from the stations to the base station, where it differs.
    pub uplink_modulation: Option<Modulation>,
    /// Modulation and code rate from the base station to the stations, where it differs.
    pub downlink_modulation: Option<Modulation>,
    /// The queue of each station and direction, in packets.
    #[serde(default = "queue")]
    pub queue: QueueCapacity,
    /// Share of lost packets, which still take their time. Ranging and requests are lost only by collision.
    #[serde(default)]
    pub loss: Percentage,
    /// The largest IP packet.
    #[serde(default = "mtu")]
    pub mtu: ByteSize,
    /// The range of the base station.
    #[serde(default)]
    pub radius: Bound<Length>,
    /// The distance from the base station at which a station that moves away learns that its link is going down;
    /// without it, it does not.
    pub going_down: Option<Length>,
    /// The scan of a station for its base station.
    #[serde(default)]
    pub scan: CellScanSettings,
    /// The frame: its times, its size and the slots of the maps.
    #[serde(default)]
    pub frame: CellFrameSettings,
    /// The network entry of a station.
    #[serde(default)]
    pub entry: CellEntrySettings,
    /// The bandwidth requests of a station.
    #[serde(default)]
    pub requests: BandwidthRequests,
    /// The exchange of traffic keys after an authentication.
    #[serde(default)]
    pub keys: TrafficKeyExchange,
}

const fn queue() -> QueueCapacity {
    QueueCapacity::Packets(100)
}
const fn mtu() -> ByteSize {
    ByteSize::from_bytes(1500)
}

/// Modulation and code rate: how much a slot of 48 data carriers holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
pub enum Modulation {
    /// QPSK, 1/2: 6 B.
    #[default]
    #[serde(rename = "qpsk-1/2")]
    Qpsk12,
    /// QPSK, 3/4: 9 B.
    #[serde(rename = "qpsk-3/4")]
    Qpsk34,
    /// 16-QAM, 1/2: 12 B.
    #[serde(rename = "16qam-1/2")]
    Qam16R12,
    /// 16-QAM, 3/4: 18 B.
    #[serde(rename = "16qam-3/4")]
    Qam16R34,
    /// 64-QAM, 1/2: 18 B.
    #[serde(rename = "64qam-1/2")]
    Qam64R12,
    /// 64-QAM, 2/3: 24 B.
    #[serde(rename = "64qam-2/3")]
    Qam64R23,
    /// 64-QAM, 3/4: 27 B.
    #[serde(rename = "64qam-3/4")]
    Qam64R34,
}

impl From<Modulation> for wimax::Modulation {
    fn from(modulation: Modulation) -> Self {
        match modulation {
            Modulation::Qpsk12 => Self::Qpsk12,
            Modulation::Qpsk34 => Self::Qpsk34,
            Modulation::Qam16R12 => Self::Qam16R12,
            Modulation::Qam16R34 => Self::Qam16R34,
            Modulation::Qam64R12 => Self::Qam64R12,
            Modulation::Qam64R23 => Self::Qam64R23,
            Modulation::Qam64R34 => Self::Qam64R34,
        }
    }
}

/// A cell's frame. A slot is two symbols on one subchannel down, three up.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CellFrameSettings {
    /// The time from one frame's beginning to the next.
    pub duration: TimeSpan,
    /// The duration of an OFDMA symbol with its cyclic prefix.
    pub symbol: TimeSpan,
    /// Symbols of the downlink, preamble included.
    pub downlink_symbols: PositiveCount,
    /// Subchannels of the downlink.
    pub downlink_subchannels: PositiveCount,
    /// The gap between downlink and uplink.
    pub transmit_gap: TimeSpan,
    /// Symbols of the uplink.
    pub uplink_symbols: PositiveCount,
    /// Subchannels of the uplink.
    pub uplink_subchannels: PositiveCount,
    /// The smallest gap between uplink and downlink.
    pub receive_gap: TimeSpan,
    /// Symbols at the uplink's beginning for ranging and requests.
    pub contention_symbols: u32,
    /// Slots of the frame control header.
    pub fch_slots: u32,
    /// The repetition of the maps' slots.
    pub map_repetition: PositiveCount,
    /// The map of frame n grants bursts in the uplink of frame n + this.
    pub uplink_lead: u32,
}

impl Default for CellFrameSettings {
    fn default() -> Self {
        Self {
            duration: TimeSpan::from_millis(5),
            symbol: TimeSpan(Duration::from_nanos(102_857)),
            downlink_symbols: PositiveCount::from_u32(29),
            downlink_subchannels: PositiveCount::from_u32(30),
            transmit_gap: TimeSpan(Duration::from_nanos(105_714)),
            uplink_symbols: PositiveCount::from_u32(18),
            uplink_subchannels: PositiveCount::from_u32(35),
            receive_gap: TimeSpan(Duration::from_micros(60)),
            contention_symbols: 3,
            fch_slots: 4,
            map_repetition: PositiveCount::from_u32(4),
            uplink_lead: 1,
        }
    }
}

/// An 802.16 scan: one channel after another, the base station's last.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CellScanSettings {
    /// The number of channels.
    pub channels: PositiveCount,
    /// The time on a channel for a preamble.
    pub dwell: TimeSpan,
    /// The interval of the base station's channel descriptors (DCD and UCD), for which a station waits.
    pub descriptors: TimeSpan,
}

impl Default for CellScanSettings {
    fn default() -> Self {
        Self {
            channels: PositiveCount::from_u32(2),
            dwell: TimeSpan::from_millis(20),
            descriptors: TimeSpan::from_secs(5),
        }
    }
}

/// The network entry of a station, before its first packet in either direction: contended ranging, then the exchange of
/// capabilities.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CellEntrySettings {
    /// Stations in range are in the cell from the start.
    pub done: bool,
    /// Stations enter on command and not for a packet. Packets of stations outside the cell are dropped.
    pub on_command: bool,
    /// Ranging opportunities in a frame.
    pub opportunities: PositiveCount,
    /// The first back-off window: 2 to the power of this, in opportunities.
    pub backoff_start: u32,
    /// The last back-off window: 2 to the power of this; at most 15.
    pub backoff_end: u32,
    /// The number of ranging attempts before a station gives up and drops its queue.
    pub tries: PositiveCount,
    /// How long a station waits for a response to its ranging (T3).
    pub timeout: TimeSpan,
    /// Frames from a received ranging to the first packet: the ranging response, and the capability request and
    /// response.
    pub frames: u32,
    /// Additional frames of an entry on command: the registration request and response.
    pub registration_frames: u32,
}

impl Default for CellEntrySettings {
    fn default() -> Self {
        Self {
            done: false,
            on_command: false,
            opportunities: PositiveCount::from_u32(8),
            backoff_start: 3,
            backoff_end: 10,
            tries: PositiveCount::from_u32(16),
            timeout: TimeSpan::from_millis(200),
            frames: 3,
            registration_frames: 2,
        }
    }
}

/// The bandwidth requests of stations. A station without a grant sends them in a contended opportunity of the uplink, a
/// station with a grant in the granted burst.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BandwidthRequests {
    /// Opportunities in a frame.
    pub opportunities: PositiveCount,
    /// The first back-off window: 2 to the power of this, in opportunities.
    pub backoff_start: u32,
    /// The last back-off window: 2 to the power of this; at most 15.
    pub backoff_end: u32,
    /// The number of requests before a station gives up and drops its queue.
    pub tries: PositiveCount,
    /// How long a station waits for a grant (T16).
    pub timeout: TimeSpan,
}

impl Default for BandwidthRequests {
    fn default() -> Self {
        Self {
            opportunities: PositiveCount::from_u32(8),
            backoff_start: 3,
            backoff_end: 10,
            tries: PositiveCount::from_u32(16),
            timeout: TimeSpan::from_millis(50),
        }
    }
}

/// The exchange of traffic keys that follows an authentication over this cell (IEEE 802.16e-2005, PKMv2). It consists
/// of the SA-TEK handshake in three messages, and of a request for traffic keys and its reply. Digests and keys derive
/// from the EAP method's key. It needs a workload `eap` between the cell's stations and base station, and a method that
/// derives keys.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrafficKeyExchange {
    /// Whether there is an exchange. If so, an authentication ends when the station has its traffic keys, otherwise
    /// with EAP's success.
    pub used: bool,
    /// How long the base station waits for an answer to its SA-TEK-Challenge (SAChallengeTimer).
    pub challenge_timeout: TimeSpan,
    /// The number of transmissions before it gives up.
    pub challenge_tries: PositiveCount,
    /// How long the station waits for an answer to its SA-TEK-Request (SATEKTimer).
    pub request_timeout: TimeSpan,
    /// The number of transmissions before it gives up.
    pub request_tries: PositiveCount,
    /// How long the station waits for an answer to its Key-Request (Operational Wait Timeout).
    pub key_timeout: TimeSpan,
    /// The number of transmissions before it gives up.
    pub key_tries: PositiveCount,
}

impl Default for TrafficKeyExchange {
    fn default() -> Self {
        Self {
            used: false,
            challenge_timeout: TimeSpan::from_secs(1),
            challenge_tries: PositiveCount::from_u32(4),
            request_timeout: TimeSpan::from_millis(300),
            request_tries: PositiveCount::from_u32(4),
            key_timeout: TimeSpan::from_secs(1),
            key_tries: PositiveCount::from_u32(4),
        }
    }
}

impl WimaxCellSettings {
    /// As the simulator takes it.
    pub fn wimax_config(&self) -> WimaxConfig {
        let Self { frame, entry, requests, .. } = self;
        let small = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        let tries = |n: PositiveCount| u16::try_from(n.get()).unwrap_or(u16::MAX);
        let backoff = |start, end, count| wimax::ContentionBackoffConfig {
            start: small(start),
            end: small(end),
            tries: tries(count),
        };
        WimaxConfig {
            frame: frame.duration.get(),
            symbol: frame.symbol.get(),
            downlink_symbols: frame.downlink_symbols.get(),
            downlink_subchannels: frame.downlink_subchannels.get(),
            transmit_gap: frame.transmit_gap.get(),
            uplink_symbols: frame.uplink_symbols.get(),
            uplink_subchannels: frame.uplink_subchannels.get(),
            receive_gap: frame.receive_gap.get(),
            contention_symbols: frame.contention_symbols,
            ranging_opportunities: entry.opportunities.get(),
            request_opportunities: requests.opportunities.get(),
            fch_slots: frame.fch_slots,
            map_repetition: frame.map_repetition.get(),
            uplink_lead: frame.uplink_lead,
            entry: match (entry.done, entry.on_command) {
                (true, _) => wimax::NetworkEntryTrigger::Done,
                (false, true) => wimax::NetworkEntryTrigger::OnCommand,
                (false, false) => wimax::NetworkEntryTrigger::AtFirstPacket,
            },
            entry_frames: entry.frames,
            registration_frames: entry.registration_frames,
            ranging: backoff(entry.backoff_start, entry.backoff_end, entry.tries),
            ranging_timeout: entry.timeout.get(),
            request: backoff(requests.backoff_start, requests.backoff_end, requests.tries),
            request_timeout: requests.timeout.get(),
            queue: match self.queue {
                QueueCapacity::Packets(n) => usize::try_from(n).unwrap_or(usize::MAX),
                QueueCapacity::Unlimited | QueueCapacity::Bytes(_) => usize::MAX,
            },
            loss: self.loss.get(),
            modulation: (
                self.downlink_modulation.unwrap_or(self.modulation).into(),
                self.uplink_modulation.unwrap_or(self.modulation).into(),
            ),
            radius: self.radius.get().map(Length::metres),
            going_down: self.going_down.map(Length::metres),
            scan_channels: self.scan.channels.get(),
            scan_dwell: self.scan.dwell.get(),
            descriptor_interval: self.scan.descriptors.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_simulators() {
        let cell: WimaxCellSettings = toml::from_str("base_station = \"b\"\nstations = \"s\"").unwrap();
        assert_eq!(cell.wimax_config(), WimaxConfig::default());
    }
}
