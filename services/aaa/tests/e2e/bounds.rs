//! Limits of memory and time of half-open logins.

use crate::build::{aaa_config, shared_secret, test_users, user_name};
use crate::tls::{tls_client_config as tls_client, tls_server_config as tls_server};
use crate::world::{nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, AaaServerConfig, AaaServerEvent, AuthMethod, RejectCause};
use usher_core::bench::TestMachine;
use usher_core::{DatagramPath, Duration, Instant, Machine, MachineInput, Seed, SocketId, Transmit};
use usher_crypto::tls::{TlsClientEngine as TlsClient, TlsEngine, TlsVersion, fixtures};
use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};
use usher_eap::method::{EapMethodContext, ServerMethod, ServerMethodFactory, ServerMethodResult};
use usher_eap::packet::{self, EapType};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RadiusReply, RequestTarget, ServerConfig};
use usher_radius::{AttributeList, PacketCode};

/// Octets that each conversation of [`ScriptedMethod`] reports.
const CONVERSATION_OCTETS: usize = 80 << 10;

/// A method that its peer controls, without end: `c` continues and is expensive, all else is ignored.
#[derive(Debug)]
struct ScriptedMethod;

impl ServerMethodFactory for ScriptedMethod {
    fn kind(&self) -> EapType {
        EapType::TLS
    }
    fn start_server_method(&self, _: EapMethodContext<'_>) -> Box<dyn ServerMethod> {
        Box::new(ScriptedMethod)
    }
}

impl ServerMethod for ScriptedMethod {
    fn build_request(&mut self, _: u8, out: &mut Vec<u8>) {
        out.push(b'?');
    }
    fn handle_response(&mut self, _: u8, data: &[u8]) -> ServerMethodResult {
        if data == b"c" { ServerMethodResult::Continue } else { ServerMethodResult::Ignore }
    }
    fn is_costly(&self, data: &[u8]) -> bool {
        data == b"c"
    }
    fn memory_octets(&self) -> usize {
        CONVERSATION_OCTETS
    }
}

fn instant_at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn scripted_config() -> AaaServerConfig {
    let mut config = aaa_config(test_users(Seed::new(1), 8));
    config.methods = vec![AuthMethod::EapTls, AuthMethod::Pap];
    config.tls = Some(Arc::new(ScriptedMethod));
    config
}

/// An AAA server and its access servers.
struct NasTestNetwork {
    server: TestMachine<AaaServer>,
    nas: Vec<TestMachine<RadiusClient>>,
    replies: Vec<(usize, RadiusReply)>,
    events: Vec<AaaServerEvent>,
}

impl NasTestNetwork {
    fn new(config: AaaServerConfig, nas: usize) -> Self {
        let seed = Seed::new(3);
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), shared_secret());
        let mut asking = client::RadiusClientConfig::for_server(to);
        asking.max_sockets = 100;
        let client = |i| {
            TestMachine::new(RadiusClient::new(asking.clone(), seed.derive_secure_rng("nas", i)).unwrap())
        };
        let server = TestMachine::new(AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).unwrap());
        Self { server, nas: (0..nas as u64).map(client).collect(), replies: Vec::new(), events: Vec::new() }
    }
    /// Delivers a request to the server.
    fn send_request(&mut self, now: Instant, nas: usize, token: u64, fill: impl FnOnce(&mut AttributeList)) {
        let mut attributes = AttributeList::new();
        fill(&mut attributes);
        let code = PacketCode::ACCESS_REQUEST;
        let request = client::RadiusClientCommand::Request {
            token,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        self.nas[nas].handle_command(now, request).unwrap();
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { path }) = self.nas[nas].poll_transmit(&mut buf) {
            let remote = SocketAddr::new(nas_address(nas), 50_000 + path.socket.n as u16);
            let local = SocketAddr::new(server_address(0), 1812);
            let path = DatagramPath { socket: usher_aaa::radius_socket(0), local, remote };
            self.server.handle_input(now, MachineInput::Datagram { path, data: &buf });
            self.deliver_replies(now);
        }
    }
    /// Delivers the server's replies.
    fn deliver_replies(&mut self, now: Instant) {
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { path }) = self.server.poll_transmit(&mut buf) {
            let nas = (0..self.nas.len()).find(|i| nas_address(*i) == path.remote.ip()).unwrap();
            let socket = SocketId::from_number(u32::from(path.remote.port() - 50_000));
            let path = DatagramPath { socket, local: path.remote, remote: path.local };
            self.nas[nas].handle_input(now, MachineInput::Datagram { path, data: &buf });
            while let Some(event) = self.nas[nas].poll_event() {
                let client::RadiusClientEvent::Response(response) = event else { panic!("{event:?}") };
                self.replies.push((nas, response));
            }
        }
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
    }
    /// Returns the only reply.
    fn take_reply(&mut self) -> RadiusReply {
        assert_eq!(self.replies.len(), 1);
        self.replies.remove(0).1
    }
    /// Starts a login. Returns its State and the identifier of the EAP request.
    fn start_login(&mut self, now: Instant, nas: usize, token: u64) -> (Vec<u8>, u8) {
        let name = user_name(0);
        let mut identity = Vec::new();
        packet::emit_packet(&mut identity, packet::EapCode::Response, 1, EapType::IDENTITY, &name);
        self.send_request(now, nas, token, |a| {
            a.push_bytes(kind::USER_NAME, &name).unwrap().push_eap(&identity);
        });
        let reply = self.take_reply();
        let mut eap = Vec::new();
        assert!(reply.code == PacketCode::ACCESS_CHALLENGE && reply.attributes.read_eap_packet(&mut eap));
        (reply.attributes.get(kind::STATE).unwrap().to_vec(), eap[1])
    }
    /// Continues a login with these data.
    fn send_eap_data(
        &mut self,
        now: Instant,
        nas: usize,
        token: u64,
        (state, id): &(Vec<u8>, u8),
        data: &[u8],
    ) {
        let mut response = Vec::new();
        packet::emit_packet(&mut response, packet::EapCode::Response, *id, EapType::TLS, data);
        self.send_request(now, nas, token, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(0)).unwrap().push_eap(&response);
            a.push_bytes(kind::STATE, state).unwrap();
        });
    }
}

#[test]
fn packets_that_are_ignored_keep_no_login_alive() {
    let mut h = NasTestNetwork::new(scripted_config(), 1);
    let login = h.start_login(instant_at(0), 0, 1);
    for n in 1..=4 {
        h.send_eap_data(instant_at(7000 * n), 0, 1 + n, &login, b"x");
    }
    assert_eq!((h.server.half_open(), h.server.counters().bad_eap), (1, 4));
    h.server.handle_input(instant_at(30_000), MachineInput::Timeout);
    assert_eq!((h.server.half_open(), h.server.counters().expired), (0, 1));
}

#[test]
fn a_login_ends_by_its_age_however_busy_it_is() {
    let mut h = NasTestNetwork::new(scripted_config(), 1);
    let mut login = h.start_login(instant_at(0), 0, 1);
    for n in 1..=19 {
        let now = instant_at(15_000 * n);
        h.server.handle_input(now, MachineInput::Timeout);
        h.send_eap_data(now, 0, 1 + n, &login, b"c");
        assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE, "{n}");
        login.1 += 1;
    }
    h.send_eap_data(instant_at(300_000), 0, 100, &login, b"c");
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_REJECT);
    let c = h.server.counters();
    assert_eq!((h.server.half_open(), c.overdue, c.unknown_session), (0, 1, 0));
    let [AaaServerEvent::Undecided(end)] = &h.events[..] else { panic!("{:?}", h.events) };
    assert_eq!(end.reason, Some(RejectCause::TooSlow));
    // For an unknown login no reject is reported.
    h.send_eap_data(instant_at(300_001), 0, 101, &login, b"c");
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_REJECT);
    let [_, AaaServerEvent::Undecided(stray)] = &h.events[..] else { panic!("{:?}", h.events) };
    assert_eq!((stray.reason, h.server.counters().unknown_session), (Some(RejectCause::UnknownSession), 1));
}

#[test]
fn half_open_octets_are_bounded_and_the_largest_client_loses() {
    let mut config = scripted_config();
    config.max_half_open_octets = 16 * CONVERSATION_OCTETS;
    let mut h = NasTestNetwork::new(config, 2);
    let quiet = h.start_login(instant_at(0), 1, 1);
    let mut flood = Vec::new();
    for n in 0..100 {
        flood.push(h.start_login(instant_at(n), 0, n));
        assert!(h.server.half_open_octets() <= 16 * CONVERSATION_OCTETS, "{}", h.server.half_open_octets());
    }
    assert!((10..16).contains(&h.server.half_open()), "{}", h.server.half_open());
    let evicted = h.server.counters().evicted;
    assert_eq!(evicted, 101 - h.server.half_open() as u64);
    h.send_eap_data(instant_at(200), 1, 200, &quiet, b"c");
    assert_eq!(
        h.take_reply().code,
        PacketCode::ACCESS_CHALLENGE,
        "the other client's login is older than all, and stays"
    );
    h.send_eap_data(instant_at(200), 0, 201, &flood[0], b"c");
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_REJECT, "the oldest of the flood is gone");
    h.send_eap_data(instant_at(200), 0, 202, &flood[99], b"c");
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE, "the newest is not");
}

#[test]
fn a_message_that_is_not_whole_counts_with_what_came_of_it() {
    let mut config = scripted_config();
    let tls = ServerTlsBackend::Real(tls_server(TlsVersion::Tls12));
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: 4096 }));
    let mut h = NasTestNetwork::new(config, 1);
    let mut login = h.start_login(instant_at(0), 0, 1);
    let before = h.server.half_open_octets();
    let part = [&[0x40][..], &[22; 2000]].concat();
    for n in 0..30 {
        h.send_eap_data(instant_at(n), 0, 2 + n, &login, &part);
        assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE);
        login.1 += 1;
    }
    assert!(h.server.half_open_octets() >= before + 50_000, "{}", h.server.half_open_octets());
}

#[test]
fn a_login_in_a_handshake_counts_the_memory_of_the_handshake() {
    for version in TlsVersion::ALL {
        let mut config = scripted_config();
        let tls = ServerTlsBackend::Real(tls_server(version));
        config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: 4096 }));
        let mut h = NasTestNetwork::new(config, 1);
        let login = h.start_login(instant_at(0), 0, 1);
        let before = h.server.half_open_octets();
        let mut hello = vec![0];
        TlsClient::new(&tls_client(version, fixtures::client_credentials(2))).unwrap().write_tls(&mut hello);
        h.send_eap_data(instant_at(1), 0, 2, &login, &hello);
        assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE);
        let after = h.server.half_open_octets();
        // Measured: 3.3 KiB, then 17.7 KiB with a chain of one certificate.
        assert!(before > 3 << 10 && after > before + (12 << 10), "{version:?}: {before}, then {after}");
        h.server.handle_input(instant_at(31_000), MachineInput::Timeout);
        assert_eq!((h.server.half_open(), h.server.half_open_octets()), (0, 0));
    }
}

/// Has the server do what is due at once. Returns the clients that got a reply.
fn run_due_step(h: &mut NasTestNetwork, now: Instant) -> Vec<usize> {
    assert!(h.server.poll_timeout().is_some_and(|due| due <= now), "nothing is due");
    h.server.handle_input(now, MachineInput::Timeout);
    h.deliver_replies(now);
    h.replies.drain(..).map(|(nas, _)| nas).collect()
}

#[test]
fn what_costs_little_waits_for_one_costly_step_and_not_for_all() {
    let mut config = scripted_config();
    config.max_steps_waiting = 100;
    let mut h = NasTestNetwork::new(config, 1);
    let now = instant_at(0);
    let logins: Vec<_> = (0..20).map(|n| h.start_login(now, 0, n)).collect();
    for (n, login) in (100..).zip(&logins) {
        h.send_eap_data(now, 0, n, login, b"c");
    }
    assert_eq!((h.replies.len(), h.server.steps_waiting()), (0, 20));
    for n in 0..20 {
        h.send_request(now, 0, 200 + n, |a| {
            a.push_bytes(kind::USER_NAME, &user_name(1)).unwrap().push_user_password(b"open sesame").unwrap();
        });
        assert_eq!(h.take_reply().code, PacketCode::ACCESS_ACCEPT, "a password is not kept waiting");
        // A second packet of a queued login is dropped.
        h.send_eap_data(now, 0, 300 + n, &logins[19], b"c");
        assert_eq!(run_due_step(&mut h, now), [0], "one step at a time");
    }
    assert_eq!((h.server.steps_waiting(), h.server.counters().steps_dropped), (0, 0));
    assert_eq!((h.server.counters().busy, h.server.counters().challenges), (20, 40));
    assert!(h.server.poll_timeout().is_some_and(|due| due > now));
}

#[test]
fn clients_take_turns_with_costly_steps() {
    let mut config = scripted_config();
    config.max_steps_waiting = 100;
    let mut h = NasTestNetwork::new(config, 3);
    let now = instant_at(0);
    for (nas, logins) in [(0, 10), (1, 2), (2, 1)] {
        for n in 0..logins {
            let login = h.start_login(now, nas, n);
            h.send_eap_data(now, nas, 100 + n, &login, b"c");
        }
    }
    let order: Vec<usize> = (0..13).flat_map(|_| run_due_step(&mut h, now)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn costly_steps_that_find_no_room_are_the_busiest_clients() {
    let mut config = scripted_config();
    config.max_steps_waiting = 4;
    let mut h = NasTestNetwork::new(config, 2);
    let now = instant_at(0);
    let logins: Vec<_> = (0..6).map(|n| h.start_login(now, 0, n)).collect();
    for (n, login) in (100..).zip(&logins) {
        h.send_eap_data(now, 0, n, login, b"c");
    }
    assert_eq!((h.server.steps_waiting(), h.server.counters().steps_dropped), (4, 2));
    let other = h.start_login(now, 1, 1);
    h.send_eap_data(now, 1, 2, &other, b"c");
    assert_eq!((h.server.steps_waiting(), h.server.counters().steps_dropped), (4, 3));
    let order: Vec<usize> = (0..4).flat_map(|_| run_due_step(&mut h, now)).collect();
    assert_eq!(order, [0, 1, 0, 0]);
    // Only a packet was dropped, not the login.
    h.send_eap_data(instant_at(6000), 0, 200, &logins[5], b"c");
    assert_eq!(run_due_step(&mut h, instant_at(6000)), [0]);
    assert_eq!(h.server.half_open(), 7);
}

#[test]
fn the_step_of_a_login_that_is_gone_is_not_done() {
    let mut config = scripted_config();
    (config.max_steps_waiting, config.max_half_open) = (100, 2);
    let mut h = NasTestNetwork::new(config, 2);
    let now = instant_at(0);
    for n in 0..3 {
        let login = h.start_login(now, 0, n);
        h.send_eap_data(now, 0, 100 + n, &login, b"c");
    }
    let last = h.start_login(now, 1, 1);
    h.send_eap_data(now, 1, 2, &last, b"c");
    assert_eq!((h.server.half_open(), h.server.counters().evicted), (2, 2));
    assert_eq!([run_due_step(&mut h, now), run_due_step(&mut h, now)], [[1], [0]]);
    assert_eq!(h.server.steps_waiting(), 0);
}

#[test]
fn a_handshakes_whole_messages_wait_and_nothing_else() {
    let mut config = scripted_config();
    config.max_steps_waiting = 100;
    let tls = ServerTlsBackend::Real(tls_server(TlsVersion::Tls12));
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: 512 }));
    let mut h = NasTestNetwork::new(config, 1);
    let now = instant_at(0);
    let mut login = h.start_login(now, 0, 1);
    let mut hello = Vec::new();
    TlsClient::new(&tls_client(TlsVersion::Tls12, fixtures::client_credentials(2)))
        .unwrap()
        .write_tls(&mut hello);
    let (first, rest) = hello.split_at(100);
    h.send_eap_data(now, 0, 2, &login, &[&[0x40][..], first].concat());
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE, "a fragment is acknowledged at once");
    login.1 += 1;
    h.send_eap_data(now, 0, 3, &login, &[&[0][..], rest].concat());
    assert_eq!((h.replies.len(), h.server.steps_waiting()), (0, 1));
    assert_eq!(run_due_step(&mut h, now), [0]);
    login.1 += 1;
    h.send_eap_data(now, 0, 4, &login, &[0]);
    assert_eq!(h.take_reply().code, PacketCode::ACCESS_CHALLENGE, "so is the next fragment asked for");
}
