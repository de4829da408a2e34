//! Findings of a report: for each metric of a figure, its values at the right end and its range over the axis.

use super::failed_dialogues::format_percent;
use super::report::{MetricEstimatesByPoint, axis_settings, locate_figure_value};
use std::collections::HashMap;
use std::fmt;
use usher_observe::row::format_number;
use usher_report::{FigureAxis, FigureSeries, ReportFigure, SeriesKind};
use usher_scenario::model::{self, StudyFile};
use usher_scenario::{PlannedAxis, StudyPlan, metrics};

/// Shares of failed dialogues by series and x (its bits), where they are too large to ignore beside the value.
pub(super) type FailedDialogueFractions = HashMap<(String, u64), f64>;

/// Findings state shares of failures from this one on.
const NOTABLE_FAILURE_FRACTION: f64 = 0.01;

/// Collects the shares of failed dialogues of a figure; empty for a figure of success rates.
fn collect_failed_fractions(
    said: &model::StudyFigure,
    plan: &StudyPlan,
    estimates: &MetricEstimatesByPoint,
) -> FailedDialogueFractions {
    let of_ends =
        [metrics::FAILURES, metrics::SUCCESS, metrics::STARTED, metrics::COMPLETED, metrics::REJECTED];
    let counts = |y: &String, workload: &str| of_ends.iter().any(|metric| metric.of_workload(workload) == *y);
    let mut missing = FailedDialogueFractions::new();
    for (metric, point) in said.y.0.iter().flat_map(|y| plan.points.iter().map(move |p| (y, p))) {
        // If the study has several workloads, count only the failures of the metric's own workload.
        let found = metrics::find_metric(metric, &point.scenario);
        let own = |name: &str| {
            found.is_some_and(|m| m.of == metrics::MetricScope::Workload && m.of_workload(name) == *metric)
        };
        let mut names = point.scenario.all_workloads().map(|(name, _)| name);
        let of = names.find(|name| name.is_empty() || own(name));
        let Some(workload) = of else { continue };
        let failures =
            estimates.get(&(super::plan::to_grid_point(point), metrics::FAILURES.of_workload(workload)));
        if let Some(failures) =
            failures.filter(|f| f.mean >= NOTABLE_FAILURE_FRACTION && !counts(metric, workload))
            && let Some((name, x)) = locate_figure_value(said, plan, estimates, point, metric)
        {
            missing.insert((name, x.to_bits()), failures.mean);
        }
    }
    missing
}

/// Splits a figure of several metrics into one figure each, titled with its metric: a median is not a quantile.
fn split_figure_by_metric(
    said: &model::StudyFigure,
    file: &StudyFile,
    figure: &ReportFigure,
) -> Vec<ReportFigure> {
    if said.y.0.len() < 2 {
        return vec![figure.clone()];
    }
    let of = |metric: &String| {
        let about = metrics::find_metric(metric, file)
            .map_or_else(|| metric.clone(), |found| found.axis_title(metric));
        let own = |name: &str| {
            name == metric || name.strip_suffix(metric.as_str()).is_some_and(|rest| rest.ends_with(", "))
        };
        let series = figure.series.iter().filter(|s| own(&s.name)).cloned().collect();
        ReportFigure { y: FigureAxis { title: about, ..figure.y.clone() }, series, ..figure.clone() }
    };
    said.y.0.iter().map(of).collect()
}

/// The finding of a figure: at its right end and over its axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FigureFinding {
    /// The title of the metric.
    metric: String,
    /// The position on the horizontal axis.
    location: String,
    /// The observation there.
    observation: String,
    /// Minimum and maximum over the axis, if it has further positions.
    range: Option<String>,
}

impl fmt::Display for FigureFinding {
    /// Writes whole sentences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, rest) = self.metric.split_at(self.metric.chars().next().map_or(0, char::len_utf8));
        write!(f, "{}{rest} at {}: {}.", first.to_uppercase(), self.location, self.observation)?;
        self.range.as_ref().map_or(Ok(()), |range| write!(f, " Over all values: {range}."))
    }
}

/// Returns the findings of these figures, each with its fixed settings; without them findings would contradict each
/// other. Repeated findings appear once.
pub(super) fn collect_findings(
    drawn: &[(&model::StudyFigure, ReportFigure)],
    file: &StudyFile,
    plan: &StudyPlan,
    estimates: &MetricEstimatesByPoint,
) -> Vec<String> {
    let mut all: Vec<(FigureFinding, Vec<String>)> = Vec::new();
    for (said, figure) in drawn.iter().filter(|(said, _)| said.along.is_none()) {
        let missing = collect_failed_fractions(said, plan, estimates);
        let fixed = describe_fixed_axes(said, plan);
        for found in
            split_figure_by_metric(said, file, figure).iter().filter_map(|f| derive_finding(f, &missing))
        {
            match all.iter_mut().find(|(known, _)| *known == found) {
                Some((_, settings)) if settings.contains(&fixed) => {}
                Some((_, settings)) => settings.push(fixed.clone()),
                None => all.push((found, vec![fixed.clone()])),
            }
        }
    }
    let told = |(FigureFinding { metric, location: at, observation: what, range }, settings): (
        FigureFinding,
        Vec<String>,
    )| {
        let at = match settings.first().filter(|first| !first.is_empty()) {
            Some(first) => format!("{at} ({first})"),
            None => at,
        };
        let what = match settings.len() {
            0 | 1 => what,
            2 => format!("{what}, and the same with another setting"),
            n => format!("{what}, and the same with {} other settings", n - 1),
        };
        FigureFinding { metric, location: at, observation: what, range }.to_string()
    };
    all.into_iter().map(told).collect()
}

/// Findings name up to this number of values of a fixed axis; beyond it they state the count.
const MAX_NAMED_VALUES: usize = 3;

/// Describes the axes that a figure restricts, apart from its horizontal axis, with the fixed values.
fn describe_fixed_axes(said: &model::StudyFigure, plan: &StudyPlan) -> String {
    let told = |axis: &PlannedAxis| {
        let (held, all) = (axis_settings(said, Some(axis)), axis.values.len());
        let values = match held.len() {
            n if n == all => return None,
            n if n > MAX_NAMED_VALUES => format!("{n} of {all}"),
            _ => held.iter().map(|v| v.text.as_str()).collect::<Vec<_>>().join(" or "),
        };
        Some(format!("{}: {values}", axis.label))
    };
    let axes = plan.axes.iter().filter(|axis| axis.name != said.x);
    axes.filter_map(told).collect::<Vec<_>>().join("; ")
}

/// Derives the finding at a figure's right end; `None` if all curves end at one value.
pub(super) fn derive_finding(
    figure: &ReportFigure,
    missing: &FailedDialogueFractions,
) -> Option<FigureFinding> {
    let last = |s: &FigureSeries| s.points.last().map(|p| p.x);
    let x = figure.series.iter().filter(|s| s.kind.is_measured()).filter_map(last).max_by(f64::total_cmp)?;
    let mut there: Vec<(&str, &usher_report::SeriesPoint)> = figure
        .series
        .iter()
        .filter(|s| s.kind.is_measured())
        .filter_map(|s| Some((s.name.as_str(), s.points.iter().find(|p| p.x == x)?)))
        .filter(|(_, p)| p.mean.is_finite())
        .collect();
    there.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
    let place = |x: f64| match figure.x.categories.get(x as usize) {
        Some(name) => name.clone(),
        None => format!("{} {}", format_number(x), figure.x.unit).trim_end().to_owned(),
    };
    // A share reads before its noun: "19 % loss on the link".
    let at = match figure.x.unit == "%" {
        true => format!("{} {}", place(x), lowercase_first(&figure.x.title)),
        false => format!("{} {}", lowercase_first(&figure.x.title), place(x)),
    };
    let medians = figure.series.iter().any(|s| s.kind == SeriesKind::Median);
    let value = |p: &usher_report::SeriesPoint| {
        let unit = &figure.y.unit;
        let told = match (p.interval(), p.half_width()) {
            // The interval is not symmetric: the value is a median, or lies at the bound of its metric.
            (Some((low, high)), half_width) if medians || half_width.is_none() => {
                let half = (high - low) / 2.0;
                let [value, low, high] = [p.mean, low, high].map(|v| format_to_interval_digits(v, half));
                format!("{value} ({low} to {high}) {unit}")
            }
            (_, half_width) => {
                format!("{} {unit}", format_significant(p.mean, half_width.unwrap_or(f64::NAN)))
            }
        };
        match (medians, p.moved, p.median) {
            (false, Some(_), Some(median)) => {
                let half = p.interval().map_or(p.mean, |(low, high)| (high - low) / 2.0);
                let median = format_to_interval_digits(median.median, half);
                format!("{}, but one replication moves this mean: median {median} {unit}", told.trim_end())
            }
            _ => told,
        }
    };
    let failed_at =
        |name: &str, x: f64| missing.get(&(name.to_owned(), x.to_bits())).map(|share| format_percent(*share));
    let failed = |name: &str| failed_at(name, x);
    let called = |name: &str| match failed(name) {
        Some(share) => format!("{name}; {share} failed"),
        None => name.to_owned(),
    };
    let what = match there[..] {
        [] => return None,
        [(name, only)] => {
            let failed = failed(name).map_or(String::new(), |share| format!(" ({share} failed)"));
            format!("{}{failed}", value(only).trim_end())
        }
        [(low, least), .., (high, most)] => {
            let (least, most) = (value(least), value(most));
            if least == most {
                return None;
            }
            format!(
                "lowest {} ({}), highest {} ({})",
                least.trim_end(),
                called(low),
                most.trim_end(),
                called(high)
            )
        }
    };
    // Name the minimum and the maximum once each: if several positions have the same value, the first.
    let measured = figure.series.iter().filter(|s| s.kind.is_measured());
    let all = || measured.clone().flat_map(|s| s.points.iter().map(move |p| (s.name.as_str(), p)));
    let finite = || all().filter(|(_, p)| p.mean.is_finite());
    let ends = finite()
        .min_by(|a, b| a.1.mean.total_cmp(&b.1.mean))
        .zip(finite().reduce(|most, next| if next.1.mean > most.1.mean { next } else { most }));
    let told = |(name, p): (&str, &usher_report::SeriesPoint)| {
        let value = format!("{} {}", format_significant(p.mean, f64::NAN), figure.y.unit);
        let failed = failed_at(name, p.x).map_or(String::new(), |share| format!("; {share} failed"));
        let name = if figure.series.len() > 1 { format!("{name}, ") } else { String::new() };
        format!("{} ({name}at {}{failed})", value.trim_end(), place(p.x))
    };
    let range = ends.filter(|(least, most)| least.1.x != most.1.x && least.1.mean != most.1.mean);
    let range = range.map(|(least, most)| format!("{} to {}", told(least), told(most)));
    Some(FigureFinding { metric: figure.y.title.clone(), location: at, observation: what, range })
}

/// Begins a title with a small letter, unless it begins with an abbreviation.
fn lowercase_first(title: &str) -> String {
    let mut chars = title.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(chars).collect(),
        _ => title.to_owned(),
    }
}

/// Formats a value to two digits of this half-width.
fn format_to_interval_digits(value: f64, half_width: f64) -> String {
    let magnitude = if half_width > 0.0 { libm::floor(libm::log10(half_width) + 1e-9) } else { 0.0 };
    format!("{value:.*}", (1.0 - magnitude).clamp(0.0, 12.0) as usize)
}

/// Formats a value with its significant digits: two of the interval's half-width, or three of its own.
pub(super) fn format_significant(value: f64, half_width: f64) -> String {
    let known = half_width.is_finite() && half_width > 0.0;
    let (scale, digits) = if known { (half_width, 1.0) } else { (value.abs(), 2.0) };
    // The small addition gives a half-width that rounding put just below 0.01 the digits of 0.01.
    let magnitude = if scale > 0.0 { libm::floor(libm::log10(scale) + 1e-9) } else { 0.0 };
    let places = (digits - magnitude).clamp(0.0, 12.0) as usize;
    if known { format!("{value:.places$} ± {half_width:.places$}") } else { format!("{value:.places$}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::moved_means::RobustSummaries;
    use crate::sweep::report::draw_figure;
    use usher_observe::MeanEstimate;

    #[test]
    fn a_report_tells_what_failed_before_what_it_found() {
        let study = usher_scenario::Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let said = &plan.figures[0];
        let mut estimates = MetricEstimatesByPoint::new();
        let point = plan.points.last().unwrap();
        let mut put = |metric: &str, mean| {
            estimates.insert(
                (super::super::plan::to_grid_point(point), metric.to_owned()),
                MeanEstimate { mean, half_width: 0.0, n: 5 },
            );
        };
        put("delay.mean", 1.0);
        put("failures", 0.5);
        let missing = collect_failed_fractions(said, &plan, &estimates);
        assert_eq!(missing.values().copied().collect::<Vec<_>>(), [0.5]);
        let drawn = draw_figure(said, study.file(), &plan, &estimates, &RobustSummaries::new());
        let text = derive_finding(&drawn, &missing).unwrap().to_string();
        assert!(text.ends_with(" (50.0 % failed)."), "{text}");
        // A figure of failures states them already.
        let mut of_failures = said.clone();
        of_failures.y.0 = vec!["failures".to_owned()];
        assert!(collect_failed_fractions(&of_failures, &plan, &estimates).is_empty());
    }

    #[test]
    fn a_links_metric_is_no_workloads_of_the_same_name() {
        let text = usher_scenario::default_template()
            .replace("[workload", "[workloads.core")
            .replace("\"workload.", "\"workloads.core.")
            .replace("delay.mean", "delay.mean.core");
        let text = text.replace("[run.replications]", "[run.replications]\nmetric = \"delay.mean.core\"");
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let point = super::super::plan::to_grid_point(plan.points.last().unwrap());
        let estimate = |mean| MeanEstimate { mean, half_width: 0.0, n: 5 };
        let values = ["failures.core", "delay.mean.core", "drops.core"]
            .map(|metric| ((point.clone(), metric.to_owned()), estimate(0.5)));
        let estimates = MetricEstimatesByPoint::from(values);
        let mut said = plan.figures[0].clone();
        assert_eq!(collect_failed_fractions(&said, &plan, &estimates).len(), 1);
        said.y.0 = vec!["drops.core".to_owned()];
        assert!(collect_failed_fractions(&said, &plan, &estimates).is_empty());
    }

    #[test]
    fn a_finding_names_the_extremes_at_the_right_end() {
        let point = |x, mean| {
            usher_report::SeriesPoint::from_estimate(x, &MeanEstimate { mean, half_width: 0.01, n: 5 })
        };
        let series = |name: &str, means: [f64; 2]| FigureSeries {
            name: name.to_owned(),
            points: vec![point(0.0, means[0]), point(20.0, means[1])],
            ..FigureSeries::default()
        };
        let mut figure = ReportFigure {
            x: FigureAxis::new("Loss", "%"),
            y: FigureAxis::new("mean delay", "s"),
            series: vec![series("tcp", [0.1, 2.0]), series("sctp", [0.1, 1.0]), series("udp", [0.1, 0.5])],
            ..ReportFigure::default()
        };
        let said = "Mean delay at 20 % loss: lowest 0.500 ± 0.010 s (udp), highest 2.000 ± 0.010 s (tcp). \
                    Over all values: 0.100 s (tcp, at 0 %) to 2.00 s (tcp, at 20 %).";
        let none = FailedDialogueFractions::new();
        let told = |figure: &ReportFigure, missing: &FailedDialogueFractions| {
            derive_finding(figure, missing).map(|found| found.to_string())
        };
        assert_eq!(told(&figure, &none).as_deref(), Some(said));
        // The finding states the failures beside the value: they explain it.
        let missing = FailedDialogueFractions::from([(("udp".to_owned(), 20_f64.to_bits()), 0.9)]);
        let said = "Mean delay at 20 % loss: lowest 0.500 ± 0.010 s (udp; 90.0 % failed), highest 2.000 ± 0.010 s (tcp). \
                    Over all values: 0.100 s (tcp, at 0 %) to 2.00 s (tcp, at 20 %).";
        assert_eq!(told(&figure, &missing).as_deref(), Some(said));
        // The maximum may be in the interior of the axis.
        let mut peak = figure.clone();
        peak.series[1].points.insert(1, point(10.0, 3.0));
        let range = "Over all values: 0.100 s (tcp, at 0 %) to 3.00 s (sctp, at 10 %; 2.00 % failed).";
        let missing = FailedDialogueFractions::from([(("sctp".to_owned(), 10_f64.to_bits()), 0.02)]);
        assert!(told(&peak, &missing).unwrap().ends_with(range), "{:?}", told(&peak, &missing));
        figure.series.truncate(1);
        let range = "Over all values: 0.100 s (at 0 %) to 2.00 s (at 20 %).";
        let said = format!("Mean delay at 20 % loss: 2.000 ± 0.010 s. {range}");
        assert_eq!(told(&figure, &none), Some(said));
        let missing = FailedDialogueFractions::from([(("tcp".to_owned(), 20_f64.to_bits()), 0.05)]);
        let said = "Mean delay at 20 % loss: 2.000 ± 0.010 s (5.00 % failed). \
                    Over all values: 0.100 s (at 0 %) to 2.00 s (at 20 %; 5.00 % failed).";
        assert_eq!(told(&figure, &missing).as_deref(), Some(said));
        // One position is not a range.
        figure.series[0].points.remove(0);
        assert_eq!(told(&figure, &none).as_deref(), Some("Mean delay at 20 % loss: 2.000 ± 0.010 s."));
        figure.series.clear();
        assert_eq!(derive_finding(&figure, &none), None);
    }

    #[test]
    fn a_share_ends_at_one() {
        let study = usher_scenario::Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let mut said = plan.figures[0].clone();
        let mut drawn = |metric: &str, mean: f64, half_width: f64| {
            said.y.0 = vec![metric.to_owned()];
            let of = |p| {
                (
                    (crate::sweep::plan::to_grid_point(p), metric.to_owned()),
                    MeanEstimate { mean, half_width, n: 5 },
                )
            };
            let estimates: MetricEstimatesByPoint = plan.points.iter().map(of).collect();
            let mut drawn = draw_figure(&said, study.file(), &plan, &estimates, &RobustSummaries::new());
            drawn.series.truncate(1);
            drawn
        };
        let share = drawn("success", 0.91, 0.78);
        assert!(share.y.shares && share.series.iter().flat_map(|s| &s.points).all(|p| p.high == 1.0));
        let text = derive_finding(&share, &FailedDialogueFractions::new()).unwrap().to_string();
        assert!(text.contains(" 0.91 (0.13 to 1.00)."), "{text}");
        let time = drawn("delay.mean", 0.91, 0.78);
        let text = derive_finding(&time, &FailedDialogueFractions::new()).unwrap().to_string();
        assert!(!time.y.shares && text.contains("0.91 ± 0.78 s"), "{text}");
        // After the cut at a bound, half of the interval is not its half-width.
        let text = derive_finding(&drawn("delay.mean", 0.5, 0.9), &FailedDialogueFractions::new())
            .unwrap()
            .to_string();
        assert!(text.contains(" 0.50 (0.00 to 1.40) s"), "{text}");
    }

    #[test]
    fn a_finding_says_what_its_figure_holds_fixed() {
        let study = usher_scenario::Study::parse("t", "t.toml", usher_scenario::default_template()).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let transports = &plan.axes.iter().find(|a| a.name == "transport").unwrap().values;
        assert_eq!(transports.len(), 2);
        let of = |held: &[usize]| {
            let texts = held.iter().map(|i| model::ConfigValue::Text(transports[*i].text.clone())).collect();
            let mut said = plan.figures[0].clone();
            said.series.clear();
            said.filter = [("transport".to_owned(), model::ConfigValue::Array(texts))].into_iter().collect();
            said
        };
        let told = |all: &[model::StudyFigure], second: f64| {
            let mean = |p: &usher_scenario::PlanPoint| {
                if p.axis_setting("transport").unwrap().text == transports[1].text { second } else { 1.0 }
            };
            let estimate = |p| MeanEstimate { mean: mean(p), half_width: 0.0, n: 5 };
            let metric = "delay.mean".to_owned();
            let all_of = plan.points.iter();
            let estimates: MetricEstimatesByPoint = all_of
                .map(|p| ((crate::sweep::plan::to_grid_point(p), metric.clone()), estimate(p)))
                .collect();
            let figure = |said| draw_figure(said, study.file(), &plan, &estimates, &RobustSummaries::new());
            let drawn: Vec<_> = all.iter().map(|said| (said, figure(said))).collect();
            collect_findings(&drawn, study.file(), &plan, &estimates)
        };
        let sentence = |i: usize, value: &str| {
            format!(
                "Mean delay of the completed dialogues at 5 % loss on the core link (Transport: {}): {value} s.",
                transports[i].text
            )
        };
        let both = [sentence(0, "1.00"), sentence(1, "2.00")];
        assert_eq!(told(&[of(&[0]), of(&[1])], 2.0), both);
        assert_eq!(told(&[of(&[0]), of(&[1]), of(&[1])], 2.0), both, "the same figure twice");
        let same = sentence(0, "1.00").replace(" s.", " s, and the same with another setting.");
        assert_eq!(told(&[of(&[0]), of(&[1])], 1.0), [same]);
        // All values of an axis are not a fixed setting, and equal values have no range.
        let of_all = model::StudyFigure { series: vec!["transport".to_owned()], ..of(&[0, 1]) };
        assert!(
            told(std::slice::from_ref(&of_all), 2.0)[0]
                .starts_with("Mean delay of the completed dialogues at 5 % loss on the core link: lowest")
        );
        assert_eq!(told(&[of_all], 1.0), Vec::<String>::new());
    }

    #[test]
    fn a_value_has_the_digits_that_it_is_sure_of() {
        for (value, half_width, text) in [
            (0.014_632, 0.000_048, "0.014632 ± 0.000048"),
            (2.541_7, 0.826, "2.54 ± 0.83"),
            (12_345.6, 678.9, "12346 ± 679"),
            (0.012_345, 0.0, "0.0123"),
            (123.4, f64::INFINITY, "123"),
            (0.0, 0.0, "0.00"),
            (-5.0, f64::NAN, "-5.00"),
        ] {
            assert_eq!(format_significant(value, half_width), text);
        }
    }

    #[test]
    fn a_figure_may_show_several_metrics() {
        let text = usher_scenario::default_template()
            .replace("y = \"delay.mean\"", "y = [\"delay.p50\", \"delay.p95\"]");
        let study = usher_scenario::Study::parse("t", "t.toml", &text).unwrap();
        let plan = study
            .build_plan(usher_scenario::StudyMode::Quick, &usher_scenario::PlanOverrides::default())
            .unwrap();
        let said = plan.figures.iter().find(|f| f.y.0.len() == 2).unwrap();
        let mut estimates = MetricEstimatesByPoint::new();
        for (i, point) in plan.points.iter().enumerate() {
            let more = if i + 1 == plan.points.len() { 0.5 } else { 0.0 };
            let point = super::super::plan::to_grid_point(point);
            for (metric, mean) in [("delay.p50", 1.0), ("delay.p95", 2.0)] {
                let estimate = MeanEstimate { mean: mean + more, half_width: 0.0, n: 5 };
                estimates.insert((point.clone(), metric.to_owned()), estimate);
            }
        }
        let drawn = draw_figure(said, study.file(), &plan, &estimates, &RobustSummaries::new());
        assert_eq!(drawn.y.title, "delay.p50, delay.p95", "the first is not what the second is");
        let found: Vec<String> = split_figure_by_metric(said, study.file(), &drawn)
            .iter()
            .filter_map(|figure| derive_finding(figure, &FailedDialogueFractions::new()))
            .map(|found| found.to_string())
            .collect();
        assert_eq!(found.len(), 2);
        assert!(
            found[0].starts_with("Median delay of the completed dialogues at ")
                && found[0].contains("1.00 s"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("Delay that 95 % of the completed dialogues stay below at "),
            "{found:?}"
        );
        assert!(found[1].contains("2.00 s") && !found[1].contains("median"), "{found:?}");
        assert!(drawn.series.len().is_multiple_of(2) && !drawn.series.is_empty());
        for series in &drawn.series {
            let mean = if series.name.ends_with("delay.p50") { 1.0 } else { 2.0 };
            assert!(series.name.ends_with("delay.p95") || mean == 1.0, "{}", series.name);
            assert!(series.points.iter().all(|p| p.mean == mean || p.mean == mean + 0.5));
        }
    }
}
