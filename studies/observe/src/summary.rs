//! Rows grouped by point and metric, each with mean and interval: the source of figures and tables.

use crate::columns::{self, ResultRowUnits};
use crate::row::{GridPoint, ResultRow, format_number};
use crate::stats::robust::{InfluentialReplication, MedianEstimate, find_influential};
use crate::stats::{MeanEstimate, SampleMoments};
use crate::{RunFileError, csv, file};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// One metric of one point over its replications.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricSummary {
    /// The study's name.
    pub study: Arc<str>,
    /// The grid point.
    pub point: GridPoint,
    /// The metric's name.
    pub metric: Arc<str>,
    /// The values as (replication, value), in replication order.
    pub values: Vec<(u32, f64)>,
    /// Their mean and interval.
    pub estimate: MeanEstimate,
}

impl MetricSummary {
    /// Returns the values' median, with the interval of its order statistics at this level.
    pub fn median_estimate(&self, level: f64) -> MedianEstimate {
        MedianEstimate::from_values(&self.values.iter().map(|(_, v)| *v).collect::<Vec<_>>(), level)
    }

    /// Returns the values' moments.
    fn moments(&self) -> SampleMoments {
        SampleMoments::from_values(self.values.iter().map(|(_, v)| *v))
    }

    /// Returns the replication that moves the mean, if any.
    pub fn influential_replication(&self) -> Option<InfluentialReplication> {
        find_influential(&self.values)
    }
}

/// Computes a number of a summary at the confidence level of its intervals.
pub(crate) type SummaryValueFunction = fn(&MetricSummary, f64) -> Option<f64>;

/// The numbers of a summary's line after `n`, by column name.
pub(crate) const NUMBERS: [(&str, SummaryValueFunction); 12] = [
    ("mean", |s, _| Some(s.estimate.mean)),
    ("mean_low", |s, _| Some(s.estimate.low())),
    ("mean_high", |s, _| Some(s.estimate.high())),
    ("median", |s, level| Some(s.median_estimate(level).median)),
    ("median_low", |s, level| Some(s.median_estimate(level).low)),
    ("median_high", |s, level| Some(s.median_estimate(level).high)),
    ("moved_by", |s, _| s.influential_replication().map(|moved| f64::from(moved.replication))),
    ("mean_without", |s, _| s.influential_replication().map(|moved| moved.mean_without)),
    ("confidence", |_, level| Some(level)),
    ("sd", |s, _| (s.values.len() > 1).then(|| libm::sqrt(s.moments().variance()))),
    ("min", |s, _| s.values.iter().map(|(_, v)| *v).reduce(f64::min)),
    ("max", |s, _| s.values.iter().map(|(_, v)| *v).reduce(f64::max)),
];

/// Writes the summary of rows atomically, one line for each metric of each point. The columns are those of
/// [`columns::SUMMARY`], with the axes after `study`. Unknown values are empty.
///
/// # Errors
/// [`RunFileError::ReservedAxis`]; [`RunFileError::Io`], which keeps the earlier file.
pub fn write_summary_csv(
    path: &Path,
    rows: &[ResultRow],
    level: f64,
    units: &ResultRowUnits,
) -> Result<(), RunFileError> {
    let text = summary_csv_text(rows, level, units)?;
    file::write_file(path, |out| out.write_all(text.as_bytes()))
}

/// Returns the text that [`write_summary_csv()`] writes.
///
/// # Errors
/// [`RunFileError::ReservedAxis`].
pub fn summary_csv_text(
    rows: &[ResultRow],
    level: f64,
    units: &ResultRowUnits,
) -> Result<String, RunFileError> {
    let axes = columns::of_axes(rows, units, &columns::SUMMARY)?;
    let [study, of_metrics @ ..] = &columns::SUMMARY;
    let places = axes.iter().map(|axis| axis.name.as_str());
    let mut out = csv::csv_line(
        [study.name].into_iter().chain(places).chain(of_metrics.iter().map(|column| column.name)),
    );
    let known = |value: Option<f64>| value.filter(|v| v.is_finite()).map_or_else(String::new, format_number);
    for summary in summarise_rows(rows, level) {
        let places = axes.iter().map(|axis| axis.value_text(&summary.point));
        let mut fields = vec![summary.study.to_string()];
        fields.extend(places);
        fields.push(summary.metric.to_string());
        fields.push(units.of_metric(&summary.metric).unwrap_or_default().to_owned());
        fields.push(summary.estimate.n.to_string());
        fields.extend(NUMBERS.map(|(_, value)| known(value(&summary, level))));
        out.push_str(&csv::csv_line(fields.iter().map(String::as_str)));
    }
    Ok(out)
}

/// Groups rows by (study, point, metric), in order of first appearance, with intervals at this level (0.95). The rows
/// may come in any order; each group is sorted by replication. NaN values are skipped.
pub fn summarise_rows(rows: &[ResultRow], level: f64) -> Vec<MetricSummary> {
    let mut places: HashMap<(&str, &GridPoint, &str), usize> = HashMap::new();
    let mut summaries: Vec<MetricSummary> = Vec::new();
    for row in rows.iter().filter(|r| !r.value.is_nan()) {
        let place = *places.entry((&row.study, &row.point, &row.metric)).or_insert_with(|| {
            summaries.push(MetricSummary {
                study: row.study.clone(),
                point: row.point.clone(),
                metric: row.metric.clone(),
                values: Vec::new(),
                estimate: SampleMoments::default().estimate(level),
            });
            summaries.len() - 1
        });
        summaries[place].values.push((row.replication, row.value));
    }
    for summary in &mut summaries {
        summary.values.sort_by_key(|(replication, _)| *replication);
        summary.estimate = summary.moments().estimate(level);
    }
    summaries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_row(loss: &str, replication: u32, metric: &str, value: f64) -> ResultRow {
        let point = GridPoint::new([("loss", loss)]);
        ResultRow { study: "s".into(), point, replication, metric: metric.into(), value }
    }

    #[test]
    fn groups_keep_their_order_and_replications_theirs() {
        let rows = [
            test_row("0.1", 1, "delay", 3.0),
            test_row("0.1", 0, "delay", 1.0),
            test_row("0.1", 0, "failures", f64::NAN),
            test_row("0", 0, "delay", 7.0),
            test_row("0.1", 2, "delay", 2.0),
        ];
        let got = summarise_rows(&rows, 0.95);
        assert_eq!(got.len(), 2);
        assert_eq!(got[0].values, [(0, 1.0), (1, 3.0), (2, 2.0)]);
        assert_eq!((got[0].estimate.mean, got[0].estimate.n), (2.0, 3));
        assert_eq!(got[1].point.get("loss"), Some("0"));
        assert!(got[1].estimate.half_width.is_infinite());
    }

    #[test]
    fn the_file_has_medians_beside_means_and_names_what_moves_them() {
        let heavy = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
        let mut rows: Vec<ResultRow> =
            (0..).zip(heavy).map(|(r, value)| test_row("5 %", r, "delay.mean", value)).collect();
        rows.push(test_row("a, b", 0, "delay.mean", 3.0));
        let mut units = ResultRowUnits::default();
        units.set_metric_unit("delay.mean", "s");
        let head = "study,loss,metric,unit,n,mean,mean_low,mean_high,median,median_low,median_high,moved_by,mean_without,\
                    confidence,sd,min,max";
        let got = summary_csv_text(&rows, 0.95, &units).unwrap();
        let lines: Vec<&str> = got.lines().collect();
        assert_eq!(lines[0], head);
        let fields: Vec<&str> = lines[1].split(',').collect();
        assert_eq!(fields[..6], ["s", "5 %", "delay.mean", "s", "6", "6"]);
        assert_eq!(fields[8..12], ["1.5", "1", "29", "5"]);
        assert!((fields[12].parse::<f64>().unwrap() - 1.4).abs() < 1e-12);
        assert_eq!((fields[13], fields[15], fields[16]), ("0.95", "1", "29"));
        let sd = (25.0f64 + 25.0 + 16.0 + 25.0 + 16.0 + 23.0 * 23.0) / 5.0;
        assert!((fields[14].parse::<f64>().unwrap() - sd.sqrt()).abs() < 1e-12);
        assert_eq!(lines[2], "s,\"a, b\",delay.mean,s,1,3,,,3,,,,,0.95,,3,3");
    }

    #[test]
    fn every_number_of_a_line_has_its_column() {
        let names: Vec<&str> = columns::SUMMARY.iter().skip(4).map(|column| column.name).collect();
        assert_eq!(names, NUMBERS.map(|(name, _)| name));
    }
}
