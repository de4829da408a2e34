//! Sessions kept for resumption, in memory, bounded, the oldest leaving first.

use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use rustls::{NamedGroup, server::StoresServerSessions};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// At most `limit` values by key; a new key beyond that pushes out the oldest.
#[derive(Debug)]
struct Bounded<V> {
    values: BTreeMap<Vec<u8>, (u64, V)>,
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
    limit: usize,
}

impl<V> Bounded<V> {
    fn new(limit: usize) -> Self {
        Self { values: BTreeMap::new(), order: BTreeMap::new(), next: 0, limit }
    }
    fn put(&mut self, key: Vec<u8>, value: V) {
        self.take(&key);
        while self.values.len() >= self.limit.max(1) {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.values.remove(&oldest);
        }
        self.order.insert(self.next, key.clone());
        self.values.insert(key, (self.next, value));
        self.next += 1;
    }
    fn get(&self, key: &[u8]) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }
    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.values.get_mut(key).map(|(_, value)| value)
    }
    fn take(&mut self, key: &[u8]) -> Option<V> {
        let (number, value) = self.values.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server's sessions by session identifier or ticket.
pub(super) struct ServerStore(Mutex<Bounded<Vec<u8>>>);

impl ServerStore {
    pub(super) fn new(limit: usize) -> Self {
        Self(Mutex::new(Bounded::new(limit)))
    }
}

impl core::fmt::Debug for ServerStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ServerStore(..)")
    }
}

impl StoresServerSessions for ServerStore {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        lock(&self.0).put(key, value);
        true
    }
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.0).get(key).cloned()
    }
    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        lock(&self.0).take(key)
    }
    fn can_cache(&self) -> bool {
        true
    }
}

/// What a host noted on sessions, by mark.
pub(super) struct Notes {
    limit: usize,
    notes: Mutex<Bounded<Vec<u8>>>,
}

impl Notes {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, notes: Mutex::new(Bounded::new(limit)) }
    }
    pub(super) fn put(&self, mark: &[u8], note: &[u8]) {
        if self.limit > 0 {
            lock(&self.notes).put(mark.to_vec(), note.to_vec());
        }
    }
    pub(super) fn get(&self, mark: &[u8]) -> Option<Vec<u8>> {
        lock(&self.notes).get(mark).cloned()
    }
}

impl core::fmt::Debug for Notes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Notes(..)")
    }
}

/// Tickets that a client keeps for one holder; a server gives few, and each is good for one use.
const TICKETS: usize = 8;

/// Clients' sessions by holder.
pub(super) struct ClientStore {
    tls12: Mutex<Bounded<Tls12ClientSessionValue>>,
    tls13: Mutex<Bounded<VecDeque<Tls13ClientSessionValue>>>,
}

impl ClientStore {
    pub(super) fn new(limit: usize) -> Self {
        Self { tls12: Mutex::new(Bounded::new(limit)), tls13: Mutex::new(Bounded::new(limit)) }
    }
}

impl core::fmt::Debug for ClientStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ClientStore(..)")
    }
}

fn key(name: &ServerName<'_>) -> Vec<u8> {
    name.to_str().as_bytes().to_vec()
}

impl ClientSessionStore for ClientStore {
    // The first group is known almost everywhere; elsewhere it costs a round trip.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }
    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        lock(&self.tls12).put(key(&name), value);
    }
    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        lock(&self.tls12).get(&key(name)).cloned()
    }
    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        lock(&self.tls12).take(&key(name));
    }
    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut holders = lock(&self.tls13);
        let key = key(&name);
        match holders.get_mut(&key) {
            Some(tickets) => {
                if tickets.len() == TICKETS {
                    tickets.pop_front();
                }
                tickets.push_back(value);
            }
            None => holders.put(key, VecDeque::from([value])),
        }
    }
    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut holders = lock(&self.tls13);
        holders.get_mut(&key(name))?.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leaves_first() {
        let store = ServerStore::new(2);
        for n in 1..=3_u8 {
            store.put(vec![n], vec![n; 4]);
        }
        assert_eq!(store.get(&[1]), None);
        assert_eq!(store.get(&[2]), Some(vec![2; 4]));
        store.put(vec![2], vec![9]);
        store.put(vec![4], vec![4]);
        assert_eq!(store.get(&[3]), None, "a value put again is young again");
        assert_eq!(store.take(&[2]), Some(vec![9]));
        assert_eq!(store.take(&[2]), None);
        assert_eq!(store.get(&[4]), Some(vec![4]));
    }
}
