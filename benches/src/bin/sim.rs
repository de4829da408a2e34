//! Measures packet-hops per second and memory on the founding studies `bench-tcp-100` and `bench-radius-100`.

use serde_json::json;
use std::process::ExitCode;
use usher_benches::{MeasuredRun, main as bench, median};

/// A study and its limits.
struct StudyBenchmarkLimits {
    study: &'static str,
    /// The minimum of packet-hops per second.
    rate: f64,
    /// The largest peak resident set in MiB.
    memory: Option<f64>,
    /// The known mean delay and the tolerance in milliseconds.
    delay: Option<(f64, f64)>,
}

const YARDSTICKS: [StudyBenchmarkLimits; 2] = [
    StudyBenchmarkLimits {
        study: "bench-tcp-100",
        rate: 5e6,
        memory: Some(24.0),
        delay: Some((22.42, 0.02)),
    },
    StudyBenchmarkLimits { study: "bench-radius-100", rate: 1e6, memory: None, delay: None },
];

fn main() -> ExitCode {
    bench(5, |arguments| {
        let (mut results, mut missed) = (Vec::new(), Vec::new());
        for y in &YARDSTICKS {
            let runs = (0..arguments.runs)
                .map(|_| MeasuredRun::run_in_child(y.study, &[]))
                .collect::<Result<Vec<_>, _>>()?;
            let rate = median(runs.iter().map(MeasuredRun::packet_hop_rate));
            let best = runs.iter().map(MeasuredRun::packet_hop_rate).fold(0.0, f64::max);
            let memory = runs.iter().map(|r| r.peak_rss_bytes).max().unwrap_or(0) as f64 / (1 << 20) as f64;
            let delay = runs[0].delay_mean_s * 1e3;
            if !arguments.json {
                println!(
                    "{:<17} {:6.2} M packet-hops/s (median of {}, best {:.2}), mean delay {delay:.4} ms, \
                     peak {memory:.1} MiB",
                    y.study,
                    rate / 1e6,
                    runs.len(),
                    best / 1e6,
                );
            }
            if rate < y.rate {
                let (at_least, rate) = (y.rate / 1e6, rate / 1e6);
                missed.push(format!("{}: {rate:.2} M packet-hops/s of at least {at_least}", y.study));
            }
            if let Some(limit) = y.memory.filter(|limit| memory > *limit) {
                missed.push(format!("{}: peak {memory:.1} MiB of at most {limit}", y.study));
            }
            if let Some((known, off)) =
                y.delay.filter(|(known, off)| delay.is_nan() || (delay - known).abs() >= *off)
            {
                missed.push(format!("{}: mean delay {delay:.4} ms, known is {known} ms ± {off}", y.study));
            }
            results.push(json!({
                "study": y.study,
                "packet_hops": runs[0].packet_hops,
                "packet_hops_per_s": rate,
                "best_packet_hops_per_s": best,
                "runs": runs.len(),
                "delay_mean_ms": delay,
                "peak_mib": memory,
            }));
        }
        Ok((json!(results), missed))
    })
}
