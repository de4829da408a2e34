//! What threads tell the shards, and where they put it.

use crate::stats::ShardSnapshot;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, OnceLock};
use usher_aaa::{AaaServerCommand, DynamicResult, ShardRequest, TraceFilter};
use usher_aaa_config::ClientDirectory;
use usher_core::{DatagramPath, Instant};
use usher_live::Mailbox;

/// Whom a job is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobTarget {
    /// The shard.
    pub(crate) shard: u16,
    /// The machine's token.
    pub(crate) token: u64,
}

/// What other threads tell a shard.
pub(crate) enum ShardMessage {
    /// Something for the machine: mostly an answer.
    Command(AaaServerCommand),
    /// A request that came to another shard and is of a session of this one.
    Datagram(DatagramPath, Vec<u8>),
    /// The same by a connection, with the number of that shard.
    ConnectionRequest(u16, ShardRequest),
    /// Tell what was counted.
    Collect(SyncSender<ShardSnapshot>),
    /// Forget what is known of a user, or of all, and who waits until that is done.
    ForgetUsers(Option<Vec<u8>>, SyncSender<()>),
    /// New lists of clients and configuration, and who waits until they are taken.
    Reload(Box<usher_aaa::AaaServerConfig>, Arc<ClientDirectory>, SyncSender<Result<(), String>>),
    /// Trace under this number, to there; or no more.
    Trace(u8, Option<(TraceFilter, SyncSender<TracedLine>)>),
    /// A request to a NAS, and who waits for its end.
    Dynamic(AaaServerCommand, SyncSender<DynamicResult>),
    /// Take no new logins; end when none is under way.
    Drain,
    /// End now.
    Stop,
}

/// A line of a trace.
#[derive(Debug)]
pub(crate) struct TracedLine {
    pub(crate) traced_at: Instant,
    pub(crate) session: u64,
    pub(crate) text: String,
    /// Why nobody is let in, with the line that tells so.
    pub(crate) cause: Option<&'static str>,
}

/// Requests that other shards may have put into a shard's mailbox and it has not taken yet. What answers a shard's own
/// events has no bound here: there is never more of it than the shard asked for, which its machine bounds, and none of it
/// may be lost.
const REQUESTS: usize = 1 << 12;

/// The mailboxes of all shards, by number.
#[derive(Clone, Default)]
pub(crate) struct ShardMailboxes(Arc<OnceLock<MailboxTable>>);

struct MailboxTable {
    all: Vec<Mailbox<ShardMessage>>,
    /// How many requests of others are in each.
    requests: Vec<AtomicUsize>,
}

impl ShardMailboxes {
    pub(crate) fn set_mailboxes(&self, all: Vec<Mailbox<ShardMessage>>) {
        let requests = all.iter().map(|_| AtomicUsize::new(0)).collect();
        // Set once, when all shards are made.
        let _ = self.0.set(MailboxTable { all, requests });
    }
    pub(crate) fn as_slice(&self) -> &[Mailbox<ShardMessage>] {
        self.0.get().map_or(&[], |boxes| &boxes.all)
    }
    /// Puts a request of another shard in; false where there is no room, or no such shard.
    pub(crate) fn send_request(&self, shard: u16, message: ShardMessage) -> bool {
        let Some(waiting) = self.0.get().and_then(|boxes| boxes.requests.get(usize::from(shard))) else {
            return false;
        };
        if waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.send(shard, message)
    }
    /// A shard has taken a request out.
    pub(crate) fn release_request(&self, shard: u16) {
        if let Some(waiting) = self.0.get().and_then(|boxes| boxes.requests.get(usize::from(shard))) {
            waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
    pub(crate) fn send(&self, shard: u16, message: ShardMessage) -> bool {
        self.as_slice().get(usize::from(shard)).is_some_and(|m| m.send(message))
    }
    pub(crate) fn send_command(&self, shard: u16, command: AaaServerCommand) {
        self.send(shard, ShardMessage::Command(command));
    }
    /// Has every shard forget what is known of a user, or of all; false where one has not within a while.
    pub(crate) fn evict_user(&self, name: Option<&[u8]>, patience: std::time::Duration) -> bool {
        let (sender, receiver) = std::sync::mpsc::sync_channel(self.as_slice().len());
        for mailbox in self.as_slice() {
            mailbox.send(ShardMessage::ForgetUsers(name.map(<[u8]>::to_vec), sender.clone()));
        }
        let until = std::time::Instant::now() + patience;
        let left = || until.saturating_duration_since(std::time::Instant::now());
        self.as_slice().iter().all(|_| receiver.recv_timeout(left()).is_ok())
    }
    /// Asks every shard and adds up what they say, waiting a moment at most for each.
    pub(crate) fn collect_snapshot(&self) -> ShardSnapshot {
        let asked: Vec<Receiver<ShardSnapshot>> = self
            .as_slice()
            .iter()
            .filter_map(|m| {
                let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                m.send(ShardMessage::Collect(sender)).then_some(receiver)
            })
            .collect();
        let mut sum = ShardSnapshot::default();
        for receiver in asked {
            if let Ok(snapshot) = receiver.recv_timeout(std::time::Duration::from_secs(1)) {
                sum.merge(snapshot);
            }
        }
        sum
    }
}
