//! Arguments of calls and fields of chunks.

use super::{Cursor, Fault};
use crate::script::{Item, Value};
use std::net::IpAddr;

/// How deep values may stand in each other.
const MAX_DEPTH: u32 = 16;

fn deeper(c: &Cursor<'_>, depth: u32) -> Result<u32, Fault> {
    if depth >= MAX_DEPTH { Err(c.fault("values are nested too deeply")) } else { Ok(depth + 1) }
}

/// Values up to `end`, which is passed over.
pub(super) fn list(c: &mut Cursor<'_>, end: &str, depth: u32) -> Result<Vec<Value>, Fault> {
    let depth = deeper(c, depth)?;
    let mut values = Vec::new();
    loop {
        if c.eat(end) {
            return Ok(values);
        }
        if !values.is_empty() {
            c.expect(",")?;
        }
        values.push(value(c, depth)?);
    }
}

/// Items up to `end`, which is passed over.
pub(super) fn items(c: &mut Cursor<'_>, end: &str, depth: u32) -> Result<Vec<Item>, Fault> {
    let depth = deeper(c, depth)?;
    let mut found = Vec::new();
    loop {
        if c.eat(end) {
            return Ok(found);
        }
        if !found.is_empty() {
            c.expect(",")?;
        }
        found.push(item(c, depth)?);
    }
}

/// `key=value`, or a value.
pub(super) fn item(c: &mut Cursor<'_>, depth: u32) -> Result<Item, Fault> {
    let mut ahead = *c;
    let key = ahead.word().to_owned();
    if !key.is_empty() && ahead.eat("=") {
        *c = ahead;
        return Ok(Item { key, value: value(c, depth)? });
    }
    Ok(Item { key: String::new(), value: value(c, depth)? })
}

/// A value, with what is joined to it by `|`, `:` or `+`.
pub(super) fn value(c: &mut Cursor<'_>, depth: u32) -> Result<Value, Fault> {
    let depth = deeper(c, depth)?;
    let first = single(c, depth)?;
    if let Value::Int(from) = first
        && c.eat(":")
    {
        let at = *c;
        let to = single(c, depth)?.int().ok_or_else(|| at.wanted("a number"))?;
        return Ok(Value::Range(from, to));
    }
    let mut joined = vec![first];
    while c.eat("|") {
        joined.push(single(c, depth)?);
    }
    Ok(if joined.len() == 1 { joined.remove(0) } else { Value::Flags(joined) })
}

fn single(c: &mut Cursor<'_>, depth: u32) -> Result<Value, Fault> {
    if c.eat("...") {
        return Ok(Value::Any);
    }
    let mut ahead = *c;
    let text = ahead.run(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    if text.parse::<IpAddr>().is_ok() {
        *c = ahead;
        return Ok(Value::Text(text.to_owned()));
    }
    match c.peek() {
        Some('"') => {
            c.advance(1);
            Ok(Value::Text(c.until("\"")?.to_owned()))
        }
        Some('[') => {
            c.advance(1);
            Ok(Value::List(list(c, "]", depth)?))
        }
        Some('{') => {
            c.advance(1);
            Ok(Value::Struct(items(c, "}", depth)?))
        }
        Some('(') => {
            c.advance(1);
            let inner = value(c, depth)?;
            c.expect(")")?;
            Ok(inner)
        }
        Some('-') => {
            c.advance(1);
            Ok(Value::Int((c.number()?.min(i64::MAX as u64) as i64).saturating_neg()))
        }
        Some('~') => {
            c.advance(1);
            let depth = deeper(c, depth)?;
            Ok(Value::Apply("~".to_owned(), vec![single(c, depth)?]))
        }
        Some(d) if d.is_ascii_digit() => number(c),
        _ => word(c, depth),
    }
}

fn number(c: &mut Cursor<'_>) -> Result<Value, Fault> {
    let start = *c;
    let n = c.fitting::<i64>()?;
    let rest = c.rest().as_bytes();
    if rest.first() == Some(&b'.') && rest.get(1).is_some_and(u8::is_ascii_digit) {
        c.advance(1);
        c.run(|c| c.is_ascii_digit());
        let len = start.rest().len() - c.rest().len();
        let text = &start.rest()[..len];
        return text.parse().map(Value::Float).map_err(|_| start.wanted("a number"));
    }
    Ok(Value::Int(n))
}

fn word(c: &mut Cursor<'_>, depth: u32) -> Result<Value, Fault> {
    let start = *c;
    let word = c.word().to_owned();
    if word.is_empty() {
        return Err(start.wanted("a value"));
    }
    match c.peek() {
        Some('(') => {
            c.advance(1);
            Ok(Value::Apply(word, list(c, ")", depth)?))
        }
        Some('[') => {
            c.advance(1);
            Ok(Value::Node(word, items(c, "]", depth)?))
        }
        _ => Ok(Value::Word(word)),
    }
}
