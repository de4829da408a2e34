//! Logins that go on by another connection, at another of several servers of one key.

use crate::build::{PASSWORD, aaa_config, user_name, users};
use std::net::SocketAddr;
use usher_aaa::{
    AaaServer, Command, Config, DIAMETER_LISTENER, Event, RADSEC_LISTENER, ShardConfig, ShardKey,
};
use usher_core::bench::{At, Network};
use usher_core::impair::ChannelConfig;
use usher_core::{Instant, ListenerId, Machine, Seed};
use usher_crypto::digest::md5;
use usher_diameter::codes::application;
use usher_diameter::eap::{Dea, Der};
use usher_diameter::nasreq::{AuthRequestType, NasInfo};
use usher_diameter::node::{self, Node};
use usher_diameter::peer::capabilities::Application;
use usher_diameter::{ResultCode, codes};
use usher_radius::attribute::{Attributes, kind};
use usher_radius::client::{self, Client, ServerConfig, Target};
use usher_radius::packet::Code;
use usher_radius::server::ClientConfig;

const NOW: Instant = Instant::ZERO;

fn address(n: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 2083 + n))
}

/// Servers of one key, and who connects to each of them.
struct Shards<C> {
    net: Network,
    client: At<C>,
    servers: Vec<At<AaaServer>>,
    accepted: Vec<usize>,
    handed: usize,
}

impl<C: Machine<Command: 'static, Event: 'static, Job: 'static> + 'static> Shards<C> {
    fn new(client: C, listener: ListenerId, config: impl Fn(u16) -> Config) -> Self {
        let mut net = Network::new(ChannelConfig::default());
        let client = net.add(client, &[address(0).ip()]);
        let server = |number: u16| {
            let mut config = config(number);
            config.shard = Some(ShardConfig { number, key: ShardKey::new(&[7; 16]) });
            let server = AaaServer::new(config, Seed::new(1).secure("server", number.into())).unwrap();
            let host = net.add(server, &[address(0).ip()]);
            net.listen(host, listener, address(number));
            host
        };
        let servers = (0..2).map(server).collect();
        Self { net, client, servers, accepted: Vec::new(), handed: 0 }
    }

    /// Gives the client a command, and lets everything arrive: the first thing that it says then.
    fn ask(&mut self, command: C::Command) -> C::Event {
        self.net.command(self.client, command).unwrap();
        self.settle();
        self.net.take(self.client).remove(0).1
    }

    fn settle(&mut self) {
        let mut idle = false;
        while !idle {
            self.net.run_until(NOW);
            idle = true;
            for (i, server) in self.servers.clone().into_iter().enumerate() {
                for (_, event) in self.net.take(server) {
                    idle = false;
                    self.event(i, event);
                }
            }
        }
    }

    fn event(&mut self, at: usize, event: Event) {
        match event {
            Event::HandOver { shard, handed } => {
                self.handed += 1;
                let from = at as u16;
                self.net.command(self.servers[usize::from(shard)], Command::Handed { from, handed }).unwrap();
            }
            Event::HandBack { shard, back } => {
                self.net.command(self.servers[usize::from(shard)], Command::HandedBack(back)).unwrap();
            }
            Event::Accepted(_) => self.accepted.push(at),
            _ => {}
        }
    }
}

/// The response to an MD5-Challenge.
fn response(challenge: &[u8], password: &[u8]) -> Vec<u8> {
    let (identifier, value) = (challenge[1], &challenge[6..22]);
    let digest = md5(&[&[identifier], password, value]);
    [&[2, identifier, 0, 22, 4, 16][..], &digest].concat()
}

fn identity(name: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, name.len() as u8 + 5, 1], name].concat()
}

#[test]
fn a_radsec_login_goes_on_by_another_connection() {
    for (password, code) in [(PASSWORD, Code::ACCESS_ACCEPT), (&b"wrong"[..], Code::ACCESS_REJECT)] {
        let mut config = client::Config::single(ServerConfig::radsec(address(0)));
        config.servers.push(ServerConfig::radsec(address(1)));
        let client = Client::new(config, Seed::new(1).secure("client", 0)).unwrap();
        let mut shards = Shards::new(client, RADSEC_LISTENER, |_| {
            let mut config = aaa_config(users(Seed::new(1), 1));
            let any = "0.0.0.0".parse().unwrap();
            config.radius.as_mut().unwrap().clients = vec![ClientConfig::radsec(any, 0, Vec::new())];
            config
        });
        let ask = |shards: &mut Shards<Client>, server: u16, eap: &[u8], state: Option<&[u8]>| {
            let mut attributes = Attributes::new();
            attributes.push_bytes(kind::USER_NAME, &user_name(0)).unwrap();
            attributes.push_eap(eap);
            if let Some(state) = state {
                attributes.push_bytes(kind::STATE, state).unwrap();
            }
            let target = Target::Server(server);
            let request = client::Command::Request {
                token: server.into(),
                target,
                code: Code::ACCESS_REQUEST,
                attributes,
            };
            match shards.ask(request) {
                client::Event::Response(r) => r,
                other => panic!("{other:?}"),
            }
        };
        let challenge = ask(&mut shards, 0, &identity(&user_name(0)), None);
        assert_eq!((challenge.code, shards.handed), (Code::ACCESS_CHALLENGE, 0));
        let mut eap = Vec::new();
        assert!(challenge.attributes.eap(&mut eap));
        let state = challenge.attributes.get(kind::STATE).unwrap().to_vec();
        // The connection is gone, and the next one ends at the other server.
        let end = ask(&mut shards, 1, &response(&eap, password), Some(&state));
        assert_eq!((end.code, shards.handed), (code, 1));
        let accepted = shards.net[shards.servers[0]].counters().accepted_eap_md5;
        assert_eq!(accepted == 1, code == Code::ACCESS_ACCEPT, "the first decided");
        assert_eq!(shards.net[shards.servers[1]].counters().sessions, 0);
        // A State that nobody made is decided where it comes, and by nobody.
        let strange = ask(&mut shards, 1, &response(&eap, password), Some(&[0; 16]));
        assert_eq!((strange.code, shards.handed), (Code::ACCESS_REJECT, 1));
    }
}

#[test]
fn a_diameter_session_goes_on_by_another_connection() {
    let identity_of = |n: u16| format!("s{n}.example.org");
    let mut config =
        node::Config::new("nas.example.org", "example.org", &[Application::auth(application::EAP)]);
    config.local.addresses.push([10, 0, 0, 9].into());
    for n in 0..2 {
        config = config.connect_to(&identity_of(n), address(n));
    }
    let client = Node::new(config, NOW, Seed::new(1).secure("client", 0));
    let mut shards = Shards::new(client, DIAMETER_LISTENER, |number| {
        let mut config = aaa_config(users(Seed::new(1), 1));
        let mut node =
            node::Config::new(&identity_of(number), "example.org", &[Application::auth(application::EAP)]);
        node.local.addresses.push([10, 0, 0, 1].into());
        config.diameter = Some(node.accept("nas.example.org"));
        config
    });
    shards.settle();
    shards.net.take(shards.client);
    let name = String::from_utf8(user_name(0)).unwrap();
    let ask = |shards: &mut Shards<Node>, server: u16, eap: &[u8], state: Option<&[u8]>| {
        let der = Der {
            request_type: AuthRequestType::AuthorizeAuthenticate,
            eap,
            user_name: Some(&name),
            state,
            nas: NasInfo::default(),
        };
        let session = "nas.example.org;1;1".to_owned();
        let der = der.request(server.into(), session, "example.org".into(), Some(identity_of(server)));
        match shards.ask(node::Command::Request(der)) {
            node::Event::Answer { result, avps, .. } => (result, avps),
            other => panic!("{other:?}"),
        }
    };
    let (result, avps) = ask(&mut shards, 0, &identity(&user_name(0)), None);
    assert_eq!(result, ResultCode::MULTI_ROUND_AUTH);
    let dea = Dea::parse(avps.view()).unwrap();
    let (eap, state) = (dea.eap.unwrap().to_vec(), dea.state.unwrap().to_vec());
    let (result, avps) = ask(&mut shards, 1, &response(&eap, PASSWORD), Some(&state));
    assert_eq!((result, shards.handed, &shards.accepted[..]), (ResultCode::SUCCESS, 1, &[0][..]));
    let origin = avps.view().get(codes::ORIGIN_HOST).unwrap();
    assert_eq!(origin.identity().unwrap(), "s1.example.org", "the answer leaves by its connection");
    assert_eq!(Dea::parse(avps.view()).unwrap().eap.unwrap()[0], 3);
}
