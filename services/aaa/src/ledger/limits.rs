//! Who may come in: the question, the answer and why it is no.

use super::admit::canonical_user_name;
use crate::users::{canonical_name, canonical_station};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_core::Instant;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;

/// Somebody has proved who they are; may they have a session?
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmitRequest {
    /// The name under which accounting will tell of the session; see [`super::record::storable_text`].
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
pub enum AdmissionVerdict {
    /// Yes. What was given is held until the session's Accounting-Start, for [`super::LedgerConfig::admission_timeout`].
    Yes {
        /// For Framed-IP-Address or Framed-IPv6-Address, where a pool was asked for that has addresses.
        address: Option<IpAddr>,
        /// For Framed-IPv6-Prefix, where a pool was asked for that has prefixes.
        prefix: Option<(Ipv6Addr, u8)>,
    },
    /// No.
    No(AdmissionRefusal),
    /// Whoever knows cannot be asked just now.
    Unavailable,
}

/// Why somebody may not come in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum AdmissionRefusal {
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

/// Who is held back from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewLockouts {
    /// Whoever uses the name.
    pub user: bool,
    /// Whoever comes from the station.
    pub station: bool,
}

/// Under which keys failures of a user and of a station are counted; `None` for one who is not known. A name counts as
/// users are kept by it, a station as stations are told apart ([`canonical_station`]).
pub(crate) fn failure_keys(hash: &HashState, user: &[u8], station: &[u8]) -> [Option<u64>; 2] {
    let named = (!user.is_empty()).then(|| hash.hash_one((0_u8, canonical_name(user))));
    let station = canonical_station(station);
    [named, (!station.is_empty()).then(|| hash.hash_one((1_u8, station)))]
}

/// Somebody who was admitted and whose session has not started yet.
#[derive(Clone, Debug)]
pub(super) struct PendingAdmission {
    pub(super) user: Box<str>,
    pub(super) nas: IpAddr,
    pub(super) port: Box<str>,
    pub(super) calling: Box<str>,
    pub(super) address: Option<IpAddr>,
    pub(super) prefix: Option<(Ipv6Addr, u8)>,
}

impl PendingAdmission {
    pub(super) fn leases(&self) -> impl Iterator<Item = Lease> + use<> {
        pool_leases(self.address, self.prefix)
    }
}

/// What of a pool goes with an address and a prefix.
pub(super) fn pool_leases(
    address: Option<IpAddr>,
    prefix: Option<(Ipv6Addr, u8)>,
) -> impl Iterator<Item = Lease> {
    address.map(Lease::Address).into_iter().chain(prefix.map(|(p, n)| Lease::Prefix(p, n)))
}

/// Whether two Calling-Station-Ids name one station ([`canonical_station`]); what names none is no other's.
pub(super) fn same_station(a: &str, b: &str) -> bool {
    let a = canonical_station(a.as_bytes());
    !a.is_empty() && a == canonical_station(b.as_bytes())
}

/// All who were admitted and whose sessions have not started yet, the longest waiting first.
#[derive(Debug)]
pub(super) struct AdmissionTable {
    table: SessionTable<PendingAdmission>,
    by_user: HashMap<u64, Vec<u64>>,
    hash: HashState,
}

impl AdmissionTable {
    pub(super) fn new(hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_user: HashMap::with_hasher(hash.clone()), hash: hash.clone() }
    }
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
    pub(super) fn oldest(&self) -> Option<(u64, Instant)> {
        self.table.oldest_entry()
    }
    pub(super) fn insert(&mut self, now: Instant, held: PendingAdmission) {
        let key = self.hash.hash_one(&*canonical_user_name(&held.user));
        let token = self.table.insert(now, held);
        self.by_user.entry(key).or_default().push(token);
    }
    pub(super) fn remove(&mut self, token: u64) -> Option<PendingAdmission> {
        let held = self.table.remove(token)?;
        let key = self.hash.hash_one(&*canonical_user_name(&held.user));
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
    pub(super) fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = (u64, &'a PendingAdmission)> {
        let user = canonical_user_name(user);
        let tokens = self.by_user.get(&self.hash.hash_one(&*user)).map_or(&[][..], Vec::as_slice);
        let held = tokens.iter().filter_map(|t| Some((*t, self.table.get(*t)?)));
        held.filter(move |(_, h)| canonical_user_name(&h.user) == user)
    }
}
