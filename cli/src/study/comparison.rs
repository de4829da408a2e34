//! `usher study run NAME --on both`: compares the simulator with the lab's kernel.

use crate::output::{CommandFailure, ConsoleOutput, format_columns, format_rounded};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use usher_observe::compare::{MetricComparison, compare_rows};
use usher_observe::manifest::RunManifest;
use usher_observe::row::format_number;
use usher_observe::{MeanEstimate, ResultRow, csv, file};
use usher_report::{
    FigureAxis, FigureSeries, HtmlReport, ReportColumn, ReportFigure, ReportSection, ReportTable, SeriesKind,
    SeriesPoint, TableCell,
};
use usher_runner::sweep::key;
use usher_scenario::{Study, StudyPlan, metrics};

/// The folders of both runs, and the file of their differences.
pub(super) const SIM: &str = "sim";
pub(super) const LAB: &str = "lab";
const FILE: &str = "agreement.csv";
const LEVEL: f64 = 0.95;
/// The metric shown first, if the study has it.
const DELAY: &str = "delay.mean";

/// A difference up to this share of the simulator's mean counts as agreement.
const CLOSE: f64 = 0.1;

/// The comparison of two means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MeanComparisonVerdict {
    /// The whole confidence interval of the difference is within a tenth.
    Agree,
    /// The whole confidence interval is outside.
    Differ,
    /// The replications do not decide.
    Open,
}

impl MeanComparisonVerdict {
    fn from_comparison(compared: &MetricComparison) -> Self {
        let (mean, half) = (compared.difference.mean, compared.difference.half_width);
        let bound = CLOSE * compared.a.mean.abs();
        if mean.abs() + half <= bound {
            Self::Agree
        } else if mean.abs() - half > bound {
            Self::Differ
        } else {
            Self::Open
        }
    }
    const fn word(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Differ => "differ",
            Self::Open => "open",
        }
    }
}

/// Returns the difference as a share of the simulator's mean, with its half-width.
fn relative_difference(compared: &MetricComparison) -> Option<(f64, f64)> {
    let of = compared.a.mean.abs();
    (of > 0.0).then(|| (compared.difference.mean / of, compared.difference.half_width / of))
}

fn format_percent((mean, half): (f64, f64)) -> String {
    match half.is_finite() {
        true => format!("{:+.1} % ± {:.1} %", 100.0 * mean, 100.0 * half),
        false => format!("{:+.1} %", 100.0 * mean),
    }
}

/// Compares the runs in the two folders below this one, and writes the result here.
pub(super) fn compare_backends(
    output: &ConsoleOutput,
    path: &Path,
    study: &Study,
    plan: &StudyPlan,
) -> Result<Value, CommandFailure> {
    let rows = |name: &str| -> Result<Vec<ResultRow>, CommandFailure> {
        csv::read_csv(&path.join(name).join("results.csv")).map_err(CommandFailure::runtime_error)
    };
    // Replication i has the same arrivals and the same random streams of links in both.
    let compared = compare_rows(&rows(SIM)?, &rows(LAB)?, true, LEVEL);
    let first = plan.points.first();
    let delays = compared.both.iter().any(|c| &*c.metric == DELAY);
    let watched = first.map_or(DELAY, |p| p.scenario.run.replications.metric.as_str());
    let metric = if delays { DELAY } else { watched };
    let of_metric: Vec<&MetricComparison> = compared.both.iter().filter(|c| &*c.metric == metric).collect();
    let manifest = RunManifest::read_file(&path.join(LAB).join("manifest.json"))
        .map_err(CommandFailure::runtime_error)?;
    let kernel = manifest.host.kernel.clone();

    file::write_file(&path.join(FILE), |out| out.write_all(format_comparison_csv(&compared.both).as_bytes()))
        .map_err(CommandFailure::runtime_error)?;
    let report = HtmlReport {
        title: format!("{}: simulator and kernel", study.file().title),
        question: format!("Does {kernel} behave as the simulator predicts?"),
        findings: vec![summarize_agreement(&of_metric, metric)],
        description: "The simulator and network namespaces of the kernel run the same points, with the same \
                      roles and random streams. The links of the namespaces are the simulator's own \
                      channels. A difference is the kernel's mean less the simulator's, with its 95 % \
                      confidence interval. Both agree if the whole interval is within a tenth of the \
                      simulator's mean, and differ if the whole interval is outside. Otherwise the \
                      replications do not decide, and the verdict is open."
            .to_owned(),
        sections: vec![
            ReportSection {
                figures: vec![draw_agreement_figure(plan, &of_metric, metric)],
                tables: vec![comparison_table("Agreement at each point", &of_metric)],
                ..ReportSection::default()
            },
            ReportSection {
                title: "All metrics".to_owned(),
                tables: vec![comparison_table("", &compared.both.iter().collect::<Vec<_>>())],
                ..ReportSection::default()
            },
        ],
        manifest: Some(manifest),
        ..HtmlReport::default()
    };
    let written = report.write_files(path).map_err(CommandFailure::runtime_error)?;
    if !output.json {
        let mut lines = vec![["POINT", "SIMULATOR", "KERNEL", "DIFFERENCE", ""].map(str::to_owned).to_vec()];
        lines.extend(of_metric.iter().map(|c| {
            let shown = relative_difference(c).map(format_percent).unwrap_or_default();
            vec![
                key::format_point(&c.point),
                format_estimate(&c.a),
                format_estimate(&c.b),
                shown,
                MeanComparisonVerdict::from_comparison(c).word().to_owned(),
            ]
        }));
        output.print_text(&format!(
            "{metric}\n{}\nreport of both: {}\n",
            format_columns(&lines),
            written.display()
        ))?;
    }
    Ok(json!({
        "metric": metric, "kernel": kernel, "report": written.display().to_string(),
        "points": of_metric.iter().map(|c| json!({
            "point": key::format_point(&c.point), "sim": c.a.mean, "lab": c.b.mean, "difference": c.difference.mean,
            "half_width": c.difference.half_width, "verdict": MeanComparisonVerdict::from_comparison(c).word(),
        })).collect::<Vec<_>>(),
    }))
}

fn format_estimate(e: &MeanEstimate) -> String {
    match e.half_width.is_finite() {
        true => format!("{} ± {}", format_rounded(e.mean), format_rounded(e.half_width)),
        false => format_rounded(e.mean),
    }
}

fn summarize_agreement(compared: &[&MetricComparison], metric: &str) -> String {
    let count =
        |verdict| compared.iter().filter(|c| MeanComparisonVerdict::from_comparison(c) == verdict).count();
    let (agree, differ, open) = (
        count(MeanComparisonVerdict::Agree),
        count(MeanComparisonVerdict::Differ),
        count(MeanComparisonVerdict::Open),
    );
    let worst = compared.iter().max_by(|a, b| {
        let size = |c: &MetricComparison| relative_difference(c).map_or(0.0, |(mean, _)| mean.abs());
        size(a).total_cmp(&size(b))
    });
    let mut text = format!(
        "{metric} agrees within {} % at {agree} of {} points, differs at {differ}, and is open at {open}.",
        format_number(CLOSE * 100.0),
        compared.len()
    );
    if let Some((worst, by)) = worst.and_then(|c| Some((c, relative_difference(c)?))) {
        let _ = write!(
            text,
            " The largest difference is at {}: {}.",
            key::format_point(&worst.point),
            format_percent(by)
        );
    }
    text
}

fn comparison_table(title: &str, compared: &[&MetricComparison]) -> ReportTable {
    let columns = ["Point", "Metric", "Simulator", "Kernel", "Difference", "Relative to the simulator", ""];
    ReportTable {
        title: title.to_owned(),
        columns: columns.map(|title| ReportColumn::new(title, "")).to_vec(),
        rows: compared
            .iter()
            .map(|c| {
                vec![
                    key::format_point(&c.point).into(),
                    c.metric.to_string().into(),
                    c.a.into(),
                    c.b.into(),
                    c.difference.into(),
                    relative_difference(c).map_or(TableCell::Empty, |s| format_percent(s).into()),
                    MeanComparisonVerdict::from_comparison(c).word().into(),
                ]
            })
            .collect(),
        folded: false,
    }
}

/// Draws a metric over the plan's first numeric axis, with a series for each network and combination of the other
/// axes.
fn draw_agreement_figure(plan: &StudyPlan, compared: &[&MetricComparison], metric: &str) -> ReportFigure {
    let share =
        plan.points.first().and_then(|p| metrics::find_metric(metric, &p.scenario)).is_some_and(|m| m.share);
    let axis = plan.axes.iter().find(|a| a.values.len() > 1 && a.values.iter().all(|v| v.number.is_some()));
    let mut series: BTreeMap<(String, &str), FigureSeries> = BTreeMap::new();
    let points = compared.iter().filter_map(|c| {
        let point = plan.points.iter().find(|p| p.key == key::format_point(&c.point))?;
        let x = match axis {
            Some(axis) => point.axis_setting(&axis.name)?.number?,
            None => point.index as f64,
        };
        let rest = point.settings.iter().filter(|s| axis.is_some_and(|a| a.name != s.axis));
        let rest = rest.filter(|s| plan.axes.iter().any(|a| a.name == s.axis && a.values.len() > 1));
        Some((*c, x, rest.map(|s| s.text.as_str()).collect::<Vec<_>>().join(", ")))
    });
    for (c, x, rest) in points {
        for (network, of) in [("simulator", &c.a), ("kernel", &c.b)] {
            let name = if rest.is_empty() { network.to_owned() } else { format!("{rest}, {network}") };
            let entry = series.entry((rest.clone(), network)).or_insert_with(|| FigureSeries {
                name,
                kind: SeriesKind::Measured,
                ..FigureSeries::default()
            });
            entry.points.push(SeriesPoint::from_estimate(x, of).clamp_interval(share));
        }
    }
    let x = match axis {
        Some(axis) => FigureAxis::new(axis.label.clone(), axis.unit.clone().unwrap_or_default()),
        None => FigureAxis::with_categories("Point", plan.points.iter().map(|p| p.key.clone())),
    };
    let unit = if metric.starts_with("delay") { "s" } else { "" };
    ReportFigure {
        name: "agreement".to_owned(),
        title: format!("{metric}, simulator and kernel"),
        x,
        y: FigureAxis::new(metric, unit).with_shares(share),
        series: series.into_values().collect(),
        panels: Vec::new(),
    }
}

fn format_comparison_csv(compared: &[MetricComparison]) -> String {
    let mut text = String::from(
        "point,metric,sim,sim_half_width,lab,lab_half_width,difference,difference_half_width,verdict\n",
    );
    for c in compared {
        let mut numbers = String::new();
        for e in [&c.a, &c.b, &c.difference] {
            let _ = write!(numbers, "{},{},", format_number(e.mean), format_number(e.half_width));
        }
        let point = key::format_point(&c.point).replace('"', "\"\"");
        let _ = writeln!(
            text,
            "\"{point}\",{},{numbers}{}",
            c.metric,
            MeanComparisonVerdict::from_comparison(c).word()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_observe::GridPoint;

    fn test_comparison(sim: f64, difference: f64, half_width: f64) -> MetricComparison {
        let estimate = |mean| MeanEstimate { mean, half_width: 0.0, n: 5 };
        MetricComparison {
            study: "s".into(),
            point: GridPoint::new([("loss", "5 %")]),
            metric: "delay.mean".into(),
            a: estimate(sim),
            b: estimate(sim + difference),
            difference: MeanEstimate { mean: difference, half_width, n: 5 },
            paired: true,
            significant: true,
        }
    }

    #[test]
    fn the_interval_decides_whether_they_agree() {
        let verdict = |difference, half| {
            MeanComparisonVerdict::from_comparison(&test_comparison(2.0, difference, half))
        };
        assert_eq!(verdict(0.1, 0.09), MeanComparisonVerdict::Agree);
        assert_eq!(verdict(-0.1, 0.2), MeanComparisonVerdict::Open);
        assert_eq!(verdict(-0.5, 0.2), MeanComparisonVerdict::Differ);
        assert_eq!(verdict(0.0, f64::INFINITY), MeanComparisonVerdict::Open);
        assert_eq!(
            MeanComparisonVerdict::from_comparison(&test_comparison(0.0, 0.0, 0.0)),
            MeanComparisonVerdict::Agree
        );
    }

    #[test]
    fn the_finding_names_where_they_are_farthest_apart() {
        let (near, far) = (test_comparison(1.0, 0.01, 0.01), test_comparison(1.0, -0.3, 0.1));
        let text = summarize_agreement(&[&near, &far], "delay.mean");
        assert!(text.starts_with("delay.mean agrees within 10 % at 1 of 2 points, differs at 1,"), "{text}");
        assert!(text.ends_with("loss=5 %: -30.0 % ± 10.0 %."), "{text}");
        let file = format_comparison_csv(&[far]);
        assert!(
            file.lines()
                .nth(1)
                .is_some_and(|l| l.starts_with("\"loss=5 %\",delay.mean,1,0,0.7,0,-0.3,0.1,differ")),
            "{file}"
        );
    }
}
