//! Requests being worked on and replies kept for duplicates (RFC 5080 §2.2.2), in one slab.

use crate::auth::Secret;
use crate::packet::Code;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use usher_core::collections::{HashState, HashTable};
use usher_core::{ConnId, Duration, Instant, Path, SocketId};

/// How many reply buffers are kept for reuse.
const SPARE: usize = 256;

/// What tells requests apart before their authenticator is compared: where they come from and their identifier, in numbers,
/// which are hashed in fewer steps than a [`SocketAddr`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    address: u128,
    /// Port, identifier, and whether the address is of IPv6.
    port: u32,
    scope: u32,
    flow: u32,
    via: Via,
}

/// By what a request came. Identifiers are a connection's own (RFC 6613 §2.6.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Via {
    Socket(SocketId),
    Connection(ConnId),
}

impl Key {
    pub(crate) fn new(path: &Path, conn: Option<ConnId>, identifier: u8) -> Self {
        let (address, six, scope, flow) = match path.remote {
            SocketAddr::V4(at) => (u128::from(at.ip().to_bits()), 0, 0, 0),
            SocketAddr::V6(at) => (at.ip().to_bits(), 1, at.scope_id(), at.flowinfo()),
        };
        let via = conn.map_or(Via::Socket(path.socket), Via::Connection);
        let port = u32::from(path.remote.port()) << 16 | u32::from(identifier) << 8 | six;
        Self { address, port, scope, flow, via }
    }
}

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The caller works on it; the entry's bytes are its Proxy-State attributes.
    Waiting,
    /// The entry's bytes are the reply.
    Answered,
    /// The caller did not want to answer.
    Discarded,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Path,
    pub(crate) conn: Option<ConnId>,
    pub(crate) authenticator: [u8; 16],
    pub(crate) bytes: Vec<u8>,
    pub(crate) client: u32,
    pub(crate) secret: Secret,
    pub(crate) identifier: u8,
    pub(crate) code: Code,
    /// The request had a Message-Authenticator.
    pub(crate) signed: bool,
    pub(crate) state: State,
    /// The reply waits in the ready list.
    pub(crate) queued: bool,
    pub(crate) expires: Instant,
}

impl Entry {
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.path, self.conn, self.identifier)
    }
}

/// An entry's name: its place, and how often the place was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) index: u32,
    generation: u32,
}

impl Handle {
    pub(crate) const fn token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }
    pub(crate) const fn from_token(token: u64) -> Self {
        Self { index: token as u32, generation: (token >> 32) as u32 }
    }
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// Of the entry's key.
    hash: u64,
    entry: Option<Entry>,
}

/// What is looked up: the hash of an entry's key, and the entry's place.
type Indexed = (u64, u32);

/// How many entries went, and of which kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Purged {
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

/// How much there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    pub(crate) fn of(config: &super::Config) -> Self {
        Self { entries: config.max_entries.clamp(1, u32::MAX as usize), bytes: config.max_bytes }
    }
}

/// What an entry takes without its bytes: its place, what is looked up with the room that a hash table leaves free, and
/// its expiry.
const ENTRY: usize = size_of::<Slot>() + 2 * size_of::<Indexed>() + 2 * size_of::<(Instant, Handle)>();

#[derive(Debug)]
pub(crate) struct Cache {
    places: Vec<Slot>,
    free: Vec<u32>,
    /// By key, which stands in the entry alone: the table stays small, and an entry that has had its time leaves it unread.
    by_key: HashTable<Indexed>,
    state: HashState,
    /// Each in order of expiry, since all of a kind live equally long; entries that left earlier are
    /// passed over.
    waiting: VecDeque<(Instant, Handle)>,
    settled: VecDeque<(Instant, Handle)>,
    /// How many wait, by client.
    waiting_of: Vec<u32>,
    spare: Vec<Vec<u8>>,
    sweep: Option<Instant>,
    interval: Duration,
    bounds: Bounds,
    /// What the entries take.
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(state: HashState, retain: Duration, bounds: Bounds) -> Self {
        Self {
            places: Vec::new(),
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
    pub(crate) fn bound(&mut self, retain: Duration, bounds: Bounds) {
        self.interval = retain.max(Duration::from_millis(100));
        self.bounds = bounds;
    }
    /// How many requests of a client wait.
    pub(crate) fn waiting_of(&self, client: u32) -> usize {
        self.waiting_of.get(client as usize).map_or(0, |&n| n as usize)
    }
    /// The clients were numbered anew: `number` is what each entry's is now.
    pub(crate) fn renumber(&mut self, clients: usize, number: impl Fn(&Entry) -> Option<u32>) {
        self.waiting_of.clear();
        self.waiting_of.resize(clients, 0);
        for entry in self.places.iter_mut().filter_map(|p| p.entry.as_mut()) {
            entry.client = number(entry).unwrap_or(u32::MAX);
            if entry.state == State::Waiting
                && let Some(n) = self.waiting_of.get_mut(entry.client as usize)
            {
                *n += 1;
            }
        }
    }
    /// One fewer of a client waits.
    fn leave(&mut self, client: u32) {
        if let Some(n) = self.waiting_of.get_mut(client as usize) {
            *n -= 1;
        }
    }
    pub(crate) fn get(&self, h: Handle) -> Option<&Entry> {
        self.places.get(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_ref()
    }
    pub(crate) fn get_mut(&mut self, h: Handle) -> Option<&mut Entry> {
        self.places.get_mut(h.index as usize).filter(|p| p.generation == h.generation)?.entry.as_mut()
    }
    pub(crate) fn find(&self, key: &Key) -> Option<Handle> {
        let hash = self.state.hash_one(key);
        let held = |index: u32| self.places.get(index as usize).and_then(|slot| slot.entry.as_ref());
        let same = |(of, index): &Indexed| *of == hash && held(*index).is_some_and(|e| e.key() == *key);
        let (_, index) = *self.by_key.find(hash, same)?;
        Some(Handle { index, generation: self.places.get(index as usize)?.generation })
    }
    /// An empty buffer for an entry's bytes.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spare.len() < SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
    /// Whether a further entry finds room; gives up the oldest kept reply for it.
    pub(crate) fn make_room(&mut self, purged: &mut Purged) -> bool {
        while self.by_key.len() >= self.bounds.entries || self.bytes > self.bounds.bytes {
            let Some((_, h)) = self.settled.pop_front() else { return false };
            if self.remove(h) {
                purged.evicted += 1;
            }
        }
        true
    }
    /// Adds an entry that waits for the caller until `entry.expires`. No other may have its key.
    pub(crate) fn insert(&mut self, now: Instant, entry: Entry) -> Handle {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Slot { generation: 0, hash: 0, entry: None });
            self.places.len() as u32 - 1
        });
        let hash = self.state.hash_one(entry.key());
        self.by_key.insert_unique(hash, (hash, index), |(hash, _)| *hash);
        self.bytes += ENTRY + entry.bytes.capacity();
        let client = entry.client as usize;
        if self.waiting_of.len() <= client {
            self.waiting_of.resize(client + 1, 0);
        }
        self.waiting_of[client] += 1;
        let place = &mut self.places[index as usize];
        place.hash = hash;
        let handle = Handle { index, generation: place.generation };
        self.waiting.push_back((entry.expires, handle));
        place.entry = Some(entry);
        self.sweep.get_or_insert(now + self.interval);
        handle
    }
    /// Puts an entry's bytes in place of those it has.
    pub(crate) fn put(&mut self, h: Handle, bytes: Vec<u8>) {
        let after = bytes.capacity();
        let Some(entry) = self.get_mut(h) else { return };
        let before = core::mem::replace(&mut entry.bytes, bytes);
        self.bytes = self.bytes + after - before.capacity();
        self.recycle(before);
    }
    /// Notes that an entry got its state for good and goes at `expires`.
    pub(crate) fn settle(&mut self, h: Handle, state: State, expires: Instant) {
        if let Some(entry) = self.get_mut(h) {
            let waited = entry.state == State::Waiting;
            entry.state = state;
            entry.expires = expires;
            let client = entry.client;
            if waited {
                self.leave(client);
            }
            self.settled.push_back((expires, h));
        }
    }
    /// Takes an entry out; false where it had left before.
    pub(crate) fn remove(&mut self, h: Handle) -> bool {
        if self.get(h).is_none() {
            return false;
        }
        let place = &mut self.places[h.index as usize];
        place.generation = place.generation.wrapping_add(1);
        let hash = place.hash;
        let Some(entry) = place.entry.take() else { return false };
        self.free.push(h.index);
        if let Ok(indexed) = self.by_key.find_entry(hash, |(_, index)| *index == h.index) {
            indexed.remove();
        }
        self.bytes -= ENTRY + entry.bytes.capacity();
        if entry.state == State::Waiting {
            self.leave(entry.client);
        }
        self.recycle(entry.bytes);
        true
    }
    /// Takes out what has had its time, at most `limit` of each kind.
    pub(crate) fn purge(&mut self, now: Instant, limit: usize, purged: &mut Purged) {
        for _ in 0..limit {
            let Some(&(at, h)) = self.waiting.front() else { break };
            let waits = self.get(h).is_some_and(|e| e.state == State::Waiting);
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
    pub(crate) fn sweep(&mut self, now: Instant, purged: &mut Purged) {
        if self.sweep.is_some_and(|at| at <= now) {
            self.purge(now, usize::MAX, purged);
            self.sweep = (!self.by_key.is_empty()).then(|| now + self.interval);
        }
    }
}
