//! One run by two threads: clients in one half of the network, servers in the other.
//!
//! Roles have pointers that cannot leave their thread, so each thread builds the whole network and runs its half. The
//! first half has all reporting roles and all clients of a workload, so that clients can share state such as a limit to
//! their dialogues. Only studies that certainly share nothing else are divided (see [`initiating_hosts`]).

use super::dialogue;
use super::error::ScenarioRunError;
use super::measure::RunObserver;
use super::network_assembly::BuiltNetwork;
use super::role::HostRole;
use super::topology::NetworkTopology;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use usher_core::{Instant, Seed, WorkLabel};
use usher_scenario::model::{NasAaaProtocol, Scenario, TransportProtocol, Workload};
use usher_sim::{
    CpuStats, HalfNetwork, HalfRunError, HalfSyncChannel, HostId, LinkId, LinkStats, NetworkHalfIndex,
    Simulation, TcpTotals,
};

type NetworkHalfSimulation = Simulation<Box<dyn HostRole>, RunObserver, HalfNetwork>;

/// The division of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RunDivisionOutcome {
    /// It was not divided: not requested, or the study cannot be divided.
    #[default]
    Undivided,
    /// Two threads ran a half each.
    Halves,
    /// Two threads could not order two events at this time, and one thread ran the whole.
    Undecided(Instant),
}

/// Returns the names of the hosts that begin dialogues, if a study can be divided. Its workloads must be dialogues over
/// UDP or TCP whose server can predict sizes, or authentications by RADIUS over UDP without TLS. It must use no
/// service's configuration, because two threads would read it.
fn initiating_hosts(scenario: &Scenario) -> Option<Vec<&str>> {
    if scenario.services.iter().next().is_some() {
        return None;
    }
    let mut names = Vec::new();
    for (_, workload) in scenario.all_workloads() {
        match workload {
            Workload::Dialogue(d) => match d.transport {
                TransportProtocol::Udp => names.push(d.clients.as_str()),
                TransportProtocol::Tcp if !dialogue::is_scripted(d) => names.push(d.clients.as_str()),
                _ => return None,
            },
            Workload::Eap(e) if e.aaa == NasAaaProtocol::Radius && !e.has_tls() => {
                names.extend([e.stations.as_str(), e.nas.as_str()]);
            }
            _ => return None,
        }
    }
    Some(names)
}

/// Returns the division of a built network.
fn divide_network(built: &BuiltNetwork, names: &[&str]) -> Option<usher_sim::NetworkSplitPlan> {
    let hosts = names.iter().map(|name| built.topology.hosts.get(*name)).collect::<Option<Vec<_>>>()?;
    built.builder.split_in_halves(hosts.into_iter().flatten().copied())
}

/// A host, its processor's statistics, and the time of each kind of work.
type HostProcessorUsage = (HostId, CpuStats, Vec<(WorkLabel, u64)>);

/// The counters of the second half.
#[derive(Debug, Default)]
struct HalfSimulationCounts {
    /// By link direction, ascending.
    directions: Vec<(u32, LinkStats)>,
    tcp: TcpTotals,
    packet_hops: u64,
    /// By host, ascending.
    processors: Vec<HostProcessorUsage>,
}

impl HalfSimulationCounts {
    fn from_half_simulation(half: &NetworkHalfSimulation, processors: &[HostId]) -> Self {
        let own = processors.iter().filter(|host| half.halves().side_of(**host) == NetworkHalfIndex::Second);
        Self {
            directions: half.direction_stats().collect(),
            tcp: half.tcp_totals(),
            packet_hops: half.packet_hops(),
            processors: own
                .filter_map(|host| Some((*host, half.cpu_stats(*host)?, half.cpu_spent(*host).collect())))
                .collect(),
        }
    }
}

/// A step of the second half's thread: run until this time, and whether the first half's observer may end the run
/// earlier.
type HalfSimulationStep = (Instant, bool);

/// The first half on this thread, and the second on another.
#[derive(Debug)]
pub(super) struct TwoThreadRun {
    first: Box<NetworkHalfSimulation>,
    steps: Option<Sender<HalfSimulationStep>>,
    counts: Receiver<Result<HalfSimulationCounts, HalfRunError>>,
    second: HalfSimulationCounts,
    failure: Option<ScenarioRunError>,
    /// The last field: its drop waits for the thread, which ends when the first half is gone.
    thread: HalfSimulationThread,
}

/// The thread of the second half, joined on drop.
#[derive(Debug)]
struct HalfSimulationThread(Option<JoinHandle<()>>);

impl Drop for HalfSimulationThread {
    fn drop(&mut self) {
        // The result is ignored: the thread's panic was already reported, or this drop is itself part of a panic.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl TwoThreadRun {
    /// Starts a run in halves, which ends early when `stop` is set; `None` if the study cannot be divided. Also returns
    /// the built network's description.
    pub(super) fn new(
        scenario: &Scenario,
        seed: Seed,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<Option<(Self, NetworkTopology)>, ScenarioRunError> {
        let Some(names) = initiating_hosts(scenario) else { return Ok(None) };
        let [first_end, second_end] = HalfSyncChannel::channel_pair();
        let ((steps, to_do), (done, counts)) = (channel(), channel());
        let thread = {
            let (scenario, stop) = (scenario.clone(), stop.cloned());
            std::thread::spawn(move || run_second_half(&scenario, seed, stop, second_end, &to_do, &done))
        };
        let built = BuiltNetwork::from_scenario(scenario, seed, &[])?;
        let Some(halves) = divide_network(&built, &names) else { return Ok(None) };
        let mut first = built.builder.build_half(built.measure, halves, NetworkHalfIndex::First, first_end);
        stop.cloned().into_iter().for_each(|stop| first.end_when(stop));
        let mut both = Self {
            first: Box::new(first),
            steps: Some(steps),
            counts,
            second: HalfSimulationCounts::default(),
            failure: None,
            thread: HalfSimulationThread(Some(thread)),
        };
        both.receive_second_half_counts();
        Ok(Some((both, built.topology)))
    }

    /// Receives the second half's counters; resumes a panic of its thread here.
    fn receive_second_half_counts(&mut self) {
        let said = self.counts.recv().unwrap_or(Err(HalfRunError::OtherHalfEnded));
        match said {
            Ok(counted) => self.second = counted,
            Err(why) => self.abort_two_thread_run(why),
        }
    }

    /// Stops the run.
    fn abort_two_thread_run(&mut self, why: HalfRunError) {
        self.failure = Some(match why {
            HalfRunError::Undecided(at) => ScenarioRunError::Undecided(at),
            HalfRunError::Stopped => ScenarioRunError::Stopped,
            HalfRunError::OtherHalfEnded => {
                self.steps = None;
                if let Some(Err(panic)) = self.thread.0.take().map(JoinHandle::join) {
                    resume_unwind(panic);
                }
                ScenarioRunError::Undecided(self.first.now())
            }
        });
    }

    pub(super) fn run_until(&mut self, until: Instant) {
        if self.failure.is_some() {
            return;
        }
        let to_its_end = self.first.observer().may_end_early();
        // A send error is ignored: if the thread has ended, receiving its counts fails below.
        let _ = self.steps.as_ref().map(|steps| steps.send((until, to_its_end)));
        match self.first.run_until(until, to_its_end) {
            Ok(()) => self.receive_second_half_counts(),
            Err(why) => self.abort_two_thread_run(why),
        }
    }

    /// Returns the reason of an early end: a stop, or an undecided order of events.
    pub(super) fn take_failure(&mut self) -> Option<ScenarioRunError> {
        self.failure.take()
    }

    pub(super) const fn first_half_simulation(&self) -> &NetworkHalfSimulation {
        &self.first
    }

    pub(super) fn first_mut(&mut self) -> &mut NetworkHalfSimulation {
        &mut self.first
    }

    pub(super) fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        let mut both = self.first.link_stats(link);
        for (stats, direction) in both.iter_mut().zip(link.0 * 2..) {
            if let Ok(at) = self.second.directions.binary_search_by_key(&direction, |(number, _)| *number) {
                stats.add(&self.second.directions[at].1);
            }
        }
        both
    }

    pub(super) fn tcp_totals(&self) -> TcpTotals {
        self.first.tcp_totals().merged_with(self.second.tcp)
    }

    pub(super) fn packet_hops(&self) -> u64 {
        self.first.packet_hops() + self.second.packet_hops
    }

    pub(super) fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        match self.first.halves().side_of(host) {
            NetworkHalfIndex::First => self.first.cpu_stats(host),
            NetworkHalfIndex::Second => Some(self.processor_usage(host)?.1),
        }
    }

    pub(super) fn cpu_spent(&self, host: HostId) -> Vec<(WorkLabel, u64)> {
        match self.first.halves().side_of(host) {
            NetworkHalfIndex::First => self.first.cpu_spent(host).collect(),
            NetworkHalfIndex::Second => {
                self.processor_usage(host).map(|(.., spent)| spent.clone()).unwrap_or_default()
            }
        }
    }

    fn processor_usage(&self, host: HostId) -> Option<&HostProcessorUsage> {
        let at = self.second.processors.binary_search_by_key(&host, |(host, ..)| *host).ok()?;
        self.second.processors.get(at)
    }
}

/// The second half's thread.
fn run_second_half(
    scenario: &Scenario,
    seed: Seed,
    stop: Option<Arc<AtomicBool>>,
    end: HalfSyncChannel,
    to_do: &Receiver<HalfSimulationStep>,
    done: &Sender<Result<HalfSimulationCounts, HalfRunError>>,
) {
    // On an error, return silently, because the first half fails in the same way and reports it.
    let Some(names) = initiating_hosts(scenario) else { return };
    let Ok(built) = BuiltNetwork::from_scenario(scenario, seed, &[]) else { return };
    let Some(halves) = divide_network(&built, &names) else { return };
    let mut processors: Vec<HostId> = built.topology.hosts.values().flatten().copied().collect();
    processors.sort_unstable();
    let mut half = built.builder.build_half(built.measure, halves, NetworkHalfIndex::Second, end);
    stop.into_iter().for_each(|stop| half.end_when(stop));
    // The loop, and so the thread, ends when the first half is gone.
    let mut told = done.send(Ok(HalfSimulationCounts::default()));
    while let (Ok(()), Ok((until, to_its_end))) = (told, to_do.recv()) {
        let ran = half.run_until(until, to_its_end);
        told = done.send(ran.map(|()| HalfSimulationCounts::from_half_simulation(&half, &processors)));
    }
}
