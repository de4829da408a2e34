//! Figure 2: head-of-line blocking, and RADIUS for comparison. Read from `aaa-hol`.

use crate::common::{
    FindingResult, count_on_side, count_text, curve_at_value, describe_outlier, list_other_estimates,
    paired_difference, require_finite, require_testable,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, judge_deviation,
    part_by_part, with_interval, with_word,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    IntervalSide, MetricCurve, MetricValues, estimate_gain, estimate_mean, estimate_saving,
    find_zero_crossing, interval_side, measure_bend, measure_rise, subtract_values,
};
use crate::results::{CurveSelector, VariantView};

const STUDY: &str = "aaa-hol";
const LOSS: &str = "loss";
pub(super) const TCP: &str = "Diameter/TCP";
pub(super) const SCTP: &str = "Diameter/SCTP, many streams";
pub(super) const UDP: &str = "RADIUS/UDP, RFC 5080";
/// From this share of failed authentications on, the reason states that delays exclude them.
const NOTABLE_FAILURE_FRACTION: f64 = 0.01;

/// From this difference of failure shares on, two delay curves have different populations: the failed authentications
/// would have been the slow ones.
const POPULATION_DIFFERENCE: f64 = 0.05;

/// Packets with data for each authentication without loss, by protocol, excluding the transport's own packets.
const WITH_DATA: [(&str, &str, Option<&str>); 3] = [
    (UDP, "packets.core", None),
    (TCP, "tcp.segments", Some("tcp.acks")),
    (SCTP, "sctp.packets", Some("sctp.control")),
];
/// Authentications that cross the ends of a run change a mean of integers by less than this.
const WHOLE: f64 = 0.05;

/// Each protocol must send the same number of packets with data: then it sends the same number of messages, each in one
/// packet.
pub(super) fn judge_messages(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let mut counts = Vec::new();
    for (protocol, all, bare) in WITH_DATA {
        let at = [("protocol", protocol)];
        let of =
            |metric| view.values_at(CurveSelector { study: STUDY, metric, x: LOSS, fixed_axes: &at }, 0.0);
        let packets = match bare {
            Some(bare) => subtract_values(&of(all)?, &of(bare)?),
            None => of(all)?,
        };
        counts.push((protocol, require_finite(estimate_mean(&packets), "The packets with data")?));
    }
    let whole = counts[0].1.mean.round();
    let held = counts.iter().filter(|(_, e)| (e.mean - whole).abs() <= WHOLE).count();
    let said: Vec<String> = counts
        .iter()
        .map(|(protocol, e)| format!("{} over {protocol}", crate::judge::format_estimate(e)))
        .collect();
    let reason = format!(
        "Without loss an authentication takes, in packets with data, {}: {whole} messages over each where all are within {} \
         of it, and none of Diameter's took two segments.",
        said.join(", "),
        format_digits(WHOLE)
    );
    let verdict = if held == counts.len() { Verdict::Reproduced } else { Verdict::Differs };
    Ok(ClaimFinding::from_words(
        format!("{whole} messages over {held} of {} protocols", counts.len()),
        verdict,
        reason,
    ))
}

fn delay_curve(view: &VariantView<'_>, protocol: &str) -> Result<MetricCurve, FindingError> {
    curve_at_value(view, STUDY, "delay.mean", LOSS, "protocol", protocol)
}

/// Returns the delays of TCP and SCTP at one loss.
fn delays_at_loss(view: &VariantView<'_>, loss: f64) -> Result<(MetricValues, MetricValues), FindingError> {
    let of = |protocol| {
        let choice = CurveSelector {
            study: STUDY,
            metric: "delay.mean",
            x: LOSS,
            fixed_axes: &[("protocol", protocol)],
        };
        view.values_at(choice, loss)
    };
    Ok((of(TCP)?, of(SCTP)?))
}

/// Returns a sentence if many authentications fail, because they have no delay.
fn describe_failures(view: &VariantView<'_>, protocols: &[&str], loss: f64) -> String {
    let share = |protocol: &&&str| {
        let failures = curve_at_value(view, STUDY, "failures", LOSS, "protocol", protocol).ok()?;
        let share = estimate_mean(failures.values_at(loss)?).mean;
        (share >= NOTABLE_FAILURE_FRACTION).then(|| format!("{} over {protocol}", format_percent(share)))
    };
    let telling: Vec<String> = protocols.iter().filter_map(|p| share(&p)).collect();
    if telling.is_empty() {
        return String::new();
    }
    format!(
        " At {} % loss {} of the authentications fail; delays are of the others.",
        format_digits(loss),
        telling.join(" and ")
    )
}

/// Returns the difference between the failure shares of TCP and SCTP at one loss, if it is too large.
fn failure_difference(view: &VariantView<'_>, loss: f64) -> Option<f64> {
    let share = |protocol: &str| {
        let failures = curve_at_value(view, STUDY, "failures", LOSS, "protocol", protocol).ok()?;
        Some(estimate_mean(failures.values_at(loss)?).mean)
    };
    let off = (share(TCP)? - share(SCTP)?).abs();
    (off >= POPULATION_DIFFERENCE - ROUNDING).then_some(off)
}

/// Limits a verdict on delays at one loss to "partly" if they have different populations, and adds the sentence.
fn adjust_for_survivors(view: &VariantView<'_>, loss: f64, verdict: Verdict) -> (Verdict, String) {
    let Some(off) = failure_difference(view, loss) else { return (verdict, String::new()) };
    let text = format!(
        " The shares that fail are {} percentage points apart, so the delays are of different populations and the \
         verdict is partly at most.",
        format_digits(off * 100.0)
    );
    (verdict.max(Verdict::Partly), text)
}

pub(super) fn gap_5(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (tcp, sctp) = delays_at_loss(view, 5.0)?;
    let gap = paired_difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = judge_deviation(&gap, claim.published_number(), &claim.unit);
    let (verdict, populations) = adjust_for_survivors(view, 5.0, verdict);
    let reason = format!(
        "At 5 % loss TCP takes {} than SCTP with many streams, {off} ({} s and {} s; {} replications).{}{}{populations}",
        with_word(&gap, "s", "longer", "less"),
        format_digits(estimate_mean(&tcp).mean),
        format_digits(estimate_mean(&sctp).mean),
        gap.n,
        describe_outlier(&subtract_values(&tcp, &sctp), "the difference", "s"),
        describe_failures(view, &[TCP, SCTP], 5.0)
    );
    Ok(ClaimFinding::from_estimate(&gap, verdict, reason))
}

pub(super) fn gap_19(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (tcp, sctp) = delays_at_loss(view, 19.0)?;
    let gap = paired_difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = judge_deviation(&gap, claim.published_number(), &claim.unit);
    let (verdict, populations) = adjust_for_survivors(view, 19.0, verdict);
    let mut reason = format!(
        "At 19 % loss TCP takes {} than SCTP with many streams, {off} (read as: it widens to {} s).",
        with_word(&gap, "s", "longer", "less"),
        format_digits(claim.published_number())
    );
    let published = claim.readings.iter().find(|r| r.name == "increases by").and_then(|r| r.published);
    let published = published.unwrap_or(claim.published_number());
    if let Ok((tcp_5, sctp_5)) = delays_at_loss(view, 5.0) {
        let more = require_finite(
            estimate_gain(&subtract_values(&tcp_5, &sctp_5), &subtract_values(&tcp, &sctp)),
            "The increase",
        )?;
        let (other, off) = judge_deviation(&more, published, &claim.unit);
        let (other, _) = adjust_for_survivors(view, 5.0, adjust_for_survivors(view, 19.0, other).0);
        reason.push_str(&format!(
            " Read as an increase from 5 % loss on, it is {}, {off}: {}.",
            with_word(&more, "s", "more", "less"),
            other.name()
        ));
    }
    reason.push_str(&describe_outlier(&subtract_values(&tcp, &sctp), "the difference", "s"));
    reason.push_str(&describe_failures(view, &[TCP, SCTP], 19.0));
    reason.push_str(&populations);
    Ok(ClaimFinding::from_estimate(&gap, verdict, reason))
}

/// The largest saving of SCTP with many streams compared with TCP.
pub(super) struct BestSaving {
    pub(super) saving: MetricEstimate,
    /// The loss with that saving.
    pub(super) loss: f64,
    /// A sentence on the excluded losses; empty if there are none.
    pub(super) left_out: String,
}

/// Returns the largest saving, among the losses at which TCP and SCTP have similar failure shares.
pub(super) fn best_saving(view: &VariantView<'_>) -> Result<BestSaving, FindingError> {
    let (tcp, sctp) = (delay_curve(view, TCP)?, delay_curve(view, SCTP)?);
    let (out, kept): (Vec<_>, Vec<_>) = tcp
        .common_points(&sctp)
        .0
        .into_iter()
        .partition(|(loss, _)| failure_difference(view, *loss).is_some());
    let left_out = if out.is_empty() {
        String::new()
    } else {
        let places: Vec<String> = out.iter().map(|(loss, _)| format_digits(*loss)).collect();
        format!(
            " Left out: {} % loss, where the shares of authentications that fail over TCP and over SCTP are {} \
             percentage points apart or more, so that the delays are of different populations.",
            places.join(", "),
            format_digits(POPULATION_DIFFERENCE * 100.0)
        )
    };
    let savings =
        kept.iter().filter_map(|(loss, tcp)| Some((estimate_saving(sctp.values_at(*loss)?, tcp), *loss)));
    let known = savings.filter(|(s, _)| s.mean.is_finite());
    let Some((best, loss)) = known.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean)) else {
        let text = format!("TCP and SCTP have no point in common that counts.{left_out}");
        return Err(FindingError::NotComparable(text));
    };
    Ok(BestSaving { saving: require_finite(best, "The largest saving")?, loss, left_out })
}

pub(super) fn judge_best(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let BestSaving { saving: best, loss, left_out } = best_saving(view)?;
    let (verdict, off) = judge_deviation(&best, claim.published_number(), "");
    let reason = format!(
        "SCTP with many streams saves the most at {} % loss: {} of TCP's delay, {off}. The interval is of that \
         point alone.{}{left_out}",
        format_digits(loss),
        with_interval(&best, ""),
        describe_failures(view, &[TCP, SCTP], loss)
    );
    Ok(ClaimFinding::from_estimate(&best, verdict, reason))
}

pub(super) fn judge_widening(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let gap = delay_curve(view, TCP)?.subtract_curve(&delay_curve(view, SCTP)?);
    let gap = require_testable(gap, 2, "TCP less SCTP over loss")?;
    let Some(rise) = measure_rise(&gap) else {
        return Err(FindingError::NotComparable("One point only.".to_owned()));
    };
    let of = gap.0.len() - 1;
    let (first, last) = (&gap.0[0], &gap.0[of]);
    let ours = format!("grows at {}", count_text(rise.steps.above, of, "steps"));
    let reason = format!(
        "From {} % to {} % loss the difference goes from {} to {}. Of {of} steps {} surely grow, {} surely shrink and \
         {} are too small to tell.",
        format_digits(first.0),
        format_digits(last.0),
        with_interval(&estimate_mean(&first.1), "s"),
        with_interval(&estimate_mean(&last.1), "s"),
        rise.steps.above,
        rise.steps.below,
        rise.steps.open
    );
    Ok(ClaimFinding::from_words(ours, rise.verdict(), reason))
}

/// "Low" loss extends to the claim's value, because the document gives none.
pub(super) fn udp_low_loss(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let low = 100.0 * claim.part_number("low");
    let udp = delay_curve(view, UDP)?;
    let mut held = 0;
    let mut of = 0;
    let mut said = Vec::new();
    for other in [TCP, SCTP] {
        let mut slower = delay_curve(view, other)?.subtract_curve(&udp);
        slower.0.retain(|(loss, _)| *loss <= low + ROUNDING);
        let estimates = require_testable(slower, 1, "Low loss")?.estimates();
        let there = count_on_side(&estimates, IntervalSide::Above);
        held += there;
        of += estimates.len();
        let (least, most) = mean_range(&estimates);
        let mut text = format!(
            "{other} is slower at {} (by {} to {} s)",
            count_text(there, estimates.len(), "points"),
            format_digits(least),
            format_digits(most)
        );
        if there < estimates.len() {
            text.push_str(&format!(
                ", not surely at {} loss",
                list_other_estimates(&estimates, IntervalSide::Above, " %")
            ));
        }
        said.push(text);
    }
    let reason = format!("Up to {} % loss, against RADIUS/UDP: {}.", format_digits(low), said.join("; "));
    Ok(ClaimFinding::from_words(
        format!("below at {}", count_text(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}

/// Returns the minimum and the maximum of the means.
fn mean_range(estimates: &[(f64, MetricEstimate)]) -> (f64, f64) {
    let means = estimates.iter().map(|(_, e)| e.mean);
    means.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), m| (low.min(m), high.max(m)))
}

pub(super) fn udp_high_loss(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let udp = require_testable(delay_curve(view, UDP)?, 3, "The delay of RADIUS/UDP over loss")?;
    let Some(bend) = measure_bend(&udp) else {
        return Err(FindingError::NotComparable("Too few points.".to_owned()));
    };
    let mut parts = vec![bend.verdict()];
    let mut said = vec![format!(
        "A per cent of loss more adds {} over the lower half of the axis and {} over the upper half",
        with_interval(&bend.lower, "s"),
        with_interval(&bend.upper, "s")
    )];
    let mut crossed = 0;
    for (other, name) in [(TCP, "TCP"), (SCTP, "SCTP")] {
        let ahead = udp.subtract_curve(&delay_curve(view, other)?);
        let ahead = require_testable(ahead, 1, &format!("UDP less {name} over loss"))?;
        let estimates = ahead.estimates();
        let Some((end, last)) = estimates.last() else { continue };
        let below = estimates.iter().any(|(_, e)| interval_side(e) == IntervalSide::Below);
        let verdict = match (below, interval_side(last)) {
            (true, IntervalSide::Above) => Verdict::Reproduced,
            (true, IntervalSide::Open) if last.mean > 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        crossed += usize::from(verdict == Verdict::Reproduced);
        let at_end = format!(
            "at {} % UDP takes {} than {name}",
            format_digits(*end),
            with_word(last, "s", "more", "less")
        );
        said.push(match (verdict, below, find_zero_crossing(&ahead)) {
            (Verdict::Reproduced, _, Some(loss)) => {
                format!("it crosses {name} at about {} % loss, and {at_end}", format_digits(loss))
            }
            (_, true, Some(loss)) => format!(
                "it is above {name} from about {} % on, and no longer surely at the end: {at_end}",
                format_digits(loss)
            ),
            (_, true, None) => format!("it does not cross {name}: {at_end}"),
            (_, false, _) => format!("it is nowhere surely below {name}, and {at_end}"),
        });
        parts.push(verdict);
    }
    let form = match parts[0] {
        Verdict::Reproduced => "faster than linearly",
        Verdict::Partly => "perhaps faster than linearly",
        _ => "not faster than linearly",
    };
    let end = udp.0.last().map_or(0.0, |(loss, _)| *loss);
    let names = ["grows faster than linearly", "crosses TCP", "crosses SCTP"];
    let reason = format!(
        "{}.{}{}",
        said.join("; "),
        describe_failures(view, &[UDP, TCP, SCTP], end),
        part_by_part(names.into_iter().zip(parts.iter().copied()))
    );
    Ok(ClaimFinding::from_words(
        format!("grows {form}, crosses {crossed} of 2"),
        Verdict::of_parts(&parts),
        reason,
    ))
}
