//! The answer as text, as JSON and as the report that a study has.

use crate::answer::{Answer, Level, Settings, SimulatedPoint, Spread};
use crate::bounds::Bound;
use serde_json::{Value, json};
use usher_report::{Axis, Cell, Column, Figure, Kind, Point, Report, Section, Series, Table};

fn interval(spread: &Spread) -> Value {
    json!({ "mean": spread.mean, "low": spread.low, "high": spread.high })
}

fn point_json(point: &SimulatedPoint) -> Value {
    let delay = point.delay.as_ref().map(|[mean, p50, p90, p99]| {
        json!({ "mean": interval(mean), "p50": interval(p50), "p90": interval(p90), "p99": interval(p99) })
    });
    json!({
        "logins_per_s": point.rate,
        "utilisation": interval(&point.busy),
        "delay_s": delay,
        "in_time": interval(&point.in_time),
        "closed_form_mean_delay_s": point.closed.is_finite().then_some(point.closed),
    })
}

fn bound_json(bound: &Bound) -> Value {
    json!({ "resource": bound.resource.name(), "logins_per_s": bound.rate })
}

/// The answer for programs; times in seconds, rates in logins a second.
#[must_use]
pub fn json(answer: &Answer, settings: &Settings) -> Value {
    json!({
        "demand_per_s": settings.demand,
        "target": { "share": settings.share, "within_s": settings.within },
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
        "seed": settings.seed,
        "replications": settings.replications,
    })
}

fn rate(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

fn ms(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        _ if !ms.is_finite() => "unbounded".to_owned(),
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 1.0 => format!("{ms:.1} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

fn spread_ms(spread: &Spread) -> String {
    if spread.low.is_finite() && spread.high.is_finite() {
        format!("{} ({} to {})", ms(spread.mean), ms(spread.low.max(0.0)), ms(spread.high))
    } else {
        ms(spread.mean)
    }
}

fn target(settings: &Settings) -> String {
    format!("{} % within {}", settings.share * 100.0, ms(settings.within))
}

fn servers(n: u64) -> String {
    if n == 1 { "1 server".to_owned() } else { format!("{n} servers") }
}

/// The sentences of the answer.
fn findings(answer: &Answer, settings: &Settings) -> Vec<String> {
    let mut all = Vec::new();
    match (&answer.capacity, answer.servers) {
        (Some(capacity), Some(n)) => {
            all.push(format!(
                "{} for {} logins a second, {} of them.",
                servers(n),
                rate(settings.demand),
                target(settings)
            ));
            all.push(format!(
                "One takes {} logins a second so (95 % interval {} to {}, {} replications).",
                rate(capacity.mean),
                rate(capacity.low),
                rate(capacity.high),
                settings.replications
            ));
            all.push(match answer.limit {
                Some(limit) => format!("What sets this is {}, however long logins may take.", limit.about()),
                None => "What sets this is the target: with more logins too many take longer.".to_owned(),
            });
        }
        _ => all.push(format!(
            "No number of servers meets the target, {}: a login by itself takes longer. Ask for more time, bring the store or the access \
             servers nearer, or take another method.",
            target(settings)
        )),
    }
    if let Some(first) = answer.bounds.first() {
        let next = answer.bounds.get(1).map_or_else(String::new, |next| {
            format!(" Next would be {}, at {}.", next.resource.about(), rate(next.rate))
        });
        all.push(format!(
            "What breaks first is {}, at {} logins a second.{next}",
            first.resource.about(),
            rate(first.rate)
        ));
    }
    if let Some(planned) = &answer.planned
        && let Some([mean, p50, _, p99]) = &planned.delay
    {
        all.push(format!(
            "Each of them then has {} logins a second and is busy for {:.0} % of the time: half of the logins take {}, 99 % {}, on \
             average {}; the closed form says {} on average.",
            rate(planned.rate),
            planned.busy.mean * 100.0,
            spread_ms(p50),
            spread_ms(p99),
            spread_ms(mean),
            ms(planned.closed)
        ));
    }
    all
}

fn level_row(level: &Level) -> [String; 5] {
    let p99 = level.point.delay.as_ref().map_or_else(|| "none".to_owned(), |d| spread_ms(&d[3]));
    [
        format!("{:.0} %", level.share * 100.0),
        rate(level.rate),
        level.servers.to_string(),
        format!("{:.0} %", level.point.busy.mean * 100.0),
        p99,
    ]
}

const LEVEL_HEAD: [&str; 5] = ["level", "logins/s each", "servers", "processor busy", "99 % within"];
const POINT_HEAD: [&str; 7] =
    ["logins/s", "processor busy", "mean", "closed form", "half within", "99 % within", "in time"];

fn point_row(point: &SimulatedPoint) -> [String; 7] {
    let of = |i: usize| point.delay.as_ref().map_or_else(|| "none".to_owned(), |d| spread_ms(&d[i]));
    [
        rate(point.rate),
        format!("{:.0} %", point.busy.mean * 100.0),
        of(0),
        ms(point.closed),
        of(1),
        of(3),
        format!("{:.2} %", point.in_time.mean * 100.0),
    ]
}

/// The answer for people: `columns` lays a table out.
#[must_use]
pub fn text(answer: &Answer, settings: &Settings, columns: &dyn Fn(&[Vec<String>]) -> String) -> String {
    let mut text = findings(answer, settings).join("\n");
    let table = |head: &[&str], rows: Vec<Vec<String>>| {
        let head = head.iter().map(|h| (*h).to_owned()).collect();
        columns(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    };
    text.push_str("\n\nAt the engineering levels, as shares of what breaks first:\n");
    text.push_str(&table(&LEVEL_HEAD, answer.levels.iter().map(|l| level_row(l).to_vec()).collect()));
    text.push_str("\nOne server, simulated:\n");
    text.push_str(&table(&POINT_HEAD, answer.points.iter().map(|p| point_row(p).to_vec()).collect()));
    text
}

fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table {
        title: title.to_owned(),
        columns: head.iter().map(|h| Column::new(*h, "")).collect(),
        rows: rows.into_iter().map(|row| row.into_iter().map(Cell::Text).collect()).collect(),
        folded: false,
    }
}

fn measured(x: f64, spread: &Spread) -> Point {
    Point {
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

/// The report: the figure of delay and utilisation against load with the knee, the tables, what was assumed.
#[must_use]
pub fn report(answer: &Answer, settings: &Settings, about: &str, assumptions: Vec<String>) -> Report {
    let points = || answer.points.iter();
    let delay = |i: usize, name: &str| Series {
        name: name.to_owned(),
        points: points()
            .filter_map(|p| {
                let spread = p.delay.as_ref()?[i];
                Some(measured(
                    p.rate,
                    &Spread { mean: spread.mean * 1e3, low: spread.low * 1e3, high: spread.high * 1e3 },
                ))
            })
            .collect(),
        ..Series::default()
    };
    let closed = Series {
        name: "mean, closed form".to_owned(),
        kind: Kind::Analytic,
        points: points()
            .filter(|p| p.closed.is_finite())
            .map(|p| Point::exact(p.rate, p.closed * 1e3))
            .collect(),
        names: Vec::new(),
    };
    let load = || Axis::new("Logins a second of one server", "1/s");
    let mut knee = Vec::new();
    if let Some(capacity) = &answer.capacity {
        let line = vec![Point::exact(capacity.mean, 0.0), Point::exact(capacity.mean, 100.0)];
        knee.push(Series { name: "knee".to_owned(), kind: Kind::Analytic, points: line, names: Vec::new() });
    }
    let busy = Series {
        name: "processor busy".to_owned(),
        points: points()
            .map(|p| {
                let spread =
                    Spread { mean: p.busy.mean * 100.0, low: p.busy.low * 100.0, high: p.busy.high * 100.0 };
                measured(p.rate, &spread)
            })
            .collect(),
        ..Series::default()
    };
    let in_time = Series {
        name: "logins in time".to_owned(),
        points: points()
            .map(|p| {
                let of = p.in_time;
                measured(
                    p.rate,
                    &Spread { mean: of.mean * 100.0, low: of.low * 100.0, high: of.high * 100.0 },
                )
            })
            .collect(),
        ..Series::default()
    };
    let figures = vec![
        Figure {
            name: "delay".to_owned(),
            title: "Delay of logins by load".to_owned(),
            x: load(),
            y: Axis::new("Delay", "ms").logarithmic(),
            series: vec![delay(1, "half within"), delay(3, "99 % within"), delay(0, "mean"), closed],
            panels: Vec::new(),
        },
        Figure {
            name: "utilisation".to_owned(),
            title: "Processor and logins in time by load, with the knee".to_owned(),
            x: load(),
            y: Axis::new("Share", "%"),
            series: [busy, in_time].into_iter().chain(knee).collect(),
            panels: Vec::new(),
        },
    ];
    let tables = vec![
        table(
            "The engineering levels, as shares of what breaks first",
            &LEVEL_HEAD,
            answer.levels.iter().map(|l| level_row(l).to_vec()).collect(),
        ),
        table("One server, simulated", &POINT_HEAD, points().map(|p| point_row(p).to_vec()).collect()),
        table(
            "What it takes at most, resource by resource",
            &["resource", "logins/s"],
            answer.bounds.iter().map(|b| vec![b.resource.about().to_owned(), rate(b.rate)]).collect(),
        ),
    ];
    Report {
        title: "How many servers".to_owned(),
        question: format!(
            "How many servers do {} logins a second take, {} of them?",
            rate(settings.demand),
            target(settings)
        ),
        findings: findings(answer, settings),
        description: about.to_owned(),
        sections: vec![Section {
            title: "One server by load".to_owned(),
            text: String::new(),
            figures,
            tables,
        }],
        notes: assumptions,
        ..Report::default()
    }
}
