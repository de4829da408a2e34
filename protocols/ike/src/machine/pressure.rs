//! Decides which first requests need a cookie (RFC 7296 §2.6), and which are dropped.
//!
//! The decision depends on the network of the request's source. A flood, real or with forged sources, costs the
//! neighbours of its source one round trip, and other networks nothing.

use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use usher_core::collections::SeededHashState;
use usher_core::{Duration, Instant};

/// Slots of the table. Networks in the same slot share its limits.
const SLOTS: usize = 1024;
/// The costs of a refused first request: 100 a second of one network, 1000 in all.
const REFUSAL: Duration = Duration::from_millis(10);
const REFUSAL_OF_ALL: Duration = Duration::from_millis(1);
/// The debt from which on a network has to return cookies. At ten times as much, its requests are dropped even with
/// cookies.
const DEBT: Duration = Duration::from_secs(1);
/// The cost of a cookie request, and the debt at which no more are sent: 20,000 a second to a network, 5000 at once.
const QUESTION: Duration = Duration::from_micros(50);
const QUESTIONS: Duration = Duration::from_millis(250);

const MINUTE: Duration = Duration::from_secs(60);

fn address_prefix_of_bits(address: Ipv6Addr, bits: u32) -> IpAddr {
    Ipv6Addr::from(u128::from(address) & u128::MAX << (128 - bits)).into()
}

/// Returns the network of an address: an IPv4 /24 or an IPv6 /48. A /48 is the most that one customer may have (RFC
/// 6177 §1): 65,536 networks of 64 bits.
pub(super) fn network_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4) & u32::MAX << 8).into(),
        IpAddr::V6(v6) => address_prefix_of_bits(v6, 48),
    }
}

/// Returns the site of an address: an IPv6 /56, as a household has. IPv4 has no such level.
pub(super) fn site_prefix(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(address_prefix_of_bits(v6, 56)),
    }
}

/// Returns the host of an address: an IPv4 address or an IPv6 /64.
pub(super) fn host_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => address_prefix_of_bits(v6, 64),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A debt that decreases as time passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeakyBucket(Option<Instant>);

impl LeakyBucket {
    pub(super) fn level(self, now: Instant) -> Duration {
        self.0.map_or(Duration::ZERO, |paid| paid.duration_since(now))
    }
    pub(super) fn add_bucket_cost(&mut self, now: Instant, cost: Duration) {
        self.0 = Some(self.0.map_or(now, |paid| paid.max(now)) + cost);
    }
    /// True if the limit of a minute is used up, by a burst or one by one. 0: no limit.
    pub(super) fn is_minute_limit_reached(self, now: Instant, most: u32) -> bool {
        most > 0 && self.level(now) + MINUTE / u64::from(most) > MINUTE
    }
    /// Adds one of them.
    pub(super) fn charge_minute_share(&mut self, now: Instant, most: u32) {
        if most > 0 {
            self.add_bucket_cost(now, MINUTE / u64::from(most));
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct NetworkRequestLoad {
    refusals: LeakyBucket,
    questions: LeakyBucket,
}

/// The recent load of first requests.
#[derive(Debug)]
pub(super) struct FirstRequestLoad {
    hash: SeededHashState,
    all: LeakyBucket,
    /// Empty until the first record.
    slots: alloc::vec::Vec<NetworkRequestLoad>,
}

impl FirstRequestLoad {
    pub(super) fn new(hash: &SeededHashState) -> Self {
        Self { hash: hash.clone(), all: LeakyBucket::default(), slots: alloc::vec::Vec::new() }
    }

    fn slot_index(&self, from: IpAddr) -> usize {
        // The remainder is below `SLOTS` for any hash, so the cast loses nothing.
        (self.hash.hash_one(network_prefix(from)) % SLOTS as u64) as usize
    }
    fn network_pressure(&self, from: IpAddr) -> NetworkRequestLoad {
        self.slots.get(self.slot_index(from)).copied().unwrap_or_default()
    }
    fn slot_mut(&mut self, from: IpAddr) -> &mut NetworkRequestLoad {
        let index = self.slot_index(from);
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, NetworkRequestLoad::default());
        }
        &mut self.slots[index]
    }

    /// Records a first request that failed, possibly after a key exchange.
    pub(super) fn record_refusal(&mut self, now: Instant, from: IpAddr) {
        let before = self.network_pressure(from).refusals.level(now);
        self.slot_mut(from).refusals.add_bucket_cost(now, REFUSAL);
        // If this network already has to return cookies, its failures no longer count toward the limit of all networks.
        if before < DEBT {
            self.all.add_bucket_cost(now, REFUSAL_OF_ALL);
        }
    }
    /// True if the failures of this network, or of all, require cookies.
    pub(super) fn network_requires_cookies(&self, now: Instant, from: IpAddr) -> bool {
        self.network_pressure(from).refusals.level(now) >= DEBT || self.all.level(now) >= DEBT
    }
    /// True if this network failed so often, despite cookies, that its requests are dropped.
    pub(super) fn is_network_blocked(&self, now: Instant, from: IpAddr) -> bool {
        self.network_pressure(from).refusals.level(now) >= DEBT * 10
    }
    /// True if a cookie request may be sent to this network now.
    pub(super) fn allows_cookie_request(&mut self, now: Instant, from: IpAddr) -> bool {
        let place = self.slot_mut(from);
        let asks = place.questions.level(now) < QUESTIONS;
        if asks {
            place.questions.add_bucket_cost(now, QUESTION);
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use usher_core::SecureRng;
    use usher_core::collections::hash_state;

    fn empty_pressure() -> FirstRequestLoad {
        FirstRequestLoad::new(&hash_state(&mut SecureRng::from_seed([3; 32])))
    }
    fn instant_at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn networks_and_hosts_are_told_apart_by_their_first_bits() {
        let [network, host] =
            [network_prefix, host_prefix].map(|of| move |text: &str| of(text.parse().unwrap()).to_string());
        assert_eq!(network("203.0.113.200"), "203.0.113.0");
        assert_eq!(network("::ffff:203.0.113.200"), "203.0.113.0");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1::");
        assert_eq!(host("203.0.113.200"), "203.0.113.200");
        assert_eq!(host("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let site = |text: &str| site_prefix(text.parse().unwrap()).map(|site| site.to_string());
        assert_eq!(site("2001:db8:1:234:3:4:5:6").as_deref(), Some("2001:db8:1:200::"));
        assert_eq!((site("203.0.113.200"), site("::ffff:203.0.113.200")), (None, None));
    }

    #[test]
    fn what_came_to_nothing_is_forgiven_by_time() {
        let mut pressure = empty_pressure();
        let [here, there]: [IpAddr; 2] = ["203.0.113.7", "198.51.100.7"].map(|text| text.parse().unwrap());
        for n in 0..100 {
            assert!(!pressure.network_requires_cookies(instant_at(0), here), "{n}");
            pressure.record_refusal(instant_at(0), here);
        }
        assert!(
            pressure.network_requires_cookies(instant_at(0), here)
                && !pressure.network_requires_cookies(instant_at(0), there)
        );
        assert!(!pressure.network_requires_cookies(instant_at(1), here), "a millisecond later");
        for _ in 0..900 {
            pressure.record_refusal(instant_at(0), here);
        }
        assert!(
            pressure.is_network_blocked(instant_at(0), here)
                && !pressure.is_network_blocked(instant_at(1), here)
        );
        assert!(
            !pressure.network_requires_cookies(instant_at(0), there),
            "one network alone is no flood of all"
        );
        assert!(!pressure.is_network_blocked(instant_at(0), there));
    }

    #[test]
    fn so_many_a_minute_are_so_many_at_once_or_one_after_another() {
        let mut debt = LeakyBucket::default();
        let mut takes = |millis: u64, most: u32| {
            let takes = !debt.is_minute_limit_reached(instant_at(millis), most);
            if takes {
                debt.charge_minute_share(instant_at(millis), most);
            }
            takes
        };
        assert_eq!((0..300).filter(|_| takes(0, 240)).count(), 240);
        assert!(takes(250, 240) && !takes(499, 240) && takes(500, 240), "four a second");
        assert!((0..1000).all(|_| takes(500, 0)), "no limit");
    }

    #[test]
    fn a_flood_from_everywhere_presses_all() {
        let mut pressure = empty_pressure();
        let elsewhere: IpAddr = "198.51.100.7".parse().unwrap();
        for n in 0..1000u32 {
            assert!(!pressure.network_requires_cookies(instant_at(0), elsewhere), "{n}");
            pressure.record_refusal(instant_at(0), Ipv4Addr::from(n << 8).into());
        }
        assert!(
            pressure.network_requires_cookies(instant_at(0), elsewhere)
                && !pressure.is_network_blocked(instant_at(0), elsewhere)
        );
        assert!(!pressure.network_requires_cookies(instant_at(1), elsewhere));
    }

    #[test]
    fn so_many_are_asked_for_a_cookie_and_no_more() {
        let mut pressure = empty_pressure();
        let [here, there]: [IpAddr; 2] = ["203.0.113.7", "198.51.100.7"].map(|text| text.parse().unwrap());
        let asked = (0..20_000).filter(|_| pressure.allows_cookie_request(instant_at(0), here)).count();
        assert_eq!(asked, 5000);
        assert!(pressure.allows_cookie_request(instant_at(0), there));
        let asked = (0..20_000).filter(|_| pressure.allows_cookie_request(instant_at(100), here)).count();
        assert_eq!(asked, 2000, "20 for each millisecond");
    }
}
