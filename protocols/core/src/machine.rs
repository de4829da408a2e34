//! The one shape of every protocol endpoint.
//!
//! A host (the simulator, a live driver, a test) owns a [`Machine`] and
//!
//! 1. feeds it one [`Input`], one command, or datagrams that came together ([`Machine::handle_datagrams`]), with the time;
//! 2. then drains, until each answers `None`: [`Machine::poll_transmit`] (what it wants sent),
//!    [`Machine::poll_event`] (what it has to say) and [`Machine::poll_work`] (what that cost);
//! 3. then arms one timer for [`Machine::poll_timeout`] and feeds [`Input::Timeout`] when it comes.
//!
//! Draining costs what changed, not what exists: a machine keeps a ready list and a timer queue.
//! Bad input from outside is a counted drop, never an `Err`; `Err` is for the caller's misuse.
//!
//! Machines hold no reference to each other. They are composed by token: one machine's event carries a
//! token that becomes another's command and comes back with the result.

use crate::time::Instant;
use crate::work::WorkLabel;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// A datagram socket of the machine: index in an order that machine and host agree on (0 is the first).
///
/// A machine that needs a further source port (RFC 2865 §2.5: a RADIUS client with 256 outstanding
/// identifiers) sends on an id it has not used yet; the host then binds a new port for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SocketId(pub u32);

/// Where a datagram came from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Path {
    /// Our socket.
    pub socket: SocketId,
    /// Our address: the one to which a datagram came, the one from which it is to go. Port 0 or an unspecified address
    /// leaves the choice to the host.
    pub local: SocketAddr,
    /// The other side's address.
    pub remote: SocketAddr,
}

/// A stream (TCP, TLS) connection of the machine.
///
/// Ids of connections that the machine opens are chosen by the machine ([`ConnId::outgoing`]), ids of
/// accepted ones by the host ([`ConnId::incoming`]); the two ranges never meet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(u32);

impl ConnId {
    const INCOMING: u32 = 1 << 31;
    /// The id of the machine's `n`-th own connection.
    pub const fn outgoing(n: u32) -> Self {
        Self(n & !Self::INCOMING)
    }
    /// The id of the `n`-th connection that the host accepted for the machine.
    pub const fn incoming(n: u32) -> Self {
        Self(n | Self::INCOMING)
    }
    /// True for an accepted connection.
    pub const fn is_incoming(self) -> bool {
        self.0 & Self::INCOMING != 0
    }
    /// The number within its range.
    pub const fn index(self) -> u32 {
        self.0 & !Self::INCOMING
    }
}

/// A message-oriented association (SCTP) of the machine; numbered as [`ConnId`] is, and with it: a machine
/// counts the streams and the associations that it opens by one counter, a host those that it accepts for
/// one machine, so that no association has the number of a stream.
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
    /// It is up; with the peer's end-entity certificate (DER) where TLS asked for one.
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
    /// It is over; no further event will come.
    Closed(CloseReason),
}

/// What happens on a message-oriented association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageEvent<'a> {
    /// It is up, with this many streams each way.
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
pub enum Input<'a> {
    /// A datagram arrived.
    Datagram {
        /// Where it came from, and on which socket.
        path: Path,
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
/// [`Machine::poll_transmit`]. Mirrors [`Input`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transmit {
    /// Send the buffer as one datagram.
    Datagram {
        /// From which socket, to which address.
        path: Path,
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

/// Labelled work that a handler did, for the simulated CPU: the study file or a measured profile says
/// how long one unit takes; a label that it does not name costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Work {
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

/// A protocol endpoint without input or output of its own; see the [module](self) for how to drive it.
pub trait Machine {
    /// What the host or another machine may ask of it.
    type Command;
    /// What it has to say.
    type Event;

    /// Feeds one input. Afterwards drain all `poll_*` until they answer `None`.
    fn handle(&mut self, now: Instant, input: Input<'_>);

    /// Feeds several datagrams that came together, in their order. Afterwards drain all `poll_*` until they answer `None`.
    ///
    /// A machine of machines may take all of them through one step before it takes any through the next: what a login runs
    /// through as a whole does not fit into a processor's first cache of instructions, and each would fetch it anew. What is
    /// answered in an early step is then sent before what is answered in a later one, whichever came first.
    fn handle_datagrams(&mut self, now: Instant, datagrams: &[(Path, &[u8])]) {
        for &(path, data) in datagrams {
            self.handle(now, Input::Datagram { path, data });
        }
    }

    /// Gives one command. Afterwards drain all `poll_*` until they answer `None`.
    ///
    /// # Errors
    /// The command was refused and nothing changed.
    fn command(&mut self, now: Instant, command: Self::Command) -> Result<(), CommandError>;

    /// The next thing to send. `buf` is cleared and then holds its bytes; it is empty for an operation
    /// without data. Poll again until `None`.
    #[must_use]
    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit>;

    /// When to feed [`Input::Timeout`]; asked again after every feed, since it may have moved either way.
    #[must_use]
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// The next event. Poll again until `None`.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The next piece of labelled work done since the last poll. Poll again until `None`.
    #[must_use]
    fn poll_work(&mut self) -> Option<Work> {
        None
    }
}
