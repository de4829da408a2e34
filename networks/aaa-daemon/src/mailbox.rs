//! The mailboxes of the shards, for messages of other threads.

use crate::stats::ShardSnapshot;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use usher_aaa::{AaaServerCommand, DynamicAuthResult, LoginTraceFilter, ShardRequest};
use usher_aaa_config::ClientDirectory;
use usher_core::{DatagramPath, Instant};

/// The shard and token of a job's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobResultTarget {
    /// The shard.
    pub(crate) shard: u16,
    /// Token of the machine.
    pub(crate) token: u64,
}

/// A message to a shard.
pub(crate) enum ShardMessage {
    /// A command for the machine, mostly a job result.
    Command(AaaServerCommand),
    /// A datagram that another shard received, for a session of this one.
    Datagram(DatagramPath, Vec<u8>),
    /// A request that another shard received by a connection, with the number of that shard.
    ConnectionRequest(u16, ShardRequest),
    /// Returns the statistics.
    Collect(SyncSender<ShardSnapshot>),
    /// Evicts a user, or all, and reports the end.
    ForgetUsers(Option<Vec<u8>>, SyncSender<()>),
    /// New configuration and clients, with the result's receiver.
    Reload(Box<usher_aaa::AaaServerConfig>, Arc<ClientDirectory>, SyncSender<Result<(), String>>),
    /// Starts a trace in a slot and sends its lines here, or ends it.
    Trace(u8, Option<(LoginTraceFilter, SyncSender<LoginTraceLine>)>),
    /// A request to a NAS, and the result's receiver.
    Dynamic(AaaServerCommand, SyncSender<DynamicAuthResult>),
    /// Takes no new logins and ends when none is under way.
    Drain,
    /// Ends now.
    Stop,
}

/// A line of a trace.
#[derive(Debug)]
pub(crate) struct LoginTraceLine {
    pub(crate) traced_at: Instant,
    pub(crate) session: u64,
    pub(crate) text: String,
    /// Reject cause, in the line of a reject.
    pub(crate) cause: Option<&'static str>,
}

/// The mailboxes of all shards, by number.
#[derive(Clone, Default)]
pub(crate) struct ShardMailboxes(usher_service::ShardMailboxes<ShardMessage>);

impl std::ops::Deref for ShardMailboxes {
    type Target = usher_service::ShardMailboxes<ShardMessage>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl ShardMailboxes {
    pub(crate) fn send_command(&self, shard: u16, command: AaaServerCommand) {
        self.send(shard, ShardMessage::Command(command));
    }
    /// Has all shards evict a user, or all. False: a shard did not finish within `patience`.
    pub(crate) fn evict_user(&self, name: Option<&[u8]>, patience: std::time::Duration) -> bool {
        let (sender, receiver) = std::sync::mpsc::sync_channel(self.as_slice().len());
        for mailbox in self.as_slice() {
            mailbox.send(ShardMessage::ForgetUsers(name.map(<[u8]>::to_vec), sender.clone()));
        }
        let until = std::time::Instant::now() + patience;
        let left = || until.saturating_duration_since(std::time::Instant::now());
        self.as_slice().iter().all(|_| receiver.recv_timeout(left()).is_ok())
    }
    /// Collects and adds the statistics of all shards. Waits a short time for each.
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
