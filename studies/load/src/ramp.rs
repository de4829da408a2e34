//! The search for the knee: the highest rate that a server keeps up with.

use serde::Serialize;

/// What a step of a ramp must show to be kept up with, and where the search begins and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RampConfig {
    /// The first rate, logins a second; it is doubled until a step fails.
    pub start: f64,
    /// Rates are not tried beyond this.
    pub most: f64,
    /// The share of logins that must end as they have to within the limit.
    pub success: f64,
    /// The limit of the 99th percentile of latency, seconds.
    pub p99: f64,
    /// The search ends when the failing rate is at most this share above the one kept up with.
    pub precision: f64,
}

impl Default for RampConfig {
    /// From 100/s, 99.9 %, 100 ms, to 5 %.
    fn default() -> Self {
        Self { start: 100.0, most: 10e6, success: 0.999, p99: 0.1, precision: 0.05 }
    }
}

/// What one step showed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The rate asked for, logins a second.
    pub rate: f64,
    /// Successes a second.
    pub throughput: f64,
    /// The share of logins that ended as they had to, of those that could have ended in time.
    pub success: f64,
    /// The median latency, seconds.
    pub p50_s: Option<f64>,
    /// The 99th percentile, seconds.
    pub p99_s: Option<f64>,
    /// Whether the server kept up.
    pub kept_up: bool,
}

/// The search.
#[derive(Clone, PartialEq, Debug)]
pub struct Ramp {
    config: RampConfig,
    kept: f64,
    failed: Option<f64>,
    rate: f64,
    steps: Vec<Step>,
    over: bool,
}

impl Ramp {
    /// At its first step.
    #[must_use]
    pub fn new(config: RampConfig) -> Self {
        let rate = config.start.min(config.most);
        Self { config, kept: 0.0, failed: None, rate, steps: Vec::new(), over: false }
    }
    /// The rate to try next; none when the search is over.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        (!self.over).then_some(self.rate)
    }
    /// What was found out.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
    /// The highest rate that was kept up with; none where even the lowest was not.
    #[must_use]
    pub fn knee(&self) -> Option<f64> {
        (self.kept > 0.0).then_some(self.kept)
    }
    /// True where the search ended at the highest rate allowed, with the server still keeping up.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.over && self.failed.is_none()
    }
    /// What the step at the current rate showed; `kept_up` is judged here.
    pub fn step(&mut self, mut step: Step) {
        let in_time = step.p99_s.is_some_and(|p| p <= self.config.p99);
        step.kept_up = step.success >= self.config.success && in_time;
        self.steps.push(step);
        if step.kept_up {
            self.kept = self.kept.max(step.rate);
        } else {
            self.failed = Some(self.failed.map_or(step.rate, |f| f.min(step.rate)));
        }
        self.rate = match self.failed {
            None if self.kept >= self.config.most => {
                self.over = true;
                self.kept
            }
            None => (self.kept * 2.0).min(self.config.most),
            // Below the first rate there is no rate that was kept up with: halve until one is, or it is absurd.
            Some(failed) if self.kept == 0.0 => {
                self.over = failed < 1.0;
                failed / 2.0
            }
            Some(failed) => {
                self.over = failed <= self.kept * (1.0 + self.config.precision);
                (failed + self.kept) / 2.0
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that keeps up with so many a second.
    fn search(capacity: f64, config: RampConfig) -> Ramp {
        let mut ramp = Ramp::new(config);
        while let Some(rate) = ramp.rate() {
            let p99_s = Some(if rate <= capacity { 0.01 } else { 3.0 });
            let throughput = rate.min(capacity);
            ramp.step(Step { rate, throughput, success: 1.0, p50_s: None, p99_s, kept_up: false });
            assert!(ramp.steps().len() < 100);
        }
        ramp
    }

    #[test]
    fn the_knee_is_found_to_the_precision_asked_for() {
        for capacity in [130.0, 4_321.0, 250_000.0, 30.0] {
            let ramp = search(capacity, RampConfig::default());
            let knee = ramp.knee().unwrap();
            assert!(knee <= capacity && knee * 1.05 * 1.001 >= capacity, "{capacity}: {knee}");
            assert!(!ramp.is_open());
        }
    }

    #[test]
    fn a_search_ends_where_there_is_no_knee() {
        let open = search(f64::INFINITY, RampConfig { most: 1_000.0, ..RampConfig::default() });
        assert!(open.is_open());
        assert_eq!((open.knee(), open.steps().len()), (Some(1_000.0), 5));
        assert_eq!(search(0.0, RampConfig::default()).knee(), None);
    }

    #[test]
    fn failures_and_lateness_both_end_a_rate() {
        let mut ramp = Ramp::new(RampConfig::default());
        let step = Step {
            rate: 100.0,
            throughput: 99.0,
            success: 0.99,
            p50_s: None,
            p99_s: Some(0.01),
            kept_up: true,
        };
        ramp.step(step);
        assert!(!ramp.steps()[0].kept_up, "success decides");
        ramp.step(Step { success: 1.0, p99_s: None, rate: 50.0, ..step });
        assert!(!ramp.steps()[1].kept_up, "nothing measured is not in time");
    }
}
