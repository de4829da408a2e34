//! Traffic Selector payloads (RFC 7296 §3.13).

use crate::ParseError;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::{Reader, Writer};
pub use usher_esp::TrafficSelector;

const TS_IPV4_ADDR_RANGE: u8 = 7;
const TS_IPV6_ADDR_RANGE: u8 = 8;
/// Octets of a selector before its addresses.
const BEFORE: usize = 8;

/// A selector of a type that is not known here: it selects nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtherSelector {
    /// Its type.
    pub kind: u8,
    /// The octet in which others have their protocol.
    pub protocol: u8,
    /// The rest of it.
    pub data: Vec<u8>,
}

/// What traffic one side has, or would have. It is written with at most 255 selectors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TrafficSelectors {
    /// Those of addresses.
    pub selectors: Vec<TrafficSelector>,
    /// Those of types that are not known here, which are written after the others.
    pub others: Vec<OtherSelector>,
}

impl From<Vec<TrafficSelector>> for TrafficSelectors {
    fn from(selectors: Vec<TrafficSelector>) -> Self {
        Self { selectors, others: Vec::new() }
    }
}

impl TrafficSelectors {
    pub(super) fn takes(&self) -> usize {
        let others = self.others.iter().map(|other| size_of::<OtherSelector>() + other.data.len());
        size_of::<TrafficSelector>() * self.selectors.len() + others.sum::<usize>()
    }

    pub(super) fn parse(mut reader: Reader<'_>) -> Result<Self, ParseError> {
        let (count, _) = (reader.u8()?, reader.bytes(3)?);
        let mut all = Self::default();
        for _ in 0..count {
            let (kind, protocol, length) = (reader.u8()?, reader.u8()?, usize::from(reader.u16()?));
            let mut content = reader.sub(length.checked_sub(4).ok_or(ParseError::Length)?)?;
            let width = match kind {
                TS_IPV4_ADDR_RANGE => 4,
                TS_IPV6_ADDR_RANGE => 16,
                _ => {
                    let data = content.take_rest().to_vec();
                    all.others.push(OtherSelector { kind, protocol, data });
                    continue;
                }
            };
            if length != BEFORE + 2 * width {
                return Err(ParseError::Length);
            }
            let (start_port, end_port) = (content.u16()?, content.u16()?);
            let mut address = || -> Result<IpAddr, ParseError> {
                Ok(match kind {
                    TS_IPV4_ADDR_RANGE => Ipv4Addr::from(content.array::<4>()?).into(),
                    _ => Ipv6Addr::from(content.array::<16>()?).into(),
                })
            };
            let (start, end) = (address()?, address()?);
            all.selectors.push(TrafficSelector { protocol, start_port, end_port, start, end });
        }
        if reader.is_empty() { Ok(all) } else { Err(ParseError::Length) }
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8((self.selectors.len() + self.others.len()) as u8).zeros(3);
        for ts in &self.selectors {
            let (kind, width) =
                if ts.start.is_ipv4() { (TS_IPV4_ADDR_RANGE, 4) } else { (TS_IPV6_ADDR_RANGE, 16) };
            writer
                .u8(kind)
                .u8(ts.protocol)
                .u16(BEFORE as u16 + 2 * width)
                .u16(ts.start_port)
                .u16(ts.end_port);
            for address in [ts.start, ts.end] {
                match address {
                    IpAddr::V4(v4) => writer.bytes(&v4.octets()),
                    IpAddr::V6(v6) => writer.bytes(&v6.octets()),
                };
            }
        }
        for other in &self.others {
            writer.u8(other.kind).u8(other.protocol).u16(4 + other.data.len() as u16).bytes(&other.data);
        }
    }
}
