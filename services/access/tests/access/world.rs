//! Networks to test on.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use usher_access::{
    Aaa, AaaConfig, AccessClient, Connections, DiameterConfig, Event, NasIdentity, Patience, RadiusConfig,
};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, ListenerId, Seed, SocketId};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;
use usher_diameter::{Message, ResultCode};
use usher_radius::client::{self, Failover, Liveness, Retransmission, ServerConfig, Target};
use usher_radius::server::{self, ClientConfig, Server};
use usher_radius::{Attributes, Code, Secret};

pub(crate) const NAS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVERS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3))];
pub(crate) const PORT: u16 = 1812;

pub(crate) fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}
pub(crate) fn network() -> Network {
    Network::new(ChannelConfig { delay: Duration::from_millis(1), ..ChannelConfig::default() })
}

/// What carries the questions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carrier {
    Udp,
    RadSec,
    Diameter,
}

pub(crate) const CARRIERS: [Carrier; 3] = [Carrier::Udp, Carrier::RadSec, Carrier::Diameter];

/// How a server answers a request: over RADIUS, and over Diameter.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    pub(crate) radius: fn(&server::Request) -> Option<(Code, Attributes)>,
    pub(crate) diameter: fn(&Message) -> Option<(ResultCode, AvpBuf)>,
}

/// A RADIUS client of as many servers, the first preferred.
pub(crate) fn radius_config(carrier: Carrier, servers: usize) -> RadiusConfig {
    let server = |i: usize| {
        let address = SocketAddr::new(SERVERS[i], PORT);
        let config = match carrier {
            Carrier::RadSec => ServerConfig::radsec(address),
            _ => ServerConfig::new(address, secret()),
        };
        ServerConfig { liveness: Some(Liveness::default()).filter(|_| servers > 1), ..config }
    };
    let mut client = client::Config::single(server(0));
    client.servers = (0..servers).map(server).collect();
    client.groups = vec![(0..servers as u16).collect()];
    client.failover = Some(Failover { after: 2, ..Failover::default() });
    client.retransmission = Retransmission::Fixed { interval: Duration::from_secs(2), count: 6 };
    let (target, accounting) = (Target::Group(0), Target::Group(0));
    RadiusConfig { target, accounting, ..RadiusConfig::new(client) }
}

pub(crate) fn host(i: usize) -> String {
    format!("aaa{i}.example.org")
}
const APPLICATIONS: [Application; 3] = [
    Application::auth(application::EAP),
    Application::auth(application::NASREQ),
    Application::acct(application::ACCOUNTING),
];

pub(crate) fn diameter_config(servers: usize) -> DiameterConfig {
    let mut node = node::Config::new("nas.example.org", "example.org", &APPLICATIONS);
    node.local.addresses.push(NAS);
    // The watchdog finds a silent server out before that.
    node.request_timeout = Some(Duration::from_secs(100));
    for (i, ip) in SERVERS.into_iter().enumerate().take(servers) {
        node = node.connect_to(&host(i), SocketAddr::new(ip, PORT));
    }
    DiameterConfig::new(node, "example.org".into()).by(Connections::Shared(NonZeroU16::MIN))
}

/// A client, and the servers that it asks.
pub(crate) struct World {
    pub(crate) net: Network,
    pub(crate) nas: At<AccessClient>,
    pub(crate) radius: Vec<At<Server>>,
    pub(crate) diameter: Vec<At<Node>>,
}

impl World {
    pub(crate) fn new(carrier: Carrier, servers: usize, script: Script) -> Self {
        let aaa = match carrier {
            Carrier::Diameter => AaaConfig::Diameter(Box::new(diameter_config(servers))),
            _ => AaaConfig::Radius(radius_config(carrier, servers)),
        };
        Self::with(aaa, carrier, servers, script)
    }
    pub(crate) fn with(aaa: AaaConfig, carrier: Carrier, servers: usize, script: Script) -> Self {
        let identity = NasIdentity { address: Some(NAS), ..NasIdentity::ethernet("nas.example.org") };
        Self::of(identity, aaa, carrier, servers, script)
    }
    pub(crate) fn of(
        identity: NasIdentity,
        aaa: AaaConfig,
        carrier: Carrier,
        servers: usize,
        script: Script,
    ) -> Self {
        let client = AccessClient::new(identity, aaa, Seed::new(5).secure("nas", 0)).unwrap();
        Self::of_client(client, carrier, servers, script)
    }
    /// One whose client keeps records until a server acknowledges them.
    pub(crate) fn owing(aaa: AaaConfig, carrier: Carrier, servers: usize, script: Script) -> Self {
        let nas = NasIdentity { address: Some(NAS), ..NasIdentity::ethernet("nas.example.org") };
        let patience = Patience::default();
        let aaa = Aaa { nas, servers: aaa, accounting: true, interim: None, patience };
        Self::of_client(aaa.client(Seed::new(5).secure("nas", 0)).unwrap(), carrier, servers, script)
    }
    fn of_client(client: AccessClient, carrier: Carrier, servers: usize, script: Script) -> Self {
        let (mut net, seed) = (network(), Seed::new(5));
        let nas = net.add(client, &[NAS]);
        let (mut radius, mut diameter) = (Vec::new(), Vec::new());
        for (i, ip) in SERVERS.into_iter().enumerate().take(servers) {
            let (address, rng) = (SocketAddr::new(ip, PORT), seed.secure("server", i as u64));
            if carrier == Carrier::Diameter {
                let mut config = node::Config::new(&host(i), "example.org", &APPLICATIONS);
                config.local.addresses.push(ip);
                for connection in ["nas.example.org", "nas-1.example.org", "nas-2.example.org"] {
                    config = config.accept(connection);
                }
                let node = Node::new(config, net.now(), rng);
                let at = net.add(node, &[ip]);
                net.listen(at, ListenerId::own(0), address);
                net.on_event(at, move |event| {
                    let node::Event::Request { token, message, .. } = event else { return None };
                    let (result, avps) = (script.diameter)(message)?;
                    Some((Duration::ZERO, node::Command::Answer { token: *token, result, avps }))
                });
                diameter.push(at);
            } else {
                let client = match carrier {
                    Carrier::RadSec => ClientConfig::radsec(NAS, 32, Vec::new()),
                    _ => ClientConfig::new(NAS, 32, secret()),
                };
                let server = Server::new(server::Config::new(vec![client]), rng).unwrap();
                let at = net.add(server, &[ip]);
                net.bind(at, SocketId::own(0), address);
                net.listen(at, ListenerId::own(0), address);
                net.on_event(at, move |server::Event::Request(request)| {
                    let (code, attributes) = (script.radius)(request)?;
                    let token = request.token;
                    Some((Duration::ZERO, server::Command::Respond { token, code, attributes }))
                });
                radius.push(at);
            }
        }
        let mut world = Self { net, nas, radius, diameter };
        // Diameter connects.
        world.net.run(Duration::from_millis(100));
        world.events();
        world
    }
    pub(crate) fn run(&mut self, seconds: u64) {
        self.net.run(Duration::from_secs(seconds));
    }
    /// What the client has said since it was last asked.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let of_logins = |e: &Event| !matches!(e, Event::Peer { .. } | Event::Server { .. });
        self.net.take(self.nas).into_iter().map(|(_, event)| event).filter(of_logins).collect()
    }
    /// The only thing that it has said.
    pub(crate) fn event(&mut self) -> Event {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

/// An answer of the application that was asked.
pub(crate) fn answer(message: &Message) -> AvpBuf {
    let mut avps = AvpBuf::new();
    if message.header.command != command::ACCOUNTING {
        avps.push_u32(codes::AUTH_REQUEST_TYPE, 3);
    }
    avps
}
