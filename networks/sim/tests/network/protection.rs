//! Packets under the security policies and SAs of their hosts (RFC 4301).

use super::ReportLog;
use std::any::Any;
use std::net::SocketAddr;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_esp::plane::{EspDataPlaneConfig, IpsecMode, OuterAddresses, SaPair};
use usher_esp::{
    EspKeys, EspTransform, IntegrityAlgorithm, IpsecOperation, PolicyAction, SaLifetime, SecurityPolicy,
    SecurityPolicyId, TrafficSelector,
};
use usher_sim::{
    AppContext, AppDelivery, Application, HostId, IpVersion, LinkConfig, PacketTap, Payload, Simulation,
    SimulationBuilder,
};

const PORT: u16 = 7;
const POLICY: SecurityPolicyId = SecurityPolicyId(1);

/// The half second, the application, and its report.
type ProtectionRecord = (u64, u32, ProtectionReport);
/// Length and protocol of a packet.
type SentPacket = (usize, u8);

/// A host's action at each whole second; datagrams are sent between.
#[derive(Clone, Debug)]
enum ProtectionStep {
    Nothing,
    Protect(Vec<IpsecOperation>),
}

/// Sends 100 octets to the other at each half second, and reports arrivals.
#[derive(Debug)]
struct ProtectionApp {
    other: Option<HostId>,
    config: EspDataPlaneConfig,
    steps: Vec<ProtectionStep>,
    tick: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProtectionReport {
    Sent,
    Datagram,
    Acquire,
}

impl Application for ProtectionApp {
    type Report = ProtectionReport;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, ProtectionReport>, delivery: AppDelivery) {
        match delivery {
            AppDelivery::Start => {
                if !self.steps.is_empty() {
                    ctx.begin_protection(self.config);
                }
            }
            AppDelivery::Timer => {}
            AppDelivery::Datagram { payload, .. } => {
                assert_eq!(payload.len, 100);
                return ctx.report(ProtectionReport::Datagram);
            }
            AppDelivery::Acquire { policy } => {
                assert_eq!(policy, POLICY);
                return ctx.report(ProtectionReport::Acquire);
            }
            other => panic!("{other:?}"),
        }
        let (second, half) = (self.tick / 2, self.tick % 2 == 1);
        if half {
            if let Some(other) = self.other {
                ctx.report(ProtectionReport::Sent);
                ctx.send_datagram(0, other, PORT, Payload::with_length(100));
            }
        } else if let Some(ProtectionStep::Protect(operations)) = self.steps.get(second as usize) {
            operations.iter().cloned().for_each(|operation| ctx.update_protection(operation));
        }
        self.tick += 1;
        ctx.set_timer(Some(Instant::ZERO + Duration::from_millis(500) * self.tick));
    }
}

/// Lengths and protocols of captured packets.
#[derive(Debug, Default)]
struct ProtectedPackets(Vec<SentPacket>);
impl PacketTap for ProtectedPackets {
    fn capture_packet(&mut self, _: Instant, _: u16, outward: bool, bytes: &[u8]) {
        if outward {
            assert_eq!(usize::from(bytes[2]) << 8 | usize::from(bytes[3]), bytes.len());
            self.0.push((bytes.len(), bytes[9]));
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns the SAs of one end, 3DES and HMAC-SHA1, and the reverse ones of the other.
fn sa_pair(
    ours: HostId,
    theirs: HostId,
    spis: [u32; 2],
    keys: [u8; 2],
    addresses: &usher_sim::HostAddresses,
) -> SaPair {
    let of = |n: u8| EspKeys { cipher: vec![n; 24].into(), integrity: vec![n; 20].into() };
    let [local, remote] = [ours, theirs].map(|host| addresses.address_of(host));
    SaPair {
        inbound: spis[0],
        outbound: spis[1],
        transform: EspTransform {
            cipher: Some(CipherAlgorithm::TripleDesCbc),
            integrity: Some(IntegrityAlgorithm { mac: MacAlgorithm::HmacSha1, len: 12 }),
            extended_sequence_numbers: false,
        },
        inbound_keys: of(keys[0]),
        outbound_keys: of(keys[1]),
        mode: IpsecMode::Transport,
        local: vec![TrafficSelector::from_address(local)],
        remote: vec![TrafficSelector::from_address(remote)],
        outer: OuterAddresses {
            local: SocketAddr::new(local, 0),
            remote: SocketAddr::new(remote, 0),
            encapsulated: false,
        },
        policy: None,
        lifetime: SaLifetime::default(),
        window: SaPair::WINDOW,
        replaces: None,
        after_peer: false,
        follow: false,
    }
}

/// Runs for a number of seconds. Returns the reports, the sender's packets, and the counters.
fn run_protection(
    config: EspDataPlaneConfig,
    steps: impl Fn(HostId, HostId, &usher_sim::HostAddresses) -> [Vec<ProtectionStep>; 2],
    seconds: u64,
) -> (Vec<ProtectionRecord>, Vec<SentPacket>, usher_sim::HostStats) {
    let mut builder = SimulationBuilder::new(IpVersion::V4, Seed::new(5));
    let [a, b] = [builder.add_host(None).unwrap(), builder.add_host(None).unwrap()];
    let link = builder.add_link(a, b, &LinkConfig::default());
    builder.capture_link(link, true, 0);
    let [of_a, of_b] = steps(a, b, &builder.addresses().clone());
    builder.add_application(a, ProtectionApp { other: Some(b), config, steps: of_a, tick: 0 }, None);
    let receives =
        builder.add_application(b, ProtectionApp { other: None, config, steps: of_b, tick: 0 }, None);
    builder.bind_udp(receives, 0, PORT).unwrap();
    let mut sim: Simulation<ProtectionApp, ReportLog<ProtectionReport>> = builder
        .build(ReportLog::default(), Some(Box::new(ProtectedPackets::default()) as Box<dyn PacketTap>));
    sim.run_until(Instant::ZERO + Duration::from_secs(seconds));
    let halves = |at: Instant| at.as_nanos() / 500_000_000;
    let seen = sim.observer().0.iter().map(|(at, app, seen)| (halves(*at), *app, *seen)).collect();
    let stats = sim.host_stats();
    let packets = sim.take_tap().unwrap().into_any().downcast::<ProtectedPackets>().unwrap();
    (seen, packets.0, stats)
}

#[test]
fn packets_wait_for_an_sa_go_by_it_and_are_dropped_without_one() {
    let config = EspDataPlaneConfig { otherwise: PolicyAction::Discard, ..EspDataPlaneConfig::default() };
    let steps = |a: HostId, b: HostId, addresses: &usher_sim::HostAddresses| {
        let mut ours = sa_pair(a, b, [0x1001, 0x2001], [1, 2], addresses);
        ours.policy = Some(POLICY);
        let theirs = sa_pair(b, a, [0x2001, 0x1001], [2, 1], addresses);
        let protect = |action| {
            IpsecOperation::Policies(vec![SecurityPolicy {
                id: POLICY,
                local: vec![TrafficSelector::from_address(addresses.address_of(a))],
                remote: vec![TrafficSelector::from_address(addresses.address_of(b))],
                action,
            }])
        };
        let install = |pair: &SaPair| IpsecOperation::Install(Box::new(pair.clone()));
        let of_a = vec![
            // The packet of half second 1 is dropped without a report.
            ProtectionStep::Nothing,
            // 3 and 5 wait, and 3 requests an SA.
            ProtectionStep::Protect(vec![protect(PolicyAction::Protect)]),
            ProtectionStep::Nothing,
            // Both are sent, and so is 7.
            ProtectionStep::Protect(vec![install(&ours)]),
            // 9 waits, and requests again; no SA follows.
            ProtectionStep::Protect(vec![IpsecOperation::Remove { inbound: 0x1001 }]),
            ProtectionStep::Protect(vec![IpsecOperation::Abandon(POLICY)]),
            // 11 has requested, and is sent in the clear; so is 13.
            ProtectionStep::Protect(vec![protect(PolicyAction::Forward)]),
        ];
        [of_a, vec![ProtectionStep::Protect(vec![install(&theirs)])]]
    };
    let (seen, packets, stats) = run_protection(config, steps, 7);
    let at = |what: ProtectionReport| {
        seen.iter().filter(|(.., seen)| *seen == what).map(|(at, app, _)| (*at, *app)).collect::<Vec<_>>()
    };
    assert_eq!(at(ProtectionReport::Sent), [1, 3, 5, 7, 9, 11, 13].map(|half| (half, 0)));
    assert_eq!(at(ProtectionReport::Datagram), [(6, 1), (6, 1), (7, 1), (12, 1), (13, 1)]);
    assert_eq!(at(ProtectionReport::Acquire), [(3, 0), (9, 0), (11, 0)]);
    // RFC 4303: SPI, number and a vector of eight octets, 108 and two of trailer in blocks of eight, twelve of ICV.
    assert_eq!(
        packets,
        [(20 + 16 + 112 + 12, 50), (20 + 16 + 112 + 12, 50), (160, 50), (128, 17), (128, 17)]
    );
    // The first without a policy, and the one that waited in vain.
    assert_eq!((stats.unprotected, stats.no_sa, stats.stale_operation), (2, 0, 0));
}

#[test]
fn what_comes_without_its_sa_or_by_another_key_is_dropped() {
    let config = EspDataPlaneConfig { otherwise: PolicyAction::Discard, ..EspDataPlaneConfig::default() };
    for (theirs, expected) in [([0x2001, 0x1001], 1), ([0x2002, 0x1001], 0)] {
        let steps = |a: HostId, b: HostId, addresses: &usher_sim::HostAddresses| {
            let ours = sa_pair(a, b, [0x1001, 0x2001], [1, 2], addresses);
            let of_b = sa_pair(b, a, theirs, [2, 1], addresses);
            let other = SaPair { inbound_keys: ours.inbound_keys.clone(), ..of_b.clone() };
            let install = |pair: SaPair| IpsecOperation::Install(Box::new(pair));
            let remove = IpsecOperation::Remove { inbound: of_b.inbound };
            [
                vec![ProtectionStep::Protect(vec![install(ours)])],
                // At half second 1 by its key, at 3 by another's.
                vec![
                    ProtectionStep::Protect(vec![install(of_b)]),
                    ProtectionStep::Protect(vec![remove, install(other)]),
                ],
            ]
        };
        let (seen, packets, stats) = run_protection(config, steps, 2);
        let came = seen.iter().filter(|(.., seen)| *seen == ProtectionReport::Datagram).count();
        assert_eq!((came, packets.len()), (expected, 2));
        assert_eq!(stats.no_sa, 2 - expected as u64);
    }
}
