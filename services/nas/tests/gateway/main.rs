//! Two machines composed by token, as in an IKEv2 gateway. A responder requests the authentication of its
//! initiator by an event. The AAA client sends the request under the same token. The result returns as a
//! command, with the key. Neither machine knows the other.
//!
//! The responder is a small model with three messages in place of IKEv2's. It keeps the order of RFC 7296
//! §2.16: identity, EAP rounds, then an AUTH on each side that proves the key.

mod aaa;
mod again;
mod keying;
mod port;
mod responder;

use aaa::TestInitiator;
use responder::{EapRoundResult, ResponderCommand, ResponderEvent, TestResponder};
use std::collections::HashMap;
use std::net::SocketAddr;
use usher_access::{
    self, AaaConfig, AccessClient, AccessRequest, LoginRoundState, NasIdentity, RadiusConfig, UserCredentials,
};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, Seed, SocketId};
use usher_radius::SharedSecret;
use usher_radius::client::{self, ServerConfig};

const DELAY: Duration = Duration::from_millis(5);

fn socket_address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host].into(), port)
}
fn test_secret() -> SharedSecret {
    SharedSecret::new(b"sixteen octets!!")
}

/// Peers, an AAA server, and a gateway of two machines at one address, which share tokens.
struct GatewayTestNetwork {
    net: MachineNetwork,
    responder: NetworkHostHandle<TestResponder>,
    access: NetworkHostHandle<AccessClient>,
    peers: Vec<NetworkHostHandle<TestInitiator>>,
    /// The state that each SA's last challenge repeats. The composition keeps it, since neither machine needs the
    /// other's.
    next: HashMap<u64, LoginRoundState>,
    up: Vec<(u64, [u8; 64])>,
    failed: Vec<u64>,
}

impl GatewayTestNetwork {
    fn new(peers: impl IntoIterator<Item = TestInitiator>) -> Self {
        let mut config =
            client::RadiusClientConfig::for_server(ServerConfig::new(socket_address(2, 1812), test_secret()));
        config.retransmission =
            client::RetransmissionPolicy::Fixed { interval: Duration::from_secs(1), count: 3 };
        let aaa = AaaConfig::Radius(RadiusConfig::new(config));
        let nas = NasIdentity { identifier: "gateway".into(), ..NasIdentity::default() };
        let access = AccessClient::new(nas, aaa, Seed::new(1).derive_secure_rng("radius", 0)).unwrap();
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let gateway = [socket_address(1, 0).ip()];
        let responder = net.add_host(TestResponder::default(), &gateway);
        net.bind_socket(responder, SocketId::from_number(0), socket_address(1, 500));
        let access = net.add_host(access, &gateway);
        aaa::add_aaa_server(&mut net, socket_address(2, 1812), gateway[0], test_secret());
        let mut add = |(i, peer)| {
            let host = net.add_host(peer, &[socket_address(100, 0).ip()]);
            net.bind_socket(host, SocketId::from_number(0), socket_address(100, i));
            host
        };
        let peers = (0..).zip(peers).map(&mut add).collect();
        Self { net, responder, access, peers, next: HashMap::new(), up: Vec::new(), failed: Vec::new() }
    }

    /// Runs until idle. One machine's events become the other's commands.
    fn run_until_idle(&mut self) {
        self.net.drain_hosts();
        while self.net.run_next_arrival_or_timer().is_some() {
            for (_, event) in self.net.take_events(self.responder) {
                match event {
                    ResponderEvent::Eap { sa, identity, packet } => {
                        let continues = self.next.get(&sa);
                        let request = AccessRequest {
                            continues,
                            ..AccessRequest::new(&identity, UserCredentials::Eap(&packet))
                        };
                        let now = self.net.now();
                        self.net[self.access].send_request(now, sa, &request).unwrap();
                    }
                    ResponderEvent::Established { sa, msk } => self.up.push((sa, msk)),
                    ResponderEvent::Failed { sa } => self.failed.push(sa),
                }
            }
            for (_, event) in self.net.take_events(self.access) {
                let (sa, outcome) = self.round_result(event);
                self.net.send_command(self.responder, ResponderCommand::EapResult { sa, outcome }).unwrap();
            }
            self.net.drain_hosts();
        }
    }

    fn round_result(&mut self, event: usher_access::AccessClientEvent) -> (u64, EapRoundResult) {
        let mut packet = Vec::new();
        match event {
            usher_access::AccessClientEvent::Challenge { token, reply } => {
                reply.read_eap(&mut packet);
                reply.fill_continuation(self.next.entry(token).or_default());
                (token, EapRoundResult::Continue { packet })
            }
            usher_access::AccessClientEvent::Accept { token, reply } => {
                reply.read_eap(&mut packet);
                let msk = reply.msk().ok().flatten().map(|k| *k);
                (token, msk.map_or(EapRoundResult::Unanswered, |msk| EapRoundResult::Accept { packet, msk }))
            }
            usher_access::AccessClientEvent::Reject { token, reply } => {
                reply.read_eap(&mut packet);
                (token, EapRoundResult::Reject { packet })
            }
            usher_access::AccessClientEvent::Failed { token, .. } => (token, EapRoundResult::Unanswered),
            other => panic!("{other:?}"),
        }
    }

    fn is_up(&self, peer: usize) -> bool {
        self.net[self.peers[peer]].is_up()
    }
    /// Returns when a peer received the responder's proof of the key.
    fn established_at(&self, peer: usize) -> Instant {
        self.net.recorded_events(self.peers[peer])[0].0
    }
}

#[test]
fn a_responder_gets_its_key_from_a_radius_client_by_token() {
    let mut w = GatewayTestNetwork::new([TestInitiator::new("ann", "secret")]);
    w.run_until_idle();
    let (sa, msk) = w.up[0];
    assert_eq!(w.net[w.peers[0]].msk(), Some(msk));
    assert!(w.is_up(0) && sa == 0);
    // Six messages with the gateway, and four with the AAA server.
    assert_eq!(w.net.sent_transmits().len(), 10);
    assert_eq!(w.established_at(0), Instant::ZERO + DELAY * 10);
}

#[test]
fn two_hundred_interleaved_associations_get_their_own_keys() {
    let names: Vec<String> = (0..200).map(|i| format!("user{i}")).collect();
    let peers = names.iter().enumerate();
    let peers = peers.map(|(i, n)| TestInitiator::new(n, if i % 5 == 4 { "wrong" } else { "secret" }));
    let mut w = GatewayTestNetwork::new(peers);
    w.run_until_idle();
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
    let mut w = GatewayTestNetwork::new([TestInitiator::new("ann", "secret")]);
    w.net.drop_transmits(&[1]);
    w.run_until_idle();
    assert!(w.is_up(0));
    assert_eq!(w.established_at(0), Instant::ZERO + DELAY * 10 + Duration::from_secs(1));

    let mut w = GatewayTestNetwork::new([TestInitiator::new("ann", "secret")]);
    w.net.drop_transmits(&[1, 2, 3]);
    w.run_until_idle();
    assert_eq!((&w.failed[..], w.up.len(), w.is_up(0)), (&[0][..], 0, false));
    assert_eq!(w.net[w.access].radius_counters().unwrap().timeouts, 1);
}
