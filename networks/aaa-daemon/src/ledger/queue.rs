//! The queue of the ledger's thread. Clients take turns, and each client's entries stay in order. If the queue is
//! full, the client with the most entries loses its newest one. So a client that floods the server drops only its
//! own records.

use super::LedgerEntry;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_core::fair::FairQueue;

/// A client of the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LedgerClient {
    /// All Diameter peers together: the ledger counts them as one client.
    Diameter,
    /// A RADIUS client: its network and prefix length, which may be 0 (`0.0.0.0/0`).
    Radius(IpAddr, u8),
}

impl LedgerClient {
    /// Returns the client of a RADIUS network. `None`: Diameter.
    pub(crate) fn from_network(network: Option<(IpAddr, u8)>) -> Self {
        network.map_or(Self::Diameter, |(network, bits)| Self::Radius(network, bits))
    }
}

/// The owner of an entry's turn. Each kind has its own turns, so that many records do not evict failed attempts. A
/// client's records and admissions keep their common order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LedgerEntryOwner {
    /// Failed logins of a client.
    Failures(LedgerClient),
    /// Records and admissions of a client.
    Sessions(LedgerClient),
    /// Decided logins of a client.
    Logins(LedgerClient),
}

/// Maximum number of earlier entries that go before an entry of the server itself.
const BEFORE: usize = 1024;

#[derive(Default)]
struct QueuedLedgerEntries {
    clients: FairQueue<LedgerEntryOwner, LedgerEntry>,
    /// Entries of the server itself, each with the number of client entries that go before it.
    own: VecDeque<(u64, LedgerEntry)>,
    /// Number of client entries taken.
    client_entries_taken: u64,
}

impl QueuedLedgerEntries {
    fn take_next(&mut self) -> Option<LedgerEntry> {
        if self.clients.is_empty()
            || self.own.front().is_some_and(|(after, _)| *after <= self.client_entries_taken)
        {
            return self.own.pop_front().map(|(_, entry)| entry);
        }
        self.client_entries_taken += 1;
        self.clients.pop().map(|(_, entry)| entry)
    }
}

/// The queue; see the [module](self).
pub(crate) struct LedgerQueue {
    waiting: Mutex<QueuedLedgerEntries>,
    wakeup: Condvar,
    most: usize,
}

impl LedgerQueue {
    /// Creates a queue of `most` places.
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), wakeup: Condvar::new(), most }
    }
    fn lock(&self) -> MutexGuard<'_, QueuedLedgerEntries> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Queues an entry. If the queue is full, returns the dropped one: this entry, or the newest of the client with
    /// the most.
    #[must_use]
    pub(crate) fn push(&self, whose: LedgerEntryOwner, entry: LedgerEntry) -> Option<LedgerEntry> {
        let displaced = self.lock().clients.push(whose, entry, self.most);
        self.wakeup.notify_one();
        displaced.map(|(_, entry)| entry)
    }
    /// Queues an entry of the server itself. It needs no place and waits for a bounded number of earlier entries.
    pub(crate) fn queue_server_entry(&self, entry: LedgerEntry) {
        let mut waiting = self.lock();
        let after = waiting.client_entries_taken + waiting.clients.len().min(BEFORE) as u64;
        waiting.own.push_back((after, entry));
        drop(waiting);
        self.wakeup.notify_one();
    }
    /// Removes and returns the next entry.
    pub(crate) fn pop(&self) -> Option<LedgerEntry> {
        self.lock().take_next()
    }
    /// Removes and returns the next entry. Waits for it, but at most `patience`.
    pub(crate) fn take_with_timeout(&self, patience: Duration) -> Option<LedgerEntry> {
        let until = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(entry) = waiting.take_next() {
                return Some(entry);
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            waiting = self.wakeup.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    /// Number of queued entries.
    pub(crate) fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.clients.len() + waiting.own.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_client(n: u8) -> LedgerClient {
        LedgerClient::Radius([192, 0, 2, n].into(), 32)
    }
    fn failed_entry(user: &str) -> LedgerEntry {
        LedgerEntry::Failed { user: user.into(), station: Vec::new() }
    }
    fn entry_user(entry: Option<LedgerEntry>) -> Option<String> {
        match entry? {
            LedgerEntry::Failed { user, .. } => String::from_utf8(user).ok(),
            _ => None,
        }
    }

    #[test]
    fn a_record_flood_displaces_no_failed_login_of_its_client() {
        let queue = LedgerQueue::new(4);
        assert!(queue.push(LedgerEntryOwner::Failures(test_client(1)), failed_entry("guess")).is_none());
        let flood =
            |n: u32| queue.push(LedgerEntryOwner::Sessions(test_client(1)), failed_entry(&n.to_string()));
        let displaced: Vec<_> = (0..6).filter_map(|n| entry_user(flood(n))).collect();
        assert_eq!(displaced, ["3", "4", "5"]);
        assert_eq!(
            entry_user(queue.push(LedgerEntryOwner::Failures(test_client(1)), failed_entry("again")))
                .as_deref(),
            Some("2")
        );
        let order: Vec<_> = std::iter::from_fn(|| entry_user(queue.pop())).collect();
        assert_eq!(order, ["guess", "0", "again", "1"]);
    }

    #[test]
    fn a_client_of_every_address_is_not_the_diameter_peers() {
        let queue = LedgerQueue::new(4);
        let all = LedgerClient::from_network(Some(([0, 0, 0, 0].into(), 0)));
        for n in 0..4 {
            assert!(queue.push(LedgerEntryOwner::Sessions(all), failed_entry(&n.to_string())).is_none());
        }
        let displaced = queue
            .push(LedgerEntryOwner::Sessions(LedgerClient::from_network(None)), failed_entry("diameter"));
        assert_eq!(entry_user(displaced).as_deref(), Some("3"), "who floods makes room");
        let order: Vec<_> = std::iter::from_fn(|| entry_user(queue.pop())).collect();
        assert!(order.contains(&"diameter".to_owned()), "{order:?}");
    }

    #[test]
    fn the_servers_own_entries_need_no_slot_and_bypass_a_flood() {
        let queue = LedgerQueue::new(3 * BEFORE);
        let flood =
            |n| entry_user(queue.push(LedgerEntryOwner::Sessions(test_client(n)), failed_entry("record")));
        assert_eq!((0..3 * BEFORE).filter_map(|_| flood(1)).count(), 0);
        queue.queue_server_entry(LedgerEntry::Stop);
        assert!((0..4 * BEFORE).filter_map(|_| flood(1)).count() == 4 * BEFORE);
        let before = std::iter::from_fn(|| entry_user(queue.pop())).count();
        assert_eq!((before, queue.len()), (BEFORE, 2 * BEFORE));
    }

    #[test]
    fn who_waits_for_an_entry_is_woken_and_does_not_wait_for_ever() {
        let queue = LedgerQueue::new(2);
        assert!(queue.take_with_timeout(Duration::from_millis(10)).is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| entry_user(queue.take_with_timeout(Duration::from_secs(60))));
            assert!(queue.push(LedgerEntryOwner::Logins(test_client(1)), failed_entry("ann")).is_none());
            assert_eq!(waiter.join().ok().flatten().as_deref(), Some("ann"));
        });
    }
}
