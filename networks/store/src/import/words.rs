//! Splits a line into bare words, quoted words and operators.

use usher_aaa::store::RowOperator;

/// A value as written in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ImportValue {
    /// Without quotation marks, escapes resolved.
    pub(super) text: String,
    /// Without quotation marks, escapes unchanged.
    pub(super) raw: String,
    /// The quotation mark, if any.
    pub(super) quote: Option<char>,
}

/// The message for other octets.
pub(super) const NOT_UTF8: &str = "it is not valid UTF-8";

/// Resolves the escapes of an item's value as FreeRADIUS 3 does: `\n`, `\r`, `\t`, `\\`, `\"`, and three octal digits
/// for an octet. Any other backslash is literal.
pub(crate) fn resolve_escapes(text: &str) -> Vec<u8> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (octet, taken) = match after {
            _ if *first != b'\\' => (*first, 1),
            [b'n', ..] => (b'\n', 2),
            [b'r', ..] => (b'\r', 2),
            [b't', ..] => (b'\t', 2),
            [mark @ (b'\\' | b'"'), ..] => (*mark, 2),
            [b'0'..=b'7', second, third, ..] if second.is_ascii_digit() && third.is_ascii_digit() => {
                // The number ends at a digit that is not octal, but all three digits are consumed.
                let digits =
                    after[..3].iter().map_while(|digit| (*digit < b'8').then(|| u32::from(digit - b'0')));
                (digits.fold(0, |number, digit| 8 * number + digit) as u8, 4)
            }
            _ => (b'\\', 1),
        };
        octets.push(octet);
        rest = &rest[taken..];
    }
    octets
}

impl ImportValue {
    /// Creates a value without escapes.
    fn without_escapes(text: String, quote: Option<char>) -> Self {
        Self { raw: text.clone(), text, quote }
    }

    /// True if the value is as written: the file had no invalid UTF-8 there.
    pub(super) fn is_whole(&self) -> bool {
        !self.text.contains('\u{fffd}')
    }

    /// True if FreeRADIUS would expand it at each use.
    pub(super) fn is_expanded(&self) -> bool {
        self.quote == Some('`') || self.quote != Some('\'') && self.text.contains("%{")
    }
}

/// Reads the words of one line.
#[derive(Clone, Debug)]
pub(super) struct WordReader<'a> {
    rest: &'a str,
}

impl<'a> WordReader<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { rest: line }
    }

    pub(super) fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// True if only a comment is left.
    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest.is_empty() || self.rest.starts_with('#')
    }

    /// Returns the rest of the line.
    pub(super) fn remaining_text(&self) -> &'a str {
        self.rest
    }

    /// Consumes the character if it is next.
    pub(super) fn take_char(&mut self, c: char) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(c);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads a run of characters without space and without those of `end`. Empty if there is none.
    pub(super) fn take_bare_word(&mut self, end: &[char]) -> &'a str {
        self.skip_space();
        let at = self.rest.find(|c: char| c.is_whitespace() || end.contains(&c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(at);
        self.rest = rest;
        word
    }

    /// Reads a quoted or bare value as FreeRADIUS 3 does. The escapes are those of [`resolve_escapes`] for any
    /// quotation mark.
    ///
    /// # Errors
    /// The closing mark is missing, or the value is not text.
    pub(super) fn take_value(&mut self, end: &[char]) -> Result<ImportValue, &'static str> {
        let ImportValue { raw, quote, .. } = match self.take_quoted() {
            Some(quoted) => quoted?,
            None => ImportValue::without_escapes(self.bare_value(end).to_owned(), None),
        };
        let text = String::from_utf8(resolve_escapes(&raw)).map_err(|_| NOT_UTF8)?;
        let value = ImportValue { text, raw, quote };
        match value.text.contains('\0') {
            true => Err("it contains a zero octet"),
            false if value.is_whole() => Ok(value),
            false => Err(NOT_UTF8),
        }
    }

    /// Reads the name of an entry as FreeRADIUS 3 does. In quotes, only the mark itself is escaped.
    ///
    /// # Errors
    /// The closing mark is missing, or the name is not text.
    pub(super) fn take_name(&mut self) -> Result<ImportValue, &'static str> {
        let value = match self.take_quoted() {
            Some(quoted) => quoted?,
            None => ImportValue::without_escapes(self.take_bare_word(&[]).to_owned(), None),
        };
        if value.is_whole() { Ok(value) } else { Err(NOT_UTF8) }
    }

    /// Reads a bare word as a value. Balanced braces are part of it: `$ENV{SECRET}`.
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

    /// Reads a setting of `clients.conf` as FreeRADIUS 3 does. In quotes, only the mark itself is escaped. A bare
    /// word ends at a space or a comma.
    ///
    /// # Errors
    /// The closing mark is missing.
    pub(super) fn take_setting(&mut self) -> Result<ImportValue, &'static str> {
        let bare =
            |this: &mut Self| ImportValue::without_escapes(this.take_bare_word(&[',']).to_owned(), None);
        self.take_quoted().unwrap_or_else(|| Ok(bare(self)))
    }

    /// Reads a quoted text, if it is next. A backslash escapes only the mark, and is literal before other characters.
    fn take_quoted(&mut self) -> Option<Result<ImportValue, &'static str>> {
        self.skip_space();
        let quote = self.rest.chars().next().filter(|c| ['"', '\'', '`'].contains(c))?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(Ok(ImportValue::without_escapes(text, Some(quote))));
                }
                '\\' => match chars.next() {
                    Some((_, c)) if c == quote => text.push(c),
                    other => text.extend(std::iter::once('\\').chain(other.map(|(_, c)| c))),
                },
                c => text.push(c),
            }
        }
        Some(Err("a quotation mark is not closed on its line"))
    }

    /// Reads an operator. Two characters take precedence over one.
    pub(super) fn take_operator(&mut self) -> Option<RowOperator> {
        self.skip_space();
        for length in [2, 1] {
            if let Some(op) = self.rest.get(..length).and_then(RowOperator::parse) {
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
        let value = |text: &str| WordReader::new(text).take_value(&[',']).map(|v| (v.text, v.quote));
        assert_eq!(value(" abc, d"), Ok(("abc".to_owned(), None)));
        assert_eq!(value(r#""a, \"b\"\\ \101\n\7" x"#), Ok(("a, \"b\"\\ A\n\\7".to_owned(), Some('"'))));
        assert_eq!(value(r"'a\n\'b'"), Ok(("a\n'b".to_owned(), Some('\''))));
        assert_eq!(value("a%{b,c}d,"), Ok(("a%{b,c}d".to_owned(), None)));
        assert_eq!(value("`date`"), Ok(("date".to_owned(), Some('`'))));
        for open in ["\"abc", "\"abc\\", "'", "\"\\10"] {
            assert!(value(open).is_err(), "{open}");
        }
        assert_eq!(value(r#""gr\303\266n""#), Ok(("gr\u{f6}n".to_owned(), Some('"'))));
        assert_eq!(value(r#""Se\361al""#), Err(NOT_UTF8));
        assert_eq!(value("gr\u{fffd}n"), Err(NOT_UTF8));
    }

    /// Results of FreeRADIUS 3.2.1: its Reply-Message was this, with any quotation marks.
    #[test]
    fn values_are_read_as_freeradius_reads_them() {
        for (written, read) in [
            (r"a\nb\rc\td", "a\nb\rc\td"),
            (r"a\\b", r"a\b"),
            (r"a\\\\b", r"a\\b"),
            (r"a\\nb", r"a\nb"),
            (r"a\101b", "aAb"),
            (r"a\7b", r"a\7b"),
            (r"a\10b", r"a\10b"),
            (r"a\378b", "a\u{1f}b"),
            (r#"a\"b"#, "a\"b"),
            (r"a\xb", r"a\xb"),
            (r"a\x41b", r"a\x41b"),
            (r"a\%b", r"a\%b"),
            (r"ab\\", r"ab\"),
            (r"a\303\251", "aé"),
        ] {
            for text in [written.to_owned(), format!("\"{written}\""), format!("'{written}'")] {
                assert_eq!(WordReader::new(&text).take_value(&[',']).unwrap().text, read, "{text}");
            }
        }
        let value = |text: &str| WordReader::new(text).take_value(&[',']).map(|value| value.text);
        assert_eq!((value(r"'a\'b'"), value(r#""a\'b""#)), (Ok("a'b".into()), Ok(r"a\'b".into())));
        assert!(value(r"a\000b").is_err());
    }

    /// Results of FreeRADIUS 3.2.1: it accepted the user with this value.
    #[test]
    fn names_are_read_as_freeradius_reads_them() {
        for (text, name) in [
            (r#""a\101b""#, r"a\101b"),
            (r#""c\"d""#, "c\"d"),
            (r"'e\'f'", "e'f"),
            (r"'g\th'", r"g\th"),
            (r"k\tl", r"k\tl"),
            (r#""m\\n""#, r"m\\n"),
            (r"o\\p", r"o\\p"),
            (r#""u v""#, "u v"),
            (r#""w\xy""#, r"w\xy"),
        ] {
            assert_eq!(WordReader::new(text).take_name().unwrap().text, name, "{text}");
        }
    }

    /// Results of FreeRADIUS 3.2.1: it answered a request with this secret only.
    #[test]
    fn settings_are_read_as_freeradius_reads_them() {
        let setting = |text: &str| WordReader::new(text).take_setting().map(|value| value.text);
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
        let expanded = |text: &str| WordReader::new(text).take_value(&[]).is_ok_and(|v| v.is_expanded());
        assert!(expanded("\"%{User-Name}\"") && expanded("`date`") && expanded("%{User-Name}"));
        assert!(!expanded("'%{User-Name}'") && !expanded("\"100%\""));
    }

    #[test]
    fn operators_are_as_long_as_they_can_be() {
        for (op, text) in RowOperator::ALL {
            let line = format!(" {text} x");
            let mut words = WordReader::new(&line);
            assert_eq!(words.take_operator(), Some(op));
            assert_eq!(words.remaining_text(), " x");
        }
        assert_eq!(WordReader::new("x").take_operator(), None);
        assert_eq!(WordReader::new("é").take_operator(), None);
    }
}
