//! From a sweep's rows to its report: the study's figures, a table of all points, and what to know.

use super::moved::{Tails, tails, with_ends};
use super::samples::{self, Samples};
use super::{Failing, Results, Untrusted, finding, line, recommend};
use std::collections::HashMap;
use usher_observe::manifest::Manifest;
use usher_observe::row::number;
use usher_observe::summary::summarise;
use usher_observe::{Estimate, Point};
use usher_report::{Axis, Cell, Column, Figure, Kind, Panel, Report, Rerun, Section, Series, Table};
use usher_scenario::model::{self, Statistic, StudyFile, Value};
use usher_scenario::units::Quantity;
use usher_scenario::{Plan, metrics, reference};

/// Estimates by point and metric.
pub(super) type Estimates = HashMap<(Point, String), Estimate>;

/// Values of replications by point and metric.
type Values = HashMap<(Point, String), Vec<f64>>;

/// What a report says first whose rows are complete, and what was run for the rest was cut short.
pub const CUT_SHORT: &str =
    "These results are partial: the rows are complete, what is drawn of single dialogues is not.";

/// The report of a run, with what its figures of single dialogues are drawn from. `rerun` gives the command line that runs a point again alone.
pub fn report(
    file: &StudyFile,
    plan: &Plan,
    results: &Results,
    samples: &Samples,
    manifest: Manifest,
    rerun: impl Fn(&Point) -> String,
) -> Report {
    let level = plan.points.first().map_or(0.95, |p| p.scenario.run.replications.confidence.get());
    let summaries = summarise(&results.rows, level);
    let tails = tails(plan, &summaries, level);
    let values: Values = summaries
        .iter()
        .map(|s| ((s.point.clone(), s.metric.to_string()), s.values.iter().map(|(_, v)| *v).collect()))
        .collect();
    let estimates: Estimates =
        summaries.into_iter().map(|s| ((s.point, s.metric.as_ref().to_owned()), s.estimate)).collect();
    let drawn: Vec<(&model::Figure, Figure)> = plan
        .figures
        .iter()
        .filter(|f| is_of(f, plan))
        .map(|f| match f.kind {
            model::FigureKind::Curve => (f, figure(f, file, plan, &estimates, &tails)),
            model::FigureKind::Box => {
                (f, boxes(f, figure(f, file, plan, &estimates, &tails), plan, &values, &estimates))
            }
            model::FigureKind::Cdf | model::FigureKind::Time => (f, of_dialogues(f, file, plan, samples)),
        })
        .filter(|(_, figure)| !figure.series.is_empty())
        .collect();
    // Advice first: it is what a long list must not hide.
    let mut findings: Vec<String> =
        file.recommendations.iter().flat_map(|r| recommend::findings(r, plan, results)).collect();
    findings.extend(finding::findings(&drawn, file, plan, &estimates));
    let mut sections: Vec<Section> = drawn
        .into_iter()
        .map(|(said, figure)| Section {
            title: String::new(),
            text: beneath(said, &figure),
            figures: vec![figure],
            tables: Vec::new(),
        })
        .collect();
    sections.extend(file.recommendations.iter().map(|r| recommend::section(r, file, plan, results)));
    sections.push(Section {
        title: "All points".to_owned(),
        text: format!(
            "Means with their {} % confidence intervals; in parentheses, replications. Where one replication moves a \
             mean, the median stands below it, with the interval of its order statistics: that is the one to look at.",
            number(level * 100.0)
        ),
        figures: Vec::new(),
        tables: vec![table(file, plan, &estimates, &tails)],
    });
    Report {
        title: file.title.clone(),
        question: file.question.clone(),
        findings,
        description: file.description.clone(),
        partial: partial(results, samples),
        summary: None,
        warnings: plan
            .warnings
            .iter()
            .map(|warning| warning.message.clone())
            .chain(Failing::of(plan, results).iter().map(ToString::to_string))
            .chain(Untrusted::of(plan, results).iter().map(ToString::to_string))
            .collect(),
        sections,
        ladders: Vec::new(),
        notes: notes(results),
        reruns: results
            .points
            .iter()
            .map(|p| Rerun { point: super::key::of(&p.point), command: rerun(&p.point) })
            .collect(),
        manifest: Some(manifest),
        live: None,
    }
}

fn partial(results: &Results, samples: &Samples) -> Option<String> {
    let complete = results.points.iter().filter(|p| p.complete).count();
    let points = (!results.complete).then(|| {
        format!("These results are partial: {complete} of {} points are complete.", results.points.len())
    });
    points.or_else(|| samples.is_cut_short().then(|| CUT_SHORT.to_owned()))
}

fn notes(results: &Results) -> Vec<String> {
    let mut notes: Vec<String> = results
        .failures
        .iter()
        .map(|f| {
            format!("Could not run {} (replication {}): {}", super::key::of(&f.point), f.replication, f.error)
        })
        .collect();
    let wide: Vec<_> = results.points.iter().filter(|p| p.complete && !p.converged).collect();
    if let Some(first) = wide.first() {
        notes.push(format!(
            "{} of {} points came to their limit of replications before the precision asked for ({} was one): \
             look at their intervals.",
            wide.len(),
            results.points.len(),
            super::key::of(&first.point)
        ));
    }
    notes
}

/// True where a point's setting is one of the values that a `where` holds the axis at.
pub(super) fn held(value: &Value, text: &str) -> bool {
    let same = |written: &str| {
        let base = |t: &str| Quantity::parse(t).map(|q| (q.dimension, q.base()));
        written == text || base(written).is_some_and(|b| base(text) == Some(b))
    };
    match value {
        Value::Array(values) => values.iter().any(|v| held(v, text)),
        other => same(other.to_string().trim()),
    }
}

/// True where the plan has a point that the figure is of: quick modes leave some axes' values out.
pub(super) fn is_of(said: &model::Figure, plan: &Plan) -> bool {
    plan.points.iter().any(|point| is_at(said, point))
}

/// True where the figure is of this point.
pub(super) fn is_at(said: &model::Figure, point: &usher_scenario::Point) -> bool {
    let text = |axis: &str| point.setting(axis).map_or("", |s| s.text.as_str());
    said.filter.iter().all(|(axis, value)| held(value, text(axis)))
}

/// A figure whose points are boxes of their replications.
fn boxes(said: &model::Figure, drawn: Figure, plan: &Plan, values: &Values, estimates: &Estimates) -> Figure {
    let mut drawn = Figure {
        series: drawn.series.into_iter().map(|s| Series { kind: Kind::Box, ..s }).collect(),
        ..drawn
    };
    for (metric, point) in said.y.0.iter().flat_map(|y| plan.points.iter().map(move |p| (y, p))) {
        let Some((name, x)) = place(said, plan, estimates, point, metric) else { continue };
        let series = drawn.series.iter_mut().find(|s| s.name == name);
        let at = series.and_then(|s| s.points.iter_mut().find(|p| p.x == x));
        if let (Some(at), Some(values)) = (at, values.get(&(super::plan::point(point), metric.clone()))) {
            *at = usher_report::Point::of_box(x, values);
        }
    }
    drawn
}

/// A figure of single dialogues.
fn of_dialogues(said: &model::Figure, file: &StudyFile, plan: &Plan, samples: &Samples) -> Figure {
    let (series, parts): (Vec<Series>, Vec<Vec<String>>) =
        samples::curves(said, plan, samples).into_iter().unzip();
    let panels = panels(&series, &parts);
    let log = |axis: Axis, on: bool| if on { axis.logarithmic() } else { axis };
    let [x, y] = samples::axes(said, file);
    Figure {
        name: said.name.clone(),
        title: said.title.clone(),
        x: log(x, said.log_x),
        y: log(y, said.log_y),
        series,
        panels,
    }
}

/// What stands with a figure: its caption, where one replication moves a mean, and whose points are in it.
fn beneath(said: &model::Figure, figure: &Figure) -> String {
    let mut text = vec![said.caption.clone(), samples::beneath(said).to_owned()];
    let points = || figure.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
    let moved: Vec<_> = points().filter(|(_, p)| p.moved.is_some()).collect();
    if !moved.is_empty() {
        let of = points().filter(|(s, _)| s.kind == Kind::Measured).count();
        let named = moved.iter().take(SHOWN).map(|(s, p)| {
            let at = match figure.x.categories.get(p.x as usize) {
                Some(name) => name.clone(),
                None => {
                    // Along an axis x is a mean.
                    let x = if said.along.is_some() { finding::sure(p.x, f64::NAN) } else { number(p.x) };
                    format!("{x} {}", figure.x.unit).trim_end().to_owned()
                }
            };
            let median = p.median.as_ref().map_or_else(String::new, |m| format!(": median {}", with_ends(m)));
            format!("{} at {at}{median}", s.name)
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more =
            if moved.len() > SHOWN { format!("; and {} more", moved.len() - SHOWN) } else { String::new() };
        text.push(format!(
            "One replication moves the mean at {} of {of} points, whose markers are hollow. Means are not to be trusted \
             there, medians are: {named}{more}.",
            moved.len()
        ));
    }
    text.extend(
        said.reference.iter().filter(|r| !r.source.is_empty()).map(|r| format!("{}: {}", r.name, r.source)),
    );
    text.retain(|paragraph| !paragraph.is_empty());
    text.join("\n\n")
}

/// Points that a figure's text names.
const SHOWN: usize = 8;

pub(super) fn figure(
    said: &model::Figure,
    file: &StudyFile,
    plan: &Plan,
    estimates: &Estimates,
    tails: &Tails,
) -> Figure {
    let axis = plan.axes.iter().find(|a| a.name == said.x);
    let values = places(said, axis);
    let label = axis.map_or(said.x.as_str(), |a| a.label.as_str());
    let numeric = values.iter().all(|v| v.number.is_some());
    let x = if let Some(metric) = metrics::find(&said.x, file).filter(|_| said.along.is_some()) {
        Axis::new(metric.about, metric.unit)
    } else if numeric {
        Axis::new(label, axis.and_then(|a| a.unit.as_deref()).unwrap_or_default())
    } else {
        Axis::categories(label, values.iter().map(|v| v.text.as_str()))
    };
    let first = said.y.0.first().map_or("", String::as_str);
    let y = metrics::find(first, file);
    let about = match (y, said.y.0.len()) {
        (Some(metric), 1) => metric.title(first),
        // Of several metrics none is what the others are: their names stand there.
        _ => said.y.0.join(", "),
    };
    let medians = said.statistic == Statistic::Median;
    let title = said.y_title.clone().unwrap_or(about);
    let title = if medians { format!("{title}, median of the replications") } else { title };
    let shares = said.y.0.iter().all(|y| metrics::find(y, file).is_some_and(|m| m.share));
    let y = Axis::new(title, y.map_or("", |m| m.unit)).of_shares(shares);
    let log = |axis: Axis, on: bool| if on { axis.logarithmic() } else { axis };

    let mut series: Vec<Series> = Vec::new();
    let mut parts: Vec<Vec<String>> = Vec::new();
    for (metric, point) in said.y.0.iter().flat_map(|y| plan.points.iter().map(move |p| (y, p))) {
        let text = |axis: &str| point.setting(axis).map_or("", |s| s.text.as_str());
        let Some((name, x)) = place(said, plan, estimates, point, metric) else { continue };
        let at = (super::plan::point(point), metric.clone());
        let Some(estimate) = estimates.get(&at) else { continue };
        if let Some(exact) = said.analytic.and_then(|form| usher_theory::value(form, &point.scenario)) {
            let name = format!("{name} (closed form)");
            let drawn = usher_report::Point::exact(x, exact);
            match series.iter_mut().find(|s| s.name == name) {
                Some(known) => known.points.push(drawn),
                None => {
                    parts.push(parted(said, point, metric, " (closed form)"));
                    series.push(Series { name, kind: Kind::Analytic, points: vec![drawn], names: Vec::new() })
                }
            }
        }
        let mut drawn = match tails.get(&at) {
            Some(tail) if medians => usher_report::Point::median(x, &tail.median),
            Some(tail) => usher_report::Point {
                median: Some(tail.median),
                moved: tail.moved,
                ..usher_report::Point::measured(x, estimate)
            },
            None => usher_report::Point::measured(x, estimate),
        };
        drawn = drawn.within_reach(metrics::find(metric, file).is_some_and(|m| m.share));
        let called = said.along.as_deref().map(|axis| text(axis).to_owned());
        match series.iter_mut().find(|s| s.name == name) {
            Some(known) => {
                known.points.push(drawn);
                known.names.extend(called);
            }
            None => {
                parts.push(parted(said, point, metric, ""));
                let names = called.into_iter().collect();
                let kind = if medians { Kind::Median } else { Kind::Measured };
                series.push(Series { name, kind, points: vec![drawn], names });
            }
        }
    }
    if said.along.is_none() {
        for s in &mut series {
            s.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
    }
    let panels =
        if said.fit.is_none() && said.reference.is_empty() { panels(&series, &parts) } else { Vec::new() };
    if said.fit.is_some() {
        let lines: Vec<Series> = series.iter().filter_map(|s| line::fitted(s, [&x, &y])).collect();
        series.extend(lines);
    }
    series.extend(said.reference.iter().map(|known| referred(said, known, file, axis)));
    series.retain(|s| !s.points.is_empty());
    Figure {
        name: said.name.clone(),
        title: said.title.clone(),
        x: log(x, said.log_x),
        y: log(y, said.log_y),
        series,
        panels,
    }
}

/// More curves than this are drawn in panels, where there is something to divide them by; and no panel has more.
const TOGETHER: usize = 6;

/// What a curve is of: the value of each of the figure's series axes, and the metric where there are several. A closed
/// form is told from what it stands beside by the last of them.
pub(super) fn parted(
    said: &model::Figure,
    point: &usher_scenario::Point,
    metric: &str,
    form: &str,
) -> Vec<String> {
    let text = |axis: &String| point.setting(axis).map_or("", |s| s.text.as_str()).to_owned();
    let mut parts: Vec<String> = said.series.iter().map(text).collect();
    if said.y.0.len() > 1 {
        parts.push(metric.to_owned());
    }
    parts.push(form.to_owned());
    parts
}

/// Panels for many curves: one axis is compared in each of them, the same colour standing for the same value, and each
/// combination of the others has a panel. It is the axis with the most values that a panel bears.
fn panels(series: &[Series], parts: &[Vec<String>]) -> Vec<Panel> {
    let curves = series.iter().filter(|s| s.kind != Kind::Analytic).count();
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
    // Of equals the first: a study names what it compares first.
    let Some(compared) = bearable.rev().max_by_key(|axis| distinct(*axis)) else { return Vec::new() };
    let mut panels: Vec<Panel> = Vec::new();
    for (i, parts) in parts.iter().enumerate() {
        let others = parts[..axes].iter().enumerate().filter(|(axis, _)| *axis != compared);
        let title = others.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(", ");
        let name = format!("{}{}", parts[compared], parts[axes]);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.series.push((i, name)),
            None => panels.push(Panel { title, series: vec![(i, name)] }),
        }
    }
    panels
}

/// What others measured, at the places that the plan's axis spans.
fn referred(
    said: &model::Figure,
    known: &model::Reference,
    file: &StudyFile,
    axis: Option<&usher_scenario::PlannedAxis>,
) -> Series {
    let values = places(said, axis);
    let numbers: Option<Vec<f64>> = values.iter().map(|v| v.number).collect();
    let place = |p: &reference::Known| match &numbers {
        Some(numbers) => {
            let least = numbers.iter().copied().reduce(f64::min)?;
            let most = numbers.iter().copied().reduce(f64::max)?;
            p.x.filter(|x| (least..=most).contains(x))
        }
        None => values.iter().position(|v| v.text == p.text).map(|at| at as f64),
    };
    let points = reference::points(file, said, known);
    let drawn = points.iter().filter_map(|p| {
        let (low, high) = p.ends.unwrap_or((f64::NAN, f64::NAN));
        Some(usher_report::Point { low, high, n: p.n, ..usher_report::Point::exact(place(p)?, p.y) })
    });
    Series { name: known.name.clone(), kind: Kind::Reference, points: drawn.collect(), names: Vec::new() }
}

/// The values that an axis has in a figure: those that it is held at, or all.
pub(super) fn places<'a>(
    said: &model::Figure,
    axis: Option<&'a usher_scenario::PlannedAxis>,
) -> Vec<&'a usher_scenario::Setting> {
    let held_at = axis.and_then(|axis| said.filter.get(&axis.name));
    let all = axis.map_or(&[][..], |axis| &axis.values);
    all.iter().filter(|v| held_at.is_none_or(|at| held(at, &v.text))).collect()
}

/// Where a point's value is drawn: in the series of this name, at this x. `None` where the figure is not of it.
pub(super) fn place(
    said: &model::Figure,
    plan: &Plan,
    estimates: &Estimates,
    point: &usher_scenario::Point,
    metric: &str,
) -> Option<(String, f64)> {
    let text = |axis: &str| point.setting(axis).map_or("", |s| s.text.as_str());
    if !is_at(said, point) {
        return None;
    }
    let x = if said.along.is_some() {
        estimates.get(&(super::plan::point(point), said.x.clone()))?.mean
    } else {
        let at = point.setting(&said.x)?;
        let values = places(said, plan.axes.iter().find(|a| a.name == said.x));
        let number = at.number.filter(|_| values.iter().all(|v| v.number.is_some()));
        number.unwrap_or_else(|| values.iter().position(|v| v.text == at.text).unwrap_or_default() as f64)
    };
    let mut names: Vec<&str> = said.series.iter().map(|axis| text(axis)).collect();
    if names.is_empty() || said.y.0.len() > 1 {
        names.push(metric);
    }
    Some((names.join(", "), x))
}

fn table(file: &StudyFile, plan: &Plan, estimates: &Estimates, tails: &Tails) -> Table {
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
    let axes = plan.axes.iter().map(|a| Column::new(a.label.as_str(), ""));
    let unit = |name: &str| metrics::find(name, file).map_or("", |m| m.unit);
    let columns = axes.chain(names.iter().map(|name| Column::new(*name, unit(name)))).collect();
    let rows = plan.points.iter().map(|p| {
        let point = super::plan::point(p);
        let settings = p.settings.iter().map(|s| Cell::from(s.text.as_str()));
        let values = names.iter().map(|name| {
            let at = (point.clone(), (*name).to_owned());
            let Some(estimate) = estimates.get(&at) else { return Cell::Empty };
            match tails.get(&at) {
                Some(tail) if tail.moved.is_some() => Cell::Moved(*estimate, tail.median),
                _ => Cell::from(*estimate),
            }
        });
        settings.chain(values).collect()
    });
    Table { title: String::new(), columns, rows: rows.collect(), folded: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::finding::{Missing, finding};

    #[test]
    fn figures_hold_axes_by_value_not_by_spelling() {
        let text = |t: &str| Value::Text(t.to_owned());
        assert!(held(&text("50ms"), "50 ms"));
        assert!(held(&text("0.05 s"), "50 ms"));
        assert!(held(&Value::Array(vec![text("tcp"), text("udp")]), "udp"));
        assert!(held(&Value::Integer(3), "3"));
        assert!(!held(&text("50 ms"), "60 ms"));
        assert!(!held(&text("50 ms"), "50 %"));
    }

    #[test]
    fn a_figure_of_values_that_a_mode_leaves_out_is_left_out() {
        let study = usher_scenario::Study::parse("t", "t.toml", usher_scenario::template()).unwrap();
        let plan = study.plan(usher_scenario::Mode::Quick, &usher_scenario::Overrides::default()).unwrap();
        let mut figure = plan.figures[0].clone();
        assert!(is_of(&figure, &plan));
        figure.filter.insert("loss".to_owned(), Value::Text("5 %".to_owned()));
        assert!(is_of(&figure, &plan));
        figure.filter.insert("loss".to_owned(), Value::Text("7 %".to_owned()));
        assert!(!is_of(&figure, &plan));
    }

    #[test]
    fn a_figure_may_weigh_one_metric_against_another() {
        let text =
            usher_scenario::template().replace("x = \"loss\"\n", "x = \"failures\"\nalong = \"loss\"\n");
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study.plan(usher_scenario::Mode::Quick, &usher_scenario::Overrides::default()).unwrap();
        let said = plan.figures.iter().find(|f| f.along.is_some()).unwrap();
        let mut estimates = Estimates::new();
        // The further along the axis, the fewer failures and the longer the delay: not by ascending x.
        for (i, point) in plan.points.iter().enumerate() {
            let point = super::super::plan::point(point);
            let estimate = |mean| Estimate { mean, half_width: 0.0, n: 5 };
            estimates.insert((point.clone(), "failures".to_owned()), estimate(0.5 - 0.01 * i as f64));
            estimates.insert((point, said.y.0[0].clone()), estimate(1.0 + i as f64));
        }
        let drawn = figure(said, study.file(), &plan, &estimates, &Tails::new());
        assert_eq!(drawn.x.title, metrics::find("failures", study.file()).unwrap().about);
        let losses = &plan.axes.iter().find(|a| a.name == "loss").unwrap().values;
        assert!(losses.len() > 1);
        for series in &drawn.series {
            assert!(series.points.windows(2).all(|w| w[0].x > w[1].x && w[0].mean < w[1].mean));
            assert!(series.names.iter().eq(losses.iter().map(|v| &v.text)));
        }
    }

    /// The template's quick plan with this in its first figure, and one point's tail.
    fn with(line: &str) -> (usher_scenario::Study, Plan) {
        let text =
            usher_scenario::template().replacen("x = \"loss\"\n", &format!("x = \"loss\"\n{line}\n"), 1);
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study.plan(usher_scenario::Mode::Quick, &usher_scenario::Overrides::default()).unwrap();
        (study, plan)
    }

    /// Rows of a delay at each point: calm ones, and at the last one that one replication moves.
    fn heavy(plan: &Plan) -> (Estimates, Tails) {
        let mut rows = Vec::new();
        for (i, point) in plan.points.iter().enumerate() {
            let last = if i + 1 == plan.points.len() { 29.0 } else { 2.0 };
            for (replication, value) in (0..).zip([1.0, 1.0, 2.0, 1.0, 2.0, last]) {
                rows.push(usher_observe::Row {
                    study: "t".into(),
                    point: super::super::plan::point(point),
                    replication,
                    metric: "delay.mean".into(),
                    value,
                });
            }
        }
        let summaries = summarise(&rows, 0.95);
        let tails = tails(plan, &summaries, 0.95);
        (summaries.into_iter().map(|s| ((s.point, s.metric.to_string()), s.estimate)).collect(), tails)
    }

    #[test]
    fn a_mean_that_one_replication_moves_is_said_at_its_figure_its_row_and_its_finding() {
        let (study, plan) = with("");
        let (estimates, tails) = heavy(&plan);
        let said = &plan.figures[0];
        let drawn = figure(said, study.file(), &plan, &estimates, &tails);
        let points: Vec<_> = drawn.series.iter().flat_map(|s| &s.points).collect();
        assert_eq!(points.iter().filter(|p| p.moved.is_some()).count(), 1);
        let text = beneath(said, &drawn);
        let expected = format!("One replication moves the mean at 1 of {} points", points.len());
        assert!(text.contains(&expected) && text.contains("median 1.5 s (1 to 29 s)"), "{text}");
        let along = model::Figure { along: Some("loss".to_owned()), ..said.clone() };
        let mut measured = drawn.clone();
        for point in measured.series.iter_mut().flat_map(|s| &mut s.points) {
            point.x = 0.123_456_789;
        }
        assert!(beneath(&along, &measured).contains(" at 0.123 %: median"));
        let found = finding(&drawn, &Missing::new()).unwrap().to_string();
        assert!(found.contains("which one replication moves (median"), "{found}");
        let table = table(study.file(), &plan, &estimates, &tails);
        let moved = table.rows.iter().flatten().filter(|c| matches!(c, Cell::Moved(..))).count();
        assert_eq!(moved, 1);
    }

    #[test]
    fn a_figure_may_show_medians() {
        let (study, plan) = with("statistic = \"median\"");
        let (estimates, tails) = heavy(&plan);
        let drawn = figure(&plan.figures[0], study.file(), &plan, &estimates, &tails);
        assert!(drawn.y.title.ends_with(", median of the replications"));
        for point in drawn.series.iter().flat_map(|s| &s.points) {
            assert_eq!((point.mean, point.moved), (1.5, None));
        }
        assert!(drawn.series.iter().all(|s| s.kind == Kind::Median));
        assert!(!beneath(&plan.figures[0], &drawn).contains("One replication"));
        let found = finding(&drawn, &Missing::new()).unwrap().to_string();
        assert!(found.contains(" to 29"), "{found}");
    }

    #[test]
    fn what_others_measured_is_drawn_where_the_axis_reaches() {
        let reference = "reference = [{ name = \"ns-2\", source = \"Measured.\", points = [\
                         { x = \"0 %\", y = \"20 ms\", low = \"0.01 s\", high = \"0.03 s\", n = 7 }, \
                         { x = \"99 %\", y = \"1 s\" }] }]";
        let (study, plan) = with(reference);
        let (estimates, tails) = heavy(&plan);
        let said = &plan.figures[0];
        let drawn = figure(said, study.file(), &plan, &estimates, &tails);
        let theirs = drawn.series.iter().find(|s| s.kind == Kind::Reference).unwrap();
        assert_eq!(theirs.points.len(), 1, "99 % is beyond the axis");
        let p = &theirs.points[0];
        assert_eq!((p.x, p.mean, p.low, p.high, p.n), (0.0, 0.02, 0.01, 0.03, 7));
        assert!(beneath(said, &drawn).ends_with("ns-2: Measured."));
        // A finding is of one's own results.
        assert!(!finding(&drawn, &Missing::new()).unwrap().to_string().contains("ns-2"));
    }

    #[test]
    fn many_curves_are_drawn_in_panels_with_a_colour_for_each_thing_compared() {
        let curve = |parts: &[&str]| {
            let series = Series { name: parts.join(", "), ..Series::default() };
            (series, parts.iter().map(|p| (*p).to_owned()).chain([String::new()]).collect::<Vec<_>>())
        };
        let all: Vec<(Series, Vec<String>)> = ["md5", "tls"]
            .iter()
            .flat_map(|method| ["tcp", "sctp", "udp", "radsec"].map(|transport| curve(&[method, transport])))
            .collect();
        let (series, parts): (Vec<Series>, Vec<Vec<String>>) = all.into_iter().unzip();
        let drawn = panels(&series, &parts);
        assert_eq!(drawn.iter().map(|p| p.title.as_str()).collect::<Vec<_>>(), ["md5", "tls"]);
        let names: Vec<&str> = drawn[1].series.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["tcp", "sctp", "udp", "radsec"]);
        assert_eq!(drawn[1].series[0].0, 4);
        assert!(panels(&series[..6], &parts[..6]).is_empty(), "so few stand together");
        let one: Vec<Vec<String>> = parts.iter().map(|p| vec![p[..2].join(", "), String::new()]).collect();
        assert!(panels(&series, &one).is_empty(), "one axis has nothing to divide by");
    }
}
