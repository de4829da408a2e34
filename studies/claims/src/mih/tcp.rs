//! MIH over TCP, read from `mih-tcp`.

use super::{LINK, MESSAGES, WITH, WITHOUT, metric_at_loss, over_loss, parse_seconds};
use crate::common::{
    FindingResult, count_estimates_with_sign, format_count_of_total, require_finite, require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, ClaimValue, FindingError, ROUNDING, Verdict, format_digits, format_estimate,
    format_percent, format_with_comparative, format_with_interval, list_part_verdicts,
};
use crate::measure::{
    IntervalSign, MetricCurve, MetricEstimate, estimate_mean, find_curve_peak, interval_sign,
    measure_curve_bend, measure_curve_rise,
};
use crate::results::{CurveSelector, VariantResults};

const STUDY: &str = "mih-tcp";
const MAX_RTO: &str = "max-rto";
/// The loss in per cent from which on it is high.
const HIGH: f64 = 30.0;
/// The minimum for "100 %".
const ALL: f64 = 0.995;

/// Returns the study's maximum RTOs in ascending order.
fn max_rto_axis_values<'a>(view: &VariantResults<'a>) -> Result<Vec<&'a str>, FindingError> {
    let names = view.axis_values(STUDY, MAX_RTO);
    if names.is_empty() {
        return Err(view.missing_study(STUDY));
    }
    Ok(names)
}

fn tcp_curve<'a>(
    view: &VariantResults<'_>,
    metric: &str,
    message: &'a str,
    ack: (&'a str, &'a str),
    max_rto: &'a str,
) -> Result<MetricCurve, FindingError> {
    over_loss(view, STUDY, metric, &[("message", message), ack, (MAX_RTO, max_rto)])
}

/// Returns a finding of parts, such as one for each message and maximum RTO.
fn of_parts(holds: &str, intro: &str, parts: &[(String, Verdict, String)]) -> ClaimFinding {
    let verdicts: Vec<Verdict> = parts.iter().map(|(_, v, _)| *v).collect();
    let held = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    let said: Vec<String> = parts.iter().map(|(name, _, text)| format!("{name}: {text}")).collect();
    let names = parts.iter().map(|(name, v, _)| (name.as_str(), *v));
    let reason = format!("{intro}: {}.{}", said.join("; "), list_part_verdicts(names));
    let ours = format!("{holds} in {}", format_count_of_total(held, parts.len(), "cases"));
    ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&verdicts), reason)
}

pub(super) fn judge_tcp_delay_over_loss(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let mut parts = Vec::new();
    for message in MESSAGES {
        for max_rto in max_rto_axis_values(view)? {
            let delays = require_minimum_points(
                tcp_curve(view, "delay.mean", message, WITHOUT, max_rto)?,
                3,
                "The delay over loss",
            )?;
            let Some(bend) = measure_curve_bend(&delays) else { continue };
            let text = format!(
                "{} over the lower half of the axis and {} over the upper",
                format_with_interval(&bend.lower, "s"),
                format_with_interval(&bend.upper, "s")
            );
            parts.push((format!("{message}s, {max_rto}"), bend.verdict(), text));
        }
    }
    Ok(of_parts(
        "faster than linearly",
        "Without MIH acknowledgement, each further percentage point of loss adds",
        &parts,
    ))
}

pub(super) fn judge_delay_over_max_rto(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let names = max_rto_axis_values(view)?;
    let mut parts = Vec::new();
    for message in MESSAGES {
        let mut by_loss: Vec<(f64, MetricCurve)> = Vec::new();
        for name in &names {
            let Some(timeout) = parse_seconds(name) else { continue };
            for (loss, values) in
                tcp_curve(view, "delay.mean", message, WITHOUT, name)?.retain_points_from(HIGH).0
            {
                match by_loss.iter_mut().find(|(known, _)| *known == loss) {
                    Some((_, curve)) => curve.0.push((timeout, values)),
                    None => by_loss.push((loss, MetricCurve(vec![(timeout, values)]))),
                }
            }
        }
        for (loss, curve) in by_loss {
            let curve = require_minimum_points(
                curve,
                3,
                &format!("The delay over max RTO at {} % loss", format_digits(loss)),
            )?;
            let (Some(rise), Some(bend)) = (measure_curve_rise(&curve), measure_curve_bend(&curve)) else {
                continue;
            };
            let text = format!(
                "{} over the lower half of the axis and {} over the upper, {} in total",
                format_with_interval(&bend.lower, "s"),
                format_with_interval(&bend.upper, "s"),
                format_with_comparative(&rise.total_gain, "s", "more", "less")
            );
            let name = format!("{message}s at {} %", format_digits(loss));
            parts.push((name, Verdict::worst_part_verdict(&[rise.verdict(), bend.verdict()]), text));
        }
    }
    if parts.is_empty() {
        return Err(FindingError::NotRun(format!(
            "{STUDY} has no point at {} % loss or more: run it without --quick.",
            format_digits(HIGH)
        )));
    }
    Ok(of_parts("convex and rising", "Each further second of max RTO adds to the delay", &parts))
}

/// The MIH timeout over TCP in maximum RTOs.
const TIMEOUT_RTOS: f64 = 3.0;

/// Evaluates the losses at which TCP takes longer than the MIH timeout: the time until the remote user has the
/// indications and all requests, regardless of the transaction's result.
pub(super) fn judge_ack_delay_penalty(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (mut held, mut of, mut left_out, mut said) = (0, 0, 0, Vec::new());
    for message in MESSAGES {
        for max_rto in max_rto_axis_values(view)? {
            let Some(timeout) = parse_seconds(max_rto).map(|rto| rto * TIMEOUT_RTOS) else { continue };
            let of_all = |ack| tcp_curve(view, "mih.delivery", message, ack, max_rto);
            let without = of_all(WITHOUT)?;
            let mut slower = of_all(WITH)?.subtract_curve(&without).retain_points_beyond(0.0);
            let all = slower.0.len();
            slower.0.retain(|(loss, _)| {
                without.values_at(*loss).is_some_and(|v| estimate_mean(v).mean > timeout)
            });
            left_out += all - slower.0.len();
            if slower.0.is_empty() {
                continue;
            }
            let slower = require_minimum_points(slower, 1, "With minus without acknowledgement")?.estimates();
            let sure = count_estimates_with_sign(&slower, IntervalSign::Above);
            held += sure;
            of += slower.len();
            let each: Vec<String> = slower
                .iter()
                .map(|(loss, e)| {
                    format!(
                        "{} at {} %",
                        format_with_comparative(e, "s", "more", "less"),
                        format_digits(*loss)
                    )
                })
                .collect();
            said.push(format!("{message}s, {max_rto}: {}", each.join(", ")));
        }
    }
    if of == 0 {
        return Err(FindingError::NotComparable(format!(
            "At all {left_out} points, TCP alone takes no longer than the MIH timeout of {TIMEOUT_RTOS} \
             largest RTOs."
        )));
    }
    let reason = format!(
        "Where TCP alone takes longer than the MIH timeout ({left_out} other points left out), MIH \
         acknowledgement delays the delivery to the remote user significantly at {}: {}.",
        format_count_of_total(held, of, "points"),
        said.join("; ")
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("slower at {}", format_count_of_total(held, of, "points")),
        Verdict::from_held_point_count(held, of),
        reason,
    ))
}

/// The study of shared segments, its axis, and the time of an answer in seconds.
const SHARED: &str = "mih-shared-segment";
const DELAYED: &str = "delack";
const ANSWER: f64 = 0.2;
/// Packets that cross the ends of counting change the segments per packet by less than this.
const EDGE: f64 = 0.02;

/// Evaluates: two segments for each packet if the acknowledgement delay is shorter than the answer's time, and fewer
/// beyond.
pub(super) fn judge_shared_segments(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let at = [("message", MESSAGES[1])];
    let choice = CurveSelector { study: SHARED, metric: "tcp.per-mih-packet", x: DELAYED, fixed_axes: &at };
    let segments = require_minimum_points(view.curve(choice)?, 2, "Segments over the delay")?.estimates();
    let published = |delay: f64, e: &MetricEstimate| {
        if delay < ANSWER { (e.mean - 2.0).abs() <= EDGE } else { e.mean < 2.0 - EDGE }
    };
    let held = segments.iter().filter(|(delay, e)| published(*delay, e)).count();
    let said: Vec<String> = segments
        .iter()
        .map(|(delay, e)| format!("{} with {} s", format_digits(e.mean), format_digits(*delay)))
        .collect();
    let verdict = if held == segments.len() { Verdict::Reproduced } else { Verdict::Differs };
    let reason = format!(
        "TCP segments per MIH packet with an answer after {ANSWER} s, by the delay of TCP's acknowledgement: \
         {}.",
        said.join(", ")
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("as stated at {}", format_count_of_total(held, segments.len(), "delays")),
        verdict,
        reason,
    ))
}

/// Evaluates the delay of valid responses at the largest maximum RTO: it peaks before the end, and at the document's
/// place.
pub(super) fn judge_late_delay_peak(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let Some(max_rto) = max_rto_axis_values(view)?.pop() else { return Err(view.missing_study(STUDY)) };
    let delays = require_minimum_points(
        tcp_curve(view, "delay.mean", "request", WITH, max_rto)?,
        3,
        "The delay over loss",
    )?;
    let Some(turn) = find_curve_peak(&delays) else {
        return Err(FindingError::NotComparable("No point.".to_owned()));
    };
    let place = 100.0 * claim.claim_parameter("turn");
    let near = turn.verdict() != Verdict::Differs && turn.is_near(place);
    let near = if near { Verdict::Reproduced } else { Verdict::Differs };
    let parts = [("falls again", turn.verdict()), ("from about 45 %", near)];
    let falls = match turn.verdict() {
        Verdict::Reproduced => format!("falls again from {} %", format_digits(turn.peak_x)),
        Verdict::Partly => format!("falls from {} % in the mean", format_digits(turn.peak_x)),
        _ => "does not fall again".to_owned(),
    };
    let reason = format!(
        "With max RTO {max_rto}, the delay of valid responses is longest at {} % loss (neighbouring points: \
         {} and {} %). From there to the last point it falls by {}.{}",
        format_digits(turn.peak_x),
        format_digits(turn.between.0),
        format_digits(turn.between.1),
        format_with_interval(&turn.fall, "s"),
        list_part_verdicts(parts)
    );
    Ok(ClaimFinding::from_verdict_text(falls, Verdict::of_parts(&parts.map(|(_, v)| v)), reason))
}

pub(super) fn judge_success(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let mut parts = Vec::new();
    for (message, ack) in [(MESSAGES[0], WITHOUT), (MESSAGES[0], WITH), (MESSAGES[1], WITHOUT)] {
        let (mut held, mut of, mut least) = (0, 0, f64::INFINITY);
        for max_rto in max_rto_axis_values(view)? {
            let estimates =
                require_minimum_points(tcp_curve(view, "success", message, ack, max_rto)?, 1, "Success")?
                    .estimates();
            held += estimates.iter().filter(|(_, e)| e.mean >= ALL).count();
            of += estimates.len();
            least = estimates.iter().fold(least, |least, (_, e)| least.min(e.mean));
        }
        let text = format!(
            "{} or more at {}, with a minimum of {}",
            format_percent(ALL),
            format_count_of_total(held, of, "points"),
            format_percent(least)
        );
        parts.push((format!("{message}s {} ACK", ack.1), Verdict::from_held_point_count(held, of), text));
    }
    for max_rto in max_rto_axis_values(view)? {
        let lost = require_minimum_points(
            tcp_curve(view, "success", "request", WITH, max_rto)?.negate(),
            2,
            "Success over loss",
        )?;
        let Some(fall) = measure_curve_rise(&lost) else { continue };
        let text = format!("falls by {}", format_with_interval(&fall.total_gain, ""));
        parts.push((format!("requests with ACK, {max_rto}"), fall.verdict(), text));
    }
    Ok(of_parts("as stated", "Success", &parts))
}

/// The comparison of several curves with a limit.
struct CurveLimitComparison {
    /// The verdict over all points: the worst.
    verdict: Verdict,
    points_within: usize,
    point_count: usize,
    /// The largest point, with its loss.
    most: (f64, MetricEstimate),
    /// The point whose interval reaches highest, with its loss.
    highest: (f64, MetricEstimate),
}

/// Compares every point of several curves with a limit; `None` without points. The largest mean alone is not enough,
/// because another point's interval may reach farther.
fn check_limit(
    curves: impl Iterator<Item = Result<MetricCurve, FindingError>>,
    limit: f64,
) -> Result<Option<CurveLimitComparison>, FindingError> {
    let curves: Vec<MetricCurve> = curves.collect::<Result<_, _>>()?;
    let points: Vec<(f64, MetricEstimate)> = curves.iter().flat_map(MetricCurve::estimates).collect();
    let largest =
        |by: fn(&MetricEstimate) -> f64| points.iter().copied().max_by(|a, b| by(&a.1).total_cmp(&by(&b.1)));
    let (Some(most), Some(highest)) = (largest(|e| e.mean), largest(MetricEstimate::high)) else {
        return Ok(None);
    };
    let verdicts: Vec<Verdict> =
        points.iter().map(|(_, e)| Verdict::compare_with_upper_bound(e, limit)).collect();
    let within = verdicts.iter().filter(|v| **v == Verdict::Reproduced).count();
    Ok(Some(CurveLimitComparison {
        verdict: Verdict::worst_part_verdict(&verdicts),
        points_within: within,
        point_count: points.len(),
        most,
        highest,
    }))
}

/// Evaluates MIH overhead: exactly two without loss, and at every loss and maximum RTO whole intervals within the
/// limits.
pub(super) fn judge_mih_overhead(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let names = max_rto_axis_values(view)?;
    let of = |message: &'static str| {
        names.iter().map(move |name| {
            require_minimum_points(tcp_curve(view, "mih.overhead", message, WITH, name)?, 1, "The overhead")
        })
    };
    let none = claim.published_number_by_name("no_loss");
    let mut farthest = none;
    for curve in MESSAGES.into_iter().flat_map(of) {
        let at_none = curve?.values_at(0.0).cloned().ok_or_else(|| {
            FindingError::NotRun(format!(
                "{STUDY} has no point without loss: run the complete study (usher study run {STUDY})."
            ))
        })?;
        let off = |overhead: &f64| (overhead - none).abs();
        let all = at_none.values().copied().chain([farthest]);
        farthest = all.max_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(farthest);
    }
    let exact = (farthest - none).abs() <= ROUNDING;
    let mut verdicts = vec![if exact { Verdict::Reproduced } else { Verdict::Differs }];
    let mut said = vec![format!("without loss {farthest}{}", if exact { "" } else { " in a replication" })];
    let mut ours = vec![("no_loss".to_owned(), farthest)];
    let mut ends = [ours.clone(), ours.clone()];
    for (message, name) in MESSAGES.into_iter().zip(["indication_limit", "request_limit"]) {
        let limit = claim.published_number_by_name(name);
        let Some(kept) = check_limit(of(message), limit)? else { return Err(view.missing_study(STUDY)) };
        let ((loss, most), (at, highest)) = (kept.most, kept.highest);
        verdicts.push(kept.verdict);
        let reaches = if format_digits(highest.high()) != format_digits(most.high()) {
            format!(" (the interval at {} % reaches {})", format_digits(at), format_digits(highest.high()))
        } else {
            String::new()
        };
        said.push(format!(
            "{message}s at most {}, at {} % loss{reaches}; the whole interval is within the limit of {limit} \
             at {}",
            format_estimate(&most),
            format_digits(loss),
            format_count_of_total(kept.points_within, kept.point_count, "points")
        ));
        ours.push((name.to_owned(), most.mean));
        ends[0].push((name.to_owned(), most.low()));
        ends[1].push((name.to_owned(), most.high()));
    }
    let parts = list_part_verdicts(
        ["without loss", "indication limit", "request limit"].into_iter().zip(verdicts.iter().copied()),
    );
    let [low, high] = ends.map(ClaimValue::Named);
    Ok(ClaimFinding {
        ours: ClaimValue::Named(ours),
        interval: Some((low, high)),
        verdict: Verdict::worst_part_verdict(&verdicts),
        reason: format!("MIH packets per message: {}.{parts}", said.join("; ")),
    })
}

/// Evaluates the peaks of the segments per MIH packet for each maximum RTO: they rise and fall, and peak at the stated
/// place.
fn judge_segment_peaks(
    view: &VariantResults<'_>,
    message: &str,
    ack: (&str, &str),
    place: f64,
) -> Result<[(String, Verdict, String); 2], FindingError> {
    let (mut turns, mut near, mut places) = (Vec::new(), 0, Vec::new());
    for max_rto in max_rto_axis_values(view)? {
        let segments = require_minimum_points(
            tcp_curve(view, "tcp.per-mih-packet", message, ack, max_rto)?,
            3,
            "Segments over loss",
        )?;
        let Some(turn) = find_curve_peak(&segments) else { continue };
        near += usize::from(turn.verdict() != Verdict::Differs && turn.is_near(place));
        places.push(format!("{} % with {max_rto}", format_digits(turn.peak_x)));
        turns.push(turn.verdict());
    }
    let held = turns.iter().filter(|v| **v == Verdict::Reproduced).count();
    let (of, what) = (turns.len(), format!("{message}s {} ACK", ack.1));
    let forms = format!("{} rise and fall", format_count_of_total(held, of, "curves"));
    let at = format!("highest at {}", places.join(", "));
    Ok([
        (format!("{what}, rise and fall"), Verdict::from_held_point_count(held, of), forms),
        (
            format!("{what}, turn at about {} %", format_digits(place)),
            Verdict::from_held_point_count(near, of),
            at,
        ),
    ])
}

/// Evaluates the peak of indications without MIH acknowledgement, and in a separate reading with it.
pub(super) fn judge_segments_per_packet(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let Some(first) = max_rto_axis_values(view)?.first().copied() else {
        return Err(view.missing_study(STUDY));
    };
    let at = [("message", MESSAGES[0]), WITHOUT, (MAX_RTO, first)];
    let none = require_finite(
        estimate_mean(&metric_at_loss(view, STUDY, "tcp.per-mih-packet", &at, 0.0)?),
        "Segments without loss",
    )?;
    let published = claim.claim_parameter("no_loss");
    let text = format!("{} segments, published {}", format_estimate(&none), format_digits(published));
    let alone =
        ("without loss".to_owned(), Verdict::compare_with_published(none.mean, published, false), text);
    let requests =
        judge_segment_peaks(view, MESSAGES[1], WITH, 100.0 * claim.claim_parameter("turn_request_ack"))?;
    let read = |ack| {
        let indications =
            judge_segment_peaks(view, MESSAGES[0], ack, 100.0 * claim.claim_parameter("turn_indication"))?;
        let parts: Vec<_> = [alone.clone()].into_iter().chain(indications).chain(requests.clone()).collect();
        Ok::<_, FindingError>(of_parts("as stated", "TCP segments per MIH packet", &parts))
    };
    let (mut finding, other) = (read(WITHOUT)?, read(WITH)?);
    let name = claim.readings.get(1).map_or("", |r| r.name.as_str());
    finding.reason.push_str(&format!(" Read as \"{name}\": {}. {}", other.verdict.name(), other.reason));
    Ok(finding)
}

/// Evaluates the load with acknowledgement. Indications: the load surely grows at first with each maximum RTO; with the
/// largest it grows less or falls over the upper half of the axis. Requests: it rises and falls with each.
pub(super) fn judge_load_over_loss(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let metric = format!("sent.{LINK}");
    let (mut grow, mut slow, mut fall, mut tops) = (Vec::new(), None, Vec::new(), Vec::new());
    for max_rto in max_rto_axis_values(view)? {
        let of = |message| {
            require_minimum_points(tcp_curve(view, &metric, message, WITH, max_rto)?, 3, "Load over loss")
        };
        let (indications, requests) = (of(MESSAGES[0])?, of(MESSAGES[1])?);
        let (Some(bend), Some(up)) = (measure_curve_bend(&indications), find_curve_peak(&indications)) else {
            continue;
        };
        let Some(turn) = find_curve_peak(&requests) else { continue };
        grow.push(interval_sign(&up.rise) == IntervalSign::Above);
        let verdict = match interval_sign(&bend.change) {
            IntervalSign::Below => Verdict::Reproduced,
            _ if bend.change.mean < 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        let text = format!(
            "each further percentage point of loss adds {} over the lower half of the axis and {} over the \
             upper",
            format_with_interval(&bend.lower, "b/s"),
            format_with_interval(&bend.upper, "b/s")
        );
        slow = Some((format!("indications slow with {max_rto}"), verdict, text));
        fall.push(turn.verdict());
        tops.push(format!("{} % with {max_rto}", format_digits(turn.peak_x)));
    }
    let Some(slow) = slow else { return Err(view.missing_study(STUDY)) };
    let grown = grow.iter().filter(|grows| **grows).count();
    let fallen = fall.iter().filter(|v| **v == Verdict::Reproduced).count();
    let parts = [
        (
            "indications grow".to_owned(),
            Verdict::from_held_point_count(grown, grow.len()),
            format!("at first with {}", format_count_of_total(grown, grow.len(), "largest RTOs")),
        ),
        slow,
        (
            "requests rise and fall".to_owned(),
            Verdict::from_held_point_count(fallen, fall.len()),
            format!(
                "with {}, highest at {}",
                format_count_of_total(fallen, fall.len(), "largest RTOs"),
                tops.join(", ")
            ),
        ),
    ];
    Ok(of_parts("as stated", "Load with MIH acknowledgement", &parts))
}
