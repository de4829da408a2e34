//! MIH over UDP, read from `mih-udp`.

use super::{LINK, LOSS, MESSAGES, WITH, WITHOUT, metric_at_loss, over_loss, parse_seconds};
use crate::common::{
    ClaimValueVerdicts, FindingResult, count_estimates_with_sign, format_count_of_total, require_finite,
    require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, Verdict, format_digits, format_estimate, format_percent,
    format_with_comparative, format_with_interval, list_part_verdicts,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    IntervalSign, MetricCurve, MetricValues, agrees_with_formula, estimate_mean, find_curve_peak,
    interval_sign, measure_curve_rise, subtract_values, weighted_sum,
};
use crate::results::VariantResults;
use usher_core::Duration;
use usher_theory::mih::{MessageKind, MihTransaction};

const STUDY: &str = "mih-udp";
const TIMEOUT: &str = "timeout";
/// Tolerance for delays proportional to the timeout, the same as for a published figure.
const PROPORTIONAL: f64 = 0.10;
/// The loss in per cent up to which it is low.
const LOW: f64 = 10.0;
/// The minimum share of the lossless throughput for "held".
const MIN_THROUGHPUT_FRACTION: f64 = 0.95;

/// Returns the study's timeouts in seconds, with their names.
fn timeout_values<'a>(view: &VariantResults<'a>) -> Vec<(f64, &'a str)> {
    view.axis_values(STUDY, TIMEOUT)
        .into_iter()
        .filter_map(|name| Some((parse_seconds(name)?, name)))
        .collect()
}

pub(super) fn judge_udp_transaction_delay(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let mut figures = ClaimValueVerdicts::new(claim);
    let mut ranges = Vec::new();
    for message in MESSAGES {
        let at = [("message", message), WITHOUT];
        let ours = require_finite(
            estimate_mean(&metric_at_loss(view, STUDY, "delay.mean", &at, 0.0)?),
            "The delay",
        )?;
        figures.add_published_number_comparison(
            message,
            &format!("without loss an {message} takes").replace("an r", "a r"),
            ours.scale_by(1e3),
        );
        let means = over_loss(view, STUDY, "delay.mean", &at)?.estimates();
        let (least, most) = minimum_and_maximum(means.iter().map(|(_, e)| e.mean * 1e3));
        ranges.push(format!("{message}s take {} to {} ms", format_digits(least), format_digits(most)));
    }
    let more = format!(" Over all losses, successful {}.", ranges.join(" and "));
    Ok(figures.into_finding(&more, &[]))
}

/// Returns the minimum and the maximum.
fn minimum_and_maximum(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// Evaluates the delay added by loss: divided by the timeout, it is alike for all timeouts.
pub(super) fn judge_delay_with_ack(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let timeouts = timeout_values(view);
    if timeouts.len() < 2 {
        // If the study was not run at all, this returns the error that names it.
        over_loss(view, STUDY, "delay.mean", &[WITH])?;
        return Err(FindingError::NotComparable(
            "The test of proportionality needs two timeouts.".to_owned(),
        ));
    }
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for message in MESSAGES {
        let mut shares: Vec<Vec<(f64, f64)>> = Vec::new();
        for (timeout, name) in &timeouts {
            let delays =
                over_loss(view, STUDY, "delay.mean", &[("message", message), WITH, (TIMEOUT, name)])?;
            let none = delays.values_at(0.0).cloned().ok_or_else(|| {
                FindingError::NotRun(format!(
                    "{STUDY} has no point without loss: run the complete study (usher study run {STUDY})."
                ))
            })?;
            let added = MetricCurve(
                delays
                    .retain_points_beyond(0.0)
                    .0
                    .into_iter()
                    .map(|(x, v)| (x, subtract_values(&v, &none)))
                    .collect(),
            );
            let added = require_minimum_points(added, 1, "The delay that loss adds")?.estimates();
            shares.push(added.into_iter().map(|(x, e)| (x, e.mean / timeout)).collect());
        }
        let (mut held, mut of, mut worst) = (0, 0, (0.0, 0.0));
        for (loss, _) in &shares[0] {
            let at: Vec<f64> =
                shares.iter().filter_map(|s| s.iter().find(|(x, _)| x == loss).map(|(_, v)| *v)).collect();
            let middle = at.iter().sum::<f64>() / at.len() as f64;
            let off = at.iter().map(|v| (v / middle - 1.0).abs()).fold(0.0, f64::max);
            of += 1;
            held += usize::from(off <= PROPORTIONAL);
            if off > worst.0 {
                worst = (off, *loss);
            }
        }
        parts.push((message, Verdict::from_held_point_count(held, of)));
        said.push(format!(
            "for {message}s it is within {} of proportional at {} (at most {} off, at {} % loss)",
            format_percent(PROPORTIONAL),
            format_count_of_total(held, of, "losses"),
            format_percent(worst.0),
            format_digits(worst.1)
        ));
    }
    let names: Vec<&str> = timeouts.iter().map(|(_, name)| *name).collect();
    let reason = format!(
        "The delay that loss adds, compared with the timeout ({}): {}.{}",
        names.join(", "),
        said.join("; ").replace("an r", "a r"),
        list_part_verdicts(parts.iter().copied())
    );
    let held = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let ours = format!("proportional for {held} of {}", parts.len());
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&verdicts), reason))
}

/// Returns the success of all transactions of all replications at each loss, with their number.
fn pooled_success_by_loss(
    view: &VariantResults<'_>,
    at: &[(&str, &str)],
) -> Result<Vec<(f64, f64, f64)>, FindingError> {
    let success = over_loss(view, STUDY, "success", at)?;
    let started = over_loss(view, STUDY, "started", at)?;
    let point = |(loss, shares): &(f64, MetricValues)| {
        let numbers = started.values_at(*loss)?;
        let both = || shares.iter().filter_map(|(r, share)| Some((*share, *numbers.get(r)?)));
        let trials: f64 = both().map(|(_, n)| n).sum();
        Some((*loss, both().map(|(share, n)| share * n).sum::<f64>() / trials, trials))
    };
    let points: Vec<_> = success.0.iter().filter_map(point).filter(|(.., n)| *n > 0.0).collect();
    if points.is_empty() {
        return Err(FindingError::NotComparable(
            "Success and the number of transactions have no point in common.".to_owned(),
        ));
    }
    Ok(points)
}

/// Returns the document's setting at one loss and timeout.
fn documented_mih_transaction(message: &str, ack: bool, loss: f64, timeout: f64) -> MihTransaction {
    MihTransaction {
        message: if message == MESSAGES[0] { MessageKind::Indication } else { MessageKind::Request },
        ack,
        loss: [loss; 2],
        delay: [Duration::from_millis(20); 2],
        processing: Duration::from_millis(200),
        timeout: Duration::from_secs_f64(timeout),
        retransmissions: 2,
    }
}

/// Evaluates each of the four formulas at each loss, at the study's first timeout.
pub(super) fn judge_success(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    let names = ["1 - p", "(1 - p)^2", "1 - p^3", "(1 - p^3)^2"];
    let cases = [WITHOUT, WITH].into_iter().flat_map(|ack| MESSAGES.map(|message| (message, ack)));
    for (name, (message, ack)) in names.into_iter().zip(cases) {
        let points = pooled_success_by_loss(view, &[("message", message), ack])?;
        let formula =
            |loss: f64| documented_mih_transaction(message, ack == WITH, loss / 100.0, 1.0).success_bound();
        let held =
            points.iter().filter(|(loss, ours, n)| agrees_with_formula(*ours, formula(*loss), *n)).count();
        let off = |(loss, ours, _): &&(f64, f64, f64)| (ours - formula(*loss)).abs();
        let Some(worst) = points.iter().max_by(|a, b| off(a).total_cmp(&off(b))) else { continue };
        parts.push((name, Verdict::from_held_point_count(held, points.len())));
        said.push(format!(
            "{name}: at {} (farthest at {} % loss: formula {}, ours {})",
            format_count_of_total(held, points.len(), "losses"),
            format_digits(worst.0),
            format_percent(formula(worst.0)),
            format_percent(worst.1)
        ));
    }
    let reason = format!(
        "Within 3.5 standard errors of the formula: {}.{}{}",
        said.join("; "),
        by_timeout(view),
        list_part_verdicts(parts.iter().copied())
    );
    let held = parts.iter().filter(|(_, v)| *v == Verdict::Reproduced).count();
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    Ok(ClaimFinding::from_verdict_text(
        format!("{held} of 4 formulas hold"),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}

/// Returns a sentence on requests with acknowledgement: the effect of the standard's limit of retransmissions, for each
/// timeout.
fn by_timeout(view: &VariantResults<'_>) -> String {
    let (mut held, mut of, mut at_end) = (0, 0, Vec::new());
    for (timeout, name) in timeout_values(view) {
        let Ok(points) = pooled_success_by_loss(view, &[("message", "request"), WITH, (TIMEOUT, name)])
        else {
            continue;
        };
        for (loss, ours, n) in &points {
            let Some(exact) =
                documented_mih_transaction("request", true, loss / 100.0, timeout).expected_outcome()
            else {
                continue;
            };
            of += 1;
            held += usize::from(agrees_with_formula(*ours, exact.success, *n));
        }
        if let Some((loss, ours, _)) = points.last() {
            at_end.push(format!("{} at {} % loss with {name}", format_percent(*ours), format_digits(*loss)));
        }
    }
    if of == 0 {
        return String::new();
    }
    format!(
        " For requests with acknowledgement, the last formula is a bound: the sender gives up an \
         unacknowledged request after its last copy, and drops its response. The exact probability by that \
         rule (docs/explanation/mih.md) agrees at {}; ours is {}.",
        format_count_of_total(held, of, "pairs of loss and timeout"),
        at_end.join(", ")
    )
}

pub(super) fn judge_overhead(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let of = |message| over_loss(view, STUDY, "mih.overhead", &[("message", message), WITH]);
    let mut figures = ClaimValueVerdicts::new(claim);
    for message in MESSAGES {
        let at = metric_at_loss(view, STUDY, "mih.overhead", &[("message", message), WITH], 0.0)?;
        figures.add_published_number_comparison(
            message,
            &format!("without loss {message}s cost"),
            require_finite(estimate_mean(&at), "The overhead")?,
        );
    }
    let less = require_minimum_points(
        of("indication")?.subtract_curve(&of("request")?).retain_points_beyond(0.0),
        1,
        "The overheads under loss",
    )?;
    let less = less.estimates();
    let cheaper = count_estimates_with_sign(&less, IntervalSign::Above);
    let Some((end, last)) = less.last() else {
        return Err(FindingError::NotComparable("No loss.".to_owned()));
    };
    let more = format!(
        " With loss, requests cost significantly less than indications at {}; at {} % the difference is {} \
         packets per message.",
        format_count_of_total(cheaper, less.len(), "losses"),
        format_digits(*end),
        format_estimate(last)
    );
    Ok(figures
        .into_finding(&more, &[("requests cost less", Verdict::from_held_point_count(cheaper, less.len()))]))
}

/// Evaluates throughput for indications and for requests with acknowledgement. The received throughput holds at low
/// loss, and at the end is below its maximum. The reason also states that the sent load grows with loss.
pub(super) fn judge_throughput(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (mut parts, mut said) = (Vec::new(), Vec::new());
    for message in MESSAGES {
        let at = [("message", message), WITH];
        let of = |metric: &str| over_loss(view, STUDY, &format!("{metric}.{LINK}"), &at);
        let received = require_minimum_points(of("received")?, 3, "Throughput over loss")?;
        let sent = require_minimum_points(of("sent")?, 2, "Load over loss")?;
        let (Some(none), Some(turn), Some(rise)) =
            (received.values_at(0.0).cloned(), find_curve_peak(&received), measure_curve_rise(&sent))
        else {
            return Err(FindingError::NotRun(format!(
                "{STUDY} has no point without {LOSS}: run the complete study."
            )));
        };
        let low: Vec<(f64, MetricEstimate)> = received
            .retain_points_beyond(0.0)
            .0
            .iter()
            .filter(|(loss, _)| *loss <= LOW)
            .map(|(loss, v)| {
                (*loss, estimate_mean(&weighted_sum(&[(1.0, v), (-MIN_THROUGHPUT_FRACTION, &none)])))
            })
            .collect();
        let held = count_estimates_with_sign(&low, IntervalSign::Above);
        let tells = match interval_sign(&turn.fall) {
            IntervalSign::Above => Verdict::Reproduced,
            _ if turn.fall.mean > 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        parts.extend([
            (format!("{message}s, held at low loss"), Verdict::from_held_point_count(held, low.len())),
            (format!("{message}s, falls at high loss"), tells),
        ]);
        said.push(format!(
            "{message}s keep their throughput (at least {} of that without loss) at {} up to {} %. It is \
             largest at {} % loss and then falls by {}. The load at the end is {} than without loss (the \
             document does not say that it grows)",
            format_percent(MIN_THROUGHPUT_FRACTION),
            format_count_of_total(held, low.len(), "losses"),
            format_digits(LOW),
            format_digits(turn.peak_x),
            format_with_interval(&turn.fall, "b/s"),
            format_with_comparative(&rise.total_gain, "b/s", "more", "less")
        ));
    }
    let reason = format!(
        "On the link \"{LINK}\", {}.{}",
        said.join("; "),
        list_part_verdicts(parts.iter().map(|(name, v)| (name.as_str(), *v)))
    );
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v)| *v).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    Ok(ClaimFinding::from_verdict_text(
        format!("{held} of {} parts", parts.len()),
        Verdict::of_parts(&verdicts),
        reason,
    ))
}
