//! Comparison of two runs, point by point and metric by metric.

use crate::manifest::RunManifest;
use crate::row::{GridPoint, ResultRow};
use crate::stats::{self, MeanEstimate, SampleMoments};
use crate::summary::{MetricSummary, summarise_rows};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// One metric of one point in both runs.
#[derive(Clone, PartialEq, Debug)]
pub struct MetricComparison {
    /// The study's name in run `b`.
    pub study: Arc<str>,
    /// The grid point.
    pub point: GridPoint,
    /// The metric's name.
    pub metric: Arc<str>,
    /// The mean in run `a`.
    pub a: MeanEstimate,
    /// The mean in run `b`.
    pub b: MeanEstimate,
    /// The difference `b - a`.
    pub difference: MeanEstimate,
    /// True if the difference pairs replications with the same seeds.
    pub paired: bool,
    /// True if the difference's interval excludes zero. Comparisons are independent: at a level of 0.95, five of a
    /// hundred equal ones look different.
    pub significant: bool,
}

/// The common and the exclusive metrics of two runs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunComparison {
    /// Metrics of both runs, in the order of run `a`.
    pub both: Vec<MetricComparison>,
    /// (point, metric) of run `a` alone.
    pub only_a: Vec<(GridPoint, Arc<str>)>,
    /// (point, metric) of run `b` alone.
    pub only_b: Vec<(GridPoint, Arc<str>)>,
}

/// Compares the rows of two runs, with intervals at this level (0.95).
///
/// If `same_seed` is true, replication i of both runs drew the same random streams. The common replications are then
/// paired (at least two), which reveals smaller differences. Otherwise the interval is Welch's. If each run has a
/// single study, the studies are compared even if their names differ.
pub fn compare_rows(a: &[ResultRow], b: &[ResultRow], same_seed: bool, level: f64) -> RunComparison {
    let studies: HashSet<&str> = a.iter().map(|r| &*r.study).collect();
    let other: HashSet<&str> = b.iter().map(|r| &*r.study).collect();
    let by_name = studies.len() > 1 || other.len() > 1;
    let (a, b) = (summarise_rows(a, level), summarise_rows(b, level));
    let key = |s: &MetricSummary| (by_name.then(|| s.study.clone()), s.point.clone(), s.metric.clone());
    let in_b: HashMap<_, &MetricSummary> = b.iter().map(|s| (key(s), s)).collect();
    let in_a: HashSet<_> = a.iter().map(key).collect();

    let mut out = RunComparison::default();
    for a in &a {
        match in_b.get(&key(a)) {
            Some(b) => out.both.push(compare_metric(a, b, same_seed, level)),
            None => out.only_a.push((a.point.clone(), a.metric.clone())),
        }
    }
    let missing = b.iter().filter(|s| !in_a.contains(&key(s)));
    out.only_b = missing.map(|s| (s.point.clone(), s.metric.clone())).collect();
    out
}

/// Returns the reasons why two runs may not be comparable, a sentence each: differences beyond the settings that a
/// study varies.
pub fn comparability_doubts(a: &RunManifest, b: &RunManifest) -> Vec<String> {
    let mut doubts = Vec::new();
    let mut differ = |what: &str, a: &str, b: &str, so: &str| {
        if a != b {
            doubts.push(format!("{what}: \"{a}\" in A, \"{b}\" in B{so}"));
        }
    };
    differ("the study", &a.study, &b.study, ": its points may mean something else");
    differ("the mode", &a.mode, &b.mode, ": the runs differ in length");
    differ("Usher's version", &a.usher_version, &b.usher_version, ": differences may come from it");
    let [x, y] = [a, b].map(|of| of.seed.to_string());
    differ("the seed", &x, &y, ": replications are not paired");
    let names: BTreeSet<&String> = a.parameters.keys().chain(b.parameters.keys()).collect();
    for name in names {
        let [x, y] = [a, b].map(|of| of.parameters.get(name).map_or("the study's value", String::as_str));
        differ(name, x, y, "");
    }
    for (name, of) in [("A", a), ("B", b)] {
        if !of.complete {
            doubts.push(format!("{name} is not complete: points have fewer replications than they should"));
        }
    }
    doubts
}

fn compare_metric(a: &MetricSummary, b: &MetricSummary, same_seed: bool, level: f64) -> MetricComparison {
    let in_b: HashMap<u32, f64> = b.values.iter().copied().collect();
    let pairs = a.values.iter().filter_map(|(i, va)| in_b.get(i).map(|vb| (*va, *vb)));
    let (left, right): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let paired = same_seed && left.len() >= 2;
    let difference = if paired {
        stats::paired_difference(&left, &right, level)
    } else {
        let moments = |s: &MetricSummary| SampleMoments::from_values(s.values.iter().map(|(_, v)| *v));
        stats::welch_difference(&moments(a), &moments(b), level)
    };
    MetricComparison {
        study: b.study.clone(),
        point: a.point.clone(),
        metric: a.metric.clone(),
        a: a.estimate,
        b: b.estimate,
        difference,
        paired,
        significant: !difference.contains(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::RunHostInfo;
    use std::collections::BTreeMap;

    fn delay_rows(study: &str, loss: &str, values: &[f64]) -> Vec<ResultRow> {
        let point = GridPoint::new([("loss", loss)]);
        let row = |(i, value): (usize, &f64)| ResultRow {
            study: study.into(),
            point: point.clone(),
            replication: i as u32,
            metric: "delay".into(),
            value: *value,
        };
        values.iter().enumerate().map(row).collect()
    }

    #[test]
    fn pairing_finds_what_independence_does_not() {
        let (a, b) =
            (delay_rows("s", "0.1", &[1.0, 5.0, 9.0, 13.0]), delay_rows("s", "0.1", &[1.4, 5.6, 9.5, 13.5]));
        let paired = &compare_rows(&a, &b, true, 0.95).both[0];
        assert!(paired.paired && paired.significant);
        let apart = &compare_rows(&a, &b, false, 0.95).both[0];
        assert!(!apart.paired && !apart.significant);
        assert!((apart.difference.mean - 0.5).abs() < 1e-12);
    }

    #[test]
    fn what_makes_runs_hard_to_compare_is_said() {
        let manifest = RunManifest {
            usher_version: "0.1.0".into(),
            study: "s".into(),
            seed: 1,
            mode: "quick".into(),
            parameters: [("loss".to_owned(), "0 %; 5 %".to_owned())].into(),
            plan_hash: "abc".into(),
            host: RunHostInfo::detect(),
            started: String::new(),
            elapsed_s: 0.0,
            points: 2,
            replications: 2,
            complete: true,
            facts: BTreeMap::new(),
        };
        // Another plan hash, machine or time is no reason for doubt.
        let again = RunManifest { plan_hash: "def".into(), elapsed_s: 9.0, ..manifest.clone() };
        assert_eq!(comparability_doubts(&manifest, &again), Vec::<String>::new());
        let other = RunManifest {
            seed: 2,
            mode: "full".into(),
            parameters: [("loss".into(), "0 %; 5 %".into()), ("links.core.delay".into(), "9 ms".into())]
                .into(),
            complete: false,
            ..manifest.clone()
        };
        assert_eq!(
            comparability_doubts(&manifest, &other),
            [
                "the mode: \"quick\" in A, \"full\" in B: the runs differ in length",
                "the seed: \"1\" in A, \"2\" in B: replications are not paired",
                "links.core.delay: \"the study's value\" in A, \"9 ms\" in B",
                "B is not complete: points have fewer replications than they should",
            ]
        );
        let study = RunManifest { study: "t".into(), usher_version: "0.2.0".into(), ..manifest.clone() };
        assert_eq!(comparability_doubts(&manifest, &study).len(), 2);
    }

    #[test]
    fn a_run_equals_itself() {
        let a = delay_rows("s", "0.1", &[1.0, 5.0, 9.0]);
        let same = &compare_rows(&a, &a, true, 0.95).both[0];
        assert_eq!((same.difference.mean, same.difference.half_width, same.significant), (0.0, 0.0, false));
    }

    #[test]
    fn what_one_run_lacks_is_listed() {
        let mut a = delay_rows("s", "0.1", &[1.0, 2.0]);
        a.extend(delay_rows("s", "0.2", &[1.0, 2.0]));
        let b = [delay_rows("t", "0.1", &[1.0, 2.0]), delay_rows("t", "0.3", &[1.0])].concat();
        let got = compare_rows(&a, &b, true, 0.95);
        assert_eq!(got.both.len(), 1);
        assert_eq!(got.only_a, [(GridPoint::new([("loss", "0.2")]), "delay".into())]);
        assert_eq!(got.only_b, [(GridPoint::new([("loss", "0.3")]), "delay".into())]);
    }

    #[test]
    fn one_replication_decides_nothing() {
        let got = compare_rows(&delay_rows("s", "0", &[1.0]), &delay_rows("s", "0", &[9.0]), true, 0.95);
        assert!(!got.both[0].significant && got.both[0].difference.half_width.is_infinite());
    }
}
