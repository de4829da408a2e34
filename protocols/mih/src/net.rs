//! MIH_NET_SAP: the seam between an MIH function and the transports (IEEE 802.21-2008 clause 7.5, RFC 5677).
//!
//! Its one function, MIH_TP_Data, has a request ([`Request`]), a confirm ([`Confirm`]) and an indication
//! ([`Indication`]). A message over UDP is a datagram of its own. Connections (TCP) and associations (SCTP) are
//! opened by the first message to a peer and kept; what is handed over before they are up waits. One that has
//! closed is opened again when there is something to be sent: what was under way on it is lost unless MIH's own rules
//! send it again, and a request for which they do not has failed. On a connection that was accepted we answer whoever's identifier the first message bears.
//!
//! What comes on a stream is cut by the length in each header. When it cannot be (another version) the stream is
//! closed, for there is no way to find the next message.

use crate::function::{Config, Counters, Event, Route};
use crate::{HEADER, Header, HeaderError, Service};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use usher_core::{
    AssocId, ConnId, MessageOp, Outputs, Path, SocketId, StreamOp, Transmit, TransportProtocol,
};

/// Outbound streams of an association: one for each service.
pub(crate) const STREAMS: u16 = 4;

/// A message as it goes out: one packet, or its fragments one after another. Cheap to copy.
#[derive(Clone, Debug)]
pub(crate) struct Pdu(Arc<[u8]>);

impl Pdu {
    /// Of whole packets, each with its header.
    pub(crate) fn new(octets: &[u8]) -> Self {
        Self(octets.into())
    }
    fn octets(&self) -> usize {
        self.0.len()
    }
    /// Where each packet lies.
    fn packets(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let len = Header::extent(&self.0[at..])?;
            let range = at..(at + len).min(self.0.len());
            at = range.end;
            Some(range)
        })
    }
}

/// By which way a message came, and an answer to it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A datagram on this path.
    Datagram(Path),
    /// A connection or association.
    Connection(ConnId),
}

/// To whom a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// Back by this way.
    Way(Way),
    /// To the peer with this number, by its route.
    Route(u32, Route),
}

/// MIH_TP_Data.request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) to: Target,
    /// The reliable delivery flag: nothing but the transport sees to it that the message arrives.
    pub(crate) reliable: bool,
    /// The transaction hears it too if the connection by which the message went is over.
    pub(crate) watched: bool,
    pub(crate) service: Service,
    pub(crate) pdu: &'a Pdu,
    /// The transaction that hears it if no connection came up.
    pub(crate) transaction: u64,
}

/// MIH_TP_Data.confirm, as far as the answer is known at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Confirm {
    /// Handed to the transport, or waiting for its connection.
    Accepted,
    /// The connection to answer on is gone, or too many messages wait.
    Failed,
}

/// MIH_TP_Data.indication: one packet that came.
#[derive(Clone, Debug)]
pub(crate) struct Indication {
    pub(crate) way: Way,
    pub(crate) packet: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Opening,
    Up { streams: u16 },
}

#[derive(Clone, Debug)]
struct Waiting {
    pdu: Pdu,
    service: Service,
    transaction: u64,
    watched: bool,
}

#[derive(Debug)]
struct Connection {
    transport: TransportProtocol,
    local: Option<IpAddr>,
    remote: SocketAddr,
    state: State,
    peer: Option<u32>,
    /// When something last came on it, in the order of all that came.
    heard: u64,
    waiting: VecDeque<Waiting>,
    /// The beginning of a message whose end has not come.
    buffer: Vec<u8>,
}

impl Connection {
    /// Whether it leads where a route does. What others opened has a port of its own, and we do not know to which of
    /// our addresses.
    fn serves(&self, conn: ConnId, route: &Route) -> bool {
        let same = self.transport == route.transport && self.remote.ip() == route.remote.ip();
        let ours = self.local == route.local && self.remote.port() == route.remote.port();
        same && (conn.is_accepted() || ours)
    }
}

/// The transports of one MIH function.
#[derive(Debug)]
pub(crate) struct Net {
    max_queue: usize,
    ordered: bool,
    /// The port of our sockets.
    port: u16,
    /// Our addresses, in the order in which routes named them; the place is the socket.
    locals: Vec<Option<IpAddr>>,
    connections: BTreeMap<ConnId, Connection>,
    by_peer: BTreeSet<(u32, ConnId)>,
    opened: u32,
    heard: u64,
    /// Octets of the messages that wait.
    waiting: usize,
    /// By which connection watched transactions last went, and the same the other way round.
    carriers: BTreeMap<u64, ConnId>,
    carried: BTreeSet<(ConnId, u64)>,
    /// What the function decided.
    pub(crate) outputs: Outputs<Event>,
    /// Transactions whose connection did not come up, or is over.
    failed: VecDeque<u64>,
}

impl Net {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            max_queue: config.max_queue,
            ordered: config.ordered,
            port: config.port,
            locals: config.locals.iter().copied().map(Some).collect(),
            connections: BTreeMap::new(),
            by_peer: BTreeSet::new(),
            opened: 0,
            heard: 0,
            waiting: 0,
            carriers: BTreeMap::new(),
            carried: BTreeSet::new(),
            outputs: Outputs::default(),
            failed: VecDeque::new(),
        }
    }

    /// Takes note of one of our addresses: the k-th is socket k. No address in particular is the first socket's.
    pub(crate) fn address(&mut self, local: Option<IpAddr>) {
        if self.locals.is_empty() || local.is_some() && !self.locals.contains(&local) {
            self.locals.push(local);
        }
    }

    /// MIH_TP_Data.request.
    pub(crate) fn request(&mut self, request: Request<'_>, counters: &mut Counters) -> Confirm {
        let (path, conn) = match request.to {
            Target::Way(Way::Datagram(path)) => (Some(path), None),
            Target::Way(Way::Connection(conn)) => (None, Some(conn)),
            Target::Route(_, route) if route.transport == TransportProtocol::Udp => {
                (Some(self.path(&route)), None)
            }
            Target::Route(peer, route) => (None, Some(self.connection(peer, &route))),
        };
        let confirm = match (path, conn) {
            (Some(path), _) => {
                if request.reliable {
                    counters.unreliable += 1;
                }
                self.release(request.transaction);
                for range in request.pdu.packets() {
                    self.send(Transmit::Datagram { path }, &request.pdu.0[range]);
                }
                Confirm::Accepted
            }
            (None, Some(conn)) => {
                let Request { service, transaction, watched, .. } = request;
                let pdu = request.pdu.clone();
                self.offer(conn, Waiting { pdu, service, transaction, watched }, counters)
            }
            (None, None) => Confirm::Failed,
        };
        if confirm == Confirm::Accepted {
            for range in request.pdu.packets() {
                counters.packets += 1;
                counters.octets += range.len() as u64;
            }
        }
        confirm
    }

    fn offer(&mut self, conn: ConnId, message: Waiting, counters: &mut Counters) -> Confirm {
        let Some(connection) = self.connections.get_mut(&conn) else {
            counters.no_route += 1;
            return Confirm::Failed;
        };
        let (transaction, watched) = (message.transaction, message.watched);
        match connection.state {
            State::Up { streams } => {
                let transport = connection.transport;
                self.hand_over(conn, transport, streams, &message);
            }
            State::Opening if message.pdu.octets() > self.max_queue.saturating_sub(self.waiting) => {
                counters.queue_full += 1;
                return Confirm::Failed;
            }
            State::Opening => {
                self.waiting += message.pdu.octets();
                connection.waiting.push_back(message);
            }
        }
        if watched {
            self.release(transaction);
            self.carriers.insert(transaction, conn);
            self.carried.insert((conn, transaction));
        }
        Confirm::Accepted
    }

    /// A transaction need not hear of its connection any more.
    pub(crate) fn release(&mut self, transaction: u64) {
        if let Some(conn) = self.carriers.remove(&transaction) {
            self.carried.remove(&(conn, transaction));
        }
    }

    fn hand_over(&mut self, conn: ConnId, transport: TransportProtocol, streams: u16, message: &Waiting) {
        let stream = message.service.index() as u16 % streams.max(1);
        let op = MessageOp::Data { stream, ppid: 0, unordered: !self.ordered };
        for range in message.pdu.packets() {
            let transmit = match transport {
                TransportProtocol::Sctp => Transmit::Message { assoc: conn, op },
                TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                    Transmit::Stream { conn, op: StreamOp::Data }
                }
            };
            self.send(transmit, &message.pdu.0[range]);
        }
    }

    fn path(&self, route: &Route) -> Path {
        let socket = self.locals.iter().position(|l| *l == route.local).unwrap_or(0);
        let any = match route.remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = SocketAddr::new(route.local.unwrap_or(any), self.port);
        Path { socket: SocketId::own(socket as u32), local, remote: route.remote }
    }

    /// The connection to a peer by this route: of those that are up the one on which something came last, else one
    /// that is being opened, else a new one.
    fn connection(&mut self, peer: u32, route: &Route) -> ConnId {
        let mut best: Option<(bool, u64, ConnId)> = None;
        for &(_, conn) in self.by_peer.range((peer, ConnId::opened(0))..=(peer, ConnId::accepted(u32::MAX))) {
            if let Some(c) = self.connections.get(&conn).filter(|c| c.serves(conn, route)) {
                best = best.max(Some((c.state != State::Opening, c.heard, conn)));
            }
        }
        if let Some((_, _, conn)) = best {
            return conn;
        }
        let conn = ConnId::opened(self.opened);
        self.opened += 1;
        let connection = Connection {
            transport: route.transport,
            local: route.local,
            remote: route.remote,
            state: State::Opening,
            peer: Some(peer),
            heard: 0,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
        };
        self.connections.insert(conn, connection);
        self.by_peer.insert((peer, conn));
        let (local, remote) = (route.local, route.remote);
        self.outputs.operate(match route.transport {
            TransportProtocol::Sctp => {
                let op = MessageOp::Connect { local, remote, streams: STREAMS };
                Transmit::Message { assoc: conn, op }
            }
            TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                Transmit::Stream { conn, op: StreamOp::Connect { local, remote } }
            }
        });
        conn
    }

    /// The peer has another route: what waits for connections that do not serve it goes by the new one, and they
    /// are given up.
    pub(crate) fn reroute(&mut self, peer: u32, route: &Route, counters: &mut Counters) {
        let range = (peer, ConnId::opened(0))..=(peer, ConnId::accepted(u32::MAX));
        let old: Vec<ConnId> = self.by_peer.range(range).map(|&(_, conn)| conn).collect();
        for conn in old {
            let stale = |c: &Connection| c.state == State::Opening && !c.serves(conn, route);
            if !self.connections.get(&conn).is_some_and(stale) {
                continue;
            }
            let Some(gone) = self.forget(conn) else { continue };
            self.abort(conn, gone.transport);
            for message in gone.waiting {
                let path = (route.transport == TransportProtocol::Udp).then(|| self.path(route));
                if let Some(path) = path {
                    for range in message.pdu.packets() {
                        self.send(Transmit::Datagram { path }, &message.pdu.0[range]);
                    }
                    self.release(message.transaction);
                } else {
                    let conn = self.connection(peer, route);
                    self.offer(conn, message, counters);
                }
            }
        }
    }

    /// A connection or association is up: an accepted one, or one of ours that has not been given up meanwhile.
    pub(crate) fn up(
        &mut self,
        conn: ConnId,
        transport: TransportProtocol,
        remote: SocketAddr,
        streams: u16,
    ) {
        if !conn.is_accepted() && !self.connections.contains_key(&conn) {
            return;
        }
        let connection = self.connections.entry(conn).or_insert_with(|| Connection {
            transport,
            local: None,
            remote,
            state: State::Opening,
            peer: None,
            heard: 0,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
        });
        connection.state = State::Up { streams };
        let waiting = core::mem::take(&mut connection.waiting);
        self.waiting -= waiting.iter().map(|message| message.pdu.octets()).sum::<usize>();
        for message in waiting {
            self.hand_over(conn, transport, streams, &message);
        }
    }

    /// A connection or association is over. What waited for it to come up has failed, and watched transactions that last
    /// went by it have.
    pub(crate) fn down(&mut self, conn: ConnId, counters: &mut Counters) -> Option<u32> {
        let gone = self.forget(conn)?;
        for message in gone.waiting {
            counters.not_connected += 1;
            self.failed.push_back(message.transaction);
        }
        let carried: Vec<u64> =
            self.carried.range((conn, 0)..=(conn, u64::MAX)).map(|&(_, transaction)| transaction).collect();
        for transaction in carried {
            self.release(transaction);
            self.failed.push_back(transaction);
        }
        gone.peer
    }

    /// A transaction's message cannot be handed to any transport.
    pub(crate) fn fail(&mut self, transaction: u64) {
        self.failed.push_back(transaction);
    }

    /// The next transaction whose message waited for a connection that did not come up, or went by one that is over: the
    /// late half of MIH_TP_Data.confirm.
    pub(crate) fn poll_failed(&mut self) -> Option<u64> {
        self.failed.pop_front()
    }

    fn forget(&mut self, conn: ConnId) -> Option<Connection> {
        let gone = self.connections.remove(&conn)?;
        self.waiting -= gone.waiting.iter().map(|message| message.pdu.octets()).sum::<usize>();
        if let Some(peer) = gone.peer {
            self.by_peer.remove(&(peer, conn));
        }
        Some(gone)
    }

    fn abort(&mut self, conn: ConnId, transport: TransportProtocol) {
        self.outputs.operate(match transport {
            TransportProtocol::Sctp => Transmit::Message { assoc: conn, op: MessageOp::Abort },
            TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                Transmit::Stream { conn, op: StreamOp::Abort }
            }
        });
    }

    /// Bytes of a stream: the whole messages that they end are added to `indications`. True if the stream cannot be
    /// cut into messages; it is then to be closed.
    pub(crate) fn stream(
        &mut self,
        conn: ConnId,
        data: &[u8],
        indications: &mut VecDeque<Indication>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        self.heard += 1;
        connection.heard = self.heard;
        connection.buffer.extend_from_slice(data);
        let (mut at, mut broken) = (0, false);
        while let Some(len) = Header::extent(&connection.buffer[at..]) {
            let rest = &connection.buffer[at..];
            if matches!(Header::parse(&rest[..HEADER]), Err(HeaderError::Version(_))) {
                broken = true;
                break;
            }
            let Some(packet) = rest.get(..len) else { break };
            indications.push_back(Indication { way: Way::Connection(conn), packet: packet.to_vec() });
            at += len;
        }
        connection.buffer.drain(..at);
        if broken {
            let transport = connection.transport;
            self.abort(conn, transport);
        }
        broken
    }

    /// A user message came on an association.
    pub(crate) fn message(&mut self, assoc: AssocId) {
        self.heard += 1;
        if let Some(connection) = self.connections.get_mut(&assoc) {
            connection.heard = self.heard;
        }
    }

    /// The other end of a connection has said who it is. False where the connection is gone, or the end was known.
    pub(crate) fn identify(&mut self, conn: ConnId, peer: u32) -> bool {
        match self.connections.get_mut(&conn) {
            Some(connection) if connection.peer.is_none() => {
                connection.peer = Some(peer);
                self.by_peer.insert((peer, conn))
            }
            _ => false,
        }
    }

    /// True while a way leads anywhere.
    pub(crate) fn is_open(&self, way: Way) -> bool {
        match way {
            Way::Datagram(_) => true,
            Way::Connection(conn) => self.connections.contains_key(&conn),
        }
    }

    /// Where a way leads to.
    pub(crate) fn remote(&self, way: Way) -> Option<SocketAddr> {
        match way {
            Way::Datagram(path) => Some(path.remote),
            Way::Connection(conn) => self.connections.get(&conn).map(|c| c.remote),
        }
    }

    fn send(&mut self, transmit: Transmit, packet: &[u8]) {
        let mut bytes = self.outputs.buffer();
        bytes.extend_from_slice(packet);
        self.outputs.transmit(transmit, bytes);
    }
}
