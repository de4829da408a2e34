//! Two machines composed by token, the way an IKEv2 gateway does it: a responder that wants its initiator
//! authenticated says so in an event, the client of AAA servers asks for it under the same token, and the answer goes
//! back as a command, with the key. Neither machine knows the other.
//!
//! The responder is a small one of its own: three messages instead of IKEv2's, but the order of RFC 7296
//! §2.16: identity, EAP rounds, then an AUTH on each side that proves the key.

mod aaa;
mod responder;

use aaa::{Aaa, Peer};
use responder::{Command, Event, Outcome, Responder};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use usher_access::{self, AaaConfig, AccessClient, Continuation, NasIdentity, Proof, RadiusConfig, Request};
use usher_core::bench::Tap;
use usher_core::{Duration, Input, Instant, Machine, Path, Seed, SocketId, Transmit};
use usher_radius::Secret;
use usher_radius::client::{self, ServerConfig};

const DELAY: Duration = Duration::from_millis(5);

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host].into(), port)
}
fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}

/// The gateway host: it owns both machines and moves tokens between them.
struct Gateway {
    responder: Tap<Responder>,
    access: Tap<AccessClient>,
    /// What each SA's last challenge wants told again: the composition's, since neither machine needs the other's.
    next: HashMap<u64, Continuation>,
    up: Vec<(u64, [u8; 64])>,
    failed: Vec<u64>,
}

impl Gateway {
    fn new() -> Self {
        let mut config = client::Config::single(ServerConfig::new(address(2, 1812), secret()));
        config.retransmission = client::Retransmission::Fixed { interval: Duration::from_secs(1), count: 3 };
        let aaa = AaaConfig::Radius(RadiusConfig::new(config));
        let nas = NasIdentity { identifier: "gateway".into(), ..NasIdentity::default() };
        let access = AccessClient::new(nas, aaa, Seed::new(1).secure("radius", 0)).unwrap();
        let access = Tap::new(access);
        let responder = Tap::new(Responder::default());
        Self { responder, access, next: HashMap::new(), up: Vec::new(), failed: Vec::new() }
    }

    /// One machine's events become the other's commands, until neither has any.
    fn compose(&mut self, now: Instant) {
        loop {
            if let Some(event) = self.responder.poll_event() {
                match event {
                    Event::Eap { sa, identity, packet } => {
                        let continues = self.next.get(&sa);
                        let request = Request { continues, ..Request::new(&identity, Proof::Eap(&packet)) };
                        self.access.ask(now, sa, &request).unwrap();
                    }
                    Event::Established { sa, msk } => self.up.push((sa, msk)),
                    Event::Failed { sa } => self.failed.push(sa),
                }
            } else if let Some(event) = self.access.poll_event() {
                let (sa, outcome) = self.outcome(event);
                self.responder.command(now, Command::EapResult { sa, outcome }).unwrap();
            } else {
                return;
            }
        }
    }

    fn outcome(&mut self, event: usher_access::Event) -> (u64, Outcome) {
        let mut packet = Vec::new();
        match event {
            usher_access::Event::Challenge { token, reply } => {
                reply.eap(&mut packet);
                reply.continuation(self.next.entry(token).or_default());
                (token, Outcome::Continue { packet })
            }
            usher_access::Event::Accept { token, reply } => {
                reply.eap(&mut packet);
                let msk = reply.msk().ok().flatten().map(|k| *k);
                (token, msk.map_or(Outcome::Unanswered, |msk| Outcome::Accept { packet, msk }))
            }
            usher_access::Event::Reject { token, reply } => {
                reply.eap(&mut packet);
                (token, Outcome::Reject { packet })
            }
            usher_access::Event::Failed { token, .. } => (token, Outcome::Unanswered),
            other => panic!("{other:?}"),
        }
    }
}

/// Peers, gateway and AAA server, with a queue of datagrams between them.
struct World {
    now: Instant,
    gateway: Gateway,
    aaa: Aaa,
    peers: Vec<Peer>,
    queue: BTreeMap<(Instant, usize), (SocketAddr, SocketAddr, Vec<u8>)>,
    sent: usize,
    lost: Vec<usize>,
}

impl World {
    fn new(peers: Vec<Peer>) -> Self {
        Self {
            now: Instant::ZERO,
            gateway: Gateway::new(),
            aaa: Aaa::new(address(1, 0).ip(), secret()),
            peers,
            queue: BTreeMap::new(),
            sent: 0,
            lost: Vec::new(),
        }
    }
    fn post(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        if !self.lost.contains(&self.sent) {
            self.queue.insert((self.now + DELAY, self.sent), (from, to, bytes));
        }
        self.sent += 1;
    }

    fn drain(&mut self) {
        let (now, mut buf) = (self.now, Vec::new());
        self.gateway.compose(now);
        while let Some(Transmit::Datagram { path }) = self.gateway.responder.poll_transmit(&mut buf) {
            self.post(address(1, 500), path.remote, buf.clone());
        }
        while let Some(Transmit::Datagram { path }) = self.gateway.access.poll_transmit(&mut buf) {
            self.post(address(1, 50_000 + path.socket.n as u16), path.remote, buf.clone());
        }
        while let Some((to, bytes)) = self.aaa.poll() {
            self.post(address(2, 1812), to, bytes);
        }
        for i in 0..self.peers.len() {
            while let Some(bytes) = self.peers[i].poll() {
                self.post(address(100, i as u16), address(1, 500), bytes);
            }
        }
    }

    fn run(&mut self) {
        self.drain();
        loop {
            let timeout = self.gateway.access.poll_timeout();
            let next = self.queue.first_key_value().map(|(&key, _)| key);
            match next {
                Some(key) if timeout.is_none_or(|t| key.0 <= t) => {
                    self.now = key.0;
                    let (from, to, bytes) = self.queue.remove(&key).unwrap();
                    self.deliver(from, to, &bytes);
                }
                _ => match timeout {
                    Some(at) => {
                        self.now = at;
                        self.gateway.access.handle(at, Input::Timeout);
                    }
                    None => return,
                },
            }
            self.drain();
        }
    }

    fn deliver(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8]) {
        let path = Path { socket: SocketId::own(0), local: to, remote: from };
        let input = Input::Datagram { path, data };
        match (to.ip(), to.port()) {
            (ip, 500) if ip == address(1, 0).ip() => self.gateway.responder.handle(self.now, input),
            (ip, _) if ip == address(1, 0).ip() => self.gateway.access.handle(self.now, input),
            (ip, _) if ip == address(2, 0).ip() => self.aaa.handle(self.now, input),
            (_, peer) => self.peers[usize::from(peer)].receive(data),
        }
    }
}

#[test]
fn a_responder_gets_its_key_from_a_radius_client_by_token() {
    let mut w = World::new(vec![Peer::new("ann", "secret")]);
    w.run();
    let (sa, msk) = w.gateway.up[0];
    assert_eq!(w.peers[0].msk(), Some(msk));
    assert!(w.peers[0].is_up() && sa == 0);
    // Six messages with the gateway and four behind it.
    assert_eq!(w.sent, 10);
    assert_eq!(w.now, Instant::ZERO + DELAY * 10);
}

#[test]
fn two_hundred_security_associations_interleave_and_get_their_own_keys() {
    let names: Vec<String> = (0..200).map(|i| format!("user{i}")).collect();
    let peers = names.iter().enumerate();
    let peers = peers.map(|(i, n)| Peer::new(n, if i % 5 == 4 { "wrong" } else { "secret" })).collect();
    let mut w = World::new(peers);
    w.run();
    assert_eq!((w.gateway.up.len(), w.gateway.failed.len()), (160, 40));
    for (sa, msk) in w.gateway.up.clone() {
        let name = w.gateway.responder.identity(sa).to_vec();
        let peer = w.peers.iter().find(|p| p.name().as_bytes() == name).unwrap();
        assert_eq!(peer.msk(), Some(msk));
    }
    let mut keys: Vec<_> = w.gateway.up.iter().map(|(_, k)| *k).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 160);
    assert!(w.peers.iter().enumerate().all(|(i, p)| p.is_up() == (i % 5 != 4)));
}

#[test]
fn a_lost_datagram_delays_and_a_silent_server_fails() {
    let mut w = World::new(vec![Peer::new("ann", "secret")]);
    w.lost = vec![1];
    w.run();
    assert!(w.peers[0].is_up());
    assert_eq!(w.now, Instant::ZERO + DELAY * 10 + Duration::from_secs(1));

    let mut w = World::new(vec![Peer::new("ann", "secret")]);
    w.lost = vec![1, 2, 3];
    w.run();
    assert_eq!((&w.gateway.failed[..], w.gateway.up.len(), w.peers[0].is_up()), (&[0][..], 0, false));
    assert_eq!(w.gateway.access.radius_counters().unwrap().timeouts, 1);
}
