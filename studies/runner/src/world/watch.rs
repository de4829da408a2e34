//! The observation of a run beside its metrics: the time span of each dialogue, and the packets at both ends of links.

use super::network::RunNetwork;
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::net::IpAddr;
use usher_core::Instant;
use usher_scenario::model::{Scenario, Workload};
use usher_sim::{HostId, PacketTap, SimulationBuilder};

/// An observed host: of a group, the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedHost {
    /// Its name in the study.
    pub name: String,
    /// Its addresses, including those of its interfaces.
    pub addresses: Vec<IpAddr>,
}

/// A dialogue that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObservedDialogue {
    /// Its workload's name; empty for a sole workload.
    pub workload: String,
    /// Index of the host that reported its end, if observed.
    pub host_index: Option<usize>,
    /// When it began.
    pub started_at: Instant,
    /// When it ended.
    pub ended_at: Instant,
    /// True if it succeeded.
    pub completed: bool,
    /// True if it began within the counted time.
    pub counts: bool,
    /// True for plain data: requests and answers of given sizes, whose messages have no names.
    pub data: bool,
}

/// The observation of a run.
#[derive(Debug)]
pub struct RunObservation {
    /// Start of the counted time.
    pub from: Instant,
    /// The observed hosts, in the study's order.
    pub hosts: Vec<ObservedHost>,
    /// By interface number of the tap: the index of the host, and whether its packets have an Ethernet header.
    pub ports: Vec<(Option<usize>, bool)>,
    /// The dialogues that have ended, in the order of their ends.
    pub dialogues: Vec<ObservedDialogue>,
    /// The tap that was passed in, with its packets.
    pub tap: Option<Box<dyn PacketTap>>,
}

/// The state of an observed run.
#[derive(Debug)]
pub(super) struct RunObservationState {
    hosts: Vec<ObservedHost>,
    of_hosts: BTreeMap<HostId, usize>,
    ports: Vec<(Option<usize>, bool)>,
}

impl RunObservationState {
    /// Finds the observed hosts, and captures links at both ends if `packets` is true.
    pub(super) fn from_scenario(
        scenario: &Scenario,
        topology: &NetworkTopology,
        builder: &mut SimulationBuilder<Box<dyn HostRole>>,
        packets: bool,
    ) -> Self {
        let mut watch = Self { hosts: Vec::new(), of_hosts: BTreeMap::new(), ports: Vec::new() };
        let of_kind = |interface: bool| {
            scenario.hosts.iter().filter(move |(_, host)| host.interface_of.is_some() == interface)
        };
        for (name, host) in of_kind(false).chain(of_kind(true)) {
            let Some(&id) = topology.hosts.get(name).and_then(|members| members.first()) else { continue };
            let address = builder.addresses().address_of(id);
            let owner =
                host.interface_of.as_ref().and_then(|o| watch.hosts.iter().position(|p| p.name == *o));
            let place = owner.unwrap_or_else(|| {
                watch.hosts.push(ObservedHost { name: name.to_owned(), addresses: Vec::new() });
                watch.hosts.len() - 1
            });
            watch.hosts[place].addresses.push(address);
            watch.of_hosts.insert(id, place);
        }
        for ((_, links), ethernet) in topology.links.iter().zip(&topology.ethernet) {
            let Some(&link) = links.first().filter(|_| packets) else { continue };
            for (first, host) in [true, false].into_iter().zip(builder.link_ends(link)) {
                builder.capture_link(link, first, watch.ports.len() as u16);
                watch.ports.push((watch.of_hosts.get(&host).copied(), *ethernet));
            }
        }
        watch
    }

    /// Returns the observation.
    pub(super) fn finish_observation(
        self,
        network: &mut RunNetwork,
        scenario: &Scenario,
        tap: Option<Box<dyn PacketTap>>,
    ) -> RunObservation {
        let spans = network.observer_mut().take_dialogue_spans();
        let workloads: Vec<(&str, &Workload)> = scenario.all_workloads().collect();
        let dialogue = |span: super::measure::DialogueSpan| ObservedDialogue {
            workload: workloads.get(span.workload).map_or("", |(name, _)| name).to_owned(),
            data: workloads.get(span.workload).is_some_and(|(_, w)| matches!(w, Workload::Dialogue(_))),
            host_index: network.host_of(span.app).and_then(|host| self.of_hosts.get(&host).copied()),
            started_at: span.started_at,
            ended_at: span.ended_at,
            completed: span.completed,
            counts: span.counts,
        };
        let dialogues = spans.into_iter().map(dialogue).collect();
        let from = Instant::ZERO + scenario.run.warmup.get();
        RunObservation { from, hosts: self.hosts, ports: self.ports, dialogues, tap }
    }
}
