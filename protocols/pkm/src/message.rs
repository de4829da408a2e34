//! Messages: a checked view, an owned representation, and writers into a caller's buffer.

use crate::attribute::{self, AttributeIter, AttributeType, PkmAttribute};
use crate::code::{Code, Direction};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedError};

/// Why octets are no PKM message. A receiver drops it and counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// It ends before what it announces.
    #[error(transparent)]
    Truncated(#[from] TruncatedError),
    /// A management message type other than 9 and 10.
    #[error("management message type {0} is no PKM message")]
    NotPkm(u8),
    /// A reserved code.
    #[error("reserved code {0}")]
    ReservedCode(u8),
    /// A code that this side does not send.
    #[error("{1} in a {0}")]
    WrongDirection(Direction, Code),
    /// A length given in no octets or in more than four.
    #[error("a length in {0} octets")]
    LengthFieldSize(usize),
    /// An attribute without value.
    #[error("{0} is empty")]
    Empty(AttributeType),
    /// A value beyond [`crate::MAX_VALUE`].
    #[error("{0} with {1} octets")]
    TooLong(AttributeType, usize),
    /// A value whose length is not that of its type.
    #[error("{0} with {1} octets")]
    WrongLength(AttributeType, usize),
    /// More attributes than [`crate::MAX_ATTRIBUTES`].
    #[error("too many attributes")]
    TooMany,
    /// Something that its code cannot do without is not there.
    #[error("{0} without {1}")]
    Missing(Code, AttributeType),
}

/// A message that has been checked: every attribute is whole, of its type's length, and all that its code cannot do
/// without are there.
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
    /// They are no PKM message.
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

    /// Who sent it.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        self.direction
    }
    /// What it says.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }
    /// Which request it is or answers.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }
    /// Its attributes, in their order.
    #[must_use]
    pub const fn attributes(&self) -> AttributeIter<'a> {
        AttributeIter::from_checked(self.attributes)
    }
    /// The value of the first attribute of this type.
    #[must_use]
    pub fn get(&self, kind: AttributeType) -> Option<&'a [u8]> {
        self.attributes().find(|a| a.kind == kind).map(|a| a.value)
    }
    /// The value of the first attribute of this type where it has `N` octets, as fixed ones do.
    #[must_use]
    pub fn get_array<const N: usize>(&self, kind: AttributeType) -> Option<[u8; N]> {
        self.get(kind)?.try_into().ok()
    }
    /// The EAP packet that it carries.
    #[must_use]
    pub fn eap_packet(&self) -> Option<&'a [u8]> {
        self.get(AttributeType::EAP_PAYLOAD)
    }
}

impl fmt::Display for PkmMessage<'_> {
    /// `PKM-REQ 7 EAP-Transfer: EAP-Payload 22`, with each value's octets.
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

/// A message that owns its attributes, to be built or kept. Nothing in it is checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedMessage {
    /// Who sends it.
    pub direction: Direction,
    /// What it says.
    pub code: Code,
    /// Which request it is or answers.
    pub identifier: u8,
    /// Its attributes, in their order.
    pub attributes: Vec<(AttributeType, Vec<u8>)>,
}

impl OwnedMessage {
    /// A message without attributes.
    #[must_use]
    pub const fn new(direction: Direction, code: Code, identifier: u8) -> Self {
        Self { direction, code, identifier, attributes: Vec::new() }
    }
    /// With one more attribute.
    #[must_use]
    pub fn with_attribute(mut self, kind: AttributeType, value: &[u8]) -> Self {
        self.attributes.push((kind, value.to_vec()));
        self
    }
    /// Appends it to `out`. Attributes without value are left out, and values are cut off at [`crate::MAX_VALUE`]
    /// octets: the wire has no form for the first, and this implementation reads nothing longer.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut w = OctetWriter::new(out);
        w.write_u8(self.direction.message_type()).write_u8(self.code.octet()).write_u8(self.identifier);
        for (kind, value) in &self.attributes {
            attribute::emit_attribute(&mut w, *kind, value);
        }
    }
}

impl From<PkmMessage<'_>> for OwnedMessage {
    fn from(m: PkmMessage<'_>) -> Self {
        let attributes = m.attributes().map(|a| (a.kind, a.value.to_vec())).collect();
        Self { direction: m.direction, code: m.code, identifier: m.identifier, attributes }
    }
}

/// Appends a message with one attribute at most, without going through [`OwnedMessage`].
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

/// Appends attributes: a compound one's value.
pub(crate) fn emit_attributes(out: &mut Vec<u8>, attributes: &[(AttributeType, &[u8])]) {
    let mut w = OctetWriter::new(out);
    for (kind, value) in attributes {
        attribute::emit_attribute(&mut w, *kind, value);
    }
}

#[cfg(test)]
mod tests;
