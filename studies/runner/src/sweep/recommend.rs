//! Recommendations: the best value of one axis for each combination of the other axes' values.

use super::SweepResults;
use super::finding::format_significant;
use super::report::matches_setting;
use std::collections::{BTreeMap, HashMap};
use usher_observe::stats::paired_difference;
use usher_observe::{GridPoint, MeanEstimate};
use usher_report::{ReportColumn, ReportSection, ReportTable, TableCell};
use usher_scenario::model::{ConfigValue, StudyFile, StudyRecommendation};
use usher_scenario::{PlannedAxis, StudyPlan, metrics, reference};

/// A metric's values by replication.
type ValuesByReplication = BTreeMap<u32, f64>;

/// One recommendation: the setting, the choice there, and its certainty.
#[derive(Clone, PartialEq, Debug)]
pub struct RecommendationEntry {
    /// The other axes' values.
    pub point: GridPoint,
    /// The best value of the axis; `None` if none stays within the limit.
    pub best: Option<(String, MeanEstimate)>,
    /// Values that may be equally good: the paired difference's interval contains zero or stays within 5 %.
    pub as_good: Vec<String>,
    /// The worst value within the limit, and its multiple of the best value's metric, which is not finite if that is
    /// zero.
    pub worst: Option<(String, f64)>,
    /// The values within the limit.
    pub within_limit: Vec<String>,
    /// The values beyond the limit.
    pub excluded: Vec<String>,
    /// If all are beyond the limit, the nearest one and its value of the limit's metric.
    pub nearest: Option<(String, MeanEstimate)>,
}

/// Differences below this share of the best do not matter to a choice.
const INDIFFERENT: f64 = 0.05;

/// Splits a point into its settings of the other axes and the text of the chosen axes.
fn split_off_chosen_axes(said: &StudyRecommendation, whole: &GridPoint) -> Option<(GridPoint, String)> {
    let choose = &said.choose.0;
    let names: Option<Vec<&str>> = choose.iter().map(|axis| whole.get(axis)).collect();
    let at = choose.iter().fold(whole.clone(), |point, axis| point.without_axis(axis));
    Some((at, names?.join(", ")))
}

/// Derives a recommendation's advice, in the plan's order of points.
pub fn derive_advice(
    said: &StudyRecommendation,
    plan: &StudyPlan,
    results: &SweepResults,
) -> Vec<RecommendationEntry> {
    let level = plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
    let wanted =
        |metric: &str| metric == said.metric || said.limit.as_ref().is_some_and(|l| l.metric == metric);
    let limit = said.limit.as_ref().zip(plan.points.first());
    let limit = limit.map(|(limit, first)| (limit, reference::limit_range(limit, &first.scenario)));
    let mut values: HashMap<(&GridPoint, &str), ValuesByReplication> = HashMap::new();
    for row in results.rows.iter().filter(|r| wanted(&r.metric)) {
        values.entry((&row.point, &row.metric)).or_default().insert(row.replication, row.value);
    }
    let of = |point: &GridPoint, metric: &str| values.get(&(point, metric)).cloned().unwrap_or_default();
    let estimate =
        |v: &ValuesByReplication| MeanEstimate::from_values(&v.values().copied().collect::<Vec<_>>(), level);
    let mut places: Vec<(GridPoint, Vec<(String, GridPoint)>)> = Vec::new();
    let compared = |point: &&usher_scenario::PlanPoint| {
        let text = |axis: &str| point.axis_setting(axis).map_or("", |s| s.text.as_str());
        said.filter.iter().all(|(axis, value)| matches_setting(value, text(axis)))
    };
    for point in plan.points.iter().filter(compared) {
        let whole = super::plan::to_grid_point(point);
        let Some((at, choice)) = split_off_chosen_axes(said, &whole) else { continue };
        match places.iter_mut().find(|(p, _)| *p == at) {
            Some((_, choices)) => choices.push((choice, whole)),
            None => places.push((at, vec![(choice, whole)])),
        }
    }
    places
        .into_iter()
        .map(|(at, choices)| {
            let within = |point: &GridPoint| {
                let Some((limit, (least, most))) = &limit else { return true };
                let e = estimate(&of(point, &limit.metric));
                e.n == 0
                    || (least.is_none_or(|least| e.mean >= least) && most.is_none_or(|most| e.mean <= most))
            };
            let beyond = |point: &GridPoint| {
                let (limit, (least, most)) = limit.as_ref()?;
                let e = estimate(&of(point, &limit.metric));
                let by = |bound: &Option<f64>, sign: f64| bound.map_or(f64::MIN, |b| sign * (b - e.mean));
                Some((by(least, 1.0).max(by(most, -1.0)), e))
            };
            let (kept, out): (Vec<_>, Vec<_>) = choices.into_iter().partition(|(_, p)| within(p));
            let nearest = out.iter().filter(|_| kept.is_empty());
            let nearest = nearest.filter_map(|(name, p)| beyond(p).map(|(by, e)| (by, name.clone(), e)));
            let nearest = nearest.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name, e)| (name, e));
            let names =
                |choices: &[(String, GridPoint)]| choices.iter().map(|(name, _)| name.clone()).collect();
            let (within_limit, excluded) = (names(&kept), names(&out));
            let mut measured: Vec<(String, ValuesByReplication)> = kept
                .into_iter()
                .map(|(name, p)| (name, of(&p, &said.metric)))
                .filter(|(_, v)| !v.is_empty())
                .collect();
            let mean = |v: &ValuesByReplication| estimate(v).mean;
            measured.sort_by(|a, b| mean(&a.1).total_cmp(&mean(&b.1)));
            let best = measured.first().map(|(name, v)| (name.clone(), estimate(v)));
            let as_good = measured.iter().skip(1).filter(|(_, v)| {
                let first = &measured[0].1;
                // Pair replications by index, because only those of the same index share their random streams.
                let pairs = first.iter().filter_map(|(r, a)| v.get(r).map(|b| (*a, *b)));
                let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
                let difference = paired_difference(&a, &b, level);
                difference.n == 0 || difference.low() <= 0.0 || difference.mean <= INDIFFERENT * mean(first)
            });
            let as_good = as_good.map(|(name, _)| name.clone()).collect();
            let worst = (measured.len() > 1)
                .then(|| measured.last())
                .flatten()
                .map(|(name, v)| (name.clone(), mean(v) / mean(&measured[0].1)));
            RecommendationEntry { point: at, best, as_good, worst, within_limit, excluded, nearest }
        })
        .collect()
}

/// Describes a short recommendation, one line for each setting.
pub(super) fn describe_advice(
    said: &StudyRecommendation,
    plan: &StudyPlan,
    results: &SweepResults,
) -> Vec<String> {
    /// More lines than this go to a table.
    const FEW: usize = 12;
    let advice = derive_advice(said, plan, results);
    if advice.len() > FEW {
        return Vec::new();
    }
    let decided = name_deciding_axes(said, plan, &advice);
    let sentence = |a: RecommendationEntry| {
        let at: Vec<String> = a.point.axes().map(|(axis, value)| format!("{axis} {value}")).collect();
        let at = if at.is_empty() { String::new() } else { format!("At {}: ", at.join("; ")) };
        let Some((name, estimate)) = a.best else {
            let (nearest, estimate) = a.nearest?;
            let metric = said.limit.as_ref().map_or("", |limit| &limit.metric);
            let others: Vec<&str> =
                a.excluded.iter().filter(|e| **e != nearest).map(String::as_str).collect();
            let others = match others[..] {
                [] => String::new(),
                _ => format!(" Farther from it: {}.", others.join("; ")),
            };
            let value = format_estimate(&estimate, metric, plan);
            return Some(format!(
                "{at}none is within the limit; nearest is {nearest} ({metric} {value}).{others}"
            ));
        };
        // Separate names by semicolons, because a name may contain commas.
        let listed = |what: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!(" {what}: {}.", names.join("; ")),
        };
        let as_good = listed("As good", &a.as_good);
        let excluded = listed("Not within the limit", &a.excluded);
        Some(format!(
            "{at}use {name} ({} {}).{as_good}{excluded}",
            said.metric,
            format_estimate(&estimate, &said.metric, plan)
        ))
    };
    advice.into_iter().filter_map(sentence).chain(decided).collect()
}

/// Names another axis whose value alone decides whether a choice stays within the limit, one sentence each. Without it
/// the limit would look like a fault of the choice.
fn name_deciding_axes(
    said: &StudyRecommendation,
    plan: &StudyPlan,
    advice: &[RecommendationEntry],
) -> Vec<String> {
    let named = |axis: &&PlannedAxis| axis.values.iter().any(|value| value.number.is_none());
    let others = plan.axes.iter().filter(|axis| !said.choose.0.contains(&axis.name)).filter(named);
    // Each entry has a sentence and the settings for which it holds.
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for axis in others {
        let mut rests: Vec<GridPoint> = Vec::new();
        for rest in advice.iter().map(|a| a.point.without_axis(&axis.name)) {
            if !rests.contains(&rest) {
                rests.push(rest);
            }
        }
        for rest in rests {
            let there = || advice.iter().filter(|a| a.point.without_axis(&axis.name) == rest);
            let with = |of: fn(&RecommendationEntry) -> &Vec<String>, name: &String| -> Vec<&str> {
                let at = there().filter(|a| of(a).contains(name));
                at.filter_map(|a| a.point.get(&axis.name)).collect()
            };
            let mut choices: Vec<&String> = Vec::new();
            for name in there().flat_map(|a| &a.excluded) {
                if !choices.contains(&name) {
                    choices.push(name);
                }
            }
            for name in choices {
                let (kept, out) = (with(|a| &a.within_limit, name), with(|a| &a.excluded, name));
                if kept.is_empty() {
                    continue;
                }
                let sentence = format!(
                    "{} decides for {name}: within the limit with {}, not with {}",
                    axis.label,
                    kept.join(" or "),
                    out.join(" or ")
                );
                let at: Vec<String> = rest.axes().map(|(axis, value)| format!("{axis} {value}")).collect();
                match all.iter_mut().find(|(known, _)| *known == sentence) {
                    Some((_, places)) => places.push(at.join("; ")),
                    None => all.push((sentence, vec![at.join("; ")])),
                }
            }
        }
    }
    let told = |(sentence, places): (String, Vec<String>)| match places.join(", ") {
        at if at.is_empty() => format!("{sentence}."),
        at => format!("{sentence} (at {at})."),
    };
    all.into_iter().map(told).collect()
}

/// Formats a metric's mean with its interval and unit: `1.67 ± 0.09 s`, `97.9 ± 0.4 %`.
fn format_estimate(estimate: &MeanEstimate, metric: &str, plan: &StudyPlan) -> String {
    let metric = plan.points.first().and_then(|first| metrics::find_metric(metric, &first.scenario));
    let (scale, unit) = match metric {
        Some(metric) if metric.share => (100.0, "%"),
        Some(metric) => (1.0, metric.unit),
        None => (1.0, ""),
    };
    format!("{} {unit}", format_significant(scale * estimate.mean, scale * estimate.half_width))
        .trim_end()
        .to_owned()
}

/// Describes a study's recommendations below their titles, a line each. Long recommendations appear only in the report.
pub fn describe_recommendations(file: &StudyFile, plan: &StudyPlan, results: &SweepResults) -> Vec<String> {
    let said = file.recommendations.iter().map(|said| (said, describe_advice(said, plan, results)));
    let said = said.filter(|(_, findings)| !findings.is_empty());
    said.flat_map(|(said, findings)| {
        std::iter::once(format!("{}:", said.title))
            .chain(findings.into_iter().map(|line| format!("  {line}")))
    })
    .collect()
}

/// Formats a limit as the study writes it.
fn format_limit(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Builds the report's section for a recommendation.
pub(super) fn build_recommendation_section(
    said: &StudyRecommendation,
    file: &StudyFile,
    plan: &StudyPlan,
    results: &SweepResults,
) -> ReportSection {
    let metric = metrics::find_metric(&said.metric, file);
    let (about, unit) = metric.map_or((said.metric.as_str(), ""), |m| (m.about, m.unit));
    let others: Vec<_> = plan.axes.iter().filter(|a| !said.choose.0.contains(&a.name)).collect();
    let mut columns: Vec<ReportColumn> =
        others.iter().map(|a| ReportColumn::new(a.label.as_str(), "")).collect();
    columns.extend([
        ReportColumn::new("Use", ""),
        ReportColumn::new(about, unit),
        ReportColumn::new("As good", ""),
        ReportColumn::new("Worst", ""),
        ReportColumn::new("times the best", ""),
    ]);
    if said.limit.is_some() {
        columns.push(ReportColumn::new("Not within the limit", ""));
        columns.push(ReportColumn::new("Nearest to it", ""));
    }
    let listed = |names: &[String]| match names {
        [] => TableCell::Empty,
        names => TableCell::from(names.join("; ")),
    };
    let rows = derive_advice(said, plan, results).into_iter().map(|advice| {
        let settings = others.iter().map(|a| TableCell::from(advice.point.get(&a.name).unwrap_or_default()));
        let (name, value) = match advice.best {
            Some((name, estimate)) => (TableCell::from(name), TableCell::from(estimate)),
            None => (TableCell::Empty, TableCell::Empty),
        };
        let (worst, times) = match advice.worst {
            // Two digits: more would claim false precision.
            Some((name, times)) if times.is_finite() => {
                (TableCell::from(name), TableCell::from(libm::round(times * 100.0) / 100.0))
            }
            // If the best value is zero, no multiple of it exists.
            Some((name, _)) => (TableCell::from(name), TableCell::Empty),
            None => (TableCell::Empty, TableCell::Empty),
        };
        let mut row: Vec<TableCell> = settings.collect();
        row.extend([name, value, listed(&advice.as_good), worst, times]);
        if said.limit.is_some() {
            row.push(listed(&advice.excluded));
            let nearest = advice.nearest.zip(said.limit.as_ref());
            row.push(nearest.map_or(TableCell::Empty, |((name, estimate), limit)| {
                TableCell::from(format!("{name} ({})", format_estimate(&estimate, &limit.metric, plan)))
            }));
        }
        row
    });
    let limit = said.limit.as_ref().map_or(String::new(), |limit| {
        let bound = |bound: &Option<ConfigValue>, word| {
            bound.as_ref().map(|value| format!("{word} {}", format_limit(value)))
        };
        let bounds: Vec<String> =
            bound(&limit.least, "below").into_iter().chain(bound(&limit.most, "above")).collect();
        format!(" Settings with {} {} are left out.", limit.metric, bounds.join(", or "))
    });
    ReportSection {
        title: said.title.clone(),
        text: format!(
            "{} The smallest {} is best.{} Settings are as good if their paired difference from it is not significant, \
             or if they are within {} % of it.{limit}",
            said.caption,
            said.metric,
            if said.limit.is_some() { " Only settings within the limit count." } else { "" },
            INDIFFERENT * 100.0
        )
        .trim()
        .to_owned(),
        figures: Vec::new(),
        tables: vec![ReportTable { title: String::new(), columns, rows: rows.collect(), folded: false }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::RunCostStats;
    use usher_observe::ResultRow;
    use usher_scenario::model::ConfigValue;
    use usher_scenario::{PlanOverrides, Study, StudyMode};

    /// The random part that all share by replication.
    const CHANCE: [f64; 5] = [1.0, 5.0, 2.0, 8.0, 3.0];

    fn make_rows(
        point: &GridPoint,
        metric: &str,
        values: impl IntoIterator<Item = (u32, f64)>,
    ) -> Vec<ResultRow> {
        let row = |(replication, value)| ResultRow {
            study: "s".into(),
            point: point.clone(),
            replication,
            metric: metric.into(),
            value,
        };
        values.into_iter().map(row).collect()
    }

    fn results_from_rows(rows: Vec<ResultRow>) -> SweepResults {
        SweepResults {
            rows,
            points: Vec::new(),
            facts: RunCostStats::default(),
            failures: Vec::new(),
            resumed: 0,
            broken: None,
            complete: true,
        }
    }

    #[test]
    fn advice_is_of_pairs_within_the_limit() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let said = &study.file().recommendations[0];
        let whole: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        let place = |p: &GridPoint| split_off_chosen_axes(said, p).unwrap().0;
        let first = place(&whole[0]);
        let choices: Vec<&GridPoint> = whole.iter().filter(|p| place(p) == first).collect();
        let name = |i: usize| split_off_chosen_axes(said, choices[i]).unwrap().1;
        let delays = |i: usize, times: f64, more: f64, from: usize| {
            let values = CHANCE.iter().enumerate().skip(from);
            make_rows(choices[i], &said.metric, values.map(|(r, v)| (r as u32, v * times + more)))
        };
        let failures = |i: usize, share: f64| make_rows(choices[i], "failures", [(0, share)]);
        let mut all = [
            // It lacks the first replication: pairing by position would pair the wrong replications.
            delays(0, 1.0, 0.2, 1),
            delays(1, 2.0, 0.0, 0),
            delays(2, 1.0, 0.0, 0),
            delays(3, 1.0, 0.1, 0),
            delays(4, 0.1, 0.0, 0),
            failures(2, 0.01),
            failures(4, 0.02),
        ]
        .concat();
        let second = whole.iter().map(place).find(|p| *p != first).unwrap();
        for point in whole.iter().filter(|p| place(p) == second) {
            all.extend(make_rows(point, "failures", [(0, 0.5)]));
            all.extend(make_rows(point, &said.metric, [(0, 1.0)]));
        }
        let advice = derive_advice(said, &plan, &results_from_rows(all));
        let of = |at: &GridPoint| advice.iter().find(|a| a.point == *at).unwrap();

        let here = of(&first);
        let (best, estimate) = here.best.clone().unwrap();
        assert_eq!((best, estimate.n), (name(2), 5), "what is at the limit is within it");
        assert!((estimate.mean - 3.8).abs() < 1e-9, "{estimate:?}");
        assert_eq!(here.as_good, [name(3)], "0.1 of 3.8 is within 5 %, 0.2 is not");
        assert_eq!(here.worst, Some((name(1), 2.0)));
        assert_eq!(here.excluded, [name(4)]);

        let none = of(&second);
        assert_eq!((&none.best, &none.worst, none.as_good.len()), (&None, &None, 0));
        assert_eq!((none.excluded.len(), none.within_limit.len()), (choices.len(), 0));
        assert!(none.nearest.as_ref().is_some_and(|(name, e)| *name == none.excluded[0] && e.mean == 0.5));
        assert_eq!((here.within_limit.len(), &here.nearest), (choices.len() - 1, &None));
    }

    #[test]
    fn what_is_held_elsewhere_is_not_compared() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let mut said = study.file().recommendations[0].clone();
        let whole: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        let radius = ["RADIUS, RFC 5080", "RADIUS, every 1 s"];
        let quick =
            |p: &GridPoint| if p.get("transport").is_some_and(|t| radius.contains(&t)) { 2.0 } else { 1.0 };
        let all: Vec<ResultRow> =
            whole.iter().flat_map(|p| make_rows(p, &said.metric, [(0, quick(p)), (1, quick(p))])).collect();
        let best = |said: &StudyRecommendation| {
            derive_advice(said, &plan, &results_from_rows(all.clone()))[0].clone()
        };
        assert_eq!(best(&said).best.unwrap().0, "Diameter/TCP");
        assert!(best(&said).worst.is_some_and(|(name, _)| radius.contains(&name.as_str())));
        said.filter = [(
            "transport".to_owned(),
            ConfigValue::Array(radius.map(|r| ConfigValue::Text(r.into())).to_vec()),
        )]
        .into_iter()
        .collect();
        let held = best(&said);
        assert_eq!(
            (held.best.unwrap().0.as_str(), held.as_good.as_slice()),
            (radius[0], &[radius[1].to_owned()][..])
        );
    }

    #[test]
    fn a_value_without_an_interval_has_digits_of_its_own() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let told =
            |mean, half_width| format_estimate(&MeanEstimate { mean, half_width, n: 5 }, "delay.mean", &plan);
        assert_eq!(told(0.000_003, 0.0), "0.00000300 s");
        assert_eq!(told(784_320.0, 0.0), "784320 s");
        assert_eq!(told(1.234, f64::INFINITY), "1.23 s");
        assert_eq!(told(1.674, 0.09), "1.674 ± 0.090 s");
    }

    #[test]
    fn names_with_commas_are_told_apart() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let mut said = study.file().recommendations[0].clone();
        let whole: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        let place = split_off_chosen_axes(&said, &whole[0]).unwrap().0;
        said.filter = place.axes().map(|(a, v)| (a.to_owned(), ConfigValue::Text(v.to_owned()))).collect();
        let here = whole.iter().filter(|p| split_off_chosen_axes(&said, p).unwrap().0 == place);
        let names: Vec<String> = here.clone().map(|p| split_off_chosen_axes(&said, p).unwrap().1).collect();
        assert!(names.len() > 2 && names.iter().any(|name| name.contains(", ")), "{names:?}");
        let all: Vec<ResultRow> =
            here.flat_map(|p| make_rows(p, &said.metric, [(0, 2.0), (1, 2.0)])).collect();
        let found = describe_advice(&said, &plan, &results_from_rows(all.clone()));
        let others = format!(" 2.00 s). As good: {}.", names[1..].join("; "));
        assert!(found.len() == 1 && found[0].ends_with(&others), "{found:?}");
        let fail = |row: &ResultRow| ResultRow { metric: "failures".into(), value: 0.5, ..row.clone() };
        let failed: Vec<ResultRow> = all.iter().map(fail).chain(all.clone()).collect();
        let found = describe_advice(&said, &plan, &results_from_rows(failed));
        let nearest = format!("none is within the limit; nearest is {} (failures 50.0 %).", names[0]);
        assert!(found[0].contains(&nearest), "{found:?}");
        assert!(found[0].ends_with(&format!(" Farther from it: {}.", names[1..].join("; "))), "{found:?}");
    }

    /// The template's advice, with shares within 5 s by protocol and Nagle's algorithm.
    fn derive_template_advice(within: impl Fn(&str, &str) -> f64) -> Vec<String> {
        let template = usher_scenario::TEMPLATES.iter().find(|template| template.kind == "eap").unwrap();
        let study = Study::parse("t", "t.toml", template.text).unwrap();
        let mut overrides = PlanOverrides::default();
        overrides.add_setting("loss=3 %").unwrap();
        let plan = study.build_plan(StudyMode::Default, &overrides).unwrap();
        let of = |point: &usher_scenario::PlanPoint| {
            let whole = crate::sweep::plan::to_grid_point(point);
            let share = within(whole.get("protocol").unwrap(), whole.get("nagle").unwrap());
            [make_rows(&whole, "within(5 s)", [(0, share)]), make_rows(&whole, "delay.p99", [(0, 1.0)])]
                .concat()
        };
        describe_advice(
            &study.file().recommendations[0],
            &plan,
            &results_from_rows(plan.points.iter().flat_map(of).collect()),
        )
    }

    #[test]
    fn a_second_setting_that_decides_is_named() {
        let found = derive_template_advice(|protocol, nagle| match (protocol, nagle) {
            ("Diameter/SCTP", "on") | ("RADIUS", _) => 0.8,
            _ => 1.0,
        });
        let decides = "Nagle's algorithm decides for Diameter/SCTP: within the limit with off, not with on (at loss 3 %).";
        assert_eq!((found.len(), found[2].as_str()), (3, decides), "{found:?}");
        // If the setting changes nothing, there is no sentence.
        assert_eq!(
            derive_template_advice(|protocol, _| if protocol == "RADIUS" { 0.8 } else { 1.0 }).len(),
            2
        );
    }

    #[test]
    fn the_choice_nearest_to_a_limit_that_none_keeps_is_named() {
        let share = |protocol: &str| if protocol == "RadSec" { 0.979 } else { 0.9 };
        let found = derive_template_advice(|protocol, _| share(protocol));
        let nearest =
            "none is within the limit; nearest is RadSec (within(5 s) 97.9 %). Farther from it: RADIUS; ";
        assert!(found.len() == 2 && found.iter().all(|line| line.contains(nearest)), "{found:?}");
    }

    #[test]
    fn nothing_is_so_many_times_a_best_of_zero() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let said = &study.file().recommendations[0];
        let whole: Vec<GridPoint> = plan.points.iter().map(crate::sweep::plan::to_grid_point).collect();
        for others in [0.0, 1.0] {
            let of = |(i, p): (usize, &GridPoint)| {
                let value = if i == 0 { 0.0 } else { others };
                make_rows(p, &said.metric, [(0, value), (1, value)])
            };
            let all: Vec<ResultRow> = whole.iter().enumerate().flat_map(of).collect();
            let section = build_recommendation_section(said, study.file(), &plan, &results_from_rows(all));
            let table = &section.tables[0];
            let times = table.columns.iter().position(|c| c.title == "times the best").unwrap();
            assert_eq!(table.rows[0][times], TableCell::Empty);
            assert_ne!(table.rows[0][times - 1], TableCell::Empty, "the worst has a name all the same");
        }
    }

    #[test]
    fn several_axes_may_be_chosen_on_together() {
        let study = Study::open("aaa-advice").unwrap();
        let plan = study.build_plan(StudyMode::Quick, &PlanOverrides::default()).unwrap();
        let mut said = study.file().recommendations[0].clone();
        said.choose.0.insert(0, "delay".to_owned());
        let whole = crate::sweep::plan::to_grid_point(&plan.points[0]);
        let (at, choice) = split_off_chosen_axes(&said, &whole).unwrap();
        assert_eq!(choice, "1 ms, RADIUS, RFC 5080");
        assert_eq!((at.get("delay"), at.get("transport")), (None, None));
        assert_eq!((at.get("loss"), at.get("rate")), (whole.get("loss"), whole.get("rate")));
        let places =
            |said: &StudyRecommendation| derive_advice(said, &plan, &results_from_rows(Vec::new())).len();
        assert_eq!(2 * places(&said), places(&study.file().recommendations[0]));
    }
}
