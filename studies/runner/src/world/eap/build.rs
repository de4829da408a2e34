//! Builds stations, NASes and AAA servers of a scenario.

use super::super::arrivals::{ArrivalPattern, ArrivalProcess};
use super::super::error::ScenarioRunError;
use super::super::machine::MachineSockets;
use super::super::plan::NetworkPlan;
use super::super::topology::NetworkTopology;
use super::accounts::NasAccounting;
use super::agenda::StationLoginSchedule;
use super::diameter::{
    apply_timing, convert_connections, diameter_applications, nas_name, node_transport, reconnect_delay,
};
use super::nas::NasRole;
use super::server::{self, AaaServerInfo};
use super::station::{AbandonedStations, StationCredentials, StationRole, Supplicant};
use super::tls::EapTlsSetup;
use super::users::{self, PASSWORD, WRONG_PASSWORD, name_in_workload};
use std::rc::Rc;
use usher_aaa::AuthMethod;
use usher_core::Duration;
use usher_crypto::tls::{ClientConfig, KeyLog, SharedWallClock, TlsClientOptions, fixtures};
use usher_diameter::node;
use usher_eap::method::mschapv2;
use usher_nas::authenticator::{self, NasAuthenticator};
use usher_nas::keying;
use usher_nas::station::{self, AccessStation};
use usher_nas::{AaaConfig, AccessMedium, DiameterConfig, MacAddress, NasIdentity, RadiusConfig};
use usher_radius::client::{self, RequestTarget, RetransmissionPolicy};
use usher_scenario::certificates::TlsClientCredentials;
use usher_scenario::model::{self, EapWorkload, NasAaaProtocol, RadiusRetransmission, Scenario};
use usher_scenario::units::{PositiveCount, TimeSpan};
use usher_sim::HostId;

/// Places the workload's roles on the topology's hosts.
pub(in super::super) fn build_eap_roles(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
    eap: &EapWorkload,
    key_log: &KeyLog,
) -> Result<(), ScenarioRunError> {
    let certificates = plan.scenario.certificates.get(plan.name);
    let tls = match certificates.and_then(|of| of.stations.as_ref()) {
        _ if !eap.has_tls() => None,
        Some(party) => Some(EapTlsSetup::for_service(plan.scenario, eap, party, key_log)?),
        None => Some(EapTlsSetup::new(eap, key_log)?),
    };
    let stations = topology.host_group(&eap.stations)?;
    let nases = topology.host_group(&eap.nas)?;
    let servers = topology.host_group(&eap.server)?;
    if plan.scenario.aaa_service(&eap.server).is_none() {
        for (i, &host) in (0..).zip(servers) {
            server::build_server(
                plan,
                eap,
                (tls.as_ref(), key_log),
                (stations.len(), nases.len()),
                (i, host),
            )?;
        }
    }
    let nas_tls = nas_tls(plan.scenario, eap, certificates.and_then(|of| of.nas.as_deref()), key_log)?;

    let by_password = Rc::new(StationCredentials {
        right: station::EapCredentials::from_password(PASSWORD),
        wrong: station::EapCredentials::from_password(WRONG_PASSWORD),
    });
    let names = users::station_names(plan.scenario, plan.name, eap, stations.len());
    let given_up = AbandonedStations::default();
    let local = eap.stations == eap.nas;
    let pattern = ArrivalPattern::new(&eap.arrivals, stations.len() as u64, plan.end);
    let supplicant = |plan: &NetworkPlan<'_>, index: u64, host: HostId| {
        let arrivals = ArrivalProcess::new(&pattern, index, plan.seed.derive_rng("arrivals", index));
        let chance = plan.seed.derive_rng("credentials", index);
        let (mac, name) = (MacAddress(host.mac_address(0)), &names[index as usize]);
        let mut config = station::StationConfig::new(mac);
        (config.access, config.keying) = select_access_medium(plan.scenario, eap);
        config.auth_timeout = eap.give_up.get().map_or(Duration::MAX, |t| t.get());
        let station = AccessStation::new(config, plan.seed.derive_secure_rng("station", index));
        let user = Supplicant {
            let_in: None,
            counted: false,
            agenda: StationLoginSchedule::new(arrivals, chance, eap.wrong_credentials.get()),
            identity: name.clone(),
            mac,
            abandoned_stations: given_up.clone(),
            retry: eap.retry.get().map(|t| t.get()),
            retry_at: None,
            proof: match &tls {
                None if eap.method == AuthMethod::EapMsChapV2 => {
                    let by = |password| {
                        station::EapCredentials::from_method(mschapv2::MsChapV2Account::new(name, password))
                    };
                    Rc::new(StationCredentials { right: by(PASSWORD), wrong: by(WRONG_PASSWORD) })
                }
                None => by_password.clone(),
                Some(tls) => Rc::new(StationCredentials {
                    right: tls.station_credentials(true, (index, name)),
                    wrong: tls.station_credentials(false, (index, name)),
                }),
            },
        };
        (station, user)
    };
    for (i, &host) in nases.iter().enumerate() {
        let index = i as u64;
        let server = ((i % servers.len()) as u64, servers[i % servers.len()]);
        let server = server::build_aaa_server_info(plan, eap, server, plan.addresses.address_of(host));
        let nas = build_authenticator(plan, eap, (index, host), &server)?;
        let inside = nas_tls.iter().map(|tls| (server.logins, tls.clone())).collect();
        let endpoint = MachineSockets::new(plan.host_address(host)).with_outgoing_tls(inside);
        let station = local.then(|| supplicant(plan, index, host));
        let accounts = eap.accounting.used.then(|| {
            let (_, keying) = select_access_medium(plan.scenario, eap);
            let chance = plan.seed.derive_rng("accounting", index);
            NasAccounting::new(eap.accounting.clone(), keying.is_some(), chance)
        });
        let role = NasRole::new(endpoint, nas, station, given_up.clone(), accounts);
        let app = plan.add_role(host, role);
        plan.builder.take_frames(app);
    }
    if !local {
        for (i, &host) in stations.iter().enumerate() {
            let endpoint = MachineSockets::new(plan.host_address(host));
            let role = StationRole::new(endpoint, supplicant(plan, i as u64, host));
            let app = plan.add_role(host, role);
            plan.builder.take_frames(app);
        }
    }
    Ok(())
}

fn build_authenticator(
    plan: &NetworkPlan<'_>,
    eap: &EapWorkload,
    (index, host): (u64, HostId),
    server: &AaaServerInfo,
) -> Result<NasAuthenticator, ScenarioRunError> {
    let name = name_in_workload(plan.name, &format!("nas-{index}"));
    let (access, keying) = select_access_medium(plan.scenario, eap);
    let mut identity = match access {
        AccessMedium::Ethernet => NasIdentity::for_ethernet(&name),
        AccessMedium::Wimax => NasIdentity::for_wimax(&name),
    };
    identity.address = Some(plan.addresses.address_of(host));
    let aaa = match eap.aaa {
        NasAaaProtocol::Radsec => {
            let config =
                client::RadiusClientConfig::for_server(client::ServerConfig::for_radsec(server.logins));
            let mut config =
                client::RadiusClientConfig { reconnect: reconnect_delay(plan.scenario, eap), ..config };
            config.retransmission = radius_retransmission(&eap.radius.retransmission);
            AaaConfig::Radius(RadiusConfig::new(config))
        }
        NasAaaProtocol::Radius => {
            let mut config = client::RadiusClientConfig::for_server(client::ServerConfig::new(
                server.logins,
                server.secret.clone(),
            ));
            config.retransmission = radius_retransmission(&eap.radius.retransmission);
            if !eap.accounting.used {
                AaaConfig::Radius(RadiusConfig::new(config))
            } else {
                config.servers.push(client::ServerConfig::new(server.accounting, server.secret.clone()));
                AaaConfig::Radius(RadiusConfig {
                    accounting: RequestTarget::Server(1),
                    ..RadiusConfig::new(config)
                })
            }
        }
        NasAaaProtocol::Diameter => {
            let mut node = node::DiameterNodeConfig::new(
                &nas_name(plan.name, eap, index),
                &eap.realm,
                diameter_applications(eap),
            )
            .connect_to(&server.identity, server.logins);
            if eap.uses_tls_transport() {
                for peer in &mut node.peers {
                    peer.authentication.tls = true;
                    peer.authentication.certificates.clone_from(&server.certificates);
                }
            }
            node.local.addresses = vec![plan.addresses.address_of(host)];
            apply_timing(&mut node, eap, reconnect_delay(plan.scenario, eap));
            let config = DiameterConfig::new(node, eap.realm.clone());
            let config = config
                .with_transport(node_transport(&eap.diameter))
                .with_connections(convert_connections(eap.diameter.connections));
            AaaConfig::Diameter(Box::new(config))
        }
    };
    let mut config = authenticator::AuthenticatorConfig::new(identity, aaa);
    config.access = access;
    config.keying = keying;
    config.mac = MacAddress(host.mac_address(0));
    config.quiet_period = Duration::ZERO;
    // A station fails when its access server gives up, not at its own ClientTimeout, which would distort studies of
    // overload.
    config.canned_failure = true;
    config.max_sessions = usize::MAX;
    config.retransmission =
        eap.eap_retransmission.get().map(|initial| authenticator::EapRetransmissionConfig {
            initial: initial.get(),
            count: eap.eap_retransmissions,
            ..Default::default()
        });
    NasAuthenticator::new(config, plan.seed.derive_secure_rng("nas", index))
        .map_err(|e| ScenarioRunError::Role(e.to_string()))
}

/// Returns PKMv2 with the cell's key exchange if the NAS is the base station of the stations' cell, EAPOL otherwise.
fn select_access_medium(
    scenario: &Scenario,
    eap: &EapWorkload,
) -> (AccessMedium, Option<keying::KeyingConfig>) {
    let joins =
        |cell: &model::WimaxCellSettings| cell.base_station == eap.nas && cell.stations == eap.stations;
    match scenario.cells_in_use().find(|(_, cell)| joins(cell)) {
        Some((_, cell)) => (AccessMedium::Wimax, cell.keys.used.then(|| keying_config(&cell.keys))),
        None => (AccessMedium::Ethernet, None),
    }
}

fn keying_config(keys: &model::TrafficKeyExchange) -> keying::KeyingConfig {
    let resend = |after: TimeSpan, tries: PositiveCount| keying::RetransmissionPolicy {
        after: after.get(),
        times: tries.get() - 1,
    };
    keying::KeyingConfig {
        challenge: resend(keys.challenge_timeout, keys.challenge_tries),
        request: resend(keys.request_timeout, keys.request_tries),
        key_request: resend(keys.key_timeout, keys.key_tries),
        ..Default::default()
    }
}

pub(in super::super) fn radius_retransmission(policy: &RadiusRetransmission) -> RetransmissionPolicy {
    match policy {
        RadiusRetransmission::Rfc5080 { initial, max, count, duration, jitter } => {
            RetransmissionPolicy::Backoff {
                initial: initial.get(),
                max: max.get(),
                max_count: *count,
                max_duration: duration.get(),
                jitter: jitter.get(),
            }
        }
        RadiusRetransmission::Fixed { interval, count } => {
            RetransmissionPolicy::Fixed { interval: interval.get(), count: count.get() }
        }
    }
}

/// Returns the TLS of a NAS's outgoing connections, if the workload has any. The certificate comes from the workload's
/// files or from the built-in ones.
fn nas_tls(
    scenario: &Scenario,
    eap: &EapWorkload,
    party: Option<&TlsClientCredentials>,
    key_log: &KeyLog,
) -> Result<Option<ClientConfig>, ScenarioRunError> {
    if !eap.uses_tls_transport() {
        return Ok(None);
    }
    let credentials = party.and_then(|party| party.credentials.clone());
    let config = ClientConfig::new(TlsClientOptions {
        versions: eap.tls.version.into(),
        credentials: Some(credentials.unwrap_or_else(|| fixtures::client_credentials(2))),
        roots: party.and_then(|party| party.roots.clone()).unwrap_or_else(super::tls::fixture_roots),
        server_name: None,
        resumption: None,
        clock: SharedWallClock::from_time(scenario.run.date.wall_time()),
        key_log: Some(key_log.clone()),
    });
    Ok(Some(config?))
}
