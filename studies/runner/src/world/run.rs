//! One run, and the metrics from the counters of hosts, links, cells and transports.

use super::cpu;
use super::eap;
use super::error::ScenarioRunError;
#[cfg(not(target_arch = "wasm32"))]
use super::halves::{RunDivisionOutcome, TwoThreadRun};
#[cfg(not(target_arch = "wasm32"))]
use super::lab_run::{self, LabRunSettings};
use super::measured::RunMetrics;
use super::network::{LabRunStats, RunNetwork};
use super::network_assembly::BuiltNetwork;
use super::role::{HostRole, IkeTotals, MihTotals};
use super::topology::NetworkTopology;
use super::watch::{RunObservation, RunObservationState};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::{Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_scenario::metrics::{self, Metric};
use usher_scenario::model::{ChannelDirection, Scenario, Workload};
use usher_sim::radio::wimax::CellCounters;
use usher_sim::{LinkStats, MemoryUse, PacketTap, SimRunError, TcpTotals};

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// Metrics by name, in a fixed order; README and `docs/reference/metrics.md` define each.
    pub metrics: Vec<(String, f64)>,
    /// Packets that links delivered to hosts.
    pub packet_hops: u64,
    /// Wall-clock seconds of the event loop alone.
    pub wall_s: f64,
    /// The process's peak resident set by the end of the loop, in bytes; 0 if the system does not provide it.
    pub peak_rss_bytes: u64,
    /// Facts of a lab about its fidelity; empty for other runs.
    pub lab: LabRunStats,
    /// The capture, if requested, with the secrets to decrypt it.
    pub capture: Option<RunCapture>,
    /// The observation, if requested.
    pub watched: Option<RunObservation>,
}

/// A finished capture: the tap, and everything that its reader needs.
#[derive(Debug)]
pub struct RunCapture {
    /// The tap that was passed in, with its packets.
    pub tap: Box<dyn PacketTap>,
    /// The captured links by interface number: name, and whether packets have an Ethernet header.
    pub interfaces: Vec<(String, bool)>,
    /// TLS secrets in the NSS key log format.
    pub key_log: String,
    /// The RADIUS secret.
    pub radius_secret: String,
}

/// A run that is set up and not yet finished.
#[derive(Debug)]
pub struct ScenarioRun {
    network: RunNetwork,
    topology: NetworkTopology,
    scenario: Scenario,
    interfaces: Vec<(String, bool)>,
    key_log: KeyLog,
    watch: Option<RunObservationState>,
}

impl ScenarioRun {
    /// Sets up a run on the simulator. With `tap`, it captures the links in `capture` at their first host; of a group
    /// of links, the first.
    ///
    /// # Errors
    /// The scenario is inconsistent, which never happens for [`Scenario`]s of a checked study file.
    pub fn new(
        scenario: &Scenario,
        seed: Seed,
        capture: &[String],
        tap: Option<Box<dyn PacketTap>>,
    ) -> Result<Self, ScenarioRunError> {
        let BuiltNetwork { builder, measure, topology, interfaces, key_log } =
            BuiltNetwork::from_scenario(scenario, seed, capture)?;
        let network = RunNetwork::Sim(Box::new(builder.build(measure, tap)));
        Ok(Self { network, topology, scenario: scenario.clone(), interfaces, key_log, watch: None })
    }
    /// Ends a run on the simulator with [`ScenarioRunError::Stopped`] when `stop` is set.
    #[must_use]
    pub fn with_stop_flag(mut self, stop: Option<&Arc<AtomicBool>>) -> Self {
        stop.into_iter().for_each(|stop| self.network.end_when(stop));
        self
    }

    /// Runs on the simulator by one thread or two, up to `threads`, as the study can be divided. The metrics do not
    /// depend on the number. When `stop` is set, it ends with [`ScenarioRunError::Stopped`].
    ///
    /// # Errors
    /// As [`ScenarioRun::new`] and [`ScenarioRun::run_to_end`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_with_up_to_threads(
        scenario: &Scenario,
        seed: Seed,
        threads: usize,
        stop: Option<&Arc<AtomicBool>>,
    ) -> Result<(RunResult, RunDivisionOutcome), ScenarioRunError> {
        let mut division = RunDivisionOutcome::Undivided;
        if threads > 1
            && let Some((halves, topology)) = TwoThreadRun::new(scenario, seed, stop)?
        {
            let (interfaces, key_log) = (Vec::new(), KeyLog::new());
            let (network, scenario) = (RunNetwork::Halves(Box::new(halves)), scenario.clone());
            match (Self { network, topology, scenario, interfaces, key_log, watch: None }).run_to_end() {
                Ok(result) => return Ok((result, RunDivisionOutcome::Halves)),
                Err(ScenarioRunError::Undecided(at)) => division = RunDivisionOutcome::Undecided(at),
                Err(error) => return Err(error),
            }
        }
        Ok((Self::new(scenario, seed, &[], None)?.with_stop_flag(stop).run_to_end()?, division))
    }
    /// Sets up an observed run on the simulator. It records each dialogue's time span and, with `tap`, the packets at
    /// both ends of all links; of a group of links, the first.
    ///
    /// # Errors
    /// As [`ScenarioRun::new`].
    pub fn observe_on_simulator(
        scenario: &Scenario,
        seed: Seed,
        tap: Option<Box<dyn PacketTap>>,
    ) -> Result<Self, ScenarioRunError> {
        let BuiltNetwork { mut builder, mut measure, topology, interfaces, key_log } =
            BuiltNetwork::from_scenario(scenario, seed, &[])?;
        let watch =
            Some(RunObservationState::from_scenario(scenario, &topology, &mut builder, tap.is_some()));
        measure.start_recording_dialogue_spans();
        let network = RunNetwork::Sim(Box::new(builder.build(measure, tap)));
        Ok(Self { network, topology, scenario: scenario.clone(), interfaces, key_log, watch })
    }
    /// Sets up a run on a lab, as [`ScenarioRun::new`] does on the simulator.
    ///
    /// # Errors
    /// As [`ScenarioRun::new`]. The lab cannot be created, or the study needs something that a lab lacks.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn on_lab(
        scenario: &Scenario,
        seed: Seed,
        capture: &[String],
        tap: Option<Box<dyn PacketTap>>,
        name: &str,
        settings: &LabRunSettings,
    ) -> Result<Self, ScenarioRunError> {
        let BuiltNetwork { builder, measure, topology, interfaces, key_log } =
            BuiltNetwork::from_scenario(scenario, seed, capture)?;
        let network = lab_run::build_lab_network(builder, measure, &topology, tap, name, settings)?;
        Ok(Self { network, topology, scenario: scenario.clone(), interfaces, key_log, watch: None })
    }

    fn link_stats(&self) -> Vec<[LinkStats; 2]> {
        let sum = |links: &Vec<usher_sim::LinkId>| {
            let mut total = [LinkStats::default(); 2];
            for link in links {
                for (t, s) in total.iter_mut().zip(self.network.link_stats(*link)) {
                    t.add(&s);
                }
            }
            total
        };
        self.topology.links.iter().map(|(_, links)| sum(links)).collect()
    }

    /// Runs the scenario to its end.
    ///
    /// # Errors
    /// [`ScenarioRunError::NoStream`]: the run is meaningless after it. [`ScenarioRunError::Stopped`].
    pub fn run_to_end(mut self) -> Result<RunResult, ScenarioRunError> {
        let run = &self.scenario.run;
        let from = Instant::ZERO + run.warmup.get();
        let end = from + run.duration.get();
        let drained = end + run.drain.get();
        let stopwatch = stopwatch();
        self.network.run_until(last_instant_before(from));
        self.network.reset_peaks();
        self.network.take_run_failure()?;
        let links_before = self.link_stats();
        let segments_before = self.network.tcp_totals()?;
        let transports_before = self.transport_totals(segments_before)?;
        let cells_before = self.cell_counters();
        let names: Vec<String> = self.scenario.all_workloads().map(|(name, _)| name.to_owned()).collect();
        let mih_before: Vec<_> = (0..names.len()).map(|i| self.mih_totals(i)).collect();
        let keying_before: Vec<_> = (0..names.len()).map(|i| self.keying_totals(i)).collect();
        let ike_before: Vec<_> = (0..names.len()).map(|i| self.ike_totals(i)).collect();
        let processor_before =
            (self.network.processor_times(), cpu::read_charged_time(&self.network, &self.topology));
        self.network.run_until(last_instant_before(end));
        let links_at_end = self.link_stats();
        // Transactions that failed for the MIH user continue in transport queues and still count, so MIH workloads run
        // on. So do handovers, for the last packets of a flow.
        let goes_on = |workload: &Workload| matches!(workload, Workload::Mih(_) | Workload::Handover(_));
        let ends = self.scenario.all_workloads().map(|(_, workload)| !goes_on(workload)).collect();
        self.network.observer_mut().start_drain(ends);
        if !self.network.is_done() {
            self.network.run_until(drained);
        }
        if let Some(fault) = self.network.simulation_fault() {
            return Err(self.explain_fault(fault));
        }
        self.network.take_run_failure()?;
        let segments_after = self.network.tcp_totals()?;
        let transports = [transports_before, self.transport_totals(segments_after)?];
        let wall_s = stopwatch();
        let peak_rss_bytes = peak_rss_bytes();

        let mut out = RunMetrics::default();
        for (i, name) in names.iter().enumerate() {
            out.select_workload(name);
            self.network.observer_mut().add_metrics(i, &mut out);
        }
        self.transport_metrics(&mut out, &transports);
        for (i, (name, before)) in names.iter().zip(keying_before).enumerate() {
            out.select_workload(name);
            self.keying_metrics(&mut out, i, before);
        }
        for (i, (name, before)) in names.iter().zip(ike_before).enumerate() {
            out.select_workload(name);
            self.ike_metrics(&mut out, i, before);
        }
        segment_metrics(&mut out, segments_before, segments_after);
        for (i, (name, before)) in names.iter().zip(mih_before).enumerate() {
            out.select_workload(name);
            self.mih_metrics(&mut out, i, &transports, before);
        }
        self.link_metrics(&mut out, &links_before, &links_at_end);
        self.cell_metrics(&mut out, &cells_before);
        let sampled = self.network.finish_sampling();
        let before = (&processor_before.0, &processor_before.1);
        cpu::add_cpu_metrics(
            &mut out,
            &self.scenario,
            &self.topology,
            &self.network,
            before,
            sampled.as_ref(),
        );
        self.memory_metrics(&mut out);
        let links = self.topology.links.iter().flat_map(|(_, links)| links.iter().copied());
        let packet_hops = self.network.packet_hops(links);
        // Take the tap only at the end, because the relay may deliver packets late.
        let tap = self.network.take_tap()?;
        let lab = self.network.lab_facts(&self.topology, sampled.as_ref());
        let mut tap = tap;
        let watched = self
            .watch
            .take()
            .map(|watch| watch.finish_observation(&mut self.network, &self.scenario, tap.take()));
        Ok(RunResult {
            watched,
            metrics: out.all,
            packet_hops,
            wall_s,
            peak_rss_bytes,
            lab,
            capture: tap.map(|tap| RunCapture {
                tap,
                interfaces: self.interfaces,
                key_log: self.key_log.text(),
                radius_secret: eap::SECRET.into(),
            }),
        })
    }

    /// Converts a simulation fault to the study's names.
    fn explain_fault(&self, fault: SimRunError) -> ScenarioRunError {
        let SimRunError::NoStream { at, host, streams } = fault else { return ScenarioRunError::Stopped };
        let name = self.topology.hosts.iter().find(|(_, members)| members.contains(&host));
        ScenarioRunError::NoStream {
            host: name.map(|(name, _)| name.clone()).unwrap_or_default(),
            at,
            streams,
        }
    }

    /// Returns the counters of TCP and SCTP by metric.
    fn transport_totals(&self, tcp: TcpTotals) -> Result<[(Metric, u64); 9], ScenarioRunError> {
        let sctp = self.network.sctp_totals()?;
        Ok([
            (metrics::TCP_SEGMENTS, tcp.segments),
            (metrics::TCP_RETRANSMISSIONS, tcp.retransmitted),
            (metrics::TCP_TIMEOUTS, tcp.timeouts),
            (metrics::TCP_ACKS, tcp.pure_acks),
            (metrics::TCP_BLOCKED, tcp.blocked),
            (metrics::SCTP_PACKETS, sctp.packets),
            (metrics::SCTP_RETRANSMISSIONS, sctp.retransmitted),
            (metrics::SCTP_TIMEOUTS, sctp.timeouts),
            (metrics::SCTP_CONTROL, sctp.control),
        ])
    }

    /// Adds the metrics of the transports in use.
    fn transport_metrics(&self, out: &mut RunMetrics, [before, after]: &[[(Metric, u64); 9]; 2]) {
        let completed = self.network.observer().completed_count();
        if completed == 0 {
            return;
        }
        // The first counter of a protocol is the number of its packets.
        let protocol = |metric: &Metric| metric.name.split('.').next();
        let used = |metric: &Metric| {
            after.iter().find(|(other, _)| protocol(other) == protocol(metric)).is_some_and(|(_, n)| *n > 0)
        };
        // The lab's kernel defines these counters differently, so they are unknown, not zero.
        let uncounted = [metrics::SCTP_RETRANSMISSIONS, metrics::SCTP_CONTROL];
        let unknown = |m: &Metric| self.network.is_lab() && uncounted.contains(m);
        let all = before.iter().zip(after).filter(|((m, _), _)| used(m) && !unknown(m));
        for ((metric, before), (_, after)) in all {
            out.add_metric(*metric, (after - before) as f64 / completed as f64);
        }
    }

    /// Adds the memory of the hosts' connections, if tracked: the maximum over a group.
    fn memory_metrics(&self, out: &mut RunMetrics) {
        for (name, _) in self.scenario.hosts.iter() {
            let members = self.topology.hosts.get(name).map_or(&[][..], Vec::as_slice);
            let held: Vec<MemoryUse> = members.iter().filter_map(|h| self.network.peak_memory(*h)).collect();
            let connections = held.iter().map(|h| h.connections).max();
            let octets = held.iter().map(|h| h.octets).max();
            if let (Some(connections), Some(octets)) = (connections, octets) {
                out.add_member_metric(name, metrics::CONNECTIONS, f64::from(connections));
                out.add_member_metric(name, metrics::MEMORY, octets as f64);
            }
        }
    }

    /// Returns the roles of a workload.
    fn workload_roles(&self, workload: usize) -> impl Iterator<Item = &dyn HostRole> {
        self.network.roles_in_range(self.network.observer().application_range(workload)).into_iter()
    }

    /// Returns the messages and octets of a workload's traffic-key exchanges.
    fn keying_totals(&self, workload: usize) -> [u64; 2] {
        let sides = self.workload_roles(workload).filter_map(HostRole::keying_totals);
        sides.fold([0; 2], |[m, b], side| [m + side.sent, b + side.octets])
    }

    fn keying_metrics(&self, out: &mut RunMetrics, workload: usize, before: [u64; 2]) {
        let completed = self.network.observer().workload_stats(workload).completed_count() as f64;
        let after = self.keying_totals(workload);
        if completed > 0.0 && after[0] > 0 {
            for ((metric, before), after) in
                [metrics::KEYS_MESSAGES, metrics::KEYS_BYTES].iter().zip(before).zip(after)
            {
                out.add_metric(*metric, (after - before) as f64 / completed);
            }
        }
    }

    /// Returns the counters of a workload's IKE authentications; `None` if there are none.
    fn ike_totals(&self, workload: usize) -> Option<[u64; 10]> {
        let sides = self
            .workload_roles(workload)
            .filter_map(HostRole::ike_totals)
            .map(|totals| totals.all_ike_counts());
        sides.reduce(|one, other| std::array::from_fn(|i| one[i] + other[i]))
    }

    fn ike_metrics(&self, out: &mut RunMetrics, workload: usize, before: Option<[u64; 10]>) {
        let (Some(before), Some(after)) = (before, self.ike_totals(workload)) else { return };
        let completed = self.network.observer().workload_stats(workload).completed_count() as f64;
        if completed <= 0.0 {
            return;
        }
        let each = |i: usize| (after[i] - before[i]) as f64 / completed;
        let sum = |first: usize| (first..8).step_by(2).map(each).sum::<f64>();
        out.add_metric(metrics::IKE_MESSAGES, sum(0));
        out.add_metric(metrics::IKE_BYTES, sum(1));
        for (i, metric) in IkeTotals::METRICS.into_iter().enumerate() {
            out.add_metric(metric, each(i));
        }
        let [accepts, keyed] = [8, 9].map(|i| (after[i] - before[i]) as f64);
        if accepts > 0.0 {
            out.add_metric(metrics::IKE_KEYS, keyed / accepts);
        }
    }

    /// Returns the sum of a workload's MIH counters; `None` if it has no MIH functions.
    fn mih_totals(&self, workload: usize) -> Option<MihTotals> {
        self.workload_roles(workload).filter_map(HostRole::mih_totals).reduce(MihTotals::combine_with)
    }

    fn mih_metrics(
        &self,
        out: &mut RunMetrics,
        workload: usize,
        [transports_before, transports_after]: &[[(Metric, u64); 9]; 2],
        before: Option<MihTotals>,
    ) {
        let (Some(before), Some(after)) = (before, self.mih_totals(workload)) else { return };
        let packets = after.packets - before.packets;
        let dialogues = self.network.observer().workload_stats(workload);
        let begun = dialogues.started_count() as f64;
        if begun > 0.0 {
            out.add_metric(metrics::SUCCESS, dialogues.succeeded_count() as f64 / begun);
        }
        let messages = after.messages - before.messages;
        if messages > 0 {
            out.add_metric(metrics::MIH_OVERHEAD, packets as f64 / messages as f64);
        }
        if begun > 0.0 {
            out.add_metric(metrics::MIH_PACKETS, packets as f64 / begun);
            out.add_metric(
                metrics::MIH_RETRANSMISSIONS,
                (after.retransmissions - before.retransmissions) as f64 / begun,
            );
            out.add_metric(metrics::MIH_DUPLICATES, (after.duplicates - before.duplicates) as f64 / begun);
            out.add_metric(metrics::MIH_LATE, (after.late - before.late) as f64 / begun);
        }
        out.add_metric(metrics::MIH_MEMORY, after.memory as f64);
        let delivered = after.delivered - before.delivered;
        if delivered > 0 {
            out.add_metric(
                metrics::MIH_DELIVERY,
                (after.delivery_ns - before.delivery_ns) as f64 / delivered as f64 / 1e9,
            );
        }
        for ((metric, before), (_, after)) in transports_before.iter().zip(transports_after) {
            let carried = match *metric {
                metrics::TCP_SEGMENTS => metrics::TCP_PER_MIH_PACKET,
                metrics::SCTP_PACKETS => metrics::SCTP_PER_MIH_PACKET,
                _ => continue,
            };
            // If several workloads share a link, its packets per dialogue have no meaning.
            if *after > 0 && packets > 0 && self.scenario.sole_workload().is_some() {
                out.add_metric(carried, (after - before) as f64 / packets as f64);
            }
        }
    }

    fn link_metrics(&self, out: &mut RunMetrics, before: &[[LinkStats; 2]], at_end: &[[LinkStats; 2]]) {
        let completed = self.network.observer().completed_count() as f64;
        let duration = self.scenario.run.duration.get().as_secs_f64();
        let after = self.link_stats();
        for (i, (name, links)) in self.topology.links.iter().enumerate() {
            let delta = |after: &[LinkStats; 2], f: fn(&LinkStats) -> u64| {
                [0, 1].map(|d| (f(&after[d]) - f(&before[i][d])) as f64)
            };
            let both = |f| delta(&after[i], f).iter().sum::<f64>();
            if completed > 0.0 {
                out.add_member_metric(name, metrics::PACKETS, both(|s| s.offered - s.background) / completed);
                let bytes = both(|s| s.offered_bytes - s.background_bytes);
                out.add_member_metric(name, metrics::BYTES, bytes / completed);
            }
            let sent = delta(&at_end[i], |s| s.offered_bytes);
            let load = self.scenario.links.get(name).map(|link| {
                let share = |direction, bytes: f64| {
                    let rate = link.channel_config(direction).rate?;
                    Some(bytes * 8.0 / duration / rate as f64 / links.len() as f64)
                };
                [share(ChannelDirection::Up, sent[0]), share(ChannelDirection::Down, sent[1])]
            });
            let busier = load.into_iter().flatten().flatten().reduce(f64::max);
            if let Some(load) = busier {
                out.add_member_metric(name, metrics::LOAD, load);
            }
            let given = sent.iter().sum::<f64>();
            let dropped = delta(&at_end[i], |s| s.dropped_bytes).iter().sum::<f64>();
            out.add_member_metric(name, metrics::SENT, given * 8.0 / duration);
            out.add_member_metric(name, metrics::RECEIVED, (given - dropped) * 8.0 / duration);
            let offered = both(|s| s.offered);
            if offered > 0.0 {
                out.add_member_metric(name, metrics::DROPS, both(|s| s.queue_full + s.lost) / offered);
            }
        }
    }

    /// Returns the counters of cells, summed over groups.
    fn cell_counters(&self) -> Vec<CellCounters> {
        let sum = |cells: &Vec<usher_sim::CellId>| {
            let mut total = CellCounters::default();
            for cell in cells {
                if let Some(counters) = self.network.cell_counters(*cell) {
                    total.add(counters);
                }
            }
            total
        };
        self.topology.cells.iter().map(|(_, cells)| sum(cells)).collect()
    }

    fn cell_metrics(&self, out: &mut RunMetrics, before: &[CellCounters]) {
        let completed = self.network.observer().completed_count() as f64;
        for (((name, _), before), after) in self.topology.cells.iter().zip(before).zip(self.cell_counters()) {
            let requests = (after.requests - before.requests) as f64;
            if completed > 0.0 {
                out.add_member_metric(name, metrics::REQUESTS, requests / completed);
            }
            let tried = requests + (after.ranging_attempts - before.ranging_attempts) as f64;
            let collided = |c: &CellCounters| c.request_collisions + c.ranging_collisions;
            if tried > 0.0 {
                let share = (collided(&after) - collided(before)) as f64 / tried;
                out.add_member_metric(name, metrics::COLLISIONS, share);
            }
        }
    }
}

/// Adds the share of TCP's data packets that is data.
fn segment_metrics(out: &mut RunMetrics, before: TcpTotals, after: TcpTotals) {
    let segments = after.data_segments - before.data_segments;
    if segments > 0 {
        let data = (after.data_octets - before.data_octets) as f64;
        let octets = (after.data_packet_octets - before.data_packet_octets) as f64;
        out.add_metric(metrics::TCP_DATA_SHARE, data / octets);
        out.add_metric(metrics::TCP_SEGMENT_SIZE, data / segments as f64);
    }
}

/// Returns the last instant before a time: events at that time belong to the next interval.
fn last_instant_before(time: Instant) -> Instant {
    Instant::from_nanos(time.as_nanos().saturating_sub(1))
}

/// Starts a stopwatch of wall-clock seconds.
#[cfg(not(target_arch = "wasm32"))]
fn stopwatch() -> impl Fn() -> f64 {
    let started = std::time::Instant::now();
    move || started.elapsed().as_secs_f64()
}
/// Always 0: a WebAssembly module has no clock of its own.
#[cfg(target_arch = "wasm32")]
fn stopwatch() -> impl Fn() -> f64 {
    || 0.0
}

/// Reads VmHWM of `/proc/self/status`.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse().ok()).map_or(0, |kb: u64| kb * 1024)
}
