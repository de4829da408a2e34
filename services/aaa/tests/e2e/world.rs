//! Stations, an access server and AAA servers on a network that shows each packet to the test before its delivery.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use usher_aaa::{AaaServer, DIAMETER_LISTENER, radius_socket};
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::ChannelConfig;
use usher_core::{
    ConnId, Duration, Instant, JobRequest, LinkLayerPortId, MachineInput, MessageAssociationOp, StreamOp,
    Transmit,
};
use usher_nas::{AccessStation, NasAuthenticator};

/// The owner of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NetworkHost {
    Station(usize),
    Nas(usize),
    Server(usize),
}

/// A packet before its delivery.
#[derive(Debug)]
pub(crate) struct ObservedPacket {
    pub(crate) from: NetworkHost,
    pub(crate) to: NetworkHost,
    /// Number among all datagrams, frames, stream writes and messages of this run, from 0.
    pub(crate) number: usize,
    /// Length in octets.
    pub(crate) octets: usize,
}

/// The sent packets.
struct TrafficLog {
    servers: usize,
    /// Returns true if a packet is delivered.
    passes: Box<dyn FnMut(&ObservedPacket) -> bool>,
    packets: usize,
    /// Server of each connection and association of the access server.
    ends: HashMap<ConnId, NetworkHost>,
    opened: usize,
    streams: BTreeSet<u16>,
    jobs: Vec<JobRequest<usher_aaa::AaaServerJob>>,
}

impl TrafficLog {
    /// Returns the host with this number. Servers come first.
    fn host_at(&self, number: usize) -> NetworkHost {
        match number.checked_sub(self.servers) {
            None => NetworkHost::Server(number),
            Some(0) => NetworkHost::Nas(0),
            Some(station) => NetworkHost::Station(station - 1),
        }
    }
    fn observe_packet(&mut self, sent: &TransmitRecord) -> bool {
        let from = self.host_at(sent.from);
        let to = match sent.transmit {
            Transmit::Frame { port } if from == NetworkHost::Nas(0) => NetworkHost::Station(port.0 as usize),
            Transmit::Frame { .. } => NetworkHost::Nas(0),
            Transmit::Datagram { path } => host_of_address(path.remote),
            Transmit::Stream { conn, op: StreamOp::Connect { remote, .. } }
            | Transmit::Message { assoc: conn, op: MessageAssociationOp::Connect { remote, .. } } => {
                self.opened += 1;
                self.ends.insert(conn, host_of_address(remote));
                return true;
            }
            Transmit::Stream { conn, op: StreamOp::Data } => self.connection_end(from, conn),
            Transmit::Message { assoc, op: MessageAssociationOp::Data { stream, .. } } => {
                self.streams.insert(stream);
                self.connection_end(from, assoc)
            }
            _ => return true,
        };
        self.packets += 1;
        (self.passes)(&ObservedPacket { from, to, number: self.packets - 1, octets: sent.bytes.len() })
    }
    fn connection_end(&self, from: NetworkHost, conn: ConnId) -> NetworkHost {
        if from == NetworkHost::Nas(0) { self.ends[&conn] } else { NetworkHost::Nas(0) }
    }
}

pub(crate) struct AaaTestNetwork {
    pub(crate) net: MachineNetwork,
    pub(crate) stations: Vec<NetworkHostHandle<AccessStation>>,
    pub(crate) nas: NetworkHostHandle<NasAuthenticator>,
    pub(crate) servers: Vec<NetworkHostHandle<AaaServer>>,
    pub(crate) station_events: Vec<(usize, Instant, usher_nas::station::StationEvent)>,
    pub(crate) nas_events: Vec<(usize, Instant, usher_nas::authenticator::AuthenticatorEvent)>,
    pub(crate) server_events: Vec<(usize, Instant, usher_aaa::AaaServerEvent)>,
    pub(crate) work: BTreeMap<&'static str, u32>,
    /// Maximum number of simultaneous connections and associations.
    pub(crate) most_open: usize,
    record: Rc<RefCell<TrafficLog>>,
}

pub(crate) const RADIUS_PORT: u16 = 1812;
pub(crate) const DIAMETER_PORT: u16 = 3868;

pub(crate) fn nas_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, (i >> 8) as u8, i as u8))
}
pub(crate) fn server_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 2, 0, i as u8))
}
fn host_of_address(address: SocketAddr) -> NetworkHost {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[1] == 2 => NetworkHost::Server(ip.octets()[3].into()),
        _ => NetworkHost::Nas(0),
    }
}

impl AaaTestNetwork {
    /// All links have a delay of a millisecond. Stations are wired to ports of their numbers.
    pub(crate) fn new(servers: Vec<AaaServer>, nas: NasAuthenticator, stations: Vec<AccessStation>) -> Self {
        let record = Rc::new(RefCell::new(TrafficLog {
            servers: servers.len(),
            passes: Box::new(|_| true),
            packets: 0,
            ends: HashMap::new(),
            opened: 0,
            streams: BTreeSet::new(),
            jobs: Vec::new(),
        }));
        let mut net = MachineNetwork::new(ChannelConfig {
            delay: Duration::from_millis(1),
            ..ChannelConfig::default()
        });
        let record_of = record.clone();
        net.intercept_transmits(move |_, sent| {
            if record_of.borrow_mut().observe_packet(sent) { [Duration::ZERO].into() } else { Vec::new() }
        });
        let serve = |(i, server): (usize, AaaServer)| {
            let host = net.add_host(server, &[server_address(i)]);
            net.bind_socket(host, radius_socket(0), SocketAddr::new(server_address(i), RADIUS_PORT));
            net.add_listener(host, DIAMETER_LISTENER, SocketAddr::new(server_address(i), DIAMETER_PORT));
            let record = record.clone();
            net.on_job(host, move |job| {
                record.borrow_mut().jobs.push(job);
                None
            });
            host
        };
        let servers = servers.into_iter().enumerate().map(serve).collect();
        let nas = net.add_host(nas, &[nas_address(0)]);
        let wire = |(i, station): (usize, AccessStation)| {
            let host = net.add_host(station, &[]);
            net.join_ports_in_segment(&[
                (nas.number, LinkLayerPortId(i as u32)),
                (host.number, LinkLayerPortId(0)),
            ]);
            host
        };
        let stations = stations.into_iter().enumerate().map(wire).collect();
        net.run_until(Instant::ZERO);
        Self {
            net,
            stations,
            nas,
            servers,
            station_events: Vec::new(),
            nas_events: Vec::new(),
            server_events: Vec::new(),
            work: BTreeMap::new(),
            most_open: 0,
            record,
        }
    }

    /// Sets the filter of all further packets.
    pub(crate) fn set_packet_filter(&mut self, passes: impl FnMut(&ObservedPacket) -> bool + 'static) {
        self.record.borrow_mut().passes = Box::new(passes);
    }
    /// Restarts the packet numbers at 0.
    pub(crate) fn reset_packet_numbers(&mut self) {
        self.record.borrow_mut().packets = 0;
    }
    /// Number of connections and associations opened so far.
    pub(crate) fn opened_connections(&self) -> usize {
        self.record.borrow().opened
    }
    /// Number of open connections and associations.
    pub(crate) fn open_connections(&self) -> usize {
        self.net.connections(self.nas).count()
    }
    /// Number of association streams in use.
    pub(crate) fn stream_count(&self) -> usize {
        self.record.borrow().streams.len()
    }
    /// Returns the servers' jobs.
    pub(crate) fn take_jobs(&mut self) -> Vec<JobRequest<usher_aaa::AaaServerJob>> {
        std::mem::take(&mut self.record.borrow_mut().jobs)
    }
    pub(crate) fn now(&self) -> Instant {
        self.net.now()
    }

    /// Switches a server off and resets its connections.
    pub(crate) fn switch_off(&mut self, server: usize) {
        let server = self.servers[server];
        self.net.reset_connections(server);
        self.net.set_silent(server, true);
        self.net.set_refusing_connections(server, true);
    }
    /// Passes forged input to a machine.
    pub(crate) fn inject_input(&mut self, who: NetworkHost, input: MachineInput<'_>) {
        match who {
            NetworkHost::Station(i) => self.net.inject_input(self.stations[i], input),
            NetworkHost::Nas(_) => self.net.inject_input(self.nas, input),
            NetworkHost::Server(i) => self.net.inject_input(self.servers[i], input),
        }
        self.collect_events();
    }

    /// Runs until no event is due before `seconds`.
    pub(crate) fn run_until(&mut self, seconds: u64) {
        self.run_to(Instant::ZERO + Duration::from_secs(seconds));
    }
    pub(crate) fn run_to(&mut self, end: Instant) {
        self.net.run_until(self.net.now());
        while self.net.next_due_time().is_some_and(|at| at <= end) {
            self.net.run_next_arrival_or_timer();
            self.most_open = self.most_open.max(self.open_connections());
        }
        self.net.run_until(end);
        self.collect_events();
    }
    /// Collects the machines' events.
    fn collect_events(&mut self) {
        let Self { net, stations, servers, .. } = self;
        for (i, host) in stations.iter().enumerate() {
            self.station_events.extend(net.take_events(*host).into_iter().map(|(at, event)| (i, at, event)));
        }
        self.station_events.sort_by_key(|(_, at, _)| *at);
        self.nas_events.extend(net.take_events(self.nas).into_iter().map(|(at, event)| (0, at, event)));
        for (i, host) in servers.iter().enumerate() {
            self.server_events.extend(net.take_events(*host).into_iter().map(|(at, event)| (i, at, event)));
        }
        for (label, units) in net.take_work() {
            *self.work.entry(label).or_default() += units;
        }
    }
}
