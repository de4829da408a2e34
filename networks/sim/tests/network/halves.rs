//! A network in two halves, each run by a thread: what happens is what happens in one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::impair::{ChannelConfig, Loss, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Rng, Seed, Work};
use usher_sim::{
    Application, Builder, Context, CpuConfig, CpuStats, Delivery, End, Fault, Halves, HostId, Intake,
    IpVersion, LinkConfig, LinkId, LinkStats, Observer, Parted, Payload, ServiceTime, Side, StreamDelivery,
    TcpTotals, Transports, tcp,
};

usher_core::work_labels! {
    /// A request answered.
    ANSWER = "answer" per "request";
}

#[derive(Debug)]
enum App {
    /// Sends a request at each of these times, the last one first, by UDP or on a connection, and tells what comes.
    Asker { server: HostId, times: Vec<Instant>, by_tcp: bool },
    /// Answers with how many requests have come, so that their order is seen.
    Server { come: u64 },
    /// Tells that this time has come.
    Clock(Instant),
    /// Tells what comes, and that it has set its timer for the time of the first that came.
    Prompt { at: Instant, come: u8 },
}

impl Application for App {
    type Report = Vec<u8>;
    fn handle(&mut self, ctx: &mut Context<'_, Vec<u8>>, delivery: Delivery) {
        match (self, delivery) {
            (Self::Asker { server, times, by_tcp }, Delivery::Start) => {
                if *by_tcp {
                    ctx.connect(ConnId::opened(0), *server, 80);
                }
                ctx.set_timer(times.last().copied());
            }
            (Self::Asker { server, times, by_tcp }, Delivery::Timer) => {
                times.pop();
                if *by_tcp {
                    ctx.write(ConnId::opened(0), Payload::counted(3000));
                } else {
                    ctx.send_datagram(0, *server, 7, Payload::counted(100));
                }
                ctx.set_timer(times.last().copied());
            }
            (Self::Server { come }, Delivery::Datagram { from, from_port, .. }) => {
                *come += 1;
                ctx.work(Work { label: ANSWER, units: 1 });
                ctx.send_datagram(0, from, from_port, Payload::copied(&come.to_be_bytes()));
            }
            (Self::Server { come }, Delivery::Stream { conn, event: StreamDelivery::Data(_) }) => {
                *come += 1;
                ctx.work(Work { label: ANSWER, units: 1 });
                ctx.write(conn, Payload::copied(&come.to_be_bytes()));
            }
            (Self::Asker { .. }, Delivery::Datagram { payload, .. })
            | (Self::Asker { .. }, Delivery::Stream { event: StreamDelivery::Data(payload), .. }) => {
                ctx.report(payload.as_slice().to_vec());
            }
            (Self::Clock(at), Delivery::Start) => ctx.set_timer(Some(*at)),
            (Self::Clock(_) | Self::Prompt { .. }, Delivery::Timer) => ctx.report(b"clock".to_vec()),
            (Self::Prompt { at, come }, Delivery::Datagram { .. }) => {
                *come += 1;
                ctx.report(vec![*come]);
                if *come == 1 {
                    ctx.set_timer(Some(*at));
                }
            }
            _ => {}
        }
    }
}

/// What is reported, until so much has been.
#[derive(Debug)]
struct Heard {
    all: Vec<(Instant, u32, Vec<u8>)>,
    enough: usize,
}

impl Observer<Vec<u8>> for Heard {
    fn report(&mut self, now: Instant, app: u32, report: Vec<u8>) {
        self.all.push((now, app, report));
    }
    fn is_done(&self) -> bool {
        self.all.len() >= self.enough
    }
}

/// All that a run shows.
#[derive(PartialEq, Debug)]
struct Shown {
    now: Instant,
    heard: Vec<(Instant, u32, Vec<u8>)>,
    links: Vec<[LinkStats; 2]>,
    tcp: TcpTotals,
    packet_hops: u64,
    cpu: Option<CpuStats>,
}

/// A network to be built as often as it is needed: the hosts of the first half, the server, how many links there are.
type Made = (Builder<App>, Vec<HostId>, HostId, u32);

fn whole(make: impl Fn() -> Made, steps: &[Instant], enough: usize) -> Shown {
    let (builder, _, server, links) = make();
    let mut sim = builder.build(Heard { all: Vec::new(), enough }, None);
    steps.iter().for_each(|until| sim.run_until(*until));
    Shown {
        now: sim.now(),
        heard: std::mem::take(&mut sim.observer_mut().all),
        links: (0..links).map(|n| sim.link_stats(LinkId(n))).collect(),
        tcp: sim.tcp_totals(),
        packet_hops: sim.packet_hops(),
        cpu: sim.cpu_stats(server),
    }
}

fn half(
    make: &impl Fn() -> Made,
    steps: &[Instant],
    enough: usize,
    side: Side,
    end: End,
) -> Result<Shown, Parted> {
    let (builder, first, server, links) = make();
    let halves = builder.halves(first).expect("it can be divided");
    let mut sim = builder.build_half(Heard { all: Vec::new(), enough }, halves, side, end);
    for until in steps {
        sim.run_until(*until, enough < usize::MAX)?;
    }
    let mut all = vec![[LinkStats::default(); 2]; links as usize];
    for (direction, stats) in sim.directions() {
        all[direction as usize / 2][direction as usize % 2] = stats;
    }
    let (tcp, packet_hops) = (sim.tcp_totals(), sim.packet_hops());
    let cpu = sim.cpu_stats(server).filter(|_| sim.halves().of(server) == side);
    Ok(Shown {
        now: sim.now(),
        heard: std::mem::take(&mut sim.observer_mut().all),
        links: all,
        tcp,
        packet_hops,
        cpu,
    })
}

fn in_halves(make: impl Fn() -> Made + Sync, steps: &[Instant], enough: usize) -> Result<Shown, Parted> {
    let [first, second] = End::pair();
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| half(&make, steps, enough, Side::Second, second));
        (half(&make, steps, enough, Side::First, first), second.join().unwrap())
    });
    let (mut first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (first, second) => return Err(first.and(second).unwrap_err()),
    };
    assert_eq!(second.heard, [], "only the first half reports");
    for (all, more) in first.links.iter_mut().flatten().zip(second.links.iter().flatten()) {
        all.add(more);
    }
    Ok(Shown {
        tcp: first.tcp.and(second.tcp),
        packet_hops: first.packet_hops + second.packet_hops,
        cpu: first.cpu.or(second.cpu),
        ..first
    })
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
fn at(us: u64) -> Instant {
    Instant::ZERO + micros(us)
}
fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.next_u64() as usize % of.len()].clone()
}

fn channel(rng: &mut Rng, tidy: bool) -> ChannelConfig {
    let loss = pick(rng, &[Loss::None, Loss::None, Loss::Bernoulli(0.1)]);
    ChannelConfig {
        rate: pick(rng, &[None, Some(8_000_000), Some(3_000_000)]),
        delay: micros(pick(rng, &[250, 1000, 4000])),
        jitter: if tidy { Duration::ZERO } else { pick(rng, &[Duration::ZERO, micros(300)]) },
        queue: pick(rng, &[QueueLimit::Unlimited, QueueLimit::Packets(3)]),
        loss: if tidy { Loss::None } else { loss },
        ..ChannelConfig::default()
    }
}

/// A network and what is asked in it, by chance. In a tidy one all begins at whole steps of 250 µs, so that much happens at once.
fn by_chance(case: u64) -> Made {
    let mut rng = Seed::new(case).stream("case", 0);
    let tidy = rng.chance(0.3);
    let bursts = Seed::new(case).stream("bursts", 0).chance(0.5);
    let mut b = Builder::new(IpVersion::V4, Seed::new(case));
    let service =
        if tidy { ServiceTime::Constant(micros(250)) } else { ServiceTime::Exponential(micros(200)) };
    let cpu = CpuConfig { cores: 1, queue: 5, service: vec![(ANSWER, service)], intake: Intake::default() };
    let router = b.host(None).unwrap();
    let server = b.host(rng.chance(0.5).then_some(cpu)).unwrap();
    let shared =
        LinkConfig { up: channel(&mut rng, tidy), down: channel(&mut rng, tidy), ..Default::default() };
    b.link(router, server, &shared);
    let access =
        LinkConfig { up: channel(&mut rng, tidy), down: channel(&mut rng, tidy), ..Default::default() };
    let mut first = Vec::new();
    for _ in 0..1 + rng.next_u64() % 6 {
        let host = b.host(None).unwrap();
        b.link(host, router, &access);
        let time = |rng: &mut Rng| {
            if tidy {
                at(250 * (rng.next_u64() % 400))
            } else {
                Instant::from_nanos(rng.next_u64() % 100_000_000)
            }
        };
        let mut times: Vec<Instant> = (0..20).map(|_| time(&mut rng)).collect();
        times.sort_by(|a, b| b.cmp(a));
        times.dedup();
        if bursts {
            // At once, so that on links without a rate they arrive at once.
            times = times.into_iter().flat_map(|time| [time; 4]).collect();
        }
        b.app(host, App::Asker { server, times, by_tcp: rng.chance(0.5) }, None);
        first.push(host);
    }
    let links = 1 + first.len() as u32;
    let app = b.app(server, App::Server { come: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    b.listen(app, 80).unwrap();
    (b, first, server, links)
}

#[test]
fn two_threads_show_what_one_does_or_say_that_they_cannot() {
    let (mut same, mut undecided) = (0, 0);
    for case in 0..300 {
        let steps = [at(30_000), at(30_000), at(100_000)];
        match in_halves(|| by_chance(case), &steps, usize::MAX) {
            Ok(shown) => {
                assert_eq!(shown, whole(|| by_chance(case), &steps, usize::MAX), "case {case}");
                same += 1;
            }
            Err(Parted::Undecided(_)) => undecided += 1,
            Err(why) => panic!("case {case}: {why}"),
        }
    }
    assert!(same > 200 && undecided > 5, "{same} the same, {undecided} undecided");
}

#[test]
fn a_run_that_is_done_ends_at_the_same_event() {
    let (mut same, mut undecided) = (0, 0);
    for case in 0..300 {
        let all = whole(|| by_chance(case), &[at(200_000)], usize::MAX).heard.len();
        let enough = 1 + case as usize % all.max(1);
        match in_halves(|| by_chance(case), &[at(200_000)], enough) {
            Ok(shown) => {
                assert_eq!(shown, whole(|| by_chance(case), &[at(200_000)], enough), "case {case}");
                assert!(shown.heard.len() == enough.min(all), "case {case}");
                same += 1;
            }
            Err(Parted::Undecided(_)) => undecided += 1,
            Err(why) => panic!("case {case}: {why}"),
        }
    }
    assert!(same > 200 && undecided > 5, "{same} the same, {undecided} undecided");
}

/// An asker and a server with a clock beside it, on a link of 1 ms without a rate. The server's host answers requests in 500 µs.
fn with_clock(asked: u64, clock: u64) -> Made {
    let mut b = Builder::new(IpVersion::V4, Seed::new(1));
    let service = vec![(ANSWER, ServiceTime::Constant(micros(500)))];
    let cpu = CpuConfig { cores: 1, queue: 5, service, intake: Intake::default() };
    let [a, s] = [None, Some(cpu)].map(|cpu| b.host(cpu).unwrap());
    let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
    b.link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
    b.app(a, App::Asker { server: s, times: vec![at(asked)], by_tcp: false }, None);
    let app = b.app(s, App::Server { come: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    b.app(a, App::Clock(at(clock)), None);
    (b, vec![a], s, 1)
}

#[test]
fn what_is_first_at_a_time_is_what_was_planned_first() {
    // The answer leaves at 5500 and comes at 6500; the clock was set at the beginning.
    let make = || with_clock(4000, 6500);
    let shown = in_halves(make, &[at(9000)], usize::MAX).unwrap();
    assert_eq!(shown, whole(make, &[at(9000)], usize::MAX));
    let said: Vec<&[u8]> = shown
        .heard
        .iter()
        .map(|(when, _, said)| {
            assert_eq!(*when, at(6500));
            &said[..]
        })
        .collect();
    assert_eq!(said, [&b"clock"[..], &1u64.to_be_bytes()]);
}

/// Two hosts that send to each other's neighbour at the same time, over links of the same delay: packets of both halves, sent at
/// once, arrive at once.
fn at_once() -> Made {
    let mut b = Builder::new(IpVersion::V4, Seed::new(1));
    let [a, r, s] = [(); 3].map(|()| b.host(None).unwrap());
    let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
    let link = LinkConfig { up: channel.clone(), down: channel, ..Default::default() };
    b.link(a, r, &link);
    b.link(s, r, &link);
    for from in [a, s] {
        b.app(from, App::Asker { server: r, times: vec![at(50)], by_tcp: false }, None);
    }
    let app = b.app(r, App::Server { come: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    (b, vec![a], r, 2)
}

#[test]
fn packets_of_one_link_that_arrive_at_once_are_in_the_order_of_their_sending() {
    for by_tcp in [false, true] {
        let make = || {
            let mut b = Builder::new(IpVersion::V4, Seed::new(1));
            let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
            let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
            b.link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
            let times = [3000, 50].iter().flat_map(|us| [at(*us); 5]).collect();
            b.app(a, App::Asker { server: s, times, by_tcp }, None);
            let app = b.app(s, App::Server { come: 0 }, None);
            b.bind_udp(app, 0, 7).unwrap();
            b.listen(app, 80).unwrap();
            (b, vec![a], s, 1)
        };
        let shown = in_halves(make, &[at(100_000)], usize::MAX).unwrap();
        assert_eq!(shown, whole(make, &[at(100_000)], usize::MAX));
        let answers: usize = shown.heard.iter().map(|(.., said)| said.len() / 8).sum();
        assert!(answers >= 10, "{shown:?}");
    }
}

#[test]
fn an_order_that_is_not_known_is_not_guessed() {
    let ran = in_halves(at_once, &[at(5000)], usize::MAX);
    assert_eq!(ran, Err(Parted::Undecided(at(1050))));
    assert_eq!(
        ran.unwrap_err().to_string(),
        "at 1.05 ms: which of two events of two halves happens first is not known"
    );
}

#[test]
fn what_is_still_to_come_at_the_last_time_may_have_been_before_the_last_event() {
    // Three requests are sent to the first half at once, and arrive at once. Its timer is set as the first arrives, for the same time.
    let make = || {
        let mut b = Builder::new(IpVersion::V4, Seed::new(1));
        let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
        let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
        b.link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
        b.app(s, App::Asker { server: a, times: vec![at(50); 3], by_tcp: false }, None);
        let app = b.app(a, App::Prompt { at: at(1050), come: 0 }, None);
        b.bind_udp(app, 0, 7).unwrap();
        (b, vec![a], s, 1)
    };
    let shown = whole(make, &[at(5000)], 3);
    let said: Vec<&[u8]> = shown.heard.iter().map(|(.., said)| &said[..]).collect();
    assert_eq!(said, [&[1][..], &[2], b"clock"]);
    assert_eq!(in_halves(make, &[at(5000)], 3), Err(Parted::Undecided(at(1050))));
    // The first was sent long before the timer was set, and the others after it.
    assert_eq!(in_halves(make, &[at(5000)], 1), Ok(whole(make, &[at(5000)], 1)));
}

#[test]
fn a_half_alone_says_so() {
    let [first, second] = End::pair();
    drop(second);
    let ran = half(&at_once, &[at(5000)], usize::MAX, Side::First, first);
    assert_eq!(ran, Err(Parted::Alone));
}

fn divided(b: &Builder<App>, hosts: &[HostId]) -> Option<(Vec<Side>, Duration)> {
    let halves: Halves = b.halves(hosts.iter().copied())?;
    Some(((0..4).map(|n| halves.of(HostId(n))).collect(), halves.lookahead()))
}

/// Four hosts in a row, whose links have these properties.
fn row(channels: [ChannelConfig; 3]) -> (Builder<App>, [HostId; 4]) {
    let mut b = Builder::new(IpVersion::V4, Seed::new(1));
    let hosts = [(); 4].map(|()| b.host(None).unwrap());
    for (ends, up) in hosts.windows(2).zip(channels) {
        let down = ChannelConfig { delay: micros(700), ..Default::default() };
        b.link(ends[0], ends[1], &LinkConfig { up, down, ..Default::default() });
    }
    (b, hosts)
}

#[test]
fn links_without_a_delay_and_those_that_mix_packets_up_stay_within_a_half() {
    let of = |delay| ChannelConfig { delay: micros(delay), ..Default::default() };
    use Side::{First, Second};
    let (b, [a, _, c, d]) = row([of(0), of(500), of(900)]);
    assert_eq!(divided(&b, &[a]), Some((vec![First, First, Second, Second], micros(500))));
    assert_eq!(divided(&b, &[d]), Some((vec![Second, Second, Second, First], micros(700))));
    assert_eq!(divided(&b, &[a, c]), Some((vec![First, First, First, Second], micros(700))));
    assert_eq!(divided(&b, &[a, c, d]), None, "nothing is left");
    assert_eq!(divided(&b, &[]), None);
    for mixed in [
        ChannelConfig { reorder: 0.1, reorder_delay: micros(10), ..of(500) },
        ChannelConfig { duplicate: 0.1, ..of(500) },
    ] {
        let (b, [_, near, ..]) = row([of(800), mixed, of(900)]);
        assert_eq!(divided(&b, &[near]), Some((vec![Second, First, First, Second], micros(700))));
    }
}

#[test]
fn what_cannot_be_divided_is_not() {
    let delayed = || ChannelConfig { delay: micros(500), ..Default::default() };
    let network = || row([delayed(), delayed(), delayed()]);
    let (b, [a, ..]) = network();
    assert!(b.halves([a]).is_some());
    let tick = tcp::Config { rtt_tick: micros(10_000), ..Default::default() };
    let bbr = tcp::Config { congestion: tcp::CongestionControl::Bbr, ..Default::default() };
    for by_iss in [tick, bbr] {
        let (mut b, [a, .., d]) = network();
        let transports = Transports { tcp: by_iss.into(), ..Default::default() };
        b.app(d, App::Clock(at(1)), Some(transports.into()));
        assert!(b.halves([a]).is_none());
    }
    let spoil: [fn(&mut Builder<App>, HostId); 4] = [
        |b, host| b.outage(host, at(1), at(2)),
        |b, host| {
            b.interface(host).unwrap();
        },
        |b, host| b.multihome(host, &[LinkId(0)]),
        |b, _| b.follow_memory(),
    ];
    for spoil in spoil {
        let (mut b, [a, ..]) = network();
        spoil(&mut b, a);
        assert!(b.halves([a]).is_none());
    }
}

/// Hears so much, and then has the run given up.
#[derive(Debug)]
struct GivesUp {
    left: u32,
    stop: Arc<AtomicBool>,
}

impl Observer<Vec<u8>> for GivesUp {
    fn report(&mut self, _: Instant, _: u32, _: Vec<u8>) {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A request every 50 µs, which is answered, and never at the time of another: some 20,000 events of each half.
fn long() -> (Builder<App>, HostId) {
    let mut b = Builder::new(IpVersion::V4, Seed::new(1));
    let [a, s] = [(); 2].map(|()| b.host(None).unwrap());
    let channel = ChannelConfig { delay: micros(1013), ..Default::default() };
    b.link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
    let times = (1..=10_000).rev().map(|n| at(50 * n)).collect();
    b.app(a, App::Asker { server: s, times, by_tcp: false }, None);
    let app = b.app(s, App::Server { come: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    (b, a)
}

#[test]
fn a_run_that_is_given_up_ends_soon_and_for_good() {
    let stop = Arc::<AtomicBool>::default();
    let mut sim = long().0.build(GivesUp { left: 100, stop: stop.clone() }, None);
    sim.end_when(stop);
    sim.run_until(at(1_000_000));
    assert_eq!(sim.fault(), Some(Fault::Stopped));
    let (events, now) = (sim.events(), sim.now());
    assert!((300..=1500).contains(&events), "{events} events, of which 300 are of the first hundred answers");
    sim.run_until(at(2_000_000));
    assert_eq!((sim.events(), sim.now()), (events, now));
}

#[test]
fn both_halves_of_a_run_that_is_given_up_end() {
    for to_its_end in [false, true] {
        let [first, second] = End::pair();
        let stop = Arc::<AtomicBool>::default();
        let run = |side, end| {
            let (builder, a) = long();
            let halves = builder.halves([a]).expect("it can be divided");
            let observer = GivesUp { left: 100, stop: stop.clone() };
            let mut sim = builder.build_half(observer, halves, side, end);
            sim.end_when(stop.clone());
            (sim.run_until(at(1_000_000), to_its_end), sim.events())
        };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| run(Side::Second, second));
            (run(Side::First, first), second.join().unwrap())
        });
        assert_eq!((first.0, second.0), (Err(Parted::Stopped), Err(Parted::Stopped)));
        assert!(first.1 <= 3000 && second.1 <= 3000, "{} and {} events", first.1, second.1);
    }
}
