//! Traffic between hosts.

use super::network::MachineNetwork;
use crate::impair::{Channel, ChannelConfig, LossModel, PacketOutcome};
use crate::machine::{
    AssocId, CloseReason, ConnId, ConnOrigin, DatagramPath, LinkLayerPortId, ListenerId,
    MessageAssociationOp, SocketId, StreamOp, Transmit,
};
use crate::rng::Seed;
use crate::time::{Duration, Instant};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The first port for sockets and connections without one.
const EPHEMERAL: u16 = 49_152;

/// A network operation that a machine requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransmitRecord {
    /// The time.
    pub sent_at: Instant,
    /// The number of the host.
    pub from: usize,
    /// The operation.
    pub transmit: Transmit,
    /// Its octets.
    pub bytes: Vec<u8>,
}

/// An arrival at a host.
pub(super) enum ArrivalKind {
    Datagram(DatagramPath),
    Frame(LinkLayerPortId),
    Up(ConnId),
    Data(ConnId),
    Message(AssocId, u16, u32),
    Closed(ConnId, CloseReason),
    /// An action on the whole network.
    Action(Box<dyn FnOnce(&mut MachineNetwork)>),
}

pub(super) struct PendingArrival {
    pub(super) host: usize,
    pub(super) kind: ArrivalKind,
    pub(super) bytes: Vec<u8>,
}

/// A host and its id of a connection or association.
pub(super) type HostConnectionId = (usize, ConnId);

/// One end's view of a connection or association.
pub(super) struct SimulatedConnState {
    /// The other end; `None`: it will refuse.
    pub(super) other: Option<HostConnectionId>,
    pub(super) local: IpAddr,
    pub(super) remote: SocketAddr,
    /// The listener, at the accepting end.
    pub(super) listener: Option<ListenerId>,
    /// The number of streams, of an association.
    pub(super) streams: Option<u16>,
    /// The time when it is up at this end.
    first: Instant,
    /// The time when the last in-order data of each stream arrives here.
    last: BTreeMap<u16, Instant>,
    /// The time when the last data of any kind arrives here.
    latest: Instant,
}

/// Returns the additional delay of each copy.
type TransmitInterceptor = Box<dyn FnMut(usize, &mut TransmitRecord) -> Vec<Duration>>;

/// The path from one host to another, with the addresses of both ends unless it is a segment.
#[derive(Clone, Copy)]
struct HostRoute {
    from: usize,
    to: usize,
    ends: Option<[IpAddr; 2]>,
}

/// One direction between two hosts, or of an address's link: a channel with loss, and one for retransmitted data.
struct LinkDirectionChannels {
    lossy: Channel,
    reliable: Channel,
}

pub(super) struct SimulatedNetworkState {
    pub(super) now: Instant,
    queue: BTreeMap<(Instant, u64), PendingArrival>,
    sequence: u64,
    channel: ChannelConfig,
    pipes: BTreeMap<(usize, usize), LinkDirectionChannels>,
    /// The links of addresses: from each, and to it.
    links: BTreeMap<IpAddr, [LinkDirectionChannels; 2]>,
    pub(super) down: BTreeSet<IpAddr>,
    pub(super) seed: u16,
    /// The delay until lost stream data is sent again.
    pub(super) resent: Option<Duration>,
    severed: BTreeSet<(usize, usize)>,
    /// Arrivals that wait for a severed path.
    severed_arrivals: Vec<(HostRoute, PendingArrival)>,
    pub(super) addresses: Vec<Vec<IpAddr>>,
    pub(super) silent: Vec<bool>,
    pub(super) refusing: Vec<bool>,
    pub(super) certificates: Vec<Option<&'static [u8]>>,
    pub(super) bound: Vec<(SocketAddr, usize, SocketId)>,
    pub(super) listeners: BTreeMap<SocketAddr, (usize, ListenerId)>,
    pub(super) segments: Vec<Vec<(usize, LinkLayerPortId)>>,
    pub(super) ends: BTreeMap<HostConnectionId, SimulatedConnState>,
    opened_connections: u16,
    pub(super) sent: Vec<TransmitRecord>,
    pub(super) work: BTreeMap<&'static str, u32>,
    pub(super) meddler: TransmitInterceptor,
    pub(super) segment: usize,
    pub(super) granted: u16,
}

impl SimulatedNetworkState {
    pub(super) fn new(channel: ChannelConfig) -> Self {
        Self {
            now: Instant::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            channel,
            pipes: BTreeMap::new(),
            links: BTreeMap::new(),
            down: BTreeSet::new(),
            seed: 0,
            resent: None,
            severed: BTreeSet::new(),
            severed_arrivals: Vec::new(),
            addresses: Vec::new(),
            silent: Vec::new(),
            refusing: Vec::new(),
            certificates: Vec::new(),
            bound: Vec::new(),
            listeners: BTreeMap::new(),
            segments: Vec::new(),
            ends: BTreeMap::new(),
            opened_connections: 0,
            sent: Vec::new(),
            work: BTreeMap::new(),
            meddler: Box::new(|_, _| [Duration::ZERO].into()),
            segment: usize::MAX,
            granted: u16::MAX,
        }
    }
    pub(super) fn push_arrival(&mut self, at: Instant, host: usize, what: ArrivalKind, bytes: Vec<u8>) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), PendingArrival { host, kind: what, bytes });
    }
    pub(super) fn next_arrival_time(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }
    pub(super) fn pop_arrival(&mut self) -> Option<PendingArrival> {
        self.queue.pop_first().map(|(_, arrival)| arrival)
    }
    /// Creates channels with their own random streams, labelled by two numbers.
    fn create_channels(&self, from: u64, to: u64, config: &ChannelConfig) -> LinkDirectionChannels {
        let chance = |label| Seed::new((u64::from(self.seed) << 48) | from).derive_rng(label, to);
        let reliable = ChannelConfig {
            loss: LossModel::None,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            ..config.clone()
        };
        let lossy = Channel::new(config.clone(), chance("lossy"));
        LinkDirectionChannels { lossy, reliable: Channel::new(reliable, chance("reliable")) }
    }
    pub(super) fn link_hosts(&mut self, from: usize, to: usize, config: &ChannelConfig) {
        let pipe = self.create_channels(from as u64, to as u64, config);
        self.pipes.insert((from, to), pipe);
    }
    pub(super) fn link_address(&mut self, address: IpAddr, config: &ChannelConfig) {
        let pipes = [0, 1].map(|way| self.create_channels((1 << 32) | self.links.len() as u64, way, config));
        self.links.insert(address, pipes);
    }
    fn channels_for_route(&mut self, way: HostRoute) -> &mut LinkDirectionChannels {
        let HostRoute { from, to, ends } = way;
        let own = ends.iter().flatten().enumerate().find(|(_, address)| self.links.contains_key(*address));
        if let Some((direction, address)) = own {
            return &mut self.links.get_mut(address).expect("just seen")[direction];
        }
        if !self.pipes.contains_key(&(from, to)) {
            self.link_hosts(from, to, &self.channel.clone());
        }
        self.pipes.get_mut(&(from, to)).expect("just linked")
    }
    /// True if an arrival comes over a link that is down.
    pub(super) fn arrival_link_is_down(&self, host: usize, what: &ArrivalKind) -> bool {
        match what {
            ArrivalKind::Datagram(path) => self.either_address_is_down(path.local.ip(), path.remote.ip()),
            ArrivalKind::Up(id)
            | ArrivalKind::Data(id)
            | ArrivalKind::Message(id, ..)
            | ArrivalKind::Closed(id, _) => self
                .ends
                .get(&(host, *id))
                .is_some_and(|conn| self.either_address_is_down(conn.local, conn.remote.ip())),
            ArrivalKind::Frame(_) | ArrivalKind::Action(_) => false,
        }
    }
    fn either_address_is_down(&self, one: IpAddr, other: IpAddr) -> bool {
        self.down.contains(&one) || self.down.contains(&other)
    }
    fn is_severed(&self, a: usize, b: usize) -> bool {
        self.severed.contains(&(a.min(b), a.max(b)))
    }
    pub(super) fn set_severed(&mut self, a: usize, b: usize, severed: bool) {
        let way = (a.min(b), a.max(b));
        if severed {
            self.severed.insert(way);
            return;
        }
        self.severed.remove(&way);
        let held = core::mem::take(&mut self.severed_arrivals);
        for (way, arrival) in held {
            match self.is_severed(way.from, way.to) {
                true => self.severed_arrivals.push((way, arrival)),
                false => {
                    let at = self.send_reliable_data(way, arrival.bytes.len());
                    self.push_arrival(at, arrival.host, arrival.kind, arrival.bytes);
                }
            }
        }
    }
    pub(super) fn drop_in_flight(&mut self) {
        self.severed_arrivals.clear();
        self.queue.retain(|_, arrival| matches!(arrival.kind, ArrivalKind::Action(_)));
    }
    pub(super) fn reset_connections(&mut self, host: usize) {
        let cut = |(end, conn): (&HostConnectionId, &SimulatedConnState)| {
            end.0 == host || conn.other.is_some_and(|o| o.0 == host)
        };
        let ends: Vec<HostConnectionId> =
            self.ends.iter().filter(|one| cut(*one)).map(|(end, _)| *end).collect();
        for (host, id) in ends {
            self.push_arrival(self.now, host, ArrivalKind::Closed(id, CloseReason::Reset), Vec::new());
        }
    }

    /// Sends data that may be lost.
    fn send_over_lossy_channel(
        &mut self,
        way: HostRoute,
        delays: &[Duration],
        bytes: &[u8],
        what: impl Fn() -> ArrivalKind,
    ) {
        let down = way.ends.is_some_and(|[from, to]| self.either_address_is_down(from, to));
        if down || self.is_severed(way.from, way.to) {
            return;
        }
        let now = self.now;
        let fate = self.channels_for_route(way).lossy.offer_packet(now, bytes.len() as u32);
        let PacketOutcome::Delivered { arrives, corrupted: false, duplicate_arrives: again, .. } = fate
        else {
            return;
        };
        for at in [Some(arrives), again].into_iter().flatten() {
            delays.iter().for_each(|delay| self.push_arrival(at + *delay, way.to, what(), bytes.to_vec()));
        }
    }
    /// Returns the arrival time of stream or association data sent now.
    fn send_reliable_data(&mut self, way: HostRoute, octets: usize) -> Instant {
        let (now, resent) = (self.now, self.resent);
        let pipe = self.channels_for_route(way);
        let PacketOutcome::Delivered { mut arrives, .. } = pipe.reliable.offer_packet(now, octets as u32)
        else {
            panic!("a queue that is too short for a stream");
        };
        while let Some(after) = resent
            && !matches!(
                pipe.lossy.offer_packet(now, octets as u32),
                PacketOutcome::Delivered { corrupted: false, .. }
            )
        {
            arrives += after;
        }
        arrives
    }
    /// Tells the other end that its connection is up, before anything else.
    pub(super) fn announce_connection(&mut self, end: HostConnectionId) {
        let Some((way, there)) = self.route_from_connection_end(end) else { return };
        let at = self.send_reliable_data(way, 0);
        if let Some(conn) = self.ends.get_mut(&there) {
            (conn.first, conn.latest) = (at, at);
        }
        self.schedule_delivery(way, at, ArrivalKind::Up(there.1), Vec::new());
    }
    fn schedule_delivery(&mut self, way: HostRoute, at: Instant, what: ArrivalKind, bytes: Vec<u8>) {
        match self.is_severed(way.from, way.to) {
            true => self.severed_arrivals.push((way, PendingArrival { host: way.to, kind: what, bytes })),
            false => self.push_arrival(at, way.to, what, bytes),
        }
    }
    /// Returns the path from one end of a connection to the other, and that end.
    fn route_from_connection_end(&self, end: HostConnectionId) -> Option<(HostRoute, HostConnectionId)> {
        let conn = self.ends.get(&end)?;
        let other = conn.other?;
        Some((HostRoute { from: end.0, to: other.0, ends: Some([conn.local, conn.remote.ip()]) }, other))
    }

    /// Carries out a network operation of a host.
    pub(super) fn send_transmit(&mut self, from: usize, transmit: Transmit, bytes: Vec<u8>) {
        let mut sent = TransmitRecord { sent_at: self.now, from, transmit, bytes };
        self.sent.push(sent.clone());
        let delays = (self.meddler)(self.sent.len() - 1, &mut sent);
        if self.silent[from] {
            return;
        }
        match transmit {
            Transmit::Datagram { path } => self.send_datagram(from, path, &delays, &sent.bytes),
            Transmit::Frame { port } => self.send_frame(from, port, &delays, &sent.bytes),
            Transmit::Stream { conn, op } => match op {
                StreamOp::Connect { local, remote } => {
                    self.open_connection((from, conn), local, remote, None)
                }
                StreamOp::Data => {
                    self.send_data((from, conn), Some(0), &delays, sent.bytes, ArrivalKind::Data)
                }
                StreamOp::Credit(_) => {}
                StreamOp::Shutdown => self.close_connection((from, conn), CloseReason::Closed),
                StreamOp::Abort => self.close_connection((from, conn), CloseReason::Reset),
            },
            Transmit::Message { assoc, op } => match op {
                MessageAssociationOp::Connect { local, remote, streams } => {
                    self.open_connection((from, assoc), local, remote, Some(streams.min(self.granted)));
                }
                MessageAssociationOp::Data { stream, ppid, unordered } => {
                    let order = (!unordered).then_some(stream);
                    let what = |assoc| ArrivalKind::Message(assoc, stream, ppid);
                    self.send_data((from, assoc), order, &delays, sent.bytes, what);
                }
                MessageAssociationOp::Shutdown => self.close_connection((from, assoc), CloseReason::Closed),
                MessageAssociationOp::Abort => self.close_connection((from, assoc), CloseReason::Reset),
            },
        }
    }
    fn send_datagram(&mut self, from: usize, path: DatagramPath, delays: &[Duration], bytes: &[u8]) {
        let DatagramPath { socket, local, remote } = path;
        let chosen = (!local.ip().is_unspecified()).then_some(local.ip());
        let ours = |(_, host, bound): &&(SocketAddr, usize, SocketId)| (*host, *bound) == (from, socket);
        let bound = self.bound.iter().find(ours).map(|(address, ..)| *address);
        let port = match (local.port(), bound) {
            (0, Some(bound)) => bound.port(),
            (0, None) => EPHEMERAL + self.bound.len() as u16,
            (port, _) => port,
        };
        let ip = chosen.or(bound.map(|bound| bound.ip())).unwrap_or(self.addresses[from][0]);
        let source = SocketAddr::new(ip, port);
        if !self.bound.contains(&(source, from, socket)) {
            self.bound.push((source, from, socket));
        }
        let there = |(address, host, _): &&(SocketAddr, usize, SocketId)| *address == remote && *host != from;
        let there: Vec<_> = self.bound.iter().filter(there).copied().collect();
        for (local, to, socket) in there {
            let path = DatagramPath { socket, local, remote: source };
            let way = HostRoute { from, to, ends: Some([source.ip(), local.ip()]) };
            self.send_over_lossy_channel(way, delays, bytes, || ArrivalKind::Datagram(path));
        }
    }
    fn send_frame(&mut self, from: usize, port: LinkLayerPortId, delays: &[Duration], bytes: &[u8]) {
        let on = self.segments.iter().filter(|segment| segment.contains(&(from, port)));
        let others: Vec<_> = on.flatten().copied().filter(|other| *other != (from, port)).collect();
        for (to, port) in others {
            self.send_over_lossy_channel(HostRoute { from, to, ends: None }, delays, bytes, || {
                ArrivalKind::Frame(port)
            });
        }
    }
    fn open_connection(
        &mut self,
        end: HostConnectionId,
        local: Option<IpAddr>,
        remote: SocketAddr,
        streams: Option<u16>,
    ) {
        let from = end.0;
        let source =
            SocketAddr::new(local.unwrap_or(self.addresses[from][0]), EPHEMERAL + self.opened_connections);
        let conn = |other, local, remote, listener| SimulatedConnState {
            other,
            local,
            remote,
            listener,
            streams,
            first: Instant::ZERO,
            last: BTreeMap::new(),
            latest: Instant::ZERO,
        };
        let to = self.listeners.get(&remote).copied();
        let Some((to, listener)) = to.filter(|(to, _)| !self.refusing[*to]) else {
            self.ends.insert(end, conn(None, source.ip(), remote, None));
            let to = to.map_or(from, |(to, _)| to);
            let (ours, theirs) = (source.ip(), remote.ip());
            let there = self.send_reliable_data(HostRoute { from, to, ends: Some([ours, theirs]) }, 0);
            let back =
                self.send_reliable_data(HostRoute { from: to, to: from, ends: Some([theirs, ours]) }, 0);
            let back = there + back.duration_since(self.now);
            return self.push_arrival(
                back,
                from,
                ArrivalKind::Closed(end.1, CloseReason::Refused),
                Vec::new(),
            );
        };
        let theirs =
            ConnId { owner: listener.owner, side: ConnOrigin::Accepted, n: self.opened_connections.into() };
        self.opened_connections += 1;
        self.ends.insert(end, conn(Some((to, theirs)), source.ip(), remote, None));
        self.ends.insert((to, theirs), conn(Some(end), remote.ip(), source, Some(listener)));
        self.announce_connection(end);
    }
    /// `order`: the stream whose order applies. A stream connection is a single stream.
    fn send_data(
        &mut self,
        end: HostConnectionId,
        order: Option<u16>,
        delays: &[Duration],
        bytes: Vec<u8>,
        what: impl Fn(ConnId) -> ArrivalKind,
    ) {
        let (Some((way, other)), Some(delay)) = (self.route_from_connection_end(end), delays.first()) else {
            return;
        };
        let mut at = self.send_reliable_data(way, bytes.len()) + *delay;
        if let Some(there) = self.ends.get_mut(&other) {
            at = at.max(there.first);
            if let Some(stream) = order {
                let last = there.last.entry(stream).or_default();
                at = at.max(*last);
                *last = at;
            }
            there.latest = at.max(there.latest);
        }
        self.schedule_delivery(way, at, what(other.1), bytes);
    }
    /// Closes this end at once. The other end learns it after all data sent to it.
    fn close_connection(&mut self, end: HostConnectionId, reason: CloseReason) {
        let way = self.route_from_connection_end(end);
        self.ends.remove(&end);
        let Some((way, other)) = way else { return };
        let latest = self.ends.get(&other).map_or(self.now, |there| there.latest);
        let at = self.send_reliable_data(way, 0).max(latest);
        self.schedule_delivery(way, at, ArrivalKind::Closed(other.1, reason), Vec::new());
    }
}
