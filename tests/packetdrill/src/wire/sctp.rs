//! SCTP packets as bytes (RFC 9260, 3), after one table of what a script can name.

use super::Bytes;
use crate::script::{Item, Value};

/// What is in a chunk, parameter or cause behind its fixed fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    Nothing,
    /// Bytes: `len=`, `val=` (or `info=`).
    Value,
    Parameters,
    Causes,
    /// `gaps=[a:b]`, `dups=[n]` with their counts.
    Sack,
    /// `types=[n]`, each of two bytes.
    Types,
    /// The same, each of one byte.
    ShortTypes,
    /// The same with a count of four bytes before them.
    CountedTypes,
    /// One chunk.
    Chunk,
}

/// A chunk, parameter or cause: name, type, fixed fields with their widths, and the rest.
type Layout = (&'static str, u16, &'static [(&'static str, usize)], Tail);

const CHUNKS: &[Layout] = &[
    ("DATA", 0, &[("tsn", 4), ("sid", 2), ("ssn", 2), ("ppid", 4)], Tail::Value),
    ("INIT", 1, INIT, Tail::Parameters),
    ("INIT_ACK", 2, INIT, Tail::Parameters),
    ("SACK", 3, &[("cum_tsn", 4), ("a_rwnd", 4)], Tail::Sack),
    ("HEARTBEAT", 4, &[], Tail::Parameters),
    ("HEARTBEAT_ACK", 5, &[], Tail::Parameters),
    ("ABORT", 6, &[], Tail::Causes),
    ("SHUTDOWN", 7, &[("cum_tsn", 4)], Tail::Nothing),
    ("SHUTDOWN_ACK", 8, &[], Tail::Nothing),
    ("ERROR", 9, &[], Tail::Causes),
    ("COOKIE_ECHO", 10, &[], Tail::Value),
    ("COOKIE_ACK", 11, &[], Tail::Nothing),
    ("ECNE", 12, &[("tsn", 4)], Tail::Nothing),
    ("CWR", 13, &[("tsn", 4)], Tail::Nothing),
    ("SHUTDOWN_COMPLETE", 14, &[], Tail::Nothing),
    ("PAD", 132, &[], Tail::Value),
];
const INIT: &[(&str, usize)] = &[("tag", 4), ("a_rwnd", 4), ("os", 2), ("is", 2), ("tsn", 4)];

const PARAMETERS: &[Layout] = &[
    ("HEARTBEAT_INFORMATION", 1, &[], Tail::Value),
    ("IPV4_ADDRESS", 5, &[("addr", 4)], Tail::Nothing),
    ("IPV6_ADDRESS", 6, &[("addr", 16)], Tail::Nothing),
    ("STATE_COOKIE", 7, &[], Tail::Value),
    ("UNRECOGNIZED_PARAMETER", 8, &[], Tail::Parameters),
    ("COOKIE_PRESERVATIVE", 9, &[("incr", 4)], Tail::Nothing),
    ("HOSTNAME_ADDRESS", 11, &[], Tail::Value),
    ("SUPPORTED_ADDRESS_TYPES", 12, &[], Tail::Types),
    ("ECN_CAPABLE", 0x8000, &[], Tail::Nothing),
    ("ZERO_CHECKSUM_ACCEPTABLE", 0x8001, &[("edmid", 4)], Tail::Nothing),
    ("PAD", 0x8005, &[], Tail::Value),
    ("SUPPORTED_EXTENSIONS", 0x8008, &[], Tail::ShortTypes),
    ("FORWARD_TSN_SUPPORTED", 0xc000, &[], Tail::Nothing),
    ("ADAPTATION_INDICATION", 0xc006, &[("adaptation_code_point", 4)], Tail::Nothing),
];

const CAUSES: &[Layout] = &[
    ("INVALID_STREAM_IDENTIFIER", 1, &[("sid", 2), ("reserved", 2)], Tail::Nothing),
    ("MISSING_MANDATORY_PARAMETER", 2, &[], Tail::CountedTypes),
    ("STALE_COOKIE_ERROR", 3, &[("staleness", 4)], Tail::Nothing),
    ("OUT_OF_RESOURCE", 4, &[], Tail::Nothing),
    ("UNRESOLVABLE_ADDRESS", 5, &[], Tail::Parameters),
    ("UNRECOGNIZED_CHUNK_TYPE", 6, &[], Tail::Chunk),
    ("INVALID_MANDATORY_PARAMETER", 7, &[], Tail::Nothing),
    ("UNRECOGNIZED_PARAMETERS", 8, &[], Tail::Parameters),
    ("NO_USER_DATA", 9, &[("tsn", 4)], Tail::Nothing),
    ("COOKIE_RECEIVED_WHILE_SHUTDOWN", 10, &[], Tail::Nothing),
    ("RESTART_WITH_NEW_ADDRESSES", 11, &[], Tail::Parameters),
    ("USER_INITIATED_ABORT", 12, &[], Tail::Value),
    ("PROTOCOL_VIOLATION", 13, &[], Tail::Value),
];

/// What the bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Chunk,
    Parameter,
    Cause,
}

impl Class {
    fn layouts(self) -> &'static [Layout] {
        match self {
            Self::Chunk => CHUNKS,
            Self::Parameter => PARAMETERS,
            Self::Cause => CAUSES,
        }
    }
    /// The layout of a name; `CHUNK`, `PARAMETER` and `CAUSE` take their type from `type=` or `code=`.
    fn layout(self, name: &str, items: &[Item]) -> Result<Layout, String> {
        if let Some(layout) = self.layouts().iter().find(|l| l.0 == name) {
            return Ok(*layout);
        }
        if ["CHUNK", "PARAMETER", "CAUSE"].contains(&name) {
            let kind = number(items, "type").or(number(items, "code")).unwrap_or(0);
            return Ok(("", kind as u16, &[], Tail::Value));
        }
        Err(format!("`{name}` in SCTP"))
    }
}

/// A field's value, where the script gives a number.
pub(crate) fn number(items: &[Item], key: &str) -> Option<u64> {
    field(items, key).and_then(Value::int).and_then(|n| u64::try_from(n).ok())
}
/// A field's value.
pub(crate) fn field<'a>(items: &'a [Item], key: &str) -> Option<&'a Value> {
    items.iter().find(|i| i.key == key).map(|i| &i.value)
}
/// The bits of `flgs=`: a number, or letters.
pub(crate) fn flags(items: &[Item]) -> Result<Option<u8>, String> {
    Ok(match field(items, "flgs") {
        None | Some(Value::Any) => None,
        Some(Value::Int(n)) => Some(*n as u8),
        Some(Value::Word(word)) => {
            let bit = |letter| match letter {
                'T' | 'E' => Ok(1),
                'B' => Ok(2),
                'U' => Ok(4),
                'I' => Ok(8),
                _ => Err(format!("flag `{letter}`")),
            };
            Some(word.chars().map(bit).try_fold(0, |all, bit| bit.map(|bit: u8| all | bit))?)
        }
        Some(_) => return Err("flgs= is letters or a number".into()),
    })
}

fn listed(items: &[Item], key: &str) -> Vec<Value> {
    match field(items, key) {
        Some(Value::List(values)) => values.clone(),
        _ => Vec::new(),
    }
}
fn put(out: &mut Vec<u8>, n: u64, width: usize) {
    let bytes = u128::from(n).to_be_bytes();
    out.extend(&bytes[16 - width..]);
}
/// An address field's bytes, zero where it is left open.
fn address(items: &[Item], width: usize) -> Vec<u8> {
    let text = match field(items, "addr") {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let mut bytes = match text.parse() {
        Ok(std::net::IpAddr::V4(a)) => a.octets().to_vec(),
        Ok(std::net::IpAddr::V6(a)) => a.octets().to_vec(),
        Err(_) => Vec::new(),
    };
    bytes.resize(width, 0);
    bytes
}
fn address_type(value: &Value) -> u64 {
    match value {
        Value::Int(n) => *n as u64,
        Value::Word(word) if word == "IPv4" => 5,
        Value::Word(word) if word == "IPv6" => 6,
        Value::Word(word) => CHUNKS.iter().find(|l| l.0 == word).map_or(0, |l| l.1.into()),
        _ => 0,
    }
}

/// The bytes that a script gives a value: those listed, or filler up to `len=`.
fn value_bytes(items: &[Item], header: usize) -> Vec<u8> {
    let key = if field(items, "val").is_some() { "val" } else { "info" };
    let mut bytes: Vec<u8> = match field(items, key) {
        Some(Value::List(values)) => values.iter().filter_map(Value::int).map(|n| n as u8).collect(),
        Some(Value::Text(text)) => text.bytes().collect(),
        _ => Vec::new(),
    };
    if let Some(len) = number(items, "len") {
        bytes.resize((len as usize).saturating_sub(header).min(65_535), 0);
    }
    bytes
}

/// Bytes of a chunk, parameter or cause, without padding.
///
/// # Errors
/// Something in it is not known here.
pub(crate) fn encode(class: Class, name: &str, items: &[Item]) -> Result<Vec<u8>, String> {
    let (_, kind, fields, tail) = class.layout(name, items)?;
    let mut out = match class {
        Class::Chunk => vec![kind as u8, flags(items)?.unwrap_or(0)],
        _ => kind.to_be_bytes().to_vec(),
    };
    out.extend([0, 0]);
    for &(key, width) in fields {
        if key == "addr" {
            out.extend(address(items, width));
        } else {
            put(&mut out, number(items, key).unwrap_or(0), width);
        }
    }
    let fixed = out.len();
    match tail {
        Tail::Nothing => {}
        Tail::Value => out.extend(value_bytes(items, fixed)),
        Tail::Parameters | Tail::Causes | Tail::Chunk => {
            let inner = match tail {
                Tail::Parameters => Class::Parameter,
                Tail::Causes => Class::Cause,
                _ => Class::Chunk,
            };
            for (name, items) in nodes(items) {
                out.resize(out.len().next_multiple_of(4), 0);
                out.extend(encode(inner, name, items)?);
            }
        }
        Tail::Sack => {
            let (gaps, dups) = (listed(items, "gaps"), listed(items, "dups"));
            put(&mut out, gaps.len() as u64, 2);
            put(&mut out, dups.len() as u64, 2);
            for gap in gaps {
                let Value::Range(from, to) = gap else { return Err("a gap is first:last".into()) };
                put(&mut out, from as u64, 2);
                put(&mut out, to as u64, 2);
            }
            for dup in dups {
                put(&mut out, dup.int().unwrap_or(0) as u64, 4);
            }
        }
        Tail::Types | Tail::ShortTypes | Tail::CountedTypes => {
            let types = listed(items, "types");
            if tail == Tail::CountedTypes {
                put(&mut out, types.len() as u64, 4);
            }
            for kind in &types {
                put(&mut out, address_type(kind), if tail == Tail::ShortTypes { 1 } else { 2 });
            }
        }
    }
    // A length that the script gives is said even where it is wrong.
    let len = number(items, "len").unwrap_or(out.len() as u64) as u16;
    out[2..4].copy_from_slice(&len.to_be_bytes());
    Ok(out)
}

/// The named parts within, also those in a list after a key.
fn nodes(items: &[Item]) -> Vec<(&str, &[Item])> {
    let mut found = Vec::new();
    for item in items {
        match &item.value {
            Value::Node(name, inner) => found.push((name.as_str(), inner.as_slice())),
            Value::List(values) => found.extend(values.iter().filter_map(|v| match v {
                Value::Node(name, inner) => Some((name.as_str(), inner.as_slice())),
                _ => None,
            })),
            _ => {}
        }
    }
    found
}

/// True where something behind the fixed fields is left open by `...`.
fn open(items: &[Item]) -> bool {
    items.iter().any(|i| i.value == Value::Any && ["", "params", "param", "chk"].contains(&i.key.as_str()))
}

/// The parts of bytes, each with its header and without its padding.
pub(crate) fn parts(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let len = usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
        if len < 4 {
            return None;
        }
        found.push(rest.get(..len)?);
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

/// Holds bytes against what a script says of them.
///
/// # Errors
/// What differs; the first of it.
pub(crate) fn matches(class: Class, name: &str, items: &[Item], bytes: &[u8]) -> Result<(), String> {
    let (_, kind, fields, tail) = class.layout(name, items)?;
    let cut = || format!("{name} is cut short");
    let mut b = Bytes(bytes);
    let found = match class {
        Class::Chunk => {
            let found = b.number(1).ok_or_else(cut)? as u16;
            let bits = b.number(1).ok_or_else(cut)? as u8;
            if let Some(wanted) = flags(items)?
                && wanted != bits
                && found == kind
            {
                return Err(format!("{name} has flags {bits:#x}, not {wanted:#x}"));
            }
            found
        }
        _ => b.number(2).ok_or_else(cut)? as u16,
    };
    let any_kind = ["CHUNK", "PARAMETER", "CAUSE"].contains(&name)
        && number(items, "type").or(number(items, "code")).is_none();
    if found != kind && !any_kind {
        return Err(format!("{} is sent where {name} is expected", named(class, found)));
    }
    let len = b.number(2).ok_or_else(cut)?;
    if let Some(wanted) = number(items, "len")
        && wanted != len
    {
        return Err(format!("{name} has length {len}, not {wanted}"));
    }
    for &(key, width) in fields {
        if key == "addr" {
            let is = b.take(width).ok_or_else(cut)?;
            if !matches!(field(items, "addr"), None | Some(Value::Any)) && is != address(items, width) {
                return Err(format!("{name} has another address"));
            }
            continue;
        }
        let is = b.number(width).ok_or_else(cut)?;
        if let Some(wanted) = number(items, key)
            && wanted != is
        {
            return Err(format!("{name} has {key}={is}, not {wanted}"));
        }
    }
    matches_tail(name, items, tail, bytes.len() - b.0.len(), b)
}

fn matches_tail(
    name: &str,
    items: &[Item],
    tail: Tail,
    header: usize,
    mut b: Bytes<'_>,
) -> Result<(), String> {
    let cut = || format!("{name} is cut short");
    let inner = match tail {
        Tail::Parameters => Class::Parameter,
        Tail::Causes => Class::Cause,
        Tail::Chunk => Class::Chunk,
        Tail::Nothing => return Ok(()),
        Tail::Value => {
            let given = ["val", "info"].iter().any(|key| match field(items, key) {
                Some(Value::List(list)) => !list.contains(&Value::Any),
                Some(Value::Text(_)) => true,
                _ => false,
            });
            let same = !given || value_bytes(items, header) == b.0;
            return if same { Ok(()) } else { Err(format!("{name} has another value")) };
        }
        Tail::Sack => {
            let (gaps, dups) = (b.number(2).ok_or_else(cut)?, b.number(2).ok_or_else(cut)?);
            let mut is_gaps = Vec::new();
            for _ in 0..gaps {
                let (from, to) = (b.number(2).ok_or_else(cut)?, b.number(2).ok_or_else(cut)?);
                is_gaps.push(Value::Range(from as i64, to as i64));
            }
            let mut is_dups = Vec::new();
            for _ in 0..dups {
                is_dups.push(Value::Int(b.number(4).ok_or_else(cut)? as i64));
            }
            for (key, is) in [("gaps", is_gaps), ("dups", is_dups)] {
                if let Some(Value::List(wanted)) = field(items, key)
                    && *wanted != is
                    && !wanted.contains(&Value::Any)
                {
                    return Err(format!("{name} has {key}={is:?}, not {wanted:?}"));
                }
            }
            return Ok(());
        }
        Tail::Types | Tail::ShortTypes | Tail::CountedTypes => {
            if let Some(Value::List(wanted)) = field(items, "types") {
                if tail == Tail::CountedTypes {
                    b.number(4).ok_or_else(cut)?;
                }
                let width = if tail == Tail::ShortTypes { 1 } else { 2 };
                let is: Vec<u64> = b.0.chunks(width).filter_map(|c| Bytes(c).number(width)).collect();
                let wanted: Vec<u64> = wanted.iter().map(address_type).collect();
                if is != wanted {
                    return Err(format!("{name} has types {is:?}, not {wanted:?}"));
                }
            }
            return Ok(());
        }
    };
    let found = parts(b.0).ok_or_else(cut)?;
    let wanted = nodes(items);
    for (i, (inner_name, inner_items)) in wanted.iter().enumerate() {
        let part = found.get(i).ok_or_else(|| format!("{inner_name} is missing in {name}"))?;
        matches(inner, inner_name, inner_items, part)?;
    }
    if found.len() > wanted.len() && !open(items) {
        return Err(format!("{name} has {} parts, not {}", found.len(), wanted.len()));
    }
    Ok(())
}

/// A type's name.
pub(crate) fn named(class: Class, kind: u16) -> String {
    let layout = class.layouts().iter().find(|l| l.1 == kind);
    layout.map_or_else(|| format!("type {kind}"), |l| l.0.to_owned())
}

/// CRC32c as SCTP's header has it (RFC 9260, appendix A), bit by bit.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), step))
}
