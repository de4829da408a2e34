//! `usher study compare`

use crate::output::{Failure, Output, columns, rounded};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use usher_observe::compare::{Comparison, Comparisons, doubts};
use usher_observe::manifest::Manifest;
use usher_observe::{Estimate, Row, csv};
use usher_report::{Cell, Column, Report, Section, Table};
use usher_runner::sweep::{Asked, Drawn, key, overlay};
use usher_scenario::{Plan, Study};

const LEVEL: f64 = 0.95;

/// Compares two runs' folders, and draws both into one report where one is asked for.
pub(crate) fn compare(output: &Output, a: &Path, b: &Path, out: Option<&Path>) -> Result<(), Failure> {
    let (left, right) = (rows(a)?, rows(b)?);
    let manifests = [a, b].map(|folder| Manifest::read(&folder.join("manifest.json")));
    let (same_seed, doubts) = match &manifests {
        [Ok(a), Ok(b)] => (a.seed == b.seed, doubts(a, b)),
        _ => {
            let why = "a manifest.json cannot be read: the runs are taken to have different seeds";
            (false, vec![why.to_owned()])
        }
    };
    let compared = usher_observe::compare::compare(&left, &right, same_seed, LEVEL);
    let report = out.map(|out| drawn([(a, &left), (b, &right)], &compared, out)).transpose()?;
    if output.json {
        let mut value = as_json(&compared, &doubts);
        value["report"] = json!(report.map(|path| path.display().to_string()));
        return output.value(&value);
    }
    doubts.iter().for_each(|doubt| output.note(&format!("warning: are they comparable? {doubt}")));
    let report = report.map_or_else(String::new, |path| format!("report: {}\n", path.display()));
    output.text(&(as_text(&compared, output.verbose) + &report))
}

/// Writes a report of both runs, with the figures that both have, and gives its path.
fn drawn(runs: [(&Path, &Vec<Row>); 2], compared: &Comparisons, out: &Path) -> Result<PathBuf, Failure> {
    let plan = |folder: &Path| -> Result<(Study, Plan), Failure> {
        let kept = Asked::of_folder(folder).map_err(Failure::failed)?;
        let (file, asked) = kept.ok_or_else(|| {
            Failure::failed(format!("{} did not keep its study: run it again to draw it", folder.display()))
        })?;
        let study = Study::open(&file.display().to_string()).map_err(Failure::failed)?;
        let (mode, overrides) = asked.overrides().map_err(Failure::usage)?;
        let plan = study.plan(mode, &overrides).map_err(Failure::failed)?;
        Ok((study, plan))
    };
    let [(a, left), (b, right)] = runs;
    let (one, other) = (plan(a)?, plan(b)?);
    let names = [a, b].map(|folder| folder.display().to_string());
    let drawn = |of: usize| {
        let (study, plan) = [&one, &other][of];
        Drawn { file: study.file(), plan, rows: [left, right][of], name: &names[of] }
    };
    let mut sections = overlay(drawn(0), drawn(1));
    let differing: Vec<&Comparison> = compared.both.iter().filter(|c| c.significant).collect();
    let rows = differing.iter().map(|c| {
        let [a, b, difference] = [c.a, c.b, c.difference].map(Cell::from);
        vec![Cell::from(key::of(&c.point)), Cell::from(c.metric.to_string()), a, b, difference]
    });
    sections.push(Section {
        title: "What differs".to_owned(),
        text: told(compared),
        tables: vec![Table {
            columns: ["Point", "Metric", "A", "B", "B - A"].map(|title| Column::new(title, "")).to_vec(),
            rows: rows.collect(),
            ..Table::default()
        }],
        ..Section::default()
    });
    let report = Report {
        title: format!("{}: two runs", one.0.file().title),
        question: format!("What differs between {} (A) and {} (B)?", names[0], names[1]),
        findings: vec![told(compared)],
        sections,
        ..Report::default()
    };
    report.write(out).map_err(Failure::failed)
}

/// How many values differ, in a sentence.
fn told(compared: &Comparisons) -> String {
    let differing = compared.both.iter().filter(|c| c.significant).count();
    format!(
        "{differing} of {} differ beyond their 95 % intervals; by chance alone, about {:.0} would.",
        compared.both.len(),
        compared.both.len() as f64 * (1.0 - LEVEL)
    )
}

fn rows(folder: &Path) -> Result<Vec<Row>, Failure> {
    csv::read(&folder.join("results.csv")).map_err(|e| {
        Failure::failed(format!(
            "{e}\n{} is no folder of a run: give the one that holds results.csv",
            folder.display()
        ))
    })
}

fn as_json(compared: &Comparisons, doubts: &[String]) -> Value {
    let estimate = |e: &Estimate| json!({ "mean": e.mean, "half_width": e.half_width, "n": e.n });
    let both = compared.both.iter().map(|c| {
        json!({
            "study": *c.study, "point": key::of(&c.point), "metric": *c.metric,
            "a": estimate(&c.a), "b": estimate(&c.b), "difference": estimate(&c.difference),
            "paired": c.paired, "significant": c.significant,
        })
    });
    let only = |list: &[(usher_observe::Point, std::sync::Arc<str>)]| -> Vec<Value> {
        list.iter().map(|(point, metric)| json!({ "point": key::of(point), "metric": **metric })).collect()
    };
    json!({
        "warnings": doubts,
        "both": both.collect::<Vec<_>>(),
        "only_a": only(&compared.only_a), "only_b": only(&compared.only_b),
    })
}

fn as_text(compared: &Comparisons, all: bool) -> String {
    let mut table = vec![["POINT", "METRIC", "A", "B", "B - A", ""].map(str::to_owned).to_vec()];
    table.extend(compared.both.iter().filter(|c| all || c.significant).map(line));
    let differing = compared.both.iter().filter(|c| c.significant).count();
    let mut text = if table.len() > 1 { columns(&table) + "\n" } else { String::new() };
    text.push_str(&format!("{}\n", told(compared)));
    if !all && differing < compared.both.len() {
        text.push_str("With -v, those that do not differ are listed too.\n");
    }
    for (name, list) in [("A", &compared.only_a), ("B", &compared.only_b)] {
        if let Some((point, metric)) = list.first() {
            text.push_str(&format!(
                "{} are only in {name}, such as {metric} at {}.\n",
                list.len(),
                key::of(point)
            ));
        }
    }
    text
}

fn line(c: &Comparison) -> Vec<String> {
    let estimate = |e: &Estimate| match e.half_width.is_finite() {
        true => format!("{} ± {}", rounded(e.mean), rounded(e.half_width)),
        false => rounded(e.mean),
    };
    let mark = if c.significant { "*" } else { "" };
    vec![
        key::of(&c.point),
        c.metric.to_string(),
        estimate(&c.a),
        estimate(&c.b),
        estimate(&c.difference),
        mark.to_owned(),
    ]
}
