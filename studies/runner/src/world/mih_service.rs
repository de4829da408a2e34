//! The MIH function that `usher mih serve` runs, on a simulated host: its links are the host's, and say what those say.

use super::error::WorldError;
use super::machine::{Endpoint, EventOrJob};
use super::plan::Plan;
use super::report::Report;
use super::role::Role;
use super::topology::Topology;
use std::collections::BTreeMap;
use usher_core::{Job, ListenerId, Machine, Seed, SocketId, TransportProtocol};
use usher_mih::MihfId;
use usher_mih_service::config::Loaded;
use usher_mih_service::{Command, Config, Interface, Job as Wanted, LinkReport, MihService};
use usher_scenario::services::Service;
use usher_sim::radio::{LinkCommand, LinkDownReason, LinkEvent};
use usher_sim::{Context, Delivery, HostId};

/// An interface of the host.
#[derive(Debug)]
struct Port {
    at: HostId,
    /// It is in a cell, whose link comes and goes.
    station: bool,
    report: LinkReport,
}

/// The function of a host.
#[derive(Debug)]
pub(super) struct FunctionRole {
    endpoint: Endpoint,
    config: Config,
    service: MihService,
    seed: Seed,
    starts: u64,
    ports: Vec<Port>,
}

impl FunctionRole {
    fn link(&mut self, ctx: &mut Context<'_, Report>, at: HostId, event: LinkEvent) {
        let now = ctx.now();
        let Some(port) = self.ports.iter_mut().find(|port| port.at == at) else { return };
        let command = match event {
            // Whose association was lost comes back as soon as it hears the network again.
            LinkEvent::Detected => return ctx.link_command(at, LinkCommand::Connect),
            LinkEvent::Scanned { .. } => return,
            LinkEvent::GoingDown { within } => {
                Command::GoingDown { interface: port.report.name.clone(), within }
            }
            LinkEvent::Up => {
                (port.report.enabled, port.report.up) = (true, true);
                Command::Link(port.report.clone())
            }
            LinkEvent::Down(reason) => {
                (port.report.enabled, port.report.up) = (reason != LinkDownReason::Disconnected, false);
                Command::Link(port.report.clone())
            }
        };
        let _ = self.service.command(now, command);
    }
}

impl Role for FunctionRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let delivery = &delivery;
        let now = ctx.now();
        match delivery {
            Delivery::Start => {
                self.starts += 1;
                self.service =
                    MihService::new(self.config.clone(), self.seed.stream("mih.service", self.starts));
                for port in &mut self.ports {
                    let report = LinkReport { enabled: true, up: !port.station, ..port.report.clone() };
                    port.report = report.clone();
                    let _ = self.service.command(now, Command::Link(report));
                }
            }
            Delivery::Link { at, event, .. } => self.link(ctx, *at, *event),
            _ => {}
        }
        let Self { endpoint, service, ports, .. } = self;
        endpoint.feed(ctx, service, delivery);
        endpoint.drain(ctx, service, |ctx, service, word| {
            let EventOrJob::Job(Job { token, what, .. }) = word else { return };
            let answer = match what {
                Wanted::Measure { interfaces } => {
                    let reports = ports.iter().map(|port| &port.report);
                    let reports = reports.filter(|report| interfaces.contains(&report.name)).cloned();
                    Command::Measured { token, reports: reports.collect() }
                }
                Wanted::Switch { interface, on } => {
                    let port = ports.iter().find(|port| port.report.name == interface && port.station);
                    if let Some(port) = port {
                        let command = if on { LinkCommand::Connect } else { LinkCommand::Disconnect };
                        ctx.link_command(port.at, command);
                    }
                    // A line has no switch.
                    Command::Acted { token, done: port.is_some() }
                }
            };
            // Its answers are owed, and it takes what changes its links whenever that is.
            let _ = service.command(now, answer);
        });
    }
}

/// What a member of a group is called: all after the first have their number behind the first label.
fn identifier(loaded: &Loaded, name: &str, member: usize) -> Result<MihfId, WorldError> {
    let own = loaded.id.as_ref().map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let text = own.unwrap_or_else(|| name.to_owned());
    let text = match (member, text.find(['.', '@'])) {
        (0, _) => text,
        (n, Some(end)) => format!("{}-{n}{}", &text[..end], &text[end..]),
        (n, None) => format!("{text}-{n}"),
    };
    MihfId::new(text).map_err(|e| WorldError::Role(e.to_string()))
}

/// Puts the MIH functions of a scenario on their hosts.
pub(super) fn serve(plan: &mut Plan<'_>, topology: &Topology) -> Result<(), WorldError> {
    for (name, services) in plan.scenario.services.iter() {
        let loaded = services.iter().find_map(|service| match service {
            Service::Mih(loaded) => Some(loaded),
            _ => None,
        });
        let Some(loaded) = loaded else { continue };
        let of_host =
            plan.scenario.hosts.iter().filter(|(_, host)| host.interface_of.as_deref() == Some(name));
        let names: Vec<&str> = std::iter::once(name).chain(of_host.map(|(name, _)| name)).collect();
        for member in 0..topology.group(name)?.len() {
            let mut ports = Vec::new();
            for (k, interface) in names.iter().enumerate() {
                let at = topology.group(interface)?[member];
                let given: Option<&Interface> = loaded.interfaces.get(k);
                if given.is_none() && !loaded.interfaces.is_empty() {
                    continue;
                }
                let station = plan.builder.is_station(at);
                let report = LinkReport {
                    name: given.map_or_else(|| (*interface).to_owned(), |given| given.name.clone()),
                    present: true,
                    wireless: station,
                    address: Some(at.mac(0)),
                    ..LinkReport::default()
                };
                ports.push(Port { at, station, report });
            }
            put(plan, topology.group(name)?[member], loaded, identifier(loaded, name, member)?, ports)?;
        }
    }
    Ok(())
}

fn put(
    plan: &mut Plan<'_>,
    host: HostId,
    loaded: &Loaded,
    id: MihfId,
    ports: Vec<Port>,
) -> Result<(), WorldError> {
    let mut endpoint = Endpoint::new(plan.at(host));
    let mut bound = BTreeMap::new();
    for (n, address) in (0..).zip(&loaded.file.listen.udp) {
        if plan.addresses.serves(host, address.ip()) {
            bound
                .entry((TransportProtocol::Udp, address.port()))
                .or_insert(endpoint.socket(SocketId::own(n)));
        }
    }
    for (n, address) in (0..).zip(&loaded.file.listen.tcp) {
        if plan.addresses.serves(host, address.ip()) {
            endpoint.accept_at(address.port(), ListenerId::own(n), None);
            bound.entry((TransportProtocol::Tcp, address.port())).or_insert(0);
        }
    }
    let seed = plan.seed.derive("mih.service", u64::from(host.0));
    let config = loaded.config(id);
    let service = MihService::new(config.clone(), seed.stream("mih.service", 0));
    let stations: Vec<HostId> = ports.iter().filter(|port| port.station).map(|port| port.at).collect();
    let role = FunctionRole { endpoint, config, service, seed, starts: 0, ports };
    let app = plan.role(host, role);
    for ((transport, port), socket) in bound {
        plan.builder.serve_at(app, transport, socket, (host, port))?;
    }
    for at in stations {
        plan.builder.link_events(app, at);
    }
    Ok(())
}
