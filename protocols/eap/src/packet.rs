//! EAP packets (RFC 3748 §4): a checked view, and writers into a caller's buffer.

use alloc::vec::Vec;
use core::fmt;

/// Octets of the header that every packet has.
pub const HEADER: usize = 4;

/// Octets that hold most packets of short methods. A reused buffer then grows once.
const USUAL: usize = 32;

/// The code of a packet (RFC 3748 §4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EapCode {
    /// From authenticator to peer.
    Request,
    /// From peer to authenticator.
    Response,
    /// The authentication succeeded.
    Success,
    /// The authentication failed.
    Failure,
}

impl EapCode {
    const fn to_octet(self) -> u8 {
        match self {
            Self::Request => 1,
            Self::Response => 2,
            Self::Success => 3,
            Self::Failure => 4,
        }
    }
}

/// The type of a request or response (RFC 3748 §5 and the IANA registry).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EapType(pub u8);

impl EapType {
    /// Asks for or carries the peer's identity.
    pub const IDENTITY: Self = Self(1);
    /// A message to show to the user.
    pub const NOTIFICATION: Self = Self(2);
    /// The peer's request for another method.
    pub const NAK: Self = Self(3);
    /// EAP-MD5-Challenge.
    pub const MD5: Self = Self(4);
    /// Generic token card (RFC 3748 §5.6).
    pub const GTC: Self = Self(6);
    /// EAP-TLS (RFC 5216, RFC 9190).
    pub const TLS: Self = Self(13);
    /// EAP-TTLS (RFC 5281).
    pub const TTLS: Self = Self(21);
    /// PEAP (draft-josefsson-pppext-eap-tls-eap).
    pub const PEAP: Self = Self(25);
    /// EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2).
    pub const MSCHAPV2: Self = Self(26);
    /// EAP-TLV extensions inside PEAP (draft-hiller-eap-tlv).
    pub const TLV: Self = Self(33);
    /// A type with a vendor, in seven more octets (RFC 3748 §5.7).
    pub const EXPANDED: Self = Self(254);
}

impl fmt::Display for EapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::IDENTITY => "Identity",
            Self::NOTIFICATION => "Notification",
            Self::NAK => "Nak",
            Self::MD5 => "MD5-Challenge",
            Self::GTC => "GTC",
            Self::TLS => "EAP-TLS",
            Self::TTLS => "EAP-TTLS",
            Self::PEAP => "PEAP",
            Self::MSCHAPV2 => "MSCHAPv2",
            Self::TLV => "EAP-TLV",
            Self::EXPANDED => "Expanded",
            Self(other) => return write!(f, "Type {other}"),
        })
    }
}
impl fmt::Debug for EapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A parse error of a packet. The receiver silently discards the packet (RFC 3748 §4.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// Fewer octets than the header or its Length.
    #[error("truncated: the Length field exceeds the {0} received octets")]
    Truncated(usize),
    /// A Length too short for the packet's code.
    #[error("the Length field, {0}, is too small")]
    ShortLength(u16),
    /// The code is not 1 to 4.
    #[error("unknown code {0}")]
    UnknownCode(u8),
}

/// A packet whose header has been checked. Octets beyond Length are padding and not part of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EapPacket<'a> {
    code: EapCode,
    identifier: u8,
    /// Type and type data. Empty for Success and Failure.
    body: &'a [u8],
}

impl<'a> EapPacket<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    /// The octets are not an EAP packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let truncated = PacketError::Truncated(bytes.len());
        let Some((&[code, identifier, high, low], rest)) = bytes.split_first_chunk() else {
            return Err(truncated);
        };
        let length = u16::from_be_bytes([high, low]);
        let code = match code {
            1 => EapCode::Request,
            2 => EapCode::Response,
            3 => EapCode::Success,
            4 => EapCode::Failure,
            // RFC 3748, 4: other codes are discarded.
            other => return Err(PacketError::UnknownCode(other)),
        };
        let needed = if matches!(code, EapCode::Request | EapCode::Response) { HEADER + 1 } else { HEADER };
        let body = usize::from(length)
            .checked_sub(HEADER)
            .filter(|_| usize::from(length) >= needed)
            .ok_or(PacketError::ShortLength(length))?;
        // RFC 3748, 4, 4.1: a short packet is discarded, octets after Length are ignored.
        let body = rest.get(..body).ok_or(truncated)?;
        // RFC 3748, 2.2, 4.2: Success and Failure have no data.
        let body = if needed == HEADER { &[] } else { body };
        Ok(Self { code, identifier, body })
    }

    /// The packet's code.
    pub const fn code(&self) -> EapCode {
        self.code
    }
    /// The identifier, which a response copies from its request.
    pub const fn identifier(&self) -> u8 {
        self.identifier
    }
    /// The type. `None` for Success and Failure.
    pub fn kind(&self) -> Option<EapType> {
        self.body.first().copied().map(EapType)
    }
    /// The type data.
    pub fn data(&self) -> &'a [u8] {
        self.body.get(1..).unwrap_or_default()
    }
    /// The types that a legacy Nak asks for (RFC 3748 §5.3.1). Empty for the value 0 ("none") and for all other
    /// packets.
    pub fn wanted_types(&self) -> impl Iterator<Item = EapType> + 'a {
        let list = if self.kind() == Some(EapType::NAK) { self.data() } else { &[] };
        list.iter().filter(|t| **t != 0).map(|t| EapType(*t))
    }
}

impl fmt::Display for EapPacket<'_> {
    /// Formats as `Request 7 MD5-Challenge, 17 octets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.code, self.identifier)?;
        if let Some(kind) = self.kind() {
            write!(f, " {kind}, {} octets", self.data().len())?;
        }
        Ok(())
    }
}
impl fmt::Debug for EapPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Appends a request or response of this type. Truncates data that Length cannot represent, which no method here
/// produces.
pub fn emit_packet(out: &mut Vec<u8>, code: EapCode, identifier: u8, kind: EapType, data: &[u8]) {
    let data = &data[..data.len().min(usize::from(u16::MAX) - HEADER - 1)];
    let [high, low] = ((HEADER + 1 + data.len()) as u16).to_be_bytes();
    out.reserve((HEADER + 1 + data.len()).max(USUAL));
    out.extend_from_slice(&[code.to_octet(), identifier, high, low, kind.0]);
    out.extend_from_slice(data);
}

/// Appends a Success or Failure (RFC 3748 §4.2).
pub fn emit_success_or_failure(out: &mut Vec<u8>, success: bool, identifier: u8) {
    let code = if success { EapCode::Success } else { EapCode::Failure };
    out.extend_from_slice(&[code.to_octet(), identifier, 0, HEADER as u8]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_packet_says_why() {
        assert_eq!(EapPacket::parse(&[1, 2, 0]), Err(PacketError::Truncated(3)));
        assert_eq!(EapPacket::parse(&[1, 2, 0, 6, 1]), Err(PacketError::Truncated(5)));
        assert_eq!(EapPacket::parse(&[1, 2, 0, 4]), Err(PacketError::ShortLength(4)));
        assert_eq!(EapPacket::parse(&[3, 2, 0, 3]), Err(PacketError::ShortLength(3)));
        assert_eq!(EapPacket::parse(&[9, 2, 0, 4]), Err(PacketError::UnknownCode(9)));
    }

    #[test]
    fn padding_is_no_part_of_a_packet() {
        let p = EapPacket::parse(&[2, 5, 0, 7, 3, 13, 0, 99, 99]).unwrap();
        assert_eq!((p.kind(), p.data()), (Some(EapType::NAK), &[13, 0][..]));
        assert_eq!(p.wanted_types().collect::<Vec<_>>(), [EapType::TLS]);
        assert_eq!(p.to_string(), "Response 5 Nak, 2 octets");
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_parsed(request: bool, id: u8, kind: u8, data: Vec<u8>) {
            let code = if request { EapCode::Request } else { EapCode::Response };
            let mut out = Vec::new();
            emit_packet(&mut out, code, id, EapType(kind), &data);
            let p = EapPacket::parse(&out).unwrap();
            prop_assert_eq!((p.code(), p.identifier(), p.kind(), p.data()), (code, id, Some(EapType(kind)), &data[..]));
        }
        #[test]
        fn arbitrary_octets_never_panic(bytes: Vec<u8>) {
            prop_assert!(crate::fuzz::fuzz_packet(&bytes));
        }
    }
}
