//! A small host in memory and virtual time: stations, access servers and AAA servers, and what lies
//! between them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_aaa::{AaaServer, DIAMETER_LISTENER};
use usher_core::bench::Tap;
use usher_core::{
    CloseReason, ConnId, Duration, Input, Instant, Machine, MessageEvent, MessageOp, Path, StreamEvent,
    StreamOp, Transmit,
};
use usher_nas::{Authenticator, Station};

/// Whose machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Who {
    Station(usize),
    Nas(usize),
    Server(usize),
}

#[derive(Clone, Debug)]
enum What {
    Datagram(Path, Vec<u8>),
    Frame(Vec<u8>),
    Accepted(ConnId, SocketAddr),
    Connected(ConnId, SocketAddr),
    Data(ConnId, Vec<u8>),
    Closed(ConnId, CloseReason),
    AcceptedAssoc(ConnId, SocketAddr, u16),
    Up(ConnId, SocketAddr, u16),
    /// Association, stream, payload protocol, message.
    User(ConnId, u16, u32, Vec<u8>),
    Down(ConnId, CloseReason),
}

/// What a test may see of a packet before it is delivered.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) from: Who,
    pub(crate) to: Who,
    /// Its number among all datagrams, frames or stream writes of this run, from 0.
    pub(crate) number: usize,
    /// How long it is.
    pub(crate) octets: usize,
}

type Filter = Box<dyn FnMut(&Seen) -> bool>;

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) stations: Vec<Tap<Station>>,
    pub(crate) nas: Vec<Tap<Authenticator>>,
    pub(crate) servers: Vec<Tap<AaaServer>>,
    /// Which access server each station is wired to; the wire is the station's number.
    pub(crate) wired_to: Vec<usize>,
    /// One way, everywhere.
    pub(crate) delay: Duration,
    /// Says of each packet whether it arrives.
    pub(crate) passes: Filter,
    /// Servers that are off: datagrams vanish, connections are refused.
    pub(crate) off: Vec<bool>,
    pub(crate) station_events: Vec<(usize, Instant, usher_nas::station::Event)>,
    pub(crate) nas_events: Vec<(usize, Instant, usher_nas::authenticator::Event)>,
    pub(crate) server_events: Vec<(usize, Instant, usher_aaa::Event)>,
    pub(crate) server_jobs: Vec<(usize, Instant, usher_core::Job<usher_aaa::Job>)>,
    pub(crate) work: BTreeMap<&'static str, u32>,
    pub(crate) sent: usize,
    queue: BTreeMap<(Instant, usize), (Who, What)>,
    order: usize,
    /// The other end of each connection.
    ends: HashMap<(Who, ConnId), (Who, ConnId)>,
    accepted: u32,
    /// The ends that are associations.
    assocs: HashSet<(Who, ConnId)>,
    /// Connections and associations opened so far.
    pub(crate) opened: usize,
    /// How many were open at once at most.
    pub(crate) most_open: usize,
    /// The streams of associations that user messages went by.
    pub(crate) streams: BTreeSet<u16>,
}

pub(crate) const RADIUS_PORT: u16 = 1812;
pub(crate) const DIAMETER_PORT: u16 = 3868;

pub(crate) fn nas_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, (i >> 8) as u8, i as u8))
}
pub(crate) fn server_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 2, 0, i as u8))
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::ZERO,
            stations: Vec::new(),
            nas: Vec::new(),
            servers: Vec::new(),
            wired_to: Vec::new(),
            delay: Duration::from_millis(1),
            passes: Box::new(|_| true),
            off: Vec::new(),
            station_events: Vec::new(),
            nas_events: Vec::new(),
            server_events: Vec::new(),
            server_jobs: Vec::new(),
            work: BTreeMap::new(),
            sent: 0,
            queue: BTreeMap::new(),
            order: 0,
            ends: HashMap::new(),
            accepted: 0,
            assocs: HashSet::new(),
            opened: 0,
            most_open: 0,
            streams: BTreeSet::new(),
        }
    }

    fn at(&self, address: SocketAddr) -> Option<Who> {
        let nas = (0..self.nas.len()).find(|&i| nas_address(i) == address.ip()).map(Who::Nas);
        nas.or_else(|| (0..self.servers.len()).find(|&i| server_address(i) == address.ip()).map(Who::Server))
    }
    fn is_off(&self, who: Who) -> bool {
        matches!(who, Who::Server(i) if self.off.get(i) == Some(&true))
    }

    fn post(&mut self, to: Who, what: What) {
        self.order += 1;
        self.queue.insert((self.now + self.delay, self.order), (to, what));
    }
    fn offer(&mut self, from: Who, to: Who, what: What) {
        let octets = match &what {
            What::Datagram(_, b) | What::Frame(b) | What::Data(_, b) | What::User(.., b) => b.len(),
            What::Accepted(..) | What::Connected(..) | What::Closed(..) => 0,
            What::AcceptedAssoc(..) | What::Up(..) | What::Down(..) => 0,
        };
        let seen = Seen { from, to, number: self.sent, octets };
        self.sent += 1;
        if (self.passes)(&seen) && !self.is_off(to) {
            self.post(to, what);
        }
    }

    fn feed(&mut self, who: Who, input: Input<'_>) {
        let now = self.now;
        match who {
            Who::Station(i) => self.stations[i].handle(now, input),
            Who::Nas(i) => self.nas[i].handle(now, input),
            Who::Server(i) => self.servers[i].handle(now, input),
        }
        self.drain(who);
    }

    /// Takes out what a machine has to send and to say; call it after a command.
    pub(crate) fn drain(&mut self, who: Who) {
        let (now, mut buf) = (self.now, Vec::new());
        loop {
            let transmit = match who {
                Who::Station(i) => self.stations[i].poll_transmit(&mut buf),
                Who::Nas(i) => self.nas[i].poll_transmit(&mut buf),
                Who::Server(i) => self.servers[i].poll_transmit(&mut buf),
            };
            let Some(transmit) = transmit else { break };
            self.carry(who, transmit, buf.clone());
        }
        match who {
            Who::Station(i) => {
                while let Some(e) = self.stations[i].poll_event() {
                    self.station_events.push((i, now, e));
                }
            }
            Who::Nas(i) => {
                while let Some(e) = self.nas[i].poll_event() {
                    self.nas_events.push((i, now, e));
                }
            }
            Who::Server(i) => {
                while let Some(e) = self.servers[i].poll_event() {
                    self.server_events.push((i, now, e));
                }
                while let Some(job) = self.servers[i].poll_job() {
                    self.server_jobs.push((i, now, job));
                }
            }
        }
        loop {
            let work = match who {
                Who::Station(i) => self.stations[i].poll_work(),
                Who::Nas(i) => self.nas[i].poll_work(),
                Who::Server(i) => self.servers[i].poll_work(),
            };
            let Some(work) = work else { break };
            *self.work.entry(work.label.name()).or_default() += work.units;
        }
    }

    fn carry(&mut self, from: Who, transmit: Transmit, bytes: Vec<u8>) {
        match transmit {
            Transmit::Frame { port } => {
                let to = match from {
                    Who::Station(i) => Who::Nas(self.wired_to[i]),
                    _ => Who::Station(port.0 as usize),
                };
                self.offer(from, to, What::Frame(bytes));
            }
            Transmit::Datagram { path } => {
                let Some(to) = self.at(path.remote) else { return };
                let source = match from {
                    Who::Nas(i) => SocketAddr::new(nas_address(i), 50_000 + path.socket.n as u16),
                    Who::Server(i) => SocketAddr::new(server_address(i), RADIUS_PORT),
                    Who::Station(_) => return,
                };
                let socket = match to {
                    Who::Nas(_) => usher_core::SocketId::own(u32::from(path.remote.port() - 50_000)),
                    _ => usher_aaa::radius_socket(0),
                };
                let path = Path { socket, local: path.remote, remote: source };
                self.offer(from, to, What::Datagram(path, bytes));
            }
            Transmit::Stream { conn, op } => self.stream(from, conn, op, bytes),
            Transmit::Message { assoc, op } => self.message(from, assoc, op, bytes),
        }
    }

    /// Where a connection to `remote` ends, unless that is off.
    fn accept(&mut self, from: Who, conn: ConnId, remote: SocketAddr) -> Option<(Who, ConnId, SocketAddr)> {
        let to = self.at(remote).filter(|to| !self.is_off(*to))?;
        let Who::Nas(i) = from else { return None };
        let incoming = ConnId::accepted_at(DIAMETER_LISTENER, self.accepted);
        self.accepted += 1;
        self.ends.insert((from, conn), (to, incoming));
        self.ends.insert((to, incoming), (from, conn));
        self.opened += 1;
        self.most_open = self.most_open.max(self.open());
        Some((to, incoming, SocketAddr::new(nas_address(i), 40_000)))
    }
    /// Connections and associations that are open now.
    pub(crate) fn open(&self) -> usize {
        self.ends.len() / 2
    }

    fn message(&mut self, from: Who, assoc: ConnId, op: MessageOp, bytes: Vec<u8>) {
        match op {
            MessageOp::Connect { remote, streams, .. } => match self.accept(from, assoc, remote) {
                Some((to, incoming, source)) => {
                    self.assocs.extend([(from, assoc), (to, incoming)]);
                    self.post(to, What::AcceptedAssoc(incoming, source, streams));
                    self.post(from, What::Up(assoc, remote, streams));
                }
                None => self.post(from, What::Down(assoc, CloseReason::Refused)),
            },
            MessageOp::Data { stream, ppid, .. } => {
                self.streams.insert(stream);
                if let Some(&(to, end)) = self.ends.get(&(from, assoc)) {
                    self.offer(from, to, What::User(end, stream, ppid, bytes));
                }
            }
            MessageOp::Shutdown | MessageOp::Abort => {
                let reason = if op == MessageOp::Abort { CloseReason::Reset } else { CloseReason::Closed };
                if let Some((to, end)) = self.ends.remove(&(from, assoc)) {
                    self.ends.remove(&(to, end));
                    self.post(to, What::Down(end, reason));
                    self.post(from, What::Down(assoc, reason));
                }
            }
        }
    }

    fn stream(&mut self, from: Who, conn: ConnId, op: StreamOp, bytes: Vec<u8>) {
        match op {
            StreamOp::Connect { remote, .. } => match self.accept(from, conn, remote) {
                Some((to, incoming, source)) => {
                    self.post(to, What::Accepted(incoming, source));
                    self.post(from, What::Connected(conn, remote));
                }
                None => self.post(from, What::Closed(conn, CloseReason::Refused)),
            },
            StreamOp::Data => {
                if let Some(&(to, end)) = self.ends.get(&(from, conn)) {
                    self.offer(from, to, What::Data(end, bytes));
                }
            }
            StreamOp::Credit(_) => {}
            StreamOp::Shutdown | StreamOp::Abort => {
                let reason = if op == StreamOp::Abort { CloseReason::Reset } else { CloseReason::Closed };
                if let Some((to, end)) = self.ends.remove(&(from, conn)) {
                    self.ends.remove(&(to, end));
                    self.post(to, What::Closed(end, reason));
                    self.post(from, What::Closed(conn, reason));
                }
            }
        }
    }

    /// Switches a server off: its connections are reset.
    pub(crate) fn switch_off(&mut self, server: usize) {
        self.off.resize(self.servers.len(), false);
        self.off[server] = true;
        let mut cut: Vec<_> = self
            .ends
            .iter()
            .filter(|((who, _), _)| *who == Who::Server(server))
            .map(|(a, b)| (*a, *b))
            .collect();
        cut.sort();
        for (here, (to, end)) in cut {
            self.ends.remove(&here);
            self.ends.remove(&(to, end));
            let closed = if self.assocs.contains(&(to, end)) { What::Down } else { What::Closed };
            self.post(to, closed(end, CloseReason::Reset));
        }
    }

    fn next_timeout(&mut self) -> Option<(Instant, Who)> {
        let mut next: Option<(Instant, Who)> = None;
        let mut take = |at: Option<Instant>, who: Who| {
            if let Some(at) = at {
                next = Some(next.map_or((at, who), |n| n.min((at, who))));
            }
        };
        for (i, m) in self.stations.iter_mut().enumerate() {
            take(m.poll_timeout(), Who::Station(i));
        }
        for (i, m) in self.nas.iter_mut().enumerate() {
            take(m.poll_timeout(), Who::Nas(i));
        }
        for (i, m) in self.servers.iter_mut().enumerate() {
            take(m.poll_timeout(), Who::Server(i));
        }
        next
    }

    /// Takes one step, if there is one before `end`.
    fn step(&mut self, end: Instant) -> bool {
        let timeout = self.next_timeout();
        let packet = self.queue.first_key_value().map(|(&key, _)| key);
        match (packet, timeout) {
            (Some((at, order)), t) if t.is_none_or(|(t, _)| at <= t) => {
                if at > end {
                    return false;
                }
                self.now = self.now.max(at);
                let Some((to, what)) = self.queue.remove(&(at, order)) else { return false };
                self.deliver(to, &what);
            }
            (_, Some((at, who))) => {
                if at > end {
                    return false;
                }
                assert!(
                    at >= self.now || self.now - at < Duration::from_secs(1),
                    "{who:?} asks for the past"
                );
                self.now = self.now.max(at);
                self.feed(who, Input::Timeout);
            }
            _ => return false,
        }
        true
    }

    fn deliver(&mut self, to: Who, what: &What) {
        if self.is_off(to) {
            return;
        }
        match what {
            What::Datagram(path, data) => self.feed(to, Input::Datagram { path: *path, data }),
            What::Frame(data) => {
                let port = match to {
                    Who::Nas(_) => self.port_of(data),
                    _ => usher_core::PortId(0),
                };
                self.feed(to, Input::Frame { port, data });
            }
            What::Accepted(conn, remote) => {
                let (listener, remote) = (DIAMETER_LISTENER, *remote);
                let event = StreamEvent::Accepted { listener, remote, local: None, certificate: None };
                self.feed(to, Input::Stream { conn: *conn, event });
            }
            What::Connected(conn, remote) => {
                let event = StreamEvent::Connected { remote: *remote, local: None, certificate: None };
                self.feed(to, Input::Stream { conn: *conn, event });
            }
            What::Data(conn, data) => {
                self.feed(to, Input::Stream { conn: *conn, event: StreamEvent::Data(data) });
            }
            What::Closed(conn, reason) => {
                self.feed(to, Input::Stream { conn: *conn, event: StreamEvent::Closed(*reason) });
            }
            What::AcceptedAssoc(assoc, remote, streams) => {
                let (listener, remote) = (DIAMETER_LISTENER, *remote);
                let event = MessageEvent::Accepted { listener, remote, streams: *streams };
                self.feed(to, Input::Message { assoc: *assoc, event });
            }
            What::Up(assoc, remote, streams) => {
                let event = MessageEvent::Up { remote: *remote, streams: *streams };
                self.feed(to, Input::Message { assoc: *assoc, event });
            }
            What::User(assoc, stream, ppid, data) => {
                let event = MessageEvent::Data { stream: *stream, ppid: *ppid, data };
                self.feed(to, Input::Message { assoc: *assoc, event });
            }
            What::Down(assoc, reason) => {
                self.feed(to, Input::Message { assoc: *assoc, event: MessageEvent::Down(*reason) });
            }
        }
    }

    /// A station's frames come in by the port of its number, which its address tells.
    fn port_of(&self, frame: &[u8]) -> usher_core::PortId {
        let source = frame.get(6..12).unwrap_or(&[0; 6]);
        usher_core::PortId(u32::from_be_bytes([source[2], source[3], source[4], source[5]]))
    }

    /// Runs until nothing happens before `seconds`.
    pub(crate) fn run_until(&mut self, seconds: u64) {
        self.run_to(Instant::ZERO + Duration::from_secs(seconds));
    }
    pub(crate) fn run_to(&mut self, end: Instant) {
        let mut steps = 0;
        while self.step(end) {
            steps += 1;
            assert!(steps < 10_000_000, "the world does not come to rest");
        }
        self.now = self.now.max(end);
    }
    /// Hands a machine bytes of the test's own making.
    pub(crate) fn inject(&mut self, who: Who, input: Input<'_>) {
        self.feed(who, input);
    }
}
