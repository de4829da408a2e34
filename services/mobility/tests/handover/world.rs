//! A station, two points of service and a correspondent, joined by pipes, in virtual time.

use crate::pipes::{Outcome, Pipe};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::Tap;
use usher_core::impair::{Channel, ChannelConfig, Fate, Loss};
use usher_core::{Duration, Input, Instant, Machine, Path, Seed, SocketId, Transmit, TransportProtocol};
use usher_mih::{
    Config as MihConfig, Decoded, LinkAddr, LinkId, LinkTupleId, LinkType, Message, MessageId, MihfId, Peer,
    Route, Timing,
};
use usher_mobility::pos::{Client, Neighbour, Trigger};
use usher_mobility::station::CommitAnswer;
use usher_mobility::{
    Correspondent, Initiation, Interface, LinkCommand, LinkEvent, PointOfService, Station, correspondent,
    pos, station,
};

pub(crate) const WIFI: Duration = Duration::from_millis(20);
pub(crate) const WIMAX: Duration = Duration::from_millis(30);
pub(crate) const WIRE: Duration = Duration::from_millis(10);
pub(crate) const PROCESSING: Duration = Duration::from_millis(200);
pub(crate) const SCAN: Duration = Duration::from_millis(150);
pub(crate) const ENTRY: Duration = Duration::from_millis(100);
/// When the old link begins to go down.
pub(crate) const GOING: Instant = Instant::from_nanos(5_000_000_000);
/// The socket of a point of service.
const MIH: SocketId = SocketId::own(0);
/// The application's port.
const FLOW: u16 = 5000;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const HOME: IpAddr = address(1, 2);
pub(crate) const CARE_OF: IpAddr = address(2, 2);
const SERVING: IpAddr = address(10, 1);
const TARGET: IpAddr = address(20, 1);
const CORRESPONDENT: IpAddr = address(9, 9);

const fn address(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, net, host))
}

/// The machines that speak MIH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MihHost {
    Station,
    Serving,
    Target,
}

impl MihHost {
    pub(crate) fn at(ip: IpAddr) -> Self {
        match ip {
            HOME | CARE_OF => Self::Station,
            SERVING => Self::Serving,
            TARGET => Self::Target,
            other => panic!("nobody is at {other}"),
        }
    }
    /// Its first address.
    pub(crate) const fn home(self) -> IpAddr {
        match self {
            Self::Station => HOME,
            Self::Serving => SERVING,
            Self::Target => TARGET,
        }
    }
}

fn id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}
pub(crate) fn mn() -> MihfId {
    id("mn@example")
}

fn link(technology: LinkType, n: u8) -> LinkTupleId {
    LinkTupleId { link: LinkId::mac(technology, [2, 0, 0, 0, n, 2]), poa: Some(poa(n)) }
}
fn poa(n: u8) -> LinkAddr {
    LinkAddr::Mac([2, 0, 0, 0, n, 1])
}

/// What a test varies.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) initiation: Initiation,
    pub(crate) trigger: Trigger,
    pub(crate) on_failure: station::OnFailure,
    pub(crate) commit_answer: CommitAnswer,
    pub(crate) transport: TransportProtocol,
    /// Ask for MIH acknowledgements.
    pub(crate) ack: bool,
    pub(crate) timing: Timing,
    pub(crate) processing: Duration,
    /// Who hears MIH_MN_HO_Complete: the target's point of service, or the serving one.
    pub(crate) completes_with_target: bool,
    pub(crate) capacity: u32,
    pub(crate) max_requests: usize,
    /// From the beginning of the handover until the old link is down.
    pub(crate) leaves: Duration,
    /// How many scans find nothing, and how many entries fail, before one succeeds.
    pub(crate) blind_scans: u32,
    pub(crate) failed_entries: u32,
    /// Frame loss in the old network once the link is going down.
    pub(crate) loss: f64,
    pub(crate) seed: u64,
}

impl Setting {
    pub(crate) fn new(initiation: Initiation) -> Self {
        let trigger = if initiation == Initiation::Network { Trigger::Remote } else { Trigger::Never };
        Self {
            initiation,
            trigger,
            on_failure: station::OnFailure::WaitForLinkDown,
            commit_answer: CommitAnswer::AfterProcessing,
            transport: TransportProtocol::Udp,
            ack: true,
            timing: Timing { retransmission: ms(100), ..Timing::default() },
            processing: PROCESSING,
            completes_with_target: true,
            capacity: 10,
            max_requests: 16,
            leaves: Duration::from_secs(9),
            blind_scans: 0,
            failed_entries: 0,
            loss: 0.0,
            seed: 1,
        }
    }

    fn route(&self, local: Option<IpAddr>, remote: IpAddr) -> Route {
        Route { transport: self.transport, local, remote: SocketAddr::new(remote, usher_mih::PORT) }
    }

    fn mih(&self, name: &str) -> MihConfig {
        MihConfig { timing: self.timing, ..MihConfig::new(id(name)) }
    }

    fn station(&self) -> station::Config {
        let peer = |name: &str, route: Route| Peer { id: id(name), route, ack: self.ack };
        let target = peer("target@example", self.route(Some(CARE_OF), TARGET));
        station::Config {
            mih: self.mih("mn@example"),
            serving: peer("serving@example", self.route(Some(HOME), SERVING)),
            serving_after: self.route(Some(CARE_OF), SERVING),
            target: self.completes_with_target.then_some(target),
            serving_address: HOME,
            target_address: CARE_OF,
            serving_link: link(LinkType::Ieee80211, 1),
            target_link: link(LinkType::Ieee80216, 2),
            correspondent: SocketAddr::new(CORRESPONDENT, usher_mip::PORT),
            initiation: self.initiation,
            on_failure: self.on_failure,
            commit_answer: self.commit_answer,
            processing: self.processing,
            retry: Duration::from_secs(1),
            binding: usher_mip::Timing::default(),
            max_requests: self.max_requests,
        }
    }

    fn pos(&self, serving: bool) -> pos::Config {
        let peer = |name: &str, remote: IpAddr| Peer {
            id: id(name),
            route: self.route(None, remote),
            ack: self.ack,
        };
        let (name, other, remote) = if serving {
            ("serving@example", "target@example", TARGET)
        } else {
            ("target@example", "serving@example", SERVING)
        };
        let (n, technology) = if serving { (1, LinkType::Ieee80216) } else { (2, LinkType::Ieee80211) };
        let clients = vec![Client { peer: peer("mn@example", HOME), link: link(LinkType::Ieee80211, 1) }];
        pos::Config {
            mih: self.mih(name),
            poa: poa(n),
            clients: if serving { clients } else { Vec::new() },
            neighbour: Some(Neighbour { peer: peer(other, remote), technology, poa: poa(3 - n) }),
            trigger: if serving { self.trigger } else { Trigger::Never },
            processing: self.processing,
            capacity: self.capacity,
            reserve: Duration::from_secs(30),
            forget: Duration::from_secs(60),
            max_requests: self.max_requests,
        }
    }
}

/// What is under way, by time and order.
#[derive(Debug)]
pub(crate) enum Happening {
    Datagram { from: SocketAddr, to: SocketAddr, data: Vec<u8> },
    Pipe { pipe: usize, to: usize, outcome: Outcome },
    Link { interface: Interface, event: LinkEvent },
    Flow,
}

/// Decides of a message, by its name and whether it is an acknowledgement without payload, whether it is lost.
pub(crate) type Filter = Box<dyn FnMut(MessageId, bool) -> bool>;

/// The world; what was said in it is kept.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) station: Tap<Station>,
    pub(crate) serving: Tap<PointOfService>,
    pub(crate) target: Tap<PointOfService>,
    pub(crate) correspondent: Tap<Correspondent>,
    setting: Setting,
    queue: BTreeMap<(Instant, u64), Happening>,
    order: u64,
    air: Channel,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) filter: Filter,
    /// Binding Updates that are still to be lost.
    pub(crate) lost_updates: u32,
    wifi_up: bool,
    wimax_up: bool,
    pub(crate) said: Vec<(Instant, station::Event)>,
    pub(crate) serving_said: Vec<(Instant, pos::Event)>,
    pub(crate) target_said: Vec<(Instant, pos::Event)>,
    pub(crate) sent: BTreeMap<u32, Instant>,
    pub(crate) received: BTreeMap<u32, Interface>,
    /// Messages that were sent, without repetitions in a row.
    pub(crate) messages: Vec<MessageId>,
    pub(crate) labels: BTreeSet<&'static str>,
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let seed = Seed::new(setting.seed);
        let air = ChannelConfig {
            delay: WIFI,
            loss: Loss::Bernoulli(setting.loss),
            impaired_from: GOING,
            ..ChannelConfig::default()
        };
        let correspondent = correspondent::Config {
            station: SocketAddr::new(HOME, FLOW),
            size: 100,
            interval: ms(500),
            packets: None,
            longest_binding: Duration::from_secs(3600),
        };
        let mut world = Self {
            now: Instant::ZERO,
            station: Tap::new(Station::new(setting.station(), seed.stream("station", 0))),
            serving: Tap::new(PointOfService::new(setting.pos(true), seed.stream("pos", 0))),
            target: Tap::new(PointOfService::new(setting.pos(false), seed.stream("pos", 1))),
            correspondent: Tap::new(Correspondent::new(correspondent)),
            queue: BTreeMap::new(),
            order: 0,
            air: Channel::new(air, seed.stream("air", 0)),
            pipes: Vec::new(),
            filter: Box::new(|_, _| false),
            lost_updates: 0,
            wifi_up: true,
            wimax_up: false,
            said: Vec::new(),
            serving_said: Vec::new(),
            target_said: Vec::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            messages: Vec::new(),
            labels: BTreeSet::new(),
            setting,
        };
        world.serving.command(world.now, pos::Command::Start).unwrap();
        world.target.command(world.now, pos::Command::Start).unwrap();
        world.station.command(world.now, station::Command::Start).unwrap();
        let within = world.setting.leaves;
        world.at(
            GOING,
            Happening::Link { interface: Interface::Serving, event: LinkEvent::GoingDown { within } },
        );
        world.at(GOING + within, Happening::Link { interface: Interface::Serving, event: LinkEvent::Down });
        world.at(Instant::ZERO + ms(250), Happening::Flow);
        world
    }

    pub(crate) fn at_link(&mut self, at: Instant, interface: Interface, event: LinkEvent) {
        self.at(at, Happening::Link { interface, event });
    }

    pub(crate) fn at(&mut self, at: Instant, happening: Happening) {
        self.queue.insert((at, self.order), happening);
        self.order += 1;
    }

    /// Runs until this long after the beginning of the handover.
    pub(crate) fn run(&mut self, after: Duration) -> &mut Self {
        self.run_to(GOING + after)
    }

    /// Runs until a time.
    pub(crate) fn run_to(&mut self, end: Instant) -> &mut Self {
        loop {
            self.drain();
            let timers = [
                self.station.poll_timeout(),
                self.serving.poll_timeout(),
                self.target.poll_timeout(),
                self.correspondent.poll_timeout(),
            ];
            let timer = timers.into_iter().flatten().min();
            let queued = self.queue.keys().next().map(|(at, _)| *at);
            let Some(next) = timer.into_iter().chain(queued).min().filter(|at| *at <= end) else { break };
            assert!(next >= self.now, "time runs backwards: {next:?} after {:?}", self.now);
            self.now = next;
            if queued == Some(next) {
                let (_, happening) = self.queue.pop_first().unwrap();
                self.happen(happening);
            } else {
                let due = |at: Option<Instant>| at.is_some_and(|at| at <= next);
                if due(timers[0]) {
                    self.station.handle(next, Input::Timeout);
                }
                if due(timers[1]) {
                    self.serving.handle(next, Input::Timeout);
                }
                if due(timers[2]) {
                    self.target.handle(next, Input::Timeout);
                }
                if due(timers[3]) {
                    self.correspondent.handle(next, Input::Timeout);
                }
            }
        }
        self.now = end;
        self
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Flow => self.correspondent.command(now, correspondent::Command::Start).unwrap(),
            Happening::Link { interface, event } => {
                match (interface, event) {
                    (Interface::Serving, LinkEvent::Down) => self.wifi_up = false,
                    (Interface::Serving, LinkEvent::Up) => self.wifi_up = true,
                    (Interface::Target, LinkEvent::Up) => self.wimax_up = true,
                    (Interface::Target, LinkEvent::Down) => self.wimax_up = false,
                    _ => {}
                }
                if interface == Interface::Serving {
                    let command = pos::Command::Link { station: mn(), event };
                    self.serving.command(now, command).unwrap();
                }
                self.station.command(now, station::Command::Link { interface, event }).unwrap();
            }
            Happening::Datagram { from, to, data } => {
                // What is under way when a link goes down is lost.
                if self.is_gone(from.ip()) || self.is_gone(to.ip()) {
                    return;
                }
                let socket = match (to.ip(), to.port()) {
                    (HOME, FLOW) => station::FLOW_SERVING,
                    (CARE_OF, FLOW) => station::FLOW_TARGET,
                    (CARE_OF, usher_mip::PORT) => station::BINDING_SOCKET,
                    (HOME, usher_mih::PORT) => station::MIH_SERVING,
                    (CARE_OF, usher_mih::PORT) => station::MIH_TARGET,
                    (CORRESPONDENT, usher_mip::PORT) => correspondent::BINDING_SOCKET,
                    (_, usher_mih::PORT) => MIH,
                    other => panic!("nobody listens at {other:?}"),
                };
                let input = Input::Datagram { path: Path { socket, local: to, remote: from }, data: &data };
                if to.ip() == CORRESPONDENT {
                    self.correspondent.handle(now, input);
                } else {
                    self.handle(MihHost::at(to.ip()), input);
                }
            }
            Happening::Pipe { pipe, to, outcome } => self.come_out(pipe, to, &outcome),
        }
    }

    pub(crate) fn handle(&mut self, node: MihHost, input: Input<'_>) {
        match node {
            MihHost::Station => self.station.handle(self.now, input),
            MihHost::Serving => self.serving.handle(self.now, input),
            MihHost::Target => self.target.handle(self.now, input),
        }
    }

    /// True for an address whose link is down.
    pub(crate) fn is_gone(&self, ip: IpAddr) -> bool {
        (ip == HOME && !self.wifi_up) || (ip == CARE_OF && !self.wimax_up)
    }

    /// How long a packet takes between two addresses.
    pub(crate) fn delay(&self, ends: [IpAddr; 2]) -> Duration {
        if ends.contains(&HOME) {
            WIFI
        } else if ends.contains(&CARE_OF) {
            WIMAX
        } else {
            WIRE
        }
    }

    /// Offers a packet to the old network's air.
    pub(crate) fn lost_on_air(&mut self, octets: u32) -> bool {
        !matches!(self.air.offer(self.now, octets), Fate::Delivered { .. })
    }

    fn drain(&mut self) {
        let mut buf = Vec::new();
        let now = self.now;
        loop {
            let mut quiet = true;
            for node in [MihHost::Station, MihHost::Serving, MihHost::Target] {
                loop {
                    let transmit = match node {
                        MihHost::Station => self.station.poll_transmit(&mut buf),
                        MihHost::Serving => self.serving.poll_transmit(&mut buf),
                        MihHost::Target => self.target.poll_transmit(&mut buf),
                    };
                    match transmit {
                        None => break,
                        Some(Transmit::Datagram { path }) => {
                            let from = match (node, path.socket) {
                                (MihHost::Station, station::MIH_SERVING) => {
                                    SocketAddr::new(HOME, usher_mih::PORT)
                                }
                                (MihHost::Station, station::MIH_TARGET) => {
                                    SocketAddr::new(CARE_OF, usher_mih::PORT)
                                }
                                (MihHost::Station, station::BINDING_SOCKET) => {
                                    SocketAddr::new(CARE_OF, usher_mip::PORT)
                                }
                                (MihHost::Serving | MihHost::Target, MIH) => {
                                    SocketAddr::new(node.home(), usher_mih::PORT)
                                }
                                other => panic!("{other:?} sends"),
                            };
                            self.send(from, path.remote, &buf);
                        }
                        Some(other) => self.pipe(node, other, &buf),
                    }
                }
            }
            while let Some(transmit) = self.correspondent.poll_transmit(&mut buf) {
                let Transmit::Datagram { path } = transmit else { panic!("{transmit:?}") };
                let port = if path.socket == correspondent::FLOW_SOCKET { 6000 } else { usher_mip::PORT };
                self.send(SocketAddr::new(CORRESPONDENT, port), path.remote, &buf);
            }
            while let Some(event) = self.station.poll_event() {
                quiet = false;
                self.heard(&event);
                self.said.push((now, event));
            }
            while let Some(event) = self.serving.poll_event() {
                self.serving_said.push((now, event));
            }
            while let Some(event) = self.target.poll_event() {
                self.target_said.push((now, event));
            }
            while let Some(event) = self.correspondent.poll_event() {
                if let correspondent::Event::Sent { sequence, .. } = event {
                    self.sent.insert(sequence, now);
                }
            }
            let works = [
                self.station.poll_work(),
                self.serving.poll_work(),
                self.target.poll_work(),
                self.correspondent.poll_work(),
            ];
            for work in works.into_iter().flatten() {
                quiet = false;
                self.labels.insert(work.label.name());
            }
            if quiet {
                return;
            }
        }
    }

    /// The links obey the station.
    fn heard(&mut self, event: &station::Event) {
        match *event {
            station::Event::LinkCommand { interface, command } => {
                let (after, event) = match command {
                    LinkCommand::Scan => {
                        let found = self.setting.blind_scans == 0;
                        self.setting.blind_scans = self.setting.blind_scans.saturating_sub(1);
                        (SCAN, LinkEvent::Scanned { found })
                    }
                    LinkCommand::Connect if self.setting.failed_entries > 0 => {
                        self.setting.failed_entries -= 1;
                        (ENTRY, LinkEvent::Down)
                    }
                    LinkCommand::Connect => (ENTRY, LinkEvent::Up),
                    LinkCommand::Disconnect => (Duration::ZERO, LinkEvent::Down),
                };
                self.at(self.now + after, Happening::Link { interface, event });
            }
            station::Event::Received { sequence, interface } => {
                assert_eq!(self.received.insert(sequence, interface), None, "packet {sequence} came twice");
            }
            _ => {}
        }
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, data: &[u8]) {
        let delay = self.delay([from.ip(), to.ip()]);
        if self.is_gone(from.ip()) || (delay == WIFI && self.lost_on_air(data.len() as u32)) {
            return;
        }
        if from.port() == usher_mih::PORT && self.is_to_be_lost(&Message::decode(data).unwrap()) {
            return;
        }
        if to == SocketAddr::new(CORRESPONDENT, usher_mip::PORT) && self.lost_updates > 0 {
            self.lost_updates -= 1;
            return;
        }
        self.at(self.now + delay, Happening::Datagram { from, to, data: data.to_vec() });
    }

    /// Notes a message, and says whether it is to be lost.
    pub(crate) fn is_to_be_lost(&mut self, decoded: &Decoded) -> bool {
        let id = decoded.message.id;
        if self.messages.last() != Some(&id) {
            self.messages.push(id);
        }
        (self.filter)(id, decoded.is_acknowledgement())
    }

    /// The handover's end: success, reason, how long it took; it must have ended exactly once.
    #[track_caller]
    pub(crate) fn done(&self) -> (bool, Option<station::Failure>, Duration) {
        let mut ends = self.said.iter().filter_map(|(_, event)| match *event {
            station::Event::HandoverDone { success, failure, began, ended, .. } => {
                Some((success, failure, ended.since(began)))
            }
            _ => None,
        });
        let end =
            ends.next().unwrap_or_else(|| panic!("no end: {:?} {:#?}", self.station.state(), self.said));
        assert_eq!(ends.next(), None, "a second end");
        end
    }

    /// The station's steps, by name and milliseconds.
    pub(crate) fn steps(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, station::Event)| match *event {
            station::Event::Step { step, took } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.said.iter().filter_map(step).collect()
    }

    /// The serving point of service's steps, by name and milliseconds.
    pub(crate) fn serving_steps(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, pos::Event)| match event {
            pos::Event::Step { step, took, .. } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.serving_said.iter().filter_map(step).collect()
    }

    /// When packets that never arrived were sent, from the beginning of the handover on, among those that had time to.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let missing = |(sequence, at): (&u32, &Instant)| {
            let late = *at + Duration::from_secs(1) > self.now;
            (!self.received.contains_key(sequence) && !late).then(|| at.since(GOING).as_millis())
        };
        self.sent.iter().filter_map(missing).collect()
    }
}
