//! Figures 3 to 6: Nagle's algorithm and delayed acknowledgement. Read from `aaa-nagle`, `aaa-delack`, `aaa-packets`
//! and `aaa-congestion`.

use crate::common::{
    FindingResult, count_on_side, count_text, curve_at_value, list_other_estimates, require_finite,
    require_testable,
};
use crate::data::Claim;
use crate::judge::{
    ClaimFinding, ClaimValue, FindingError, ROUNDING, Verdict, format_digits, format_percent,
    judge_deviation, part_by_part, with_interval, with_word,
};
use crate::measure::MetricEstimate;
use crate::measure::{
    ALIKE, DelayComparison, DelayCrossover, IntervalSide, MetricCurve, MetricValues, compare_delays,
    estimate_mean, estimate_ratio, estimate_saving, find_crossover, measure_level, measure_rise,
};
use crate::results::{CurveSelector, VariantView};

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

fn nagle_curve(view: &VariantView<'_>, metric: &str, value: &str) -> Result<MetricCurve, FindingError> {
    curve_at_value(view, NAGLE, metric, NODES, "nagle", value)
}

/// Returns the curves with delayed and with immediate acknowledgement, at common points. If the study also has Nagle's
/// algorithm, as under congestion, they are the curves without it.
fn ack_curves(
    view: &VariantView<'_>,
    study: &str,
    metric: &str,
) -> Result<(MetricCurve, MetricCurve), FindingError> {
    let (axis, at_once) =
        if study == CONGESTION { ("avoidance", "none") } else { ("delack", "immediate ACK") };
    let delayed = curve_at_value(view, study, metric, NODES, axis, "delayed ACK")?;
    let immediate = curve_at_value(view, study, metric, NODES, axis, at_once)?;
    Ok((delayed.common_points(&immediate), immediate.common_points(&delayed)))
}

pub(super) fn nagle_delay(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let with =
        require_testable(nagle_curve(view, DELAY, "with Nagle")?, 2, "The delay with Nagle's algorithm")?;
    let slower = with.subtract_curve(&nagle_curve(view, DELAY, "without Nagle")?);
    let Some(rise) = measure_rise(&with) else {
        return Err(FindingError::NotComparable("One point only.".to_owned()));
    };
    let estimates = require_testable(slower, 1, "With Nagle less without")?.estimates();
    let lower = count_on_side(&estimates, IntervalSide::Above);
    let (steps, of) = (with.0.len() - 1, estimates.len());
    let verdict = Verdict::of_parts(&[rise.verdict(), Verdict::on_count(lower, of)]);
    let (first, last) = (&with.0[0], &with.0[steps]);
    let mut reason = format!(
        "With Nagle's algorithm the delay goes from {} with the fewest nodes ({}) to {} with the most ({}): of {steps} steps {} surely rise and {} \
         surely fall. Without it the delay is shorter at {}",
        with_interval(&estimate_mean(&first.1), "s"),
        format_digits(first.0),
        with_interval(&estimate_mean(&last.1), "s"),
        format_digits(last.0),
        rise.steps.above,
        rise.steps.below,
        count_text(lower, of, "numbers of nodes")
    );
    if lower < of {
        reason.push_str(&format!(
            ", not surely at {}",
            list_other_estimates(&estimates, IntervalSide::Above, "")
        ));
    }
    if let Some((nodes, most)) = estimates.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)) {
        reason.push_str(&format!(
            " (by the most at nodes = {}: {})",
            format_digits(*nodes),
            with_interval(most, "s")
        ));
    }
    reason.push('.');
    reason.push_str(&part_by_part([
        ("rises with nodes", rise.verdict()),
        ("lower without", Verdict::on_count(lower, of)),
    ]));
    let rises = match rise.verdict() {
        Verdict::Reproduced => "rises",
        Verdict::Partly => "rises in the main",
        _ => "does not rise",
    };
    Ok(ClaimFinding::from_words(
        format!("{rises}; lower without at {}", count_text(lower, of, "points")),
        verdict,
        reason,
    ))
}

/// Selects the packets with Nagle's algorithm. Figure 5 repeats those of figure 3, so either study serves.
fn nagle_packets(view: &VariantView<'_>) -> CurveSelector<'static> {
    let (study, at): (_, &[_]) = if !view.has_study(NAGLE) && view.has_study(AVOIDANCE) {
        (AVOIDANCE, &[("avoidance", "Nagle")])
    } else {
        (NAGLE, &[("nagle", "with Nagle")])
    };
    CurveSelector { study, metric: PACKETS, x: NODES, fixed_axes: at }
}

pub(super) fn nagle_segments(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let with = nagle_packets(view);
    let mut parts = Vec::new();
    for (name, nodes) in [("nodes_9", 9.0), ("nodes_37", 37.0)] {
        let ours = require_finite(estimate_mean(&view.values_at(with, nodes)?), "The number of packets")?;
        let (verdict, off) = judge_deviation(&ours, claim.named_number(name), &claim.unit);
        let off = off.replace(&format!(" {}", claim.unit), "");
        parts.push((
            name,
            ours,
            verdict,
            format!("{} at {} nodes, {off}", with_interval(&ours, "packets"), format_digits(nodes)),
        ));
    }
    let named = |get: fn(&MetricEstimate) -> f64| {
        ClaimValue::Named(parts.iter().map(|(name, e, ..)| ((*name).to_owned(), get(e))).collect())
    };
    let fall = nagle_fall(view)?;
    let (of_fall, _) = judge_deviation(&fall, claim.part_number("fewer"), "");
    let against = match nagle_saving(view) {
        Ok(saved) => {
            let (verdict, off) = judge_deviation(&saved, claim.part_number("fewer"), "");
            format!(
                " Read as the saving against no avoidance, over all numbers of nodes, it is {}, {off}: {}.",
                format_percent(saved.mean),
                verdict.name()
            )
        }
        Err(_) => String::new(),
    };
    let (few, at_few) = few_nodes(view)?;
    let said: Vec<&str> = parts.iter().map(|(.., text)| text.as_str()).collect();
    let figures: Vec<Verdict> = parts.iter().map(|(_, _, verdict, _)| *verdict).collect();
    let names = figures.iter().copied().zip(["at 9 nodes", "at 37 nodes"]).map(|(v, name)| (name, v));
    let reason = format!(
        "In {} an authentication needs {}. From 9 to 37 nodes that is {}; published are {}: {}.{against} {at_few}{}",
        with.study,
        said.join("; "),
        with_word(&fall, "", "fewer", "more"),
        format_percent(claim.part_number("fewer")),
        of_fall.name(),
        part_by_part(names.chain([("as without with few nodes", few)]))
    );
    Ok(ClaimFinding {
        ours: named(|e| e.mean),
        interval: Some((named(MetricEstimate::low), named(MetricEstimate::high))),
        verdict: match few {
            // Figures that differ decide the verdict even if few nodes are undecided.
            Verdict::NotComparable => Verdict::worst_of_parts(&figures).max(Verdict::Partly),
            few => Verdict::worst_of_parts(&figures).max(few),
        },
        reason,
    })
}

/// Evaluates whether Nagle's algorithm hardly changes the packets at 9 nodes or fewer: within a tenth, the tolerance of
/// figures. A larger but uncertain difference counts neither way. Also returns the sentence, which includes the English
/// text's "not much greater".
fn few_nodes(view: &VariantView<'_>) -> Result<(Verdict, String), FindingError> {
    let CurveSelector { study, fixed_axes: at, .. } = nagle_packets(view);
    let (axis, without) = if study == NAGLE { ("nagle", "without Nagle") } else { ("avoidance", "none") };
    let with = view.curve(CurveSelector { study, metric: PACKETS, x: NODES, fixed_axes: at })?;
    let mut changes = delay_changes(&with, &curve_at_value(view, study, PACKETS, NODES, axis, without)?);
    changes.retain(|(nodes, _)| *nodes <= FEW);
    let alike = changes.iter().filter(|(_, e)| e.mean.abs() <= ABOUT + ROUNDING).count();
    let surely_off = |e: &MetricEstimate| e.low() > ABOUT + ROUNDING || e.high() < -ABOUT - ROUNDING;
    let off = changes.iter().filter(|(_, e)| surely_off(e)).count();
    let greater = changes.iter().filter(|(_, e)| e.low() > ABOUT + ROUNDING).count();
    let verdict = match Verdict::on_count(alike, alike + off) {
        Verdict::Reproduced if alike < changes.len() => Verdict::Partly,
        verdict => verdict,
    };
    let said: Vec<String> = changes
        .iter()
        .map(|(nodes, e)| format!("{} at {}", with_word(e, "", "more", "fewer"), format_digits(*nodes)))
        .collect();
    let text = format!(
        "Against no avoidance, with few nodes, packets are {}: within {} at {}, surely not at {off} of them. Read as \"not much \
         greater\", as the English text has it, they are so at {}.",
        said.join(", "),
        format_percent(ABOUT),
        count_text(alike, changes.len(), "numbers of nodes"),
        count_text(changes.len() - greater, changes.len(), "numbers of nodes")
    );
    Ok((verdict, text))
}

/// Returns the saving of Nagle's algorithm in packets compared with no avoidance.
pub(super) fn nagle_saving(view: &VariantView<'_>) -> Result<MetricEstimate, FindingError> {
    let fewer = avoidance_ratio(view, "Nagle")?.scale_by(-1.0);
    Ok(MetricEstimate { mean: 1.0 + fewer.mean, ..fewer })
}

/// Returns the fall of packets with Nagle's algorithm from 9 nodes to 37.
pub(super) fn nagle_fall(view: &VariantView<'_>) -> Result<MetricEstimate, FindingError> {
    let with = nagle_packets(view);
    let fall = estimate_saving(&view.values_at(with, 37.0)?, &view.values_at(with, 9.0)?);
    require_finite(fall, "The fall of the packets")
}

/// Returns the relative increase of the delay by delayed acknowledgement, by number of nodes.
fn delay_changes(delayed: &MetricCurve, immediate: &MetricCurve) -> Vec<(f64, MetricEstimate)> {
    let change = |(x, d): &(f64, MetricValues)| {
        let r = estimate_ratio(d, immediate.values_at(*x)?);
        Some((*x, MetricEstimate { mean: r.mean - 1.0, ..r }))
    };
    delayed.0.iter().filter_map(change).collect()
}

/// Evaluates alike delays: the whole interval of the paired difference is within 5 % of the delay with immediate
/// acknowledgement.
pub(super) fn delack_delay(_: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (delayed, immediate) = ack_curves(view, DELACK, DELAY)?;
    require_testable(delayed.subtract_curve(&immediate), 1, "Delayed less immediate acknowledgement")?;
    let changes = delay_changes(&delayed, &immediate);
    let alike = |e: &MetricEstimate| e.low() >= -ALIKE && e.high() <= ALIKE;
    let held = changes.iter().filter(|(_, e)| alike(e)).count();
    let of = changes.len();
    let worst = changes.iter().max_by(|a, b| a.1.mean.abs().total_cmp(&b.1.mean.abs()));
    let Some((nodes, worst)) = worst else {
        return Err(FindingError::NotComparable("Both settings have no point in common.".to_owned()));
    };
    let way = if worst.mean > 0.0 { "slower" } else { "faster" };
    let reason = format!(
        "At {} the delay with delayed acknowledgement is surely within {} of that with immediate acknowledgement. The \
         largest change is at nodes = {}: {} ({way} with delayed acknowledgement); {} with immediate acknowledgement.",
        count_text(held, of, "numbers of nodes"),
        format_percent(ALIKE),
        format_digits(*nodes),
        with_interval(worst, ""),
        immediate
            .values_at(*nodes)
            .map_or_else(String::new, |v| format!("{} s", format_digits(estimate_mean(v).mean)))
    );
    Ok(ClaimFinding::from_words(
        format!("unchanged at {}", count_text(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}

/// Returns the ratio of packets with this avoidance and with none, each averaged over the common numbers of nodes.
fn avoidance_ratio(view: &VariantView<'_>, value: &str) -> Result<MetricEstimate, FindingError> {
    let of = |value| curve_at_value(view, AVOIDANCE, PACKETS, NODES, "avoidance", value);
    let (with, without) = (of(value)?, of("none")?);
    let left = estimate_ratio(
        &with.common_points(&without).mean_over_points(),
        &without.common_points(&with).mean_over_points(),
    );
    require_finite(left, "The share of the packets")
}

/// Returns the saving of delayed acknowledgement in packets compared with no avoidance.
pub(super) fn delack_saving(view: &VariantView<'_>) -> Result<MetricEstimate, FindingError> {
    let left = avoidance_ratio(view, "delayed ACK")?;
    let fewer = left.scale_by(-1.0);
    Ok(MetricEstimate { mean: 1.0 + fewer.mean, ..fewer })
}

pub(super) fn delack_packets(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let left = avoidance_ratio(view, "delayed ACK")?;
    let fewer = delack_saving(view)?;
    let (verdict, off) = judge_deviation(&left, claim.published_number(), "");
    let mut reason = format!(
        "Over all numbers of nodes, {} of the packets are left with delayed acknowledgement, {off}.",
        with_interval(&left, "")
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
pub(super) fn congestion_crossover(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (delayed, immediate) = ack_curves(view, CONGESTION, DELAY)?;
    require_testable(immediate.subtract_curve(&delayed), 2, "Immediate less delayed acknowledgement")?;
    let changes = delay_changes(&delayed, &immediate);
    let at = |wanted: DelayComparison| changes.iter().filter(|(_, e)| compare_delays(e) == wanted).count();
    let counted = |wanted| count_text(at(wanted), changes.len(), "numbers of nodes");
    let share = |x: f64| {
        let change = changes.iter().find(|(at, _)| *at == x);
        change.map_or_else(String::new, |(_, e)| with_word(e, "", "slower", "faster"))
    };
    let unlike = format_percent(ALIKE);
    let slower = if at(DelayComparison::Slower) == 0 {
        String::new()
    } else {
        format!(" At {} it is surely slower, by more than {unlike}.", counted(DelayComparison::Slower))
    };
    let (before, after) = match find_crossover(&changes) {
        DelayCrossover::Between { before, after } => (before, after),
        DelayCrossover::First(after) => {
            let reason = format!(
                "Delayed acknowledgement is surely faster, by more than {unlike}, at every number of nodes, from {} on, \
                 so there is no number up to which the delays are alike.",
                format_digits(after)
            );
            return Ok(ClaimFinding::from_words("faster from the first point", Verdict::Differs, reason));
        }
        DelayCrossover::Nowhere => {
            let reason = format!(
                "The delays are within {unlike} at {}, and delayed acknowledgement is surely faster, by more than that, at \
                 {}: there is no number of nodes up to which they are alike and beyond which it is faster for \
                 good.{slower}",
                counted(DelayComparison::Alike),
                counted(DelayComparison::Faster)
            );
            return Ok(ClaimFinding::from_words("no crossover", Verdict::Differs, reason));
        }
        DelayCrossover::Unsure => {
            let unsure = changes.iter().filter(|(_, e)| compare_delays(e) == DelayComparison::Unsure);
            let said: Vec<String> = unsure
                .map(|(x, e)| format!("{} nodes {}", format_digits(*x), with_interval(e, "")))
                .collect();
            return Err(FindingError::NotComparable(format!(
                "The delays differ by more than {unlike} and yet not surely (at {}): more replications would tell.",
                said.join(", at ")
            )));
        }
    };
    let published = claim.published_number();
    let reason = format!(
        "The delays are within {unlike} of each other up to {} nodes (with delayed acknowledgement {} there); from {} on \
         delayed acknowledgement is surely faster, by more than {unlike} ({} there). Published is {}.",
        format_digits(before),
        share(before),
        format_digits(after),
        share(after),
        format_digits(published)
    );
    Ok(ClaimFinding {
        ours: ClaimValue::Number(before),
        interval: Some((ClaimValue::Number(before), ClaimValue::Number(after))),
        verdict: Verdict::on_value(before, published, false),
        reason,
    })
}

pub(super) fn congestion_segments(claim: &Claim, view: &VariantView<'_>) -> FindingResult {
    let (delayed, immediate) = ack_curves(view, CONGESTION, PACKETS)?;
    let mut parts = Vec::new();
    let mut said = Vec::new();
    for (curve, name) in [(&immediate, "immediate"), (&delayed, "delayed")] {
        let curve = require_testable(curve.clone(), 2, "Packets")?;
        let Some(level) = measure_level(&curve) else {
            return Err(FindingError::NotComparable(
                "Whether packets are constant takes two numbers of nodes.".to_owned(),
            ));
        };
        parts.push(level.verdict());
        said.push(format!(
            "with {name} acknowledgement {} packets on average, at {} within {} of it and at most {} off (at nodes = {})",
            format_digits(level.mean),
            count_text(level.points_within, level.point_count, "numbers of nodes"),
            format_percent(ALIKE),
            format_percent(level.worst),
            format_digits(level.worst_x)
        ));
    }
    let fewer = require_finite(
        estimate_saving(&delayed.mean_over_points(), &immediate.mean_over_points()),
        "The saving of packets",
    )?;
    let (verdict, off) = judge_deviation(&fewer, claim.part_number("fewer"), "");
    parts.push(verdict);
    let names = ["constant with immediate ACK", "constant with delayed ACK", "fewer with delayed ACK"];
    let constant = parts[..2].iter().filter(|p| **p == Verdict::Reproduced).count();
    let reason = format!(
        "An authentication takes {}. Delayed acknowledgement needs {}, {off}.{}",
        said.join(", and "),
        with_word(&fewer, "", "fewer", "more"),
        part_by_part(names.into_iter().zip(parts.iter().copied()))
    );
    let ours = format!("constant in {constant} of 2; {} fewer with delayed ACK", format_percent(fewer.mean));
    Ok(ClaimFinding::from_words(ours, Verdict::of_parts(&parts), reason))
}
