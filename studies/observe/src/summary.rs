//! Rows gathered by point and metric, each with its mean and interval: what figures and tables are made
//! from.

use crate::row::{Point, Row, number};
use crate::stats::robust::{Median, Moved, moved};
use crate::stats::{Estimate, Moments};
use crate::{Error, csv, file, row};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One metric of one point over its replications.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// The study's name.
    pub study: Arc<str>,
    /// The grid point.
    pub point: Point,
    /// The metric's name.
    pub metric: Arc<str>,
    /// The values as (replication, value), by replication.
    pub values: Vec<(u32, f64)>,
    /// Their mean and interval.
    pub estimate: Estimate,
}

impl Summary {
    /// The values' median, with the interval of its order statistics at this level.
    pub fn median(&self, level: f64) -> Median {
        Median::of(&self.values.iter().map(|(_, v)| *v).collect::<Vec<_>>(), level)
    }

    /// The replication that moves the mean, if one does ([`moved`]).
    pub fn moved(&self) -> Option<Moved> {
        moved(&self.values)
    }
}

/// Writes what rows come to, one line for each metric of each point, whole or not at all: `study`, a column for
/// each axis, `metric`, `n`; `mean`, `mean_low`, `mean_high` with Student's interval; `median`, `median_low`,
/// `median_high` with that of order statistics; and where one replication moves the mean, its number in
/// `moved_by` and the mean of the others in `mean_without`. What is not known is empty.
///
/// # Errors
/// [`Error::ReservedAxis`]; [`Error::Io`], the earlier file being kept.
pub fn write(path: &Path, rows: &[Row], level: f64) -> Result<(), Error> {
    let text = text(rows, level)?;
    file::write(path, |out| out.write_all(text.as_bytes()))
}

/// The text that [`write()`] writes.
///
/// # Errors
/// [`Error::ReservedAxis`].
pub fn text(rows: &[Row], level: f64) -> Result<String, Error> {
    let axes = row::axes(rows)?;
    let head = ["study"].into_iter().chain(axes.iter().copied());
    let columns = [
        "metric",
        "n",
        "mean",
        "mean_low",
        "mean_high",
        "median",
        "median_low",
        "median_high",
        "moved_by",
        "mean_without",
    ];
    let mut out = csv::line(head.chain(columns));
    let known = |value: f64| if value.is_finite() { number(value) } else { String::new() };
    for summary in summarise(rows, level) {
        let (mean, median, moved) = (summary.estimate, summary.median(level), summary.moved());
        let numbers = [mean.mean, mean.low(), mean.high(), median.median, median.low, median.high].map(known);
        let last = [
            moved.map_or_else(String::new, |m| m.replication.to_string()),
            moved.map_or_else(String::new, |m| known(m.without)),
        ];
        let n = mean.n.to_string();
        let places = axes.iter().map(|axis| summary.point.get(axis).unwrap_or_default());
        let fields = [&*summary.study].into_iter().chain(places).chain([&*summary.metric, n.as_str()]);
        out.push_str(&csv::line(fields.chain(numbers.iter().chain(&last).map(String::as_str))));
    }
    Ok(out)
}

/// Gathers rows by (study, point, metric), in order of first appearance, with intervals at this level
/// (0.95). The rows may come in any order: each group is taken in replication order. NaN values are
/// passed over.
pub fn summarise(rows: &[Row], level: f64) -> Vec<Summary> {
    let mut places: HashMap<(&str, &Point, &str), usize> = HashMap::new();
    let mut summaries: Vec<Summary> = Vec::new();
    for row in rows.iter().filter(|r| !r.value.is_nan()) {
        let place = *places.entry((&row.study, &row.point, &row.metric)).or_insert_with(|| {
            summaries.push(Summary {
                study: row.study.clone(),
                point: row.point.clone(),
                metric: row.metric.clone(),
                values: Vec::new(),
                estimate: Moments::default().estimate(level),
            });
            summaries.len() - 1
        });
        summaries[place].values.push((row.replication, row.value));
    }
    for summary in &mut summaries {
        summary.values.sort_by_key(|(replication, _)| *replication);
        summary.estimate = Moments::of(summary.values.iter().map(|(_, v)| *v)).estimate(level);
    }
    summaries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(loss: &str, replication: u32, metric: &str, value: f64) -> Row {
        let point = Point::new([("loss", loss)]);
        Row { study: "s".into(), point, replication, metric: metric.into(), value }
    }

    #[test]
    fn groups_keep_their_order_and_replications_theirs() {
        let rows = [
            row("0.1", 1, "delay", 3.0),
            row("0.1", 0, "delay", 1.0),
            row("0.1", 0, "failures", f64::NAN),
            row("0", 0, "delay", 7.0),
            row("0.1", 2, "delay", 2.0),
        ];
        let got = summarise(&rows, 0.95);
        assert_eq!(got.len(), 2);
        assert_eq!(got[0].values, [(0, 1.0), (1, 3.0), (2, 2.0)]);
        assert_eq!((got[0].estimate.mean, got[0].estimate.n), (2.0, 3));
        assert_eq!(got[1].point.get("loss"), Some("0"));
        assert!(got[1].estimate.half_width.is_infinite());
    }

    #[test]
    fn the_file_has_medians_beside_means_and_names_what_moves_them() {
        let heavy = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
        let mut rows: Vec<Row> =
            (0..).zip(heavy).map(|(r, value)| row("5 %", r, "delay.mean", value)).collect();
        rows.push(row("a, b", 0, "delay.mean", 3.0));
        let head =
            "study,loss,metric,n,mean,mean_low,mean_high,median,median_low,median_high,moved_by,mean_without";
        let got = text(&rows, 0.95).unwrap();
        let lines: Vec<&str> = got.lines().collect();
        assert_eq!(lines[0], head);
        let fields: Vec<&str> = lines[1].split(',').collect();
        assert_eq!(fields[..5], ["s", "5 %", "delay.mean", "6", "6"]);
        assert_eq!(fields[7..11], ["1.5", "1", "29", "5"]);
        assert!((fields[11].parse::<f64>().unwrap() - 1.4).abs() < 1e-12);
        assert_eq!(lines[2], "s,\"a, b\",delay.mean,1,3,,,3,,,,");
    }
}
