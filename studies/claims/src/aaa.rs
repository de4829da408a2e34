//! The claims of "Simulation of Performance Enhancement in the AAA Protocol", a function each.

mod hol;
mod small;

use crate::data::Claim;
use crate::judge::{Finding, Gone, Verdict};
use crate::measure::{Curve, Side, Values, mean, minus, side};
use crate::results::{Choice, View};
use usher_observe::Estimate;

type Found = Result<Finding, Gone>;
pub(crate) type Function = fn(&Claim, &View<'_>) -> Found;

/// Each claim's function.
const FUNCTIONS: [(&str, Function); 15] = [
    ("aaa.setup", setup),
    ("aaa.hol.gap-5", hol::gap_5),
    ("aaa.hol.gap-19", hol::gap_19),
    ("aaa.hol.best", hol::best),
    ("aaa.hol.widens", hol::widens),
    ("aaa.udp.low-loss", hol::udp_low_loss),
    ("aaa.udp.high-loss", hol::udp_high_loss),
    ("aaa.nagle.delay", small::nagle_delay),
    ("aaa.nagle.segments", small::nagle_segments),
    ("aaa.delack.delay", small::delack_delay),
    ("aaa.delack.packets", small::delack_packets),
    ("aaa.congestion.crossover", small::congestion_crossover),
    ("aaa.congestion.segments", small::congestion_segments),
    ("aaa.average", average),
    ("aaa.surge", surge),
];

/// The function that judges this claim.
pub(crate) fn function(id: &str) -> Option<Function> {
    FUNCTIONS.iter().find(|(known, _)| *known == id).map(|(_, function)| *function)
}

#[cfg(test)]
pub(crate) fn ids() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|(id, _)| *id)
}

/// A curve at one value of one axis.
fn curve(
    view: &View<'_>,
    study: &str,
    metric: &str,
    x: &str,
    axis: &str,
    value: &str,
) -> Result<Curve, Gone> {
    view.curve(Choice { study, metric, x, axis: (axis, value) })
}

/// Refuses curves on which nothing can be tested.
fn tested(curve: Curve, least: usize, what: &str) -> Result<Curve, Gone> {
    if curve.0.len() < least {
        return Err(Gone::NotComparable(format!(
            "{what}: {} point(s) of the axis are there, and the test needs {least}.",
            curve.0.len()
        )));
    }
    let bare: Vec<String> =
        curve.0.iter().filter(|(_, v)| v.len() < 2).map(|(x, _)| crate::judge::digits(*x)).collect();
    if !bare.is_empty() {
        return Err(Gone::NotComparable(format!(
            "{what}: not two replications in common at {}, and one replication gives no interval.",
            bare.join(", ")
        )));
    }
    Ok(curve)
}

/// Refuses a figure that is no number, or that has no interval.
fn finite(estimate: Estimate, what: &str) -> Result<Estimate, Gone> {
    if !estimate.mean.is_finite() {
        let text = format!("{what} cannot be formed: the replications have nothing in common.");
        return Err(Gone::NotComparable(text));
    }
    if !estimate.half_width.is_finite() {
        let text = format!("{what} is of one replication, which gives no interval.");
        return Err(Gone::NotComparable(text));
    }
    Ok(estimate)
}

/// The paired difference `a - b` with its interval.
fn difference(a: &Values, b: &Values, what: &str) -> Result<Estimate, Gone> {
    finite(mean(&minus(a, b)), what)
}

/// A number of things with its noun.
fn count(n: usize, of: usize, what: &str) -> String {
    if n == of { format!("all {of} {what}") } else { format!("{n} of {of} {what}") }
}

/// Counts the estimates on one side of zero.
fn on(estimates: &[(f64, Estimate)], wanted: Side) -> usize {
    estimates.iter().filter(|(_, e)| side(e) == wanted).count()
}

/// The places whose estimates are on none but the wanted side, for a reason.
fn others(estimates: &[(f64, Estimate)], wanted: Side, unit: &str) -> String {
    let rest: Vec<String> = estimates
        .iter()
        .filter(|(_, e)| side(e) != wanted)
        .map(|(x, _)| format!("{}{unit}", crate::judge::digits(*x)))
        .collect();
    rest.join(", ")
}

fn setup(claim: &Claim, view: &View<'_>) -> Found {
    let present: Vec<&String> = claim.studies.iter().filter(|s| view.has(s)).collect();
    if present.is_empty() {
        return Err(view.missing(&claim.studies.join(" ")));
    }
    present.iter().try_for_each(|s| view.at_defaults(s))?;
    if present.iter().all(|s| view.setup(s).is_none()) {
        return Err(Gone::NotComparable("The runs do not say how they were set up.".to_owned()));
    }
    let mut wrong = Vec::new();
    for study in &present {
        let Some(setup) = view.setup(study) else {
            wrong.push(format!("{study}: its setting is not known"));
            continue;
        };
        wrong.extend(setup.deviations().into_iter().map(|d| format!("{study}: {d}")));
    }
    let names = present.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
    if wrong.is_empty() {
        let reason = format!(
            "In {names}: up to 100 stations on an 802.16 base station, the AAA server two hops away, 1.5 Mb/s and \
             10 ms between them."
        );
        return Ok(Finding::words("configured as stated", Verdict::Reproduced, reason));
    }
    let same = |s: &&&String| !wrong.iter().any(|w| w.starts_with(&format!("{s}:")));
    let right = present.iter().filter(same).count();
    // One thing of five that is otherwise leaves the setting the same in the main.
    let verdict = if wrong.len() <= 2 * present.len() { Verdict::Partly } else { Verdict::Differs };
    let ours = format!("as stated in {}", count(right, present.len(), "studies"));
    Ok(Finding::words(ours, verdict, format!("Not as stated: {}.", wrong.join("; "))))
}

/// The mean of the three savings, each measured as the claim of its own measures it.
fn average(claim: &Claim, view: &View<'_>) -> Found {
    let best = hol::best_saving(view)?;
    let streams = best.saving;
    let nagle = small::nagle_fall(view)?;
    let delack = small::delack_saving(view)?;
    let parts = [streams, nagle, delack];
    let third = 1.0 / parts.len() as f64;
    // The studies may share chance, so the half-widths add up in the worst case.
    let ours = Estimate {
        mean: parts.iter().map(|e| e.mean).sum::<f64>() * third,
        half_width: parts.iter().map(|e| e.half_width).sum::<f64>() * third,
        n: parts.iter().map(|e| e.n).min().unwrap_or(0),
    };
    let ours = finite(ours, "The mean saving")?;
    let (verdict, off) = crate::judge::deviation(&ours, claim.number(), "");
    let said = |name| crate::judge::percent(claim.part(name));
    let [a, b, c] = parts.map(|e| crate::judge::percent(e.mean));
    let reason = format!(
        "The mean saving is {}, {off}. It is that of {a} (delay, streams; published {}), {b} (packets, Nagle; {}) and {c} \
         (packets, delayed acknowledgement; {}).{}",
        crate::judge::with_interval(&ours, ""),
        said("streams"),
        said("nagle"),
        said("delack"),
        best.left_out
    );
    Ok(Finding::number(&ours, verdict, reason))
}

fn surge(claim: &Claim, view: &View<'_>) -> Found {
    let missing: Vec<&str> = claim.studies.iter().map(String::as_str).filter(|s| !view.has(s)).collect();
    if missing.len() == claim.studies.len() {
        return Err(view.missing(&missing.join(" ")));
    }
    claim.studies.iter().try_for_each(|s| view.at_defaults(s))?;
    if missing.is_empty() {
        let reason = format!("Both are studied: {} have results.", claim.studies.join(" and "));
        return Ok(Finding::words("done", Verdict::Reproduced, reason));
    }
    let reason = format!("{0} was not run: usher study run {0}.", missing.join(" "));
    Ok(Finding::words("one of two done", Verdict::Partly, reason))
}
