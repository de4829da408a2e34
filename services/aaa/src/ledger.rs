//! The ledger: who is in, since when, with which address, and who may come in. A plain struct without a clock and
//! without input or output: its host gives it records and questions, and writes what it says to a
//! [`Store`](crate::store::Store).
//!
//! **A record is acknowledged when it is durable.** [`Ledger::apply_record`] answers
//!
//! - [`RecordOutcome::Durable`]: nothing new, and the store has it; acknowledge;
//! - [`RecordOutcome::Write`]`(n)`: acknowledge when what bears the number `n` is written;
//! - [`RecordOutcome::LookupNeeded`]: ask the store for that session, tell the ledger by [`Ledger::apply_stored_row`], give the record again;
//! - [`RecordOutcome::Busy`]: there is no room; do not acknowledge.
//!
//! [`Ledger::apply_record_with`] asks and gives the record again by itself.
//!
//! What is to be written waits in the ledger. The host takes it by [`Ledger::take_changes`], writes it by one
//! [`Store::write`](crate::store::Store::write_changes) and says by [`Ledger::finish_batch`] whether that was done; everything up to
//! the number that `changes` gave is then durable, or is given again, in its order, by the next `changes`. So many
//! records become durable by one write, and nothing is forgotten while the store is away:
//!
//! ```text
//! records ─▶ account ─▶ Durable: acknowledge          Write(n): keep n and whom to answer
//!            changes ─▶ Store::write ─▶ settle(Durable): acknowledge all n ≤ through
//!                                       settle(Failed): answer none of them; they come again
//! ```
//!
//! [`Ledger::commit_changes`] does the second half, [`Ledger::commit_record`] all of it for one record.
//!
//! A change is a session's row as it is then, under a key of its own, so that writing it twice does no harm; a
//! retransmission of a record that is not durable yet gets the number of the write that waits or is under way.

//!
//! An open session takes about 370 octets, all that finds it included, and about 60 more where its address is of a
//! pool (example `ledger_cost`).

mod account;
mod admit;
mod limits;
mod names;
mod past;

mod queue;
mod record;
mod session;
mod shares;
mod table;

pub(crate) use limits::failure_keys;
pub use limits::{AdmissionRefusal, AdmissionVerdict, AdmitRequest, NewLockouts};
pub use record::{
    BadRecord, CLOCK_DIFFERENCE, LedgerRecord, RecordStatus, SessionKey, UniqueSessionId, nas_of, port_of,
    storable_text,
};
pub use usher_access::FailureLimit;
pub(crate) use usher_access::FailureTable;
pub use usher_access::pool::{PoolConfig, PoolError, PoolRange, PoolUse, check_pools};

use crate::store::{SessionRow, StoreError};
use account::NasRestartTable;
use alloc::vec::Vec;
use core::net::IpAddr;
use limits::AdmissionTable;
use past::PastSessionCache;
use queue::ChangeQueue;
use session::{LedgerSession, SessionState};
use table::{LedgerTable, SessionChain};
use usher_access::pool::AddressPools;
use usher_core::collections::HashState;
use usher_core::timer::earliest_deadline;
use usher_core::{Duration, Instant};

/// What a ledger is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerConfig {
    /// Address pools.
    pub pools: Vec<PoolConfig>,
    /// How many failed logins hold a user or a station back; `None`: none do.
    pub failures: Option<FailureLimit>,
    /// Sessions that a user may have at one time, where the user's own Simultaneous-Use does not say; `None`: any number.
    pub simultaneous: Option<u32>,
    /// A session of which nothing was heard for so long has ended, with the cause `Stale-Session`; `None`: never.
    pub stale_after: Option<Duration>,
    /// How long what was admitted waits for its Accounting-Start.
    pub admission_timeout: Duration,
    /// How many sessions there may be, open or not yet written. One client ([`LedgerRecord::client`]) may have nine tenths of
    /// what the others leave.
    pub max_sessions: usize,
    /// For how many ended sessions duplicates are recognised without asking the store.
    pub max_ended_sessions: usize,
    /// A NAS that does not say when something happened may retransmit it, under another identifier, for so long; what
    /// comes later is something else.
    pub retransmission: Duration,
    /// Keys the hash tables, so that nobody outside can choose what collides.
    pub seed: u64,
}

impl Default for LedgerConfig {
    /// No pools and no limits; 60 s from admission to start; a million sessions, 100,000 ended ones remembered; 60 s of
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

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// It says nothing new, and what it says is durable: acknowledge it.
    Durable,
    /// Acknowledge it when what bears this number is durable.
    Write(u64),
    /// The store knows whether this session was there before: ask [`Store::session`](crate::store::Store::find_session) for
    /// [`UniqueSessionId::to_string`](alloc::string::ToString), tell [`Ledger::apply_stored_row`], and give the record again.
    LookupNeeded(UniqueSessionId),
    /// There is no room; do not acknowledge it.
    Busy,
}

usher_core::counters! {
    /// What a ledger did.
    pub struct LedgerCounters {
        /// Sessions begun.
        started,
        /// Interim-Updates taken.
        updated,
        /// Sessions that their NAS ended.
        stopped,
        /// NASs that began anew or went down.
        restarts,
        /// Sessions that ended with their NAS.
        ended_by_restart,
        /// Sessions ended because nothing was heard of them, or because their Acct-Session-Id became another's.
        stale,
        /// Sessions ended by whoever runs the server, since their NAS does not say it.
        forgotten,
        /// Sessions that were thought ended and were not.
        went_on,
        /// Records that came before.
        duplicates,
        /// Records that are older than what is known: acknowledged, and not written over it.
        late,
        /// Records without room.
        busy,
        /// Changes that the store refused.
        refused,
        /// Let in.
        admitted,
        /// Refused: Simultaneous-Use.
        refused_sessions,
        /// Refused: too many failures.
        refused_failures,
        /// Refused: the pool has nothing left, or is not there.
        refused_pool,
    }
}

/// Sessions, pools and limits; see the [module](self).
#[derive(Debug)]
pub struct Ledger {
    config: LedgerConfig,
    table: LedgerTable,
    past: PastSessionCache,
    restarts: NasRestartTable,
    queue: ChangeQueue,
    pools: AddressPools,
    admitted: AdmissionTable,
    failures: Option<FailureTable>,
    counters: LedgerCounters,
    hash: HashState,
}

/// What became of a batch of changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BatchOutcome {
    /// All are durable.
    Durable,
    /// None are, as far as is known ([`StoreError::Unavailable`]); they are given again.
    Failed,
    /// The store will never take them ([`StoreError::Refused`]); they are not given again until more is told of their
    /// sessions. For a batch of one: of many, others might be taken.
    Refused,
}

/// What [`Ledger::commit_changes`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommitReport {
    /// Up to this number everything was written or refused; `None`: nothing was.
    pub last_number: Option<u64>,
    /// The numbers that the store refused, in order.
    pub refused: Vec<u64>,
    /// How many changes are durable now that were not.
    pub written: usize,
    /// Why the store did not do, or did not do all, that it was asked.
    pub error: Option<StoreError>,
}

impl CommitReport {
    /// What became of the record that waits for a number: `Some(true)`: acknowledge it; `Some(false)`: do not, ever;
    /// `None`: it waits on, or where [`Self::error`] is something, is not to be acknowledged, since its sender comes
    /// again.
    #[must_use]
    pub fn is_durable(&self, number: u64) -> Option<bool> {
        (self.last_number? >= number).then(|| self.refused.binary_search(&number).is_err())
    }
}

/// Which sessions are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFilter<'a> {
    /// Those of this User-Name.
    User(&'a str),
    /// Those of this Acct-Session-Id; looks at every session.
    Id(&'a str),
    /// The one of this acctuniqueid.
    Unique(UniqueSessionId),
    /// Those that have this address.
    Address(IpAddr),
    /// Those of this NAS.
    Nas(IpAddr),
}

impl Ledger {
    /// A ledger without sessions. Ranges that do not hold together give nothing; see [`check_pools`].
    #[must_use]
    pub fn new(config: LedgerConfig) -> Self {
        let hash = HashState::with_seed(config.seed);
        Self {
            table: LedgerTable::new(hash.clone()),
            past: PastSessionCache::new(config.max_ended_sessions, &hash),
            restarts: NasRestartTable::new(&hash),
            queue: ChangeQueue::default(),
            pools: AddressPools::new(&config.pools, &hash),
            admitted: AdmissionTable::new(&hash),
            failures: config.failures.map(|limit| FailureTable::new(limit, &hash)),
            counters: LedgerCounters::default(),
            hash,
            config,
        }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &LedgerCounters {
        &self.counters
    }
    /// Takes an open session from the store, at start, before the first record. All that are open there must be given.
    /// It is heard of `now`, so that a session whose NAS could not tell of it meanwhile is not stale. False: its
    /// acctuniqueid is none, or there is no room; it is not taken.
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
    /// Ends stale sessions and forgets what was held for too long. Sessions that end so wait among [`Self::take_changes`].
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
    /// Ends an open session whose NAS will not say that it ended, as of when it was last heard of: what it has of limits and pools
    /// is free again. The number of the write that makes this durable; `None`: no such session is open. A record that its NAS
    /// sends later all the same has it go on.
    pub fn close_session(&mut self, unique: UniqueSessionId) -> Option<u64> {
        let slot = self.table.find_slot(&unique.session_digest())?;
        let session =
            self.table.get(slot).filter(|s| s.end_state == SessionState::Open && s.unique == unique)?;
        let last = session.last;
        self.counters.forgotten += 1;
        self.end_session(slot, last, SessionState::Forgotten, None);
        Some(self.enqueue_session(slot))
    }
    /// When [`Self::expire_sessions`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let held = self.admitted.oldest().map(|(_, since)| since + self.config.admission_timeout);
        let stale = self.config.stale_after.and_then(|after| Some(self.table.oldest()?.1 + after));
        earliest_deadline([held, stale])
    }
    /// How many sessions are open.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.open_count()
    }
    /// True without any open session.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The open sessions, in an order that depends on nothing but what was told before.
    pub fn open_sessions(&self) -> impl Iterator<Item = SessionRow> + '_ {
        self.table.iter().map(LedgerSession::to_row)
    }
    /// The open sessions that are looked for.
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
