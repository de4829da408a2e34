//! What a basic service set is made of.

use super::frame::{DataRate, FrameTimes};
use usher_core::Duration;

/// The preamble and header that the physical layer puts before every frame (IEEE 802.11b-1999, 18.2.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PreambleLength {
    /// 144 + 48 µs, which every station understands.
    #[default]
    Long,
    /// 72 + 24 µs; not with frames at 1 Mb/s.
    Short,
}

impl PreambleLength {
    /// How long it takes, the header included.
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::Long => Duration::from_micros(192),
            Self::Short => Duration::from_micros(96),
        }
    }
}

/// How long it takes to notice others' frames (aSlotTime).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SlotTime {
    /// 20 µs: of 802.11b, and of 802.11g among stations of 802.11b.
    #[default]
    Long,
    /// 9 µs: of 802.11g among its own (IEEE 802.11g-2003, 19.4.5).
    Short,
}

impl SlotTime {
    /// How long it is.
    #[must_use]
    pub const fn duration(self) -> Duration {
        match self {
            Self::Long => Duration::from_micros(20),
            Self::Short => Duration::from_micros(9),
        }
    }
}

/// From when on frames are lost, or packets beyond the MAC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum LossFrom {
    /// From the beginning, wherever the station is.
    #[default]
    Always,
    /// While the station is farther away than [`WifiConfig::going_down`].
    GoingDown,
}

/// Which frames noise takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum FrameLoss {
    /// All of them, beacons and management among them.
    #[default]
    All,
    /// Those that carry packets, with their acknowledgements.
    Data,
}

/// Why a basic service set cannot be as asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A probability that is none.
    #[error("{0} is a probability")]
    Probability(&'static str),
    /// Windows that are no 2^n - 1, shrink or are too large.
    #[error("contention windows from {0} to {1}; wanted are 2^n - 1, growing, to 65535 at most")]
    Windows(u32, u32),
    /// A coverage that is none, or a threshold beyond it.
    #[error("the radius is more than nothing, and the threshold of going down not beyond it")]
    Coverage,
    /// The short preamble is not for frames at 1 Mb/s.
    #[error("short preambles at 1 Mb/s")]
    Preamble,
    /// Acknowledgements faster than what they acknowledge.
    #[error("the basic rate is above the data rate")]
    BasicRate,
    /// Beacons without pause, or none that may be missed.
    #[error("beacons follow each other closer than 10 ms, or none of them may be missed")]
    Beacons,
    /// The access point's channel is not scanned, or the longest stay on a channel is shorter than the shortest.
    #[error(
        "the access point's channel is one of those scanned, and MinChannelTime is not above MaxChannelTime"
    )]
    Scan,
}

/// The settings of a basic service set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WifiConfig {
    /// Of packets.
    pub rate: DataRate,
    /// Of acknowledgements, beacons and management.
    pub basic_rate: DataRate,
    /// Before every frame that is not of OFDM.
    pub preamble: PreambleLength,
    /// The slot.
    pub slot: SlotTime,
    /// The first contention window: back-off is drawn from 0 to this many slots.
    pub cw_min: u32,
    /// The last one.
    pub cw_max: u32,
    /// How often a frame is sent again that was not acknowledged (dot11ShortRetryLimit counts the first one, too).
    pub retransmissions: u8,
    /// Packets that may wait at the access point, and at each station.
    pub queue: usize,
    /// Probability that a transmission is lost to noise, with or without its acknowledgement.
    pub frame_loss: f64,
    /// From when on.
    pub frame_loss_from: LossFrom,
    /// Of which transmissions.
    pub frame_loss_of: FrameLoss,
    /// Probability that a packet which the MAC has delivered is lost after all, once for each packet.
    pub packet_loss: f64,
    /// From when on.
    pub packet_loss_from: LossFrom,
    /// How far the access point and its stations hear each other, in metres.
    pub radius: f64,
    /// The distance from which on a station that moves away says that its link goes down, in metres.
    pub going_down: f64,
    /// From one beacon to the next; without: the stations know by themselves when they come and leave.
    pub beacons: Option<Duration>,
    /// How many beacons in a row a station does not hear, nor anything else from the access point in between, before it
    /// takes its link for lost.
    pub beacons_missed: u32,
    /// Stations in reach at the beginning are associated.
    pub associated: bool,
    /// How long a station tries to get associated.
    pub entry_timeout: Duration,
    /// Channels of a scan.
    pub channels: u32,
    /// The access point's, from 1.
    pub channel: u32,
    /// How long a scanning station stays on a channel where it hears nothing (MinChannelTime).
    pub min_channel_time: Duration,
    /// How long it stays on a channel where it hears something (MaxChannelTime).
    pub max_channel_time: Duration,
}

impl Default for WifiConfig {
    /// IEEE 802.11b at 11 Mb/s with long preambles, windows of 31 to 1023, 7 transmissions, beacons each 100 time units
    /// of 1.024 ms, a disc of 50 m, 11 channels, nothing lost.
    ///
    /// Beyond the standard, which leaves them open: acknowledgements and management at 2 Mb/s, the highest rate that a
    /// station of IEEE 802.11-1997 has; 100 packets queued. `going_down` of 41 m is 9 s before the edge for a station that
    /// walks outward at 1 m/s. MinChannelTime of 20 ms, MaxChannelTime of 60 ms and three missed beacons are those of NIST's
    /// mobility modules for ns-2; drivers wait for seven to ten beacons. 500 ms for an association and the sixth channel
    /// are guesses.
    fn default() -> Self {
        Self {
            rate: DataRate::Eleven,
            basic_rate: DataRate::Two,
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
    /// Checks what a basic service set relies on.
    ///
    /// # Errors
    /// The first setting that cannot be.
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
        if self.preamble == PreambleLength::Short && self.basic_rate == DataRate::One {
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

    /// How long its frames take.
    pub(super) const fn frame_times(&self) -> FrameTimes {
        FrameTimes::new(self.preamble, self.rate, self.basic_rate)
    }
    /// The contention window of a frame that has been sent so often in vain.
    pub(super) fn contention_window(&self, attempts: u8) -> u32 {
        let window = (u64::from(self.cw_min) + 1) << attempts.min(16);
        u32::try_from(window - 1).unwrap_or(u32::MAX).min(self.cw_max)
    }
}
