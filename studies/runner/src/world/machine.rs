//! Hosting protocol machines on simulated hosts: deliveries become inputs, outputs become operations.

use super::tls::TlsConnections;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_core::collections::HashMap;
use usher_core::timer::earliest;
use usher_core::{
    CloseReason, ConnId, Host, Input, Instant, Job, ListenerId, Machine, MessageEvent, MessageOp, Path,
    PortId, SocketId, StreamEvent, StreamOp, Transmit, Work,
};
use usher_crypto::tls::{ClientConfig, ServerConfig, Trust};
use usher_sim::sctp::Message;
use usher_sim::{Addresses, Context, Delivery, HostId, MessageDelivery, Payload, StreamDelivery};

/// A simulated host's address, and those of all others.
#[derive(Clone, Debug)]
pub struct HostAddress {
    /// The host.
    pub host: HostId,
    /// Where everybody is.
    pub addresses: Arc<Addresses>,
}

impl HostAddress {
    /// The address of a host's port.
    pub fn address(&self, host: HostId, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses.of(host), port)
    }

    /// The hosts of a connection's addresses, this one's without a choice.
    pub(super) fn ends(&self, local: Option<IpAddr>, remote: SocketAddr) -> Option<(HostId, HostId)> {
        let from = match local {
            Some(local) => self.addresses.host(local)?,
            None => self.host,
        };
        Some((from, self.addresses.host(remote.ip())?))
    }
}

/// What the machine and the simulator call the same thing: the simulator counts.
#[derive(Debug)]
struct Numbers<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
    /// What was asked for last, mostly what is asked for next.
    recent: Option<(T, u32)>,
}

impl<T: Copy + Eq + std::hash::Hash> Numbers<T> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::default(), recent: None }
    }
    /// The simulator's number; a new one for what had none.
    fn number(&mut self, id: T) -> u32 {
        if let Some((recent, number)) = self.recent
            && recent == id
        {
            return number;
        }
        let number = *self.numbers.entry(id).or_insert_with(|| {
            self.all.push(id);
            (self.all.len() - 1) as u32
        });
        self.recent = Some((id, number));
        number
    }
    /// The simulator's number, if it has one.
    fn known(&self, id: T) -> Option<u32> {
        self.numbers.get(&id).copied()
    }
    fn id(&self, number: u32) -> Option<T> {
        self.all.get(number as usize).copied()
    }
    /// All are over.
    fn forget_all(&mut self) {
        self.numbers.clear();
        self.recent = None;
    }
    /// What has this number is over: the machine may give its id again, and may have done so already.
    fn forget(&mut self, number: u32) {
        if let Some(id) = self.id(number)
            && self.known(id) == Some(number)
        {
            self.numbers.remove(&id);
            self.recent = None;
        }
    }
}

/// Where a machine lives, with its sockets and connections.
#[derive(Debug)]
pub struct Endpoint {
    at: HostAddress,
    /// Whose the connections and associations are that others open at ports that are not named below.
    listener: ListenerId,
    /// By port of ours: whose they are, and their TLS.
    listeners: BTreeMap<u16, (ListenerId, Option<ServerConfig>)>,
    /// What of accepted connections was accepted by such a listener.
    accepted: BTreeMap<u32, ListenerId>,
    tls: TlsConnections,
    sockets: Numbers<SocketId>,
    opened: Numbers<ConnId>,
    buf: Vec<u8>,
}

/// What a machine says or asks.
#[derive(Debug)]
pub enum EventOrJob<M: Machine> {
    /// What it says.
    Event(M::Event),
    /// What it asks of a slow helper.
    Job(Job<M::Job>),
}

impl Endpoint {
    /// The endpoint of a host's machine. What others open is the machine's own.
    pub fn new(at: HostAddress) -> Self {
        Self {
            at,
            listener: ListenerId::default(),
            listeners: BTreeMap::new(),
            accepted: BTreeMap::new(),
            tls: TlsConnections::default(),
            sockets: Numbers::new(),
            opened: Numbers::new(),
            buf: Vec::new(),
        }
    }
    /// The same, accepting connections and associations by this listener.
    pub fn accepting(self, listener: ListenerId) -> Self {
        Self { listener, ..self }
    }
    /// Has what is accepted at this port be this listener's, with TLS inside of that.
    pub fn accept_at(&mut self, port: u16, listener: ListenerId, tls: Option<ServerConfig>) {
        self.listeners.insert(port, (listener, tls));
    }
    /// The same, with connections that it opens to these addresses inside TLS.
    pub fn connecting(self, outgoing: BTreeMap<SocketAddr, ClientConfig>) -> Self {
        Self { tls: TlsConnections::to(outgoing), ..self }
    }
    /// The simulator's number of a socket.
    pub fn socket(&mut self, socket: SocketId) -> u32 {
        self.sockets.number(socket)
    }

    /// The machine's id of a connection or association, and whether the other side began it.
    fn conn(&self, sim: ConnId) -> ConnId {
        match sim.is_accepted() {
            true => ConnId::accepted_at(self.listener_of(sim), sim.n),
            false => self.opened.id(sim.n).unwrap_or(sim),
        }
    }
    fn listener_of(&self, sim: ConnId) -> ListenerId {
        self.accepted.get(&sim.n).copied().unwrap_or(self.listener)
    }
    /// The simulator's; `None` for one that is over.
    fn simulated(&self, conn: ConnId) -> Option<ConnId> {
        match conn.is_accepted() {
            true => Some(ConnId::accepted(conn.n)),
            false => self.opened.known(conn).map(ConnId::opened),
        }
    }
    /// It is over.
    fn forget(&mut self, sim: ConnId) {
        if sim.is_accepted() {
            self.accepted.remove(&sim.n);
        } else {
            self.opened.forget(sim.n);
        }
    }
    /// All are over without a word.
    fn lose(&mut self) {
        self.accepted.clear();
        self.tls.lose();
        self.opened.forget_all();
    }
    /// One was accepted: whose it is, and whether it goes on inside TLS. False where it cannot.
    fn accept(&mut self, sim: ConnId, port: u16) -> bool {
        let Some((listener, tls)) = self.listeners.get(&port) else { return true };
        self.accepted.insert(sim.n, *listener);
        tls.as_ref().is_none_or(|tls| self.tls.begin(sim, Trust::Server(tls.clone())))
    }

    /// Feeds a delivery to a machine.
    pub fn feed<R, M: Machine>(&mut self, ctx: &mut Context<'_, R>, machine: &mut M, delivery: &Delivery) {
        let now = ctx.now();
        match delivery {
            Delivery::Start => {
                // A host that was off has lost its connections.
                self.lose();
                machine.set_epoch(now, ctx.epoch());
            }
            Delivery::Link { .. }
            | Delivery::Owner { .. }
            | Delivery::Acquire { .. }
            | Delivery::Transit { .. } => {}
            Delivery::Timer => {
                while let Some(sim) = self.tls.pop_overdue(now) {
                    let conn = self.conn(sim);
                    ctx.abort(sim);
                    self.forget(sim);
                    if let Some(reason) = self.tls.closed(sim, CloseReason::TimedOut) {
                        machine.handle(now, Input::Stream { conn, event: StreamEvent::Closed(reason) });
                    }
                }
                machine.handle(now, Input::Timeout);
            }
            Delivery::Datagram { socket, from, from_port, at, port, payload } => {
                let path = Path {
                    // Datagrams come to sockets that were bound or sent by.
                    socket: self.sockets.id(*socket).unwrap_or_default(),
                    local: self.at.address(*at, *port),
                    remote: self.at.address(*from, *from_port),
                };
                machine.handle(now, Input::Datagram { path, data: payload.as_slice() });
            }
            Delivery::Stream { conn: sim, event } => self.stream_event(ctx, machine, *sim, event),
            Delivery::Message { assoc: sim, event } => {
                if let (MessageDelivery::Up { local_port, .. }, true) = (event, sim.is_accepted()) {
                    // No association is inside TLS.
                    self.accept(*sim, *local_port);
                }
                let (assoc, listener) = (self.conn(*sim), self.listener_of(*sim));
                let event = match event {
                    MessageDelivery::Up { remote, remote_port, streams, .. } => {
                        let (remote, streams) = (self.at.address(*remote, *remote_port), *streams);
                        match sim.is_accepted() {
                            true => MessageEvent::Accepted { listener, remote, streams },
                            false => MessageEvent::Up { remote, streams },
                        }
                    }
                    MessageDelivery::Data { stream, ppid, payload } => {
                        MessageEvent::Data { stream: *stream, ppid: *ppid, data: payload.as_slice() }
                    }
                    MessageDelivery::Down(reason) => {
                        self.forget(*sim);
                        MessageEvent::Down(*reason)
                    }
                };
                machine.handle(now, Input::Message { assoc, event });
            }
            Delivery::Frame { port, payload } => {
                machine.handle(now, Input::Frame { port: PortId(*port), data: payload.as_slice() });
            }
        }
    }

    fn stream_event<R, M: Machine>(
        &mut self,
        ctx: &mut Context<'_, R>,
        machine: &mut M,
        sim: ConnId,
        event: &StreamDelivery,
    ) {
        if let (StreamDelivery::Connected { local_port, .. }, true) = (event, sim.is_accepted())
            && !self.accept(sim, *local_port)
        {
            return ctx.abort(sim);
        }
        let (conn, listener, tls) = (self.conn(sim), self.listener_of(sim), self.tls.has(sim));
        let event = match event {
            StreamDelivery::Connected { remote, remote_port, local, .. } => {
                let remote = self.at.address(*remote, *remote_port);
                let local = self.at.addresses.of(*local);
                if tls {
                    return self.tls.connected(
                        ctx,
                        sim,
                        (remote, local, sim.is_accepted().then_some(listener)),
                    );
                }
                let (local, certificate) = (Some(local), None);
                match sim.is_accepted() {
                    true => StreamEvent::Accepted { listener, remote, local, certificate },
                    false => StreamEvent::Connected { remote, local, certificate },
                }
            }
            StreamDelivery::Data(payload) if tls => {
                return self.tls.received(ctx, machine, (sim, conn), payload.as_slice());
            }
            StreamDelivery::Data(payload) => StreamEvent::Data(payload.as_slice()),
            StreamDelivery::Closed(reason) => {
                self.forget(sim);
                if !tls {
                    StreamEvent::Closed(*reason)
                } else if let Some(reason) = self.tls.closed(sim, *reason) {
                    StreamEvent::Closed(reason)
                } else {
                    return;
                }
            }
        };
        machine.handle(ctx.now(), Input::Stream { conn, event });
    }

    /// Carries out what a machine decided, in its order, and arms its timer; what it says and asks is heard by `hear`. Gives
    /// when the timer goes off, for who has further reasons to be woken and arms it anew.
    pub fn drain<'c, R, M: Machine>(
        &mut self,
        ctx: &mut Context<'c, R>,
        machine: &mut M,
        hear: impl FnMut(&mut Context<'c, R>, &mut M, EventOrJob<M>),
    ) -> Option<Instant> {
        let mut buf = std::mem::take(&mut self.buf);
        Hosted { endpoint: self, ctx, machine, hear }.drain(&mut buf);
        self.buf = buf;
        let next = earliest([machine.poll_timeout(), self.poll_timeout()]);
        ctx.set_timer(next);
        next
    }

    /// When it wants the timer, beside its machine.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.tls.next()
    }

    /// Does one thing that a machine wants done. A datagram's source is the address at which its socket is bound.
    pub fn transmit<R, M: Machine>(
        &mut self,
        ctx: &mut Context<'_, R>,
        machine: &mut M,
        transmit: Transmit,
        buf: &[u8],
    ) {
        match transmit {
            Transmit::Datagram { path } => {
                if let Some(to) = self.at.addresses.host(path.remote.ip()) {
                    let socket = self.sockets.number(path.socket);
                    ctx.send_datagram(socket, to, path.remote.port(), Payload::copied(buf));
                }
            }
            Transmit::Stream { conn, op } => self.stream(ctx, machine, conn, op, buf),
            Transmit::Frame { port } => ctx.send_frame(port.0, Payload::copied(buf)),
            Transmit::Message { assoc, op } => self.message(ctx, machine, assoc, op, buf),
        }
    }

    fn message<R, M: Machine>(
        &mut self,
        ctx: &mut Context<'_, R>,
        machine: &mut M,
        assoc: ConnId,
        op: MessageOp,
        buf: &[u8],
    ) {
        if let MessageOp::Connect { local, remote, streams } = op {
            match self.at.ends(local, remote) {
                Some((from, to)) => {
                    let sim = ConnId::opened(self.opened.number(assoc));
                    ctx.associate_from(sim, from, to, remote.port(), streams);
                }
                None => {
                    let event = MessageEvent::Down(CloseReason::Refused);
                    machine.handle(ctx.now(), Input::Message { assoc, event });
                }
            }
            return;
        }
        let Some(sim) = self.simulated(assoc) else { return };
        match op {
            MessageOp::Connect { .. } => {}
            MessageOp::Data { stream, ppid, unordered } => {
                ctx.send_message(sim, Message { stream, ppid, unordered, payload: Payload::copied(buf) });
            }
            MessageOp::Shutdown => ctx.shutdown(sim),
            MessageOp::Abort => {
                ctx.abort(sim);
                self.forget(sim);
            }
        }
    }

    fn stream<R, M: Machine>(
        &mut self,
        ctx: &mut Context<'_, R>,
        machine: &mut M,
        conn: ConnId,
        op: StreamOp,
        buf: &[u8],
    ) {
        if let StreamOp::Connect { local, remote } = op {
            match self.at.ends(local, remote) {
                Some((from, to)) => {
                    let sim = ConnId::opened(self.opened.number(conn));
                    let trust = self.tls.trust(remote);
                    if trust.is_none_or(|trust| self.tls.begin(sim, trust)) {
                        ctx.connect_from(sim, from, to, remote.port());
                    } else {
                        self.forget(sim);
                        let event = StreamEvent::Closed(CloseReason::Refused);
                        machine.handle(ctx.now(), Input::Stream { conn, event });
                    }
                }
                None => {
                    let event = StreamEvent::Closed(CloseReason::Refused);
                    machine.handle(ctx.now(), Input::Stream { conn, event });
                }
            }
            return;
        }
        let Some(sim) = self.simulated(conn) else { return };
        let tls = self.tls.has(sim);
        match op {
            StreamOp::Connect { .. } => {}
            StreamOp::Data if tls => self.tls.send(ctx, sim, buf),
            StreamOp::Data => ctx.write(sim, Payload::copied(buf)),
            // Records are read as they come.
            StreamOp::Credit(_) if tls => {}
            StreamOp::Credit(bytes) => ctx.credit(sim, bytes),
            StreamOp::Shutdown if tls => self.tls.shutdown(ctx, sim),
            StreamOp::Shutdown => ctx.shutdown(sim),
            StreamOp::Abort => {
                self.tls.abort(sim);
                ctx.abort(sim);
                self.forget(sim);
            }
        }
    }
}

/// A machine on its endpoint while it is drained.
struct Hosted<'a, 'c, R, M, F> {
    endpoint: &'a mut Endpoint,
    ctx: &'a mut Context<'c, R>,
    machine: &'a mut M,
    hear: F,
}

impl<'c, R, M: Machine, F: FnMut(&mut Context<'c, R>, &mut M, EventOrJob<M>)> Host
    for Hosted<'_, 'c, R, M, F>
{
    type Machine = M;

    fn machine(&mut self) -> &mut M {
        self.machine
    }
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>) {
        self.endpoint.transmit(self.ctx, self.machine, transmit, bytes);
    }
    fn event(&mut self, event: M::Event) {
        (self.hear)(self.ctx, self.machine, EventOrJob::Event(event));
    }
    fn work(&mut self, work: Work) {
        self.ctx.work(work);
    }
    fn job(&mut self, job: Job<M::Job>) {
        (self.hear)(self.ctx, self.machine, EventOrJob::Job(job));
    }
}

#[cfg(test)]
mod tests;
