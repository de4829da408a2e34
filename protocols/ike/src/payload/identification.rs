//! Who somebody is (RFC 7296 §3.5).

use crate::code::IdType;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identification {
    /// Its kind.
    pub kind: IdType,
    /// Its octets, in the form that its kind has.
    pub data: Vec<u8>,
}

impl Identification {
    /// A domain name.
    #[must_use]
    pub fn fqdn(name: &str) -> Self {
        Self { kind: IdType::ID_FQDN, data: name.as_bytes().to_vec() }
    }
    /// A mail address.
    #[must_use]
    pub fn mail(address: &str) -> Self {
        Self { kind: IdType::ID_RFC822_ADDR, data: address.as_bytes().to_vec() }
    }
    /// An address.
    #[must_use]
    pub fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { kind: IdType::ID_IPV4_ADDR, data: v4.octets().to_vec() },
            IpAddr::V6(v6) => Self { kind: IdType::ID_IPV6_ADDR, data: v6.octets().to_vec() },
        }
    }
    /// The identity that a text most likely means: an address, a mail address (with an `@`), or else a domain name.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        match text.parse() {
            Ok(address) => Self::address(address),
            Err(_) if text.contains('@') => Self::mail(text),
            Err(_) => Self::fqdn(text),
        }
    }
    /// The address, where it is one.
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
    /// The name, where it is a domain name or a mail address.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self.kind {
            IdType::ID_FQDN | IdType::ID_RFC822_ADDR => core::str::from_utf8(&self.data).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Identification {
    /// A name or address as it is usually written; of other kinds the octets in hexadecimal.
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
