//! The columns of the files that a run writes for other programs: names, types and meanings. Writers and
//! `docs/results.schema.json` share them.

use crate::row::{ResultRow, list_axes};
use crate::{RunFileError, row};
use serde_json::{Map, json};
use std::collections::BTreeMap;

/// The type of a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    /// A text.
    Text,
    /// A non-negative integer.
    Count,
    /// A number.
    Number,
}

/// A column that every file of its kind has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnSpec {
    /// Its name.
    pub name: &'static str,
    /// The type of its values.
    pub kind: ColumnKind,
    /// True if a row may leave it empty.
    pub optional: bool,
    /// The meaning of its values.
    pub meaning: &'static str,
}

const fn required_column(name: &'static str, holds: ColumnKind, meaning: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: holds, optional: false, meaning }
}
const fn optional_column(name: &'static str, holds: ColumnKind, meaning: &'static str) -> ColumnSpec {
    ColumnSpec { name, kind: holds, optional: true, meaning }
}

const STUDY: ColumnSpec = required_column("study", ColumnKind::Text, "The study's name.");
const METRIC: ColumnSpec = required_column(
    "metric",
    ColumnKind::Text,
    "The metric's name; docs/reference/metrics.md describes each.",
);
/// The unit of a row's metric.
pub const UNIT: ColumnSpec =
    optional_column("unit", ColumnKind::Text, "The unit of the metric; empty for a plain number or a share.");

/// The columns of results, without those of the axes, which follow `study`. Only the Parquet file has `unit`.
pub const RESULTS: [ColumnSpec; 5] = [
    STUDY,
    required_column("replication", ColumnKind::Count, "The replication's number, from 0."),
    METRIC,
    UNIT,
    required_column("value", ColumnKind::Number, "The measured value, in the metric's unit."),
];

/// The columns of the summary, without those of the axes, which follow `study`.
pub const SUMMARY: [ColumnSpec; 16] = [
    STUDY,
    METRIC,
    UNIT,
    required_column("n", ColumnKind::Count, "The number of replications with a value."),
    optional_column("mean", ColumnKind::Number, "Their mean."),
    optional_column(
        "mean_low",
        ColumnKind::Number,
        "The lower end of Student's interval of the mean; empty with one value.",
    ),
    optional_column("mean_high", ColumnKind::Number, "Its upper end."),
    optional_column("median", ColumnKind::Number, "The median of the replications."),
    optional_column(
        "median_low",
        ColumnKind::Number,
        "The lower end of the interval of its order statistics; empty with too few.",
    ),
    optional_column("median_high", ColumnKind::Number, "Its upper end."),
    optional_column("moved_by", ColumnKind::Count, "The replication that moves the mean, if any."),
    optional_column("mean_without", ColumnKind::Number, "The mean of the others."),
    required_column("confidence", ColumnKind::Number, "The confidence level of the intervals: 0.95."),
    optional_column(
        "sd",
        ColumnKind::Number,
        "The standard deviation of the replications; empty with one value.",
    ),
    optional_column("min", ColumnKind::Number, "The smallest value of a replication."),
    optional_column("max", ColumnKind::Number, "The largest."),
];

/// Information that rows lack: units, and the numbers of axis values that are quantities.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ResultRowUnits {
    axes: BTreeMap<String, QuantityAxis>,
    metrics: BTreeMap<String, String>,
}

/// An axis whose values are quantities.
#[derive(Clone, PartialEq, Debug)]
struct QuantityAxis {
    unit: String,
    numbers: BTreeMap<String, f64>,
}

impl ResultRowUnits {
    /// Sets the unit of an axis and the numbers of its values.
    pub fn set_axis_unit(
        &mut self,
        name: &str,
        unit: &str,
        numbers: impl IntoIterator<Item = (String, f64)>,
    ) {
        let quantities = QuantityAxis { unit: unit.to_owned(), numbers: numbers.into_iter().collect() };
        self.axes.insert(name.to_owned(), quantities);
    }

    /// Sets the unit of a metric.
    pub fn set_metric_unit(&mut self, name: &str, unit: &str) {
        self.metrics.insert(name.to_owned(), unit.to_owned());
    }

    /// Returns the unit of a metric; `None` for a plain number or an unknown metric.
    pub(crate) fn of_metric(&self, name: &str) -> Option<&str> {
        self.metrics.get(name).map(String::as_str).filter(|unit| !unit.is_empty())
    }
}

/// A column of an axis: its values as the study writes them, or their numbers.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AxisColumn<'a> {
    /// Its name in the file: the axis's name, followed by the unit in brackets for numbers.
    pub(crate) name: String,
    /// The axis.
    pub(crate) axis: &'a str,
    /// True if it accompanies a column of texts.
    quantity: bool,
    /// The number of each value, for a column of numbers.
    numbers: Option<BTreeMap<&'a str, f64>>,
}

impl AxisColumn<'_> {
    /// True for a column of numbers.
    pub(crate) const fn is_numeric(&self) -> bool {
        self.numbers.is_some()
    }
    /// Returns a row's value in a CSV file: the text as the study writes it, or the number of a quantity.
    pub(crate) fn value_text(&self, point: &row::GridPoint) -> String {
        match self.quantity {
            true => self.value_number(point).map_or_else(String::new, row::format_number),
            false => point.get(self.axis).unwrap_or_default().to_owned(),
        }
    }
    /// Returns the number of a row's value.
    pub(crate) fn value_number(&self, point: &row::GridPoint) -> Option<f64> {
        self.numbers.as_ref()?.get(point.get(self.axis)?).copied()
    }
}

/// Returns the columns of the axes of these rows, in order of first appearance. Each axis has a column of texts, or of
/// numbers if every value is a plain number. If every value is a quantity, a column of numbers in the axis's unit
/// follows. An axis with the name of one of the `fixed` columns gets the suffix `_axis`.
///
/// # Errors
/// [`RunFileError::ReservedAxis`].
pub(crate) fn of_axes<'a>(
    rows: &'a [ResultRow],
    units: &'a ResultRowUnits,
    fixed: &[ColumnSpec],
) -> Result<Vec<AxisColumn<'a>>, RunFileError> {
    let mut columns = Vec::new();
    for axis in list_axes(rows)? {
        let taken = fixed.iter().any(|column| column.name == axis);
        let name = if taken { format!("{axis}_axis") } else { axis.to_owned() };
        let values = || rows.iter().filter_map(|row| row.point.get(axis));
        let plain: Option<BTreeMap<&str, f64>> =
            values().map(|text| Some((text, text.parse::<f64>().ok()?))).collect();
        let quantities = units.axes.get(axis).filter(|of| plain.is_none() && !of.unit.is_empty());
        let numbers = quantities.and_then(|of| {
            let numbers: Option<BTreeMap<&str, f64>> =
                values().map(|text| Some((text, *of.numbers.get(text)?))).collect();
            Some((numbers?, &of.unit))
        });
        columns.push(AxisColumn { name: name.clone(), axis, quantity: false, numbers: plain });
        if let Some((numbers, unit)) = numbers {
            let name = format!("{name} [{unit}]");
            columns.push(AxisColumn { name, axis, quantity: true, numbers: Some(numbers) });
        }
    }
    Ok(columns)
}

/// Returns the JSON Schema of the rows of `results.csv`, `results.parquet`, `summary.csv` and `summary.parquet`, as in
/// `docs/results.schema.json`: indented, with a final newline.
pub fn json_schema() -> String {
    let table = |about: &str, columns: &[ColumnSpec]| {
        let mut properties = Map::new();
        for column in columns {
            let kind = match column.kind {
                ColumnKind::Text => "string",
                ColumnKind::Count => "integer",
                ColumnKind::Number => "number",
            };
            let kind = if column.optional { json!([kind, "null"]) } else { json!(kind) };
            properties.insert(column.name.to_owned(), json!({ "type": kind, "description": column.meaning }));
        }
        let required: Vec<&str> = columns.iter().map(|column| column.name).collect();
        json!({
            "type": "object",
            "description": about,
            "properties": properties,
            "patternProperties": {
                "^[A-Za-z0-9_-]+ \\[[^\\]]+\\]$": {
                    "type": ["number", "null"],
                    "description": "AXIS [UNIT]: the number of an axis's value in this unit, if all its values are \
                                    quantities.",
                },
            },
            "additionalProperties": {
                "type": ["string", "number", "null"],
                "description": "AXIS: an axis's value as the study writes it, such as \"5 %\"; a number if all its \
                                values are numbers. Empty in rows of another study.",
            },
            "required": required,
        })
    };
    let csv: Vec<ColumnSpec> = RESULTS.into_iter().filter(|column| *column != UNIT).collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Results",
        "description": "The rows of a run's files for other programs, each an object of its columns. Minor versions of \
                        Usher may add columns, but never remove, rename or redefine one.",
        "anyOf": [
            { "$ref": "#/$defs/results.csv" },
            { "$ref": "#/$defs/results.parquet" },
            { "$ref": "#/$defs/summary" },
        ],
        "$defs": {
            "results.csv": table("results.csv: one value that one replication measured.", &csv),
            "results.parquet": table("results.parquet: the same, with numbers and units.", &RESULTS),
            "summary": table("summary.csv and summary.parquet: one metric of one point over its replications.", &SUMMARY),
        },
    });
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    /// Columns that other programs rely on.
    const PROMISED: [(&str, &[&str]); 3] = [
        ("results.csv", &["study", "replication", "metric", "value"]),
        ("results.parquet", &["study", "replication", "metric", "unit", "value"]),
        (
            "summary",
            &[
                "study",
                "metric",
                "unit",
                "n",
                "mean",
                "mean_low",
                "mean_high",
                "median",
                "median_low",
                "median_high",
                "moved_by",
                "mean_without",
                "confidence",
                "sd",
                "min",
                "max",
            ],
        ),
    ];

    #[test]
    fn the_published_schema_is_of_these_columns() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.schema.json");
        if std::env::var_os("USHER_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, json_schema()).unwrap();
        }
        let held = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            held,
            json_schema(),
            "docs/results.schema.json is old: USHER_WRITE_SCHEMA=1 cargo test -p usher-observe published"
        );
        let schema: Value = serde_json::from_str(&held).unwrap();
        for (table, columns) in PROMISED {
            for column in columns {
                let found = &schema["$defs"][table]["properties"][column];
                assert!(found.is_object(), "{table} has lost {column}, which a minor version may not");
            }
        }
    }

    #[test]
    fn quantities_get_a_number_column_and_plain_numbers_are_numeric() {
        let row = |loss: &str, clients: &str, n: &str| ResultRow {
            study: "s".into(),
            point: row::GridPoint::new([("loss", loss), ("clients", clients), ("n", n)]),
            replication: 0,
            metric: "m".into(),
            value: 0.0,
        };
        let rows = [row("0 %", "1", "a"), row("0.05", "2", "b")];
        let mut units = ResultRowUnits::default();
        units.set_axis_unit("loss", "%", [("0 %".to_owned(), 0.0), ("0.05".to_owned(), 5.0)]);
        let columns = of_axes(&rows, &units, &SUMMARY).unwrap();
        let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["loss", "loss [%]", "clients", "n_axis"]);
        assert_eq!(columns[1].value_number(&rows[1].point), Some(5.0));
        assert_eq!(
            columns.iter().map(AxisColumn::is_numeric).collect::<Vec<_>>(),
            [false, true, true, false]
        );
        // A value that the axis does not know leaves the column as text.
        let more = [rows.to_vec(), vec![row("x", "1", "a")]].concat();
        assert!(!of_axes(&more, &units, &SUMMARY).unwrap().iter().any(|c| c.name == "loss [%]"));
    }
}
