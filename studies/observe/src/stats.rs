//! Means, intervals, quantiles, differences and the stopping rule for replications.
//!
//! Functions use values in the given order (replication order), so results do not depend on which core finished first.
//! Logarithms and powers come from `libm`, so results do not depend on the machine.

mod line;
pub mod robust;
pub mod student;

pub use line::RegressionLine;

/// Running mean and variance of values in replication order. Welford's recurrence avoids cancellation, and the mean of
/// equal values is exactly that value.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SampleMoments {
    n: u32,
    mean: f64,
    squares: f64,
}

impl SampleMoments {
    /// Returns the moments of these values.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        values.into_iter().for_each(|v| moments.push(v));
        moments
    }

    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.n += 1;
        let delta = value - self.mean;
        self.mean += delta / f64::from(self.n);
        self.squares += delta * (value - self.mean);
    }

    /// Returns the number of values.
    pub const fn count(&self) -> u32 {
        self.n
    }

    /// Returns the arithmetic mean; NaN without values.
    pub const fn mean(&self) -> f64 {
        if self.n == 0 { f64::NAN } else { self.mean }
    }

    /// Returns the sample variance (divisor n - 1); infinite (unknown) with fewer than two values.
    pub fn variance(&self) -> f64 {
        if self.n < 2 { f64::INFINITY } else { self.squares / f64::from(self.n - 1) }
    }

    /// Returns the mean with its Student-t confidence interval at this level (0.95: 95 %).
    pub fn estimate(&self, level: f64) -> MeanEstimate {
        let half_width = match self.n {
            0 | 1 => f64::INFINITY,
            n => half_width(level, f64::from(n - 1), self.standard_error()),
        };
        MeanEstimate { mean: self.mean(), half_width, n: self.n }
    }

    /// True if the interval's half-width at this level is at most `half_width`. Equals a comparison with
    /// [`SampleMoments::estimate`] at a fraction of the cost.
    pub fn is_within(&self, half_width: f64, level: f64) -> bool {
        if self.n < 2 {
            return false;
        }
        let error = self.standard_error();
        error == 0.0 || student::two_sided_p_value(half_width / error, f64::from(self.n - 1)) <= 1.0 - level
    }

    fn standard_error(&self) -> f64 {
        libm::sqrt(self.variance() / f64::from(self.n))
    }
}

/// Returns the half-width for a standard error. An error of zero gives zero for any degrees of freedom.
fn half_width(level: f64, freedom: f64, error: f64) -> f64 {
    if error == 0.0 { 0.0 } else { student::t_quantile(level, freedom) * error }
}

/// A mean with its uncertainty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeanEstimate {
    /// The sample's mean.
    pub mean: f64,
    /// Half the width of its confidence interval; infinite (unknown) with fewer than two values.
    pub half_width: f64,
    /// Number of values or pairs.
    pub n: u32,
}

impl MeanEstimate {
    /// Returns the mean of these values in replication order, with its interval at this level.
    pub fn from_values(values: &[f64], level: f64) -> Self {
        SampleMoments::from_values(values.iter().copied()).estimate(level)
    }
    /// Returns the interval's lower end.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }
    /// Returns the interval's upper end.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }
    /// True if the interval contains this value.
    pub fn contains(&self, value: f64) -> bool {
        self.low() <= value && value <= self.high()
    }
}

/// Returns the quantile `p` of an ascending sample, by linear interpolation between order statistics. This is type 7 of
/// Hyndman and Fan (1996), the default of R and NumPy. NaN without values; `p` is clamped to 0..=1.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = libm::floor(at) as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    low + (at - below as f64) * (high - low)
}

/// Sorts the sample and returns these quantiles, as [`quantile`] does.
pub fn sample_quantiles<const N: usize>(sample: &mut [f64], ps: [f64; N]) -> [f64; N] {
    sample.sort_unstable_by(f64::total_cmp);
    ps.map(|p| quantile(sample, p))
}

/// Returns the mean difference `b - a` of two equally long samples paired by index, with its interval.
///
/// # Panics
/// If the lengths differ.
pub fn paired_difference(a: &[f64], b: &[f64], level: f64) -> MeanEstimate {
    assert_eq!(a.len(), b.len(), "paired samples have equal lengths");
    SampleMoments::from_values(a.iter().zip(b).map(|(a, b)| b - a)).estimate(level)
}

/// Returns the difference of means `b - a` of two independent samples, with Welch's interval (unequal variances,
/// Satterthwaite's degrees of freedom). `n` is the smaller sample's size.
pub fn welch_difference(a: &SampleMoments, b: &SampleMoments, level: f64) -> MeanEstimate {
    let (va, vb) = (a.variance() / f64::from(a.count()), b.variance() / f64::from(b.count()));
    let (mean, n) = (b.mean() - a.mean(), a.count().min(b.count()));
    if n < 2 {
        return MeanEstimate { mean, half_width: f64::INFINITY, n };
    }
    let freedom =
        (va + vb) * (va + vb) / (va * va / f64::from(a.count() - 1) + vb * vb / f64::from(b.count() - 1));
    let error = libm::sqrt(va + vb);
    MeanEstimate { mean, half_width: half_width(level, freedom, error), n }
}

/// Returns the ratio of means `b / a` of two equally long samples paired by index, with the delta method's interval. It
/// is accurate if `a`'s own interval is well away from zero.
///
/// # Panics
/// If the lengths differ.
pub fn ratio_of_means(a: &[f64], b: &[f64], level: f64) -> MeanEstimate {
    assert_eq!(a.len(), b.len(), "paired samples have equal lengths");
    let (below, above) =
        (SampleMoments::from_values(a.iter().copied()), SampleMoments::from_values(b.iter().copied()));
    let ratio = above.mean() / below.mean();
    let residuals = SampleMoments::from_values(a.iter().zip(b).map(|(a, b)| b - ratio * a)).estimate(level);
    MeanEstimate { mean: ratio, half_width: residuals.half_width / below.mean().abs(), n: residuals.n }
}

/// The stopping rule of a point's replications. It stops if each watched metric's half-width is at most `share` of its
/// mean, or after `max` replications; never before `min`.
///
/// It evaluates prefixes in index order, so the number of kept replications does not depend on parallelism.
/// Replications beyond the stop are discarded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StoppingRule {
    /// The allowed half-width as a share of the mean: 0.05 for 5 %.
    pub share: f64,
    /// The intervals' confidence level: 0.95.
    pub level: f64,
    /// Minimum number of replications.
    pub min: u32,
    /// Maximum number of replications.
    pub max: u32,
}

/// The stop of a [`StoppingRule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StopDecision {
    /// Number of replications to keep, from the first.
    pub replications: u32,
    /// False if the limit came before the precision.
    pub converged: bool,
}

impl StoppingRule {
    /// Creates a rule for exactly `n` replications at any precision.
    pub const fn with_exact_count(n: u32) -> Self {
        Self { share: 0.0, level: 0.95, min: n, max: n }
    }

    /// True if the mean of these moments is precise enough.
    pub fn is_mean_precise(&self, moments: &SampleMoments) -> bool {
        moments.is_within(self.share * moments.mean().abs(), self.level)
    }

    /// Returns the stop, or `None` to continue. `series` has for each watched metric its value in each of the `done`
    /// replications, from index 0 without a gap. `None` values, where a replication left the metric undefined, are
    /// skipped. If `min` equals `max`, that number of replications is enough. Without watched metrics `min` is enough.
    pub fn decide_replication_stop(&self, done: u32, series: &[&[Option<f64>]]) -> Option<StopDecision> {
        let max = self.max.max(1);
        let fixed = self.min >= max;
        let mut moments = vec![SampleMoments::default(); series.len()];
        for i in 0..done.min(max) {
            for (moments, values) in moments.iter_mut().zip(series) {
                if let Some(value) = values.get(i as usize).copied().flatten() {
                    moments.push(value);
                }
            }
            let replications = i + 1;
            let converged = if fixed {
                replications == max
            } else {
                replications >= self.min && moments.iter().all(|m| self.is_mean_precise(m))
            };
            if converged || replications == max {
                return Some(StopDecision { replications, converged });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assert_close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn moments_of_a_known_sample() {
        let m = SampleMoments::from_values([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_close(m.mean(), 5.0);
        assert_close(m.variance(), 32.0 / 7.0);
        let e = m.estimate(0.95);
        assert_close(e.half_width, 2.364_624_251_592_785 * (32.0f64 / 7.0 / 8.0).sqrt());
        assert!(e.contains(5.0) && !e.contains(7.0));
    }

    #[test]
    fn one_value_is_no_interval_and_equal_values_are_a_sharp_one() {
        assert!(MeanEstimate::from_values(&[3.0], 0.95).half_width.is_infinite());
        assert!(MeanEstimate::from_values(&[], 0.95).mean.is_nan());
        assert_eq!(
            MeanEstimate::from_values(&[0.1; 7], 0.95),
            MeanEstimate { mean: 0.1, half_width: 0.0, n: 7 }
        );
    }

    #[test]
    fn quantiles_are_type_seven() {
        let mut sample = [4.0, 1.0, 3.0, 2.0];
        let [min, p25, p50, p95, max] = sample_quantiles(&mut sample, [0.0, 0.25, 0.5, 0.95, 1.0]);
        assert_eq!((min, max), (1.0, 4.0));
        assert_close(p25, 1.75);
        assert_close(p50, 2.5);
        assert_close(p95, 3.85);
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
    }

    #[test]
    fn pairing_removes_what_both_share() {
        let a = [1.0, 5.0, 9.0, 13.0];
        let b = [1.4, 5.6, 9.5, 13.5];
        let pairs = paired_difference(&a, &b, 0.95);
        assert_close(pairs.mean, 0.5);
        assert!(pairs.low() > 0.0);
        let apart = welch_difference(&SampleMoments::from_values(a), &SampleMoments::from_values(b), 0.95);
        assert_close(apart.mean, 0.5);
        assert!(apart.contains(0.0));
    }

    #[test]
    fn welch_on_a_textbook_case() {
        // Variances 4 and 16 in samples of 5 and 10: freedom 2.4² / (0.8²/4 + 1.6²/9) = 13.0909.
        let a = SampleMoments { n: 5, mean: 10.0, squares: 16.0 };
        let b = SampleMoments { n: 10, mean: 13.0, squares: 144.0 };
        let d = welch_difference(&a, &b, 0.95);
        assert_close(d.mean, 3.0);
        assert_close(d.half_width, student::t_quantile(0.95, 5.76 / (0.16 + 2.56 / 9.0)) * 2.4f64.sqrt());
    }

    #[test]
    fn a_constant_ratio_is_sharp() {
        let r = ratio_of_means(&[1.0, 2.0, 4.0], &[3.0, 6.0, 12.0], 0.95);
        assert_eq!((r.mean, r.half_width, r.n), (3.0, 0.0, 3));
    }

    #[test]
    fn stops_at_the_first_precise_prefix_however_many_are_done() {
        let rule = StoppingRule { share: 0.05, level: 0.95, min: 3, max: 10 };
        let values: Vec<_> = [10.0, 14.0, 9.9, 10.1, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0].map(Some).into();
        let all = rule.decide_replication_stop(10, &[&values]);
        let limit = StopDecision { replications: 10, converged: false };
        assert_eq!(all, Some(limit));
        assert_eq!(rule.decide_replication_stop(9, &[&values[..9]]), None);
        let calm: Vec<_> = [10.0, 10.1, 9.9, 10.0, 50.0].map(Some).into();
        let early = Some(StopDecision { replications: 3, converged: true });
        assert_eq!(rule.decide_replication_stop(3, &[&calm[..3]]), early);
        assert_eq!(rule.decide_replication_stop(5, &[&calm]), early);
        assert_eq!(rule.decide_replication_stop(2, &[&calm[..2]]), None);
    }

    #[test]
    fn every_watched_metric_must_be_precise() {
        let rule = StoppingRule { share: 0.05, level: 0.95, min: 2, max: 5 };
        let (calm, wild) = ([Some(1.0); 4], [Some(1.0), None, Some(9.0), Some(2.0)]);
        assert!(rule.decide_replication_stop(4, &[&calm]).is_some());
        assert_eq!(rule.decide_replication_stop(4, &[&calm, &wild]), None);
    }

    #[test]
    fn a_fixed_count_runs_in_full() {
        let rule = StoppingRule::with_exact_count(4);
        assert_eq!(rule.decide_replication_stop(3, &[&[Some(1.0); 3]]), None);
        assert_eq!(
            rule.decide_replication_stop(4, &[&[Some(1.0); 4]]),
            Some(StopDecision { replications: 4, converged: true })
        );
        assert_eq!(rule.decide_replication_stop(4, &[]).map(|s| s.replications), Some(4));
    }

    proptest! {
        #[test]
        fn the_stop_is_the_same_however_far_ahead_the_cores_ran(
            values in proptest::collection::vec(0.5f64..1.5, 1..30), ahead in 0usize..10
        ) {
            let rule = StoppingRule { share: 0.1, level: 0.95, min: 2, max: 20 };
            let values: Vec<_> = values.into_iter().map(Some).collect();
            let first = (1..=values.len()).find_map(|n| rule.decide_replication_stop(n as u32, &[&values[..n]]));
            if let Some(first) = first {
                let seen = (first.replications as usize + ahead).min(values.len());
                prop_assert_eq!(rule.decide_replication_stop(seen as u32, &[&values[..seen]]), Some(first));
            }
        }

        #[test]
        fn within_agrees_with_the_interval(
            values in proptest::collection::vec(-1e3f64..1e3, 2..40), share in 0.01f64..2.0, level in 0.5f64..0.999
        ) {
            let moments = SampleMoments::from_values(values);
            let exact = moments.estimate(level).half_width;
            prop_assert!(moments.is_within(exact * (1.0 + 1e-9), level));
            prop_assert_eq!(moments.is_within(share * exact, level), share >= 1.0);
        }

        #[test]
        fn a_quantile_lies_within_its_sample(
            mut values in proptest::collection::vec(-1e9f64..1e9, 1..50), p in 0.0f64..=1.0
        ) {
            let [q, min, max] = sample_quantiles(&mut values, [p, 0.0, 1.0]);
            prop_assert!(min <= q && q <= max);
        }
    }
}
