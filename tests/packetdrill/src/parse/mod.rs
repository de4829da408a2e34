//! Reads a script. Total: any text is a script or a fault with its line; nesting and size are bounded.

mod condition;
mod cursor;
mod packet;
mod value;

use crate::script::{Action, Call, Event, Script, Time, Value};
use cursor::Cursor;
use std::fmt;

/// Why a text is no script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its line; the first is 1.
    pub line: u32,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}
impl std::error::Error for Fault {}

/// The longest script that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// A year, in microseconds: no script waits longer.
const MAX_TIME: u64 = 365 * 24 * 3600 * 1_000_000;

pub(crate) use condition::tests_for;

/// Reads a script; of its `#ifdef` parts, those whose symbol is among `defined`.
///
/// # Errors
/// What is wrong, and in which line.
pub fn parse(text: &str, defined: &[&str]) -> Result<Script, Fault> {
    if text.len() > MAX_BYTES {
        return Err(Fault { line: 1, what: format!("a script has at most {MAX_BYTES} bytes") });
    }
    let text = condition::select(text, defined)?;
    let mut c = Cursor::new(&text);
    let mut script = Script::default();
    loop {
        c.skip();
        if !c.eat("--") {
            break;
        }
        let name = c.run(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-').to_owned();
        let value = if c.peek() == Some('=') {
            c.advance(1);
            c.run(|c| !c.is_whitespace())
        } else {
            ""
        };
        script.options.push((name, value.to_owned()));
    }
    while c.eat("`") {
        script.set_up.push(c.until("`")?.to_owned());
    }
    loop {
        c.skip();
        if c.peek().is_none() {
            return Ok(script);
        }
        script.events.push(event(&mut c)?);
    }
}

fn event(c: &mut Cursor<'_>) -> Result<Event, Fault> {
    let line = c.line();
    let time = time(c)?;
    c.skip();
    let action = match c.peek() {
        Some('<' | '>') => Action::Packet(packet::packet(c)?),
        Some('`') => {
            c.advance(1);
            Action::Command(c.until("`")?.to_owned())
        }
        Some('%') => {
            c.expect("%{")?;
            Action::Code(c.until("}%")?.to_owned())
        }
        _ => Action::Call(call(c)?),
    };
    Ok(Event { line, time, action })
}

fn time(c: &mut Cursor<'_>) -> Result<Time, Fault> {
    if c.eat("*") {
        return Ok(Time::Any);
    }
    let relative = c.eat("+");
    let from = micros(c)?;
    if c.eat("...") {
        let until = micros(c)?;
        return Ok(Time::At { relative, at: from, until: Some(until) });
    }
    if c.eat("~") {
        if relative {
            c.expect("+")?;
        }
        let to = micros(c)?;
        return Ok(Time::Between { relative, from, to });
    }
    Ok(Time::At { relative, at: from, until: None })
}

/// Seconds with a fraction, as microseconds.
fn micros(c: &mut Cursor<'_>) -> Result<u64, Fault> {
    c.skip();
    let start = *c;
    let whole = c.run(|c| c.is_ascii_digit());
    let mut fraction = "";
    let rest = c.rest().as_bytes();
    if rest.first() == Some(&b'.') && rest.get(1).is_some_and(u8::is_ascii_digit) {
        c.advance(1);
        fraction = c.run(|c| c.is_ascii_digit());
    }
    if whole.is_empty() && fraction.is_empty() {
        return Err(start.wanted("a time"));
    }
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().unwrap_or(u64::MAX) };
    let micros = whole.saturating_mul(1_000_000).saturating_add(digits.parse().unwrap_or(0));
    if micros > MAX_TIME { Err(start.fault("no script lasts longer than a year")) } else { Ok(micros) }
}

fn call(c: &mut Cursor<'_>) -> Result<Call, Fault> {
    let start = *c;
    let name = c.word().to_owned();
    if name.is_empty() {
        return Err(start.wanted("a packet, call, command or code"));
    }
    c.expect("(")?;
    let args = value::list(c, ")", 0)?;
    c.expect("=")?;
    let result = value::value(c, 0)?;
    let error = matches!(result, Value::Int(-1)).then(|| error_name(c)).flatten();
    // The text in parentheses is for people.
    c.skip();
    if c.peek() == Some('(') {
        c.until(")")?;
    }
    Ok(Call { name, args, result, error })
}

/// The name of an error, if one follows.
fn error_name(c: &mut Cursor<'_>) -> Option<String> {
    let mut ahead = *c;
    let word = ahead.word();
    let found = word.starts_with('E') && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    found.then(|| {
        *c = ahead;
        word.to_owned()
    })
}
