//! The content of a table.

use usher_observe::MeanEstimate;
use usher_observe::stats::robust::MedianEstimate;

/// A table.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReportTable {
    /// Its title.
    pub title: String,
    /// Its columns.
    pub columns: Vec<ReportColumn>,
    /// Its rows, each with a cell for every column; missing cells are empty.
    pub rows: Vec<Vec<TableCell>>,
    /// True if it is folded below its title until a reader opens it; never on paper.
    pub folded: bool,
}

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReportColumn {
    /// Its heading.
    pub title: String,
    /// The unit of its numbers; empty for none.
    pub unit: String,
}

impl ReportColumn {
    /// Creates a column.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into() }
    }
}

/// A cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum TableCell {
    /// A text; one that parses as a number sorts as a number.
    Text(String),
    /// A number without an interval.
    Number(f64),
    /// A mean with its interval and count: "12.34 ± 0.05 (10)".
    Estimate(MeanEstimate),
    /// A mean that one replication moves, with its interval and count, and the median beside it: "12 ± 11 (10), median
    /// 2.1 (1.8 to 2.6)".
    Moved(MeanEstimate, MedianEstimate),
    /// A link to another page, by its path from this one.
    Link {
        /// The text.
        text: String,
        /// The path.
        to: String,
    },
    /// No measurement.
    Empty,
}

impl From<&str> for TableCell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}
impl From<f64> for TableCell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}
impl From<MeanEstimate> for TableCell {
    fn from(estimate: MeanEstimate) -> Self {
        Self::Estimate(estimate)
    }
}
