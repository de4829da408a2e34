//! A place in a script's text, and small steps forward from it.

use super::Fault;

/// Where reading has come to. Only ever moves forward within the text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }
    pub(super) fn line(&self) -> u32 {
        1 + self.text.as_bytes()[..self.at].iter().filter(|b| **b == b'\n').count() as u32
    }
    pub(super) fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { line: self.line(), what: what.into() }
    }
    /// A fault that shows what stands where something else should.
    pub(super) fn wanted(&self, what: &str) -> Fault {
        let here: String = self.rest().chars().take_while(|c| *c != '\n').take(24).collect();
        self.fault(format!("{what} expected, found `{}`", here.trim_end()))
    }
    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }
    /// Passes over spaces, ends of lines and comments.
    pub(super) fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            let rest = &rest[blank..];
            let comment = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else {
                0
            };
            self.advance(blank + comment);
            if comment == 0 {
                return;
            }
        }
    }
    /// Passes over `token` if it stands here, and over what is blank before it.
    pub(super) fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.advance(token.len());
        }
        found
    }
    /// As [`eat`](Self::eat), for a word that ends here.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        self.skip();
        let mut ahead = *self;
        let found = ahead.word() == word;
        if found {
            *self = ahead;
        }
        found
    }
    pub(super) fn expect(&mut self, token: &str) -> Result<(), Fault> {
        if self.eat(token) { Ok(()) } else { Err(self.wanted(&format!("`{token}`"))) }
    }
    /// What stands here of characters that `fits`, perhaps nothing.
    pub(super) fn run(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.advance(end);
        &rest[..end]
    }
    /// A word of letters, digits, `_` and `-` that begins with a letter; empty where none stands here.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip();
        if !self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
            return "";
        }
        self.run(|c| c.is_ascii_alphanumeric() || c == '_')
    }
    /// A whole number, decimal or hexadecimal, without sign.
    pub(super) fn number(&mut self) -> Result<u64, Fault> {
        self.skip();
        let start = *self;
        let (digits, radix) = if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.advance(2);
            (self.run(|c| c.is_ascii_hexdigit()), 16)
        } else {
            (self.run(|c| c.is_ascii_digit()), 10)
        };
        u64::from_str_radix(digits, radix).map_err(|_| start.wanted("a number"))
    }
    /// A number that fits `T`.
    pub(super) fn fitting<T: TryFrom<u64>>(&mut self) -> Result<T, Fault> {
        let start = *self;
        let n = self.number()?;
        T::try_from(n).map_err(|_| start.fault(format!("{n} is too large here")))
    }
    /// Up to `end`, which is passed over too.
    pub(super) fn until(&mut self, end: &str) -> Result<&'a str, Fault> {
        let rest = self.rest();
        let len = rest.find(end).ok_or_else(|| self.fault(format!("`{end}` is missing")))?;
        self.advance(len + end.len());
        Ok(&rest[..len])
    }
}
