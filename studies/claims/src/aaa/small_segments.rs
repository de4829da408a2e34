//! Figures 3 to 6: Nagle's algorithm and delayed acknowledgement. Read from `aaa-nagle`, `aaa-delack`, `aaa-packets`
//! and `aaa-congestion`.

use crate::common::{
    FindingResult, count_estimates_with_sign, curve_at_value, format_count_of_total,
    list_estimates_with_other_sign, require_finite, require_minimum_points,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, ClaimValue, FindingError, ROUNDING, Verdict, format_digits, format_percent,
    format_with_comparative, format_with_interval, judge_deviation, list_part_verdicts,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    ALIKE, DelayComparison, DelayCrossover, IntervalSign, MetricCurve, MetricValues, compare_delays,
    estimate_mean, estimate_ratio, estimate_saving, find_crossover, measure_curve_flatness,
    measure_curve_rise,
};
use crate::results::{CurveSelector, VariantResults};

const NODES: &str = "nodes";
const DELAY: &str = "delay.mean";
const PACKETS: &str = "packets.core";
const NAGLE: &str = "aaa-nagle";
const DELACK: &str = "aaa-delack";
const AVOIDANCE: &str = "aaa-packets";
const CONGESTION: &str = "aaa-congestion";
/// Maximum of "few" nodes: the document's first figure is at nine.
const FEW: f64 = 9.0;
/// Maximum relative difference for "not much different".
const ABOUT: f64 = 0.1;

fn nagle_curve(view: &VariantResults<'_>, metric: &str, value: &str) -> Result<MetricCurve, FindingError> {
    curve_at_value(view, NAGLE, metric, NODES, "nagle", value)
}

/// Returns the curves with delayed and with immediate acknowledgement, at common points. If the study also has Nagle's
/// algorithm, as under congestion, they are the curves without it.
fn delayed_and_immediate_ack_curves(
    view: &VariantResults<'_>,
    study: &str,
    metric: &str,
) -> Result<(MetricCurve, MetricCurve), FindingError> {
    let (axis, at_once) =
        if study == CONGESTION { ("avoidance", "none") } else { ("delack", "immediate ACK") };
    let delayed = curve_at_value(view, study, metric, NODES, axis, "delayed ACK")?;
    let immediate = curve_at_value(view, study, metric, NODES, axis, at_once)?;
    Ok((delayed.retain_shared_points(&immediate), immediate.retain_shared_points(&delayed)))
}

pub(super) fn judge_nagle_delay(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let with = require_minimum_points(
        nagle_curve(view, DELAY, "with Nagle")?,
        2,
        "The delay with Nagle's algorithm",
    )?;
    let slower = with.subtract_curve(&nagle_curve(view, DELAY, "without Nagle")?);
    let Some(rise) = measure_curve_rise(&with) else {
        return Err(FindingError::NotComparable("There is only one point.".to_owned()));
    };
    let estimates = require_minimum_points(slower, 1, "The delay with Nagle minus that without")?.estimates();
    let lower = count_estimates_with_sign(&estimates, IntervalSign::Above);
    let (steps, of) = (with.0.len() - 1, estimates.len());
    let verdict = Verdict::of_parts(&[rise.verdict(), Verdict::from_held_point_count(lower, of)]);
    let (first, last) = (&with.0[0], &with.0[steps]);
    let mut reason = format!(
        "With Nagle's algorithm, the delay goes from {} with the fewest nodes ({}) to {} with the most ({}). \
         Of {steps} steps, {} rise significantly and {} fall significantly. Without it, the delay is \
         significantly shorter at {}",
        format_with_interval(&estimate_mean(&first.1), "s"),
        format_digits(first.0),
        format_with_interval(&estimate_mean(&last.1), "s"),
        format_digits(last.0),
        rise.steps.above,
        rise.steps.below,
        format_count_of_total(lower, of, "numbers of nodes")
    );
    if lower < of {
        reason.push_str(&format!(
            ", but not at {}",
            list_estimates_with_other_sign(&estimates, IntervalSign::Above, "")
        ));
    }
    if let Some((nodes, most)) = estimates.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)) {
        reason.push_str(&format!(
            " (largest difference at {} nodes: {})",
            format_digits(*nodes),
            format_with_interval(most, "s")
        ));
    }
    reason.push('.');
    reason.push_str(&list_part_verdicts([
        ("rises with nodes", rise.verdict()),
        ("lower without", Verdict::from_held_point_count(lower, of)),
    ]));
    let rises = match rise.verdict() {
        Verdict::Reproduced => "rises",
        Verdict::Partly => "mostly rises",
        _ => "does not rise",
    };
    Ok(ClaimFinding::from_verdict_text(
        format!("{rises}; lower without at {}", format_count_of_total(lower, of, "points")),
        verdict,
        reason,
    ))
}

/// Selects the packets with Nagle's algorithm. Figure 5 repeats those of figure 3, so either study serves.
fn select_nagle_packet_curve(view: &VariantResults<'_>) -> CurveSelector<'static> {
    let (study, at): (_, &[_]) = if !view.has_study(NAGLE) && view.has_study(AVOIDANCE) {
        (AVOIDANCE, &[("avoidance", "Nagle")])
    } else {
        (NAGLE, &[("nagle", "with Nagle")])
    };
    CurveSelector { study, metric: PACKETS, x: NODES, fixed_axes: at }
}

pub(super) fn judge_nagle_packet_counts(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let with = select_nagle_packet_curve(view);
    let mut parts = Vec::new();
    for (name, nodes) in [("nodes_9", 9.0), ("nodes_37", 37.0)] {
        let ours = require_finite(estimate_mean(&view.values_at(with, nodes)?), "The number of packets")?;
        let (verdict, off) = judge_deviation(&ours, claim.published_number_by_name(name), &claim.unit);
        let off = off.replace(&format!(" {}", claim.unit), "");
        parts.push((
            name,
            ours,
            verdict,
            format!("{} at {} nodes, {off}", format_with_interval(&ours, "packets"), format_digits(nodes)),
        ));
    }
    let named = |get: fn(&MetricEstimate) -> f64| {
        ClaimValue::Named(parts.iter().map(|(name, e, ..)| ((*name).to_owned(), get(e))).collect())
    };
    let fall = nagle_packet_decrease(view)?;
    let (of_fall, _) = judge_deviation(&fall, claim.claim_parameter("fewer"), "");
    let against = match nagle_packet_saving(view) {
        Ok(saved) => {
            let (verdict, off) = judge_deviation(&saved, claim.claim_parameter("fewer"), "");
            format!(
                " Read as the saving compared with no avoidance, over all numbers of nodes, it is {}, {off}: \
                 {}.",
                format_percent(saved.mean),
                verdict.name()
            )
        }
        Err(_) => String::new(),
    };
    let (few, at_few) = judge_nagle_with_few_nodes(view)?;
    let said: Vec<&str> = parts.iter().map(|(.., text)| text.as_str()).collect();
    let figures: Vec<Verdict> = parts.iter().map(|(_, _, verdict, _)| *verdict).collect();
    let names = figures.iter().copied().zip(["at 9 nodes", "at 37 nodes"]).map(|(v, name)| (name, v));
    let reason = format!(
        "In {} an authentication needs {}. From 9 to 37 nodes that is {}; published is {}: {}.{against} \
         {at_few}{}",
        with.study,
        said.join("; "),
        format_with_comparative(&fall, "", "fewer", "more"),
        format_percent(claim.claim_parameter("fewer")),
        of_fall.name(),
        list_part_verdicts(names.chain([("as without with few nodes", few)]))
    );
    Ok(ClaimFinding {
        ours: named(|e| e.mean),
        interval: Some((named(MetricEstimate::low), named(MetricEstimate::high))),
        verdict: match few {
            // If the part for few nodes is undecided, figures that differ still decide the verdict.
            Verdict::NotComparable => Verdict::worst_part_verdict(&figures).max(Verdict::Partly),
            few => Verdict::worst_part_verdict(&figures).max(few),
        },
        reason,
    })
}

/// Evaluates whether Nagle's algorithm hardly changes the packets at 9 nodes or fewer: within a tenth, the tolerance of
/// figures. A larger but uncertain difference counts neither way. Also returns the sentence, which includes the English
/// text's "not much greater".
fn judge_nagle_with_few_nodes(view: &VariantResults<'_>) -> Result<(Verdict, String), FindingError> {
    let CurveSelector { study, fixed_axes: at, .. } = select_nagle_packet_curve(view);
    let (axis, without) = if study == NAGLE { ("nagle", "without Nagle") } else { ("avoidance", "none") };
    let with = view.curve(CurveSelector { study, metric: PACKETS, x: NODES, fixed_axes: at })?;
    let mut changes =
        relative_delay_increases(&with, &curve_at_value(view, study, PACKETS, NODES, axis, without)?);
    changes.retain(|(nodes, _)| *nodes <= FEW);
    let alike = changes.iter().filter(|(_, e)| e.mean.abs() <= ABOUT + ROUNDING).count();
    let surely_off = |e: &MetricEstimate| e.low() > ABOUT + ROUNDING || e.high() < -ABOUT - ROUNDING;
    let off = changes.iter().filter(|(_, e)| surely_off(e)).count();
    let greater = changes.iter().filter(|(_, e)| e.low() > ABOUT + ROUNDING).count();
    let verdict = match Verdict::from_held_point_count(alike, alike + off) {
        Verdict::Reproduced if alike < changes.len() => Verdict::Partly,
        verdict => verdict,
    };
    let said: Vec<String> = changes
        .iter()
        .map(|(nodes, e)| {
            format!("{} at {}", format_with_comparative(e, "", "more", "fewer"), format_digits(*nodes))
        })
        .collect();
    let text = format!(
        "With few nodes, packets compared with no avoidance are {}. They are within {} at {}, and \
         significantly beyond it at {off}. By the English text's \"not much greater\", {} agree.",
        said.join(", "),
        format_percent(ABOUT),
        format_count_of_total(alike, changes.len(), "numbers of nodes"),
        format_count_of_total(changes.len() - greater, changes.len(), "numbers of nodes")
    );
    Ok((verdict, text))
}

/// Returns the saving of Nagle's algorithm in packets compared with no avoidance.
pub(super) fn nagle_packet_saving(view: &VariantResults<'_>) -> Result<MetricEstimate, FindingError> {
    let fewer = avoidance_packet_ratio(view, "Nagle")?.scale_by(-1.0);
    Ok(MetricEstimate { mean: 1.0 + fewer.mean, ..fewer })
}

/// Returns the fall of packets with Nagle's algorithm from 9 nodes to 37.
pub(super) fn nagle_packet_decrease(view: &VariantResults<'_>) -> Result<MetricEstimate, FindingError> {
    let with = select_nagle_packet_curve(view);
    let fall = estimate_saving(&view.values_at(with, 37.0)?, &view.values_at(with, 9.0)?);
    require_finite(fall, "The decrease of packets")
}

/// Returns the relative increase of the delay by delayed acknowledgement, by number of nodes.
fn relative_delay_increases(delayed: &MetricCurve, immediate: &MetricCurve) -> Vec<(f64, MetricEstimate)> {
    let change = |(x, d): &(f64, MetricValues)| {
        let r = estimate_ratio(d, immediate.values_at(*x)?);
        Some((*x, MetricEstimate { mean: r.mean - 1.0, ..r }))
    };
    delayed.0.iter().filter_map(change).collect()
}

/// Evaluates alike delays: the whole interval of the paired difference is within 5 % of the delay with immediate
/// acknowledgement.
pub(super) fn judge_delayed_ack_delay(_: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (delayed, immediate) = delayed_and_immediate_ack_curves(view, DELACK, DELAY)?;
    require_minimum_points(delayed.subtract_curve(&immediate), 1, "Delayed minus immediate acknowledgement")?;
    let changes = relative_delay_increases(&delayed, &immediate);
    let alike = |e: &MetricEstimate| e.low() >= -ALIKE && e.high() <= ALIKE;
    let held = changes.iter().filter(|(_, e)| alike(e)).count();
    let of = changes.len();
    let worst = changes.iter().max_by(|a, b| a.1.mean.abs().total_cmp(&b.1.mean.abs()));
    let Some((nodes, worst)) = worst else {
        return Err(FindingError::NotComparable("The two settings have no point in common.".to_owned()));
    };
    let way = if worst.mean > 0.0 { "slower" } else { "faster" };
    let reason = format!(
        "At {} the delay with delayed acknowledgement is, with its whole interval, within {} of that with \
         immediate acknowledgement. The largest change is at {} nodes: {} ({way} with delayed \
         acknowledgement), from {} with immediate acknowledgement.",
        format_count_of_total(held, of, "numbers of nodes"),
        format_percent(ALIKE),
        format_digits(*nodes),
        format_with_interval(worst, ""),
        immediate
            .values_at(*nodes)
            .map_or_else(String::new, |v| format!("{} s", format_digits(estimate_mean(v).mean)))
    );
    Ok(ClaimFinding::from_verdict_text(
        format!("unchanged at {}", format_count_of_total(held, of, "points")),
        Verdict::from_held_point_count(held, of),
        reason,
    ))
}

/// Returns the ratio of packets with this avoidance and with none, each averaged over the common numbers of nodes.
fn avoidance_packet_ratio(view: &VariantResults<'_>, value: &str) -> Result<MetricEstimate, FindingError> {
    let of = |value| curve_at_value(view, AVOIDANCE, PACKETS, NODES, "avoidance", value);
    let (with, without) = (of(value)?, of("none")?);
    let left = estimate_ratio(
        &with.retain_shared_points(&without).mean_over_points(),
        &without.retain_shared_points(&with).mean_over_points(),
    );
    require_finite(left, "The share of the packets")
}

/// Returns the saving of delayed acknowledgement in packets compared with no avoidance.
pub(super) fn delayed_ack_packet_saving(view: &VariantResults<'_>) -> Result<MetricEstimate, FindingError> {
    let left = avoidance_packet_ratio(view, "delayed ACK")?;
    let fewer = left.scale_by(-1.0);
    Ok(MetricEstimate { mean: 1.0 + fewer.mean, ..fewer })
}

pub(super) fn judge_delayed_ack_packets(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let left = avoidance_packet_ratio(view, "delayed ACK")?;
    let fewer = delayed_ack_packet_saving(view)?;
    let (verdict, off) = judge_deviation(&left, claim.published_number(), "");
    let mut reason = format!(
        "Over all numbers of nodes, delayed acknowledgement leaves {} of the packets, {off}.",
        format_with_interval(&left, "")
    );
    for reading in claim.readings.iter().skip(1) {
        let Some(published) = reading.published else { continue };
        let (other, off) = judge_deviation(&fewer, published, "");
        reason.push_str(&format!(
            " Read as \"{}\": {} fewer, {off}: {}.",
            reading.name,
            format_percent(fewer.mean),
            other.name()
        ));
    }
    Ok(ClaimFinding::from_estimate(&left, verdict, reason))
}

/// Evaluates alike delays by their means: within 5 % for any interval, so that more replications do not move the
/// crossover.
pub(super) fn judge_congestion_crossover(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (delayed, immediate) = delayed_and_immediate_ack_curves(view, CONGESTION, DELAY)?;
    require_minimum_points(immediate.subtract_curve(&delayed), 2, "Immediate minus delayed acknowledgement")?;
    let changes = relative_delay_increases(&delayed, &immediate);
    let at = |wanted: DelayComparison| changes.iter().filter(|(_, e)| compare_delays(e) == wanted).count();
    let counted = |wanted| format_count_of_total(at(wanted), changes.len(), "numbers of nodes");
    let share = |x: f64| {
        let change = changes.iter().find(|(at, _)| *at == x);
        change.map_or_else(String::new, |(_, e)| format_with_comparative(e, "", "slower", "faster"))
    };
    let unlike = format_percent(ALIKE);
    let slower = if at(DelayComparison::Slower) == 0 {
        String::new()
    } else {
        format!(" At {} it is significantly slower, by more than {unlike}.", counted(DelayComparison::Slower))
    };
    let (before, after) = match find_crossover(&changes) {
        DelayCrossover::Between { before, after } => (before, after),
        DelayCrossover::First(after) => {
            let reason = format!(
                "Delayed acknowledgement is significantly faster, by more than {unlike}, at every number of \
                 nodes (from {} on). There is no number up to which the delays are alike.",
                format_digits(after)
            );
            return Ok(ClaimFinding::from_verdict_text(
                "faster from the first point",
                Verdict::Differs,
                reason,
            ));
        }
        DelayCrossover::Nowhere => {
            let reason = format!(
                "The delays are within {unlike} at {}. Delayed acknowledgement is significantly faster, by \
                 more than that, at {}. There is no number of nodes up to which the delays are alike and \
                 above which it stays faster.{slower}",
                counted(DelayComparison::Alike),
                counted(DelayComparison::Faster)
            );
            return Ok(ClaimFinding::from_verdict_text("no crossover", Verdict::Differs, reason));
        }
        DelayCrossover::Unsure => {
            let unsure = changes.iter().filter(|(_, e)| compare_delays(e) == DelayComparison::Unsure);
            let said: Vec<String> = unsure
                .map(|(x, e)| format!("{} nodes {}", format_digits(*x), format_with_interval(e, "")))
                .collect();
            return Err(FindingError::NotComparable(format!(
                "The delays differ by more than {unlike}, but not significantly (at {}). More replications \
                 are needed.",
                said.join(", at ")
            )));
        }
    };
    let published = claim.published_number();
    let reason = format!(
        "The delays are within {unlike} of each other up to {} nodes (with delayed acknowledgement {} \
         there). From {} nodes on, delayed acknowledgement is significantly faster, by more than {unlike} \
         ({} there). Published is {}.",
        format_digits(before),
        share(before),
        format_digits(after),
        share(after),
        format_digits(published)
    );
    Ok(ClaimFinding {
        ours: ClaimValue::Number(before),
        interval: Some((ClaimValue::Number(before), ClaimValue::Number(after))),
        verdict: Verdict::compare_with_published(before, published, false),
        reason,
    })
}

pub(super) fn judge_congestion_packets(claim: &Claim, view: &VariantResults<'_>) -> FindingResult {
    let (delayed, immediate) = delayed_and_immediate_ack_curves(view, CONGESTION, PACKETS)?;
    let mut parts = Vec::new();
    let mut said = Vec::new();
    for (curve, name) in [(&immediate, "immediate"), (&delayed, "delayed")] {
        let curve = require_minimum_points(curve.clone(), 2, "Packets")?;
        let Some(level) = measure_curve_flatness(&curve) else {
            return Err(FindingError::NotComparable(
                "The test for a constant number of packets needs two numbers of nodes.".to_owned(),
            ));
        };
        parts.push(level.verdict());
        said.push(format!(
            "{} packets on average with {name} acknowledgement ({} within {} of it, the farthest {} off, at \
             {} nodes)",
            format_digits(level.mean),
            format_count_of_total(level.points_within, level.point_count, "numbers of nodes"),
            format_percent(ALIKE),
            format_percent(level.worst),
            format_digits(level.worst_x)
        ));
    }
    let fewer = require_finite(
        estimate_saving(&delayed.mean_over_points(), &immediate.mean_over_points()),
        "The saving in packets",
    )?;
    let (verdict, off) = judge_deviation(&fewer, claim.claim_parameter("fewer"), "");
    parts.push(verdict);
    let names = ["constant with immediate ACK", "constant with delayed ACK", "fewer with delayed ACK"];
    let constant = parts[..2].iter().filter(|p| **p == Verdict::Reproduced).count();
    let reason = format!(
        "An authentication takes {}. Delayed acknowledgement needs {}, {off}.{}",
        said.join(", and "),
        format_with_comparative(&fewer, "", "fewer", "more"),
        list_part_verdicts(names.into_iter().zip(parts.iter().copied()))
    );
    let ours = format!("constant in {constant} of 2; {} fewer with delayed ACK", format_percent(fewer.mean));
    Ok(ClaimFinding::from_verdict_text(ours, Verdict::of_parts(&parts), reason))
}
