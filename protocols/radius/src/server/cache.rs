//! Pending requests, and replies kept for duplicates (RFC 5080 §2.2.2), in one slab.

use crate::auth::SharedSecret;
use crate::packet::PacketCode;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use usher_core::collections::{HashTable, SeededHashState};
use usher_core::{ConnId, DatagramPath, Duration, Instant, SocketId};

/// The number of reply buffers kept for reuse.
const SPARE: usize = 256;

/// The key of a request before its authenticator is compared: source and identifier. As numbers they hash in fewer
/// steps than a [`SocketAddr`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct DuplicateCacheKey {
    address: u128,
    /// Port, identifier, and a flag for IPv6.
    port: u32,
    scope: u32,
    flow: u32,
    via: RequestTransport,
}

/// The socket or connection that carried a request. Each connection has its own identifiers (RFC 6613 §2.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RequestTransport {
    Socket(SocketId),
    Connection(ConnId),
}

impl DuplicateCacheKey {
    pub(crate) fn new(path: &DatagramPath, conn: Option<ConnId>, identifier: u8) -> Self {
        let (address, six, scope, flow) = match path.remote {
            SocketAddr::V4(at) => (u128::from(at.ip().to_bits()), 0, 0, 0),
            SocketAddr::V6(at) => (at.ip().to_bits(), 1, at.scope_id(), at.flowinfo()),
        };
        let via = conn.map_or(RequestTransport::Socket(path.socket), RequestTransport::Connection);
        let port = u32::from(path.remote.port()) << 16 | u32::from(identifier) << 8 | six;
        Self { address, port, scope, flow, via }
    }
}

/// The progress of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestState {
    /// Pending at the caller. The bytes of the entry are its Proxy-State attributes.
    Waiting,
    /// Answered. The bytes of the entry are the reply.
    Answered,
    /// Discarded by the caller.
    Discarded,
}

#[derive(Debug)]
pub(crate) struct CacheEntry {
    pub(crate) path: DatagramPath,
    pub(crate) conn: Option<ConnId>,
    pub(crate) authenticator: [u8; 16],
    pub(crate) bytes: Vec<u8>,
    pub(crate) client: u32,
    pub(crate) secret: SharedSecret,
    pub(crate) identifier: u8,
    pub(crate) code: PacketCode,
    /// True if the request had a Message-Authenticator.
    pub(crate) signed: bool,
    pub(crate) state: RequestState,
    /// True if the reply waits in the ready list.
    pub(crate) queued: bool,
    pub(crate) expires: Instant,
}

impl CacheEntry {
    pub(crate) fn request_key(&self) -> DuplicateCacheKey {
        DuplicateCacheKey::new(&self.path, self.conn, self.identifier)
    }
}

/// A reference to an entry: its slot and the generation of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DuplicateCacheHandle {
    pub(crate) index: u32,
    generation: u32,
}

impl DuplicateCacheHandle {
    pub(crate) const fn to_token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    pub(crate) const fn from_token(token: u64) -> Self {
        Self { index: token as u32, generation: (token >> 32) as u32 }
    }
}

#[derive(Debug)]
struct DuplicateCacheSlot {
    generation: u32,
    /// The hash of the entry's key.
    hash: u64,
    entry: Option<CacheEntry>,
}

/// An index entry: the hash of a key and the slot of the entry.
type IndexEntry = (u64, u32);

/// The number of removed entries by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RemovedEntryCounts {
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

/// The limits of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DuplicateCacheLimits {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl DuplicateCacheLimits {
    pub(crate) fn from_config(config: &super::RadiusServerConfig) -> Self {
        Self { entries: config.max_entries.clamp(1, u32::MAX as usize), bytes: config.max_bytes }
    }
}

/// The memory of an entry without its bytes: its slot, its index entry with the free space of a hash table, and its
/// expiry.
const ENTRY: usize = size_of::<DuplicateCacheSlot>()
    + 2 * size_of::<IndexEntry>()
    + 2 * size_of::<(Instant, DuplicateCacheHandle)>();

#[derive(Debug)]
pub(crate) struct DuplicateCache {
    slots: Vec<DuplicateCacheSlot>,
    free: Vec<u32>,
    /// The index by key. The entry holds the key, so the index stays small, and expiry does not read the entry.
    by_key: HashTable<IndexEntry>,
    state: SeededHashState,
    /// Entries in order of expiry, since all of a kind live equally long. Entries removed earlier are skipped.
    waiting: VecDeque<(Instant, DuplicateCacheHandle)>,
    settled: VecDeque<(Instant, DuplicateCacheHandle)>,
    /// The number of pending requests by client.
    waiting_of: Vec<u32>,
    spare: Vec<Vec<u8>>,
    sweep: Option<Instant>,
    interval: Duration,
    bounds: DuplicateCacheLimits,
    /// The memory of the entries.
    bytes: usize,
}

impl DuplicateCache {
    pub(crate) fn new(state: SeededHashState, retain: Duration, bounds: DuplicateCacheLimits) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            state,
            waiting: VecDeque::new(),
            settled: VecDeque::new(),
            waiting_of: Vec::new(),
            spare: Vec::new(),
            sweep: None,
            interval: retain.max(Duration::from_millis(100)),
            bounds,
            bytes: 0,
        }
    }
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
    /// Applies new limits. Kept entries keep their expiry.
    pub(crate) fn set_cache_limits(&mut self, retain: Duration, bounds: DuplicateCacheLimits) {
        self.interval = retain.max(Duration::from_millis(100));
        self.bounds = bounds;
    }
    /// Returns the number of pending requests of a client.
    pub(crate) fn waiting_of(&self, client: u32) -> usize {
        self.waiting_of.get(client as usize).map_or(0, |&n| n as usize)
    }
    /// Applies a new numbering of the clients: `number` gives the new number of each entry.
    pub(crate) fn renumber_clients(&mut self, clients: usize, number: impl Fn(&CacheEntry) -> Option<u32>) {
        self.waiting_of.clear();
        self.waiting_of.resize(clients, 0);
        for entry in self.slots.iter_mut().filter_map(|p| p.entry.as_mut()) {
            entry.client = number(entry).unwrap_or(u32::MAX);
            if entry.state == RequestState::Waiting
                && let Some(n) = self.waiting_of.get_mut(entry.client as usize)
            {
                *n += 1;
            }
        }
    }
    /// Decrements the pending requests of a client.
    fn decrement_waiting(&mut self, client: u32) {
        if let Some(n) = self.waiting_of.get_mut(client as usize) {
            *n -= 1;
        }
    }
    pub(crate) fn get(&self, h: DuplicateCacheHandle) -> Option<&CacheEntry> {
        self.slots.get(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_ref()
    }
    pub(crate) fn get_mut(&mut self, h: DuplicateCacheHandle) -> Option<&mut CacheEntry> {
        self.slots.get_mut(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_mut()
    }
    pub(crate) fn find_handle(&self, key: &DuplicateCacheKey) -> Option<DuplicateCacheHandle> {
        let hash = self.state.hash_one(key);
        let held = |index: u32| self.slots.get(index as usize).and_then(|slot| slot.entry.as_ref());
        let same =
            |(of, index): &IndexEntry| *of == hash && held(*index).is_some_and(|e| e.request_key() == *key);
        let (_, index) = *self.by_key.find(hash, same)?;
        Some(DuplicateCacheHandle { index, generation: self.slots.get(index as usize)?.generation })
    }
    /// Returns an empty buffer for the bytes of an entry.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    pub(crate) fn recycle_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
    /// True if there is space for another entry. Evicts the oldest kept reply if needed.
    pub(crate) fn evict_for_entry(&mut self, purged: &mut RemovedEntryCounts) -> bool {
        while self.by_key.len() >= self.bounds.entries || self.bytes > self.bounds.bytes {
            let Some((_, h)) = self.settled.pop_front() else { return false };
            if self.remove(h) {
                purged.evicted += 1;
            }
        }
        true
    }
    /// Adds an entry that is pending until `entry.expires`. Its key must be new.
    pub(crate) fn insert(&mut self, now: Instant, entry: CacheEntry) -> DuplicateCacheHandle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(DuplicateCacheSlot { generation: 0, hash: 0, entry: None });
            self.slots.len() as u32 - 1
        });
        let hash = self.state.hash_one(entry.request_key());
        self.by_key.insert_unique(hash, (hash, index), |(hash, _)| *hash);
        self.bytes += ENTRY + entry.bytes.capacity();
        let client = entry.client as usize;
        if self.waiting_of.len() <= client {
            self.waiting_of.resize(client + 1, 0);
        }
        self.waiting_of[client] += 1;
        let place = &mut self.slots[index as usize];
        place.hash = hash;
        let handle = DuplicateCacheHandle { index, generation: place.generation };
        self.waiting.push_back((entry.expires, handle));
        place.entry = Some(entry);
        self.sweep.get_or_insert(now + self.interval);
        handle
    }
    /// Replaces the bytes of an entry.
    pub(crate) fn replace_cached_bytes(&mut self, h: DuplicateCacheHandle, bytes: Vec<u8>) {
        let after = bytes.capacity();
        let Some(entry) = self.get_mut(h) else { return };
        let before = core::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes + after - before.capacity();
        self.recycle_buffer(before);
    }
    /// Sets the final state of an entry, and its expiry.
    pub(crate) fn set_final_state(&mut self, h: DuplicateCacheHandle, state: RequestState, expires: Instant) {
        if let Some(entry) = self.get_mut(h) {
            let waited = entry.state == RequestState::Waiting;
            entry.state = state;
            entry.expires = expires;
            let client = entry.client;
            if waited {
                self.decrement_waiting(client);
            }
            self.settled.push_back((expires, h));
        }
    }
    /// Removes an entry. Returns false if it was already removed.
    pub(crate) fn remove(&mut self, h: DuplicateCacheHandle) -> bool {
        if self.get(h).is_none() {
            return false;
        }
        let place = &mut self.slots[h.index as usize];
        place.generation = place.generation.wrapping_add(1);
        let hash = place.hash;
        let Some(entry) = place.entry.take() else { return false };
        self.free.push(h.index);
        if let Ok(indexed) = self.by_key.find_entry(hash, |(_, index)| *index == h.index) {
            indexed.remove();
        }
        self.bytes -= ENTRY + entry.bytes.capacity();
        if entry.state == RequestState::Waiting {
            self.decrement_waiting(entry.client);
        }
        self.recycle_buffer(entry.bytes);
        true
    }
    /// Removes expired entries, at most `limit` of each kind.
    pub(crate) fn purge_expired(&mut self, now: Instant, limit: usize, purged: &mut RemovedEntryCounts) {
        for _ in 0..limit {
            let Some(&(at, h)) = self.waiting.front() else { break };
            let waits = self.get(h).is_some_and(|e| e.state == RequestState::Waiting);
            if waits && at > now {
                break;
            }
            self.waiting.pop_front();
            if waits && self.remove(h) {
                purged.expired += 1;
            }
        }
        for _ in 0..limit {
            match self.settled.front() {
                Some(&(at, h)) if at <= now || self.get(h).is_none() => {
                    self.settled.pop_front();
                    self.remove(h);
                }
                _ => break,
            }
        }
    }
    /// Returns the time of the next sweep, which frees memory. One wake-up serves all entries: a lookup checks the
    /// expiry itself.
    pub(crate) fn next_cache_sweep(&self) -> Option<Instant> {
        self.sweep
    }
    /// Frees memory if a sweep is due.
    pub(crate) fn run_sweep(&mut self, now: Instant, purged: &mut RemovedEntryCounts) {
        if self.sweep.is_some_and(|at| at <= now) {
            self.purge_expired(now, usize::MAX, purged);
            self.sweep = (!self.by_key.is_empty()).then(|| now + self.interval);
        }
    }
}
