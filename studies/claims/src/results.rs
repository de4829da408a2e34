//! The rows of runs as claims read them.

use crate::data::Claim;
use crate::judge::FindingError;
use crate::measure::{FEWEST, LEAST_ROBUST, LEVEL, MetricCurve, MetricValues};
use crate::setup::ClaimStudySetup;
use std::collections::BTreeMap;
use usher_observe::summary::{MetricSummary, summarise_rows};
use usher_observe::{GridPoint, ResultRow};
use usher_scenario::{VARIANT, metrics};

/// The variant of the documented defaults; also that of rows without the axis.
pub const DEFAULT_VARIANT: &str = usher_scenario::DEFAULT;

/// The results of one study or of several.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RunResults {
    summaries: Vec<MetricSummary>,
    setups: BTreeMap<String, ClaimStudySetup>,
    cautions: BTreeMap<String, Vec<String>>,
    excluded_studies: BTreeMap<String, String>,
}

impl RunResults {
    /// Collects rows in any order.
    pub fn new(rows: &[ResultRow]) -> Self {
        Self { summaries: summarise_rows(rows, LEVEL), ..Self::default() }
    }

    /// Sets the configuration of a study.
    pub fn set_up(&mut self, study: &str, setup: ClaimStudySetup) {
        self.setups.insert(study.to_owned(), setup);
    }

    /// Excludes a study that was run with changed settings from verdicts at the default variant, with a sentence
    /// ("aaa-hol was run with workload.arrivals.rate=9 /s.").
    pub fn exclude_study(&mut self, study: &str, sentence: &str) {
        self.excluded_studies.insert(study.to_owned(), sentence.to_owned());
    }

    /// Adds a sentence to the reasons of a study's claims ("The results of aaa-hol are partial.").
    pub fn add_caution(&mut self, study: &str, sentence: &str) {
        self.cautions.entry(study.to_owned()).or_default().push(sentence.to_owned());
    }

    /// True if there are rows of this study.
    pub fn has_study(&self, study: &str) -> bool {
        self.summaries.iter().any(|s| &*s.study == study)
    }

    /// Returns the variants in the rows, in order of first appearance, without the default.
    pub fn variants(&self) -> Vec<String> {
        let mut variants: Vec<String> = Vec::new();
        for name in self.summaries.iter().filter_map(|s| s.point.get(VARIANT)) {
            if name != DEFAULT_VARIANT && !variants.iter().any(|v| v == name) {
                variants.push(name.to_owned());
            }
        }
        variants
    }

    /// Returns the sentences to add for a claim's studies.
    pub(crate) fn claim_cautions(&self, claim: &Claim) -> Vec<&str> {
        let of = |study: &String| self.cautions.get(study).into_iter().flatten();
        claim.studies.iter().flat_map(of).map(String::as_str).collect()
    }
}

/// Results at one variant.
pub(crate) struct VariantResults<'a> {
    results: &'a RunResults,
    variant: &'a str,
    /// True to sum up values by their median.
    robust: bool,
}

/// Selects the points of a curve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurveSelector<'a> {
    pub(crate) study: &'a str,
    pub(crate) metric: &'a str,
    /// The axis of the curve; its values begin with a number.
    pub(crate) x: &'a str,
    /// Axes with their required values.
    pub(crate) fixed_axes: &'a [(&'a str, &'a str)],
}

impl CurveSelector<'_> {
    /// Formats the fixed axes: `protocol = Diameter/TCP, nodes = 9`.
    fn describe_axes(&self) -> String {
        self.fixed_axes.iter().map(|(axis, value)| format!("{axis} = {value}")).collect::<Vec<_>>().join(", ")
    }
}

/// Values by metric.
pub(crate) type ValuesByMetric = BTreeMap<String, MetricValues>;

/// An axis that stays at its default if a study has it.
const FIXED_AXES: [(&str, &str); 1] = [("method", "eap-md5")];

impl<'a> VariantResults<'a> {
    pub(crate) fn new(results: &'a RunResults, variant: &'a str, robust: bool) -> Self {
        Self { results, variant, robust }
    }

    fn summary_values(&self, summary: &MetricSummary) -> MetricValues {
        summary.values.iter().copied().collect::<MetricValues>().with_median_summary(self.robust)
    }

    /// Returns a sentence if intervals of order statistics have too few replications. The interval from the smallest to
    /// the largest of n values contains the median unless all values lie on one side of it. With two values there is
    /// none.
    pub(crate) fn few_replications_note(&self, claim: &Claim) -> Option<String> {
        let own = |s: &&MetricSummary| {
            claim.studies.iter().any(|name| **name == *s.study) && self.is_point_of_variant(&s.point)
        };
        let most = self.results.summaries.iter().filter(own).map(|s| s.values.len()).max()?;
        (self.robust && (2..FEWEST).contains(&most)).then(|| {
            if most < LEAST_ROBUST {
                return format!(
                    "{most} replications give no interval of a median, so tests that need one are undecided."
                );
            }
            let confidence = 100.0 * (1.0 - 1.0 / f64::from(1_u32 << (most - 1)));
            format!(
                "All {most} replications must agree, which gives a median {} % confidence; 95 % needs \
                 {FEWEST}.",
                crate::judge::format_digits(confidence)
            )
        })
    }

    fn is_point_of_variant(&self, point: &GridPoint) -> bool {
        point.get(VARIANT).unwrap_or(DEFAULT_VARIANT) == self.variant
    }

    /// True if there are rows of this study at this variant.
    pub(crate) fn has_study(&self, study: &str) -> bool {
        self.results.summaries.iter().any(|s| &*s.study == study && self.is_point_of_variant(&s.point))
    }

    /// Returns the configuration of a study.
    pub(crate) fn study_setup(&self, study: &str) -> Option<&'a ClaimStudySetup> {
        self.results.setups.get(study)
    }

    /// Returns the values of an axis in a study's rows, ascending by their leading number.
    pub(crate) fn axis_values(&self, study: &str, axis: &str) -> Vec<&'a str> {
        let own = self
            .results
            .summaries
            .iter()
            .filter(|s| &*s.study == study && self.is_point_of_variant(&s.point));
        let mut values: Vec<&str> = Vec::new();
        for value in own.filter_map(|s| s.point.get(axis)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values.sort_by(|a, b| {
            leading_number(a).unwrap_or(f64::MAX).total_cmp(&leading_number(b).unwrap_or(f64::MAX))
        });
        values
    }

    /// Returns the measurements of each choice on some axes (`0.1 s, 4`), for each combination of the other axes'
    /// values, in the order of the rows.
    pub(crate) fn measured_choices(
        &self,
        study: &str,
        axes: &[&str],
    ) -> Vec<(GridPoint, Vec<(String, ValuesByMetric)>)> {
        let own = self
            .results
            .summaries
            .iter()
            .filter(|s| &*s.study == study && self.is_point_of_variant(&s.point));
        let mut places: Vec<(GridPoint, Vec<(String, ValuesByMetric)>)> = Vec::new();
        for summary in own {
            let names: Option<Vec<&str>> = axes.iter().map(|axis| summary.point.get(axis)).collect();
            let Some(name) = names.map(|names| names.join(", ")) else { continue };
            let at = axes.iter().fold(summary.point.clone(), |point, axis| point.without_axis(axis));
            let place = places.iter().position(|(known, _)| *known == at).unwrap_or_else(|| {
                places.push((at, Vec::new()));
                places.len() - 1
            });
            let choices = &mut places[place].1;
            let choice = choices.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                choices.push((name, ValuesByMetric::new()));
                choices.len() - 1
            });
            choices[choice].1.insert(summary.metric.to_string(), self.summary_values(summary));
        }
        places
    }

    /// Rejects a study that was run with changed settings, because verdicts refer to the defaults. Other variants have
    /// other settings anyway.
    pub(crate) fn require_default_settings(&self, study: &str) -> Result<(), FindingError> {
        match self.results.excluded_studies.get(study) {
            Some(sentence) if self.variant == DEFAULT_VARIANT => {
                Err(FindingError::NotComparable(sentence.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Returns the summaries of these points, of all metrics, with their places.
    fn matching_summaries<'c>(
        &'c self,
        choice: CurveSelector<'c>,
    ) -> impl Iterator<Item = (f64, &'c MetricSummary)> {
        let CurveSelector { study, x, fixed_axes: at, .. } = choice;
        let own = move |s: &&MetricSummary| {
            let held = FIXED_AXES.iter().all(|(a, v)| s.point.get(a).is_none_or(|text| text == *v));
            let chosen = at.iter().all(|(axis, value)| s.point.get(axis) == Some(*value));
            &*s.study == study && self.is_point_of_variant(&s.point) && held && chosen
        };
        let place = move |s: &'c MetricSummary| Some((s.point.get(x).and_then(leading_number)?, s));
        self.results.summaries.iter().filter(own).filter_map(place)
    }

    /// Returns the curve of these points. If several points have the same place (a study with a further axis), it uses
    /// the first in the order of the rows: an axis's first value is its default.
    pub(crate) fn curve(&self, choice: CurveSelector<'_>) -> Result<MetricCurve, FindingError> {
        let CurveSelector { study, metric, .. } = choice;
        debug_assert!(metrics::is_declared(metric), "{metric} is no metric");
        if !self.has_study(study) {
            return Err(self.missing_study(study));
        }
        self.require_default_settings(study)?;
        let mut points: Vec<(f64, MetricValues)> = Vec::new();
        for (place, summary) in self.matching_summaries(choice).filter(|(_, s)| &*s.metric == metric) {
            if points.iter().all(|(known, _)| *known != place) {
                points.push((place, self.summary_values(summary)));
            }
        }
        if points.is_empty() {
            let whole = format!(
                "{study} has no {metric} at {}{}",
                choice.describe_axes(),
                self.format_variant_suffix()
            );
            return Err(if self.matching_summaries(choice).next().is_some() {
                FindingError::NotComparable(format!("{whole}: nothing completed there."))
            } else {
                FindingError::NotRun(format!("{whole}: run the complete study (usher study run {study})."))
            });
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(MetricCurve(points))
    }

    /// Returns the values at one place of a curve.
    pub(crate) fn values_at(
        &self,
        choice: CurveSelector<'_>,
        place: f64,
    ) -> Result<MetricValues, FindingError> {
        let CurveSelector { study, metric, x, fixed_axes: at } = choice;
        let curve = self.curve(choice)?;
        if let Some(values) = curve.values_at(place) {
            return Ok(values.clone());
        }
        if self.matching_summaries(choice).any(|(known, _)| known == place) {
            return Err(FindingError::NotComparable(format!(
                "{study} has no {metric} at {x} {place} with {}: nothing completed there.",
                at.iter().map(|(_, value)| *value).collect::<Vec<_>>().join(", ")
            )));
        }
        let known: Vec<String> = curve.0.iter().map(|(x, _)| usher_observe::row::format_number(*x)).collect();
        Err(FindingError::NotRun(format!(
            "{study} has no point at {x} {place}, only at {}: run it without --quick, or add the point with --set.",
            known.join(", ")
        )))
    }

    /// Returns the error for a study without results.
    pub(crate) fn missing_study(&self, study: &str) -> FindingError {
        FindingError::NotRun(format!(
            "{study}{} was not run: usher study run {study}.",
            self.format_variant_suffix()
        ))
    }

    fn format_variant_suffix(&self) -> String {
        if self.variant == DEFAULT_VARIANT { String::new() } else { format!(" (variant {})", self.variant) }
    }
}

/// Returns the leading number of a value: 5 of `5 %`.
pub(crate) fn leading_number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.trim_end_matches('%').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_with_their_number() {
        assert_eq!(
            ["5 %", "5%", "37", "0.5 s", "with Nagle", ""].map(leading_number),
            [Some(5.0), Some(5.0), Some(37.0), Some(0.5), None, None]
        );
    }
}
