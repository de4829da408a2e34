//! Recommendations: for each combination of the other axes' values, which value of one axis does best.

use super::Results;
use std::collections::{BTreeMap, HashMap};
use usher_observe::row::number;
use usher_observe::stats::paired;
use usher_observe::{Estimate, Point};
use usher_report::{Cell, Column, Section, Table};
use usher_scenario::model::{Recommendation, StudyFile};
use usher_scenario::{Plan, metrics};

/// A metric's values by point, in the order of the replications.
type Values<'a> = HashMap<(&'a Point, &'a str), BTreeMap<u32, f64>>;

/// One line: where, what to use there, and how sure that is.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// The other axes' values.
    pub at: Point,
    /// The value of the axis that does best; `None` where none stays within the limit.
    pub best: Option<(String, Estimate)>,
    /// Those that may be as good: the paired difference's interval holds zero or stays within 5 %.
    pub as_good: Vec<String>,
    /// The worst that stays within the limit, and how many times the best's value it has.
    pub worst: Option<(String, f64)>,
    /// Those beyond the limit.
    pub excluded: Vec<String>,
}

/// Differences below this share of the best are of no use to anybody who has to choose.
const INDIFFERENT: f64 = 0.05;

/// What a recommendation says, in the plan's order of points.
pub fn advise(said: &Recommendation, plan: &Plan, results: &Results) -> Vec<Advice> {
    let level = plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
    let wanted =
        |metric: &str| metric == said.metric || said.limit.as_ref().is_some_and(|l| l.metric == metric);
    let mut values: Values<'_> = HashMap::new();
    for row in results.rows.iter().filter(|r| wanted(&r.metric)) {
        values.entry((&row.point, &row.metric)).or_default().insert(row.replication, row.value);
    }
    let of = |point: &Point, metric: &str| -> Vec<f64> {
        values.get(&(point, metric)).map(|v| v.values().copied().collect()).unwrap_or_default()
    };
    let mut places: Vec<(Point, Vec<(String, Point)>)> = Vec::new();
    for point in &plan.points {
        let whole = super::plan::point(point);
        let Some(choice) = whole.get(&said.choose).map(str::to_owned) else { continue };
        let at = whole.without(&said.choose);
        match places.iter_mut().find(|(p, _)| *p == at) {
            Some((_, choices)) => choices.push((choice, whole)),
            None => places.push((at, vec![(choice, whole)])),
        }
    }
    places
        .into_iter()
        .map(|(at, choices)| {
            let within = |point: &Point| {
                let Some(limit) = &said.limit else { return true };
                let e = Estimate::of(&of(point, &limit.metric), level);
                e.n == 0 || e.mean <= limit.most.get()
            };
            let (kept, out): (Vec<_>, Vec<_>) = choices.into_iter().partition(|(_, p)| within(p));
            let mut measured: Vec<(String, Vec<f64>)> = kept
                .into_iter()
                .map(|(name, p)| (name, of(&p, &said.metric)))
                .filter(|(_, v)| !v.is_empty())
                .collect();
            let mean = |v: &[f64]| Estimate::of(v, level).mean;
            measured.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
            let best = measured.first().map(|(name, v)| (name.clone(), Estimate::of(v, level)));
            let as_good = measured.iter().skip(1).filter(|(_, v)| {
                let first = &measured[0].1;
                let n = v.len().min(first.len());
                let difference = paired(&v[..n], &first[..n], level);
                difference.low() <= 0.0 || difference.mean <= INDIFFERENT * mean(first)
            });
            let as_good = as_good.map(|(name, _)| name.clone()).collect();
            let worst = (measured.len() > 1)
                .then(|| measured.last())
                .flatten()
                .map(|(name, v)| (name.clone(), mean(v) / mean(&measured[0].1)));
            Advice { at, best, as_good, worst, excluded: out.into_iter().map(|(name, _)| name).collect() }
        })
        .collect()
}

/// What a short recommendation says, a sentence a line.
pub(super) fn findings(said: &Recommendation, plan: &Plan, results: &Results) -> Vec<String> {
    /// More lines than this are a table's affair.
    const FEW: usize = 12;
    let advice = advise(said, plan, results);
    if advice.len() > FEW {
        return Vec::new();
    }
    let sentence = |a: Advice| {
        let (name, estimate) = a.best?;
        let at: Vec<String> = a.at.axes().map(|(axis, value)| format!("{axis} {value}")).collect();
        let at = if at.is_empty() { String::new() } else { format!("At {}: ", at.join(", ")) };
        let as_good =
            if a.as_good.is_empty() { String::new() } else { format!("; as good: {}", a.as_good.join(", ")) };
        Some(format!("{at}use {name} ({} {}{as_good}).", said.metric, number(estimate.mean)))
    };
    advice.into_iter().filter_map(sentence).collect()
}

/// A recommendation as a part of the report.
pub(super) fn section(said: &Recommendation, file: &StudyFile, plan: &Plan, results: &Results) -> Section {
    let metric = metrics::find(&said.metric, file);
    let (about, unit) = metric.map_or((said.metric.as_str(), ""), |m| (m.about, m.unit));
    let others: Vec<_> = plan.axes.iter().filter(|a| a.name != said.choose).collect();
    let mut columns: Vec<Column> = others.iter().map(|a| Column::new(a.label.as_str(), "")).collect();
    columns.extend([
        Column::new("Use", ""),
        Column::new(about, unit),
        Column::new("As good", ""),
        Column::new("Worst", ""),
        Column::new("times the best", ""),
    ]);
    if said.limit.is_some() {
        columns.push(Column::new("Not within the limit", ""));
    }
    let listed = |names: &[String]| match names {
        [] => Cell::Empty,
        names => Cell::from(names.join("; ")),
    };
    let rows = advise(said, plan, results).into_iter().map(|advice| {
        let settings = others.iter().map(|a| Cell::from(advice.at.get(&a.name).unwrap_or_default()));
        let (name, value) = match advice.best {
            Some((name, estimate)) => (Cell::from(name), Cell::from(estimate)),
            None => (Cell::Empty, Cell::Empty),
        };
        let (worst, times) = match advice.worst {
            // To two places: more would pretend.
            Some((name, times)) => (Cell::from(name), Cell::from(libm::round(times * 100.0) / 100.0)),
            None => (Cell::Empty, Cell::Empty),
        };
        let mut row: Vec<Cell> = settings.collect();
        row.extend([name, value, listed(&advice.as_good), worst, times]);
        if said.limit.is_some() {
            row.push(listed(&advice.excluded));
        }
        row
    });
    let limit = said.limit.as_ref().map_or(String::new(), |l| {
        format!(" What has {} above {} % is left out.", l.metric, l.most.get() * 100.0)
    });
    Section {
        title: said.title.clone(),
        text: format!(
            "{} The smallest {} is best;{} as good is what the paired difference cannot tell from it, or what is \
             within {} % of it.{limit}",
            said.caption,
            said.metric,
            if said.limit.is_some() { " within the limit," } else { "" },
            INDIFFERENT * 100.0
        )
        .trim()
        .to_owned(),
        figures: Vec::new(),
        tables: vec![Table { title: String::new(), columns, rows: rows.collect() }],
    }
}
