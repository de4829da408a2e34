//! Means that one replication moves: what a run's reader has to know before believing them.

use super::{Results, key};
use std::collections::HashMap;
use std::fmt;
use usher_observe::Point;
use usher_observe::row::number;
use usher_observe::stats::robust::{Median, Moved};
use usher_observe::summary::{Summary, summarise};
use usher_scenario::{Plan, metrics};

/// What stands beside a mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Tail {
    pub(super) median: Median,
    pub(super) moved: Option<Moved>,
}

/// By point and metric.
pub(super) type Tails = HashMap<(Point, String), Tail>;

/// What stands beside the means of these summaries.
pub(super) fn tails(plan: &Plan, summaries: &[Summary], level: f64) -> Tails {
    let tail =
        |s: &Summary| Tail { median: s.median(level), moved: s.moved().filter(|_| is_time(plan, &s.metric)) };
    summaries.iter().map(|s| ((s.point.clone(), s.metric.to_string()), tail(s))).collect()
}

/// Times alone have long tails: a share or a count that one replication moves is rare, which its interval says.
fn is_time(plan: &Plan, metric: &str) -> bool {
    let scenario = plan.points.first().map(|p| &p.scenario);
    scenario.and_then(|s| metrics::find(metric, s)).is_some_and(|m| m.unit == "s")
}

/// The points of a run at which one replication moves the mean of a time that its figures show, and the worst.
#[derive(Clone, PartialEq, Debug)]
pub struct Untrusted {
    /// How many points.
    pub points: usize,
    /// Of so many that have such a time.
    pub of: usize,
    /// The point where it moves by the largest share.
    pub worst: Point,
    /// The metric there.
    pub metric: String,
    /// Its mean over all replications, in seconds.
    pub mean: f64,
    /// Their median, in seconds.
    pub median: Median,
    /// The replication, and the mean without it.
    pub moved: Moved,
}

impl Untrusted {
    /// Looks the rows of a run through; `None` where no mean is moved.
    pub fn of(plan: &Plan, results: &Results) -> Option<Self> {
        let first = plan.points.first()?;
        let level = first.scenario.run.replications.confidence.get();
        let shown = plan.figures.iter().flat_map(|f| f.y.0.iter().map(String::as_str));
        let watched = first.scenario.run.replications.metric.as_str();
        let times: Vec<&str> = shown.chain([watched]).filter(|m| is_time(plan, m)).collect();
        let mut having: Vec<Point> = Vec::new();
        let mut moving: Vec<Point> = Vec::new();
        let mut worst: Option<Self> = None;
        for s in summarise(&results.rows, level).iter().filter(|s| times.contains(&&*s.metric)) {
            if having.last() != Some(&s.point) {
                having.push(s.point.clone());
            }
            let Some(moved) = s.moved() else { continue };
            if moving.last() != Some(&s.point) {
                moving.push(s.point.clone());
            }
            if worst.as_ref().is_none_or(|w| moved.share > w.moved.share) {
                worst = Some(Self {
                    points: 0,
                    of: 0,
                    worst: s.point.clone(),
                    metric: s.metric.to_string(),
                    mean: s.estimate.mean,
                    median: s.median(level),
                    moved,
                });
            }
        }
        worst.map(|worst| Self { points: moving.len(), of: having.len(), ..worst })
    }
}

impl fmt::Display for Untrusted {
    /// One whole sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = key::of(&self.worst);
        match (self.of, at.as_str()) {
            (_, "") => write!(f, "One replication moves the mean, which is not to be trusted: ")?,
            (of, at) => write!(
                f,
                "One replication moves the mean at {} of {of} points, where it is not to be trusted: at the worst ({at}) ",
                self.points
            )?,
        }
        write!(
            f,
            "{} is {} s, and {} s without replication {}; the median is {}.",
            self.metric,
            digits(self.mean),
            digits(self.moved.without),
            self.moved.replication,
            with_ends(&self.median)
        )
    }
}

/// A median in seconds with its interval, where it has one: `2.1 s (1.8 to 2.6 s)`.
pub(super) fn with_ends(median: &Median) -> String {
    let value = digits(median.median);
    match median.interval() {
        Some((low, high)) => format!("{value} s ({} to {} s)", digits(low), digits(high)),
        None => format!("{value} s"),
    }
}

/// A number to three digits.
fn digits(value: f64) -> String {
    number(format!("{value:.2e}").parse().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Facts, PointResult};
    use usher_observe::Row;
    use usher_scenario::{Mode, Overrides, Study};

    fn plan() -> Plan {
        let study = Study::parse("t", "t.toml", usher_scenario::template()).unwrap();
        study.plan(Mode::Quick, &Overrides::default()).unwrap()
    }

    /// Results of the plan's points with these values of a metric, by replication.
    fn results(plan: &Plan, metric: &str, values: &[&[f64]]) -> Results {
        let points: Vec<Point> = plan.points.iter().map(crate::sweep::plan::point).collect();
        let row = |point: &Point, replication, value| Row {
            study: "t".into(),
            point: point.clone(),
            replication,
            metric: metric.into(),
            value,
        };
        let rows = points.iter().zip(values);
        let rows = rows.flat_map(|(p, v)| (0..).zip(*v).map(move |(r, value)| row(p, r, *value)));
        Results {
            rows: rows.collect(),
            points: points
                .iter()
                .map(|p| PointResult { point: p.clone(), replications: 6, complete: true, converged: true })
                .collect(),
            facts: Facts::default(),
            failures: Vec::new(),
            resumed: 0,
            broken: None,
            complete: true,
        }
    }

    #[test]
    fn the_point_whose_mean_is_moved_most_is_named_with_its_median() {
        let plan = plan();
        let calm = [1.0, 1.1, 1.2, 1.0, 1.1, 1.2];
        let moved = [1.0, 1.1, 1.2, 1.0, 1.1, 4.2];
        let most = [1.0, 1.0, 2.0, 1.0, 2.0, 29.0];
        assert_eq!(Untrusted::of(&plan, &results(&plan, "delay.mean", &[&calm, &calm, &calm])), None);
        let got = Untrusted::of(&plan, &results(&plan, "delay.mean", &[&calm, &moved, &most])).unwrap();
        assert_eq!((got.points, got.of, got.moved.replication), (2, 3, 5));
        let worst = crate::sweep::plan::point(&plan.points[2]);
        let text = format!(
            "One replication moves the mean at 2 of 3 points, where it is not to be trusted: at the worst ({}) delay.mean \
             is 6 s, and 1.4 s without replication 5; the median is 1.5 s (1 to 29 s).",
            key::of(&worst)
        );
        assert_eq!(got.to_string(), text);
    }

    #[test]
    fn shares_and_counts_are_not_judged() {
        let plan = plan();
        let rare = [0.0, 0.0, 0.0, 0.0, 0.0, 0.3];
        assert_eq!(Untrusted::of(&plan, &results(&plan, "failures", &[&rare])), None);
        let summaries = summarise(&results(&plan, "failures", &[&rare]).rows, 0.95);
        assert!(summaries[0].moved().is_some());
        assert!(tails(&plan, &summaries, 0.95).values().all(|t| t.moved.is_none()));
    }
}
