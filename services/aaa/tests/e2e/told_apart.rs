//! Tests that a peer cannot distinguish existing from unknown names.

use crate::build::{aaa_config, radius_nas, shared_secret, test_network, user_name};
use crate::tunnels::{self, peap_credentials, ttls_credentials};
use crate::world::{nas_address, server_address};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerJob, AuthMethod, StoredPassword, User,
    UserCacheConfig, UserDirectory, UserLookupResult, UserSource, radius_socket,
};
use usher_core::bench::TestMachine;
use usher_core::{
    DatagramPath, Duration, Instant, Machine, MachineInput, SecureRng, Seed, SimulationRng, SocketId,
    Transmit, WallTime,
};
use usher_crypto::legacy::{mschap, nt_hash};
use usher_crypto::password::argon2_hash;
use usher_crypto::tls::{TlsVersion, fixtures};
use usher_eap::method::tls::{EapTlsPeerFactory, EapTlsServerFactory, PeerTlsBackend, ServerTlsBackend};
use usher_eap::method::{PeerMethodFactory, gtc, md5, mschapv2};
use usher_eap::peer::{self, EapPeer};
use usher_nas::station::EapCredentials;
use usher_radius::attribute::{kind, vendor};
use usher_radius::client::{self, RadiusClient, RadiusReply, RequestTarget, ServerConfig};
use usher_radius::{AttributeList, PacketCode};

/// Attempts at each server, half of them with existing names.
const TRIES: usize = 10_000;
const DELAY: Duration = Duration::from_secs(1);
const WRONG: &[u8] = b"not it";

/// The part of an attempt that a peer can observe: time, code, attributes with lengths and fixed contents of each
/// reply, and the number of hashes computed.
type AttemptTrace = Vec<(u64, PacketCode, Vec<(u8, usize)>, Vec<u8>, usize)>;

/// A server whose host takes time, and an access server.
struct TimingBench {
    now: Instant,
    client: TestMachine<RadiusClient>,
    server: TestMachine<AaaServer>,
    users: BTreeMap<Vec<u8>, Arc<User>>,
    chance: SimulationRng,
    token: u64,
    hashes: usize,
}

impl TimingBench {
    fn new(user: &User, methods: &[AuthMethod]) -> Self {
        let seed = Seed::new(3);
        let mut config = aaa_config(Arc::new(UserDirectory::new(&mut seed.derive_secure_rng("users", 0))));
        config.users = UserSource::Host(UserCacheConfig { entries: 0, ..UserCacheConfig::default() });
        config.methods = methods.to_vec();
        config.reject_delay = DELAY;
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), shared_secret());
        let user = Arc::new(user.clone());
        Self {
            now: Instant::ZERO,
            client: TestMachine::new(
                RadiusClient::new(
                    client::RadiusClientConfig::for_server(to),
                    seed.derive_secure_rng("client", 0),
                )
                .unwrap(),
            ),
            server: TestMachine::new(AaaServer::new(config, seed.derive_secure_rng("aaa", 0)).unwrap()),
            users: (0..100).map(|n| (candidate_name(n, true), user.clone())).collect(),
            chance: seed.derive_rng("tries", 0),
            token: 0,
            hashes: 0,
        }
    }

    fn draw_below(&mut self, below: u64) -> u64 {
        self.chance.next_u64() % below
    }

    fn deliver_all(&mut self) {
        let (near, far) = (SocketAddr::new(nas_address(0), 50_000), SocketAddr::new(server_address(0), 1812));
        let mut buf = Vec::new();
        while let Some(Transmit::Datagram { .. }) = self.client.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: radius_socket(0), local: far, remote: near };
            self.server.handle_input(self.now, MachineInput::Datagram { path, data: &buf });
        }
        while let Some(Transmit::Datagram { .. }) = self.server.poll_transmit(&mut buf) {
            let path = DatagramPath { socket: SocketId::from_number(0), local: near, remote: far };
            self.client.handle_input(self.now, MachineInput::Datagram { path, data: &buf });
        }
    }

    /// Sends a request and waits for the reply. The host takes 1 to 4 ms for a lookup, 20 to 25 for a hash.
    fn send_request(&mut self, seen: &mut AttemptTrace, attributes: AttributeList) -> RadiusReply {
        self.token += 1;
        let (sent, hashes) = (self.now, self.hashes);
        let (token, code) = (self.token, PacketCode::ACCESS_REQUEST);
        let request = client::RadiusClientCommand::Request {
            token,
            target: RequestTarget::Server(0),
            code,
            attributes,
        };
        self.client.handle_command(self.now, request).unwrap();
        loop {
            self.deliver_all();
            if let Some(event) = self.client.poll_event() {
                let client::RadiusClientEvent::Response(reply) = event else { panic!("{event:?}") };
                let waited = self.now.duration_since(sent).as_nanos() / 1_000_000;
                let attributes = reply.attributes.iter().map(|a| (a.kind, a.value.len())).collect();
                seen.push((waited, reply.code, attributes, fixed_content(&reply), self.hashes - hashes));
                return reply;
            }
            match self.server.poll_job() {
                Some(usher_core::JobRequest { token, job: AaaServerJob::Lookup { name, .. }, .. }) => {
                    let took = 1 + self.draw_below(4);
                    self.now += Duration::from_millis(took);
                    let user = self
                        .users
                        .get(&name)
                        .map_or(UserLookupResult::NotFound, |user| UserLookupResult::User(user.clone()));
                    self.server.handle_command(self.now, AaaServerCommand::Found { token, user }).unwrap();
                }
                Some(usher_core::JobRequest { token, job: AaaServerJob::Verify { .. }, .. }) => {
                    self.hashes += 1;
                    let took = 20 + self.draw_below(6);
                    self.now += Duration::from_millis(took);
                    self.server
                        .handle_command(self.now, AaaServerCommand::Verified { token, right: false })
                        .unwrap();
                }
                Some(_) => {}
                None => {
                    self.now = self.now.max(self.server.poll_timeout().expect("an answer is due"));
                    self.server.handle_input(self.now, MachineInput::Timeout);
                }
            }
        }
    }

    /// Logs in under a name by a random method.
    fn attempt_login(&mut self, name: &[u8]) -> AttemptTrace {
        let mut seen = Vec::new();
        self.now += Duration::from_millis(self.chance.next_u64() % 3000);
        let mut request = AttributeList::new();
        request.push_bytes(kind::USER_NAME, name).unwrap();
        match self.draw_below(9) {
            0 => {
                request.push_user_password(WRONG).unwrap();
                self.send_request(&mut seen, request);
            }
            1 => {
                request.push_bytes(kind::CHAP_PASSWORD, &[5; 17]).unwrap();
                request.push_bytes(kind::CHAP_CHALLENGE, &[6; 16]).unwrap();
                self.send_request(&mut seen, request);
            }
            which @ (2 | 3) => {
                ms_chap(&mut request, name, which == 3);
                self.send_request(&mut seen, request);
            }
            // A device, or a fake one.
            4 => {
                request.push_bytes(kind::CALLING_STATION_ID, name).unwrap().push_u32(kind::SERVICE_TYPE, 10);
                self.send_request(&mut seen, request);
            }
            which => self.run_eap(&mut seen, request, name, which),
        }
        seen
    }

    /// Runs EAP with a peer that has some methods and rejects others by Nak.
    fn run_eap(&mut self, seen: &mut AttemptTrace, mut request: AttributeList, name: &[u8], which: u64) {
        let mschapv2: fn(&[u8]) -> Box<dyn PeerMethodFactory> =
            |n| Box::new(mschapv2::MsChapV2Account::new(n, WRONG));
        let md5: fn(&[u8]) -> Box<dyn PeerMethodFactory> = |_| Box::new(md5::EapMd5Password::new(WRONG));
        let gtc: fn(&[u8]) -> Box<dyn PeerMethodFactory> = |_| Box::new(gtc::GtcToken::new(WRONG));
        let methods: Vec<Box<dyn PeerMethodFactory>> = match which {
            5 => vec![mschapv2(name)],
            6 => vec![md5(name)],
            7 => vec![gtc(name), md5(name)],
            _ => vec![],
        };
        let config = peer::EapPeerConfig {
            identity: name.to_vec(),
            methods: methods.into(),
            timeout: Duration::from_secs(600),
            wall: WallTime::from_unix_secs(0),
        };
        let mut peer = EapPeer::new(config, SecureRng::from_seed([1; 32]), self.now);
        let mut packet = vec![2, 1, 0, 5 + name.len() as u8, 1];
        packet.extend_from_slice(name);
        for _ in 0..10 {
            request.push_eap(&packet);
            let reply = self.send_request(seen, std::mem::take(&mut request));
            let mut eap = Vec::new();
            assert!(reply.attributes.read_eap_packet(&mut eap));
            if reply.code != PacketCode::ACCESS_CHALLENGE {
                return;
            }
            assert!(peer.handle_packet(self.now, &eap) && peer.poll_transmit(&mut packet));
            request.push_bytes(kind::USER_NAME, name).unwrap();
            request.push_bytes(kind::STATE, reply.attributes.get(kind::STATE).unwrap()).unwrap();
        }
        panic!("no end: {seen:?}");
    }
}

/// Returns a reply's contents without random parts: the EAP packet's code, type and operation, the error of
/// MS-CHAP.
fn fixed_content(reply: &RadiusReply) -> Vec<u8> {
    let mut eap = Vec::new();
    reply.attributes.read_eap_packet(&mut eap);
    let mut told: Vec<u8> = [0, 4, 5].iter().filter_map(|i| eap.get(*i).copied()).collect();
    if let Some(error) = reply.attributes.get_vendor(vendor::MICROSOFT, vendor::MS_CHAP_ERROR) {
        told.extend(error.split(|c| *c == b'C').next().unwrap_or_default());
    }
    told
}

fn ms_chap(a: &mut AttributeList, name: &[u8], v2: bool) {
    let (challenge, peer) = ([1; 16], [2; 16]);
    let mut value = vec![7, u8::from(!v2)];
    value.extend_from_slice(&if v2 { [&peer[..], &[0; 8]].concat() } else { vec![0; 24] });
    value.extend_from_slice(&mschap::nt_response(&challenge, &peer, name, &nt_hash(WRONG)));
    let (challenge, number) = match v2 {
        true => (&challenge[..], vendor::MS_CHAP2_RESPONSE),
        false => (&challenge[..8], vendor::MS_CHAP_RESPONSE),
    };
    a.push_vendor(vendor::MICROSOFT, vendor::MS_CHAP_CHALLENGE, challenge).unwrap();
    a.push_vendor(vendor::MICROSOFT, number, &value).unwrap();
}

fn candidate_name(n: usize, known: bool) -> Vec<u8> {
    format!("{}{n:03}@example.org", if known { "ann" } else { "eve" }).into_bytes()
}

/// Tries an existing and an unknown name in turn, with the same random numbers: the same method, and the same times
/// of the host. Both must see the same replies.
fn compare_user_timings(what: &str, user: &User, methods: &[AuthMethod]) {
    let mut bench = TimingBench::new(user, methods);
    // A user has logged in before, as on any real server.
    bench.attempt_login(&candidate_name(0, true));
    for n in 0..TRIES / 2 {
        let chance = bench.chance.clone();
        let known = bench.attempt_login(&candidate_name(n % 100, true));
        bench.chance = chance;
        let unknown = bench.attempt_login(&candidate_name(n % 100, false));
        assert_eq!(known, unknown, "{what}, try {n}");
    }
}

const WITHOUT_TUNNELS: [AuthMethod; 7] = [
    AuthMethod::EapMsChapV2,
    AuthMethod::EapMd5,
    AuthMethod::EapGtc,
    AuthMethod::Pap,
    AuthMethod::Chap,
    AuthMethod::MsChap,
    AuthMethod::MsChapV2,
];

fn user_with_password(password: StoredPassword) -> User {
    User { password: Some(password), ..User::default() }
}

#[test]
fn ten_thousand_tries_do_not_tell_users_from_others() {
    let clear = || user_with_password(StoredPassword::from_clear(b"right"));
    let hashed = user_with_password(StoredPassword::Argon2(argon2_hash(b"right", &[1; 16]).into()));
    compare_user_timings("in clear", &clear(), &WITHOUT_TUNNELS);
    compare_user_timings(
        "NT hash",
        &user_with_password(StoredPassword::NtHash(nt_hash(b"right").into())),
        &WITHOUT_TUNNELS,
    );
    compare_user_timings("argon2", &hashed, &WITHOUT_TUNNELS);
    compare_user_timings("locked", &User { rejected: true, ..clear() }, &WITHOUT_TUNNELS);
    compare_user_timings("few methods", &clear(), &[AuthMethod::EapMd5, AuthMethod::Pap]);
    // No method of the server can accept them.
    compare_user_timings("nothing in common", &hashed, &[AuthMethod::EapMsChapV2, AuthMethod::Chap]);
    compare_user_timings(
        "restricted",
        &User { methods: [AuthMethod::EapMd5].into(), ..clear() },
        &WITHOUT_TUNNELS,
    );
}

/// Returns length, sender and time of each packet of a failed login.
fn observe_packets(
    config: &AaaServerConfig,
    outside: &[u8],
    credentials: EapCredentials,
) -> Vec<(bool, usize, Instant)> {
    use std::cell::RefCell;
    use std::rc::Rc;
    let mut w = test_network(1, radius_nas(1), std::slice::from_ref(config));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let kept = seen.clone();
    w.set_packet_filter(move |packet| {
        kept.borrow_mut().push((matches!(packet.from, crate::world::NetworkHost::Server(_)), packet.octets));
        true
    });
    w.start_login(0, outside, credentials);
    w.run_until(20);
    assert_eq!(w.station_outcomes(), [usher_nas::station::StationEvent::Failure]);
    let ended = w.station_events[0].1;
    seen.take().into_iter().map(|(from_server, octets)| (from_server, octets, ended)).collect()
}

#[test]
fn tunnels_and_certificates_tell_nothing_either() {
    let version = TlsVersion::Tls13;
    let mut config: AaaServerConfig = tunnels::tunnel_config(crate::tls::tls_server_config(version));
    config.methods.insert(0, AuthMethod::EapTls);
    let tls = ServerTlsBackend::Real(crate::tls::tls_server_config(version));
    config.tls = Some(Arc::new(EapTlsServerFactory { tls, fragment: 1024 }));
    config.reject_delay = DELAY;
    let mut users = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    let known = user_name(0);
    users.insert(&known, User::with_password(crate::build::PASSWORD));
    config.users = UserSource::Memory(Arc::new(users));
    let unknown = user_name(7);
    let foreign = |_: &[u8]| {
        let tls = PeerTlsBackend::Real(
            crate::tls::tls_client_config(version, fixtures::untrusted_client_credentials()),
            0,
        );
        EapCredentials::from_method(EapTlsPeerFactory { tls, fragment: 1024 })
    };
    type TunnelLogin<'a> = (&'a str, &'a dyn Fn(&[u8]) -> EapCredentials);
    let ways: [TunnelLogin<'_>; 3] = [
        ("PEAP", &|name| peap_credentials(version, name, WRONG)),
        ("TTLS", &|name| ttls_credentials(version, name, WRONG)),
        ("EAP-TLS", &foreign),
    ];
    for (what, credentials) in ways {
        let by = |name: &[u8]| observe_packets(&config, name, credentials(name));
        assert_eq!(by(&known), by(&unknown), "{what}");
        let inside = |name: &[u8]| observe_packets(&config, tunnels::ANONYMOUS, credentials(name));
        assert_eq!(inside(&known), inside(&unknown), "{what}, anonymous outside");
    }
}

#[test]
fn a_reject_goes_out_by_when_its_request_came() {
    let hash = argon2_hash(b"right", &[1; 16]);
    let mut bench =
        TimingBench::new(&user_with_password(StoredPassword::Argon2(hash.into())), &[AuthMethod::Pap]);
    let mut request = AttributeList::new();
    request.push_bytes(kind::USER_NAME, &candidate_name(0, true)).unwrap().push_user_password(WRONG).unwrap();
    let mut seen = Vec::new();
    bench.send_request(&mut seen, request);
    assert_eq!((seen[0].0, seen[0].4), (1000, 1), "look-up and hash are within the delay");
}
