//! A study's applications on kernel sockets. They are the simulator's applications: this module delivers socket input
//! to them and carries out their operations, in the namespaces of a lab.
//!
//! All hosts of a lab share one thread. A socket belongs to the namespace in which it was created, so the thread
//! enters a namespace to create one. It waits for the sockets of all hosts with one `epoll`. So roles share state
//! without locks, as in the simulator, and the order of hosts does not depend on the scheduler. Several labs in
//! parallel use several processors.

mod association;
mod counters;
mod datagram;
mod frame;
mod run;
mod settings;
mod sockets;
mod stream;

pub use settings::{
    KernelSettings, SysctlSetting, UnsupportedSetting, kernel_missing_settings, sctp_sysctls,
    sysctl_settings, unsupported_sctp_settings, unsupported_settings,
};

use crate::error::{ErrorContext, LabError};
use crate::lab::Lab;
use crate::namespace::NetworkNamespace;
use crate::perf::PerfSampler;
use crate::registry::LabRegistry;
use crate::relay::RelayReport;
use crate::topology::{HostSpec, LabTopology, LinkEnd, LinkSpec};
use rustix::event::epoll;
use sockets::{AssocListener, FramePort, LabSctpAssociation, LabUdpSocket, StreamConnection, StreamListener};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use usher_core::{ConnId, Instant, WallTime, WorkRecord};
use usher_live::SystemClock;
use usher_sim::{
    AppDelivery, AppOperation, Application, HostAddresses, HostId, LinkId, LinkStats, PacketTap, Payload,
    ReportObserver, SimAppSpec, SimHostSpec, SimulationSpec, TransportConfig,
};

/// The names of a study's lab and its settings beyond the study.
#[derive(Clone, Debug, Default)]
pub struct LabSetup {
    /// The name for people, in the list of labs.
    pub name: String,
    /// The names of hosts and interfaces by index.
    pub hosts: Vec<String>,
    /// The names of links by index.
    pub links: Vec<String>,
    /// Kernel settings beyond the study's.
    pub kernel: KernelSettings,
    /// True to split processor time by library, where perf is available.
    pub perf: bool,
}

/// The number of samples in each library, by host.
pub type SampleCountsByLibrary = BTreeMap<(HostId, &'static str), u64>;

/// The hosts of a lab and their applications.
#[derive(Debug)]
pub struct LabHosts<A: Application, O> {
    lab: Lab,
    /// The relay's report after its end.
    final_report: Option<RelayReport>,
    /// The previous nice value of the thread.
    nice: Option<i32>,
    /// Deliveries caused by an application's own operations. They wait until all its operations are carried out.
    later: VecDeque<(u32, AppDelivery)>,
    delivering: bool,
    /// True if there have been connections.
    connections: bool,
    /// True if there have been associations.
    associations: bool,
    /// The lab's host and address of each host and interface.
    link_ends: Vec<LinkEnd>,
    addresses: HostAddresses,
    hosts: Vec<SimHostSpec>,
    apps: Vec<AppSlot<A>>,
    sources: BTreeMap<u64, SocketEventSource>,
    next_source: u64,
    poller: OwnedFd,
    due: BTreeSet<(Instant, LabHostTimer)>,
    clock: Option<SystemClock>,
    /// The roles' wall time at [`Instant::ZERO`]: the study's, in which its certificates are valid.
    epoch: WallTime,
    tap: Option<Box<dyn PacketTap>>,
    now: Instant,
    home: NetworkNamespace,
    stop: Arc<AtomicBool>,
    observer: O,
    work: Vec<WorkRecord>,
    spare_ops: Vec<Vec<AppOperation<A::Report>>>,
    buffer: Vec<u8>,
    counters: LabHostCounters,
    octets_written: u64,
    precision: TimerLatenessStats,
    failed: Option<LabError>,
    /// The event source of each application's port.
    frame_ports: BTreeMap<(u32, u32), u64>,
    /// True if sampling is wanted, and the running sampler.
    perf: bool,
    sampler: Option<PerfSampler>,
    /// The turns of applications: start, end and application, by CLOCK_MONOTONIC in nanoseconds.
    turns: Vec<(u64, u64, u32)>,
}

/// An application on a host.
#[derive(Debug)]
struct AppSlot<A> {
    app: A,
    host: HostId,
    transports: Arc<TransportConfig>,
    read_rate: Option<NonZeroU64>,
    read_size: Option<NonZeroU32>,
    /// The event sources of its UDP sockets by number, and of its connections by id.
    sockets: BTreeMap<u32, u64>,
    conns: BTreeMap<ConnId, u64>,
    accepted: u32,
    deadline: Option<Instant>,
    processor: std::time::Duration,
}

/// A timer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum LabHostTimer {
    /// An application's timer.
    App(u32),
    /// A slow application has read a piece of a connection.
    Read(u64),
}

/// The object of a socket event.
#[derive(Debug)]
enum SocketEventSource {
    Bound(LabUdpSocket),
    Listener(StreamListener),
    Stream(StreamConnection),
    AssocListener(AssocListener),
    Assoc(LabSctpAssociation),
    Frames(FramePort),
}

impl SocketEventSource {
    /// Returns its application.
    const fn app_index(&self) -> u32 {
        match self {
            Self::Bound(bound) => bound.app,
            Self::Listener(listener) => listener.app,
            Self::Stream(stream) => stream.app,
            Self::AssocListener(listener) => listener.app,
            Self::Assoc(assoc) => assoc.app,
            Self::Frames(frames) => frames.app,
        }
    }
}

usher_core::counters! {
    /// Counters of drops and failed operations of the hosts.
    pub struct LabHostCounters {
        /// Datagrams, connections and frames from an address that no host of the study has.
        unknown_sender,
        /// Operations on a missing connection, port or socket.
        stale_operation,
        /// Datagrams and frames that the kernel refused: its buffer was full, or there was no receiver.
        not_sent,
        /// Sockets that the kernel could not create.
        no_socket,
    }
}

/// The lateness of timers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TimerLatenessStats {
    /// True if the hosts' thread had priority over ordinary threads (nice -15).
    pub preferred: bool,
    /// Expired timers.
    pub timers: u64,
    /// The sum of their lateness, nanoseconds.
    pub late_ns: u64,
    /// The greatest lateness, nanoseconds.
    pub latest_ns: u64,
}

impl<A: Application, O: ReportObserver<A::Report>> LabHosts<A, O> {
    /// Builds the lab of a study's parts and places its applications. `stop` ends a run early.
    ///
    /// # Errors
    /// [`LabError::Unfit`]: the study uses a feature that a lab lacks. The errors of [`Lab::build`], or a port is in
    /// use.
    pub fn new(
        parts: SimulationSpec<A>,
        setup: &LabSetup,
        registry: &LabRegistry,
        observer: O,
        tap: Option<Box<dyn PacketTap>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        check_supported(&parts)?;
        raise_open_file_limit();
        let (topology, places) = build_topology(&parts, setup);
        let lab = Lab::build(topology, registry)?;
        let SimulationSpec { addresses, hosts, apps, epoch, .. } = parts;
        let home =
            NetworkNamespace::current().with_context(|| "open the namespace of a thread".to_owned())?;
        let poller =
            epoll::create(epoll::CreateFlags::CLOEXEC).with_context(|| "make an epoll".to_owned())?;
        let mut new = Self {
            lab,
            final_report: None,
            nice: None,
            later: VecDeque::new(),
            delivering: false,
            connections: false,
            associations: false,
            link_ends: places,
            addresses,
            hosts,
            apps: Vec::new(),
            sources: BTreeMap::new(),
            next_source: 0,
            poller,
            due: BTreeSet::new(),
            clock: None,
            epoch,
            tap,
            now: Instant::ZERO,
            home,
            stop,
            observer,
            work: Vec::new(),
            spare_ops: Vec::new(),
            buffer: vec![0; 1 << 18],
            counters: LabHostCounters::default(),
            octets_written: 0,
            precision: TimerLatenessStats::default(),
            failed: None,
            frame_ports: BTreeMap::new(),
            perf: setup.perf,
            sampler: None,
            turns: Vec::new(),
        };
        for app in apps {
            new.add_application(app)?;
        }
        for host in 0..new.hosts.len() {
            if let Some(app) = new.hosts[host].frames_to {
                new.open_frame_ports(app, HostId(host as u32))?;
            }
        }
        Ok(new)
    }

    /// Adds an application and its sockets.
    fn add_application(&mut self, part: SimAppSpec<A>) -> Result<(), LabError> {
        let number = self.apps.len() as u32;
        let SimAppSpec { app, host, transports, read_rate, read_size, sockets, listens, listens_sctp } = part;
        self.apps.push(AppSlot {
            app,
            host,
            transports,
            read_rate,
            read_size,
            sockets: BTreeMap::new(),
            conns: BTreeMap::new(),
            accepted: 0,
            deadline: None,
            processor: std::time::Duration::ZERO,
        });
        for bound in sockets {
            self.bind_udp(number, bound.socket, bound.address, bound.port)?;
        }
        listens.into_iter().try_for_each(|(at, port)| self.listen_tcp(number, at, port))?;
        listens_sctp.into_iter().try_for_each(|(at, port)| self.listen_sctp(number, at, port))
    }

    /// Runs a function in the namespace of a host, so that its new sockets belong there.
    fn run_in_namespace<T>(&self, host: HostId, what: impl FnOnce() -> T) -> Result<T, LabError> {
        let doing = || "enter a network namespace".to_owned();
        self.lab.namespace(self.link_ends[host.0 as usize].host).enter().with_context(doing)?;
        let result = what();
        self.home.enter().with_context(doing)?;
        Ok(result)
    }

    /// Registers a socket with `epoll`.
    fn register_socket_source(
        &mut self,
        source: SocketEventSource,
        flags: epoll::EventFlags,
    ) -> Result<u64, LabError> {
        let number = self.next_source;
        self.next_source += 1;
        let fd = match &source {
            SocketEventSource::Bound(bound) => bound.socket.as_fd(),
            SocketEventSource::Listener(listener) => listener.socket.as_fd(),
            SocketEventSource::Stream(stream) => stream.socket.as_fd(),
            SocketEventSource::AssocListener(listener) => listener.socket.as_fd(),
            SocketEventSource::Assoc(assoc) => assoc.socket.as_fd(),
            SocketEventSource::Frames(frames) => frames.socket.as_fd(),
        };
        epoll::add(&self.poller, fd, epoll::EventData::new_u64(number), flags)
            .with_context(|| "watch a socket".to_owned())?;
        self.sources.insert(number, source);
        Ok(number)
    }

    /// Returns the application's host if this is one of its addresses.
    fn own_address(&self, app: u32, at: Option<HostId>) -> Option<HostId> {
        let host = self.apps[app as usize].host;
        let at = at.unwrap_or(host);
        let owner = self.hosts.get(at.0 as usize).and_then(|h| h.owner);
        (at == host || owner == Some(host)).then_some(at)
    }
}

impl<A: Application, O> LabHosts<A, O> {
    /// Returns the observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
    /// Returns the observer, for taking its findings.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
    /// Returns the applications in the order of their creation.
    pub fn apps(&self) -> impl Iterator<Item = &A> {
        self.apps.iter().map(|slot| &slot.app)
    }
    /// Returns the processor time of each application, in the order of creation. It includes the kernel's sending and
    /// receiving for it on this thread, up to the relay's ring.
    pub fn processor_times(&self) -> impl Iterator<Item = (HostId, std::time::Duration)> {
        self.apps.iter().map(|slot| (slot.host, slot.processor))
    }
    /// Ends the sampling. Returns the sampled event and the samples by library and host. `None`: sampling was not
    /// wanted, or perf is missing or lacks permission.
    pub fn finish_sampling(&mut self) -> Option<(&'static str, SampleCountsByLibrary)> {
        let sampler = self.sampler.take()?;
        let event = sampler.event_name();
        let mut seen = BTreeMap::new();
        for sample in sampler.stop() {
            let next = self.turns.partition_point(|turn| turn.0 <= sample.at_ns);
            let turn = next.checked_sub(1).and_then(|at| self.turns.get(at));
            if let Some(&(_, _, app)) = turn.filter(|turn| sample.at_ns <= turn.1) {
                *seen.entry((self.apps[app as usize].host, sample.library)).or_default() += 1;
            }
        }
        Some((event, seen))
    }
    /// Returns the time of the latest event.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// Returns the counters of hosts.
    pub fn counters(&self) -> LabHostCounters {
        self.counters
    }
    /// Returns the lateness of timers.
    pub fn precision(&self) -> TimerLatenessStats {
        self.precision
    }
    /// Returns the network.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }
    /// Returns a link's statistics: from its first host to the second, and back.
    pub fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        self.lab.link_stats().get(link.0 as usize).copied().unwrap_or_default()
    }
    /// Stops the relay and returns the tap.
    ///
    /// # Errors
    /// [`LabError::Ended`], [`LabError::Kernel`].
    pub fn take_tap(&mut self) -> Result<Option<Box<dyn PacketTap>>, LabError> {
        let Some(outcome) = self.lab.stop_relay()? else { return Ok(None) };
        self.final_report = Some(outcome.relay);
        Ok(outcome.tap)
    }
    /// Returns the relay's report. The frames that it was too late to take are complete only after its end
    /// ([`take_tap`](Self::take_tap)).
    pub fn relay_report(&self) -> RelayReport {
        self.final_report.unwrap_or_else(|| self.lab.relay_report())
    }
    /// Returns the failure that invalidates the run, if any.
    pub fn take_failure(&mut self) -> Option<LabError> {
        self.failed.take()
    }
}

impl<A: Application, O> Drop for LabHosts<A, O> {
    fn drop(&mut self) {
        // Restore the niceness, because the thread outlives these hosts.
        if let Some(nice) = self.nice.take() {
            let _ = rustix::process::setpriority_process(None, nice);
        }
    }
}

/// Raises the limit of open files to its maximum: each host and each socket of a lab needs one.
fn raise_open_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // An error is ignored: if the limit stays too low, opening a file fails later, and that is reported.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Rejects features of a study that links and this kernel lack.
fn check_supported<A>(parts: &SimulationSpec<A>) -> Result<(), LabError> {
    let unfit = |what: &str| Err(LabError::Unfit(what.to_owned()));
    if parts.radios > 0 {
        return unfit(
            "it uses radio (802.16 cells or 802.11 basic service sets), but the lab has only wired links. Add a \
             [lab] section that switches the radio off (`set = { \"cells.NAME.used\" = false }`) and has a link in \
             its place",
        );
    }
    if has_sctp(parts) && !usher_sctp::is_available() {
        return Err(missing_sctp_error());
    }
    if !parts.outages.is_empty() {
        return unfit("it has outages, but hosts of the lab cannot fail");
    }
    Ok(())
}

/// The error for a kernel without SCTP.
fn missing_sctp_error() -> LabError {
    LabError::Unfit(format!("it uses SCTP, but {}", usher_sctp::SctpUnavailable))
}

/// True if a role of a study uses SCTP.
fn has_sctp<A>(parts: &SimulationSpec<A>) -> bool {
    parts.apps.iter().any(|app| !app.listens_sctp.is_empty())
}

/// Returns the lab's network for a study's parts, and the place of each host and interface in it.
fn build_topology<A: Application>(
    parts: &SimulationSpec<A>,
    setup: &LabSetup,
) -> (LabTopology, Vec<LinkEnd>) {
    let name = |names: &[String], n: usize| names.get(n).cloned().unwrap_or_else(|| n.to_string());
    let sctp = has_sctp(parts);
    let mut hosts: Vec<HostSpec> = Vec::new();
    let mut places = vec![LinkEnd::for_host(0); parts.hosts.len()];
    for (n, _) in parts.hosts.iter().enumerate().filter(|(_, host)| host.owner.is_none()) {
        places[n] = LinkEnd::for_host(hosts.len());
        let id = HostId(n as u32);
        let transports = parts.apps.iter().find(|app| app.host == id).map(|app| &app.transports);
        hosts.push(HostSpec {
            name: name(&setup.hosts, n),
            addresses: vec![parts.addresses.address_of(id)],
            settings: transports
                .map(|of| settings::namespace_settings(of, sctp, &setup.kernel))
                .unwrap_or_default(),
            initial_window: transports.and_then(|of| settings::initial_window(&of.tcp)),
            quick_ack: transports.is_some_and(|of| of.tcp.delayed_ack.is_none()),
        });
    }
    for (n, host) in parts.hosts.iter().enumerate() {
        let Some(owner) = host.owner else { continue };
        let at = places[owner.0 as usize].host;
        places[n] = LinkEnd { host: at, address: hosts[at].addresses.len() };
        hosts[at].addresses.push(parts.addresses.address_of(HostId(n as u32)));
    }
    let links = parts.links.iter().enumerate().map(|(n, link)| LinkSpec {
        name: name(&setup.links, n),
        ends: link.ends.map(|end| places[end.0 as usize]),
        config: link.config.clone(),
        capture: link.capture,
    });
    let links = links.collect();
    (LabTopology { name: setup.name.clone(), seed: parts.seed, hosts, links }, places)
}

/// Returns all octets of a message. Octets without a value are zeros.
fn padded_octets(payload: &Payload) -> Cow<'_, [u8]> {
    let said = payload.as_slice();
    if said.len() == payload.len as usize {
        return said.into();
    }
    let mut whole = said.to_vec();
    whole.resize(payload.len as usize, 0);
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_says_is_sent_before_the_zeros_that_fill_it() {
        // A dialogue's message has its number and round; the rest is padding.
        let said = Payload { len: 6, bytes: Some([7, 8][..].into()) };
        assert_eq!(&*padded_octets(&said), [7, 8, 0, 0, 0, 0]);
        assert_eq!(&*padded_octets(&Payload::with_length(2)), [0, 0]);
        assert!(matches!(padded_octets(&Payload::copy_from_slice(&[1, 2])), Cow::Borrowed([1, 2])));
    }
}
