//! PPP's protocols and control packets (RFC 1661 §2, §5): checked views, and writers into a caller's buffer.

use alloc::vec::Vec;
use core::fmt;
use usher_core::{OctetReader, OctetWriter};

/// Octets of a control packet's header.
pub const HEADER: usize = 4;
/// Default maximum octets of a packet (RFC 1661 §6.1).
pub const DEFAULT_MRU: u16 = 1500;

/// The protocol of a PPP packet (RFC 1661 §2, IANA's registry). An open set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PppProtocol(pub u16);

impl PppProtocol {
    /// An IPv4 packet.
    pub const IPV4: Self = Self(0x0021);
    /// An IPv6 packet.
    pub const IPV6: Self = Self(0x0057);
    /// The IP Control Protocol (RFC 1332).
    pub const IPCP: Self = Self(0x8021);
    /// The IPv6 Control Protocol (RFC 5072).
    pub const IPV6CP: Self = Self(0x8057);
    /// The Link Control Protocol (RFC 1661).
    pub const LCP: Self = Self(0xc021);
    /// The Password Authentication Protocol (RFC 1334).
    pub const PAP: Self = Self(0xc023);
    /// The Challenge Handshake Authentication Protocol (RFC 1994).
    pub const CHAP: Self = Self(0xc223);
    /// EAP (RFC 3748 §3.1).
    pub const EAP: Self = Self(0xc227);

    /// Returns the protocol of a PPP packet and its information field; `None`: the packet is too short.
    #[must_use]
    pub fn split_packet(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (protocol, information) = packet.split_first_chunk::<2>()?;
        Some((Self(u16::from_be_bytes(*protocol)), information))
    }
}

impl fmt::Display for PppProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::IPV4 => "IPv4",
            Self::IPV6 => "IPv6",
            Self::IPCP => "IPCP",
            Self::IPV6CP => "IPv6CP",
            Self::LCP => "LCP",
            Self::PAP => "PAP",
            Self::CHAP => "CHAP",
            Self::EAP => "EAP",
            Self(other) => return write!(f, "protocol {other:#06x}"),
        })
    }
}

impl fmt::Debug for PppProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The code of a control packet (RFC 1661 §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlCode(pub u8);

impl ControlCode {
    /// Configure-Request: the sender's options.
    pub const CONFIGURE_REQUEST: Self = Self(1);
    /// Configure-Ack: accepts all options.
    pub const CONFIGURE_ACK: Self = Self(2);
    /// Configure-Nak: suggests other values.
    pub const CONFIGURE_NAK: Self = Self(3);
    /// Configure-Reject: refuses options.
    pub const CONFIGURE_REJECT: Self = Self(4);
    /// Terminate-Request: closes the protocol.
    pub const TERMINATE_REQUEST: Self = Self(5);
    /// Terminate-Ack: confirms the close.
    pub const TERMINATE_ACK: Self = Self(6);
    /// Code-Reject: the code is unknown.
    pub const CODE_REJECT: Self = Self(7);
    /// Protocol-Reject: the protocol is unknown (LCP only).
    pub const PROTOCOL_REJECT: Self = Self(8);
    /// Echo-Request (LCP only).
    pub const ECHO_REQUEST: Self = Self(9);
    /// Echo-Reply (LCP only).
    pub const ECHO_REPLY: Self = Self(10);
    /// Discard-Request: the receiver ignores it (LCP only).
    pub const DISCARD_REQUEST: Self = Self(11);
}

impl fmt::Display for ControlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::CONFIGURE_REQUEST => "Configure-Request",
            Self::CONFIGURE_ACK => "Configure-Ack",
            Self::CONFIGURE_NAK => "Configure-Nak",
            Self::CONFIGURE_REJECT => "Configure-Reject",
            Self::TERMINATE_REQUEST => "Terminate-Request",
            Self::TERMINATE_ACK => "Terminate-Ack",
            Self::CODE_REJECT => "Code-Reject",
            Self::PROTOCOL_REJECT => "Protocol-Reject",
            Self::ECHO_REQUEST => "Echo-Request",
            Self::ECHO_REPLY => "Echo-Reply",
            Self::DISCARD_REQUEST => "Discard-Request",
            Self(other) => return write!(f, "code {other}"),
        })
    }
}

impl fmt::Debug for ControlCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The reason why octets are not a control packet. RFC 1661 §5: such packets are silently discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// Fewer octets than the header or than Length.
    #[error("truncated: Length exceeds the {0} octets received")]
    Truncated(usize),
    /// Length is shorter than the header.
    #[error("a Length of {0} is too short")]
    ShortLength(u16),
}

/// A control packet with a checked header. PAP and CHAP have the same header, with codes of their own. Octets beyond
/// Length are padding and are not included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ControlPacket<'a> {
    /// The code.
    pub code: ControlCode,
    /// Matches replies to requests.
    pub identifier: u8,
    /// The data after the header.
    pub data: &'a [u8],
}

impl<'a> ControlPacket<'a> {
    /// Parses a control packet.
    ///
    /// # Errors
    /// The octets are not a control packet.
    pub fn parse(octets: &'a [u8]) -> Result<Self, PacketError> {
        let truncated = |_| PacketError::Truncated(octets.len());
        let mut r = OctetReader::new(octets);
        let (code, identifier) = (r.read_u8().map_err(truncated)?, r.read_u8().map_err(truncated)?);
        let length = r.read_u16().map_err(truncated)?;
        // RFC 1661, 5: a wrong Length is an error, and octets beyond it are padding.
        let data = usize::from(length).checked_sub(HEADER).ok_or(PacketError::ShortLength(length))?;
        Ok(Self { code: ControlCode(code), identifier, data: r.read_bytes(data).map_err(truncated)? })
    }
    /// Appends the packet. Truncates data that exceeds Length.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let data = &self.data[..self.data.len().min(usize::from(u16::MAX) - HEADER)];
        let length = (HEADER + data.len()) as u16;
        OctetWriter::new(out)
            .write_u8(self.code.0)
            .write_u8(self.identifier)
            .write_u16(length)
            .write_bytes(data);
    }
    /// Returns the encoded packet.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + self.data.len());
        self.emit(&mut out);
        out
    }
}

impl fmt::Display for ControlPacket<'_> {
    /// `Configure-Request 7, 14 octets`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}, {} octets", self.code, self.identifier, self.data.len())
    }
}

impl fmt::Debug for ControlPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A configuration option (RFC 1661 §6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfigOption<'a> {
    /// The type, with a meaning of its own in each protocol.
    pub kind: u8,
    /// The data after type and length.
    pub data: &'a [u8],
}

/// A configuration option with a length below its header or beyond the packet. RFC 1661 §6: the packet is discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the option at octet {offset} has a length of {length}, with {left} octets left")]
pub struct ConfigOptionError {
    /// The option's offset among the options.
    pub offset: usize,
    /// The option's length field.
    pub length: u8,
    /// Octets from the option to the end.
    pub left: usize,
}

impl<'a> ConfigOption<'a> {
    /// Parses all options of a packet's data.
    ///
    /// # Errors
    /// A length is wrong.
    pub fn parse_all_options(octets: &'a [u8]) -> Result<Vec<Self>, ConfigOptionError> {
        let (mut rest, mut options) = (octets, Vec::new());
        while let Some((&kind, after)) = rest.split_first() {
            let length = after.first().copied().unwrap_or(0);
            let wrong = ConfigOptionError { offset: octets.len() - rest.len(), length, left: rest.len() };
            let data = rest.get(2..usize::from(length)).ok_or(wrong)?;
            options.push(Self { kind, data });
            rest = rest.get(usize::from(length)..).ok_or(wrong)?;
        }
        Ok(options)
    }
    /// Appends the option. Truncates data that exceeds its length field.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let data = &self.data[..self.data.len().min(usize::from(u8::MAX) - 2)];
        OctetWriter::new(out).write_u8(self.kind).write_u8(data.len() as u8 + 2).write_bytes(data);
    }
}
