//! The results of a run as a JSON object, as rows, and as a study's report.

mod setup;

use crate::expect::ExpectationVerdict;
use crate::live::{LoadIntervalStats, LoadOutcome};
use crate::ramp::{RampKnee, RampSearch, RampStep, TURNS};
use crate::tally::{LatencyHistogram, LoginStats, quantile};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_core::WallTime;
use usher_observe::manifest::{ManifestValue, RunHostInfo, RunManifest, format_rfc3339};
use usher_observe::{GridPoint, ResultRow, ResultRowUnits, RunFileError, csv, parquet};
use usher_report::{
    FigureAxis, FigureSeries, HtmlReport, ReportColumn, ReportFigure, ReportSection, ReportTable, TableCell,
};

/// The reported quantiles with their names.
const QUANTILES: [(f64, &str); 6] =
    [(0.5, "p50"), (0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// The description of a run for readers of its results.
#[derive(Clone, Debug)]
pub struct LoadRunDescription {
    /// `radius`, `eap`, `diameter`, `ike`, `mih` or `pppoe`.
    pub command: &'static str,
    /// The method of logins: `pap`, `ttls-pap`.
    pub method: String,
    /// The server as the user named it.
    pub server: String,
    /// True for an open loop: latency then counts from each login's due time.
    pub open_loop: bool,
    /// Settings by name, as text; no secrets.
    pub settings: BTreeMap<String, String>,
    /// The command line, without secrets.
    pub line: String,
    /// The names of the methods, where there are several.
    pub methods: Vec<String>,
    /// True if logins come from one socket with segmentation offload, which costs the server less than real access
    /// servers do.
    pub trains: bool,
    /// The expectations and their verdicts.
    pub verdicts: Vec<ExpectationVerdict>,
    /// Usher's version.
    pub version: String,
    /// Start of the run.
    pub started: WallTime,
    /// Duration in seconds.
    pub elapsed_s: f64,
}

impl LoadRunDescription {
    fn study_name(&self) -> String {
        format!("load-{}", self.command)
    }
    /// Rewrites a text in the load's terms: MIH functions have transactions, not logins.
    #[must_use]
    pub fn replace_login_term(&self, text: &str) -> String {
        if self.command == "mih" { text.replace("login", "transaction") } else { text.to_owned() }
    }
    /// Returns the checks that a login must pass before it counts.
    const fn verification_text(&self) -> &'static str {
        match self.command.as_bytes() {
            b"pppoe" => {
                "A login consists of discovery, LCP, authentication and IPCP. It counts when IPv4 packets can pass. \
                 With MS-CHAPv2 the concentrator must also prove that it knows the password."
            }
            b"ike" => "A login counts when the gateway's authentication is valid.",
            b"mih" => {
                "A transaction counts when its response reports success. An indication counts when it is \
                 acknowledged."
            }
            _ => {
                "The generator verifies every reply before it counts: the Response Authenticator and \
                 Message-Authenticator, the end of the EAP method, and the match of sent and derived keys."
            }
        }
    }
    /// Returns the start of latency.
    #[must_use]
    pub fn latency_from(&self) -> String {
        self.replace_login_term(if self.open_loop {
            "the login's planned start"
        } else {
            "the login's start"
        })
    }
}

/// Returns the quantiles of a histogram in seconds, by name; empty without values.
fn latency_quantiles(histogram: &LatencyHistogram) -> Vec<(&'static str, f64)> {
    QUANTILES.iter().filter_map(|(q, name)| quantile(histogram, *q).map(|s| (*name, s))).collect()
}

fn latency_json(histogram: &LatencyHistogram) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut object: serde_json::Map<String, Value> =
        latency_quantiles(histogram).into_iter().map(|(name, s)| (format!("{name}_s"), json!(s))).collect();
    object.insert("mean_s".into(), json!(histogram.mean() * 1e-9));
    object.insert("min_s".into(), json!(histogram.min() as f64 * 1e-9));
    object.insert("count".into(), json!(histogram.len()));
    Value::Object(object)
}

/// Returns the outcome as one object.
#[must_use]
pub fn outcome_json(about: &LoadRunDescription, outcome: &LoadOutcome) -> Value {
    let t = &outcome.tally;
    let failures = failures_json(t);
    let client: BTreeMap<&str, u64> = outcome.counters.iter().copied().filter(|(_, n)| *n > 0).collect();
    let server = outcome.server.map(|s| {
        json!({
            "cpu_user_s": s.cpu.user,
            "cpu_system_s": s.cpu.system,
            "cpu_s": s.cpu.total_seconds(),
            "logins": s.completed,
            "cpu_ms_per_login": s.ms_per_login(),
            "cpu_resolution_s": 0.01,
            "peak_memory_bytes": s.peak_memory,
        })
    });
    let generator = json!({
        "cpu_s": outcome.own_cpu_s,
        "busy_share": outcome.busy,
        "own_lag": latency_json(&t.own_lag),
        "limit": outcome.limit,
    });
    json!({
        "command": about.command,
        "method": about.method,
        "server": about.server,
        "settings": about.settings,
        "started": format_rfc3339(about.started),
        "bound_only": outcome.limit.is_some(),
        "interrupted": outcome.interrupted,
        "measured_s": outcome.measured_s,
        "begun": t.started,
        "succeeded": t.succeeded,
        "expected_rejects": t.expected_rejects,
        "failed": t.failed_total(),
        "failures": failures,
        "cut_off": t.cut_off,
        "result_codes": t.results,
        "success": t.success_ratio(),
        "throughput_per_s": outcome.throughput(),
        "requests_answered": t.exchanges,
        "accounting_records": t.records,
        "latency_from": about.latency_from(),
        "latency": latency_json(&t.latency),
        "reject_latency": latency_json(&t.reject_latency),
        "exchange_latency": latency_json(&t.exchange_latency),
        "begin_lag": latency_json(&t.lag),
        "methods": methods_json(about, t),
        "setup": setup::setup_json(about, outcome),
        "echoes": setup::echoes_json(t),
        "client": client,
        "own_cpu_s": outcome.own_cpu_s,
        "generator": generator,
        "server_process": server,
        "trains": about.trains,
        "ramp": outcome.ramp.as_ref().map(ramp_json),
        "course": outcome.timeline.iter().map(interval_json).collect::<Vec<_>>(),
        "expectations": about.verdicts.iter().map(verdict_json).collect::<Vec<_>>(),
    })
}

fn failures_json(t: &LoginStats) -> BTreeMap<&'static str, u64> {
    t.failures().map(|(f, n)| (f.name(), n)).collect()
}

fn methods_json(about: &LoadRunDescription, t: &LoginStats) -> Vec<Value> {
    let each = about.methods.iter().zip(&t.parts).map(|(name, p)| {
        json!({
            "method": name,
            "begun": p.started,
            "succeeded": p.succeeded,
            "failed": p.failed,
            "cut_off": p.cut_off,
            "latency": latency_json(&p.latency),
        })
    });
    each.collect()
}

fn interval_json(i: &LoadIntervalStats) -> Value {
    json!({
        "at_s": i.at_s,
        "length_s": i.length_s,
        "counted": !i.warming,
        "rate_per_s": i.rate,
        "completed": i.completed,
        "succeeded": i.succeeded,
        "failed": i.failed,
        "cut_off": i.cut_off,
        "under_way": i.outstanding,
        "p50_s": i.p50_s,
        "p90_s": i.p90_s,
        "p99_s": i.p99_s,
        "max_s": i.max_s,
        "own_lag_p99_s": i.own_lag_p99_s,
    })
}

fn verdict_json(v: &ExpectationVerdict) -> Value {
    json!({ "expected": v.expected, "found": v.found, "met": v.met })
}

fn ramp_json(ramp: &RampSearch) -> Value {
    let steps: Vec<Value> = ramp.steps().iter().map(ramp_step_json).collect();
    let knee = ramp.find_ramp_knee();
    let interval = knee.as_ref().and_then(|k| k.interval).map(|(low, high)| [low, high]);
    json!({
        "knee_per_s": knee.as_ref().map(|k| k.capacity),
        "knee_beyond_limit": ramp.is_open(),
        "knee_steps": knee.as_ref().map(|k| k.steps),
        "turn_interval_per_s": interval,
        "turns": knee.as_ref().map(|k| k.turns),
        "stable": knee.as_ref().map(|k| k.stable),
        "bound_only": knee.as_ref().map(|k| k.bound.is_some()),
        "steps": steps,
    })
}

fn ramp_step_json(s: &RampStep) -> Value {
    let t = &s.tally;
    json!({
        "rate": s.rate,
        "throughput": s.throughput(),
        "measured_s": s.measured_s,
        "begun": t.started,
        "succeeded": t.succeeded,
        "failed": t.failed_total(),
        "failures": failures_json(t),
        "cut_off": t.cut_off,
        "success": t.success_ratio(),
        "p50_s": quantile(&t.latency, 0.5),
        "p99_s": quantile(&t.latency, 0.99),
        "latency": latency_json(&t.latency),
        "own_lag_p99_s": quantile(&t.own_lag, 0.99),
        "generator_limit": s.limit,
        "repeat": s.repeat,
        "kept_up": s.is_sustained,
        "interrupted": s.interrupted,
    })
}

/// Returns the metrics of a window.
fn window_metrics(tally: &LoginStats, measured_s: f64) -> Vec<(String, f64)> {
    let mut all = vec![
        ("begun".to_owned(), tally.started as f64),
        ("succeeded".to_owned(), tally.succeeded as f64),
        ("expected_rejects".to_owned(), tally.expected_rejects as f64),
        ("failed".to_owned(), tally.failed_total() as f64),
        ("cut_off".to_owned(), tally.cut_off as f64),
        ("success".to_owned(), tally.success_ratio()),
        ("measured_s".to_owned(), measured_s),
        ("requests_answered".to_owned(), tally.exchanges as f64),
        ("accounting_records".to_owned(), tally.records as f64),
    ];
    if measured_s > 0.0 {
        all.push(("throughput_per_s".to_owned(), tally.completed as f64 / measured_s));
    }
    all.extend(tally.failures().map(|(f, n)| (format!("failed_{}", f.name()), n as f64)));
    if tally.echoes > 0 {
        all.push(("echoes".to_owned(), tally.echoes as f64));
        all.push(("echoes_answered".to_owned(), tally.echoes_answered as f64));
    }
    for (name, histogram) in [
        ("latency", &tally.latency),
        ("reject_latency", &tally.reject_latency),
        ("exchange_latency", &tally.exchange_latency),
        ("begin_lag", &tally.lag),
        ("own_lag", &tally.own_lag),
        ("echo_latency", &tally.echo_latency),
    ] {
        all.extend(latency_quantiles(histogram).into_iter().map(|(q, s)| (format!("{name}_{q}_s"), s)));
    }
    all
}

/// Returns the outcome as rows: the whole, each step of a ramp in order (the replication counts the steps at a rate),
/// each of several methods, and the timeline.
#[must_use]
pub fn outcome_rows(about: &LoadRunDescription, outcome: &LoadOutcome) -> Vec<ResultRow> {
    let study: Arc<str> = about.study_name().into();
    let mut rows = Vec::new();
    let mut add = |point: &GridPoint, replication: u32, metrics: Vec<(String, f64)>| {
        rows.extend(metrics.into_iter().map(|(metric, value)| ResultRow {
            study: study.clone(),
            point: point.clone(),
            replication,
            metric: metric.into(),
            value,
        }));
    };
    let method = about.method.clone();
    let number = usher_observe::row::format_number;
    if let Some(ramp) = &outcome.ramp {
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        for step in ramp.steps().iter().filter(|s| !s.interrupted) {
            let point = GridPoint::new([("method", method.clone()), ("rate", number(step.rate))]);
            let before = seen.entry(step.rate.to_bits()).or_default();
            let mut m = window_metrics(&step.tally, step.measured_s);
            m.push(("kept_up".to_owned(), f64::from(u8::from(step.is_sustained))));
            m.push(("generator_limit".to_owned(), f64::from(u8::from(step.limit.is_some()))));
            add(&point, *before, m);
            *before += 1;
        }
    }
    for (name, part) in about.methods.iter().zip(&outcome.tally.parts) {
        let mut m = vec![
            ("begun".to_owned(), part.started as f64),
            ("succeeded".to_owned(), part.succeeded as f64),
            ("failed".to_owned(), part.failed as f64),
            ("cut_off".to_owned(), part.cut_off as f64),
        ];
        m.extend(latency_quantiles(&part.latency).into_iter().map(|(q, s)| (format!("latency_{q}_s"), s)));
        add(&GridPoint::new([("method", name.clone())]), 0, m);
    }
    for i in outcome.timeline.iter().filter(|i| !i.warming && i.length_s > 0.0) {
        let mut m = vec![
            ("completed".to_owned(), i.completed as f64),
            ("throughput_per_s".to_owned(), i.completed as f64 / i.length_s),
            ("failed".to_owned(), i.failed as f64),
            ("cut_off".to_owned(), i.cut_off as f64),
            ("under_way".to_owned(), i.outstanding as f64),
        ];
        for (name, value) in [
            ("latency_p50_s", i.p50_s),
            ("latency_p90_s", i.p90_s),
            ("latency_p99_s", i.p99_s),
            ("latency_max_s", i.max_s),
            ("own_lag_p99_s", i.own_lag_p99_s),
        ] {
            m.extend(value.map(|v| (name.to_owned(), v)));
        }
        add(&GridPoint::new([("method", method.clone()), ("until_s", format!("{:.3}", i.at_s))]), 0, m);
    }
    let mut whole = window_metrics(&outcome.tally, outcome.measured_s);
    whole.push(("bound_only".to_owned(), f64::from(u8::from(outcome.limit.is_some()))));
    whole.extend(outcome.server.and_then(|s| s.ms_per_login()).map(|ms| ("server_cpu_ms".to_owned(), ms)));
    if let Some(knee) = outcome.ramp.as_ref().and_then(RampSearch::find_ramp_knee) {
        whole.push(("knee_per_s".to_owned(), knee.capacity));
        if let Some((low, high)) = knee.interval {
            whole.extend([("turn_low_per_s".to_owned(), low), ("turn_high_per_s".to_owned(), high)]);
        }
    }
    whole.extend(setup::setup_metrics(about, outcome));
    add(&GridPoint::new([("method", method)]), 0, whole);
    rows
}

fn exact_point(x: f64, y: f64) -> usher_report::SeriesPoint {
    usher_report::SeriesPoint { n: 1, ..usher_report::SeriesPoint::from_exact(x, y) }
}

fn make_series(name: &str, points: Vec<usher_report::SeriesPoint>) -> FigureSeries {
    FigureSeries { name: name.to_owned(), points, ..FigureSeries::default() }
}

/// Draws latency against its quantile.
fn latency_figure(tally: &LoginStats) -> ReportFigure {
    let curve = |histogram: &LatencyHistogram| {
        let count = histogram.len() as f64;
        let mut points = Vec::new();
        let mut rarity = 1.0;
        while !histogram.is_empty() && rarity <= count {
            let value = histogram.value_at_quantile(1.0 - 1.0 / rarity).max(histogram.min());
            points.push(exact_point(rarity, value as f64 * 1e-6));
            rarity *= 1.5;
        }
        points
    };
    let all = [
        ("logins", &tally.latency),
        ("expected rejects", &tally.reject_latency),
        ("single requests", &tally.exchange_latency),
    ];
    ReportFigure {
        name: "latency-distribution".into(),
        title: "Latency: one in N takes at least this long".into(),
        x: FigureAxis::new("N", "").with_log_scale(),
        y: FigureAxis::new("Latency", "ms").with_log_scale(),
        series: all
            .into_iter()
            .filter(|(_, h)| !h.is_empty())
            .map(|(name, h)| make_series(name, curve(h)))
            .collect(),
        panels: Vec::new(),
    }
}

/// Draws throughput and latency over the run.
fn draw_timeline_figures(outcome: &LoadOutcome) -> [ReportFigure; 2] {
    let counted: Vec<_> = outcome.timeline.iter().filter(|i| !i.warming && i.length_s > 0.05).collect();
    let rate = counted.iter().map(|i| exact_point(i.at_s, i.completed as f64 / i.length_s)).collect();
    let failed: Vec<_> = counted.iter().map(|i| exact_point(i.at_s, i.failed as f64 / i.length_s)).collect();
    let over = |of: fn(&LoadIntervalStats) -> Option<f64>| {
        counted.iter().filter_map(|i| of(i).map(|s| exact_point(i.at_s, s * 1e3))).collect::<Vec<_>>()
    };
    let mut ended = vec![make_series("successes", rate)];
    if counted.iter().any(|i| i.failed > 0) {
        ended.push(make_series("failures", failed));
    }
    let latencies = [
        ("median", over(|i| i.p50_s)),
        ("90th percentile", over(|i| i.p90_s)),
        ("99th percentile", over(|i| i.p99_s)),
        ("longest", over(|i| i.max_s)),
        ("lateness of the generator, 99th percentile", over(|i| i.own_lag_p99_s)),
    ];
    let x = || FigureAxis::new("Time", "s");
    [
        ReportFigure {
            name: "throughput-over-time".into(),
            title: "Logins ended per second, over the run".into(),
            x: x(),
            y: FigureAxis::new("Logins ended", "1/s"),
            series: ended,
            panels: Vec::new(),
        },
        ReportFigure {
            name: "latency-over-time".into(),
            title: "Latency, over the run".into(),
            x: x(),
            y: FigureAxis::new("Latency", "ms").with_log_scale(),
            series: latencies
                .into_iter()
                .filter(|(_, points)| !points.is_empty())
                .map(|(name, points)| make_series(name, points))
                .collect(),
            panels: Vec::new(),
        },
    ]
}

/// Draws latency and throughput against the rate.
fn ramp_figures(steps: &[RampStep]) -> [ReportFigure; 2] {
    let mut steps: Vec<&RampStep> = steps.iter().filter(|s| !s.interrupted).collect();
    steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let latency = |of: fn(&RampStep) -> Option<f64>| {
        steps.iter().copied().filter_map(|s| of(s).map(|v| exact_point(s.rate, v * 1e3))).collect::<Vec<_>>()
    };
    let x = || FigureAxis::new("Logins offered", "1/s").with_log_scale();
    [
        ReportFigure {
            name: "latency-against-rate".into(),
            title: "Latency against the rate".into(),
            x: x(),
            y: FigureAxis::new("Latency", "ms").with_log_scale(),
            series: vec![
                make_series("median", latency(|s| quantile(&s.tally.latency, 0.5))),
                make_series("99th percentile", latency(|s| quantile(&s.tally.latency, 0.99))),
            ],
            panels: Vec::new(),
        },
        ReportFigure {
            name: "throughput-against-rate".into(),
            title: "Successes per second against the rate".into(),
            x: x(),
            y: FigureAxis::new("Successes", "1/s").with_log_scale(),
            series: vec![make_series(
                "successes",
                steps
                    .iter()
                    .filter(|s| s.throughput() > 0.0)
                    .map(|s| exact_point(s.rate, s.throughput()))
                    .collect(),
            )],
            panels: Vec::new(),
        },
    ]
}

fn build_tables(about: &LoadRunDescription, outcome: &LoadOutcome) -> Vec<ReportTable> {
    let t = &outcome.tally;
    let latency =
        |name: &str, histogram: &LatencyHistogram| {
            let mut row: Vec<TableCell> = vec![name.into(), (histogram.len() as f64).into()];
            row.extend(QUANTILES.iter().map(|(q, _)| {
                quantile(histogram, *q).map_or(TableCell::Empty, |s| TableCell::Number(s * 1e3))
            }));
            row
        };
    let mut columns = vec![ReportColumn::new("Measurement", ""), ReportColumn::new("Count", "")];
    columns.extend(QUANTILES.iter().map(|(_, name)| ReportColumn::new(*name, "ms")));
    let latencies = [
        ("logins", &t.latency),
        ("expected rejects", &t.reject_latency),
        ("single requests", &t.exchange_latency),
        ("start delay", &t.lag),
        ("start delay caused by the generator", &t.own_lag),
        ("echoes within sessions", &t.echo_latency),
    ];
    let rows = latencies.into_iter().filter(|(_, h)| !h.is_empty()).map(|(n, h)| latency(n, h)).collect();
    let mut tables = vec![ReportTable { title: "Latency".into(), columns, rows, folded: false }];
    let failures: Vec<Vec<TableCell>> =
        t.failures().map(|(f, n)| vec![f.name().into(), (n as f64).into(), f.explanation().into()]).collect();
    if !failures.is_empty() {
        let columns = vec![
            ReportColumn::new("Failure", ""),
            ReportColumn::new("Count", ""),
            ReportColumn::new("Meaning", ""),
        ];
        tables.push(ReportTable { title: "Failures".into(), columns, rows: failures, folded: false });
    }
    if t.cut_off > 0 {
        tables.push(ReportTable {
            title: "Cut off".into(),
            columns: vec![ReportColumn::new("Logins in progress at the end, with unknown result", "")],
            rows: vec![vec![(t.cut_off as f64).into()]],
            folded: false,
        });
    }
    tables.extend(methods_table(about, t));
    let counted: Vec<Vec<TableCell>> = outcome
        .counters
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| vec![(*name).into(), (*n as f64).into()])
        .collect();
    if !counted.is_empty() {
        let columns = vec![ReportColumn::new("Counter", ""), ReportColumn::new("Count", "")];
        tables.push(ReportTable {
            title: "Counters of the clients, warm-up included".into(),
            columns,
            rows: counted,
            folded: false,
        });
    }
    tables
}

/// Returns the table of several methods' results.
fn methods_table(about: &LoadRunDescription, t: &LoginStats) -> Option<ReportTable> {
    let columns = [
        ("Method", ""),
        ("Begun", ""),
        ("Succeeded", ""),
        ("Failed", ""),
        ("Cut off", ""),
        ("p50", "ms"),
        ("p99", "ms"),
    ];
    let row = |(name, p): (&String, &crate::tally::MethodStats)| {
        let ms = |q| quantile(&p.latency, q).map_or(TableCell::Empty, |s| TableCell::Number(s * 1e3));
        let counts = [p.started, p.succeeded, p.failed, p.cut_off].map(|n| TableCell::Number(n as f64));
        let mut row = vec![TableCell::from(name.as_str())];
        row.extend(counts);
        row.extend([ms(0.5), ms(0.99)]);
        row
    };
    let rows: Vec<Vec<TableCell>> = about.methods.iter().zip(&t.parts).map(row).collect();
    let columns = columns.map(|(title, unit)| ReportColumn::new(title, unit)).into();
    (!rows.is_empty()).then(|| ReportTable { title: "By method".into(), columns, rows, folded: false })
}

/// Describes the result of a ramp in sentences.
fn describe_capacity(ramp: &RampSearch, knee: Option<&RampKnee>) -> Vec<String> {
    let Some(knee) = knee else {
        return vec![
            "The server kept up with none of the rates. The figures are those of the lowest rate.".to_owned(),
        ];
    };
    let steps = if knee.steps == 1 { "its step".to_owned() } else { format!("its {} steps", knee.steps) };
    let rate = knee.capacity;
    let mut all = Vec::new();
    all.push(if ramp.is_open() {
        format!(
            "Capacity: at least {rate:.0} logins a second, the highest rate tried. The figures are those of {steps}."
        )
    } else if let Some(limit) = knee.bound {
        format!(
            "Capacity: at least {rate:.0} logins a second. At higher rates the generator was the limit ({}), not the \
             server. The figures are those of {steps}.",
            limit.describe()
        )
    } else {
        format!(
            "Capacity: {rate:.0} logins a second, the highest rate that the server kept up with. The figures are those of \
             {steps}."
        )
    });
    if let (Some((low, high)), None) = (knee.interval, knee.bound) {
        let how = if knee.turns < 2 {
            "between these two rates, tried once".to_owned()
        } else {
            format!("95 % interval of {} turns", knee.turns)
        };
        let steady = if knee.stable {
            ""
        } else if knee.turns < TURNS {
            " There were too few repetitions to be sure"
        } else {
            " The result is unstable: it depends on more than the rate"
        };
        let end = if steady.is_empty() { "" } else { "." };
        all.push(format!(
            "The server stops keeping up at {low:.0} to {high:.0} logins a second ({how}).{steady}{end}"
        ));
    }
    all
}

/// Returns the findings, a sentence each.
#[must_use]
pub fn describe_findings(about: &LoadRunDescription, outcome: &LoadOutcome) -> Vec<String> {
    let t = &outcome.tally;
    let knee = outcome.ramp.as_ref().and_then(RampSearch::find_ramp_knee);
    let mut all = Vec::new();
    if let Some(ramp) = &outcome.ramp {
        all.extend(describe_capacity(ramp, knee.as_ref()));
    }
    all.push(format!(
        "{} of {} logins had the expected result ({:.3} %), {:.0} a second.",
        t.succeeded,
        t.ended_total(),
        t.success_ratio() * 100.0,
        outcome.throughput()
    ));
    if t.cut_off > 0 {
        all.push(format!("{} more were in progress at the end; their results are unknown.", t.cut_off));
    }
    if let (None, Some(limit)) = (&outcome.ramp, outcome.limit) {
        all.push(format!(
            "The generator was the limit ({}): the server may do better than these figures. Use more --threads, or \
             run the generator on another machine.",
            limit.describe()
        ));
    }
    if let (Some(p50), Some(p99)) = (quantile(&t.latency, 0.5), quantile(&t.latency, 0.99)) {
        all.push(format!(
            "Half of the logins took at most {:.3} ms, 99 % at most {:.3} ms.",
            p50 * 1e3,
            p99 * 1e3
        ));
    }
    all.extend(setup::describe_setup(about, outcome));
    if let Some((server, ms)) = outcome.server.and_then(|s| Some((s, s.ms_per_login()?))) {
        all.push(format!(
            "The server used {ms:.4} ms of CPU time for each login ({:.2} s for {} logins, measured to 0.01 s).",
            server.cpu.total_seconds(),
            server.completed
        ));
        if about.trains {
            all.push(
                "All logins came from one socket with segmentation offload, which costs the server less than real \
                 access servers do. Use --nas and --no-offload to measure separate access servers."
                    .to_owned(),
            );
        }
    }
    for v in &about.verdicts {
        let met = if v.met { "Expectation met" } else { "Expectation NOT met" };
        all.push(format!("{met}: {} (measured: {}).", v.expected, v.found_text));
    }
    all.iter().map(|sentence| about.replace_login_term(sentence)).collect()
}

fn build_manifest(about: &LoadRunDescription, outcome: &LoadOutcome) -> RunManifest {
    let number = |x: f64| ManifestValue::from(x);
    let facts = [
        ("throughput_per_s".to_owned(), number(outcome.throughput())),
        ("measured_s".to_owned(), number(outcome.measured_s)),
        ("own_cpu_s".to_owned(), number(outcome.own_cpu_s)),
        ("command_line".to_owned(), ManifestValue::from(about.line.clone())),
    ];
    RunManifest {
        usher_version: about.version.clone(),
        study: about.study_name(),
        seed: 0,
        mode: "live".into(),
        parameters: about.settings.clone(),
        plan_hash: String::new(),
        host: RunHostInfo::detect(),
        started: format_rfc3339(about.started),
        elapsed_s: about.elapsed_s,
        points: outcome.ramp.as_ref().map_or(1, |r| r.steps().len() as u64),
        replications: 1,
        complete: !outcome.interrupted,
        facts: facts.into(),
    }
}

const STEP_COLUMNS: [(&str, &str); 10] = [
    ("Rate", "1/s"),
    ("Successes", "1/s"),
    ("Begun", ""),
    ("Success", "%"),
    ("Failed", ""),
    ("Cut off", ""),
    ("p50", "ms"),
    ("p99", "ms"),
    ("Kept up", ""),
    ("Failures", ""),
];

fn step_row(s: &RampStep) -> Vec<TableCell> {
    let t = &s.tally;
    let ms = |q| quantile(&t.latency, q).map_or(TableCell::Empty, |v| TableCell::Number(v * 1e3));
    let failures: Vec<String> = t.failures().map(|(f, n)| format!("{} {n}", f.name())).collect();
    vec![
        s.rate.into(),
        s.throughput().into(),
        (t.started as f64).into(),
        (t.success_ratio() * 100.0).into(),
        (t.failed_total() as f64).into(),
        (t.cut_off as f64).into(),
        ms(0.5),
        ms(0.99),
        verdict_text(s).into(),
        failures.join(", ").into(),
    ]
}

/// Returns the verdict on a step in a word or two.
#[must_use]
pub const fn verdict_text(step: &RampStep) -> &'static str {
    match (step.interrupted, step.is_sustained, step.limit.is_some()) {
        (true, _, _) => "interrupted",
        (_, true, _) => "yes",
        (_, _, true) => "no: the generator",
        _ => "no",
    }
}

/// Builds the report.
#[must_use]
pub fn build_report(about: &LoadRunDescription, outcome: &LoadOutcome) -> HtmlReport {
    let mut sections = Vec::new();
    if let Some(r) = &outcome.ramp {
        sections.push(ReportSection {
            title: "The ramp".into(),
            text: "Each rate ran for a while before its measurement. During the search, a rate that fails is tried \
                   once more. Near the knee the steps are repeated: one step up after each success, one step down \
                   after each failure. The headline combines all steps at the capacity."
                .into(),
            figures: ramp_figures(r.steps()).into(),
            tables: vec![ReportTable {
                title: "Steps".into(),
                columns: STEP_COLUMNS.map(|(t, u)| ReportColumn::new(t, u)).into(),
                rows: r.steps().iter().map(step_row).collect(),
                folded: false,
            }],
        });
    }
    sections.push(ReportSection {
        title: "Latency".into(),
        text: format!("Latency runs from {} to its verified end.", about.latency_from()),
        figures: vec![latency_figure(&outcome.tally)],
        tables: build_tables(about, outcome),
    });
    sections.push(ReportSection {
        title: "Over the run".into(),
        figures: draw_timeline_figures(outcome).into(),
        ..ReportSection::default()
    });
    let settings: Vec<String> = about.settings.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    HtmlReport {
        title: format!("Load by {} on {}", about.method, about.server),
        question: about.replace_login_term(
            "How many logins a second does this server handle, and how long does each one take?",
        ),
        findings: describe_findings(about, outcome),
        description: format!("{}\n\n{}", about.verification_text(), settings.join("; ")),
        partial: outcome.interrupted.then(|| "The user interrupted the run.".to_owned()),
        warnings: Vec::new(),
        sections,
        notes: Vec::new(),
        reruns: vec![usher_report::RerunCommand { point: "all".into(), command: about.line.clone() }],
        manifest: Some(build_manifest(about, outcome)),
        ..HtmlReport::default()
    }
}

/// Writes `results.csv`, `results.parquet`, `results.json`, `manifest.json`, `report.html` and its figures to this
/// folder, and returns the report's path.
///
/// # Errors
/// The path and the cause.
pub fn write_report(
    folder: &Path,
    about: &LoadRunDescription,
    outcome: &LoadOutcome,
) -> Result<PathBuf, RunFileError> {
    let rows = outcome_rows(about, outcome);
    csv::write_csv(&folder.join("results.csv"), &rows)?;
    parquet::write_parquet(&folder.join("results.parquet"), &rows, &ResultRowUnits::default())?;
    let object = format!("{:#}\n", outcome_json(about, outcome));
    usher_observe::file::write_file(&folder.join("results.json"), |out| out.write_all(object.as_bytes()))?;
    build_manifest(about, outcome).write_file(&folder.join("manifest.json"))?;
    build_report(about, outcome).write_files(folder)
}
