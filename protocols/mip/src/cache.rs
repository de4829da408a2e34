//! The other side: who is to be reached where (the Binding Cache, RFC 6275 §9.1).

use crate::message::{BindingAcknowledgement, BindingUpdate, Lifetime, MobilityOption, Status};
use crate::packet::{inner, outer};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::address::is_within;
use usher_core::{Duration, Instant, SecureRng};

/// Where a home address is to be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// At this address.
    pub care_of: IpAddr,
    /// The last sequence number that was taken.
    pub sequence: u16,
    /// Until then.
    pub until: Instant,
}

/// How an address proves that a station may be reached there.
///
/// Nothing of a Binding Update says that its sender receives at the care-of address. An update that moves a flow is therefore
/// answered first by [`Status::SEQUENCE_OUT_OF_WINDOW`] with a number drawn at random, and taken when it comes again from the
/// same address with the number after that one. Whoever does as §11.7.3 says has it come again at once.
#[derive(Clone, Debug)]
pub struct CareOfProof {
    /// Where a station may go: networks with their lengths; none: anywhere.
    pub networks: Vec<(IpAddr, u8)>,
    /// Where the numbers come from.
    pub rng: SecureRng,
}

/// A number that an address has yet to repeat.
#[derive(Clone, Copy, Debug)]
struct CareOfChallenge {
    home: IpAddr,
    source: IpAddr,
    /// The number of the update that it answered.
    asked: u16,
    number: u16,
    at: Instant,
    /// A wrong number came.
    spent: bool,
}

impl CareOfChallenge {
    fn is_met(&self, now: Instant, sequence: u16) -> bool {
        !self.spent && now.since(self.at) < CHALLENGE && sequence == self.number.wrapping_add(1)
    }
}

/// So many addresses may have to repeat a number at a time; the oldest gives way.
const CHALLENGES: usize = 256;
/// How long a number is good for.
const CHALLENGE: Duration = Duration::from_secs(10);
/// How soon a number is followed by another: an address has one guess, at 15 bits or more, in this time.
const GUESS: Duration = Duration::from_secs(1);

/// The bindings of the home addresses that this node serves: no more than these are ever kept.
#[derive(Clone, Debug)]
pub struct BindingCache {
    longest: Duration,
    served: BTreeMap<IpAddr, Option<Binding>>,
    proof: Option<CareOfProof>,
    challenges: VecDeque<CareOfChallenge>,
}

impl BindingCache {
    /// A cache for these home addresses that grants a lifetime of `longest` at most.
    #[must_use]
    pub fn new(homes: &[IpAddr], longest: Duration) -> Self {
        let served = homes.iter().map(|home| (home.to_canonical(), None)).collect();
        Self { longest, served, proof: None, challenges: VecDeque::new() }
    }
    /// The same cache, where an update that moves a flow proves its address.
    #[must_use]
    pub fn with_proof(self, proof: Option<CareOfProof>) -> Self {
        Self { proof, ..self }
    }

    /// Where a home address is to be reached now: at its care-of address, or at itself.
    #[must_use]
    pub fn locate(&self, now: Instant, home: IpAddr) -> IpAddr {
        match self.served.get(&home.to_canonical()) {
            Some(Some(binding)) if binding.until > now => binding.care_of,
            _ => home,
        }
    }

    /// Takes an update that came from the address `source` (§9.5.1, §10.3.1), and says what to acknowledge. The
    /// acknowledgement is to be sent where the update asks for it ([`BindingUpdate::acknowledge`]) or is refused. `None`: the
    /// address has had its guess at a number, and is not answered.
    ///
    /// An update for the home address itself, or with a lifetime of zero, removes the binding. Where there is none, or
    /// none any more, any sequence number is taken.
    pub fn update(
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
        let Some(entry) = self.served.get_mut(&home) else {
            return answer(Status::NOT_HOME_AGENT, update.sequence, Lifetime(0));
        };
        let live = entry.filter(|binding| binding.until > now);
        let stale = |b: &Binding| (update.sequence.wrapping_sub(b.sequence) as i16) <= 0;
        if let Some(last) = live.filter(stale) {
            return answer(Status::SEQUENCE_OUT_OF_WINDOW, last.sequence, Lifetime(0));
        }
        let alternate = update.options.iter().find_map(|option| match option {
            MobilityOption::AlternateCareOf(address) => Some(*address),
            _ => None,
        });
        let care_of = outer(alternate.unwrap_or(inner(source)));
        let granted = update.lifetime.min(Lifetime::within(self.longest));
        let granted = if care_of == home { Lifetime(0) } else { granted };
        let (before, after) =
            (live.map_or(home, |live| live.care_of), if granted == Lifetime(0) { home } else { care_of });
        if let Some(proof) = self.proof.as_mut().filter(|_| before != after) {
            let allowed = proof.networks.is_empty()
                || after == home
                || proof.networks.iter().any(|network| is_within(after, *network));
            if !allowed || alternate.is_some_and(|alternate| outer(alternate) != outer(inner(source))) {
                return answer(Status::PROHIBITED, update.sequence, Lifetime(0));
            }
            let number = match live {
                // Above the last one that was taken, or the station could not go on from it.
                Some(live) => live.sequence.wrapping_add(0x100 + (proof.rng.next_u32() % 0x7e00) as u16),
                None => proof.rng.next_u32() as u16,
            };
            let fresh =
                CareOfChallenge { home, source, asked: update.sequence, number, at: now, spent: false };
            let place = self.challenges.iter().position(|c| (c.home, c.source) == (home, source));
            match place.and_then(|place| self.challenges.get_mut(place)) {
                Some(known) if known.is_met(now, update.sequence) => {}
                Some(known) if now.since(known.at) < GUESS => {
                    known.spent |= update.sequence != known.asked;
                    return None;
                }
                Some(known) => {
                    *known = fresh;
                    return answer(Status::SEQUENCE_OUT_OF_WINDOW, number, Lifetime(0));
                }
                None => {
                    if self.challenges.len() >= CHALLENGES {
                        self.challenges.pop_front();
                    }
                    self.challenges.push_back(fresh);
                    return answer(Status::SEQUENCE_OUT_OF_WINDOW, number, Lifetime(0));
                }
            }
            place.map(|place| self.challenges.remove(place));
        }
        *entry = Some(Binding { care_of, sequence: update.sequence, until: now + granted.duration() });
        answer(Status::ACCEPTED, update.sequence, granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        [10, 0, n, 2].into()
    }
    fn update(sequence: u16, lifetime: u16) -> BindingUpdate {
        BindingUpdate {
            sequence,
            acknowledge: true,
            home_registration: true,
            link_local: false,
            key_management: false,
            lifetime: Lifetime(lifetime),
            options: Vec::new(),
        }
    }
    fn secs(n: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(n)
    }
    fn cache() -> BindingCache {
        BindingCache::new(&[address(1)], Duration::from_secs(40))
    }

    #[test]
    fn a_binding_holds_for_its_lifetime() {
        let mut cache = cache();
        assert_eq!(cache.locate(secs(0), address(1)), address(1));
        let ack = cache.update(secs(0), address(1), address(2), &update(1, 5)).unwrap();
        assert_eq!((ack.status, ack.sequence, ack.lifetime), (Status::ACCEPTED, 1, Lifetime(5)));
        assert_eq!(cache.locate(secs(19), address(1)), address(2));
        assert_eq!(cache.locate(secs(20), address(1)), address(1));
        let ack = cache.update(secs(20), address(1), address(2), &update(2, 500)).unwrap();
        assert_eq!(ack.lifetime, Lifetime(10));
        assert_eq!(cache.locate(secs(59), address(1)), address(2));
    }

    #[test]
    fn coming_home_ends_it() {
        let mut cache = cache();
        cache.update(secs(0), address(1), address(2), &update(1, 5));
        let ack = cache.update(secs(1), address(1), address(1), &update(2, 5)).unwrap();
        assert_eq!((ack.status, ack.lifetime), (Status::ACCEPTED, Lifetime(0)));
        assert_eq!(cache.locate(secs(1), address(1)), address(1));
        cache.update(secs(1), address(1), address(2), &update(3, 0));
        assert_eq!(cache.locate(secs(1), address(1)), address(1));
    }

    #[test]
    fn numbers_rise_modulo_their_width() {
        let mut cache = cache();
        cache.update(secs(0), address(1), address(2), &update(65_535, 5));
        for low in [65_535, 65_000, 32_768] {
            let ack = cache.update(secs(0), address(1), address(3), &update(low, 5)).unwrap();
            assert_eq!((ack.status, ack.sequence), (Status::SEQUENCE_OUT_OF_WINDOW, 65_535));
        }
        let ack = cache.update(secs(0), address(1), address(3), &update(0, 5)).unwrap();
        assert_eq!(ack.status, Status::ACCEPTED);
        assert_eq!(cache.locate(secs(0), address(1)), address(3));
    }

    #[test]
    fn without_a_binding_any_number_will_do() {
        let mut cache = cache();
        let mut status = |at, sequence, lifetime| {
            let ack = cache.update(secs(at), address(1), address(2), &update(sequence, lifetime)).unwrap();
            (ack.status, ack.sequence)
        };
        assert_eq!(status(0, 700, 5), (Status::ACCEPTED, 700));
        assert_eq!(status(19, 600, 5), (Status::SEQUENCE_OUT_OF_WINDOW, 700));
        assert_eq!(status(20, 600, 5), (Status::ACCEPTED, 600));
        assert_eq!(status(21, 601, 0), (Status::ACCEPTED, 601));
        assert_eq!(status(21, 500, 5), (Status::ACCEPTED, 500));
    }

    #[test]
    fn strangers_are_not_served() {
        let mut cache = cache();
        let ack = cache.update(secs(0), address(7), address(2), &update(1, 5)).unwrap();
        assert_eq!(ack.status, Status::NOT_HOME_AGENT);
        assert_eq!(cache.locate(secs(0), address(7)), address(7));
    }

    #[test]
    fn the_option_names_another_care_of_address() {
        let mut cache = cache();
        let mut update = update(1, 5);
        update.options.push(MobilityOption::AlternateCareOf(inner(address(4))));
        cache.update(secs(0), address(1), address(2), &update);
        assert_eq!(cache.locate(secs(0), address(1)), address(4));
    }

    #[test]
    fn an_address_is_believed_when_it_repeats_a_number_and_is_of_its_networks() {
        let proof = CareOfProof {
            networks: [(address(2), 24), (address(4), 24)].into(),
            rng: SecureRng::from_seed([3; 32]),
        };
        let mut cache = cache().with_proof(Some(proof));
        let mut give = |at, from, update: &BindingUpdate| {
            let ack = cache.update(secs(at), address(1), address(from), update);
            (ack.map(|ack| (ack.status, ack.sequence)), cache.locate(secs(at), address(1)))
        };
        let (Some((Status::SEQUENCE_OUT_OF_WINDOW, n)), home) = give(0, 2, &update(1, 9)) else { panic!() };
        assert_eq!(home, address(1));
        let next = n.wrapping_add(1);
        assert_eq!(give(0, 4, &update(next, 9)).1, address(1), "the number was for another address");
        assert_eq!(give(0, 2, &update(next, 9)), (Some((Status::ACCEPTED, next)), address(2)));
        let prohibited = Some((Status::PROHIBITED, next.wrapping_add(1)));
        assert_eq!(give(1, 7, &update(next.wrapping_add(1), 9)), (prohibited, address(2)));
        let mut elsewhere = update(next.wrapping_add(1), 9);
        elsewhere.options.push(MobilityOption::AlternateCareOf(inner(address(4))));
        assert_eq!(give(1, 2, &elsewhere), (prohibited, address(2)), "it proves its own address alone");
        // Whoever forges the station's address cannot end its binding.
        let (Some((Status::SEQUENCE_OUT_OF_WINDOW, n)), at) = give(2, 2, &update(next.wrapping_add(1), 0))
        else {
            panic!()
        };
        assert_eq!(at, address(2));
        assert!((n.wrapping_sub(next) as i16) > 0, "the station can go on from there");
        let end = n.wrapping_add(1);
        assert_eq!(give(2, 2, &update(end, 0)), (Some((Status::ACCEPTED, end)), address(1)));
    }

    #[test]
    fn guesses_at_numbers_are_few_and_cost_a_bounded_table() {
        let proof = CareOfProof { networks: Vec::new(), rng: SecureRng::from_seed([3; 32]) };
        let mut cache = cache().with_proof(Some(proof));
        let answers = (0..=u16::MAX)
            .filter(|n| cache.update(secs(0), address(1), address(2), &update(*n, 9)).is_some())
            .count();
        assert_eq!(answers, 1, "one number in a second, which the second update spends");
        assert_eq!(cache.locate(secs(0), address(1)), address(1));
        for n in 0..9999_u32 {
            let from = IpAddr::from(n.to_be_bytes());
            let _ = cache.update(secs(1), address(1), from, &update(1, 9));
        }
        assert_eq!(cache.challenges.len(), CHALLENGES);
    }
}
