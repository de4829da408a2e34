//! What a run takes place on: the simulator, or hosts of a lab. Both host the same roles and tell the same observer.

use super::error::WorldError;
use super::measure::Measure;
use super::role::Role;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::{Instant, WorkLabel};
use usher_lab::{Hosts, Kernel, Registry, Samples};
use usher_sim::radio::wimax::Counters;
use usher_sim::{
    CellId, CpuStats, Fault, Held, HostId, LinkId, LinkStats, Observer, SctpTotals, Simulation, Tap,
    TcpTotals,
};

/// Processor time by host.
pub(super) type Processor = BTreeMap<HostId, std::time::Duration>;
/// By what processor time was sampled, and what was seen.
pub(super) type Sampled = (&'static str, Samples);

/// What runs on a lab have in common beside the study.
#[derive(Clone, Debug)]
pub struct LabSettings {
    /// Where labs are listed.
    pub registry: Registry,
    /// Settings of the kernel beyond the study's.
    pub kernel: Kernel,
    /// Whether processor time is divided among libraries, where perf can.
    pub perf: bool,
    /// Ends runs before their time.
    pub stop: Arc<AtomicBool>,
}

/// The network of a run.
#[derive(Debug)]
pub(super) enum Network {
    Sim(Box<Simulation<Box<dyn Role>, Measure>>),
    Lab(Box<Hosts<Box<dyn Role>, Measure>>, Arc<AtomicBool>),
}

impl Network {
    pub(super) fn run_until(&mut self, until: Instant) {
        match self {
            Self::Sim(sim) => sim.run_until(until),
            Self::Lab(hosts, _) => hosts.run_until(until),
        }
    }
    pub(super) fn observer(&self) -> &Measure {
        match self {
            Self::Sim(sim) => sim.observer(),
            Self::Lab(hosts, _) => hosts.observer(),
        }
    }
    pub(super) fn observer_mut(&mut self) -> &mut Measure {
        match self {
            Self::Sim(sim) => sim.observer_mut(),
            Self::Lab(hosts, _) => hosts.observer_mut(),
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
            Self::Lab(hosts, _) => hosts.apps().skip(numbers.start).take(count).map(AsRef::as_ref).collect(),
        }
    }
    pub(super) fn now(&self) -> Instant {
        match self {
            Self::Sim(sim) => sim.now(),
            Self::Lab(hosts, _) => hosts.now(),
        }
    }
    pub(super) fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        match self {
            Self::Sim(sim) => sim.link_stats(link),
            Self::Lab(hosts, _) => hosts.link_stats(link),
        }
    }
    /// What TCP did on all hosts; the kernel's counters are read from files.
    pub(super) fn tcp_totals(&self) -> Result<TcpTotals, WorldError> {
        match self {
            Self::Sim(sim) => Ok(sim.tcp_totals()),
            Self::Lab(hosts, _) => Ok(hosts.tcp_totals()?),
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
            Self::Lab(hosts, _) => Ok(hosts.sctp_totals()?),
        }
    }
    /// Packets that links handed to hosts.
    pub(super) fn packet_hops(&self, links: impl Iterator<Item = LinkId>) -> u64 {
        match self {
            Self::Sim(sim) => sim.packet_hops(),
            Self::Lab(hosts, _) => {
                let stats = hosts.lab().link_stats();
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
        let mut all = Processor::new();
        if let Self::Lab(hosts, _) = self {
            hosts.processor().for_each(|(host, took)| *all.entry(host).or_default() += took);
        }
        all
    }
    /// Ends the sampling of processor time by library, where there was one.
    pub(super) fn sampled(&mut self) -> Option<Sampled> {
        match self {
            Self::Sim(_) => None,
            Self::Lab(hosts, _) => hosts.sampled(),
        }
    }
    /// What the simulator alone has: charged processors, cells, followed memory.
    const fn simulated(&self) -> Option<&Simulation<Box<dyn Role>, Measure>> {
        match self {
            Self::Sim(sim) => Some(sim),
            Self::Lab(..) => None,
        }
    }
    /// The host of the application of this number, in the simulator.
    pub(super) fn host_of(&self, app: u32) -> Option<HostId> {
        self.simulated()?.host_of(app)
    }
    pub(super) fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        self.simulated()?.cpu_stats(host)
    }
    /// Nanoseconds that a host was charged for work of these kinds.
    pub(super) fn cpu_spent(&self, host: HostId, of: impl Fn(WorkLabel) -> bool) -> u64 {
        let spent = self.simulated().into_iter().flat_map(|sim| sim.cpu_spent(host));
        spent.filter(|(label, _)| of(*label)).map(|(_, ns)| ns).sum()
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
    pub(super) fn fault(&self) -> Option<Fault> {
        self.simulated()?.fault()
    }
    /// Whether a run on a lab came to its end.
    pub(super) fn ended(&mut self) -> Result<(), WorldError> {
        let Self::Lab(hosts, stop) = self else { return Ok(()) };
        match hosts.failure() {
            Some(failure) => Err(failure.into()),
            None if stop.load(Ordering::Relaxed) => Err(WorldError::Stopped),
            None => Ok(()),
        }
    }
    pub(super) fn take_tap(&mut self) -> Result<Option<Box<dyn Tap>>, WorldError> {
        match self {
            Self::Sim(sim) => Ok(sim.take_tap()),
            Self::Lab(hosts, _) => Ok(hosts.take_tap()?),
        }
    }
}
