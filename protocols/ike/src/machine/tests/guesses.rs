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
