//! What runs on simulated hosts: the [`Application`] trait, what is delivered to it, and what it may do.

use crate::addr::HostId;
use crate::packet::{Payload, TransitPacket};
use crate::radio::{LinkCommand, LinkEvent};
use crate::sctp::UserMessage;
use usher_core::{AssocId, CloseReason, ConnId, Instant, OwnerPath, WallTime, WorkRecord};
use usher_esp::{IpsecOperation, PolicyId, plane};

/// What the simulator delivers to an application.
#[derive(Clone, Debug)]
pub enum AppDelivery {
    /// The simulation begins.
    Start,
    /// The time last given to [`AppContext::set_timer`] has come.
    Timer,
    /// A datagram arrived.
    Datagram {
        /// On this socket of the application.
        socket: u32,
        /// Sender.
        from: HostId,
        /// Sender's port.
        from_port: u16,
        /// The address that it was sent to: the host's own or that of one of its interfaces.
        destination: HostId,
        /// The port that it was sent to.
        port: u16,
        /// What it carried.
        payload: Payload,
    },
    /// Something happened on a TCP connection.
    Stream {
        /// Which of the application's connections.
        conn: ConnId,
        /// What happened.
        event: StreamDelivery,
    },
    /// Something happened on an SCTP association.
    Message {
        /// Which of the application's associations.
        assoc: AssocId,
        /// What happened.
        event: MessageDelivery,
    },
    /// The link of a station of a cell or basic service set has something to say.
    Link {
        /// What the application hears: the station itself, or its base station or access point.
        host: HostId,
        /// The station.
        station: HostId,
        /// What it says.
        event: LinkEvent,
    },
    /// A frame arrived.
    Frame {
        /// By this port of the host (links in the order of their creation).
        port: u32,
        /// The frame.
        payload: Payload,
    },
    /// A packet of others has come, on its way through the host; it goes on where the application says so
    /// ([`AppContext::forward_packet`]).
    Transit {
        /// By this port of the host.
        port: u32,
        /// The packet.
        packet: TransitPacket,
    },
    /// A packet needs an SA that is not there ([`AppContext::update_protection`]), and waits.
    Acquire {
        /// Of this policy.
        policy: PolicyId,
    },
    /// The answer to [`AppContext::query_owner`].
    Owner {
        /// Of the question.
        token: u64,
        /// The application whose connection it is, by its number in the order of creation; `None`: there is no such
        /// connection.
        app: Option<u32>,
    },
}

/// What happens on a TCP connection.
#[derive(Clone, Debug)]
pub enum StreamDelivery {
    /// It is up.
    Connected {
        /// The other side.
        remote: HostId,
        /// Its port.
        remote_port: u16,
        /// Our side: the host or an interface of it.
        local: HostId,
        /// Our port.
        local_port: u16,
    },
    /// The next bytes, in order.
    Data(Payload),
    /// It is over.
    Closed(CloseReason),
}

/// What happens on an SCTP association.
#[derive(Clone, Debug)]
pub enum MessageDelivery {
    /// It is up.
    Up {
        /// The other side.
        remote: HostId,
        /// Its port.
        remote_port: u16,
        /// Our port.
        local_port: u16,
        /// Outbound streams that were negotiated.
        streams: u16,
    },
    /// One whole user message.
    Data {
        /// The stream that it came on.
        stream: u16,
        /// Its payload protocol identifier.
        ppid: u32,
        /// The message.
        payload: Payload,
    },
    /// It is over.
    Down(CloseReason),
}

/// An application's connection or association in one word, which operations carry and connections remember: an application's
/// own ids have no owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalId(u32);

impl LocalId {
    const ACCEPTED: u32 = 1 << 31;

    pub(crate) const fn for_accepted(n: u32) -> Self {
        Self(n | Self::ACCEPTED)
    }
    pub(crate) const fn is_accepted(self) -> bool {
        self.0 & Self::ACCEPTED != 0
    }
    pub(crate) const fn number(self) -> u32 {
        self.0 & !Self::ACCEPTED
    }
}

impl From<ConnId> for LocalId {
    fn from(id: ConnId) -> Self {
        debug_assert!(id.owner == OwnerPath::HOSTED && id.n < Self::ACCEPTED, "{id:?}");
        if id.is_accepted() { Self::for_accepted(id.n) } else { Self(id.n) }
    }
}

impl From<LocalId> for ConnId {
    fn from(id: LocalId) -> Self {
        if id.is_accepted() { Self::new_accepted(id.number()) } else { Self::new_opened(id.number()) }
    }
}

/// What an application asked for while it handled a delivery, in the order in which it did. The network that hosts it
/// carries it out: in the simulator when the CPU time of the work has passed.
#[derive(Debug)]
pub enum AppOperation<R> {
    /// [`AppContext::send_datagram`].
    Datagram {
        /// From this socket of the application.
        socket: u32,
        /// To this host.
        to: HostId,
        /// To this port of it.
        port: u16,
        /// This.
        payload: Payload,
    },
    /// [`AppContext::connect`].
    Connect {
        /// The connection's id.
        conn: LocalId,
        /// From this address of the host; `None` is its own.
        from: Option<HostId>,
        /// To this host.
        to: HostId,
        /// To this port of it.
        port: u16,
    },
    /// [`AppContext::write`].
    Write {
        /// On this connection.
        conn: LocalId,
        /// This.
        payload: Payload,
    },
    /// [`AppContext::associate`].
    Associate {
        /// The association's id.
        assoc: LocalId,
        /// From this address of the host; `None` is its own.
        from: Option<HostId>,
        /// To this host.
        to: HostId,
        /// To this port of it.
        port: u16,
        /// Outbound streams that are asked for.
        streams: u16,
    },
    /// [`AppContext::send_message`].
    Send {
        /// On this association.
        assoc: LocalId,
        /// This.
        message: UserMessage,
    },
    /// [`AppContext::grant_credit`].
    Credit {
        /// Of this connection.
        conn: LocalId,
        /// So many more bytes.
        bytes: u32,
    },
    /// [`AppContext::shutdown`].
    Shutdown {
        /// This connection or association.
        conn: LocalId,
    },
    /// [`AppContext::abort`].
    Abort {
        /// This connection or association.
        conn: LocalId,
    },
    /// [`AppContext::send_frame`].
    Frame {
        /// Out of this port of the host.
        port: u32,
        /// This, with its Ethernet header.
        payload: Payload,
    },
    /// [`AppContext::link_command`].
    Link {
        /// Whose link.
        host: HostId,
        /// What it is to do.
        command: LinkCommand,
    },
    /// [`AppContext::query_owner`].
    Owner {
        /// The question's.
        token: u64,
        /// Our end of the connection.
        local: (HostId, u16),
        /// The other.
        remote: (HostId, u16),
    },
    /// [`AppContext::forward_packet`].
    Forward(TransitPacket),
    /// [`AppContext::name_session`].
    Session {
        /// Of the link at this port of the host.
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

/// What operations act on in the order in which they are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderedTarget {
    /// This connection or association.
    Connection(LocalId),
    /// What protects packets of the host.
    Protection,
    /// Links of this host.
    Link(HostId),
    /// The application's timer, of which the last word holds.
    Timer,
}

impl<R> AppOperation<R> {
    /// What it acts on; `None`: its order means nothing, as that of datagrams, frames and packets, which the way may change, too.
    pub(crate) const fn ordered_target(&self) -> Option<OrderedTarget> {
        Some(match self {
            Self::Connect { conn, .. }
            | Self::Write { conn, .. }
            | Self::Credit { conn, .. }
            | Self::Shutdown { conn }
            | Self::Abort { conn } => OrderedTarget::Connection(*conn),
            Self::Associate { assoc, .. } | Self::Send { assoc, .. } => OrderedTarget::Connection(*assoc),
            Self::Protection(_) | Self::Protect(_) => OrderedTarget::Protection,
            Self::Link { host: at, .. } => OrderedTarget::Link(*at),
            Self::Timer(_) => OrderedTarget::Timer,
            Self::Datagram { .. }
            | Self::Frame { .. }
            | Self::Forward(_)
            | Self::Session { .. }
            | Self::Owner { .. }
            | Self::Report(_) => return None,
        })
    }
}

/// An application's hands: everything that it asks for takes effect when its handler has returned and the
/// CPU time of the work it reported has passed on its host.
#[derive(Debug)]
pub struct AppContext<'a, R> {
    pub(crate) now: Instant,
    pub(crate) epoch: WallTime,
    pub(crate) ops: &'a mut Vec<AppOperation<R>>,
    pub(crate) work: &'a mut Vec<WorkRecord>,
}

impl<'a, R> AppContext<'a, R> {
    /// For a network that hosts applications: what the handler asks for goes to the end of `ops`, what it charges to that
    /// of `work`; `epoch` is the wall time at [`Instant::ZERO`].
    pub const fn new(
        now: Instant,
        epoch: WallTime,
        ops: &'a mut Vec<AppOperation<R>>,
        work: &'a mut Vec<WorkRecord>,
    ) -> Self {
        Self { now, epoch, ops, work }
    }
    /// Has an operation written where it will be read: to make it elsewhere and copy it costs a stall of the processor.
    #[inline]
    fn push_operation(&mut self, op: impl FnOnce() -> AppOperation<R>) {
        self.ops.extend(std::iter::once_with(op));
    }
    /// The time at which the handler runs.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// The wall time at [`Instant::ZERO`].
    pub fn epoch(&self) -> WallTime {
        self.epoch
    }
    /// What the wall clock shows.
    pub fn wall_time(&self) -> WallTime {
        self.now.to_wall_time(self.epoch)
    }
    /// Sends a datagram from one of the application's sockets; a socket number not used before gets an
    /// ephemeral port.
    pub fn send_datagram(&mut self, socket: u32, to: HostId, port: u16, payload: Payload) {
        self.push_operation(|| AppOperation::Datagram { socket, to, port, payload });
    }
    /// Opens a TCP connection under an id of the application's choice ([`ConnId::new_opened`]).
    pub fn connect(&mut self, conn: ConnId, to: HostId, port: u16) {
        self.push_operation(|| AppOperation::Connect { conn: conn.into(), from: None, to, port });
    }
    /// As [`Self::connect`], from the host's own address or that of an interface of it. From any other it is refused.
    pub fn connect_from(&mut self, conn: ConnId, from: HostId, to: HostId, port: u16) {
        self.push_operation(|| AppOperation::Connect { conn: conn.into(), from: Some(from), to, port });
    }
    /// Has a packet of others go on its way ([`AppDelivery::Transit`]).
    pub fn forward_packet(&mut self, packet: TransitPacket) {
        self.push_operation(|| AppOperation::Forward(packet));
    }
    /// Packets on the link at this port of the host are of the PPPoE session of this number: what captures show, of a link with
    /// such framing.
    pub fn name_session(&mut self, port: u32, number: u16) {
        self.push_operation(|| AppOperation::Session { port, number });
    }
    /// Writes to a TCP connection; one call is one write to the socket.
    pub fn write(&mut self, conn: ConnId, payload: Payload) {
        self.push_operation(|| AppOperation::Write { conn: conn.into(), payload });
    }
    /// Opens an SCTP association under an id of the application's choice, which is none of its TCP connections'
    /// either, asking for so many outbound streams.
    pub fn associate(&mut self, assoc: AssocId, to: HostId, port: u16, streams: u16) {
        self.push_operation(|| AppOperation::Associate {
            assoc: assoc.into(),
            from: None,
            to,
            port,
            streams,
        });
    }
    /// As [`Self::associate`], from the host's own address or that of an interface of it. From any other it is refused.
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
    /// Takes this many more bytes of a connection whose reading it governs itself; the first call makes
    /// the application a slow reader, which it is not by default.
    pub fn grant_credit(&mut self, conn: ConnId, bytes: u32) {
        self.push_operation(|| AppOperation::Credit { conn: conn.into(), bytes });
    }
    /// Closes a TCP connection or an SCTP association in good order.
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
    /// Tells a link what to do: that of the host, or of an interface of it, which is a station of a cell or basic service set.
    pub fn link_command(&mut self, at: HostId, command: LinkCommand) {
        self.push_operation(|| AppOperation::Link { host: at, command });
    }
    /// Asks whose the TCP connection with these ends is, of which the first is the host's own or of an interface of it;
    /// [`AppDelivery::Owner`] is the answer. A host's kernel knows its own connections and no others.
    pub fn query_owner(&mut self, token: u64, local: (HostId, u16), remote: (HostId, u16)) {
        self.push_operation(|| AppOperation::Owner { token, local, remote });
    }
    /// From now on all packets of the host's own address pass by the databases of RFC 4301, which this application tells what is
    /// in them by [`Self::update_protection`]. Until it does, what becomes of them is `otherwise`.
    pub fn begin_protection(&mut self, config: plane::EspDataPlaneConfig) {
        self.ops.push(AppOperation::Protection(config.into()));
    }
    /// Changes the SAs and policies of the host, whose protection has begun. SAs are of transport mode. Where a packet needs an SA of
    /// a policy that has none, [`AppDelivery::Acquire`] says so, and the packet waits.
    pub fn update_protection(&mut self, operation: IpsecOperation) {
        self.ops.push(AppOperation::Protect(operation.into()));
    }
    /// Asks for a [`AppDelivery::Timer`] at this time, instead of any asked for before.
    pub fn set_timer(&mut self, at: Option<Instant>) {
        self.push_operation(|| AppOperation::Timer(at));
    }
    /// Tells the simulation's observer something.
    pub fn report(&mut self, report: R) {
        self.push_operation(|| AppOperation::Report(report));
    }
    /// Charges work to the host's CPU.
    pub fn charge_work(&mut self, work: WorkRecord) {
        self.work.push(work);
    }
    /// What was charged in answer to this delivery until now.
    pub fn charged_work(&self) -> &[WorkRecord] {
        self.work
    }
}

/// What runs on a simulated host. One type serves for all hosts of a simulation (an enum of roles), so that
/// the inner loop dispatches without a virtual call.
pub trait Application {
    /// What it tells the observer.
    type Report;
    /// Handles one delivery.
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, Self::Report>, delivery: AppDelivery);
}

/// Hears what applications report, when it takes effect.
pub trait ReportObserver<R> {
    /// Application number `app` (in the order of creation) reports at `now`.
    fn handle_report(&mut self, now: Instant, app: u32, report: R);
    /// True when the run may end before its time; asked after each report.
    fn is_done(&self) -> bool {
        false
    }
}
