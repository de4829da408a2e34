//! MIH_NET_SAP: the seam between an MIH function and the transports (IEEE 802.21-2008 clause 7.5, RFC 5677).
//!
//! Its one function, MIH_TP_Data, has a request ([`TransportRequest`]), a confirm ([`TransportConfirm`]) and an indication
//! ([`TransportIndication`]). A message over UDP is a datagram of its own. Connections (TCP) and associations (SCTP) are
//! opened by the first message to a peer and kept; what is handed over before they are up waits. One that has
//! closed is opened again when there is something to be sent: what was under way on it is lost unless MIH's own rules
//! send it again, and a request for which they do not has failed. On a connection that was accepted we answer whoever's identifier the first message bears.
//!
//! What comes on a stream is cut by the length in each header. When it cannot be (another version) the stream is
//! closed, for there is no way to find the next message.

use crate::function::{MihfConfig, MihfCounters, MihfEvent, PeerRoute};
use crate::{HEADER, HeaderError, MihHeader, ServiceId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use usher_core::{
    AssocId, ConnId, DatagramPath, MessageOp, OutputQueue, SocketId, StreamOp, Transmit, TransportProtocol,
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
    fn octet_count(&self) -> usize {
        self.0.len()
    }
    /// Where each packet lies.
    fn packet_ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let len = MihHeader::message_length(&self.0[at..])?;
            let range = at..(at + len).min(self.0.len());
            at = range.end;
            Some(range)
        })
    }
}

/// By which way a message came, and an answer to it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyPath {
    /// A datagram on this path.
    Datagram(DatagramPath),
    /// A connection or association.
    Connection(ConnId),
}

/// To whom a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageTarget {
    /// Back by this way.
    Path(ReplyPath),
    /// To the peer with this number, by its route.
    Route(u32, PeerRoute),
}

/// MIH_TP_Data.request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportRequest<'a> {
    pub(crate) to: MessageTarget,
    /// The reliable delivery flag: nothing but the transport sees to it that the message arrives.
    pub(crate) reliable: bool,
    /// The transaction hears it too if the connection by which the message went is over.
    pub(crate) watched: bool,
    pub(crate) service: ServiceId,
    pub(crate) pdu: &'a Pdu,
    /// The transaction that hears it if no connection came up.
    pub(crate) transaction: u64,
}

/// MIH_TP_Data.confirm, as far as the answer is known at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportConfirm {
    /// Handed to the transport, or waiting for its connection.
    Accepted,
    /// The connection to answer on is gone, or too many messages wait.
    Failed,
}

/// MIH_TP_Data.indication: one packet that came.
#[derive(Clone, Debug)]
pub(crate) struct TransportIndication {
    pub(crate) reply_path: ReplyPath,
    pub(crate) packet: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConnectionState {
    Opening,
    Up { streams: u16 },
}

#[derive(Clone, Debug)]
struct QueuedMessage {
    pdu: Pdu,
    service: ServiceId,
    transaction: u64,
    watched: bool,
}

#[derive(Debug)]
struct PeerConnection {
    transport: TransportProtocol,
    local: Option<IpAddr>,
    remote: SocketAddr,
    state: ConnectionState,
    peer: Option<u32>,
    /// When something last came on it, in the order of all that came.
    last_received: u64,
    waiting: VecDeque<QueuedMessage>,
    /// The beginning of a message whose end has not come.
    buffer: Vec<u8>,
}

impl PeerConnection {
    /// Whether it leads where a route does. What others opened has a port of its own, and we do not know to which of
    /// our addresses.
    fn serves_route(&self, conn: ConnId, route: &PeerRoute) -> bool {
        let same = self.transport == route.transport && self.remote.ip() == route.remote.ip();
        let ours = self.local == route.local && self.remote.port() == route.remote.port();
        same && (conn.is_accepted() || ours)
    }
}

/// The transports of one MIH function.
#[derive(Debug)]
pub(crate) struct NetSap {
    max_queue: usize,
    ordered: bool,
    /// The port of our sockets.
    port: u16,
    /// Our addresses, in the order in which routes named them; the place is the socket.
    locals: Vec<Option<IpAddr>>,
    connections: BTreeMap<ConnId, PeerConnection>,
    by_peer: BTreeSet<(u32, ConnId)>,
    opened: u32,
    receive_count: u64,
    /// Octets of the messages that wait.
    waiting: usize,
    /// By which connection watched transactions last went, and the same the other way round.
    carriers: BTreeMap<u64, ConnId>,
    connection_transactions: BTreeSet<(ConnId, u64)>,
    /// What the function decided.
    pub(crate) outputs: OutputQueue<MihfEvent>,
    /// Transactions whose connection did not come up, or is over.
    failed: VecDeque<u64>,
}

impl NetSap {
    pub(crate) fn new(config: &MihfConfig) -> Self {
        Self {
            max_queue: config.max_queue,
            ordered: config.ordered,
            port: config.port,
            locals: config.locals.iter().copied().map(Some).collect(),
            connections: BTreeMap::new(),
            by_peer: BTreeSet::new(),
            opened: 0,
            receive_count: 0,
            waiting: 0,
            carriers: BTreeMap::new(),
            connection_transactions: BTreeSet::new(),
            outputs: OutputQueue::default(),
            failed: VecDeque::new(),
        }
    }

    /// Takes note of one of our addresses: the k-th is socket k. No address in particular is the first socket's.
    pub(crate) fn add_local_address(&mut self, local: Option<IpAddr>) {
        if self.locals.is_empty() || local.is_some() && !self.locals.contains(&local) {
            self.locals.push(local);
        }
    }

    /// MIH_TP_Data.request.
    pub(crate) fn send_request(
        &mut self,
        request: TransportRequest<'_>,
        counters: &mut MihfCounters,
    ) -> TransportConfirm {
        let (path, conn) = match request.to {
            MessageTarget::Path(ReplyPath::Datagram(path)) => (Some(path), None),
            MessageTarget::Path(ReplyPath::Connection(conn)) => (None, Some(conn)),
            MessageTarget::Route(_, route) if route.transport == TransportProtocol::Udp => {
                (Some(self.datagram_path(&route)), None)
            }
            MessageTarget::Route(peer, route) => (None, Some(self.find_or_connect(peer, &route))),
        };
        let confirm = match (path, conn) {
            (Some(path), _) => {
                if request.reliable {
                    counters.unreliable += 1;
                }
                self.release_transaction(request.transaction);
                for range in request.pdu.packet_ranges() {
                    self.send_packet(Transmit::Datagram { path }, &request.pdu.0[range]);
                }
                TransportConfirm::Accepted
            }
            (None, Some(conn)) => {
                let TransportRequest { service, transaction, watched, .. } = request;
                let pdu = request.pdu.clone();
                self.send_or_queue(conn, QueuedMessage { pdu, service, transaction, watched }, counters)
            }
            (None, None) => TransportConfirm::Failed,
        };
        if confirm == TransportConfirm::Accepted {
            for range in request.pdu.packet_ranges() {
                counters.packets += 1;
                counters.octets += range.len() as u64;
            }
        }
        confirm
    }

    fn send_or_queue(
        &mut self,
        conn: ConnId,
        message: QueuedMessage,
        counters: &mut MihfCounters,
    ) -> TransportConfirm {
        let Some(connection) = self.connections.get_mut(&conn) else {
            counters.no_route += 1;
            return TransportConfirm::Failed;
        };
        let (transaction, watched) = (message.transaction, message.watched);
        match connection.state {
            ConnectionState::Up { streams } => {
                let transport = connection.transport;
                self.hand_over(conn, transport, streams, &message);
            }
            ConnectionState::Opening
                if message.pdu.octet_count() > self.max_queue.saturating_sub(self.waiting) =>
            {
                counters.queue_full += 1;
                return TransportConfirm::Failed;
            }
            ConnectionState::Opening => {
                self.waiting += message.pdu.octet_count();
                connection.waiting.push_back(message);
            }
        }
        if watched {
            self.release_transaction(transaction);
            self.carriers.insert(transaction, conn);
            self.connection_transactions.insert((conn, transaction));
        }
        TransportConfirm::Accepted
    }

    /// A transaction need not hear of its connection any more.
    pub(crate) fn release_transaction(&mut self, transaction: u64) {
        if let Some(conn) = self.carriers.remove(&transaction) {
            self.connection_transactions.remove(&(conn, transaction));
        }
    }

    fn hand_over(
        &mut self,
        conn: ConnId,
        transport: TransportProtocol,
        streams: u16,
        message: &QueuedMessage,
    ) {
        let stream = message.service.index() as u16 % streams.max(1);
        let op = MessageOp::Data { stream, ppid: 0, unordered: !self.ordered };
        for range in message.pdu.packet_ranges() {
            let transmit = match transport {
                TransportProtocol::Sctp => Transmit::Message { assoc: conn, op },
                TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                    Transmit::Stream { conn, op: StreamOp::Data }
                }
            };
            self.send_packet(transmit, &message.pdu.0[range]);
        }
    }

    fn datagram_path(&self, route: &PeerRoute) -> DatagramPath {
        let socket = self.locals.iter().position(|l| *l == route.local).unwrap_or(0);
        let any = match route.remote {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = SocketAddr::new(route.local.unwrap_or(any), self.port);
        DatagramPath { socket: SocketId::from_number(socket as u32), local, remote: route.remote }
    }

    /// The connection to a peer by this route: of those that are up the one on which something came last, else one
    /// that is being opened, else a new one.
    fn find_or_connect(&mut self, peer: u32, route: &PeerRoute) -> ConnId {
        let mut best: Option<(bool, u64, ConnId)> = None;
        for &(_, conn) in
            self.by_peer.range((peer, ConnId::new_opened(0))..=(peer, ConnId::new_accepted(u32::MAX)))
        {
            if let Some(c) = self.connections.get(&conn).filter(|c| c.serves_route(conn, route)) {
                best = best.max(Some((c.state != ConnectionState::Opening, c.last_received, conn)));
            }
        }
        if let Some((_, _, conn)) = best {
            return conn;
        }
        let conn = ConnId::new_opened(self.opened);
        self.opened += 1;
        let connection = PeerConnection {
            transport: route.transport,
            local: route.local,
            remote: route.remote,
            state: ConnectionState::Opening,
            peer: Some(peer),
            last_received: 0,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
        };
        self.connections.insert(conn, connection);
        self.by_peer.insert((peer, conn));
        let (local, remote) = (route.local, route.remote);
        self.outputs.push_operation(match route.transport {
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
    pub(crate) fn reroute_peer(&mut self, peer: u32, route: &PeerRoute, counters: &mut MihfCounters) {
        let range = (peer, ConnId::new_opened(0))..=(peer, ConnId::new_accepted(u32::MAX));
        let old: Vec<ConnId> = self.by_peer.range(range).map(|&(_, conn)| conn).collect();
        for conn in old {
            let stale =
                |c: &PeerConnection| c.state == ConnectionState::Opening && !c.serves_route(conn, route);
            if !self.connections.get(&conn).is_some_and(stale) {
                continue;
            }
            let Some(gone) = self.remove_connection(conn) else { continue };
            self.abort_connection(conn, gone.transport);
            for message in gone.waiting {
                let path = (route.transport == TransportProtocol::Udp).then(|| self.datagram_path(route));
                if let Some(path) = path {
                    for range in message.pdu.packet_ranges() {
                        self.send_packet(Transmit::Datagram { path }, &message.pdu.0[range]);
                    }
                    self.release_transaction(message.transaction);
                } else {
                    let conn = self.find_or_connect(peer, route);
                    self.send_or_queue(conn, message, counters);
                }
            }
        }
    }

    /// A connection or association is up: an accepted one, or one of ours that has not been given up meanwhile.
    pub(crate) fn handle_connected(
        &mut self,
        conn: ConnId,
        transport: TransportProtocol,
        remote: SocketAddr,
        streams: u16,
    ) {
        if !conn.is_accepted() && !self.connections.contains_key(&conn) {
            return;
        }
        let connection = self.connections.entry(conn).or_insert_with(|| PeerConnection {
            transport,
            local: None,
            remote,
            state: ConnectionState::Opening,
            peer: None,
            last_received: 0,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
        });
        connection.state = ConnectionState::Up { streams };
        let waiting = core::mem::take(&mut connection.waiting);
        self.waiting -= waiting.iter().map(|message| message.pdu.octet_count()).sum::<usize>();
        for message in waiting {
            self.hand_over(conn, transport, streams, &message);
        }
    }

    /// A connection or association is over. What waited for it to come up has failed, and watched transactions that last
    /// went by it have.
    pub(crate) fn handle_closed(&mut self, conn: ConnId, counters: &mut MihfCounters) -> Option<u32> {
        let gone = self.remove_connection(conn)?;
        for message in gone.waiting {
            counters.not_connected += 1;
            self.failed.push_back(message.transaction);
        }
        let carried: Vec<u64> = self
            .connection_transactions
            .range((conn, 0)..=(conn, u64::MAX))
            .map(|&(_, transaction)| transaction)
            .collect();
        for transaction in carried {
            self.release_transaction(transaction);
            self.failed.push_back(transaction);
        }
        gone.peer
    }

    /// A transaction's message cannot be handed to any transport.
    pub(crate) fn fail_transaction(&mut self, transaction: u64) {
        self.failed.push_back(transaction);
    }

    /// The next transaction whose message waited for a connection that did not come up, or went by one that is over: the
    /// late half of MIH_TP_Data.confirm.
    pub(crate) fn poll_failed(&mut self) -> Option<u64> {
        self.failed.pop_front()
    }

    fn remove_connection(&mut self, conn: ConnId) -> Option<PeerConnection> {
        let gone = self.connections.remove(&conn)?;
        self.waiting -= gone.waiting.iter().map(|message| message.pdu.octet_count()).sum::<usize>();
        if let Some(peer) = gone.peer {
            self.by_peer.remove(&(peer, conn));
        }
        Some(gone)
    }

    fn abort_connection(&mut self, conn: ConnId, transport: TransportProtocol) {
        self.outputs.push_operation(match transport {
            TransportProtocol::Sctp => Transmit::Message { assoc: conn, op: MessageOp::Abort },
            TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                Transmit::Stream { conn, op: StreamOp::Abort }
            }
        });
    }

    /// Bytes of a stream: the whole messages that they end are added to `indications`. True if the stream cannot be
    /// cut into messages; it is then to be closed.
    pub(crate) fn receive_stream_data(
        &mut self,
        conn: ConnId,
        data: &[u8],
        indications: &mut VecDeque<TransportIndication>,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&conn) else { return false };
        self.receive_count += 1;
        connection.last_received = self.receive_count;
        connection.buffer.extend_from_slice(data);
        let (mut at, mut broken) = (0, false);
        while let Some(len) = MihHeader::message_length(&connection.buffer[at..]) {
            let rest = &connection.buffer[at..];
            if matches!(MihHeader::parse(&rest[..HEADER]), Err(HeaderError::Version(_))) {
                broken = true;
                break;
            }
            let Some(packet) = rest.get(..len) else { break };
            indications.push_back(TransportIndication {
                reply_path: ReplyPath::Connection(conn),
                packet: packet.to_vec(),
            });
            at += len;
        }
        connection.buffer.drain(..at);
        if broken {
            let transport = connection.transport;
            self.abort_connection(conn, transport);
        }
        broken
    }

    /// A user message came on an association.
    pub(crate) fn touch_association(&mut self, assoc: AssocId) {
        self.receive_count += 1;
        if let Some(connection) = self.connections.get_mut(&assoc) {
            connection.last_received = self.receive_count;
        }
    }

    /// The other end of a connection has said who it is. False where the connection is gone, or the end was known.
    pub(crate) fn identify_peer(&mut self, conn: ConnId, peer: u32) -> bool {
        match self.connections.get_mut(&conn) {
            Some(connection) if connection.peer.is_none() => {
                connection.peer = Some(peer);
                self.by_peer.insert((peer, conn))
            }
            _ => false,
        }
    }

    /// True while a way leads anywhere.
    pub(crate) fn is_open(&self, way: ReplyPath) -> bool {
        match way {
            ReplyPath::Datagram(_) => true,
            ReplyPath::Connection(conn) => self.connections.contains_key(&conn),
        }
    }

    /// Where a way leads to.
    pub(crate) fn remote_address(&self, way: ReplyPath) -> Option<SocketAddr> {
        match way {
            ReplyPath::Datagram(path) => Some(path.remote),
            ReplyPath::Connection(conn) => self.connections.get(&conn).map(|c| c.remote),
        }
    }

    fn send_packet(&mut self, transmit: Transmit, packet: &[u8]) {
        let mut bytes = self.outputs.take_buffer();
        bytes.extend_from_slice(packet);
        self.outputs.push_transmit(transmit, bytes);
    }
}
