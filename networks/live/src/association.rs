//! One association: a task between an SCTP socket and the driver.

use crate::mmsg::Watched;
use crate::stream::{DriverHandle, Note, Order};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};
use usher_core::CloseReason;
use usher_sctp::{Association, Outgoing, Received, SocketOptions};

/// Messages read before orders are looked at.
const BATCH: usize = 64;

/// Serves an association that somebody began.
pub(crate) async fn accepted(link: DriverHandle, association: Association, remote: SocketAddr) {
    serve(link, Ok(association), remote).await;
}

/// Begins an association with so many outbound streams and serves it.
pub(crate) async fn connect(link: DriverHandle, local: Option<IpAddr>, remote: SocketAddr, streams: u16) {
    let options = SocketOptions { streams_out: streams.max(1), ..link.settings.associations };
    let local: Vec<IpAddr> = local.into_iter().filter(|local| !local.is_unspecified()).collect();
    serve(link, Association::connect(&local, &[remote], &options), remote).await;
}

async fn serve(link: DriverHandle, association: io::Result<Association>, remote: SocketAddr) {
    match association.and_then(Watched::watched) {
        Ok(socket) => Carrier::new(link, socket, remote).carry().await,
        Err(_) => {
            link.counters.connect_failures.one();
            link.tell(Note::Closed(CloseReason::Refused)).await;
        }
    }
}

struct Carrier {
    link: DriverHandle,
    socket: AsyncFd<Association>,
    remote: SocketAddr,
    up: bool,
    /// Messages that the system has not taken yet.
    waiting: VecDeque<(Outgoing, Vec<u8>)>,
    /// This side wants it to end once all is sent; and has said so.
    ending: bool,
    said: bool,
    /// The driver has forgotten it.
    orphan: bool,
    deadline: Option<Instant>,
    message: Vec<u8>,
}

impl Carrier {
    fn new(link: DriverHandle, socket: AsyncFd<Association>, remote: SocketAddr) -> Self {
        let deadline = Some(Instant::now() + link.settings.connect_timeout);
        let (waiting, message) = (VecDeque::new(), Vec::new());
        Self {
            link,
            socket,
            remote,
            up: false,
            waiting,
            ending: false,
            said: false,
            orphan: false,
            deadline,
            message,
        }
    }

    /// Carries it to its end.
    async fn carry(mut self) {
        let reason = self.run().await;
        // What has not ended in good order, ends at once.
        if reason != Some(CloseReason::Closed) {
            self.socket.into_inner().abort();
        }
        let Some(reason) = reason else { return };
        if !self.up && !self.link.id.is_accepted() {
            self.link.counters.connect_failures.one();
        }
        self.link.tell(Note::Closed(reason)).await;
    }

    /// Until it is over; `None` where the driver wanted that at once.
    async fn run(&mut self) -> Option<CloseReason> {
        loop {
            self.flush();
            if self.ending && !self.up {
                // Nothing is up yet that could be closed in good order.
                return Some(CloseReason::Closed);
            }
            if self.ending && !self.said && self.waiting.is_empty() {
                self.said = true;
                // Where there is nothing to be closed any more, that is told by what is received.
                let _ = self.socket.get_ref().shutdown();
            }
            let blocked = self.up && !self.waiting.is_empty();
            let interest = if blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let deadline = self.deadline;
            tokio::select! {
                order = self.link.orders.recv(), if !self.orphan => {
                    if !self.obey(order) {
                        return None;
                    }
                    while let Ok(order) = self.link.orders.try_recv() {
                        if !self.obey(Some(order)) {
                            return None;
                        }
                    }
                }
                ready = async { self.socket.ready(interest).await.map(drop) } => {
                    if ready.is_err() {
                        return Some(CloseReason::Reset);
                    }
                    if let Some(reason) = self.receive().await {
                        return Some(reason);
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Some(CloseReason::TimedOut);
                }
            }
        }
    }

    /// Takes an order; `None` is the driver's end. False: the association is to be aborted.
    fn obey(&mut self, order: Option<Order>) -> bool {
        match order {
            Some(Order::Message(how, data)) => self.waiting.push_back((how, data)),
            Some(Order::Shutdown) | None => {
                self.orphan = order.is_none();
                if !self.ending {
                    self.ending = true;
                    self.deadline = Some(Instant::now() + self.link.settings.linger);
                }
            }
            Some(Order::Abort) => return false,
            // They are of byte streams.
            Some(Order::Data(_) | Order::Credit(_)) => self.link.counters.unknown_connection.one(),
        }
        true
    }

    /// Gives the system what it takes.
    fn flush(&mut self) {
        while self.up
            && let Some((how, data)) = self.waiting.front()
        {
            match self.socket.try_io(Interest::WRITABLE, |association| association.send(*how, data)) {
                Ok(()) => {
                    self.link.counters.sctp_messages_out.one();
                    self.link.counters.stream_octets_out.add(data.len() as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.link.counters.sctp_messages_refused.one(),
            }
            self.link.queued.fetch_sub(data.len(), Ordering::Relaxed);
            self.waiting.pop_front();
        }
    }

    /// Reads a batch of what there is; the reason, where it is over.
    async fn receive(&mut self) -> Option<CloseReason> {
        for _ in 0..BATCH {
            let Self { socket, message, .. } = self;
            match socket.try_io_mut(Interest::READABLE, |association| association.receive(message)) {
                Ok(Received::Up { streams, .. }) if !self.up => {
                    self.up = true;
                    self.deadline = self.deadline.filter(|_| self.ending);
                    self.link.tell(Note::Up { remote: self.remote, streams }).await;
                }
                Ok(Received::Message(how)) => {
                    let data = std::mem::take(&mut self.message);
                    self.link.counters.sctp_messages_in.one();
                    self.link.counters.stream_octets_in.add(data.len() as u64);
                    self.link.tell(Note::Message { stream: how.stream, ppid: how.ppid, data }).await;
                }
                Ok(Received::End(reason)) => return Some(reason),
                Ok(Received::Up { .. } | Received::Finished | Received::Address { .. } | Received::Other) => {
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    self.link.counters.sctp_messages_too_long.one();
                    return Some(CloseReason::Reset);
                }
            }
        }
        None
    }
}
