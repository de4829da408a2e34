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

impl Value {
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
                let text = self.quoted(quote).ok_or("a quotation mark is not closed on its line")?;
                Ok(Value { text, quote: Some(quote) })
            }
            _ => Ok(Value { text: self.bare_value(end).to_owned(), quote: None }),
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

    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                '\\' if quote == '\'' => match chars.next()?.1 {
                    c @ ('\'' | '\\') => text.push(c),
                    c => text.extend(['\\', c]),
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
                            Some(n) => text.push(char::from(n)),
                            None => text.push_str(&digits),
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
