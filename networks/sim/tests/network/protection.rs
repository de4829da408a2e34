//! Packets that go by the security policies and SAs of their hosts (RFC 4301).

use super::Log;
use std::any::Any;
use std::net::SocketAddr;
use usher_core::{Duration, Instant, Seed};
use usher_crypto::cipher::CipherAlgorithm;
use usher_crypto::mac::MacAlgorithm;
use usher_esp::plane::{Config, Mode, Outer, SaPair};
use usher_esp::{Action, Integrity, Keys, Lifetime, Operation, Policy, PolicyId, TrafficSelector, Transform};
use usher_sim::{
    Application, Builder, Context, Delivery, HostId, IpVersion, LinkConfig, Payload, Simulation, Tap,
};

const PORT: u16 = 7;
const POLICY: PolicyId = PolicyId(1);

/// At which half second, by which application, what.
type Noted = (u64, u32, Seen);
/// Length and protocol of a packet.
type Sent = (usize, u8);

/// What a host does at each whole second, by the number of the second; datagrams go between.
#[derive(Clone, Debug)]
enum Step {
    Nothing,
    Protect(Vec<Operation>),
}

/// Sends 100 octets to the other at each half second, and tells what it gets.
#[derive(Debug)]
struct App {
    other: Option<HostId>,
    config: Config,
    steps: Vec<Step>,
    tick: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Sent,
    Datagram,
    Acquire,
}

impl Application for App {
    type Report = Seen;
    fn handle(&mut self, ctx: &mut Context<'_, Seen>, delivery: Delivery) {
        match delivery {
            Delivery::Start => {
                if !self.steps.is_empty() {
                    ctx.begin_protection(self.config);
                }
            }
            Delivery::Timer => {}
            Delivery::Datagram { payload, .. } => {
                assert_eq!(payload.len, 100);
                return ctx.report(Seen::Datagram);
            }
            Delivery::Acquire { policy } => {
                assert_eq!(policy, POLICY);
                return ctx.report(Seen::Acquire);
            }
            other => panic!("{other:?}"),
        }
        let (second, half) = (self.tick / 2, self.tick % 2 == 1);
        if half {
            if let Some(other) = self.other {
                ctx.report(Seen::Sent);
                ctx.send_datagram(0, other, PORT, Payload::counted(100));
            }
        } else if let Some(Step::Protect(operations)) = self.steps.get(second as usize) {
            operations.iter().cloned().for_each(|operation| ctx.protect(operation));
        }
        self.tick += 1;
        ctx.set_timer(Some(Instant::ZERO + Duration::from_millis(500) * self.tick));
    }
}

/// Lengths and protocols of the packets that leave.
#[derive(Debug, Default)]
struct Packets(Vec<Sent>);
impl Tap for Packets {
    fn packet(&mut self, _: Instant, _: u16, outward: bool, bytes: &[u8]) {
        if outward {
            assert_eq!(usize::from(bytes[2]) << 8 | usize::from(bytes[3]), bytes.len());
            self.0.push((bytes.len(), bytes[9]));
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The SAs of one side, 3DES and HMAC-SHA1, and those of the other with all the other way round.
fn pair(
    ours: HostId,
    theirs: HostId,
    spis: [u32; 2],
    keys: [u8; 2],
    addresses: &usher_sim::Addresses,
) -> SaPair {
    let of = |n: u8| Keys { cipher: vec![n; 24].into(), integrity: vec![n; 20].into() };
    let [local, remote] = [ours, theirs].map(|host| addresses.of(host));
    SaPair {
        inbound: spis[0],
        outbound: spis[1],
        transform: Transform {
            cipher: Some(CipherAlgorithm::TripleDesCbc),
            integrity: Some(Integrity { mac: MacAlgorithm::HmacSha1, len: 12 }),
            extended_sequence_numbers: false,
        },
        inbound_keys: of(keys[0]),
        outbound_keys: of(keys[1]),
        mode: Mode::Transport,
        local: vec![TrafficSelector::address(local)],
        remote: vec![TrafficSelector::address(remote)],
        outer: Outer {
            local: SocketAddr::new(local, 0),
            remote: SocketAddr::new(remote, 0),
            encapsulated: false,
        },
        policy: None,
        lifetime: Lifetime::default(),
        window: SaPair::WINDOW,
        replaces: None,
        after_peer: false,
        follow: false,
    }
}

/// Runs for so many seconds; what was seen by whom, at which half second, what left the sender, and the counters.
fn run(
    config: Config,
    steps: impl Fn(HostId, HostId, &usher_sim::Addresses) -> [Vec<Step>; 2],
    seconds: u64,
) -> (Vec<Noted>, Vec<Sent>, usher_sim::HostStats) {
    let mut builder = Builder::new(IpVersion::V4, Seed::new(5));
    let [a, b] = [builder.host(None).unwrap(), builder.host(None).unwrap()];
    let link = builder.link(a, b, &LinkConfig::default());
    builder.capture(link, true, 0);
    let [of_a, of_b] = steps(a, b, &builder.addresses().clone());
    builder.app(a, App { other: Some(b), config, steps: of_a, tick: 0 }, None);
    let receives = builder.app(b, App { other: None, config, steps: of_b, tick: 0 }, None);
    builder.bind_udp(receives, 0, PORT).unwrap();
    let mut sim: Simulation<App, Log<Seen>> =
        builder.build(Log::default(), Some(Box::new(Packets::default()) as Box<dyn Tap>));
    sim.run_until(Instant::ZERO + Duration::from_secs(seconds));
    let halves = |at: Instant| at.as_nanos() / 500_000_000;
    let seen = sim.observer().0.iter().map(|(at, app, seen)| (halves(*at), *app, *seen)).collect();
    let stats = sim.host_stats();
    let packets = sim.take_tap().unwrap().into_any().downcast::<Packets>().unwrap();
    (seen, packets.0, stats)
}

#[test]
fn packets_wait_for_an_sa_go_by_it_and_are_dropped_without_one() {
    let config = Config { otherwise: Action::Discard, ..Config::default() };
    let steps = |a: HostId, b: HostId, addresses: &usher_sim::Addresses| {
        let mut ours = pair(a, b, [0x1001, 0x2001], [1, 2], addresses);
        ours.policy = Some(POLICY);
        let theirs = pair(b, a, [0x2001, 0x1001], [2, 1], addresses);
        let protect = |action| {
            Operation::Policies(vec![Policy {
                id: POLICY,
                local: vec![TrafficSelector::address(addresses.of(a))],
                remote: vec![TrafficSelector::address(addresses.of(b))],
                action,
            }])
        };
        let install = |pair: &SaPair| Operation::Install(Box::new(pair.clone()));
        let of_a = vec![
            // Half second 1 is dropped: nothing is said of it.
            Step::Nothing,
            // 3 and 5 wait, and 3 asks.
            Step::Protect(vec![protect(Action::Protect)]),
            Step::Nothing,
            // Both go, and 7 does.
            Step::Protect(vec![install(&ours)]),
            // 9 waits, and asks anew; there will be none.
            Step::Protect(vec![Operation::Remove { inbound: 0x1001 }]),
            Step::Protect(vec![Operation::Abandon(POLICY)]),
            // 11 has asked, and goes as it is; so does 13.
            Step::Protect(vec![protect(Action::Forward)]),
        ];
        [of_a, vec![Step::Protect(vec![install(&theirs)])]]
    };
    let (seen, packets, stats) = run(config, steps, 7);
    let at = |what: Seen| {
        seen.iter().filter(|(.., seen)| *seen == what).map(|(at, app, _)| (*at, *app)).collect::<Vec<_>>()
    };
    assert_eq!(at(Seen::Sent), [1, 3, 5, 7, 9, 11, 13].map(|half| (half, 0)));
    assert_eq!(at(Seen::Datagram), [(6, 1), (6, 1), (7, 1), (12, 1), (13, 1)]);
    assert_eq!(at(Seen::Acquire), [(3, 0), (9, 0), (11, 0)]);
    // RFC 4303: SPI, number and a vector of eight octets, 108 and two of trailer in blocks of eight, twelve of ICV.
    assert_eq!(
        packets,
        [(20 + 16 + 112 + 12, 50), (20 + 16 + 112 + 12, 50), (160, 50), (128, 17), (128, 17)]
    );
    // The first without a policy, and that which waited in vain.
    assert_eq!((stats.unprotected, stats.no_sa, stats.stale_operation), (2, 0, 0));
}

#[test]
fn what_comes_without_its_sa_or_by_another_key_is_dropped() {
    let config = Config { otherwise: Action::Discard, ..Config::default() };
    for (theirs, expected) in [([0x2001, 0x1001], 1), ([0x2002, 0x1001], 0)] {
        let steps = |a: HostId, b: HostId, addresses: &usher_sim::Addresses| {
            let ours = pair(a, b, [0x1001, 0x2001], [1, 2], addresses);
            let of_b = pair(b, a, theirs, [2, 1], addresses);
            let other = SaPair { inbound_keys: ours.inbound_keys.clone(), ..of_b.clone() };
            let install = |pair: SaPair| Operation::Install(Box::new(pair));
            let remove = Operation::Remove { inbound: of_b.inbound };
            [
                vec![Step::Protect(vec![install(ours)])],
                // At half second 1 by its key, at 3 by another's.
                vec![Step::Protect(vec![install(of_b)]), Step::Protect(vec![remove, install(other)])],
            ]
        };
        let (seen, packets, stats) = run(config, steps, 2);
        let came = seen.iter().filter(|(.., seen)| *seen == Seen::Datagram).count();
        assert_eq!((came, packets.len()), (expected, 2));
        assert_eq!(stats.no_sa, 2 - expected as u64);
    }
}
