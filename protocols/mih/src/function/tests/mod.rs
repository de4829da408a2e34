//! Two MIH functions joined by a pipe in virtual time.

mod datagrams;
mod faults;
mod management;
mod properties;
mod streams;

use super::*;
use crate::{Decoded, Header, MessageId, Opcode, Status, Tlv};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::Tap;
use usher_core::{
    CloseReason, ConnId, Duration, ListenerId, MessageOp, Path, Seed, SocketId, StreamOp, Transmit,
};

pub(super) const STATION: usize = 0;
pub(super) const POS: usize = 1;
/// One way.
pub(super) const DELAY: Duration = Duration::from_millis(20);

pub(super) fn id(side: usize) -> MihfId {
    MihfId::new(["mn@example", "pos@example"][side]).unwrap()
}

pub(super) fn ip(side: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, side as u8 + 1])
}

pub(super) fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

pub(super) fn route(transport: Transport, to: usize) -> Route {
    Route { transport, local: None, remote: SocketAddr::new(ip(to), PORT) }
}

const LISTENER: ListenerId = ListenerId::own(0);

/// Somebody begins a connection.
pub(super) fn accepted(remote: SocketAddr) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: LISTENER, remote, local: None, certificate: None }
}

/// What becomes of a packet: the delays after which it arrives, so that none is a loss and two are a duplicate.
pub(super) type Fate = Box<dyn FnMut(usize, &Decoded) -> Vec<Duration>>;

enum Arrival {
    Datagram(usize, Path, Vec<u8>),
    Up(usize, ConnId, Transport),
    Data(usize, ConnId, Transport, u16, Vec<u8>),
    Down(usize, ConnId, Transport, CloseReason),
    Timer(usize),
}

/// The two of them, the pipe, and what they said.
pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) sides: [Tap<Mihf>; 2],
    queue: BTreeMap<(Instant, u64), Arrival>,
    sequence: u64,
    timers: [Option<Instant>; 2],
    pub(super) fate: Fate,
    /// Who sent what when, in short.
    pub(super) log: Vec<String>,
    pub(super) events: Vec<(u64, usize, Event)>,
    /// The other end of a connection.
    wires: BTreeMap<(usize, ConnId), ConnId>,
    accepted: u32,
    /// Connections are refused.
    pub(super) refusing: bool,
    /// Octets of a stream that arrive at once.
    pub(super) chunk: usize,
    /// The streams of associations on which something was sent.
    pub(super) streams: Vec<u16>,
    /// Sockets and addresses from which datagrams were sent.
    pub(super) paths: Vec<(u32, SocketAddr, SocketAddr)>,
}

impl Pair {
    pub(super) fn new(transport: Transport, ack: bool, settings: impl Fn(&mut Config)) -> Self {
        let side = |side: usize| {
            let mut config = Config::new(id(side));
            config.timing.retransmission = Duration::from_millis(100);
            settings(&mut config);
            Tap::new(Mihf::new(config, Seed::new(7).stream("mihf", side as u64)))
        };
        let mut pair = Self {
            now: Instant::ZERO,
            sides: [side(STATION), side(POS)],
            queue: BTreeMap::new(),
            sequence: 0,
            timers: [None; 2],
            fate: Box::new(|_, _| vec![DELAY]),
            log: Vec::new(),
            events: Vec::new(),
            wires: BTreeMap::new(),
            accepted: 0,
            refusing: false,
            chunk: usize::MAX,
            streams: Vec::new(),
            paths: Vec::new(),
        };
        for side in [STATION, POS] {
            let route = route(transport, 1 - side);
            pair.command(side, Command::Peer(Peer { id: id(1 - side), route, ack })).unwrap();
        }
        pair
    }
    /// Packets by their number in the order in which they are sent, from 0: these are lost.
    pub(super) fn lose(mut self, lost: &'static [usize]) -> Self {
        let mut n = 0;
        self.fate = Box::new(move |_, _| {
            n += 1;
            if lost.contains(&(n - 1)) { vec![] } else { vec![DELAY] }
        });
        self
    }
    pub(super) fn command(&mut self, side: usize, command: Command) -> Result<(), CommandError> {
        let done = self.sides[side].command(self.now, command);
        self.drain(side);
        done
    }
    pub(super) fn send(&mut self, side: usize, token: u64, message: Message) {
        self.command(side, Command::Send { token, to: id(1 - side), message }).unwrap();
    }
    /// Gives a datagram to a side as if it had come from the other.
    pub(super) fn inject(&mut self, side: usize, octets: &[u8]) {
        let path = Path {
            socket: SocketId::own(0),
            local: SocketAddr::new(ip(side), PORT),
            remote: SocketAddr::new(ip(1 - side), PORT),
        };
        self.sides[side].handle(self.now, Input::Datagram { path, data: octets });
        self.drain(side);
    }
    fn push(&mut self, at: Instant, arrival: Arrival) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), arrival);
    }
    fn drain(&mut self, side: usize) {
        let mut buf = Vec::new();
        while let Some(transmit) = self.sides[side].poll_transmit(&mut buf) {
            match transmit {
                Transmit::Datagram { path } => self.datagram(side, path, &buf),
                Transmit::Stream { conn, op } => match op {
                    StreamOp::Connect { .. } => self.connect(side, conn, Transport::Tcp),
                    StreamOp::Data => self.connection(side, conn, Transport::Tcp, 0, &buf),
                    StreamOp::Abort => self.close(side, conn, Transport::Tcp),
                    other => panic!("{other:?}"),
                },
                Transmit::Message { assoc, op } => match op {
                    MessageOp::Connect { streams, .. } => {
                        assert_eq!(streams, 4);
                        self.connect(side, assoc, Transport::Sctp);
                    }
                    MessageOp::Data { stream, unordered, .. } => {
                        assert!(!unordered);
                        self.streams.push(stream);
                        self.connection(side, assoc, Transport::Sctp, stream, &buf);
                    }
                    MessageOp::Abort => self.close(side, assoc, Transport::Sctp),
                    other => panic!("{other:?}"),
                },
                Transmit::Frame { .. } => panic!("frames are not ours"),
            }
        }
        while let Some(event) = self.sides[side].poll_event() {
            self.events.push((self.now.as_nanos() / 1_000_000, side, event));
        }
        let next = self.sides[side].poll_timeout();
        if next != self.timers[side] {
            self.timers[side] = next;
            if let Some(at) = next {
                self.push(at.max(self.now), Arrival::Timer(side));
            }
        }
    }
    fn connect(&mut self, side: usize, conn: ConnId, transport: Transport) {
        self.log.push(format!("{} {} connect", self.now.as_nanos() / 1_000_000, ["mn", "pos"][side]));
        if self.refusing {
            self.push(self.now + DELAY * 2, Arrival::Down(side, conn, transport, CloseReason::Refused));
            return;
        }
        let other = ConnId::accepted(self.accepted);
        self.accepted += 1;
        self.wires.insert((side, conn), other);
        self.wires.insert((1 - side, other), conn);
        self.push(self.now + DELAY, Arrival::Up(1 - side, other, transport));
        self.push(self.now + DELAY * 2, Arrival::Up(side, conn, transport));
    }
    fn connection(&mut self, side: usize, conn: ConnId, transport: Transport, stream: u16, octets: &[u8]) {
        let decoded = Message::decode(octets).unwrap();
        self.note(side, &decoded);
        let Some(&other) = self.wires.get(&(side, conn)) else { return };
        let chunk = if transport == Transport::Sctp { usize::MAX } else { self.chunk };
        for part in octets.chunks(chunk) {
            let arrival = Arrival::Data(1 - side, other, transport, stream, part.to_vec());
            self.push(self.now + DELAY, arrival);
        }
    }
    fn close(&mut self, side: usize, conn: ConnId, transport: Transport) {
        self.log.push(format!("{} {} abort", self.now.as_nanos() / 1_000_000, ["mn", "pos"][side]));
        if let Some(other) = self.wires.remove(&(side, conn)) {
            self.wires.remove(&(1 - side, other));
            self.push(self.now + DELAY, Arrival::Down(1 - side, other, transport, CloseReason::Reset));
        }
    }
    /// Resets all connections, as seen by both sides.
    pub(super) fn cut(&mut self, transport: Transport) {
        for (side, conn) in core::mem::take(&mut self.wires).into_keys() {
            self.push(self.now, Arrival::Down(side, conn, transport, CloseReason::Reset));
        }
    }
    /// Gives octets of a connection to a side that somebody else has opened.
    pub(super) fn stream(&mut self, side: usize, n: u32, event: StreamEvent<'_>) {
        let conn = ConnId::accepted(n);
        self.sides[side].handle(self.now, Input::Stream { conn, event });
        self.drain(side);
    }
    fn arrive(&mut self, side: usize, conn: ConnId, transport: Transport, stream: u16, data: &[u8]) {
        let input = match transport {
            Transport::Sctp => {
                Input::Message { assoc: conn, event: MessageEvent::Data { stream, ppid: 0, data } }
            }
            _ => Input::Stream { conn, event: StreamEvent::Data(data) },
        };
        self.sides[side].handle(self.now, input);
    }
    fn datagram(&mut self, side: usize, path: Path, octets: &[u8]) {
        self.paths.push((path.socket.n, path.local, path.remote));
        let back =
            Path { socket: SocketId::own(0), local: path.remote, remote: SocketAddr::new(ip(side), PORT) };
        let Ok(decoded) = Message::decode(octets) else {
            let header = Header::parse(octets).unwrap();
            let what = if header.is_fragment() {
                format!("fragment {}", header.fragment)
            } else {
                format!("unknown {}", header.id.opcode)
            };
            self.log.push(format!("{} {} {what}", self.now.as_nanos() / 1_000_000, ["mn", "pos"][side]));
            self.push(self.now + DELAY, Arrival::Datagram(1 - side, back, octets.to_vec()));
            return;
        };
        self.note(side, &decoded);
        for delay in (self.fate)(side, &decoded) {
            self.push(self.now + delay, Arrival::Datagram(1 - side, back, octets.to_vec()));
        }
    }
    pub(super) fn note(&mut self, side: usize, decoded: &Decoded) {
        let Header { id, ack_req, ack_rsp, .. } = decoded.header;
        let what = if decoded.is_acknowledgement() {
            "ack".to_owned()
        } else {
            let flags = [(ack_req, "+req"), (ack_rsp, "+rsp")];
            let flags: String = flags.into_iter().filter(|(on, _)| *on).map(|(_, f)| f).collect();
            format!("{}{flags}", id.opcode)
        };
        let ms = self.now.as_nanos() / 1_000_000;
        self.log.push(format!("{ms} {} {what}", ["mn", "pos"][side]));
    }
    /// Lets time pass until this moment, and all that happens by then.
    pub(super) fn run(&mut self, until: Instant) {
        while self.next().is_some_and(|at| at <= until) {
            self.step();
        }
        self.now = until;
    }
    fn next(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }
    fn step(&mut self) {
        let Some(((at, _), arrival)) = self.queue.pop_first() else { return };
        self.now = at;
        match arrival {
            Arrival::Datagram(side, path, data) => {
                self.sides[side].handle(at, Input::Datagram { path, data: &data });
                self.drain(side);
            }
            Arrival::Up(side, conn, transport) => {
                let remote = SocketAddr::new(ip(1 - side), if conn.is_accepted() { 40000 } else { PORT });
                let input = match transport {
                    Transport::Sctp if conn.is_accepted() => {
                        let event = MessageEvent::Accepted { listener: LISTENER, remote, streams: 4 };
                        Input::Message { assoc: conn, event }
                    }
                    Transport::Sctp => {
                        Input::Message { assoc: conn, event: MessageEvent::Up { remote, streams: 4 } }
                    }
                    _ if conn.is_accepted() => Input::Stream { conn, event: accepted(remote) },
                    _ => {
                        let event = StreamEvent::Connected { remote, local: None, certificate: None };
                        Input::Stream { conn, event }
                    }
                };
                self.sides[side].handle(at, input);
                self.drain(side);
            }
            Arrival::Data(side, conn, transport, stream, data) => {
                if self.wires.contains_key(&(side, conn)) {
                    self.arrive(side, conn, transport, stream, &data);
                    self.drain(side);
                }
            }
            Arrival::Down(side, conn, transport, reason) => {
                let input = match transport {
                    Transport::Sctp => Input::Message { assoc: conn, event: MessageEvent::Down(reason) },
                    _ => Input::Stream { conn, event: StreamEvent::Closed(reason) },
                };
                self.sides[side].handle(at, input);
                self.drain(side);
            }
            Arrival::Timer(side) => {
                if self.timers[side].is_some_and(|due| due <= at) {
                    self.timers[side] = None;
                    self.sides[side].handle(at, Input::Timeout);
                    self.drain(side);
                }
            }
        }
    }
    /// Lets time pass; the point of service answers what it is asked after this time.
    pub(super) fn serve(&mut self, processing: Duration, until: Instant) {
        let mut seen = 0;
        let mut due: BTreeMap<(Instant, usize), (usize, Incoming, MessageId)> = BTreeMap::new();
        loop {
            while let Some((ms, side, event)) = self.events.get(seen) {
                if let Event::Request { transaction, message, .. } = event {
                    due.insert((at(*ms) + processing, seen), (*side, *transaction, message.id));
                }
                seen += 1;
            }
            let next = self.next();
            let answer = due.first_key_value().map(|((at, _), _)| *at);
            match (next, answer) {
                (_, Some(answer)) if answer <= until && next.is_none_or(|next| answer <= next) => {
                    self.now = answer;
                    let (_, (side, transaction, id)) = due.pop_first().unwrap();
                    let message = Message::new(id.response(), answer_to(id));
                    let _ = self.command(side, Command::Respond { transaction, message });
                }
                (Some(next), _) if next <= until => self.step(),
                _ => break,
            }
        }
        self.run(until);
    }
    pub(super) fn done(&self) -> Vec<(u64, u64, String)> {
        let results = self.events.iter().filter_map(|(ms, _, event)| match event {
            Event::Done { token, result: Ok(message) } => {
                let what = message.as_ref().map_or("done".to_owned(), |m| format!("{}", m.id.opcode));
                Some((*ms, *token, what))
            }
            Event::Done { token, result: Err(failure) } => Some((*ms, *token, format!("{failure:?}"))),
            _ => None,
        });
        results.collect()
    }
    /// How often a side was given an indication or a request.
    pub(super) fn delivered(&self, side: usize) -> usize {
        let given = |event: &Event| matches!(event, Event::Indication { .. } | Event::Request { .. });
        self.events.iter().filter(|(_, s, event)| *s == side && given(event)).count()
    }
}

fn answer_to(id: MessageId) -> Vec<Tlv> {
    assert_eq!(id.opcode, Opcode::Request);
    vec![Tlv::Status(Status::Success)]
}

pub(super) fn indication() -> Message {
    Message::new(MessageId::PUSH_INFORMATION_INDICATION, [])
}

/// A request that a function without a store gives to its user.
pub(super) fn request() -> Message {
    Message::new(MessageId::GET_INFORMATION_REQUEST, [])
}
