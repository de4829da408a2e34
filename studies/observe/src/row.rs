//! Result rows: (study, point, replication, metric, value).

use std::fmt;
use std::sync::Arc;

/// A point of a study's grid: each swept axis with its value as text, in the order of the axes.
///
/// It is cheap to clone. Two points are equal if they have the same axes with the same texts in the same order. An axis
/// with an empty value is omitted, so that a point survives a file with a column for every axis of every study.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GridPoint(Arc<[(String, String)]>);

impl GridPoint {
    /// Creates a point of these (axis, value) pairs.
    pub fn new<A: Into<String>, V: Into<String>>(axes: impl IntoIterator<Item = (A, V)>) -> Self {
        let pairs = axes.into_iter().map(|(a, v)| (a.into(), v.into()));
        Self(pairs.filter(|(_, v): &(String, String)| !v.is_empty()).collect())
    }

    /// Returns the (axis, value) pairs in order.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(a, v)| (a.as_str(), v.as_str()))
    }

    /// Returns the value of this axis.
    pub fn get(&self, axis: &str) -> Option<&str> {
        self.axes().find(|(a, _)| *a == axis).map(|(_, v)| v)
    }

    /// Returns the point without this axis, for series that share all other values.
    #[must_use]
    pub fn without_axis(&self, axis: &str) -> Self {
        Self::new(self.axes().filter(|(a, _)| *a != axis))
    }

    /// True if there are no axes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for GridPoint {
    /// Writes `loss=0.05 transport=tcp`; empty for a point without axes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (axis, value)) in self.axes().enumerate() {
            write!(f, "{}{axis}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for GridPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Point({self})")
    }
}

/// One observation: the value of a metric in one replication of one point.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultRow {
    /// The study's name.
    pub study: Arc<str>,
    /// The grid point.
    pub point: GridPoint,
    /// The replication's index, from 0.
    pub replication: u32,
    /// The metric's name. Its unit comes from the study file; the default is SI base units.
    pub metric: Arc<str>,
    /// The value. A metric that is undefined in a replication (the mean of an empty sample) has no row.
    pub value: f64,
}

/// The fixed columns, in file order; the axes follow `study`.
pub(crate) const FIXED: [&str; 4] = ["study", "replication", "metric", "value"];

/// Returns every axis of these rows, in order of first appearance.
///
/// # Errors
/// [`crate::RunFileError::ReservedAxis`] if one has the name of a fixed column.
pub(crate) fn list_axes(rows: &[ResultRow]) -> Result<Vec<&str>, crate::RunFileError> {
    let mut axes: Vec<&str> = Vec::new();
    let mut last: Option<&GridPoint> = None;
    for row in rows {
        if last.is_some_and(|p| Arc::ptr_eq(&p.0, &row.point.0)) {
            continue;
        }
        last = Some(&row.point);
        for (axis, _) in row.point.axes() {
            if FIXED.contains(&axis) {
                return Err(crate::RunFileError::ReservedAxis(axis.to_owned()));
            }
            if !axes.contains(&axis) {
                axes.push(axis);
            }
        }
    }
    Ok(axes)
}

/// Returns the shortest text that parses to exactly this number: `0.1`, `12`, `1e-7`, `NaN`, `inf`.
pub fn format_number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() || (1e-5..1e16).contains(&size) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_point_reads_as_its_axes() {
        let p = GridPoint::new([("loss", "0.05"), ("note", ""), ("transport", "tcp")]);
        assert_eq!(p.to_string(), "loss=0.05 transport=tcp");
        assert_eq!(p.get("transport"), Some("tcp"));
        assert_eq!(p.get("note"), None);
        assert_eq!(p.without_axis("loss"), GridPoint::new([("transport", "tcp")]));
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.1, "0.1"),
            (12.0, "12"),
            (-0.0, "-0"),
            (1e-7, "1e-7"),
            (1.5e300, "1.5e300"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    proptest! {
        #[test]
        fn numbers_read_back(bits: u64) {
            let value = f64::from_bits(bits);
            let back: f64 = format_number(value).parse().unwrap();
            prop_assert!(back.to_bits() == bits || value.is_nan() && back.is_nan());
        }
    }
}
