//! SCTP packets as bytes (RFC 9260, 3), by one table of all names in scripts.

use super::FieldReader;
use crate::script::{ScriptItem, ScriptValue};

/// The part of a chunk, parameter or cause behind its fixed fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LayoutTail {
    Empty,
    /// Bytes: `len=`, `val=` (or `info=`).
    Value,
    Parameters,
    Causes,
    /// `gaps=[a:b]`, `dups=[n]`, with their counts.
    Sack,
    /// `types=[n]`, two bytes each.
    Types,
    /// `types=[n]`, one byte each.
    ShortTypes,
    /// `types=[n]`, two bytes each, after a count of four bytes.
    CountedTypes,
    /// One chunk.
    Chunk,
}

/// The layout of a chunk, parameter or cause: name, type, fixed fields with their widths, and the rest.
type FieldLayout = (&'static str, u16, &'static [(&'static str, usize)], LayoutTail);

const CHUNKS: &[FieldLayout] = &[
    ("DATA", 0, &[("tsn", 4), ("sid", 2), ("ssn", 2), ("ppid", 4)], LayoutTail::Value),
    ("INIT", 1, INIT, LayoutTail::Parameters),
    ("INIT_ACK", 2, INIT, LayoutTail::Parameters),
    ("SACK", 3, &[("cum_tsn", 4), ("a_rwnd", 4)], LayoutTail::Sack),
    ("HEARTBEAT", 4, &[], LayoutTail::Parameters),
    ("HEARTBEAT_ACK", 5, &[], LayoutTail::Parameters),
    ("ABORT", 6, &[], LayoutTail::Causes),
    ("SHUTDOWN", 7, &[("cum_tsn", 4)], LayoutTail::Empty),
    ("SHUTDOWN_ACK", 8, &[], LayoutTail::Empty),
    ("ERROR", 9, &[], LayoutTail::Causes),
    ("COOKIE_ECHO", 10, &[], LayoutTail::Value),
    ("COOKIE_ACK", 11, &[], LayoutTail::Empty),
    ("ECNE", 12, &[("tsn", 4)], LayoutTail::Empty),
    ("CWR", 13, &[("tsn", 4)], LayoutTail::Empty),
    ("SHUTDOWN_COMPLETE", 14, &[], LayoutTail::Empty),
    ("PAD", 132, &[], LayoutTail::Value),
];
const INIT: &[(&str, usize)] = &[("tag", 4), ("a_rwnd", 4), ("os", 2), ("is", 2), ("tsn", 4)];

const PARAMETERS: &[FieldLayout] = &[
    ("HEARTBEAT_INFORMATION", 1, &[], LayoutTail::Value),
    ("IPV4_ADDRESS", 5, &[("addr", 4)], LayoutTail::Empty),
    ("IPV6_ADDRESS", 6, &[("addr", 16)], LayoutTail::Empty),
    ("STATE_COOKIE", 7, &[], LayoutTail::Value),
    ("UNRECOGNIZED_PARAMETER", 8, &[], LayoutTail::Parameters),
    ("COOKIE_PRESERVATIVE", 9, &[("incr", 4)], LayoutTail::Empty),
    ("HOSTNAME_ADDRESS", 11, &[], LayoutTail::Value),
    ("SUPPORTED_ADDRESS_TYPES", 12, &[], LayoutTail::Types),
    ("ECN_CAPABLE", 0x8000, &[], LayoutTail::Empty),
    ("ZERO_CHECKSUM_ACCEPTABLE", 0x8001, &[("edmid", 4)], LayoutTail::Empty),
    ("PAD", 0x8005, &[], LayoutTail::Value),
    ("SUPPORTED_EXTENSIONS", 0x8008, &[], LayoutTail::ShortTypes),
    ("FORWARD_TSN_SUPPORTED", 0xc000, &[], LayoutTail::Empty),
    ("ADAPTATION_INDICATION", 0xc006, &[("adaptation_code_point", 4)], LayoutTail::Empty),
];

const CAUSES: &[FieldLayout] = &[
    ("INVALID_STREAM_IDENTIFIER", 1, &[("sid", 2), ("reserved", 2)], LayoutTail::Empty),
    ("MISSING_MANDATORY_PARAMETER", 2, &[], LayoutTail::CountedTypes),
    ("STALE_COOKIE_ERROR", 3, &[("staleness", 4)], LayoutTail::Empty),
    ("OUT_OF_RESOURCE", 4, &[], LayoutTail::Empty),
    ("UNRESOLVABLE_ADDRESS", 5, &[], LayoutTail::Parameters),
    ("UNRECOGNIZED_CHUNK_TYPE", 6, &[], LayoutTail::Chunk),
    ("INVALID_MANDATORY_PARAMETER", 7, &[], LayoutTail::Empty),
    ("UNRECOGNIZED_PARAMETERS", 8, &[], LayoutTail::Parameters),
    ("NO_USER_DATA", 9, &[("tsn", 4)], LayoutTail::Empty),
    ("COOKIE_RECEIVED_WHILE_SHUTDOWN", 10, &[], LayoutTail::Empty),
    ("RESTART_WITH_NEW_ADDRESSES", 11, &[], LayoutTail::Parameters),
    ("USER_INITIATED_ABORT", 12, &[], LayoutTail::Value),
    ("PROTOCOL_VIOLATION", 13, &[], LayoutTail::Value),
];

/// The kind of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PartKind {
    Chunk,
    Parameter,
    Cause,
}

impl PartKind {
    fn layouts(self) -> &'static [FieldLayout] {
        match self {
            Self::Chunk => CHUNKS,
            Self::Parameter => PARAMETERS,
            Self::Cause => CAUSES,
        }
    }
    /// Returns the layout of a name. `CHUNK`, `PARAMETER` and `CAUSE` take their type from `type=` or `code=`.
    fn layout_of(self, name: &str, items: &[ScriptItem]) -> Result<FieldLayout, String> {
        if let Some(layout) = self.layouts().iter().find(|l| l.0 == name) {
            return Ok(*layout);
        }
        if ["CHUNK", "PARAMETER", "CAUSE"].contains(&name) {
            let kind = field_number(items, "type").or(field_number(items, "code")).unwrap_or(0);
            return Ok(("", kind as u16, &[], LayoutTail::Value));
        }
        Err(format!("`{name}` in SCTP"))
    }
}

/// Returns a field's value if it is a number.
pub(crate) fn field_number(items: &[ScriptItem], key: &str) -> Option<u64> {
    field_value(items, key).and_then(ScriptValue::as_int).and_then(|n| u64::try_from(n).ok())
}
/// Returns a field's value.
pub(crate) fn field_value<'a>(items: &'a [ScriptItem], key: &str) -> Option<&'a ScriptValue> {
    items.iter().find(|i| i.key == key).map(|i| &i.value)
}
/// Returns the bits of `flgs=`, a number or letters.
pub(crate) fn flag_bits(items: &[ScriptItem]) -> Result<Option<u8>, String> {
    Ok(match field_value(items, "flgs") {
        None | Some(ScriptValue::Any) => None,
        Some(ScriptValue::Int(n)) => Some(*n as u8),
        Some(ScriptValue::Word(word)) => {
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

fn listed_values(items: &[ScriptItem], key: &str) -> Vec<ScriptValue> {
    match field_value(items, key) {
        Some(ScriptValue::List(values)) => values.clone(),
        _ => Vec::new(),
    }
}
fn put_number(out: &mut Vec<u8>, n: u64, width: usize) {
    let bytes = u128::from(n).to_be_bytes();
    out.extend(&bytes[16 - width..]);
}
/// Returns the bytes of an address field, zeros if it is left open.
fn address_bytes(items: &[ScriptItem], width: usize) -> Vec<u8> {
    let text = match field_value(items, "addr") {
        Some(ScriptValue::Text(text)) => text.clone(),
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
fn address_type(value: &ScriptValue) -> u64 {
    match value {
        ScriptValue::Int(n) => *n as u64,
        ScriptValue::Word(word) if word == "IPv4" => 5,
        ScriptValue::Word(word) if word == "IPv6" => 6,
        ScriptValue::Word(word) => CHUNKS.iter().find(|l| l.0 == word).map_or(0, |l| l.1.into()),
        _ => 0,
    }
}

/// Returns the bytes of a value: the listed ones, or filler up to `len=`.
fn value_bytes(items: &[ScriptItem], header: usize) -> Vec<u8> {
    let key = if field_value(items, "val").is_some() { "val" } else { "info" };
    let mut bytes: Vec<u8> = match field_value(items, key) {
        Some(ScriptValue::List(values)) => {
            values.iter().filter_map(ScriptValue::as_int).map(|n| n as u8).collect()
        }
        Some(ScriptValue::Text(text)) => text.bytes().collect(),
        _ => Vec::new(),
    };
    if let Some(len) = field_number(items, "len") {
        bytes.resize((len as usize).saturating_sub(header).min(65_535), 0);
    }
    bytes
}

/// Encodes a chunk, parameter or cause without padding.
///
/// # Errors
/// It has an unknown part.
pub(crate) fn encode_part(class: PartKind, name: &str, items: &[ScriptItem]) -> Result<Vec<u8>, String> {
    let (_, kind, fields, tail) = class.layout_of(name, items)?;
    let mut out = match class {
        PartKind::Chunk => vec![kind as u8, flag_bits(items)?.unwrap_or(0)],
        _ => kind.to_be_bytes().to_vec(),
    };
    out.extend([0, 0]);
    for &(key, width) in fields {
        if key == "addr" {
            out.extend(address_bytes(items, width));
        } else {
            put_number(&mut out, field_number(items, key).unwrap_or(0), width);
        }
    }
    let fixed = out.len();
    match tail {
        LayoutTail::Empty => {}
        LayoutTail::Value => out.extend(value_bytes(items, fixed)),
        LayoutTail::Parameters | LayoutTail::Causes | LayoutTail::Chunk => {
            let inner = match tail {
                LayoutTail::Parameters => PartKind::Parameter,
                LayoutTail::Causes => PartKind::Cause,
                _ => PartKind::Chunk,
            };
            for (name, items) in collect_named_parts(items) {
                out.resize(out.len().next_multiple_of(4), 0);
                out.extend(encode_part(inner, name, items)?);
            }
        }
        LayoutTail::Sack => {
            let (gaps, dups) = (listed_values(items, "gaps"), listed_values(items, "dups"));
            put_number(&mut out, gaps.len() as u64, 2);
            put_number(&mut out, dups.len() as u64, 2);
            for gap in gaps {
                let ScriptValue::Range(from, to) = gap else { return Err("a gap is first:last".into()) };
                put_number(&mut out, from as u64, 2);
                put_number(&mut out, to as u64, 2);
            }
            for dup in dups {
                put_number(&mut out, dup.as_int().unwrap_or(0) as u64, 4);
            }
        }
        LayoutTail::Types | LayoutTail::ShortTypes | LayoutTail::CountedTypes => {
            let types = listed_values(items, "types");
            if tail == LayoutTail::CountedTypes {
                put_number(&mut out, types.len() as u64, 4);
            }
            for kind in &types {
                put_number(&mut out, address_type(kind), if tail == LayoutTail::ShortTypes { 1 } else { 2 });
            }
        }
    }
    // A length in the script is used even if it is wrong.
    let len = field_number(items, "len").unwrap_or(out.len() as u64) as u16;
    out[2..4].copy_from_slice(&len.to_be_bytes());
    Ok(out)
}

/// Returns the named parts, also those in a list after a key.
fn collect_named_parts(items: &[ScriptItem]) -> Vec<(&str, &[ScriptItem])> {
    let mut found = Vec::new();
    for item in items {
        match &item.value {
            ScriptValue::Node(name, inner) => found.push((name.as_str(), inner.as_slice())),
            ScriptValue::List(values) => found.extend(values.iter().filter_map(|v| match v {
                ScriptValue::Node(name, inner) => Some((name.as_str(), inner.as_slice())),
                _ => None,
            })),
            _ => {}
        }
    }
    found
}

/// True if `...` leaves something behind the fixed fields open.
fn is_open(items: &[ScriptItem]) -> bool {
    items
        .iter()
        .any(|i| i.value == ScriptValue::Any && ["", "params", "param", "chk"].contains(&i.key.as_str()))
}

/// Splits bytes into parts, each with its header and without padding.
pub(crate) fn split_parts(bytes: &[u8]) -> Option<Vec<&[u8]>> {
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

/// Compares bytes with a script's part.
///
/// # Errors
/// The first difference.
pub(crate) fn match_part(
    class: PartKind,
    name: &str,
    items: &[ScriptItem],
    bytes: &[u8],
) -> Result<(), String> {
    let (_, kind, fields, tail) = class.layout_of(name, items)?;
    let cut = || format!("{name} is cut short");
    let mut b = FieldReader(bytes);
    let found = match class {
        PartKind::Chunk => {
            let found = b.read_number(1).ok_or_else(cut)? as u16;
            let bits = b.read_number(1).ok_or_else(cut)? as u8;
            if let Some(wanted) = flag_bits(items)?
                && wanted != bits
                && found == kind
            {
                return Err(format!("{name} has flags {bits:#x}, not {wanted:#x}"));
            }
            found
        }
        _ => b.read_number(2).ok_or_else(cut)? as u16,
    };
    let any_kind = ["CHUNK", "PARAMETER", "CAUSE"].contains(&name)
        && field_number(items, "type").or(field_number(items, "code")).is_none();
    if found != kind && !any_kind {
        return Err(format!("{} is sent where {name} is expected", type_name(class, found)));
    }
    let len = b.read_number(2).ok_or_else(cut)?;
    if let Some(wanted) = field_number(items, "len")
        && wanted != len
    {
        return Err(format!("{name} has length {len}, not {wanted}"));
    }
    for &(key, width) in fields {
        if key == "addr" {
            let is = b.take(width).ok_or_else(cut)?;
            if !matches!(field_value(items, "addr"), None | Some(ScriptValue::Any))
                && is != address_bytes(items, width)
            {
                return Err(format!("{name} has another address"));
            }
            continue;
        }
        let is = b.read_number(width).ok_or_else(cut)?;
        if let Some(wanted) = field_number(items, key)
            && wanted != is
        {
            return Err(format!("{name} has {key}={is}, not {wanted}"));
        }
    }
    matches_tail(name, items, tail, bytes.len() - b.0.len(), b)
}

fn matches_tail(
    name: &str,
    items: &[ScriptItem],
    tail: LayoutTail,
    header: usize,
    mut b: FieldReader<'_>,
) -> Result<(), String> {
    let cut = || format!("{name} is cut short");
    let inner = match tail {
        LayoutTail::Parameters => PartKind::Parameter,
        LayoutTail::Causes => PartKind::Cause,
        LayoutTail::Chunk => PartKind::Chunk,
        LayoutTail::Empty => return Ok(()),
        LayoutTail::Value => {
            let given = ["val", "info"].iter().any(|key| match field_value(items, key) {
                Some(ScriptValue::List(list)) => !list.contains(&ScriptValue::Any),
                Some(ScriptValue::Text(_)) => true,
                _ => false,
            });
            let same = !given || value_bytes(items, header) == b.0;
            return if same { Ok(()) } else { Err(format!("{name} has another value")) };
        }
        LayoutTail::Sack => {
            let (gaps, dups) = (b.read_number(2).ok_or_else(cut)?, b.read_number(2).ok_or_else(cut)?);
            let mut is_gaps = Vec::new();
            for _ in 0..gaps {
                let (from, to) = (b.read_number(2).ok_or_else(cut)?, b.read_number(2).ok_or_else(cut)?);
                is_gaps.push(ScriptValue::Range(from as i64, to as i64));
            }
            let mut is_dups = Vec::new();
            for _ in 0..dups {
                is_dups.push(ScriptValue::Int(b.read_number(4).ok_or_else(cut)? as i64));
            }
            for (key, is) in [("gaps", is_gaps), ("dups", is_dups)] {
                if let Some(ScriptValue::List(wanted)) = field_value(items, key)
                    && *wanted != is
                    && !wanted.contains(&ScriptValue::Any)
                {
                    return Err(format!("{name} has {key}={is:?}, not {wanted:?}"));
                }
            }
            return Ok(());
        }
        LayoutTail::Types | LayoutTail::ShortTypes | LayoutTail::CountedTypes => {
            if let Some(ScriptValue::List(wanted)) = field_value(items, "types") {
                if tail == LayoutTail::CountedTypes {
                    b.read_number(4).ok_or_else(cut)?;
                }
                let width = if tail == LayoutTail::ShortTypes { 1 } else { 2 };
                let is: Vec<u64> =
                    b.0.chunks(width).filter_map(|c| FieldReader(c).read_number(width)).collect();
                let wanted: Vec<u64> = wanted.iter().map(address_type).collect();
                if is != wanted {
                    return Err(format!("{name} has types {is:?}, not {wanted:?}"));
                }
            }
            return Ok(());
        }
    };
    let found = split_parts(b.0).ok_or_else(cut)?;
    let wanted = collect_named_parts(items);
    for (i, (inner_name, inner_items)) in wanted.iter().enumerate() {
        let part = found.get(i).ok_or_else(|| format!("{inner_name} is missing in {name}"))?;
        match_part(inner, inner_name, inner_items, part)?;
    }
    if found.len() > wanted.len() && !is_open(items) {
        return Err(format!("{name} has {} parts, not {}", found.len(), wanted.len()));
    }
    Ok(())
}

/// Returns a type's name.
pub(crate) fn type_name(class: PartKind, kind: u16) -> String {
    let layout = class.layouts().iter().find(|l| l.1 == kind);
    layout.map_or_else(|| format!("type {kind}"), |l| l.0.to_owned())
}

/// Computes CRC32c as in SCTP's header (RFC 9260, appendix A), bit by bit.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, b| (0..8).fold(crc ^ u32::from(*b), step))
}
