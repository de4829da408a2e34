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

/// Where a host is, and who it says it is.
type Known = (PortId, MacAddress, Vec<u8>);

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
        (port, address): (PortId, MacAddress),
        name: &[u8],
        one: Remembered,
    ) {
        if self.users.len() >= MOST {
            self.users.retain(|_, known| known.at + lasts > now);
        }
        let known = (port, address, name.to_owned());
        if self.users.len() < MOST || self.users.contains_key(&known) {
            self.users.insert(known, one);
        }
    }
    /// What a user was granted lately that shows the same password from the same place.
    pub(crate) fn known(
        &self,
        now: Instant,
        lasts: Duration,
        (port, address): (PortId, MacAddress),
        name: &[u8],
        digest: &[u8; 32],
    ) -> Option<Granted> {
        let known = self.users.get(&(port, address, name.to_owned()))?;
        let same = equal(&known.digest, digest) && known.at + lasts > now;
        same.then(|| known.granted.clone())
    }
}
