//! Notify and Delete payloads (RFC 7296 §3.10, §3.11).

use crate::ParseError;
use crate::code::{NotifyType, ProtocolId};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// A Notify payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotifyPayload {
    /// The protocol of the SA that it concerns.
    pub protocol: ProtocolId,
    /// The SPI of that SA, at most 255 octets. Empty if it concerns no SA or the IKE_SA.
    pub spi: Vec<u8>,
    /// The notify message type.
    pub kind: NotifyType,
    /// The notification data.
    pub data: Vec<u8>,
}

impl NotifyPayload {
    /// Creates one that concerns no SA, without data.
    #[must_use]
    pub const fn new(kind: NotifyType) -> Self {
        Self { protocol: ProtocolId::NONE, spi: Vec::new(), kind, data: Vec::new() }
    }
    /// Creates one that concerns no SA.
    #[must_use]
    pub fn with_data(kind: NotifyType, data: impl Into<Vec<u8>>) -> Self {
        Self { data: data.into(), ..Self::new(kind) }
    }
    /// Creates one that concerns an ESP or AH SA.
    #[must_use]
    pub fn for_child_sa(kind: NotifyType, protocol: ProtocolId, spi: u32) -> Self {
        Self { protocol, spi: spi.to_be_bytes().to_vec(), ..Self::new(kind) }
    }
    /// Returns the SPI of the CHILD_SA that it concerns, if any.
    #[must_use]
    pub fn child_spi(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi[..].try_into().ok()?))
    }
    /// Returns its data as a number, if it has two octets: for INVALID_KE_PAYLOAD, the wanted method.
    #[must_use]
    pub fn notification_number(&self) -> Option<u16> {
        Some(u16::from_be_bytes(self.data[..].try_into().ok()?))
    }

    pub(super) fn parse(mut reader: OctetReader<'_>) -> Result<Self, ParseError> {
        let (protocol, spi) = (ProtocolId(reader.read_u8()?), usize::from(reader.read_u8()?));
        let kind = NotifyType(reader.read_u16()?);
        let spi = reader.read_bytes(spi)?.to_vec();
        Ok(Self { protocol, spi, kind, data: reader.take_rest().to_vec() })
    }
    pub(super) fn emit(&self, writer: &mut OctetWriter<'_>) {
        writer.write_u8(self.protocol.0).write_u8(self.spi.len() as u8).write_u16(self.kind.0);
        writer.write_bytes(&self.spi).write_bytes(&self.data);
    }
}

impl fmt::Display for NotifyPayload {
    /// Its type, and the SPI of a CHILD_SA.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        self.child_spi().map_or(Ok(()), |spi| write!(f, " {spi:08x}"))
    }
}

/// A Delete payload: the SAs that the sender has deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeletePayload {
    /// The IKE_SA of the message, with all its CHILD_SAs.
    Ike,
    /// ESP or AH SAs, by the sender's inbound SPIs, at most 65535.
    Child {
        /// The protocol.
        protocol: ProtocolId,
        /// The SPIs.
        spis: Vec<u32>,
    },
}

impl DeletePayload {
    pub(super) fn parse(mut reader: OctetReader<'_>) -> Result<Self, ParseError> {
        let (protocol, size, count) =
            (ProtocolId(reader.read_u8()?), reader.read_u8()?, usize::from(reader.read_u16()?));
        match (protocol, size, count) {
            (ProtocolId::IKE, 0, 0) if reader.is_empty() => Ok(Self::Ike),
            (ProtocolId::AH | ProtocolId::ESP, 4, _) if reader.remaining() == count * 4 => {
                let spis = core::iter::from_fn(|| reader.read_u32().ok()).collect();
                Ok(Self::Child { protocol, spis })
            }
            // RFC 7296, 3.11: a Delete payload names one protocol, and no SPI for an IKE_SA.
            _ => Err(ParseError::Delete),
        }
    }
    pub(super) fn emit(&self, writer: &mut OctetWriter<'_>) {
        match self {
            Self::Ike => {
                writer.write_u8(ProtocolId::IKE.0).write_u8(0).write_u16(0);
            }
            Self::Child { protocol, spis } => {
                writer.write_u8(protocol.0).write_u8(4).write_u16(spis.len() as u16);
                spis.iter().for_each(|spi| {
                    writer.write_u32(*spi);
                });
            }
        }
    }
}
