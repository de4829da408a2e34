//! The role that a driver runs, and the mailbox for other threads.

use std::net::IpAddr;
use tokio::sync::mpsc::UnboundedSender;
use usher_core::{DatagramPath, Instant, JobRequest, LinkLayerPortId, ListenerId, Machine, WorkRecord};

/// A machine and its owner in a live program: handles its events and jobs, and messages of other threads. All
/// calls come from the driver's thread.
pub trait DriverRole {
    /// The protocol.
    type Machine: Machine;
    /// A message of other threads by the [`Mailbox`].
    type Message: Send + 'static;

    /// Returns the machine, for inputs and polls.
    fn machine(&mut self) -> &mut Self::Machine;

    /// Handles an event of the machine. The role may give commands: the driver drains the machine again.
    fn on_event(&mut self, now: Instant, event: <Self::Machine as Machine>::Event);

    /// Passes a job of the machine to a worker; the job result is a command. It may be given at once: the driver
    /// drains the machine again.
    fn on_job(&mut self, now: Instant, job: JobRequest<<Self::Machine as Machine>::Job>);

    /// Records work of the machine. This thread has done it already: the record only serves to measure the cost of a
    /// login.
    fn on_work(&mut self, _work: WorkRecord) {}

    /// Handles a message of the mailbox. The role may give commands and inputs: the driver drains the machine
    /// afterwards.
    fn on_message(&mut self, now: Instant, message: Self::Message);

    /// Diverts a datagram before the machine gets it. True if the role passed it to another shard; this shard's
    /// machine then skips it.
    fn divert_datagram(&mut self, _path: DatagramPath, _data: &[u8]) -> bool {
        false
    }

    /// True if the machine may have clients at this address. Other connections are refused before the handshake,
    /// which would cost as much as a client's.
    fn accepts_from(&self, _listener: ListenerId, _from: IpAddr) -> bool {
        true
    }

    /// Sends a frame, from the destination address on, by a port of the role. False if there is no such port; the
    /// frame counts as lost.
    fn send_frame(&mut self, _port: LinkLayerPortId, _frame: &[u8]) -> bool {
        false
    }

    /// True if the driver must stop. The driver checks it after each drain, then sends queued data and closes
    /// connections.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A sender of messages to a driver's role. Clones have the same receiver.
#[derive(Debug)]
pub struct Mailbox<M>(pub(crate) UnboundedSender<M>);

impl<M> Mailbox<M> {
    /// Sends a message and wakes the driver. False if the driver has ended; the message is lost then. The mailbox is
    /// unbounded: senders must bound their requests in flight.
    pub fn send(&self, message: M) -> bool {
        self.0.send(message).is_ok()
    }
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
