//! A study's applications on kernel sockets: the same that the simulator hosts, given what arrives at sockets in the
//! namespaces of a lab, and what they ask for carried out there.
//!
//! All hosts of one lab are one thread. A socket belongs to the namespace in which it was made, whoever reads it, so the
//! thread goes into a namespace to make one and waits for those of all with one `epoll`. Roles may thus share what they
//! share in the simulator without locks, nothing depends on how threads are scheduled against each other, and several
//! labs beside each other use several processors.

mod association;
mod counters;
mod datagram;
mod frame;
mod run;
mod settings;
mod stream;

pub(crate) use frame::EAPOL;
pub use settings::{Kernel, Setting, Untold, missing, sctp_sysctls, sctp_untold, sysctls, untold};

use crate::error::{Doing, LabError};
use crate::lab::Lab;
use crate::namespace::Namespace;
use crate::perf::Sampler;
use crate::registry::Registry;
use crate::relay::RelayReport;
use crate::topology::{End, HostSpec, LinkSpec, Topology};
use association::{Assoc, AssocListener};
use datagram::Bound;
use frame::FramePort;
use rustix::event::epoll;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stream::{Listener, Stream};
use usher_core::{ConnId, Instant, WallTime, Work};
use usher_live::Clock;
use usher_sim::{
    Addresses, AppPart, Application, Delivery, HostId, HostPart, LinkId, LinkStats, Observer, Op, Parts,
    Payload, Tap, Transports,
};

/// What a lab of a study is called, and what it has beside the study.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What it is of, for people who look at what runs.
    pub name: String,
    /// The names of the hosts and their interfaces, by number.
    pub hosts: Vec<String>,
    /// The names of the links, by number.
    pub links: Vec<String>,
    /// Settings of the kernel beyond the study's.
    pub kernel: Kernel,
    /// Whether processor time is divided among libraries, where perf can.
    pub perf: bool,
}

/// How often each library was seen while it worked for each host.
pub type Samples = BTreeMap<(HostId, &'static str), u64>;

/// The hosts of a lab, with what runs on them.
#[derive(Debug)]
pub struct Hosts<A: Application, O> {
    lab: Lab,
    /// What the relay did until it was ended.
    ended: Option<RelayReport>,
    /// The nice value that the thread had before.
    nice: Option<i32>,
    /// Deliveries that came of an application's own operations: they wait until those are all carried out.
    later: VecDeque<(u32, Delivery)>,
    delivering: bool,
    /// There were connections.
    connections: bool,
    /// There were associations.
    associations: bool,
    /// Where each host and interface is in the lab.
    places: Vec<End>,
    addresses: Addresses,
    hosts: Vec<HostPart>,
    apps: Vec<Slot<A>>,
    sources: BTreeMap<u64, Source>,
    next_source: u64,
    poller: OwnedFd,
    due: BTreeSet<(Instant, Due)>,
    clock: Option<Clock>,
    /// What roles take for the wall time at [`Instant::ZERO`]: the study's, in which its certificates are valid.
    epoch: WallTime,
    tap: Option<Box<dyn Tap>>,
    now: Instant,
    home: Namespace,
    stop: Arc<AtomicBool>,
    observer: O,
    work: Vec<Work>,
    spare_ops: Vec<Vec<Op<A::Report>>>,
    buffer: Vec<u8>,
    counters: Counters,
    octets_written: u64,
    precision: Precision,
    failed: Option<LabError>,
    /// Which source the port of an application is.
    frame_ports: BTreeMap<(u32, u32), u64>,
    /// What is to be sampled, and what is.
    perf: bool,
    sampler: Option<Sampler>,
    /// When an application had the thread: from, to and its number, by CLOCK_MONOTONIC, nanoseconds.
    turns: Vec<(u64, u64, u32)>,
}

/// What runs on a host.
#[derive(Debug)]
struct Slot<A> {
    app: A,
    host: HostId,
    transports: Arc<Transports>,
    read_rate: Option<NonZeroU64>,
    read_size: Option<NonZeroU32>,
    /// Its UDP sockets by their numbers, and its connections by their ids: which source each is.
    sockets: BTreeMap<u32, u64>,
    conns: BTreeMap<ConnId, u64>,
    accepted: u32,
    deadline: Option<Instant>,
    processor: std::time::Duration,
}

/// What is waited for beside sockets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// An application's timer.
    App(u32),
    /// A slow application has read a piece of a connection.
    Read(u64),
}

/// What an event of a socket is of.
#[derive(Debug)]
enum Source {
    Bound(Bound),
    Listener(Listener),
    Stream(Stream),
    AssocListener(AssocListener),
    Assoc(Assoc),
    Frames(FramePort),
}

impl Source {
    /// Whose it is.
    const fn app(&self) -> u32 {
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
    /// What hosts dropped or could not do.
    pub struct Counters {
        /// Datagrams, connections and frames from an address that no host of the study has.
        unknown_sender,
        /// Operations on a connection, port or socket that is not there.
        stale_operation,
        /// Datagrams and frames that the kernel would not take: its buffer was full, or nobody was there.
        not_sent,
        /// Sockets that could not be made.
        no_socket,
    }
}

/// How late timers were heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Precision {
    /// Whether the hosts had their turn before most others (nice -15).
    pub preferred: bool,
    /// Timers that ran out.
    pub timers: u64,
    /// How late they were together, nanoseconds.
    pub late_ns: u64,
    /// How late the latest was, nanoseconds.
    pub latest_ns: u64,
}

impl<A: Application, O: Observer<A::Report>> Hosts<A, O> {
    /// Builds the lab that a study's parts are of, and puts its applications there. `stop` ends a run before its time.
    ///
    /// # Errors
    /// [`LabError::Unfit`]: the study has what a lab has not. [`LabError`]s of [`Lab::build`]; a port that is taken.
    pub fn new(
        parts: Parts<A>,
        setup: &Setup,
        registry: &Registry,
        observer: O,
        tap: Option<Box<dyn Tap>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        fits(&parts)?;
        more_descriptors();
        let (topology, places) = topology(&parts, setup);
        let lab = Lab::build(topology, registry)?;
        let Parts { addresses, hosts, apps, epoch, .. } = parts;
        let home = Namespace::current().doing(|| "open the namespace of a thread".to_owned())?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "make an epoll".to_owned())?;
        let mut new = Self {
            lab,
            ended: None,
            nice: None,
            later: VecDeque::new(),
            delivering: false,
            connections: false,
            associations: false,
            places,
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
            counters: Counters::default(),
            octets_written: 0,
            precision: Precision::default(),
            failed: None,
            frame_ports: BTreeMap::new(),
            perf: setup.perf,
            sampler: None,
            turns: Vec::new(),
        };
        for app in apps {
            new.put(app)?;
        }
        for host in 0..new.hosts.len() {
            if let Some(app) = new.hosts[host].frames_to {
                new.open_frames(app, HostId(host as u32))?;
            }
        }
        Ok(new)
    }

    /// Puts one application in its place, with its sockets.
    fn put(&mut self, part: AppPart<A>) -> Result<(), LabError> {
        let number = self.apps.len() as u32;
        let AppPart { app, host, transports, read_rate, read_size, sockets, listens, listens_sctp } = part;
        self.apps.push(Slot {
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
            self.bind(number, bound.socket, bound.at, bound.port)?;
        }
        listens.into_iter().try_for_each(|(at, port)| self.listen(number, at, port))?;
        listens_sctp.into_iter().try_for_each(|(at, port)| self.listen_sctp(number, at, port))
    }

    /// Does something in the namespace of a host, for what it opens to be of that.
    fn within<T>(&self, host: HostId, what: impl FnOnce() -> T) -> Result<T, LabError> {
        let doing = || "enter a network namespace".to_owned();
        self.lab.namespace(self.places[host.0 as usize].host).enter().doing(doing)?;
        let result = what();
        self.home.enter().doing(doing)?;
        Ok(result)
    }

    /// Takes a socket in, to be heard of by `epoll`.
    fn watch(&mut self, source: Source, flags: epoll::EventFlags) -> Result<u64, LabError> {
        let number = self.next_source;
        self.next_source += 1;
        let fd = match &source {
            Source::Bound(bound) => bound.socket.as_fd(),
            Source::Listener(listener) => listener.socket.as_fd(),
            Source::Stream(stream) => stream.socket.as_fd(),
            Source::AssocListener(listener) => listener.socket.as_fd(),
            Source::Assoc(assoc) => assoc.socket.as_fd(),
            Source::Frames(frames) => frames.socket.as_fd(),
        };
        epoll::add(&self.poller, fd, epoll::EventData::new_u64(number), flags)
            .doing(|| "watch a socket".to_owned())?;
        self.sources.insert(number, source);
        Ok(number)
    }

    /// The application's host, if this is an address of it.
    fn own_address(&self, app: u32, at: Option<HostId>) -> Option<HostId> {
        let host = self.apps[app as usize].host;
        let at = at.unwrap_or(host);
        let owner = self.hosts.get(at.0 as usize).and_then(|h| h.owner);
        (at == host || owner == Some(host)).then_some(at)
    }
}

impl<A: Application, O> Hosts<A, O> {
    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
    /// The observer, to take its findings.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
    /// The applications, in the order of their creation.
    pub fn apps(&self) -> impl Iterator<Item = &A> {
        self.apps.iter().map(|slot| &slot.app)
    }
    /// Processor time that each application took: its handling, with the kernel's receiving and sending that its thread did for
    /// it, up to the relay's ring; in the order of their creation.
    pub fn processor(&self) -> impl Iterator<Item = (HostId, std::time::Duration)> {
        self.apps.iter().map(|slot| (slot.host, slot.processor))
    }
    /// Ends the sampling: by what it was, and how often each library was seen while it worked for each host. `None` where nothing was
    /// to be sampled, or perf is not there or may not look.
    pub fn sampled(&mut self) -> Option<(&'static str, Samples)> {
        let sampler = self.sampler.take()?;
        let event = sampler.event();
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
    /// The time of the latest event.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// What hosts dropped or could not do.
    pub fn counters(&self) -> Counters {
        self.counters
    }
    /// How late timers were.
    pub fn precision(&self) -> Precision {
        self.precision
    }
    /// The network.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }
    /// What a link did: from its first named host to the second, and back.
    pub fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        self.lab.link_stats().get(link.0 as usize).copied().unwrap_or_default()
    }
    /// Ends the capture and gives the tap back; nothing is relayed any more.
    ///
    /// # Errors
    /// [`LabError::Ended`], [`LabError::Kernel`].
    pub fn take_tap(&mut self) -> Result<Option<Box<dyn Tap>>, LabError> {
        let Some(outcome) = self.lab.stop()? else { return Ok(None) };
        self.ended = Some(outcome.relay);
        Ok(outcome.tap)
    }
    /// What the relay did; what it came too late to take it knows when it was ended ([`take_tap`](Self::take_tap)).
    pub fn relay_report(&self) -> RelayReport {
        self.ended.unwrap_or_else(|| self.lab.report())
    }
    /// Why the run means nothing, if something happened to it.
    pub fn failure(&mut self) -> Option<LabError> {
        self.failed.take()
    }
}

impl<A: Application, O> Drop for Hosts<A, O> {
    fn drop(&mut self) {
        // The thread goes on to other things.
        if let Some(nice) = self.nice.take() {
            let _ = rustix::process::setpriority_process(None, nice);
        }
    }
}

/// Lets this process have as many open files as it may: each host of a lab is one, and each of its sockets.
fn more_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Where it may not be raised, what is lacking is told when it is.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

/// Says what a study has that is not to be had of cables and this kernel.
fn fits<A>(parts: &Parts<A>) -> Result<(), LabError> {
    let unfit = |what: &str| Err(LabError::Unfit(what.to_owned()));
    if parts.radios > 0 {
        return unfit(
            "it has radio, 802.16 cells or 802.11 basic service sets, and the lab is of cables: give it a [lab] section that takes \
             those out (`set = { \"cells.NAME.used\" = false }`) and has a link in their place",
        );
    }
    if has_sctp(parts) && !usher_sctp::is_available() {
        return Err(no_sctp());
    }
    if !parts.outages.is_empty() {
        return unfit("it has outages, and a host of the lab does not fail");
    }
    Ok(())
}

/// This kernel has none.
fn no_sctp() -> LabError {
    LabError::Unfit(format!("it has SCTP, and {}", usher_sctp::NoSctp))
}

/// Whether anybody of a study speaks SCTP.
fn has_sctp<A>(parts: &Parts<A>) -> bool {
    parts.apps.iter().any(|app| !app.listens_sctp.is_empty())
}

/// The lab's network for a study's parts, and where each host and interface is in it.
fn topology<A: Application>(parts: &Parts<A>, setup: &Setup) -> (Topology, Vec<End>) {
    let name = |names: &[String], n: usize| names.get(n).cloned().unwrap_or_else(|| n.to_string());
    let sctp = has_sctp(parts);
    let mut hosts: Vec<HostSpec> = Vec::new();
    let mut places = vec![End::of(0); parts.hosts.len()];
    for (n, _) in parts.hosts.iter().enumerate().filter(|(_, host)| host.owner.is_none()) {
        places[n] = End::of(hosts.len());
        let id = HostId(n as u32);
        let transports = parts.apps.iter().find(|app| app.host == id).map(|app| &app.transports);
        hosts.push(HostSpec {
            name: name(&setup.hosts, n),
            addresses: vec![parts.addresses.of(id)],
            settings: transports
                .map(|of| settings::of_namespace(of, sctp, &setup.kernel))
                .unwrap_or_default(),
            initial_window: transports.and_then(|of| settings::initial_window(&of.tcp)),
            quick_ack: transports.is_some_and(|of| of.tcp.delayed_ack.is_none()),
        });
    }
    for (n, host) in parts.hosts.iter().enumerate() {
        let Some(owner) = host.owner else { continue };
        let at = places[owner.0 as usize].host;
        places[n] = End { host: at, address: hosts[at].addresses.len() };
        hosts[at].addresses.push(parts.addresses.of(HostId(n as u32)));
    }
    let links = parts.links.iter().enumerate().map(|(n, link)| LinkSpec {
        name: name(&setup.links, n),
        ends: link.ends.map(|end| places[end.0 as usize]),
        config: link.config.clone(),
        capture: link.capture,
    });
    let links = links.collect();
    (Topology { name: setup.name.clone(), seed: parts.seed, hosts, links }, places)
}

/// All octets of a message: those that nobody reads are zeros.
fn whole(payload: &Payload) -> Cow<'_, [u8]> {
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
        // A dialogue's message: its number and round, and nothing else of its length.
        let said = Payload { len: 6, bytes: Some([7, 8][..].into()) };
        assert_eq!(&*whole(&said), [7, 8, 0, 0, 0, 0]);
        assert_eq!(&*whole(&Payload::counted(2)), [0, 0]);
        assert!(matches!(whole(&Payload::copied(&[1, 2])), Cow::Borrowed([1, 2])));
    }
}
