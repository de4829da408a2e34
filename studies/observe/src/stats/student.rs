//! Student's t distribution, by the regularised incomplete beta function.

/// Returns the probability that |T| exceeds `t` with this many degrees of freedom: the two-sided p-value.
pub fn two_sided_p_value(t: f64, freedom: f64) -> f64 {
    let square = t * t;
    if square.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + square))
}

/// Returns the t that |T| stays below with probability `level`: 2.571 for 0.95 and 5 degrees of freedom. It bisects to
/// the last bit, so the result is the same on every machine. Infinite for a level of one or more.
pub fn t_quantile(level: f64, freedom: f64) -> f64 {
    let tail = 1.0 - level;
    if tail <= 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided_p_value(high, freedom) > tail {
        low = high;
        high *= 2.0;
    }
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if two_sided_p_value(middle, freedom) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
}

/// Returns I_x(a, b) by its continued fraction with Lentz's method (DLMF 8.17.22).
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let log_front =
        libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    let front = libm::exp(log_front);
    // The continued fraction converges fast below the distribution's mean. Above it, use the mirror image, which then
    // does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(a, b, x) / a
    } else {
        1.0 - front * beta_fraction(b, a, 1.0 - x) / b
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const TERMS: u32 = 500;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..TERMS {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            step *= c * d;
        }
        value *= step;
        if (step - 1.0).abs() < 1e-16 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published tables of t (two-sided 90, 95, 99 and 99.9 %), three decimals.
    #[test]
    fn quantiles_match_the_tables() {
        for (freedom, row) in [
            (1.0, [6.314, 12.706, 63.657, 636.619]),
            (2.0, [2.920, 4.303, 9.925, 31.599]),
            (3.0, [2.353, 3.182, 5.841, 12.924]),
            (5.0, [2.015, 2.571, 4.032, 6.869]),
            (9.0, [1.833, 2.262, 3.250, 4.781]),
            (10.0, [1.812, 2.228, 3.169, 4.587]),
            (19.0, [1.729, 2.093, 2.861, 3.883]),
            (30.0, [1.697, 2.042, 2.750, 3.646]),
            (60.0, [1.671, 2.000, 2.660, 3.460]),
            (120.0, [1.658, 1.980, 2.617, 3.373]),
            (1e6, [1.645, 1.960, 2.576, 3.291]),
        ] {
            for (level, expected) in [0.90, 0.95, 0.99, 0.999].into_iter().zip(row) {
                let got = t_quantile(level, freedom);
                assert!((got - expected).abs() <= 6e-4, "{freedom} at {level}: {got}, not {expected}");
            }
        }
    }

    /// One and two degrees of freedom have closed forms.
    #[test]
    fn closed_forms_agree_to_many_digits() {
        for t in [0.01, 0.5, 1.0, 3.0, 40.0, 1e4] {
            let cauchy = 1.0 - 2.0 / std::f64::consts::PI * f64::atan(t);
            assert!((two_sided_p_value(t, 1.0) - cauchy).abs() < 1e-13, "{t}");
            let two = 1.0 - t / f64::sqrt(2.0 + t * t);
            assert!((two_sided_p_value(t, 2.0) - two).abs() < 1e-13, "{t}");
        }
    }

    /// The bits are part of the results: other machines and later versions must reproduce them.
    #[test]
    fn bits_are_frozen() {
        let bits = [(0.95, 4.0), (0.95, 29.0), (0.99, 13.0909)].map(|(l, f)| t_quantile(l, f).to_bits());
        let frozen = [4_613_434_417_370_609_120, 4_611_787_866_527_115_372, 4_613_957_632_904_331_286];
        assert_eq!(bits, frozen);
    }
}
