//! Compares means of replications with theory.

use crate::OracleFinding;

/// Tolerance of a mean, in standard errors. A correct mean of twenty replications or more exceeds it less than once in
/// 400 times. Seeds are fixed, so the result never changes.
pub(crate) const ERRORS: f64 = 3.5;

/// Returns the mean of a sample and its standard error.
pub(crate) fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
    (mean, libm::sqrt(squares / (n - 1.0) / n))
}

/// Compares a mean of replications with theory, within [`ERRORS`] standard errors. Fails if the standard error exceeds
/// the share `widest` of the theory.
pub(crate) fn compare_mean_with_theory(
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
