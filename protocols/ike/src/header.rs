//! The IKE header (RFC 7296 §3.1).

use crate::ParseError;
use crate::code::{ExchangeType, PayloadType};
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Octets of a header.
pub const HEADER_LEN: usize = 28;
/// The version that messages have: 2.0.
const VERSION: u8 = 0x20;

/// A security parameter index of an IKE_SA. Zero: not known yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Spi(pub [u8; 8]);

impl Spi {
    /// Not known yet.
    pub const ZERO: Self = Self([0; 8]);
    /// True where it is not known yet.
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

/// What stands before the payloads of a message. Its version is 2.0 when it is written; a higher minor version is read
/// and means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IkeHeader {
    /// The SPI that the original initiator of the IKE_SA chose.
    pub initiator_spi: Spi,
    /// The SPI that the original responder chose; zero in the first message.
    pub responder_spi: Spi,
    /// What the message is of.
    pub exchange: ExchangeType,
    /// The sender is the original initiator of the IKE_SA.
    pub initiator: bool,
    /// The message is a response.
    pub response: bool,
    /// The sender could speak a higher major version.
    pub higher_version: bool,
    /// The message ID: of a request the next of its sender, of a response that of its request.
    pub message_id: u32,
}

const INITIATOR: u8 = 1 << 3;
const HIGHER_VERSION: u8 = 1 << 4;
const RESPONSE: u8 = 1 << 5;

impl IkeHeader {
    /// Reads a header, and gives the type of the first payload and the whole message's length besides. The length is what
    /// the header says: at least [`HEADER_LEN`], maybe not what was received.
    ///
    /// # Errors
    /// It is too short, of another major version, or has a length that none can have.
    pub fn parse(reader: &mut OctetReader<'_>) -> Result<(Self, PayloadType, usize), ParseError> {
        let (initiator_spi, responder_spi) = (Spi(reader.read_array()?), Spi(reader.read_array()?));
        let first = PayloadType(reader.read_u8()?);
        let version = reader.read_u8()?;
        let (exchange, flags) = (ExchangeType(reader.read_u8()?), reader.read_u8()?);
        let (message_id, length) = (reader.read_u32()?, reader.read_u32()? as usize);
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

    /// Writes it, with the type of the first payload; [`finish`](Self::patch_length) puts in the length.
    pub(crate) fn emit(&self, writer: &mut OctetWriter<'_>, first: PayloadType) {
        let flag = |is, bit| if is { bit } else { 0 };
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

    /// Puts the length of a whole message into its header, whose place is the writer's beginning.
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
