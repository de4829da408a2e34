//! Answers of a Diameter home server, and the RADIUS replies that an access server gets (RFC 4072 §6, RFC 6733
//! §4.1, §7.1, §8.9).

use crate::world::{NAS, secret_for_name};
use std::net::SocketAddr;
use usher_aaa::proxy::{self, Realm, RealmTable, RealmTarget};
use usher_aaa::{AaaServer, AaaServerConfig, UserDirectory, UserSource, radius_socket};
use usher_core::bench::{MachineNetwork, NetworkHostHandle};
use usher_core::impair::ChannelConfig;
use usher_core::{Instant, ListenerId, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::{AvpBuf, AvpId};
use usher_diameter::codes::{self, application};
use usher_diameter::eap::{DiameterEapAnswer, DiameterEapRequest};
use usher_diameter::nasreq::AuthRequestType;
use usher_diameter::node::{self, DiameterNode, DiameterNodeEvent};
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_radius::attribute::kind;
use usher_radius::client::{self, RadiusClient, RadiusReply, RequestTarget, ServerConfig};
use usher_radius::server::ClientConfig;
use usher_radius::{AttributeList, PacketCode};

const NOW: Instant = Instant::ZERO;
const NAME: &[u8] = b"ann@example.org";
const IDENTITY: &[u8] = b"\x02\x07\x00\x14\x01ann@example.org";

fn diameter_address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, last], 3868))
}
fn node_config(host: &str, realm: &str) -> node::DiameterNodeConfig {
    let mut config = node::DiameterNodeConfig::new(
        host,
        realm,
        &[DiameterApplication::for_authentication(application::EAP)],
    );
    config.local.addresses.push([10, 0, 1, 1].into());
    config
}

/// A translating server between an access server and a home server with scripted answers.
struct DiameterHomeNetwork {
    net: MachineNetwork,
    nas: NetworkHostHandle<RadiusClient>,
    home: NetworkHostHandle<DiameterNode>,
}

impl DiameterHomeNetwork {
    fn new() -> Self {
        let users = UserDirectory::new(&mut Seed::new(1).derive_secure_rng("users", 0));
        let mut config = AaaServerConfig::new(UserSource::Memory(users.into()));
        config.radius = Some(usher_radius::server::RadiusServerConfig::new(vec![ClientConfig::new(
            NAS,
            32,
            secret_for_name("nas"),
        )]));
        config.diameter = Some(
            node_config("aaa.visited.example", "visited.example")
                .connect_to("home.example.org", diameter_address(2)),
        );
        let route = RealmTarget::Diameter { realm: "example.org".into() };
        let realms = RealmTable::new(vec![Realm::new("example.org", route)], None).unwrap();
        config.proxy = Some(proxy::ProxyConfig::new(realms, Vec::new(), Vec::new()));
        let nas = client::RadiusClientConfig::for_server(ServerConfig::new(
            diameter_address(1),
            secret_for_name("nas"),
        ));
        let home = node_config("home.example.org", "example.org").accept_from("aaa.visited.example");
        let seed = Seed::new(1);
        let mut net = MachineNetwork::new(ChannelConfig::default());
        let server = net.add_host(
            AaaServer::new(config, seed.derive_secure_rng("server", 0)).unwrap(),
            &[diameter_address(1).ip()],
        );
        net.bind_socket(server, radius_socket(0), diameter_address(1));
        let nas = net.add_host(RadiusClient::new(nas, seed.derive_secure_rng("nas", 0)).unwrap(), &[NAS]);
        let home = net.add_host(
            DiameterNode::new(home, NOW, seed.derive_secure_rng("home", 0)),
            &[diameter_address(2).ip()],
        );
        net.add_listener(home, ListenerId::from_number(0), diameter_address(2));
        net.run_until(NOW);
        Self { net, nas, home }
    }

    /// Returns the access server's reply for this answer of the home server. `None`: no reply.
    fn run_login(&mut self, result: u32, fill: impl FnOnce(&mut AvpBuf)) -> Option<RadiusReply> {
        let mut attributes = AttributeList::new();
        attributes.push_bytes(kind::USER_NAME, NAME).unwrap().push_eap(IDENTITY);
        let (target, code) = (RequestTarget::Server(0), PacketCode::ACCESS_REQUEST);
        self.net
            .send_command(
                self.nas,
                client::RadiusClientCommand::Request { token: 1, target, code, attributes },
            )
            .unwrap();
        self.net.run_until(NOW);
        let asked = self.net.take_events(self.home).into_iter().find_map(|(_, event)| match event {
            DiameterNodeEvent::Request { token, message, .. } => Some((token, message)),
            _ => None,
        });
        let (token, message) = asked.expect("a request");
        assert_eq!(DiameterEapRequest::parse(message.avps.as_sequence()).unwrap().eap, IDENTITY);
        let mut avps = DiameterEapAnswer {
            eap: None,
            ..DiameterEapAnswer::new(AuthRequestType::AuthorizeAuthenticate, &[])
        }
        .to_avps();
        fill(&mut avps);
        let result = ResultCode(result);
        self.net.send_command(self.home, node::DiameterNodeCommand::Answer { token, result, avps }).unwrap();
        self.net.run_until(NOW);
        match self.net.take_events(self.nas).pop() {
            Some((_, client::RadiusClientEvent::Response(response))) => Some(response),
            _ => None,
        }
    }
}

fn eap_packet(response: &RadiusReply) -> Vec<u8> {
    let mut eap = Vec::new();
    response.attributes.read_eap_packet(&mut eap);
    eap
}

/// RFC 6733 §7.1: an unknown class is a permanent failure. RFC 4072 §2.2: the code decides, not the EAP packet.
#[test]
fn a_code_that_is_none_lets_nobody_in() {
    for (result, expected) in [
        (2001, PacketCode::ACCESS_ACCEPT),
        (2002, PacketCode::ACCESS_ACCEPT),
        (4001, PacketCode::ACCESS_REJECT),
        (5003, PacketCode::ACCESS_REJECT),
        (0, PacketCode::ACCESS_REJECT),
        (6001, PacketCode::ACCESS_REJECT),
        (9999, PacketCode::ACCESS_REJECT),
    ] {
        // The EAP packet is a Success.
        let response = DiameterHomeNetwork::new().run_login(result, |avps| {
            avps.push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]);
        });
        assert_eq!(response.map(|r| r.code), Some(expected), "{result}");
    }
    // Nor does an error of a relay, which is no verdict.
    assert!(DiameterHomeNetwork::new().run_login(3002, |_| {}).is_none());
}

/// RFC 6733 §4.1: an access server that does not support a mandatory AVP must not accept the user.
#[test]
fn what_an_access_server_would_not_hear_of_is_a_refusal() {
    let filter = b"deny in ip from any to 192.0.2.0/24";
    for (id, expected) in [
        (AvpId::must(400), PacketCode::ACCESS_REJECT),
        (AvpId::may(400), PacketCode::ACCESS_ACCEPT),
        (AvpId::must(60_000), PacketCode::ACCESS_REJECT),
        (AvpId::must(11), PacketCode::ACCESS_ACCEPT),
    ] {
        let response = DiameterHomeNetwork::new().run_login(2001, |avps| {
            avps.push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]).push(id, filter);
        });
        let response = response.unwrap();
        assert_eq!(response.code, expected, "{id:?}");
        let packet = if expected == PacketCode::ACCESS_ACCEPT { 3 } else { 4 };
        assert_eq!(eap_packet(&response), [packet, 7, 0, 4]);
    }
}

/// RFC 4072 §6.1.
#[test]
fn a_request_that_comes_again_says_so_and_a_round_has_its_time() {
    let request = [1, 8, 0, 6, 4, 0];
    for (id, cause) in [(codes::EAP_PAYLOAD, None), (codes::EAP_REISSUED_PAYLOAD, Some(202))] {
        let response = DiameterHomeNetwork::new().run_login(1001, |avps| {
            avps.push(id, &request).push(codes::STATE, b"mine").push_u32(codes::MULTI_ROUND_TIME_OUT, 20);
        });
        let response = response.unwrap();
        assert_eq!((response.code, eap_packet(&response)), (PacketCode::ACCESS_CHALLENGE, request.to_vec()));
        assert_eq!(response.attributes.get_u32(kind::ERROR_CAUSE), cause);
        assert_eq!(response.attributes.get_u32(kind::SESSION_TIMEOUT), Some(20));
    }
}

/// RFC 6733 §8.9: a user with a limited authorization is reauthorized by its end.
#[test]
fn an_authorization_that_ends_ends_the_session() {
    for (lifetime, timeout, expected) in [
        (None, Some(600), (Some(600), None)),
        (Some(60), Some(600), (Some(60), Some(1))),
        (Some(60), None, (Some(60), Some(1))),
        (Some(u32::MAX), Some(600), (Some(600), None)),
        (Some(u32::MAX), None, (None, None)),
    ] {
        let response = DiameterHomeNetwork::new().run_login(2001, |avps| {
            for (id, value) in [(codes::AUTHORIZATION_LIFETIME, lifetime), (codes::SESSION_TIMEOUT, timeout)]
            {
                if let Some(value) = value {
                    avps.push_u32(id, value);
                }
            }
        });
        let a = response.unwrap().attributes;
        let said = (a.get_u32(kind::SESSION_TIMEOUT), a.get_u32(kind::TERMINATION_ACTION));
        assert_eq!(said, expected, "{lifetime:?} {timeout:?}");
    }
}

/// RFC 4072 §2.8.3, RFC 3579 §2.6.5.
#[test]
fn a_reply_message_does_not_pass_beside_an_eap_packet() {
    let response = DiameterHomeNetwork::new().run_login(2001, |avps| {
        avps.push_str(codes::REPLY_MESSAGE, "welcome").push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]);
    });
    assert_eq!(response.unwrap().attributes.get(kind::REPLY_MESSAGE), None);
}

/// RFC 6733 §8.1, §8.3, §8.5: a home server's request for a session that is not kept here gets an answer.
#[test]
fn a_home_server_hears_that_no_session_is_kept() {
    let mut world = DiameterHomeNetwork::new();
    for (command, mut avps) in [
        (codes::command::ABORT_SESSION, AvpBuf::new()),
        (codes::command::RE_AUTH, {
            let mut avps = AvpBuf::new();
            avps.push_u32(AvpId::must(285), 0);
            avps
        }),
    ] {
        avps.push_str(codes::USER_NAME, "ann@example.org");
        let request = node::DiameterRequest {
            token: 9,
            application: application::EAP,
            command,
            destination_realm: "visited.example".into(),
            destination_host: Some("aaa.visited.example".into()),
            session_id: "aaa.visited.example;1;1".into(),
            avps,
        };
        world.net.send_command(world.home, node::DiameterNodeCommand::Request(request)).unwrap();
        world.net.run_until(NOW);
        let answered = world.net.take_events(world.home).into_iter().find_map(|(_, event)| match event {
            DiameterNodeEvent::Answer { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(answered, Some(ResultCode::UNKNOWN_SESSION_ID), "{command}");
    }
}
