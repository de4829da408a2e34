//! The simulation: hosts, links, transports and applications, driven by one event queue.

mod build;
mod half;
mod memory;
mod message;
mod net;
mod outage;
mod parts;
mod protection;
mod radio;
mod run;
mod scope;
mod stream;

pub use build::{SimError, SimulationBuilder};
pub use half::{HalfNetwork, HalfRunError, HalfSyncChannel, NetworkHalfIndex, NetworkSplitPlan};
pub use memory::MemoryUse;
pub use parts::{HostOutageSpec, SimAppSpec, SimHostSpec, SimLinkSpec, SimSocketSpec, SimulationSpec};
pub use radio::CellId;
pub use scope::{CrossHalfPacket, EventOrderKey, SimulationScope, WholeNetwork};

use crate::addr::{HostAddresses, HostId, IpVersion};
use crate::app::{AppConnectionId, AppOperation, Application};
use crate::capture::PacketTap;
use crate::cpu::{CpuStats, HostCpu};
use crate::link::{LinkDirection, LinkId, LinkStats};
use crate::packet::{PacketPool, PacketRef};
use crate::queue::EventQueue;
use crate::reassembly::DatagramReassembly;
use crate::{sctp, tcp};
use std::collections::{BTreeMap, VecDeque};
use std::hash::BuildHasher;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::collections::{HashMap, HashTable, SeededHashState};
use usher_core::{Instant, Seed, SimulationRng, WallTime, WorkLabel, WorkRecord};

/// The transport settings of an application's connections and associations.
#[derive(Clone, Debug, Default)]
pub struct TransportConfig {
    /// Settings of TCP connections.
    pub tcp: Arc<tcp::TcpConfig>,
    /// Settings of SCTP associations.
    pub sctp: Arc<sctp::SctpConfig>,
}

/// An event of the event queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SimEvent {
    /// The first packet in flight on a link direction arrives.
    Arrive(u32),
    /// The timer of an application expires, unless it was moved.
    App(u32),
    /// The timer of a TCP connection expires, unless it was moved.
    Tcp(u32),
    /// The timer of an SCTP association expires, unless it was moved.
    Sctp(u32),
    /// A job of a host's processor is done.
    Cpu(u32),
    /// A slow application has read a piece of a connection's data.
    Read(u32),
    /// A packet from a host to itself arrives.
    Loopback,
    /// A host fails or recovers.
    Outage(u32),
    /// The timer of a cell expires, unless it was moved.
    Cell(u32),
}

/// A host's outgoing link directions, in the order of their creation. Most hosts have a single one, their default
/// route.
#[derive(Debug)]
enum HostEgressLinks {
    None,
    Single(u32),
    Many(Box<EgressLinkTable>),
}

#[derive(Debug)]
struct EgressLinkTable {
    ports: Vec<u32>,
    /// The link direction for each destination ([`NONE`]: unreachable).
    next_hops: Box<[u32]>,
}

impl HostEgressLinks {
    fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::Single(port) => std::slice::from_ref(port),
            Self::Many(many) => &many.ports,
        }
    }
    fn push(&mut self, port: u32) {
        match self {
            Self::None => *self = Self::Single(port),
            Self::Single(first) => {
                *self = Self::Many(Box::new(EgressLinkTable {
                    ports: vec![*first, port],
                    next_hops: Box::default(),
                }));
            }
            Self::Many(many) => many.ports.push(port),
        }
    }
    /// Returns the direction by which packets leave for a host; [`NONE`] if it is unreachable.
    #[inline]
    fn next_hop(&self, to: HostId) -> u32 {
        match self {
            Self::Single(port) => *port,
            Self::Many(many) => many.next_hops.get(to.0 as usize).copied().unwrap_or(NONE),
            Self::None => NONE,
        }
    }
}

#[derive(Debug)]
struct SimHost<R> {
    ports: HostEgressLinks,
    ident: u16,
    next_port: u16,
    /// True while the host is out of order.
    down: bool,
    extras: Option<Box<OptionalHostState<R>>>,
}

/// State that few hosts have.
#[derive(Debug)]
struct OptionalHostState<R> {
    /// The application that receives the host's frames.
    frames_to: Option<u32>,
    /// The application that decides on transit packets. Without one the host forwards them.
    transit_to: Option<u32>,
    cpu: Option<Box<HostCpu<R>>>,
}

impl<R> SimHost<R> {
    fn extras_mut(&mut self) -> &mut OptionalHostState<R> {
        let none = || Box::new(OptionalHostState { frames_to: None, transit_to: None, cpu: None });
        self.extras.get_or_insert_with(none)
    }
    fn frames_to(&self) -> Option<u32> {
        self.extras.as_ref()?.frames_to
    }
    #[inline]
    fn transit_to(&self) -> Option<u32> {
        self.extras.as_ref()?.transit_to
    }
    fn cpu(&self) -> Option<&HostCpu<R>> {
        self.extras.as_ref()?.cpu.as_deref()
    }
    fn cpu_mut(&mut self) -> Option<&mut HostCpu<R>> {
        self.extras.as_mut()?.cpu.as_deref_mut()
    }
}

/// An application with its timer and connections. The field order keeps it within a cache line, so that a
/// delivery touches one.
#[repr(C, align(64))]
#[derive(Debug)]
struct AppSlot<A> {
    app: A,
    /// When the timer is due, and the time of its one valid event in the event queue, which may be earlier. Far
    /// future if none.
    deadline: Instant,
    armed: Instant,
    host: HostId,
    /// Index of the first connection that it opened; [`NONE`] if none. Most applications open no other.
    first: u32,
    transports: Arc<TransportConfig>,
    extras: Option<Box<OptionalAppState>>,
    /// True if its host has a processor.
    queues: bool,
}

/// State that few applications have.
#[derive(Debug, Default)]
struct OptionalAppState {
    /// Indexes of the connections that it opened, from number 1 on, and of those that it accepted; [`NONE`] if
    /// closed.
    opened: Vec<u32>,
    accepted: Vec<u32>,
    /// The address and port of each socket.
    sockets: Vec<UdpSocketBinding>,
    /// Octets per second that it reads of each connection; `None` reads everything at once.
    read_rate: Option<NonZeroU64>,
    /// Maximum octets of one read; `None` for a segment.
    read_size: Option<NonZeroU32>,
}

const NONE: u32 = u32::MAX;
/// In a table of connections, numbers from here on are those of associations.
const ASSOC: u32 = 1 << 31;

/// Returns a host's UDP port as one word, which hashes faster than two.
fn udp_key(host: HostId, port: u16) -> u64 {
    u64::from(host.0) << 16 | u64::from(port)
}

/// A UDP socket's address and port; port 0 means unbound.
#[derive(Clone, Copy, Debug)]
struct UdpSocketBinding {
    address: HostId,
    port: u16,
}

impl<A> AppSlot<A> {
    fn extras_mut(&mut self) -> &mut OptionalAppState {
        self.extras.get_or_insert_default()
    }
    fn bind_socket(&mut self, socket: u32, to: UdpSocketBinding) {
        let (socket, host) = (socket as usize, self.host);
        let sockets = &mut self.extras_mut().sockets;
        if sockets.len() <= socket {
            sockets.resize(socket + 1, UdpSocketBinding { address: host, port: 0 });
        }
        sockets[socket] = to;
    }
    fn sockets(&self) -> &[UdpSocketBinding] {
        self.extras.as_ref().map_or(&[], |aside| &aside.sockets)
    }
    #[inline]
    fn read_rate(&self) -> Option<NonZeroU64> {
        self.extras.as_ref()?.read_rate
    }
    fn read_size(&self) -> Option<NonZeroU32> {
        self.extras.as_ref()?.read_size
    }
    /// Returns the id of the next accepted connection.
    fn next_accepted_connection_id(&self) -> AppConnectionId {
        AppConnectionId::for_accepted_connection(
            self.extras.as_ref().map_or(0, |aside| aside.accepted.len() as u32),
        )
    }
    #[inline]
    fn transport_index(&self, id: AppConnectionId) -> u32 {
        let (n, opened) = (id.number() as usize, !id.is_accepted());
        if n == 0 && opened {
            return self.first;
        }
        let known = self.extras.as_ref();
        let at = if opened {
            known.and_then(|aside| aside.opened.get(n - 1))
        } else {
            known.and_then(|aside| aside.accepted.get(n))
        };
        at.copied().unwrap_or(NONE)
    }
    /// Returns the index of the TCP connection with this id.
    #[inline]
    fn tcp_index(&self, id: AppConnectionId) -> Option<u32> {
        Some(self.transport_index(id)).filter(|c| *c < ASSOC)
    }
    /// Returns the index of the SCTP association with this id.
    fn sctp_index(&self, id: AppConnectionId) -> Option<u32> {
        Some(self.transport_index(id)).filter(|c| (ASSOC..NONE).contains(c)).map(|c| c - ASSOC)
    }
    fn set_connection_index(&mut self, id: AppConnectionId, to: u32) {
        let n = id.number() as usize;
        let (table, n) = match (id.is_accepted(), n.checked_sub(1)) {
            (false, None) => {
                self.first = to;
                return;
            }
            (false, Some(n)) => (&mut self.extras_mut().opened, n),
            (true, _) => (&mut self.extras_mut().accepted, n),
        };
        if n >= table.len() {
            table.resize(n + 1, NONE);
        }
        table[n] = to;
    }
}

#[derive(Debug)]
struct TcpConnectionEntry {
    tcp: tcp::TcpConnection,
    app: u32,
    id: AppConnectionId,
    key: FourTuple,
    /// Index of the peer's slot when its last segment arrived: a hint that saves a lookup.
    peer: u32,
    /// The time of its one valid timer event in the event queue; far future if none.
    armed: Instant,
    /// True from the application's first event of it until the event that closes it.
    attached: bool,
    /// Octets that a slow application is reading now.
    reading: u32,
}

#[derive(Debug)]
struct SctpAssociationEntry {
    sctp: Box<sctp::SctpAssociation>,
    app: u32,
    id: AppConnectionId,
    key: FourTuple,
    armed: Instant,
    /// True from the application's first event of it until the event that closes it.
    attached: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FourTuple {
    local: HostId,
    remote: HostId,
    local_port: u16,
    remote_port: u16,
}

/// Finds connections by their ends. It stores only numbers, since the connections store the ends.
#[derive(Debug)]
struct ConnectionIndex {
    numbers: HashTable<u32>,
    hasher: SeededHashState,
}

impl Default for ConnectionIndex {
    fn default() -> Self {
        Self { numbers: HashTable::new(), hasher: SeededHashState::with_seed(0) }
    }
}

impl ConnectionIndex {
    fn get(&self, conns: &[TcpConnectionEntry], key: &FourTuple) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.numbers.find(hash, |number| conns[*number as usize].key == *key).copied()
    }
    /// Inserts a connection. It replaces one with the same ends.
    fn insert(&mut self, conns: &[TcpConnectionEntry], number: u32) {
        let key = |number: u32| &conns[number as usize].key;
        let hash = self.hasher.hash_one(key(number));
        match self.numbers.find_mut(hash, |other| key(*other) == key(number)) {
            Some(other) => *other = number,
            None => {
                let hasher = &self.hasher;
                self.numbers.insert_unique(hash, number, |other| hasher.hash_one(key(*other)));
            }
        }
    }
    /// Removes a connection. False if the table has another connection with the same ends.
    fn remove(&mut self, conns: &[TcpConnectionEntry], number: u32) -> bool {
        let hash = self.hasher.hash_one(conns[number as usize].key);
        self.numbers.find_entry(hash, |other| *other == number).is_ok_and(|entry| {
            entry.remove();
            true
        })
    }
}

usher_core::counters! {
    /// Counters of drops and rare events of the hosts.
    pub struct HostStats {
        /// Packets with a wrong checksum.
        damaged,
        /// Datagrams for a port without a listener.
        udp_no_port,
        /// Segments for no connection (answered with a reset, unless they were one).
        tcp_no_connection,
        /// SCTP packets for no association (answered with an ABORT where RFC 9260 §8.4 says so).
        sctp_no_association,
        /// COOKIE ECHOs whose cookie this host never gave (dropped).
        sctp_bad_cookie,
        /// COOKIE ECHOs that came after the cookie's life (answered with an ERROR).
        sctp_stale_cookie,
        /// Packets that a security policy dropped, or that waited for an SA in vain.
        unprotected,
        /// ESP packets received without an SA for them.
        no_sa,
        /// Packets for a failed host.
        host_down,
        /// Packets without a route.
        no_route,
        /// Packets over the MTU that may not be fragmented.
        too_big,
        /// Datagrams sent in fragments.
        fragmented,
        /// Datagrams with a fragment that never arrived.
        reassembly_timeout,
        /// Operations on a missing connection, port or socket.
        stale_operation,
    }
}

/// TCP statistics summed over all connections of a run, open and closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTotals {
    /// Segments sent.
    pub segments: u64,
    /// Segments with data that was sent before.
    pub retransmitted: u64,
    /// Expirations of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmissions.
    pub fast_retransmits: u64,
    /// Segments that carry only an acknowledgement.
    pub pure_acks: u64,
    /// Segments received behind a gap; their data waits until the gap is filled.
    pub blocked: u64,
    /// Segments with data that were sent.
    pub data_segments: u64,
    /// Octets of data in these segments.
    pub data_octets: u64,
    /// Octets of their packets, with the IP and TCP headers.
    pub data_packet_octets: u64,
}

/// Segments with data, sent by open and closed connections.
#[derive(Clone, Copy, Debug, Default)]
struct SentDataTotals {
    segments: u64,
    octets: u64,
    packet_octets: u64,
}

/// SCTP statistics summed over all associations of a run, open and closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SctpTotals {
    /// Packets sent.
    pub packets: u64,
    /// Retransmitted DATA chunks.
    pub retransmitted: u64,
    /// Expirations of T3-rtx.
    pub timeouts: u64,
    /// Fast retransmissions.
    pub fast_retransmits: u64,
    /// Packets without data, mostly acknowledgements.
    pub control: u64,
}

/// Why a simulation ended early. Its counters have no meaning then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimRunError {
    /// A message for a stream that the association does not have.
    #[error(
        "at {}: host {} sent on a stream that its SCTP association does not have; it has {streams} outbound streams",
        .at.duration_since(Instant::ZERO), .host.0
    )]
    NoStream {
        /// Virtual time of the fault.
        at: Instant,
        /// The application's host.
        host: HostId,
        /// Outbound streams of the association, numbered from 0.
        streams: u16,
    },
    /// The owner stopped the run by the flag of [`end_when`](Simulation::end_when).
    #[error("the run was stopped")]
    Stopped,
}

/// Events between two checks of the stop flag. That is half a millisecond of packets, and longer with real
/// cryptography. A check at each event would cost too much.
const LOOK: u64 = 1024;

/// A runnable simulation of a whole network or of a [`HalfNetwork`]. A [`SimulationBuilder`] builds it.
#[derive(Debug)]
pub struct Simulation<A: Application, O, E: SimulationScope = WholeNetwork> {
    version: IpVersion,
    addresses: HostAddresses,
    now: Instant,
    epoch: WallTime,
    started: bool,
    queue: EventQueue<SimEvent, E::Mark>,
    extent: E,
    hosts: Vec<SimHost<A::Report>>,
    /// The owner of each host that is an interface.
    interfaces: BTreeMap<HostId, HostId>,
    directions: Vec<LinkDirection>,
    cells: Vec<radio::RadioCell>,
    air: radio::StationLinkRegistry,
    rng: SimulationRng,
    /// Host and job of each job that a processor works on.
    cpu_jobs: Vec<(HostId, u32)>,
    free_cpu_jobs: Vec<u32>,
    pool: PacketPool,
    apps: Vec<AppSlot<A>>,
    conns: Vec<TcpConnectionEntry>,
    free_conns: Vec<u32>,
    closed_totals: TcpTotals,
    /// Segments with data and their octets, over all connections.
    data_sent: SentDataTotals,
    tuples: ConnectionIndex,
    sctp: message::SctpAssociationTable,
    udp_ports: HashMap<u64, (u32, u32)>,
    listeners: HashMap<(HostId, u16), u32>,
    reassembly: DatagramReassembly,
    loopback: VecDeque<PacketRef>,
    seed: Seed,
    /// The IPsec databases of hosts that protect packets.
    guards: BTreeMap<HostId, protection::HostIpsecState>,
    outages: Vec<outage::HostOutage>,
    memory: Option<Box<memory::MemoryTracker>>,
    /// Number of hosts out of order.
    down: u32,
    stats: HostStats,
    fault: Option<SimRunError>,
    /// Stops the run when set.
    stop: Option<Arc<AtomicBool>>,
    packet_hops: u64,
    events: u64,
    spare_ops: Vec<Vec<AppOperation<A::Report>>>,
    work: Vec<WorkRecord>,
    tap: Option<Box<dyn PacketTap>>,
    tap_buf: Vec<u8>,
    observer: O,
}

impl<A: Application, O, E: SimulationScope> Simulation<A, O, E> {
    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// Returns the number of packets that links delivered to hosts, forwarding hosts included.
    pub fn packet_hops(&self) -> u64 {
        self.packet_hops
    }
    /// Returns the number of handled events.
    pub fn event_count(&self) -> u64 {
        self.events
    }
    /// Stops the run soon after a thread sets this flag, with [`SimRunError::Stopped`] or, in a half,
    /// [`HalfRunError::Stopped`]. The flag has no other effect.
    pub fn end_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }
    #[inline(always)]
    fn is_run_cancelled(&self) -> bool {
        self.events.is_multiple_of(LOOK)
            && self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
    /// Returns why the run ended early, if it did.
    pub fn fault(&self) -> Option<SimRunError> {
        self.fault
    }
    /// Returns the observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
    /// Returns the observer, to take its findings.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
    /// Returns the drops of all hosts.
    pub fn host_stats(&self) -> HostStats {
        self.stats
    }
    /// Returns the counters of a link: from its first host to its second, and back.
    pub fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        let i = link.0 as usize * 2;
        [self.directions[i].stats(), self.directions[i + 1].stats()]
    }
    /// Returns the counters of a host's processor, if it has one.
    pub fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        self.hosts[host.0 as usize].cpu().map(|c| c.stats)
    }
    /// Returns the nanoseconds that a host's processor spent per work label, over all cores; empty without a
    /// processor.
    pub fn cpu_spent(&self, host: HostId) -> impl Iterator<Item = (WorkLabel, u64)> {
        self.hosts[host.0 as usize].cpu().into_iter().flat_map(|cpu| cpu.cpu_time_by_label())
    }
    /// Returns the applications in the order of their creation.
    pub fn applications(&self) -> impl Iterator<Item = &A> {
        self.apps.iter().map(|s| &s.app)
    }
    /// Returns the host of an application.
    pub fn host_of(&self, app: u32) -> Option<HostId> {
        self.apps.get(app as usize).map(|s| s.host)
    }
    /// Returns TCP statistics over all connections.
    pub fn tcp_totals(&self) -> TcpTotals {
        let SentDataTotals { segments, octets, packet_octets } = self.data_sent;
        let mut totals = TcpTotals {
            data_segments: segments,
            data_octets: octets,
            data_packet_octets: packet_octets,
            ..self.closed_totals
        };
        for c in self.conns.iter().filter(|c| !c.tcp.is_closed()) {
            totals.add_connection(&c.tcp);
        }
        totals
    }
    /// Returns SCTP statistics over all associations.
    pub fn sctp_totals(&self) -> SctpTotals {
        self.sctp.totals()
    }
    /// Ends the capture and returns the tap.
    pub fn take_tap(&mut self) -> Option<Box<dyn PacketTap>> {
        self.tap.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketInFlight;
    use usher_core::ConnId;

    #[test]
    fn connections_are_found_by_number_despite_gaps() {
        let transports = Arc::default();
        let (deadline, armed) = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
        let mut slot = AppSlot {
            app: (),
            deadline,
            armed,
            host: HostId(0),
            first: NONE,
            transports,
            extras: None,
            queues: false,
        };
        let ids: [fn(u32) -> AppConnectionId; 2] =
            [|n| ConnId::nth_opened_connection(n).into(), AppConnectionId::for_accepted_connection];
        for id in ids {
            assert_eq!((slot.transport_index(id(0)), slot.transport_index(id(7))), (NONE, NONE));
            for (i, to) in [(0, 10), (1, 11), (4, 14), (2, 12), (4, 24)] {
                slot.set_connection_index(id(i), to);
                assert_eq!(slot.transport_index(id(i)), to, "{i}");
            }
            assert_eq!([0, 1, 2, 3, 4, 5].map(|i| slot.transport_index(id(i))), [10, 11, 12, NONE, 24, NONE]);
        }
        assert_eq!(slot.next_accepted_connection_id(), AppConnectionId::for_accepted_connection(5));
        slot.set_connection_index(AppConnectionId::for_accepted_connection(4), NONE);
        assert_eq!(
            slot.next_accepted_connection_id(),
            AppConnectionId::for_accepted_connection(5),
            "a number is not given twice"
        );
    }

    #[test]
    fn what_each_packet_touches_stays_small() {
        assert_eq!(size_of::<AppSlot<Box<dyn std::any::Any>>>(), 64, "a cache line");
        assert!(size_of::<SimHost<()>>() <= 32, "{}", size_of::<SimHost<()>>());
        assert!(size_of::<LinkDirection>() <= 88, "{}", size_of::<LinkDirection>());
        assert!(size_of::<TcpConnectionEntry>() <= 304, "{}", size_of::<TcpConnectionEntry>());
        assert!(size_of::<PacketInFlight>() <= 88, "{}", size_of::<PacketInFlight>());
    }
}
