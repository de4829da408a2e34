//! The MIH function of `usher mih serve` on a simulated host, with the host's links and their events.

use super::error::ScenarioRunError;
use super::machine::{MachineEventOrJob, MachineSockets};
use super::plan::NetworkPlan;
use super::report::RoleReport;
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use usher_core::{JobRequest, ListenerId, Machine, Seed, SocketId, TransportProtocol};
use usher_mih::MihfId;
use usher_mih_service::config::LoadedMihConfig;
use usher_mih_service::{
    InterfaceConfig, KernelLinkReport, MihService, MihServiceCommand, MihServiceConfig, MihServiceJob,
};
use usher_scenario::services::HostService;
use usher_sim::radio::{LinkCommand, LinkDownReason, LinkEvent};
use usher_sim::{AppContext, AppDelivery, HostId};

/// An interface of the host.
#[derive(Debug)]
struct HostInterface {
    host: HostId,
    /// True if it is in a cell, whose link comes and goes.
    station: bool,
    report: KernelLinkReport,
}

/// The function of a host.
#[derive(Debug)]
pub(super) struct MihServiceRole {
    endpoint: MachineSockets,
    config: MihServiceConfig,
    service: MihService,
    seed: Seed,
    starts: u64,
    ports: Vec<HostInterface>,
}

impl MihServiceRole {
    fn handle_link_event(&mut self, ctx: &mut AppContext<'_, RoleReport>, at: HostId, event: LinkEvent) {
        let now = ctx.now();
        let Some(port) = self.ports.iter_mut().find(|port| port.host == at) else { return };
        let command = match event {
            // A station that lost its association reconnects as soon as it detects the network.
            LinkEvent::Detected => return ctx.link_command(at, LinkCommand::Connect),
            LinkEvent::Scanned { .. } => return,
            LinkEvent::GoingDown { time_left: within } => {
                MihServiceCommand::GoingDown { interface: port.report.name.clone(), time_to_loss: within }
            }
            LinkEvent::Up => {
                (port.report.enabled, port.report.up) = (true, true);
                MihServiceCommand::Link(port.report.clone())
            }
            LinkEvent::Down(reason) => {
                (port.report.enabled, port.report.up) = (reason != LinkDownReason::Disconnected, false);
                MihServiceCommand::Link(port.report.clone())
            }
        };
        let _ = self.service.handle_command(now, command);
    }
}

impl HostRole for MihServiceRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            AppDelivery::Start => {
                self.starts += 1;
                self.service =
                    MihService::new(self.config.clone(), self.seed.derive_rng("mih.service", self.starts));
                for port in &mut self.ports {
                    let report = KernelLinkReport { enabled: true, up: !port.station, ..port.report.clone() };
                    port.report = report.clone();
                    let _ = self.service.handle_command(now, MihServiceCommand::Link(report));
                }
            }
            AppDelivery::Link { host: at, event, .. } => self.handle_link_event(ctx, *at, *event),
            _ => {}
        }
        let Self { endpoint, service, ports, .. } = self;
        endpoint.deliver_to_machine(ctx, service, delivery);
        endpoint.drain_outputs(ctx, service, |ctx, service, word| {
            let MachineEventOrJob::Job(JobRequest { token, job: what, .. }) = word else { return };
            let answer = match what {
                MihServiceJob::Measure { interfaces } => {
                    let reports = ports.iter().map(|port| &port.report);
                    let reports = reports.filter(|report| interfaces.contains(&report.name)).cloned();
                    MihServiceCommand::Measured { token, reports: reports.collect() }
                }
                MihServiceJob::Switch { interface, on } => {
                    let port = ports.iter().find(|port| port.report.name == interface && port.station);
                    if let Some(port) = port {
                        let command = if on { LinkCommand::Connect } else { LinkCommand::Disconnect };
                        ctx.link_command(port.host, command);
                    }
                    // A wired link cannot be switched off, so only the existence of the port is reported.
                    MihServiceCommand::Acted { token, done: port.is_some() }
                }
            };
            // The result is ignored: the service accepts job results and link changes at any time.
            let _ = service.handle_command(now, answer);
        });
    }
}

/// Returns the identifier of a group's member: all after the first have their number after the first label.
fn service_identifier(
    loaded: &LoadedMihConfig,
    name: &str,
    member: usize,
) -> Result<MihfId, ScenarioRunError> {
    let own = loaded.id.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let text = own.unwrap_or_else(|| name.to_owned());
    let text = match (member, text.find(['.', '@'])) {
        (0, _) => text,
        (n, Some(end)) => format!("{}-{n}{}", &text[..end], &text[end..]),
        (n, None) => format!("{text}-{n}"),
    };
    MihfId::new(text).map_err(|e| ScenarioRunError::Role(e.to_string()))
}

/// Places the MIH functions of a scenario on their hosts.
pub(super) fn place_mih_functions(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
) -> Result<(), ScenarioRunError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().find_map(|service| match service {
            HostService::Mih(loaded) => Some(loaded),
            _ => None,
        });
        let Some(loaded) = loaded else { continue };
        let of_host =
            plan.scenario.hosts.iter().filter(|(_, host)| host.interface_of.as_deref() == Some(name));
        let names: Vec<&str> = std::iter::once(name).chain(of_host.map(|(name, _)| name)).collect();
        for member in 0..topology.host_group(name)?.len() {
            let mut ports = Vec::new();
            for (k, interface) in names.iter().enumerate() {
                let at = topology.host_group(interface)?[member];
                let given: Option<&InterfaceConfig> = loaded.interfaces.get(k);
                if given.is_none() && !loaded.interfaces.is_empty() {
                    continue;
                }
                let station = plan.builder.is_station(at);
                let report = KernelLinkReport {
                    name: given.map_or_else(|| (*interface).to_owned(), |given| given.name.clone()),
                    present: true,
                    wireless: station,
                    address: Some(at.mac_address(0)),
                    ..KernelLinkReport::default()
                };
                ports.push(HostInterface { host: at, station, report });
            }
            place_mih_function(
                plan,
                topology.host_group(name)?[member],
                loaded,
                service_identifier(loaded, name, member)?,
                ports,
            )?;
        }
    }
    Ok(())
}

fn place_mih_function(
    plan: &mut NetworkPlan<'_>,
    host: HostId,
    loaded: &LoadedMihConfig,
    id: MihfId,
    ports: Vec<HostInterface>,
) -> Result<(), ScenarioRunError> {
    let mut endpoint = MachineSockets::new(plan.host_address(host));
    let mut bound = BTreeMap::new();
    for (n, address) in (0..).zip(&loaded.file.listen.udp) {
        if plan.addresses.is_reachable_at(host, address.ip()) {
            bound
                .entry((TransportProtocol::Udp, address.port()))
                .or_insert(endpoint.socket_number(SocketId::from_number(n)));
        }
    }
    for (n, address) in (0..).zip(&loaded.file.listen.tcp) {
        if plan.addresses.is_reachable_at(host, address.ip()) {
            endpoint.register_listener(address.port(), ListenerId::from_number(n), None);
            bound.entry((TransportProtocol::Tcp, address.port())).or_insert(0);
        }
    }
    let seed = plan.seed.derive_seed("mih.service", u64::from(host.0));
    let config = loaded.service_config(id);
    let service = MihService::new(config.clone(), seed.derive_rng("mih.service", 0));
    let stations: Vec<HostId> = ports.iter().filter(|port| port.station).map(|port| port.host).collect();
    let role = MihServiceRole { endpoint, config, service, seed, starts: 0, ports };
    let app = plan.add_role(host, role);
    for ((transport, port), socket) in bound {
        plan.builder.open_port_at(app, transport, socket, (host, port))?;
    }
    for at in stations {
        plan.builder.link_events(app, at);
    }
    Ok(())
}
