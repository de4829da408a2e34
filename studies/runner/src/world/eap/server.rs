//! The AAA servers of the workload: a NAS's view of a server, and the workload's own servers.

use super::super::aaa::{self, ServerRole};
use super::super::error::ScenarioRunError;
use super::super::machine::MachineSockets;
use super::super::plan::NetworkPlan;
use super::diameter;
use super::tls::EapTlsSetup;
use super::users::{PASSWORD, SECRET, station_identity};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{DIAMETER_LISTENER, RADSEC_LISTENER, User, UserDirectory, UserSource, radius_socket};
use usher_aaa_config::LoadedAaaConfig;
use usher_core::{Duration, TransportProtocol};
use usher_crypto::certificate::PeerCertificateCondition;
use usher_crypto::tls::{KeyLog, ServerConfig, SharedWallClock, TlsServerOptions, fixtures};
use usher_diameter::node;
use usher_radius::SharedSecret;
use usher_scenario::model::{EapWorkload, NasAaaProtocol};
use usher_scenario::ports::{ACCOUNTING, DIAMETER, DIAMETER_TLS, RADIUS, RADSEC};
use usher_sim::{HostId, IpVersion};

/// A NAS's view of its server.
pub(super) struct AaaServerInfo {
    /// RADIUS: the shared secret.
    pub(super) secret: SharedSecret,
    /// The addresses for logins, by the workload's protocol, and for RADIUS accounting.
    pub(super) logins: SocketAddr,
    pub(super) accounting: SocketAddr,
    /// Its Diameter identity.
    pub(super) identity: String,
    /// Names that its certificate may have beside its identity.
    pub(super) certificates: Vec<PeerCertificateCondition>,
}

/// Returns the server information for the NAS at an address.
pub(super) fn build_aaa_server_info(
    plan: &NetworkPlan<'_>,
    eap: &EapWorkload,
    (index, host): (u64, HostId),
    nas: IpAddr,
) -> AaaServerInfo {
    let loaded = plan.scenario.aaa_service(&eap.server);
    let port = |listened: fn(&LoadedAaaConfig) -> &[SocketAddr], usual: u16| {
        let reached = |at: &&SocketAddr| plan.addresses.is_reachable_at(host, at.ip());
        let at = loaded.and_then(|loaded| listened(loaded).iter().find(reached));
        SocketAddr::new(plan.addresses.address_of(host), at.map_or(usual, SocketAddr::port))
    };
    let secret = loaded
        .and_then(|loaded| loaded.longest_prefix_client(nas)?.secret.as_ref())
        .map(|secret| SharedSecret::new(secret.0.as_bytes()));
    let identity = loaded.and_then(|loaded| loaded.file.diameter.as_ref()).map(|own| own.identity.clone());
    AaaServerInfo {
        secret: secret.unwrap_or_else(|| SharedSecret::new(SECRET.as_bytes())),
        logins: match eap.aaa {
            NasAaaProtocol::Radius => port(|l| &l.file.listen.auth, RADIUS),
            NasAaaProtocol::Radsec => port(|l| &l.file.listen.radsec, RADSEC),
            NasAaaProtocol::Diameter if eap.uses_tls_transport() => {
                port(|l| &l.file.listen.diameter_tls, DIAMETER_TLS)
            }
            NasAaaProtocol::Diameter if eap.diameter.transport == TransportProtocol::Sctp => {
                port(|l| &l.file.listen.diameter_sctp, DIAMETER)
            }
            NasAaaProtocol::Diameter => port(|l| &l.file.listen.diameter, DIAMETER),
        },
        accounting: port(|l| &l.file.listen.acct, ACCOUNTING),
        identity: identity.unwrap_or_else(|| aaa_server_name(index, &eap.realm)),
        certificates: match loaded {
            Some(_) => Vec::new(),
            None => vec![PeerCertificateCondition::Name(fixtures::SERVER_NAME.to_owned())],
        },
    }
}

fn aaa_server_name(index: u64, realm: &str) -> String {
    format!("aaa-{index}.{realm}")
}

/// Places a workload's own server on a host. It knows the stations and offers the method.
pub(super) fn build_server(
    plan: &mut NetworkPlan<'_>,
    eap: &EapWorkload,
    (tls, key_log): (Option<&EapTlsSetup>, &KeyLog),
    (stations, nases): (usize, usize),
    (index, host): (u64, HostId),
) -> Result<(), ScenarioRunError> {
    let mut rng = plan.seed.derive_secure_rng("aaa.server", index);
    let mut users = UserDirectory::new(&mut rng);
    for station in 0..stations as u64 {
        users.insert(&station_identity(plan.name, station, &eap.realm), User::with_password(PASSWORD));
    }
    let mut config = usher_aaa::AaaServerConfig::new(UserSource::Memory(Arc::new(users)));
    config.methods = vec![eap.method];
    if let Some(tls) = tls {
        tls.offer_server_tls_method(&mut config);
    }
    // Set no limits on time and number: a study must show the network's effect on logins, however many and slow.
    config.login_timeout = Duration::MAX;
    config.max_half_open_octets = usize::MAX;
    let any = match plan.addresses.ip_version() {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let client = match eap.aaa {
        NasAaaProtocol::Radius => {
            Some(usher_radius::server::ClientConfig::new(any, 0, SharedSecret::new(SECRET.as_bytes())))
        }
        NasAaaProtocol::Radsec => {
            let of_nas = vec![PeerCertificateCondition::Name(fixtures::CLIENT_NAME.to_owned())];
            Some(usher_radius::server::ClientConfig::for_radsec(any, 0, of_nas))
        }
        NasAaaProtocol::Diameter => None,
    };
    if let Some(client) = client {
        let mut radius = usher_radius::server::RadiusServerConfig::new(vec![client]);
        radius.retain = eap.radius.duplicate_cache.get();
        config.radius = Some(radius);
    } else {
        let mut node = node::DiameterNodeConfig::new(
            &aaa_server_name(index, &eap.realm),
            &eap.realm,
            diameter::diameter_applications(eap),
        );
        node.local.addresses = vec![plan.addresses.address_of(host)];
        node.accept_unknown = !eap.uses_tls_transport();
        // A study has hundreds of NASs, each with the number of connections that the study sets.
        node.max_peers = usize::MAX;
        node.accept_policy = diameter::convert_stream_policy(eap.diameter.stream_policy);
        diameter::apply_timing(&mut node, eap, diameter::reconnect_delay(plan.scenario, eap));
        if !node.accept_unknown {
            // Map each identity explicitly, because the built-in certificates do not name the NASs.
            for identity in (0..nases as u64).flat_map(|i| diameter::connection_identities(plan.name, eap, i))
            {
                node = node.accept_from(&identity);
            }
            for peer in &mut node.peers {
                let certificates = vec![PeerCertificateCondition::Name(fixtures::CLIENT_NAME.to_owned())];
                peer.authentication =
                    node::PeerAuthentication { certificates, tls: true, ..Default::default() };
            }
        }
        config.diameter = Some(node);
    }
    let mut endpoint = MachineSockets::new(plan.host_address(host)).with_listener(DIAMETER_LISTENER);
    let (authentication, accounts) =
        (endpoint.socket_number(radius_socket(0)), endpoint.socket_number(radius_socket(1)));
    if eap.uses_tls_transport() {
        let (port, listener) = match eap.aaa {
            NasAaaProtocol::Diameter => (DIAMETER_TLS, DIAMETER_LISTENER),
            NasAaaProtocol::Radius | NasAaaProtocol::Radsec => (RADSEC, RADSEC_LISTENER),
        };
        endpoint.register_listener(port, listener, Some(own_tls(plan, eap, key_log)?));
    }
    let seed = plan.seed.derive_seed("aaa.server", index);
    let server = ServerRole::new(endpoint, config, aaa::build_standalone_server_parts(seed), seed)
        .map_err(ScenarioRunError::Role)?;
    let app = plan.add_role(host, server);
    match eap.aaa {
        NasAaaProtocol::Radius => {
            plan.builder.bind_udp(app, authentication, RADIUS)?;
            if eap.accounting.used {
                plan.builder.bind_udp(app, accounts, ACCOUNTING)?;
            }
        }
        NasAaaProtocol::Radsec => plan.builder.listen_tcp(app, RADSEC)?,
        NasAaaProtocol::Diameter => {
            let port = if eap.uses_tls_transport() { DIAMETER_TLS } else { DIAMETER };
            plan.builder.open_port_at(app, eap.diameter.transport, 0, (host, port))?;
        }
    }
    Ok(())
}

/// Returns the TLS of a workload's own server: every NAS presents a certificate.
fn own_tls(
    plan: &NetworkPlan<'_>,
    eap: &EapWorkload,
    key_log: &KeyLog,
) -> Result<ServerConfig, ScenarioRunError> {
    Ok(ServerConfig::new(TlsServerOptions {
        versions: eap.tls.version.into(),
        credentials: fixtures::server_credentials(2),
        client_roots: Some(super::tls::fixture_roots()),
        resumption: None,
        clock: SharedWallClock::from_time(plan.scenario.run.date.wall_time()),
        key_log: Some(key_log.clone()),
    })?)
}
