//! The one shape of every protocol endpoint.
//!
//! A host (the simulator, a live driver, a test) owns a [`Machine`] and
//!
//! 1. says what time it is by the wall clock ([`Machine::set_epoch`]), before anything else and whenever that clock was set;
//! 2. feeds it one [`MachineInput`], one command, or datagrams that came together ([`Machine::handle_datagrams`]), with the time;
//! 3. then drains it: [`Machine::poll_output`] gives, until it answers `None`, what the machine wants sent, what it has to
//!    say, what that cost and what it asks of slow helpers, in the order in which the machine decided them;
//! 4. then arms one timer for [`Machine::poll_timeout`] and feeds [`MachineInput::Timeout`] when it comes.
//!
//! A host carries the outputs out in their order, by [`MachineHost::drain_outputs`](crate::MachineHost::drain_outputs): what a machine says of an answer
//! before it sends it has been heard by the time the answer leaves.
//!
//! Draining costs what changed, not what exists: a machine keeps a ready list and a timer queue.
//! Bad input from outside is a counted drop, never an `Err`; `Err` is for the caller's misuse.
//!
//! Machines are composed in two ways. Where one protocol carries another, or one endpoint speaks several, a machine
//! contains the others ([`Child`](crate::ChildMachine)): ids are put into their owner's terms on the way in and into the
//! container's on the way out. Where a question leaves the host or crosses to another role, it goes by token: one machine's
//! event carries a token that becomes another's command and comes back with the result. No machine holds a reference to
//! one that it does not contain.

use crate::job::{JobRequest, NoJob};
use crate::output::OutputQueue;
use crate::time::{Instant, WallTime};
use crate::work::WorkLabel;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Which machine a socket or connection is of: the hosted one itself, or one within it, four deep at most.
///
/// It is a path of slots: `.2.0` is the machine in slot 0 of the machine in slot 2 of the hosted one. A machine writes its
/// own ids without a path. The machine that holds it in a slot puts that slot in front of each id on its way out
/// ([`within`](Self::with_outer_slot)) and takes it off on the way in ([`enter`](Self::split_outer_slot)), so that the ids of two machines never
/// meet and none has to know which machines it is within.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OwnerPath(u64);

impl OwnerPath {
    /// The hosted machine itself.
    pub const HOSTED: Self = Self(0);
    const BITS: u32 = u16::BITS;

    /// The machine in a slot of the hosted one. All numbers but [`u16::MAX`] are slots.
    #[must_use]
    pub const fn from_slot(slot: u16) -> Self {
        Self::HOSTED.with_outer_slot(slot)
    }
    /// This owner as the machine that holds it, or its container, in `slot` writes it.
    ///
    /// # Panics
    /// The path would have five slots, or the slot is [`u16::MAX`].
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        assert!(
            slot < u16::MAX && self.0 >> (u64::BITS - Self::BITS) == 0,
            "machines are too deep within each other"
        );
        Self(self.0 << Self::BITS | (slot + 1) as u64)
    }
    /// The slot that it is in, and how the machine in that slot writes it; `None`: it is the machine itself.
    #[must_use]
    pub const fn split_outer_slot(self) -> Option<(u16, Self)> {
        match (self.0 & u16::MAX as u64) as u16 {
            0 => None,
            n => Some((n - 1, Self(self.0 >> Self::BITS))),
        }
    }
}

impl core::fmt::Debug for OwnerPath {
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
/// A machine that needs a further source port (RFC 2865 §2.5: a RADIUS client with 256 outstanding
/// identifiers) sends on an id it has not used yet; the host then binds a new port for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SocketId {
    /// Whose.
    pub owner: OwnerPath,
    /// Which of its owner's, from 0.
    pub n: u32,
}

impl SocketId {
    /// A socket of the hosted machine itself.
    #[must_use]
    pub const fn from_number(n: u32) -> Self {
        Self { owner: OwnerPath::HOSTED, n }
    }
    /// This id as the machine that holds its owner in `slot` writes it.
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        Self { owner: self.owner.with_outer_slot(slot), n: self.n }
    }
}

/// A port at which connections or associations are accepted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ListenerId {
    /// Whose connections will be what is accepted here.
    pub owner: OwnerPath,
    /// Which of its owner's, from 0.
    pub n: u32,
}

impl ListenerId {
    /// A listener of the hosted machine itself.
    #[must_use]
    pub const fn from_number(n: u32) -> Self {
        Self { owner: OwnerPath::HOSTED, n }
    }
    /// As the machine in this slot writes it.
    fn strip_outer_slot(self, slot: u16) -> Self {
        let (of, owner) = self.owner.split_outer_slot().unwrap_or((slot, self.owner));
        debug_assert_eq!(of, slot, "what is accepted at a listener is of the listener's owner");
        Self { owner, ..self }
    }
}

/// Where a datagram came from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DatagramPath {
    /// Our socket.
    pub socket: SocketId,
    /// Our address: the one to which a datagram came, the one from which it is to go. Port 0 or an unspecified address
    /// leaves the choice to the host.
    pub local: SocketAddr,
    /// The other side's address.
    pub remote: SocketAddr,
}

/// Who began a connection or association.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConnOrigin {
    /// The machine, which chose the number.
    Opened,
    /// The other side; the host, which accepted it, chose the number.
    Accepted,
}

/// A stream (TCP, TLS) connection or a message-oriented association (SCTP). Both are numbered together: no association has
/// the id of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId {
    /// Whose.
    pub owner: OwnerPath,
    /// Who began it.
    pub side: ConnOrigin,
    /// Which of its owner's that this side began.
    pub n: u32,
}

impl ConnId {
    /// The hosted machine's `n`-th own connection.
    #[must_use]
    pub const fn new_opened(n: u32) -> Self {
        Self { owner: OwnerPath::HOSTED, side: ConnOrigin::Opened, n }
    }
    /// The `n`-th connection that the host accepted for the hosted machine.
    #[must_use]
    pub const fn new_accepted(n: u32) -> Self {
        Self { owner: OwnerPath::HOSTED, side: ConnOrigin::Accepted, n }
    }
    /// The `n`-th connection that the host accepted at a listener: it is of the listener's owner.
    #[must_use]
    pub const fn accepted_at(listener: ListenerId, n: u32) -> Self {
        Self { owner: listener.owner, ..Self::new_accepted(n) }
    }
    /// True for one that the other side began.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self.side, ConnOrigin::Accepted)
    }
    /// This id as the machine that holds its owner in `slot` writes it.
    #[must_use]
    pub const fn with_outer_slot(self, slot: u16) -> Self {
        Self { owner: self.owner.with_outer_slot(slot), ..self }
    }
}

/// A message-oriented association (SCTP).
pub type AssocId = ConnId;

/// A port that carries link-layer frames (an Ethernet port, a radio).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(pub u32);

/// Why a connection or association ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CloseReason {
    /// The other side closed in good order.
    Closed,
    /// The other side reset or aborted.
    Reset,
    /// Nobody answered: connection set-up or retransmission gave up.
    TimedOut,
    /// The other side refused the connection.
    Refused,
}

/// What happens on a stream connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamEvent<'a> {
    /// The other side began it, and it is up; with the peer's end-entity certificate (DER) where TLS asked for one.
    Accepted {
        /// Where it was accepted.
        listener: ListenerId,
        /// The other side.
        remote: SocketAddr,
        /// Our address, if the host tells it.
        local: Option<IpAddr>,
        /// The peer's certificate, if TLS authenticated it.
        certificate: Option<&'a [u8]>,
    },
    /// We began it, and it is up; with the peer's end-entity certificate (DER) where TLS asked for one.
    Connected {
        /// The other side.
        remote: SocketAddr,
        /// Our address, if the host tells it.
        local: Option<IpAddr>,
        /// The peer's certificate, if TLS authenticated it.
        certificate: Option<&'a [u8]>,
    },
    /// The next bytes, in order; boundaries mean nothing.
    Data(&'a [u8]),
    /// The host can take more data again after it withheld credit.
    Writable,
    /// The other side sends no more, and may hear still: it is for the machine to close. Hosts tell it to machines alone that owe answers
    /// then; to others this is the end.
    Finished,
    /// It is over; no further event will come.
    Closed(CloseReason),
}

/// What happens on a message-oriented association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageEvent<'a> {
    /// The other side began it, and it is up.
    Accepted {
        /// Where it was accepted.
        listener: ListenerId,
        /// The other side's primary address.
        remote: SocketAddr,
        /// Outbound streams that were negotiated.
        streams: u16,
    },
    /// We began it, and it is up.
    Up {
        /// The other side's primary address.
        remote: SocketAddr,
        /// Outbound streams that were negotiated.
        streams: u16,
    },
    /// One whole user message.
    Data {
        /// The stream it came on.
        stream: u16,
        /// The payload protocol identifier.
        ppid: u32,
        /// The message.
        data: &'a [u8],
    },
    /// It is over; no further event will come.
    Down(CloseReason),
}

/// What a host gives a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineInput<'a> {
    /// A datagram arrived.
    Datagram {
        /// Where it came from, and on which socket.
        path: DatagramPath,
        /// Its payload.
        data: &'a [u8],
    },
    /// Something happened on a stream connection.
    Stream {
        /// Which connection.
        conn: ConnId,
        /// What happened.
        event: StreamEvent<'a>,
    },
    /// Something happened on a message-oriented association.
    Message {
        /// Which association.
        assoc: AssocId,
        /// What happened.
        event: MessageEvent<'a>,
    },
    /// A link-layer frame arrived: destination, source, EtherType, payload (Ethernet II, no FCS).
    Frame {
        /// The port it came in by.
        port: PortId,
        /// The frame.
        data: &'a [u8],
    },
    /// The time that [`Machine::poll_timeout`] asked for has come (early or late is harmless).
    Timeout,
}

impl<'a> MachineInput<'a> {
    /// What ends a connection or association that has just been accepted and that nobody here serves; `None`: this is no
    /// such one.
    #[must_use]
    pub const fn refusal(&self) -> Option<Transmit> {
        match *self {
            Self::Stream { conn, event: StreamEvent::Accepted { .. } } => {
                Some(Transmit::Stream { conn, op: StreamOp::Abort })
            }
            Self::Message { assoc, event: MessageEvent::Accepted { .. } } => {
                Some(Transmit::Message { assoc, op: MessageOp::Abort })
            }
            _ => None,
        }
    }
    /// For a machine of machines: in which slot the machine is that this is for, and the input as that one sees it. `None`:
    /// it is for the container itself, as are frames and timeouts.
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
                    MessageEvent::Accepted { listener, remote, streams } => {
                        MessageEvent::Accepted { listener: listener.strip_outer_slot(slot), remote, streams }
                    }
                    other => other,
                };
                (slot, Self::Message { assoc: ConnId { owner, ..assoc }, event })
            }
            Self::Frame { .. } | Self::Timeout => return None,
        })
    }
}

/// What a machine wants done with a stream connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamOp {
    /// Open it.
    Connect {
        /// From this address of ours; `None` leaves the choice to the host.
        local: Option<IpAddr>,
        /// To this address.
        remote: SocketAddr,
    },
    /// Send the bytes in the buffer.
    Data,
    /// Take this many more bytes from the other side (a slow reader grants credit; hosts start every
    /// connection with unlimited credit unless the machine's documentation says otherwise).
    Credit(u32),
    /// Close in good order after all data is sent.
    Shutdown,
    /// Reset at once.
    Abort,
}

/// What a machine wants done with a message-oriented association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageOp {
    /// Open it.
    Connect {
        /// From this address of ours; `None` leaves the choice to the host.
        local: Option<IpAddr>,
        /// To this address.
        remote: SocketAddr,
        /// Asking for this many outbound streams.
        streams: u16,
    },
    /// Send the message in the buffer.
    Data {
        /// On this stream.
        stream: u16,
        /// With this payload protocol identifier.
        ppid: u32,
        /// Without order relative to others.
        unordered: bool,
    },
    /// Close in good order after all data is sent.
    Shutdown,
    /// Abort at once.
    Abort,
}

/// What a machine wants the host to do; its bytes are in the buffer given to
/// [`Machine::poll_output`]. Mirrors [`MachineInput`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Send the buffer as one datagram.
    Datagram {
        /// From which socket, to which address.
        path: DatagramPath,
    },
    /// Act on a stream connection.
    Stream {
        /// Which connection.
        conn: ConnId,
        /// What to do.
        op: StreamOp,
    },
    /// Act on a message-oriented association.
    Message {
        /// Which association.
        assoc: AssocId,
        /// What to do.
        op: MessageOp,
    },
    /// Send the buffer as one link-layer frame (Ethernet II, no FCS).
    Frame {
        /// Out of this port.
        port: PortId,
    },
}

impl Transmit {
    /// For a machine of machines: what the machine in this slot wants done, with the container's ids. Ports of frames are of
    /// the host and stay what they are.
    #[must_use]
    pub const fn with_outer_slot(mut self, slot: u16) -> Self {
        self.add_outer_slot(slot);
        self
    }
    /// The same, where it lies.
    pub const fn add_outer_slot(&mut self, slot: u16) {
        match self {
            Self::Datagram { path } => path.socket = path.socket.with_outer_slot(slot),
            Self::Stream { conn, .. } => *conn = conn.with_outer_slot(slot),
            Self::Message { assoc, .. } => *assoc = assoc.with_outer_slot(slot),
            Self::Frame { .. } => {}
        }
    }
}

/// Labelled work that a handler did, for the simulated CPU: the study file or a measured profile says
/// how long one unit takes; a label that it does not name costs nothing. A step is charged as a whole, before anything of
/// it leaves; where times are random, they are drawn in the order of the work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkRecord {
    /// What was done.
    pub label: WorkLabel,
    /// How many times.
    pub units: u32,
}

/// The caller's misuse of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// The token names nothing that is open.
    #[error("the token names nothing that is open in this machine")]
    UnknownToken,
    /// The command does not fit the machine's state.
    #[error("not possible in this state: {0}")]
    WrongState(&'static str),
    /// A value of the command is out of its documented range.
    #[error("invalid command: {0}")]
    Invalid(&'static str),
    /// A documented limit is reached; try again when something has ended.
    #[error("limit reached: {0}")]
    Full(&'static str),
}

/// One thing that a machine decided; see [`Machine::poll_output`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MachineOutput<E, J = NoJob> {
    /// It wants this done on the network; the bytes are in the buffer.
    Transmit(Transmit),
    /// It says this.
    Event(E),
    /// It did this.
    Work(WorkRecord),
    /// It asks this of a slow helper.
    Job(JobRequest<J>),
}

/// What [`Machine::poll_output`] of a machine gives.
pub type OutputOf<M> = MachineOutput<<M as Machine>::Event, <M as Machine>::Job>;

/// A protocol endpoint without input or output of its own; see the [module](self) for how to drive it.
pub trait Machine {
    /// What the host or another machine may ask of it.
    type Command;
    /// What it has to say.
    type Event;
    /// What it asks of slow helpers; [`NoJob`] where it asks nothing.
    type Job;

    /// Says what the wall clock shows: `epoch` is its time at [`Instant::ZERO`], that of any other follows by
    /// [`Instant::to_wall_time`]. Each host says it before it feeds anything, and again when the clock was set or has drifted. It is
    /// no input of its own, since few machines care: those that do keep it, those that hold such ones hand it on.
    /// Until it is said, machines go by [`WallTime::UNIX_EPOCH`].
    /// Afterwards drain [`poll_output`](Self::poll_output) until it answers `None`.
    fn set_epoch(&mut self, now: Instant, epoch: WallTime) {
        let _ = (now, epoch);
    }

    /// Feeds one input. Afterwards drain [`poll_output`](Self::poll_output) until it answers `None`.
    fn handle_input(&mut self, now: Instant, input: MachineInput<'_>);

    /// Feeds several datagrams that came together, in their order. Afterwards drain
    /// [`poll_output`](Self::poll_output) until it answers `None`.
    ///
    /// A machine of machines may take all of them through one step before it takes any through the next: what a login runs
    /// through as a whole does not fit into a processor's first cache of instructions, and each would fetch it anew. What is
    /// answered in an early step is then sent before what is answered in a later one, whichever came first.
    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(DatagramPath, &[u8])]) {
        for &(path, data) in datagrams {
            self.handle_input(now, MachineInput::Datagram { path, data });
        }
    }

    /// Gives one command. Afterwards drain [`poll_output`](Self::poll_output) until it answers `None`.
    ///
    /// # Errors
    /// The command was refused and nothing changed.
    fn handle_command(&mut self, now: Instant, command: Self::Command) -> Result<(), CommandError>;

    /// The next thing that the machine decided, in the order in which it did. With [`MachineOutput::Transmit`], `buf` holds the
    /// bytes, or is empty for an operation without data; otherwise what it holds means nothing. Poll again until `None`.
    #[must_use]
    fn poll_output(&mut self, buf: &mut Vec<u8>) -> Option<OutputOf<Self>>;

    /// Puts what comes before its next event into the outputs of its container, where `outside` gives a transmit the ids that it
    /// has there, and gives that event. A machine that has no outputs of its own, but those of machines within, hands this on to them,
    /// so that nothing is moved once more.
    fn next_event<E, J>(
        &mut self,
        outputs: &mut OutputQueue<E, J>,
        outside: impl Fn(&mut Transmit),
    ) -> Option<Self::Event>
    where
        Self: Machine<Job = NoJob> + Sized,
    {
        outputs.up_to_event(outside, |buf| self.poll_output(buf))
    }

    /// When to feed [`MachineInput::Timeout`]; asked again after every feed, since it may have moved either way.
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
        let mut owner = OwnerPath::HOSTED;
        for slot in slots {
            owner = owner.with_outer_slot(slot);
        }
        assert_eq!(format!("{owner:?}"), format!(".3.{}.7.0", u16::MAX - 1));
        for slot in slots.into_iter().rev() {
            let (entered, inner) = owner.split_outer_slot().unwrap();
            assert_eq!(entered, slot);
            owner = inner;
        }
        assert_eq!((owner, owner.split_outer_slot()), (OwnerPath::HOSTED, None));
    }

    #[test]
    #[should_panic(expected = "too deep")]
    fn a_path_of_five_slots_is_refused() {
        let _ = (0..5).fold(OwnerPath::HOSTED, |owner, _| owner.with_outer_slot(0));
    }

    #[test]
    #[should_panic(expected = "too deep")]
    fn the_number_that_stands_for_no_slot_is_refused() {
        let _ = OwnerPath::from_slot(u16::MAX);
    }

    #[test]
    fn ids_of_two_machines_never_meet() {
        let of = |slot| {
            let (socket, conn) =
                (SocketId::from_number(1).with_outer_slot(slot), ConnId::new_opened(1).with_outer_slot(slot));
            (socket, conn, ConnId::new_accepted(1).with_outer_slot(slot))
        };
        let (a, b) = (of(0), of(1));
        assert!(a.0 != b.0 && a.1 != b.1 && a.2 != b.2 && a.1 != a.2);
        assert!(a.0 != SocketId::from_number(1) && a.1 != ConnId::new_opened(1));
    }

    #[test]
    fn an_input_reaches_the_machine_in_the_terms_of_its_own() {
        let listener = ListenerId { owner: OwnerPath::from_slot(4).with_outer_slot(2), n: 3 };
        let (conn, socket) = (ConnId::accepted_at(listener, 9), SocketId { owner: listener.owner, n: 5 });
        let path = |socket| DatagramPath { socket, local: REMOTE, remote: REMOTE };
        let accepted =
            |listener| StreamEvent::Accepted { listener, remote: REMOTE, local: None, certificate: None };
        let up = |listener| MessageEvent::Accepted { listener, remote: REMOTE, streams: 1 };
        let inner = |owner| (ConnId { owner, ..conn }, SocketId { owner, n: 5 }, ListenerId { owner, n: 3 });
        let all = |(conn, socket, listener): (ConnId, SocketId, ListenerId)| {
            [
                MachineInput::Datagram { path: path(socket), data: b"d" },
                MachineInput::Stream { conn, event: accepted(listener) },
                MachineInput::Stream { conn, event: StreamEvent::Data(b"s") },
                MachineInput::Stream { conn, event: StreamEvent::Closed(CloseReason::Reset) },
                MachineInput::Message { assoc: conn, event: up(listener) },
                MachineInput::Message { assoc: conn, event: MessageEvent::Down(CloseReason::Closed) },
            ]
        };
        let outside = all((conn, socket, listener));
        for (n, input) in outside.into_iter().enumerate() {
            let once = input.split_outer_slot();
            assert_eq!(once, Some((2, all(inner(OwnerPath::from_slot(4)))[n])));
            let twice = once.unwrap().1.split_outer_slot();
            assert_eq!(twice, Some((4, all(inner(OwnerPath::HOSTED))[n])));
            assert_eq!(twice.unwrap().1.split_outer_slot(), None);
        }
        assert_eq!(MachineInput::Timeout.split_outer_slot(), None);
        assert_eq!(MachineInput::Frame { port: PortId(1), data: b"f" }.split_outer_slot(), None);
    }

    #[test]
    fn transmits_of_a_child_machine_carry_its_outer_slot() {
        let conn = ConnId::new_opened(2);
        let stream = Transmit::Stream { conn, op: StreamOp::Data };
        assert_eq!(
            stream.with_outer_slot(6),
            Transmit::Stream { conn: conn.with_outer_slot(6), op: StreamOp::Data }
        );
        let message = Transmit::Message { assoc: conn, op: MessageOp::Abort };
        assert_eq!(
            message.with_outer_slot(6),
            Transmit::Message { assoc: conn.with_outer_slot(6), op: MessageOp::Abort }
        );
        let path = |socket| DatagramPath { socket, local: REMOTE, remote: REMOTE };
        let datagram = |socket| Transmit::Datagram { path: path(socket) };
        assert_eq!(
            datagram(SocketId::from_number(1)).with_outer_slot(6),
            datagram(SocketId::from_number(1).with_outer_slot(6))
        );
        let frame = Transmit::Frame { port: PortId(1) };
        assert_eq!(frame.with_outer_slot(6), frame);
    }
}
