//! A least-squares line through the points of a curve, as a figure shows it.

use usher_observe::stats::RegressionLine;
use usher_report::{FigureAxis, FigureSeries, SeriesKind, SeriesPoint};

/// The level of the slope's interval.
const LEVEL: f64 = 0.95;

/// Fits a least-squares line to a curve and names it by its slope; `None` if the points determine none.
pub(super) fn fit_line(curve: &FigureSeries, [x, y]: [&FigureAxis; 2]) -> Option<FigureSeries> {
    if !curve.kind.is_measured() {
        return None;
    }
    let points: Vec<(f64, f64)> = curve.points.iter().map(|p| (p.x, p.mean)).collect();
    let line = RegressionLine::from_points(&points, LEVEL)?;
    let scale = if y.unit == "s" { 1e3 } else { 1.0 };
    let unit = match y.unit.as_str() {
        "" => String::new(),
        "s" => " ms".to_owned(),
        unit => format!(" {unit}"),
    };
    let each = if x.unit.is_empty() { "for each".to_owned() } else { format!("for each {}", x.unit) };
    let name = format!(
        "{} (line: {}{unit}, plus {} ± {}{unit} {each}; explains {} % of the variance)",
        curve.name,
        format_digits(line.at_zero * scale),
        format_digits(line.slope.mean * scale),
        format_digits(line.slope.half_width * scale),
        format_digits(line.explained * 100.0),
    );
    let ends = [f64::min, f64::max].map(|end| points.iter().map(|p| p.0).reduce(end));
    let points = ends.into_iter().flatten().map(|x| SeriesPoint::from_exact(x, line.value_at(x))).collect();
    Some(FigureSeries { name, kind: SeriesKind::Fitted, points, names: Vec::new() })
}

/// Formats a number with three digits.
fn format_digits(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    let exponent = if value == 0.0 { 0.0 } else { libm::floor(libm::log10(value.abs())) };
    let decimals = (2.0 - exponent).clamp(0.0, 12.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_observe::MeanEstimate;

    #[test]
    fn a_line_says_what_it_is_of() {
        let point =
            |x: f64, mean: f64| SeriesPoint::from_estimate(x, &MeanEstimate { mean, half_width: 0.0, n: 5 });
        let curve = FigureSeries {
            name: "delay".into(),
            kind: SeriesKind::Measured,
            points: vec![point(2.0, 0.003), point(6.0, 0.011), point(4.0, 0.007)],
            names: Vec::new(),
        };
        let line =
            fit_line(&curve, [&FigureAxis::new("messages", ""), &FigureAxis::new("delay", "s")]).unwrap();
        assert_eq!(line.kind, SeriesKind::Fitted);
        assert!(line.name.starts_with("delay (line: -1.00 ms, plus 2.00 ± 0.00"), "{}", line.name);
        assert!(line.name.ends_with(" ms for each; explains 100 % of the variance)"), "{}", line.name);
        // From end to end in any order of the points.
        assert_eq!((line.points[0].x, line.points[1].x), (2.0, 6.0));
        assert!((line.points[1].mean - 0.011).abs() < 1e-12);
        let one = FigureSeries { points: vec![point(1.0, 1.0)], ..curve };
        assert_eq!(fit_line(&one, [&FigureAxis::default(), &FigureAxis::default()]), None);
    }
}
