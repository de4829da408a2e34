//! The sessions, found by what identifies them, by user, by address, by NAS, by NAS and Acct-Session-Id, and by age, each
//! in O(1).
//!
//! A session stands in a slot; slots stand in blocks, so that growth copies and wastes nothing. Sessions of one user,
//! address or NAS are chained through their slots, and a hash table knows the first of each chain; it holds slots'
//! numbers only, since the sessions have the keys. Ended sessions that are not yet durable keep their slot and are in
//! no chain.

use super::admit::one_name;
use super::session::{Ending, Key, Session};
use super::shares::Shares;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::IpAddr;
use usher_core::Instant;
use usher_core::collections::{HashState, HashTable};

const NONE: u32 = u32::MAX;
const BLOCK: usize = 256;

/// What sessions are chained by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    User = 0,
    Address = 1,
    Nas = 2,
    /// NAS and Acct-Session-Id.
    Id = 3,
}
const CHAINS: [By; 4] = [By::User, By::Address, By::Nas, By::Id];
/// The chain of age, beside those.
const AGE: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: u32,
    after: u32,
}
const LOOSE: Neighbours = Neighbours { before: NONE, after: NONE };

#[derive(Debug)]
struct Slot {
    session: Option<Session>,
    links: [Neighbours; 5],
    touched: Instant,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Table {
    blocks: Vec<Vec<Slot>>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    heads: [HashTable<u32>; 4],
    oldest: u32,
    newest: u32,
    /// Open sessions.
    open: usize,
    /// Sessions in all.
    len: usize,
    /// And whose they are.
    pub(super) shares: Shares,
    hash: HashState,
}

impl Table {
    pub(super) fn new(hash: HashState) -> Self {
        Self {
            blocks: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            heads: [const { HashTable::new() }; 4],
            oldest: NONE,
            newest: NONE,
            open: 0,
            len: 0,
            shares: Shares::new(hash.clone()),
            hash,
        }
    }
    /// Open sessions.
    pub(super) const fn open(&self) -> usize {
        self.open
    }
    /// Sessions in all: open, and ended ones that are not durable yet.
    pub(super) const fn len(&self) -> usize {
        self.len
    }
    fn slot(&self, at: u32) -> Option<&Slot> {
        self.blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)
    }
    fn slot_mut(&mut self, at: u32) -> Option<&mut Slot> {
        self.blocks.get_mut(at as usize / BLOCK)?.get_mut(at as usize % BLOCK)
    }
    pub(super) fn get(&self, at: u32) -> Option<&Session> {
        self.slot(at)?.session.as_ref()
    }
    /// The session, for changes of anything but its user, address, NAS, ending and digest.
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Session> {
        self.slot_mut(at)?.session.as_mut()
    }
    /// Open sessions in the order of their slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.blocks.iter().flatten().filter_map(|s| s.session.as_ref()).filter(|s| s.ending == Ending::Open)
    }

    /// Adds an open session; it is found by its key instead of any that was before.
    pub(super) fn insert(&mut self, now: Instant, session: Session) -> u32 {
        let key = session.unique.key();
        self.shares.add(session.client);
        let slot = Slot { session: Some(session), links: [LOOSE; 5], touched: now };
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
        self.unkey(&key);
        let hash = self.hash.hash_one(key);
        let (blocks, state) = (&self.blocks, &self.hash);
        self.by_key.insert_unique(hash, at, |&i| state.hash_one(key_of(blocks, i)));
        self.chain_all(at, now);
        at
    }
    /// A session that ended goes on.
    pub(super) fn reopen(&mut self, now: Instant, at: u32) {
        if let Some(session) = self.get_mut(at).filter(|s| s.ending != Ending::Open) {
            session.ending = Ending::Open;
            self.open += 1;
            self.chain_all(at, now);
        }
    }
    /// Takes an open session out of all chains. It keeps its slot and its key; its ending is set by the caller.
    pub(super) fn close(&mut self, at: u32) {
        for by in CHAINS {
            self.unchain(by, at);
        }
        self.unlink_age(at);
        self.open = self.open.saturating_sub(1);
    }
    /// Frees the slot of a session that was closed.
    pub(super) fn remove(&mut self, at: u32) -> Option<Session> {
        let key = self.get(at)?.unique.key();
        if self.find(&key) == Some(at) {
            self.unkey(&key);
        }
        let session = self.slot_mut(at)?.session.take()?;
        self.free.push(at);
        self.len -= 1;
        self.shares.remove(session.client);
        Some(session)
    }
    /// The session of this key is not found by it any more.
    pub(super) fn unkey(&mut self, key: &Key) {
        let hash = self.hash.hash_one(key);
        let blocks = &self.blocks;
        if let Ok(entry) = self.by_key.find_entry(hash, |&i| key_of(blocks, i) == *key) {
            entry.remove();
        }
    }
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let hash = self.hash.hash_one(key);
        self.by_key.find(hash, |&i| key_of(&self.blocks, i) == *key).copied()
    }
    /// Makes an open session the one of which was heard last.
    pub(super) fn touch(&mut self, now: Instant, at: u32) {
        self.unlink_age(at);
        self.link_age(now, at);
    }
    /// The open session of which nothing was heard for longest, and since when.
    pub(super) fn oldest(&self) -> Option<(u32, Instant)> {
        Some((self.oldest, self.slot(self.oldest)?.touched))
    }
    /// Gives an open session another address.
    pub(super) fn set_address(&mut self, at: u32, address: Option<IpAddr>) {
        self.unchain(By::Address, at);
        if let Some(session) = self.get_mut(at) {
            session.address = address;
        }
        self.chain(By::Address, at);
    }

    /// Gives an open session another user's name.
    pub(super) fn set_user(&mut self, at: u32, user: &str) {
        self.unchain(By::User, at);
        if let Some(session) = self.get_mut(at) {
            session.set_user(user);
        }
        self.chain(By::User, at);
    }

    /// Open sessions of a user, the newest first.
    pub(super) fn of_user(&self, user: &str) -> Chain<'_> {
        let user = one_name(user);
        let hash = self.hash.hash_one(&*user);
        self.walk(By::User, hash, |s| one_name(s.user()) == user)
    }
    /// Open sessions with an address, the newest first.
    pub(super) fn of_address(&self, address: IpAddr) -> Chain<'_> {
        let hash = self.hash.hash_one(address);
        self.walk(By::Address, hash, |s| s.address == Some(address))
    }
    /// Open sessions of a NAS, the newest first.
    pub(super) fn of_nas(&self, nas: IpAddr) -> Chain<'_> {
        let hash = self.hash.hash_one(nas);
        self.walk(By::Nas, hash, |s| s.nas == nas)
    }
    /// Open sessions of a NAS with an Acct-Session-Id, the newest first.
    pub(super) fn of_id(&self, nas: IpAddr, id: &str) -> Chain<'_> {
        let hash = self.hash.hash_one((nas, id));
        self.walk(By::Id, hash, |s| s.nas == nas && s.id() == id)
    }
    fn walk(&self, by: By, hash: u64, is: impl Fn(&Session) -> bool) -> Chain<'_> {
        let head = &self.heads[by as usize];
        let next = head.find(hash, |&i| self.get(i).is_some_and(&is)).copied().unwrap_or(NONE);
        Chain { table: self, by, next }
    }

    fn chain_all(&mut self, at: u32, now: Instant) {
        for by in CHAINS {
            self.chain(by, at);
        }
        self.link_age(now, at);
    }
    /// Puts a session in front of its chain.
    fn chain(&mut self, by: By, at: u32) {
        let Some(hash) = self.get(at).and_then(|s| hash_by(&self.hash, by, s)) else { return };
        let (blocks, state) = (&self.blocks, &self.hash);
        let same = |&i: &u32| same(blocks, by, i, at);
        let head = &mut self.heads[by as usize];
        let before = match head.find_mut(hash, same) {
            Some(first) => core::mem::replace(first, at),
            None => {
                head.insert_unique(hash, at, |&i| {
                    session_at(blocks, i).and_then(|s| hash_by(state, by, s)).unwrap_or(0)
                });
                NONE
            }
        };
        if let Some(slot) = self.slot_mut(at) {
            slot.links[by as usize] = Neighbours { before: NONE, after: before };
        }
        if let Some(slot) = self.slot_mut(before) {
            slot.links[by as usize].before = at;
        }
    }
    fn unchain(&mut self, by: By, at: u32) {
        let Some(hash) = self.get(at).and_then(|s| hash_by(&self.hash, by, s)) else { return };
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
    fn link_age(&mut self, now: Instant, at: u32) {
        let newest = core::mem::replace(&mut self.newest, at);
        if let Some(slot) = self.slot_mut(at) {
            slot.touched = now;
            slot.links[AGE] = Neighbours { before: newest, after: NONE };
        }
        match self.slot_mut(newest) {
            Some(slot) => slot.links[AGE].after = at,
            None => self.oldest = at,
        }
    }
    fn unlink_age(&mut self, at: u32) {
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

fn session_at(blocks: &[Vec<Slot>], at: u32) -> Option<&Session> {
    blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)?.session.as_ref()
}
fn key_of(blocks: &[Vec<Slot>], at: u32) -> Key {
    session_at(blocks, at).map_or([0; 14], |s| s.unique.key())
}
/// What a session is chained by; `None`: it is not.
fn hash_by(state: &HashState, by: By, s: &Session) -> Option<u64> {
    match by {
        By::User => Some(state.hash_one(&*one_name(s.user()))),
        By::Address => s.address.map(|a| state.hash_one(a)),
        By::Nas => Some(state.hash_one(s.nas)),
        By::Id => Some(state.hash_one((s.nas, s.id()))),
    }
}
fn same(blocks: &[Vec<Slot>], by: By, a: u32, b: u32) -> bool {
    let (Some(a), Some(b)) = (session_at(blocks, a), session_at(blocks, b)) else { return false };
    match by {
        By::User => one_name(a.user()) == one_name(b.user()),
        By::Address => a.address == b.address,
        By::Nas => a.nas == b.nas,
        By::Id => a.nas == b.nas && a.id() == b.id(),
    }
}

/// Sessions of one chain with their slots.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    table: &'a Table,
    by: By,
    next: u32,
}

impl<'a> Iterator for Chain<'a> {
    type Item = (u32, &'a Session);
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.next;
        let slot = self.table.slot(at)?;
        self.next = slot.links[self.by as usize].after;
        slot.session.as_ref().map(|s| (at, s))
    }
}
