//! Ended sessions in memory, so that duplicates of their records need no lookup in the store.

use super::record::{LedgerRecord, UniqueSessionId, subtract_seconds};
use super::session::{LedgerSession, SessionDigest, SessionState};
use crate::store::SessionRow;
use alloc::boxed::Box;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant, WallTime};

/// An ended session.
#[derive(Clone, Debug)]
pub(super) struct EndedSession {
    pub(super) unique: UniqueSessionId,
    pub(super) stop: WallTime,
    /// True if its NAS ended it, false if the ledger did.
    pub(super) is_nas_reported: bool,
    /// True if it ended for lack of records.
    pub(super) stale: bool,
    /// True if the store has no later generation of the Acct-Session-Id.
    pub(super) latest: bool,
    /// Its row, if the store was queried.
    pub(super) row: Option<Box<SessionRow>>,
}

impl EndedSession {
    pub(super) fn from_session(session: &LedgerSession) -> Self {
        Self {
            unique: session.unique,
            stop: session.last,
            is_nas_reported: session.end_state.is_stopped(),
            stale: session.end_state == SessionState::Stale,
            latest: true,
            row: None,
        }
    }
    /// Creates it from a row.
    fn of_row(unique: UniqueSessionId, stop: WallTime, row: SessionRow) -> Self {
        let ending = SessionState::of_row(&row);
        let (told, stale) = (ending.is_stopped(), ending == SessionState::Stale);
        Self {
            unique,
            stop,
            is_nas_reported: told,
            stale,
            latest: unique.next_generation() == unique,
            row: Some(row.into()),
        }
    }
    /// True if the record's session, by its length, started after this one had ended.
    pub(super) fn ended_before_session_of(&self, record: &LedgerRecord, slack: Duration) -> bool {
        let Some(seconds) = record.session_time.filter(|t| *t > 0) else { return false };
        // A stale session may have lasted longer than until its last record, and the session time of a NAS may lag.
        let lag = Duration::from_secs(if self.stale { seconds / 8 } else { 0 });
        subtract_seconds(record.occurred_at, seconds) > self.stop + slack + lag
    }
}

/// A session that is not in the ledger's table.
#[derive(Clone, Debug)]
pub(super) enum StoredSessionLookup {
    /// The store does not have it.
    NotFound,
    /// It has ended.
    Ended(EndedSession),
    /// It has another id: its first record lacked a part of this id, or had more parts.
    Same(UniqueSessionId),
}

/// Minimum capacity: one lookup creates entries of several ids.
const LEAST: usize = 16;

/// A bounded cache. The entry with the oldest record is evicted.
#[derive(Debug)]
pub(super) struct PastSessionCache {
    table: SessionTable<(SessionDigest, StoredSessionLookup)>,
    by_key: HashMap<SessionDigest, u64>,
    most: usize,
}

impl PastSessionCache {
    pub(super) fn new(most: usize, hash: &SeededHashState) -> Self {
        Self { table: SessionTable::new(), by_key: HashMap::with_hasher(hash.clone()), most: most.max(LEAST) }
    }
    pub(super) fn get(&self, key: &SessionDigest) -> Option<&StoredSessionLookup> {
        self.table.get(*self.by_key.get(key)?).map(|(_, past)| past)
    }
    pub(super) fn insert(&mut self, key: SessionDigest, past: StoredSessionLookup) {
        self.remove(&key);
        while self.table.len() >= self.most {
            let Some((gone, _)) = self.table.oldest_entry().and_then(|(t, _)| self.table.remove(t)) else {
                break;
            };
            self.by_key.remove(&gone);
        }
        let token = self.table.insert(Instant::ZERO, (key, past));
        self.by_key.insert(key, token);
    }
    pub(super) fn remove(&mut self, key: &SessionDigest) -> Option<StoredSessionLookup> {
        let token = self.by_key.remove(key)?;
        self.table.remove(token).map(|(_, past)| past)
    }
    /// Adds a result of the store. False if that is an open session.
    pub(super) fn insert_stored_row(&mut self, unique: UniqueSessionId, row: Option<SessionRow>) -> bool {
        let key = unique.session_digest();
        let known = match self.get(&key) {
            Some(StoredSessionLookup::Ended(ended)) => Some(ended.clone()),
            _ => None,
        };
        let past = match (known, row) {
            (None, None) => StoredSessionLookup::NotFound,
            // The store had the row of this session, but it has been deleted.
            (Some(ended), None) if ended.unique == unique => StoredSessionLookup::NotFound,
            (Some(mut ended), None) => {
                ended.latest |= unique == ended.unique.next_generation();
                StoredSessionLookup::Ended(ended)
            }
            // The store may not yet have the end of this session. So the cached end stays and only the row is taken
            // over.
            (Some(mut ended), Some(row)) if ended.unique == unique => {
                ended.row = Some(row.into());
                StoredSessionLookup::Ended(ended)
            }
            (_, Some(row)) => match row.acctstoptime {
                Some(stop) => StoredSessionLookup::Ended(EndedSession::of_row(unique, stop, row)),
                None => return false,
            },
        };
        self.insert(key, past);
        true
    }
}
