//! Robust statistics: the median of replications with a distribution-free interval, and the replication that alone
//! moves the mean.

/// A replication is influential if the mean without it differs by at least this share.
pub const MOVES: f64 = 0.05;
/// A value is an outlier from this modified z-score on: Iglewicz and Hoaglin, "How to Detect and Handle Outliers"
/// (1993).
const OUTLIER_THRESHOLD: f64 = 3.5;
/// The median absolute deviation of a normal distribution, in standard deviations.
const NORMAL_MAD: f64 = 0.6745;

/// A median with its uncertainty.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MedianEstimate {
    /// The sample's median; for an even number, the mean of the two middle values.
    pub median: f64,
    /// The interval's lower end, one of the values; minus infinity (unknown) with too few values.
    pub low: f64,
    /// The interval's upper end, one of the values; infinite (unknown) with too few values.
    pub high: f64,
    /// Number of values.
    pub n: u32,
}

impl MedianEstimate {
    /// Returns the median of these values with the interval of its order statistics at this level (0.95: 95 %).
    ///
    /// The interval goes from the k-th smallest to the k-th largest value. k is the largest number for which the
    /// interval contains the distribution's median with at least this confidence. The number of values below the median
    /// is binomial with probability 1/2 for any distribution (David and Nagaraja, "Order Statistics", 7.1). At 95 % at
    /// least six values are needed.
    pub fn from_values(values: &[f64], level: f64) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let median = super::quantile(&sorted, 0.5);
        let (low, high) = match median_interval_rank(sorted.len(), level) {
            0 => (f64::NEG_INFINITY, f64::INFINITY),
            k => (sorted[k - 1], sorted[sorted.len() - k]),
        };
        Self { median, low, high, n: sorted.len() as u32 }
    }

    /// Returns the interval's ends, if known.
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.low.is_finite() && self.high.is_finite()).then_some((self.low, self.high))
    }
}

/// Returns the largest k with 2 P(B <= k - 1) <= 1 - level, where B is binomial of n and 1/2; 0 if there is none.
fn median_interval_rank(n: usize, level: f64) -> usize {
    // Compute with logarithms, because 2^-n underflows for large n.
    let mut term = -(n as f64) * core::f64::consts::LN_2;
    let mut below = 0.0;
    for k in 0..=n / 2 {
        below += libm::exp(term);
        if 2.0 * below > 1.0 - level {
            return k;
        }
        term += libm::log((n - k) as f64 / (k + 1) as f64);
    }
    n / 2
}

/// A replication that alone moves the mean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct InfluentialReplication {
    /// Its index.
    pub replication: u32,
    /// The mean of the others.
    pub mean_without: f64,
    /// The difference of both means as a share of the mean of all.
    pub share: f64,
}

/// Returns the replication farthest from the mean of these (replication, value) pairs, if it moves the mean.
///
/// It does if the mean without it differs by more than [`MOVES`] *and* its modified z-score,
/// 0.6745 |x - median| / MAD, exceeds 3.5. The first condition alone would hold for any few values that scatter, the
/// second for values that hardly do. `None` for fewer than three values or a mean of zero.
pub fn find_influential(values: &[(u32, f64)]) -> Option<InfluentialReplication> {
    if values.len() < 3 {
        return None;
    }
    let mean = super::SampleMoments::from_values(values.iter().map(|(_, v)| *v)).mean();
    let far = |v: f64| (v - mean).abs();
    let (replication, value) =
        values.iter().copied().reduce(|a, b| if far(b.1) > far(a.1) { b } else { a })?;
    let without =
        super::SampleMoments::from_values(values.iter().filter(|(r, _)| *r != replication).map(|(_, v)| *v))
            .mean();
    let share = ((without - mean) / mean).abs();
    let sorted = |mut values: Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        super::quantile(&values, 0.5)
    };
    let median = sorted(values.iter().map(|(_, v)| *v).collect());
    let deviation = sorted(values.iter().map(|(_, v)| (v - median).abs()).collect());
    let apart = NORMAL_MAD * (value - median).abs() > OUTLIER_THRESHOLD * deviation;
    (share.is_finite() && share > MOVES && apart).then_some(InfluentialReplication {
        replication,
        mean_without: without,
        share,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number_values(values: &[f64]) -> Vec<(u32, f64)> {
        (0..).zip(values.iter().copied()).collect()
    }

    #[test]
    fn ranks_are_those_of_the_tables_of_the_sign_test() {
        // Ranks of 95 % confidence intervals of a median, from tables of the sign test.
        for (n, k) in [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10)] {
            assert_eq!(median_interval_rank(n, 0.95), k, "of {n}");
        }
        for (n, k) in [(7, 0), (8, 1), (20, 4)] {
            assert_eq!(median_interval_rank(n, 0.99), k, "of {n}");
        }
        // Far beyond 2^-1074, about n/2 - 0.98 √n.
        assert_eq!(median_interval_rank(10_000, 0.95), 4902);
    }

    #[test]
    fn a_median_and_its_interval_by_hand() {
        let values = [9.0, 1.0, 3.0, 2.0, 8.0, 4.0, 7.0, 5.0, 6.0, 1000.0];
        let got = MedianEstimate::from_values(&values, 0.95);
        assert_eq!(got, MedianEstimate { median: 5.5, low: 2.0, high: 9.0, n: 10 });
        let few = MedianEstimate::from_values(&values[..5], 0.95);
        assert_eq!((few.median, few.interval()), (3.0, None));
        assert!(MedianEstimate::from_values(&[], 0.95).median.is_nan());
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        // A distribution without a mean: 1/u of a uniform u, whose median is 2.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let held = (0..4000).filter(|_| {
            let values: Vec<f64> = (0..20).map(|_| 1.0 / uniform()).collect();
            let (low, high) = MedianEstimate::from_values(&values, 0.95).interval().unwrap();
            low <= 2.0 && 2.0 <= high
        });
        // Exactly 95.86 % with 20 values; four standard errors of 4000 trials are 1.3 %.
        let share = held.count() as f64 / 4000.0;
        assert!((share - 0.9586).abs() < 0.013, "{share}");
    }

    #[test]
    fn one_replication_that_moves_the_mean_is_found() {
        let got = find_influential(&number_values(&[1.2, 1.3, 1.1, 9.0, 1.2])).unwrap();
        assert_eq!(got.replication, 3);
        assert!((got.mean_without - 1.2).abs() < 1e-12 && (got.share - 1.56 / 2.76).abs() < 1e-12);
        // Two outliers do not hide each other.
        assert_eq!(
            find_influential(&number_values(&[1.2, 1.3, 1.1, 9.0, 8.0])).map(|m| m.replication),
            Some(3)
        );
        // One outlier far below moves it as well.
        assert_eq!(
            find_influential(&number_values(&[9.0, 9.1, 9.2, 0.1, 9.0])).map(|m| m.replication),
            Some(3)
        );
    }

    #[test]
    fn scatter_and_trifles_move_nothing() {
        // Wide, yet none is an outlier.
        assert_eq!(find_influential(&number_values(&[1.0, 2.0, 3.0, 4.0, 5.0])), None);
        // An outlier, but too close to move the mean.
        assert_eq!(find_influential(&number_values(&[1.0, 1.0, 1.0, 1.0, 1.01])), None);
        assert_eq!(find_influential(&number_values(&[1.0, 50.0])), None);
        assert_eq!(find_influential(&number_values(&[0.0; 9])), None);
        assert_eq!(find_influential(&[]), None);
    }

    proptest! {
        #[test]
        fn the_interval_holds_the_samples_median(values in proptest::collection::vec(-1e6f64..1e6, 6..60)) {
            let got = MedianEstimate::from_values(&values, 0.95);
            let (low, high) = got.interval().unwrap();
            prop_assert!(low <= got.median && got.median <= high);
        }

        #[test]
        fn what_moves_the_mean_does_not_depend_on_the_unit(
            values in proptest::collection::vec(0.1f64..10.0, 3..30), big in 1.0f64..1e4, unit in 0.001f64..1e3
        ) {
            let mut values = number_values(&values);
            values[1].1 *= big;
            let scaled: Vec<_> = values.iter().map(|(r, v)| (*r, v * unit)).collect();
            prop_assert_eq!(find_influential(&values).map(|m| m.replication), find_influential(&scaled).map(|m| m.replication));
        }
    }
}
