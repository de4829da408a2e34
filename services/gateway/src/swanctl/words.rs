//! Values of strongSwan: identities, times, secrets, addresses.

use super::settings::SwanctlSection;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_config::Prefix;

/// Quotes a text as a TOML string.
pub(super) fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => {
                // Writing to a string cannot fail.
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

/// Returns the number at the start of a text and the rest, as C's `strtoul`. Without digits, 0 and the whole text.
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

/// Parses a number of charon: `0x` means hexadecimal, `0` octal. Signed numbers, which charon wraps, are rejected.
pub(super) fn parse_number(text: &str) -> Option<u64> {
    let (value, rest) = leading_number(text, 0);
    (rest.is_empty() && !text.contains('-')).then_some(value)
}

/// Parses `4h`, `90s`, `1d` or a number of seconds: the number and our unit.
pub(super) fn parse_swanctl_time(value: &str) -> Option<(u64, &'static str)> {
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
    let (number, unit) = parse_swanctl_time(value).filter(|_| !value.contains('-'))?;
    Some(alloc::format!("{number} {unit}"))
}

/// Parses `1000`, `500m`, `2 g`: the number and the octets of its unit.
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

/// True for an identity that matches all.
pub(super) fn is_any_identity(id: &str) -> bool {
    matches!(id, "" | "%any" | "%any6" | "0.0.0.0" | "*" | "::" | "0::0")
}

/// Translates an identity of strongSwan; `None` if ours has no equivalent.
pub(super) fn translate_identity(id: &str) -> Option<String> {
    // In strongSwan, a network or a range matches several addresses. Only strongSwan matches wildcards and expressions.
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

/// Strips a prefix of two characters, case-insensitive.
fn strip_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|start| start.eq_ignore_ascii_case(prefix))?;
    text.get(prefix.len()..)
}

/// True for a value of octets, not a file name.
pub(super) fn is_octets(value: &str) -> bool {
    strip_any_case(value, "0x").or_else(|| strip_any_case(value, "0s")).is_some()
}

/// Decodes a hexadecimal or base64 secret if the result is a text.
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

/// Joins a relative file name to its folder; an absolute path stays.
pub(super) fn join_path(folder: &str, file: &str) -> String {
    if file.starts_with('/') { file.to_owned() } else { alloc::format!("{folder}/{file}") }
}

/// Translates an IKE proposal. With an AEAD cipher, an integrity word means its pseudorandom function, unless there
/// is a word for one.
pub(super) fn ike_proposal(words: &str) -> String {
    let is_combined = has_aead_cipher(words);
    let has_prf = words.split('-').any(|word| word.starts_with("prf"));
    let word = |word: &str| match is_combined && is_integrity(word) {
        true if has_prf => None,
        true => Some(alloc::format!("prf{word}")),
        false => Some(word.to_owned()),
    };
    words.split('-').filter_map(word).collect::<Vec<_>>().join("-")
}

/// Translates an ESP proposal. charon ignores pseudorandom functions, and integrity algorithms beside an AEAD cipher.
pub(super) fn translate_esp_proposal(words: &str) -> String {
    let is_combined = has_aead_cipher(words);
    let is_used = |word: &&str| !(word.starts_with("prf") || (is_combined && is_integrity(word)));
    words.split('-').filter(is_used).collect::<Vec<_>>().join("-")
}

fn is_integrity(word: &str) -> bool {
    word.starts_with("sha") || word == "aesxcbc"
}

fn has_aead_cipher(words: &str) -> bool {
    words.split('-').any(|word| ["gcm", "ccm", "chacha"].iter().any(|name| word.contains(name)))
}

/// Translates the range of a pool. charon leaves out a network's first and last address, and begins at an address
/// within it if one is named.
pub(super) fn translate_pool_range(addresses: &str) -> String {
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

/// True for yes; words are case-insensitive.
pub(super) fn is_yes(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "yes" | "true" | "1" | "enabled" | "accept" | "force")
}
pub(super) fn is_no(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "no" | "false" | "0" | "disabled")
}

/// Returns whether a word means any IPv4 address, and any IPv6 address. Only `%any` means both. Words are
/// case-sensitive: charon resolves `%ANY` by DNS.
pub(super) fn unspecified_address_families(word: &str) -> [bool; 2] {
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

/// The local addresses of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LocalAddressScope {
    /// Any address of IPv4, of IPv6, or of both.
    Families([bool; 2]),
    /// These addresses only, sorted.
    Addresses(Vec<String>),
    /// Any address, and some named ones, which charon prefers.
    Both,
}

pub(super) fn local_address_scope(connection: &SwanctlSection) -> LocalAddressScope {
    let all: Vec<String> = split_words(connection.value("local_addrs").unwrap_or_default()).collect();
    if all.is_empty() {
        return LocalAddressScope::Families([true, true]);
    }
    let mut families = [false, false];
    let mut named = Vec::new();
    for word in all {
        match unspecified_address_families(&word) {
            [false, false] => named.push(word),
            [v4, v6] => families = [families[0] || v4, families[1] || v6],
        }
    }
    named.sort();
    match (families, named.is_empty()) {
        ([false, false], _) => LocalAddressScope::Addresses(named),
        (families, true) => LocalAddressScope::Families(families),
        _ => LocalAddressScope::Both,
    }
}

/// Parses a network or an address. charon takes text with inner blanks as a name.
pub(super) fn parse_prefix(word: &str) -> Option<Prefix> {
    Prefix::parse(word).ok().filter(|_| !word.contains(char::is_whitespace))
}

/// An address or network of a connection's peer.
pub(super) struct PeerAddressOrPrefix {
    /// As in the file, or `0.0.0.0/0` or `::/0`.
    pub(super) text: String,
    pub(super) prefix: Prefix,
    pub(super) is_address: bool,
}

/// Returns the peer's addresses in the families of this side, and the first word that ours cannot express: a name or
/// a range.
pub(super) fn peer_addresses(connection: &SwanctlSection) -> (Vec<PeerAddressOrPrefix>, Option<String>) {
    let (mut places, mut unknown) = (Vec::new(), None);
    let mut any = [false, false];
    let all: Vec<String> = split_words(connection.value("remote_addrs").unwrap_or_default()).collect();
    let everywhere = Vec::from(["%any".to_owned()]);
    for word in if all.is_empty() { everywhere } else { all } {
        match (unspecified_address_families(&word), parse_prefix(&word)) {
            ([false, false], Some(prefix)) => {
                places.push(PeerAddressOrPrefix { is_address: !word.contains('/'), text: word, prefix });
            }
            ([false, false], None) => unknown = unknown.or(Some(word)),
            ([v4, v6], _) => any = [any[0] || v4, any[1] || v6],
        }
    }
    let whole: [(&str, IpAddr); 2] =
        [("0.0.0.0/0", Ipv4Addr::UNSPECIFIED.into()), ("::/0", Ipv6Addr::UNSPECIFIED.into())];
    for ((text, network), _) in whole.into_iter().zip(any).filter(|(_, is_any)| *is_any) {
        let prefix = Prefix { network, bits: 0 };
        places.push(PeerAddressOrPrefix { text: text.to_owned(), prefix, is_address: false });
    }
    if let LocalAddressScope::Families([v4, v6]) = local_address_scope(connection) {
        places.retain(|place| if place.prefix.network.is_ipv4() { v4 } else { v6 });
    }
    // A name that needs a lookup adds nothing if all addresses are allowed.
    (places, unknown.filter(|_| any != [true, true]))
}

/// True if a section of a connection belongs to this side; a suffix distinguishes several.
pub(super) fn is_section_of_side(section: &str, side: &str) -> bool {
    section.get(..side.len()).is_some_and(|start| start.eq_ignore_ascii_case(side))
}

/// Returns the authentication rounds of a side, in order.
pub(super) fn side_auth_rounds<'a>(connection: &'a SwanctlSection, side: &str) -> Vec<&'a SwanctlSection> {
    let all = connection.sections.iter().filter(|(name, _)| is_section_of_side(name, side));
    let mut all: Vec<&SwanctlSection> = all.map(|(_, section)| section).collect();
    all.sort_by_key(|section| {
        section.value("round").and_then(parse_number).unwrap_or(0) & u64::from(u32::MAX)
    });
    all
}

/// Returns the first authentication round of a side.
pub(super) fn side_of<'a>(connection: &'a SwanctlSection, side: &str) -> Option<&'a SwanctlSection> {
    side_auth_rounds(connection, side).first().copied()
}

/// Returns the method of a round. charon accepts EAP methods after `eap-` in lower case only.
pub(super) fn round_auth_method(section: &SwanctlSection) -> String {
    let auth = section.value("auth").unwrap_or("pubkey");
    match auth.to_ascii_lowercase() {
        lower if lower.starts_with("eap") && !auth.starts_with("eap-") => "eap".to_owned(),
        lower => lower,
    }
}

/// Returns the authentication of a side.
pub(super) fn side_auth_method(connection: &SwanctlSection, side: &str) -> String {
    side_of(connection, side).map_or_else(|| "pubkey".to_owned(), round_auth_method)
}

/// True if a side authenticates by a certificate in IKE itself.
pub(super) fn authenticates_by_certificate(auth: &str) -> bool {
    auth != "psk" && !auth.starts_with("eap") && !auth.starts_with("xauth")
}

/// Returns the IKE version of a connection as charon's number; 0 means any. `None` if charon cannot read it.
pub(super) fn ike_version(connection: &SwanctlSection) -> Option<u32> {
    let number = parse_number(connection.value("version").unwrap_or("0"))?;
    u32::try_from(number & u64::from(u32::MAX)).ok()
}
