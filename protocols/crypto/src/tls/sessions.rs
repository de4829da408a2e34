//! A server's sessions that clients may take up again: whose they are, what they were given for, and until when.
//!
//! A session is kept when its host has let somebody in ([`SessionNote`]), not before: one that led to nothing cannot be
//! taken up, and whoever proves nothing pushes nobody's session out. It is found again by a connection for the same
//! purpose only, within its lifetime and while every certificate that the client showed holds (RFC 9190 §5.7).
//! Otherwise the handshake is a full one.

use super::store::{Bounded, lock};
use super::{Resumption, WallClock};
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
struct Grant {
    purpose: u8,
    note: SessionNote,
    /// When the client last showed what it has, by a full handshake: a session that comes of another is no younger.
    since: u64,
    until: u64,
}

impl Grant {
    /// A clock that was set back does not give sessions a longer life.
    fn holds(&self, purpose: u8, now: u64) -> bool {
        self.purpose == purpose && (self.since..self.until).contains(&now)
    }
}

/// A session in rustls's own form.
#[derive(Clone)]
struct Kept {
    value: Vec<u8>,
    grant: Arc<Grant>,
}

/// The sessions of a configuration and its clones.
pub(super) struct Sessions {
    lifetime: u64,
    clock: WallClock,
    kept: Mutex<Bounded<Kept>>,
}

impl Sessions {
    pub(super) fn new(resumption: Resumption, clock: WallClock) -> Self {
        let kept = Mutex::new(Bounded::new(resumption.sessions));
        Self { lifetime: resumption.lifetime.as_secs(), clock, kept }
    }

    /// Ends the sessions of those subjects; says how many those were.
    pub(super) fn end(&self, whose: impl Fn(&[u8]) -> bool) -> usize {
        lock(&self.kept).retain(|kept| !whose(&kept.grant.note.subject))
    }

    fn now(&self) -> u64 {
        self.clock.now().unix_secs()
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sessions(..)")
    }
}

/// The TLS session storage as one connection has it: what it makes waits for its host, and it finds what is for its
/// purpose.
pub(super) struct SessionStorage {
    sessions: Arc<Sessions>,
    purpose: u8,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Made by this connection, by session identifier or ticket, and not kept before the host notes them.
    made: Vec<(Vec<u8>, Vec<u8>)>,
    /// The session that was found last: the one that was taken up, where one was.
    found: Option<Arc<Grant>>,
}

impl SessionStorage {
    pub(super) fn new(sessions: Arc<Sessions>, purpose: u8) -> Self {
        Self { sessions, purpose, state: Mutex::default() }
    }

    /// Keeps what this connection made. `chain` is what the client has shown, of a session that was taken up earlier.
    pub(super) fn keep<'a>(
        &self,
        note: SessionNote,
        resumed: bool,
        chain: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let mut state = lock(&self.state);
        let (since, until) = match &state.found {
            Some(before) if resumed => (before.since, before.until),
            _ => {
                let now = self.sessions.now();
                let ends = chain.into_iter().map(|der| not_after(der).map_or(0, |end| end.unix_secs()));
                (now, ends.min().unwrap_or(u64::MAX).min(now.saturating_add(self.sessions.lifetime)))
            }
        };
        let grant = Arc::new(Grant { purpose: self.purpose, note, since, until });
        let mut kept = lock(&self.sessions.kept);
        for (key, value) in state.made.drain(..) {
            kept.put(key, Kept { value, grant: grant.clone() });
        }
    }

    /// What was noted on the session that was found last.
    pub(super) fn found(&self) -> Option<SessionNote> {
        lock(&self.state).found.as_ref().map(|grant| grant.note.clone())
    }

    /// Ends the session that was found last, in all its tickets.
    pub(super) fn end(&self) {
        if let Some(grant) = &lock(&self.state).found {
            lock(&self.sessions.kept).retain(|kept| !Arc::ptr_eq(&kept.grant, grant));
        }
    }

    fn find(&self, key: &[u8], once: bool) -> Option<Vec<u8>> {
        let now = self.sessions.now();
        let mut kept = lock(&self.sessions.kept);
        // One of another purpose is left for whom it was given to.
        if !kept.get(key)?.grant.holds(self.purpose, now) {
            return None;
        }
        let Kept { value, grant } = if once { kept.take(key)? } else { kept.get(key)?.clone() };
        drop(kept);
        lock(&self.state).found = Some(grant);
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
        lock(&self.state).made.push((key, value));
        true
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key, false)
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.find(key, true)
    }
    fn can_cache(&self) -> bool {
        true
    }
}
