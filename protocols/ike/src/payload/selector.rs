//! Traffic Selector payloads (RFC 7296 §3.13).

use crate::ParseError;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{OctetReader, OctetWriter};
pub use usher_esp::TrafficSelector;

const TS_IPV4_ADDR_RANGE: u8 = 7;
const TS_IPV6_ADDR_RANGE: u8 = 8;
/// Octets of a selector in front of its addresses.
const BEFORE: usize = 8;

/// A selector of an unknown type. It matches no traffic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownTrafficSelector {
    /// Its type.
    pub kind: u8,
    /// The octet at the place of the protocol.
    pub protocol: u8,
    /// The remaining octets.
    pub data: Vec<u8>,
}

/// The traffic selectors of one side, at most 255 when written.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TrafficSelectors {
    /// Selectors by address.
    pub selectors: Vec<TrafficSelector>,
    /// Selectors of unknown types, written after the others.
    pub unknown_selectors: Vec<UnknownTrafficSelector>,
}

impl From<Vec<TrafficSelector>> for TrafficSelectors {
    fn from(selectors: Vec<TrafficSelector>) -> Self {
        Self { selectors, unknown_selectors: Vec::new() }
    }
}

impl TrafficSelectors {
    pub(super) fn memory_octets(&self) -> usize {
        let others =
            self.unknown_selectors.iter().map(|other| size_of::<UnknownTrafficSelector>() + other.data.len());
        size_of::<TrafficSelector>() * self.selectors.len() + others.sum::<usize>()
    }

    pub(super) fn parse(mut reader: OctetReader<'_>) -> Result<Self, ParseError> {
        let (count, _) = (reader.read_u8()?, reader.read_bytes(3)?);
        let mut all = Self::default();
        for _ in 0..count {
            let (kind, protocol, length) =
                (reader.read_u8()?, reader.read_u8()?, usize::from(reader.read_u16()?));
            let mut content = reader.sub_reader(length.checked_sub(4).ok_or(ParseError::Length)?)?;
            let width = match kind {
                TS_IPV4_ADDR_RANGE => 4,
                TS_IPV6_ADDR_RANGE => 16,
                _ => {
                    let data = content.take_rest().to_vec();
                    all.unknown_selectors.push(UnknownTrafficSelector { kind, protocol, data });
                    continue;
                }
            };
            if length != BEFORE + 2 * width {
                return Err(ParseError::Length);
            }
            let (start_port, end_port) = (content.read_u16()?, content.read_u16()?);
            let mut address = || -> Result<IpAddr, ParseError> {
                Ok(match kind {
                    TS_IPV4_ADDR_RANGE => Ipv4Addr::from(content.read_array::<4>()?).into(),
                    _ => Ipv6Addr::from(content.read_array::<16>()?).into(),
                })
            };
            let (start, end) = (address()?, address()?);
            all.selectors.push(TrafficSelector { protocol, start_port, end_port, start, end });
        }
        if reader.is_empty() { Ok(all) } else { Err(ParseError::Length) }
    }

    pub(super) fn emit(&self, writer: &mut OctetWriter<'_>) {
        writer.write_u8((self.selectors.len() + self.unknown_selectors.len()) as u8).write_zeros(3);
        for ts in &self.selectors {
            let (kind, width) =
                if ts.start.is_ipv4() { (TS_IPV4_ADDR_RANGE, 4) } else { (TS_IPV6_ADDR_RANGE, 16) };
            writer
                .write_u8(kind)
                .write_u8(ts.protocol)
                .write_u16(BEFORE as u16 + 2 * width)
                .write_u16(ts.start_port)
                .write_u16(ts.end_port);
            for address in [ts.start, ts.end] {
                match address {
                    IpAddr::V4(v4) => writer.write_bytes(&v4.octets()),
                    IpAddr::V6(v6) => writer.write_bytes(&v6.octets()),
                };
            }
        }
        for other in &self.unknown_selectors {
            writer
                .write_u8(other.kind)
                .write_u8(other.protocol)
                .write_u16(4 + other.data.len() as u16)
                .write_bytes(&other.data);
        }
    }
}
