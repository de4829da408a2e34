//! RadSec connections of clients (RFC 6614, RFC 6613).
//!
//! What is cached of a connection goes with it (RFC 6613 §2.6.1).

use super::cache::Key;
use super::machine::{Origin, Server, Shown};
use crate::packet::Packet;
use crate::radsec::Framer;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_core::collections::{HashMap, HashState};
use usher_core::{ConnId, Instant, Path, SocketId, StreamEvent, StreamOp, Transmit};

#[derive(Debug)]
struct Stream {
    path: Path,
    client: u32,
    /// To find its client again when they are configured anew.
    certificate: Option<Box<[u8]>>,
    framer: Framer,
}

/// The connections.
#[derive(Debug)]
pub(super) struct Streams(HashMap<ConnId, Stream>);

impl Streams {
    pub(super) fn new(state: HashState) -> Self {
        Self(HashMap::with_hasher(state))
    }
    /// Whose a connection is.
    pub(super) fn client(&self, conn: ConnId) -> Option<u32> {
        self.0.get(&conn).map(|s| s.client)
    }
}

impl Server {
    /// RadSec connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.streams.0.len()
    }

    /// Whether this RadSec connection is open: it was taken, and nothing came by it that ends it.
    #[must_use]
    pub fn is_connected(&self, conn: ConnId) -> bool {
        self.streams.0.contains_key(&conn)
    }

    /// Whether a RadSec connection with this other side is taken: it is a client's, and there is room.
    #[must_use]
    pub fn takes(&self, remote: IpAddr, certificate: Option<&[u8]>) -> bool {
        self.connections() < self.config.max_connections
            && self.clients.identify(remote, certificate).is_some()
    }

    pub(super) fn stream(&mut self, now: Instant, conn: ConnId, event: StreamEvent<'_>) {
        match event {
            StreamEvent::Accepted { remote, certificate, .. } => self.connected(conn, remote, certificate),
            StreamEvent::Data(data) => self.data(now, conn, data),
            StreamEvent::Writable | StreamEvent::Finished | StreamEvent::Connected { .. } => {}
            StreamEvent::Closed(_) => self.forget(conn),
        }
    }

    fn connected(&mut self, conn: ConnId, remote: SocketAddr, certificate: Option<&[u8]>) {
        let room = self.streams.0.len() < self.config.max_connections;
        let Some(client) = self.clients.identify(remote.ip(), certificate).filter(|_| room) else {
            self.counters.connections_refused += 1;
            return self.operate(conn, StreamOp::Abort);
        };
        self.counters.connections += 1;
        let local = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let path = Path { socket: SocketId::default(), local, remote };
        let certificate = certificate.map(Into::into);
        self.streams.0.insert(conn, Stream { path, client, certificate, framer: Framer::new() });
    }

    fn data(&mut self, now: Instant, conn: ConnId, mut data: &[u8]) {
        let Some(stream) = self.streams.0.get_mut(&conn) else {
            self.counters.not_a_datagram += 1;
            return;
        };
        let (path, client) = (stream.path, stream.client);
        let origin = Origin { path, conn: Some(conn), client, role: self.config.streams };
        let mut framer = core::mem::take(&mut stream.framer);
        let good = loop {
            match framer.next(&mut data) {
                Ok(None) => break true,
                Ok(Some(bytes)) => {
                    let Ok(packet) = Packet::parse(bytes) else { break false };
                    if self.take(now, origin, &packet) == Shown::Foreign {
                        break false;
                    }
                }
                Err(_) => break false,
            }
        };
        match self.streams.0.get_mut(&conn) {
            Some(stream) if good => stream.framer = framer,
            _ => {
                self.counters.connections_spoilt += 1;
                self.close(conn);
            }
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.forget(conn);
        self.operate(conn, StreamOp::Shutdown);
    }

    fn operate(&mut self, conn: ConnId, op: StreamOp) {
        self.ready.loose(Transmit::Stream { conn, op }, Vec::new());
    }

    /// A connection is over: nobody waits for what was asked by it.
    fn forget(&mut self, conn: ConnId) {
        let Some(stream) = self.streams.0.remove(&conn) else { return };
        for identifier in 0..=u8::MAX {
            if let Some(handle) = self.cache.find(&Key::new(&stream.path, Some(conn), identifier)) {
                self.cache.remove(handle);
            }
        }
    }

    /// The clients are others now: whose is each connection?
    pub(super) fn reidentify(&mut self) {
        let mut over = Vec::new();
        for (&conn, stream) in &mut self.streams.0 {
            match self.clients.identify(stream.path.remote.ip(), stream.certificate.as_deref()) {
                Some(client) => stream.client = client,
                None => over.push(conn),
            }
        }
        over.sort_unstable();
        over.into_iter().for_each(|conn| self.close(conn));
    }
}
