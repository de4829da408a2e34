//! Parses scripts. Any text is a script or a fault with its line. Nesting and size are bounded.

mod condition;
mod cursor;
mod packet;
mod value;

use crate::script::{EventTime, Script, ScriptAction, ScriptEvent, ScriptValue, SystemCall};
use cursor::ScriptCursor;
use std::fmt;

/// A fault in a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The line, from 1.
    pub line: u32,
    /// The fault.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}
impl std::error::Error for ScriptError {}

/// The maximum length of a script in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The longest wait in a script: a year, in microseconds.
const MAX_TIME: u64 = 365 * 24 * 3600 * 1_000_000;

pub(crate) use condition::tests_for;

/// Parses a script. Its `#ifdef` parts count only with a symbol in `defined`.
///
/// # Errors
/// The fault and its line.
pub fn parse_script(text: &str, defined: &[&str]) -> Result<Script, ScriptError> {
    if text.len() > MAX_BYTES {
        return Err(ScriptError { line: 1, message: format!("a script has at most {MAX_BYTES} bytes") });
    }
    let text = condition::select_lines(text, defined)?;
    let mut c = ScriptCursor::new(&text);
    let mut script = Script::default();
    loop {
        c.skip_blank();
        if !c.eat_token("--") {
            break;
        }
        let name = c.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-').to_owned();
        let value = if c.peek() == Some('=') {
            c.advance(1);
            c.take_while(|c| !c.is_whitespace())
        } else {
            ""
        };
        script.options.push((name, value.to_owned()));
    }
    while c.eat_token("`") {
        script.set_up.push(c.read_until("`")?.to_owned());
    }
    loop {
        c.skip_blank();
        if c.peek().is_none() {
            return Ok(script);
        }
        script.events.push(parse_event(&mut c)?);
    }
}

fn parse_event(c: &mut ScriptCursor<'_>) -> Result<ScriptEvent, ScriptError> {
    let line = c.line_number();
    let time = parse_time(c)?;
    c.skip_blank();
    let action = match c.peek() {
        Some('<' | '>') => ScriptAction::Packet(packet::parse_packet(c)?),
        Some('`') => {
            c.advance(1);
            ScriptAction::Command(c.read_until("`")?.to_owned())
        }
        Some('%') => {
            c.expect_token("%{")?;
            ScriptAction::Code(c.read_until("}%")?.to_owned())
        }
        _ => ScriptAction::Call(parse_call(c)?),
    };
    Ok(ScriptEvent { line, time, action })
}

fn parse_time(c: &mut ScriptCursor<'_>) -> Result<EventTime, ScriptError> {
    if c.eat_token("*") {
        return Ok(EventTime::Any);
    }
    let relative = c.eat_token("+");
    let from = parse_micros(c)?;
    if c.eat_token("...") {
        let until = parse_micros(c)?;
        return Ok(EventTime::Exact { relative, offset: from, until: Some(until) });
    }
    if c.eat_token("~") {
        if relative {
            c.expect_token("+")?;
        }
        let to = parse_micros(c)?;
        return Ok(EventTime::Between { relative, from, to });
    }
    Ok(EventTime::Exact { relative, offset: from, until: None })
}

/// Parses seconds with a fraction into microseconds.
fn parse_micros(c: &mut ScriptCursor<'_>) -> Result<u64, ScriptError> {
    c.skip_blank();
    let start = *c;
    let whole = c.take_while(|c| c.is_ascii_digit());
    let mut fraction = "";
    let rest = c.remaining().as_bytes();
    if rest.first() == Some(&b'.') && rest.get(1).is_some_and(u8::is_ascii_digit) {
        c.advance(1);
        fraction = c.take_while(|c| c.is_ascii_digit());
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(start.expected_error("a time"));
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u64::MAX) };
    let micros = whole.saturating_mul(1_000_000).saturating_add(digits.parse().unwrap_or(0));
    if micros > MAX_TIME { Err(start.error_here("no script lasts longer than a year")) } else { Ok(micros) }
}

fn parse_call(c: &mut ScriptCursor<'_>) -> Result<SystemCall, ScriptError> {
    let start = *c;
    let name = c.read_word().to_owned();
    if name.is_empty() {
        return Err(start.expected_error("a packet, call, command or code"));
    }
    c.expect_token("(")?;
    let args = value::parse_list(c, ")", 0)?;
    c.expect_token("=")?;
    let result = value::parse_value(c, 0)?;
    let error = matches!(result, ScriptValue::Int(-1)).then(|| error_name(c)).flatten();
    // The text in parentheses is a comment.
    c.skip_blank();
    if c.peek() == Some('(') {
        c.read_until(")")?;
    }
    Ok(SystemCall { name, args, result, error })
}

/// Parses the name of an error, if one follows.
fn error_name(c: &mut ScriptCursor<'_>) -> Option<String> {
    let mut ahead = *c;
    let word = ahead.read_word();
    let found = word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    found.then(|| {
        *c = ahead;
        word.to_owned()
    })
}
