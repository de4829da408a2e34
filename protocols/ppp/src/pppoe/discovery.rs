//! The tags of discovery packets (RFC 2516 §5 and appendix A, RFC 4638 §4, RFC 4679).

use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// TAG_TYPEs.
mod tag {
    pub(super) const END_OF_LIST: u16 = 0x0000;
    pub(super) const SERVICE_NAME: u16 = 0x0101;
    pub(super) const AC_NAME: u16 = 0x0102;
    pub(super) const HOST_UNIQ: u16 = 0x0103;
    pub(super) const AC_COOKIE: u16 = 0x0104;
    pub(super) const VENDOR_SPECIFIC: u16 = 0x0105;
    pub(super) const RELAY_SESSION_ID: u16 = 0x0110;
    pub(super) const PPP_MAX_PAYLOAD: u16 = 0x0120;
    pub(super) const SERVICE_NAME_ERROR: u16 = 0x0201;
    pub(super) const AC_SYSTEM_ERROR: u16 = 0x0202;
    pub(super) const GENERIC_ERROR: u16 = 0x0203;
}

/// The vendor of access line tags: the DSL Forum, now the Broadband Forum (RFC 4679 §3.1).
const DSL_FORUM: u32 = 3561;
/// Agent-Circuit-Id and Agent-Remote-Id (RFC 4679 §3.3.1, §3.3.2).
const CIRCUIT_ID: u8 = 1;
const REMOTE_ID: u8 = 2;
/// Maximum octets of a line identifier: 65 with its header in RADIUS (RFC 4679 §3.3.1).
const LINE_ID: usize = 63;

/// A tag that reports an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PppoeErrorTag {
    /// Service-Name-Error: the service is not available.
    ServiceName,
    /// AC-System-Error: the concentrator lacks resources.
    AcSystem,
    /// Generic-Error.
    Generic,
}

impl PppoeErrorTag {
    const fn from_tag_type(number: u16) -> Option<Self> {
        match number {
            tag::SERVICE_NAME_ERROR => Some(Self::ServiceName),
            tag::AC_SYSTEM_ERROR => Some(Self::AcSystem),
            tag::GENERIC_ERROR => Some(Self::Generic),
            _ => None,
        }
    }
    const fn tag_type(self) -> u16 {
        match self {
            Self::ServiceName => tag::SERVICE_NAME_ERROR,
            Self::AcSystem => tag::AC_SYSTEM_ERROR,
            Self::Generic => tag::GENERIC_ERROR,
        }
    }
}

impl fmt::Display for PppoeErrorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ServiceName => "Service-Name-Error",
            Self::AcSystem => "AC-System-Error",
            Self::Generic => "Generic-Error",
        })
    }
}

/// A tag whose length exceeds the packet or differs from its type's fixed length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the tag {tag:#06x} has an invalid length of {length}")]
pub struct PppoeTagError {
    /// TAG_TYPE.
    pub tag: u16,
    /// TAG_LENGTH.
    pub length: u16,
}

/// The tags of a discovery packet. The first of a repeated tag counts, if its type may occur once. Unknown tags are
/// ignored (RFC 2516 §5).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiscoveryTags<'a> {
    /// Service-Name.
    pub services: Vec<&'a [u8]>,
    /// AC-Name.
    pub ac_name: Option<&'a [u8]>,
    /// Host-Uniq.
    pub host_uniq: Option<&'a [u8]>,
    /// AC-Cookie.
    pub cookie: Option<&'a [u8]>,
    /// Relay-Session-Id.
    pub relay_session_id: Option<&'a [u8]>,
    /// PPP-Max-Payload (RFC 4638): octets.
    pub max_payload: Option<u16>,
    /// Agent-Circuit-Id (RFC 4679), added by an intermediate agent.
    pub circuit_id: Option<&'a [u8]>,
    /// Agent-Remote-Id (RFC 4679), added by an intermediate agent.
    pub remote_id: Option<&'a [u8]>,
    /// Error tags with their texts.
    pub errors: Vec<(PppoeErrorTag, &'a [u8])>,
}

impl<'a> DiscoveryTags<'a> {
    /// Parses a packet's tags.
    ///
    /// # Errors
    /// A length is wrong. The whole packet is then unreliable.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PppoeTagError> {
        let (mut r, mut this) = (OctetReader::new(payload), Self::default());
        while !r.is_empty() {
            let short = |_| PppoeTagError { tag: 0, length: 0 };
            let (number, length) = (r.read_u16().map_err(short)?, r.read_u16().map_err(short)?);
            let wrong = PppoeTagError { tag: number, length };
            let value = r.read_bytes(length.into()).map_err(|_| wrong)?;
            match number {
                tag::END_OF_LIST => break,
                tag::SERVICE_NAME => this.services.push(value),
                tag::AC_NAME => _ = this.ac_name.get_or_insert(value),
                tag::HOST_UNIQ => _ = this.host_uniq.get_or_insert(value),
                tag::AC_COOKIE => _ = this.cookie.get_or_insert(value),
                tag::RELAY_SESSION_ID => _ = this.relay_session_id.get_or_insert(value),
                tag::PPP_MAX_PAYLOAD => {
                    let octets = value.try_into().map_err(|_| wrong)?;
                    this.max_payload.get_or_insert(u16::from_be_bytes(octets));
                }
                tag::VENDOR_SPECIFIC => this.parse_vendor_tag(value),
                other => {
                    // RFC 2516, 5: unknown tags are ignored.
                    if let Some(error) = PppoeErrorTag::from_tag_type(other) {
                        this.errors.push((error, value));
                    }
                }
            }
        }
        Ok(this)
    }

    /// Parses a Vendor-Specific tag. Ignores tags of other vendors and wrong inner lengths (appendix A allows it).
    fn parse_vendor_tag(&mut self, value: &'a [u8]) {
        let mut r = OctetReader::new(value);
        if r.read_u32() != Ok(DSL_FORUM) {
            return;
        }
        while let (Ok(kind), Ok(length)) = (r.read_u8(), r.read_u8()) {
            let Ok(value) = r.read_bytes(length.into()) else { return };
            match kind {
                CIRCUIT_ID if value.len() <= LINE_ID => _ = self.circuit_id.get_or_insert(value),
                REMOTE_ID if value.len() <= LINE_ID => _ = self.remote_id.get_or_insert(value),
                _ => {}
            }
        }
    }

    /// Appends the tags. Omits a value that exceeds its length field.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut put = |number: u16, value: &[u8]| {
            if let Ok(length) = u16::try_from(value.len()) {
                OctetWriter::new(out).write_u16(number).write_u16(length).write_bytes(value);
            }
        };
        self.services.iter().for_each(|name| put(tag::SERVICE_NAME, name));
        let once = [
            (tag::AC_NAME, self.ac_name),
            (tag::HOST_UNIQ, self.host_uniq),
            (tag::AC_COOKIE, self.cookie),
            (tag::RELAY_SESSION_ID, self.relay_session_id),
        ];
        for (number, value) in once {
            if let Some(value) = value {
                put(number, value);
            }
        }
        if let Some(octets) = self.max_payload {
            put(tag::PPP_MAX_PAYLOAD, &octets.to_be_bytes());
        }
        let mut line = DSL_FORUM.to_be_bytes().to_vec();
        for (kind, value) in [(CIRCUIT_ID, self.circuit_id), (REMOTE_ID, self.remote_id)] {
            if let Some(value) = value.filter(|value| value.len() <= LINE_ID) {
                OctetWriter::new(&mut line).write_u8(kind).write_u8(value.len() as u8).write_bytes(value);
            }
        }
        if line.len() > 4 {
            put(tag::VENDOR_SPECIFIC, &line);
        }
        self.errors.iter().for_each(|(error, text)| put(error.tag_type(), text));
    }
}
