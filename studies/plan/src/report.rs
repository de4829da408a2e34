//! The answer as text, as JSON and as a study's report.

use crate::answer::{IntervalEstimate, LoadLevel, PlanAnswer, PlanSettings, SimulatedPoint};
use crate::bounds::ResourceBound;
use serde_json::{Value, json};
use usher_report::{
    FigureAxis, FigureSeries, HtmlReport, ReportColumn, ReportFigure, ReportSection, ReportTable, SeriesKind,
    SeriesPoint, TableCell,
};

fn interval_json(spread: &IntervalEstimate) -> Value {
    json!({ "mean": spread.mean, "low": spread.low, "high": spread.high })
}

fn point_json(point: &SimulatedPoint) -> Value {
    let delay = point.delay.as_ref().map(|[mean, p50, p90, p99]| {
        json!({ "mean": interval_json(mean), "p50": interval_json(p50), "p90": interval_json(p90), "p99": interval_json(p99) })
    });
    json!({
        "logins_per_s": point.rate,
        "utilisation": interval_json(&point.busy),
        "delay_s": delay,
        "in_time": interval_json(&point.in_time),
        "closed_form_mean_delay_s": point.closed.is_finite().then_some(point.closed),
    })
}

fn bound_json(bound: &ResourceBound) -> Value {
    json!({ "resource": bound.resource.name(), "logins_per_s": bound.rate })
}

/// Returns the answer for programs; times in seconds, rates in logins per second.
#[must_use]
pub fn answer_json(answer: &PlanAnswer, settings: &PlanSettings, assumptions: &[String]) -> Value {
    json!({
        "demand_per_s": settings.demand,
        "target": { "share": settings.share, "within_s": settings.time_limit },
        "capacity": answer.capacity.as_ref().map(|c| json!({ "logins_per_s": c.mean, "interval": [c.low, c.high] })),
        "limited_by": answer.capacity.as_ref().map(|_| answer.limit.map_or("target", |limit| limit.name())),
        "servers": answer.servers,
        "planned": answer.planned.as_ref().map(point_json),
        "breaks_first": answer.bounds.first().map(bound_json),
        "bounds": answer.bounds.iter().map(bound_json).collect::<Vec<_>>(),
        "levels": answer.levels.iter().map(|level| json!({
            "share": level.share,
            "logins_per_s": level.rate,
            "servers": level.servers,
            "point": point_json(&level.point),
        })).collect::<Vec<_>>(),
        "points": answer.points.iter().map(point_json).collect::<Vec<_>>(),
        "login": { "messages": answer.mix.messages, "cpu_s": answer.mix.work },
        "assumptions": assumptions,
        "seed": settings.seed,
        "replications": settings.replications,
    })
}

fn format_rate(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn format_ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        _ if !ms.is_finite() => "unbounded".to_owned(),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

fn format_interval_ms(spread: &IntervalEstimate) -> String {
    if spread.low.is_finite() && spread.high.is_finite() {
        format!(
            "{} ({} to {})",
            format_ms(spread.mean),
            format_ms(spread.low.max(0.0)),
            format_ms(spread.high)
        )
    } else {
        format_ms(spread.mean)
    }
}

fn delay_target_text(settings: &PlanSettings) -> String {
    format!("{} % within {}", settings.share * 100.0, format_ms(settings.time_limit))
}

fn servers_text(n: u64) -> String {
    if n == 1 { "1 server".to_owned() } else { format!("{n} servers") }
}

/// Returns the sentences of the answer.
fn describe_findings(answer: &PlanAnswer, settings: &PlanSettings) -> Vec<String> {
    let mut all = Vec::new();
    match (&answer.capacity, answer.servers) {
        (Some(capacity), Some(n)) => {
            all.push(format!(
                "{} for {} logins a second, with {}.",
                servers_text(n),
                format_rate(settings.demand),
                delay_target_text(settings)
            ));
            all.push(format!(
                "One server takes {} logins a second (95 % interval {} to {}, {} replications).",
                format_rate(capacity.mean),
                format_rate(capacity.low),
                format_rate(capacity.high),
                settings.replications
            ));
            all.push(match answer.limit {
                Some(limit) => format!("The bottleneck is {}, whatever the target.", limit.description()),
                None => "The limit is the target: with more logins, too many take longer.".to_owned(),
            });
        }
        _ => all.push(format!(
            "No number of servers meets the target, {}: even a single login takes longer. Allow more time, bring the \
             store or the access servers nearer, or use another method.",
            delay_target_text(settings)
        )),
    }
    if let Some(first) = answer.bounds.first() {
        let next = answer.bounds.get(1).map_or_else(String::new, |next| {
            format!(" The next is {}, at {}.", next.resource.description(), format_rate(next.rate))
        });
        all.push(format!(
            "The first bottleneck is {}, at {} logins a second.{next}",
            first.resource.description(),
            format_rate(first.rate)
        ));
    }
    if let Some(planned) = &answer.planned
        && let Some([mean, p50, _, p99]) = &planned.delay
    {
        all.push(format!(
            "Each server then has {} logins a second and is busy for {:.0} % of the time. Half of the logins end \
             within {}, 99 % within {}. The mean is {}, by the closed form {}.",
            format_rate(planned.rate),
            planned.busy.mean * 100.0,
            format_interval_ms(p50),
            format_interval_ms(p99),
            format_interval_ms(mean),
            format_ms(planned.closed)
        ));
    }
    all
}

fn load_level_row(level: &LoadLevel) -> [String; 5] {
    let p99 = level.point.delay.as_ref().map_or_else(|| "none".to_owned(), |d| format_interval_ms(&d[3]));
    [
        format!("{:.0} %", level.share * 100.0),
        format_rate(level.rate),
        level.servers.to_string(),
        format!("{:.0} %", level.point.busy.mean * 100.0),
        p99,
    ]
}

const LEVEL_HEAD: [&str; 5] = ["level", "logins/s each", "servers", "processor busy", "99 % within"];
const POINT_HEAD: [&str; 7] =
    ["logins/s", "processor busy", "mean", "closed form", "half within", "99 % within", "in time"];

fn simulated_point_row(point: &SimulatedPoint) -> [String; 7] {
    let of = |i: usize| point.delay.as_ref().map_or_else(|| "none".to_owned(), |d| format_interval_ms(&d[i]));
    [
        format_rate(point.rate),
        format!("{:.0} %", point.busy.mean * 100.0),
        of(0),
        format_ms(point.closed),
        of(1),
        of(3),
        format!("{:.2} %", point.in_time.mean * 100.0),
    ]
}

/// Returns the answer for people; `columns` lays out a table.
#[must_use]
pub fn answer_text(
    answer: &PlanAnswer,
    settings: &PlanSettings,
    columns: &dyn Fn(&[Vec<String>]) -> String,
) -> String {
    let mut text = describe_findings(answer, settings).join("\n");
    let table = |head: &[&str], rows: Vec<Vec<String>>| {
        let head = head.iter().map(|h| (*h).to_owned()).collect();
        columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    };
    text.push_str("\n\nAt the engineering levels, as shares of the first bottleneck:\n");
    text.push_str(&table(&LEVEL_HEAD, answer.levels.iter().map(|l| load_level_row(l).to_vec()).collect()));
    text.push_str("\nOne server, simulated:\n");
    text.push_str(&table(
        &POINT_HEAD,
        answer.points.iter().map(|p| simulated_point_row(p).to_vec()).collect(),
    ));
    text
}

fn build_table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> ReportTable {
    ReportTable {
        title: title.to_owned(),
        columns: head.iter().map(|h| ReportColumn::new(*h, "")).collect(),
        rows: rows.into_iter().map(|row| row.into_iter().map(TableCell::Text).collect()).collect(),
        folded: false,
    }
}

fn measured_point(x: f64, spread: &IntervalEstimate) -> SeriesPoint {
    SeriesPoint {
        x,
        mean: spread.mean,
        low: spread.low,
        high: spread.high,
        n: 0,
        median: None,
        moved: None,
        quartiles: None,
    }
}

/// Returns the report: the figure of delay and utilisation against load with the knee, the tables, and the assumptions.
#[must_use]
pub fn build_report(
    answer: &PlanAnswer,
    settings: &PlanSettings,
    about: &str,
    assumptions: Vec<String>,
) -> HtmlReport {
    let points = || answer.points.iter();
    let delay = |i: usize, name: &str| FigureSeries {
        name: name.to_owned(),
        points: points()
            .filter_map(|p| {
                let spread = p.delay.as_ref()?[i];
                Some(measured_point(
                    p.rate,
                    &IntervalEstimate {
                        mean: spread.mean * 1e3,
                        low: spread.low * 1e3,
                        high: spread.high * 1e3,
                    },
                ))
            })
            .collect(),
        ..FigureSeries::default()
    };
    let closed = FigureSeries {
        name: "mean, closed form".to_owned(),
        kind: SeriesKind::Analytic,
        points: points()
            .filter(|p| p.closed.is_finite())
            .map(|p| SeriesPoint::from_exact(p.rate, p.closed * 1e3))
            .collect(),
        names: Vec::new(),
    };
    let load = || FigureAxis::new("Logins a second of one server", "1/s");
    let mut knee = Vec::new();
    if let Some(capacity) = &answer.capacity {
        let line =
            vec![SeriesPoint::from_exact(capacity.mean, 0.0), SeriesPoint::from_exact(capacity.mean, 100.0)];
        knee.push(FigureSeries {
            name: "knee".to_owned(),
            kind: SeriesKind::Analytic,
            points: line,
            names: Vec::new(),
        });
    }
    let busy = FigureSeries {
        name: "processor busy".to_owned(),
        points: points()
            .map(|p| {
                let spread = IntervalEstimate {
                    mean: p.busy.mean * 100.0,
                    low: p.busy.low * 100.0,
                    high: p.busy.high * 100.0,
                };
                measured_point(p.rate, &spread)
            })
            .collect(),
        ..FigureSeries::default()
    };
    let in_time = FigureSeries {
        name: "logins in time".to_owned(),
        points: points()
            .map(|p| {
                let of = p.in_time;
                measured_point(
                    p.rate,
                    &IntervalEstimate { mean: of.mean * 100.0, low: of.low * 100.0, high: of.high * 100.0 },
                )
            })
            .collect(),
        ..FigureSeries::default()
    };
    let figures = vec![
        ReportFigure {
            name: "delay".to_owned(),
            title: "Delay of logins by load".to_owned(),
            x: load(),
            y: FigureAxis::new("Delay", "ms").with_log_scale(),
            series: vec![delay(1, "half within"), delay(3, "99 % within"), delay(0, "mean"), closed],
            panels: Vec::new(),
        },
        ReportFigure {
            name: "utilisation".to_owned(),
            title: "Processor and logins in time by load, with the knee".to_owned(),
            x: load(),
            y: FigureAxis::new("Share", "%"),
            series: [busy, in_time].into_iter().chain(knee).collect(),
            panels: Vec::new(),
        },
    ];
    let tables = vec![
        build_table(
            "The engineering levels, as shares of the first bottleneck",
            &LEVEL_HEAD,
            answer.levels.iter().map(|l| load_level_row(l).to_vec()).collect(),
        ),
        build_table(
            "One server, simulated",
            &POINT_HEAD,
            points().map(|p| simulated_point_row(p).to_vec()).collect(),
        ),
        build_table(
            "The limit of each resource",
            &["resource", "logins/s"],
            answer
                .bounds
                .iter()
                .map(|b| vec![b.resource.description().to_owned(), format_rate(b.rate)])
                .collect(),
        ),
    ];
    HtmlReport {
        title: "How many servers".to_owned(),
        question: format!(
            "How many servers do {} logins a second need, with {}?",
            format_rate(settings.demand),
            delay_target_text(settings)
        ),
        findings: describe_findings(answer, settings),
        description: about.to_owned(),
        sections: vec![ReportSection {
            title: "One server by load".to_owned(),
            text: String::new(),
            figures,
            tables,
        }],
        notes: assumptions,
        ..HtmlReport::default()
    }
}
