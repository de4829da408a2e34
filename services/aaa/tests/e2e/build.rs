//! Builders of test networks.

use crate::world::{AaaTestNetwork, DIAMETER_PORT, RADIUS_PORT, nas_address, server_address};
use std::net::SocketAddr;
use std::sync::Arc;
use usher_aaa::{AaaServer, User, UserDirectory, UserSource};
use usher_core::Seed;
use usher_diameter::codes::application;
use usher_diameter::node;
use usher_diameter::peer::capabilities::DiameterApplication;
use usher_nas::station::{self, EapCredentials};
use usher_nas::{
    AaaConfig, AccessStation, DiameterConfig, MacAddress, NasAuthenticator, NasIdentity, RadiusConfig,
    authenticator,
};
use usher_radius::client::{self, FailoverPolicy, RequestTarget, RetransmissionPolicy, ServerConfig};
use usher_radius::server::ClientConfig;
use usher_radius::{SharedSecret, attribute::kind};

pub(crate) const PASSWORD: &[u8] = b"open sesame";

pub(crate) fn shared_secret() -> SharedSecret {
    SharedSecret::new(b"sixteen octets!!")
}
pub(crate) fn user_name(i: usize) -> Vec<u8> {
    format!("user{i}@example.org").into_bytes()
}
pub(crate) fn station_mac(i: usize) -> MacAddress {
    let [a, b, c, d] = (i as u32).to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

/// Users with passwords and a Session-Timeout of an hour.
pub(crate) fn test_users(seed: Seed, n: usize) -> Arc<UserDirectory> {
    let mut users = UserDirectory::new(&mut seed.derive_secure_rng("users", 0));
    for i in 0..n {
        let mut user = User::with_password(PASSWORD);
        user.reply.push_u32(kind::SESSION_TIMEOUT, 3600);
        users.insert(&user_name(i), user);
    }
    Arc::new(users)
}

pub(crate) fn aaa_config(users: Arc<UserDirectory>) -> usher_aaa::AaaServerConfig {
    let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(users));
    let network = ClientConfig::new(nas_address(0), 16, shared_secret());
    let mut radius = usher_radius::server::RadiusServerConfig::new(vec![network]);
    // Longer than the NAS's longest retransmission interval, so that a lost reply is repeated from the cache.
    radius.retain = usher_core::Duration::from_secs(20);
    config.radius = Some(radius);
    config
}

/// A NAS with the first `servers` RADIUS servers, the first preferred. Retransmission after 2, 4, 8 s without
/// jitter.
pub(crate) fn radius_nas(servers: usize) -> authenticator::AuthenticatorConfig {
    let server = |i| ServerConfig::new(SocketAddr::new(server_address(i), RADIUS_PORT), shared_secret());
    let mut client = client::RadiusClientConfig::for_server(server(0));
    client.servers = (0..servers).map(server).collect();
    client.groups = vec![(0..servers as u16).collect()];
    client.failover = Some(FailoverPolicy { after: 2, ..FailoverPolicy::default() });
    client.retransmission = RetransmissionPolicy::Backoff {
        initial: usher_core::Duration::from_secs(2),
        max: usher_core::Duration::from_secs(16),
        max_count: 5,
        max_duration: usher_core::Duration::from_secs(30),
        jitter: 0.0,
    };
    let (target, accounting) = (RequestTarget::Group(0), RequestTarget::Group(0));
    let aaa = AaaConfig::Radius(RadiusConfig { target, accounting, ..RadiusConfig::new(client) });
    let mut nas = NasIdentity::for_ethernet("switch.example.org");
    nas.address = Some(nas_address(0));
    authenticator::AuthenticatorConfig::new(nas, aaa)
}

/// An AAA server, a NAS and stations before their first login.
pub(crate) fn test_network(
    stations: usize,
    nas: authenticator::AuthenticatorConfig,
    aaa: &[usher_aaa::AaaServerConfig],
) -> AaaTestNetwork {
    let seed = Seed::new(7);
    let serve = |(i, config): (u64, &usher_aaa::AaaServerConfig)| {
        AaaServer::new(config.clone(), seed.derive_secure_rng("aaa", i)).unwrap()
    };
    let servers = (0..).zip(aaa).map(serve).collect();
    let (access, keying) = (nas.access, nas.keying);
    let station = |i| {
        let config = station::StationConfig { access, keying, ..station::StationConfig::new(station_mac(i)) };
        AccessStation::new(config, seed.derive_secure_rng("station", i as u64))
    };
    let nas = NasAuthenticator::new(nas, seed.derive_secure_rng("nas", 0)).unwrap();
    AaaTestNetwork::new(servers, nas, (0..stations).map(station).collect())
}

impl AaaTestNetwork {
    pub(crate) fn start_login(&mut self, i: usize, name: &[u8], credentials: EapCredentials) {
        let identity = name.to_vec();
        self.net
            .send_command(self.stations[i], station::StationCommand::Authenticate { identity, credentials })
            .unwrap();
    }
    pub(crate) fn start_password_login(&mut self, i: usize) {
        self.start_login(i, &user_name(i), EapCredentials::from_password(PASSWORD));
    }
    /// Returns the end of each login, in the order of the stations.
    pub(crate) fn station_outcomes(&self) -> Vec<station::StationEvent> {
        let mut all: Vec<_> = self.station_events.iter().map(|(i, _, e)| (*i, e.clone())).collect();
        all.sort_by_key(|(i, _)| *i);
        all.into_iter().map(|(_, e)| e).collect()
    }
}

pub(crate) fn server_name(i: usize) -> String {
    format!("aaa{i}.example.org")
}

/// A server that accepts the NAS's connection.
pub(crate) fn diameter_server(i: usize, users: Arc<UserDirectory>) -> usher_aaa::AaaServerConfig {
    let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(users));
    let applications = [
        DiameterApplication::for_authentication(application::EAP),
        DiameterApplication::for_authentication(application::NASREQ),
    ];
    let mut node = node::DiameterNodeConfig::new(&server_name(i), "example.org", &applications);
    node.local.addresses.push(server_address(i));
    config.diameter = Some(node.accept_from("switch.example.org"));
    config
}

/// A NAS with connections to `servers` servers, the first preferred.
pub(crate) fn diameter_nas(servers: usize) -> authenticator::AuthenticatorConfig {
    with_diameter(diameter_config(servers))
}
pub(crate) fn with_diameter(config: DiameterConfig) -> authenticator::AuthenticatorConfig {
    let aaa = AaaConfig::Diameter(Box::new(config));
    authenticator::AuthenticatorConfig::new(NasIdentity::for_ethernet("switch.example.org"), aaa)
}
pub(crate) fn diameter_config(servers: usize) -> DiameterConfig {
    let applications = [
        DiameterApplication::for_authentication(application::EAP),
        DiameterApplication::for_authentication(application::NASREQ),
    ];
    let mut node = node::DiameterNodeConfig::new("switch.example.org", "example.org", &applications);
    node.local.addresses.push(nas_address(0));
    for i in 0..servers {
        node = node.connect_to(&server_name(i), SocketAddr::new(server_address(i), DIAMETER_PORT));
    }
    DiameterConfig::new(node, "example.org".into())
}
