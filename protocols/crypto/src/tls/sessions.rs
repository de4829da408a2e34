//! Sessions that a server's clients may resume, with their subject, purpose and lifetime.
//!
//! The server keeps a session once its host has accepted the login ([`TlsSessionMetadata`]), not before. So a failed login
//! cannot be resumed, and unauthenticated clients evict no sessions.
//!
//! A connection can resume a session of the same purpose within its lifetime. Every certificate of the client must
//! still be valid (RFC 9190 §5.7). Otherwise the handshake is a full one.

use super::store::{BoundedMap, lock_unpoisoned};
use super::{SharedWallClock, TlsResumptionConfig};
use crate::certificate::not_after;
use core::fmt;
use rustls::server::StoresServerSessions;
use std::sync::{Arc, Mutex};

/// The note of a host on the session of an accepted login.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSessionMetadata {
    /// The subject of the session, by the host's name for it.
    pub subject: Vec<u8>,
    /// A digest of the subject's credential, for the host to compare.
    pub credential: [u8; 32],
    /// Other data of the host.
    pub data: Vec<u8>,
}

impl fmt::Debug for TlsSessionMetadata {
    /// Omits the digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsSessionMetadata({})", self.subject.escape_ascii())
    }
}

/// The common part of all tickets of a login. Times are seconds since 1970.
struct SessionTicketContents {
    purpose: u8,
    note: TlsSessionMetadata,
    /// The time of the client's last full handshake. A session derived from another keeps its time.
    since: u64,
    until: u64,
}

impl SessionTicketContents {
    /// True if the session is valid now for this purpose. A clock that is set back does not extend its life.
    fn is_session_valid_for(&self, purpose: u8, now: u64) -> bool {
        self.purpose == purpose && (self.since..self.until).contains(&now)
    }
}

/// A session in the form of rustls.
#[derive(Clone)]
struct StoredSession {
    value: Vec<u8>,
    grant: Arc<SessionTicketContents>,
}

/// The sessions of a configuration and its clones.
pub(super) struct TlsSessionCache {
    lifetime: u64,
    clock: SharedWallClock,
    stored_sessions: Mutex<BoundedMap<StoredSession>>,
}

impl TlsSessionCache {
    pub(super) fn new(resumption: TlsResumptionConfig, clock: SharedWallClock) -> Self {
        let kept = Mutex::new(BoundedMap::new(resumption.sessions));
        Self { lifetime: resumption.lifetime.as_secs(), clock, stored_sessions: kept }
    }

    /// Ends the sessions of the matching subjects and returns their number.
    pub(super) fn end_sessions(&self, whose: impl Fn(&[u8]) -> bool) -> usize {
        lock_unpoisoned(&self.stored_sessions).retain(|kept| !whose(&kept.grant.note.subject))
    }

    fn now(&self) -> u64 {
        self.clock.now().unix_secs()
    }
}

impl fmt::Debug for TlsSessionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(..)")
    }
}

/// The TLS session storage of one connection. Its new sessions wait for the host's note; it finds sessions of its
/// purpose only.
pub(super) struct SessionStorage {
    sessions: Arc<TlsSessionCache>,
    purpose: u8,
    state: Mutex<SessionStorageState>,
}

#[derive(Default)]
struct SessionStorageState {
    /// New sessions of this connection, by session identifier or ticket. They are kept only after the host's note.
    new_sessions: Vec<(Vec<u8>, Vec<u8>)>,
    /// The session found last, which is the resumed one, if any.
    found: Option<Arc<SessionTicketContents>>,
}

impl SessionStorage {
    pub(super) fn new(sessions: Arc<TlsSessionCache>, purpose: u8) -> Self {
        Self { sessions, purpose, state: Mutex::default() }
    }

    /// Keeps the new sessions of this connection. `chain` is the client's chain, possibly from an earlier session.
    pub(super) fn store_session<'a>(
        &self,
        note: TlsSessionMetadata,
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
        let grant = Arc::new(SessionTicketContents { purpose: self.purpose, note, since, until });
        let mut kept = lock_unpoisoned(&self.sessions.stored_sessions);
        for (key, value) in state.new_sessions.drain(..) {
            kept.insert(key, StoredSession { value, grant: grant.clone() });
        }
    }

    /// Returns the note of the session found last.
    pub(super) fn found_session_note(&self) -> Option<TlsSessionMetadata> {
        lock_unpoisoned(&self.state).found.as_ref().map(|grant| grant.note.clone())
    }

    /// Ends the session found last, with all its tickets.
    pub(super) fn end_session(&self) {
        if let Some(grant) = &lock_unpoisoned(&self.state).found {
            lock_unpoisoned(&self.sessions.stored_sessions).retain(|kept| !Arc::ptr_eq(&kept.grant, grant));
        }
    }

    fn find_session(&self, key: &[u8], once: bool) -> Option<Vec<u8>> {
        let now = self.sessions.now();
        let mut kept = lock_unpoisoned(&self.sessions.stored_sessions);
        // A session that was stored for another purpose is not resumed here. It stays stored for its own purpose.
        if !kept.get(key)?.grant.is_session_valid_for(self.purpose, now) {
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
