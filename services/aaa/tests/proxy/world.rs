//! Servers on one network without delay, and a RADIUS client that asks the first of them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_aaa::{AaaServer, Command, Config, DIAMETER_LISTENER, Event, Job, RADSEC_LISTENER, radius_socket};
use usher_core::bench::Tap;
use usher_core::{
    CloseReason, ConnId, Duration, Input, Instant, Machine, Owner, Path, Seed, SocketId, StreamEvent,
    StreamOp, Transmit,
};
use usher_eap::peer::{self, Peer};
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, Retransmission, ServerConfig, Target};
use usher_radius::server::{self, Role, Server};
use usher_radius::{Attributes, Code, Secret};

/// The NAS is 10.0.0.1; server `n` is 10.0.1.n.
pub(crate) const NAS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) fn address(server: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, server as u8).into()
}
pub(crate) fn secret(name: &str) -> Secret {
    Secret::new(format!("the secret of {name}").as_bytes())
}

/// Each server listens on 1812 and 1813; other sockets have ports of their own, by their owner's slot.
fn port(socket: SocketId) -> u16 {
    let slot = socket.owner.enter().map_or(0, |(slot, _)| slot);
    match (0..2).find(|&n| socket == radius_socket(n)) {
        Some(n) => 1812 + n as u16,
        None => 40_000 + (slot << 12) + (socket.n & 0xfff) as u16,
    }
}
fn socket(port: u16) -> SocketId {
    match port {
        1812 | 1813 => radius_socket(u32::from(port - 1812)),
        _ => {
            let (slot, n) = ((port - 40_000) >> 12, (port - 40_000) & 0xfff);
            SocketId { owner: Owner::slot(slot), n: n.into() }
        }
    }
}

/// One end of a connection: whose, and its number there.
type End = (usize, ConnId);

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) nas: Tap<Client>,
    /// The NAS's other side: what asks it for changes.
    pub(crate) nas_server: Tap<Server>,
    pub(crate) servers: Vec<Tap<AaaServer>>,
    /// Servers that nothing reaches and that send nothing.
    pub(crate) off: Vec<bool>,
    pub(crate) events: Vec<(usize, Event)>,
    /// The servers that were asked to keep a record.
    pub(crate) kept: Vec<usize>,
    pub(crate) answers: Vec<client::Response>,
    pub(crate) silent: Vec<u64>,
    pub(crate) asked_nas: Vec<server::Request>,
    /// Datagrams, but Status-Server, and octets that servers took.
    pub(crate) datagrams: Vec<usize>,
    pub(crate) streamed: Vec<usize>,
    ends: BTreeMap<End, End>,
    accepted: u32,
    next: u64,
    queue: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
}

impl World {
    pub(crate) fn new(configs: Vec<Config>) -> Self {
        let seed = Seed::new(5);
        let to = ServerConfig::new(SocketAddr::new(address(0), 1812), secret("nas"));
        let mut config = client::Config::single(to);
        config.servers.push(ServerConfig::new(SocketAddr::new(address(0), 1813), secret("nas")));
        config.retransmission = Retransmission::Fixed { interval: Duration::from_secs(10), count: 4 };
        let any = server::ClientConfig::new(address(0), 32, secret("nas"));
        let dynamic = server::Config { role: Role::DynamicAuthorization, ..server::Config::new(vec![any]) };
        let n = configs.len();
        let servers = configs.into_iter().enumerate();
        let mut w = Self {
            now: Instant::ZERO,
            nas: Tap::new(Client::new(config, seed.secure("nas", 0)).unwrap()),
            nas_server: Tap::new(Server::new(dynamic, seed.secure("nas", 1)).unwrap()),
            servers: servers
                .map(|(i, c)| Tap::new(AaaServer::new(c, seed.secure("aaa", i as u64)).unwrap()))
                .collect(),
            off: vec![false; n],
            events: Vec::new(),
            kept: Vec::new(),
            answers: Vec::new(),
            silent: Vec::new(),
            asked_nas: Vec::new(),
            datagrams: vec![0; n],
            streamed: vec![0; n],
            ends: BTreeMap::new(),
            accepted: 0,
            next: 0,
            queue: VecDeque::new(),
        };
        w.settle();
        w
    }

    /// Everything that can happen now.
    pub(crate) fn settle(&mut self) {
        let mut buf = Vec::new();
        loop {
            let mut idle = true;
            while let Some(Transmit::Datagram { path }) = self.nas.poll_transmit(&mut buf) {
                let from = SocketAddr::new(NAS, 40_000 + path.socket.n as u16);
                self.queue.push_back((from, path.remote, buf.clone()));
            }
            while let Some(Transmit::Datagram { path }) = self.nas_server.poll_transmit(&mut buf) {
                self.queue.push_back((SocketAddr::new(NAS, 3799), path.remote, buf.clone()));
            }
            for s in 0..self.servers.len() {
                while let Some(transmit) = self.servers[s].poll_transmit(&mut buf) {
                    idle = false;
                    match transmit {
                        Transmit::Datagram { path } => {
                            let from = SocketAddr::new(address(s), port(path.socket));
                            self.queue.push_back((from, path.remote, buf.clone()));
                        }
                        Transmit::Stream { conn, op } => self.carry(s, conn, op, &buf),
                        other => panic!("{other:?}"),
                    }
                }
                while let Some(event) = self.servers[s].poll_event() {
                    idle = false;
                    self.events.push((s, event));
                }
                while let Some(job) = self.servers[s].poll_job() {
                    idle = false;
                    if let Job::Account { .. } = job.what {
                        let durable = Command::Accounted { token: job.token, durable: true };
                        self.servers[s].command(self.now, durable).unwrap();
                        self.kept.push(s);
                    }
                }
            }
            while let Some((from, to, data)) = self.queue.pop_front() {
                idle = false;
                self.deliver(from, to, &data);
            }
            while let Some(event) = self.nas.poll_event() {
                match event {
                    client::Event::Response(r) => self.answers.push(r),
                    client::Event::TimedOut { token } => self.silent.push(token),
                    client::Event::Server { .. } => panic!("nobody is watched"),
                }
            }
            while let Some(server::Event::Request(r)) = self.nas_server.poll_event() {
                self.asked_nas.push(r);
            }
            if idle {
                return;
            }
        }
    }

    fn server_at(&self, at: IpAddr) -> Option<usize> {
        (0..self.servers.len()).find(|&s| address(s) == at)
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8]) {
        if self.server_at(from.ip()).is_some_and(|s| self.off[s]) {
            return;
        }
        let path = |socket| Path { socket, local: to, remote: from };
        if to.ip() == NAS && to.port() == 3799 {
            return self.nas_server.handle(self.now, Input::Datagram { path: path(SocketId::own(0)), data });
        }
        if to.ip() == NAS {
            let path = path(SocketId::own(u32::from(to.port() - 40_000)));
            return self.nas.handle(self.now, Input::Datagram { path, data });
        }
        let s = self.server_at(to.ip()).unwrap();
        if !self.off[s] {
            self.datagrams[s] += usize::from(data[0] != Code::STATUS_SERVER.0);
            self.servers[s].handle(self.now, Input::Datagram { path: path(socket(to.port())), data });
        }
    }

    fn feed(&mut self, (s, conn): End, event: StreamEvent<'_>) {
        self.servers[s].handle(self.now, Input::Stream { conn, event });
    }

    fn carry(&mut self, s: usize, conn: ConnId, op: StreamOp, data: &[u8]) {
        let end = (s, conn);
        match op {
            StreamOp::Connect { remote, .. } => {
                let to = self.server_at(remote.ip()).unwrap();
                if self.off[s] || self.off[to] {
                    return self.feed(end, StreamEvent::Closed(CloseReason::Refused));
                }
                let listener = if remote.port() == 2083 { RADSEC_LISTENER } else { DIAMETER_LISTENER };
                let other = (to, ConnId::accepted_at(listener, self.accepted));
                self.accepted += 1;
                self.ends.insert(end, other);
                self.ends.insert(other, end);
                let from = SocketAddr::new(address(s), 30_000 + self.accepted as u16);
                self.feed(
                    other,
                    StreamEvent::Accepted { listener, remote: from, local: None, certificate: None },
                );
                self.feed(end, StreamEvent::Connected { remote, local: None, certificate: None });
            }
            StreamOp::Data => {
                if let Some(&other) = self.ends.get(&end)
                    && !self.off[s]
                    && !self.off[other.0]
                {
                    self.streamed[other.0] += data.len();
                    self.feed(other, StreamEvent::Data(data));
                }
            }
            StreamOp::Shutdown | StreamOp::Abort => self.cut(end),
            StreamOp::Credit(_) => panic!("nobody is slow"),
        }
    }
    fn cut(&mut self, end: End) {
        if let Some(other) = self.ends.remove(&end) {
            self.ends.remove(&other);
            self.feed(end, StreamEvent::Closed(CloseReason::Reset));
            self.feed(other, StreamEvent::Closed(CloseReason::Reset));
        }
    }
    /// A server goes off, and its connections with it.
    pub(crate) fn switch_off(&mut self, s: usize) {
        self.off[s] = true;
        let ends: Vec<End> = self.ends.keys().copied().filter(|e| e.0 == s).collect();
        ends.into_iter().for_each(|e| self.cut(e));
        self.settle();
    }

    /// Lets time go by.
    pub(crate) fn until(&mut self, seconds: u64) {
        let end = Instant::ZERO + Duration::from_secs(seconds);
        loop {
            self.settle();
            let nas = self.nas.poll_timeout().into_iter();
            let Some(next) = nas.chain(self.servers.iter_mut().filter_map(|s| s.poll_timeout())).min() else {
                break;
            };
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            self.nas.handle(self.now, Input::Timeout);
            for s in 0..self.servers.len() {
                self.servers[s].handle(self.now, Input::Timeout);
            }
        }
        self.now = end;
    }

    /// Sends a request; answers its token.
    pub(crate) fn send(&mut self, code: Code, attributes: Attributes) -> u64 {
        self.next += 1;
        let token = self.next;
        let target = Target::Server(u16::from(code == Code::ACCOUNTING_REQUEST));
        let command = client::Command::Request { token, target, code, attributes };
        self.nas.command(self.now, command).unwrap();
        self.settle();
        token
    }
    /// Asks, and takes the answer that comes without time going by.
    pub(crate) fn ask(&mut self, code: Code, attributes: Attributes) -> Option<client::Response> {
        let token = self.send(code, attributes);
        let at = self.answers.iter().position(|r| r.token == token)?;
        Some(self.answers.remove(at))
    }
    pub(crate) fn pap(&mut self, name: &str, password: &[u8]) -> Option<client::Response> {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        self.ask(Code::ACCESS_REQUEST, a)
    }

    /// A whole login by EAP; answers its last reply, how the peer sees it, and how many rounds it took. Before each
    /// round `between` may change the world.
    pub(crate) fn eap(
        &mut self,
        config: peer::Config,
        mut between: impl FnMut(&mut Self, usize),
    ) -> (Option<client::Response>, Option<peer::Event>, usize) {
        let name = config.identity.clone();
        let mut peer = Peer::new(config, Seed::new(6).secure("peer", 0), self.now);
        let mut packet = vec![1, 1, 0, 5, 1];
        let mut state: Option<Vec<u8>> = None;
        for round in 0.. {
            peer.handle(self.now, &packet);
            packet.clear();
            let _ = peer.poll_transmit(&mut packet);
            between(self, round);
            let mut a = Attributes::new();
            a.push_bytes(kind::USER_NAME, &name).unwrap();
            a.push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
            a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
            if let Some(state) = &state {
                a.push_bytes(kind::STATE, state).unwrap();
            }
            a.push_eap(&packet);
            let Some(reply) = self.ask(Code::ACCESS_REQUEST, a) else { return (None, None, round + 1) };
            packet.clear();
            reply.attributes.eap(&mut packet);
            state = reply.attributes.get(kind::STATE).map(<[u8]>::to_vec);
            if reply.code != Code::ACCESS_CHALLENGE {
                peer.handle(self.now, &packet);
                return (Some(reply), peer.poll_event(), round + 1);
            }
        }
        unreachable!("a login ends")
    }
}
