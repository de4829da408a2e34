//! Two machines composed by token, the way an IKEv2 gateway does it: a responder that wants its initiator
//! authenticated says so in an event, the client of AAA servers asks for it under the same token, and the answer goes
//! back as a command, with the key. Neither machine knows the other.
//!
//! The responder is a small one of its own: three messages instead of IKEv2's, but the order of RFC 7296
//! §2.16: identity, EAP rounds, then an AUTH on each side that proves the key.

mod aaa;
mod again;
mod keying;
mod port;
mod responder;

use aaa::Peer;
use responder::{Command, Event, Outcome, Responder};
use std::collections::HashMap;
use std::net::SocketAddr;
use usher_access::{self, AaaConfig, AccessClient, Continuation, NasIdentity, Proof, RadiusConfig, Request};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, Seed, SocketId};
use usher_radius::Secret;
use usher_radius::client::{self, ServerConfig};

const DELAY: Duration = Duration::from_millis(5);

fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host].into(), port)
}
fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}

/// Peers, an AAA server, and a gateway: two machines at one address, and what moves tokens between them.
struct World {
    net: Network,
    responder: At<Responder>,
    access: At<AccessClient>,
    peers: Vec<At<Peer>>,
    /// What each SA's last challenge wants told again: the composition's, since neither machine needs the other's.
    next: HashMap<u64, Continuation>,
    up: Vec<(u64, [u8; 64])>,
    failed: Vec<u64>,
}

impl World {
    fn new(peers: impl IntoIterator<Item = Peer>) -> Self {
        let mut config = client::Config::single(ServerConfig::new(address(2, 1812), secret()));
        config.retransmission = client::Retransmission::Fixed { interval: Duration::from_secs(1), count: 3 };
        let aaa = AaaConfig::Radius(RadiusConfig::new(config));
        let nas = NasIdentity { identifier: "gateway".into(), ..NasIdentity::default() };
        let access = AccessClient::new(nas, aaa, Seed::new(1).secure("radius", 0)).unwrap();
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let gateway = [address(1, 0).ip()];
        let responder = net.add(Responder::default(), &gateway);
        net.bind(responder, SocketId::own(0), address(1, 500));
        let access = net.add(access, &gateway);
        aaa::add(&mut net, address(2, 1812), gateway[0], secret());
        let mut add = |(i, peer)| {
            let host = net.add(peer, &[address(100, 0).ip()]);
            net.bind(host, SocketId::own(0), address(100, i));
            host
        };
        let peers = (0..).zip(peers).map(&mut add).collect();
        Self { net, responder, access, peers, next: HashMap::new(), up: Vec::new(), failed: Vec::new() }
    }

    /// Until nothing happens any more. One machine's events become the other's commands.
    fn run(&mut self) {
        self.net.settle();
        while self.net.step().is_some() {
            for (_, event) in self.net.take(self.responder) {
                match event {
                    Event::Eap { sa, identity, packet } => {
                        let continues = self.next.get(&sa);
                        let request = Request { continues, ..Request::new(&identity, Proof::Eap(&packet)) };
                        let now = self.net.now();
                        self.net[self.access].ask(now, sa, &request).unwrap();
                    }
                    Event::Established { sa, msk } => self.up.push((sa, msk)),
                    Event::Failed { sa } => self.failed.push(sa),
                }
            }
            for (_, event) in self.net.take(self.access) {
                let (sa, outcome) = self.outcome(event);
                self.net.command(self.responder, Command::EapResult { sa, outcome }).unwrap();
            }
            self.net.settle();
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

    fn is_up(&self, peer: usize) -> bool {
        self.net[self.peers[peer]].is_up()
    }
    /// When a peer heard that the responder has the key.
    fn told(&self, peer: usize) -> Instant {
        self.net.events(self.peers[peer])[0].0
    }
}

#[test]
fn a_responder_gets_its_key_from_a_radius_client_by_token() {
    let mut w = World::new([Peer::new("ann", "secret")]);
    w.run();
    let (sa, msk) = w.up[0];
    assert_eq!(w.net[w.peers[0]].msk(), Some(msk));
    assert!(w.is_up(0) && sa == 0);
    // Six messages with the gateway and four behind it.
    assert_eq!(w.net.sent().len(), 10);
    assert_eq!(w.told(0), Instant::ZERO + DELAY * 10);
}

#[test]
fn two_hundred_security_associations_interleave_and_get_their_own_keys() {
    let names: Vec<String> = (0..200).map(|i| format!("user{i}")).collect();
    let peers = names.iter().enumerate();
    let peers = peers.map(|(i, n)| Peer::new(n, if i % 5 == 4 { "wrong" } else { "secret" }));
    let mut w = World::new(peers);
    w.run();
    assert_eq!((w.up.len(), w.failed.len()), (160, 40));
    for &(sa, msk) in &w.up {
        let name = w.net[w.responder].identity(sa);
        let mut peers = w.peers.iter().map(|peer| &w.net[*peer]);
        assert_eq!(peers.find(|p| p.name().as_bytes() == name).unwrap().msk(), Some(msk));
    }
    let mut keys: Vec<_> = w.up.iter().map(|(_, k)| *k).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 160);
    assert!((0..200).all(|i| w.is_up(i) == (i % 5 != 4)));
}

#[test]
fn a_lost_datagram_delays_and_a_silent_server_fails() {
    let mut w = World::new([Peer::new("ann", "secret")]);
    w.net.lose(&[1]);
    w.run();
    assert!(w.is_up(0));
    assert_eq!(w.told(0), Instant::ZERO + DELAY * 10 + Duration::from_secs(1));

    let mut w = World::new([Peer::new("ann", "secret")]);
    w.net.lose(&[1, 2, 3]);
    w.run();
    assert_eq!((&w.failed[..], w.up.len(), w.is_up(0)), (&[0][..], 0, false));
    assert_eq!(w.net[w.access].radius_counters().unwrap().timeouts, 1);
}
