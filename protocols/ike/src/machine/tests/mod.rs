//! Endpoints on a network in virtual time.

mod again;
mod attacks;
mod authentication;
#[cfg(feature = "tls")]
mod certificates;
mod crowd;
mod faults;
mod first;
mod flood;
#[cfg(feature = "tls")]
mod followup;
mod foreign;
mod fragments;
mod guesses;
#[cfg(feature = "tls")]
mod intermediate;
mod life;
mod moving;
mod rates;
mod rekeying;
mod resumption;
mod storm;

use crate::machine::*;
use crate::payload::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, SecureRng};
use usher_crypto::Key;
use usher_crypto::tls::{
    ClientConfig, ClientOptions, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
};
use usher_eap::method::tls::{PeerMethodTls, PeerTls, ServerMethodTls, ServerTls};
use usher_eap::method::{Context, PeerOffer, ServerOffer, UserSecret};
use usher_eap::method::{md5, mschapv2};
use usher_esp::{InboundSa, OutboundSa};

pub(super) const INITIATOR: &str = "192.0.2.1";
pub(super) const RESPONDER: &str = "198.51.100.1";
pub(super) const PASSWORD: &[u8] = b"a long password";

pub(super) fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn network(text: &str, prefix: u8) -> Vec<TrafficSelector> {
    vec![TrafficSelector::network(text.parse().unwrap(), prefix).unwrap()]
}

/// A connection by one shared key, as one side has it. The initiator's traffic is of 10.1.0.0/16, the responder's of
/// 10.2.0.0/16.
pub(super) fn connection(initiator: bool) -> Connection {
    let (nets, ids) = ([network("10.1.0.0", 16), network("10.2.0.0", 16)], ["ini.test", "gw.test"]);
    let (own, other) = if initiator { (0, 1) } else { (1, 0) };
    let child = ChildConfig {
        name: "net".into(),
        proposals: vec![
            Proposal::esp("aes128gcm16-x25519").unwrap(),
            Proposal::esp("aes128-sha256").unwrap(),
        ],
        local: Some(nets[own].clone()),
        remote: Some(nets[other].clone()),
        mode: Mode::Tunnel,
        rekey_after: None,
    };
    Connection {
        name: "site".into(),
        local: Identification::fqdn(ids[own]),
        remote: Some(Identification::fqdn(ids[other])),
        from: None,
        local_auth: LocalAuth::Psk(Key::from(&b"secret"[..])),
        remote_auth: RemoteAuth::Psk(Key::from(&b"secret"[..])),
        proposals: vec![Proposal::ike("aes128-sha256-x25519-modp1024").unwrap()],
        children: vec![child],
        childless: Childless::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: false,
    }
}

/// Two hosts, and what they have installed.
pub(super) struct World {
    pub(super) net: Network,
    pub(super) initiator: At<Endpoint>,
    pub(super) responder: At<Endpoint>,
    pub(super) connection: Arc<Connection>,
}

/// Who answers the responder's questions about EAP: a server of usher-eap on its host.
#[derive(Default)]
struct EapHost {
    conversations: HashMap<SaId, usher_eap::server::Server>,
    names: HashMap<SaId, String>,
}

impl EapHost {
    fn answer(&mut self, sa: SaId, packet: &[u8], method: Method) -> EapAnswer {
        use usher_eap::server::{Event as E, Server};
        let server = match self.conversations.get_mut(&sa) {
            Some(server) => {
                server.handle(packet);
                server
            }
            None => {
                self.names.insert(sa, String::from_utf8_lossy(&packet[5..]).into_owned());
                let offer: Box<dyn ServerOffer> = match method {
                    Method::Md5 => Box::new(md5::Password::new(PASSWORD)),
                    Method::Tls => Box::new(tls_server()),
                    Method::MsChapV2 => {
                        Box::new(mschapv2::Hash::new(&UserSecret::Clear(Key::from(PASSWORD))).unwrap())
                    }
                };
                let mut rng = SecureRng::from_seed([77; 32]);
                let wall = usher_core::WallTime::from_unix_secs(0);
                let context =
                    Context { rng: &mut rng, wall, mtu: None, without_extended_master_secret: false };
                let server = Server::new(vec![offer], packet[1], context);
                self.conversations.entry(sa).or_insert(server)
            }
        };
        let mut out = Vec::new();
        let _ = server.poll_transmit(&mut out);
        match server.poll_event() {
            Some(E::Success { keys, .. }) => {
                let identity = Identification::of_text(&self.names[&sa]);
                EapAnswer::Accept { packet: out, msk: keys.map(|keys| Key::from(&keys.msk[..])), identity }
            }
            Some(E::Failure { .. }) => EapAnswer::Reject { packet: out },
            _ => EapAnswer::Continue(out),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Md5,
    MsChapV2,
    Tls,
}

/// EAP-TLS 1.3, with certificates that are for tests.
fn tls_server() -> ServerMethodTls {
    let config = ServerConfig::new(ServerOptions {
        versions: Version::Tls13.into(),
        credentials: fixtures::server(2),
        client_roots: Some(Roots::from_der([fixtures::root()])),
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    });
    ServerMethodTls { tls: ServerTls::Real(config.unwrap()), fragment: 1024 }
}

fn tls_peer() -> PeerMethodTls {
    let config = ClientConfig::new(ClientOptions {
        versions: Version::Tls13.into(),
        credentials: Some(fixtures::client(2)),
        roots: Roots::from_der([fixtures::root()]),
        server_name: None,
        resumption: None,
        clock: WallClock::at(fixtures::WALL_TIME),
        key_log: None,
    });
    PeerMethodTls { tls: PeerTls::Real(config.unwrap(), 0), fragment: 1024 }
}

pub(super) fn peer_auth(method: Method, password: &[u8]) -> LocalAuth {
    let offer: Box<dyn PeerOffer> = match method {
        Method::Md5 => Box::new(md5::Password::new(password)),
        Method::Tls => Box::new(tls_peer()),
        Method::MsChapV2 => Box::new(mschapv2::Account::new(b"ann", password)),
    };
    LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer]) }
}

pub(super) fn config() -> Config {
    Config::default()
}

impl World {
    pub(super) fn new(initiator: Connection, responder: Connection) -> Self {
        Self::with(config(), initiator, responder, Method::MsChapV2)
    }
    pub(super) fn psk() -> Self {
        Self::new(connection(true), connection(false))
    }
    pub(super) fn with(config: Config, initiator: Connection, responder: Connection, method: Method) -> Self {
        let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
        let mut net = Network::new(channel);
        let endpoint = |seed| Endpoint::new(config, SecureRng::from_seed([seed; 32]));
        let hosts = [(INITIATOR, 1), (RESPONDER, 2)].map(|(address, seed)| {
            let host = net.add(endpoint(seed), &[address.parse().unwrap()]);
            net.bind(host, SOCKET, at(address, 500));
            net.bind(host, NAT_SOCKET, at(address, 4500));
            host
        });
        let [first, second] = hosts;
        let mut world = Self { net, initiator: first, responder: second, connection: Arc::new(initiator) };
        world.host(method, responder);
        world
    }
    /// The responder's host: it judges EAP, gives the address 10.9.0.7 and the name server 10.9.0.1.
    fn host(&mut self, method: Method, connection: Connection) {
        let eap = Rc::new(RefCell::new(EapHost::default()));
        self.net.on_event(self.responder, move |event| match event {
            Event::Eap { sa, packet, .. } => {
                let answer = eap.borrow_mut().answer(*sa, packet, method);
                Some((millis(5), Command::Eap { sa: *sa, answer }))
            }
            Event::AddressWanted { sa, .. } => {
                let attributes = vec![
                    ConfigurationAttribute::address("10.9.0.7".parse().unwrap(), 32),
                    ConfigurationAttribute::dns("10.9.0.1".parse().unwrap()),
                ];
                Some((millis(5), Command::Address { sa: *sa, attributes }))
            }
            _ => None,
        });
        self.net.command(self.responder, Command::Serve(vec![Arc::new(connection)])).unwrap();
    }
    pub(super) fn initiate(&mut self) {
        let connection = self.connection.clone();
        let (local, remote) = (at(INITIATOR, 500), at(RESPONDER, 500));
        self.net.command(self.initiator, Command::Initiate { token: 7, connection, local, remote }).unwrap();
    }
    /// Initiates, and lets so much time pass.
    pub(super) fn connect(&mut self) -> (SaId, SaId) {
        self.initiate();
        self.net.run(secs(1));
        let ids =
            [self.initiator, self.responder].map(|host| self.established(host).expect("it is established"));
        (ids[0], ids[1])
    }
    pub(super) fn events(&self, host: At<Endpoint>) -> Vec<Event> {
        self.net.events(host).iter().map(|(_, event)| event.clone()).collect()
    }
    pub(super) fn established(&self, host: At<Endpoint>) -> Option<SaId> {
        self.events(host).iter().find_map(|event| match event {
            Event::Established { sa, .. } => Some(*sa),
            _ => None,
        })
    }
    pub(super) fn ended(&self, host: At<Endpoint>) -> Vec<EndReason> {
        let events = self.events(host);
        let reason = |event: &Event| match event {
            Event::Ended { reason, .. } => Some(*reason),
            _ => None,
        };
        events.iter().filter_map(reason).collect()
    }
    /// The CHILD_SAs that a host has installed and not removed, by the SPI at which they receive.
    pub(super) fn children(&self, host: At<Endpoint>) -> BTreeMap<u32, ChildSa> {
        let mut all = BTreeMap::new();
        for event in self.events(host) {
            match event {
                Event::Install { child, .. } => {
                    assert!(all.insert(child.inbound, *child).is_none(), "an SPI is installed twice");
                }
                Event::Remove { inbound, outbound, .. } => {
                    let removed: ChildSa = all.remove(&inbound).expect("what is removed was installed");
                    assert_eq!(removed.outbound, outbound);
                }
                _ => {}
            }
        }
        all
    }
    /// Each side has so many CHILD_SAs, and each of them fits one of the other side: keys, SPIs, selectors.
    pub(super) fn fit(&self, count: usize) {
        let (ours, theirs) = (self.children(self.initiator), self.children(self.responder));
        assert_eq!((ours.len(), theirs.len()), (count, count));
        for child in ours.values() {
            let other = &theirs[&child.outbound];
            assert_eq!(child.inbound, other.outbound);
            assert_eq!(
                (&child.inbound_keys, &child.outbound_keys),
                (&other.outbound_keys, &other.inbound_keys)
            );
            assert_ne!(child.inbound_keys, child.outbound_keys);
            assert_eq!((&child.local, &child.remote), (&other.remote, &other.local));
            assert_eq!(
                (child.algorithms, child.mode, child.encapsulated),
                (other.algorithms, other.mode, other.encapsulated)
            );
            assert_ne!(child.initiator, other.initiator);
            // As two pairs of ESP: what one side seals the other opens.
            let (a, b) = (child.pair(), other.pair());
            let (spi, lifetime) = (a.outbound, a.lifetime);
            let outbound = OutboundSa::new(spi, a.transform, &a.outbound_keys, lifetime, [0; 32]);
            let inbound = InboundSa::new(b.inbound, b.transform, &b.inbound_keys, lifetime, b.window);
            let (mut outbound, mut inbound, mut buf) = (outbound.unwrap(), inbound.unwrap(), [0; 128]);
            let length = outbound.seal(&mut buf, 20, 4).unwrap();
            assert!(inbound.open(&mut buf[..length]).is_ok());
        }
    }
    pub(super) fn sas(&self) -> (usize, usize) {
        (self.net[self.initiator].sas(), self.net[self.responder].sas())
    }
    /// Nothing is held that has ended: after long enough.
    pub(super) fn forgotten(&mut self) {
        self.net.run(secs(300));
        assert_eq!((self.sas(), self.net[self.responder].half_open()), ((0, 0), 0));
        for host in [self.initiator, self.responder] {
            assert_eq!(self.children(host).len(), 0);
        }
    }
    pub(super) fn counters(&self, host: At<Endpoint>) -> Counters {
        *self.net[host].counters()
    }
    /// Gives a host a datagram that somebody sent from an address.
    pub(super) fn forge(&mut self, host: At<Endpoint>, from: SocketAddr, to: SocketAddr, data: &[u8]) {
        let socket = if to.port() == 500 { SOCKET } else { NAT_SOCKET };
        let path = usher_core::Path { socket, local: to, remote: from };
        self.net.give(host, usher_core::Input::Datagram { path, data });
    }
}

pub(super) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
pub(super) fn instant(after: Duration) -> Instant {
    Instant::ZERO + after
}
