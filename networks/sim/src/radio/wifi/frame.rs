//! Frames and their times on the air.

use super::config::Preamble;
use usher_core::Duration;

/// A slot (IEEE 802.11b-1999, 18.3.3: aSlotTime).
pub(super) const SLOT: Duration = Duration::from_micros(20);
/// Before an acknowledgement (aSIFSTime).
pub(super) const SIFS: Duration = Duration::from_micros(10);
/// Before any other frame: SIFS and two slots (IEEE 802.11-1999, 9.2.10).
pub(super) const DIFS: Duration = Duration::from_micros(50);
/// After a frame that was damaged: SIFS, an acknowledgement at 1 Mb/s with a long preamble, DIFS (9.2.10).
pub(super) const EIFS: Duration = Duration::from_micros(10 + 192 + 112 + 50);

/// Octets that are sent beside a packet's own: MAC header (three addresses) 24, LLC and SNAP 8, check sequence 4.
pub(crate) const DATA_HEADER: u32 = 36;
/// Octets of an acknowledgement.
const ACK: u32 = 14;
/// MAC header and check sequence of a management frame.
const MANAGEMENT: u32 = 28;
/// An SSID element of eight octets.
const SSID: u32 = 10;
/// A rates element with the four rates of 802.11b.
const RATES: u32 = 6;

/// A data rate of 802.11b.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rate {
    /// 1 Mb/s.
    One,
    /// 2 Mb/s.
    Two,
    /// 5.5 Mb/s.
    FiveAndHalf,
    /// 11 Mb/s.
    Eleven,
}

impl Rate {
    /// All of them, from the slowest.
    pub const ALL: [Self; 4] = [Self::One, Self::Two, Self::FiveAndHalf, Self::Eleven];
    /// In units of 100 kb/s.
    #[must_use]
    pub const fn hundred_kilobits(self) -> u64 {
        match self {
            Self::One => 10,
            Self::Two => 20,
            Self::FiveAndHalf => 55,
            Self::Eleven => 110,
        }
    }
    /// How long so many octets take, rounded up to the nanosecond.
    #[must_use]
    pub const fn time(self, octets: u32) -> Duration {
        Duration::from_nanos((octets as u64 * 80_000).div_ceil(self.hundred_kilobits()))
    }
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
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

impl Kind {
    pub(super) const fn is_data(self) -> bool {
        matches!(self, Self::Data { .. })
    }
    /// For everybody: not acknowledged, so sent once.
    pub(super) const fn is_broadcast(self) -> bool {
        matches!(self, Self::Beacon | Self::ProbeRequest)
    }
}

/// A frame that waits or is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// The station that it comes from or is for; of a beacon nothing.
    pub(super) station: u32,
    /// How often it was sent in vain.
    pub(super) attempts: u8,
}

impl Frame {
    pub(super) const fn new(kind: Kind, station: u32) -> Self {
        Self { kind, station, attempts: 0 }
    }
}

/// How long frames take with certain settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    preamble: Duration,
    rate: Rate,
    basic_rate: Rate,
}

impl Times {
    pub(super) const fn new(preamble: Preamble, rate: Rate, basic_rate: Rate) -> Self {
        Self { preamble: preamble.duration(), rate, basic_rate }
    }
    /// A frame's, preamble included. Fixed fields of management frames are those of IEEE 802.11-1999, 7.2.3; a beacon's
    /// elements are SSID, rates, the channel and an empty traffic indication map.
    pub(super) fn frame(&self, kind: Kind) -> Duration {
        let fixed = match kind {
            Kind::Data { octets, .. } => {
                return self.preamble + self.rate.time(octets.saturating_add(DATA_HEADER));
            }
            Kind::Beacon => 12 + SSID + RATES + 3 + 6,
            Kind::ProbeResponse => 12 + SSID + RATES + 3,
            Kind::ProbeRequest => SSID + RATES,
            Kind::AuthenticationRequest | Kind::AuthenticationResponse => 6,
            Kind::AssociationRequest => 4 + SSID + RATES,
            Kind::AssociationResponse => 6 + RATES,
        };
        self.preamble + self.basic_rate.time(MANAGEMENT + fixed)
    }
    /// From a frame's end to its acknowledgement's.
    pub(super) fn ack(&self) -> Duration {
        SIFS + self.preamble + self.basic_rate.time(ACK)
    }
}
