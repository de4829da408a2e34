//! Rate limits by the generic cell rate algorithm (ITU-T I.371): a token bucket whose state is a single number.

use usher_core::Instant;

/// Fractional bits of a nanosecond in an octet's time: at 100 Gbit/s an octet takes 0.08 ns.
const FRACTION: u32 = 16;
/// The burst in nanoseconds at the rate.
const BURST: u64 = 100_000_000;
/// The minimum burst in octets, so that a packet joined by the kernel passes.
const LEAST_BURST: u64 = 1 << 17;
/// The slowest limit in bit/s, at which the arithmetic still fits 64 bits.
const SLOWEST: u64 = 1000;

/// A rate limit in octets of IP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OctetRateLimiter {
    /// Time of an octet, in units of 2^-16 ns.
    pub(crate) cost: u64,
    /// Nanoseconds by which traffic may be ahead of the rate.
    pub(crate) burst: u64,
    /// The time until which the rate is used up, in nanoseconds.
    until: u64,
}

impl OctetRateLimiter {
    pub(crate) fn new(rate: u64) -> Self {
        let rate = rate.max(SLOWEST);
        let cost = (8_000_000_000u64 << FRACTION) / rate;
        Self { cost, burst: BURST.max(Self::octets_to_nanos(cost, LEAST_BURST)), until: 0 }
    }
    const fn octets_to_nanos(cost: u64, octets: u64) -> u64 {
        ((cost as u128 * octets as u128) >> FRACTION) as u64
    }
    /// Takes the octets if they may pass now; false if they exceed the limit.
    pub(crate) fn take_octets(&mut self, now: Instant, octets: u64) -> bool {
        let now = now.as_nanos();
        let until = self.until.max(now).saturating_add(Self::octets_to_nanos(self.cost, octets));
        let passes = until - now <= self.burst;
        if passes {
            self.until = until;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_more_passes_than_rate_and_burst(
            rate in 10_000u64..20_000_000_000,
            steps in proptest::collection::vec((0u64..2_000_000, 20u64..65_535), 1..400),
        ) {
            let mut bucket = OctetRateLimiter::new(rate);
            let (mut now, mut passed) = (1_000_000, 0u64);
            let begun = now;
            for (later, octets) in steps {
                now += later;
                if bucket.take_octets(Instant::from_nanos(now), octets) {
                    passed += octets;
                }
            }
            let of = |nanos: u64| nanos as f64 * rate as f64 / 8e9;
            let most = of(now - begun) + of(bucket.burst);
            prop_assert!(passed as f64 <= most * 1.001 + 1.0, "{passed} of {most}");
        }
    }

    #[test]
    fn what_keeps_to_the_rate_passes() {
        for rate in [64_000, 100_000_000, 1_000_000_000, 100_000_000_000] {
            let mut bucket = OctetRateLimiter::new(rate);
            let each = 1500 * 8 * 1_000_000_000 / rate + 1;
            assert!((0..10_000).all(|n| bucket.take_octets(Instant::from_nanos(n * each), 1500)), "{rate}");
        }
    }

    #[test]
    fn a_limit_of_nothing_is_the_slowest() {
        assert_eq!(OctetRateLimiter::new(0), OctetRateLimiter::new(SLOWEST));
        assert!(OctetRateLimiter::new(0).take_octets(Instant::from_nanos(0), 65_535));
    }
}
