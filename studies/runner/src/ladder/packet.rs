//! Parses packets down to the transport payload. Any octets are safe to parse.

use super::name::{self, MessageLabel};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::OctetReader;
use usher_ppp::pppoe;

/// A packet, or a frame of a single link.
#[derive(Debug)]
pub(super) struct ParsedPacket<'a> {
    /// Source and destination of an IP packet.
    pub(super) between: Option<(IpAddr, IpAddr)>,
    /// The octets that are the same on every link.
    pub(super) octets: &'a [u8],
    pub(super) transport: TransportPayload<'a>,
}

/// The content of a packet.
#[derive(Debug)]
pub(super) enum TransportPayload<'a> {
    /// A frame with this label.
    Frame(MessageLabel),
    /// A UDP datagram or its first fragment: ports and the available payload.
    Datagram { ports: [u16; 2], payload: &'a [u8] },
    /// A TCP segment.
    Segment(TcpSegment<'a>),
    /// SCTP chunks.
    Chunks { ports: [u16; 2], chunks: Vec<SctpChunk<'a>> },
    /// Another protocol, by name.
    Other(&'static str),
    /// A later fragment of a datagram.
    LaterFragment,
}

/// A TCP segment (RFC 9293 §3.1).
#[derive(Debug)]
pub(super) struct TcpSegment<'a> {
    pub(super) ports: [u16; 2],
    pub(super) sequence: u32,
    pub(super) flags: u8,
    pub(super) payload: &'a [u8],
}

impl TcpSegment<'_> {
    pub(super) const FIN: u8 = 1;
    pub(super) const SYN: u8 = 2;
    pub(super) const RST: u8 = 4;
    pub(super) const ACK: u8 = 16;
}

/// An SCTP chunk (RFC 9260 §3.2).
#[derive(Debug)]
pub(super) struct SctpChunk<'a> {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) value: &'a [u8],
}

impl<'a> ParsedPacket<'a> {
    /// Parses a packet of a link; `None` if its protocol is unknown here.
    pub(super) fn parse(octets: &'a [u8], ethernet: bool) -> Option<Self> {
        if !ethernet {
            return Self::parse_ip(octets);
        }
        let kind = u16::from_be_bytes(*octets.get(12..)?.first_chunk()?);
        match kind {
            0x0800 | 0x86dd => Self::parse_ip(&octets[14..]),
            0x8863 | 0x8864 => {
                let frame = pppoe::PppoeFrame::parse(octets).ok()?;
                match usher_ppp::packet::PppProtocol::split_packet(frame.payload) {
                    Some((
                        usher_ppp::packet::PppProtocol::IPV4 | usher_ppp::packet::PppProtocol::IPV6,
                        packet,
                    )) if frame.code == pppoe::PppoeCode::SESSION => Self::parse_ip(packet),
                    _ => Some(Self::from_frame(octets, name::name_pppoe(&frame))),
                }
            }
            _ => Some(Self::from_frame(octets, name::label_link_frame(kind, &octets[14..])?)),
        }
    }

    const fn from_frame(octets: &'a [u8], named: MessageLabel) -> Self {
        Self { between: None, octets, transport: TransportPayload::Frame(named) }
    }

    /// Parses an IP packet (RFC 791, RFC 8200); the fragment header is the only extension header that it knows.
    fn parse_ip(octets: &'a [u8]) -> Option<Self> {
        let mut r = OctetReader::new(octets);
        let first = r.read_u8().ok()?;
        let (between, protocol, payload, offset) = match first >> 4 {
            4 => {
                r.read_u8().ok()?;
                let length = usize::from(r.read_u16().ok()?);
                r.read_u16().ok()?;
                let fragment = r.read_u16().ok()?;
                r.read_u8().ok()?;
                let protocol = r.read_u8().ok()?;
                r.read_u16().ok()?;
                let (source, destination) =
                    (Ipv4Addr::from(r.read_array::<4>().ok()?), Ipv4Addr::from(r.read_array::<4>().ok()?));
                let header = usize::from(first & 15) * 4;
                let payload = octets.get(header..length.min(octets.len()))?;
                ((IpAddr::V4(source), IpAddr::V4(destination)), protocol, payload, fragment & 0x1fff)
            }
            6 => {
                r.read_bytes(3).ok()?;
                let length = usize::from(r.read_u16().ok()?);
                let mut protocol = r.read_u8().ok()?;
                r.read_u8().ok()?;
                let (source, destination) =
                    (Ipv6Addr::from(r.read_array::<16>().ok()?), Ipv6Addr::from(r.read_array::<16>().ok()?));
                let mut payload = r.read_bytes(length.min(r.remaining())).ok()?;
                let mut offset = 0;
                if let (44, [next, _, high, low, _, _, _, _, rest @ ..]) = (protocol, payload) {
                    (protocol, offset, payload) = (*next, u16::from_be_bytes([*high, *low]) >> 3, rest);
                }
                ((IpAddr::V6(source), IpAddr::V6(destination)), protocol, payload, offset)
            }
            _ => return None,
        };
        let transport = if offset > 0 {
            TransportPayload::LaterFragment
        } else {
            TransportPayload::parse(protocol, payload)?
        };
        Some(Self { between: Some(between), octets, transport })
    }
}

impl<'a> TransportPayload<'a> {
    fn parse(protocol: u8, payload: &'a [u8]) -> Option<Self> {
        let mut r = OctetReader::new(payload);
        Some(match protocol {
            6 => {
                let ports = [r.read_u16().ok()?, r.read_u16().ok()?];
                let sequence = r.read_u32().ok()?;
                r.read_u32().ok()?;
                let (words, flags) = (r.read_u8().ok()? >> 4, r.read_u8().ok()?);
                let payload = payload.get(usize::from(words) * 4..)?;
                Self::Segment(TcpSegment { ports, sequence, flags, payload })
            }
            17 => {
                let ports = [r.read_u16().ok()?, r.read_u16().ok()?];
                r.read_u32().ok()?;
                Self::Datagram { ports, payload: r.take_rest() }
            }
            132 => {
                let ports = [r.read_u16().ok()?, r.read_u16().ok()?];
                r.read_bytes(8).ok()?;
                let mut chunks = Vec::new();
                while let Some((kind, flags, length)) = read_chunk_header(&mut r) {
                    let Some(rest) = usize::from(length).checked_sub(4) else { break };
                    let Ok(value) = r.read_bytes(rest.min(r.remaining())) else { break };
                    chunks.push(SctpChunk { kind, flags, value });
                    let padding = rest.next_multiple_of(4) - rest;
                    if r.read_bytes(padding).is_err() {
                        break;
                    }
                }
                Self::Chunks { ports, chunks }
            }
            1 | 58 => Self::Other("ICMP"),
            50 => Self::Other("ESP"),
            _ => Self::Other("IP"),
        })
    }
}

fn read_chunk_header(r: &mut OctetReader<'_>) -> Option<(u8, u8, u16)> {
    Some((r.read_u8().ok()?, r.read_u8().ok()?, r.read_u16().ok()?))
}
