//! The simulation: hosts, links, transports and applications, driven by one event queue.

mod build;
mod memory;
mod message;
mod net;
mod outage;
mod parts;
mod protection;
mod radio;
mod run;
mod stream;

pub use build::{Builder, SimError};
pub use memory::Held;
pub use parts::{AppPart, HostPart, LinkPart, OutagePart, Parts, SocketPart};
pub use radio::CellId;

use crate::addr::{Addresses, HostId, IpVersion};
use crate::app::{Application, LocalId, Op};
use crate::capture::Tap;
use crate::cpu::{Cpu, CpuStats};
use crate::link::{Direction, LinkId, LinkStats};
use crate::packet::{PacketRef, Pool};
use crate::queue::EventQueue;
use crate::reassembly::Reassembly;
use crate::{sctp, tcp};
use std::collections::{BTreeMap, VecDeque};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use usher_core::collections::HashMap;
use usher_core::{Instant, Rng, Seed, WallTime, Work, WorkLabel};

/// The transport settings of an application's connections and associations.
#[derive(Clone, Debug, Default)]
pub struct Transports {
    /// TCP's.
    pub tcp: Arc<tcp::Config>,
    /// SCTP's.
    pub sctp: Arc<sctp::Config>,
}

/// What the event queue holds.
#[derive(Clone, Copy, Debug)]
enum Event {
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

/// How a host finds the next hop.
#[derive(Debug)]
enum Route {
    /// Nowhere to send.
    None,
    /// Everything over the one link.
    Default(u32),
    /// The link direction for each destination (`u32::MAX`: unreachable).
    Table(Box<[u32]>),
}

#[derive(Debug)]
struct Host<R> {
    /// Outgoing directions of its links, in the order of their creation.
    ports: Vec<u32>,
    route: Route,
    ident: u16,
    next_port: u16,
    /// The application that gets its frames.
    frames_to: Option<u32>,
    /// The application that says what becomes of packets of others; without one they go on by themselves.
    transit_to: Option<u32>,
    cpu: Option<Box<Cpu<R>>>,
    /// It has failed and is not back.
    down: bool,
}

/// In this order and at the start of a cache line, so that a delivery touches one line of it.
#[repr(C, align(64))]
#[derive(Debug)]
struct AppSlot<A> {
    app: A,
    /// When its timer is due, and the time of the one valid event for it in the event queue, which may be
    /// earlier; far future for none.
    deadline: Instant,
    armed: Instant,
    host: HostId,
    /// Its host has a processor.
    queues: bool,
    transports: Arc<Transports>,
    outgoing: ConnTable,
    incoming: ConnTable,
    /// Where each socket is bound.
    sockets: Vec<Socket>,
    /// Bytes per second that it reads of each connection; `None` reads all at once.
    read_rate: Option<NonZeroU64>,
    /// Bytes that it then reads at a time, at most; `None` a segment.
    read_size: Option<NonZeroU32>,
}

const NONE: u32 = u32::MAX;
/// In a [`ConnTable`], from here on the numbers are those of associations.
const ASSOC: u32 = 1 << 31;

/// A host's UDP port as one word, which hashes faster than two.
fn udp_key(host: HostId, port: u16) -> u64 {
    u64::from(host.0) << 16 | u64::from(port)
}

/// Where an application's connections are; most have one, which needs no second place in memory.
#[derive(Debug)]
struct ConnTable {
    first: u32,
    more: Vec<u32>,
    len: u32,
}

impl Default for ConnTable {
    fn default() -> Self {
        Self { first: NONE, more: Vec::new(), len: 0 }
    }
}

impl ConnTable {
    fn get(&self, i: u32) -> u32 {
        match i {
            0 => self.first,
            _ => self.more.get(i as usize - 1).copied().unwrap_or(NONE),
        }
    }
    fn set(&mut self, i: u32, to: u32) {
        self.len = self.len.max(i + 1);
        if i == 0 {
            self.first = to;
            return;
        }
        let i = i as usize - 1;
        if i >= self.more.len() {
            self.more.resize(i + 1, NONE);
        }
        self.more[i] = to;
    }
}

/// A UDP socket's address and port; port 0 is not bound.
#[derive(Clone, Copy, Debug)]
struct Socket {
    at: HostId,
    port: u16,
}

impl<A> AppSlot<A> {
    fn bind(&mut self, socket: u32, to: Socket) {
        let socket = socket as usize;
        if self.sockets.len() <= socket {
            self.sockets.resize(socket + 1, Socket { at: self.host, port: 0 });
        }
        self.sockets[socket] = to;
    }
    fn place(&self, id: LocalId) -> u32 {
        let table = if id.is_accepted() { &self.incoming } else { &self.outgoing };
        table.get(id.n())
    }
    /// Where its TCP connection of this id is.
    #[inline]
    fn conn(&self, id: LocalId) -> Option<u32> {
        Some(self.place(id)).filter(|c| *c < ASSOC)
    }
    /// Where its SCTP association of this id is.
    fn assoc(&self, id: LocalId) -> Option<u32> {
        Some(self.place(id)).filter(|c| (ASSOC..NONE).contains(c)).map(|c| c - ASSOC)
    }
    fn set_conn(&mut self, id: LocalId, to: u32) {
        let table = if id.is_accepted() { &mut self.incoming } else { &mut self.outgoing };
        table.set(id.n(), to);
    }
}

#[derive(Debug)]
struct Conn {
    tcp: tcp::Connection,
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
struct Assoc {
    sctp: Box<sctp::Association>,
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

/// Why a simulation ended before its time: an application did what cannot be done, and what would follow means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// A message for a stream that the association does not have.
    #[error(
        "at {}: host {} sent by a stream that its SCTP association does not have; it has {streams} outbound",
        .at.since(Instant::ZERO), .host.0
    )]
    NoStream {
        /// When.
        at: Instant,
        /// The application's host.
        host: HostId,
        /// Outbound streams of the association, which are numbered from 0.
        streams: u16,
    },
}

/// A simulation that can run. Made by a [`Builder`].
#[derive(Debug)]
pub struct Simulation<A: Application, O> {
    version: IpVersion,
    addresses: Addresses,
    now: Instant,
    epoch: WallTime,
    started: bool,
    queue: EventQueue<Event>,
    hosts: Vec<Host<A::Report>>,
    /// Whose interface a host is that is one.
    interfaces: BTreeMap<HostId, HostId>,
    directions: Vec<Direction>,
    cells: Vec<radio::Radio>,
    air: radio::Air,
    rng: Rng,
    /// Host and job of each processor job under way.
    cpu_jobs: Vec<(HostId, u32)>,
    free_cpu_jobs: Vec<u32>,
    pool: Pool,
    apps: Vec<AppSlot<A>>,
    conns: Vec<Conn>,
    free_conns: Vec<u32>,
    closed_totals: TcpTotals,
    /// What segments with data carried, of all connections.
    data_sent: DataSent,
    tuples: HashMap<FourTuple, u32>,
    sctp: message::Associations,
    udp_ports: HashMap<u64, (u32, u32)>,
    listeners: HashMap<(HostId, u16), u32>,
    reassembly: Reassembly,
    loopback: VecDeque<PacketRef>,
    seed: Seed,
    /// The databases of hosts that protect packets.
    guards: BTreeMap<HostId, protection::Guard>,
    outages: Vec<outage::Outage>,
    memory: Option<Box<memory::Memory>>,
    /// How many hosts are out of order.
    down: u32,
    stats: HostStats,
    fault: Option<Fault>,
    packet_hops: u64,
    events: u64,
    spare_ops: Vec<Vec<Op<A::Report>>>,
    work: Vec<Work>,
    tap: Option<Box<dyn Tap>>,
    tap_buf: Vec<u8>,
    observer: O,
}

impl<A: Application, O> Simulation<A, O> {
    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }
    /// Packets that were handed from a link to a host, forwarding hosts included.
    pub fn packet_hops(&self) -> u64 {
        self.packet_hops
    }
    /// Events that were handled.
    pub fn events(&self) -> u64 {
        self.events
    }
    /// What ended the run before its time, if something did.
    pub fn fault(&self) -> Option<Fault> {
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
        [self.directions[i].stats, self.directions[i + 1].stats]
    }
    /// What a host's processor did, if it has one.
    pub fn cpu_stats(&self, host: HostId) -> Option<CpuStats> {
        self.hosts[host.0 as usize].cpu.as_ref().map(|c| c.stats)
    }
    /// How many nanoseconds each kind of work took that a host's processor is charged for, over all cores; none without one.
    pub fn cpu_spent(&self, host: HostId) -> impl Iterator<Item = (WorkLabel, u64)> {
        self.hosts[host.0 as usize].cpu.iter().flat_map(|cpu| cpu.spent())
    }
    /// The applications, in the order of their creation.
    pub fn apps(&self) -> impl Iterator<Item = &A> {
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
            totals.add(&c.tcp);
        }
        totals
    }
    /// Transport figures over all associations.
    pub fn sctp_totals(&self) -> SctpTotals {
        self.sctp.totals()
    }
    /// Ends the capture and gives the tap back.
    pub fn take_tap(&mut self) -> Option<Box<dyn Tap>> {
        self.tap.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_found_by_their_numbers_whatever_is_missing_between_them() {
        let mut table = ConnTable::default();
        assert_eq!((table.get(0), table.get(7), table.len), (NONE, NONE, 0));
        for (i, to, len) in [(0, 10, 1), (1, 11, 2), (4, 14, 5), (2, 12, 5), (4, 24, 5)] {
            table.set(i, to);
            assert_eq!((table.get(i), table.len), (to, len), "{i}");
        }
        assert_eq!([0, 1, 2, 3, 4, 5].map(|i| table.get(i)), [10, 11, 12, NONE, 24, NONE]);
    }
}
