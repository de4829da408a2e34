//! Stations, an access server and AAA servers, on a network that shows each packet to the test before it is delivered.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use usher_aaa::{AaaServer, DIAMETER_LISTENER, radius_socket};
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::ChannelConfig;
use usher_core::{ConnId, Duration, Input, Instant, Job, MessageOp, PortId, StreamOp, Transmit};
use usher_nas::{Authenticator, Station};

/// Whose machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Station(usize),
    Nas(usize),
    Server(usize),
}

/// What a test may see of a packet before it is delivered.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) from: Who,
    pub(crate) to: Who,
    /// Its number among all datagrams, frames, stream writes and messages of this run, from 0.
    pub(crate) number: usize,
    /// How long it is.
    pub(crate) octets: usize,
}

/// What is known of what was sent.
struct Record {
    servers: usize,
    /// Says of each packet whether it arrives.
    passes: Box<dyn FnMut(&Seen) -> bool>,
    packets: usize,
    /// Which server each connection and association of the access server leads to.
    ends: HashMap<ConnId, Who>,
    opened: usize,
    streams: BTreeSet<u16>,
    jobs: Vec<Job<usher_aaa::Job>>,
}

impl Record {
    /// The host of this number: servers come first.
    fn who(&self, number: usize) -> Who {
        match number.checked_sub(self.servers) {
            None => Who::Server(number),
            Some(0) => Who::Nas(0),
            Some(station) => Who::Station(station - 1),
        }
    }
    fn see(&mut self, sent: &Sent) -> bool {
        let from = self.who(sent.from);
        let to = match sent.transmit {
            Transmit::Frame { port } if from == Who::Nas(0) => Who::Station(port.0 as usize),
            Transmit::Frame { .. } => Who::Nas(0),
            Transmit::Datagram { path } => at(path.remote),
            Transmit::Stream { conn, op: StreamOp::Connect { remote, .. } }
            | Transmit::Message { assoc: conn, op: MessageOp::Connect { remote, .. } } => {
                self.opened += 1;
                self.ends.insert(conn, at(remote));
                return true;
            }
            Transmit::Stream { conn, op: StreamOp::Data } => self.end(from, conn),
            Transmit::Message { assoc, op: MessageOp::Data { stream, .. } } => {
                self.streams.insert(stream);
                self.end(from, assoc)
            }
            _ => return true,
        };
        self.packets += 1;
        (self.passes)(&Seen { from, to, number: self.packets - 1, octets: sent.bytes.len() })
    }
    fn end(&self, from: Who, conn: ConnId) -> Who {
        if from == Who::Nas(0) { self.ends[&conn] } else { Who::Nas(0) }
    }
}

pub(crate) struct World {
    pub(crate) net: Network,
    pub(crate) stations: Vec<At<Station>>,
    pub(crate) nas: At<Authenticator>,
    pub(crate) servers: Vec<At<AaaServer>>,
    pub(crate) station_events: Vec<(usize, Instant, usher_nas::station::Event)>,
    pub(crate) nas_events: Vec<(usize, Instant, usher_nas::authenticator::Event)>,
    pub(crate) server_events: Vec<(usize, Instant, usher_aaa::Event)>,
    pub(crate) work: BTreeMap<&'static str, u32>,
    /// How many connections and associations were open at once at most.
    pub(crate) most_open: usize,
    record: Rc<RefCell<Record>>,
}

pub(crate) const RADIUS_PORT: u16 = 1812;
pub(crate) const DIAMETER_PORT: u16 = 3868;

pub(crate) fn nas_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 1, (i >> 8) as u8, i as u8))
}
pub(crate) fn server_address(i: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 2, 0, i as u8))
}
fn at(address: SocketAddr) -> Who {
    match address.ip() {
        IpAddr::V4(ip) if ip.octets()[1] == 2 => Who::Server(ip.octets()[3].into()),
        _ => Who::Nas(0),
    }
}

impl World {
    /// All a millisecond from each other; the stations are wired to ports of their numbers.
    pub(crate) fn new(servers: Vec<AaaServer>, nas: Authenticator, stations: Vec<Station>) -> Self {
        let record = Rc::new(RefCell::new(Record {
            servers: servers.len(),
            passes: Box::new(|_| true),
            packets: 0,
            ends: HashMap::new(),
            opened: 0,
            streams: BTreeSet::new(),
            jobs: Vec::new(),
        }));
        let mut net =
            Network::new(ChannelConfig { delay: Duration::from_millis(1), ..ChannelConfig::default() });
        let record_of = record.clone();
        net.meddle(
            move |_, sent| {
                if record_of.borrow_mut().see(sent) { [Duration::ZERO].into() } else { Vec::new() }
            },
        );
        let serve = |(i, server): (usize, AaaServer)| {
            let host = net.add(server, &[server_address(i)]);
            net.bind(host, radius_socket(0), SocketAddr::new(server_address(i), RADIUS_PORT));
            net.listen(host, DIAMETER_LISTENER, SocketAddr::new(server_address(i), DIAMETER_PORT));
            let record = record.clone();
            net.on_job(host, move |job| {
                record.borrow_mut().jobs.push(job);
                None
            });
            host
        };
        let servers = servers.into_iter().enumerate().map(serve).collect();
        let nas = net.add(nas, &[nas_address(0)]);
        let wire = |(i, station): (usize, Station)| {
            let host = net.add(station, &[]);
            net.join(&[(nas.number, PortId(i as u32)), (host.number, PortId(0))]);
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

    /// Says of each packet from now on whether it arrives.
    pub(crate) fn passes(&mut self, passes: impl FnMut(&Seen) -> bool + 'static) {
        self.record.borrow_mut().passes = Box::new(passes);
    }
    /// The next packet has number 0.
    pub(crate) fn renumber(&mut self) {
        self.record.borrow_mut().packets = 0;
    }
    /// Connections and associations opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.record.borrow().opened
    }
    /// Connections and associations that are open now.
    pub(crate) fn open(&self) -> usize {
        self.net.connections(self.nas).count()
    }
    /// The streams of associations that messages went by.
    pub(crate) fn streams(&self) -> usize {
        self.record.borrow().streams.len()
    }
    /// Takes what servers have asked of their host.
    pub(crate) fn jobs(&mut self) -> Vec<Job<usher_aaa::Job>> {
        std::mem::take(&mut self.record.borrow_mut().jobs)
    }
    pub(crate) fn now(&self) -> Instant {
        self.net.now()
    }

    /// Switches a server off: its connections are reset.
    pub(crate) fn switch_off(&mut self, server: usize) {
        let server = self.servers[server];
        self.net.cut(server);
        self.net.silence(server, true);
        self.net.refuse(server, true);
    }
    /// Hands a machine bytes of the test's own making.
    pub(crate) fn inject(&mut self, who: Who, input: Input<'_>) {
        match who {
            Who::Station(i) => self.net.give(self.stations[i], input),
            Who::Nas(_) => self.net.give(self.nas, input),
            Who::Server(i) => self.net.give(self.servers[i], input),
        }
        self.hear();
    }

    /// Runs until nothing happens before `seconds`.
    pub(crate) fn run_until(&mut self, seconds: u64) {
        self.run_to(Instant::ZERO + Duration::from_secs(seconds));
    }
    pub(crate) fn run_to(&mut self, end: Instant) {
        self.net.run_until(self.net.now());
        while self.net.due().is_some_and(|at| at <= end) {
            self.net.step();
            self.most_open = self.most_open.max(self.open());
        }
        self.net.run_until(end);
        self.hear();
    }
    /// Takes what the machines have said.
    fn hear(&mut self) {
        let Self { net, stations, servers, .. } = self;
        for (i, host) in stations.iter().enumerate() {
            self.station_events.extend(net.take(*host).into_iter().map(|(at, event)| (i, at, event)));
        }
        self.station_events.sort_by_key(|(_, at, _)| *at);
        self.nas_events.extend(net.take(self.nas).into_iter().map(|(at, event)| (0, at, event)));
        for (i, host) in servers.iter().enumerate() {
            self.server_events.extend(net.take(*host).into_iter().map(|(at, event)| (i, at, event)));
        }
        for (label, units) in net.take_work() {
            *self.work.entry(label).or_default() += units;
        }
    }
}
