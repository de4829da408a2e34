//! What becomes of hosts while no AAA server answers.

use crate::login::Granted;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use usher_core::{Duration, Instant, PortId};
use usher_crypto::digest::equal;
use usher_crypto::hmac;
use usher_ppp::pppoe::MacAddress;

/// Hosts that are remembered at most.
const MOST: usize = 65_536;

/// What becomes of hosts while no AAA server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenAway {
    /// They are refused, and sessions end at their time.
    Refuse,
    /// For so long after an AAA server has let a user in by a password (PAP), the same station is let in again by the same name
    /// and password; and sessions whose time is over go on for so long. What a challenge asks for (CHAP, MS-CHAPv2, EAP) the
    /// server alone can judge.
    Grace(Duration),
}

/// A user that an AAA server has let in.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) digest: [u8; 32],
    pub(crate) granted: Granted,
    pub(crate) at: Instant,
}

/// Who a host says it is, and where it is.
type Known = (Vec<u8>, PortId, MacAddress);

/// Where a host is.
pub(crate) type Place = (PortId, MacAddress);

/// What is remembered of what AAA servers have said.
#[derive(Debug)]
pub(crate) struct Grace {
    /// So that what is remembered of passwords is worth nothing elsewhere.
    secret: [u8; 32],
    users: BTreeMap<Known, Remembered>,
    /// Since when no server answers.
    away: Option<Instant>,
}

impl Grace {
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self { secret, users: BTreeMap::new(), away: None }
    }
    pub(crate) fn digest(&self, password: &[u8]) -> [u8; 32] {
        hmac::sha256(&self.secret, &[password])
    }
    /// No server answers a question.
    pub(crate) fn away(&mut self, now: Instant) {
        self.away.get_or_insert(now);
    }
    /// A server answers.
    pub(crate) fn answers(&mut self) {
        self.away = None;
    }
    /// Since when none does.
    pub(crate) const fn since(&self) -> Option<Instant> {
        self.away
    }
    pub(crate) fn remember(
        &mut self,
        now: Instant,
        lasts: Duration,
        (port, address): Place,
        name: &[u8],
        one: Remembered,
    ) {
        if self.users.len() >= MOST {
            self.users.retain(|_, known| known.at + lasts > now);
        }
        let known = (name.to_owned(), port, address);
        if self.users.len() < MOST || self.users.contains_key(&known) {
            self.users.insert(known, one);
        }
    }
    /// What a user was granted lately that shows the same password from the same place.
    pub(crate) fn known(
        &self,
        now: Instant,
        lasts: Duration,
        (port, address): Place,
        name: &[u8],
        digest: &[u8; 32],
    ) -> Option<Granted> {
        let known = self.users.get(&(name.to_owned(), port, address))?;
        let same = equal(&known.digest, digest) && known.at + lasts > now;
        same.then(|| known.granted.clone())
    }

    /// A server does not let a user in: what it granted is void at the place that asked, and elsewhere for the same password.
    pub(crate) fn refused(&mut self, place: Place, name: &[u8], digest: Option<&[u8; 32]>) {
        self.forget(name, |at, known| at == place || digest.is_some_and(|shown| equal(&known.digest, shown)));
    }
    /// A server has ended a session of a user.
    pub(crate) fn disconnected(&mut self, name: &[u8]) {
        self.forget(name, |_, _| true);
    }
    fn forget(&mut self, name: &[u8], void: impl Fn(Place, &Remembered) -> bool) {
        let first = (name.to_owned(), PortId(0), MacAddress([0; 6]));
        let all = self.users.range(first..).take_while(|((known, ..), _)| known == name);
        let gone: Vec<Known> = all
            .filter(|((_, port, address), known)| void((*port, *address), known))
            .map(|(known, _)| known.clone())
            .collect();
        for known in gone {
            self.users.remove(&known);
        }
    }
}
