//! Settings of a basic service set.

use super::frame::{FrameTimes, WifiDataRate};
use usher_core::Duration;

/// The preamble and header of the physical layer before every frame (IEEE 802.11b-1999, 18.2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PreambleLength {
    /// 144 + 48 µs, which every station supports.
    #[default]
    Long,
    /// 72 + 24 µs; not with frames at 1 Mb/s.
    Short,
}

impl PreambleLength {
    /// Returns its duration, header included.
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::Long => Duration::from_micros(192),
            Self::Short => Duration::from_micros(96),
        }
    }
}

/// Time to detect others' frames (aSlotTime).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SlotTime {
    /// 20 µs: 802.11b, and 802.11g with 802.11b stations.
    #[default]
    Long,
    /// 9 µs: pure 802.11g (IEEE 802.11g-2003, 19.4.5).
    Short,
}

impl SlotTime {
    /// Returns its duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::Long => Duration::from_micros(20),
            Self::Short => Duration::from_micros(9),
        }
    }
}

/// The condition for losses of frames, or of packets beyond the MAC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum LossFrom {
    /// Always, at any position.
    #[default]
    Always,
    /// While the station is farther away than [`WifiConfig::going_down`].
    GoingDown,
}

/// The frames that noise destroys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum FrameLoss {
    /// All frames, including beacons and management.
    #[default]
    All,
    /// Frames with packets, with their acknowledgements.
    Data,
}

/// Why the settings of a basic service set are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A probability outside 0 to 1.
    #[error("{0} must be a probability from 0 to 1")]
    Probability(&'static str),
    /// Windows that are not 2^n - 1, shrink or are too large.
    #[error("contention windows from {0} to {1}; both must be 2^n - 1, ascending, at most 65535")]
    Windows(u32, u32),
    /// A coverage that is not positive, or a threshold beyond it.
    #[error("the radius must be above 0, and the threshold of going down must not exceed it")]
    Coverage,
    /// A short preamble with frames at 1 Mb/s.
    #[error("frames at 1 Mb/s cannot have a short preamble")]
    Preamble,
    /// Acknowledgements faster than the frames that they acknowledge.
    #[error("the basic rate is above the data rate")]
    BasicRate,
    /// A beacon interval of zero, or no beacon that may be missed.
    #[error("the beacon interval must be at least 10 ms, and the number of missed beacons at least 1")]
    Beacons,
    /// An access point's channel outside the scan, or MaxChannelTime below MinChannelTime.
    #[error(
        "the scan must include the access point's channel, and MinChannelTime must not exceed MaxChannelTime"
    )]
    Scan,
}

/// Settings of a basic service set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WifiConfig {
    /// Rate of packets.
    pub rate: WifiDataRate,
    /// Rate of acknowledgements, beacons and management.
    pub basic_rate: WifiDataRate,
    /// Preamble of every frame that is not OFDM.
    pub preamble: PreambleLength,
    /// Slot time.
    pub slot: SlotTime,
    /// Initial contention window: back-off is drawn from 0 to this number of slots.
    pub cw_min: u32,
    /// Maximum contention window.
    pub cw_max: u32,
    /// Maximum retransmissions of an unacknowledged frame (dot11ShortRetryLimit also counts the first transmission).
    pub retransmissions: u8,
    /// Maximum queued packets at the access point, and at each station.
    pub queue: usize,
    /// Probability that noise destroys a transmission, with or without its acknowledgement.
    pub frame_loss: f64,
    /// Condition of that loss.
    pub frame_loss_from: LossFrom,
    /// Frames subject to it.
    pub frame_loss_of: FrameLoss,
    /// Probability that a packet which the MAC delivered is lost, once per packet.
    pub packet_loss: f64,
    /// Condition of that loss.
    pub packet_loss_from: LossFrom,
    /// Range of the access point and its stations in metres.
    pub radius: f64,
    /// Distance in metres beyond which an outbound station reports that its link goes down.
    pub going_down: f64,
    /// Beacon interval; `None`: the stations know their coverage without beacons.
    pub beacons: Option<Duration>,
    /// Consecutive missed beacons, without another frame from the access point in between, after which a station
    /// considers its link lost.
    pub beacons_missed: u32,
    /// True if stations in reach at the start are associated.
    pub associated: bool,
    /// Timeout of an association.
    pub entry_timeout: Duration,
    /// Channels of a scan.
    pub channels: u32,
    /// The access point's channel, from 1.
    pub channel: u32,
    /// Time on a channel without traffic (MinChannelTime).
    pub min_channel_time: Duration,
    /// Time on a channel with traffic (MaxChannelTime).
    pub max_channel_time: Duration,
}

impl Default for WifiConfig {
    /// Returns IEEE 802.11b at 11 Mb/s with long preambles, windows of 31 to 1023, 7 transmissions, beacons each 100
    /// time units of 1.024 ms, a range of 50 m, 11 channels, no loss.
    ///
    /// Other values are not in the standard. Acknowledgements and management at 2 Mb/s: the highest rate of IEEE
    /// 802.11-1997. 100 queued packets. `going_down` of 41 m: 9 s before the edge at 1 m/s outward. MinChannelTime of
    /// 20 ms, MaxChannelTime of 60 ms and three missed beacons: NIST's mobility modules for ns-2 (drivers wait for
    /// seven to ten beacons). 500 ms for an association and the sixth channel are guesses.
    fn default() -> Self {
        Self {
            rate: WifiDataRate::Eleven,
            basic_rate: WifiDataRate::Two,
            preamble: PreambleLength::Long,
            slot: SlotTime::Long,
            cw_min: 31,
            cw_max: 1023,
            retransmissions: 6,
            queue: 100,
            frame_loss: 0.0,
            frame_loss_from: LossFrom::Always,
            frame_loss_of: FrameLoss::All,
            packet_loss: 0.0,
            packet_loss_from: LossFrom::Always,
            radius: 50.0,
            going_down: 41.0,
            beacons: Some(Duration::from_micros(102_400)),
            beacons_missed: 3,
            associated: true,
            entry_timeout: Duration::from_millis(500),
            channels: 11,
            channel: 6,
            min_channel_time: Duration::from_millis(20),
            max_channel_time: Duration::from_millis(60),
        }
    }
}

impl WifiConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (name, p) in [("frame_loss", self.frame_loss), ("packet_loss", self.packet_loss)] {
            if !(0.0..=1.0).contains(&p) {
                return Err(ConfigError::Probability(name));
            }
        }
        let window = |w: u32| w <= 0xffff && (w + 1).is_power_of_two();
        if !window(self.cw_min) || !window(self.cw_max) || self.cw_min > self.cw_max {
            return Err(ConfigError::Windows(self.cw_min, self.cw_max));
        }
        let covers = self.radius.is_finite() && self.radius > 0.0;
        if !covers || !(0.0..=self.radius).contains(&self.going_down) {
            return Err(ConfigError::Coverage);
        }
        if self.preamble == PreambleLength::Short && self.basic_rate == WifiDataRate::One {
            return Err(ConfigError::Preamble);
        }
        if self.basic_rate > self.rate {
            return Err(ConfigError::BasicRate);
        }
        let too_close = self.beacons.is_some_and(|interval| interval < Duration::from_millis(10));
        if too_close || self.beacons_missed == 0 {
            return Err(ConfigError::Beacons);
        }
        let scanned = (1..=self.channels).contains(&self.channel);
        if !scanned || self.min_channel_time > self.max_channel_time {
            return Err(ConfigError::Scan);
        }
        Ok(())
    }

    /// Returns the durations of its frames.
    pub(super) const fn frame_times(&self) -> FrameTimes {
        FrameTimes::new(self.preamble, self.rate, self.basic_rate)
    }
    /// Returns the contention window of a frame after this number of failed transmissions.
    pub(super) fn contention_window(&self, attempts: u8) -> u32 {
        let window = (u64::from(self.cw_min) + 1) << attempts.min(16);
        u32::try_from(window - 1).unwrap_or(u32::MAX).min(self.cw_max)
    }
}
