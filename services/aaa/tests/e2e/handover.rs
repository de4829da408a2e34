//! Logins that continue by another connection, at another shard.

use crate::build::{PASSWORD, aaa_config, test_users, user_name};
use std::net::SocketAddr;
use usher_aaa::{
    AaaServer, AaaServerCommand, AaaServerConfig, AaaServerEvent, DIAMETER_LISTENER, InterShardKey,
    RADSEC_LISTENER, ShardConfig,
};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Instant, ListenerId, Machine, Seed};
use usher_crypto::digest::md5;
use usher_diameter::codes::application;
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, DiameterNode};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_diameter::{ResultCode, codes};
use usher_radius::attribute::{AttributeList, kind};
use usher_radius::client::{self, RadiusClient, RequestTarget, ServerConfig};
use usher_radius::packet::PacketCode;
use usher_radius::server::ClientConfig;

const NOW: Instant = Instant::ZERO;

fn shard_address(n: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 2083 + n))
}

/// The shards, and their clients.
struct ShardTestNetwork<C> {
    net: MachineNetwork,
    client: NetworkHostHandle<C>,
    servers: Vec<NetworkHostHandle<AaaServer>>,
    accepted: Vec<usize>,
    handover_count: usize,
}

impl<C: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static> ShardTestNetwork<C> {
    fn new(client: C, listener: ListenerId, config: impl Fn(u16) -> AaaServerConfig) -> Self {
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let client = net.add_host(client, &[shard_address(0).ip()]);
        let server = |number: u16| {
            let mut config = config(number);
            config.shard = Some(ShardConfig { number, key: InterShardKey::new(&[7; 16]) });
            let server =
                AaaServer::new(config, Seed::new(1).derive_secure_rng("server", number.into())).unwrap();
            let host = net.add_host(server, &[shard_address(0).ip()]);
            net.add_listener(host, listener, shard_address(number));
            host
        };
        let servers = (0..2).map(server).collect();
        Self { net, client, servers, accepted: Vec::new(), handover_count: 0 }
    }

    /// Sends a command to the client and delivers all messages. Returns its first event.
    fn send_command(&mut self, command: C::Command) -> C::Event {
        self.net.send_command(self.client, command).unwrap();
        self.deliver_all();
        self.net.take_events(self.client).remove(0).1
    }

    fn deliver_all(&mut self) {
        let mut idle = false;
        while !idle {
            self.net.run_until(NOW);
            idle = true;
            for (i, server) in self.servers.clone().into_iter().enumerate() {
                for (_, event) in self.net.take_events(server) {
                    idle = false;
                    self.handle_event(i, event);
                }
            }
        }
    }

    fn handle_event(&mut self, at: usize, event: AaaServerEvent) {
        match event {
            AaaServerEvent::ShardRequest { shard, request: handed } => {
                self.handover_count += 1;
                let from = at as u16;
                self.net
                    .send_command(
                        self.servers[usize::from(shard)],
                        AaaServerCommand::ShardRequest { from, request: handed },
                    )
                    .unwrap();
            }
            AaaServerEvent::ShardDecision { shard, back } => {
                self.net
                    .send_command(self.servers[usize::from(shard)], AaaServerCommand::ShardDecision(back))
                    .unwrap();
            }
            AaaServerEvent::Accepted(_) => self.accepted.push(at),
            _ => {}
        }
    }
}

/// The response to an MD5-Challenge.
fn md5_response(challenge: &[u8], password: &[u8]) -> Vec<u8> {
    let (identifier, value) = (challenge[1], &challenge[6..22]);
    let digest = md5(&[&[identifier], password, value]);
    [&[2, identifier, 0, 22, 4, 16][..], &digest].concat()
}

fn identity_response(name: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, name.len() as u8 + 5, 1], name].concat()
}

#[test]
fn a_radsec_login_goes_on_by_another_connection() {
    for (password, code) in
        [(PASSWORD, PacketCode::ACCESS_ACCEPT), (&b"wrong"[..], PacketCode::ACCESS_REJECT)]
    {
        let mut config = client::RadiusClientConfig::for_server(ServerConfig::for_radsec(shard_address(0)));
        config.servers.push(ServerConfig::for_radsec(shard_address(1)));
        let client = RadiusClient::new(config, Seed::new(1).derive_secure_rng("client", 0)).unwrap();
        let mut shards = ShardTestNetwork::new(client, RADSEC_LISTENER, |_| {
            let mut config = aaa_config(test_users(Seed::new(1), 1));
            let any = "0.0.0.0".parse().unwrap();
            config.radius.as_mut().unwrap().clients = vec![ClientConfig::for_radsec(any, 0, Vec::new())];
            config
        });
        let ask =
            |shards: &mut ShardTestNetwork<RadiusClient>, server: u16, eap: &[u8], state: Option<&[u8]>| {
                let mut attributes = AttributeList::new();
                attributes.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
                attributes.push_eap(eap);
                if let Some(state) = state {
                    attributes.push_bytes(kind::STATE, state).unwrap();
                }
                let target = RequestTarget::Server(server);
                let request = client::RadiusClientCommand::Request {
                    token: server.into(),
                    target,
                    code: PacketCode::ACCESS_REQUEST,
                    attributes,
                };
                match shards.send_command(request) {
                    client::RadiusClientEvent::Response(r) => r,
                    other => panic!("{other:?}"),
                }
            };
        let challenge = ask(&mut shards, 0, &identity_response(&user_name(0)), None);
        assert_eq!((challenge.code, shards.handover_count), (PacketCode::ACCESS_CHALLENGE, 0));
        let mut eap = Vec::new();
        assert!(challenge.attributes.read_eap_packet(&mut eap));
        let state = challenge.attributes.get(kind::STATE).unwrap().to_vec();
        // The connection closed, and the next one reaches the other shard.
        let end = ask(&mut shards, 1, &md5_response(&eap, password), Some(&state));
        assert_eq!((end.code, shards.handover_count), (code, 1));
        let accepted = shards.net[shards.servers[0]].counters().accepted_eap_md5;
        assert_eq!(accepted == 1, code == PacketCode::ACCESS_ACCEPT, "the first decided");
        assert_eq!(shards.net[shards.servers[1]].counters().sessions, 0);
        // An unknown State is handled by the shard that receives it.
        let strange = ask(&mut shards, 1, &md5_response(&eap, password), Some(&[0; 16]));
        assert_eq!((strange.code, shards.handover_count), (PacketCode::ACCESS_REJECT, 1));
    }
}

#[test]
fn a_diameter_session_goes_on_by_another_connection() {
    let identity_of = |n: u16| format!("s{n}.example.org");
    let mut config = node::DiameterNodeConfig::new(
        "nas.example.org",
        "example.org",
        &[DiameterApplication::for_authentication(application::EAP)],
    );
    config.local.addresses.push([10, 0, 0, 9].into());
    for n in 0..2 {
        config = config.connect_to(&identity_of(n), shard_address(n));
    }
    let client = DiameterNode::new(config, NOW, Seed::new(1).derive_secure_rng("client", 0));
    let mut shards = ShardTestNetwork::new(client, DIAMETER_LISTENER, |number| {
        let mut config = aaa_config(test_users(Seed::new(1), 1));
        let mut node = node::DiameterNodeConfig::new(
            &identity_of(number),
            "example.org",
            &[DiameterApplication::for_authentication(application::EAP)],
        );
        node.local.addresses.push([10, 0, 0, 1].into());
        config.diameter = Some(node.accept_from("nas.example.org"));
        config
    });
    shards.deliver_all();
    shards.net.take_events(shards.client);
    let name = String::from_utf8(user_name(0)).unwrap();
    let ask = |shards: &mut ShardTestNetwork<DiameterNode>, server: u16, eap: &[u8], state: Option<&[u8]>| {
        let der = DiameterEapRequest {
            request_type: AuthRequestType::AuthorizeAuthenticate,
            eap,
            user_name: Some(&name),
            state,
            nas: NasInfo::default(),
        };
        let session = "nas.example.org;1;1".to_owned();
        let der = der.to_request(server.into(), session, "example.org".into(), Some(identity_of(server)));
        match shards.send_command(node::DiameterNodeCommand::Request(der)) {
            node::DiameterNodeEvent::Answer { result, avps, .. } => (result, avps),
            other => panic!("{other:?}"),
        }
    };
    let (result, avps) = ask(&mut shards, 0, &identity_response(&user_name(0)), None);
    assert_eq!(result, ResultCode::MULTI_ROUND_AUTH);
    let dea = DiameterEapAnswer::parse(avps.as_sequence()).unwrap();
    let (eap, state) = (dea.eap.unwrap().to_vec(), dea.state.unwrap().to_vec());
    let (result, avps) = ask(&mut shards, 1, &md5_response(&eap, PASSWORD), Some(&state));
    assert_eq!((result, shards.handover_count, &shards.accepted[..]), (ResultCode::SUCCESS, 1, &[0][..]));
    let origin = avps.as_sequence().get(codes::ORIGIN_HOST).unwrap();
    assert_eq!(origin.as_identity().unwrap(), "s1.example.org", "the answer leaves by its connection");
    assert_eq!(DiameterEapAnswer::parse(avps.as_sequence()).unwrap().eap.unwrap()[0], 3);
}
