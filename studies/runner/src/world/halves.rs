//! One run by two threads: what asks in one half of the network, what answers in the other.
//!
//! Roles have pointers that do not leave their thread, so that each thread builds the whole network and runs its half. The first half
//! has all that reports, and all clients of a workload: what those share, such as a limit to their dialogues, is theirs alone. Only
//! studies are divided of which it is certain that nothing else is shared (see [`askers`]).

use super::built::Built;
use super::dialogue;
use super::error::WorldError;
use super::measure::Measure;
use super::role::Role;
use super::topology::Topology;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use usher_core::{Instant, Seed, WorkLabel};
use usher_scenario::model::{Aaa, Scenario, TransportProtocol, Workload};
use usher_sim::{CpuStats, End, Half, HostId, LinkId, LinkStats, Parted, Side, Simulation, TcpTotals};

type HalfSimulation = Simulation<Box<dyn Role>, Measure, Half>;

/// Whether a run has been divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Division {
    /// It was not: it has what is not divided, or that was not asked for.
    #[default]
    Whole,
    /// Two threads ran a half each.
    Halves,
    /// Two threads have tried, could not tell at this time which of two events is first, and one has run all of it.
    Undecided(Instant),
}

/// The names of the hosts that dialogues are begun at, where a study can be divided: its workloads are dialogues over UDP or TCP
/// whose server knows what comes, and authentications by RADIUS over UDP without TLS; and no service's configuration is used,
/// which two threads would read.
fn askers(scenario: &Scenario) -> Option<Vec<&str>> {
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
            Workload::Eap(e) if e.aaa == Aaa::Radius && !e.has_tls() => {
                names.extend([e.stations.as_str(), e.nas.as_str()]);
            }
            _ => return None,
        }
    }
    Some(names)
}

/// How a network that is built so far is divided.
fn halves(built: &Built, names: &[&str]) -> Option<usher_sim::Halves> {
    let hosts = names.iter().map(|name| built.topology.hosts.get(*name)).collect::<Option<Vec<_>>>()?;
    built.builder.halves(hosts.into_iter().flatten().copied())
}

/// A host, what its processor did, and how long each kind of work took that.
type Processor = (HostId, CpuStats, Vec<(WorkLabel, u64)>);

/// What the second half has counted.
#[derive(Debug, Default)]
struct Counted {
    /// By link direction, ascending.
    directions: Vec<(u32, LinkStats)>,
    tcp: TcpTotals,
    packet_hops: u64,
    /// By host, ascending.
    processors: Vec<Processor>,
}

impl Counted {
    fn of(half: &HalfSimulation, processors: &[HostId]) -> Self {
        let own = processors.iter().filter(|host| half.halves().of(**host) == Side::Second);
        Self {
            directions: half.directions().collect(),
            tcp: half.tcp_totals(),
            packet_hops: half.packet_hops(),
            processors: own
                .filter_map(|host| Some((*host, half.cpu_stats(*host)?, half.cpu_spent(*host).collect())))
                .collect(),
        }
    }
}

/// What the thread of the second half is to do: run until then, and whether the first half's observer may end that.
type Step = (Instant, bool);

/// The first half, run here, and the second, run by another thread.
#[derive(Debug)]
pub(super) struct Halves {
    first: Box<HalfSimulation>,
    steps: Option<Sender<Step>>,
    counts: Receiver<Result<Counted, Parted>>,
    second: Counted,
    ended: Option<WorldError>,
    /// The last field, for the thread ends when the first half is gone, for which it may wait.
    thread: Thread,
}

/// The thread of the second half, which is waited for at the end.
#[derive(Debug)]
struct Thread(Option<JoinHandle<()>>);

impl Drop for Thread {
    fn drop(&mut self) {
        // What it panicked with has been told, or a panic is under way here.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

impl Halves {
    /// A run in halves, which is given up when `stop` is set; nothing where it cannot be divided. What the study is built to is
    /// answered beside it.
    pub(super) fn new(
        scenario: &Scenario,
        seed: Seed,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<Option<(Self, Topology)>, WorldError> {
        let Some(names) = askers(scenario) else { return Ok(None) };
        let [first_end, second_end] = End::pair();
        let ((steps, to_do), (done, counts)) = (channel(), channel());
        let thread = {
            let (scenario, stop) = (scenario.clone(), stop.cloned());
            std::thread::spawn(move || run_second(&scenario, seed, stop, second_end, &to_do, &done))
        };
        let built = Built::of(scenario, seed, &[])?;
        let Some(halves) = halves(&built, &names) else { return Ok(None) };
        let mut first = built.builder.build_half(built.measure, halves, Side::First, first_end);
        stop.cloned().into_iter().for_each(|stop| first.end_when(stop));
        let mut both = Self {
            first: Box::new(first),
            steps: Some(steps),
            counts,
            second: Counted::default(),
            ended: None,
            thread: Thread(Some(thread)),
        };
        both.hear();
        Ok(Some((both, built.topology)))
    }

    /// Takes what the second half has counted; a panic of its thread goes on here.
    fn hear(&mut self) {
        let said = self.counts.recv().unwrap_or(Err(Parted::Alone));
        match said {
            Ok(counted) => self.second = counted,
            Err(why) => self.end(why),
        }
    }

    /// The run is given up.
    fn end(&mut self, why: Parted) {
        self.ended = Some(match why {
            Parted::Undecided(at) => WorldError::Undecided(at),
            Parted::Stopped => WorldError::Stopped,
            Parted::Alone => {
                self.steps = None;
                if let Some(Err(panic)) = self.thread.0.take().map(JoinHandle::join) {
                    resume_unwind(panic);
                }
                WorldError::Undecided(self.first.now())
            }
        });
    }

    pub(super) fn run_until(&mut self, until: Instant) {
        if self.ended.is_some() {
            return;
        }
        let to_its_end = self.first.observer().drains();
        // If the thread has ended the first half hears of it.
        let _ = self.steps.as_ref().map(|steps| steps.send((until, to_its_end)));
        match self.first.run_until(until, to_its_end) {
            Ok(()) => self.hear(),
            Err(why) => self.end(why),
        }
    }

    /// Why the run ended early: it was given up, or it was not known what comes next.
    pub(super) fn failure(&mut self) -> Option<WorldError> {
        self.ended.take()
    }

    pub(super) const fn first(&self) -> &HalfSimulation {
        &self.first
    }

    pub(super) fn first_mut(&mut self) -> &mut HalfSimulation {
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
        self.first.tcp_totals().and(self.second.tcp)
    }

    pub(super) fn packet_hops(&self) -> u64 {
        self.first.packet_hops() + self.second.packet_hops
    }

    pub(super) fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        match self.first.halves().of(host) {
            Side::First => self.first.cpu_stats(host),
            Side::Second => Some(self.processor(host)?.1),
        }
    }

    pub(super) fn cpu_spent(&self, host: HostId) -> Vec<(WorkLabel, u64)> {
        match self.first.halves().of(host) {
            Side::First => self.first.cpu_spent(host).collect(),
            Side::Second => self.processor(host).map(|(.., spent)| spent.clone()).unwrap_or_default(),
        }
    }

    fn processor(&self, host: HostId) -> Option<&Processor> {
        let at = self.second.processors.binary_search_by_key(&host, |(host, ..)| *host).ok()?;
        self.second.processors.get(at)
    }
}

/// What the thread of the second half does.
fn run_second(
    scenario: &Scenario,
    seed: Seed,
    stop: Option<Arc<AtomicBool>>,
    end: End,
    to_do: &Receiver<Step>,
    done: &Sender<Result<Counted, Parted>>,
) {
    // Where it cannot be built or divided the first half says so.
    let Some(names) = askers(scenario) else { return };
    let Ok(built) = Built::of(scenario, seed, &[]) else { return };
    let Some(halves) = halves(&built, &names) else { return };
    let mut processors: Vec<HostId> = built.topology.hosts.values().flatten().copied().collect();
    processors.sort_unstable();
    let mut half = built.builder.build_half(built.measure, halves, Side::Second, end);
    stop.into_iter().for_each(|stop| half.end_when(stop));
    // If the first half is gone there is nothing more to do.
    let mut told = done.send(Ok(Counted::default()));
    while let (Ok(()), Ok((until, to_its_end))) = (told, to_do.recv()) {
        let ran = half.run_until(until, to_its_end);
        told = done.send(ran.map(|()| Counted::of(&half, &processors)));
    }
}
