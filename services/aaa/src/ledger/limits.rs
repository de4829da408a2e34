//! Requests for admission, verdicts and refusals.

use crate::users::{canonical_name, canonical_station_id, canonical_user_name};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::{IpAddr, Ipv6Addr};
use usher_access::pool::Lease;
use usher_core::Instant;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::table::SessionTable;

/// A request to admit an authenticated user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdmitRequest {
    /// User name of the session's accounting. See [`storable_text`](super::storable_text).
    pub user: String,
    /// Simultaneous-Use: maximum sessions of the user over all NASs. `None`: unlimited.
    pub simultaneous: Option<u32>,
    /// Address pool. `None`: no address.
    pub pool: Option<String>,
    /// The NAS. See [`super::NasSessionKey::nas`].
    pub nas: IpAddr,
    /// NAS-Port-Id, or NAS-Port in decimal. Empty: unknown.
    pub port: String,
    /// Calling-Station-Id. Empty: unknown.
    pub calling_station_id: String,
}

/// The verdict on an admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionVerdict {
    /// Admitted. Leases are held until the session's Accounting-Start, for at most
    /// [`super::LedgerConfig::admission_timeout`].
    Yes {
        /// Framed-IP-Address or Framed-IPv6-Address, if the pool has addresses.
        address: Option<IpAddr>,
        /// Framed-IPv6-Prefix, if the pool has prefixes.
        prefix: Option<(Ipv6Addr, u8)>,
    },
    /// Refused.
    No(AdmissionRefusal),
    /// The ledger is unavailable.
    Unavailable,
}

/// The cause of a refused admission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum AdmissionRefusal {
    /// Simultaneous-Use is reached.
    #[error("the user already has the maximum of {allowed} sessions")]
    TooManySessions {
        /// Maximum number of sessions.
        allowed: u32,
    },
    /// The user or the station is locked out.
    #[error("too many failed logins; locked out for a while")]
    TooManyFailures,
    /// The pool is exhausted.
    #[error("the address pool is exhausted")]
    PoolExhausted,
    /// The user's pool is not configured.
    #[error("the user's address pool is not configured")]
    UnknownPool,
    /// The ledger is full.
    #[error("the server has the maximum number of sessions")]
    Full,
}

/// New lockouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NewLockouts {
    /// True if the user name is locked out.
    pub user: bool,
    /// True if the station is locked out.
    pub station: bool,
}

/// Returns the keys under which failed attempts of a user and a station count, `None` for an unknown one. Names and
/// stations count in canonical form ([`canonical_station_id`]).
pub(crate) fn failure_keys(hash: &SeededHashState, user: &[u8], station: &[u8]) -> [Option<u64>; 2] {
    let named = (!user.is_empty()).then(|| hash.hash_one((0_u8, canonical_name(user))));
    let station = canonical_station_id(station);
    [named, (!station.is_empty()).then(|| hash.hash_one((1_u8, station)))]
}

/// An admission whose session has not started.
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
        address_and_prefix_leases(self.address, self.prefix)
    }
}

/// Returns the leases of a pool for an address and a prefix.
pub(super) fn address_and_prefix_leases(
    address: Option<IpAddr>,
    prefix: Option<(Ipv6Addr, u8)>,
) -> impl Iterator<Item = Lease> {
    address.map(Lease::Address).into_iter().chain(prefix.map(|(p, n)| Lease::Prefix(p, n)))
}

/// Pending admissions, the oldest first.
#[derive(Debug)]
pub(super) struct AdmissionTable {
    table: SessionTable<PendingAdmission>,
    by_user: HashMap<u64, Vec<u64>>,
    hash: SeededHashState,
}

impl AdmissionTable {
    pub(super) fn new(hash: &SeededHashState) -> Self {
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
    /// Admissions of a user, the oldest first.
    pub(super) fn of_user<'a>(&'a self, user: &'a str) -> impl Iterator<Item = (u64, &'a PendingAdmission)> {
        let user = canonical_user_name(user);
        let tokens = self.by_user.get(&self.hash.hash_one(&*user)).map_or(&[][..], Vec::as_slice);
        let held = tokens.iter().filter_map(|t| Some((*t, self.table.get(*t)?)));
        held.filter(move |(_, h)| canonical_user_name(&h.user) == user)
    }
}
