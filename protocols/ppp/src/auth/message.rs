//! The messages of PAP (RFC 1334 §2.2) and CHAP (RFC 1994 §4): the data of their packets.

use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedInputError};

/// Codes of PAP.
pub mod pap {
    use crate::packet::ControlCode;
    /// Authenticate-Request: a name and a password.
    pub const REQUEST: ControlCode = ControlCode(1);
    /// Authenticate-Ack: they are valid.
    pub const ACK: ControlCode = ControlCode(2);
    /// Authenticate-Nak: they are invalid.
    pub const NAK: ControlCode = ControlCode(3);
}

/// Codes of CHAP.
pub mod chap {
    use crate::packet::ControlCode;
    /// Challenge.
    pub const CHALLENGE: ControlCode = ControlCode(1);
    /// Response to a challenge.
    pub const RESPONSE: ControlCode = ControlCode(2);
    /// Success: the response is valid.
    pub const SUCCESS: ControlCode = ControlCode(3);
    /// Failure: the response is invalid.
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
    /// Parses the data of an Authenticate-Request.
    ///
    /// # Errors
    /// A length exceeds the data.
    pub fn parse(data: &'a [u8]) -> Result<Self, TruncatedInputError> {
        let mut r = OctetReader::new(data);
        let mut part = || {
            let length = r.read_u8()?;
            r.read_bytes(length.into())
        };
        Ok(Self { name: part()?, password: part()? })
    }
    /// True if name and password have at most 255 octets each, the maximum of their length fields.
    #[must_use]
    pub fn fits_length_fields(&self) -> bool {
        [self.name, self.password].iter().all(|part| part.len() <= u8::MAX.into())
    }
    /// Appends the data. Truncates name and password to 255 octets: check
    /// [`fits_length_fields`](Self::fits_length_fields) first.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut w = OctetWriter::new(out);
        for part in [self.name, self.password] {
            let part = &part[..part.len().min(u8::MAX.into())];
            w.write_u8(part.len() as u8).write_bytes(part);
        }
    }
}

/// Returns the message of PAP's Authenticate-Ack or -Nak. Tolerates a missing or wrong length field.
#[must_use]
pub fn pap_message(data: &[u8]) -> &[u8] {
    match data.split_first() {
        Some((&length, rest)) => rest.get(..length.into()).unwrap_or(rest),
        None => &[],
    }
}

/// The data of CHAP's Challenge and Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChapPacketData<'a> {
    /// The challenge, or the response to it.
    pub value: &'a [u8],
    /// The sender's name.
    pub name: &'a [u8],
}

impl<'a> ChapPacketData<'a> {
    /// Parses the data of a Challenge or Response.
    ///
    /// # Errors
    /// The value's size exceeds the data.
    pub fn parse(data: &'a [u8]) -> Result<Self, TruncatedInputError> {
        let mut r = OctetReader::new(data);
        let size = r.read_u8()?;
        Ok(Self { value: r.read_bytes(size.into())?, name: r.take_rest() })
    }
    /// Appends the data. Truncates the value to 255 octets.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let value = &self.value[..self.value.len().min(u8::MAX.into())];
        OctetWriter::new(out).write_u8(value.len() as u8).write_bytes(value).write_bytes(self.name);
    }
}

/// Octets of the value of MS-CHAPv2's Response (RFC 2759 §4): peer challenge, eight zeros, NT response, flags.
const MS_CHAP_V2_VALUE: usize = 49;

/// The value of MS-CHAPv2's Response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MsChapV2ResponseValue {
    /// The peer's challenge.
    pub peer_challenge: [u8; 16],
    /// The NT response.
    pub response: [u8; 24],
}

impl MsChapV2ResponseValue {
    /// Parses the value; `None`: wrong size. Reserved octets are ignored.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value: &[u8; MS_CHAP_V2_VALUE] = value.try_into().ok()?;
        Some(Self { peer_challenge: *value.first_chunk()?, response: *value.get(24..)?.first_chunk()? })
    }
    /// Returns the encoded value.
    #[must_use]
    pub fn to_octets(&self) -> [u8; MS_CHAP_V2_VALUE] {
        let mut value = [0; MS_CHAP_V2_VALUE];
        value[..16].copy_from_slice(&self.peer_challenge);
        value[24..48].copy_from_slice(&self.response);
        value
    }
}

/// Returns the error code of MS-CHAPv2's Failure message (RFC 2759 §6), such as 691; `None`: it has none.
#[must_use]
pub fn ms_chap_v2_error(message: &[u8]) -> Option<u32> {
    let rest = message.strip_prefix(b"E=")?;
    let end = rest.iter().position(|octet| !octet.is_ascii_digit()).unwrap_or(rest.len());
    core::str::from_utf8(&rest[..end]).ok()?.parse().ok()
}
