//! Test networks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use usher_access::{
    AaaClientConfig, AaaConfig, AccessClient, AccessClientEvent, AccountingRetryConfig, DiameterConfig,
    DiameterConnections, NasIdentity, RadiusConfig,
};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Duration, ListenerId, Seed, SocketId};
use usher_diameter::avp::AvpBuf;
use usher_diameter::codes::{self, application, command};
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::{DiameterMessage, ResultCode};
use usher_radius::client::{
    self, FailoverPolicy, RequestTarget, RetransmissionPolicy, ServerConfig, ServerLivenessConfig,
};
use usher_radius::server::{self, ClientConfig, RadiusServer};
use usher_radius::{AttributeList, PacketCode, SharedSecret};

pub(crate) const NAS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(crate) const SERVERS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3))];
pub(crate) const PORT: u16 = 1812;

pub(crate) fn test_secret() -> SharedSecret {
    SharedSecret::new(b"sixteen octets!!")
}
pub(crate) fn test_network() -> MachineNetwork {
    MachineNetwork::new(ChannelConfig { delay: Duration::from_millis(1), ..ChannelConfig::default() })
}

/// The transport of the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TestTransport {
    Udp,
    RadSec,
    Diameter,
}

pub(crate) const CARRIERS: [TestTransport; 3] =
    [TestTransport::Udp, TestTransport::RadSec, TestTransport::Diameter];

/// A server's replies over RADIUS and over Diameter.
#[derive(Clone, Copy)]
pub(crate) struct ServerScript {
    pub(crate) radius: fn(&server::RadiusRequest) -> Option<(PacketCode, AttributeList)>,
    pub(crate) diameter: fn(&DiameterMessage) -> Option<(ResultCode, AvpBuf)>,
}

/// Returns the configuration of a RADIUS client with this number of servers, the first preferred.
pub(crate) fn radius_config(carrier: TestTransport, servers: usize) -> RadiusConfig {
    let server = |i: usize| {
        let address = SocketAddr::new(SERVERS[i], PORT);
        let config = match carrier {
            TestTransport::RadSec => ServerConfig::for_radsec(address),
            _ => ServerConfig::new(address, test_secret()),
        };
        ServerConfig { liveness: Some(ServerLivenessConfig::default()).filter(|_| servers > 1), ..config }
    };
    let mut client = client::RadiusClientConfig::for_server(server(0));
    client.servers = (0..servers).map(server).collect();
    client.groups = vec![(0..servers as u16).collect()];
    client.failover = Some(FailoverPolicy { after: 2, ..FailoverPolicy::default() });
    client.retransmission = RetransmissionPolicy::Fixed { interval: Duration::from_secs(2), count: 6 };
    let (target, accounting) = (RequestTarget::Group(0), RequestTarget::Group(0));
    RadiusConfig { target, accounting, ..RadiusConfig::new(client) }
}

pub(crate) fn server_identity(i: usize) -> String {
    format!("aaa{i}.example.org")
}
const APPLICATIONS: [DiameterApplication; 3] = [
    DiameterApplication::for_authentication(application::EAP),
    DiameterApplication::for_authentication(application::NASREQ),
    DiameterApplication::for_accounting(application::ACCOUNTING),
];

pub(crate) fn diameter_config(servers: usize) -> DiameterConfig {
    let mut node = node::DiameterNodeConfig::new("nas.example.org", "example.org", &APPLICATIONS);
    node.local.addresses.push(NAS);
    // The watchdog detects a silent server earlier.
    node.request_timeout = Some(Duration::from_secs(100));
    for (i, ip) in SERVERS.into_iter().enumerate().take(servers) {
        node = node.connect_to(&server_identity(i), SocketAddr::new(ip, PORT));
    }
    DiameterConfig::new(node, "example.org".into())
        .with_connections(DiameterConnections::Shared(NonZeroU16::MIN))
}

/// A client and its servers.
pub(crate) struct AccessTestNetwork {
    pub(crate) net: MachineNetwork,
    pub(crate) nas: NetworkHostHandle<AccessClient>,
    pub(crate) radius: Vec<NetworkHostHandle<RadiusServer>>,
    pub(crate) diameter: Vec<NetworkHostHandle<DiameterNode>>,
}

impl AccessTestNetwork {
    pub(crate) fn new(carrier: TestTransport, servers: usize, script: ServerScript) -> Self {
        let aaa = match carrier {
            TestTransport::Diameter => AaaConfig::Diameter(Box::new(diameter_config(servers))),
            _ => AaaConfig::Radius(radius_config(carrier, servers)),
        };
        Self::with_config(aaa, carrier, servers, script)
    }
    pub(crate) fn with_config(
        aaa: AaaConfig,
        carrier: TestTransport,
        servers: usize,
        script: ServerScript,
    ) -> Self {
        let identity = NasIdentity { address: Some(NAS), ..NasIdentity::for_ethernet("nas.example.org") };
        Self::with_identity(identity, aaa, carrier, servers, script)
    }
    pub(crate) fn with_identity(
        identity: NasIdentity,
        aaa: AaaConfig,
        carrier: TestTransport,
        servers: usize,
        script: ServerScript,
    ) -> Self {
        let client = AccessClient::new(identity, aaa, Seed::new(5).derive_secure_rng("nas", 0)).unwrap();
        Self::of_client(client, carrier, servers, script)
    }
    /// Returns a network whose client keeps records until a server acknowledges them.
    pub(crate) fn with_record_queue(
        aaa: AaaConfig,
        carrier: TestTransport,
        servers: usize,
        script: ServerScript,
    ) -> Self {
        let nas = NasIdentity { address: Some(NAS), ..NasIdentity::for_ethernet("nas.example.org") };
        let patience = AccountingRetryConfig::default();
        let aaa =
            AaaClientConfig { nas, servers: aaa, accounting: true, interim: None, record_retry: patience };
        Self::of_client(
            aaa.build_client(Seed::new(5).derive_secure_rng("nas", 0)).unwrap(),
            carrier,
            servers,
            script,
        )
    }
    fn of_client(client: AccessClient, carrier: TestTransport, servers: usize, script: ServerScript) -> Self {
        let (mut net, seed) = (test_network(), Seed::new(5));
        let nas = net.add_host(client, &[NAS]);
        let (mut radius, mut diameter) = (Vec::new(), Vec::new());
        for (i, ip) in SERVERS.into_iter().enumerate().take(servers) {
            let (address, rng) = (SocketAddr::new(ip, PORT), seed.derive_secure_rng("server", i as u64));
            if carrier == TestTransport::Diameter {
                let mut config =
                    node::DiameterNodeConfig::new(&server_identity(i), "example.org", &APPLICATIONS);
                config.local.addresses.push(ip);
                for connection in ["nas.example.org", "nas-1.example.org", "nas-2.example.org"] {
                    config = config.accept_from(connection);
                }
                let node = DiameterNode::new(config, net.now(), rng);
                let at = net.add_host(node, &[ip]);
                net.add_listener(at, ListenerId::from_number(0), address);
                net.on_event(at, move |event| {
                    let node::DiameterNodeEvent::Request { token, message, .. } = event else { return None };
                    let (result, avps) = (script.diameter)(message)?;
                    Some((Duration::ZERO, node::DiameterNodeCommand::Answer { token: *token, result, avps }))
                });
                diameter.push(at);
            } else {
                let client = match carrier {
                    TestTransport::RadSec => ClientConfig::for_radsec(NAS, 32, Vec::new()),
                    _ => ClientConfig::new(NAS, 32, test_secret()),
                };
                let server = RadiusServer::new(server::RadiusServerConfig::new(vec![client]), rng).unwrap();
                let at = net.add_host(server, &[ip]);
                net.bind_socket(at, SocketId::from_number(0), address);
                net.add_listener(at, ListenerId::from_number(0), address);
                net.on_event(at, move |server::RadiusServerEvent::Request(request)| {
                    let (code, attributes) = (script.radius)(request)?;
                    let token = request.token;
                    Some((Duration::ZERO, server::RadiusServerCommand::Respond { token, code, attributes }))
                });
                radius.push(at);
            }
        }
        let mut world = Self { net, nas, radius, diameter };
        // Diameter connects.
        world.net.run_for(Duration::from_millis(100));
        world.take_events();
        world
    }
    pub(crate) fn run_seconds(&mut self, seconds: u64) {
        self.net.run_for(Duration::from_secs(seconds));
    }
    /// Takes the client's events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<AccessClientEvent> {
        let of_logins = |e: &AccessClientEvent| {
            !matches!(e, AccessClientEvent::Peer { .. } | AccessClientEvent::Server { .. })
        };
        self.net.take_events(self.nas).into_iter().map(|(_, event)| event).filter(of_logins).collect()
    }
    /// Takes the client's only event.
    pub(crate) fn take_event(&mut self) -> AccessClientEvent {
        let mut events = self.take_events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }
}

/// An answer for the application of the request.
pub(crate) fn answer_avps(message: &DiameterMessage) -> AvpBuf {
    let mut avps = AvpBuf::new();
    if message.header.command != command::ACCOUNTING {
        avps.push_u32(codes::AUTH_REQUEST_TYPE, 3);
    }
    avps
}
