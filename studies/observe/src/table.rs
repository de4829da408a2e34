//! The tables of a run, column by column, for writers of other formats: Parquet files here, Arrow streams in the Python
//! package.
//!
//! Each axis whose values are quantities has a second column with their numbers, named by the axis and the unit (`loss
//! [%]`). Data frames can plot it directly. An axis of plain numbers has only a column of numbers.

use crate::RunFileError;
use crate::columns::{self, AxisColumn, ResultRowUnits};
use crate::row::{GridPoint, ResultRow};
use crate::summary::{self, MetricSummary};
use std::fmt;

/// Returns the value of a column by row index, from 0; `None` if unknown.
pub type ColumnValueGetter<'a, V> = Box<dyn Fn(usize) -> Option<V> + 'a>;

/// The values of a column.
pub enum ColumnValues<'a> {
    /// Texts.
    Text(ColumnValueGetter<'a, &'a str>),
    /// Non-negative integers.
    Count(ColumnValueGetter<'a, u32>),
    /// Numbers.
    Number(ColumnValueGetter<'a, f64>),
}

impl fmt::Debug for ColumnValues<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text(_) => "Text",
            Self::Count(_) => "Count",
            Self::Number(_) => "Number",
        })
    }
}

/// A column of a table.
#[derive(Debug)]
pub struct TableColumn<'a> {
    /// Its name.
    pub name: String,
    /// True if every row has a value.
    pub required: bool,
    /// Its values.
    pub values: ColumnValues<'a>,
}

/// A table of rows.
#[derive(Debug)]
pub struct ResultTable<'a> {
    /// Its columns, in their order.
    pub columns: Vec<TableColumn<'a>>,
    /// Number of rows.
    pub rows: usize,
}

/// Returns the rows of a run in the columns of [`columns::RESULTS`], with those of the axes after `study`.
///
/// # Errors
/// [`RunFileError::ReservedAxis`].
pub fn results_table<'a>(
    rows: &'a [ResultRow],
    units: &'a ResultRowUnits,
) -> Result<ResultTable<'a>, RunFileError> {
    let mut of = vec![TableColumn::from_texts("study", move |i| &rows[i].study)];
    let axes = columns::of_axes(rows, units, &columns::RESULTS)?;
    of.extend(axes.into_iter().map(|axis| TableColumn::from_axis(axis, move |i| &rows[i].point)));
    of.push(TableColumn::from_counts("replication", move |i| rows[i].replication));
    of.push(TableColumn::from_texts("metric", move |i| &rows[i].metric));
    of.push(TableColumn::from_units(units, move |i| &rows[i].metric));
    of.push(TableColumn::from_numbers("value", move |i| rows[i].value));
    Ok(ResultTable { columns: of, rows: rows.len() })
}

/// Returns the summary of [`summary::summarise_rows`] at this level in the columns of [`columns::SUMMARY`], with those
/// of the axes after `study`.
///
/// # Errors
/// [`RunFileError::ReservedAxis`].
pub fn summary_table<'a>(
    summaries: &'a [MetricSummary],
    rows: &'a [ResultRow],
    level: f64,
    units: &'a ResultRowUnits,
) -> Result<ResultTable<'a>, RunFileError> {
    let mut of = vec![TableColumn::from_texts("study", move |i| &summaries[i].study)];
    let axes = columns::of_axes(rows, units, &columns::SUMMARY)?;
    of.extend(axes.into_iter().map(|axis| TableColumn::from_axis(axis, move |i| &summaries[i].point)));
    of.push(TableColumn::from_texts("metric", move |i| &summaries[i].metric));
    of.push(TableColumn::from_units(units, move |i| &summaries[i].metric));
    of.push(TableColumn::from_counts("n", move |i| summaries[i].estimate.n));
    for (name, value) in summary::NUMBERS {
        let known = move |i: usize| value(&summaries[i], level).filter(|v| v.is_finite());
        let values = match name {
            "moved_by" => ColumnValues::Count(Box::new(move |i| known(i).map(|v| v as u32))),
            _ => ColumnValues::Number(Box::new(known)),
        };
        of.push(TableColumn { name: name.to_owned(), required: false, values });
    }
    Ok(ResultTable { columns: of, rows: summaries.len() })
}

impl<'a> TableColumn<'a> {
    fn from_texts(name: &str, of: impl Fn(usize) -> &'a str + 'a) -> Self {
        let values = ColumnValues::Text(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn from_units(units: &'a ResultRowUnits, metric: impl Fn(usize) -> &'a str + 'a) -> Self {
        let values = ColumnValues::Text(Box::new(move |i| units.of_metric(metric(i))));
        Self { name: columns::UNIT.name.to_owned(), required: false, values }
    }
    fn from_counts(name: &str, of: impl Fn(usize) -> u32 + 'a) -> Self {
        let values = ColumnValues::Count(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn from_numbers(name: &str, of: impl Fn(usize) -> f64 + 'a) -> Self {
        let values = ColumnValues::Number(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn from_axis(axis: AxisColumn<'a>, point: impl Fn(usize) -> &'a GridPoint + 'a) -> Self {
        let name = axis.name.clone();
        let values = match axis.is_numeric() {
            true => ColumnValues::Number(Box::new(move |i| axis.value_number(point(i)))),
            false => {
                let axis = axis.axis;
                ColumnValues::Text(Box::new(move |i| point(i).get(axis)))
            }
        };
        Self { name, required: false, values }
    }
}
