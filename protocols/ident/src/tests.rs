//! Servers and clients on a network in virtual time.

use crate::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use proptest::prelude::*;
use usher_core::bench::{At, Network, Tap};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, CommandError, ConnId, Duration, Input, Instant, ListenerId, Machine, StreamEvent, StreamOp,
    Transmit,
};

const SERVER: &str = "192.0.2.1";
const ASKER: &str = "198.51.100.7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn secs(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

fn user(name: &str) -> Answer {
    let opsys = Token::new("UNIX").unwrap();
    Answer::UserId { opsys, charset: None, user: UserId::new(name).unwrap() }
}

/// A server at port 113 of [`SERVER`] and a client at [`ASKER`]. Port 6193 there is of `ann`, any other of nobody.
fn world(config: ServerConfig) -> (Network, At<Server>, At<Client>) {
    let mut net = Network::new(ChannelConfig::default());
    let server = net.add(Server::new(config), &[ip(SERVER)]);
    let client = net.add(Client::new(ClientConfig::default()), &[ip(ASKER)]);
    net.listen(server, ListenerId::own(0), SocketAddr::new(ip(SERVER), PORT));
    net.on_event(server, |event| {
        let ServerEvent::Asked { token, connection, .. } = *event;
        let answer = match connection.local.port() {
            6193 => user("ann"),
            6194 => return None,
            _ => Answer::Error(ErrorType::NoUser),
        };
        Some((Duration::from_millis(3), ServerCommand::Answer { token, answer }))
    });
    (net, server, client)
}

fn question(server: u16, client: u16) -> Question {
    let ports = PortPair::new(server, client);
    Question { server: SocketAddr::new(ip(SERVER), PORT), local: None, ports }
}

fn ask(net: &mut Network, client: At<Client>, token: u64, ports: (u16, u16)) {
    net.command(client, ClientCommand::Ask { token, question: question(ports.0, ports.1) }).unwrap();
}

fn heard(net: &mut Network, client: At<Client>) -> Vec<(u64, Result<Answer, AskError>)> {
    let said = net.take(client).into_iter();
    said.map(|(_, ClientEvent::Answered { token, answer })| (token, answer)).collect()
}

#[test]
fn a_server_is_asked_for_the_ports_of_the_query_and_the_addresses_of_its_connection() {
    let (mut net, server, client) = world(ServerConfig::default());
    ask(&mut net, client, 7, (6193, 23));
    ask(&mut net, client, 8, (6195, 23));
    net.run(Duration::from_secs(1));
    let no_user = Answer::Error(ErrorType::NoUser);
    assert_eq!(heard(&mut net, client), [(7, Ok(user("ann"))), (8, Ok(no_user))]);
    let (_, ServerEvent::Asked { asker, connection, .. }) = net.events(server)[0];
    assert_eq!(asker.ip(), ip(ASKER));
    let (local, remote) = (SocketAddr::new(ip(SERVER), 6193), SocketAddr::new(ip(ASKER), 23));
    assert_eq!(connection, Connection { local, remote });
    assert_eq!((net[server].connections(), net[client].questions()), (0, 0), "the client closes");
    assert_eq!((net[server].counters().user_id, net[server].counters().no_user), (1, 1));
}

#[test]
fn a_question_without_an_answer_is_an_unknown_error_in_time() {
    let (mut net, server, client) = world(ServerConfig::default());
    ask(&mut net, client, 1, (6194, 23));
    net.run(Duration::from_millis(4_900));
    assert_eq!(heard(&mut net, client), []);
    net.run(Duration::from_secs(1));
    assert_eq!(heard(&mut net, client), [(1, Ok(Answer::Error(ErrorType::UnknownError)))]);
    assert_eq!((net[server].counters().unanswered, net[server].waiting()), (1, 0));
    let late = ServerCommand::Answer { token: 0, answer: user("late") };
    assert_eq!(net.command(server, late), Err(CommandError::UnknownToken));
}

#[test]
fn what_becomes_of_a_client_without_a_server() {
    let (mut net, server, client) = world(ServerConfig::default());
    net.refuse(server, true);
    ask(&mut net, client, 1, (6193, 23));
    net.run(Duration::from_secs(1));
    assert_eq!(heard(&mut net, client), [(1, Err(AskError::Refused))]);
    net.refuse(server, false);
    net.sever(server, client, true);
    ask(&mut net, client, 2, (6193, 23));
    net.run(Duration::from_millis(29_900));
    assert_eq!(heard(&mut net, client), []);
    net.run(Duration::from_secs(1));
    assert_eq!(heard(&mut net, client), [(2, Err(AskError::Silence))]);
    net.sever(server, client, false);
    ask(&mut net, client, 3, (6194, 23));
    net.run(Duration::from_secs(1));
    net.cut(server);
    net.run(Duration::from_secs(1));
    assert_eq!(heard(&mut net, client), [(3, Err(AskError::Closed))]);
    let counters = *net[client].counters();
    assert_eq!((counters.refused, counters.silence, counters.closed), (1, 1, 1));
}

proptest! {
    #[test]
    fn whatever_is_sent_is_answered_by_replies_and_what_is_kept_is_bounded(
        lines in proptest::collection::vec("[0-9]{1,6} ?, ?[0-9]{1,6}|\\PC{0,40}", 0..30), octets in proptest::collection::vec(any::<u8>(), 0..1200),
    ) {
        prop_assert!(crate::fuzz::server(lines.join("\r\n").as_bytes()));
        prop_assert!(crate::fuzz::server(&octets));
    }
}

#[test]
fn a_client_has_bounds() {
    let mut client = Tap::new(Client::new(ClientConfig { questions: 1, ..ClientConfig::default() }));
    let ask = |ports| ClientCommand::Ask { token: 1, question: Question { ports, ..question(1, 1) } };
    let no_port = PortPair::of_integers(70_000, 1).unwrap();
    assert!(matches!(client.command(secs(0), ask(no_port)), Err(CommandError::Invalid(_))));
    client.command(secs(0), ask(PortPair::new(1, 1))).unwrap();
    assert!(matches!(client.command(secs(0), ask(PortPair::new(1, 1))), Err(CommandError::Full(_))));
}

#[test]
fn a_client_believes_only_a_reply_to_its_question() {
    let replies = [
        ("1,2:ERROR:NO-USER\r\n", Ok(Answer::Error(ErrorType::NoUser))),
        ("1 , 2 : ERROR : HIDDEN-USER\n", Ok(Answer::Error(ErrorType::HiddenUser))),
        ("1,3:USERID:UNIX:ann\r\n", Err(AskError::OtherPorts(PortPair::new(1, 3)))),
        ("who?\r\n", Err(AskError::Reply(ReplyError::NoPair))),
        (&" ".repeat(MAX_LINE), Err(AskError::LineTooLong(LineTooLong))),
    ];
    for (n, (text, expected)) in (0..).zip(replies) {
        let mut client = Tap::new(Client::new(ClientConfig::default()));
        client.command(secs(0), ClientCommand::Ask { token: n, question: question(1, 2) }).unwrap();
        let mut buf = Vec::new();
        let Some(Transmit::Stream { conn, .. }) = client.poll_transmit(&mut buf) else { panic!() };
        let remote = question(1, 2).server;
        let connected = StreamEvent::Connected { remote, local: None, certificate: None };
        client.handle(secs(0), Input::Stream { conn, event: connected });
        assert!(client.poll_transmit(&mut buf).is_some());
        assert_eq!(buf, b"1,2\r\n");
        for data in text.as_bytes().chunks(7) {
            client.handle(secs(1), Input::Stream { conn, event: StreamEvent::Data(data) });
        }
        let over = Transmit::Stream { conn, op: StreamOp::Shutdown };
        assert_eq!(client.poll_transmit(&mut buf), Some(over), "{text}");
        let answered = ClientEvent::Answered { token: n, answer: expected };
        assert_eq!((client.poll_event(), client.poll_event()), (Some(answered), None), "{text}");
        assert_eq!(client.poll_timeout(), None);
    }
}

/// A server that is driven by hand.
struct Hand {
    server: Tap<Server>,
    now: Instant,
}

impl Hand {
    fn new(config: ServerConfig) -> Self {
        Self { server: Tap::new(Server::new(config)), now: Instant::ZERO }
    }
    fn accept(&mut self, n: u32, remote: &str, local: Option<&str>) -> ConnId {
        let (conn, listener) = (ConnId::accepted(n), ListenerId::own(0));
        let (remote, local) = (SocketAddr::new(ip(remote), 40_000), local.map(ip));
        let event = StreamEvent::Accepted { listener, remote, local, certificate: None };
        self.server.handle(self.now, Input::Stream { conn, event });
        conn
    }
    fn connect(&mut self, n: u32) -> ConnId {
        self.accept(n, ASKER, Some(SERVER))
    }
    fn say(&mut self, conn: ConnId, text: &str) {
        self.server.handle(self.now, Input::Stream { conn, event: StreamEvent::Data(text.as_bytes()) });
    }
    fn close(&mut self, conn: ConnId) {
        let event = StreamEvent::Closed(CloseReason::Closed);
        self.server.handle(self.now, Input::Stream { conn, event });
    }
    fn finish(&mut self, conn: ConnId) {
        self.server.handle(self.now, Input::Stream { conn, event: StreamEvent::Finished });
    }
    fn asked(&mut self) -> Vec<(u64, Connection)> {
        let next = |ServerEvent::Asked { token, connection, .. }| (token, connection);
        core::iter::from_fn(|| self.server.poll_event()).map(next).collect()
    }
    fn answer(&mut self, token: u64, name: &str) {
        self.server.command(self.now, ServerCommand::Answer { token, answer: user(name) }).unwrap();
    }
    /// What it sends and does, each as text.
    fn done(&mut self) -> Vec<String> {
        let mut buf = Vec::new();
        let mut all = Vec::new();
        while let Some(Transmit::Stream { conn, op }) = self.server.poll_transmit(&mut buf) {
            let text = match op {
                StreamOp::Data => String::from_utf8(buf.clone()).unwrap(),
                op => format!("{op:?}"),
            };
            all.push(format!("{}: {text}", conn.n));
        }
        all
    }
    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.server.handle(self.now, Input::Timeout);
    }
}

#[test]
fn replies_leave_in_the_order_of_their_queries() {
    let mut hand = Hand::new(ServerConfig::default());
    let conn = hand.connect(4);
    hand.say(conn, "1,2\r\n70000 , 0\r\n-3,4\n5,");
    let asked = hand.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(hand.done(), [] as [&str; 0], "what is wrong waits for what was asked before it");
    hand.say(conn, "6\n");
    let second = hand.asked();
    hand.answer(second[0].0, "bob");
    assert_eq!(hand.done(), [] as [&str; 0]);
    hand.answer(asked[0].0, "ann");
    let replies = "4: 1,2:USERID:UNIX:ann\r\n70000,0:ERROR:INVALID-PORT\r\n0,0:ERROR:INVALID-PORT\r\n5,6:USERID:UNIX:bob\r\n";
    assert_eq!(hand.done(), [replies]);
    let counters = hand.server.counters();
    assert_eq!((counters.queries, counters.not_a_pair, counters.out_of_range), (4, 1, 1));
    assert_eq!((counters.user_id, counters.invalid_port), (2, 2));
    let again = ServerCommand::Answer { token: asked[0].0, answer: user("ann") };
    assert_eq!(hand.server.command(hand.now, again), Err(CommandError::UnknownToken));
}

#[test]
fn an_idle_connection_is_closed_and_only_queries_keep_it_open() {
    let mut hand = Hand::new(ServerConfig::default());
    let conn = hand.connect(0);
    for _ in 0..11 {
        hand.wait(10);
        hand.say(conn, " ");
    }
    hand.say(conn, "1,2\n");
    let asked = hand.asked();
    hand.answer(asked[0].0, "ann");
    assert_eq!(hand.done().len(), 1);
    hand.wait(119);
    assert_eq!(hand.done(), [] as [&str; 0]);
    hand.wait(1);
    assert_eq!(hand.done(), ["0: Shutdown"]);
    assert_eq!((hand.server.connections(), hand.server.poll_timeout()), (0, None));
    assert_eq!(hand.server.counters().idle, 1);
    // What comes by a connection that is over is nobody's.
    hand.say(conn, "1,2\n");
    assert_eq!((hand.asked().len(), hand.done().len()), (0, 0));
}

#[test]
fn more_queries_than_may_wait_end_the_connection_once_those_are_answered() {
    let mut hand = Hand::new(ServerConfig { pipeline: 2, ..ServerConfig::default() });
    let conn = hand.connect(0);
    hand.say(conn, "1,1\n2,2\n3,3\n4,4\n");
    let asked = hand.asked();
    assert_eq!((asked.len(), hand.server.counters().pipeline_full), (2, 1));
    hand.say(conn, "5,5\n");
    assert_eq!(hand.asked().len(), 0, "it is not heard any more");
    hand.answer(asked[1].0, "bob");
    hand.answer(asked[0].0, "ann");
    assert_eq!(hand.done(), ["0: 1,1:USERID:UNIX:ann\r\n2,2:USERID:UNIX:bob\r\n", "0: Shutdown"]);
    assert_eq!((hand.server.connections(), hand.server.waiting()), (0, 0));
}

#[test]
fn whoever_asks_and_sends_no_more_is_answered_still() {
    let mut hand = Hand::new(ServerConfig::default());
    let conn = hand.connect(0);
    hand.say(conn, "1,1\n2,2\n3,");
    let asked = hand.asked();
    hand.finish(conn);
    assert_eq!(hand.done(), [] as [&str; 0], "it is owed two answers");
    hand.answer(asked[1].0, "bob");
    hand.answer(asked[0].0, "ann");
    assert_eq!(hand.done(), ["0: 1,1:USERID:UNIX:ann\r\n2,2:USERID:UNIX:bob\r\n", "0: Shutdown"]);
    assert_eq!((hand.server.connections(), hand.server.poll_timeout()), (0, None));
    // An answer that never comes does not keep it open either.
    let conn = hand.connect(1);
    hand.say(conn, "1,1\n");
    hand.finish(conn);
    hand.wait(119);
    assert_eq!(hand.done(), ["1: 1,1:ERROR:UNKNOWN-ERROR\r\n", "1: Shutdown"]);
    // And who is owed nothing is closed at once.
    let conn = hand.connect(2);
    hand.finish(conn);
    assert_eq!(hand.done(), ["2: Shutdown"]);
    // It has gone altogether, its answer on the way.
    let conn = hand.connect(3);
    hand.say(conn, "1,1\n");
    hand.finish(conn);
    hand.close(conn);
    assert_eq!((hand.done().len(), hand.server.waiting(), hand.server.connections()), (0, 0, 0));
}

#[test]
fn a_line_without_an_end_resets_the_connection() {
    let mut hand = Hand::new(ServerConfig::default());
    let conn = hand.connect(0);
    hand.say(conn, "1,1\n");
    hand.say(conn, &"9".repeat(MAX_LINE));
    assert_eq!(hand.done(), ["0: Abort"]);
    assert_eq!((hand.server.counters().line_too_long, hand.server.waiting()), (1, 0));
}

#[test]
fn a_network_has_so_many_connections() {
    let mut hand = Hand::new(ServerConfig { connections_per_network: 2, ..ServerConfig::default() });
    let addresses = [
        ("198.51.100.7", true),
        ("::ffff:198.51.100.7", true),
        ("198.51.100.7", false),
        ("198.51.100.8", true),
        ("2001:db8::1", true),
        ("2001:db8::ffff:2", true),
        ("2001:db8::3", false),
        ("2001:db8:0:1::3", true),
    ];
    for (n, (address, taken)) in (0..).zip(addresses) {
        hand.accept(n, address, Some(SERVER));
        let refused = vec![format!("{n}: Abort")];
        assert_eq!(hand.done(), if taken { Vec::new() } else { refused }, "{address}");
    }
    assert_eq!(hand.server.counters().refused_network, 2);
    hand.close(ConnId::accepted(0));
    hand.accept(20, "198.51.100.7", Some(SERVER));
    assert_eq!(hand.done(), [] as [&str; 0], "one has gone");
}

#[test]
fn where_there_is_no_room_the_longest_idle_goes_and_who_waits_for_an_answer_stays() {
    let mut hand = Hand::new(ServerConfig { connections: 2, ..ServerConfig::default() });
    let waits = hand.connect(0);
    hand.say(waits, "1,2\n");
    let asked = hand.asked();
    hand.connect(1);
    hand.connect(2);
    assert_eq!(hand.done(), ["1: Shutdown"]);
    hand.say(ConnId::accepted(2), "1,2\n");
    assert_eq!(hand.asked().len(), 1);
    hand.connect(3);
    assert_eq!(hand.done(), ["3: Abort"]);
    hand.answer(asked[0].0, "ann");
    assert_eq!(hand.done().len(), 1);
    let counters = hand.server.counters();
    assert_eq!((counters.displaced, counters.refused_full, counters.connections), (1, 1, 3));
    let more = ServerConfig { connections: 3, ..ServerConfig::default() };
    hand.server.command(hand.now, ServerCommand::Configure(more)).unwrap();
    hand.connect(4);
    assert_eq!(hand.done(), [] as [&str; 0]);
}

/// A number that the host gives again does not mean the connection that had it.
#[test]
fn an_answer_reaches_the_connection_that_asked_or_nobody() {
    let mut hand = Hand::new(ServerConfig::default());
    let first = hand.connect(0);
    hand.say(first, "1,2\n");
    let asked = hand.asked();
    hand.close(first);
    let second = hand.connect(0);
    hand.say(second, "1,2\n");
    let late = ServerCommand::Answer { token: asked[0].0, answer: user("ann") };
    assert_eq!(hand.server.command(hand.now, late), Err(CommandError::UnknownToken));
    assert_eq!((hand.done().len(), hand.server.waiting()), (0, 1));
}

#[test]
fn addresses_of_mapped_and_scoped_connections_are_those_of_the_hosts_table() {
    let mut hand = Hand::new(ServerConfig::default());
    let conn = hand.accept(0, "::ffff:198.51.100.7", Some("::ffff:192.0.2.1"));
    hand.say(conn, "6193,23\n");
    let (_, connection) = hand.asked()[0];
    assert_eq!(
        (connection.local.to_string(), connection.remote.to_string()),
        ("192.0.2.1:6193".into(), "198.51.100.7:23".into())
    );
    let (conn, listener) = (ConnId::accepted(1), ListenerId::own(0));
    let remote: SocketAddr = "[fe80::7%3]:40000".parse().unwrap();
    let event = StreamEvent::Accepted { listener, remote, local: Some(ip("fe80::1")), certificate: None };
    hand.server.handle(hand.now, Input::Stream { conn, event });
    hand.say(conn, "6193,23\n");
    assert_eq!(hand.asked()[0].1.remote.to_string(), "[fe80::7%3]:23");
    let conn = hand.accept(2, ASKER, None);
    hand.say(conn, "6193,23\n");
    assert_eq!(hand.done(), ["2: 6193,23:ERROR:UNKNOWN-ERROR\r\n"], "the host does not tell its address");
}
