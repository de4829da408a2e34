//! A run on a lab: the same hosts, links and roles on the kernel's network.

use super::error::ScenarioRunError;
use super::measure::RunObserver;
use super::network::{LabNetwork, LabRunStats, ProcessorSamplesByLibrary, ProcessorTimeByHost, RunNetwork};
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::Instant;
use usher_lab::{KernelSettings, LabHosts, LabRegistry, LabSetup};
use usher_sim::{LinkId, LinkStats, PacketTap, SctpTotals, SimulationBuilder, TcpTotals};

/// A relay is late if the 99 % quantile of its packets' lateness reaches this, in seconds. Hosts are late if their
/// timers are twenty times as late.
const LATENESS_LIMIT_S: f64 = 0.001;

/// Settings of runs on a lab, beside the study.
#[derive(Clone, Debug)]
pub struct LabRunSettings {
    /// The directory of existing labs.
    pub registry: LabRegistry,
    /// Kernel settings beyond the study's.
    pub kernel: KernelSettings,
    /// True to sample processor time by library, if perf is available.
    pub perf: bool,
    /// Ends runs early when set.
    pub stop: Arc<AtomicBool>,
}

/// Creates the lab of a run's hosts and links, with their roles.
///
/// # Errors
/// The lab cannot be created, or the study needs something that a lab lacks.
pub(super) fn build_lab_network(
    builder: SimulationBuilder<Box<dyn HostRole>>,
    measure: RunObserver,
    topology: &NetworkTopology,
    tap: Option<Box<dyn PacketTap>>,
    name: &str,
    settings: &LabRunSettings,
) -> Result<RunNetwork, ScenarioRunError> {
    let mut hosts = BTreeMap::new();
    for (group, members) in &topology.hosts {
        hosts.extend(members.iter().enumerate().map(|(i, id)| (id.0, member_name(group, i, members.len()))));
    }
    let mut links = BTreeMap::new();
    for (group, members) in &topology.links {
        links.extend(members.iter().enumerate().map(|(i, id)| (id.0, member_name(group, i, members.len()))));
    }
    let setup = LabSetup {
        name: name.to_owned(),
        hosts: hosts.into_values().collect(),
        links: links.into_values().collect(),
        kernel: settings.kernel.clone(),
        perf: settings.perf,
    };
    let stop = settings.stop.clone();
    let hosts = LabHosts::new(builder.into_parts(), &setup, &settings.registry, measure, tap, stop.clone())?;
    Ok(RunNetwork::Lab(Box::new(RunningLab { hosts, stop })))
}

/// Returns the name of a group's member.
fn member_name(group: &str, i: usize, of: usize) -> String {
    if of == 1 { group.to_owned() } else { format!("{group}-{i}") }
}

/// A run's hosts, and the flag that ends it early.
#[derive(Debug)]
struct RunningLab {
    hosts: LabHosts<Box<dyn HostRole>, RunObserver>,
    stop: Arc<AtomicBool>,
}

impl LabNetwork for RunningLab {
    fn run_until(&mut self, until: Instant) {
        self.hosts.run_until(until);
    }
    fn observer(&self) -> &RunObserver {
        self.hosts.observer()
    }
    fn observer_mut(&mut self) -> &mut RunObserver {
        self.hosts.observer_mut()
    }
    fn roles(&self) -> Box<dyn Iterator<Item = &dyn HostRole> + '_> {
        Box::new(self.hosts.apps().map(AsRef::as_ref))
    }
    fn now(&self) -> Instant {
        self.hosts.now()
    }
    fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        self.hosts.link_stats(link)
    }
    fn tcp_totals(&self) -> Result<TcpTotals, ScenarioRunError> {
        Ok(self.hosts.tcp_totals()?)
    }
    fn sctp_totals(&self) -> Result<SctpTotals, ScenarioRunError> {
        Ok(self.hosts.sctp_totals()?)
    }
    fn all_link_stats(&self) -> Vec<[LinkStats; 2]> {
        self.hosts.lab().link_stats()
    }
    fn processor_times(&self) -> ProcessorTimeByHost {
        let mut all = ProcessorTimeByHost::new();
        self.hosts.processor_times().for_each(|(host, took)| *all.entry(host).or_default() += took);
        all
    }
    fn finish_sampling(&mut self) -> Option<ProcessorSamplesByLibrary> {
        self.hosts.finish_sampling()
    }
    fn take_failure(&mut self) -> Option<ScenarioRunError> {
        match self.hosts.take_failure() {
            Some(failure) => Some(failure.into()),
            None => self.stop.load(Ordering::Relaxed).then_some(ScenarioRunError::Stopped),
        }
    }
    fn take_tap(&mut self) -> Result<Option<Box<dyn PacketTap>>, ScenarioRunError> {
        Ok(self.hosts.take_tap()?)
    }
    fn lab_facts(
        &self,
        topology: &NetworkTopology,
        sampled: Option<&ProcessorSamplesByLibrary>,
    ) -> LabRunStats {
        let hosts = &self.hosts;
        let (relay, timers, counters) = (hosts.relay_report(), hosts.precision(), hosts.counters());
        let mut facts = LabRunStats::default();
        let mut sum = |name: &str, value: f64| {
            *facts.sums.entry(name.to_owned()).or_default() += value;
        };
        sum("runs", 1.0);
        sum("runs_preferred", f64::from(u8::from(relay.real_time && timers.preferred)));
        let lost = relay.overflowed + relay.refused + relay.truncated;
        let undone = counters.not_sent + counters.no_socket + counters.unknown_sender;
        sum("runs_disturbed", f64::from(u8::from(lost + undone > 0)));
        let late =
            relay.delays.p99 > LATENESS_LIMIT_S || timers.latest_ns as f64 / 1e9 > 20.0 * LATENESS_LIMIT_S;
        sum("runs_late", f64::from(u8::from(late)));
        sum("relay_packets", relay.delays.count as f64);
        sum("relay_late_s", relay.delays.mean * relay.delays.count as f64);
        sum("relay_overflowed", relay.overflowed as f64);
        sum("relay_refused", relay.refused as f64);
        sum("relay_truncated", relay.truncated as f64);
        sum("relay_processor_s", relay.processor);
        sum("timers", timers.timers as f64);
        sum("timers_late_s", timers.late_ns as f64 / 1e9);
        sum("unknown_senders", counters.unknown_sender as f64);
        sum("not_sent", counters.not_sent as f64);
        sum("no_sockets", counters.no_socket as f64);
        let group = |host| topology.hosts.iter().find(|(_, members)| members.contains(&host));
        let mut took_by: BTreeMap<&str, f64> = BTreeMap::new();
        for (host, took) in hosts.processor_times() {
            if let Some((name, _)) = group(host) {
                sum(&format!("processor_s.{name}"), took.as_secs_f64());
                *took_by.entry(name).or_default() += took.as_secs_f64();
            }
        }
        if let Some((event, seen)) = sampled {
            let mut of: BTreeMap<(&str, &str), f64> = BTreeMap::new();
            let mut all: BTreeMap<&str, f64> = BTreeMap::new();
            for ((host, library), n) in seen {
                if let Some((name, _)) = group(*host) {
                    *of.entry((name.as_str(), *library)).or_default() += *n as f64;
                    *all.entry(name).or_default() += *n as f64;
                }
            }
            for ((name, library), n) in of {
                let took = took_by.get(name).copied().unwrap_or(0.0);
                sum(&format!("library_s.{name}.{library}"), took * n / all[name]);
            }
            all.iter().for_each(|(name, n)| sum(&format!("samples.{name}"), *n));
            sum(&format!("sampled_by.{event}"), 1.0);
        }
        facts.most.insert("relay_late_p99_s".to_owned(), relay.delays.p99);
        facts.most.insert("relay_latest_s".to_owned(), relay.delays.max);
        facts.most.insert("timers_latest_s".to_owned(), timers.latest_ns as f64 / 1e9);
        facts
    }
}
