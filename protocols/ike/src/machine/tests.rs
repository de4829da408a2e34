//! Endpoints on a test network in virtual time.

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
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, SecureRng};
use usher_crypto::SecretValue;
use usher_crypto::tls::{
    ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions, TlsVersion, TrustRoots,
    fixtures,
};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::{EapMethodContext, PeerMethodFactory, ServerMethodFactory, UserSecret};
use usher_eap::method::{md5, mschapv2};
use usher_esp::{InboundSa, OutboundSa};

impl IkeEndpoint {
    /// Runs a step of an IKE_SA at this time.
    fn run_sa_step_at<T>(
        &mut self,
        now: Instant,
        token: u64,
        what: impl FnOnce(&mut IkeSa, &mut IkeEndpointContext) -> T,
    ) -> Option<T> {
        self.cx.now = now;
        self.run_sa_step(token, what)
    }
    /// Asserts that the table of half-open IKE_SAs has those that are: effects keep it.
    fn assert_half_open_count(&self) {
        let sas = self.by_spi.values().filter_map(|token| self.sas.get(*token));
        assert_eq!(self.half_open(), sas.filter(|sa| sa.is_half_open()).count());
    }
}

/// Sends a request that the IKE_SA would not send.
pub(super) fn send_request(
    sa: &mut IkeSa,
    cx: &mut IkeEndpointContext,
    exchange: crate::code::ExchangeType,
    payloads: &[Payload],
) {
    match sa.as_established() {
        Some(sa) => {
            let mut started = informational::start_liveness_check();
            (started.kind, started.payloads) = (exchange, payloads.to_vec());
            sa::begin_exchange(sa, cx, started);
        }
        None => sa.base.request_protected(cx, exchange, payloads),
    }
}

/// Returns the state of an IKE_SA that is established.
pub(super) fn established_state(sa: &mut IkeSa) -> &mut established::EstablishedState {
    sa.as_established().expect("it is established").state
}

pub(super) const INITIATOR: &str = "192.0.2.1";
pub(super) const RESPONDER: &str = "198.51.100.1";
pub(super) const PASSWORD: &[u8] = b"a long password";

pub(super) fn socket_address(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}
pub(super) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub(super) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(super) fn network_selectors(text: &str, prefix: u8) -> Vec<TrafficSelector> {
    vec![TrafficSelector::from_network(text.parse().unwrap(), prefix).unwrap()]
}

/// A connection with one shared key, for either side. The initiator's traffic is of 10.1.0.0/16, the responder's of
/// 10.2.0.0/16.
pub(super) fn psk_connection(initiator: bool) -> IkeConnectionConfig {
    let (nets, ids) =
        ([network_selectors("10.1.0.0", 16), network_selectors("10.2.0.0", 16)], ["ini.test", "gw.test"]);
    let (own, other) = if initiator { (0, 1) } else { (1, 0) };
    let child = ChildSaConfig {
        name: "net".into(),
        proposals: vec![
            Proposal::parse_esp_proposal("aes128gcm16-x25519").unwrap(),
            Proposal::parse_esp_proposal("aes128-sha256").unwrap(),
        ],
        local: Some(nets[own].clone()),
        remote: Some(nets[other].clone()),
        mode: IpsecMode::Tunnel,
        rekey_after: None,
    };
    IkeConnectionConfig {
        name: "site".into(),
        local: Identification::from_fqdn(ids[own]),
        remote: Some(Identification::from_fqdn(ids[other])),
        from: None,
        local_auth: LocalAuth::Psk(SecretValue::from(&b"secret"[..])),
        remote_auth: RemoteAuth::Psk(SecretValue::from(&b"secret"[..])),
        proposals: vec![Proposal::parse_ike_proposal("aes128-sha256-x25519-modp1024").unwrap()],
        children: vec![child],
        childless: ChildlessPolicy::Allow,
        mobike: false,
        fragmentation: true,
        address: false,
        rekey_after: None,
        liveness: None,
        unique: false,
    }
}

/// Two hosts, and the CHILD_SAs that they have installed.
pub(super) struct IkeTestNetwork {
    pub(super) net: MachineNetwork,
    pub(super) initiator: NetworkHostHandle<IkeEndpoint>,
    pub(super) responder: NetworkHostHandle<IkeEndpoint>,
    pub(super) connection: Arc<IkeConnectionConfig>,
}

/// The responder's EAP server: one of usher-eap on its host.
#[derive(Default)]
struct EapHost {
    conversations: HashMap<IkeSaId, usher_eap::server::EapServer>,
    names: HashMap<IkeSaId, String>,
}

impl EapHost {
    fn answer_packet(&mut self, sa: IkeSaId, packet: &[u8], method: TestEapMethod) -> EapAnswer {
        use usher_eap::server::{EapServer, EapServerEvent};
        let server = match self.conversations.get_mut(&sa) {
            Some(server) => {
                server.handle_packet(packet);
                server
            }
            None => {
                self.names.insert(sa, String::from_utf8_lossy(&packet[5..]).into_owned());
                let offer: Box<dyn ServerMethodFactory> = match method {
                    TestEapMethod::Md5 => Box::new(md5::EapMd5Password::new(PASSWORD)),
                    TestEapMethod::Tls => Box::new(tls_server()),
                    TestEapMethod::MsChapV2 => Box::new(
                        mschapv2::MsChapV2ServerFactory::new(&UserSecret::Clear(SecretValue::from(PASSWORD)))
                            .unwrap(),
                    ),
                };
                let mut rng = SecureRng::from_seed([77; 32]);
                let wall = usher_core::WallTime::from_unix_secs(0);
                let context = EapMethodContext {
                    rng: &mut rng,
                    wall,
                    mtu: None,
                    without_extended_master_secret: false,
                };
                let server = EapServer::new(vec![offer], packet[1], context);
                self.conversations.entry(sa).or_insert(server)
            }
        };
        let mut out = Vec::new();
        let _ = server.poll_transmit(&mut out);
        match server.poll_event() {
            Some(EapServerEvent::Success { keys, .. }) => {
                let identity = Identification::of_text(&self.names[&sa]);
                EapAnswer::Accept {
                    packet: out,
                    msk: keys.map(|keys| SecretValue::from(&keys.msk[..])),
                    identity,
                }
            }
            Some(EapServerEvent::Failure { .. }) => EapAnswer::Reject { packet: out },
            _ => EapAnswer::Continue(out),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TestEapMethod {
    Md5,
    MsChapV2,
    Tls,
}

/// EAP-TLS 1.3 with test certificates.
fn tls_server() -> EapTlsServerFactory {
    let config = ServerConfig::new(TlsServerOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: fixtures::server_credentials(2),
        client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    });
    EapTlsServerFactory { tls: ServerTlsBackend::Real(config.unwrap()), fragment: 1024 }
}

fn tls_peer() -> EapTlsPeerFactory {
    let config = ClientConfig::new(TlsClientOptions {
        versions: TlsVersion::Tls13.into(),
        credentials: Some(fixtures::client_credentials(2)),
        roots: TrustRoots::from_der([fixtures::root_certificate()]),
        server_name: None,
        resumption: None,
        clock: SharedWallClock::from_time(fixtures::WALL_TIME),
        key_log: None,
    });
    EapTlsPeerFactory { tls: PeerTlsBackend::Real(config.unwrap(), 0), fragment: 1024 }
}

pub(super) fn peer_auth(method: TestEapMethod, password: &[u8]) -> LocalAuth {
    let offer: Box<dyn PeerMethodFactory> = match method {
        TestEapMethod::Md5 => Box::new(md5::EapMd5Password::new(password)),
        TestEapMethod::Tls => Box::new(tls_peer()),
        TestEapMethod::MsChapV2 => Box::new(mschapv2::MsChapV2Account::new(b"ann", password)),
    };
    LocalAuth::Eap { identity: b"ann".to_vec(), methods: Arc::new([offer]) }
}

pub(super) fn default_config() -> IkeEndpointConfig {
    IkeEndpointConfig::default()
}

impl IkeTestNetwork {
    pub(super) fn new(initiator: IkeConnectionConfig, responder: IkeConnectionConfig) -> Self {
        Self::with_config(default_config(), initiator, responder, TestEapMethod::MsChapV2)
    }
    pub(super) fn with_shared_key() -> Self {
        Self::new(psk_connection(true), psk_connection(false))
    }
    pub(super) fn with_config(
        config: IkeEndpointConfig,
        initiator: IkeConnectionConfig,
        responder: IkeConnectionConfig,
        method: TestEapMethod,
    ) -> Self {
        let channel = ChannelConfig { delay: millis(10), ..ChannelConfig::default() };
        let mut net = MachineNetwork::new(channel);
        let endpoint = |seed| IkeEndpoint::new(config, SecureRng::from_seed([seed; 32]));
        let hosts = [(INITIATOR, 1), (RESPONDER, 2)].map(|(address, seed)| {
            let host = net.add_host(endpoint(seed), &[address.parse().unwrap()]);
            net.bind_socket(host, SOCKET, socket_address(address, 500));
            net.bind_socket(host, NAT_SOCKET, socket_address(address, 4500));
            host
        });
        let [first, second] = hosts;
        let mut world = Self { net, initiator: first, responder: second, connection: Arc::new(initiator) };
        world.serve_responder(method, responder);
        world
    }
    /// Sets up the responder's host: it answers EAP, assigns the address 10.9.0.7 and the name server 10.9.0.1.
    fn serve_responder(&mut self, method: TestEapMethod, connection: IkeConnectionConfig) {
        let eap = Rc::new(RefCell::new(EapHost::default()));
        self.net.on_event(self.responder, move |event| match event {
            IkeEvent::Eap { sa, packet, .. } => {
                let answer = eap.borrow_mut().answer_packet(*sa, packet, method);
                Some((millis(5), IkeCommand::Eap { sa: *sa, answer }))
            }
            IkeEvent::AddressRequested { sa, .. } => {
                let attributes = vec![
                    ConfigurationAttribute::from_address("10.9.0.7".parse().unwrap(), 32),
                    ConfigurationAttribute::from_name_server("10.9.0.1".parse().unwrap()),
                ];
                Some((millis(5), IkeCommand::Address { sa: *sa, attributes }))
            }
            _ => None,
        });
        self.net.send_command(self.responder, IkeCommand::Serve(vec![Arc::new(connection)])).unwrap();
    }
    pub(super) fn initiate(&mut self) {
        let connection = self.connection.clone();
        let (local, remote) = (socket_address(INITIATOR, 500), socket_address(RESPONDER, 500));
        self.net
            .send_command(self.initiator, IkeCommand::Initiate { token: 7, connection, local, remote })
            .unwrap();
    }
    /// Initiates, and runs for this time.
    pub(super) fn connect(&mut self) -> (IkeSaId, IkeSaId) {
        self.initiate();
        self.net.run_for(secs(1));
        let ids = [self.initiator, self.responder]
            .map(|host| self.established_sa(host).expect("it is established"));
        (ids[0], ids[1])
    }
    pub(super) fn events(&self, host: NetworkHostHandle<IkeEndpoint>) -> Vec<IkeEvent> {
        self.net.recorded_events(host).iter().map(|(_, event)| event.clone()).collect()
    }
    pub(super) fn established_sa(&self, host: NetworkHostHandle<IkeEndpoint>) -> Option<IkeSaId> {
        self.events(host).iter().find_map(|event| match event {
            IkeEvent::Established { sa, .. } => Some(*sa),
            _ => None,
        })
    }
    pub(super) fn end_reasons(&self, host: NetworkHostHandle<IkeEndpoint>) -> Vec<EndReason> {
        let events = self.events(host);
        let reason = |event: &IkeEvent| match event {
            IkeEvent::Ended { reason, .. } => Some(*reason),
            _ => None,
        };
        events.iter().filter_map(reason).collect()
    }
    /// The installed CHILD_SAs of a host, by inbound SPI.
    pub(super) fn installed_children(&self, host: NetworkHostHandle<IkeEndpoint>) -> BTreeMap<u32, ChildSa> {
        let mut all = BTreeMap::new();
        for event in self.events(host) {
            match event {
                IkeEvent::Install { child, .. } => {
                    assert!(all.insert(child.inbound, *child).is_none(), "an SPI is installed twice");
                }
                IkeEvent::Remove { inbound, outbound, .. } => {
                    let removed: ChildSa = all.remove(&inbound).expect("what is removed was installed");
                    assert_eq!(removed.outbound, outbound);
                }
                _ => {}
            }
        }
        all
    }
    /// Asserts that each side has this many CHILD_SAs, and that they match: keys, SPIs, selectors.
    pub(super) fn assert_children_match(&self, count: usize) {
        let (ours, theirs) =
            (self.installed_children(self.initiator), self.installed_children(self.responder));
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
            // As pairs of ESP SAs: each side opens the other's packets.
            let (a, b) = (child.sa_pair(), other.sa_pair());
            let (spi, lifetime) = (a.outbound, a.lifetime);
            let outbound = OutboundSa::new(spi, a.transform, &a.outbound_keys, lifetime, [0; 32]);
            let inbound = InboundSa::new(b.inbound, b.transform, &b.inbound_keys, lifetime, b.window);
            let (mut outbound, mut inbound, mut buf) = (outbound.unwrap(), inbound.unwrap(), [0; 128]);
            let length = outbound.seal(&mut buf, 20, 4).unwrap();
            assert!(inbound.open(&mut buf[..length]).is_ok());
        }
    }
    pub(super) fn sa_counts(&self) -> (usize, usize) {
        [self.initiator, self.responder].iter().for_each(|host| self.net[*host].assert_half_open_count());
        (self.net[self.initiator].sa_count(), self.net[self.responder].sa_count())
    }
    /// Asserts that no state is left after a long enough time.
    pub(super) fn assert_all_removed(&mut self) {
        self.net.run_for(secs(300));
        assert_eq!((self.sa_counts(), self.net[self.responder].half_open()), ((0, 0), 0));
        for host in [self.initiator, self.responder] {
            assert_eq!(self.installed_children(host).len(), 0);
        }
    }
    pub(super) fn counters(&self, host: NetworkHostHandle<IkeEndpoint>) -> IkeCounters {
        *self.net[host].counters()
    }
    /// Gives a host a datagram with a forged source address.
    pub(super) fn forge_datagram(
        &mut self,
        host: NetworkHostHandle<IkeEndpoint>,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) {
        let socket = if to.port() == 500 { SOCKET } else { NAT_SOCKET };
        let path = usher_core::DatagramPath { socket, local: to, remote: from };
        self.net.inject_input(host, usher_core::MachineInput::Datagram { path, data });
    }
}

pub(super) fn ip_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
pub(super) fn instant_after(after: Duration) -> Instant {
    Instant::ZERO + after
}
