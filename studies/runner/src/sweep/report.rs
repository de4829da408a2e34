//! Builds a sweep's report from its rows: the study's figures, a table of all points, and notes.

use super::moved_means::{RobustSummaries, robust_summaries, with_ends};
use super::samples::{self, DialogueSamples};
use super::{DialogueFailureSummary, SweepResults, UnstableMeanSummary, finding, line, recommend};
use std::collections::HashMap;
use usher_observe::manifest::RunManifest;
use usher_observe::row::format_number;
use usher_observe::summary::summarise_rows;
use usher_observe::{GridPoint, MeanEstimate};
use usher_report::{
    FigureAxis, FigurePanel, FigureSeries, HtmlReport, ReportColumn, ReportFigure, ReportSection,
    ReportTable, RerunCommand, SeriesKind, TableCell,
};
use usher_scenario::model::{self, ConfigValue, StudyFile, SweepPointStatistic};
use usher_scenario::units::Quantity;
use usher_scenario::{StudyPlan, metrics, reference};

/// Estimates by point and metric.
pub(super) type MetricEstimatesByPoint = HashMap<(GridPoint, String), MeanEstimate>;

/// Values of replications by point and metric.
type ReplicationValuesByPoint = HashMap<(GridPoint, String), Vec<f64>>;

/// The report's first sentence if its rows are complete but the runs for the rest of it were interrupted.
pub const CUT_SHORT: &str =
    "These results are partial: the rows are complete, but the figures of single dialogues are not.";

/// Builds the report of a run from its rows and its dialogue samples. `rerun` returns the command line that runs one
/// point again.
pub fn build_report(
    file: &StudyFile,
    plan: &StudyPlan,
    results: &SweepResults,
    samples: &DialogueSamples,
    manifest: RunManifest,
    rerun: impl Fn(&GridPoint) -> String,
) -> HtmlReport {
    let level = plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
    let summaries = summarise_rows(&results.rows, level);
    let tails = robust_summaries(plan, &summaries, level);
    let values: ReplicationValuesByPoint = summaries
        .iter()
        .map(|s| ((s.point.clone(), s.metric.to_string()), s.values.iter().map(|(_, v)| *v).collect()))
        .collect();
    let estimates: MetricEstimatesByPoint =
        summaries.into_iter().map(|s| ((s.point, s.metric.as_ref().to_owned()), s.estimate)).collect();
    let drawn: Vec<(&model::StudyFigure, ReportFigure)> = plan
        .figures
        .iter()
        .filter(|f| is_of(f, plan))
        .map(|f| match f.kind {
            model::FigureKind::Curve => (f, draw_figure(f, file, plan, &estimates, &tails)),
            model::FigureKind::Box => (
                f,
                draw_box_figure(f, draw_figure(f, file, plan, &estimates, &tails), plan, &values, &estimates),
            ),
            model::FigureKind::Cdf | model::FigureKind::Time => (f, of_dialogues(f, file, plan, samples)),
        })
        .filter(|(_, figure)| !figure.series.is_empty())
        .collect();
    // Advice comes first, so that a long list cannot hide it.
    let mut findings: Vec<String> =
        file.recommendations.iter().flat_map(|r| recommend::describe_advice(r, plan, results)).collect();
    findings.extend(finding::collect_findings(&drawn, file, plan, &estimates));
    let mut sections: Vec<ReportSection> = drawn
        .into_iter()
        .map(|(said, figure)| ReportSection {
            title: String::new(),
            text: compose_figure_text(said, &figure),
            figures: vec![figure],
            tables: Vec::new(),
        })
        .collect();
    sections.extend(
        file.recommendations.iter().map(|r| recommend::build_recommendation_section(r, file, plan, results)),
    );
    sections.push(ReportSection {
        title: "All points".to_owned(),
        text: format!(
            "Means with their {} % confidence intervals; in parentheses, the number of replications. Where one \
             replication moves a mean, use the median below it, with the interval of its order statistics.",
            format_number(level * 100.0)
        ),
        figures: Vec::new(),
        tables: vec![build_points_table(file, plan, &estimates, &tails)],
    });
    HtmlReport {
        title: file.title.clone(),
        question: file.question.clone(),
        findings,
        description: file.description.clone(),
        partial: describe_partial_run(results, samples),
        summary: None,
        warnings: plan
            .warnings
            .iter()
            .map(|warning| warning.message.clone())
            .chain(DialogueFailureSummary::from_results(plan, results).iter().map(ToString::to_string))
            .chain(UnstableMeanSummary::from_results(plan, results).iter().map(ToString::to_string))
            .collect(),
        sections,
        ladders: Vec::new(),
        notes: collect_notes(results),
        reruns: results
            .points
            .iter()
            .map(|p| RerunCommand { point: super::key::format_point(&p.point), command: rerun(&p.point) })
            .collect(),
        manifest: Some(manifest),
        live: None,
    }
}

fn describe_partial_run(results: &SweepResults, samples: &DialogueSamples) -> Option<String> {
    let complete = results.points.iter().filter(|p| p.complete).count();
    let points = (!results.complete).then(|| {
        format!("These results are partial: {complete} of {} points are complete.", results.points.len())
    });
    points.or_else(|| samples.was_sampling_interrupted().then(|| CUT_SHORT.to_owned()))
}

fn collect_notes(results: &SweepResults) -> Vec<String> {
    let mut notes: Vec<String> = results
        .failures
        .iter()
        .map(|f| {
            format!(
                "Could not run {} (replication {}): {}",
                super::key::format_point(&f.point),
                f.replication,
                f.error
            )
        })
        .collect();
    let wide: Vec<_> = results.points.iter().filter(|p| p.complete && !p.converged).collect();
    if let Some(first) = wide.first() {
        notes.push(format!(
            "{} of {} points reached their limit of replications before the requested precision (for example {}): \
             check their intervals.",
            wide.len(),
            results.points.len(),
            super::key::format_point(&first.point)
        ));
    }
    notes
}

/// True if a point's setting is one of the values of a `where` on its axis.
pub(super) fn matches_setting(value: &ConfigValue, text: &str) -> bool {
    let same = |written: &str| {
        let base = |t: &str| Quantity::parse(t).map(|q| (q.dimension, q.in_base_unit()));
        written == text || base(written).is_some_and(|b| base(text) == Some(b))
    };
    match value {
        ConfigValue::Array(values) => values.iter().any(|v| matches_setting(v, text)),
        other => same(other.to_string().trim()),
    }
}

/// True if the plan has a point of the figure: quick modes omit some axes' values.
pub(super) fn is_of(said: &model::StudyFigure, plan: &StudyPlan) -> bool {
    plan.points.iter().any(|point| is_at(said, point))
}

/// True if the figure shows this point.
pub(super) fn is_at(said: &model::StudyFigure, point: &usher_scenario::PlanPoint) -> bool {
    let text = |axis: &str| point.axis_setting(axis).map_or("", |s| s.text.as_str());
    said.filter.iter().all(|(axis, value)| matches_setting(value, text(axis)))
}

/// Draws a figure whose points are boxes of their replications.
fn draw_box_figure(
    said: &model::StudyFigure,
    drawn: ReportFigure,
    plan: &StudyPlan,
    values: &ReplicationValuesByPoint,
    estimates: &MetricEstimatesByPoint,
) -> ReportFigure {
    let mut drawn = ReportFigure {
        series: drawn.series.into_iter().map(|s| FigureSeries { kind: SeriesKind::Box, ..s }).collect(),
        ..drawn
    };
    for (metric, point) in said.y.0.iter().flat_map(|y| plan.points.iter().map(move |p| (y, p))) {
        let Some((name, x)) = locate_figure_value(said, plan, estimates, point, metric) else { continue };
        let series = drawn.series.iter_mut().find(|s| s.name == name);
        let at = series.and_then(|s| s.points.iter_mut().find(|p| p.x == x));
        if let (Some(at), Some(values)) =
            (at, values.get(&(super::plan::to_grid_point(point), metric.clone())))
        {
            *at = usher_report::SeriesPoint::from_box_values(x, values);
        }
    }
    drawn
}

/// Draws a figure of single dialogues.
fn of_dialogues(
    said: &model::StudyFigure,
    file: &StudyFile,
    plan: &StudyPlan,
    samples: &DialogueSamples,
) -> ReportFigure {
    let (series, parts): (Vec<FigureSeries>, Vec<Vec<String>>) =
        samples::draw_curves(said, plan, samples).into_iter().unzip();
    let panels = divide_into_panels(&series, &parts);
    let log = |axis: FigureAxis, on: bool| if on { axis.with_log_scale() } else { axis };
    let [x, y] = samples::dialogue_axes(said, file);
    ReportFigure {
        name: said.name.clone(),
        title: said.title.clone(),
        x: log(x, said.log_x),
        y: log(y, said.log_y),
        series,
        panels,
    }
}

/// Composes a figure's text: its caption, a note where one replication moves a mean, and its points.
fn compose_figure_text(said: &model::StudyFigure, figure: &ReportFigure) -> String {
    let mut text = vec![said.caption.clone(), samples::dialogue_figure_text(said).to_owned()];
    let points = || figure.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
    let moved: Vec<_> = points().filter(|(_, p)| p.moved.is_some()).collect();
    if !moved.is_empty() {
        let of = points().filter(|(s, _)| s.kind == SeriesKind::Measured).count();
        let named = moved.iter().take(MAX_NAMED_POINTS).map(|(s, p)| {
            let at = match figure.x.categories.get(p.x as usize) {
                Some(name) => name.clone(),
                None => {
                    // If points are averaged along an axis, x is a mean and is rounded.
                    let x = if said.along.is_some() {
                        finding::format_significant(p.x, f64::NAN)
                    } else {
                        format_number(p.x)
                    };
                    format!("{x} {}", figure.x.unit).trim_end().to_owned()
                }
            };
            let median = p.median.as_ref().map_or_else(String::new, |m| format!(": median {}", with_ends(m)));
            format!("{} at {at}{median}", s.name)
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more = if moved.len() > MAX_NAMED_POINTS {
            format!("; and {} more", moved.len() - MAX_NAMED_POINTS)
        } else {
            String::new()
        };
        text.push(format!(
            "One replication moves the mean at {} of {of} points, which have hollow markers. Do not trust their means \
             but their medians: {named}{more}.",
            moved.len()
        ));
    }
    text.extend(
        said.reference.iter().filter(|r| !r.source.is_empty()).map(|r| format!("{}: {}", r.name, r.source)),
    );
    text.retain(|paragraph| !paragraph.is_empty());
    text.join("\n\n")
}

/// Maximum number of points that a figure's text names.
const MAX_NAMED_POINTS: usize = 8;

pub(super) fn draw_figure(
    said: &model::StudyFigure,
    file: &StudyFile,
    plan: &StudyPlan,
    estimates: &MetricEstimatesByPoint,
    tails: &RobustSummaries,
) -> ReportFigure {
    let axis = plan.axes.iter().find(|a| a.name == said.x);
    let values = axis_settings(said, axis);
    let label = axis.map_or(said.x.as_str(), |a| a.label.as_str());
    let numeric = values.iter().all(|v| v.number.is_some());
    let x = if let Some(metric) = metrics::find_metric(&said.x, file).filter(|_| said.along.is_some()) {
        FigureAxis::new(metric.about, metric.unit)
    } else if numeric {
        FigureAxis::new(label, axis.and_then(|a| a.unit.as_deref()).unwrap_or_default())
    } else {
        FigureAxis::with_categories(label, values.iter().map(|v| v.text.as_str()))
    };
    let first = said.y.0.first().map_or("", String::as_str);
    let y = metrics::find_metric(first, file);
    let about = match (y, said.y.0.len()) {
        (Some(metric), 1) => metric.axis_title(first),
        // Several metrics have no common name, so list the name of each.
        _ => said.y.0.join(", "),
    };
    let medians = said.statistic == SweepPointStatistic::Median;
    let title = said.y_title.clone().unwrap_or(about);
    let title = if medians { format!("{title}, median of the replications") } else { title };
    let shares = said.y.0.iter().all(|y| metrics::find_metric(y, file).is_some_and(|m| m.share));
    let y = FigureAxis::new(title, y.map_or("", |m| m.unit)).with_shares(shares);
    let log = |axis: FigureAxis, on: bool| if on { axis.with_log_scale() } else { axis };

    let mut series: Vec<FigureSeries> = Vec::new();
    let mut parts: Vec<Vec<String>> = Vec::new();
    for (metric, point) in said.y.0.iter().flat_map(|y| plan.points.iter().map(move |p| (y, p))) {
        let text = |axis: &str| point.axis_setting(axis).map_or("", |s| s.text.as_str());
        let Some((name, x)) = locate_figure_value(said, plan, estimates, point, metric) else { continue };
        let at = (super::plan::to_grid_point(point), metric.clone());
        let Some(estimate) = estimates.get(&at) else { continue };
        if let Some(exact) =
            said.analytic.and_then(|form| usher_theory::closed_form_value(form, &point.scenario))
        {
            let name = format!("{name} (closed form)");
            let drawn = usher_report::SeriesPoint::from_exact(x, exact);
            match series.iter_mut().find(|s| s.name == name) {
                Some(known) => known.points.push(drawn),
                None => {
                    parts.push(curve_name_parts(said, point, metric, " (closed form)"));
                    series.push(FigureSeries {
                        name,
                        kind: SeriesKind::Analytic,
                        points: vec![drawn],
                        names: Vec::new(),
                    })
                }
            }
        }
        let mut drawn = match tails.get(&at) {
            Some(tail) if medians => usher_report::SeriesPoint::from_median(x, &tail.median),
            Some(tail) => usher_report::SeriesPoint {
                median: Some(tail.median),
                moved: tail.moved,
                ..usher_report::SeriesPoint::from_estimate(x, estimate)
            },
            None => usher_report::SeriesPoint::from_estimate(x, estimate),
        };
        drawn = drawn.clamp_interval(metrics::find_metric(metric, file).is_some_and(|m| m.share));
        let called = said.along.as_deref().map(|axis| text(axis).to_owned());
        match series.iter_mut().find(|s| s.name == name) {
            Some(known) => {
                known.points.push(drawn);
                known.names.extend(called);
            }
            None => {
                parts.push(curve_name_parts(said, point, metric, ""));
                let names = called.into_iter().collect();
                let kind = if medians { SeriesKind::Median } else { SeriesKind::Measured };
                series.push(FigureSeries { name, kind, points: vec![drawn], names });
            }
        }
    }
    if said.along.is_none() {
        for s in &mut series {
            s.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
    }
    let panels = if said.fit.is_none() && said.reference.is_empty() {
        divide_into_panels(&series, &parts)
    } else {
        Vec::new()
    };
    if said.fit.is_some() {
        let lines: Vec<FigureSeries> = series.iter().filter_map(|s| line::fit_line(s, [&x, &y])).collect();
        series.extend(lines);
    }
    series.extend(said.reference.iter().map(|known| reference_series(said, known, file, axis)));
    series.retain(|s| !s.points.is_empty());
    ReportFigure {
        name: said.name.clone(),
        title: said.title.clone(),
        x: log(x, said.log_x),
        y: log(y, said.log_y),
        series,
        panels,
    }
}

/// More curves than this are divided into panels, if an axis can divide them. It is also a panel's maximum.
const TOGETHER: usize = 6;

/// Returns the parts of a curve's name: the value of each series axis, and the metric if there are several. The last
/// part distinguishes a closed form from the measurements beside it.
pub(super) fn curve_name_parts(
    said: &model::StudyFigure,
    point: &usher_scenario::PlanPoint,
    metric: &str,
    form: &str,
) -> Vec<String> {
    let text = |axis: &String| point.axis_setting(axis).map_or("", |s| s.text.as_str()).to_owned();
    let mut parts: Vec<String> = said.series.iter().map(text).collect();
    if said.y.0.len() > 1 {
        parts.push(metric.to_owned());
    }
    parts.push(form.to_owned());
    parts
}

/// Divides many curves into panels. Each panel compares one axis, with one colour for each value in all panels. Each
/// combination of the other axes has a panel. The compared axis is the one with the most values that fit into a panel.
fn divide_into_panels(series: &[FigureSeries], parts: &[Vec<String>]) -> Vec<FigurePanel> {
    let curves = series.iter().filter(|s| s.kind != SeriesKind::Analytic).count();
    let axes = parts.first().map_or(0, |first| first.len().saturating_sub(1));
    if curves <= TOGETHER || axes < 2 {
        return Vec::new();
    }
    let distinct = |axis: usize| {
        let mut values: Vec<&String> = parts.iter().map(|p| &p[axis]).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let bearable = (0..axes).filter(|axis| (2..=TOGETHER + 1).contains(&distinct(*axis)));
    // Of axes with equally many values, take the first: a study names the compared axis first.
    let Some(compared) = bearable.rev().max_by_key(|axis| distinct(*axis)) else { return Vec::new() };
    let mut panels: Vec<FigurePanel> = Vec::new();
    for (i, parts) in parts.iter().enumerate() {
        let others = parts[..axes].iter().enumerate().filter(|(axis, _)| *axis != compared);
        let title = others.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ");
        let name = format!("{}{}", parts[compared], parts[axes]);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.series.push((i, name)),
            None => panels.push(FigurePanel { title, series: vec![(i, name)] }),
        }
    }
    panels
}

/// Returns the series of published reference values, at the positions of the plan's axis.
fn reference_series(
    said: &model::StudyFigure,
    known: &model::ReferenceSeries,
    file: &StudyFile,
    axis: Option<&usher_scenario::PlannedAxis>,
) -> FigureSeries {
    let values = axis_settings(said, axis);
    let numbers: Option<Vec<f64>> = values.iter().map(|v| v.number).collect();
    let place = |p: &reference::ReferenceSeriesPoint| match &numbers {
        Some(numbers) => {
            let least = numbers.iter().copied().reduce(f64::min)?;
            let most = numbers.iter().copied().reduce(f64::max)?;
            p.x.filter(|x| (least..=most).contains(x))
        }
        None => values.iter().position(|v| v.text == p.text).map(|at| at as f64),
    };
    let points = reference::reference_values(file, said, known);
    let drawn = points.iter().filter_map(|p| {
        let (low, high) = p.ends.unwrap_or((f64::NAN, f64::NAN));
        Some(usher_report::SeriesPoint {
            low,
            high,
            n: p.n,
            ..usher_report::SeriesPoint::from_exact(place(p)?, p.y)
        })
    });
    FigureSeries {
        name: known.name.clone(),
        kind: SeriesKind::Reference,
        points: drawn.collect(),
        names: Vec::new(),
    }
}

/// Returns the values of an axis in a figure: the fixed ones, or all.
pub(super) fn axis_settings<'a>(
    said: &model::StudyFigure,
    axis: Option<&'a usher_scenario::PlannedAxis>,
) -> Vec<&'a usher_scenario::AxisSetting> {
    let held_at = axis.and_then(|axis| said.filter.get(&axis.name));
    let all = axis.map_or(&[][..], |axis| &axis.values);
    all.iter().filter(|v| held_at.is_none_or(|at| matches_setting(at, &v.text))).collect()
}

/// Returns the position of a point's value: the series' name and x. `None` if the figure does not show the point.
pub(super) fn locate_figure_value(
    said: &model::StudyFigure,
    plan: &StudyPlan,
    estimates: &MetricEstimatesByPoint,
    point: &usher_scenario::PlanPoint,
    metric: &str,
) -> Option<(String, f64)> {
    let text = |axis: &str| point.axis_setting(axis).map_or("", |s| s.text.as_str());
    if !is_at(said, point) {
        return None;
    }
    let x = if said.along.is_some() {
        estimates.get(&(super::plan::to_grid_point(point), said.x.clone()))?.mean
    } else {
        let at = point.axis_setting(&said.x)?;
        let values = axis_settings(said, plan.axes.iter().find(|a| a.name == said.x));
        let number = at.number.filter(|_| values.iter().all(|v| v.number.is_some()));
        number.unwrap_or_else(|| values.iter().position(|v| v.text == at.text).unwrap_or_default() as f64)
    };
    let mut names: Vec<&str> = said.series.iter().map(|axis| text(axis)).collect();
    if names.is_empty() || said.y.0.len() > 1 {
        names.push(metric);
    }
    Some((names.join(", "), x))
}

fn build_points_table(
    file: &StudyFile,
    plan: &StudyPlan,
    estimates: &MetricEstimatesByPoint,
    tails: &RobustSummaries,
) -> ReportTable {
    let mut shown: Vec<&str> = plan.figures.iter().flat_map(|f| f.y.0.iter().map(String::as_str)).collect();
    shown.extend(plan.points.first().map(|p| p.scenario.run.replications.metric.as_str()));
    let workloads = plan.points.first().into_iter().flat_map(|p| p.scenario.all_workloads());
    let of_each =
        workloads.flat_map(|(name, _)| [metrics::DELAY_P95, metrics::FAILURES].map(|m| m.of_workload(name)));
    let of_each: Vec<String> = of_each.collect();
    shown.extend(of_each.iter().map(String::as_str));
    let mut names: Vec<&str> = Vec::new();
    for name in shown {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let axes = plan.axes.iter().map(|a| ReportColumn::new(a.label.as_str(), ""));
    let unit = |name: &str| metrics::find_metric(name, file).map_or("", |m| m.unit);
    let columns = axes.chain(names.iter().map(|name| ReportColumn::new(*name, unit(name)))).collect();
    let rows = plan.points.iter().map(|p| {
        let point = super::plan::to_grid_point(p);
        let settings = p.settings.iter().map(|s| TableCell::from(s.text.as_str()));
        let values = names.iter().map(|name| {
            let at = (point.clone(), (*name).to_owned());
            let Some(estimate) = estimates.get(&at) else { return TableCell::Empty };
            match tails.get(&at) {
                Some(tail) if tail.moved.is_some() => TableCell::Moved(*estimate, tail.median),
                _ => TableCell::from(*estimate),
            }
        });
        settings.chain(values).collect()
    });
    ReportTable { title: String::new(), columns, rows: rows.collect(), folded: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::finding::{FailedDialogueFractions, derive_finding};

    #[test]
    fn figures_hold_axes_by_value_not_by_spelling() {
        let text = |t: &str| ConfigValue::Text(t.to_owned());
        assert!(matches_setting(&text("50ms"), "50 ms"));
        assert!(matches_setting(&text("0.05 s"), "50 ms"));
        assert!(matches_setting(&ConfigValue::Array(vec![text("tcp"), text("udp")]), "udp"));
        assert!(matches_setting(&ConfigValue::Integer(3), "3"));
        assert!(!matches_setting(&text("50 ms"), "60 ms"));
        assert!(!matches_setting(&text("50 ms"), "50 %"));
    }

    #[test]
    fn a_figure_of_values_that_a_mode_leaves_out_is_left_out() {
        let study = usher_scenario::Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let mut figure = plan.figures[0].clone();
        assert!(is_of(&figure, &plan));
        figure.filter.insert("loss".to_owned(), ConfigValue::Text("5 %".to_owned()));
        assert!(is_of(&figure, &plan));
        figure.filter.insert("loss".to_owned(), ConfigValue::Text("7 %".to_owned()));
        assert!(!is_of(&figure, &plan));
    }

    #[test]
    fn a_figure_may_weigh_one_metric_against_another() {
        let text = usher_scenario::default_template()
            .replace("x = \"loss\"\n", "x = \"failures\"\nalong = \"loss\"\n");
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let said = plan.figures.iter().find(|f| f.along.is_some()).unwrap();
        let mut estimates = MetricEstimatesByPoint::new();
        // Further along the axis there are fewer failures and longer delays: the order is not ascending x.
        for (i, point) in plan.points.iter().enumerate() {
            let point = super::super::plan::to_grid_point(point);
            let estimate = |mean| MeanEstimate { mean, half_width: 0.0, n: 5 };
            estimates.insert((point.clone(), "failures".to_owned()), estimate(0.5 - 0.01 * i as f64));
            estimates.insert((point, said.y.0[0].clone()), estimate(1.0 + i as f64));
        }
        let drawn = draw_figure(said, study.file(), &plan, &estimates, &RobustSummaries::new());
        assert_eq!(drawn.x.title, metrics::find_metric("failures", study.file()).unwrap().about);
        let losses = &plan.axes.iter().find(|a| a.name == "loss").unwrap().values;
        assert!(losses.len() > 1);
        for series in &drawn.series {
            assert!(series.points.windows(2).all(|w| w[0].x > w[1].x && w[0].mean < w[1].mean));
            assert!(series.names.iter().eq(losses.iter().map(|v| &v.text)));
        }
    }

    /// The template's quick plan with this line in its first figure.
    fn study_with_line(line: &str) -> (usher_scenario::Study, StudyPlan) {
        let text = usher_scenario::default_template().replacen(
            "x = \"loss\"\n",
            &format!("x = \"loss\"\n{line}\n"),
            1,
        );
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        (study, plan)
    }

    /// Rows of a delay at each point: calm ones, and at the last point one replication that moves the mean.
    fn heavy_tailed_estimates(plan: &StudyPlan) -> (MetricEstimatesByPoint, RobustSummaries) {
        let mut rows = Vec::new();
        for (i, point) in plan.points.iter().enumerate() {
            let last = if i + 1 == plan.points.len() { 29.0 } else { 2.0 };
            for (replication, value) in (0..).zip([1.0, 1.0, 2.0, 1.0, 2.0, last]) {
                rows.push(usher_observe::ResultRow {
                    study: "t".into(),
                    point: super::super::plan::to_grid_point(point),
                    replication,
                    metric: "delay.mean".into(),
                    value,
                });
            }
        }
        let summaries = summarise_rows(&rows, 0.95);
        let tails = robust_summaries(plan, &summaries, 0.95);
        (summaries.into_iter().map(|s| ((s.point, s.metric.to_string()), s.estimate)).collect(), tails)
    }

    #[test]
    fn figure_row_and_finding_mark_a_mean_moved_by_one_replication() {
        let (study, plan) = study_with_line("");
        let (estimates, tails) = heavy_tailed_estimates(&plan);
        let said = &plan.figures[0];
        let drawn = draw_figure(said, study.file(), &plan, &estimates, &tails);
        let points: Vec<_> = drawn.series.iter().flat_map(|s| &s.points).collect();
        assert_eq!(points.iter().filter(|p| p.moved.is_some()).count(), 1);
        let text = compose_figure_text(said, &drawn);
        let expected = format!("One replication moves the mean at 1 of {} points", points.len());
        assert!(text.contains(&expected) && text.contains("median 1.5 s (1 to 29 s)"), "{text}");
        let along = model::StudyFigure { along: Some("loss".to_owned()), ..said.clone() };
        let mut measured = drawn.clone();
        for point in measured.series.iter_mut().flat_map(|s| &mut s.points) {
            point.x = 0.123_456_789;
        }
        assert!(compose_figure_text(&along, &measured).contains(" at 0.123 %: median"));
        let found = derive_finding(&drawn, &FailedDialogueFractions::new()).unwrap().to_string();
        assert!(found.contains("but one replication moves this mean: median"), "{found}");
        let table = build_points_table(study.file(), &plan, &estimates, &tails);
        let moved = table.rows.iter().flatten().filter(|c| matches!(c, TableCell::Moved(..))).count();
        assert_eq!(moved, 1);
    }

    #[test]
    fn a_figure_may_show_medians() {
        let (study, plan) = study_with_line("statistic = \"median\"");
        let (estimates, tails) = heavy_tailed_estimates(&plan);
        let drawn = draw_figure(&plan.figures[0], study.file(), &plan, &estimates, &tails);
        assert!(drawn.y.title.ends_with(", median of the replications"));
        for point in drawn.series.iter().flat_map(|s| &s.points) {
            assert_eq!((point.mean, point.moved), (1.5, None));
        }
        assert!(drawn.series.iter().all(|s| s.kind == SeriesKind::Median));
        assert!(!compose_figure_text(&plan.figures[0], &drawn).contains("One replication"));
        let found = derive_finding(&drawn, &FailedDialogueFractions::new()).unwrap().to_string();
        assert!(found.contains(" to 29"), "{found}");
    }

    #[test]
    fn what_others_measured_is_drawn_where_the_axis_reaches() {
        let reference = "reference = [{ name = \"ns-2\", source = \"Measured.\", points = [\
                         { x = \"0 %\", y = \"20 ms\", low = \"0.01 s\", high = \"0.03 s\", n = 7 }, \
                         { x = \"99 %\", y = \"1 s\" }] }]";
        let (study, plan) = study_with_line(reference);
        let (estimates, tails) = heavy_tailed_estimates(&plan);
        let said = &plan.figures[0];
        let drawn = draw_figure(said, study.file(), &plan, &estimates, &tails);
        let theirs = drawn.series.iter().find(|s| s.kind == SeriesKind::Reference).unwrap();
        assert_eq!(theirs.points.len(), 1, "99 % is beyond the axis");
        let p = &theirs.points[0];
        assert_eq!((p.x, p.mean, p.low, p.high, p.n), (0.0, 0.02, 0.01, 0.03, 7));
        assert!(compose_figure_text(said, &drawn).ends_with("ns-2: Measured."));
        // A finding covers only the run's own results.
        assert!(
            !derive_finding(&drawn, &FailedDialogueFractions::new()).unwrap().to_string().contains("ns-2")
        );
    }

    #[test]
    fn many_curves_are_split_into_panels_with_shared_colours() {
        let curve = |parts: &[&str]| {
            let series = FigureSeries { name: parts.join(", "), ..FigureSeries::default() };
            (series, parts.iter().map(|p| (*p).to_owned()).chain([String::new()]).collect::<Vec<_>>())
        };
        let all: Vec<(FigureSeries, Vec<String>)> = ["md5", "tls"]
            .iter()
            .flat_map(|method| ["tcp", "sctp", "udp", "radsec"].map(|transport| curve(&[method, transport])))
            .collect();
        let (series, parts): (Vec<FigureSeries>, Vec<Vec<String>>) = all.into_iter().unzip();
        let drawn = divide_into_panels(&series, &parts);
        assert_eq!(drawn.iter().map(|p| p.title.as_str()).collect::<Vec<_>>(), ["md5", "tls"]);
        let names: Vec<&str> = drawn[1].series.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["tcp", "sctp", "udp", "radsec"]);
        assert_eq!(drawn[1].series[0].0, 4);
        assert!(divide_into_panels(&series[..6], &parts[..6]).is_empty(), "so few stand together");
        let one: Vec<Vec<String>> = parts.iter().map(|p| vec![p[..2].join(", "), String::new()]).collect();
        assert!(divide_into_panels(&series, &one).is_empty(), "one axis has nothing to divide by");
    }
}
