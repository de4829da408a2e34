//! ESP packets on the wire (RFC 4303 §2), and datagrams of UDP port 4500 that hold them (RFC 3948 §2).

use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Octets of SPI and sequence number.
pub const HEADER_LEN: usize = 8;

/// Octets of pad length and next header, after the padding.
pub const TRAILER_LEN: usize = 2;

/// Lower SPIs are reserved (RFC 4303 §2.1).
pub const FIRST_SPI: u32 = 256;

/// The IP protocol of ESP.
pub const PROTOCOL: u8 = 50;

/// The UDP port of encapsulated packets (RFC 3948 §2.1).
pub const NAT_PORT: u16 = 4500;

/// The marker of an IKE message on port 4500, at the place of ESP's SPI (RFC 3948 §2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A NAT keepalive (RFC 3948 §2.3).
pub const KEEPALIVE: [u8; 1] = [0xff];

/// The ESP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EspHeader {
    /// The SPI of the SA, among those of the receiver.
    pub spi: u32,
    /// The low 32 bits of its sequence number.
    pub sequence: u32,
}

impl EspHeader {
    /// Parses the header of a packet.
    ///
    /// # Errors
    /// The packet is shorter.
    pub fn parse(octets: &[u8]) -> Result<Self, TruncatedInputError> {
        let mut reader = OctetReader::new(octets);
        Ok(Self { spi: reader.read_u32()?, sequence: reader.read_u32()? })
    }
    /// Writes it.
    pub fn emit(&self, writer: &mut OctetWriter<'_>) {
        writer.write_u32(self.spi).write_u32(self.sequence);
    }
    /// Returns it as on the wire.
    #[must_use]
    pub fn to_octets(&self) -> [u8; HEADER_LEN] {
        (u64::from(self.spi) << 32 | u64::from(self.sequence)).to_be_bytes()
    }
}

impl fmt::Display for EspHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ESP {:08x} #{}", self.spi, self.sequence)
    }
}

/// The contents of a datagram on port 4500.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncapsulatedDatagram<'a> {
    /// An ESP packet.
    Esp(&'a [u8]),
    /// An IKE message, without its marker.
    Ike(&'a [u8]),
    /// A keepalive, which needs no response.
    Keepalive,
    /// Too short for all of these.
    Other,
}

impl<'a> EncapsulatedDatagram<'a> {
    /// Classifies a datagram.
    #[must_use]
    pub fn from_datagram(datagram: &'a [u8]) -> Self {
        if datagram == KEEPALIVE {
            return Self::Keepalive;
        }
        match datagram.split_first_chunk() {
            // RFC 3948, 2.2: four zero octets instead of an SPI mark IKE.
            Some((&NON_ESP_MARKER, message)) => Self::Ike(message),
            Some(_) if datagram.len() >= HEADER_LEN => Self::Esp(datagram),
            _ => Self::Other,
        }
    }
}
