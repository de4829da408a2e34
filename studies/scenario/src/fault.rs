//! What is wrong with a study file, and where.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong, at one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// Line, from 1; 0 where the fault is not in the file (in `--set`).
    pub line: usize,
    /// Column in characters, from 1; 0 where the fault is not in the file.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Everything that is wrong with a study, in the order of its lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Faults {
    /// The file, as it was named.
    pub file: String,
    /// One or more.
    pub faults: Vec<Fault>,
}

impl fmt::Display for Faults {
    /// One line each: `file:line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            match fault.line {
                0 => f.write_str(&fault.message)?,
                line => write!(f, "{}:{line}:{}: {}", self.file, fault.column, fault.message)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// A place in the text as bytes; `None` for what came from elsewhere.
pub(crate) type Span = Option<Range<usize>>;

/// Collects faults and turns their places into lines.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    file: &'a str,
    text: &'a str,
    faults: Vec<Fault>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, faults: Vec::new() }
    }

    /// Adds a fault, unless the same was said of the same place before.
    pub(crate) fn add(&mut self, span: Span, message: String) {
        let (line, column) = match span {
            None => (0, 0),
            Some(range) => {
                let before = self.text.get(..range.start).unwrap_or(self.text);
                let start = before.rfind('\n').map_or(0, |i| i + 1);
                (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
            }
        };
        let fault = Fault { line, column, message };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.faults.len()
    }

    /// The value if nothing is wrong, else all faults by line.
    pub(crate) fn finish<T>(mut self, value: Option<T>) -> Result<T, Faults> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => {
                self.faults.sort();
                Err(Faults { file: self.file.to_owned(), faults: self.faults })
            }
        }
    }
}

/// The known name nearest to an unknown one, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
pub(crate) fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("; did you mean \"{near}\"?"),
        None if known.is_empty() => String::new(),
        None if known.len() > 30 => String::new(),
        None => format!("; known are {}", quoted(&known)),
    }
}

/// `"a", "b", "c"`.
pub(crate) fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("\"{n}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["rate", "delay", "queue"];
        assert_eq!(nearest("rat", known), Some("rate"));
        assert_eq!(nearest("Dleay", known), Some("delay"));
        assert_eq!(nearest("bandwidth", known), None);
        assert_eq!(hint("x", known), "; known are \"rate\", \"delay\", \"queue\"");
        assert_eq!(hint("x", []), "");
    }

    #[test]
    fn places_become_lines_and_columns_in_characters() {
        let mut collector = Collector::new("f.toml", "a = 1\nµ = \"é\" x\n");
        let at = "a = 1\nµ = \"é\" ".len();
        collector.add(Some(at..at + 1), "here".to_owned());
        collector.add(Some(at..at + 1), "here".to_owned());
        collector.add(Some(999..1000), "beyond the end".to_owned());
        let faults = collector.finish::<()>(None).unwrap_err();
        assert_eq!(faults.to_string(), "f.toml:2:9: here\nf.toml:3:1: beyond the end");
    }
}
