//! Printing of results and failures. A closed pipe (`usher ... | head`) is no failure and ends no run.

use crate::common_args::CommonArgs;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// The failure of a command.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    /// The exit code.
    pub(crate) code: u8,
    /// The fault, its place and the remedy.
    pub(crate) message: String,
}

/// The exit code after an interrupt, the one that a shell gives to a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// The exit code of a partial import.
#[cfg(feature = "live")]
const PARTLY: u8 = 3;

impl CommandFailure {
    /// The user interrupted the command.
    pub(crate) fn interrupted(cause: impl Display) -> Self {
        Self { code: INTERRUPTED, message: cause.to_string() }
    }
    /// A failure at run time.
    pub(crate) fn runtime_error(cause: impl Display) -> Self {
        Self { code: 1, message: cause.to_string() }
    }
    /// Another program's file was imported in part. Or it was rejected, since its unsupported lines would have
    /// restricted access.
    #[cfg(feature = "live")]
    pub(crate) fn partial_import_failure(cause: impl Display) -> Self {
        Self { code: PARTLY, message: cause.to_string() }
    }
    /// The command line is invalid. Nothing was run.
    pub(crate) fn usage_error(cause: impl Display) -> Self {
        Self { code: 2, message: cause.to_string() }
    }
}

/// The form of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsoleOutput {
    pub(crate) json: bool,
    pub(crate) verbose: bool,
    /// True if a progress bar may be drawn.
    pub(crate) progress: bool,
}

impl ConsoleOutput {
    /// Output for programs.
    pub(crate) const JSON: Self = Self { json: true, verbose: false, progress: false };

    pub(crate) fn new(common: &CommonArgs) -> Self {
        let progress = !common.plain && !common.json && io::stderr().is_terminal();
        Self { json: common.json, verbose: common.verbose, progress }
    }

    /// Prints a result to standard output.
    pub(crate) fn print_text(&self, text: &str) -> Result<(), CommandFailure> {
        let mut out = io::stdout().lock();
        let written = out.write_all(escape_terminal_codes(text).as_bytes()).and_then(|()| out.flush());
        match written {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => {
                Err(CommandFailure::runtime_error(format!("cannot write to standard output: {e}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints a result for programs to standard output.
    pub(crate) fn print_json(&self, value: &serde_json::Value) -> Result<(), CommandFailure> {
        self.print_text(&format!("{value:#}\n"))
    }

    /// Prints a failure to standard error, as text or as a JSON object.
    pub(crate) fn print_failure(&self, failure: &CommandFailure) {
        if !self.json {
            return self.print_note(&failure.message);
        }
        let said = serde_json::json!({ "error": { "exit_code": failure.code, "message": failure.message } });
        self.print_note(&said.to_string());
    }

    /// Prints a note to standard error.
    pub(crate) fn print_note(&self, text: &str) {
        // A closed standard error cannot be reported.
        let _ = writeln!(io::stderr(), "{}", escape_terminal_codes(text));
    }
}

/// Escapes control characters for a terminal. Names in a store and replies of a server may come from attackers.
fn escape_terminal_codes(text: &str) -> Cow<'_, str> {
    let acts = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(acts) {
        return text.into();
    }
    let escaped = |c: char| if acts(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect::<String>().into()
}

/// Formats rows in columns, each as wide as its widest cell. The last column is not padded. Line breaks in a cell are
/// escaped, since names may come from attackers.
pub(crate) fn format_columns(rows: &[Vec<String>]) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let cell = |cell: &String| cell.chars().map(escaped).collect::<String>();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Converts the faults of a file to JSON.
#[cfg(feature = "live")]
pub(crate) fn faults_json(faults: &usher_config::ConfigErrors) -> serde_json::Value {
    let each = |f: &usher_config::ConfigDiagnostic| serde_json::json!({ "file": f.file, "line": f.line, "column": f.column, "message": f.message });
    faults.faults.iter().map(each).collect()
}

/// Quotes a word of a command line for a shell.
pub(crate) fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Formats a number with a few significant digits.
pub(crate) fn format_rounded(value: f64) -> String {
    let text = format!("{value:.4e}");
    let short: f64 = text.parse().unwrap_or(value);
    usher_observe::row::format_number(short)
}

/// Formats a number of octets with a unit.
#[cfg(feature = "live")]
pub(crate) fn format_octets(n: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    let unit = units.into_iter().find(|(_, octets)| n >= *octets);
    unit.map_or_else(|| format!("{n} B"), |(name, octets)| format!("{:.1} {name}", n as f64 / octets as f64))
}

/// Formats a duration with a unit.
pub(crate) fn format_duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells_get_their_words_back() {
        for (word, text) in
            [("aaa-hol", "aaa-hol"), ("loss=5 %; p=a", "'loss=5 %; p=a'"), ("it's", "'it'\\''s'"), ("", "''")]
        {
            assert_eq!(shell_quote(word), text);
        }
    }

    #[test]
    fn nothing_printed_acts_on_the_terminal() {
        assert_eq!(escape_terminal_codes("a\tb \u{e4}\n"), "a\tb \u{e4}\n");
        assert_eq!(
            escape_terminal_codes("ann\x1b]0;x\x07\r\u{9b}2J\n"),
            "ann\\u{1b}]0;x\\u{7}\\r\\u{9b}2J\n"
        );
    }

    #[test]
    fn columns_line_up() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        assert_eq!(format_columns(&[row(["a", "x"]), row(["äbc", ""])]), "a    x\näbc\n");
        // A name with a line break, which imitates another entry.
        assert_eq!(
            format_columns(&[row(["a\nbob", "x"]), row(["b", "y\tz"])]),
            "a\\nbob  x\nb       y\\tz\n"
        );
    }

    #[test]
    fn numbers_and_times_for_people() {
        assert_eq!(format_rounded(0.123_456_789), "0.12346");
        assert_eq!(format_rounded(123_456.0), "123460");
        assert_eq!(format_rounded(-0.0), "-0");
        assert_eq!([0.31, 75.0, 600.0, 9000.0].map(format_duration), ["0.3 s", "75 s", "10 min", "2.5 h"]);
    }
}
