//! Ended sessions that are remembered, so that a record which comes again is known without asking the store.

use super::record::{LedgerRecord, UniqueSessionId};
use super::session::{LedgerSession, SessionDigest, SessionState, subtract_seconds};
use crate::store::SessionRow;
use alloc::boxed::Box;
use usher_core::collections::{HashMap, HashState};
use usher_core::table::SessionTable;
use usher_core::{Duration, Instant, WallTime};

/// What is known of an ended session.
#[derive(Clone, Debug)]
pub(super) struct EndedSession {
    pub(super) unique: UniqueSessionId,
    pub(super) stop: WallTime,
    /// Its NAS said that it ended; otherwise the ledger did.
    pub(super) is_nas_reported: bool,
    /// Nobody said so: nothing was heard of it.
    pub(super) stale: bool,
    /// The store has no later use of the same Acct-Session-Id.
    pub(super) latest: bool,
    /// All of it, where the store was asked.
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
    /// What a row of an ended session says.
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
    /// True where a record, by its length, tells of a session that began after this one had ended.
    pub(super) fn is_before(&self, record: &LedgerRecord, slack: Duration) -> bool {
        let Some(seconds) = record.session_time.filter(|t| *t > 0) else { return false };
        // When a stale session was heard of last is not when it ended, and its NAS's count of seconds may lag behind.
        let lag = Duration::from_secs(if self.stale { seconds / 8 } else { 0 });
        subtract_seconds(record.occurred_at, seconds) > self.stop + slack + lag
    }
}

/// What is known of a session that is not in the ledger.
#[derive(Clone, Debug)]
pub(super) enum PastSession {
    /// The store has none of this name.
    NotFound,
    /// It ended.
    Ended(EndedSession),
    /// It stands under another name: its first record lacked what this name is made of, or had more.
    Same(UniqueSessionId),
}

/// Fewer are not enough: what the store says of one record's session stands under several names.
const LEAST: usize = 16;

/// So many of them as are remembered, that of which was heard longest ago going first.
#[derive(Debug)]
pub(super) struct PastSessionCache {
    table: SessionTable<(SessionDigest, PastSession)>,
    by_key: HashMap<SessionDigest, u64>,
    most: usize,
}

impl PastSessionCache {
    pub(super) fn new(most: usize, hash: &HashState) -> Self {
        Self { table: SessionTable::new(), by_key: HashMap::with_hasher(hash.clone()), most: most.max(LEAST) }
    }
    pub(super) fn get(&self, key: &SessionDigest) -> Option<&PastSession> {
        self.table.get(*self.by_key.get(key)?).map(|(_, past)| past)
    }
    pub(super) fn insert(&mut self, key: SessionDigest, past: PastSession) {
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
    pub(super) fn remove(&mut self, key: &SessionDigest) -> Option<PastSession> {
        let token = self.by_key.remove(key)?;
        self.table.remove(token).map(|(_, past)| past)
    }
    /// Learns what the store answered; false where that is an open session, which is no past.
    pub(super) fn insert_row(&mut self, unique: UniqueSessionId, row: Option<SessionRow>) -> bool {
        let key = unique.session_digest();
        let known = match self.get(&key) {
            Some(PastSession::Ended(ended)) => Some(ended.clone()),
            _ => None,
        };
        let past = match (known, row) {
            (None, None) => PastSession::NotFound,
            // Somebody took it out of the store.
            (Some(ended), None) if ended.unique == unique => PastSession::NotFound,
            (Some(mut ended), None) => {
                ended.latest |= unique == ended.unique.next_generation();
                PastSession::Ended(ended)
            }
            // The end of this session may not be written yet: what is known here is newer.
            (Some(mut ended), Some(row)) if ended.unique == unique => {
                ended.row = Some(row.into());
                PastSession::Ended(ended)
            }
            (_, Some(row)) => match row.acctstoptime {
                Some(stop) => PastSession::Ended(EndedSession::of_row(unique, stop, row)),
                None => return false,
            },
        };
        self.insert(key, past);
        true
    }
}
