//! The search against servers of known capacity.

use super::*;
use crate::tally::{LoginFailure, record_latency};
use usher_core::{Duration, Seed, SimulationRng};

/// Statistics of a hundred logins of this latency, some of them timed out.
fn latency_stats(latency: Duration, failed: u64) -> LoginStats {
    let mut tally = LoginStats::default();
    for _ in failed..100 {
        record_latency(&mut tally.latency, latency);
    }
    (tally.started, tally.succeeded, tally.completed) = (100, 100 - failed, 100 - failed);
    tally.count_failures(LoginFailure::Timeout, failed);
    tally
}

/// A server with about this capacity; each step's own capacity varies by this share.
struct TestRampServer {
    capacity: f64,
    noise: f64,
    rng: SimulationRng,
    /// Above this rate the generator is late.
    reach: f64,
}

impl RampStepRunner for TestRampServer {
    type Error = ();
    fn run_step(&mut self, rate: f64) -> Result<RampStep, ()> {
        let capacity = self.capacity * (1.0 + self.noise * (2.0 * self.rng.sample_unit() - 1.0));
        let fits = rate <= capacity && rate <= self.reach;
        let limit = (rate > self.reach).then_some(GeneratorLimitCause::Late { p99_s: 1.0 });
        let tally = if fits {
            latency_stats(Duration::from_millis(10), 0)
        } else {
            latency_stats(Duration::from_secs(3), 33)
        };
        Ok(RampStep::new(rate, 1.0, tally, limit))
    }
    fn on_step_judged(&mut self, _: &RampStep) -> Result<(), ()> {
        Ok(())
    }
}

fn test_server(capacity: f64) -> TestRampServer {
    TestRampServer { capacity, noise: 0.0, rng: Seed::new(1).derive_rng("server", 0), reach: f64::INFINITY }
}

fn run_search(mut server: TestRampServer, config: RampConfig) -> RampSearch {
    let mut ramp = RampSearch::new(config);
    climb_ramp(&mut ramp, &mut server).unwrap();
    assert!(ramp.steps().len() < 150);
    ramp
}

#[test]
fn the_knee_is_found_to_the_precision_asked_for() {
    for capacity in [130.0, 4_321.0, 250_000.0, 30.0] {
        let ramp = run_search(test_server(capacity), RampConfig::default());
        let knee = ramp.find_ramp_knee().unwrap();
        let found = knee.capacity;
        assert!(found <= capacity && found * 1.05 * 1.001 >= capacity, "{capacity}: {found}");
        let (low, high) = knee.interval.unwrap();
        assert!(low <= capacity && capacity <= high && high / low < 1.12, "{capacity}: {low} {high}");
        assert!(knee.stable && knee.bound.is_none() && !ramp.is_open());
        assert_eq!((knee.turns, knee.tally.failed_total()), (TURNS, 0));
        assert!(knee.steps >= 2, "the rate of the headline was tried again");
    }
}

#[test]
fn a_knee_that_moves_is_within_its_interval_mostly() {
    let (mut within, mut unsteady) = (0, 0);
    for seed in 0..200 {
        let rng = Seed::new(seed).derive_rng("server", 0);
        let ramp = run_search(
            TestRampServer { noise: 0.1, rng, ..test_server(5_000.0) },
            RampConfig { repeats: 40, ..RampConfig::default() },
        );
        let knee = ramp.find_ramp_knee().unwrap();
        let (low, high) = knee.interval.unwrap();
        within += u32::from(low <= 5_000.0 && 5_000.0 <= high);
        unsteady += u32::from(!knee.stable);
        assert!(ramp.steps().iter().filter(|s| s.repeat).count() <= 40);
    }
    assert!(within >= 180, "{within} of 200");
    assert!(unsteady <= 10, "{unsteady} of 200");
}

#[test]
fn repeating_ends() {
    let rng = Seed::new(9).derive_rng("server", 0);
    let config = RampConfig { repeats: 3, ..RampConfig::default() };
    let ramp = run_search(TestRampServer { noise: 0.6, rng, ..test_server(5_000.0) }, config);
    assert!(ramp.steps().iter().filter(|s| s.repeat).count() <= 3);
    let none = run_search(test_server(5_000.0), RampConfig { repeats: 0, ..config });
    let knee = none.find_ramp_knee().unwrap();
    assert!(!knee.stable && knee.interval.is_some(), "one turn is no stable knee");
}

#[test]
fn a_search_ends_where_there_is_no_knee() {
    let open = run_search(test_server(f64::INFINITY), RampConfig { most: 1_000.0, ..RampConfig::default() });
    assert!(open.is_open());
    let knee = open.find_ramp_knee().unwrap();
    assert_eq!((knee.capacity, knee.interval, open.steps().len()), (1_000.0, None, 5));
    let none = run_search(test_server(0.0), RampConfig::default());
    assert!(none.find_ramp_knee().is_none() && !none.is_open());
}

#[test]
fn failures_and_lateness_both_end_a_rate() {
    let config = RampConfig::default();
    assert!(!config.is_met(&latency_stats(Duration::from_millis(10), 1)), "success decides");
    assert!(!config.is_met(&LoginStats::default()), "nothing measured is not in time");
    assert!(!config.is_met(&latency_stats(Duration::from_millis(101), 0)));
    assert!(config.is_met(&latency_stats(Duration::from_millis(99), 0)));
}

#[test]
fn one_accident_does_not_end_the_search() {
    struct HiccupStage(u32);
    impl RampStepRunner for HiccupStage {
        type Error = ();
        fn run_step(&mut self, rate: f64) -> Result<RampStep, ()> {
            self.0 += 1;
            let failed = if self.0 == 2 || rate > 3_000.0 { 50 } else { 0 };
            Ok(RampStep::new(rate, 1.0, latency_stats(Duration::from_millis(1), failed), None))
        }
        fn on_step_judged(&mut self, _: &RampStep) -> Result<(), ()> {
            Ok(())
        }
    }
    let mut ramp = RampSearch::new(RampConfig::default());
    climb_ramp(&mut ramp, &mut HiccupStage(0)).unwrap();
    assert!(
        !ramp.steps()[1].is_sustained && ramp.steps()[2].rate == ramp.steps()[1].rate,
        "it was tried again"
    );
    assert!(ramp.find_ramp_knee().unwrap().capacity > 2_850.0);
}

#[test]
fn a_search_that_began_with_accidents_begins_again() {
    // Two accidents in a row at the second rate: the search ends far below the knee or above it.
    struct AccidentStage(u32, bool);
    impl RampStepRunner for AccidentStage {
        type Error = ();
        fn run_step(&mut self, rate: f64) -> Result<RampStep, ()> {
            self.0 += 1;
            let fails =
                if self.1 { (2..=3).contains(&self.0) || rate > 3_000.0 } else { self.0 > 6 && rate > 300.0 };
            Ok(RampStep::new(rate, 1.0, latency_stats(Duration::from_millis(1), 50 * u64::from(fails)), None))
        }
        fn on_step_judged(&mut self, _: &RampStep) -> Result<(), ()> {
            Ok(())
        }
    }
    for (accident, knee) in [(true, 3_000.0), (false, 300.0)] {
        let mut ramp = RampSearch::new(RampConfig::default());
        climb_ramp(&mut ramp, &mut AccidentStage(0, accident)).unwrap();
        let found = ramp.find_ramp_knee().unwrap();
        assert!(
            found.stable && found.capacity <= knee && found.capacity * 1.06 > knee,
            "{accident}: {found:?}"
        );
        let (low, high) = found.interval.unwrap();
        assert!(low <= knee && knee <= high);
    }
}

#[test]
fn the_headline_has_the_failures_of_its_steps() {
    // At the knee one login in 2000 fails: the limits allow it, and the report mentions it.
    struct RareFailureStage;
    impl RampStepRunner for RareFailureStage {
        type Error = ();
        fn run_step(&mut self, rate: f64) -> Result<RampStep, ()> {
            let mut sum = latency_stats(Duration::from_millis(1), u64::from(rate <= 1_000.0));
            (0..19).for_each(|_| {
                sum.add(&latency_stats(Duration::from_millis(1), 33 * u64::from(rate > 1_000.0)))
            });
            Ok(RampStep::new(rate, 1.0, sum, None))
        }
        fn on_step_judged(&mut self, _: &RampStep) -> Result<(), ()> {
            Ok(())
        }
    }
    let mut ramp = RampSearch::new(RampConfig::default());
    climb_ramp(&mut ramp, &mut RareFailureStage).unwrap();
    let knee = ramp.find_ramp_knee().unwrap();
    assert!(knee.capacity <= 1_000.0);
    assert_eq!(knee.tally.failure_count(LoginFailure::Timeout), knee.steps as u64);
    assert!((knee.tally.success_ratio() - 0.9995).abs() < 1e-9);
}

#[test]
fn a_generator_at_its_limit_makes_the_knee_a_bound() {
    let ramp = run_search(TestRampServer { reach: 700.0, ..test_server(5_000.0) }, RampConfig::default());
    let knee = ramp.find_ramp_knee().unwrap();
    assert!(
        knee.capacity <= 700.0 && knee.bound == Some(GeneratorLimitCause::Late { p99_s: 1.0 }),
        "{knee:?}"
    );
    assert!(
        run_search(TestRampServer { reach: 9_000.0, ..test_server(5_000.0) }, RampConfig::default())
            .find_ramp_knee()
            .unwrap()
            .bound
            .is_none()
    );
}

#[test]
fn an_interrupted_step_counts_for_nothing() {
    let mut ramp = RampSearch::new(RampConfig::default());
    ramp.add_ramp_step(RampStep::new(100.0, 1.0, latency_stats(Duration::from_millis(1), 0), None));
    let cut = RampStep {
        interrupted: true,
        ..RampStep::new(200.0, 0.2, latency_stats(Duration::from_millis(1), 0), None)
    };
    ramp.add_ramp_step(cut);
    assert!(!ramp.is_over() && ramp.next_rate() == Some(200.0));
    assert_eq!(ramp.find_ramp_knee().unwrap().capacity, 100.0);
}
