//! Requests being worked on and replies kept for duplicates (RFC 5080 §2.2.2), in one slab.

use crate::auth::SharedSecret;
use crate::packet::PacketCode;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use usher_core::collections::{HashState, HashTable};
use usher_core::{ConnId, DatagramPath, Duration, Instant, SocketId};

/// How many reply buffers are kept for reuse.
const SPARE: usize = 256;

/// What tells requests apart before their authenticator is compared: where they come from and their identifier, in numbers,
/// which are hashed in fewer steps than a [`SocketAddr`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RequestKey {
    address: u128,
    /// Port, identifier, and whether the address is of IPv6.
    port: u32,
    scope: u32,
    flow: u32,
    via: RequestTransport,
}

/// By what a request came. Identifiers are a connection's own (RFC 6613 §2.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum RequestTransport {
    Socket(SocketId),
    Connection(ConnId),
}

impl RequestKey {
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

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestState {
    /// The caller works on it; the entry's bytes are its Proxy-State attributes.
    Waiting,
    /// The entry's bytes are the reply.
    Answered,
    /// The caller did not want to answer.
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
    /// The request had a Message-Authenticator.
    pub(crate) signed: bool,
    pub(crate) state: RequestState,
    /// The reply waits in the ready list.
    pub(crate) queued: bool,
    pub(crate) expires: Instant,
}

impl CacheEntry {
    pub(crate) fn request_key(&self) -> RequestKey {
        RequestKey::new(&self.path, self.conn, self.identifier)
    }
}

/// An entry's name: its place, and how often the place was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CacheHandle {
    pub(crate) index: u32,
    generation: u32,
}

impl CacheHandle {
    pub(crate) const fn to_token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    pub(crate) const fn from_token(token: u64) -> Self {
        Self { index: token as u32, generation: (token >> 32) as u32 }
    }
}

#[derive(Debug)]
struct CacheSlot {
    generation: u32,
    /// Of the entry's key.
    hash: u64,
    entry: Option<CacheEntry>,
}

/// What is looked up: the hash of an entry's key, and the entry's place.
type IndexEntry = (u64, u32);

/// How many entries went, and of which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PurgeCounts {
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl CacheLimits {
    pub(crate) fn from_config(config: &super::RadiusServerConfig) -> Self {
        Self { entries: config.max_entries.clamp(1, u32::MAX as usize), bytes: config.max_bytes }
    }
}

/// What an entry takes without its bytes: its place, what is looked up with the room that a hash table leaves free, and
/// its expiry.
const ENTRY: usize =
    size_of::<CacheSlot>() + 2 * size_of::<IndexEntry>() + 2 * size_of::<(Instant, CacheHandle)>();

#[derive(Debug)]
pub(crate) struct DuplicateCache {
    slots: Vec<CacheSlot>,
    free: Vec<u32>,
    /// By key, which stands in the entry alone: the table stays small, and an entry that has had its time leaves it unread.
    by_key: HashTable<IndexEntry>,
    state: HashState,
    /// Each in order of expiry, since all of a kind live equally long; entries that left earlier are
    /// passed over.
    waiting: VecDeque<(Instant, CacheHandle)>,
    settled: VecDeque<(Instant, CacheHandle)>,
    /// How many wait, by client.
    waiting_of: Vec<u32>,
    spare: Vec<Vec<u8>>,
    sweep: Option<Instant>,
    interval: Duration,
    bounds: CacheLimits,
    /// What the entries take.
    bytes: usize,
}

impl DuplicateCache {
    pub(crate) fn new(state: HashState, retain: Duration, bounds: CacheLimits) -> Self {
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
    /// Other settings: those who are kept, are kept as long as was said.
    pub(crate) fn set_limits(&mut self, retain: Duration, bounds: CacheLimits) {
        self.interval = retain.max(Duration::from_millis(100));
        self.bounds = bounds;
    }
    /// How many requests of a client wait.
    pub(crate) fn waiting_of(&self, client: u32) -> usize {
        self.waiting_of.get(client as usize).map_or(0, |&n| n as usize)
    }
    /// The clients were numbered anew: `number` is what each entry's is now.
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
    /// One fewer of a client waits.
    fn decrement_waiting(&mut self, client: u32) {
        if let Some(n) = self.waiting_of.get_mut(client as usize) {
            *n -= 1;
        }
    }
    pub(crate) fn get(&self, h: CacheHandle) -> Option<&CacheEntry> {
        self.slots.get(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_ref()
    }
    pub(crate) fn get_mut(&mut self, h: CacheHandle) -> Option<&mut CacheEntry> {
        self.slots.get_mut(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_mut()
    }
    pub(crate) fn find_handle(&self, key: &RequestKey) -> Option<CacheHandle> {
        let hash = self.state.hash_one(key);
        let held = |index: u32| self.slots.get(index as usize).and_then(|slot| slot.entry.as_ref());
        let same =
            |(of, index): &IndexEntry| *of == hash && held(*index).is_some_and(|e| e.request_key() == *key);
        let (_, index) = *self.by_key.find(hash, same)?;
        Some(CacheHandle { index, generation: self.slots.get(index as usize)?.generation })
    }
    /// An empty buffer for an entry's bytes.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    pub(crate) fn recycle_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
    /// Whether a further entry finds room; gives up the oldest kept reply for it.
    pub(crate) fn evict_for_entry(&mut self, purged: &mut PurgeCounts) -> bool {
        while self.by_key.len() >= self.bounds.entries || self.bytes > self.bounds.bytes {
            let Some((_, h)) = self.settled.pop_front() else { return false };
            if self.remove(h) {
                purged.evicted += 1;
            }
        }
        true
    }
    /// Adds an entry that waits for the caller until `entry.expires`. No other may have its key.
    pub(crate) fn insert(&mut self, now: Instant, entry: CacheEntry) -> CacheHandle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(CacheSlot { generation: 0, hash: 0, entry: None });
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
        let handle = CacheHandle { index, generation: place.generation };
        self.waiting.push_back((entry.expires, handle));
        place.entry = Some(entry);
        self.sweep.get_or_insert(now + self.interval);
        handle
    }
    /// Puts an entry's bytes in place of those it has.
    pub(crate) fn replace_bytes(&mut self, h: CacheHandle, bytes: Vec<u8>) {
        let after = bytes.capacity();
        let Some(entry) = self.get_mut(h) else { return };
        let before = core::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes + after - before.capacity();
        self.recycle_buffer(before);
    }
    /// Notes that an entry got its state for good and goes at `expires`.
    pub(crate) fn set_final_state(&mut self, h: CacheHandle, state: RequestState, expires: Instant) {
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
    /// Takes an entry out; false where it had left before.
    pub(crate) fn remove(&mut self, h: CacheHandle) -> bool {
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
    /// Takes out what has had its time, at most `limit` of each kind.
    pub(crate) fn purge_expired(&mut self, now: Instant, limit: usize, purged: &mut PurgeCounts) {
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
    /// When memory is next given back. One wake-up serves all entries: what counts is compared with
    /// the time when it is looked up.
    pub(crate) fn next_sweep(&self) -> Option<Instant> {
        self.sweep
    }
    /// Gives memory back when the time has come.
    pub(crate) fn run_sweep(&mut self, now: Instant, purged: &mut PurgeCounts) {
        if self.sweep.is_some_and(|at| at <= now) {
            self.purge_expired(now, usize::MAX, purged);
            self.sweep = (!self.by_key.is_empty()).then(|| now + self.interval);
        }
    }
}
