//! The table of sessions, with O(1) lookup by digest, user, address, NAS, NAS and Acct-Session-Id, and age.
//!
//! A session has a slot in a block; blocks avoid copies and waste on growth. Sessions of one user, address or NAS
//! form a chain through their slots. A hash table has the first slot of each chain, and the sessions hold the keys.
//! Ended sessions that are not durable keep their slot and are in no chain.

use super::session::{LedgerSession, SessionDigest, SessionState};
use super::shares::ClientSessionCounts;
use crate::users::canonical_user_name;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::Instant;
use usher_core::collections::{HashTable, SeededHashState};

const NONE: u32 = u32::MAX;
const BLOCK: usize = 256;

/// The key of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionChainKind {
    User = 0,
    Address = 1,
    Nas = 2,
    /// NAS and Acct-Session-Id.
    Id = 3,
}
const CHAINS: [SessionChainKind; 4] =
    [SessionChainKind::User, SessionChainKind::Address, SessionChainKind::Nas, SessionChainKind::Id];
/// The chain of age.
const AGE: usize = 4;

#[derive(Clone, Copy, Debug)]
struct SessionChainLinks {
    before: u32,
    after: u32,
}
const LOOSE: SessionChainLinks = SessionChainLinks { before: NONE, after: NONE };

#[derive(Debug)]
struct LedgerTableEntry {
    session: Option<LedgerSession>,
    links: [SessionChainLinks; 5],
    touched: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LedgerTable {
    blocks: Vec<Vec<LedgerTableEntry>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    heads: [HashTable<u32>; 4],
    oldest: u32,
    newest: u32,
    /// Number of open sessions.
    open: usize,
    /// Number of all sessions.
    len: usize,
    /// Number of sessions of each client.
    pub(super) shares: ClientSessionCounts,
    hash: SeededHashState,
}

impl LedgerTable {
    pub(super) fn new(hash: SeededHashState) -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            heads: [const { HashTable::new() }; 4],
            oldest: NONE,
            newest: NONE,
            open: 0,
            len: 0,
            shares: ClientSessionCounts::new(hash.clone()),
            hash,
        }
    }
    /// Number of open sessions.
    pub(super) const fn open_count(&self) -> usize {
        self.open
    }
    /// Number of all sessions: open, and ended but not durable.
    pub(super) const fn len(&self) -> usize {
        self.len
    }
    fn slot(&self, at: u32) -> Option<&LedgerTableEntry> {
        self.blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)
    }
    fn slot_mut(&mut self, at: u32) -> Option<&mut LedgerTableEntry> {
        self.blocks.get_mut(at as usize / BLOCK)?.get_mut(at as usize % BLOCK)
    }
    pub(super) fn get(&self, at: u32) -> Option<&LedgerSession> {
        self.slot(at)?.session.as_ref()
    }
    /// Returns a session. The caller must not change its user, address, NAS, state or digest.
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut LedgerSession> {
        self.slot_mut(at)?.session.as_mut()
    }
    /// Open sessions in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &LedgerSession> {
        self.blocks
            .iter()
            .flatten()
            .filter_map(|s| s.session.as_ref())
            .filter(|s| s.end_state == SessionState::Open)
    }

    /// Adds an open session. Its key replaces an earlier one.
    pub(super) fn insert(&mut self, now: Instant, session: LedgerSession) -> u32 {
        let key = session.unique.session_digest();
        self.shares.increment_client_sessions(session.client);
        let slot = LedgerTableEntry { session: Some(session), links: [LOOSE; 5], touched: now };
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                if self.blocks.last().is_none_or(|b| b.len() == BLOCK) {
                    self.blocks.push(Vec::with_capacity(BLOCK));
                }
                let full = (self.blocks.len() - 1) * BLOCK;
                let last = self.blocks.last().map_or(0, Vec::len);
                (full + last) as u32
            }
        };
        if let Some(block) = self.blocks.get_mut(at as usize / BLOCK) {
            match block.get_mut(at as usize % BLOCK) {
                Some(empty) => *empty = slot,
                None => block.push(slot),
            }
        }
        self.len += 1;
        self.open += 1;
        self.remove_key(&key);
        let hash = self.hash.hash_one(key);
        let (blocks, state) = (&self.blocks, &self.hash);
        self.by_key.insert_unique(hash, at, |&i| state.hash_one(session_digest_at(blocks, i)));
        self.link_all_chains(at, now);
        at
    }
    /// Reopens an ended session.
    pub(super) fn reopen_session(&mut self, now: Instant, at: u32) {
        if let Some(session) = self.get_mut(at).filter(|s| s.end_state != SessionState::Open) {
            session.end_state = SessionState::Open;
            self.open += 1;
            self.link_all_chains(at, now);
        }
    }
    /// Removes an open session from all chains. It keeps its slot and key. The caller sets its state.
    pub(super) fn close_session(&mut self, at: u32) {
        for by in CHAINS {
            self.unlink_chain(by, at);
        }
        self.unlink_from_age_list(at);
        self.open = self.open.saturating_sub(1);
    }
    /// Frees the slot of a closed session.
    pub(super) fn remove(&mut self, at: u32) -> Option<LedgerSession> {
        let key = self.get(at)?.unique.session_digest();
        if self.find_slot(&key) == Some(at) {
            self.remove_key(&key);
        }
        let session = self.slot_mut(at)?.session.take()?;
        self.free.push(at);
        self.len -= 1;
        self.shares.remove_session(session.client);
        Some(session)
    }
    /// Removes a session's key, so that it is not found by it.
    pub(super) fn remove_key(&mut self, key: &SessionDigest) {
        let hash = self.hash.hash_one(key);
        let blocks = &self.blocks;
        if let Ok(entry) = self.by_key.find_entry(hash, |&i| session_digest_at(blocks, i) == *key) {
            entry.remove();
        }
    }
    pub(super) fn find_slot(&self, key: &SessionDigest) -> Option<u32> {
        let hash = self.hash.hash_one(key);
        self.by_key.find(hash, |&i| session_digest_at(&self.blocks, i) == *key).copied()
    }
    /// Marks an open session as the one with the latest record.
    pub(super) fn touch(&mut self, now: Instant, at: u32) {
        self.unlink_from_age_list(at);
        self.link_newest_by_age(now, at);
    }
    /// Returns the open session with the oldest record, and its time.
    pub(super) fn oldest(&self) -> Option<(u32, Instant)> {
        Some((self.oldest, self.slot(self.oldest)?.touched))
    }
    /// Changes the address of an open session.
    pub(super) fn set_address(&mut self, at: u32, address: Option<IpAddr>) {
        self.unlink_chain(SessionChainKind::Address, at);
        if let Some(session) = self.get_mut(at) {
            session.address = address;
        }
        self.link_chain(SessionChainKind::Address, at);
    }

    /// Changes the user of an open session.
    pub(super) fn set_user(&mut self, at: u32, user: &str) {
        self.unlink_chain(SessionChainKind::User, at);
        if let Some(session) = self.get_mut(at) {
            session.set_user(user);
        }
        self.link_chain(SessionChainKind::User, at);
    }

    /// Open sessions of a user, the newest first.
    pub(super) fn of_user(&self, user: &str) -> SessionChain<'_> {
        let user = canonical_user_name(user);
        let hash = self.hash.hash_one(&*user);
        self.iterate_session_chain(SessionChainKind::User, hash, |s| canonical_user_name(s.user()) == user)
    }
    /// Open sessions with an address, the newest first.
    pub(super) fn of_address(&self, address: IpAddr) -> SessionChain<'_> {
        let hash = self.hash.hash_one(address);
        self.iterate_session_chain(SessionChainKind::Address, hash, |s| s.address == Some(address))
    }
    /// Open sessions of a NAS, the newest first.
    pub(super) fn of_nas(&self, nas: IpAddr) -> SessionChain<'_> {
        let hash = self.hash.hash_one(nas);
        self.iterate_session_chain(SessionChainKind::Nas, hash, |s| s.nas == nas)
    }
    /// Open sessions of a NAS with an Acct-Session-Id, the newest first.
    pub(super) fn open_sessions_by_acct_id(&self, nas: IpAddr, id: &str) -> SessionChain<'_> {
        let hash = self.hash.hash_one((nas, id));
        self.iterate_session_chain(SessionChainKind::Id, hash, |s| s.nas == nas && s.id() == id)
    }
    fn iterate_session_chain(
        &self,
        by: SessionChainKind,
        hash: u64,
        is: impl Fn(&LedgerSession) -> bool,
    ) -> SessionChain<'_> {
        let head = &self.heads[by as usize];
        let next = head.find(hash, |&i| self.get(i).is_some_and(&is)).copied().unwrap_or(NONE);
        SessionChain { table: self, kind: by, next }
    }

    fn link_all_chains(&mut self, at: u32, now: Instant) {
        for by in CHAINS {
            self.link_chain(by, at);
        }
        self.link_newest_by_age(now, at);
    }
    /// Inserts a session at the front of its chain.
    fn link_chain(&mut self, by: SessionChainKind, at: u32) {
        let Some(hash) = self.get(at).and_then(|s| chain_hash(&self.hash, by, s)) else { return };
        let (blocks, state) = (&self.blocks, &self.hash);
        let same = |&i: &u32| is_same_chain(blocks, by, i, at);
        let head = &mut self.heads[by as usize];
        let before = match head.find_mut(hash, same) {
            Some(first) => core::mem::replace(first, at),
            None => {
                head.insert_unique(hash, at, |&i| {
                    session_at(blocks, i).and_then(|s| chain_hash(state, by, s)).unwrap_or(0)
                });
                NONE
            }
        };
        if let Some(slot) = self.slot_mut(at) {
            slot.links[by as usize] = SessionChainLinks { before: NONE, after: before };
        }
        if let Some(slot) = self.slot_mut(before) {
            slot.links[by as usize].before = at;
        }
    }
    fn unlink_chain(&mut self, by: SessionChainKind, at: u32) {
        let Some(hash) = self.get(at).and_then(|s| chain_hash(&self.hash, by, s)) else { return };
        let Some(slot) = self.slot_mut(at) else { return };
        let link = core::mem::replace(&mut slot.links[by as usize], LOOSE);
        if let Some(slot) = self.slot_mut(link.before) {
            slot.links[by as usize].after = link.after;
        } else {
            let head = &mut self.heads[by as usize];
            if let Ok(mut entry) = head.find_entry(hash, |&i| i == at) {
                if link.after == NONE {
                    entry.remove();
                } else {
                    *entry.get_mut() = link.after;
                }
            }
        }
        if let Some(slot) = self.slot_mut(link.after) {
            slot.links[by as usize].before = link.before;
        }
    }
    fn link_newest_by_age(&mut self, now: Instant, at: u32) {
        let newest = core::mem::replace(&mut self.newest, at);
        if let Some(slot) = self.slot_mut(at) {
            slot.touched = now;
            slot.links[AGE] = SessionChainLinks { before: newest, after: NONE };
        }
        match self.slot_mut(newest) {
            Some(slot) => slot.links[AGE].after = at,
            None => self.oldest = at,
        }
    }
    fn unlink_from_age_list(&mut self, at: u32) {
        let Some(slot) = self.slot_mut(at) else { return };
        let link = core::mem::replace(&mut slot.links[AGE], LOOSE);
        match self.slot_mut(link.before) {
            Some(slot) => slot.links[AGE].after = link.after,
            None => self.oldest = link.after,
        }
        match self.slot_mut(link.after) {
            Some(slot) => slot.links[AGE].before = link.before,
            None => self.newest = link.before,
        }
    }
}

fn session_at(blocks: &[Vec<LedgerTableEntry>], at: u32) -> Option<&LedgerSession> {
    blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)?.session.as_ref()
}
fn session_digest_at(blocks: &[Vec<LedgerTableEntry>], at: u32) -> SessionDigest {
    session_at(blocks, at).map_or([0; 14], |s| s.unique.session_digest())
}
/// Returns the hash of a session's key. `None`: it is in no such chain.
fn chain_hash(state: &SeededHashState, by: SessionChainKind, s: &LedgerSession) -> Option<u64> {
    match by {
        SessionChainKind::User => Some(state.hash_one(&*canonical_user_name(s.user()))),
        SessionChainKind::Address => s.address.map(|a| state.hash_one(a)),
        SessionChainKind::Nas => Some(state.hash_one(s.nas)),
        SessionChainKind::Id => Some(state.hash_one((s.nas, s.id()))),
    }
}
fn is_same_chain(blocks: &[Vec<LedgerTableEntry>], by: SessionChainKind, a: u32, b: u32) -> bool {
    let (Some(a), Some(b)) = (session_at(blocks, a), session_at(blocks, b)) else { return false };
    match by {
        SessionChainKind::User => canonical_user_name(a.user()) == canonical_user_name(b.user()),
        SessionChainKind::Address => a.address == b.address,
        SessionChainKind::Nas => a.nas == b.nas,
        SessionChainKind::Id => a.nas == b.nas && a.id() == b.id(),
    }
}

/// Sessions of a chain with their slots.
#[derive(Debug)]
pub(super) struct SessionChain<'a> {
    table: &'a LedgerTable,
    kind: SessionChainKind,
    next: u32,
}

impl<'a> Iterator for SessionChain<'a> {
    type Item = (u32, &'a LedgerSession);
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next;
        let slot = self.table.slot(at)?;
        self.next = slot.links[self.kind as usize].after;
        slot.session.as_ref().map(|s| (at, s))
    }
}
