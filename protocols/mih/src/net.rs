//! MIH_NET_SAP: the interface of an MIH function to its transports (IEEE 802.21-2008 clause 7.5, RFC 5677).
//!
//! Its primitive MIH_TP_Data has a request ([`TransportRequest`]), a confirm ([`TransportConfirm`]) and an indication
//! ([`TransportIndication`]). Over UDP each message is a datagram. The first message to a peer opens a connection
//! (TCP) or association (SCTP), which stays open. Messages wait until it is up.
//!
//! A closed connection is opened again for the next message. Pending messages of a closed connection are lost unless
//! MIH's rules retransmit them. A request that is not retransmitted fails. On an accepted connection, the peer is the
//! source of its first message.
//!
//! The length in each header delimits the messages of a stream. If the stream cannot be cut (another version), it is
//! closed, because the next message cannot be found.

use crate::function::{MihfConfig, MihfCounters, MihfEvent, PeerRoute};
use crate::{HEADER, HeaderError, MihHeader, ServiceId};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::Range;
use usher_core::{
    AssocId, ConnId, DatagramPath, MessageAssociationOp, OutputQueue, SocketId, StreamOp, Transmit,
    TransportProtocol,
};

/// Outbound streams of an association: one for each service.
pub(crate) const STREAMS: u16 = 4;

/// An encoded message: one packet, or its fragments in order. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Pdu(Arc<[u8]>);

impl Pdu {
    /// Creates it from whole packets, each with its header.
    pub(crate) fn new(octets: &[u8]) -> Self {
        Self(octets.into())
    }
    fn octet_count(&self) -> usize {
        self.0.len()
    }
    /// Returns the range of each packet.
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

/// The path of a received message, and of the reply to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyPath {
    /// Datagrams on this path.
    Datagram(DatagramPath),
    /// A connection or association.
    Connection(ConnId),
}

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MessageTarget {
    /// The path of a received message.
    Path(ReplyPath),
    /// The peer with this index, by its route.
    Route(u32, PeerRoute),
}

/// MIH_TP_Data.request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportRequest<'a> {
    pub(crate) to: MessageTarget,
    /// The reliable delivery flag: only the transport ensures delivery.
    pub(crate) reliable: bool,
    /// True if the transaction also fails when the connection that carries the message closes.
    pub(crate) watched: bool,
    pub(crate) service: ServiceId,
    pub(crate) pdu: &'a Pdu,
    /// The transaction that fails if the connection does not come up.
    pub(crate) transaction: u64,
}

/// MIH_TP_Data.confirm: the part of the result that is known at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransportConfirm {
    /// Passed to the transport, or waiting for its connection.
    Accepted,
    /// The connection for the reply is closed, or too many messages wait.
    Failed,
}

/// MIH_TP_Data.indication: a received packet.
#[derive(Clone, Debug)]
pub(crate) struct TransportIndication {
    pub(crate) reply_path: ReplyPath,
    pub(crate) packet: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MihConnectionState {
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
    state: MihConnectionState,
    peer: Option<u32>,
    /// The sequence number of its latest receipt, over all connections.
    last_received: u64,
    waiting: VecDeque<QueuedMessage>,
    /// The start of an incomplete message.
    buffer: Vec<u8>,
}

impl PeerConnection {
    /// True if the connection leads to the route's address. An accepted connection has a port of its own and an
    /// unknown local address.
    fn connection_serves_route(&self, conn: ConnId, route: &PeerRoute) -> bool {
        let same = self.transport == route.transport && self.remote.ip() == route.remote.ip();
        let ours = self.local == route.local && self.remote.port() == route.remote.port();
        same && (conn.is_accepted() || ours)
    }
}

/// The transports of one MIH function.
#[derive(Debug)]
pub(crate) struct MihNetSap {
    max_queue: usize,
    ordered: bool,
    /// The port of the sockets.
    port: u16,
    /// Local addresses in the order in which routes named them; the index is the socket.
    locals: Vec<Option<IpAddr>>,
    connections: BTreeMap<ConnId, PeerConnection>,
    by_peer: BTreeSet<(u32, ConnId)>,
    opened: u32,
    receive_count: u64,
    /// Octets of the waiting messages.
    waiting: usize,
    /// The latest connection of each watched transaction, and the reverse map.
    carriers: BTreeMap<u64, ConnId>,
    connection_transactions: BTreeSet<(ConnId, u64)>,
    /// Outputs of the function.
    pub(crate) outputs: OutputQueue<MihfEvent>,
    /// Transactions whose connection failed or closed.
    failed: VecDeque<u64>,
}

impl MihNetSap {
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

    /// Records a local address: the k-th is socket k. A route without a local address uses socket 0.
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
            MihConnectionState::Up { streams } => {
                let transport = connection.transport;
                self.hand_over(conn, transport, streams, &message);
            }
            MihConnectionState::Opening
                if message.pdu.octet_count() > self.max_queue.saturating_sub(self.waiting) =>
            {
                counters.queue_full += 1;
                return TransportConfirm::Failed;
            }
            MihConnectionState::Opening => {
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

    /// Stops watching the connection of a transaction.
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
        let op = MessageAssociationOp::Data { stream, ppid: 0, unordered: !self.ordered };
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

    /// Returns the connection to a peer by this route. Open connections come first, the one with the latest receipt
    /// before others. Next comes one that is being opened, else a new one.
    fn find_or_connect(&mut self, peer: u32, route: &PeerRoute) -> ConnId {
        let mut best: Option<(bool, u64, ConnId)> = None;
        for &(_, conn) in self.by_peer.range(
            (peer, ConnId::nth_opened_connection(0))..=(peer, ConnId::nth_accepted_connection(u32::MAX)),
        ) {
            if let Some(c) = self.connections.get(&conn).filter(|c| c.connection_serves_route(conn, route)) {
                best = best.max(Some((c.state != MihConnectionState::Opening, c.last_received, conn)));
            }
        }
        if let Some((_, _, conn)) = best {
            return conn;
        }
        let conn = ConnId::nth_opened_connection(self.opened);
        self.opened += 1;
        let connection = PeerConnection {
            transport: route.transport,
            local: route.local,
            remote: route.remote,
            state: MihConnectionState::Opening,
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
                let op = MessageAssociationOp::Connect { local, remote, streams: STREAMS };
                Transmit::Message { assoc: conn, op }
            }
            TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                Transmit::Stream { conn, op: StreamOp::Connect { local, remote } }
            }
        });
        conn
    }

    /// Moves a peer to another route. Messages that wait for connections outside it move to it, and those connections
    /// are dropped.
    pub(crate) fn reroute_peer(&mut self, peer: u32, route: &PeerRoute, counters: &mut MihfCounters) {
        let range =
            (peer, ConnId::nth_opened_connection(0))..=(peer, ConnId::nth_accepted_connection(u32::MAX));
        let old: Vec<ConnId> = self.by_peer.range(range).map(|&(_, conn)| conn).collect();
        for conn in old {
            let stale = |c: &PeerConnection| {
                c.state == MihConnectionState::Opening && !c.connection_serves_route(conn, route)
            };
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

    /// Handles an established connection or association: an accepted one, or an own one that is still wanted.
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
            state: MihConnectionState::Opening,
            peer: None,
            last_received: 0,
            waiting: VecDeque::new(),
            buffer: Vec::new(),
        });
        connection.state = MihConnectionState::Up { streams };
        let waiting = core::mem::take(&mut connection.waiting);
        self.waiting -= waiting.iter().map(|message| message.pdu.octet_count()).sum::<usize>();
        for message in waiting {
            self.hand_over(conn, transport, streams, &message);
        }
    }

    /// Handles a closed connection or association. Its waiting messages and the watched transactions that last used
    /// it fail.
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

    /// Fails a transaction whose message no transport accepts.
    pub(crate) fn fail_transaction(&mut self, transaction: u64) {
        self.failed.push_back(transaction);
    }

    /// Returns the next failed transaction: its message waited for a connection that failed, or used one that closed.
    /// This is the late part of MIH_TP_Data.confirm.
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
            TransportProtocol::Sctp => Transmit::Message { assoc: conn, op: MessageAssociationOp::Abort },
            TransportProtocol::Tcp | TransportProtocol::Tls | TransportProtocol::Udp => {
                Transmit::Stream { conn, op: StreamOp::Abort }
            }
        });
    }

    /// Receives data of a stream and adds the completed messages to `indications`. True if the stream cannot be cut
    /// into messages and must be closed.
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

    /// Records the receipt of a user message on an association.
    pub(crate) fn record_association_receipt(&mut self, assoc: AssocId) {
        self.receive_count += 1;
        if let Some(connection) = self.connections.get_mut(&assoc) {
            connection.last_received = self.receive_count;
        }
    }

    /// Records the identity of a connection's peer. False if the connection is closed or the peer was known.
    pub(crate) fn identify_peer(&mut self, conn: ConnId, peer: u32) -> bool {
        match self.connections.get_mut(&conn) {
            Some(connection) if connection.peer.is_none() => {
                connection.peer = Some(peer);
                self.by_peer.insert((peer, conn))
            }
            _ => false,
        }
    }

    /// True while the path can be used.
    pub(crate) fn is_open(&self, way: ReplyPath) -> bool {
        match way {
            ReplyPath::Datagram(_) => true,
            ReplyPath::Connection(conn) => self.connections.contains_key(&conn),
        }
    }

    /// Returns the remote address of a path.
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
