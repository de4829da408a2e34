//! Measurements of others, as numbers that a figure can draw.

use crate::axis::{axis_unit, format_value, value_in_unit};
use crate::check::{SettingFault, keys};
use crate::metrics;
use crate::model::{ConfigValue, MetricLimit, ReferencePoint, ReferenceSeries, StudyFigure, StudyFile};
use usher_config::units::Quantity;

/// One point of a [`ReferenceSeries`].
#[derive(Clone, PartialEq, Debug)]
pub struct ReferenceSeriesPoint {
    /// The axis value, as in keys and rows.
    pub text: String,
    /// The axis value as a number in the axis's unit, if it is numeric.
    pub x: Option<f64>,
    /// The measured value, in the metric's unit.
    pub y: f64,
    /// The bounds of its interval, if both are given.
    pub ends: Option<(f64, f64)>,
    /// The number of replications; 0 if unknown.
    pub n: u32,
}

/// Returns the points of a figure's reference. Omits unreadable points, because the check of the study reports them.
pub fn reference_values(
    file: &StudyFile,
    figure: &StudyFigure,
    reference: &ReferenceSeries,
) -> Vec<ReferenceSeriesPoint> {
    reference.points.iter().filter_map(|p| read_reference_point(file, figure, p).ok()).collect()
}

/// Reads a point, or returns the faulty key and the fault.
fn read_reference_point(
    file: &StudyFile,
    figure: &StudyFigure,
    point: &ReferencePoint,
) -> Result<ReferenceSeriesPoint, (&'static str, String)> {
    let Some(axis) = file.axes.iter().find(|a| a.name == figure.x) else {
        return Err(("x", "a figure of one metric over another cannot show reference points".to_owned()));
    };
    let x = value_in_unit(&point.x, axis_unit(axis).as_deref());
    let called = format_value(&point.x);
    let known = axis.values.iter().map(format_value).chain(axis.cases.names().map(str::to_owned));
    if x.is_none() && !known.into_iter().any(|k| k == called) {
        return Err(("x", format!("axis \"{}\" has no value \"{called}\"", axis.name)));
    }
    let metric = figure.y.0.first().and_then(|y| metrics::find_metric(y, file)).map_or("", |m| m.unit);
    let of = |key, value: &ConfigValue| measured_value(value, metric).map_err(|message| (key, message));
    let y = of("y", &point.y)?;
    let low = point.low.as_ref().map(|v| of("low", v)).transpose()?;
    let high = point.high.as_ref().map(|v| of("high", v)).transpose()?;
    let ends = low.zip(high);
    if low.is_some() != high.is_some() || ends.is_some_and(|(low, high)| low > y || y > high) {
        return Err(("y", "give both low and high or neither, with y between them".to_owned()));
    }
    Ok(ReferenceSeriesPoint { text: called, x, y, ends, n: point.n.map_or(0, |n| n.get()) })
}

/// Returns the bounds of a recommendation's limit, in the metric's unit. An unreadable bound does not apply, because
/// the check of the study reports it.
pub fn limit_range<'a>(
    limit: &MetricLimit,
    names: impl Into<metrics::MetricNames<'a>>,
) -> (Option<f64>, Option<f64>) {
    let unit = metrics::find_metric(&limit.metric, names).map_or("", |metric| metric.unit);
    let of = |value: &Option<ConfigValue>| value.as_ref().and_then(|value| measured_value(value, unit).ok());
    (of(&limit.least), of(&limit.most))
}

/// Returns the faults of a recommendation's limit.
pub(crate) fn check_limit(file: &StudyFile, i: usize, limit: &MetricLimit) -> Vec<SettingFault> {
    if let Some(message) = metrics::explain_unknown(&limit.metric, file) {
        return vec![(keys!["recommendations", i, "limit", "metric"], message)];
    }
    let unit = metrics::find_metric(&limit.metric, file).map_or("", |metric| metric.unit);
    let mut findings = Vec::new();
    for (key, value) in [("most", &limit.most), ("least", &limit.least)] {
        if let Some(Err(message)) = value.as_ref().map(|value| measured_value(value, unit)) {
            findings.push((keys!["recommendations", i, "limit", key], message));
        }
    }
    let fault = |message: &str| (keys!["recommendations", i, "limit"], message.to_owned());
    match limit_range(limit, file) {
        (None, None) if findings.is_empty() => {
            findings.push(fault("the limit has no bound: give most, least or both"));
        }
        (Some(least), Some(most)) if least > most => {
            findings.push(fault("no value is within the limit: least is above most"));
        }
        _ => {}
    }
    findings
}

/// Converts a measured value to the metric's unit; a share may be a percentage.
fn measured_value(value: &ConfigValue, unit: &str) -> Result<f64, String> {
    match (value, unit) {
        (ConfigValue::Integer(n), "") => Ok(*n as f64),
        (ConfigValue::Float(x), "") if x.is_finite() => Ok(*x),
        (ConfigValue::Text(text), "") if text.trim().ends_with('%') => Quantity::parse(text)
            .map(Quantity::in_base_unit)
            .ok_or_else(|| format!("\"{text}\" is not a share such as \"1 %\"")),
        (ConfigValue::Text(text), unit) if !unit.is_empty() => Quantity::parse(text)
            .and_then(|q| q.convert_to(unit))
            .ok_or_else(|| format!("\"{text}\" is not a value in \"{unit}\", the metric's unit")),
        (other, "") => Err(format!("{other} is not a plain number, and the metric has no unit")),
        (other, unit) => Err(format!("{other} lacks its unit: the metric's is \"{unit}\"")),
    }
}

/// Returns the faults of a figure's references.
pub(crate) fn check_references(file: &StudyFile, i: usize, figure: &StudyFigure) -> Vec<SettingFault> {
    let mut findings = Vec::new();
    if figure.along.is_none() && !file.axes.iter().any(|a| a.name == figure.x) {
        // The axis itself is at fault, which is reported elsewhere.
        return findings;
    }
    for (j, reference) in figure.reference.iter().enumerate() {
        if reference.points.is_empty() {
            let message = format!("\"{}\" has no points", reference.name);
            findings.push((keys!["figures", i, "reference", j, "points"], message));
        }
        for (k, point) in reference.points.iter().enumerate() {
            if let Err((key, message)) = read_reference_point(file, figure, point) {
                findings.push((keys!["figures", i, "reference", j, "points", k, key], message));
            }
        }
    }
    findings
}
