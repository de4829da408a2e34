//! The AAA servers of the workload: what a NAS has to know of one, and those that are the workload's own.

use super::super::aaa::{self, ServerRole};
use super::super::error::WorldError;
use super::super::machine::Endpoint;
use super::super::plan::Plan;
use super::diameter;
use super::tls::Tls;
use super::users::{PASSWORD, SECRET, identity};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use usher_aaa::{DIAMETER_LISTENER, RADSEC_LISTENER, User, UserSource, Users, radius_socket};
use usher_aaa_config::Loaded;
use usher_core::{Duration, TransportProtocol};
use usher_crypto::certificate::CertificateMatch;
use usher_crypto::tls::{KeyLog, ServerConfig, ServerOptions, WallClock, fixtures};
use usher_diameter::node;
use usher_radius::Secret;
use usher_scenario::model::{Aaa, Eap};
use usher_scenario::ports::{ACCOUNTING, DIAMETER, DIAMETER_TLS, RADIUS, RADSEC};
use usher_sim::{HostId, IpVersion};

/// What a NAS has to know of its server.
pub(super) struct Served {
    /// RADIUS: the secret that they share.
    pub(super) secret: Secret,
    /// Where it takes logins, by the workload's protocol, and, by RADIUS, accounting.
    pub(super) logins: SocketAddr,
    pub(super) accounting: SocketAddr,
    /// What it calls itself in Diameter.
    pub(super) identity: String,
    /// Names that its certificate may have, beside what it calls itself.
    pub(super) certificates: Vec<CertificateMatch>,
}

/// What the NAS at an address has to know of a server.
pub(super) fn known(plan: &Plan<'_>, eap: &Eap, (index, host): (u64, HostId), nas: IpAddr) -> Served {
    let loaded = plan.scenario.aaa_service(&eap.server);
    let port = |listened: fn(&Loaded) -> &[SocketAddr], usual: u16| {
        let reached = |at: &&SocketAddr| plan.addresses.serves(host, at.ip());
        let at = loaded.and_then(|loaded| listened(loaded).iter().find(reached));
        SocketAddr::new(plan.addresses.of(host), at.map_or(usual, SocketAddr::port))
    };
    let secret = loaded
        .and_then(|loaded| loaded.client_of(nas)?.secret.as_ref())
        .map(|secret| Secret::new(secret.0.as_bytes()));
    let identity = loaded.and_then(|loaded| loaded.file.diameter.as_ref()).map(|own| own.identity.clone());
    Served {
        secret: secret.unwrap_or_else(|| Secret::new(SECRET.as_bytes())),
        logins: match eap.aaa {
            Aaa::Radius => port(|l| &l.file.listen.auth, RADIUS),
            Aaa::Radsec => port(|l| &l.file.listen.radsec, RADSEC),
            Aaa::Diameter if eap.inside_tls() => port(|l| &l.file.listen.diameter_tls, DIAMETER_TLS),
            Aaa::Diameter if eap.diameter.transport == TransportProtocol::Sctp => {
                port(|l| &l.file.listen.diameter_sctp, DIAMETER)
            }
            Aaa::Diameter => port(|l| &l.file.listen.diameter, DIAMETER),
        },
        accounting: port(|l| &l.file.listen.acct, ACCOUNTING),
        identity: identity.unwrap_or_else(|| name(index, &eap.realm)),
        certificates: match loaded {
            Some(_) => Vec::new(),
            None => vec![CertificateMatch::Name(fixtures::SERVER_NAME.to_owned())],
        },
    }
}

fn name(index: u64, realm: &str) -> String {
    format!("aaa-{index}.{realm}")
}

/// Puts a server of the workload's own on a host: it knows the stations, and offers the method.
pub(super) fn build(
    plan: &mut Plan<'_>,
    eap: &Eap,
    (tls, key_log): (Option<&Tls>, &KeyLog),
    (stations, nases): (usize, usize),
    (index, host): (u64, HostId),
) -> Result<(), WorldError> {
    let mut rng = plan.seed.secure("aaa.server", index);
    let mut users = Users::new(&mut rng);
    for station in 0..stations as u64 {
        users.insert(&identity(plan.name, station, &eap.realm), User::with_password(PASSWORD));
    }
    let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
    config.methods = vec![eap.method];
    if let Some(tls) = tls {
        tls.serve(&mut config);
    }
    // What a study's network makes of a login is to be seen, however long it takes and however many there are.
    config.login_timeout = Duration::MAX;
    config.max_half_open_octets = usize::MAX;
    let any = match plan.addresses.version() {
        IpVersion::V4 => Ipv4Addr::UNSPECIFIED.into(),
        IpVersion::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let client = match eap.aaa {
        Aaa::Radius => Some(usher_radius::server::ClientConfig::new(any, 0, Secret::new(SECRET.as_bytes()))),
        Aaa::Radsec => {
            let of_nas = vec![CertificateMatch::Name(fixtures::CLIENT_NAME.to_owned())];
            Some(usher_radius::server::ClientConfig::radsec(any, 0, of_nas))
        }
        Aaa::Diameter => None,
    };
    if let Some(client) = client {
        let mut radius = usher_radius::server::Config::new(vec![client]);
        radius.retain = eap.radius.duplicate_cache.get();
        config.radius = Some(radius);
    } else {
        let mut node = node::Config::new(&name(index, &eap.realm), &eap.realm, diameter::applications(eap));
        node.local.addresses = vec![plan.addresses.of(host)];
        node.accept_unknown = !eap.inside_tls();
        // NASs by the hundred, with as many connections each as the study gives them.
        node.max_peers = usize::MAX;
        node.accept_policy = diameter::policy(eap.diameter.stream_policy);
        diameter::timing(&mut node, eap, diameter::reconnect(plan.scenario, eap));
        if !node.accept_unknown {
            // The certificates that come with the program are of no NAS's name.
            for identity in (0..nases as u64).flat_map(|i| diameter::identities(plan.name, eap, i)) {
                node = node.accept(&identity);
            }
            for peer in &mut node.peers {
                let certificates = vec![CertificateMatch::Name(fixtures::CLIENT_NAME.to_owned())];
                peer.authentication = node::Authentication { certificates, tls: true, ..Default::default() };
            }
        }
        config.diameter = Some(node);
    }
    let mut endpoint = Endpoint::new(plan.at(host)).accepting(DIAMETER_LISTENER);
    let (authentication, accounts) = (endpoint.socket(radius_socket(0)), endpoint.socket(radius_socket(1)));
    if eap.inside_tls() {
        let (port, listener) = match eap.aaa {
            Aaa::Diameter => (DIAMETER_TLS, DIAMETER_LISTENER),
            Aaa::Radius | Aaa::Radsec => (RADSEC, RADSEC_LISTENER),
        };
        endpoint.accept_at(port, listener, Some(own_tls(plan, eap, key_log)?));
    }
    let seed = plan.seed.derive("aaa.server", index);
    let server = ServerRole::new(endpoint, config, aaa::alone(seed), seed).map_err(WorldError::Role)?;
    let app = plan.role(host, server);
    match eap.aaa {
        Aaa::Radius => {
            plan.builder.bind_udp(app, authentication, RADIUS)?;
            if eap.accounting.used {
                plan.builder.bind_udp(app, accounts, ACCOUNTING)?;
            }
        }
        Aaa::Radsec => plan.builder.listen(app, RADSEC)?,
        Aaa::Diameter => {
            let port = if eap.inside_tls() { DIAMETER_TLS } else { DIAMETER };
            plan.builder.serve_at(app, eap.diameter.transport, 0, (host, port))?;
        }
    }
    Ok(())
}

/// The TLS of a server of the workload's own: every NAS shows a certificate.
fn own_tls(plan: &Plan<'_>, eap: &Eap, key_log: &KeyLog) -> Result<ServerConfig, WorldError> {
    Ok(ServerConfig::new(ServerOptions {
        versions: eap.tls.version.into(),
        credentials: fixtures::server(2),
        client_roots: Some(super::tls::roots()),
        resumption: None,
        clock: WallClock::at(plan.scenario.run.date.wall_time()),
        key_log: Some(key_log.clone()),
    })?)
}
