//! Figure 2: head-of-line blocking, and RADIUS for comparison. Read from `aaa-hol`.

use crate::common::{
    FindingResult, count_estimates_with_sign, curve_at_value, describe_outlier, format_count_of_total,
    list_estimates_with_other_sign, paired_difference, require_finite, require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, FindingError, ROUNDING, Verdict, format_digits, format_percent, format_with_comparative,
    format_with_interval, judge_deviation, list_part_verdicts,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    IntervalSign, MetricCurve, MetricValues, estimate_gain, estimate_mean, estimate_saving,
    find_zero_crossing, interval_sign, measure_curve_bend, measure_curve_rise, subtract_values,
};
use crate::results::{CurveSelector, VariantResults};

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
pub(super) fn judge_messages(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
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
        "Packets with data per authentication without loss: {}. This means {whole} messages over each \
         protocol, each in one packet, if all counts are within {} of that.",
        said.join(", "),
        format_digits(WHOLE)
    );
    let verdict = if held == counts.len() { Verdict::Reproduced } else { Verdict::Differs };
    Ok(ClaimFinding::from_verdict_text(
        format!("{whole} messages over {held} of {} protocols", counts.len()),
        verdict,
        reason,
    ))
}

fn delay_curve(view: &VariantResults<'_>, protocol: &str) -> Result<MetricCurve, FindingError> {
    curve_at_value(view, STUDY, "delay.mean", LOSS, "protocol", protocol)
}

/// Returns the delays of TCP and SCTP at one loss.
fn delays_at_loss(
    view: &VariantResults<'_>,
    loss: f64,
) -> Result<(MetricValues, MetricValues), FindingError> {
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
fn describe_failures(view: &VariantResults<'_>, protocols: &[&str], loss: f64) -> String {
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
        " Failed authentications at {} % loss: {}. Delays cover only the others.",
        format_digits(loss),
        telling.join(" and ")
    )
}

/// Returns the difference between the failure shares of TCP and SCTP at one loss, if it is too large.
fn failure_difference(view: &VariantResults<'_>, loss: f64) -> Option<f64> {
    let share = |protocol: &str| {
        let failures = curve_at_value(view, STUDY, "failures", LOSS, "protocol", protocol).ok()?;
        Some(estimate_mean(failures.values_at(loss)?).mean)
    };
    let off = (share(TCP)? - share(SCTP)?).abs();
    (off >= POPULATION_DIFFERENCE - ROUNDING).then_some(off)
}

/// Limits a verdict on delays at one loss to "partly" if they have different populations, and adds the sentence.
fn adjust_for_survivors(view: &VariantResults<'_>, loss: f64, verdict: Verdict) -> (Verdict, String) {
    let Some(off) = failure_difference(view, loss) else { return (verdict, String::new()) };
    let text = format!(
        " The failed shares differ by {} percentage points, so the delays come from different populations. \
         The verdict is therefore partly at most.",
        format_digits(off * 100.0)
    );
    (verdict.max(Verdict::Partly), text)
}

pub(super) fn judge_delay_gap_at_5_percent(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (tcp, sctp) = delays_at_loss(view, 5.0)?;
    let gap = paired_difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = judge_deviation(&gap, claim.published_number(), &claim.unit);
    let (verdict, populations) = adjust_for_survivors(view, 5.0, verdict);
    let reason = format!(
        "At 5 % loss TCP takes {} than SCTP with many streams, {off} ({} s and {} s; {} replications).{}{}{populations}",
        format_with_comparative(&gap, "s", "longer", "less"),
        format_digits(estimate_mean(&tcp).mean),
        format_digits(estimate_mean(&sctp).mean),
        gap.n,
        describe_outlier(&subtract_values(&tcp, &sctp), "the difference", "s"),
        describe_failures(view, &[TCP, SCTP], 5.0)
    );
    Ok(ClaimFinding::from_estimate(&gap, verdict, reason))
}

pub(super) fn judge_delay_gap_at_19_percent(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (tcp, sctp) = delays_at_loss(view, 19.0)?;
    let gap = paired_difference(&tcp, &sctp, "The difference")?;
    let (verdict, off) = judge_deviation(&gap, claim.published_number(), &claim.unit);
    let (verdict, populations) = adjust_for_survivors(view, 19.0, verdict);
    let mut reason = format!(
        "At 19 % loss TCP takes {} than SCTP with many streams, {off} (read as: the difference widens to {} \
         s).",
        format_with_comparative(&gap, "s", "longer", "less"),
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
            " Read as an increase from that at 5 % loss, it is {}, {off}: {}.",
            format_with_comparative(&more, "s", "more", "less"),
            other.name()
        ));
    }
    reason.push_str(&describe_outlier(&subtract_values(&tcp, &sctp), "the difference", "s"));
    reason.push_str(&describe_failures(view, &[TCP, SCTP], 19.0));
    reason.push_str(&populations);
    Ok(ClaimFinding::from_estimate(&gap, verdict, reason))
}

/// The largest saving of SCTP with many streams compared with TCP.
pub(super) struct LargestDelaySaving {
    pub(super) saving: MetricEstimate,
    /// The loss with that saving.
    pub(super) loss: f64,
    /// A sentence on the excluded losses; empty if there are none.
    pub(super) left_out: String,
}

/// Returns the largest saving, among the losses at which TCP and SCTP have similar failure shares.
pub(super) fn find_largest_delay_saving(
    view: &VariantResults<'_>,
) -> Result<LargestDelaySaving, FindingError> {
    let (tcp, sctp) = (delay_curve(view, TCP)?, delay_curve(view, SCTP)?);
    let (out, kept): (Vec<_>, Vec<_>) = tcp
        .retain_shared_points(&sctp)
        .0
        .into_iter()
        .partition(|(loss, _)| failure_difference(view, *loss).is_some());
    let left_out = if out.is_empty() {
        String::new()
    } else {
        let places: Vec<String> = out.iter().map(|(loss, _)| format_digits(*loss)).collect();
        format!(
            " Left out: {} % loss, where the failed shares of TCP and SCTP differ by {} percentage points or \
             more. Their delays come from different populations.",
            places.join(", "),
            format_digits(POPULATION_DIFFERENCE * 100.0)
        )
    };
    let savings =
        kept.iter().filter_map(|(loss, tcp)| Some((estimate_saving(sctp.values_at(*loss)?, tcp), *loss)));
    let known = savings.filter(|(s, _)| s.mean.is_finite());
    let Some((best, loss)) = known.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean)) else {
        let text = format!("TCP and SCTP have no comparable point in common.{left_out}");
        return Err(FindingError::NotComparable(text));
    };
    Ok(LargestDelaySaving { saving: require_finite(best, "The largest saving")?, loss, left_out })
}

pub(super) fn judge_largest_delay_saving(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let LargestDelaySaving { saving: best, loss, left_out } = find_largest_delay_saving(view)?;
    let (verdict, off) = judge_deviation(&best, claim.published_number(), "");
    let reason = format!(
        "SCTP with many streams saves the most at {} % loss: {} of TCP's delay, {off}. The interval covers \
         only that point.{}{left_out}",
        format_digits(loss),
        format_with_interval(&best, ""),
        describe_failures(view, &[TCP, SCTP], loss)
    );
    Ok(ClaimFinding::from_estimate(&best, verdict, reason))
}

pub(super) fn judge_delay_gap_growth(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let gap = delay_curve(view, TCP)?.subtract_curve(&delay_curve(view, SCTP)?);
    let gap = require_minimum_points(gap, 2, "TCP minus SCTP over loss")?;
    let Some(rise) = measure_curve_rise(&gap) else {
        return Err(FindingError::NotComparable("There is only one point.".to_owned()));
    };
    let of = gap.0.len() - 1;
    let (first, last) = (&gap.0[0], &gap.0[of]);
    let ours = format!("grows at {}", format_count_of_total(rise.steps.above, of, "steps"));
    let reason = format!(
        "From {} % to {} % loss, the difference goes from {} to {}. Of {of} steps, {} rise significantly, {} \
         fall significantly and {} are not significant.",
        format_digits(first.0),
        format_digits(last.0),
        format_with_interval(&estimate_mean(&first.1), "s"),
        format_with_interval(&estimate_mean(&last.1), "s"),
        rise.steps.above,
        rise.steps.below,
        rise.steps.open
    );
    Ok(ClaimFinding::from_verdict_text(ours, rise.verdict(), reason))
}

/// "Low" loss extends to the claim's value, because the document gives none.
pub(super) fn judge_udp_at_low_loss(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let low = 100.0 * claim.claim_parameter("low");
    let udp = delay_curve(view, UDP)?;
    let mut held = 0;
    let mut of = 0;
    let mut said = Vec::new();
    for other in [TCP, SCTP] {
        let mut slower = delay_curve(view, other)?.subtract_curve(&udp);
        slower.0.retain(|(loss, _)| *loss <= low + ROUNDING);
        let estimates = require_minimum_points(slower, 1, "The delays at low loss")?.estimates();
        let there = count_estimates_with_sign(&estimates, IntervalSign::Above);
        held += there;
        of += estimates.len();
        let (least, most) = mean_range(&estimates);
        let mut text = format!(
            "{other} is significantly slower at {} (by {} to {} s)",
            format_count_of_total(there, estimates.len(), "points"),
            format_digits(least),
            format_digits(most)
        );
        if there < estimates.len() {
            text.push_str(&format!(
                ", but not at {} loss",
                list_estimates_with_other_sign(&estimates, IntervalSign::Above, " %")
            ));
        }
        said.push(text);
    }
    let reason =
        format!("Compared with RADIUS/UDP at up to {} % loss: {}.", format_digits(low), said.join("; "));
    Ok(ClaimFinding::from_verdict_text(
        format!("below at {}", format_count_of_total(held, of, "points")),
        Verdict::from_held_point_count(held, of),
        reason,
    ))
}

/// Returns the minimum and the maximum of the means.
fn mean_range(estimates: &[(f64, MetricEstimate)]) -> (f64, f64) {
    let means = estimates.iter().map(|(_, e)| e.mean);
    means.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), m| (low.min(m), high.max(m)))
}

pub(super) fn judge_udp_at_high_loss(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let udp = require_minimum_points(delay_curve(view, UDP)?, 3, "The delay of RADIUS/UDP over loss")?;
    let Some(bend) = measure_curve_bend(&udp) else {
        return Err(FindingError::NotComparable("There are too few points.".to_owned()));
    };
    let mut parts = vec![bend.verdict()];
    let mut said = vec![format!(
        "Each further percentage point of loss adds {} over the lower half of the axis and {} over the upper \
         half",
        format_with_interval(&bend.lower, "s"),
        format_with_interval(&bend.upper, "s")
    )];
    let mut crossed = 0;
    for (other, name) in [(TCP, "TCP"), (SCTP, "SCTP")] {
        let ahead = udp.subtract_curve(&delay_curve(view, other)?);
        let ahead = require_minimum_points(ahead, 1, &format!("UDP minus {name} over loss"))?;
        let estimates = ahead.estimates();
        let Some((end, last)) = estimates.last() else { continue };
        let below = estimates.iter().any(|(_, e)| interval_sign(e) == IntervalSign::Below);
        let verdict = match (below, interval_sign(last)) {
            (true, IntervalSign::Above) => Verdict::Reproduced,
            (true, IntervalSign::Open) if last.mean > 0.0 => Verdict::Partly,
            _ => Verdict::Differs,
        };
        crossed += usize::from(verdict == Verdict::Reproduced);
        let at_end = format!(
            "at {} % loss UDP takes {} than {name}",
            format_digits(*end),
            format_with_comparative(last, "s", "more", "less")
        );
        said.push(match (verdict, below, find_zero_crossing(&ahead)) {
            (Verdict::Reproduced, _, Some(loss)) => {
                format!("UDP crosses {name} at about {} % loss, and {at_end}", format_digits(loss))
            }
            (_, true, Some(loss)) => format!(
                "UDP is above {name} from about {} % loss on, but not significantly at the end: {at_end}",
                format_digits(loss)
            ),
            (_, true, None) => format!("UDP does not cross {name}: {at_end}"),
            (_, false, _) => format!("UDP is nowhere significantly below {name}, and {at_end}"),
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
        list_part_verdicts(names.into_iter().zip(parts.iter().copied()))
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("grows {form}, crosses {crossed} of 2"),
        Verdict::of_parts(&parts),
        reason,
    ))
}
