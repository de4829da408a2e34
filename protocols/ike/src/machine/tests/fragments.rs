//! Memory of those who have proved where they are and not who, and send parts of messages that never become whole (RFC 7383).

use super::*;
use usher_core::{Input, Machine, Output, Path, Transmit};

/// Somebody at an address who does as an initiator does, but for what this one holds back.
struct Attacker {
    endpoint: Endpoint,
    address: SocketAddr,
}

impl Attacker {
    fn new(n: u32, network: u32) -> Self {
        let config = Config { packet: 200, ..config() };
        let mut seed = [9; 32];
        seed[..4].copy_from_slice(&n.to_be_bytes());
        let endpoint = Endpoint::new(config, SecureRng::from_seed(seed));
        let address =
            SocketAddr::new(IpAddr::from((0xcb00_0000 + (network << 8) + n % 250).to_be_bytes()), 500);
        Self { endpoint, address }
    }
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut buf) = (Vec::new(), Vec::new());
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            if matches!(output, Output::Transmit(Transmit::Datagram { .. })) {
                all.push(std::mem::take(&mut buf));
            }
            buf.clear();
        }
        all
    }
    /// Has its keys with the responder, and gives the fragments of its proof.
    fn proof(&mut self, world: &mut World) -> Vec<Vec<u8>> {
        let (now, responder) = (world.net.now(), world.responder);
        let connection = Arc::new(connection(true));
        let begin =
            Command::Initiate { token: 1, connection, local: self.address, remote: at(RESPONDER, 500) };
        self.endpoint.command(now, begin).unwrap();
        let mut sent = self.sent();
        // The first answer may ask for a cookie.
        for _ in 0..2 {
            let before = world.net.sent().len();
            for datagram in &sent {
                world.forge(responder, self.address, at(RESPONDER, 500), datagram);
            }
            let answers: Vec<Vec<u8>> =
                world.net.sent()[before..].iter().map(|sent| sent.bytes.clone()).collect();
            let path = Path { socket: SOCKET, local: self.address, remote: at(RESPONDER, 500) };
            for answer in &answers {
                self.endpoint.handle(now, Input::Datagram { path, data: answer });
            }
            sent = self.sent();
            if sent.len() > 1 {
                break;
            }
        }
        assert!(sent.len() > 1, "its proof is in fragments");
        sent
    }
    fn send(&self, world: &mut World, datagram: &[u8]) {
        let responder = world.responder;
        world.forge(responder, self.address, at(RESPONDER, 500), datagram);
    }
}

/// What fragments take at the responder in half-open IKE_SAs, how many of these have any, of how many networks.
fn held(world: &World) -> (usize, usize, usize) {
    world.net[world.responder].fragments[0].held()
}

fn world(fragments: usize, message: usize) -> World {
    let responder = Config { fragments, message, cookies_from: 10, ..config() };
    World::with(Config { packet: 200, ..responder }, connection(true), connection(false), Method::MsChapV2)
}

/// Hundreds of initiators with cookies hold back the last fragment of their proofs, each time that they are asked to go on.
#[test]
fn those_who_hold_back_their_last_fragment_take_bounded_memory_and_keep_nobody_out() {
    let most = 16_000;
    let mut world = world(most, 1000);
    let mut attackers = Vec::new();
    for n in 0..200u32 {
        // Ten networks.
        let mut attacker = Attacker::new(n, n / 20);
        let proof = attacker.proof(&mut world);
        let (_, but_last) = proof.split_last().unwrap();
        for fragment in but_last {
            attacker.send(&mut world, fragment);
            assert!(held(&world).0 <= most, "{:?}", held(&world));
        }
        attackers.push((attacker, proof));
    }
    let counters = world.counters(world.responder);
    assert!(counters.cookies > 150 && counters.fragments_dropped > 200, "{counters:?}");
    assert_eq!(world.net[world.responder].half_open(), 200, "they lose their fragments, and nothing else");
    // Whoever is honest is let in while they go on to fill what there is.
    world.initiate();
    for round in 0..20 {
        for (attacker, proof) in attackers.iter().skip(round * 10).take(10) {
            attacker.send(&mut world, &proof[0]);
        }
        world.net.run(millis(5));
    }
    world.fit(1);
    assert_eq!(world.counters(world.initiator).retransmissions, 0);
    // One of those whose fragments were dropped, and who now sends them all, is let in too.
    let (attacker, proof) = &attackers[0];
    let before = world.counters(world.responder).established;
    for fragment in proof {
        attacker.send(&mut world, fragment);
    }
    assert_eq!(world.counters(world.responder).established, before + 1);
    // And nothing is left of them.
    world.net.run(secs(60));
    assert_eq!((held(&world), world.net[world.responder].half_open()), ((0, 0, 0), 0));
}

/// Whoever floods from one network drops fragments of that network alone.
#[test]
fn a_network_that_floods_with_fragments_drops_its_own() {
    // The network's share is 2000 octets.
    let mut world = world(16_000, 1000);
    let mut honest = Attacker::new(1, 1);
    let proof = honest.proof(&mut world);
    honest.send(&mut world, &proof[0]);
    let own = held(&world).0;
    let mut others: Vec<Attacker> = (0..30).map(|n| Attacker::new(n + 10, 2)).collect();
    for other in &mut others {
        let proof = other.proof(&mut world);
        other.send(&mut world, &proof[0]);
        assert!(held(&world).0 <= own + 2000, "{:?}", held(&world));
    }
    assert!(world.counters(world.responder).fragments_dropped > 10);
    // It has not lost the fragment that was there before all of theirs.
    for fragment in &proof[1..] {
        honest.send(&mut world, fragment);
    }
    assert_eq!(world.counters(world.responder).established, 1);
}

/// What an initiator asks for is kept until it has proved who it is: of 32 KiB that it might send, so much and no more.
#[test]
fn an_initiator_that_asks_for_too_much_is_refused() {
    for (count, established) in [(100, true), (200, false)] {
        let mut asking = connection(true);
        let child = &mut asking.children[0];
        for selectors in [&mut child.local, &mut child.remote] {
            let one = selectors.as_ref().unwrap()[0];
            *selectors = Some(vec![one; count]);
        }
        let mut world = World::new(asking, connection(false));
        world.initiate();
        world.net.run(secs(1));
        assert_eq!(world.established(world.responder).is_some(), established, "{count} of each side");
        assert_eq!(world.counters(world.responder).syntax, u64::from(!established));
        if !established {
            world.forgotten();
        }
    }
}
