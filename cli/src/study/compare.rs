//! `usher study compare`

use crate::output::{Failure, Output, columns, rounded};
use serde_json::{Value, json};
use std::path::Path;
use usher_observe::compare::{Comparison, Comparisons, doubts};
use usher_observe::manifest::Manifest;
use usher_observe::{Estimate, Row, csv};
use usher_runner::sweep::key;

const LEVEL: f64 = 0.95;

/// Compares two runs' folders.
pub(crate) fn compare(output: &Output, a: &Path, b: &Path) -> Result<(), Failure> {
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
    if output.json {
        return output.value(&as_json(&compared, &doubts));
    }
    doubts.iter().for_each(|doubt| output.note(&format!("warning: are they comparable? {doubt}")));
    output.text(&as_text(&compared, output.verbose))
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
    text.push_str(&format!(
        "{differing} of {} differ beyond their 95 % intervals; by chance alone, about {:.0} would.\n",
        compared.both.len(),
        compared.both.len() as f64 * (1.0 - LEVEL)
    ));
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
