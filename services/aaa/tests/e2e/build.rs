//! Worlds to test in.

use crate::world::{DIAMETER_PORT, RADIUS_PORT, World, nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserSource, Users};
use usher_core::Seed;
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_nas::station::{self, Credentials};
use usher_nas::{
    AaaConfig, Authenticator, DiameterConfig, MacAddress, NasIdentity, RadiusConfig, Station, authenticator,
};
use usher_radius::client::{self, Failover, Retransmission, ServerConfig, Target};
use usher_radius::server::ClientConfig;
use usher_radius::{Secret, attribute::kind};

pub(crate) const PASSWORD: &[u8] = b"open sesame";

pub(crate) fn secret() -> Secret {
    Secret::new(b"sixteen octets!!")
}
pub(crate) fn user_name(i: usize) -> Vec<u8> {
    format!("user{i}@example.org").into_bytes()
}
pub(crate) fn mac(i: usize) -> MacAddress {
    let [a, b, c, d] = (i as u32).to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

/// Users with passwords, who also get a Session-Timeout of an hour.
pub(crate) fn users(seed: Seed, n: usize) -> Arc<Users> {
    let mut users = Users::new(&mut seed.secure("users", 0));
    for i in 0..n {
        let mut user = User::with_password(PASSWORD);
        user.reply.push_u32(kind::SESSION_TIMEOUT, 3600);
        users.insert(&user_name(i), user);
    }
    Arc::new(users)
}

pub(crate) fn aaa_config(users: Arc<Users>) -> usher_aaa::Config {
    let mut config = usher_aaa::Config::new(UserSource::Memory(users));
    let network = ClientConfig::new(nas_address(0), 16, secret());
    let mut radius = usher_radius::server::Config::new(vec![network]);
    // Longer than the NAS's longest wait: a verdict that was lost is then said again, not judged anew.
    radius.retain = usher_core::Duration::from_secs(20);
    config.radius = Some(radius);
    config
}

/// A NAS that asks the first `servers` servers by RADIUS, the first preferred; 2, 4, 8 s without jitter.
pub(crate) fn radius_nas(servers: usize) -> authenticator::Config {
    let server = |i| ServerConfig::new(SocketAddr::new(server_address(i), RADIUS_PORT), secret());
    let mut client = client::Config::single(server(0));
    client.servers = (0..servers).map(server).collect();
    client.groups = vec![(0..servers as u16).collect()];
    client.failover = Some(Failover { after: 2, ..Failover::default() });
    client.retransmission = Retransmission::Backoff {
        initial: usher_core::Duration::from_secs(2),
        max: usher_core::Duration::from_secs(16),
        max_count: 5,
        max_duration: usher_core::Duration::from_secs(30),
        jitter: 0.0,
    };
    let (target, accounting) = (Target::Group(0), Target::Group(0));
    let aaa = AaaConfig::Radius(RadiusConfig { target, accounting, ..RadiusConfig::new(client) });
    let mut nas = NasIdentity::ethernet("switch.example.org");
    nas.address = Some(nas_address(0));
    authenticator::Config::new(nas, aaa)
}

/// One AAA server, one NAS and so many stations, none of which has asked yet.
pub(crate) fn world(stations: usize, nas: authenticator::Config, aaa: &[usher_aaa::Config]) -> World {
    let seed = Seed::new(7);
    let serve = |(i, config): (u64, &usher_aaa::Config)| {
        AaaServer::new(config.clone(), seed.secure("aaa", i)).unwrap()
    };
    let servers = (0..).zip(aaa).map(serve).collect();
    let (access, keying) = (nas.access, nas.keying);
    let station = |i| {
        let config = station::Config { access, keying, ..station::Config::new(mac(i)) };
        Station::new(config, seed.secure("station", i as u64))
    };
    let nas = Authenticator::new(nas, seed.secure("nas", 0)).unwrap();
    World::new(servers, nas, (0..stations).map(station).collect())
}

impl World {
    pub(crate) fn ask_in(&mut self, i: usize, name: &[u8], credentials: Credentials) {
        let identity = name.to_vec();
        self.net.command(self.stations[i], station::Command::Authenticate { identity, credentials }).unwrap();
    }
    pub(crate) fn ask_in_by_password(&mut self, i: usize) {
        self.ask_in(i, &user_name(i), Credentials::password(PASSWORD));
    }
    /// How each attempt ended, in the order of the stations.
    pub(crate) fn outcomes(&self) -> Vec<station::Event> {
        let mut all: Vec<_> = self.station_events.iter().map(|(i, _, e)| (*i, e.clone())).collect();
        all.sort_by_key(|(i, _)| *i);
        all.into_iter().map(|(_, e)| e).collect()
    }
}

pub(crate) fn server_name(i: usize) -> String {
    format!("aaa{i}.example.org")
}

/// A server that the NAS may connect to.
pub(crate) fn diameter_server(i: usize, users: Arc<Users>) -> usher_aaa::Config {
    let mut config = usher_aaa::Config::new(UserSource::Memory(users));
    let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
    let mut node = node::Config::new(&server_name(i), "example.org", &applications);
    node.local.addresses.push(server_address(i));
    config.diameter = Some(node.accept("switch.example.org"));
    config
}

/// A NAS that is connected to `servers` servers, the first preferred.
pub(crate) fn diameter_nas(servers: usize) -> authenticator::Config {
    with_diameter(diameter_config(servers))
}
pub(crate) fn with_diameter(config: DiameterConfig) -> authenticator::Config {
    let aaa = AaaConfig::Diameter(Box::new(config));
    authenticator::Config::new(NasIdentity::ethernet("switch.example.org"), aaa)
}
pub(crate) fn diameter_config(servers: usize) -> DiameterConfig {
    let applications = [Application::auth(application::EAP), Application::auth(application::NASREQ)];
    let mut node = node::Config::new("switch.example.org", "example.org", &applications);
    node.local.addresses.push(nas_address(0));
    for i in 0..servers {
        node = node.connect_to(&server_name(i), SocketAddr::new(server_address(i), DIAMETER_PORT));
    }
    DiameterConfig::new(node, "example.org".into())
}
