//! Security Association payloads (RFC 7296 §3.3): proposals, their transforms and attributes.

use crate::ParseError;
use crate::code::{EncryptionId, IntegrityId, KeyExchangeMethod, PrfId, ProtocolId, TransformType};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// The Key Length attribute of a transform, in bits (§3.3.5).
pub const KEY_LENGTH: u16 = 14;
/// Most proposals of a payload, and most transforms of a proposal (counted in one octet).
pub const MAX_PROPOSALS: usize = 255;

/// A transform attribute (§3.3.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TransformAttribute {
    /// Type/Value format: a value of two octets without a length.
    Short {
        /// Its type, of 15 bits.
        kind: u16,
        /// Its value.
        value: u16,
    },
    /// Type/Length/Value format.
    Long {
        /// Its type, of 15 bits.
        kind: u16,
        /// Its value, of at most 65535 octets.
        value: Vec<u8>,
    },
}

impl Transform {
    /// Octets of memory that it takes. The shortest form takes eight times its size on the wire.
    fn memory_octets(&self) -> usize {
        let long = self.attributes.iter().map(|attribute| match attribute {
            TransformAttribute::Short { .. } => 0,
            TransformAttribute::Long { value, .. } => value.len(),
        });
        size_of::<Self>() + self.attributes.len() * size_of::<TransformAttribute>() + long.sum::<usize>()
    }
}

/// The AF bit, the highest of an attribute's type: Type/Value format.
const SHORT: u16 = 1 << 15;

/// A transform: one algorithm, proposed or chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transform {
    /// Its transform type.
    pub kind: TransformType,
    /// Its transform ID.
    pub id: u16,
    /// Its attributes.
    pub attributes: Vec<TransformAttribute>,
}

impl Transform {
    /// Creates one without attributes.
    #[must_use]
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self { kind, id, attributes: Vec::new() }
    }
    /// Creates one with a key length in bits.
    #[must_use]
    pub fn with_key_length(kind: TransformType, id: u16, bits: u16) -> Self {
        Self {
            attributes: [TransformAttribute::Short { kind: KEY_LENGTH, value: bits }].into(),
            ..Self::new(kind, id)
        }
    }
    /// Returns its key length in bits, if it has one.
    #[must_use]
    pub fn key_length(&self) -> Option<u16> {
        self.attributes.iter().find_map(|attribute| match attribute {
            TransformAttribute::Short { kind: KEY_LENGTH, value } => Some(*value),
            _ => None,
        })
    }
    /// True if it has an unknown attribute. Such a transform must not be chosen (§3.3.6).
    #[must_use]
    pub fn has_unknown_attribute(&self) -> bool {
        !self.attributes.iter().all(|a| matches!(a, TransformAttribute::Short { kind: KEY_LENGTH, .. }))
    }

    fn parse(reader: &mut OctetReader<'_>) -> Result<(Self, bool), ParseError> {
        let mut inner = read_substructure(reader, 3)?;
        let last = inner.1;
        let (kind, _, id) = (TransformType(inner.0.read_u8()?), inner.0.read_u8()?, inner.0.read_u16()?);
        let mut attributes = Vec::new();
        while !inner.0.is_empty() {
            let kind = inner.0.read_u16()?;
            let value = inner.0.read_u16()?;
            attributes.push(if kind & SHORT != 0 {
                TransformAttribute::Short { kind: kind & !SHORT, value }
            } else {
                TransformAttribute::Long { kind, value: inner.0.read_bytes(value.into())?.to_vec() }
            });
        }
        Ok((Self { kind, id, attributes }, last))
    }

    fn emit(&self, writer: &mut OctetWriter<'_>, last: bool) {
        let at = writer.len();
        writer
            .write_u8(if last { 0 } else { 3 })
            .write_u8(0)
            .write_u16(0)
            .write_u8(self.kind.0)
            .write_u8(0)
            .write_u16(self.id);
        for attribute in &self.attributes {
            match attribute {
                TransformAttribute::Short { kind, value } => writer.write_u16(kind | SHORT).write_u16(*value),
                TransformAttribute::Long { kind, value } => {
                    writer.write_u16(*kind).write_u16(value.len() as u16).write_bytes(value)
                }
            };
        }
        let length = (writer.len() - at) as u16;
        writer.overwrite_at(at + 2, &length.to_be_bytes());
    }
}

impl fmt::Display for Transform {
    /// `ENCR_AES_CBC-256`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TransformType::ENCR => EncryptionId(self.id).fmt(f),
            TransformType::PRF => PrfId(self.id).fmt(f),
            TransformType::INTEG => IntegrityId(self.id).fmt(f),
            TransformType::KE => KeyExchangeMethod(self.id).fmt(f),
            kind if kind.is_additional() => write!(f, "KE{}_{}", kind.0 - 5, KeyExchangeMethod(self.id)),
            TransformType::ESN if self.id == 0 => f.write_str("NO_ESN"),
            TransformType::ESN if self.id == 1 => f.write_str("ESN"),
            kind => write!(f, "{kind} {}", self.id),
        }?;
        self.key_length().map_or(Ok(()), |bits| write!(f, "-{bits}"))
    }
}

/// Parses the common header of proposals and transforms; `more` is the field's value if another follows. Returns the
/// contents, and true for the last one.
fn read_substructure<'a>(
    reader: &mut OctetReader<'a>,
    more: u8,
) -> Result<(OctetReader<'a>, bool), ParseError> {
    let (follows, _, length) = (reader.read_u8()?, reader.read_u8()?, usize::from(reader.read_u16()?));
    let content = length.checked_sub(4).ok_or(ParseError::Length)?;
    let last = match follows {
        0 => true,
        n if n == more => false,
        _ => return Err(ParseError::Substructure),
    };
    Ok((reader.sub_reader(content)?, last))
}

/// A proposal, of which a responder chooses one transform of each type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Its number, counted from 1. A chosen proposal has the number of the one that was offered.
    pub number: u8,
    /// The protocol of the SA.
    pub protocol: ProtocolId,
    /// The sender's SPI, at most 255 octets. Empty in IKE_SA_INIT.
    pub spi: Vec<u8>,
    /// The transforms, at most 255.
    pub transforms: Vec<Transform>,
}

impl Proposal {
    /// The transforms of a type.
    pub fn transforms_of_kind(&self, kind: TransformType) -> impl Iterator<Item = &Transform> {
        self.transforms.iter().filter(move |transform| transform.kind == kind)
    }

    pub(super) fn memory_octets(&self) -> usize {
        size_of::<Self>()
            + self.spi.len()
            + self.transforms.iter().map(Transform::memory_octets).sum::<usize>()
    }

    fn parse(reader: &mut OctetReader<'_>) -> Result<(Self, bool), ParseError> {
        let (mut inner, last) = read_substructure(reader, 2)?;
        let (number, protocol) = (inner.read_u8()?, ProtocolId(inner.read_u8()?));
        let (spi, count) = (usize::from(inner.read_u8()?), usize::from(inner.read_u8()?));
        let spi = inner.read_bytes(spi)?.to_vec();
        let mut transforms = Vec::with_capacity(count.min(inner.remaining() / 8));
        for n in 1..=count {
            let (transform, last) = Transform::parse(&mut inner)?;
            if last != (n == count) {
                return Err(ParseError::Substructure);
            }
            transforms.push(transform);
        }
        if !inner.is_empty() {
            return Err(ParseError::Length);
        }
        Ok((Self { number, protocol, spi, transforms }, last))
    }

    fn emit(&self, writer: &mut OctetWriter<'_>, last: bool) {
        let at = writer.len();
        writer
            .write_u8(if last { 0 } else { 2 })
            .write_u8(0)
            .write_u16(0)
            .write_u8(self.number)
            .write_u8(self.protocol.0);
        writer.write_u8(self.spi.len() as u8).write_u8(self.transforms.len() as u8).write_bytes(&self.spi);
        for (n, transform) in self.transforms.iter().enumerate() {
            transform.emit(writer, n + 1 == self.transforms.len());
        }
        let length = (writer.len() - at) as u16;
        writer.overwrite_at(at + 2, &length.to_be_bytes());
    }
}

impl fmt::Display for Proposal {
    /// `ESP:ENCR_AES_CBC-128/AUTH_HMAC_SHA2_256_128/NO_ESN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.protocol)?;
        for (n, transform) in self.transforms.iter().enumerate() {
            let between = if n == 0 { "" } else { "/" };
            write!(f, "{between}{transform}")?;
        }
        Ok(())
    }
}

pub(super) fn parse_proposals(mut reader: OctetReader<'_>) -> Result<Vec<Proposal>, ParseError> {
    let mut proposals = Vec::new();
    loop {
        let (proposal, last) = Proposal::parse(&mut reader)?;
        proposals.push(proposal);
        // RFC 7296, 3.3: the last substructure says so, and no other.
        if last != reader.is_empty() {
            return Err(ParseError::Substructure);
        }
        if last {
            return Ok(proposals);
        }
        if proposals.len() == MAX_PROPOSALS {
            return Err(ParseError::TooMany);
        }
    }
}

pub(super) fn emit_proposals(proposals: &[Proposal], writer: &mut OctetWriter<'_>) {
    for (n, proposal) in proposals.iter().enumerate() {
        proposal.emit(writer, n + 1 == proposals.len());
    }
}
