//! Guesses at a shared key, from many addresses.

use super::*;

/// A responder, and initiators at addresses of their own.
struct LockoutTestNetwork {
    net: MachineNetwork,
    gateway: NetworkHostHandle<IkeEndpoint>,
    hosts: BTreeMap<IpAddr, NetworkHostHandle<IkeEndpoint>>,
}

impl LockoutTestNetwork {
    fn new(config: IkeEndpointConfig) -> Self {
        let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let mut gateway = IkeEndpoint::new(config, SecureRng::from_seed([1; 32]));
        let all = IkeConnectionConfig { remote: None, ..psk_connection(false) };
        gateway.handle_command(Instant::ZERO, IkeCommand::Serve(vec![Arc::new(all)])).unwrap();
        let gateway = net.add_host(gateway, &[ip_address(RESPONDER)]);
        net.bind_socket(gateway, SOCKET, socket_address(RESPONDER, 500));
        Self { net, gateway, hosts: BTreeMap::new() }
    }
    /// Initiates from this host. True if it authenticates.
    fn try_login(&mut self, network: u32, host: u32, key: &[u8]) -> bool {
        self.tries_as(network, host, key, "ini.test")
    }
    fn tries_as(&mut self, network: u32, host: u32, key: &[u8], name: &str) -> bool {
        let from = IpAddr::from((0x0a00_0000 + (network << 8) + host).to_be_bytes());
        let mut seed = [7; 32];
        seed[..8].copy_from_slice(&self.net.now().as_nanos().to_be_bytes());
        seed[8..12].copy_from_slice(&(network << 8 | host).to_be_bytes());
        let endpoint = IkeEndpoint::new(default_config(), SecureRng::from_seed(seed));
        let initiator = match self.hosts.get(&from).copied() {
            Some(host) => {
                self.net[host] = endpoint;
                host
            }
            None => {
                let host = self.net.add_host(endpoint, &[from]);
                self.net.bind_socket(host, SOCKET, SocketAddr::new(from, 500));
                self.hosts.insert(from, host);
                host
            }
        };
        let secret = SecretValue::from(key);
        let own = IkeConnectionConfig {
            local: Identification::from_fqdn(name),
            local_auth: LocalAuth::Psk(secret),
            childless: ChildlessPolicy::Force,
            ..psk_connection(true)
        };
        let (local, remote) = (SocketAddr::new(from, 500), socket_address(RESPONDER, 500));
        let connection = Arc::new(own);
        self.net
            .send_command(initiator, IkeCommand::Initiate { token: 0, connection, local, remote })
            .unwrap();
        self.net.run_for(millis(50));
        self.net.take_events(initiator).iter().any(|(_, event)| matches!(event, IkeEvent::Established { .. }))
    }
    fn failure_counts(&self) -> (u64, u64) {
        let counters = self.net[self.gateway].counters();
        (counters.authentication_failed, counters.proofs_locked_out)
    }
    fn guessed_event_count(&self) -> usize {
        let events = self.net.recorded_events(self.gateway);
        events.iter().filter(|(_, event)| matches!(event, IkeEvent::TooManyFailedProofs { .. })).count()
    }
}

#[test]
fn attempts_from_many_hosts_lock_out_attackers_but_not_the_user() {
    let mut site =
        LockoutTestNetwork::new(IkeEndpointConfig { failed_proofs_per_minute: 10, ..default_config() });
    assert!(site.try_login(90, 1, b"secret"));
    // Ten networks guess ten times each, from other hosts.
    for host in 1..=10 {
        for network in 1..=10 {
            assert!(!site.try_login(network, host, b"a guess"));
        }
    }
    let (failed, held) = site.failure_counts();
    // Five seconds have passed: at most one was checked beside the first ten.
    assert!(failed == 100 && held >= 88, "{failed} failed, {held} of them held back");
    assert_eq!(site.guessed_event_count(), 1);
    // The right key comes from another network, and from an exempt host.
    assert!(site.try_login(50, 1, b"secret") && site.try_login(90, 1, b"secret"));
    // It does not help in a network of the attacker until the attack pauses.
    assert!(!site.try_login(1, 50, b"secret"));
    site.net.run_for(secs(7));
    assert!(site.try_login(1, 50, b"secret"));
    // Then the host is exempt.
    for host in 1..=10 {
        site.try_login(1, host, b"a guess");
    }
    assert!(!site.try_login(1, 51, b"secret") && site.try_login(1, 50, b"secret"));
}

/// A locked-out proof gets the same reply as a wrong one.
#[test]
fn a_guess_that_is_held_back_is_answered_as_one_that_is_wrong() {
    let mut site =
        LockoutTestNetwork::new(IkeEndpointConfig { failed_proofs_per_minute: 1, ..default_config() });
    let mut answers = Vec::new();
    for key in [&b"a guess"[..], b"a guess", b"secret"] {
        let before = site.net.sent_transmits().len();
        assert!(!site.try_login(1, 1, key));
        answers.push(
            site.net.sent_transmits()[before..].iter().map(|sent| sent.bytes.len()).collect::<Vec<_>>(),
        );
    }
    assert_eq!(site.failure_counts(), (3, 2));
    assert!(answers[0] == answers[1] && answers[1] == answers[2], "{answers:?}");
}

/// Many users share a host behind a NAT. Guesses, or an outdated key, do not lock out another user who has
/// authenticated there.
#[test]
fn failures_behind_a_nat_lock_out_no_user_proved_there() {
    let mut site =
        LockoutTestNetwork::new(IkeEndpointConfig { failed_proofs_per_minute: 6, ..default_config() });
    assert!(site.tries_as(1, 1, b"secret", "ann.test") && site.tries_as(1, 1, b"secret", "bob.test"));
    for n in 0..20 {
        let name = if n % 2 == 0 { "eve.test" } else { "bob.test" };
        assert!(!site.tries_as(1, 1, b"a guess", name));
    }
    assert!(site.failure_counts().1 > 0);
    assert!(site.tries_as(1, 1, b"secret", "ann.test"));
    assert!(!site.tries_as(1, 1, b"secret", "bob.test") && !site.tries_as(1, 1, b"secret", "eve.test"));
}

/// Behind a NAT, real or claimed, a proof may come from another address than the first request. That address may be
/// forged, so it is neither charged nor made exempt.
#[test]
fn a_proof_is_of_whom_the_first_request_came_from() {
    use crate::machine::guesses::IdentityClaim;
    const OTHER_ADDRESS: &str = "203.0.113.66";
    for (key, right) in [(&b"secret"[..], true), (b"a guess", false)] {
        let ours = IkeConnectionConfig {
            local_auth: LocalAuth::Psk(SecretValue::from(key)),
            ..psk_connection(true)
        };
        let limit = IkeEndpointConfig { failed_proofs_per_minute: 1, ..default_config() };
        let mut world =
            IkeTestNetwork::with_config(limit, ours, psk_connection(false), TestEapMethod::MsChapV2);
        let responder = world.responder;
        let connection = world.connection.clone();
        // It does not know its own address, so there is a NAT.
        let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
        world
            .net
            .send_command(world.initiator, IkeCommand::Initiate { token: 7, connection, local, remote })
            .unwrap();
        world.net.run_for(millis(25));
        let proof = world.net.sent_transmits()[2].bytes.clone();
        world.forge_datagram(
            responder,
            socket_address(OTHER_ADDRESS, 4500),
            socket_address(RESPONDER, 4500),
            &proof,
        );
        let (now, name) = (world.net.now(), Identification::from_fqdn("ini.test"));
        assert_eq!(world.counters(responder).authentication_failed, u64::from(!right));
        let guesses = &mut world.net[responder].cx.proof_lockouts;
        let claim =
            |from: &str| IdentityClaim { connection: "site", identity: &name, from: ip_address(from) };
        if right {
            // Too many fail in both networks, under another name.
            let eve = Identification::from_fqdn("eve.test");
            for from in [OTHER_ADDRESS, INITIATOR] {
                guesses.record_failure(now, &limit, IdentityClaim { identity: &eve, ..claim(from) });
            }
        }
        let weighed =
            [INITIATOR, OTHER_ADDRESS].map(|from| guesses.allows_proof_check(now, &limit, claim(from)));
        assert_eq!(weighed, [right, !right], "{right}");
        let told = world.events(responder).into_iter().find_map(|event| match event {
            IkeEvent::Unproved { path, .. } => Some(path.remote),
            _ => None,
        });
        assert_eq!(told, (!right).then(|| socket_address(INITIATOR, 500)));
    }
}

/// The EAP server counts failures by the proven address, and reports it to the AAA server.
#[test]
fn eap_is_of_whom_the_first_request_came_from() {
    let ours = IkeConnectionConfig {
        local_auth: peer_auth(TestEapMethod::MsChapV2, PASSWORD),
        ..psk_connection(true)
    };
    let eap = RemoteAuth::Eap { request_identity: false };
    let mut world = IkeTestNetwork::new(
        ours,
        IkeConnectionConfig { remote_auth: eap, remote: None, ..psk_connection(false) },
    );
    let (responder, connection) = (world.responder, world.connection.clone());
    let (local, remote) = (socket_address("0.0.0.0", 500), socket_address(RESPONDER, 500));
    world
        .net
        .send_command(world.initiator, IkeCommand::Initiate { token: 7, connection, local, remote })
        .unwrap();
    world.net.run_for(millis(25));
    let request = world.net.sent_transmits()[2].bytes.clone();
    world.forge_datagram(
        responder,
        socket_address("203.0.113.66", 4500),
        socket_address(RESPONDER, 4500),
        &request,
    );
    let asked = world.events(responder).into_iter().find_map(|event| match event {
        IkeEvent::Eap { remote, .. } => Some(remote),
        _ => None,
    });
    assert_eq!(asked, Some(socket_address(INITIATOR, 500)));
    // Its fragments also count for the network of the proven address.
    let (now, endpoint) = (world.net.now(), &mut world.net[responder]);
    let token = *endpoint.by_spi.values().next().unwrap();
    endpoint.run_sa_step_at(now, token, |sa, _| {
        let added = sa.base.reassembly.add_fragment(
            (false, 2),
            (1, 2),
            crate::code::PayloadType::SA,
            vec![0; 100],
            1000,
        );
        assert!(matches!(added, Ok(None)));
        sa.effects.push(SaEffect::FragmentMemory);
    });
    assert_eq!(
        endpoint.fragments[0].record_usage(u64::MAX, pressure::network_prefix(ip_address(INITIATOR)), 10),
        None
    );
    assert_eq!(endpoint.fragments[0].fragment_usage_totals().2, 1);
}
