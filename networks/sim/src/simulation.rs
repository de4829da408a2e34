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
mod stream;

pub use build::{SimError, SimulationBuilder};
pub use half::{
    CrossingPacket, EventMark, HalfChannel, HalfError, HalfNetwork, HalfSide, NetworkExtent, NetworkHalves,
    WholeNetwork,
};
pub use memory::MemoryUse;
pub use parts::{AppPart, HostPart, LinkPart, OutagePart, SimulationParts, SocketPart};
pub use radio::CellId;

use crate::addr::{HostAddresses, HostId, IpVersion};
use crate::app::{AppOperation, Application, LocalId};
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
use usher_core::collections::{HashMap, HashState, HashTable};
use usher_core::{Instant, ModelRng, Seed, WallTime, WorkLabel, WorkRecord};

/// The transport settings of an application's connections and associations.
#[derive(Clone, Debug, Default)]
pub struct TransportConfig {
    /// TCP's.
    pub tcp: Arc<tcp::TcpConfig>,
    /// SCTP's.
    pub sctp: Arc<sctp::SctpConfig>,
}

/// What the event queue holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SimEvent {
    /// The first packet under way on a link direction arrives.
    Arrive(u32),
    /// An application's timer, unless it was moved.
    App(u32),
    /// A TCP connection's timer, unless it was moved.
    Tcp(u32),
    /// An SCTP association's timer, unless it was moved.
    Sctp(u32),
    /// A job of a host's processor is done.
    Cpu(u32),
    /// A slow application has read what it was reading of a connection.
    Read(u32),
    /// A packet from a host to itself.
    Loopback,
    /// A host fails, or comes back.
    Outage(u32),
    /// A cell's timer, unless it was moved.
    Cell(u32),
}

/// A host's outgoing link directions, in the order of their creation: most have one, by which everything leaves.
#[derive(Debug)]
enum HostPorts {
    None,
    Single(u32),
    Many(Box<PortTable>),
}

#[derive(Debug)]
struct PortTable {
    ports: Vec<u32>,
    /// The link direction for each destination ([`NONE`]: unreachable).
    next_hops: Box<[u32]>,
}

impl HostPorts {
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
                *self =
                    Self::Many(Box::new(PortTable { ports: vec![*first, port], next_hops: Box::default() }));
            }
            Self::Many(many) => many.ports.push(port),
        }
    }
    /// By which direction packets leave for a host; [`NONE`] for those that cannot be reached.
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
    ports: HostPorts,
    ident: u16,
    next_port: u16,
    /// It has failed and is not back.
    down: bool,
    extras: Option<Box<HostExtras<R>>>,
}

/// What few hosts have.
#[derive(Debug)]
struct HostExtras<R> {
    /// The application that gets its frames.
    frames_to: Option<u32>,
    /// The application that says what becomes of packets of others; without one they go on by themselves.
    transit_to: Option<u32>,
    cpu: Option<Box<HostCpu<R>>>,
}

impl<R> SimHost<R> {
    fn extras_mut(&mut self) -> &mut HostExtras<R> {
        let none = || Box::new(HostExtras { frames_to: None, transit_to: None, cpu: None });
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

/// In this order and of the size of a cache line, so that a delivery touches one.
#[repr(C, align(64))]
#[derive(Debug)]
struct AppSlot<A> {
    app: A,
    /// When its timer is due, and the time of the one valid event for it in the event queue, which may be
    /// earlier; far future for none.
    deadline: Instant,
    armed: Instant,
    host: HostId,
    /// Where the first connection is that it opened; [`NONE`] for nowhere. Most have no other.
    first: u32,
    transports: Arc<TransportConfig>,
    extras: Option<Box<AppExtras>>,
    /// Its host has a processor.
    queues: bool,
}

/// What few applications have.
#[derive(Debug, Default)]
struct AppExtras {
    /// Where the further connections are that it opened, from number 1 on, and those that it accepted; [`NONE`] for nowhere.
    opened: Vec<u32>,
    accepted: Vec<u32>,
    /// Where each socket is bound.
    sockets: Vec<SocketBinding>,
    /// Bytes per second that it reads of each connection; `None` reads all at once.
    read_rate: Option<NonZeroU64>,
    /// Bytes that it then reads at a time, at most; `None` a segment.
    read_size: Option<NonZeroU32>,
}

const NONE: u32 = u32::MAX;
/// Where connections are noted, from here on the numbers are those of associations.
const ASSOC: u32 = 1 << 31;

/// A host's UDP port as one word, which hashes faster than two.
fn udp_key(host: HostId, port: u16) -> u64 {
    u64::from(host.0) << 16 | u64::from(port)
}

/// A UDP socket's address and port; port 0 is not bound.
#[derive(Clone, Copy, Debug)]
struct SocketBinding {
    address: HostId,
    port: u16,
}

impl<A> AppSlot<A> {
    fn extras_mut(&mut self) -> &mut AppExtras {
        self.extras.get_or_insert_default()
    }
    fn bind_socket(&mut self, socket: u32, to: SocketBinding) {
        let (socket, host) = (socket as usize, self.host);
        let sockets = &mut self.extras_mut().sockets;
        if sockets.len() <= socket {
            sockets.resize(socket + 1, SocketBinding { address: host, port: 0 });
        }
        sockets[socket] = to;
    }
    fn sockets(&self) -> &[SocketBinding] {
        self.extras.as_ref().map_or(&[], |aside| &aside.sockets)
    }
    #[inline]
    fn read_rate(&self) -> Option<NonZeroU64> {
        self.extras.as_ref()?.read_rate
    }
    fn read_size(&self) -> Option<NonZeroU32> {
        self.extras.as_ref()?.read_size
    }
    /// The id of the next connection that it accepts.
    fn next_accepted(&self) -> LocalId {
        LocalId::for_accepted(self.extras.as_ref().map_or(0, |aside| aside.accepted.len() as u32))
    }
    #[inline]
    fn transport_index(&self, id: LocalId) -> u32 {
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
    /// Where its TCP connection of this id is.
    #[inline]
    fn tcp_index(&self, id: LocalId) -> Option<u32> {
        Some(self.transport_index(id)).filter(|c| *c < ASSOC)
    }
    /// Where its SCTP association of this id is.
    fn sctp_index(&self, id: LocalId) -> Option<u32> {
        Some(self.transport_index(id)).filter(|c| (ASSOC..NONE).contains(c)).map(|c| c - ASSOC)
    }
    fn set_conn(&mut self, id: LocalId, to: u32) {
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
struct ConnectionSlot {
    tcp: tcp::TcpConnection,
    app: u32,
    id: LocalId,
    key: FourTuple,
    /// Where the other end was when a segment last came from it: a guess that saves a look-up.
    peer: u32,
    /// The time of the one valid timer event in the event queue; far future for none.
    armed: Instant,
    /// The application knows of it and has not been told that it is over.
    attached: bool,
    /// Bytes that a slow application is reading.
    reading: u32,
}

#[derive(Debug)]
struct AssociationSlot {
    sctp: Box<sctp::SctpAssociation>,
    app: u32,
    id: LocalId,
    key: FourTuple,
    armed: Instant,
    /// The application knows of it and has not been told that it is over.
    attached: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FourTuple {
    local: HostId,
    remote: HostId,
    local_port: u16,
    remote_port: u16,
}

/// Which connection has which ends. Connections hold their ends, so that the numbers alone are kept.
#[derive(Debug)]
struct ConnectionIndex {
    numbers: HashTable<u32>,
    hasher: HashState,
}

impl Default for ConnectionIndex {
    fn default() -> Self {
        Self { numbers: HashTable::new(), hasher: HashState::with_seed(0) }
    }
}

impl ConnectionIndex {
    fn get(&self, conns: &[ConnectionSlot], key: &FourTuple) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.numbers.find(hash, |number| conns[*number as usize].key == *key).copied()
    }
    /// Notes a connection, in place of one with the same ends.
    fn insert(&mut self, conns: &[ConnectionSlot], number: u32) {
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
    /// Forgets a connection, unless another with the same ends is noted; false if so.
    fn remove(&mut self, conns: &[ConnectionSlot], number: u32) -> bool {
        let hash = self.hasher.hash_one(conns[number as usize].key);
        self.numbers.find_entry(hash, |other| *other == number).is_ok_and(|entry| {
            entry.remove();
            true
        })
    }
}

usher_core::counters! {
    /// What hosts dropped or did beyond the ordinary.
    pub struct HostStats {
        /// Packets whose checksum did not hold.
        damaged,
        /// Datagrams for a port that nobody listens on.
        udp_no_port,
        /// Segments for no connection (answered with a reset, unless they were one).
        tcp_no_connection,
        /// SCTP packets for no association (answered with an ABORT where RFC 9260 §8.4 says so).
        sctp_no_association,
        /// COOKIE ECHOs whose cookie this host never gave (dropped).
        sctp_bad_cookie,
        /// COOKIE ECHOs that came after the cookie's life (answered with an ERROR).
        sctp_stale_cookie,
        /// Packets that policies let not go, or that waited for an SA in vain.
        unprotected,
        /// Packets of ESP that came without an SA for them.
        no_sa,
        /// Packets that came to a host that was out of order.
        host_down,
        /// Packets without a route.
        no_route,
        /// Packets over the MTU that may not be fragmented.
        too_big,
        /// Datagrams that were sent in fragments.
        fragmented,
        /// Datagrams of which a fragment never came.
        reassembly_timeout,
        /// Operations on a connection, port or socket that is not there.
        stale_operation,
    }
}

/// Transport figures summed over all connections of a run, open and closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpTotals {
    /// Segments sent.
    pub segments: u64,
    /// Of them, with data sent before.
    pub retransmitted: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Fast retransmissions.
    pub fast_retransmits: u64,
    /// Segments that carry an acknowledgement and nothing else.
    pub pure_acks: u64,
    /// Segments that came behind a gap, whose data has to wait until that is filled.
    pub blocked: u64,
    /// Segments with data that were sent.
    pub data_segments: u64,
    /// The data in them.
    pub data_octets: u64,
    /// The octets of their packets, with the headers of IP and TCP.
    pub data_packet_octets: u64,
}

/// Segments with data that were sent, by connections open and closed.
#[derive(Clone, Copy, Debug, Default)]
struct DataSent {
    segments: u64,
    octets: u64,
    packet_octets: u64,
}

/// SCTP figures summed over all associations of a run, open and closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SctpTotals {
    /// Packets sent.
    pub packets: u64,
    /// DATA chunks sent again.
    pub retransmitted: u64,
    /// Expiries of T3-rtx.
    pub timeouts: u64,
    /// Fast retransmissions.
    pub fast_retransmits: u64,
    /// Packets that carry no data, most of them acknowledgements.
    pub control: u64,
}

/// Why a simulation ended before its time, so that what it has counted means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimFault {
    /// A message for a stream that the association does not have.
    #[error(
        "at {}: host {} sent by a stream that its SCTP association does not have; it has {streams} outbound",
        .at.duration_since(Instant::ZERO), .host.0
    )]
    NoStream {
        /// When.
        at: Instant,
        /// The application's host.
        host: HostId,
        /// Outbound streams of the association, which are numbered from 0.
        streams: u16,
    },
    /// It was [given up](Simulation::end_when).
    #[error("it was given up")]
    Stopped,
}

/// Events between two looks whether a run is to be given up: half a millisecond where they are packets alone, longer where real
/// cryptography is computed. A look at a flag for each of them would cost more than it is worth.
const LOOK: u64 = 1024;

/// A simulation that can run, of a whole network or of a [`HalfNetwork`] of one. Made by a [`SimulationBuilder`].
#[derive(Debug)]
pub struct Simulation<A: Application, O, E: NetworkExtent = WholeNetwork> {
    version: IpVersion,
    addresses: HostAddresses,
    now: Instant,
    epoch: WallTime,
    started: bool,
    queue: EventQueue<SimEvent, E::Mark>,
    extent: E,
    hosts: Vec<SimHost<A::Report>>,
    /// Whose interface a host is that is one.
    interfaces: BTreeMap<HostId, HostId>,
    directions: Vec<LinkDirection>,
    cells: Vec<radio::RadioCell>,
    air: radio::RadioRegistry,
    rng: ModelRng,
    /// Host and job of each processor job under way.
    cpu_jobs: Vec<(HostId, u32)>,
    free_cpu_jobs: Vec<u32>,
    pool: PacketPool,
    apps: Vec<AppSlot<A>>,
    conns: Vec<ConnectionSlot>,
    free_conns: Vec<u32>,
    closed_totals: TcpTotals,
    /// What segments with data carried, of all connections.
    data_sent: DataSent,
    tuples: ConnectionIndex,
    sctp: message::AssociationTable,
    udp_ports: HashMap<u64, (u32, u32)>,
    listeners: HashMap<(HostId, u16), u32>,
    reassembly: DatagramReassembly,
    loopback: VecDeque<PacketRef>,
    seed: Seed,
    /// The databases of hosts that protect packets.
    guards: BTreeMap<HostId, protection::HostProtection>,
    outages: Vec<outage::HostOutage>,
    memory: Option<Box<memory::MemoryTracker>>,
    /// How many hosts are out of order.
    down: u32,
    stats: HostStats,
    fault: Option<SimFault>,
    /// Set to have the run given up.
    stop: Option<Arc<AtomicBool>>,
    packet_hops: u64,
    events: u64,
    spare_ops: Vec<Vec<AppOperation<A::Report>>>,
    work: Vec<WorkRecord>,
    tap: Option<Box<dyn PacketTap>>,
    tap_buf: Vec<u8>,
    observer: O,
}

impl<A: Application, O, E: NetworkExtent> Simulation<A, O, E> {
    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// Packets that were handed from a link to a host, forwarding hosts included.
    pub fn packet_hops(&self) -> u64 {
        self.packet_hops
    }
    /// Events that were handled.
    pub fn event_count(&self) -> u64 {
        self.events
    }
    /// Has the run end soon after this is set, by whichever thread: with [`SimFault::Stopped`], or [`HalfError::Stopped`] where it is of
    /// a half. Until then it changes nothing.
    pub fn end_when(&mut self, stop: Arc<AtomicBool>) {
        self.stop = Some(stop);
    }
    #[inline(always)]
    fn is_given_up(&self) -> bool {
        self.events.is_multiple_of(LOOK)
            && self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
    /// What ended the run before its time, if something did.
    pub fn fault(&self) -> Option<SimFault> {
        self.fault
    }
    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
    /// The observer, to take its findings.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }
    /// Drops of the hosts.
    pub fn host_stats(&self) -> HostStats {
        self.stats
    }
    /// What a link did: from the first named host to the second, and back.
    pub fn link_stats(&self, link: LinkId) -> [LinkStats; 2] {
        let i = link.0 as usize * 2;
        [self.directions[i].stats(), self.directions[i + 1].stats()]
    }
    /// What a host's processor did, if it has one.
    pub fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        self.hosts[host.0 as usize].cpu().map(|c| c.stats)
    }
    /// How many nanoseconds each kind of work took that a host's processor is charged for, over all cores; none without one.
    pub fn cpu_spent(&self, host: HostId) -> impl Iterator<Item = (WorkLabel, u64)> {
        self.hosts[host.0 as usize].cpu().into_iter().flat_map(|cpu| cpu.time_spent())
    }
    /// The applications, in the order of their creation.
    pub fn applications(&self) -> impl Iterator<Item = &A> {
        self.apps.iter().map(|s| &s.app)
    }
    /// The host of the application of this number.
    pub fn host_of(&self, app: u32) -> Option<HostId> {
        self.apps.get(app as usize).map(|s| s.host)
    }
    /// Transport figures over all connections.
    pub fn tcp_totals(&self) -> TcpTotals {
        let DataSent { segments, octets, packet_octets } = self.data_sent;
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
    /// Transport figures over all associations.
    pub fn sctp_totals(&self) -> SctpTotals {
        self.sctp.totals()
    }
    /// Ends the capture and gives the tap back.
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
        let ids: [fn(u32) -> LocalId; 2] = [|n| ConnId::new_opened(n).into(), LocalId::for_accepted];
        for id in ids {
            assert_eq!((slot.transport_index(id(0)), slot.transport_index(id(7))), (NONE, NONE));
            for (i, to) in [(0, 10), (1, 11), (4, 14), (2, 12), (4, 24)] {
                slot.set_conn(id(i), to);
                assert_eq!(slot.transport_index(id(i)), to, "{i}");
            }
            assert_eq!([0, 1, 2, 3, 4, 5].map(|i| slot.transport_index(id(i))), [10, 11, 12, NONE, 24, NONE]);
        }
        assert_eq!(slot.next_accepted(), LocalId::for_accepted(5));
        slot.set_conn(LocalId::for_accepted(4), NONE);
        assert_eq!(slot.next_accepted(), LocalId::for_accepted(5), "a number is not given twice");
    }

    #[test]
    fn what_each_packet_touches_stays_small() {
        assert_eq!(size_of::<AppSlot<Box<dyn std::any::Any>>>(), 64, "a cache line");
        assert!(size_of::<SimHost<()>>() <= 32, "{}", size_of::<SimHost<()>>());
        assert!(size_of::<LinkDirection>() <= 88, "{}", size_of::<LinkDirection>());
        assert!(size_of::<ConnectionSlot>() <= 304, "{}", size_of::<ConnectionSlot>());
        assert!(size_of::<PacketInFlight>() <= 88, "{}", size_of::<PacketInFlight>());
    }
}
