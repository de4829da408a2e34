//! Positions of stations: points in a plane, and straight lines at constant speed.

use usher_core::{Duration, Instant};

/// A point in the plane, in metres.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Position {
    /// Metres eastwards.
    pub x: f64,
    /// Metres northwards.
    pub y: f64,
}

impl Position {
    /// Returns the metres between two points.
    #[must_use]
    pub fn distance_to(self, other: Self) -> f64 {
        let (x, y) = (self.x - other.x, self.y - other.y);
        libm::sqrt(x * x + y * y)
    }
}

/// An endless straight movement at constant speed. The default is fixed at the origin.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Trajectory {
    /// Position until the departure.
    pub start: Position,
    /// Metres per second, eastwards and northwards.
    pub velocity: (f64, f64),
    /// Time of the departure.
    pub departs: Instant,
}

impl Trajectory {
    /// Creates a fixed position.
    #[must_use]
    pub fn fixed_at(at: Position) -> Self {
        Self { start: at, ..Self::default() }
    }

    /// Returns the position at a time.
    #[must_use]
    pub fn position_at(&self, time: Instant) -> Position {
        let seconds = time.duration_since(self.departs).as_secs_f64();
        Position { x: self.start.x + self.velocity.0 * seconds, y: self.start.y + self.velocity.1 * seconds }
    }

    /// Returns the distance from a point at a time, in metres.
    #[must_use]
    pub fn distance_at(&self, from: Position, at: Instant) -> f64 {
        self.position_at(at).distance_to(from)
    }

    /// Returns the time of the smallest distance to a point: the departure, if the trajectory is fixed or moves away.
    #[must_use]
    pub fn closest_time(&self, to: Position) -> Instant {
        let (x, y) = (self.start.x - to.x, self.start.y - to.y);
        let (u, v) = self.velocity;
        let (squared, towards) = (u * u + v * v, -(x * u + y * v));
        if squared > 0.0 && towards > 0.0 {
            self.time_after_departure(towards / squared).unwrap_or(Instant::FAR_FUTURE)
        } else {
            self.departs
        }
    }

    /// Returns the time this many seconds after the departure; `None` if the clock cannot represent it.
    fn time_after_departure(&self, seconds: f64) -> Option<Instant> {
        let nanos = libm::round(seconds.max(0.0) * 1e9);
        let left = (Instant::FAR_FUTURE.as_nanos() - self.departs.as_nanos()) as f64;
        (nanos < left).then(|| self.departs + Duration::from_nanos(nanos as u64))
    }

    /// Returns when it enters a circle and when it leaves it, to the nearest nanosecond. A trajectory that starts
    /// inside or on the edge does not enter. One that only touches the circle, or is fixed, does neither. Times that
    /// the clock cannot represent are `None`.
    ///
    /// Solves |p + v·τ|² = r², with p from the centre to the start. That is a·τ² + 2b·τ + c = 0 with a = v·v, b
    /// = p·v, c = p·p − r².
    #[must_use]
    pub fn circle_crossings(&self, centre: Position, radius: f64) -> (Option<Instant>, Option<Instant>) {
        let (x, y) = (self.start.x - centre.x, self.start.y - centre.y);
        let (u, v) = self.velocity;
        let (a, b, c) = (u * u + v * v, x * u + y * v, x * x + y * y - radius * radius);
        let discriminant = b * b - a * c;
        let inside = c <= 0.0;
        if a <= 0.0 || (!inside && (b >= 0.0 || discriminant <= 0.0)) || discriminant.is_nan() {
            return (None, None);
        }
        // Compute first the root whose formula has no cancellation, and the other one from the product of both, c / a.
        let root = libm::sqrt(discriminant.max(0.0));
        let (enters, leaves) = if b > 0.0 {
            let sum = -(b + root);
            (sum / a, c / sum)
        } else {
            let sum = root - b;
            (if sum > 0.0 { c / sum } else { 0.0 }, sum / a)
        };
        (if inside { None } else { self.time_after_departure(enters) }, self.time_after_departure(leaves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ORIGIN: Position = Position { x: 0.0, y: 0.0 };

    fn at_seconds(n: f64) -> Instant {
        Instant::from_nanos((n * 1e9) as u64)
    }
    fn moving_from(x: f64, y: f64, velocity: (f64, f64)) -> Trajectory {
        Trajectory { start: Position { x, y }, velocity, departs: Instant::ZERO }
    }

    #[test]
    fn who_walks_through_enters_and_leaves() {
        let t = moving_from(-100.0, 30.0, (2.0, 0.0));
        assert_eq!(t.circle_crossings(ORIGIN, 50.0), (Some(at_seconds(30.0)), Some(at_seconds(70.0))));
        // The circle elsewhere.
        let centre = Position { x: 1000.0, y: 0.0 };
        assert_eq!(t.circle_crossings(centre, 50.0), (Some(at_seconds(530.0)), Some(at_seconds(570.0))));
        // Slantwise: 3-4-5.
        let t = moving_from(-60.0, -80.0, (3.0, 4.0));
        assert_eq!(t.circle_crossings(ORIGIN, 50.0), (Some(at_seconds(10.0)), Some(at_seconds(30.0))));
    }

    #[test]
    fn who_is_inside_leaves_only() {
        let t = moving_from(30.0, 0.0, (1.0, 0.0));
        assert_eq!(t.circle_crossings(ORIGIN, 50.0), (None, Some(at_seconds(20.0))));
        let back = moving_from(30.0, 0.0, (-1.0, 0.0));
        assert_eq!(back.circle_crossings(ORIGIN, 50.0), (None, Some(at_seconds(80.0))));
        let centre = moving_from(0.0, 0.0, (0.0, 1.0));
        assert_eq!(centre.circle_crossings(ORIGIN, 50.0), (None, Some(at_seconds(50.0))));
    }

    #[test]
    fn who_stands_on_the_edge_is_inside() {
        assert_eq!(
            moving_from(50.0, 0.0, (1.0, 0.0)).circle_crossings(ORIGIN, 50.0),
            (None, Some(at_seconds(0.0)))
        );
        assert_eq!(
            moving_from(50.0, 0.0, (-1.0, 0.0)).circle_crossings(ORIGIN, 50.0),
            (None, Some(at_seconds(100.0)))
        );
        assert_eq!(
            moving_from(50.0, 0.0, (0.0, 1.0)).circle_crossings(ORIGIN, 50.0),
            (None, Some(at_seconds(0.0)))
        );
    }

    #[test]
    fn who_only_touches_or_goes_away_does_not_enter() {
        assert_eq!(moving_from(-100.0, 50.0, (1.0, 0.0)).circle_crossings(ORIGIN, 50.0), (None, None));
        assert_eq!(moving_from(-100.0, 60.0, (1.0, 0.0)).circle_crossings(ORIGIN, 50.0), (None, None));
        assert_eq!(moving_from(60.0, 0.0, (1.0, 0.0)).circle_crossings(ORIGIN, 50.0), (None, None));
        assert_eq!(moving_from(100.0, 0.0, (1e-300, 0.0)).circle_crossings(ORIGIN, 50.0), (None, None));
        assert_eq!(moving_from(f64::NAN, 0.0, (1.0, 0.0)).circle_crossings(ORIGIN, 50.0), (None, None));
    }

    #[test]
    fn who_stands_still_crosses_nothing() {
        for x in [0.0, 50.0, 60.0] {
            let t = Trajectory::fixed_at(Position { x, y: 0.0 });
            assert_eq!(t.circle_crossings(ORIGIN, 50.0), (None, None));
            assert_eq!(t.distance_at(ORIGIN, at_seconds(1000.0)), x);
        }
    }

    #[test]
    fn who_departs_later_is_later_everywhere() {
        let t = Trajectory { departs: at_seconds(5.0), ..moving_from(-100.0, 0.0, (10.0, 0.0)) };
        assert_eq!(t.circle_crossings(ORIGIN, 50.0), (Some(at_seconds(10.0)), Some(at_seconds(20.0))));
        assert_eq!(t.position_at(at_seconds(4.0)), t.start);
        assert_eq!(t.position_at(at_seconds(15.0)), ORIGIN);
        assert_eq!(t.distance_at(Position { x: 3.0, y: 4.0 }, at_seconds(15.0)), 5.0);
    }

    #[test]
    fn who_comes_by_is_nearest_where_its_way_is_square() {
        assert_eq!(moving_from(-100.0, 30.0, (2.0, 0.0)).closest_time(ORIGIN), at_seconds(50.0));
        let away = Trajectory { departs: at_seconds(3.0), ..moving_from(10.0, 0.0, (2.0, 0.0)) };
        assert_eq!(away.closest_time(ORIGIN), at_seconds(3.0));
        assert_eq!(Trajectory::default().closest_time(ORIGIN), at_seconds(0.0));
    }

    #[test]
    fn a_time_beyond_the_clock_is_never() {
        // 10^10 m at 10^-9 m/s are 10^19 s.
        assert_eq!(moving_from(0.0, 0.0, (1e-9, 0.0)).circle_crossings(ORIGIN, 1e10), (None, None));
    }

    proptest! {
        #[test]
        fn at_a_crossing_it_is_on_the_circle(
            x in -500.0..500.0f64, y in -500.0..500.0f64, angle in 0.0..std::f64::consts::TAU, speed in 0.1..50.0f64, radius in 1.0..500.0f64,
        ) {
            let t = moving_from(x, y, (speed * libm::cos(angle), speed * libm::sin(angle)));
            let (enters, leaves) = t.circle_crossings(ORIGIN, radius);
            for time in [enters, leaves].into_iter().flatten().filter(|at| *at > Instant::ZERO) {
                prop_assert!((t.distance_at(ORIGIN, time) - radius).abs() < 1e-6);
            }
            prop_assert!(enters <= leaves || leaves.is_none());
            let inside = t.distance_at(ORIGIN, Instant::ZERO) <= radius;
            prop_assert_eq!(inside && leaves.is_none(), false);
            prop_assert_eq!(enters.is_some(), !inside && leaves.is_some());
        }
    }
}
