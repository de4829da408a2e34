//! Messages (RFC 7296 §3): a header and a chain of payloads.

use crate::code::{NotifyType, PayloadType};
use crate::header::IkeHeader;
use crate::payload::{NotifyPayload, Payload, emit_chain, first_kind, parse_chain};
use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter, TruncatedError};

/// What stands before a message on UDP port 4500, where ESP has an SPI (RFC 7296 §2.23, RFC 3948 §2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// Why octets are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// A field reaches over the end of what it is in.
    #[error(transparent)]
    Truncated(#[from] TruncatedError),
    /// Of another major version.
    #[error("major version {0}, where 2 is known")]
    MajorVersion(u8),
    /// The header's length is not that of the message.
    #[error("the header says {announced} octets, the message has {is}")]
    MessageLength {
        /// What the header says.
        announced: usize,
        /// How many octets there are.
        is: usize,
    },
    /// A length within is too short for what it counts, or leaves octets over.
    #[error("a length does not fit what it is of")]
    Length,
    /// A proposal or transform does not say rightly whether another follows.
    #[error(
        "a proposal or transform is followed by another where it says it is not, or not where it says so"
    )]
    Substructure,
    /// More payloads or proposals than are taken.
    #[error("too many payloads or proposals")]
    TooMany,
    /// A nonce of so many octets.
    #[error("a nonce of {0} octets, where 16 to 256 are allowed")]
    Nonce(usize),
    /// A Delete payload of no protocol, or with SPIs of another size or number than it says.
    #[error("a Delete payload that names nothing that can be deleted")]
    Delete,
    /// A fragment that cannot be.
    #[error("fragment {number} of {total}")]
    Fragment {
        /// Its number.
        number: u16,
        /// How many there are said to be.
        total: u16,
    },
    /// Octets behind the last payload.
    #[error("{0} octets behind the last payload")]
    Trailing(usize),
}

/// A message, its payloads in the order in which they stand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeMessage {
    /// What stands before the payloads.
    pub header: IkeHeader,
    /// The payloads.
    pub payloads: Vec<Payload>,
}

impl IkeMessage {
    /// Reads a message, as it is on UDP port 500 (without the marker of port 4500).
    ///
    /// # Errors
    /// It is none.
    pub fn parse(octets: &[u8]) -> Result<Self, ParseError> {
        let mut reader = OctetReader::new(octets);
        let (header, first, length) = IkeHeader::parse(&mut reader)?;
        if length != octets.len() {
            return Err(ParseError::MessageLength { announced: length, is: octets.len() });
        }
        Ok(Self { header, payloads: parse_chain(first, reader.take_rest())? })
    }

    /// Appends it to a buffer. No payload may have more than 65535 octets.
    pub fn emit(&self, buf: &mut Vec<u8>) {
        let mut writer = OctetWriter::new(buf);
        self.header.emit(&mut writer, first_kind(&self.payloads));
        emit_chain(&self.payloads, &mut writer);
        let length = writer.len();
        IkeHeader::patch_length(&mut writer, length);
    }

    /// The notifications.
    pub fn notifications(&self) -> impl Iterator<Item = &NotifyPayload> {
        notify_payloads(&self.payloads)
    }
    /// The first notification of a kind.
    #[must_use]
    pub fn find_notify(&self, kind: NotifyType) -> Option<&NotifyPayload> {
        self.notifications().find(|notify| notify.kind == kind)
    }
    /// The type of the first payload that must be understood and is not (§2.5).
    #[must_use]
    pub fn unsupported_critical(&self) -> Option<PayloadType> {
        unsupported_critical(&self.payloads)
    }
}

pub(crate) fn notify_payloads(payloads: &[Payload]) -> impl Iterator<Item = &NotifyPayload> {
    payloads.iter().filter_map(|payload| match payload {
        Payload::Notify(notify) => Some(notify),
        _ => None,
    })
}

pub(crate) fn unsupported_critical(payloads: &[Payload]) -> Option<PayloadType> {
    payloads.iter().find_map(|payload| match payload {
        Payload::Unknown { kind, critical: true, .. } => Some(*kind),
        _ => None,
    })
}

/// The payloads as people read them: `[ SA KE(MODP_2048) No ]`.
#[derive(Clone, Copy, Debug)]
pub struct PayloadList<'a>(pub &'a [Payload]);

impl fmt::Display for PayloadList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[ ")?;
        self.0.iter().try_for_each(|payload| write!(f, "{payload} "))?;
        f.write_str("]")
    }
}

impl fmt::Display for IkeMessage {
    /// `IKE_SA_INIT request 0 [ SA KE(MODP_2048) No N(NAT_DETECTION_SOURCE_IP) ]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.header, PayloadList(&self.payloads))
    }
}
