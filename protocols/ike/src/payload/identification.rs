//! Identification payloads (RFC 7296 §3.5).

use crate::code::IdType;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An identity. Comparison ignores the letter case of a domain name (RFC 4343), also in a mail address (RFC 5321
/// §2.4).
#[derive(Clone, Debug)]
pub struct Identification {
    /// Its kind.
    pub kind: IdType,
    /// Its octets, in the format of its kind.
    pub data: Vec<u8>,
}

impl Identification {
    /// Creates a domain name.
    #[must_use]
    pub fn from_fqdn(name: &str) -> Self {
        Self { kind: IdType::ID_FQDN, data: name.as_bytes().to_vec() }
    }
    /// Creates a mail address.
    #[must_use]
    pub fn from_mail_address(address: &str) -> Self {
        Self { kind: IdType::ID_RFC822_ADDR, data: address.as_bytes().to_vec() }
    }
    /// Creates an address.
    #[must_use]
    pub fn from_address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { kind: IdType::ID_IPV4_ADDR, data: v4.octets().to_vec() },
            IpAddr::V6(v6) => Self { kind: IdType::ID_IPV6_ADDR, data: v6.octets().to_vec() },
        }
    }
    /// Guesses the kind of a text: an address, a mail address (with an `@`), or else a domain name.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        match text.parse() {
            Ok(address) => Self::from_address(address),
            Err(_) if text.contains('@') => Self::from_mail_address(text),
            Err(_) => Self::from_fqdn(text),
        }
    }
    /// Returns the address, if it is of that kind.
    #[must_use]
    pub fn as_address(&self) -> Option<IpAddr> {
        match self.kind {
            IdType::ID_IPV4_ADDR => {
                self.data[..].try_into().ok().map(|v4: [u8; 4]| Ipv4Addr::from(v4).into())
            }
            IdType::ID_IPV6_ADDR => {
                self.data[..].try_into().ok().map(|v6: [u8; 16]| Ipv6Addr::from(v6).into())
            }
            _ => None,
        }
    }
    /// Returns the octets for comparison: a domain in lower case.
    #[must_use]
    pub fn comparison_octets(&self) -> Cow<'_, [u8]> {
        let domain = match self.kind {
            IdType::ID_FQDN => 0,
            IdType::ID_RFC822_ADDR => match self.data.iter().rposition(|octet| *octet == b'@') {
                Some(at) => at,
                None => return Cow::Borrowed(&self.data),
            },
            _ => return Cow::Borrowed(&self.data),
        };
        let mut data = Cow::Borrowed(&self.data[..]);
        if data[domain..].iter().any(u8::is_ascii_uppercase) {
            data.to_mut()[domain..].make_ascii_lowercase();
        }
        data
    }
    /// Returns it with its domain in lower case.
    #[must_use]
    pub fn to_canonical(&self) -> Self {
        Self { kind: self.kind, data: self.comparison_octets().into_owned() }
    }
    /// Returns the text of a domain name or a mail address.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self.kind {
            IdType::ID_FQDN | IdType::ID_RFC822_ADDR => core::str::from_utf8(&self.data).ok(),
            _ => None,
        }
    }
}

impl PartialEq for Identification {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Identification {}

impl PartialOrd for Identification {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Identification {
    fn cmp(&self, other: &Self) -> Ordering {
        self.kind.cmp(&other.kind).then_with(|| self.comparison_octets().cmp(&other.comparison_octets()))
    }
}

impl Hash for Identification {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.kind.hash(state);
        self.comparison_octets().hash(state);
    }
}

impl fmt::Display for Identification {
    /// The usual notation of a name or an address; hexadecimal for other kinds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.as_address() {
            return address.fmt(f);
        }
        match self.as_text() {
            Some(text) => text.escape_debug().fmt(f),
            None => {
                write!(f, "{}:", self.kind)?;
                self.data.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_compared_as_their_standards_say() {
        let key_id = |text: &str| Identification { kind: IdType::ID_KEY_ID, data: text.into() };
        let (fqdn, mail) = (Identification::from_fqdn, Identification::from_mail_address);
        assert_eq!(fqdn("GW.Example"), fqdn("gw.example"));
        assert_eq!(mail("Ann@GW.example"), mail("Ann@gw.Example"));
        assert_ne!(mail("Ann@gw.example"), mail("ann@gw.example"));
        assert_ne!(mail("ANN"), mail("ann"));
        assert_ne!(key_id("GW"), key_id("gw"));
        assert_ne!(fqdn("gw.example"), key_id("gw.example"));
        let all = alloc::collections::BTreeSet::from([fqdn("gw.test"), fqdn("GW.test"), mail("a@GW.test")]);
        assert_eq!(all.len(), 2);
        assert_eq!(fqdn("GW.Example").to_string(), "GW.Example", "it is shown as it was said");
    }
}
