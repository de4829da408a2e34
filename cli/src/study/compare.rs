//! `usher study compare`

use crate::output::{CommandFailure, ConsoleOutput, format_columns, format_rounded};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use usher_observe::compare::{MetricComparison, RunComparison, comparability_doubts};
use usher_observe::manifest::RunManifest;
use usher_observe::{MeanEstimate, ResultRow, csv};
use usher_report::{HtmlReport, ReportColumn, ReportSection, ReportTable, TableCell};
use usher_runner::sweep::{FigureSourceRun, RunRequest, key, overlay_run_figures};
use usher_scenario::{Study, StudyPlan};

const LEVEL: f64 = 0.95;

/// Compares the folders of two runs. Draws both into one report if requested.
pub(crate) fn compare_runs(
    output: &ConsoleOutput,
    a: &Path,
    b: &Path,
    out: Option<&Path>,
) -> Result<(), CommandFailure> {
    let (left, right) = (read_rows(a)?, read_rows(b)?);
    let manifests = [a, b].map(|folder| RunManifest::read_file(&folder.join("manifest.json")));
    let (same_seed, doubts) = match &manifests {
        [Ok(a), Ok(b)] => (a.seed == b.seed, comparability_doubts(a, b)),
        _ => {
            let why = "a manifest.json cannot be read; the runs are compared as runs with different seeds";
            (false, vec![why.to_owned()])
        }
    };
    let compared = usher_observe::compare::compare_rows(&left, &right, same_seed, LEVEL);
    let report =
        out.map(|out| write_comparison_report([(a, &left), (b, &right)], &compared, out)).transpose()?;
    if output.json {
        let mut value = as_json(&compared, &doubts);
        value["report"] = json!(report.map(|path| path.display().to_string()));
        return output.print_json(&value);
    }
    doubts
        .iter()
        .for_each(|doubt| output.print_note(&format!("warning: the runs may not be comparable: {doubt}")));
    let report = report.map_or_else(String::new, |path| format!("report: {}\n", path.display()));
    output.print_text(&(as_text(&compared, output.verbose) + &report))
}

/// Writes a report with the figures that both runs have, and returns its path.
fn write_comparison_report(
    runs: [(&Path, &Vec<ResultRow>); 2],
    compared: &RunComparison,
    out: &Path,
) -> Result<PathBuf, CommandFailure> {
    let plan = |folder: &Path| -> Result<(Study, StudyPlan), CommandFailure> {
        let kept = RunRequest::of_folder(folder).map_err(CommandFailure::runtime_error)?;
        let (file, asked) = kept.ok_or_else(|| {
            CommandFailure::runtime_error(format!(
                "{} has no copy of its study; run it again to draw it",
                folder.display()
            ))
        })?;
        let study = Study::open(&file.display().to_string()).map_err(CommandFailure::runtime_error)?;
        let (mode, overrides) = asked.mode_and_overrides().map_err(CommandFailure::usage_error)?;
        let plan = study.build_plan(mode, &overrides).map_err(CommandFailure::runtime_error)?;
        Ok((study, plan))
    };
    let [(a, left), (b, right)] = runs;
    let (one, other) = (plan(a)?, plan(b)?);
    let names = [a, b].map(|folder| folder.display().to_string());
    let drawn = |of: usize| {
        let (study, plan) = [&one, &other][of];
        FigureSourceRun { file: study.file(), plan, rows: [left, right][of], name: &names[of] }
    };
    let mut sections = overlay_run_figures(drawn(0), drawn(1));
    let differing: Vec<&MetricComparison> = compared.both.iter().filter(|c| c.significant).collect();
    let rows = differing.iter().map(|c| {
        let [a, b, difference] = [c.a, c.b, c.difference].map(TableCell::from);
        vec![
            TableCell::from(key::format_point(&c.point)),
            TableCell::from(c.metric.to_string()),
            a,
            b,
            difference,
        ]
    });
    sections.push(ReportSection {
        title: "What differs".to_owned(),
        text: summarize_differences(compared),
        tables: vec![ReportTable {
            columns: ["Point", "Metric", "A", "B", "B - A"]
                .map(|title| ReportColumn::new(title, ""))
                .to_vec(),
            rows: rows.collect(),
            ..ReportTable::default()
        }],
        ..ReportSection::default()
    });
    let report = HtmlReport {
        title: format!("{}: two runs", one.0.file().title),
        question: format!("What differs between {} (A) and {} (B)?", names[0], names[1]),
        findings: vec![summarize_differences(compared)],
        sections,
        ..HtmlReport::default()
    };
    report.write_files(out).map_err(CommandFailure::runtime_error)
}

/// Summarizes in a sentence how many values differ.
fn summarize_differences(compared: &RunComparison) -> String {
    let differing = compared.both.iter().filter(|c| c.significant).count();
    format!(
        "{differing} of {} values differ beyond their 95 % intervals. By chance alone, about {:.0} would.",
        compared.both.len(),
        compared.both.len() as f64 * (1.0 - LEVEL)
    )
}

fn read_rows(folder: &Path) -> Result<Vec<ResultRow>, CommandFailure> {
    csv::read_csv(&folder.join("results.csv")).map_err(|e| {
        CommandFailure::runtime_error(format!(
            "{e}\n{} is not the folder of a run; give the folder that holds results.csv",
            folder.display()
        ))
    })
}

fn as_json(compared: &RunComparison, doubts: &[String]) -> Value {
    let estimate = |e: &MeanEstimate| json!({ "mean": e.mean, "half_width": e.half_width, "n": e.n });
    let both = compared.both.iter().map(|c| {
        json!({
            "study": *c.study, "point": key::format_point(&c.point), "metric": *c.metric,
            "a": estimate(&c.a), "b": estimate(&c.b), "difference": estimate(&c.difference),
            "paired": c.paired, "significant": c.significant,
        })
    });
    let only = |list: &[(usher_observe::GridPoint, std::sync::Arc<str>)]| -> Vec<Value> {
        list.iter()
            .map(|(point, metric)| json!({ "point": key::format_point(point), "metric": **metric }))
            .collect()
    };
    json!({
        "warnings": doubts,
        "both": both.collect::<Vec<_>>(),
        "only_a": only(&compared.only_a), "only_b": only(&compared.only_b),
    })
}

fn as_text(compared: &RunComparison, all: bool) -> String {
    let mut table = vec![["POINT", "METRIC", "A", "B", "B - A", ""].map(str::to_owned).to_vec()];
    table.extend(compared.both.iter().filter(|c| all || c.significant).map(comparison_row));
    let differing = compared.both.iter().filter(|c| c.significant).count();
    let mut text = if table.len() > 1 { format_columns(&table) + "\n" } else { String::new() };
    text.push_str(&format!("{}\n", summarize_differences(compared)));
    if !all && differing < compared.both.len() {
        text.push_str("With -v, the values that do not differ are listed too.\n");
    }
    for (name, list) in [("A", &compared.only_a), ("B", &compared.only_b)] {
        if let Some((point, metric)) = list.first() {
            text.push_str(&format!(
                "{} values are only in {name}, such as {metric} at {}.\n",
                list.len(),
                key::format_point(point)
            ));
        }
    }
    text
}

fn comparison_row(c: &MetricComparison) -> Vec<String> {
    let estimate = |e: &MeanEstimate| match e.half_width.is_finite() {
        true => format!("{} ± {}", format_rounded(e.mean), format_rounded(e.half_width)),
        false => format_rounded(e.mean),
    };
    let mark = if c.significant { "*" } else { "" };
    vec![
        key::format_point(&c.point),
        c.metric.to_string(),
        estimate(&c.a),
        estimate(&c.b),
        estimate(&c.difference),
        mark.to_owned(),
    ]
}
