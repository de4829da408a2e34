//! What a driver hosts, and how other threads reach it.

use std::net::IpAddr;
use tokio::sync::mpsc::UnboundedSender;
use usher_core::{DatagramPath, Instant, JobRequest, ListenerId, Machine, PortId, WorkRecord};

/// A machine with what surrounds it in a live program: where its events go, and what comes from other
/// threads. All calls come from the driver's thread.
pub trait DriverRole {
    /// The protocol.
    type Machine: Machine;
    /// What other threads send by the [`Mailbox`].
    type Message: Send + 'static;

    /// The machine, to be fed and drained.
    fn machine(&mut self) -> &mut Self::Machine;

    /// The machine said something. The node may give it commands: the driver drains it again.
    fn on_event(&mut self, now: Instant, event: <Self::Machine as Machine>::Event);

    /// The machine asks something of a slow helper; the answer is a command. It may be given at once: the driver drains the
    /// machine again.
    fn on_job(&mut self, now: Instant, job: JobRequest<<Self::Machine as Machine>::Job>);

    /// The machine reported work of a kind. It is done already, by this thread: who counts it can say what a login takes.
    fn on_work(&mut self, _work: WorkRecord) {}

    /// A message came by the mailbox. The node may give commands and inputs: the driver drains afterwards.
    fn on_message(&mut self, now: Instant, message: Self::Message);

    /// Asked for every datagram before the machine gets it; true where the node handed it to another shard,
    /// and this one's machine is not to see it.
    fn divert_datagram(&mut self, _path: DatagramPath, _data: &[u8]) -> bool {
        false
    }

    /// Whether the machine may have to do with whoever connects from this address. A stranger is refused before a handshake, which would cost
    /// what a friend's does.
    fn accepts_from(&self, _listener: ListenerId, _from: IpAddr) -> bool {
        true
    }

    /// The machine sends a frame, from the destination address on, by a port of the node's own; false: the node has none, and the
    /// frame is counted as lost.
    fn send_frame(&mut self, _port: PortId, _frame: &[u8]) -> bool {
        false
    }

    /// Whether the driver shall end: it asks after each drain, sends what is queued and closes what is open.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Where other threads put messages for a driver's node. Clones go to the same node.
#[derive(Debug)]
pub struct Mailbox<M>(pub(crate) UnboundedSender<M>);

impl<M> Mailbox<M> {
    /// Puts a message in and wakes the driver; false if that has ended, and the message is lost. The mailbox
    /// has no bound of its own: what asks and what answers must bound what is under way.
    pub fn send(&self, message: M) -> bool {
        self.0.send(message).is_ok()
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
