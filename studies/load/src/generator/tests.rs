//! The generator against servers in memory and virtual time.

use super::*;
use crate::eap::{EapMethod, Tls};
use crate::pace::Arrivals;
use crate::tally::quantile;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use usher_aaa::{AaaServer, DIAMETER_LISTENER, Method, User, UserSource};
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::ChannelConfig;
use usher_core::{Seed, SocketId, StreamOp, Transmit};
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

/// What makes a server slow.
#[derive(Clone, Copy, Default)]
struct Slow {
    /// It takes nothing within these times; what comes meanwhile waits.
    stall: Option<(Instant, Instant)>,
    /// It takes a datagram so long after the one before at the soonest, and when it is free again.
    service: Duration,
    free: Instant,
}

impl Slow {
    /// How much later than it arrives it takes what is sent now.
    fn wait(&mut self, now: Instant) -> Duration {
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
        at.since(arrives)
    }
}

struct World {
    net: Network,
    generator: At<Generator>,
    slow: Rc<Cell<Slow>>,
    /// The generator needs so long for each thing that it hears.
    toil: Duration,
    /// How long it was busy.
    busy: Duration,
}

impl World {
    fn new(config: Config, other: impl FnOnce(&mut Network)) -> Self {
        let generator = Generator::new(config, Instant::ZERO, Seed::new(3).secure("load", 0)).unwrap();
        let mut net = Network::new(ChannelConfig { delay: DELAY, ..ChannelConfig::default() });
        let generator = net.add(generator, &[HOST]);
        other(&mut net);
        let slow = Rc::new(Cell::new(Slow::default()));
        let of_server = slow.clone();
        net.meddle(move |_, sent| {
            let mut slow = of_server.get();
            let wait = if sent.from == generator.number { slow.wait(sent.at) } else { Duration::ZERO };
            of_server.set(slow);
            vec![wait]
        });
        Self { net, generator, slow, toil: Duration::ZERO, busy: Duration::ZERO }
    }
    fn stall(&self, from: Instant, to: Instant) {
        self.slow.set(Slow { stall: Some((from, to)), ..self.slow.get() });
    }
    fn serve(&self, service: Duration) {
        self.slow.set(Slow { service, ..self.slow.get() });
    }
    fn now(&self) -> Instant {
        self.net.now()
    }
    fn load(&self) -> &Generator {
        &self.net[self.generator]
    }
    fn measured(&self) -> Duration {
        self.load().measured(self.now())
    }
    fn command(&mut self, command: Command) {
        self.net.command(self.generator, command).unwrap();
    }
    /// What the generator sent.
    fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.net.sent().iter().filter(|sent| sent.from == self.generator.number)
    }
    /// The sockets that datagrams came from, with their addresses.
    fn sources(&self) -> BTreeMap<SocketId, IpAddr> {
        let source = |sent: &Sent| match sent.transmit {
            Transmit::Datagram { path } => Some((path.socket, path.local.ip())),
            _ => None,
        };
        self.sent().filter_map(source).collect()
    }

    /// Until the generator says that it has finished, or that time.
    fn run(&mut self, until: f64) -> &Tally {
        let until = Instant::ZERO + Duration::from_secs_f64(until);
        self.net.settle();
        while self.net.take(self.generator).is_empty() {
            if self.net.due().is_none_or(|at| at > until) {
                self.net.run_until(until);
                break;
            }
            if self.net.step() == Some(self.generator.number) {
                self.net.pass(self.toil);
                self.busy += self.toil;
            }
        }
        self.load().tally()
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
    }
}

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

/// Adds an AAA server.
fn aaa(methods: &[Method], with: impl FnOnce(&mut usher_aaa::Config)) -> Box<dyn FnOnce(&mut Network)> {
    let mut users = usher_aaa::Users::new(&mut Seed::new(1).secure("users", 0));
    for i in 0..50 {
        users.insert(
            format!("user{i}@example.org").as_bytes(),
            User::with_password(format!("pw{i}").as_bytes()),
        );
    }
    let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
    config.methods = methods.to_vec();
    config.radius = Some(server::Config::new(vec![ClientConfig::new(HOST, 16, secret())]));
    with(&mut config);
    let server = AaaServer::new(config, Seed::new(1).secure("aaa", 0)).unwrap();
    Box::new(|net| {
        let server = net.add(server, &[SERVER.ip()]);
        net.bind(server, usher_aaa::radius_socket(0), SERVER);
        net.listen(server, DIAMETER_LISTENER, SERVER);
    })
}

/// Adds a server that answers each request as the function says.
fn scripted(answer: fn(&server::Request) -> (Code, Attributes)) -> impl FnOnce(&mut Network) {
    let config = server::Config::new(vec![ClientConfig::new(HOST, 16, secret())]);
    let server = Server::new(config, Seed::new(1).secure("server", 0)).unwrap();
    move |net| {
        let server = net.add(server, &[SERVER.ip()]);
        net.bind(server, SocketId::own(0), SERVER);
        net.on_event(server, move |server::Event::Request(request)| {
            let (code, attributes) = answer(request);
            Some((Duration::ZERO, server::Command::Respond { token: request.token, code, attributes }))
        });
    }
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
    assert_eq!(w.measured(), Duration::from_millis(50));
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
    w.stall(second(2.0), second(2.5));
    let tally = w.run(60.0).clone();
    assert_eq!(tally.begun, 2000, "the warm-up is not counted, all that was due is");
    assert_eq!((tally.succeeded, tally.failed_total()), (2000, 0));
    // A hundred were under way when the server stood still; the 400 behind them waited here, and their wait counts.
    assert!(quantile(&tally.latency, 0.99).unwrap() > 0.45, "{:?}", quantile(&tally.latency, 0.99));
    assert!(near(quantile(&tally.latency, 0.5), 0.002));
    assert!(quantile(&tally.lag, 0.85).unwrap() > 0.1, "how late they began is told");
    assert_eq!(w.measured(), Duration::from_secs(2));
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
    let counters: BTreeMap<_, _> = w.load().counters().into_iter().collect();
    assert_eq!((counters["requests"], counters["retransmissions"]), (8, 16));
    assert_eq!(w.now(), Instant::ZERO + Duration::from_secs(6));
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
    assert_eq!(w.now(), Instant::ZERO + Duration::from_secs(30) + Duration::from_millis(10));
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
    w.command(Command::Pace(Pace::Open { rate: 1000.0, arrivals: Arrivals::Regular }));
    w.command(Command::Measure);
    assert_eq!(w.run(2.0).begun, 1000);
    // A server that stands still: what is under way for longer than the limit is overdue, the rest is cut off.
    w.command(Command::Measure);
    w.net[w.generator].take_tally();
    w.stall(w.now(), w.now() + Duration::from_secs(5));
    w.run(2.5);
    w.command(Command::Close(Duration::from_millis(100)));
    let tally = w.net[w.generator].take_tally();
    assert_eq!((tally.begun, tally.succeeded), (500, 0));
    let (overdue, cut_off) = (tally.failed(Failure::Overdue), tally.cut_off);
    assert!((395..=405).contains(&overdue) && overdue + cut_off == 500, "{overdue} {cut_off}");
    assert!(!w.load().is_measuring());
    w.command(Command::Abandon);
    assert_eq!(w.load().outstanding(), 0);
    w.command(Command::Stop);
    assert!(w.load().is_finished());
    let after = w.net[w.generator].take_tally();
    assert_eq!((after.cut_off, after.failed_total()), (0, 0), "each is counted once");
}

#[test]
fn what_could_not_begin_is_counted() {
    let mut c = config(pap(), Pace::Open { rate: 1000.0, arrivals: Arrivals::Regular });
    (c.duration, c.outstanding, c.patience) = (Some(Duration::from_secs(1)), 10, Duration::from_secs(1));
    let mut w = World::new(c, aaa(&[Method::Pap], |_| {}));
    w.stall(Instant::ZERO, Instant::ZERO + Duration::from_secs(100));
    let tally = w.run(60.0).clone();
    assert_eq!((tally.begun, tally.failed(Failure::Unfinished)), (10, 10));
    let missed = tally.failed(Failure::NotBegun);
    assert!((988..=990).contains(&missed), "{missed}");
}

fn diameter(login: DiameterLogin, connections: usize) -> FrontConfig {
    FrontConfig::Diameter(DiameterConfig {
        address: SERVER,
        transport: node::Transport::Stream,
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
        let connects =
            |sent: &&Sent| matches!(sent.transmit, Transmit::Stream { op: StreamOp::Connect { .. }, .. });
        assert_eq!(w.sent().filter(connects).count(), 3);
        // Each connection's goodbye is on its way (RFC 6733 §5.4).
        let goodbye = |sent: &&Sent| {
            sent.at + DELAY > w.now()
                && MessageView::parse(&sent.bytes).is_ok_and(|m| m.header().command == DISCONNECT_PEER)
        };
        assert_eq!(w.sent().filter(goodbye).count(), 3);
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
