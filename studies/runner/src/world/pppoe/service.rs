//! The access concentrator of a host, by its very file.

use super::super::aaa::helpers_of;
use super::super::error::WorldError;
use super::super::helpers::Helpers;
use super::super::machine::Endpoint;
use super::super::plan::Plan;
use super::super::report::Report;
use super::super::role::Role;
use super::super::topology::Topology;
use super::carry::Carry;
use std::collections::BTreeMap;
use usher_concentrator::config::Loaded;
use usher_concentrator::{
    AccessConcentrator, Command, Config, DYNAMIC_SOCKET, Event, IDENT_LISTENER, ServiceJob,
};
use usher_core::timer::earliest;
use usher_core::{Duration, Input, Instant, Job, ListenerId, Machine, Output, PortId, Seed};
use usher_ppp::pppoe::MacAddress;
use usher_scenario::work::PPPOE_LOG;
use usher_sim::{Context, Delivery, HostId};

/// The first interface of the file: all stations are behind it, as by a switch.
const INTERFACE: PortId = PortId(0);
/// Octets of the longest payload of a frame there.
const MTU: u16 = 1500;

/// The concentrator, and what carries packets.
#[derive(Debug)]
struct ConcentratorRole {
    endpoint: Endpoint,
    config: Config,
    concentrator: AccessConcentrator,
    helpers: Helpers<u64>,
    carry: Carry,
    /// By which port of the host a station is reached, as a switch learns it.
    ports: BTreeMap<MacAddress, u32>,
    /// How often it is counted what sessions have carried, and when that is next.
    report: Duration,
    report_at: Instant,
    seed: Seed,
    starts: u64,
}

impl ConcentratorRole {
    fn drain(&mut self, ctx: &mut Context<'_, Report>) {
        let now = ctx.now();
        let mut buf = Vec::new();
        // What is installed is so before what depends on it is sent: outputs are carried out in their order.
        while let Some(output) = self.concentrator.poll_output(&mut buf) {
            match output {
                Output::Transmit(usher_core::Transmit::Frame { port: INTERFACE }) => {
                    let to = buf.first_chunk().map(|octets| MacAddress(*octets));
                    if let Some(port) = to.and_then(|to| self.ports.get(&to)) {
                        ctx.send_frame(*port, usher_sim::Payload::copied(&buf));
                    }
                }
                Output::Transmit(transmit) => {
                    self.endpoint.transmit(ctx, &mut self.concentrator, transmit, &buf);
                }
                Output::Work(work) => ctx.work(work),
                Output::Job(Job { token, what, .. }) => self.job(ctx, token, &what),
                Output::Event(event) => self.hear(ctx, now, event),
            }
        }
    }

    fn job(&mut self, ctx: &mut Context<'_, Report>, token: u64, what: &ServiceJob) {
        let now = ctx.now();
        match what {
            ServiceJob::Log(_) => {
                if let Some(token) = self.helpers.put(now, Some(PPPOE_LOG), token) {
                    // The login may have been given up.
                    let _ = self.concentrator.command(now, Command::Logged { token, kept: true });
                }
            }
            // The simulator translates no addresses.
            ServiceJob::Translation(_) => {
                let _ = self.concentrator.command(now, Command::Translated { token, inner: Ok(None) });
            }
        }
    }

    fn hear(&mut self, ctx: &mut Context<'_, Report>, now: Instant, event: Event) {
        match event {
            Event::Install(entry) => {
                self.carry.install(now, &entry);
                if let Some(port) = self.ports.get(&entry.peer) {
                    ctx.name_session(*port, entry.number);
                }
            }
            Event::Remove { id, .. } => {
                let usage = self.carry.remove(id);
                let _ = self.concentrator.command(now, Command::Removed { id, usage });
            }
            _ => {}
        }
    }
}

impl Role for ConcentratorRole {
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        let now = ctx.now();
        match &delivery {
            Delivery::Start => {
                self.starts += 1;
                // What was made of this configuration at first is made of it again.
                let again = self.seed.secure("pppoe.start", self.starts);
                if self.starts > 1
                    && let Ok(concentrator) = AccessConcentrator::new(self.config.clone(), again)
                {
                    self.concentrator = concentrator;
                    self.helpers.restart();
                    self.carry.forget();
                    self.ports.clear();
                }
                self.report_at = now + self.report;
            }
            Delivery::Timer => {
                while let Some(tokens) = self.helpers.pop_due(now) {
                    for token in tokens {
                        let _ = self.concentrator.command(now, Command::Logged { token, kept: true });
                    }
                }
                if self.report_at <= now {
                    self.report_at = now + self.report;
                    let carried = self.carry.take_moved();
                    if !carried.is_empty() {
                        let _ = self.concentrator.command(now, Command::Carried(carried));
                    }
                }
            }
            Delivery::Frame { port, payload } => {
                let data = payload.as_slice();
                if let Some(source) = data.get(6..12).and_then(|octets| octets.try_into().ok()) {
                    self.ports.insert(MacAddress(source), *port);
                }
                self.concentrator.handle(now, Input::Frame { port: INTERFACE, data });
            }
            _ => {}
        }
        if let Delivery::Transit { packet, .. } = delivery {
            // The machine has no part in what it let through.
            if let Some(work) = self.carry.passes(now, &packet) {
                ctx.work(work);
                ctx.forward(packet);
            }
            return;
        }
        if !matches!(delivery, Delivery::Frame { .. }) {
            self.endpoint.feed(ctx, &mut self.concentrator, &delivery);
        }
        self.drain(ctx);
        ctx.set_timer(earliest([
            self.concentrator.poll_timeout(),
            self.endpoint.poll_timeout(),
            self.helpers.next(),
            Some(self.report_at),
        ]));
    }
}

/// Puts the concentrators of a scenario on their hosts.
pub(in super::super) fn serve(plan: &mut Plan<'_>, topology: &Topology) -> Result<(), WorldError> {
    for (name, _) in plan.scenario.services.iter() {
        let Some(loaded) = plan.scenario.concentrator_service(name) else { continue };
        let mut stations = BTreeMap::new();
        for (_, workload) in plan.scenario.pppoe_workloads().filter(|(_, of)| of.concentrator == name) {
            let hosts = topology.group(&workload.stations)?;
            stations.extend(hosts.iter().map(|host| (*host, MacAddress(host.mac(0)))));
        }
        for &host in topology.group(name)? {
            put(plan, (name, host), loaded, stations.clone())?;
        }
    }
    Ok(())
}

fn put(
    plan: &mut Plan<'_>,
    (name, host): (&str, HostId),
    loaded: &Loaded,
    stations: BTreeMap<HostId, MacAddress>,
) -> Result<(), WorldError> {
    let mut endpoint = Endpoint::new(plan.at(host)).connecting(loaded.outgoing.clone());
    let mut config = loaded.config.clone();
    config.metered = true;
    if let Some(port) = config.ppp.ports.first_mut() {
        (port.address, port.mtu) = (MacAddress(host.mac(0)), MTU);
    }
    let dynamic = loaded.file.aaa.as_ref().and_then(|aaa| aaa.dynamic.as_ref());
    let dynamic = dynamic.filter(|dynamic| plan.addresses.serves(host, dynamic.listen.ip()));
    let dynamic = dynamic.map(|dynamic| (endpoint.socket(DYNAMIC_SOCKET), dynamic.listen.port()));
    let asked = loaded.file.ident.iter().flat_map(|ident| &ident.listen);
    let mut listeners = BTreeMap::new();
    for (n, address) in (0..).zip(asked) {
        if plan.addresses.serves(host, address.ip()) {
            listeners.entry(address.port()).or_insert(ListenerId { n, ..IDENT_LISTENER });
        }
    }
    for (port, listener) in &listeners {
        endpoint.accept_at(*port, *listener, None);
    }
    let seed = plan.seed.derive("pppoe", u64::from(host.0));
    let concentrator = AccessConcentrator::new(config.clone(), seed.secure("pppoe.start", 0));
    let concentrator =
        concentrator.map_err(|why| WorldError::Role(format!("the service of host \"{name}\": {why}")))?;
    let cpu = plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref());
    let role = ConcentratorRole {
        endpoint,
        config,
        concentrator,
        helpers: helpers_of(cpu, seed.stream("helpers", 0), &[(PPPOE_LOG, 1, true)]),
        carry: Carry::new(stations),
        ports: BTreeMap::new(),
        report: loaded.file.data.report.get(),
        report_at: Instant::ZERO,
        seed,
        starts: 0,
    };
    let app = plan.role(host, role);
    plan.builder.take_frames(app);
    plan.builder.take_transit(app);
    if let Some((socket, port)) = dynamic {
        plan.builder.bind_udp(app, socket, port)?;
    }
    for port in listeners.into_keys() {
        plan.builder.listen(app, port)?;
    }
    Ok(())
}
