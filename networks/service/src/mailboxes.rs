//! The mailboxes of a service's shards, for messages of other threads.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use usher_live::Mailbox;

/// The limit of pending requests of other shards in a mailbox. Job results of a shard's own machine have no limit
/// here: the machine limits its jobs, and no result may be lost.
const REQUESTS: usize = 1 << 12;

/// The mailboxes of all shards by number. Clones share them. Empty until [`set_mailboxes`](Self::set_mailboxes), which
/// precedes the start of the shards.
pub struct ShardMailboxes<M>(Arc<OnceLock<MailboxTable<M>>>);

struct MailboxTable<M> {
    all: Vec<Mailbox<M>>,
    /// The pending requests of other shards in each.
    requests: Vec<AtomicUsize>,
}

impl<M> Default for ShardMailboxes<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> Clone for ShardMailboxes<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> fmt::Debug for ShardMailboxes<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardMailboxes").field(&self.as_slice().len()).finish()
    }
}

impl<M> ShardMailboxes<M> {
    /// Sets the mailboxes, once.
    pub fn set_mailboxes(&self, all: Vec<Mailbox<M>>) {
        let requests = all.iter().map(|_| AtomicUsize::new(0)).collect();
        // A second call changes nothing.
        let _ = self.0.set(MailboxTable { all, requests });
    }
    /// Returns the mailboxes.
    #[must_use]
    pub fn as_slice(&self) -> &[Mailbox<M>] {
        self.0.get().map_or(&[], |boxes| &boxes.all)
    }
    /// Sends a message. False: there is no such shard, or it has ended.
    pub fn send(&self, shard: impl Into<usize>, message: M) -> bool {
        self.as_slice().get(shard.into()).is_some_and(|mailbox| mailbox.send(message))
    }
    /// Sends a request of another shard, which [`release_request`](Self::release_request) counts when it is received.
    /// False: the mailbox has its limit of requests, or the shard does not exist.
    pub fn send_request(&self, shard: impl Into<usize>, message: M) -> bool {
        let shard = shard.into();
        let Some(waiting) = self.requests_of(shard) else { return false };
        if waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let sent = self.send(shard, message);
        if !sent {
            self.release_request(shard);
        }
        sent
    }
    /// Counts a request as received.
    pub fn release_request(&self, shard: impl Into<usize>) {
        if let Some(waiting) = self.requests_of(shard.into()) {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
    fn requests_of(&self, shard: usize) -> Option<&AtomicUsize> {
        self.0.get()?.requests.get(shard)
    }
}
