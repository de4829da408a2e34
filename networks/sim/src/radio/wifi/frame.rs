//! Frames and their times on the air.

use super::config::{PreambleLength, SlotTime};
use usher_core::Duration;

/// Before an acknowledgement (aSIFSTime; IEEE 802.11b-1999, 18.3.3, and 802.11g-2003, 19.4.5).
pub(super) const SIFS: Duration = Duration::from_micros(10);

/// Interframe spaces, which follow from the slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterframeSpaces {
    /// A slot (aSlotTime).
    pub(super) slot: Duration,
    /// Before any frame but an acknowledgement: SIFS and two slots (IEEE 802.11-1999, 9.2.10).
    pub(super) difs: Duration,
    /// After a frame that was damaged: SIFS, an acknowledgement at 1 Mb/s with a long preamble, DIFS (9.2.10).
    pub(super) eifs: Duration,
}

impl InterframeSpaces {
    pub(super) fn new(slot: SlotTime) -> Self {
        let slot = slot.duration();
        let difs = SIFS + slot * 2;
        Self { slot, difs, eifs: SIFS + Duration::from_micros(192 + 112) + difs }
    }
}

/// Octets added to a packet: MAC header (three addresses) 24, LLC and SNAP 8, check sequence 4.
pub(crate) const DATA_HEADER: u32 = 36;
/// Octets of an acknowledgement.
const ACK: u32 = 14;
/// MAC header and check sequence of a management frame.
const MANAGEMENT: u32 = 28;
/// An SSID element of eight octets.
const SSID: u32 = 10;
/// A rates element with the four rates of 802.11b.
const RATES: u32 = 6;

/// Before an OFDM frame: the training symbols, 16 µs, and the SIGNAL field, 4 µs (IEEE 802.11a-1999, 17.3.3 and
/// 17.3.4, adopted by 802.11g-2003, 19.3.2.3).
const OFDM_PREAMBLE: Duration = Duration::from_micros(16 + 4);
/// An OFDM symbol (IEEE 802.11a-1999, 17.3.2.3: TSYM).
const OFDM_SYMBOL: Duration = Duration::from_micros(4);
/// Bits beside a frame's octets: the SERVICE field, 16, and the tail, 6 (17.3.5.1 and 17.3.5.2).
const OFDM_BITS: u64 = 16 + 6;
/// Silence at the end of an 802.11g OFDM frame, so that its SIFS is as long as that of 802.11a (IEEE
/// 802.11g-2003, 19.3.2.3).
const SIGNAL_EXTENSION: Duration = Duration::from_micros(6);

/// A data rate: of 802.11b by DSSS and CCK, or of 802.11g by OFDM (ERP-OFDM).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WifiDataRate {
    /// 1 Mb/s.
    One,
    /// 2 Mb/s.
    Two,
    /// 5.5 Mb/s.
    FiveAndHalf,
    /// 6 Mb/s by OFDM.
    Six,
    /// 9 Mb/s by OFDM.
    Nine,
    /// 11 Mb/s.
    Eleven,
    /// 12 Mb/s by OFDM.
    Twelve,
    /// 18 Mb/s by OFDM.
    Eighteen,
    /// 24 Mb/s by OFDM.
    TwentyFour,
    /// 36 Mb/s by OFDM.
    ThirtySix,
    /// 48 Mb/s by OFDM.
    FortyEight,
    /// 54 Mb/s by OFDM.
    FiftyFour,
}

impl WifiDataRate {
    /// Returns the rate in units of 100 kb/s.
    #[must_use]
    pub const fn rate_in_hundred_kilobits(self) -> u64 {
        match self {
            Self::One => 10,
            Self::Two => 20,
            Self::FiveAndHalf => 55,
            Self::Six => 60,
            Self::Nine => 90,
            Self::Eleven => 110,
            Self::Twelve => 120,
            Self::Eighteen => 180,
            Self::TwentyFour => 240,
            Self::ThirtySix => 360,
            Self::FortyEight => 480,
            Self::FiftyFour => 540,
        }
    }
    /// True for OFDM.
    #[must_use]
    pub const fn is_ofdm(self) -> bool {
        !matches!(self, Self::One | Self::Two | Self::FiveAndHalf | Self::Eleven)
    }
    /// Returns the duration of octets by DSSS or CCK, rounded up to the nanosecond.
    const fn octets_duration(self, octets: u32) -> Duration {
        Duration::from_nanos((octets as u64 * 80_000).div_ceil(self.rate_in_hundred_kilobits()))
    }
    /// Returns the airtime of a frame with its preamble; by OFDM, with the OFDM preamble and the signal extension.
    #[must_use]
    pub fn airtime(self, preamble: PreambleLength, octets: u32) -> Duration {
        if !self.is_ofdm() {
            return preamble.duration() + self.octets_duration(octets);
        }
        // A symbol of 4 µs holds 0.4 bits for each 100 kb/s: 24 at 6 Mb/s, 216 at 54 Mb/s (802.11a-1999, 17.3.2.2).
        let per_symbol = self.rate_in_hundred_kilobits() * 2 / 5;
        let symbols = (OFDM_BITS + 8 * u64::from(octets)).div_ceil(per_symbol);
        OFDM_PREAMBLE + OFDM_SYMBOL * symbols + SIGNAL_EXTENSION
    }
}

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameKind {
    /// A packet.
    Data {
        handle: u32,
        octets: u32,
    },
    Beacon,
    ProbeRequest,
    ProbeResponse,
    AuthenticationRequest,
    AuthenticationResponse,
    AssociationRequest,
    AssociationResponse,
}

impl FrameKind {
    pub(super) const fn is_data(self) -> bool {
        matches!(self, Self::Data { .. })
    }
    /// True for a broadcast: it is not acknowledged, so it is sent once.
    pub(super) const fn is_broadcast(self) -> bool {
        matches!(self, Self::Beacon | Self::ProbeRequest)
    }
}

/// A queued frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WifiFrame {
    pub(super) kind: FrameKind,
    /// The station at its other end; unused for a beacon.
    pub(super) station: u32,
    /// Number of failed transmissions.
    pub(super) attempts: u8,
}

impl WifiFrame {
    pub(super) const fn new(kind: FrameKind, station: u32) -> Self {
        Self { kind, station, attempts: 0 }
    }
}

/// Durations of frames with given settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameTimes {
    preamble: PreambleLength,
    rate: WifiDataRate,
    basic_rate: WifiDataRate,
}

impl FrameTimes {
    pub(super) const fn new(preamble: PreambleLength, rate: WifiDataRate, basic_rate: WifiDataRate) -> Self {
        Self { preamble, rate, basic_rate }
    }
    /// Returns the duration of a frame, preamble included. Fixed fields of management frames are those of IEEE
    /// 802.11-1999, 7.2.3. A beacon's elements are SSID, rates, the channel and an empty traffic indication map.
    pub(super) fn frame_duration(&self, kind: FrameKind) -> Duration {
        let fixed = match kind {
            FrameKind::Data { octets, .. } => {
                return self.rate.airtime(self.preamble, octets.saturating_add(DATA_HEADER));
            }
            FrameKind::Beacon => 12 + SSID + RATES + 3 + 6,
            FrameKind::ProbeResponse => 12 + SSID + RATES + 3,
            FrameKind::ProbeRequest => SSID + RATES,
            FrameKind::AuthenticationRequest | FrameKind::AuthenticationResponse => 6,
            FrameKind::AssociationRequest => 4 + SSID + RATES,
            FrameKind::AssociationResponse => 6 + RATES,
        };
        self.basic_rate.airtime(self.preamble, MANAGEMENT + fixed)
    }
    /// Returns the time from a frame's end to its acknowledgement's end.
    pub(super) fn ack_duration(&self) -> Duration {
        SIFS + self.basic_rate.airtime(self.preamble, ACK)
    }
}
