//! What waits for the ledger's thread. Clients are served in turn, each one's entries in their order, and where all places
//! are taken the newest entry of whoever has most makes room: a client that floods the server with records keeps out its
//! own and nobody else's.

use super::Entry;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use usher_core::fair::FairQueue;

/// Who has a turn of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Client {
    /// All Diameter peers together, as they are one to the ledger.
    Diameter,
    /// A RADIUS client: its network and how many of its leading bits count, be that none (`0.0.0.0/0`).
    Radius(IpAddr, u8),
}

impl Client {
    /// Of a RADIUS client's network; `None`: of Diameter peers.
    pub(crate) fn of(network: Option<(IpAddr, u8)>) -> Self {
        network.map_or(Self::Diameter, |(network, bits)| Self::Radius(network, bits))
    }
}

/// Whose turn an entry waits for. What a client may have many of does not push out what counts its wrong guesses, so each
/// kind has turns of its own; the order of one client's records and admissions is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Whose {
    /// Failed logins by a client.
    Failures(Client),
    /// Records and admissions of a client.
    Sessions(Client),
    /// Decided logins of a client.
    Logins(Client),
}

/// For how many entries that came before it a question of the server's own waits.
const BEFORE: usize = 1024;

#[derive(Default)]
struct Waiting {
    clients: FairQueue<Whose, Entry>,
    /// The server's own, each with how many of the clients' are taken before it.
    own: VecDeque<(u64, Entry)>,
    /// How many of the clients' were taken.
    taken: u64,
}

impl Waiting {
    fn take(&mut self) -> Option<Entry> {
        if self.clients.is_empty() || self.own.front().is_some_and(|(after, _)| *after <= self.taken) {
            return self.own.pop_front().map(|(_, entry)| entry);
        }
        self.taken += 1;
        self.clients.pop().map(|(_, entry)| entry)
    }
}

/// The queue; see the [module](self).
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    bell: Condvar,
    most: usize,
}

impl Queue {
    /// A queue with so many places.
    pub(crate) fn new(most: usize) -> Self {
        Self { waiting: Mutex::default(), bell: Condvar::new(), most }
    }
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Puts an entry in line. Where all places are taken one is given back: this one, or the newest of whoever has most.
    #[must_use]
    pub(crate) fn put(&self, whose: Whose, entry: Entry) -> Option<Entry> {
        let displaced = self.lock().clients.push(whose, entry, self.most);
        self.bell.notify_one();
        displaced.map(|(_, entry)| entry)
    }
    /// Puts an entry of the server's own in line: it needs no place, and waits for some of those before it only.
    pub(crate) fn put_own(&self, entry: Entry) {
        let mut waiting = self.lock();
        let after = waiting.taken + waiting.clients.len().min(BEFORE) as u64;
        waiting.own.push_back((after, entry));
        drop(waiting);
        self.bell.notify_one();
    }
    /// The next entry, if there is one.
    pub(crate) fn take(&self) -> Option<Entry> {
        self.lock().take()
    }
    /// The next entry; waits for one, but not longer than that.
    pub(crate) fn take_within(&self, patience: Duration) -> Option<Entry> {
        let until = Instant::now() + patience;
        let mut waiting = self.lock();
        loop {
            if let Some(entry) = waiting.take() {
                return Some(entry);
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            waiting = self.bell.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    /// How many entries wait.
    pub(crate) fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.clients.len() + waiting.own.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> Client {
        Client::Radius([192, 0, 2, n].into(), 32)
    }
    fn failed(user: &str) -> Entry {
        Entry::Failed { user: user.into(), station: Vec::new() }
    }
    fn user(entry: Option<Entry>) -> Option<String> {
        match entry? {
            Entry::Failed { user, .. } => String::from_utf8(user).ok(),
            _ => None,
        }
    }

    #[test]
    fn a_flood_of_records_displaces_no_failed_login_of_the_same_client() {
        let queue = Queue::new(4);
        assert!(queue.put(Whose::Failures(client(1)), failed("guess")).is_none());
        let flood = |n: u32| queue.put(Whose::Sessions(client(1)), failed(&n.to_string()));
        let displaced: Vec<_> = (0..6).filter_map(|n| user(flood(n))).collect();
        assert_eq!(displaced, ["3", "4", "5"]);
        assert_eq!(user(queue.put(Whose::Failures(client(1)), failed("again"))).as_deref(), Some("2"));
        let order: Vec<_> = std::iter::from_fn(|| user(queue.take())).collect();
        assert_eq!(order, ["guess", "0", "again", "1"]);
    }

    #[test]
    fn a_client_of_every_address_is_not_the_diameter_peers() {
        let queue = Queue::new(4);
        let all = Client::of(Some(([0, 0, 0, 0].into(), 0)));
        for n in 0..4 {
            assert!(queue.put(Whose::Sessions(all), failed(&n.to_string())).is_none());
        }
        let displaced = queue.put(Whose::Sessions(Client::of(None)), failed("diameter"));
        assert_eq!(user(displaced).as_deref(), Some("3"), "who floods makes room");
        let order: Vec<_> = std::iter::from_fn(|| user(queue.take())).collect();
        assert!(order.contains(&"diameter".to_owned()), "{order:?}");
    }

    #[test]
    fn what_is_the_servers_own_needs_no_place_and_does_not_wait_for_a_flood() {
        let queue = Queue::new(3 * BEFORE);
        let flood = |n| user(queue.put(Whose::Sessions(client(n)), failed("record")));
        assert_eq!((0..3 * BEFORE).filter_map(|_| flood(1)).count(), 0);
        queue.put_own(Entry::Stop);
        assert!((0..4 * BEFORE).filter_map(|_| flood(1)).count() == 4 * BEFORE);
        let before = std::iter::from_fn(|| user(queue.take())).count();
        assert_eq!((before, queue.len()), (BEFORE, 2 * BEFORE));
    }

    #[test]
    fn who_waits_for_an_entry_is_woken_and_does_not_wait_for_ever() {
        let queue = Queue::new(2);
        assert!(queue.take_within(Duration::from_millis(10)).is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| user(queue.take_within(Duration::from_secs(60))));
            assert!(queue.put(Whose::Logins(client(1)), failed("ann")).is_none());
            assert_eq!(waiter.join().ok().flatten().as_deref(), Some("ann"));
        });
    }
}
