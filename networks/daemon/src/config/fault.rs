//! What is wrong with a configuration file, and where.

use std::fmt;
use std::ops::Range;

/// One thing that is wrong, at one place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong and what to do.
    pub message: String,
}

/// Everything that is wrong with a file, in the order of its lines.
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
            write!(f, "{}:{}:{}: {}", self.file, fault.line, fault.column, fault.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// Collects faults and turns their places, in bytes, into lines.
#[derive(Debug)]
pub(super) struct Collector<'a> {
    file: &'a str,
    text: &'a str,
    faults: Vec<Fault>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, faults: Vec::new() }
    }

    /// Adds a fault, unless the same was said of the same place before.
    pub(super) fn add(&mut self, span: &Range<usize>, message: String) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = before.matches('\n').count() + 1;
        let fault = Fault { line, column: before[start..].chars().count() + 1, message };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// The value if nothing is wrong, else all faults by line.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, Faults> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => {
                self.faults.sort();
                Err(Faults { file: self.file.to_owned(), faults: self.faults })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_lines_and_columns_in_characters() {
        let mut collector = Collector::new("f.toml", "a = 1\nµ = \"é\" x\n");
        let at = "a = 1\nµ = \"é\" ".len();
        collector.add(&(at..at + 1), "here".to_owned());
        collector.add(&(at..at + 1), "here".to_owned());
        collector.add(&(0..1), "first".to_owned());
        let faults = collector.finish::<()>(None).unwrap_err();
        assert_eq!(faults.to_string(), "f.toml:1:1: first\nf.toml:2:9: here");
    }
}
