//! A network in two halves, each run by a thread, gives the result of a single thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use usher_core::impair::{ChannelConfig, LossModel, QueueLimit};
use usher_core::{ConnId, Duration, Instant, Seed, SimulationRng, WorkRecord};
use usher_sim::{
    AppContext, AppDelivery, Application, BatchReceiveCost, CpuConfig, CpuStats, HalfRunError,
    HalfSyncChannel, HostId, IpVersion, LinkConfig, LinkId, LinkStats, NetworkHalfIndex, NetworkSplitPlan,
    Payload, ReportObserver, ServiceTime, SimRunError, SimulationBuilder, TcpStreamEvent, TcpTotals,
    TransportConfig, tcp,
};

usher_core::work_labels! {
    /// A request answered.
    ANSWER = "answer" per "request";
}

#[derive(Debug)]
enum HalvesApp {
    /// Sends a request at each of these times, the last one first, by UDP or on a connection, and reports the
    /// replies.
    Asker { server: HostId, times: Vec<Instant>, by_tcp: bool },
    /// Answers with the number of requests so far, which shows their order.
    Server { request_count: u64 },
    /// Reports that this time has come.
    Clock(Instant),
    /// Reports arrivals, and sets its timer for the time of the first.
    Prompt { timer_at: Instant, arrivals: u8 },
}

impl Application for HalvesApp {
    type Report = Vec<u8>;
    fn handle_delivery(&mut self, ctx: &mut AppContext<'_, Vec<u8>>, delivery: AppDelivery) {
        match (self, delivery) {
            (Self::Asker { server, times, by_tcp }, AppDelivery::Start) => {
                if *by_tcp {
                    ctx.connect(ConnId::nth_opened_connection(0), *server, 80);
                }
                ctx.set_timer(times.last().copied());
            }
            (Self::Asker { server, times, by_tcp }, AppDelivery::Timer) => {
                times.pop();
                if *by_tcp {
                    ctx.write(ConnId::nth_opened_connection(0), Payload::with_length(3000));
                } else {
                    ctx.send_datagram(0, *server, 7, Payload::with_length(100));
                }
                ctx.set_timer(times.last().copied());
            }
            (Self::Server { request_count: come }, AppDelivery::Datagram { from, from_port, .. }) => {
                *come += 1;
                ctx.charge_work(WorkRecord { label: ANSWER, units: 1 });
                ctx.send_datagram(0, from, from_port, Payload::copy_from_slice(&come.to_be_bytes()));
            }
            (
                Self::Server { request_count: come },
                AppDelivery::Stream { conn, event: TcpStreamEvent::Data(_) },
            ) => {
                *come += 1;
                ctx.charge_work(WorkRecord { label: ANSWER, units: 1 });
                ctx.write(conn, Payload::copy_from_slice(&come.to_be_bytes()));
            }
            (Self::Asker { .. }, AppDelivery::Datagram { payload, .. })
            | (Self::Asker { .. }, AppDelivery::Stream { event: TcpStreamEvent::Data(payload), .. }) => {
                ctx.report(payload.as_slice().to_vec());
            }
            (Self::Clock(at), AppDelivery::Start) => ctx.set_timer(Some(*at)),
            (Self::Clock(_) | Self::Prompt { .. }, AppDelivery::Timer) => ctx.report(b"clock".to_vec()),
            (Self::Prompt { timer_at: at, arrivals: come }, AppDelivery::Datagram { .. }) => {
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

/// Collects reports, up to a number.
#[derive(Debug)]
struct ReportCollector {
    all: Vec<(Instant, u32, Vec<u8>)>,
    enough: usize,
}

impl ReportObserver<Vec<u8>> for ReportCollector {
    fn handle_report(&mut self, now: Instant, app: u32, report: Vec<u8>) {
        self.all.push((now, app, report));
    }
    fn is_done(&self) -> bool {
        self.all.len() >= self.enough
    }
}

/// All results of a run.
#[derive(PartialEq, Debug)]
struct RunResult {
    now: Instant,
    reports: Vec<(Instant, u32, Vec<u8>)>,
    links: Vec<[LinkStats; 2]>,
    tcp: TcpTotals,
    packet_hops: u64,
    cpu: Option<CpuStats>,
}

/// A network to build repeatedly: hosts of the first half, the server, the number of links.
type BuiltNetwork = (SimulationBuilder<HalvesApp>, Vec<HostId>, HostId, u32);

fn run_whole(make: impl Fn() -> BuiltNetwork, steps: &[Instant], enough: usize) -> RunResult {
    let (builder, _, server, links) = make();
    let mut sim = builder.build(ReportCollector { all: Vec::new(), enough }, None);
    steps.iter().for_each(|until| sim.run_until(*until));
    RunResult {
        now: sim.now(),
        reports: std::mem::take(&mut sim.observer_mut().all),
        links: (0..links).map(|n| sim.link_stats(LinkId(n))).collect(),
        tcp: sim.tcp_totals(),
        packet_hops: sim.packet_hops(),
        cpu: sim.cpu_stats(server),
    }
}

fn run_half(
    make: &impl Fn() -> BuiltNetwork,
    steps: &[Instant],
    enough: usize,
    side: NetworkHalfIndex,
    end: HalfSyncChannel,
) -> Result<RunResult, HalfRunError> {
    let (builder, first, server, links) = make();
    let halves = builder.split_in_halves(first).expect("it can be divided");
    let mut sim = builder.build_half(ReportCollector { all: Vec::new(), enough }, halves, side, end);
    for until in steps {
        sim.run_until(*until, enough < usize::MAX)?;
    }
    let mut all = vec![[LinkStats::default(); 2]; links as usize];
    for (direction, stats) in sim.direction_stats() {
        all[direction as usize / 2][direction as usize % 2] = stats;
    }
    let (tcp, packet_hops) = (sim.tcp_totals(), sim.packet_hops());
    let cpu = sim.cpu_stats(server).filter(|_| sim.halves().side_of(server) == side);
    Ok(RunResult {
        now: sim.now(),
        reports: std::mem::take(&mut sim.observer_mut().all),
        links: all,
        tcp,
        packet_hops,
        cpu,
    })
}

fn in_halves(
    make: impl Fn() -> BuiltNetwork + Sync,
    steps: &[Instant],
    enough: usize,
) -> Result<RunResult, HalfRunError> {
    let [first, second] = HalfSyncChannel::channel_pair();
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| run_half(&make, steps, enough, NetworkHalfIndex::Second, second));
        (run_half(&make, steps, enough, NetworkHalfIndex::First, first), second.join().unwrap())
    });
    let (mut first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (first, second) => return Err(first.and(second).unwrap_err()),
    };
    assert_eq!(second.reports, [], "only the first half reports");
    for (all, more) in first.links.iter_mut().flatten().zip(second.links.iter().flatten()) {
        all.add(more);
    }
    Ok(RunResult {
        tcp: first.tcp.merged_with(second.tcp),
        packet_hops: first.packet_hops + second.packet_hops,
        cpu: first.cpu.or(second.cpu),
        ..first
    })
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}
fn at_micros(us: u64) -> Instant {
    Instant::ZERO + micros(us)
}
fn pick_random<T: Clone>(rng: &mut SimulationRng, of: &[T]) -> T {
    of[rng.next_u64() as usize % of.len()].clone()
}

fn random_channel(rng: &mut SimulationRng, tidy: bool) -> ChannelConfig {
    let loss = pick_random(rng, &[LossModel::None, LossModel::None, LossModel::Bernoulli(0.1)]);
    ChannelConfig {
        rate: pick_random(rng, &[None, Some(8_000_000), Some(3_000_000)]),
        delay: micros(pick_random(rng, &[250, 1000, 4000])),
        jitter: if tidy { Duration::ZERO } else { pick_random(rng, &[Duration::ZERO, micros(300)]) },
        queue: pick_random(rng, &[QueueLimit::Unlimited, QueueLimit::Packets(3)]),
        loss: if tidy { LossModel::None } else { loss },
        ..ChannelConfig::default()
    }
}

/// A random network and its requests. In a tidy one all start at multiples of 250 µs, so that many events
/// coincide.
fn by_chance(case: u64) -> BuiltNetwork {
    let mut rng = Seed::new(case).derive_rng("case", 0);
    let tidy = rng.sample_bool(0.3);
    let bursts = Seed::new(case).derive_rng("bursts", 0).sample_bool(0.5);
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(case));
    let service =
        if tidy { ServiceTime::Constant(micros(250)) } else { ServiceTime::Exponential(micros(200)) };
    let cpu = CpuConfig {
        cores: 1,
        queue: 5,
        service: vec![(ANSWER, service)],
        intake: BatchReceiveCost::default(),
    };
    let router = b.add_host(None).unwrap();
    let server = b.add_host(rng.sample_bool(0.5).then_some(cpu)).unwrap();
    let shared = LinkConfig {
        up: random_channel(&mut rng, tidy),
        down: random_channel(&mut rng, tidy),
        ..Default::default()
    };
    b.add_link(router, server, &shared);
    let access = LinkConfig {
        up: random_channel(&mut rng, tidy),
        down: random_channel(&mut rng, tidy),
        ..Default::default()
    };
    let mut first = Vec::new();
    for _ in 0..1 + rng.next_u64() % 6 {
        let host = b.add_host(None).unwrap();
        b.add_link(host, router, &access);
        let time = |rng: &mut SimulationRng| {
            if tidy {
                at_micros(250 * (rng.next_u64() % 400))
            } else {
                Instant::from_nanos(rng.next_u64() % 100_000_000)
            }
        };
        let mut times: Vec<Instant> = (0..20).map(|_| time(&mut rng)).collect();
        times.sort_by(|a, b| b.cmp(a));
        times.dedup();
        if bursts {
            // At once, so that they arrive at once on links without a rate.
            times = times.into_iter().flat_map(|time| [time; 4]).collect();
        }
        b.add_application(host, HalvesApp::Asker { server, times, by_tcp: rng.sample_bool(0.5) }, None);
        first.push(host);
    }
    let links = 1 + first.len() as u32;
    let app = b.add_application(server, HalvesApp::Server { request_count: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    b.listen_tcp(app, 80).unwrap();
    (b, first, server, links)
}

#[test]
fn two_threads_show_what_one_does_or_say_that_they_cannot() {
    let (mut same, mut undecided) = (0, 0);
    for case in 0..300 {
        let steps = [at_micros(30_000), at_micros(30_000), at_micros(100_000)];
        match in_halves(|| by_chance(case), &steps, usize::MAX) {
            Ok(shown) => {
                assert_eq!(shown, run_whole(|| by_chance(case), &steps, usize::MAX), "case {case}");
                same += 1;
            }
            Err(HalfRunError::Undecided(_)) => undecided += 1,
            Err(why) => panic!("case {case}: {why}"),
        }
    }
    assert!(same > 200 && undecided > 5, "{same} the same, {undecided} undecided");
}

#[test]
fn a_run_that_is_done_ends_at_the_same_event() {
    let (mut same, mut undecided) = (0, 0);
    for case in 0..300 {
        let all = run_whole(|| by_chance(case), &[at_micros(200_000)], usize::MAX).reports.len();
        let enough = 1 + case as usize % all.max(1);
        match in_halves(|| by_chance(case), &[at_micros(200_000)], enough) {
            Ok(shown) => {
                assert_eq!(
                    shown,
                    run_whole(|| by_chance(case), &[at_micros(200_000)], enough),
                    "case {case}"
                );
                assert!(shown.reports.len() == enough.min(all), "case {case}");
                same += 1;
            }
            Err(HalfRunError::Undecided(_)) => undecided += 1,
            Err(why) => panic!("case {case}: {why}"),
        }
    }
    assert!(same > 200 && undecided > 5, "{same} the same, {undecided} undecided");
}

/// An asker and a server with a clock beside it, on a link of 1 ms without a rate. The server's host takes 500 µs
/// per request.
fn with_clock(asked: u64, clock: u64) -> BuiltNetwork {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let service = vec![(ANSWER, ServiceTime::Constant(micros(500)))];
    let cpu = CpuConfig { cores: 1, queue: 5, service, intake: BatchReceiveCost::default() };
    let [a, s] = [None, Some(cpu)].map(|cpu| b.add_host(cpu).unwrap());
    let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
    b.add_link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
    b.add_application(a, HalvesApp::Asker { server: s, times: vec![at_micros(asked)], by_tcp: false }, None);
    let app = b.add_application(s, HalvesApp::Server { request_count: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    b.add_application(a, HalvesApp::Clock(at_micros(clock)), None);
    (b, vec![a], s, 1)
}

#[test]
fn what_is_first_at_a_time_is_what_was_planned_first() {
    // The reply leaves at 5500 and arrives at 6500; the clock was set at the start.
    let make = || with_clock(4000, 6500);
    let shown = in_halves(make, &[at_micros(9000)], usize::MAX).unwrap();
    assert_eq!(shown, run_whole(make, &[at_micros(9000)], usize::MAX));
    let said: Vec<&[u8]> = shown
        .reports
        .iter()
        .map(|(when, _, said)| {
            assert_eq!(*when, at_micros(6500));
            &said[..]
        })
        .collect();
    assert_eq!(said, [&b"clock"[..], &1u64.to_be_bytes()]);
}

/// Two hosts that send to each other's neighbour at the same time, over links of equal delay: packets of both
/// halves, sent at once, arrive at once.
fn at_once() -> BuiltNetwork {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let [a, r, s] = [(); 3].map(|()| b.add_host(None).unwrap());
    let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
    let link = LinkConfig { up: channel.clone(), down: channel, ..Default::default() };
    b.add_link(a, r, &link);
    b.add_link(s, r, &link);
    for from in [a, s] {
        b.add_application(
            from,
            HalvesApp::Asker { server: r, times: vec![at_micros(50)], by_tcp: false },
            None,
        );
    }
    let app = b.add_application(r, HalvesApp::Server { request_count: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    (b, vec![a], r, 2)
}

#[test]
fn packets_arriving_at_once_on_a_link_keep_their_sending_order() {
    for by_tcp in [false, true] {
        let make = || {
            let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
            let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
            let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
            b.add_link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
            let times = [3000, 50].iter().flat_map(|us| [at_micros(*us); 5]).collect();
            b.add_application(a, HalvesApp::Asker { server: s, times, by_tcp }, None);
            let app = b.add_application(s, HalvesApp::Server { request_count: 0 }, None);
            b.bind_udp(app, 0, 7).unwrap();
            b.listen_tcp(app, 80).unwrap();
            (b, vec![a], s, 1)
        };
        let shown = in_halves(make, &[at_micros(100_000)], usize::MAX).unwrap();
        assert_eq!(shown, run_whole(make, &[at_micros(100_000)], usize::MAX));
        let answers: usize = shown.reports.iter().map(|(.., said)| said.len() / 8).sum();
        assert!(answers >= 10, "{shown:?}");
    }
}

#[test]
fn an_order_that_is_not_known_is_not_guessed() {
    let ran = in_halves(at_once, &[at_micros(5000)], usize::MAX);
    assert_eq!(ran, Err(HalfRunError::Undecided(at_micros(1050))));
    assert_eq!(
        ran.unwrap_err().to_string(),
        "at 1.05 ms: the order of two events in the two halves is not known"
    );
}

#[test]
fn a_half_is_undecided_if_arrivals_tie_with_its_last_event() {
    // Three requests are sent to the first half at once, and arrive at once. It sets its timer at the first arrival,
    // for the same time.
    let make = || {
        let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
        let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
        let channel = ChannelConfig { delay: micros(1000), ..Default::default() };
        b.add_link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
        b.add_application(
            s,
            HalvesApp::Asker { server: a, times: vec![at_micros(50); 3], by_tcp: false },
            None,
        );
        let app = b.add_application(a, HalvesApp::Prompt { timer_at: at_micros(1050), arrivals: 0 }, None);
        b.bind_udp(app, 0, 7).unwrap();
        (b, vec![a], s, 1)
    };
    let shown = run_whole(make, &[at_micros(5000)], 3);
    let said: Vec<&[u8]> = shown.reports.iter().map(|(.., said)| &said[..]).collect();
    assert_eq!(said, [&[1][..], &[2], b"clock"]);
    assert_eq!(in_halves(make, &[at_micros(5000)], 3), Err(HalfRunError::Undecided(at_micros(1050))));
    // The first was sent long before the timer was set, the others after.
    assert_eq!(in_halves(make, &[at_micros(5000)], 1), Ok(run_whole(make, &[at_micros(5000)], 1)));
}

#[test]
fn a_half_alone_says_so() {
    let [first, second] = HalfSyncChannel::channel_pair();
    drop(second);
    let ran = run_half(&at_once, &[at_micros(5000)], usize::MAX, NetworkHalfIndex::First, first);
    assert_eq!(ran, Err(HalfRunError::OtherHalfEnded));
}

fn divide_network(
    b: &SimulationBuilder<HalvesApp>,
    hosts: &[HostId],
) -> Option<(Vec<NetworkHalfIndex>, Duration)> {
    let halves: NetworkSplitPlan = b.split_in_halves(hosts.iter().copied())?;
    Some(((0..4).map(|n| halves.side_of(HostId(n))).collect(), halves.lookahead()))
}

/// Four hosts in a row, whose links have these properties.
fn row_of_hosts(channels: [ChannelConfig; 3]) -> (SimulationBuilder<HalvesApp>, [HostId; 4]) {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let hosts = [(); 4].map(|()| b.add_host(None).unwrap());
    for (ends, up) in hosts.windows(2).zip(channels) {
        let down = ChannelConfig { delay: micros(700), ..Default::default() };
        b.add_link(ends[0], ends[1], &LinkConfig { up, down, ..Default::default() });
    }
    (b, hosts)
}

#[test]
fn links_without_delay_or_order_stay_within_one_half() {
    let of = |delay| ChannelConfig { delay: micros(delay), ..Default::default() };
    use NetworkHalfIndex::{First, Second};
    let (b, [a, _, c, d]) = row_of_hosts([of(0), of(500), of(900)]);
    assert_eq!(divide_network(&b, &[a]), Some((vec![First, First, Second, Second], micros(500))));
    assert_eq!(divide_network(&b, &[d]), Some((vec![Second, Second, Second, First], micros(700))));
    assert_eq!(divide_network(&b, &[a, c]), Some((vec![First, First, First, Second], micros(700))));
    assert_eq!(divide_network(&b, &[a, c, d]), None, "nothing is left");
    assert_eq!(divide_network(&b, &[]), None);
    for mixed in [
        ChannelConfig { reorder: 0.1, reorder_delay: micros(10), ..of(500) },
        ChannelConfig { duplicate: 0.1, ..of(500) },
    ] {
        let (b, [_, near, ..]) = row_of_hosts([of(800), mixed, of(900)]);
        assert_eq!(divide_network(&b, &[near]), Some((vec![Second, First, First, Second], micros(700))));
    }
}

#[test]
fn what_cannot_be_divided_is_not() {
    let delayed = || ChannelConfig { delay: micros(500), ..Default::default() };
    let network = || row_of_hosts([delayed(), delayed(), delayed()]);
    let (b, [a, ..]) = network();
    assert!(b.split_in_halves([a]).is_some());
    let tick = tcp::TcpConfig { rtt_tick: micros(10_000), ..Default::default() };
    let bbr = tcp::TcpConfig { congestion: tcp::CongestionControl::Bbr, ..Default::default() };
    for by_iss in [tick, bbr] {
        let (mut b, [a, .., d]) = network();
        let transports = TransportConfig { tcp: by_iss.into(), ..Default::default() };
        b.add_application(d, HalvesApp::Clock(at_micros(1)), Some(transports.into()));
        assert!(b.split_in_halves([a]).is_none());
    }
    let spoil: [fn(&mut SimulationBuilder<HalvesApp>, HostId); 4] = [
        |b, host| b.add_outage(host, at_micros(1), at_micros(2)),
        |b, host| {
            b.add_interface(host).unwrap();
        },
        |b, host| b.make_multihomed(host, &[LinkId(0)]),
        |b, _| b.follow_memory(),
    ];
    for spoil in spoil {
        let (mut b, [a, ..]) = network();
        spoil(&mut b, a);
        assert!(b.split_in_halves([a]).is_none());
    }
}

/// Stops the run after a number of reports.
#[derive(Debug)]
struct AbortingObserver {
    left: u32,
    stop: Arc<AtomicBool>,
}

impl ReportObserver<Vec<u8>> for AbortingObserver {
    fn handle_report(&mut self, _: Instant, _: u32, _: Vec<u8>) {
        self.left = self.left.wrapping_sub(1);
        if self.left == 0 {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// A request every 50 µs with a reply, never at the time of another: some 20,000 events per half.
fn long_dialogue() -> (SimulationBuilder<HalvesApp>, HostId) {
    let mut b = SimulationBuilder::new(IpVersion::V4, Seed::new(1));
    let [a, s] = [(); 2].map(|()| b.add_host(None).unwrap());
    let channel = ChannelConfig { delay: micros(1013), ..Default::default() };
    b.add_link(a, s, &LinkConfig { up: channel.clone(), down: channel, ..Default::default() });
    let times = (1..=10_000).rev().map(|n| at_micros(50 * n)).collect();
    b.add_application(a, HalvesApp::Asker { server: s, times, by_tcp: false }, None);
    let app = b.add_application(s, HalvesApp::Server { request_count: 0 }, None);
    b.bind_udp(app, 0, 7).unwrap();
    (b, a)
}

#[test]
fn a_run_that_is_given_up_ends_soon_and_for_good() {
    let stop = Arc::<AtomicBool>::default();
    let mut sim = long_dialogue().0.build(AbortingObserver { left: 100, stop: stop.clone() }, None);
    sim.end_when(stop);
    sim.run_until(at_micros(1_000_000));
    assert_eq!(sim.fault(), Some(SimRunError::Stopped));
    let (events, now) = (sim.event_count(), sim.now());
    assert!((300..=1500).contains(&events), "{events} events, of which 300 are of the first hundred answers");
    sim.run_until(at_micros(2_000_000));
    assert_eq!((sim.event_count(), sim.now()), (events, now));
}

#[test]
fn both_halves_of_a_run_that_is_given_up_end() {
    for to_its_end in [false, true] {
        let [first, second] = HalfSyncChannel::channel_pair();
        let stop = Arc::<AtomicBool>::default();
        let run = |side, end| {
            let (builder, a) = long_dialogue();
            let halves = builder.split_in_halves([a]).expect("it can be divided");
            let observer = AbortingObserver { left: 100, stop: stop.clone() };
            let mut sim = builder.build_half(observer, halves, side, end);
            sim.end_when(stop.clone());
            (sim.run_until(at_micros(1_000_000), to_its_end), sim.event_count())
        };
        let (first, second) = std::thread::scope(|scope| {
            let second = scope.spawn(|| run(NetworkHalfIndex::Second, second));
            (run(NetworkHalfIndex::First, first), second.join().unwrap())
        });
        assert_eq!((first.0, second.0), (Err(HalfRunError::Stopped), Err(HalfRunError::Stopped)));
        assert!(first.1 <= 3000 && second.1 <= 3000, "{} and {} events", first.1, second.1);
    }
}
