//! A run on a lab: the same hosts, links and roles, on the kernel's own network.

use super::error::WorldError;
use super::measure::Measure;
use super::network::{LabSettings, Network, Sampled};
use super::role::Role;
use super::topology::Topology;
use std::collections::BTreeMap;
use usher_lab::{Hosts, Setup};
use usher_sim::{Builder, Tap};

/// A relay is late whose last hundredth of packets is as late as this, and hosts are whose timers are twenty times as late:
/// seconds.
const LATE: f64 = 0.001;

/// What a run on a lab has to say of itself; empty for others. Of several runs the first kind adds up, of the second the
/// largest stays.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LabFacts {
    /// Counts and seconds.
    pub sums: BTreeMap<String, f64>,
    /// Largest values.
    pub most: BTreeMap<String, f64>,
}

impl LabFacts {
    /// Takes another run's in.
    pub fn add(&mut self, other: &Self) {
        for (name, value) in &other.sums {
            *self.sums.entry(name.clone()).or_default() += value;
        }
        for (name, value) in &other.most {
            let most = self.most.entry(name.clone()).or_insert(*value);
            *most = most.max(*value);
        }
    }
}

/// The lab of a run's hosts and links, with their roles.
///
/// # Errors
/// The lab cannot be had, or the study has what a lab has not.
pub(super) fn network(
    builder: Builder<Box<dyn Role>>,
    measure: Measure,
    topology: &Topology,
    tap: Option<Box<dyn Tap>>,
    name: &str,
    settings: &LabSettings,
) -> Result<Network, WorldError> {
    let mut hosts = BTreeMap::new();
    for (group, members) in &topology.hosts {
        hosts.extend(members.iter().enumerate().map(|(i, id)| (id.0, member(group, i, members.len()))));
    }
    let mut links = BTreeMap::new();
    for (group, members) in &topology.links {
        links.extend(members.iter().enumerate().map(|(i, id)| (id.0, member(group, i, members.len()))));
    }
    let setup = Setup {
        name: name.to_owned(),
        hosts: hosts.into_values().collect(),
        links: links.into_values().collect(),
        kernel: settings.kernel.clone(),
        perf: settings.perf,
    };
    let stop = settings.stop.clone();
    let hosts = Hosts::new(builder.into_parts(), &setup, &settings.registry, measure, tap, stop.clone())?;
    Ok(Network::Lab(Box::new(hosts), stop))
}

/// How well the lab was the network that was asked for, and what roles cost.
pub(super) fn facts(network: &Network, topology: &Topology, sampled: Option<&Sampled>) -> LabFacts {
    let Network::Lab(hosts, _) = network else { return LabFacts::default() };
    let (relay, timers, counters) = (hosts.relay_report(), hosts.precision(), hosts.counters());
    let mut facts = LabFacts::default();
    let mut sum = |name: &str, value: f64| {
        *facts.sums.entry(name.to_owned()).or_default() += value;
    };
    sum("runs", 1.0);
    sum("runs_preferred", f64::from(u8::from(relay.real_time && timers.preferred)));
    let lost = relay.overflowed + relay.refused + relay.truncated;
    let undone = counters.not_sent + counters.no_socket + counters.unknown_sender;
    sum("runs_disturbed", f64::from(u8::from(lost + undone > 0)));
    let late = relay.delays.p99 > LATE || timers.latest_ns as f64 / 1e9 > 20.0 * LATE;
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
    for (host, took) in hosts.processor() {
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
/// What a member of a group is called.
fn member(group: &str, i: usize, of: usize) -> String {
    if of == 1 { group.to_owned() } else { format!("{group}-{i}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_several_runs_add_up_or_are_the_largest() {
        let one = |late: f64| LabFacts {
            sums: [("timers".to_owned(), 2.0)].into(),
            most: [("timers_latest_s".to_owned(), late)].into(),
        };
        let mut all = LabFacts::default();
        [0.3, 0.7, 0.5].map(one).iter().for_each(|facts| all.add(facts));
        assert_eq!((all.sums["timers"], all.most["timers_latest_s"]), (6.0, 0.7));
    }
}
