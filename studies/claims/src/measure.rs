//! The measures of claims: paired differences, ratios, the forms of curves.
//!
//! Replications of the same index share their random streams at every point of a study. Everything is therefore
//! computed for each replication first. The interval is over the replications that all points have: Student's, or that
//! of order statistics for a document with robust verdicts.

use crate::judge::{ROUNDING, Verdict};
use std::collections::BTreeMap;
use std::ops::Deref;
use usher_observe::stats;
use usher_observe::stats::robust::MedianEstimate;

/// The level of every interval.
pub(crate) const LEVEL: f64 = 0.95;
/// Tolerance for constant values around their mean, and for alike values.
pub(crate) const ALIKE: f64 = 0.05;
/// Minimum number of values for an interval of order statistics at [`LEVEL`].
pub(crate) const FEWEST: usize = 6;
/// Minimum number of values for any conclusion from their order. The range of two values contains the median with 50 %
/// confidence, and two values agree by chance every second time.
pub(crate) const LEAST_ROBUST: usize = 3;
/// Minimum number of values for an interval of a mean.
const LEAST: usize = 2;

/// A metric's values by replication.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct MetricValues {
    by_replication: BTreeMap<u32, f64>,
    /// True to sum up by the median; derived values inherit it.
    robust: bool,
}

impl MetricValues {
    /// Sets whether to sum up by the median.
    pub(crate) fn with_median_summary(self, robust: bool) -> Self {
        Self { robust, ..self }
    }

    /// Returns the minimum number of values for an interval.
    pub(crate) const fn minimum_sample_count(&self) -> usize {
        if self.robust { LEAST_ROBUST } else { LEAST }
    }
}

impl FromIterator<(u32, f64)> for MetricValues {
    fn from_iter<I: IntoIterator<Item = (u32, f64)>>(values: I) -> Self {
        Self { by_replication: values.into_iter().collect(), robust: false }
    }
}

impl Deref for MetricValues {
    type Target = BTreeMap<u32, f64>;

    fn deref(&self) -> &Self::Target {
        &self.by_replication
    }
}

/// The mean or median of values, with its uncertainty at [`LEVEL`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MetricEstimate {
    /// Their mean, or the median of robust values.
    pub(crate) mean: f64,
    /// Distance to the interval's lower end; infinite (unknown) with too few values.
    pub(crate) below: f64,
    /// Distance to the interval's upper end; infinite (unknown) with too few values.
    pub(crate) above: f64,
    /// Number of values.
    pub(crate) n: u32,
}

impl MetricEstimate {
    pub(crate) fn low(&self) -> f64 {
        self.mean - self.below
    }
    pub(crate) fn high(&self) -> f64 {
        self.mean + self.above
    }
    /// True if it has an interval.
    pub(crate) fn is_known(&self) -> bool {
        self.below.is_finite() && self.above.is_finite()
    }
    /// Converts it to another unit.
    pub(crate) fn scale_by(self, by: f64) -> Self {
        let (below, above) = if by < 0.0 { (self.above, self.below) } else { (self.below, self.above) };
        Self { mean: self.mean * by, below: below * by.abs(), above: above * by.abs(), ..self }
    }
    /// Returns the median of these values with the interval of its order statistics. With fewer than [`FEWEST`] values
    /// it goes from the smallest to the largest, and [`crate::results::VariantResults::few_replications_note`] states its
    /// confidence. With fewer than [`LEAST_ROBUST`] there is none.
    fn from_order_statistics(values: &[f64]) -> Self {
        let median = MedianEstimate::from_values(values, LEVEL);
        let (low, high) = median.interval().unwrap_or_else(|| match values.len() {
            n if n < LEAST_ROBUST => (f64::NEG_INFINITY, f64::INFINITY),
            _ => values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(*v), high.max(*v))),
        });
        let mean = median.median;
        Self { mean, below: mean - low, above: high - mean, n: median.n }
    }
}

impl From<usher_observe::MeanEstimate> for MetricEstimate {
    fn from(e: usher_observe::MeanEstimate) -> Self {
        Self { mean: e.mean, below: e.half_width, above: e.half_width, n: e.n }
    }
}

/// Returns the mean with its interval, or the median of robust values.
pub(crate) fn estimate_mean(values: &MetricValues) -> MetricEstimate {
    let list: Vec<f64> = values.values().copied().collect();
    if values.robust {
        MetricEstimate::from_order_statistics(&list)
    } else {
        usher_observe::MeanEstimate::from_values(&list, LEVEL).into()
    }
}

/// Returns the weighted sum of these values over their common replications.
pub(crate) fn weighted_sum(terms: &[(f64, &MetricValues)]) -> MetricValues {
    let Some(((_, first), rest)) = terms.split_first() else { return MetricValues::default() };
    let common = first.keys().filter(|r| rest.iter().all(|(_, v)| v.contains_key(r)));
    let sums: MetricValues = common.map(|&r| (r, terms.iter().map(|(w, v)| w * v[&r]).sum())).collect();
    sums.with_median_summary(terms.iter().any(|(_, v)| v.robust))
}

/// Returns `a - b` by replication.
pub(crate) fn subtract_values(a: &MetricValues, b: &MetricValues) -> MetricValues {
    weighted_sum(&[(1.0, a), (-1.0, b)])
}

/// Returns the gain of a metric from one place of an axis to another.
///
/// Places of different difficulty have different numbers of replications, and the common ones would be those of the
/// easier place. All replications of each therefore count, with Welch's interval, which is if anything too wide for
/// shared random streams. Robust values are paired: their replications do not stop early.
pub(crate) fn estimate_gain(from: &MetricValues, to: &MetricValues) -> MetricEstimate {
    if from.robust || from.keys().eq(to.keys()) {
        return estimate_mean(&subtract_values(to, from));
    }
    let moments = |values: &MetricValues| stats::SampleMoments::from_values(values.values().copied());
    stats::welch_difference(&moments(from), &moments(to), LEVEL).into()
}

/// Returns the ratio of means `a / b` over common replications, with its interval by the delta method.
pub(crate) fn estimate_ratio(a: &MetricValues, b: &MetricValues) -> MetricEstimate {
    let pairs = a.iter().filter_map(|(r, va)| b.get(r).map(|vb| (*va, *vb)));
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
    stats::ratio_of_means(&b, &a, LEVEL).into()
}

/// Returns `1 - a / b`: the saving of `a` compared with `b`.
pub(crate) fn estimate_saving(a: &MetricValues, b: &MetricValues) -> MetricEstimate {
    let left = estimate_ratio(a, b).scale_by(-1.0);
    MetricEstimate { mean: 1.0 + left.mean, ..left }
}

/// True if this number of independent trials can distinguish a probability from zero: its expected count exceeds 3.5 of
/// its standard errors. With fewer trials a share of zero is no evidence of a small probability.
pub(crate) fn can_detect_probability(chance: f64, trials: f64) -> bool {
    let expected = chance * trials;
    expected > ERRORS * (expected * (1.0 - chance)).sqrt()
}

/// The side of zero that an interval lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntervalSign {
    Below,
    Open,
    Above,
}

/// Returns the side of zero with the whole interval.
pub(crate) fn interval_sign(e: &MetricEstimate) -> IntervalSign {
    if e.low() > 0.0 {
        IntervalSign::Above
    } else if e.high() < 0.0 {
        IntervalSign::Below
    } else {
        IntervalSign::Open
    }
}

/// A metric over an axis, in ascending order.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct MetricCurve(pub(crate) Vec<(f64, MetricValues)>);

impl MetricCurve {
    pub(crate) fn values_at(&self, x: f64) -> Option<&MetricValues> {
        self.0.iter().find(|(at, _)| (at - x).abs() < 1e-9).map(|(_, v)| v)
    }

    /// Returns `self - other` at their common points.
    pub(crate) fn subtract_curve(&self, other: &Self) -> Self {
        let both = self.0.iter().filter_map(|(x, a)| Some((*x, subtract_values(a, other.values_at(*x)?))));
        Self(both.collect())
    }

    /// Returns the points that `other` has too.
    pub(crate) fn retain_shared_points(&self, other: &Self) -> Self {
        Self(self.0.iter().filter(|(x, _)| other.values_at(*x).is_some()).cloned().collect())
    }

    /// Returns the points from a place on.
    pub(crate) fn retain_points_from(mut self, place: f64) -> Self {
        self.0.retain(|(x, _)| *x >= place - 1e-9);
        self
    }

    /// Returns the points beyond a place.
    pub(crate) fn retain_points_beyond(mut self, place: f64) -> Self {
        self.0.retain(|(x, _)| *x > place + 1e-9);
        self
    }

    /// Returns the negated curve.
    pub(crate) fn negate(&self) -> Self {
        Self(self.0.iter().map(|(x, v)| (*x, weighted_sum(&[(-1.0, v)]))).collect())
    }

    /// Returns each point's estimate.
    pub(crate) fn estimates(&self) -> Vec<(f64, MetricEstimate)> {
        self.0.iter().map(|(x, v)| (*x, estimate_mean(v))).collect()
    }

    /// Returns the mean over the points, by replication.
    pub(crate) fn mean_over_points(&self) -> MetricValues {
        let share = 1.0 / self.0.len() as f64;
        weighted_sum(&self.0.iter().map(|(_, v)| (share, v)).collect::<Vec<_>>())
    }
}

/// The sides of zero of a curve's points.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct IntervalSignCounts {
    pub(crate) above: usize,
    pub(crate) open: usize,
    pub(crate) below: usize,
}

/// Counts the sides of these estimates.
pub(crate) fn count_interval_signs<'a>(
    estimates: impl IntoIterator<Item = &'a MetricEstimate>,
) -> IntervalSignCounts {
    let mut sides = IntervalSignCounts::default();
    for e in estimates {
        match interval_sign(e) {
            IntervalSign::Above => sides.above += 1,
            IntervalSign::Open => sides.open += 1,
            IntervalSign::Below => sides.below += 1,
        }
    }
    sides
}

/// The rise of a curve.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CurveRise {
    /// The sides of the steps from point to point.
    pub(crate) steps: IntervalSignCounts,
    /// From the first point to the last.
    pub(crate) total_gain: MetricEstimate,
}

/// Measures the steps of a curve and its total rise; `None` with fewer than two points.
pub(crate) fn measure_curve_rise(curve: &MetricCurve) -> Option<CurveRise> {
    let [(_, first), .., (_, last)] = &curve.0[..] else { return None };
    let steps: Vec<MetricEstimate> = curve.0.windows(2).map(|w| estimate_gain(&w[0].1, &w[1].1)).collect();
    Some(CurveRise { steps: count_interval_signs(&steps), total_gain: estimate_gain(first, last) })
}

impl CurveRise {
    /// Returns the verdict on a monotone rise: the whole rises and no step falls. Partly if the whole rises and at
    /// least two thirds of the sure steps do.
    pub(crate) fn verdict(&self) -> Verdict {
        let sure = self.steps.above + self.steps.below;
        match interval_sign(&self.total_gain) {
            IntervalSign::Above if self.steps.below == 0 => Verdict::Reproduced,
            IntervalSign::Above if 3 * self.steps.above >= 2 * sure => Verdict::Partly,
            _ => Verdict::Differs,
        }
    }
}

/// The bend of a curve.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CurveBend {
    /// The least-squares slope over the lower half of the points, for each unit of the axis.
    pub(crate) lower: MetricEstimate,
    /// The same over the upper half; with an odd number, the middle point belongs to both.
    pub(crate) upper: MetricEstimate,
    /// The upper less the lower.
    pub(crate) change: MetricEstimate,
}

/// Compares the slopes of a curve's halves; `None` with fewer than three points.
pub(crate) fn measure_curve_bend(curve: &MetricCurve) -> Option<CurveBend> {
    let n = curve.0.len();
    if n < 3 {
        return None;
    }
    let half = n.div_ceil(2);
    let (lower, upper) = (fit_slope(&curve.0[..half]), fit_slope(&curve.0[n - half..]));
    Some(CurveBend {
        change: estimate_mean(&subtract_values(&upper, &lower)),
        lower: estimate_mean(&lower),
        upper: estimate_mean(&upper),
    })
}

/// Returns the least-squares slope by replication.
fn fit_slope(points: &[(f64, MetricValues)]) -> MetricValues {
    let centre = points.iter().map(|(x, _)| x).sum::<f64>() / points.len() as f64;
    let spread: f64 = points.iter().map(|(x, _)| (x - centre) * (x - centre)).sum();
    weighted_sum(&points.iter().map(|(x, v)| ((x - centre) / spread, v)).collect::<Vec<_>>())
}

impl CurveBend {
    /// Returns the verdict on a convex rise: the upper half is surely steeper and rises. Partly if it is steeper in the
    /// mean.
    pub(crate) fn verdict(&self) -> Verdict {
        if self.upper.mean <= 0.0 || self.change.mean <= 0.0 {
            Verdict::Differs
        } else if interval_sign(&self.change) == IntervalSign::Above {
            Verdict::Reproduced
        } else {
            Verdict::Partly
        }
    }
}

/// The deviations of a curve's points from their mean.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CurveFlatness {
    /// The mean of the points.
    pub(crate) mean: f64,
    /// The largest relative deviation of a point's mean, with its place.
    pub(crate) worst: f64,
    pub(crate) worst_x: f64,
    /// Number of points within [`ALIKE`] of the mean.
    pub(crate) points_within: usize,
    pub(crate) point_count: usize,
}

/// Compares a curve with its own mean; `None` with fewer than two points.
pub(crate) fn measure_curve_flatness(curve: &MetricCurve) -> Option<CurveFlatness> {
    let means: Vec<(f64, f64)> = curve.estimates().iter().map(|(x, e)| (*x, e.mean)).collect();
    if means.len() < 2 {
        return None;
    }
    let mean = means.iter().map(|(_, m)| m).sum::<f64>() / means.len() as f64;
    let mut level =
        CurveFlatness { mean, worst: 0.0, worst_x: means[0].0, points_within: 0, point_count: means.len() };
    for (x, m) in means {
        let off = (m - mean).abs() / mean.abs();
        level.points_within += usize::from(off <= ALIKE);
        if off > level.worst {
            (level.worst, level.worst_x) = (off, x);
        }
    }
    Some(level)
}

impl CurveFlatness {
    /// Returns the verdict on a constant curve: every point within 5 % of the mean; partly if two thirds are.
    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::from_held_point_count(self.points_within, self.point_count)
    }
}

/// Tolerance of a share around a formula's value, in standard errors.
pub(crate) const ERRORS: f64 = 3.5;

/// True if a share of this number of independent trials agrees with a formula within its statistical error.
pub(crate) fn agrees_with_formula(share: f64, formula: f64, trials: f64) -> bool {
    (share - formula).abs() <= ERRORS * (formula * (1.0 - formula) / trials).sqrt() + ROUNDING
}

/// The peak of a curve.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CurvePeak {
    /// The place of its highest point.
    pub(crate) peak_x: f64,
    /// The neighbours of that place; at an end, the end itself.
    pub(crate) between: (f64, f64),
    /// The highest point less the first.
    pub(crate) rise: MetricEstimate,
    /// The highest point less the last.
    pub(crate) fall: MetricEstimate,
}

/// Returns the highest point of a curve, with the rise to it and the fall from it; `None` without points.
pub(crate) fn find_curve_peak(curve: &MetricCurve) -> Option<CurvePeak> {
    let means = curve.estimates();
    let (i, (at, _)) = means.iter().enumerate().max_by(|a, b| a.1.1.mean.total_cmp(&b.1.1.mean))?;
    let last = means.len() - 1;
    let less = |j: usize| estimate_mean(&subtract_values(&curve.0[i].1, &curve.0[j].1));
    let between = (means[i.saturating_sub(1)].0, means[(i + 1).min(last)].0);
    Some(CurvePeak { peak_x: *at, between, rise: less(0), fall: less(last) })
}

impl CurvePeak {
    /// Returns the verdict on a rise and a fall: surely both; partly if both in the mean.
    pub(crate) fn verdict(&self) -> Verdict {
        let [rise, fall] = [&self.rise, &self.fall].map(|e| (interval_sign(e), e.mean > 0.0));
        match (rise, fall) {
            ((IntervalSign::Above, _), (IntervalSign::Above, _)) => Verdict::Reproduced,
            ((_, true), (_, true)) => Verdict::Partly,
            _ => Verdict::Differs,
        }
    }

    /// True if the peak is at the document's place, within the resolution of the axis.
    pub(crate) fn is_near(&self, place: f64) -> bool {
        (self.between.0..=self.between.1).contains(&place)
    }
}

/// The comparison of two delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DelayComparison {
    /// Within [`ALIKE`] in the mean, for any interval.
    Alike,
    /// Shorter by more than that, and surely shorter.
    Faster,
    /// Longer by more than that, and surely longer.
    Slower,
    /// Different by more than that in the mean, with an interval that contains zero.
    Unsure,
}

/// Compares two delays by their relative difference.
pub(crate) fn compare_delays(change: &MetricEstimate) -> DelayComparison {
    if change.mean.abs() <= ALIKE + ROUNDING {
        return DelayComparison::Alike;
    }
    match interval_sign(change) {
        IntervalSign::Below => DelayComparison::Faster,
        IntervalSign::Above => DelayComparison::Slower,
        IntervalSign::Open => DelayComparison::Unsure,
    }
}

/// The point up to which two delays are alike, and the order beyond it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum DelayCrossover {
    /// Alike up to one point, and faster from the next on.
    Between { before: f64, after: f64 },
    /// Faster from the first point on.
    First(f64),
    /// Alike everywhere, or not permanently faster.
    Nowhere,
    /// Undecided only because some points are unsure.
    Unsure,
}

/// Finds the crossover in a curve of relative differences between two delays.
pub(crate) fn find_crossover(changes: &[(f64, MetricEstimate)]) -> DelayCrossover {
    let alike = changes.iter().take_while(|(_, e)| compare_delays(e) == DelayComparison::Alike).count();
    let rest = &changes[alike..];
    let Some((after, _)) = rest.first().copied() else { return DelayCrossover::Nowhere };
    if rest.iter().any(|(_, e)| matches!(compare_delays(e), DelayComparison::Alike | DelayComparison::Slower))
    {
        DelayCrossover::Nowhere
    } else if rest.iter().any(|(_, e)| compare_delays(e) == DelayComparison::Unsure) {
        DelayCrossover::Unsure
    } else {
        alike
            .checked_sub(1)
            .map_or(DelayCrossover::First(after), |i| DelayCrossover::Between { before: changes[i].0, after })
    }
}

/// Returns the last upward zero crossing of the mean difference, by linear interpolation between the points around it.
pub(crate) fn find_zero_crossing(difference: &MetricCurve) -> Option<f64> {
    let estimates = difference.estimates();
    estimates.windows(2).rev().find_map(|w| {
        let ((x0, a), (x1, b)) = (w[0], w[1]);
        (a.mean <= 0.0 && b.mean > 0.0).then(|| x0 + (x1 - x0) * -a.mean / (b.mean - a.mean))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_values(list: &[f64]) -> MetricValues {
        (0..).zip(list.iter().copied()).collect()
    }

    fn test_curve(points: &[(f64, &[f64])]) -> MetricCurve {
        MetricCurve(points.iter().map(|(x, v)| (*x, test_values(v))).collect())
    }

    fn assert_close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    /// Differences 0.4, 0.6, 0.5: mean 0.5, deviation 0.1, t(2) = 4.30265, so ± 4.30265 · 0.1 / √3.
    #[test]
    fn a_difference_is_of_common_replications() {
        let mut a = test_values(&[1.4, 5.6, 9.5]);
        a.by_replication.insert(7, 100.0);
        let d = estimate_mean(&subtract_values(&a, &test_values(&[1.0, 5.0, 9.0, 20.0])));
        assert_close(d.mean, 0.5);
        assert!((d.above - 0.248_414).abs() < 1e-5, "{}", d.above);
        assert_eq!((d.n, interval_sign(&d)), (3, IntervalSign::Above));
    }

    /// Ratio of means 6 / 10 with residuals a - 0.6 b = 0.4, 0, -0.4: deviation 0.4, t(2) as above, so
    /// ± 4.30265 · 0.4 / √3 / 10.
    #[test]
    fn a_saving_is_of_means_with_the_delta_methods_interval() {
        let s = estimate_saving(&test_values(&[5.2, 6.0, 6.8]), &test_values(&[8.0, 10.0, 12.0]));
        assert_close(s.mean, 0.4);
        assert!((s.below - 0.099_365_5).abs() < 1e-6, "{}", s.below);
    }

    /// 1 and 3 against 4, 6, 8 and 10: variances 2 and 20/3, a standard error of the root of 1 + 5/3, and
    /// (8/3)² / (1 + 25/27) = 3.692 degrees of freedom, whose quantile is 2.872.
    #[test]
    fn a_gain_between_unequal_sample_sizes_uses_all_replications() {
        let few = test_values(&[1.0, 3.0]);
        let gained = estimate_gain(&few, &test_values(&[4.0, 6.0, 8.0, 10.0]));
        assert_close(gained.mean, 5.0);
        assert!((gained.below - 2.872 * 1.632_993).abs() < 0.01, "{}", gained.below);
        // Equal numbers are paired: 3 and 3, without any spread.
        assert_close(estimate_gain(&few, &test_values(&[4.0, 6.0])).above, 0.0);
        // The first three values happen to lie far apart: alone they show nothing.
        let many: Vec<f64> = [1.0, 2.9, 1.2].into_iter().chain([2.0, 2.1, 1.9].repeat(6)).collect();
        let rising = test_curve(&[(0.0, &[1.0, 1.0, 1.1]), (1.0, &many)]);
        assert_eq!(measure_curve_rise(&rising).unwrap().verdict(), Verdict::Reproduced);
    }

    #[test]
    fn a_rise_may_pause_but_not_fall() {
        let rising = test_curve(&[(0.0, &[1.0, 1.1]), (1.0, &[1.1, 1.0]), (2.0, &[2.0, 2.1])]);
        let seen = measure_curve_rise(&rising).unwrap();
        assert_eq!(seen.steps, IntervalSignCounts { above: 0, open: 2, below: 0 });
        assert_close(seen.total_gain.mean, 1.0);
        assert_eq!(seen.verdict(), Verdict::Reproduced);
        let dip =
            test_curve(&[(0.0, &[1.0, 1.1]), (1.0, &[2.0, 2.1]), (2.0, &[3.0, 3.1]), (3.0, &[2.5, 2.6])]);
        let seen = measure_curve_rise(&dip).unwrap();
        assert_eq!(seen.steps, IntervalSignCounts { above: 2, open: 0, below: 1 });
        assert_eq!(seen.verdict(), Verdict::Partly);
        let falling = test_curve(&[(0.0, &[2.0, 2.1]), (1.0, &[1.0, 1.1])]);
        assert_eq!(measure_curve_rise(&falling).unwrap().verdict(), Verdict::Differs);
        assert_eq!(measure_curve_rise(&test_curve(&[(0.0, &[1.0])])), None);
    }

    /// x² at 0..4: slopes 2 over 0, 1, 2 (line through 0, 1, 4) and 6 over 2, 3, 4.
    #[test]
    fn a_bend_compares_the_halves() {
        let parabola = test_curve(&[
            (0.0, &[0.0, 0.1]),
            (1.0, &[1.0, 1.1]),
            (2.0, &[4.0, 4.1]),
            (3.0, &[9.0, 9.1]),
            (4.0, &[16.0, 16.1]),
        ]);
        let seen = measure_curve_bend(&parabola).unwrap();
        assert_close(seen.lower.mean, 2.0);
        assert_close(seen.upper.mean, 6.0);
        assert_close(seen.change.mean, 4.0);
        assert_eq!(seen.verdict(), Verdict::Reproduced);
        let root = test_curve(&[(0.0, &[0.0, 0.1]), (1.0, &[1.0, 1.1]), (4.0, &[2.0, 2.1])]);
        assert_eq!(measure_curve_bend(&root).unwrap().verdict(), Verdict::Differs);
        let noisy = test_curve(&[(0.0, &[0.0, 1.0]), (1.0, &[1.0, 1.1]), (2.0, &[3.0, 2.0])]);
        assert_eq!(measure_curve_bend(&noisy).unwrap().verdict(), Verdict::Partly);
        assert_eq!(measure_curve_bend(&test_curve(&[(0.0, &[0.0]), (1.0, &[1.0])])), None);
    }

    /// Means 96, 100, 104: 4 % off at most. With 110 in place of 104 the mean is 102, which 96 is 5.88 % off
    /// and 110 7.84 %.
    #[test]
    fn a_level_is_within_five_per_cent() {
        let flat =
            measure_curve_flatness(&test_curve(&[(1.0, &[96.0]), (2.0, &[100.0]), (3.0, &[104.0])])).unwrap();
        assert_close(flat.worst, 0.04);
        assert_eq!((flat.worst_x, flat.verdict()), (1.0, Verdict::Reproduced));
        let bent =
            measure_curve_flatness(&test_curve(&[(1.0, &[96.0]), (2.0, &[100.0]), (3.0, &[110.0])])).unwrap();
        assert_close(bent.worst, 8.0 / 102.0);
        assert_eq!((bent.worst_x, bent.points_within, bent.verdict()), (3.0, 1, Verdict::Differs));
    }

    /// The same means with wide and with narrow intervals: alike stays alike.
    #[test]
    fn a_crossover_does_not_move_with_the_number_of_replications() {
        let with = |half_width: f64, means: &[f64]| -> Vec<(f64, MetricEstimate)> {
            let e = |mean: &f64| MetricEstimate { mean: *mean, below: half_width, above: half_width, n: 5 };
            [1.0, 9.0, 17.0, 25.0].into_iter().zip(means.iter().map(e)).collect()
        };
        let means = [0.01, -0.03, -0.05, -0.2];
        for half_width in [0.1, 0.001] {
            let found = find_crossover(&with(half_width, &means));
            assert_eq!(found, DelayCrossover::Between { before: 17.0, after: 25.0 });
        }
        assert_eq!(find_crossover(&with(0.01, &[-0.06, -0.07, -0.2, -0.3])), DelayCrossover::First(1.0));
        assert_eq!(find_crossover(&with(0.01, &[0.0, -0.2, 0.0, -0.2])), DelayCrossover::Nowhere);
        assert_eq!(find_crossover(&with(0.01, &[0.0, -0.2, -0.2, 0.06])), DelayCrossover::Nowhere);
        assert_eq!(find_crossover(&with(0.001, &[-0.04, -0.03, -0.02, -0.01])), DelayCrossover::Nowhere);
        assert_eq!(find_crossover(&with(0.1, &[0.0, 0.0, -0.08, -0.3])), DelayCrossover::Unsure);
        assert_eq!(find_crossover(&[]), DelayCrossover::Nowhere);
    }

    #[test]
    fn a_turn_is_as_fine_as_its_axis() {
        let hill =
            test_curve(&[(0.0, &[2.0, 2.1]), (10.0, &[3.0, 3.1]), (20.0, &[4.0, 4.1]), (40.0, &[1.0, 1.1])]);
        let seen = find_curve_peak(&hill).unwrap();
        assert_eq!((seen.peak_x, seen.between, seen.verdict()), (20.0, (10.0, 40.0), Verdict::Reproduced));
        assert!(seen.is_near(10.0) && seen.is_near(35.0) && !seen.is_near(5.0));
        let rising = test_curve(&[(0.0, &[2.0, 2.1]), (10.0, &[3.0, 3.1])]);
        let seen = find_curve_peak(&rising).unwrap();
        assert_eq!((seen.between, seen.verdict()), ((0.0, 10.0), Verdict::Differs));
        assert_eq!(find_curve_peak(&hill.negate()).unwrap().peak_x, 40.0);
        assert_eq!(
            (hill.clone().retain_points_from(10.0).0.len(), hill.retain_points_beyond(10.0).0.len()),
            (3, 2)
        );
        assert_eq!(find_curve_peak(&MetricCurve::default()), None);
    }

    /// A share of 0.5 of 10 000 has a standard error of 0.005.
    #[test]
    fn a_share_agrees_within_its_chance() {
        assert!(agrees_with_formula(0.517, 0.5, 10_000.0) && !agrees_with_formula(0.518, 0.5, 10_000.0));
        assert!(agrees_with_formula(1.0, 1.0, 10.0) && !agrees_with_formula(0.9999, 1.0, 10.0));
    }

    /// 12.25 is 3.5 times its own root: fewer expected events cannot be distinguished from none.
    #[test]
    fn a_small_chance_takes_many_trials_to_be_told_from_none() {
        assert!(can_detect_probability(1e-3, 12_300.0) && !can_detect_probability(1e-3, 12_200.0));
        assert!(
            !can_detect_probability(0.5, 12.0)
                && can_detect_probability(0.5, 13.0)
                && !can_detect_probability(0.0, 1e9)
        );
    }

    /// Two values agree by chance every second time, three every fourth.
    #[test]
    fn two_replications_decide_nothing_by_their_order() {
        let of = |list: &[f64]| estimate_mean(&test_values(list).with_median_summary(true));
        assert!(!of(&[1.0, 1.1]).is_known() && of(&[1.0, 1.1, 1.2]).is_known());
        assert_eq!(
            (interval_sign(&of(&[1.0, 1.1])), interval_sign(&of(&[1.0, 1.1, 1.2]))),
            (IntervalSign::Open, IntervalSign::Above)
        );
        assert!(estimate_mean(&test_values(&[1.0, 1.1])).is_known(), "Student's interval widens by itself");
    }

    /// From -1 at 2 to 3 at 6: through zero at 3.
    #[test]
    fn a_crossing_is_on_the_line_between_two_points() {
        let difference = test_curve(&[(0.0, &[-2.0]), (2.0, &[-1.0]), (6.0, &[3.0])]);
        assert_close(find_zero_crossing(&difference).unwrap(), 3.0);
        assert_eq!(find_zero_crossing(&test_curve(&[(0.0, &[1.0]), (2.0, &[2.0])])), None);
    }
}
