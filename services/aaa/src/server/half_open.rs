//! Half-open sessions, ordered by age and by source. A flood from one source evicts sessions of that source alone.
//! Sessions count by their octets: a session in a TLS handshake holds as much as dozens of others.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};
use usher_core::collections::{HashMap, hash_state};
use usher_core::table::SessionTable;
use usher_core::{Instant, SecureRng};
use usher_diameter::node::PeerId;

/// The source of a session, for fair shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum SessionFairnessKey {
    /// A RADIUS client's address. Clients of one network count apart.
    Address(IpAddr),
    /// A Diameter peer.
    Peer(PeerId),
}

impl SessionFairnessKey {
    /// Returns the client's address, unspecified for a Diameter peer.
    pub(super) fn address(self) -> IpAddr {
        match self {
            Self::Address(address) => address,
            Self::Peer(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        }
    }
}

/// Minimum octets of a source whose share is kept in order. Smaller sources are no flood.
const CROWD: usize = 64 << 10;
/// Granularity of shares. Otherwise each login would reorder its source.
const STEP: usize = CROWD / 4;

#[derive(Debug)]
struct HalfOpenEntry<T> {
    value: T,
    /// Octets that it counts.
    octets: usize,
    share: u32,
    /// The next older and newer session of the same source.
    older: Option<u64>,
    newer: Option<u64>,
}

#[derive(Debug)]
struct SessionSourceUsage {
    source: SessionFairnessKey,
    count: u32,
    octets: usize,
    oldest: Option<u64>,
    newest: Option<u64>,
}

/// Sessions under tokens; see the [module](self).
#[derive(Debug)]
pub(super) struct HalfOpen<T> {
    table: SessionTable<HalfOpenEntry<T>>,
    shares: Vec<SessionSourceUsage>,
    free: Vec<u32>,
    by_source: HashMap<SessionFairnessKey, u32>,
    /// Sources with large shares, by share in steps.
    crowds: BTreeSet<(usize, u32)>,
    octets: usize,
}

impl<T> HalfOpen<T> {
    /// Creates an empty table. `rng` keys the hash of sources.
    pub(super) fn new(rng: &mut SecureRng) -> Self {
        Self {
            table: SessionTable::new(),
            shares: Vec::new(),
            free: Vec::new(),
            by_source: HashMap::with_hasher(hash_state(rng)),
            crowds: BTreeSet::new(),
            octets: 0,
        }
    }
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }
    /// Octets of all sessions.
    pub(super) fn total_octets(&self) -> usize {
        self.octets
    }
    pub(super) fn get(&self, token: u64) -> Option<&T> {
        self.table.get(token).map(|e| &e.value)
    }
    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut T> {
        self.table.get_mut(token).map(|e| &mut e.value)
    }
    /// Returns the longest idle session, and when it was last active.
    pub(super) fn oldest(&self) -> Option<(u64, Instant)> {
        self.table.oldest_entry()
    }
    /// Returns the session to evict: the longest idle one of the source with the most octets, rounded to a
    /// [`STEP`].
    pub(super) fn crowded_out(&self) -> Option<u64> {
        match self.crowds.last() {
            Some((_, share)) => self.shares.get(*share as usize)?.oldest,
            None => self.table.oldest_entry().map(|(token, _)| token),
        }
    }
    pub(super) fn insert(
        &mut self,
        now: Instant,
        source: SessionFairnessKey,
        octets: usize,
        value: T,
    ) -> u64 {
        let share = match self.by_source.get(&source) {
            Some(share) => *share,
            None => self.add_source(source),
        };
        let token = self.table.insert(now, HalfOpenEntry { value, octets, share, older: None, newer: None });
        self.link_session(share, token);
        self.shares[share as usize].count += 1;
        self.update_source_octets(share, 0, octets);
        token
    }
    /// Sets the octets of a session.
    pub(super) fn set_session_octets(&mut self, token: u64, octets: usize) {
        let Some(entry) = self.table.get_mut(token) else { return };
        let (share, before) = (entry.share, core::mem::replace(&mut entry.octets, octets));
        if before != octets {
            self.update_source_octets(share, before, octets);
        }
    }
    /// Makes a session the newest.
    pub(super) fn touch(&mut self, now: Instant, token: u64) {
        if self.table.touch(now, token)
            && let Some(share) = self.unlink_session(token)
        {
            self.link_session(share, token);
        }
    }
    pub(super) fn remove(&mut self, token: u64) -> Option<T> {
        let share = self.unlink_session(token)?;
        let entry = self.table.remove(token)?;
        self.update_source_octets(share, entry.octets, 0);
        self.remove_session(share);
        Some(entry.value)
    }
    /// Calls `each` for all sessions, in any order.
    pub(super) fn for_each(&mut self, mut each: impl FnMut(&mut T)) {
        for share in 0..self.shares.len() {
            let mut next = self.shares[share].oldest;
            while let Some(entry) = next.and_then(|token| self.table.get_mut(token)) {
                each(&mut entry.value);
                next = entry.newer;
            }
        }
    }

    fn add_source(&mut self, source: SessionFairnessKey) -> u32 {
        let empty = SessionSourceUsage { source, count: 0, octets: 0, oldest: None, newest: None };
        let share = match self.free.pop() {
            Some(share) => {
                self.shares[share as usize] = empty;
                share
            }
            None => {
                self.shares.push(empty);
                self.shares.len() as u32 - 1
            }
        };
        self.by_source.insert(source, share);
        share
    }
    /// Updates a source's share: a session has `after` octets in place of `before`.
    fn update_source_octets(&mut self, index: u32, before: usize, after: usize) {
        self.octets = self.octets - before + after;
        let share = &mut self.shares[index as usize];
        let was = share.octets / STEP;
        share.octets = share.octets - before + after;
        let is = share.octets / STEP;
        if was == is {
            return;
        }
        if was >= CROWD / STEP {
            self.crowds.remove(&(was, index));
        }
        if is >= CROWD / STEP {
            self.crowds.insert((is, index));
        }
    }
    /// Removes a session from its source.
    fn remove_session(&mut self, index: u32) {
        let share = &mut self.shares[index as usize];
        share.count -= 1;
        if share.count == 0 {
            self.by_source.remove(&share.source);
            self.free.push(index);
        }
    }
    fn link_session(&mut self, index: u32, token: u64) {
        let share = &mut self.shares[index as usize];
        let before = share.newest.replace(token);
        match before.and_then(|before| self.table.get_mut(before)) {
            Some(before) => before.newer = Some(token),
            None => share.oldest = Some(token),
        }
        if let Some(entry) = self.table.get_mut(token) {
            (entry.older, entry.newer) = (before, None);
        }
    }
    fn unlink_session(&mut self, token: u64) -> Option<u32> {
        let entry = self.table.get(token)?;
        let (index, older, newer) = (entry.share, entry.older, entry.newer);
        let share = &mut self.shares[index as usize];
        match older.and_then(|older| self.table.get_mut(older)) {
            Some(before) => before.newer = newer,
            None => share.oldest = newer,
        }
        match newer.and_then(|newer| self.table.get_mut(newer)) {
            Some(after) => after.older = older,
            None => share.newest = older,
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use usher_core::Seed;

    fn test_source(n: u8) -> SessionFairnessKey {
        SessionFairnessKey::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)))
    }

    proptest! {
        #[test]
        fn it_does_what_a_list_would(
            steps in proptest::collection::vec((0u8..6, 0usize..40, 0u8..3, 1usize..30_000), 0..300),
        ) {
            let mut sessions = HalfOpen::new(&mut Seed::new(1).derive_secure_rng("half open", 0));
            let mut list: Vec<(u64, u8, usize, usize)> = Vec::new();
            for (n, (what, which, from, octets)) in steps.into_iter().enumerate() {
                let now = Instant::from_nanos(n as u64);
                let which = which.min(list.len().saturating_sub(1));
                match what {
                    0..=2 => list.push((sessions.insert(now, test_source(from), octets, n), from, n, octets)),
                    3 if !list.is_empty() => {
                        let entry = list.remove(which);
                        sessions.touch(now, entry.0);
                        list.push(entry);
                    }
                    4 if !list.is_empty() => {
                        let (token, _, value, _) = list.remove(which);
                        prop_assert_eq!(sessions.remove(token), Some(value));
                    }
                    5 if !list.is_empty() => {
                        list[which].3 = octets;
                        sessions.set_session_octets(list[which].0, octets);
                    }
                    _ => {}
                }
                prop_assert_eq!(sessions.len(), list.len());
                prop_assert_eq!(sessions.total_octets(), list.iter().map(|e| e.3).sum::<usize>());
                prop_assert_eq!(sessions.oldest().map(|o| o.0), list.first().map(|e| e.0));
                let of = |s: u8| list.iter().filter(|e| e.1 == s).map(|e| e.3).sum::<usize>();
                let shares: Vec<usize> = (0..3).map(of).collect();
                let most = shares.iter().copied().max().unwrap_or(0);
                match sessions.crowded_out() {
                    Some(token) if most >= CROWD => {
                        let (_, from, ..) = list.iter().find(|e| e.0 == token).unwrap();
                        prop_assert_eq!(shares[usize::from(*from)] / STEP, most / STEP);
                        prop_assert_eq!(list.iter().find(|e| e.1 == *from).map(|e| e.0), Some(token));
                    }
                    other => prop_assert_eq!(other, list.first().map(|e| e.0)),
                }
                // A source without a session has no entry.
                let sources = (0..3).filter(|s| list.iter().any(|e| e.1 == *s)).count();
                prop_assert_eq!(sessions.by_source.len(), sources);
                prop_assert_eq!(sessions.shares.len() - sessions.free.len(), sources);
                let mut seen = 0;
                sessions.for_each(|_| seen += 1);
                prop_assert_eq!(seen, list.len());
            }
        }
    }
}
