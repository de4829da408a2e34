//! What a run takes place on: the simulator, or hosts of a lab. Both host the same roles and tell the same observer.

use super::error::WorldError;
#[cfg(not(target_arch = "wasm32"))]
use super::halves::Halves;
use super::measure::Measure;
use super::role::Role;
use super::topology::Topology;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::{Instant, WorkLabel};
use usher_sim::radio::wimax::Counters;
use usher_sim::{
    CellId, CpuStats, Fault, Held, HostId, LinkId, LinkStats, Observer, SctpTotals, Simulation, Tap,
    TcpTotals,
};

/// Processor time by host.
pub(super) type Processor = BTreeMap<HostId, std::time::Duration>;
/// By what processor time was sampled, and how often each library was seen on each host.
pub(super) type Sampled = (&'static str, BTreeMap<(HostId, &'static str), u64>);

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

/// A network on which the kernel carries packets in real time. What it does not know is the simulator's alone.
pub(super) trait Laboratory: Debug {
    fn run_until(&mut self, until: Instant);
    fn observer(&self) -> &Measure;
    fn observer_mut(&mut self) -> &mut Measure;
    /// The applications, in their order.
    fn apps(&self) -> Box<dyn Iterator<Item = &dyn Role> + '_>;
    fn now(&self) -> Instant;
    fn link_stats(&self, link: LinkId) -> [LinkStats; 2];
    /// The kernel's counters, which are read from files.
    fn tcp_totals(&self) -> Result<TcpTotals, WorldError>;
    /// What the kernel counts as the simulator does.
    fn sctp_totals(&self) -> Result<SctpTotals, WorldError>;
    /// Of all links, by their numbers.
    fn all_link_stats(&self) -> Vec<[LinkStats; 2]>;
    /// Processor time that the roles of each host have taken until now.
    fn processor(&self) -> Processor;
    /// Ends the sampling of processor time by library, where there was one.
    fn sampled(&mut self) -> Option<Sampled>;
    /// Why it is not to go on.
    fn failure(&mut self) -> Option<WorldError>;
    fn take_tap(&mut self) -> Result<Option<Box<dyn Tap>>, WorldError>;
    /// How well it was the network that was asked for, and what roles cost.
    fn facts(&self, topology: &Topology, sampled: Option<&Sampled>) -> LabFacts;
}

/// The network of a run.
#[derive(Debug)]
pub(super) enum Network {
    Sim(Box<Simulation<Box<dyn Role>, Measure>>),
    #[cfg(not(target_arch = "wasm32"))]
    Halves(Box<Halves>),
    #[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "a browser has no lab"))]
    Lab(Box<dyn Laboratory>),
}

impl Network {
    pub(super) fn run_until(&mut self, until: Instant) {
        match self {
            Self::Sim(sim) => sim.run_until(until),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.run_until(until),
            Self::Lab(hosts) => hosts.run_until(until),
        }
    }
    pub(super) fn observer(&self) -> &Measure {
        match self {
            Self::Sim(sim) => sim.observer(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.first().observer(),
            Self::Lab(hosts) => hosts.observer(),
        }
    }
    pub(super) fn observer_mut(&mut self) -> &mut Measure {
        match self {
            Self::Sim(sim) => sim.observer_mut(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.first_mut().observer_mut(),
            Self::Lab(hosts) => hosts.observer_mut(),
        }
    }
    pub(super) fn is_done(&self) -> bool {
        self.observer().is_done()
    }
    /// The applications of these numbers.
    pub(super) fn apps(&self, numbers: std::ops::Range<usize>) -> Vec<&dyn Role> {
        let count = numbers.len();
        match self {
            Self::Sim(sim) => sim.apps().skip(numbers.start).take(count).map(AsRef::as_ref).collect(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => {
                both.first().apps().skip(numbers.start).take(count).map(AsRef::as_ref).collect()
            }
            Self::Lab(hosts) => hosts.apps().skip(numbers.start).take(count).collect(),
        }
    }
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Sim(sim) => sim.now(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.first().now(),
            Self::Lab(hosts) => hosts.now(),
        }
    }
    pub(super) fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        match self {
            Self::Sim(sim) => sim.link_stats(link),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.link_stats(link),
            Self::Lab(hosts) => hosts.link_stats(link),
        }
    }
    /// What TCP did on all hosts; the kernel's counters are read from files.
    pub(super) fn tcp_totals(&self) -> Result<TcpTotals, WorldError> {
        match self {
            Self::Sim(sim) => Ok(sim.tcp_totals()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => Ok(both.tcp_totals()),
            Self::Lab(hosts) => hosts.tcp_totals(),
        }
    }
    /// It is a lab.
    pub(super) const fn is_lab(&self) -> bool {
        matches!(self, Self::Lab(..))
    }
    /// What SCTP did on all hosts; of the lab what the kernel counts alike.
    pub(super) fn sctp_totals(&self) -> Result<SctpTotals, WorldError> {
        match self {
            Self::Sim(sim) => Ok(sim.sctp_totals()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => Ok(both.first().sctp_totals()),
            Self::Lab(hosts) => hosts.sctp_totals(),
        }
    }
    /// Packets that links handed to hosts.
    pub(super) fn packet_hops(&self, links: impl Iterator<Item = LinkId>) -> u64 {
        match self {
            Self::Sim(sim) => sim.packet_hops(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.packet_hops(),
            Self::Lab(hosts) => {
                let stats = hosts.all_link_stats();
                let of = |link: LinkId| stats.get(link.0 as usize).copied().unwrap_or_default();
                links
                    .flat_map(of)
                    .map(|s| (s.offered + s.duplicated).saturating_sub(s.queue_full + s.lost))
                    .sum()
            }
        }
    }
    /// Processor time that the roles of each host of a lab have taken until now; of the simulator nothing, which charges it.
    pub(super) fn processor(&self) -> Processor {
        match self {
            Self::Lab(hosts) => hosts.processor(),
            _ => Processor::new(),
        }
    }
    /// Ends the sampling of processor time by library, where there was one.
    pub(super) fn sampled(&mut self) -> Option<Sampled> {
        match self {
            Self::Lab(hosts) => hosts.sampled(),
            _ => None,
        }
    }
    /// What the simulator alone has, in one thread: cells, followed memory.
    const fn simulated(&self) -> Option<&Simulation<Box<dyn Role>, Measure>> {
        match self {
            Self::Sim(sim) => Some(sim),
            _ => None,
        }
    }
    /// The host of the application of this number, in the simulator.
    pub(super) fn host_of(&self, app: u32) -> Option<HostId> {
        self.simulated()?.host_of(app)
    }
    pub(super) fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        match self {
            Self::Sim(sim) => sim.cpu_stats(host),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.cpu_stats(host),
            Self::Lab(..) => None,
        }
    }
    /// Nanoseconds that a host was charged for work of these kinds.
    pub(super) fn cpu_spent(&self, host: HostId, of: impl Fn(WorkLabel) -> bool) -> u64 {
        let spent: Vec<_> = match self {
            Self::Sim(sim) => sim.cpu_spent(host).collect(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.cpu_spent(host),
            Self::Lab(..) => Vec::new(),
        };
        spent.into_iter().filter(|(label, _)| of(*label)).map(|(_, ns)| ns).sum()
    }
    pub(super) fn cell_counters(&self, cell: CellId) -> Option<&Counters> {
        self.simulated()?.cell_counters(cell)
    }
    pub(super) fn held_at_most(&self, host: HostId) -> Option<Held> {
        self.simulated()?.held_at_most(host)
    }
    pub(super) fn forget_peaks(&mut self) {
        if let Self::Sim(sim) = self {
            sim.forget_peaks();
        }
    }
    /// Has a run on the simulator by one thread given up when this is set.
    pub(super) fn end_when(&mut self, stop: &Arc<AtomicBool>) {
        if let Self::Sim(sim) = self {
            sim.end_when(stop.clone());
        }
    }
    pub(super) fn fault(&self) -> Option<Fault> {
        self.simulated()?.fault()
    }
    /// Whether a run on a lab, or in halves, came to its end.
    pub(super) fn ended(&mut self) -> Result<(), WorldError> {
        match self {
            Self::Sim(_) => Ok(()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.failure().map_or(Ok(()), Err),
            Self::Lab(hosts) => hosts.failure().map_or(Ok(()), Err),
        }
    }
    /// What a lab has to say of itself.
    pub(super) fn facts(&self, topology: &Topology, sampled: Option<&Sampled>) -> LabFacts {
        match self {
            Self::Lab(hosts) => hosts.facts(topology, sampled),
            _ => LabFacts::default(),
        }
    }
    pub(super) fn take_tap(&mut self) -> Result<Option<Box<dyn Tap>>, WorldError> {
        match self {
            Self::Sim(sim) => Ok(sim.take_tap()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(_) => Ok(None),
            Self::Lab(hosts) => hosts.take_tap(),
        }
    }
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
