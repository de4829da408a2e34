//! Faults and warnings with their places in files.

use alloc::sync::Arc;
use std::fmt;

/// A fault or warning at one place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigDiagnostic {
    /// The file, as named: the main file or an included one.
    pub file: String,
    /// Line, from 1; 0 for a fault outside files, such as in a program argument.
    pub line: usize,
    /// Column in characters, from 1; 0 for a fault outside files.
    pub column: usize,
    /// The fault and its remedy.
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

/// All faults of a file and its includes, in the order of lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors {
    /// The main file, as named.
    pub file: String,
    /// At least one.
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

/// A position in one of the files read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourcePosition {
    /// Number of the file; 0 is the main file.
    pub source: usize,
    /// Offset in octets.
    pub start: usize,
}

/// A position in a file; `None` for a value from elsewhere, such as a program argument.
pub type OptionalPosition = Option<SourcePosition>;

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceFile {
    /// Its name, as given.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Collects faults and warnings, and converts their positions to lines and columns.
#[derive(Debug)]
pub struct DiagnosticCollector {
    sources: Vec<Arc<SourceFile>>,
    faults: Vec<(usize, ConfigDiagnostic)>,
    warnings: Vec<(usize, ConfigDiagnostic)>,
}

impl DiagnosticCollector {
    /// Creates a collector for one file.
    #[must_use]
    pub fn new(file: &str, text: &str) -> Self {
        Self::of(vec![Arc::new(SourceFile { name: file.to_owned(), text: text.to_owned() })])
    }

    /// Creates a collector for files read before, as [`DiagnosticCollector::from_sources`] of another returns them.
    #[must_use]
    pub fn of(sources: Vec<Arc<SourceFile>>) -> Self {
        Self { sources, faults: Vec::new(), warnings: Vec::new() }
    }

    /// The files read so far; the first is the main file.
    #[must_use]
    pub fn from_sources(&self) -> &[Arc<SourceFile>] {
        &self.sources
    }

    /// Adds a file and returns its number.
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

    /// Adds a fault, unless the same message exists at the same place.
    pub fn add(&mut self, place: OptionalPosition, message: String) {
        let fault = self.make_diagnostic(&place, message);
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Adds a warning, unless the same message exists at the same place.
    pub fn add_warning(&mut self, place: OptionalPosition, message: String) {
        let warning = self.make_diagnostic(&place, message);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The warnings, in the order of lines.
    #[must_use]
    pub fn warnings(&self) -> Vec<ConfigDiagnostic> {
        sort_diagnostics_by_line(self.warnings.clone())
    }

    /// True if no fault was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// The number of faults.
    #[must_use]
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Returns the value if no fault was added.
    ///
    /// # Errors
    /// All faults, in the order of lines.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, ConfigErrors> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => {
                let file = self.sources.first().map_or(String::new(), |s| s.name.clone());
                Err(ConfigErrors { file, faults: sort_diagnostics_by_line(self.faults) })
            }
        }
    }
}

fn sort_diagnostics_by_line(mut faults: Vec<(usize, ConfigDiagnostic)>) -> Vec<ConfigDiagnostic> {
    faults
        .sort_by(|(a, x), (b, y)| (a, x.line, x.column, &x.message).cmp(&(b, y.line, y.column, &y.message)));
    faults.into_iter().map(|(_, fault)| fault).collect()
}

/// Returns the known name nearest to an unknown one, if one is near enough.
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

/// Returns `; did you mean "x"?`, or the known names, or an empty text if there are none or too many.
#[must_use]
pub fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest_name(name, known.iter().copied()) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None if known.is_empty() => String::new(),
        None if known.len() > 30 => String::new(),
        None => format!("; expected one of {}", quote_names(&known)),
    }
}

/// Formats names as `"a", "b", "c"`.
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
        assert_eq!(name_hint("x", known), "; expected one of \"rate\", \"delay\", \"queue\"");
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
