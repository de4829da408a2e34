//! SCTP on kernel sockets.

use super::sockets::{AssocListener, LabSctpAssociation};
use super::{LabHosts, SocketEventSource, padded_octets, settings};
use crate::error::{ErrorContext, LabError};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use usher_core::{AssocId, CloseReason};
use usher_sctp::{SctpAssociation, SctpEvent, SctpListener, SendInfo};
use usher_sim::sctp::UserMessage;
use usher_sim::{AppDelivery, Application, HostId, Payload, ReportObserver, SctpAssociationEvent};

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    pub(super) fn listen_sctp(&mut self, app: u32, at: HostId, port: u16) -> Result<(), LabError> {
        let address = SocketAddr::new(self.addresses.address_of(at), port);
        let options = settings::sctp_options(&self.apps[app as usize].transports.sctp, None);
        let made = self.run_in_namespace(at, || SctpListener::bind(&[address], &options))?;
        let socket = made.with_context(|| format!("listen at {address} for SCTP"))?;
        self.register_socket_source(
            SocketEventSource::AssocListener(AssocListener { socket, app, port }),
            EventFlags::IN,
        )?;
        Ok(())
    }

    pub(super) fn accept_association(&mut self, source: u64) {
        loop {
            let Some(SocketEventSource::AssocListener(listener)) = self.sources.get(&source) else { return };
            let (app, port) = (listener.app, listener.port);
            let (socket, sender) = match listener.socket.accept() {
                Ok(accepted) => accepted,
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // Do not retry: the error would repeat at once, without end.
                Err(e) => {
                    let doing = format!("accept an association at port {port}");
                    self.failed = Some(LabError::Kernel { doing, source: e });
                    return;
                }
            };
            let Some(from) = self.addresses.host_at(sender.ip()) else {
                self.counters.unknown_sender += 1;
                continue;
            };
            let slot = &mut self.apps[app as usize];
            let assoc = AssocId::nth_accepted_connection(slot.accepted);
            slot.accepted += 1;
            if let Some(source) = self.register_association(socket, app, assoc, port, (from, sender.port())) {
                self.receive_messages(source);
            }
        }
    }

    fn register_association(
        &mut self,
        socket: SctpAssociation,
        app: u32,
        assoc: AssocId,
        local_port: u16,
        remote: (HostId, u16),
    ) -> Option<u64> {
        self.associations = true;
        let (out, streams) = (VecDeque::new(), 0);
        let new = LabSctpAssociation {
            socket,
            app,
            assoc,
            remote,
            local_port,
            streams,
            out,
            closes: false,
            closed: false,
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        match self.register_socket_source(SocketEventSource::Assoc(new), flags) {
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

    pub(super) fn start_association(
        &mut self,
        app: u32,
        assoc: AssocId,
        from: Option<HostId>,
        (to, port): (HostId, u16),
        streams: u16,
    ) {
        let refused = AppDelivery::Message { assoc, event: SctpAssociationEvent::Down(CloseReason::Refused) };
        let Some(at) = self.own_address(app, from) else {
            self.counters.stale_operation += 1;
            return self.deliver_to_app(app, refused);
        };
        let (local, remote) =
            (self.addresses.address_of(at), SocketAddr::new(self.addresses.address_of(to), port));
        let options = settings::sctp_options(&self.apps[app as usize].transports.sctp, Some(streams));
        let Ok(made) = self.run_in_namespace(at, || SctpAssociation::connect(&[local], &[remote], &options))
        else {
            self.counters.no_socket += 1;
            return self.deliver_to_app(app, refused);
        };
        match made {
            Ok(socket) => {
                let local_port = socket.local_address().map_or(0, |address| address.port());
                self.register_association(socket, app, assoc, local_port, (to, port));
            }
            Err(e) if e.kind() == ErrorKind::Unsupported => self.failed = Some(super::missing_sctp_error()),
            Err(_) => self.deliver_to_app(app, refused),
        }
    }

    fn find_association(&mut self, app: u32, assoc: AssocId) -> Option<(u64, &mut LabSctpAssociation)> {
        let source = self.apps[app as usize].conns.get(&assoc).copied();
        let found = source.and_then(|source| match self.sources.get_mut(&source) {
            Some(SocketEventSource::Assoc(found)) => Some((source, found)),
            _ => None,
        });
        self.counters.stale_operation += u64::from(found.is_none());
        found
    }

    /// True if this is an association of the application, not a TCP connection.
    pub(super) fn is_association(&self, app: u32, id: AssocId) -> bool {
        let source = self.apps[app as usize].conns.get(&id);
        source.is_some_and(|source| matches!(self.sources.get(source), Some(SocketEventSource::Assoc(_))))
    }

    pub(super) fn send_message(&mut self, app: u32, assoc: AssocId, message: UserMessage) {
        let Some((source, found)) = self.find_association(app, assoc) else { return };
        if found.closes {
            self.counters.stale_operation += 1;
            return;
        }
        found.out.push_back(message);
        self.flush_messages(source);
    }

    /// Passes as many messages to the kernel as it takes.
    fn flush_messages(&mut self, source: u64) {
        let Some(SocketEventSource::Assoc(found)) = self.sources.get_mut(&source) else { return };
        if found.streams == 0 {
            return;
        }
        while let Some(first) = found.out.front() {
            let how = SendInfo { stream: first.stream, ppid: first.ppid, unordered: first.unordered };
            match found.socket.send_message(how, &padded_octets(&first.payload)) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The send failed: the stream was not negotiated, or the association is over, which the reading side
                // reports.
                Err(_) => self.counters.not_sent += 1,
            }
            found.out.pop_front();
        }
        if found.closes && !std::mem::replace(&mut found.closed, true) {
            let _ = found.socket.shutdown();
        }
    }

    pub(super) fn handle_association_event(&mut self, source: u64, flags: EventFlags) {
        if flags.intersects(EventFlags::OUT) {
            self.flush_messages(source);
        }
        self.receive_messages(source);
    }

    /// Reads all pending messages.
    fn receive_messages(&mut self, source: u64) {
        let mut message = Vec::new();
        loop {
            let Some(SocketEventSource::Assoc(found)) = self.sources.get_mut(&source) else { return };
            let (app, assoc, (remote, remote_port)) = (found.app, found.assoc, found.remote);
            let event = match found.socket.receive_event(&mut message) {
                Ok(SctpEvent::Up { streams, .. }) => {
                    found.streams = streams;
                    let local_port = found.local_port;
                    SctpAssociationEvent::Up { remote, remote_port, local_port, streams }
                }
                Ok(SctpEvent::Message(how)) => {
                    let payload = Payload::copy_from_slice(&message);
                    SctpAssociationEvent::Data { stream: how.stream, ppid: how.ppid, payload }
                }
                Ok(SctpEvent::End(reason)) => return self.end_association(source, reason),
                // No role uses half-closed associations: this side closes with the peer.
                Ok(SctpEvent::Finished) => {
                    found.closes = true;
                    self.flush_messages(source);
                    continue;
                }
                Ok(SctpEvent::Address { .. } | SctpEvent::Other) => continue,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.end_association(source, CloseReason::Reset),
            };
            let up = matches!(event, SctpAssociationEvent::Up { .. });
            self.deliver_to_app(app, AppDelivery::Message { assoc, event });
            if up {
                self.flush_messages(source);
            }
        }
    }

    pub(super) fn shutdown_association(&mut self, app: u32, assoc: AssocId) {
        let Some((source, found)) = self.find_association(app, assoc) else { return };
        found.closes = true;
        self.flush_messages(source);
    }

    /// Aborts an association without an event to its application.
    pub(super) fn abort_association(&mut self, app: u32, assoc: AssocId) {
        let Some((source, _)) = self.find_association(app, assoc) else { return };
        self.apps[app as usize].conns.remove(&assoc);
        if let Some(SocketEventSource::Assoc(found)) = self.sources.remove(&source) {
            found.socket.abort();
        }
    }

    fn end_association(&mut self, source: u64, why: CloseReason) {
        let Some(SocketEventSource::Assoc(found)) = self.sources.remove(&source) else { return };
        let (app, assoc) = (found.app, found.assoc);
        drop(found);
        self.apps[app as usize].conns.remove(&assoc);
        self.deliver_to_app(app, AppDelivery::Message { assoc, event: SctpAssociationEvent::Down(why) });
    }
}
