//! Parser of strongSwan's settings: sections, values, quoted strings, included files, and sections that inherit from
//! others.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// Most levels of nested sections, and of included files.
const DEEPEST: usize = 16;
/// Most files, and most sections.
const MOST: usize = 4096;
/// Most values of all sections.
const MOST_VALUES: usize = 65_536;
/// Most octets of all files.
const MOST_OCTETS: usize = 64 << 20;
/// Most inherited sections and values; each copy counts.
const MOST_COPIES: usize = 262_144;
/// Line numbers of an included file begin at the file's number times this.
const FILE: u64 = 1 << 32;

/// An invalid `swanctl.conf`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct SwanctlError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// A position: a line, from 1, of the file or of an included one.
pub(super) type SourceLine = u64;

/// Loads the files that a pattern matches, in order, each with its name and text. The first argument is the name of
/// the including file (`None`: the first file).
pub type IncludeLoader<'a> = dyn FnMut(Option<&str>, &str) -> Result<Vec<(String, String)>, String> + 'a;

#[derive(Clone, Debug, Default)]
pub(super) struct SwanctlSection {
    pub(super) line: SourceLine,
    pub(super) values: Vec<(String, String, SourceLine)>,
    pub(super) sections: Vec<(String, SwanctlSection)>,
    /// The index of each name among the values, and among the sections.
    value_index: BTreeMap<String, usize>,
    section_index: BTreeMap<String, usize>,
    /// Keys without a value. charon then has no such value and inherits none.
    unset: BTreeSet<String>,
    /// The paths of the sections from which it inherits.
    base_sections: Vec<String>,
}

impl SwanctlSection {
    pub(super) fn find_section(&self, name: &str) -> Option<&Self> {
        self.section_index.get(name).and_then(|n| self.sections.get(*n)).map(|(_, section)| section)
    }
    fn find_entry(&self, key: &str) -> Option<&(String, String, SourceLine)> {
        self.value_index.get(key).and_then(|n| self.values.get(*n))
    }
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.find_entry(key).map(|(_, value, _)| value.as_str())
    }
    /// Returns the position of a value, or else of the section.
    pub(super) fn line_of(&self, key: &str) -> SourceLine {
        self.find_entry(key).map_or(self.line, |(.., line)| *line)
    }
    /// Sets a value, and replaces an earlier one of its name.
    fn set_value(&mut self, key: String, value: String, line: SourceLine) {
        self.unset.remove(&key);
        match self.value_index.get(&key).and_then(|n| self.values.get_mut(*n)) {
            Some((_, known, place)) => (*known, *place) = (value, line),
            None => {
                self.value_index.insert(key.clone(), self.values.len());
                self.values.push((key, value, line));
            }
        }
    }
    fn push_section(&mut self, name: String, section: Self) {
        self.section_index.insert(name.clone(), self.sections.len());
        self.sections.push((name, section));
    }
    fn section_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.section_index.get(name).and_then(|n| self.sections.get_mut(*n)).map(|(_, section)| section)
    }
    /// Merges a section into an earlier one of its name.
    fn merge_section(&mut self, name: String, section: Self) {
        match self.section_mut(&name) {
            None => self.push_section(name, section),
            Some(known) => {
                let Self { values, sections, unset, base_sections: of, .. } = section;
                for (key, value, line) in values {
                    if !unset.contains(&key) {
                        known.set_value(key, value, line);
                    }
                }
                sections.into_iter().for_each(|(name, section)| known.merge_section(name, section));
                known.unset.extend(unset);
                known.base_sections.extend(of);
            }
        }
    }
    /// Inherits missing values and sections from another.
    fn inherit_missing(&mut self, other: &Self) {
        for (key, value, line) in &other.values {
            if self.value(key).is_none() && !self.unset.contains(key) {
                self.set_value(key.clone(), value.clone(), *line);
            }
        }
        for (name, section) in &other.sections {
            match self.section_mut(name) {
                Some(known) => known.inherit_missing(section),
                None => self.push_section(name.clone(), section.clone()),
            }
        }
        self.unset.extend(other.unset.iter().filter(|key| !self.value_index.contains_key(*key)).cloned());
    }
    /// Removes the values of keys without a value.
    fn remove_unset(&mut self) {
        if !self.unset.is_empty() {
            self.values.retain(|(key, ..)| !self.unset.contains(key));
            let index = self.values.iter().enumerate().map(|(n, (key, ..))| (key.clone(), n));
            self.value_index = index.collect();
        }
    }
    fn section_at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |section, name| section.find_section(name))
    }
    fn section_count(&self) -> usize {
        self.sections.iter().fold(1, |all, (_, section)| all + section.section_count())
    }
    /// Number of its sections and values, with nested ones.
    fn entry_count(&self) -> usize {
        self.sections.iter().fold(1 + self.values.len(), |all, (_, section)| all + section.entry_count())
    }
}

/// The parsed file, with the names of its included files.
#[derive(Debug)]
pub(super) struct SwanctlSettings {
    pub(super) root: SwanctlSection,
    files: Vec<String>,
    /// Top-level sections from which others inherit.
    pub(super) templates: BTreeSet<String>,
}

impl SwanctlSettings {
    /// Returns a position as a line of the file, or 0 and a text that names an included file.
    pub(super) fn describe_position(&self, place: SourceLine, what: &str) -> (usize, String) {
        format_position(&self.files, place, what)
    }
}

fn format_position(files: &[String], place: SourceLine, what: &str) -> (usize, String) {
    let line = usize::try_from(place % FILE).unwrap_or(usize::MAX);
    let file = usize::try_from(place / FILE).ok().and_then(|n| files.get(n.checked_sub(1)?));
    match file {
        None => (line, what.to_owned()),
        Some(file) => (0, alloc::format!("{file}:{line}: {what}")),
    }
}

struct SettingsReader<'a, 'i> {
    include: &'a mut IncludeLoader<'i>,
    files: Vec<String>,
    open: Vec<(String, SwanctlSection)>,
    /// Numbers of sections, values and octets so far.
    sections: usize,
    values: usize,
    octets: usize,
}

/// A text and the position in it.
struct SettingsCursor<'a> {
    rest: &'a str,
    line: SourceLine,
}

impl<'a> SettingsCursor<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        self.line += SourceLine::from(c == '\n');
        Some(c)
    }
    fn skip_while(&mut self, of: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&of) {
            self.next();
        }
    }
    /// Skips blanks, line ends and comments.
    fn skip_lines(&mut self) {
        loop {
            self.skip_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip_while(|c| c != '\n');
        }
    }
    fn take_word(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
    /// Reads a quoted string after its opening quotation mark.
    fn take_quoted(&mut self) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => return Some(text),
                '\r' => {}
                '\\' => match self.next()? {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    '\r' if self.peek() == Some('\n') => drop(self.next()),
                    '\n' => {}
                    c => text.push(c),
                },
                c => text.push(c),
            }
        }
    }
}

const fn is_name_delimiter(c: char) -> bool {
    matches!(c, '#' | '{' | '}' | '=' | '"' | '\r' | '\n' | '\t' | ' ' | ':' | ',')
}

impl SettingsReader<'_, '_> {
    fn syntax_error(&self, place: SourceLine, what: &str) -> SwanctlError {
        let (line, what) = format_position(&self.files, place, what);
        SwanctlError { line, what }
    }

    fn read_text(&mut self, text: &str, begin: SourceLine, depth: usize) -> Result<(), SwanctlError> {
        self.octets = self.octets.saturating_add(text.len());
        if self.octets > MOST_OCTETS {
            return Err(self.syntax_error(begin, "the files together have more than 64 MiB"));
        }
        let mut at = SettingsCursor { rest: text, line: begin };
        loop {
            at.skip_lines();
            let place = at.line;
            match at.peek() {
                None => return Ok(()),
                Some('}') => {
                    at.next();
                    let Some((name, section)) = self.open.pop().filter(|_| !self.open.is_empty()) else {
                        return Err(self.syntax_error(place, "unexpected \"}\": no section is open"));
                    };
                    if let Some((_, parent)) = self.open.last_mut() {
                        parent.merge_section(name, section);
                    }
                    continue;
                }
                Some('"') => return Err(self.syntax_error(place, "a name must not be in quotes")),
                Some(_) => {}
            }
            let name = at.take_word(|c| !is_name_delimiter(c)).to_owned();
            let blank = matches!(at.peek(), Some(' ' | '\t'));
            at.skip_while(|c| matches!(c, ' ' | '\t' | '\r'));
            if name == "include" && blank && at.peek() != Some('=') {
                self.read_include(&mut at, place, depth)?;
                continue;
            }
            if name.is_empty() {
                return Err(self.syntax_error(place, "expected a section or a value"));
            }
            if at.peek() == Some('=') {
                at.next();
                let value = self.read_value(&mut at)?;
                if value.as_ref().is_some_and(|value| value.contains('\u{fffd}')) {
                    return Err(self.syntax_error(place, "the value is not UTF-8"));
                }
                self.values += 1;
                if self.values > MOST_VALUES {
                    return Err(
                        self.syntax_error(place, &alloc::format!("there are more than {MOST_VALUES} values"))
                    );
                }
                if let Some((_, section)) = self.open.last_mut() {
                    match value {
                        Some(value) => section.set_value(name, value, place),
                        None => drop(section.unset.insert(name)),
                    }
                }
                continue;
            }
            let mut of = Vec::new();
            if at.peek() == Some(':') {
                while matches!(at.peek(), Some(':' | ',')) {
                    at.next();
                    at.skip_lines();
                    of.push(at.take_word(|c| !is_name_delimiter(c)).to_owned());
                    at.skip_lines();
                }
            }
            at.skip_lines();
            if at.peek() != Some('{') {
                return Err(self.syntax_error(place, "expected a section or a value"));
            }
            at.next();
            if self.open.len() > DEEPEST {
                return Err(self.syntax_error(place, "sections are nested too deeply"));
            }
            self.sections += 1;
            if self.sections > MOST {
                return Err(self.syntax_error(place, &alloc::format!("there are more than {MOST} sections")));
            }
            self.open
                .push((name, SwanctlSection { line: place, base_sections: of, ..SwanctlSection::default() }));
        }
    }

    /// Reads the parts of a value, joined by one space; `None` without parts.
    fn read_value(&self, at: &mut SettingsCursor<'_>) -> Result<Option<String>, SwanctlError> {
        let mut parts: Vec<String> = Vec::new();
        loop {
            at.skip_while(|c| matches!(c, ' ' | '\t' | '\r'));
            match at.peek() {
                None | Some('#' | '}' | '\n') => {
                    return Ok((!parts.is_empty()).then(|| parts.join(" ")));
                }
                Some('"') => {
                    let place = at.line;
                    at.next();
                    let unclosed = || self.syntax_error(place, "a quotation is not closed");
                    parts.push(at.take_quoted().ok_or_else(unclosed)?);
                }
                Some(_) => {
                    let word = at.take_word(|c| !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' '));
                    parts.push(word.to_owned());
                }
            }
        }
    }

    fn read_include(
        &mut self,
        at: &mut SettingsCursor<'_>,
        place: SourceLine,
        depth: usize,
    ) -> Result<(), SwanctlError> {
        let mut pattern = String::new();
        loop {
            match at.peek() {
                None | Some('#' | '}' | '\n' | '\t' | ' ') => break,
                Some('"') => {
                    at.next();
                    let string = at.take_quoted();
                    pattern = string.ok_or_else(|| self.syntax_error(place, "a quotation is not closed"))?;
                    break;
                }
                Some('\\') => {
                    at.next();
                    match at.peek() {
                        Some('"' | '#' | '}' | ' ') => pattern.extend(at.next()),
                        _ => pattern.push('\\'),
                    }
                }
                Some('\r') => drop(at.next()),
                Some(_) => pattern.extend(at.next()),
            }
        }
        if depth > DEEPEST {
            return Err(self.syntax_error(place, "files include each other too deeply"));
        }
        let by = usize::try_from(place / FILE).ok().and_then(|n| self.files.get(n.checked_sub(1)?));
        let found = (self.include)(by.map(String::as_str), &pattern);
        for (name, text) in found.map_err(|why| self.syntax_error(place, &why))? {
            if self.files.len() >= MOST {
                return Err(self.syntax_error(place, "too many files are included"));
            }
            self.files.push(name);
            self.read_text(&text, FILE * self.files.len() as SourceLine + 1, depth + 1)?;
        }
        Ok(())
    }
}

/// Parses a text with its included files.
///
/// # Errors
/// It is invalid.
pub(super) fn read_settings(
    text: &str,
    include: &mut IncludeLoader<'_>,
) -> Result<SwanctlSettings, SwanctlError> {
    let open = alloc::vec![(String::new(), SwanctlSection::default())];
    let mut reader = SettingsReader { include, files: Vec::new(), open, sections: 0, values: 0, octets: 0 };
    reader.read_text(text, 1, 0)?;
    if reader.open.len() > 1
        && let Some((name, section)) = reader.open.last()
    {
        return Err(reader.syntax_error(section.line, &alloc::format!("\"{name}\" is not closed")));
    }
    let root = reader.open.pop().map(|(_, root)| root).unwrap_or_default();
    let mut whole = root.clone();
    let mut resolver =
        SectionResolver { reader: &reader, root: &root, templates: BTreeSet::new(), copies: 0 };
    resolver.resolve_section(&mut whole, 0)?;
    let templates = resolver.templates;
    if whole.section_count() > MOST {
        let what = alloc::format!("with inherited sections there are more than {MOST} sections");
        return Err(reader.syntax_error(1, &what));
    }
    Ok(SwanctlSettings { root: whole, files: reader.files, templates })
}

/// Copies inherited settings.
struct SectionResolver<'r, 'a, 'i> {
    reader: &'r SettingsReader<'a, 'i>,
    /// The sections as parsed.
    root: &'r SwanctlSection,
    templates: BTreeSet<String>,
    /// Number of copied sections and values.
    copies: usize,
}

impl SectionResolver<'_, '_, '_> {
    /// Resolves the inheritance of a section, recursively.
    fn resolve_section(&mut self, section: &mut SwanctlSection, depth: usize) -> Result<(), SwanctlError> {
        for path in core::mem::take(&mut section.base_sections) {
            let Some(other) = self.root.section_at(&path) else {
                let what = alloc::format!("there is no section {path} to inherit from");
                return Err(self.reader.syntax_error(section.line, &what));
            };
            self.copies = self.copies.saturating_add(other.entry_count());
            if depth >= DEEPEST || self.copies > MOST_COPIES {
                return Err(self
                    .reader
                    .syntax_error(section.line, "sections inherit too much from each other"));
            }
            self.templates.extend(path.split('.').next().map(str::to_owned));
            let mut other = other.clone();
            self.resolve_section(&mut other, depth + 1)?;
            section.inherit_missing(&other);
        }
        for (_, within) in &mut section.sections {
            self.resolve_section(within, depth + 1)?;
        }
        section.remove_unset();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn read_single_file(text: &str) -> Result<SwanctlSettings, SwanctlError> {
        read_settings(text, &mut |_, pattern| Err(alloc::format!("{pattern} is not there")))
    }
    fn read_values(text: &str) -> Vec<(String, String)> {
        let root = read_single_file(text).unwrap().root;
        root.values.into_iter().map(|(key, value, _)| (key, value)).collect()
    }

    /// Each as in charon's lexer (settings_lexer.l).
    #[test]
    fn values_are_read_as_charon_reads_them() {
        for (text, value) in [
            ("a = one  two", "one two"),
            ("a = one#two", "one"),
            ("a = one;two{=", "one;two{="),
            ("a = \"one # } two\" # three", "one # } two"),
            ("a = \"one\" two \"  three\"", "one two   three"),
            (r#"a = "one\ two\"\\\n""#, "one two\"\\\n"),
            ("a = \"one \\\n  two\nthree\"", "one   two\nthree"),
            ("a = \"\"", ""),
            ("a = first\na = second", "second"),
            ("a = gr\u{fc}n", "gr\u{fc}n"),
        ] {
            assert_eq!(read_values(text), [("a".to_string(), value.to_string())], "{text}");
        }
    }

    #[test]
    fn sections_go_on_and_take_what_they_lack_from_others() {
        let text = "base { x = 1\n y = 2\n in { z = 3 } }\nc\n{\n one : base { y = 7 } }\nc { two : base, c.one { in { w = 4 } } }";
        let settings = read_single_file(text).unwrap();
        let c = settings.root.find_section("c").unwrap();
        let [one, two] = ["one", "two"].map(|name| c.find_section(name).unwrap());
        assert_eq!((one.value("x"), one.value("y")), (Some("1"), Some("7")));
        assert_eq!(one.find_section("in").unwrap().value("z"), Some("3"));
        let within = two.find_section("in").unwrap();
        assert_eq!((two.value("y"), within.value("z"), within.value("w")), (Some("2"), Some("3"), Some("4")));
        assert!(settings.templates.contains("base"));
        for (text, what) in [
            ("a : b { }", "there is no section b"),
            ("a : b { }\nb : a { }", "inherit too much from each other"),
            ("a : a { }", "inherit too much from each other"),
        ] {
            assert!(read_single_file(text).unwrap_err().to_string().contains(what), "{text}");
        }
    }

    /// A key without a value has none and inherits none.
    #[test]
    fn a_key_without_a_value_has_none() {
        for text in ["a =", "a = one\na =\n", "a = # one\n"] {
            assert_eq!(read_values(text), [], "{text}");
        }
        assert_eq!(read_values("a =\na = one"), [("a".to_string(), "one".to_string())]);
        let text = "base { a = 1\n b = 2 }\nc : base { a = }\nd : c { }\nd { b = }\nd { b = 3 }";
        let root = read_single_file(text).unwrap().root;
        let [c, d] = ["c", "d"].map(|name| root.find_section(name).unwrap());
        assert_eq!((c.value("a"), c.value("b")), (None, Some("2")));
        assert_eq!((d.value("a"), d.value("b"), d.line_of("b")), (None, Some("3"), 6));
        assert_eq!((c.values.len(), d.values.len()), (1, 1));
    }

    /// Too many sections or values are rejected at the line of the first surplus one. Without maps this would take
    /// minutes.
    #[test]
    fn many_sections_and_values_are_refused_with_their_line() {
        let sections: String = (0..100_000).map(|n| alloc::format!("a{n:06} {{ }}\n")).collect();
        let error = read_single_file(&sections).unwrap_err();
        assert_eq!(error.to_string(), "line 4097: there are more than 4096 sections");
        let keys: String = (0..100_000).map(|n| alloc::format!("k{n:06} = x\n")).collect();
        let error = read_single_file(&alloc::format!("a {{\n{keys}}}\n")).unwrap_err();
        assert_eq!(error.to_string(), "line 65538: there are more than 65536 values");
        let keys: String = keys.lines().take(60_000).flat_map(|line| [line, "\n"]).collect();
        assert_eq!(read_values(&keys).len(), 60_000);
        // Each inherits all of another: together that is too much.
        let users: String = (0..1_000).map(|n| alloc::format!("u{n} : base {{ }}\n")).collect();
        let error = read_single_file(&alloc::format!("base {{\n{keys}}}\n{users}")).unwrap_err();
        assert!(error.to_string().contains("inherit too much from each other"), "{error}");
        let pairs: String = (0..8).map(|n| alloc::format!("p{n} : p{m}, p{m} {{ }}\n", m = n + 1)).collect();
        assert!(read_single_file(&alloc::format!("{pairs}p8 : p0, p0 {{ }}")).is_err());
    }

    #[test]
    fn files_are_included_where_they_stand() {
        let mut asked = Vec::new();
        let settings = read_settings("a { include conf.d/*.conf }\nb = 2", &mut |_, pattern| {
            asked.push(pattern.to_string());
            Ok(vec![("x.conf".into(), "\nc = 1\n".into())])
        });
        let settings = settings.unwrap();
        assert_eq!((asked, settings.root.value("b")), (vec!["conf.d/*.conf".to_string()], Some("2")));
        let a = settings.root.find_section("a").unwrap();
        assert_eq!(settings.describe_position(a.values[0].2, "so"), (0, "x.conf:2: so".to_string()));
        assert_eq!(settings.describe_position(a.line, "so"), (1, "so".to_string()));
        let error =
            read_settings("include x", &mut |_, _| Ok(vec![("x".into(), "include x".into())])).unwrap_err();
        assert!(error.to_string().contains("too deeply"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics_or_lasts_for_ever(text in "[a{}=:,\"#\\\\\n .i]{0,200}") {
            let _ = read_single_file(&text);
        }
    }
}
