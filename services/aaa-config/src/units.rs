//! Values of the configuration file that have a notation of their own.

use alloc::borrow::Cow;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

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
                "\"{text}\" is not a SHA-256 fingerprint; this prints it: openssl x509 -noout -fingerprint -sha256 \
                 -in FILE"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_written_with_colons_or_without() {
        let read = |text: &str| Fingerprint::parse(text).map(|f| f.0);
        assert_eq!(read(&"aB".repeat(32)), Ok([0xab; 32]));
        assert_eq!(read(&["0F"; 32].join(":")), Ok([15; 32]));
        for wrong in ["", "ab", &"ab".repeat(31), &"ab".repeat(33), &"g0".repeat(32), &"a".repeat(63)] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
