//! The ledger: who is in, since when, with which address, and who may come in. A plain struct without a clock and
//! without input or output: its host gives it records and questions, and writes what it says to a
//! [`Store`](crate::store::Store).
//!
//! **A record is acknowledged when it is durable.** [`Ledger::account`] answers
//!
//! - [`Accounting::Durable`]: nothing new, and the store has it; acknowledge;
//! - [`Accounting::Write`]`(n)`: acknowledge when what bears the number `n` is written;
//! - [`Accounting::Ask`]: ask the store for that session, tell the ledger by [`Ledger::answer`], give the record again;
//! - [`Accounting::Busy`]: there is no room; do not acknowledge.
//!
//! What is to be written waits in the ledger. The host takes it by [`Ledger::changes`], writes it by one
//! [`Store::write`](crate::store::Store::write) and says by [`Ledger::settle`] whether that was done; everything up to
//! the number that `changes` gave is then durable, or is given again, in its order, by the next `changes`. So many
//! records become durable by one write, and nothing is forgotten while the store is away:
//!
//! ```text
//! records ─▶ account ─▶ Durable: acknowledge          Write(n): keep n and whom to answer
//!            changes ─▶ Store::write ─▶ settle(Durable): acknowledge all n ≤ through
//!                                       settle(Failed): answer none of them; they come again
//! ```
//!
//! [`Ledger::commit`] does the second half, [`Ledger::serve`] all of it for one record.
//!
//! A change is a session's row as it is then, under a key of its own, so that writing it twice does no harm; a
//! retransmission of a record that is not durable yet gets the number of the write that waits or is under way.

mod limits;
mod pool;
mod record;

pub use limits::{Admission, AdmitRequest, FailureLimit, Refusal};
pub use pool::{PoolConfig, Range};
pub use record::{BadRecord, Record, SessionKey, Status, Unique, text};

use crate::store::{Change, SessionRow, Store, StoreError};
use alloc::vec::Vec;
use core::net::IpAddr;
use usher_core::{Duration, Instant, WallTime};

/// What a ledger is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerConfig {
    /// Address pools.
    pub pools: Vec<PoolConfig>,
    /// How many failed logins hold a user or a station back; `None`: none do.
    pub failures: Option<FailureLimit>,
    /// A session of which nothing was heard for so long has ended, with the cause `Stale-Session`; `None`: never.
    pub stale_after: Option<Duration>,
    /// How long what was admitted waits for its Accounting-Start.
    pub hold: Duration,
    /// How many sessions there may be, open or not yet written.
    pub max_sessions: usize,
    /// For how many ended sessions duplicates are recognised without asking the store.
    pub remembered: usize,
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
            stale_after: None,
            hold: Duration::from_secs(60),
            max_sessions: 1_000_000,
            remembered: 100_000,
            retransmission: Duration::from_secs(60),
            seed: 0,
        }
    }
}

/// What becomes of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accounting {
    /// It says nothing new, and what it says is durable: acknowledge it.
    Durable,
    /// Acknowledge it when what bears this number is durable.
    Write(u64),
    /// The store knows whether this session was there before: ask [`Store::session`](crate::store::Store::session) for
    /// [`Unique::to_string`](alloc::string::ToString), tell [`Ledger::answer`], and give the record again.
    Ask(Unique),
    /// There is no room; do not acknowledge it.
    Busy,
}

usher_core::counters! {
    /// What a ledger did.
    pub struct Counters {
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
        /// Sessions ended because nothing was heard of them.
        stale,
        /// Records that came before.
        duplicates,
        /// Records that are older than what is known: acknowledged, and not written over it.
        late,
        /// Records without room.
        busy,
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
    counters: Counters,
}

/// What became of a batch of changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Settled {
    /// All are durable.
    Durable,
    /// None are, as far as is known ([`StoreError::Unavailable`]); they are given again.
    Failed,
    /// The store will never take them ([`StoreError::Refused`]); they are not given again until more is told of their
    /// sessions. For a batch of one: of many, others might be taken.
    Refused,
}

/// What [`Ledger::commit`] did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commit {
    /// Up to this number everything was written or refused; `None`: nothing was.
    pub through: Option<u64>,
    /// The numbers that the store refused, in order.
    pub refused: Vec<u64>,
    /// How many changes are durable now that were not.
    pub written: usize,
    /// Why the store did not do, or did not do all, that it was asked.
    pub error: Option<StoreError>,
}

impl Commit {
    /// What became of the record that waits for a number: `Some(true)`: acknowledge it; `Some(false)`: do not, ever;
    /// `None`: it waits on, or where [`Self::error`] is something, is not to be acknowledged, since its sender comes
    /// again.
    #[must_use]
    pub fn durable(&self, number: u64) -> Option<bool> {
        (self.through? >= number).then(|| self.refused.binary_search(&number).is_err())
    }
}

/// Which sessions are looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find<'a> {
    /// Those of this User-Name.
    User(&'a str),
    /// Those of this Acct-Session-Id; looks at every session.
    Id(&'a str),
    /// The one of this acctuniqueid.
    Unique(Unique),
    /// Those that have this address.
    Address(IpAddr),
    /// Those of this NAS.
    Nas(IpAddr),
}

impl Ledger {
    /// A ledger without sessions.
    #[must_use]
    pub fn new(config: LedgerConfig) -> Self {
        Self { config, counters: Counters::default() }
    }
    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Takes an open session from the store, at start, before the first record. All that are open there must be given.
    /// It is heard of `now`, so that a session whose NAS could not tell of it meanwhile is not stale. False: its
    /// acctuniqueid is none, or there is no room; it is not taken.
    pub fn restore(&mut self, now: Instant, row: &SessionRow) -> bool {
        let _ = (now, row);
        false
    }
    /// May somebody come in who has proved who they are? What is given is held for [`LedgerConfig::hold`]; asking again
    /// for the same user, NAS and station meanwhile gives the same.
    pub fn admit(&mut self, now: Instant, wall: WallTime, request: &AdmitRequest) -> Admission {
        let _ = (now, wall, request);
        Admission::Unavailable
    }
    /// Somebody failed to prove who they are; empty strings are not counted. True: they are held back now.
    pub fn failed(&mut self, now: Instant, user: &str, calling_station_id: &str) -> bool {
        let _ = (now, user, calling_station_id);
        false
    }
    /// Takes a record; see the [module](self) for what to do then.
    pub fn account(&mut self, now: Instant, wall: WallTime, record: &Record) -> Accounting {
        let _ = (now, wall, record);
        self.counters.busy += 1;
        Accounting::Busy
    }
    /// What the store answered to [`Accounting::Ask`].
    pub fn answer(&mut self, now: Instant, unique: Unique, row: Option<SessionRow>) {
        let _ = (now, unique, row);
    }
    /// Appends what is to be written next, in order, at most `most` changes, and gives the number up to which that
    /// makes everything durable; `None` where nothing waits, or where an earlier batch is not settled yet.
    pub fn changes(&mut self, out: &mut Vec<Change>, most: usize) -> Option<u64> {
        let _ = (out, most);
        None
    }
    /// What became of the batch of the last [`Self::changes`].
    pub fn settle(&mut self, settled: Settled) {
        let _ = settled;
    }
    /// Writes what waits, at most `most` changes, by one [`Store::write`]; where the store refuses a change, by one for
    /// each, so that the others are kept. Then answer whoever waits for a number: see [`Commit::durable`].
    pub fn commit(&mut self, store: &mut dyn Store, most: usize) -> Commit {
        let _ = (store, most);
        Commit::default()
    }
    /// Ends stale sessions and forgets what was held for too long. Sessions that end so wait among [`Self::changes`].
    pub fn expire(&mut self, now: Instant, wall: WallTime) {
        let _ = (now, wall);
    }
    /// When [`Self::expire`] has something to do.
    #[must_use]
    pub fn timeout(&self) -> Option<Instant> {
        None
    }
    /// How many sessions are open.
    #[must_use]
    pub fn len(&self) -> usize {
        0
    }
    /// True without any open session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The open sessions, in an order that depends on nothing but what was told before.
    pub fn sessions(&self) -> impl Iterator<Item = SessionRow> + '_ {
        core::iter::empty()
    }
    /// The open sessions that are looked for.
    #[must_use]
    pub fn find(&self, which: Find<'_>) -> Vec<SessionRow> {
        let _ = which;
        Vec::new()
    }
    /// Takes a record and makes it durable at once, for hosts that have one store and no threads. True: acknowledge it.
    pub fn serve(&mut self, now: Instant, wall: WallTime, store: &mut dyn Store, record: &Record) -> bool {
        let _ = (now, wall, store, record);
        false
    }
}
