//! SCTP.

use super::{Hosts, Source, settings, whole};
use crate::error::{Doing, LabError};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use usher_core::{AssocId, CloseReason};
use usher_sctp::{Association, Listener, Outgoing, Received};
use usher_sim::sctp::Message;
use usher_sim::{Application, Delivery, HostId, MessageDelivery, Observer, Payload};

/// A port at which associations are accepted.
#[derive(Debug)]
pub(super) struct AssocListener {
    pub(super) socket: Listener,
    pub(super) app: u32,
    port: u16,
}

/// An association.
#[derive(Debug)]
pub(super) struct Assoc {
    pub(super) socket: Association,
    pub(super) app: u32,
    assoc: AssocId,
    remote: (HostId, u16),
    local_port: u16,
    /// The streams on which may be sent; 0 until it is up.
    streams: u16,
    /// Messages that the kernel has not taken.
    out: VecDeque<Message>,
    /// It is to be closed when they are gone.
    closes: bool,
    closed: bool,
}

impl<A: Application, O: Observer<A::Report>> Hosts<A, O> {
    pub(super) fn listen_sctp(&mut self, app: u32, at: HostId, port: u16) -> Result<(), LabError> {
        let address = SocketAddr::new(self.addresses.of(at), port);
        let options = settings::sctp_options(&self.apps[app as usize].transports.sctp, None);
        let made = self.within(at, || Listener::bind(&[address], &options))?;
        let socket = made.doing(|| format!("listen at {address} for SCTP"))?;
        self.watch(Source::AssocListener(AssocListener { socket, app, port }), EventFlags::IN)?;
        Ok(())
    }

    pub(super) fn accept_association(&mut self, source: u64) {
        loop {
            let Some(Source::AssocListener(listener)) = self.sources.get(&source) else { return };
            let (app, port) = (listener.app, listener.port);
            let (socket, sender) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // It would be tried again at once and for ever.
                Err(e) => {
                    let doing = format!("accept an association at port {port}");
                    self.failed = Some(LabError::Kernel { doing, source: e });
                    return;
                }
            };
            let Some(from) = self.addresses.host(sender.ip()) else {
                self.counters.unknown_sender += 1;
                continue;
            };
            let slot = &mut self.apps[app as usize];
            let assoc = AssocId::accepted(slot.accepted);
            slot.accepted += 1;
            if let Some(source) = self.take_in_association(socket, app, assoc, port, (from, sender.port())) {
                self.receive_messages(source);
            }
        }
    }

    fn take_in_association(
        &mut self,
        socket: Association,
        app: u32,
        assoc: AssocId,
        local_port: u16,
        remote: (HostId, u16),
    ) -> Option<u64> {
        self.associations = true;
        let (out, streams) = (VecDeque::new(), 0);
        let new =
            Assoc { socket, app, assoc, remote, local_port, streams, out, closes: false, closed: false };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match self.watch(Source::Assoc(new), flags) {
            Ok(source) => {
                self.apps[app as usize].conns.insert(assoc, source);
                Some(source)
            }
            Err(_) => {
                self.counters.no_socket += 1;
                None
            }
        }
    }

    pub(super) fn associate(
        &mut self,
        app: u32,
        assoc: AssocId,
        from: Option<HostId>,
        (to, port): (HostId, u16),
        streams: u16,
    ) {
        let refused = Delivery::Message { assoc, event: MessageDelivery::Down(CloseReason::Refused) };
        let Some(at) = self.own_address(app, from) else {
            self.counters.stale_operation += 1;
            return self.deliver(app, refused);
        };
        let (local, remote) = (self.addresses.of(at), SocketAddr::new(self.addresses.of(to), port));
        let options = settings::sctp_options(&self.apps[app as usize].transports.sctp, Some(streams));
        let Ok(made) = self.within(at, || Association::connect(&[local], &[remote], &options)) else {
            self.counters.no_socket += 1;
            return self.deliver(app, refused);
        };
        match made {
            Ok(socket) => {
                let local_port = socket.local_address().map_or(0, |address| address.port());
                self.take_in_association(socket, app, assoc, local_port, (to, port));
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => self.failed = Some(super::no_sctp()),
            Err(_) => self.deliver(app, refused),
        }
    }

    fn association(&mut self, app: u32, assoc: AssocId) -> Option<(u64, &mut Assoc)> {
        let source = self.apps[app as usize].conns.get(&assoc).copied();
        let found = source.and_then(|source| match self.sources.get_mut(&source) {
            Some(Source::Assoc(found)) => Some((source, found)),
            _ => None,
        });
        self.counters.stale_operation += u64::from(found.is_none());
        found
    }

    /// Whether this is one of the application's associations, and no connection.
    pub(super) fn is_association(&self, app: u32, id: AssocId) -> bool {
        let source = self.apps[app as usize].conns.get(&id);
        source.is_some_and(|source| matches!(self.sources.get(source), Some(Source::Assoc(_))))
    }

    pub(super) fn send_message(&mut self, app: u32, assoc: AssocId, message: Message) {
        let Some((source, found)) = self.association(app, assoc) else { return };
        if found.closes {
            self.counters.stale_operation += 1;
            return;
        }
        found.out.push_back(message);
        self.flush_messages(source);
    }

    /// Gives the kernel what it takes.
    fn flush_messages(&mut self, source: u64) {
        let Some(Source::Assoc(found)) = self.sources.get_mut(&source) else { return };
        if found.streams == 0 {
            return;
        }
        while let Some(first) = found.out.front() {
            let how = Outgoing { stream: first.stream, ppid: first.ppid, unordered: first.unordered };
            match found.socket.send(how, &whole(&first.payload)) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // A stream that was not negotiated, or the association is over, which the reading side tells.
                Err(_) => self.counters.not_sent += 1,
            }
            found.out.pop_front();
        }
        if found.closes && !std::mem::replace(&mut found.closed, true) {
            let _ = found.socket.shutdown();
        }
    }

    pub(super) fn association_event(&mut self, source: u64, flags: EventFlags) {
        if flags.intersects(EventFlags::OUT) {
            self.flush_messages(source);
        }
        self.receive_messages(source);
    }

    /// Takes all that there is.
    fn receive_messages(&mut self, source: u64) {
        let mut message = Vec::new();
        loop {
            let Some(Source::Assoc(found)) = self.sources.get_mut(&source) else { return };
            let (app, assoc, (remote, remote_port)) = (found.app, found.assoc, found.remote);
            let event = match found.socket.receive(&mut message) {
                Ok(Received::Up { streams, .. }) => {
                    found.streams = streams;
                    let local_port = found.local_port;
                    MessageDelivery::Up { remote, remote_port, local_port, streams }
                }
                Ok(Received::Message(how)) => {
                    let payload = Payload::copied(&message);
                    MessageDelivery::Data { stream: how.stream, ppid: how.ppid, payload }
                }
                Ok(Received::End(reason)) => return self.end_association(source, reason),
                // Nobody here uses half-closed associations: ours ends with the other side's.
                Ok(Received::Finished) => {
                    found.closes = true;
                    self.flush_messages(source);
                    continue;
                }
                Ok(Received::Address { .. } | Received::Other) => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.end_association(source, CloseReason::Reset),
            };
            let up = matches!(event, MessageDelivery::Up { .. });
            self.deliver(app, Delivery::Message { assoc, event });
            if up {
                self.flush_messages(source);
            }
        }
    }

    pub(super) fn shutdown_association(&mut self, app: u32, assoc: AssocId) {
        let Some((source, found)) = self.association(app, assoc) else { return };
        found.closes = true;
        self.flush_messages(source);
    }

    /// Aborts an association, of which its application hears no more.
    pub(super) fn abort_association(&mut self, app: u32, assoc: AssocId) {
        let Some((source, _)) = self.association(app, assoc) else { return };
        self.apps[app as usize].conns.remove(&assoc);
        if let Some(Source::Assoc(found)) = self.sources.remove(&source) {
            found.socket.abort();
        }
    }

    fn end_association(&mut self, source: u64, why: CloseReason) {
        let Some(Source::Assoc(found)) = self.sources.remove(&source) else { return };
        let (app, assoc) = (found.app, found.assoc);
        drop(found);
        self.apps[app as usize].conns.remove(&assoc);
        self.deliver(app, Delivery::Message { assoc, event: MessageDelivery::Down(why) });
    }
}
