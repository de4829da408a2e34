//! Servers that keep silent, by datagrams, and what several clients of the same ones tell each other.

use crate::client::{Client, Command, Event, Failover, Health, HealthCause, Liveness, ServerConfig, Target};
use crate::packet::Code;
use crate::server::{self, ClientConfig, Config, Server};
use crate::testing::{at, bare_client_with, far, secret, user};
use alloc::vec::Vec;
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Seed, SocketId, Transmit};

/// A client, or several, and the servers of its one group.
struct World {
    net: Network,
    clients: Vec<At<Client>>,
    servers: Vec<At<Server>>,
    /// Second, client and server of each answer, by token.
    answers: Vec<(u64, u64, u16)>,
    given_up: Vec<(u64, u64)>,
    turns: Vec<(u64, usize, u16, Health)>,
    causes: Vec<HealthCause>,
}

const GROUP: Target = Target::Group(0);

impl World {
    fn new(clients: usize, servers: u16, liveness: Liveness) -> Self {
        let mut net = Network::new(ChannelConfig::default());
        let client = |_| {
            let client = bare_client_with(|c| {
                c.servers = (0..servers).map(|n| ServerConfig::new(far(n), secret())).collect();
                c.servers.iter_mut().for_each(|s| s.liveness = Some(liveness));
                c.groups = vec![(0..servers).collect()];
                c.failover = Some(Failover::default());
            });
            net.add(client, &["10.0.0.1".parse().unwrap()])
        };
        let clients = (0..clients).map(client).collect();
        let server = |n| {
            let any = ClientConfig::new("10.0.0.0".parse().unwrap(), 8, secret());
            let server = Server::new(Config::new(vec![any]), Seed::new(2).secure("server", n)).unwrap();
            let host = net.add(server, &[far(0).ip()]);
            net.bind(host, SocketId::own(0), far(n as u16));
            net.on_event(host, |server::Event::Request(r)| {
                let (token, code, attributes) = (r.token, Code::ACCESS_ACCEPT, crate::Attributes::new());
                Some((Duration::ZERO, server::Command::Respond { token, code, attributes }))
            });
            host
        };
        let servers = (0..u64::from(servers)).map(server).collect();
        let (answers, given_up, turns, causes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { net, clients, servers, answers, given_up, turns, causes }
    }
    fn client(&self, client: usize) -> &Client {
        &self.net[self.clients[client]]
    }
    /// Whether nothing comes from a server.
    fn mute(&mut self, server: usize, mute: bool) {
        self.net.silence(self.servers[server], mute);
    }
    /// The first server answers Status-Server alone.
    fn busy(&mut self) {
        self.net.meddle(|_, sent| match sent.transmit {
            Transmit::Datagram { path } if path.remote == far(0) && sent.bytes[0] == 1 => vec![],
            _ => vec![Duration::ZERO],
        });
    }
    fn ask(&mut self, client: usize, token: u64) {
        let attributes = user();
        let command = Command::Request { token, target: GROUP, code: Code::ACCESS_REQUEST, attributes };
        self.net.command(self.clients[client], command).unwrap();
        self.settle();
    }
    /// Everything that can happen now; what a client finds out is told to the others.
    fn settle(&mut self) {
        let now = self.net.now();
        self.net.run_until(now);
        let second = now.as_nanos() / 1_000_000_000;
        for (c, host) in self.clients.clone().into_iter().enumerate() {
            for (_, event) in self.net.take(host) {
                match event {
                    Event::Response(r) => self.answers.push((second, r.token, r.server)),
                    Event::TimedOut { token } => self.given_up.push((second, token)),
                    Event::Server { server, health, cause } => {
                        self.turns.push((second, c, server, health));
                        self.causes.push(cause);
                        for other in (0..self.clients.len()).filter(|other| *other != c) {
                            self.net[self.clients[other]].told(now, server, health);
                        }
                    }
                }
            }
        }
    }
    fn until(&mut self, seconds: f64) {
        while let Some(due) = self.net.due().filter(|due| *due <= at(seconds)) {
            self.net.run_until(due);
            self.settle();
        }
        self.net.run_until(at(seconds));
    }
    fn probes(&self, client: usize) -> u64 {
        self.client(client).counters().probes
    }
}

#[test]
fn the_first_request_to_a_silent_server_waits_a_window_and_the_next_ones_do_not_wait() {
    let mut w = World::new(1, 2, Liveness::default());
    w.mute(0, true);
    w.ask(0, 1);
    w.until(3.9);
    assert!(w.answers.is_empty());
    w.until(4.0);
    assert_eq!(w.answers, [(4, 1, 1)]);
    w.ask(0, 2);
    assert_eq!(w.answers[1..], [(4, 2, 1)], "at once");
    w.until(20.0);
    w.ask(0, 3);
    assert_eq!(w.answers[2..], [(20, 3, 1)]);
    let mut turns = w.turns.clone();
    turns.truncate(2);
    assert_eq!(turns, [(4, 0, 0, Health::Suspect), (16, 0, 0, Health::Dead)]);
    assert_eq!(w.causes[0], HealthCause::Silent(Duration::from_secs(4)));
    let (first, second) = (w.client(0).asked_of(0), w.client(0).asked_of(1));
    assert_eq!((first.requests, first.answers, first.timeouts), (1, 0, 1));
    assert_eq!((second.requests, second.answers, second.timeouts, second.timed), (3, 3, 0, 2));
    w.mute(0, false);
    w.until(110.0);
    assert_eq!(w.turns.last(), Some(&(106, 0, 0, Health::Alive)), "three answers, 30 s apart");
    w.ask(0, 4);
    assert_eq!(w.answers[3..], [(110, 4, 0)]);
}

#[test]
fn a_suspect_server_is_alive_with_its_first_word() {
    let mut w = World::new(1, 2, Liveness::default());
    w.mute(0, true);
    w.ask(0, 1);
    w.until(9.0);
    w.mute(0, false);
    w.until(13.0);
    assert_eq!(w.turns, [(4, 0, 0, Health::Suspect), (12, 0, 0, Health::Alive)]);
    w.ask(0, 2);
    assert_eq!(w.answers[1..], [(13, 2, 0)]);
}

/// A server that answers its status, and others, does not suffer for one request that it keeps silent to.
#[test]
fn a_server_that_is_silent_to_one_request_alone_is_back_at_once() {
    let mut w = World::new(1, 2, Liveness::default());
    w.busy();
    w.ask(0, 1);
    w.until(5.0);
    assert_eq!(w.answers, [(4, 1, 1)]);
    assert_eq!(w.turns, [(4, 0, 0, Health::Suspect), (4, 0, 0, Health::Alive)]);
}

#[test]
fn when_all_are_dead_logins_end_and_new_ones_go_to_whoever_comes_back() {
    let mut w = World::new(1, 2, Liveness { answers: 1, ..Liveness::default() });
    (0..2).for_each(|server| w.mute(server, true));
    w.ask(0, 1);
    w.until(15.0);
    assert!(w.given_up.is_empty());
    w.ask(0, 2);
    w.until(60.0);
    assert!(
        w.given_up.iter().all(|(t, _)| *t <= 20),
        "with the last of them, not after half a minute: {:?}",
        w.given_up
    );
    assert_eq!(w.given_up.len(), 2);
    assert!(!w.client(0).usable(0) && !w.client(0).usable(1));
    w.mute(1, false);
    w.until(115.0);
    assert_eq!((w.client(0).health(0), w.client(0).health(1)), (Health::Dead, Health::Alive));
    w.ask(0, 3);
    assert_eq!(w.answers, [(115, 3, 1)]);
}

/// Whoever has a second factor confirmed takes its time.
#[test]
fn a_server_with_a_long_window_is_waited_for() {
    let mut w = World::new(1, 2, Liveness { window: Duration::from_secs(60), ..Liveness::default() });
    w.busy();
    w.ask(0, 1);
    w.until(59.0);
    assert!(w.turns.is_empty() && w.answers.is_empty() && w.given_up.is_empty());
    w.until(60.0);
    assert_eq!(w.answers, [(60, 1, 1)]);
}

#[test]
fn what_one_client_finds_out_the_others_need_not() {
    let mut w = World::new(3, 2, Liveness { answers: 1, ..Liveness::default() });
    w.ask(0, 10);
    assert_eq!((w.answers.remove(0), w.probes(0)), ((0, 10, 0), 1), "it knows Status-Server");
    w.mute(0, true);
    w.ask(0, 1);
    w.until(4.0);
    w.ask(1, 2);
    w.ask(2, 3);
    assert_eq!(w.answers, [(4, 1, 1), (4, 2, 1), (4, 3, 1)], "nobody else waits");
    let before = [w.probes(1), w.probes(2)];
    w.until(300.0);
    w.ask(2, 4);
    assert_eq!(w.answers[3..], [(300, 4, 1)]);
    assert!(w.probes(0) > 10);
    assert_eq!([w.probes(1), w.probes(2)], before, "one asks for its status");
    w.mute(0, false);
    w.until(340.0);
    w.ask(1, 5);
    assert_eq!(w.answers[4..], [(340, 5, 0)]);
    assert!(w.turns.iter().all(|(_, client, ..)| *client == 0), "{:?}", w.turns);
}

/// Whoever found it out may be gone: then the others ask.
#[test]
fn without_a_further_word_a_client_asks_itself() {
    for told in [Health::Suspect, Health::Dead] {
        let mut w = World::new(1, 2, Liveness { answers: 1, ..Liveness::default() });
        w.net[w.clients[0]].told(at(0.0), 0, told);
        w.ask(0, 1);
        assert_eq!(w.answers, [(0, 1, 1)]);
        let before = w.probes(0);
        w.until(100.0);
        assert_eq!((w.probes(0) - before, w.client(0).health(0)), (1, Health::Alive), "{told:?}");
    }
}

#[test]
fn without_status_server_a_dead_server_is_tried_again_after_a_while() {
    let mut w = World::new(2, 2, Liveness { status: false, ..Liveness::default() });
    w.mute(0, true);
    w.ask(0, 1);
    w.until(135.0);
    w.mute(0, false);
    w.ask(1, 2);
    assert_eq!(w.answers[1..], [(135, 2, 1)]);
    w.until(137.0);
    assert_eq!(w.causes.last(), Some(&HealthCause::Revived(Duration::from_secs(120))));
    w.ask(1, 3);
    assert_eq!((w.answers[2..].to_vec(), w.probes(0) + w.probes(1)), (vec![(137, 3, 0)], 0));
}
