//! Functions that the evaluations of several documents share.

use crate::data::Claim;
use crate::judge::{
    ClaimFinding, ClaimValue, FindingError, Verdict, format_digits, format_with_interval, judge_deviation,
    list_part_verdicts,
};
use crate::measure::{
    IntervalSign, LEAST_ROBUST, LEVEL, MetricCurve, MetricEstimate, MetricValues, estimate_mean,
    interval_sign, subtract_values,
};
use crate::results::{CurveSelector, VariantResults};
use usher_observe::stats::robust::{MedianEstimate, find_influential};

pub(crate) type FindingResult = Result<ClaimFinding, FindingError>;
pub(crate) type JudgeFunction = fn(&Claim, &VariantResults<'_>) -> FindingResult;

/// Returns a curve at one value of one axis.
pub(crate) fn curve_at_value(
    view: &VariantResults<'_>,
    study: &str,
    metric: &str,
    x: &str,
    axis: &str,
    value: &str,
) -> Result<MetricCurve, FindingError> {
    view.curve(CurveSelector { study, metric, x, fixed_axes: &[(axis, value)] })
}

/// Rejects a curve with too few points for a test.
pub(crate) fn require_minimum_points(
    curve: MetricCurve,
    least: usize,
    what: &str,
) -> Result<MetricCurve, FindingError> {
    if curve.0.len() < least {
        return Err(FindingError::NotComparable(format!(
            "{what}: the axis has {} point(s), and the test needs {least}.",
            curve.0.len()
        )));
    }
    let few = |v: &&(f64, MetricValues)| v.1.len() < v.1.minimum_sample_count();
    let bare: Vec<String> = curve.0.iter().filter(few).map(|(x, _)| format_digits(*x)).collect();
    if let Some((_, values)) = curve.0.iter().find(few) {
        let (least, none) = replications_needed(values.minimum_sample_count());
        return Err(FindingError::NotComparable(format!(
            "{what}: fewer than {least} common replications at {}, and {none}.",
            bare.join(", ")
        )));
    }
    Ok(curve)
}

/// Returns in words the replications that an interval needs, and the consequence of fewer.
const fn replications_needed(least: usize) -> (&'static str, &'static str) {
    if least > 2 {
        ("three", "two give a median only 50 % confidence, which is not enough")
    } else {
        ("two", "one replication gives no interval")
    }
}

/// Rejects an estimate that is not finite or has no interval.
pub(crate) fn require_finite(estimate: MetricEstimate, what: &str) -> Result<MetricEstimate, FindingError> {
    if !estimate.mean.is_finite() {
        let text = format!("{what} cannot be computed: the replications have nothing in common.");
        return Err(FindingError::NotComparable(text));
    }
    if !estimate.is_known() {
        let text = match estimate.n {
            0 | 1 => format!("{what} comes from one replication, which gives no interval."),
            n => format!("{what} comes from {n} replications: {}.", replications_needed(LEAST_ROBUST).1),
        };
        return Err(FindingError::NotComparable(text));
    }
    Ok(estimate)
}

/// Returns the paired difference `a - b` with its interval.
pub(crate) fn paired_difference(
    a: &MetricValues,
    b: &MetricValues,
    what: &str,
) -> Result<MetricEstimate, FindingError> {
    require_finite(estimate_mean(&subtract_values(a, b)), what)
}

/// Returns a sentence if one replication moves the mean of the values named `what`: the mean without it, and the
/// median. Empty otherwise.
pub(crate) fn describe_outlier(values: &MetricValues, what: &str, unit: &str) -> String {
    let pairs: Vec<(u32, f64)> = values.iter().map(|(r, v)| (*r, *v)).collect();
    let Some(moved) = find_influential(&pairs) else { return String::new() };
    let median = MedianEstimate::from_values(&values.values().copied().collect::<Vec<_>>(), LEVEL);
    let ends = median.interval().map_or_else(String::new, |(low, high)| {
        format!(" ({} to {} {unit})", format_digits(low), format_digits(high))
    });
    format!(
        " One replication moves this mean, so do not trust it: {what} is {} {unit} without replication {}, \
         and the median {} {unit}{ends}.",
        format_digits(moved.mean_without),
        moved.replication,
        format_digits(median.median)
    )
}

/// Formats a count with its noun.
pub(crate) fn format_count_of_total(n: usize, of: usize, what: &str) -> String {
    if n == of { format!("all {of} {what}") } else { format!("{n} of {of} {what}") }
}

/// Counts the estimates on one side of zero.
pub(crate) fn count_estimates_with_sign(estimates: &[(f64, MetricEstimate)], wanted: IntervalSign) -> usize {
    estimates.iter().filter(|(_, e)| interval_sign(e) == wanted).count()
}

/// Lists the places whose estimates are not on the wanted side, for a reason.
pub(crate) fn list_estimates_with_other_sign(
    estimates: &[(f64, MetricEstimate)],
    wanted: IntervalSign,
    unit: &str,
) -> String {
    let rest: Vec<String> = estimates
        .iter()
        .filter(|(_, e)| interval_sign(e) != wanted)
        .map(|(x, _)| format!("{}{unit}", format_digits(*x)))
        .collect();
    rest.join(", ")
}

/// Evaluates a statement on the configuration; the reason uses `stated`.
pub(crate) fn judge_configuration(claim: &Claim, view: &VariantResults<'_>, stated: &str) -> FindingResult {
    let present: Vec<&String> = claim.studies.iter().filter(|s| view.has_study(s)).collect();
    if present.is_empty() {
        return Err(view.missing_study(&claim.studies.join(" ")));
    }
    present.iter().try_for_each(|s| view.require_default_settings(s))?;
    if present.iter().all(|s| view.study_setup(s).is_none()) {
        return Err(FindingError::NotComparable("The runs do not record their configuration.".to_owned()));
    }
    let (mut wrong, mut most) = (Vec::new(), 0);
    for study in &present {
        let Some(setup) = view.study_setup(study) else {
            wrong.push(format!("{study}: its run does not record its configuration"));
            continue;
        };
        let own = setup.deviations();
        most = most.max(own.len());
        wrong.extend(own.into_iter().map(|d| format!("{study}: {d}")));
    }
    let names = present.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
    if wrong.is_empty() {
        let reason = format!("In {names}: {stated}.");
        return Ok(ClaimFinding::from_verdict_text("configured as stated", Verdict::Reproduced, reason));
    }
    let same = |s: &&&String| !wrong.iter().any(|w| w.starts_with(&format!("{s}:")));
    let right = present.iter().filter(same).count();
    // One or two deviations leave a study's setting essentially the same, regardless of the other studies.
    let verdict = if most <= 2 { Verdict::Partly } else { Verdict::Differs };
    let ours = format!("as stated in {}", format_count_of_total(right, present.len(), "studies"));
    Ok(ClaimFinding::from_verdict_text(ours, verdict, format!("Not as stated: {}.", wrong.join("; "))))
}

impl ClaimFinding {
    /// Limits the verdict to "partly" if a study of the statement was not run.
    pub(crate) fn of_all(mut self, claim: &Claim, view: &VariantResults<'_>) -> Self {
        for study in claim.studies.iter().filter(|study| !view.has_study(study)) {
            self.verdict = self.verdict.max(Verdict::Partly);
            self.reason.push_str(&format!(" {study} was not run: usher study run {study}."));
        }
        self
    }
}

/// The figures of a statement with several, with their comparison.
pub(crate) struct ClaimValueVerdicts<'a> {
    claim: &'a Claim,
    parts: Vec<(&'a str, MetricEstimate, Verdict)>,
    sentences: Vec<String>,
}

impl<'a> ClaimValueVerdicts<'a> {
    pub(crate) fn new(claim: &'a Claim) -> Self {
        Self { claim, parts: Vec::new(), sentences: Vec::new() }
    }

    /// Compares an estimate, in the claim's unit, with the published number of this name.
    pub(crate) fn add_published_number_comparison(
        &mut self,
        name: &'a str,
        what: &str,
        ours: MetricEstimate,
    ) {
        let unit = &self.claim.unit;
        let (verdict, off) = judge_deviation(&ours, self.claim.published_number_by_name(name), unit);
        self.sentences.push(format!("{what} {}, {off}", format_with_interval(&ours, unit)));
        self.parts.push((name, ours, verdict));
    }

    /// Returns the finding with a further sentence and the verdicts of further parts.
    pub(crate) fn into_finding(self, more: &str, others: &[(&str, Verdict)]) -> ClaimFinding {
        let named = |get: fn(&MetricEstimate) -> f64| {
            ClaimValue::Named(self.parts.iter().map(|(name, e, _)| ((*name).to_owned(), get(e))).collect())
        };
        let own: Vec<Verdict> = self.parts.iter().map(|(.., verdict)| *verdict).collect();
        let whole: Vec<Verdict> =
            [Verdict::worst_part_verdict(&own)].into_iter().chain(others.iter().map(|(_, v)| *v)).collect();
        let names = self.parts.iter().map(|(name, _, verdict)| (name.replace('_', " "), *verdict));
        let names: Vec<(String, Verdict)> =
            names.chain(others.iter().map(|(name, verdict)| ((*name).to_owned(), *verdict))).collect();
        let parts = list_part_verdicts(names.iter().map(|(name, verdict)| (name.as_str(), *verdict)));
        ClaimFinding {
            ours: named(|e| e.mean),
            interval: Some((named(MetricEstimate::low), named(MetricEstimate::high))),
            verdict: Verdict::of_parts(&whole),
            reason: format!("{}.{more}{parts}", capitalise(&self.sentences.join("; "))),
        }
    }
}

/// Capitalises the first letter.
pub(crate) fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
