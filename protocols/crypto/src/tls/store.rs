//! Bounded in-memory storage of sessions for resumption. The oldest session is evicted first.

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map of at most `limit` values. A new key beyond that evicts the oldest.
pub(super) struct BoundedMap<V> {
    values: BTreeMap<Vec<u8>, (u64, V)>,
    order: BTreeMap<u64, Vec<u8>>,
    next: u64,
    limit: usize,
}

impl<V> BoundedMap<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { values: BTreeMap::new(), order: BTreeMap::new(), next: 0, limit }
    }
    pub(super) fn insert(&mut self, key: Vec<u8>, value: V) {
        self.remove(&key);
        while self.values.len() >= self.limit.max(1) {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.values.remove(&oldest);
        }
        self.order.insert(self.next, key.clone());
        self.values.insert(key, (self.next, value));
        self.next += 1;
    }
    pub(super) fn get(&self, key: &[u8]) -> Option<&V> {
        self.values.get(key).map(|(_, value)| value)
    }
    fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        self.values.get_mut(key).map(|(_, value)| value)
    }
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<V> {
        let (number, value) = self.values.remove(key)?;
        self.order.remove(&number);
        Some(value)
    }
    /// Removes the values that do not match and returns their number.
    pub(super) fn retain(&mut self, stays: impl Fn(&V) -> bool) -> usize {
        let before = self.values.len();
        let order = &mut self.order;
        self.values.retain(|_, (number, value)| {
            let stays = stays(value);
            if !stays {
                order.remove(number);
            }
            stays
        });
        before - self.values.len()
    }
}

pub(super) fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of tickets that a client keeps per holder. A server issues few, and each is for one use.
const TICKETS: usize = 8;

/// The sessions of clients, by holder.
pub(super) struct TlsClientSessionStore {
    tls12: Mutex<BoundedMap<Tls12ClientSessionValue>>,
    tls13: Mutex<BoundedMap<VecDeque<Tls13ClientSessionValue>>>,
}

impl TlsClientSessionStore {
    pub(super) fn new(limit: usize) -> Self {
        Self { tls12: Mutex::new(BoundedMap::new(limit)), tls13: Mutex::new(BoundedMap::new(limit)) }
    }
}

impl core::fmt::Debug for TlsClientSessionStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TlsClientSessionStore(..)")
    }
}

fn session_store_key(name: &ServerName<'_>) -> Vec<u8> {
    name.to_str().as_bytes().to_vec()
}

impl ClientSessionStore for TlsClientSessionStore {
    // No hint is stored: almost every server supports the first offered group, and the others cost one more round trip.
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }
    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        lock_unpoisoned(&self.tls12).insert(session_store_key(&name), value);
    }
    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        lock_unpoisoned(&self.tls12).get(&session_store_key(name)).cloned()
    }
    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        lock_unpoisoned(&self.tls12).remove(&session_store_key(name));
    }
    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut holders = lock_unpoisoned(&self.tls13);
        let key = session_store_key(&name);
        match holders.get_mut(&key) {
            Some(tickets) => {
                if tickets.len() == TICKETS {
                    tickets.pop_front();
                }
                tickets.push_back(value);
            }
            None => holders.insert(key, VecDeque::from([value])),
        }
    }
    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut holders = lock_unpoisoned(&self.tls13);
        holders.get_mut(&session_store_key(name))?.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leaves_first() {
        let mut store = BoundedMap::new(2);
        for n in 1..=3_u8 {
            store.insert(vec![n], n);
        }
        assert_eq!(store.get(&[1]), None);
        assert_eq!(store.get(&[2]), Some(&2));
        store.insert(vec![2], 9);
        store.insert(vec![4], 4);
        assert_eq!(store.get(&[3]), None, "a value put again is young again");
        assert_eq!(store.remove(&[2]), Some(9));
        assert_eq!(store.remove(&[2]), None);
        assert_eq!(store.get(&[4]), Some(&4));
        store.insert(vec![5], 5);
        assert_eq!(store.retain(|n| *n != 4), 1);
        store.insert(vec![6], 6);
        assert_eq!((store.get(&[4]), store.get(&[5]), store.get(&[6])), (None, Some(&5), Some(&6)));
    }
}
