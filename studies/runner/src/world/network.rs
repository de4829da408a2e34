//! The network of a run: the simulator or the hosts of a lab. Both run the same roles and report to the same observer.

use super::error::ScenarioRunError;
#[cfg(not(target_arch = "wasm32"))]
use super::halves::TwoThreadRun;
use super::measure::RunObserver;
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::{Instant, WorkLabel};
use usher_sim::radio::wimax::CellCounters;
use usher_sim::{
    CellId, CpuStats, HostId, LinkId, LinkStats, MemoryUse, PacketTap, ReportObserver, SctpTotals,
    SimRunError, Simulation, TcpTotals,
};

/// Processor time by host.
pub(super) type ProcessorTimeByHost = BTreeMap<HostId, std::time::Duration>;
/// The sampling method of processor time, and the samples of each library on each host.
pub(super) type ProcessorSamplesByLibrary = (&'static str, BTreeMap<(HostId, &'static str), u64>);

/// Facts of a run on a lab; empty for other runs. Over several runs, `sums` add up and `most` keeps the maximum.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LabRunStats {
    /// Counts and seconds.
    pub sums: BTreeMap<String, f64>,
    /// Largest values.
    pub most: BTreeMap<String, f64>,
}

impl LabRunStats {
    /// Adds another run's facts.
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

/// A network on which the kernel carries packets in real time. Other facts exist only in the simulator.
pub(super) trait LabNetwork: Debug {
    fn run_until(&mut self, until: Instant);
    fn observer(&self) -> &RunObserver;
    fn observer_mut(&mut self) -> &mut RunObserver;
    /// Returns the applications in order.
    fn roles(&self) -> Box<dyn Iterator<Item = &dyn HostRole> + '_>;
    fn now(&self) -> Instant;
    fn link_stats(&self, link: LinkId) -> [LinkStats; 2];
    /// Reads the kernel's counters from files.
    fn tcp_totals(&self) -> Result<TcpTotals, ScenarioRunError>;
    /// Returns the counters that kernel and simulator define alike.
    fn sctp_totals(&self) -> Result<SctpTotals, ScenarioRunError>;
    /// Returns the statistics of all links, by number.
    fn all_link_stats(&self) -> Vec<[LinkStats; 2]>;
    /// Returns the processor time of each host's roles until now.
    fn processor_times(&self) -> ProcessorTimeByHost;
    /// Ends the sampling of processor time by library, if it runs.
    fn finish_sampling(&mut self) -> Option<ProcessorSamplesByLibrary>;
    /// Returns the failure that ends the run, if any.
    fn take_failure(&mut self) -> Option<ScenarioRunError>;
    fn take_tap(&mut self) -> Result<Option<Box<dyn PacketTap>>, ScenarioRunError>;
    /// Returns the fidelity of the lab to the requested network, and the cost of roles.
    fn lab_facts(
        &self,
        topology: &NetworkTopology,
        sampled: Option<&ProcessorSamplesByLibrary>,
    ) -> LabRunStats;
}

/// The network of a run.
#[derive(Debug)]
pub(super) enum RunNetwork {
    Sim(Box<Simulation<Box<dyn HostRole>, RunObserver>>),
    #[cfg(not(target_arch = "wasm32"))]
    Halves(Box<TwoThreadRun>),
    #[cfg_attr(target_arch = "wasm32", expect(dead_code, reason = "a browser has no lab"))]
    Lab(Box<dyn LabNetwork>),
}

impl RunNetwork {
    pub(super) fn run_until(&mut self, until: Instant) {
        match self {
            Self::Sim(sim) => sim.run_until(until),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.run_until(until),
            Self::Lab(hosts) => hosts.run_until(until),
        }
    }
    pub(super) fn observer(&self) -> &RunObserver {
        match self {
            Self::Sim(sim) => sim.observer(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.first_half_simulation().observer(),
            Self::Lab(hosts) => hosts.observer(),
        }
    }
    pub(super) fn observer_mut(&mut self) -> &mut RunObserver {
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
    /// Returns the applications of these numbers.
    pub(super) fn roles_in_range(&self, numbers: std::ops::Range<usize>) -> Vec<&dyn HostRole> {
        let count = numbers.len();
        match self {
            Self::Sim(sim) => sim.applications().skip(numbers.start).take(count).map(AsRef::as_ref).collect(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both
                .first_half_simulation()
                .applications()
                .skip(numbers.start)
                .take(count)
                .map(AsRef::as_ref)
                .collect(),
            Self::Lab(hosts) => hosts.roles().skip(numbers.start).take(count).collect(),
        }
    }
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Sim(sim) => sim.now(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.first_half_simulation().now(),
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
    /// Returns the TCP counters of all hosts; a lab reads the kernel's counters from files.
    pub(super) fn tcp_totals(&self) -> Result<TcpTotals, ScenarioRunError> {
        match self {
            Self::Sim(sim) => Ok(sim.tcp_totals()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => Ok(both.tcp_totals()),
            Self::Lab(hosts) => hosts.tcp_totals(),
        }
    }
    /// True for a lab.
    pub(super) const fn is_lab(&self) -> bool {
        matches!(self, Self::Lab(..))
    }
    /// Returns the SCTP counters of all hosts; for a lab those that the kernel defines alike.
    pub(super) fn sctp_totals(&self) -> Result<SctpTotals, ScenarioRunError> {
        match self {
            Self::Sim(sim) => Ok(sim.sctp_totals()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => Ok(both.first_half_simulation().sctp_totals()),
            Self::Lab(hosts) => hosts.sctp_totals(),
        }
    }
    /// Returns the packets that links delivered to hosts.
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
    /// Returns the processor time of each lab host's roles until now; empty for the simulator, which charges it.
    pub(super) fn processor_times(&self) -> ProcessorTimeByHost {
        match self {
            Self::Lab(hosts) => hosts.processor_times(),
            _ => ProcessorTimeByHost::new(),
        }
    }
    /// Ends the sampling of processor time by library, if it runs.
    pub(super) fn finish_sampling(&mut self) -> Option<ProcessorSamplesByLibrary> {
        match self {
            Self::Lab(hosts) => hosts.finish_sampling(),
            _ => None,
        }
    }
    /// Returns the single-threaded simulation, which alone has cells and memory tracking.
    const fn simulation(&self) -> Option<&Simulation<Box<dyn HostRole>, RunObserver>> {
        match self {
            Self::Sim(sim) => Some(sim),
            _ => None,
        }
    }
    /// Returns the simulated host of an application.
    pub(super) fn host_of(&self, app: u32) -> Option<HostId> {
        self.simulation()?.host_of(app)
    }
    pub(super) fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        match self {
            Self::Sim(sim) => sim.cpu_stats(host),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.cpu_stats(host),
            Self::Lab(..) => None,
        }
    }
    /// Returns the nanoseconds charged to a host for work of these kinds.
    pub(super) fn cpu_spent(&self, host: HostId, of: impl Fn(WorkLabel) -> bool) -> u64 {
        let spent: Vec<_> = match self {
            Self::Sim(sim) => sim.cpu_spent(host).collect(),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.cpu_spent(host),
            Self::Lab(..) => Vec::new(),
        };
        spent.into_iter().filter(|(label, _)| of(*label)).map(|(_, ns)| ns).sum()
    }
    pub(super) fn cell_counters(&self, cell: CellId) -> Option<&CellCounters> {
        self.simulation()?.cell_counters(cell)
    }
    pub(super) fn peak_memory(&self, host: HostId) -> Option<MemoryUse> {
        self.simulation()?.peak_memory(host)
    }
    pub(super) fn reset_peaks(&mut self) {
        if let Self::Sim(sim) = self {
            sim.reset_peaks();
        }
    }
    /// Ends a single-threaded run on the simulator when `stop` is set.
    pub(super) fn end_when(&mut self, stop: &Arc<AtomicBool>) {
        if let Self::Sim(sim) = self {
            sim.end_when(stop.clone());
        }
    }
    pub(super) fn simulation_fault(&self) -> Option<SimRunError> {
        self.simulation()?.fault()
    }
    /// Returns the failure of a run on a lab or in halves, if any.
    pub(super) fn take_run_failure(&mut self) -> Result<(), ScenarioRunError> {
        match self {
            Self::Sim(_) => Ok(()),
            #[cfg(not(target_arch = "wasm32"))]
            Self::Halves(both) => both.take_failure().map_or(Ok(()), Err),
            Self::Lab(hosts) => hosts.take_failure().map_or(Ok(()), Err),
        }
    }
    /// Returns the facts of a lab.
    pub(super) fn lab_facts(
        &self,
        topology: &NetworkTopology,
        sampled: Option<&ProcessorSamplesByLibrary>,
    ) -> LabRunStats {
        match self {
            Self::Lab(hosts) => hosts.lab_facts(topology, sampled),
            _ => LabRunStats::default(),
        }
    }
    pub(super) fn take_tap(&mut self) -> Result<Option<Box<dyn PacketTap>>, ScenarioRunError> {
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
        let one = |late: f64| LabRunStats {
            sums: [("timers".to_owned(), 2.0)].into(),
            most: [("timers_latest_s".to_owned(), late)].into(),
        };
        let mut all = LabRunStats::default();
        [0.3, 0.7, 0.5].map(one).iter().for_each(|facts| all.add(facts));
        assert_eq!((all.sums["timers"], all.most["timers_latest_s"]), (6.0, 0.7));
    }
}
