//! Servers on one network without delay, and a RADIUS client that asks the first of them.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Index;
use std::rc::Rc;
use usher_aaa::{AaaServer, Command, Config, DIAMETER_LISTENER, Event, Job, RADSEC_LISTENER, radius_socket};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, Seed, SocketId, Transmit};
use usher_eap::peer::{self, Peer};
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, Retransmission, ServerConfig, Target};
use usher_radius::server::{self, Role, Server};
use usher_radius::{Attributes, Code, Secret};

/// The NAS is 10.0.0.1; server `n` is 10.0.1.n.
pub(crate) const NAS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) fn address(server: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, server as u8).into()
}
pub(crate) fn secret(name: &str) -> Secret {
    Secret::new(format!("the secret of {name}").as_bytes())
}

pub(crate) struct World {
    pub(crate) net: Network,
    nas: At<Client>,
    /// The NAS's other side: what asks it for changes.
    pub(crate) nas_server: At<Server>,
    /// Each listens on 1812, 1813, and for RadSec and Diameter.
    pub(crate) servers: Vec<At<AaaServer>>,
    pub(crate) events: Vec<(usize, Event)>,
    /// The servers that were asked to keep a record.
    pub(crate) kept: Rc<RefCell<Vec<usize>>>,
    pub(crate) answers: Vec<client::Response>,
    pub(crate) asked_nas: Vec<server::Request>,
    next: u64,
}

impl World {
    pub(crate) fn new(configs: Vec<Config>) -> Self {
        let seed = Seed::new(5);
        let to = ServerConfig::new(SocketAddr::new(address(0), 1812), secret("nas"));
        let mut config = client::Config::single(to);
        config.servers.push(ServerConfig::new(SocketAddr::new(address(0), 1813), secret("nas")));
        config.retransmission = Retransmission::Fixed { interval: Duration::from_secs(10), count: 4 };
        let any = server::ClientConfig::new(address(0), 32, secret("nas"));
        let dynamic = server::Config { role: Role::DynamicAuthorization, ..server::Config::new(vec![any]) };
        let mut net = Network::new(ChannelConfig::default());
        let nas = net.add(Client::new(config, seed.secure("nas", 0)).unwrap(), &[NAS]);
        let nas_server = net.add(Server::new(dynamic, seed.secure("nas", 1)).unwrap(), &[NAS]);
        net.bind(nas_server, SocketId::own(0), SocketAddr::new(NAS, 3799));
        let kept = Rc::new(RefCell::new(Vec::new()));
        let server = |(s, config): (usize, Config)| {
            let host = net.add(AaaServer::new(config, seed.secure("aaa", s as u64)).unwrap(), &[address(s)]);
            for n in 0..2 {
                net.bind(host, radius_socket(n), SocketAddr::new(address(s), 1812 + n as u16));
            }
            net.listen(host, RADSEC_LISTENER, SocketAddr::new(address(s), 2083));
            net.listen(host, DIAMETER_LISTENER, SocketAddr::new(address(s), 3868));
            let kept = kept.clone();
            net.on_job(host, move |job| {
                let Job::Account { .. } = job.what else { return None };
                kept.borrow_mut().push(s);
                Some((Duration::ZERO, Command::Accounted { token: job.token, durable: true }))
            });
            host
        };
        let servers = configs.into_iter().enumerate().map(server).collect();
        let (events, answers, asked_nas) = (Vec::new(), Vec::new(), Vec::new());
        let mut w = Self { net, nas, nas_server, servers, events, kept, answers, asked_nas, next: 0 };
        w.settle();
        w
    }

    /// Everything that can happen now.
    pub(crate) fn settle(&mut self) {
        self.run_until(self.net.now());
    }
    fn run_until(&mut self, end: Instant) {
        self.net.run_until(self.net.now());
        self.listen();
        while self.net.due().is_some_and(|due| due <= end) {
            self.net.step();
            self.listen();
        }
        self.net.run_until(end);
    }
    fn listen(&mut self) {
        for (s, server) in self.servers.iter().enumerate() {
            self.events.extend(self.net.take(*server).into_iter().map(|(_, event)| (s, event)));
        }
        for (_, event) in self.net.take(self.nas) {
            match event {
                client::Event::Response(r) => self.answers.push(r),
                client::Event::TimedOut { .. } => {}
                client::Event::Server { .. } => panic!("nobody is watched"),
            }
        }
        let asked = self.net.take(self.nas_server).into_iter();
        self.asked_nas.extend(asked.map(|(_, server::Event::Request(r))| r));
    }
    /// Whether nothing reaches a server and it sends nothing.
    pub(crate) fn off(&mut self, s: usize, off: bool) {
        self.net.silence(self.servers[s], off);
        self.net.refuse(self.servers[s], off);
    }
    /// A server goes off, and its connections with it.
    pub(crate) fn switch_off(&mut self, s: usize) {
        self.net.cut(self.servers[s]);
        self.off(s, true);
        self.settle();
    }
    /// How many datagrams each server was sent, Status-Server left out.
    pub(crate) fn datagrams(&self) -> Vec<usize> {
        let to = |s: usize| {
            let asked = self.net.sent().iter().filter(|sent| match sent.transmit {
                Transmit::Datagram { path } => {
                    path.remote.ip() == address(s) && sent.bytes[0] != Code::STATUS_SERVER.0
                }
                _ => false,
            });
            asked.count()
        };
        (0..self.servers.len()).map(to).collect()
    }

    /// Lets time go by.
    pub(crate) fn until(&mut self, seconds: u64) {
        self.run_until(Instant::ZERO + Duration::from_secs(seconds));
    }

    /// Sends a request; answers its token.
    pub(crate) fn send(&mut self, code: Code, attributes: Attributes) -> u64 {
        self.next += 1;
        let token = self.next;
        let target = Target::Server(u16::from(code == Code::ACCOUNTING_REQUEST));
        let command = client::Command::Request { token, target, code, attributes };
        self.net.command(self.nas, command).unwrap();
        self.settle();
        token
    }
    /// Asks, and takes the answer that comes without time going by.
    pub(crate) fn ask(&mut self, code: Code, attributes: Attributes) -> Option<client::Response> {
        let token = self.send(code, attributes);
        let at = self.answers.iter().position(|r| r.token == token)?;
        Some(self.answers.remove(at))
    }
    pub(crate) fn pap(&mut self, name: &str, password: &[u8]) -> Option<client::Response> {
        let mut a = Attributes::new();
        a.push_text(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        self.ask(Code::ACCESS_REQUEST, a)
    }

    /// A whole login by EAP; answers its last reply, how the peer sees it, and how many rounds it took. Before each
    /// round `between` may change the world.
    pub(crate) fn eap(
        &mut self,
        config: peer::Config,
        mut between: impl FnMut(&mut Self, usize),
    ) -> (Option<client::Response>, Option<peer::Event>, usize) {
        let name = config.identity.clone();
        let mut peer = Peer::new(config, Seed::new(6).secure("peer", 0), self.net.now());
        let mut packet = vec![1, 1, 0, 5, 1];
        let mut state: Option<Vec<u8>> = None;
        for round in 0.. {
            peer.handle(self.net.now(), &packet);
            packet.clear();
            let _ = peer.poll_transmit(&mut packet);
            between(self, round);
            let mut a = Attributes::new();
            a.push_bytes(kind::USER_NAME, &name).unwrap();
            a.push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
            a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
            if let Some(state) = &state {
                a.push_bytes(kind::STATE, state).unwrap();
            }
            a.push_eap(&packet);
            let Some(reply) = self.ask(Code::ACCESS_REQUEST, a) else { return (None, None, round + 1) };
            packet.clear();
            reply.attributes.eap(&mut packet);
            state = reply.attributes.get(kind::STATE).map(<[u8]>::to_vec);
            if reply.code != Code::ACCESS_CHALLENGE {
                peer.handle(self.net.now(), &packet);
                return (Some(reply), peer.poll_event(), round + 1);
            }
        }
        unreachable!("a login ends")
    }
}

impl Index<usize> for World {
    type Output = AaaServer;
    fn index(&self, s: usize) -> &AaaServer {
        &self.net[self.servers[s]]
    }
}
