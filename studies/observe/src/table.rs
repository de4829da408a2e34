//! The tables of a run, column by column, for whoever writes them in a format of its own: Parquet files here, Arrow's streams
//! in the Python package.
//!
//! Beside each axis whose values are quantities stands a column of their numbers, called by the axis and the unit
//! (`loss [%]`), so that a data frame can draw it at once; an axis of plain numbers is one itself.

use crate::Error;
use crate::columns::{self, AxisColumn, Units};
use crate::row::{Point, Row};
use crate::summary::{self, Summary};
use std::fmt;

/// Values of a column by the place of their row, from 0; `None` for what is not known.
pub type Of<'a, V> = Box<dyn Fn(usize) -> Option<V> + 'a>;

/// Where a column has its values from.
pub enum Values<'a> {
    /// Texts.
    Text(Of<'a, &'a str>),
    /// Whole numbers that are not negative.
    Count(Of<'a, u32>),
    /// Numbers.
    Number(Of<'a, f64>),
}

impl fmt::Debug for Values<'_> {
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
pub struct Column<'a> {
    /// Its name.
    pub name: String,
    /// Whether every row has a value.
    pub required: bool,
    /// Its values.
    pub values: Values<'a>,
}

/// A table of rows.
#[derive(Debug)]
pub struct Table<'a> {
    /// Its columns, in their order.
    pub columns: Vec<Column<'a>>,
    /// How many rows it has.
    pub rows: usize,
}

/// The rows of a run, in the columns of [`columns::RESULTS`] with those of the axes behind `study`.
///
/// # Errors
/// [`Error::ReservedAxis`].
pub fn results<'a>(rows: &'a [Row], units: &'a Units) -> Result<Table<'a>, Error> {
    let mut of = vec![Column::text("study", move |i| &rows[i].study)];
    let axes = columns::of_axes(rows, units, &columns::RESULTS)?;
    of.extend(axes.into_iter().map(|axis| Column::axis(axis, move |i| &rows[i].point)));
    of.push(Column::count("replication", move |i| rows[i].replication));
    of.push(Column::text("metric", move |i| &rows[i].metric));
    of.push(Column::unit(units, move |i| &rows[i].metric));
    of.push(Column::number("value", move |i| rows[i].value));
    Ok(Table { columns: of, rows: rows.len() })
}

/// What rows come to, as [`summary::summarise`] gave it at this level: the columns of [`columns::SUMMARY`] with those of the axes
/// behind `study`.
///
/// # Errors
/// [`Error::ReservedAxis`].
pub fn summary<'a>(
    summaries: &'a [Summary],
    rows: &'a [Row],
    level: f64,
    units: &'a Units,
) -> Result<Table<'a>, Error> {
    let mut of = vec![Column::text("study", move |i| &summaries[i].study)];
    let axes = columns::of_axes(rows, units, &columns::SUMMARY)?;
    of.extend(axes.into_iter().map(|axis| Column::axis(axis, move |i| &summaries[i].point)));
    of.push(Column::text("metric", move |i| &summaries[i].metric));
    of.push(Column::unit(units, move |i| &summaries[i].metric));
    of.push(Column::count("n", move |i| summaries[i].estimate.n));
    for (name, value) in summary::NUMBERS {
        let known = move |i: usize| value(&summaries[i], level).filter(|v| v.is_finite());
        let values = match name {
            "moved_by" => Values::Count(Box::new(move |i| known(i).map(|v| v as u32))),
            _ => Values::Number(Box::new(known)),
        };
        of.push(Column { name: name.to_owned(), required: false, values });
    }
    Ok(Table { columns: of, rows: summaries.len() })
}

impl<'a> Column<'a> {
    fn text(name: &str, of: impl Fn(usize) -> &'a str + 'a) -> Self {
        let values = Values::Text(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn unit(units: &'a Units, metric: impl Fn(usize) -> &'a str + 'a) -> Self {
        let values = Values::Text(Box::new(move |i| units.of_metric(metric(i))));
        Self { name: columns::UNIT.name.to_owned(), required: false, values }
    }
    fn count(name: &str, of: impl Fn(usize) -> u32 + 'a) -> Self {
        let values = Values::Count(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn number(name: &str, of: impl Fn(usize) -> f64 + 'a) -> Self {
        let values = Values::Number(Box::new(move |i| Some(of(i))));
        Self { name: name.to_owned(), required: true, values }
    }
    fn axis(axis: AxisColumn<'a>, point: impl Fn(usize) -> &'a Point + 'a) -> Self {
        let name = axis.name.clone();
        let values = match axis.is_numeric() {
            true => Values::Number(Box::new(move |i| axis.number(point(i)))),
            false => {
                let axis = axis.axis;
                Values::Text(Box::new(move |i| point(i).get(axis)))
            }
        };
        Self { name, required: false, values }
    }
}
