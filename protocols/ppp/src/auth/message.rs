//! The messages of PAP (RFC 1334 §2.2) and CHAP (RFC 1994 §4): the data of their packets.

use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedError};

/// Codes of PAP.
pub mod pap {
    use crate::packet::ControlCode;
    /// A name and a password.
    pub const REQUEST: ControlCode = ControlCode(1);
    /// They are right.
    pub const ACK: ControlCode = ControlCode(2);
    /// They are not.
    pub const NAK: ControlCode = ControlCode(3);
}

/// Codes of CHAP.
pub mod chap {
    use crate::packet::ControlCode;
    /// A challenge.
    pub const CHALLENGE: ControlCode = ControlCode(1);
    /// The response to it.
    pub const RESPONSE: ControlCode = ControlCode(2);
    /// It is right.
    pub const SUCCESS: ControlCode = ControlCode(3);
    /// It is not.
    pub const FAILURE: ControlCode = ControlCode(4);
}

/// The data of PAP's Authenticate-Request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PapRequest<'a> {
    /// Peer-ID.
    pub name: &'a [u8],
    /// The password.
    pub password: &'a [u8],
}

impl fmt::Debug for PapRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PapRequest({}, ..)", self.name.escape_ascii())
    }
}

impl<'a> PapRequest<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// A length leads beyond the data.
    pub fn parse(data: &'a [u8]) -> Result<Self, TruncatedError> {
        let mut r = OctetReader::new(data);
        let mut part = || {
            let length = r.read_u8()?;
            r.read_bytes(length.into())
        };
        Ok(Self { name: part()?, password: part()? })
    }
    /// Whether both parts are of 255 octets at most, which are all that their lengths can say.
    #[must_use]
    pub fn fits_length_fields(&self) -> bool {
        [self.name, self.password].iter().all(|part| part.len() <= u8::MAX.into())
    }
    /// Appends it. Of each part, 255 octets are written at most: one that does not [fit](Self::fits_length_fields) says something else.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut w = OctetWriter::new(out);
        for part in [self.name, self.password] {
            let part = &part[..part.len().min(u8::MAX.into())];
            w.write_u8(part.len() as u8).write_bytes(part);
        }
    }
}

/// The message of PAP's Authenticate-Ack and -Nak; without one, or with a wrong length, it is what there is.
#[must_use]
pub fn pap_message(data: &[u8]) -> &[u8] {
    match data.split_first() {
        Some((&length, rest)) => rest.get(..length.into()).unwrap_or(rest),
        None => &[],
    }
}

/// The data of CHAP's Challenge and Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChapValue<'a> {
    /// The challenge, or the response to it.
    pub value: &'a [u8],
    /// Who sends it.
    pub name: &'a [u8],
}

impl<'a> ChapValue<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// The value's size leads beyond the data.
    pub fn parse(data: &'a [u8]) -> Result<Self, TruncatedError> {
        let mut r = OctetReader::new(data);
        let size = r.read_u8()?;
        Ok(Self { value: r.read_bytes(size.into())?, name: r.take_rest() })
    }
    /// Appends it. Of the value, 255 octets are written at most.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let value = &self.value[..self.value.len().min(u8::MAX.into())];
        OctetWriter::new(out).write_u8(value.len() as u8).write_bytes(value).write_bytes(self.name);
    }
}

/// Octets of the value of MS-CHAPv2's Response: peer challenge, eight zeros, NT response, flags (RFC 2759 §4).
const MS_CHAP_V2_VALUE: usize = 49;

/// The value of MS-CHAPv2's Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsChapV2Value {
    /// The peer's challenge.
    pub peer_challenge: [u8; 16],
    /// The NT response.
    pub response: [u8; 24],
}

impl MsChapV2Value {
    /// Reads it; `None`: it has another size. What is reserved is not looked at.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value: &[u8; MS_CHAP_V2_VALUE] = value.try_into().ok()?;
        Some(Self { peer_challenge: *value.first_chunk()?, response: *value.get(24..)?.first_chunk()? })
    }
    /// It as octets.
    #[must_use]
    pub fn to_octets(&self) -> [u8; MS_CHAP_V2_VALUE] {
        let mut value = [0; MS_CHAP_V2_VALUE];
        value[..16].copy_from_slice(&self.peer_challenge);
        value[24..48].copy_from_slice(&self.response);
        value
    }
}

/// The error code of MS-CHAPv2's Failure message (RFC 2759 §6), such as 691; `None`: it has none.
#[must_use]
pub fn ms_chap_v2_error(message: &[u8]) -> Option<u32> {
    let rest = message.strip_prefix(b"E=")?;
    let end = rest.iter().position(|octet| !octet.is_ascii_digit()).unwrap_or(rest.len());
    core::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}
