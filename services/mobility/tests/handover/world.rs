//! A station, two points of service and a correspondent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::{At, Network, Sent};
use usher_core::impair::{ChannelConfig, Loss};
use usher_core::{
    Duration, Instant, ListenerId, MessageOp, Seed, SocketId, StreamOp, Transmit, TransportProtocol,
};
use usher_mih::{
    AddressProofs, Config as MihConfig, LinkAddr, LinkId, LinkTupleId, LinkType, Message, MessageId, MihfId,
    Peer, Route, Timing,
};
use usher_mip::CareOfProof;
use usher_mobility::pos::{Client, Neighbour, Trigger};
use usher_mobility::station::CommitAnswer;
use usher_mobility::{
    Correspondent, Initiation, Interface, LinkCommand, LinkEvent, PointOfService, Station, correspondent,
    pos, station,
};

const WIFI: Duration = Duration::from_millis(20);
const WIMAX: Duration = Duration::from_millis(30);
const WIRE: Duration = Duration::from_millis(10);
const PROCESSING: Duration = Duration::from_millis(200);
const SCAN: Duration = Duration::from_millis(150);
const ENTRY: Duration = Duration::from_millis(100);
/// How long what was lost waits until it is sent again.
const AGAIN: Duration = Duration::from_millis(200);
/// When the old link begins to go down.
pub(crate) const GOING: Instant = Instant::from_nanos(5_000_000_000);
/// The socket of a point of service.
const MIH: SocketId = SocketId::own(0);
/// The application's port.
const FLOW: u16 = 5000;

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const HOME: IpAddr = address(1, 2);
const CARE_OF: IpAddr = address(2, 2);
const SERVING: IpAddr = address(10, 1);
const TARGET: IpAddr = address(20, 1);
const CORRESPONDENT: IpAddr = address(9, 9);

const fn address(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, net, host))
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
    /// Addresses prove themselves, as they do live.
    pub(crate) proofs: bool,
    /// From the beginning of the handover until the old link is down.
    pub(crate) leaves: Duration,
    /// How many scans find nothing, and how many entries fail, before one succeeds.
    pub(crate) blind_scans: u32,
    pub(crate) failed_entries: u32,
    /// Frame loss in the old network once the link is going down.
    pub(crate) loss: f64,
    pub(crate) seed: u16,
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
            proofs: false,
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
        let places = [(mn(), vec![(CARE_OF, 32)])].into();
        let proofs = AddressProofs { places, claims: 64, claims_per_network: 4 };
        MihConfig { timing: self.timing, proofs: self.proofs.then_some(proofs), ..MihConfig::new(id(name)) }
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

/// A message in its envelope, if this is one, with whether it is an acknowledgement without payload.
fn message(sent: &Sent) -> Option<(MessageId, bool)> {
    let is_mih = match sent.transmit {
        Transmit::Datagram { path } => path.remote.port() == usher_mih::PORT,
        Transmit::Stream { op, .. } => op == StreamOp::Data,
        Transmit::Message { op, .. } => matches!(op, MessageOp::Data { .. }),
        Transmit::Frame { .. } => false,
    };
    is_mih.then(|| {
        let decoded = Message::decode(&sent.bytes).unwrap();
        (decoded.message.id, decoded.is_acknowledgement())
    })
}

/// What becomes of a copy that is to arrive, or not.
fn unless(lost: bool) -> Vec<Duration> {
    if lost { Vec::new() } else { vec![Duration::ZERO] }
}

/// The world; what was said in it is kept.
pub(crate) struct World {
    pub(crate) net: Network,
    station: At<Station>,
    pub(crate) serving: At<PointOfService>,
    target: At<PointOfService>,
    correspondent: At<Correspondent>,
    setting: Setting,
    /// How much of what the station said has been heeded.
    heeded: usize,
    pub(crate) received: BTreeMap<u32, Interface>,
}

impl World {
    pub(crate) fn new(setting: Setting) -> Self {
        let seed = Seed::new(setting.seed.into());
        let delay = |delay| ChannelConfig { delay, ..ChannelConfig::default() };
        let wifi = ChannelConfig { loss: Loss::Bernoulli(setting.loss), impaired_from: GOING, ..delay(WIFI) };
        let config = correspondent::Config {
            proof: setting.proofs.then(|| CareOfProof {
                networks: vec![(CARE_OF, 24)],
                rng: usher_core::SecureRng::from_seed([setting.seed as u8; 32]),
            }),
            station: SocketAddr::new(HOME, FLOW),
            size: 100,
            interval: ms(500),
            packets: None,
            longest_binding: Duration::from_secs(3600),
        };
        let mut net = Network::new(delay(WIRE));
        net.seed(setting.seed);
        net.attach(HOME, &wifi);
        net.attach(CARE_OF, &delay(WIMAX));
        net.down(CARE_OF, true);
        net.resend(AGAIN);
        let station = Station::new(setting.station(), seed.stream("station", 0));
        let station = net.add(station, &[HOME, CARE_OF]);
        for (address, mih, flow) in [
            (HOME, station::MIH_SERVING, station::FLOW_SERVING),
            (CARE_OF, station::MIH_TARGET, station::FLOW_TARGET),
        ] {
            net.bind(station, mih, SocketAddr::new(address, usher_mih::PORT));
            net.bind(station, flow, SocketAddr::new(address, FLOW));
            net.listen(station, station::MIH_LISTENER, SocketAddr::new(address, usher_mih::PORT));
        }
        net.bind(station, station::BINDING_SOCKET, SocketAddr::new(CARE_OF, usher_mip::PORT));
        let [serving, target] = [(SERVING, true), (TARGET, false)].map(|(address, serving)| {
            let chance = seed.stream("pos", (!serving).into());
            let pos = net.add(PointOfService::new(setting.pos(serving), chance), &[address]);
            let address = SocketAddr::new(address, usher_mih::PORT);
            net.bind(pos, MIH, address);
            net.listen(pos, ListenerId::own(0), address);
            net.command(pos, pos::Command::Start).unwrap();
            pos
        });
        let correspondent = net.add(Correspondent::new(config), &[CORRESPONDENT]);
        let binding = SocketAddr::new(CORRESPONDENT, usher_mip::PORT);
        net.bind(correspondent, correspondent::BINDING_SOCKET, binding);
        net.command(station, station::Command::Start).unwrap();
        net.later(correspondent, Instant::ZERO + ms(250), correspondent::Command::Start);
        let (heeded, received) = (0, BTreeMap::new());
        let mut world = Self { net, station, serving, target, correspondent, setting, heeded, received };
        let within = world.setting.leaves;
        world.at_link(GOING, Interface::Serving, LinkEvent::GoingDown { within });
        world.at_link(GOING + within, Interface::Serving, LinkEvent::Down);
        world
    }

    /// A link event is told to whom it concerns.
    pub(crate) fn at_link(&mut self, at: Instant, interface: Interface, event: LinkEvent) {
        let (station, serving) = (self.station, self.serving);
        self.net.at(at, move |net| {
            let address = if interface == Interface::Serving { HOME } else { CARE_OF };
            match event {
                LinkEvent::Down => net.down(address, true),
                LinkEvent::Up => net.down(address, false),
                _ => {}
            }
            net.command(station, station::Command::Link { interface, event }).unwrap();
            if interface == Interface::Serving {
                net.command(serving, pos::Command::Link { station: mn(), event }).unwrap();
            }
        });
    }

    /// Loses messages from now on, by name and by whether they are acknowledgements without payload.
    pub(crate) fn lose(&mut self, mut which: impl FnMut(MessageId, bool) -> bool + 'static) {
        self.net.meddle(move |_, sent| unless(message(sent).is_some_and(|(id, ack)| which(id, ack))));
    }

    /// Loses the first so many Binding Updates.
    pub(crate) fn lose_updates(&mut self, mut count: u32) {
        let to = SocketAddr::new(CORRESPONDENT, usher_mip::PORT);
        self.net.meddle(move |_, sent| {
            let lost = matches!(sent.transmit, Transmit::Datagram { path } if path.remote == to) && count > 0;
            count -= u32::from(lost);
            unless(lost)
        });
    }

    /// Runs until this long after the beginning of the handover.
    pub(crate) fn run(&mut self, after: Duration) -> &mut Self {
        self.run_to(GOING + after)
    }

    /// Runs until a time.
    pub(crate) fn run_to(&mut self, end: Instant) -> &mut Self {
        while self.net.due().is_some_and(|at| at <= end) {
            self.net.step();
            while let Some((_, event)) = self.said().get(self.heeded).cloned() {
                self.heeded += 1;
                self.heed(&event);
            }
        }
        self.net.run_until(end);
        self
    }

    /// The links obey the station.
    fn heed(&mut self, event: &station::Event) {
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
                self.at_link(self.net.now() + after, interface, event);
            }
            station::Event::Received { sequence, interface } => {
                assert_eq!(self.received.insert(sequence, interface), None, "packet {sequence} came twice");
            }
            _ => {}
        }
    }

    pub(crate) fn station(&self) -> &Station {
        &self.net[self.station]
    }
    pub(crate) fn serving(&self) -> &PointOfService {
        &self.net[self.serving]
    }
    pub(crate) fn target(&self) -> &PointOfService {
        &self.net[self.target]
    }
    /// What the station said.
    pub(crate) fn said(&self) -> &[(Instant, station::Event)] {
        self.net.events(self.station)
    }
    /// What the points of service said.
    pub(crate) fn pos_said(&self) -> [&[(Instant, pos::Event)]; 2] {
        [self.serving, self.target].map(|pos| self.net.events(pos))
    }
    /// Messages that were sent, without repetitions in a row.
    pub(crate) fn messages(&self) -> Vec<MessageId> {
        let mut all: Vec<_> = self.net.sent().iter().filter_map(|sent| Some(message(sent)?.0)).collect();
        all.dedup();
        all
    }
    /// How many connections and associations were begun.
    pub(crate) fn connections(&self) -> usize {
        let begins = |sent: &&Sent| {
            matches!(
                sent.transmit,
                Transmit::Stream { op: StreamOp::Connect { .. }, .. }
                    | Transmit::Message { op: MessageOp::Connect { .. }, .. }
            )
        };
        self.net.sent().iter().filter(begins).count()
    }

    /// The handover's end: success, reason, how long it took; it must have ended exactly once.
    #[track_caller]
    pub(crate) fn done(&self) -> (bool, Option<station::Failure>, Duration) {
        let mut ends = self.said().iter().filter_map(|(_, event)| match *event {
            station::Event::HandoverDone { success, failure, began, ended, .. } => {
                Some((success, failure, ended.since(began)))
            }
            _ => None,
        });
        let end =
            ends.next().unwrap_or_else(|| panic!("no end: {:?} {:#?}", self.station().state(), self.said()));
        assert_eq!(ends.next(), None, "a second end");
        end
    }

    /// The station's steps, by name and milliseconds.
    pub(crate) fn steps(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, station::Event)| match *event {
            station::Event::Step { step, took } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.said().iter().filter_map(step).collect()
    }

    /// The serving point of service's steps, by name and milliseconds.
    pub(crate) fn serving_steps(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, pos::Event)| match event {
            pos::Event::Step { step, took, .. } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.net.events(self.serving).iter().filter_map(step).collect()
    }

    /// When packets that never arrived were sent, from the beginning of the handover on, among those that had time to.
    pub(crate) fn lost(&self) -> Vec<u64> {
        let missing = |(at, event): &(Instant, correspondent::Event)| {
            let correspondent::Event::Sent { sequence, .. } = event else { return None };
            let late = *at + Duration::from_secs(1) > self.net.now();
            (!self.received.contains_key(sequence) && !late).then(|| at.since(GOING).as_millis())
        };
        self.net.events(self.correspondent).iter().filter_map(missing).collect()
    }
}
