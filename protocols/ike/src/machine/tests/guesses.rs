//! Guesses at a shared key, from many addresses.

use super::*;

/// A responder, and initiators at addresses of their own.
struct Site {
    net: Network,
    gateway: At<Endpoint>,
    hosts: BTreeMap<IpAddr, At<Endpoint>>,
}

impl Site {
    fn new(config: Config) -> Self {
        let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
        let mut net = Network::new(channel);
        let mut gateway = Endpoint::new(config, SecureRng::from_seed([1; 32]));
        let all = Connection { remote: None, ..connection(false) };
        gateway.command(Instant::ZERO, Command::Serve(vec![Arc::new(all)])).unwrap();
        let gateway = net.add(gateway, &[address(RESPONDER)]);
        net.bind(gateway, SOCKET, at(RESPONDER, 500));
        Self { net, gateway, hosts: BTreeMap::new() }
    }
    /// Somebody at this host begins; whether it is let in.
    fn tries(&mut self, network: u32, host: u32, key: &[u8]) -> bool {
        self.tries_as(network, host, key, "ini.test")
    }
    fn tries_as(&mut self, network: u32, host: u32, key: &[u8], name: &str) -> bool {
        let from = IpAddr::from((0x0a00_0000 + (network << 8) + host).to_be_bytes());
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.net.now().as_nanos().to_be_bytes());
        seed[8..12].copy_from_slice(&(network << 8 | host).to_be_bytes());
        let endpoint = Endpoint::new(config(), SecureRng::from_seed(seed));
        let initiator = match self.hosts.get(&from).copied() {
            Some(host) => {
                self.net[host] = endpoint;
                host
            }
            None => {
                let host = self.net.add(endpoint, &[from]);
                self.net.bind(host, SOCKET, SocketAddr::new(from, 500));
                self.hosts.insert(from, host);
                host
            }
        };
        let secret = Key::from(key);
        let own = Connection {
            local: Identification::fqdn(name),
            local_auth: LocalAuth::Psk(secret),
            childless: Childless::Force,
            ..connection(true)
        };
        let (local, remote) = (SocketAddr::new(from, 500), at(RESPONDER, 500));
        let connection = Arc::new(own);
        self.net.command(initiator, Command::Initiate { token: 0, connection, local, remote }).unwrap();
        self.net.run(millis(50));
        self.net.take(initiator).iter().any(|(_, event)| matches!(event, Event::Established { .. }))
    }
    fn counted(&self) -> (u64, u64) {
        let counters = self.net[self.gateway].counters();
        (counters.authentication_failed, counters.guesses_held_back)
    }
    fn told(&self) -> usize {
        let events = self.net.events(self.gateway);
        events.iter().filter(|(_, event)| matches!(event, Event::Guessed { .. })).count()
    }
}

#[test]
fn whoever_guesses_at_a_key_from_many_hosts_is_held_back_and_who_has_it_is_not() {
    let mut site = Site::new(Config { failed_proofs_per_minute: 10, ..config() });
    assert!(site.tries(90, 1, b"secret"));
    // Ten networks, of which each guesses ten times, from other hosts.
    for host in 1..=10 {
        for network in 1..=10 {
            assert!(!site.tries(network, host, b"a guess"));
        }
    }
    let (failed, held) = site.counted();
    // Five seconds have passed: at most one was looked at beside the first ten.
    assert!(failed == 100 && held >= 88, "{failed} failed, {held} of them held back");
    assert_eq!(site.told(), 1);
    // The right key comes from elsewhere, and from where it has been before.
    assert!(site.tries(50, 1, b"secret") && site.tries(90, 1, b"secret"));
    // It does not help whoever is where the guesses come from, until those have stopped for a moment.
    assert!(!site.tries(1, 50, b"secret"));
    site.net.run(secs(7));
    assert!(site.tries(1, 50, b"secret"));
    // And then is known there.
    for host in 1..=10 {
        site.tries(1, host, b"a guess");
    }
    assert!(!site.tries(1, 51, b"secret") && site.tries(1, 50, b"secret"));
}

/// What is not looked at is answered as what is wrong.
#[test]
fn a_guess_that_is_held_back_is_answered_as_one_that_is_wrong() {
    let mut site = Site::new(Config { failed_proofs_per_minute: 1, ..config() });
    let mut answers = Vec::new();
    for key in [&b"a guess"[..], b"a guess", b"secret"] {
        let before = site.net.sent().len();
        assert!(!site.tries(1, 1, key));
        answers.push(site.net.sent()[before..].iter().map(|sent| sent.bytes.len()).collect::<Vec<_>>());
    }
    assert_eq!(site.counted(), (3, 2));
    assert!(answers[0] == answers[1] && answers[1] == answers[2], "{answers:?}");
}

/// Behind a NAT many are one host: none of them keeps out another who has been right there, by guesses or by a key of before.
#[test]
fn who_fails_behind_a_nat_keeps_out_nobody_who_has_been_right_there() {
    let mut site = Site::new(Config { failed_proofs_per_minute: 6, ..config() });
    assert!(site.tries_as(1, 1, b"secret", "ann.test") && site.tries_as(1, 1, b"secret", "bob.test"));
    for n in 0..20 {
        let name = if n % 2 == 0 { "eve.test" } else { "bob.test" };
        assert!(!site.tries_as(1, 1, b"a guess", name));
    }
    assert!(site.counted().1 > 0);
    assert!(site.tries_as(1, 1, b"secret", "ann.test"));
    assert!(!site.tries_as(1, 1, b"secret", "bob.test") && !site.tries_as(1, 1, b"secret", "eve.test"));
}

/// Behind a NAT, or where an initiator says that it is, a proof may come from another address than its first request did, which may
/// be anybody's: that one has not failed, and whoever has is not known there.
#[test]
fn a_proof_is_of_whom_the_first_request_came_from() {
    use crate::machine::guesses::Claim;
    const OTHER: &str = "203.0.113.66";
    for (key, right) in [(&b"secret"[..], true), (b"a guess", false)] {
        let ours = Connection { local_auth: LocalAuth::Psk(Key::from(key)), ..connection(true) };
        let limit = Config { failed_proofs_per_minute: 1, ..config() };
        let mut world = World::with(limit, ours, connection(false), Method::MsChapV2);
        let responder = world.responder;
        let connection = world.connection.clone();
        // It does not know its own address: there is a NAT.
        let (local, remote) = (at("0.0.0.0", 500), at(RESPONDER, 500));
        world
            .net
            .command(world.initiator, Command::Initiate { token: 7, connection, local, remote })
            .unwrap();
        world.net.run(millis(25));
        let proof = world.net.sent()[2].bytes.clone();
        world.forge(responder, at(OTHER, 4500), at(RESPONDER, 4500), &proof);
        let (now, name) = (world.net.now(), Identification::fqdn("ini.test"));
        assert_eq!(world.counters(responder).authentication_failed, u64::from(!right));
        let guesses = &mut world.net[responder].guesses;
        let claim = |from: &str| Claim { connection: "site", identity: &name, from: address(from) };
        if right {
            // Too many fail, at both networks, by another name.
            let eve = Identification::fqdn("eve.test");
            for from in [OTHER, INITIATOR] {
                guesses.failed(now, &limit, Claim { identity: &eve, ..claim(from) });
            }
        }
        let weighed = [INITIATOR, OTHER].map(|from| guesses.weighs(now, &limit, claim(from)));
        assert_eq!(weighed, [right, !right], "{right}");
        let told = world.events(responder).into_iter().find_map(|event| match event {
            Event::Unproved { path, .. } => Some(path.remote),
            _ => None,
        });
        assert_eq!(told, (!right).then(|| at(INITIATOR, 500)));
    }
}

/// Whoever judges EAP counts what fails, and tells an AAA server where it comes from, by the same.
#[test]
fn eap_is_of_whom_the_first_request_came_from() {
    let ours = Connection { local_auth: peer_auth(Method::MsChapV2, PASSWORD), ..connection(true) };
    let eap = RemoteAuth::Eap { ask_identity: false };
    let mut world = World::new(ours, Connection { remote_auth: eap, remote: None, ..connection(false) });
    let (responder, connection) = (world.responder, world.connection.clone());
    let (local, remote) = (at("0.0.0.0", 500), at(RESPONDER, 500));
    world.net.command(world.initiator, Command::Initiate { token: 7, connection, local, remote }).unwrap();
    world.net.run(millis(25));
    let request = world.net.sent()[2].bytes.clone();
    world.forge(responder, at("203.0.113.66", 4500), at(RESPONDER, 4500), &request);
    let asked = world.events(responder).into_iter().find_map(|event| match event {
        Event::Eap { remote, .. } => Some(remote),
        _ => None,
    });
    assert_eq!(asked, Some(at(INITIATOR, 500)));
    // Nor are its fragments of another network than those of others there.
    let (now, endpoint) = (world.net.now(), &mut world.net[responder]);
    let token = *endpoint.by_spi.values().next().unwrap();
    endpoint.step(now, token, |sa, _| {
        let added = sa.reassembly.add((false, 2), (1, 2), crate::code::PayloadType::SA, vec![0; 100], 1000);
        assert!(matches!(added, Ok(None)));
    });
    assert_eq!(endpoint.fragments[0].note(u64::MAX, pressure::network(address(INITIATOR)), 10), None);
    assert_eq!(endpoint.fragments[0].held().2, 1);
}
