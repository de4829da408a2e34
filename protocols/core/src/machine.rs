//! The common shape of every protocol endpoint.
//!
//! A host (the simulator, a live driver, a test) owns a [`Machine`]. It calls these methods in this order:
//!
//! 1. [`Machine::set_epoch`], before anything else and after each change of the wall clock.
//! 2. [`Machine::handle_input`], [`Machine::handle_command`] or [`Machine::handle_datagrams`], with the time.
//! 3. [`Machine::poll_output`], until it returns `None`. It returns transmissions, events, work and jobs in the order
//!    of the machine's decisions.
//! 4. [`Machine::poll_timeout`]. The host arms one timer for it and then passes [`MachineInput::Timeout`].
//!
//! [`MachineHost::drain_outputs`](crate::MachineHost::drain_outputs) carries the outputs out in their order. So the
//! host handles an event before it sends a reply that the machine decided later.
//!
//! The cost of a poll depends on the changes, not on the number of sessions: a machine keeps a ready list and a timer
//! queue. A machine drops and counts bad input from the network. It returns `Err` for misuse by its caller only.
//!
//! Machines are composed in two ways:
//!
//! - A machine contains others ([`ChildMachine`](crate::ChildMachine)), where a protocol carries another or an endpoint
//!   speaks several. The container translates ids on the way in and on the way out.
//! - Machines exchange tokens, where a request leaves the host or crosses to another role. The event of the first
//!   machine carries a token. The token becomes part of a command to the second and returns with the result.
//!
//! A machine holds references only to machines that it contains.

use crate::job::{JobRequest, NoJob};
use crate::output::OutputQueue;
use crate::time::{Instant, WallTime};
use crate::work::WorkLabel;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The path to the machine that owns a socket or connection: the hosted machine, or a machine inside it, at most four
/// levels deep.
///
/// It is a path of slots: `.2.0` is the machine in slot 0 of the machine in slot 2 of the hosted machine. A machine
/// writes its own ids without a path. On the way out its container puts the slot in front
/// ([`with_outer_slot`](Self::with_outer_slot)), and removes it on the way in
/// ([`split_outer_slot`](Self::split_outer_slot)). So ids of two machines never collide, and a machine needs no
/// knowledge of its containers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MachineOwnerPath(u64);

impl MachineOwnerPath {
    /// The hosted machine.
    pub const HOSTED: Self = Self(0);
    const BITS: u32 = u16::BITS;

    /// The machine in a slot of the hosted machine. Every number except [`u16::MAX`] is a slot.
    #[must_use]
    pub const fn from_slot(slot: u16) -> Self {
        Self::HOSTED.with_outer_slot(slot)
    }
    /// Returns this owner as the container writes it, for a machine in `slot`.
    ///
    /// # Panics
    /// If the path would have five slots, or the slot is [`u16::MAX`].
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        assert!(
            slot < u16::MAX && self.0 >> (u64::BITS - Self::BITS) == 0,
            "machines are too deep within each other"
        );
        Self(self.0 << Self::BITS | (slot + 1) as u64)
    }
    /// Returns the outermost slot and the owner as the machine in that slot writes it; `None` for the machine itself.
    #[must_use]
    pub const fn split_outer_slot(self) -> Option<(u16, Self)> {
        match (self.0 & u16::MAX as u64) as u16 {
            0 => None,
            n => Some((n - 1, Self(self.0 >> Self::BITS))),
        }
    }
}

impl core::fmt::Debug for MachineOwnerPath {
    /// The slots from outside to inside: `.2.0`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut rest = *self;
        while let Some((slot, inner)) = rest.split_outer_slot() {
            write!(f, ".{slot}")?;
            rest = inner;
        }
        Ok(())
    }
}

/// A datagram socket.
///
/// A machine that needs another source port sends on a new id, and the host binds a port for it. A RADIUS client does
/// so when 256 identifiers are outstanding (RFC 2865 §2.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SocketId {
    /// The machine that owns it.
    pub owner: MachineOwnerPath,
    /// Its number among the sockets of its owner, from 0.
    pub n: u32,
}

impl SocketId {
    /// A socket of the hosted machine.
    #[must_use]
    pub const fn from_number(n: u32) -> Self {
        Self { owner: MachineOwnerPath::HOSTED, n }
    }
    /// Returns this id as the container writes it, for an owner in `slot`.
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        Self { owner: self.owner.with_outer_slot(slot), n: self.n }
    }
}

/// A port that accepts connections or associations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ListenerId {
    /// The machine that owns the accepted connections.
    pub owner: MachineOwnerPath,
    /// Its number among the listeners of its owner, from 0.
    pub n: u32,
}

impl ListenerId {
    /// A listener of the hosted machine.
    #[must_use]
    pub const fn from_number(n: u32) -> Self {
        Self { owner: MachineOwnerPath::HOSTED, n }
    }
    /// Returns this id as the machine in this slot writes it.
    fn strip_outer_slot(self, slot: u16) -> Self {
        let (of, owner) = self.owner.split_outer_slot().unwrap_or((slot, self.owner));
        debug_assert_eq!(of, slot, "what is accepted at a listener is of the listener's owner");
        Self { owner, ..self }
    }
}

/// The local socket and the two addresses of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatagramPath {
    /// The local socket.
    pub socket: SocketId,
    /// The local address: the destination of a received datagram, the source of a sent one. With port 0 or an
    /// unspecified address the host chooses.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
}

/// The side that opened a connection or association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConnOrigin {
    /// The machine opened it and chose the number.
    Opened,
    /// The peer opened it. The host accepted it and chose the number.
    Accepted,
}

/// A stream connection (TCP, TLS) or a message-oriented association (SCTP). Both share one number space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId {
    /// The machine that owns it.
    pub owner: MachineOwnerPath,
    /// The side that opened it.
    pub side: ConnOrigin,
    /// Its number among the connections of its owner that the same side opened.
    pub n: u32,
}

impl ConnId {
    /// The `n`-th connection that the hosted machine opened.
    #[must_use]
    pub const fn nth_opened_connection(n: u32) -> Self {
        Self { owner: MachineOwnerPath::HOSTED, side: ConnOrigin::Opened, n }
    }
    /// The `n`-th connection that the host accepted for the hosted machine.
    #[must_use]
    pub const fn nth_accepted_connection(n: u32) -> Self {
        Self { owner: MachineOwnerPath::HOSTED, side: ConnOrigin::Accepted, n }
    }
    /// The `n`-th connection that the host accepted at a listener. Its owner is the owner of the listener.
    #[must_use]
    pub const fn nth_accepted_at_listener(listener: ListenerId, n: u32) -> Self {
        Self { owner: listener.owner, ..Self::nth_accepted_connection(n) }
    }
    /// True if the peer opened the connection.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self.side, ConnOrigin::Accepted)
    }
    /// Returns this id as the container writes it, for an owner in `slot`.
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        Self { owner: self.owner.with_outer_slot(slot), ..self }
    }
}

/// A message-oriented association (SCTP).
pub type AssocId = ConnId;

/// A port that carries link-layer frames (an Ethernet port, a radio).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LinkLayerPortId(pub u32);

/// Why a connection or association ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// The peer closed it in good order.
    Closed,
    /// The peer reset or aborted it.
    Reset,
    /// Connection setup or retransmission timed out.
    TimedOut,
    /// The peer refused the connection.
    Refused,
}

/// An event of a stream connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEvent<'a> {
    /// A connection from the peer is up.
    Accepted {
        /// The listener that accepted it.
        listener: ListenerId,
        /// The address of the peer.
        remote: SocketAddr,
        /// The local address, if the host knows it.
        local: Option<IpAddr>,
        /// The end-entity certificate of the peer (DER), if TLS requested one.
        certificate: Option<&'a [u8]>,
    },
    /// A connection that the machine opened is up.
    Connected {
        /// The address of the peer.
        remote: SocketAddr,
        /// The local address, if the host knows it.
        local: Option<IpAddr>,
        /// The end-entity certificate of the peer (DER), if TLS requested one.
        certificate: Option<&'a [u8]>,
    },
    /// The next bytes in order. Their boundaries have no meaning.
    Data(&'a [u8]),
    /// The host accepts data again after it withheld credit.
    Writable,
    /// The peer sends no more data but may still receive; the machine closes. Hosts pass this only to machines that
    /// still owe replies. For other machines it is the end.
    Finished,
    /// The connection has ended. This is its last event.
    Closed(CloseReason),
}

/// An event of a message-oriented association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageAssociationEvent<'a> {
    /// An association from the peer is up.
    Accepted {
        /// The listener that accepted it.
        listener: ListenerId,
        /// The primary address of the peer.
        remote: SocketAddr,
        /// The number of outbound streams negotiated.
        streams: u16,
    },
    /// An association that the machine opened is up.
    Up {
        /// The primary address of the peer.
        remote: SocketAddr,
        /// The number of outbound streams negotiated.
        streams: u16,
    },
    /// A whole user message.
    Data {
        /// The stream that carried it.
        stream: u16,
        /// The payload protocol identifier.
        ppid: u32,
        /// The message.
        data: &'a [u8],
    },
    /// The association has ended. This is its last event.
    Down(CloseReason),
}

/// An input from a host to a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineInput<'a> {
    /// A datagram arrived.
    Datagram {
        /// The socket that received it and the address of its sender.
        path: DatagramPath,
        /// Its payload.
        data: &'a [u8],
    },
    /// An event of a stream connection.
    Stream {
        /// The connection.
        conn: ConnId,
        /// The event.
        event: StreamEvent<'a>,
    },
    /// An event of a message-oriented association.
    Message {
        /// The association.
        assoc: AssocId,
        /// The event.
        event: MessageAssociationEvent<'a>,
    },
    /// A link-layer frame arrived: destination, source, EtherType, payload (Ethernet II, no FCS).
    Frame {
        /// The port that received it.
        port: LinkLayerPortId,
        /// The frame.
        data: &'a [u8],
    },
    /// The time of [`Machine::poll_timeout`] has come. An early or late timeout does no harm.
    Timeout,
}

impl<'a> MachineInput<'a> {
    /// Returns the operation that ends a connection or association that was just accepted and has no handler; `None`
    /// for every other input.
    #[must_use]
    pub const fn refusal(&self) -> Option<Transmit> {
        match *self {
            Self::Stream { conn, event: StreamEvent::Accepted { .. } } => {
                Some(Transmit::Stream { conn, op: StreamOp::Abort })
            }
            Self::Message { assoc, event: MessageAssociationEvent::Accepted { .. } } => {
                Some(Transmit::Message { assoc, op: MessageAssociationOp::Abort })
            }
            _ => None,
        }
    }
    /// For a container: returns the slot of the machine that the input is for, and the input as that machine sees it.
    /// `None`: the input is for the container itself, such as frames and timeouts.
    #[must_use]
    pub fn split_outer_slot(self) -> Option<(u16, Self)> {
        Some(match self {
            Self::Datagram { path, data } => {
                let (slot, owner) = path.socket.owner.split_outer_slot()?;
                let socket = SocketId { owner, ..path.socket };
                (slot, Self::Datagram { path: DatagramPath { socket, ..path }, data })
            }
            Self::Stream { conn, event } => {
                let (slot, owner) = conn.owner.split_outer_slot()?;
                let event = match event {
                    StreamEvent::Accepted { listener, remote, local, certificate } => {
                        let listener = listener.strip_outer_slot(slot);
                        StreamEvent::Accepted { listener, remote, local, certificate }
                    }
                    other => other,
                };
                (slot, Self::Stream { conn: ConnId { owner, ..conn }, event })
            }
            Self::Message { assoc, event } => {
                let (slot, owner) = assoc.owner.split_outer_slot()?;
                let event = match event {
                    MessageAssociationEvent::Accepted { listener, remote, streams } => {
                        MessageAssociationEvent::Accepted {
                            listener: listener.strip_outer_slot(slot),
                            remote,
                            streams,
                        }
                    }
                    other => other,
                };
                (slot, Self::Message { assoc: ConnId { owner, ..assoc }, event })
            }
            Self::Frame { .. } | Self::Timeout => return None,
        })
    }
}

/// An operation on a stream connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamOp {
    /// Opens it.
    Connect {
        /// The local address; with `None` the host chooses.
        local: Option<IpAddr>,
        /// The address of the peer.
        remote: SocketAddr,
    },
    /// Sends the bytes in the buffer.
    Data,
    /// Grants the peer this many more bytes, for a slow reader. Hosts start each connection with unlimited credit,
    /// unless the machine's documentation differs.
    Credit(u32),
    /// Closes in good order after all data is sent.
    Shutdown,
    /// Resets at once.
    Abort,
}

/// An operation on a message-oriented association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageAssociationOp {
    /// Opens it.
    Connect {
        /// The local address; with `None` the host chooses.
        local: Option<IpAddr>,
        /// The address of the peer.
        remote: SocketAddr,
        /// The number of outbound streams to request.
        streams: u16,
    },
    /// Sends the message in the buffer.
    Data {
        /// The stream to send it on.
        stream: u16,
        /// The payload protocol identifier.
        ppid: u32,
        /// True if the message may overtake others.
        unordered: bool,
    },
    /// Closes in good order after all data is sent.
    Shutdown,
    /// Aborts at once.
    Abort,
}

/// A network operation that a machine requests, the counterpart of [`MachineInput`]. Its bytes are in the buffer passed
/// to [`Machine::poll_output`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Sends the buffer as one datagram.
    Datagram {
        /// The local socket and the destination.
        path: DatagramPath,
    },
    /// Operates on a stream connection.
    Stream {
        /// The connection.
        conn: ConnId,
        /// The operation.
        op: StreamOp,
    },
    /// Operates on a message-oriented association.
    Message {
        /// The association.
        assoc: AssocId,
        /// The operation.
        op: MessageAssociationOp,
    },
    /// Sends the buffer as one link-layer frame (Ethernet II, no FCS).
    Frame {
        /// The port that sends it.
        port: LinkLayerPortId,
    },
}

impl Transmit {
    /// For a container: returns the operation of the machine in this slot, with the ids of the container. Ports of
    /// frames belong to the host and stay unchanged.
    #[must_use]
    pub const fn with_outer_slot(mut self, slot: u16) -> Self {
        self.add_outer_slot(slot);
        self
    }
    /// Does the same in place.
    pub const fn add_outer_slot(&mut self, slot: u16) {
        match self {
            Self::Datagram { path } => path.socket = path.socket.with_outer_slot(slot),
            Self::Stream { conn, .. } => *conn = conn.with_outer_slot(slot),
            Self::Message { assoc, .. } => *assoc = assoc.with_outer_slot(slot),
            Self::Frame { .. } => {}
        }
    }
}

/// Labelled work of a handler, for the simulated processor.
///
/// The study or a measured processor profile gives the time of one unit; a label without an entry costs nothing. The
/// simulator charges the whole step before any output of it leaves. Random times are drawn in the order of the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkRecord {
    /// The kind of work.
    pub label: WorkLabel,
    /// The number of units.
    pub units: u32,
}

/// Misuse of a machine by its caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// The token belongs to no open entry.
    #[error("the machine has no open entry for this token")]
    UnknownToken,
    /// The command does not fit the machine's state.
    #[error("not possible in this state: {0}")]
    WrongState(&'static str),
    /// A value of the command is outside its documented range.
    #[error("invalid command: {0}")]
    Invalid(&'static str),
    /// A documented limit is reached. Try again after an entry has ended.
    #[error("limit reached: {0}")]
    Full(&'static str),
}

/// A decision of a machine; see [`Machine::poll_output`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MachineOutput<E, J = NoJob> {
    /// A network operation. Its bytes are in the buffer.
    Transmit(Transmit),
    /// An event for the owner.
    Event(E),
    /// Work that the machine did.
    Work(WorkRecord),
    /// A job for a worker.
    Job(JobRequest<J>),
}

/// The output type of a machine's [`Machine::poll_output`].
pub type MachineOutputOf<M> = MachineOutput<<M as Machine>::Event, <M as Machine>::Job>;

/// A protocol endpoint without sockets or a clock; see the [module](self) for how to drive it.
pub trait Machine {
    /// A request of the host or of another machine.
    type Command;
    /// A statement to the owner.
    type Event;
    /// Slow work for workers; [`NoJob`] if the machine has none.
    type Job;

    /// Sets the wall clock: `epoch` is its time at [`Instant::ZERO`]. [`Instant::to_wall_time`] gives its time at any
    /// other instant.
    ///
    /// A host calls this before any input, and again after the clock was set or has drifted. Machines that need the
    /// time keep it; containers pass it to their children. The default is [`WallTime::UNIX_EPOCH`].
    ///
    /// Afterwards drain [`poll_output`](Self::poll_output) until it returns `None`.
    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        let _ = (now, epoch);
    }

    /// Handles one input. Afterwards drain [`poll_output`](Self::poll_output) until it returns `None`.
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>);

    /// Handles several datagrams that arrived together, in their order. Afterwards drain
    /// [`poll_output`](Self::poll_output) until it returns `None`.
    ///
    /// A container may take all datagrams through one step before it takes any through the next. The code of a whole
    /// login exceeds the first instruction cache, so each login alone would fetch it anew. Replies of an early step
    /// then precede replies of a later step, regardless of the order of arrival.
    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(DatagramPath, &[u8])]) {
        for &(path, data) in datagrams {
            self.handle_input(now, MachineInput::Datagram { path, data });
        }
    }

    /// Handles one command. Afterwards drain [`poll_output`](Self::poll_output) until it returns `None`.
    ///
    /// # Errors
    /// The machine refused the command and changed nothing.
    fn handle_command(&mut self, now: Instant, command: Self::Command) -> Result<(), CommandError>;

    /// Returns the next output, in the order of the machine's decisions. Poll until `None`.
    ///
    /// With [`MachineOutput::Transmit`], `buf` holds the bytes, or is empty for an operation without data. With other
    /// outputs its contents have no meaning.
    #[must_use]
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<MachineOutputOf<Self>>;

    /// Moves the outputs before the next event to the outputs of the container, and returns that event. `outside` gives
    /// a transmit its ids in the container. A machine that only passes on the outputs of its children forwards this
    /// call to them, which saves a move.
    fn next_event<E, J>(
        &mut self,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Self::Event>
    where
        Self: Machine<Job = NoJob> + Sized,
    {
        outputs.queue_until_event(outside, |buf| self.poll_output(buf))
    }

    /// Returns the time for the next [`MachineInput::Timeout`]. Ask again after each input or command: it may move
    /// either way.
    #[must_use]
    fn poll_timeout(&mut self) -> Option<Instant>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use core::net::Ipv4Addr;

    const REMOTE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

    #[test]
    fn an_owner_is_entered_by_the_way_that_it_came_out() {
        let slots = [0, 7, u16::MAX - 1, 3];
        let mut owner = MachineOwnerPath::HOSTED;
        for slot in slots {
            owner = owner.with_outer_slot(slot);
        }
        assert_eq!(format!("{owner:?}"), format!(".3.{}.7.0", u16::MAX - 1));
        for slot in slots.into_iter().rev() {
            let (entered, inner) = owner.split_outer_slot().unwrap();
            assert_eq!(entered, slot);
            owner = inner;
        }
        assert_eq!((owner, owner.split_outer_slot()), (MachineOwnerPath::HOSTED, None));
    }

    #[test]
    #[should_panic(expected = "too deep")]
    fn a_path_of_five_slots_is_refused() {
        let _ = (0..5).fold(MachineOwnerPath::HOSTED, |owner, _| owner.with_outer_slot(0));
    }

    #[test]
    #[should_panic(expected = "too deep")]
    fn the_number_that_stands_for_no_slot_is_refused() {
        let _ = MachineOwnerPath::from_slot(u16::MAX);
    }

    #[test]
    fn ids_of_two_machines_never_meet() {
        let of = |slot| {
            let (socket, conn) = (
                SocketId::from_number(1).with_outer_slot(slot),
                ConnId::nth_opened_connection(1).with_outer_slot(slot),
            );
            (socket, conn, ConnId::nth_accepted_connection(1).with_outer_slot(slot))
        };
        let (a, b) = (of(0), of(1));
        assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2 && a.1 != a.2);
        assert!(a.0 != SocketId::from_number(1) && a.1 != ConnId::nth_opened_connection(1));
    }

    #[test]
    fn an_input_reaches_the_machine_in_the_terms_of_its_own() {
        let listener = ListenerId { owner: MachineOwnerPath::from_slot(4).with_outer_slot(2), n: 3 };
        let (conn, socket) =
            (ConnId::nth_accepted_at_listener(listener, 9), SocketId { owner: listener.owner, n: 5 });
        let path = |socket| DatagramPath { socket, local: REMOTE, remote: REMOTE };
        let accepted =
            |listener| StreamEvent::Accepted { listener, remote: REMOTE, local: None, certificate: None };
        let up = |listener| MessageAssociationEvent::Accepted { listener, remote: REMOTE, streams: 1 };
        let inner = |owner| (ConnId { owner, ..conn }, SocketId { owner, n: 5 }, ListenerId { owner, n: 3 });
        let all = |(conn, socket, listener): (ConnId, SocketId, ListenerId)| {
            [
                MachineInput::Datagram { path: path(socket), data: b"d" },
                MachineInput::Stream { conn, event: accepted(listener) },
                MachineInput::Stream { conn, event: StreamEvent::Data(b"s") },
                MachineInput::Stream { conn, event: StreamEvent::Closed(CloseReason::Reset) },
                MachineInput::Message { assoc: conn, event: up(listener) },
                MachineInput::Message {
                    assoc: conn,
                    event: MessageAssociationEvent::Down(CloseReason::Closed),
                },
            ]
        };
        let outside = all((conn, socket, listener));
        for (n, input) in outside.into_iter().enumerate() {
            let once = input.split_outer_slot();
            assert_eq!(once, Some((2, all(inner(MachineOwnerPath::from_slot(4)))[n])));
            let twice = once.unwrap().1.split_outer_slot();
            assert_eq!(twice, Some((4, all(inner(MachineOwnerPath::HOSTED))[n])));
            assert_eq!(twice.unwrap().1.split_outer_slot(), None);
        }
        assert_eq!(MachineInput::Timeout.split_outer_slot(), None);
        assert_eq!(MachineInput::Frame { port: LinkLayerPortId(1), data: b"f" }.split_outer_slot(), None);
    }

    #[test]
    fn transmits_of_a_child_machine_carry_its_outer_slot() {
        let conn = ConnId::nth_opened_connection(2);
        let stream = Transmit::Stream { conn, op: StreamOp::Data };
        assert_eq!(
            stream.with_outer_slot(6),
            Transmit::Stream { conn: conn.with_outer_slot(6), op: StreamOp::Data }
        );
        let message = Transmit::Message { assoc: conn, op: MessageAssociationOp::Abort };
        assert_eq!(
            message.with_outer_slot(6),
            Transmit::Message { assoc: conn.with_outer_slot(6), op: MessageAssociationOp::Abort }
        );
        let path = |socket| DatagramPath { socket, local: REMOTE, remote: REMOTE };
        let datagram = |socket| Transmit::Datagram { path: path(socket) };
        assert_eq!(
            datagram(SocketId::from_number(1)).with_outer_slot(6),
            datagram(SocketId::from_number(1).with_outer_slot(6))
        );
        let frame = Transmit::Frame { port: LinkLayerPortId(1) };
        assert_eq!(frame.with_outer_slot(6), frame);
    }
}
