//! The ledger: sessions, address pools and limits. A plain struct without a clock and without I/O. Its host passes
//! records and admission requests, and writes the resulting changes to a [`Store`](crate::store::Store).
//!
//! **A record is acknowledged when it is durable.** [`Ledger::apply_record`] returns
//!
//! - [`RecordOutcome::Durable`]: the record is a duplicate and the store has it; acknowledge it.
//! - [`RecordOutcome::Write`]`(n)`: acknowledge it when change `n` is durable.
//! - [`RecordOutcome::LookupNeeded`]: look the session up in the store, pass the result to
//!   [`Ledger::apply_stored_row`], and apply the record again.
//! - [`RecordOutcome::Busy`]: the ledger is full; do not acknowledge it.
//!
//! [`Ledger::apply_record_with`] does the lookup itself.
//!
//! Changes queue in the ledger. The host takes a batch by [`Ledger::take_store_changes`], writes it by one
//! [`Store::write_changes`](crate::store::Store::write_changes) and reports the result by [`Ledger::finish_batch`]. On
//! success all changes up to the returned number are durable. On failure the next batch repeats them in their
//! order. So one write makes many records durable, and an unavailable store loses none:
//!
//! ```text
//! records ─▶ account ─▶ Durable: acknowledge          Write(n): keep n and whom to answer
//!            changes ─▶ Store::write ─▶ settle(Durable): acknowledge all n ≤ through
//!                                       settle(Failed): answer none of them; they come again
//! ```
//!
//! [`Ledger::commit_changes`] does the second half, [`Ledger::commit_record`] all of it for one record.
//!
//! A change is the session's current row under its own key, so writing it twice does no harm. A retransmission of a
//! record that is not yet durable gets the number of the pending write.

//!
//! An open session takes about 370 octets with its table entries, and about 60 more if its address is from a pool
//! (example `ledger_cost`).

mod account;
mod admit;
mod ended_sessions;
mod limits;
mod names;

mod queue;
mod record;
mod session;
mod shares;
mod table;

pub use crate::text::storable_text;
pub(crate) use limits::failure_keys;
pub use limits::{AdmissionRefusal, AdmissionVerdict, AdmitRequest, NewLockouts};
pub use record::{
    AccountingRecordError, AccountingStatusType, CLOCK_DIFFERENCE, LedgerRecord, NasSessionKey,
    UniqueSessionId, nas_of, port_of,
};
pub use usher_access::LoginFailureLimit;
pub(crate) use usher_access::LoginFailureTable;
pub use usher_access::pool::{PoolConfig, PoolError, PoolRange, PoolUse, check_pools};

use crate::store::{SessionRow, StoreError};
use account::NasRestartTable;
use alloc::vec::Vec;
use core::net::IpAddr;
use ended_sessions::PastSessionCache;
use limits::AdmissionTable;
use queue::LedgerChangeQueue;
use session::{LedgerSession, SessionState};
use table::{LedgerTable, SessionChain};
use usher_access::pool::AddressPools;
use usher_core::collections::SeededHashState;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant};

/// Configuration of a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerConfig {
    /// Address pools.
    pub pools: Vec<PoolConfig>,
    /// Failed attempts that lock out a user or a station. `None`: no lockout.
    pub failures: Option<LoginFailureLimit>,
    /// Maximum sessions of a user without an own Simultaneous-Use. `None`: unlimited.
    pub simultaneous: Option<u32>,
    /// A session without records for this long ends with the cause `Stale-Session`. `None`: never.
    pub stale_after: Option<Duration>,
    /// Time from an admission to its Accounting-Start, after which the admission expires.
    pub admission_timeout: Duration,
    /// Maximum number of sessions, open or not yet durable. A client ([`LedgerRecord::client`]) may have nine
    /// tenths of the capacity that others leave.
    pub max_sessions: usize,
    /// Maximum number of ended sessions in memory. Their duplicates are recognised without a lookup in the store.
    pub max_ended_sessions: usize,
    /// How long a NAS may retransmit a record without event time, under another identifier. A later record is a new
    /// one.
    pub retransmission: Duration,
    /// Key of the hash tables, against chosen collisions.
    pub seed: u64,
}

impl Default for LedgerConfig {
    /// No pools and no limits; 60 s from admission to start; 1,000,000 sessions and 100,000 ended ones; 60 s of
    /// retransmission.
    fn default() -> Self {
        Self {
            pools: Vec::new(),
            failures: None,
            simultaneous: None,
            stale_after: None,
            admission_timeout: Duration::from_secs(60),
            max_sessions: 1_000_000,
            max_ended_sessions: 100_000,
            retransmission: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// The result of applying a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// The record is a duplicate, and is durable: acknowledge it.
    Durable,
    /// Acknowledge it when the change of this number is durable.
    Write(u64),
    /// The session must be looked up: call [`Store::find_session`](crate::store::Store::find_session) with
    /// [`UniqueSessionId::to_string`](alloc::string::ToString), then [`Ledger::apply_stored_row`], and apply the
    /// record again.
    LookupNeeded(UniqueSessionId),
    /// The ledger is full: do not acknowledge it.
    Busy,
}

usher_core::counters! {
    /// Counters of a ledger.
    pub struct LedgerCounters {
        /// Sessions begun.
        started,
        /// Interim-Updates applied.
        updated,
        /// Sessions that their NAS ended.
        stopped,
        /// Restarts and shutdowns of NASs.
        restarts,
        /// Sessions ended by a restart or shutdown of their NAS.
        ended_by_restart,
        /// Sessions ended because no records came, or because their Acct-Session-Id was reused.
        stale,
        /// Sessions closed by the operator.
        forgotten,
        /// Sessions that the ledger ended, and reopened when a record came.
        went_on,
        /// Duplicate records.
        duplicates,
        /// Outdated records: acknowledged, but not applied.
        late,
        /// Records not accepted for lack of room.
        busy,
        /// Changes that the store refused.
        refused,
        /// Logins admitted.
        admitted,
        /// Logins refused: `Simultaneous-Use`, or the ledger has its maximum number of sessions.
        refused_sessions,
        /// Logins refused: lockout after failed logins.
        refused_failures,
        /// Logins refused: address pool exhausted or unknown.
        refused_pool,
    }
}

/// Sessions, pools and limits. See the [module](self).
#[derive(Debug)]
pub struct Ledger {
    config: LedgerConfig,
    table: LedgerTable,
    past: PastSessionCache,
    restarts: NasRestartTable,
    queue: LedgerChangeQueue,
    pools: AddressPools,
    admitted: AdmissionTable,
    failures: Option<LoginFailureTable>,
    counters: LedgerCounters,
    hash: SeededHashState,
}

/// The result of writing a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BatchWriteOutcome {
    /// All changes are durable.
    Durable,
    /// As far as known, no change is durable ([`StoreError::Unavailable`]). The next batch repeats them.
    Failed,
    /// The store refuses them permanently ([`StoreError::Refused`]). They are not written again before a further
    /// record of their sessions. Only for a batch of one change: in a larger batch others might be accepted.
    Refused,
}

/// The result of [`Ledger::commit_changes`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommitReport {
    /// Changes up to this number were written or refused. `None`: none.
    pub last_number: Option<u64>,
    /// Numbers of refused changes, ascending.
    pub refused: Vec<u64>,
    /// Number of changes that became durable.
    pub written: usize,
    /// Error of the store, if any change failed.
    pub error: Option<StoreError>,
}

impl CommitReport {
    /// Returns the state of the record that waits for a number. `Some(true)`: acknowledge it. `Some(false)`: never
    /// acknowledge it. `None`: it is pending; with [`Self::error`] do not acknowledge it, since its sender
    /// retransmits.
    #[must_use]
    pub fn record_durability(&self, number: u64) -> Option<bool> {
        (self.last_number? >= number).then(|| self.refused.binary_search(&number).is_err())
    }
}

/// Selects sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter<'a> {
    /// Sessions of this User-Name.
    User(&'a str),
    /// Sessions of this Acct-Session-Id. It scans all sessions.
    Id(&'a str),
    /// The session of this acctuniqueid.
    Unique(UniqueSessionId),
    /// Sessions with this address.
    Address(IpAddr),
    /// Sessions of this NAS.
    Nas(IpAddr),
}

impl Ledger {
    /// Creates a ledger without sessions. Invalid ranges assign no addresses. See [`check_pools`].
    #[must_use]
    pub fn new(config: LedgerConfig) -> Self {
        let hash = SeededHashState::with_seed(config.seed);
        Self {
            table: LedgerTable::new(hash.clone()),
            past: PastSessionCache::new(config.max_ended_sessions, &hash),
            restarts: NasRestartTable::new(&hash),
            queue: LedgerChangeQueue::default(),
            pools: AddressPools::new(&config.pools, &hash),
            admitted: AdmissionTable::new(&hash),
            failures: config.failures.map(|limit| LoginFailureTable::new(limit, &hash)),
            counters: LedgerCounters::default(),
            hash,
            config,
        }
    }
    /// The ledger's counters.
    #[must_use]
    pub const fn counters(&self) -> &LedgerCounters {
        &self.counters
    }
    /// Loads an open session of the store at start, before the first record. All open sessions must be loaded.
    ///
    /// Its stale timer starts `now`, since its NAS could not reach the server meanwhile. Returns false if its
    /// acctuniqueid is invalid or the ledger is full.
    pub fn restore_session(&mut self, now: Instant, row: &SessionRow) -> bool {
        let room = self.table.len() < self.config.max_sessions;
        match self
            .session_of(row)
            .filter(|s| room && self.table.find_slot(&s.unique.session_digest()).is_none())
        {
            Some(session) => {
                self.take_in(now, session);
                true
            }
            None => false,
        }
    }
    fn take_in(&mut self, now: Instant, session: LedgerSession) {
        self.past.remove(&session.unique.session_digest());
        let slot = self.table.insert(now, session);
        self.claim_leases(slot);
    }
    /// Ends stale sessions and expires old entries. [`Self::take_store_changes`] returns the ended sessions.
    pub fn expire_sessions(&mut self, now: Instant) {
        while let Some((token, since)) =
            self.admitted.oldest().filter(|(_, s)| *s + self.config.admission_timeout <= now)
        {
            debug_assert!(since <= now);
            let Some(held) = self.admitted.remove(token) else { break };
            held.leases().for_each(|lease| self.pools.release(lease));
        }
        let Some(after) = self.config.stale_after else { return };
        while let Some((slot, _)) = self.table.oldest().filter(|(_, since)| *since + after <= now) {
            let Some(last) = self.table.get(slot).map(|s| s.last) else { break };
            self.counters.stale += 1;
            self.end_session(slot, last, SessionState::Stale, None);
            self.enqueue_session(slot);
        }
    }
    /// Ends an open session whose NAS will send no Stop, as of its last record. Its limits and leases are free
    /// again. Returns the number of the change, or `None` if the session is not open. A later record of its NAS
    /// reopens the session.
    pub fn close_session(&mut self, unique: UniqueSessionId) -> Option<u64> {
        let slot = self.table.find_slot(&unique.session_digest())?;
        let session =
            self.table.get(slot).filter(|s| s.end_state == SessionState::Open && s.unique == unique)?;
        let last = session.last;
        self.counters.forgotten += 1;
        self.end_session(slot, last, SessionState::Forgotten, None);
        Some(self.enqueue_session(slot))
    }
    /// Returns the time of the next [`Self::expire_sessions`].
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let held = self.admitted.oldest().map(|(_, since)| since + self.config.admission_timeout);
        let stale = self.config.stale_after.and_then(|after| Some(self.table.oldest()?.1 + after));
        earliest_deadline([held, stale])
    }
    /// Number of open sessions.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.open_count()
    }
    /// True if there are no open sessions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Open sessions, in an order that depends only on earlier calls.
    pub fn open_sessions(&self) -> impl Iterator<Item = SessionRow> + '_ {
        self.table.iter().map(LedgerSession::to_row)
    }
    /// Returns the open sessions that match.
    #[must_use]
    pub fn find_sessions(&self, which: SessionFilter<'_>) -> Vec<SessionRow> {
        let rows = |chain: SessionChain<'_>| chain.map(|(_, s)| s.to_row()).collect();
        match which {
            SessionFilter::User(user) => rows(self.table.of_user(user)),
            SessionFilter::Nas(nas) => rows(self.table.of_nas(nas)),
            SessionFilter::Id(id) => {
                self.table.iter().filter(|s| s.id() == id).map(LedgerSession::to_row).collect()
            }
            SessionFilter::Unique(unique) => {
                let session =
                    self.table.find_slot(&unique.session_digest()).and_then(|slot| self.table.get(slot));
                session
                    .filter(|s| s.end_state == SessionState::Open)
                    .map(LedgerSession::to_row)
                    .into_iter()
                    .collect()
            }
            SessionFilter::Address(address @ IpAddr::V4(_)) => rows(self.table.of_address(address)),
            SessionFilter::Address(address @ IpAddr::V6(a)) => {
                let mut found: Vec<_> = rows(self.table.of_address(address));
                let beyond = |length: u8| u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let of_prefix = self.table.iter().filter(|s| {
                    s.address != Some(address)
                        && s.prefix.is_some_and(|(p, n)| (p.to_bits() ^ a.to_bits()) & !beyond(n) == 0)
                });
                found.extend(of_prefix.map(LedgerSession::to_row));
                found
            }
        }
    }
}

#[cfg(test)]
mod tests;
