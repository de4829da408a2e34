//! Stations, NASes and AAA servers of a scenario.

use super::super::arrivals::{ArrivalProcess, Pattern};
use super::super::error::WorldError;
use super::super::machine::Endpoint;
use super::super::plan::Plan;
use super::super::topology::Topology;
use super::accounts::Accounts;
use super::agenda::Agenda;
use super::diameter::{applications, connections, nas_name, reconnect, timing, transport};
use super::nas::NasRole;
use super::server::{self, Served};
use super::station::{GivenUp, Proof, StationRole, Supplicant};
use super::tls::Tls;
use super::users::{self, PASSWORD, WRONG_PASSWORD, named};
use std::rc::Rc;
use usher_aaa::Method;
use usher_core::Duration;
use usher_crypto::tls::{ClientConfig, ClientOptions, KeyLog, WallClock, fixtures};
use usher_diameter::node;
use usher_eap::method::mschapv2;
use usher_nas::authenticator::{self, Authenticator};
use usher_nas::keying;
use usher_nas::station::{self, Station};
use usher_nas::{AaaConfig, Access, DiameterConfig, MacAddress, NasIdentity, RadiusConfig};
use usher_radius::client::{self, Retransmission, Target};
use usher_scenario::certificates::Party;
use usher_scenario::model::{self, Aaa, Eap, RadiusRetransmission, Scenario};
use usher_scenario::units::{Count, Time};
use usher_sim::HostId;

/// Puts the workload's roles on the topology's hosts.
pub(in super::super) fn build(
    plan: &mut Plan<'_>,
    topology: &Topology,
    eap: &Eap,
    key_log: &KeyLog,
) -> Result<(), WorldError> {
    let certificates = plan.scenario.certificates.get(plan.name);
    let tls = match certificates.and_then(|of| of.stations.as_ref()) {
        _ if !eap.has_tls() => None,
        Some(party) => Some(Tls::served(plan.scenario, eap, party, key_log)?),
        None => Some(Tls::new(eap, key_log)?),
    };
    let stations = topology.group(&eap.stations)?;
    let nases = topology.group(&eap.nas)?;
    let servers = topology.group(&eap.server)?;
    if plan.scenario.aaa_service(&eap.server).is_none() {
        for (i, &host) in (0..).zip(servers) {
            server::build(plan, eap, (tls.as_ref(), key_log), (stations.len(), nases.len()), (i, host))?;
        }
    }
    let nas_tls = nas_tls(plan.scenario, eap, certificates.and_then(|of| of.nas.as_deref()), key_log)?;

    let by_password = Rc::new(Proof {
        right: station::Credentials::password(PASSWORD),
        wrong: station::Credentials::password(WRONG_PASSWORD),
    });
    let names = users::names(plan.scenario, plan.name, eap, stations.len());
    let given_up = GivenUp::default();
    let local = eap.stations == eap.nas;
    let pattern = Pattern::new(&eap.arrivals, stations.len() as u64, plan.end);
    let supplicant = |plan: &Plan<'_>, index: u64, host: HostId| {
        let arrivals = ArrivalProcess::new(&pattern, index, plan.seed.stream("arrivals", index));
        let chance = plan.seed.stream("credentials", index);
        let (mac, name) = (MacAddress(host.mac(0)), &names[index as usize]);
        let mut config = station::Config::new(mac);
        (config.access, config.keying) = access(plan.scenario, eap);
        config.auth_timeout = eap.give_up.get().map_or(Duration::MAX, |t| t.get());
        let station = Station::new(config, plan.seed.secure("station", index));
        let user = Supplicant {
            let_in: None,
            counted: false,
            agenda: Agenda::new(arrivals, chance, eap.wrong_credentials.get()),
            identity: name.clone(),
            mac,
            given_up: given_up.clone(),
            retry: eap.retry.get().map(|t| t.get()),
            retry_at: None,
            proof: match &tls {
                None if eap.method == Method::EapMsChapV2 => {
                    let by = |password| station::Credentials::method(mschapv2::Account::new(name, password));
                    Rc::new(Proof { right: by(PASSWORD), wrong: by(WRONG_PASSWORD) })
                }
                None => by_password.clone(),
                Some(tls) => Rc::new(Proof {
                    right: tls.credentials(true, (index, name)),
                    wrong: tls.credentials(false, (index, name)),
                }),
            },
        };
        (station, user)
    };
    for (i, &host) in nases.iter().enumerate() {
        let index = i as u64;
        let server = ((i % servers.len()) as u64, servers[i % servers.len()]);
        let server = server::known(plan, eap, server, plan.addresses.of(host));
        let nas = authenticator(plan, eap, (index, host), &server)?;
        let inside = nas_tls.iter().map(|tls| (server.logins, tls.clone())).collect();
        let endpoint = Endpoint::new(plan.at(host)).connecting(inside);
        let station = local.then(|| supplicant(plan, index, host));
        let accounts = eap.accounting.used.then(|| {
            let (_, keying) = access(plan.scenario, eap);
            let chance = plan.seed.stream("accounting", index);
            Accounts::new(eap.accounting.clone(), keying.is_some(), chance)
        });
        let role = NasRole::new(endpoint, nas, station, given_up.clone(), accounts);
        let app = plan.role(host, role);
        plan.builder.take_frames(app);
    }
    if !local {
        for (i, &host) in stations.iter().enumerate() {
            let endpoint = Endpoint::new(plan.at(host));
            let role = StationRole::new(endpoint, supplicant(plan, i as u64, host));
            let app = plan.role(host, role);
            plan.builder.take_frames(app);
        }
    }
    Ok(())
}

fn authenticator(
    plan: &Plan<'_>,
    eap: &Eap,
    (index, host): (u64, HostId),
    server: &Served,
) -> Result<Authenticator, WorldError> {
    let name = named(plan.name, &format!("nas-{index}"));
    let (access, keying) = access(plan.scenario, eap);
    let mut identity = match access {
        Access::Ethernet => NasIdentity::ethernet(&name),
        Access::Wimax => NasIdentity::wimax(&name),
    };
    identity.address = Some(plan.addresses.of(host));
    let aaa = match eap.aaa {
        Aaa::Radsec => {
            let config = client::Config::single(client::ServerConfig::radsec(server.logins));
            let mut config = client::Config { reconnect: reconnect(plan.scenario, eap), ..config };
            config.retransmission = retransmission(&eap.radius.retransmission);
            AaaConfig::Radius(RadiusConfig::new(config))
        }
        Aaa::Radius => {
            let mut config =
                client::Config::single(client::ServerConfig::new(server.logins, server.secret.clone()));
            config.retransmission = retransmission(&eap.radius.retransmission);
            if !eap.accounting.used {
                AaaConfig::Radius(RadiusConfig::new(config))
            } else {
                config.servers.push(client::ServerConfig::new(server.accounting, server.secret.clone()));
                AaaConfig::Radius(RadiusConfig { accounting: Target::Server(1), ..RadiusConfig::new(config) })
            }
        }
        Aaa::Diameter => {
            let mut node = node::Config::new(&nas_name(plan.name, eap, index), &eap.realm, applications(eap))
                .connect_to(&server.identity, server.logins);
            if eap.inside_tls() {
                for peer in &mut node.peers {
                    peer.authentication.tls = true;
                    peer.authentication.certificates.clone_from(&server.certificates);
                }
            }
            node.local.addresses = vec![plan.addresses.of(host)];
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

pub(in super::super) fn retransmission(policy: &RadiusRetransmission) -> Retransmission {
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

/// How NASes open connections inside TLS, where the workload has any: with the certificate of its files, or of those that come
/// with the program.
fn nas_tls(
    scenario: &Scenario,
    eap: &Eap,
    party: Option<&Party>,
    key_log: &KeyLog,
) -> Result<Option<ClientConfig>, WorldError> {
    if !eap.inside_tls() {
        return Ok(None);
    }
    let credentials = party.and_then(|party| party.credentials.clone());
    let config = ClientConfig::new(ClientOptions {
        versions: eap.tls.version.into(),
        credentials: Some(credentials.unwrap_or_else(|| fixtures::client(2))),
        roots: party.and_then(|party| party.roots.clone()).unwrap_or_else(super::tls::roots),
        server_name: None,
        resumption: None,
        clock: WallClock::at(scenario.run.date.wall_time()),
        key_log: Some(key_log.clone()),
    });
    Ok(Some(config?))
}
