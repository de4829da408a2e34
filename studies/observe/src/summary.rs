//! Rows gathered by point and metric, each with its mean and interval: what figures and tables are made
//! from.

use crate::row::{Point, Row};
use crate::stats::{Estimate, Moments};
use std::collections::HashMap;
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
}
