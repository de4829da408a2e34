//! The progress line of a load, and the table at its end.

use crate::output::{format_columns, format_rounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use usher_load::report::{LoadRunDescription, describe_findings, verdict_text};
use usher_load::{
    LatencyHistogram, LoadIntervalStats, LoadObserver, LoadOutcome, LoadRunPlan, RampStep, quantile,
};

/// A line that is redrawn at each interval. It is absent if progress is not drawn.
pub(super) struct LoadProgress<'a> {
    bar: ProgressBar,
    interrupted: &'a AtomicBool,
}

impl<'a> LoadProgress<'a> {
    pub(super) fn new(plan: &LoadRunPlan, drawn: bool, interrupted: &'a AtomicBool) -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
        if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {msg}") {
            bar.set_style(style);
        }
        if plan.ramp.is_some() {
            bar.println(
                "    rate/s   success/s   success    failed   cut off      p50 ms      p99 ms  kept up",
            );
        }
        bar.set_message("connecting to the server");
        Self { bar, interrupted }
    }

    pub(super) fn clear_progress_line(&self) {
        self.bar.finish_and_clear();
    }
}

fn format_quantile_ms(histogram: &LatencyHistogram, q: f64) -> String {
    format_milliseconds(quantile(histogram, q))
}

fn format_milliseconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |s| format_rounded(s * 1e3))
}

impl LoadObserver for LoadProgress<'_> {
    fn on_interval(&mut self, i: &LoadIntervalStats) {
        let rate = i.rate.map_or_else(String::new, |r| format!("rate {}/s  ", format_rounded(r)));
        let message = if i.warming {
            format!("{rate}warming up  {} in progress", i.outstanding)
        } else {
            format!(
                "{rate}{:.0}/s  {:.2} % success  p50 {} ms  p99 {} ms  {} in progress",
                i.completed as f64 / i.length_s.max(1e-3),
                i.success_ratio() * 100.0,
                format_milliseconds(i.p50_s),
                format_milliseconds(i.p99_s),
                i.outstanding
            )
        };
        self.bar.set_message(message);
        self.bar.tick();
    }

    fn on_step(&mut self, s: &RampStep) {
        let t = &s.tally;
        let ms = |q| quantile(&t.latency, q).map_or_else(|| "-".to_owned(), |v| format!("{:.3}", v * 1e3));
        self.bar.println(format!(
            "{:>10.0} {:>11.0} {:>8.2} % {:>8} {:>9} {:>11} {:>11}  {}",
            s.rate,
            s.throughput(),
            t.success_ratio() * 100.0,
            t.failed_total(),
            t.cut_off,
            ms(0.5),
            ms(0.99),
            verdict_text(s)
        ));
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Formats the table of results.
pub(super) fn summary_table(about: &LoadRunDescription, outcome: &LoadOutcome) -> String {
    let t = &outcome.tally;
    let mut text = format!("{} on {}, {:.1} s measured", about.method, about.server, outcome.measured_s);
    text.push_str(if outcome.interrupted { ", interrupted by the user\n\n" } else { "\n\n" });
    for finding in describe_findings(about, outcome) {
        text.push_str(&finding);
        text.push('\n');
    }
    let quantiles = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9"), (1.0, "max")];
    let mut rows =
        vec![["latency, ms", "count"].into_iter().chain(quantiles.map(|q| q.1)).map(str::to_owned).collect()];
    for (name, histogram) in [
        (if about.command == "mih" { "transactions" } else { "logins" }, &t.latency),
        ("expected rejects", &t.reject_latency),
        ("single requests", &t.exchange_latency),
        ("start delay", &t.lag),
        ("start delay by the generator", &t.own_lag),
        ("echoes within sessions", &t.echo_latency),
    ] {
        let late = matches!(name, "start delay" | "start delay by the generator");
        let wanted = !histogram.is_empty() && (about.open_loop || !late);
        if wanted {
            let mut row: Vec<String> = vec![name.to_owned(), histogram.len().to_string()];
            row.extend(quantiles.map(|(q, _)| format_quantile_ms(histogram, q)));
            rows.push(row);
        }
    }
    text.push('\n');
    text.push_str(&format_columns(&rows));
    text.push_str(&format!("Latency runs from {} to its verified end.\n", about.latency_from()));
    if t.records > 0 {
        text.push_str(&format!("{} accounting records were acknowledged.\n", t.records));
    }
    if t.failed_total() > 0 {
        let mut rows: Vec<Vec<String>> = vec![["failures", "count", "meaning"].map(str::to_owned).into()];
        rows.extend(
            t.failures().map(|(f, n)| vec![f.name().to_owned(), n.to_string(), f.explanation().to_owned()]),
        );
        text.push('\n');
        text.push_str(&format_columns(&rows));
        for (code, n) in &t.results {
            text.push_str(&format!("result code {code}: {n}\n"));
        }
    }
    if !about.methods.is_empty() {
        let title = ["method", "begun", "succeeded", "failed", "cut off", "p50 ms", "p99 ms"];
        let mut rows: Vec<Vec<String>> = vec![title.map(str::to_owned).into()];
        rows.extend(about.methods.iter().zip(&t.parts).map(|(name, p)| {
            let counts = [p.started, p.succeeded, p.failed, p.cut_off].map(|n| n.to_string());
            let mut row = vec![name.clone()];
            row.extend(counts);
            row.extend([format_quantile_ms(&p.latency, 0.5), format_quantile_ms(&p.latency, 0.99)]);
            row
        }));
        text.push('\n');
        text.push_str(&format_columns(&rows));
    }
    if let Some(ramp) = &outcome.ramp {
        text.push('\n');
        text.push_str(&ramp_steps_table(ramp.steps()));
    }
    let told = |name: &str| !matches!(name, "requests" | "responses" | "timeouts" | "cancelled");
    let client: Vec<_> = outcome.counters.iter().filter(|(name, n)| *n > 0 && told(name)).collect();
    if !client.is_empty() {
        text.push_str("\nThe clients counted, warm-up included: ");
        let list: Vec<String> =
            client.iter().map(|(name, n)| format!("{} {n}", name.replace('_', " "))).collect();
        text.push_str(&list.join(", "));
        text.push('\n');
    }
    text
}

/// Formats the steps of a ramp, in the order of the run.
fn ramp_steps_table(steps: &[RampStep]) -> String {
    let title = [
        "rate/s",
        "success/s",
        "begun",
        "success",
        "failed",
        "cut off",
        "p50 ms",
        "p99 ms",
        "kept up",
        "failures",
    ];
    let mut rows: Vec<Vec<String>> = vec![title.map(str::to_owned).into()];
    for s in steps {
        let t = &s.tally;
        let failures: Vec<String> = t.failures().map(|(f, n)| format!("{} {n}", f.name())).collect();
        rows.push(vec![
            format!("{:.0}", s.rate),
            format!("{:.0}", s.throughput()),
            t.started.to_string(),
            format!("{:.2} %", t.success_ratio() * 100.0),
            t.failed_total().to_string(),
            t.cut_off.to_string(),
            format_quantile_ms(&t.latency, 0.5),
            format_quantile_ms(&t.latency, 0.99),
            verdict_text(s).to_owned(),
            failures.join(", "),
        ]);
    }
    format_columns(&rows)
}
