//! Builds hosts, links and roles from a scenario.

use super::error::ScenarioRunError;
use super::measure::RunObserver;
use super::plan::{NetworkPlan, UserByApplication};
use super::role::HostRole;
use super::topology::{NetworkTopology, sctp_config, tcp_config};
use super::{
    aaa, background, dialogue, eap, handover, ident, ike, ike_service, mih, mih_service, pppoe, router,
};
use std::sync::Arc;
use usher_core::{Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_scenario::model::{Scenario, Workload};
use usher_sim::{DISCARD_PORT, SimulationBuilder, TransportConfig};

/// A run's hosts, links and roles, for the simulator or a lab.
pub(super) struct BuiltNetwork {
    pub(super) builder: SimulationBuilder<Box<dyn HostRole>>,
    pub(super) measure: RunObserver,
    pub(super) topology: NetworkTopology,
    pub(super) interfaces: Vec<(String, bool)>,
    pub(super) key_log: KeyLog,
}

impl BuiltNetwork {
    /// Builds the network. `capture` names the links to capture at their first host, the first of a group.
    pub(super) fn from_scenario(
        scenario: &Scenario,
        seed: Seed,
        capture: &[String],
    ) -> Result<Self, ScenarioRunError> {
        let version = scenario.run.ip.into();
        let from = Instant::ZERO + scenario.run.warmup.get();
        let end = from + scenario.run.duration.get();
        let cells = scenario.cells_in_use().map(|(_, c)| c.mtu);
        let bss = scenario.bss_in_use().map(|(_, b)| b.mtu);
        let mtus = scenario.links.iter().map(|(_, l)| l.mtu).chain(cells).chain(bss);
        let mtu = mtus.map(|mtu| mtu.bytes() as u32).min().unwrap_or(1500);
        let mut builder = SimulationBuilder::new(version, seed);
        builder.set_epoch(scenario.run.date.wall_time());
        let topology = NetworkTopology::from_scenario(scenario, seed, &mut builder)?;
        let transports = Arc::new(TransportConfig {
            tcp: Arc::new(tcp_config(&scenario.transport.tcp, version, mtu)),
            sctp: Arc::new(sctp_config(&scenario.transport.sctp, version, mtu)),
        });
        if scenario.run.memory {
            builder.follow_memory();
        }
        let addresses = Arc::new(builder.addresses().clone());
        let users = UserByApplication::default();
        let mut plan =
            NetworkPlan { scenario, addresses, seed, builder, transports, users, name: "", apps: 0, end };
        for outage in &scenario.outages {
            for &host in topology.host_group(&outage.host)? {
                let at = |time: usher_scenario::units::TimeSpan| Instant::ZERO + time.get();
                plan.builder.add_outage(host, at(outage.from), at(outage.until));
            }
        }
        let mut interfaces = Vec::new();
        for ((name, links), ethernet) in topology.links.iter().zip(&topology.ethernet) {
            if capture.contains(name) {
                plan.builder.capture_link(links[0], true, interfaces.len() as u16);
                interfaces.push((name.clone(), *ethernet));
            }
        }
        let key_log = KeyLog::new();
        let stations = eap::StationUserNames::from_scenario(scenario, &topology)?;
        let sessions = pppoe::station_users(scenario, &topology)?;
        let users = |loaded: &_| [stations.user_rows(loaded), sessions.clone()].concat();
        aaa::place_aaa_services(&mut plan, &topology, &key_log, users)?;
        ident::place_ident_services(&mut plan, &topology)?;
        ike_service::place_gateways(&mut plan, &topology)?;
        mih_service::place_mih_functions(&mut plan, &topology)?;
        pppoe::place_concentrators(&mut plan, &topology)?;
        router::place_routers(&mut plan, &topology)?;
        let mut firsts = Vec::new();
        for (name, workload) in scenario.all_workloads() {
            firsts.push(plan.apps);
            plan.name = name;
            // If there are several workloads, each gets random streams that are independent of the others.
            plan.seed = if name.is_empty() { seed } else { seed.derive_seed(&format!("workload {name}"), 0) };
            match workload {
                Workload::Dialogue(d) => dialogue::build_dialogue_roles(&mut plan, &topology, d)?,
                Workload::Eap(e) => eap::build_eap_roles(&mut plan, &topology, e, &key_log)?,
                Workload::Ident(i) => ident::build_ident_roles(&mut plan, &topology, i)?,
                Workload::Ike(i) => ike::build_ike_roles(&mut plan, &topology, i, &key_log)?,
                Workload::Mih(m) => mih::build_mih_roles(&mut plan, &topology, m)?,
                Workload::Handover(h) => handover::build_handover_roles(&mut plan, &topology, h)?,
                Workload::Pppoe(p) => pppoe::build_pppoe_roles(&mut plan, &topology, p)?,
            }
        }
        for (i, b) in scenario.background.iter().enumerate() {
            let to = topology.host_group(&b.to)?;
            for (j, &host) in topology.host_group(&b.from)?.iter().enumerate() {
                let rng = seed.derive_rng("background", (i as u64) << 32 | j as u64);
                let source = background::BackgroundSource::new(b, to[j % to.len()], version, rng);
                plan.builder.add_application(host, Box::new(source), None);
            }
            for &host in to {
                let sink = plan.builder.add_application(host, Box::new(background::BackgroundSink), None);
                // An error is ignored: if several kinds of traffic share a sink, its port is already bound.
                let _ = plan.builder.bind_udp(sink, 0, DISCARD_PORT);
            }
        }
        let mut measure = RunObserver::new(from, end, firsts);
        for (i, (name, _)) in scenario.all_workloads().enumerate() {
            measure.request_metrics(i, name, scenario.requested_metrics.iter());
        }
        Ok(Self { builder: plan.builder, measure, topology, interfaces, key_log })
    }
}
