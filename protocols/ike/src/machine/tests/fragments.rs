//! Memory of fragments from peers that have proved an address and no identity, and never complete a message (RFC
//! 7383).

use super::*;
use usher_core::{DatagramPath, Machine, MachineInput, MachineOutput, Transmit};

/// An initiator at an address that withholds some fragments.
struct FragmentAttacker {
    endpoint: IkeEndpoint,
    address: SocketAddr,
}

impl FragmentAttacker {
    fn new(n: u32, network: u32) -> Self {
        let config = IkeEndpointConfig { packet: 200, ..default_config() };
        let mut seed = [9; 32];
        seed[..4].copy_from_slice(&n.to_be_bytes());
        let endpoint = IkeEndpoint::new(config, SecureRng::from_seed(seed));
        let address =
            SocketAddr::new(IpAddr::from((0xcb00_0000 + (network << 8) + n % 250).to_be_bytes()), 500);
        Self { endpoint, address }
    }
    fn take_sent(&mut self) -> Vec<Vec<u8>> {
        let (mut all, mut buf) = (Vec::new(), Vec::new());
        while let Some(output) = self.endpoint.poll_output(&mut buf) {
            if matches!(output, MachineOutput::Transmit(Transmit::Datagram { .. })) {
                all.push(std::mem::take(&mut buf));
            }
            buf.clear();
        }
        all
    }
    /// Exchanges keys with the responder and returns the fragments of its proof.
    fn proof_fragments(&mut self, world: &mut IkeTestNetwork) -> Vec<Vec<u8>> {
        self.proof_of(world, psk_connection(true))
    }
    fn proof_of(&mut self, world: &mut IkeTestNetwork, connection: IkeConnectionConfig) -> Vec<Vec<u8>> {
        let (now, responder) = (world.net.now(), world.responder);
        let connection = Arc::new(connection);
        let begin = IkeCommand::Initiate {
            token: 1,
            connection,
            local: self.address,
            remote: socket_address(RESPONDER, 500),
        };
        self.endpoint.handle_command(now, begin).unwrap();
        let mut sent = self.take_sent();
        // The first response may request a cookie.
        for _ in 0..2 {
            let before = world.net.sent_transmits().len();
            for datagram in &sent {
                world.forge_datagram(responder, self.address, socket_address(RESPONDER, 500), datagram);
            }
            let answers: Vec<Vec<u8>> =
                world.net.sent_transmits()[before..].iter().map(|sent| sent.bytes.clone()).collect();
            let path =
                DatagramPath { socket: SOCKET, local: self.address, remote: socket_address(RESPONDER, 500) };
            for answer in &answers {
                self.endpoint.handle_input(now, MachineInput::Datagram { path, data: answer });
            }
            sent = self.take_sent();
            if sent.len() > 1 {
                break;
            }
        }
        assert!(sent.len() > 1, "its proof is in fragments");
        sent
    }
    fn send_datagram(&self, world: &mut IkeTestNetwork, datagram: &[u8]) {
        let responder = world.responder;
        world.forge_datagram(responder, self.address, socket_address(RESPONDER, 500), datagram);
    }
}

/// Octets of fragments in the responder's half-open IKE_SAs, and the numbers of these IKE_SAs and of their networks.
fn half_open_fragments(world: &IkeTestNetwork) -> (usize, usize, usize) {
    world.net[world.responder].fragments[0].fragment_usage_totals()
}

fn fragment_network(fragments: usize, message: usize) -> IkeTestNetwork {
    let responder = IkeEndpointConfig { fragments, message, cookies_from: 10, ..default_config() };
    IkeTestNetwork::with_config(
        IkeEndpointConfig { packet: 200, ..responder },
        psk_connection(true),
        psk_connection(false),
        TestEapMethod::MsChapV2,
    )
}

/// Hundreds of initiators with cookies withhold the last fragment of each proof.
#[test]
fn withheld_fragments_take_bounded_memory_and_block_no_peer() {
    let most = 16_000;
    let mut world = fragment_network(most, 1000);
    let mut attackers = Vec::new();
    for n in 0..200u32 {
        // Ten networks.
        let mut attacker = FragmentAttacker::new(n, n / 20);
        let proof = attacker.proof_fragments(&mut world);
        let (_, but_last) = proof.split_last().unwrap();
        for fragment in but_last {
            attacker.send_datagram(&mut world, fragment);
            assert!(half_open_fragments(&world).0 <= most, "{:?}", half_open_fragments(&world));
        }
        attackers.push((attacker, proof));
    }
    let counters = world.counters(world.responder);
    assert!(counters.cookies > 150 && counters.fragments_dropped > 200, "{counters:?}");
    assert_eq!(world.net[world.responder].half_open(), 200, "they lose their fragments, and nothing else");
    // An honest initiator gets in while they keep filling the memory.
    world.initiate();
    for round in 0..20 {
        for (attacker, proof) in attackers.iter().skip(round * 10).take(10) {
            attacker.send_datagram(&mut world, &proof[0]);
        }
        world.net.run_for(millis(5));
    }
    world.assert_children_match(1);
    assert_eq!(world.counters(world.initiator).retransmissions, 0);
    // An initiator whose fragments were dropped and who now sends them all gets in too.
    let (attacker, proof) = &attackers[0];
    let before = world.counters(world.responder).established;
    for fragment in proof {
        attacker.send_datagram(&mut world, fragment);
    }
    assert_eq!(world.counters(world.responder).established, before + 1);
    // No state of them is left.
    world.net.run_for(secs(60));
    assert_eq!((half_open_fragments(&world), world.net[world.responder].half_open()), ((0, 0, 0), 0));
}

/// A flood from one network displaces fragments of that network only.
#[test]
fn a_network_that_floods_with_fragments_drops_its_own() {
    // The network's share is 2000 octets.
    let mut world = fragment_network(16_000, 1000);
    let mut honest = FragmentAttacker::new(1, 1);
    let proof = honest.proof_fragments(&mut world);
    honest.send_datagram(&mut world, &proof[0]);
    let own = half_open_fragments(&world).0;
    let mut others: Vec<FragmentAttacker> = (0..30).map(|n| FragmentAttacker::new(n + 10, 2)).collect();
    for other in &mut others {
        let proof = other.proof_fragments(&mut world);
        other.send_datagram(&mut world, &proof[0]);
        assert!(half_open_fragments(&world).0 <= own + 2000, "{:?}", half_open_fragments(&world));
    }
    assert!(world.counters(world.responder).fragments_dropped > 10);
    // It has not lost the fragment that it sent before the flood.
    for fragment in &proof[1..] {
        honest.send_datagram(&mut world, fragment);
    }
    assert_eq!(world.counters(world.responder).established, 1);
}

/// An unauthenticated initiator's request is retained up to a limit, far below the 32 KiB that it may send. The limit
/// counts memory: an attribute of four octets takes eight times as much.
#[test]
fn an_initiator_that_asks_for_too_much_is_refused() {
    let selectors = |child: &mut ChildSaConfig, count| {
        for selectors in [&mut child.local, &mut child.remote] {
            let one = selectors.as_ref().unwrap()[0];
            *selectors = Some(vec![one; count]);
        }
    };
    let attributes = |child: &mut ChildSaConfig, count| {
        let transform = &mut child.proposals[1].transforms[0];
        transform.attributes = vec![transform.attributes[0].clone(); count];
    };
    for (what, count, established) in [
        ("selectors", 80, true),
        ("selectors", 200, false),
        ("attributes", 150, true),
        ("attributes", 250, false),
    ] {
        let mut asking = psk_connection(true);
        match what {
            "selectors" => selectors(&mut asking.children[0], count),
            _ => attributes(&mut asking.children[0], count),
        }
        let mut world = IkeTestNetwork::new(asking, psk_connection(false));
        world.initiate();
        world.net.run_for(secs(1));
        assert_eq!(world.established_sa(world.responder).is_some(), established, "{count} {what}");
        assert_eq!(world.counters(world.responder).syntax, u64::from(!established));
        if !established {
            world.assert_all_removed();
        }
    }
}

/// One large message may displace several small ones at once.
#[test]
fn a_large_message_evicts_several_holders_of_small_fragments() {
    // A network's share is 4000 of 8000 octets.
    let mut world = fragment_network(8000, 2000);
    let mut small: Vec<FragmentAttacker> = (0..12).map(|n| FragmentAttacker::new(n, 1 + n / 6)).collect();
    for one in &mut small {
        let proof = one.proof_fragments(&mut world);
        one.send_datagram(&mut world, &proof[0]);
    }
    let (before, holders, _) = half_open_fragments(&world);
    assert_eq!((holders, world.counters(world.responder).fragments_dropped), (12, 0));
    let mut large = FragmentAttacker::new(100, 3);
    // Its fragments are as large as a packet may be, so that one takes as much as several others.
    large.endpoint = IkeEndpoint::new(
        IkeEndpointConfig { packet: 1280, ..default_config() },
        SecureRng::from_seed([8; 32]),
    );
    let mut asking = psk_connection(true);
    let one = asking.children[0].local.as_ref().unwrap()[0];
    asking.children[0].local = Some(vec![one; 75]);
    let proof = large.proof_of(&mut world, asking);
    world.net[world.responder].fragments[0].set_limit(before + 100);
    large.send_datagram(&mut world, &proof[0]);
    let (octets, holders, _) = half_open_fragments(&world);
    assert!(holders < 11 && octets <= before + 100, "{holders} hold {octets} octets");
    let dropped = world.counters(world.responder).fragments_dropped;
    assert_eq!(dropped, 13 - holders as u64, "each of them had one fragment");
    for fragment in &proof[1..] {
        large.send_datagram(&mut world, fragment);
    }
    assert_eq!(world.counters(world.responder).established, 1, "who has taken their place is let in");
}
