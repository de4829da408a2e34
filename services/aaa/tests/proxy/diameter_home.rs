//! What a Diameter home server may answer, and what an access server that speaks RADIUS hears of it (RFC 4072 §6, RFC
//! 6733 §4.1, §7.1, §8.9).

use crate::world::{NAS, secret};
use std::net::SocketAddr;
use usher_aaa::proxy::{self, Realm, Realms, Route};
use usher_aaa::{AaaServer, Config, UserSource, Users, radius_socket};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Instant, ListenerId, Seed};
use usher_diameter::ResultCode;
use usher_diameter::avp::{AvpBuf, AvpId};
use usher_diameter::codes::{self, application};
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::AuthRequestType;
use usher_diameter::node::{self, Event, Node};
use usher_diameter::peer::capabilities::Application;
use usher_radius::attribute::kind;
use usher_radius::client::{self, Client, Response, ServerConfig, Target};
use usher_radius::server::ClientConfig;
use usher_radius::{Attributes, Code};

const NOW: Instant = Instant::ZERO;
const NAME: &[u8] = b"ann@example.org";
const IDENTITY: &[u8] = b"\x02\x07\x00\x14\x01ann@example.org";

fn at(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, last], 3868))
}
fn node(host: &str, realm: &str) -> node::Config {
    let mut config = node::Config::new(host, realm, &[Application::auth(application::EAP)]);
    config.local.addresses.push([10, 0, 1, 1].into());
    config
}

/// A translating server, an access server before it, and a home server behind it that says what it is told to.
struct World {
    net: Network,
    nas: At<Client>,
    home: At<Node>,
}

impl World {
    fn new() -> Self {
        let users = Users::new(&mut Seed::new(1).secure("users", 0));
        let mut config = Config::new(UserSource::Memory(users.into()));
        config.radius =
            Some(usher_radius::server::Config::new(vec![ClientConfig::new(NAS, 32, secret("nas"))]));
        config.diameter =
            Some(node("aaa.visited.example", "visited.example").connect_to("home.example.org", at(2)));
        let route = Route::Diameter { realm: "example.org".into() };
        let realms = Realms::new(vec![Realm::new("example.org", route)], None).unwrap();
        config.proxy = Some(proxy::Config::new(realms, Vec::new(), Vec::new()));
        let nas = client::Config::single(ServerConfig::new(at(1), secret("nas")));
        let home = node("home.example.org", "example.org").accept("aaa.visited.example");
        let seed = Seed::new(1);
        let mut net = Network::new(ChannelConfig::default());
        let server = net.add(AaaServer::new(config, seed.secure("server", 0)).unwrap(), &[at(1).ip()]);
        net.bind(server, radius_socket(0), at(1));
        let nas = net.add(Client::new(nas, seed.secure("nas", 0)).unwrap(), &[NAS]);
        let home = net.add(Node::new(home, NOW, seed.secure("home", 0)), &[at(2).ip()]);
        net.listen(home, ListenerId::own(0), at(2));
        net.run_until(NOW);
        Self { net, nas, home }
    }

    /// What the access server hears when the home server answers so; `None`: nothing.
    fn login(&mut self, result: u32, fill: impl FnOnce(&mut AvpBuf)) -> Option<Response> {
        let mut attributes = Attributes::new();
        attributes.push_bytes(kind::USER_NAME, NAME).unwrap().push_eap(IDENTITY);
        let (target, code) = (Target::Server(0), Code::ACCESS_REQUEST);
        self.net.command(self.nas, client::Command::Request { token: 1, target, code, attributes }).unwrap();
        self.net.run_until(NOW);
        let asked = self.net.take(self.home).into_iter().find_map(|(_, event)| match event {
            Event::Request { token, message, .. } => Some((token, message)),
            _ => None,
        });
        let (token, message) = asked.expect("a request");
        assert_eq!(Der::parse(message.avps.view()).unwrap().eap, IDENTITY);
        let mut avps = Dea { eap: None, ..Dea::new(AuthRequestType::AuthorizeAuthenticate, &[]) }.avps();
        fill(&mut avps);
        let result = ResultCode(result);
        self.net.command(self.home, node::Command::Answer { token, result, avps }).unwrap();
        self.net.run_until(NOW);
        match self.net.take(self.nas).pop() {
            Some((_, client::Event::Response(response))) => Some(response),
            _ => None,
        }
    }
}

fn eap(response: &Response) -> Vec<u8> {
    let mut eap = Vec::new();
    response.attributes.eap(&mut eap);
    eap
}

/// RFC 6733 §7.1: a class that is not known is a permanent failure; RFC 4072 §2.2: the code decides, and not the packet.
#[test]
fn a_code_that_is_none_lets_nobody_in() {
    for (result, expected) in [
        (2001, Code::ACCESS_ACCEPT),
        (2002, Code::ACCESS_ACCEPT),
        (4001, Code::ACCESS_REJECT),
        (5003, Code::ACCESS_REJECT),
        (0, Code::ACCESS_REJECT),
        (6001, Code::ACCESS_REJECT),
        (9999, Code::ACCESS_REJECT),
    ] {
        // The packet says Success.
        let response = World::new().login(result, |avps| {
            avps.push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]);
        });
        assert_eq!(response.map(|r| r.code), Some(expected), "{result}");
    }
    // Nor does what is no verdict: somebody on the way could not deliver it.
    assert!(World::new().login(3002, |_| {}).is_none());
}

/// RFC 6733 §4.1: whoever cannot do what has to be done does not let in.
#[test]
fn what_an_access_server_would_not_hear_of_is_a_refusal() {
    let filter = b"deny in ip from any to 192.0.2.0/24";
    for (id, expected) in [
        (AvpId::must(400), Code::ACCESS_REJECT),
        (AvpId::may(400), Code::ACCESS_ACCEPT),
        (AvpId::must(60_000), Code::ACCESS_REJECT),
        (AvpId::must(11), Code::ACCESS_ACCEPT),
    ] {
        let response = World::new().login(2001, |avps| {
            avps.push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]).push(id, filter);
        });
        let response = response.unwrap();
        assert_eq!(response.code, expected, "{id:?}");
        let packet = if expected == Code::ACCESS_ACCEPT { 3 } else { 4 };
        assert_eq!(eap(&response), [packet, 7, 0, 4]);
    }
}

/// RFC 4072 §6.1.
#[test]
fn a_request_that_comes_again_says_so_and_a_round_has_its_time() {
    let request = [1, 8, 0, 6, 4, 0];
    for (id, cause) in [(codes::EAP_PAYLOAD, None), (codes::EAP_REISSUED_PAYLOAD, Some(202))] {
        let response = World::new().login(1001, |avps| {
            avps.push(id, &request).push(codes::STATE, b"mine").push_u32(codes::MULTI_ROUND_TIME_OUT, 20);
        });
        let response = response.unwrap();
        assert_eq!((response.code, eap(&response)), (Code::ACCESS_CHALLENGE, request.to_vec()));
        assert_eq!(response.attributes.get_u32(kind::ERROR_CAUSE), cause);
        assert_eq!(response.attributes.get_u32(kind::SESSION_TIMEOUT), Some(20));
    }
}

/// RFC 6733 §8.9: whoever is let in for a while is asked for again by then.
#[test]
fn an_authorization_that_ends_ends_the_session() {
    for (lifetime, timeout, expected) in [
        (None, Some(600), (Some(600), None)),
        (Some(60), Some(600), (Some(60), Some(1))),
        (Some(60), None, (Some(60), Some(1))),
        (Some(u32::MAX), Some(600), (Some(600), None)),
        (Some(u32::MAX), None, (None, None)),
    ] {
        let response = World::new().login(2001, |avps| {
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
    let response = World::new().login(2001, |avps| {
        avps.push_str(codes::REPLY_MESSAGE, "welcome").push(codes::EAP_PAYLOAD, &[3, 7, 0, 4]);
    });
    assert_eq!(response.unwrap().attributes.get(kind::REPLY_MESSAGE), None);
}

/// RFC 6733 §8.1, §8.3, §8.5: a home server's wish for a session that is not kept here is answered.
#[test]
fn a_home_server_hears_that_no_session_is_kept() {
    let mut world = World::new();
    for (command, mut avps) in [
        (codes::command::ABORT_SESSION, AvpBuf::new()),
        (codes::command::RE_AUTH, {
            let mut avps = AvpBuf::new();
            avps.push_u32(AvpId::must(285), 0);
            avps
        }),
    ] {
        avps.push_str(codes::USER_NAME, "ann@example.org");
        let request = node::Request {
            token: 9,
            application: application::EAP,
            command,
            destination_realm: "visited.example".into(),
            destination_host: Some("aaa.visited.example".into()),
            session_id: "aaa.visited.example;1;1".into(),
            avps,
        };
        world.net.command(world.home, node::Command::Request(request)).unwrap();
        world.net.run_until(NOW);
        let answered = world.net.take(world.home).into_iter().find_map(|(_, event)| match event {
            Event::Answer { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(answered, Some(ResultCode::UNKNOWN_SESSION_ID), "{command}");
    }
}
