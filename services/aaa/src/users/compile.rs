//! A store's rows made into a user.

use super::{Check, Complaint, Control, Group, Method, Password, Reply, User};
use crate::store::{Op, Row, UserRows};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use usher_core::WallTime;
use usher_crypto::password::check_argon2;
use usher_radius::attribute::{Attributes, DataType, Value, kind};
use usher_radius::dictionary::{Definition, Dictionary, Encryption};

impl User {
    /// A user as the rows of the tables say, in FreeRADIUS's words and meaning.
    ///
    /// # Errors
    /// The first row that cannot be understood, and what to do: a user of whom a part was left out could be let in
    /// where nobody meant it.
    pub fn compile(rows: &UserRows, dictionary: &Dictionary) -> Result<Self, Complaint> {
        let own = rows_of(&rows.check, "radcheck", dictionary)?;
        let (reply, fall_through) = replies(&rows.reply, "radreply", dictionary)?;
        let Control { password, methods, simultaneous, expires, pool, rejected } = own.1;
        let mut user = Self {
            password,
            methods,
            checks: own.0,
            simultaneous,
            expires,
            pool,
            rejected,
            ..Self::default()
        };
        for item in &reply {
            item.apply(&mut user.reply);
        }
        if fall_through == Some(false) {
            return Ok(user);
        }
        for group in &rows.groups {
            let (checks, control) =
                rows_of(&group.check, &format!("radgroupcheck of {}", group.name), dictionary)?;
            let (reply, fall_through) =
                replies(&group.reply, &format!("radgroupreply of {}", group.name), dictionary)?;
            user.groups.push(Arc::new(Group {
                name: group.name.clone(),
                checks,
                control,
                reply,
                fall_through: fall_through == Some(true),
            }));
        }
        Ok(user)
    }
}

/// Attributes whose values are never shown.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("password") || name == "password-with-header"
}

fn complain(table: &str, row: &Row, what: String) -> Complaint {
    let value = if is_secret(&row.attribute) { "(hidden)".into() } else { row.value.clone() };
    Complaint { table: table.into(), attribute: row.attribute.clone(), op: row.op, value, what }
}

fn rows_of(rows: &[Row], table: &str, dictionary: &Dictionary) -> Result<(Vec<Check>, Control), Complaint> {
    let (mut checks, mut control) = (Vec::new(), Control::default());
    for row in rows {
        let done = match set(row, &mut control) {
            Err(NotControl) => comparison(row, dictionary).map(|check| checks.push(check)),
            Ok(done) => done,
        };
        done.map_err(|what| complain(table, row, what))?;
    }
    Ok((checks, control))
}

/// A row is none that sets something for the server itself.
struct NotControl;

/// Takes a row that sets something for the server itself.
fn set(row: &Row, control: &mut Control) -> Result<Result<(), String>, NotControl> {
    let name = row.attribute.to_ascii_lowercase();
    let value = row.value.as_str();
    let done = match name.as_str() {
        "cleartext-password" => put(&mut control.password, row, clear(value)),
        "nt-password" => put(&mut control.password, row, nt_hash(value)),
        "password-with-header" => put(&mut control.password, row, with_header(value)),
        "crypt-password" => put(&mut control.password, row, hashed(value)),
        "user-password" => Err("write Cleartext-Password := instead".into()),
        "ssha-password" | "sha-password" | "sha1-password" | "sha2-password" | "smd5-password"
        | "md5-password" | "lm-password" | "pbkdf2-password" | "ssha2-password" => {
            Err("this hash is not served; store Cleartext-Password, NT-Password or an Argon2 hash in \
                 Crypt-Password"
                .into())
        }
        "auth-type" => {
            match value.to_ascii_lowercase().as_str() {
                "reject" => {
                    control.rejected = true;
                    Ok(())
                }
                "accept" => {
                    control.methods = [Method::Mab].into();
                    Ok(())
                }
                "local" | "pap" => restrict(control, row, &[Method::Pap]),
                "chap" => restrict(control, row, &[Method::Chap]),
                "ms-chap" | "mschap" => restrict(control, row, &[Method::MsChap, Method::MsChapV2]),
                "eap" => restrict(control, row, &eap_methods()),
                _ => Err("Reject, Accept (MAC authentication bypass), PAP, CHAP, MS-CHAP and EAP are served"
                    .into()),
            }
        }
        "eap-type" => {
            let method = match value.to_ascii_lowercase().as_str() {
                "md5-challenge" | "eap-md5" | "md5" | "4" => Ok(Method::EapMd5),
                "generic-token-card" | "gtc" | "eap-gtc" | "6" => Ok(Method::EapGtc),
                "eap-tls" | "tls" | "13" => Ok(Method::EapTls),
                "eap-ttls" | "ttls" | "21" => Ok(Method::Ttls),
                "peap" | "eap-peap" | "25" => Ok(Method::Peap),
                "eap-mschap-v2" | "eap-mschapv2" | "mschap-v2" | "mschapv2" | "26" => Ok(Method::EapMsChapV2),
                _ => Err("no EAP method of this server".to_string()),
            };
            method.and_then(|m| restrict(control, row, &[m]))
        }
        "simultaneous-use" => {
            let number = value.parse().map_err(|_| "not a number of sessions".to_string());
            put(&mut control.simultaneous, row, number)
        }
        "expiration" => {
            let time = date(value).ok_or_else(|| "write a date as `31 Dec 2026 23:59:59` (UTC)".to_string());
            put(&mut control.expires, row, time)
        }
        "pool-name" => put(&mut control.pool, row, Ok(value.into())),
        "login-time"
        | "max-daily-session"
        | "max-monthly-session"
        | "max-all-session"
        | "group"
        | "huntgroup-name"
        | "realm"
        | "current-time"
        | "sql-group"
        | "ldap-group"
        | "client-ip-address"
        | "hint" => Err("this check is not served; remove the row".into()),
        _ => return Err(NotControl),
    };
    Ok(done)
}

fn eap_methods() -> Vec<Method> {
    Method::ALL.into_iter().filter(|m| m.eap_type().is_some()).collect()
}

/// Sets a value as the operator says.
fn put<T>(place: &mut Option<T>, row: &Row, value: Result<T, String>) -> Result<(), String> {
    let value = value?;
    match row.op {
        Op::Replace | Op::Add => *place = Some(value),
        Op::Set => {
            place.get_or_insert(value);
        }
        _ => return Err("write := to set it; it is nothing that a request has".into()),
    }
    Ok(())
}

fn restrict(control: &mut Control, row: &Row, methods: &[Method]) -> Result<(), String> {
    match row.op {
        Op::Replace | Op::Set => control.methods = methods.into(),
        Op::Add => control.methods.extend_from_slice(methods),
        _ => return Err("write := to set it, += to add to it; a request's method is not compared".into()),
    }
    Ok(())
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// What is said of the empty password.
const EMPTY: &str =
    "the password is empty, so that everybody has it; give another, or none where the user needs none";

fn clear(value: &str) -> Result<Password, String> {
    if value.is_empty() { Err(EMPTY.into()) } else { Ok(Password::Clear(value.as_bytes().into())) }
}

fn nt_hash(value: &str) -> Result<Password, String> {
    let hash: Option<[u8; 16]> = hex(value).and_then(|h| h.try_into().ok());
    match hash.ok_or("an NT hash has 32 hexadecimal digits")? {
        hash if hash == usher_crypto::legacy::nt_hash(b"") => Err(EMPTY.into()),
        hash => Ok(Password::NtHash(hash.into())),
    }
}

fn hashed(value: &str) -> Result<Password, String> {
    check_argon2(value).map(|()| Password::Argon2(value.into())).map_err(|fault| fault.to_string())
}

fn with_header(value: &str) -> Result<Password, String> {
    let Some((header, rest)) = value.strip_prefix('{').and_then(|v| v.split_once('}')) else {
        return hashed(value);
    };
    match header.to_ascii_lowercase().as_str() {
        "clear" | "cleartext" => clear(rest),
        "nt" | "nthash" | "x-nthash" | "md4" => nt_hash(rest),
        "crypt" | "argon2" => hashed(rest),
        _ => Err("only {clear}, {nt} and Argon2 hashes are served".into()),
    }
}

/// A request's attribute that is compared.
fn comparison(row: &Row, dictionary: &Dictionary) -> Result<Check, String> {
    let (definition, _) = find(&row.attribute, dictionary)?;
    let op = match row.op {
        // As FreeRADIUS does with an operator that compares nothing.
        Op::Set => Op::Equal,
        Op::Replace | Op::Add => {
            return Err("a request's attribute is compared (==), not set; what the answer says is in the \
                        reply table"
                .into());
        }
        Op::Matches | Op::MatchesNot => {
            return Err("expressions are not served; write a comparison for each value".into());
        }
        op => op,
    };
    if definition.encryption != Encryption::None {
        return Err("a hidden attribute cannot be compared".into());
    }
    let mut bytes = Vec::new();
    if !matches!(op, Op::Present | Op::Absent) {
        encode(definition, &row.value, dictionary, &mut bytes)?;
    }
    let number = matches!(definition.data_type, DataType::Integer | DataType::Integer64 | DataType::Time);
    if definition.tagged && number {
        bytes[0] = 0;
    }
    Ok(Check { attribute: definition.oid, op, value: bytes, number })
}

/// An attribute by name, and the tag after it (`Tunnel-Type:1`).
fn find<'d>(name: &str, dictionary: &'d Dictionary) -> Result<(&'d Definition, u8), String> {
    let (bare, tag) = match name.rsplit_once(':') {
        Some((bare, tag)) => {
            let tag = tag.parse().ok().filter(|t| *t <= 0x1f);
            (bare, tag.ok_or("a tag is a number up to 31")?)
        }
        None => (name, 0),
    };
    let definition = dictionary.by_name(bare);
    let definition = definition
        .ok_or("no such attribute in the dictionaries; add the vendor's dictionary, or mend the name")?;
    let served = match definition.oid.parts() {
        [number] => u8::try_from(*number).is_ok(),
        [26, _, number] => u8::try_from(*number).is_ok(),
        _ => false,
    };
    if !served {
        return Err("attributes within others are not served".into());
    }
    Ok((definition, tag))
}

/// A value's octets.
fn encode(
    definition: &Definition,
    text: &str,
    dictionary: &Dictionary,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let number = || match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let small = |n: u64| u32::try_from(n).map_err(|_| "the number is too large".to_string());
    let octets;
    let value = match definition.data_type {
        DataType::Integer => {
            let n = dictionary.value_number(definition.oid, text).or_else(number);
            Value::Integer(small(n.ok_or("neither a number nor a name that the dictionary has for it")?)?)
        }
        DataType::Integer64 => {
            let n = dictionary.value_number(definition.oid, text).or_else(number);
            Value::Integer64(n.ok_or("neither a number nor a name that the dictionary has for it")?)
        }
        DataType::Time => {
            let seconds = number().or_else(|| date(text).map(WallTime::unix_secs));
            Value::Time(small(seconds.ok_or("write a date as `31 Dec 2026 23:59:59` (UTC)")?)?)
        }
        DataType::Text => Value::Text(text),
        DataType::Ipv4Addr => Value::Ipv4Addr(text.parse().map_err(|_| "not an IPv4 address")?),
        DataType::Ipv6Addr => Value::Ipv6Addr(text.parse().map_err(|_| "not an IPv6 address")?),
        DataType::Ipv4Prefix | DataType::Ipv6Prefix => {
            let (address, length) = text.split_once('/').ok_or("write a prefix as `2001:db8::/64`")?;
            let length: u8 = length.parse().map_err(|_| "the prefix's length is no number")?;
            if definition.data_type == DataType::Ipv4Prefix {
                Value::Ipv4Prefix(address.parse().map_err(|_| "not an IPv4 prefix")?, length)
            } else {
                Value::Ipv6Prefix(address.parse().map_err(|_| "not an IPv6 prefix")?, length)
            }
        }
        DataType::String | DataType::Concat | DataType::Ifid => {
            octets = match text.strip_prefix("0x") {
                Some(digits) => hex(digits).ok_or("not hexadecimal")?,
                None => text.as_bytes().to_vec(),
            };
            Value::Octets(&octets)
        }
        DataType::Tlv | DataType::Vsa | DataType::Extended | DataType::LongExtended | DataType::Evs => {
            return Err("attributes that hold others are not served".into());
        }
    };
    value.encode(out);
    if Value::decode(definition.data_type, out).is_err() {
        return Err("the value has not the form of its type".into());
    }
    Ok(())
}

/// The rows of a reply table, and what they say of Fall-Through.
fn replies(
    rows: &[Row],
    table: &str,
    dictionary: &Dictionary,
) -> Result<(Vec<Reply>, Option<bool>), Complaint> {
    let (mut replies, mut fall_through) = (Vec::new(), None);
    for row in rows {
        let fault = |what| complain(table, row, what);
        if row.attribute.eq_ignore_ascii_case("fall-through") {
            fall_through = match row.value.to_ascii_lowercase().as_str() {
                "yes" | "1" => Some(true),
                "no" | "0" => Some(false),
                _ => return Err(fault("write Yes or No".into())),
            };
            continue;
        }
        replies.push(reply(row, dictionary).map_err(fault)?);
    }
    Ok((replies, fall_through))
}

/// Attributes that no Access-Accept of a server may have (RFC 2865 §5.44, RFC 2869 §5.19), or that the server itself puts
/// in: State, Proxy-State, EAP-Message, Message-Authenticator.
const NOT_OF_A_REPLY: [u8; 18] = [2, 3, 4, 5, 24, 30, 31, 32, 33, 60, 61, 70, 75, 76, 77, 79, 80, 87];

/// The shortest Acct-Interim-Interval, seconds (RFC 2869 §5.16).
const SHORTEST_INTERVAL: u32 = 60;

fn reply(row: &Row, dictionary: &Dictionary) -> Result<Reply, String> {
    let (definition, tag) = find(&row.attribute, dictionary)?;
    if matches!(definition.oid.parts(), &[n] if NOT_OF_A_REPLY.iter().any(|&kind| u32::from(kind) == n)) {
        return Err("no Access-Accept has this attribute; remove the row".into());
    }
    if !matches!(row.op, Op::Set | Op::Replace | Op::Add) {
        return Err("a reply's operators are =, := and +=".into());
    }
    let mut bytes = Vec::new();
    encode(definition, &row.value, dictionary, &mut bytes)?;
    let long = |_| "the value is too long for its attribute".to_string();
    let mut value = Attributes::new();
    if bytes.is_empty() {
        // RFC 2865 §5: what has no value is left out. It takes the place of others all the same.
        return Ok(Reply { attribute: definition.oid, op: row.op, value });
    }
    if let (&[n], Some(seconds)) = (definition.oid.parts(), bytes.first_chunk::<4>())
        && n == u32::from(kind::ACCT_INTERIM_INTERVAL)
    {
        bytes = u32::from_be_bytes(*seconds).max(SHORTEST_INTERVAL).to_be_bytes().to_vec();
    }
    match (definition.oid.parts(), definition.encryption) {
        (&[number], Encryption::None) if definition.tagged => {
            if let (DataType::Integer, Some(octets)) = (definition.data_type, bytes.first_chunk::<4>()) {
                value.push_tagged_u32(number as u8, tag, u32::from_be_bytes(*octets));
            } else if tag == 0 {
                value.push_bytes(number as u8, &bytes).map_err(long)?;
            } else {
                value.push_tagged_bytes(number as u8, tag, &bytes).map_err(long)?;
            }
        }
        (&[number], Encryption::None) if definition.concat => {
            value.push_concat(number as u8, &bytes);
        }
        (&[number], Encryption::None) => {
            value.push_bytes(number as u8, &bytes).map_err(long)?;
        }
        (&[_], Encryption::Salted) => {
            value.push_tunnel_password(tag, &bytes).map_err(long)?;
        }
        (&[26, vendor, number], Encryption::None) => {
            value.push_vendor(vendor, number as u8, &bytes).map_err(long)?;
        }
        (&[26, vendor, number], Encryption::Salted) => {
            value.push_vendor_salted(vendor, number as u8, &bytes).map_err(long)?;
        }
        _ => return Err("this attribute is hidden in a way that no reply is".into()),
    }
    Ok(Reply { attribute: definition.oid, op: row.op, value })
}

/// A date as people and FreeRADIUS's tables write it: `31 Dec 2026`, `Dec 31 2026 23:59:59`, `2026-12-31T23:59:59`,
/// or seconds since 1970. UTC.
fn date(text: &str) -> Option<WallTime> {
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

#[cfg(test)]
mod tests;
