//! Values of the configuration file that have a notation of their own.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use usher_core::Duration;

/// A time with its unit: `"500 ms"`, `"30 s"`, `"5 min"`, `"2 h"`, `"7 d"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Period(pub Duration);

impl Period {
    /// So many seconds.
    #[must_use]
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }
    /// Reads the notation.
    ///
    /// # Errors
    /// A sentence that says what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is no time; write a number and ms, s, min, h or d, such as \"30 s\"");
        let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let n: u64 = digits.parse().map_err(|_| wrong())?;
        let millis = match text.trim()[digits.len()..].trim() {
            "ms" => 1,
            "s" => 1000,
            "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        // Nanoseconds in 64 bits last for 584 years; a tenth of it is enough for everybody.
        let all = n.checked_mul(millis).filter(|m| *m <= 1_800_000_000_000).ok_or_else(wrong)?;
        Ok(Self(Duration::from_millis(all)))
    }
    /// For the standard library.
    #[must_use]
    pub fn std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.as_nanos())
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^ *[0-9]+ *(ms|s|min|h|d) *$",
            "description": "A time with its unit: \"500 ms\", \"30 s\", \"5 min\", \"2 h\", \"7 d\"."
        })
    }
}

/// An amount of memory with its unit: `"512 MiB"`, `"2 GiB"`, `"64 KiB"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub usize);

impl Size {
    /// So many times 2^20 octets.
    #[must_use]
    pub const fn mib(n: usize) -> Self {
        Self(n << 20)
    }
    /// Reads the notation.
    ///
    /// # Errors
    /// A sentence that says what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is no size; write a number and KiB, MiB or GiB, such as \"512 MiB\"");
        let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
        let n: usize = digits.parse().map_err(|_| wrong())?;
        let unit: usize = match text.trim()[digits.len()..].trim() {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err(wrong()),
        };
        n.checked_mul(unit).filter(|octets| *octets <= isize::MAX as usize).map(Self).ok_or_else(wrong)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^ *[0-9]+ *(KiB|MiB|GiB) *$",
            "description": "An amount of memory with its unit: \"64 KiB\", \"512 MiB\", \"2 GiB\"."
        })
    }
}

/// A network: `"192.0.2.0/24"`, `"2001:db8::/32"`; an address alone is a network of one.
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
                "\"{text}\" is no network; write an address, with a slash and the number of leading bits where it is more than one, such as \"192.0.2.0/24\""
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let network: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.trim().parse().ok().filter(|b| *b <= most).ok_or_else(wrong)?,
        };
        Ok(Self { network, bits })
    }
}

impl Prefix {
    /// Whether an address is of this network.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        let bits = |a: IpAddr| match a {
            IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
            IpAddr::V6(a) => u128::from(a),
        };
        let mask = if self.bits == 0 { 0 } else { u128::MAX << (128 - u32::from(self.bits)) };
        self.network.is_ipv4() == address.is_ipv4() && (bits(self.network) ^ bits(address)) & mask == 0
    }
}

/// The SHA-256 of a certificate: 64 hexadecimal digits, with colons between octets or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Reads the notation.
    ///
    /// # Errors
    /// A sentence that says what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b':').collect();
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let octet = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
        let octets: Option<Vec<u8>> = digits.chunks(2).map(octet).collect();
        octets.and_then(|octets| octets.try_into().ok()).map(Self).ok_or_else(|| {
            format!(
                "\"{text}\" is no SHA-256 fingerprint; say: openssl x509 -noout -fingerprint -sha256 -in FILE"
            )
        })
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl JsonSchema for Fingerprint {
    fn schema_name() -> Cow<'static, str> {
        "Fingerprint".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^([0-9A-Fa-f]{2}:?){32}$",
            "description": "The SHA-256 of a certificate: 64 hexadecimal digits, with colons between octets or without."
        })
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
            "description": "A network: \"192.0.2.0/24\", \"2001:db8::/32\"; an address alone is a network of one."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let millis = |text| Period::parse(text).map(|p| p.0.as_millis());
        assert_eq!(millis("500 ms"), Ok(500));
        assert_eq!(millis("2h"), Ok(7_200_000));
        assert_eq!(millis(" 1 d "), Ok(86_400_000));
        for wrong in ["", "5", "s", "-1 s", "1.5 s", "5 weeks", "99999999999999999 d"] {
            assert!(Period::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(Size::parse("512 MiB"), Ok(Size::mib(512)));
        assert_eq!(Size::parse(" 2GiB "), Ok(Size(2 << 30)));
        assert_eq!(Size::parse("1 KiB"), Ok(Size(1024)));
        for wrong in ["", "5", "MiB", "-1 MiB", "1.5 GiB", "5 MB", "99999999999999999 GiB", "9999999999 GiB"]
        {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fingerprints_are_written_with_colons_or_without() {
        let read = |text: &str| Fingerprint::parse(text).map(|f| f.0);
        assert_eq!(read(&"aB".repeat(32)), Ok([0xab; 32]));
        assert_eq!(read(&["0F"; 32].join(":")), Ok([15; 32]));
        for wrong in ["", "ab", &"ab".repeat(31), &"ab".repeat(33), &"g0".repeat(32), &"a".repeat(63)] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_are_addresses_with_their_leading_bits() {
        assert_eq!(Prefix::parse("192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(Prefix::parse("2001:db8::/32").unwrap().to_string(), "2001:db8::/32");
        for wrong in ["", "192.0.2.0/33", "192.0.2/24", "::/129", "nas.example/24", "10.0.0.0/"] {
            assert!(Prefix::parse(wrong).is_err(), "{wrong}");
        }
        let holds = |prefix, address: &str| Prefix::parse(prefix).unwrap().holds(address.parse().unwrap());
        assert!(holds("10.1.0.0/16", "10.1.255.1") && !holds("10.1.0.0/16", "10.2.0.1"));
        assert!(
            holds("0.0.0.0/0", "10.2.0.1")
                && !holds("0.0.0.0/0", "::1")
                && holds("2001:db8::/33", "2001:db8:7fff::")
        );
    }
}
