//! The RADIUS packet (RFC 2865 §3): a checked view of received octets, and an encoder.

use crate::attribute::{AttributeList, RawAttributeIter};
use crate::dictionary::RadiusDictionary;
use alloc::vec::Vec;
use core::fmt;

/// The length of code, identifier, length and authenticator.
pub const HEADER_LEN: usize = 20;
/// The maximum length of a packet (RFC 2865 §3).
pub const MAX_LEN: usize = 4096;

/// The purpose of a packet, its first octet (RFC 2865 §4, RFC 2866 §4, RFC 5176, RFC 5997).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketCode(pub u8);

#[allow(missing_docs)]
impl PacketCode {
    pub const ACCESS_REQUEST: Self = Self(1);
    pub const ACCESS_ACCEPT: Self = Self(2);
    pub const ACCESS_REJECT: Self = Self(3);
    pub const ACCOUNTING_REQUEST: Self = Self(4);
    pub const ACCOUNTING_RESPONSE: Self = Self(5);
    pub const ACCESS_CHALLENGE: Self = Self(11);
    pub const STATUS_SERVER: Self = Self(12);
    pub const STATUS_CLIENT: Self = Self(13);
    pub const DISCONNECT_REQUEST: Self = Self(40);
    pub const DISCONNECT_ACK: Self = Self(41);
    pub const DISCONNECT_NAK: Self = Self(42);
    pub const COA_REQUEST: Self = Self(43);
    pub const COA_ACK: Self = Self(44);
    pub const COA_NAK: Self = Self(45);
    pub const PROTOCOL_ERROR: Self = Self(52);
}

impl PacketCode {
    /// The registered name.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::ACCESS_REQUEST => "Access-Request",
            Self::ACCESS_ACCEPT => "Access-Accept",
            Self::ACCESS_REJECT => "Access-Reject",
            Self::ACCOUNTING_REQUEST => "Accounting-Request",
            Self::ACCOUNTING_RESPONSE => "Accounting-Response",
            Self::ACCESS_CHALLENGE => "Access-Challenge",
            Self::STATUS_SERVER => "Status-Server",
            Self::STATUS_CLIENT => "Status-Client",
            Self::DISCONNECT_REQUEST => "Disconnect-Request",
            Self::DISCONNECT_ACK => "Disconnect-ACK",
            Self::DISCONNECT_NAK => "Disconnect-NAK",
            Self::COA_REQUEST => "CoA-Request",
            Self::COA_ACK => "CoA-ACK",
            Self::COA_NAK => "CoA-NAK",
            Self::PROTOCOL_ERROR => "Protocol-Error",
            _ => return None,
        })
    }
    /// True if this code is that of a request.
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::ACCESS_REQUEST
                | Self::ACCOUNTING_REQUEST
                | Self::STATUS_SERVER
                | Self::DISCONNECT_REQUEST
                | Self::COA_REQUEST
        )
    }
    /// True if a packet of this code may answer a `request`.
    ///
    /// The reply to Status-Server is that of the port (RFC 5997 §4.3): Access-Accept on an authentication port,
    /// Accounting-Response on an accounting port. Protocol-Error answers any request (RFC 7930 §4).
    #[must_use]
    pub const fn is_reply_code_for(self, request: Self) -> bool {
        match request {
            Self::ACCESS_REQUEST => matches!(
                self,
                Self::ACCESS_ACCEPT | Self::ACCESS_REJECT | Self::ACCESS_CHALLENGE | Self::PROTOCOL_ERROR
            ),
            Self::ACCOUNTING_REQUEST => matches!(self, Self::ACCOUNTING_RESPONSE | Self::PROTOCOL_ERROR),
            Self::STATUS_SERVER => {
                matches!(self, Self::ACCESS_ACCEPT | Self::ACCOUNTING_RESPONSE | Self::PROTOCOL_ERROR)
            }
            Self::DISCONNECT_REQUEST => {
                matches!(self, Self::DISCONNECT_ACK | Self::DISCONNECT_NAK | Self::PROTOCOL_ERROR)
            }
            Self::COA_REQUEST => matches!(self, Self::COA_ACK | Self::COA_NAK | Self::PROTOCOL_ERROR),
            _ => false,
        }
    }
}

impl fmt::Display for PacketCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Code-{}", self.0),
        }
    }
}
impl fmt::Debug for PacketCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why octets are not a RADIUS packet. Such a datagram is silently discarded (RFC 2865 §3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// The octets are shorter than a header.
    #[error("{0} octets are too few for the header of 20")]
    NoHeader(usize),
    /// The Length field is outside 20..=4096.
    #[error("the Length field is {0}, but must be 20 to 4096")]
    Length(u16),
    /// The Length field exceeds the octets that arrived.
    #[error("the Length field is {length}, but only {arrived} octets arrived")]
    Truncated {
        /// The Length field.
        length: u16,
        /// The number of octets that arrived.
        arrived: usize,
    },
    /// An attribute's length is below 2 or reaches beyond the packet.
    #[error("attribute {kind} at octet {offset} has length {length}, but {left} octets are left")]
    Attribute {
        /// The attribute's type.
        kind: u8,
        /// Its offset in the packet.
        offset: usize,
        /// Its Length field; 0 if it is missing.
        length: u8,
        /// Octets from its start to the end of the packet.
        left: usize,
    },
}

/// A received packet with checked lengths. Later reads cannot fail and copy nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RadiusPacket<'a> {
    bytes: &'a [u8],
    authenticator: &'a [u8; 16],
    summary: AttributeSummary,
}

impl<'a> RadiusPacket<'a> {
    /// Checks a datagram. Octets beyond the Length field are padding and ignored (RFC 2865 §3).
    ///
    /// # Errors
    /// If the lengths are inconsistent.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, PacketError> {
        let Some((&[_, _, hi, lo, ref authenticator @ ..], _)) = datagram.split_first_chunk::<HEADER_LEN>()
        else {
            return Err(PacketError::NoHeader(datagram.len()));
        };
        let length = u16::from_be_bytes([hi, lo]);
        if !(HEADER_LEN..=MAX_LEN).contains(&usize::from(length)) {
            return Err(PacketError::Length(length));
        }
        // RFC 2865, 3; RFC 2866, 3; RFC 5176, 2.3: a truncated packet is dropped, padding is ignored.
        let Some(bytes) = datagram.get(..usize::from(length)) else {
            return Err(PacketError::Truncated { length, arrived: datagram.len() });
        };
        let summary = check_attributes(&bytes[HEADER_LEN..])?;
        Ok(Self { bytes, authenticator, summary })
    }
    /// The code.
    #[must_use]
    pub const fn code(&self) -> PacketCode {
        PacketCode(self.bytes[0])
    }
    /// The octet that matches a reply to its request.
    #[must_use]
    pub const fn identifier(&self) -> u8 {
        self.bytes[1]
    }
    /// The Request or Response Authenticator.
    #[must_use]
    pub const fn authenticator(&self) -> &'a [u8; 16] {
        self.authenticator
    }
    /// The attributes' octets.
    #[must_use]
    pub fn attribute_bytes(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }
    /// The attributes as received, in order.
    #[must_use]
    pub fn attributes(&self) -> RawAttributeIter<'a> {
        RawAttributeIter::new(self.attribute_bytes())
    }
    /// The number of attributes.
    #[must_use]
    pub const fn attribute_count(&self) -> usize {
        self.summary.count as usize
    }
    /// The approximate set of attribute types.
    pub(crate) const fn attribute_types(&self) -> AttributeTypeSet {
        self.summary.kinds
    }
    /// The value of the first attribute of a type.
    #[must_use]
    pub fn get(&self, kind: u8) -> Option<&'a [u8]> {
        if !self.summary.kinds.may_have_attribute_type(kind) {
            return None;
        }
        self.attributes().find(|a| a.kind == kind).map(|a| a.value)
    }
    /// The whole packet without padding.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// An owned copy.
    #[must_use]
    pub fn to_owned(&self) -> OwnedPacket {
        OwnedPacket {
            code: self.code(),
            identifier: self.identifier(),
            authenticator: *self.authenticator,
            attributes: AttributeList::from_checked_octets(self.attribute_bytes(), self.attribute_types()),
        }
    }
    /// Returns a printable form with one attribute per line, named by `dictionary`.
    pub fn display<'d>(&self, dictionary: &'d RadiusDictionary) -> RadiusPacketDisplay<'a, 'd> {
        RadiusPacketDisplay { packet: *self, dictionary }
    }
}

/// An approximate set of attribute types, modulo 64. Most lookups are for absent attributes and then need no search.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AttributeTypeSet(u64);

impl AttributeTypeSet {
    /// The empty set.
    pub(crate) const NONE: Self = Self(0);

    const fn attribute_type_bit(kind: u8) -> u64 {
        1 << (kind % 64)
    }
    /// False if no attribute has this type; true if one may.
    pub(crate) const fn may_have_attribute_type(self, kind: u8) -> bool {
        self.0 & Self::attribute_type_bit(kind) != 0
    }
}

/// The result of the check of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct AttributeSummary {
    pub(crate) kinds: AttributeTypeSet,
    pub(crate) count: u32,
}

/// Checks that attributes fill their octets exactly.
pub(crate) fn check_attributes(bytes: &[u8]) -> Result<AttributeSummary, PacketError> {
    let (mut at, mut summary) = (0, AttributeSummary::default());
    while let Some(&kind) = bytes.get(at) {
        let left = bytes.len() - at;
        let length = bytes.get(at + 1).copied().unwrap_or(0);
        // RFC 2865, 5: a packet with a wrong attribute length is dropped.
        if length < 2 || usize::from(length) > left {
            return Err(PacketError::Attribute { kind, offset: at + HEADER_LEN, length, left });
        }
        at += usize::from(length);
        summary.kinds.0 |= AttributeTypeSet::attribute_type_bit(kind);
        summary.count += 1;
    }
    Ok(summary)
}

impl fmt::Debug for RadiusPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for RadiusPacket<'_> {
    /// Prints one line: code, identifier, length and attributes by number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {} length {}", self.code(), self.identifier(), self.bytes.len())?;
        for a in self.attributes() {
            write!(f, " {}={}", a.kind, crate::attribute::HexOctets(a.value))?;
        }
        Ok(())
    }
}

/// See [`RadiusPacket::display`].
#[derive(Clone, Copy, Debug)]
pub struct RadiusPacketDisplay<'a, 'd> {
    packet: RadiusPacket<'a>,
    dictionary: &'d RadiusDictionary,
}

impl fmt::Display for RadiusPacketDisplay<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.packet;
        write!(f, "{} id {} length {}", p.code(), p.identifier(), p.bytes.len())?;
        for item in self.dictionary.decode(p.attribute_bytes()) {
            write!(f, "\n    {item}")?;
        }
        Ok(())
    }
}

/// A packet as separate fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedPacket {
    /// The code.
    pub code: PacketCode,
    /// Matches a reply to its request.
    pub identifier: u8,
    /// The Request or Response Authenticator.
    pub authenticator: [u8; 16],
    /// The attributes.
    pub attributes: AttributeList,
}

impl OwnedPacket {
    /// Appends the packet unchanged: without hiding, signing or computing anything.
    ///
    /// # Errors
    /// If it exceeds 4096 octets. It then appends nothing.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let start = write_header(out, self.code, self.identifier, &self.authenticator);
        out.extend_from_slice(self.attributes.as_bytes());
        finish_packet(out, start)
    }
}

/// The attributes exceed a packet of 4096 octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the packet has {0} octets; RADIUS allows 4096")]
pub struct TooLong(pub usize);

/// Appends a header, whose length [`finish_packet`] sets, and returns the start of the packet.
pub(crate) fn write_header(
    out: &mut Vec<u8>,
    code: PacketCode,
    identifier: u8,
    authenticator: &[u8; 16],
) -> usize {
    let start = out.len();
    let mut header = [0; HEADER_LEN];
    header[0] = code.0;
    header[1] = identifier;
    header[4..].copy_from_slice(authenticator);
    out.extend_from_slice(&header);
    start
}

/// Sets the length of the packet at `start`, or removes the packet if it is too long.
pub(crate) fn finish_packet(out: &mut Vec<u8>, start: usize) -> Result<(), TooLong> {
    let length = out.len() - start;
    if length > MAX_LEN {
        out.truncate(start);
        return Err(TooLong(length));
    }
    out[start + 2..start + 4].copy_from_slice(&(length as u16).to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_has_4096_octets_at_most() {
        for (octets, expected) in [(4096, Ok(())), (4097, Err(TooLong(4097)))] {
            // It follows other octets.
            let mut out = vec![9; 7 + octets];
            assert_eq!(finish_packet(&mut out, 7), expected);
            let whole = if expected.is_ok() { 7 + octets } else { 7 };
            assert_eq!(out.len(), whole);
            assert_eq!(out.get(9..11), expected.is_ok().then_some(&[0x10, 0][..]));
        }
    }

    fn packet_header(length: u16) -> Vec<u8> {
        let mut p = vec![1, 7, 0, 0];
        p[2..].copy_from_slice(&length.to_be_bytes());
        p.resize(20, 9);
        p
    }

    #[test]
    fn the_length_rules_of_rfc_2865_section_3() {
        assert_eq!(RadiusPacket::parse(&[1; 19]), Err(PacketError::NoHeader(19)));
        assert_eq!(RadiusPacket::parse(&packet_header(19)), Err(PacketError::Length(19)));
        assert_eq!(RadiusPacket::parse(&packet_header(4097)), Err(PacketError::Length(4097)));
        assert_eq!(
            RadiusPacket::parse(&packet_header(21)),
            Err(PacketError::Truncated { length: 21, arrived: 20 })
        );
        let mut padded = packet_header(20);
        padded.extend([0xff; 7]);
        assert_eq!(RadiusPacket::parse(&padded).unwrap().as_bytes(), &padded[..20]);
        let mut full = packet_header(4096);
        full.resize(20 + 4 * 1019, 0);
        full[20..].chunks_mut(4).for_each(|a| a.copy_from_slice(&[1, 4, b'a', b'b']));
        assert_eq!(RadiusPacket::parse(&full).unwrap().attributes().count(), 1019);
    }

    #[test]
    fn attribute_lengths_must_fill_the_packet() {
        for tail in [&[1u8][..], &[1, 1], &[1, 0], &[1, 3], &[1, 3, 0, 5]] {
            let mut p = packet_header(20 + tail.len() as u16);
            p.extend(tail);
            assert!(matches!(RadiusPacket::parse(&p), Err(PacketError::Attribute { .. })), "{tail:?}");
        }
    }

    #[test]
    fn codes_answer_their_requests() {
        assert!(PacketCode::ACCESS_CHALLENGE.is_reply_code_for(PacketCode::ACCESS_REQUEST));
        assert!(!PacketCode::ACCOUNTING_RESPONSE.is_reply_code_for(PacketCode::ACCESS_REQUEST));
        assert!(PacketCode::ACCOUNTING_RESPONSE.is_reply_code_for(PacketCode::STATUS_SERVER));
        assert!(!PacketCode::ACCESS_REJECT.is_reply_code_for(PacketCode::STATUS_SERVER));
        assert_eq!(PacketCode(99).to_string(), "Code-99");
    }

    proptest! {
        #[test]
        fn an_owned_packet_comes_back(code: u8, id: u8, auth: [u8; 16],
                attrs in proptest::collection::vec((1u8.., proptest::collection::vec(any::<u8>(), 0..30)), 0..20)) {
            let mut attributes = AttributeList::new();
            for (kind, value) in &attrs {
                attributes.push_bytes(*kind, value).unwrap();
            }
            let owned = OwnedPacket { code: PacketCode(code), identifier: id, authenticator: auth, attributes };
            let mut bytes = Vec::new();
            owned.encode_into(&mut bytes).unwrap();
            let view = RadiusPacket::parse(&bytes).unwrap();
            prop_assert_eq!(view.to_owned(), owned);
            prop_assert_eq!(view.attributes().map(|a| (a.kind, a.value.to_vec())).collect::<Vec<_>>(), attrs);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            if let Ok(p) = RadiusPacket::parse(&bytes) {
                let _ = p.to_string();
            }
        }
    }
}
