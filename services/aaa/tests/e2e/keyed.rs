//! Keys reach both ends. A small method of many rounds, with different keys each time, takes EAP-TLS's place.

use crate::build::{
    aaa_config, diameter_nas, diameter_server, radius_nas, test_network, test_users, user_name,
};
use crate::world::AaaTestNetwork;
use std::sync::Arc;
use usher_aaa::{AaaServer, AuthMethod, radius_socket};
use usher_core::bench::TestMachine;
use usher_core::{
    DatagramPath, Instant, Machine, MachineInput, SecureRng, Seed, SocketId, Transmit, WallTime,
};
use usher_crypto::digest::HmacMd5Key;
use usher_eap::EapKeys;
use usher_eap::method::{
    EapMethodContext, PeerMethod, PeerMethodFactory, PeerMethodResult, ServerMethod, ServerMethodFactory,
    ServerMethodResult,
};
use usher_eap::packet::EapType;
use usher_eap::peer::{self, EapPeer};
use usher_nas::authenticator::{AuthenticatorCommand, AuthenticatorEvent};
use usher_nas::station::{self, EapCredentials};
use usher_nas::{NasAuthenticator, StationId};

const ROUNDS: u8 = 5;
/// Longer than one RADIUS attribute, so that packets are split and joined on the way.
const NONCE: usize = 700;

fn derive_keys(secret: &[u8], nonce: &[u8]) -> EapKeys {
    let key = HmacMd5Key::new(secret);
    let mut out = EapKeys { msk: [0; 64].into(), emsk: [0; 64].into(), session_id: None };
    for (i, part) in out.msk.chunks_exact_mut(16).chain(out.emsk.chunks_exact_mut(16)).enumerate() {
        part.copy_from_slice(&key.mac(&[&[i as u8], nonce]));
    }
    out
}

/// The method, of either side.
#[derive(Clone, Debug)]
struct KeyedMethod(&'static [u8]);

#[derive(Debug)]
struct KeyedServer {
    secret: &'static [u8],
    nonce: Vec<u8>,
    left: u8,
}
#[derive(Debug)]
struct KeyedPeer {
    secret: &'static [u8],
    keys: Option<EapKeys>,
}

impl ServerMethodFactory for KeyedMethod {
    fn kind(&self) -> EapType {
        EapType::TLS
    }
    fn start_server_method(&self, context: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        let mut nonce = vec![0; NONCE];
        context.rng.fill_bytes(&mut nonce);
        Box::new(KeyedServer { secret: self.0, nonce, left: ROUNDS })
    }
}
impl ServerMethod for KeyedServer {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.push(self.left);
        out.extend_from_slice(&self.nonce);
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        if data != &derive_keys(self.secret, &self.nonce).emsk[..] {
            return ServerMethodResult::Failure;
        }
        self.left -= 1;
        if self.left == 0 { ServerMethodResult::Success } else { ServerMethodResult::Continue }
    }
    fn keys(&self) -> Option<EapKeys> {
        Some(derive_keys(self.secret, &self.nonce))
    }
}
impl PeerMethodFactory for KeyedMethod {
    fn kind(&self) -> EapType {
        EapType::TLS
    }
    fn start_peer_method(&self, _: EapMethodContext<'_>) -> Box<dyn PeerMethod> {
        Box::new(KeyedPeer { secret: self.0, keys: None })
    }
}
impl PeerMethod for KeyedPeer {
    fn handle_request(&mut self, _: u8, data: &[u8], out: &mut Vec<u8>) -> PeerMethodResult {
        let [left, nonce @ ..] = data else { return PeerMethodResult::Ignore };
        let keys = derive_keys(self.secret, nonce);
        out.extend_from_slice(&*keys.emsk);
        self.keys = Some(keys);
        if *left == 1 { PeerMethodResult::Done } else { PeerMethodResult::Continue }
    }
    fn keys(&self) -> Option<EapKeys> {
        self.keys.clone()
    }
}

fn with_keyed(mut config: usher_aaa::AaaServerConfig) -> usher_aaa::AaaServerConfig {
    config.methods = vec![AuthMethod::EapTls, AuthMethod::EapMd5];
    config.tls = Some(Arc::new(KeyedMethod(b"right")));
    config
}

/// Returns each station's key and the NAS's key for it, in the stations' order.
pub(crate) fn pairs_of_keys(w: &AaaTestNetwork) -> Vec<([u8; 64], [u8; 64])> {
    let at_nas = |i: usize| {
        w.nas_events.iter().find_map(|(_, _, e)| match e {
            AuthenticatorEvent::Authenticated(login) if login.station.nas_port() == i as u32 => {
                login.msk.as_deref().copied()
            }
            _ => None,
        })
    };
    let mut pairs: Vec<_> = w
        .station_events
        .iter()
        .filter_map(|(i, _, e)| match e {
            station::StationEvent::Success { msk: Some(msk) } => Some((*i, **msk, at_nas(*i).unwrap())),
            _ => None,
        })
        .collect();
    pairs.sort_unstable_by_key(|p| p.0);
    pairs.into_iter().map(|(_, a, b)| (a, b)).collect()
}

fn everybody_gets_the_key(mut w: AaaTestNetwork) {
    let n = w.stations.len();
    for i in 0..n {
        let secret: &[u8] = if i % 4 == 3 { b"wrong" } else { b"right" };
        w.start_login(i, &user_name(i), EapCredentials::from_method(KeyedMethod(secret)));
    }
    w.run_until(5);
    let pairs = pairs_of_keys(&w);
    assert_eq!(pairs.len(), n * 3 / 4);
    assert!(pairs.iter().all(|(station, nas)| station == nas));
    let mut keys: Vec<_> = pairs.into_iter().map(|p| p.0).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), n * 3 / 4);
    assert_eq!(w.net[w.servers[0]].counters().accepted_eap_tls, n as u64 * 3 / 4);
    assert_eq!(w.net[w.servers[0]].counters().rejected_wrong_password, n as u64 / 4);
}

#[test]
fn station_and_nas_hold_the_same_key_over_radius() {
    let config = with_keyed(aaa_config(test_users(Seed::new(1), 40)));
    everybody_gets_the_key(test_network(40, radius_nas(1), &[config]));
}

#[test]
fn station_and_nas_hold_the_same_key_over_diameter() {
    let config = with_keyed(diameter_server(0, test_users(Seed::new(1), 40)));
    let mut w = test_network(40, diameter_nas(1), &[config]);
    w.run_until(1);
    everybody_gets_the_key(w);
}

#[test]
fn a_nak_chooses_among_what_is_offered() {
    let mut w = test_network(2, radius_nas(1), &[with_keyed(aaa_config(test_users(Seed::new(1), 2)))]);
    w.start_password_login(0);
    w.run_until(1);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Success { msk: None }]);
    assert_eq!(w.net[w.servers[0]].counters().accepted_eap_md5, 1);

    let mut config = with_keyed(aaa_config(test_users(Seed::new(1), 1)));
    config.methods = vec![AuthMethod::EapTls];
    let mut w = test_network(1, radius_nas(1), &[config]);
    w.start_password_login(0);
    w.run_until(1);
    assert_eq!(w.station_outcomes(), [station::StationEvent::Failure]);
    assert_eq!(w.net[w.servers[0]].counters().rejected_no_method, 1);
}

/// A station in the access server's own host: EAP packets are passed by commands.
struct HandoverFixture {
    now: Instant,
    nas: TestMachine<NasAuthenticator>,
    server: TestMachine<AaaServer>,
    peer: EapPeer,
    events: Vec<AuthenticatorEvent>,
}

const STATION: StationId = StationId::Host(0x1_0000_0007);

impl HandoverFixture {
    fn new(identity: Option<Vec<u8>>) -> Self {
        let seed = Seed::new(4);
        let config = with_keyed(aaa_config(test_users(seed, 1)));
        let mut h = Self {
            now: Instant::ZERO,
            nas: TestMachine::new(
                NasAuthenticator::new(radius_nas(1), seed.derive_secure_rng("nas", 0)).unwrap(),
            ),
            server: TestMachine::new(AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).unwrap()),
            peer: EapPeer::new(
                peer::EapPeerConfig {
                    identity: user_name(0),
                    methods: Arc::new([Box::new(KeyedMethod(b"right"))]),
                    timeout: usher_core::Duration::from_secs(60),
                    wall: WallTime::from_unix_secs(0),
                },
                SecureRng::from_seed([1; 32]),
                Instant::ZERO,
            ),
            events: Vec::new(),
        };
        h.nas
            .handle_command(h.now, AuthenticatorCommand::StartSession { station: STATION, identity })
            .unwrap();
        h
    }

    fn run_to_idle(&mut self) {
        let (now, mut buf) = (self.now, Vec::new());
        loop {
            let mut quiet = true;
            while let Some(Transmit::Datagram { path }) = self.nas.poll_transmit(&mut buf) {
                quiet = false;
                let from = std::net::SocketAddr::new(crate::world::nas_address(0), 50_000);
                let path = DatagramPath { socket: radius_socket(0), local: path.remote, remote: from };
                self.server.handle_input(now, MachineInput::Datagram { path, data: &buf });
            }
            while let Some(Transmit::Datagram { path }) = self.server.poll_transmit(&mut buf) {
                quiet = false;
                let local = std::net::SocketAddr::new(crate::world::server_address(0), 1812);
                let path =
                    DatagramPath { socket: SocketId::from_number(0), local: path.remote, remote: local };
                self.nas.handle_input(now, MachineInput::Datagram { path, data: &buf });
            }
            while let Some(event) = self.nas.poll_event() {
                quiet = false;
                let AuthenticatorEvent::EapToStation { packet, .. } = event else {
                    self.events.push(event);
                    continue;
                };
                assert!(self.peer.handle_packet(now, &packet));
                if self.peer.poll_transmit(&mut buf) {
                    let packet = buf.clone();
                    self.nas
                        .handle_command(
                            now,
                            AuthenticatorCommand::EapFromStation { station: STATION, packet },
                        )
                        .unwrap();
                }
            }
            if quiet {
                return;
            }
        }
    }
}

#[test]
fn a_station_in_the_same_host_is_handed_its_packets() {
    for (identity, asked_first) in [(None, true), (Some(user_name(0)), false)] {
        let mut h = HandoverFixture::new(identity);
        h.run_to_idle();
        let [AuthenticatorEvent::Authenticated(login)] = &h.events[..] else { panic!("{:?}", h.events) };
        assert_eq!((login.station, &login.name[..]), (STATION, &user_name(0)[..]));
        assert_eq!(login.rounds, u16::from(ROUNDS) + 1);
        let Some(peer::EapPeerEvent::Success { keys: Some(keys) }) = h.peer.poll_event() else {
            panic!("asked for its identity first: {asked_first}")
        };
        assert_eq!(login.msk, Some(keys.msk.clone()));
        // The host's own station leaves no state behind.
        let again = h.nas.handle_command(h.now, AuthenticatorCommand::RemoveStation { station: STATION });
        assert!(again.is_err());
    }
}

#[test]
fn a_session_that_is_forgotten_leaves_nothing_behind() {
    let mut h = HandoverFixture::new(Some(user_name(0)));
    h.nas.handle_command(h.now, AuthenticatorCommand::RemoveStation { station: STATION }).unwrap();
    h.run_to_idle();
    assert!(h.events.is_empty() && h.nas.active_session_count() == 0);
    assert_eq!(h.nas.radius_counters().unwrap().cancelled, 1);
    let packet = vec![2, 0, 0, 5, 1];
    assert!(
        h.nas
            .handle_command(h.now, AuthenticatorCommand::EapFromStation { station: STATION, packet })
            .is_err()
    );
    assert_eq!(h.nas.counters().no_session, 1);
}

#[test]
fn a_challenge_that_is_none_fails_the_session() {
    // The first reply has an EAP-Success in place of a challenge. A bare server rebuilds it.
    use usher_radius::attribute::kind;
    use usher_radius::server::{self, ClientConfig, RadiusServer};
    let mut h = HandoverFixture::new(Some(user_name(0)));
    let client = ClientConfig::new(crate::world::nas_address(0), 32, crate::build::shared_secret());
    let mut bare = TestMachine::new(
        RadiusServer::new(server::RadiusServerConfig::new(vec![client]), SecureRng::from_seed([2; 32]))
            .unwrap(),
    );
    let mut buf = Vec::new();
    let Some(Transmit::Datagram { path }) = h.nas.poll_transmit(&mut buf) else { panic!("no request") };
    let from = std::net::SocketAddr::new(crate::world::nas_address(0), 50_000);
    let path_in = DatagramPath { socket: SocketId::from_number(0), local: path.remote, remote: from };
    bare.handle_input(h.now, MachineInput::Datagram { path: path_in, data: &buf });
    let Some(server::RadiusServerEvent::Request(request)) = bare.poll_event() else { panic!("not verified") };
    assert_eq!(request.attributes.get(kind::USER_NAME), Some(&user_name(0)[..]));
    assert_eq!(request.attributes.get_u32(kind::SERVICE_TYPE), Some(2));
    assert_eq!(request.attributes.get_u32(kind::FRAMED_MTU), Some(1400));
    assert_eq!(request.attributes.get_u32(kind::NAS_PORT), Some(7));
    assert_eq!(request.attributes.get_u32(kind::NAS_PORT_TYPE), Some(15));
    assert!(request.attributes.get_ipv4(kind::NAS_IP_ADDRESS).is_some());
    let mut attributes = usher_radius::AttributeList::new();
    attributes.push_eap(&[3, 0, 0, 4]);
    let code = usher_radius::PacketCode::ACCESS_CHALLENGE;
    bare.handle_command(
        h.now,
        server::RadiusServerCommand::Respond { token: request.token, code, attributes },
    )
    .unwrap();
    let Some(Transmit::Datagram { path }) = bare.poll_transmit(&mut buf) else { panic!("no answer") };
    let server = std::net::SocketAddr::new(crate::world::server_address(0), 1812);
    let path = DatagramPath { socket: SocketId::from_number(0), local: path.remote, remote: server };
    h.nas.handle_input(h.now, MachineInput::Datagram { path, data: &buf });
    assert_eq!(h.nas.counters().aaa_protocol, 1);
    assert!(matches!(h.nas.poll_event(), Some(AuthenticatorEvent::Failed { .. })));
    let Some(AuthenticatorEvent::EapToStation { packet, .. }) = h.nas.poll_event() else {
        panic!("no last word")
    };
    assert_eq!((packet[0], packet.len()), (4, 4));
}
