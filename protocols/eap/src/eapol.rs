//! EAP over LANs (IEEE 802.1X-2004 §7): frames that carry EAP between a station and its authenticator.

use alloc::vec::Vec;
use usher_core::{OctetReader, TruncatedInputError};

/// The EtherType of EAPOL.
pub const ETHERTYPE: u16 = 0x888e;
/// The destination of a wired station's EAPOL frames. Bridges do not forward it (802.1X §7.8).
pub const PAE_GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x03];
/// The protocol version that is sent (802.1X-2004). Any version is accepted (§7.5.5).
pub const VERSION: u8 = 2;
/// Octets of the Ethernet header and the EAPOL header.
const HEADERS: usize = 18;

/// The type of an EAPOL packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EapolPacketType {
    /// Carries an EAP packet.
    EapPacket,
    /// A station requests authentication.
    Start,
    /// A station logs off.
    Logoff,
    /// Carries a key of the link layer.
    Key,
    /// An unknown type.
    Other(u8),
}

impl EapolPacketType {
    const fn from_octet(octet: u8) -> Self {
        match octet {
            0 => Self::EapPacket,
            1 => Self::Start,
            2 => Self::Logoff,
            3 => Self::Key,
            other => Self::Other(other),
        }
    }
    const fn to_octet(self) -> u8 {
        match self {
            Self::EapPacket => 0,
            Self::Start => 1,
            Self::Logoff => 2,
            Self::Key => 3,
            Self::Other(other) => other,
        }
    }
}

/// An EAPOL packet, as it follows the EtherType. Octets beyond its length are Ethernet's padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EapolPacket<'a> {
    /// The sender's protocol version.
    pub version: u8,
    /// The packet's type.
    pub kind: EapolPacketType,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> EapolPacket<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    /// The octets end before the header or the announced body does.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TruncatedInputError> {
        let mut r = OctetReader::new(bytes);
        let (version, kind, length) = (r.read_u8()?, r.read_u8()?, r.read_u16()?);
        Ok(Self {
            version,
            kind: EapolPacketType::from_octet(kind),
            body: r.read_bytes(usize::from(length))?,
        })
    }
}

/// An Ethernet II frame without frame check sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EthernetFrame<'a> {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// The protocol of the payload.
    pub ethertype: u16,
    /// The octets after the EtherType.
    pub payload: &'a [u8],
}

impl<'a> EthernetFrame<'a> {
    /// Parses a frame.
    ///
    /// # Errors
    /// The octets are fewer than a header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TruncatedInputError> {
        let mut r = OctetReader::new(bytes);
        Ok(Self {
            destination: r.read_array()?,
            source: r.read_array()?,
            ethertype: r.read_u16()?,
            payload: r.take_rest(),
        })
    }
}

/// Appends an Ethernet II frame with an EAPOL packet. Truncates a body to 65535 octets, the longest EAP packet.
pub fn emit_frame(
    out: &mut Vec<u8>,
    destination: [u8; 6],
    source: [u8; 6],
    kind: EapolPacketType,
    body: &[u8],
) {
    let body = &body[..body.len().min(usize::from(u16::MAX))];
    let mut header = [0; HEADERS];
    header[..6].copy_from_slice(&destination);
    header[6..12].copy_from_slice(&source);
    header[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    (header[14], header[15]) = (VERSION, kind.to_octet());
    header[16..].copy_from_slice(&(body.len() as u16).to_be_bytes());
    out.reserve(HEADERS + body.len());
    out.extend_from_slice(&header);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_start_frame_is_as_the_standard_writes_it() {
        let mut out = Vec::new();
        emit_frame(&mut out, PAE_GROUP, [2, 0, 0, 0, 0, 1], EapolPacketType::Start, &[]);
        assert_eq!(out, [1, 0x80, 0xc2, 0, 0, 3, 2, 0, 0, 0, 0, 1, 0x88, 0x8e, 2, 1, 0, 0]);
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(to: [u8; 6], from: [u8; 6], kind: u8, body: Vec<u8>, padding in 0usize..50) {
            let mut out = Vec::new();
            emit_frame(&mut out, to, from, EapolPacketType::from_octet(kind), &body);
            out.resize(out.len() + padding, 0);
            let frame = EthernetFrame::parse(&out).unwrap();
            prop_assert_eq!((frame.destination, frame.source, frame.ethertype), (to, from, ETHERTYPE));
            let eapol = EapolPacket::parse(frame.payload).unwrap();
            prop_assert_eq!((eapol.kind, eapol.body), (EapolPacketType::from_octet(kind), &body[..]));
        }
        #[test]
        fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
            prop_assert!(crate::fuzz::fuzz_eapol(&bytes));
        }
    }
}
