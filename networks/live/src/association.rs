//! One association: the task between an SCTP socket and the driver.

use crate::mmsg::AsyncSctpSocket;
use crate::stream::{ConnectionCommand, ConnectionEvent, DriverHandle};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};
use usher_core::CloseReason;
use usher_sctp::{SctpAssociation, SctpEvent, SendInfo, SocketOptions};

/// Messages read before commands are polled.
const BATCH: usize = 64;

/// Serves an accepted association.
pub(crate) async fn serve_accepted(link: DriverHandle, association: SctpAssociation, remote: SocketAddr) {
    serve_association(link, Ok(association), remote).await;
}

/// Opens an association with this number of outbound streams, and serves it.
pub(crate) async fn connect_and_serve(
    link: DriverHandle,
    local: Option<IpAddr>,
    remote: SocketAddr,
    streams: u16,
) {
    let options = SocketOptions { streams_out: streams.max(1), ..link.settings.associations };
    let local: Vec<IpAddr> = local.into_iter().filter(|local| !local.is_unspecified()).collect();
    serve_association(link, SctpAssociation::connect(&local, &[remote], &options), remote).await;
}

async fn serve_association(link: DriverHandle, association: io::Result<SctpAssociation>, remote: SocketAddr) {
    match association.and_then(AsyncSctpSocket::into_async) {
        Ok(socket) => AssociationTask::new(link, socket, remote).run_to_end().await,
        Err(_) => {
            link.counters.connect_failures.increment();
            link.send_event(ConnectionEvent::Closed(CloseReason::Refused)).await;
        }
    }
}

struct AssociationTask {
    link: DriverHandle,
    socket: AsyncFd<SctpAssociation>,
    remote: SocketAddr,
    up: bool,
    /// Messages that the kernel has not taken yet.
    waiting: VecDeque<(SendInfo, Vec<u8>)>,
    /// True if this end closes after all is sent, and has told the kernel.
    is_closing: bool,
    has_sent_end: bool,
    /// True if the driver has dropped it.
    orphan: bool,
    deadline: Option<Instant>,
    message: Vec<u8>,
}

impl AssociationTask {
    fn new(link: DriverHandle, socket: AsyncFd<SctpAssociation>, remote: SocketAddr) -> Self {
        let deadline = Some(Instant::now() + link.settings.connect_timeout);
        let (waiting, message) = (VecDeque::new(), Vec::new());
        Self {
            link,
            socket,
            remote,
            up: false,
            waiting,
            is_closing: false,
            has_sent_end: false,
            orphan: false,
            deadline,
            message,
        }
    }

    /// Runs it to its end.
    async fn run_to_end(mut self) {
        let reason = self.run_until_closed().await;
        // An association that did not end gracefully is aborted.
        if reason != Some(CloseReason::Closed) {
            self.socket.into_inner().abort();
        }
        let Some(reason) = reason else { return };
        if !self.up && !self.link.id.is_accepted() {
            self.link.counters.connect_failures.increment();
        }
        self.link.send_event(ConnectionEvent::Closed(reason)).await;
    }

    /// Runs until it is closed; `None` if the driver aborts it.
    async fn run_until_closed(&mut self) -> Option<CloseReason> {
        loop {
            self.flush();
            if self.is_closing && !self.up {
                // Close at once: there is no association yet that could be shut down gracefully.
                return Some(CloseReason::Closed);
            }
            if self.is_closing && !self.has_sent_end && self.waiting.is_empty() {
                self.has_sent_end = true;
                // An error is ignored: if the association is already over, reading shows that.
                let _ = self.socket.get_ref().shutdown();
            }
            let blocked = self.up && !self.waiting.is_empty();
            let interest = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let deadline = self.deadline;
            tokio::select! {
                order = self.link.orders.recv(), if !self.orphan => {
                    if !self.apply_command(order) {
                        return None;
                    }
                    while let Ok(order) = self.link.orders.try_recv() {
                        if !self.apply_command(Some(order)) {
                            return None;
                        }
                    }
                }
                ready = async { self.socket.ready(interest).await.map(drop) } => {
                    if ready.is_err() {
                        return Some(CloseReason::Reset);
                    }
                    if let Some(reason) = self.receive_batch().await {
                        return Some(reason);
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Some(CloseReason::TimedOut);
                }
            }
        }
    }

    /// Applies a command; `None` means that the driver has ended. False: abort the association.
    fn apply_command(&mut self, order: Option<ConnectionCommand>) -> bool {
        match order {
            Some(ConnectionCommand::Message(how, data)) => self.waiting.push_back((how, data)),
            Some(ConnectionCommand::Shutdown) | None => {
                self.orphan = order.is_none();
                if !self.is_closing {
                    self.is_closing = true;
                    self.deadline = Some(Instant::now() + self.link.settings.linger);
                }
            }
            Some(ConnectionCommand::Abort) => return false,
            // These commands are for byte streams and do not apply to associations.
            Some(ConnectionCommand::Data(_) | ConnectionCommand::Credit(_)) => {
                self.link.counters.unknown_connection.increment()
            }
        }
        true
    }

    /// Writes to the kernel as much as it takes.
    fn flush(&mut self) {
        while self.up
            && let Some((how, data)) = self.waiting.front()
        {
            match self.socket.try_io(Interest::WRITABLE, |association| association.send_message(*how, data)) {
                Ok(()) => {
                    self.link.counters.sctp_messages_out.increment();
                    self.link.counters.stream_octets_out.add(data.len() as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.link.counters.sctp_messages_refused.increment(),
            }
            self.link.queued.fetch_sub(data.len(), Ordering::Relaxed);
            self.waiting.pop_front();
        }
    }

    /// Reads a batch of messages. Returns the reason if the association is over.
    async fn receive_batch(&mut self) -> Option<CloseReason> {
        for _ in 0..BATCH {
            let Self { socket, message, .. } = self;
            match socket.try_io_mut(Interest::READABLE, |association| association.receive_event(message)) {
                Ok(SctpEvent::Up { streams, .. }) if !self.up => {
                    self.up = true;
                    self.deadline = self.deadline.filter(|_| self.is_closing);
                    self.link.send_event(ConnectionEvent::Up { remote: self.remote, streams }).await;
                }
                Ok(SctpEvent::Message(how)) => {
                    let data = std::mem::take(&mut self.message);
                    self.link.counters.sctp_messages_in.increment();
                    self.link.counters.stream_octets_in.add(data.len() as u64);
                    self.link
                        .send_event(ConnectionEvent::Message { stream: how.stream, ppid: how.ppid, data })
                        .await;
                }
                Ok(SctpEvent::End(reason)) => return Some(reason),
                Ok(
                    SctpEvent::Up { .. } | SctpEvent::Finished | SctpEvent::Address { .. } | SctpEvent::Other,
                ) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.link.counters.sctp_messages_too_long.increment();
                    return Some(CloseReason::Reset);
                }
            }
        }
        None
    }
}
