//! The set-up rates of sessions and their echoes: the results of PPPoE subscribers alone.

use super::{LoadRunDescription, latency_json};
use crate::live::{LoadOutcome, SessionSetupRates};
use crate::tally::{LoginStats, quantile};
use serde_json::{Value, json};

fn pppoe_setup_rates(about: &LoadRunDescription, outcome: &LoadOutcome) -> Option<SessionSetupRates> {
    if about.command == "pppoe" && outcome.ramp.is_none() { outcome.session_setup_rates() } else { None }
}

/// Returns the results as one object; null without session setup.
pub(super) fn setup_json(about: &LoadRunDescription, outcome: &LoadOutcome) -> Value {
    let Some(s) = pppoe_setup_rates(about, outcome) else { return Value::Null };
    let rounds = outcome
        .rounds
        .iter()
        .map(|r| json!({ "sessions": r.sessions, "setup_time_s": r.setup_s, "cps": r.session_setup_rate() }));
    json!({
        "cps": s.cps,
        "cps_min": s.min,
        "cps_avg": s.avg,
        "cps_max": s.max,
        "setup_time_s": s.time_s,
        "rounds": rounds.collect::<Vec<_>>(),
    })
}

pub(super) fn echoes_json(t: &LoginStats) -> Value {
    if t.echoes == 0 {
        return Value::Null;
    }
    json!({
        "sent": t.echoes,
        "answered": t.echoes_answered,
        "lost_share": t.lost_echo_fraction(),
        "latency": latency_json(&t.echo_latency),
    })
}

/// Returns the metrics of the whole run.
pub(super) fn setup_metrics(about: &LoadRunDescription, outcome: &LoadOutcome) -> Vec<(String, f64)> {
    let Some(s) = pppoe_setup_rates(about, outcome) else { return Vec::new() };
    let all = [
        ("cps", Some(s.cps)),
        ("cps_min", Some(s.min)),
        ("cps_avg", Some(s.avg)),
        ("cps_max", Some(s.max)),
        ("setup_time_s", s.time_s),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Describes the results in sentences.
pub(super) fn describe_setup(about: &LoadRunDescription, outcome: &LoadOutcome) -> Vec<String> {
    let t = &outcome.tally;
    let mut all = Vec::new();
    if let Some(SessionSetupRates { cps, min, avg, max, time_s }) = pppoe_setup_rates(about, outcome) {
        let of = match outcome.rounds.len() {
            0 => "over intervals of the run".to_owned(),
            1 => "one round".to_owned(),
            n => format!("over {n} rounds"),
        };
        let time = time_s.map_or_else(String::new, |s| {
            let longest = if outcome.rounds.len() > 1 { ", of the longest round" } else { "" };
            format!(" Set-up time: {:.0} ms to the last session{longest}.", s * 1e3)
        });
        all.push(format!(
            "Set-up rate: {cps:.2} CPS (MIN: {min:.2} AVG: {avg:.2} MAX: {max:.2}, {of}).{time}"
        ));
    }
    if let Some(lost) = t.lost_echo_fraction() {
        let latency = match (quantile(&t.echo_latency, 0.5), quantile(&t.echo_latency, 0.99)) {
            (Some(p50), Some(p99)) => {
                format!("; half took at most {:.3} ms, 99 % at most {:.3} ms", p50 * 1e3, p99 * 1e3)
            }
            _ => String::new(),
        };
        all.push(format!(
            "{} of {} echoes within sessions were answered ({:.3} % were lost){latency}.",
            t.echoes_answered,
            t.echoes,
            lost * 100.0
        ));
    }
    all
}
