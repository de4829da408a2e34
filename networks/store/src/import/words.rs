//! The words of a line: bare ones, quoted ones, operators.

use usher_aaa::store::Op;

/// A value as it stood there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Value {
    /// Without quotation marks, escapes resolved.
    pub(super) text: String,
    /// The mark around it, if any.
    pub(super) quote: Option<char>,
}

/// What is said of other octets.
pub(super) const NOT_UTF8: &str = "it has octets that are no UTF-8, which no value has here";

/// A text in the making.
#[derive(Debug, Default)]
struct OctetBuffer(Vec<u8>);

impl OctetBuffer {
    fn push(&mut self, c: char) {
        self.0.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

impl Value {
    /// Whether it is as it stood there: what was no UTF-8 in the file is not.
    pub(super) fn is_whole(&self) -> bool {
        !self.text.contains('\u{fffd}')
    }

    /// Whether FreeRADIUS would put something else in its place when it is used.
    pub(super) fn is_expanded(&self) -> bool {
        self.quote == Some('`') || self.quote != Some('\'') && self.text.contains("%{")
    }
}

/// Reads on through one line.
#[derive(Clone, Debug)]
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { rest: line }
    }

    pub(super) fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Nothing more but a comment.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest.is_empty() || self.rest.starts_with('#')
    }

    /// What is left of the line.
    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Takes the character, if it is next.
    pub(super) fn take(&mut self, c: char) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A run of characters without space and without those of `end`; empty where there is none.
    pub(super) fn bare(&mut self, end: &[char]) -> &'a str {
        self.skip_space();
        let at = self.rest.find(|c: char| c.is_whitespace() || end.contains(&c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(at);
        self.rest = rest;
        word
    }

    /// A quoted text or a bare word.
    ///
    /// # Errors
    /// The closing mark is missing.
    pub(super) fn value(&mut self, end: &[char]) -> Result<Value, &'static str> {
        self.skip_space();
        match self.rest.chars().next() {
            Some(quote @ ('"' | '\'' | '`')) => {
                let octets = self.quoted(quote).ok_or("a quotation mark is not closed on its line")?;
                let text = String::from_utf8(octets).map_err(|_| NOT_UTF8)?;
                let value = Value { text, quote: Some(quote) };
                if value.is_whole() { Ok(value) } else { Err(NOT_UTF8) }
            }
            _ => {
                let value = Value { text: self.bare_value(end).to_owned(), quote: None };
                if value.is_whole() { Ok(value) } else { Err(NOT_UTF8) }
            }
        }
    }

    /// A bare word as a value, in which braces that belong together are part of it: `$ENV{SECRET}`.
    fn bare_value(&mut self, end: &[char]) -> &'a str {
        let mut depth = 0_usize;
        let ends = |c: char| {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            c.is_whitespace() || depth == 0 && end.contains(&c)
        };
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// A setting of `clients.conf` as FreeRADIUS 3 reads it: of what is quoted the mark itself is escaped and nothing else, and a bare word
    /// goes on to a space or a comma, whatever is in it.
    ///
    /// # Errors
    /// The closing mark is missing.
    pub(super) fn setting(&mut self) -> Result<Value, &'static str> {
        self.skip_space();
        let Some(quote @ ('"' | '\'' | '`')) = self.rest.chars().next() else {
            return Ok(Value { text: self.bare(&[',']).to_owned(), quote: None });
        };
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(Value { text, quote: Some(quote) });
                }
                '\\' if chars.peek().is_some_and(|(_, next)| *next == quote) => {
                    text.extend(chars.next().map(|(_, c)| c));
                }
                c => text.push(c),
            }
        }
        Err("a quotation mark is not closed on its line")
    }

    /// What is quoted, in octets: three octal digits are one.
    fn quoted(&mut self, quote: char) -> Option<Vec<u8>> {
        let mut text = OctetBuffer::default();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text.0);
                }
                '\\' if quote == '\'' => match chars.next()?.1 {
                    c @ ('\'' | '\\') => text.push(c),
                    c => {
                        text.push('\\');
                        text.push(c);
                    }
                },
                '\\' => match chars.next()?.1 {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    first @ '0'..='7' => {
                        let ahead = chars.clone().take(2).map(|(_, c)| c);
                        let digits: String = std::iter::once(first)
                            .chain(ahead.take_while(|c| ('0'..='7').contains(c)))
                            .collect();
                        for _ in 1..digits.len() {
                            chars.next();
                        }
                        // A lone digit is an escaped digit; three are a character's number.
                        let number =
                            (digits.len() == 3).then(|| u8::from_str_radix(&digits, 8).ok()).flatten();
                        match number {
                            Some(n) => text.0.push(n),
                            None => text.0.extend_from_slice(digits.as_bytes()),
                        }
                    }
                    c => text.push(c),
                },
                c => text.push(c),
            }
        }
        None
    }

    /// An operator; two characters are preferred over one.
    pub(super) fn operator(&mut self) -> Option<Op> {
        self.skip_space();
        for length in [2, 1] {
            if let Some(op) = self.rest.get(..length).and_then(Op::parse) {
                self.rest = &self.rest[length..];
                return Some(op);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_bare_or_quoted() {
        let value = |text: &str| Words::new(text).value(&[',']).map(|v| (v.text, v.quote));
        assert_eq!(value(" abc, d"), Ok(("abc".to_owned(), None)));
        assert_eq!(value(r#""a, \"b\"\\ \101\n\7" x"#), Ok(("a, \"b\"\\ A\n7".to_owned(), Some('"'))));
        assert_eq!(value(r"'a\n\'b'"), Ok(("a\\n'b".to_owned(), Some('\''))));
        assert_eq!(value("a%{b,c}d,"), Ok(("a%{b,c}d".to_owned(), None)));
        assert_eq!(value("`date`"), Ok(("date".to_owned(), Some('`'))));
        for open in ["\"abc", "\"abc\\", "'", "\"\\10"] {
            assert!(value(open).is_err(), "{open}");
        }
        assert_eq!(value(r#""gr\303\266n""#), Ok(("gr\u{f6}n".to_owned(), Some('"'))));
        assert_eq!(value(r#""Se\361al""#), Err(NOT_UTF8));
        assert_eq!(value("gr\u{fffd}n"), Err(NOT_UTF8));
    }

    /// Each as FreeRADIUS 3.2.1 took it: a request by that secret was answered, and by no other.
    #[test]
    fn settings_are_read_as_freeradius_reads_them() {
        let setting = |text: &str| Words::new(text).setting().map(|value| value.text);
        for (text, secret) in [
            ("ab;cd", "ab;cd"),
            ("ab,cd", "ab"),
            ("ab}cd", "ab}cd"),
            ("ab{cd", "ab{cd"),
            ("ab#cd", "ab#cd"),
            ("ab\"cd", "ab\"cd"),
            ("ab'cd", "ab'cd"),
            ("ab=cd", "ab=cd"),
            ("abc;", "abc;"),
            ("abc}", "abc}"),
            ("abc # a note", "abc"),
            (r"back\slash", r"back\slash"),
            (r#""back\\slash""#, r"back\\slash"),
            (r"'back\slash'", r"back\slash"),
            (r"'a\\b'", r"a\\b"),
            (r#""a\"b""#, "a\"b"),
            (r"'it\'s'", "it's"),
            (r#""tab\tx""#, r"tab\tx"),
            (r#""a\101b""#, r"a\101b"),
            (r#""gr\303\266n""#, r"gr\303\266n"),
        ] {
            assert_eq!(setting(text).as_deref(), Ok(secret), "{text}");
        }
        assert!(setting("\"abc").is_err());
    }

    #[test]
    fn an_expansion_is_seen_where_one_would_be_made() {
        let expanded = |text: &str| Words::new(text).value(&[]).is_ok_and(|v| v.is_expanded());
        assert!(expanded("\"%{User-Name}\"") && expanded("`date`") && expanded("%{User-Name}"));
        assert!(!expanded("'%{User-Name}'") && !expanded("\"100%\""));
    }

    #[test]
    fn operators_are_as_long_as_they_can_be() {
        for (op, text) in Op::ALL {
            let line = format!(" {text} x");
            let mut words = Words::new(&line);
            assert_eq!(words.operator(), Some(op));
            assert_eq!(words.rest(), " x");
        }
        assert_eq!(Words::new("x").operator(), None);
        assert_eq!(Words::new("é").operator(), None);
    }
}
