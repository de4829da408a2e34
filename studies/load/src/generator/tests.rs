//! The generator against servers in memory and virtual time.

use super::*;
use crate::eap::{EapMethod, EapTlsConfig};
use crate::pace::LoginArrivals;
use crate::tally::quantile;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use usher_aaa::{AaaServer, AuthMethod, DIAMETER_LISTENER, User, UserSource};
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{Seed, SocketId, StreamOp, Transmit};
use usher_diameter::codes::{application, command::DISCONNECT_PEER};
use usher_diameter::message::MessageView;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::SharedSecret;
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, RetransmissionPolicy, ServerConfig};
use usher_radius::packet::PacketCode;
use usher_radius::server::{self, ClientConfig, RadiusServer};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1)), 1812);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
/// One-way delay.
const DELAY: Duration = Duration::from_millis(1);

/// Delays of a server.
#[derive(Clone, Copy, Default)]
struct ServerDelay {
    /// The server receives nothing within these times; messages wait.
    stall: Option<(Instant, Instant)>,
    /// Minimum time between two datagrams, and when the server is free again.
    service: Duration,
    free: Instant,
}

impl ServerDelay {
    /// Returns the additional delay of a datagram sent now.
    fn next_delay(&mut self, now: Instant) -> Duration {
        let arrives = now + DELAY;
        let mut at = arrives;
        if let Some((from, to)) = self.stall
            && (from..to).contains(&at)
        {
            at = to;
        }
        if !self.service.is_zero() {
            at = at.max(self.free) + self.service;
            self.free = at;
        }
        at.duration_since(arrives)
    }
}

struct GeneratorTestNetwork {
    net: MachineNetwork,
    generator: NetworkHostHandle<LoadGenerator>,
    slow: Rc<Cell<ServerDelay>>,
    /// Time that the generator needs for each input.
    toil: Duration,
    /// Total busy time.
    busy: Duration,
}

impl GeneratorTestNetwork {
    fn new(config: GeneratorConfig, other: impl FnOnce(&mut MachineNetwork)) -> Self {
        let generator =
            LoadGenerator::new(config, Instant::ZERO, Seed::new(3).derive_secure_rng("load", 0)).unwrap();
        let mut net = MachineNetwork::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let generator = net.add_host(generator, &[HOST]);
        other(&mut net);
        let slow = Rc::new(Cell::new(ServerDelay::default()));
        let of_server = slow.clone();
        net.intercept_transmits(move |_, sent| {
            let mut slow = of_server.get();
            let wait =
                if sent.from == generator.number { slow.next_delay(sent.sent_at) } else { Duration::ZERO };
            of_server.set(slow);
            vec![wait]
        });
        Self { net, generator, slow, toil: Duration::ZERO, busy: Duration::ZERO }
    }
    fn stall_server(&self, from: Instant, to: Instant) {
        self.slow.set(ServerDelay { stall: Some((from, to)), ..self.slow.get() });
    }
    fn set_service_time(&self, service: Duration) {
        self.slow.set(ServerDelay { service, ..self.slow.get() });
    }
    fn now(&self) -> Instant {
        self.net.now()
    }
    fn load_generator(&self) -> &LoadGenerator {
        &self.net[self.generator]
    }
    fn measured_time(&self) -> Duration {
        self.load_generator().measured_time(self.now())
    }
    fn send_command(&mut self, command: GeneratorCommand) {
        self.net.send_command(self.generator, command).unwrap();
    }
    /// Returns the generator's transmissions.
    fn sent_transmits(&self) -> impl Iterator<Item = &TransmitRecord> {
        self.net.sent_transmits().iter().filter(|sent| sent.from == self.generator.number)
    }
    /// Returns the sockets of sent datagrams, with their addresses.
    fn source_addresses(&self) -> BTreeMap<SocketId, IpAddr> {
        let source = |sent: &TransmitRecord| match sent.transmit {
            Transmit::Datagram { path } => Some((path.socket, path.local.ip())),
            _ => None,
        };
        self.sent_transmits().filter_map(source).collect()
    }

    /// Runs until the generator has finished, or until that time.
    fn run_until(&mut self, until: f64) -> &LoginStats {
        let until = Instant::ZERO + Duration::from_secs_f64(until);
        self.net.drain_hosts();
        while self.net.take_events(self.generator).is_empty() {
            if self.net.next_due_time().is_none_or(|at| at > until) {
                self.net.run_until(until);
                break;
            }
            if self.net.run_next_arrival_or_timer() == Some(self.generator.number) {
                self.net.skip_time(self.toil);
                self.busy += self.toil;
            }
        }
        self.load_generator().login_stats()
    }
}

fn test_secret() -> SharedSecret {
    SharedSecret::new(b"sixteen octets!!")
}

fn radius_config(login: Option<RadiusLogin>) -> RadiusConfig {
    let mut client = client::RadiusClientConfig::for_server(ServerConfig::new(SERVER, test_secret()));
    client.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(2), count: 3 };
    let mut common = AttributeList::new();
    common.push_text(kind::NAS_IDENTIFIER, "usher-load").unwrap();
    RadiusConfig {
        client,
        fleet: None,
        logins: login.into_iter().collect(),
        accounting: None,
        anonymous: None,
        common,
    }
}

fn test_config(front: LoadProtocolConfig, pace: LoginPace) -> GeneratorConfig {
    GeneratorConfig {
        pace,
        warmup: Duration::ZERO,
        duration: None,
        count: None,
        outstanding: 1000,
        drain_timeout: Duration::from_secs(30),
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: Arc::new(UserCredentialTable::from_template("user{}@example.org", "pw{}", 50).unwrap()),
        first: 0,
        step: 1,
        mix: Vec::new(),
        front,
    }
}

/// Adds an AAA server.
fn aaa_server(
    methods: &[AuthMethod],
    with: impl FnOnce(&mut usher_aaa::AaaServerConfig),
) -> Box<dyn FnOnce(&mut MachineNetwork)> {
    let mut users = usher_aaa::UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
    for i in 0..50 {
        users.insert(
            format!("user{i}@example.org").as_bytes(),
            User::with_password(format!("pw{i}").as_bytes()),
        );
    }
    let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
    config.methods = methods.to_vec();
    config.radius = Some(server::RadiusServerConfig::new(vec![ClientConfig::new(HOST, 16, test_secret())]));
    with(&mut config);
    let server = AaaServer::new(config, Seed::new(1).derive_secure_rng("aaa", 0)).unwrap();
    Box::new(|net| {
        let server = net.add_host(server, &[SERVER.ip()]);
        net.bind_socket(server, usher_aaa::radius_socket(0), SERVER);
        net.add_listener(server, DIAMETER_LISTENER, SERVER);
    })
}

/// Adds a server that answers each request by the function.
fn scripted_server(
    answer: fn(&server::RadiusRequest) -> (PacketCode, AttributeList),
) -> impl FnOnce(&mut MachineNetwork) {
    let config = server::RadiusServerConfig::new(vec![ClientConfig::new(HOST, 16, test_secret())]);
    let server = RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap();
    move |net| {
        let server = net.add_host(server, &[SERVER.ip()]);
        net.bind_socket(server, SocketId::from_number(0), SERVER);
        net.on_event(server, move |server::RadiusServerEvent::Request(request)| {
            let (code, attributes) = answer(request);
            Some((
                Duration::ZERO,
                server::RadiusServerCommand::Respond { token: request.token, code, attributes },
            ))
        });
    }
}

const CLOSED: LoginPace = LoginPace::Closed { concurrency: 8 };
fn pap_front() -> LoadProtocolConfig {
    LoadProtocolConfig::Radius(radius_config(Some(RadiusLogin::Pap)))
}
fn is_near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a / b - 1.0).abs() < 2e-3)
}

#[test]
fn a_closed_loop_keeps_so_many_under_way() {
    let mut c = test_config(pap_front(), CLOSED);
    c.count = Some(200);
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {}));
    let tally = w.run_until(10.0).clone();
    assert_eq!((tally.started, tally.succeeded, tally.completed, tally.failed_total()), (200, 200, 200, 0));
    assert_eq!(tally.exchanges, 200);
    assert!(is_near(quantile(&tally.latency, 0.5), 0.002) && is_near(quantile(&tally.latency, 1.0), 0.002));
    // 200 logins of 2 ms, 8 at a time.
    assert_eq!(w.measured_time(), Duration::from_millis(50));
}

#[test]
fn an_open_loop_measures_from_the_intended_start_of_a_login() {
    let pace = LoginPace::Open { rate: 1000.0, arrivals: LoginArrivals::Regular };
    let mut c = test_config(pap_front(), pace);
    c.warmup = Duration::from_secs(1);
    c.duration = Some(Duration::from_secs(2));
    c.outstanding = 100;
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {}));
    let second = |s| Instant::ZERO + Duration::from_secs_f64(s);
    w.stall_server(second(2.0), second(2.5));
    let tally = w.run_until(60.0).clone();
    assert_eq!(tally.started, 2000, "the warm-up is not counted, all that was due is");
    assert_eq!((tally.succeeded, tally.failed_total()), (2000, 0));
    // A hundred logins were outstanding when the server stalled. The 400 behind them waited in the generator, and their
    // wait counts.
    assert!(quantile(&tally.latency, 0.99).unwrap() > 0.45, "{:?}", quantile(&tally.latency, 0.99));
    assert!(is_near(quantile(&tally.latency, 0.5), 0.002));
    assert!(quantile(&tally.lag, 0.85).unwrap() > 0.1, "how late they began is told");
    assert_eq!(w.measured_time(), Duration::from_secs(2));
    assert!((1990..=2000).contains(&tally.completed), "{}", tally.completed);
}

#[test]
fn a_wrong_password_must_be_turned_away() {
    let mut c = test_config(pap_front(), CLOSED);
    (c.count, c.wrong_share) = (Some(300), 0.3);
    let tally = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {})).run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (300, 0));
    assert!((50..150).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
    assert_eq!(tally.latency.len() + tally.reject_latency.len(), 300);

    let mut c = test_config(pap_front(), CLOSED);
    (c.count, c.wrong_share) = (Some(20), 1.0);
    let all = scripted_server(|_| (PacketCode::ACCESS_ACCEPT, AttributeList::new()));
    let tally = GeneratorTestNetwork::new(c, all).run_until(60.0).clone();
    assert_eq!(tally.failure_count(LoginFailure::WronglyAccepted), 20);
}

#[test]
fn what_is_not_verified_does_not_count() {
    // With another secret the server is silent, and each login fails after three transmissions.
    let mut front = radius_config(Some(RadiusLogin::Pap));
    front.client.servers[0].secret = SharedSecret::new(b"another");
    let mut c = test_config(LoadProtocolConfig::Radius(front), CLOSED);
    c.count = Some(8);
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {}));
    let tally = w.run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failure_count(LoginFailure::Timeout)), (0, 8));
    let counters: BTreeMap<_, _> = w.load_generator().counters().into_iter().collect();
    assert_eq!((counters["requests"], counters["retransmissions"]), (8, 16));
    assert_eq!(w.now(), Instant::ZERO + Duration::from_secs(6));
}

#[test]
fn each_kind_of_wrong_answer_has_its_name() {
    type ScriptedAnswer = fn(&server::RadiusRequest) -> (PacketCode, AttributeList);
    let eap = || RadiusLogin::Eap(EapMethod::Md5);
    let cases: [(RadiusLogin, ScriptedAnswer, LoginFailure); 6] = [
        (RadiusLogin::Pap, |_| (PacketCode::ACCESS_REJECT, AttributeList::new()), LoginFailure::Rejected),
        (
            RadiusLogin::Chap,
            |_| (PacketCode::ACCESS_CHALLENGE, AttributeList::new()),
            LoginFailure::UnexpectedChallenge,
        ),
        (
            RadiusLogin::MsChapV2,
            |_| (PacketCode::ACCESS_ACCEPT, AttributeList::new()),
            LoginFailure::WrongProof,
        ),
        (eap(), |_| (PacketCode::ACCESS_ACCEPT, AttributeList::new()), LoginFailure::NoEap),
        (
            eap(),
            |_| {
                let mut list = AttributeList::new();
                list.push_eap(&[3, 0, 0, 4]);
                (PacketCode::ACCESS_ACCEPT, list)
            },
            LoginFailure::EarlySuccess,
        ),
        (
            eap(),
            |_| {
                let mut list = AttributeList::new();
                list.push_eap(&[1, 9, 0]);
                (PacketCode::ACCESS_CHALLENGE, list)
            },
            LoginFailure::EapDiscarded,
        ),
    ];
    for (login, answer, failure) in cases {
        let name = format!("{login:?}");
        let mut c = test_config(LoadProtocolConfig::Radius(radius_config(Some(login))), CLOSED);
        c.count = Some(10);
        let tally = GeneratorTestNetwork::new(c, scripted_server(answer)).run_until(60.0).clone();
        assert_eq!(tally.failures().collect::<Vec<_>>(), [(failure, 10)], "{name}");
        assert_eq!(tally.succeeded, 0);
    }
}

#[test]
fn eap_goes_its_rounds() {
    let mut c = test_config(
        LoadProtocolConfig::Radius(radius_config(Some(RadiusLogin::Eap(EapMethod::Md5)))),
        CLOSED,
    );
    (c.count, c.wrong_share) = (Some(100), 0.2);
    let tally =
        GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::EapMd5], |_| {})).run_until(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total(), tally.exchanges), (100, 0, 200));
    assert!(is_near(quantile(&tally.latency, 0.5), 0.004), "two round trips");
    assert!(tally.expected_rejects > 0);
}

#[test]
fn accounting_follows_a_login() {
    let mut front = radius_config(Some(RadiusLogin::Pap));
    front.accounting = Some(LoginAccounting { interims: 2, every: Duration::from_secs(10) });
    let mut c = test_config(LoadProtocolConfig::Radius(front), CLOSED);
    c.count = Some(8);
    c.drain_timeout = Duration::from_secs(60);
    let server = scripted_server(|request| {
        let reply = match request.code {
            PacketCode::ACCOUNTING_REQUEST => PacketCode::ACCOUNTING_RESPONSE,
            _ => PacketCode::ACCESS_ACCEPT,
        };
        (reply, AttributeList::new())
    });
    let mut w = GeneratorTestNetwork::new(c, server);
    let tally = w.run_until(120.0).clone();
    // Login, start, two interims and stop.
    assert_eq!((tally.succeeded, tally.records, tally.exchanges), (8, 32, 40));
    assert_eq!(w.now(), Instant::ZERO + Duration::from_secs(30) + Duration::from_millis(10));
}

#[test]
fn accounting_stands_alone() {
    let mut front = radius_config(None);
    front.accounting = Some(LoginAccounting { interims: 0, every: Duration::ZERO });
    let mut c = test_config(LoadProtocolConfig::Radius(front), CLOSED);
    c.count = Some(100);
    let server = scripted_server(|request| {
        assert_eq!(request.code, PacketCode::ACCOUNTING_REQUEST);
        assert_eq!(request.attributes.get(kind::ACCT_SESSION_ID).map(<[u8]>::len), Some(25));
        (PacketCode::ACCOUNTING_RESPONSE, AttributeList::new())
    });
    let tally = GeneratorTestNetwork::new(c, server).run_until(120.0).clone();
    assert_eq!((tally.succeeded, tally.records), (100, 200));
}

#[test]
fn a_window_can_be_begun_and_ended_by_command() {
    let mut c = test_config(pap_front(), LoginPace::Open { rate: 100.0, arrivals: LoginArrivals::Regular });
    c.warmup = Duration::MAX;
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {}));
    assert_eq!(w.run_until(1.0).started, 0, "warm until told");
    w.send_command(GeneratorCommand::Pace(LoginPace::Open {
        rate: 1000.0,
        arrivals: LoginArrivals::Regular,
    }));
    w.send_command(GeneratorCommand::Measure);
    assert_eq!(w.run_until(2.0).started, 1000);
    // A server that stalls: logins outstanding for longer than the limit are overdue, the others are cut off.
    w.send_command(GeneratorCommand::Measure);
    w.net[w.generator].take_login_stats();
    w.stall_server(w.now(), w.now() + Duration::from_secs(5));
    w.run_until(2.5);
    w.send_command(GeneratorCommand::Close(Duration::from_millis(100)));
    let tally = w.net[w.generator].take_login_stats();
    assert_eq!((tally.started, tally.succeeded), (500, 0));
    let (overdue, cut_off) = (tally.failure_count(LoginFailure::Overdue), tally.cut_off);
    assert!((395..=405).contains(&overdue) && overdue + cut_off == 500, "{overdue} {cut_off}");
    assert!(!w.load_generator().is_measuring());
    w.send_command(GeneratorCommand::Abandon);
    assert_eq!(w.load_generator().outstanding_logins(), 0);
    w.send_command(GeneratorCommand::Stop);
    assert!(w.load_generator().is_finished());
    let after = w.net[w.generator].take_login_stats();
    assert_eq!((after.cut_off, after.failed_total()), (0, 0), "each is counted once");
}

#[test]
fn what_could_not_begin_is_counted() {
    let mut c = test_config(pap_front(), LoginPace::Open { rate: 1000.0, arrivals: LoginArrivals::Regular });
    (c.duration, c.outstanding, c.drain_timeout) = (Some(Duration::from_secs(1)), 10, Duration::from_secs(1));
    let mut w = GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::Pap], |_| {}));
    w.stall_server(Instant::ZERO, Instant::ZERO + Duration::from_secs(100));
    let tally = w.run_until(60.0).clone();
    assert_eq!((tally.started, tally.failure_count(LoginFailure::Unfinished)), (10, 10));
    let missed = tally.failure_count(LoginFailure::NotBegun);
    assert!((988..=990).contains(&missed), "{missed}");
}

fn diameter_front(login: DiameterLogin, connections: usize) -> LoadProtocolConfig {
    LoadProtocolConfig::Diameter(DiameterConfig {
        address: SERVER,
        transport: node::PeerTransportConfig::Stream,
        local: HOST,
        server: "aaa.example.org".into(),
        host: "load.example.org".into(),
        realm: "example.org".into(),
        destination: "example.org".into(),
        connections,
        first: 0,
        logins: vec![login],
        accounting: None,
        anonymous: None,
        timeout: Duration::from_secs(30),
    })
}

#[test]
fn diameter_logs_in_over_several_connections() {
    for (login, methods, rounds) in [
        (DiameterLogin::Pap, [AuthMethod::Pap], 1),
        (DiameterLogin::Eap(EapMethod::Md5), [AuthMethod::EapMd5], 2),
    ] {
        let mut c = test_config(diameter_front(login, 3), CLOSED);
        (c.count, c.wrong_share) = (Some(120), 0.2);
        let server = aaa_server(&methods, |config| {
            let applications = [
                DiameterApplication::for_authentication(application::EAP),
                DiameterApplication::for_authentication(application::NASREQ),
            ];
            let mut node = node::DiameterNodeConfig::new("aaa.example.org", "example.org", &applications);
            node.local.addresses.push(SERVER.ip());
            node.accept_unknown = true;
            config.diameter = Some(node);
        });
        let mut w = GeneratorTestNetwork::new(c, server);
        let tally = w.run_until(60.0).clone();
        assert_eq!((tally.succeeded, tally.failed_total(), tally.exchanges), (120, 0, 120 * rounds));
        assert!(tally.expected_rejects > 0);
        let connects = |sent: &&TransmitRecord| {
            matches!(sent.transmit, Transmit::Stream { op: StreamOp::Connect { .. }, .. })
        };
        assert_eq!(w.sent_transmits().filter(connects).count(), 3);
        // Each connection sends its disconnect (RFC 6733 §5.4).
        let goodbye = |sent: &&TransmitRecord| {
            sent.sent_at + DELAY > w.now()
                && MessageView::parse(&sent.bytes).is_ok_and(|m| m.header().command == DISCONNECT_PEER)
        };
        assert_eq!(w.sent_transmits().filter(goodbye).count(), 3);
    }
}

#[test]
fn eap_tls_has_the_keys_that_the_server_sends() {
    use usher_crypto::tls::{
        ClientConfig, ServerConfig, SharedWallClock, TlsClientOptions, TlsServerOptions, TlsVersion,
        TrustRoots, fixtures,
    };
    use usher_eap::method::tls::{EapTlsServerFactory, ServerTlsBackend};
    for version in [TlsVersion::Tls12, TlsVersion::Tls13] {
        let clock = SharedWallClock::from_time(fixtures::WALL_TIME);
        let client = ClientConfig::new(TlsClientOptions {
            versions: version.into(),
            credentials: Some(fixtures::client_credentials(2)),
            roots: TrustRoots::from_der([fixtures::root_certificate()]),
            server_name: None,
            resumption: None,
            clock: clock.clone(),
            key_log: None,
        });
        let tls = ServerConfig::new(TlsServerOptions {
            versions: version.into(),
            credentials: fixtures::server_credentials(2),
            client_roots: Some(TrustRoots::from_der([fixtures::root_certificate()])),
            resumption: None,
            clock,
            key_log: None,
        });
        let tls = Arc::new(EapTlsServerFactory { tls: ServerTlsBackend::Real(tls.unwrap()), fragment: 1000 });
        let (config_of, each) = (client.unwrap(), Arc::default());
        let method = EapMethod::Tls(EapTlsConfig { config: config_of, each, fragment: 1000, resume: false });
        let mut c =
            test_config(LoadProtocolConfig::Radius(radius_config(Some(RadiusLogin::Eap(method)))), CLOSED);
        c.count = Some(4);
        let tally =
            GeneratorTestNetwork::new(c, aaa_server(&[AuthMethod::EapTls], |config| config.tls = Some(tls)))
                .run_until(60.0)
                .clone();
        assert_eq!(
            (tally.succeeded, tally.failed_total()),
            (4, 0),
            "{version:?} {:?}",
            tally.failures().collect::<Vec<_>>()
        );
    }
}

mod honest;
