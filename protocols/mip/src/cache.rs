//! The other side: who is to be reached where (the Binding Cache, RFC 6275 §9.1).

use crate::message::{BindingAcknowledgement, BindingUpdate, Lifetime, MobilityOption, Status};
use crate::packet::{inner, outer};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{Duration, Instant};

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

/// The bindings of the home addresses that this node serves: no more than these are ever kept.
#[derive(Clone, Debug)]
pub struct BindingCache {
    longest: Duration,
    served: BTreeMap<IpAddr, Option<Binding>>,
}

impl BindingCache {
    /// A cache for these home addresses that grants a lifetime of `longest` at most.
    #[must_use]
    pub fn new(homes: &[IpAddr], longest: Duration) -> Self {
        Self { longest, served: homes.iter().map(|home| (home.to_canonical(), None)).collect() }
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
    /// acknowledgement is to be sent where the update asks for it ([`BindingUpdate::acknowledge`]) or is refused.
    ///
    /// An update for the home address itself, or with a lifetime of zero, removes the binding. Where there is none, or
    /// none any more, any sequence number is taken.
    pub fn update(
        &mut self,
        now: Instant,
        home: IpAddr,
        source: IpAddr,
        update: &BindingUpdate,
    ) -> BindingAcknowledgement {
        let home = home.to_canonical();
        let answer = |status, sequence, lifetime| BindingAcknowledgement {
            status,
            key_management: false,
            sequence,
            lifetime,
            options: Vec::new(),
        };
        let Some(entry) = self.served.get_mut(&home) else {
            return answer(Status::NOT_HOME_AGENT, update.sequence, Lifetime(0));
        };
        let stale = |b: &&Binding| b.until > now && (update.sequence.wrapping_sub(b.sequence) as i16) <= 0;
        if let Some(last) = entry.as_ref().filter(stale) {
            return answer(Status::SEQUENCE_OUT_OF_WINDOW, last.sequence, Lifetime(0));
        }
        let alternate = update.options.iter().find_map(|option| match option {
            MobilityOption::AlternateCareOf(address) => Some(*address),
            _ => None,
        });
        let care_of = outer(alternate.unwrap_or(inner(source)));
        let granted = update.lifetime.min(Lifetime::within(self.longest));
        let granted = if care_of == home { Lifetime(0) } else { granted };
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
        let ack = cache.update(secs(0), address(1), address(2), &update(1, 5));
        assert_eq!((ack.status, ack.sequence, ack.lifetime), (Status::ACCEPTED, 1, Lifetime(5)));
        assert_eq!(cache.locate(secs(19), address(1)), address(2));
        assert_eq!(cache.locate(secs(20), address(1)), address(1));
        let ack = cache.update(secs(20), address(1), address(2), &update(2, 500));
        assert_eq!(ack.lifetime, Lifetime(10));
        assert_eq!(cache.locate(secs(59), address(1)), address(2));
    }

    #[test]
    fn coming_home_ends_it() {
        let mut cache = cache();
        cache.update(secs(0), address(1), address(2), &update(1, 5));
        let ack = cache.update(secs(1), address(1), address(1), &update(2, 5));
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
            let ack = cache.update(secs(0), address(1), address(3), &update(low, 5));
            assert_eq!((ack.status, ack.sequence), (Status::SEQUENCE_OUT_OF_WINDOW, 65_535));
        }
        let ack = cache.update(secs(0), address(1), address(3), &update(0, 5));
        assert_eq!(ack.status, Status::ACCEPTED);
        assert_eq!(cache.locate(secs(0), address(1)), address(3));
    }

    #[test]
    fn without_a_binding_any_number_will_do() {
        let mut cache = cache();
        let mut status = |at, sequence, lifetime| {
            let ack = cache.update(secs(at), address(1), address(2), &update(sequence, lifetime));
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
        let ack = cache.update(secs(0), address(7), address(2), &update(1, 5));
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
}
