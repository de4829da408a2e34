//! Typed values (RFC 8044).

use super::HexOctets;
use alloc::vec::Vec;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// The data types of RFC 8044 §3, and those of FreeRADIUS's dictionaries only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AttributeDataType {
    /// 32-bit number (§3.1); with named values the `enum` of §3.2.
    Integer,
    /// Seconds since 1970 (§3.3).
    Time,
    /// UTF-8 (§3.4).
    Text,
    /// Octets (§3.5).
    String,
    /// Octets that may continue in the next attributes (§3.6).
    Concat,
    /// Interface identifier (§3.7).
    Ifid,
    /// IPv4 address (§3.8).
    Ipv4Addr,
    /// IPv6 address (§3.9).
    Ipv6Addr,
    /// IPv6 prefix (§3.10).
    Ipv6Prefix,
    /// IPv4 prefix (§3.11).
    Ipv4Prefix,
    /// 64-bit number (§3.12).
    Integer64,
    /// Nested attributes (§3.13).
    Tlv,
    /// Vendor-specific (§3.14).
    Vsa,
    /// Extended (§3.15).
    Extended,
    /// Long extended (§3.16).
    LongExtended,
    /// Extended vendor-specific (§3.17).
    Evs,
    /// FreeRADIUS's `byte`: a number of one octet.
    Byte,
    /// FreeRADIUS's `short`: a number of two octets.
    Short,
    /// FreeRADIUS's `signed`: a 32-bit number that may be negative.
    Signed,
    /// FreeRADIUS's `ether`: a MAC address.
    Ether,
    /// FreeRADIUS's `combo-ip`: an IPv4 or an IPv6 address.
    Ip,
    /// FreeRADIUS's `abinary`: a compiled packet filter of Ascend.
    Filter,
}

impl AttributeDataType {
    /// The name in FreeRADIUS's dictionaries.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Time => "date",
            Self::Text => "string",
            Self::String => "octets",
            Self::Concat => "concat",
            Self::Ifid => "ifid",
            Self::Ipv4Addr => "ipaddr",
            Self::Ipv6Addr => "ipv6addr",
            Self::Ipv6Prefix => "ipv6prefix",
            Self::Ipv4Prefix => "ipv4prefix",
            Self::Integer64 => "integer64",
            Self::Tlv => "tlv",
            Self::Vsa => "vsa",
            Self::Extended => "extended",
            Self::LongExtended => "long-extended",
            Self::Evs => "evs",
            Self::Byte => "byte",
            Self::Short => "short",
            Self::Signed => "signed",
            Self::Ether => "ether",
            Self::Ip => "combo-ip",
            Self::Filter => "abinary",
        }
    }
    /// True if values are unsigned numbers, which may have names.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Integer | Self::Integer64 | Self::Time | Self::Byte | Self::Short)
    }
    /// True if values contain other attributes.
    #[must_use]
    pub const fn contains_attributes(self) -> bool {
        matches!(self, Self::Tlv | Self::Vsa | Self::Extended | Self::LongExtended | Self::Evs)
    }
    /// Returns the type of a name of FreeRADIUS's dictionaries or of RFC 8044.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "integer" | "enum" | "uint32" => Self::Integer,
            "date" | "time" => Self::Time,
            "text" | "string" => Self::Text,
            "octets" => Self::String,
            "abinary" => Self::Filter,
            "byte" | "uint8" => Self::Byte,
            "short" | "uint16" => Self::Short,
            "signed" | "int32" => Self::Signed,
            "ether" => Self::Ether,
            "combo-ip" => Self::Ip,
            "concat" => Self::Concat,
            "ifid" => Self::Ifid,
            "ipaddr" | "ipv4addr" => Self::Ipv4Addr,
            "ipv6addr" => Self::Ipv6Addr,
            "ipv6prefix" => Self::Ipv6Prefix,
            "ipv4prefix" => Self::Ipv4Prefix,
            "integer64" | "uint64" => Self::Integer64,
            "tlv" => Self::Tlv,
            "vsa" => Self::Vsa,
            "extended" => Self::Extended,
            "long-extended" => Self::LongExtended,
            "evs" => Self::Evs,
            _ => return None,
        })
    }
}

/// A typed value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeValue<'a> {
    /// A number, perhaps one with a name.
    Integer(u32),
    /// Seconds since 1970.
    Time(u32),
    /// Text.
    Text(&'a str),
    /// Octets, also of types that contain others.
    Octets(&'a [u8]),
    /// An interface identifier.
    Ifid([u8; 8]),
    /// An IPv4 address.
    Ipv4Addr(Ipv4Addr),
    /// An IPv6 address.
    Ipv6Addr(Ipv6Addr),
    /// An IPv4 prefix and its length.
    Ipv4Prefix(Ipv4Addr, u8),
    /// An IPv6 prefix and its length.
    Ipv6Prefix(Ipv6Addr, u8),
    /// A 64-bit number.
    Integer64(u64),
    /// A number of one octet.
    Byte(u8),
    /// A number of two octets.
    Short(u16),
    /// A number that may be negative.
    Signed(i32),
    /// A MAC address.
    Ether([u8; 6]),
}

/// The octets do not fit the type of their attribute. RFC 8044 §2 then treats the attribute as octets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{length} octets are not a value of type {data_type:?}")]
pub struct ValueError {
    /// The expected type.
    pub data_type: AttributeDataType,
    /// The number of octets.
    pub length: usize,
}

impl<'a> AttributeValue<'a> {
    /// Reads a value of a type.
    ///
    /// # Errors
    /// If the octets do not have the form of the type. Bits beyond a prefix must be zero.
    pub fn decode(data_type: AttributeDataType, bytes: &'a [u8]) -> Result<Self, ValueError> {
        Self::decode_value(data_type, bytes).ok_or(ValueError { data_type, length: bytes.len() })
    }
    fn decode_value(data_type: AttributeDataType, bytes: &'a [u8]) -> Option<Self> {
        let number = || bytes.try_into().ok().map(u32::from_be_bytes);
        Some(match data_type {
            AttributeDataType::Integer => Self::Integer(number()?),
            AttributeDataType::Time => Self::Time(number()?),
            AttributeDataType::Text => Self::Text(core::str::from_utf8(bytes).ok()?),
            AttributeDataType::Ifid => Self::Ifid(bytes.try_into().ok()?),
            AttributeDataType::Ipv4Addr => Self::Ipv4Addr(Ipv4Addr::from_bits(number()?)),
            AttributeDataType::Ipv6Addr => Self::Ipv6Addr(<[u8; 16]>::try_from(bytes).ok()?.into()),
            AttributeDataType::Ipv4Prefix => {
                let (&[0, length], address) = bytes.split_first_chunk::<2>()? else { return None };
                let address = u32::from_be_bytes(address.try_into().ok()?);
                let beyond = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                (length <= 32 && address & beyond == 0)
                    .then_some(Self::Ipv4Prefix(Ipv4Addr::from_bits(address), length))?
            }
            AttributeDataType::Ipv6Prefix => {
                let (&[0, length], given) = bytes.split_first_chunk::<2>()? else { return None };
                let mut address = [0; 16];
                address.get_mut(..given.len())?.copy_from_slice(given);
                let address = u128::from_be_bytes(address);
                let beyond = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let enough = given.len() * 8 >= usize::from(length);
                (length <= 128 && enough && address & beyond == 0)
                    .then_some(Self::Ipv6Prefix(Ipv6Addr::from_bits(address), length))?
            }
            AttributeDataType::Integer64 => Self::Integer64(u64::from_be_bytes(bytes.try_into().ok()?)),
            AttributeDataType::Byte => Self::Byte(u8::from_be_bytes(bytes.try_into().ok()?)),
            AttributeDataType::Short => Self::Short(u16::from_be_bytes(bytes.try_into().ok()?)),
            AttributeDataType::Signed => Self::Signed(i32::from_be_bytes(bytes.try_into().ok()?)),
            AttributeDataType::Ether => Self::Ether(bytes.try_into().ok()?),
            AttributeDataType::Ip if bytes.len() == 4 => Self::Ipv4Addr(Ipv4Addr::from_bits(number()?)),
            AttributeDataType::Ip => Self::Ipv6Addr(<[u8; 16]>::try_from(bytes).ok()?.into()),
            AttributeDataType::String
            | AttributeDataType::Filter
            | AttributeDataType::Concat
            | AttributeDataType::Tlv
            | AttributeDataType::Vsa
            | AttributeDataType::Extended
            | AttributeDataType::LongExtended
            | AttributeDataType::Evs => Self::Octets(bytes),
        })
    }
    /// Appends the octets of the value. An IPv6 prefix takes as few octets as possible.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(n) | Self::Time(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Octets(bytes) => out.extend_from_slice(bytes),
            Self::Ifid(id) => out.extend_from_slice(id),
            Self::Ipv4Addr(a) => out.extend_from_slice(&a.octets()),
            Self::Ipv6Addr(a) => out.extend_from_slice(&a.octets()),
            Self::Ipv4Prefix(a, length) => {
                out.extend_from_slice(&[0, *length]);
                out.extend_from_slice(&a.octets());
            }
            Self::Ipv6Prefix(a, length) => {
                out.extend_from_slice(&[0, *length]);
                out.extend_from_slice(&a.octets()[..usize::from(*length).div_ceil(8).min(16)]);
            }
            Self::Integer64(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Byte(n) => out.push(*n),
            Self::Short(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Signed(n) => out.extend_from_slice(&n.to_be_bytes()),
            Self::Ether(address) => out.extend_from_slice(address),
        }
    }
    /// Returns an unsigned number, which may have a name.
    #[must_use]
    pub const fn as_number(&self) -> Option<u64> {
        match *self {
            Self::Integer(n) | Self::Time(n) => Some(n as u64),
            Self::Integer64(n) => Some(n),
            Self::Byte(n) => Some(n as u64),
            Self::Short(n) => Some(n as u64),
            _ => None,
        }
    }
}

impl fmt::Display for AttributeValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) | Self::Time(n) => write!(f, "{n}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Octets(bytes) => write!(f, "{}", HexOctets(bytes)),
            Self::Ifid(id) => {
                for (i, pair) in id.chunks(2).enumerate() {
                    write!(f, "{}{:02x}{:02x}", if i == 0 { "" } else { ":" }, pair[0], pair[1])?;
                }
                Ok(())
            }
            Self::Ipv4Addr(a) => write!(f, "{a}"),
            Self::Ipv6Addr(a) => write!(f, "{a}"),
            Self::Ipv4Prefix(a, length) => write!(f, "{a}/{length}"),
            Self::Ipv6Prefix(a, length) => write!(f, "{a}/{length}"),
            Self::Integer64(n) => write!(f, "{n}"),
            Self::Byte(n) => write!(f, "{n}"),
            Self::Short(n) => write!(f, "{n}"),
            Self::Signed(n) => write!(f, "{n}"),
            Self::Ether(address) => {
                for (i, octet) in address.iter().enumerate() {
                    write!(f, "{}{octet:02x}", if i == 0 { "" } else { ":" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPES: [AttributeDataType; 16] = [
        AttributeDataType::Byte,
        AttributeDataType::Short,
        AttributeDataType::Signed,
        AttributeDataType::Ether,
        AttributeDataType::Ip,
        AttributeDataType::Integer,
        AttributeDataType::Time,
        AttributeDataType::Text,
        AttributeDataType::String,
        AttributeDataType::Ifid,
        AttributeDataType::Ipv4Addr,
        AttributeDataType::Ipv6Addr,
        AttributeDataType::Ipv6Prefix,
        AttributeDataType::Ipv4Prefix,
        AttributeDataType::Integer64,
        AttributeDataType::Tlv,
    ];

    #[test]
    fn values_print_as_people_write_them() {
        for (data_type, bytes, text) in [
            (AttributeDataType::Integer, &[0, 0, 1, 0][..], "256"),
            (AttributeDataType::Text, b"a\"b", "\"a\\\"b\""),
            (AttributeDataType::Ifid, &[0, 1, 2, 3, 4, 5, 6, 7], "0001:0203:0405:0607"),
            (AttributeDataType::Ipv4Prefix, &[0, 8, 10, 0, 0, 0], "10.0.0.0/8"),
            (AttributeDataType::Ipv6Prefix, &[0, 32, 0x20, 1, 0xd, 0xb8], "2001:db8::/32"),
            (AttributeDataType::Integer64, &[0, 0, 0, 0, 0, 0, 0, 9], "9"),
            (AttributeDataType::Byte, &[200], "200"),
            (AttributeDataType::Short, &[1, 0], "256"),
            (AttributeDataType::Signed, &[255, 255, 255, 254], "-2"),
            (AttributeDataType::Ether, &[0, 17, 34, 0xaa, 0xbb, 0xcc], "00:11:22:aa:bb:cc"),
            (AttributeDataType::Ip, &[10, 0, 0, 1], "10.0.0.1"),
            (AttributeDataType::Ip, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "2001:db8::1"),
        ] {
            assert_eq!(AttributeValue::decode(data_type, bytes).unwrap().to_string(), text);
        }
    }

    #[test]
    fn ill_formed_values_are_refused() {
        for (data_type, bytes) in [
            (AttributeDataType::Integer, &[1, 2, 3][..]),
            (AttributeDataType::Text, &[0xff]),
            (AttributeDataType::Byte, &[]),
            (AttributeDataType::Short, &[1]),
            (AttributeDataType::Ether, &[1, 2, 3, 4, 5]),
            (AttributeDataType::Ip, &[1, 2, 3, 4, 5]),
            (AttributeDataType::Ipv4Prefix, &[0, 33, 0, 0, 0, 0]),
            (AttributeDataType::Ipv4Prefix, &[0, 8, 10, 1, 0, 0]),
            (AttributeDataType::Ipv6Prefix, &[0, 32, 0x20]),
            (AttributeDataType::Ipv6Prefix, &[1, 0]),
            (AttributeDataType::Ipv6Prefix, &[0, 128]),
        ] {
            assert!(AttributeValue::decode(data_type, bytes).is_err(), "{data_type:?} {bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_decodes_is_encoded_to_the_same_value(i in 0..TYPES.len(), bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(value) = AttributeValue::decode(TYPES[i], &bytes) {
                let mut again = Vec::new();
                value.encode(&mut again);
                prop_assert_eq!(AttributeValue::decode(TYPES[i], &again), Ok(value.clone()));
                if !matches!(value, AttributeValue::Ipv6Prefix(..)) {
                    prop_assert_eq!(again, bytes);
                }
            }
        }
    }
}
