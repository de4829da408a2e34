//! The connections of a driver: who is open, who is accepted and who refused.

use crate::counters::DriverCounters;
use crate::handshakes::{HandshakeTurns, Unfinished};
use crate::stream::{self, DriverHandle, Note, Order};
use crate::wake::{Bell, Ready, Task};
use crate::{Carriage, Listener, Outgoing, Role, Settings, TlsServer};
use socket2::SockRef;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};
use usher_core::collections::HashMap;
use usher_core::{CloseReason, ConnId, Input, Instant, ListenerId, Machine, StreamEvent, StreamOp};

/// Notes that wait for the driver; then connections wait to tell.
const NOTES: usize = 256;
/// Notes taken at once, and connections accepted at once.
const BATCH: usize = 64;
/// How long a listener rests when the system gives no connection, mostly for want of descriptors.
const REST: Duration = Duration::from_millis(50);

/// A listener with what it has open.
struct Door {
    listener: ListenerId,
    socket: TcpListener,
    tls: Option<TlsServer>,
    bell: Arc<Bell>,
    open: usize,
    addresses: BTreeMap<IpAddr, usize>,
}

/// The driver's end of a connection.
struct Conn {
    orders: UnboundedSender<Order>,
    queued: Arc<AtomicUsize>,
    /// For an accepted one: its listener and the other side's address.
    door: Option<(usize, IpAddr)>,
    /// Whether the machine knows of it.
    known: bool,
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
    /// And which of them are not complete, with TLS.
    unfinished: Unfinished,
    /// Connections whose end the machine is still to hear of.
    closed: VecDeque<(ConnId, CloseReason)>,
    tasks: JoinSet<()>,
}

impl Streams {
    pub(crate) fn new(
        listeners: Vec<Listener>,
        outgoing: Option<Outgoing>,
        settings: Settings,
        counters: Arc<DriverCounters>,
        ready: &Ready,
    ) -> io::Result<Self> {
        let door = |(index, listener): (usize, Listener)| {
            let Listener { id: listener, socket, tls } = listener;
            socket.set_nonblocking(true)?;
            let bell = Arc::new(ready.bell(Task::Accept(index)));
            bell.ring();
            let socket = TcpListener::from_std(socket)?;
            Ok(Door { listener, socket, tls, bell, open: 0, addresses: BTreeMap::new() })
        };
        let (teller, notes) = channel(NOTES);
        Ok(Self {
            doors: listeners.into_iter().enumerate().map(door).collect::<io::Result<_>>()?,
            outgoing,
            settings,
            counters,
            conns: HashMap::default(),
            next: 0,
            notes,
            teller,
            heard: Vec::with_capacity(BATCH),
            turns: HandshakeTurns::default(),
            unfinished: Unfinished::default(),
            closed: VecDeque::new(),
            tasks: JoinSet::new(),
        })
    }

    /// Accepts what waits at a listener, up to a batch.
    pub(crate) fn accept(&mut self, index: usize) {
        let Some(door) = self.doors.get(index) else { return };
        let bell = Arc::clone(&door.bell);
        bell.heard();
        for _ in 0..BATCH {
            match self.doors[index].socket.poll_accept(&mut bell.context()) {
                Poll::Pending => return,
                Poll::Ready(Ok((stream, remote))) => self.admit(index, stream, remote),
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

    fn admit(&mut self, index: usize, stream: TcpStream, remote: SocketAddr) {
        let (door, address) = (&mut self.doors[index], remote.ip());
        let from = door.addresses.get(&address).copied().unwrap_or(0);
        let full = if door.open >= self.settings.connections {
            Some(&self.counters.refused_listener)
        } else if from >= self.settings.connections_per_address {
            Some(&self.counters.refused_address)
        } else {
            None
        };
        if let Some(counter) = full {
            counter.one();
            // The other side is to notice at once, and nothing is to be kept for it.
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            return;
        }
        door.open += 1;
        door.addresses.insert(address, from + 1);
        let tls = door.tls.clone();
        let id = loop {
            let id = ConnId::accepted_at(self.doors[index].listener, self.next);
            self.next = self.next.wrapping_add(1);
            if !self.conns.contains_key(&id) {
                break id;
            }
        };
        self.counters.accepted.one();
        let link = self.open(id, Some((index, address)));
        let with_tls = tls.is_some();
        let end = self.tasks.spawn(stream::accepted(link, stream, remote, tls));
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.end = Some(end);
        }
        if with_tls && let Some(displaced) = self.unfinished.add(id, address, self.settings.handshakes) {
            self.counters.tls_displaced.one();
            let end = self.forget(displaced).and_then(|conn| conn.end);
            end.inspect(AbortHandle::abort);
        }
    }

    /// Makes both ends of what binds a connection to the driver.
    fn open(&mut self, id: ConnId, door: Option<(usize, IpAddr)>) -> DriverHandle {
        let (orders, taken) = unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let known = door.is_none();
        let turns = door.map(|_| self.turns.clone());
        self.conns.insert(id, Conn { orders, queued: Arc::clone(&queued), door, known, end: None });
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
        let event = match &note {
            Note::Connected { remote, local, certificate } => {
                conn.known = true;
                self.unfinished.remove(id);
                let (remote, local, certificate) = (*remote, *local, certificate.as_deref());
                match conn.door.and_then(|(index, _)| self.doors.get(index)) {
                    Some(door) => {
                        StreamEvent::Accepted { listener: door.listener, remote, local, certificate }
                    }
                    None => StreamEvent::Connected { remote, local, certificate },
                }
            }
            Note::Data(data) => StreamEvent::Data(data),
            Note::Writable => StreamEvent::Writable,
            Note::Closed(reason) => {
                let known = conn.known;
                self.forget(id);
                if !known {
                    return false;
                }
                StreamEvent::Closed(*reason)
            }
        };
        node.machine().handle(now, Input::Stream { conn: id, event });
        true
    }

    /// Tells the machine of an end that the driver itself made; false if there is none.
    pub(crate) fn say_closed<N: Role>(&mut self, node: &mut N, now: Instant) -> bool {
        let Some((conn, reason)) = self.closed.pop_front() else { return false };
        node.machine().handle(now, Input::Stream { conn, event: StreamEvent::Closed(reason) });
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
        let Some(conn) = self.conns.get(&id) else { return self.counters.unknown_connection.one() };
        if let Order::Data(data) = &order {
            let queued = conn.queued.fetch_add(data.len(), Ordering::Relaxed);
            if queued > self.settings.stream_queue {
                self.counters.slow_peers.one();
                let _ = conn.orders.send(Order::Abort);
                self.forget(id);
                self.closed.push_back((id, CloseReason::Reset));
                return;
            }
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
            Carriage::Refused => return self.refuse(id),
        };
        if self.conns.contains_key(&id) {
            return self.refuse(id);
        }
        let link = self.open(id, None);
        self.tasks.spawn(stream::connect(link, local, remote, tls));
    }

    fn refuse(&mut self, id: ConnId) {
        self.counters.connect_failures.one();
        self.closed.push_back((id, CloseReason::Refused));
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
