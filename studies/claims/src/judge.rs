//! Verdicts, and the rules that derive them from numbers.

use crate::data::{Claim, PublishedValue};
use crate::measure::MetricEstimate;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use usher_observe::row::format_number;

/// Relative tolerances of a figure for "reproduced" and for "partly".
const REPRODUCED: f64 = 0.10;
const PARTLY: f64 = 0.30;
/// Absolute tolerance of a delay in seconds.
const DELAY_S: f64 = 0.05;
/// Tolerance for rounding at a limit.
pub(crate) const ROUNDING: f64 = 1e-9;

/// The verdict of a comparison of our result with a statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// Our result is as stated.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// Our result agrees in part, or deviates somewhat.
    #[serde(rename = "partly")]
    Partly,
    /// Our result contradicts the statement.
    #[serde(rename = "differs")]
    Differs,
    /// The results are undecided; the reason explains it.
    #[serde(rename = "not comparable")]
    NotComparable,
    /// The required results are missing; the reason names the studies to run.
    #[serde(rename = "not run")]
    NotRun,
    /// There is no study of it yet.
    #[serde(rename = "not yet done")]
    NotYet,
}

impl Verdict {
    /// Returns its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::Differs => "differs",
            Self::NotComparable => "not comparable",
            Self::NotRun => "not run",
            Self::NotYet => "not yet done",
        }
    }

    /// Returns the verdict on a figure: within 10 % reproduced, within 30 % partly. Delays have an absolute tolerance
    /// of 0.05 s.
    pub fn compare_with_published(ours: f64, published: f64, delay: bool) -> Self {
        let off = (ours - published).abs() - ROUNDING * published.abs();
        let least = if delay { DELAY_S } else { 0.0 };
        let within = |share: f64| off <= (share * published.abs()).max(least);
        if within(REPRODUCED) {
            Self::Reproduced
        } else if within(PARTLY) {
            Self::Partly
        } else {
            Self::Differs
        }
    }

    /// Returns the verdict on an upper limit of a figure: reproduced if its whole interval is within, partly if the
    /// interval crosses the limit.
    pub(crate) fn compare_with_upper_bound(ours: &MetricEstimate, limit: f64) -> Self {
        let limit = limit + ROUNDING * limit.abs();
        if ours.high() <= limit {
            Self::Reproduced
        } else if ours.low() <= limit {
            Self::Partly
        } else {
            Self::Differs
        }
    }

    /// Returns the verdict on a statement for every point: reproduced if all hold, partly if two thirds do. Undecided
    /// without points.
    pub const fn from_held_point_count(held: usize, of: usize) -> Self {
        if of == 0 {
            Self::NotComparable
        } else if held == of {
            Self::Reproduced
        } else if 3 * held >= 2 * of {
            Self::Partly
        } else {
            Self::Differs
        }
    }

    /// Returns the verdict on a statement with several figures: the worst of them.
    pub fn worst_part_verdict(parts: &[Self]) -> Self {
        parts.iter().copied().max().unwrap_or(Self::NotComparable)
    }

    /// Returns the verdict on a statement of several parts: reproduced if all are, partly if at least half are
    /// reproduced or partly so. An undecided part does not hold; if all are undecided, so is the whole.
    pub fn of_parts(parts: &[Self]) -> Self {
        if parts.iter().all(|p| *p >= Self::NotComparable) {
            return Self::NotComparable;
        }
        let held = parts.iter().filter(|p| **p <= Self::Partly).count();
        if parts.iter().all(|p| *p == Self::Reproduced) {
            Self::Reproduced
        } else if 2 * held >= parts.len() {
            Self::Partly
        } else {
            Self::Differs
        }
    }
}

/// The result for a statement's value, as in [`PublishedValue`].
#[derive(Clone, PartialEq, Debug)]
pub enum ClaimValue {
    /// A number, in the claim's unit.
    Number(f64),
    /// Several numbers by name.
    Named(Vec<(String, f64)>),
    /// A few words.
    Text(String),
}

impl ClaimValue {
    /// Returns the value as text for people, without the unit.
    pub fn to_text(&self) -> String {
        match self {
            Self::Number(value) => format_digits(*value),
            Self::Named(values) => {
                let each = |(name, value): &(String, f64)| {
                    format!("{}: {}", name.replace('_', " "), format_digits(*value))
                };
                values.iter().map(each).collect::<Vec<_>>().join("; ")
            }
            Self::Text(text) => text.clone(),
        }
    }

    /// Removes numbers that a file cannot hold.
    fn require_finite_value(self) -> Option<Self> {
        let finite = match &self {
            Self::Number(value) => value.is_finite(),
            Self::Named(values) => values.iter().all(|(_, v)| v.is_finite()),
            Self::Text(_) => true,
        };
        finite.then_some(self)
    }
}

impl From<&PublishedValue> for ClaimValue {
    fn from(published: &PublishedValue) -> Self {
        match published {
            PublishedValue::Number(value) => Self::Number(*value),
            PublishedValue::Named(values) => {
                Self::Named(values.iter().map(|n| (n.name.clone(), n.value)).collect())
            }
            PublishedValue::Text(text) => Self::Text(text.clone()),
        }
    }
}

impl Serialize for ClaimValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Named(values) => {
                let mut map = serializer.serialize_map(Some(values.len()))?;
                for (name, value) in values {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
        }
    }
}

/// A statement with our result. Serialised, it is one object of `claims.json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClaimJudgement {
    /// The claim's name.
    pub id: String,
    /// The published value.
    pub published: ClaimValue,
    /// Our result: numbers in the claim's unit if the statement has numbers, otherwise a few words; `None` without a
    /// result.
    pub ours: Option<ClaimValue>,
    /// The lower end of the 95 % interval of our numbers, if known.
    pub low: Option<ClaimValue>,
    /// The upper end.
    pub high: Option<ClaimValue>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, with numbers.
    pub reason: String,
}

impl ClaimJudgement {
    pub(crate) fn new(claim: &Claim, found: Result<ClaimFinding, FindingError>, cautions: &[String]) -> Self {
        let published = ClaimValue::from(&claim.published);
        let id = claim.id.clone();
        let finding = match found {
            Ok(finding) => finding,
            Err(gone) => {
                let (verdict, reason) = match gone {
                    FindingError::NotRun(reason) => (Verdict::NotRun, reason),
                    FindingError::NotComparable(reason) => (Verdict::NotComparable, reason),
                    FindingError::NoStudy(reason) => (Verdict::NotYet, reason),
                };
                return Self { id, published, ours: None, low: None, high: None, verdict, reason };
            }
        };
        let ours = finding.ours.require_finite_value();
        let (low, high) = match finding
            .interval
            .map(|(low, high)| (low.require_finite_value(), high.require_finite_value()))
        {
            Some((Some(low), Some(high))) => (Some(low), Some(high)),
            _ => (None, None),
        };
        let verdict = finding.verdict;
        let mut reason = finding.reason;
        if let Some(cause) = claim.causes.get(&verdict) {
            let text =
                |value: &Option<ClaimValue>| value.as_ref().map_or_else(String::new, ClaimValue::to_text);
            let filled = cause
                .replace("{ours}", &text(&ours))
                .replace("{low}", &text(&low))
                .replace("{high}", &text(&high))
                .replace("{published}", &published.to_text());
            reason = format!("{reason} {filled}");
        }
        for caution in cautions {
            reason = format!("{reason} {caution}");
        }
        Self { id, published, ours, low, high, verdict, reason }
    }
}

/// The finding of an evaluation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ClaimFinding {
    pub(crate) ours: ClaimValue,
    pub(crate) interval: Option<(ClaimValue, ClaimValue)>,
    pub(crate) verdict: Verdict,
    pub(crate) reason: String,
}

impl ClaimFinding {
    /// Creates a finding in words.
    pub(crate) fn from_verdict_text(ours: impl Into<String>, verdict: Verdict, reason: String) -> Self {
        Self { ours: ClaimValue::Text(ours.into()), interval: None, verdict, reason }
    }

    /// Creates a finding of a number with its interval.
    pub(crate) fn from_estimate(ours: &MetricEstimate, verdict: Verdict, reason: String) -> Self {
        let interval = Some((ClaimValue::Number(ours.low()), ClaimValue::Number(ours.high())));
        Self { ours: ClaimValue::Number(ours.mean), interval, verdict, reason }
    }
}

/// The reason why there is no finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FindingError {
    /// The results are missing; the text names the studies to run.
    NotRun(String),
    /// The results are undecided; the text explains it.
    NotComparable(String),
    /// There is no study for it; the text describes it.
    NoStudy(String),
}

/// Formats a number with three digits, or as an integer.
pub(crate) fn format_digits(value: f64) -> String {
    let short = if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2e}") };
    format_number(short.parse().unwrap_or(value) + 0.0)
}

/// Formats a share in per cent.
pub(crate) fn format_percent(share: f64) -> String {
    format!("{} %", format_digits(share * 100.0))
}

/// Formats as in `0.48 s (0.44 to 0.52 s)`; without a unit as shares in per cent.
pub(crate) fn format_with_interval(e: &MetricEstimate, unit: &str) -> String {
    let text = |v: f64| if unit.is_empty() { format_digits(v * 100.0) } else { format_digits(v) };
    let unit = if unit.is_empty() { "%" } else { unit };
    if e.is_known() {
        format!("{} {unit} ({} to {} {unit})", text(e.mean), text(e.low()), text(e.high()))
    } else {
        let replications = if e.n == 1 { "replication" } else { "replications" };
        format!("{} {unit} (no interval: {} {replications})", text(e.mean), e.n)
    }
}

/// Formats as in `0.25 (0.24 to 0.26)`: a number without a unit that is not a share.
pub(crate) fn format_estimate(e: &MetricEstimate) -> String {
    if !e.is_known() {
        return format_digits(e.mean);
    }
    format!("{} ({} to {})", format_digits(e.mean), format_digits(e.low()), format_digits(e.high()))
}

/// Formats with a word for the sign: `0.48 s (0.44 to 0.52 s) more`, and `less` instead of a minus.
pub(crate) fn format_with_comparative(e: &MetricEstimate, unit: &str, more: &str, less: &str) -> String {
    if e.mean < 0.0 {
        format!("{} {less}", format_with_interval(&e.scale_by(-1.0), unit))
    } else {
        format!("{} {more}", format_with_interval(e, unit))
    }
}

/// Lists the verdict on each part of a statement, for the end of a reason.
pub(crate) fn list_part_verdicts<'a>(parts: impl IntoIterator<Item = (&'a str, Verdict)>) -> String {
    let said: Vec<String> = parts.into_iter().map(|(name, v)| format!("{name}: {}", v.name())).collect();
    format!(" Part by part: {}.", said.join("; "))
}

/// Returns the deviation of our figure from the published one, with its verdict.
pub(crate) fn judge_deviation(ours: &MetricEstimate, published: f64, unit: &str) -> (Verdict, String) {
    let delay = unit == "s";
    let verdict = Verdict::compare_with_published(ours.mean, published, delay);
    let theirs = if unit.is_empty() {
        format_percent(published)
    } else {
        format!("{} {unit}", format_digits(published))
    };
    let off = ours.mean - published;
    let by_share = (off / published).abs();
    let side = if off < 0.0 { "below" } else { "above" };
    let mut text = if delay && off.abs() <= DELAY_S && by_share > REPRODUCED {
        format!("{} s {side} the published {theirs}, within the 0.05 s allowed", format_digits(off.abs()))
    } else {
        let rough: f64 = format!("{:.1e}", by_share * 100.0).parse().unwrap_or(by_share * 100.0);
        format!("{} % {side} the published {theirs}", format_number(rough))
    };
    let at = |v: f64| Verdict::compare_with_published(v, published, delay);
    // Test the interval's ends and the published value within it: an interval may contain values of a better verdict,
    // and have both ends in a worse one.
    let reaches = || {
        [ours.low(), published.clamp(ours.low(), ours.high()), ours.high()].iter().any(|v| at(*v) != verdict)
    };
    if ours.is_known() && reaches() {
        text.push_str("; the interval reaches beyond this verdict's limits");
    }
    (verdict, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_metric_estimate(mean: f64, half_width: f64, n: u32) -> MetricEstimate {
        usher_observe::MeanEstimate { mean, half_width, n }.into()
    }

    #[test]
    fn figures_have_their_limits() {
        use Verdict::{Differs, Partly, Reproduced};
        for (ours, published, delay, verdict) in [
            (0.55, 0.5, true, Reproduced),
            (0.449, 0.5, true, Partly),
            (0.65, 0.5, true, Partly),
            (0.651, 0.5, true, Differs),
            (0.15, 0.10, true, Reproduced),
            (0.15, 0.10, false, Differs),
            (0.16, 0.10, true, Differs),
            (1.375, 1.25, true, Reproduced),
            (15.3, 17.0, false, Reproduced),
            (25.0, 17.0, false, Differs),
            (-0.5, 0.5, false, Differs),
            (f64::NAN, 0.5, false, Differs),
        ] {
            assert_eq!(
                Verdict::compare_with_published(ours, published, delay),
                verdict,
                "{ours} against {published}"
            );
        }
    }

    #[test]
    fn limits_are_not_to_be_crossed() {
        use Verdict::{Differs, Partly, Reproduced};
        for (ours, verdict) in [
            (test_metric_estimate(5.58, 0.1, 5), Reproduced),
            (test_metric_estimate(6.0, 0.0, 5), Reproduced),
            (test_metric_estimate(3.0, 0.1, 5), Reproduced),
            (test_metric_estimate(5.98, 0.1, 5), Partly),
            (test_metric_estimate(6.05, 0.1, 5), Partly),
            (test_metric_estimate(6.2, 0.1, 5), Differs),
        ] {
            assert_eq!(Verdict::compare_with_upper_bound(&ours, 6.0), verdict, "{ours:?}");
        }
    }

    #[test]
    fn counts_and_parts_have_theirs() {
        use Verdict::{Differs, NotComparable, Partly, Reproduced};
        assert_eq!(
            [(9, 9), (6, 9), (5, 9), (0, 0)].map(|(held, of)| Verdict::from_held_point_count(held, of)),
            [Reproduced, Partly, Differs, NotComparable]
        );
        assert_eq!(Verdict::of_parts(&[Reproduced, Reproduced]), Reproduced);
        assert_eq!(Verdict::of_parts(&[Reproduced, Differs]), Partly);
        assert_eq!(Verdict::of_parts(&[Partly, Differs, Differs]), Differs);
        assert_eq!(Verdict::of_parts(&[Reproduced, NotComparable]), Partly);
        assert_eq!(Verdict::of_parts(&[Reproduced, NotComparable, NotComparable]), Differs);
        assert_eq!(Verdict::of_parts(&[NotComparable, NotComparable]), NotComparable);
        assert_eq!(Verdict::of_parts(&[]), NotComparable);
        assert_eq!(Verdict::worst_part_verdict(&[Reproduced, Partly]), Partly);
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(
            [0.123_45, 12_345.6, 0.0, -0.0, 100.0].map(format_digits),
            ["0.123", "12346", "0", "0", "100"]
        );
        let e = test_metric_estimate(0.48, 0.04, 5);
        assert_eq!(format_with_interval(&e, "s"), "0.48 s (0.44 to 0.52 s)");
        assert_eq!(format_with_interval(&e, ""), "48 % (44 to 52 %)");
        let less = test_metric_estimate(-0.48, 0.04, 5);
        assert_eq!(format_with_comparative(&less, "s", "more", "less"), "0.48 s (0.44 to 0.52 s) less");
        assert_eq!(format_with_comparative(&e, "s", "more", "less"), "0.48 s (0.44 to 0.52 s) more");
        let one = test_metric_estimate(0.48, f64::INFINITY, 1);
        assert_eq!(format_with_interval(&one, "s"), "0.48 s (no interval: 1 replication)");
    }

    #[test]
    fn a_deviation_says_how_far_and_which_way() {
        let e = |mean, half_width| test_metric_estimate(mean, half_width, 5);
        assert_eq!(
            judge_deviation(&e(0.6, 0.01), 0.5, "s"),
            (Verdict::Partly, "20 % above the published 0.5 s".into())
        );
        assert_eq!(
            judge_deviation(&e(0.14, 0.001), 0.1, "s"),
            (Verdict::Reproduced, "0.04 s above the published 0.1 s, within the 0.05 s allowed".into())
        );
        let (verdict, text) = judge_deviation(&e(2.0, 3.3), 1.25, "s");
        assert_eq!(verdict, Verdict::Differs);
        assert!(text.ends_with("; the interval reaches beyond this verdict's limits"), "{text}");
        assert!(!judge_deviation(&e(2.0, 0.1), 1.25, "s").1.contains("reaches beyond"));
        let (verdict, text) = judge_deviation(&e(0.36, 0.05), 0.375, "");
        assert_eq!(verdict, Verdict::Reproduced);
        assert_eq!(text, "4 % below the published 37.5 %; the interval reaches beyond this verdict's limits");
    }
}
