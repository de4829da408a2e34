//! Least-squares lines.

use super::{MeanEstimate, half_width};

/// The least-squares line of points `(x, y)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RegressionLine {
    /// The slope with its interval by Student's t, for points that scatter about the line independently and alike.
    pub slope: MeanEstimate,
    /// The intercept: y at x = 0.
    pub at_zero: f64,
    /// Share of the variance of y that the line explains.
    pub explained: f64,
}

impl RegressionLine {
    /// Fits the line; `None` with fewer than two distinct x. With two points the interval is unknown.
    pub fn from_points(points: &[(f64, f64)], level: f64) -> Option<Self> {
        let n = points.len() as f64;
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let (x, y) = (sum(&|p| p.0) / n, sum(&|p| p.1) / n);
        let xx = sum(&|p| (p.0 - x) * (p.0 - x));
        if !(xx > 0.0 && xx.is_finite()) {
            return None;
        }
        let (xy, yy) = (sum(&|p| (p.0 - x) * (p.1 - y)), sum(&|p| (p.1 - y) * (p.1 - y)));
        let slope = xy / xx;
        let at_zero = y - slope * x;
        let freedom = n - 2.0;
        let half_width = if freedom > 0.0 {
            let left = sum(&|p| {
                let off = p.1 - at_zero - slope * p.0;
                off * off
            });
            half_width(level, freedom, libm::sqrt(left / freedom / xx))
        } else {
            f64::INFINITY
        };
        let explained = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
        Some(Self {
            slope: MeanEstimate { mean: slope, half_width, n: points.len() as u32 },
            at_zero,
            explained,
        })
    }
    /// Returns y at `x`.
    pub fn value_at(&self, x: f64) -> f64 {
        self.at_zero + self.slope.mean * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_explains_what_is_on_it() {
        let line = RegressionLine::from_points(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)], 0.95).unwrap();
        assert!((line.slope.mean - 2.0).abs() < 1e-12 && (line.at_zero - 1.0).abs() < 1e-12);
        assert!((line.explained - 1.0).abs() < 1e-12 && line.slope.half_width < 1e-9);
        assert!((line.value_at(10.0) - 21.0).abs() < 1e-9);
        let flat = RegressionLine::from_points(&[(1.0, 1.0), (2.0, 3.0), (3.0, 1.0)], 0.95).unwrap();
        assert!(flat.explained < 1e-12 && flat.slope.half_width > 1.0);
    }

    #[test]
    fn the_slope_of_anscombes_first_set_has_its_interval() {
        // F. J. Anscombe, "Graphs in Statistical Analysis", The American Statistician 27(1), 1973: 3.00 + 0.500 x, with a
        // standard error of the slope of 0.118, and 0.667 of the variance explained; 2.262 is Student's t with nine degrees of
        // freedom.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let line = RegressionLine::from_points(&points, 0.95).unwrap();
        assert!((line.at_zero - 3.0).abs() < 0.001 && (line.slope.mean - 0.5).abs() < 0.001, "{line:?}");
        assert!((line.slope.half_width - 2.262 * 0.1179).abs() < 0.001, "{line:?}");
        assert!((line.explained - 0.6665).abs() < 0.001, "{line:?}");
    }

    #[test]
    fn there_is_no_line_through_one_place() {
        assert_eq!(RegressionLine::from_points(&[], 0.95), None);
        assert_eq!(RegressionLine::from_points(&[(1.0, 1.0), (1.0, 2.0)], 0.95), None);
        assert_eq!(
            RegressionLine::from_points(&[(0.0, 1.0), (1.0, 2.0)], 0.95).unwrap().slope.half_width,
            f64::INFINITY
        );
    }
}
