//! What a run showed: as one JSON object, as rows, and as the report that a study has.

use crate::live::Outcome;
use crate::ramp::Step;
use crate::tally::{Latencies, Tally, quantile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_core::WallTime;
use usher_observe::manifest::{Fact, Host, Manifest, rfc3339};
use usher_observe::{Error, Point, Row, csv, parquet};
use usher_report::{Axis, Cell, Column, Figure, Report, Section, Series, Table};

/// The quantiles told, with their names.
const QUANTILES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// What was run, for those who read the results.
#[derive(Clone, Debug)]
pub struct About {
    /// `radius`, `eap` or `diameter`.
    pub command: &'static str,
    /// How users log in: `pap`, `ttls-pap`.
    pub method: String,
    /// The server, as it was named.
    pub server: String,
    /// Whether logins come at a rate of their own: then latency runs from the time at which each was meant to begin.
    pub open_loop: bool,
    /// Settings by name, as text; no secrets.
    pub settings: BTreeMap<String, String>,
    /// The command line, without secrets.
    pub line: String,
    /// Usher's version.
    pub version: String,
    /// When it began.
    pub started: WallTime,
    /// How long it took, seconds.
    pub elapsed_s: f64,
}

impl About {
    fn study(&self) -> String {
        format!("load-{}", self.command)
    }
    /// Where latency is counted from.
    #[must_use]
    pub const fn latency_from(&self) -> &'static str {
        if self.open_loop {
            "the time at which the login was meant to begin"
        } else {
            "the login's beginning"
        }
    }
}

/// The quantiles of a histogram in seconds, by name; empty of none.
fn quantiles(histogram: &Latencies) -> Vec<(&'static str, f64)> {
    QUANTILES.iter().filter_map(|(q, name)| quantile(histogram, *q).map(|s| (*name, s))).collect()
}

fn latency_json(histogram: &Latencies) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut object: serde_json::Map<String, Value> =
        quantiles(histogram).into_iter().map(|(name, s)| (format!("{name}_s"), json!(s))).collect();
    object.insert("mean_s".into(), json!(histogram.mean() * 1e-9));
    object.insert("min_s".into(), json!(histogram.min() as f64 * 1e-9));
    object.insert("count".into(), json!(histogram.len()));
    Value::Object(object)
}

/// The outcome as one object.
#[must_use]
pub fn json(about: &About, outcome: &Outcome) -> Value {
    let t = &outcome.tally;
    let failures: BTreeMap<&str, u64> = t.failures().map(|(f, n)| (f.name(), n)).collect();
    let client: BTreeMap<&str, u64> = outcome.counters.iter().copied().filter(|(_, n)| *n > 0).collect();
    let server = outcome.server.map(|s| {
        json!({
            "cpu_user_s": s.cpu.user,
            "cpu_system_s": s.cpu.system,
            "cpu_s": s.cpu.total(),
            "logins": s.completed,
            "cpu_ms_per_login": s.ms_per_login(),
            "cpu_resolution_s": 0.01,
            "peak_memory_bytes": s.peak_memory,
        })
    });
    let ramp = outcome
        .ramp
        .as_ref()
        .map(|r| json!({ "knee_per_s": r.knee(), "knee_beyond_limit": r.is_open(), "steps": r.steps() }));
    json!({
        "command": about.command,
        "method": about.method,
        "server": about.server,
        "settings": about.settings,
        "started": rfc3339(about.started),
        "interrupted": outcome.interrupted,
        "measured_s": outcome.measured_s,
        "begun": t.begun,
        "succeeded": t.succeeded,
        "expected_rejects": t.expected_rejects,
        "failed": t.failed_total(),
        "failures": failures,
        "result_codes": t.results,
        "success": t.success(),
        "throughput_per_s": outcome.throughput(),
        "requests_answered": t.exchanges,
        "accounting_records": t.records,
        "latency_from": about.latency_from(),
        "latency": latency_json(&t.latency),
        "reject_latency": latency_json(&t.reject_latency),
        "exchange_latency": latency_json(&t.exchange_latency),
        "begin_lag": latency_json(&t.lag),
        "client": client,
        "own_cpu_s": outcome.own_cpu_s,
        "server_process": server,
        "ramp": ramp,
    })
}

/// The metrics of a window.
fn metrics(tally: &Tally, measured_s: f64) -> Vec<(String, f64)> {
    let mut all = vec![
        ("begun".to_owned(), tally.begun as f64),
        ("succeeded".to_owned(), tally.succeeded as f64),
        ("expected_rejects".to_owned(), tally.expected_rejects as f64),
        ("failed".to_owned(), tally.failed_total() as f64),
        ("success".to_owned(), tally.success()),
        ("measured_s".to_owned(), measured_s),
        ("requests_answered".to_owned(), tally.exchanges as f64),
        ("accounting_records".to_owned(), tally.records as f64),
    ];
    if measured_s > 0.0 {
        all.push(("throughput_per_s".to_owned(), tally.completed as f64 / measured_s));
    }
    all.extend(tally.failures().map(|(f, n)| (format!("failed_{}", f.name()), n as f64)));
    for (name, histogram) in [
        ("latency", &tally.latency),
        ("reject_latency", &tally.reject_latency),
        ("exchange_latency", &tally.exchange_latency),
        ("begin_lag", &tally.lag),
    ] {
        all.extend(quantiles(histogram).into_iter().map(|(q, s)| (format!("{name}_{q}_s"), s)));
    }
    all
}

/// The outcome as rows: the whole, and each step of a ramp.
#[must_use]
pub fn rows(about: &About, outcome: &Outcome) -> Vec<Row> {
    let study: Arc<str> = about.study().into();
    let mut rows = Vec::new();
    let mut add = |point: &Point, metrics: Vec<(String, f64)>| {
        rows.extend(metrics.into_iter().map(|(metric, value)| Row {
            study: study.clone(),
            point: point.clone(),
            replication: 0,
            metric: metric.into(),
            value,
        }));
    };
    let method = about.method.clone();
    if let Some(ramp) = &outcome.ramp {
        for step in ramp.steps() {
            let point =
                Point::new([("method", method.clone()), ("rate", usher_observe::row::number(step.rate))]);
            let mut m = vec![
                ("throughput_per_s".to_owned(), step.throughput),
                ("success".to_owned(), step.success),
                ("kept_up".to_owned(), f64::from(u8::from(step.kept_up))),
            ];
            m.extend(step.p50_s.map(|s| ("latency_p50_s".to_owned(), s)));
            m.extend(step.p99_s.map(|s| ("latency_p99_s".to_owned(), s)));
            add(&point, m);
        }
    }
    let mut whole = metrics(&outcome.tally, outcome.measured_s);
    whole.extend(outcome.server.and_then(|s| s.ms_per_login()).map(|ms| ("server_cpu_ms".to_owned(), ms)));
    whole.extend(outcome.ramp.as_ref().and_then(|r| r.knee()).map(|k| ("knee_per_s".to_owned(), k)));
    add(&Point::new([("method", method)]), whole);
    rows
}

fn at(x: f64, y: f64) -> usher_report::Point {
    usher_report::Point { n: 1, ..usher_report::Point::exact(x, y) }
}

fn series(name: &str, points: Vec<usher_report::Point>) -> Series {
    Series { name: name.to_owned(), points, ..Series::default() }
}

/// Latency over how rare it is.
fn distribution(tally: &Tally) -> Figure {
    let curve = |histogram: &Latencies| {
        let count = histogram.len() as f64;
        let mut points = Vec::new();
        let mut rarity = 1.0;
        while !histogram.is_empty() && rarity <= count {
            let value = histogram.value_at_quantile(1.0 - 1.0 / rarity).max(histogram.min());
            points.push(at(rarity, value as f64 * 1e-6));
            rarity *= 1.5;
        }
        points
    };
    let all = [
        ("logins", &tally.latency),
        ("expected rejects", &tally.reject_latency),
        ("single requests", &tally.exchange_latency),
    ];
    Figure {
        name: "latency-distribution".into(),
        title: "Latency: one of so many takes at least".into(),
        x: Axis::new("One of", "").logarithmic(),
        y: Axis::new("Latency", "ms").logarithmic(),
        series: all
            .into_iter()
            .filter(|(_, h)| !h.is_empty())
            .map(|(name, h)| series(name, curve(h)))
            .collect(),
    }
}

/// Throughput and latency over the run.
fn course(outcome: &Outcome) -> [Figure; 2] {
    let counted: Vec<_> = outcome.course.iter().filter(|i| !i.warming && i.length_s > 0.05).collect();
    let rate = counted.iter().map(|i| at(i.at_s, i.tally.completed as f64 / i.length_s)).collect();
    let quantile_of = |q: f64| {
        let value = |i: &&crate::live::Interval| quantile(&i.tally.latency, q).map(|s| at(i.at_s, s * 1e3));
        counted.iter().filter_map(value).collect::<Vec<_>>()
    };
    let x = || Axis::new("Time", "s");
    [
        Figure {
            name: "throughput-over-time".into(),
            title: "Successes a second, over the run".into(),
            x: x(),
            y: Axis::new("Successes", "1/s"),
            series: vec![series("successes", rate)],
        },
        Figure {
            name: "latency-over-time".into(),
            title: "Latency, over the run".into(),
            x: x(),
            y: Axis::new("Latency", "ms").logarithmic(),
            series: vec![series("median", quantile_of(0.5)), series("99th percentile", quantile_of(0.99))],
        },
    ]
}

/// Latency and throughput against the rate.
fn ramp(steps: &[Step]) -> [Figure; 2] {
    let mut steps = steps.to_vec();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let latency = |of: fn(&Step) -> Option<f64>| {
        steps.iter().filter_map(|s| of(s).map(|v| at(s.rate, v * 1e3))).collect::<Vec<_>>()
    };
    let x = || Axis::new("Logins offered", "1/s").logarithmic();
    [
        Figure {
            name: "latency-against-rate".into(),
            title: "Latency against the rate".into(),
            x: x(),
            y: Axis::new("Latency", "ms").logarithmic(),
            series: vec![
                series("median", latency(|s| s.p50_s)),
                series("99th percentile", latency(|s| s.p99_s)),
            ],
        },
        Figure {
            name: "throughput-against-rate".into(),
            title: "Successes a second against the rate".into(),
            x: x(),
            y: Axis::new("Successes", "1/s").logarithmic(),
            series: vec![series(
                "successes",
                steps.iter().filter(|s| s.throughput > 0.0).map(|s| at(s.rate, s.throughput)).collect(),
            )],
        },
    ]
}

fn tables(outcome: &Outcome) -> Vec<Table> {
    let t = &outcome.tally;
    let latency = |name: &str, histogram: &Latencies| {
        let mut row: Vec<Cell> = vec![name.into(), (histogram.len() as f64).into()];
        row.extend(
            QUANTILES
                .iter()
                .map(|(q, _)| quantile(histogram, *q).map_or(Cell::Empty, |s| Cell::Number(s * 1e3))),
        );
        row
    };
    let mut columns = vec![Column::new("Of", ""), Column::new("Count", "")];
    columns.extend(QUANTILES.iter().map(|(_, name)| Column::new(*name, "ms")));
    let latencies = [
        ("logins", &t.latency),
        ("expected rejects", &t.reject_latency),
        ("single requests", &t.exchange_latency),
        ("beginning, later than meant", &t.lag),
    ];
    let rows = latencies.into_iter().filter(|(_, h)| !h.is_empty()).map(|(n, h)| latency(n, h)).collect();
    let mut tables = vec![Table { title: "Latency".into(), columns, rows }];
    let failures: Vec<Vec<Cell>> =
        t.failures().map(|(f, n)| vec![f.name().into(), (n as f64).into(), f.explanation().into()]).collect();
    if !failures.is_empty() {
        let columns = vec![Column::new("Failure", ""), Column::new("Count", ""), Column::new("Meaning", "")];
        tables.push(Table { title: "Failures".into(), columns, rows: failures });
    }
    let counted: Vec<Vec<Cell>> = outcome
        .counters
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| vec![(*name).into(), (*n as f64).into()])
        .collect();
    if !counted.is_empty() {
        let columns = vec![Column::new("Counter", ""), Column::new("Count", "")];
        tables.push(Table {
            title: "What the clients counted, warm-up included".into(),
            columns,
            rows: counted,
        });
    }
    tables
}

/// The findings, a sentence each.
#[must_use]
pub fn findings(outcome: &Outcome) -> Vec<String> {
    let t = &outcome.tally;
    let mut all = vec![format!(
        "{} of {} logins ended as they had to ({:.3} %), {:.0} a second.",
        t.succeeded,
        t.succeeded + t.failed_total(),
        t.success() * 100.0,
        outcome.throughput()
    )];
    if let (Some(p50), Some(p99)) = (quantile(&t.latency, 0.5), quantile(&t.latency, 0.99)) {
        all.push(format!(
            "Half of the logins took at most {:.3} ms, 99 % at most {:.3} ms.",
            p50 * 1e3,
            p99 * 1e3
        ));
    }
    if let Some(ramp) = &outcome.ramp {
        all.push(match ramp.knee() {
            Some(knee) if ramp.is_open() => {
                format!("The server kept up with {knee:.0} logins a second, the most that were tried.")
            }
            Some(knee) => {
                format!("The server kept up with {knee:.0} logins a second, and not with the next rate.")
            }
            None => "The server kept up with none of the rates.".to_owned(),
        });
    }
    if let Some((server, ms)) = outcome.server.and_then(|s| Some((s, s.ms_per_login()?))) {
        all.push(format!(
            "The server used {ms:.4} ms of CPU time for each login ({:.2} s for {} of them, to 0.01 s).",
            server.cpu.total(),
            server.completed
        ));
    }
    all
}

fn manifest(about: &About, outcome: &Outcome) -> Manifest {
    let number = |x: f64| Fact::from(x);
    let facts = [
        ("throughput_per_s".to_owned(), number(outcome.throughput())),
        ("measured_s".to_owned(), number(outcome.measured_s)),
        ("own_cpu_s".to_owned(), number(outcome.own_cpu_s)),
        ("command_line".to_owned(), Fact::from(about.line.clone())),
    ];
    Manifest {
        usher_version: about.version.clone(),
        study: about.study(),
        seed: 0,
        mode: "live".into(),
        parameters: about.settings.clone(),
        plan_hash: String::new(),
        host: Host::detect(),
        started: rfc3339(about.started),
        elapsed_s: about.elapsed_s,
        points: outcome.ramp.as_ref().map_or(1, |r| r.steps().len() as u64),
        replications: 1,
        complete: !outcome.interrupted,
        facts: facts.into(),
    }
}

/// The report.
#[must_use]
pub fn report(about: &About, outcome: &Outcome) -> Report {
    let mut sections = Vec::new();
    if let Some(r) = &outcome.ramp {
        sections.push(Section {
            title: "The ramp".into(),
            text: "Each rate ran for a while before it was measured; a rate that the server did not keep up with is \
                   followed by a lower one."
                .into(),
            figures: ramp(r.steps()).into(),
            tables: vec![Table {
                title: "Steps".into(),
                columns: [("Rate", "1/s"), ("Successes", "1/s"), ("Success", "%"), ("p50", "ms"), ("p99", "ms"), ("Kept up", "")]
                    .map(|(t, u)| Column::new(t, u))
                    .into(),
                rows: r
                    .steps()
                    .iter()
                    .map(|s| {
                        let ms = |v: Option<f64>| v.map_or(Cell::Empty, |v| Cell::Number(v * 1e3));
                        let kept = if s.kept_up { "yes" } else { "no" };
                        vec![s.rate.into(), s.throughput.into(), (s.success * 100.0).into(), ms(s.p50_s), ms(s.p99_s), kept.into()]
                    })
                    .collect(),
            }],
        });
    }
    sections.push(Section {
        title: "Latency".into(),
        text: format!("Latency runs from {} to its verified end.", about.latency_from()),
        figures: vec![distribution(&outcome.tally)],
        tables: tables(outcome),
    });
    sections.push(Section {
        title: "Over the run".into(),
        figures: course(outcome).into(),
        ..Section::default()
    });
    let settings: Vec<String> = about.settings.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    Report {
        title: format!("Load by {} on {}", about.method, about.server),
        question: "How many logins does this server take, and how long does each one take?".into(),
        findings: findings(outcome),
        description: format!(
            "Every answer was verified before it counted: Response Authenticator and Message-Authenticator, the end of \
             the EAP method, and that the keys sent are those derived.\n\n{}",
            settings.join("; ")
        ),
        partial: outcome.interrupted.then(|| "ended by the user before its time".to_owned()),
        sections,
        notes: Vec::new(),
        reruns: vec![usher_report::Rerun { point: "all".into(), command: about.line.clone() }],
        manifest: Some(manifest(about, outcome)),
    }
}

/// Writes `results.csv`, `results.parquet`, `results.json`, `manifest.json`, `report.html` and its figures into
/// this folder, and gives the report's path.
///
/// # Errors
/// With path and cause.
pub fn write(folder: &Path, about: &About, outcome: &Outcome) -> Result<PathBuf, Error> {
    let rows = rows(about, outcome);
    csv::write(&folder.join("results.csv"), &rows)?;
    parquet::write(&folder.join("results.parquet"), &rows)?;
    let object = format!("{:#}\n", json(about, outcome));
    usher_observe::file::write(&folder.join("results.json"), |out| out.write_all(object.as_bytes()))?;
    manifest(about, outcome).write(&folder.join("manifest.json"))?;
    report(about, outcome).write(folder)
}
