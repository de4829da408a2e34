//! PPP over Ethernet (RFC 2516): the frames of both stages, and the tags of discovery.

pub(crate) mod cookie;
mod discovery;
pub(crate) mod limit;

pub use discovery::{DiscoveryTags, PppoeErrorTag, PppoeTagError};
pub use limit::TokenBucketRate;

use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Octets of the Ethernet and PPPoE headers.
pub const HEADERS: usize = 20;
/// Octets of PPPoE's header and PPP's protocol field: the difference between an Ethernet payload and its PPP packet.
pub const OVERHEAD: u16 = 8;
/// Octets of the longest PPP packet by default (RFC 2516 §7).
pub const MAX_PAYLOAD: u16 = 1492;

/// An Ethernet address (EUI-48).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True if the address is of one station: neither a group address nor zero.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::default()
    }
}

impl fmt::Display for MacAddress {
    /// `02:00:5e:00:53:01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The stage of a frame, by its EtherType (RFC 2516 §4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PppoeStage {
    /// Discovery: PADI, PADO, PADR, PADS and PADT.
    Discovery,
    /// PPP session.
    Session,
}

impl PppoeStage {
    /// Returns the stage's EtherType.
    #[must_use]
    pub const fn ethertype(self) -> u16 {
        match self {
            Self::Discovery => 0x8863,
            Self::Session => 0x8864,
        }
    }
}

/// The CODE of a frame (RFC 2516 §5). An open set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PppoeCode(pub u8);

impl PppoeCode {
    /// A PPP packet.
    pub const SESSION: Self = Self(0);
    /// Active Discovery Offer.
    pub const PADO: Self = Self(0x07);
    /// Active Discovery Initiation.
    pub const PADI: Self = Self(0x09);
    /// Active Discovery Request.
    pub const PADR: Self = Self(0x19);
    /// Active Discovery Session-confirmation.
    pub const PADS: Self = Self(0x65);
    /// Active Discovery Terminate.
    pub const PADT: Self = Self(0xa7);
}

impl fmt::Display for PppoeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::SESSION => "session",
            Self::PADO => "PADO",
            Self::PADI => "PADI",
            Self::PADR => "PADR",
            Self::PADS => "PADS",
            Self::PADT => "PADT",
            Self(other) => return write!(f, "code {other:#04x}"),
        })
    }
}

impl fmt::Debug for PppoeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why octets are not a PPPoE frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The octets are fewer than the headers or than LENGTH.
    #[error("the frame is {0}")]
    Truncated(#[from] TruncatedInputError),
    /// The EtherType is not one of PPPoE.
    #[error("EtherType {0:#06x} is not PPPoE's")]
    EtherType(u16),
    /// VER or TYPE is not 1.
    #[error("PPPoE version and type {0:#04x} are not 0x11")]
    Version(u8),
}

/// An Ethernet frame of PPPoE, without its check sequence. Octets beyond LENGTH are Ethernet padding and are not
/// included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PppoeFrame<'a> {
    /// The destination address.
    pub destination: MacAddress,
    /// The source address.
    pub source: MacAddress,
    /// The stage, by the EtherType.
    pub stage: PppoeStage,
    /// CODE.
    pub code: PppoeCode,
    /// SESSION_ID.
    pub session: u16,
    /// Tags, or a PPP packet.
    pub payload: &'a [u8],
}

impl<'a> PppoeFrame<'a> {
    /// Parses a frame.
    ///
    /// # Errors
    /// The octets are not a PPPoE frame.
    pub fn parse(octets: &'a [u8]) -> Result<Self, FrameError> {
        let mut r = OctetReader::new(octets);
        let (destination, source) = (MacAddress(r.read_array()?), MacAddress(r.read_array()?));
        let stage = match r.read_u16()? {
            0x8863 => PppoeStage::Discovery,
            0x8864 => PppoeStage::Session,
            other => return Err(FrameError::EtherType(other)),
        };
        let version = r.read_u8()?;
        if version != 0x11 {
            return Err(FrameError::Version(version));
        }
        let (code, session, length) = (PppoeCode(r.read_u8()?), r.read_u16()?, r.read_u16()?);
        Ok(Self { destination, source, stage, code, session, payload: r.read_bytes(length.into())? })
    }
    /// Appends the frame. Truncates a payload that does not fit LENGTH.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let payload = &self.payload[..self.payload.len().min(u16::MAX.into())];
        let mut w = OctetWriter::new(out);
        w.write_bytes(&self.destination.0).write_bytes(&self.source.0).write_u16(self.stage.ethertype());
        w.write_u8(0x11)
            .write_u8(self.code.0)
            .write_u16(self.session)
            .write_u16(payload.len() as u16)
            .write_bytes(payload);
    }
}

impl fmt::Display for PppoeFrame<'_> {
    /// `PADI 02:00:5e:00:53:01 > ff:ff:ff:ff:ff:ff, session 0, 4 octets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, source, code, session, .. } = self;
        write!(f, "{code} {source} > {destination}, session {session}, {} octets", self.payload.len())
    }
}

impl fmt::Debug for PppoeFrame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
