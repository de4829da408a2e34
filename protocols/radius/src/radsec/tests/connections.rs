//! Client and server by RadSec, and failing servers, in virtual time.

use crate::attribute::{error_cause, kind};
use crate::client::{
    self, FailoverPolicy, RadiusClient, RequestTarget, RetransmissionPolicy, ServerConfig, ServerHealth,
    ServerLivenessConfig,
};
use crate::radsec::PeerCertificateCondition;
use crate::server::{self, ClientConfig, PortRole, RadiusServer};
use crate::testing::{at_seconds, deliver_datagram, sent_datagrams, user_attributes};
use crate::{AttributeList, PacketCode, SharedSecret};
use std::net::SocketAddr;
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TestMachine, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{
    CloseReason, ConnId, DatagramPath, Duration, ListenerId, Machine, MachineInput, Seed, StreamEvent,
    StreamOp, Transmit,
};

fn server_address(n: u16) -> SocketAddr {
    SocketAddr::new("10.0.0.2".parse().unwrap(), 2083 + n)
}

/// A connection from a peer without a certificate.
fn accepted_event(remote: SocketAddr) -> StreamEvent<'static> {
    StreamEvent::Accepted { listener: ListenerId::from_number(0), remote, local: None, certificate: None }
}

/// A client, its servers and the connections between them. Octets arrive in pieces of seven.
struct RadSecTestNetwork {
    net: MachineNetwork,
    near: NetworkHostHandle<RadiusClient>,
    servers: Vec<NetworkHostHandle<RadiusServer>>,
}

impl RadSecTestNetwork {
    fn new(servers: u16, change: impl FnOnce(&mut client::RadiusClientConfig)) -> Self {
        let mut config = client::RadiusClientConfig::for_server(ServerConfig::for_radsec(server_address(0)));
        config.servers = (0..servers).map(|n| ServerConfig::for_radsec(server_address(n))).collect();
        config.groups = vec![(0..servers).collect()];
        config.failover = Some(FailoverPolicy::default());
        config.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(10), count: 3 };
        change(&mut config);
        let mut net = MachineNetwork::new(ChannelConfig::default());
        net.set_segment_size(7);
        let client = RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).unwrap();
        let near = net.add_host(client, &["10.0.0.1".parse().unwrap()]);
        let server = |n| {
            let any = "0.0.0.0".parse().unwrap();
            let mut config =
                server::RadiusServerConfig::new(vec![ClientConfig::for_radsec(any, 0, Vec::new())]);
            config.streams = PortRole::All;
            let server = RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", n)).unwrap();
            let host = net.add_host(server, &[server_address(0).ip()]);
            net.add_listener(host, ListenerId::from_number(0), server_address(n as u16));
            net.on_event(host, |server::RadiusServerEvent::Request(r)| {
                let code = match r.code {
                    PacketCode::ACCESS_REQUEST => PacketCode::ACCESS_ACCEPT,
                    PacketCode::ACCOUNTING_REQUEST => PacketCode::ACCOUNTING_RESPONSE,
                    PacketCode::COA_REQUEST => PacketCode::COA_NAK,
                    other => panic!("{other}"),
                };
                let (token, attributes) = (r.token, AttributeList::new());
                Some((Duration::ZERO, server::RadiusServerCommand::Respond { token, code, attributes }))
            });
            host
        };
        let servers = (0..u64::from(servers)).map(server).collect();
        Self { net, near, servers }
    }
    fn client(&self) -> &RadiusClient {
        &self.net[self.near]
    }
    fn server(&self, n: usize) -> &RadiusServer {
        &self.net[self.servers[n]]
    }
    fn send_request(&mut self, token: u64, code: PacketCode, target: RequestTarget) {
        let attributes = user_attributes();
        let command = client::RadiusClientCommand::Request { token, target, code, attributes };
        self.net.send_command(self.near, command).unwrap();
        self.net.run_for(Duration::ZERO);
    }
    /// Makes the first server refuse connections, or accept them again.
    fn set_unreachable(&mut self, down: bool) {
        self.net.set_refusing_connections(self.servers[0], down);
    }
    /// Makes the first server silent, or ends that.
    fn set_mute(&mut self, mute: bool) {
        let first = self.servers[0].number;
        let heard = move |sent: &TransmitRecord| !mute || sent.from != first;
        self.net.intercept_transmits(move |_, sent| if heard(sent) { vec![Duration::ZERO] } else { vec![] });
    }
    fn cut_all(&mut self) {
        self.net.reset_connections(self.near);
        self.net.run_for(Duration::ZERO);
    }
    /// Runs until this time.
    fn run_until(&mut self, seconds: f64) {
        self.net.run_until(at_seconds(seconds));
    }
    /// Returns the number of connections opened.
    fn opened_count(&self) -> usize {
        let op = |sent: &&TransmitRecord| {
            matches!(sent.transmit, Transmit::Stream { op: StreamOp::Connect { .. }, .. })
        };
        self.net.sent_transmits().iter().filter(op).count()
    }
    /// Returns the number of requests that each server received.
    fn request_counts(&self) -> Vec<usize> {
        self.servers.iter().map(|server| self.net.recorded_events(*server).len()).collect()
    }
    fn client_events(&self) -> impl Iterator<Item = (u64, &client::RadiusClientEvent)> {
        self.net.recorded_events(self.near).iter().map(|(at, event)| (at.as_nanos() / 1_000_000_000, event))
    }
    fn received_replies(&self) -> Vec<(u64, u16)> {
        let answer = |(_, e): (u64, &client::RadiusClientEvent)| match e {
            client::RadiusClientEvent::Response(r) => Some((r.token, r.server)),
            _ => None,
        };
        self.client_events().filter_map(answer).collect()
    }
    /// Returns the changes of server health, with their times.
    fn health_changes(&self) -> Vec<(u64, u16, ServerHealth)> {
        let turn = |(when, e): (u64, &client::RadiusClientEvent)| match e {
            client::RadiusClientEvent::Server { server, health, .. } => Some((when, *server, *health)),
            _ => None,
        };
        let mut turns: Vec<_> = self.client_events().filter_map(turn).collect();
        turns.dedup_by_key(|(_, server, health)| (*server, *health));
        turns
    }
}

const GROUP: RequestTarget = RequestTarget::Group(0);

#[test]
fn all_roles_go_by_one_connection() {
    let mut w = RadSecTestNetwork::new(1, |_| {});
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.send_request(2, PacketCode::ACCOUNTING_REQUEST, GROUP);
    w.send_request(3, PacketCode::COA_REQUEST, GROUP);
    w.send_request(4, PacketCode::STATUS_SERVER, GROUP);
    assert_eq!(w.received_replies(), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!((w.opened_count(), w.server(0).connection_count()), (1, 1));
}

#[test]
fn a_server_with_another_name_is_skipped_for_the_next_one() {
    const AAA: &[u8] = include_bytes!("../../../../../vectors/certs/server1.der");
    const STATION: &[u8] = include_bytes!("../../../../../vectors/certs/client1.der");
    let named = |shows: [Option<&'static [u8]>; 2]| {
        let mut w = RadSecTestNetwork::new(2, |c| {
            for server in &mut c.servers {
                server.certificates = vec![PeerCertificateCondition::Name("aaa.usher.test".into())];
            }
        });
        (0..2).for_each(|n| w.net.set_certificate(w.servers[n], shows[n]));
        w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
        (w.received_replies(), w.request_counts(), w.client().counters().connections_refused)
    };
    assert_eq!(named([Some(AAA), Some(AAA)]), (vec![(1, 0)], vec![1, 0], 0));
    // The first server's certificate has the right authority and another name, or is missing.
    assert_eq!(named([Some(STATION), Some(AAA)]), (vec![(1, 1)], vec![0, 1], 1));
    assert_eq!(named([None, Some(AAA)]), (vec![(1, 1)], vec![0, 1], 1));
    let (answers, asked, refused) = named([None, Some(STATION)]);
    assert_eq!((answers.len(), asked, refused), (0, vec![0, 0], 2), "nobody is told the request");
}

#[test]
fn a_connection_whose_identifiers_all_wait_gets_a_sister() {
    let mut w = RadSecTestNetwork::new(1, |c| c.max_connections = 2);
    w.set_mute(true);
    (0..300).for_each(|token| w.send_request(token, PacketCode::ACCESS_REQUEST, GROUP));
    assert_eq!((w.opened_count(), w.request_counts()[0]), (2, 300));
    (300..510).for_each(|token| w.send_request(token, PacketCode::ACCESS_REQUEST, GROUP));
    let attributes = user_attributes();
    let command = client::RadiusClientCommand::Request {
        token: 600,
        target: GROUP,
        code: PacketCode::ACCESS_REQUEST,
        attributes,
    };
    assert!(w.net.send_command(w.near, command).is_err(), "all identifiers wait");
}

#[test]
fn nothing_is_sent_twice_by_one_connection() {
    let mut w = RadSecTestNetwork::new(1, |_| {});
    w.set_mute(true);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.run_until(29.0);
    assert_eq!((w.request_counts()[0], w.client().counters().timeouts), (1, 0));
    w.run_until(31.0);
    assert_eq!(
        (w.request_counts()[0], w.client().counters().timeouts),
        (1, 1),
        "as long as three times ten seconds"
    );
}

#[test]
fn what_waited_on_a_broken_connection_is_asked_by_the_next() {
    let mut w = RadSecTestNetwork::new(1, |_| {});
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.set_mute(true);
    w.send_request(2, PacketCode::ACCESS_REQUEST, GROUP);
    w.set_mute(false);
    w.cut_all();
    assert_eq!(w.received_replies(), [(1, 0), (2, 0)]);
    assert_eq!(w.opened_count(), 2);
    assert_eq!(
        (w.server(0).connection_count(), w.server(0).entry_count()),
        (1, 1),
        "the old one's went with it"
    );
}

#[test]
fn a_server_that_is_not_there_is_tried_ever_more_rarely() {
    let mut w = RadSecTestNetwork::new(1, |c| c.retransmission = RetransmissionPolicy::default());
    w.set_unreachable(true);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.run_until(14.0);
    assert_eq!(w.opened_count(), 4, "at 0, 1, 3 and 7 seconds");
    w.set_unreachable(false);
    w.run_until(16.0);
    assert_eq!(w.received_replies(), [(1, 0)]);
}

#[test]
fn requests_go_to_the_next_server_when_a_connection_breaks() {
    let mut w = RadSecTestNetwork::new(2, |_| {});
    w.set_mute(true);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.set_unreachable(true);
    w.cut_all();
    assert_eq!(w.received_replies(), [(1, 1)]);
    w.send_request(2, PacketCode::ACCESS_REQUEST, GROUP);
    w.send_request(3, PacketCode::ACCESS_REQUEST, RequestTarget::From { group: 0, server: 0 });
    assert_eq!(w.received_replies()[1..], [(2, 1), (3, 1)], "new ones do not wait for what is not there");
    w.set_unreachable(false);
    w.set_mute(false);
    w.run_until(400.0);
    w.send_request(4, PacketCode::ACCESS_REQUEST, GROUP);
    assert_eq!(w.received_replies()[3], (4, 0), "back to the first");
}

fn enable_liveness(c: &mut client::RadiusClientConfig) {
    for s in &mut c.servers {
        s.liveness = Some(ServerLivenessConfig::default());
    }
}

#[test]
fn status_finds_a_mute_server_and_three_replies_revive_it() {
    let mut w = RadSecTestNetwork::new(2, enable_liveness);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.set_mute(true);
    w.send_request(2, PacketCode::ACCESS_REQUEST, RequestTarget::Server(0));
    w.send_request(3, PacketCode::ACCESS_REQUEST, GROUP);
    w.run_until(3.9);
    assert_eq!((w.client().counters().probes, w.received_replies().len()), (0, 1));
    w.run_until(4.1);
    assert_eq!(w.client().counters().probes, 1, "after a window without a word");
    assert_eq!(w.received_replies()[1..], [(3, 1)], "what was under way moved on");
    w.send_request(4, PacketCode::ACCESS_REQUEST, GROUP);
    assert_eq!(w.received_replies()[2..], [(4, 1)], "what is new does not wait");
    assert!(w.client().is_server_usable(0));
    w.run_until(17.0);
    assert_eq!(w.health_changes(), [(4, 0, ServerHealth::Suspect), (16, 0, ServerHealth::Dead)]);
    assert!(!w.client().is_server_usable(0));
    w.set_mute(false);
    w.run_until(105.0);
    assert!(!w.client().is_server_usable(0), "two answers");
    w.run_until(107.0);
    assert_eq!(w.health_changes()[2..], [(106, 0, ServerHealth::Alive)]);
    assert!(w.client().is_server_usable(0));
}

#[test]
fn an_idle_connection_is_tried_each_interval() {
    let mut w = RadSecTestNetwork::new(1, enable_liveness);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.run_until(100.0);
    assert_eq!((w.client().counters().probes, w.server(0).counters().status), (3, 3));
    assert!(w.health_changes().is_empty());
}

#[test]
fn octets_that_are_no_radius_end_the_connection() {
    for spoilt in [&[0; 25][..], &[1, 2, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]] {
        let mut w = RadSecTestNetwork::new(1, |_| {});
        w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
        let conn = ConnId::nth_accepted_connection(0);
        w.net.inject_input(w.servers[0], MachineInput::Stream { conn, event: StreamEvent::Data(spoilt) });
        assert_eq!((w.server(0).counters().connections_malformed, w.server(0).connection_count()), (1, 0));
        w.net.run_for(Duration::ZERO);
        w.send_request(2, PacketCode::ACCESS_REQUEST, GROUP);
        assert_eq!((w.received_replies().len(), w.opened_count()), (2, 2), "a new one is as good");
    }
    let mut w = RadSecTestNetwork::new(1, |_| {});
    w.set_mute(true);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    let conn = ConnId::nth_opened_connection(0);
    w.net.inject_input(w.near, MachineInput::Stream { conn, event: StreamEvent::Data(&[2, 0, 0xff, 0xff]) });
    assert_eq!(w.client().counters().connections_malformed, 1);
}

#[test]
fn the_same_identifier_is_another_request_by_another_connection() {
    let any = "0.0.0.0".parse().unwrap();
    let config = server::RadiusServerConfig::new(vec![ClientConfig::for_radsec(any, 0, Vec::new())]);
    let mut s = RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap();
    let mut packet =
        vec![1, 7, 0, 26, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 6, b'u', b's', b'e', b'r'];
    fn feed_stream(s: &mut RadiusServer, n: u32, event: StreamEvent<'_>) {
        s.handle_input(
            at_seconds(0.0),
            MachineInput::Stream { conn: ConnId::nth_accepted_connection(n), event },
        );
    }
    for n in 0..2 {
        // Both come from one address and port, as with two local listeners.
        let remote = "10.0.0.1:4000".parse().unwrap();
        feed_stream(&mut s, n, accepted_event(remote));
        feed_stream(&mut s, n, StreamEvent::Data(&packet));
        feed_stream(&mut s, n, StreamEvent::Data(&packet));
    }
    assert_eq!((s.counters().requests, s.counters().duplicates_dropped), (2, 2));
    packet[4] = 0;
    feed_stream(&mut s, 0, StreamEvent::Data(&packet));
    assert_eq!((s.counters().requests, s.counters().superseded), (3, 1), "a new one of the same identifier");
    feed_stream(&mut s, 0, StreamEvent::Closed(CloseReason::Closed));
    assert_eq!(s.entry_count(), 1);
}

/// A failed connection shows at once, and so does a successful one.
#[test]
fn a_server_dies_with_its_connection_and_revives_with_the_next() {
    let mut w = RadSecTestNetwork::new(2, enable_liveness);
    w.send_request(1, PacketCode::ACCESS_REQUEST, GROUP);
    w.set_unreachable(true);
    w.cut_all();
    w.send_request(2, PacketCode::ACCESS_REQUEST, GROUP);
    assert_eq!(
        (w.received_replies()[1..].to_vec(), w.health_changes()),
        (vec![(2, 1)], vec![(0, 0, ServerHealth::Dead)])
    );
    w.send_request(3, PacketCode::ACCESS_REQUEST, GROUP);
    assert_eq!(w.received_replies()[2..], [(3, 1)]);
    w.run_until(5.0);
    w.set_unreachable(false);
    w.run_until(8.0);
    assert_eq!(w.health_changes()[1..], [(7, 0, ServerHealth::Alive)], "tried after 1, 2 and 4 s");
    w.send_request(4, PacketCode::ACCESS_REQUEST, GROUP);
    assert_eq!(w.received_replies()[3..], [(4, 0)]);
}

/// The same by UDP: three probes within the zombie period.
#[test]
fn a_silent_datagram_server_dies_and_its_requests_move_on() {
    let mut config =
        client::RadiusClientConfig::for_server(ServerConfig::new(server_address(0), SharedSecret::new(b"s")));
    config.servers.push(ServerConfig::new(server_address(1), SharedSecret::new(b"s")));
    config.groups = vec![vec![0, 1]];
    config.failover = Some(FailoverPolicy { after: 100, ..FailoverPolicy::default() });
    config.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(5), count: 50 };
    enable_liveness(&mut config);
    let mut c =
        TestMachine::new(RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).unwrap());
    let request = |token| client::RadiusClientCommand::Request {
        token,
        target: GROUP,
        code: PacketCode::ACCESS_REQUEST,
        attributes: user_attributes(),
    };
    c.handle_command(at_seconds(0.0), request(1)).unwrap();
    let mut log = Vec::new();
    while log.last().is_none_or(|(t, _, _)| *t < 50) {
        let now = c.poll_timeout().unwrap_or_default();
        c.handle_input(now, MachineInput::Timeout);
        for (path, bytes) in sent_datagrams(&mut c) {
            log.push((now.as_nanos() / 1_000_000_000, path.remote.port() - 2083, bytes));
        }
    }
    let status: Vec<u64> = log.iter().filter(|(_, s, b)| *s == 0 && b[0] == 12).map(|(t, ..)| *t).collect();
    assert_eq!(status, [4, 8, 12, 46], "three chances, then dead at 16; asked again from 46 on");
    let moved = log.iter().find(|(_, s, b)| *s == 1 && b[0] == 1).unwrap();
    assert_eq!(moved.0, 4);
    let mut turns = Vec::new();
    while let Some(event) = c.poll_event() {
        if let client::RadiusClientEvent::Server { server: 0, health, .. } = event {
            turns.push(health);
        }
    }
    assert_eq!(turns[..2], [ServerHealth::Suspect, ServerHealth::Dead]);
    // Its Status-Server replies also arrive by UDP: the server knows the secret.
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, SharedSecret::new(b"s"));
    let config = server::RadiusServerConfig::new(vec![network]);
    let mut s =
        TestMachine::new(RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap());
    let mut alive = None;
    while alive.is_none() {
        let now = c.poll_timeout().unwrap();
        assert!(now < at_seconds(200.0));
        c.handle_input(now, MachineInput::Timeout);
        for (path, bytes) in sent_datagrams(&mut c) {
            if path.remote == server_address(0) {
                deliver_datagram(&mut s, now, "10.0.0.1:5000", &bytes);
                for (_, answer) in sent_datagrams(&mut s) {
                    let path = DatagramPath { local: path.local, ..path };
                    c.handle_input(now, MachineInput::Datagram { path, data: &answer });
                }
            }
        }
        while let Some(event) = c.poll_event() {
            if matches!(
                event,
                client::RadiusClientEvent::Server { server: 0, health: ServerHealth::Alive, .. }
            ) {
                alive = Some(now.as_nanos() / 1_000_000_000);
            }
        }
    }
    assert_eq!(alive, Some(136));
}

/// RFC 6614 §2.5: the client learns which kinds the single port does not support.
#[test]
fn what_is_not_served_by_radsec_is_refused_in_words() {
    let any = "0.0.0.0".parse().unwrap();
    let mut config = server::RadiusServerConfig::new(vec![ClientConfig::for_radsec(any, 0, Vec::new())]);
    config.streams = PortRole::Authentication;
    let mut w = RadSecTestNetwork::new(1, |_| {});
    w.net[w.servers[0]].reload_config(config.clone()).unwrap();
    for (token, code) in [
        (1, PacketCode::ACCOUNTING_REQUEST),
        (2, PacketCode::COA_REQUEST),
        (3, PacketCode::DISCONNECT_REQUEST),
    ] {
        w.send_request(token, code, GROUP);
    }
    let told: Vec<(PacketCode, Option<u32>)> = w
        .client_events()
        .filter_map(|(_, e)| match e {
            client::RadiusClientEvent::Response(r) => Some((r.code, r.attributes.get_u32(kind::ERROR_CAUSE))),
            _ => None,
        })
        .collect();
    let cause = Some(error_cause::UNSUPPORTED_EXTENSION);
    let answers = [PacketCode::ACCOUNTING_RESPONSE, PacketCode::COA_NAK, PacketCode::DISCONNECT_NAK];
    assert_eq!(told, answers.map(|code| (code, cause)));
    assert_eq!((w.server(0).counters().wrong_code, w.request_counts()[0]), (3, 0));
    assert_eq!((w.server(0).entry_count(), w.server(0).connection_count()), (0, 1));
    // A packet without the secret gets no reply.
    let mut forged = vec![43, 1, 0, 20];
    forged.resize(20, 9);
    w.net.inject_input(
        w.servers[0],
        MachineInput::Stream { conn: ConnId::nth_accepted_connection(0), event: StreamEvent::Data(&forged) },
    );
    assert_eq!((w.server(0).counters().bad_authenticator, w.server(0).connection_count()), (1, 0));
    // By UDP another port shows that.
    let network = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, SharedSecret::new(b"s"));
    let config = server::RadiusServerConfig::new(vec![network]);
    let mut s =
        TestMachine::new(RadiusServer::new(config, Seed::new(1).derive_secure_rng("server", 0)).unwrap());
    deliver_datagram(&mut s, at_seconds(0.0), "10.0.0.1:5000", &forged);
    assert!(sent_datagrams(&mut s).is_empty());
}

/// RFC 6613 §2.6 and §2.6.5: an identifier is left for the watchdog, however many requests wait.
#[test]
fn a_connection_whose_identifiers_all_wait_is_still_watched() {
    let mut w = RadSecTestNetwork::new(1, |c| {
        c.max_connections = 1;
        enable_liveness(c);
    });
    w.set_mute(true);
    (0..255).for_each(|token| w.send_request(token, PacketCode::ACCESS_REQUEST, GROUP));
    let request = |code| client::RadiusClientCommand::Request {
        token: 600,
        target: GROUP,
        code,
        attributes: user_attributes(),
    };
    assert!(w.net.send_command(w.near, request(PacketCode::ACCESS_REQUEST)).is_err(), "all of them wait");
    assert!(
        w.net.send_command(w.near, request(PacketCode::STATUS_SERVER)).is_err(),
        "the last is the watchdog's"
    );
    let asked = w.server(0).counters().status;
    w.run_until(31.0);
    assert_eq!((w.client().counters().probes, w.server(0).counters().status), (1, asked + 1));
}
