//! Rows as CSV (RFC 4180 quoting, line feeds): `study`, one column per axis, `replication`, `metric`, `value`. The same
//! rows give the same bytes, and a round trip returns the same rows.

use crate::row::{GridPoint, ResultRow, format_number, list_axes};
use crate::{RunFileError, file};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// Writes the rows in their order, atomically.
///
/// # Errors
/// [`RunFileError::ReservedAxis`]; [`RunFileError::Io`], which keeps the earlier file.
pub fn write_csv(path: &Path, rows: &[ResultRow]) -> Result<(), RunFileError> {
    let axes = list_axes(rows)?;
    file::write_file(path, |out| encode_rows(out, &axes, rows))
}

/// Returns the rows as the text of a CSV file.
///
/// # Errors
/// [`RunFileError::ReservedAxis`].
pub fn csv_text(rows: &[ResultRow]) -> Result<String, RunFileError> {
    let mut out = Vec::new();
    encode_rows(&mut out, &list_axes(rows)?, rows).expect("writing to memory cannot fail");
    Ok(String::from_utf8(out).expect("only text was written"))
}

fn encode_rows(out: &mut dyn Write, axes: &[&str], rows: &[ResultRow]) -> io::Result<()> {
    write_field(out, "study")?;
    for axis in axes {
        out.write_all(b",")?;
        write_field(out, axis)?;
    }
    out.write_all(b",replication,metric,value\n")?;
    for row in rows {
        write_field(out, &row.study)?;
        for axis in axes {
            out.write_all(b",")?;
            write_field(out, row.point.get(axis).unwrap_or_default())?;
        }
        write!(out, ",{},", row.replication)?;
        write_field(out, &row.metric)?;
        writeln!(out, ",{}", format_number(row.value))?;
    }
    Ok(())
}

/// Returns one line of these fields with its line feed, quoted where needed.
pub(crate) fn csv_line<'a>(fields: impl IntoIterator<Item = &'a str>) -> String {
    let mut out = Vec::new();
    for (i, text) in fields.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_field(&mut out, text).expect("writing to memory cannot fail");
    }
    out.push(b'\n');
    String::from_utf8(out).expect("only text was written")
}

fn write_field(out: &mut dyn Write, text: &str) -> io::Result<()> {
    if !text.contains([',', '"', '\n', '\r']) {
        return out.write_all(text.as_bytes());
    }
    write!(out, "\"{}\"", text.replace('"', "\"\""))
}

/// Reads a file of [`write`], or of another program with the same columns in any order.
///
/// # Errors
/// [`RunFileError::Io`]; [`RunFileError::Malformed`] with the line.
pub fn read_csv(path: &Path) -> Result<Vec<ResultRow>, RunFileError> {
    parse_csv(&file::read_file(path)?)
        .map_err(|(line, reason)| RunFileError::malformed_line(path, line, reason))
}

/// Parses rows from the text of a CSV file.
///
/// # Errors
/// The line, from 1, and its fault.
pub fn parse_csv(text: &str) -> Result<Vec<ResultRow>, (usize, String)> {
    let mut records = CsvRecords { rest: text, line: 1 };
    let (_, header) = records.next().ok_or((1, "the file is empty".to_owned()))??;
    let column = |name: &str| {
        let missing = || (1, format!("no column '{name}'"));
        header.iter().position(|h| h == name).ok_or_else(missing)
    };
    let [study, replication, metric, value] =
        [column("study")?, column("replication")?, column("metric")?, column("value")?];
    let fixed = [study, replication, metric, value];
    let axes: Vec<usize> = (0..header.len()).filter(|i| !fixed.contains(i)).collect();

    let mut names = NameInterner::default();
    let mut point = GridPoint::default();
    let mut rows = Vec::new();
    for record in records {
        let (line, record) = record?;
        if record.len() != header.len() {
            return Err((line, format!("{} fields, expected {}", record.len(), header.len())));
        }
        let pairs = || axes.iter().map(|&i| (header[i].as_str(), record[i].as_str()));
        if !point.axes().eq(pairs().filter(|(_, v)| !v.is_empty())) {
            point = GridPoint::new(pairs());
        }
        rows.push(ResultRow {
            study: names.intern(&record[study]),
            point: point.clone(),
            replication: record[replication]
                .parse()
                .map_err(|_| (line, format!("'{}' is not a replication number", record[replication])))?,
            metric: names.intern(&record[metric]),
            value: record[value]
                .parse()
                .map_err(|_| (line, format!("'{}' is not a number", record[value])))?,
        });
    }
    Ok(rows)
}

/// Stores each distinct name once.
#[derive(Default)]
struct NameInterner(HashMap<String, Arc<str>>);

impl NameInterner {
    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let shared: Arc<str> = name.into();
        self.0.insert(name.to_owned(), shared.clone());
        shared
    }
}

/// The records of a CSV text, each with its first line; blank lines are skipped.
struct CsvRecords<'a> {
    rest: &'a str,
    line: usize,
}

impl Iterator for CsvRecords<'_> {
    type Item = Result<(usize, Vec<String>), (usize, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return None;
        }
        let start = self.line;
        let mut fields = Vec::new();
        loop {
            match self.next_field() {
                Ok(text) => fields.push(text),
                Err(reason) => {
                    self.rest = "";
                    return Some(Err((start, reason)));
                }
            }
            if let Some(rest) = self.rest.strip_prefix(',') {
                self.rest = rest;
            } else {
                return Some(Ok((start, fields)));
            }
        }
    }
}

impl CsvRecords<'_> {
    /// Returns one field, up to the next comma, line end or text end.
    fn next_field(&mut self) -> Result<String, String> {
        let Some(mut rest) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let (text, rest) = self.rest.split_at(end);
            self.rest = rest;
            let text = if rest.starts_with(',') { text } else { text.strip_suffix('\r').unwrap_or(text) };
            return Ok(text.to_owned());
        };
        let mut text = String::new();
        loop {
            let end = rest.find('"').ok_or("a quote is not closed")?;
            text.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('"') {
                Some(more) => {
                    text.push('"');
                    rest = more;
                }
                None => break,
            }
        }
        self.line += text.matches('\n').count();
        let ended = rest.strip_prefix('\r').filter(|r| r.starts_with('\n')).unwrap_or(rest);
        if !(ended.is_empty() || ended.starts_with([',', '\n'])) {
            return Err("text after a closing quote".to_owned());
        }
        self.rest = ended;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::TempDir;
    use proptest::prelude::*;

    fn test_row(study: &str, axes: &[(&str, &str)], replication: u32, metric: &str, value: f64) -> ResultRow {
        let point = GridPoint::new(axes.iter().copied());
        ResultRow { study: study.into(), point, replication, metric: metric.into(), value }
    }

    #[test]
    fn the_file_is_as_documented() {
        let rows = [
            test_row("aaa-hol", &[("loss", "0.05"), ("transport", "tcp")], 0, "delay_mean", 0.125),
            test_row("aaa-hol", &[("loss", "0.05"), ("transport", "a \"b\", c")], 1, "delay_mean", 1e-9),
            test_row("other", &[("rate", "5")], 0, "failures", 3.0),
        ];
        let expected = "study,loss,transport,rate,replication,metric,value\n\
                        aaa-hol,0.05,tcp,,0,delay_mean,0.125\n\
                        aaa-hol,0.05,\"a \"\"b\"\", c\",,1,delay_mean,1e-9\n\
                        other,,,5,0,failures,3\n";
        assert_eq!(csv_text(&rows).unwrap(), expected);
        let folder = TempDir::new();
        write_csv(&folder.file_path("results.csv"), &rows).unwrap();
        assert_eq!(read_csv(&folder.file_path("results.csv")).unwrap(), rows);
    }

    #[test]
    fn an_axis_may_not_hide_a_column() {
        let rows = [test_row("s", &[("value", "1")], 0, "m", 0.0)];
        assert!(matches!(csv_text(&rows), Err(RunFileError::ReservedAxis(axis)) if axis == "value"));
    }

    #[test]
    fn other_programs_line_ends_and_column_orders_are_read() {
        let rows = parse_csv("value,metric,loss,replication,study\r\n1.5,\"d\",0.1,2,s\r\n\r\n").unwrap();
        assert_eq!(rows, [test_row("s", &[("loss", "0.1")], 2, "d", 1.5)]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, reason) in [
            ("", 1, "the file is empty"),
            ("study,metric,value\n", 1, "no column 'replication'"),
            ("study,replication,metric,value\ns,0,m\n", 2, "3 fields, expected 4"),
            ("study,replication,metric,value\ns,0,m,1\ns,x,m,1\n", 3, "'x' is not a replication number"),
            ("study,replication,metric,value\n\"a\nb\",0,m,1\ns,0,m,x\n", 4, "'x' is not a number"),
            ("study,replication,metric,value\n\"s,0,m,1\n", 2, "a quote is not closed"),
            ("study,replication,metric,value\n\"s\"x,0,m,1\n", 2, "text after a closing quote"),
        ] {
            assert_eq!(parse_csv(text), Err((line, reason.to_owned())), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn rows_read_back(rows in proptest::collection::vec(
            ("[a-z]{1,3}", "[ -~\n\r]{1,9}", any::<u32>(), "[a-z_,]{1,9}", -1e300f64..1e300), 0..20
        )) {
            let rows: Vec<ResultRow> =
                rows.iter().map(|(s, a, r, m, v)| test_row(s, &[("axis", a), ("other", s)], *r, m, *v)).collect();
            prop_assert_eq!(parse_csv(&csv_text(&rows).unwrap()).unwrap(), rows);
        }

        #[test]
        fn arbitrary_text_never_panics(text in ".{0,200}|(study,replication,metric,value\n[\",\ra\n]{0,99})") {
            let _ = parse_csv(&text);
        }
    }
}
