//! `usher study run NAME --on both`: the simulator and the lab's kernel held against each other.

use crate::output::{Failure, Output, columns, rounded};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use usher_observe::compare::{Comparison, compare};
use usher_observe::manifest::Manifest;
use usher_observe::row::number;
use usher_observe::{Estimate, Row, csv, file};
use usher_report::{Axis, Cell, Column, Figure, Kind, Point, Report, Section, Series, Table};
use usher_runner::sweep::key;
use usher_scenario::{Plan, Study, metrics};

/// Folders of the two, and the file of their differences.
pub(super) const SIM: &str = "sim";
pub(super) const LAB: &str = "lab";
const FILE: &str = "agreement.csv";
const LEVEL: f64 = 0.95;
/// What is shown first, of studies that have it.
const DELAY: &str = "delay.mean";

/// A difference up to this share of the simulator's mean is agreement.
const CLOSE: f64 = 0.1;

/// What two means say of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The whole interval of the difference is within a tenth.
    Agree,
    /// None of it is.
    Differ,
    /// The replications do not tell.
    Open,
}

impl Verdict {
    fn of(compared: &Comparison) -> Self {
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

/// A difference as a share of the simulator's mean, with its half-width.
fn share(compared: &Comparison) -> Option<(f64, f64)> {
    let of = compared.a.mean.abs();
    (of > 0.0).then(|| (compared.difference.mean / of, compared.difference.half_width / of))
}

fn percent((mean, half): (f64, f64)) -> String {
    match half.is_finite() {
        true => format!("{:+.1} % ± {:.1} %", 100.0 * mean, 100.0 * half),
        false => format!("{:+.1} %", 100.0 * mean),
    }
}

/// Compares what the two folders below this one hold, and writes it there.
pub(super) fn compare_both(
    output: &Output,
    path: &Path,
    study: &Study,
    plan: &Plan,
) -> Result<Value, Failure> {
    let rows = |name: &str| -> Result<Vec<Row>, Failure> {
        csv::read(&path.join(name).join("results.csv")).map_err(Failure::failed)
    };
    // Replication i of both has the same arrivals, and its links the same chance.
    let compared = compare(&rows(SIM)?, &rows(LAB)?, true, LEVEL);
    let first = plan.points.first();
    let delays = compared.both.iter().any(|c| &*c.metric == DELAY);
    let watched = first.map_or(DELAY, |p| p.scenario.run.replications.metric.as_str());
    let metric = if delays { DELAY } else { watched };
    let of_metric: Vec<&Comparison> = compared.both.iter().filter(|c| &*c.metric == metric).collect();
    let manifest = Manifest::read(&path.join(LAB).join("manifest.json")).map_err(Failure::failed)?;
    let kernel = manifest.host.kernel.clone();

    file::write(&path.join(FILE), |out| out.write_all(table_file(&compared.both).as_bytes()))
        .map_err(Failure::failed)?;
    let report = Report {
        title: format!("{}: simulator and kernel", study.file().title),
        question: format!("Does {kernel} behave as the simulator says?"),
        findings: vec![finding(&of_metric, metric)],
        description: "The same points, roles and chance on the simulator and on network namespaces of the kernel, whose links are \
                      the simulator's own channels. Differences are the kernel's mean less the simulator's, with their 95 % \
                      intervals; they agree where the whole interval is within a tenth of the simulator's mean, differ where \
                      none of it is, and otherwise the replications leave it open."
            .to_owned(),
        sections: vec![
            Section {
                figures: vec![figure(plan, &of_metric, metric)],
                tables: vec![table("Where they agree, and where not", &of_metric)],
                ..Section::default()
            },
            Section {
                title: "All metrics".to_owned(),
                tables: vec![table("", &compared.both.iter().collect::<Vec<_>>())],
                ..Section::default()
            },
        ],
        manifest: Some(manifest),
        ..Report::default()
    };
    let written = report.write(path).map_err(Failure::failed)?;
    if !output.json {
        let mut lines = vec![["POINT", "SIMULATOR", "KERNEL", "DIFFERENCE", ""].map(str::to_owned).to_vec()];
        lines.extend(of_metric.iter().map(|c| {
            let shown = share(c).map(percent).unwrap_or_default();
            vec![key::of(&c.point), estimate(&c.a), estimate(&c.b), shown, Verdict::of(c).word().to_owned()]
        }));
        output.text(&format!("{metric}\n{}\nreport of both: {}\n", columns(&lines), written.display()))?;
    }
    Ok(json!({
        "metric": metric, "kernel": kernel, "report": written.display().to_string(),
        "points": of_metric.iter().map(|c| json!({
            "point": key::of(&c.point), "sim": c.a.mean, "lab": c.b.mean, "difference": c.difference.mean,
            "half_width": c.difference.half_width, "verdict": Verdict::of(c).word(),
        })).collect::<Vec<_>>(),
    }))
}

fn estimate(e: &Estimate) -> String {
    match e.half_width.is_finite() {
        true => format!("{} ± {}", rounded(e.mean), rounded(e.half_width)),
        false => rounded(e.mean),
    }
}

fn finding(compared: &[&Comparison], metric: &str) -> String {
    let count = |verdict| compared.iter().filter(|c| Verdict::of(c) == verdict).count();
    let (agree, differ, open) = (count(Verdict::Agree), count(Verdict::Differ), count(Verdict::Open));
    let worst = compared.iter().max_by(|a, b| {
        let size = |c: &Comparison| share(c).map_or(0.0, |(mean, _)| mean.abs());
        size(a).total_cmp(&size(b))
    });
    let mut text = format!(
        "{metric} agrees within {} % at {agree} of {} points, differs at {differ}, and is open at {open}.",
        number(CLOSE * 100.0),
        compared.len()
    );
    if let Some((worst, by)) = worst.and_then(|c| Some((c, share(c)?))) {
        let _ = write!(text, " They are farthest apart at {}: {}.", key::of(&worst.point), percent(by));
    }
    text
}

fn table(title: &str, compared: &[&Comparison]) -> Table {
    let columns = ["Point", "Metric", "Simulator", "Kernel", "Difference", "Of the simulator's", ""];
    Table {
        title: title.to_owned(),
        columns: columns.map(|title| Column::new(title, "")).to_vec(),
        rows: compared
            .iter()
            .map(|c| {
                vec![
                    key::of(&c.point).into(),
                    c.metric.to_string().into(),
                    c.a.into(),
                    c.b.into(),
                    c.difference.into(),
                    share(c).map_or(Cell::Empty, |s| percent(s).into()),
                    Verdict::of(c).word().into(),
                ]
            })
            .collect(),
        folded: false,
    }
}

/// A metric over the plan's first axis of numbers, a series of each network for each combination of the others.
fn figure(plan: &Plan, compared: &[&Comparison], metric: &str) -> Figure {
    let share = plan.points.first().and_then(|p| metrics::find(metric, &p.scenario)).is_some_and(|m| m.share);
    let axis = plan.axes.iter().find(|a| a.values.len() > 1 && a.values.iter().all(|v| v.number.is_some()));
    let mut series: BTreeMap<(String, &str), Series> = BTreeMap::new();
    let points = compared.iter().filter_map(|c| {
        let point = plan.points.iter().find(|p| p.key == key::of(&c.point))?;
        let x = match axis {
            Some(axis) => point.setting(&axis.name)?.number?,
            None => point.index as f64,
        };
        let rest = point.settings.iter().filter(|s| axis.is_some_and(|a| a.name != s.axis));
        let rest = rest.filter(|s| plan.axes.iter().any(|a| a.name == s.axis && a.values.len() > 1));
        Some((*c, x, rest.map(|s| s.text.as_str()).collect::<Vec<_>>().join(", ")))
    });
    for (c, x, rest) in points {
        for (network, of) in [("simulator", &c.a), ("kernel", &c.b)] {
            let name = if rest.is_empty() { network.to_owned() } else { format!("{rest}, {network}") };
            let entry = series.entry((rest.clone(), network)).or_insert_with(|| Series {
                name,
                kind: Kind::Measured,
                ..Series::default()
            });
            entry.points.push(Point::measured(x, of).within_reach(share));
        }
    }
    let x = match axis {
        Some(axis) => Axis::new(axis.label.clone(), axis.unit.clone().unwrap_or_default()),
        None => Axis::categories("Point", plan.points.iter().map(|p| p.key.clone())),
    };
    let unit = if metric.starts_with("delay") { "s" } else { "" };
    Figure {
        name: "agreement".to_owned(),
        title: format!("{metric}, simulator and kernel"),
        x,
        y: Axis::new(metric, unit).of_shares(share),
        series: series.into_values().collect(),
        panels: Vec::new(),
    }
}

fn table_file(compared: &[Comparison]) -> String {
    let mut text = String::from(
        "point,metric,sim,sim_half_width,lab,lab_half_width,difference,difference_half_width,verdict\n",
    );
    for c in compared {
        let mut numbers = String::new();
        for e in [&c.a, &c.b, &c.difference] {
            let _ = write!(numbers, "{},{},", number(e.mean), number(e.half_width));
        }
        let point = key::of(&c.point).replace('"', "\"\"");
        let _ = writeln!(text, "\"{point}\",{},{numbers}{}", c.metric, Verdict::of(c).word());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_observe::Point;

    fn compared(sim: f64, difference: f64, half_width: f64) -> Comparison {
        let estimate = |mean| Estimate { mean, half_width: 0.0, n: 5 };
        Comparison {
            study: "s".into(),
            point: Point::new([("loss", "5 %")]),
            metric: "delay.mean".into(),
            a: estimate(sim),
            b: estimate(sim + difference),
            difference: Estimate { mean: difference, half_width, n: 5 },
            paired: true,
            significant: true,
        }
    }

    #[test]
    fn the_interval_decides_whether_they_agree() {
        let verdict = |difference, half| Verdict::of(&compared(2.0, difference, half));
        assert_eq!(verdict(0.1, 0.09), Verdict::Agree);
        assert_eq!(verdict(-0.1, 0.2), Verdict::Open);
        assert_eq!(verdict(-0.5, 0.2), Verdict::Differ);
        assert_eq!(verdict(0.0, f64::INFINITY), Verdict::Open);
        assert_eq!(Verdict::of(&compared(0.0, 0.0, 0.0)), Verdict::Agree);
    }

    #[test]
    fn the_finding_names_where_they_are_farthest_apart() {
        let (near, far) = (compared(1.0, 0.01, 0.01), compared(1.0, -0.3, 0.1));
        let text = finding(&[&near, &far], "delay.mean");
        assert!(text.starts_with("delay.mean agrees within 10 % at 1 of 2 points, differs at 1,"), "{text}");
        assert!(text.ends_with("loss=5 %: -30.0 % ± 10.0 %."), "{text}");
        let file = table_file(&[far]);
        assert!(
            file.lines()
                .nth(1)
                .is_some_and(|l| l.starts_with("\"loss=5 %\",delay.mean,1,0,0.7,0,-0.3,0.1,differ")),
            "{file}"
        );
    }
}
