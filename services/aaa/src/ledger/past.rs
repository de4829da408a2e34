//! Ended sessions that are remembered, so that a record which comes again is known without asking the store.

use super::record::{Record, Unique};
use super::session::{Ending, Key, Session, before};
use crate::store::SessionRow;
use alloc::boxed::Box;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant, WallTime};

/// What is known of an ended session.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) unique: Unique,
    pub(super) stop: WallTime,
    /// Its NAS said that it ended; otherwise the ledger did.
    pub(super) told: bool,
    /// Nobody said so: nothing was heard of it.
    pub(super) stale: bool,
    /// The store has no later use of the same Acct-Session-Id.
    pub(super) latest: bool,
    /// All of it, where the store was asked.
    pub(super) row: Option<Box<SessionRow>>,
}

impl Ended {
    pub(super) fn of(session: &Session) -> Self {
        Self {
            unique: session.unique,
            stop: session.last,
            told: session.ending.told(),
            stale: session.ending == Ending::Stale,
            latest: true,
            row: None,
        }
    }
    /// What a row of an ended session says.
    fn of_row(unique: Unique, stop: WallTime, row: SessionRow) -> Self {
        let ending = Ending::of_row(&row);
        let (told, stale) = (ending.told(), ending == Ending::Stale);
        Self { unique, stop, told, stale, latest: unique.next() == unique, row: Some(row.into()) }
    }
    /// True where a record, by its length, tells of a session that began after this one had ended.
    pub(super) fn is_before(&self, record: &Record, slack: Duration) -> bool {
        let Some(seconds) = record.session_time.filter(|t| *t > 0) else { return false };
        // When a stale session was heard of last is not when it ended, and its NAS's count of seconds may lag behind.
        let lag = Duration::from_secs(if self.stale { seconds / 8 } else { 0 });
        before(record.at, seconds) > self.stop + slack + lag
    }
}

/// What is known of a session that is not in the ledger.
#[derive(Clone, Debug)]
pub(super) enum Past {
    /// The store has none of this name.
    Nothing,
    /// It ended.
    Ended(Ended),
    /// It stands under another name: its first record lacked what this name is made of, or had more.
    Same(Unique),
}

/// Fewer are not enough: what the store says of one record's session stands under several names.
const LEAST: usize = 16;

/// So many of them as are remembered, that of which was heard longest ago going first.
#[derive(Debug)]
pub(super) struct Pasts {
    table: SessionTable<(Key, Past)>,
    by_key: HashMap<Key, u64>,
    most: usize,
}

impl Pasts {
    pub(super) fn new(most: usize, hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_key: HashMap::with_hasher(hash.clone()), most: most.max(LEAST) }
    }
    pub(super) fn get(&self, key: &Key) -> Option<&Past> {
        self.table.get(*self.by_key.get(key)?).map(|(_, past)| past)
    }
    pub(super) fn put(&mut self, key: Key, past: Past) {
        self.remove(&key);
        while self.table.len() >= self.most {
            let Some((gone, _)) = self.table.oldest().and_then(|(t, _)| self.table.remove(t)) else { break };
            self.by_key.remove(&gone);
        }
        let token = self.table.insert(Instant::ZERO, (key, past));
        self.by_key.insert(key, token);
    }
    pub(super) fn remove(&mut self, key: &Key) -> Option<Past> {
        let token = self.by_key.remove(key)?;
        self.table.remove(token).map(|(_, past)| past)
    }
    /// Learns what the store answered; false where that is an open session, which is no past.
    pub(super) fn learn(&mut self, unique: Unique, row: Option<SessionRow>) -> bool {
        let key = unique.key();
        let known = match self.get(&key) {
            Some(Past::Ended(ended)) => Some(ended.clone()),
            _ => None,
        };
        let past = match (known, row) {
            (None, None) => Past::Nothing,
            // Somebody took it out of the store.
            (Some(ended), None) if ended.unique == unique => Past::Nothing,
            (Some(mut ended), None) => {
                ended.latest |= unique == ended.unique.next();
                Past::Ended(ended)
            }
            // The end of this session may not be written yet: what is known here is newer.
            (Some(mut ended), Some(row)) if ended.unique == unique => {
                ended.row = Some(row.into());
                Past::Ended(ended)
            }
            (_, Some(row)) => match row.acctstoptime {
                Some(stop) => Past::Ended(Ended::of_row(unique, stop, row)),
                None => return false,
            },
        };
        self.put(key, past);
        true
    }
}
