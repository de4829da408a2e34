//! Parses arguments of calls and fields of chunks.

use super::{ScriptCursor, ScriptError};
use crate::script::{ScriptItem, ScriptValue};
use std::net::IpAddr;

/// The maximum nesting of values.
const MAX_DEPTH: u32 = 16;

fn nested_depth(c: &ScriptCursor<'_>, depth: u32) -> Result<u32, ScriptError> {
    if depth >= MAX_DEPTH { Err(c.error_here("values are nested too deeply")) } else { Ok(depth + 1) }
}

/// Parses values up to and including `end`.
pub(super) fn parse_list(
    c: &mut ScriptCursor<'_>,
    end: &str,
    depth: u32,
) -> Result<Vec<ScriptValue>, ScriptError> {
    let depth = nested_depth(c, depth)?;
    let mut values = Vec::new();
    loop {
        if c.eat_token(end) {
            return Ok(values);
        }
        if !values.is_empty() {
            c.expect_token(",")?;
        }
        values.push(parse_value(c, depth)?);
    }
}

/// Parses items up to and including `end`.
pub(super) fn parse_items(
    c: &mut ScriptCursor<'_>,
    end: &str,
    depth: u32,
) -> Result<Vec<ScriptItem>, ScriptError> {
    let depth = nested_depth(c, depth)?;
    let mut found = Vec::new();
    loop {
        if c.eat_token(end) {
            return Ok(found);
        }
        if !found.is_empty() {
            c.expect_token(",")?;
        }
        found.push(parse_item(c, depth)?);
    }
}

/// Parses `key=value`, or a value.
pub(super) fn parse_item(c: &mut ScriptCursor<'_>, depth: u32) -> Result<ScriptItem, ScriptError> {
    let mut ahead = *c;
    let key = ahead.read_word().to_owned();
    if !key.is_empty() && ahead.eat_token("=") {
        *c = ahead;
        return Ok(ScriptItem { key, value: parse_value(c, depth)? });
    }
    Ok(ScriptItem { key: String::new(), value: parse_value(c, depth)? })
}

/// Parses a value and the values joined to it by `|`, `:` or `+`.
pub(super) fn parse_value(c: &mut ScriptCursor<'_>, depth: u32) -> Result<ScriptValue, ScriptError> {
    let depth = nested_depth(c, depth)?;
    let first = parse_single(c, depth)?;
    if let ScriptValue::Int(from) = first
        && c.eat_token(":")
    {
        let at = *c;
        let to = parse_single(c, depth)?.as_int().ok_or_else(|| at.expected_error("a number"))?;
        return Ok(ScriptValue::Range(from, to));
    }
    let mut joined = vec![first];
    while c.eat_token("|") {
        joined.push(parse_single(c, depth)?);
    }
    Ok(if joined.len() == 1 { joined.remove(0) } else { ScriptValue::Flags(joined) })
}

fn parse_single(c: &mut ScriptCursor<'_>, depth: u32) -> Result<ScriptValue, ScriptError> {
    if c.eat_token("...") {
        return Ok(ScriptValue::Any);
    }
    let mut ahead = *c;
    let text = ahead.take_while(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    if text.parse::<IpAddr>().is_ok() {
        *c = ahead;
        return Ok(ScriptValue::Text(text.to_owned()));
    }
    match c.peek() {
        Some('"') => {
            c.advance(1);
            Ok(ScriptValue::Text(c.read_until("\"")?.to_owned()))
        }
        Some('[') => {
            c.advance(1);
            Ok(ScriptValue::List(parse_list(c, "]", depth)?))
        }
        Some('{') => {
            c.advance(1);
            Ok(ScriptValue::Struct(parse_items(c, "}", depth)?))
        }
        Some('(') => {
            c.advance(1);
            let inner = parse_value(c, depth)?;
            c.expect_token(")")?;
            Ok(inner)
        }
        Some('-') => {
            c.advance(1);
            Ok(ScriptValue::Int((c.read_number()?.min(i64::MAX as u64) as i64).saturating_neg()))
        }
        Some('~') => {
            c.advance(1);
            let depth = nested_depth(c, depth)?;
            Ok(ScriptValue::Apply("~".to_owned(), vec![parse_single(c, depth)?]))
        }
        Some(d) if d.is_ascii_digit() => parse_number(c),
        _ => parse_word(c, depth),
    }
}

fn parse_number(c: &mut ScriptCursor<'_>) -> Result<ScriptValue, ScriptError> {
    let start = *c;
    let n = c.read_fitting::<i64>()?;
    let rest = c.remaining().as_bytes();
    if rest.first() == Some(&b'.') && rest.get(1).is_some_and(u8::is_ascii_digit) {
        c.advance(1);
        c.take_while(|c| c.is_ascii_digit());
        let len = start.remaining().len() - c.remaining().len();
        let text = &start.remaining()[..len];
        return text.parse().map(ScriptValue::Float).map_err(|_| start.expected_error("a number"));
    }
    Ok(ScriptValue::Int(n))
}

fn parse_word(c: &mut ScriptCursor<'_>, depth: u32) -> Result<ScriptValue, ScriptError> {
    let start = *c;
    let word = c.read_word().to_owned();
    if word.is_empty() {
        return Err(start.expected_error("a value"));
    }
    match c.peek() {
        Some('(') => {
            c.advance(1);
            Ok(ScriptValue::Apply(word, parse_list(c, ")", depth)?))
        }
        Some('[') => {
            c.advance(1);
            Ok(ScriptValue::Node(word, parse_items(c, "]", depth)?))
        }
        _ => Ok(ScriptValue::Word(word)),
    }
}
