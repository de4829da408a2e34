//! What words of strongSwan's mean: identities, times, secrets, addresses.

use super::settings::SettingsSection;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_config::Prefix;

/// A text as TOML has it.
pub(super) fn toml_string(text: &str) -> String {
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

pub(super) fn toml_array(texts: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = texts.into_iter().map(|text| toml_string(&text)).collect();
    alloc::format!("[{}]", all.join(", "))
}

pub(super) fn split_words(value: &str) -> impl Iterator<Item = String> {
    value.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty())
}

/// The number at the start of a text and what follows it, as C's `strtoul` reads it; without digits 0, and the whole text follows.
pub(super) fn leading_number(text: &str, base: u32) -> (u64, &str) {
    let blank = |c| matches!(c, ' ' | '\t'..='\r');
    let rest = text.trim_start_matches(blank);
    let is_negative = rest.starts_with('-');
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    let is_hexadecimal = |rest: &&str| rest.starts_with(|c: char| c.is_ascii_hexdigit());
    let (base, digits) = match strip_any_case(rest, "0x").filter(is_hexadecimal) {
        Some(digits) if base == 0 => (16, digits),
        _ if base == 0 && rest.starts_with('0') => (8, rest),
        _ if base == 0 => (10, rest),
        _ => (base, rest),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    if end == 0 {
        return (0, text);
    }
    let value = u64::from_str_radix(&digits[..end], base).unwrap_or(u64::MAX);
    (if is_negative { value.wrapping_neg() } else { value }, &digits[end..])
}

/// A number of charon's: `0x` begins hexadecimal ones, `0` octal ones. Those with a sign that it wraps are none here.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (value, rest) = leading_number(text, 0);
    (rest.is_empty() && !text.contains('-')).then_some(value)
}

/// `4h`, `90s`, `1d`, a number of seconds: the number and our unit.
pub(super) fn split_time(value: &str) -> Option<(u64, &'static str)> {
    let (number, rest) = leading_number(value, 0);
    let unit = match rest.trim_start_matches(' ') {
        "" | "s" | "S" => "s",
        "m" | "M" => "min",
        "h" | "H" => "h",
        "d" | "D" => "d",
        _ => return None,
    };
    Some((number, unit))
}

pub(super) fn toml_time(value: &str) -> Option<String> {
    let (number, unit) = split_time(value).filter(|_| !value.contains('-'))?;
    Some(alloc::format!("{number} {unit}"))
}

/// `1000`, `500m`, `2 g`: the number and the octets of its unit.
pub(super) fn split_volume(value: &str) -> Option<(u64, u64)> {
    let (number, rest) = leading_number(value, 0);
    let unit = match rest.trim_start_matches(' ') {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    Some((number, unit))
}

pub(super) fn parse_volume(value: &str) -> Option<u64> {
    let (number, unit) = split_volume(value).filter(|_| !value.contains('-'))?;
    number.checked_mul(unit)
}

/// Whether an identity is everybody's.
pub(super) fn is_any_identity(id: &str) -> bool {
    matches!(id, "" | "%any" | "%any6" | "0.0.0.0" | "*" | "::" | "0::0")
}

/// An identity as strongSwan writes it, as ours is written; `None`: ours has no such one.
pub(super) fn translate_identity(id: &str) -> Option<String> {
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
fn strip_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|start| start.eq_ignore_ascii_case(prefix))?;
    text.get(prefix.len()..)
}

/// Whether a value is octets and no name of a file.
pub(super) fn is_octets(value: &str) -> bool {
    strip_any_case(value, "0x").or_else(|| strip_any_case(value, "0s")).is_some()
}

/// The octets of a secret that is written in hexadecimal or base64, where they are a text.
pub(super) fn decode_secret(secret: &str) -> Option<String> {
    let bytes = match (strip_any_case(secret, "0x"), strip_any_case(secret, "0s")) {
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
pub(super) fn join_path(folder: &str, file: &str) -> String {
    if file.starts_with('/') { file.to_owned() } else { alloc::format!("{folder}/{file}") }
}

/// A proposal of IKE in our words. With a cipher that protects integrity itself, what is written as such an algorithm is the pseudo-random
/// function, unless one is written besides.
pub(super) fn ike_proposal(words: &str) -> String {
    let is_combined = is_combined_proposal(words);
    let has_prf = words.split('-').any(|word| word.starts_with("prf"));
    let word = |word: &str| match is_combined && is_integrity(word) {
        true if has_prf => None,
        true => Some(alloc::format!("prf{word}")),
        false => Some(word.to_owned()),
    };
    words.split('-').filter_map(word).collect::<Vec<_>>().join("-")
}

/// A proposal of ESP in our words: charon passes over pseudo-random functions, and beside such a cipher over integrity algorithms.
pub(super) fn esp_proposal(words: &str) -> String {
    let is_combined = is_combined_proposal(words);
    let is_used = |word: &&str| !(word.starts_with("prf") || (is_combined && is_integrity(word)));
    words.split('-').filter(is_used).collect::<Vec<_>>().join("-")
}

fn is_integrity(word: &str) -> bool {
    word.starts_with("sha") || word == "aesxcbc"
}

fn is_combined_proposal(words: &str) -> bool {
    words.split('-').any(|word| ["gcm", "ccm", "chacha"].iter().any(|name| word.contains(name)))
}

/// A range of a pool. charon leaves out a network's first and last address, and begins where an address of it is named.
pub(super) fn pool_range(addresses: &str) -> String {
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
pub(super) fn is_yes(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "yes" | "true" | "1" | "enabled" | "accept" | "force")
}
pub(super) fn is_no(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "no" | "false" | "0" | "disabled")
}

/// Whether a word is any address of IPv4, and of IPv6. Only `%any` is both. Names hold in small letters alone: charon looks `%ANY` up in the DNS.
pub(super) fn any_families(word: &str) -> [bool; 2] {
    match word {
        "%any" => [true, true],
        "%any4" => [true, false],
        "%any6" => [false, true],
        word => match word.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() => [address.is_ipv4(), address.is_ipv6()],
            _ => [false, false],
        },
    }
}

/// Where this side of a connection is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LocalScope {
    /// At any address of IPv4, of IPv6, or of both.
    Families([bool; 2]),
    /// At these addresses alone, sorted.
    Addresses(Vec<String>),
    /// At any address, and at named ones, which charon prefers.
    Both,
}

pub(super) fn local_scope(connection: &SettingsSection) -> LocalScope {
    let all: Vec<String> = split_words(connection.value("local_addrs").unwrap_or_default()).collect();
    if all.is_empty() {
        return LocalScope::Families([true, true]);
    }
    let mut families = [false, false];
    let mut named = Vec::new();
    for word in all {
        match any_families(&word) {
            [false, false] => named.push(word),
            [v4, v6] => families = [families[0] || v4, families[1] || v6],
        }
    }
    named.sort();
    match (families, named.is_empty()) {
        ([false, false], _) => LocalScope::Addresses(named),
        (families, true) => LocalScope::Families(families),
        _ => LocalScope::Both,
    }
}

/// A network, or an address. What has blanks within is a name to charon.
pub(super) fn parse_prefix(word: &str) -> Option<Prefix> {
    Prefix::parse(word).ok().filter(|_| !word.contains(char::is_whitespace))
}

/// A place of a connection's other side: an address or a network.
pub(super) struct PeerAddress {
    /// As the file has it, or `0.0.0.0/0` or `::/0`.
    pub(super) text: String,
    pub(super) prefix: Prefix,
    pub(super) is_address: bool,
}

/// Where the other side of a connection is, and the first word that ours cannot say: a name or a range. Of this side's families alone.
pub(super) fn peer_addresses(connection: &SettingsSection) -> (Vec<PeerAddress>, Option<String>) {
    let (mut places, mut unknown) = (Vec::new(), None);
    let mut any = [false, false];
    let all: Vec<String> = split_words(connection.value("remote_addrs").unwrap_or_default()).collect();
    let everywhere = Vec::from(["%any".to_owned()]);
    for word in if all.is_empty() { everywhere } else { all } {
        match (any_families(&word), parse_prefix(&word)) {
            ([false, false], Some(prefix)) => {
                places.push(PeerAddress { is_address: !word.contains('/'), text: word, prefix });
            }
            ([false, false], None) => unknown = unknown.or(Some(word)),
            ([v4, v6], _) => any = [any[0] || v4, any[1] || v6],
        }
    }
    let whole: [(&str, IpAddr); 2] =
        [("0.0.0.0/0", Ipv4Addr::UNSPECIFIED.into()), ("::/0", Ipv6Addr::UNSPECIFIED.into())];
    for ((text, network), _) in whole.into_iter().zip(any).filter(|(_, is_any)| *is_any) {
        let prefix = Prefix { network, bits: 0 };
        places.push(PeerAddress { text: text.to_owned(), prefix, is_address: false });
    }
    if let LocalScope::Families([v4, v6]) = local_scope(connection) {
        places.retain(|place| if place.prefix.network.is_ipv4() { v4 } else { v6 });
    }
    // A name of somebody within all addresses says nothing more.
    (places, unknown.filter(|_| any != [true, true]))
}

/// Whether a section of a connection is one of these: whatever follows tells them apart.
pub(super) fn is_side(section: &str, side: &str) -> bool {
    section.get(..side.len()).is_some_and(|start| start.eq_ignore_ascii_case(side))
}

/// The rounds of a side of a connection, in their order.
pub(super) fn rounds_of<'a>(connection: &'a SettingsSection, side: &str) -> Vec<&'a SettingsSection> {
    let all = connection.sections.iter().filter(|(name, _)| is_side(name, side));
    let mut all: Vec<&SettingsSection> = all.map(|(_, section)| section).collect();
    all.sort_by_key(|section| {
        section.value("round").and_then(parse_number).unwrap_or(0) & u64::from(u32::MAX)
    });
    all
}

/// The first round of a side of a connection.
pub(super) fn side_of<'a>(connection: &'a SettingsSection, side: &str) -> Option<&'a SettingsSection> {
    rounds_of(connection, side).first().copied()
}

/// The method of a round. charon knows those of EAP behind `eap-` in small letters alone.
pub(super) fn auth_of_round(section: &SettingsSection) -> String {
    let auth = section.value("auth").unwrap_or("pubkey");
    match auth.to_ascii_lowercase() {
        lower if lower.starts_with("eap") && !auth.starts_with("eap-") => "eap".to_owned(),
        lower => lower,
    }
}

/// How the other side of a connection proves who it is, or this one.
pub(super) fn auth_of(connection: &SettingsSection, side: &str) -> String {
    side_of(connection, side).map_or_else(|| "pubkey".to_owned(), auth_of_round)
}

/// Whether a side proves who it is by a certificate in IKE itself.
pub(super) fn is_certified(auth: &str) -> bool {
    auth != "psk" && !auth.starts_with("eap") && !auth.starts_with("xauth")
}

/// The version of IKE that a connection is of, as charon's number: 0 is any; `None`: it is none that charon reads.
pub(super) fn ike_version(connection: &SettingsSection) -> Option<u32> {
    let number = parse_number(connection.value("version").unwrap_or("0"))?;
    u32::try_from(number & u64::from(u32::MAX)).ok()
}
