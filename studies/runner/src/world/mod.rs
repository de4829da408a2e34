//! One run of a scenario on the simulator: hosts built from roles, a workload, metrics.

mod aaa;
mod arrivals;
mod background;
mod dialogue;
mod eap;
mod handover;
mod helpers;
mod ident;
mod machine;
mod measure;
mod mih;
mod mih_service;
#[cfg(test)]
mod names;
mod network;
mod on_lab;
mod short;
mod tls;
mod topology;
mod writer;

pub use aaa::{Bound, Made, ServerRole};
pub use machine::{Endpoint, EventOrJob, HostAddress};
use measure::{Measure, Measured};
pub use network::LabSettings;
use network::Network;
pub use on_lab::LabFacts;
use std::sync::Arc;
use topology::Topology;
pub use topology::{cpu_config, sctp_config, tcp_config};
use usher_core::{Instant, Seed};
use usher_crypto::tls::KeyLog;
use usher_scenario::metrics::{self, Metric};
use usher_scenario::model::{Direction, Scenario, Workload};
use usher_scenario::ports;
use usher_sim::radio::wimax::Counters;
use usher_sim::{
    Addresses, Application, Builder, Context, DISCARD_PORT, Delivery, Fault, Held, HostId, LinkStats,
    SimError, Tap, TcpTotals, Transports,
};

/// What a role tells the measurement.
#[derive(Clone, Copy, Debug)]
enum Report {
    /// A dialogue began.
    Begun,
    /// A dialogue ended.
    Ended {
        /// When it had begun.
        began: Instant,
        /// How.
        end: End,
    },
    /// An authentication that began then was let in by EAP; traffic keys are to follow.
    Admitted(Instant),
    /// Its traffic keys are there, so long after that.
    Keyed(Instant, usher_core::Duration),
    /// A record of accounting fell due.
    Record,
    /// A record that fell due then has its end.
    Recorded {
        /// When it fell due.
        due: Instant,
        /// Acknowledged, and late if so; `None`: it is lost.
        kept: Option<bool>,
    },
    /// The application protocol sent so many requests again.
    Retransmissions(u64),
    /// A question of a dialogue that began then is answered, and whether by the right user.
    Identified(Instant, bool),
    /// A dialogue that began then is none after all.
    Withdrawn(Instant),
    /// Something happened to the mobile node of this number.
    Mobile(u32, handover::Milestone),
}

/// How a dialogue ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// As it should.
    Completed,
    /// An authentication was refused by the AAA server.
    Rejected,
    /// Given up.
    Failed,
    /// Not as it should, but to an end: with a delay.
    Otherwise,
}

/// Everything that runs on simulated hosts.
#[derive(Debug)]
enum Role {
    Source(Box<background::Source>),
    Sink,
    DialogueClient(Box<dialogue::Client>),
    DialogueServer(Box<dialogue::Server>),
    Station(Box<eap::StationRole>),
    Nas(Box<eap::NasRole>),
    AaaServer(Box<aaa::ServerRole>),
    IdentServer(Box<ident::ServerRole>),
    IdentAsker(Box<ident::AskerRole>),
    IdentUser(Box<ident::UserRole>),
    Mih(Box<mih::NodeRole>),
    Function(Box<mih_service::FunctionRole>),
    Mobile(Box<handover::MobileRole>),
    Point(Box<handover::PointRole>),
    Correspondent(Box<handover::CorrespondentRole>),
}

impl Application for Role {
    type Report = Report;

    #[inline]
    fn handle(&mut self, ctx: &mut Context<'_, Report>, delivery: Delivery) {
        match self {
            Self::DialogueClient(client) => client.handle(ctx, delivery),
            Self::DialogueServer(server) => server.handle(ctx, delivery),
            Self::Station(station) => station.handle(ctx, delivery),
            Self::Nas(nas) => nas.handle(ctx, delivery),
            Self::AaaServer(server) => server.handle(ctx, delivery),
            Self::IdentServer(server) => server.handle(ctx, &delivery),
            Self::IdentAsker(asker) => asker.handle(ctx, &delivery),
            Self::IdentUser(user) => user.handle(ctx, &delivery),
            Self::Mih(node) => node.handle(ctx, delivery),
            Self::Function(function) => function.handle(ctx, &delivery),
            Self::Mobile(node) => node.handle(ctx, delivery),
            Self::Point(point) => point.handle(ctx, delivery),
            Self::Correspondent(correspondent) => correspondent.handle(ctx, delivery),
            Self::Source(source) => source.handle(ctx, &delivery),
            Self::Sink => {}
        }
        #[cfg(test)]
        names::note(ctx.worked());
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// A role names a host that the study does not have.
    #[error("no host is named `{0}`")]
    NoHost(String),
    /// The simulator refused.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// A run ended before its time, since a host had to send by a stream that there is not.
    #[error(
        "{} after the beginning, \"{host}\" had to send by a stream that its SCTP association does not have: it has \
         {streams}; transport.sctp.accepted_streams is how many the side has that accepts an association, and the \
         workload's streams how many the other side asks for", .at.since(Instant::ZERO)
    )]
    NoStream {
        /// The host's name in the study.
        host: String,
        /// When.
        at: Instant,
        /// Outbound streams of its association.
        streams: u16,
    },
    /// A role refused its settings.
    #[error("{0}")]
    Role(String),
    /// The lab cannot be had, or something happened to it.
    #[error(transparent)]
    Lab(#[from] usher_lab::LabError),
    /// A run on a lab was ended before its time.
    #[error("ended before its time")]
    Stopped,
}

/// What a run produced.
#[derive(Debug)]
pub struct RunResult {
    /// Metrics by name, in a fixed order; README and `docs/metrics.md` say what each one means.
    pub metrics: Vec<(String, f64)>,
    /// Packets that links handed to hosts.
    pub packet_hops: u64,
    /// Wall-clock seconds of the event loop alone.
    pub wall_s: f64,
    /// The process's largest resident set up to the loop's end, bytes; 0 where the system does not tell.
    pub peak_rss_bytes: u64,
    /// How well a lab was the network that was asked for, where it was one.
    pub lab: LabFacts,
    /// The capture, where one was asked for, and what its reader needs to decrypt it.
    pub capture: Option<Captured>,
}

/// What a capture needs beside its packets.
#[derive(Debug)]
pub struct Captured {
    /// The tap that was given, full.
    pub tap: Box<dyn Tap>,
    /// The captured links by interface number: name, and whether packets have an Ethernet header.
    pub interfaces: Vec<(String, bool)>,
    /// TLS secrets in the NSS key log format.
    pub key_log: String,
    /// The RADIUS secret.
    pub radius_secret: String,
}

/// A run's hosts, links and roles, for one network or the other.
struct Built {
    builder: Builder<Role>,
    measure: Measure,
    topology: Topology,
    interfaces: Vec<(String, bool)>,
    key_log: KeyLog,
}

/// One run that is set up and not yet done.
#[derive(Debug)]
pub struct World {
    network: Network,
    topology: Topology,
    scenario: Scenario,
    interfaces: Vec<(String, bool)>,
    key_log: KeyLog,
}

/// What is built before the simulation itself.
struct Plan<'a> {
    scenario: &'a Scenario,
    addresses: Arc<Addresses>,
    seed: Seed,
    builder: Builder<Role>,
    transports: Arc<Transports>,
    /// Who runs which application, where it is not Usher's own user.
    users: ident::Users,
    /// The workload that is being built; one that stands alone is called nothing.
    name: &'a str,
    /// How many applications with transports there are.
    apps: u32,
    /// Nothing begins from here on.
    end: Instant,
}

impl Plan<'_> {
    /// Where a host is.
    fn at(&self, host: HostId) -> HostAddress {
        HostAddress { host, addresses: self.addresses.clone() }
    }

    /// Puts a role on a host, with the study's transport settings.
    fn role(&mut self, host: HostId, role: Role) -> u32 {
        let app = self.builder.app(host, role, Some(self.transports.clone()));
        self.apps = app + 1;
        if let Some(rate) = self.scenario.transport.tcp.read_rate.get() {
            let piece = self.scenario.transport.tcp.read_size.map(|size| size.bytes() as u32);
            self.builder.read_slowly(app, rate.bits_per_second() / 8, piece);
        }
        app
    }
}

impl World {
    /// Sets a run on the simulator up. With `tap`, the links named in `capture` (of a group of links the first) are
    /// captured at their first host.
    ///
    /// # Errors
    /// The scenario does not fit together; what [`Scenario`]s from a checked study file always do.
    pub fn new(
        scenario: &Scenario,
        seed: Seed,
        capture: &[String],
        tap: Option<Box<dyn Tap>>,
    ) -> Result<Self, WorldError> {
        let Built { builder, measure, topology, interfaces, key_log } = Built::of(scenario, seed, capture)?;
        let network = Network::Sim(Box::new(builder.build(measure, tap)));
        Ok(Self { network, topology, scenario: scenario.clone(), interfaces, key_log })
    }
}

impl Built {
    fn of(scenario: &Scenario, seed: Seed, capture: &[String]) -> Result<Self, WorldError> {
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
            tcp: Arc::new(topology::tcp_config(&scenario.transport.tcp, version, mtu)),
            sctp: Arc::new(topology::sctp_config(&scenario.transport.sctp, version, mtu)),
        });
        if scenario.run.memory {
            builder.follow_memory();
        }
        let addresses = Arc::new(builder.addresses().clone());
        let users = ident::Users::default();
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
        aaa::build(&mut plan, &topology, &key_log)?;
        ident::serve(&mut plan, &topology)?;
        mih_service::serve(&mut plan, &topology)?;
        let mut firsts = Vec::new();
        for (name, workload) in scenario.all_workloads() {
            firsts.push(plan.apps);
            plan.name = name;
            // Beside others each has chance of its own, whatever the others are.
            plan.seed = if name.is_empty() { seed } else { seed.derive(&format!("workload {name}"), 0) };
            match workload {
                Workload::Dialogue(d) => dialogues(&mut plan, &topology, d)?,
                Workload::Eap(e) => eap::build(&mut plan, &topology, e, &key_log)?,
                Workload::Ident(i) => ident::build(&mut plan, &topology, i)?,
                Workload::Mih(m) => mih::build(&mut plan, &topology, m)?,
                Workload::Handover(h) => handover::build(&mut plan, &topology, h)?,
            }
        }
        for (i, b) in scenario.background.iter().enumerate() {
            let to = topology.group(&b.to)?;
            for (j, &host) in topology.group(&b.from)?.iter().enumerate() {
                let rng = seed.stream("background", (i as u64) << 32 | j as u64);
                let source = background::Source::new(b, to[j % to.len()], version, rng);
                plan.builder.app(host, Role::Source(Box::new(source)), None);
            }
            for &host in to {
                let sink = plan.builder.app(host, Role::Sink, None);
                // Several kinds of traffic may end at the same sink.
                let _ = plan.builder.bind_udp(sink, 0, DISCARD_PORT);
            }
        }
        let measure = Measure::new(from, end, firsts);
        Ok(Self { builder: plan.builder, measure, topology, interfaces, key_log })
    }
}

impl World {
    fn links(&self) -> Vec<[LinkStats; 2]> {
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

    /// Runs it to its end.
    ///
    /// # Errors
    /// [`WorldError::NoStream`]: the run means nothing from there on.
    pub fn run(mut self) -> Result<RunResult, WorldError> {
        let run = &self.scenario.run;
        let from = Instant::ZERO + run.warmup.get();
        let end = from + run.duration.get();
        let drained = end + run.drain.get();
        let started = std::time::Instant::now();
        self.network.run_until(just_before(from));
        self.network.forget_peaks();
        self.network.ended()?;
        let links_before = self.links();
        let segments_before = self.network.tcp_totals()?;
        let transports_before = self.transport_totals(segments_before);
        let cells_before = self.cells();
        let names: Vec<String> = self.scenario.all_workloads().map(|(name, _)| name.to_owned()).collect();
        let mih_before: Vec<_> = (0..names.len()).map(|i| self.mih_totals(i)).collect();
        let keying_before: Vec<_> = (0..names.len()).map(|i| self.keying_totals(i)).collect();
        self.network.run_until(just_before(end));
        let links_at_end = self.links();
        // MIH functions go on with what has failed for their users: it is in their transports' queues, and counts. So
        // do the last packets of a flow.
        let goes_on = |workload: &Workload| matches!(workload, Workload::Mih(_) | Workload::Handover(_));
        let ends = self.scenario.all_workloads().map(|(_, workload)| !goes_on(workload)).collect();
        self.network.observer_mut().drain(ends);
        if !self.network.is_done() {
            self.network.run_until(drained);
        }
        if let Some(fault) = self.network.fault() {
            return Err(self.told(fault));
        }
        self.network.ended()?;
        let segments_after = self.network.tcp_totals()?;
        let transports = [transports_before, self.transport_totals(segments_after)];
        let wall_s = started.elapsed().as_secs_f64();
        let peak_rss_bytes = peak_rss_bytes();

        let mut out = Measured::default();
        for (i, name) in names.iter().enumerate() {
            out.of(name);
            self.network.observer_mut().metrics(i, &mut out);
        }
        self.transport_metrics(&mut out, &transports);
        for (i, (name, before)) in names.iter().zip(keying_before).enumerate() {
            out.of(name);
            self.keying_metrics(&mut out, i, before);
        }
        segment_metrics(&mut out, segments_before, segments_after);
        for (i, (name, before)) in names.iter().zip(mih_before).enumerate() {
            out.of(name);
            self.mih_metrics(&mut out, i, &transports, before);
        }
        self.link_metrics(&mut out, &links_before, &links_at_end);
        self.cell_metrics(&mut out, &cells_before);
        self.cpu_metrics(&mut out);
        self.memory_metrics(&mut out);
        let links = self.topology.links.iter().flat_map(|(_, links)| links.iter().copied());
        let packet_hops = self.network.packet_hops(links);
        // What the relay came too late to take it tells at its end.
        let tap = self.network.take_tap()?;
        let lab = self.lab_facts();
        Ok(RunResult {
            metrics: out.all,
            packet_hops,
            wall_s,
            peak_rss_bytes,
            lab,
            capture: tap.map(|tap| Captured {
                tap,
                interfaces: self.interfaces,
                key_log: self.key_log.text(),
                radius_secret: eap::SECRET.into(),
            }),
        })
    }

    /// A fault of the simulation in the study's terms.
    fn told(&self, fault: Fault) -> WorldError {
        let Fault::NoStream { at, host, streams } = fault;
        let name = self.topology.hosts.iter().find(|(_, members)| members.contains(&host));
        WorldError::NoStream { host: name.map(|(name, _)| name.clone()).unwrap_or_default(), at, streams }
    }

    /// What TCP and SCTP counted, by the metrics' names.
    fn transport_totals(&self, tcp: TcpTotals) -> [(Metric, u64); 9] {
        let sctp = self.network.sctp_totals();
        [
            (metrics::TCP_SEGMENTS, tcp.segments),
            (metrics::TCP_RETRANSMISSIONS, tcp.retransmitted),
            (metrics::TCP_TIMEOUTS, tcp.timeouts),
            (metrics::TCP_ACKS, tcp.pure_acks),
            (metrics::TCP_BLOCKED, tcp.blocked),
            (metrics::SCTP_PACKETS, sctp.packets),
            (metrics::SCTP_RETRANSMISSIONS, sctp.retransmitted),
            (metrics::SCTP_TIMEOUTS, sctp.timeouts),
            (metrics::SCTP_CONTROL, sctp.control),
        ]
    }

    /// The metrics of the transports that were used.
    fn transport_metrics(&self, out: &mut Measured, [before, after]: &[[(Metric, u64); 9]; 2]) {
        let completed = self.network.observer().completed();
        if completed == 0 {
            return;
        }
        // The first of a protocol's is what it sent at all.
        let protocol = |metric: &Metric| metric.name.split('.').next();
        let used = |metric: &Metric| {
            after.iter().find(|(other, _)| protocol(other) == protocol(metric)).is_some_and(|(_, n)| *n > 0)
        };
        for ((metric, before), (_, after)) in before.iter().zip(after).filter(|((m, _), _)| used(m)) {
            out.put(*metric, (after - before) as f64 / completed as f64);
        }
    }

    /// What the hosts held for their connections, where that was followed: the most of any of a group.
    fn memory_metrics(&self, out: &mut Measured) {
        for (name, _) in self.scenario.hosts.iter() {
            let members = self.topology.hosts.get(name).map_or(&[][..], Vec::as_slice);
            let held: Vec<Held> = members.iter().filter_map(|h| self.network.held_at_most(*h)).collect();
            let connections = held.iter().map(|h| h.connections).max();
            let octets = held.iter().map(|h| h.octets).max();
            if let (Some(connections), Some(octets)) = (connections, octets) {
                out.put_of(name, metrics::CONNECTIONS, f64::from(connections));
                out.put_of(name, metrics::MEMORY, octets as f64);
            }
        }
    }

    /// The roles of a workload.
    fn roles(&self, workload: usize) -> impl Iterator<Item = &Role> {
        self.network.apps(self.network.observer().apps(workload)).into_iter()
    }

    /// Messages of a workload's exchanges of traffic keys, and their bytes.
    fn keying_totals(&self, workload: usize) -> [u64; 2] {
        let sides = self.roles(workload).filter_map(|role| match role {
            Role::Station(station) => Some(station.keying_totals()),
            Role::Nas(nas) => Some(nas.keying_totals()),
            _ => None,
        });
        sides.fold([0; 2], |[m, b], side| [m + side.sent, b + side.octets])
    }

    fn keying_metrics(&self, out: &mut Measured, workload: usize, before: [u64; 2]) {
        let completed = self.network.observer().of(workload).completed() as f64;
        let after = self.keying_totals(workload);
        if completed > 0.0 && after[0] > 0 {
            for ((metric, before), after) in
                [metrics::KEYS_MESSAGES, metrics::KEYS_BYTES].iter().zip(before).zip(after)
            {
                out.put(*metric, (after - before) as f64 / completed);
            }
        }
    }

    /// What all MIH functions of a workload counted together; nothing where there is none.
    fn mih_totals(&self, workload: usize) -> Option<mih::Totals> {
        let functions = self.roles(workload).filter_map(|role| match role {
            Role::Mih(node) => Some(node.totals()),
            Role::Mobile(node) => Some(node.totals()),
            Role::Point(point) => Some(point.totals()),
            _ => None,
        });
        functions.reduce(mih::Totals::and)
    }

    fn mih_metrics(
        &self,
        out: &mut Measured,
        workload: usize,
        [transports_before, transports_after]: &[[(Metric, u64); 9]; 2],
        before: Option<mih::Totals>,
    ) {
        let (Some(before), Some(after)) = (before, self.mih_totals(workload)) else { return };
        let packets = after.packets - before.packets;
        let dialogues = self.network.observer().of(workload);
        let begun = dialogues.begun() as f64;
        if begun > 0.0 {
            out.put(metrics::SUCCESS, dialogues.succeeded() as f64 / begun);
        }
        let messages = after.messages - before.messages;
        if messages > 0 {
            out.put(metrics::MIH_OVERHEAD, packets as f64 / messages as f64);
        }
        if begun > 0.0 {
            out.put(metrics::MIH_PACKETS, packets as f64 / begun);
            out.put(
                metrics::MIH_RETRANSMISSIONS,
                (after.retransmissions - before.retransmissions) as f64 / begun,
            );
            out.put(metrics::MIH_DUPLICATES, (after.duplicates - before.duplicates) as f64 / begun);
            out.put(metrics::MIH_LATE, (after.late - before.late) as f64 / begun);
        }
        out.put(metrics::MIH_MEMORY, after.memory as f64);
        let delivered = after.delivered - before.delivered;
        if delivered > 0 {
            out.put(
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
            // What carries several workloads is told of none.
            if *after > 0 && packets > 0 && self.scenario.sole_workload().is_some() {
                out.put(carried, (after - before) as f64 / packets as f64);
            }
        }
    }

    fn link_metrics(&self, out: &mut Measured, before: &[[LinkStats; 2]], at_end: &[[LinkStats; 2]]) {
        let completed = self.network.observer().completed() as f64;
        let duration = self.scenario.run.duration.get().as_secs_f64();
        let after = self.links();
        for (i, (name, links)) in self.topology.links.iter().enumerate() {
            let delta = |after: &[LinkStats; 2], f: fn(&LinkStats) -> u64| {
                [0, 1].map(|d| (f(&after[d]) - f(&before[i][d])) as f64)
            };
            let both = |f| delta(&after[i], f).iter().sum::<f64>();
            if completed > 0.0 {
                out.put_of(name, metrics::PACKETS, both(|s| s.offered - s.background) / completed);
                let bytes = both(|s| s.offered_bytes - s.background_bytes);
                out.put_of(name, metrics::BYTES, bytes / completed);
            }
            let sent = delta(&at_end[i], |s| s.offered_bytes);
            let load = self.scenario.links.get(name).map(|link| {
                let share = |direction, bytes: f64| {
                    let rate = link.channel(direction).rate?;
                    Some(bytes * 8.0 / duration / rate as f64 / links.len() as f64)
                };
                [share(Direction::Up, sent[0]), share(Direction::Down, sent[1])]
            });
            let busier = load.into_iter().flatten().flatten().reduce(f64::max);
            if let Some(load) = busier {
                out.put_of(name, metrics::LOAD, load);
            }
            let given = sent.iter().sum::<f64>();
            let dropped = delta(&at_end[i], |s| s.dropped_bytes).iter().sum::<f64>();
            out.put_of(name, metrics::SENT, given * 8.0 / duration);
            out.put_of(name, metrics::RECEIVED, (given - dropped) * 8.0 / duration);
            let offered = both(|s| s.offered);
            if offered > 0.0 {
                out.put_of(name, metrics::DROPS, both(|s| s.queue_full + s.lost) / offered);
            }
        }
    }

    /// What happened in the cells, those of a group together.
    fn cells(&self) -> Vec<Counters> {
        let sum = |cells: &Vec<usher_sim::CellId>| {
            let mut total = Counters::default();
            for cell in cells {
                if let Some(counters) = self.network.cell_counters(*cell) {
                    total.add(counters);
                }
            }
            total
        };
        self.topology.cells.iter().map(|(_, cells)| sum(cells)).collect()
    }

    fn cell_metrics(&self, out: &mut Measured, before: &[Counters]) {
        let completed = self.network.observer().completed() as f64;
        for (((name, _), before), after) in self.topology.cells.iter().zip(before).zip(self.cells()) {
            let requests = (after.requests - before.requests) as f64;
            if completed > 0.0 {
                out.put_of(name, metrics::REQUESTS, requests / completed);
            }
            let tried = requests + (after.ranging_attempts - before.ranging_attempts) as f64;
            let collided = |c: &Counters| c.request_collisions + c.ranging_collisions;
            if tried > 0.0 {
                let share = (collided(&after) - collided(before)) as f64 / tried;
                out.put_of(name, metrics::COLLISIONS, share);
            }
        }
    }

    fn cpu_metrics(&self, out: &mut Measured) {
        for (name, host) in self.scenario.hosts.iter() {
            let Some(cpu) = &host.cpu else { continue };
            let members = self.topology.hosts.get(name).map_or(&[][..], Vec::as_slice);
            let stats: Vec<_> = members.iter().filter_map(|h| self.network.cpu_stats(*h)).collect();
            // The lab charges nothing.
            if stats.is_empty() {
                continue;
            }
            let busy: u64 = stats.iter().map(|s| s.busy_ns).sum();
            let capacity =
                self.network.now().as_secs_f64() * f64::from(cpu.cores.get()) * members.len() as f64;
            out.put_of(name, metrics::BUSY, busy as f64 / 1e9 / capacity);
        }
    }
}

/// How much of TCP's packets with data is data.
fn segment_metrics(out: &mut Measured, before: TcpTotals, after: TcpTotals) {
    let segments = after.data_segments - before.data_segments;
    if segments > 0 {
        let data = (after.data_octets - before.data_octets) as f64;
        let octets = (after.data_packet_octets - before.data_packet_octets) as f64;
        out.put(metrics::TCP_DATA_SHARE, data / octets);
        out.put(metrics::TCP_SEGMENT_SIZE, data / segments as f64);
    }
}

/// What happens at a time itself counts to what comes after it.
fn just_before(time: Instant) -> Instant {
    Instant::from_nanos(time.as_nanos().saturating_sub(1))
}

/// VmHWM of `/proc/self/status`.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse().ok()).map_or(0, |kb: u64| kb * 1024)
}

fn dialogues(
    plan: &mut Plan<'_>,
    topology: &Topology,
    d: &usher_scenario::model::Dialogue,
) -> Result<(), WorldError> {
    use arrivals::{ArrivalProcess, budget};
    use usher_scenario::model::TransportProtocol;
    let transport = &plan.scenario.transport;
    let reconnect = match d.transport {
        TransportProtocol::Sctp => transport.sctp.reconnect,
        _ => transport.tcp.reconnect,
    };
    let rules = dialogue::Rules::new(d, reconnect.get());
    let servers = topology.group(&d.server)?;
    for (i, &host) in servers.iter().enumerate() {
        let rng = plan.seed.stream("dialogue.server", i as u64);
        let role = Role::DialogueServer(Box::new(dialogue::Server::new(rules.clone(), rng)));
        let app = plan.role(host, role);
        plan.builder.serve_at(app, d.transport, 0, (host, ports::DIALOGUE))?;
    }
    let clients = topology.group(&d.clients)?;
    let shared = budget(&d.arrivals);
    for (i, &host) in clients.iter().enumerate() {
        let index = i as u64;
        let arrivals = ArrivalProcess::new(
            &d.arrivals,
            index,
            clients.len() as u64,
            plan.end,
            shared.clone(),
            plan.seed.stream("arrivals", index),
        );
        let rng = plan.seed.stream("dialogue.client", index);
        let server = servers[i % servers.len()];
        let client =
            dialogue::Client::new(rules.clone(), (host, server), arrivals, rng, writer::Writer::new(d));
        plan.role(host, Role::DialogueClient(Box::new(client)));
    }
    Ok(())
}
