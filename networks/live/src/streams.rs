//! The connections and associations of a driver: who is open, who is accepted and who refused.

use crate::counters::DriverCounters;
use crate::handshakes::HandshakeTurns;
use crate::mmsg::Watched;
use crate::stream::{self, DriverHandle, Note, Order};
use crate::wake::{Bell, Ready, Task};
use crate::{AssociationListener, Carriage, Listener, Outgoing, Role, Settings, TlsServer, association};
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
use usher_core::fair::PlaceTable;
use usher_core::{
    AssocId, CloseReason, ConnId, Input, Instant, ListenerId, Machine, MessageEvent, MessageOp, StreamEvent,
    StreamOp,
};
use usher_sctp::Association;

/// Notes that wait for the driver; then connections wait to tell.
const NOTES: usize = 256;
/// Notes taken at once, and connections accepted at once.
const BATCH: usize = 64;
/// How long a listener rests when the system gives no connection, mostly for want of descriptors.
const REST: Duration = Duration::from_millis(50);

/// Where somebody may come in.
enum Entrance {
    /// By TCP, with TLS or without.
    Stream(TcpListener, Option<TlsServer>),
    /// By SCTP.
    Association(AsyncFd<usher_sctp::Listener>),
}

/// Who came in.
enum Guest {
    Stream(TcpStream),
    Association(Association),
}

impl Entrance {
    /// The next who waits.
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Guest, SocketAddr)>> {
        match self {
            Self::Stream(socket, _) => {
                socket.poll_accept(cx).map_ok(|(stream, remote)| (Guest::Stream(stream), remote))
            }
            Self::Association(socket) => loop {
                let Poll::Ready(ready) = socket.poll_read_ready(cx)? else { return Poll::Pending };
                drop(ready);
                match socket.try_io(Interest::READABLE, usher_sctp::Listener::accept) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    accepted => {
                        return Poll::Ready(accepted.map(|(one, remote)| (Guest::Association(one), remote)));
                    }
                }
            },
        }
    }
}

/// A listener with what it has open.
struct Door {
    listener: ListenerId,
    entrance: Entrance,
    bell: Arc<Bell>,
    open: usize,
    addresses: BTreeMap<IpAddr, usize>,
}

/// The driver's end of a connection.
struct Conn {
    orders: UnboundedSender<Order>,
    queued: Arc<AtomicUsize>,
    /// Whether it is an association.
    association: bool,
    /// For an accepted one: its listener and the other side's address.
    door: Option<(usize, IpAddr)>,
    /// Whether the machine knows of it.
    known: bool,
    /// TLS protects it.
    with_tls: bool,
    /// Ends an accepted one at once, wherever it is in its handshake.
    end: Option<AbortHandle>,
}

/// All connections of a driver.
pub(crate) struct Streams {
    doors: Vec<Door>,
    outgoing: Option<Outgoing>,
    settings: Settings,
    counters: Arc<DriverCounters>,
    conns: HashMap<ConnId, Conn>,
    next: u32,
    notes: Receiver<(ConnId, Note)>,
    teller: Sender<(ConnId, Note)>,
    heard: Vec<(ConnId, Note)>,
    /// Of the handshakes of those who came unasked.
    turns: HandshakeTurns,
    /// Those to whom nothing has been said yet: with TLS their handshakes are not complete.
    unfinished: PlaceTable<ConnId>,
    /// Connections whose end the machine is still to hear of, and whether they were associations.
    closed: VecDeque<(ConnId, bool, CloseReason)>,
    tasks: JoinSet<()>,
}

impl Streams {
    pub(crate) fn new(
        (listeners, associations): (Vec<Listener>, Vec<AssociationListener>),
        outgoing: Option<Outgoing>,
        settings: Settings,
        counters: Arc<DriverCounters>,
        ready: &Ready,
    ) -> io::Result<Self> {
        type Opened = io::Result<(ListenerId, Entrance)>;
        let streams = listeners.into_iter().map(|Listener { id, socket, tls }| -> Opened {
            socket.set_nonblocking(true)?;
            Ok((id, Entrance::Stream(TcpListener::from_std(socket)?, tls)))
        });
        let associations = associations.into_iter().map(|AssociationListener { id, socket }| -> Opened {
            Ok((id, Entrance::Association(socket.watched()?)))
        });
        let door = |(index, opened): (usize, Opened)| {
            let (listener, entrance) = opened?;
            let bell = Arc::new(ready.bell(Task::Accept(index)));
            bell.ring();
            Ok(Door { listener, entrance, bell, open: 0, addresses: BTreeMap::new() })
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
            teller,
            heard: Vec::with_capacity(BATCH),
            turns: HandshakeTurns::default(),
            unfinished: PlaceTable::default(),
            closed: VecDeque::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Accepts what waits at a listener, up to a batch.
    pub(crate) fn accept<N: Role>(&mut self, index: usize, node: &N) {
        let Some(door) = self.doors.get(index) else { return };
        let bell = Arc::clone(&door.bell);
        bell.heard();
        for _ in 0..BATCH {
            match self.doors[index].entrance.poll_accept(&mut bell.context()) {
                Poll::Pending => return,
                Poll::Ready(Ok((guest, remote))) => {
                    let listener = self.doors[index].listener;
                    let friend = node.admits(listener, remote.ip().to_canonical());
                    self.admit(index, guest, remote, friend);
                }
                Poll::Ready(Err(_)) => {
                    self.counters.accept_errors.one();
                    self.tasks.spawn(async move {
                        tokio::time::sleep(REST).await;
                        bell.ring();
                    });
                    return;
                }
            }
        }
        bell.ring();
    }

    fn admit(&mut self, index: usize, guest: Guest, remote: SocketAddr, friend: bool) {
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
            counter.one();
            // The other side is to notice at once, and nothing is to be kept for it.
            match guest {
                Guest::Stream(stream) => drop(SockRef::from(&stream).set_linger(Some(Duration::ZERO))),
                Guest::Association(association) => association.abort(),
            }
            return;
        }
        door.open += 1;
        door.addresses.insert(address, from + 1);
        let tls = match &door.entrance {
            Entrance::Stream(_, tls) => tls.clone(),
            Entrance::Association(_) => None,
        };
        let id = loop {
            let id = ConnId::accepted_at(self.doors[index].listener, self.next);
            self.next = self.next.wrapping_add(1);
            if !self.conns.contains_key(&id) {
                break id;
            }
        };
        self.counters.accepted.one();
        let link = self.open(id, matches!(guest, Guest::Association(_)), Some((index, address)));
        let with_tls = tls.is_some();
        let end = match guest {
            Guest::Stream(stream) => self.tasks.spawn(stream::accepted(link, stream, remote, tls)),
            Guest::Association(one) => self.tasks.spawn(association::accepted(link, one, remote)),
        };
        if let Some(conn) = self.conns.get_mut(&id) {
            (conn.end, conn.with_tls) = (Some(end), with_tls);
        }
        if let Some(displaced) = self.unfinished.add(id, address, self.settings.handshakes) {
            self.displace(displaced);
        }
    }

    /// Ends a connection whose peer has shown nothing yet.
    fn displace(&mut self, id: ConnId) {
        let Some(conn) = self.forget(id) else { return };
        let counter =
            if conn.with_tls { &self.counters.tls_displaced } else { &self.counters.silent_displaced };
        counter.one();
        if conn.known {
            // The task closes it, of which the machine is to hear.
            let _ = conn.orders.send(Order::Abort);
            self.closed.push_back((id, conn.association, CloseReason::Reset));
        } else {
            conn.end.inspect(AbortHandle::abort);
        }
    }

    /// Makes both ends of what binds a connection to the driver.
    fn open(&mut self, id: ConnId, association: bool, door: Option<(usize, IpAddr)>) -> DriverHandle {
        let (orders, taken) = unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let known = door.is_none();
        let turns = door.map(|_| self.turns.clone());
        let conn = Conn {
            orders,
            queued: Arc::clone(&queued),
            association,
            door,
            known,
            with_tls: false,
            end: None,
        };
        self.conns.insert(id, conn);
        self.counters.connections_open.one();
        // Tasks that have ended leave something behind until they are asked for.
        while self.tasks.try_join_next().is_some() {}
        let (notes, counters) = (self.teller.clone(), Arc::clone(&self.counters));
        DriverHandle { id, notes, orders: taken, queued, counters, settings: self.settings, turns }
    }

    fn forget(&mut self, id: ConnId) -> Option<Conn> {
        let conn = self.conns.remove(&id)?;
        self.unfinished.remove(id);
        self.counters.connections_open.less();
        if let Some((index, address)) = conn.door {
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

    /// The next batch of what connections tell, to be given back by [`reuse`](Self::reuse).
    pub(crate) fn poll_notes(&mut self, cx: &mut Context<'_>) -> Vec<(ConnId, Note)> {
        let mut heard = std::mem::take(&mut self.heard);
        // It never ends: `teller` is there.
        let _ = self.notes.poll_recv_many(cx, &mut heard, BATCH);
        heard
    }

    /// Takes back an empty list.
    pub(crate) fn reuse(&mut self, heard: Vec<(ConnId, Note)>) {
        self.heard = heard;
    }

    /// Gives the node what a connection told; false if nobody is to hear of it.
    pub(crate) fn deliver<N: Role>(&mut self, node: &mut N, now: Instant, id: ConnId, note: Note) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        let listener = conn.door.and_then(|(index, _)| self.doors.get(index)).map(|door| door.listener);
        let input = match &note {
            Note::Connected { remote, local, certificate } => {
                conn.known = true;
                if conn.with_tls {
                    self.unfinished.remove(id);
                }
                let (remote, local, certificate) = (*remote, *local, certificate.as_deref());
                let event = match listener {
                    Some(listener) => StreamEvent::Accepted { listener, remote, local, certificate },
                    None => StreamEvent::Connected { remote, local, certificate },
                };
                Input::Stream { conn: id, event }
            }
            Note::Data(data) => Input::Stream { conn: id, event: StreamEvent::Data(data) },
            Note::Writable => Input::Stream { conn: id, event: StreamEvent::Writable },
            Note::Finished => Input::Stream { conn: id, event: StreamEvent::Finished },
            Note::Up { remote, streams } => {
                conn.known = true;
                let (remote, streams) = (*remote, *streams);
                let event = match listener {
                    Some(listener) => MessageEvent::Accepted { listener, remote, streams },
                    None => MessageEvent::Up { remote, streams },
                };
                Input::Message { assoc: id, event }
            }
            Note::Message { stream, ppid, data } => {
                let event = MessageEvent::Data { stream: *stream, ppid: *ppid, data };
                Input::Message { assoc: id, event }
            }
            Note::Closed(reason) => {
                let (known, association) = (conn.known, conn.association);
                self.forget(id);
                if !known {
                    return false;
                }
                ended(id, association, *reason)
            }
        };
        node.machine().handle(now, input);
        true
    }

    /// Tells the machine of an end that the driver itself made; false if there is none.
    pub(crate) fn say_closed<N: Role>(&mut self, node: &mut N, now: Instant) -> bool {
        let Some((id, association, reason)) = self.closed.pop_front() else { return false };
        node.machine().handle(now, ended(id, association, reason));
        true
    }

    /// Does what the machine wants done with a connection.
    pub(crate) fn operate(&mut self, id: ConnId, op: StreamOp, buffer: &mut Vec<u8>) {
        let order = match op {
            StreamOp::Connect { local, remote } => return self.connect(id, local, remote),
            StreamOp::Data => Order::Data(std::mem::take(buffer)),
            StreamOp::Credit(more) => Order::Credit(more),
            StreamOp::Shutdown => Order::Shutdown,
            StreamOp::Abort => Order::Abort,
        };
        self.order(id, order);
    }

    /// Does what the machine wants done with an association.
    pub(crate) fn operate_association(&mut self, id: AssocId, op: MessageOp, buffer: &mut Vec<u8>) {
        let order = match op {
            MessageOp::Connect { local, remote, streams } => {
                return self.associate(id, local, remote, streams);
            }
            MessageOp::Data { stream, ppid, unordered } => {
                let how = usher_sctp::Outgoing { stream, ppid, unordered };
                Order::Message(how, std::mem::take(buffer))
            }
            MessageOp::Shutdown => Order::Shutdown,
            MessageOp::Abort => Order::Abort,
        };
        self.order(id, order);
    }

    fn order(&mut self, id: ConnId, order: Order) {
        let Some(conn) = self.conns.get(&id) else { return self.counters.unknown_connection.one() };
        if let Order::Data(data) | Order::Message(_, data) = &order {
            let queued = conn.queued.fetch_add(data.len(), Ordering::Relaxed);
            if queued > self.settings.stream_queue {
                self.counters.slow_peers.one();
                let (_, association) = (conn.orders.send(Order::Abort), conn.association);
                self.forget(id);
                self.closed.push_back((id, association, CloseReason::Reset));
                return;
            }
            // Whoever is answered is somebody to the machine.
            self.unfinished.remove(id);
        }
        let abort = matches!(order, Order::Abort);
        // A connection that has ended tells so by a note.
        let _ = conn.orders.send(order);
        if abort {
            self.forget(id);
        }
    }

    fn connect(&mut self, id: ConnId, local: Option<IpAddr>, remote: SocketAddr) {
        self.counters.connects.one();
        let carriage = self.outgoing.as_ref().map_or(Carriage::Plain, |outgoing| outgoing(remote));
        let tls = match carriage {
            Carriage::Plain => None,
            Carriage::Tls(tls) => Some(tls),
            Carriage::Refused => return self.refuse(id, false),
        };
        if self.conns.contains_key(&id) {
            return self.refuse(id, false);
        }
        let link = self.open(id, false, None);
        self.tasks.spawn(stream::connect(link, local, remote, tls));
    }

    fn associate(&mut self, id: AssocId, local: Option<IpAddr>, remote: SocketAddr, streams: u16) {
        self.counters.connects.one();
        let carriage = self.outgoing.as_ref().map_or(Carriage::Plain, |outgoing| outgoing(remote));
        if !matches!(carriage, Carriage::Plain) || self.conns.contains_key(&id) {
            return self.refuse(id, true);
        }
        let link = self.open(id, true, None);
        self.tasks.spawn(association::connect(link, local, remote, streams));
    }

    fn refuse(&mut self, id: ConnId, association: bool) {
        self.counters.connect_failures.one();
        self.closed.push_back((id, association, CloseReason::Refused));
    }

    /// Closes everything in good order, for at most `linger`.
    pub(crate) async fn close(mut self, linger: Duration) {
        self.doors.clear();
        // Connections whose orders end close themselves; nobody hears what they tell.
        self.notes.close();
        self.conns.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // What is open after that is dropped with the tasks.
        let _ = tokio::time::timeout(linger, all).await;
    }
}

/// What the machine hears of an end.
const fn ended(id: ConnId, association: bool, reason: CloseReason) -> Input<'static> {
    if association {
        Input::Message { assoc: id, event: MessageEvent::Down(reason) }
    } else {
        Input::Stream { conn: id, event: StreamEvent::Closed(reason) }
    }
}
