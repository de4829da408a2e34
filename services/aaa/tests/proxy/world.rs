//! Servers on a network without delay, and a RADIUS client of the first server.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Index;
use std::rc::Rc;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerEvent, AaaServerJob, DIAMETER_LISTENER,
    RADSEC_LISTENER, radius_socket,
};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, Instant, Seed, SocketId, Transmit};
use usher_eap::peer::{self, EapPeer};
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RequestTarget, RetransmissionPolicy, ServerConfig};
use usher_radius::server::{self, PortRole, RadiusServer};
use usher_radius::{AttributeList, PacketCode, SharedSecret};

/// The NAS is 10.0.0.1; server `n` is 10.0.1.n.
pub(crate) const NAS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) fn server_address(server: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 1, server as u8).into()
}
pub(crate) fn secret_for_name(name: &str) -> SharedSecret {
    SharedSecret::new(format!("the secret of {name}").as_bytes())
}

pub(crate) struct ProxyTestNetwork {
    pub(crate) net: MachineNetwork,
    nas: NetworkHostHandle<RadiusClient>,
    /// The NAS's server for dynamic authorization.
    pub(crate) nas_server: NetworkHostHandle<RadiusServer>,
    /// Each listens on 1812, 1813, and for RadSec and Diameter.
    pub(crate) servers: Vec<NetworkHostHandle<AaaServer>>,
    pub(crate) events: Vec<(usize, AaaServerEvent)>,
    /// The servers that had to store a record.
    pub(crate) recording_servers: Rc<RefCell<Vec<usize>>>,
    pub(crate) answers: Vec<client::RadiusReply>,
    pub(crate) nas_requests: Vec<server::RadiusRequest>,
    next: u64,
}

impl ProxyTestNetwork {
    pub(crate) fn new(configs: Vec<AaaServerConfig>) -> Self {
        let seed = Seed::new(5);
        let to = ServerConfig::new(SocketAddr::new(server_address(0), 1812), secret_for_name("nas"));
        let mut config = client::RadiusClientConfig::for_server(to);
        config
            .servers
            .push(ServerConfig::new(SocketAddr::new(server_address(0), 1813), secret_for_name("nas")));
        config.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(10), count: 4 };
        let any = server::ClientConfig::new(server_address(0), 32, secret_for_name("nas"));
        let dynamic = server::RadiusServerConfig {
            role: PortRole::DynamicAuthorization,
            ..server::RadiusServerConfig::new(vec![any])
        };
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let nas = net.add_host(RadiusClient::new(config, seed.derive_secure_rng("nas", 0)).unwrap(), &[NAS]);
        let nas_server =
            net.add_host(RadiusServer::new(dynamic, seed.derive_secure_rng("nas", 1)).unwrap(), &[NAS]);
        net.bind_socket(nas_server, SocketId::from_number(0), SocketAddr::new(NAS, 3799));
        let kept = Rc::new(RefCell::new(Vec::new()));
        let server = |(s, config): (usize, AaaServerConfig)| {
            let host = net.add_host(
                AaaServer::new(config, seed.derive_secure_rng("aaa", s as u64)).unwrap(),
                &[server_address(s)],
            );
            for n in 0..2 {
                net.bind_socket(host, radius_socket(n), SocketAddr::new(server_address(s), 1812 + n as u16));
            }
            net.add_listener(host, RADSEC_LISTENER, SocketAddr::new(server_address(s), 2083));
            net.add_listener(host, DIAMETER_LISTENER, SocketAddr::new(server_address(s), 3868));
            let kept = kept.clone();
            net.on_job(host, move |job| {
                let AaaServerJob::Account { .. } = job.job else { return None };
                kept.borrow_mut().push(s);
                Some((Duration::ZERO, AaaServerCommand::Accounted { token: job.token, durable: true }))
            });
            host
        };
        let servers = configs.into_iter().enumerate().map(server).collect();
        let (events, answers, asked_nas) = (Vec::new(), Vec::new(), Vec::new());
        let mut w = Self {
            net,
            nas,
            nas_server,
            servers,
            events,
            recording_servers: kept,
            answers,
            nas_requests: asked_nas,
            next: 0,
        };
        w.run_due_events();
        w
    }

    /// Runs everything that is due now.
    pub(crate) fn run_due_events(&mut self) {
        self.run_until(self.net.now());
    }
    fn run_until(&mut self, end: Instant) {
        self.net.run_until(self.net.now());
        self.collect_events();
        while self.net.next_due_time().is_some_and(|due| due <= end) {
            self.net.run_next_arrival_or_timer();
            self.collect_events();
        }
        self.net.run_until(end);
    }
    fn collect_events(&mut self) {
        for (s, server) in self.servers.iter().enumerate() {
            self.events.extend(self.net.take_events(*server).into_iter().map(|(_, event)| (s, event)));
        }
        for (_, event) in self.net.take_events(self.nas) {
            match event {
                client::RadiusClientEvent::Response(r) => self.answers.push(r),
                client::RadiusClientEvent::TimedOut { .. } => {}
                client::RadiusClientEvent::Server { .. } => panic!("nobody is watched"),
            }
        }
        let asked = self.net.take_events(self.nas_server).into_iter();
        self.nas_requests.extend(asked.map(|(_, server::RadiusServerEvent::Request(r))| r));
    }
    /// Drops all packets to and from a server, or none.
    pub(crate) fn set_silent(&mut self, s: usize, off: bool) {
        self.net.set_silent(self.servers[s], off);
        self.net.set_refusing_connections(self.servers[s], off);
    }
    /// Switches a server off and closes its connections.
    pub(crate) fn switch_off(&mut self, s: usize) {
        self.net.reset_connections(self.servers[s]);
        self.set_silent(s, true);
        self.run_due_events();
    }
    /// Returns the number of datagrams to each server, without Status-Server.
    pub(crate) fn datagram_counts(&self) -> Vec<usize> {
        let to = |s: usize| {
            let asked = self.net.sent_transmits().iter().filter(|sent| match sent.transmit {
                Transmit::Datagram { path } => {
                    path.remote.ip() == server_address(s) && sent.bytes[0] != PacketCode::STATUS_SERVER.0
                }
                _ => false,
            });
            asked.count()
        };
        (0..self.servers.len()).map(to).collect()
    }

    /// Lets time pass.
    pub(crate) fn run_until_second(&mut self, seconds: u64) {
        self.run_until(Instant::ZERO + Duration::from_secs(seconds));
    }

    /// Sends a request and returns its token.
    pub(crate) fn send_request(&mut self, code: PacketCode, attributes: AttributeList) -> u64 {
        self.next += 1;
        let token = self.next;
        let target = RequestTarget::Server(u16::from(code == PacketCode::ACCOUNTING_REQUEST));
        let command = client::RadiusClientCommand::Request { token, target, code, attributes };
        self.net.send_command(self.nas, command).unwrap();
        self.run_due_events();
        token
    }
    /// Sends a request and returns the reply that arrives without delay.
    pub(crate) fn request_reply(
        &mut self,
        code: PacketCode,
        attributes: AttributeList,
    ) -> Option<client::RadiusReply> {
        let token = self.send_request(code, attributes);
        let at = self.answers.iter().position(|r| r.token == token)?;
        Some(self.answers.remove(at))
    }
    pub(crate) fn log_in_pap(&mut self, name: &str, password: &[u8]) -> Option<client::RadiusReply> {
        let mut a = AttributeList::new();
        a.push_text(kind::USER_NAME, name).unwrap().push_user_password(password).unwrap();
        self.request_reply(PacketCode::ACCESS_REQUEST, a)
    }

    /// Logs in by EAP. Returns the last reply, the peer's result, and the number of rounds. `between` is called
    /// before each round.
    pub(crate) fn log_in_eap(
        &mut self,
        config: peer::EapPeerConfig,
        mut between: impl FnMut(&mut Self, usize),
    ) -> (Option<client::RadiusReply>, Option<peer::EapPeerEvent>, usize) {
        let name = config.identity.clone();
        let mut peer = EapPeer::new(config, Seed::new(6).derive_secure_rng("peer", 0), self.net.now());
        let mut packet = vec![1, 1, 0, 5, 1];
        let mut state: Option<Vec<u8>> = None;
        for round in 0.. {
            peer.handle_packet(self.net.now(), &packet);
            packet.clear();
            let _ = peer.poll_transmit(&mut packet);
            between(self, round);
            let mut a = AttributeList::new();
            a.push_bytes(kind::USER_NAME, &name).unwrap();
            a.push_text(kind::NAS_IDENTIFIER, "switch").unwrap();
            a.push_text(kind::CALLING_STATION_ID, "02-00-00-00-00-01").unwrap();
            if let Some(state) = &state {
                a.push_bytes(kind::STATE, state).unwrap();
            }
            a.push_eap(&packet);
            let Some(reply) = self.request_reply(PacketCode::ACCESS_REQUEST, a) else {
                return (None, None, round + 1);
            };
            packet.clear();
            reply.attributes.read_eap_packet(&mut packet);
            state = reply.attributes.get(kind::STATE).map(<[u8]>::to_vec);
            if reply.code != PacketCode::ACCESS_CHALLENGE {
                peer.handle_packet(self.net.now(), &packet);
                return (Some(reply), peer.poll_event(), round + 1);
            }
        }
        unreachable!("a login ends")
    }
}

impl Index<usize> for ProxyTestNetwork {
    type Output = AaaServer;
    fn index(&self, s: usize) -> &AaaServer {
        &self.net[self.servers[s]]
    }
}
