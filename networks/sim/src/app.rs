//! The interface of simulated hosts: the [`Application`] trait, its deliveries and its operations.

use crate::addr::HostId;
use crate::packet::{Payload, TransitPacket};
use crate::radio::{LinkCommand, LinkEvent};
use crate::sctp::UserMessage;
use usher_core::{AssocId, CloseReason, ConnId, Instant, MachineOwnerPath, WallTime, WorkRecord};
use usher_esp::{IpsecOperation, SecurityPolicyId, plane};

/// A delivery of the simulator to an application.
#[derive(Clone, Debug)]
pub enum AppDelivery {
    /// The simulation begins.
    Start,
    /// The time of the last [`AppContext::set_timer`] has come.
    Timer,
    /// A datagram arrived.
    Datagram {
        /// The application's socket.
        socket: u32,
        /// Sender.
        from: HostId,
        /// Sender's port.
        from_port: u16,
        /// The destination address: the host's own or that of one of its interfaces.
        destination: HostId,
        /// Destination port.
        port: u16,
        /// Payload of the datagram.
        payload: Payload,
    },
    /// An event of a TCP connection.
    Stream {
        /// The application's connection.
        conn: ConnId,
        /// The event.
        event: TcpStreamEvent,
    },
    /// An event of an SCTP association.
    Message {
        /// The application's association.
        assoc: AssocId,
        /// The event.
        event: SctpAssociationEvent,
    },
    /// An event of the link of a station of a cell or basic service set.
    Link {
        /// The host that observes it: the station itself, or its base station or access point.
        host: HostId,
        /// The station.
        station: HostId,
        /// The event.
        event: LinkEvent,
    },
    /// A frame arrived.
    Frame {
        /// The host's port that received it (links in the order of their creation).
        port: u32,
        /// The frame.
        payload: Payload,
    },
    /// A packet in transit through the host. It continues only by [`AppContext::forward_packet`].
    Transit {
        /// The host's port that received it.
        port: u32,
        /// The packet.
        packet: TransitPacket,
    },
    /// A packet waits for an SA that is missing ([`AppContext::update_protection`]).
    Acquire {
        /// The policy that requires the SA.
        policy: SecurityPolicyId,
    },
    /// The result of [`AppContext::query_owner`].
    Owner {
        /// The token of the query.
        token: u64,
        /// The application that owns the connection, by its number in the order of creation; `None` if there is no such
        /// connection.
        app: Option<u32>,
    },
}

/// An event of a TCP connection.
#[derive(Clone, Debug)]
pub enum TcpStreamEvent {
    /// The connection is established.
    Connected {
        /// The peer.
        remote: HostId,
        /// The peer's port.
        remote_port: u16,
        /// The local address: the host or one of its interfaces.
        local: HostId,
        /// Local port.
        local_port: u16,
    },
    /// The next octets, in order.
    Data(Payload),
    /// The connection is closed.
    Closed(CloseReason),
}

/// An event of an SCTP association.
#[derive(Clone, Debug)]
pub enum SctpAssociationEvent {
    /// The association is established.
    Up {
        /// The peer.
        remote: HostId,
        /// The peer's port.
        remote_port: u16,
        /// Local port.
        local_port: u16,
        /// Negotiated outbound streams.
        streams: u16,
    },
    /// A whole user message.
    Data {
        /// Its stream.
        stream: u16,
        /// Its payload protocol identifier.
        ppid: u32,
        /// The message.
        payload: Payload,
    },
    /// The association is closed.
    Down(CloseReason),
}

/// An application's connection or association in one word. Operations carry it and connections store it. It names
/// no application: the ids are an application's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppConnectionId(u32);

impl AppConnectionId {
    const ACCEPTED: u32 = 1 << 31;

    pub(crate) const fn for_accepted_connection(n: u32) -> Self {
        Self(n | Self::ACCEPTED)
    }
    pub(crate) const fn is_accepted(self) -> bool {
        self.0 & Self::ACCEPTED != 0
    }
    pub(crate) const fn number(self) -> u32 {
        self.0 & !Self::ACCEPTED
    }
}

impl From<ConnId> for AppConnectionId {
    fn from(id: ConnId) -> Self {
        debug_assert!(id.owner == MachineOwnerPath::HOSTED && id.n < Self::ACCEPTED, "{id:?}");
        if id.is_accepted() { Self::for_accepted_connection(id.n) } else { Self(id.n) }
    }
}

impl From<AppConnectionId> for ConnId {
    fn from(id: AppConnectionId) -> Self {
        if id.is_accepted() {
            Self::nth_accepted_connection(id.number())
        } else {
            Self::nth_opened_connection(id.number())
        }
    }
}

/// An operation of an application's handler, in the order of its calls. The network that hosts the application
/// applies it: in the simulator after the processor time of the work.
#[derive(Debug)]
pub enum AppOperation<R> {
    /// [`AppContext::send_datagram`].
    Datagram {
        /// The source socket.
        socket: u32,
        /// The destination host.
        to: HostId,
        /// The destination port.
        port: u16,
        /// Payload of the datagram.
        payload: Payload,
    },
    /// [`AppContext::connect`].
    Connect {
        /// The connection's id.
        conn: AppConnectionId,
        /// The source address; `None` for the host's own.
        from: Option<HostId>,
        /// The destination host.
        to: HostId,
        /// The destination port.
        port: u16,
    },
    /// [`AppContext::write`].
    Write {
        /// The connection.
        conn: AppConnectionId,
        /// The data.
        payload: Payload,
    },
    /// [`AppContext::associate`].
    Associate {
        /// The association's id.
        assoc: AppConnectionId,
        /// The source address; `None` for the host's own.
        from: Option<HostId>,
        /// The destination host.
        to: HostId,
        /// The destination port.
        port: u16,
        /// Requested outbound streams.
        streams: u16,
    },
    /// [`AppContext::send_message`].
    Send {
        /// The association.
        assoc: AppConnectionId,
        /// The message.
        message: UserMessage,
    },
    /// [`AppContext::grant_credit`].
    Credit {
        /// The connection.
        conn: AppConnectionId,
        /// Further octets that may be read.
        bytes: u32,
    },
    /// [`AppContext::shutdown`].
    Shutdown {
        /// The connection or association.
        conn: AppConnectionId,
    },
    /// [`AppContext::abort`].
    Abort {
        /// The connection or association.
        conn: AppConnectionId,
    },
    /// [`AppContext::send_frame`].
    Frame {
        /// The port of the host.
        port: u32,
        /// The frame, with its Ethernet header.
        payload: Payload,
    },
    /// [`AppContext::link_command`].
    Link {
        /// The station's host or interface.
        host: HostId,
        /// The command.
        command: LinkCommand,
    },
    /// [`AppContext::query_owner`].
    Owner {
        /// The token of the query.
        token: u64,
        /// The local end of the connection.
        local: (HostId, u16),
        /// The remote end.
        remote: (HostId, u16),
    },
    /// [`AppContext::forward_packet`].
    Forward(TransitPacket),
    /// [`AppContext::name_session`].
    Session {
        /// The port of the host whose link it is.
        port: u32,
        /// SESSION_ID.
        number: u16,
    },
    /// [`AppContext::begin_protection`].
    Protection(Box<plane::EspDataPlaneConfig>),
    /// [`AppContext::update_protection`].
    Protect(Box<IpsecOperation>),
    /// [`AppContext::set_timer`].
    Timer(Option<Instant>),
    /// [`AppContext::report`].
    Report(R),
}

/// The target of operations that keep their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderedOperationTarget {
    /// A connection or association.
    Connection(AppConnectionId),
    /// The IPsec databases of the host.
    Protection,
    /// The link of a station.
    Link(HostId),
    /// The application's timer; the last setting counts.
    Timer,
}

impl<R> AppOperation<R> {
    /// Returns the target; `None` if the order has no meaning. That is so for datagrams, frames and packets, which
    /// the network may reorder too.
    pub(crate) const fn ordered_target(&self) -> Option<OrderedOperationTarget> {
        Some(match self {
            Self::Connect { conn, .. }
            | Self::Write { conn, .. }
            | Self::Credit { conn, .. }
            | Self::Shutdown { conn }
            | Self::Abort { conn } => OrderedOperationTarget::Connection(*conn),
            Self::Associate { assoc, .. } | Self::Send { assoc, .. } => {
                OrderedOperationTarget::Connection(*assoc)
            }
            Self::Protection(_) | Self::Protect(_) => OrderedOperationTarget::Protection,
            Self::Link { host: at, .. } => OrderedOperationTarget::Link(*at),
            Self::Timer(_) => OrderedOperationTarget::Timer,
            Self::Datagram { .. }
            | Self::Frame { .. }
            | Self::Forward(_)
            | Self::Session { .. }
            | Self::Owner { .. }
            | Self::Report(_) => return None,
        })
    }
}

/// The interface of a handler to its host. Operations take effect after the handler has returned and its charged
/// work has passed on the host's processor.
#[derive(Debug)]
pub struct AppContext<'a, R> {
    pub(crate) now: Instant,
    pub(crate) epoch: WallTime,
    pub(crate) ops: &'a mut Vec<AppOperation<R>>,
    pub(crate) work: &'a mut Vec<WorkRecord>,
}

impl<'a, R> AppContext<'a, R> {
    /// Creates a context, for a network that hosts applications. Operations are appended to `ops` and charged work to
    /// `work`. `epoch` is the wall time at [`Instant::ZERO`].
    pub const fn new(
        now: Instant,
        epoch: WallTime,
        ops: &'a mut Vec<AppOperation<R>>,
        work: &'a mut Vec<WorkRecord>,
    ) -> Self {
        Self { now, epoch, ops, work }
    }
    /// Appends an operation. The closure writes it in place: a copy would stall the processor.
    #[inline]
    fn push_operation(&mut self, op: impl FnOnce() -> AppOperation<R>) {
        self.ops.extend(std::iter::once_with(op));
    }
    /// Returns the time at which the handler runs.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// Returns the wall time at [`Instant::ZERO`].
    pub fn epoch(&self) -> WallTime {
        self.epoch
    }
    /// Returns the wall time.
    pub fn wall_time(&self) -> WallTime {
        self.now.to_wall_time(self.epoch)
    }
    /// Sends a datagram from one of the application's sockets. A new socket number gets an ephemeral port.
    pub fn send_datagram(&mut self, socket: u32, to: HostId, port: u16, payload: Payload) {
        self.push_operation(|| AppOperation::Datagram { socket, to, port, payload });
    }
    /// Opens a TCP connection with an id that the application chooses ([`ConnId::nth_opened_connection`]).
    pub fn connect(&mut self, conn: ConnId, to: HostId, port: u16) {
        self.push_operation(|| AppOperation::Connect { conn: conn.into(), from: None, to, port });
    }
    /// As [`Self::connect`], from the host's own address or that of one of its interfaces. Other addresses are
    /// refused.
    pub fn connect_from(&mut self, conn: ConnId, from: HostId, to: HostId, port: u16) {
        self.push_operation(|| AppOperation::Connect { conn: conn.into(), from: Some(from), to, port });
    }
    /// Forwards a packet in transit ([`AppDelivery::Transit`]).
    pub fn forward_packet(&mut self, packet: TransitPacket) {
        self.push_operation(|| AppOperation::Forward(packet));
    }
    /// Sets the PPPoE SESSION_ID of the link at this port. Captures of a link with this framing show it.
    pub fn name_session(&mut self, port: u32, number: u16) {
        self.push_operation(|| AppOperation::Session { port, number });
    }
    /// Writes to a TCP connection; one call is one write to the socket.
    pub fn write(&mut self, conn: ConnId, payload: Payload) {
        self.push_operation(|| AppOperation::Write { conn: conn.into(), payload });
    }
    /// Opens an SCTP association, with this number of outbound streams. The application chooses the id, distinct from
    /// those of its TCP connections.
    pub fn associate(&mut self, assoc: AssocId, to: HostId, port: u16, streams: u16) {
        self.push_operation(|| AppOperation::Associate {
            assoc: assoc.into(),
            from: None,
            to,
            port,
            streams,
        });
    }
    /// As [`Self::associate`], from the host's own address or that of one of its interfaces. Other addresses are
    /// refused.
    pub fn associate_from(&mut self, assoc: AssocId, from: HostId, to: HostId, port: u16, streams: u16) {
        self.push_operation(|| AppOperation::Associate {
            assoc: assoc.into(),
            from: Some(from),
            to,
            port,
            streams,
        });
    }
    /// Sends a user message on an SCTP association.
    pub fn send_message(&mut self, assoc: AssocId, message: UserMessage) {
        self.push_operation(|| AppOperation::Send { assoc: assoc.into(), message });
    }
    /// Allows the connection to deliver this many more octets. The first call ends automatic reading of the
    /// connection, which is the default.
    pub fn grant_credit(&mut self, conn: ConnId, bytes: u32) {
        self.push_operation(|| AppOperation::Credit { conn: conn.into(), bytes });
    }
    /// Closes a TCP connection or an SCTP association gracefully.
    pub fn shutdown(&mut self, conn: ConnId) {
        self.push_operation(|| AppOperation::Shutdown { conn: conn.into() });
    }
    /// Resets a TCP connection or aborts an SCTP association.
    pub fn abort(&mut self, conn: ConnId) {
        self.push_operation(|| AppOperation::Abort { conn: conn.into() });
    }
    /// Sends a frame out of a port of the host.
    pub fn send_frame(&mut self, port: u32, payload: Payload) {
        self.push_operation(|| AppOperation::Frame { port, payload });
    }
    /// Gives a command to a link. `at` is the host or its interface that is a station of a cell or basic service set.
    pub fn link_command(&mut self, at: HostId, command: LinkCommand) {
        self.push_operation(|| AppOperation::Link { host: at, command });
    }
    /// Queries the owner of the TCP connection with these ends; [`AppDelivery::Owner`] brings the result. The local
    /// end is the host or one of its interfaces. A host's kernel knows only its own connections.
    pub fn query_owner(&mut self, token: u64, local: (HostId, u16), remote: (HostId, u16)) {
        self.push_operation(|| AppOperation::Owner { token, local, remote });
    }
    /// Starts IPsec (RFC 4301) for all packets of the host's own address. This application maintains the databases by
    /// [`Self::update_protection`]. `otherwise` applies to packets without a policy.
    pub fn begin_protection(&mut self, config: plane::EspDataPlaneConfig) {
        self.ops.push(AppOperation::Protection(config.into()));
    }
    /// Changes the SAs and policies of the host after [`Self::begin_protection`]. SAs are of transport mode. A packet
    /// whose policy has no SA waits, and [`AppDelivery::Acquire`] announces it.
    pub fn update_protection(&mut self, operation: IpsecOperation) {
        self.ops.push(AppOperation::Protect(operation.into()));
    }
    /// Sets the time of the next [`AppDelivery::Timer`] and replaces the last setting; `None` cancels it.
    pub fn set_timer(&mut self, at: Option<Instant>) {
        self.push_operation(|| AppOperation::Timer(at));
    }
    /// Sends a report to the simulation's observer.
    pub fn report(&mut self, report: R) {
        self.push_operation(|| AppOperation::Report(report));
    }
    /// Charges work to the host's processor.
    pub fn charge_work(&mut self, work: WorkRecord) {
        self.work.push(work);
    }
    /// Returns the work charged in this delivery so far.
    pub fn charged_work(&self) -> &[WorkRecord] {
        self.work
    }
}

/// A program on a simulated host. One type serves all hosts of a simulation (an enum of roles), so that the inner
/// loop needs no virtual calls.
pub trait Application {
    /// A report to the observer.
    type Report;
    /// Handles one delivery.
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, Self::Report>, delivery: AppDelivery);
}

/// Receives the reports of applications when they take effect.
pub trait ReportObserver<R> {
    /// Handles a report of application number `app` (in the order of creation).
    fn handle_report(&mut self, now: Instant, app: u32, report: R);
    /// True if the run may end early; checked after each report.
    fn is_done(&self) -> bool {
        false
    }
}
