//! Networks as settings.

use core::net::IpAddr;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use std::borrow::Cow;
use std::fmt;

/// A network such as `"192.0.2.0/24"` or `"2001:db8::/32"`, or a single address. An IPv4-mapped IPv6 network
/// (`::ffff:0:0/96`) is an IPv4 network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// The address.
    pub network: IpAddr,
    /// Leading bits that count.
    pub bits: u8,
}

impl Prefix {
    /// Reads the notation.
    ///
    /// # Errors
    /// A sentence that says what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a network such as \"192.0.2.0/24\", or an address such as \"192.0.2.1\""
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits: u8 = match bits {
            None => most,
            Some(bits) => bits.trim().parse().ok().filter(|b| *b <= most).ok_or_else(wrong)?,
        };
        let mapped = match network {
            IpAddr::V6(within) => within.to_ipv4_mapped().zip(bits.checked_sub(96)),
            IpAddr::V4(_) => None,
        };
        Ok(match mapped {
            Some((network, bits)) => Self { network: network.into(), bits },
            None => Self { network, bits },
        })
    }
    /// Whether an address is of this network; an IPv4-mapped address is its IPv4 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        usher_core::address::is_within(address, (self.network, self.bits))
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

impl<'de> Deserialize<'de> for Prefix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl JsonSchema for Prefix {
    fn schema_name() -> Cow<'static, str> {
        "Prefix".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A network such as \"192.0.2.0/24\" or \"2001:db8::/32\", or a single address."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_addresses_with_their_leading_bits() {
        assert_eq!(Prefix::parse("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(Prefix::parse("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        for wrong in ["", "192.0.2.0/33", "192.0.2/24", "::/129", "nas.example/24", "10.0.0.0/"] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
        for (written, meant) in [
            ("::ffff:192.0.2.1", "192.0.2.1/32"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::ffff:0:0/95", "::ffff:0.0.0.0/95"),
            ("::fffe:0:0/96", "::fffe:0:0/96"),
        ] {
            assert_eq!(Prefix::parse(written).unwrap().to_string(), meant, "{written}");
        }
        let holds = |prefix, address: &str| Prefix::parse(prefix).unwrap().contains(address.parse().unwrap());
        assert!(holds("10.1.0.0/16", "10.1.255.1") && !holds("10.1.0.0/16", "10.2.0.1"));
        assert!(
            holds("::ffff:10.1.0.0/112", "10.1.9.9")
                && holds("10.1.0.0/16", "::ffff:10.1.9.9")
                && !holds("::/0", "::ffff:10.1.9.9")
        );
        assert!(
            holds("0.0.0.0/0", "10.2.0.1")
                && !holds("0.0.0.0/0", "::1")
                && holds("2001:db8::/33", "2001:db8:7fff::")
        );
    }
}
