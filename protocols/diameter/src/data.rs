//! The structured data formats of RFC 6733 §4.3: Address, Time, DiameterURI, DiameterIdentity, IPFilterRule.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;
use usher_core::{TransportProtocol, WallTime};

/// An Address (RFC 6733 §4.3.1): an IP address, or the raw bytes of another family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AvpAddress<'a> {
    /// Families 1 and 2.
    Ip(IpAddr),
    /// Any other address family number with its bytes.
    Other(u16, &'a [u8]),
}

impl<'a> AvpAddress<'a> {
    /// Parses the family and the address. `None` if it is too short or has the wrong length.
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        let (family, address) = data.split_first_chunk::<2>()?;
        match u16::from_be_bytes(*family) {
            1 => <[u8; 4]>::try_from(address).ok().map(|a| Self::Ip(Ipv4Addr::from(a).into())),
            2 => <[u8; 16]>::try_from(address).ok().map(|a| Self::Ip(Ipv6Addr::from(a).into())),
            other => Some(Self::Other(other, address)),
        }
    }
    /// Writes an IP address into `out` and returns its length (6 or 18). Returns 0 for other families.
    pub fn encode_into(&self, out: &mut [u8; 18]) -> usize {
        match self {
            Self::Ip(IpAddr::V4(a)) => {
                out[1] = 1;
                out[2..6].copy_from_slice(&a.octets());
                6
            }
            Self::Ip(IpAddr::V6(a)) => {
                out[1] = 2;
                out[2..].copy_from_slice(&a.octets());
                18
            }
            Self::Other(..) => 0,
        }
    }
}

impl From<IpAddr> for AvpAddress<'_> {
    fn from(a: IpAddr) -> Self {
        Self::Ip(a)
    }
}

/// Seconds since 1900 in NTP's format (RFC 6733 §4.3.1), which wraps in 2036.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AvpTime(pub u32);

const UNIX_EPOCH_1900: u64 = 2_208_988_800;

impl AvpTime {
    /// Converts from wall-clock time. It wraps in 2036, as the format does.
    pub const fn avp_time_from_wall(t: WallTime) -> Self {
        Self(t.unix_secs().wrapping_add(UNIX_EPOCH_1900) as u32)
    }
    /// Converts to wall-clock time. A clear high bit means after 7 February 2036 (RFC 5905, appendix A.4).
    pub const fn to_wall(self) -> WallTime {
        let era = if self.0 & 0x8000_0000 == 0 { 1u64 << 32 } else { 0 };
        WallTime::from_unix_secs((era + self.0 as u64).saturating_sub(UNIX_EPOCH_1900))
    }
}

/// True if the name is a valid DiameterIdentity: 1 to 255 letters, digits, `.`, `-`, `_`.
pub fn is_valid_diameter_identity(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// The protocol of a [`DiameterUri`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UriProtocol {
    /// `diameter`, the default
    Diameter,
    /// `radius`
    Radius,
    /// `tacacs+`
    TacacsPlus,
}

/// A DiameterURI: `aaa://host[:port][;transport=..][;protocol=..]` (RFC 6733 §4.3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiameterUri {
    /// `aaas`: secured by TLS or DTLS.
    pub secure: bool,
    /// The host name.
    pub host: String,
    /// The port: 3868, or 5658 with `aaas`, unless given.
    pub port: u16,
    /// TCP unless given.
    pub transport: TransportProtocol,
    /// Diameter unless given.
    pub protocol: UriProtocol,
}

/// A text that violates the format's grammar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAvpText(pub &'static str);

impl FromStr for DiameterUri {
    type Err = InvalidAvpText;
    fn from_str(s: &str) -> Result<Self, InvalidAvpText> {
        let (secure, rest) = if let Some(rest) = s.strip_prefix("aaa://") {
            (false, rest)
        } else {
            (
                true,
                s.strip_prefix("aaas://")
                    .ok_or(InvalidAvpText("it begins with neither aaa:// nor aaas://"))?,
            )
        };
        let mut parts = rest.split(';');
        let authority = parts.next().unwrap_or_default();
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| InvalidAvpText("wrong port"))?),
            None => (authority, if secure { 5658 } else { 3868 }),
        };
        if !is_valid_diameter_identity(host) {
            return Err(InvalidAvpText("wrong host name"));
        }
        let mut uri = Self {
            secure,
            host: host.to_string(),
            port,
            transport: TransportProtocol::Tcp,
            protocol: UriProtocol::Diameter,
        };
        for part in parts {
            match part {
                "protocol=diameter" => uri.protocol = UriProtocol::Diameter,
                "protocol=radius" => uri.protocol = UriProtocol::Radius,
                "protocol=tacacs+" => uri.protocol = UriProtocol::TacacsPlus,
                part => {
                    let transport = part.strip_prefix("transport=").and_then(TransportProtocol::from_name);
                    // The scheme of the URI selects TLS, so a `transport` parameter cannot.
                    let transport = transport.filter(|transport| *transport != TransportProtocol::Tls);
                    uri.transport = transport.ok_or(InvalidAvpText("unknown parameter"))?;
                }
            }
        }
        if uri.protocol == UriProtocol::Diameter && uri.transport == TransportProtocol::Udp {
            return Err(InvalidAvpText("Diameter does not run over UDP"));
        }
        Ok(uri)
    }
}

impl fmt::Display for DiameterUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aaa{}://{}:{}", if self.secure { "s" } else { "" }, self.host, self.port)?;
        write!(f, ";transport={}", self.transport)?;
        f.write_str(match self.protocol {
            UriProtocol::Diameter => "",
            UriProtocol::Radius => ";protocol=radius",
            UriProtocol::TacacsPlus => ";protocol=tacacs+",
        })
    }
}

/// An IPFilterRule (RFC 6733 §4.3.1): action, direction, protocol, source, destination, options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpFilterRule<'a> {
    /// `permit`, else `deny`.
    pub permit: bool,
    /// `in` (from the terminal), else `out`.
    pub inbound: bool,
    /// The protocol number; `None` for `ip`, any protocol.
    pub protocol: Option<u8>,
    /// Source address and ports, as written.
    pub source: &'a str,
    /// Destination address and ports, as written.
    pub destination: &'a str,
    /// Options, as written; empty if there are none.
    pub options: &'a str,
}

impl<'a> IpFilterRule<'a> {
    /// Parses a rule. Checks the addresses (`any`, `assigned`, `[!]address[/bits]`).
    ///
    /// # Errors
    /// A word violates the grammar.
    pub fn parse(text: &'a str) -> Result<Self, InvalidAvpText> {
        let (permit, rest) = split_first_word(text);
        let (direction, rest) = split_first_word(rest);
        let (protocol, rest) = split_first_word(rest);
        let permit = match permit {
            "permit" => true,
            "deny" => false,
            _ => return Err(InvalidAvpText("it begins with neither permit nor deny")),
        };
        let inbound = match direction {
            "in" => true,
            "out" => false,
            _ => return Err(InvalidAvpText("the direction is neither in nor out")),
        };
        let protocol = match protocol {
            "ip" => None,
            n => Some(n.parse().map_err(|_| InvalidAvpText("wrong protocol number"))?),
        };
        let (from, rest) = split_first_word(rest);
        if from != "from" {
            return Err(InvalidAvpText("'from' missing"));
        }
        let (source, rest) = rest.split_once(" to ").ok_or(InvalidAvpText("'to' missing"))?;
        check_endpoint(source)?;
        let rest = rest.trim_start();
        let (address, after) = split_first_word(rest);
        let ports = split_first_word(after).0;
        let is_ports =
            !ports.is_empty() && ports.bytes().all(|b| b.is_ascii_digit() || matches!(b, b',' | b'-'));
        let end = if is_ports { rest.len() - after.len() + ports.len() } else { address.len() };
        let (destination, options) = rest.split_at_checked(end).unwrap_or((rest, ""));
        check_endpoint(destination)?;
        Ok(Self {
            permit,
            inbound,
            protocol,
            source: source.trim(),
            destination: destination.trim(),
            options: options.trim(),
        })
    }
}

/// Splits off the first word.
fn split_first_word(s: &str) -> (&str, &str) {
    let s = s.trim_start();
    match s.split_once(' ') {
        Some((w, rest)) => (w, rest.trim_start()),
        None => (s, ""),
    }
}

fn check_endpoint(s: &str) -> Result<(), InvalidAvpText> {
    let address = split_first_word(s).0;
    let address = address.strip_prefix('!').unwrap_or(address);
    if matches!(address, "any" | "assigned") {
        return Ok(());
    }
    let (ip, bits) = address.split_once('/').unwrap_or((address, "0"));
    let ip: IpAddr = ip.parse().map_err(|_| InvalidAvpText("wrong address"))?;
    let max = if ip.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= max => Ok(()),
        _ => Err(InvalidAvpText("wrong prefix length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_the_rfc() {
        for text in [
            "aaa://host.example.com;transport=tcp",
            "aaa://host.example.com:6666;transport=tcp",
            "aaa://host.example.com;protocol=diameter",
            "aaa://host.example.com:6666;protocol=diameter",
            "aaa://host.example.com:6666;transport=tcp;protocol=diameter",
            "aaa://host.example.com:1813;transport=udp;protocol=radius",
        ] {
            let uri: DiameterUri = text.parse().unwrap();
            assert_eq!(uri.to_string().parse::<DiameterUri>().unwrap(), uri);
        }
        assert_eq!("aaas://h".parse::<DiameterUri>().unwrap().port, 5658);
        for bad in [
            "http://h",
            "aaa://",
            "aaa://h:99999",
            "aaa://h;x=y",
            "aaa://h;transport=udp",
            "aaa://h;transport=tls",
        ] {
            assert!(bad.parse::<DiameterUri>().is_err(), "{bad}");
        }
    }

    #[test]
    fn filter_rules() {
        let r = IpFilterRule::parse("permit in 6 from 192.0.2.0/24 to any 80,443 established").unwrap();
        assert!(r.permit && r.inbound);
        assert_eq!(
            (r.protocol, r.source, r.destination, r.options),
            (Some(6), "192.0.2.0/24", "any 80,443", "established")
        );
        let r = IpFilterRule::parse("deny out ip from any to !2001:db8::/32").unwrap();
        assert_eq!((r.permit, r.protocol, r.destination), (false, None, "!2001:db8::/32"));
        for bad in [
            "",
            "permit",
            "permit in ip from any",
            "permit in 300 from any to any",
            "allow in ip from any to any",
            "permit in ip from 1.2.3.4/33 to any",
        ] {
            assert!(IpFilterRule::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn time_counts_from_1900_and_wraps_in_2036() {
        let t = WallTime::from_unix_secs(1_700_000_000);
        assert_eq!(AvpTime::avp_time_from_wall(t), AvpTime(3_908_988_800));
        assert_eq!(AvpTime::avp_time_from_wall(t).to_wall(), t);
        let later = WallTime::from_unix_secs(2_085_978_496 + 5);
        assert_eq!(AvpTime::avp_time_from_wall(later), AvpTime(5));
        assert_eq!(AvpTime(5).to_wall(), later);
    }

    #[test]
    fn addresses() {
        let mut out = [0; 18];
        for text in ["192.0.2.1", "2001:db8::1"] {
            let ip: IpAddr = text.parse().unwrap();
            let n = AvpAddress::from(ip).encode_into(&mut out);
            assert_eq!(AvpAddress::parse(&out[..n]), Some(AvpAddress::Ip(ip)));
            assert_eq!(AvpAddress::parse(&out[..n - 1]), None);
            out = [0; 18];
        }
        assert_eq!(AvpAddress::parse(&[0, 8, b'4']), Some(AvpAddress::Other(8, b"4")));
        assert_eq!(AvpAddress::parse(&[0]), None);
    }
}
