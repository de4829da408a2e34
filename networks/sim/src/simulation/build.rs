//! The builder of simulations.

use super::message::SctpAssociationTable;
use super::outage::HostOutage;
use super::radio::{RadioCell, StationLinkRegistry};
use super::{
    AppSlot, ConnectionIndex, HostEgressLinks, HostStats, NONE, SentDataTotals, SimHost, Simulation,
    SimulationScope, TcpTotals, TransportConfig, UdpSocketBinding, WholeNetwork, udp_key,
};
use crate::addr::{HostAddresses, HostId, IpVersion, MAX_HOSTS};
use crate::app::Application;
use crate::capture::PacketTap;
use crate::cpu::{CpuConfig, HostCpu};
use crate::link::{LinkConfig, LinkDirection, LinkId};
use crate::packet::PacketPool;
use crate::queue::EventQueue;
use crate::radio::motion::Trajectory;
use crate::radio::{wifi, wimax};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use usher_core::collections::{HashMap, SeededHashState};
use usher_core::impair::{ChannelConfig, ChannelProperties};
use usher_core::{Instant, Seed, TransportProtocol, WallTime};

/// Why a simulation cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SimError {
    /// More hosts than there are addresses.
    #[error("a simulation holds at most {MAX_HOSTS} hosts")]
    TooManyHosts,
    /// A UDP or TCP port of a host has an owner already.
    #[error("port {port} of host {host} is already in use")]
    PortTaken {
        /// The host's number.
        host: u32,
        /// The port.
        port: u16,
    },
    /// An application asks for an address that is not its host's.
    #[error("host {at} is not an interface of host {host}")]
    NoInterface {
        /// The application's host.
        host: u32,
        /// The host that has the address.
        at: u32,
    },
    /// A host cannot have an address.
    #[error(
        "host {host} cannot have the address {address}: another host has it, or the network uses the other IP version"
    )]
    Address {
        /// The host's number.
        host: u32,
        /// The address.
        address: IpAddr,
    },
    /// The settings of a cell are invalid.
    #[error("cell: {0}")]
    Cell(#[from] wimax::ConfigError),
    /// The settings of a basic service set are invalid.
    #[error("basic service set: {0}")]
    Bss(#[from] wifi::ConfigError),
}

/// Collects hosts, links and applications.
#[derive(Debug)]
pub struct SimulationBuilder<A: Application> {
    pub(super) addresses: HostAddresses,
    pub(super) seed: Seed,
    pub(super) hosts: Vec<SimHost<A::Report>>,
    pub(super) interfaces: BTreeMap<HostId, HostId>,
    pub(super) directions: Vec<LinkDirection>,
    pub(super) cells: Vec<RadioCell>,
    pub(super) air: StationLinkRegistry,
    pub(super) trajectories: BTreeMap<HostId, Trajectory>,
    pub(super) apps: Vec<AppSlot<A>>,
    udp_ports: HashMap<u64, (u32, u32)>,
    pub(super) listeners: HashMap<(HostId, u16), u32>,
    transports: Arc<TransportConfig>,
    pub(super) sctp_listeners: HashMap<(HostId, u16), u32>,
    pub(super) outages: Vec<HostOutage>,
    pub(super) follow_memory: bool,
    pub(super) epoch: WallTime,
    pub(super) multihomed: HashMap<HostId, Vec<u32>>,
    channels: Vec<Arc<ChannelProperties>>,
}

impl<A: Application> SimulationBuilder<A> {
    /// Creates an empty simulation; all random streams derive from `seed`.
    pub fn new(version: IpVersion, seed: Seed) -> Self {
        Self {
            addresses: HostAddresses::new(version),
            seed,
            hosts: Vec::new(),
            interfaces: BTreeMap::new(),
            directions: Vec::new(),
            cells: Vec::new(),
            air: StationLinkRegistry::default(),
            trajectories: BTreeMap::new(),
            apps: Vec::new(),
            udp_ports: HashMap::with_hasher(SeededHashState::with_seed(0)),
            listeners: HashMap::with_hasher(SeededHashState::with_seed(0)),
            transports: Arc::default(),
            sctp_listeners: HashMap::with_hasher(SeededHashState::with_seed(0)),
            outages: Vec::new(),
            follow_memory: false,
            epoch: WallTime::UNIX_EPOCH,
            multihomed: HashMap::with_hasher(SeededHashState::with_seed(0)),
            channels: Vec::new(),
        }
    }

    /// Adds a host. Without a processor its work takes no time.
    ///
    /// # Errors
    /// [`SimError::TooManyHosts`].
    pub fn add_host(&mut self, cpu: Option<CpuConfig>) -> Result<HostId, SimError> {
        let id = self.hosts.len() as u32;
        if id >= MAX_HOSTS {
            return Err(SimError::TooManyHosts);
        }
        self.hosts.push(SimHost {
            ports: HostEgressLinks::None,
            ident: 0,
            next_port: 49_152,
            down: false,
            extras: None,
        });
        if let Some(cpu) = cpu {
            let cpu = HostCpu::new(cpu, self.seed.derive_rng("cpu", u64::from(id)));
            self.hosts[id as usize].extras_mut().cpu = Some(Box::new(cpu));
        }
        Ok(HostId(id))
    }

    /// Assigns a host an address in place of that of its number. Captures and [`HostAddresses`] show it.
    ///
    /// # Errors
    /// [`SimError::Address`]: another host has it, or it is of the other IP version.
    pub fn set_address(&mut self, host: HostId, address: IpAddr) -> Result<(), SimError> {
        match self.addresses.assign_address(host, address) {
            true => Ok(()),
            false => Err(SimError::Address { host: host.0, address }),
        }
    }

    /// Returns the addresses of all hosts.
    pub const fn addresses(&self) -> &HostAddresses {
        &self.addresses
    }

    /// Adds an interface: a further address of a host, to which links attach as to a host. The applications of
    /// `owner` receive its packets, and the owner's processor is charged. An owner may have links of its own. It
    /// forwards nothing between them and its interfaces, and its interfaces fail with it.
    ///
    /// # Errors
    /// [`SimError::TooManyHosts`].
    pub fn add_interface(&mut self, owner: HostId) -> Result<HostId, SimError> {
        let interface = self.add_host(None)?;
        let owner = self.interfaces.get(&owner).copied().unwrap_or(owner);
        self.interfaces.insert(interface, owner);
        Ok(interface)
    }

    /// Places a host or interface; the default is a fixed position at the origin. Call it before you add the cell of
    /// the station. Base stations and access points stay where they start.
    pub fn set_host_trajectory(&mut self, host: HostId, trajectory: Trajectory) {
        if trajectory == Trajectory::default() {
            self.trajectories.remove(&host);
        } else {
            self.trajectories.insert(host, trajectory);
        }
    }

    /// Checks that `at` is an address of the application's host.
    fn address_of(&self, app: u32, at: HostId) -> Result<(), SimError> {
        let host = self.apps[app as usize].host;
        if at == host || self.interfaces.get(&at) == Some(&host) {
            return Ok(());
        }
        Err(SimError::NoInterface { host: host.0, at: at.0 })
    }

    /// Links two hosts; the link becomes the next port of each.
    pub fn add_link(&mut self, a: HostId, b: HostId, config: &LinkConfig) -> LinkId {
        let link = self.directions.len() as u32 / 2;
        for (from, to, channel, n) in [(a, b, &config.up, 0), (b, a, &config.down, 1)] {
            let channel = self.intern_channel_properties(channel);
            let index = self.directions.len() as u32;
            let to_port = self.hosts[to.0 as usize].ports.as_slice().len() as u32 - u32::from(n == 1);
            self.hosts[from.0 as usize].ports.push(index);
            let rng = self.seed.derive_rng("link", u64::from(index));
            let (mtu, framing) = (config.mtu, config.framing);
            self.directions.push(LinkDirection::new(from, to, to_port, channel, mtu, framing, rng));
        }
        LinkId(link)
    }

    /// Returns one shared copy of properties that many links have.
    fn intern_channel_properties(&mut self, channel: &ChannelConfig) -> Arc<ChannelProperties> {
        match self.channels.iter().rev().take(8).find(|c| c.config() == channel) {
            Some(known) => known.clone(),
            None => {
                let new: Arc<ChannelProperties> = channel.clone().into();
                self.channels.push(new.clone());
                new
            }
        }
    }

    /// Adds an application to a host, with the settings of its connections and associations.
    pub fn add_application(&mut self, host: HostId, app: A, transports: Option<Arc<TransportConfig>>) -> u32 {
        self.apps.push(AppSlot {
            app,
            host,
            transports: transports.unwrap_or_else(|| self.transports.clone()),
            queues: self.hosts[host.0 as usize].cpu().is_some(),
            first: NONE,
            extras: None,
            deadline: Instant::FAR_FUTURE,
            armed: Instant::FAR_FUTURE,
        });
        (self.apps.len() - 1) as u32
    }

    /// Binds a socket of an application to a UDP port of its host.
    ///
    /// # Errors
    /// [`SimError::PortTaken`].
    pub fn bind_udp(&mut self, app: u32, socket: u32, port: u16) -> Result<(), SimError> {
        self.bind_udp_at(app, socket, self.apps[app as usize].host, port)
    }

    /// As [`Self::bind_udp`], at the host's own address or that of one of its interfaces. The socket sends from that
    /// address and by its routes.
    ///
    /// # Errors
    /// [`SimError::PortTaken`], [`SimError::NoInterface`].
    pub fn bind_udp_at(&mut self, app: u32, socket: u32, at: HostId, port: u16) -> Result<(), SimError> {
        self.address_of(app, at)?;
        if self.udp_ports.insert(udp_key(at, port), (app, socket)).is_some() {
            return Err(SimError::PortTaken { host: at.0, port });
        }
        self.apps[app as usize].bind_socket(socket, UdpSocketBinding { address: at, port });
        Ok(())
    }

    /// Makes an application accept TCP connections on a port of its host.
    ///
    /// # Errors
    /// [`SimError::PortTaken`].
    pub fn listen_tcp(&mut self, app: u32, port: u16) -> Result<(), SimError> {
        self.listen_at(app, self.apps[app as usize].host, port)
    }

    /// As [`Self::listen_tcp`], at the host's own address or that of one of its interfaces.
    ///
    /// # Errors
    /// [`SimError::PortTaken`], [`SimError::NoInterface`].
    pub fn listen_at(&mut self, app: u32, at: HostId, port: u16) -> Result<(), SimError> {
        self.address_of(app, at)?;
        match self.listeners.insert((at, port), app) {
            None => Ok(()),
            Some(_) => Err(SimError::PortTaken { host: at.0, port }),
        }
    }

    /// Makes an application accept SCTP associations on a port of its host.
    ///
    /// # Errors
    /// [`SimError::PortTaken`].
    pub fn listen_sctp(&mut self, app: u32, port: u16) -> Result<(), SimError> {
        self.listen_sctp_at(app, self.apps[app as usize].host, port)
    }

    /// As [`Self::listen_sctp`], at the host's own address or that of one of its interfaces.
    ///
    /// # Errors
    /// [`SimError::PortTaken`], [`SimError::NoInterface`].
    pub fn listen_sctp_at(&mut self, app: u32, at: HostId, port: u16) -> Result<(), SimError> {
        self.address_of(app, at)?;
        match self.sctp_listeners.insert((at, port), app) {
            None => Ok(()),
            Some(_) => Err(SimError::PortTaken { host: at.0, port }),
        }
    }

    /// Opens a port at an address of the application's host: a UDP socket, or a listener for connections or
    /// associations. TLS is up to the application.
    ///
    /// # Errors
    /// [`SimError::PortTaken`], [`SimError::NoInterface`].
    pub fn open_port_at(
        &mut self,
        app: u32,
        protocol: TransportProtocol,
        socket: u32,
        (at, port): (HostId, u16),
    ) -> Result<(), SimError> {
        match protocol {
            TransportProtocol::Udp => self.bind_udp_at(app, socket, at, port),
            TransportProtocol::Tcp | TransportProtocol::Tls => self.listen_at(app, at, port),
            TransportProtocol::Sctp => self.listen_sctp_at(app, at, port),
        }
    }

    /// Makes a host multihomed for SCTP: path k leaves by the k-th of these links, with an address of its own. It
    /// ignores the routes. An association of two multihomed hosts has as many paths as the host with fewer; path 0 is
    /// the initial primary. Links that do not end at the host are ignored.
    pub fn make_multihomed(&mut self, host: HostId, links: &[LinkId]) {
        let ports = self.hosts[host.0 as usize].ports.as_slice();
        let out = |l: &LinkId| [l.0 * 2, l.0 * 2 + 1].into_iter().find(|d| ports.contains(d));
        let paths: Vec<u32> = links.iter().filter_map(out).collect();
        self.multihomed.insert(host, paths);
    }

    /// Limits how fast an application reads: octets per second of each connection, and at most `piece` octets a read
    /// (`None`: a segment).
    pub fn limit_read_rate(&mut self, app: u32, bytes_per_second: u64, piece: Option<u32>) {
        let slot = self.apps[app as usize].extras_mut();
        slot.read_rate = NonZeroU64::new(bytes_per_second.max(1));
        slot.read_size = piece.and_then(NonZeroU32::new);
    }

    /// Sets the wall time at [`Instant::ZERO`] for the clocks of all hosts
    /// ([`AppContext::epoch`](crate::AppContext::epoch)). The default is [`WallTime::UNIX_EPOCH`].
    pub fn set_epoch(&mut self, epoch: WallTime) {
        self.epoch = epoch;
    }

    /// Tracks the memory of hosts' connections and associations, for [`Simulation::peak_memory`].
    pub fn follow_memory(&mut self) {
        self.follow_memory = true;
    }

    /// Delivers the frames that arrive at its host to an application.
    pub fn take_frames(&mut self, app: u32) {
        let host = self.apps[app as usize].host;
        self.hosts[host.0 as usize].extras_mut().frames_to = Some(app);
    }

    /// Delivers transit packets of its host to an application, which decides whether they continue. A host's
    /// processor is charged for them.
    pub fn deliver_transit_to(&mut self, app: u32) {
        let host = self.apps[app as usize].host;
        self.hosts[host.0 as usize].extras_mut().transit_to = Some(app);
    }

    /// Makes a host fail and recover, as by a loss of power. Meanwhile it neither sends nor receives nor forwards.
    /// Its connections and its processor's work are lost without a message to the peers. After recovery its
    /// applications get a [`AppDelivery::Start`](crate::AppDelivery::Start) again.
    pub fn add_outage(&mut self, host: HostId, from: Instant, until: Instant) {
        self.outages.push(HostOutage { host, from, until: until.max(from) });
    }

    /// Captures a link at the port of its first host (`first`) or its second. Outgoing packets are captured before
    /// the queue, incoming ones after all losses.
    pub fn capture_link(&mut self, link: LinkId, first: bool, interface: u16) {
        let i = link.0 as usize * 2;
        let (out, into) = if first { (i, i + 1) } else { (i + 1, i) };
        self.directions[out].extras_mut().tap_out = Some(interface);
        self.directions[into].extras_mut().tap_in = Some(interface);
    }

    /// Returns the two hosts of a link, the first one first.
    pub fn link_ends(&self, link: LinkId) -> [HostId; 2] {
        let direction = &self.directions[link.0 as usize * 2];
        [direction.from, direction.to]
    }

    /// Computes next hops by fewest links, ties to the earlier link: one table for each host with several ports.
    pub(super) fn compute_routes(&mut self) {
        let n = self.hosts.len();
        for h in 0..n {
            if !matches!(self.hosts[h].ports, HostEgressLinks::Many(_)) {
                continue;
            }
            let mut table = vec![NONE; n].into_boxed_slice();
            let mut reached: VecDeque<usize> = VecDeque::new();
            for &d in self.hosts[h].ports.as_slice() {
                let to = self.directions[d as usize].to.0 as usize;
                if table[to] == NONE && to != h {
                    table[to] = d;
                    reached.push_back(to);
                }
            }
            while let Some(at) = reached.pop_front() {
                for &d in self.hosts[at].ports.as_slice() {
                    let to = self.directions[d as usize].to.0 as usize;
                    if to != h && table[to] == NONE {
                        table[to] = table[at];
                        reached.push_back(to);
                    }
                }
            }
            if let HostEgressLinks::Many(many) = &mut self.hosts[h].ports {
                many.next_hops = table;
            }
        }
    }

    /// Builds the simulation, at time zero.
    pub fn build<O>(self, observer: O, tap: Option<Box<dyn PacketTap>>) -> Simulation<A, O> {
        self.build_of(observer, tap, WholeNetwork)
    }

    pub(super) fn build_of<O, E: SimulationScope>(
        mut self,
        observer: O,
        tap: Option<Box<dyn PacketTap>>,
        extent: E,
    ) -> Simulation<A, O, E> {
        self.compute_routes();
        let sctp = SctpAssociationTable::new(self.seed, self.sctp_listeners, self.multihomed);
        Simulation {
            version: self.addresses.ip_version(),
            addresses: self.addresses,
            now: Instant::ZERO,
            epoch: self.epoch,
            started: false,
            queue: EventQueue::new(),
            extent,
            hosts: self.hosts,
            interfaces: self.interfaces,
            directions: self.directions,
            cells: self.cells,
            air: self.air,
            rng: self.seed.derive_rng("tcp.iss", 0),
            cpu_jobs: Vec::new(),
            free_cpu_jobs: Vec::new(),
            pool: PacketPool::default(),
            apps: self.apps,
            conns: Vec::new(),
            free_conns: Vec::new(),
            closed_totals: TcpTotals::default(),
            data_sent: SentDataTotals::default(),
            tuples: ConnectionIndex::default(),
            sctp,
            udp_ports: self.udp_ports,
            listeners: self.listeners,
            reassembly: Default::default(),
            loopback: VecDeque::new(),
            seed: self.seed,
            guards: BTreeMap::new(),
            outages: self.outages,
            memory: self.follow_memory.then(Box::default),
            down: 0,
            stats: HostStats::default(),
            fault: None,
            stop: None,
            packet_hops: 0,
            events: 0,
            spare_ops: Vec::new(),
            work: Vec::new(),
            tap,
            tap_buf: Vec::new(),
            observer,
        }
    }
}
