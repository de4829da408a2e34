//! Who may come in: the question, the answer and why it is no.

use super::admit::one_name;
use crate::users::canonical_name;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};
use core::net::{IpAddr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant};

/// Somebody has proved who they are; may they have a session?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmitRequest {
    /// The name under which accounting will tell of the session; see [`super::text`].
    pub user: String,
    /// Simultaneous-Use: how many sessions the user may have, over all NASs; `None`: any number.
    pub simultaneous: Option<u32>,
    /// The pool of the user's address; `None`: none is given.
    pub pool: Option<String>,
    /// The NAS; see [`super::SessionKey::nas`].
    pub nas: IpAddr,
    /// NAS-Port-Id, or NAS-Port in decimal; empty where unknown.
    pub port: String,
    /// Calling-Station-Id; empty where unknown.
    pub calling_station_id: String,
}

/// Whether somebody may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Yes. What was given is held until the session's Accounting-Start, for [`super::LedgerConfig::hold`].
    Yes {
        /// For Framed-IP-Address or Framed-IPv6-Address, where a pool was asked for that has addresses.
        address: Option<IpAddr>,
        /// For Framed-IPv6-Prefix, where a pool was asked for that has prefixes.
        prefix: Option<(Ipv6Addr, u8)>,
    },
    /// No.
    No(Refusal),
    /// Whoever knows cannot be asked just now.
    Unavailable,
}

/// Why somebody may not come in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Refusal {
    /// Simultaneous-Use is reached.
    #[error("the user has as many sessions as are allowed: {allowed}")]
    TooManySessions {
        /// How many are allowed.
        allowed: u32,
    },
    /// Too many failures of this user, or from this station, not long ago.
    #[error("too many failed logins; held back for a while")]
    TooManyFailures,
    /// The pool has nothing left.
    #[error("the address pool has nothing left")]
    PoolExhausted,
    /// The user's pool is not configured.
    #[error("the user's address pool is not configured")]
    UnknownPool,
    /// The ledger holds as many sessions as it may.
    #[error("the server holds as many sessions as it may")]
    Full,
}

/// How many failed logins hold a user or a station back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureLimit {
    /// This many failures …
    pub count: u32,
    /// … within this time …
    pub within: Duration,
    /// … refuse every login for this long.
    pub hold: Duration,
    /// How many users and stations that failed are remembered, beyond which the one that failed longest ago is
    /// forgotten, and how many that are held back, beyond which the one whose time ends first is.
    pub remembered: usize,
}

impl FailureLimit {
    /// So many failures within so long hold back for so long; 65,536 users and stations are remembered.
    #[must_use]
    pub const fn new(count: u32, within: Duration, hold: Duration) -> Self {
        Self { count, within, hold, remembered: 1 << 16 }
    }
}

/// Who is held back from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldBack {
    /// Whoever uses the name.
    pub user: bool,
    /// Whoever comes from the station.
    pub station: bool,
}

/// Under which keys failures of a user and of a station are counted; `None` for one who is not known. A name counts as
/// users are kept by it, a station without what stands between its digits and without capitals.
pub(crate) fn failure_keys(hash: &HashState, user: &[u8], station: &[u8]) -> [Option<u64>; 2] {
    let named = (!user.is_empty()).then(|| hash.hash_one((0_u8, canonical_name(user))));
    let mut hasher = hash.build_hasher();
    hasher.write_u8(1);
    let mut known = false;
    for octet in station.iter().filter(|octet| octet.is_ascii_alphanumeric()) {
        known = true;
        hasher.write_u8(octet.to_ascii_lowercase());
    }
    [named, known.then(|| hasher.finish())]
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    key: u64,
    count: u32,
    since: Instant,
}

/// Failed logins, by user and by station, and who is held back for them.
#[derive(Debug)]
pub(crate) struct Failures {
    limit: FailureLimit,
    /// Who failed less often than the limit; the one that failed longest ago goes first.
    table: SessionTable<Failure>,
    by_key: HashMap<u64, u64>,
    /// Who is held back, and until when. They have room of their own: whoever fails under many names makes the server
    /// forget nobody who is held back, but for as many who are.
    held: HashMap<u64, Instant>,
    /// By when their time is over; one held anew stands here again.
    order: VecDeque<(Instant, u64)>,
}

impl Failures {
    pub(crate) fn new(limit: FailureLimit, hash: &HashState) -> Self {
        let (by_key, held) = (HashMap::with_hasher(hash.clone()), HashMap::with_hasher(hash.clone()));
        Self { limit, table: SessionTable::new(), by_key, held, order: VecDeque::new() }
    }
    /// Counts a failure; true: whoever failed is held back from now on.
    pub(crate) fn failed(&mut self, now: Instant, key: u64) -> bool {
        if self.held(now, key) {
            return false;
        }
        let new = Failure { key, count: 0, since: now };
        let token = match self.by_key.get(&key) {
            Some(token) => *token,
            None => {
                while self.table.len() >= self.limit.remembered.max(1) {
                    let Some(failure) = self.table.oldest().and_then(|(t, _)| self.table.remove(t)) else {
                        break;
                    };
                    self.by_key.remove(&failure.key);
                }
                let token = self.table.insert(now, new);
                self.by_key.insert(key, token);
                token
            }
        };
        self.table.touch(now, token);
        let Some(failure) = self.table.get_mut(token) else { return false };
        if now.since(failure.since) > self.limit.within {
            (failure.count, failure.since) = (0, now);
        }
        failure.count += 1;
        let reached = failure.count >= self.limit.count.max(1);
        if reached {
            self.hold(now, key);
        }
        reached
    }
    /// Holds somebody back, as the limit says.
    pub(crate) fn hold(&mut self, now: Instant, key: u64) {
        self.forget(key);
        let until = now + self.limit.hold;
        self.held.insert(key, until);
        self.order.push_back((until, key));
        self.release(now);
    }
    /// Forgets those whose time is over, and those who have no room.
    fn release(&mut self, now: Instant) {
        while let Some(&(until, key)) = self.order.front() {
            let current = self.held.get(&key) == Some(&until);
            if current && until > now && self.held.len() <= self.limit.remembered.max(1) {
                break;
            }
            if current {
                self.held.remove(&key);
            }
            self.order.pop_front();
        }
    }
    /// Nobody is held back, so that nobody has to be looked for.
    pub(crate) fn none_held(&mut self, now: Instant) -> bool {
        self.release(now);
        self.held.is_empty()
    }
    /// There are failures that a success would make forgotten.
    pub(crate) fn any_counted(&self) -> bool {
        !self.by_key.is_empty()
    }
    pub(crate) fn held(&self, now: Instant, key: u64) -> bool {
        self.held.get(&key).is_some_and(|until| *until > now)
    }
    /// Counts anew after a success.
    pub(crate) fn forget(&mut self, key: u64) {
        if let Some(token) = self.by_key.remove(&key) {
            self.table.remove(token);
        }
    }
}

/// Somebody who was admitted and whose session has not started yet.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) user: Box<str>,
    pub(super) nas: IpAddr,
    pub(super) port: Box<str>,
    pub(super) calling: Box<str>,
    pub(super) address: Option<IpAddr>,
    pub(super) prefix: Option<(Ipv6Addr, u8)>,
}

impl Held {
    pub(super) fn leases(&self) -> impl Iterator<Item = Lease> + use<> {
        leases(self.address, self.prefix)
    }
}

/// What of a pool goes with an address and a prefix.
pub(super) fn leases(address: Option<IpAddr>, prefix: Option<(Ipv6Addr, u8)>) -> impl Iterator<Item = Lease> {
    address.map(Lease::Address).into_iter().chain(prefix.map(|(p, n)| Lease::Prefix(p, n)))
}

/// Whether two Calling-Station-Ids name one station: both name one, and differ at most in capitals and in what stands
/// between the digits.
pub(super) fn same_station(a: &str, b: &str) -> bool {
    fn digits(text: &str) -> impl Iterator<Item = u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase())
    }
    digits(a).next().is_some() && digits(a).eq(digits(b))
}

/// All who were admitted and whose sessions have not started yet, the longest waiting first.
#[derive(Debug)]
pub(super) struct Admitted {
    table: SessionTable<Held>,
    by_user: HashMap<u64, Vec<u64>>,
    hash: HashState,
}

impl Admitted {
    pub(super) fn new(hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_user: HashMap::with_hasher(hash.clone()), hash: hash.clone() }
    }
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
    pub(super) fn oldest(&self) -> Option<(u64, Instant)> {
        self.table.oldest()
    }
    pub(super) fn insert(&mut self, now: Instant, held: Held) {
        let key = self.hash.hash_one(&*one_name(&held.user));
        let token = self.table.insert(now, held);
        self.by_user.entry(key).or_default().push(token);
    }
    pub(super) fn remove(&mut self, token: u64) -> Option<Held> {
        let held = self.table.remove(token)?;
        let key = self.hash.hash_one(&*one_name(&held.user));
        if let Some(tokens) = self.by_user.get_mut(&key) {
            tokens.retain(|t| *t != token);
            if tokens.is_empty() {
                self.by_user.remove(&key);
            }
        }
        Some(held)
    }
    pub(super) fn touch(&mut self, now: Instant, token: u64) {
        self.table.touch(now, token);
    }
    /// Those of a user, in the order in which they were admitted.
    pub(super) fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = (u64, &'a Held)> {
        let user = one_name(user);
        let tokens = self.by_user.get(&self.hash.hash_one(&*user)).map_or(&[][..], Vec::as_slice);
        let held = tokens.iter().filter_map(|t| Some((*t, self.table.get(*t)?)));
        held.filter(move |(_, h)| one_name(&h.user) == user)
    }
}
