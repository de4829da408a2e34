//! Stations, NASes and AAA servers of a scenario.

use super::super::arrivals::{ArrivalProcess, budget};
use super::super::machine::{Endpoint, HostAddress};
use super::super::topology::Topology;
use super::super::{Plan, Role, WorldError};
use super::accounts::Accounts;
use super::nas::NasRole;
use super::server::ServerRole;
use super::station::{GivenUp, Proof, StationRole, Supplicant};
use super::tls::Tls;
use super::{Agenda, PASSWORD, SECRET, WRONG_PASSWORD, identity};
use std::num::NonZeroU16;
use std::rc::Rc;
use std::sync::Arc;
use usher_aaa::{DIAMETER_LISTENER, Method, User, UserSource, Users};
use usher_core::Duration;
use usher_crypto::tls::KeyLog;
use usher_diameter::codes::application::{ACCOUNTING, EAP};
use usher_diameter::node;
use usher_diameter::peer::capabilities::Application;
use usher_diameter::stream::StreamPolicy;
use usher_nas::authenticator::{self, Authenticator};
use usher_nas::keying;
use usher_nas::station::{self, Credentials, Station};
use usher_nas::{AaaConfig, Access, Connections, DiameterConfig, MacAddress, NasIdentity, RadiusConfig};
use usher_radius::auth::Secret;
use usher_radius::client::{self, Retransmission, Target};
use usher_scenario::model::{self, Aaa, DiameterTransport, Eap, RadiusRetransmission, Scenario};
use usher_scenario::units::{Count, Time};
use usher_sim::HostId;

/// Diameter over TCP (RFC 6733 §11.4).
const DIAMETER_PORT: u16 = 3868;
/// RADIUS authentication (RFC 2865 §3).
const RADIUS_PORT: u16 = 1812;
/// RADIUS accounting (RFC 2866 §3).
const ACCOUNTING_PORT: u16 = 1813;

/// Puts the workload's roles on the topology's hosts.
pub(in super::super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    eap: &Eap,
    key_log: &KeyLog,
) -> Result<(), WorldError> {
    let tls = match eap.method {
        Method::EapTls => Some(Tls::new(eap, key_log)?),
        _ => None,
    };
    let stations = topology.group(&eap.stations)?;
    let nases = topology.group(&eap.nas)?;
    let servers = topology.group(&eap.server)?;
    for (i, &host) in servers.iter().enumerate() {
        server(plan, eap, tls.as_ref(), stations.len(), i as u64, host)?;
    }

    let by_password = Rc::new(Proof {
        right: Credentials::password(PASSWORD),
        wrong: Credentials::password(WRONG_PASSWORD),
    });
    let given_up = GivenUp::default();
    let local = eap.stations == eap.nas;
    let shared = budget(&eap.arrivals);
    let supplicant = |plan: &Plan<'_>, index: u64, host: HostId| {
        let arrivals = ArrivalProcess::new(
            &eap.arrivals,
            index,
            stations.len() as u64,
            plan.end,
            shared.clone(),
            plan.seed.stream("arrivals", index),
        );
        let chance = plan.seed.stream("credentials", index);
        let mac = MacAddress(host.mac(0));
        let mut config = station::Config::new(mac);
        (config.access, config.keying) = access(plan.scenario, eap);
        config.auth_timeout = eap.give_up.get().map_or(Duration::MAX, |t| t.get());
        let station = Station::new(config, plan.seed.secure("station", index));
        let user = Supplicant {
            let_in: None,
            counted: false,
            agenda: Agenda::new(arrivals, chance, eap.wrong_credentials.get()),
            identity: identity(index, &eap.realm),
            mac,
            given_up: given_up.clone(),
            retry: eap.retry.get().map(|t| t.get()),
            retry_at: None,
            proof: match &tls {
                None => by_password.clone(),
                Some(tls) => Rc::new(Proof {
                    right: tls.credentials(true, index),
                    wrong: tls.credentials(false, index),
                }),
            },
        };
        (station, user)
    };
    for (i, &host) in nases.iter().enumerate() {
        let index = i as u64;
        let nas = authenticator(plan, eap, index, host, (i % servers.len(), servers))?;
        let endpoint = Endpoint::new(HostAddress { host, version: plan.version });
        let station = local.then(|| supplicant(plan, index, host));
        let accounts = eap.accounting.used.then(|| {
            let (_, keying) = access(plan.scenario, eap);
            let chance = plan.seed.stream("accounting", index);
            Accounts::new(eap.accounting.clone(), keying.is_some(), chance)
        });
        let role = NasRole::new(endpoint, nas, station, given_up.clone(), accounts);
        let app = plan.role(host, Role::Nas(Box::new(role)));
        plan.builder.take_frames(app);
    }
    if !local {
        for (i, &host) in stations.iter().enumerate() {
            let endpoint = Endpoint::new(HostAddress { host, version: plan.version });
            let role = StationRole::new(endpoint, supplicant(plan, i as u64, host));
            let app = plan.role(host, Role::Station(Box::new(role)));
            plan.builder.take_frames(app);
        }
    }
    Ok(())
}

fn server(
    plan: &mut Plan<'_>,
    eap: &Eap,
    tls: Option<&Tls>,
    stations: usize,
    index: u64,
    host: HostId,
) -> Result<(), WorldError> {
    let mut rng = plan.seed.secure("aaa.server", index);
    let mut users = Users::new(&mut rng);
    for station in 0..stations as u64 {
        users.insert(&identity(station, &eap.realm), User::with_password(PASSWORD));
    }
    let mut config = usher_aaa::Config::new(UserSource::Memory(Arc::new(users)));
    config.methods = vec![eap.method];
    config.tls = tls.map(Tls::server);
    // What a study's network makes of a login is to be seen, however long it takes and however many there are.
    config.login_timeout = Duration::MAX;
    config.max_half_open_octets = usize::MAX;
    let any = match plan.version {
        usher_sim::IpVersion::V4 => std::net::Ipv4Addr::UNSPECIFIED.into(),
        usher_sim::IpVersion::V6 => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    match eap.aaa {
        Aaa::Radius => {
            let client = usher_radius::server::ClientConfig::new(any, 0, Secret::new(SECRET.as_bytes()));
            let mut radius = usher_radius::server::Config::new(vec![client]);
            radius.retain = eap.radius.duplicate_cache.get();
            config.radius = Some(radius);
        }
        Aaa::Diameter => {
            let mut node = node::Config::new(&server_name(index, &eap.realm), &eap.realm, applications(eap));
            node.local.addresses = vec![host.ip(plan.version)];
            node.accept_unknown = true;
            // NASs by the hundred, with as many connections each as the study gives them.
            node.max_peers = usize::MAX;
            node.accept_policy = policy(eap.diameter.stream_policy);
            timing(&mut node, eap, reconnect(plan.scenario, eap));
            config.diameter = Some(node);
        }
    }
    let at = HostAddress { host, version: plan.version };
    let mut endpoint = Endpoint::new(at).accepting(DIAMETER_LISTENER);
    let (authentication, accounts) =
        (endpoint.socket(usher_aaa::radius_socket(0)), endpoint.socket(usher_aaa::radius_socket(1)));
    let accounting = eap.accounting.used;
    let server = ServerRole::new(endpoint, config, plan.seed.derive("aaa.server", index), accounting)?;
    let app = plan.role(host, Role::AaaServer(Box::new(server)));
    match eap.aaa {
        Aaa::Radius => {
            plan.builder.bind_udp(app, authentication, RADIUS_PORT)?;
            if accounting {
                plan.builder.bind_udp(app, accounts, ACCOUNTING_PORT)?;
            }
        }
        Aaa::Diameter => match eap.diameter.transport {
            DiameterTransport::Tcp => plan.builder.listen(app, DIAMETER_PORT)?,
            DiameterTransport::Sctp => plan.builder.listen_sctp(app, DIAMETER_PORT)?,
        },
    }
    Ok(())
}

fn authenticator(
    plan: &Plan<'_>,
    eap: &Eap,
    index: u64,
    host: HostId,
    (server, hosts): (usize, &[HostId]),
) -> Result<Authenticator, WorldError> {
    let place = HostAddress { host, version: plan.version };
    let name = format!("nas-{index}");
    let (access, keying) = access(plan.scenario, eap);
    let mut identity = match access {
        Access::Ethernet => NasIdentity::ethernet(&name),
        Access::Wimax => NasIdentity::wimax(&name),
    };
    identity.address = Some(host.ip(plan.version));
    let aaa = match eap.aaa {
        Aaa::Radius => {
            let address = place.address(hosts[server], RADIUS_PORT);
            let mut config =
                client::Config::single(client::ServerConfig::new(address, Secret::new(SECRET.as_bytes())));
            config.retransmission = retransmission(&eap.radius.retransmission);
            if !eap.accounting.used {
                AaaConfig::Radius(RadiusConfig::new(config))
            } else {
                let address = place.address(hosts[server], ACCOUNTING_PORT);
                config.servers.push(client::ServerConfig::new(address, Secret::new(SECRET.as_bytes())));
                AaaConfig::Radius(RadiusConfig { accounting: Target::Server(1), ..RadiusConfig::new(config) })
            }
        }
        Aaa::Diameter => {
            let name = format!("nas-{index}.{}", eap.realm);
            let address = place.address(hosts[server], DIAMETER_PORT);
            let mut node = node::Config::new(&name, &eap.realm, applications(eap))
                .connect_to(&server_name(server as u64, &eap.realm), address);
            node.local.addresses = vec![host.ip(plan.version)];
            timing(&mut node, eap, reconnect(plan.scenario, eap));
            let config = DiameterConfig::new(node, eap.realm.clone());
            let config = config.over(transport(&eap.diameter)).by(connections(eap.diameter.connections));
            AaaConfig::Diameter(Box::new(config))
        }
    };
    let mut config = authenticator::Config::new(identity, aaa);
    config.access = access;
    config.keying = keying;
    config.mac = MacAddress(host.mac(0));
    config.quiet_period = Duration::ZERO;
    // A station fails when its access server gives up, and not at its own ClientTimeout: that would decide what studies of
    // overload measure.
    config.canned_failure = true;
    config.max_sessions = usize::MAX;
    config.retransmission = eap.eap_retransmission.get().map(|initial| authenticator::Retransmission {
        initial: initial.get(),
        count: eap.eap_retransmissions,
        ..Default::default()
    });
    Authenticator::new(config, plan.seed.secure("nas", index)).map_err(|e| WorldError::Role(e.to_string()))
}

/// PKMv2 where the stations reach their NAS by a cell, of which it is the base station, with the cell's exchange of keys;
/// EAPOL elsewhere.
fn access(scenario: &Scenario, eap: &Eap) -> (Access, Option<keying::Config>) {
    let joins = |cell: &model::Cell| cell.base_station == eap.nas && cell.stations == eap.stations;
    match scenario.cells_in_use().find(|(_, cell)| joins(cell)) {
        Some((_, cell)) => (Access::Wimax, cell.keys.used.then(|| exchange(&cell.keys))),
        None => (Access::Ethernet, None),
    }
}

fn exchange(keys: &model::Keys) -> keying::Config {
    let resend = |after: Time, tries: Count| keying::Resend { after: after.get(), times: tries.get() - 1 };
    keying::Config {
        challenge: resend(keys.challenge_timeout, keys.challenge_tries),
        request: resend(keys.request_timeout, keys.request_tries),
        key_request: resend(keys.key_timeout, keys.key_tries),
        ..Default::default()
    }
}

/// What both sides speak of.
fn applications(eap: &Eap) -> &'static [Application] {
    const BOTH: [Application; 2] = [Application::auth(EAP), Application::acct(ACCOUNTING)];
    if eap.accounting.used { &BOTH } else { &BOTH[..1] }
}

fn server_name(index: u64, realm: &str) -> String {
    format!("aaa-{index}.{realm}")
}

fn policy(policy: model::StreamPolicy) -> StreamPolicy {
    match policy {
        model::StreamPolicy::One => StreamPolicy::One,
        model::StreamPolicy::Session => StreamPolicy::BySession,
        model::StreamPolicy::Unordered => StreamPolicy::Unordered,
    }
}

fn transport(diameter: &model::Diameter) -> node::Transport {
    match diameter.transport {
        DiameterTransport::Tcp => node::Transport::Stream,
        DiameterTransport::Sctp => node::Transport::Message {
            streams: diameter.streams.get().min(u32::from(u16::MAX)) as u16,
            policy: policy(diameter.stream_policy),
        },
    }
}

fn connections(connections: model::Connections) -> Connections {
    match connections {
        model::Connections::PerSession => Connections::PerSession,
        model::Connections::Shared(n) => {
            let n = n.get().min(u32::from(u16::MAX)) as u16;
            Connections::Shared(NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN))
        }
    }
}

fn reconnect(scenario: &Scenario, eap: &Eap) -> Duration {
    match eap.diameter.transport {
        DiameterTransport::Tcp => scenario.transport.tcp.reconnect.get(),
        DiameterTransport::Sctp => scenario.transport.sctp.reconnect.get(),
    }
}

fn timing(node: &mut node::Config, eap: &Eap, reconnect: Duration) {
    node.watchdog = Some(eap.diameter.watchdog.get());
    node.request_timeout = Some(eap.diameter.timeout.get());
    node.reconnect = reconnect;
}

fn retransmission(policy: &RadiusRetransmission) -> Retransmission {
    match policy {
        RadiusRetransmission::Rfc5080 { initial, max, count, duration, jitter } => Retransmission::Backoff {
            initial: initial.get(),
            max: max.get(),
            max_count: *count,
            max_duration: duration.get(),
            jitter: jitter.get(),
        },
        RadiusRetransmission::Fixed { interval, count } => {
            Retransmission::Fixed { interval: interval.get(), count: count.get() }
        }
    }
}
