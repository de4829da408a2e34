//! Means of replications held against theory.

use crate::OracleFinding;

/// How many standard errors a mean may be from its theory. A sound mean of twenty replications or more is
/// farther off less than once in four hundred times; the seeds are fixed, so it was tried once.
pub(crate) const ERRORS: f64 = 3.5;

/// A sample's mean and the standard error of that.
pub(crate) fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, libm::sqrt(squares / (n - 1.0) / n))
}

/// A mean of replications against its theory, within [`ERRORS`] standard errors of it. A standard error beyond
/// `widest` of the theory tells too little, and does not hold.
pub(crate) fn compare_mean(
    case: String,
    unit: &str,
    theory: f64,
    values: &[f64],
    widest: f64,
) -> OracleFinding {
    let (mean, error) = mean_and_error(values);
    let may = ERRORS * error;
    OracleFinding {
        case,
        expected: format!("{theory:.6} {unit}").trim_end().to_owned(),
        obtained: format!("{mean:.6} {unit}").trim_end().to_owned(),
        tolerance: format!("{may:.6}, {ERRORS} standard errors of {} replications", values.len()),
        agrees: (mean - theory).abs() <= may && error <= widest * theory.abs(),
    }
}
