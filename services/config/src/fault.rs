//! What is wrong with a file, and where.

use alloc::sync::Arc;
use std::fmt;

/// One thing that is wrong, at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigDiagnostic {
    /// The file, as it was named: the one that was asked for, or one that it includes.
    pub file: String,
    /// Line, from 1; 0 where the fault is in no file (in an argument of the program).
    pub line: usize,
    /// Column in characters, from 1; 0 where the fault is in no file.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for ConfigDiagnostic {
    /// `file:line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message),
        }
    }
}

/// Everything that is wrong with a file and those that it includes, in the order of their lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors {
    /// The file, as it was named.
    pub file: String,
    /// One or more.
    pub faults: Vec<ConfigDiagnostic>,
}

impl fmt::Display for ConfigErrors {
    /// One line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            write!(f, "{}{fault}", if i > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// A piece of one of the files that were read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePosition {
    /// Which file: 0 is the one that was asked for.
    pub source: usize,
    /// Its first octet.
    pub start: usize,
}

/// Where something is written; `None` for what comes from no file.
pub type OptionalPosition = Option<SourcePosition>;

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// As it was named.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Collects faults and warnings, and turns their places into lines.
#[derive(Debug)]
pub struct DiagnosticCollector {
    sources: Vec<Arc<SourceFile>>,
    faults: Vec<(usize, ConfigDiagnostic)>,
    warnings: Vec<(usize, ConfigDiagnostic)>,
}

impl DiagnosticCollector {
    /// Of a file's text.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        Self::of(vec![Arc::new(SourceFile { name: file.to_owned(), text: text.to_owned() })])
    }

    /// Of files that were read before: [`DiagnosticCollector::from_sources`] of another.
    #[must_use]
    pub fn of(sources: Vec<Arc<SourceFile>>) -> Self {
        Self { sources, faults: Vec::new(), warnings: Vec::new() }
    }

    /// The files that were read so far; the first is the one that was asked for.
    #[must_use]
    pub fn from_sources(&self) -> &[Arc<SourceFile>] {
        &self.sources
    }

    /// Takes one more file in, and gives its number.
    pub(crate) fn add_source(&mut self, name: String, text: String) -> usize {
        self.sources.push(Arc::new(SourceFile { name, text }));
        self.sources.len() - 1
    }

    fn make_diagnostic(&self, place: &OptionalPosition, message: String) -> (usize, ConfigDiagnostic) {
        let Some((span, source)) = place.as_ref().and_then(|s| Some((s, self.sources.get(s.source)?))) else {
            return (0, ConfigDiagnostic { file: String::new(), line: 0, column: 0, message });
        };
        let before = source.text.get(..span.start).unwrap_or(&source.text);
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let (line, column) = (before.matches('\n').count() + 1, before[start..].chars().count() + 1);
        (span.source, ConfigDiagnostic { file: source.name.clone(), line, column, message })
    }

    /// Adds a fault, unless the same was said of the same place before.
    pub fn add(&mut self, place: OptionalPosition, message: String) {
        let fault = self.make_diagnostic(&place, message);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Adds a warning, unless the same was said of the same place before.
    pub fn add_warning(&mut self, place: OptionalPosition, message: String) {
        let warning = self.make_diagnostic(&place, message);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What is right and should be otherwise, by line.
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigDiagnostic> {
        by_line(self.warnings.clone())
    }

    /// True when nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// How many faults there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// The value if nothing is wrong, else all faults by line.
    ///
    /// # Errors
    /// What was added.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => {
                let file = self.sources.first().map_or(String::new(), |s| s.name.clone());
                Err(ConfigErrors { file, faults: by_line(self.faults) })
            }
        }
    }
}

fn by_line(mut faults: Vec<(usize, ConfigDiagnostic)>) -> Vec<ConfigDiagnostic> {
    faults
        .sort_by(|(a, x), (b, y)| (a, x.line, x.column, &x.message).cmp(&(b, y.line, y.column, &y.message)));
    faults.into_iter().map(|(_, fault)| fault).collect()
}

/// The known name nearest to an unknown one, if one is near.
pub(crate) fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&lower, &k.to_lowercase()), k))
        .filter(|&(distance, k)| {
            distance <= (name.chars().count().max(k.chars().count()) / 3).max(1)
                || (name.len() >= 3 && k.starts_with(name))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, k)| k)
}

/// `; did you mean "x"?`, or the names that are known, or nothing where none are.
#[must_use]
pub fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest_name(name, known.iter().copied()) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None if known.is_empty() => String::new(),
        None if known.len() > 30 => String::new(),
        None => format!("; known are {}", quote_names(&known)),
    }
}

/// `"a", "b", "c"`.
#[must_use]
pub fn quote_names(names: &[&str]) -> String {
    names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["rate", "delay", "queue"];
        assert_eq!(nearest_name("rat", known), Some("rate"));
        assert_eq!(nearest_name("Dleay", known), Some("delay"));
        assert_eq!(nearest_name("bandwidth", known), None);
        assert_eq!(name_hint("x", known), "; known are \"rate\", \"delay\", \"queue\"");
        assert_eq!(name_hint("x", []), "");
    }

    #[test]
    fn places_become_lines_and_columns_in_characters() {
        let mut collector = DiagnosticCollector::new("f.toml", "a = 1\nµ = \"é\" x\n");
        let at = |start| Some(SourcePosition { source: 0, start });
        let x = "a = 1\nµ = \"é\" ".len();
        collector.add(at(x), "here".to_owned());
        collector.add(at(x), "here".to_owned());
        collector.add(at(999), "beyond the end".to_owned());
        collector.add(at(0), "first".to_owned());
        collector.add(None, "an argument".to_owned());
        let other = collector.add_source("g.toml".to_owned(), "b".to_owned());
        collector.add(Some(SourcePosition { source: other, start: 0 }), "there".to_owned());
        let faults = collector.finish::<()>(None).unwrap_err();
        assert_eq!(
            faults.to_string(),
            "an argument\nf.toml:1:1: first\nf.toml:2:9: here\nf.toml:3:1: beyond the end\ng.toml:1:1: there"
        );
    }
}
