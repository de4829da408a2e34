//! RadSec connections of clients (RFC 6614, RFC 6613).
//!
//! Cache entries of a connection end with it (RFC 6613 §2.6.1).

use super::cache::DuplicateCacheKey;
use super::machine::{PacketOrigin, RadiusServer, SenderPlausibility};
use crate::packet::RadiusPacket;
use crate::radsec::PacketFramer;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::{ConnId, DatagramPath, Instant, SocketId, StreamEvent, StreamOp, Transmit};

#[derive(Debug)]
struct ClientConnection {
    path: DatagramPath,
    client: u32,
    /// The certificate, to identify the client again after a reload.
    certificate: Option<Box<[u8]>>,
    framer: PacketFramer,
}

/// The connections.
#[derive(Debug)]
pub(super) struct ConnectionTable(HashMap<ConnId, ClientConnection>);

impl ConnectionTable {
    pub(super) fn new(state: SeededHashState) -> Self {
        Self(HashMap::with_hasher(state))
    }
    /// Returns the client of a connection.
    pub(super) fn client_index(&self, conn: ConnId) -> Option<u32> {
        self.0.get(&conn).map(|s| s.client)
    }
}

impl RadiusServer {
    /// The number of RadSec connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.streams.0.len()
    }

    /// True if this RadSec connection was accepted and is still open.
    #[must_use]
    pub fn is_connected(&self, conn: ConnId) -> bool {
        self.streams.0.contains_key(&conn)
    }

    /// True if a RadSec connection from this peer is accepted: the peer is a client and the limit is not reached.
    #[must_use]
    pub fn accepts_connection(&self, remote: IpAddr, certificate: Option<&[u8]>) -> bool {
        self.connection_count() < self.config.max_connections
            && self.clients.identify_connection(remote, certificate).is_some()
    }

    pub(super) fn handle_stream_event(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        match event {
            StreamEvent::Accepted { remote, certificate, .. } => {
                self.accept_connection(conn, remote, certificate)
            }
            StreamEvent::Data(data) => self.receive_data(now, conn, data),
            StreamEvent::Writable | StreamEvent::Finished | StreamEvent::Connected { .. } => {}
            StreamEvent::Closed(_) => self.remove_connection(conn),
        }
    }

    fn accept_connection(&mut self, conn: ConnId, remote: SocketAddr, certificate: Option<&[u8]>) {
        let room = self.streams.0.len() < self.config.max_connections;
        let Some(client) = self.clients.identify_connection(remote.ip(), certificate).filter(|_| room) else {
            self.counters.connections_refused += 1;
            // RFC 6613, 2.6.4: the connection of an unknown client is closed.
            return self.push_operation(conn, StreamOp::Abort);
        };
        self.counters.connections += 1;
        let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let path = DatagramPath { socket: SocketId::default(), local, remote };
        let certificate = certificate.map(Into::into);
        self.streams
            .0
            .insert(conn, ClientConnection { path, client, certificate, framer: PacketFramer::new() });
    }

    fn receive_data(&mut self, now: Instant, conn: ConnId, mut data: &[u8]) {
        let Some(stream) = self.streams.0.get_mut(&conn) else {
            self.counters.not_a_datagram += 1;
            return;
        };
        let (path, client) = (stream.path, stream.client);
        // RFC 6614, 2.5: one connection carries the packets of every port.
        let origin = PacketOrigin { path, conn: Some(conn), client, role: self.config.streams };
        let mut framer = core::mem::take(&mut stream.framer);
        let good = loop {
            match framer.next_packet(&mut data) {
                Ok(None) => break true,
                Ok(Some(bytes)) => {
                    let Ok(packet) = RadiusPacket::parse(bytes) else { break false };
                    if self.process_packet(now, origin, &packet) == SenderPlausibility::Foreign {
                        break false;
                    }
                }
                Err(_) => break false,
            }
        };
        match self.streams.0.get_mut(&conn) {
            Some(stream) if good => stream.framer = framer,
            _ => {
                // RFC 6613, 2.6.4: a wrong length or authenticator closes the connection.
                self.counters.connections_malformed += 1;
                self.close_connection(conn);
            }
        }
    }

    fn close_connection(&mut self, conn: ConnId) {
        self.remove_connection(conn);
        self.push_operation(conn, StreamOp::Shutdown);
    }

    fn push_operation(&mut self, conn: ConnId, op: StreamOp) {
        self.ready.push_transmit(Transmit::Stream { conn, op }, Vec::new());
    }

    /// Handles the end of a connection and discards its requests and replies (RFC 6613 §2.6.1).
    fn remove_connection(&mut self, conn: ConnId) {
        let Some(stream) = self.streams.0.remove(&conn) else { return };
        for identifier in 0..=u8::MAX {
            if let Some(handle) =
                self.cache.find_handle(&DuplicateCacheKey::new(&stream.path, Some(conn), identifier))
            {
                self.cache.remove(handle);
            }
        }
    }

    /// Identifies the client of each connection again, after a reload.
    pub(super) fn reidentify_connections(&mut self) {
        let mut over = Vec::new();
        for (&conn, stream) in &mut self.streams.0 {
            match self.clients.identify_connection(stream.path.remote.ip(), stream.certificate.as_deref()) {
                Some(client) => stream.client = client,
                None => over.push(conn),
            }
        }
        over.sort_unstable();
        over.into_iter().for_each(|conn| self.close_connection(conn));
    }
}
