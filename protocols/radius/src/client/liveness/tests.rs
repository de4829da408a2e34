//! Silent servers by UDP, and clients that share the health of their servers.

use crate::client::{
    FailoverPolicy, RadiusClient, RadiusClientCommand, RadiusClientEvent, RequestTarget, ServerConfig,
    ServerHealth, ServerHealthCause, ServerLivenessConfig,
};
use crate::packet::PacketCode;
use crate::server::{self, ClientConfig, RadiusServer, RadiusServerConfig};
use crate::testing::{at_seconds, bare_client_with, test_remote_address, test_secret, user_attributes};
use alloc::vec::Vec;
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Seed, SocketId, Transmit};

/// One or more clients, and the servers of their group.
struct LivenessTestNetwork {
    net: MachineNetwork,
    clients: Vec<NetworkHostHandle<RadiusClient>>,
    servers: Vec<NetworkHostHandle<RadiusServer>>,
    /// Second, client and server of each reply, by token.
    answers: Vec<(u64, u64, u16)>,
    timed_out_requests: Vec<(u64, u64)>,
    turns: Vec<(u64, usize, u16, ServerHealth)>,
    causes: Vec<ServerHealthCause>,
}

const GROUP: RequestTarget = RequestTarget::Group(0);

impl LivenessTestNetwork {
    fn new(clients: usize, servers: u16, liveness: ServerLivenessConfig) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let client = |_| {
            let client = bare_client_with(|c| {
                c.servers =
                    (0..servers).map(|n| ServerConfig::new(test_remote_address(n), test_secret())).collect();
                c.servers.iter_mut().for_each(|s| s.liveness = Some(liveness));
                c.groups = vec![(0..servers).collect()];
                c.failover = Some(FailoverPolicy::default());
            });
            net.add_host(client, &["10.0.0.1".parse().unwrap()])
        };
        let clients = (0..clients).map(client).collect();
        let server = |n| {
            let any = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, test_secret());
            let server = RadiusServer::new(
                RadiusServerConfig::new(vec![any]),
                Seed::new(2).derive_secure_rng("server", n),
            )
            .unwrap();
            let host = net.add_host(server, &[test_remote_address(0).ip()]);
            net.bind_socket(host, SocketId::from_number(0), test_remote_address(n as u16));
            net.on_event(host, |server::RadiusServerEvent::Request(r)| {
                let (token, code, attributes) =
                    (r.token, PacketCode::ACCESS_ACCEPT, crate::AttributeList::new());
                Some((Duration::ZERO, server::RadiusServerCommand::Respond { token, code, attributes }))
            });
            host
        };
        let servers = (0..u64::from(servers)).map(server).collect();
        let (answers, given_up, turns, causes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { net, clients, servers, answers, timed_out_requests: given_up, turns, causes }
    }
    fn client(&self, client: usize) -> &RadiusClient {
        &self.net[self.clients[client]]
    }
    /// Makes a server silent, or ends that.
    fn set_mute(&mut self, server: usize, mute: bool) {
        self.net.set_silent(self.servers[server], mute);
    }
    /// The first server answers only Status-Server.
    fn answer_status_only(&mut self) {
        self.net.intercept_transmits(|_, sent| match sent.transmit {
            Transmit::Datagram { path } if path.remote == test_remote_address(0) && sent.bytes[0] == 1 => {
                vec![]
            }
            _ => vec![Duration::ZERO],
        });
    }
    fn send_request(&mut self, client: usize, token: u64) {
        let attributes = user_attributes();
        let command = RadiusClientCommand::Request {
            token,
            target: GROUP,
            code: PacketCode::ACCESS_REQUEST,
            attributes,
        };
        self.net.send_command(self.clients[client], command).unwrap();
        self.run_pending();
    }
    /// Runs everything due now, and passes health events on to the other clients.
    fn run_pending(&mut self) {
        let now = self.net.now();
        self.net.run_until(now);
        let second = now.as_nanos() / 1_000_000_000;
        for (c, host) in self.clients.clone().into_iter().enumerate() {
            for (_, event) in self.net.take_events(host) {
                match event {
                    RadiusClientEvent::Response(r) => self.answers.push((second, r.token, r.server)),
                    RadiusClientEvent::TimedOut { token } => self.timed_out_requests.push((second, token)),
                    RadiusClientEvent::Server { server, health, cause } => {
                        self.turns.push((second, c, server, health));
                        self.causes.push(cause);
                        for other in (0..self.clients.len()).filter(|other| *other != c) {
                            self.net[self.clients[other]].apply_shared_health(now, server, health);
                        }
                    }
                }
            }
        }
    }
    fn run_until(&mut self, seconds: f64) {
        while let Some(due) = self.net.next_due_time().filter(|due| *due <= at_seconds(seconds)) {
            self.net.run_until(due);
            self.run_pending();
        }
        self.net.run_until(at_seconds(seconds));
    }
    fn probe_count(&self, client: usize) -> u64 {
        self.client(client).counters().probes
    }
}

#[test]
fn only_the_first_request_to_a_silent_server_waits_a_window() {
    let mut w = LivenessTestNetwork::new(1, 2, ServerLivenessConfig::default());
    w.set_mute(0, true);
    w.send_request(0, 1);
    w.run_until(3.9);
    assert!(w.answers.is_empty());
    w.run_until(4.0);
    assert_eq!(w.answers, [(4, 1, 1)]);
    w.send_request(0, 2);
    assert_eq!(w.answers[1..], [(4, 2, 1)], "at once");
    w.run_until(20.0);
    w.send_request(0, 3);
    assert_eq!(w.answers[2..], [(20, 3, 1)]);
    let mut turns = w.turns.clone();
    turns.truncate(2);
    assert_eq!(turns, [(4, 0, 0, ServerHealth::Suspect), (16, 0, 0, ServerHealth::Dead)]);
    assert_eq!(w.causes[0], ServerHealthCause::Silent(Duration::from_secs(4)));
    let (first, second) = (w.client(0).server_counts(0), w.client(0).server_counts(1));
    assert_eq!((first.requests, first.answers, first.timeouts), (1, 0, 1));
    assert_eq!((second.requests, second.answers, second.timeouts, second.timed), (3, 3, 0, 2));
    w.set_mute(0, false);
    w.run_until(110.0);
    assert_eq!(w.turns.last(), Some(&(106, 0, 0, ServerHealth::Alive)), "three answers, 30 s apart");
    w.send_request(0, 4);
    assert_eq!(w.answers[3..], [(110, 4, 0)]);
}

#[test]
fn a_suspect_server_is_alive_with_its_first_word() {
    let mut w = LivenessTestNetwork::new(1, 2, ServerLivenessConfig::default());
    w.set_mute(0, true);
    w.send_request(0, 1);
    w.run_until(9.0);
    w.set_mute(0, false);
    w.run_until(13.0);
    assert_eq!(w.turns, [(4, 0, 0, ServerHealth::Suspect), (12, 0, 0, ServerHealth::Alive)]);
    w.send_request(0, 2);
    assert_eq!(w.answers[1..], [(13, 2, 0)]);
}

/// A server that answers Status-Server and other requests stays alive despite silence to a single request.
#[test]
fn a_server_that_is_silent_to_one_request_alone_is_back_at_once() {
    let mut w = LivenessTestNetwork::new(1, 2, ServerLivenessConfig::default());
    w.answer_status_only();
    w.send_request(0, 1);
    w.run_until(5.0);
    assert_eq!(w.answers, [(4, 1, 1)]);
    assert_eq!(w.turns, [(4, 0, 0, ServerHealth::Suspect), (4, 0, 0, ServerHealth::Alive)]);
}

#[test]
fn with_all_servers_dead_logins_end_until_one_comes_back() {
    let mut w = LivenessTestNetwork::new(
        1,
        2,
        ServerLivenessConfig { answers: 1, ..ServerLivenessConfig::default() },
    );
    (0..2).for_each(|server| w.set_mute(server, true));
    w.send_request(0, 1);
    w.run_until(15.0);
    assert!(w.timed_out_requests.is_empty());
    w.send_request(0, 2);
    w.run_until(60.0);
    assert!(
        w.timed_out_requests.iter().all(|(t, _)| *t <= 20),
        "with the last of them, not after half a minute: {:?}",
        w.timed_out_requests
    );
    assert_eq!(w.timed_out_requests.len(), 2);
    assert!(!w.client(0).is_server_usable(0) && !w.client(0).is_server_usable(1));
    w.set_mute(1, false);
    w.run_until(115.0);
    assert_eq!(
        (w.client(0).server_health(0), w.client(0).server_health(1)),
        (ServerHealth::Dead, ServerHealth::Alive)
    );
    w.send_request(0, 3);
    assert_eq!(w.answers, [(115, 3, 1)]);
}

/// A server that waits for a second factor takes its time.
#[test]
fn a_server_with_a_long_window_is_waited_for() {
    let mut w = LivenessTestNetwork::new(
        1,
        2,
        ServerLivenessConfig { window: Duration::from_secs(60), ..ServerLivenessConfig::default() },
    );
    w.answer_status_only();
    w.send_request(0, 1);
    w.run_until(59.0);
    assert!(w.turns.is_empty() && w.answers.is_empty() && w.timed_out_requests.is_empty());
    w.run_until(60.0);
    assert_eq!(w.answers, [(60, 1, 1)]);
}

#[test]
fn what_one_client_finds_out_the_others_need_not() {
    let mut w = LivenessTestNetwork::new(
        3,
        2,
        ServerLivenessConfig { answers: 1, ..ServerLivenessConfig::default() },
    );
    w.send_request(0, 10);
    assert_eq!((w.answers.remove(0), w.probe_count(0)), ((0, 10, 0), 1), "it knows Status-Server");
    w.set_mute(0, true);
    w.send_request(0, 1);
    w.run_until(4.0);
    w.send_request(1, 2);
    w.send_request(2, 3);
    assert_eq!(w.answers, [(4, 1, 1), (4, 2, 1), (4, 3, 1)], "nobody else waits");
    let before = [w.probe_count(1), w.probe_count(2)];
    w.run_until(300.0);
    w.send_request(2, 4);
    assert_eq!(w.answers[3..], [(300, 4, 1)]);
    assert!(w.probe_count(0) > 10);
    assert_eq!([w.probe_count(1), w.probe_count(2)], before, "one asks for its status");
    w.set_mute(0, false);
    w.run_until(340.0);
    w.send_request(1, 5);
    assert_eq!(w.answers[4..], [(340, 5, 0)]);
    assert!(w.turns.iter().all(|(_, client, ..)| *client == 0), "{:?}", w.turns);
}

/// The client that detected the state may be gone: then the others probe.
#[test]
fn without_a_further_word_a_client_asks_itself() {
    for told in [ServerHealth::Suspect, ServerHealth::Dead] {
        let mut w = LivenessTestNetwork::new(
            1,
            2,
            ServerLivenessConfig { answers: 1, ..ServerLivenessConfig::default() },
        );
        w.net[w.clients[0]].apply_shared_health(at_seconds(0.0), 0, told);
        w.send_request(0, 1);
        assert_eq!(w.answers, [(0, 1, 1)]);
        let before = w.probe_count(0);
        w.run_until(100.0);
        assert_eq!(
            (w.probe_count(0) - before, w.client(0).server_health(0)),
            (1, ServerHealth::Alive),
            "{told:?}"
        );
    }
}

#[test]
fn without_status_server_a_dead_server_is_retried_later() {
    let mut w = LivenessTestNetwork::new(
        2,
        2,
        ServerLivenessConfig { status: false, ..ServerLivenessConfig::default() },
    );
    w.set_mute(0, true);
    w.send_request(0, 1);
    w.run_until(135.0);
    w.set_mute(0, false);
    w.send_request(1, 2);
    assert_eq!(w.answers[1..], [(135, 2, 1)]);
    w.run_until(137.0);
    assert_eq!(w.causes.last(), Some(&ServerHealthCause::Revived(Duration::from_secs(120))));
    w.send_request(1, 3);
    assert_eq!((w.answers[2..].to_vec(), w.probe_count(0) + w.probe_count(1)), (vec![(137, 3, 0)], 0));
}
