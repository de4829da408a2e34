//! Time in whole nanoseconds from an epoch that the host chooses.
//!
//! Machines receive the time and never read a clock. The simulator owns an [`Instant`]; live drivers map the monotonic
//! clock to one. Wall-clock time (certificates, Event-Timestamp) is a separate, injected [`WallTime`].

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A span of time in whole nanoseconds (at most about 584 years).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Duration {
    /// The empty span.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// A span of `n` microseconds.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }
    /// A span of `n` milliseconds.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }
    /// A span of `n` seconds.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }
    /// A span of `s` seconds, rounded to the nearest nanosecond. Negative values and NaN give zero; values too large
    /// give [`Duration::MAX`].
    pub fn from_secs_f64(s: f64) -> Self {
        Self(libm::round(s * 1e9) as u64)
    }
    /// Returns whole nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }
    /// Returns whole milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }
    /// Returns whole seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// Returns seconds as a float.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// True if the span is empty.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
    /// Returns the difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
    /// Returns the span times a factor, rounded to the nearest nanosecond. A negative result gives zero.
    pub fn mul_f64(self, factor: f64) -> Self {
        Self(libm::round(self.0 as f64 * factor) as u64)
    }
}

impl Add for Duration {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self(self.0.saturating_add(o.0))
    }
}
impl AddAssign for Duration {
    fn add_assign(&mut self, o: Self) {
        *self = *self + o;
    }
}
impl Sub for Duration {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        self.saturating_sub(o)
    }
}
impl Mul<u64> for Duration {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}
impl Div<u64> for Duration {
    type Output = Self;
    fn div(self, n: u64) -> Self {
        Self(self.0 / n)
    }
}

impl fmt::Display for Duration {
    /// Uses the largest unit that keeps the number at one or above: `1.5 s`, `20 ms`, `8 us`, `3 ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, per) = match self.0 {
            0 => return f.write_str("0 s"),
            1_000_000_000.. => ("s", 1_000_000_000),
            1_000_000.. => ("ms", 1_000_000),
            1_000.. => ("us", 1_000),
            _ => ("ns", 1),
        };
        let (whole, mut part, mut width) = (self.0 / per, self.0 % per, per.ilog10() as usize);
        if part == 0 {
            return write!(f, "{whole} {unit}");
        }
        while part.is_multiple_of(10) {
            part /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{part:0width$} {unit}")
    }
}
impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A point in time: nanoseconds since the host's epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The host's epoch.
    pub const ZERO: Self = Self(0);
    /// A time that never comes.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant `n` nanoseconds after the epoch.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }
    /// Returns nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }
    /// Returns seconds since the epoch, as a float.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// Returns the time from `earlier` to this instant; zero if it is not later.
    pub const fn duration_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
    /// Returns the wall-clock time of this instant, for a wall clock that shows `epoch` at [`Instant::ZERO`].
    pub fn to_wall_time(self, epoch: WallTime) -> WallTime {
        epoch + self.duration_since(Self::ZERO)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}
impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}
impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}
impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}
impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t={}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Wall-clock time, as nanoseconds since 1970-01-01T00:00:00Z, injected beside [`Instant`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WallTime(u64);

impl WallTime {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);

    /// The time `secs` whole seconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }
    /// Returns whole seconds since 1970-01-01T00:00:00Z.
    pub const fn unix_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }
    /// Returns whole microseconds since 1970-01-01T00:00:00Z.
    pub const fn unix_micros(self) -> u64 {
        self.0 / 1000
    }
}
impl fmt::Display for WallTime {
    /// Writes RFC 3339 in UTC with microseconds: `2026-11-22T20:45:12.000250Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.unix_secs() / 86_400, self.unix_secs() % 86_400);
        // The Gregorian calendar in eras of 400 years that begin on 1 March, so that a leap day ends a year.
        let day = days + 719_468;
        let (era, day) = (day / 146_097, day % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month < 3);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = self.unix_micros() % 1_000_000;
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}
impl Add<Duration> for WallTime {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_the_same_in_each_unit() {
        let span = Duration::from_nanos(3_723_004_005_006);
        assert_eq!((span.as_nanos(), span.as_micros()), (3_723_004_005_006, 3_723_004_005));
        assert_eq!((span.as_millis(), span.as_secs()), (3_723_004, 3723));
        assert_eq!((span.as_secs_f64() * 1e3).round(), 3_723_004.0);
        let made =
            [Duration::from_micros(7_000_000), Duration::from_millis(7000), Duration::from_secs_f64(7.0)];
        assert_eq!(made, [Duration::from_secs(7); 3]);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!([-1.0, f64::NAN].map(Duration::from_secs_f64), [Duration::ZERO; 2]);
    }

    #[test]
    fn durations_print_in_their_natural_unit() {
        for (ns, text) in [
            (0, "0 s"),
            (3, "3 ns"),
            (8_000, "8 us"),
            (1_050_000, "1.05 ms"),
            (1_500_000_000, "1.5 s"),
            (30_000_000_000, "30 s"),
        ] {
            assert_eq!(Duration::from_nanos(ns).to_string(), text);
        }
    }

    #[test]
    fn whole_units_are_rounded_down_and_time_does_not_go_below_zero() {
        let long = Duration::from_millis(61_999);
        assert_eq!((long.as_secs(), long.as_millis()), (61, 61_999));
        let at = Instant::ZERO + long;
        assert_eq!(at - Duration::from_millis(1_999), Instant::ZERO + Duration::from_secs(60));
        assert_eq!(at - Duration::from_secs(62), Instant::ZERO);
    }

    /// `date -u -d @SECONDS +%FT%T`.
    #[test]
    fn a_time_of_day_prints_as_rfc_3339_has_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (68_169_599, "1972-02-28T23:59:59"),
            (68_169_600, "1972-02-29T00:00:00"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            let at = WallTime::from_unix_secs(seconds) + Duration::from_micros(250);
            assert_eq!(at.to_string(), [text, ".000250Z"].concat());
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::FAR_FUTURE + Duration::from_secs(1), Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO - Instant::from_nanos(5), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(-1.0), Duration::ZERO);
        assert_eq!(Duration::from_secs_f64(f64::INFINITY), Duration::MAX);
    }
}
