//! The connections and associations of a driver: open ones, listeners, and admission.

use crate::counters::DriverCounters;
use crate::handshakes::HandshakeScheduler;
use crate::mmsg::AsyncSctpSocket;
use crate::stream::{self, ConnectionCommand, ConnectionEvent, DriverHandle};
use crate::wake::{ReadyList, SocketTask, TaskWaker};
use crate::{
    ConnectionSecuritySelector, DriverConfig, DriverRole, DriverSctpListener, DriverTcpListener,
    OutgoingConnectionSecurity, TlsServer, association,
};
use socket2::SockRef;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};
use usher_core::collections::HashMap;
use usher_core::fair::UnauthenticatedPeerTable;
use usher_core::{
    AssocId, CloseReason, ConnId, Instant, ListenerId, Machine, MachineInput, MessageAssociationEvent,
    MessageAssociationOp, StreamEvent, StreamOp,
};
use usher_sctp::SctpAssociation;

/// Pending events for the driver; beyond that connections wait.
const NOTES: usize = 256;
/// Maximum events taken, and connections accepted, in one batch.
const BATCH: usize = 64;
/// Pause of a listener after a failed accept, mostly for lack of descriptors.
const REST: Duration = Duration::from_millis(50);

/// A listening socket.
enum ListenerSocket {
    /// TCP, with or without TLS.
    Stream(TcpListener, Option<TlsServer>),
    /// SCTP.
    Association(AsyncFd<usher_sctp::SctpListener>),
}

/// An accepted socket.
enum AcceptedSocket {
    Stream(TcpStream),
    Association(SctpAssociation),
}

impl ListenerSocket {
    /// Accepts the next connection.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(AcceptedSocket, SocketAddr)>> {
        match self {
            Self::Stream(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, remote)| (AcceptedSocket::Stream(stream), remote))
            }
            Self::Association(socket) => loop {
                let Poll::Ready(ready) = socket.poll_read_ready(cx)? else { return Poll::Pending };
                drop(ready);
                match socket.try_io(Interest::READABLE, usher_sctp::SctpListener::accept) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    accepted => {
                        return Poll::Ready(
                            accepted.map(|(one, remote)| (AcceptedSocket::Association(one), remote)),
                        );
                    }
                }
            },
        }
    }
}

/// A listener and the count of its open connections.
struct ListenerEntry {
    listener: ListenerId,
    entrance: ListenerSocket,
    waker: Arc<TaskWaker>,
    open: usize,
    addresses: BTreeMap<IpAddr, usize>,
}

/// The driver's end of a connection.
struct ConnectionEntry {
    orders: UnboundedSender<ConnectionCommand>,
    queued: Arc<AtomicUsize>,
    /// True for an association.
    association: bool,
    /// If accepted: its listener and the peer's address.
    accept_origin: Option<(usize, IpAddr)>,
    /// True if the machine knows of it.
    is_announced: bool,
    /// True with TLS.
    with_tls: bool,
    /// Aborts an accepted one at any point of its handshake.
    end: Option<AbortHandle>,
}

/// All connections of a driver.
pub(crate) struct ConnectionTable {
    doors: Vec<ListenerEntry>,
    outgoing: Option<ConnectionSecuritySelector>,
    settings: DriverConfig,
    counters: Arc<DriverCounters>,
    conns: HashMap<ConnId, ConnectionEntry>,
    next: u32,
    notes: Receiver<(ConnId, ConnectionEvent)>,
    event_sender: Sender<(ConnId, ConnectionEvent)>,
    received_events: Vec<(ConnId, ConnectionEvent)>,
    /// Turns for the handshakes of unproven peers.
    turns: HandshakeScheduler,
    /// Unproven connections: with TLS, an incomplete handshake; without, not answered by the machine yet.
    unfinished: UnauthenticatedPeerTable<ConnId>,
    /// Closed connections that the machine must still get, and true for associations.
    closed: VecDeque<(ConnId, bool, CloseReason)>,
    tasks: JoinSet<()>,
}

impl ConnectionTable {
    pub(crate) fn new(
        (listeners, associations): (Vec<DriverTcpListener>, Vec<DriverSctpListener>),
        outgoing: Option<ConnectionSecuritySelector>,
        settings: DriverConfig,
        counters: Arc<DriverCounters>,
        ready: &ReadyList,
    ) -> io::Result<Self> {
        type Opened = io::Result<(ListenerId, ListenerSocket)>;
        let streams = listeners.into_iter().map(|DriverTcpListener { id, socket, tls }| -> Opened {
            socket.set_nonblocking(true)?;
            Ok((id, ListenerSocket::Stream(TcpListener::from_std(socket)?, tls)))
        });
        let associations = associations.into_iter().map(|DriverSctpListener { id, socket }| -> Opened {
            Ok((id, ListenerSocket::Association(socket.into_async()?)))
        });
        let door = |(index, opened): (usize, Opened)| {
            let (listener, entrance) = opened?;
            let bell = Arc::new(ready.task_waker(SocketTask::Accept(index)));
            bell.enlist_task();
            Ok(ListenerEntry { listener, entrance, waker: bell, open: 0, addresses: BTreeMap::new() })
        };
        let (teller, notes) = channel(NOTES);
        Ok(Self {
            doors: streams.chain(associations).enumerate().map(door).collect::<io::Result<_>>()?,
            outgoing,
            settings,
            counters,
            conns: HashMap::default(),
            next: 0,
            notes,
            event_sender: teller,
            received_events: Vec::with_capacity(BATCH),
            turns: HandshakeScheduler::default(),
            unfinished: UnauthenticatedPeerTable::default(),
            closed: VecDeque::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Accepts waiting connections of a listener, up to a batch.
    pub(crate) fn accept_waiting<N: DriverRole>(&mut self, index: usize, node: &N) {
        let Some(door) = self.doors.get(index) else { return };
        let bell = Arc::clone(&door.waker);
        bell.clear_listed();
        for _ in 0..BATCH {
            match self.doors[index].entrance.poll_accept(&mut bell.context()) {
                Poll::Pending => return,
                Poll::Ready(Ok((guest, remote))) => {
                    let listener = self.doors[index].listener;
                    let friend = node.accepts_from(listener, remote.ip().to_canonical());
                    self.admit_connection(index, guest, remote, friend);
                }
                Poll::Ready(Err(_)) => {
                    self.counters.accept_errors.increment();
                    self.tasks.spawn(async move {
                        tokio::time::sleep(REST).await;
                        bell.enlist_task();
                    });
                    return;
                }
            }
        }
        bell.enlist_task();
    }

    fn admit_connection(&mut self, index: usize, guest: AcceptedSocket, remote: SocketAddr, friend: bool) {
        let (door, address) = (&mut self.doors[index], remote.ip());
        let from = door.addresses.get(&address).copied().unwrap_or(0);
        let full = if !friend {
            Some(&self.counters.refused_stranger)
        } else if door.open >= self.settings.connections {
            Some(&self.counters.refused_listener)
        } else if from >= self.settings.connections_per_address {
            Some(&self.counters.refused_address)
        } else {
            None
        };
        if let Some(counter) = full {
            counter.increment();
            // Reset the refused connection: the peer must notice at once, and the kernel must keep no state.
            match guest {
                AcceptedSocket::Stream(stream) => {
                    drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO)))
                }
                AcceptedSocket::Association(association) => association.abort(),
            }
            return;
        }
        door.open += 1;
        door.addresses.insert(address, from + 1);
        let tls = match &door.entrance {
            ListenerSocket::Stream(_, tls) => tls.clone(),
            ListenerSocket::Association(_) => None,
        };
        let id = loop {
            let id = ConnId::nth_accepted_at_listener(self.doors[index].listener, self.next);
            self.next = self.next.wrapping_add(1);
            if !self.conns.contains_key(&id) {
                break id;
            }
        };
        self.counters.accepted.increment();
        let link = self.register_connection(
            id,
            matches!(guest, AcceptedSocket::Association(_)),
            Some((index, address)),
        );
        let with_tls = tls.is_some();
        let end = match guest {
            AcceptedSocket::Stream(stream) => {
                self.tasks.spawn(stream::serve_accepted(link, stream, remote, tls))
            }
            AcceptedSocket::Association(one) => {
                self.tasks.spawn(association::serve_accepted(link, one, remote))
            }
        };
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.end, conn.with_tls) = (Some(end), with_tls);
        }
        if let Some(displaced) = self.unfinished.add_peer(id, address, self.settings.handshakes) {
            self.evict_unauthenticated_connection(displaced);
        }
    }

    /// Aborts a connection of an unproven peer.
    fn evict_unauthenticated_connection(&mut self, id: ConnId) {
        let Some(conn) = self.remove_connection(id) else { return };
        let counter =
            if conn.with_tls { &self.counters.tls_displaced } else { &self.counters.silent_displaced };
        counter.increment();
        if conn.is_announced {
            // An error is ignored: the task closes the connection and reports that to the machine.
            let _ = conn.orders.send(ConnectionCommand::Abort);
            self.closed.push_back((id, conn.association, CloseReason::Reset));
        } else {
            conn.end.inspect(AbortHandle::abort);
        }
    }

    /// Creates both ends of the channel between a connection and the driver.
    fn register_connection(
        &mut self,
        id: ConnId,
        association: bool,
        door: Option<(usize, IpAddr)>,
    ) -> DriverHandle {
        let (orders, taken) = unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let known = door.is_none();
        let turns = door.map(|_| self.turns.clone());
        let conn = ConnectionEntry {
            orders,
            queued: Arc::clone(&queued),
            association,
            accept_origin: door,
            is_announced: known,
            with_tls: false,
            end: None,
        };
        self.conns.insert(id, conn);
        self.counters.connections_open.increment();
        // Join the tasks that have ended, because each holds memory until then.
        while self.tasks.try_join_next().is_some() {}
        let (notes, counters) = (self.event_sender.clone(), Arc::clone(&self.counters));
        DriverHandle { id, notes, orders: taken, queued, counters, settings: self.settings, turns }
    }

    fn remove_connection(&mut self, id: ConnId) -> Option<ConnectionEntry> {
        let conn = self.conns.remove(&id)?;
        self.unfinished.remove_peer(id);
        self.counters.connections_open.decrement();
        if let Some((index, address)) = conn.accept_origin {
            let door = &mut self.doors[index];
            door.open -= 1;
            if let Some(open) = door.addresses.get_mut(&address) {
                *open -= 1;
                if *open == 0 {
                    door.addresses.remove(&address);
                }
            }
        }
        Some(conn)
    }

    /// Returns the next batch of connection events. Return the list by [`recycle_list`](Self::recycle_list).
    pub(crate) fn poll_connection_notes(&mut self, cx: &mut Context<'_>) -> Vec<(ConnId, ConnectionEvent)> {
        let mut heard = std::mem::take(&mut self.received_events);
        // The result is ignored: the channel never closes, because this side holds a sender.
        let _ = self.notes.poll_recv_many(cx, &mut heard, BATCH);
        heard
    }

    /// Takes back an empty list for reuse.
    pub(crate) fn recycle_list(&mut self, heard: Vec<(ConnId, ConnectionEvent)>) {
        self.received_events = heard;
    }

    /// Delivers a connection event to the role; false if it has no receiver.
    pub(crate) fn deliver_event<N: DriverRole>(
        &mut self,
        node: &mut N,
        now: Instant,
        id: ConnId,
        note: ConnectionEvent,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let listener =
            conn.accept_origin.and_then(|(index, _)| self.doors.get(index)).map(|door| door.listener);
        let input = match &note {
            ConnectionEvent::Connected { remote, local, certificate } => {
                conn.is_announced = true;
                if conn.with_tls {
                    self.unfinished.remove_peer(id);
                }
                let (remote, local, certificate) = (*remote, *local, certificate.as_deref());
                let event = match listener {
                    Some(listener) => StreamEvent::Accepted { listener, remote, local, certificate },
                    None => StreamEvent::Connected { remote, local, certificate },
                };
                MachineInput::Stream { conn: id, event }
            }
            ConnectionEvent::Data(data) => MachineInput::Stream { conn: id, event: StreamEvent::Data(data) },
            ConnectionEvent::Writable => MachineInput::Stream { conn: id, event: StreamEvent::Writable },
            ConnectionEvent::Finished => MachineInput::Stream { conn: id, event: StreamEvent::Finished },
            ConnectionEvent::Up { remote, streams } => {
                conn.is_announced = true;
                let (remote, streams) = (*remote, *streams);
                let event = match listener {
                    Some(listener) => MessageAssociationEvent::Accepted { listener, remote, streams },
                    None => MessageAssociationEvent::Up { remote, streams },
                };
                MachineInput::Message { assoc: id, event }
            }
            ConnectionEvent::Message { stream, ppid, data } => {
                let event = MessageAssociationEvent::Data { stream: *stream, ppid: *ppid, data };
                MachineInput::Message { assoc: id, event }
            }
            ConnectionEvent::Closed(reason) => {
                let (known, association) = (conn.is_announced, conn.association);
                self.remove_connection(id);
                if !known {
                    return false;
                }
                closed_connection_input(id, association, *reason)
            }
        };
        node.machine().handle_input(now, input);
        true
    }

    /// Reports a connection that the driver closed to the machine; false if there is none.
    pub(crate) fn report_driver_closed_connection<N: DriverRole>(
        &mut self,
        node: &mut N,
        now: Instant,
    ) -> bool {
        let Some((id, association, reason)) = self.closed.pop_front() else { return false };
        node.machine().handle_input(now, closed_connection_input(id, association, reason));
        true
    }

    /// Applies an operation of the machine to a connection.
    pub(crate) fn apply_operation(&mut self, id: ConnId, op: StreamOp, buffer: &mut Vec<u8>) {
        let order = match op {
            StreamOp::Connect { local, remote } => return self.start_connect(id, local, remote),
            StreamOp::Data => ConnectionCommand::Data(std::mem::take(buffer)),
            StreamOp::Credit(more) => ConnectionCommand::Credit(more),
            StreamOp::Shutdown => ConnectionCommand::Shutdown,
            StreamOp::Abort => ConnectionCommand::Abort,
        };
        self.send_command(id, order);
    }

    /// Applies an operation of the machine to an association.
    pub(crate) fn operate_association(
        &mut self,
        id: AssocId,
        op: MessageAssociationOp,
        buffer: &mut Vec<u8>,
    ) {
        let order = match op {
            MessageAssociationOp::Connect { local, remote, streams } => {
                return self.start_association(id, local, remote, streams);
            }
            MessageAssociationOp::Data { stream, ppid, unordered } => {
                let how = usher_sctp::SendInfo { stream, ppid, unordered };
                ConnectionCommand::Message(how, std::mem::take(buffer))
            }
            MessageAssociationOp::Shutdown => ConnectionCommand::Shutdown,
            MessageAssociationOp::Abort => ConnectionCommand::Abort,
        };
        self.send_command(id, order);
    }

    fn send_command(&mut self, id: ConnId, order: ConnectionCommand) {
        let Some(conn) = self.conns.get(&id) else { return self.counters.unknown_connection.increment() };
        if let ConnectionCommand::Data(data) | ConnectionCommand::Message(_, data) = &order {
            let queued = conn.queued.fetch_add(data.len(), Ordering::Relaxed);
            if queued > self.settings.stream_queue {
                self.counters.slow_peers.increment();
                let (_, association) = (conn.orders.send(ConnectionCommand::Abort), conn.association);
                self.remove_connection(id);
                self.closed.push_back((id, association, CloseReason::Reset));
                return;
            }
            // A peer to which the machine replies counts as proven.
            self.unfinished.remove_peer(id);
        }
        let abort = matches!(order, ConnectionCommand::Abort);
        // A send error is ignored: a connection that has ended reports this by its own event.
        let _ = conn.orders.send(order);
        if abort {
            self.remove_connection(id);
        }
    }

    fn start_connect(&mut self, id: ConnId, local: Option<IpAddr>, remote: SocketAddr) {
        self.counters.connects.increment();
        let carriage =
            self.outgoing.as_ref().map_or(OutgoingConnectionSecurity::Plain, |outgoing| outgoing(remote));
        let tls = match carriage {
            OutgoingConnectionSecurity::Plain => None,
            OutgoingConnectionSecurity::Tls(tls) => Some(tls),
            OutgoingConnectionSecurity::Refused => return self.refuse_connection(id, false),
        };
        if self.conns.contains_key(&id) {
            return self.refuse_connection(id, false);
        }
        let link = self.register_connection(id, false, None);
        self.tasks.spawn(stream::connect_and_serve(link, local, remote, tls));
    }

    fn start_association(&mut self, id: AssocId, local: Option<IpAddr>, remote: SocketAddr, streams: u16) {
        self.counters.connects.increment();
        let carriage =
            self.outgoing.as_ref().map_or(OutgoingConnectionSecurity::Plain, |outgoing| outgoing(remote));
        if !matches!(carriage, OutgoingConnectionSecurity::Plain) || self.conns.contains_key(&id) {
            return self.refuse_connection(id, true);
        }
        let link = self.register_connection(id, true, None);
        self.tasks.spawn(association::connect_and_serve(link, local, remote, streams));
    }

    fn refuse_connection(&mut self, id: ConnId, association: bool) {
        self.counters.connect_failures.increment();
        self.closed.push_back((id, association, CloseReason::Refused));
    }

    /// Closes all connections gracefully, within `linger`.
    pub(crate) async fn close_all(mut self, linger: Duration) {
        self.doors.clear();
        // Each connection closes itself when its command channel closes. Its events then have no receiver.
        self.notes.close();
        self.conns.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // After the time limit, the remaining connections are dropped together with their tasks.
        let _ = tokio::time::timeout(linger, all).await;
    }
}

/// Returns the machine's input for a closed connection.
const fn closed_connection_input(
    id: ConnId,
    association: bool,
    reason: CloseReason,
) -> MachineInput<'static> {
    if association {
        MachineInput::Message { assoc: id, event: MessageAssociationEvent::Down(reason) }
    } else {
        MachineInput::Stream { conn: id, event: StreamEvent::Closed(reason) }
    }
}
