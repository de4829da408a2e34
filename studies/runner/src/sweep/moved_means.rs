//! Means that a single replication changes noticeably, which a reader must know before believing them.

use super::{SweepResults, key};
use std::collections::HashMap;
use std::fmt;
use usher_observe::GridPoint;
use usher_observe::row::format_number;
use usher_observe::stats::robust::{InfluentialReplication, MedianEstimate};
use usher_observe::summary::{MetricSummary, summarise_rows};
use usher_scenario::{StudyPlan, metrics};

/// The robust statistics beside a mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RobustMeanStatistics {
    pub(super) median: MedianEstimate,
    pub(super) moved: Option<InfluentialReplication>,
}

/// By point and metric.
pub(super) type RobustSummaries = HashMap<(GridPoint, String), RobustMeanStatistics>;

/// Returns the robust statistics for these summaries.
pub(super) fn robust_summaries(plan: &StudyPlan, summaries: &[MetricSummary], level: f64) -> RobustSummaries {
    let tail = |s: &MetricSummary| RobustMeanStatistics {
        median: s.median_estimate(level),
        moved: s.influential_replication().filter(|_| is_time_metric(plan, &s.metric)),
    };
    summaries.iter().map(|s| ((s.point.clone(), s.metric.to_string()), tail(s))).collect()
}

/// True for metrics of time. Only times have long tails: a share or count that one replication moves is rare, and its
/// interval shows it.
fn is_time_metric(plan: &StudyPlan, metric: &str) -> bool {
    let scenario = plan.points.first().map(|p| &p.scenario);
    scenario.and_then(|s| metrics::find_metric(metric, s)).is_some_and(|m| m.unit == "s")
}

/// The points of a run at which one replication moves the mean of a time in its figures, and the worst point.
#[derive(Clone, PartialEq, Debug)]
pub struct UnstableMeanSummary {
    /// Number of points.
    pub points: usize,
    /// Number of points with such a time.
    pub total_points: usize,
    /// The point with the largest relative change.
    pub worst: GridPoint,
    /// The metric there.
    pub metric: String,
    /// Its mean over all replications, in seconds.
    pub mean: f64,
    /// Their median, in seconds.
    pub median: MedianEstimate,
    /// The replication, and the mean without it.
    pub moved: InfluentialReplication,
}

impl UnstableMeanSummary {
    /// Finds the moved means in the rows of a run; `None` if there are none.
    pub fn from_results(plan: &StudyPlan, results: &SweepResults) -> Option<Self> {
        let first = plan.points.first()?;
        let level = first.scenario.run.replications.confidence.get();
        let shown = plan.figures.iter().flat_map(|f| f.y.0.iter().map(String::as_str));
        let watched = first.scenario.run.replications.metric.as_str();
        let times: Vec<&str> = shown.chain([watched]).filter(|m| is_time_metric(plan, m)).collect();
        let mut having: Vec<GridPoint> = Vec::new();
        let mut moving: Vec<GridPoint> = Vec::new();
        let mut worst: Option<Self> = None;
        for s in summarise_rows(&results.rows, level).iter().filter(|s| times.contains(&&*s.metric)) {
            if having.last() != Some(&s.point) {
                having.push(s.point.clone());
            }
            let Some(moved) = s.influential_replication() else { continue };
            if moving.last() != Some(&s.point) {
                moving.push(s.point.clone());
            }
            if worst.as_ref().is_none_or(|w| moved.share > w.moved.share) {
                worst = Some(Self {
                    points: 0,
                    total_points: 0,
                    worst: s.point.clone(),
                    metric: s.metric.to_string(),
                    mean: s.estimate.mean,
                    median: s.median_estimate(level),
                    moved,
                });
            }
        }
        worst.map(|worst| Self { points: moving.len(), total_points: having.len(), ..worst })
    }
}

impl fmt::Display for UnstableMeanSummary {
    /// Writes one sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = key::format_point(&self.worst);
        match (self.total_points, at.as_str()) {
            (_, "") => write!(f, "One replication moves the mean, so do not trust it: ")?,
            (of, at) => write!(
                f,
                "One replication moves the mean at {} of {of} points, so do not trust it there. At the worst point \
                 ({at}), ",
                self.points
            )?,
        }
        write!(
            f,
            "{} is {} s, but {} s without replication {}; the median is {}.",
            self.metric,
            format_three_digits(self.mean),
            format_three_digits(self.moved.mean_without),
            self.moved.replication,
            with_ends(&self.median)
        )
    }
}

/// Formats a median in seconds with its interval, if any: `2.1 s (1.8 to 2.6 s)`.
pub(super) fn with_ends(median: &MedianEstimate) -> String {
    let value = format_three_digits(median.median);
    match median.interval() {
        Some((low, high)) => {
            format!("{value} s ({} to {} s)", format_three_digits(low), format_three_digits(high))
        }
        None => format!("{value} s"),
    }
}

/// Formats a number with three digits.
fn format_three_digits(value: f64) -> String {
    format_number(format!("{value:.2e}").parse().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{PointResult, RunCostStats};
    use usher_observe::ResultRow;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    fn template_plan() -> StudyPlan {
        let study = Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap()
    }

    /// Results of the plan's points with these values of a metric, by replication.
    fn results_with_values(plan: &StudyPlan, metric: &str, values: &[&[f64]]) -> SweepResults {
        let points: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        let row = |point: &GridPoint, replication, value| ResultRow {
            study: "t".into(),
            point: point.clone(),
            replication,
            metric: metric.into(),
            value,
        };
        let rows = points.iter().zip(values);
        let rows = rows.flat_map(|(p, v)| (0..).zip(*v).map(move |(r, value)| row(p, r, *value)));
        SweepResults {
            rows: rows.collect(),
            points: points
                .iter()
                .map(|p| PointResult { point: p.clone(), replications: 6, complete: true, converged: true })
                .collect(),
            facts: RunCostStats::default(),
            failures: Vec::new(),
            resumed: 0,
            broken: None,
            complete: true,
        }
    }

    #[test]
    fn the_point_whose_mean_is_moved_most_is_named_with_its_median() {
        let plan = template_plan();
        let calm = [1.0, 1.1, 1.2, 1.0, 1.1, 1.2];
        let moved = [1.0, 1.1, 1.2, 1.0, 1.1, 4.2];
        let most = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
        assert_eq!(
            UnstableMeanSummary::from_results(
                &plan,
                &results_with_values(&plan, "delay.mean", &[&calm, &calm, &calm])
            ),
            None
        );
        let got = UnstableMeanSummary::from_results(
            &plan,
            &results_with_values(&plan, "delay.mean", &[&calm, &moved, &most]),
        )
        .unwrap();
        assert_eq!((got.points, got.total_points, got.moved.replication), (2, 3, 5));
        let worst = crate::sweep::plan::to_grid_point(&plan.points[2]);
        let text = format!(
            "One replication moves the mean at 2 of 3 points, so do not trust it there. At the worst point ({}), \
             delay.mean is 6 s, but 1.4 s without replication 5; the median is 1.5 s (1 to 29 s).",
            key::format_point(&worst)
        );
        assert_eq!(got.to_string(), text);
    }

    #[test]
    fn shares_and_counts_are_not_judged() {
        let plan = template_plan();
        let rare = [0.0, 0.0, 0.0, 0.0, 0.0, 0.3];
        assert_eq!(
            UnstableMeanSummary::from_results(&plan, &results_with_values(&plan, "failures", &[&rare])),
            None
        );
        let summaries = summarise_rows(&results_with_values(&plan, "failures", &[&rare]).rows, 0.95);
        assert!(summaries[0].influential_replication().is_some());
        assert!(robust_summaries(&plan, &summaries, 0.95).values().all(|t| t.moved.is_none()));
    }
}
