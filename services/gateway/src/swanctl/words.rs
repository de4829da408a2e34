//! What words of strongSwan's mean: identities, times, secrets, addresses.

use super::settings::SettingsSection;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt::Write;
use core::net::IpAddr;
use usher_config::Prefix;

/// A text as TOML has it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => {
                // Writing to a text does not fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

pub(super) fn list(texts: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = texts.into_iter().map(|text| quoted(&text)).collect();
    alloc::format!("[{}]", all.join(", "))
}

pub(super) fn words(value: &str) -> impl Iterator<Item = String> {
    value.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty())
}

/// A number as `strtoul` takes it: `0x` for hexadecimal, `0` for octal ones.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

/// `4h`, `90s`, `1d`, a number of seconds.
pub(super) fn time(value: &str) -> Option<String> {
    let value = value.trim();
    let (digits, unit) = match value.char_indices().last()? {
        (end, 's' | 'S') => (&value[..end], "s"),
        (end, 'm' | 'M') => (&value[..end], "min"),
        (end, 'h' | 'H') => (&value[..end], "h"),
        (end, 'd' | 'D') => (&value[..end], "d"),
        _ => (value, "s"),
    };
    Some(alloc::format!("{} {unit}", number(digits.trim())?))
}

/// Whether an identity is everybody's.
pub(super) fn is_any_identity(id: &str) -> bool {
    matches!(id, "" | "%any" | "%any6" | "0.0.0.0" | "*" | "::" | "0::0")
}

/// An identity as strongSwan writes it, as ours is written; `None`: ours has no such one.
pub(super) fn identity(id: &str) -> Option<String> {
    // Networks and ranges of addresses stand for several there, and a wildcard or an expression is for strongSwan to match.
    let is_network = Prefix::parse(id).is_ok() && id.contains('/');
    let is_range = id.split_once('-').is_some_and(|(first, _)| first.parse::<IpAddr>().is_ok());
    let is_expression = id.starts_with('^') && id.ends_with('$');
    if is_any_identity(id) || is_network || is_range || is_expression {
        return None;
    }
    let plain = |name: &str| (!name.is_empty() && !name.contains(['*', '=', '#'])).then(|| name.to_owned());
    if let Some(mail) = id.strip_prefix("@@") {
        return plain(mail).filter(|mail| mail.contains('@'));
    }
    if let Some(name) = id.strip_prefix('@') {
        return plain(name).filter(|name| !name.contains('@'));
    }
    match id.split_once(':') {
        Some(("fqdn" | "dns", name)) => plain(name).filter(|name| !name.contains('@')),
        Some(("email" | "rfc822", name)) => plain(name).filter(|name| name.contains('@')),
        Some(("ipv4" | "ipv6", address)) => address.parse::<IpAddr>().ok().map(|_| address.to_owned()),
        Some(_) => id.parse::<IpAddr>().ok().map(|_| id.to_owned()),
        None => plain(id),
    }
}

/// What is written behind a prefix of two characters, whether in capitals or not.
fn behind<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|start| start.eq_ignore_ascii_case(prefix))?;
    text.get(prefix.len()..)
}

/// Whether a value is octets and no name of a file.
pub(super) fn is_octets(value: &str) -> bool {
    behind(value, "0x").or_else(|| behind(value, "0s")).is_some()
}

/// The octets of a secret that is written in hexadecimal or base64, where they are a text.
pub(super) fn octets(secret: &str) -> Option<String> {
    let bytes = match (behind(secret, "0x"), behind(secret, "0s")) {
        (Some(hex), _) => {
            let hex: Vec<u8> = hex.bytes().filter(|octet| *octet != b'_').collect();
            let pairs =
                hex.chunks(2).map(|pair| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok());
            pairs.collect::<Option<Vec<u8>>>().filter(|_| hex.len().is_multiple_of(2))?
        }
        (_, Some(base64)) => STANDARD.decode(base64).ok()?,
        _ => return Some(secret.to_owned()),
    };
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// A file that is named beside its folder, or by its whole path.
pub(super) fn path(folder: &str, file: &str) -> String {
    if file.starts_with('/') { file.to_owned() } else { alloc::format!("{folder}/{file}") }
}

/// A proposal in our words. With a cipher that protects integrity itself, what is written as such an algorithm is the pseudo-random function.
pub(super) fn proposal(words: &str) -> String {
    let combined =
        words.split('-').any(|word| ["gcm", "ccm", "chacha"].iter().any(|name| word.contains(name)));
    let word = |word: &str| match word.strip_prefix("sha") {
        Some(_) if combined => alloc::format!("prf{word}"),
        _ => word.to_owned(),
    };
    words.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// A range of a pool. charon leaves out a network's first and last address, and begins where an address of it is named.
pub(super) fn range(addresses: &str) -> String {
    let unchanged = || addresses.to_owned();
    if addresses.contains('-') {
        return unchanged();
    }
    let (first, bits) = addresses.split_once('/').unwrap_or((addresses, ""));
    let Ok(first) = first.parse::<IpAddr>() else { return unchanged() };
    let width: u8 = if first.is_ipv4() { 32 } else { 128 };
    let bits = if bits.is_empty() { Some(width) } else { bits.parse().ok().filter(|bits| *bits <= width) };
    let Some(bits) = bits else { return unchanged() };
    if bits == width {
        return alloc::format!("{first}-{first}");
    }
    let host = u128::MAX >> (128 - u32::from(width - bits));
    let edge = u128::from(width - bits > 1);
    let last = match first {
        IpAddr::V4(first) if u128::from(first.to_bits()) & host == 0 => return unchanged(),
        IpAddr::V6(first) if first.to_bits() & host == 0 => return unchanged(),
        IpAddr::V4(first) => {
            let last = (u128::from(first.to_bits()) | host) - edge;
            IpAddr::V4(u32::try_from(last).unwrap_or(u32::MAX).into())
        }
        IpAddr::V6(first) => IpAddr::V6(((first.to_bits() | host) - edge).into()),
    };
    alloc::format!("{first}-{last}")
}

/// Words mean the same in capitals.
pub(super) fn yes(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "yes" | "true" | "1" | "enabled" | "accept" | "force")
}
pub(super) fn no(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "no" | "false" | "0" | "disabled")
}

/// Whether these addresses are all there are.
pub(super) fn any(addresses: &str) -> bool {
    let all = ["%any", "0.0.0.0", "::"];
    addresses.split(',').any(|word| all.iter().any(|any| word.trim().eq_ignore_ascii_case(any)))
}

/// Whether a section of a connection is one of these: whatever follows tells them apart.
pub(super) fn is_side(section: &str, side: &str) -> bool {
    section.get(..side.len()).is_some_and(|start| start.eq_ignore_ascii_case(side))
}

/// The first round of a side of a connection.
pub(super) fn side_of<'a>(connection: &'a SettingsSection, side: &str) -> Option<&'a SettingsSection> {
    connection.sections.iter().find(|(name, _)| is_side(name, side)).map(|(_, section)| section)
}

/// How the other side of a connection proves who it is, and how this one.
pub(super) fn auth_of(connection: &SettingsSection, side: &str) -> String {
    side_of(connection, side)
        .and_then(|section| section.value("auth"))
        .unwrap_or("pubkey")
        .to_ascii_lowercase()
}

/// Whether a side proves who it is by a certificate in IKE itself.
pub(super) fn is_certified(auth: &str) -> bool {
    auth != "psk" && !auth.starts_with("eap") && !auth.starts_with("xauth")
}

/// Whether a connection is of IKEv1, which is not spoken.
pub(super) fn is_ikev1(connection: &SettingsSection) -> bool {
    connection.value("version") == Some("1")
}
