//! Client and server by RadSec, and servers that die, in virtual time.

use crate::attribute::{error_cause, kind};
use crate::client::{self, Client, Failover, Health, Liveness, Retransmission, ServerConfig, Target};
use crate::radsec::CertificateMatch;
use crate::server::{self, ClientConfig, Role, Server};
use crate::testing::{arrive, at, sent, user};
use crate::{Attributes, Code, Secret};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use usher_core::bench::Tap;
use usher_core::{
    CloseReason, ConnId, Input, Instant, ListenerId, Machine, Path, Seed, StreamEvent, StreamOp, Transmit,
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
    client: Tap<Client>,
    servers: Vec<Tap<Server>>,
    /// The servers that nobody reaches.
    down: Vec<bool>,
    /// Servers that hear and say nothing.
    mute: Vec<bool>,
    /// What the servers' TLS shows (DER).
    shows: Vec<Option<&'static [u8]>>,
    conns: BTreeMap<ConnId, usize>,
    opened: Vec<usize>,
    events: Vec<(u64, client::Event)>,
    asked: Vec<u64>,
    now: Instant,
}

impl World {
    fn new(servers: u16, change: impl FnOnce(&mut client::Config)) -> Self {
        let mut config = client::Config::single(ServerConfig::radsec(address(0)));
        config.servers = (0..servers).map(|n| ServerConfig::radsec(address(n))).collect();
        config.groups = vec![(0..servers).collect()];
        config.failover = Some(Failover::default());
        config.retransmission =
            Retransmission::Fixed { interval: usher_core::Duration::from_secs(10), count: 3 };
        change(&mut config);
        let server = |n| {
            let any = "0.0.0.0".parse().unwrap();
            let mut config = server::Config::new(vec![ClientConfig::radsec(any, 0, Vec::new())]);
            config.streams = Role::All;
            Tap::new(Server::new(config, Seed::new(1).secure("server", n)).unwrap())
        };
        Self {
            client: Tap::new(Client::new(config, Seed::new(1).secure("client", 0)).unwrap()),
            servers: (0..u64::from(servers)).map(server).collect(),
            down: vec![false; servers.into()],
            mute: vec![false; servers.into()],
            shows: vec![None; servers.into()],
            conns: BTreeMap::new(),
            opened: Vec::new(),
            events: Vec::new(),
            asked: Vec::new(),
            now: Instant::ZERO,
        }
    }
    fn ask(&mut self, token: u64, code: Code, target: Target) {
        let attributes = user();
        let command = client::Command::Request { token, target, code, attributes };
        self.client.command(self.now, command).unwrap();
        self.settle();
    }
    /// Everything that can happen now.
    fn settle(&mut self) {
        let mut buf = Vec::new();
        loop {
            let mut idle = true;
            while let Some(transmit) = self.client.poll_transmit(&mut buf) {
                idle = false;
                self.carry(transmit, &buf);
            }
            for s in 0..self.servers.len() {
                while let Some(server::Event::Request(r)) = self.servers[s].poll_event() {
                    idle = false;
                    self.asked.push(s as u64);
                    let code = match r.code {
                        Code::ACCESS_REQUEST => Code::ACCESS_ACCEPT,
                        Code::ACCOUNTING_REQUEST => Code::ACCOUNTING_RESPONSE,
                        Code::COA_REQUEST => Code::COA_NAK,
                        other => panic!("{other}"),
                    };
                    let attributes = Attributes::new();
                    let command = server::Command::Respond { token: r.token, code, attributes };
                    self.servers[s].command(self.now, command).unwrap();
                }
                while let Some(transmit) = self.servers[s].poll_transmit(&mut buf) {
                    idle = false;
                    let Transmit::Stream { conn, op } = transmit else { panic!("{transmit:?}") };
                    let outgoing = ConnId::opened(conn.n);
                    match op {
                        StreamOp::Data if self.mute[s] => {}
                        StreamOp::Data => {
                            for piece in buf.chunks(7) {
                                let event = StreamEvent::Data(piece);
                                self.client.handle(self.now, Input::Stream { conn: outgoing, event });
                            }
                        }
                        StreamOp::Shutdown | StreamOp::Abort => self.cut(outgoing),
                        _ => panic!("{op:?}"),
                    }
                }
            }
            while let Some(event) = self.client.poll_event() {
                self.events.push((self.now.as_nanos() / 1_000_000_000, event));
            }
            if idle {
                return;
            }
        }
    }
    fn carry(&mut self, transmit: Transmit, data: &[u8]) {
        let Transmit::Stream { conn, op } = transmit else { panic!("{transmit:?}") };
        let incoming = ConnId::accepted(conn.n);
        match op {
            StreamOp::Connect { remote, .. } => {
                let s = usize::from(remote.port() - 2083);
                self.opened.push(s);
                if self.down[s] {
                    let event = StreamEvent::Closed(CloseReason::Refused);
                    return self.client.handle(self.now, Input::Stream { conn, event });
                }
                self.conns.insert(conn, s);
                let event = StreamEvent::Connected { remote, local: None, certificate: self.shows[s] };
                self.client.handle(self.now, Input::Stream { conn, event });
                let remote = SocketAddr::new("10.0.0.1".parse().unwrap(), 40_000 + conn.n as u16);
                let event = accepted(remote);
                self.servers[s].handle(self.now, Input::Stream { conn: incoming, event });
            }
            StreamOp::Data => {
                let s = self.conns[&conn];
                for piece in data.chunks(7) {
                    let event = StreamEvent::Data(piece);
                    self.servers[s].handle(self.now, Input::Stream { conn: incoming, event });
                }
            }
            StreamOp::Shutdown | StreamOp::Abort => self.cut(conn),
            StreamOp::Credit(_) => panic!("nobody is slow"),
        }
    }
    fn cut(&mut self, conn: ConnId) {
        if let Some(s) = self.conns.remove(&conn) {
            let event = StreamEvent::Closed(CloseReason::Reset);
            self.client.handle(self.now, Input::Stream { conn, event });
            let conn = ConnId::accepted(conn.n);
            self.servers[s].handle(self.now, Input::Stream { conn, event });
        }
    }
    fn cut_all(&mut self) {
        for conn in self.conns.keys().copied().collect::<Vec<_>>() {
            self.cut(conn);
        }
        self.settle();
    }
    /// Lets time go by.
    fn until(&mut self, seconds: f64) {
        let end = at(seconds);
        self.settle();
        while let Some(next) = self.client.poll_timeout().filter(|&t| t <= end) {
            self.now = next.max(self.now);
            self.client.handle(self.now, Input::Timeout);
            self.settle();
        }
        self.now = end;
    }
    fn answers(&self) -> Vec<(u64, u16)> {
        let answer = |(_, e): &(u64, client::Event)| match e {
            client::Event::Response(r) => Some((r.token, r.server)),
            _ => None,
        };
        self.events.iter().filter_map(answer).collect()
    }
    /// When servers came to be how they are.
    fn turns(&self) -> Vec<(u64, u16, Health)> {
        let turn = |(when, e): &(u64, client::Event)| match e {
            client::Event::Server { server, health, .. } => Some((*when, *server, *health)),
            _ => None,
        };
        let mut turns: Vec<_> = self.events.iter().filter_map(turn).collect();
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
    assert_eq!((w.opened.len(), w.servers[0].connections()), (1, 1));
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
        w.shows = shows.to_vec();
        w.ask(1, Code::ACCESS_REQUEST, GROUP);
        (w.answers(), w.asked, w.client.counters().connections_refused)
    };
    assert_eq!(named([Some(AAA), Some(AAA)]), (vec![(1, 0)], vec![0], 0));
    // The first server's certificate is of the right authority and bears another name, or there is none.
    assert_eq!(named([Some(STATION), Some(AAA)]), (vec![(1, 1)], vec![1], 1));
    assert_eq!(named([None, Some(AAA)]), (vec![(1, 1)], vec![1], 1));
    let (answers, asked, refused) = named([None, Some(STATION)]);
    assert_eq!((answers.len(), asked.len(), refused), (0, 0, 2), "nobody is told the request");
}

#[test]
fn a_connection_whose_identifiers_all_wait_gets_a_sister() {
    let mut w = World::new(1, |c| c.max_connections = 2);
    w.mute[0] = true;
    (0..300).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    assert_eq!((w.opened.len(), w.asked.len()), (2, 300));
    (300..510).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    let attributes = user();
    let command =
        client::Command::Request { token: 600, target: GROUP, code: Code::ACCESS_REQUEST, attributes };
    assert!(w.client.command(w.now, command).is_err(), "all identifiers wait");
}

#[test]
fn nothing_is_sent_twice_by_one_connection() {
    let mut w = World::new(1, |_| {});
    w.mute[0] = true;
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(29.0);
    assert_eq!((w.asked.len(), w.client.counters().timeouts), (1, 0));
    w.until(31.0);
    assert_eq!((w.asked.len(), w.client.counters().timeouts), (1, 1), "as long as three times ten seconds");
}

#[test]
fn what_waited_on_a_broken_connection_is_asked_by_the_next() {
    let mut w = World::new(1, |_| {});
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.mute[0] = true;
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    w.mute[0] = false;
    w.cut_all();
    assert_eq!(w.answers(), [(1, 0), (2, 0)]);
    assert_eq!(w.opened.len(), 2);
    assert_eq!((w.servers[0].connections(), w.servers[0].entries()), (1, 1), "the old one's went with it");
}

#[test]
fn a_server_that_is_not_there_is_tried_ever_more_rarely() {
    let mut w = World::new(1, |c| c.retransmission = Retransmission::default());
    w.down[0] = true;
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(14.0);
    assert_eq!(w.opened.len(), 4, "at 0, 1, 3 and 7 seconds");
    w.down[0] = false;
    w.until(16.0);
    assert_eq!(w.answers(), [(1, 0)]);
}

#[test]
fn requests_go_to_the_next_server_when_a_connection_breaks() {
    let mut w = World::new(2, |_| {});
    w.mute[0] = true;
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.down[0] = true;
    w.cut_all();
    assert_eq!(w.answers(), [(1, 1)]);
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    w.ask(3, Code::ACCESS_REQUEST, Target::From { group: 0, server: 0 });
    assert_eq!(w.answers()[1..], [(2, 1), (3, 1)], "new ones do not wait for what is not there");
    (w.down[0], w.mute[0]) = (false, false);
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
    w.mute[0] = true;
    w.ask(2, Code::ACCESS_REQUEST, Target::Server(0));
    w.ask(3, Code::ACCESS_REQUEST, GROUP);
    w.until(3.9);
    assert_eq!((w.client.counters().probes, w.answers().len()), (0, 1));
    w.until(4.1);
    assert_eq!(w.client.counters().probes, 1, "after a window without a word");
    assert_eq!(w.answers()[1..], [(3, 1)], "what was under way moved on");
    w.ask(4, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[2..], [(4, 1)], "what is new does not wait");
    assert!(w.client.usable(0));
    w.until(17.0);
    assert_eq!(w.turns(), [(4, 0, Health::Suspect), (16, 0, Health::Dead)]);
    assert!(!w.client.usable(0));
    w.mute[0] = false;
    w.until(105.0);
    assert!(!w.client.usable(0), "two answers");
    w.until(107.0);
    assert_eq!(w.turns()[2..], [(106, 0, Health::Alive)]);
    assert!(w.client.usable(0));
}

#[test]
fn an_idle_connection_is_tried_each_interval() {
    let mut w = World::new(1, watched);
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    w.until(100.0);
    assert_eq!((w.client.counters().probes, w.servers[0].counters().status), (3, 3));
    assert!(w.turns().is_empty());
}

#[test]
fn octets_that_are_no_radius_end_the_connection() {
    for spoilt in [&[0; 25][..], &[1, 2, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]] {
        let mut w = World::new(1, |_| {});
        w.ask(1, Code::ACCESS_REQUEST, GROUP);
        let conn = ConnId::accepted(0);
        w.servers[0].handle(w.now, Input::Stream { conn, event: StreamEvent::Data(spoilt) });
        assert_eq!((w.servers[0].counters().connections_spoilt, w.servers[0].connections()), (1, 0));
        w.settle();
        w.ask(2, Code::ACCESS_REQUEST, GROUP);
        assert_eq!((w.answers().len(), w.opened.len()), (2, 2), "a new one is as good");
    }
    let mut w = World::new(1, |_| {});
    w.mute[0] = true;
    w.ask(1, Code::ACCESS_REQUEST, GROUP);
    let conn = ConnId::opened(0);
    w.client.handle(w.now, Input::Stream { conn, event: StreamEvent::Data(&[2, 0, 0xff, 0xff]) });
    assert_eq!(w.client.counters().connections_spoilt, 1);
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
    w.down[0] = true;
    w.cut_all();
    w.ask(2, Code::ACCESS_REQUEST, GROUP);
    assert_eq!((w.answers()[1..].to_vec(), w.turns()), (vec![(2, 1)], vec![(0, 0, Health::Dead)]));
    w.ask(3, Code::ACCESS_REQUEST, GROUP);
    assert_eq!(w.answers()[2..], [(3, 1)]);
    w.until(5.0);
    w.down[0] = false;
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
    config.retransmission = Retransmission::Fixed { interval: usher_core::Duration::from_secs(5), count: 50 };
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
    w.servers[0].reload(config.clone()).unwrap();
    for (token, code) in
        [(1, Code::ACCOUNTING_REQUEST), (2, Code::COA_REQUEST), (3, Code::DISCONNECT_REQUEST)]
    {
        w.ask(token, code, GROUP);
    }
    let told: Vec<(Code, Option<u32>)> = w
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            client::Event::Response(r) => Some((r.code, r.attributes.get_u32(kind::ERROR_CAUSE))),
            _ => None,
        })
        .collect();
    let cause = Some(error_cause::UNSUPPORTED_EXTENSION);
    let answers = [Code::ACCOUNTING_RESPONSE, Code::COA_NAK, Code::DISCONNECT_NAK];
    assert_eq!(told, answers.map(|code| (code, cause)));
    assert_eq!((w.servers[0].counters().wrong_code, w.asked.len()), (3, 0));
    assert_eq!((w.servers[0].entries(), w.servers[0].connections()), (0, 1));
    // What does not know the secret hears nothing.
    let mut forged = vec![43, 1, 0, 20];
    forged.resize(20, 9);
    w.servers[0]
        .handle(w.now, Input::Stream { conn: ConnId::accepted(0), event: StreamEvent::Data(&forged) });
    assert_eq!((w.servers[0].counters().bad_authenticator, w.servers[0].connections()), (1, 0));
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
    w.mute[0] = true;
    (0..255).for_each(|token| w.ask(token, Code::ACCESS_REQUEST, GROUP));
    let request = |code| client::Command::Request { token: 600, target: GROUP, code, attributes: user() };
    assert!(w.client.command(w.now, request(Code::ACCESS_REQUEST)).is_err(), "all of them wait");
    assert!(w.client.command(w.now, request(Code::STATUS_SERVER)).is_err(), "the last is the watchdog's");
    let asked = w.servers[0].counters().status;
    w.until(31.0);
    assert_eq!((w.client.counters().probes, w.servers[0].counters().status), (1, asked + 1));
}
