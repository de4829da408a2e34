//! Messages: a checked view, an owned form, and writers into a caller's buffer.

use crate::attribute::{self, AttributeIter, AttributeType, PkmAttribute};
use crate::code::{Code, Direction};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Why octets are not a PKM message. A receiver drops and counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// The octets end too early.
    #[error(transparent)]
    Truncated(#[from] TruncatedInputError),
    /// A management message type other than 9 and 10.
    #[error("management message type {0} is not a PKM message")]
    NotPkm(u8),
    /// A reserved code.
    #[error("reserved code {0}")]
    ReservedCode(u8),
    /// A code of the other direction.
    #[error("{1} cannot be in a {0}")]
    WrongDirection(Direction, Code),
    /// A length in no octets or in more than four.
    #[error("a length field has {0} octets")]
    LengthFieldSize(usize),
    /// An attribute without a value.
    #[error("{0} is empty")]
    Empty(AttributeType),
    /// A value longer than [`crate::MAX_VALUE`].
    #[error("{0} is too long: {1} octets")]
    TooLong(AttributeType, usize),
    /// A value whose length does not match its type.
    #[error("{0} has a wrong length: {1} octets")]
    WrongLength(AttributeType, usize),
    /// More attributes than [`crate::MAX_ATTRIBUTES`].
    #[error("the message has too many attributes")]
    TooMany,
    /// A mandatory attribute is missing.
    #[error("{0} has no {1}")]
    Missing(Code, AttributeType),
}

/// A checked message: every attribute is whole and has its type's length, and all mandatory ones are present.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PkmMessage<'a> {
    direction: Direction,
    code: Code,
    identifier: u8,
    attributes: &'a [u8],
}

impl<'a> PkmMessage<'a> {
    /// Checks octets, from the management message type on.
    ///
    /// # Errors
    /// The octets are not a PKM message.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut r = OctetReader::new(bytes);
        let kind = r.read_u8()?;
        let direction = Direction::from_octet(kind).ok_or(MessageError::NotPkm(kind))?;
        let (code, identifier) = (r.read_u8()?, r.read_u8()?);
        let code = Code::of(code).ok_or(MessageError::ReservedCode(code))?;
        if code.direction().is_some_and(|d| d != direction) {
            return Err(MessageError::WrongDirection(direction, code));
        }
        let attributes = r.take_rest();
        attribute::check_attributes(attributes)?;
        let message = Self { direction, code, identifier, attributes };
        match code.required().iter().find(|must| message.get(**must).is_none()) {
            Some(missing) => Err(MessageError::Missing(code, *missing)),
            None => Ok(message),
        }
    }

    /// Returns the direction.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }
    /// Returns the code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }
    /// Returns the identifier of the request, or of the request that this message answers.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }
    /// Returns the attributes, in order.
    #[must_use]
    pub const fn attributes(&self) -> AttributeIter<'a> {
        AttributeIter::from_checked(self.attributes)
    }
    /// Returns the value of the first attribute of this type.
    #[must_use]
    pub fn get(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|a| a.kind == kind).map(|a| a.value)
    }
    /// Returns the value of the first attribute of this type if it has `N` octets, as fixed ones do.
    #[must_use]
    pub fn get_fixed_length_attribute<const N: usize>(&self, kind: AttributeType) -> Option<[u8; N]> {
        self.get(kind)?.try_into().ok()
    }
    /// Returns the EAP packet, if there is one.
    #[must_use]
    pub fn eap_packet(&self) -> Option<&'a [u8]> {
        self.get(AttributeType::EAP_PAYLOAD)
    }
}

impl fmt::Display for PkmMessage<'_> {
    /// `PKM-REQ 7 EAP-Transfer: EAP-Payload 22`, with the number of octets of each value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.direction, self.identifier, self.code)?;
        for (i, PkmAttribute { kind, value }) in self.attributes().enumerate() {
            write!(f, "{} {kind} {}", if i == 0 { ":" } else { "," }, value.len())?;
        }
        Ok(())
    }
}
impl fmt::Debug for PkmMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message that owns its attributes, to build or store one. Nothing in it is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedPkmMessage {
    /// The direction.
    pub direction: Direction,
    /// The code.
    pub code: Code,
    /// The identifier of the request, or of the request that this message answers.
    pub identifier: u8,
    /// The attributes, in order.
    pub attributes: Vec<(AttributeType, Vec<u8>)>,
}

impl OwnedPkmMessage {
    /// Creates a message without attributes.
    #[must_use]
    pub const fn new(direction: Direction, code: Code, identifier: u8) -> Self {
        Self { direction, code, identifier, attributes: Vec::new() }
    }
    /// Adds an attribute.
    #[must_use]
    pub fn with_attribute(mut self, kind: AttributeType, value: &[u8]) -> Self {
        self.attributes.push((kind, value.to_vec()));
        self
    }
    /// Appends the message to `out`. An attribute without a value has no encoding and is skipped. A value is
    /// truncated to [`crate::MAX_VALUE`] octets, the limit of the parser.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut w = OctetWriter::new(out);
        w.write_u8(self.direction.message_type()).write_u8(self.code.octet()).write_u8(self.identifier);
        for (kind, value) in &self.attributes {
            attribute::emit_attribute(&mut w, *kind, value);
        }
    }
}

impl From<PkmMessage<'_>> for OwnedPkmMessage {
    fn from(m: PkmMessage<'_>) -> Self {
        let attributes = m.attributes().map(|a| (a.kind, a.value.to_vec())).collect();
        Self { direction: m.direction, code: m.code, identifier: m.identifier, attributes }
    }
}

/// Appends a message with at most one attribute, without an [`OwnedPkmMessage`].
pub(crate) fn emit_message(
    out: &mut Vec<u8>,
    (direction, code, identifier): (Direction, Code, u8),
    attribute: Option<(AttributeType, &[u8])>,
) {
    let mut w = OctetWriter::new(out);
    w.write_u8(direction.message_type()).write_u8(code.octet()).write_u8(identifier);
    if let Some((kind, value)) = attribute {
        attribute::emit_attribute(&mut w, kind, value);
    }
}

/// Appends attributes, for the value of a compound one.
pub(crate) fn emit_attributes(out: &mut Vec<u8>, attributes: &[(AttributeType, &[u8])]) {
    let mut w = OctetWriter::new(out);
    for (kind, value) in attributes {
        attribute::emit_attribute(&mut w, *kind, value);
    }
}

#[cfg(test)]
mod tests;
