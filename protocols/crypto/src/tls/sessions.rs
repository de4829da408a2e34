//! A server's sessions that clients may take up again: whose they are, what they were given for, and until when.
//!
//! A session is kept when its host has let somebody in ([`SessionNote`]), not before: one that led to nothing cannot be
//! taken up, and whoever proves nothing pushes nobody's session out. It is found again by a connection for the same
//! purpose only, within its lifetime and while every certificate that the client showed holds (RFC 9190 §5.7).
//! Otherwise the handshake is a full one.

use super::store::{BoundedMap, lock_unpoisoned};
use super::{ResumptionConfig, WallClock};
use crate::certificate::not_after;
use core::fmt;
use rustls::server::StoresServerSessions;
use std::sync::{Arc, Mutex};

/// What a host keeps with a session by which it has let somebody in.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionNote {
    /// Whose session it is, as the host calls them.
    pub subject: Vec<u8>,
    /// A digest of what the subject proved itself by, for the host to compare.
    pub credential: [u8; 32],
    /// Whatever else the host has to know again.
    pub data: Vec<u8>,
}

impl fmt::Debug for SessionNote {
    /// Without the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionNote({})", self.subject.escape_ascii())
    }
}

/// What several tickets of one login have in common. Times are seconds since 1970.
struct SessionGrant {
    purpose: u8,
    note: SessionNote,
    /// When the client last showed what it has, by a full handshake: a session that comes of another is no younger.
    since: u64,
    until: u64,
}

impl SessionGrant {
    /// A clock that was set back does not give sessions a longer life.
    fn is_valid_for(&self, purpose: u8, now: u64) -> bool {
        self.purpose == purpose && (self.since..self.until).contains(&now)
    }
}

/// A session in rustls's own form.
#[derive(Clone)]
struct StoredSession {
    value: Vec<u8>,
    grant: Arc<SessionGrant>,
}

/// The sessions of a configuration and its clones.
pub(super) struct SessionCache {
    lifetime: u64,
    clock: WallClock,
    stored_sessions: Mutex<BoundedMap<StoredSession>>,
}

impl SessionCache {
    pub(super) fn new(resumption: ResumptionConfig, clock: WallClock) -> Self {
        let kept = Mutex::new(BoundedMap::new(resumption.sessions));
        Self { lifetime: resumption.lifetime.as_secs(), clock, stored_sessions: kept }
    }

    /// Ends the sessions of those subjects; says how many those were.
    pub(super) fn end_sessions(&self, whose: impl Fn(&[u8]) -> bool) -> usize {
        lock_unpoisoned(&self.stored_sessions).retain(|kept| !whose(&kept.grant.note.subject))
    }

    fn now(&self) -> u64 {
        self.clock.now().unix_secs()
    }
}

impl fmt::Debug for SessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(..)")
    }
}

/// The TLS session storage as one connection has it: what it makes waits for its host, and it finds what is for its
/// purpose.
pub(super) struct SessionStorage {
    sessions: Arc<SessionCache>,
    purpose: u8,
    state: Mutex<SessionStorageState>,
}

#[derive(Default)]
struct SessionStorageState {
    /// Made by this connection, by session identifier or ticket, and not kept before the host notes them.
    new_sessions: Vec<(Vec<u8>, Vec<u8>)>,
    /// The session that was found last: the one that was taken up, where one was.
    found: Option<Arc<SessionGrant>>,
}

impl SessionStorage {
    pub(super) fn new(sessions: Arc<SessionCache>, purpose: u8) -> Self {
        Self { sessions, purpose, state: Mutex::default() }
    }

    /// Keeps what this connection made. `chain` is what the client has shown, of a session that was taken up earlier.
    pub(super) fn store_session<'a>(
        &self,
        note: SessionNote,
        resumed: bool,
        chain: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let mut state = lock_unpoisoned(&self.state);
        let (since, until) = match &state.found {
            Some(before) if resumed => (before.since, before.until),
            _ => {
                let now = self.sessions.now();
                let ends = chain.into_iter().map(|der| not_after(der).map_or(0, |end| end.unix_secs()));
                (now, ends.min().unwrap_or(u64::MAX).min(now.saturating_add(self.sessions.lifetime)))
            }
        };
        let grant = Arc::new(SessionGrant { purpose: self.purpose, note, since, until });
        let mut kept = lock_unpoisoned(&self.sessions.stored_sessions);
        for (key, value) in state.new_sessions.drain(..) {
            kept.insert(key, StoredSession { value, grant: grant.clone() });
        }
    }

    /// What was noted on the session that was found last.
    pub(super) fn found_note(&self) -> Option<SessionNote> {
        lock_unpoisoned(&self.state).found.as_ref().map(|grant| grant.note.clone())
    }

    /// Ends the session that was found last, in all its tickets.
    pub(super) fn end_session(&self) {
        if let Some(grant) = &lock_unpoisoned(&self.state).found {
            lock_unpoisoned(&self.sessions.stored_sessions).retain(|kept| !Arc::ptr_eq(&kept.grant, grant));
        }
    }

    fn find_session(&self, key: &[u8], once: bool) -> Option<Vec<u8>> {
        let now = self.sessions.now();
        let mut kept = lock_unpoisoned(&self.sessions.stored_sessions);
        // One of another purpose is left for whom it was given to.
        if !kept.get(key)?.grant.is_valid_for(self.purpose, now) {
            return None;
        }
        let StoredSession { value, grant } = if once { kept.remove(key)? } else { kept.get(key)?.clone() };
        drop(kept);
        lock_unpoisoned(&self.state).found = Some(grant);
        Some(value)
    }
}

impl fmt::Debug for SessionStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionStorage(..)")
    }
}

impl StoresServerSessions for SessionStorage {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        lock_unpoisoned(&self.state).new_sessions.push((key, value));
        true
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find_session(key, false)
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find_session(key, true)
    }
    fn can_cache(&self) -> bool {
        true
    }
}
