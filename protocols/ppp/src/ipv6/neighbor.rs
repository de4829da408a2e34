//! Router Solicitation and Advertisement (RFC 4861 §4.1, §4.2).

use super::Ipv6Prefix;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use usher_core::{OctetReader, OctetWriter};

/// ICMPv6 types.
pub(crate) const SOLICITATION: u8 = 133;
pub(crate) const ADVERTISEMENT: u8 = 134;
/// Options.
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;

/// A Prefix Information option (RFC 4861 §4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixInformation {
    /// The prefix.
    pub prefix: Ipv6Prefix,
    /// True if the prefix's addresses are on the link.
    pub on_link: bool,
    /// True if hosts may form addresses from it (RFC 4862).
    pub autonomous: bool,
    /// Valid lifetime in seconds; `u32::MAX`: infinite.
    pub valid: u32,
    /// Preferred lifetime in seconds, at most the valid lifetime.
    pub preferred: u32,
}

/// A Router Advertisement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RouterAdvertisement {
    /// Hop limit for the hosts' packets; 0: unspecified.
    pub hop_limit: u8,
    /// True if DHCPv6 gives addresses.
    pub managed: bool,
    /// True if DHCPv6 gives other configuration.
    pub other: bool,
    /// Seconds for which this is a default router; 0: it is not a default router.
    pub lifetime: u16,
    /// Milliseconds for which a neighbour counts as reachable; 0: unspecified.
    pub reachable: u32,
    /// Milliseconds between Neighbor Solicitations; 0: unspecified.
    pub retransmit: u32,
    /// The link's MTU.
    pub mtu: Option<u32>,
    /// The link's prefixes.
    pub prefixes: Vec<PrefixInformation>,
}

/// Parses options. `None`: a length is wrong, and the message is discarded (RFC 4861 §6.1).
fn parse_options(octets: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let (mut r, mut all) = (OctetReader::new(octets), Vec::new());
    while !r.is_empty() {
        let (kind, eighths) = (r.read_u8().ok()?, r.read_u8().ok()?);
        all.push((kind, r.read_bytes((usize::from(eighths) * 8).checked_sub(2)?).ok()?));
    }
    Some(all)
}

/// True if the part of a Router Solicitation after its checksum is well-formed.
pub(crate) fn is_solicitation(body: &[u8]) -> bool {
    body.get(4..).is_some_and(|rest| parse_options(rest).is_some())
}

/// Returns a Router Solicitation with a checksum of zero.
pub(crate) fn router_solicitation() -> Vec<u8> {
    [SOLICITATION, 0, 0, 0, 0, 0, 0, 0].into()
}

impl RouterAdvertisement {
    /// Parses an advertisement from after its checksum. `None`: it is too short, or a length is wrong. Ignores unknown
    /// options, and prefixes with a preferred lifetime above the valid one (RFC 4862 §5.5.3).
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut r = OctetReader::new(body);
        let (hop_limit, flags, lifetime) = (r.read_u8().ok()?, r.read_u8().ok()?, r.read_u16().ok()?);
        let (reachable, retransmit) = (r.read_u32().ok()?, r.read_u32().ok()?);
        let mut this = Self {
            hop_limit,
            managed: flags & 0x80 != 0,
            other: flags & 0x40 != 0,
            lifetime,
            reachable,
            retransmit,
            ..Self::default()
        };
        for (kind, data) in parse_options(r.take_rest())? {
            let mut r = OctetReader::new(data);
            match kind {
                MTU if data.len() == 6 => {
                    r.read_u16().ok()?;
                    this.mtu = r.read_u32().ok();
                }
                PREFIX_INFORMATION if data.len() == 30 => {
                    let (length, flags) = (r.read_u8().ok()?, r.read_u8().ok()?);
                    let (valid, preferred, _) = (r.read_u32().ok()?, r.read_u32().ok()?, r.read_u32().ok()?);
                    let Some(prefix) = Ipv6Prefix::new(Ipv6Addr::from(r.read_array().ok()?), length) else {
                        continue;
                    };
                    if preferred <= valid {
                        let (on_link, autonomous) = (flags & 0x80 != 0, flags & 0x40 != 0);
                        this.prefixes.push(PrefixInformation {
                            prefix,
                            on_link,
                            autonomous,
                            valid,
                            preferred,
                        });
                    }
                }
                // RFC 4861, 9: unknown options are ignored.
                _ => {}
            }
        }
        Some(this)
    }

    /// Returns the encoded message with a checksum of zero.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = OctetWriter::new(&mut out);
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        w.write_u8(ADVERTISEMENT)
            .write_u8(0)
            .write_u16(0)
            .write_u8(self.hop_limit)
            .write_u8(flags)
            .write_u16(self.lifetime);
        w.write_u32(self.reachable).write_u32(self.retransmit);
        if let Some(mtu) = self.mtu {
            w.write_u8(MTU).write_u8(1).write_u16(0).write_u32(mtu);
        }
        for one in &self.prefixes {
            let flags = u8::from(one.on_link) << 7 | u8::from(one.autonomous) << 6;
            w.write_u8(PREFIX_INFORMATION).write_u8(4).write_u8(one.prefix.prefix_length()).write_u8(flags);
            w.write_u32(one.valid)
                .write_u32(one.preferred)
                .write_u32(0)
                .write_bytes(&one.prefix.address().octets());
        }
        out
    }
}
