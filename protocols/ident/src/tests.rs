//! Servers and clients on a network in virtual time.

use crate::*;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use proptest::prelude::*;
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TestMachine};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, CommandError, ConnId, Duration, Instant, ListenerId, Machine, MachineInput, StreamEvent,
    StreamOp, Transmit,
};

const SERVER: &str = "192.0.2.1";
const ASKER: &str = "198.51.100.7";

fn parse_ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at_seconds(n: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(n)
}

fn user_response(name: &str) -> ResponseBody {
    let opsys = IdentToken::new("UNIX").unwrap();
    ResponseBody::UserId { opsys, charset: None, user: UserId::new(name).unwrap() }
}

/// A server at port 113 of [`SERVER`] and a client at [`ASKER`]. `ann` owns port 6193; other ports have no owner.
fn test_network(
    config: ServerConfig,
) -> (MachineNetwork, NetworkHostHandle<IdentServer>, NetworkHostHandle<IdentClient>) {
    let mut net = MachineNetwork::new(ChannelConfig::default());
    let server = net.add_host(IdentServer::new(config), &[parse_ip(SERVER)]);
    let client = net.add_host(IdentClient::new(ClientConfig::default()), &[parse_ip(ASKER)]);
    net.add_listener(server, ListenerId::from_number(0), SocketAddr::new(parse_ip(SERVER), PORT));
    net.on_event(server, |event| {
        let IdentServerEvent::QueryReceived { token, connection, .. } = *event;
        let answer = match connection.local.port() {
            6193 => user_response("ann"),
            6194 => return None,
            _ => ResponseBody::Error(ErrorType::NoUser),
        };
        Some((Duration::from_millis(3), IdentServerCommand::Answer { token, answer }))
    });
    (net, server, client)
}

fn test_query(server: u16, client: u16) -> IdentQuery {
    let ports = IdentPortPair::new(server, client);
    IdentQuery { server: SocketAddr::new(parse_ip(SERVER), PORT), local: None, ports }
}

fn send_query(
    net: &mut MachineNetwork,
    client: NetworkHostHandle<IdentClient>,
    token: u64,
    ports: (u16, u16),
) {
    net.send_command(client, ClientCommand::Query { token, question: test_query(ports.0, ports.1) }).unwrap();
}

fn received_responses(
    net: &mut MachineNetwork,
    client: NetworkHostHandle<IdentClient>,
) -> Vec<(u64, Result<ResponseBody, QueryFailure>)> {
    let said = net.take_events(client).into_iter();
    said.map(|(_, ClientEvent::Answered { token, answer })| (token, answer)).collect()
}

#[test]
fn a_lookup_has_the_query_ports_and_the_connection_addresses() {
    let (mut net, server, client) = test_network(ServerConfig::default());
    send_query(&mut net, client, 7, (6193, 23));
    send_query(&mut net, client, 8, (6195, 23));
    net.run_for(Duration::from_secs(1));
    let no_user = ResponseBody::Error(ErrorType::NoUser);
    assert_eq!(received_responses(&mut net, client), [(7, Ok(user_response("ann"))), (8, Ok(no_user))]);
    let (_, IdentServerEvent::QueryReceived { asker, connection, .. }) = net.recorded_events(server)[0];
    assert_eq!(asker.ip(), parse_ip(ASKER));
    let (local, remote) = (SocketAddr::new(parse_ip(SERVER), 6193), SocketAddr::new(parse_ip(ASKER), 23));
    assert_eq!(connection, QueriedConnection { local, remote });
    assert_eq!((net[server].connection_count(), net[client].query_count()), (0, 0), "the client closes");
    assert_eq!((net[server].counters().user_id, net[server].counters().no_user), (1, 1));
}

#[test]
fn a_question_without_an_answer_is_an_unknown_error_in_time() {
    let (mut net, server, client) = test_network(ServerConfig::default());
    send_query(&mut net, client, 1, (6194, 23));
    net.run_for(Duration::from_millis(4_900));
    assert_eq!(received_responses(&mut net, client), []);
    net.run_for(Duration::from_secs(1));
    assert_eq!(received_responses(&mut net, client), [(1, Ok(ResponseBody::Error(ErrorType::UnknownError)))]);
    assert_eq!((net[server].counters().unanswered, net[server].pending_count()), (1, 0));
    let late = IdentServerCommand::Answer { token: 0, answer: user_response("late") };
    assert_eq!(net.send_command(server, late), Err(CommandError::UnknownToken));
}

#[test]
fn what_becomes_of_a_client_without_a_server() {
    let (mut net, server, client) = test_network(ServerConfig::default());
    net.set_refusing_connections(server, true);
    send_query(&mut net, client, 1, (6193, 23));
    net.run_for(Duration::from_secs(1));
    assert_eq!(received_responses(&mut net, client), [(1, Err(QueryFailure::Refused))]);
    net.set_refusing_connections(server, false);
    net.set_severed(server, client, true);
    send_query(&mut net, client, 2, (6193, 23));
    net.run_for(Duration::from_millis(29_900));
    assert_eq!(received_responses(&mut net, client), []);
    net.run_for(Duration::from_secs(1));
    assert_eq!(received_responses(&mut net, client), [(2, Err(QueryFailure::Silence))]);
    net.set_severed(server, client, false);
    send_query(&mut net, client, 3, (6194, 23));
    net.run_for(Duration::from_secs(1));
    net.reset_connections(server);
    net.run_for(Duration::from_secs(1));
    assert_eq!(received_responses(&mut net, client), [(3, Err(QueryFailure::Closed))]);
    let counters = *net[client].counters();
    assert_eq!((counters.refused, counters.silence, counters.closed), (1, 1, 1));
}

proptest! {
    #[test]
    fn any_input_gets_responses_and_the_state_stays_bounded(
        lines in proptest::collection::vec("[0-9]{1,6} ?, ?[0-9]{1,6}|\\PC{0,40}", 0..30), octets in proptest::collection::vec(any::<u8>(), 0..1200),
    ) {
        prop_assert!(crate::fuzz::check_server(lines.join("\r\n").as_bytes()));
        prop_assert!(crate::fuzz::check_server(&octets));
    }
}

#[test]
fn a_client_has_bounds() {
    let mut client =
        TestMachine::new(IdentClient::new(ClientConfig { questions: 1, ..ClientConfig::default() }));
    let ask = |ports| ClientCommand::Query { token: 1, question: IdentQuery { ports, ..test_query(1, 1) } };
    let no_port = IdentPortPair::from_port_integers(70_000, 1).unwrap();
    assert!(matches!(client.handle_command(at_seconds(0), ask(no_port)), Err(CommandError::Invalid(_))));
    client.handle_command(at_seconds(0), ask(IdentPortPair::new(1, 1))).unwrap();
    assert!(matches!(
        client.handle_command(at_seconds(0), ask(IdentPortPair::new(1, 1))),
        Err(CommandError::Full(_))
    ));
}

#[test]
fn a_client_believes_only_a_reply_to_its_question() {
    let replies = [
        ("1,2:ERROR:NO-USER\r\n", Ok(ResponseBody::Error(ErrorType::NoUser))),
        ("1 , 2 : ERROR : HIDDEN-USER\n", Ok(ResponseBody::Error(ErrorType::HiddenUser))),
        ("1,3:USERID:UNIX:ann\r\n", Err(QueryFailure::PortMismatch(IdentPortPair::new(1, 3)))),
        ("who?\r\n", Err(QueryFailure::Reply(ResponseParseError::NoPair))),
        (&" ".repeat(MAX_LINE), Err(QueryFailure::LineTooLong(LineTooLong))),
    ];
    for (n, (text, expected)) in (0..).zip(replies) {
        let mut client = TestMachine::new(IdentClient::new(ClientConfig::default()));
        client
            .handle_command(at_seconds(0), ClientCommand::Query { token: n, question: test_query(1, 2) })
            .unwrap();
        let mut buf = Vec::new();
        let Some(Transmit::Stream { conn, .. }) = client.poll_transmit(&mut buf) else { panic!() };
        let remote = test_query(1, 2).server;
        let connected = StreamEvent::Connected { remote, local: None, certificate: None };
        client.handle_input(at_seconds(0), MachineInput::Stream { conn, event: connected });
        assert!(client.poll_transmit(&mut buf).is_some());
        assert_eq!(buf, b"1,2\r\n");
        for data in text.as_bytes().chunks(7) {
            client.handle_input(at_seconds(1), MachineInput::Stream { conn, event: StreamEvent::Data(data) });
        }
        let over = Transmit::Stream { conn, op: StreamOp::Shutdown };
        assert_eq!(client.poll_transmit(&mut buf), Some(over), "{text}");
        let answered = ClientEvent::Answered { token: n, answer: expected };
        assert_eq!((client.poll_event(), client.poll_event()), (Some(answered), None), "{text}");
        assert_eq!(client.poll_timeout(), None);
    }
}

/// A server that is driven by hand.
struct ManualServer {
    server: TestMachine<IdentServer>,
    now: Instant,
}

impl ManualServer {
    fn new(config: ServerConfig) -> Self {
        Self { server: TestMachine::new(IdentServer::new(config)), now: Instant::ZERO }
    }
    fn accept_from(&mut self, n: u32, remote: &str, local: Option<&str>) -> ConnId {
        let (conn, listener) = (ConnId::nth_accepted_connection(n), ListenerId::from_number(0));
        let (remote, local) = (SocketAddr::new(parse_ip(remote), 40_000), local.map(parse_ip));
        let event = StreamEvent::Accepted { listener, remote, local, certificate: None };
        self.server.handle_input(self.now, MachineInput::Stream { conn, event });
        conn
    }
    fn accept_client(&mut self, n: u32) -> ConnId {
        self.accept_from(n, ASKER, Some(SERVER))
    }
    fn send_text(&mut self, conn: ConnId, text: &str) {
        self.server
            .handle_input(self.now, MachineInput::Stream { conn, event: StreamEvent::Data(text.as_bytes()) });
    }
    fn close_connection(&mut self, conn: ConnId) {
        let event = StreamEvent::Closed(CloseReason::Closed);
        self.server.handle_input(self.now, MachineInput::Stream { conn, event });
    }
    fn finish_sending(&mut self, conn: ConnId) {
        self.server.handle_input(self.now, MachineInput::Stream { conn, event: StreamEvent::Finished });
    }
    fn queried_connections(&mut self) -> Vec<(u64, QueriedConnection)> {
        let next = |IdentServerEvent::QueryReceived { token, connection, .. }| (token, connection);
        core::iter::from_fn(|| self.server.poll_event()).map(next).collect()
    }
    fn answer_user(&mut self, token: u64, name: &str) {
        self.server
            .handle_command(self.now, IdentServerCommand::Answer { token, answer: user_response(name) })
            .unwrap();
    }
    /// Returns its outputs as text.
    fn drain_outputs(&mut self) -> Vec<String> {
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
    fn advance_time(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.server.handle_input(self.now, MachineInput::Timeout);
    }
}

#[test]
fn replies_leave_in_the_order_of_their_queries() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let conn = hand.accept_client(4);
    hand.send_text(conn, "1,2\r\n70000 , 0\r\n-3,4\n5,");
    let asked = hand.queried_connections();
    assert_eq!(asked.len(), 1);
    assert_eq!(hand.drain_outputs(), [] as [&str; 0], "what is wrong waits for what was asked before it");
    hand.send_text(conn, "6\n");
    let second = hand.queried_connections();
    hand.answer_user(second[0].0, "bob");
    assert_eq!(hand.drain_outputs(), [] as [&str; 0]);
    hand.answer_user(asked[0].0, "ann");
    let replies = "4: 1,2:USERID:UNIX:ann\r\n70000,0:ERROR:INVALID-PORT\r\n0,0:ERROR:INVALID-PORT\r\n5,6:USERID:UNIX:bob\r\n";
    assert_eq!(hand.drain_outputs(), [replies]);
    let counters = hand.server.counters();
    assert_eq!((counters.queries, counters.not_a_pair, counters.out_of_range), (4, 1, 1));
    assert_eq!((counters.user_id, counters.invalid_port), (2, 2));
    let again = IdentServerCommand::Answer { token: asked[0].0, answer: user_response("ann") };
    assert_eq!(hand.server.handle_command(hand.now, again), Err(CommandError::UnknownToken));
}

#[test]
fn an_idle_connection_is_closed_and_only_queries_keep_it_open() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let conn = hand.accept_client(0);
    for _ in 0..11 {
        hand.advance_time(10);
        hand.send_text(conn, " ");
    }
    hand.send_text(conn, "1,2\n");
    let asked = hand.queried_connections();
    hand.answer_user(asked[0].0, "ann");
    assert_eq!(hand.drain_outputs().len(), 1);
    hand.advance_time(119);
    assert_eq!(hand.drain_outputs(), [] as [&str; 0]);
    hand.advance_time(1);
    assert_eq!(hand.drain_outputs(), ["0: Shutdown"]);
    assert_eq!((hand.server.connection_count(), hand.server.poll_timeout()), (0, None));
    assert_eq!(hand.server.counters().idle, 1);
    // Data of a closed connection is ignored.
    hand.send_text(conn, "1,2\n");
    assert_eq!((hand.queried_connections().len(), hand.drain_outputs().len()), (0, 0));
}

#[test]
fn excess_queries_close_the_connection_after_pending_responses() {
    let mut hand = ManualServer::new(ServerConfig { pipeline: 2, ..ServerConfig::default() });
    let conn = hand.accept_client(0);
    hand.send_text(conn, "1,1\n2,2\n3,3\n4,4\n");
    let asked = hand.queried_connections();
    assert_eq!((asked.len(), hand.server.counters().pipeline_full), (2, 1));
    hand.send_text(conn, "5,5\n");
    assert_eq!(hand.queried_connections().len(), 0, "it is not heard any more");
    hand.answer_user(asked[1].0, "bob");
    hand.answer_user(asked[0].0, "ann");
    assert_eq!(hand.drain_outputs(), ["0: 1,1:USERID:UNIX:ann\r\n2,2:USERID:UNIX:bob\r\n", "0: Shutdown"]);
    assert_eq!((hand.server.connection_count(), hand.server.pending_count()), (0, 0));
}

#[test]
fn whoever_asks_and_sends_no_more_is_answered_still() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let conn = hand.accept_client(0);
    hand.send_text(conn, "1,1\n2,2\n3,");
    let asked = hand.queried_connections();
    hand.finish_sending(conn);
    assert_eq!(hand.drain_outputs(), [] as [&str; 0], "it is owed two answers");
    hand.answer_user(asked[1].0, "bob");
    hand.answer_user(asked[0].0, "ann");
    assert_eq!(hand.drain_outputs(), ["0: 1,1:USERID:UNIX:ann\r\n2,2:USERID:UNIX:bob\r\n", "0: Shutdown"]);
    assert_eq!((hand.server.connection_count(), hand.server.poll_timeout()), (0, None));
    // An answer that never comes does not keep it open either.
    let conn = hand.accept_client(1);
    hand.send_text(conn, "1,1\n");
    hand.finish_sending(conn);
    hand.advance_time(119);
    assert_eq!(hand.drain_outputs(), ["1: 1,1:ERROR:UNKNOWN-ERROR\r\n", "1: Shutdown"]);
    // A connection without pending responses is closed at once.
    let conn = hand.accept_client(2);
    hand.finish_sending(conn);
    assert_eq!(hand.drain_outputs(), ["2: Shutdown"]);
    // It has gone altogether, its answer on the way.
    let conn = hand.accept_client(3);
    hand.send_text(conn, "1,1\n");
    hand.finish_sending(conn);
    hand.close_connection(conn);
    assert_eq!(
        (hand.drain_outputs().len(), hand.server.pending_count(), hand.server.connection_count()),
        (0, 0, 0)
    );
}

#[test]
fn a_line_without_an_end_resets_the_connection() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let conn = hand.accept_client(0);
    hand.send_text(conn, "1,1\n");
    hand.send_text(conn, &"9".repeat(MAX_LINE));
    assert_eq!(hand.drain_outputs(), ["0: Abort"]);
    assert_eq!((hand.server.counters().line_too_long, hand.server.pending_count()), (1, 0));
}

#[test]
fn a_network_has_so_many_connections() {
    let mut hand = ManualServer::new(ServerConfig { connections_per_network: 2, ..ServerConfig::default() });
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
        hand.accept_from(n, address, Some(SERVER));
        let refused = vec![format!("{n}: Abort")];
        assert_eq!(hand.drain_outputs(), if taken { Vec::new() } else { refused }, "{address}");
    }
    assert_eq!(hand.server.counters().refused_network, 2);
    hand.close_connection(ConnId::nth_accepted_connection(0));
    hand.accept_from(20, "198.51.100.7", Some(SERVER));
    assert_eq!(hand.drain_outputs(), [] as [&str; 0], "one has gone");
}

#[test]
fn a_full_table_evicts_the_longest_idle_but_no_pending_query() {
    let mut hand = ManualServer::new(ServerConfig { connections: 2, ..ServerConfig::default() });
    let waits = hand.accept_client(0);
    hand.send_text(waits, "1,2\n");
    let asked = hand.queried_connections();
    hand.accept_client(1);
    hand.accept_client(2);
    assert_eq!(hand.drain_outputs(), ["1: Shutdown"]);
    hand.send_text(ConnId::nth_accepted_connection(2), "1,2\n");
    assert_eq!(hand.queried_connections().len(), 1);
    hand.accept_client(3);
    assert_eq!(hand.drain_outputs(), ["3: Abort"]);
    hand.answer_user(asked[0].0, "ann");
    assert_eq!(hand.drain_outputs().len(), 1);
    let counters = hand.server.counters();
    assert_eq!((counters.displaced, counters.refused_full, counters.connections), (1, 1, 3));
    let more = ServerConfig { connections: 3, ..ServerConfig::default() };
    hand.server.handle_command(hand.now, IdentServerCommand::Configure(more)).unwrap();
    hand.accept_client(4);
    assert_eq!(hand.drain_outputs(), [] as [&str; 0]);
}

/// A number that the host gives again does not mean the connection that had it.
#[test]
fn an_answer_reaches_the_connection_that_asked_or_nobody() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let first = hand.accept_client(0);
    hand.send_text(first, "1,2\n");
    let asked = hand.queried_connections();
    hand.close_connection(first);
    let second = hand.accept_client(0);
    hand.send_text(second, "1,2\n");
    let late = IdentServerCommand::Answer { token: asked[0].0, answer: user_response("ann") };
    assert_eq!(hand.server.handle_command(hand.now, late), Err(CommandError::UnknownToken));
    assert_eq!((hand.drain_outputs().len(), hand.server.pending_count()), (0, 1));
}

#[test]
fn mapped_and_scoped_addresses_match_the_hosts_table() {
    let mut hand = ManualServer::new(ServerConfig::default());
    let conn = hand.accept_from(0, "::ffff:198.51.100.7", Some("::ffff:192.0.2.1"));
    hand.send_text(conn, "6193,23\n");
    let (_, connection) = hand.queried_connections()[0];
    assert_eq!(
        (connection.local.to_string(), connection.remote.to_string()),
        ("192.0.2.1:6193".into(), "198.51.100.7:23".into())
    );
    let (conn, listener) = (ConnId::nth_accepted_connection(1), ListenerId::from_number(0));
    let remote: SocketAddr = "[fe80::7%3]:40000".parse().unwrap();
    let event =
        StreamEvent::Accepted { listener, remote, local: Some(parse_ip("fe80::1")), certificate: None };
    hand.server.handle_input(hand.now, MachineInput::Stream { conn, event });
    hand.send_text(conn, "6193,23\n");
    assert_eq!(hand.queried_connections()[0].1.remote.to_string(), "[fe80::7%3]:23");
    let conn = hand.accept_from(2, ASKER, None);
    hand.send_text(conn, "6193,23\n");
    assert_eq!(
        hand.drain_outputs(),
        ["2: 6193,23:ERROR:UNKNOWN-ERROR\r\n"],
        "the host does not tell its address"
    );
}
