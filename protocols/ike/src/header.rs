//! The IKE header (RFC 7296 §3.1).

use crate::ParseError;
use crate::code::{ExchangeType, PayloadType};
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Octets of a header.
pub const HEADER_LEN: usize = 28;
/// The version that messages have: 2.0.
const VERSION: u8 = 0x20;

/// The SPI of an IKE_SA. Zero if not yet known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Spi(pub [u8; 8]);

impl Spi {
    /// The SPI that is not yet known.
    pub const ZERO: Self = Self([0; 8]);
    /// True if it is not yet known.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Spi {
    /// Sixteen hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The IKE header. Its version is 2.0 when written; any higher minor version is accepted and ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeHeader {
    /// The SPI that the original initiator of the IKE_SA chose.
    pub initiator_spi: Spi,
    /// The SPI that the original responder chose; zero in the first message.
    pub responder_spi: Spi,
    /// The exchange of the message.
    pub exchange: ExchangeType,
    /// True if the sender is the original initiator of the IKE_SA.
    pub initiator: bool,
    /// True for a response.
    pub response: bool,
    /// True if the sender supports a higher major version.
    pub higher_version: bool,
    /// The message ID. A response has that of its request.
    pub message_id: u32,
}

const INITIATOR: u8 = 1 << 3;
const HIGHER_VERSION: u8 = 1 << 4;
const RESPONSE: u8 = 1 << 5;

impl IkeHeader {
    /// Parses a header. Returns it with the type of the first payload and the message's length. The length is the
    /// header's: at least [`HEADER_LEN`], possibly not the received one.
    ///
    /// # Errors
    /// It is too short, of another major version, or has an impossible length.
    pub fn parse(reader: &mut OctetReader<'_>) -> Result<(Self, PayloadType, usize), ParseError> {
        let (initiator_spi, responder_spi) = (Spi(reader.read_array()?), Spi(reader.read_array()?));
        let first = PayloadType(reader.read_u8()?);
        let version = reader.read_u8()?;
        let (exchange, flags) = (ExchangeType(reader.read_u8()?), reader.read_u8()?);
        let (message_id, length) = (reader.read_u32()?, reader.read_u32()? as usize);
        // RFC 7296, 2.5: another major version is refused, and the minor one ignored.
        if version >> 4 != VERSION >> 4 {
            return Err(ParseError::MajorVersion(version >> 4));
        }
        if length < HEADER_LEN {
            return Err(ParseError::MessageLength { announced: length, is: HEADER_LEN + reader.remaining() });
        }
        let header = Self {
            initiator_spi,
            responder_spi,
            exchange,
            initiator: flags & INITIATOR != 0,
            response: flags & RESPONSE != 0,
            higher_version: flags & HIGHER_VERSION != 0,
            message_id,
        };
        Ok((header, first, length))
    }

    /// Writes it with the type of the first payload. [`patch_length`](Self::patch_length) writes the length.
    pub(crate) fn emit(&self, writer: &mut OctetWriter<'_>, first: PayloadType) {
        let flag = |is, bit| if is { bit } else { 0 };
        // RFC 7296, 3.1: the reserved bits are zero.
        let flags = flag(self.initiator, INITIATOR)
            | flag(self.response, RESPONSE)
            | flag(self.higher_version, HIGHER_VERSION);
        writer.write_bytes(&self.initiator_spi.0).write_bytes(&self.responder_spi.0).write_u8(first.0);
        writer
            .write_u8(VERSION)
            .write_u8(self.exchange.0)
            .write_u8(flags)
            .write_u32(self.message_id)
            .write_u32(0);
    }

    /// Writes the length of the whole message into its header at the writer's start.
    pub(crate) fn patch_length(writer: &mut OctetWriter<'_>, length: usize) {
        writer.overwrite_at(HEADER_LEN - 4, &(length as u32).to_be_bytes());
    }
}

impl fmt::Display for IkeHeader {
    /// `IKE_AUTH request 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.response { "response" } else { "request" };
        write!(f, "{} {kind} {}", self.exchange, self.message_id)
    }
}
