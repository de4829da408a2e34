//! Settings of a cell.

use super::contention::ContentionBackoffConfig;
use usher_core::{Duration, Instant};

/// Octets of a slot with one bit on each of its 48 data carriers.
const SLOT: u32 = 6;
/// Symbols of a downlink slot.
pub(super) const DOWN_SLOT: u32 = 2;
/// Symbols of an uplink slot.
pub(super) const UP_SLOT: u32 = 3;

/// Modulation and coding: the capacity of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Modulation {
    /// QPSK, code rate 1/2: 6 octets a slot.
    #[default]
    Qpsk12,
    /// QPSK, 3/4: 9 octets.
    Qpsk34,
    /// 16-QAM, 1/2: 12 octets.
    Qam16R12,
    /// 16-QAM, 3/4: 18 octets.
    Qam16R34,
    /// 64-QAM, 1/2: 18 octets.
    Qam64R12,
    /// 64-QAM, 2/3: 24 octets.
    Qam64R23,
    /// 64-QAM, 3/4: 27 octets.
    Qam64R34,
}

impl Modulation {
    /// All modulations, from the most robust.
    pub const ALL: [Self; 7] = [
        Self::Qpsk12,
        Self::Qpsk34,
        Self::Qam16R12,
        Self::Qam16R34,
        Self::Qam64R12,
        Self::Qam64R23,
        Self::Qam64R34,
    ];
    /// Returns the octets of a slot.
    #[must_use]
    pub const fn octets_per_slot(self) -> u32 {
        match self {
            Self::Qpsk12 => SLOT,
            Self::Qpsk34 => SLOT * 3 / 2,
            Self::Qam16R12 => SLOT * 2,
            Self::Qam16R34 | Self::Qam64R12 => SLOT * 3,
            Self::Qam64R23 => SLOT * 4,
            Self::Qam64R34 => SLOT * 9 / 2,
        }
    }
}

/// The trigger of network entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum NetworkEntryTrigger {
    /// Stations in reach are in the cell from the start; later, by command.
    Done,
    /// The first packet in either direction, or a command.
    #[default]
    AtFirstPacket,
    /// A command; before it, packets are dropped.
    OnCommand,
}

/// Why the settings of a cell are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Symbols and gaps are longer than the frame.
    #[error("symbols and gaps take {0:?}, longer than the frame")]
    FrameTooShort(Duration),
    /// A subframe has no room for a burst.
    #[error("the {0} has no room for a burst")]
    SubframeFull(&'static str),
    /// A frame has no opportunity for ranging or for requests.
    #[error("a frame has no opportunity for {0}")]
    NoOpportunity(&'static str),
    /// Back-off windows that shrink, or exceed 2^15.
    #[error("back-off exponents from {0} to {1}; the second must be at least the first, and at most 15")]
    Exponents(u8, u8),
    /// A coverage that is not positive, or a threshold beyond it.
    #[error("the radius must be above 0, and the threshold of going down must not exceed it")]
    Coverage,
    /// A scan without channels.
    #[error("the scan has no channel")]
    Scan,
    /// A probability outside 0 to 1.
    #[error("loss must be a probability from 0 to 1")]
    Loss,
}

/// Settings of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WimaxConfig {
    /// Interval of frames.
    pub frame: Duration,
    /// Duration of an OFDMA symbol with its cyclic prefix.
    pub symbol: Duration,
    /// Symbols of the downlink, including the preamble.
    pub downlink_symbols: u32,
    /// Subchannels of the downlink.
    pub downlink_subchannels: u32,
    /// Gap between downlink and uplink (TTG).
    pub transmit_gap: Duration,
    /// Symbols of the uplink.
    pub uplink_symbols: u32,
    /// Subchannels of the uplink.
    pub uplink_subchannels: u32,
    /// Minimum gap between uplink and downlink (RTG).
    pub receive_gap: Duration,
    /// Symbols for ranging and requests at the start of the uplink.
    pub contention_symbols: u32,
    /// Ranging opportunities in a frame.
    pub ranging_opportunities: u32,
    /// Opportunities for bandwidth requests in a frame.
    pub request_opportunities: u32,
    /// Slots of the frame control header.
    pub fch_slots: u32,
    /// Repetitions of the maps' slots.
    pub map_repetition: u32,
    /// The UL-MAP of frame n grants bursts in the uplink of frame n plus this number.
    pub uplink_lead: u32,
    /// Trigger of network entry.
    pub entry: NetworkEntryTrigger,
    /// Frames from a received RNG-REQ until packets flow: RNG-RSP, SBC-REQ, SBC-RSP.
    pub entry_frames: u32,
    /// Further frames of network entry by command: REG-REQ, REG-RSP.
    pub registration_frames: u32,
    /// Back-off of initial ranging.
    pub ranging: ContentionBackoffConfig,
    /// Timeout of RNG-RSP (T3).
    pub ranging_timeout: Duration,
    /// Back-off of bandwidth requests.
    pub request: ContentionBackoffConfig,
    /// Timeout of a grant (T16).
    pub request_timeout: Duration,
    /// Maximum queued packets per station and direction.
    pub queue: usize,
    /// Probability that a packet is lost.
    pub loss: f64,
    /// Modulation of the stations, downlink and uplink, unless set per station.
    pub modulation: (Modulation, Modulation),
    /// Range of the base station and its stations in metres; `None` for no limit.
    pub radius: Option<f64>,
    /// Distance in metres beyond which an outbound station reports that its link goes down; `None` for never.
    pub going_down: Option<f64>,
    /// Channels of a scan; the base station's is the last.
    pub scan_channels: u32,
    /// Time that a scanning station waits for a preamble on a channel.
    pub scan_dwell: Duration,
    /// Interval of channel descriptors (DCD and UCD).
    pub descriptor_interval: Duration,
}

impl Default for WimaxConfig {
    /// Returns Mobile WiMAX on 10 MHz: frames of 5 ms with 47 symbols of 102.857 µs, 29 of them down (one is the
    /// preamble) and 18 up, gaps of 105.714 and 60 µs; 30 and 35 subchannels, so 420 slots down and 175 up beside 3
    /// symbols of contention. Assumed, since operators choose them: 8 opportunities per frame of each kind, windows of
    /// 2³ to 2¹⁰, 16 tries, T3 of 200 ms, T16 of 50 ms; maps repeated 4 times, grants for the next frame's uplink, 3
    /// frames of network entry; 100 queued packets, no loss, QPSK 1/2 both ways, unlimited range.
    ///
    /// Scenarios for NIST's mobility modules for ns-2 set 20 ms per channel for a preamble and 5 s between
    /// descriptors (the standard's maximum is 10). Two channels and two frames of registration are guesses.
    fn default() -> Self {
        Self {
            frame: Duration::from_millis(5),
            symbol: Duration::from_nanos(102_857),
            downlink_symbols: 29,
            downlink_subchannels: 30,
            transmit_gap: Duration::from_nanos(105_714),
            uplink_symbols: 18,
            uplink_subchannels: 35,
            receive_gap: Duration::from_micros(60),
            contention_symbols: 3,
            ranging_opportunities: 8,
            request_opportunities: 8,
            fch_slots: 4,
            map_repetition: 4,
            uplink_lead: 1,
            entry: NetworkEntryTrigger::AtFirstPacket,
            entry_frames: 3,
            registration_frames: 2,
            ranging: ContentionBackoffConfig { start: 3, end: 10, tries: 16 },
            ranging_timeout: Duration::from_millis(200),
            request: ContentionBackoffConfig { start: 3, end: 10, tries: 16 },
            request_timeout: Duration::from_millis(50),
            queue: 100,
            loss: 0.0,
            modulation: (Modulation::Qpsk12, Modulation::Qpsk12),
            radius: None,
            going_down: None,
            scan_channels: 2,
            scan_dwell: Duration::from_millis(20),
            descriptor_interval: Duration::from_secs(5),
        }
    }
}

impl WimaxConfig {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting.
    pub fn check(&self) -> Result<(), ConfigError> {
        let symbols = u64::from(self.downlink_symbols) + u64::from(self.uplink_symbols);
        let symbols = Duration::from_nanos(self.symbol.as_nanos().saturating_mul(symbols));
        let gaps = self.transmit_gap.as_nanos().saturating_add(self.receive_gap.as_nanos());
        let taken = symbols.as_nanos().saturating_add(gaps);
        if taken > self.frame.as_nanos() || self.frame.is_zero() {
            return Err(ConfigError::FrameTooShort(Duration::from_nanos(taken)));
        }
        for (kind, opportunities) in
            [("ranging", self.ranging_opportunities), ("requests", self.request_opportunities)]
        {
            if opportunities == 0 {
                return Err(ConfigError::NoOpportunity(kind));
            }
        }
        for b in [self.ranging, self.request] {
            if b.start > b.end || b.end > 15 {
                return Err(ConfigError::Exponents(b.start, b.end));
            }
        }
        if let Some(radius) = self.radius {
            let threshold = self.going_down.is_none_or(|going_down| (0.0..=radius).contains(&going_down));
            if !radius.is_finite() || radius <= 0.0 || !threshold {
                return Err(ConfigError::Coverage);
            }
        }
        if self.scan_channels == 0 {
            return Err(ConfigError::Scan);
        }
        if !(0.0..=1.0).contains(&self.loss) {
            return Err(ConfigError::Loss);
        }
        if self.downlink_slots() < self.map_overhead(1, 1) + super::burst::minimum_slots(Modulation::Qpsk12) {
            return Err(ConfigError::SubframeFull("downlink"));
        }
        if self.uplink_slots() < super::burst::minimum_slots(Modulation::Qpsk12) {
            return Err(ConfigError::SubframeFull("uplink"));
        }
        Ok(())
    }

    /// Returns the slots of the downlink after the preamble.
    pub(super) const fn downlink_slots(&self) -> u32 {
        (self.downlink_symbols.saturating_sub(1) / DOWN_SLOT).saturating_mul(self.downlink_subchannels)
    }
    /// Returns the slots of the uplink after the contention part.
    pub(super) const fn uplink_slots(&self) -> u32 {
        (self.uplink_symbols.saturating_sub(self.contention_symbols) / UP_SLOT)
            .saturating_mul(self.uplink_subchannels)
    }
    /// Returns the slots of the frame control header and of maps with this number of bursts down and up.
    pub(super) fn map_overhead(&self, down: u32, up: u32) -> u32 {
        const PDU: u64 = 80;
        let slots = |bits: u64| (bits * u64::from(self.map_repetition)).div_ceil(8 * u64::from(SLOT));
        let maps = slots(PDU + 104 + 60 * u64::from(down)) + slots(PDU + 64 + 104 + 32 * u64::from(up));
        u32::try_from(maps).unwrap_or(u32::MAX).saturating_add(self.fch_slots)
    }
    /// Returns the time from a frame's start to its uplink's.
    pub(super) fn uplink_offset(&self) -> Duration {
        self.symbols_duration(self.downlink_symbols) + self.transmit_gap
    }
    /// Returns when a station in reach that starts a search now knows the downlink and its descriptors. It visits the
    /// other channels first, then receives the next preamble, then the first downlink with descriptors. These are in
    /// the first frame of each interval; the first interval begins `phase` after time zero.
    pub(super) fn synchronised_at(&self, now: Instant, phase: Duration) -> Instant {
        let frame = self.frame.as_nanos();
        let tuned = now + self.scan_dwell * u64::from(self.scan_channels - 1);
        let preamble = tuned.as_nanos().div_ceil(frame);
        let interval = self.descriptor_interval.as_nanos();
        // The station needs the first descriptor interval that begins after the frame before this preamble.
        let phase = phase.as_nanos();
        let before = preamble.checked_sub(1).map(|before| before.saturating_mul(frame));
        let described = match (before, interval) {
            (_, 0) => preamble,
            (Some(before), _) if before >= phase => {
                let passed = (before - phase) / interval + 1;
                passed.saturating_mul(interval).saturating_add(phase).div_ceil(frame)
            }
            _ => phase.div_ceil(frame),
        };
        Instant::from_nanos(described.saturating_mul(frame)) + self.symbols_duration(self.downlink_symbols)
    }
    /// Returns when a station out of reach that starts a search now ends it.
    pub(super) fn in_vain(&self, now: Instant) -> Instant {
        now + self.scan_dwell * u64::from(self.scan_channels)
    }
    /// Returns the duration of `n` symbols.
    pub(super) fn symbols_duration(&self, n: u32) -> Duration {
        Duration::from_nanos(self.symbol.as_nanos() * u64::from(n))
    }
}
