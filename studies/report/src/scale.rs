//! Scales: they convert values to pixels, with ticks at round numbers.

use crate::format::{decimal_exponent, format_decimals, format_scientific};

/// A tick: its value and label; minor ones have an empty label.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ScaleTick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// A linear or logarithmic scale.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct AxisScale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl AxisScale {
    /// Creates a scale from `low..=high` to the pixels `from..=to`. An empty range is widened, and one that does not
    /// suit a logarithm is linear.
    pub(crate) fn new(mut low: f64, mut high: f64, log: bool, from: f64, to: f64) -> Self {
        let log = log && low > 0.0;
        if low >= high {
            (low, high) = match (log, low) {
                (true, low) => (low / 2.0, low * 2.0),
                (false, 0.0) => (0.0, 1.0),
                (false, low) => (low - low.abs() / 2.0, low + low.abs() / 2.0),
            };
        }
        Self { low, high, log, from, to }
    }

    /// Extends the ends to ticks.
    pub(crate) fn round_ends(mut self) -> Self {
        if self.log {
            let floor = |v: f64, steps: &[f64]| {
                let decade = libm::pow(10.0, f64::from(decimal_exponent(v)));
                let step = steps.iter().rev().find(|s| *s * decade <= v * (1.0 + 1e-9));
                step.unwrap_or(&1.0) * decade
            };
            self.low = floor(self.low, &[1.0, 2.0, 5.0]);
            let below = floor(self.high, &[1.0, 2.0, 5.0]);
            if below < self.high * (1.0 - 1e-9) {
                let lead = below / libm::pow(10.0, f64::from(decimal_exponent(below)));
                self.high = below * if (lead - 2.0).abs() < 0.5 { 2.5 } else { 2.0 };
            }
        } else {
            let step = self.tick_step();
            self.low = libm::floor(self.low / step + 1e-9) * step;
            self.high = libm::ceil(self.high / step - 1e-9) * step;
        }
        self
    }

    /// Returns the pixel of a value, clamped to the scale.
    pub(crate) fn pixel_at(&self, value: f64) -> f64 {
        self.from + self.axis_fraction(value).clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Returns the pixel of a value, which may exceed the scale by at most its length.
    pub(crate) fn pixel_beyond_axis(&self, value: f64) -> f64 {
        self.from + self.axis_fraction(value).clamp(-1.0, 2.0) * (self.to - self.from)
    }

    fn axis_fraction(&self, value: f64) -> f64 {
        if !self.log {
            return (value - self.low) / (self.high - self.low);
        }
        if value <= 0.0 {
            return -1.0;
        }
        libm::log(value / self.low) / libm::log(self.high / self.low)
    }

    /// Returns the ticks within the scale, ascending.
    pub(crate) fn ticks(&self) -> Vec<ScaleTick> {
        if self.log { self.log_ticks() } else { self.linear_ticks() }
    }

    /// Returns a step of 1, 2 or 5 times a power of ten, about one for each 60 pixels.
    fn tick_step(&self) -> f64 {
        let wanted = ((self.to - self.from).abs() / 60.0).clamp(2.0, 10.0);
        let raw = (self.high - self.low) / wanted;
        let power = libm::pow(10.0, f64::from(decimal_exponent(raw)));
        let lead = raw / power;
        power
            * match lead {
                l if l <= 1.000_001 => 1.0,
                l if l <= 2.000_001 => 2.0,
                l if l <= 5.000_001 => 5.0,
                _ => 10.0,
            }
    }

    fn linear_ticks(&self) -> Vec<ScaleTick> {
        let step = self.tick_step();
        let places = -decimal_exponent(step * (1.0 + 1e-9));
        let first = libm::ceil(self.low / step - 1e-9);
        let count = libm::floor(self.high / step + 1e-9) - first;
        let value = |i: u32| (first + f64::from(i)) * step;
        let ticks = (0..=count.clamp(0.0, 100.0) as u32).map(value);
        ticks.map(|value| ScaleTick { value, label: format_decimals(value, places) }).collect()
    }

    fn log_ticks(&self) -> Vec<ScaleTick> {
        let (first, last) = (decimal_exponent(self.low), decimal_exponent(self.high));
        let decades = libm::log10(self.high / self.low);
        let labelled: &[u32] = match decades {
            d if d <= 1.0 => &[1, 2, 3, 5, 7],
            d if d <= 3.0 => &[1, 2, 5],
            _ => &[1],
        };
        let every = (decades / 8.0) as i32 + 1;
        let mut ticks = Vec::new();
        for power in first..=last {
            let decade = libm::pow(10.0, f64::from(power));
            for lead in 1..10 {
                let value = f64::from(lead) * decade;
                if value < self.low * (1.0 - 1e-9) || value > self.high * (1.0 + 1e-9) {
                    continue;
                }
                let shown = labelled.contains(&lead) && power.rem_euclid(every) == 0;
                let label = match power {
                    _ if !shown => String::new(),
                    -4..=5 => format_decimals(value, -power),
                    _ => format_scientific(value, 0),
                };
                ticks.push(ScaleTick { value, label });
            }
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tick_labels(scale: AxisScale) -> Vec<String> {
        scale.ticks().into_iter().map(|t| t.label).filter(|l| !l.is_empty()).collect()
    }

    #[test]
    fn ticks_are_round() {
        let y = AxisScale::new(0.0, 0.43, false, 300.0, 0.0).round_ends();
        assert_eq!(tick_labels(y), ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(y.pixel_at(0.5), 0.0);
        assert_eq!(tick_labels(AxisScale::new(0.0, 20.0, false, 0.0, 500.0)), ["0", "5", "10", "15", "20"]);
        assert_eq!(tick_labels(AxisScale::new(0.0, 4e8, false, 0.0, 300.0))[1], "10⁸");
        assert_eq!(
            tick_labels(AxisScale::new(-1.0, 1.0, false, 0.0, 300.0)),
            ["−1.0", "−0.5", "0.0", "0.5", "1.0"]
        );
    }

    #[test]
    fn decades_on_a_logarithmic_scale() {
        let scale = AxisScale::new(0.013, 3.0, true, 0.0, 300.0).round_ends();
        assert_eq!(tick_labels(scale), ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5"]);
        let wide = AxisScale::new(1e-9, 1e3, true, 0.0, 300.0).round_ends();
        assert!(tick_labels(wide).len() <= 9, "{:?}", tick_labels(wide));
        assert!((scale.pixel_at(1.0) - 300.0 * 100f64.ln() / 500f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn nothing_and_one_value_have_a_scale_too() {
        assert_eq!(tick_labels(AxisScale::new(0.0, 0.0, false, 0.0, 300.0)).first().unwrap(), "0.0");
        assert!(!tick_labels(AxisScale::new(5.0, 5.0, false, 0.0, 300.0)).is_empty());
        assert!(!tick_labels(AxisScale::new(5.0, 5.0, true, 0.0, 300.0)).is_empty());
        assert!(!AxisScale::new(0.0, 5.0, true, 0.0, 300.0).log);
    }

    proptest! {
        #[test]
        fn every_range_has_a_few_ticks_within(a in -1e9f64..1e9, b in -1e9f64..1e9, log: bool) {
            let (a, b) = if log { (a.abs() + 1e-6, b.abs() + 1e-6) } else { (a, b) };
            let scale = AxisScale::new(a.min(b), a.max(b), log, 0.0, 400.0).round_ends();
            let ticks = scale.ticks();
            prop_assert!(tick_labels(scale).len() >= 2 && tick_labels(scale).len() <= 20, "{scale:?} {ticks:?}");
            prop_assert!(ticks.windows(2).all(|t| t[0].value < t[1].value));
            prop_assert!(scale.low <= a.min(b) && a.max(b) <= scale.high);
        }
    }
}
