//! DHCPv6 messages, limited to prefix delegation and name servers (RFC 8415 §8, §21).

use super::Ipv6Prefix;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use usher_core::{OctetReader, OctetWriter};

/// A message type (RFC 8415 §7.3). An open set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dhcpv6MessageType(pub u8);

impl Dhcpv6MessageType {
    /// Solicit: a client looks for servers.
    pub const SOLICIT: Self = Self(1);
    /// Advertise: a server offers its service.
    pub const ADVERTISE: Self = Self(2);
    /// Request: a client asks the chosen server.
    pub const REQUEST: Self = Self(3);
    /// Renew: a client asks its server to extend lifetimes.
    pub const RENEW: Self = Self(5);
    /// Rebind: a client asks any server to extend lifetimes.
    pub const REBIND: Self = Self(6);
    /// Reply: a server's answer to all other messages.
    pub const REPLY: Self = Self(7);
    /// Release: a client gives its prefixes back.
    pub const RELEASE: Self = Self(8);
    /// Information-request: a client asks for name servers only.
    pub const INFORMATION_REQUEST: Self = Self(11);
}

/// A status code (RFC 8415 §21.13). An open set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dhcpv6Status(pub u16);

impl Dhcpv6Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// NoAddrsAvail: the server has no addresses.
    pub const NO_ADDRESSES: Self = Self(2);
    /// NoBinding: the server does not know the association.
    pub const NO_BINDING: Self = Self(3);
    /// NoPrefixAvail: the server has no prefixes.
    pub const NO_PREFIXES: Self = Self(6);
}

/// Option codes (RFC 8415 §24, table 4).
mod option {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const OPTION_REQUEST: u16 = 6;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const ELAPSED_TIME: u16 = 8;
    pub(super) const STATUS_CODE: u16 = 13;
    pub(super) const DNS_SERVERS: u16 = 23;
    pub(super) const IA_PD: u16 = 25;
    pub(super) const IA_PREFIX: u16 = 26;
    pub(super) const SOL_MAX_RT: u16 = 82;
}

/// A delegated prefix (RFC 8415 §21.22).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IaPrefix {
    /// The prefix. In a client's request the address may be zero, and only the length counts.
    pub prefix: Ipv6Prefix,
    /// Preferred lifetime in seconds.
    pub preferred: u32,
    /// Valid lifetime in seconds.
    pub valid: u32,
}

/// An identity association for prefix delegation (RFC 8415 §21.21).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IaPd {
    /// The client's identifier of the association.
    pub iaid: u32,
    /// Seconds until the client sends Renew; 0: the client's choice.
    pub t1: u32,
    /// Seconds until the client sends Rebind; 0: the client's choice.
    pub t2: u32,
    /// The prefixes.
    pub prefixes: Vec<IaPrefix>,
    /// The status of the association.
    pub status: Option<Dhcpv6Status>,
}

/// A DHCPv6 message between a client and a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dhcpv6Message<'a> {
    /// The message type.
    pub kind: Dhcpv6MessageType,
    /// The transaction id.
    pub transaction: [u8; 3],
    /// The client's DUID.
    pub client: Option<&'a [u8]>,
    /// The server's DUID.
    pub server: Option<&'a [u8]>,
    /// Hundredths of a second since the client began the exchange.
    pub elapsed: Option<u16>,
    /// The server's preference, 0 to 255; clients choose the highest.
    pub preference: Option<u8>,
    /// The IAIDs of address associations. This server has no addresses and answers NoAddrsAvail.
    pub addresses: Vec<u32>,
    /// The associations of prefixes.
    pub delegations: Vec<IaPd>,
    /// The status of the message.
    pub status: Option<Dhcpv6Status>,
    /// True if the client requests name servers.
    pub wants_dns: bool,
    /// The name servers.
    pub dns: Vec<Ipv6Addr>,
}

/// Calls `with` for each option with its code and data. `None`: a length exceeds the list, or `with` failed.
fn for_each_dhcpv6_option<'a>(
    octets: &'a [u8],
    mut with: impl FnMut(u16, &'a [u8]) -> Option<()>,
) -> Option<()> {
    let mut r = OctetReader::new(octets);
    while !r.is_empty() {
        let (code, length) = (r.read_u16().ok()?, r.read_u16().ok()?);
        with(code, r.read_bytes(length.into()).ok()?)?;
    }
    Some(())
}

fn parse_dhcpv6_status(data: &[u8]) -> Option<Dhcpv6Status> {
    Some(Dhcpv6Status(u16::from_be_bytes(*data.first_chunk()?)))
}

impl IaPd {
    fn parse(data: &[u8]) -> Option<Self> {
        let mut r = OctetReader::new(data);
        let mut this = Self {
            iaid: r.read_u32().ok()?,
            t1: r.read_u32().ok()?,
            t2: r.read_u32().ok()?,
            ..Self::default()
        };
        for_each_dhcpv6_option(r.take_rest(), |code, data| {
            match code {
                option::STATUS_CODE => this.status = Some(parse_dhcpv6_status(data)?),
                option::IA_PREFIX => {
                    let mut r = OctetReader::new(data);
                    let (preferred, valid, length) =
                        (r.read_u32().ok()?, r.read_u32().ok()?, r.read_u8().ok()?);
                    let prefix = Ipv6Prefix::new(Ipv6Addr::from(r.read_array().ok()?), length)?;
                    // RFC 8415, 21.22: a prefix with a preferred lifetime above the valid one is ignored.
                    if preferred <= valid {
                        this.prefixes.push(IaPrefix { prefix, preferred, valid });
                    }
                }
                _ => {}
            }
            Some(())
        })?;
        Some(this)
    }
    fn emit(&self, out: &mut Vec<u8>) {
        OctetWriter::new(out).write_u32(self.iaid).write_u32(self.t1).write_u32(self.t2);
        for one in &self.prefixes {
            let mut w = OctetWriter::new(out);
            w.write_u16(option::IA_PREFIX)
                .write_u16(25)
                .write_u32(one.preferred)
                .write_u32(one.valid)
                .write_u8(one.prefix.prefix_length());
            w.write_bytes(&one.prefix.address().octets());
        }
        if let Some(Dhcpv6Status(code)) = self.status {
            OctetWriter::new(out).write_u16(option::STATUS_CODE).write_u16(2).write_u16(code);
        }
    }
}

impl<'a> Dhcpv6Message<'a> {
    /// Creates a message without options.
    #[must_use]
    pub const fn new(kind: Dhcpv6MessageType, transaction: [u8; 3]) -> Self {
        Self {
            kind,
            transaction,
            client: None,
            server: None,
            elapsed: None,
            preference: None,
            addresses: Vec::new(),
            delegations: Vec::new(),
            status: None,
            wants_dns: false,
            dns: Vec::new(),
        }
    }
    /// Parses a message; `None`: it is too short, or a length is wrong. Unknown options are ignored.
    #[must_use]
    pub fn parse(octets: &'a [u8]) -> Option<Self> {
        let (&[kind, a, b, c], rest) = octets.split_first_chunk()?;
        let mut this = Self::new(Dhcpv6MessageType(kind), [a, b, c]);
        for_each_dhcpv6_option(rest, |code, data| {
            match code {
                option::CLIENT_ID => this.client = Some(data),
                option::SERVER_ID => this.server = Some(data),
                option::ELAPSED_TIME => this.elapsed = Some(u16::from_be_bytes(data.try_into().ok()?)),
                option::PREFERENCE => this.preference = Some(*data.first()?),
                option::IA_NA => this.addresses.push(u32::from_be_bytes(*data.first_chunk()?)),
                option::IA_PD => this.delegations.push(IaPd::parse(data)?),
                option::STATUS_CODE => this.status = Some(parse_dhcpv6_status(data)?),
                option::OPTION_REQUEST => {
                    this.wants_dns |= data.chunks(2).any(|code| code == option::DNS_SERVERS.to_be_bytes());
                }
                option::DNS_SERVERS => {
                    let (all, rest) = data.as_chunks::<16>();
                    if !rest.is_empty() {
                        return None;
                    }
                    this.dns.extend(all.iter().map(|octets| Ipv6Addr::from(*octets)));
                }
                _ => {}
            }
            Some(())
        })?;
        Some(this)
    }
    /// Returns the encoded message.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let [a, b, c] = self.transaction;
        let mut out = Vec::from([self.kind.0, a, b, c]);
        let mut put = |code: u16, data: &[u8]| {
            if let Ok(length) = u16::try_from(data.len()) {
                OctetWriter::new(&mut out).write_u16(code).write_u16(length).write_bytes(data);
            }
        };
        for (code, id) in [(option::CLIENT_ID, self.client), (option::SERVER_ID, self.server)] {
            if let Some(id) = id {
                put(code, id);
            }
        }
        if let Some(elapsed) = self.elapsed {
            put(option::ELAPSED_TIME, &elapsed.to_be_bytes());
        }
        if let Some(preference) = self.preference {
            put(option::PREFERENCE, &[preference]);
        }
        for iaid in &self.addresses {
            let mut data = Vec::new();
            OctetWriter::new(&mut data).write_u32(*iaid).write_u32(0).write_u32(0);
            OctetWriter::new(&mut data)
                .write_u16(option::STATUS_CODE)
                .write_u16(2)
                .write_u16(Dhcpv6Status::NO_ADDRESSES.0);
            put(option::IA_NA, &data);
        }
        for one in &self.delegations {
            let mut data = Vec::new();
            one.emit(&mut data);
            put(option::IA_PD, &data);
        }
        if let Some(Dhcpv6Status(code)) = self.status {
            put(option::STATUS_CODE, &code.to_be_bytes());
        }
        if self.wants_dns {
            // RFC 8415, 18.2.1: every option request includes SOL_MAX_RT.
            let wanted = [option::DNS_SERVERS, option::SOL_MAX_RT].map(u16::to_be_bytes);
            put(option::OPTION_REQUEST, wanted.as_flattened());
        }
        if !self.dns.is_empty() {
            put(option::DNS_SERVERS, &self.dns.iter().flat_map(Ipv6Addr::octets).collect::<Vec<u8>>());
        }
        out
    }
}

/// Returns the DUID of an Ethernet address (DUID-LL, RFC 8415 §11.4).
#[must_use]
pub fn link_layer_duid([a, b, c, d, e, f]: [u8; 6]) -> [u8; 10] {
    [0, 3, 0, 1, a, b, c, d, e, f]
}
