//! The values of an axis: text for keys and rows, numbers for figures.

use crate::check::{SettingFault, find_repeated, keys};
use crate::metrics;
use crate::model::{ConfigValue, FigureKind, StudyAxis, StudyFigure, StudyFile, SweepPointStatistic};
use crate::reference;
use usher_config::OrderedMap;
use usher_config::name_hint;
use usher_config::units::Quantity;

/// Formats a value for keys, rows and `--set`; quantities have one space before the unit.
pub(crate) fn format_value(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => match Quantity::parse(text) {
            Some(q) => format!("{} {}", q.number, q.unit),
            None => text.trim().to_owned(),
        },
        other => other.to_string(),
    }
}

/// Returns the unit in which figures show an axis: its own, or that of its first value.
pub(crate) fn axis_unit(axis: &StudyAxis) -> Option<String> {
    axis.unit.clone().or_else(|| match axis.values.first()? {
        ConfigValue::Text(text) => Quantity::parse(text).map(|q| q.unit.to_owned()),
        _ => None,
    })
}

/// Converts a value to a number in a unit. A plain number stays as it is.
pub(crate) fn value_in_unit(value: &ConfigValue, unit: Option<&str>) -> Option<f64> {
    match value {
        ConfigValue::Integer(n) => Some(*n as f64),
        ConfigValue::Float(x) => Some(*x),
        // A case whose name is a number is drawn at that number.
        ConfigValue::Text(text) => match text.trim().parse() {
            Ok(number) => Some(number),
            Err(_) => Quantity::parse(text)?.convert_to(unit?),
        },
        _ => None,
    }
}

/// Returns the faults of axes and figures that no single value shows.
pub(crate) fn check_axes(file: &StudyFile) -> Vec<SettingFault> {
    let mut findings = Vec::new();
    for (i, name) in find_repeated(file.axes.iter().map(|a| a.name.as_str())) {
        findings.push((keys!["axes", i, "name"], format!("there is another axis \"{name}\"")));
    }
    for (i, axis) in file.axes.iter().enumerate() {
        let mut fault = |key: &str, message: String| findings.push((keys!["axes", i, key], message));
        let name = &axis.name;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            fault("name", format!("\"{name}\" may have only letters, digits, \"-\" and \"_\""));
        }
        let (named, valued) = (!axis.cases.is_empty(), !axis.values.is_empty() || !axis.set.0.is_empty());
        match (named, valued) {
            (true, true) => fault(
                "cases",
                format!("axis \"{name}\" has both cases and set or values: leave one of the two out"),
            ),
            (false, false) => fault("name", format!("axis \"{name}\" needs set and values, or cases")),
            (false, true) if axis.set.0.is_empty() => {
                fault("values", format!("axis \"{name}\" lacks set, the path of the setting"))
            }
            (false, true) if axis.values.is_empty() => fault("set", format!("axis \"{name}\" lacks values")),
            _ => {}
        }
        if let Some(relax) = &axis.relax
            && value_in_unit(&relax.from, axis_unit(axis).as_deref()).is_none()
        {
            fault(
                "relax",
                format!("axis \"{name}\" has no order: {} is not a number", format_value(&relax.from)),
            );
        }
        let lists = [
            ("values", Some(&axis.values)),
            ("quick", axis.quick.as_ref()),
            ("full", axis.full.as_ref()),
            ("sensitivity", axis.sensitivity.as_ref()),
            ("lab", axis.lab.as_ref()),
        ];
        for (key, values) in lists {
            let Some(values) = values else { continue };
            if key != "values" && values.is_empty() {
                findings.push((
                    keys!["axes", i, key],
                    format!("axis \"{name}\" has an empty list here: add values, or leave it out"),
                ));
            }
            let texts: Vec<String> = values.iter().map(format_value).collect();
            for (j, repeated) in find_repeated(texts.iter().map(String::as_str)) {
                findings.push((keys!["axes", i, key, j], format!("\"{repeated}\" is listed twice")));
            }
            for (j, case) in texts.iter().enumerate() {
                if named && axis.cases.get(case).is_none() {
                    let near = name_hint(case, axis.cases.names());
                    findings.push((keys!["axes", i, key, j], format!("there is no case \"{case}\"{near}")));
                }
            }
            if let Some(unit) = axis.unit.as_deref() {
                for (j, value) in values.iter().enumerate() {
                    if let ConfigValue::Text(text) = value
                        && let Some(quantity) = Quantity::parse(text)
                        && quantity.convert_to(unit).is_none()
                    {
                        let units: Vec<&str> = quantity.dimension.units().collect();
                        let message = format!(
                            "\"{text}\" cannot be converted to \"{unit}\", the axis's unit{}",
                            name_hint(unit, units)
                        );
                        findings.push((keys!["axes", i, key, j], message));
                    }
                }
            }
        }
    }
    check_axis_choices(file, &mut findings);
    check_recommendations(file, &mut findings);
    check_figures(file, &mut findings);
    findings
}

fn check_recommendations(file: &StudyFile, findings: &mut Vec<SettingFault>) {
    for (i, said) in file.recommendations.iter().enumerate() {
        let axes = file.axes.iter().map(|a| a.name.as_str());
        for choose in said.choose.0.iter().filter(|c| !axes.clone().any(|a| a == **c)) {
            let message = format!("there is no axis \"{choose}\"{}", name_hint(choose, axes.clone()));
            findings.push((keys!["recommendations", i, "choose"], message));
        }
        if let Some(message) = metrics::explain_unknown(&said.metric, file) {
            findings.push((keys!["recommendations", i, "metric"], message));
        }
        check_axis_filter(file, keys!["recommendations", i, "where"], &said.filter, findings);
        findings.extend(said.limit.iter().flat_map(|limit| reference::check_limit(file, i, limit)));
    }
}

/// Checks that the axes of a `where` exist and have the values that it names.
fn check_axis_filter(
    file: &StudyFile,
    path: Vec<String>,
    filter: &OrderedMap<ConfigValue>,
    findings: &mut Vec<SettingFault>,
) {
    let mut fault = |held: &str, message: String| {
        findings.push((path.iter().cloned().chain([held.to_owned()]).collect(), message));
    };
    for (held, value) in filter.iter() {
        let Some(axis) = file.axes.iter().find(|a| a.name == held) else {
            let near = name_hint(held, file.axes.iter().map(|a| a.name.as_str()));
            fault(held, format!("there is no axis \"{held}\"{near}"));
            continue;
        };
        let known: Vec<String> = match axis.cases.is_empty() {
            true => axis.values.iter().map(format_value).collect(),
            false => axis.cases.names().map(str::to_owned).collect(),
        };
        let wanted = match value {
            ConfigValue::Array(values) => values.iter().map(format_value).collect(),
            value => vec![format_value(value)],
        };
        for wanted in wanted.iter().filter(|w| !known.contains(w)) {
            let near = name_hint(wanted, known.iter().map(String::as_str));
            fault(held, format!("axis \"{held}\" has no value \"{wanted}\"{near}"));
        }
    }
}

fn check_axis_choices(file: &StudyFile, findings: &mut Vec<SettingFault>) {
    for (i, name) in find_repeated(file.choices.iter().map(|c| c.name.as_str())) {
        findings.push((keys!["choices", i, "name"], format!("there is another choice \"{name}\"")));
    }
    for (i, choice) in file.choices.iter().enumerate() {
        if choice.cases.is_empty() {
            findings.push((keys!["choices", i, "cases"], format!("choice \"{}\" lacks cases", choice.name)));
        }
    }
}

/// Checks that a figure has the settings that its kind needs, and no others.
fn of_kind(file: &StudyFile, i: usize, figure: &StudyFigure, findings: &mut Vec<SettingFault>) {
    let mut fault = |key: &str, message: &str| findings.push((keys!["figures", i, key], message.to_owned()));
    if !figure.kind.of_dialogues() {
        if figure.x.is_empty() {
            fault("name", "the figure lacks x, its horizontal axis");
        }
    } else {
        if !figure.x.is_empty() {
            fault("x", "figures of this kind have their own horizontal axis: leave x out");
        }
        let delay =
            |name: &String| metrics::find_metric(name, file).is_some_and(|m| m.name.starts_with("delay."));
        if figure.y.0.len() != 1 || !figure.y.0.iter().all(delay) {
            fault("y", "figures of this kind draw delays of dialogues: write y = \"delay.mean\"");
        }
    }
    let plain = figure.kind == FigureKind::Curve;
    for (key, set) in [
        ("along", figure.along.is_some()),
        ("analytic", figure.analytic.is_some()),
        ("fit", figure.fit.is_some()),
        ("reference", !figure.reference.is_empty()),
        ("statistic", figure.statistic != SweepPointStatistic::Mean),
    ] {
        if set && !plain {
            fault(key, "figures of this kind do not have this setting: leave it out");
        }
    }
}

fn check_figures(file: &StudyFile, findings: &mut Vec<SettingFault>) {
    for (i, name) in find_repeated(file.figures.iter().map(|f| f.name.as_str())) {
        findings.push((keys!["figures", i, "name"], format!("there is another figure \"{name}\"")));
    }
    let axis = |name: &str| file.axes.iter().find(|a| a.name == name);
    let missing = |name: &str| {
        format!("there is no axis \"{name}\"{}", name_hint(name, file.axes.iter().map(|a| a.name.as_str())))
    };
    for (i, figure) in file.figures.iter().enumerate() {
        let name = &figure.name;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            findings.push((
                keys!["figures", i, "name"],
                format!("\"{name}\" may have only letters, digits, \"-\" and \"_\""),
            ));
        }
        of_kind(file, i, figure, findings);
        match (&figure.along, axis(&figure.x)) {
            _ if figure.kind.of_dialogues() => {}
            (None, Some(_)) => {}
            (None, None) if metrics::find_metric(&figure.x, file).is_some() => findings.push((
                keys!["figures", i, "x"],
                format!(
                    "\"{}\" is a metric: set along to the axis whose values are the points of a curve",
                    figure.x
                ),
            )),
            (None, None) => findings.push((keys!["figures", i, "x"], missing(&figure.x))),
            (Some(_), Some(_)) => findings.push((
                keys!["figures", i, "along"],
                format!(
                    "x is the axis \"{}\" already: leave along out, which is for a metric as x",
                    figure.x
                ),
            )),
            (Some(along), None) => {
                if axis(along).is_none() {
                    findings.push((keys!["figures", i, "along"], missing(along)));
                }
                let message = metrics::explain_unknown(&figure.x, file);
                findings.extend(message.map(|m| (keys!["figures", i, "x"], m)));
            }
        }
        let mut units: Vec<&str> = Vec::new();
        for y in &figure.y.0 {
            match metrics::explain_unknown(y, file) {
                Some(message) => findings.push((keys!["figures", i, "y"], message)),
                None => units.extend(metrics::find_metric(y, file).map(|m| m.unit)),
            }
        }
        if figure.analytic.is_some() && file.workloads.len() > 1 {
            let message =
                "closed forms need a study with one workload, and this study has several: leave this out"
                    .to_owned();
            findings.push((keys!["figures", i, "analytic"], message));
        }
        let named = |axis: &StudyAxis| {
            let unit = axis_unit(axis);
            !axis.cases.is_empty() || axis.values.iter().any(|v| value_in_unit(v, unit.as_deref()).is_none())
        };
        if figure.fit.is_some() && axis(&figure.x).is_some_and(named) {
            let message = format!(
                "the values of \"{}\" are not numbers, so no line can be fitted: leave this out",
                figure.x
            );
            findings.push((keys!["figures", i, "fit"], message));
        }
        if figure.y.0.is_empty() || units.iter().any(|u| *u != units[0]) {
            let message = "expected one metric, or several of the same unit".to_owned();
            findings.push((keys!["figures", i, "y"], message));
        }
        findings.extend(reference::check_references(file, i, figure));
        for (j, series) in figure.series.iter().enumerate() {
            if axis(series).is_none() {
                findings.push((keys!["figures", i, "series", j], missing(series)));
            }
        }
        check_axis_filter(file, keys!["figures", i, "where"], &figure.filter, findings);
        for axis in &file.axes {
            let many = axis.values.len().max(axis.cases.len()) > 1;
            let used = figure.x == axis.name
                || figure.along.as_ref() == Some(&axis.name)
                || figure.series.contains(&axis.name)
                || figure.filter.get(&axis.name).is_some();
            if many && !used {
                let message = format!(
                    "axis \"{}\" has several values: make it x or along, add it to series, or fix it with where",
                    axis.name
                );
                findings.push((keys!["figures", i, "name"], message));
            }
        }
    }
}
