//! The Binding Cache of the receiving node (RFC 6275 §9.1).

use crate::message::{BindingAcknowledgement, BindingLifetime, BindingStatus, BindingUpdate, MobilityOption};
use crate::packet::{from_inner_address, to_inner_address};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::address::is_within;
use usher_core::{Duration, Instant, SecureRng};
use usher_crypto::hmac;

/// The binding of a home address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The care-of address.
    pub care_of: IpAddr,
    /// The latest accepted sequence number.
    pub sequence: u16,
    /// When the binding expires.
    pub until: Instant,
}

/// The proof that a care-of address receives packets.
///
/// A Binding Update does not prove that its sender receives at the care-of address. So the first reply to an update
/// that moves a flow is [`BindingStatus::SEQUENCE_OUT_OF_WINDOW`] with a random number. The update is accepted when
/// it returns from the same address with the next number. A station that follows §11.7.3 sends it at once.
///
/// The number is a keyed digest of the two addresses, the time and the count of accepted updates. So it takes no
/// memory that other senders could exhaust. Others can send wrong numbers from a station's address, and a few of them
/// do not invalidate its number.
#[derive(Clone, Debug)]
pub struct CareOfVerificationConfig {
    /// Networks of permitted care-of addresses, with prefix lengths; empty: all.
    pub networks: Vec<(IpAddr, u8)>,
    /// The source of the digest's key.
    pub rng: SecureRng,
}

/// The recent updates of an address without the right number.
#[derive(Clone, Copy, Debug)]
struct UnverifiedUpdateEntry {
    home: IpAddr,
    source: IpAddr,
    /// The sequence number of the latest update that got a reply.
    update_sequence: u16,
    replied_at: Instant,
    /// Number of wrong numbers since.
    misses: u8,
}

impl UnverifiedUpdateEntry {
    fn is_recent(&self, now: Instant) -> bool {
        now.duration_since(self.replied_at) < CHALLENGE_INTERVAL
    }
}

/// Maximum addresses whose wrong numbers are counted. Eviction of the oldest invalidates no number.
const ATTEMPTS: usize = 256;
/// Minimum validity of a number; the maximum is twice as long.
const CHALLENGE: Duration = Duration::from_secs(10);
/// Minimum interval between replies with the number to an address.
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wrong numbers of an address in that interval. After that, the right number is not accepted either: the
/// sender is guessing, at 15 bits or more.
const MISSES: u8 = 8;

/// Computes challenge numbers and counts wrong ones.
#[derive(Clone, Debug)]
struct CareOfAddressVerifier {
    networks: Vec<(IpAddr, u8)>,
    key: [u8; 32],
    attempts: VecDeque<UnverifiedUpdateEntry>,
}

/// The result of checking an update's proof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CareOfVerificationResult {
    Proven,
    /// No proof yet. The reply carries this number.
    Challenge(u16),
    /// No proof, and no reply.
    Silence,
}

impl CareOfAddressVerifier {
    /// Returns the number of an address in one time interval.
    fn challenge_sequence_number(
        &self,
        (home, source): (IpAddr, IpAddr),
        served: &HomeAddressEntry,
        stretch: u64,
    ) -> u16 {
        let octets = |address| to_inner_address(address).octets();
        let (taken, stretch) = (served.accepted_updates.to_be_bytes(), stretch.to_be_bytes());
        let digest = hmac::hmac_sha256(&self.key, &[&octets(home), &octets(source), &taken, &stretch]);
        let drawn = u16::from_be_bytes([digest[0], digest[1]]);
        match served.binding {
            // The number exceeds the latest accepted one, because otherwise the station could not continue from it.
            Some(last) => last.sequence.wrapping_add(0x100 + drawn % 0x7e00),
            None => drawn,
        }
    }

    fn check_proof(
        &mut self,
        now: Instant,
        ends: (IpAddr, IpAddr),
        served: &HomeAddressEntry,
        sequence: u16,
    ) -> CareOfVerificationResult {
        let stretch = now.as_nanos() / CHALLENGE.as_nanos();
        let number = self.challenge_sequence_number(ends, served, stretch);
        let earlier =
            stretch.checked_sub(1).map(|stretch| self.challenge_sequence_number(ends, served, stretch));
        let right = [Some(number), earlier].contains(&Some(sequence.wrapping_sub(1)));
        let place = self.attempts.iter().position(|attempt| (attempt.home, attempt.source) == ends);
        match place.and_then(|place| self.attempts.get_mut(place)).filter(|attempt| attempt.is_recent(now)) {
            Some(attempt) if right && attempt.misses >= MISSES => return CareOfVerificationResult::Silence,
            Some(attempt) if !right => {
                attempt.misses = attempt.misses.saturating_add((sequence != attempt.update_sequence).into());
                return CareOfVerificationResult::Silence;
            }
            _ => {}
        }
        place.map(|place| self.attempts.remove(place));
        if right {
            return CareOfVerificationResult::Proven;
        }
        if self.attempts.len() >= ATTEMPTS {
            self.attempts.pop_front();
        }
        let (home, source) = ends;
        self.attempts.push_back(UnverifiedUpdateEntry {
            home,
            source,
            update_sequence: sequence,
            replied_at: now,
            misses: 0,
        });
        CareOfVerificationResult::Challenge(number)
    }
}

/// A served home address.
#[derive(Clone, Copy, Debug, Default)]
struct HomeAddressEntry {
    /// The latest binding, which can have expired.
    binding: Option<Binding>,
    /// Count of accepted updates. A number is valid for one update.
    accepted_updates: u64,
}

/// The bindings of this node's home addresses. Their number bounds its memory.
#[derive(Clone, Debug)]
pub struct BindingCache {
    longest: Duration,
    served: BTreeMap<IpAddr, HomeAddressEntry>,
    prover: Option<CareOfAddressVerifier>,
}

impl BindingCache {
    /// Creates a cache for these home addresses, which grants lifetimes up to `longest`.
    #[must_use]
    pub fn new(homes: &[IpAddr], longest: Duration) -> Self {
        let served = homes.iter().map(|home| (home.to_canonical(), HomeAddressEntry::default())).collect();
        Self { longest, served, prover: None }
    }
    /// Returns the cache with a required proof of care-of addresses.
    #[must_use]
    pub fn with_care_of_verification(self, proof: Option<CareOfVerificationConfig>) -> Self {
        let prover = proof.map(|CareOfVerificationConfig { networks, mut rng }| CareOfAddressVerifier {
            networks,
            key: rng.random_array(),
            attempts: VecDeque::new(),
        });
        Self { prover, ..self }
    }

    /// Returns the current address of a home address: its care-of address, or itself.
    #[must_use]
    pub fn current_mobile_address(&self, now: Instant, home: IpAddr) -> IpAddr {
        match self.served.get(&home.to_canonical()).and_then(|served| served.binding) {
            Some(binding) if binding.until > now => binding.care_of,
            _ => home,
        }
    }

    /// Handles an update from the address `source` (§9.5.1, §10.3.1) and returns its acknowledgement. The
    /// acknowledgement is sent if the update requests it ([`BindingUpdate::acknowledge`]) or is refused. `None`: no
    /// reply, because the address has sent wrong numbers.
    ///
    /// An update with the home address as care-of address, or with lifetime zero, removes the binding. Without a
    /// valid binding, any sequence number is accepted.
    pub fn apply_update(
        &mut self,
        now: Instant,
        home: IpAddr,
        source: IpAddr,
        update: &BindingUpdate,
    ) -> Option<BindingAcknowledgement> {
        let (home, source) = (home.to_canonical(), source.to_canonical());
        let answer = |status, sequence, lifetime| {
            let options = Vec::new();
            Some(BindingAcknowledgement { status, key_management: false, sequence, lifetime, options })
        };
        let Some(served) = self.served.get_mut(&home) else {
            return answer(BindingStatus::NOT_HOME_AGENT, update.sequence, BindingLifetime(0));
        };
        let live = served.binding.filter(|binding| binding.until > now);
        let stale = |b: &Binding| (update.sequence.wrapping_sub(b.sequence) as i16) <= 0;
        if let Some(last) = live.filter(stale) {
            return answer(BindingStatus::SEQUENCE_OUT_OF_WINDOW, last.sequence, BindingLifetime(0));
        }
        let alternate = update.options.iter().find_map(|option| match option {
            MobilityOption::AlternateCareOf(address) => Some(*address),
            _ => None,
        });
        let care_of = from_inner_address(alternate.unwrap_or(to_inner_address(source)));
        let granted = update.lifetime.min(BindingLifetime::from_duration(self.longest));
        let granted = if care_of == home { BindingLifetime(0) } else { granted };
        let (before, after) = (
            live.map_or(home, |live| live.care_of),
            if granted == BindingLifetime(0) { home } else { care_of },
        );
        if let Some(prover) = self.prover.as_mut().filter(|_| before != after) {
            let allowed = prover.networks.is_empty()
                || after == home
                || prover.networks.iter().any(|network| is_within(after, *network));
            if !allowed
                || alternate.is_some_and(|alternate| {
                    from_inner_address(alternate) != from_inner_address(to_inner_address(source))
                })
            {
                return answer(BindingStatus::PROHIBITED, update.sequence, BindingLifetime(0));
            }
            match prover.check_proof(now, (home, source), served, update.sequence) {
                CareOfVerificationResult::Proven => {}
                CareOfVerificationResult::Challenge(number) => {
                    return answer(BindingStatus::SEQUENCE_OUT_OF_WINDOW, number, BindingLifetime(0));
                }
                CareOfVerificationResult::Silence => return None,
            }
        }
        let until = now + granted.to_duration();
        let binding = Some(Binding { care_of, sequence: update.sequence, until });
        *served = HomeAddressEntry { binding, accepted_updates: served.accepted_updates + 1 };
        answer(BindingStatus::ACCEPTED, update.sequence, granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_address(n: u8) -> IpAddr {
        [10, 0, n, 2].into()
    }
    fn binding_update(sequence: u16, lifetime: u16) -> BindingUpdate {
        BindingUpdate {
            sequence,
            acknowledge: true,
            home_registration: true,
            link_local: false,
            key_management: false,
            lifetime: BindingLifetime(lifetime),
            options: Vec::new(),
        }
    }
    fn at_seconds(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }
    fn test_cache() -> BindingCache {
        BindingCache::new(&[test_address(1)], Duration::from_secs(40))
    }

    #[test]
    fn a_binding_holds_for_its_lifetime() {
        let mut cache = test_cache();
        assert_eq!(cache.current_mobile_address(at_seconds(0), test_address(1)), test_address(1));
        let ack = cache
            .apply_update(at_seconds(0), test_address(1), test_address(2), &binding_update(1, 5))
            .unwrap();
        assert_eq!(
            (ack.status, ack.sequence, ack.lifetime),
            (BindingStatus::ACCEPTED, 1, BindingLifetime(5))
        );
        assert_eq!(cache.current_mobile_address(at_seconds(19), test_address(1)), test_address(2));
        assert_eq!(cache.current_mobile_address(at_seconds(20), test_address(1)), test_address(1));
        let ack = cache
            .apply_update(at_seconds(20), test_address(1), test_address(2), &binding_update(2, 500))
            .unwrap();
        assert_eq!(ack.lifetime, BindingLifetime(10));
        assert_eq!(cache.current_mobile_address(at_seconds(59), test_address(1)), test_address(2));
    }

    #[test]
    fn coming_home_ends_it() {
        let mut cache = test_cache();
        cache.apply_update(at_seconds(0), test_address(1), test_address(2), &binding_update(1, 5));
        let ack = cache
            .apply_update(at_seconds(1), test_address(1), test_address(1), &binding_update(2, 5))
            .unwrap();
        assert_eq!((ack.status, ack.lifetime), (BindingStatus::ACCEPTED, BindingLifetime(0)));
        assert_eq!(cache.current_mobile_address(at_seconds(1), test_address(1)), test_address(1));
        cache.apply_update(at_seconds(1), test_address(1), test_address(2), &binding_update(3, 0));
        assert_eq!(cache.current_mobile_address(at_seconds(1), test_address(1)), test_address(1));
    }

    #[test]
    fn numbers_rise_modulo_their_width() {
        let mut cache = test_cache();
        cache.apply_update(at_seconds(0), test_address(1), test_address(2), &binding_update(65_535, 5));
        for low in [65_535, 65_000, 32_768] {
            let ack = cache
                .apply_update(at_seconds(0), test_address(1), test_address(3), &binding_update(low, 5))
                .unwrap();
            assert_eq!((ack.status, ack.sequence), (BindingStatus::SEQUENCE_OUT_OF_WINDOW, 65_535));
        }
        let ack = cache
            .apply_update(at_seconds(0), test_address(1), test_address(3), &binding_update(0, 5))
            .unwrap();
        assert_eq!(ack.status, BindingStatus::ACCEPTED);
        assert_eq!(cache.current_mobile_address(at_seconds(0), test_address(1)), test_address(3));
    }

    #[test]
    fn without_a_binding_any_number_will_do() {
        let mut cache = test_cache();
        let mut status = |at, sequence, lifetime| {
            let ack = cache
                .apply_update(
                    at_seconds(at),
                    test_address(1),
                    test_address(2),
                    &binding_update(sequence, lifetime),
                )
                .unwrap();
            (ack.status, ack.sequence)
        };
        assert_eq!(status(0, 700, 5), (BindingStatus::ACCEPTED, 700));
        assert_eq!(status(19, 600, 5), (BindingStatus::SEQUENCE_OUT_OF_WINDOW, 700));
        assert_eq!(status(20, 600, 5), (BindingStatus::ACCEPTED, 600));
        assert_eq!(status(21, 601, 0), (BindingStatus::ACCEPTED, 601));
        assert_eq!(status(21, 500, 5), (BindingStatus::ACCEPTED, 500));
    }

    #[test]
    fn strangers_are_not_served() {
        let mut cache = test_cache();
        let ack = cache
            .apply_update(at_seconds(0), test_address(7), test_address(2), &binding_update(1, 5))
            .unwrap();
        assert_eq!(ack.status, BindingStatus::NOT_HOME_AGENT);
        assert_eq!(cache.current_mobile_address(at_seconds(0), test_address(7)), test_address(7));
    }

    #[test]
    fn the_option_names_another_care_of_address() {
        let mut cache = test_cache();
        let mut update = binding_update(1, 5);
        update.options.push(MobilityOption::AlternateCareOf(to_inner_address(test_address(4))));
        cache.apply_update(at_seconds(0), test_address(1), test_address(2), &update);
        assert_eq!(cache.current_mobile_address(at_seconds(0), test_address(1)), test_address(4));
    }

    #[test]
    fn a_care_of_address_needs_its_number_and_an_allowed_network() {
        let proof = CareOfVerificationConfig {
            networks: [(test_address(2), 24), (test_address(4), 24)].into(),
            rng: SecureRng::from_seed([3; 32]),
        };
        let mut cache = test_cache().with_care_of_verification(Some(proof));
        let mut give = |at, from, update: &BindingUpdate| {
            let ack = cache.apply_update(at_seconds(at), test_address(1), test_address(from), update);
            (
                ack.map(|ack| (ack.status, ack.sequence)),
                cache.current_mobile_address(at_seconds(at), test_address(1)),
            )
        };
        let (Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, n)), home) = give(0, 2, &binding_update(1, 9))
        else {
            panic!()
        };
        assert_eq!(home, test_address(1));
        let next = n.wrapping_add(1);
        assert_eq!(
            give(0, 4, &binding_update(next, 9)).1,
            test_address(1),
            "the number was for another address"
        );
        assert_eq!(
            give(0, 2, &binding_update(next, 9)),
            (Some((BindingStatus::ACCEPTED, next)), test_address(2))
        );
        let prohibited = Some((BindingStatus::PROHIBITED, next.wrapping_add(1)));
        assert_eq!(give(1, 7, &binding_update(next.wrapping_add(1), 9)), (prohibited, test_address(2)));
        let mut elsewhere = binding_update(next.wrapping_add(1), 9);
        elsewhere.options.push(MobilityOption::AlternateCareOf(to_inner_address(test_address(4))));
        assert_eq!(give(1, 2, &elsewhere), (prohibited, test_address(2)), "it proves its own address alone");
        // A forger of the station's address cannot end its binding.
        let (Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, n)), at) =
            give(2, 2, &binding_update(next.wrapping_add(1), 0))
        else {
            panic!()
        };
        assert_eq!(at, test_address(2));
        assert!((n.wrapping_sub(next) as i16) > 0, "the station can go on from there");
        let end = n.wrapping_add(1);
        assert_eq!(
            give(2, 2, &binding_update(end, 0)),
            (Some((BindingStatus::ACCEPTED, end)), test_address(1))
        );
    }

    #[test]
    fn guesses_at_numbers_are_few_and_cost_a_bounded_table() {
        let proof = CareOfVerificationConfig { networks: Vec::new(), rng: SecureRng::from_seed([3; 32]) };
        let mut cache = test_cache().with_care_of_verification(Some(proof));
        let answers = (0..=u16::MAX)
            .filter(|n| {
                cache
                    .apply_update(at_seconds(0), test_address(1), test_address(2), &binding_update(*n, 9))
                    .is_some()
            })
            .count();
        assert_eq!(answers, 1, "one number in a second, which so many updates spend");
        assert_eq!(cache.current_mobile_address(at_seconds(0), test_address(1)), test_address(1));
        for n in 0..9999_u32 {
            let from = IpAddr::from(n.to_be_bytes());
            let _ = cache.apply_update(at_seconds(1), test_address(1), from, &binding_update(1, 9));
        }
        assert_eq!(cache.prover.unwrap().attempts.len(), ATTEMPTS);
    }

    /// A forger of a station's new address does not prevent its move.
    #[test]
    fn forged_numbers_do_not_spend_the_number_of_a_station() {
        let proof = CareOfVerificationConfig { networks: Vec::new(), rng: SecureRng::from_seed([3; 32]) };
        let mut cache = test_cache().with_care_of_verification(Some(proof));
        let mut give = |ms, sequence| {
            let now = Instant::ZERO + Duration::from_millis(ms);
            let ack = cache.apply_update(now, test_address(1), test_address(2), &binding_update(sequence, 9));
            ack.map(|ack| (ack.status, ack.sequence))
        };
        let Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, n)) = give(0, 7) else { panic!() };
        for forged in 0..7 {
            assert_eq!(give(10 * (forged + 1), n.wrapping_sub(forged as u16)), None);
        }
        let right = n.wrapping_add(1);
        assert_eq!(give(80, right), Some((BindingStatus::ACCEPTED, right)));
        // More of them prevent it until the address receives a number again.
        assert!(
            matches!(give(90, right.wrapping_add(1)), Some((BindingStatus::ACCEPTED, _))),
            "a refreshment"
        );
        let mut give = |ms, from, update: &BindingUpdate| {
            let now = Instant::ZERO + Duration::from_millis(ms);
            let ack = cache.apply_update(now, test_address(1), test_address(from), update);
            ack.map(|ack| (ack.status, ack.sequence))
        };
        let next = right.wrapping_add(2);
        let Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, n)) = give(100, 3, &binding_update(next, 9)) else {
            panic!()
        };
        for forged in 0..8 {
            assert_eq!(give(101, 3, &binding_update(n.wrapping_sub(forged), 9)), None);
        }
        assert_eq!(give(102, 3, &binding_update(n.wrapping_add(1), 9)), None);
        let Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, n)) = give(1100, 3, &binding_update(next, 9)) else {
            panic!()
        };
        assert!(matches!(
            give(1101, 3, &binding_update(n.wrapping_add(1), 9)),
            Some((BindingStatus::ACCEPTED, _))
        ));
    }

    /// Holds for any number of forged addresses between a number and its repetition.
    #[test]
    fn other_addresses_do_not_displace_a_number() {
        for home in [test_address(1), IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])] {
            let proof = CareOfVerificationConfig { networks: Vec::new(), rng: SecureRng::from_seed([3; 32]) };
            let mut cache =
                BindingCache::new(&[home], Duration::from_secs(40)).with_care_of_verification(Some(proof));
            let ack =
                cache.apply_update(at_seconds(0), home, test_address(2), &binding_update(7, 9)).unwrap();
            for n in 0..1000_u32 {
                let from = IpAddr::from((0xc000_0000 + n).to_be_bytes());
                assert!(cache.apply_update(at_seconds(0), home, from, &binding_update(1, 9)).is_some());
            }
            let next = ack.sequence.wrapping_add(1);
            let ack =
                cache.apply_update(at_seconds(0), home, test_address(2), &binding_update(next, 9)).unwrap();
            assert_eq!(
                (ack.status, cache.current_mobile_address(at_seconds(0), home)),
                (BindingStatus::ACCEPTED, test_address(2))
            );
        }
    }

    /// A number is valid for its address, for 10 s to 20 s, and once.
    #[test]
    fn a_number_is_good_for_one_update_and_some_seconds() {
        let proof = CareOfVerificationConfig { networks: Vec::new(), rng: SecureRng::from_seed([3; 32]) };
        let mut cache = test_cache().with_care_of_verification(Some(proof));
        let give = |cache: &mut BindingCache, at, sequence, lifetime| {
            let ack = cache.apply_update(
                at_seconds(at),
                test_address(1),
                test_address(2),
                &binding_update(sequence, lifetime),
            );
            ack.map(|ack| (ack.status, ack.sequence))
        };
        let number = |cache: &mut BindingCache, at| match give(cache, at, 7, 9) {
            Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, number)) => number,
            other => panic!("{other:?}"),
        };
        let first = number(&mut cache, 9).wrapping_add(1);
        assert_ne!(give(&mut cache, 20, first, 9), Some((BindingStatus::ACCEPTED, first)), "too late");
        let next = number(&mut cache, 29).wrapping_add(1);
        assert_eq!(give(&mut cache, 39, next, 9), Some((BindingStatus::ACCEPTED, next)));
        // The station ends the binding by a number of its own; its earlier update is replayed.
        let Some((BindingStatus::SEQUENCE_OUT_OF_WINDOW, end)) =
            give(&mut cache, 39, next.wrapping_add(1), 0)
        else {
            panic!()
        };
        let end = end.wrapping_add(1);
        assert_eq!(give(&mut cache, 39, end, 0), Some((BindingStatus::ACCEPTED, end)));
        for old in [next, end] {
            assert_ne!(give(&mut cache, 39, old, 9), Some((BindingStatus::ACCEPTED, old)), "a copy");
        }
        assert_eq!(cache.current_mobile_address(at_seconds(39), test_address(1)), test_address(1));
    }
}
