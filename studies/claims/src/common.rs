//! What the judgements of several documents share.

use crate::data::Claim;
use crate::judge::{Finding, Gone, Value, Verdict, deviation, digits, part_by_part, with_interval};
use crate::measure::{Curve, Estimate, LEAST_ROBUST, LEVEL, Side, Values, mean, minus, side};
use crate::results::{Choice, View};
use usher_observe::stats::robust::{Median, moved};

pub(crate) type Found = Result<Finding, Gone>;
pub(crate) type Function = fn(&Claim, &View<'_>) -> Found;

/// A curve at one value of one axis.
pub(crate) fn curve(
    view: &View<'_>,
    study: &str,
    metric: &str,
    x: &str,
    axis: &str,
    value: &str,
) -> Result<Curve, Gone> {
    view.curve(Choice { study, metric, x, at: &[(axis, value)] })
}

/// Refuses curves on which nothing can be tested.
pub(crate) fn tested(curve: Curve, least: usize, what: &str) -> Result<Curve, Gone> {
    if curve.0.len() < least {
        return Err(Gone::NotComparable(format!(
            "{what}: {} point(s) of the axis are there, and the test needs {least}.",
            curve.0.len()
        )));
    }
    let few = |v: &&(f64, Values)| v.1.len() < v.1.least();
    let bare: Vec<String> = curve.0.iter().filter(few).map(|(x, _)| digits(*x)).collect();
    if let Some((_, values)) = curve.0.iter().find(few) {
        let (least, none) = needed(values.least());
        return Err(Gone::NotComparable(format!(
            "{what}: not {least} replications in common at {}, and {none}.",
            bare.join(", ")
        )));
    }
    Ok(curve)
}

/// How many replications an interval takes, in words, and what fewer give.
const fn needed(least: usize) -> (&'static str, &'static str) {
    if least > 2 {
        ("three", "two hold a median with 50 % confidence only, which decides nothing")
    } else {
        ("two", "one replication gives no interval")
    }
}

/// Refuses a figure that is no number, or that has no interval.
pub(crate) fn finite(estimate: Estimate, what: &str) -> Result<Estimate, Gone> {
    if !estimate.mean.is_finite() {
        let text = format!("{what} cannot be formed: the replications have nothing in common.");
        return Err(Gone::NotComparable(text));
    }
    if !estimate.is_known() {
        let text = match estimate.n {
            0 | 1 => format!("{what} is of one replication, which gives no interval."),
            n => format!("{what} is of {n} replications: {}.", needed(LEAST_ROBUST).1),
        };
        return Err(Gone::NotComparable(text));
    }
    Ok(estimate)
}

/// The paired difference `a - b` with its interval.
pub(crate) fn difference(a: &Values, b: &Values, what: &str) -> Result<Estimate, Gone> {
    finite(mean(&minus(a, b)), what)
}

/// A sentence where one replication moves the mean of these values, `what` being their name: what the mean is without
/// it, and their median. Empty where none does.
pub(crate) fn heavy(values: &Values, what: &str, unit: &str) -> String {
    let pairs: Vec<(u32, f64)> = values.iter().map(|(r, v)| (*r, *v)).collect();
    let Some(moved) = moved(&pairs) else { return String::new() };
    let median = Median::of(&values.values().copied().collect::<Vec<_>>(), LEVEL);
    let ends = median
        .interval()
        .map_or_else(String::new, |(low, high)| format!(" ({} to {} {unit})", digits(low), digits(high)));
    format!(
        " One replication moves this mean, which is not to be trusted: {what} is {} {unit} without replication {}, and \
         the median {} {unit}{ends}.",
        digits(moved.without),
        moved.replication,
        digits(median.median)
    )
}

/// A number of things with its noun.
pub(crate) fn count(n: usize, of: usize, what: &str) -> String {
    if n == of { format!("all {of} {what}") } else { format!("{n} of {of} {what}") }
}

/// Counts the estimates on one side of zero.
pub(crate) fn on(estimates: &[(f64, Estimate)], wanted: Side) -> usize {
    estimates.iter().filter(|(_, e)| side(e) == wanted).count()
}

/// The places whose estimates are on none but the wanted side, for a reason.
pub(crate) fn others(estimates: &[(f64, Estimate)], wanted: Side, unit: &str) -> String {
    let rest: Vec<String> = estimates
        .iter()
        .filter(|(_, e)| side(e) != wanted)
        .map(|(x, _)| format!("{}{unit}", digits(*x)))
        .collect();
    rest.join(", ")
}

/// A statement on what was configured; `stated` says it for the reason.
pub(crate) fn configured(claim: &Claim, view: &View<'_>, stated: &str) -> Found {
    let present: Vec<&String> = claim.studies.iter().filter(|s| view.has(s)).collect();
    if present.is_empty() {
        return Err(view.missing(&claim.studies.join(" ")));
    }
    present.iter().try_for_each(|s| view.at_defaults(s))?;
    if present.iter().all(|s| view.setup(s).is_none()) {
        return Err(Gone::NotComparable("The runs do not say how they were set up.".to_owned()));
    }
    let (mut wrong, mut most) = (Vec::new(), 0);
    for study in &present {
        let Some(setup) = view.setup(study) else {
            wrong.push(format!("{study}: its setting is not known"));
            continue;
        };
        let own = setup.deviations();
        most = most.max(own.len());
        wrong.extend(own.into_iter().map(|d| format!("{study}: {d}")));
    }
    let names = present.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
    if wrong.is_empty() {
        let reason = format!("In {names}: {stated}.");
        return Ok(Finding::words("configured as stated", Verdict::Reproduced, reason));
    }
    let same = |s: &&&String| !wrong.iter().any(|w| w.starts_with(&format!("{s}:")));
    let right = present.iter().filter(same).count();
    // A thing or two that are otherwise leave a study's setting the same in the main, whatever the others have right.
    let verdict = if most <= 2 { Verdict::Partly } else { Verdict::Differs };
    let ours = format!("as stated in {}", count(right, present.len(), "studies"));
    Ok(Finding::words(ours, verdict, format!("Not as stated: {}.", wrong.join("; "))))
}

impl Finding {
    /// Partly at most, where a study that the statement is on was not run.
    pub(crate) fn of_all(mut self, claim: &Claim, view: &View<'_>) -> Self {
        for study in claim.studies.iter().filter(|study| !view.has(study)) {
            self.verdict = self.verdict.max(Verdict::Partly);
            self.reason.push_str(&format!(" {study} was not run: usher study run {study}."));
        }
        self
    }
}

/// The figures of a statement with several, as they are held against it.
pub(crate) struct Figures<'a> {
    claim: &'a Claim,
    parts: Vec<(&'a str, Estimate, Verdict)>,
    said: Vec<String>,
}

impl<'a> Figures<'a> {
    pub(crate) fn new(claim: &'a Claim) -> Self {
        Self { claim, parts: Vec::new(), said: Vec::new() }
    }

    /// Holds an estimate, in the claim's unit, against the published number of this name.
    pub(crate) fn add(&mut self, name: &'a str, what: &str, ours: Estimate) {
        let unit = &self.claim.unit;
        let (verdict, off) = deviation(&ours, self.claim.named(name), unit);
        self.said.push(format!("{what} {}, {off}", with_interval(&ours, unit)));
        self.parts.push((name, ours, verdict));
    }

    /// The finding, with what a statement has beside its figures: a sentence, and what each part of it comes to.
    pub(crate) fn finding(self, more: &str, others: &[(&str, Verdict)]) -> Finding {
        let named = |get: fn(&Estimate) -> f64| {
            Value::Named(self.parts.iter().map(|(name, e, _)| ((*name).to_owned(), get(e))).collect())
        };
        let own: Vec<Verdict> = self.parts.iter().map(|(.., verdict)| *verdict).collect();
        let whole: Vec<Verdict> =
            [Verdict::worst(&own)].into_iter().chain(others.iter().map(|(_, v)| *v)).collect();
        let names = self.parts.iter().map(|(name, _, verdict)| (name.replace('_', " "), *verdict));
        let names: Vec<(String, Verdict)> =
            names.chain(others.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict))).collect();
        let parts = part_by_part(names.iter().map(|(name, verdict)| (name.as_str(), *verdict)));
        Finding {
            ours: named(|e| e.mean),
            interval: Some((named(Estimate::low), named(Estimate::high))),
            verdict: Verdict::of_parts(&whole),
            reason: format!("{}.{more}{parts}", capital(&self.said.join("; "))),
        }
    }
}

/// With a capital letter.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
