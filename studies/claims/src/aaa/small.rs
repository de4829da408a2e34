//! Figures 3 to 6: Nagle's algorithm and delayed acknowledgement. Read from `aaa-nagle`, `aaa-delack`, `aaa-packets`
//! and `aaa-congestion`.

use crate::common::{Found, count, curve, finite, on, others, tested};
use crate::data::Claim;
use crate::judge::{
    Finding, Gone, ROUNDING, Value, Verdict, deviation, digits, part_by_part, percent, with_interval,
    with_word,
};
use crate::measure::Estimate;
use crate::measure::{
    ALIKE, Crossover, Curve, Side, Stand, Values, crossover, level, mean, ratio, rise, saving, stand,
};
use crate::results::{Choice, View};

const NODES: &str = "nodes";
const DELAY: &str = "delay.mean";
const PACKETS: &str = "packets.core";
const NAGLE: &str = "aaa-nagle";
const DELACK: &str = "aaa-delack";
const AVOIDANCE: &str = "aaa-packets";
const CONGESTION: &str = "aaa-congestion";
/// Up to how many nodes are few: the document's first figure is at nine.
const FEW: f64 = 9.0;
/// How far "not much different" goes.
const ABOUT: f64 = 0.1;

fn nagle(view: &View<'_>, metric: &str, value: &str) -> Result<Curve, Gone> {
    curve(view, NAGLE, metric, NODES, "nagle", value)
}

/// The curves with delayed acknowledgement and with immediate acknowledgement, at common points. Where a study has
/// Nagle's algorithm beside them, as under congestion, they are those without it.
fn acks(view: &View<'_>, study: &str, metric: &str) -> Result<(Curve, Curve), Gone> {
    let (axis, at_once) =
        if study == CONGESTION { ("avoidance", "none") } else { ("delack", "immediate ACK") };
    let delayed = curve(view, study, metric, NODES, axis, "delayed ACK")?;
    let immediate = curve(view, study, metric, NODES, axis, at_once)?;
    Ok((delayed.common(&immediate), immediate.common(&delayed)))
}

pub(super) fn nagle_delay(_: &Claim, view: &View<'_>) -> Found {
    let with = tested(nagle(view, DELAY, "with Nagle")?, 2, "The delay with Nagle's algorithm")?;
    let slower = with.minus(&nagle(view, DELAY, "without Nagle")?);
    let Some(rise) = rise(&with) else { return Err(Gone::NotComparable("One point only.".to_owned())) };
    let estimates = tested(slower, 1, "With Nagle less without")?.estimates();
    let lower = on(&estimates, Side::Above);
    let (steps, of) = (with.0.len() - 1, estimates.len());
    let verdict = Verdict::of_parts(&[rise.verdict(), Verdict::on_count(lower, of)]);
    let (first, last) = (&with.0[0], &with.0[steps]);
    let mut reason = format!(
        "With Nagle's algorithm the delay goes from {} with the fewest nodes ({}) to {} with the most ({}): of {steps} steps {} surely rise and {} \
         surely fall. Without it the delay is shorter at {}",
        with_interval(&mean(&first.1), "s"),
        digits(first.0),
        with_interval(&mean(&last.1), "s"),
        digits(last.0),
        rise.steps.above,
        rise.steps.below,
        count(lower, of, "numbers of nodes")
    );
    if lower < of {
        reason.push_str(&format!(", not surely at {}", others(&estimates, Side::Above, "")));
    }
    if let Some((nodes, most)) = estimates.iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean)) {
        reason.push_str(&format!(
            " (by the most at nodes = {}: {})",
            digits(*nodes),
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
    Ok(Finding::words(format!("{rises}; lower without at {}", count(lower, of, "points")), verdict, reason))
}

/// The packets with Nagle's algorithm, and the study that they are from: figure 5 shows those of figure 3 again, so
/// the one stands in for the other.
fn nagle_packets(view: &View<'_>) -> Choice<'static> {
    let (study, at): (_, &[_]) = if !view.has(NAGLE) && view.has(AVOIDANCE) {
        (AVOIDANCE, &[("avoidance", "Nagle")])
    } else {
        (NAGLE, &[("nagle", "with Nagle")])
    };
    Choice { study, metric: PACKETS, x: NODES, at }
}

pub(super) fn nagle_segments(claim: &Claim, view: &View<'_>) -> Found {
    let with = nagle_packets(view);
    let mut parts = Vec::new();
    for (name, nodes) in [("nodes_9", 9.0), ("nodes_37", 37.0)] {
        let ours = finite(mean(&view.at(with, nodes)?), "The number of packets")?;
        let (verdict, off) = deviation(&ours, claim.named(name), &claim.unit);
        let off = off.replace(&format!(" {}", claim.unit), "");
        parts.push((
            name,
            ours,
            verdict,
            format!("{} at {} nodes, {off}", with_interval(&ours, "packets"), digits(nodes)),
        ));
    }
    let named = |get: fn(&Estimate) -> f64| {
        Value::Named(parts.iter().map(|(name, e, ..)| ((*name).to_owned(), get(e))).collect())
    };
    let fall = nagle_fall(view)?;
    let (of_fall, _) = deviation(&fall, claim.part("fewer"), "");
    let against = match nagle_saving(view) {
        Ok(saved) => {
            let (verdict, off) = deviation(&saved, claim.part("fewer"), "");
            format!(
                " Read as the saving against no avoidance, over all numbers of nodes, it is {}, {off}: {}.",
                percent(saved.mean),
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
        percent(claim.part("fewer")),
        of_fall.name(),
        part_by_part(names.chain([("as without with few nodes", few)]))
    );
    Ok(Finding {
        ours: named(|e| e.mean),
        interval: Some((named(Estimate::low), named(Estimate::high))),
        verdict: match few {
            // Figures that differ are not undecided because nothing is known of few nodes.
            Verdict::NotComparable => Verdict::worst(&figures).max(Verdict::Partly),
            few => Verdict::worst(&figures).max(few),
        },
        reason,
    })
}

/// Whether with few nodes, 9 and less, Nagle's algorithm leaves the packets about as they are without avoidance: within
/// a tenth, as a figure would have to be. What is farther off, and yet not surely, counts neither way. With the sentence that
/// says so, which has the English text's own words, too: "not much greater".
fn few_nodes(view: &View<'_>) -> Result<(Verdict, String), Gone> {
    let Choice { study, at, .. } = nagle_packets(view);
    let (axis, without) = if study == NAGLE { ("nagle", "without Nagle") } else { ("avoidance", "none") };
    let with = view.curve(Choice { study, metric: PACKETS, x: NODES, at })?;
    let mut changes = changes(&with, &curve(view, study, PACKETS, NODES, axis, without)?);
    changes.retain(|(nodes, _)| *nodes <= FEW);
    let alike = changes.iter().filter(|(_, e)| e.mean.abs() <= ABOUT + ROUNDING).count();
    let surely_off = |e: &Estimate| e.low() > ABOUT + ROUNDING || e.high() < -ABOUT - ROUNDING;
    let off = changes.iter().filter(|(_, e)| surely_off(e)).count();
    let greater = changes.iter().filter(|(_, e)| e.low() > ABOUT + ROUNDING).count();
    let verdict = match Verdict::on_count(alike, alike + off) {
        Verdict::Reproduced if alike < changes.len() => Verdict::Partly,
        verdict => verdict,
    };
    let said: Vec<String> = changes
        .iter()
        .map(|(nodes, e)| format!("{} at {}", with_word(e, "", "more", "fewer"), digits(*nodes)))
        .collect();
    let text = format!(
        "Against no avoidance, with few nodes, packets are {}: within {} at {}, surely not at {off} of them. Read as \"not much \
         greater\", as the English text has it, they are so at {}.",
        said.join(", "),
        percent(ABOUT),
        count(alike, changes.len(), "numbers of nodes"),
        count(changes.len() - greater, changes.len(), "numbers of nodes")
    );
    Ok((verdict, text))
}

/// What Nagle's algorithm saves of the packets without any avoidance.
pub(super) fn nagle_saving(view: &View<'_>) -> Result<Estimate, Gone> {
    let fewer = avoidance(view, "Nagle")?.scaled(-1.0);
    Ok(Estimate { mean: 1.0 + fewer.mean, ..fewer })
}

/// By how much the packets fall from 9 nodes to 37 with Nagle's algorithm.
pub(super) fn nagle_fall(view: &View<'_>) -> Result<Estimate, Gone> {
    let with = nagle_packets(view);
    let fall = saving(&view.at(with, 37.0)?, &view.at(with, 9.0)?);
    finite(fall, "The fall of the packets")
}

/// The share by which the delay is longer with delayed acknowledgement, by the number of nodes.
fn changes(delayed: &Curve, immediate: &Curve) -> Vec<(f64, Estimate)> {
    let change = |(x, d): &(f64, Values)| {
        let r = ratio(d, immediate.at(*x)?);
        Some((*x, Estimate { mean: r.mean - 1.0, ..r }))
    };
    delayed.0.iter().filter_map(change).collect()
}

/// Alike: the whole interval of the paired difference is within 5 % of the delay with immediate acknowledgement.
pub(super) fn delack_delay(_: &Claim, view: &View<'_>) -> Found {
    let (delayed, immediate) = acks(view, DELACK, DELAY)?;
    tested(delayed.minus(&immediate), 1, "Delayed less immediate acknowledgement")?;
    let changes = changes(&delayed, &immediate);
    let alike = |e: &Estimate| e.low() >= -ALIKE && e.high() <= ALIKE;
    let held = changes.iter().filter(|(_, e)| alike(e)).count();
    let of = changes.len();
    let worst = changes.iter().max_by(|a, b| a.1.mean.abs().total_cmp(&b.1.mean.abs()));
    let Some((nodes, worst)) = worst else {
        return Err(Gone::NotComparable("Both settings have no point in common.".to_owned()));
    };
    let way = if worst.mean > 0.0 { "slower" } else { "faster" };
    let reason = format!(
        "At {} the delay with delayed acknowledgement is surely within {} of that with immediate acknowledgement. The \
         largest change is at nodes = {}: {} ({way} with delayed acknowledgement); {} with immediate acknowledgement.",
        count(held, of, "numbers of nodes"),
        percent(ALIKE),
        digits(*nodes),
        with_interval(worst, ""),
        immediate.at(*nodes).map_or_else(String::new, |v| format!("{} s", digits(mean(v).mean)))
    );
    Ok(Finding::words(
        format!("unchanged at {}", count(held, of, "points")),
        Verdict::on_count(held, of),
        reason,
    ))
}

/// Packets with this avoidance and with none, each averaged over the numbers of nodes that both have.
fn avoidance(view: &View<'_>, value: &str) -> Result<Estimate, Gone> {
    let of = |value| curve(view, AVOIDANCE, PACKETS, NODES, "avoidance", value);
    let (with, without) = (of(value)?, of("none")?);
    let left = ratio(&with.common(&without).average(), &without.common(&with).average());
    finite(left, "The share of the packets")
}

/// What delayed acknowledgement saves of the packets without any avoidance.
pub(super) fn delack_saving(view: &View<'_>) -> Result<Estimate, Gone> {
    let left = avoidance(view, "delayed ACK")?;
    let fewer = left.scaled(-1.0);
    Ok(Estimate { mean: 1.0 + fewer.mean, ..fewer })
}

pub(super) fn delack_packets(claim: &Claim, view: &View<'_>) -> Found {
    let left = avoidance(view, "delayed ACK")?;
    let fewer = delack_saving(view)?;
    let (verdict, off) = deviation(&left, claim.number(), "");
    let mut reason = format!(
        "Over all numbers of nodes, {} of the packets are left with delayed acknowledgement, {off}.",
        with_interval(&left, "")
    );
    for reading in claim.readings.iter().skip(1) {
        let Some(published) = reading.published else { continue };
        let (other, off) = deviation(&fewer, published, "");
        reason.push_str(&format!(
            " Read as \"{}\": {} fewer, {off}: {}.",
            reading.name,
            percent(fewer.mean),
            other.name()
        ));
    }
    Ok(Finding::number(&left, verdict, reason))
}

/// Alike: within 5 % in the mean, whatever the interval, so that more replications do not move the crossover.
pub(super) fn congestion_crossover(claim: &Claim, view: &View<'_>) -> Found {
    let (delayed, immediate) = acks(view, CONGESTION, DELAY)?;
    tested(immediate.minus(&delayed), 2, "Immediate less delayed acknowledgement")?;
    let changes = changes(&delayed, &immediate);
    let at = |wanted: Stand| changes.iter().filter(|(_, e)| stand(e) == wanted).count();
    let counted = |wanted| count(at(wanted), changes.len(), "numbers of nodes");
    let share = |x: f64| {
        let change = changes.iter().find(|(at, _)| *at == x);
        change.map_or_else(String::new, |(_, e)| with_word(e, "", "slower", "faster"))
    };
    let unlike = percent(ALIKE);
    let slower = if at(Stand::Slower) == 0 {
        String::new()
    } else {
        format!(" At {} it is surely slower, by more than {unlike}.", counted(Stand::Slower))
    };
    let (before, after) = match crossover(&changes) {
        Crossover::At { before, after } => (before, after),
        Crossover::First(after) => {
            let reason = format!(
                "Delayed acknowledgement is surely faster, by more than {unlike}, at every number of nodes, from {} on, \
                 so there is no number up to which the delays are alike.",
                digits(after)
            );
            return Ok(Finding::words("faster from the first point", Verdict::Differs, reason));
        }
        Crossover::Nowhere => {
            let reason = format!(
                "The delays are within {unlike} at {}, and delayed acknowledgement is surely faster, by more than that, at \
                 {}: there is no number of nodes up to which they are alike and beyond which it is faster for \
                 good.{slower}",
                counted(Stand::Alike),
                counted(Stand::Faster)
            );
            return Ok(Finding::words("no crossover", Verdict::Differs, reason));
        }
        Crossover::Unsure => {
            let unsure = changes.iter().filter(|(_, e)| stand(e) == Stand::Unsure);
            let said: Vec<String> =
                unsure.map(|(x, e)| format!("{} nodes {}", digits(*x), with_interval(e, ""))).collect();
            return Err(Gone::NotComparable(format!(
                "The delays differ by more than {unlike} and yet not surely (at {}): more replications would tell.",
                said.join(", at ")
            )));
        }
    };
    let published = claim.number();
    let reason = format!(
        "The delays are within {unlike} of each other up to {} nodes (with delayed acknowledgement {} there); from {} on \
         delayed acknowledgement is surely faster, by more than {unlike} ({} there). Published is {}.",
        digits(before),
        share(before),
        digits(after),
        share(after),
        digits(published)
    );
    Ok(Finding {
        ours: Value::Number(before),
        interval: Some((Value::Number(before), Value::Number(after))),
        verdict: Verdict::on_value(before, published, false),
        reason,
    })
}

pub(super) fn congestion_segments(claim: &Claim, view: &View<'_>) -> Found {
    let (delayed, immediate) = acks(view, CONGESTION, PACKETS)?;
    let mut parts = Vec::new();
    let mut said = Vec::new();
    for (curve, name) in [(&immediate, "immediate"), (&delayed, "delayed")] {
        let curve = tested(curve.clone(), 2, "Packets")?;
        let Some(level) = level(&curve) else {
            return Err(Gone::NotComparable(
                "Whether packets are constant takes two numbers of nodes.".to_owned(),
            ));
        };
        parts.push(level.verdict());
        said.push(format!(
            "with {name} acknowledgement {} packets on average, at {} within {} of it and at most {} off (at nodes = {})",
            digits(level.mean),
            count(level.within, level.of, "numbers of nodes"),
            percent(ALIKE),
            percent(level.worst),
            digits(level.at)
        ));
    }
    let fewer = finite(saving(&delayed.average(), &immediate.average()), "The saving of packets")?;
    let (verdict, off) = deviation(&fewer, claim.part("fewer"), "");
    parts.push(verdict);
    let names = ["constant with immediate ACK", "constant with delayed ACK", "fewer with delayed ACK"];
    let constant = parts[..2].iter().filter(|p| **p == Verdict::Reproduced).count();
    let reason = format!(
        "An authentication takes {}. Delayed acknowledgement needs {}, {off}.{}",
        said.join(", and "),
        with_word(&fewer, "", "fewer", "more"),
        part_by_part(names.into_iter().zip(parts.iter().copied()))
    );
    let ours = format!("constant in {constant} of 2; {} fewer with delayed ACK", percent(fewer.mean));
    Ok(Finding::words(ours, Verdict::of_parts(&parts), reason))
}
