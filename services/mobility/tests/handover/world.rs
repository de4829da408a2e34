//! A station, two points of service and a correspondent.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use usher_core::bench::{MachineNetwork, NetworkHostHandle, TransmitRecord};
use usher_core::impair::{ChannelConfig, LossModel};
use usher_core::{
    Duration, Instant, ListenerId, MessageAssociationOp, Seed, SocketId, StreamOp, Transmit,
    TransportProtocol,
};
use usher_mih::{
    AddressProofConfig, LinkAddr, LinkId, LinkTupleId, LinkType, MessageId, MihfConfig as MihConfig, MihfId,
    MihfMessage, MihfPeer, PeerRoute, TransactionTimerConfig,
};
use usher_mip::CareOfVerificationConfig;
use usher_mobility::pos::{HandoverTrigger, NeighbourPos, ServedStation};
use usher_mobility::station::CommitAnswer;
use usher_mobility::{
    CorrespondentNode, HandoverInitiatingSide, LinkCommand, LinkEvent, MobileStation, PointOfService,
    StationInterface, correspondent, pos, station,
};

const WIFI: Duration = Duration::from_millis(20);
const WIMAX: Duration = Duration::from_millis(30);
const WIRE: Duration = Duration::from_millis(10);
const PROCESSING: Duration = Duration::from_millis(200);
const SCAN: Duration = Duration::from_millis(150);
const ENTRY: Duration = Duration::from_millis(100);
/// Delay of the retransmission of a lost packet.
const RETRANSMIT_DELAY: Duration = Duration::from_millis(200);
/// Time of the announcement that the old link goes down.
pub(crate) const GOING: Instant = Instant::from_nanos(5_000_000_000);
/// The socket of a point of service.
const MIH: SocketId = SocketId::from_number(0);
/// The application's port.
const FLOW: u16 = 5000;

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

const HOME: IpAddr = host_address(1, 2);
const CARE_OF: IpAddr = host_address(2, 2);
const SERVING: IpAddr = host_address(10, 1);
const TARGET: IpAddr = host_address(20, 1);
const CORRESPONDENT: IpAddr = host_address(9, 9);

const fn host_address(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, net, host))
}

fn mihf_id(name: &str) -> MihfId {
    MihfId::new(name).unwrap()
}
pub(crate) fn mn_id() -> MihfId {
    mihf_id("mn@example")
}

fn test_link(technology: LinkType, n: u8) -> LinkTupleId {
    LinkTupleId { link: LinkId::from_mac(technology, [2, 0, 0, 0, n, 2]), poa: Some(test_poa(n)) }
}
fn test_poa(n: u8) -> LinkAddr {
    LinkAddr::Mac([2, 0, 0, 0, n, 1])
}

/// The variable parameters of a test.
#[derive(Clone, Debug)]
pub(crate) struct HandoverTestConfig {
    pub(crate) initiation: HandoverInitiatingSide,
    pub(crate) trigger: HandoverTrigger,
    pub(crate) on_failure: station::OnFailure,
    pub(crate) commit_answer: CommitAnswer,
    pub(crate) transport: TransportProtocol,
    /// Ask for MIH acknowledgements.
    pub(crate) ack: bool,
    pub(crate) timing: TransactionTimerConfig,
    pub(crate) processing: Duration,
    /// The receiver of MIH_MN_HO_Complete: the target's point of service, or the serving one.
    pub(crate) completes_with_target: bool,
    pub(crate) capacity: u32,
    pub(crate) max_requests: usize,
    /// Probe new addresses, as on live networks.
    pub(crate) proofs: bool,
    /// Time from the start of the handover to the loss of the old link.
    pub(crate) leaves: Duration,
    /// Numbers of scans without a result, and of failed connections, before one succeeds.
    pub(crate) blind_scans: u32,
    pub(crate) failed_entries: u32,
    /// Frame loss in the old network once the link is going down.
    pub(crate) loss: f64,
    pub(crate) seed: u16,
}

impl HandoverTestConfig {
    pub(crate) fn new(initiation: HandoverInitiatingSide) -> Self {
        let trigger = if initiation == HandoverInitiatingSide::Network {
            HandoverTrigger::Remote
        } else {
            HandoverTrigger::Never
        };
        Self {
            initiation,
            trigger,
            on_failure: station::OnFailure::WaitForLinkDown,
            commit_answer: CommitAnswer::AfterProcessing,
            transport: TransportProtocol::Udp,
            ack: true,
            timing: TransactionTimerConfig {
                retransmission: millis(100),
                ..TransactionTimerConfig::default()
            },
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

    fn route_to(&self, local: Option<IpAddr>, remote: IpAddr) -> PeerRoute {
        PeerRoute { transport: self.transport, local, remote: SocketAddr::new(remote, usher_mih::PORT) }
    }

    fn mihf_config(&self, name: &str) -> MihConfig {
        let places = [(mn_id(), vec![(CARE_OF, 32)])].into();
        let proofs =
            AddressProofConfig { allowed_networks: places, claims: 64, address_proofs_per_network: 4 };
        MihConfig {
            timing: self.timing,
            proofs: self.proofs.then_some(proofs),
            ..MihConfig::new(mihf_id(name))
        }
    }

    fn station_config(&self) -> station::StationConfig {
        let peer = |name: &str, route: PeerRoute| MihfPeer { id: mihf_id(name), route, ack: self.ack };
        let target = peer("target@example", self.route_to(Some(CARE_OF), TARGET));
        station::StationConfig {
            mih: self.mihf_config("mn@example"),
            serving: peer("serving@example", self.route_to(Some(HOME), SERVING)),
            serving_after: self.route_to(Some(CARE_OF), SERVING),
            target: self.completes_with_target.then_some(target),
            serving_address: HOME,
            target_address: CARE_OF,
            serving_link: test_link(LinkType::Ieee80211, 1),
            target_link: test_link(LinkType::Ieee80216, 2),
            correspondent: SocketAddr::new(CORRESPONDENT, usher_mip::PORT),
            initiation: self.initiation,
            on_failure: self.on_failure,
            commit_answer: self.commit_answer,
            processing: self.processing,
            retry: Duration::from_secs(1),
            binding: usher_mip::RegistrationTimerConfig::default(),
            max_requests: self.max_requests,
        }
    }

    fn pos_config(&self, serving: bool) -> pos::PosConfig {
        let peer = |name: &str, remote: IpAddr| MihfPeer {
            id: mihf_id(name),
            route: self.route_to(None, remote),
            ack: self.ack,
        };
        let (name, other, remote) = if serving {
            ("serving@example", "target@example", TARGET)
        } else {
            ("target@example", "serving@example", SERVING)
        };
        let (n, technology) = if serving { (1, LinkType::Ieee80216) } else { (2, LinkType::Ieee80211) };
        let clients =
            vec![ServedStation { peer: peer("mn@example", HOME), link: test_link(LinkType::Ieee80211, 1) }];
        pos::PosConfig {
            mih: self.mihf_config(name),
            poa: test_poa(n),
            clients: if serving { clients } else { Vec::new() },
            neighbour: Some(NeighbourPos { peer: peer(other, remote), technology, poa: test_poa(3 - n) }),
            trigger: if serving { self.trigger } else { HandoverTrigger::Never },
            processing: self.processing,
            capacity: self.capacity,
            reserve: Duration::from_secs(30),
            handover_expiry: Duration::from_secs(60),
            max_requests: self.max_requests,
        }
    }
}

/// Decodes a transmission if it is a message; true for an acknowledgement without payload.
fn decode_sent(sent: &TransmitRecord) -> Option<(MessageId, bool)> {
    let is_mih = match sent.transmit {
        Transmit::Datagram { path } => path.remote.port() == usher_mih::PORT,
        Transmit::Stream { op, .. } => op == StreamOp::Data,
        Transmit::Message { op, .. } => matches!(op, MessageAssociationOp::Data { .. }),
        Transmit::Frame { .. } => false,
    };
    is_mih.then(|| {
        let decoded = MihfMessage::decode(&sent.bytes).unwrap();
        (decoded.message.id, decoded.is_acknowledgement())
    })
}

/// Returns the delays of a packet's copies: none if it is lost.
fn copies_unless_lost(lost: bool) -> Vec<Duration> {
    if lost { Vec::new() } else { vec![Duration::ZERO] }
}

/// The test network with a log of its messages.
pub(crate) struct HandoverTestNetwork {
    pub(crate) net: MachineNetwork,
    station: NetworkHostHandle<MobileStation>,
    pub(crate) serving: NetworkHostHandle<PointOfService>,
    target: NetworkHostHandle<PointOfService>,
    correspondent: NetworkHostHandle<CorrespondentNode>,
    setting: HandoverTestConfig,
    /// Number of handled station events.
    heeded: usize,
    pub(crate) received: BTreeMap<u32, StationInterface>,
}

impl HandoverTestNetwork {
    pub(crate) fn new(setting: HandoverTestConfig) -> Self {
        let seed = Seed::new(setting.seed.into());
        let delay = |delay| ChannelConfig { delay, ..ChannelConfig::default() };
        let wifi =
            ChannelConfig { loss: LossModel::Bernoulli(setting.loss), impaired_from: GOING, ..delay(WIFI) };
        let config = correspondent::CorrespondentConfig {
            proof: setting.proofs.then(|| CareOfVerificationConfig {
                networks: vec![(CARE_OF, 24)],
                rng: usher_core::SecureRng::from_seed([setting.seed as u8; 32]),
            }),
            station: SocketAddr::new(HOME, FLOW),
            size: 100,
            interval: millis(500),
            packets: None,
            longest_binding: Duration::from_secs(3600),
        };
        let mut net = MachineNetwork::new(delay(WIRE));
        net.set_channel_seed(setting.seed);
        net.link_address(HOME, &wifi);
        net.link_address(CARE_OF, &delay(WIMAX));
        net.set_address_down(CARE_OF, true);
        net.set_retransmission_delay(RETRANSMIT_DELAY);
        let station = MobileStation::new(setting.station_config(), seed.derive_rng("station", 0));
        let station = net.add_host(station, &[HOME, CARE_OF]);
        for (address, mih, flow) in [
            (HOME, station::MIH_SERVING, station::FLOW_SERVING),
            (CARE_OF, station::MIH_TARGET, station::FLOW_TARGET),
        ] {
            net.bind_socket(station, mih, SocketAddr::new(address, usher_mih::PORT));
            net.bind_socket(station, flow, SocketAddr::new(address, FLOW));
            net.add_listener(station, station::MIH_LISTENER, SocketAddr::new(address, usher_mih::PORT));
        }
        net.bind_socket(station, station::BINDING_SOCKET, SocketAddr::new(CARE_OF, usher_mip::PORT));
        let [serving, target] = [(SERVING, true), (TARGET, false)].map(|(address, serving)| {
            let chance = seed.derive_rng("pos", (!serving).into());
            let pos = net.add_host(PointOfService::new(setting.pos_config(serving), chance), &[address]);
            let address = SocketAddr::new(address, usher_mih::PORT);
            net.bind_socket(pos, MIH, address);
            net.add_listener(pos, ListenerId::from_number(0), address);
            net.send_command(pos, pos::PosCommand::Start).unwrap();
            pos
        });
        let correspondent = net.add_host(CorrespondentNode::new(config), &[CORRESPONDENT]);
        let binding = SocketAddr::new(CORRESPONDENT, usher_mip::PORT);
        net.bind_socket(correspondent, correspondent::BINDING_SOCKET, binding);
        net.send_command(station, station::StationCommand::Start).unwrap();
        net.schedule_command(
            correspondent,
            Instant::ZERO + millis(250),
            correspondent::CorrespondentCommand::Start,
        );
        let (heeded, received) = (0, BTreeMap::new());
        let mut world = Self { net, station, serving, target, correspondent, setting, heeded, received };
        let within = world.setting.leaves;
        world.at_link(GOING, StationInterface::Serving, LinkEvent::GoingDown { time_to_loss: within });
        world.at_link(GOING + within, StationInterface::Serving, LinkEvent::Down);
        world
    }

    /// Delivers a link event to the machines that it concerns.
    pub(crate) fn at_link(&mut self, at: Instant, interface: StationInterface, event: LinkEvent) {
        let (station, serving) = (self.station, self.serving);
        self.net.schedule_action(at, move |net| {
            let address = if interface == StationInterface::Serving { HOME } else { CARE_OF };
            match event {
                LinkEvent::Down => net.set_address_down(address, true),
                LinkEvent::Up => net.set_address_down(address, false),
                _ => {}
            }
            net.send_command(station, station::StationCommand::Link { interface, event }).unwrap();
            if interface == StationInterface::Serving {
                net.send_command(serving, pos::PosCommand::Link { station: mn_id(), event }).unwrap();
            }
        });
    }

    /// Selects messages to lose from now on, by name and by whether they are acknowledgements without payload.
    pub(crate) fn lose_messages(&mut self, mut which: impl FnMut(MessageId, bool) -> bool + 'static) {
        self.net.intercept_transmits(move |_, sent| {
            copies_unless_lost(decode_sent(sent).is_some_and(|(id, ack)| which(id, ack)))
        });
    }

    /// Drops the first `count` Binding Updates.
    pub(crate) fn lose_updates(&mut self, mut count: u32) {
        let to = SocketAddr::new(CORRESPONDENT, usher_mip::PORT);
        self.net.intercept_transmits(move |_, sent| {
            let lost = matches!(sent.transmit, Transmit::Datagram { path } if path.remote == to) && count > 0;
            count -= u32::from(lost);
            copies_unless_lost(lost)
        });
    }

    /// Runs until this time after the start of the handover.
    pub(crate) fn run_for(&mut self, after: Duration) -> &mut Self {
        self.run_to(GOING + after)
    }

    /// Runs until a time.
    pub(crate) fn run_to(&mut self, end: Instant) -> &mut Self {
        while self.net.next_due_time().is_some_and(|at| at <= end) {
            self.net.run_next_arrival_or_timer();
            while let Some((_, event)) = self.station_events().get(self.heeded).cloned() {
                self.heeded += 1;
                self.follow_station(&event);
            }
        }
        self.net.run_until(end);
        self
    }

    /// Applies a link command of the station.
    fn follow_station(&mut self, event: &station::StationEvent) {
        match *event {
            station::StationEvent::LinkCommand { interface, command } => {
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
            station::StationEvent::Received { sequence, interface } => {
                assert_eq!(self.received.insert(sequence, interface), None, "packet {sequence} came twice");
            }
            _ => {}
        }
    }

    pub(crate) fn station(&self) -> &MobileStation {
        &self.net[self.station]
    }
    pub(crate) fn serving_pos(&self) -> &PointOfService {
        &self.net[self.serving]
    }
    pub(crate) fn target_pos(&self) -> &PointOfService {
        &self.net[self.target]
    }
    /// Returns the station's events.
    pub(crate) fn station_events(&self) -> &[(Instant, station::StationEvent)] {
        self.net.recorded_events(self.station)
    }
    /// Returns the points of service's events.
    pub(crate) fn pos_events(&self) -> [&[(Instant, pos::PosEvent)]; 2] {
        [self.serving, self.target].map(|pos| self.net.recorded_events(pos))
    }
    /// Returns the sent messages, without consecutive repetitions.
    pub(crate) fn sent_messages(&self) -> Vec<MessageId> {
        let mut all: Vec<_> =
            self.net.sent_transmits().iter().filter_map(|sent| Some(decode_sent(sent)?.0)).collect();
        all.dedup();
        all
    }
    /// Returns the number of started connections and associations.
    pub(crate) fn connection_count(&self) -> usize {
        let begins = |sent: &&TransmitRecord| {
            matches!(
                sent.transmit,
                Transmit::Stream { op: StreamOp::Connect { .. }, .. }
                    | Transmit::Message { op: MessageAssociationOp::Connect { .. }, .. }
            )
        };
        self.net.sent_transmits().iter().filter(begins).count()
    }

    /// Returns the result of the only handover: success, reason of a failure, duration.
    #[track_caller]
    pub(crate) fn handover_result(&self) -> (bool, Option<station::HandoverFailure>, Duration) {
        let mut ends = self.station_events().iter().filter_map(|(_, event)| match *event {
            station::StationEvent::HandoverDone {
                success,
                failure,
                started_at: began,
                completed_at: ended,
                ..
            } => Some((success, failure, ended.duration_since(began))),
            _ => None,
        });
        let end = ends
            .next()
            .unwrap_or_else(|| panic!("no end: {:?} {:#?}", self.station().state(), self.station_events()));
        assert_eq!(ends.next(), None, "a second end");
        end
    }

    /// Returns the station's steps, by name and milliseconds.
    pub(crate) fn step_times(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, station::StationEvent)| match *event {
            station::StationEvent::Step { step, duration: took } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.station_events().iter().filter_map(step).collect()
    }

    /// Returns the serving point of service's steps, by name and milliseconds.
    pub(crate) fn serving_steps(&self) -> Vec<(&'static str, u64)> {
        let step = |(_, event): &(Instant, pos::PosEvent)| match event {
            pos::PosEvent::Step { step, duration: took, .. } => Some((step.name(), took.as_millis())),
            _ => None,
        };
        self.net.recorded_events(self.serving).iter().filter_map(step).collect()
    }

    /// Returns the departure times of lost packets since the start of the handover. Packets that may still
    /// arrive are left out.
    pub(crate) fn lost_packet_times(&self) -> Vec<u64> {
        let missing = |(at, event): &(Instant, correspondent::CorrespondentEvent)| {
            let correspondent::CorrespondentEvent::Sent { sequence, .. } = event else { return None };
            let late = *at + Duration::from_secs(1) > self.net.now();
            (!self.received.contains_key(sequence) && !late).then(|| at.duration_since(GOING).as_millis())
        };
        self.net.recorded_events(self.correspondent).iter().filter_map(missing).collect()
    }
}
