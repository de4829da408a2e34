//! The search against servers whose capacity is known.

use super::*;
use crate::tally::{Failure, record};
use usher_core::{Duration, Rng, Seed};

/// A tally of a hundred logins of this latency, some of which timed out.
fn tally(latency: Duration, failed: u64) -> Tally {
    let mut tally = Tally::default();
    for _ in failed..100 {
        record(&mut tally.latency, latency);
    }
    (tally.begun, tally.succeeded, tally.completed) = (100, 100 - failed, 100 - failed);
    tally.fail(Failure::Timeout, failed);
    tally
}

/// A server that keeps up with so many a second, more or less: each step's own capacity varies by this share.
struct Server {
    capacity: f64,
    noise: f64,
    rng: Rng,
    /// Above this rate the generator is late.
    reach: f64,
}

impl Stage for Server {
    type Error = ();
    fn step(&mut self, rate: f64) -> Result<Step, ()> {
        let capacity = self.capacity * (1.0 + self.noise * (2.0 * self.rng.unit() - 1.0));
        let fits = rate <= capacity && rate <= self.reach;
        let limit = (rate > self.reach).then_some(Limit::Late { p99_s: 1.0 });
        let tally =
            if fits { tally(Duration::from_millis(10), 0) } else { tally(Duration::from_secs(3), 33) };
        Ok(Step::new(rate, 1.0, tally, limit))
    }
    fn judged(&mut self, _: &Step) -> Result<(), ()> {
        Ok(())
    }
}

fn server(capacity: f64) -> Server {
    Server { capacity, noise: 0.0, rng: Seed::new(1).stream("server", 0), reach: f64::INFINITY }
}

fn search(mut server: Server, config: RampConfig) -> Ramp {
    let mut ramp = Ramp::new(config);
    climb(&mut ramp, &mut server).unwrap();
    assert!(ramp.steps().len() < 150);
    ramp
}

#[test]
fn the_knee_is_found_to_the_precision_asked_for() {
    for capacity in [130.0, 4_321.0, 250_000.0, 30.0] {
        let ramp = search(server(capacity), RampConfig::default());
        let knee = ramp.knee().unwrap();
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
        let rng = Seed::new(seed).stream("server", 0);
        let ramp = search(
            Server { noise: 0.1, rng, ..server(5_000.0) },
            RampConfig { repeats: 40, ..RampConfig::default() },
        );
        let knee = ramp.knee().unwrap();
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
    let rng = Seed::new(9).stream("server", 0);
    let config = RampConfig { repeats: 3, ..RampConfig::default() };
    let ramp = search(Server { noise: 0.6, rng, ..server(5_000.0) }, config);
    assert!(ramp.steps().iter().filter(|s| s.repeat).count() <= 3);
    let none = search(server(5_000.0), RampConfig { repeats: 0, ..config });
    let knee = none.knee().unwrap();
    assert!(!knee.stable && knee.interval.is_some(), "one turn is no stable knee");
}

#[test]
fn a_search_ends_where_there_is_no_knee() {
    let open = search(server(f64::INFINITY), RampConfig { most: 1_000.0, ..RampConfig::default() });
    assert!(open.is_open());
    let knee = open.knee().unwrap();
    assert_eq!((knee.capacity, knee.interval, open.steps().len()), (1_000.0, None, 5));
    let none = search(server(0.0), RampConfig::default());
    assert!(none.knee().is_none() && !none.is_open());
}

#[test]
fn failures_and_lateness_both_end_a_rate() {
    let config = RampConfig::default();
    assert!(!config.met(&tally(Duration::from_millis(10), 1)), "success decides");
    assert!(!config.met(&Tally::default()), "nothing measured is not in time");
    assert!(!config.met(&tally(Duration::from_millis(101), 0)));
    assert!(config.met(&tally(Duration::from_millis(99), 0)));
}

#[test]
fn one_accident_does_not_end_the_search() {
    struct Hiccup(u32);
    impl Stage for Hiccup {
        type Error = ();
        fn step(&mut self, rate: f64) -> Result<Step, ()> {
            self.0 += 1;
            let failed = if self.0 == 2 || rate > 3_000.0 { 50 } else { 0 };
            Ok(Step::new(rate, 1.0, tally(Duration::from_millis(1), failed), None))
        }
        fn judged(&mut self, _: &Step) -> Result<(), ()> {
            Ok(())
        }
    }
    let mut ramp = Ramp::new(RampConfig::default());
    climb(&mut ramp, &mut Hiccup(0)).unwrap();
    assert!(!ramp.steps()[1].kept_up && ramp.steps()[2].rate == ramp.steps()[1].rate, "it was tried again");
    assert!(ramp.knee().unwrap().capacity > 2_850.0);
}

#[test]
fn a_search_that_began_with_accidents_begins_again() {
    // Two accidents in a row at the second rate: the search ends far below the knee, or above it.
    struct Bad(u32, bool);
    impl Stage for Bad {
        type Error = ();
        fn step(&mut self, rate: f64) -> Result<Step, ()> {
            self.0 += 1;
            let fails =
                if self.1 { (2..=3).contains(&self.0) || rate > 3_000.0 } else { self.0 > 6 && rate > 300.0 };
            Ok(Step::new(rate, 1.0, tally(Duration::from_millis(1), 50 * u64::from(fails)), None))
        }
        fn judged(&mut self, _: &Step) -> Result<(), ()> {
            Ok(())
        }
    }
    for (accident, knee) in [(true, 3_000.0), (false, 300.0)] {
        let mut ramp = Ramp::new(RampConfig::default());
        climb(&mut ramp, &mut Bad(0, accident)).unwrap();
        let found = ramp.knee().unwrap();
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
    // At the knee one login of 2000 fails: that is allowed, and it is told.
    struct Rare;
    impl Stage for Rare {
        type Error = ();
        fn step(&mut self, rate: f64) -> Result<Step, ()> {
            let mut sum = tally(Duration::from_millis(1), u64::from(rate <= 1_000.0));
            (0..19).for_each(|_| sum.add(&tally(Duration::from_millis(1), 33 * u64::from(rate > 1_000.0))));
            Ok(Step::new(rate, 1.0, sum, None))
        }
        fn judged(&mut self, _: &Step) -> Result<(), ()> {
            Ok(())
        }
    }
    let mut ramp = Ramp::new(RampConfig::default());
    climb(&mut ramp, &mut Rare).unwrap();
    let knee = ramp.knee().unwrap();
    assert!(knee.capacity <= 1_000.0);
    assert_eq!(knee.tally.failed(Failure::Timeout), knee.steps as u64);
    assert!((knee.tally.success() - 0.9995).abs() < 1e-9);
}

#[test]
fn a_generator_at_its_limit_makes_the_knee_a_bound() {
    let ramp = search(Server { reach: 700.0, ..server(5_000.0) }, RampConfig::default());
    let knee = ramp.knee().unwrap();
    assert!(knee.capacity <= 700.0 && knee.bound == Some(Limit::Late { p99_s: 1.0 }), "{knee:?}");
    assert!(
        search(Server { reach: 9_000.0, ..server(5_000.0) }, RampConfig::default())
            .knee()
            .unwrap()
            .bound
            .is_none()
    );
}

#[test]
fn an_interrupted_step_counts_for_nothing() {
    let mut ramp = Ramp::new(RampConfig::default());
    ramp.step(Step::new(100.0, 1.0, tally(Duration::from_millis(1), 0), None));
    let cut = Step { interrupted: true, ..Step::new(200.0, 0.2, tally(Duration::from_millis(1), 0), None) };
    ramp.step(cut);
    assert!(!ramp.is_over() && ramp.rate() == Some(200.0));
    assert_eq!(ramp.knee().unwrap().capacity, 100.0);
}
