//! Client and server by RadSec, and servers that die, in virtual time.

use crate::attribute::{error_cause, kind};
use crate::client::{self, Client, Failover, Health, Liveness, Retransmission, ServerConfig, Target};
use crate::radsec::CertificateMatch;
use crate::server::{self, ClientConfig, Role, Server};
use crate::testing::{arrive, at, sent, user};
use crate::{Attributes, Code, Secret};
use std::net::SocketAddr;
use usher_core::bench::{At, Network, Sent, Tap};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, ConnId, Duration, Input, ListenerId, Machine, Path, Seed, StreamEvent, StreamOp, Transmit,
};

fn address(n: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.2".parse().unwrap(), 2083 + n)
}

/// Somebody begins a connection, without a certificate.
fn accepted(remote: SocketAddr) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: ListenerId::own(0), remote, local: None, certificate: None }
}

/// A client, servers behind it, and the connections between them; octets arrive in pieces of seven.
struct World {
    net: Network,
    near: At<Client>,
    servers: Vec<At<Server>>,
}

impl World {
    fn new(servers: u16, change: impl FnOnce(&mut client::Config)) -> Self {
        let mut config = client::Config::single(ServerConfig::radsec(address(0)));
        config.servers = (0..servers).map(|n| ServerConfig::radsec(address(n))).collect();
        config.groups = vec![(0..servers).collect()];
        config.failover = Some(Failover::default());
        config.retransmission = Retransmission::Fixed { interval: Duration::from_secs(10), count: 3 };
        change(&mut config);
        let mut net = Network::new(ChannelConfig::default());
        net.segment(7);
        let client = Client::new(config, Seed::new(1).secure("client", 0)).unwrap();
        let near = net.add(client, &["10.0.0.1".parse().unwrap()]);
        let server = |n| {
            let any = "0.0.0.0".parse().unwrap();
            let mut config = server::Config::new(vec![ClientConfig::radsec(any, 0, Vec::new())]);
            config.streams = Role::All;
            let server = Server::new(config, Seed::new(1).secure("server", n)).unwrap();
            let host = net.add(server, &[address(0).ip()]);
            net.listen(host, ListenerId::own(0), address(n as u16));
            net.on_event(host, |server::Event::Request(r)| {
                let code = match r.code {
                    Code::ACCESS_REQUEST => Code::ACCESS_ACCEPT,
                    Code::ACCOUNTING_REQUEST => Code::ACCOUNTING_RESPONSE,
                    Code::COA_REQUEST => Code::COA_NAK,
                    other => panic!("{other}"),
                };
                let (token, attributes) = (r.token, Attributes::new());
                Some((Duration::ZERO, server::Command::Respond { token, code, attributes }))
            });
            host
        };
        let servers = (0..u64::from(servers)).map(server).collect();
        Self { net, near, servers }
    }
    fn client(&self) -> &Client {
        &self.net[self.near]
    }
    fn server(&self, n: usize) -> &Server {
        &self.net[self.servers[n]]
    }
    fn ask(&mut self, token: u64, code: Code, target: Target) {
        let attributes = user();
        let command = client::Command::Request { token, target, code, attributes };
        self.net.command(self.near, command).unwrap();
        self.net.run(Duration::ZERO);
    }
    /// Whether nobody reaches the first server.
    fn down(&mut self, down: bool) {
        self.net.refuse(self.servers[0], down);
    }
    /// Whether the first server hears and says nothing.
    fn mute(&mut self, mute: bool) {
        let first = self.servers[0].number;
        let heard = move |sent: &Sent| !mute || sent.from != first;
        self.net.meddle(move |_, sent| if heard(sent) { vec![Duration::ZERO] } else { vec![] });
    }
    fn cut_all(&mut self) {
        self.net.cut(self.near);
        self.net.run(Duration::ZERO);
    }
    /// Lets time go by.
    fn until(&mut self, seconds: f64) {
        self.net.run_until(at(seconds));
    }
    /// How many connections were begun.
    fn opened(&self) -> usize {
        let op =
            |sent: &&Sent| matches!(sent.transmit, Transmit::Stream { op: StreamOp::Connect { .. }, .. });
        self.net.sent().iter().filter(op).count()
    }
    /// How many requests each server was given.
    fn asked(&self) -> Vec<usize> {
        self.servers.iter().map(|server| self.net.events(*server).len()).collect()
    }
    fn events(&self) -> impl Iterator<Item = (u64, &client::Event)> {
        self.net.events(self.near).iter().map(|(at, event)| (at.as_nanos() / 1_000_000_000, event))
    }
    fn answers(&self) -> Vec<(u64, u16)> {
        let answer = |(_, e): (u64, &client::Event)| match e {
            client::Event::Response(r) => Some((r.token, r.server)),
            _ => None,
        };
        self.events().filter_map(answer).collect()
    }
    /// When servers came to be how they are.
    fn turns(&self) -> Vec<(u64, u16, Health)> {
        let turn = |(when, e): (u64, &client::Event)| match e {
            client::Event::Server { server, health, .. } => Some((when, *server, *health)),
            _ => None,
        };
        let mut turns: Vec<_> = self.events().filter_map(turn).collect();
        turns.dedup_by_key(|(_, server, health)| (*server, *health));
        turns
    }
}

const GROUP: Target = Target::Group(0);

#[test]
fn all_roles_go_by_one_connection() {
    let mut w = World::new(1, |_| {});
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.ask(2, Code::ACCOUNTING_REQUEST, GROUP);
    w.ask(3, Code::COA_REQUEST, GROUP);
    w.ask(4, Code::STATUS_SERVER, GROUP);
    assert_eq!(w.answers(), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!((w.opened(), w.server(0).connections()), (1, 1));
}

#[test]
fn a_connection_to_somebody_else_is_given_up_and_the_next_server_is_asked() {
    const AAA: &[u8] = include_bytes!("../../../../../vectors/certs/server1.der");
    const STATION: &[u8] = include_bytes!("../../../../../vectors/certs/client1.der");
    let named = |shows: [Option<&'static [u8]>; 2]| {
        let mut w = World::new(2, |c| {
            for server in &mut c.servers {
                server.certificates = vec![CertificateMatch::Name("aaa.usher.test".into())];
            }
        });
        (0..2).for_each(|n| w.net.show(w.servers[n], shows[n]));
        w.ask(1, Code::ACCESS_REQUEST, GROUP);
        (w.answers(), w.asked(), w.client().counters().connections_refused)
    };
    assert_eq!(named([Some(AAA), Some(AAA)]), (vec![(1, 0)], vec![1, 0], 0));
    // The first server's certificate is of the right authority and bears another name, or there is none.
    assert_eq!(named([Some(STATION), Some(AAA)]), (vec![(1, 1)], vec![0, 1], 1));
    assert_eq!(named([None, Some(AAA)]), (vec![(1, 1)], vec![0, 1], 1));
    let (answers, asked, refused) = named([None, Some(STATION)]);
    assert_eq!((answers.len(), asked, refused), (0, vec![0, 0], 2), "nobody is told the request");
}

#[test]
fn a_connection_whose_identifiers_all_wait_gets_a_sister() {
    let mut w = World::new(1, |c| c.max_connections = 2);
    w.mute(true);
    (0..300).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    assert_eq!((w.opened(), w.asked()[0]), (2, 300));
    (300..510).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    let attributes = user();
    let command =
        client::Command::Request { token: 600, target: GROUP, code: Code::ACCESS_REQUEST, attributes };
    assert!(w.net.command(w.near, command).is_err(), "all identifiers wait");
}

#[test]
fn nothing_is_sent_twice_by_one_connection() {
    let mut w = World::new(1, |_| {});
    w.mute(true);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(29.0);
    assert_eq!((w.asked()[0], w.client().counters().timeouts), (1, 0));
    w.until(31.0);
    assert_eq!((w.asked()[0], w.client().counters().timeouts), (1, 1), "as long as three times ten seconds");
}

#[test]
fn what_waited_on_a_broken_connection_is_asked_by_the_next() {
    let mut w = World::new(1, |_| {});
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.mute(true);
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    w.mute(false);
    w.cut_all();
    assert_eq!(w.answers(), [(1, 0), (2, 0)]);
    assert_eq!(w.opened(), 2);
    assert_eq!((w.server(0).connections(), w.server(0).entries()), (1, 1), "the old one's went with it");
}

#[test]
fn a_server_that_is_not_there_is_tried_ever_more_rarely() {
    let mut w = World::new(1, |c| c.retransmission = Retransmission::default());
    w.down(true);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(14.0);
    assert_eq!(w.opened(), 4, "at 0, 1, 3 and 7 seconds");
    w.down(false);
    w.until(16.0);
    assert_eq!(w.answers(), [(1, 0)]);
}

#[test]
fn requests_go_to_the_next_server_when_a_connection_breaks() {
    let mut w = World::new(2, |_| {});
    w.mute(true);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.down(true);
    w.cut_all();
    assert_eq!(w.answers(), [(1, 1)]);
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    w.ask(3, Code::ACCESS_REQUEST, Target::From { group: 0, server: 0 });
    assert_eq!(w.answers()[1..], [(2, 1), (3, 1)], "new ones do not wait for what is not there");
    w.down(false);
    w.mute(false);
    w.until(400.0);
    w.ask(4, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[3], (4, 0), "back to the first");
}

fn watched(c: &mut client::Config) {
    for s in &mut c.servers {
        s.liveness = Some(Liveness::default());
    }
}

#[test]
fn a_mute_server_is_found_out_by_its_status_and_comes_back_by_three_answers() {
    let mut w = World::new(2, watched);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.mute(true);
    w.ask(2, Code::ACCESS_REQUEST, Target::Server(0));
    w.ask(3, Code::ACCESS_REQUEST, GROUP);
    w.until(3.9);
    assert_eq!((w.client().counters().probes, w.answers().len()), (0, 1));
    w.until(4.1);
    assert_eq!(w.client().counters().probes, 1, "after a window without a word");
    assert_eq!(w.answers()[1..], [(3, 1)], "what was under way moved on");
    w.ask(4, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[2..], [(4, 1)], "what is new does not wait");
    assert!(w.client().usable(0));
    w.until(17.0);
    assert_eq!(w.turns(), [(4, 0, Health::Suspect), (16, 0, Health::Dead)]);
    assert!(!w.client().usable(0));
    w.mute(false);
    w.until(105.0);
    assert!(!w.client().usable(0), "two answers");
    w.until(107.0);
    assert_eq!(w.turns()[2..], [(106, 0, Health::Alive)]);
    assert!(w.client().usable(0));
}

#[test]
fn an_idle_connection_is_tried_each_interval() {
    let mut w = World::new(1, watched);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(100.0);
    assert_eq!((w.client().counters().probes, w.server(0).counters().status), (3, 3));
    assert!(w.turns().is_empty());
}

#[test]
fn octets_that_are_no_radius_end_the_connection() {
    for spoilt in [&[0; 25][..], &[1, 2, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]] {
        let mut w = World::new(1, |_| {});
        w.ask(1, Code::ACCESS_REQUEST, GROUP);
        let conn = ConnId::accepted(0);
        w.net.give(w.servers[0], Input::Stream { conn, event: StreamEvent::Data(spoilt) });
        assert_eq!((w.server(0).counters().connections_spoilt, w.server(0).connections()), (1, 0));
        w.net.run(Duration::ZERO);
        w.ask(2, Code::ACCESS_REQUEST, GROUP);
        assert_eq!((w.answers().len(), w.opened()), (2, 2), "a new one is as good");
    }
    let mut w = World::new(1, |_| {});
    w.mute(true);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    let conn = ConnId::opened(0);
    w.net.give(w.near, Input::Stream { conn, event: StreamEvent::Data(&[2, 0, 0xff, 0xff]) });
    assert_eq!(w.client().counters().connections_spoilt, 1);
}

#[test]
fn the_same_identifier_is_another_request_by_another_connection() {
    let any = "0.0.0.0".parse().unwrap();
    let config = server::Config::new(vec![ClientConfig::radsec(any, 0, Vec::new())]);
    let mut s = Server::new(config, Seed::new(1).secure("server", 0)).unwrap();
    let mut packet =
        vec![1, 7, 0, 26, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 6, b'u', b's', b'e', b'r'];
    fn feed(s: &mut Server, n: u32, event: StreamEvent<'_>) {
        s.handle(at(0.0), Input::Stream { conn: ConnId::accepted(n), event });
    }
    for n in 0..2 {
        // Both come from one address and port, as behind two listeners of ours.
        let remote = "10.0.0.1:4000".parse().unwrap();
        feed(&mut s, n, accepted(remote));
        feed(&mut s, n, StreamEvent::Data(&packet));
        feed(&mut s, n, StreamEvent::Data(&packet));
    }
    assert_eq!((s.counters().requests, s.counters().duplicates_dropped), (2, 2));
    packet[4] = 0;
    feed(&mut s, 0, StreamEvent::Data(&packet));
    assert_eq!((s.counters().requests, s.counters().superseded), (3, 1), "a new one of the same identifier");
    feed(&mut s, 0, StreamEvent::Closed(CloseReason::Closed));
    assert_eq!(s.entries(), 1);
}

/// A connection that cannot be had is known at once, and so is one that can.
#[test]
fn a_server_without_a_connection_is_dead_at_once_and_alive_with_the_next() {
    let mut w = World::new(2, watched);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.down(true);
    w.cut_all();
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    assert_eq!((w.answers()[1..].to_vec(), w.turns()), (vec![(2, 1)], vec![(0, 0, Health::Dead)]));
    w.ask(3, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[2..], [(3, 1)]);
    w.until(5.0);
    w.down(false);
    w.until(8.0);
    assert_eq!(w.turns()[1..], [(7, 0, Health::Alive)], "tried after 1, 2 and 4 s");
    w.ask(4, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[3..], [(4, 0)]);
}

/// The same by datagrams: three chances within the zombie period.
#[test]
fn a_silent_datagram_server_dies_and_its_requests_move_on() {
    let mut config = client::Config::single(ServerConfig::new(address(0), Secret::new(b"s")));
    config.servers.push(ServerConfig::new(address(1), Secret::new(b"s")));
    config.groups = vec![vec![0, 1]];
    config.failover = Some(Failover { after: 100, ..Failover::default() });
    config.retransmission = Retransmission::Fixed { interval: Duration::from_secs(5), count: 50 };
    watched(&mut config);
    let mut c = Tap::new(Client::new(config, Seed::new(1).secure("client", 0)).unwrap());
    let request = |token| client::Command::Request {
        token,
        target: GROUP,
        code: Code::ACCESS_REQUEST,
        attributes: user(),
    };
    c.command(at(0.0), request(1)).unwrap();
    let mut log = Vec::new();
    while log.last().is_none_or(|(t, _, _)| *t < 50) {
        let now = c.poll_timeout().unwrap_or_default();
        c.handle(now, Input::Timeout);
        for (path, bytes) in sent(&mut c) {
            log.push((now.as_nanos() / 1_000_000_000, path.remote.port() - 2083, bytes));
        }
    }
    let status: Vec<u64> = log.iter().filter(|(_, s, b)| *s == 0 && b[0] == 12).map(|(t, ..)| *t).collect();
    assert_eq!(status, [4, 8, 12, 46], "three chances, then dead at 16; asked again from 46 on");
    let moved = log.iter().find(|(_, s, b)| *s == 1 && b[0] == 1).unwrap();
    assert_eq!(moved.0, 4);
    let mut turns = Vec::new();
    while let Some(event) = c.poll_event() {
        if let client::Event::Server { server: 0, health, .. } = event {
            turns.push(health);
        }
    }
    assert_eq!(turns[..2], [Health::Suspect, Health::Dead]);
    // Its status answers come back by datagrams as well: a server that knows the secret.
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, Secret::new(b"s"));
    let config = server::Config::new(vec![network]);
    let mut s = Tap::new(Server::new(config, Seed::new(1).secure("server", 0)).unwrap());
    let mut alive = None;
    while alive.is_none() {
        let now = c.poll_timeout().unwrap();
        assert!(now < at(200.0));
        c.handle(now, Input::Timeout);
        for (path, bytes) in sent(&mut c) {
            if path.remote == address(0) {
                arrive(&mut s, now, "10.0.0.1:5000", &bytes);
                for (_, answer) in sent(&mut s) {
                    let path = Path { local: path.local, ..path };
                    c.handle(now, Input::Datagram { path, data: &answer });
                }
            }
        }
        while let Some(event) = c.poll_event() {
            if matches!(event, client::Event::Server { server: 0, health: Health::Alive, .. }) {
                alive = Some(now.as_nanos() / 1_000_000_000);
            }
        }
    }
    assert_eq!(alive, Some(136));
}

/// RFC 6614 §2.5: a client is told what is not served by the one port that there is.
#[test]
fn what_is_not_served_by_radsec_is_refused_in_words() {
    let any = "0.0.0.0".parse().unwrap();
    let mut config = server::Config::new(vec![ClientConfig::radsec(any, 0, Vec::new())]);
    config.streams = Role::Authentication;
    let mut w = World::new(1, |_| {});
    w.net[w.servers[0]].reload(config.clone()).unwrap();
    for (token, code) in
        [(1, Code::ACCOUNTING_REQUEST), (2, Code::COA_REQUEST), (3, Code::DISCONNECT_REQUEST)]
    {
        w.ask(token, code, GROUP);
    }
    let told: Vec<(Code, Option<u32>)> = w
        .events()
        .filter_map(|(_, e)| match e {
            client::Event::Response(r) => Some((r.code, r.attributes.get_u32(kind::ERROR_CAUSE))),
            _ => None,
        })
        .collect();
    let cause = Some(error_cause::UNSUPPORTED_EXTENSION);
    let answers = [Code::ACCOUNTING_RESPONSE, Code::COA_NAK, Code::DISCONNECT_NAK];
    assert_eq!(told, answers.map(|code| (code, cause)));
    assert_eq!((w.server(0).counters().wrong_code, w.asked()[0]), (3, 0));
    assert_eq!((w.server(0).entries(), w.server(0).connections()), (0, 1));
    // What does not know the secret hears nothing.
    let mut forged = vec![43, 1, 0, 20];
    forged.resize(20, 9);
    w.net.give(w.servers[0], Input::Stream { conn: ConnId::accepted(0), event: StreamEvent::Data(&forged) });
    assert_eq!((w.server(0).counters().bad_authenticator, w.server(0).connections()), (1, 0));
    // By datagrams another port tells that.
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, Secret::new(b"s"));
    let config = server::Config::new(vec![network]);
    let mut s = Tap::new(Server::new(config, Seed::new(1).secure("server", 0)).unwrap());
    arrive(&mut s, at(0.0), "10.0.0.1:5000", &forged);
    assert!(sent(&mut s).is_empty());
}

/// RFC 6613 §2.6 and §2.6.5: however many requests wait, there is an identifier for the watchdog.
#[test]
fn a_connection_whose_identifiers_all_wait_is_still_watched() {
    let mut w = World::new(1, |c| {
        c.max_connections = 1;
        watched(c);
    });
    w.mute(true);
    (0..255).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    let request = |code| client::Command::Request { token: 600, target: GROUP, code, attributes: user() };
    assert!(w.net.command(w.near, request(Code::ACCESS_REQUEST)).is_err(), "all of them wait");
    assert!(w.net.command(w.near, request(Code::STATUS_SERVER)).is_err(), "the last is the watchdog's");
    let asked = w.server(0).counters().status;
    w.until(31.0);
    assert_eq!((w.client().counters().probes, w.server(0).counters().status), (1, asked + 1));
}
