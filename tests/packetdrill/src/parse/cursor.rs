//! A position in a script's text that only moves forward.

use super::ScriptError;

/// A position in the text.
#[derive(Clone, Copy)]
pub(super) struct ScriptCursor<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> ScriptCursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }
    pub(super) fn remaining(&self) -> &'a str {
        &self.text[self.position..]
    }
    pub(super) fn line_number(&self) -> u32 {
        1 + self.text.as_bytes()[..self.position].iter().filter(|b| **b == b'\n').count() as u32
    }
    pub(super) fn error_here(&self, what: impl Into<String>) -> ScriptError {
        ScriptError { line: self.line_number(), message: what.into() }
    }
    /// Returns a fault that shows the text found instead of `what`.
    pub(super) fn expected_error(&self, what: &str) -> ScriptError {
        let here: String = self.remaining().chars().take_while(|c| *c != '\n').take(24).collect();
        self.error_here(format!("{what} expected, found `{}`", here.trim_end()))
    }
    pub(super) fn peek(&self) -> Option<char> {
        self.remaining().chars().next()
    }
    pub(super) fn advance(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.text.len());
        while !self.text.is_char_boundary(self.position) {
            self.position += 1;
        }
    }
    /// Skips spaces, line ends and comments.
    pub(super) fn skip_blank(&mut self) {
        loop {
            let rest = self.remaining();
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
    /// Skips blanks and `token`, if `token` is next.
    pub(super) fn eat_token(&mut self, token: &str) -> bool {
        self.skip_blank();
        let found = self.remaining().starts_with(token);
        if found {
            self.advance(token.len());
        }
        found
    }
    /// As [`eat_token`](Self::eat_token), for a whole word.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        self.skip_blank();
        let mut ahead = *self;
        let found = ahead.read_word() == word;
        if found {
            *self = ahead;
        }
        found
    }
    pub(super) fn expect_token(&mut self, token: &str) -> Result<(), ScriptError> {
        if self.eat_token(token) { Ok(()) } else { Err(self.expected_error(&format!("`{token}`"))) }
    }
    /// Takes characters while `fits` is true, perhaps none.
    pub(super) fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.remaining();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.advance(end);
        &rest[..end]
    }
    /// Reads a word of letters, digits, `_` and `-` that begins with a letter. Empty if there is none.
    pub(super) fn read_word(&mut self) -> &'a str {
        self.skip_blank();
        if !self.peek().is_some_and(|c| c.is_ascii_alphabetic() || c == '_') {
            return "";
        }
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }
    /// Reads an unsigned integer, decimal or hexadecimal.
    pub(super) fn read_number(&mut self) -> Result<u64, ScriptError> {
        self.skip_blank();
        let start = *self;
        let (digits, radix) = if self.remaining().starts_with("0x") || self.remaining().starts_with("0X") {
            self.advance(2);
            (self.take_while(|c| c.is_ascii_hexdigit()), 16)
        } else {
            (self.take_while(|c| c.is_ascii_digit()), 10)
        };
        u64::from_str_radix(digits, radix).map_err(|_| start.expected_error("a number"))
    }
    /// Reads a number that fits into `T`.
    pub(super) fn read_fitting<T: TryFrom<u64>>(&mut self) -> Result<T, ScriptError> {
        let start = *self;
        let n = self.read_number()?;
        T::try_from(n).map_err(|_| start.error_here(format!("{n} is too large here")))
    }
    /// Reads up to `end` and skips `end`.
    pub(super) fn read_until(&mut self, end: &str) -> Result<&'a str, ScriptError> {
        let rest = self.remaining();
        let len = rest.find(end).ok_or_else(|| self.error_here(format!("`{end}` is missing")))?;
        self.advance(len + end.len());
        Ok(&rest[..len])
    }
}
