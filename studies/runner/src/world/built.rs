//! From a scenario to hosts, links and roles.

use super::error::WorldError;
use super::measure::Measure;
use super::plan::{Plan, Users};
use super::role::Role;
use super::topology::{Topology, sctp_config, tcp_config};
use super::{
    aaa, background, dialogue, eap, handover, ident, ike, ike_service, mih, mih_service, pppoe, router,
};
use std::sync::Arc;
use usher_core::{Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_scenario::model::{Scenario, Workload};
use usher_sim::{Builder, DISCARD_PORT, Transports};

/// A run's hosts, links and roles, for one network or the other.
pub(super) struct Built {
    pub(super) builder: Builder<Box<dyn Role>>,
    pub(super) measure: Measure,
    pub(super) topology: Topology,
    pub(super) interfaces: Vec<(String, bool)>,
    pub(super) key_log: KeyLog,
}

impl Built {
    /// `capture` names the links that are captured at their first host; of a group, the first.
    pub(super) fn of(scenario: &Scenario, seed: Seed, capture: &[String]) -> Result<Self, WorldError> {
        let version = scenario.run.ip.into();
        let from = Instant::ZERO + scenario.run.warmup.get();
        let end = from + scenario.run.duration.get();
        let cells = scenario.cells_in_use().map(|(_, c)| c.mtu);
        let bss = scenario.bss_in_use().map(|(_, b)| b.mtu);
        let mtus = scenario.links.iter().map(|(_, l)| l.mtu).chain(cells).chain(bss);
        let mtu = mtus.map(|mtu| mtu.bytes() as u32).min().unwrap_or(1500);
        let mut builder = Builder::new(version, seed);
        builder.epoch(scenario.run.date.wall_time());
        let topology = Topology::build(scenario, seed, &mut builder)?;
        let transports = Arc::new(Transports {
            tcp: Arc::new(tcp_config(&scenario.transport.tcp, version, mtu)),
            sctp: Arc::new(sctp_config(&scenario.transport.sctp, version, mtu)),
        });
        if scenario.run.memory {
            builder.follow_memory();
        }
        let addresses = Arc::new(builder.addresses().clone());
        let users = Users::default();
        let mut plan = Plan { scenario, addresses, seed, builder, transports, users, name: "", apps: 0, end };
        for outage in &scenario.outages {
            for &host in topology.group(&outage.host)? {
                let at = |time: usher_scenario::units::Time| Instant::ZERO + time.get();
                plan.builder.outage(host, at(outage.from), at(outage.until));
            }
        }
        let mut interfaces = Vec::new();
        for ((name, links), ethernet) in topology.links.iter().zip(&topology.ethernet) {
            if capture.contains(name) {
                plan.builder.capture(links[0], true, interfaces.len() as u16);
                interfaces.push((name.clone(), *ethernet));
            }
        }
        let key_log = KeyLog::new();
        let stations = eap::Stations::of(scenario, &topology)?;
        let sessions = pppoe::users(scenario, &topology)?;
        let users = |loaded: &_| [stations.users(loaded), sessions.clone()].concat();
        aaa::build(&mut plan, &topology, &key_log, users)?;
        ident::serve(&mut plan, &topology)?;
        ike_service::serve(&mut plan, &topology)?;
        mih_service::serve(&mut plan, &topology)?;
        pppoe::serve(&mut plan, &topology)?;
        router::serve(&mut plan, &topology)?;
        let mut firsts = Vec::new();
        for (name, workload) in scenario.all_workloads() {
            firsts.push(plan.apps);
            plan.name = name;
            // Beside others each has chance of its own, whatever the others are.
            plan.seed = if name.is_empty() { seed } else { seed.derive(&format!("workload {name}"), 0) };
            match workload {
                Workload::Dialogue(d) => dialogue::build(&mut plan, &topology, d)?,
                Workload::Eap(e) => eap::build(&mut plan, &topology, e, &key_log)?,
                Workload::Ident(i) => ident::build(&mut plan, &topology, i)?,
                Workload::Ike(i) => ike::build(&mut plan, &topology, i, &key_log)?,
                Workload::Mih(m) => mih::build(&mut plan, &topology, m)?,
                Workload::Handover(h) => handover::build(&mut plan, &topology, h)?,
                Workload::Pppoe(p) => pppoe::build(&mut plan, &topology, p)?,
            }
        }
        for (i, b) in scenario.background.iter().enumerate() {
            let to = topology.group(&b.to)?;
            for (j, &host) in topology.group(&b.from)?.iter().enumerate() {
                let rng = seed.stream("background", (i as u64) << 32 | j as u64);
                let source = background::Source::new(b, to[j % to.len()], version, rng);
                plan.builder.app(host, Box::new(source), None);
            }
            for &host in to {
                let sink = plan.builder.app(host, Box::new(background::Sink), None);
                // Several kinds of traffic may end at the same sink.
                let _ = plan.builder.bind_udp(sink, 0, DISCARD_PORT);
            }
        }
        let mut measure = Measure::new(from, end, firsts);
        for (i, (name, _)) in scenario.all_workloads().enumerate() {
            measure.ask(i, name, scenario.asked.iter());
        }
        Ok(Self { builder: plan.builder, measure, topology, interfaces, key_log })
    }
}
