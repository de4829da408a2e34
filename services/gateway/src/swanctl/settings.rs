//! strongSwan's settings as its own reader takes them: sections, values, quoted strings, included files, and sections that take what they
//! lack from others.

use super::SwanctlError;
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// How deep sections may stand within each other, and files be included by files.
const DEEPEST: usize = 16;
/// Files, and sections, at most.
const MOST: usize = 4096;
/// Lines of the files that are included count from the file's number times this.
const FILE: u64 = 1 << 32;

/// Where something stands: a line, from 1, of the file or of one that it includes.
pub(super) type Place = u64;

/// What a file of this name (`None`: the first) includes: by a pattern the files that fit, in their order, each with its name and text.
pub type Include<'a> = dyn FnMut(Option<&str>, &str) -> Result<Vec<(String, String)>, String> + 'a;

#[derive(Clone, Debug, Default)]
pub(super) struct SettingsSection {
    pub(super) line: Place,
    pub(super) values: Vec<(String, String, Place)>,
    pub(super) sections: Vec<(String, SettingsSection)>,
    /// Sections from which it takes what it lacks, by their paths.
    of: Vec<String>,
}

impl SettingsSection {
    pub(super) fn section(&self, name: &str) -> Option<&Self> {
        self.sections.iter().find(|(n, _)| n == name).map(|(_, section)| section)
    }
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.values.iter().find(|(k, ..)| k == key).map(|(_, value, _)| value.as_str())
    }
    /// Where a value stands, or else the section.
    pub(super) fn line_of(&self, key: &str) -> Place {
        self.values.iter().find(|(k, ..)| k == key).map_or(self.line, |(.., line)| *line)
    }
    /// A value takes the place of one of its name.
    fn set(&mut self, key: String, value: String, line: Place) {
        self.values.retain(|(known, ..)| *known != key);
        self.values.push((key, value, line));
    }
    /// A section goes on with one of its name.
    fn add(&mut self, name: String, section: Self) {
        match self.sections.iter_mut().find(|(known, _)| *known == name) {
            None => self.sections.push((name, section)),
            Some((_, known)) => {
                section.values.into_iter().for_each(|(key, value, line)| known.set(key, value, line));
                section.sections.into_iter().for_each(|(name, section)| known.add(name, section));
                known.of.extend(section.of);
            }
        }
    }
    /// Takes what it lacks from another.
    fn inherit(&mut self, other: &Self) {
        for (key, value, line) in &other.values {
            if self.value(key).is_none() {
                self.values.push((key.clone(), value.clone(), *line));
            }
        }
        for (name, section) in &other.sections {
            match self.sections.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => known.inherit(section),
                None => self.sections.push((name.clone(), section.clone())),
            }
        }
    }
    fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |section, name| section.section(name))
    }
    fn count(&self) -> usize {
        self.sections.iter().fold(1, |all, (_, section)| all + section.count())
    }
}

/// What was read: the whole, and the names of the files that it includes.
#[derive(Debug)]
pub(super) struct SwanctlSettings {
    pub(super) root: SettingsSection,
    files: Vec<String>,
    /// Sections at the top that others take something from.
    pub(super) templates: Vec<String>,
}

impl SwanctlSettings {
    /// A place as a line of the file itself, or 0, and in words where it is in another.
    pub(super) fn told(&self, place: Place, what: &str) -> (usize, String) {
        told(&self.files, place, what)
    }
}

fn told(files: &[String], place: Place, what: &str) -> (usize, String) {
    let line = usize::try_from(place % FILE).unwrap_or(usize::MAX);
    let file = usize::try_from(place / FILE).ok().and_then(|n| files.get(n.checked_sub(1)?));
    match file {
        None => (line, what.to_owned()),
        Some(file) => (0, alloc::format!("{file}:{line}: {what}")),
    }
}

struct SettingsReader<'a, 'i> {
    include: &'a mut Include<'i>,
    files: Vec<String>,
    open: Vec<(String, SettingsSection)>,
}

/// A text, and how far it was read.
struct SettingsCursor<'a> {
    rest: &'a str,
    line: Place,
}

impl<'a> SettingsCursor<'a> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let c = chars.next()?;
        self.rest = chars.as_str();
        self.line += Place::from(c == '\n');
        Some(c)
    }
    fn skip(&mut self, of: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&of) {
            self.next();
        }
    }
    /// Passes over blanks, ends of lines and comments.
    fn skip_lines(&mut self) {
        loop {
            self.skip(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            if self.peek() != Some('#') {
                return;
            }
            self.skip(|c| c != '\n');
        }
    }
    fn word(&mut self, of: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
    /// What is quoted; its first quotation mark was read.
    fn string(&mut self) -> Option<String> {
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

const fn ends_a_name(c: char) -> bool {
    matches!(c, '#' | '{' | '}' | '=' | '"' | '\r' | '\n' | '\t' | ' ' | ':' | ',')
}

impl SettingsReader<'_, '_> {
    fn wrong(&self, place: Place, what: &str) -> SwanctlError {
        let (line, what) = told(&self.files, place, what);
        SwanctlError { line, what }
    }

    fn read(&mut self, text: &str, begin: Place, depth: usize) -> Result<(), SwanctlError> {
        let mut at = SettingsCursor { rest: text, line: begin };
        loop {
            at.skip_lines();
            let place = at.line;
            match at.peek() {
                None => return Ok(()),
                Some('}') => {
                    at.next();
                    let Some((name, section)) = self.open.pop().filter(|_| !self.open.is_empty()) else {
                        return Err(self.wrong(place, "\"}\" closes nothing"));
                    };
                    if let Some((_, parent)) = self.open.last_mut() {
                        parent.add(name, section);
                    }
                    continue;
                }
                Some('"') => return Err(self.wrong(place, "a name is not quoted")),
                Some(_) => {}
            }
            let name = at.word(|c| !ends_a_name(c)).to_owned();
            let blank = matches!(at.peek(), Some(' ' | '\t'));
            at.skip(|c| matches!(c, ' ' | '\t' | '\r'));
            if name == "include" && blank && at.peek() != Some('=') {
                self.include(&mut at, place, depth)?;
                continue;
            }
            if name.is_empty() {
                return Err(self.wrong(place, "neither a section nor a value"));
            }
            if at.peek() == Some('=') {
                at.next();
                let value = self.value(&mut at)?;
                if value.contains('\u{fffd}') {
                    return Err(self.wrong(place, "the value has octets that are no UTF-8"));
                }
                if let Some((_, section)) = self.open.last_mut() {
                    section.set(name, value, place);
                }
                continue;
            }
            let mut of = Vec::new();
            if at.peek() == Some(':') {
                while matches!(at.peek(), Some(':' | ',')) {
                    at.next();
                    at.skip_lines();
                    of.push(at.word(|c| !ends_a_name(c)).to_owned());
                    at.skip_lines();
                }
            }
            at.skip_lines();
            if at.peek() != Some('{') {
                return Err(self.wrong(place, "neither a section nor a value"));
            }
            at.next();
            if self.open.len() > DEEPEST {
                return Err(self.wrong(place, "sections are too deep within each other"));
            }
            self.open.push((name, SettingsSection { line: place, of, ..SettingsSection::default() }));
        }
    }

    /// The parts of a value, with one space between them.
    fn value(&self, at: &mut SettingsCursor<'_>) -> Result<String, SwanctlError> {
        let mut parts: Vec<String> = Vec::new();
        loop {
            at.skip(|c| matches!(c, ' ' | '\t' | '\r'));
            match at.peek() {
                None | Some('#' | '}' | '\n') => return Ok(parts.join(" ")),
                Some('"') => {
                    let place = at.line;
                    at.next();
                    let unclosed = || self.wrong(place, "a quotation is not closed");
                    parts.push(at.string().ok_or_else(unclosed)?);
                }
                Some(_) => {
                    let word = at.word(|c| !matches!(c, '#' | '}' | '"' | '\r' | '\n' | '\t' | ' '));
                    parts.push(word.to_owned());
                }
            }
        }
    }

    fn include(
        &mut self,
        at: &mut SettingsCursor<'_>,
        place: Place,
        depth: usize,
    ) -> Result<(), SwanctlError> {
        let mut pattern = String::new();
        loop {
            match at.peek() {
                None | Some('#' | '}' | '\n' | '\t' | ' ') => break,
                Some('"') => {
                    at.next();
                    let string = at.string();
                    pattern = string.ok_or_else(|| self.wrong(place, "a quotation is not closed"))?;
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
            return Err(self.wrong(place, "files include each other too deeply"));
        }
        let by = usize::try_from(place / FILE).ok().and_then(|n| self.files.get(n.checked_sub(1)?));
        let found = (self.include)(by.map(String::as_str), &pattern);
        for (name, text) in found.map_err(|why| self.wrong(place, &why))? {
            if self.files.len() >= MOST {
                return Err(self.wrong(place, "too many files are included"));
            }
            self.files.push(name);
            self.read(&text, FILE * self.files.len() as Place + 1, depth + 1)?;
        }
        Ok(())
    }
}

/// Reads a text with what it includes.
///
/// # Errors
/// It is none.
pub(super) fn read(text: &str, include: &mut Include<'_>) -> Result<SwanctlSettings, SwanctlError> {
    let open = alloc::vec![(String::new(), SettingsSection::default())];
    let mut reader = SettingsReader { include, files: Vec::new(), open };
    reader.read(text, 1, 0)?;
    if reader.open.len() > 1
        && let Some((name, section)) = reader.open.last()
    {
        return Err(reader.wrong(section.line, &alloc::format!("\"{name}\" is not closed")));
    }
    let root = reader.open.pop().map(|(_, root)| root).unwrap_or_default();
    let mut whole = root.clone();
    let mut templates = Vec::new();
    resolve(&reader, &mut whole, &root, &mut templates, 0)?;
    if whole.count() > MOST {
        return Err(reader.wrong(1, "there are too many sections"));
    }
    Ok(SwanctlSettings { root: whole, files: reader.files, templates })
}

/// Sections take what they lack from others, and these from others again.
fn resolve(
    reader: &SettingsReader<'_, '_>,
    section: &mut SettingsSection,
    root: &SettingsSection,
    templates: &mut Vec<String>,
    depth: usize,
) -> Result<(), SwanctlError> {
    // Those that were copied to be read, and not only what is left of them.
    if depth > DEEPEST || section.count() > MOST || templates.len() > MOST {
        return Err(reader.wrong(section.line, "sections take too much from each other"));
    }
    for path in core::mem::take(&mut section.of) {
        let Some(other) = root.at(&path) else {
            let what = alloc::format!("there is no section {path} to take something from");
            return Err(reader.wrong(section.line, &what));
        };
        templates.extend(path.split('.').next().map(str::to_owned));
        let mut other = other.clone();
        resolve(reader, &mut other, root, templates, depth + 1)?;
        section.inherit(&other);
    }
    for (_, within) in &mut section.sections {
        resolve(reader, within, root, templates, depth + 1)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn alone(text: &str) -> Result<SwanctlSettings, SwanctlError> {
        read(text, &mut |_, pattern| Err(alloc::format!("{pattern} is not there")))
    }
    fn values(text: &str) -> Vec<(String, String)> {
        let root = alone(text).unwrap().root;
        root.values.into_iter().map(|(key, value, _)| (key, value)).collect()
    }

    /// Each as charon reads it (settings_lexer.l).
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
            ("a =", ""),
            ("a = first\na = second", "second"),
            ("a = gr\u{fc}n", "gr\u{fc}n"),
        ] {
            assert_eq!(values(text), [("a".to_string(), value.to_string())], "{text}");
        }
    }

    #[test]
    fn sections_go_on_and_take_what_they_lack_from_others() {
        let text = "base { x = 1\n y = 2\n in { z = 3 } }\nc\n{\n one : base { y = 7 } }\nc { two : base, c.one { in { w = 4 } } }";
        let settings = alone(text).unwrap();
        let c = settings.root.section("c").unwrap();
        let [one, two] = ["one", "two"].map(|name| c.section(name).unwrap());
        assert_eq!((one.value("x"), one.value("y")), (Some("1"), Some("7")));
        assert_eq!(one.section("in").unwrap().value("z"), Some("3"));
        let within = two.section("in").unwrap();
        assert_eq!((two.value("y"), within.value("z"), within.value("w")), (Some("2"), Some("3"), Some("4")));
        assert!(settings.templates.contains(&"base".to_string()));
        for (text, what) in [
            ("a : b { }", "there is no section b"),
            ("a : b { }\nb : a { }", "take too much from each other"),
            ("a : a { }", "take too much from each other"),
        ] {
            assert!(alone(text).unwrap_err().to_string().contains(what), "{text}");
        }
    }

    #[test]
    fn files_are_included_where_they_stand() {
        let mut asked = Vec::new();
        let settings = read("a { include conf.d/*.conf }\nb = 2", &mut |_, pattern| {
            asked.push(pattern.to_string());
            Ok(vec![("x.conf".into(), "\nc = 1\n".into())])
        });
        let settings = settings.unwrap();
        assert_eq!((asked, settings.root.value("b")), (vec!["conf.d/*.conf".to_string()], Some("2")));
        let a = settings.root.section("a").unwrap();
        assert_eq!(settings.told(a.values[0].2, "so"), (0, "x.conf:2: so".to_string()));
        assert_eq!(settings.told(a.line, "so"), (1, "so".to_string()));
        let error = read("include x", &mut |_, _| Ok(vec![("x".into(), "include x".into())])).unwrap_err();
        assert!(error.to_string().contains("too deeply"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics_or_lasts_for_ever(text in "[a{}=:,\"#\\\\\n .i]{0,200}") {
            let _ = alone(&text);
        }
    }
}
