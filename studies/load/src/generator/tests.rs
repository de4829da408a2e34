//! The generator against servers in memory and virtual time.

use super::*;
use crate::eap::{EapMethod, Tls};
use crate::pace::Arrivals;
use crate::tally::quantile;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use usher_aaa::{AaaServer, DIAMETER_LISTENER, Method, User, UserSource};
use usher_core::bench::Tap;
use usher_core::{CloseReason, ConnId, Path, Seed, SocketId, StreamEvent, StreamOp, Transmit, WallTime};
use usher_diameter::codes::{application, command::DISCONNECT_PEER};
use usher_diameter::message::MessageView;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_radius::Secret;
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Retransmission, ServerConfig};
use usher_radius::packet::Code;
use usher_radius::server::{self, ClientConfig, Server};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 2, 0, 1)), 1812);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
/// One way.
const DELAY: Duration = Duration::from_millis(1);

/// What stands at the other end.
enum Other {
    Aaa(Box<Tap<AaaServer>>),
    /// Answers each request as the function says.
    Scripted(Box<Tap<Server>>, fn(&server::Request) -> (Code, Attributes)),
}

enum What {
    Datagram(Path, Vec<u8>),
    Connected(ConnId, SocketAddr),
    Data(ConnId, Vec<u8>),
    Closed(ConnId),
}

struct World {
    now: Instant,
    generator: Tap<Generator>,
    other: Other,
    /// (time, order) → (to the server, what).
    queue: BTreeMap<(Instant, u64), (bool, What)>,
    order: u64,
    /// The server takes nothing within these times; what comes meanwhile waits.
    stall: Option<(Instant, Instant)>,
    accepted: u32,
    /// The server takes a datagram so long after the one before at the soonest, and when it is free again.
    service: Duration,
    free: Instant,
    /// The generator needs so long for each thing that it hears, and when it is free again.
    toil: Duration,
    /// How long it was busy.
    busy: Duration,
    /// The sockets that datagrams came from, with their addresses.
    sources: BTreeMap<SocketId, IpAddr>,
    /// The generator's sockets in the order of their ports, and its connections in the order in which they came.
    sockets: Vec<SocketId>,
    conns: Vec<ConnId>,
}

impl World {
    fn new(config: Config, other: Other) -> Self {
        let generator = Generator::new(config, Instant::ZERO, Seed::new(3).secure("load", 0)).unwrap();
        let generator = Tap::new(generator);
        let (now, queue) = (Instant::ZERO, BTreeMap::new());
        Self {
            now,
            generator,
            other,
            queue,
            order: 0,
            stall: None,
            accepted: 0,
            service: Duration::ZERO,
            free: Instant::ZERO,
            toil: Duration::ZERO,
            busy: Duration::ZERO,
            sources: BTreeMap::new(),
            sockets: Vec::new(),
            conns: Vec::new(),
        }
    }

    fn post(&mut self, server: bool, what: What) {
        self.order += 1;
        let mut at = self.now + DELAY;
        if let Some((from, to)) = self.stall
            && server
            && at >= from
            && at < to
        {
            at = to;
        }
        if server && !self.service.is_zero() {
            at = at.max(self.free) + self.service;
            self.free = at;
        }
        self.queue.insert((at, self.order), (server, what));
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        while let Some(transmit) = self.generator.poll_transmit(&mut buf) {
            self.carry(true, transmit, &buf);
        }
        loop {
            let transmit = match &mut self.other {
                Other::Aaa(s) => {
                    while s.poll_event().is_some() {}
                    s.poll_transmit(&mut buf)
                }
                Other::Scripted(s, answer) => {
                    while let Some(event) = s.poll_event() {
                        let server::Event::Request(request) = event;
                        let (code, attributes) = answer(&request);
                        let token = request.token;
                        s.command(self.now, server::Command::Respond { token, code, attributes }).unwrap();
                    }
                    s.poll_transmit(&mut buf)
                }
            };
            let Some(transmit) = transmit else { return };
            self.carry(false, transmit, &buf);
        }
    }

    fn carry(&mut self, to_server: bool, transmit: Transmit, bytes: &[u8]) {
        match transmit {
            Transmit::Datagram { path } if to_server => {
                let remote = SocketAddr::new(HOST, 10_000 + place(&mut self.sockets, path.socket) as u16);
                self.sources.insert(path.socket, path.local.ip());
                let path = Path { socket: self.other.socket(), local: SERVER, remote };
                self.post(true, What::Datagram(path, bytes.to_vec()));
            }
            Transmit::Datagram { path } => {
                let socket = self.sockets[usize::from(path.remote.port() - 10_000)];
                let path = Path { socket, local: path.remote, remote: SERVER };
                self.post(false, What::Datagram(path, bytes.to_vec()));
            }
            Transmit::Stream { conn, op } => {
                let there = match to_server {
                    true => {
                        let n = place(&mut self.conns, conn);
                        ConnId::accepted_at(DIAMETER_LISTENER, n as u32)
                    }
                    false => self.conns[conn.n as usize],
                };
                match op {
                    StreamOp::Connect { remote, .. } => {
                        self.accepted += 1;
                        let from = SocketAddr::new(HOST, 20_000);
                        self.post(true, What::Connected(there, from));
                        self.post(false, What::Connected(conn, remote));
                    }
                    StreamOp::Data => self.post(to_server, What::Data(there, bytes.to_vec())),
                    StreamOp::Shutdown | StreamOp::Abort => self.post(to_server, What::Closed(there)),
                    StreamOp::Credit(_) => {}
                }
            }
            Transmit::Message { .. } | Transmit::Frame { .. } => panic!("neither is used"),
        }
    }

    fn feed(&mut self, server: bool, input: Input<'_>) {
        match (server, &mut self.other) {
            (false, _) => {
                self.generator.handle(self.now, input);
                self.now += self.toil;
                self.busy += self.toil;
            }
            (true, Other::Aaa(s)) => s.handle(self.now, input),
            (true, Other::Scripted(s, _)) => s.handle(self.now, input),
        }
        self.drain();
    }

    /// Until the generator says that it has finished, or that time.
    fn run(&mut self, until: f64) -> &Tally {
        let until = Instant::ZERO + Duration::from_secs_f64(until);
        self.drain();
        loop {
            if self.generator.poll_event() == Some(Event::Finished) {
                return self.generator.tally();
            }
            let packet = self.queue.first_key_value().map(|((at, _), _)| *at);
            let ours = self.generator.poll_timeout();
            let theirs = match &mut self.other {
                Other::Aaa(s) => s.poll_timeout(),
                Other::Scripted(s, _) => s.poll_timeout(),
            };
            let Some(next) = [packet, ours, theirs].into_iter().flatten().min().filter(|at| *at <= until)
            else {
                self.now = until;
                return self.generator.tally();
            };
            self.now = self.now.max(next);
            if packet == Some(next) {
                let Some((_, (server, what))) = self.queue.pop_first() else { continue };
                match what {
                    What::Datagram(path, data) => self.feed(server, Input::Datagram { path, data: &data }),
                    What::Connected(conn, remote) => {
                        let (local, certificate) = (None, None);
                        let event = match conn.is_accepted() {
                            true => {
                                let listener = DIAMETER_LISTENER;
                                StreamEvent::Accepted { listener, remote, local, certificate }
                            }
                            false => StreamEvent::Connected { remote, local, certificate },
                        };
                        self.feed(server, Input::Stream { conn, event });
                    }
                    What::Data(conn, data) => {
                        self.feed(server, Input::Stream { conn, event: StreamEvent::Data(&data) });
                    }
                    What::Closed(conn) => {
                        let event = StreamEvent::Closed(CloseReason::Closed);
                        self.feed(server, Input::Stream { conn, event });
                    }
                }
            } else {
                self.feed(ours != Some(next), Input::Timeout);
            }
        }
    }
}

/// Where something is in a list; it is added where it is not.
fn place<T: PartialEq>(all: &mut Vec<T>, one: T) -> usize {
    all.iter().position(|other| *other == one).unwrap_or_else(|| {
        all.push(one);
        all.len() - 1
    })
}

impl Other {
    /// The socket that it is asked by.
    fn socket(&self) -> SocketId {
        match self {
            Self::Aaa(_) => usher_aaa::radius_socket(0),
            Self::Scripted(..) => SocketId::own(0),
        }
    }
}

fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}

fn radius(login: Option<RadiusLogin>) -> RadiusConfig {
    let mut client = client::Config::single(ServerConfig::new(SERVER, secret()));
    client.retransmission = Retransmission::Fixed { interval: Duration::from_secs(2), count: 3 };
    let mut common = Attributes::new();
    common.push_text(kind::NAS_IDENTIFIER, "usher-load").unwrap();
    RadiusConfig {
        client,
        fleet: None,
        logins: login.into_iter().collect(),
        accounting: None,
        anonymous: None,
        common,
        epoch: EPOCH,
    }
}
const EPOCH: WallTime = WallTime::from_unix_secs(1_767_225_600);

fn config(front: FrontConfig, pace: Pace) -> Config {
    Config {
        pace,
        warmup: Duration::ZERO,
        duration: None,
        count: None,
        outstanding: 1000,
        patience: Duration::from_secs(30),
        spin: Duration::ZERO,
        wrong_share: 0.0,
        users: Arc::new(Users::template("user{}@example.org", "pw{}", 50).unwrap()),
        first: 0,
        step: 1,
        mix: Vec::new(),
        front,
    }
}

fn aaa(methods: &[Method], with: impl FnOnce(&mut usher_aaa::Config)) -> Other {
    let mut users = usher_aaa::Users::new(&mut Seed::new(1).secure("users", 0));
    for i in 0..50 {
        users.insert(
            format!("user{i}@example.org").as_bytes(),
            User::with_password(format!("pw{i}").as_bytes()),
        );
    }
    let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
    config.methods = methods.to_vec();
    config.radius = Some(server::Config::new(vec![ClientConfig::new(HOST, 32, secret())]));
    with(&mut config);
    Other::Aaa(Box::new(Tap::new(AaaServer::new(config, Seed::new(1).secure("aaa", 0)).unwrap())))
}

fn scripted(answer: fn(&server::Request) -> (Code, Attributes)) -> Other {
    let config = server::Config::new(vec![ClientConfig::new(HOST, 32, secret())]);
    let server = Server::new(config, Seed::new(1).secure("server", 0)).unwrap();
    Other::Scripted(Box::new(Tap::new(server)), answer)
}

const CLOSED: Pace = Pace::Closed { concurrency: 8 };
fn pap() -> FrontConfig {
    FrontConfig::Radius(radius(Some(RadiusLogin::Pap)))
}
fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a / b - 1.0).abs() < 2e-3)
}

#[test]
fn a_closed_loop_keeps_so_many_under_way() {
    let mut c = config(pap(), CLOSED);
    c.count = Some(200);
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    let tally = w.run(10.0).clone();
    assert_eq!((tally.begun, tally.succeeded, tally.completed, tally.failed_total()), (200, 200, 200, 0));
    assert_eq!(tally.exchanges, 200);
    assert!(near(quantile(&tally.latency, 0.5), 0.002) && near(quantile(&tally.latency, 1.0), 0.002));
    // 200 logins of 2 ms, 8 at a time.
    assert_eq!(w.generator.measured(w.now), Duration::from_millis(50));
}

#[test]
fn an_open_loop_measures_from_the_time_a_login_was_meant_to_begin() {
    let pace = Pace::Open { rate: 1000.0, arrivals: Arrivals::Regular };
    let mut c = config(pap(), pace);
    c.warmup = Duration::from_secs(1);
    c.duration = Some(Duration::from_secs(2));
    c.outstanding = 100;
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    let second = |s| Instant::ZERO + Duration::from_secs_f64(s);
    w.stall = Some((second(2.0), second(2.5)));
    let tally = w.run(60.0).clone();
    assert_eq!(tally.begun, 2000, "the warm-up is not counted, all that was due is");
    assert_eq!((tally.succeeded, tally.failed_total()), (2000, 0));
    // A hundred were under way when the server stood still; the 400 behind them waited here, and their wait counts.
    assert!(quantile(&tally.latency, 0.99).unwrap() > 0.45, "{:?}", quantile(&tally.latency, 0.99));
    assert!(near(quantile(&tally.latency, 0.5), 0.002));
    assert!(quantile(&tally.lag, 0.85).unwrap() > 0.1, "how late they began is told");
    assert_eq!(w.generator.measured(w.now), Duration::from_secs(2));
    assert!((1990..=2000).contains(&tally.completed), "{}", tally.completed);
}

#[test]
fn a_wrong_password_must_be_turned_away() {
    let mut c = config(pap(), CLOSED);
    (c.count, c.wrong_share) = (Some(300), 0.3);
    let tally = World::new(c, aaa(&[Method::Pap], |_| {})).run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total()), (300, 0));
    assert!((50..150).contains(&tally.expected_rejects), "{}", tally.expected_rejects);
    assert_eq!(tally.latency.len() + tally.reject_latency.len(), 300);

    let mut c = config(pap(), CLOSED);
    (c.count, c.wrong_share) = (Some(20), 1.0);
    let all = scripted(|_| (Code::ACCESS_ACCEPT, Attributes::new()));
    let tally = World::new(c, all).run(60.0).clone();
    assert_eq!(tally.failed(Failure::WronglyAccepted), 20);
}

#[test]
fn what_is_not_verified_does_not_count() {
    // Another secret: the server is silent, and each login is given up after three transmissions.
    let mut front = radius(Some(RadiusLogin::Pap));
    front.client.servers[0].secret = Secret::new(b"another");
    let mut c = config(FrontConfig::Radius(front), CLOSED);
    c.count = Some(8);
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    let tally = w.run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed(Failure::Timeout)), (0, 8));
    let counters: BTreeMap<_, _> = w.generator.counters().into_iter().collect();
    assert_eq!((counters["requests"], counters["retransmissions"]), (8, 16));
    assert_eq!(w.now, Instant::ZERO + Duration::from_secs(6));
}

#[test]
fn each_kind_of_wrong_answer_has_its_name() {
    type Answer = fn(&server::Request) -> (Code, Attributes);
    let eap = || RadiusLogin::Eap(EapMethod::Md5);
    let cases: [(RadiusLogin, Answer, Failure); 6] = [
        (RadiusLogin::Pap, |_| (Code::ACCESS_REJECT, Attributes::new()), Failure::Rejected),
        (RadiusLogin::Chap, |_| (Code::ACCESS_CHALLENGE, Attributes::new()), Failure::UnexpectedChallenge),
        (RadiusLogin::MsChapV2, |_| (Code::ACCESS_ACCEPT, Attributes::new()), Failure::WrongProof),
        (eap(), |_| (Code::ACCESS_ACCEPT, Attributes::new()), Failure::NoEap),
        (
            eap(),
            |_| {
                let mut list = Attributes::new();
                list.push_eap(&[3, 0, 0, 4]);
                (Code::ACCESS_ACCEPT, list)
            },
            Failure::EarlySuccess,
        ),
        (
            eap(),
            |_| {
                let mut list = Attributes::new();
                list.push_eap(&[1, 9, 0]);
                (Code::ACCESS_CHALLENGE, list)
            },
            Failure::EapDiscarded,
        ),
    ];
    for (login, answer, failure) in cases {
        let name = format!("{login:?}");
        let mut c = config(FrontConfig::Radius(radius(Some(login))), CLOSED);
        c.count = Some(10);
        let tally = World::new(c, scripted(answer)).run(60.0).clone();
        assert_eq!(tally.failures().collect::<Vec<_>>(), [(failure, 10)], "{name}");
        assert_eq!(tally.succeeded, 0);
    }
}

#[test]
fn eap_goes_its_rounds() {
    let mut c = config(FrontConfig::Radius(radius(Some(RadiusLogin::Eap(EapMethod::Md5)))), CLOSED);
    (c.count, c.wrong_share) = (Some(100), 0.2);
    let tally = World::new(c, aaa(&[Method::EapMd5], |_| {})).run(60.0).clone();
    assert_eq!((tally.succeeded, tally.failed_total(), tally.exchanges), (100, 0, 200));
    assert!(near(quantile(&tally.latency, 0.5), 0.004), "two round trips");
    assert!(tally.expected_rejects > 0);
}

#[test]
fn accounting_follows_a_login() {
    let mut front = radius(Some(RadiusLogin::Pap));
    front.accounting = Some(Accounting { interims: 2, every: Duration::from_secs(10) });
    let mut c = config(FrontConfig::Radius(front), CLOSED);
    c.count = Some(8);
    c.patience = Duration::from_secs(60);
    let server = scripted(|request| {
        let reply = match request.code {
            Code::ACCOUNTING_REQUEST => Code::ACCOUNTING_RESPONSE,
            _ => Code::ACCESS_ACCEPT,
        };
        (reply, Attributes::new())
    });
    let mut w = World::new(c, server);
    let tally = w.run(120.0).clone();
    // Login, start, two interims and stop.
    assert_eq!((tally.succeeded, tally.records, tally.exchanges), (8, 32, 40));
    assert_eq!(w.now, Instant::ZERO + Duration::from_secs(30) + Duration::from_millis(10));
}

#[test]
fn accounting_stands_alone() {
    let mut front = radius(None);
    front.accounting = Some(Accounting { interims: 0, every: Duration::ZERO });
    let mut c = config(FrontConfig::Radius(front), CLOSED);
    c.count = Some(100);
    let server = scripted(|request| {
        assert_eq!(request.code, Code::ACCOUNTING_REQUEST);
        assert_eq!(request.attributes.get(kind::ACCT_SESSION_ID).map(<[u8]>::len), Some(25));
        (Code::ACCOUNTING_RESPONSE, Attributes::new())
    });
    let tally = World::new(c, server).run(120.0).clone();
    assert_eq!((tally.succeeded, tally.records), (100, 200));
}

#[test]
fn a_window_can_be_begun_and_ended_by_command() {
    let mut c = config(pap(), Pace::Open { rate: 100.0, arrivals: Arrivals::Regular });
    c.warmup = Duration::MAX;
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    assert_eq!(w.run(1.0).begun, 0, "warm until told");
    w.generator
        .command(w.now, Command::Pace(Pace::Open { rate: 1000.0, arrivals: Arrivals::Regular }))
        .unwrap();
    w.generator.command(w.now, Command::Measure).unwrap();
    assert_eq!(w.run(2.0).begun, 1000);
    // A server that stands still: what is under way for longer than the limit is overdue, the rest is cut off.
    w.generator.command(w.now, Command::Measure).unwrap();
    w.generator.take_tally();
    w.stall = Some((w.now, w.now + Duration::from_secs(5)));
    w.run(2.5);
    w.generator.command(w.now, Command::Close(Duration::from_millis(100))).unwrap();
    let tally = w.generator.take_tally();
    assert_eq!((tally.begun, tally.succeeded), (500, 0));
    let (overdue, cut_off) = (tally.failed(Failure::Overdue), tally.cut_off);
    assert!((395..=405).contains(&overdue) && overdue + cut_off == 500, "{overdue} {cut_off}");
    assert!(!w.generator.is_measuring());
    w.generator.command(w.now, Command::Abandon).unwrap();
    assert_eq!(w.generator.outstanding(), 0);
    w.generator.command(w.now, Command::Stop).unwrap();
    assert!(w.generator.is_finished());
    let after = w.generator.take_tally();
    assert_eq!((after.cut_off, after.failed_total()), (0, 0), "each is counted once");
}

#[test]
fn what_could_not_begin_is_counted() {
    let mut c = config(pap(), Pace::Open { rate: 1000.0, arrivals: Arrivals::Regular });
    (c.duration, c.outstanding, c.patience) = (Some(Duration::from_secs(1)), 10, Duration::from_secs(1));
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    w.stall = Some((Instant::ZERO, Instant::ZERO + Duration::from_secs(100)));
    let tally = w.run(60.0).clone();
    assert_eq!((tally.begun, tally.failed(Failure::Unfinished)), (10, 10));
    let missed = tally.failed(Failure::NotBegun);
    assert!((988..=990).contains(&missed), "{missed}");
}

fn diameter(login: DiameterLogin, connections: usize) -> FrontConfig {
    FrontConfig::Diameter(DiameterConfig {
        address: SERVER,
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
        epoch: EPOCH,
    })
}

#[test]
fn diameter_logs_in_over_several_connections() {
    for (login, methods, rounds) in
        [(DiameterLogin::Pap, [Method::Pap], 1), (DiameterLogin::Eap(EapMethod::Md5), [Method::EapMd5], 2)]
    {
        let mut c = config(diameter(login, 3), CLOSED);
        (c.count, c.wrong_share) = (Some(120), 0.2);
        let server = aaa(&methods, |config| {
            let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
            let mut node = node::Config::new("aaa.example.org", "example.org", &applications);
            node.local.addresses.push(SERVER.ip());
            node.accept_unknown = true;
            config.diameter = Some(node);
        });
        let mut w = World::new(c, server);
        let tally = w.run(60.0).clone();
        assert_eq!((tally.succeeded, tally.failed_total(), tally.exchanges), (120, 0, 120 * rounds));
        assert!(tally.expected_rejects > 0);
        assert_eq!(w.accepted, 3);
        // Each connection's goodbye is on its way (RFC 6733 §5.4).
        let goodbye = |what: &What| match what {
            What::Data(_, data) => MessageView::parse(data).unwrap().header().command == DISCONNECT_PEER,
            _ => false,
        };
        assert_eq!(w.queue.values().filter(|(server, what)| *server && goodbye(what)).count(), 3);
    }
}

#[test]
fn eap_tls_has_the_keys_that_the_server_sends() {
    use usher_crypto::tls::{
        ClientConfig, ClientOptions, Roots, ServerConfig, ServerOptions, Version, WallClock, fixtures,
    };
    use usher_eap::method::tls::{ServerMethodTls, ServerTls};
    for version in [Version::Tls12, Version::Tls13] {
        let clock = WallClock::at(fixtures::WALL_TIME);
        let client = ClientConfig::new(ClientOptions {
            versions: version.into(),
            credentials: Some(fixtures::client(2)),
            roots: Roots::from_der([fixtures::root()]),
            server_name: None,
            resumption: None,
            clock: clock.clone(),
            key_log: None,
        });
        let tls = ServerConfig::new(ServerOptions {
            versions: version.into(),
            credentials: fixtures::server(2),
            client_roots: Some(Roots::from_der([fixtures::root()])),
            resumption: None,
            clock,
            key_log: None,
        });
        let tls = Arc::new(ServerMethodTls { tls: ServerTls::Real(tls.unwrap()), fragment: 1000 });
        let (config_of, each) = (client.unwrap(), Arc::default());
        let method = EapMethod::Tls(Tls { config: config_of, each, fragment: 1000, resume: false });
        let mut c = config(FrontConfig::Radius(radius(Some(RadiusLogin::Eap(method)))), CLOSED);
        c.count = Some(4);
        let tally = World::new(c, aaa(&[Method::EapTls], |config| config.tls = Some(tls))).run(60.0).clone();
        assert_eq!(
            (tally.succeeded, tally.failed_total()),
            (4, 0),
            "{version:?} {:?}",
            tally.failures().collect::<Vec<_>>()
        );
    }
}

mod honest;
