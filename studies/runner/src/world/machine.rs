//! Hosting protocol machines on simulated hosts: deliveries become inputs, outputs become operations.

use super::Report;
use std::net::{IpAddr, SocketAddr};
use usher_core::collections::HashMap;
use usher_core::{
    CloseReason, ConnId, Host, Input, Job, ListenerId, Machine, MessageEvent, MessageOp, Path, PortId,
    SocketId, StreamEvent, StreamOp, Transmit, Work,
};
use usher_sim::sctp::Message;
use usher_sim::{Context, Delivery, HostId, IpVersion, MessageDelivery, Payload, StreamDelivery};

/// A simulated host's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostAddress {
    pub(super) host: HostId,
    pub(super) version: IpVersion,
}

impl HostAddress {
    /// The address of a host's port.
    pub(super) fn address(self, host: HostId, port: u16) -> SocketAddr {
        SocketAddr::new(host.ip(self.version), port)
    }

    /// The hosts of a connection's addresses, this one's without a choice.
    fn ends(self, local: Option<IpAddr>, remote: SocketAddr) -> Option<(HostId, HostId)> {
        let from = match local {
            Some(local) => HostId::of_ip(local)?,
            None => self.host,
        };
        Some((from, HostId::of_ip(remote.ip())?))
    }
}

/// What the machine and the simulator call the same thing: the simulator counts.
#[derive(Debug)]
struct Numbers<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Copy + Eq + std::hash::Hash> Numbers<T> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::default() }
    }
    /// The simulator's number; a new one for what had none.
    fn number(&mut self, id: T) -> u32 {
        *self.numbers.entry(id).or_insert_with(|| {
            self.all.push(id);
            (self.all.len() - 1) as u32
        })
    }
    /// The simulator's number, if it has one.
    fn known(&self, id: T) -> Option<u32> {
        self.numbers.get(&id).copied()
    }
    fn id(&self, number: u32) -> Option<T> {
        self.all.get(number as usize).copied()
    }
    /// What has this number is over: the machine may give its id again, and may have done so already.
    fn forget(&mut self, number: u32) {
        if let Some(id) = self.id(number)
            && self.known(id) == Some(number)
        {
            self.numbers.remove(&id);
        }
    }
}

/// Where a machine lives, with its sockets and connections.
#[derive(Debug)]
pub(super) struct Endpoint {
    at: HostAddress,
    /// Whose the connections and associations are that others open.
    listener: ListenerId,
    sockets: Numbers<SocketId>,
    opened: Numbers<ConnId>,
    buf: Vec<u8>,
}

/// What a machine says or asks.
#[derive(Debug)]
pub(super) enum EventOrJob<M: Machine> {
    Event(M::Event),
    Job(Job<M::Job>),
}

impl Endpoint {
    pub(super) fn new(at: HostAddress) -> Self {
        Self {
            at,
            listener: ListenerId::default(),
            sockets: Numbers::new(),
            opened: Numbers::new(),
            buf: Vec::new(),
        }
    }
    /// The same, accepting connections and associations by this listener.
    pub(super) fn accepting(self, listener: ListenerId) -> Self {
        Self { listener, ..self }
    }
    /// The simulator's number of a socket.
    pub(super) fn socket(&mut self, socket: SocketId) -> u32 {
        self.sockets.number(socket)
    }

    /// The machine's id of a connection or association, and whether the other side began it.
    fn conn(&self, sim: ConnId) -> ConnId {
        match sim.is_accepted() {
            true => ConnId::accepted_at(self.listener, sim.n),
            false => self.opened.id(sim.n).unwrap_or(sim),
        }
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
        if !sim.is_accepted() {
            self.opened.forget(sim.n);
        }
    }

    /// Feeds a delivery to a machine.
    pub(super) fn feed<M: Machine>(
        &mut self,
        ctx: &Context<'_, Report>,
        machine: &mut M,
        delivery: &Delivery,
    ) {
        let (now, at, listener) = (ctx.now(), self.at, self.listener);
        match delivery {
            Delivery::Start | Delivery::Link { .. } => {}
            Delivery::Timer => machine.handle(now, Input::Timeout),
            Delivery::Datagram { socket, from, from_port, at: to, payload } => {
                let path = Path {
                    // Datagrams come to sockets that were bound or sent by.
                    socket: self.sockets.id(*socket).unwrap_or_default(),
                    local: at.address(*to, 0),
                    remote: at.address(*from, *from_port),
                };
                machine.handle(now, Input::Datagram { path, data: payload.as_slice() });
            }
            Delivery::Stream { conn: sim, event } => {
                let conn = self.conn(*sim);
                let event = match event {
                    StreamDelivery::Connected { remote, remote_port, .. } => {
                        let (remote, local, certificate) = (at.address(*remote, *remote_port), None, None);
                        match sim.is_accepted() {
                            true => StreamEvent::Accepted { listener, remote, local, certificate },
                            false => StreamEvent::Connected { remote, local, certificate },
                        }
                    }
                    StreamDelivery::Data(payload) => StreamEvent::Data(payload.as_slice()),
                    StreamDelivery::Closed(reason) => {
                        self.forget(*sim);
                        StreamEvent::Closed(*reason)
                    }
                };
                machine.handle(now, Input::Stream { conn, event });
            }
            Delivery::Message { assoc: sim, event } => {
                let assoc = self.conn(*sim);
                let event = match event {
                    MessageDelivery::Up { remote, remote_port, streams, .. } => {
                        let (remote, streams) = (at.address(*remote, *remote_port), *streams);
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

    /// Carries out what a machine decided, in its order, and arms its timer; what it says and asks is heard by `hear`.
    pub(super) fn drain<'c, M: Machine>(
        &mut self,
        ctx: &mut Context<'c, Report>,
        machine: &mut M,
        hear: impl FnMut(&mut Context<'c, Report>, &mut M, EventOrJob<M>),
    ) {
        let mut buf = std::mem::take(&mut self.buf);
        Hosted { endpoint: self, ctx, machine, hear }.drain(&mut buf);
        self.buf = buf;
        ctx.set_timer(machine.poll_timeout());
    }

    /// Does one thing that a machine wants done. A datagram's source is the address at which its socket is bound.
    pub(super) fn transmit<M: Machine>(
        &mut self,
        ctx: &mut Context<'_, Report>,
        machine: &mut M,
        transmit: Transmit,
        buf: &[u8],
    ) {
        match transmit {
            Transmit::Datagram { path } => {
                if let Some(to) = HostId::of_ip(path.remote.ip()) {
                    let socket = self.sockets.number(path.socket);
                    ctx.send_datagram(socket, to, path.remote.port(), Payload::copied(buf));
                }
            }
            Transmit::Stream { conn, op } => self.stream(ctx, machine, conn, op, buf),
            Transmit::Frame { port } => ctx.send_frame(port.0, Payload::copied(buf)),
            Transmit::Message { assoc, op } => self.message(ctx, machine, assoc, op, buf),
        }
    }

    fn message<M: Machine>(
        &mut self,
        ctx: &mut Context<'_, Report>,
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

    fn stream<M: Machine>(
        &mut self,
        ctx: &mut Context<'_, Report>,
        machine: &mut M,
        conn: ConnId,
        op: StreamOp,
        buf: &[u8],
    ) {
        if let StreamOp::Connect { local, remote } = op {
            match self.at.ends(local, remote) {
                Some((from, to)) => {
                    let sim = ConnId::opened(self.opened.number(conn));
                    ctx.connect_from(sim, from, to, remote.port());
                }
                None => {
                    let event = StreamEvent::Closed(CloseReason::Refused);
                    machine.handle(ctx.now(), Input::Stream { conn, event });
                }
            }
            return;
        }
        let Some(sim) = self.simulated(conn) else { return };
        match op {
            StreamOp::Connect { .. } => {}
            StreamOp::Data => ctx.write(sim, Payload::copied(buf)),
            StreamOp::Credit(bytes) => ctx.credit(sim, bytes),
            StreamOp::Shutdown => ctx.shutdown(sim),
            StreamOp::Abort => {
                ctx.abort(sim);
                self.forget(sim);
            }
        }
    }
}

/// A machine on its endpoint while it is drained.
struct Hosted<'a, 'c, M, F> {
    endpoint: &'a mut Endpoint,
    ctx: &'a mut Context<'c, Report>,
    machine: &'a mut M,
    hear: F,
}

impl<'c, M: Machine, F: FnMut(&mut Context<'c, Report>, &mut M, EventOrJob<M>)> Host
    for Hosted<'_, 'c, M, F>
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
mod tests {
    use super::*;

    /// Found by reading: a late end of an old connection took the entry of the one that had its id by then.
    #[test]
    fn the_end_of_an_old_connection_leaves_its_successor_alone() {
        let mut numbers = Numbers::new();
        let id = ConnId::opened(7);
        let old = numbers.number(id);
        numbers.forget(old);
        assert_eq!((numbers.known(id), numbers.id(old)), (None, Some(id)));
        let new = numbers.number(id);
        assert_ne!(old, new);
        numbers.forget(old);
        assert_eq!(numbers.known(id), Some(new));
        numbers.forget(new);
        assert_eq!(numbers.known(id), None);
    }
}
