//! The access concentrator of a host, by its configuration file.

use super::super::aaa::build_worker_pool;
use super::super::error::ScenarioRunError;
use super::super::helpers::WorkerPool;
use super::super::machine::MachineSockets;
use super::super::plan::NetworkPlan;
use super::super::report::RoleReport;
use super::super::role::HostRole;
use super::super::topology::NetworkTopology;
use super::carry::SessionDataPlane;
use std::collections::BTreeMap;
use usher_concentrator::config::LoadedConcentratorConfig;
use usher_concentrator::{
    AccessConcentrator, AccessConcentratorCommand, AccessConcentratorConfig, AccessConcentratorEvent,
    ConcentratorJob, DYNAMIC_SOCKET, IDENT_LISTENER,
};
use usher_core::timer::earliest_deadline;
use usher_core::{
    Duration, Instant, JobRequest, LinkLayerPortId, ListenerId, Machine, MachineInput, MachineOutput, Seed,
};
use usher_ppp::pppoe::MacAddress;
use usher_scenario::work::PPPOE_LOG;
use usher_sim::{AppContext, AppDelivery, HostId};

/// The first interface of the file: all stations are behind it, as behind a switch.
const INTERFACE: LinkLayerPortId = LinkLayerPortId(0);
/// Longest payload of a frame there, in octets.
const MTU: u16 = 1500;

/// The concentrator and its data plane.
#[derive(Debug)]
struct ConcentratorRole {
    endpoint: MachineSockets,
    config: AccessConcentratorConfig,
    concentrator: AccessConcentrator,
    helpers: WorkerPool<u64>,
    data_plane: SessionDataPlane,
    /// The host's port of each station, as a switch learns it.
    ports: BTreeMap<MacAddress, u32>,
    /// Interval of usage reports, and the time of the next.
    report: Duration,
    report_at: Instant,
    seed: Seed,
    starts: u64,
}

impl ConcentratorRole {
    fn drain_outputs(&mut self, ctx: &mut AppContext<'_, RoleReport>) {
        let now = ctx.now();
        let mut buf = Vec::new();
        // Apply outputs in order, so that sessions are installed before the packets that depend on them.
        while let Some(output) = self.concentrator.poll_output(&mut buf) {
            match output {
                MachineOutput::Transmit(usher_core::Transmit::Frame { port: INTERFACE }) => {
                    let to = buf.first_chunk().map(|octets| MacAddress(*octets));
                    if let Some(port) = to.and_then(|to| self.ports.get(&to)) {
                        ctx.send_frame(*port, usher_sim::Payload::copy_from_slice(&buf));
                    }
                }
                MachineOutput::Transmit(transmit) => {
                    self.endpoint.apply_transmit(ctx, &mut self.concentrator, transmit, &buf);
                }
                MachineOutput::Work(work) => ctx.charge_work(work),
                MachineOutput::Job(JobRequest { token, job: what, .. }) => {
                    self.dispatch_concentrator_job(ctx, token, &what)
                }
                MachineOutput::Event(event) => self.handle_event(ctx, now, event),
            }
        }
    }

    fn dispatch_concentrator_job(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        token: u64,
        what: &ConcentratorJob,
    ) {
        let now = ctx.now();
        match what {
            ConcentratorJob::Log(_) => {
                if let Some(token) = self.helpers.submit_worker_job(now, Some(PPPOE_LOG), token) {
                    // An error is ignored: the login may have ended meanwhile.
                    let _ = self
                        .concentrator
                        .handle_command(now, AccessConcentratorCommand::Logged { token, is_stored: true });
                }
            }
            // The simulator does not translate addresses.
            ConcentratorJob::Translation(_) => {
                let _ = self
                    .concentrator
                    .handle_command(now, AccessConcentratorCommand::Translated { token, inner: Ok(None) });
            }
        }
    }

    fn handle_event(
        &mut self,
        ctx: &mut AppContext<'_, RoleReport>,
        now: Instant,
        event: AccessConcentratorEvent,
    ) {
        match event {
            AccessConcentratorEvent::Install(entry) => {
                self.data_plane.install_session(now, &entry);
                if let Some(port) = self.ports.get(&entry.peer) {
                    ctx.name_session(*port, entry.number);
                }
            }
            AccessConcentratorEvent::Remove { id, .. } => {
                let usage = self.data_plane.remove_session(id);
                let _ =
                    self.concentrator.handle_command(now, AccessConcentratorCommand::Removed { id, usage });
            }
            _ => {}
        }
    }
}

impl HostRole for ConcentratorRole {
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, RoleReport>, delivery: AppDelivery) {
        let now = ctx.now();
        match &delivery {
            AppDelivery::Start => {
                self.starts += 1;
                // This configuration is valid, because the first start used it too.
                let again = self.seed.derive_secure_rng("pppoe.start", self.starts);
                if self.starts > 1
                    && let Ok(concentrator) = AccessConcentrator::new(self.config.clone(), again)
                {
                    self.concentrator = concentrator;
                    self.helpers.discard_worker_jobs();
                    self.data_plane.clear();
                    self.ports.clear();
                }
                self.report_at = now + self.report;
            }
            AppDelivery::Timer => {
                while let Some(tokens) = self.helpers.pop_due(now) {
                    for token in tokens {
                        let _ = self.concentrator.handle_command(
                            now,
                            AccessConcentratorCommand::Logged { token, is_stored: true },
                        );
                    }
                }
                if self.report_at <= now {
                    self.report_at = now + self.report;
                    let carried = self.data_plane.take_active_session_usage();
                    if !carried.is_empty() {
                        let _ = self
                            .concentrator
                            .handle_command(now, AccessConcentratorCommand::UsageReport(carried));
                    }
                }
            }
            AppDelivery::Frame { port, payload } => {
                let data = payload.as_slice();
                if let Some(source) = data.get(6..12).and_then(|octets| octets.try_into().ok()) {
                    self.ports.insert(MacAddress(source), *port);
                }
                self.concentrator.handle_input(now, MachineInput::Frame { port: INTERFACE, data });
            }
            _ => {}
        }
        if let AppDelivery::Transit { packet, .. } = delivery {
            // The data plane carries this packet, so the machine does not see it.
            if let Some(work) = self.data_plane.carry_session_packet(now, &packet) {
                ctx.charge_work(work);
                ctx.forward_packet(packet);
            }
            return;
        }
        if !matches!(delivery, AppDelivery::Frame { .. }) {
            self.endpoint.deliver_to_machine(ctx, &mut self.concentrator, &delivery);
        }
        self.drain_outputs(ctx);
        ctx.set_timer(earliest_deadline([
            self.concentrator.poll_timeout(),
            self.endpoint.poll_timeout(),
            self.helpers.next_job_completion(),
            Some(self.report_at),
        ]));
    }
}

/// Places the concentrators of a scenario on their hosts.
pub(in super::super) fn place_concentrators(
    plan: &mut NetworkPlan<'_>,
    topology: &NetworkTopology,
) -> Result<(), ScenarioRunError> {
    for (name, _) in plan.scenario.services.iter() {
        let Some(loaded) = plan.scenario.concentrator_service(name) else { continue };
        let mut stations = BTreeMap::new();
        for (_, workload) in plan.scenario.pppoe_workloads().filter(|(_, of)| of.concentrator == name) {
            let hosts = topology.host_group(&workload.stations)?;
            stations.extend(hosts.iter().map(|host| (*host, MacAddress(host.mac_address(0)))));
        }
        for &host in topology.host_group(name)? {
            place_concentrator(plan, (name, host), loaded, stations.clone())?;
        }
    }
    Ok(())
}

fn place_concentrator(
    plan: &mut NetworkPlan<'_>,
    (name, host): (&str, HostId),
    loaded: &LoadedConcentratorConfig,
    stations: BTreeMap<HostId, MacAddress>,
) -> Result<(), ScenarioRunError> {
    let mut endpoint =
        MachineSockets::new(plan.host_address(host)).with_outgoing_tls(loaded.outgoing.clone());
    let mut config = loaded.config.clone();
    config.subscribers.is_metered = true;
    if let Some(port) = config.ppp.ports.first_mut() {
        (port.address, port.mtu) = (MacAddress(host.mac_address(0)), MTU);
    }
    let dynamic = loaded.file.aaa.as_ref().and_then(|aaa| aaa.dynamic.as_ref());
    let dynamic = dynamic.filter(|dynamic| plan.addresses.is_reachable_at(host, dynamic.listen.ip()));
    let dynamic = dynamic.map(|dynamic| (endpoint.socket_number(DYNAMIC_SOCKET), dynamic.listen.port()));
    let asked = loaded.file.ident.iter().flat_map(|ident| &ident.listen);
    let mut listeners = BTreeMap::new();
    for (n, address) in (0..).zip(asked) {
        if plan.addresses.is_reachable_at(host, address.ip()) {
            listeners.entry(address.port()).or_insert(ListenerId { n, ..IDENT_LISTENER });
        }
    }
    for (port, listener) in &listeners {
        endpoint.register_listener(*port, *listener, None);
    }
    let seed = plan.seed.derive_seed("pppoe", u64::from(host.0));
    let concentrator = AccessConcentrator::new(config.clone(), seed.derive_secure_rng("pppoe.start", 0));
    let concentrator = concentrator
        .map_err(|why| ScenarioRunError::Role(format!("the service of host \"{name}\": {why}")))?;
    let cpu = plan.scenario.hosts.get(name).and_then(|host| host.cpu.as_ref());
    let role = ConcentratorRole {
        endpoint,
        config,
        concentrator,
        helpers: build_worker_pool(cpu, seed.derive_rng("helpers", 0), &[(PPPOE_LOG, 1, true)]),
        data_plane: SessionDataPlane::new(stations),
        ports: BTreeMap::new(),
        report: loaded.file.data.report.get(),
        report_at: Instant::ZERO,
        seed,
        starts: 0,
    };
    let app = plan.add_role(host, role);
    plan.builder.take_frames(app);
    plan.builder.deliver_transit_to(app);
    if let Some((socket, port)) = dynamic {
        plan.builder.bind_udp(app, socket, port)?;
    }
    for port in listeners.into_keys() {
        plan.builder.listen_tcp(app, port)?;
    }
    Ok(())
}
