//! Runs protocol machines on simulated hosts: deliveries become inputs, outputs become operations of the host.

use super::tls::TlsConnections;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use usher_core::collections::HashMap;
use usher_core::timer::earliest_deadline;
use usher_core::{
    CloseReason, ConnId, DatagramPath, Instant, JobRequest, LinkLayerPortId, ListenerId, Machine,
    MachineHost, MachineInput, MessageAssociationEvent, MessageAssociationOp, SocketId, StreamEvent,
    StreamOp, Transmit, WorkRecord,
};
use usher_crypto::tls::{ClientConfig, ServerConfig, TlsTrustConfig};
use usher_sim::sctp::UserMessage;
use usher_sim::{
    AppContext, AppDelivery, HostAddresses, HostId, Payload, SctpAssociationEvent, TcpStreamEvent,
};

/// The address of a simulated host, with those of all others.
#[derive(Clone, Debug)]
pub struct HostAddress {
    /// The host.
    pub host: HostId,
    /// The addresses of all hosts.
    pub addresses: Arc<HostAddresses>,
}

impl HostAddress {
    /// Returns the socket address of a host's port.
    pub fn socket_address(&self, host: HostId, port: u16) -> SocketAddr {
        SocketAddr::new(self.addresses.address_of(host), port)
    }

    /// Returns the hosts of a connection's addresses; this host if the local address is unspecified.
    pub(super) fn connection_hosts(
        &self,
        local: Option<IpAddr>,
        remote: SocketAddr,
    ) -> Option<(HostId, HostId)> {
        let from = match local {
            Some(local) => self.addresses.host_at(local)?,
            None => self.host,
        };
        Some((from, self.addresses.host_at(remote.ip())?))
    }
}

/// Maps a machine's ids to the simulator's consecutive numbers.
#[derive(Debug)]
struct MachineIdTable<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32>,
    /// The last lookup, which usually comes next again.
    recent: Option<(T, u32)>,
}

impl<T: Copy + Eq + std::hash::Hash> MachineIdTable<T> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::default(), recent: None }
    }
    /// Returns the simulator's number, a new one for a new id.
    fn assign_simulator_number(&mut self, id: T) -> u32 {
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
    /// Returns the simulator's number, if any.
    fn simulator_number(&self, id: T) -> Option<u32> {
        self.numbers.get(&id).copied()
    }
    fn find_machine_id(&self, number: u32) -> Option<T> {
        self.all.get(number as usize).copied()
    }
    /// Removes all entries.
    fn clear_id_numbers(&mut self) {
        self.numbers.clear();
        self.recent = None;
    }
    /// Removes the entry of a number only: the machine may already have reused its id.
    fn release_simulator_number(&mut self, number: u32) {
        if let Some(id) = self.find_machine_id(number)
            && self.simulator_number(id) == Some(number)
        {
            self.numbers.remove(&id);
            self.recent = None;
        }
    }
}

/// The place of a machine: its host, sockets and connections.
#[derive(Debug)]
pub struct MachineSockets {
    address: HostAddress,
    /// The listener of connections and associations from peers at all other ports.
    listener: ListenerId,
    /// Listeners by local port, with their TLS.
    listeners: BTreeMap<u16, (ListenerId, Option<ServerConfig>)>,
    /// The listeners of accepted connections.
    accepted: BTreeMap<u32, ListenerId>,
    tls: TlsConnections,
    sockets: MachineIdTable<SocketId>,
    opened: MachineIdTable<ConnId>,
    buf: Vec<u8>,
}

/// An event or a job of a machine.
#[derive(Debug)]
pub enum MachineEventOrJob<M: Machine> {
    /// An event.
    Event(M::Event),
    /// A job for a worker.
    Job(JobRequest<M::Job>),
}

impl MachineSockets {
    /// Creates the endpoint of a host's machine. The default listener accepts connections.
    pub fn new(at: HostAddress) -> Self {
        Self {
            address: at,
            listener: ListenerId::default(),
            listeners: BTreeMap::new(),
            accepted: BTreeMap::new(),
            tls: TlsConnections::default(),
            sockets: MachineIdTable::new(),
            opened: MachineIdTable::new(),
            buf: Vec::new(),
        }
    }
    /// Sets the listener of accepted connections and associations.
    pub fn with_listener(self, listener: ListenerId) -> Self {
        Self { listener, ..self }
    }
    /// Accepts connections at this port for this listener, optionally with TLS.
    pub fn register_listener(&mut self, port: u16, listener: ListenerId, tls: Option<ServerConfig>) {
        self.listeners.insert(port, (listener, tls));
    }
    /// Uses TLS for connections to these addresses.
    pub fn with_outgoing_tls(self, outgoing: BTreeMap<SocketAddr, ClientConfig>) -> Self {
        Self { tls: TlsConnections::with_outgoing(outgoing), ..self }
    }
    /// Returns the simulator's number of a socket.
    pub fn socket_number(&mut self, socket: SocketId) -> u32 {
        self.sockets.assign_simulator_number(socket)
    }

    /// Returns the machine's id of a connection or association, which tells whether the peer opened it.
    fn machine_connection(&self, sim: ConnId) -> ConnId {
        match sim.is_accepted() {
            true => ConnId::nth_accepted_at_listener(self.listener_of(sim), sim.n),
            false => self.opened.find_machine_id(sim.n).unwrap_or(sim),
        }
    }
    fn listener_of(&self, sim: ConnId) -> ListenerId {
        self.accepted.get(&sim.n).copied().unwrap_or(self.listener)
    }
    /// Returns the simulator's id; `None` if the connection has ended.
    fn simulated_connection(&self, conn: ConnId) -> Option<ConnId> {
        match conn.is_accepted() {
            true => Some(ConnId::nth_accepted_connection(conn.n)),
            false => self.opened.simulator_number(conn).map(ConnId::nth_opened_connection),
        }
    }
    /// Removes an ended connection.
    fn remove_connection(&mut self, sim: ConnId) {
        if sim.is_accepted() {
            self.accepted.remove(&sim.n);
        } else {
            self.opened.release_simulator_number(sim.n);
        }
    }
    /// Removes all connections without events.
    fn discard_all_connections(&mut self) {
        self.accepted.clear();
        self.tls.clear();
        self.opened.clear_id_numbers();
    }
    /// Assigns an accepted connection to its listener, and starts TLS if configured. False if TLS cannot start.
    fn accept_connection(&mut self, sim: ConnId, port: u16) -> bool {
        let Some((listener, tls)) = self.listeners.get(&port) else { return true };
        self.accepted.insert(sim.n, *listener);
        tls.as_ref().is_none_or(|tls| self.tls.start_tls(sim, TlsTrustConfig::Server(tls.clone())))
    }

    /// Passes a delivery to a machine.
    pub fn deliver_to_machine<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        delivery: &AppDelivery,
    ) {
        let now = ctx.now();
        match delivery {
            AppDelivery::Start => {
                // The host has started again, so its earlier connections are lost.
                self.discard_all_connections();
                machine.set_epoch(now, ctx.epoch());
            }
            AppDelivery::Link { .. }
            | AppDelivery::Owner { .. }
            | AppDelivery::Acquire { .. }
            | AppDelivery::Transit { .. } => {}
            AppDelivery::Timer => {
                while let Some(sim) = self.tls.pop_overdue_tls_connection(now) {
                    let conn = self.machine_connection(sim);
                    ctx.abort(sim);
                    self.remove_connection(sim);
                    if let Some(reason) = self.tls.handle_closed(sim, CloseReason::TimedOut) {
                        machine.handle_input(
                            now,
                            MachineInput::Stream { conn, event: StreamEvent::Closed(reason) },
                        );
                    }
                }
                machine.handle_input(now, MachineInput::Timeout);
            }
            AppDelivery::Datagram { socket, from, from_port, destination: at, port, payload } => {
                let path = DatagramPath {
                    // Datagrams arrive only at sockets that were bound or that sent.
                    socket: self.sockets.find_machine_id(*socket).unwrap_or_default(),
                    local: self.address.socket_address(*at, *port),
                    remote: self.address.socket_address(*from, *from_port),
                };
                machine.handle_input(now, MachineInput::Datagram { path, data: payload.as_slice() });
            }
            AppDelivery::Stream { conn: sim, event } => self.stream_event(ctx, machine, *sim, event),
            AppDelivery::Message { assoc: sim, event } => {
                if let (SctpAssociationEvent::Up { local_port, .. }, true) = (event, sim.is_accepted()) {
                    // An association has no TLS, so accept it as it is.
                    self.accept_connection(*sim, *local_port);
                }
                let (assoc, listener) = (self.machine_connection(*sim), self.listener_of(*sim));
                let event = match event {
                    SctpAssociationEvent::Up { remote, remote_port, streams, .. } => {
                        let (remote, streams) =
                            (self.address.socket_address(*remote, *remote_port), *streams);
                        match sim.is_accepted() {
                            true => MessageAssociationEvent::Accepted { listener, remote, streams },
                            false => MessageAssociationEvent::Up { remote, streams },
                        }
                    }
                    SctpAssociationEvent::Data { stream, ppid, payload } => MessageAssociationEvent::Data {
                        stream: *stream,
                        ppid: *ppid,
                        data: payload.as_slice(),
                    },
                    SctpAssociationEvent::Down(reason) => {
                        self.remove_connection(*sim);
                        MessageAssociationEvent::Down(*reason)
                    }
                };
                machine.handle_input(now, MachineInput::Message { assoc, event });
            }
            AppDelivery::Frame { port, payload } => {
                machine.handle_input(
                    now,
                    MachineInput::Frame { port: LinkLayerPortId(*port), data: payload.as_slice() },
                );
            }
        }
    }

    fn stream_event<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        sim: ConnId,
        event: &TcpStreamEvent,
    ) {
        if let (TcpStreamEvent::Connected { local_port, .. }, true) = (event, sim.is_accepted())
            && !self.accept_connection(sim, *local_port)
        {
            return ctx.abort(sim);
        }
        let (conn, listener, tls) =
            (self.machine_connection(sim), self.listener_of(sim), self.tls.contains(sim));
        let event = match event {
            TcpStreamEvent::Connected { remote, remote_port, local, .. } => {
                let remote = self.address.socket_address(*remote, *remote_port);
                let local = self.address.addresses.address_of(*local);
                if tls {
                    return self.tls.handle_connected(
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
            TcpStreamEvent::Data(payload) if tls => {
                return self.tls.handle_received(ctx, machine, (sim, conn), payload.as_slice());
            }
            TcpStreamEvent::Data(payload) => StreamEvent::Data(payload.as_slice()),
            TcpStreamEvent::Closed(reason) => {
                self.remove_connection(sim);
                if !tls {
                    StreamEvent::Closed(*reason)
                } else if let Some(reason) = self.tls.handle_closed(sim, *reason) {
                    StreamEvent::Closed(reason)
                } else {
                    return;
                }
            }
        };
        machine.handle_input(ctx.now(), MachineInput::Stream { conn, event });
    }

    /// Applies a machine's outputs in order and arms its timer. `hear` receives events and jobs. Returns the timeout,
    /// so that callers with further deadlines can arm the timer anew.
    pub fn drain_outputs<'c, R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'c, R>,
        machine: &mut M,
        hear: impl FnMut(&mut AppContext<'c, R>, &mut M, MachineEventOrJob<M>),
    ) -> Option<Instant> {
        let mut buf = std::mem::take(&mut self.buf);
        MachineOutputDrain { endpoint: self, ctx, machine, event_handler: hear }.drain_outputs(&mut buf);
        self.buf = buf;
        let next = earliest_deadline([machine.poll_timeout(), self.poll_timeout()]);
        ctx.set_timer(next);
        next
    }

    /// Returns the timeout of the endpoint itself, beside its machine's.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.tls.next_deadline()
    }

    /// Applies one transmission of a machine. A datagram's source is the address of its socket.
    pub fn apply_transmit<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        transmit: Transmit,
        buf: &[u8],
    ) {
        match transmit {
            Transmit::Datagram { path } => {
                if let Some(to) = self.address.addresses.host_at(path.remote.ip()) {
                    let socket = self.sockets.assign_simulator_number(path.socket);
                    ctx.send_datagram(socket, to, path.remote.port(), Payload::copy_from_slice(buf));
                }
            }
            Transmit::Stream { conn, op } => self.apply_stream_op(ctx, machine, conn, op, buf),
            Transmit::Frame { port } => ctx.send_frame(port.0, Payload::copy_from_slice(buf)),
            Transmit::Message { assoc, op } => self.apply_message_op(ctx, machine, assoc, op, buf),
        }
    }

    fn apply_message_op<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        assoc: ConnId,
        op: MessageAssociationOp,
        buf: &[u8],
    ) {
        if let MessageAssociationOp::Connect { local, remote, streams } = op {
            match self.address.connection_hosts(local, remote) {
                Some((from, to)) => {
                    let sim = ConnId::nth_opened_connection(self.opened.assign_simulator_number(assoc));
                    ctx.associate_from(sim, from, to, remote.port(), streams);
                }
                None => {
                    let event = MessageAssociationEvent::Down(CloseReason::Refused);
                    machine.handle_input(ctx.now(), MachineInput::Message { assoc, event });
                }
            }
            return;
        }
        let Some(sim) = self.simulated_connection(assoc) else { return };
        match op {
            MessageAssociationOp::Connect { .. } => {}
            MessageAssociationOp::Data { stream, ppid, unordered } => {
                ctx.send_message(
                    sim,
                    UserMessage { stream, ppid, unordered, payload: Payload::copy_from_slice(buf) },
                );
            }
            MessageAssociationOp::Shutdown => ctx.shutdown(sim),
            MessageAssociationOp::Abort => {
                ctx.abort(sim);
                self.remove_connection(sim);
            }
        }
    }

    fn apply_stream_op<R, M: Machine>(
        &mut self,
        ctx: &mut AppContext<'_, R>,
        machine: &mut M,
        conn: ConnId,
        op: StreamOp,
        buf: &[u8],
    ) {
        if let StreamOp::Connect { local, remote } = op {
            match self.address.connection_hosts(local, remote) {
                Some((from, to)) => {
                    let sim = ConnId::nth_opened_connection(self.opened.assign_simulator_number(conn));
                    let trust = self.tls.client_trust_for(remote);
                    if trust.is_none_or(|trust| self.tls.start_tls(sim, trust)) {
                        ctx.connect_from(sim, from, to, remote.port());
                    } else {
                        self.remove_connection(sim);
                        let event = StreamEvent::Closed(CloseReason::Refused);
                        machine.handle_input(ctx.now(), MachineInput::Stream { conn, event });
                    }
                }
                None => {
                    let event = StreamEvent::Closed(CloseReason::Refused);
                    machine.handle_input(ctx.now(), MachineInput::Stream { conn, event });
                }
            }
            return;
        }
        let Some(sim) = self.simulated_connection(conn) else { return };
        let tls = self.tls.contains(sim);
        match op {
            StreamOp::Connect { .. } => {}
            StreamOp::Data if tls => self.tls.send_data(ctx, sim, buf),
            StreamOp::Data => ctx.write(sim, Payload::copy_from_slice(buf)),
            // With TLS, the endpoint reads records at once, so it needs no flow control by credits.
            StreamOp::Credit(_) if tls => {}
            StreamOp::Credit(bytes) => ctx.grant_credit(sim, bytes),
            StreamOp::Shutdown if tls => self.tls.shutdown(ctx, sim),
            StreamOp::Shutdown => ctx.shutdown(sim),
            StreamOp::Abort => {
                self.tls.abort(sim);
                ctx.abort(sim);
                self.remove_connection(sim);
            }
        }
    }
}

/// A machine on its endpoint while its outputs are drained.
struct MachineOutputDrain<'a, 'c, R, M, F> {
    endpoint: &'a mut MachineSockets,
    ctx: &'a mut AppContext<'c, R>,
    machine: &'a mut M,
    event_handler: F,
}

impl<'c, R, M: Machine, F: FnMut(&mut AppContext<'c, R>, &mut M, MachineEventOrJob<M>)> MachineHost
    for MachineOutputDrain<'_, 'c, R, M, F>
{
    type Machine = M;

    fn machine(&mut self) -> &mut M {
        self.machine
    }
    fn transmit(&mut self, transmit: Transmit, bytes: &mut Vec<u8>) {
        self.endpoint.apply_transmit(self.ctx, self.machine, transmit, bytes);
    }
    fn handle_event(&mut self, event: M::Event) {
        (self.event_handler)(self.ctx, self.machine, MachineEventOrJob::Event(event));
    }
    fn record_work(&mut self, work: WorkRecord) {
        self.ctx.charge_work(work);
    }
    fn start_job(&mut self, job: JobRequest<M::Job>) {
        (self.event_handler)(self.ctx, self.machine, MachineEventOrJob::Job(job));
    }
}

#[cfg(test)]
mod tests;
