//! Parses values in text form.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use usher_core::WallTime;
use usher_radius::attribute::{AttributeDataType, AttributeValue};
use usher_radius::dictionary::{AttributeDefinition, RadiusDictionary};

/// Returns the hexadecimal digits after `0x` or `0X`.
fn without_0x(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Parses hexadecimal digits, with or without `0x`.
pub(super) fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let text = without_0x(text).unwrap_or(text);
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// Returns the octets of a value.
pub(super) fn encode_value(
    definition: &AttributeDefinition,
    text: &str,
    dictionary: &RadiusDictionary,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    const NEITHER: &str = "the value is neither a number nor a name that the dictionary has for it";
    let number = || {
        let digits = match without_0x(text) {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        dictionary.value_number(definition.oid, text).or(digits).ok_or_else(|| NEITHER.to_string())
    };
    let large = |_| "the number is too large".to_string();
    let octets;
    let value = match definition.data_type {
        AttributeDataType::Integer => AttributeValue::Integer(u32::try_from(number()?).map_err(large)?),
        AttributeDataType::Integer64 => AttributeValue::Integer64(number()?),
        AttributeDataType::Short => AttributeValue::Short(u16::try_from(number()?).map_err(large)?),
        AttributeDataType::Byte => AttributeValue::Byte(u8::try_from(number()?).map_err(large)?),
        AttributeDataType::Signed => {
            let named = dictionary.value_number(definition.oid, text).and_then(|n| i32::try_from(n).ok());
            AttributeValue::Signed(named.or_else(|| text.parse().ok()).ok_or(NEITHER)?)
        }
        AttributeDataType::Time => {
            let seconds = number().ok().or_else(|| parse_date(text).map(WallTime::unix_secs));
            let seconds = seconds.ok_or("write a date as `31 Dec 2026 23:59:59` (UTC)")?;
            AttributeValue::Time(u32::try_from(seconds).map_err(large)?)
        }
        AttributeDataType::Text => AttributeValue::Text(text),
        AttributeDataType::Ipv4Addr => {
            AttributeValue::Ipv4Addr(text.parse().map_err(|_| "the value is not an IPv4 address")?)
        }
        AttributeDataType::Ipv6Addr => {
            AttributeValue::Ipv6Addr(text.parse().map_err(|_| "the value is not an IPv6 address")?)
        }
        AttributeDataType::Ip => match text.parse().map_err(|_| "the value is not an IP address")? {
            core::net::IpAddr::V4(address) => AttributeValue::Ipv4Addr(address),
            core::net::IpAddr::V6(address) => AttributeValue::Ipv6Addr(address),
        },
        AttributeDataType::Ipv4Prefix | AttributeDataType::Ipv6Prefix => {
            parse_prefix(definition.data_type, text)?
        }
        AttributeDataType::Ifid => AttributeValue::Ifid(
            parse_interface_id(text).ok_or("write an interface identifier as `1:2:3:4`")?,
        ),
        AttributeDataType::Ether => {
            AttributeValue::Ether(parse_ether(text).ok_or("write a MAC address as `00:11:22:33:44:55`")?)
        }
        AttributeDataType::Filter => {
            let said = "Ascend filters are not compiled here; write the octets as 0x and hexadecimal digits";
            octets = without_0x(text).and_then(decode_hex).ok_or(said)?;
            AttributeValue::Octets(&octets)
        }
        AttributeDataType::String | AttributeDataType::Concat => {
            octets = match without_0x(text) {
                Some(digits) => decode_hex(digits).ok_or("the value is not hexadecimal")?,
                None if RadiusDictionary::parse_unknown_attribute_name(&definition.name).is_some() => {
                    return Err(
                        "for an attribute that is named by number, write the octets as 0x and hexadecimal digits"
                            .into(),
                    );
                }
                None => text.as_bytes().to_vec(),
            };
            AttributeValue::Octets(&octets)
        }
        AttributeDataType::Tlv
        | AttributeDataType::Vsa
        | AttributeDataType::Extended
        | AttributeDataType::LongExtended
        | AttributeDataType::Evs => {
            return Err("this attribute contains others; name one of them".into());
        }
    };
    value.encode(out);
    if AttributeValue::decode(definition.data_type, out).is_err() {
        return Err("the value does not have the form of its type".into());
    }
    match definition.fixed.map(usize::from) {
        Some(fixed) if fixed != out.len() && !out.is_empty() => {
            Err(format!("the value has {} octets, and must have {fixed}", out.len()))
        }
        _ => Ok(()),
    }
}

/// Parses an address with a prefix length. Without one, it is the length of the address.
fn parse_prefix(data_type: AttributeDataType, text: &str) -> Result<AttributeValue<'static>, String> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => {
            (address, Some(length.parse().map_err(|_| "the prefix length is not a number")?))
        }
        None => (text, None),
    };
    Ok(if data_type == AttributeDataType::Ipv4Prefix {
        let address = address.parse().map_err(|_| "write an IPv4 prefix as `192.0.2.0/24`")?;
        AttributeValue::Ipv4Prefix(address, length.unwrap_or(32))
    } else {
        let address = address.parse().map_err(|_| "write an IPv6 prefix as `2001:db8::/64`")?;
        AttributeValue::Ipv6Prefix(address, length.unwrap_or(128))
    })
}

/// Parses four groups of hexadecimal digits (RFC 8044 §3.7).
fn parse_interface_id(text: &str) -> Option<[u8; 8]> {
    let mut id = [0; 8];
    let mut groups = text.split(':');
    for place in id.chunks_exact_mut(2) {
        let group = groups.next().filter(|g| (1..=4).contains(&g.len()))?;
        place.copy_from_slice(&u16::from_str_radix(group, 16).ok()?.to_be_bytes());
    }
    groups.next().is_none().then_some(id)
}

fn parse_ether(text: &str) -> Option<[u8; 6]> {
    let digits = super::super::mac_address(text.as_bytes())?;
    decode_hex(core::str::from_utf8(&digits).ok()?)?.try_into().ok()
}

/// Parses a date as in FreeRADIUS's tables: `31 Dec 2026`, `Dec 31 2026 23:59:59`, `2026-12-31T23:59:59`, or
/// seconds since 1970. UTC.
pub(super) fn parse_date(text: &str) -> Option<WallTime> {
    if let Ok(seconds) = text.parse() {
        return Some(WallTime::from_unix_secs(seconds));
    }
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let (mut year, mut month, mut day, mut time) = (None, None, None, [0_u64; 3]);
    for word in text.split([' ', 'T', ',']).filter(|w| !w.is_empty()) {
        let lower = word.to_ascii_lowercase();
        if word.contains(':') {
            for (place, part) in time.iter_mut().zip(word.trim_end_matches('Z').split(':')) {
                *place = part.parse().ok()?;
            }
        } else if let Some((y, rest)) = word.split_once('-') {
            let (m, d) = rest.split_once('-')?;
            (year, month, day) = (y.parse().ok(), m.parse().ok(), d.parse().ok());
        } else if let Some(m) = MONTHS.iter().position(|m| lower.starts_with(m)) {
            month = Some(m as u64 + 1);
        } else {
            let n: u64 = word.parse().ok()?;
            if n > 31 { year = Some(n) } else { day = Some(n) }
        }
    }
    let (year, month, day): (u64, u64, u64) = (year?, month?, day?);
    let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let within = (1970..=9999).contains(&year) && (1..=12).contains(&month) && time[0] < 24 && time[1] < 60;
    if !within || day == 0 || day > lengths[month as usize - 1] || time[2] > 60 {
        return None;
    }
    let days = (1970..year).map(|y| 365 + u64::from(leap(y))).sum::<u64>()
        + lengths[..month as usize - 1].iter().sum::<u64>()
        + day
        - 1;
    Some(WallTime::from_unix_secs(((days * 24 + time[0]) * 60 + time[1]) * 60 + time[2]))
}
